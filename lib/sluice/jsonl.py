"""JSON Lines reader and writer.

A bad line is an error of its own and does not end the work: too long, too many values, not JSON,
not UTF-8, nested too deeply, NaN.
"""

import json

from . import stream

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

# length of a message of 16 MiB if half of its bytes are written like \u00ff
MAX_LINE_BYTES = 64 << 20
LARGE = 1 << 20  # a line of more bytes may have at most MAX_VALUES
MAX_VALUES = 10000  # values and names: each needs many times its size in memory


class BadLine(Exception):
    """An error in a line. id: the "id" of the line, or None."""

    def __init__(self, problem: str, id: str | int | None = None) -> None:
        super().__init__(problem)
        self.id = id


def lines(fd: int) -> "Iterator[bytes | None]":
    """Yield the lines on a descriptor (bytes without the newline) as they arrive; None for a
    line that is too long. Memory: one line and one chunk.
    """
    for arrived in lines_at_once(fd):
        yield from arrived


def lines_at_once(fd: int) -> "Iterator[list[bytes | None]]":
    """`lines`, in lists of those that arrived together: a list never waits for more."""
    parts, n_bytes = [], 0
    while chunk := stream.read_some(fd):
        *whole, rest = chunk.split(b"\n")
        arrived = []
        for line in whole:
            n_bytes += len(line)
            arrived.append(b"".join(parts + [line]) if n_bytes <= MAX_LINE_BYTES else None)
            parts, n_bytes = [], 0
        if arrived:
            yield arrived
        n_bytes += len(rest)
        parts = parts + [rest] if n_bytes <= MAX_LINE_BYTES else []
        if len(parts) > 64:
            parts = [b"".join(parts)]
    if n_bytes:
        yield [b"".join(parts) if n_bytes <= MAX_LINE_BYTES else None]


def load(
    line: bytes | None,
    pairs: "Callable[[list[tuple[str, Any]]], Any] | None" = None,
    maximum: int = MAX_VALUES,
) -> "Any":
    """Return the value of a line of JSON (bytes, or None for a line that was too long).
    BadLine.

    pairs: makes an object of its (name, value) pairs. maximum: number of values and names that
    a line longer than LARGE may have.
    """
    if line is None:
        raise BadLine(f"line is longer than {MAX_LINE_BYTES >> 20} MiB")
    if len(line) > LARGE and _count_values(line, maximum) > maximum:
        raise BadLine(f"line is longer than {LARGE >> 20} MiB and has more than {maximum} values")
    try:
        return json.loads(
            line.decode("utf-8"), parse_constant=_refuse, parse_int=_whole, object_pairs_hook=pairs
        )
    except UnicodeDecodeError as e:
        raise BadLine(f"line is not UTF-8 at byte {e.start}") from None
    except RecursionError:
        raise BadLine("line is nested too deeply") from None
    except ValueError as e:
        raise BadLine(f"line is not JSON: {e}"[:200]) from None


def _count_values(line, maximum):
    """Return about how many values and names a line of JSON has: strings, and delimiters
    outside strings.
    """
    bare = line.replace(b"\\\\", b"").replace(b'\\"', b"")
    n_strings = bare.count(b'"') // 2
    if n_strings > maximum:  # splitting would need as much memory as parsing
        return n_strings
    return n_strings + sum(part.count(c) for part in bare.split(b'"')[::2] for c in b",[{")


def _refuse(word):
    raise ValueError(f"{word} is not a number")


def _whole(digits):
    if len(digits) > 40:  # parsing time is quadratic in the number of digits
        raise ValueError("a number of more than 40 digits")
    return int(digits)


def dump(fields: "dict[str, Any]") -> bytes:
    """Return the line (bytes, ASCII, with the newline) for a dict."""
    return json.dumps(fields).encode() + b"\n"
