"""Figures of a classifier: what the model card prints."""
import numpy as np


def figures(p, is_spam, threshold=0.5):
    """dict of accuracy, precision, recall, f1, auc, and recall at 0.1 % false positives (threshold of the same data); p: float [n]."""
    is_spam = np.asarray(is_spam, bool)
    called = p > threshold
    hit = int((called & is_spam).sum())
    precision, recall = hit / max(1, int(called.sum())), hit / max(1, int(is_spam.sum()))
    return {"n": len(p), "accuracy": float((called == is_spam).mean()), "precision": precision, "recall": recall,
            "f1": 2 * hit / max(1, int(called.sum()) + int(is_spam.sum())), "auc": auc(p, is_spam),
            "recall at 0.1 %": float((p[is_spam] > threshold_at(p, is_spam, 0.001)).mean()) if is_spam.any() else 0.0}


def auc(p, is_spam):
    """Area under the ROC curve: the share of pairs in order, ties half (Mann & Whitney 1947)."""
    values, rank = np.unique(p, return_inverse=True)
    count = np.bincount(rank, minlength=len(values)).astype(float)
    mean_rank = np.cumsum(count) - (count - 1) / 2
    n1, n0 = int(is_spam.sum()), int((~is_spam).sum())
    return float((mean_rank[rank][is_spam].sum() - n1 * (n1 + 1) / 2) / (n1 * n0)) if n1 and n0 else float("nan")


def threshold_at(p, is_spam, rate):
    """The least threshold that calls at most this share of ham spam (p > threshold)."""
    ham = np.sort(p[~np.asarray(is_spam, bool)])
    return float(ham[len(ham) - 1 - int(rate * len(ham))])
