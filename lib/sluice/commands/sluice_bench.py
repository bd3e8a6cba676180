"""sluice-bench: how fast models run here, beside what the machine could do."""

import os

from .. import cli  # first: an interrupt during the other imports is silent
from ..bench import (
    combinations,
    matmul,
    measure,
    plot,
    rival,
    shapes,
    start as processes,
    synthetic,
    table,
)
from ..cli.lists import LIST, models, sizes, words
from ..cli.values import Numbers
import click


@cli.command()
@click.option(
    "-m",
    "--model",
    metavar="FILE",
    help="GGUF file; of a model in several files any one.  [default: $MODEL]",
)
@cli.vocab_option
@click.option("--shape", "names", callback=models, help=shapes.HELP, **LIST)
@click.option(
    "--type",
    "types",
    default="Q8_0",
    callback=words,
    help="Weight types of --shape and --matmul.",
    **LIST,
)
@click.option(
    "--head",
    metavar="TYPE",
    help="Another type for the head of --shape.  [default: as --type has it]",
)
@click.option(
    "--layers", type=click.IntRange(1), metavar="N", help="Cut --shape to its first N blocks."
)
@click.option(
    "--cache",
    metavar="DIR",
    help="Keep models of --shape here.  [default: sluice/bench in $XDG_CACHE_HOME or ~/.cache]",
)
@click.option(
    "-p",
    "--prompt",
    type=Numbers(0),
    default="512",
    help="Ids of a prompt; 0: no such test.",
    **LIST,
)
@click.option(
    "-n",
    "--generate",
    type=Numbers(0),
    default="128",
    help="Ids to generate; 0: no such test.",
    **LIST,
)
@click.option(
    "-d", "--depth", type=Numbers(0), default="0", help="Ids that are in the cache before.", **LIST
)
@click.option(
    "--start",
    type=Numbers(1),
    default=None,
    help="Ids of a prompt that a new process (prefill) reads.",
    **LIST,
)
@click.option(
    "-r",
    "--repetitions",
    type=click.IntRange(1, 1000),
    metavar="N",
    default=5,
    help="Runs of each test.",
)
@click.option(
    "-j",
    "--threads",
    type=Numbers(1),
    default=None,
    help="Threads.  [default: one a core that this process may use]",
    **LIST,
)
@click.option(
    "--isa", callback=words, help="Instruction sets.  [default: $SLUICE_ISA, else the best]", **LIST
)
@click.option(
    "--kv",
    type=click.Choice(["f32", "f16", "q8_0"]),
    default="f16",
    help="Type of the cached keys and values.",
)
@cli.arithmetic_option
@cli.huge_pages_option
@click.option(
    "-o",
    "--output",
    type=click.Choice(["md", "csv", "json"]),
    default="md",
    help="Form of the table.",
)
@click.option(
    "--matmul",
    "products",
    callback=sizes,
    metavar="M,N,K[;...]",
    help="Time products of M rows with matrices [N, K] alone.",
)
@click.option(
    "--against",
    type=click.Choice(rival.NAMES),
    help="Alternate with this engine, if it is installed; print ratios.",
)
@click.option(
    "--plot",
    "picture",
    metavar="FILE",
    help="Draw the rows too: .svg, .png or .pdf; needs matplotlib.",
)
def main(
    model,
    vocab_file,
    names,
    types,
    head,
    layers,
    cache,
    prompt,
    generate,
    depth,
    start,
    repetitions,
    threads,
    isa,
    kv,
    arithmetic,
    huge_pages,
    output,
    products,
    against,
    picture,
):
    """How fast a model runs here, as a table.

    Runs a model file, or one of random weights that it makes and keeps: pp512 reads a prompt of 512
    ids in one go, tg128 generates 128 ids one by one, and "@ d1536" says how many ids were in the
    cache before. Ids are fixed and what comes out is thrown away. Of each test the first run (of
    tg: 4 ids) warms up and is not counted.

    t/s is the median and, behind ±, half the distance between the quartiles. GFLOP/s counts a
    multiplication and an addition each, in products with weights and attention; GB/s the weights,
    keys and values read for an id. "of limit" puts them beside what was measured in the same run:
    reading the bytes that an id needs with all threads (of tg just before and after each run), or
    products that stay in registers (f32 fma, int8 dot products or tiles). memory is the most that
    was held beyond mapped files. start181 is a whole process, from the exec of prefill to its exit:
    all of 181 ids. LIST is values separated by commas; every combination is run.

    \b
    Exit status: 0 done; 64 usage; 65 bad model; 66 no such file; 69 unsupported model, arithmetic or instruction set, or
      a package that is not installed or crashed; 73 cannot create a file; 74 cannot read or write; 75 out of memory or disk.

    \b
    Example:  sluice-bench --shape tiny --type Q8_0,Q4_0 -p 64 -n 8 -d 0,128 -r 2
              sluice-bench --shape tiny -p 0 -n 0 --start 181 -r 2
              sluice-bench --matmul '64,256,256;1,256,256' -r 2 -o csv
    See also: prefill, decode.
    """
    cli.only_one(model=model, shape=names, matmul=products)
    model = model or (None if names or products else os.environ.get("MODEL"))
    cli.refuse(vocab_file and (against or not model), "--vocab goes with -m, and without --against")
    cli.refuse(
        products and (against or start), "--against and --start run models: not with --matmul"
    )
    cli.refuse(head and (model or products), "--head is of --shape")
    synthetic.check_types(types, head)
    tests = [
        measure.Test(*pair, d)
        for d in depth
        for pair in [*((p, 0) for p in prompt if p), *((0, n) for n in generate if n)]
    ]
    cli.refuse(not (tests or start or products), "-p 0 and -n 0: nothing to run")
    matmul.check(types, products)
    if against:
        rival.check(against)
    if start:
        processes.beside()
    if picture:
        plot.check(picture, tests or products)
    if products:
        make = lambda n_threads: matmul.run(
            types, products, repetitions, n_threads, arithmetic, huge_pages
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
                against,
                start or (),
                arithmetic,
                huge_pages,
            )
            for path in paths
        ]
        rows = combinations.rows(makes, isa or [None], threads or [None], apart=bool(against))
    rows = table.write(rows, output, table.columns(products, against), repetitions)
    if picture:
        plot.write(picture, rows)
    rival.check_rows(rows)
