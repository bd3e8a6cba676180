"""prefill: process a prompt's tokens and save the model's state as a snapshot."""

import os
import time
from typing import Any

from .. import cli, faults, stream
from ..system import files
from ..model.model import CHUNK, KV_TYPES, Model
from ..kvcache.snapshot import Snapshot
from ..kvcache import capacity as capacities
from ..limits import MAX_CAPACITY
import click


@cli.command()
@cli.model_option
@cli.vocab_option
@cli.option(
    "-s",
    "--snapshot",
    metavar="FILE",
    group="Prompt",
    help="Start from the snapshot in FILE; the tokens continue its own.",
)
@cli.option("-o", "--out", metavar="FILE", group="Output", help="Write the snapshot to FILE.")
@cli.option(
    "--cache",
    "cache_dir",
    last_wins=True,
    metavar="DIR",
    group="Cache",
    help=(
        "Prefix cache: start from the longest prefix of the tokens in DIR, store the result there"
        " and print its name."
    ),
)
@cli.option(
    "--cache-bytes",
    type=click.IntRange(0),
    metavar="N",
    default=1 << 30,
    show_default="1 GiB",
    group="Cache",
    help="Limit of DIR in bytes; the least recently used snapshots are deleted.",
)
@cli.context_option(
    MAX_CAPACITY,
    "Context size of the snapshot, in tokens.",
    "its tokens and at least 1024 more, at most the model's context",
)
@cli.option(
    "--kv",
    type=click.Choice(list(KV_TYPES)),
    metavar="TYPE",
    group="Cache",
    show_default="that of -s, or f16",
    help=(
        "Type of the KV cache: f32, f16 or q8_0. q8_0 takes about half the memory of f16, is less"
        " precise, and needs a head size that is a multiple of 32."
    ),
)
@cli.option(
    "--chunk",
    aliases=("--batch-size",),
    type=click.IntRange(1, 1 << 16),
    metavar="N",
    default=CHUNK,
    help="Batch size in tokens; affects speed and memory only.",
)
@cli.arithmetic_option
@cli.threads_option
@cli.verbose_option
def main(
    model: str,
    vocab_file: str | None,
    snapshot: str | None,
    out: str | None,
    cache_dir: str | None,
    cache_bytes: int,
    capacity: int | None,
    kv: str | None,
    chunk: int,
    arithmetic: str,
    threads: int | None,
    verbose: bool,
) -> None:
    """Run tokens through a model and save its state.

    SYNOPSIS
      prefill -m MODEL -o FILE [OPTIONS] <tokens
      prefill -m MODEL --cache DIR [OPTIONS] <tokens >name

    DESCRIPTION
      Read a stream of tokens, as tokenize writes it, to its #end. Write a snapshot: the tokens, the
      keys and values of every layer, and the logits after the last token. The file is written
      atomically, with mode 0600, because it contains the text. -o prints nothing; --cache alone
      prints the name of the file.

    EXIT STATUS
      0   success
      64  usage error
      65  invalid, truncated or mismatched input
      66  no such file
      69  unsupported model or arithmetic
      73  cannot create the file
      74  I/O error
      75  out of memory or disk space; retry

    EXAMPLES
      tokenize -m m.gguf <prompt.txt | prefill -m m.gguf -o p.snap

    SEE ALSO
      tokenize, decode, gguf-dump
    """
    if not (out or cache_dir):
        raise click.UsageError("no output for the snapshot; give -o FILE or --cache DIR")
    if out:
        files.check_target(out, model, vocab_file)
    began = time.monotonic()
    m = Model(model, threads, arithmetic, vocab_file)
    base = m.open_snapshot(snapshot) if snapshot else None
    geometry = base.geometry if base and not kv else m.geometry(kv or "f16")
    if snapshot and base and base.geometry != geometry:
        raise faults.data_error(snapshot, f"its KV cache is not of type {kv}; omit --kv")
    limit = capacities.limit(m.hparams.n_ctx, capacity)
    tokens = read_tokens(m, base.tokens[: base.n_tok].tolist() if base else [], limit, capacity)
    rows = capacity or capacities.rows(len(tokens), limit)
    if cache_dir:
        from ..kvcache import prefix_cache

        prefix_cache.prepare(cache_dir)
        known = prefix_cache.find(cache_dir, m.file.id, m.arithmetic, geometry, tokens, cli.say)
        base = known if known and (base is None or known.n_tok > base.n_tok) else base
    n_reused = base.n_tok if base else 0
    if cache_dir and m.hparams.n_state:
        base = store_states(m, base, tokens, geometry, chunk, cache_dir, cache_bytes)
    n_base = base.n_tok if base else 0
    if base and n_base == len(tokens) and base.capacity == rows:
        result = base
    else:
        result = Snapshot.create(
            geometry, rows, m.file.id, m.arithmetic, os.path.dirname(out) if out else cache_dir
        )
        m.fill(result, base, tokens[n_base:], chunk)
    m.file.check_unchanged()
    name = out
    if out:
        result.seal(out)
    if cache_dir:
        known_name = prefix_cache.file_name(m.file.id, m.arithmetic, geometry.kv_type, tokens)
        known_name = os.path.join(cache_dir, known_name)
        stored = (
            known_name if known is result else prefix_cache.store(cache_dir, result, cache_bytes)
        )
        name = out or stored
        if not out:
            stream.write_all(1, os.fsencode(stored) + b"\n")
    if verbose:
        cli.report(
            tokens=len(tokens), reused=n_reused, ms=1e3 * (time.monotonic() - began), out=name
        )


def store_states(
    m: Model,
    base: Snapshot | None,
    tokens: list[int],
    geometry: Any,
    chunk: int,
    cache_dir: str,
    cache_bytes: int,
) -> Snapshot | None:
    """Store snapshots of the first part of `tokens` in `cache_dir`, at lengths at which other
    prompts may go on otherwise; of a model whose states cannot be cut back. Return the last one
    stored, else `base`.
    """
    from ..kvcache import landmarks, prefix_cache
    from ..tokenizer import vocabulary

    for n in landmarks.landmarks(tokens, vocabulary.end_tokens(m.file)):
        n_base = base.n_tok if base else 0
        if n_base < n < len(tokens):
            rows = capacities.rows(n, capacities.limit(m.hparams.n_ctx))
            part = Snapshot.create(geometry, rows, m.file.id, m.arithmetic, cache_dir)
            m.fill(part, base, tokens[n_base:n], chunk)
            prefix_cache.store(cache_dir, part, cache_bytes)
            base = part
    return base


def read_tokens(m: Model, tokens: list[int], limit: int, capacity: int | None) -> list[int]:
    """Append the tokens on stdin to `tokens`, and return these.

    limit: maximum number of all tokens. capacity: the value of --ctx-size, or None.
    Raises DataError if there are more, or none.
    """
    reader = stream.TokenReader(0, m.file, m.hparams.n_vocab)
    for token in reader:
        tokens.append(token)
        if len(tokens) > limit:
            break
    if len(tokens) > limit:
        raise faults.data_error(
            reader.name,
            f"line {reader.n_line}: more than {limit} tokens{capacities.remedy(limit, capacity)}",
        )
    reader.finish()
    if not tokens:
        raise faults.data_error(reader.name, "no tokens")
    return tokens
