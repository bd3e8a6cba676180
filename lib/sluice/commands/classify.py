"""classify: classify a text with a language model; print a label and its probability."""

import sys
import time

if sys.argv[1:2] == ["--long"]:  # if it knows all options, this classifies and exits
    from ..classify import fast_start

    fast_start.run(sys.argv[1:])

from .. import cli  # first: an interrupt during the other imports is silent
from .. import stream
from ..classify.setup import Setup
import click


@cli.command()
@cli.argument("file", required=False, metavar="[FILE]", callback=cli.not_with_file)
@cli.option(
    "-m",
    "--model",
    metavar="FILE",
    files=("gguf",),
    group="Model",
    show_default="the question's model, else $MODEL",
    help="GGUF model.",
)
@cli.vocab_option
@cli.option(
    "-q",
    "--question",
    "asked",
    default="spam",
    metavar="Q",
    files=("yaml", "yml"),
    words=("spam", "language-is-english", "urgent", "sentiment"),
    group="Model",
    help="Name of a bundled question, or path of a YAML file.",
)
@cli.text_option("Read FILE as standard input.")
@cli.option(
    "--mail",
    is_flag=True,
    group="Input",
    help="The input is a message (RFC 5322), whatever the question says.",
)
@cli.option(
    "--long",
    is_flag=True,
    group="Output",
    help="Print label, P(first label), its threshold and the model ID in one line.",
)
@cli.option(
    "--pass-through",
    is_flag=True,
    group="Output",
    help="Copy the message from stdin to stdout and add X-Spam headers.",
)
@cli.option("--json", "as_json", is_flag=True, group="Output", help="Print one JSON object.")
@cli.option(
    "--jsonl",
    is_flag=True,
    group="Output",
    help="Read JSON objects with id and text, one per line; print one for each.",
)
@cli.option(
    "--mass",
    is_flag=True,
    group="Output",
    help=(
        "With --json or --jsonl: add mass, the probability of all labels together among all"
        " possible outputs."
    ),
)
@cli.calibration_options
@cli.option(
    "--cache",
    "cache_dir",
    metavar="DIR",
    group="Cache",
    show_default="$XDG_CACHE_HOME/sluice or ~/.cache/sluice",
    help="Cache for parsed questions, model IDs and prompt prefixes.",
)
@cli.option("--no-cache", is_flag=True, group="Cache", help="Disable the cache.")
@cli.listen_options
@cli.arithmetic_option
@cli.threads_option
@cli.huge_pages_option
@cli.verbose_option
def main(
    file: str | None,
    model: str | None,
    vocab_file: str | None,
    asked: str,
    mail: bool,
    long: bool,
    pass_through: bool,
    as_json: bool,
    jsonl: bool,
    mass: bool,
    cache_dir: str | None,
    no_cache: bool,
    listen: str | None,
    workers: int | None,
    mode: int | None,
    stats: str | None,
    arithmetic: str,
    threads: int | None,
    huge_pages: bool,
    verbose: bool,
    learn: str | None,
    forget: bool,
    calibration_file: str | None,
    no_calibration: bool,
) -> None:
    """Classify a text with a language model.

    SYNOPSIS
      classify [OPTIONS] [FILE]
      classify --jsonl|--pass-through [OPTIONS] <input
      classify --listen SOCKET [OPTIONS]

    DESCRIPTION
      Read FILE or stdin and print one line: a label and its probability. A question, a YAML file,
      defines the prompt, the labels and a threshold for each label; it may also name the model. If
      the most likely label is below its threshold, print "unsure" and the probability of the first
      label. Bundled questions: spam (the default), and for any chat model language-is-english,
      urgent and sentiment. Long input is truncated to its first and last tokens.

      --jsonl reads objects {"id": ..., "text": ...}, one per line. For each it prints an object at
      once: id, answer (the label) and score (its probability), or id and error. With --mail, text
      is a message whose bytes are written as characters of Latin-1.

      --pass-through reads a message of any size and prints it with the new headers X-Spam-Flag,
      X-Spam-Score and X-Spam-Status at the top. X-Spam headers that the message already had are
      removed; nothing else changes. If there is no result within 60 s, the header is
      "X-Spam-Status: unchecked; reason=WORD", as for mail-filter. If the command fails and prints
      nothing, use the original message.

      --learn and --forget refit the user's calibration, which maps the model's probabilities to the
      printed ones. One message changes it a little, a hundred change it a lot. Learn every label,
      and messages with a correct result, too. The calibration file (mode 0600) has only numbers, of
      the last 10,000 texts. A damaged file, or one of another model, is ignored with a message on
      stderr.

      The cache holds the parsed question, the model ID and, for a long prompt, the model's state
      after the part before the input. It never holds input.

      --listen keeps the model loaded and serves a Unix socket. A client connects, sends one
      message, half-closes and reads one line: that of --long, with yes, no or unsure as label, or
      "error WORD". SIGHUP reloads question and model; SIGUSR1 prints counts and times to stderr;
      SIGTERM ends.

    EXIT STATUS
      0   first label (yes); success of --jsonl, --learn, --forget or --pass-through
      1   another label
      2   unsure
      64  usage error
      65  invalid question, model or input; empty input; invalid lines; nothing to forget
      66  no such file
      69  unsupported model or arithmetic
      73  cannot create the file or socket
      74  I/O error
      75  out of memory; retry

      A result is always a line on stdout. Status 1 without that line is a failure: Python did not
      start, or was interrupted early.

    EXAMPLES
      classify mail.eml
      if classify -m m.gguf -q urgent prompt.txt >/dev/null; then echo urgent; fi
      classify -m m.gguf -q urgent --jsonl <texts.jsonl

    SEE ALSO
      mail-filter, mail-text, generate
    """
    began = time.monotonic()
    cli.only_one(long=long, as_json=as_json, jsonl=jsonl, listen=listen, pass_through=pass_through)
    cli.only_one(file=file, jsonl=jsonl, listen=listen, pass_through=pass_through)
    cli.refuse(
        mass and not (jsonl or as_json),
        "--mass: needs --json or --jsonl",
    )
    cli.refuse(not listen and (workers or mode is not None), "--workers and --mode: need --listen")
    cli.refuse(not listen and stats is not None, "--stats: needs --listen")
    is_learning = forget or learn is not None
    setup = Setup(
        asked,
        model,
        cache_dir,
        no_cache,
        calibration_file,
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
        learns = learning.learner(setup.calibration_file, learn, forget, is_many, no_calibration)
    if listen:
        from ..serve import worker

        load = lambda: setup.classifier(threads=1)
        worker.run(listen, 0o600 if mode is None else mode, load, workers, threads, verbose, stats)
    if pass_through:
        from ..serve import pass_through as passing

        return passing.run(setup.classifier)
    q = setup.question()
    # before the model is opened: empty input ends at once
    data = b"" if jsonl else setup.read_input(q, file)
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
        cli.report(
            tokens=v.n_tokens, reused=v.n_reused, steps=c.tree.n_nodes, cache=c.cache_state, ms=ms
        )
    raise click.exceptions.Exit(0 if learns else c.status(v))
