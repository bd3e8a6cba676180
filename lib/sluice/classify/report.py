"""JSON output of `classify`: the object of --json, and one object per input line of --jsonl.

An input line is {"id": ..., "text": ...}; other keys are ignored. "id" is a string, an integer or
null; a missing one counts as null. An invalid line gets an object with "error": JSON that
jsonl.load refuses, no text, or half of a surrogate pair.
"""

from .. import stream
from ..faults import BAD_DATA, Error, data_error
from ..jsonl import BadLine, dump, lines_at_once, load

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from .classifier import Classifier, Verdict

MAX_ID_CHARACTERS = 1000
GROUP, GROUP_BYTES = 64, 1 << 18  # what is held of lines that are asked together


def parse(line: bytes | None, charset: str) -> tuple[str | int | None, bytes]:
    """Parse an input line into (id, text in `charset`). Raises BadLine."""
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
            "is not a byte; give the bytes of a message as characters of Latin-1"
            if charset == "latin-1"
            else "is half of a surrogate pair"
        )
        raise BadLine(f"text: character {e.start} {what}", id) from None


def answer(classifier: "Classifier") -> None:
    """Classify each line of stdin; print one object per line, in order.

    Lines that arrive together are one batch, and no line waits for another to arrive. Raises
    DataError at the end if any line was invalid.
    """
    n = n_bad = 0
    classifier.prepare()
    for arrived in lines_at_once(0):
        for some in groups(arrived):
            for out in _answers(classifier, some):
                n, n_bad = n + 1, n_bad + ("error" in out)
                stream.write_all(1, dump(out))
    if n_bad:
        raise data_error(
            "standard input", f'{n_bad} of {n} lines are invalid; their objects have "error"'
        )


def groups(lines: "list[bytes | None]") -> "Iterator[list[bytes | None]]":
    """`lines` in lists of at most GROUP_BYTES, or of one line, and at most GROUP lines."""
    some: list[bytes | None] = []
    n_bytes = 0
    for line in lines:
        more = len(line or b"")
        if some and (n_bytes + more > GROUP_BYTES or len(some) == GROUP):
            yield some
            some, n_bytes = [], 0
        some.append(line)
        n_bytes += more
    if some:
        yield some


def _answers(classifier, lines):
    """The objects that answer `lines`, in order."""
    charset = "latin-1" if classifier.as_mail else "utf-8"
    read = [_parsed(line, charset) for line in lines]
    found = classifier.ask_many([data for _, data, e in read if e is None])
    for id, _, e in read:
        v = next(found) if e is None else None
        if isinstance(v, Error):
            if v.code != BAD_DATA:
                raise v
            e = v
        yield {"id": id, "error": str(e)} if e else {"id": id, **verdict(v)}


def _parsed(line, charset):
    """(id, text as bytes, None) of a line, or (id, None, the BadLine)."""
    try:
        id, data = parse(line, charset)
        if not data:
            raise BadLine("text is empty", id)
    except BadLine as e:
        return e.id, None, e
    return id, data, None


def verdict(v: "Verdict") -> "dict[str, Any]":
    """Return the dict of a line of --jsonl."""
    mass = {} if v.mass is None else {"mass": round(v.mass, 6)}
    return {"answer": v.answer, "score": round(v.score, 6), **mass}


def whole(classifier: "Classifier", v: "Verdict", ms: float) -> "dict[str, Any]":
    """Return the dict of --json. ms: milliseconds since the command started."""
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
