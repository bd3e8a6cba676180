"""Forms in which vectors are printed: JSON lines, a NumPy array (.npy), or bare f32.

A text without a vector, because it is empty or has an error, has null or "error" in JSON. In the
other forms its row is NaN, so rows and texts keep step.
"""

import json
import re
import struct
import tempfile

from .. import stream
from ..classify.writers import Output, why
from ..jsonl import BadLine, dump
from ..texts.sources import Item

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .embedder import Vector

JSONL, NPY, F32 = FORMATS = "jsonl", "npy", "f32"
IN_MEMORY = 1 << 24  # bytes of output that are held back before they go into a file
NAN = struct.pack("<f", float("nan"))
ALIGNMENT = 64  # of the data of a .npy


class Objects(Output):
    """An object a line: name (id: of JSON lines), embedding; cut if the end of the text was
    dropped.
    """

    def __init__(self, write: "Callable[[bytes], object]", key: str) -> None:
        super().__init__()
        self._write, self._key = write, key
        self.at_once = self.says_errors = key == "id"

    def put(self, item: Item, found: "Vector | Exception | None") -> int:
        """Write what was found of a text."""
        fields: dict[str, Any] = {"id": item.id}
        if self._key == "name":
            name = item.name.encode("utf-8", "surrogateescape")
            fields = {"name": name.decode("utf-8", "backslashreplace")}
        if isinstance(found, Exception):
            is_plain = self.says_errors and isinstance(found, BadLine)
            fields["error"] = str(found) if is_plain else why(item, found)
        elif found is None:
            fields["embedding"] = None
        else:
            if found.cut:
                fields["cut"] = True
            start = json.dumps(fields)[:-1].encode()
            self._out.append(b'%s, "embedding": [%s]}\n' % (start, numbers(found.values)))
            return 0
        self._out.append(dump(fields))
        return 0

    def flush(self) -> None:
        """Write what was put."""
        _flush(self._out, self._write)


class Rows(Output):
    """The bytes of the vectors, one behind the other. n: rows so far."""

    def __init__(self, write: "Callable[[bytes], object]", dimensions: int) -> None:
        super().__init__()
        self._write, self._none, self.n = write, NAN * dimensions, 0

    def put(self, item: Item, found: "Vector | Exception | None") -> int:
        """Write what was found of a text."""
        is_missing = found is None or isinstance(found, Exception)
        self._out.append(self._none if is_missing else found.values)  # type: ignore[union-attr]
        self.n += 1
        return 0

    def flush(self) -> None:
        """Write what was put."""
        _flush(self._out, self._write)


def _flush(out, write):
    if out:
        write(b"".join(out))
        out.clear()


class Held:
    """Output that is held back until all of it is known, in memory or in a file without a name."""

    def __init__(self) -> None:
        self._file = tempfile.SpooledTemporaryFile(IN_MEMORY)
        self.write = self._file.write

    def copy(self, write: "Callable[[bytes], object]") -> None:
        """Write it all."""
        self._file.seek(0)
        while data := self._file.read(1 << 20):
            write(data)


def numbers(values: bytes) -> bytes:
    """Return f32 numbers as JSON writes them, with the digits that tell each from all others."""
    found = struct.unpack(f"={len(values) // 4}f", values)
    digits = ", ".join(["%.9g" % x for x in found])
    return re.sub(r"-0(?=,|$)", "-0.0", digits).encode()  # JSON reads -0 as a whole number


def npy_header(n: int, dimensions: int) -> bytes:
    """Return what a .npy (version 1.0) of f32 [n, dimensions] begins with."""
    text = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({n}, {dimensions}), }}".encode()
    before = b"\x93NUMPY\x01\x00"
    room = -(len(before) + 2 + len(text) + 1) % ALIGNMENT
    return before + struct.pack("<H", len(text) + room + 1) + text + b" " * room + b"\n"


def to_stdout(data: bytes) -> None:
    """Write to standard output."""
    stream.write_all(1, data)
