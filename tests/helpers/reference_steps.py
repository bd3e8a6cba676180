"""The steps of `sample` once more, in numpy and as the rules say them: the oracle of their tests.

Probabilities are plain softmaxes in f64, sets are sorted, repetitions are found by comparing every
pair of places. Nothing is shared with csrc/sampling: no masses, no thresholds, no Z algorithm. Only
the two roundings that define the results are the same: penalised logits to f32, and the distance
from the entropy to f32.
"""

import numpy as np

from sluice.generate.sampler import splitmix64

F32 = (-float(np.finfo(np.float32).max), float(np.finfo(np.float32).max))
ORDER = "penalties dry least top-n-sigma top-k typical top-p min-p xtc temperature".split()
DEFAULTS = dict(
    temperature=0.8,
    dynatemp_range=0,
    dynatemp_exponent=1,
    top_k=40,
    top_p=0.95,
    min_p=0.05,
    typical=1,
    top_nsigma=-1,
    xtc_probability=0,
    xtc_threshold=0.1,
    repeat=1,
    presence=0,
    frequency=0,
    last_n=64,
    dry_multiplier=0,
    dry_base=1.75,
    dry_allowed_length=2,
    dry_last_n=64,
    mirostat=0,
    mirostat_entropy=5,
    mirostat_rate=0.1,
    mirostat_mu=None,
)


def probabilities(l):
    e = np.exp(l - l.max())
    return e / e.sum()


def by_rank(ids, l):
    """Indices of candidates, the best first, of equals the lower token."""
    return np.lexsort((ids, -l))


def longest_repetition(text, token, breakers, last_n):
    """How many of the last tokens also stand in front of an earlier `token`; no breaker (a
    sequence of tokens, or -1) among them."""
    text = text[-last_n:] if last_n >= 0 else text
    n_free = 0  # tokens after the last breaker
    while n_free < len(text):
        head = text[: len(text) - n_free]
        if head[-1] < 0 or any(tuple(head[-len(b) :]) == b for b in breakers):
            break
        n_free += 1
    longest = 0
    for at in range(1, len(text)):
        if text[at] == token:
            length = 0
            while length < min(n_free, at) and text[at - 1 - length] == text[-1 - length]:
                length += 1
            longest = max(longest, length)
    return longest


class Reference:
    """A sampler. breakers: sequences of tokens. n_vocab: for Mirostat 1."""

    def __init__(self, n_vocab, seed=0, bias=None, least=False, order=ORDER, breakers=(), **given):
        self.o = {**DEFAULTS, **given}
        self.n_vocab, self.seed, self.bias = n_vocab, seed, bias or {}
        self.negates = least
        self.order = ["temperature"] if self.o["mirostat"] else list(order)
        self.breakers, self.text, self.seen = [tuple(b) for b in breakers], [], []
        mu = self.o["mirostat_mu"]
        self.mu = 2 * self.o["mirostat_entropy"] if mu is None else mu

    def choose(self, candidates, pos, prev=-1):
        """The token for [(token, logit)] at position `pos`; prev: the token before it."""
        if prev < 0 and self.text:
            self.text.append(-1)
        elif prev >= 0:
            self.text.append(prev)
            self.seen.append(prev)
        allowed = [c for c in candidates if self.bias.get(c[0]) != -np.inf]
        ids = np.array([i for i, _ in allowed])
        l = np.array([x for _, x in allowed], dtype=np.float64)
        biased = np.array([i in self.bias for i in ids])
        l[biased] += [self.bias[i] for i in ids[biased]]
        l = np.float64(np.float32(np.clip(l, *F32)))
        number = splitmix64(self.seed, pos)
        for step in self.order:
            ids, l = getattr(self, step.replace("-", "_"))(ids, l, number)
        n_before = len(ids)
        if self.o["mirostat"] and n_before > 1:
            ids, l = self.mirostat(ids, l)
        p = probabilities(l)
        at = int(np.searchsorted(np.cumsum(p), number / 2**64, side="right"))
        at = min(at, len(ids) - 1)
        if self.o["mirostat"] and n_before > 1:
            self.mu -= self.o["mirostat_rate"] * (-np.log2(p[at]) - self.o["mirostat_entropy"])
        return int(ids[at])

    def penalties(self, ids, l, number):
        o, recent = self.o, self.seen[-self.o["last_n"] :] if self.o["last_n"] else []
        if (o["repeat"], o["presence"], o["frequency"]) == (1, 0, 0):
            return ids, l
        count = np.array([recent.count(i) for i in ids])
        new = np.where(l <= 0, l * o["repeat"], l / o["repeat"])
        new = new - count * o["frequency"] - (count > 0) * o["presence"]
        return ids, np.where(count > 0, np.float32(np.clip(new, *F32)), l)

    def dry(self, ids, l, number):
        o = self.o
        if not o["dry_multiplier"] or not o["dry_last_n"]:
            return ids, l
        l = l.copy()
        for at, token in enumerate(ids):
            length = longest_repetition(self.text, token, self.breakers, o["dry_last_n"])
            if length >= o["dry_allowed_length"] and (token,) not in self.breakers:
                with np.errstate(over="ignore"):
                    power = np.float64(o["dry_base"]) ** (length - o["dry_allowed_length"])
                    l[at] = np.float32(np.clip(l[at] - o["dry_multiplier"] * power, *F32))
        return ids, l

    def least(self, ids, l, number):
        return ids, -l if self.negates else l

    def top_n_sigma(self, ids, l, number):
        n = self.o["top_nsigma"]
        keep = l >= l.max() - n * l.std() if n > 0 else l > -np.inf
        return ids[keep], l[keep]

    def top_k(self, ids, l, number):
        keep = np.sort(by_rank(ids, l)[: self.o["top_k"] or None])
        return ids[keep], l[keep]

    def typical(self, ids, l, number):
        if self.o["typical"] >= 1:
            return ids, l
        p = probabilities(l)
        with np.errstate(divide="ignore"):
            surprise = np.log(np.exp(l - l.max()).sum()) - (l - l.max())  # -ln p
        entropy = (p * np.where(p > 0, surprise, 0)).sum()
        rank = np.lexsort((ids, np.float32(abs(surprise - entropy))))
        n = int(np.searchsorted(np.cumsum(p[rank]), self.o["typical"], side="right")) + 1
        keep = np.sort(rank[:n])
        return ids[keep], l[keep]

    def top_p(self, ids, l, number):
        if self.o["top_p"] >= 1:
            return ids, l
        rank = by_rank(ids, l)
        sums = np.cumsum(probabilities(l)[rank])
        keep = np.sort(rank[: int(np.searchsorted(sums, self.o["top_p"])) + 1])
        return ids[keep], l[keep]

    def min_p(self, ids, l, number):
        if not self.o["min_p"]:
            return ids, l
        keep = l >= l.max() + np.log(self.o["min_p"])
        return ids[keep], l[keep]

    def xtc(self, ids, l, number):
        o, chance = self.o, splitmix64(number, 0) / 2**64
        if not o["xtc_probability"] or o["xtc_threshold"] > 0.5 or chance >= o["xtc_probability"]:
            return ids, l
        rank = by_rank(ids, l)
        n_top = int((probabilities(l) >= o["xtc_threshold"]).sum())
        keep = np.sort(rank[max(n_top - 1, 0) :])
        return ids[keep], l[keep]

    def temperature(self, ids, l, number):
        t, spread = self.o["temperature"], self.o["dynatemp_range"]
        if spread and len(ids) > 1:
            p = probabilities(l)
            entropy = -(p[p > 0] * np.log(p[p > 0])).sum() / np.log(len(ids))
            low, high = max(0, t - spread), t + spread
            t = low + (high - low) * max(entropy, 0) ** self.o["dynatemp_exponent"]
        if t == 0:
            best = by_rank(ids, l)[:1]
            return ids[best], l[best]
        return ids, l / t if len(ids) > 1 else l

    def mirostat(self, ids, l):
        rank, p = by_rank(ids, l), probabilities(l)
        if self.o["mirostat"] == 2:
            with np.errstate(divide="ignore"):
                n = max(1, int((-np.log2(p) <= self.mu).sum()))
        else:
            top = l[rank][:100]
            t = np.log(np.arange(2, len(top) + 1) / np.arange(1, len(top)))
            s = (t * (top[:-1] - top[1:])).sum() / (t * t).sum()
            e = s - 1
            if s == 0:
                n = len(ids) if 2.0**self.mu > self.n_vocab - 1 else 1
            else:
                with np.errstate(over="ignore"):
                    k = (e * 2.0**self.mu / -np.expm1(-e * np.log(self.n_vocab))) ** (1 / s)
                n = int(min(max(k, 1), len(ids)))
        keep = np.sort(rank[:n])
        return ids[keep], l[keep]
