"""JSON output of `classify`: the object of --json, and one object per input line of --jsonl.

An input line is {"id": ..., "text": ...}; other keys are ignored. "id" is a string, an integer or
null; a missing one counts as null. An invalid line gets an object with "error": JSON that
jsonl.load refuses, no text, or half of a surrogate pair.
"""

from .. import stream
from ..faults import BAD_DATA, Error, data_error
from ..jsonl import BadLine, dump, lines_at_once, load
from .question import UNSURE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from .classifier import Classifier, Verdict

MAX_ID_CHARACTERS = 1000


def parse(line: bytes | None, charset: str) -> tuple[str | int | None, bytes]:
    """Parse an input line into (id, text in `charset`). Raises BadLine."""
    return fields(load(line), charset)


def fields(found: "Any", charset: str) -> tuple[str | int | None, bytes]:
    """Return (id, text in `charset`) of a parsed line. Raises BadLine."""
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
            "is not a byte; give the bytes of a message as characters of Latin-1"
            if charset == "latin-1"
            else "is half of a surrogate pair"
        )
        raise BadLine(f"text: character {e.start} {what}", id) from None


def verdict(v: "Verdict") -> "dict[str, Any]":
    """Return the dict of a line of --jsonl."""
    mass = {} if v.mass is None else {"mass": round(v.mass, 6)}
    p = {name: round(x, 6) for name, x in v.scores.items()}
    return {"answer": v.answer, "score": round(v.score, 6), "p": p, **mass}


def whole(
    classifier: "Classifier", v: "Verdict", ms: float | None = None
) -> "dict[str, Any]":
    """Return the dict of --json. ms: milliseconds since the command started, if it is of one text."""
    reasons = {} if v.reasons is None else {"reasons": v.reasons}
    names = list(classifier.question.answers)
    fit = v.fit and {
        "learnt": v.fit.n_texts,
        "scale": v.fit.fitted[0],
        "bias": dict(zip(names, v.fit.fitted[1:])),
    }
    return {
        **verdict(v),
        "scores": {name: round(p, 6) for name, p in v.scores.items()},
        "ids": v.n_tokens,
        "reused": v.n_reused,
        "cut": v.cut,
        "ms": round(ms, 1),
        "model": classifier.model.file.id[:8].hex(),
        "arithmetic": classifier.model.arithmetic,
        "frame": classifier.prompt.template,
        "calibration": fit,
        **reasons,
    }
