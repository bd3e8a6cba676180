"""Figures of a classifier on labelled texts, as functions of how often each text counts.

A resample of the bootstrap counts some texts twice and some not at all, so every figure is a
weighted one. What depends on the texts alone, such as their order by score, is computed once.

    accuracy             share of texts whose best answer is correct: the one given, and of those
                         that are "unsure" the most probable one
    auc                  area under the ROC curve: share of pairs of a text with the answer and one
                         without that are in order, ties half (Mann & Whitney 1947). For two answers
                         that of the first; for more the mean of those of the answers, each against
                         the rest
    brier                mean of the sum over answers of (p - 1 if correct, else p)^2, halved for
                         two answers (Brier 1950; the half is the usual form for yes and no)
    log_loss             mean of -ln p of the correct answer, nats; p is at least LEAST_P
    ece                  expected calibration error: mean over the texts of |accuracy - mean p| of
                         their bin; p is that of the best answer, in N_BINS bins of equal
                         width (Guo et al. 2017)
    coverage             share of texts that got an answer, by the question's thresholds
    accuracy_answered    share of these whose answer is correct
    precision, recall, f1
                         for each answer, of what the confusion matrix shows: "unsure" is no answer

A figure without a text to compute it from is NaN.
"""

from __future__ import annotations

import numpy as np

N_BINS = 15
LEAST_P = 2.0**-52
# figures of all texts, in the order of reports
OVERALL = ("accuracy", "auc", "brier", "log_loss", "ece", "coverage", "accuracy_answered")
PER_ANSWER = ("precision", "recall", "f1", "auc")


class Outcome:
    """What a classifier said of n texts with K answers.

    p: float64 [n][K], probabilities. right: int [n], index of the correct answer. answered: int
    [n], index of the answer given; K for "unsure".
    """

    def __init__(self, p: np.ndarray, right: np.ndarray, answered: np.ndarray) -> None:
        self.p, self.right, self.answered = p, right, answered
        self.n, self.n_answers = p.shape
        # of a score, the answer given is the level next to the expected one
        self.best = np.where(answered < self.n_answers, answered, p.argmax(1))
        self.is_right = self.best == right
        self.p_right = p[np.arange(self.n), right]
        self.p_best = p[np.arange(self.n), self.best]

    def confusion(self) -> np.ndarray:
        """int [K][K + 1]: texts by correct answer and answer given, the last column "unsure"."""
        k = self.n_answers
        cells = np.bincount(self.right * (k + 1) + self.answered, minlength=k * (k + 1))
        return cells.reshape(k, k + 1)


class Figures:
    """The figures of an Outcome.

    names: [(name, index of an answer or None)], in the order of what `at` returns.
    """

    def __init__(self, outcome: Outcome) -> None:
        self._o = o = outcome
        k = o.n_answers
        self.names: list[tuple[str, int | None]] = [(name, None) for name in OVERALL]
        self.names += [(name, a) for name in PER_ANSWER for a in range(k)]
        correct = np.zeros_like(o.p)
        correct[np.arange(o.n), o.right] = 1
        self._brier = ((o.p - correct) ** 2).sum(1) / (2 if k == 2 else 1)
        self._loss = -np.log(np.maximum(o.p_right, LEAST_P))
        self._top = o.p_best
        self._bin = bins(self._top, N_BINS)
        self._cell = o.right * (k + 1) + o.answered
        self._rankings = Rankings(o.p[:, :1] if k == 2 else o.p, o.right)

    def at(self, count: np.ndarray) -> np.ndarray:
        """float64 [figures]. count: float64 [n], how often each text counts, whole numbers."""
        o, k, total = self._o, self._o.n_answers, count.sum()
        cells = np.bincount(self._cell, count, k * (k + 1)).reshape(k, k + 1)
        hit, given, of = cells.diagonal(), cells[:, :k].sum(0), cells.sum(1)
        gap = np.bincount(self._bin, count * (o.is_right - self._top), N_BINS)
        auc = self._rankings.auc(count)
        auc = np.repeat(auc, 2) if k == 2 else auc
        overall = [
            (count * o.is_right).sum() / total,
            auc[0] if k == 2 else _mean(auc),
            (count * self._brier).sum() / total,
            (count * self._loss).sum() / total,
            np.abs(gap).sum() / total,
            given.sum() / total,
            _ratio(hit.sum(), given.sum()),
        ]
        per_answer = [_ratio(hit, given), _ratio(hit, of), _ratio(2 * hit, given + of), auc]
        return np.concatenate([np.array(overall, float), *per_answer])


class Rankings:
    """The order of texts by each answer's probability, for the areas under the ROC curves.

    p: float64 [n][answers]. right: int [n], index of the correct answer.
    """

    def __init__(self, p: np.ndarray, right: np.ndarray) -> None:
        n, k = p.shape
        order = np.argsort(p, axis=0, kind="stable").T.ravel()  # [k * n], answer by answer
        answer = np.repeat(np.arange(k), n)
        ordered = p[order, answer]
        is_first = np.r_[True, (ordered[1:] != ordered[:-1]) | (answer[1:] != answer[:-1])]
        first = np.flatnonzero(is_first)  # of each group of equal probabilities
        group = np.cumsum(is_first) - 1
        is_positive = right[order] == answer
        self._order, self._is_negative = order, ~is_positive
        # each text is positive for one answer: where it stands, and the bounds of its group
        at = np.flatnonzero(is_positive)
        self._text, self._answer = order[at], answer[at]
        self._begin, self._end = first[group[at]], np.r_[first, k * n][group[at] + 1]
        self._base = self._answer * n
        self._k = k

    def auc(self, count: np.ndarray) -> np.ndarray:
        """float64 [answers]: the areas, NaN without a positive or without a negative text.

        count: as of Figures.at. Sums are of halves of whole numbers, so they are exact.
        """
        negatives = np.r_[0, np.cumsum(count[self._order] * self._is_negative)]
        below = (negatives[self._begin] + negatives[self._end]) / 2 - negatives[self._base]
        weight = count[self._text]
        in_order = np.bincount(self._answer, weight * below, self._k)
        positive = np.bincount(self._answer, weight, self._k)
        return _ratio(in_order, positive * (count.sum() - positive))


def bins(p: np.ndarray, n_bins: int) -> np.ndarray:
    """int [n]: the bin of each probability, of n_bins of equal width; 1.0 is in the last."""
    return np.minimum((p * n_bins).astype(int), n_bins - 1)


def reliability(p: np.ndarray, is_true: np.ndarray, n_bins: int) -> list[tuple[float, float, int]]:
    """[(mean p, share that is true, texts)] of each bin that is not empty."""
    where = bins(p, n_bins)
    n = np.bincount(where, minlength=n_bins)
    p_sum, true = np.bincount(where, p, n_bins), np.bincount(where, is_true, n_bins)
    return [(float(p_sum[b] / n[b]), float(true[b] / n[b]), int(n[b])) for b in np.flatnonzero(n)]


def roc(score: np.ndarray, positive: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(false-positive rate, true-positive rate) at every threshold, from 0 to 1: float64 [points].

    NaN if there is no positive or no negative text.
    """
    order = np.argsort(-score, kind="stable")
    ordered, hits = score[order], positive[order]
    last = np.flatnonzero(np.r_[ordered[1:] != ordered[:-1], True])  # of each group of equal scores
    true = np.r_[0, np.cumsum(hits)[last]]
    false = np.r_[0, np.cumsum(~hits)[last]]
    with np.errstate(invalid="ignore"):
        return false / false[-1], true / true[-1]


def _ratio(a, b):
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.divide(a, b)


def _mean(values):
    known = values[~np.isnan(values)]
    return known.mean() if len(known) else float("nan")
