"""chat - a conversation with a model, at a terminal or through pipes."""

import contextlib
import os

from .. import cli
from ..grammar import matcher
from ..system import files as newfile
from ..tokenizer import vocabulary
from ..chat import conversation, messages as files, template, terminal
from ..faults import BAD_DATA, Fault
from ..model.model import KV_TYPES, Model
from ..generate.sampler import drawn
from ..kvcache import capacity as rooms
from ..limits import MAX_CAPACITY
from ..kvcache.scratch import Scratch
from ..cli import sampling
import click


@cli.command(options_metavar="[OPTIONS] [<messages >answers]")
@cli.model_option
@cli.vocab_option
@cli.chat_options
@click.option(
    "--switch",
    is_flag=True,
    help="Roles switched: the model is the user and begins; you are the assistant.",
)
@click.option(
    "-n",
    "--max-ids",
    type=cli.OrNone(min=1),
    metavar="N",
    help="End an answer after N ids; -1: no limit.  [default: no limit]",
)
@click.option(
    "--stop",
    "stops",
    multiple=True,
    metavar="TEXT",
    help="End an answer before this text; can be given again.",
)
@click.option(
    "-g",
    "--grammar",
    "grammar_path",
    metavar="FILE",
    help="Answer what this grammar (GBNF) allows.",
)
@click.option("-e", "--grammar-text", metavar="TEXT", help="The grammar itself, in place of -g.")
@sampling.options
@sampling.bias_word_option
@click.option(
    "-o", "--out", metavar="FILE", help="Save the conversation at the end, as --messages reads it."
)
@click.option(
    "--history",
    metavar="FILE",
    help="Keep what is typed here, for the next time; made with mode 0600.  [default: none]",
)
@click.option(
    "-c",
    "--capacity",
    type=click.IntRange(1, MAX_CAPACITY),
    metavar="N",
    help="Ids the conversation has room for.  [default: the model's context]",
)
@click.option(
    "--kv",
    type=click.Choice(list(KV_TYPES)),
    default="f16",
    help="Type of the cached keys and values.",
)
@cli.arithmetic_option
@cli.threads_option
@cli.huge_pages_option
@cli.verbose_option
def main(
    model,
    vocab_file,
    system,
    path,
    template_path,
    variables,
    switch,
    max_ids,
    stops,
    grammar_path,
    grammar_text,
    seed,
    bias,
    bias_word,
    out,
    history,
    capacity,
    kv,
    arithmetic,
    threads,
    huge_pages,
    verbose,
    **steps,
):
    """Talk with a model in the turns of its chat template.

    At a terminal every line is a message; a paste of several lines is one, arrow keys edit it and
    bring earlier ones back. Ctrl-C stops an answer (what was written of it stays in the
    conversation), Ctrl-D ends. From a pipe or a file every line is a message, too, and the answers
    are all that stdout gets, a line end after each. Nothing that is typed or piped is ever a
    command, and nothing in a message becomes a control token. What the model writes cannot control
    the terminal: escape characters are shown as ^[. Answers are valid UTF-8: bytes that make no
    character become U+FFFD, and of a character that is open at the end nothing is written, but its
    ids stay in the conversation.

    After each answer stderr gets the ids read and written, how many a second, why it ended (cut: by
    -n or the context, before its grammar was complete) and how many of the context are in use (from
    a pipe with -v alone). When a quarter of the context is no longer free for an answer, the oldest
    messages are left out, up to the next of the same author, the system message never; a line says
    so. A message that does not fit is refused: a line at a terminal, 65 from a pipe. --messages
    begins with a conversation that was; if its last message is yours, the model answers it first.

    \b
    Exit status: 0 stdin ended; 1 from a pipe: it ended, but -n or the context cut an answer before
      its grammar was complete; 64 usage;
      65 bad model, grammar, messages or template, a message that does not fit;
      66 no such file; 69 unsupported model or arithmetic, no chat template; 73 cannot create FILE;
      74 cannot read or write; 75 out of memory.

    \b
    Example:
      printf 'Hello\\nAnd now?\\n' | chat -m m.gguf --template plain --system 'Be brief.' -n 20 -S 1 -o talk.jsonl
    See also: generate, classify.
    """
    if grammar_path and grammar_text is not None:
        raise click.UsageError("give -g FILE or -e TEXT, not both")
    if not all(stops):
        raise click.UsageError("--stop: an empty text is everywhere")
    if out:
        newfile.check_target(out, model, vocab_file, template_path)
    rules, said = matcher.given(grammar_path, grammar_text), conversation.opening(system, path)
    m = Model(model, threads, arithmetic, vocab_file, huge_pages)
    words = vocabulary.Vocab(m.file)
    its_template = template.of(m.file, words, template_path, variables)
    sampler = drawn(steps, m.hparams.n_vocab, seed, bias, bias_word, words)
    cache = Scratch(m.geometry(kv), rooms.limit(m.hparams.n_ctx, capacity), logits=True)
    at_terminal, interrupt = os.isatty(0), terminal.Interrupt()
    talk = conversation.Conversation(
        m,
        words,
        its_template,
        cache,
        said,
        "user" if switch else "assistant",
        max_ids,
        cli.say,
        interrupt,
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
        if switch or said and said[-1].role == talk.author:
            answer()
        for line in terminal.typed("> ", history) if at_terminal else terminal.piped():
            n_said = len(said)
            said.append(template.Message(talk.author, line.decode("utf-8", "replace")))
            try:
                answer()
            except Fault as e:
                if not (at_terminal and e.code == BAD_DATA):
                    raise
                del said[n_said:]
                cli.say(e)
    m.file.check_unchanged()
    if out and said:
        files.write(out, said)
    if verbose:
        cli.report(messages=len(said), cut=talk.n_cut, seed=sampler.seed)
    if talk.n_cut and not at_terminal:
        raise click.exceptions.Exit(1)
