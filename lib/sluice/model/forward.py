"""The operations of a forward pass, as the architectures write them: one kernel call a line,
buffers kept between calls.
"""

from __future__ import annotations

import mmap

from ..kernels import ffi, lib
from ..system import huge_pages

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from .interfaces import Cache


_LARGE = 1 << 20  # bytes
_small = ffi.new_allocator(should_clear_after_alloc=False)


def _new(kind, n):
    """An array of `n` elements, of a type such as "float[]"; large ones in huge pages where the
    kernel gives them: kernels walk them in rows that are pages apart.
    """
    size = n * ffi.sizeof(kind[:-2])
    if size < _LARGE:
        return _small(kind, n)
    # private: shared memory has no huge pages where Linux is as it comes, and a forked child would
    # write into ours
    try:
        memory = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError:
        raise MemoryError from None
    huge_pages.ask(memory)
    return ffi.from_buffer(kind, memory)


_KINDS = {
    name: getattr(lib, "CALL_" + name.upper())
    for name in (
        "embed",
        "quantize_q8",
        "quantize_q8_k",
        "split_bf16",
        "matmuls",
        "rmsnorm",
        "rope",
        "cache_store",
        "attention",
        "silu_mul",
        "gelu_mul",
        "add",
        "add_bias",
    )
}
_PAIRS = "silu_mul", "gelu_mul", "add"


def _operations(calls):
    """An operation[] for lib.replay of `calls`, (name, arguments) each; it lives no longer than
    what they point to.
    """
    operations = ffi.new("operation[]", len(calls))
    for operation, (name, args) in zip(operations, calls):
        operation.kind = _KINDS[name]
        setattr(operation, "pair" if name in _PAIRS else name, args)
    return operations


class Rows:
    """Activations: `p` f32 [n_tok, n]."""

    __slots__ = ("p", "n")

    def __init__(self, p: Any, n: int) -> None:
        self.p, self.n = p, n


class Forward:
    """One chunk of `n_tok` tokens at positions pos, pos + 1, ... over a cache (a
    snapshot.Snapshot).

    Buffers belong to the Forward that runs many chunks: `start` begins the next one.
    """

    def __init__(self, hparams: Any, cache: Cache) -> None:
        self.h, self.cache, self.n_tok = hparams, cache, 0
        self._buffers: dict[str, Any] = {}
        # whose forms are held; block -> (q, d, s, sums), and terms, of lib.matmuls
        self._packed: Rows | None = None
        self._int8: dict[int, tuple] = {}
        self._terms: Any = None
        self._planes: list[tuple[Any, Any]] = []  # (k, v) of each layer, uint8_t *
        # what pointers into buffers for `n_tok` tokens make: the same for one token after the other
        self._held: dict[Any, tuple] = {}
        # (name, arguments) of each, while `through` writes them down
        self._calls: list[tuple[str, tuple]] | None = None

    def start(
        self, tokens: list[int], pos: int, ropes: Mapping[str, tuple[Any, float]], n_last: int
    ) -> None:
        """Begin a chunk: `tokens` a list of ints; `ropes` {name: (f64 frequencies [n_rot/2],
        scale)}, their angles are made here; the hidden states after the last `n_last` tokens are
        asked for.
        """
        self._take(len(tokens))
        self.pos, self.n_last, c = pos, n_last, self.cache
        # a snapshot that was sealed is mapped elsewhere
        if not self._planes or self._planes[0][0] != c.k(0):
            self._planes = [
                (ffi.cast("uint8_t *", c.k(i)), ffi.cast("uint8_t *", c.v(i)))
                for i in range(self.h.n_layer)
            ]
            self._forget()
        self._tokens = self._buffer("int32_t[]", "ids", len(tokens))
        self._tokens[0 : len(tokens)] = tokens
        self._packed = None
        self._angles = {}
        for name, (freq, scale) in ropes.items():
            cs = self._buffer("float[]", "angles " + name, self.n_tok * self.h.n_rot)
            lib.rope_angles(cs, freq, pos, self.n_tok, self.h.n_rot // 2, scale)
            self._angles[name] = cs

    def through(self, m: Any, layers: Callable[[], Rows]) -> Rows:
        """What `layers` returns, a function of no arguments that calls the operations below with
        the weights of `m`, a Model.

        Of one id after the other it is called for the first alone: the same kernels then meet the
        same buffers again, so that their calls are written down and made again by lib.replay. Each
        group of products then knows which comes after it, too.
        """
        if self.n_tok > 1:
            return layers()
        self._scores()  # may be larger than for the id before
        key = m, lib.threads_count()  # more threads need more room
        if key in self._held:
            operations, _, x = self._held[key]
            lib.replay(operations, len(operations), self.pos)
            return x
        calls: list[tuple[str, tuple]] = []
        self._calls = calls
        try:
            x = layers()
            is_whole = self._calls is calls  # no buffer was replaced meanwhile
        finally:
            self._calls = None
        if is_whole:
            groups = [args for name, args in calls if name == "matmuls"]
            for (group, _), (then, n_then) in zip(groups, groups[1:]):
                group[0].then, group[0].n_then = then, n_then
            self._held[key] = _operations(calls), calls, x
        return x

    def _do(self, name, *args):
        """lib.name(*args), written down where `through` asks for it."""
        getattr(lib, name)(*args)
        self._note(name, *args)

    def _note(self, name, *args):
        if self._calls is not None:
            self._calls.append((name, args))

    def _take(self, n_tok):
        if n_tok != self.n_tok:
            self.n_tok = n_tok
            self._forget()

    def _forget(self):
        self._held.clear()
        self._calls = None

    def _buffer(self, kind, name, n):
        held = self._buffers.get(name)
        if held is None or len(held) < n:
            held = self._buffers[name] = _new(kind, n)
            self._forget()
        return held

    def held_bytes(self) -> int:
        """Bytes of the buffers: those of the longest chunk so far."""
        return sum(map(ffi.sizeof, self._buffers.values()))

    def _rows(self, name, n):
        return Rows(self._buffer("float[]", name, self.n_tok * n), n)

    def embed(self, w: Any, scale: float = 1.0) -> Rows:
        """x = scale * the rows of `w` that the tokens name."""
        x = self._rows("x", w.n_in)
        self._do("embed", x.p, w.type, w.p, self._tokens, self.n_tok, w.n_in, scale)
        return x

    def rmsnorm(self, x: Rows, w: Any, name: str = "norm") -> Rows:
        """RMS norm of each row into another buffer."""
        y = self._rows(name, x.n)
        self._do("rmsnorm", y.p, x.p, w, self.n_tok, x.n, self.h.eps)
        return y

    def rmsnorm_heads(self, x: Rows, w: Any) -> None:
        """RMS norm of each head of `x`, in place."""
        self._do(
            "rmsnorm",
            x.p,
            x.p,
            w,
            self.n_tok * (x.n // self.h.head_dim),
            self.h.head_dim,
            self.h.eps,
        )

    def linear(self, x: Rows, w: Any, tokens: Any = None) -> Rows:
        """x w^T, or only the outputs that `tokens` (an int32_t[]) names."""
        if tokens is None:
            return self.linears(x, w)[0]
        y = self._rows(w.name, len(tokens))
        self._do("matmuls", ffi.new("product[]", [self._product(x, w, y, tokens)]), 1)
        return y

    def linears(self, x: Rows, *ws: Any) -> list[Rows]:
        """x w^T for each of `ws`: a group of products, for which the threads wait once."""
        for w in ws:
            self._packed_for(x, w), self._terms_for(x, w)
        group = self._held.get(ws)
        if group is None or group[0] != x.p:
            ys = [self._rows(w.name, w.n_out) for w in ws]
            group = self._held[ws] = (
                x.p,
                ys,
                ffi.new("product[]", [self._product(x, w, y) for y, w in zip(ys, ws)]),
            )
        self._do("matmuls", group[2], len(ws))
        return [Rows(y.p, y.n) for y in group[1]]

    def _product(self, x, w, y, tokens=ffi.NULL):
        return (
            y.p,
            w.p,
            tokens,
            x.p,
            *self._packed_for(x, w),
            w.type,
            self.n_tok,
            y.n,
            x.n,
            self._terms_for(x, w),
        )

    def _hold(self, x):
        if self._packed is not x:
            self._packed, self._int8, self._terms = x, {1: (ffi.NULL,) * 4}, None

    def _terms_for(self, x, w):
        """`x` as sums of bf16 if `w` takes them, made once for all products of `x`; else NULL."""
        if not w.in_terms:
            return ffi.NULL
        self._hold(x)
        if self._terms is None:
            # asked anew: more threads need more
            self._terms = self._buffer("uint16_t[]", "terms", lib.terms_size(self.n_tok, x.n))
            self._do("split_bf16", self._terms, x.p, self.n_tok, x.n)
        return self._terms

    def _packed_for(self, x, w):
        """`x` in int8 by blocks as `w` has them, 32 or 256 (1: none is needed): (q, d, s, sums) of
        lib.matmul, made once for all products of `x`.
        """
        self._hold(x)
        block = w.block
        if block not in self._int8:
            self._int8[block] = q, d, s, sums = self._held.get((block, x.n)) or self._int8_buffers(
                block, x.n
            )
            if block == 32:
                self._do("quantize_q8", q, d, s, x.p, self.n_tok, x.n)
            else:
                self._do("quantize_q8_k", q, d, sums, x.p, self.n_tok, x.n)
        return self._int8[block]

    def _int8_buffers(self, block, n_in):
        n = self.n_tok * n_in
        q, d = (
            self._buffer("int8_t[]", f"q {block}", n),
            self._buffer("float[]", f"d {block}", n // block),
        )
        s, sums = (
            (self._buffer("float[]", "s", n // 32), ffi.NULL)
            if block == 32
            else (ffi.NULL, self._buffer("int16_t[]", "sums", n // 16))
        )
        self._held[block, n_in] = q, d, s, sums
        return q, d, s, sums

    def rope(self, x: Rows, name: str, half: bool = False) -> None:
        """Rotate the heads of `x` in place by the angles called `name`."""
        h = self.h
        self._do(
            "rope",
            x.p,
            self._angles[name],
            self.n_tok,
            x.n // h.head_dim,
            h.head_dim,
            h.n_rot // 2,
            half,
        )

    def store(self, layer: int, k: Rows, v: Rows) -> None:
        """Append keys and values to the cache."""
        row_bytes, kind, n = (
            self.cache.layout.row_bytes,
            self.cache.geometry.kv_type,
            self.n_tok * k.n,
        )
        for plane, x in zip(self._planes[layer], (k, v)):
            lib.cache_store(plane + self.pos * row_bytes, kind, x.p, n)
            self._note("cache_store", plane, kind, x.p, n, row_bytes)

    def attention(self, layer: int, q: Rows, window: int = 0) -> Rows:
        """Attention of the queries over the cache, positions 0 to each query's own (the last
        `window` of them if not 0).
        """
        o, h = self._rows("attention", q.n), self.h
        self._do(
            "attention",
            o.p,
            q.p,
            self.cache.geometry.kv_type,
            *self._planes[layer],
            self._scores(),
            self.n_tok,
            self.pos,
            h.n_head,
            h.n_head_kv,
            h.head_dim,
            window,
            h.scale,
            h.attn_cap,
        )
        return o

    def _scores(self):
        """Scratch of attention. Twice as much as before where it grows, as each new buffer ends
        what is written down.
        """
        n = lib.attention_scores(self.n_tok, self.pos, self.h.n_head, self.h.n_head_kv)
        return self._buffer("float[]", "scores", n if self.n_tok > 1 else 1 << (n - 1).bit_length())

    def silu_mul(self, gate: Rows, up: Rows) -> Rows:
        """gate = silu(gate) * up; what was gate is returned."""
        self._do("silu_mul", gate.p, up.p, self.n_tok * up.n)
        return gate

    def gelu_mul(self, gate: Rows, up: Rows) -> Rows:
        """gate = gelu(gate) * up, the tanh form; what was gate is returned."""
        self._do("gelu_mul", gate.p, up.p, self.n_tok * up.n)
        return gate

    def soft_cap(self, x: Rows, cap: float) -> None:
        """x = cap tanh(x / cap)."""
        self._do("soft_cap", x.p, self.n_tok * x.n, cap)

    def add_bias(self, x: Rows, b: Any) -> None:
        """x += b, a vector, in every row."""
        self._do("add_bias", x.p, b, self.n_tok, x.n)

    def add(self, x: Rows, y: Rows) -> None:
        """x += y."""
        self._do("add", x.p, y.p, self.n_tok * x.n)

    def needed(self, layer: int, *rows: Rows) -> Sequence[Rows]:
        """`rows`, of queries and what else the chunk has for each id; after the last block's keys
        and values are stored, those of the last `n_last` tokens alone, and that many is `n_tok`
        from here on: nothing reads the others any more.
        """
        begin = self.n_tok - self.n_last
        if layer < self.h.n_layer - 1 or not begin:
            return rows
        self.pos += begin
        return [self.part(x, begin, self.n_last) for x in rows]

    def part(self, x: Rows, begin: int, n: int) -> Rows:
        """Rows begin ... begin + n - 1 of `x`; `n_tok` is n from here on."""
        self._take(n)
        return Rows(x.p + begin * x.n, x.n)
