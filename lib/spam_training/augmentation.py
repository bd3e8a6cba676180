"""Augmentation: cut texts, drop header lines and tokens, mix excerpts of several texts.

So the net cannot rely on one sender, one subject or one length.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .templates import HEAD as FIELDS

N_HEAD, N_TAIL = 288, 96  # head_ids and tail_ids of configs/spam.yaml
NEWLINE = 15  # the byte piece <0x0A>
# a token of a header line is marked: the bits from this one on are the number of the line, from 1;
# for the teachers, not for the net
FIELD_BIT = 32
DROP_LINE = {"From": 0.5, "Links": 0.35, "Files": 0.35, "Subject": 0.12}
P_LATE_START, P_SHORTER, P_DROP_TOKENS, MAX_DROPPED = 0.2, 0.3, 0.5, 0.2


def marked(name: str, tokens: Sequence[int] | np.ndarray) -> np.ndarray:
    """int64 [n]: tokens of the header line `name`, marked with its number. tokens: int [n]."""
    return np.asarray(tokens, np.int64) | 1 + FIELDS.index(name) << FIELD_BIT


def bare(tokens: Sequence[int] | np.ndarray) -> np.ndarray:
    """int64 [n]: tokens, marked or not, without marks."""
    return np.asarray(tokens, np.int64) & (1 << FIELD_BIT) - 1


def cut(tokens: np.ndarray, n_head: int = N_HEAD, n_tail: int = N_TAIL) -> np.ndarray:
    """The first n_head and last n_tail of tokens int [n]."""
    return (
        tokens
        if len(tokens) <= n_head + n_tail
        else np.concatenate((tokens[:n_head], tokens[-n_tail:]))
    )


def whole(lines: dict[str, np.ndarray], body: np.ndarray) -> np.ndarray:
    """int64 [n]: a text as `classify` reads it, marked.

    lines: {name: marked tokens of a header line}. body: int [n], tokens.
    """
    parts = [part for line in lines.values() for part in (line, [NEWLINE])]
    if parts and len(body):
        parts.append([NEWLINE])
    return cut(np.concatenate([*parts, body]).astype(np.int64))


def augmented(
    lines: dict[str, np.ndarray], body: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, bool]:
    """Augment a text: (int64 [n], marked tokens; whether they are a part of the text).

    lines, body: as for whole(). rng: numpy Generator.
    """
    lines_kept = {
        name: tokens for name, tokens in lines.items() if rng.random() >= DROP_LINE.get(name, 0)
    }
    is_part = False
    if len(body) > 40 and rng.random() < P_LATE_START:
        body, is_part = body[rng.integers(0, len(body) // 2) :], True
    if len(body) > 20 and rng.random() < P_SHORTER:
        body, is_part = body[: rng.integers(10, len(body))], True
    if not lines_kept and not len(body):
        lines_kept = lines
    return _drop_tokens(whole(lines_kept, body), rng), is_part


def mixed(
    lines: dict[str, np.ndarray],
    excerpts: Sequence[tuple[np.ndarray, int | None]],
    rng: np.random.Generator,
) -> np.ndarray:
    """int64 [n]: excerpts of several texts below the header lines of one. Only a teacher labels it.

    lines: as for whole(). excerpts: [(body, a position to include, or None)]. Their mean length is
    random too, shorter if there are many.
    """
    mean, found = rng.uniform(6, 10 + 160 / len(excerpts)), []
    for body, position in excerpts:
        n = 3 + int(rng.exponential(mean))
        at = (
            int(rng.integers(0, max(1, len(body) - n + 1)))
            if position is None
            else max(0, position - int(rng.integers(0, n)))
        )
        found.append(body[at : at + n])
    lines_kept = {
        name: tokens for name, tokens in lines.items() if rng.random() >= DROP_LINE.get(name, 0)
    }
    return _drop_tokens(whole(lines_kept, np.concatenate(found)), rng)


class Places:
    """Positions of each token in bodies, so that a rare token is sampled as often as a common one.

    texts: int [n], indices of the texts. bodies: [int [m]], their tokens; not all may be empty if
    sample() is called.
    """

    def __init__(self, texts: np.ndarray, bodies: Sequence[np.ndarray]):
        tokens = np.concatenate(
            [np.zeros(0, np.int32), *(np.asarray(body, np.int32) for body in bodies)]
        )
        self.texts, self.start = texts, np.cumsum([0, *map(len, bodies)])
        self.places = np.argsort(tokens, kind="stable").astype(np.int32)
        _, first = np.unique(tokens[self.places], return_index=True)
        self.first = np.append(first, len(tokens))

    def sample(self, rng: np.random.Generator) -> tuple[int, int]:
        """(index of a text, position in its body) of a random occurrence of a random token."""
        which = rng.integers(len(self.first) - 1)
        place = int(self.places[rng.integers(self.first[which], self.first[which + 1])])
        text = int(np.searchsorted(self.start, place, "right")) - 1
        return int(self.texts[text]), place - int(self.start[text])


def _drop_tokens(tokens, rng):
    if len(tokens) > 8 and rng.random() < P_DROP_TOKENS:
        return tokens[rng.random(len(tokens)) >= rng.uniform(0.02, MAX_DROPPED)]
    return tokens
