"""The examples of an epoch, their batches and their soft labels.

They are a function of texts, seed, initial checkpoint and number of the epoch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from . import augmentation

TOKENS_PER_STEP = 8192
TIMES = {
    ("spamassassin", False): 2,
    ("spamassassin", True): 3,
    ("ling", True): 2,
    ("sms", True): 4,
    ("sms", False): 3,
    ("written", False): 0.6,
    ("written", True): 0.6,
}  # (corpus, is_spam): examples made from a text in an epoch, on average
# weight of the teacher in the soft label, for a whole text and for a part; in the final steps
TEACHER, TEACHER_LAST = (0.9, 0.97), (0.5, 0.8)
# mixed examples for each example of one text; with an initial checkpoint, which was trained on many
MIXED, MIXED_FINE_TUNING = 2, 1
N_MIXED = 1, 12  # number of other texts in one: minimum, maximum + 1
# share of mixed examples that are of one kind of texts: corpora or templated
OWN_KIND = 0.75
# share of the other texts that are chosen for a token in them
FOR_A_TOKEN = 0.5
MAX_LOGIT = 6.0  # teachers' logits are clipped to this
# indices of texts, weight of the teacher, is_part, marked tokens; see Epochs
Example = tuple[list[int], float, bool, np.ndarray]


class Epochs:
    """The examples made from a Prepared `p`.

    An example is (indices of its texts, weight of the teacher in its soft label, is_part: whether
    it is a part of a text or of several texts, marked tokens int64 [n]).
    """

    def __init__(self, p: Any, seed: int):
        # with a checkpoint, sample other examples than its training did
        self.p, self.seed = p, (seed, int(p.initial.digest[:8], 16)) if p.initial else (seed,)
        self.rows = np.flatnonzero(~p.is_val)
        self.times = np.array([TIMES.get((p.corpus[i], bool(p.is_spam[i])), 1) for i in self.rows])
        self.pools = {
            (k, kind): Pool(p, of)
            for k in set(p.fold[self.rows].tolist())
            for kind, of in self.kinds(self.rows[p.fold[self.rows] == k])
        }

    def kinds(self, rows: np.ndarray) -> tuple[tuple[bool | None, np.ndarray], ...]:
        """((kind, rows of it), ...): templated texts (True), others (False), and both (None)."""
        templated = self.p.corpus[rows] == "written"
        return (True, rows[templated]), (False, rows[~templated]), (None, rows)

    def batches(self, epoch: int, is_last: bool = False) -> list[list[Example]]:
        """The batches of an epoch, lists of examples of similar lengths, in random order.

        is_last: of the final epochs, which have no mixed examples and weigh labels more.
        """
        rng = np.random.default_rng((*self.seed, epoch, 1) if is_last else (*self.seed, epoch))
        times = np.floor(self.times + rng.random(len(self.rows))).astype(int)
        rows = rng.permutation(np.repeat(self.rows, times))
        examples = [self.example(i, rng, TEACHER_LAST if is_last else TEACHER) for i in rows]
        if not is_last:
            examples += [
                self.mixed_example(i, rng)
                for i in rng.choice(
                    rows, int((MIXED_FINE_TUNING if self.p.initial else MIXED) * len(rows))
                )
            ]
        examples = [examples[i] for i in rng.permutation(len(examples))]
        n_template, out = len(self.p.before) + len(self.p.after), []
        for start in range(0, len(examples), 4096):
            batch = []
            for item in sorted(examples[start : start + 4096], key=lambda item: len(item[-1])):
                if (
                    batch
                    and padded(len(item[-1]) + n_template) * (len(batch) + 1) > TOKENS_PER_STEP
                ):
                    out.append(batch)
                    batch = []
                batch.append(item)
            out.append(batch)
        return [out[i] for i in rng.permutation(len(out))]

    def example(self, i: int, rng: np.random.Generator, share: Sequence[float]) -> Example:
        """An example of text i. share: weight of the teacher for a whole text, and for a part."""
        tokens, is_part = augmentation.augmented(self.p.lines[i], self.p.bodies[i], rng)
        return [i], share[is_part], is_part, tokens

    def mixed_example(self, i: int, rng: np.random.Generator) -> Example:
        """An example of text i and others of its fold, which its teacher has not seen either.

        The others are of its own kind or of both, and of both labels in any proportion.
        """
        kind = bool(self.p.corpus[i] == "written") if rng.random() < OWN_KIND else None
        pool, share, found = self.pools[int(self.p.fold[i]), kind], rng.random(), [(i, None)]
        for _ in range(rng.integers(*N_MIXED)):
            of_label = pool.of_label[bool(rng.random() < share)]
            for_a_token = len(pool.places.first) > 1 and (
                rng.random() < FOR_A_TOKEN or not len(of_label)
            )
            if not for_a_token and not len(of_label):
                continue
            found.append(
                pool.places.sample(rng) if for_a_token else (int(rng.choice(of_label)), None)
            )
        return (
            [k for k, _ in found],
            1.0,
            True,
            augmentation.mixed(
                self.p.lines[i], [(self.p.bodies[k], position) for k, position in found], rng
            ),
        )

    def targets(
        self, texts: Sequence[int], share: float, is_part: bool, tokens: np.ndarray
    ) -> tuple[float, np.ndarray]:
        """Soft labels of an example: (float, probability of spam; float64 [n], logits of prefixes).

        The logits are those of the prefixes of 1, 2 ... n tokens, from the teacher that has not
        seen the texts, clipped to MAX_LOGIT. Texts of the corpora have the corpora's teacher. All
        other examples have that of templated texts, which is better on other sources (AUC 0.983 on
        215 messages, the corpora's 0.969); otherwise the net takes other sources for the corpora.
        The encoder scores whole texts only; its weight grows with the share of tokens that are
        read. The probability is a mean: the teachers' with weight `share`, the rest the label of
        texts[0].
        """
        i, by_templated = texts[0], len(texts) > 1 or bool(self.p.corpus[texts[0]] == "written")
        logits = self.p.teachers[int(self.p.fold[i]), by_templated].logits(tokens)
        if not is_part and not np.isnan(self.p.encoder_logit[i]):
            teachers, encoder = self.p.joint_weights[by_templated]
            share_read = np.arange(len(logits)) / max(1, len(tokens))
            logits = (
                1 - share_read + teachers * share_read
            ) * logits + encoder * share_read * self.p.encoder_logit[i]
        logits = np.clip(logits, -MAX_LOGIT, MAX_LOGIT)
        return share / (1 + np.exp(-logits[-1])) + (1 - share) * float(self.p.is_spam[i]), logits[
            1:
        ]


class Pool:
    """Texts for mixed examples.

    of_label: {label: indices of texts}. places: augmentation.Places, positions of each token.
    """

    def __init__(self, p: Any, texts: np.ndarray):
        self.of_label = {label: texts[p.is_spam[texts] == label] for label in (False, True)}
        self.places = augmentation.Places(texts, [p.bodies[i] for i in texts])


def padded(n: int) -> int:
    """Round up to a multiple of 32."""
    return -(-n // 32) * 32
