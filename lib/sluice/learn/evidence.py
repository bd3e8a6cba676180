"""What the tokens of a text say of its answer, by how many taught texts of each answer have them.

For an answer a and a token: p is the share of the texts of a that have it, over this share plus
that of all other texts. Few texts say little, so p moves to 1/2: f = (S / 2 + n p) / (S + n), for n
texts with the token (Robinson 2003). A token adds ln(f / (1 - f)) / 2, less the mean over the
answers; the MAX_TELLING that say most are summed, over the root of their number.
"""

from math import fsum, log, sqrt

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

MAX_TELLING = 150
S = 0.5


def of(
    counts: "Sequence[Sequence[int]]", totals: "Sequence[int]"
) -> tuple[list[float], list[list[float]]]:
    """Return (t, weights): the evidence for each answer, and what each token adds to it.

    counts: for each token of a text, the number of taught texts of each answer that have it.
    totals: taught texts of each answer. t: [k], its sum is 0; all 0 if nothing is known.
    """
    k = len(totals)
    if not all(totals):
        return [0.0] * k, [[0.0] * k for _ in counts]
    known: dict[tuple[int, ...], list[float]] = {}
    found = []
    for token in counts:
        key = tuple(token)
        if key not in known:
            known[key] = _telling(key, totals)
        found.append(known[key])
    strength = [max(map(abs, w)) for w in found]
    telling = sorted(range(len(found)), key=lambda i: (-strength[i], found[i]))[:MAX_TELLING]
    telling = [i for i in telling if strength[i]]
    size = sqrt(len(telling)) or 1.0
    weights = [[0.0] * k for _ in found]
    for i in telling:
        weights[i] = [w / size for w in found[i]]
    return [fsum(weights[i][a] for i in telling) for a in range(k)], weights


def taught(tokens: "Sequence[Any]", labels: "Sequence[int]", k: int) -> "Any":
    """Return the evidence of taught texts, float64 [n][k], each as if it had not been taught.

    tokens: of each text, unique ints. labels: int [n].
    """
    import numpy as np

    totals = [0] * k
    counts: dict[int, list[int]] = {}
    for some, label in zip(tokens, labels):
        totals[label] += 1
        for token in some.tolist():
            counts.setdefault(token, [0] * k)[label] += 1
    out = np.zeros((len(labels), k))
    for i, (some, label) in enumerate(zip(tokens, labels)):
        totals[label] -= 1
        rows = []
        for token in some.tolist():
            row = list(counts[token])
            row[label] -= 1
            if any(row):
                rows.append(row)
        out[i] = of(rows, totals)[0]
        totals[label] += 1
    return out


def _telling(counts, totals):
    """What a token adds to each answer."""
    n, n_all = sum(counts), sum(totals)
    out = []
    for c, total in zip(counts, totals):
        share, others = c / total, (n - c) / (n_all - total)
        p = share / (share + others) if n else 0.5
        f = (S / 2 + n * p) / (S + n)
        out.append(log(f / (1 - f)) / 2)
    mean = fsum(out) / len(out)
    return [w - mean for w in out]
