"""generate - text that goes on from a prompt: the whole ring in one process."""

import os
import time

from .. import cli, stream
from ..grammar import matcher
from ..system import files
from ..tokenizer import vocabulary
from ..generate import generation
from ..chat import conversation, template, terminal
from ..model.model import KV_TYPES, Model
from ..generate.sampler import drawn
from ..limits import MAX_CAPACITY
from ..cli import sampling
import click


@cli.command(options_metavar="[OPTIONS]")
@click.argument("prompt", nargs=-1, metavar="[PROMPT]... [<prompt] >text")
@cli.model_option
@cli.vocab_option
@click.option(
    "-n",
    "--max-ids",
    type=cli.OrNone(min=1),
    metavar="N",
    help="End after N ids; -1: no limit.  [default: no limit]",
)
@click.option(
    "--stop",
    "stops",
    multiple=True,
    metavar="TEXT",
    help="End before this text; can be given again.",
)
@click.option(
    "-g", "--grammar", "grammar_path", metavar="FILE", help="Write what this grammar (GBNF) allows."
)
@click.option("-e", "--grammar-text", metavar="TEXT", help="The grammar itself, in place of -g.")
@click.option("--echo", is_flag=True, help="Write the prompt, too.")
@click.option("--special", is_flag=True, help="Let the prompt's text become control tokens.")
@click.option(
    "--chat",
    is_flag=True,
    help="The prompt is a user's message, put in turns by the model's chat template.",
)
@cli.chat_options
@sampling.options
@sampling.bias_word_option
@click.option(
    "-s",
    "--snapshot",
    metavar="FILE",
    help="Snapshot to start from; the prompt continues its text.",
)
@click.option("-o", "--out", metavar="FILE", help="Save prompt and text as a snapshot at the end.")
@click.option(
    "-c",
    "--capacity",
    type=click.IntRange(1, MAX_CAPACITY),
    metavar="N",
    help="Ids there is room for, prompt included.  [default: the model's context]",
)
@click.option(
    "--kv",
    type=click.Choice(list(KV_TYPES)),
    help="Type of the cached keys and values.  [default: that of -s, or f16]",
)
@cli.arithmetic_option
@cli.threads_option
@cli.huge_pages_option
@cli.verbose_option
def main(
    prompt,
    model,
    vocab_file,
    max_ids,
    stops,
    grammar_path,
    grammar_text,
    echo,
    special,
    chat,
    system,
    path,
    template_path,
    variables,
    seed,
    bias,
    bias_word,
    snapshot,
    out,
    capacity,
    kv,
    arithmetic,
    threads,
    huge_pages,
    verbose,
    **steps,
):
    """Write text that goes on from a prompt.

    The prompt is the arguments, joined by blanks, in which "-" stands for the text on stdin, byte
    for byte; without arguments it is that text. With -s or --messages and no arguments, these alone
    are the prompt. Text goes to stdout as it is chosen, and nothing else does. It is valid UTF-8:
    bytes that make no character become U+FFFD, and of a character that is open at the end nothing
    is written (-v tells: open, in bytes). To a terminal, control characters are shown as ^[. It is,
    byte for byte, what the ring tokenize | prefill | decode | grammar-filter | sample | tokenize -d
    writes with these options, and so is the status. It ends at an end-of-text id, when the grammar
    is complete, before a --stop, after N ids or when there is no room; -v tells: end=stop, length,
    full, or cut, which is N ids or no room before the grammar is complete. A --stop is an end that
    was asked for, whatever the grammar says. -o saves all ids, also those of an open character.

    With --chat, --system, --messages or --template the prompt is the user's next message in a chat
    (of stdin without its last newline). Text in messages never becomes a control token; --special
    is about plain prompts alone: never give it for text that somebody else wrote. Dates that a
    template writes are those of SOURCE_DATE_EPOCH, if that is set.

    \b
    Exit status: 0 done; 1 -n or the context cut the text before its grammar was complete; 64 usage;
      65 bad model, snapshot, grammar, messages or template; 66 no such file; 69 unsupported model
      or arithmetic, no chat template; 73 cannot create FILE; 74 cannot read or write;
      75 out of memory or disk.

    \b
    Example:
      generate -m m.gguf -n 20 -S 1 'Once upon a time'
      generate -m m.gguf -t 0 -g yesno.gbnf 'Is this spam?' - <prompt.txt
    See also: chat, sample, decode.
    """
    began = time.monotonic()
    is_chat = bool(chat or system is not None or path or template_path)
    if grammar_path and grammar_text is not None:
        raise click.UsageError("give -g FILE or -e TEXT, not both")
    if is_chat and (snapshot or special):
        raise click.UsageError("a chat is put together by its template: without -s and --special")
    if not all(stops):
        raise click.UsageError("--stop: an empty text is everywhere")
    if out:
        files.check_target(out, model, vocab_file)
    rules = matcher.given(grammar_path, grammar_text)
    data = text_of(prompt, is_chat) if prompt or not (snapshot or path) else b""
    m = Model(model, threads, arithmetic, vocab_file, huge_pages)
    words = vocabulary.Vocab(m.file)
    base = m.open_snapshot(snapshot) if snapshot else None
    if is_chat:
        messages = conversation.opening(system, path) + (
            [template.Message("user", data.decode("utf-8", "replace"))] if data else []
        )
        ids, _ = template.of(m.file, words, template_path, variables).ids(messages)
    else:
        ids = (
            words.encode(data, special=special, bos=False if base else None, prefix=not base)
            if data or not base
            else []
        )
    sampler = drawn(steps, m.hparams.n_vocab, seed, bias, bias_word, words)
    cache = generation.begin(
        m, ids, base, capacity, max_ids, kv, os.path.dirname(out) if out else None
    )
    n_prompt, read = cache.n_tok, time.monotonic()
    g = generation.Generation(
        m, cache, sampler, words.eog, matcher.Matcher(rules, words) if rules else None, bool(out)
    )
    answer = generation.Answer(
        words, [os.fsencode(stop) for stop in stops], cache.ids[:n_prompt].tolist() if echo else ()
    )
    terminal.show(answer.echo)
    n_ids = 0
    for n_ids, id in enumerate(g.ids(max_ids), 1):
        terminal.show(answer.add(id))
        if answer.stopped:
            g.finish("stop")
            break
    terminal.show(answer.rest() + (b"\n" if os.isatty(1) else b""))
    m.file.check_unchanged()
    if out:
        cache.seal(out)
    if verbose:
        cli.report(
            prompt=n_prompt,
            ids=n_ids,
            end=g.reason,
            open=answer.n_open,
            seed=sampler.seed,
            prompt_ms=1e3 * (read - began),
            ms=1e3 * (time.monotonic() - read),
        )
    if g.reason == "cut":
        raise click.exceptions.Exit(1)


def text_of(prompt, is_chat):
    """The prompt's bytes: of the arguments, and of stdin where it is among them or there are
    none.
    """
    data = b""
    if not prompt or "-" in prompt:
        data = stream.read_text(0)
        data = data.removesuffix(b"\n") if is_chat else data
    return b" ".join(data if word == "-" else os.fsencode(word) for word in prompt or ["-"])
