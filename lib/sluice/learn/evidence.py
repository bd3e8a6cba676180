"""Weigh the tokens of a text by the learned texts that have them.

A token has a weight for each answer a, in nats:

    c_a   learned texts with answer a that have the token, of N_a
    p     share of all learned texts that have it: sum of c_a / sum of N_a
    r_a   (c_a + SHRINK * p) / (N_a + SHRINK): its share among those with answer a, drawn to p
    w_a   ln r_a - mean over the answers of ln r

The evidence t of a text is a mean of its tokens' weights, in which a token counts by how telling it
is, m = max |w_a|:

    t_a = sum of sqrt(m) * w_a / (DAMPING + sum of sqrt(m))

over the MAX_TELLING most telling tokens. A token that only texts with one answer have weighs the
same however few these are: in the curves of `classify --evaluate --curve`, holding rare tokens back
made every number of texts worse. So t says how much, on average, each token speaks for an
answer, and does not grow with the length of a text: sums of dependent tokens do, and are sure of
what they do not know. Tokens without a tendency, and those that no learned text has, count nothing,
however many there are; DAMPING keeps a text of two or three known tokens from being sure.

Where all learned texts have one answer, r_a is p for each, and w is 0: nothing is known of texts
with another answer. But of a token that names a sender or list it is known that others do not have
it, so its p is SENDER_SHARE. After some texts of a list, all wanted, the next one is wanted, too.

Sources: shares drawn to a common one, Robinson 2003 ("A statistical approach to the spam problem")
and Zhai & Lafferty 2004 (Dirichlet prior); the mean in place of a sum is ours, from these curves.

`of` needs no numpy: a verdict starts without it.
"""

from math import fsum, log, sqrt

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy as np

SHRINK = 1.0  # texts: how many count as much as the pooled share
SENDER_SHARE = 0.1  # p of a token that names a sender
LEAST = 1e-9  # nats: weights below are rounding errors
DAMPING = 3.0  # nats^0.5 of tokens that say nothing
MAX_TELLING = 1000  # tokens that t is a mean of
MAX_CELLS = 1 << 21  # tokens * answers that `taught` holds at once


def of(
    counts: "Sequence[Sequence[int]]",
    totals: "Sequence[int]",
    of_sender: "Sequence[int] | None" = None,
) -> tuple[list[float], list[list[float]]]:
    """Return (t, shares): the evidence of a text, and what each of its tokens adds to t.

    counts: int [n_tokens][k], how many of the learned texts with each answer have the token; tokens
    that none has may be left out. totals: int [k], learned texts with each answer, at least counts.
    of_sender: [n_tokens], 1 for a token that names a sender or list, else 0; None: none does.
    t: float [k], its sum is 0 but for rounding. shares: float [n_tokens][k], in the order of
    `counts`; 0 for a token that is not among the most telling. Raises nothing. The order of tokens
    changes no bit of t.
    """
    # many tokens have the counts of others
    alike: dict[tuple[tuple[int, ...], int], list[int]] = {}
    for i, (row, names) in enumerate(zip(counts, of_sender or [0] * len(counts))):
        alike.setdefault((tuple(row), names), []).append(i)
    k = len(totals)
    weights = _weights_of_two(alike, totals) if k == 2 else _weights(alike, totals)
    # of equally telling ones the first by weight stay, so that their order does not matter
    strong = [
        (-sqrt(m), w, some)
        for w, some in zip(weights, alike.values())
        if (m := max(max(w), -min(w))) > LEAST
    ]
    strong.sort()
    telling: list[tuple[float, list[float], int]] = []
    for weakness, w, some in strong:
        telling += [(-weakness, w, i) for i in some]
        if len(telling) >= MAX_TELLING:
            break
    del telling[MAX_TELLING:]
    total = DAMPING + fsum([strength for strength, _, _ in telling])
    shares, terms = [[0.0] * k] * len(counts), []
    for strength, w, i in telling:
        shares[i] = share = [strength * x / total for x in w]
        terms.append(share)
    return [fsum(column) for column in zip(*terms)] or [0.0] * k, shares


def _weights(
    rows: "Iterable[tuple[Sequence[int], int]]", totals: "Sequence[int]"
) -> list[list[float]]:
    """Return the weights of tokens for each answer. rows: the counts of each, and its of_sender."""
    n_all, found = sum(totals), []
    for row, names in rows:
        n = sum(row)
        drawn = SHRINK * (SENDER_SHARE if names else n / n_all) if n else 0.0
        logs = [log((c + drawn) / (of + SHRINK)) if drawn else 0.0 for c, of in zip(row, totals)]
        mean = fsum(logs) / len(logs)
        found.append([x - mean for x in logs])
    return found


def _weights_of_two(
    rows: "Iterable[tuple[Sequence[int], int]]", totals: "Sequence[int]"
) -> list[list[float]]:
    """As _weights for two answers; the weights are exactly opposite."""
    n_all = sum(totals)
    n_a, n_b = (of + SHRINK for of in totals)
    found = []
    for (a, b), names in rows:
        half = 0.0
        if a or b:
            drawn = SHRINK * (SENDER_SHARE if names else (a + b) / n_all)
            half = (log((a + drawn) / n_a) - log((b + drawn) / n_b)) / 2
        found.append([half, -half])
    return found


def taught(
    texts: "Sequence[np.ndarray]",
    labels: "np.ndarray",
    k: int,
    which: "np.ndarray | None" = None,
) -> "np.ndarray":
    """Return float64 [n][k], the evidence of learned texts, each as if it had not been learned.

    Counted in themselves, learned texts would look much surer than texts to come.

    texts: for each learned text an integer array of its tokens, digests or numbers, each once.
    An odd one names a sender or list. labels: int [n_texts], index of its answer. which: int [n],
    indices of texts; None is all. Memory is bounded by the tokens and MAX_CELLS.
    """
    import numpy as np

    labels = np.asarray(labels, np.int64)
    table = Table(texts, labels, k)
    chosen = np.arange(len(texts)) if which is None else np.asarray(which, np.int64)
    return table.evidence([texts[i] for i in chosen], labels[chosen])


class Table:
    """The counts of the tokens of learned texts, for the evidence of many texts.

    texts, labels, k: see `taught`.
    """

    def __init__(self, texts: "Sequence[np.ndarray]", labels: "np.ndarray", k: int) -> None:
        import numpy as np

        labels = np.asarray(labels, np.int64)
        sizes = np.array([len(text) for text in texts], np.int64)
        every = np.concatenate(texts) if sizes.sum() else np.zeros(0, np.int64)
        self._names, token = np.unique(every, return_inverse=True)
        self._counts = np.bincount(
            token * k + np.repeat(labels, sizes), minlength=len(self._names) * k
        ).reshape(-1, k)
        self._totals = np.bincount(labels, minlength=k)

    def evidence(
        self, texts: "Sequence[np.ndarray]", own: "np.ndarray | None" = None
    ) -> "np.ndarray":
        """Return float64 [n][k], the evidence of n texts.

        own: int [n], the answer of each, if the texts are among those of the table: each is then
        left out. None: they are others.
        """
        import numpy as np

        k, at = len(self._totals), 0
        out = np.zeros((len(texts), k))
        most = max((len(text) for text in texts), default=0)
        n_together = max(1, MAX_CELLS // (k * max(1, most)))
        while at < len(texts) and len(self._names):
            part = texts[at : at + n_together]
            every = np.concatenate(part)
            row = np.repeat(np.arange(len(part)), [len(text) for text in part])
            token = np.minimum(np.searchsorted(self._names, every), len(self._names) - 1)
            known = self._names[token] == every
            counts = self._counts[token[known]].astype(float)
            totals = np.tile(self._totals.astype(float), (len(part), 1))
            row = row[known]
            if own is not None:
                labels = np.asarray(own, np.int64)[at : at + n_together]
                counts[np.arange(len(row)), labels[row]] -= 1
                totals[np.arange(len(part)), labels] -= 1
            names_sender = every[known] % 2 == 1
            out[at : at + len(part)] = _means(counts, totals, row, names_sender)
            at += len(part)
        return out


def _means(
    counts: "np.ndarray", totals: "np.ndarray", row: "np.ndarray", of_sender: "np.ndarray"
) -> "np.ndarray":
    """float64 [n][k]: evidence of n texts. counts: [n_tokens][k], theirs one text after the other;
    row: int [n_tokens], the text of each, ascending; of_sender: bool [n_tokens]; totals: [n][k],
    learned texts by answer.
    """
    import numpy as np

    n, k = totals.shape
    n_texts = counts.sum(1)
    share = np.where(of_sender, SENDER_SHARE, n_texts / np.maximum(1, totals.sum(1))[row])
    pooled, known = SHRINK * share, n_texts > 0
    counts, row, pooled = counts[known], row[known], pooled[known]
    weights = np.log((counts + pooled[:, None]) / (totals[row] + SHRINK))
    weights -= weights.mean(1, keepdims=True)
    strength = np.abs(weights).max(1)
    strength = np.sqrt(strength * (strength > LEAST))
    order = np.lexsort((-strength, row))  # by text, the most telling first
    row, weights, strength = row[order], weights[order], strength[order]
    rank = np.arange(len(row)) - np.searchsorted(row, row)
    stays = rank < MAX_TELLING
    row, weights, strength = row[stays], weights[stays], strength[stays]
    total = DAMPING + np.bincount(row, strength, n)
    sums = [np.bincount(row, strength * weights[:, a], n) for a in range(k)]
    return np.stack(sums, 1) / total[:, None]
