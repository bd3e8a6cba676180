"""sluice-bench: measure how fast models run on this machine."""

import os

from .. import cli  # first: an interrupt during the other imports is silent
from ..bench import (
    combinations,
    matmul,
    measure,
    plot,
    peer,
    shapes,
    start as processes,
    synthetic,
    table,
)
from ..cli.lists import LIST, models, sizes, words
from ..cli.values import Numbers
import click


@cli.command()
@cli.option(
    "-m",
    "--model",
    last_wins=True,
    metavar="FILE",
    files=("gguf",),
    group="Model",
    show_default="$MODEL",
    help="GGUF model; any file of a split one.",
)
@cli.vocab_option
@cli.option(
    "--shape",
    "names",
    callback=models,
    group="Model",
    words=tuple(shapes.SHAPES),
    show_default=",".join(shapes.BOTH_ENDS),
    help=f"Models with random weights, instead of -m: {', '.join(shapes.SHAPES)}.",
    **LIST,
)
@cli.option(
    "--type",
    "types",
    default="Q8_0",
    callback=words,
    group="Model",
    help="Weight types of --shape and --matmul.",
    **LIST,
)
@cli.option(
    "--head",
    metavar="TYPE",
    group="Model",
    show_default="as --type",
    help="Weight type of the output head of --shape.",
)
@cli.option(
    "--layers",
    type=click.IntRange(1),
    metavar="N",
    group="Model",
    help="Use only the first N layers of --shape.",
)
@cli.option(
    "--cache",
    last_wins=True,
    metavar="DIR",
    group="Model",
    show_default="sluice/bench in $XDG_CACHE_HOME or ~/.cache",
    help="Keep the models of --shape in DIR.",
)
@cli.option(
    "-p",
    "--prompt",
    aliases=("--n-prompt",),
    type=Numbers(0),
    default="512",
    group="Tests",
    help="Prompt sizes in tokens; 0: no such test.",
    **LIST,
)
@cli.option(
    "-n",
    "--generate",
    aliases=("--n-gen",),
    type=Numbers(0),
    default="128",
    group="Tests",
    help="Numbers of tokens to generate; 0: no such test.",
    **LIST,
)
@cli.option(
    "-d",
    "--depth",
    aliases=("--n-depth",),
    type=Numbers(0),
    default="0",
    group="Tests",
    help="Numbers of tokens in the KV cache before the test.",
    **LIST,
)
@cli.option(
    "--start",
    type=Numbers(1),
    default=None,
    group="Tests",
    help="Prompt sizes in tokens for a test of a whole prefill process.",
    **LIST,
)
@cli.option(
    "--matmul",
    "matrix_sizes",
    callback=sizes,
    metavar="M,N,K[;...]",
    group="Tests",
    help="Test only the product of M rows of K numbers with a matrix [N, K].",
)
@cli.option(
    "--baseline",
    "baseline",
    aliases=("--against", "--compare"),
    type=click.Choice(peer.NAMES),
    metavar="ENGINE",
    group="Tests",
    help=f"Alternate with another installed engine and print ratios: {' or '.join(peer.NAMES)}.",
)
@cli.option(
    "-r",
    "--repetitions",
    type=click.IntRange(1, 1000),
    metavar="N",
    default=5,
    group="Tests",
    help="Runs of each test.",
)
@cli.option(
    "-j",
    "--threads",
    type=Numbers(1),
    default=None,
    group="Tests",
    show_default="available cores",
    help="Worker threads.",
    **LIST,
)
@cli.option(
    "--isa",
    callback=words,
    group="Tests",
    show_default="$SLUICE_ISA, else the best",
    help="Instruction sets.",
    **LIST,
)
@cli.option(
    "--kv",
    type=click.Choice(["f32", "f16", "q8_0"]),
    metavar="TYPE",
    default="f16",
    group="Tests",
    help="Type of the KV cache: f32, f16 or q8_0.",
)
@cli.option(
    "-o",
    "--output",
    type=click.Choice(["md", "csv", "json"]),
    metavar="FORMAT",
    default="md",
    group="Output",
    help="Format of the table: md, csv or json.",
)
@cli.option(
    "--plot",
    "picture",
    metavar="FILE",
    files=("svg", "png", "pdf"),
    group="Output",
    help="Also plot the rows to FILE (.svg, .png or .pdf); needs matplotlib.",
)
@cli.arithmetic_option
@cli.huge_pages_option
def main(
    model: str | None,
    vocab_file: str | None,
    names: list[str],
    types: list[str],
    head: str | None,
    layers: int | None,
    cache: str | None,
    prompt: list[int],
    generate: list[int],
    depth: list[int],
    start: list[int] | None,
    repetitions: int,
    threads: list[int] | None,
    isa: list[str],
    kv: str,
    arithmetic: str,
    huge_pages: bool,
    output: str,
    matrix_sizes: list[tuple[int, int, int]],
    baseline: str | None,
    picture: str | None,
) -> None:
    """Measure how fast models run on this machine.

    SYNOPSIS
      sluice-bench [-m MODEL | --shape LIST] [OPTIONS]
      sluice-bench --matmul M,N,K[;...] [OPTIONS]

    DESCRIPTION
      Run a model file, or models with random weights that are created and cached. LIST is values
      separated by commas; every combination is run. Tests:

      pp512     process a prompt of 512 tokens in one batch
      tg128     generate 128 tokens one by one
      start181  a prefill process for a prompt of 181 tokens, from exec to exit

      "@ d1536" gives the number of tokens in the KV cache before the test. Tokens are fixed and the
      output is discarded. The first run of each test (for tg: 4 tokens) is a warm-up and does not
      count.

      t/s is the median, and after the sign +- half the interquartile range. GFLOP/s counts
      multiplications and additions in matrix products and in attention. GB/s counts the weights,
      keys and values read per token. "of limit" compares both with the machine's limit, measured in
      the same run: reading the same bytes with all threads (for tg just before and after each run),
      or products of operands in registers (f32 FMA, int8 dot products or tiles). memory is the peak
      outside of mapped files.

    EXIT STATUS
      0   success
      64  usage error
      65  invalid model
      66  no such file
      69  unsupported model, arithmetic or instruction set; a package is missing or crashed
      73  cannot create a file
      74  I/O error
      75  out of memory or disk space; retry

    EXAMPLES
      sluice-bench --shape tiny --type Q8_0,Q4_0 -p 64 -n 8 -d 0,128 -r 2
      sluice-bench --shape tiny -p 0 -n 0 --start 181 -r 2
      sluice-bench --matmul '64,256,256;1,256,256' -r 2 -o csv

    SEE ALSO
      perplexity, prefill, decode
    """
    cli.only_one(model=model, shape=names, matmul=matrix_sizes)
    model = model or (None if names or matrix_sizes else os.environ.get("MODEL"))
    cli.refuse(vocab_file and (baseline or not model), "--vocab: needs -m, and not with --baseline")
    cli.refuse(matrix_sizes and (baseline or start), "--baseline and --start: not with --matmul")
    cli.refuse(head and (model or matrix_sizes), "--head: needs --shape")
    synthetic.check_types(types, head)
    tests = [
        measure.Test(*pair, d)
        for d in depth
        for pair in [*((p, 0) for p in prompt if p), *((0, n) for n in generate if n)]
    ]
    cli.refuse(not (tests or start or matrix_sizes), "-p 0 and -n 0: no test is left")
    matmul.check(types, matrix_sizes)
    if baseline:
        peer.check(baseline)
    if start:
        processes.beside()
    if picture:
        plot.check(picture, tests or matrix_sizes)
    if matrix_sizes:
        make = lambda n_threads: matmul.run(
            types, matrix_sizes, repetitions, n_threads, arithmetic, huge_pages
        )
        rows = combinations.rows([make], isa or [None], threads or [None])
    else:
        paths = (
            [model]
            if model
            else synthetic.find_all(cache, names or shapes.BOTH_ENDS, types, layers, head, cli.say)
        )
        makes = [
            combinations.of_model(
                path,
                vocab_file,
                tests,
                repetitions,
                kv,
                baseline,
                start or (),
                arithmetic,
                huge_pages,
            )
            for path in paths
        ]
        rows = combinations.rows(makes, isa or [None], threads or [None], separate=bool(baseline))
    written = table.write(rows, output, table.columns(matrix_sizes, baseline), repetitions)
    if picture:
        plot.write(picture, written)
    peer.check_rows(written)
