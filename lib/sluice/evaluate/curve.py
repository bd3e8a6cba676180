"""The learning curve: how good answers are after so many learned texts (`--evaluate --curve`).

For each number of texts DRAWS random draws are learned, as by `classify --learn`, and all other
labelled texts are classified. Next to the learned question stand the question as it is, and
bogofilter, which learns the same texts, if it is installed and there are two answers. The model
runs once for each text. What --learn has kept so far does not count.

The draws come from the raw stream of PCG64 and a fixed seed, so the same texts in the same order
give the same figures on every machine.

Figures, means over the draws: accuracy, the share of texts whose most probable answer is correct,
and AUC, see metrics.py.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from typing import NamedTuple

import numpy as np

from ..faults import USAGE, Error, data_error, unsupported_error
from ..learn import evidence, joint
from ..learn.book import Book, Part, Text
from ..system import files
from .metrics import Rankings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from ..classify.classifier import Classifier, Verdict

DRAWS, SEED = 5, 34
MAX_SIZES, MAX_LEARNED = 20, 20000
MODEL, LEARNED, BOGOFILTER = "model", "learned", "bogofilter"
SALT = bytes(16)  # of the digests in memory: the same figures in every run
SECONDS = 600  # for one run of bogofilter
MIDDLE = 0.5  # of bogofilter's scale: above it is the first answer


class Point(NamedTuple):
    """After n learned texts, on n_tested others: {system: figure}, NaN where there is none."""

    n: int
    n_tested: int
    accuracy: dict[str, float]
    auc: dict[str, float]


class Curve(NamedTuple):
    """systems: MODEL, LEARNED and, where it was run, BOGOFILTER. points: by n, ascending.
    missing: why there is no bogofilter, or "".
    """

    systems: list[str]
    points: list[Point]
    missing: str


def sizes(text: str) -> list[int]:
    """Parse --curve: numbers of texts with commas between, sorted. Raises Error 64."""
    try:
        found = sorted({int(word) for word in text.split(",")})
    except ValueError:
        found = []
    if not found or len(found) > MAX_SIZES or found[0] < 1 or found[-1] > MAX_LEARNED:
        raise Error(
            USAGE,
            f"--curve: up to {MAX_SIZES} numbers of texts with commas between, each from 1 to"
            f" {MAX_LEARNED}",
        )
    return found


def check(numbers: Sequence[int], n: int) -> None:
    """Raise DataError if not one of n texts is left to test after the largest of `numbers`."""
    if numbers[-1] >= n:
        raise data_error(
            "--curve", f"{numbers[-1]} texts to learn of {n}: others must be left to test"
        )


class Collector:
    """What the curve needs of texts that are classified one after the other.

    c: the Classifier. Close it: the texts for bogofilter lie in a folder of their own until then.
    Raises UnsupportedError for a question with a head: it has no log probabilities to learn with.
    """

    def __init__(self, c: Classifier) -> None:
        if c.head:
            raise unsupported_error(
                "--curve", "the question has a fit with a head, which does not learn"
            )
        self._c, self._names = c, list(c.question.answers)
        self._book = Book(SALT)
        self._log_p: list[list[float]] = []
        self._labels: list[int] = []
        self._kept: list[np.ndarray] = []
        self._all: list[np.ndarray] = []
        self._folder: Any = None
        self.missing = ""
        if len(self._names) != 2:
            self.missing = f"it has two answers, the question {len(self._names)}"
        elif not shutil.which(BOGOFILTER):
            self.missing = "it is not installed"
        else:
            self._folder = _folder()

    def __enter__(self) -> Collector:
        return self

    def __exit__(self, *_: object) -> None:
        if self._folder:
            self._folder.cleanup()

    def see(self, data: bytes, v: Verdict, right: int) -> None:
        """Take in a text, its Verdict, and the index of its correct answer."""
        words = self._c.words_of(v)
        if self._folder:
            self._write(data)
        self._labels.append(right)
        self._log_p.append(list(v.log_p))
        self._kept.append(self._book.kept(words))
        self._all.append(np.unique(np.array(self._book.salted.tokens(words), np.uint32)))

    def curve(
        self,
        numbers: Sequence[int],
        say: Callable[[str], object],
        progress: Callable[[int], object] | None = None,
    ) -> Curve:
        """Learn and test. numbers: of `sizes`. progress: called with the number of draws just done.

        say: called with a line if bogofilter fails; the curve is then without it. Raises DataError
        if there are not more texts than the largest number.
        """
        n = len(self._labels)
        check(numbers, n)
        points = []
        for number in numbers:
            rows: dict[str, list[tuple[float, float]]] = {}
            for order in _orders(n, number):
                for system, figures in self._draw(order[:number], order[number:], say).items():
                    rows.setdefault(system, []).append(figures)
                if progress:
                    progress(1)
            means = {
                system: [_mean([row[i] for row in found]) for i in (0, 1)]
                for system, found in rows.items()
                if len(found) == DRAWS
            }
            points.append(
                Point(
                    number,
                    n - number,
                    {system: x[0] for system, x in means.items()},
                    {system: x[1] for system, x in means.items()},
                )
            )
        shown = [MODEL, LEARNED] + [BOGOFILTER] * (not self.missing)
        return Curve(shown, points, self.missing)

    def _draw(self, drawn, tested, say):
        """{system: (accuracy, AUC)} of one draw."""
        q = self._c.question
        labels = np.array(self._labels, np.int64)
        log_p = np.array(self._log_p, float)[tested]
        top = np.maximum(log_p - log_p.max(1, keepdims=True), -joint.CLIP)
        plain = q.scale * top + np.array([q.bias[name] for name in self._names])
        fitted, t = self._learned(drawn, tested)
        learned = fitted.scale * top + np.array(fitted.bias) + fitted.trust * t
        right = labels[tested]
        found = {
            MODEL: _figures(plain, right),
            LEARNED: _figures(learned, right),
        }
        if not self.missing:
            try:
                p = self._bogofilter(drawn, tested)
                found[BOGOFILTER] = _figures(np.stack((p - MIDDLE, MIDDLE - p), 1), right)
            except (OSError, ValueError, subprocess.SubprocessError) as e:
                self.missing = f"it failed ({e})"
                say(f"bogofilter: {e}")
        return found

    def _learned(self, drawn, tested):
        """(the Joint of some texts, float64 [n][k]: the evidence of others), as --learn does it."""
        k = len(self._names)
        q = self._c.question
        part = Part(b"", b"", k, [q.scale, *(q.bias[name] for name in self._names)])
        for i in drawn.tolist():
            log_p = np.array(self._log_p[i], np.float32)
            part.texts[i] = Text(self._labels[i], 0, False, log_p, self._kept[i])
        part.fit()
        labels = np.array(self._labels, np.int64)[drawn]
        table = evidence.Table([self._kept[i] for i in drawn], labels, k)
        return part.joint, table.evidence([self._all[i] for i in tested])

    def _path(self, i):
        return os.path.join(self._folder.name, str(i))

    def _write(self, data):
        path = self._path(len(self._labels))
        try:
            with open(path, "wb") as f:
                f.write(data)
        except OSError as e:
            raise files.write_error(path, e) from None

    def _bogofilter(self, drawn, tested):
        """float64 [n]: bogofilter's probability of the first answer. OSError, ValueError,
        SubprocessError if it fails.
        """
        with _folder() as home:
            command = [BOGOFILTER, "-C", "-d", home, "-b"]
            for answer, option in (0, "-s"), (1, "-n"):
                some = [i for i in drawn if self._labels[i] == answer]
                if some:
                    self._run([*command, option], some)
            lines = self._run([*command, "-T", "-v"], tested).splitlines()
        p = [float(line.split()[-1]) for line in lines]
        if len(p) != len(tested):
            raise ValueError(f"answered {len(p)} of {len(tested)} texts")
        return np.array(p)

    def _run(self, command, texts):
        names = "".join(self._path(i) + "\n" for i in texts)
        done = subprocess.run(
            command, input=names.encode(), capture_output=True, timeout=SECONDS, check=False
        )
        if done.returncode not in (0, 1, 2):  # 3 is an error; the others are answers
            said = done.stderr.decode("utf-8", "replace").splitlines()
            raise ValueError(said[0] if said else f"exit status {done.returncode}")
        return done.stdout.decode("ascii", "replace")


def as_json(curve: Curve) -> dict[str, Any]:
    """The object "curve" of --json."""
    figure = lambda x: None if np.isnan(x) else round(x, 6)
    return {
        "draws": DRAWS,
        "seed": SEED,
        "systems": curve.systems,
        "points": [
            {
                "learned": p.n,
                "tested": p.n_tested,
                "accuracy": {s: figure(p.accuracy[s]) for s in curve.systems},
                "auc": {s: figure(p.auc[s]) for s in curve.systems},
            }
            for p in curve.points
        ],
    }


def rows(curve: Curve) -> list[list[str]]:
    """The table of a report: a heading, then a row for each number of texts."""
    head = ["texts learned", "tested"]
    for name in "accuracy", "AUC":
        head += [f"{name}: {s}" if not i else s for i, s in enumerate(curve.systems)]
    found = [head]
    for p in curve.points:
        row = [str(p.n), str(p.n_tested)]
        row += [_shown(p.accuracy[s], 3) for s in curve.systems]
        row += [_shown(p.auc[s], 4) for s in curve.systems]
        found.append(row)
    return found


def note(curve: Curve) -> str:
    """A sentence on the table."""
    said = f"Learning curve: mean of {DRAWS} random draws, tested on all other texts."
    return said + (f" No bogofilter: {curve.missing}." if curve.missing else "")


def _shown(x, places):
    return "-" if np.isnan(x) else f"{x:.{places}f}"


def _folder():
    try:
        return tempfile.TemporaryDirectory(prefix="sluice-")
    except OSError as e:
        raise files.write_error(tempfile.gettempdir(), e) from None


def _orders(n, number):
    """Yield DRAWS permutations of 0 .. n - 1, of which the first `number` are to be learned."""
    random = np.random.PCG64([SEED, number])
    for _ in range(DRAWS):
        yield np.argsort(random.random_raw(n), kind="stable")


def _figures(z, right):
    """(accuracy, AUC) of log probabilities, float64 [n][k]."""
    if z.shape[1] == 2:  # the difference: of probabilities near 1 digits are lost
        score = z[:, :1] - z[:, 1:]
    else:
        e = np.exp(z - z.max(1, keepdims=True))
        score = e / e.sum(1, keepdims=True)
    auc = Rankings(score, right).auc(np.ones(len(right)))
    return float((z.argmax(1) == right).mean()), _mean(auc)


def _mean(values):
    known = [x for x in values if not np.isnan(x)]
    return float(np.mean(known)) if known else float("nan")
