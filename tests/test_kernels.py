"""Kernels: every instruction set gives the bits of reference.c, on any shape, and touches nothing beyond its rows."""
import os
import subprocess
import sys

import numpy as np
import pytest
from conftest import sets_here
from gguf import GGMLQuantizationType
from gguf.quants import dequantize
from gguf_writer import BF16, BLOCK_TYPES, F16, F32, Q8_0, random_blocks, set_halves
from sluice.kernels import ffi, lib
from sluice.model import known_sets

NAMES = ["F32", "F16", "BF16", *BLOCK_TYPES]
SETS = sets_here()
POISON = 64  # NaN floats before and behind every buffer


for_each_set = pytest.mark.parametrize("isa", [pytest.param(name, marks=pytest.mark.tiles) if name == "amx" else name
                                               for name in known_sets() if name != "reference"])


def need(isa):
    if isa not in SETS:
        pytest.skip(f"this processor does not have {isa}")


@pytest.fixture(autouse=True)
def best_set():
    yield
    lib.isa_select(b"")


class Buffer:
    """An array of `n` elements between NaN-filled margins (0xff in every byte is NaN in f32 and f16)."""

    def __init__(self, n, dtype=np.float32, values=None):
        self.dtype = np.dtype(dtype)
        self.margin = POISON * 4
        self.bytes = np.full(n * self.dtype.itemsize + 2 * self.margin, 0xFF, np.uint8)
        self.a = self.bytes[self.margin:self.margin + n * self.dtype.itemsize].view(self.dtype)
        if values is not None:
            self.a[:] = np.asarray(values).ravel()

    def p(self, ctype="float *"):
        """A pointer that keeps the array alive as long as it lives itself."""
        return ffi.from_buffer("uint8_t[]" if ctype == "void *" else ctype.replace(" *", "[]"), self.a.view(np.uint8))

    def margins_untouched(self):
        return (self.bytes[:self.margin] == 0xFF).all() and (self.bytes[-self.margin:] == 0xFF).all()


def number_of(name):
    return BLOCK_TYPES[name][0] if name in BLOCK_TYPES else {"F32": F32, "F16": F16, "BF16": BF16}[name]


def block_of(name):
    return BLOCK_TYPES[name][1] if name in BLOCK_TYPES else 1


def weights(rng, name, rows, n):
    """`rows` rows of random weights as GGUF bytes; scales are ordinary numbers, everything else any bits."""
    if name in BLOCK_TYPES:
        return random_blocks(rng, name, rows * n // block_of(name)).tobytes()
    w = rng.normal(size=(rows, n)).astype("<f2" if name == "F16" else "<f4")
    return (w.view("<u4") >> 16).astype("<u2").tobytes() if name == "BF16" else w.tobytes()


def quantised(x, n_tok, n, block):
    """The buffers q, d, s, sums of x by blocks of 32 or 256; None for what the other one has."""
    q, d = Buffer(n_tok * n, np.int8), Buffer(n_tok * n // block)
    s, sums = (Buffer(n_tok * n // 32), None) if block == 32 else (None, Buffer(n_tok * n // 16, np.int16))
    if block == 32:
        lib.quantize_q8(q.p("int8_t *"), d.p(), s.p(), x.p(), n_tok, n)
    else:
        lib.quantize_q8_k(q.p("int8_t *"), d.p(), sums.p("int16_t *"), x.p(), n_tok, n)
    assert all(part.margins_untouched() for part in (q, d, s, sums) if part)
    return q, d, s, sums


def product(name, raw, x, n_tok, rows, n, pick=None):
    w = Buffer(len(raw), np.uint8, np.frombuffer(raw, np.uint8))
    y = Buffer(n_tok * (len(pick) if pick is not None else rows))
    ids = ffi.NULL if pick is None else ffi.new("int32_t[]", list(pick))
    floats, parts = x.p(), [ffi.NULL] * 4
    if name in BLOCK_TYPES:
        held = quantised(x, n_tok, n, block_of(name))
        kinds = ("int8_t *", "float *", "float *", "int16_t *")
        floats, parts = ffi.NULL, [part.p(kind) if part else ffi.NULL for part, kind in zip(held, kinds)]
    lib.matmul(y.p(), number_of(name), w.p("void *"), ids, floats, *parts, n_tok, rows if pick is None else len(pick), n)
    assert y.margins_untouched()
    return y.a.copy()


def shapes_of(name):
    """(n_tok, rows, n) worth a look: no block type takes a row of part of a block."""
    return [(t, r, n * max(block_of(name), 32) // 32) for t, r, n in SHAPES] + ([] if name in BLOCK_TYPES else ODD)


SHAPES = [(1, 1, 32), (1, 7, 64), (2, 8, 96), (3, 9, 32), (4, 17, 1024), (5, 33, 1056), (7, 40, 2080), (64, 24, 160),
          (65, 130, 96), (513, 3, 64), (579, 17, 96)]
ODD = [(1, 1, 1), (1, 5, 3), (2, 4, 15), (3, 7, 17), (2, 9, 172), (70, 6, 31),
       (64, 37, 1100), (261, 35, 1030)]  # more than a panel of floats, and more tokens than meet one


@pytest.mark.parametrize("name", NAMES)
def test_matmul_equals_reference(name):
    rng = np.random.default_rng(1)
    for n_tok, rows, n in shapes_of(name):
        raw, x = weights(rng, name, rows, n), Buffer(n_tok * n, values=rng.normal(size=n_tok * n))
        lib.isa_select(b"reference")
        expected = product(name, raw, x, n_tok, rows, n)
        assert np.isfinite(expected).all()
        for isa in SETS[1:]:
            lib.isa_select(isa.encode())
            assert product(name, raw, x, n_tok, rows, n).tobytes() == expected.tobytes(), (isa, n_tok, rows, n)


def assert_equals_reference(rng, name, isa, n_tok, rows, n):
    raw, x = weights(rng, name, rows, n), Buffer(n_tok * n, values=rng.normal(size=n_tok * n))
    lib.isa_select(b"reference")
    expected = product(name, raw, x, n_tok, rows, n)
    lib.isa_select(isa.encode())
    assert product(name, raw, x, n_tok, rows, n).tobytes() == expected.tobytes(), (n_tok, rows, n)


@for_each_set
@pytest.mark.parametrize("name", NAMES)
def test_matmul_of_random_shapes_equals_reference(name, isa):
    need(isa)
    rng = np.random.default_rng(11)
    for _ in range(40):
        n_tok, rows, n = int(rng.integers(1, 30)), int(rng.integers(1, 80)), int(rng.integers(1, 50))
        n = {1: n * 7, 32: n * 32, 256: (n + 7) // 8 * 256}[block_of(name)]
        assert_equals_reference(rng, name, isa, n_tok, rows, n)


@for_each_set
@pytest.mark.parametrize("name", BLOCK_TYPES)
def test_matmul_longer_than_what_a_cache_holds_equals_reference(name, isa):
    """Rows of more than 2,048 elements and more than 512 tokens are read in parts."""
    need(isa)
    rng = np.random.default_rng(12)
    for n_tok, rows, n in ((8, 33, 4352), (49, 20, 2304), (545, 17, 2304)):
        assert_equals_reference(rng, name, isa, n_tok, rows, n)


@for_each_set
@pytest.mark.parametrize("n_tok", [1, 7, 8, 40])
def test_matmuls_give_what_each_product_gives(n_tok, isa):
    """Products of the same activations, of others, and of other blocks, in one group; the group before had larger ones."""
    need(isa)
    rng, n = np.random.default_rng(13), 512
    xs = [Buffer(n_tok * n, values=rng.normal(size=n_tok * n)) for _ in range(2)]
    wanted = [("Q4_K", 0, 33), ("Q6_K", 0, 5), ("Q8_0", 0, 40), ("F32", 1, 3), ("Q8_0", 1, 64), ("Q4_K", 1, 1), ("Q4_0", 0, 31)]
    raws = [weights(rng, name, rows, n) for name, _, rows in wanted]
    lib.isa_select(b"reference")
    expected = [product(name, raw, xs[i], n_tok, rows, n) for (name, i, rows), raw in zip(wanted, raws)]
    lib.isa_select(isa.encode())
    product("Q8_0", weights(rng, "Q8_0", 8, 2048), Buffer(70 * 2048, values=rng.normal(size=70 * 2048)), 70, 8, 2048)
    held = {(i, block): quantised(xs[i], n_tok, n, block) for i in range(2) for block in (32, 256)}
    kinds = ("int8_t *", "float *", "float *", "int16_t *")
    ws = [Buffer(len(raw), np.uint8, np.frombuffer(raw, np.uint8)) for raw in raws]
    ys = [Buffer(n_tok * rows) for _, _, rows in wanted]
    group = []
    for (name, i, rows), w, y in zip(wanted, ws, ys):
        parts = [part.p(kind) if part else ffi.NULL for part, kind in zip(held[i, block_of(name)], kinds)] if name in BLOCK_TYPES else [ffi.NULL] * 4
        group.append((y.p(), w.p("void *"), ffi.NULL, xs[i].p(), *parts, number_of(name), n_tok, rows, n))
    lib.matmuls(ffi.new("product[]", group), len(group))
    for y, other, what in zip(ys, expected, wanted):
        assert y.margins_untouched() and y.a.tobytes() == other.tobytes(), what


@for_each_set
@pytest.mark.parametrize("name", ["Q8_0", "Q6_K"])
def test_matmuls_of_one_buffer_in_two_shapes(name, isa):
    """Activations [16, 1,024] and, the same memory, [32, 512] and [8, 1,024]."""
    need(isa)
    rng, shapes = np.random.default_rng(14), ((16, 1024), (32, 512), (8, 1024))
    x = Buffer(16 * 1024, values=rng.normal(size=16 * 1024))
    raw = weights(rng, name, 20, 1024)
    lib.isa_select(b"reference")
    expected = [product(name, raw, x, n_tok, 20, n) for n_tok, n in shapes]
    lib.isa_select(isa.encode())
    held, w, ys = quantised(x, 16, 1024, block_of(name)), Buffer(len(raw), np.uint8, np.frombuffer(raw, np.uint8)), [Buffer(n_tok * 20) for n_tok, _ in shapes]
    parts = [part.p(kind) if part else ffi.NULL for part, kind in zip(held, ("int8_t *", "float *", "float *", "int16_t *"))]
    lib.matmuls(ffi.new("product[]", [(y.p(), w.p("void *"), ffi.NULL, ffi.NULL, *parts, number_of(name), n_tok, 20, n) for y, (n_tok, n) in zip(ys, shapes)]), 3)
    for y, other, what in zip(ys, expected, shapes):
        assert y.margins_untouched() and y.a.tobytes() == other.tobytes(), what


@for_each_set
@pytest.mark.parametrize("name", NAMES)
def test_matmul_of_one_token_equals_reference(name, isa):
    """Rows are read one after the other, 8 or 16 before their sums are made, long ones in stretches: fewer rows, tails, picked rows."""
    need(isa)
    rng = np.random.default_rng(13)
    for rows, n in ((1, 256), (3, 768), (5, 512), (15, 2048), (16, 256), (17, 1792), (31, 256), (66, 512), (130, 1024), (21, 8192), (9, 8704), (2, 17152),
                    (1, 32), (9, 352), (18, 2080), (3, 8416)):
        if n % block_of(name):
            continue
        raw, x = weights(rng, name, rows, n), Buffer(n, values=rng.normal(size=n))
        for pick in (None, rng.integers(0, rows, 11)):
            lib.isa_select(b"reference")
            expected = product(name, raw, x, 1, rows, n, pick)
            assert np.isfinite(expected).all()
            lib.isa_select(isa.encode())
            assert product(name, raw, x, 1, rows, n, pick).tobytes() == expected.tobytes(), (rows, n, pick)


@for_each_set
@pytest.mark.parametrize("name", BLOCK_TYPES)
def test_matmul_of_extreme_activations_equals_reference(name, isa):
    """Zero blocks, blocks just above zero, and such that the scale times the sum of a block overflows; weights of all bits."""
    need(isa)
    rng, n_tok, rows, n_block, (_, block, _, halves) = np.random.default_rng(12), 13, 35, 35, BLOCK_TYPES[name]
    n = n_block * block
    raw, x = weights(rng, name, rows, n), rng.normal(size=(n_tok, n_block, block)).astype(np.float32)
    x /= np.abs(x).max(2, keepdims=True)
    x *= np.float32(2) ** rng.choice([-149, -101, -100, -99, 0, 100, 110, 116, 117, 127], (n_tok, n_block, 1))
    x[3, 5:9], x[4] = np.abs(x[3, 5:9]), 0
    x[5, 0], x[6, 30:] = np.float32(3.4e38), np.float32(-3.4e38)  # sums of 127 and of -127 only
    small = np.frombuffer(raw, np.uint8).reshape(rows * n_block, -1).copy()
    set_halves(small, halves[0], rng.choice(np.array([6e-8, 1e-7, -6e-8, 0], "<f2"), rows * n_block))
    for bits in (raw, small.tobytes()):
        out = []
        for set_ in ("reference", isa):
            lib.isa_select(set_.encode())
            with np.errstate(over="ignore"):
                y = product(name, bits, Buffer(x.size, values=x), n_tok, rows, n)
            out.append(np.where(np.isnan(y), np.float32("nan"), y))  # which NaN is nobody's choice
        assert out[0].tobytes() == out[1].tobytes()
    assert len(halves) == 2 or np.isfinite(out[0]).all() and out[0].any()


@for_each_set
@pytest.mark.parametrize("name", [name for name in BLOCK_TYPES if block_of(name) == 256])
@pytest.mark.parametrize("sign", [1, -1])
def test_matmul_of_the_largest_integers_equals_reference(name, isa, sign):
    """Every bit set or none, all activations at the end of their range: nothing may leave int32."""
    need(isa)
    x = Buffer(3 * 512, values=np.full(3 * 512, np.float32(sign)))
    x.a[512:1024:3] *= -1
    for byte in (0x00, 0x77, 0x80, 0xFF):
        blocks = np.full((5 * 2, BLOCK_TYPES[name][2]), byte, np.uint8)
        for at in BLOCK_TYPES[name][3]:
            set_halves(blocks, at, 1)
        out = []
        for set_ in ("reference", isa):
            lib.isa_select(set_.encode())
            out.append(product(name, blocks.tobytes(), x, 3, 5, 512))
            alone = [product(name, blocks.tobytes(), Buffer(512, values=part), 1, 5, 512) for part in x.a.reshape(3, 512)]
            assert np.concatenate(alone).tobytes() == out[0].tobytes()
        assert out[0].tobytes() == out[1].tobytes() and np.isfinite(out[0]).all()
        w = dequantize(blocks, GGMLQuantizationType[name]).reshape(5, 512).astype(np.float64)
        exact = x.a.reshape(3, 512).astype(np.float64) @ w.T
        assert np.allclose(out[0].reshape(3, 5), exact, rtol=1e-5, atol=np.abs(w).max() * 1e-3)


@for_each_set
@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("name, group, most, scales", [("Q4_K", 32, 32767 // 15, slice(4, 16)), ("Q5_K", 32, 32767 // 31, slice(4, 16)),
                                                       ("Q6_K", 16, 32767 // 32, slice(192, 208))])
def test_matmul_where_sums_of_a_group_reach_16_bits_equals_reference(name, group, most, scales, sign, isa):
    """Activations up to which, and from which on, the sum of a group with the largest weights needs more than 16 bits; scales of all bits."""
    need(isa)
    rng, n_tok, rows = np.random.default_rng(15), 6, 33
    for total in (most - 1, most, most + 1, most + group, 127 * group):
        x = np.zeros((n_tok, 512), np.float32)
        x[:, ::256] = 127  # the unit of what is below is 1
        for t, at in enumerate(rng.permutation(256 // group - 1)[:n_tok]):
            first = (at + 1) * group
            x[t, first:first + group] = sign * (total // group + (np.arange(group) < total % group))
        for byte in (0x00, 0xFF):
            blocks = np.full((rows * 2, BLOCK_TYPES[name][2]), byte, np.uint8)
            blocks[:, scales] = rng.integers(0, 256, blocks[:, scales].shape)
            for at in BLOCK_TYPES[name][3]:
                set_halves(blocks, at, 1)
            out = []
            for set_ in ("reference", isa):
                lib.isa_select(set_.encode())
                out.append(product(name, blocks.tobytes(), Buffer(x.size, values=x), n_tok, rows, 512).tobytes())
            assert out[0] == out[1], (total, byte)


@for_each_set
@pytest.mark.parametrize("block", [32, 256])
def test_quantize_of_random_shapes_equals_reference(isa, block):
    need(isa)
    rng = np.random.default_rng(13)
    for _ in range(60):
        n_tok, n = int(rng.integers(1, 9)), block * int(rng.integers(1, 1280 // block))
        x = rng.normal(size=(n_tok, n)).astype(np.float32) * np.float32(2) ** rng.integers(-120, 127)
        x[rng.random(x.shape) < 0.01] = rng.choice(np.array([np.inf, -np.inf, np.nan, 1e-40, 0, -0.0], np.float32))
        out = []
        for set_ in ("reference", isa):
            lib.isa_select(set_.encode())
            out.append([part.a.copy() for part in quantised(Buffer(x.size, values=x), n_tok, n, block) if part])
        for a, b in zip(*out):
            assert (np.isnan(a) == np.isnan(b)).all() and a[~np.isnan(a)].tobytes() == b[~np.isnan(b)].tobytes()


@pytest.mark.parametrize("name", NAMES)
def test_matmul_does_not_depend_on_the_batch_or_the_rows(name):
    rng, rows, n, n_tok = np.random.default_rng(2), 37, 1280 if block_of(name) == 256 else 1088, 11
    raw, x = weights(rng, name, rows, n), Buffer(n_tok * n, values=rng.normal(size=n_tok * n))
    for isa in SETS:
        lib.isa_select(isa.encode())
        whole = product(name, raw, x, n_tok, rows, n).reshape(n_tok, rows)
        for t in range(n_tok):
            alone = product(name, raw, Buffer(n, values=x.a[t * n:(t + 1) * n]), 1, rows, n)
            assert alone.tobytes() == whole[t].tobytes()
        pick = [36, 0, 0, 17, 5]
        assert product(name, raw, x, n_tok, rows, n, pick).tobytes() == whole[:, pick].tobytes()


@pytest.mark.parametrize("name", NAMES)
def test_matmul_is_close_to_numpy(name):
    rng, rows, n, n_tok = np.random.default_rng(3), 16, 512, 3
    raw, x = weights(rng, name, rows, n), Buffer(n_tok * n, values=rng.normal(size=n_tok * n))
    w = dequantize(np.frombuffer(raw, np.uint8).reshape(rows, -1), GGMLQuantizationType[name]).astype(np.float64)
    exact = x.a.reshape(n_tok, n).astype(np.float64) @ w.T
    y = product(name, raw, x, n_tok, rows, n).reshape(n_tok, rows)
    # int8 activations: half a step of max/127 an element, as a random walk over n of them
    scale = np.abs(w).max() * np.sqrt(n)
    assert np.abs(y - exact).max() < scale * (4.0 / 254 if name in BLOCK_TYPES else 1e-5)


@pytest.mark.parametrize("name", BLOCK_TYPES)
def test_reference_is_the_product_of_what_is_stored(name):
    """In f64, with the activations as they were rounded: only the f32 sum over blocks is left as a difference."""
    rng, rows, n, n_tok, block = np.random.default_rng(15), 23, 2048, 5, block_of(name)
    raw, x = weights(rng, name, rows, n), Buffer(n_tok * n, values=rng.normal(size=n_tok * n))
    lib.isa_select(b"reference")
    q, d, *_ = quantised(x, n_tok, n, block)
    rounded = q.a.reshape(n_tok, -1, block).astype(np.float64) * d.a.reshape(n_tok, -1, 1)
    assert (np.abs(rounded - x.a.reshape(rounded.shape)) <= d.a.reshape(n_tok, -1, 1) * 0.5001).all()
    w = dequantize(np.frombuffer(raw, np.uint8).reshape(rows, -1), GGMLQuantizationType[name]).astype(np.float64)
    exact = rounded.reshape(n_tok, n) @ w.T
    y = product(name, raw, x, n_tok, rows, n).reshape(n_tok, rows)
    # a rounding (6e-8) of weights and of each of 64 sums or less, all at most max|w| sum|x|
    assert np.abs(y - exact).max() < 2e-7 * np.abs(w).max() * np.abs(rounded).sum() / n_tok


def test_matmul_of_any_block_bits_stays_in_its_buffers():
    rng = np.random.default_rng(4)
    for name in NAMES:
        n = 96 * max(block_of(name), 32) // 32
        raw = rng.integers(0, 256, lib.type_row_bytes(number_of(name), n) * 9, dtype=np.uint8).tobytes()
        x = Buffer(5 * n, values=rng.normal(size=5 * n))
        for isa in SETS:
            lib.isa_select(isa.encode())
            product(name, raw, x, 5, 9, n)


@pytest.mark.parametrize("block", [32, 256])
def test_quantize_rule(block):
    x = np.zeros((7, block), np.float32)
    x[0] = np.linspace(-1, 1, block)
    x[1, 3] = 1e-35                      # below 2^-100: a zero block
    x[2, 5], x[3, 6], x[4, 7] = np.inf, np.nan, 3e38
    x[5, 0], x[5, 1], x[5, 2] = 127, 0.5, 1.5  # ties to even
    x[6] = -np.float32(2.0) ** -100
    for isa in SETS:
        lib.isa_select(isa.encode())
        q, d, s, sums = quantised(Buffer(x.size, values=x), 7, block, block)
        q, d = q.a.reshape(7, block), d.a
        assert q[0, 0] == -127 and q[0, -1] == 127 and d[0] == np.float32(1) / np.float32(127)
        assert not q[1].any() and d[1] == 0
        assert np.isnan(d[2:4]).all() and not q[2:4].any()
        assert q[4, 7] == 127 and q[5, :3].tolist() == [127, 0, 2]
        assert (q[6] == -127).all()
        if block == 32:
            assert s.a[1] == 0 and np.isnan(s.a[2:4]).all() and s.a[5] == 129
        else:
            assert (sums.a.reshape(7, 16) == q.reshape(7, 16, 16).sum(2)).all() and sums.a.min() == -127 * 16


def both(call):
    """The bytes call() gives under every instruction set; they must agree."""
    out = []
    for isa in SETS:
        lib.isa_select(isa.encode())
        out.append(call().tobytes())
    assert len(set(out)) == 1
    return np.frombuffer(out[0], np.float32)


@pytest.mark.parametrize("n", [1, 5, 16, 31, 64, 172, 1152])
def test_rmsnorm_equals_reference(n):
    rng = np.random.default_rng(n)
    x, w = rng.normal(size=(5, n)).astype(np.float32), rng.normal(size=n).astype(np.float32)

    def call():
        y = Buffer(5 * n)
        lib.rmsnorm(y.p(), Buffer(5 * n, values=x).p(), Buffer(n, values=w).p(), 5, n, 1e-5)
        assert y.margins_untouched()
        return y.a

    exact = x * w / np.sqrt((x.astype(np.float64) ** 2).mean(1, keepdims=True) + 1e-5)
    assert np.allclose(both(call).reshape(5, n), exact, rtol=2e-6)


@pytest.mark.parametrize("half", [0, 1])
def test_rope_equals_reference_and_rotates(half):
    rng, n_tok, n_head, dim, n_pair, pos = np.random.default_rng(5), 7, 3, 24, 10, 1000
    x = rng.normal(size=(n_tok, n_head, dim)).astype(np.float32)
    freq, cs = ffi.new("double[]", n_pair), Buffer(n_tok * n_pair * 2)
    lib.rope_freq(freq, ffi.NULL, n_pair, 10000.0, 1.0)
    lib.rope_angles(cs.p(), freq, pos, n_tok, n_pair, 1.0)

    def call():
        y = Buffer(x.size, values=x)
        lib.rope(y.p(), cs.p(), n_tok, n_head, dim, n_pair, half)
        assert y.margins_untouched()
        return y.a

    angle = (pos + np.arange(n_tok))[:, None, None] * 10000.0 ** (-np.arange(n_pair) / n_pair)
    at = (np.arange(n_pair), np.arange(n_pair) + n_pair) if half else (2 * np.arange(n_pair), 2 * np.arange(n_pair) + 1)
    exact = x.astype(np.float64)
    u, v = exact[..., at[0]].copy(), exact[..., at[1]].copy()
    exact[..., at[0]], exact[..., at[1]] = u * np.cos(angle) - v * np.sin(angle), u * np.sin(angle) + v * np.cos(angle)
    y = both(call).reshape(x.shape)
    assert np.abs(y - exact).max() < 1e-6
    assert (y[..., 20:] == x[..., 20:]).all()


@pytest.mark.parametrize("op,exact", [
    ("silu_mul", lambda x: x / (1 + np.exp(-x))),
    ("gelu_mul", lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x ** 3))))])
def test_gates_equal_reference(op, exact):
    with np.errstate(over="ignore", invalid="ignore"):
        x = np.concatenate([np.linspace(-100, 100, 4001), [0, -0.0, 1e-30, -1e-30, 3e38, -3e38]]).astype(np.float32)
        up = np.linspace(-2, 2, x.size).astype(np.float32)

        def call():
            y = Buffer(x.size, values=x)
            getattr(lib, op)(y.p(), Buffer(x.size, values=up).p(), x.size)
            assert y.margins_untouched()
            return y.a

        want = (exact(x.astype(np.float64)) * up).astype(np.float32)
        assert np.allclose(both(call), np.nan_to_num(want, posinf=np.inf, neginf=-np.inf), rtol=1e-6, atol=2e-7)


def test_soft_cap_equals_reference_and_shows_what_is_not_finite():
    x = np.concatenate([np.linspace(-400, 400, 4001), [0, -0.0, 1e-30, -1e-30, 1e-3, 3e38, -3e38, np.inf, -np.inf, np.nan]]).astype(np.float32)
    for cap in (1e-3, 0.3, 30.0, 50.0, 1e6):
        def call():
            y = Buffer(x.size, values=x)
            lib.soft_cap(y.p(), x.size, cap)
            assert y.margins_untouched()
            return y.a

        found, cap = both(call), float(np.float32(cap))
        want = cap * np.tanh(x.astype(np.float64) / cap)
        assert np.isnan(found[-3:]).all() and np.signbit(found[-9])
        good = np.abs(x.astype(np.float64)) < 1e38 * cap  # beyond, x / cap leaves f32, and the answer is NaN too
        assert np.abs(found[good] / np.where(want[good] == 0, 1, want[good]) - (want[good] != 0)).max() < 4e-7


def test_add_bias_adds_to_every_row():
    rng = np.random.default_rng(2)
    x, b = rng.normal(size=(7, 33)).astype(np.float32), rng.normal(size=33).astype(np.float32)

    def call():
        y = Buffer(x.size, values=x)
        lib.add_bias(y.p(), Buffer(b.size, values=b).p(), 7, 33)
        assert y.margins_untouched()
        return y.a

    assert both(call).tobytes() == (x + b).tobytes()


def test_yarn_frequencies_equal_the_paper():
    for base, factor, n_ctx, fast, slow in ((10000.0, 4.0, 4096, 32.0, 1.0), (1e6, 4.0, 32768, 32.0, 1.0), (500.0, 2.5, 64, 8.0, 2.0),
                                            (10000.0, 8.0, 1 << 24, 1.0, 1.0), (1.001, 3.0, 1, 32.0, 1.0)):
        n_pair = 32
        freq = ffi.new("double[]", n_pair)
        lib.rope_freq_yarn(freq, n_pair, base, factor, n_ctx, fast, slow)
        border = [np.clip(n_pair * np.log(n_ctx / (turns * 2 * np.pi)) / np.log(base), 0, 2 * n_pair - 1) for turns in (fast, slow)]
        low, high = np.floor(border[0]), np.ceil(border[1])
        share = np.clip((np.arange(n_pair) - low) / (high - low if high > low else 0.001), 0, 1)
        plain = base ** (-np.arange(n_pair) / n_pair)
        assert np.allclose(list(freq), plain / factor * share + plain * (1 - share), rtol=1e-14)


@pytest.mark.parametrize("kv", [F32, F16])
@pytest.mark.parametrize("n_tok,pos,n_head,n_head_kv,dim,window,cap", [
    (1, 0, 1, 1, 8, 0, 0), (1, 40, 4, 2, 24, 0, 2), (9, 0, 8, 2, 64, 0, 0), (17, 30, 6, 6, 20, 16, 50), (33, 5, 4, 1, 256, 7, 0),
    (2, 3, 600, 1, 8, 0, 1), (1, 300, 8, 1, 64, 0, 0), (3, 170, 9, 3, 96, 0, 0.5), (1, 99, 14, 2, 128, 40, 0),
    (64, 0, 1, 1, 1024, 8, 0), (70, 9, 2, 1, 320, 8, 3), (1, 500, 32, 4, 64, 0, 30), (5, 400, 8, 8, 34, 100, 0),
    (150, 37, 6, 3, 72, 40, 0), (49, 70, 16, 2, 64, 0, 0), (140, 5, 2, 2, 20, 0, 2)])  # these three: converted once for many items
def test_attention_equals_reference(kv, n_tok, pos, n_head, n_head_kv, dim, window, cap):
    rng, n_kv = np.random.default_rng(6), pos + n_tok
    q = rng.normal(size=(n_tok, n_head, dim)).astype(np.float32)
    k, v = (rng.normal(size=(n_kv, n_head_kv, dim)).astype("<f2" if kv == F16 else "<f4") for _ in "kv")

    def call():
        o = Buffer(q.size)
        scores = Buffer(lib.attention_scores(n_tok, pos, n_head, n_head_kv))
        kb, vb = Buffer(k.size, k.dtype, k), Buffer(v.size, v.dtype, v)
        lib.attention(o.p(), Buffer(q.size, values=q).p(), kv, kb.p("void *"), vb.p("void *"), scores.p(), n_tok, pos,
                      n_head, n_head_kv, dim, window, dim ** -0.5, cap)
        assert o.margins_untouched() and scores.margins_untouched()
        return o.a

    y = both(call).reshape(q.shape)
    for t in range(n_tok):
        first = max(0, pos + t - window + 1) if window else 0
        for h in range(n_head):
            g = h // (n_head // n_head_kv)
            s = k[first:pos + t + 1, g].astype(np.float64) @ q[t, h] * dim ** -0.5
            s = cap * np.tanh(s / cap) if cap else s
            p = np.exp(s - s.max())
            error = np.abs(y[t, h] - p @ v[first:pos + t + 1, g] / p.sum()).max()
            assert error < 2e-6 * max(1, dim / 256)  # a score is one sum over dim: its error grows with it, to 5.7e-6 at 1,024


@for_each_set
@pytest.mark.parametrize("kv", [F32, F16])
def test_attention_of_random_shapes_equals_reference(kv, isa):
    need(isa)
    rng = np.random.default_rng(14)
    for cap in 20 * (0.0, 2.0):
        n_head_kv, group, dim = int(rng.integers(1, 4)), int(rng.choice([1, 2, 3, 5, 8, 13])), int(rng.choice([1, 7, 16, 40, 64, 80, 130]))
        n_tok, pos, window = int(rng.integers(1, 70)), int(rng.choice([0, 1, 50, 300])), int(rng.choice([0, 1, 9, 33]))
        q, n_kv = rng.normal(size=(n_tok, n_head_kv * group, dim)), pos + n_tok
        k, v = (rng.normal(size=(n_kv, n_head_kv, dim)).astype("<f2" if kv == F16 else "<f4") for _ in "kv")
        if pos == 50:  # what the window hides must not matter, nor what is beyond each token
            k[0, 0, 0], v[-1, 0, 0] = np.nan, np.inf
        out = []
        for set_ in ("reference", isa):
            lib.isa_select(set_.encode())
            o = Buffer(q.size)
            scores = Buffer(lib.attention_scores(n_tok, pos, n_head_kv * group, n_head_kv))
            lib.attention(o.p(), Buffer(q.size, values=q).p(), kv, Buffer(k.size, k.dtype, k).p("void *"),
                          Buffer(v.size, v.dtype, v).p("void *"), scores.p(), n_tok, pos, n_head_kv * group, n_head_kv, dim,
                          window, dim ** -0.5, cap)
            assert o.margins_untouched() and scores.margins_untouched()
            out.append(np.where(np.isnan(o.a), np.float32("nan"), o.a))
        assert out[0].tobytes() == out[1].tobytes(), (n_tok, pos, n_head_kv, group, dim, window, cap)
        assert np.isfinite(out[0]).any()


def stored(x, kv):
    """f32 [n, n_head_kv, dim] as a cache of type kv holds it."""
    cache = Buffer(lib.type_row_bytes(kv, x.size), np.uint8)
    lib.cache_store(cache.p("void *"), kv, Buffer(x.size, values=x).p(), x.size)
    assert cache.margins_untouched()
    return cache


@pytest.mark.parametrize("n_tok,pos,n_head,n_head_kv,dim,window", [
    (1, 0, 1, 1, 32, 0), (1, 170, 8, 1, 64, 0), (17, 30, 6, 6, 96, 16), (20, 5, 16, 2, 128, 0), (1, 300, 5, 1, 256, 0), (41, 60, 16, 2, 96, 50)])
def test_attention_over_q8_0_equals_that_over_its_values(n_tok, pos, n_head, n_head_kv, dim, window):
    rng = np.random.default_rng(19)
    q = rng.normal(size=n_tok * n_head * dim).astype(np.float32)
    planes = [stored(rng.normal(size=(pos + n_tok, n_head_kv, dim)).astype(np.float32), Q8_0) for _ in "kv"]
    values = [dequantize(p.a, GGMLQuantizationType.Q8_0).astype(np.float32) for p in planes]

    def attend(kv, k, v):
        o, scores = Buffer(q.size), Buffer(lib.attention_scores(n_tok, pos, n_head, n_head_kv))
        lib.attention(o.p(), Buffer(q.size, values=q).p(), kv, k.p("void *"), v.p("void *"), scores.p(), n_tok, pos, n_head, n_head_kv,
                      dim, window, dim ** -0.5, 0)
        assert o.margins_untouched() and scores.margins_untouched()
        return o.a

    want = both(lambda: attend(F32, *(Buffer(x.size, values=x) for x in values)))
    assert both(lambda: attend(Q8_0, *planes)).tobytes() == want.tobytes()


def test_cache_store_q8_0_rounds_by_blocks_and_marks_what_is_too_large():
    x = np.random.default_rng(7).normal(size=(40, 32)).astype(np.float32)
    x[3] = 0
    x[4, 5], x[5, 6], x[6, 7], x[7] = np.nan, np.inf, 127 * 65520, 1e-31  # the last: below what a block tells from 0
    found = both(lambda: stored(x, Q8_0).a).view(np.uint8).reshape(40, 34)
    y = dequantize(found, GGMLQuantizationType.Q8_0)
    assert np.isnan(y[4:7]).all() and (y[3] == 0).all() and (y[7] == 0).all()
    good = np.r_[0:4, 8:40]
    most = np.abs(x[good]).max(1, keepdims=True)
    assert (np.abs(y[good] - x[good]) <= most / 127 * 0.5 + most * 2.0 ** -11).all()
    d = found[good, :2].copy().view(np.float16)
    assert (d == (most / np.float32(127)).astype(np.float16)).all()


LAYERS = """
import random, sys
from array import array
from sluice.kernels import ffi, lib
n_tok, pos, n_head, n_head_kv, dim, window = 210, 45, 6, 2, 40, int(sys.argv[3])
draw = random.Random(5)
def floats(n):
    return ffi.from_buffer("float[]", array("f", [draw.gauss(0, 1) for _ in range(n)]))
q, n = floats(n_tok * n_head * dim), (pos + n_tok) * n_head_kv * dim
layers = [(floats(n), floats(n)) for _ in "ab"]  # one after the other: what was converted of one is nothing for the next
def attend():
    out = []
    for k, v in layers:
        o, scores = ffi.new("float[]", len(q)), ffi.new("float[]", lib.attention_scores(n_tok, pos, n_head, n_head_kv))
        lib.attention(o, q, 0, k, v, scores, n_tok, pos, n_head, n_head_kv, dim, window, 0.125, 0)
        out.append(bytes(ffi.buffer(o)))
    return out
assert lib.isa_select(b"reference") == 0
want = attend()
lib.threads_start(int(sys.argv[2]))
assert lib.isa_select(sys.argv[1].encode()) == 0
assert all(attend() == want for _ in range(3))
"""


@for_each_set
@pytest.mark.parametrize("threads", ["1", "2", "3"])
@pytest.mark.parametrize("window", ["0", "60"])
def test_attention_of_two_layers_on_threads_equals_reference(isa, threads, window):
    need(isa)
    done = subprocess.run([sys.executable, "-c", LAYERS, isa, threads, window], capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr.decode()


WINDOW = """
import ctypes, mmap, sys
from sluice.kernels import ffi, lib
n, row, dim, window = 4096, 2 * 64 * 2, 64, 100  # positions, bytes of an F16 row: 2 heads
map_ = mmap.mmap(-1, n * row)
libc, at = ctypes.CDLL(None, use_errno=True), ctypes.addressof(ctypes.c_char.from_buffer(map_))
hidden = (3000 - window + 1) * row // mmap.PAGESIZE * mmap.PAGESIZE
assert libc.mprotect(ctypes.c_void_p(at), ctypes.c_size_t(hidden), 0) == 0
kv, q, o = ffi.cast("void *", at), ffi.new("float[]", 300 * 4 * dim), ffi.new("float[]", 300 * 4 * dim)
lib.threads_start(int(sys.argv[2]))
assert lib.isa_select(sys.argv[1].encode()) == 0
for n_tok in 1, 9, 300:
    scores = ffi.new("float[]", lib.attention_scores(n_tok, 3000, 4, 2))
    lib.attention(o, q, 1, kv, kv, scores, n_tok, 3000, 4, 2, dim, window, 0.125, 0)
"""


@for_each_set
@pytest.mark.parametrize("threads", ["1", "3"])
def test_attention_does_not_touch_what_the_window_hides(isa, threads):
    need(isa)
    done = subprocess.run([sys.executable, "-c", WINDOW, isa, threads], capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr.decode()


def test_cache_store_rounds_to_nearest_even_and_marks_what_is_too_large():
    x = np.random.default_rng(7).normal(size=1003).astype(np.float32) * 1e-3
    x[:8] = [65519.9, 65520, 1e-8, -2e-8, 0.1, np.inf, -1e9, -65504]
    x[-2:] = [70000, 65504]  # among the last ones, which no vector takes

    def call():
        y = Buffer(x.size, np.float16)
        lib.cache_store(y.p("void *"), F16, Buffer(x.size, values=x).p(), x.size)
        assert y.margins_untouched()
        return y.a.astype(np.float32)

    found, beyond = both(call), np.abs(x) >= 65520
    with np.errstate(over="ignore"):
        assert found[~beyond].tobytes() == x[~beyond].astype(np.float16).astype(np.float32).tobytes()
    assert np.isnan(found[beyond]).all() and beyond.sum() == 4


def test_first_nonfinite_finds_the_first():
    x = Buffer(100, values=np.zeros(100))
    assert lib.first_nonfinite(x.p(), 100) == -1
    x.a[70], x.a[41] = np.nan, -np.inf
    assert lib.first_nonfinite(x.p(), 100) == 41


FORK = """
import os
from sluice.kernels import ffi, lib
n = 1 << 20
gate, up = ffi.new("float[]", n), ffi.new("float[]", n)
lib.threads_start(3)
lib.silu_mul(gate, up, n)
if child := os.fork():
    os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
assert lib.threads_count() == 1
lib.silu_mul(gate, up, n)
assert lib.threads_start(2) == 0
for _ in range(100):
    lib.silu_mul(gate, up, n)
os._exit(0)
"""


def test_a_forked_child_computes():
    """Its parent's workers are not there: it must not wait for them."""
    subprocess.run([sys.executable, "-c", FORK], check=True, timeout=60)
