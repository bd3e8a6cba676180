"""A linear head on the hidden state after the prompt: ridge regression on the labels.

Each answer gets a score w . x + b, x the hidden state after the last norm; a calibration turns the
scores into probabilities. The w are those of ridge regression of the labels (1 for the correct
answer, else 0) on the standardized x, in its dual form: the products of all pairs of texts, so a
model with many dimensions and few texts costs little. Leaving one text out has a closed form, from
which the strength of the penalty and the calibration are chosen.

The same labels give the same bits on every machine: products of pairs are whole numbers that
float64 holds exactly, in whatever order BLAS adds them; all else is done element by element, or by
fsum. Sources: Hoerl and Kennard 1970; Allen 1974 (leaving one out).

numpy is imported to fit a head, and not to use one.
"""

from math import fsum
from operator import mul

from ..kernels import ffi, lib
from . import fitting

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

MIN_LABELS, MIN_OF_ANSWER = 60, 5
MAX_LABELS = 600  # time and memory grow with the third and second power
MAX_ANSWERS = 16
# of the mean squared length of a standardized x
STRENGTHS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
SCALE = 6.0  # a calibration's prior: scores are about 0 and 1
# standardized numbers are rounded to 1 / STEPS and clipped to +-LIMIT: a product of two has 34
# bits, and the sum of 2^19 of them is exact
STEPS, LIMIT = 1 << 12, 32.0


class Head:
    """weights [n_answers]: array of f32 [n_embd] each. offset: float [n_answers]."""

    def __init__(self, weights: "Sequence[Sequence[float]]", offset: list[float]) -> None:
        self.weights, self.offset = weights, offset

    def scores(self, x: "Any") -> list[float]:
        """Return the score of each answer. x: forward.Rows, a hidden state."""
        values = ffi.unpack(x.p, x.n)
        return [b + fsum(map(mul, w, values)) for w, b in zip(self.weights, self.offset)]


class Scores:
    """Scores of labelled texts, and the calibration that goes with them.

    rows: float [n][n_answers]; scale, bias: see fitting.
    """

    def __init__(self, rows: list[list[float]], scale: float, bias: list[float]) -> None:
        self.rows, self.scale, self.bias = rows, scale, bias


class Problem:
    """Hidden states with labels, ready for many fits to parts of them.

    hidden: bytes of f32 [n_embd] of each text. labels: index of the correct answer of each.
    """

    def __init__(self, hidden: "Sequence[bytes]", labels: "Sequence[int]", n_answers: int) -> None:
        import numpy as np

        self._np, self.labels, self._n_answers = np, list(labels), n_answers
        x = np.array([np.frombuffer(h, np.float32) for h in hidden], np.float64)
        n = len(x)
        self._mean = np.array([fsum(column) / n for column in x.T.tolist()])
        off = x - self._mean
        variance = np.array([fsum(column) / n for column in (off * off).T.tolist()])
        self._width = np.sqrt(np.where(variance > 0, variance, 1.0))
        steps = np.rint(np.clip(off / self._width, -LIMIT, LIMIT) * STEPS)
        self._z, self._products = steps / STEPS, (steps @ steps.T) / (STEPS * STEPS)

    def fit(self, of: "Sequence[int]") -> "_Fit":
        """Fit a head to the texts numbered `of`, with the strength that leaves out best."""
        return min((self._fit(of, s) for s in STRENGTHS), key=lambda f: f.loss)

    def _fit(self, of, strength):
        np, n, k = self._np, len(of), self._n_answers
        g = self._products[np.ix_(of, of)]
        row_mean = np.array([fsum(row) / n for row in g.tolist()])
        g = ((g - row_mean[:, None]) - row_mean[None, :]) + fsum(row_mean) / n
        penalty = strength * fsum(np.diagonal(g)) / n
        labels = [self.labels[i] for i in of]
        y = np.array([[float(a == label) for a in range(k)] for label in labels])
        centre = np.array([fsum(column) / n for column in y.T.tolist()])
        inverse = _inverse(g + penalty * np.eye(n))
        alpha = _product(inverse, y - centre)
        # what the fit without a text misses it by: the fit's own miss over 1 - leverage
        leverage = np.maximum(penalty * np.diagonal(inverse) - 1.0 / n, 1e-9)
        left_out = (y - penalty * alpha / leverage[:, None]).tolist()
        scale, bias = fitting.fit(left_out, labels, SCALE, [0.0] * k, fitting.LIGHT)
        loss = log_loss(left_out, labels, scale, bias)
        return _Fit(list(of), strength, alpha, centre, row_mean, scale, bias, loss)

    def scores(self, fit: "_Fit", of: "Sequence[int]") -> list[list[float]]:
        """Return the scores of the texts numbered `of` by a fit to others."""
        products = self._products[self._np.ix_(of, fit.of)] - fit.row_mean
        found: list[list[float]] = (_product(products, fit.alpha) + fit.centre).tolist()
        return found

    def head(self, fit: "_Fit") -> Head:
        """Return the Head of a fit, with weights rounded to f32."""
        np, k = self._np, self._n_answers
        w = _product(np.ascontiguousarray(self._z[fit.of].T), fit.alpha)  # [n_embd, k]
        w = (w / self._width[:, None]).astype(np.float32)
        shift = [fsum((fit.alpha[:, a] * fit.row_mean).tolist()) for a in range(k)]
        moved = [fsum((w[:, a].astype(np.float64) * self._mean).tolist()) for a in range(k)]
        offset = [float(fit.centre[a]) - shift[a] - moved[a] for a in range(k)]
        from array import array

        return Head([array("f", np.ascontiguousarray(w[:, a]).tobytes()) for a in range(k)], offset)


class _Fit:
    """of: numbers of the texts. alpha [n, n_answers], row_mean [n], centre [n_answers]: arrays.
    scale, bias: calibration. loss: mean, with each text left out.
    """

    def __init__(self, of, strength, alpha, centre, row_mean, scale, bias, loss):
        self.of, self.strength, self.alpha, self.centre = of, strength, alpha, centre
        self.row_mean, self.scale, self.bias, self.loss = row_mean, scale, bias, loss


def log_loss(
    rows: "Sequence[Sequence[float]]",
    labels: "Sequence[int]",
    scale: float,
    bias: "Sequence[float]",
) -> float:
    """Return the mean of -ln P(correct answer), nats."""
    losses = []
    for row, right in zip(rows, labels):
        z = [scale * x + b for x, b in zip(row, bias)]
        top = max(z)
        losses.append(lib.sluice_log(fsum(lib.sluice_exp(v - top) for v in z)) + top - z[right])
    return fsum(losses) / len(losses)


def _inverse(a):
    """Return the inverse of a symmetric positive definite matrix [n, n]: Gauss-Jordan elimination,
    in which each element is one product and one difference a step.
    """
    a = a.copy()
    for k in range(len(a)):
        pivot = a[k, k]
        row, column = a[k] / pivot, a[:, k].copy()
        a -= column[:, None] * row
        a[k] = row
        a[:, k] = column / -pivot
        a[k, k] = 1.0 / pivot
    return a


def _product(a, b):
    """Return a [n, m] times b [m, k], terms added in order."""
    out = a[:, :1] * b[0]
    for j in range(1, len(b)):
        out += a[:, j : j + 1] * b[j]
    return out
