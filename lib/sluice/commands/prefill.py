"""prefill - run ids through a model and keep its state as a file."""

import os
import time

from .. import cli, faults, stream
from ..system import files
from ..model.model import CHUNK, KV_TYPES, Model
from ..kvcache.snapshot import Snapshot
from ..kvcache import capacity as rooms
from ..limits import MAX_CAPACITY
import click


@cli.command()
@cli.model_option
@cli.vocab_option
@click.option(
    "-s", "--snapshot", metavar="FILE", help="Snapshot to start from; the ids continue its own."
)
@click.option("-o", "--out", metavar="FILE", help="Write the snapshot here.")
@click.option(
    "--cache",
    "cache_dir",
    metavar="DIR",
    help=(
        "Start from the longest known prefix of the ids in DIR, store the result there and print"
        " its name."
    ),
)
@click.option(
    "--cache-bytes",
    type=click.IntRange(0),
    metavar="N",
    default=1 << 30,
    help="Least recently used snapshots beyond N bytes leave DIR.",
)
@click.option(
    "-c",
    "--capacity",
    type=click.IntRange(1, MAX_CAPACITY),
    metavar="N",
    help=(
        "Rows of the snapshot: ids it can grow to.  [default: 1024 more than it holds, rounded up,"
        " at most the model's context]"
    ),
)
@click.option(
    "--kv",
    type=click.Choice(list(KV_TYPES)),
    help=(
        "Type of the cached keys and values; q8_0 takes 34 bytes where f16 takes 64, rounds more,"
        " and needs heads of a multiple of 32.  [default: that of -s, or f16]"
    ),
)
@click.option(
    "--chunk",
    type=click.IntRange(1, 1 << 16),
    metavar="N",
    default=CHUNK,
    help="Ids taken through the layers at once; changes speed and memory, not a bit of the result.",
)
@cli.arithmetic_option
@cli.threads_option
@cli.verbose_option
def main(
    model,
    vocab_file,
    snapshot,
    out,
    cache_dir,
    cache_bytes,
    capacity,
    kv,
    chunk,
    arithmetic,
    threads,
    verbose,
):
    """Run ids through a model and write its state, a snapshot.

    \b
    Usage: prefill -m MODEL -o FILE <ids
           prefill -m MODEL --cache DIR <ids >name

    Reads a stream of ids (tokenize writes one) to its #end. The snapshot holds the ids, the keys
    and values of every layer, and the logits after the last id. It appears under its name complete
    or not at all, with mode 0600: it contains the text. Prints nothing with -o; with --cache alone
    the file's name.

    \b
    Exit status: 0 done; 64 usage; 65 bad, cut or mismatched input; 66 no such file; 69 unsupported model or arithmetic;
      73 cannot create the file; 74 cannot read or write; 75 out of memory or disk.

    \b
    Example: tokenize -m m.gguf <prompt.txt | prefill -m m.gguf -o p.snap
    See also: tokenize, decode, gguf-dump.
    """
    if not (out or cache_dir):
        raise click.UsageError("give -o FILE or --cache DIR: where to write the snapshot")
    if out:
        files.check_target(out, model, vocab_file)
    began = time.monotonic()
    m = Model(model, threads, arithmetic, vocab_file)
    base = m.open_snapshot(snapshot) if snapshot else None
    geometry = base.geometry if base and not kv else m.geometry(kv or "f16")
    if base and base.geometry != geometry:
        raise faults.bad(snapshot, f"its keys and values are not {kv} (see --kv)")
    limit = rooms.limit(m.hparams.n_ctx, capacity)
    ids = read_ids(m, base.ids[: base.n_tok].tolist() if base else [], limit, capacity)
    rows = capacity or rooms.rows(len(ids), limit)
    if cache_dir:
        from ..kvcache import prefix_cache

        prefix_cache.prepare(cache_dir)
        known = prefix_cache.find(cache_dir, m.file.id, m.arithmetic, geometry, ids, cli.say)
        base = known if known and (base is None or known.n_tok > base.n_tok) else base
    n_base = base.n_tok if base else 0
    is_new = n_base < len(ids) or base.capacity != rows
    result = base
    if is_new:
        result = Snapshot.create(
            geometry, rows, m.file.id, m.arithmetic, os.path.dirname(out) if out else cache_dir
        )
        m.fill(result, base, ids[n_base:], chunk)
    m.file.check_unchanged()
    name = out
    if out:
        result.seal(out)
    if cache_dir:
        known_name = prefix_cache.file_name(m.file.id, m.arithmetic, geometry.kv_type, ids)
        known_name = os.path.join(cache_dir, known_name)
        stored = (
            known_name if known is result else prefix_cache.store(cache_dir, result, cache_bytes)
        )
        name = out or stored
        if not out:
            stream.write_all(1, os.fsencode(stored) + b"\n")
    if verbose:
        cli.report(ids=len(ids), reused=n_base, ms=1e3 * (time.monotonic() - began), out=name)


def read_ids(m, ids, limit, capacity):
    """`ids` and after them those on stdin, at most `limit`: the `capacity` asked for, or else the
    model's context.
    """
    reader = stream.IdReader(0, m.file, m.hparams.n_vocab)
    for id in reader:
        ids.append(id)
        if len(ids) > limit:
            break
    if len(ids) > limit:
        raise faults.bad(
            reader.name,
            f"line {reader.n_line}: more than {limit} ids{rooms.remedy(limit, capacity)}",
        )
    reader.finish()
    if not ids:
        raise faults.bad(reader.name, "no ids: nothing to run")
    return ids
