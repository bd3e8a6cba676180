"""Tensor directory of a GGUF file (file.py): entries, checked, and the place of their data."""

import struct

from ..faults import printable, unsupported_error
from ..kernels import ffi, lib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..faults import Error
    from .cursor import Cursor
    from .part import Part

N_DIMS = struct.Struct("<I")
TAIL = struct.Struct("<IQ")
DIMS = {n: struct.Struct(f"<{n}Q") for n in (1, 2, 3, 4)}
MIN_BYTES = 8 + 1 + 4 + 8 + 4 + 8  # of an entry
MAX_NAME_BYTES = 64
MAX_DIM, MAX_BYTES = 1 << 40, 1 << 63
# Type numbers of GGML that are in no file: why, and their names
NOT_IN_FILES = {
    "was withdrawn": {
        4: "Q4_2",
        5: "Q4_3",
        31: "Q4_0_4_4",
        32: "Q4_0_4_8",
        33: "Q4_0_8_8",
        36: "IQ4_NL_4_4",
        37: "IQ4_NL_4_8",
        38: "IQ4_NL_8_8",
    },
    "is a format of activations": {9: "Q8_1", 15: "Q8_K"},
}


class Tensor:
    """One entry of the tensor directory.

    type     GGML type number, even one that this build does not compute with
    shape    tuple, in GGUF order: row length first; without trailing dimensions of 1
    dims     the dimensions as stored
    offset   bytes from the start of the file
    n_bytes  of data, without padding
    part     the Part that contains it
    """

    __slots__ = ("name", "type", "dims", "shape", "offset", "n_bytes", "part")

    def __init__(
        self, name: str, type: int, dims: tuple[int, ...], offset: int, n_bytes: int, part: "Part"
    ) -> None:
        self.name, self.type, self.dims, self.shape = name, type, dims, without_ones(dims)
        self.offset, self.n_bytes, self.part = offset, n_bytes, part

    @property
    def n_elements(self) -> int:
        """Number of elements."""
        n = 1
        for d in self.shape:
            n *= d
        return n

    def check_type(self) -> None:
        """UnsupportedError if this build does not compute with the type."""
        if not lib.type_supported(self.type):
            problem = f"type {type_name(self.type)} is not supported by this build"
            raise unsupported_error(self.part.path, f"tensor {self.name}: {problem}")

    def data_error(self, problem: str) -> "Error":
        """A DataError (65) that names this tensor."""
        return self.part.data_error(f"tensor {self.name}: {problem}")


def without_ones(dims: tuple[int, ...]) -> tuple[int, ...]:
    """Return `dims` without trailing dimensions of 1: a tuple of at least one number."""
    n = len(dims)
    while n > 1 and dims[n - 1] == 1:
        n -= 1
    return tuple(dims[:n])


def type_name(kind: int) -> str:
    """Return the customary name of a GGML type number, or the number as text."""
    name = ffi.string(lib.type_name(kind)).decode() if kind < 1 << 31 else ""
    return name or f"number {kind}"


def parse(cursor: "Cursor", i: int, part: "Part", others: dict[str, Tensor]) -> Tensor:
    """Parse entry `i` of the tensor directory of `part` at `cursor`.

    Return a Tensor whose offset is relative to the start of the tensor data. others: dict of
    the tensors before it, by name. Error 65 or 69.
    """
    data = cursor.string(f"tensor {i}: name", 1, MAX_NAME_BYTES)
    if not data.isascii() or not data.decode().isprintable():
        raise part.data_error(f"tensor {i}: name {printable(data)} is not printable ASCII")
    name = data.decode()
    label = f"tensor {name}"
    if name in others:
        raise part.data_error(f"{label}: the name appears twice")
    (n_dims,) = cursor.unpack(N_DIMS, label)
    if not 1 <= n_dims <= 4:
        raise part.data_error(f"{label}: n_dims {n_dims} is not 1 to 4")
    shape = cursor.unpack(DIMS[n_dims], label)
    kind, offset = cursor.unpack(TAIL, label)
    for d in shape:
        if not 1 <= d <= MAX_DIM:
            raise part.data_error(f"{label}: dimension {d} is not 1 to 2^40")
    row_bytes = lib.type_row_bytes(kind, shape[0]) if kind < 1 << 31 else 0
    if row_bytes == 0:
        raise unsupported_error(part.path, f"{label}: type number {kind}{_why_not(kind)}")
    if row_bytes < 0:
        raise part.data_error(
            f"{label}: row of {shape[0]} is not a multiple of the {type_name(kind)} block, "
            f"{lib.type_block(kind)}"
        )
    tensor = Tensor(name, kind, shape, offset, 0, part)
    tensor.n_bytes = row_bytes * (tensor.n_elements // shape[0])  # Python integers do not wrap
    if tensor.n_elements >= MAX_BYTES or tensor.n_bytes >= MAX_BYTES:
        raise part.data_error(f"{label}: dimensions {shape} are more than 2^63 bytes")
    return tensor


def _why_not(kind):
    for why, names in NOT_IN_FILES.items():
        if kind in names:
            return f", {names[kind]}, {why}"
    return " is not known to this build"


def place(tensors: "Iterable[Tensor]", part: "Part", alignment: int) -> None:
    """Make the offsets absolute. DataError unless the data are consecutive, padded to
    `alignment` and within the file.
    """
    expected = 0
    for t in tensors:
        if t.offset % alignment:
            raise part.data_error(
                f"tensor {t.name}: offset {t.offset} is not a multiple of the alignment,"
                f" {alignment}"
            )
        if t.offset != expected:
            raise part.data_error(
                f"tensor {t.name}: offset {t.offset}, but the tensors before it end at {expected}"
            )
        t.offset += part.data_offset
        if t.offset + t.n_bytes > part.size:
            end = t.offset + t.n_bytes
            raise t.data_error(f"ends at byte {end}, but the file has {part.size}")
        expected += -(-t.n_bytes // alignment) * alignment
