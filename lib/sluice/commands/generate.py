"""generate: generate text from a prompt, in one process."""

import os
import time
from typing import Any

from .. import cli, stream
from .. import jsonl as json_lines
from ..grammar import matcher, sources
from ..system import files
from ..tokenizer import vocabulary
from ..generate import generation, prompt_cache
from ..chat import conversation, messages as message_files, renderings, template, terminal
from ..chat.message import Message
from ..faults import printable
from ..model.model import KV_TYPES, Model
from ..generate.sampler import from_options
from ..generate.speculation import Speculation
from ..kvcache import capacity as capacities
from ..kvcache.scratch import Scratch
from ..limits import MAX_CAPACITY
from ..cli import sampling
import click


@cli.command()
@cli.argument("prompt", nargs=-1, metavar="[PROMPT]...", callback=cli.or_file)
@cli.model_option
@cli.vocab_option
@cli.text_option("Read FILE as standard input, in place of '-' or after PROMPT.", "Prompt")
@cli.option(
    "--special",
    is_flag=True,
    group="Prompt",
    help="Parse control tokens in the prompt. Never use it with untrusted text.",
)
@cli.option(
    "-s",
    "--snapshot",
    metavar="FILE",
    group="Prompt",
    help="Start from the snapshot in FILE; the prompt continues its text.",
)
@cli.option(
    "--chat",
    is_flag=True,
    group="Chat",
    help="The prompt is a user message, formatted by the model's chat template.",
)
@cli.chat_options
@cli.tools_options
@cli.continue_option
@cli.shift_option
@cli.option(
    "--jsonl",
    is_flag=True,
    group="Many texts",
    help="Read a request per line: an object with id, prompt or messages, and options of its own"
    " such as max_tokens; print an object with text for each.",
)
@cli.option(
    "--parallel",
    "n_parallel",
    type=click.IntRange(1, 64),
    default=16,
    metavar="N",
    group="Many texts",
    help="Texts of --jsonl generated together; affects speed and memory only.",
)
@cli.predict_option("the text")
@cli.stop_option
@cli.grammar_options()
@cli.complete_option
@cli.option("--echo", is_flag=True, group="Output", help="Print the prompt, too.")
@cli.option(
    "-o",
    "--out",
    metavar="FILE",
    group="Output",
    help="Save prompt and text to FILE at the end, as a snapshot.",
)
@sampling.options
@sampling.penalize_prompt
@cli.context_option(MAX_CAPACITY, "Context size in tokens, prompt included.", "the model's context")
@cli.option(
    "--kv",
    type=click.Choice(list(KV_TYPES)),
    metavar="TYPE",
    group="Cache",
    show_default="that of -s, or f16",
    help="Type of the KV cache: f32, f16 or q8_0.",
)
@cli.cache_options
@cli.speculation_options
@cli.arithmetic_option
@cli.threads_option
@cli.huge_pages_option
@cli.verbose_option
def main(
    prompt: tuple[str, ...],
    model: str,
    vocab_file: str | None,
    max_tokens: int | None,
    stops: tuple[str, ...],
    rules: sources.Source,
    complete: bool,
    echo: bool,
    special: bool,
    chat: bool,
    system: str | None,
    path: str | None,
    template_path: str | None,
    variables: dict[str, Any],
    tools_path: str | None,
    choice: str | None,
    goes_on: bool,
    shift: bool,
    jsonl: bool,
    n_parallel: int,
    seed: int | None,
    bias: tuple[tuple[int, float], ...],
    bias_word: tuple[tuple[str, float], ...],
    penalize_prompt: bool,
    snapshot: str | None,
    out: str | None,
    capacity: int | None,
    kv: str | None,
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
    """Generate text from a prompt.

    SYNOPSIS
      generate -m MODEL [OPTIONS] [PROMPT]...
      generate -m MODEL [OPTIONS] <prompt
      generate -m MODEL [OPTIONS] -f FILE
      generate -m MODEL [OPTIONS] --jsonl <requests

    DESCRIPTION
      The prompt is the arguments joined by spaces; the argument "-" stands for the text on stdin,
      byte for byte. Without arguments the prompt is stdin; with -s or --messages and no arguments
      it is the snapshot or the conversation alone.

      stdout gets the generated text, token by token, and nothing else. The text is valid UTF-8:
      invalid bytes become U+FFFD, and an incomplete character at the end is dropped (-v prints its
      size as open, in bytes). On a terminal, control characters are shown as ^[.

      -v prints why the text ended, as end:

      stop    end-of-generation token, complete grammar, or a --stop text
      length  -n tokens
      full    the context is full; without -v a line on stderr says so
      cut     length or full, before the grammar was complete: exit status 1

      With a grammar, text that it leaves no choice about is not chosen, but read at once, in the
      tokens of the vocabulary's own rules; -v prints forced=, the number of these tokens. Where the
      grammar allows few tokens, only their logits are computed. --complete adds the shortest text
      that completes the grammar to one that was cut; it goes beyond -n. The end is then length or
      full, the status 0, and -v prints closed=, the number of tokens that were added.

      Text and exit status are those of the pipeline tokenize | prefill | decode | grammar-filter |
      sample | tokenize -d with the same options.

      sample --help describes the steps of the sampler. A text that continues a snapshot starts with
      nothing that the penalties, DRY and Mirostat remember; --penalize-prompt and --mirostat-mu
      bring it back.

      With --chat, --system, --messages or --template the prompt is the user's next message (stdin
      without its last newline), and the model's chat template formats the conversation. Text in
      messages never becomes a control token; --special applies to plain prompts only. If
      $SOURCE_DATE_EPOCH is set, templates print its date.

      With --tools FILE the model may call the functions in FILE, if its template knows tools. Such
      an answer is a JSON line, an object with role, content and tool_calls, whose arguments satisfy
      the function's schema; nothing is executed. Append that line to --messages, and a message of
      role tool with the result, and the conversation goes on. A text never begins with { or [. If
      -n or the context cuts the text within a call nothing is printed.

      With --cache DIR, as with prefill --cache, a prompt is processed from where it parts from what
      DIR has; no byte of the output depends on that. -v prints reused=, the tokens that were there.

      With --jsonl each line of stdin is an object, with id (optional), prompt or messages (a list
      like that of --messages), system, "continue": true, grammar (GBNF), regex or json_schema (an
      object), "complete": true, tools (a list like that of --tools) and tool_choice, and options
      such as max_tokens, seed, stop or top_k, which hold for this text instead of the command's. An
      object for each is printed in the same order: id, text, tool_calls, end, tokens, prompt_tokens
      and seed, with "complete" also closed; or error. Up to --parallel texts are generated
      together; each is the one that it is alone.

      Tokens are guessed, and several checked at once, if the text goes on as it did where its last
      words stood before (see --no-lookup), or with --draft MODEL. Text, snapshot and random numbers
      are those without guesses. -v prints guessed= and right=.

      --continue prints what follows the last message, which must be the assistant's. With --shift
      the oldest messages are dropped if the context is too small for the conversation, or becomes
      so while the text is generated.

    EXIT STATUS
      0   success
      1   -n or the context cut the text before its grammar was complete
      64  usage error
      65  invalid model, snapshot, grammar, schema, tools, messages or template; invalid requests,
          and the others were answered
      66  no such file
      69  unsupported model, arithmetic or keyword of a schema; no chat template; the template does
          not know tools
      73  cannot create FILE
      74  I/O error
      75  out of memory or disk space; retry

    EXAMPLES
      generate -m m.gguf -n 20 --seed 1 'Once upon a time'
      generate -m m.gguf --temp 0 -g yesno.gbnf 'Is this spam?' - <prompt.txt
      generate -m m.gguf -n 20 -f prompt.txt
      generate -m m.gguf -n 20 --cache cache -f prompt.txt
      echo '{"prompt": "Once", "seed": 1}' | generate -m m.gguf -n 20 --jsonl

    SEE ALSO
      chat, classify, sample, decode
    """
    began = time.monotonic()
    is_chat = bool(chat or system is not None or path or template_path or tools_path)
    cli.check_stops(stops)
    if is_chat and (snapshot or special):
        raise click.UsageError(
            "-s and --special: not with --chat, --system, --messages, --template or --tools"
        )
    if jsonl and (
        prompt not in ((), ("-",)) or path or snapshot or out or echo or goes_on or shift
    ):
        raise click.UsageError(
            "--jsonl: not with PROMPT, --messages, -s, -o, --echo, --continue or --shift"
        )
    if jsonl and draft_path:
        raise click.UsageError("--jsonl and --draft exclude each other: texts share their passes")
    if (goes_on or shift) and not is_chat:
        raise click.UsageError("--continue and --shift need a conversation (see --messages)")
    if goes_on and (prompt or not path):
        raise click.UsageError("--continue goes on with the last of --messages; omit PROMPT")
    if shift and (out or echo):
        raise click.UsageError("--shift: not with -o or --echo, since the prompt changes")
    if out:
        files.check_target(out, model, vocab_file)
    if rules.schema == "-" and ("-" in prompt or not (prompt or snapshot or path)):
        raise click.UsageError("--json-schema -: the prompt is read from stdin, too")
    if not jsonl:
        cli.check_complete(complete, rules, stops, tools_path is not None)
    grammar = rules.grammar()
    excluded = {"--continue": goes_on, "--echo": echo}
    its_tools, choice = cli.tools_of(tools_path, choice, rules, excluded)
    note = cli.say if rules.lax else None
    if jsonl:
        ready = Model(model, threads, arithmetic, vocab_file, huge_pages)
        kept = prompt_cache.PromptCache(cache_dir, cache_bytes, cli.say) if cache_dir else None
        from ..cli import request_lines

        return request_lines.answer(
            *(ready, grammar, capacity, kv or "f16", kept, n_parallel, is_chat, special, system),
            *(template_path, variables, verbose, its_tools, choice, note),
        )
    if len(prompt) == 1 and " " not in prompt[0] and os.path.isfile(prompt[0]):
        cli.say(f"{printable(prompt[0])} is the prompt, not the file; -f reads a file")
    data = text_of(prompt, is_chat) if prompt or not (snapshot or path) else b""
    m = Model(model, threads, arithmetic, vocab_file, huge_pages)
    words = vocabulary.Vocab(m.file)
    base = m.open_snapshot(snapshot) if snapshot else None
    kept = prompt_cache.PromptCache(cache_dir, cache_bytes, cli.say) if cache_dir else None
    stable, own, its_calling = None, [], None
    if is_chat:
        messages = conversation.opening(system, path) + (
            [Message("user", data.decode("utf-8", "replace"))] if data else []
        )
        its_template = template.of(m.file, words, template_path, variables)
        its_template.renderings = renderings.Renderings(cache_dir) if cache_dir else None
        its_calling = its_template.with_tools(its_tools, choice, note)
        grammar = its_calling.grammar if its_calling else grammar
        if goes_on:
            conversation.check_goes_on(messages, "assistant", path)
        if shift:
            tokens = []
        elif goes_on:
            tokens, _, stable = its_template.continuing(messages)
            own = tokens[stable:]
        else:
            tokens, _, stable = its_template.prompt(messages)
    else:
        tokens = (
            words.encode(data, special=special, bos=False if base else None, prefix=not base)
            if data or not base
            else []
        )
    sampler = from_options(steps, m.hparams.n_vocab, seed, bias, bias_word, words)
    own_draft = None
    if draft_path:
        from ..generate import draft

        small = Model(draft_path, threads, arithmetic, vocab_file, huge_pages)
        draft.check(small, words, vocabulary.Vocab(small.file), m)
        its_sampler = from_options(steps, m.hparams.n_vocab, sampler.seed, bias, bias_word, words)
        own_draft = draft.Draft(small, its_sampler)
    holds = its_calling and not os.isatty(1)  # a call may follow, whose line has the text, too
    if shift:
        limit = capacities.limit(m.hparams.n_ctx, capacity)
        talk = conversation.Conversation(
            *(m, words, its_template, Scratch(m.geometry(kv or "f16"), limit, logits=True)),
            *(messages, "assistant", max_tokens, cli.say),
            kept=kept,
            shift=True,
            speculate=lambda seconds: Speculation(own_draft, seconds, not no_lookup),
            penalize_prompt=penalize_prompt,
            complete=complete,
            calling=its_calling,
        )
        parts = []
        for part in talk.answer(sampler, grammar, [os.fsencode(stop) for stop in stops], goes_on):
            parts.append(part)
            terminal.show(b"" if holds else part)
        show_end(messages[-1] if its_calling else None, talk.was_call_cut, parts)
        if talk.fullness and not verbose:
            cli.say(talk.fullness)
        m.file.check_unchanged()
        if verbose:
            cli.report(**talk.statistics(), **sampler.figures())
        if talk.n_cut:
            raise click.exceptions.Exit(1)
        return
    cache = generation.begin(
        m,
        tokens,
        base,
        capacity,
        max_tokens and max_tokens + (generation.CLOSING_ROOM if complete else 0),
        kv,
        os.path.dirname(out) if out else None,
        kept=kept,
        stable=stable,
    )
    n_prompt, prompt_end = cache.n_tok, time.monotonic()
    if penalize_prompt:
        sampler.read(cache.tokens[:n_prompt].tolist())
    speculation = Speculation(own_draft, prompt_end - began, not no_lookup)
    g = generation.Generation(
        *(m, cache, sampler, words.eog, matcher.Matcher(grammar, words) if grammar else None),
        *(bool(out), speculation),
    )
    its_stops = [os.fsencode(stop) for stop in stops]
    before = cache.tokens[:n_prompt].tolist() if echo else own
    answer = (
        its_calling.answer(its_stops)
        if its_calling
        else generation.Answer(words, its_stops, before)
    )
    terminal.show(answer.echo if echo else b"")
    n_tokens, parts = 0, []
    for n_tokens, token in enumerate(g.tokens(max_tokens), 1):
        parts.append(answer.add(token))
        terminal.show(b"" if holds else parts[-1])
        if answer.stopped:
            g.finish("stop")
            break
    for token in g.closing() if complete and g.reason == "cut" else ():
        parts.append(answer.add(token))
        terminal.show(b"" if holds else parts[-1])
    parts.append(answer.remainder())
    terminal.show(b"" if holds else parts[-1])
    said, was_call_cut = None, False
    if its_calling:
        text = b"".join(parts).decode("utf-8", "replace")
        said = Message("assistant", text)
        said = conversation.with_calls(said, answer, len(messages))
        was_call_cut = answer.called and not said.calls
    show_end(said, was_call_cut, parts)
    if g.is_full and not verbose:
        cli.say(g.fullness("text"))
    m.file.check_unchanged()
    if out:
        cache.seal(out)
    if verbose:
        cli.report(
            prompt=n_prompt,
            tokens=n_tokens + g.n_closed,
            end=g.reason,
            open=answer.n_open,
            **sampler.figures(),
            guessed=speculation.n_guessed,
            right=speculation.n_right,
            **({"forced": g.n_forced} if grammar else {}),
            **({"closed": g.n_closed} if complete else {}),
            **({"reused": kept.n_known} if kept else {}),
            prompt_ms=1e3 * (prompt_end - began),
            ms=1e3 * (time.monotonic() - prompt_end),
        )
    if g.reason == "cut":
        raise click.exceptions.Exit(1)


def show_end(said: Message | None, was_call_cut: bool, parts: list[bytes]) -> None:
    """Show the end of an answer. said: the message of one that may call tools, or None.

    parts: its text, which has been shown already, but for an answer that may call tools and does
    not go to a terminal.
    """
    at_terminal = os.isatty(1)
    if said and said.calls:
        line = json_lines.dump(message_files.as_dict(said))
        terminal.show((b"\n" if said.content and at_terminal else b"") + line)
        return
    if was_call_cut:
        cli.say("the text was cut within the call of a tool, which is left out")
    elif said and not at_terminal:
        terminal.show(b"".join(parts))
    terminal.show(b"\n" if at_terminal else b"")


def text_of(prompt: tuple[str, ...], is_chat: bool) -> bytes:
    """Return the prompt of the arguments; "-", or no argument, is stdin."""
    data = b""
    if not prompt or "-" in prompt:
        data = stream.read_text(0)
        data = data.removesuffix(b"\n") if is_chat else data
    return b" ".join(data if word == "-" else os.fsencode(word) for word in prompt or ["-"])
