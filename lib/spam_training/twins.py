"""Near twins: texts that are the same mail but for names and numbers. A cluster of them goes to
training or to validation as a whole.

MinHash (Broder 1997) over shingles of words, N_HASH functions, joined where the estimated Jaccard
similarity is at least SIMILAR; candidates share a band of BAND values.
"""

import zlib

import numpy as np

N_HASH, BAND, SIMILAR, COMPARED = 48, 3, 0.5, 5


def clusters(texts):
    """The cluster of each Text: int64 [n], the index of one of its members. What one template gives
    is one cluster.
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
                for other in group[:COMPARED]:
                    if (
                        other != i
                        and _root(parent, other) != _root(parent, i)
                        and (sign[other] == sign[i]).mean() >= SIMILAR
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
    """uint64 [N_HASH]: the least hash of the text's shingles (4 words, of an SMS 2) under each
    function.
    """
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
