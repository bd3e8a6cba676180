"""decode: run a model token by token; read tokens, write logits."""

import time
from collections.abc import Iterator

from .. import cli, stream
from ..system import files
from ..tokenizer import vocabulary
from ..generate import records
from ..model.model import Model
import click


def parse_rows(
    context: click.Context, parameter: click.Parameter, value: str | None
) -> list[int] | None:
    """Parse token IDs, separated by commas or spaces, into a sorted list without duplicates.

    None stays None. Raises BadParameter.
    """
    if value is None:
        return None
    fields = value.replace(",", " ").split()
    if not (fields and all(f.isascii() and f.isdigit() and len(f) <= 7 for f in fields)):
        raise click.BadParameter(f"{value!r} is not a list of token IDs such as 5281,1360")
    return sorted(set(map(int, fields)))


@cli.command()
@cli.argument("snapshot", metavar="SNAPSHOT")
@cli.model_option
@cli.vocab_option
@cli.option(
    "--rows",
    metavar="IDS",
    callback=parse_rows,
    group="Output",
    help="Compute only the logits of these token IDs, separated by commas.",
)
@cli.option(
    "-o",
    "--out",
    metavar="FILE",
    group="Output",
    help="Save the extended KV cache to FILE at the end, as a new snapshot.",
)
@cli.arithmetic_option
@cli.threads_option
@cli.huge_pages_option
@cli.verbose_option
def main(
    snapshot: str,
    model: str,
    vocab_file: str | None,
    rows: list[int] | None,
    out: str | None,
    arithmetic: str,
    threads: int | None,
    huge_pages: bool,
    verbose: bool,
) -> None:
    """Run a model token by token and write its logits.

    SYNOPSIS
      decode -m MODEL [OPTIONS] SNAPSHOT <tokens >logits

    DESCRIPTION
      Write one record of logits for SNAPSHOT before reading anything, so that a generation loop
      starts by itself. Then write one record for each token read, unless #end arrives with the
      token. The last record (E) gives the reason: #end was read, the token was an end-of-generation
      token, or the context of the snapshot (prefill --ctx-size) is full. SNAPSHOT never changes:
      decode maps it copy-on-write.

      In the example, "ring" is a FIFO made by mkfifo(1). It returns the tokens that sample chooses
      to decode, which closes the generation loop.

    EXIT STATUS
      0   the tokens ended with #end, the text ended, or the context is full
      64  usage error
      65  invalid, truncated or mismatched input
      66  no such file
      69  unsupported model or arithmetic
      73  cannot create FILE
      74  I/O error
      75  out of memory or disk space; retry

    EXAMPLES
      decode -m m.gguf p.snap <ring |
        sample -t 0 -n 64 | tee ring | tokenize -m m.gguf -d

    SEE ALSO
      prefill, grammar-filter, sample
    """
    if out:
        files.check_target(out, model, vocab_file)
    cli.refuse_terminal("a stream of logits")
    began = time.monotonic()
    m = Model(model, threads, arithmetic, vocab_file, huge_pages)
    cache = m.open_snapshot(snapshot)
    if rows and rows[-1] >= m.hparams.n_vocab:
        raise click.UsageError(
            f"--rows: token ID {rows[-1]} is not below the vocabulary size {m.hparams.n_vocab}"
        )
    n_begin = cache.n_tok
    decoder = records.Decoder(m, cache, vocabulary.end_tokens(m.file), bool(out), rows)
    reader: stream.TokenReader | None = None

    def tokens() -> Iterator[tuple[int, bool]]:
        assert reader is not None
        for token in reader:
            yield token, not reader.end_is_here()

    answer = decoder.records(tokens())
    stream.write_all(1, stream.logits_header(m.file.id, m.hparams.n_vocab))
    stream.write_all(
        1, next(answer).pack()
    )  # before the first token is read: it may depend on this record
    reader = stream.TokenReader(0, m.file, m.hparams.n_vocab)
    for record in answer:
        if record.kind != b"E" and not reader.end_is_here():
            stream.write_all(1, record.pack())
    record.flags |= stream.END_FLAGS.get(reader.reason or "", 0)
    m.file.check_unchanged()
    if out:
        cache.seal(out)
    stream.end_quietly(1, record.pack())
    if reader.reason is None:
        reader.drain()
    if verbose:
        pos = record.pos - bool(record.flags & stream.FULL)
        cli.report(tokens=pos - n_begin, pos=pos, ms=1e3 * (time.monotonic() - began))
