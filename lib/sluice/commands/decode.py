"""decode: a model run token by token, tokens to logits."""

import time

from .. import cli, stream
from ..system import files
from ..tokenizer import vocabulary
from ..generate import records
from ..model.model import Model
import click


def parse_rows(context, parameter, value):
    """The option's tokens, separated by commas or blanks, as a sorted list of distinct ones; or
    None.
    """
    if value is None:
        return None
    fields = value.replace(",", " ").split()
    if not (fields and all(f.isascii() and f.isdigit() and len(f) <= 7 for f in fields)):
        raise click.BadParameter("not a list of tokens such as 5281,1360")
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
    help="Compute only the logits of these token IDs, separated by commas; write candidates.",
)
@cli.option(
    "-o",
    "--out",
    metavar="FILE",
    group="Output",
    help="Save the extended KV cache as a new snapshot at the end.",
)
@cli.arithmetic_option
@cli.threads_option
@cli.huge_pages_option
@cli.verbose_option
def main(snapshot, model, vocab_file, rows, out, arithmetic, threads, huge_pages, verbose):
    """Run a model token by token and write its logits.

    SYNOPSIS
      decode -m MODEL [OPTIONS] SNAPSHOT <tokens >logits

    DESCRIPTION
      Write one record of logits for SNAPSHOT before reading anything, so that a generation loop
      starts by itself. Then write one record for each token read, unless #end arrives with the
      token. The last record (E) gives the reason: #end was read, the token was an end-of-generation
      token, or the snapshot has no space for the last token. SNAPSHOT is mapped copy-on-write and
      never changes.

    EXIT STATUS
      0   the tokens ended with #end, whatever its reason, or the text or the context came to its
          end
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
            f"--rows: id {rows[-1]} is not below the vocabulary size {m.hparams.n_vocab}"
        )
    n_begin = cache.n_tok
    decoder = records.Decoder(m, cache, vocabulary.end_tokens(m.file), bool(out), rows)
    reader = None

    def given():
        for id in reader:
            yield id, not reader.end_is_here()

    answer = decoder.records(given())
    stream.write_all(1, stream.logits_header(m.file.id, m.hparams.n_vocab))
    stream.write_all(1, next(answer).pack())  # before the first id, which may be chosen from it
    reader = stream.TokenReader(0, m.file, m.hparams.n_vocab)
    for record in answer:
        if record.kind != b"E" and not reader.end_is_here():
            stream.write_all(1, record.pack())
    record.flags |= stream.END_FLAGS.get(reader.reason, 0)
    m.file.check_unchanged()
    if out:
        cache.seal(out)
    stream.end_quietly(1, record.pack())
    if reader.reason is None:
        reader.drain()
    if verbose:
        pos = record.pos - bool(record.flags & stream.FULL)
        cli.report(tokens=pos - n_begin, pos=pos, ms=1e3 * (time.monotonic() - began))
