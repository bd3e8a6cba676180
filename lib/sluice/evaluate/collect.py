"""Classify labelled texts, and keep what the figures need: probabilities, answers, worst mistakes.

Memory is bounded by the number of texts, not by their size: of a text that was classified only its
probabilities stay, and an excerpt while it is among the worst mistakes.
"""

from __future__ import annotations

import heapq
from array import array
from typing import NamedTuple

import numpy as np

from ..classify import many, writers
from ..faults import data_error
from ..texts import inputs
from .metrics import Outcome

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from ..classify.classifier import Verdict
    from ..classify.panel import Panel
    from ..question.question import Question
    from ..texts.labelled import Example, Labelled

MAX_MISTAKES = 20
EXCERPT = 1500  # characters of a mistake's text


class Mistake(NamedTuple):
    """A text whose most probable answer is not the correct one.

    i: its number among the texts. name: file, or file:line. right, best: indices of answers.
    p_right, p_best: their probabilities. is_unsure: the answer given was "unsure". text: its
    beginning, at most EXCERPT characters. is_cut: there is more.
    """

    i: int
    name: str
    right: int
    best: int
    p_right: float
    p_best: float
    is_unsure: bool
    text: str
    is_cut: bool


class Collected(NamedTuple):
    """outcomes: one for each classifier, of the same texts in the same order. mistakes: of the
    first classifier, the worst first. n_bad: texts that could not be classified. n_learned: texts
    that were learned, and are classified as if they had not been.
    """

    outcomes: list[Outcome]
    mistakes: list[Mistake]
    n_bad: int
    n_learned: int


def collect(
    panels: list[Panel],
    labelled: Labelled,
    say: Callable[[str], None],
    progress: Callable[[int], object] | None = None,
    see: Callable[[bytes, Verdict, int], object] | None = None,
) -> Collected:
    """Classify the texts by the question of each Panel. The answers are those of the first.

    say: called with a line for each text that cannot be classified by all. progress: called with
    the number of texts just done. see: called with each classified text, the Verdict of the first
    Panel and the index of its correct answer. Raises DataError if no text can be classified.
    """
    q = panels[0].first.question
    names = list(q.answers)
    columns = [same_answers(q, panel.first.question) for panel in panels]
    right = array("l")
    answered = [array("l") for _ in panels]
    p = [array("d") for _ in panels]
    worst = _Worst(panels[0].is_mail)
    n_bad = n_learned = 0
    for panel in panels:
        panel.prepare()
        panel.first.leaves_out = True
    for examples in labelled:
        found = [many.found_of(panel, examples) for panel in panels]
        for example, *several in zip(examples, *found):
            errors = [x for x in several if isinstance(x, Exception)]
            if errors:
                n_bad += 1
                say(writers.why(example, errors[0]))
                continue
            verdicts = [x[0] for x in several]
            n_learned += any(v.is_left_out for v in verdicts)
            right.append(names.index(example.answer))
            if see:
                see(example.data, verdicts[0], right[-1])
            for v, column, a, rows in zip(verdicts, columns, answered, p):
                scores = [v.scores[name] for name in column]
                rows.extend(scores)
                a.append(column.index(v.answer) if v.answer in column else len(column))
            worst.see(len(right) - 1, example, verdicts[0], names)
        if progress:
            progress(len(examples))
    if not right:
        raise data_error("--evaluate", f"none of {n_bad} texts could be classified; see above")
    correct = np.array(right, np.int64)
    outcomes = [
        Outcome(np.array(rows, float).reshape(len(right), -1), correct, np.array(a, np.int64))
        for rows, a in zip(p, answered)
    ]
    return Collected(outcomes, worst.sorted(), n_bad, n_learned)


def same_answers(question: Question, other: Question) -> list[str]:
    """For each answer of `question` that of `other` which means the same: one of the same name, or
    one that is an alias of the other. Raises DataError.
    """
    found = []
    for name in question.answers:
        same = [
            answer
            for answer in other.answers
            if answer == name
            or question.aliases.get(answer) == name
            or other.aliases.get(name) == answer
        ]
        same = [name] if name in other.answers else same
        found += same[:1]
        if len(same) != 1:
            break
    if len(set(found)) != len(question.answers) or len(other.answers) != len(found):
        known = [", ".join(list(q.answers)[:20]) for q in (question, other)]
        raise data_error(
            other.path,
            f"its answers are {known[1]}, not {known[0]}; aliases in the question can say which"
            " mean the same",
        )
    return found


class _Worst:
    """The mistakes whose correct answer got the lowest probabilities."""

    def __init__(self, is_mail: bool) -> None:
        self._is_mail = is_mail
        self._heap: list[tuple[float, int, Mistake]] = []

    def see(self, i: int, example: Example, v: Verdict, names: list[str]) -> None:
        right = names.index(example.answer or "")
        is_unsure = v.answer not in names
        best = (
            max(range(len(names)), key=lambda a: v.scores[names[a]])
            if is_unsure
            else names.index(v.answer)
        )
        p_right = v.scores[names[right]]
        # of equal ones the first stay
        key = (-p_right, -i)
        if best == right or len(self._heap) == MAX_MISTAKES and key < self._heap[0][:2]:
            return
        text, is_cut = excerpt(example.data or b"", self._is_mail)
        p_best = v.scores[names[best]]
        mistake = Mistake(i, example.name, right, best, p_right, p_best, is_unsure, text, is_cut)
        push = heapq.heappush if len(self._heap) < MAX_MISTAKES else heapq.heappushpop
        push(self._heap, (*key, mistake))

    def sorted(self) -> list[Mistake]:
        """The worst first."""
        return [mistake for *_, mistake in sorted(self._heap, key=lambda x: x[:2], reverse=True)]


def excerpt(data: bytes, is_mail: bool) -> tuple[str, bool]:
    """(the beginning of the text that a reader sees, whether there is more)."""
    text, rest, _ = inputs.text(data, is_mail, False)
    shown = text[: 4 * EXCERPT + 4].decode("utf-8", "replace").strip()
    return shown[:EXCERPT], len(shown) > EXCERPT or len(text) > 4 * EXCERPT + 4 or rest is not None
