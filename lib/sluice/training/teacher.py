"""A linear model on TF-IDF of ids and pairs of ids: it judges every view a text is shown in, so that the net learns from more than labels.

Out-of-fold: a text's views are judged by a model that saw neither it nor its near twins. Its weights of single ids also are where one
element of the embedding begins.
"""
import numpy as np

N_FOLD, N_PAIR = 5, 1 << 18
C = 60.0


def features(ids, n_vocab):
    """(columns int64 [k], ascending; counts [k]) of a sequence of ids: the ids, then hashed pairs of neighbours."""
    ids = np.asarray(ids, np.int64)
    pairs = n_vocab + (ids[:-1] * 2654435761 + ids[1:] * 40503 >> 8) % N_PAIR
    return np.unique(np.concatenate((ids, pairs)), return_counts=True)


class Linear:
    """idf, weight: float64 [n_vocab + N_PAIR]; bias: float."""

    def __init__(self, idf, weight, bias, n_vocab):
        self.product, self.idf, self.weight, self.bias, self.n_vocab = idf * weight, idf, weight, bias, n_vocab

    def margin(self, ids):
        """The logit of spam of a sequence of ids."""
        columns, counts = features(ids, self.n_vocab)
        tf = 1 + np.log(counts)
        norm = np.sqrt(np.square(tf * self.idf[columns]).sum())
        return float(tf @ self.product[columns] / max(norm, 1e-12) + self.bias)


def fit(rows, labels, n_vocab):
    """The Linear of sequences of ids and bool labels [n]."""
    return Linear(*logistic([features(ids, n_vocab) for ids in rows], labels, n_vocab + N_PAIR), n_vocab)


def logistic(found, labels, n_column):
    """(idf float64 [n_column], weight float64 [n_column], bias float) of texts given as (columns, counts), and bool labels [n]."""
    from scipy.sparse import csr_matrix
    from sklearn.linear_model import LogisticRegression
    start = np.concatenate(([0], np.cumsum([len(columns) for columns, _ in found])))
    columns = np.concatenate([columns for columns, _ in found])
    tf = 1 + np.log(np.concatenate([counts for _, counts in found]))
    df = np.bincount(columns, minlength=n_column)
    idf = np.where(df >= 2, np.log((1 + len(found)) / (1 + df)) + 1, 0.0)
    x = tf * idf[columns]
    norm = np.sqrt(np.add.reduceat(np.square(x), start[:-1]))
    x = (x / np.repeat(np.maximum(norm, 1e-12), np.diff(start))).astype(np.float32)
    model = LogisticRegression(C=C, solver="liblinear").fit(csr_matrix((x, columns, start), (len(found), n_column)), labels)
    return idf, model.coef_[0].astype(np.float64), float(model.intercept_[0])


def folds(cluster):
    """int [n]: the fold of each text, by its cluster."""
    return np.array([hash((int(c), 7)) % N_FOLD for c in cluster])


def of_folds(rows, labels, fold, n_vocab):
    """The Linear of each fold: of the texts of all others."""
    return [fit([rows[i] for i in np.flatnonzero(fold != k)], labels[fold != k], n_vocab) for k in range(N_FOLD)]
