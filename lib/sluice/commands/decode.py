"""decode: a model run token by token, tokens to logits."""

import time

from .. import cli, stream
from ..system import files
from ..tokenizer import vocabulary
from ..kernels import ffi
from ..model.model import Model
from ..model.forward import Forward
import click


def parse_rows(context, parameter, value):
    """The option's ids, separated by commas or blanks, as a sorted list of distinct ones; or
    None.
    """
    if value is None:
        return None
    fields = value.replace(",", " ").split()
    if not (fields and all(f.isascii() and f.isdigit() and len(f) <= 7 for f in fields)):
        raise click.BadParameter("not a list of ids such as 5281,1360")
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
def main(snapshot, model, vocab_file, rows, out, arithmetic, threads, verbose):
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
    m = Model(model, threads, arithmetic, vocab_file)
    cache = m.open_snapshot(snapshot)
    if rows and rows[-1] >= m.hparams.n_vocab:
        raise click.UsageError(
            f"--rows: id {rows[-1]} is not below the vocabulary size {m.hparams.n_vocab}"
        )
    eog, f, n_begin = vocabulary.end_ids(m.file), Forward(m.hparams, cache), cache.n_tok
    pos = n_begin  # of the id that comes next
    # a saved cache needs all of them
    picked = ffi.new("int32_t[]", rows) if rows and not out else None
    some = ffi.new("float[]", len(rows)) if picked else None

    def put(prev, values):
        kind, payload = b"L", ffi.buffer(cache.logits, 4 * m.hparams.n_vocab)
        if rows:
            values = values or [cache.logits[i] for i in rows]
            kind, payload = b"C", b"".join(map(stream.CANDIDATE.pack, rows, values))
        stream.write_all(1, stream.record(kind, 0, pos, prev, payload))

    stream.write_all(1, stream.logits_header(m.file.id, m.hparams.n_vocab))
    put(-1, None)
    reader, prev, flags = stream.IdReader(0, m.file, m.hparams.n_vocab), -1, 0
    for id in reader:
        ends = id in eog
        # the end of a text needs no room
        is_full = cache.n_tok == cache.capacity and (out or not ends)
        prev, pos = id, pos + 1
        if is_full:
            flags = stream.FULL
            break
        asked = not (ends or reader.end_is_here())  # for the logits after this id
        if asked or out:
            _, x = m.extend(cache, [id], f=f)
            m.head(f, x, some or cache.logits, picked)
        if ends:
            break
        if asked:
            put(prev, some)
    flags = flags or stream.END_FLAGS.get(reader.reason, 0)
    m.file.check_unchanged()
    if out:
        cache.seal(out)
    stream.end_quietly(1, stream.record(b"E", flags, pos, prev))
    if reader.reason is None:
        reader.drain()
    if verbose:
        pos -= bool(flags & stream.FULL)
        cli.report(ids=pos - n_begin, pos=pos, ms=1e3 * (time.monotonic() - began))
