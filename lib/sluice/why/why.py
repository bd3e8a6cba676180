"""Why a text got its answer: what each span of it adds, left out one at a time.

Score: the log-odds of the answer, ln P / (1 - P), after calibration; of "unsure", those of the most
probable label. The effect of a span is the score of the whole text less that of the text without
the span: above 0, the span speaks for the answer. It is a difference of two verdicts: each text
with a span left out is classified as if it had been given, with the same bits.

Effects need not add up: two spans that say the same have little effect each, as the other one
remains. `together` is the effect of leaving out all of them.

The texts share the tokens up to the first span that they lack. The last span is left out first:
each text writes its keys and values over those of later positions only, so all share one cache.

A counterfactual is a set of spans without which the answer is another, and each of which is needed
for that: spans are left out by rank until the answer changes, then each is put back that can be.
"""

import math

from ..classify.classifier import ask_texts
from ..faults import Error, data_error
from ..model import packed
from ..model.packed import Part
from ..question.answers import calibrated, log_sum
from ..question.question import UNSURE
from . import user_words
from .spans import MAX_SPANS, Spans

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from ..classify.classifier import Classifier, Verdict
    from .user_words import Words

BATCH = 4  # texts of the search for a counterfactual that are classified together


class Why:
    """What each span of a text adds to the log-odds of its answer.

    verdict: on the whole text. of: the label whose log-odds are meant. score: the log-odds of the
    whole text; without: those without any text, or None if the prompt is the text alone.
    spans: Spans. effects: of each. verdicts: on the text without each.
    counterfactual: (numbers of spans, Verdict without them), or None. words: what the user's own
    words added, or None if nothing was learned.
    """

    verdict: "Verdict"
    of: str
    score: float
    without: float | None
    spans: Spans
    effects: list[float]
    verdicts: "list[Verdict]"
    counterfactual: "tuple[list[int], Verdict] | None"
    words: "Words | None"

    @property
    def together(self) -> float | None:
        """The effect of all spans together, or None."""
        return None if self.without is None else self.score - self.without

    def largest(self, n: int | None) -> list[int]:
        """The numbers of the n spans with the largest effects, the largest first; None: of all, in
        their order.
        """
        numbers = list(range(len(self.effects)))
        if n is None:
            return numbers
        return sorted(numbers, key=lambda i: -abs(self.effects[i]))[:n]


def explain(
    c: "Classifier",
    data: bytes,
    counterfactual: bool = False,
    n_spans: int = MAX_SPANS,
    progress: "Callable[[int, int], None] | None" = None,
) -> Why:
    """Return the Why of an input.

    n_spans: at most; of more, neighbours are one. progress: called with (texts classified, of how
    many). DataError if it is empty or has one span only.
    """
    whole = c.tokenized(data)
    if isinstance(whole, Error):
        raise whole
    read = c.prompt.bytes_read(whole.tokens[len(c.prompt.before) :]) if whole.cut else None
    spans = Spans(data, c.is_mail, c.question.fold, n_spans, read)
    n = len(spans.texts)
    if n < 2:
        raise data_error("--why", f"the text has {n or 'no'} span: nothing to compare")
    asked = Asked(c, spans)
    w, done = Why(), progress or (lambda n, of: None)
    sets: list[Any] = [(), *([i] for i in range(n)), range(n)]
    verdicts = asked.verdicts(sets, done)
    w.spans, w.verdict, w.verdicts = spans, verdicts[0], verdicts[1 : n + 1]
    best = max(w.verdict.scores, key=lambda name: w.verdict.scores[name])
    w.of = best if w.verdict.answer == UNSURE else w.verdict.answer
    w.score = log_odds(c, w.verdict, w.of)
    w.effects = [w.score - log_odds(c, v, w.of) for v in w.verdicts]
    w.without = None if verdicts[-1] is None else log_odds(c, verdicts[-1], w.of)
    w.counterfactual = _counterfactual(asked, w) if counterfactual else None
    w.words = user_words.explain(c, w.verdict, w.of)
    return w


def log_odds(c: "Classifier", v: "Verdict", label: str) -> float:
    """ln P(label) / P(the others) of a Verdict, exact where P is nearly 0 or 1."""
    names = list(v.scores)
    scale, *bias = v.calibration
    terms = [scale * p + b for p, b in zip(v.log_p, bias)]
    # not by scale and bias alone; of a text whose answer the user gave, what would be without it
    if v.taught is None and calibrated(v.log_p, scale, bias) != list(v.scores.values()):
        terms = [math.log(max(p, 1e-300)) for p in v.scores.values()]
    at = names.index(label)
    return terms[at] - log_sum(terms[:at] + terms[at + 1 :])


class Asked:
    """The texts that are left of `spans` when some are left out, for a Classifier that classifies
    nothing else meanwhile.
    """

    def __init__(self, c: "Classifier", spans: Spans) -> None:
        self._c, self._spans = c, spans
        c.prepare()
        whole = self._text(())
        if isinstance(whole, Error):
            raise whole
        self._whole = whole.tokens + c.prompt.after
        self._n_cached = min(c.n_known, len(self._whole) - 1)  # rows that are those of the whole

    def _text(self, left_out):
        return self._c.text_of(
            *self._spans.without(left_out), self._spans.reasons, self._spans.header
        )

    def verdicts(
        self,
        sets: "Sequence[Sequence[int]]",
        progress: "Callable[[int, int], None] | None" = None,
    ) -> "list[Any]":
        """The Verdicts on the text without the spans of each set, in their order; None where
        nothing is left to classify.
        """
        c = self._c
        texts = [self._text(frozenset(left_out)) for left_out in sets]
        if len(c.orders) > 1:
            return [None if isinstance(v, Error) else v[0] for v in ask_texts([c], texts)]
        lists = [[] if isinstance(t, Error) else t.tokens + c.prompt.after for t in texts]
        shared = [common(tokens, self._whole) for tokens in lists]
        out: list[Any] = [None] * len(sets)
        hidden: dict[tuple[int, tuple[int, ...]], Any] = {}
        n_done = 0
        for (i, path, n_known), x in packed.run(c.model, c.forward, self._parts(lists, shared)):
            hidden[0, path] = x.copy()
            if len(hidden) < len(c.tree.paths):
                continue
            out[i] = c.verdict(texts[i], hidden, n_known)
            hidden, n_done = {}, n_done + 1
            if progress:
                progress(n_done, len(sets))
        c.model.file.check_unchanged()
        return out

    def _parts(self, lists, shared):
        """Parts for token lists that share their first tokens with the whole text, the longest
        share first. Tokens of the whole text that several of them share are run first.
        """
        parts = []
        most = max((n for n, tokens in zip(shared, lists) if tokens), default=0)
        saved = sum(max(0, n - self._n_cached) for n, tokens in zip(shared, lists) if tokens)
        if saved > most - self._n_cached > 0:
            parts.append(Part(self._n_cached, self._whole[self._n_cached : most]))
            self._n_cached = most
        for i in sorted(range(len(lists)), key=lambda i: -shared[i]):
            tokens, begin = lists[i], min(shared[i], self._n_cached)
            if not tokens:
                continue
            last = len(tokens) - 1
            parts.append(Part(begin, tokens[begin:], (i, (), begin)))
            parts += [Part(last + len(p), [p[-1]], (i, p, begin)) for p in self._c.tree.paths if p]
            if begin + 1 < len(self._whole) or tokens != self._whole:
                self._n_cached = min(self._n_cached, begin)
        return parts


def common(tokens: list[int], whole: list[int]) -> int:
    """How many first tokens two lists share, less than all of the first: its last one is run."""
    n = 0
    for a, b in zip(tokens[:-1], whole):
        if a != b:
            break
        n += 1
    return n


def _counterfactual(asked, w):
    """An irreducible set of spans without which the answer is another, and that Verdict; or None.

    At most two evaluations per span.
    """
    left = 2 * len(w.effects)
    changes = lambda v: v is not None and v.answer != w.verdict.answer
    ranked = sorted((i for i, x in enumerate(w.effects) if x > 0), key=lambda i: -w.effects[i])
    found, at = None, 1
    if ranked and changes(w.verdicts[ranked[0]]):
        found, at = w.verdicts[ranked[0]], 1
    while found is None and at < len(ranked):
        sizes = range(at + 1, min(at + BATCH, len(ranked)) + 1)
        for size, v in zip(sizes, asked.verdicts([ranked[:size] for size in sizes])):
            if found is None:
                at = size
                found = v if changes(v) else None
        left -= len(sizes)
    if found is None:
        return None
    kept, is_smaller = ranked[:at], at > 1
    while is_smaller and left > 0:
        is_smaller = False
        for i in sorted(kept, key=lambda i: w.effects[i]):
            if len(kept) == 1 or left <= 0:
                break
            (v,) = asked.verdicts([[k for k in kept if k != i]])
            left -= 1
            if changes(v):
                kept, found, is_smaller = [k for k in kept if k != i], v, True
    return sorted(kept), found
