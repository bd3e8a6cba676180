"""What a net is shown in an epoch, in which batches, and what it shall say of it; a function of
texts, seed, the model gone on from and number of the epoch.
"""

import numpy as np

from . import views

TOKENS_PER_STEP = 8192
SHOWN = {
    ("spamassassin", False): 2,
    ("spamassassin", True): 3,
    ("ling", True): 2,
    ("sms", True): 4,
    ("sms", False): 3,
    # how often an epoch shows a text, or which share of them
    ("written", False): 0.6,
    ("written", True): 0.6,
}
# share of the teacher in the target: of a text, of a view that is much less; in last steps
TEACHER, TEACHER_LAST = (0.9, 0.97), (0.5, 0.8)
# views made of several texts, for each text; where a model is gone on from, which has learnt from
# many
MIXED, MIXED_BEGUN = 2, 1
N_MIXED = 1, 12  # how many others are in one: from, to less than
# share of such views that are of one kind of texts: of the corpora or written
OWN_KIND = 0.75
# share of these others that are there for an id that stands in them
FOR_AN_ID = 0.5
MAX_MARGIN = 6.0  # of a teacher


class Epochs:
    """p: Prepared. A view is (texts [number], share of the teacher's word in the last target,
    whether it is much less than a text or of several, marked ids int64 [n]).
    """

    def __init__(self, p, seed):
        # other draws of the same texts than that model learnt from
        self.p, self.seed = p, (seed, int(p.begun.digest[:8], 16)) if p.begun else (seed,)
        self.rows = np.flatnonzero(~p.is_val)
        self.times = np.array([SHOWN.get((p.corpus[i], bool(p.is_spam[i])), 1) for i in self.rows])
        self.pools = {
            (k, kind): Pool(p, of)
            for k in set(p.fold[self.rows].tolist())
            for kind, of in self.kinds(self.rows[p.fold[self.rows] == k])
        }

    def kinds(self, rows):
        """Pairs of a kind and those of texts `rows` that are of it: written ones (True), others
        (False), and both (None).
        """
        written = self.p.corpus[rows] == "written"
        return (True, rows[written]), (False, rows[~written]), (None, rows)

    def batches(self, epoch, is_last=False):
        """The batches of an epoch in random order: lists of views, those of a length together.
        is_last: of the last epochs, which show no mixed views and believe the labels more.
        """
        rng = np.random.default_rng((*self.seed, epoch, 1) if is_last else (*self.seed, epoch))
        times = np.floor(self.times + rng.random(len(self.rows))).astype(int)
        rows = rng.permutation(np.repeat(self.rows, times))
        shown = [self.view(i, rng, TEACHER_LAST if is_last else TEACHER) for i in rows]
        if not is_last:
            shown += [
                self.mixed(i, rng)
                for i in rng.choice(rows, int((MIXED_BEGUN if self.p.begun else MIXED) * len(rows)))
            ]
        shown = [shown[i] for i in rng.permutation(len(shown))]
        n_frame, out = len(self.p.before) + len(self.p.after), []
        for start in range(0, len(shown), 4096):
            batch = []
            for item in sorted(shown[start : start + 4096], key=lambda item: len(item[-1])):
                if batch and padded(len(item[-1]) + n_frame) * (len(batch) + 1) > TOKENS_PER_STEP:
                    out.append(batch)
                    batch = []
                batch.append(item)
            out.append(batch)
        return [out[i] for i in rng.permutation(len(out))]

    def view(self, i, rng, share):
        """A view of text i. share: of the teacher, where the view is the text and where it is a
        part of it.
        """
        ids, is_part = views.view(self.p.lines[i], self.p.bodies[i], rng)
        return [i], share[is_part], is_part, ids

    def mixed(self, i, rng):
        """A view of text i and of others of its fold, which its teacher has not seen either: of its
        own kind or of both, and of both labels in any proportion.
        """
        kind = bool(self.p.corpus[i] == "written") if rng.random() < OWN_KIND else None
        pool, share, found = self.pools[int(self.p.fold[i]), kind], rng.random(), [(i, None)]
        for _ in range(rng.integers(*N_MIXED)):
            of_label = pool.of_label[bool(rng.random() < share)]
            for_an_id = len(pool.places.first) > 1 and (
                rng.random() < FOR_AN_ID or not len(of_label)
            )
            if not for_an_id and not len(of_label):
                continue
            found.append(pool.places.draw(rng) if for_an_id else (int(rng.choice(of_label)), None))
        return (
            [k for k, _ in found],
            1.0,
            True,
            views.mixed(self.p.lines[i], [(self.p.bodies[k], near) for k, near in found], rng),
        )

    def targets(self, texts, share, is_part, ids):
        """What the net shall say of a view: (float, the probability of spam of all of it; float64
        [n], logits of spam of its first 1, 2 ... n ids). Logits are what the teacher says that has
        seen none of the texts, cut at MAX_MARGIN: of a text of the corpora their own, of any other
        view that of written texts, which knows mail of other sources better (of 215 an AUC of
        0.983, the corpora's 0.969): else the net takes what is neither for mail of the corpora. The
        encoder knows whole texts alone: of one that it has judged its word comes in by and by, by
        how much is read. Of the probability this is `share`, and the rest is the label of texts[0].
        """
        i, is_elsewhere = texts[0], len(texts) > 1 or bool(self.p.corpus[texts[0]] == "written")
        logits = self.p.teachers[int(self.p.fold[i]), is_elsewhere].margins(ids)
        if not is_part and not np.isnan(self.p.encoded[i]):
            teachers, encoder = self.p.joint[is_elsewhere]
            read = np.arange(len(logits)) / max(1, len(ids))
            logits = (1 - read + teachers * read) * logits + encoder * read * self.p.encoded[i]
        logits = np.clip(logits, -MAX_MARGIN, MAX_MARGIN)
        return share / (1 + np.exp(-logits[-1])) + (1 - share) * float(self.p.is_spam[i]), logits[
            1:
        ]


class Pool:
    """What mixed views are made of: `of_label`, {label: numbers of texts}; `places`, where in them
    each id stands.
    """

    def __init__(self, p, texts):
        self.of_label = {label: texts[p.is_spam[texts] == label] for label in (False, True)}
        self.places = views.Places(texts, [p.bodies[i] for i in texts])


def padded(n):
    """Up to a multiple of 32."""
    return -(-n // 32) * 32
