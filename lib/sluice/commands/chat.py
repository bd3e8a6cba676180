"""chat: chat with a model, at a terminal or through pipes."""

import contextlib
import os
from typing import Any

from .. import cli
from ..grammar import sources
from ..system import files as paths
from ..tokenizer import vocabulary
from ..chat import conversation, messages as message_files, renderings, template, terminal
from ..chat.message import Message
from ..chat import talk as talk_files
from .. import jsonl
from ..faults import BAD_DATA, Error
from ..model.model import KV_TYPES, Model
from ..generate import prompt_cache
from ..generate.sampler import from_options
from ..generate.speculation import Speculation
from ..kvcache import capacity as capacities
from ..limits import MAX_CAPACITY
from ..kvcache.scratch import Scratch
from ..cli import sampling
import click


@cli.command()
@cli.model_option
@cli.vocab_option
@cli.chat_options
@cli.tools_options
@cli.option(
    "--switch",
    is_flag=True,
    group="Chat",
    help="Switch roles: the model is the user and begins; you are the assistant.",
)
@cli.text_option("Read messages from FILE, one per line, as from a pipe.", "Chat")
@cli.option(
    "--talk",
    "talk_path",
    metavar="FILE",
    files=("jsonl",),
    group="Chat",
    help="Go on with the conversation in FILE, if it exists, and keep it there: messages after each"
    " answer, and at the end the model's state in FILE.kv.",
)
@cli.continue_option
@cli.shift_option
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
@cli.grammar_options()
@cli.complete_option
@sampling.options
@sampling.penalize_prompt
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
@cli.speculation_options
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
    tools_path: str | None,
    choice: str | None,
    switch: bool,
    max_tokens: int | None,
    stops: tuple[str, ...],
    rules: sources.Source,
    complete: bool,
    seed: int | None,
    bias: tuple[tuple[int, float], ...],
    bias_word: tuple[tuple[str, float], ...],
    penalize_prompt: bool,
    talk_path: str | None,
    goes_on: bool,
    shift: bool,
    out: str | None,
    history: str | None,
    capacity: int | None,
    kv: str,
    cache_dir: str | None,
    cache_bytes: int,
    draft_path: str | None,
    no_lookup: bool,
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
      Ctrl-C stops an answer; the part already printed stays in the conversation. Ctrl-D ends. From
      a pipe an interrupt also ends the chat; --talk and -o keep what was said so far.

      From a pipe or a file, stdout gets the answers only, each with a newline. No input is a
      command, and text in a message never becomes a control token. Output cannot control the
      terminal: escape characters are shown as ^[. Answers are valid UTF-8: invalid bytes become
      U+FFFD, and an incomplete character at the end is dropped.

      After each answer, stderr gets the numbers of tokens processed and generated, tokens per
      second, the reason for the end (as for generate) and the used part of the context; from a pipe
      only with -v.

      Penalties, DRY and Mirostat (see sample --help) remember earlier answers, with
      --penalize-prompt the whole context; no repetition that DRY sees crosses from one answer to
      the next.

      If less than a quarter of the context is left for an answer, the oldest messages are dropped,
      up to the next one of the same role; the system message stays. A line on stderr reports that,
      and also if an answer ends because the context is full.
      A message that does not fit is an error: a line at a terminal, status 65 from a pipe. If the
      last message of --messages is the user's, the model answers it first. With --cache DIR, the
      first prompt is processed from where it parts from what DIR has.

      As with generate, --complete completes an answer that was cut before its grammar was complete.
      As there, guessed tokens make answers faster, and change none (--no-lookup, --draft).

      With --tools FILE the model may call the functions in FILE, if its template knows tools. Such
      an answer is a JSON line, an object with role, content and tool_calls, whose arguments satisfy
      the function's schema; nothing is executed. The next lines of stdin are the results of the
      calls, one for each; at a terminal the prompt is then the function's name. An answer to
      results need not call again, whatever --tool-choice says. A text never begins with { or [. An
      answer that -n or the context cuts within a call has its text alone.

      With --talk FILE the conversation goes on with each run, as if it had been one: the model's
      state is in FILE.kv, and processing begins where the last run ended. If the state cannot be
      written, a line on stderr says so, and the talk is kept without it. While a chat has FILE
      open, another one ends with 75; generate --messages can read it. --continue goes on with an
      answer that was cut.

    EXIT STATUS
      0   end of stdin
      1   from a pipe: -n or the context cut an answer before its grammar was complete
      64  usage error
      65  invalid model, grammar, schema, tools, messages or template; message too long
      66  no such file
      69  unsupported model, arithmetic or keyword of a schema; no chat template; the template does
          not know tools
      73  cannot create FILE
      74  I/O error
      75  out of memory or disk space, or another chat has FILE of --talk open; retry

    EXAMPLES
      printf 'Hello\\nAnd now?\\n' |
        chat -m m.gguf --template plain --system 'Be brief.' -n 20 -o talk.jsonl
      chat -m m.gguf --messages talk.jsonl --template plain -n 20 -f prompt.txt
      echo Hello | chat -m m.gguf --template plain --talk mine.jsonl -n 20
      chat -m m.gguf --template plain --talk mine.jsonl --continue -n 20 </dev/null

    SEE ALSO
      generate, classify
    """
    cli.check_stops(stops)
    cli.check_complete(complete, rules, stops, tools_path is not None)
    if rules.schema == "-":
        raise click.UsageError("--json-schema -: stdin has the messages")
    if talk_path and path:
        raise click.UsageError("--talk and --messages exclude each other")
    for target in filter(None, (out, talk_path)):
        paths.check_target(target, model, vocab_file, template_path)
    lock = None
    if talk_path:
        paths.check_target(talk_path + talk_files.SUFFIX)
        if goes_on:
            talk_files.check_exists(talk_path)
        lock = click.get_current_context().with_resource(talk_files.Lock(talk_path))
    grammar, messages = rules.grammar(), conversation.opening(system, path)
    excluded = {"--continue": goes_on, "--switch": switch}
    its_tools, choice = cli.tools_of(tools_path, choice, rules, excluded)
    m = Model(model, threads, arithmetic, vocab_file, huge_pages)
    words = vocabulary.Vocab(m.file)
    its_template = template.of(m.file, words, template_path, variables)
    kept = prompt_cache.PromptCache(cache_dir, cache_bytes, cli.say) if cache_dir else None
    its_template.renderings = renderings.Renderings(cache_dir) if cache_dir else None
    note = cli.say if rules.lax else None
    its_calling = its_template.with_tools(its_tools, choice, note)
    sampler = from_options(steps, m.hparams.n_vocab, seed, bias, bias_word, words)
    own_draft = None
    if draft_path:
        from ..generate import draft

        small = Model(draft_path, threads, arithmetic, vocab_file, huge_pages)
        draft.check(small, words, vocabulary.Vocab(small.file), m)
        its_sampler = from_options(steps, m.hparams.n_vocab, sampler.seed, bias, bias_word, words)
        own_draft = draft.Draft(small, its_sampler)
    n_rows = capacities.limit(m.hparams.n_ctx, capacity)
    if talk_path:
        said = talk_files.read(talk_path, m, words)
        messages = with_talk(said, messages, talk_path)
        cache = talk_files.open_state(talk_path, m, kv, n_rows, cli.say)
    else:
        cache = Scratch(m.geometry(kv), n_rows, logits=True)
    if goes_on:
        conversation.check_goes_on(messages, "user" if switch else "assistant", talk_path or path)
    at_terminal, interrupt = os.isatty(0), terminal.Interrupt()
    if at_terminal and talk_path and said:
        cli.say(f"{talk_path}: goes on after {len(said)} message{'s' * (len(said) > 1)}")
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
        shift,
        lambda seconds: Speculation(own_draft, seconds, not no_lookup),
        penalize_prompt,
        complete,
        its_calling,
        its_template.with_tools(its_tools, "none" if choice == "none" else "auto"),
    )

    def answer(goes_on=False):
        """Show an answer, and keep it. From a pipe, an interrupt ends the answer, then the chat."""
        nonlocal is_cut_off
        interrupt.clear()
        with contextlib.nullcontext() if at_terminal or cli.IGNORED else interrupt:
            try:
                show_answer(goes_on)
            except (KeyboardInterrupt, BrokenPipeError):
                is_cut_off = True
                raise
            if talk_path:
                talk_files.write(talk_path, messages, m, words, lock)
        if interrupt() and not at_terminal:
            raise KeyboardInterrupt

    def show_answer(goes_on):
        end, held, its_stops = b"\n", [], [os.fsencode(stop) for stop in stops]
        # closed if it cannot be shown: it is among the messages then
        with contextlib.closing(talk.answer(sampler, grammar, its_stops, goes_on)) as parts:
            for data in parts:
                if its_calling and not at_terminal:  # a call may follow; its line has the text, too
                    held.append(data)
                    continue
                terminal.show(data)
                end = b"" if data.endswith(b"\n") and at_terminal else b"\n" if data else end
        if its_calling and talk.figures and messages[-1].calls:
            terminal.show(end * bool(messages[-1].content and at_terminal))
            terminal.show(jsonl.dump(message_files.as_dict(messages[-1])))
        else:
            if talk.was_call_cut:
                cli.say("the answer was cut within the call of a tool, which is left out")
            terminal.show(b"".join(held) + end)
        if talk.fullness:
            cli.say(talk.fullness)
        if (at_terminal or verbose) and talk.figures:
            cli.say(terminal.summary(talk.figures))

    def converse():
        begins = switch and not (talk_path and messages)
        last = messages[-1].role if messages and not talk.awaited else None
        if goes_on or begins or last in (talk.author, "tool"):
            answer(goes_on)
        prompt = lambda: f"{talk.awaited.name}> " if talk.awaited else "> "
        for line in terminal.typed(prompt, history) if at_terminal else terminal.piped():
            n_messages, call = len(messages), talk.awaited
            text = line.decode("utf-8", "replace")
            if call:
                messages.append(Message("tool", text, None, (), call.id, call.name))
                if talk.awaited:
                    continue
            else:
                messages.append(Message(talk.author, text))
            try:
                answer()
            except Error as e:
                if not (at_terminal and e.code == BAD_DATA):
                    raise
                del messages[n_messages:]
                cli.say(e)

    is_cut_off, broken = False, None
    try:
        with interrupt if at_terminal else contextlib.nullcontext():
            converse()
    except (KeyboardInterrupt, BrokenPipeError) as e:
        # Ctrl-C may have ended the reader of the answers, too
        broken = KeyboardInterrupt() if interrupt() else e
    m.file.check_unchanged()
    if broken and talk_path and messages:
        talk_files.write(talk_path, messages, m, words, lock)
    if out and messages:
        message_files.write(out, messages)
    if talk_path and not is_cut_off and (state := talk.settled()):
        talk_files.keep_state(talk_path, m, state, cli.say)
    if broken:
        raise broken
    if verbose:
        cli.report(messages=len(messages), cut=talk.n_cut, **sampler.figures())
    if talk.n_cut and not at_terminal:
        raise click.exceptions.Exit(1)


def with_talk(said: list[Message], messages: list[Message], path: str) -> list[Message]:
    """Return the messages of the talk in the file `path`, or of a new one: `messages`, which is a
    system message or empty.
    """
    if said and messages and (said[0].role, said[0].content) != ("system", messages[0].content):
        raise click.UsageError(f"--system: {path} begins with another one, or with none")
    return said or messages
