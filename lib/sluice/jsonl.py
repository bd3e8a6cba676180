"""JSON lines in and out, one value a line.

A line that is not one is an error of its own, never the end of the work: too long, of too many
values, not JSON, not UTF-8, nested too deeply, NaN.
"""

import json

from . import stream

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

# a mail of 16 MiB is this long if half of its bytes are written like \u00ff
MAX_LINE_BYTES = 64 << 20
LARGE = 1 << 20  # a line of more bytes has at most
MAX_VALUES = 10000  # values and names: each takes many times its bytes once it is read


class BadLine(Exception):
    """What is wrong with a line. id: that of the line, or None."""

    def __init__(self, what: str, id: str | int | None = None) -> None:
        super().__init__(what)
        self.id = id


def lines(fd: int) -> "Iterator[bytes | None]":
    """The lines on a descriptor (bytes without the newline), as they arrive; None for one that is
    too long. Holds one line and one chunk.
    """
    parts, n_bytes = [], 0
    while chunk := stream.read_some(fd):
        *whole, rest = chunk.split(b"\n")
        for line in whole:
            n_bytes += len(line)
            yield b"".join(parts + [line]) if n_bytes <= MAX_LINE_BYTES else None
            parts, n_bytes = [], 0
        n_bytes += len(rest)
        parts = parts + [rest] if n_bytes <= MAX_LINE_BYTES else []
        if len(parts) > 64:
            parts = [b"".join(parts)]
    if n_bytes:
        yield b"".join(parts) if n_bytes <= MAX_LINE_BYTES else None


def load(
    line: bytes | None,
    pairs: "Callable[[list[tuple[str, Any]]], Any] | None" = None,
    most: int = MAX_VALUES,
) -> "Any":
    """The value of a line of JSON (bytes, or None for one too long); BadLine. pairs: makes an
    object of its (name, value) pairs; most: how many values and names a line longer than LARGE may
    have."""
    if line is None:
        raise BadLine(f"line is longer than {MAX_LINE_BYTES >> 20} MiB")
    if len(line) > LARGE and _count_values(line, most) > most:
        raise BadLine(f"line is longer than {LARGE >> 20} MiB and has more than {most} values")
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


def _count_values(line, most):
    """How many values and names there are in a line of JSON, about: its strings, and what ends or
    opens others outside of them.
    """
    bare = line.replace(b"\\\\", b"").replace(b'\\"', b"")
    n_strings = bare.count(b'"') // 2
    if n_strings > most:  # to split them would take as much memory as to read them
        return n_strings
    return n_strings + sum(part.count(c) for part in bare.split(b'"')[::2] for c in b",[{")


def _refuse(word):
    raise ValueError(f"{word} is not a number")


def _whole(digits):
    if len(digits) > 40:  # the time to read more is square in their number
        raise ValueError("a number of more than 40 digits")
    return int(digits)


def dump(fields: "dict[str, Any]") -> bytes:
    """The line for a dict, as bytes with the newline; ASCII."""
    return json.dumps(fields).encode() + b"\n"
