"""Text of tensor data for gguf-dump, and its check for values that are not finite."""

from ..faults import BAD_DATA, Error
from ..kernels import ffi, lib
from .metadata import F32
from .printing import number, put, shape
from .tensor import type_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from .file import File
    from .tensor import Tensor

CHECK_ELEMENTS = 1 << 15  # of a tensor at a time: a multiple of every block


def hexdump_lines(file: "File", tensor: "Tensor", n: int) -> "Iterator[str]":
    """Yield lines of the first `n` bytes: offset in the file, 16 bytes in hex, and as ASCII."""
    data = file.read(tensor, 0, min(n, tensor.n_bytes))
    for at in range(0, len(data), 16):
        row = data[at : at + 16]
        text = "".join(chr(c) if 32 <= c < 127 else "." for c in row)
        yield f"{tensor.offset + at:08x}  {row[:8].hex(' '):23}  {row[8:].hex(' '):23}  |{text}|"


def values(file: "File", tensor: "Tensor", n: int) -> list[float]:
    """Return the first `n` elements as a list of floats, each exactly an f32."""
    tensor.check_type()
    block = lib.type_block(tensor.type)
    n = min(n, tensor.n_elements)
    n_whole = -(-n // block) * block
    y = ffi.new("float[]", n_whole)
    lib.dequantize_row(
        y,
        tensor.type,
        ffi.from_buffer(file.read(tensor, 0, lib.type_row_bytes(tensor.type, n_whole))),
        n_whole,
    )
    return ffi.unpack(y, n)


def values_lines(file: "File", tensor: "Tensor", n: int) -> "Iterator[str]":
    """Yield a head line and the first `n` elements, eight per line."""
    yield f"{tensor.name}  {type_name(tensor.type)}  {shape(tensor)}"
    v = values(file, tensor, n)
    for i in range(0, len(v), 8):
        yield f"{i:8}  " + "  ".join(f"{number(x, F32):>15}" for x in v[i : i + 8])


def check(file: "File") -> None:
    """Check every stored scale and float for infinity and NaN, about 100 KB at a time.

    Prints a line for each tensor with such a value, then raises DataError. UnsupportedError if
    the type of a tensor cannot be checked.
    """
    n_bad, unknown, first = 0, None, ffi.new("int64_t *")
    for t in file.tensors.values():
        if not lib.type_supported(t.type):
            unknown = unknown or t
            continue
        n, where = 0, None
        for i in range(0, t.n_elements, CHECK_ELEMENTS):
            n_here = min(CHECK_ELEMENTS, t.n_elements - i)
            data = file.read(t, lib.type_row_bytes(t.type, i), lib.type_row_bytes(t.type, n_here))
            n += lib.count_nonfinite(first, t.type, ffi.from_buffer(data), n_here)
            if where is None and first[0] >= 0:
                where = i + first[0]
        if n:
            n_bad += 1
            index = []
            for d in t.shape:
                index.append(where % d)
                where //= d
            put([f"{t.name}: {n} not finite, the first at {index}"])
    file.check_unchanged()
    if n_bad:
        raise Error(
            BAD_DATA,
            f"{file.path}: {n_bad} of {len(file.tensors)} tensors have values that are not finite",
        )
    if unknown:
        unknown.check_type()
