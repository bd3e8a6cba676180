"""Batched forward passes: many short sequences over one KV cache, with the bits of single runs.

A part is some tokens at consecutive positions. Parts are run in the order given, as if one came
after the other: a part writes its keys and values into the cache at its own position, over whatever
an earlier part left there, and sees the rows below. So texts behind one prompt are parts that all
begin behind the prompt, and a tree of continuations is its nodes, depth first, a token each.

Parts may also have planes of their own: then they are of several caches, and texts that have
nothing in common go through the layers together.

Matrix products take the rows of all parts at once; keys and values are stored, and attention is
computed, part by part in each block. So are blocks with a state; branches.py has the states of
parts that branch off. No result depends on what else a pass holds, because every operation computes
a row the same way whatever the number of rows.
"""

from __future__ import annotations

from ..kernels import ffi, lib
from .branches import Branches
from .forward import Forward, Rows
from .model import CHUNK, Model

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import Any

    from .interfaces import Cache


class Part:
    """`tokens` (a list, not empty) at positions pos, pos + 1, ...; `key`: the caller's, None where
    nobody asks for the hidden state after the last token. planes: (keys, values) of each layer,
    uint8_t *, of a cache of the same geometry, or None: the pass's own. branches: positions of
    later parts whose states are copied (branches.py); such parts have no planes.
    """

    __slots__ = ("pos", "tokens", "key", "planes", "branches")

    def __init__(
        self,
        pos: int,
        tokens: list[int],
        key: Any = None,
        planes: Any = None,
        branches: tuple[int, ...] = (),
    ) -> None:
        self.pos, self.tokens, self.key, self.planes = pos, tokens, key, planes
        self.branches = branches


class Packed(Forward):
    """One pass of a list of Parts. Buffers stay from pass to pass, as a Forward's do.

    all_rows: the hidden states of all tokens are needed, not only those of the parts' last ones.
    """

    def __init__(self, hparams: Any, cache: Cache, all_rows: bool = False) -> None:
        super().__init__(hparams, cache)
        self._all_rows = all_rows
        self._parts: Sequence[Part] = ()
        self._is_last_block = False
        self._pending: tuple[Rows, Rows] | None = None
        self._kept: dict[int, tuple[Rows, Rows]] = {}
        self.branches = (
            Branches(cache, hparams.n_state, hparams.state_floats) if hparams.n_state else None
        )

    def start_parts(self, parts: Sequence[Part], ropes: Mapping[str, tuple[Any, float]]) -> None:
        """Begin a pass of `parts`. ropes: as in `start`."""
        tokens = [token for part in parts for token in part.tokens]
        self._parts, self._is_last_block = parts, False
        self.start(tokens, 0, {}, len(tokens))
        if self.branches:
            self.branches.start(parts)
        for name, (freq, scale) in ropes.items():
            n_pair = len(freq)
            cs = self._buffer("float[]", "angles " + name, self.n_tok * 2 * n_pair)
            at = 0
            for part in parts:
                n = len(part.tokens)
                lib.rope_angles(cs + at * 2 * n_pair, freq, part.pos, n, n_pair, scale)
                at += n
            self._angles[name] = cs, n_pair
        if self.h.sharpening:
            at = 0
            for part in parts:
                self._sharpen_from(at, part.pos, len(part.tokens))
                at += len(part.tokens)

    def run(self, m: Any, layers: Callable[[], Rows]) -> Rows:
        """What `layers` returns; nothing is written down, as no two passes are alike."""
        return layers()

    def store(self, layer: int, k: Rows, v: Rows) -> None:
        """Keep keys and values for `attention`, which stores them part by part.

        Those that later blocks use, too, are copied, and so are the rows of the cache that
        `attention` writes over: later blocks begin with them again.
        """
        self._pending = k, v
        source = self.h.kv_layers[layer]
        if source in self.h.kv_layers[layer + 1 :]:
            self._kept[source] = self._copy(k, f"keys {source}"), self._copy(v, f"values {source}")
            for before, now in self._written(source):
                ffi.memmove(before, now, len(before))

    def _copy(self, x, name):
        y = self._rows(name, x.n)
        ffi.memmove(y.p, x.p, 4 * self.n_tok * x.n)
        return y

    def _written(self, layer):
        """(a buffer, the rows of the cache) for the keys and values of all positions of parts; none
        if the parts have planes of their own, where no part writes over another's rows.
        """
        if self._parts[0].planes:
            return []
        begin = min(part.pos for part in self._parts)
        end = max(part.pos + len(part.tokens) for part in self._parts)
        row_bytes = self.cache.layout.rows[layer]
        n_bytes = (end - begin) * row_bytes
        out = []
        for name, plane in zip("kv", self._planes[layer]):
            buffer = self._buffer("uint8_t[]", f"before {name} {layer}", n_bytes)
            out.append((ffi.buffer(buffer, n_bytes), plane + begin * row_bytes))
        return out

    def needed(self, layer: int, *rows: Rows) -> Sequence[Rows]:
        """`rows`; after the keys and values of the last block that has some are made, those of the
        parts' last tokens alone.
        """
        if layer < self.h.last_stored or self._all_rows:
            return rows
        self._is_last_block = True
        n = len(self._parts)
        if n == self.n_tok:
            return rows
        out = [Rows(self._buffer("float[]", f"last {i}", n * x.n), x.n) for i, x in enumerate(rows)]
        cut = {
            name: self._buffer("float[]", f"last angles {name}", 2 * n * n_pair)
            for name, (_, n_pair) in self._angles.items()
        }
        at = 0
        for i, part in enumerate(self._parts):
            at += len(part.tokens)
            for x, y in zip(rows, out):
                ffi.memmove(y.p + i * x.n, x.p + (at - 1) * x.n, 4 * x.n)
            for name, (cs, n_pair) in self._angles.items():
                ffi.memmove(cut[name] + 2 * i * n_pair, cs + 2 * (at - 1) * n_pair, 8 * n_pair)
        self._angles = {name: (cut[name], n_pair) for name, (_, n_pair) in self._angles.items()}
        self._set_length(n)
        return out

    def _change_state(self, layer, at, n_float, change):
        self.branches.change(self.h.state_of[layer], at, n_float, change)

    def attention(self, layer: int, q: Rows, window: int = 0) -> Rows:
        """Store keys and values of a part, then attend with its queries, part by part."""
        h, last = self.h, self._is_last_block
        source, block = h.kv_layers[layer], h.block(layer)
        pending = self._pending
        if layer != h.kv_layers.index(source):
            pending = self._kept[source]
            for before, now in self._written(source):
                ffi.memmove(now, before, len(before))
        assert pending is not None
        k, v = pending
        o = self._rows("attention", q.n)
        kind, row_bytes = self.cache.geometry.kv_type, self.cache.layout.rows[source]
        scores = self._scores_of_parts()
        at = 0
        for i, part in enumerate(self._parts):
            n, pos = len(part.tokens), part.pos
            begin = pos * row_bytes
            k_plane, v_plane = (part.planes or self._planes)[source]
            lib.cache_store(k_plane + begin, kind, k.p + at * k.n, n * k.n)
            lib.cache_store(v_plane + begin, kind, v.p + at * v.n, n * v.n)
            # row, number and position of the queries
            row, n_q, pos_q = (i, 1, pos + n - 1) if last else (at, n, pos)
            lib.attention(
                o.p + row * q.n,
                q.p + row * q.n,
                kind,
                k_plane,
                v_plane,
                scores,
                n_q,
                pos_q,
                h.n_head,
                block.n_head_kv,
                block.head_dim,
                window,
                h.scale,
                h.attn_cap,
            )
            at += n
        return o

    def _scores_of_parts(self):
        """Scratch that is enough for the attention of any part in any block."""
        last = self._is_last_block
        n = max(
            lib.attention_scores(
                1 if last else len(p.tokens),
                p.pos + len(p.tokens) - 1 if last else p.pos,
                self.h.n_head,
                n_head_kv,
            )
            for p in self._parts
            for n_head_kv in self._n_head_kv
        )
        return self._buffer("float[]", "scores", n)


def run(
    m: Model, f: Packed, parts: Sequence[Part], chunk: int = CHUNK
) -> Iterator[tuple[Any, Rows]]:
    """Run `parts` over the cache of `f`, in passes of at most `chunk` tokens.

    Yields (key, x) of each part that has a key, in order: x, Rows [1, n_embd], is the hidden state
    after its last token, valid until the next is asked for. The cache's own count of tokens stays;
    rows from the lowest position of a part on are undefined afterwards.
    """
    for cut, x in _run(m, f, parts, chunk):
        for i, part in enumerate(cut):
            if part.key is not None:
                yield part.key, f.part(x, i, 1)


def run_all(
    m: Model, f: Packed, parts: Sequence[Part], chunk: int = CHUNK
) -> Iterator[tuple[Any, Rows, int]]:
    """`run` with an `f` of all_rows, for the hidden states of all tokens.

    Yields (key, x, n), in order: x, Rows [n, n_embd], valid until the next is asked for. A part
    that takes several passes comes in as many pieces, of which the last has its key, the others
    None.
    """
    for cut, x in _run(m, f, parts, chunk):
        at = 0
        for part in cut:
            n = len(part.tokens)
            yield part.key, Rows(x.p + at * x.n, x.n), n
            at += n


def _run(m, f, parts, chunk):
    """Yield (Parts, their hidden states) of each pass."""
    if not parts:
        return
    if f.branches:
        parts = f.branches.plan(parts, Part)
    n, chunk = sum(len(part.tokens) for part in parts), m.chunk_for(chunk)
    chunk = -(-n // -(-n // chunk))  # as many passes, but alike
    f.cache.reserve(max(part.pos + len(part.tokens) for part in parts))
    for cut in passes(parts, chunk):
        f.start_parts(cut, m.ropes)
        yield cut, m.layers(f)


def passes(parts: Sequence[Part], chunk: int) -> Iterator[list[Part]]:
    """`parts` in lists of at most `chunk` tokens; a part that does not fit is continued in the
    next.
    """
    cut: list[Part] = []
    n = 0
    for part in parts:
        pos, tokens = part.pos, part.tokens
        while n + len(tokens) > chunk:
            left = chunk - n
            if left:
                cut.append(Part(pos, tokens[:left], None, part.planes, part.branches))
                pos, tokens = pos + left, tokens[left:]
            yield cut
            cut, n = [], 0
        cut.append(Part(pos, tokens, part.key, part.planes, part.branches))
        n += len(tokens)
    if cut:
        yield cut
