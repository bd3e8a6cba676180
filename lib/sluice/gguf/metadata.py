"""GGUF metadata parser: keys with typed values, checked."""

import re
import struct

from ..faults import printable, unsupported_error
from ..kernels import ffi, lib
from .cursor import LENGTH

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from .cursor import Cursor
    from .part import Part

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
SCALARS = {
    k: struct.Struct("<" + c)
    for k, c in (
        (U8, "B"),
        (I8, "b"),
        (U16, "H"),
        (I16, "h"),
        (U32, "I"),
        (I32, "i"),
        (F32, "f"),
        (BOOL, "B"),
        (U64, "Q"),
        (I64, "q"),
        (F64, "d"),
    )
}
KIND_NAMES = (
    "u8",
    "i8",
    "u16",
    "i16",
    "u32",
    "i32",
    "f32",
    "bool",
    "string",
    "array",
    "u64",
    "i64",
    "f64",
)
# kind: from -signed << bits to 1 << bits
INTEGERS = {
    U8: (0, 8),
    I8: (1, 7),
    U16: (0, 16),
    I16: (1, 15),
    U32: (0, 32),
    I32: (1, 31),
    U64: (0, 64),
    I64: (1, 63),
}

KIND = struct.Struct("<I")
ARRAY_HEAD = struct.Struct("<IQ")
MAX_KEY_BYTES, MAX_STRING_BYTES = 65_535, 1 << 20
LARGE = 1 << 16  # bytes: a longer value stays in the file, unless its key is in KEPT
KEPT = re.compile(
    r"tokenizer\.ggml\.(tokens|scores|token_type|merges|precompiled_charsmap)"
    r"|tokenizer\.chat_template.*"
)
PIECE = 1 << 20  # bytes of an Unread that are in memory at a time
MAX_SCAN_BYTES = 1 << 30  # of arrays of strings in a file: finding their end needs a read


class Array:
    """A metadata array.

    kind   type number of the elements
    n      number of elements
    raw    their bytes as in the file: a buffer, for ffi.from_buffer and memoryview
    """

    __slots__ = ("kind", "n", "raw")

    def __init__(self, kind: int, n: int, raw: "Any") -> None:
        self.kind, self.n, self.raw = kind, n, raw

    def values(self, maximum: int | None = None) -> "list[Any]":
        """Return the first `maximum` elements (default: all) as a list; strings as bytes."""
        n = self.n if maximum is None else min(self.n, maximum)
        if self.kind == STRING:
            out, at = [], 0
            for _ in range(n):
                (n_bytes,) = LENGTH.unpack_from(self.raw, at)
                out.append(self.raw[at + 8 : at + 8 + n_bytes])
                at += 8 + n_bytes
            return out
        one = SCALARS[self.kind]
        values = list(struct.unpack_from(f"<{n}{one.format[1:]}", self.raw))
        return [bool(v) for v in values] if self.kind == BOOL else values


class Unread:
    """A long value that no command needs. It stays in the file and is read from there on
    request.

    kind    type number of the elements of an array; None: it is a string
    n       elements of the array, or bytes of the string
    offset  place in the file of the first element or byte;   n_bytes: bytes of all of them
    """

    __slots__ = ("kind", "n", "offset", "n_bytes", "_part", "_key")

    def __init__(
        self, part: "Part", key: str, kind: int | None, n: int, offset: int, n_bytes: int
    ) -> None:
        self._part, self._key = part, key
        self.kind, self.n, self.offset, self.n_bytes = kind, n, offset, n_bytes

    @property
    def raw_bytes(self) -> int:
        """Bytes of the stored value, type number included."""
        return len(self._head()) + self.n_bytes

    def _head(self):
        if self.kind is None:
            return KIND.pack(STRING) + LENGTH.pack(self.n)
        return KIND.pack(ARRAY) + ARRAY_HEAD.pack(self.kind, self.n)

    def raw(self) -> "Iterator[bytes]":
        """Yield the bytes of the stored value, type number first, in pieces."""
        yield self._head()
        yield from self.pieces()

    def pieces(self, maximum: int | None = None) -> "Iterator[bytes]":
        """Yield the bytes of the value, at most `maximum`, in pieces. Error 74."""
        n_bytes = self.n_bytes if maximum is None else min(maximum, self.n_bytes)
        at, end = self.offset, self.offset + n_bytes
        while at < end:
            data = self._part.read(min(PIECE, end - at), at, self._key, 1)
            yield data
            at += len(data)

    def values(self, maximum: int | None = None) -> "Iterator[Any]":
        """Yield the elements of the array, at most `maximum`. Strings are bytes, cut to
        PIECE if longer.
        """
        n = self.n if maximum is None else min(self.n, maximum)
        return self._strings(n) if self.kind == STRING else self._scalars(n)

    def _scalars(self, n_left):
        one, data = SCALARS[self.kind], b""
        for piece in self.pieces(n_left * SCALARS[self.kind].size):
            data += piece
            whole = len(data) // one.size * one.size
            for (value,) in one.iter_unpack(data[:whole]):
                yield bool(value) if self.kind == BOOL else value
            data = data[whole:]

    def _strings(self, n_left):
        at, data, begin = self.offset, b"", 0  # data: bytes from `at` on; begin: of the next string
        for _ in range(n_left):
            end = begin + LENGTH.size
            if end <= len(data):
                end += LENGTH.unpack_from(data, begin)[0]
            if end > len(data):
                at, begin = at + begin, 0
                data = self._part.read(PIECE, at, self._key, LENGTH.size)
            (n_bytes,) = LENGTH.unpack_from(data, begin)
            yield data[begin + LENGTH.size : begin + LENGTH.size + n_bytes]
            begin += LENGTH.size + n_bytes
            if begin > len(data):
                at, begin, data = at + begin, 0, b""


def describe(value: "Any", kind: int) -> str:
    """Describe a value for a message: its type, and the value if it is a scalar."""
    if kind == ARRAY:
        return f"an array of {value.n} {KIND_NAMES[value.kind]}"
    if isinstance(value, Unread):
        return f"a string of {value.n} bytes"
    return f"{KIND_NAMES[kind]} {printable(value, 40) if kind == STRING else value}"


def parse_metadata(
    cursor: "Cursor", n_kv: int
) -> "tuple[dict[str, Any], dict[str, int], dict[str, Any]]":
    """Parse `n_kv` keys at the cursor. Return three dicts in file order:

        key -> bool, int, float, str, Array or Unread
        key -> type number
        key -> (begin, end) of the value in the cursor's memory, from the type number on; or None

    Invalid UTF-8 in a string becomes \\xNN in the str. DataError, UnsupportedError.
    """
    metadata, kinds, spans = {}, {}, {}
    for i in range(n_kv):
        name = cursor.string(f"key {i}", 1, MAX_KEY_BYTES)
        if not all(32 < c < 127 for c in name):
            raise cursor.data_error(f"key {i}: {printable(name)} is not printable ASCII")
        key = name.decode()
        field = key if len(key) <= 80 else f"{key[:77]}..."
        if key in metadata:
            raise cursor.data_error(f"{field}: the key appears twice")
        begin = cursor.at
        (kind,) = cursor.unpack(KIND, field)
        metadata[key] = value = _value(cursor, field, kind, KEPT.fullmatch(key) is not None)
        kinds[key], spans[key] = kind, None if isinstance(value, Unread) else (begin, cursor.at)
    return metadata, kinds, spans


def _value(cursor, field, kind, is_kept):
    if kind > F64:
        raise cursor.data_error(f"{field}: value type {kind} is not one of 0 to 12")
    if kind == STRING:
        return _string(cursor, field, is_kept)
    if kind == ARRAY:
        return _array(cursor, field, is_kept)
    (value,) = cursor.unpack(SCALARS[kind], field)
    if kind == BOOL:
        if value > 1:
            raise cursor.data_error(f"{field}: bool is {value}, not 0 or 1")
        return bool(value)
    return value


def _string(cursor, field, is_kept):
    (n_bytes,) = cursor.unpack(LENGTH, field)
    if n_bytes > LARGE and not is_kept:
        return _pass(cursor, field, None, n_bytes, n_bytes)
    if n_bytes > MAX_STRING_BYTES:
        raise cursor.data_error(f"{field}: length {n_bytes} is not within 0 to {MAX_STRING_BYTES}")
    return bytes(cursor.read(n_bytes, field)).decode("utf-8", "backslashreplace")


def _pass(cursor, field, kind, n, n_bytes):
    """Return the next `n_bytes` bytes as an Unread, and move the cursor behind them."""
    value = Unread(cursor.part, field, kind, n, cursor.offset, n_bytes)
    cursor.drop(cursor.at, n_bytes, field)
    return value


def _array(cursor, field, is_kept):
    kind, n = cursor.unpack(ARRAY_HEAD, field)
    if kind > F64:
        raise cursor.data_error(f"{field}: element type {kind} is not one of 0 to 12")
    if kind == ARRAY:
        raise unsupported_error(cursor.path, f"{field}: an array of arrays")
    width = LENGTH.size if kind == STRING else SCALARS[kind].size
    left = cursor.size - cursor.offset
    if n > left // width:
        raise cursor.data_error(f"{field}: {n} elements do not fit into {left} bytes")
    if kind == STRING:
        return _strings(cursor, field, n, is_kept)
    if n * width > LARGE and not is_kept:
        return _pass(cursor, field, kind, n, n * width)
    start = cursor.at
    part = cursor.read(n * width, field)
    if kind == BOOL:
        wrong = bytes(part).lstrip(b"\0\1")
        if wrong:
            raise cursor.data_error(
                f"{field}: element {n - len(wrong)} is {wrong[0]}, and a bool is 0 or 1"
            )
    return Array(kind, n, cursor.window(start, cursor.at))


def _strings(cursor, field, n, is_kept):
    """Parse the array of `n` strings at the cursor. The C scanner checks each length against
    the bytes read.
    """
    start, offset, n_done, scan = cursor.at, cursor.offset, 0, ffi.new("gguf_scan *")
    maximum = MAX_STRING_BYTES if is_kept else cursor.size
    while True:
        status = lib.gguf_skip_strings(
            scan, cursor.address, cursor.n_read, cursor.at, n - n_done, maximum
        )
        n_done += scan.n_done
        cursor.at = scan.at
        label = f"{field}: string {n_done}"
        if status < 0:
            raise cursor.data_error(f"{label} has {scan.n_bytes} bytes, more than {maximum}")
        if n_done == n:
            break
        if scan.n_bytes > LARGE and not is_kept:
            cursor.drop(start, LENGTH.size + scan.n_bytes, label)
            n_done += 1
        else:
            cursor.need(LENGTH.size + scan.n_bytes, label)
            if cursor.at - start > LARGE and not is_kept:
                cursor.drop(start, 0, label)
        _check_scanned(cursor, field, cursor.offset - offset, is_kept)
    n_bytes = cursor.offset - offset
    if is_kept or n_bytes <= LARGE:
        return Array(STRING, n, cursor.window(start, cursor.at))
    _check_scanned(cursor, field, n_bytes, is_kept)
    cursor.scanned += n_bytes
    cursor.drop(start, 0, field)
    return Unread(cursor.part, field, STRING, n, offset, n_bytes)


def _check_scanned(cursor, field, n_bytes, is_kept):
    """UnsupportedError if `n_bytes` more are too many: a sparse file costs its author nothing."""
    if cursor.scanned + n_bytes > MAX_SCAN_BYTES and not is_kept:
        raise unsupported_error(
            cursor.path,
            f"{field}: arrays of strings of more than {MAX_SCAN_BYTES >> 30} GiB together",
        )
