"""A calibration fitted to what somebody says of some mails: penalised maximum likelihood, by
Newton's method.

    P(answer) ~ exp(scale log P + bias)

minimises
- sum ln P(right answer)  +  STIFF_SCALE / 2 (scale / shipped - 1)^2  +  STIFF_BIAS / 2 sum (bias -
    shipped)^2

which is convex, so there is one minimum. (Platt 1999 for two answers; Guo et al. 2017, "vector
scaling" with one scale, for more.) The penalty is what the shipped calibration is worth: with none
learnt it is the minimum, one mail moves it a little, a hundred outweigh it. Sums are in a fixed
order and exp and ln are ours, so the same mails give the same bits on every machine. No numpy:
classify --learn takes as long to start as classify.
"""

from math import fsum  # sum() rounds otherwise from Python 3.12 on

from ..kernels import lib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# a mail that is the contrary of what a margin of m nats (calibrated) says pulls at scale / shipped
# with m at most,
STIFF_SCALE = 100.0
# and at each of two biases with 1. Both chosen with training/taught.py: softer ones harmed mail of
# the shipped kind
STIFF_BIAS = 3.0
RANGE = 5.0  # scale stays within this factor of the shipped one: never 0, never negative
CLIP = 60.0  # nats: log probabilities further below the best one say no more than that
MAX_STEPS = 60
ENOUGH = 1e-9  # of a Newton step's expected gain, in nats
MAX_WORK = 4_000_000  # rows times parameters squared: a step takes a second or less


def most_rows(n_answers: int) -> int:
    """How many rows `fit` should be given at most for so many answers, that it takes some seconds
    at most.
    """
    return MAX_WORK // (n_answers + 1) ** 2


def fit(rows: "Any", labels: "Any", scale: float, bias: "Any") -> tuple[float, list[float]]:
    """(scale, biases) for `rows` [n][n_answers], log probabilities before calibration (nats), whose
    right answers are `labels` [n]; `scale` and `bias` [n_answers] are those shipped.
    """
    rows = [_clipped(row) for row in rows]
    problem = Problem(rows, labels, scale, bias)
    w = problem.descend([scale, *bias], first=0)
    least, most = scale / RANGE, scale * RANGE
    if not least <= w[0] <= most:  # convex: then the minimum within the range is on its edge
        w = problem.descend([min(max(w[0], least), most), *bias], first=1)
    return w[0], w[1:]


class Problem:
    """What is minimised. w: scale, then the biases."""

    def __init__(self, rows: "Any", labels: "Any", scale: float, bias: "Any") -> None:
        self.rows, self.labels, self.shipped = rows, labels, [scale, *bias]
        self.stiff = [STIFF_SCALE / scale**2] + [STIFF_BIAS] * len(bias)

    def descend(self, w: list[float], first: int) -> list[float]:
        """The minimum over w[first:], from `w` on; what is before stays."""
        value, gradient, hessian = self.at(w)
        for _ in range(MAX_STEPS):
            step = solve([row[first:] for row in hessian[first:]], gradient[first:])
            gain = fsum(s * g for s, g in zip(step, gradient[first:]))
            if gain < ENOUGH:
                break
            size = 1.0
            while True:  # Armijo's rule; with a convex function it ends
                tried = w[:first] + [x - size * s for x, s in zip(w[first:], step)]
                found = self.at(tried)
                if found[0] <= value - 1e-4 * size * gain:
                    break
                size /= 2
                if size < 1e-6:  # rounding is all that is left
                    return w
            w, (value, gradient, hessian) = tried, found
        return w

    def at(self, w: list[float]) -> tuple[float, list[float], list[list[float]]]:
        """(value, gradient [n], second derivatives [n][n]) at `w`."""
        n, off = len(w), [x - s for x, s in zip(w, self.shipped)]
        value = fsum(0.5 * k * d * d for k, d in zip(self.stiff, off))
        gradient = [k * d for k, d in zip(self.stiff, off)]
        hessian = [[self.stiff[i] if i == j else 0.0 for j in range(n)] for i in range(n)]
        scale, bias = w[0], w[1:]
        for row, right in zip(self.rows, self.labels):
            z = [scale * x + b for x, b in zip(row, bias)]
            top = max(z)
            e = [lib.sluice_exp(v - top) for v in z]
            total = fsum(e)
            value += lib.sluice_log(total) + top - z[right]
            p = [v / total for v in e]
            mean = fsum(q * x for q, x in zip(p, row))
            gradient[0] += mean - row[right]
            gradient[1 + right] -= 1.0
            for a, q in enumerate(p, 1):
                gradient[a] += q
                spread = q * (row[a - 1] - mean)
                hessian[0][0] += spread * row[a - 1]
                hessian[0][a] += spread
                line = hessian[a]
                line[a] += q
                for b in range(a, n):
                    line[b] -= q * p[b - 1]
        for i in range(n):
            for j in range(i):
                hessian[i][j] = hessian[j][i]
        return value, gradient, hessian


def solve(a: list[list[float]], b: list[float]) -> list[float]:
    """x with a x = b, for a symmetric positive definite `a` [n][n]: Cholesky."""
    n = len(b)
    low = [[0.0] * n for _ in range(n)]
    for i in range(n):
        for j in range(i + 1):
            rest = a[i][j] - fsum(low[i][k] * low[j][k] for k in range(j))
            low[i][j] = rest**0.5 if i == j else rest / low[j][j]
    x = list(b)
    for i in range(n):
        x[i] = (x[i] - fsum(low[i][k] * x[k] for k in range(i))) / low[i][i]
    for i in reversed(range(n)):
        x[i] = (x[i] - fsum(low[k][i] * x[k] for k in range(i + 1, n))) / low[i][i]
    return x


def _clipped(row):
    top = max(row)
    return [max(x - top, -CLIP) for x in row]
