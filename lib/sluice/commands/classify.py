"""classify: a question about a text, answered by a label."""

import sys
import time

if sys.argv[1:2] == ["--long"]:  # with a few other options this answers, and ends
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
    help="Name of a bundled question, or a YAML file.",
)
@cli.text_option("Read FILE as standard input.")
@cli.option("--mail", is_flag=True, group="Input", help="The input is a message (RFC 5322).")
@cli.option(
    "--long",
    is_flag=True,
    group="Output",
    help="Print label, P(first label), threshold and model ID.",
)
@cli.option(
    "--pass-through",
    is_flag=True,
    group="Output",
    help="Copy the message from stdin to stdout, with X-Spam headers.",
)
@cli.option("--json", "as_json", is_flag=True, group="Output", help="Print one JSON object.")
@cli.option(
    "--jsonl",
    is_flag=True,
    group="Output",
    help="Read objects with id and text, one per line; print one object for each.",
)
@cli.option(
    "--mass",
    is_flag=True,
    group="Output",
    help="With --json or --jsonl: add the labels' share of the total probability.",
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
    calibration_file,
    no_calibration,
):
    """Classify a text with a language model.

    SYNOPSIS
      classify [OPTIONS] [FILE]
      classify --jsonl|--pass-through [OPTIONS] <input
      classify --listen SOCKET [OPTIONS]

    DESCRIPTION
      Read FILE or stdin and print one line: a label and its probability. The question, a YAML file,
      defines the prompt, the labels and a threshold for each label; it may also name the model. If
      the most likely label is below its threshold, print "unsure" and the probability of the first
      label. Bundled questions: spam (the default), and for any chat model language-is-english,
      urgent and sentiment. Long input is truncated to its first and last tokens.

      --jsonl reads objects {"id": ..., "text": ...}, one per line. Each is answered at once by an
      object with id, answer and score, or with id and error. With --mail a text is a whole message,
      its bytes as the characters of Latin-1.

      --pass-through reads a message of any size to its end. It is then written with X-Spam-Flag,
      X-Spam-Score and X-Spam-Status at the top, and without the X-Spam headers that it came with;
      nothing else changes. Without a result within 60 s the header says "X-Spam-Status: unchecked;
      reason=WORD", as that of mail-filter does. If the exit status is not 0 and nothing was
      written, the message is still the caller's.

      --learn and --forget refit the calibration, which maps the model's probabilities to the
      printed ones. One message moves it a little, a hundred move it a lot. Label correctly
      classified messages, too, and use every label. The calibration file (mode 0600) contains
      numbers only, of the last 10,000 texts. A damaged file, or one of another model, is ignored
      with a message on stderr.

      The cache holds the parsed question, the model ID and, for a long prompt, the model's state
      after the first part of the prompt. It never holds input.

      With --listen the command stays with the model loaded. A client connects, sends one message,
      half-closes and reads one line: that of --long with yes, no or unsure, or "error WORD". SIGHUP
      reloads question and model, SIGTERM ends.

    EXIT STATUS
      0   first label (yes); --jsonl answered all lines; --learn, --forget or --pass-through
          succeeded
      1   another label
      2   unsure
      64  usage error
      65  invalid question, model or input; empty text; invalid lines; nothing to forget
      66  no such file
      69  unsupported model or arithmetic
      73  cannot create the file or socket
      74  I/O error
      75  out of memory; retry

      A result is always a line on stdout. Status 1 without that line is a failure: Python could not
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
        "--mass has a place in objects only: with --json or --jsonl",
    )
    cli.refuse(not listen and (workers or mode is not None), "--workers and --mode are of --listen")
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
        cli.report(tokens=v.n_tokens, reused=v.n_reused, steps=c.tree.n_nodes, cache=c.cache_state, ms=ms)
    raise click.exceptions.Exit(0 if learns else c.status(v))
