"""What the model is shown of a text while it learns: never twice the same, so that it cannot lean
on one sender, one subject or one length.
"""

import numpy as np

from .written import HEAD as FIELDS

HEAD_IDS, TAIL_IDS = 288, 96  # as configs/spam.yaml cuts
NEWLINE = 15  # the byte piece <0x0A>
# an id of a line of the head has the number of the line, from 1, above this bit: for the teachers,
# not for the net
FIELD_BIT = 32
DROP_LINE = {"From": 0.5, "Links": 0.35, "Files": 0.35, "Subject": 0.12}
P_LATER, P_SHORTER, P_HOLES, MAX_HOLES = 0.2, 0.3, 0.5, 0.2


def marked(name, ids):
    """int64 [n]: ids of a line of the head, with the number of the line."""
    return np.asarray(ids, np.int64) | 1 + FIELDS.index(name) << FIELD_BIT


def bare(ids):
    """int64 [n]: marked ids or others without marks."""
    return np.asarray(ids, np.int64) & (1 << FIELD_BIT) - 1


def cut(ids, n_head=HEAD_IDS, n_tail=TAIL_IDS):
    """The ids that are read of a text of any length: its head and its tail."""
    return ids if len(ids) <= n_head + n_tail else np.concatenate((ids[:n_head], ids[-n_tail:]))


def whole(lines, body):
    """int64 [n]: a text as `classify` gives it to the model, but for marks. lines: {name: marked
    ids of a head line}; body: ids.
    """
    parts = [part for line in lines.values() for part in (line, [NEWLINE])]
    if parts and len(body):
        parts.append([NEWLINE])
    return cut(np.concatenate([*parts, body]).astype(np.int64))


def view(lines, body, rng):
    """(int64 [n]: a text as the model is to learn it, whether it is much less than the whole). rng:
    numpy Generator.
    """
    kept = {name: ids for name, ids in lines.items() if rng.random() >= DROP_LINE.get(name, 0)}
    is_part = False
    if len(body) > 40 and rng.random() < P_LATER:
        body, is_part = body[rng.integers(0, len(body) // 2) :], True
    if len(body) > 20 and rng.random() < P_SHORTER:
        body, is_part = body[: rng.integers(10, len(body))], True
    if not kept and not len(body):
        kept = lines
    return _with_holes(whole(kept, body), rng), is_part


def mixed(lines, stretches, rng):
    """int64 [n]: stretches [(body, a position in it or None: anywhere)] of several texts one after
    the other, under head lines of one: only a teacher knows what it is. How long they are by and
    large is drawn as well, less where they are many.
    """
    mean, found = rng.uniform(6, 10 + 160 / len(stretches)), []
    for body, near in stretches:
        n = 3 + int(rng.exponential(mean))
        at = (
            int(rng.integers(0, max(1, len(body) - n + 1)))
            if near is None
            else max(0, near - int(rng.integers(0, n)))
        )
        found.append(body[at : at + n])
    kept = {name: ids for name, ids in lines.items() if rng.random() >= DROP_LINE.get(name, 0)}
    return _with_holes(whole(kept, np.concatenate(found)), rng)


class Places:
    """Where each id stands in the bodies of some texts, so that a rare one can be met as often as a
    common one. texts: int [n], their numbers; bodies: their ids; where all of them are empty
    nothing can be drawn.
    """

    def __init__(self, texts, bodies):
        ids = np.concatenate(
            [np.zeros(0, np.int32), *(np.asarray(body, np.int32) for body in bodies)]
        )
        self.texts, self.start = texts, np.cumsum([0, *map(len, bodies)])
        self.places = np.argsort(ids, kind="stable").astype(np.int32)
        _, first = np.unique(ids[self.places], return_index=True)
        self.first = np.append(first, len(ids))

    def draw(self, rng):
        """(number of a text, position in its body) of some occurrence of some id."""
        which = rng.integers(len(self.first) - 1)
        place = int(self.places[rng.integers(self.first[which], self.first[which + 1])])
        text = int(np.searchsorted(self.start, place, "right")) - 1
        return int(self.texts[text]), place - int(self.start[text])


def _with_holes(ids, rng):
    if len(ids) > 8 and rng.random() < P_HOLES:
        return ids[rng.random(len(ids)) >= rng.uniform(0.02, MAX_HOLES)]
    return ids
