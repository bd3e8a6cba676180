"""`classify --fit`: fit a question to labelled texts, as far as cross-validation says it helps.

The rungs, each of which must beat the best one below it:

    none          the question's own calibration
    calibration   scale and biases on the log probabilities (fitting.py), with a strong penalty or a
                  light one
    head          scores of a linear head on the hidden state (heads.py), scale and biases

Five folds: each text is predicted by fits to the other four. A rung is taken if its log loss is
lower by more than the standard error of the difference (a head that was asked for: if it is lower).
Texts are put in the order of their SHA-256, and dealt to the folds answer by answer; a text that
occurs twice with the same answer counts once. So neither order nor repetition in the file matters,
and the same labels give the same bytes on every machine.
"""

import base64
import hashlib
from math import fsum, sqrt

from ..faults import BAD_DATA, Error, data_error
from ..kernels import ffi, lib
from ..question.answers import calibrated
from . import fit_file, fitting, heads, risk

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Any

    from ..classify.classifier import Classifier
    from ..texts.labelled import Example, Labelled

N_FOLDS = 5
LEAST_P = 2.0**-52  # of the correct answer, so that a loss is finite
MIN_LABELS = 10
MAX_LABELS = 20_000  # hidden states are kept: 3 KB a text for a small model
NONE, CALIBRATION, HEAD = fit_file.TAKEN
PENALTIES = fitting.PENALTY, fitting.LIGHT


class Text:
    """A labelled text. digest: of its bytes. label: index of its answer. log_p: list. hidden: f32
    [n_embd] as bytes.
    """

    __slots__ = ("digest", "hidden", "label", "log_p")

    def __init__(self, digest: bytes, label: int, log_p: list[float], hidden: bytes) -> None:
        self.digest, self.label, self.log_p, self.hidden = digest, label, log_p, hidden


class Rung:
    """A way to probabilities. name: of fit_file.TAKEN. p: float [n][n_answers], each row by a fit
    to other texts. losses [n]: -ln P(correct answer), nats.
    """

    penalty = fitting.PENALTY

    def __init__(self, name: str, p: list[list[float]], labels: "Sequence[int]") -> None:
        self.name, self.p = name, p
        self.losses = [-lib.sluice_log(max(row[y], LEAST_P)) for row, y in zip(p, labels)]
        best = [max(range(len(row)), key=row.__getitem__) for row in p]
        self.is_right = [a == y for a, y in zip(best, labels)]
        # for two answers the square of one of them, as usual
        halves = 0.5 if len(p[0]) == 2 else 1.0
        squares = (
            halves * (x - (a == y)) ** 2 for row, y in zip(p, labels) for a, x in enumerate(row)
        )
        self.figures = {
            "log_loss": fsum(self.losses) / len(p),
            "brier": fsum(squares) / len(p),
            "accuracy": sum(self.is_right) / len(p),
        }

    def beats(self, other: "Rung", by_errors: float = 1.0) -> bool:
        """Whether the mean loss is lower by more than `by_errors` standard errors, over the texts
        that both have.
        """
        gains = [b - a for a, b in zip(self.losses, other.losses)]
        n = len(gains)
        gain = fsum(gains) / n
        deviation = sqrt(fsum((g - gain) ** 2 for g in gains) / (n - 1))
        return gain > by_errors * deviation / sqrt(n)


class Fitter:
    """Fits a question to labelled texts.

    classifier: with the question's own calibration. wants_head: --head. most: the risk, or None.
    say: called with each message.
    """

    def __init__(
        self,
        classifier: "Classifier",
        wants_head: bool = False,
        most: float | None = None,
        say: "Callable[[str], object]" = lambda message: None,
    ) -> None:
        self._c, self._wants_head, self._most, self._say = classifier, wants_head, most, say
        self._names = list(classifier.question.answers)
        q = classifier.question
        self._base = [q.scale, *q.bias.values()]  # with the prior of the question, if it has one
        self._texts: list[Text] = []
        self._labels: list[int] = []
        self.n_bad = 0

    def read(
        self,
        labelled: "Iterable[list[Example]]",
        name: str,
        progress: "Callable[[int], None] | None" = None,
    ) -> None:
        """Classify labelled texts, and keep what the fit needs. name: of them, for errors.

        A text that cannot be classified is said and left out. Raises DataError for too many or too
        few.
        """
        c = self._c
        c.keeps_hidden = True
        c.prepare()
        found: dict[tuple[bytes, int], Text] = {}
        for examples in labelled:
            verdicts = c.ask_many([e.data for e in examples if e.data is not None])
            for e in examples:
                v: Any = e.error if e.data is None else next(verdicts)
                if e.data is None or isinstance(v, Exception):
                    self._refuse(e, v)
                    continue
                digest, label = hashlib.sha256(e.data).digest(), self._names.index(e.answer)
                hidden = bytes(ffi.buffer(v.hidden.p, 4 * v.hidden.n))
                found[digest, label] = Text(digest, label, v.log_p, hidden)
            if len(found) > MAX_LABELS:
                raise data_error(name, f"more than {MAX_LABELS} labelled texts")
            if progress:
                progress(len(examples))
        self._texts = sorted(found.values(), key=lambda t: (t.digest, t.label))
        self._labels = [t.label for t in self._texts]
        self._check(name)

    def _refuse(self, example, e):
        from ..classify import writers

        if isinstance(e, Error) and e.code != BAD_DATA:
            raise e
        self.n_bad += 1
        self._say(writers.why(example, e))

    def check_number(self, n: int, name: str) -> None:
        """Raise DataError if `n` texts are too few for what is asked."""
        if n < MIN_LABELS:
            raise data_error(name, f"{_labelled(n)}; at least {MIN_LABELS} are needed")
        if self._wants_head and n < heads.MIN_LABELS:
            raise data_error(name, f"--head: {_labelled(n)}; {heads.MIN_LABELS} are needed")
        if self._most is not None and n < (least := risk.needed(self._most)):
            raise data_error(
                name,
                f"{_labelled(n)} cannot show an error of {self._most:g} with 95 % confidence:"
                f" {least} without an error are needed",
            )

    def _check(self, name):
        self.check_number(len(self._texts), name)
        if len(set(self._labels)) < 2:
            raise data_error(
                name, f"all texts are {self._names[self._labels[0]]}; two answers are needed"
            )
        if self._wants_head and (why := self._no_head()):
            raise data_error(name, f"--head: {why}")

    def _no_head(self):
        """Why a head cannot be fitted, or None."""
        try:
            import numpy  # noqa: F401
        except ImportError:
            return "numpy is not installed; pip install numpy"
        if len(self._names) > heads.MAX_ANSWERS:
            return f"{len(self._names)} answers; a head has at most {heads.MAX_ANSWERS}"
        n = len(self._texts)
        if n < heads.MIN_LABELS:
            return f"{_labelled(n)}; {heads.MIN_LABELS} are needed"
        for a, name in enumerate(self._names):
            if (n := self._labels.count(a)) < heads.MIN_OF_ANSWER:
                return f"{n} texts are {name}; {heads.MIN_OF_ANSWER} are needed"
        return None

    def fit(self, name: str) -> "dict[str, Any]":
        """Fit, and return the fields of the file. name: of the texts, for errors.

        Raises DataError if no threshold keeps the risk.
        """
        all_texts = range(len(self._texts))
        none = Rung(NONE, self._of_question(), self._labels)
        calibration = min(map(self._calibration, PENALTIES), key=lambda r: r.figures["log_loss"])
        rungs, fields = [none, calibration], {}
        taken = calibration if calibration.beats(none) else none
        if taken is calibration:
            fields["scale"], fields["bias"] = self._calibrated(all_texts, calibration.penalty)
        if why := self._no_head():
            self._say(f"no head: {why}")
        else:
            head, fields_of_head = self._head()
            rungs.append(head)
            if head.beats(taken, by_errors=0.0 if self._wants_head else 1.0):
                taken, fields = head, fields_of_head
        for rung in rungs:
            if rung.name != taken.name and rung is not none and rungs.index(taken) < 2:
                self._say(
                    f"{rung.name}: does not help on cross-validation (log loss"
                    f" {rung.figures['log_loss']:.3f}, {taken.name}"
                    f" {taken.figures['log_loss']:.3f}): not taken"
                )
        return {
            **fit_file.bound_to(self._c, self._c.prior.base if self._c.prior else self._base),
            "labels": len(self._texts),
            "taken": taken.name,
            "scale": self._base[0],
            "bias": self._base[1:],
            "head": None,
            "risk": self._risk(taken, name),
            "figures": {rung.name: rung.figures for rung in rungs},
            **fields,
        }

    def _of_question(self):
        return [calibrated(t.log_p, self._base[0], self._base[1:]) for t in self._texts]

    def _calibrated(self, of, penalty):
        """Fit (scale, bias) to the texts numbered `of`, or as many of them as is quick."""
        of = list(of)[: fitting.max_rows(len(self._names))]
        return fitting.fit(
            [self._texts[i].log_p for i in of],
            [self._labels[i] for i in of],
            self._base[0],
            self._base[1:],
            penalty,
        )

    def _calibration(self, penalty):
        n = len(self._texts)
        p: list[Any] = [None] * n
        for held_out, others in self._folds(n):
            scale, bias = self._calibrated(others, penalty)
            for i in held_out:
                p[i] = calibrated(self._texts[i].log_p, scale, bias)
        rung = Rung(CALIBRATION, p, self._labels)
        rung.penalty = penalty
        return rung

    def _head(self):
        """Return the Rung of a head, and the fields of the file for it."""
        texts = self._texts[: heads.MAX_LABELS]
        problem = heads.Problem([t.hidden for t in texts], self._labels, len(self._names))
        n = len(texts)
        p: list[Any] = [None] * n
        for held_out, others in self._folds(n):
            fit = problem.fit(others)
            for i, row in zip(held_out, problem.scores(fit, held_out)):
                p[i] = calibrated(row, fit.scale, fit.bias)
        fit = problem.fit(range(n))
        head = problem.head(fit)
        weights = b"".join(w.tobytes() for w in head.weights)
        fields = {
            "scale": fit.scale,
            "bias": fit.bias,
            "head": {
                "weights": base64.b64encode(weights).decode(),
                "offset": head.offset,
                "ridge": fit.strength,
            },
        }
        return Rung(HEAD, p, self._labels), fields

    def _folds(self, n):
        """Yield (numbers of a fold, numbers of the others) of the first `n` texts."""
        fold, dealt = [0] * n, [0] * len(self._names)
        for i in range(n):
            fold[i] = dealt[self._labels[i]] % N_FOLDS
            dealt[self._labels[i]] += 1
        for k in range(N_FOLDS):
            held_out = [i for i in range(n) if fold[i] == k]
            if held_out:
                yield held_out, [i for i in range(n) if fold[i] != k]

    def _risk(self, taken, name):
        if self._most is None:
            return None
        best = [max(row) for row in taken.p]
        cut = risk.find(best, taken.is_right, self._most)
        if cut is None:
            n = risk.sizes(len(best), risk.needed(self._most))[0]
            raise data_error(
                name,
                f"no threshold shows an error of {self._most:g} with 95 % confidence: too many of"
                f" the surest {n} of {len(best)} texts are wrong; give more labels, or take a"
                " better question or model",
            )
        return {
            "error": self._most,
            "confidence": risk.CONFIDENCE,
            "threshold": cut.threshold,
            "accepted": cut.n_accepted,
            "errors": cut.n_errors,
            "of": len(best),
        }


def _labelled(n):
    return f"{n} labelled text{'s' * (n != 1)}"


def table(fields: "dict[str, Any]", path: str) -> bytes:
    """Return what --fit prints: the figures of each rung, which was taken, and where it is."""
    out = [f"labels {fields['labels']}, {N_FOLDS}-fold cross-validation"]
    out.append(f"{'':12}{'log loss':>9}{'Brier':>8}{'accuracy':>10}")
    for name, f in fields["figures"].items():
        mark = "  taken" if name == fields["taken"] else ""
        out.append(f"{name:12}{f['log_loss']:9.4f}{f['brier']:8.4f}{f['accuracy']:10.3f}{mark}")
    if found := fields["risk"]:
        out.append(
            f"threshold {found['threshold']:.4f}: {found['accepted']} of {found['of']} texts"
            f" accepted, {found['errors']} of them wrong; error at most {found['error']:g} with"
            f" {100 * found['confidence']:.0f} % confidence"
        )
    out.append(f"written to {path}")
    return "\n".join(out).encode("utf-8", "surrogateescape") + b"\n"


def run(
    classifier: "Classifier",
    labelled: "Labelled",
    name: str,
    path: str,
    wants_head: bool = False,
    most: float | None = None,
    say: "Callable[[str], object]" = lambda message: None,
    progress: "Callable[[int], None] | None" = None,
) -> "tuple[dict[str, Any], int]":
    """Fit the question of `classifier` to labelled texts, and write the file at `path`.

    name: of the texts, for errors. Returns (fields of the file, number of texts that could not be
    classified). Raises DataError, and Error 73, 74 or 75.
    """
    fit_file.prepare_target(path)
    fitter = Fitter(classifier, wants_head, most, say)
    if labelled.n is not None:
        fitter.check_number(labelled.n, name)  # before the model runs
    fitter.read(labelled, name, progress)
    fields = fitter.fit(name)
    fit_file.write(path, fit_file.FIT, fields)
    return fields, fitter.n_bad
