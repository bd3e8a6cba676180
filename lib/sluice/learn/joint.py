"""Join the model's log probabilities and the evidence of tokens: P ~ exp(scale * log p + bias +
trust * t), fitted to the taught texts with a Gaussian prior.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

TRUST, DEVIATIONS = 0.3, (0.3, 0.3, 1.0)  # of scale (relative), trust, biases
MAX_STEPS = 50
CLIP = 60.0


class Joint:
    """scale, trust: float. bias: list of float [k]."""

    def __init__(self, scale: float, trust: float, bias: "Sequence[float]") -> None:
        self.scale, self.trust, self.bias = scale, trust, list(bias)


def fit(log_p: "Any", t: "Any", labels: "Any", scale: float, bias: "Sequence[float]") -> Joint:
    """Fit to n texts. log_p: float [n][k], nats. t: float [n][k]. labels: int [n]. scale, bias: the
    mean of the prior.
    """
    import numpy as np

    k = len(bias)
    mean = np.array([scale, TRUST, *bias])
    precision = np.array(
        [(DEVIATIONS[0] * scale) ** -2, DEVIATIONS[1] ** -2, *[DEVIATIONS[2] ** -2] * k]
    )
    w = mean.copy()
    if len(labels):
        x = np.asarray(log_p, float).reshape(-1, k)
        x = np.maximum(x - x.max(1, keepdims=True), -CLIP)
        t = np.asarray(t, float).reshape(-1, k)
        order = np.lexsort((*x.T, *t.T, labels))
        x, t, labels = x[order], t[order], np.asarray(labels)[order]
        # features [n][k][2 + k]: the derivative of each score
        f = np.concatenate(
            (x[:, :, None], t[:, :, None], np.broadcast_to(np.eye(k), (len(x), k, k))), 2
        )
        right = f[np.arange(len(x)), labels]
        for _ in range(MAX_STEPS):
            z = f @ w
            p = np.exp(z - z.max(1, keepdims=True))
            p /= p.sum(1, keepdims=True)
            expected = np.einsum("nk,nkd->nd", p, f)
            gradient = (expected - right).sum(0) + precision * (w - mean)
            second = np.einsum("nk,nkd,nke->de", p, f, f) - expected.T @ expected
            step = np.linalg.solve(second + np.diag(precision), gradient)
            size = min(1.0, 1.0 / max(1e-9, float(np.abs(step).max())))
            w = w - size * step
            if np.abs(step).max() < 1e-10:
                break
    w = [float(f"{v:.9g}") for v in w]
    return Joint(max(w[0], scale / 5), max(w[1], 0.0), w[2:])


def apply(joint: Joint, log_p: "Sequence[float]", t: "Sequence[float]") -> list[float]:
    """Return scale * log_p + bias + trust * t for each answer."""
    return [joint.scale * p + b + joint.trust * e for p, b, e in zip(log_p, joint.bias, t)]
