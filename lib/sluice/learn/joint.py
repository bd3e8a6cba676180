"""Join the model's log probabilities and the evidence of the user's tokens.

    ln P(answer a) = scale * log_p_a + bias_a + trust * t_a + constant

log_p are the model's log probabilities before calibration, t is of evidence.py. scale, bias and
trust are fitted to the learned texts: penalized maximum likelihood, which is convex, by Newton's
method. The penalty is a Gaussian prior around the question's calibration and TRUST; so few texts
move little, and the data decide from some dozens on. A model that is mostly right keeps its weight;
one that knows nothing of the user's mail loses it to the tokens.

How free each is depends on how balanced the texts are. Texts with one answer alone tell a bias
nothing but that this answer exists; it would give it to every text, and scale and trust would
follow. So all three then hardly move, and what was learned speaks through the tokens that name a
sender. See `prior`.

Source: Platt 1999; a fit of log probabilities and evidence together is stacking (Wolpert 1992), for
which the evidence of a learned text must not count the text itself (`evidence.taught`).
"""

from typing import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

# The prior, from curves of simulated users (lib/spam_training/README.md). Of each pair the first is
# for texts with one answer alone, where senders alone speak, the second for balanced ones.
TRUST = 1.0, 0.5  # mean, per nat of evidence
# deviations
FREE_SCALE = 0.05, 0.6  # as a share of the question's scale
FREE_TRUST = 0.2, 2.0
FREE_BIAS = 0.15, 1.0  # nats
# balanced texts at which the deviation is half way: some of each answer show whether model and
# tokens are right, more show where the answers part
HALF_FREE, HALF_FREE_BIAS = 1.0, 10.0
MAX_STEPS = 40
CLIP = 60.0  # nats: log probabilities this far below the best one are clipped
DIGITS = 9  # of the result; rounding takes off what differs between machines


class Joint(NamedTuple):
    """scale: of the log probabilities. trust: in the tokens. bias: list of float [k], nats."""

    scale: float
    trust: float
    bias: list[float]


def apply(joint: Joint, log_p: "Sequence[float]", t: "Sequence[float]") -> list[float]:
    """Return list of float [k]: log probabilities, unnormalised, the best of log_p at 0."""
    top = max(log_p)
    return [
        joint.scale * max(x - top, -CLIP) + b + joint.trust * e
        for x, b, e in zip(log_p, joint.bias, t)
    ]


def prior(
    totals: "Sequence[int]", scale: float, bias: "Sequence[float]"
) -> tuple[list[float], list[float]]:
    """Return (means, deviations) of [scale, trust, *biases].

    totals: int [k], texts by answer. scale, bias: the question's. Balanced, for a bias, is the
    harmonic mean of the number of texts with its answer and of that of all others; for scale and
    trust that of the most frequent answer.
    """
    n_all = sum(totals)
    balanced = lambda n: 2 / (1 / n + 1 / (n_all - n)) if 0 < n < n_all else 0.0
    between = lambda ends, share: ends[0] + (ends[1] - ends[0]) * share
    most = balanced(max(totals))
    share = most / (most + HALF_FREE)
    shares = [balanced(n) / (balanced(n) + HALF_FREE_BIAS) for n in totals]
    return (
        [scale, between(TRUST, share), *bias],
        [
            between(FREE_SCALE, share) * scale,
            between(FREE_TRUST, share),
            *(between(FREE_BIAS, x) for x in shares),
        ],
    )


def fit(
    log_p: "np.ndarray",
    t: "np.ndarray",
    labels: "np.ndarray",
    scale: float,
    bias: "Sequence[float]",
) -> Joint:
    """Fit a Joint to learned texts.

    log_p: float [n][k], before calibration, nats. t: float [n][k], of evidence.taught. labels: int
    [n], index of the correct answer. scale; bias [k]: the question's calibration, which is the
    prior's mean. Without texts the result is the prior's mean. Scale and trust are not negative.
    The order of the texts does not matter.
    """
    import numpy as np

    k = len(bias)
    x = np.asarray(log_p, float).reshape(-1, k)
    t, labels = np.asarray(t, float).reshape(-1, k), np.asarray(labels, np.int64)
    order = np.lexsort((*t.T, *x.T, labels))
    x, t, labels = x[order], t[order], labels[order]
    x = np.maximum(x - x.max(1, keepdims=True), -CLIP)
    totals = np.bincount(labels, minlength=k).tolist()
    mean, deviation = (np.array(x) for x in prior(totals, scale, bias))
    objective = _Objective(x, t, labels, mean, deviation)
    w = _descend(objective, mean, [])
    if w[0] < 0 or w[1] < 0:  # the best allowed one is on an edge, by convexity
        edges = [_descend(objective, mean, fixed) for fixed in ([0], [1], [0, 1])]
        w = min((e for e in edges if e[0] >= 0 and e[1] >= 0), key=objective.value)
    rounded = [float(f"{v:.{DIGITS}g}") for v in w.tolist()]
    return Joint(rounded[0], rounded[1], rounded[2:])


class _Objective:
    """The penalized loss, nats. Its argument w is [scale, trust, *biases]."""

    def __init__(
        self,
        x: "np.ndarray",
        t: "np.ndarray",
        labels: "np.ndarray",
        mean: "np.ndarray",
        deviation: "np.ndarray",
    ) -> None:
        self.x, self.t, self.labels, self.mean = x, t, labels, mean
        self.penalty = deviation**-2.0

    def value(self, w: "np.ndarray") -> float:
        z, top = self._scores(w)
        right = z[range(len(z)), self.labels]
        import numpy as np

        loss = np.log(np.exp(z - top).sum(1)) + top[:, 0] - right
        return float(loss.sum() + 0.5 * (self.penalty * (w - self.mean) ** 2).sum())

    def derivatives(self, w: "np.ndarray") -> "tuple[np.ndarray, np.ndarray]":
        """(gradient [2 + k], Hessian [2 + k][2 + k])."""
        import numpy as np

        z, top = self._scores(w)
        p = np.exp(z - top)
        p /= p.sum(1, keepdims=True)
        off = p.copy()
        off[range(len(z)), self.labels] -= 1
        gradient = np.concatenate(
            ([(off * self.x).sum(), (off * self.t).sum()], off.sum(0))
        ) + self.penalty * (w - self.mean)
        # covariance under p of what each parameter multiplies
        inputs = [v - (p * v).sum(1, keepdims=True) for v in (self.x, self.t)]
        hessian = np.diag(self.penalty)
        for i, u in enumerate(inputs):
            for j, v in enumerate(inputs):
                hessian[i, j] += (p * u * v).sum()
            hessian[i, 2:] += (p * u).sum(0)
            hessian[2:, i] += (p * u).sum(0)
        hessian[2:, 2:] += np.diag(p.sum(0)) - p.T @ p
        return gradient, hessian

    def _scores(self, w):
        z = w[0] * self.x + w[1] * self.t + w[2:]
        return z, z.max(1, keepdims=True)


def _descend(objective: _Objective, start: "np.ndarray", fixed: list[int]) -> "np.ndarray":
    """Minimize by Newton's method with Armijo's rule. Elements `fixed` of w are 0."""
    import numpy as np

    w = start.copy()
    w[fixed] = 0.0
    free = np.array([i for i in range(len(w)) if i not in fixed])
    value = objective.value(w)
    for _ in range(MAX_STEPS):
        gradient, hessian = objective.derivatives(w)
        step = np.zeros(len(w))
        step[free] = np.linalg.solve(hessian[np.ix_(free, free)], gradient[free])
        gain, size = float(step @ gradient), 1.0
        if gain < 1e-14:
            break
        while size > 1e-6:
            tried = objective.value(w - size * step)
            if tried <= value - 1e-4 * size * gain:
                break
            size /= 2
        else:  # only rounding errors remain
            break
        w, value = w - size * step, tried
    return w
