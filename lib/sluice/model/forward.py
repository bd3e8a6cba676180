"""Forward pass: the operations that architectures call, one kernel each, with buffers kept between
calls.
"""

from __future__ import annotations

import math
import mmap

from ..kernels import ffi, lib
from ..limits import MAX_HEAD_DIM
from ..system import huge_pages

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from .interfaces import Cache


_LARGE = 1 << 20  # bytes
_small = ffi.new_allocator(should_clear_after_alloc=False)


def _new(kind, n):
    """Return an array of `n` elements of a type such as "float[]".

    Large arrays are in huge pages, if the kernel has them: kernels read them in rows that are
    pages apart.
    """
    size = n * ffi.sizeof(kind[:-2])
    if size < _LARGE:
        return _small(kind, n)
    # private: by default Linux has no huge pages for shared memory, and a forked child would write
    # into the parent's
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
        "scale",
        "scale_each",
        "take_columns",
        "mul",
        "sigmoid_mul",
        "causal_conv",
        "delta_gates",
        "delta_net",
    )
}
_PAIRS = "silu_mul", "gelu_mul", "add", "mul", "sigmoid_mul"


def _operations(calls):
    """Return an operation[] for lib.replay of `calls`, (name, arguments) each; valid while
    their pointers are.
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

    def copy(self) -> Rows:
        """Its first row, in memory of its own."""
        p = _new("float[]", self.n)
        ffi.memmove(p, self.p, 4 * self.n)
        return Rows(p, self.n)


class Forward:
    """One chunk of `n_tok` tokens at positions pos, pos + 1, ... over a cache
    (snapshot.Snapshot or Scratch).

    A Forward runs many chunks and keeps its buffers; `start` begins the next chunk.
    """

    def __init__(self, hparams: Any, cache: Cache) -> None:
        self.h, self.cache, self.n_tok = hparams, cache, 0
        self._n_head_kv: set[int] = set()  # of all blocks; when a chunk is begun
        self._buffers: dict[str, Any] = {}
        # activations whose forms are cached; block -> (q, d, s, sums), and terms, of lib.matmuls
        self._packed: Rows | None = None
        self._int8: dict[int, tuple] = {}
        self._terms: Any = None
        self._planes: list[tuple[Any, Any]] = []  # (k, v) of each layer, uint8_t *
        self._states: list[Any] = []  # float *
        # C structs with pointers into buffers for `n_tok` tokens: the same for each single token
        self._cached: dict[Any, tuple] = {}
        # (name, arguments) of each call, while `run` logs them
        self._calls: list[tuple[str, tuple]] | None = None

    def start(
        self, tokens: list[int], pos: int, ropes: Mapping[str, tuple[Any, float]], n_last: int
    ) -> None:
        """Begin a chunk.

        tokens: list of int. pos: position of the first. ropes: {name: (f64 frequencies
        [pairs], scale)}, whose angles are computed here. n_last: number of last tokens
        whose hidden states are needed.
        """
        self._set_length(len(tokens))
        self.pos, self.n_last, c = pos, n_last, self.cache
        # sealing a snapshot maps it at another address
        if not self._planes or self._planes[0][0] != c.k(0):
            self._n_head_kv = {self.h.block(i).n_head_kv for i in range(self.h.n_layer)} - {0}
            self._planes = [
                (ffi.cast("uint8_t *", c.k(i)), ffi.cast("uint8_t *", c.v(i)))
                for i in range(self.h.n_kv)
            ]
            self._states = [c.state(i) for i in range(self.h.n_state)]
            self._forget()
        self._tokens = self._buffer("int32_t[]", "tokens", len(tokens))
        self._tokens[0 : len(tokens)] = tokens
        self._packed = None
        self._angles: dict[str, tuple[Any, int]] = {}  # of each RoPE: angles, pairs
        for name, (freq, scale) in ropes.items():
            n_pair = len(freq)
            cs = self._buffer("float[]", "angles " + name, self.n_tok * 2 * n_pair)
            lib.rope_angles(cs, freq, pos, self.n_tok, n_pair, scale)
            self._angles[name] = cs, n_pair
        if self.h.sharpening:
            self._sharpen_from(0, pos, self.n_tok)

    def _sharpen_from(self, at, pos, n):
        """Factors of the queries of `n` tokens from position `pos` on, for sharpen; `at`: the
        first one's row in the chunk.
        """
        beta, n_ctx = self.h.sharpening
        buffer = self._buffer("float[]", "sharpening", self.n_tok)
        for i in range(n):
            buffer[at + i] = 1.0 + beta * lib.sluice_log(1.0 + (pos + i) // n_ctx)

    def run(self, m: Any, layers: Callable[[], Rows]) -> Rows:
        """Return layers(), a function that calls the operations below with the weights of
        `m`, a Model.

        For single tokens in sequence it is called for the first one only. The same kernels
        then use the same buffers for each token, so their calls are logged and replayed by
        lib.replay. This also tells each group of matrix products which group comes next.
        """
        if self.n_tok > 1:
            return layers()
        self._scores()  # may be larger than for the token before
        key = m, lib.threads_count()  # more threads need more workspace
        if key in self._cached:
            operations, _, x = self._cached[key]
            lib.replay(operations, len(operations), self.pos)
            return x
        calls: list[tuple[str, tuple]] = []
        self._calls = calls
        try:
            x = layers()
            is_unchanged = self._calls is calls  # no buffer was replaced meanwhile
        finally:
            self._calls = None
        if is_unchanged:
            groups = [args for name, args in calls if name == "matmuls"]
            for (group, _), (then, n_then) in zip(groups, groups[1:]):
                group[0].then, group[0].n_then = then, n_then
            self._cached[key] = _operations(calls), calls, x
        return x

    def _do(self, name, *args):
        """Call lib.name(*args), and log the call for `run`."""
        getattr(lib, name)(*args)
        self._log_call(name, *args)

    def _log_call(self, name, *args):
        if self._calls is not None:
            self._calls.append((name, args))

    def _set_length(self, n_tok):
        if n_tok != self.n_tok:
            self.n_tok = n_tok
            self._forget()

    def _forget(self):
        self._cached.clear()
        self._calls = None

    def _buffer(self, kind, name, n):
        buffer = self._buffers.get(name)
        if buffer is None or len(buffer) < n:
            buffer = self._buffers[name] = _new(kind, n)
            self._forget()
        return buffer

    def buffer_bytes(self) -> int:
        """Return the bytes of the buffers: those of the longest chunk so far."""
        return sum(map(ffi.sizeof, self._buffers.values()))

    def _rows(self, name, n):
        return Rows(self._buffer("float[]", name, self.n_tok * n), n)

    def embed(self, w: Any, scale: float = 1.0, name: str = "x") -> Rows:
        """Return scale * the rows of `w` of the chunk's tokens."""
        x = self._rows(name, w.n_in)
        self._do("embed", x.p, w.type, w.p, self._tokens, self.n_tok, w.n_in, scale)
        return x

    def rmsnorm(self, x: Rows, w: Any, name: str = "norm") -> Rows:
        """Return the RMS norm of each row, in another buffer."""
        y = self._rows(name, x.n)
        self._do("rmsnorm", y.p, x.p, w, self.n_tok, x.n, self.h.eps)
        return y

    def rmsnorm_heads(self, x: Rows, w: Any, head_dim: int = 0) -> None:
        """RMS norm of each head of `x`, in place; w: None for no gain. head_dim: 0 for that of
        all blocks.
        """
        n = head_dim or self.h.head_dim
        if w is None:
            w = self._ones()
        self._do("rmsnorm", x.p, x.p, w, self.n_tok * (x.n // n), n, self.h.eps)

    def unit_heads(self, x: Rows, head_dim: int, eps: float, factor: float = 1.0) -> None:
        """x = factor x / sqrt(|x|^2 + eps) in each head of `x`, in place."""
        name = f"gain {head_dim} {factor}"
        if name not in self._buffers:
            gain = factor / math.sqrt(head_dim)  # of the RMS norm, which divides by the mean
            self._buffer("float[]", name, head_dim)[0:head_dim] = [gain] * head_dim
        n_row = self.n_tok * (x.n // head_dim)
        self._do("rmsnorm", x.p, x.p, self._buffers[name], n_row, head_dim, eps / head_dim)

    def _ones(self):
        """Return a gain of 1, f32 [MAX_HEAD_DIM]."""
        if "ones" not in self._buffers:
            self._buffer("float[]", "ones", MAX_HEAD_DIM)[0:MAX_HEAD_DIM] = [1.0] * MAX_HEAD_DIM
        return self._buffers["ones"]

    def columns(self, x: Rows, begin: int, n: int, name: str, n_part: int = 1) -> Rows:
        """Return elements begin ... begin + n - 1 of each row, or of each of `n_part` equal parts
        of a row, in another buffer.
        """
        y = self._rows(name, n * n_part)
        self._do("take_columns", y.p, x.p + begin, self.n_tok * n_part, n, x.n // n_part)
        return y

    def linear(self, x: Rows, w: Any, tokens: Any = None) -> Rows:
        """Return x w^T, or only the outputs `tokens` (an int32_t[])."""
        if tokens is None:
            return self.linears(x, w)[0]
        y = self._rows(w.name, len(tokens))
        self._do("matmuls", ffi.new("product[]", [self._product(x, w, y, tokens)]), 1)
        return y

    def linears(self, x: Rows, *ws: Any) -> list[Rows]:
        """Return x w^T for each of `ws`: a group of matrix products with one barrier for
        the threads.
        """
        for w in ws:
            self._packed_for(x, w), self._terms_for(x, w)
        group = self._cached.get(ws)
        if group is None or group[0] != x.p:
            ys = [self._rows(w.name, w.n_out) for w in ws]
            group = self._cached[ws] = (
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

    def _cache_forms(self, x):
        if self._packed is not x:
            self._packed, self._int8, self._terms = x, {1: (ffi.NULL,) * 4}, None

    def _terms_for(self, x, w):
        """Return `x` as sums of bf16 if `w` needs them, computed once for all products of
        `x`; else NULL.
        """
        if not w.in_terms:
            return ffi.NULL
        self._cache_forms(x)
        if self._terms is None:
            # the size is computed each time: more threads need more
            self._terms = self._buffer("uint16_t[]", "terms", lib.terms_size(self.n_tok, x.n))
            self._do("split_bf16", self._terms, x.p, self.n_tok, x.n)
        return self._terms

    def _packed_for(self, x, w):
        """Return `x` in int8, in blocks of `w`'s size, 32 or 256 (1: not needed): (q, d, s,
        sums) of lib.matmul, computed once for all products of `x`.
        """
        self._cache_forms(x)
        block = w.block
        if block not in self._int8:
            self._int8[block] = q, d, s, sums = self._cached.get(
                (block, x.n)
            ) or self._int8_buffers(block, x.n)
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
        self._cached[block, n_in] = q, d, s, sums
        return q, d, s, sums

    def rope(self, x: Rows, name: str, half: bool = False, head_dim: int = 0) -> None:
        """Rotate the heads of `x` in place by the angles called `name`. head_dim: 0 for that of
        all blocks.
        """
        angles, n_pair = self._angles[name]
        n = head_dim or self.h.head_dim
        self._do("rope", x.p, angles, self.n_tok, x.n // n, n, n_pair, half)

    def store(self, layer: int, k: Rows, v: Rows) -> None:
        """Append keys and values to the cache."""
        i = self.h.kv_layers[layer]
        row_bytes, kind, n = (
            self.cache.layout.rows[i],
            self.cache.geometry.kv_type,
            self.n_tok * k.n,
        )
        for plane, x in zip(self._planes[i], (k, v)):
            lib.cache_store(plane + self.pos * row_bytes, kind, x.p, n)
            self._log_call("cache_store", plane, kind, x.p, n, row_bytes)

    def attention(self, layer: int, q: Rows, window: int = 0) -> Rows:
        """Return the attention of the queries over the cache, each from position 0 to its
        own, or over the last `window` of these positions if not 0.
        """
        o, h = self._rows("attention", q.n), self.h
        block = h.block(layer)
        self._do(
            "attention",
            o.p,
            q.p,
            self.cache.geometry.kv_type,
            *self._planes[h.kv_layers[layer]],
            self._scores(),
            self.n_tok,
            self.pos,
            h.n_head,
            block.n_head_kv,
            block.head_dim,
            window,
            h.scale,
            h.attn_cap,
        )
        return o

    def _scores(self):
        """Return the workspace of attention. It doubles when it grows, since each new
        buffer ends the logging of calls.
        """
        n = max(
            lib.attention_scores(self.n_tok, self.pos, self.h.n_head, n_head_kv)
            for n_head_kv in self._n_head_kv
        )
        return self._buffer("float[]", "scores", n if self.n_tok > 1 else 1 << (n - 1).bit_length())

    def silu_mul(self, gate: Rows, up: Rows) -> Rows:
        """gate = silu(gate) * up; returns gate."""
        self._do("silu_mul", gate.p, up.p, self.n_tok * up.n)
        return gate

    def gelu_mul(self, gate: Rows, up: Rows) -> Rows:
        """gate = gelu(gate) * up, the tanh formula; returns gate."""
        self._do("gelu_mul", gate.p, up.p, self.n_tok * up.n)
        return gate

    def sigmoid_mul(self, x: Rows, gate: Rows) -> Rows:
        """x = x * sigmoid(gate); returns x."""
        self._do("sigmoid_mul", x.p, gate.p, self.n_tok * gate.n)
        return x

    def mul(self, x: Rows, y: Rows) -> Rows:
        """x = x * y; returns x."""
        self._do("mul", x.p, y.p, self.n_tok * x.n)
        return x

    def causal_conv(
        self,
        layer: int,
        x: Rows,
        w: Any,
        n_tap: int,
        columns: tuple[int, int] | None = None,
        at: int = 0,
        silu: bool = False,
        name: str = "convolution",
    ) -> Rows:
        """Return the convolution of each column with its own taps over the tokens up to each.

        w: const float * [n, n_tap], of these columns. columns: (first, n) of `x`, None: all. at:
        where in the state of the block the tokens before are, n_tap - 1 rows of n. silu: SiLU of
        the result.
        """
        first, n = columns or (0, x.n)
        y = self._rows(name, n)

        def convolve(state, begin, n_tok):
            self._do(
                "causal_conv",
                y.p + begin * n,
                x.p + begin * x.n + first,
                w,
                state,
                n_tok,
                n,
                x.n,
                n_tap,
                silu,
            )

        self._change_state(layer, at, (n_tap - 1) * n, convolve)
        return y

    def delta_gates(self, x: Rows, beta: Rows, a: Any, dt: Any) -> Rows:
        """Return decays exp(a softplus(x + dt)), and beta = sigmoid(beta) in place.

        a, dt: const float * [n].
        """
        y = self._rows("decay", x.n)
        self._do("delta_gates", y.p, beta.p, x.p, a, dt, self.n_tok, x.n)
        return y

    def delta_net(
        self, layer: int, q: Rows, k: Rows, v: Rows, decay: Rows, beta: Rows, at: int
    ) -> Rows:
        """Return S^T q after each token's change of the state S (lib.delta_net).

        at: where in the state of the block S is.
        """
        o, n_head = self._rows("delta net", v.n), decay.n
        dim = v.n // n_head
        n_head_k = k.n // dim

        def change(state, begin, n_tok):
            rows = (x.p + begin * x.n for x in (o, q, k, v, decay, beta))
            self._do("delta_net", *rows, state, n_tok, n_head_k, n_head, dim)

        self._change_state(layer, at, n_head * dim * dim, change)
        return o

    def _change_state(self, layer, at, n_float, change):
        """Call change(state, begin, n): an operation on n rows of the chunk from `begin` on, in
        their order; state: float * to `n_float` floats of the block's state from `at` on.
        """
        change(self._states[self.h.state_of[layer]] + at, 0, self.n_tok)

    def soft_cap(self, x: Rows, cap: float) -> None:
        """x = cap tanh(x / cap)."""
        self._do("soft_cap", x.p, self.n_tok * x.n, cap)

    def add_bias(self, x: Rows, b: Any) -> None:
        """x += b, a vector, in every row."""
        self._do("add_bias", x.p, b, self.n_tok, x.n)

    def scale(self, x: Rows, factor: float) -> None:
        """x *= factor."""
        self._do("scale", x.p, self.n_tok * x.n, factor)

    def sharpen(self, q: Rows) -> None:
        """Multiply the queries of each token by 1 + beta ln(1 + floor(position / n_ctx)), for
        Hparams.sharpening (beta, n_ctx).
        """
        self._do("scale_each", q.p, self._buffers["sharpening"], self.n_tok, q.n)

    def add(self, x: Rows, y: Rows) -> None:
        """x += y."""
        self._do("add", x.p, y.p, self.n_tok * x.n)

    def needed(self, layer: int, *rows: Rows) -> Sequence[Rows]:
        """Return `rows` (queries and other rows, one per token), cut after the last block
        that stores keys and values, or has a state, to the needed tokens.

        After these are stored only the last `n_last` tokens are needed; `n_tok` then becomes
        their number.
        """
        begin = self.n_tok - self.n_last
        if layer < self.h.last_stored or not begin:
            return rows
        self.pos += begin
        self._angles = {
            name: (cs + 2 * begin * n_pair, n_pair) for name, (cs, n_pair) in self._angles.items()
        }
        return [self.part(x, begin, self.n_last) for x in rows]

    def part(self, x: Rows, begin: int, n: int) -> Rows:
        """Return rows begin ... begin + n - 1 of `x`; `n_tok` becomes n."""
        self._set_length(n)
        return Rows(x.p + begin * x.n, x.n)
