"""Weights to other types: the bits of each, how far they are from the weights, and what is
refused.
"""

import json

import gguf_writer
import golden_rmse
import numpy as np
import pytest
from conftest import sets_here
from gguf import GGMLQuantizationType
from gguf.quants import quantize
from hypothesis import given, settings
from hypothesis import strategies as st
from test_quant import TYPES, dequantized

from sluice.kernels import ffi, lib
from sluice.quantize import mixes, requantize

PACKAGE = ("Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1")  # what the gguf package quantises to
ENCODABLE = ("F32", "F16", "BF16", *PACKAGE, "Q4_K", "Q5_K", "Q6_K")


def encode(x, name, source=0, n=None):
    """(bytes, first element that stops it, whether it is too large), with a margin behind the bytes
    that must stay as it is.
    """
    n = x.size if n is None else n
    n_bytes = lib.type_row_bytes(TYPES[name], n)
    out, beyond = np.full(n_bytes + 64, 0xA5, np.uint8), ffi.new("int32_t *")
    at = lib.encode_weights(
        beyond, ffi.from_buffer(out), TYPES[name], ffi.from_buffer(x), source, n
    )
    assert (out[n_bytes:] == 0xA5).all()
    return out[:n_bytes].tobytes(), at, beyond[0]


def random_rows(seed, n_row=64, n=768):
    """Rows of every size, with zeros, equal elements and negative zeros among them."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n_row, n)) * 10.0 ** rng.uniform(-6, 3, (n_row, 1))
    x[1], x[2], x[3], x[4, ::2] = 0, -0.0, 0.7, 0
    x[5] = np.round(x[5] / np.abs(x[5]).max() * 2) / 2  # halves: ties
    return x.astype("<f4")


@pytest.mark.parametrize("name", PACKAGE)
def test_blocks_of_32_equal_gguf_package(name):
    for seed in range(4):
        x = random_rows(seed)
        assert encode(x, name)[0] == quantize(x, GGMLQuantizationType[name]).tobytes()


def test_short_floats_round_as_numpy_and_gguf_package():
    x = np.random.default_rng(1).integers(0, 1 << 32, 1 << 18, np.uint32).view("<f4")
    x = x[np.isfinite(x) & (np.abs(x) < 65000)]
    x = x[: x.size // 512 * 512 + 77]
    assert encode(x, "F16")[0] == x.astype("<f2").tobytes()
    assert encode(x, "BF16")[0] == quantize(x, GGMLQuantizationType.BF16).tobytes()


@pytest.mark.parametrize("kind", golden_rmse.KINDS)
def test_error_is_no_worse_than_llama_cpp(kind):
    golden = json.loads(golden_rmse.OUT.read_text())["rmse"][kind]
    x = golden_rmse.rows(kind)
    assert set(golden) == set(golden_rmse.TYPES)
    for name, theirs in golden.items():
        blocks, at, _ = encode(x, name)
        assert at == -1
        ours = golden_rmse.rmse(x, name, blocks)
        # the last digits: libm makes the rows
        assert ours <= theirs * (1 + 1e-6), (name, ours / theirs)


def test_search_is_better_where_weights_are_usual():
    golden = json.loads(golden_rmse.OUT.read_text())["rmse"]["normal"]
    x = golden_rmse.rows("normal")
    found = {
        name: golden_rmse.rmse(x, name, encode(x, name)[0]) / golden[name]
        for name in ("Q4_K", "Q5_K", "Q6_K")
    }
    assert found["Q4_K"] < 0.99 and found["Q5_K"] < 0.96 and found["Q6_K"] < 0.95, found


def test_bytes_do_not_depend_on_set_or_neighbours():
    x = random_rows(9, 33, 768).ravel()
    n = x.size - 256  # an odd number of blocks
    expected = None
    try:
        for name in sets_here():
            assert lib.isa_select(name.encode()) == 0
            found = {t: encode(x, t, n=n)[0] for t in ENCODABLE}
            expected = expected or found
            assert found == expected, name
        for n_blocks in (1, 2, 3):  # and a block's bytes do not depend on the blocks beside it
            for t in ("Q4_K", "Q5_K", "Q6_K"):
                part = encode(x[256 * 7 : 256 * (7 + n_blocks)].copy(), t)[0]
                width = lib.type_row_bytes(TYPES[t], 256)
                assert part == expected[t][7 * width : (7 + n_blocks) * width]
    finally:
        lib.isa_select(b"")


@pytest.mark.parametrize("source", [t for t in TYPES if t not in ("F32",)])
def test_metadata_types_are_all_read(source):
    n = 256 * 5
    if source in gguf_writer.BLOCK_TYPES:
        data = gguf_writer.random_blocks(
            np.random.default_rng(3), source, n // lib.type_block(TYPES[source])
        ).reshape(-1)
    else:
        data = np.frombuffer(
            gguf_writer.QUANTIZE[TYPES[source]](np.random.default_rng(3).standard_normal(n)),
            np.uint8,
        ).copy()
    x = dequantized(TYPES[source], data, n)
    for name in ENCODABLE:
        expected = data.tobytes() if name == source else encode(x.copy(), name)[0]
        assert encode(data, name, TYPES[source], n)[0] == expected


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.floats(0, 1), st.integers(1, 5), st.sampled_from(ENCODABLE))
def test_any_bits_are_refused_or_meant(seed, share, n_block, name):
    """Floats of any bits: the first that is not finite is named; the rest is encoded to something
    finite, or the first block that is too large is named.
    """
    rng = np.random.default_rng(seed)
    bits = rng.integers(0, 1 << 32, 256 * n_block, np.uint32)
    x = np.where(
        rng.random(bits.size) < share,
        bits.view("<f4"),
        rng.standard_normal(bits.size).astype("<f4") * np.float32(2.0 ** rng.integers(-140, 120)),
    )
    x = np.ascontiguousarray(x, "<f4")
    data, at, beyond = encode(x, name)
    wrong = np.flatnonzero(~np.isfinite(x))
    if at < 0:
        assert (
            not wrong.size
            and np.isfinite(dequantized(TYPES[name], np.frombuffer(data, np.uint8), x.size)).all()
        )
    elif not beyond:
        assert at == wrong[0]
    else:
        block = lib.type_block(TYPES[name])
        assert (
            at % block == 0 and np.abs(x[at : at + block]).max() > 60000 and not (wrong < at).any()
        )


@pytest.mark.parametrize("name", ENCODABLE)
def test_first_weight_that_stops_it_is_named(name):
    for i in (0, 511, 512, 40000, 65535):
        for value in (np.nan, np.inf, -np.inf):
            x = np.ones(1 << 16, "<f4")
            x[i], x[-1] = value, np.nan
            assert encode(x, name)[1:] == (i, 0)
    if name != "F32":
        x = np.ones(1 << 16, "<f4")
        x[40000] = x[50000] = 3.4e38
        block = lib.type_block(TYPES[name])
        assert encode(x, name)[1:] == (40000 // block * block, 1)


def test_types_that_are_made():
    assert {t for t in range(-3, 300) if lib.encodable(t)} == {TYPES[name] for name in ENCODABLE}
    assert set(requantize.KINDS) == set(ENCODABLE) | set(mixes.MIXES)
