"""The threshold that keeps a stated risk: the least P of an answer that is still accepted.

Of n accepted texts with e errors, Clopper and Pearson's upper bound of the error is at most r with
confidence 1 - d if and only if P(at most e errors of n | r) <= d. It is computed in whole numbers,
so there is no rounding.

Cuts are tried in an order that is fixed before any label is looked at: the surest texts first, then
more of them in steps, until one fails. The last cut that held is taken. Each is tested with the
whole d (fixed-sequence testing: the first true hypothesis is rejected with probability d at most).
Source: Clopper and Pearson 1934; selective classification, Geifman and El-Yaniv 2017.
"""

from fractions import Fraction

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

CONFIDENCE = 0.95
N_CUTS = 20
MIN_RISK, MAX_RISK = 0.001, 0.5


class Cut:
    """threshold: float. n_accepted, n_errors: int, among the labelled texts."""

    def __init__(self, threshold: float, n_accepted: int, n_errors: int) -> None:
        self.threshold, self.n_accepted, self.n_errors = threshold, n_accepted, n_errors


def holds(n: int, n_errors: int, risk: float, confidence: float = CONFIDENCE) -> bool:
    """Whether `n_errors` of `n` texts show an error of at most `risk` with this confidence."""
    r, allowed = Fraction(repr(risk)), 1 - Fraction(repr(confidence))
    if n_errors >= r * n:  # then the probability is 1/2 or more
        return False
    bad, good = r.numerator, r.denominator - r.numerator
    term = tail = good**n  # of 0 errors, times denominator^n
    for i in range(n_errors):
        term = term * (n - i) * bad // ((i + 1) * good)  # without a remainder
        tail += term
    return tail * allowed.denominator <= allowed.numerator * r.denominator**n


def needed(risk: float, n_errors: int = 0, confidence: float = CONFIDENCE) -> int:
    """Return the least number of texts that show the risk with `n_errors` errors among them."""
    low, high = n_errors, n_errors + 1
    while not holds(high, n_errors, risk, confidence):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        if holds(middle, n_errors, risk, confidence):
            high = middle
        else:
            low = middle
    return high


def sizes(n: int, least: int) -> list[int]:
    """Return how many texts each cut accepts, ascending: from `least` or a fifth of them to all."""
    first = max(least, n // 5)
    if first > n:
        return []
    steps = min(N_CUTS - 1, n - first)
    return [first + (n - first) * i // max(1, steps) for i in range(steps + 1)]


def find(
    p: "Sequence[float]",
    is_right: "Sequence[bool]",
    risk: float,
    confidence: float = CONFIDENCE,
) -> Cut | None:
    """Return the Cut that keeps `risk`; None if the surest texts have too many errors.

    p [n]: probability of the best answer, of labelled texts. is_right [n]: whether it is correct.
    """
    order = sorted(range(len(p)), key=lambda i: -p[i])
    found = None
    for k in sizes(len(p), needed(risk, 0, confidence)):
        threshold = p[order[k - 1]]
        accepted = [i for i in order if p[i] >= threshold]  # with those of the same p
        n_errors = sum(not is_right[i] for i in accepted)
        if not holds(len(accepted), n_errors, risk, confidence):
            break
        found = Cut(threshold, len(accepted), n_errors)
    return found
