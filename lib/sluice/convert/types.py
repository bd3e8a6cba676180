"""Rows of numbers from type to type: arrays of numpy in, bytes out. The work is in
csrc/formats/encode.c, the rules are in mixes.py.

    encode("Q8_0", x, "F32", "tensor a.weight")    bytes of x, f32 [n, n_in], whole rows
"""

from __future__ import annotations

import numpy as np

from ..faults import BAD_DATA, Error
from ..kernels import ffi, lib
from ..quantize import mixes, requantize

NUMBERS = mixes.numbers()
STORED = {"F32": np.dtype("<f4"), "F16": np.dtype("<f2"), "BF16": np.dtype("<u2")}  # bf16: its bits


def to_f32(x: np.ndarray, type: str) -> np.ndarray:
    """x, an array of STORED[type], as f32; exact."""
    if type == "BF16":
        return (x.astype(np.uint32) << 16).view(np.float32)
    return x.astype(np.float32, copy=False)


def check_finite(x: np.ndarray, type: str, what: str, first: int = 0) -> None:
    """DataError where a number of `x` (of STORED[type]) is none: every format here can hold such,
    no model can use it.
    """
    at = ffi.new("int64_t *")
    if lib.count_nonfinite(at, NUMBERS[type], ffi.from_buffer(x), x.size):
        raise _stopped(what, first + at[0] // x.shape[-1], type, False)


def encode(type: str, x: np.ndarray, stored: str, what: str, first: int = 0) -> bytearray:
    """The bytes of x, contiguous rows of STORED[stored], [n, n_in], as `type`; rows are whole
    blocks of it.

    DataError names the row, x[0] being row `first` of `what`, where a number is none or beyond the
    type.
    """
    out, beyond = bytearray(lib.type_row_bytes(NUMBERS[type], x.size)), ffi.new("int32_t *")
    at = lib.encode_weights(
        beyond, ffi.from_buffer(out), NUMBERS[type], ffi.from_buffer(x), NUMBERS[stored], x.size
    )
    if at >= 0:
        raise _stopped(what, first + at // x.shape[-1], type, beyond[0])
    return out


def _stopped(what, row, type, beyond):
    return Error(BAD_DATA, f"{what}: row {row}: {requantize.reason(NUMBERS[type], beyond)}")


def blocks_q8_0(d: np.ndarray, q: np.ndarray, what: str) -> bytes:
    """The bytes of blocks of scale `d` (f32 [n, 1], rounded to f16 here) and int8 [n, 32]."""
    with np.errstate(over="ignore"):
        d = d.astype("<f2")
    if not np.isfinite(d).all():
        raise Error(BAD_DATA, f"{what}: a block is scaled by more than F16 holds")
    return np.concatenate(
        [d.view(np.uint8).reshape(-1, 2), q.view(np.uint8).reshape(-1, 32)], axis=1
    ).tobytes()
