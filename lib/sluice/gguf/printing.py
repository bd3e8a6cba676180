"""Values of a model file as text or JSON, and lines on stdout.

Every string that comes from a file is made visible before it is printed: no
control code, nor any other character without a shape of its own, reaches the
output as it is.
"""

import struct

from ..stream import write_all
from .metadata import ARRAY, BOOL, F32, F64, STRING

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from .tensor import Tensor

LINES = 512  # written at once
FLOAT = struct.Struct("<f")


def put(lines: "Iterable[str]") -> None:
    """Write lines (str, without newline) to stdout, some hundreds at a time."""
    batch = []
    for line in lines:
        batch.append(line)
        if len(batch) == LINES:
            write_all(1, ("\n".join(batch) + "\n").encode())
            batch = []
    if batch:
        write_all(1, ("\n".join(batch) + "\n").encode())


def put_json(value: "Any") -> None:
    """Write one line of JSON, in ASCII. `value` holds no float that is not finite (see
    `json_number`).
    """
    import json

    write_all(1, json.dumps(value, allow_nan=False).encode() + b"\n")


def visible(text: "Any", keep: str = "", quote: str = "") -> str:
    """`text` (str, or bytes that should be UTF-8) with escapes for what cannot be seen.

    Backslash, newline and the like become \\\\, \\n; bytes that are not UTF-8 \\xNN;
    other characters that are not printable (Unicode: controls, formats such as the
    direction overrides, separators but the space) \\xNN, \\uNNNN. `keep`: characters
    that stay as they are; `quote`: one to put around it, and to escape.
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
    """A float in the fewest digits that give it back as `kind` (F32 or F64)."""
    if kind == F32 and value - value == 0:
        for digits in range(6, 9):
            text = f"{value:.{digits}g}"
            if FLOAT.pack(float(text)) == FLOAT.pack(value):
                return text
        return f"{value:.9g}"
    return repr(value)


def scalar(value: "Any", kind: int) -> str:
    """One value as text, strings in double quotes."""
    if kind == STRING:
        return visible(value, quote='"')
    if kind == BOOL:
        return "true" if value else "false"
    return number(value, kind) if kind in (F32, F64) else str(value)


def json_number(value: "Any", kind: int | None) -> "Any":
    """A scalar for JSON; floats that are not finite as in the JSON mapping of Protocol Buffers:
    "NaN", "-Infinity".
    """
    if kind in (F32, F64):
        if value != value:
            return "NaN"
        if value - value != 0:
            return "Infinity" if value > 0 else "-Infinity"
        return float(number(value, kind))
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else value


def json_value(value: "Any", kind: int) -> "Any":
    return (
        [json_number(v, value.kind) for v in value.values()]
        if kind == ARRAY
        else json_number(value, kind)
    )


def shape(tensor: "Tensor") -> str:
    """The dimensions of a gguf.Tensor, the row length first."""
    return " x ".join(map(str, tensor.dims))
