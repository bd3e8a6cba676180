"""Write the answers of `decide`, in the form of the answers of POST /v1/systemone.

    choice  {"type", "choice", "probabilities": {option: p}, "confidence"}
    score   {"type", "score", "legend": {"0": level}, "probabilities": {"0": p}, "confidence"}
    noul    {"type", "noul": P(true)}

score = sum i p_i, from 0 to K - 1. confidence of a choice = (p_max - 1/K) / (1 - 1/K); of a score
= 1 - E|i - mode| / m, where m is the mean distance of equally probable levels from their centre,
(K - 1) / 2. Both are from 0 to 1. A noul has none: its probability says it.
"""

from ..question import kinds
from .requests import Asked, Request

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

DIGITS = 6
BAD_REQUEST, TOO_LARGE = (400, "invalid_request"), (413, "request_too_large")


def reply(
    request: Request, answers: "dict[str, dict[str, Any]]", n_tokens: int, cut: bool
) -> "dict[str, Any]":
    """Return the object that answers a request. n_tokens: that the model read. cut: whether the
    middle of the state was left out, because the model's context is too short for it.
    """
    return {
        **_id(request.id),
        "answers": answers,
        **({"cut": True} if cut else {}),
        "usage": {"input_tokens": n_tokens, "output_tokens": 0},
    }


def error(
    message: str, id: str | int | None = None, is_too_large: bool = False
) -> "dict[str, Any]":
    """Return the object in place of an answer, with the codes of HTTP that servers give."""
    code, kind = TOO_LARGE if is_too_large else BAD_REQUEST
    return {**_id(id), "error": {"code": code, "type": kind, "message": message}}


def answer(asked: Asked, p: "Sequence[float]", mass: float | None = None) -> "dict[str, Any]":
    """Return the answer to a question. p: probabilities of its options, in their order."""
    extra = {} if mass is None else {"mass": _number(mass)}
    if asked.kind == kinds.YESNO:
        return {"type": "noul", "noul": _number(p[0]), **extra}
    probabilities = {name: _number(x) for name, x in zip(asked.names, p)}
    best = max(range(len(p)), key=lambda i: p[i])
    if asked.kind == kinds.CHOICE:
        return {
            "type": "choice",
            "choice": asked.names[best],
            "probabilities": probabilities,
            "confidence": _number(peak(p)),
            **extra,
        }
    return {
        "type": "score",
        "score": _number(kinds.level(p)),
        "legend": dict(zip(asked.names, asked.legend or ())),
        "probabilities": probabilities,
        "confidence": _number(closeness(p)),
        **extra,
    }


def peak(p: "Sequence[float]") -> float:
    """Return how far the largest of `p` [K] is above 1/K: 0 for equal ones, 1 for certainty."""
    k = len(p)
    return min(1.0, max(0.0, (k * max(p) - 1) / (k - 1)))


def closeness(p: "Sequence[float]") -> float:
    """Return how near the levels of `p` [K] are to the most probable one: 1 for certainty."""
    k = len(p)
    mode = max(range(k), key=lambda i: p[i])
    spread, of_uniform = 0.0, 0.0
    for i, x in enumerate(p):
        spread += x * abs(i - mode)
        of_uniform += abs(i - (k - 1) / 2) / k
    return min(1.0, max(0.0, 1 - spread / of_uniform))


def _number(x):
    return round(x, DIGITS)


def _id(id):
    return {} if id is None else {"id": id}
