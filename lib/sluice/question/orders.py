"""Ask a question with its listed answers in several orders, and average: `orders: N`.

A model prefers what is listed first or last. The average of log P over orders in which each answer
stands at each place cancels a preference that is added to the logits. Source: cyclic permutations
as in Zheng et al. 2024 (PriDe), with the mean of log P instead of that of P.

The first order is that of the sorted lines, so the result does not depend on the order in the file.
"""

from ..faults import data_error
from . import kinds
from .answers import log_sum

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from .question import Question

MAX_ORDERS = 64


def check(question: "Question", n: int) -> None:
    """Raise DataError if `question` cannot be asked in `n` orders."""
    if not any(kind == "options" for kind, _ in question.prompt):
        why = "the prompt does not list the answers: it has no segment options"
    elif question.type == kinds.SCORE and n > 2:
        why = "levels have two orders, up and down; say 2"
    elif n > len(question.options):
        why = f"{len(question.options)} answers have {len(question.options)} cyclic shifts"
    else:
        return
    raise data_error(question.path, f"orders: {why}")


def prompts(question: "Question") -> "list[list[tuple[str, str]]]":
    """Return the prompt of `question`, a list of segments, for each of its orders."""
    n = question.orders
    if n == 1:
        return [question.prompt]
    if question.type == kinds.SCORE:
        lists = [question.options, question.options[::-1]]
    else:
        lines = sorted(question.options)
        shifts = [i * len(lines) // n for i in range(n)]
        lists = [[*lines[k:], *lines[:k]] for k in shifts]
    return [
        [(kind, kinds.listing(lines) if kind == "options" else t) for kind, t in question.prompt]
        for lines in lists
    ]


def common(sequences: "Sequence[list[int]]") -> int:
    """Return the number of first tokens that all `sequences` share."""
    n = 0
    for column in zip(*sequences):
        if len(set(column)) > 1:
            break
        n += 1
    return n


def mean(rows: "Sequence[list[float]]") -> list[float]:
    """Return the mean of log probabilities over orders, normalized to probabilities of sum 1.

    rows: float [n_orders][n_answers], nats. A single row is returned as it is.
    """
    if len(rows) == 1:
        return rows[0]
    means = []
    for column in zip(*rows):
        total = 0.0
        for x in column:
            total += x
        means.append(total / len(rows))
    total = log_sum(means)
    return [x - total for x in means]
