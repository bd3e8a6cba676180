"""The operations of a forward pass, as model.py writes them: one kernel call a line, buffers kept between calls."""
from .kernels import ffi, lib

_new = ffi.new_allocator(should_clear_after_alloc=False)


class Rows:
    """Activations: `p` f32 [n_tok, n]."""

    __slots__ = ("p", "n")

    def __init__(self, p, n):
        self.p, self.n = p, n


class Forward:
    """One chunk of `n_tok` ids at positions pos, pos + 1, ... over a cache (a snapshot.Snapshot).

    Buffers belong to the Forward that runs many chunks: `start` begins the next one.
    """

    def __init__(self, hparams, cache):
        self.h, self.cache, self._buffers = hparams, cache, {}
        self._packed, self._int8 = None, {}  # whose int8 forms are held; block -> (q, d, s, sums) of lib.matmul

    def start(self, ids, pos, ropes):
        """Begin a chunk: `ids` a list of ints; `ropes` {name: f64 frequencies [n_rot/2]}, their angles are made here."""
        self.n_tok, self.pos = len(ids), pos
        self._ids = ffi.new("int32_t[]", ids)
        self._angles = {}
        for name, freq in ropes.items():
            cs = self._buffer("float[]", "angles " + name, self.n_tok * self.h.n_rot)
            lib.rope_angles(cs, freq, pos, self.n_tok, self.h.n_rot // 2)
            self._angles[name] = cs

    def _buffer(self, kind, name, n):
        held = self._buffers.get(name)
        if held is None or len(held) < n:
            held = self._buffers[name] = _new(kind, n)
        return held

    def _rows(self, name, n):
        return Rows(self._buffer("float[]", name, self.n_tok * n), n)

    def embed(self, w, scale=1.0):
        """x = scale * the rows of `w` that the ids name."""
        x = self._rows("x", w.n_in)
        lib.embed(x.p, w.type, w.p, self._ids, self.n_tok, w.n_in, scale)
        return x

    def rmsnorm(self, x, w, name="norm"):
        """RMS norm of each row into another buffer."""
        y = self._rows(name, x.n)
        lib.rmsnorm(y.p, x.p, w, self.n_tok, x.n, self.h.eps)
        return y

    def rmsnorm_heads(self, x, w):
        """RMS norm of each head of `x`, in place."""
        lib.rmsnorm(x.p, x.p, w, self.n_tok * (x.n // self.h.head_dim), self.h.head_dim, self.h.eps)

    def linear(self, x, w, ids=None):
        """x w^T, or only the outputs that `ids` (an int32_t[]) names."""
        n_out = w.n_out if ids is None else len(ids)
        y = self._rows(w.name, n_out)
        lib.matmul(y.p, w.type, w.p, ids or ffi.NULL, x.p, *self._packed_as(x, w.block), self.n_tok, n_out, x.n)
        return y

    def linears(self, x, *ws):
        """x w^T for each of `ws`: a group of products, for which the threads wait once."""
        ys = [self._rows(w.name, w.n_out) for w in ws]
        lib.matmuls(ffi.new("product[]", [(y.p, w.p, ffi.NULL, x.p, *self._packed_as(x, w.block), w.type, self.n_tok, w.n_out, x.n)
                                          for y, w in zip(ys, ws)]), len(ws))
        return ys

    def _packed_as(self, x, block):
        """`x` in int8 by blocks of 32 or 256 (1: none is needed): (q, d, s, sums) of lib.matmul, made once for all products of `x`."""
        if self._packed is not x:
            self._packed, self._int8 = x, {1: (ffi.NULL,) * 4}
        if block not in self._int8:
            n = self.n_tok * x.n
            q, d = self._buffer("int8_t[]", f"q {block}", n), self._buffer("float[]", f"d {block}", n // block)
            s = sums = ffi.NULL
            if block == 32:
                s = self._buffer("float[]", "s", n // block)
                lib.quantize_q8(q, d, s, x.p, self.n_tok, x.n)
            else:
                sums = self._buffer("int16_t[]", "sums", n // 16)
                lib.quantize_q8_k(q, d, sums, x.p, self.n_tok, x.n)
            self._int8[block] = q, d, s, sums
        return self._int8[block]

    def rope(self, x, name, half=False):
        """Rotate the heads of `x` in place by the angles called `name`."""
        h = self.h
        lib.rope(x.p, self._angles[name], self.n_tok, x.n // h.head_dim, h.head_dim, h.n_rot // 2, half)

    def store(self, layer, k, v):
        """Append keys and values to the cache."""
        c = self.cache
        for plane, x in ((c.k(layer), k), (c.v(layer), v)):
            rows = ffi.cast("uint8_t *", plane) + self.pos * c.layout.row_bytes
            lib.cache_store(rows, c.geometry.kv_type, x.p, self.n_tok * x.n)

    def attention(self, layer, q, window=0):
        """Attention of the queries over the cache, positions 0 to each query's own (the last `window` of them if not 0)."""
        h, c = self.h, self.cache
        o = self._rows("attention", q.n)
        n = lib.attention_scores(self.n_tok, self.pos, h.n_head, h.n_head_kv)
        scores = self._buffer("float[]", "scores", n)
        lib.attention(o.p, q.p, c.geometry.kv_type, c.k(layer), c.v(layer), scores, self.n_tok, self.pos, h.n_head, h.n_head_kv,
                      h.head_dim, window, h.scale)
        return o

    def silu_mul(self, gate, up):
        """gate = silu(gate) * up; what was gate is returned."""
        lib.silu_mul(gate.p, up.p, self.n_tok * up.n)
        return gate

    def gelu_mul(self, gate, up):
        """gate = gelu(gate) * up, the tanh form; what was gate is returned."""
        lib.gelu_mul(gate.p, up.p, self.n_tok * up.n)
        return gate

    def add(self, x, y):
        """x += y."""
        lib.add(x.p, y.p, self.n_tok * x.n)

    def last(self, x):
        """The last row of `x` alone: what the head needs. Ends the chunk: `n_tok` is 1 from here on."""
        row = Rows(x.p + (self.n_tok - 1) * x.n, x.n)
        self.n_tok = 1
        return row
