"""Find near-duplicates: messages that differ in names and numbers only.

A whole cluster of them is for training or for validation.

MinHash (Broder 1997) over shingles of words, with N_HASH functions. Texts are joined if the
estimated Jaccard similarity is at least MIN_SIMILARITY; candidates share a band of BAND values.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np

from .texts import Text

N_HASH, BAND, MIN_SIMILARITY, MAX_COMPARED = 48, 3, 0.5, 5


def clusters(texts: Sequence[Text]) -> np.ndarray:
    """int64 [n]: the cluster of each texts.Text, as the index of one of its members.

    All texts of one template are one cluster.
    """
    sign = np.stack([_signature(text) for text in texts])
    parent = list(range(len(texts)))
    templates = {}
    for i, text in enumerate(texts):
        if text.corpus == "written":
            parent[i] = templates.setdefault(text.name, i)
    for start in range(0, N_HASH, BAND):
        same = {}
        for i, row in enumerate(sign[:, start : start + BAND]):
            same.setdefault(row.tobytes(), []).append(i)
        for group in same.values():
            for i in group[1:]:
                for other in group[:MAX_COMPARED]:
                    if (
                        other != i
                        and _root(parent, other) != _root(parent, i)
                        and (sign[other] == sign[i]).mean() >= MIN_SIMILARITY
                    ):
                        parent[_root(parent, i)] = _root(parent, other)
                        break
    return np.array([_root(parent, i) for i in range(len(texts))])


def _root(parent, i):
    while parent[i] != i:
        parent[i] = parent[parent[i]]
        i = parent[i]
    return i


def _signature(text):
    """uint64 [N_HASH]: minimum hash of the text's shingles (4 words; 2 of an SMS) by function."""
    words = [
        word
        for word in (text.head.get("Subject", "") + " " + text.body).split()
        if word[0].isalnum()
    ]
    n = 2 if text.corpus == "sms" else 4
    shingles = {
        zlib.crc32(" ".join(words[i : i + n]).encode()) for i in range(max(1, len(words) - n + 1))
    }
    x = np.fromiter(shingles, np.uint64) + np.uint64(1)
    return (_FACTOR[:, None] * x + _ADDEND[:, None] >> np.uint64(20)).min(1)


_random = np.random.RandomState(1)
_FACTOR = _random.randint(1, 2**61, size=N_HASH).astype(np.uint64) | np.uint64(1)
_ADDEND = _random.randint(0, 2**61, size=N_HASH).astype(np.uint64)
