"""The result of an evaluation: figures with intervals, confusion, mistakes; and its JSON object."""

from __future__ import annotations

import math

from . import bootstrap, mcnemar, metrics
from .bootstrap import Figure
from .metrics import Figures, Outcome

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .collect import Collected
    from .curve import Curve

    Key = tuple[str, int | None]  # name of a figure, index of an answer


class System:
    """What was evaluated.

    label: how reports call it. question, model: names. model_id: 16 hex digits. thresholds: of the
    answers. calibration: what --json of classify says of it, or None.
    """

    def __init__(
        self,
        label: str,
        question: str,
        model: str,
        model_id: str,
        thresholds: dict[str, float],
        calibration: dict[str, Any] | None,
    ) -> None:
        self.label, self.question, self.model = label, question, model
        self.model_id, self.thresholds, self.calibration = model_id, thresholds, calibration


class Result:
    """The figures of one classifier, or of two on the same texts.

    answers: names. systems: a System for each classifier. n_texts: classified ones. n_per_answer:
    texts by correct answer. figures: for each classifier {(name, answer or None): Figure}.
    differences: the same of the second minus the first; None without a second. only_right: texts
    that only the first, only the second got right; None without a second. curve: the learning curve
    of the first, or None.
    """

    def __init__(
        self,
        answers: list[str],
        systems: list[System],
        collected: Collected,
        curve: Curve | None = None,
    ) -> None:
        self.answers, self.systems, self.outcomes = answers, systems, collected.outcomes
        self.mistakes, self.n_bad, self.curve = collected.mistakes, collected.n_bad, curve
        self.n_learned = collected.n_learned
        first = self.outcomes[0]
        self.n_texts = first.n
        self.n_per_answer = [int((first.right == a).sum()) for a in range(len(answers))]
        figures = [Figures(o) for o in self.outcomes]
        samples = bootstrap.resampled(figures, first.n)
        everything = bootstrap.whole(first.n)
        values = [f.at(everything) for f in figures]
        names = figures[0].names
        self.figures: list[dict[Key, Figure]] = [
            {key: bootstrap.interval(key[0], v[i], s[:, i]) for i, key in enumerate(names)}
            for v, s in zip(values, samples)
        ]
        self.differences: dict[Key, Figure] | None = None
        self.only_right: tuple[int, int] | None = None
        if len(self.outcomes) == 2:
            change, moved = values[1] - values[0], samples[1] - samples[0]
            self.differences = {
                key: bootstrap.interval(key[0], change[i], moved[:, i], is_difference=True)
                for i, key in enumerate(names)
            }
            a, b = (o.is_right for o in self.outcomes)
            self.only_right = int((a & ~b).sum()), int((b & ~a).sum())

    @property
    def p_value(self) -> float | None:
        """McNemar's exact test on the correct answers of both; None without a second."""
        return None if self.only_right is None else mcnemar.p_value(*self.only_right)

    def most_errors(self, outcome: Outcome) -> float | None:
        """If no most probable answer is wrong, the error rate that this excludes at LEVEL: all
        resamples are then without errors, and the interval of the accuracy says nothing.
        """
        return 1 - (1 - bootstrap.LEVEL) ** (1 / outcome.n) if outcome.is_right.all() else None


def as_json(r: Result) -> dict[str, Any]:
    """The object of --json."""
    found = {
        "n": r.n_texts,
        "bad": r.n_bad,
        "learned": r.n_learned,
        "interval": {
            "level": bootstrap.LEVEL,
            "resamples": bootstrap.RESAMPLES,
            "seed": bootstrap.SEED,
        },
        "ece_bins": metrics.N_BINS,
        **_of_system(r, 0),
    }
    if r.differences is not None and r.only_right is not None:
        found["compare"] = _of_system(r, 1)
        found["difference"] = _figures(r, r.differences)
        found["mcnemar"] = {
            "only_first": r.only_right[0],
            "only_second": r.only_right[1],
            "p": r.p_value,
        }
    if r.curve:
        from . import curve

        found["curve"] = curve.as_json(r.curve)
    found["mistakes"] = [
        {
            "name": m.name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace"),
            "correct": r.answers[m.right],
            "best": r.answers[m.best],
            "unsure": m.is_unsure,
            "p": {name: _number(float(p)) for name, p in zip(r.answers, r.outcomes[0].p[m.i])},
        }
        for m in r.mistakes
    ]
    return found


def _of_system(r, i):
    s, outcome = r.systems[i], r.outcomes[i]
    columns = [*r.answers, "unsure"]
    return {
        "question": s.question,
        "model": s.model_id,
        "calibration": s.calibration,
        "thresholds": s.thresholds,
        **_figures(r, r.figures[i]),
        "confusion": {
            name: dict(zip(columns, map(int, row)))
            for name, row in zip(r.answers, outcome.confusion())
        },
    }


def _figures(r, figures):
    per_answer = [n for n in metrics.PER_ANSWER if n != "auc" or len(r.answers) > 2]
    return {
        **{name: _figure(figures[name, None]) for name in metrics.OVERALL},
        "answers": {
            answer: {
                "n": r.n_per_answer[a],
                **{name: _figure(figures[name, a]) for name in per_answer},
            }
            for a, answer in enumerate(r.answers)
        },
    }


def _figure(f):
    return {key: _number(x) for key, x in f._asdict().items()}


def _number(x):
    return None if math.isnan(x) else round(x, 6)
