"""gguf-quantize - a copy of a model with its weights in other types."""

import os
import time

from .. import cli, gguf
from ..quantize import mixes, requantize
from ..system import files
from ..cli import progress
from ..gguf import printing
from ..model.model import start
import click


def parse_types(context, parameter, values):
    """The option's NAME=TYPE as a list of (name, type)."""
    out = []
    for value in values:
        name, _, type = value.rpartition("=")
        if not name or type.upper() not in requantize.KINDS or type.upper() in mixes.MIXES:
            raise click.BadParameter(f"{value!r} is not NAME=TYPE with a type such as Q8_0 or F16")
        out.append((name, type.upper()))
    return out


@cli.command()
@click.argument("source", metavar="IN")
@click.argument("rest", nargs=-1, metavar="OUT TYPE")
@click.option(
    "--tensor",
    "overrides",
    multiple=True,
    callback=parse_types,
    metavar="NAME=TYPE",
    help=(
        "Another type for these matrices, such as token_embd=Q8_0 or 'blk.*.attn_v=F16'; again for"
        " more, the last counts."
    ),
)
@click.option(
    "--dry-run",
    is_flag=True,
    help="Write nothing (OUT may be left out): print what would become what, with sizes.",
)
@cli.threads_option
@cli.verbose_option
def main(source, rest, overrides, dry_run, threads, verbose):
    """Copy a model with its weights in another type.

    \b
    Usage: gguf-quantize IN OUT TYPE
           gguf-quantize --dry-run IN TYPE

    TYPE is Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K, Q6_K, F16, BF16 or F32, which every matrix
    then has, or a mix: Q4_K_S, Q4_K_M, Q5_K_S or Q5_K_M give the head, and the M also some of the
    attn_v and ffn_down, more bits. Norms and other vectors become F32. A row that is no multiple of
    256 takes Q5_0 for Q4_K, Q5_1 for Q5_K, Q8_0 for Q6_K, one that is no multiple of 32 takes F16.
    IN may be of any type that models run in: weights that are quantised already are rounded a
    second time, and those that have their type are copied. The bytes do not depend on the number of
    threads or the processor.

    Metadata goes over as it is, but for general.file_type and general.quantization_version. IN may
    be a shard of a model in several files; OUT is one file, which appears whole or not at all, and
    replaces a file of that name; it cannot be IN. A weight that is infinite or NaN is refused, with
    its tensor and row.

    \b
    Exit status: 0 done; 64 usage; 65 bad input; 66 no such file; 69 a type that this build does not read;
      73 cannot create OUT; 74 cannot read or write; 75 out of memory or disk.

    \b
    Example: gguf-quantize m.gguf m-q4_k_m.gguf Q4_K_M --tensor token_embd=Q8_0
    See also: gguf-dump, perplexity.
    """
    if len(rest) not in ((1, 2) if dry_run else (2,)):
        raise click.UsageError("expected IN OUT TYPE" + (" or IN TYPE" if dry_run else ""))
    out, kind = rest[0] if len(rest) == 2 else None, rest[-1].upper()
    if kind not in requantize.KINDS:
        raise click.UsageError(f"TYPE: {rest[-1]!r} is none of {', '.join(requantize.KINDS)}")
    began = time.monotonic()
    file = gguf.File(source)
    plan = requantize.plan(file, kind, overrides)
    if dry_run:
        return printing.put(requantize.lines(plan))
    files.check_target(out, *(part.path for part in file.parts))
    start(threads)
    n_bytes = sum(t.n_bytes for t, _ in plan)
    with progress.shown(os.path.basename(out), n_bytes) as advance:
        requantize.write(out, file, kind, plan, advance)
    if verbose:
        seconds = time.monotonic() - began
        cli.report(
            tensors=len(plan),
            bytes=os.path.getsize(out),
            ms=1e3 * seconds,
            mb_s=n_bytes / 1e6 / seconds,
        )
