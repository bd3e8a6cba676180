"""Weights back to f32: the same bits as the gguf package and numpy give."""

import gguf_writer
import numpy as np
import pytest
from gguf import GGMLQuantizationType
from gguf.constants import GGML_QUANT_SIZES
from gguf.quants import dequantize

from sluice.kernels import ffi, lib

TYPES = {
    "F32": 0,
    "F16": 1,
    "BF16": 30,
    **{name: number for name, (number, *_) in gguf_writer.BLOCK_TYPES.items()},
}
POISON = 0x7FC0DEAD  # a NaN no format gives


def dequantized(type_number, data, n):
    """f32 [n] from dequantize_row, with poisoned margins that must stay as they are."""
    out = np.full(n + 32, POISON, "<u4")
    y = ffi.cast("float *", ffi.from_buffer(out)) + 16
    lib.dequantize_row(y, type_number, ffi.from_buffer(data), n)
    assert (out[:16] == POISON).all() and (out[-16:] == POISON).all()
    return out[16:-16].view("<f4")


def assert_same_bits(ours, theirs):
    """Bit for bit, except which NaN it is."""
    ours, theirs = np.asarray(ours, "<f4").ravel(), np.asarray(theirs, "<f4").ravel()
    nan = np.isnan(theirs)
    assert (np.isnan(ours) == nan).all()
    assert (ours.view("<u4")[~nan] == theirs.view("<u4")[~nan]).all()


def to_f16(x):
    x = np.ascontiguousarray(x, "<f4")
    out = np.empty(x.size, "<u2")
    lib.convert_f32_f16(ffi.from_buffer("uint16_t[]", out), ffi.from_buffer("float[]", x), x.size)
    return out


@pytest.mark.parametrize("name", TYPES)
def test_dequantize_row_equals_gguf_package_on_random_bytes(name):
    n = 256 * 1000
    data = np.random.default_rng(TYPES[name]).integers(
        0, 256, lib.type_row_bytes(TYPES[name], n), np.uint8
    )
    with np.errstate(all="ignore"):
        theirs = dequantize(data.reshape(1, -1), GGMLQuantizationType(TYPES[name]))
    assert_same_bits(dequantized(TYPES[name], data, n), theirs)


@pytest.mark.quick_cases(5)
@pytest.mark.parametrize("name", gguf_writer.BLOCK_TYPES)
def test_dequantize_row_takes_every_scale(name):
    """Infinite, NaN and subnormal ones too, d ascending and m descending."""
    number, block, width, halves = gguf_writer.BLOCK_TYPES[name]
    every = np.arange(1 << 16, dtype="<u2")
    if block == 256:  # 16 of each exponent, with zeros and with ones as fraction among them
        every = every[
            np.isin(
                every % 1024,
                [0, 1, 2, 3, 8, 77, 255, 256, 511, 512, 513, 700, 768, 1000, 1022, 1023],
            )
        ]
    data = np.random.default_rng(1).integers(0, 256, (len(every), width), np.uint8)
    for at, order in zip(halves, (1, -1)):
        data[:, at : at + 2] = every[::order].copy().view(np.uint8).reshape(-1, 2)
    with np.errstate(all="ignore"):
        theirs = dequantize(data, GGMLQuantizationType(number))
    assert_same_bits(dequantized(number, data, block * len(every)), theirs)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("name, n_bytes", [("MXFP4", 1), ("NVFP4", 1), ("IQ1_M", 2)])
def test_dequantize_row_takes_every_scale_that_is_no_half(name, n_bytes):
    number, block, width, _ = gguf_writer.BLOCK_TYPES[name]
    every = np.arange(1 << 8 * n_bytes)
    data = np.random.default_rng(1).integers(0, 256, (len(every), width), np.uint8)
    if name == "IQ1_M":
        words = data[:, 48:].copy().view("<u2") & 0xFFF
        words |= ((every[:, None] >> np.array([0, 4, 8, 12]) & 15) << 12).astype("<u2")
        data[:, 48:] = words.view(np.uint8)
    else:
        data[:, : 1 if name == "MXFP4" else 4] = every[:, None]
    with np.errstate(all="ignore"):
        theirs = dequantize(data, GGMLQuantizationType(number))
    assert_same_bits(dequantized(number, data, block * len(every)), theirs)


@pytest.mark.parametrize("name", gguf_writer.BLOCK_TYPES)
def test_dequantize_row_takes_every_bit(name):
    """One bit of a block is other than the rest: it counts where it belongs, and nowhere else."""
    number, block, width, halves = gguf_writer.BLOCK_TYPES[name]
    rng = np.random.default_rng(6)
    for rest in (0, 0xFF):
        data = np.full((width * 8, width), rest, np.uint8)
        data[np.arange(width * 8), np.arange(width * 8) // 8] ^= np.tile(
            1 << np.arange(8, dtype=np.uint8), width
        )
        for at in halves:
            gguf_writer.set_halves(data, at, rng.uniform(0.5, 1, len(data)))
        if not halves:
            data[: len(data) // 2] = gguf_writer.random_blocks(rng, name, len(data) // 2)
        with np.errstate(all="ignore"):
            theirs = dequantize(data, GGMLQuantizationType(number))
        assert_same_bits(dequantized(number, data, block * len(data)), theirs)


def test_f16_and_bf16_to_f32_on_every_bit_pattern():
    every = np.arange(1 << 16, dtype="<u2")
    with np.errstate(all="ignore"):
        assert_same_bits(dequantized(TYPES["F16"], every, 1 << 16), every.view("<f2").astype("<f4"))
    bits = dequantized(TYPES["BF16"], every, 1 << 16).view("<u4")
    assert (bits == every.astype("<u4") << 16).all()  # payloads of NaNs included


def test_f16_nan_keeps_its_payload_and_becomes_quiet():
    nan = np.array([0x7C01, 0x7E00, 0xFFFF, 0xFC01], "<u2")
    bits = dequantized(TYPES["F16"], nan, 4).view("<u4")
    assert bits.tolist() == [0x7FC02000, 0x7FC00000, 0xFFFFE000, 0xFFC02000]


def test_f32_to_f16_rounds_to_nearest_even_around_every_half():
    finite = np.arange(0x7C00, dtype="<u2")
    f = finite.view("<f2").astype("<f4")
    between = (f[:-1] + f[1:]) / 2  # exact in f32: the ties
    x = np.concatenate(
        [f, between, [65504, 65519.996, 65520, 65536, 1e30, np.inf, 2**-25, 2**-26]]
    ).astype("<f4")
    x = np.concatenate(
        [x, np.nextafter(x, np.float32(np.inf)), np.nextafter(x, np.float32(-np.inf))]
    )
    x = np.concatenate([x, -x])
    with np.errstate(over="ignore"):
        assert (to_f16(x) == x.astype("<f2").view("<u2")).all()


def test_f32_to_f16_equals_numpy_on_random_bits():
    x = np.random.default_rng(2).integers(0, 1 << 32, 1 << 20, np.uint32).view("<f4")
    with np.errstate(all="ignore"):
        theirs = x.astype("<f2").view("<u2")
    nan = np.isnan(x)
    ours = to_f16(x)
    assert (ours[~nan] == theirs[~nan]).all()
    assert ((ours[nan] & 0x7E00) == 0x7E00).all()


def test_f16_to_f32_to_f16_is_the_identity():
    every = np.arange(1 << 16, dtype="<u2")
    back = to_f16(dequantized(TYPES["F16"], every, 1 << 16))
    signalling = (every & 0x7C00 == 0x7C00) & (every & 0x3FF != 0) & (every & 0x200 == 0)
    assert (back == np.where(signalling, every | 0x200, every)).all()


def test_type_table_equals_gguf_package():
    ours = {t for t in range(-5, 300) if lib.type_block(t)}
    theirs = {int(t) for t in GGML_QUANT_SIZES} - {9, 15}  # Q8_1 and Q8_K are never in a file
    assert theirs <= ours
    for t in theirs:
        block, n_bytes = GGML_QUANT_SIZES[GGMLQuantizationType(t)]
        assert lib.type_block(t) == block
        assert lib.type_row_bytes(t, 3 * block) == 3 * n_bytes
        assert lib.type_row_bytes(t, 3 * block + 1) == (-1 if block > 1 else 3 * n_bytes + n_bytes)
        assert ffi.string(lib.type_name(t)).decode() == GGMLQuantizationType(t).name


@pytest.mark.parametrize("t", [-1, 4, 9, 31, 43, 142, 10**6, 2**31 - 1, -(2**31)])
def test_type_unknown_is_nothing(t):
    assert (
        lib.type_block(t),
        lib.type_row_bytes(t, 32),
        lib.type_supported(t),
        ffi.string(lib.type_name(t)),
    ) == (0, 0, 0, b"")


@pytest.mark.parametrize("name", TYPES)
def test_count_nonfinite_finds_each_one(name):
    t, n, rng, first = TYPES[name], 256 * 12, np.random.default_rng(3), ffi.new("int64_t *")
    block, width = lib.type_block(t), lib.type_row_bytes(t, lib.type_block(t))
    if name in gguf_writer.BLOCK_TYPES:
        good, places = (
            gguf_writer.random_blocks(rng, name, n // block).tobytes(),
            gguf_writer.BLOCK_TYPES[name][3],
        )
    else:
        good, places = gguf_writer.QUANTIZE[t](rng.standard_normal(n)), (0,)
    assert lib.count_nonfinite(first, t, ffi.from_buffer(good), n) == 0 and first[0] == -1
    bad_pattern = {0: b"\0\0\x80\x7f", 30: b"\x80\xff"}.get(t, b"\0\xfc")
    for i in (0, 7, n // block - 1):
        for place in places:
            data = bytearray(good)
            data[i * width + place : i * width + place + len(bad_pattern)] = bad_pattern
            assert lib.count_nonfinite(first, t, ffi.from_buffer(data), n) == 1
            assert first[0] == i * block
    if len(places) == 2:
        data = bytearray(good)
        data[3 * width + places[0] : 3 * width + places[0] + 4] = b"\x01\x7e\0\x7c"
        assert (
            lib.count_nonfinite(first, t, ffi.from_buffer(data), n) == 2 and first[0] == 3 * block
        )


@pytest.mark.parametrize("name, at, bad", [("IQ1_M", 48, 8 * b"\xff"), ("MXFP4", 0, b"\xff")])
def test_count_nonfinite_counts_blocks_whose_scale_is_no_half(name, at, bad):
    t, n, rng, first = TYPES[name], 256 * 12, np.random.default_rng(3), ffi.new("int64_t *")
    block, width = lib.type_block(t), lib.type_row_bytes(t, lib.type_block(t))
    data = gguf_writer.random_blocks(rng, name, n // block)
    data[2:4, at : at + len(bad)] = np.frombuffer(bad, np.uint8)
    data[2:4, 1:17] = 0x77  # the largest weights
    assert data.shape[1] == width
    assert lib.count_nonfinite(first, t, ffi.from_buffer(data), n) == 2 and first[0] == 2 * block


@pytest.mark.parametrize("name", [name for name in TYPES if TYPES[name] in gguf_writer.QUANTIZE])
def test_writer_rounds_as_the_gguf_package(name):
    from gguf.quants import quantize

    x = np.random.default_rng(4).standard_normal((40, 96)).astype("<f4") * 3
    x[3] = 0
    assert (
        gguf_writer.QUANTIZE[TYPES[name]](x)
        == quantize(x, GGMLQuantizationType(TYPES[name])).tobytes()
    )
