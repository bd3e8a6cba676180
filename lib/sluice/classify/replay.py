"""`--prior texts`: all texts are classified first, then read again and printed with the prior.

Of each text the log probabilities and a few numbers are kept, about 60 bytes for two answers, so
memory stays small whatever the texts are. Standard input is copied into an unnamed file to be read
twice. A text that changed between the two readings is classified again.
"""

import os
import stat
from array import array

from ..faults import Error, data_error
from ..kernels import lib
from ..learn import tokens
from ..probability import priors
from ..texts import inputs, labelled
from .classifier import Verdict
from .plan import STDIN

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import Any

    from ..texts.sources import Item
    from .panel import Panel

LOOK_AHEAD = 16  # texts that may have gone since the first reading
NAN = float("nan")  # for a mass that was not computed


class _Kept:
    """The verdicts of one question, in the order of the texts."""

    def __init__(self, n_answers: int) -> None:
        self.n_answers = n_answers
        self.log_p, self.masses, self.counts = array("d"), array("d"), array("q")
        self.reasons: dict[int, list[str]] = {}

    def add(self, i: int, v: Verdict) -> None:
        self.log_p.extend(v.log_p)
        self.masses.extend(NAN if x is None else x for x in (v.mass, v.begin_mass))
        self.counts.extend((v.n_tokens, v.n_reused, v.cut, v.reasons is not None))
        if v.reasons:
            self.reasons[i] = v.reasons

    def verdict(self, i: int) -> Verdict:
        v = Verdict()
        v.log_p = list(self.log_p[i * self.n_answers : (i + 1) * self.n_answers])
        v.mass, v.begin_mass = (None if x != x else x for x in self.masses[2 * i : 2 * i + 2])
        v.n_tokens, v.n_reused, is_cut, has_reasons = self.counts[4 * i : 4 * i + 4]
        v.cut, v.reasons = bool(is_cut), self.reasons.get(i, []) if has_reasons else None
        v.hidden = None
        return v

    def probabilities(self, c: "Any") -> "Iterator[list[float]]":
        for i in range(len(self.masses) // 2):
            v = self.verdict(i)
            c.evaluate(v)
            yield list(v.scores.values())


class Replay:
    """Answers in place of a Panel, from what was kept of a first reading of the same texts.

    keeps_text: Verdict.used is needed.
    """

    def __init__(self, panel: "Panel", keeps_text: bool = False) -> None:
        self._panel, self._keeps_text = panel, keeps_text
        self._kept = [_Kept(len(c.question.answers)) for c in panel.classifiers]
        self._sums = array("I")  # CRC-32C of each text
        self._next = 0

    def prepare(self) -> None:
        """Process the tokens before the input now, once for all texts."""
        self._panel.prepare()

    def read(
        self,
        source: "Iterable[list[Item]]",
        progress: "Callable[[int], None] | None" = None,
    ) -> None:
        """Classify all texts of `source`, and keep the verdicts. Errors are met again later."""
        self.prepare()
        for items in source:
            data = [item.data for item in items if item.data is not None]
            for text, found in zip(data, self._panel.ask_many(data)):
                if isinstance(found, Error):
                    continue
                for kept, v in zip(self._kept, found):
                    kept.add(len(self._sums), v)
                self._sums.append(_sum(text))

    def set_priors(self, name: str) -> None:
        """Find the prior over the texts for each question that asks for it, and apply it.

        Raises DataError naming `name` if there are too few texts.
        """
        for c, kept in zip(self._panel.classifiers, self._kept):
            if c.asked_prior and c.asked_prior.kind == priors.TEXTS:
                c.learned = None  # it is joined with another calibration
                log_p = priors.of_texts(kept.probabilities(c), name)
                priors.apply(c, log_p, c.asked_prior.strength)

    def ask_many(self, texts: "Sequence[bytes]") -> "Iterator[list[Verdict] | Error]":
        """Yield, for each input, the Verdicts of all questions, as Panel.ask_many does."""
        for data in texts:
            ahead = self._sums[self._next : self._next + LOOK_AHEAD]
            if (sum := _sum(data)) not in ahead:  # an error then, or another text by now
                yield from self._panel.ask_many([data])
                continue
            i = self._next + ahead.index(sum)
            self._next = i + 1
            verdicts = [kept.verdict(i) for kept in self._kept]
            for c, v in zip(self._panel.classifiers, verdicts):
                if self._keeps_text or c.learned:
                    v.used = inputs.text(data, c.is_mail, c.question.fold)[:2]
                    v.header = tokens.header_of(data) if c.is_mail else None
                c.evaluate(v)
            yield verdicts


def begin_twice(paths: "Sequence[str]") -> "Callable[[], object]":
    """Make sure that `paths` can be read twice: copy standard input into an unnamed file if it is a
    pipe. Returns a function that goes back to the beginning.

    Raises DataError for another path that is neither a file nor a folder.
    """
    back: Callable[[], object] = lambda: None
    for path in paths:
        if path == STDIN:
            if stat.S_ISREG(os.fstat(0).st_mode):
                start = os.lseek(0, 0, os.SEEK_CUR)
            else:
                with labelled.copied(0) as copy:
                    os.dup2(copy.fileno(), 0)
                start = os.lseek(0, 0, os.SEEK_SET)
            back = lambda: os.lseek(0, start, os.SEEK_SET)
        elif not (os.path.isdir(path) or stat.S_ISREG(os.stat(path).st_mode)):
            raise data_error(path, "is no file; --prior texts reads its input twice")
    return back


def _sum(data):
    return lib.crc32c(0, data, len(data))
