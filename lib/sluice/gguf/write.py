"""GGUF writer, version 3 (file.py has the layout). Atomic; memory: one piece of a tensor.

    write("m.gguf", {"general.architecture": ("string", "llama")},
          [("a.weight", 0, (64, 2), pieces)])

metadata  dict: key -> (kind, value). kind is a name of metadata.KIND_NAMES except "array"; or
          "[kind]" for an iterable; or "raw" for bytes, type number first, or a metadata.Unread
          (gguf.File.raw returns both)
tensors   list of (name, GGML type number, shape in GGUF order: row length first, data). data is
          bytes, or a function without arguments that returns an iterable of pieces of bytes; it is
          called when the tensor is written
"""

import os
import struct

from ..faults import NO_OUTPUT, TRY_AGAIN, Error
from ..kernels import lib
from ..system import files
from .metadata import ARRAY, ARRAY_HEAD, KIND, KIND_NAMES, SCALARS, Unread

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any, BinaryIO

    Metadata = Mapping[str, tuple[str, Any]]
    Tensors = Sequence[tuple[str, int, Sequence[int], Any]]

ALIGNMENT = 32
LENGTH = struct.Struct("<Q")
HEADER = struct.Struct("<4sIQQ")  # magic, version, n_tensors, n_kv


def string(text: str | bytes) -> bytes:
    """Return u64 n_bytes and the bytes of `text` (str or bytes)."""
    data = text.encode() if isinstance(text, str) else text
    return LENGTH.pack(len(data)) + data


def value(kind: str, v: "Any") -> bytes:
    """Return the bytes of a metadata value of `kind`, without the type number."""
    if kind == "string":
        return string(v)
    if not kind.startswith("["):
        return SCALARS[KIND_NAMES.index(kind)].pack(v)
    number, v = KIND_NAMES.index(kind[1:-1]), list(v)
    head = ARRAY_HEAD.pack(number, len(v))
    if number in SCALARS:
        return head + struct.pack(f"<{len(v)}{SCALARS[number].format[1:]}", *v)
    return head + b"".join(map(string, v))


def key_value(key: str, kind: str, v: "Any") -> bytes:
    """Return the bytes of a metadata entry; for an Unread those before the value."""
    if kind == "raw":
        return string(key) + (b"" if isinstance(v, Unread) else bytes(v))
    return (
        string(key)
        + KIND.pack(ARRAY if kind.startswith("[") else KIND_NAMES.index(kind))
        + value(kind, v)
    )


def tensor_bytes(type: int, shape: "Sequence[int]") -> int:
    """Return the bytes of a tensor's data, without padding."""
    n_row = 1
    for n in shape[1:]:
        n_row *= n
    row_bytes = lib.type_row_bytes(type, shape[0])
    if row_bytes <= 0:
        raise ValueError(f"no row of {shape[0]} elements of type number {type}")
    return row_bytes * n_row


def padding(n_bytes: int, alignment: int) -> int:
    """Return the bytes of padding after `n_bytes` bytes."""
    return -n_bytes % alignment


def head(metadata: "Metadata", tensors: "Tensors", alignment: int = ALIGNMENT) -> bytes:
    """Return all bytes before the tensor data, padding included. No value may be an Unread."""
    return b"".join(Head(metadata, tensors, alignment).pieces)


class Head:
    """All bytes before the tensor data, padding included. An alignment other than 32 must be in
    `metadata`, too.

    pieces   list of bytes and Unread
    n_bytes  bytes of all pieces;   n_bare: the same without padding
    """

    def __init__(
        self, metadata: "Metadata", tensors: "Tensors", alignment: int = ALIGNMENT, version: int = 3
    ) -> None:
        self.pieces, offset = [HEADER.pack(b"GGUF", version, len(tensors), len(metadata))], 0
        for key, (kind, v) in metadata.items():
            self.pieces += [key_value(key, kind, v), *([v] if isinstance(v, Unread) else ())]
        for name, type, shape, _ in tensors:
            self.pieces.append(tensor_entry(name, type, shape, offset))
            n_bytes = tensor_bytes(type, shape)
            offset += n_bytes + padding(n_bytes, alignment)
        self.n_bare = sum(p.raw_bytes if isinstance(p, Unread) else len(p) for p in self.pieces)
        self.pieces.append(bytes(padding(self.n_bare, alignment)))
        self.n_bytes = self.n_bare + len(self.pieces[-1])

    def write(self, f: "BinaryIO") -> None:
        """Write the pieces to the open file `f`."""
        for piece in self.pieces:
            f.writelines(piece.raw() if isinstance(piece, Unread) else (piece,))


def tensor_entry(name: str, type: int, shape: "Sequence[int]", offset: int) -> bytes:
    """Return the bytes of an entry of the tensor directory."""
    return string(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, type, offset)


def data_bytes(tensors: "Tensors", alignment: int = ALIGNMENT) -> int:
    """Return the bytes of the data of `tensors`, padding included."""
    sizes = [tensor_bytes(type, shape) for _, type, shape, _ in tensors]
    return sum(n + padding(n, alignment) for n in sizes)


def file_bytes(head: bytes, tensors: "Tensors", alignment: int = ALIGNMENT) -> int:
    """Return the size in bytes of a file with this head and these tensors."""
    return len(head) + data_bytes(tensors, alignment)


def write(
    path: str,
    metadata: "Metadata",
    tensors: "Tensors",
    alignment: int = ALIGNMENT,
    check: "Callable[[], object]" = lambda: None,
    version: int = 3,
) -> None:
    """Write the file atomically.

    check: called when everything is written and the file has no name yet; if it raises, `path`
    stays as it was. Error 73, 74 or 75, and `path` stays as it was. 75 if the disk is too full,
    before a byte is written.
    """
    path, data = os.fspath(path), Head(metadata, tensors, alignment, version)

    def fill(f):
        fill_file(f, data, tensors, alignment)
        check()

    check_disk_space(path, data.n_bytes + data_bytes(tensors, alignment))
    files.write(path, fill)


def fill_file(f: "BinaryIO", head: "Head", tensors: "Tensors", alignment: int = ALIGNMENT) -> None:
    """Write a Head and the data of its tensors to an open file."""
    head.write(f)
    for name, type, shape, pieces in tensors:
        n_bytes = tensor_bytes(type, shape)
        _write_tensor(f, name, n_bytes, pieces)
        f.write(bytes(padding(n_bytes, alignment)))


def _write_tensor(f, name, n_bytes, pieces):
    left = n_bytes
    for piece in pieces() if callable(pieces) else (pieces,):
        f.write(piece)
        left -= len(piece)
    if left:
        raise ValueError(
            f"tensor {name}: {n_bytes - left} bytes of data, but its shape needs {n_bytes}"
        )


def check_disk_space(path: str, n_bytes: int) -> None:
    """Error 75 if the disk has less than `n_bytes` free for a new file `path`; 73 if there is
    no directory.
    """
    try:
        s = os.statvfs(os.path.dirname(path) or ".")
    except OSError as e:
        raise files.write_error(path, e, NO_OUTPUT) from None
    free = s.f_bavail * s.f_frsize
    if s.f_blocks and n_bytes > free:
        raise Error(
            TRY_AGAIN, f"{path}: cannot write: {n_bytes:,} bytes are needed, {free:,} are free"
        )
