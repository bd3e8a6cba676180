"""classify: a question about a text, answered by a model in one word."""

import sys
import time

if sys.argv[1:2] == ["--long"]:  # with a few other options this answers, and ends
    from ..classify import fast_start

    fast_start.run(sys.argv[1:])

from .. import cli  # first: an interrupt during the other imports is silent
from .. import stream
from ..classify.setup import Setup
import click


@cli.command(options_metavar="[OPTIONS]")
@click.argument("file", required=False, metavar="[FILE] <text")
@click.option(
    "-m", "--model", metavar="FILE", help="GGUF file.  [default: the question's own; else $MODEL]"
)
@cli.vocab_option
@click.option(
    "-q",
    "--question",
    "asked",
    default="spam",
    metavar="FILE|NAME",
    help="What is asked: a YAML file, or a question that comes with sluice.",
)
@click.option("--mail", is_flag=True, help="The input is a whole mail, whatever the question says.")
@click.option(
    "--long",
    is_flag=True,
    help="Print more: ANSWER, the probability of the first answer, what it needs, the model's id.",
)
@click.option(
    "--pass-through",
    is_flag=True,
    help="Write the mail on stdin to stdout, with X-Spam headers that say what it is.",
)
@click.option("--json", "as_json", is_flag=True, help="Print an object with all there is to say.")
@click.option(
    "--jsonl", is_flag=True, help="Read objects with id and text, one a line; answer each with one."
)
@click.option(
    "--mass",
    is_flag=True,
    help="With --json or --jsonl: how much of the probability the answers hold among all ids.",
)
@cli.calibration_options
@click.option(
    "--cache",
    "cache_dir",
    metavar="DIR",
    help=(
        "Keep what every call has in common here.  [default: "
        "$XDG_CACHE_HOME/sluice or ~/.cache/sluice]"
    ),
)
@click.option("--no-cache", is_flag=True, help="Keep nothing.")
@cli.listen_options
@cli.arithmetic_option
@cli.threads_option
@cli.huge_pages_option
@cli.verbose_option
def main(
    file,
    model,
    vocab_file,
    asked,
    mail,
    long,
    pass_through,
    as_json,
    jsonl,
    mass,
    cache_dir,
    no_cache,
    listen,
    workers,
    mode,
    arithmetic,
    threads,
    huge_pages,
    verbose,
    learn,
    forget,
    learnt_file,
    no_calibration,
):
    """Answer a question about a mail or any text.

    Reads FILE, or stdin, to its end and writes one line: the answer and its probability. The
    question, a YAML file, names the prompt, the answers, from which probability on an answer
    counts, and may name the model. If the best one does not count, the line says "unsure" and the
    probability of the first. Shipped: spam (the default), and for any chat model
    language-is-english, urgent and sentiment. Of a long text the head and the tail are read.

    With --jsonl stdin has objects {"id": ..., "text": ...}, one a line; each is answered at once by
    one with id, answer and score, or with id and error. With --mail the text is a whole mail, its
    bytes as the characters of Latin-1.

    With --pass-through a mail of any size is read whole, then written with X-Spam-Flag, -Score and
    -Status on top, and without any X-Spam header that it had; the rest as it is. Where no verdict
    is to be had within 60 s it says "X-Spam-Status: unchecked; reason=WORD", as mail-filter does.
    The status is 0 where all was written; else, if nothing was, the mail is yours still.

    --learn and --forget change the calibration: how probable an answer must look to the model to be
    called so probable. A mail moves it a little, a hundred a lot: teach both answers, mails that
    were judged well, too. Kept are numbers only, of the last 10,000 texts (mode 0600). A file that
    is damaged, or of another model, is left out, saying so.

    What all calls have in common is kept in a cache: the parsed question, the model's id and, where
    that is long, the model's state after the prompt's first part. Never the input.

    With --listen the command stays, with the model ready: who writes a mail to the socket, shuts
    down that side and reads, gets the line of --long with yes, no or unsure, or "error WORD".
    SIGHUP: read question and model again. SIGTERM: end.

    \b
    Exit status: 0 the first answer of the question (yes), 1 another one, 2 unsure; 0 with --jsonl all lines answered, with --learn
      and --forget done, with --pass-through all written.
      64 usage; 65 bad question, model or input, no text, or bad lines, nothing to forget; 66 no such file; 69 unsupported model or arithmetic;
      73 cannot create or listen; 74 cannot read or write; 75 out of memory. A verdict is a line on stdout: where Python has too
      little memory to begin, or is interrupted before, its status is 1 and there is none.

    \b
    Example:  if classify -m m.gguf -q urgent <prompt.txt >/dev/null; then echo read it now; else echo "$?"; fi
    See also: mail-filter, mail-text.
    """
    began = time.monotonic()
    cli.only_one(long=long, as_json=as_json, jsonl=jsonl, listen=listen, pass_through=pass_through)
    cli.only_one(file=file, jsonl=jsonl, listen=listen, pass_through=pass_through)
    cli.refuse(
        mass and not (jsonl or as_json),
        "--mass has a place in objects only: with --json or --jsonl",
    )
    cli.refuse(not listen and (workers or mode is not None), "--workers and --mode are of --listen")
    is_learning = forget or learn is not None
    setup = Setup(
        asked,
        model,
        cache_dir,
        no_cache,
        learnt_file,
        no_calibration,
        threads,
        as_mail=mail or pass_through,
        mass=mass,
        arithmetic=arithmetic,
        vocab=vocab_file,
        huge_pages=huge_pages,
        say=None if is_learning else cli.say,
    )
    learns = None
    if is_learning:
        from ..classify import learning

        is_many = jsonl or listen or pass_through
        learns = learning.learner(setup.learnt_file, learn, forget, is_many, no_calibration)
    if listen:
        from ..serve import worker

        load = lambda: setup.classifier(threads=1)
        worker.run(listen, 0o600 if mode is None else mode, load, workers, threads, verbose)
    if pass_through:
        from ..serve import pass_through as passing

        return passing.run(setup.classifier)
    q = setup.question()
    # before the model: nothing to read ends at once
    data = None if jsonl else setup.read_input(q, file)
    c = setup.classifier(q)
    if jsonl:
        from ..classify import report

        return report.answer(c)
    v = learns(c, data) if learns else c.ask(data)
    ms = 1e3 * (time.monotonic() - began)
    line = c.line(v, v.answer) if long else f"{v.answer} {v.score:.3f}\n".encode()
    if as_json:
        from ..classify import report

        line = report.dump(report.whole(c, v, ms))
    stream.write_all(1, line)
    if verbose:
        cli.report(ids=v.n_ids, reused=v.n_reused, steps=c.tree.n_nodes, cache=c.kept, ms=ms)
    raise click.exceptions.Exit(0 if learns else c.status(v))
