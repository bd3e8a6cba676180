"""gguf-quantize: quantize the weights of a model."""

import os
import time

from .. import cli, gguf
from ..quantize import mixes, requantize
from ..system import files
from ..cli import progress
from ..gguf import printing
from ..model.model import start
import click


def parse_types(
    context: click.Context, parameter: click.Parameter, values: tuple[str, ...]
) -> list[tuple[str, str]]:
    """Parse each NAME=TYPE into (name, type). Raises BadParameter."""
    out = []
    for value in values:
        name, _, type = value.rpartition("=")
        if not name or type.upper() not in requantize.KINDS or type.upper() in mixes.MIXES:
            raise click.BadParameter(f"{value!r} is not NAME=TYPE with a type such as Q8_0 or F16")
        out.append((name, type.upper()))
    return out


@cli.command()
@cli.argument("source", metavar="IN", files=("gguf",))
@cli.argument("rest", nargs=-1, metavar="OUT TYPE", files=("gguf",), words=requantize.KINDS)
@cli.option(
    "--tensor",
    "overrides",
    multiple=True,
    callback=parse_types,
    metavar="NAME=TYPE",
    group="Output",
    help=(
        "Use TYPE for the matrices NAME, such as token_embd=Q8_0 or 'blk.*.attn_v=F16'. Repeatable;"
        " the last match counts."
    ),
)
@cli.option(
    "--dry-run",
    is_flag=True,
    group="Output",
    help="Only print the new type and size of each tensor. OUT is optional.",
)
@cli.threads_option
@cli.verbose_option
def main(
    source: str,
    rest: tuple[str, ...],
    overrides: list[tuple[str, str]],
    dry_run: bool,
    threads: int | None,
    verbose: bool,
) -> None:
    """Quantize the weights of a model.

    SYNOPSIS
      gguf-quantize [OPTIONS] IN OUT TYPE
      gguf-quantize --dry-run [OPTIONS] IN TYPE

    DESCRIPTION
      TYPE is Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K, Q6_K, F16, BF16 or F32, for every matrix, or
      a mix: Q4_K_S, Q4_K_M, Q5_K_S or Q5_K_M use more bits for the output head, and the M mixes
      also for some attn_v and ffn_down. Norms and other vectors become F32. If the row length is
      not a multiple of 256, Q5_0 replaces Q4_K, Q5_1 Q5_K and Q8_0 Q6_K; if it is not a multiple of
      32, F16 replaces any type.

      IN may have any supported type. Quantized weights are rounded a second time; weights that
      already have their type are copied. The output bytes do not depend on the thread count or the
      processor.

      Metadata is copied, except general.file_type and general.quantization_version. IN may be any
      file of a split model. OUT is one file, written atomically; it replaces an existing file, but
      cannot be IN. An infinite or NaN weight is an error; the message names tensor and row.

    EXIT STATUS
      0   success
      64  usage error
      65  invalid input
      66  no such file
      69  unsupported type
      73  cannot create OUT
      74  I/O error
      75  out of memory or disk space; retry

    EXAMPLES
      gguf-quantize m.gguf m-q4_k_m.gguf Q4_K_M --tensor token_embd=Q8_0

    SEE ALSO
      gguf-dump, perplexity
    """
    if len(rest) not in ((1, 2) if dry_run else (2,)):
        raise click.UsageError("give IN OUT TYPE" + (" or IN TYPE" if dry_run else ""))
    out, kind = rest[0] if len(rest) == 2 else None, rest[-1].upper()
    if kind not in requantize.KINDS:
        raise click.UsageError(f"TYPE: {rest[-1]!r} is none of {', '.join(requantize.KINDS)}")
    began = time.monotonic()
    file = gguf.File(source)
    plan = requantize.plan(file, kind, overrides)
    if dry_run or out is None:
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
