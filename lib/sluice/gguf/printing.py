"""Escaped text and JSON of values from a model file, and writing of lines to stdout.

Every string from a file is escaped before it is printed: no control code, and no other character
without a visible shape, reaches the output.
"""

import struct

from ..stream import write_all
from .metadata import ARRAY, BOOL, F32, F64, STRING

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from .tensor import Tensor

LINES = 512  # per write(2)
FLOAT = struct.Struct("<f")


def put(lines: "Iterable[str]") -> None:
    """Write lines (str, without newline) to stdout, LINES at a time."""
    batch = []
    for line in lines:
        batch.append(line)
        if len(batch) == LINES:
            write_all(1, ("\n".join(batch) + "\n").encode())
            batch = []
    if batch:
        write_all(1, ("\n".join(batch) + "\n").encode())


def put_json(value: "Any") -> None:
    """Write one line of JSON, in ASCII. Floats in `value` must be finite (`json_number`)."""
    import json

    write_all(1, json.dumps(value, allow_nan=False).encode() + b"\n")


def visible(text: "Any", keep: str = "", quote: str = "") -> str:
    """Return `text` (str, or bytes that should be UTF-8) with invisible characters escaped.

    Backslash, newline and the like become \\\\, \\n; invalid UTF-8 \\xNN; other unprintable
    characters (Unicode: controls, formats such as direction overrides, separators except the
    space) \\xNN or \\uNNNN. keep: characters that are not escaped. quote: a quotation mark to
    put around the text and to escape.
    """
    if isinstance(text, bytes):
        try:
            text = text.decode()
        except UnicodeDecodeError:  # so that the two sorts of backslash differ
            text = text.replace(b"\\", b"\\\\").decode("utf-8", "backslashreplace")
            return quote + "".join(_seen(c, keep + "\\", quote) for c in text) + quote
    if not (text.isprintable() and "\\" not in text and (not quote or quote not in text)):
        text = "".join(_seen(c, keep, quote) for c in text)
    return quote + text + quote


def _seen(c, keep, quote):
    if c in keep or c.isprintable() and c != "\\" and c != quote:
        return c
    return f"\\{c}" if c == quote else c.encode("unicode_escape").decode()


def number(value: float, kind: int) -> str:
    """Return a float in the fewest digits that read back as the same `kind` (F32 or F64)."""
    if kind == F32 and value - value == 0:
        for digits in range(6, 9):
            text = f"{value:.{digits}g}"
            if FLOAT.pack(float(text)) == FLOAT.pack(value):
                return text
        return f"{value:.9g}"
    return repr(value)


def scalar(value: "Any", kind: int) -> str:
    """Return one value as text; strings in double quotes."""
    if kind == STRING:
        return visible(value, quote='"')
    if kind == BOOL:
        return "true" if value else "false"
    return number(value, kind) if kind in (F32, F64) else str(value)


def json_number(value: "Any", kind: int | None) -> "Any":
    """Return a scalar for JSON. Floats that are not finite become "NaN", "Infinity" or
    "-Infinity", as in the JSON mapping of Protocol Buffers.
    """
    if kind in (F32, F64):
        if value != value:
            return "NaN"
        if value - value != 0:
            return "Infinity" if value > 0 else "-Infinity"
        return float(number(value, kind))
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else value


def json_value(value: "Any", kind: int) -> "Any":
    """Return a metadata value for JSON: a scalar, or a list of them."""
    return (
        [json_number(v, value.kind) for v in value.values()]
        if kind == ARRAY
        else json_number(value, kind)
    )


def shape(tensor: "Tensor") -> str:
    """Return the dimensions of a gguf.Tensor as text, row length first."""
    return " x ".join(map(str, tensor.dims))
