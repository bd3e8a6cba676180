"""Fit the calibration P(label) ~ exp(scale * log P + bias) to labelled examples.

Penalized maximum likelihood by Newton's method. The objective is convex:

    - sum ln P(correct label)
    + PENALTY_SCALE / 2 * (scale / prior_scale - 1)^2
    + PENALTY_BIAS / 2 * sum (bias - prior_bias)^2

Source: Platt 1999 for two labels; Guo et al. 2017 (vector scaling, with one scale) for more. The
penalty keeps the fit near the question's calibration, the prior: without examples the prior is the
minimum, one example moves it a little, a hundred outweigh it. Sums have a fixed order, and exp and
ln are those of the kernels, so the same examples give the same bits on every machine. No numpy:
`classify --learn` starts as fast as `classify`.
"""

from math import fsum  # sum() rounds differently from Python 3.12 on

from ..kernels import lib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# The gradient of one misclassified example with a calibrated margin of m nats is at most m along
# scale / prior_scale and at most 1 along each bias. Both values come from experiments on the
# corpora of lib/spam_training: lower ones harmed messages like those of the training set.
PENALTY_SCALE = 100.0
PENALTY_BIAS = 3.0
PENALTY = PENALTY_SCALE, PENALTY_BIAS
# for many labels at once (`classify --fit`), which cross-validation compares with PENALTY
LIGHT = 1.0, 0.1
RANGE = 5.0  # scale stays within this factor of the prior's, so it stays positive
CLIP = 60.0  # nats: log probabilities this far below the best one are clipped
MAX_STEPS = 60
TOLERANCE = 1e-9  # of a Newton step's expected gain, in nats
MAX_WORK = 4_000_000  # rows * parameters^2: a step takes at most a second


def max_rows(n_answers: int) -> int:
    """Return the number of rows for which `fit` takes a few seconds at most."""
    return MAX_WORK // (n_answers + 1) ** 2


def fit(
    rows: "Any",
    labels: "Any",
    scale: float,
    bias: "Any",
    penalty: tuple[float, float] = PENALTY,
) -> tuple[float, list[float]]:
    """Fit scale and biases to labelled examples.

    rows: float [n][n_labels], uncalibrated log probabilities, nats.
    labels: int [n], index of the correct label.
    scale: float; bias: float [n_labels]; the prior. penalty: of the scale, and of each bias.
    Returns (scale, bias); scale stays within a factor of RANGE of the prior's. Raises nothing.
    """
    rows = [_clipped(row) for row in rows]
    problem = Problem(rows, labels, scale, bias, penalty)
    w = problem.descend([scale, *bias], first=0)
    min_scale, max_scale = scale / RANGE, scale * RANGE
    # the objective is convex: if its minimum is outside the range, the best scale is on the edge
    if not min_scale <= w[0] <= max_scale:
        w = problem.descend([min(max(w[0], min_scale), max_scale), *bias], first=1)
    return w[0], w[1:]


class Problem:
    """The objective. Its argument w is [scale, *biases]."""

    def __init__(
        self,
        rows: "Any",
        labels: "Any",
        scale: float,
        bias: "Any",
        penalty: tuple[float, float] = PENALTY,
    ) -> None:
        self.rows, self.labels, self.prior = rows, labels, [scale, *bias]
        self.penalty = [penalty[0] / scale**2] + [penalty[1]] * len(bias)

    def descend(self, w: list[float], first: int) -> list[float]:
        """Minimize over w[first:], starting from `w`; w[:first] stays fixed."""
        value, gradient, hessian = self.at(w)
        for _ in range(MAX_STEPS):
            step = solve([row[first:] for row in hessian[first:]], gradient[first:])
            gain = fsum(s * g for s, g in zip(step, gradient[first:]))
            if gain < TOLERANCE:
                break
            size = 1.0
            while True:  # Armijo's rule; it ends, because the objective is convex
                tried = w[:first] + [x - size * s for x, s in zip(w[first:], step)]
                found = self.at(tried)
                if found[0] <= value - 1e-4 * size * gain:
                    break
                size /= 2
                if size < 1e-6:  # only rounding errors remain
                    return w
            w, (value, gradient, hessian) = tried, found
        return w

    def at(self, w: list[float]) -> tuple[float, list[float], list[list[float]]]:
        """Return (value, gradient [n], Hessian [n][n]) at `w`, in float64."""
        n, off = len(w), [x - s for x, s in zip(w, self.prior)]
        value = fsum(0.5 * k * d * d for k, d in zip(self.penalty, off))
        gradient = [k * d for k, d in zip(self.penalty, off)]
        hessian = [[self.penalty[i] if i == j else 0.0 for j in range(n)] for i in range(n)]
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
    """Solve a x = b by Cholesky decomposition. a: [n][n], symmetric positive definite; b: [n]."""
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
