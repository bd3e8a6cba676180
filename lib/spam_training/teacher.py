"""Linear teachers: they give each example a soft label.

A Linear is logistic regression on TF-IDF of items, of pairs of neighbours, and of items by header
line: "free" in a subject differs from "free" in a body. A Teacher is a weighted sum of Linears.
fit() makes four: of tokens and of words, each plain and with columns scaled by their log-count
ratio (Wang & Manning 2012, "Baselines and Bigrams"). Their errors are on different texts, so the
sum makes fewer. Labels are out of fold: the teacher of an example has seen neither its texts nor
their near-duplicates.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence

import numpy as np

from . import augmentation

N_FOLD, N_COLUMN = 5, 1 << 21
C = 60.0
# of_folds: weight of the model of the same kind of texts alone, {is_templated: weight}
OWN = {False: 0.25, True: 0.5}
# added to the log-count ratio, so that a column that both labels have alike still counts
RATIO = 0.1
PAIR, ITEM, IN_FIELD = range(3)


def features(items: Sequence[int] | np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(columns int64 [k] < N_COLUMN, ascending; counts int [k]) of items int [n], hashed.

    Features are items, pairs of neighbours, and marked items with their header line
    (augmentation.FIELD_BIT).
    """
    columns = _columns(items)
    return np.unique(columns[columns >= 0], return_counts=True)


def occurrences(items: Sequence[int] | np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """What each of items int [n] adds to the features of the items before it.

    Returns (columns int64 [n, 3]; float64 [n, 3], increase of the column's tf; float64 [n, 3],
    increase of its square). tf is 1 + log(count), or 0. Without a feature the increase is 0.
    """
    columns = _columns(items)
    flat = columns.ravel()
    order = np.argsort(flat, kind="stable")
    ascending = flat[order]
    is_first = np.concatenate(([True], ascending[1:] != ascending[:-1]))[: len(flat)]
    start = np.flatnonzero(is_first)
    earlier = np.empty(len(flat), int)
    earlier[order] = np.arange(len(flat)) - np.repeat(start, np.diff(np.append(start, len(flat))))
    tf = np.concatenate(([0], 1 + np.log(np.arange(1, earlier.max(initial=0) + 2))))
    earlier, is_there = earlier.reshape(columns.shape), columns >= 0
    return (
        np.maximum(columns, 0),
        np.diff(tf)[earlier] * is_there,
        np.diff(np.square(tf))[earlier] * is_there,
    )


def _columns(items):
    """int64 [n, 3]: columns of the pair that ends with an item, of the item, and of the item in
    its header line; -1 if there is none.
    """
    marked = np.asarray(items, np.int64).astype(np.uint64)
    items, columns = (
        augmentation.bare(marked).astype(np.uint64),
        np.full((len(marked), 3), -1, np.int64),
    )
    columns[1:, PAIR] = _hashed(
        items[:-1] * np.uint64(0x9E3779B97F4A7C15) + items[1:] * np.uint64(0xC2B2AE3D27D4EB4F)
    )
    columns[:, ITEM] = _hashed(items * np.uint64(0x165667B19E3779F9))
    of_head = marked > items
    columns[of_head, IN_FIELD] = _hashed(marked[of_head] * np.uint64(0xD6E8FEB86659FD93))
    return columns


def _hashed(x):
    return ((x ^ x >> np.uint64(29)) * np.uint64(0xBF58476D1CE4E5B9) >> np.uint64(20)).astype(
        np.int64
    ) % N_COLUMN


class Words:
    """The words that tokens spell. pieces: [str], types: [int], as in GGUF."""

    def __init__(self, pieces: Sequence[str], types: Sequence[int]):
        text = {
            6: lambda token: _of_byte(int(token[3:5], 16)),
            1: lambda token: token.replace("\u2581", " "),
        }
        self.text = [
            text[kind](token) if kind in text else " " for token, kind in zip(pieces, types)
        ]

    def of(self, tokens: Sequence[int] | np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(int64 [n_word], a hash of each word; int64 [n + 1], number of complete words).

        A hash has the mark of the word's first token. Complete words are counted for the first 0, 1
        ... n tokens. tokens: int [n], marked or not.
        """
        tokens = np.asarray(tokens, np.int64)
        pieces = [self.text[i] for i in augmentation.bare(tokens)]
        found = list(re.finditer(r"\S+", "".join(pieces)))
        n_read = np.cumsum([0, *map(len, pieces)])
        first_tokens = tokens[
            np.searchsorted(n_read, [word.start() for word in found], "right") - 1
        ]
        return (
            np.array([zlib.crc32(word[0].encode()) for word in found], np.int64)
            | first_tokens - augmentation.bare(first_tokens),
            np.searchsorted(np.array([word.end() for word in found], np.int64), n_read, "right"),
        )


def _of_byte(byte):
    """A character for a byte piece, whitespace only if the byte is ASCII whitespace.

    0x85 and 0xA0 are parts of letters in UTF-8.
    """
    return chr(byte) if byte < 128 else chr(256 + byte)


class Linear:
    """Logistic regression. scale, weight: float [N_COLUMN]. bias: float."""

    def __init__(self, scale: np.ndarray, weight: np.ndarray, bias: float):
        self.scale, self.weighted_scale, self.bias = (
            scale.astype(np.float32),
            (scale * weight).astype(np.float32),
            bias,
        )

    def logits(self, columns: np.ndarray, tf: np.ndarray, squares: np.ndarray) -> np.ndarray:
        """float64 [n + 1]: logits of spam of the first 0, 1 ... n items.

        columns, tf, squares: what occurrences() returns for them.
        """
        sums = np.cumsum((tf * self.weighted_scale[columns]).sum(1))
        norms = np.sqrt(np.cumsum((squares * np.square(self.scale[columns])).sum(1)))
        return np.concatenate(([0], sums / np.maximum(norms, 1e-12))) + self.bias


class Teacher:
    """A weighted sum of Linears.

    words: Words, or None. of_tokens, of_words: [(weight, Linear)]; the weights of a list sum to its
    share. inverse_temperature: factor of the sum.
    """

    def __init__(
        self,
        words: Words | None,
        of_tokens: list[tuple[float, Linear]],
        of_words: list[tuple[float, Linear]],
    ):
        self.words, self.of_tokens, self.of_words, self.inverse_temperature = (
            words,
            of_tokens,
            of_words,
            1.0,
        )

    def logits(self, tokens: Sequence[int] | np.ndarray) -> np.ndarray:
        """float64 [n + 1]: logits of spam of the first 0, 1 ... n tokens.

        A word counts from its last token on, even though a text that ended earlier would end with a
        shorter word. tokens: int [n], marked.
        """
        found = occurrences(tokens)
        logits = sum(weight * linear.logits(*found) for weight, linear in self.of_tokens)
        if self.of_words:
            words, ended = self.words.of(tokens)
            found = occurrences(words)
            logits = (
                logits
                + sum(weight * linear.logits(*found) for weight, linear in self.of_words)[ended]
            )
        return self.inverse_temperature * logits

    def logit(self, tokens: Sequence[int] | np.ndarray) -> float:
        """The logit of spam of the whole sequence."""
        return float(self.logits(tokens)[-1])


def baseline(rows: Sequence[np.ndarray], labels: np.ndarray) -> Teacher:
    """The baseline of the model: a Teacher with one Linear of marked tokens. labels: bool [n]."""
    return Teacher(
        None,
        [(1.0, Linear(*logistic([features(tokens) for tokens in rows], labels, N_COLUMN)))],
        [],
    )


def fit(rows: Sequence[np.ndarray], labels: np.ndarray, words: Words) -> Teacher:
    """Fit a Teacher. rows: [int [n]], marked tokens. labels: bool [n_text]. words: Words."""
    linears = []
    for found in (
        [features(tokens) for tokens in rows],
        [features(words.of(tokens)[0]) for tokens in rows],
    ):
        linears.append(
            [
                (1 / 4, Linear(*logistic(found, labels, N_COLUMN, by_ratio)))
                for by_ratio in (False, True)
            ]
        )
    return Teacher(words, *linears)


def weighted_sum(parts: Sequence[tuple[float, Teacher]]) -> Teacher:
    """The Teacher that is the sum of parts [(weight, Teacher)], whose weights sum to 1."""
    linears = [
        [(weight * w, linear) for weight, teacher in parts for w, linear in getattr(teacher, name)]
        for name in ("of_tokens", "of_words")
    ]
    return Teacher(parts[0][1].words, *linears)


def logistic(
    found: Sequence[tuple[np.ndarray, np.ndarray]],
    labels: np.ndarray,
    n_column: int,
    by_ratio: bool = False,
) -> tuple[np.ndarray, np.ndarray, float]:
    """Fit logistic regression: (scale float64 [n_column], weight float64 [n_column], bias float).

    found: [(columns, counts)] of each text. labels: bool [n]. scale is the idf of a column, with
    by_ratio times the root of its log-count ratio.
    """
    from scipy.sparse import csr_matrix
    from sklearn.linear_model import LogisticRegression

    start = np.concatenate(([0], np.cumsum([len(columns) for columns, _ in found])))
    text = np.repeat(np.arange(len(found)), np.diff(start))  # of each column below
    columns = np.concatenate([columns for columns, _ in found])
    tf = 1 + np.log(np.concatenate([counts for _, counts in found]))
    df = np.bincount(columns, minlength=n_column)
    scale = np.where(df >= 2, np.log((1 + len(found)) / (1 + df)) + 1, 0.0)
    if by_ratio:
        of_spam = 1 + np.bincount(columns, np.asarray(labels, float)[text], n_column)
        of_ham = 2 + df - of_spam
        scale *= np.sqrt(np.abs(np.log(of_spam / of_spam.sum() * of_ham.sum() / of_ham)) + RATIO)
    x = tf * scale[columns]
    norm = np.sqrt(np.bincount(text, np.square(x), len(found)))
    x = (x / np.maximum(norm, 1e-12)[text]).astype(np.float32)
    model = LogisticRegression(C=C, solver="liblinear").fit(
        csr_matrix((x, columns, start), (len(found), n_column)), labels
    )
    return scale, model.coef_[0].astype(np.float64), float(model.intercept_[0])


def folds(cluster: np.ndarray) -> np.ndarray:
    """int [n]: the fold of each text, from its cluster, int [n]."""
    return np.array([hash((int(c), 7)) % N_FOLD for c in cluster])


def of_folds(
    rows: Sequence[np.ndarray],
    labels: np.ndarray,
    fold: np.ndarray,
    is_templated: np.ndarray,
    words: Words,
) -> dict[tuple[int, bool], Teacher]:
    """{(fold, is_templated): Teacher}, fitted to the texts of all other folds.

    rows: [int [n]], marked tokens. labels, is_templated: bool [n_text]. fold: int [n_text]. words:
    Words.

    Templates and corpora disagree about the words of today's senders. So a teacher is the sum of a
    model of all texts and, if it has both labels, a model of its own kind alone, with weight OWN.
    The weights were chosen by accuracy on validation messages of the corpora and on 215 messages of
    other sources: all texts alone 0.990 and 0.874; a fifth of the corpora's model 0.992 and 0.874,
    a half 0.992 and 0.861; a third of the templates' model 0.893 of the 215, a half 0.902.
    """
    teachers = {}
    for k in range(N_FOLD):
        fitted = {}
        for kind, of in (("all", fold >= 0), (False, ~is_templated), (True, is_templated)):
            train = np.flatnonzero(of & (fold != k))
            if kind == "all" or len(set(labels[train].tolist())) == 2:
                fitted[kind] = fit([rows[i] for i in train], labels[train], words)
        for kind in (False, True):
            own = OWN[kind] if kind in fitted else 0.0
            teachers[k, kind] = weighted_sum(
                [(1 - own, fitted["all"])] + ([(own, fitted[kind])] if own else [])
            )
    return teachers
