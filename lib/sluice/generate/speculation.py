"""Speculation: several tokens are guessed, and one pass of the layers checks them all.

A pass over the next token and k guesses gives the logits after each, with the bits of k + 1 passes.
The sampler chooses from them one after the other, as it would have; where it chooses another token
than was guessed, the logits behind are dropped. So text, snapshot and random numbers are those
without guesses (Leviathan, Kalman & Matias 2023, "Fast Inference from Transformers via Speculative
Decoding", without their sampling rule: here a guess does not change what is chosen).

Guesses come from the text itself (lookup.py) and from a draft model (draft.py). Whether they pay is
a matter of time, which is measured:

- r(k), the time of a pass with k guesses, in units of a pass without.
- p, the probability that a guess is right. For look-up it is known without guessing, as each token
  shows whether the match was right about it; it is kept by the length of the match.
- k guesses give (1 - p^(k+1)) / (1 - p) tokens on average. The k that gives most per time is taken,
  if it gives MARGIN times what single tokens give.
- What was lost before, and the time that wrong guesses would cost now, times the probability of
  that (RISK at least), must be within LOSS of all the time so far, and TRIAL for a draft model.
  So a text is at most by LOSS slower than without guesses, and the time of one pass.
"""

import time

from .lookup import Lookup

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Protocol

    class Draft(Protocol):
        """Guesses tokens, at a cost: draft.Draft."""

        def guess(self, tokens: list[int], n: int) -> list[int]: ...


SIZES = 3, 5, 7, 15, 31  # guesses of a pass: with the token before them, panels of the kernels
MARGIN, LOSS, RISK = 1.15, 0.03, 0.25
TRIAL = 3.0  # single tokens that trying a draft model may cost
REST = 32  # tokens from one trial to the next, while it does not pay
LEVELS = 5, 8, 12, 20  # a match shorter than the i-th is in class i
PRIOR = 0.5, 0.7, 0.8, 0.9, 0.95  # of p, by class
WEIGHT = 4.0  # tokens that a prior counts for
DRAFT_PRIOR, DRAFT_WEIGHT = 0.85, 2.0
FORGET = 0.98  # weight of what was before, at each token
WARM = 3  # single tokens whose time is measured first
MIN_SECONDS = 5e-4  # of a token: for a faster model looking up takes too long


class Speculation:
    """Guesses for one text. draft: a Draft, or None. seconds: that its prompt took.

    n_guessed, n_right: guesses that were checked, and those of them that were chosen.
    """

    def __init__(
        self, draft: "Draft | None" = None, seconds: float = 0.0, lookup: bool = True
    ) -> None:
        self._draft, self._lookup = draft, Lookup() if lookup else None
        self.n_guessed = self.n_right = 0
        self._seconds = seconds
        self._gains = {"lookup": 0.0, "draft": 0.0}  # seconds that guesses saved, by their source
        self._source = "lookup"  # of the last guesses
        self._single, self._n_single = 0.0, 0
        self._passes: dict[int, float] = {}  # guesses: measured r
        self._right = [p * WEIGHT for p in PRIOR]
        self._seen = [WEIGHT] * len(PRIOR)
        self._draft_right, self._draft_seen = DRAFT_PRIOR * DRAFT_WEIGHT, DRAFT_WEIGHT
        self._draft_seconds = 0.0
        self._has_drafted = False
        self._n_open = 0  # guesses of the draft model that may still be right
        self._rest = 0  # tokens until the draft model is tried again

    @classmethod
    def of_prompt(cls, seconds: float) -> "Speculation":
        """Return one that has look-up alone, for a text whose prompt took `seconds`."""
        return cls(seconds=seconds)

    def guess(self, before: "Any", n_tok: int, token: int, room: int) -> list[int]:
        """Return guesses of the tokens after `token`, at most `room`; [] if they do not pay.

        before: the tokens before it, an i32 array; the first `n_tok` are valid.
        """
        self._follow(before, n_tok, token)
        if self._n_open:
            self._learn_draft(False)
        if self._n_single == WARM and self._single < MIN_SECONDS:
            self._lookup = None
        if self._n_single < WARM or room < 1:
            return []
        if self._lookup and self._lookup.length:
            i = _level(self._lookup.length)
            n = self._best(self._right[i] / self._seen[i], 0.0, room, MARGIN)
            if n:
                self._source = "lookup"
                return self._lookup.guess(n)
        n = self._n_drafts(room) if self._draft else 0
        if not (self._draft and n):
            return []
        began = time.perf_counter()
        found = self._draft.guess([*before[:n_tok].tolist(), token], n)
        self._time_draft(time.perf_counter() - began, n)
        self._n_open, self._source = len(found), "draft"
        return found

    def took(self, n_guesses: int, seconds: float) -> None:
        """Count a pass with `n_guesses` guesses, which took `seconds`."""
        self._seconds += seconds
        if n_guesses:
            self.n_guessed += n_guesses
            r, known = seconds / self._single, self._passes.get(n_guesses)
            # the first pass of a size allocates memory, too
            self._passes[n_guesses] = _mean(known, r) if known else min(r, self._ratio(n_guesses))
            self._gains[self._source] += self._single - seconds
        else:
            self._n_single += 1
            if self._n_single > 1:  # the first one prepares the others
                usual = self._single or seconds
                # one that other processes interrupted counts as one of twice the time
                self._single = _mean(self._single or None, min(seconds, 2 * usual))

    def was_right(self, before: "Any", n_tok: int, token: int) -> None:
        """Count `token`, which had been guessed and was chosen behind those of `before`."""
        self.n_right += 1
        self._gains[self._source] += self._single
        if self._n_open:
            self._learn_draft(True)
        self._follow(before, n_tok, token)

    def _follow(self, before, n_tok, token):
        """Append what is new of the text to the look-up, and learn whether its match was right."""
        lookup = self._lookup
        if lookup is None:
            return
        if len(lookup) > n_tok:  # the cache was filled anew
            lookup = self._lookup = Lookup()
        if len(lookup) == n_tok and lookup.length:
            i = _level(lookup.length)
            self._right[i] = FORGET * self._right[i] + (lookup.next == token)
            self._seen[i] = FORGET * self._seen[i] + 1
        lookup.extend([*before[len(lookup) : n_tok].tolist(), token])

    def _n_drafts(self, room):
        """Return how many tokens the draft model shall guess."""
        self._rest -= 1
        if self._rest >= 0:
            return 0
        cost = self._draft_seconds / self._single
        p = self._draft_right / self._draft_seen
        n = self._best(p, cost, room, 1.0) if cost else 0
        if not n:  # it is tried from time to time, as texts change
            self._rest = REST if cost else 0
            few = min(SIZES[0], room)
            n = few if self._may_cost(self._ratio(few) + few * cost, p, True) else 0
        return n

    def _best(self, p, cost, room, least):
        """Return the number of guesses that gives most, 0 if none gives `least`.

        p: probability that one is right. cost: of making one, in passes.
        """
        best, n = least, 0
        p = min(p, 0.995)
        for k in SIZES:
            k = min(k, room)
            r = self._ratio(k) + k * cost
            gain = (1 - p ** (k + 1)) / (1 - p) / r
            if gain > best and self._may_cost(r, p, cost > 0):
                best, n = gain, k
        return n

    def _may_cost(self, r, p, is_draft):
        """Whether a pass of the time r may be lost, where a guess is right with probability p."""
        allowed = LOSS * self._seconds + self._gains["draft" if is_draft else "lookup"]
        if is_draft:
            allowed += TRIAL * self._single
        return max(RISK, 1 - p) * (r - 1) * self._single <= allowed

    def _ratio(self, k):
        """Return r(k), measured or estimated."""
        if k in self._passes:
            return self._passes[k]
        known = min(self._passes, key=lambda n: abs(n - k), default=None)
        scale = self._passes[known] / _usual(known) if known is not None else 1.0
        return max(1.0, scale * _usual(k))

    def _learn_draft(self, is_right):
        """Count a guess of the draft model. Those behind a wrong one tell nothing."""
        self._draft_right = FORGET * self._draft_right + is_right
        self._draft_seen = FORGET * self._draft_seen + 1
        self._n_open = self._n_open - 1 if is_right else 0

    def _time_draft(self, seconds, n):
        self._seconds += seconds
        self._gains["draft"] -= seconds
        if self._has_drafted:  # the first time it read the prompt, too
            self._draft_seconds = _mean(self._draft_seconds or None, seconds / n)
        self._has_drafted = True


def _usual(k):
    """Return r(k) of a small model on a processor with AVX-512; larger ones have less."""
    return 3.0 + 0.13 * (k + 1)


def _level(length):
    return sum(length >= n for n in LEVELS)


def _mean(old, new):
    return new if old is None else 0.8 * old + 0.2 * new
