"""Texts with their correct answers, for `classify --evaluate` and `--fit`.

A LABELLED word is one of

    FILE.jsonl      objects {"text": ..., "answer": ...} or {"text": ..., "label": ...}, one a line
    FILE.csv        with `column`: a table with a header, the answers in the column `label`
    ANSWER=PATH     a file, an mbox or a folder: all its texts have this answer
    FOLDER          a folder of folders, each named after an answer

and "-" is standard input. An answer may also be given by an alias of the question. Labels are
checked before the first text is yielded, so a misspelt one costs no run of a model: files are read
twice, and what is no regular file is copied into an unnamed one first.
"""

import os
import stat
import tempfile

from .. import stream
from ..faults import NO_INPUT, Error, data_error, one_line, printable
from ..jsonl import BadLine, lines, load
from ..messages import say
from ..system import files
from . import folder, objects, one_file, sources
from .one_file import called
from .sources import Item
from .table import Table

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import IO

    from ..question.question import Question

KEYS = ("answer", "label")  # of an object, if none is named
COLUMN = "label"  # of a table, if none is named
MAX_NAMED = 20  # known words in a message
MAX_COPY = 1 << 30  # bytes of what is no regular file, such as a pipe


class Example(Item):
    """A text with its correct answer, a name of the question's `answers`; None with `error`."""

    __slots__ = ("answer",)

    def __init__(
        self, name: str, data: bytes | None, answer: str | None, error: Exception | None = None
    ) -> None:
        super().__init__(name, data, error)
        self.answer = answer


class Labelled:
    """The texts that LABELLED words name. Iterating yields lists of Examples, in input order; the
    Examples of a list may be classified together. Unless a word is ANSWER=-, it can be iterated
    again.

    words: of the command line. question: its answers and aliases are the labels. column: of the
    texts in a table; None: files are JSON lines. label: column of the answers, or key in JSON
    lines; None: COLUMN, or one of KEYS. as_mail: the texts are messages whatever the question says,
    in JSON lines a character a byte. recursive, as_mbox, as_text: see sources.Files.

    Raises, before anything is classified: DataError for a label that is no answer (naming file,
    line, label and the known answers), an empty folder, a folder named after no answer, a table
    without its columns, a file without a labelled text; OSError. A text that cannot be used is an
    Example with `error`, as is an object or row without a label.

    n: number of Examples, or None if an mbox or standard input must be read to know. are_messages:
    whether all texts are messages (RFC 5322): those of mboxes and Maildirs are.
    """

    def __init__(
        self,
        words: "tuple[str, ...]",
        question: "Question",
        column: str | None = None,
        label: str | None = None,
        as_mail: bool = False,
        recursive: bool = False,
        as_mbox: bool = False,
        as_text: bool = False,
    ) -> None:
        self._answers = {answer: answer for answer in question.answers} | question.aliases
        self._column, self._label, self._as_mail = column, label, as_mail
        self._recursive, self._as_mbox, self._as_text = recursive, as_mbox, as_text
        # (path, its answer, or the open file with the answers in it)
        self._sources: list[tuple[str, str | None, IO[bytes] | None]] = []
        self.n: int | None = 0
        self._is_checked = False  # from then on, all that is doubtful has been said
        for word in words:
            self._add(word)
        self._refuse_twice()
        self.are_messages = as_mail or as_mbox or all(map(_holds_only_messages, self._sources))
        self._is_mail = self.are_messages or question.kind == "mail"
        for path, _, file in self._sources:
            n = self._count_files(path) if file is None else self._check_labels(path, file)
            self.n = None if n is None or self.n is None else self.n + n
        self._is_checked = True

    def __iter__(self) -> "Iterator[list[Example]]":
        return sources.groups(self._examples())  # type: ignore[return-value]

    @property
    def paths(self) -> list[str]:
        """The files and folders that the words name."""
        return [path for path, _, _ in self._sources]

    def _add(self, word):
        answer, path = self._split(word)
        if answer is not None:
            if path.startswith("~") and not os.path.lexists(path):
                raise Error(
                    NO_INPUT,
                    f"{one_line(path)}: no such file: the shell replaces ~ at the beginning of a"
                    " word only; use $HOME",
                )
            self._sources.append((path, answer, None))
        elif path != "-" and os.path.isdir(path):
            self._add_folders(path)
        else:
            self._sources.append((path, None, _seekable(path, self._column is not None)))

    def _split(self, word):
        """(answer, path) of a word; answer is None if it is the name of a file or folder."""
        for name in sorted(self._answers, key=len, reverse=True):
            if word.startswith(name + "="):
                return self._answers[name], word[len(name) + 1 :]
        name, equals, path = word.partition("=")
        if equals and not os.path.lexists(word) and os.path.lexists(path):
            raise data_error(one_line(word), self._no_answer(name))
        return None, word

    def _add_folders(self, path):
        with os.scandir(path) as found:
            names = sorted(
                (e.name for e in found if e.is_dir() and not e.name.startswith(".")),
                key=os.fsencode,
            )
        if not names:
            raise data_error(
                path, "there is no folder named after an answer in it; or say ANSWER=FOLDER"
            )
        for name in names:
            if name not in self._answers:
                raise data_error(
                    os.path.join(path, name),
                    f"the folder's name: {self._no_answer(name)}; or say ANSWER=FOLDER",
                )
            self._sources.append((os.path.join(path, name), self._answers[name], None))

    def _refuse_twice(self):
        """DataError for one path given twice: its texts would count twice, or as both answers."""
        seen: dict[str, str | None] = {}
        for path, answer, _ in self._sources:
            real = path if path == "-" else os.path.realpath(path)
            if real in seen:
                same = seen[real] == answer
                raise data_error(path, "is given twice" + ("" if same else ", with two answers"))
            seen[real] = answer

    def _count_files(self, path):
        """The number of texts of ANSWER=PATH, None if unknown. DataError for an empty folder."""
        if path == "-" or self._as_mbox:
            return None
        if not os.path.isdir(path):
            os.stat(path)
            return None if not self._as_text and one_file.file_holds_messages(path) else 1
        n = sum(1 for _ in folder.paths(path, self._recursive))
        if not n:
            below = "" if self._recursive else "; --recursive looks into the folders below"
            raise data_error(path, f"there is no file in it{below}")
        return n

    def _check_labels(self, path, file):
        n, n_bad, first_error = 0, 0, None
        for example in self._labelled(path, file):
            n += 1
            n_bad += example.error is not None
            first_error = first_error or example.error
        if not n:
            raise data_error(called(path), "no text: it is empty")
        if n_bad == n:
            known = "JSON lines with text and label, --csv COLUMN and ANSWER=PATH are read"
            why = f"{first_error}".removeprefix(f"{called(path)}: ")
            raise data_error(called(path), f"there is no labelled text in it ({why}); {known}")
        return n

    def _examples(self):
        for path, answer, file in self._sources:
            if file is not None:
                yield from self._labelled(path, file)
                continue
            found = sources.Files(
                [path], self._is_mail, self._recursive, self._as_mbox, self._as_text
            )
            for items in found:
                for item in items:
                    right = None if item.error else answer
                    yield Example(item.name, item.data, right, item.error)

    def _labelled(self, path, file):
        file.seek(0)
        read = self._objects if self._column is None else self._rows
        return read(called(path), file.fileno())

    def _objects(self, path, fd):
        charset = "latin-1" if self._as_mail else "utf-8"
        for n, line in enumerate(lines(fd), 1):
            name = f"{path}:{n}"
            if line is not None and not line.strip():
                continue
            try:
                found = load(line)
                _, data = objects.fields(found, charset)
                if not data:
                    raise BadLine("text is empty")
                label = self._label_in(found)
            except BadLine as e:
                yield Example(name, None, None, e)
                continue
            yield Example(name, data, self._answer(name, label))

    def _label_in(self, found):
        """The label of an object, as text. BadLine if there is none, or two that differ."""
        keys = KEYS if self._label is None else (self._label,)
        labels = [_text_of(found[key], key) for key in keys if found.get(key) is not None]
        if not labels:
            raise BadLine(f"there is no {' or '.join(keys)}")
        if len(set(labels)) > 1:
            raise BadLine(
                f"answer is {printable(labels[0])} and label {printable(labels[1])}; --label KEY"
                " says which is correct"
            )
        return labels[0]

    def _rows(self, path, fd):
        table = Table(lambda: stream.read_some(fd), path)
        column = table.column(self._column)
        label = table.column(COLUMN if self._label is None else self._label)
        for row in table.rows():
            name = f"{path}:{row.line}"
            if row.error:
                error = data_error(path, f"line {row.line} {row.error}")
                yield Example(name, None, None, error)
            elif not row.fields:
                continue
            elif not row.fields[column]:
                yield Example(name, None, None, data_error(name, "no text: the field is empty"))
            elif not row.fields[label].strip():
                yield Example(name, None, None, data_error(name, "there is no label"))
            else:
                data = table.bytes_of(row.fields[column])
                yield Example(name, data, self._answer(name, row.fields[label].strip()))
        if not self._is_checked:
            for line in table.doubts():
                say(line)

    def _answer(self, name, label):
        if label not in self._answers:
            raise data_error(name, f"the label: {self._no_answer(label)}")
        return self._answers[label]

    def _no_answer(self, label):
        names = list(self._answers)
        more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
        return f"{printable(label)} is no answer; known: {', '.join(names[:MAX_NAMED])}{more}"


def _text_of(value, key):
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return str(value)
    raise BadLine(f"{key} is not a string, a whole number, true or false")


def _seekable(path, is_table):
    """An open file of labelled texts that can be read twice. OSError; DataError."""
    if path == "-":
        return copied(0, path)
    if not is_table and path.lower().endswith((".csv", ".tsv")):
        raise data_error(path, "is a table: name its columns with --csv COLUMN --label COLUMN")
    file = open(path, "rb", buffering=0)
    if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        return file
    with file:
        return copied(file.fileno(), path)


def copied(fd: int, path: str = "-") -> "IO[bytes]":
    """An unnamed file with all that `fd` has. DataError if that is more than MAX_COPY; Error 74 or
    75 if it cannot be written. path: what messages call `fd`.
    """
    try:
        copy = tempfile.TemporaryFile(buffering=0)
    except OSError as e:
        raise files.write_error(tempfile.gettempdir(), e) from None
    n = 0
    while data := stream.read_some(fd):
        n += len(data)
        if n > MAX_COPY:
            raise data_error(
                called(path), f"more than {MAX_COPY >> 30} GiB, and no regular file: give a file"
            )
        try:
            while data:
                data = data[copy.write(data) :]
        except OSError as e:
            raise files.write_error(tempfile.gettempdir(), e) from None
    return copy


def _holds_only_messages(source):
    path, _, file = source
    if file is not None or path == "-":
        return False
    return folder.is_maildir(path) if os.path.isdir(path) else one_file.file_holds_messages(path)
