"""The metadata of a GGUF file: keys with typed values, parsed and checked."""
import struct

from ..faults import printable, unsupported
from ..kernels import ffi, lib
from .cursor import LENGTH

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
SCALARS = {k: struct.Struct("<" + c) for k, c in (
    (U8, "B"), (I8, "b"), (U16, "H"), (I16, "h"), (U32, "I"), (I32, "i"), (F32, "f"), (BOOL, "B"),
    (U64, "Q"), (I64, "q"), (F64, "d"))}
KIND_NAMES = ("u8", "i8", "u16", "i16", "u32", "i32", "f32", "bool", "string", "array", "u64", "i64", "f64")
INTEGERS = {U8: (0, 8), I8: (1, 7), U16: (0, 16), I16: (1, 15), U32: (0, 32), I32: (1, 31), U64: (0, 64), I64: (1, 63)}  # kind: from -signed << bits to 1 << bits

KIND = struct.Struct("<I")
ARRAY_HEAD = struct.Struct("<IQ")
MAX_KEY_BYTES, MAX_STRING_BYTES = 65_535, 1 << 20


class Array:
    """A metadata array: `kind` of its elements, `n` of them, `raw` their bytes as in the file (a buffer, which
    ffi.from_buffer and memoryview take)."""

    __slots__ = ("kind", "n", "raw")

    def __init__(self, kind, n, raw):
        self.kind, self.n, self.raw = kind, n, raw

    def values(self, most=None):
        """The first `most` elements (default: all) as a list; strings as bytes."""
        n = self.n if most is None else min(self.n, most)
        if self.kind == STRING:
            out, at = [], 0
            for _ in range(n):
                (n_bytes,) = LENGTH.unpack_from(self.raw, at)
                out.append(self.raw[at + 8:at + 8 + n_bytes])
                at += 8 + n_bytes
            return out
        one = SCALARS[self.kind]
        values = list(struct.unpack_from(f"<{n}{one.format[1:]}", self.raw))
        return [bool(v) for v in values] if self.kind == BOOL else values


def describe(value, kind):
    """A value for a message: its kind and, of a scalar, what it is."""
    if kind == ARRAY:
        return f"an array of {value.n} {KIND_NAMES[value.kind]}"
    return f"{KIND_NAMES[kind]} {printable(value, 40) if kind == STRING else value}"


def parse_metadata(cursor, n_kv):
    """`n_kv` keys at the cursor: dict key -> bool, int, float, str or Array, dict key -> type number, and dict key -> (begin,
    end) of its bytes from the type number on; in file order.

    Bytes of a string that are not UTF-8 stand in the str as \\xNN.
    """
    metadata, kinds, spans = {}, {}, {}
    for i in range(n_kv):
        key = cursor.string(f"key {i}", 1, MAX_KEY_BYTES)
        if not all(32 < c < 127 for c in key):
            raise cursor.bad(f"key {i}: {printable(key)} is not printable ASCII")
        key = key.decode()
        field = key if len(key) <= 80 else f"{key[:77]}..."
        if key in metadata:
            raise cursor.bad(f"{field}: the key appears twice")
        begin = cursor.at
        (kind,) = cursor.unpack(KIND, field)
        metadata[key], kinds[key] = _value(cursor, field, kind), kind
        spans[key] = begin, cursor.at
    return metadata, kinds, spans


def _value(cursor, field, kind):
    if kind > F64:
        raise cursor.bad(f"{field}: value type {kind} is not one of 0 to 12")
    if kind == STRING:
        return cursor.string(field, 0, MAX_STRING_BYTES).decode("utf-8", "backslashreplace")
    if kind == ARRAY:
        return _array(cursor, field)
    (value,) = cursor.unpack(SCALARS[kind], field)
    if kind == BOOL:
        if value > 1:
            raise cursor.bad(f"{field}: bool is {value}, not 0 or 1")
        return bool(value)
    return value


def _array(cursor, field):
    kind, n = cursor.unpack(ARRAY_HEAD, field)
    if kind > F64:
        raise cursor.bad(f"{field}: element type {kind} is not one of 0 to 12")
    if kind == ARRAY:
        raise unsupported(cursor.path, f"{field}: an array of arrays")
    width = LENGTH.size if kind == STRING else SCALARS[kind].size
    if n > (cursor.size - cursor.at) // width:
        raise cursor.bad(f"{field}: {n} elements do not fit into {cursor.size - cursor.at} bytes")
    if kind == STRING:
        return Array(kind, n, _skip_strings(cursor, field, n))
    start = cursor.at
    part = cursor.take(n * width, field)
    if kind == BOOL:
        wrong = bytes(part).lstrip(b"\0\1")
        if wrong:
            raise cursor.bad(f"{field}: element {n - len(wrong)} is {wrong[0]}, and a bool is 0 or 1")
    return Array(kind, n, cursor.window(start, cursor.at))


def _skip_strings(cursor, field, n):
    """Move the cursor over `n` strings; their bytes. The C scanner checks each length against what was read."""
    start, n_done, scan = cursor.at, 0, ffi.new("gguf_scan *")
    while n_done < n:
        status = lib.gguf_skip_strings(scan, cursor.address, cursor.n_read, cursor.at, n - n_done, MAX_STRING_BYTES)
        n_done += scan.n_done
        cursor.at = scan.at
        if status < 0:
            raise cursor.bad(f"{field}: string {n_done} has {scan.n_bytes} bytes, more than {MAX_STRING_BYTES}")
        if n_done < n:
            cursor.need(LENGTH.size + scan.n_bytes, f"{field}: string {n_done}")
    return cursor.window(start, cursor.at)
