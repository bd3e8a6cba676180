"""Protocol Buffers wire format: reader and writer of the parts that model files need.

Source: https://protobuf.dev/programming-guides/encoding/. A message is a sequence of fields: a
varint, number << 3 | wire type, and a value: 0 varint, 1 eight bytes, 2 varint length and that many
bytes, 5 four bytes. Types 3 and 4 (groups) are refused; they have been obsolete since 2008.
"""

from __future__ import annotations

import builtins
import struct
from collections.abc import Iterator
from typing import Any

from ..faults import data_error, unsupported_error

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
MAX_VARINT_BYTES = 10


class Span:
    """Bytes `at` to `end` of a source: an object with path, size and bytes(at, n), such as a
    reader.Reader or a Memory.
    """

    __slots__ = ("source", "at", "end")

    def __init__(self, source: Any, at: int, end: int) -> None:
        self.source, self.at, self.end = source, at, end

    def bytes(self) -> builtins.bytes:
        """Return the bytes of the span."""
        return self.source.bytes(self.at, self.end - self.at)

    def fields(self) -> Iterator[tuple[int, int, Any]]:
        """Yield (number, wire type, value) of the message: an int, 4 or 8 bytes, or for
        BYTES a Span.

        DataError if it is not a message.
        """
        at = self.at
        while at < self.end:
            begin = at
            tag, at = self._varint(at)
            number, kind = tag >> 3, tag & 7
            if not 1 <= number < 1 << 29:
                raise data_error(
                    self.source.path,
                    f"byte {begin}: field number {number}: not a message of protocol buffers",
                )
            if kind == VARINT:
                value, at = self._varint(at)
            elif kind == BYTES:
                n, at = self._varint(at)
                value, at = Span(self.source, at, at + n), at + n
            elif kind in (FIXED32, FIXED64):
                n = 4 if kind == FIXED32 else 8
                if at + n > self.end:
                    raise data_error(
                        self.source.path, f"byte {begin}: field {number} ends beyond its message"
                    )
                value, at = self.source.bytes(at, n), at + n
            else:
                raise unsupported_error(
                    self.source.path, f"byte {begin}: wire type {kind} of protocol buffers"
                )
            if at > self.end:
                raise data_error(
                    self.source.path,
                    f"byte {begin}: field {number} ends {at - self.end} bytes beyond its message",
                )
            yield number, kind, value

    def _varint(self, at):
        value, data = 0, self.source.bytes(at, min(MAX_VARINT_BYTES, self.end - at))
        for i, byte in enumerate(data):
            value |= (byte & 0x7F) << 7 * i
            if byte < 0x80:
                return value & (1 << 64) - 1, at + i + 1
        raise data_error(
            self.source.path,
            f"byte {at}: a number of more than {len(data)} bytes: cut, or not a message of protocol"
            " buffers",
        )


class Memory:
    """Bytes in memory as the source of a Span."""

    def __init__(self, path: str, data: bytes) -> None:
        self.path, self.data, self.size = path, data, len(data)

    def bytes(self, at: int, n: int) -> builtins.bytes:
        """Return `n` bytes from `at` on."""
        return self.data[at : at + n]


def message(path: str, data: bytes) -> Span:
    """Return the Span of a message in memory."""
    return Span(Memory(path, data), 0, len(data))


def floats(kind: int, value: Any, path: str, label: str) -> Any:
    """Return the f32 of one occurrence of a repeated float: packed or single."""
    data = value.bytes() if kind == BYTES else value
    if kind not in (BYTES, FIXED32) or len(data) % 4:
        raise data_error(path, f"{label}: not floats")
    return struct.unpack(f"<{len(data) // 4}f", data)


def int32(kind: int, value: Any, path: str, label: str) -> int:
    """Return an int32 field. DataError names `label`."""
    if kind != VARINT:
        raise data_error(path, f"{label}: not an integer")
    return (value & 0xFFFFFFFF) - (value << 1 & 1 << 32)


def put_varint(n: int) -> bytes:
    """Return a varint."""
    out = bytearray()
    n &= (1 << 64) - 1
    while n > 0x7F:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    out.append(n)
    return bytes(out)


def put_bytes(number: int, data: bytes) -> bytes:
    """Return a field of bytes."""
    return put_varint(number << 3 | BYTES) + put_varint(len(data)) + data


def put_int(number: int, n: int) -> bytes:
    """Return a proto3 integer field: nothing for 0."""
    return put_varint(number << 3 | VARINT) + put_varint(n) if n else b""
