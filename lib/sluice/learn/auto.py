"""`classify --auto-learn P`: learn the answers that are surer than P.

Answers that learn from themselves can run away, so what they add is capped (book.py): of each
answer at most as many texts count as the user has given, none unless the user has given texts of
every answer; and tokens alone count, not the fit. Not learned are texts whose answer the user gave,
answers of "unsure", and all texts while an answer has none by the user. Of each answer the file
keeps at most as many texts as count, the latest ones. A later --learn or --forget of the same text
replaces its answer.
"""

import os
import time

from ..faults import Error
from . import layout, writing
from .teach import Lesson, Teacher, lesson_of, part_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..classify.classifier import Classifier, Verdict

MAX_WAITING = 64  # texts, or SECONDS, until the file is written
SECONDS = 60.0


class Auto:
    """Collects the texts that are learned, and puts some at a time into the file at `path`.

    least: the probability from which on an answer is learned.
    """

    def __init__(self, c: "Classifier", path: str, least: float) -> None:
        self._c, self._path, self._least = c, path, least
        self._lessons: dict[bytes, Lesson] = {}
        self._last = time.monotonic()
        self._pid = 0

    def note(self, v: "Verdict") -> None:
        """Keep the text of a Verdict, if it is sure enough."""
        if not self._c.learned or self._c.learned.path != self._path:
            return  # the answer is by a file of another user
        if v.taught is not None or v.answer not in v.scores or v.score < self._least:
            return
        if not (
            v.learned and v.learned.has_every_answer
        ):  # without texts by hand nothing would count
            return
        label = list(v.scores).index(v.answer)
        lesson = lesson_of(self._c, v, label, is_auto=True)
        self._lessons.pop(lesson.name, None)
        self._lessons[lesson.name] = lesson
        if len(self._lessons) > layout.MAX_TEXTS:
            del self._lessons[next(iter(self._lessons))]

    @property
    def is_due(self) -> bool:
        """Whether enough is kept, or long enough."""
        n = len(self._lessons)
        return n >= MAX_WAITING or n > 0 and time.monotonic() - self._last >= SECONDS

    def save(self) -> None:
        """Put what was kept into the file. Raises as writing.update."""
        lessons, self._lessons, self._last = self._lessons, {}, time.monotonic()
        if lessons:
            writing.update(self._path, lambda book: _put(self._c, book, lessons))

    def save_aside(self) -> None:
        """Put what was kept into the file, in a process of its own, which this one does not wait
        for: a daemon's worker answers the next message meanwhile. Errors are ignored.
        """
        if self._pid:
            try:
                if os.waitpid(self._pid, os.WNOHANG)[0] == 0:
                    return  # the one before is at work; later
            except ChildProcessError:
                pass
            self._pid = 0
        try:
            self._pid = os.fork()
        except OSError:
            return
        if not self._pid:
            try:
                self.save()
            except (Error, OSError, MemoryError):
                pass
            finally:
                os._exit(0)
        self._lessons, self._last = {}, time.monotonic()


def _put(c: "Classifier", book: "Any", lessons: dict[bytes, Lesson]) -> None:
    part = part_of(book, c, create=True)
    Teacher(c, "").put(book, part, lessons.values())
    for label in range(part.k):
        some = [x for x in part.texts.values() if x.label == label and len(x.tokens)]
        n_own = sum(not x.is_auto for x in some)
        auto = sorted(
            (x.date, digest) for digest, x in part.texts.items() if x.is_auto and x.label == label
        )
        for _, digest in auto[: max(0, len(auto) - n_own)]:
            del part.texts[digest]
    part.fit()
