"""Rows of numbers from type to type. The one place where a type of weights is added: ENCODE, by name.

    encode("Q8_0", x, "tensor a.weight")    bytes of x, f32 [n, n_in], whole rows
"""
import numpy as np

from ..faults import BAD_DATA, Fault
from ..kernels import ffi, lib

NUMBERS = {ffi.string(lib.type_name(i)).decode(): i for i in range(64) if lib.type_supported(i)}
STORED = {"F32": np.dtype("<f4"), "F16": np.dtype("<f2"), "BF16": np.dtype("<u2")}  # bf16: its bits
BLOCK = {"F32": 1, "F16": 1, "BF16": 1, "Q8_0": 32}  # elements; a row is a multiple of it
FILE_TYPES = {"F32": 0, "F16": 1, "Q8_0": 7, "BF16": 32}  # general.file_type


def to_f32(x, type):
    """x, an array of STORED[type], as f32; exact."""
    if type == "BF16":
        return (x.astype(np.uint32) << 16).view(np.float32)
    return x.astype(np.float32, copy=False)


def check_finite(x, type, what):
    """Fault 65 where a number of `x` (of STORED[type]) is none: every format here can hold such, no model can use it."""
    if type == "BF16":
        wrong = (x & 0x7F80) == 0x7F80
    else:
        wrong = ~np.isfinite(x)
    if wrong.any():
        row, column = np.argwhere(wrong.reshape(len(x), -1))[0]
        raise Fault(BAD_DATA, f"{what}: element {column} of row {row} is not finite")


def f32(x, what):
    return x.astype("<f4", copy=False).tobytes()


def f16(x, what):
    """Rounded to nearest, ties to even; Fault 65 where a number is beyond 65504: another type has room for it."""
    with np.errstate(over="ignore"):
        y = x.astype("<f2")
    if not np.isfinite(y).all():
        raise Fault(BAD_DATA, f"{what}: {float(np.abs(x).max()):g} is more than F16 holds; --type F32 or BF16 holds it")
    return y.tobytes()


def bf16_bits(x):
    """u16: f32 rounded to nearest, ties to even, as torch and the gguf package do."""
    bits = x.astype(np.float32, copy=False).view(np.uint32)
    return ((bits + (0x7FFF + ((bits >> 16) & 1))) >> 16).astype(np.uint16)


def bf16(x, what):
    y = bf16_bits(x)
    check_finite(y, "BF16", what)  # the largest f32 round to infinity
    return y.astype("<u2").tobytes()


def q8_0(x, what):
    """Blocks of 32: f16 d = max |x| / 127, and int8 x / d rounded to nearest, halves away from zero. The bits of the gguf package."""
    x = x.reshape(-1, 32)
    d = np.abs(x).max(axis=1, keepdims=True) / np.float32(127)
    with np.errstate(divide="ignore", over="ignore"):
        inverse = np.where(d == 0, np.float32(0), np.float32(1) / d)
        y = x * inverse
    size = np.abs(y)
    floor = np.floor(size)
    q = np.sign(y) * (floor + np.floor(2 * (size - floor)))
    if not np.isfinite(inverse).all():  # of a block whose largest element is below 2^-119
        q = np.where(np.isfinite(inverse), q, 0)
    return blocks_q8_0(d, q.astype(np.int8), what)


def blocks_q8_0(d, q, what):
    """The bytes of blocks of scale `d` (f32 [n, 1], rounded to f16 here) and int8 [n, 32]."""
    with np.errstate(over="ignore"):
        d = d.astype("<f2")
    if not np.isfinite(d).all():
        raise Fault(BAD_DATA, f"{what}: a block is scaled by more than F16 holds")
    return np.concatenate([d.view(np.uint8).reshape(-1, 2), q.view(np.uint8).reshape(-1, 32)], axis=1).tobytes()


ENCODE = {"F32": f32, "F16": f16, "BF16": bf16, "Q8_0": q8_0}


def encode(type, x, what):
    return ENCODE[type](x, what)
