"""decode - run a model one id at a time: ids to logits."""

import time

from .. import cli, stream
from ..system import files
from ..tokenizer import vocabulary
from ..generate import records
from ..model.model import Model
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
@click.argument("snapshot", metavar="SNAPSHOT")
@cli.model_option
@cli.vocab_option
@click.option(
    "--rows",
    metavar="IDS",
    callback=parse_rows,
    help="Compute only these ids' logits, separated by commas; the records are candidates.",
)
@click.option(
    "-o", "--out", metavar="FILE", help="Save the extended cache as a new snapshot at the end."
)
@cli.arithmetic_option
@cli.threads_option
@cli.huge_pages_option
@cli.verbose_option
def main(snapshot, model, vocab_file, rows, out, arithmetic, threads, huge_pages, verbose):
    """Run a model one id at a time.

    \b
    Usage: decode -m MODEL SNAPSHOT <ids >logits

    Writes one record of logits for SNAPSHOT before reading anything, so that a ring starts by
    itself, then one for each id read, unless #end comes with it: nobody asks what follows. Ends
    with an E record that says why: #end was read, an id ended the text (one of the model's
    end-of-text ids), or the snapshot has no room for the id that was read last. SNAPSHOT is mapped
    copy-on-write and never changes.

    \b
    Exit status: 0 the ids ended with #end, whatever its reason, or the text or the room came to its
      end; 64 usage; 65 bad, cut or mismatched input; 66 no such file;
      69 unsupported model or arithmetic; 73 cannot create FILE; 74 cannot read or write; 75 out of memory or disk.

    \b
    Example: decode -m m.gguf p.snap <ring | sample -t 0 -n 64 | tee ring | tokenize -m m.gguf -d
    See also: prefill, grammar-filter, sample.
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
    decoder = records.Decoder(m, cache, vocabulary.end_ids(m.file), bool(out), rows)
    reader = None

    def given():
        for id in reader:
            yield id, not reader.end_is_here()

    answer = decoder.records(given())
    stream.write_all(1, stream.logits_header(m.file.id, m.hparams.n_vocab))
    stream.write_all(1, next(answer).pack())  # before the first id, which may be chosen from it
    reader = stream.IdReader(0, m.file, m.hparams.n_vocab)
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
        cli.report(ids=pos - n_begin, pos=pos, ms=1e3 * (time.monotonic() - began))
