"""perplexity: compute a model's perplexity on a text."""

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

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
@cli.argument("path", metavar="[FILE]", required=False, callback=cli.not_with_file)
@cli.model_option
@cli.vocab_option
@cli.text_option("Read FILE as standard input.")
@cli.option(
    "-c",
    "--ctx-size",
    "context",
    aliases=("--context",),
    type=click.IntRange(4, MAX_CAPACITY),
    metavar="N",
    group="Input",
    show_default="512, or the model's context if that is smaller",
    help="Context size in tokens: that of a window.",
)
@cli.option(
    "--stride",
    aliases=("--ppl-stride",),
    type=click.IntRange(1),
    metavar="N",
    group="Input",
    help="Let windows overlap: start one every N tokens, and count its last N.",
)
@cli.option(
    "-n",
    "--windows",
    aliases=("--chunks",),
    type=cli.OrNone(1),
    metavar="N",
    group="Input",
    show_default="no limit",
    help="Stop after N windows; -1: no limit.",
)
@cli.option(
    "--kl",
    metavar="BASE",
    group="Input",
    help="Compare with BASE, the --save-logits file of another model, on its text.",
)
@cli.option(
    "--save-logits",
    metavar="FILE",
    group="Output",
    help="Save the logits of all counted tokens to FILE: 2 bytes per token and vocabulary entry.",
)
@cli.option("--json", "as_json", is_flag=True, group="Output", help="Print one JSON object.")
@cli.option(
    "--kv",
    type=click.Choice(list(KV_TYPES)),
    metavar="TYPE",
    default="f16",
    group="Cache",
    help="Type of the KV cache: f32, f16 or q8_0.",
)
@cli.arithmetic_option
@cli.threads_option
@cli.verbose_option
def main(
    path: str | None,
    model: str,
    vocab_file: str | None,
    context: int | None,
    stride: int | None,
    windows: int | None,
    save_logits: str | None,
    kl: str | None,
    kv: str,
    as_json: bool,
    arithmetic: str,
    threads: int | None,
    verbose: bool,
) -> None:
    """Compute a model's perplexity on a text.

    SYNOPSIS
      perplexity -m MODEL [OPTIONS] [FILE]
      perplexity -m MODEL --kl BASE [OPTIONS]

    DESCRIPTION
      Read a text of at most 16 MiB, any bytes, from FILE or stdin. Print "perplexity P +- E": e to
      the power of the mean of - ln p over the counted tokens, and its standard error. The text is
      cut into independent windows of -c tokens. The BOS token replaces the first token of a window,
      if the model uses one. The tokens after the middle of a window count: 255 of 512 (with -c N:
      N - N/2 - 1). An incomplete window at the end is dropped. llama-perplexity does the same, so
      the numbers are comparable. With --stride, windows overlap instead. The digits do not depend
      on the thread count, instruction set or processor.

      --kl prints more lines: the perplexity of the base; the mean of ln(p of the base / p); mean,
      median, 99th and 99.9th percentile and maximum of the Kullback-Leibler divergence of the model
      from the base, in nats; and the share of positions at which both have the same most likely
      token. BASE must come from a model with the same vocabulary. Its logits are rounded to a
      65535th of their range, so a model differs from itself by about 1e-8.

      On a terminal stderr shows the progress and the current estimate; elsewhere -v prints one line
      per window.

    EXIT STATUS
      0   success
      64  usage error
      65  invalid model, BASE or text (too long, or shorter than a window)
      66  no such file
      69  unsupported model or arithmetic
      73  cannot create FILE
      74  I/O error
      75  out of memory or disk space; retry

    EXAMPLES
      perplexity -m m.gguf -c 8 --save-logits m.base prompt.txt
      perplexity -m m.gguf --kl m.base

    SEE ALSO
      gguf-quantize, sluice-bench
    """
    if kl and (path or context or stride or save_logits):
        raise click.UsageError(
            "--kl: not with FILE, -f, -c, --stride or --save-logits; BASE has text and windows"
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
            raise click.UsageError(
                f"-c/--ctx-size: {n_ctx} is more than {m.hparams.n_ctx}, the model's context"
            )
        if stride and stride >= n_ctx:
            raise click.UsageError(
                f"--stride: {stride} is not below the {n_ctx} tokens of a window"
            )
        cut = p.Windows(p.read_tokens(path, words), n_ctx, stride, bos, windows)
        if not cut.n_window:
            raise faults.data_error(
                path or "standard input",
                f"{len(cut.tokens)} tokens, less than a window of {n_ctx}; give a smaller -c",
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
            tokens=sums.n,
            windows=cut.n_window,
            ms=1e3 * seconds,
            tokens_s=cut.n_window * cut.n_ctx / seconds,
        )


@contextlib.contextmanager
def watching(n_window: int, verbose: bool) -> Iterator[Callable[[int, Any], object]]:
    """Show the progress: a bar with the estimate on a terminal, else with -v a line per window.

    The context's value is a function of the window's number and the sums so far (p.measure).
    """
    if os.isatty(2):
        estimate = lambda sums: sums and f"perplexity {sums.perplexity:.4f}"
        with click.progressbar(length=n_window, item_show_func=estimate, file=sys.stderr) as bar:
            yield lambda i, sums: bar.update(1, sums)
    else:
        yield (
            lambda i, sums: (
                cli.report(window=f"{i}/{n_window}", perplexity=f"{sums.perplexity:.4f}")
                if verbose
                else None
            )
        )
