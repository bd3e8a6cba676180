"""JSON output of `classify`: the object of --json, and one object per input line of --jsonl.

An input line is what texts/objects.py reads; an invalid one gets an object with "error".
"""

from ..jsonl import dump

__all__ = ["dump", "of_all", "verdict", "whole"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from ..learn.learned import Section
    from .classifier import Classifier, Verdict
    from .panel import Panel


def verdict(v: "Verdict") -> "dict[str, Any]":
    """Return the dict of a line of --jsonl."""
    mass = {} if v.mass is None else {"mass": round(v.mass, 6)}
    p = {name: round(x, 6) for name, x in v.scores.items()}
    level = {} if v.level is None else {"level": round(v.level, 6)}
    rule = {"rule": v.rule} if v.rule else {}
    return {"answer": v.answer, "score": round(v.score, 6), **level, "p": p, **mass, **rule}


def margin(v: "Verdict") -> float:
    """Return the best probability minus the second."""
    best, second, *_ = sorted(v.scores.values(), reverse=True)
    return best - second


def _fitted(c):
    """What is in use of --fit and --prior."""
    found: dict[str, Any] = {}
    if c.fitted:
        f = c.fitted
        found["fit"] = {"digest": f.digest, "labels": f.n, "taken": f.taken, "risk": f.risk}
    if c.prior:
        found["prior"] = dict(zip(c.question.answers, c.prior.log_p))
    return found


def learned_by(section: "Section", names: "Sequence[str]") -> "dict[str, Any]":
    """Return the dict of what was learned. names: of the answers."""
    return {
        "learnt": section.n_texts,
        "scale": section.joint.scale,
        "trust": section.joint.trust,
        "bias": dict(zip(names, section.joint.bias)),
    }


def of_all(
    panel: "Panel", verdicts: "list[Verdict]", is_whole: bool, ms: float | None = None
) -> "dict[str, Any]":
    """Return the dict of the verdicts of all questions on a text: that of `verdict` or `whole` for
    one question, {"answers": {question: dict}} for several.
    """
    dicts = [
        whole(c, v, ms) if is_whole else verdict(v) for c, v in zip(panel.classifiers, verdicts)
    ]
    return dicts[0] if len(dicts) == 1 else {"answers": dict(zip(panel.names, dicts))}


def whole(classifier: "Classifier", v: "Verdict", ms: float | None = None) -> "dict[str, Any]":
    """Return the dict of --json. ms: milliseconds since the command started, of a single text."""
    reasons = {} if v.reasons is None else {"reasons": v.reasons}
    names = list(classifier.question.answers)
    learned = v.learned and learned_by(v.learned, names)
    taught = {} if v.taught is None else {"taught": True}
    return {
        **verdict(v),
        "margin": round(margin(v), 6),
        "scores": {name: round(p, 6) for name, p in v.scores.items()},
        "ids": v.n_tokens,
        "reused": v.n_reused,
        "cut": v.cut,
        **({} if ms is None else {"ms": round(ms, 1)}),
        "model": classifier.model.file.id[:8].hex(),
        "arithmetic": classifier.model.arithmetic,
        "frame": classifier.prompt.template,
        "calibration": learned,
        **taught,
        **_fitted(classifier),
        **reasons,
    }
