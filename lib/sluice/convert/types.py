"""Number types of weights: numpy arrays to encoded bytes (csrc/formats/encode.c, rules in
mixes.py).

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
    """Return x, an array of STORED[type], as f32; exact."""
    if type == "BF16":
        return (x.astype(np.uint32) << 16).view(np.float32)
    return x.astype(np.float32, copy=False)


def check_finite(x: np.ndarray, type: str, label: str, first: int = 0) -> None:
    """DataError if an element of `x` (of STORED[type]) is infinite or NaN."""
    at = ffi.new("int64_t *")
    if lib.count_nonfinite(at, NUMBERS[type], ffi.from_buffer(x), x.size):
        raise _stopped(label, first + at[0] // x.shape[-1], type, False)


def encode(type: str, x: np.ndarray, stored: str, label: str, first: int = 0) -> bytearray:
    """Return the bytes of x as `type`.

    x: contiguous rows of STORED[stored], [n, n_in]; rows are whole blocks of `type`. DataError
    names the row if a number is not finite or too large for the type; x[0] is row `first` of
    `label`.
    """
    out, beyond = bytearray(lib.type_row_bytes(NUMBERS[type], x.size)), ffi.new("int32_t *")
    at = lib.encode_weights(
        beyond, ffi.from_buffer(out), NUMBERS[type], ffi.from_buffer(x), NUMBERS[stored], x.size
    )
    if at >= 0:
        raise _stopped(label, first + at // x.shape[-1], type, beyond[0])
    return out


def _stopped(label, row, type, beyond):
    return Error(BAD_DATA, f"{label}: row {row}: {requantize.reason(NUMBERS[type], beyond)}")


def blocks_q8_0(d: np.ndarray, q: np.ndarray, label: str) -> bytes:
    """Return the bytes of Q8_0 blocks: scales `d` (f32 [n, 1], rounded to f16 here) and int8
    [n, 32].
    """
    with np.errstate(over="ignore"):
        d = d.astype("<f2")
    if not np.isfinite(d).all():
        raise Error(BAD_DATA, f"{label}: the scale of a block is too large for F16")
    return np.concatenate(
        [d.view(np.uint8).reshape(-1, 2), q.view(np.uint8).reshape(-1, 32)], axis=1
    ).tobytes()
