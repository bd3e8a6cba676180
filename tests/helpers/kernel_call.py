"""Kernels called on arrays between poisoned margins; random weights; the instruction sets that are
compared.
"""

import numpy as np
import pytest
from conftest import sets_here
from gguf_writer import BF16, BLOCK_TYPES, F16, F32, random_blocks

from sluice.kernels import ffi, lib
from sluice.model.model import known_sets

SETS = sets_here()
POISON = 64  # NaN floats before and behind every buffer

# Each instruction set of this processor; what a run prints at its end names the others.
for_each_set = pytest.mark.parametrize(
    "isa",
    [
        pytest.param(name, marks=pytest.mark.tiles) if name == "amx" else name
        for name in known_sets()
        if name in SETS and name != "reference"
    ],
)


def need(isa):
    if isa not in SETS:
        pytest.skip(f"this processor does not have {isa}")


class Buffer:
    """An array of `n` elements between NaN-filled margins (0xff in every byte is NaN in f32 and
    f16).
    """

    def __init__(self, n, dtype=np.float32, values=None):
        self.dtype = np.dtype(dtype)
        self.margin = POISON * 4
        self.bytes = np.full(n * self.dtype.itemsize + 2 * self.margin, 0xFF, np.uint8)
        self.a = self.bytes[self.margin : self.margin + n * self.dtype.itemsize].view(self.dtype)
        if values is not None:
            self.a[:] = np.asarray(values).ravel()

    def p(self, ctype="float *"):
        """A pointer that keeps the array alive as long as it lives itself."""
        return ffi.from_buffer(
            "uint8_t[]" if ctype == "void *" else ctype.replace(" *", "[]"), self.a.view(np.uint8)
        )

    def margins_untouched(self):
        return (self.bytes[: self.margin] == 0xFF).all() and (
            self.bytes[-self.margin :] == 0xFF
        ).all()


def number_of(name):
    return (
        BLOCK_TYPES[name][0]
        if name in BLOCK_TYPES
        else {"F32": F32, "F16": F16, "BF16": BF16}[name]
    )


def block_of(name):
    return BLOCK_TYPES[name][1] if name in BLOCK_TYPES else 1


def activations_of(name):
    """Elements of int8 activations with a scale that products with this type read; 1: f32."""
    return lib.type_facts(number_of(name)).activations


def weights(rng, name, rows, n):
    """`rows` rows of random weights as GGUF bytes; scales are ordinary numbers, everything else any
    bits.
    """
    if name in BLOCK_TYPES:
        return random_blocks(rng, name, rows * n // block_of(name)).tobytes()
    w = rng.normal(size=(rows, n)).astype("<f2" if name == "F16" else "<f4")
    return (w.view("<u4") >> 16).astype("<u2").tobytes() if name == "BF16" else w.tobytes()


def quantised(x, n_tok, n, block):
    """The buffers q, d, s, sums of x by blocks of 32 or 256; None for what the other one has."""
    q, d = Buffer(n_tok * n, np.int8), Buffer(n_tok * n // block)
    s, sums = (
        (Buffer(n_tok * n // 32), None)
        if block == 32
        else (None, Buffer(n_tok * n // 16, np.int16))
    )
    if block == 32:
        lib.quantize_q8(q.p("int8_t *"), d.p(), s.p(), x.p(), n_tok, n)
    else:
        lib.quantize_q8_k(q.p("int8_t *"), d.p(), sums.p("int16_t *"), x.p(), n_tok, n)
    assert all(part.margins_untouched() for part in (q, d, s, sums) if part)
    return q, d, s, sums


def product(name, raw, x, n_tok, rows, n, pick=None):
    w = Buffer(len(raw), np.uint8, np.frombuffer(raw, np.uint8))
    y = Buffer(n_tok * (len(pick) if pick is not None else rows))
    tokens = ffi.NULL if pick is None else ffi.new("int32_t[]", list(pick))
    floats, parts = x.p(), [ffi.NULL] * 4
    if activations_of(name) > 1:
        held = quantised(x, n_tok, n, activations_of(name))
        kinds = ("int8_t *", "float *", "float *", "int16_t *")
        floats, parts = (
            ffi.NULL,
            [part.p(kind) if part else ffi.NULL for part, kind in zip(held, kinds)],
        )
    lib.matmul(
        y.p(),
        number_of(name),
        w.p("void *"),
        tokens,
        floats,
        *parts,
        n_tok,
        rows if pick is None else len(pick),
        n,
    )
    assert y.margins_untouched()
    return y.a.copy()


def both(call):
    """The bytes call() gives under every instruction set; they must agree."""
    out = []
    for isa in SETS:
        lib.isa_select(isa.encode())
        out.append(call().tobytes())
    assert len(set(out)) == 1
    return np.frombuffer(out[0], np.float32)
