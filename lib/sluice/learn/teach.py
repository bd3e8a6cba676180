"""`classify --learn`, `--forget` and `--reset`: learn any number of texts, with one change of the
file.
"""

import time

from ..faults import BAD_DATA, USAGE, Error, data_error, printable
from . import layout, writing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from ..classify.classifier import Classifier, Verdict
    from ..texts.sources import Item
    from .book import Book, Part

MIN_OTHER, OTHER_SHARE = 20, 0.2  # of texts with another answer until now, to say so
NOT_LEARNED = "nothing to forget: this text was not learned with this model and question"


class Lesson:
    """What is to be learned of a text. name: of layout.name_of. label: index of the answer; None:
    forget it. log_p: nats. words: its tokens, in one string. is_other: it got another answer until
    now.
    """

    __slots__ = ("is_auto", "is_other", "label", "log_p", "name", "words")

    def __init__(
        self,
        name: bytes,
        label: int | None,
        log_p: "list[float]" = [],  # noqa: B006
        words: "Iterable[str]" = (),
        is_auto: bool = False,
    ) -> None:
        self.name, self.label, self.is_auto, self.is_other = name, label, is_auto, False
        self.log_p = [max(p, -layout.MAX_NUMBER) for p in log_p]
        self.words = "\n".join(words)  # a fifth of the memory of a set


def lesson_of(c: "Classifier", v: "Verdict", label: int, is_auto: bool = False) -> Lesson:
    """Return the Lesson that `label` is the answer of the text of the Verdict `v`."""
    lesson = Lesson(layout.name_of(v.used), label, v.log_p, c.words_of(v), is_auto)
    names = list(c.question.answers)
    lesson.is_other = v.answer in names and v.answer != names[label]
    return lesson


class Teacher:
    """Collects Lessons for the question and model of a Classifier, and puts them into the file.

    n_new, n_moved, n_forgotten: texts that `save` added, that had another answer before, and that
    it removed. unknown: names of those to forget that were not there.
    """

    def __init__(self, c: "Classifier", path: str) -> None:
        self._c, self._path = c, path
        self.lessons: dict[bytes, Lesson] = {}
        self.n_new = self.n_moved = self.n_forgotten = 0
        self.unknown: set[bytes] = set()

    def add(self, lesson: Lesson) -> None:
        """Add a Lesson; it replaces an earlier one of the same text."""
        self.lessons.pop(lesson.name, None)
        self.lessons[lesson.name] = lesson
        if len(self.lessons) > layout.MAX_TEXTS:  # the file keeps no more
            del self.lessons[next(iter(self.lessons))]

    def save(self) -> None:
        """Change the file. Raises as writing.update."""
        if self.lessons:
            writing.update(self._path, self._change)
        self.lessons = {}

    def _change(self, book: "Book") -> None:
        part = part_of(book, self._c, create=True)
        self.put(book, part, self.lessons.values())
        part.fit()

    def put(self, book: "Book", part: "Part", lessons: "Iterable[Lesson]") -> None:
        """Put Lessons into a Part of a Book; the fit stays as it is."""
        now = int(time.time())
        for lesson in lessons:
            self._apply(book, part, lesson, now)

    def _apply(self, book, part, lesson, now):
        import numpy as np

        from .book import Text

        digest = book.salted.text(lesson.name)
        known = part.texts.get(digest)
        if lesson.label is None:
            if known:
                del part.texts[digest]
                self.n_forgotten += 1
            else:
                self.unknown.add(lesson.name)
            return
        if lesson.is_auto and known and not known.is_auto:
            return
        self.n_new += not known
        self.n_moved += bool(known) and known.label != lesson.label
        date = known.date if known and known.label == lesson.label else now
        words = lesson.words.split("\n") if lesson.words else []
        part.texts[digest] = Text(
            lesson.label,
            date,
            lesson.is_auto,
            np.array(lesson.log_p, np.float32),
            book.kept(words),
        )


def part_of(book: "Book", c: "Classifier", create: bool = False) -> "Any":
    """Return the Part of a Book for the model and question of a Classifier; None if there is none
    and `create` is false. Texts of the model under its earlier ID are in it.
    """
    from ..question import calibration
    from .book import Part

    q, file = c.question, c.model.file
    key = file.id[:8], bytes.fromhex(calibration.digest(q))
    book.rename(file.earlier_id[:8], key[0])
    part = book.parts.get(key)
    if create and (part is None or part.k != len(q.answers)):
        part = book.parts[key] = Part(*key, len(q.answers), calibration.prior(q))
    if part and create:
        part.prior = calibration.prior(q)
    return part


def check(c: "Classifier", path: str, answer: str | None = None) -> None:
    """Raise what keeps a text from being learned, before a model runs: Error 64 if the question has
    no such answer, DataError for a damaged file or a fit with a head, OSError.
    """
    from ..probability import fit_file

    if answer is not None:
        answer_of(c.question, answer)
    if c.fitted:
        fit_file.refuse_learning(c.fitted)
    from . import book

    book.read(path)


def answer_of(question: "Any", answer: str) -> int:
    """Return the index of an answer that the user names, also by an alias. Raises Error 64."""
    names = list(question.answers)
    answer = question.aliases.get(answer, answer)
    if answer not in names:
        raise Error(USAGE, f"--learn {printable(answer)}: the answers are {', '.join(names)}")
    return names.index(answer)


def one(c: "Classifier", data: bytes, path: str, answer: str | None) -> "Verdict":
    """Learn `answer` for the text `data`, or forget the text if `answer` is None.

    path: of the file, that of c.learned. Returns the Verdict afterwards. Raises Error 64 if the
    question has no such answer, DataError for an empty text, a text to forget that was not learned
    or a damaged file, and Error 73, 74 or 75 if the file cannot be written.
    """
    check(c, path, answer)
    v = c.ask(data)
    teacher = Teacher(c, path)
    if answer is None:
        _refuse_unknown(c, v, path)
        teacher.add(Lesson(layout.name_of(v.used), None))
    else:
        teacher.add(lesson_of(c, v, answer_of(c.question, answer)))
    teacher.save()
    if teacher.unknown:
        raise data_error(path, NOT_LEARNED)
    c.evaluate(v)
    return v


def _refuse_unknown(c, v, path):
    """Raise DataError if a text to forget was not learned, before a file is created."""
    from . import book

    known = book.read(path)
    part = part_of(known, c)
    if not part or known.salted.text(layout.name_of(v.used)) not in part.texts:
        raise data_error(path, NOT_LEARNED)


def many(
    c: "Classifier",
    source: "Iterable[list[Item]]",
    path: str,
    answer: str | None,
    say: "Callable[[str], None]",
    progress: "Callable[[int], None]",
) -> "dict[str, int]":
    """Learn `answer` for all texts of `source`, or forget them if it is None, with one change of
    the file. Ctrl-C ends it; the texts so far are learned.

    say: called with a line for each text that has an error, and with one if many texts got another
    answer until now: a folder may hold texts of several. progress: called with the number of texts
    just done. Returns {"texts": ..., "new": ..., "moved": ..., "forgotten": ...,
    "errors": ...}. Raises as `one`, except for the texts.
    """
    check(c, path, answer)
    label = None if answer is None else answer_of(c.question, answer)
    teacher = Teacher(c, path)
    names: dict[bytes, str] = {}
    n, n_other = {"texts": 0, "errors": 0}, 0
    c.prepare()
    interrupt = None
    try:
        for items in source:
            for item, lesson in zip(items, _lessons(c, items, label)):
                if lesson is None:
                    continue
                n["texts"] += 1
                if isinstance(lesson, Exception):
                    n["errors"] += 1
                    say(_why(item, lesson))
                else:
                    teacher.add(lesson)
                    n_other += lesson.is_other
                    names[lesson.name] = item.name
            progress(len(items))
    except KeyboardInterrupt as e:
        interrupt = e
    teacher.save()
    if interrupt:
        raise interrupt
    if n_other >= MIN_OTHER and n_other > OTHER_SHARE * n["texts"]:
        say(
            f"until now {n_other} of these {n['texts']} texts got another answer; if they are not"
            f" all {answer}, --forget takes it back"
        )
    for name in names:
        if name in teacher.unknown:
            n["errors"] += 1
            say(f"{names[name]}: {NOT_LEARNED}")
    return {
        "texts": n["texts"],
        "new": teacher.n_new,
        "moved": teacher.n_moved,
        "forgotten": teacher.n_forgotten,
        "errors": n["errors"],
    }


def _lessons(c, items, label):
    """Yield a Lesson for each Item, an exception, or None where there is no text."""
    texts = [item.data for item in items if item.data is not None]
    found = (_forgets(c, data) for data in texts) if label is None else c.ask_many(texts)
    for item in items:
        if item.data is None:
            yield item.error
            continue
        x = next(found)
        if isinstance(x, Error) and x.code != BAD_DATA:
            raise x
        yield x if isinstance(x, Error | Lesson) else lesson_of(c, x, label)


def _forgets(c, data):
    """The Lesson to forget a text, or the DataError that it is empty; no model runs."""
    text = c.tokenized(data)
    return text if isinstance(text, Error) else Lesson(layout.name_of(text.used), None)


def _why(item, e):
    from ..classify import writers

    return writers.why(item, e)


def reset(path: str) -> int | None:
    """Empty the file at `path`. Returns the number of texts it had; None if it was damaged.

    Raises Error 73, 74 or 75 if it cannot be written, and DataError for a file of others, or one
    that never was a calibration.
    """
    import os

    from . import book as books

    if not os.path.lexists(path):
        return 0
    n: int | None = None
    with writing.locked(path):
        try:
            n = books.read(path).n_texts
        except Error:
            from ..system import files

            fd = files.open_trusted(path)  # what is not the user's stays
            try:
                begin = os.read(fd, len(layout.MAGIC_ANY))
            finally:
                os.close(fd)
            if begin and begin != layout.MAGIC_ANY:  # nor does the user's letter
                raise data_error(
                    path,
                    "line 1: is not the first line of a calibration; delete the file, if it should"
                    " be one",
                ) from None
        writing.write(path, books.Book())
    return n
