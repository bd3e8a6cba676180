"""JSON lines in and out: {"id": ..., "text": ...}, one object a line.

A line that is not one is an error of its own, never the end of the work: too long, of too many
values, not JSON, not UTF-8, nested too deeply, NaN, no text, half of a surrogate pair. Keys other
than id and text are passed over. An id is a string, a whole number or null, and null where there is
none.
"""

import json

from . import stream
from .faults import BAD_DATA, Fault, bad

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from .classify.classifier import Classifier, Verdict

# a mail of 16 MiB is this long if half of its bytes are written like \u00ff
MAX_LINE_BYTES = 64 << 20
MAX_ID_CHARACTERS = 1000
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


def parse(line: bytes | None, charset: str) -> tuple[str | int | None, bytes]:
    """(id, text as bytes in `charset`) of a line; BadLine."""
    found = load(line)
    if not isinstance(found, dict):
        raise BadLine("line is not an object")
    id = found.get("id")
    if not (id is None or type(id) is int or isinstance(id, str) and len(id) <= MAX_ID_CHARACTERS):
        raise BadLine("id is not a whole number or a string of at most 1000 characters")
    if not isinstance(found.get("text"), str):
        raise BadLine("text is missing or not a string", id)
    try:
        return id, found["text"].encode(charset)
    except UnicodeEncodeError as e:
        what = (
            "is not a byte (a mail is given as Latin-1)"
            if charset == "latin-1"
            else "is half of a surrogate pair"
        )
        raise BadLine(f"text: character {e.start} {what}", id) from None


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


def answer(classifier: "Classifier") -> None:
    """Answer every line on stdin by one on stdout, at once and in order. Fault 65, at the end,
    where some of them were bad.
    """
    charset = "latin-1" if classifier.as_mail else "utf-8"
    n = n_bad = 0
    classifier.prepare()
    for line in lines(0):
        n += 1
        try:
            id, data = parse(line, charset)
            if not data:
                raise BadLine("text is empty", id)
            out = {"id": id, **verdict(classifier.ask(data))}
        except BadLine as e:
            n_bad, out = n_bad + 1, {"id": e.id, "error": str(e)}
        except Fault as e:
            if e.code != BAD_DATA:
                raise
            n_bad, out = n_bad + 1, {"id": id, "error": str(e)}
        stream.write_all(1, dump(out))
    if n_bad:
        raise bad("standard input", f"{n_bad} of {n} lines are bad and were answered by errors")


def verdict(v: "Verdict") -> "dict[str, Any]":
    """A Verdict as a dict: what a line of --jsonl says."""
    mass = {} if v.mass is None else {"mass": round(v.mass, 6)}
    return {"answer": v.answer, "score": round(v.score, 6), **mass}


def report(classifier: "Classifier", v: "Verdict", ms: float) -> "dict[str, Any]":
    """A Verdict as a dict with all there is to say: --json. `ms`: milliseconds it took."""
    reasons = {} if v.reasons is None else {"reasons": v.reasons}
    names = list(classifier.question.answers)
    learnt = v.fit and {
        "learnt": v.fit.n_mails,
        "scale": v.fit.fitted[0],
        "bias": dict(zip(names, v.fit.fitted[1:])),
    }
    return {
        **verdict(v),
        "scores": {name: round(p, 6) for name, p in v.scores.items()},
        "ids": v.n_ids,
        "reused": v.n_reused,
        "cut": v.cut,
        "ms": round(ms, 1),
        "model": classifier.model.file.id[:8].hex(),
        "arithmetic": classifier.model.arithmetic,
        "frame": classifier.prompt.frame,
        "calibration": learnt,
        **reasons,
    }
