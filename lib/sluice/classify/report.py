"""Verdicts as JSON: the object of `classify --json`, and the lines of --jsonl, which answer
{"id": ..., "text": ...}, one object a line.

A line that is wrong is answered by an error: what jsonl.load refuses, no text, half of a surrogate
pair. Keys other than id and text are passed over. An id is a string, a whole number or null, and
null where there is none.
"""

from .. import stream
from ..faults import BAD_DATA, Error, data_error
from ..jsonl import BadLine, dump, lines, load

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .classifier import Classifier, Verdict

MAX_ID_CHARACTERS = 1000


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


def answer(classifier: "Classifier") -> None:
    """Answer every line on stdin by one on stdout, at once and in order. DataError, at the end,
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
        except Error as e:
            if e.code != BAD_DATA:
                raise
            n_bad, out = n_bad + 1, {"id": id, "error": str(e)}
        stream.write_all(1, dump(out))
    if n_bad:
        raise data_error(
            "standard input", f"{n_bad} of {n} lines are bad and were answered by errors"
        )


def verdict(v: "Verdict") -> "dict[str, Any]":
    """A Verdict as a dict: what a line of --jsonl says."""
    mass = {} if v.mass is None else {"mass": round(v.mass, 6)}
    return {"answer": v.answer, "score": round(v.score, 6), **mass}


def whole(classifier: "Classifier", v: "Verdict", ms: float) -> "dict[str, Any]":
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
        "ids": v.n_tokens,
        "reused": v.n_reused,
        "cut": v.cut,
        "ms": round(ms, 1),
        "model": classifier.model.file.id[:8].hex(),
        "arithmetic": classifier.model.arithmetic,
        "frame": classifier.prompt.frame,
        "calibration": learnt,
        **reasons,
    }
