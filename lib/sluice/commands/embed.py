"""embed: print the vector of each text."""

import os
import time

from .. import cli, faults
from ..cli import many_texts
from ..embed import prompt as prompts
from ..limits import MAX_CAPACITY
from ..system import files
import click

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

    from ..classify.many import Counts
    from ..classify.writers import Output
    from ..embed.embedder import Embedder
    from ..texts.sources import Item

FORMATS = ("jsonl", "npy", "f32")


@cli.command()
@cli.model_option
@cli.vocab_option
@cli.option(
    "-q",
    "--question",
    "asked",
    metavar="Q",
    files=("yaml", "yml"),
    words=prompts.NAMES,
    group="Model",
    help="What to put around each text: search or similarity (Qwen3-Embedding), or a YAML file.",
)
@cli.option(
    "--pooling",
    type=click.Choice(prompts.POOLINGS),
    metavar="HOW",
    group="Model",
    show_default="the model's, else last for qwen3 and mean for others",
    help="Which hidden states make the vector: last (that of the last token), mean, or cls (the"
    " first).",
)
@cli.option(
    "-c",
    "--ctx-size",
    "n_ctx",
    type=click.IntRange(4, MAX_CAPACITY),
    metavar="N",
    group="Input",
    show_default="the model's context",
    help="Tokens of a text, prompt included; a longer one loses its end.",
)
@cli.option(
    "-e",
    "--string",
    "strings",
    multiple=True,
    metavar="TEXT",
    group="Input",
    help="TEXT is a text. Repeatable.",
)
@many_texts.options("embed COLUMN")
@cli.option(
    "--cosine",
    is_flag=True,
    group="Output",
    help="Print only the cosine of two texts, -1 to 1: the nearer in meaning, the greater.",
)
@cli.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    metavar="FORM",
    show_default="npy if -o ends with .npy, else jsonl",
    group="Output",
    help="jsonl (an object a line), npy (NumPy), or f32 (bare numbers, little-endian).",
)
@cli.option(
    "--normalize/--no-normalize",
    default=True,
    group="Output",
    help="Bring each vector to length 1.",
)
@cli.option(
    "--dimensions",
    type=click.IntRange(1),
    metavar="N",
    group="Output",
    show_default="all",
    help="Keep the first N elements, for models that were trained for it (Matryoshka).",
)
@cli.option(
    "-o",
    "--output",
    metavar="FILE",
    group="Output",
    show_default="stdout",
    help="Write FILE, atomically, once all is known.",
)
@cli.option(
    "-b",
    "--batch-size",
    "n_batch",
    type=click.IntRange(1, 1024),
    metavar="N",
    default=64,
    show_default=True,
    help="Texts that are processed together at most; affects speed and memory only.",
)
@cli.arithmetic_option
@cli.threads_option
@cli.huge_pages_option
@cli.verbose_option
def main(
    model: str,
    vocab_file: str | None,
    asked: str | None,
    pooling: str | None,
    n_ctx: int | None,
    strings: tuple[str, ...],
    cosine: bool,
    form: str,
    normalize: bool,
    dimensions: int | None,
    output: str | None,
    n_batch: int,
    arithmetic: str,
    threads: int | None,
    huge_pages: bool,
    verbose: bool,
    reading: many_texts.Reading,
) -> None:
    """Print the vector of each text.

    SYNOPSIS
      embed -m MODEL [OPTIONS] [FILE|FOLDER]...
      embed -m MODEL [OPTIONS] -e TEXT...
      embed -m MODEL --each line|--jsonl|--csv COLUMN [OPTIONS] [FILE]
      embed -m MODEL --cosine [OPTIONS] FILE FILE

    DESCRIPTION
      Read texts and print a vector for each, its embedding: two texts that are near in meaning have
      vectors of which the cosine is near 1. The texts are stdin, FILEs, the files of folders, the
      TEXTs of -e, lines (--each line), the rows of a table (--csv COLUMN), or the "text" of JSON
      objects, one per line (--jsonl). The vector is made of the model's last hidden states, by
      --pooling, and has length 1. Any model that generate runs can embed; one that was trained for
      it, such as Qwen3-Embedding, does it well.

      The default form is an object per text: "name" (of --jsonl "id") and "embedding", the numbers
      with all their digits; "cut": true for a text that is longer than the context and lost its
      end. npy is a NumPy array with a row per text, f32 the same without a header. There a text
      that has no vector gets a row of NaN, so that rows and texts keep step.

      -q names a YAML file with the keys before and after, texts around each text, and pooling.
      Models for search want it for queries and not for passages: see the card of the model. Prompt
      and text are tokenized as one.

      A text is tokenized as the model's metadata say. If they do not say whether it ends with the
      EOS token, it does for qwen3 with pooling last: the state after it is the vector. Of a text of
      more than 256 KiB the first 128 KiB are used.

      A vector has the same bits alone or among others, for any -b, thread count, instruction set
      and processor.

    EXIT STATUS
      0   every text has a vector, or is empty
      64  usage error
      65  invalid model, prompt or input; some texts have errors, the others were embedded
      66  no such file
      69  unsupported model or arithmetic; a reranker
      73  cannot create FILE
      74  I/O error
      75  out of memory or disk space; retry

    EXAMPLES
      embed -m m.gguf prompt.txt
      embed -m m.gguf -q search -e 'where does it rain most?'
      embed -m m.gguf --each line --format npy -o vectors.npy <prompt.txt
      embed -m m.gguf --cosine -e 'a cat' -e 'a kitten'

    SEE ALSO
      rerank, classify
    """
    began = time.monotonic()
    cli.refuse(
        strings and reading.is_asked,
        "-e: not with FILE, --each, --jsonl, --csv, --recursive or --mail",
    )
    cli.refuse(cosine and (output or form), "--cosine: not with -o or --format")
    form = form or ("npy" if output and output.endswith(".npy") else "jsonl")
    if output:
        files.check_target(output, model, vocab_file, *reading.texts.paths)
    elif form != "jsonl":
        cli.refuse_terminal(f"--format {form}")
    prompt = prompts.read(asked) if asked is not None else prompts.Prompt()
    from ..embed.embedder import Embedder
    from ..model.model import Model

    m = Model(model, threads, arithmetic, vocab_file, huge_pages)
    if dimensions and dimensions > m.hparams.n_embd:
        raise click.UsageError(
            f"--dimensions: {dimensions} is more than {m.hparams.n_embd}, the model's"
        )
    embedder = Embedder(m, prompt, pooling, normalize, dimensions, n_ctx, n_batch, reading.is_mail)
    source = _given(strings) if strings else reading.source()
    ended = None
    if cosine:
        _print_cosine(embedder, source)
    else:
        ended = _print_vectors(embedder, source, reading, form, output)
    many_texts.say_cut(embedder.n_cut)
    if verbose:
        ms = 1e3 * (time.monotonic() - began)
        cli.report(
            tokens=embedder.n_tokens,
            pooling=embedder.pooling,
            dimensions=embedder.dimensions,
            ms=ms,
        )
    if ended:
        from ..classify import many

        raise click.exceptions.Exit(many.outcome(*ended, cli.say, "vector"))


def _given(strings):
    """The texts of -e, as a source."""
    from ..texts import sources

    return sources.groups(
        sources.Item(f"-e:{i}", os.fsencode(text) or None) for i, text in enumerate(strings, 1)
    )


def _print_vectors(
    embedder: "Embedder",
    source: "Iterable[list[Item]]",
    reading: many_texts.Reading,
    form: str,
    output: str | None,
) -> "tuple[Counts, Output]":
    """Print the vectors of all texts, or write them to the file `output`. Returns the numbers of
    texts, and what wrote them.
    """
    from ..embed import vectors

    held = vectors.Held() if output or form == vectors.NPY else None
    write = held.write if held else vectors.to_stdout
    writer: vectors.Objects | vectors.Rows
    if form == vectors.JSONL:
        writer = vectors.Objects(write, "id" if reading.texts.jsonl else "name")
    else:
        writer = vectors.Rows(write, embedder.dimensions)
    n = reading.put(embedder, source, writer)
    if held:
        head = b""
        if form == vectors.NPY:
            head = vectors.npy_header(n.all, embedder.dimensions)

        def copy(write):
            write(head)
            held.copy(write)

        if output:
            files.write(output, lambda f: copy(f.write))
        else:
            copy(vectors.to_stdout)
    return n, writer


def _print_cosine(embedder: "Embedder", source: "Iterable[list[Item]]") -> None:
    """Print the cosine of the only two texts. Raises UsageError for another number of texts, and
    the error of one that has no vector.
    """
    from ..classify import many
    from ..classify.writers import why
    from ..embed import embedder as embedders
    from ..embed import vectors

    items: list[Item] = []
    for some in source:
        items += some
        if len(items) > 2:
            break
    if len(items) != 2:
        n = "more than 2" if len(items) > 2 else len(items)
        raise click.UsageError(f"--cosine: {n} texts, where 2 are needed")
    found: list[bytes] = []
    answered: Iterator[Any] = many.found_of(embedder, items)
    for item, v in zip(items, answered):
        if v is None:
            raise faults.data_error(item.name, "no text: it is empty")
        if isinstance(v, Exception):
            raise faults.Error(faults.BAD_DATA, why(item, v))
        found.append(v.values)
    vectors.to_stdout(f"{embedders.cosine(*found):.6f}\n".encode())
