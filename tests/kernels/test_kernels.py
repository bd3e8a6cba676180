"""Products, and activations rounded for them: every instruction set gives the bits of reference.c
and touches nothing beyond its rows.
"""

import numpy as np
import pytest
from gguf import GGMLQuantizationType
from gguf.quants import dequantize
from gguf_writer import BLOCK_TYPES, set_halves, set_scales
from kernel_call import (
    SETS,
    Buffer,
    activations_of,
    block_of,
    for_each_set,
    need,
    number_of,
    product,
    quantised,
    weights,
)

from sluice.kernels import ffi, lib

pytestmark = pytest.mark.usefixtures("best_set")
NAMES = ["F32", "F16", "BF16", *BLOCK_TYPES]


def shapes_of(name):
    """(n_tok, rows, n) worth a look: no block type takes a row of part of a block."""
    return [(t, r, n * max(block_of(name), 32) // 32) for t, r, n in SHAPES] + (
        [] if name in BLOCK_TYPES else ODD
    )


SHAPES = [
    (1, 1, 32),
    (1, 7, 64),
    (2, 8, 96),
    (3, 9, 32),
    (4, 17, 1024),
    (5, 33, 1056),
    (7, 40, 2080),
    (64, 24, 160),
    (65, 130, 96),
    (513, 3, 64),
    (579, 17, 96),
]
ODD = [
    (1, 1, 1),
    (1, 5, 3),
    (2, 4, 15),
    (3, 7, 17),
    (2, 9, 172),
    (70, 6, 31),
    # more than a panel of floats, and more tokens than meet one
    (64, 37, 1100),
    (261, 35, 1030),
]


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
            assert product(name, raw, x, n_tok, rows, n).tobytes() == expected.tobytes(), (
                isa,
                n_tok,
                rows,
                n,
            )


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
        n_tok, rows, n = (
            int(rng.integers(1, 30)),
            int(rng.integers(1, 80)),
            int(rng.integers(1, 50)),
        )
        n = {1: n * 7, 32: n * 32, 64: n * 64, 256: (n + 7) // 8 * 256}[block_of(name)]
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
    """Products of the same activations, of others, and of other blocks, in one group; the group
    before had larger ones.
    """
    need(isa)
    rng, n = np.random.default_rng(13), 512
    xs = [Buffer(n_tok * n, values=rng.normal(size=n_tok * n)) for _ in range(2)]
    wanted = [
        ("Q4_K", 0, 33),
        ("Q6_K", 0, 5),
        ("Q8_0", 0, 40),
        ("F32", 1, 3),
        ("Q8_0", 1, 64),
        ("Q4_K", 1, 1),
        ("Q4_0", 0, 31),
    ]
    raws = [weights(rng, name, rows, n) for name, _, rows in wanted]
    lib.isa_select(b"reference")
    expected = [
        product(name, raw, xs[i], n_tok, rows, n) for (name, i, rows), raw in zip(wanted, raws)
    ]
    lib.isa_select(isa.encode())
    product(
        "Q8_0",
        weights(rng, "Q8_0", 8, 2048),
        Buffer(70 * 2048, values=rng.normal(size=70 * 2048)),
        70,
        8,
        2048,
    )
    held = {(i, block): quantised(xs[i], n_tok, n, block) for i in range(2) for block in (32, 256)}
    kinds = ("int8_t *", "float *", "float *", "int16_t *")
    ws = [Buffer(len(raw), np.uint8, np.frombuffer(raw, np.uint8)) for raw in raws]
    ys = [Buffer(n_tok * rows) for _, _, rows in wanted]
    group = []
    for (name, i, rows), w, y in zip(wanted, ws, ys):
        parts = (
            [
                part.p(kind) if part else ffi.NULL
                for part, kind in zip(held[i, block_of(name)], kinds)
            ]
            if name in BLOCK_TYPES
            else [ffi.NULL] * 4
        )
        group.append(
            (y.p(), w.p("void *"), ffi.NULL, xs[i].p(), *parts, number_of(name), n_tok, rows, n)
        )
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
    held, w, ys = (
        quantised(x, 16, 1024, block_of(name)),
        Buffer(len(raw), np.uint8, np.frombuffer(raw, np.uint8)),
        [Buffer(n_tok * 20) for n_tok, _ in shapes],
    )
    parts = [
        part.p(kind) if part else ffi.NULL
        for part, kind in zip(held, ("int8_t *", "float *", "float *", "int16_t *"))
    ]
    lib.matmuls(
        ffi.new(
            "product[]",
            [
                (y.p(), w.p("void *"), ffi.NULL, ffi.NULL, *parts, number_of(name), n_tok, 20, n)
                for y, (n_tok, n) in zip(ys, shapes)
            ],
        ),
        3,
    )
    for y, other, what in zip(ys, expected, shapes):
        assert y.margins_untouched() and y.a.tobytes() == other.tobytes(), what


@pytest.fixture(params=[1, 4])
def streams(request):
    """Both ways of avx512_matvec.c to read rows, whatever the processor."""
    lib.matvec_streams_set(request.param)
    assert lib.matvec_streams() == request.param
    yield
    lib.matvec_streams_set(0)
    assert lib.matvec_streams() in (1, 4)


@for_each_set
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.quick_cases(5)
def test_matmul_of_one_token_equals_reference(name, isa, streams):
    """Rows are read one after the other or four side by side, 8 or 16 before their sums are made,
    long ones in stretches: fewer rows, tails, picked rows.
    """
    need(isa)
    rng = np.random.default_rng(13)
    for rows, n in (
        (1, 256),
        (3, 768),
        (5, 512),
        (4, 256),
        (15, 2048),
        (16, 256),
        (17, 1792),
        (61, 1280),
        (31, 256),
        (66, 512),
        (130, 1024),
        (21, 8192),
        (9, 8704),
        (2, 17152),
        (1, 32),
        (9, 352),
        (18, 2080),
        (3, 8416),
    ):
        if n % block_of(name):
            continue
        raw, x = weights(rng, name, rows, n), Buffer(n, values=rng.normal(size=n))
        for pick in (None, rng.integers(0, rows, 11)):
            lib.isa_select(b"reference")
            expected = product(name, raw, x, 1, rows, n, pick)
            assert np.isfinite(expected).all()
            lib.isa_select(isa.encode())
            assert product(name, raw, x, 1, rows, n, pick).tobytes() == expected.tobytes(), (
                rows,
                n,
                pick,
            )


@for_each_set
@pytest.mark.parametrize("name", BLOCK_TYPES)
def test_matmul_of_extreme_activations_equals_reference(name, isa):
    """Zero blocks, blocks just above zero, and such that the scale times the sum of a block
    overflows; weights of all bits.
    """
    need(isa)
    rng, n_tok, rows, n_block, block = np.random.default_rng(12), 13, 35, 35, block_of(name)
    n = n_block * block
    raw, x = (
        weights(rng, name, rows, n),
        rng.normal(size=(n_tok, n_block, block)).astype(np.float32),
    )
    x /= np.abs(x).max(2, keepdims=True)
    x *= np.float32(2) ** rng.choice(
        [-149, -101, -100, -99, 0, 100, 110, 116, 117, 127], (n_tok, n_block, 1)
    )
    x[3, 5:9], x[4] = np.abs(x[3, 5:9]), 0
    x[5, 0], x[6, 30:] = np.float32(3.4e38), np.float32(-3.4e38)  # sums of 127 and of -127 only
    small = np.frombuffer(raw, np.uint8).reshape(rows * n_block, -1).copy()
    tiny = rng.choice(np.array([6e-8, 1e-7, -6e-8, 0], "<f2"), rows * n_block)
    with np.errstate(divide="ignore"):
        set_scales(small, name, tiny, minima=False)
    for bits in (raw, small.tobytes()):
        out = []
        for set_ in ("reference", isa):
            lib.isa_select(set_.encode())
            with np.errstate(over="ignore"):
                y = product(name, bits, Buffer(x.size, values=x), n_tok, rows, n)
            out.append(np.where(np.isnan(y), np.float32("nan"), y))  # which NaN is nobody's choice
        assert out[0].tobytes() == out[1].tobytes()
    if len(BLOCK_TYPES[name][3]) < 2:
        # NVFP4 has no such scales, but zero
        assert np.isfinite(out[0]).all() and out[0].any() == (name != "NVFP4")


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
        set_scales(blocks, name, 1)
        out = []
        for set_ in ("reference", isa):
            lib.isa_select(set_.encode())
            out.append(product(name, blocks.tobytes(), x, 3, 5, 512))
            alone = [
                product(name, blocks.tobytes(), Buffer(512, values=part), 1, 5, 512)
                for part in x.a.reshape(3, 512)
            ]
            assert np.concatenate(alone).tobytes() == out[0].tobytes()
        assert out[0].tobytes() == out[1].tobytes() and np.isfinite(out[0]).all()
        w = dequantize(blocks, GGMLQuantizationType[name]).reshape(5, 512).astype(np.float64)
        exact = x.a.reshape(3, 512).astype(np.float64) @ w.T
        assert np.allclose(out[0].reshape(3, 5), exact, rtol=1e-5, atol=np.abs(w).max() * 1e-3)


@for_each_set
@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize(
    "name, group, most, scales",
    [
        ("Q4_K", 32, 32767 // 15, slice(4, 16)),
        ("Q4_K", 32, 16382 // 15, slice(4, 16)),
        ("Q5_K", 32, 32766 // 31, slice(4, 16)),
        ("Q6_K", 16, 32766 // 32, slice(192, 208)),
    ],
)
def test_matmul_where_sums_of_a_group_reach_16_bits_equals_reference(
    name, group, most, scales, sign, isa
):
    """Activations up to which, and from which on, the sum of a group with the largest weights needs
    more than 15 or 16 bits, with a bias for one of them; scales of all bits.
    """
    need(isa)
    rng, n_tok, rows = np.random.default_rng(15), 6, 33
    for total in (most - 1, most, most + 1, most + group, 127 * group):
        x = np.zeros((n_tok, 512), np.float32)
        x[:, ::256] = 127  # the unit of what is below is 1
        for t, at in enumerate(rng.permutation(256 // group - 1)[:n_tok]):
            first = (at + 1) * group
            x[t, first : first + group] = sign * (
                total // group + (np.arange(group) < total % group)
            )
        for byte in (0x00, 0xFF):
            blocks = np.full((rows * 2, BLOCK_TYPES[name][2]), byte, np.uint8)
            blocks[:, scales] = rng.integers(0, 256, blocks[:, scales].shape)
            for at in BLOCK_TYPES[name][3]:
                set_halves(blocks, at, 1)
            out = []
            for set_ in ("reference", isa):
                lib.isa_select(set_.encode())
                out.append(
                    product(
                        name, blocks.tobytes(), Buffer(x.size, values=x), n_tok, rows, 512
                    ).tobytes()
                )
            assert out[0] == out[1], (total, byte)


@for_each_set
@pytest.mark.parametrize("block", [32, 256])
def test_quantize_of_random_shapes_equals_reference(isa, block):
    need(isa)
    rng = np.random.default_rng(13)
    for _ in range(60):
        n_tok, n = int(rng.integers(1, 9)), block * int(rng.integers(1, 1280 // block))
        x = rng.normal(size=(n_tok, n)).astype(np.float32) * np.float32(2) ** rng.integers(
            -120, 127
        )
        x[rng.random(x.shape) < 0.01] = rng.choice(
            np.array([np.inf, -np.inf, np.nan, 1e-40, 0, -0.0], np.float32)
        )
        out = []
        for set_ in ("reference", isa):
            lib.isa_select(set_.encode())
            out.append(
                [
                    part.a.copy()
                    for part in quantised(Buffer(x.size, values=x), n_tok, n, block)
                    if part
                ]
            )
        for a, b in zip(*out):
            assert (np.isnan(a) == np.isnan(b)).all() and a[~np.isnan(a)].tobytes() == b[
                ~np.isnan(b)
            ].tobytes()


@pytest.mark.parametrize("name", NAMES)
def test_matmul_does_not_depend_on_the_batch_or_the_rows(name):
    rng, rows, n, n_tok = np.random.default_rng(2), 37, 1280 if block_of(name) == 256 else 1088, 11
    raw, x = weights(rng, name, rows, n), Buffer(n_tok * n, values=rng.normal(size=n_tok * n))
    for isa in SETS:
        lib.isa_select(isa.encode())
        whole = product(name, raw, x, n_tok, rows, n).reshape(n_tok, rows)
        for t in range(n_tok):
            alone = product(name, raw, Buffer(n, values=x.a[t * n : (t + 1) * n]), 1, rows, n)
            assert alone.tobytes() == whole[t].tobytes()
        pick = [36, 0, 0, 17, 5]
        assert product(name, raw, x, n_tok, rows, n, pick).tobytes() == whole[:, pick].tobytes()


@pytest.mark.parametrize("name", NAMES)
def test_matmul_is_close_to_numpy(name):
    rng, rows, n, n_tok = np.random.default_rng(3), 16, 512, 3
    raw, x = weights(rng, name, rows, n), Buffer(n_tok * n, values=rng.normal(size=n_tok * n))
    w = dequantize(
        np.frombuffer(raw, np.uint8).reshape(rows, -1), GGMLQuantizationType[name]
    ).astype(np.float64)
    exact = x.a.reshape(n_tok, n).astype(np.float64) @ w.T
    y = product(name, raw, x, n_tok, rows, n).reshape(n_tok, rows)
    # int8 activations: half a step of max/127 an element, as a random walk over n of them
    scale = np.abs(w).max() * np.sqrt(n)
    assert np.abs(y - exact).max() < scale * (4.0 / 254 if name in BLOCK_TYPES else 1e-5)


@pytest.mark.parametrize("name", [name for name in BLOCK_TYPES if activations_of(name) > 1])
def test_reference_is_the_product_of_what_is_stored(name):
    """In f64, with the activations as they were rounded: only the f32 sum over blocks is left as a
    difference.
    """
    rng, rows, n, n_tok, block = np.random.default_rng(15), 23, 2048, 5, block_of(name)
    raw, x = weights(rng, name, rows, n), Buffer(n_tok * n, values=rng.normal(size=n_tok * n))
    lib.isa_select(b"reference")
    q, d, *_ = quantised(x, n_tok, n, block)
    rounded = q.a.reshape(n_tok, -1, block).astype(np.float64) * d.a.reshape(n_tok, -1, 1)
    assert (
        np.abs(rounded - x.a.reshape(rounded.shape)) <= d.a.reshape(n_tok, -1, 1) * 0.5001
    ).all()
    w = dequantize(
        np.frombuffer(raw, np.uint8).reshape(rows, -1), GGMLQuantizationType[name]
    ).astype(np.float64)
    exact = rounded.reshape(n_tok, n) @ w.T
    y = product(name, raw, x, n_tok, rows, n).reshape(n_tok, rows)
    # a rounding (6e-8) of weights and of each of 64 sums or less, all at most max|w| sum|x|
    assert np.abs(y - exact).max() < 2e-7 * np.abs(w).max() * np.abs(rounded).sum() / n_tok


def test_matmul_of_any_block_bits_stays_in_its_buffers():
    rng = np.random.default_rng(4)
    for name in NAMES:
        n = 96 * max(block_of(name), 32) // 32
        raw = rng.integers(
            0, 256, lib.type_row_bytes(number_of(name), n) * 9, dtype=np.uint8
        ).tobytes()
        x = Buffer(5 * n, values=rng.normal(size=5 * n))
        for isa in SETS:
            lib.isa_select(isa.encode())
            product(name, raw, x, 5, 9, n)


@pytest.mark.parametrize("block", [32, 256])
def test_quantize_rule(block):
    x = np.zeros((7, block), np.float32)
    x[0] = np.linspace(-1, 1, block)
    x[1, 3] = 1e-35  # below 2^-100: a zero block
    x[2, 5], x[3, 6], x[4, 7] = np.inf, np.nan, 3e38
    x[5, 0], x[5, 1], x[5, 2] = 127, 0.5, 1.5  # ties to even
    x[6] = -(np.float32(2.0) ** -100)
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
            assert (
                sums.a.reshape(7, 16) == q.reshape(7, 16, 16).sum(2)
            ).all() and sums.a.min() == -127 * 16
