"""`classify --list-learned`: what a file holds for a question, and how well it answers now."""

import os
import time

from . import book as books
from . import joint, teach

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..classify.classifier import Classifier

FIRST_DATE = 1_000_000  # smaller dates are those of format 1, an order alone


def of(c: "Classifier", path: str) -> "dict[str, Any]":
    """Return the summary of the file at `path` for the question and model of `c`.

    accuracy: share of the texts by hand whose best answer is theirs: "alone" by the question's
    calibration, "learned" with the fit and the tokens of the other texts. Raises DataError for a
    damaged file, OSError.
    """
    names = list(c.question.answers)
    book = books.read(path)
    part = teach.part_of(book, c)
    texts = list(part.texts.values()) if part else []
    dates = sorted(x.date for x in texts if x.date >= FIRST_DATE)
    counting = part.counting() if part else set()
    return {
        "file": path,
        "bytes": os.path.getsize(path) if os.path.exists(path) else 0,
        "texts": len(texts),
        "others": book.n_texts - len(texts),
        "answers": {
            name: {
                "texts": sum(x.label == i for x in texts),
                "auto": sum(x.label == i and x.is_auto for x in texts),
            }
            for i, name in enumerate(names)
        },
        "with_tokens": sum(len(x.tokens) > 0 for x in texts),
        "counting": len(counting),
        "first": _date(dates[0]) if dates else None,
        "last": _date(dates[-1]) if dates else None,
        "accuracy": _accuracy(part) if part else None,
    }


def _date(seconds):
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def _accuracy(part):
    """The shares of right answers, rounded; None without texts by hand."""
    own, t = part.left_out()
    if not own:
        return None
    alone = joint.Joint(part.prior[0], 0.0, part.prior[1:])
    n = {"alone": 0, "learned": 0}
    for x, e in zip(own, t.tolist()):
        for name, fit in (("alone", alone), ("learned", part.joint)):
            z = joint.apply(fit, x.log_p.tolist(), e)
            n[name] += max(range(part.k), key=z.__getitem__) == x.label
    return {name: round(right / len(own), 6) for name, right in n.items()}


def lines(found: "dict[str, Any]") -> bytes:
    """Return the summary as lines of a name, a tab and a value."""
    rows = [("file", found["file"]), ("bytes", found["bytes"]), ("texts", found["texts"])]
    for name, some in found["answers"].items():
        auto = f", {some['auto']} by --auto-learn" if some["auto"] else ""
        rows.append((name, f"{some['texts']}{auto}"))
    if found["others"]:
        rows.append(("other models or questions", found["others"]))
    if found["texts"] > found["with_tokens"]:
        rows.append(("without tokens", found["texts"] - found["with_tokens"]))
    if found["first"]:
        rows += [("first", found["first"]), ("last", found["last"])]
    if found["accuracy"]:
        rows.append(("accuracy alone", f"{found['accuracy']['alone']:.4f}"))
        rows.append(("accuracy learned", f"{found['accuracy']['learned']:.4f}"))
    text = "".join(f"{name}\t{value}\n" for name, value in rows)
    return text.encode("utf-8", "surrogateescape")
