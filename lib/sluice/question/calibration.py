"""The calibration of a question, and a digest of what decides its log probabilities."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .question import Question


def prior(question: "Question") -> list[float]:
    """Return [scale, *biases] of a question, the biases in the order of its answers."""
    return [question.scale, *(question.bias[name] for name in question.answers)]


def digest(question: "Question") -> str:
    """Return 16 hex digits of a hash of the prompt, input and answers of a question.

    These decide what the log probabilities mean. Thresholds and calibration are not hashed.
    """
    import hashlib
    import json

    q = question
    prompt: Any = q.prompt
    if q.orders > 1:
        from . import orders

        prompt = orders.prompts(q)
    asked = [
        q.kind,
        q.fold,
        q.head_ids,
        q.tail_ids,
        q.frame,
        prompt,
        list(q.answers.items()),
        q.tokenisations,
    ]
    return hashlib.sha256(json.dumps(asked).encode()).hexdigest()[:16]
