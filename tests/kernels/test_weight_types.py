"""The table of weight types (csrc/formats/types.h): every row is what the gguf package says of it,
and has its unpack, its reference kernel and, where it says so, its encoder.
"""

import numpy as np
import pytest
from gguf import GGMLQuantizationType
from gguf.constants import GGML_QUANT_SIZES
from gguf.quants import dequantize
from kernel_call import Buffer, both, product, quantised, weights
from test_quant import TYPES, assert_same_bits, dequantized

from sluice.kernels import ffi, lib
from sluice.quantize import requantize

NUMBERS = [t for t in range(-300, 300) if lib.type_facts(t)]
LATER = {42: ("Q2_0", (64, 18))}  # than the gguf package
READ = [t for t in NUMBERS if lib.type_facts(t).is_read]
BLOCKS = [t for t in READ if lib.type_facts(t).block > 1]


def name_of(number):
    return ffi.string(lib.type_facts(number).name).decode()


def of_each(numbers):
    return pytest.mark.parametrize("number", numbers, ids=map(name_of, numbers))


@of_each(NUMBERS)
def test_row_has_the_name_and_sizes_of_the_gguf_package(number):
    facts = lib.type_facts(number)
    if number in LATER:
        expected = LATER[number]
    else:
        kind = GGMLQuantizationType(number)
        expected = kind.name, GGML_QUANT_SIZES[kind]
    assert (facts.number, name_of(number)) == (number, expected[0])
    assert (facts.block, facts.bytes) == expected[1]
    assert facts.at_d + 2 * facts.n_scale <= facts.bytes
    assert facts.activations in ((1, facts.block) if facts.is_read else (0,))
    assert facts.is_read or not facts.is_encoded


def test_functions_say_what_the_table_says():
    for t in (-1, 4, 5, 9, 15, 31, 36, 300, 1 << 30):
        assert lib.type_facts(t) == ffi.NULL
        assert lib.type_block(t) == lib.type_row_bytes(t, 256) == 0
        assert lib.type_supported(t) == lib.encodable(t) == 0
        assert ffi.string(lib.type_name(t)) == b""
    for t in NUMBERS:
        facts = lib.type_facts(t)
        assert lib.type_block(t) == facts.block and lib.type_name(t) == facts.name
        assert lib.type_row_bytes(t, 3 * facts.block) == 3 * facts.bytes
        assert (lib.type_supported(t), lib.encodable(t)) == (facts.is_read, facts.is_encoded)


def test_types_that_are_read_are_those_that_the_tests_know():
    assert {name_of(t): t for t in READ} == TYPES


@of_each(READ)
def test_row_has_its_unpack(number):
    n = 256 * 40
    data = np.frombuffer(weights(np.random.default_rng(number), name_of(number), 40, 256), np.uint8)
    theirs = dequantize(data.reshape(1, -1), GGMLQuantizationType(number))
    assert_same_bits(dequantized(number, data, n), theirs)


@of_each(READ)
def test_row_has_its_reference_kernel_and_all_others_its_bits(number):
    rng, n, n_row, n_tok = np.random.default_rng(number), 512, 40, 7
    raw = weights(rng, name_of(number), n_row, n)
    x = Buffer(n_tok * n, values=rng.normal(size=n_tok * n))
    y = both(lambda: product(name_of(number), raw, x, n_tok, n_row, n)).reshape(n_tok, n_row)
    block = lib.type_facts(number).activations
    meant = x.a.reshape(n_tok, n).astype("f8")
    if block > 1:  # activations are int8
        q, d, *_ = quantised(x, n_tok, n, block)
        meant = (q.a.reshape(-1, block) * d.a[:, None].astype("f8")).reshape(n_tok, n)
    w = dequantize(np.frombuffer(raw, np.uint8).reshape(n_row, -1), GGMLQuantizationType(number))
    w = w.reshape(n_row, n).astype("f8")
    assert (np.abs(y - meant @ w.T) <= 2e-6 * (np.abs(meant) @ np.abs(w).T)).all()


@of_each([t for t in BLOCKS if lib.type_facts(t).is_encoded])
def test_row_that_says_so_is_encoded(number):
    x = np.random.default_rng(number).normal(size=256 * 64).astype("<f4")
    out, beyond = bytearray(lib.type_row_bytes(number, x.size)), ffi.new("int32_t *")
    at = lib.encode_weights(beyond, ffi.from_buffer(out), number, ffi.from_buffer(x), 0, x.size)
    error = dequantized(number, out, x.size) - x
    assert at == -1 and error.std() < x.std() * 2.0 ** (1 - lib.type_facts(number).bits)
    assert name_of(number) in requantize.KINDS


def test_kinds_of_gguf_quantize_in_their_order():
    assert requantize.KINDS == (
        *("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q4_K_S", "Q4_K_M"),
        *("Q5_K", "Q5_K_S", "Q5_K_M", "Q6_K", "F16", "BF16", "F32"),
    )
