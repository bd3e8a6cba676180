"""Question: classify texts, as the command `classify` does."""

from __future__ import annotations

import itertools
import os
import warnings
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ..classify.setup import Setup
from ..faults import data_error
from ..question import kinds
from .arguments import Arithmetic, Path, Text, as_bytes, check_engine, named, str_or_none
from .closable import Closable, engine_lock


class Verdict(NamedTuple):
    """The result for one text."""

    label: str
    """The most probable label, or "unsure" if that is below its threshold."""
    score: float
    """The probability of `label`; of the first label if unsure."""
    scores: dict[str, float]
    """The probability of each label; the sum is 1."""
    status: int
    """The exit status of `classify`: 0 for the first label, 1 for another one, 2 for unsure."""
    n_tokens: int
    """Tokens of the prompt, text included."""
    is_cut: bool
    """Whether the middle of the text was dropped."""
    mass: float | None
    """The labels' share of the total probability, if the Question has mass=True; else None."""
    reasons: list[str] | None
    """Problems found in a message, as mail-text -v prints them; None for a plain text."""


class Question(Closable):
    """A question with an open model, ready for one text after another.

    question: spam, language-is-english, urgent or sentiment, or a YAML file: a path object, or a
    str that has "/" or ends in .yaml.
    answers: of a question that has no file; `question` is then its text, str, as of `classify -q`.
    model: a GGUF file. None: the question's model, else the one that $MODEL names.
    mail: the texts are messages (RFC 5322), whatever the question says.
    mass: compute Verdict.mass.
    calibration: True for the user's calibration (`classify --learn`), False for the question's, or
    a file. One that cannot be used is ignored, with a warning.
    cache: True for the user's cache, False for none, or a directory. It holds the parsed question
    and the model's state after the first part of the prompt, never a text.
    threads, arithmetic, vocab, huge_pages: as for `load`.

    labels: tuple of str, in the question's order.
    thresholds: {label: probability}, below which the label becomes "unsure".
    """

    def __init__(
        self,
        question: Path = "spam",
        *,
        answers: Iterable[str] | None = None,
        model: Path | None = None,
        mail: bool = False,
        mass: bool = False,
        calibration: bool | Path = True,
        cache: bool | Path = True,
        threads: int | None = None,
        arithmetic: Arithmetic = "exact",
        vocab: Path | None = None,
        huge_pages: bool = False,
    ) -> None:
        check_engine(threads, arithmetic)
        given = None if answers is None else _words(question, answers)
        options = Setup(
            os.fspath(question) if given else named(question),
            str_or_none(model),
            None if isinstance(cache, bool) else os.fspath(cache),
            cache is False,
            None if isinstance(calibration, bool) else os.fspath(calibration),
            calibration is False,
            threads,
            mail,
            mass,
            arithmetic,
            str_or_none(vocab),
            huge_pages,
            _warn,
            answers=given,
        )
        with engine_lock:
            asked = options.question()
            self._classifier = options.classifier(asked)
        self.labels: tuple[str, ...] = tuple(asked.answers)
        self.thresholds: dict[str, float] = dict(asked.thresholds)

    def __enter__(self) -> Question:
        self._check_open()
        return self

    def _release(self) -> None:
        if hasattr(self, "_classifier"):
            del self._classifier

    def classify(self, text: Text) -> Verdict:
        """Classify a text of any length, str or bytes. Raises DataError if it is empty."""
        self._check_open()
        with engine_lock:
            c = self._classifier
            c.prepare()
            v = c.ask(as_bytes(text))
            return Verdict(
                v.answer, v.score, v.scores, c.status(v), v.n_tokens, v.cut, v.mass, v.reasons
            )

    def classify_many(self, texts: Iterable[Text]) -> Iterator[Verdict]:
        """Classify each of `texts`, fetched one by one.

        After a DataError for one text, `next` continues with the next text; the error of an empty
        one names it, as texts[3].
        """
        self._check_open()
        if isinstance(texts, str | bytes):
            raise TypeError("texts: is one text, not several")
        return map(self._numbered, itertools.count(), texts)

    def _numbered(self, i: int, text: Text) -> Verdict:
        if isinstance(text, str | bytes) and not text:
            raise data_error(f"texts[{i}]", "no text: it is empty")
        return self.classify(text)


def _words(question: Path, answers: Iterable[str]) -> list[str]:
    """The answers to the text of a question. Raises TypeError, DataError."""
    if not isinstance(question, str):
        raise TypeError("question: with answers it is a text, str")
    if isinstance(answers, str | bytes):
        raise TypeError("answers: is one text, not several")
    words = list(answers)
    kinds.check_given(words, "answers")
    return words


def _warn(message: str) -> None:
    warnings.warn(message, RuntimeWarning, stacklevel=2)
