"""Pieces of several words: pairs of ids that stand side by side and tell spam from ham become one
id.

Logistic regression of single ids stays behind one that sees pairs of words as well; a net of few
layers, which begins with the weights of single ids (loop.begin_with), does so too. Pieces for the
pairs that tell most bring single ids nearer to it, and more of a mail into what is read. The
vocabulary stays one of SentencePiece's kind: what a piece is made of are pieces, and the new ones
have the least scores, so that merging comes to them when words are whole.
"""

import numpy as np

from . import teacher

ROUNDS = (3072, 1024)  # pieces to add; those of a later round may be made of those before
LEAST = 10  # texts that have the pair
# corpora, as far as there are so many, of which LEAST_OF have it: what one source alone says is its
# habit
N_CORPUS = 2
LEAST_OF = 2


def extend(vocabulary, rows, labels, corpus, rounds=ROUNDS):
    """The vocabulary (tokens, scores, types) with sum(rounds) pieces more, or fewer where texts are
    few.

    rows: int sequences, ids of the training texts by this vocabulary; labels: bool [n]; corpus: str
    [n]. So no two pairs spell the same, nor what is a piece: what merges within a text does not
    depend on what is around it.
    """
    tokens, scores, types = (list(part) for part in vocabulary)
    rows = [np.asarray(row, np.int64) for row in rows]
    for n_piece in rounds:
        n = len(tokens)
        pairs = best(rows, labels, corpus, np.array(types) == 1, n_piece).tolist()
        tokens += [tokens[pair // n] + tokens[pair % n] for pair in pairs]
        rows = merged(rows, pairs, n)
        scores += [min(scores) - 1 - i for i in range(len(pairs))]
        types += [1] * len(pairs)
    return tokens, scores, types


def best(rows, labels, corpus, is_text, n_best):
    """int64 [<= n_best]: pairs a * len(is_text) + b of neighbours a, b, those that tell most first:
    by the size of their weight in a logistic regression of ids and pairs, and how many texts have
    them. is_text: bool [n_vocab], ids that a piece may be made of.
    """
    n = len(is_text)
    found = []
    for row in rows:
        a, b = row[:-1], row[1:]
        found.append(np.unique((a * n + b)[is_text[a] & is_text[b]]))
    pairs, count = np.unique(np.concatenate(found), return_counts=True)
    pairs = pairs[count >= LEAST]
    n_corpus = np.zeros(len(pairs), int)
    for name in np.unique(corpus):
        of_it, count = np.unique(
            np.concatenate([found[i] for i in np.flatnonzero(corpus == name)]), return_counts=True
        )
        n_corpus += np.isin(pairs, of_it[count >= LEAST_OF])
    pairs = pairs[n_corpus >= min(N_CORPUS, len(np.unique(corpus)))]
    if not len(pairs):
        return pairs
    columns = []
    for row, of_it in zip(rows, found):
        at = np.minimum(np.searchsorted(pairs, of_it), len(pairs) - 1)
        ids, counts = np.unique(row, return_counts=True)
        kept = at[pairs[at] == of_it]
        columns.append(
            (np.concatenate((ids, n + kept)), np.concatenate((counts, np.ones(len(kept), int))))
        )
    idf, weight, _ = teacher.logistic(columns, labels, n + len(pairs))
    df = np.bincount(np.concatenate([c for c, _ in columns]), minlength=n + len(pairs))
    tells = (np.abs(idf * weight) * np.sqrt(df))[n:]
    return pairs[np.argsort(-tells, kind="stable")[:n_best]]


def merged(rows, pairs, n):
    """The rows with each of `pairs` (a * n + b, the first goes first) as one id n, n + 1, ..., as
    merging by score does.
    """
    if not pairs:
        return rows
    order = np.argsort(pairs)
    ascending, out = np.asarray(pairs)[order], []
    for row in rows:
        here = row[:-1] * n + row[1:]
        at = np.minimum(np.searchsorted(ascending, here), len(pairs) - 1)
        starts = np.flatnonzero(ascending[at] == here)
        row, gone, used = row.copy(), np.zeros(len(row), bool), np.zeros(len(row), bool)
        for start in starts[np.argsort(order[at[starts]], kind="stable")]:
            if not used[start] and not used[start + 1]:
                used[start : start + 2] = gone[start + 1] = True
                row[start] = n + order[at[start]]
        out.append(row[~gone])
    return out
