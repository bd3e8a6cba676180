"""perplexity - how well a model foretells a text."""

import contextlib
import os
import sys
import time

from .. import cli, faults, stream
from ..perplexity import kept_logits
from ..system import files
from ..tokenizer import vocabulary
from ..perplexity import evaluate as p
from ..model.model import Model
from ..kvcache.format import KV_TYPES
from ..limits import MAX_CAPACITY
import click


@cli.command()
@click.argument("path", metavar="[FILE]", required=False)
@cli.model_option
@cli.vocab_option
@click.option(
    "-c",
    "--context",
    type=click.IntRange(4, MAX_CAPACITY),
    metavar="N",
    help=(
        "Ids of a window, within the model's context.  "
        "[default: 512, or that context if it is less]"
    ),
)
@click.option(
    "--stride",
    type=click.IntRange(1),
    metavar="N",
    help="Windows begin every N ids and their last N ids count.",
)
@click.option(
    "-n", "--windows", type=cli.OrNone(1), metavar="N", help="Stop after N windows; -1: no limit."
)
@click.option(
    "--save-logits",
    metavar="FILE",
    help="Keep the logits of all that counts: 2 bytes for each entry of the vocabulary and id.",
)
@click.option(
    "--kl",
    metavar="BASE",
    help="Compare with logits that another model kept; the text is that of BASE.",
)
@click.option(
    "--kv",
    type=click.Choice(list(KV_TYPES)),
    default="f16",
    help="Type of the cached keys and values.",
)
@click.option("--json", "as_json", is_flag=True, help="The result as one JSON object.")
@cli.arithmetic_option
@cli.threads_option
@cli.verbose_option
def main(
    path,
    model,
    vocab_file,
    context,
    stride,
    windows,
    save_logits,
    kl,
    kv,
    as_json,
    arithmetic,
    threads,
    verbose,
):
    """How well a model foretells a text.

    \b
    Usage: perplexity -m MODEL [FILE] >result
           perplexity -m MODEL --kl BASE >result

    Reads a text of at most 16 MiB from FILE or stdin, any bytes, and prints "perplexity P +- E": e
    to the mean of - ln p over the ids that count, and its standard error. The text is cut in
    windows of -c ids that are read by themselves, their first id replaced by the begin id if the
    model wants one. Of each window the ids behind its middle count: 255 of 512 (with -c N: N - N/2
    - 1). What fills no window at the end is left out. So does llama.cpp's tool, and the numbers can
    be compared. With --stride, windows overlap instead. The digits do not depend on threads,
    instruction set or processor.

    --kl prints more lines: the base's own perplexity; the mean of ln(p of the base / p); the mean,
    median, 99 and 99.9 percentile and maximum of the Kullback-Leibler divergence of the model from
    the base, in nats; and for which share of positions both have the same most probable id. BASE is
    from --save-logits, of a model with the same vocabulary. Its logits are rounded to a 65535th of
    their range, so a model differs from itself by 1e-8 or so.

    On a terminal stderr shows the progress and the estimate so far; elsewhere -v prints them, a
    line a window.

    \b
    Exit status: 0 done; 64 usage; 65 bad model, BASE or text (too long, or less than a window); 66 no such file;
      69 unsupported model or arithmetic; 73 cannot create the file; 74 cannot read or write; 75 out of memory or disk.

    \b
    Example:
      perplexity -m m.gguf -c 8 --save-logits m.base prompt.txt
      perplexity -m m.gguf --kl m.base
    See also: gguf-quantize, sluice-bench.
    """
    if kl and (path or context or stride or save_logits):
        raise click.UsageError(
            "--kl BASE has text and windows of its own: without FILE, -c, --stride and"
            " --save-logits"
        )
    if save_logits:
        files.check_target(save_logits, model, vocab_file, path or "/dev/stdin")
    began, base = time.monotonic(), kept_logits.Base(kl) if kl else None
    m = Model(model, threads, arithmetic, vocab_file)
    words = vocabulary.Vocab(m.file)
    bos = words.bos if words.add_bos else None
    if base:
        cut = p.windows_of(base, m, bos, kept_logits.vocab_id(m.file), windows)
    else:
        n_ctx = context or min(512, m.hparams.n_ctx)
        if n_ctx > m.hparams.n_ctx:
            most = m.hparams.n_ctx
            raise click.UsageError(f"-c: {n_ctx} is more than {most}, the model's context")
        if stride and stride >= n_ctx:
            raise click.UsageError(f"--stride: {stride} is not below the {n_ctx} ids of a window")
        cut = p.Windows(p.read_ids(path, words), n_ctx, stride, bos, windows)
        if not cut.n_window:
            raise faults.bad(
                path or "standard input",
                f"{len(cut.ids)} ids, less than a window of {n_ctx} (see -c)",
            )
    with watching(cut.n_window, verbose) as watch:
        run = lambda keep: p.measure(m, cut, kv, base, keep, watch)
        sums, divergence = (
            kept_logits.write(save_logits, m.file, m.hparams.n_vocab, cut, run)
            if save_logits
            else run(None)
        )
    results = [("perplexity", sums.perplexity, sums.error)] + (
        divergence.results() if divergence else []
    )
    stream.write_all(1, (p.as_json(results, sums.n, cut) if as_json else p.lines(results)).encode())
    if verbose:
        seconds = time.monotonic() - began
        cli.report(
            ids=sums.n,
            windows=cut.n_window,
            ms=1e3 * seconds,
            ids_s=cut.n_window * cut.n_ctx / seconds,
        )


@contextlib.contextmanager
def watching(n_window, verbose):
    """What p.measure calls after each window: a bar with the estimate on a terminal, elsewhere with
    -v a line.
    """
    if os.isatty(2):
        estimate = lambda sums: sums and f"perplexity {sums.perplexity:.4f}"
        with click.progressbar(length=n_window, item_show_func=estimate, file=sys.stderr) as bar:
            yield lambda i, sums: bar.update(1, sums)
    else:
        yield (
            lambda i, sums: (
                verbose
                and cli.report(window=f"{i}/{n_window}", perplexity=f"{sums.perplexity:.4f}")
            )
        )
