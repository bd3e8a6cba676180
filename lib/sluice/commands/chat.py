"""chat: chat with a model, at a terminal or through pipes."""

import contextlib
import os
from typing import Any

from .. import cli
from ..grammar import matcher
from ..system import files as paths
from ..tokenizer import vocabulary
from ..chat import conversation, messages as message_files, renderings, template, terminal
from ..faults import BAD_DATA, Error
from ..model.model import KV_TYPES, Model
from ..generate import prompt_cache
from ..generate.sampler import from_options
from ..kvcache import capacity as capacities
from ..limits import MAX_CAPACITY
from ..kvcache.scratch import Scratch
from ..cli import sampling
import click


@cli.command()
@cli.model_option
@cli.vocab_option
@cli.chat_options
@cli.option(
    "--switch",
    is_flag=True,
    group="Chat",
    help="Switch roles: the model is the user and begins; you are the assistant.",
)
@cli.text_option("Read messages from FILE, one per line, as from a pipe.", "Chat")
@cli.option(
    "-o",
    "--out",
    metavar="FILE",
    group="Chat",
    help="Save the conversation to FILE at the end, in the format of --messages.",
)
@cli.option(
    "--history",
    metavar="FILE",
    group="Chat",
    help="Keep the lines that you type in FILE (mode 0600), for the arrow keys.",
)
@cli.predict_option("an answer")
@cli.stop_option
@cli.grammar_options
@sampling.options
@cli.context_option(
    MAX_CAPACITY, "Context size of the conversation, in tokens.", "the model's context"
)
@cli.option(
    "--kv",
    type=click.Choice(list(KV_TYPES)),
    metavar="TYPE",
    default="f16",
    group="Cache",
    help="Type of the KV cache: f32, f16 or q8_0.",
)
@cli.cache_options
@cli.arithmetic_option
@cli.threads_option
@cli.huge_pages_option
@cli.verbose_option
def main(
    model: str,
    vocab_file: str | None,
    system: str | None,
    path: str | None,
    template_path: str | None,
    variables: dict[str, Any],
    switch: bool,
    max_tokens: int | None,
    stops: tuple[str, ...],
    grammar_path: str | None,
    grammar_text: str | None,
    seed: int | None,
    bias: tuple[tuple[int, float], ...],
    bias_word: tuple[tuple[str, float], ...],
    out: str | None,
    history: str | None,
    capacity: int | None,
    kv: str,
    cache_dir: str | None,
    cache_bytes: int,
    arithmetic: str,
    threads: int | None,
    huge_pages: bool,
    verbose: bool,
    **steps: Any,
) -> None:
    """Chat with a model, at a terminal or through pipes.

    SYNOPSIS
      chat -m MODEL [OPTIONS]
      chat -m MODEL [OPTIONS] <messages >answers

    DESCRIPTION
      Each line of stdin is a message; the model's chat template formats it. At a terminal a paste
      of several lines is one message, and the arrow keys edit a line and recall earlier ones.
      Ctrl-C stops an answer; the part already printed stays in the conversation. Ctrl-D ends.

      From a pipe or a file, stdout gets the answers only, each with a newline. No input is a
      command, and text in a message never becomes a control token. Output cannot control the
      terminal: escape characters are shown as ^[. Answers are valid UTF-8: invalid bytes become
      U+FFFD, and an incomplete character at the end is dropped.

      After each answer, stderr gets the numbers of tokens processed and generated, tokens per
      second, the reason for the end (as for generate) and the used part of the context; from a pipe
      only with -v.

      If less than a quarter of the context is left for an answer, the oldest messages are dropped,
      up to the next one of the same role; the system message stays. A line on stderr reports that.
      A message that does not fit is an error: a line at a terminal, status 65 from a pipe. If the
      last message of --messages is the user's, the model answers it first. With --cache DIR, the
      first prompt is processed from where it parts from what DIR has.

    EXIT STATUS
      0   end of stdin
      1   from a pipe: -n or the context cut an answer before its grammar was complete
      64  usage error
      65  invalid model, grammar, messages or template; message too long
      66  no such file
      69  unsupported model or arithmetic; no chat template
      73  cannot create FILE
      74  I/O error
      75  out of memory; retry

    EXAMPLES
      printf 'Hello\\nAnd now?\\n' |
        chat -m m.gguf --template plain --system 'Be brief.' -n 20 -o talk.jsonl
      chat -m m.gguf --messages talk.jsonl --template plain -n 20 -f prompt.txt

    SEE ALSO
      generate, classify
    """
    cli.check_text_options(grammar_path, grammar_text, stops)
    if out:
        paths.check_target(out, model, vocab_file, template_path)
    rules, messages = (
        matcher.of_options(grammar_path, grammar_text),
        conversation.opening(system, path),
    )
    m = Model(model, threads, arithmetic, vocab_file, huge_pages)
    words = vocabulary.Vocab(m.file)
    its_template = template.of(m.file, words, template_path, variables)
    kept = prompt_cache.PromptCache(cache_dir, cache_bytes, cli.say) if cache_dir else None
    its_template.renderings = renderings.Renderings(cache_dir) if cache_dir else None
    sampler = from_options(steps, m.hparams.n_vocab, seed, bias, bias_word, words)
    cache = Scratch(m.geometry(kv), capacities.limit(m.hparams.n_ctx, capacity), logits=True)
    at_terminal, interrupt = os.isatty(0), terminal.Interrupt()
    talk = conversation.Conversation(
        m,
        words,
        its_template,
        cache,
        messages,
        "user" if switch else "assistant",
        max_tokens,
        cli.say,
        interrupt,
        kept,
    )

    def answer():
        interrupt.clear()
        end = b"\n"
        for data in talk.answer(sampler, rules, [os.fsencode(stop) for stop in stops]):
            terminal.show(data)
            end = b"" if data.endswith(b"\n") and at_terminal else b"\n" if data else end
        terminal.show(end)
        if (at_terminal or verbose) and talk.figures:
            cli.say(terminal.summary(talk.figures))

    with interrupt if at_terminal else contextlib.nullcontext():
        if switch or messages and messages[-1].role == talk.author:
            answer()
        for line in terminal.typed("> ", history) if at_terminal else terminal.piped():
            n_messages = len(messages)
            messages.append(template.Message(talk.author, line.decode("utf-8", "replace")))
            try:
                answer()
            except Error as e:
                if not (at_terminal and e.code == BAD_DATA):
                    raise
                del messages[n_messages:]
                cli.say(e)
    m.file.check_unchanged()
    if out and messages:
        message_files.write(out, messages)
    if verbose:
        cli.report(messages=len(messages), cut=talk.n_cut, seed=sampler.seed)
    if talk.n_cut and not at_terminal:
        raise click.exceptions.Exit(1)
