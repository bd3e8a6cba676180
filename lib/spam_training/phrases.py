"""Add phrases to a vocabulary: pieces of several words that separate spam from ham.

Logistic regression on single tokens is less accurate than on tokens and pairs. So is a net of few
layers that is initialized from such a model (loop.init_from_evidence). Pieces for the most
important pairs narrow the gap, and more of a message fits into the context. A new piece is the
concatenation of two pieces and has a lower score than all before, so SentencePiece's merging
reaches it after the words.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from . import teacher
from .vocabulary import Vocabulary

ROUNDS = (3072, 1024)  # pieces to add; a later round may combine those of an earlier one
MIN_TEXTS = 10  # texts that contain the pair
# corpora, as far as there are so many, with MIN_TEXTS_A_CORPUS texts that contain the pair: pairs
# of one source alone are its habits
MIN_CORPORA = 2
MIN_TEXTS_A_CORPUS = 2


def extend(
    vocabulary: Vocabulary,
    rows: Sequence[np.ndarray],
    labels: np.ndarray,
    corpus: np.ndarray,
    rounds: Sequence[int] = ROUNDS,
) -> Vocabulary:
    """A vocabulary (tokens, scores, types) with up to sum(rounds) more pieces.

    rows: [int [n]], tokens of the training texts. labels: bool [n_text]. corpus: str [n_text]. No
    two pairs of neighbours in a tokenized text spell the same piece, so merging does not depend on
    the surrounding text.
    """
    pieces, scores, types = (list(part) for part in vocabulary)
    rows = [np.asarray(row, np.int64) for row in rows]
    for n_piece in rounds:
        n = len(pieces)
        pairs = best(rows, labels, corpus, np.array(types) == 1, n_piece).tolist()
        pieces += [pieces[pair // n] + pieces[pair % n] for pair in pairs]
        rows = merged(rows, pairs, n)
        scores += [min(scores) - 1 - i for i in range(len(pairs))]
        types += [1] * len(pairs)
    return pieces, scores, types


def best(
    rows: Sequence[np.ndarray],
    labels: np.ndarray,
    corpus: np.ndarray,
    is_text: np.ndarray,
    n_best: int,
) -> np.ndarray:
    """int64 [<= n_best]: pairs a * len(is_text) + b of neighbours a, b, most important first.

    Importance is the absolute weight in a logistic regression on tokens and pairs, times the square
    root of the number of texts. is_text: bool [n_vocab], tokens that may be part of a piece.
    """
    n = len(is_text)
    found = []
    for row in rows:
        a, b = row[:-1], row[1:]
        found.append(np.unique((a * n + b)[is_text[a] & is_text[b]]))
    pairs, count = np.unique(np.concatenate(found), return_counts=True)
    pairs = pairs[count >= MIN_TEXTS]
    n_corpus = np.zeros(len(pairs), int)
    for name in np.unique(corpus):
        pairs_here, count = np.unique(
            np.concatenate([found[i] for i in np.flatnonzero(corpus == name)]), return_counts=True
        )
        n_corpus += np.isin(pairs, pairs_here[count >= MIN_TEXTS_A_CORPUS])
    pairs = pairs[n_corpus >= min(MIN_CORPORA, len(np.unique(corpus)))]
    if not len(pairs):
        return pairs
    columns = []
    for row, pairs_here in zip(rows, found):
        place = np.minimum(np.searchsorted(pairs, pairs_here), len(pairs) - 1)
        tokens, counts = np.unique(row, return_counts=True)
        kept = place[pairs[place] == pairs_here]
        columns.append(
            (np.concatenate((tokens, n + kept)), np.concatenate((counts, np.ones(len(kept), int))))
        )
    idf, weight, _ = teacher.logistic(columns, labels, n + len(pairs))
    df = np.bincount(np.concatenate([c for c, _ in columns]), minlength=n + len(pairs))
    importance = (np.abs(idf * weight) * np.sqrt(df))[n:]
    return pairs[np.argsort(-importance, kind="stable")[:n_best]]


def merged(rows: list[np.ndarray], pairs: list[int], n: int) -> list[np.ndarray]:
    """Merge pairs in rows as the tokenizer does by score.

    pairs: [a * n + b], in descending score; they become tokens n, n + 1, ...
    """
    if not pairs:
        return rows
    order = np.argsort(pairs)
    ascending, out = np.asarray(pairs)[order], []
    for row in rows:
        pair_of = row[:-1] * n + row[1:]
        place = np.minimum(np.searchsorted(ascending, pair_of), len(pairs) - 1)
        starts = np.flatnonzero(ascending[place] == pair_of)
        row, is_dropped, used = row.copy(), np.zeros(len(row), bool), np.zeros(len(row), bool)
        for start in starts[np.argsort(order[place[starts]], kind="stable")]:
            if not used[start] and not used[start + 1]:
                used[start : start + 2] = is_dropped[start + 1] = True
                row[start] = n + order[place[start]]
        out.append(row[~is_dropped])
    return out
