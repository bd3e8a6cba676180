"""Classify many texts: files, folders, mboxes, lines, tables and JSON lines.

A text that cannot be classified never stops the rest. It is named on stderr, its place in the
output says "error", and the exit status is 65 at the end.
"""

import os
import sys
import zlib

from .. import stream
from ..faults import BAD_DATA, USAGE, Error, data_error, one_line
from ..jsonl import BadLine, dump, lines_at_once
from ..texts import folder, sources
from ..texts.sources import Item
from ..texts.table import Table
from . import report

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import Any

    from ..texts.state import State
    from .classifier import Classifier, Verdict
    from .question import Question

ERROR = "error"  # in place of an answer
STDIN = "-"


class Texts:
    """What is to be classified, by the options of `classify`, and in which form it is printed.

    paths: FILE arguments. recursive, mbox, null, jsonl, as_json, as_text: flags. each: "line" or
    None. column: of a table, or None. selected: an answer whose texts are printed, or None.
    state_file: path, or None. is_mail: the texts are messages.
    """

    def __init__(
        self,
        paths: "tuple[str, ...]" = (),
        recursive: bool = False,
        mbox: bool = False,
        each: str | None = None,
        column: str | None = None,
        as_text: bool = False,
        null: bool = False,
        selected: str | None = None,
        state_file: str | None = None,
        jsonl: bool = False,
        as_json: bool = False,
        is_mail: bool = False,
    ) -> None:
        self._paths, self._recursive, self._mbox, self._each = paths, recursive, mbox, each
        self._column, self._as_text, self._selected = column, as_text, selected
        self._state_file, self._jsonl, self._as_json = state_file, jsonl, as_json
        self._end, self.is_mail = b"\0" if null else b"\n", is_mail or mbox

    def are_many(self) -> bool:
        """Whether the answer is a line per text. It depends on what was asked for, not on the
        number of texts: options, a folder, an mbox with several messages, or several FILEs.
        """
        if self._jsonl or self._each or self._column is not None or self._mbox or self._recursive:
            return True
        if self._selected is not None or self._state_file or self._end == b"\0":
            return True
        return len(self._paths) > 1 or any(map(self._holds_many, self._paths))

    def _holds_many(self, path):
        if path == STDIN:
            return False
        if os.path.isdir(path):
            return True
        if self._as_text:
            return False
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError:  # reading it says why
            return False
        try:
            return sources.holds_messages(fd)
        finally:
            os.close(fd)

    def check(self, q: "Question") -> None:
        """Raise Error 64 for options that do not go together, or an answer the question lacks."""
        if self._selected is not None and self._selected not in (*q.answers, report.UNSURE):
            known = ", ".join((*q.answers, report.UNSURE))
            raise Error(USAGE, f"--select: {one_line(self._selected)!r} is no answer; use {known}")
        if (self._each or self._column is not None) and len(self._paths) > 1:
            what = "--csv" if self._column is not None else "--each"
            raise Error(USAGE, f"{what}: reads one FILE, or stdin")

    def run(
        self,
        classifier: "Classifier",
        say: "Callable[[str], None]",
        progress: "Callable[[int], None] | None" = None,
    ) -> int:
        """Classify all; print the results. Returns the exit status, unless there were bad texts:
        then raises DataError at the end.
        """
        source, writer = self._source_and_writer(classifier)
        state = None
        if self._state_file:
            from ..texts.state import State

            state = State(self._state_file, self._key(classifier), 1)
        if not state or not state.n:
            writer.begin()
            writer.flush()
        n = _run(classifier, source, writer, say, state, progress)
        if n.bad:
            raise data_error(
                writer.name, f"{n.bad} of {n.all} texts could not be classified; see above"
            )
        return 1 if self._selected is not None and not n.selected else 0

    def _key(self, classifier):
        """What a state must have in common with this run."""
        q = classifier.question
        with open(q.path, "rb") as f:
            digest = zlib.crc32(f.read())
        return {
            "model": classifier.model.file.id[:8].hex(),
            "question": f"{digest:08x}",
            "arithmetic": classifier.model.arithmetic,
            "form": " ".join(
                str(x) for x in (self._each, self._column, self._selected, self._as_json, self._end)
            ),
        }

    def _source_and_writer(self, classifier):
        path = self._paths[0] if self._paths else STDIN
        keep = self._selected is not None
        if self._column is not None:
            table = Table(_reader(path), _called(path))
            column = table.column(self._column)
            name = os.path.splitext(os.path.basename(classifier.question.path))[0]
            rows = Rows(table, name, classifier.question.answers, self._selected)
            return sources.groups(_table_items(table, column)), rows
        if self._jsonl:
            charset = "latin-1" if classifier.as_mail else "utf-8"
            items = _json_items(self._paths or (STDIN,), charset)
            if keep:
                return items, Selected(self._selected, b"\n")
            return items, Objects(classifier, "id", self._as_json)
        if self._each:
            items = sources.lines(path, 0 if path == STDIN else os.open(path, os.O_RDONLY))
        else:
            items = sources.Files(
                self._paths or (STDIN,),
                classifier.is_mail,
                self._recursive,
                self._mbox,
                self._as_text,
                keep,
            )
        by_name = any(p != STDIN and os.path.isdir(p) for p in self._paths)
        if keep:
            return items, Selected(self._selected, self._end, by_name)
        if self._as_json:
            return items, Objects(classifier, "name", True, by_name)
        return items, Lines(self._end, by_name)

    def count(self) -> int | None:
        """The number of texts, if it is known without reading them: of files in folders."""
        if self._mbox or not self._paths or self._each or self._column is not None or self._jsonl:
            return None
        n = 0
        for path in self._paths:
            if path == STDIN:
                return None
            is_folder = os.path.isdir(path)
            n += sum(1 for _ in folder.paths(path, self._recursive)) if is_folder else 1
        return n


def _called(path):
    return "standard input" if path == STDIN else path


def _reader(path):
    fd = 0 if path == STDIN else os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    return lambda: stream.read_some(fd)


class _Counts:
    def __init__(self):
        self.all = self.bad = self.selected = 0


def _run(classifier, source, writer, say, state, progress):
    n = _Counts()
    left = state.n if state and not writer.by_name else 0
    classifier.prepare()
    for items in source:
        if state and writer.by_name:
            items = [item for item in items if item.name not in state.names]
        n_left = len(items)
        items, left = items[left:], max(0, left - n_left)
        for item, v in zip(items, verdicts(classifier, items)):
            n.all += not item.is_blank
            if isinstance(v, Exception):
                n.bad += 1
                say(why(item, v))
            n.selected += writer.put(item, v)
            if writer.at_once:
                writer.flush()
        writer.flush()
        if state and items:
            state.done(len(items), [item.name for item in items] if writer.by_name else None)
        if progress:
            progress(len(items))
    return n


def verdicts(
    classifier: "Classifier", items: "Sequence[Item]"
) -> "Iterator[Verdict | Exception | None]":
    """Yield the Verdict on each Item, its error, or None for a blank one."""
    found = classifier.ask_many([item.data for item in items if item.data is not None])
    for item in items:
        v = item.error or (None if item.data is None else next(found))
        if isinstance(v, Error) and v.code != BAD_DATA:
            raise v
        yield v


def why(item: Item, e: Exception) -> str:
    """The message on an Item's error, which names the Item."""
    name = one_line(item.name)
    if isinstance(e, OSError):
        return f"{name}: {e.strerror}"
    text = str(e)
    if isinstance(e, BadLine):
        return f"{name}: {text}"
    # what the classifier calls "input" has a name here
    return f"{name}{text[5:]}" if text.startswith("input:") else text


class _Writer:
    """by_name: Items come in no fixed order, and a State knows them by their names. at_once: each
    is printed as soon as it is known. name: what the message at the end calls the input.
    """

    at_once = False
    name = "input"

    def __init__(self, by_name: bool = False) -> None:
        self.by_name = by_name
        self._out: list[bytes] = []

    def begin(self) -> None:
        """Write what stands before all texts."""

    def flush(self) -> None:
        if self._out:
            stream.write_all(1, b"".join(self._out))
            self._out.clear()


class Lines(_Writer):
    """NAME, the answer and its probability with tabs between, and `end` after each."""

    def __init__(self, end: bytes, by_name: bool = False) -> None:
        super().__init__(by_name)
        self._end = end

    def put(self, item: Item, v: "Verdict | Exception") -> int:
        name = item.name if self._end == b"\0" else one_line(item.name)
        found = f"{ERROR}\t-" if isinstance(v, Exception) else f"{v.answer}\t{v.score:.3f}"
        self._out.append(f"{name}\t{found}".encode("utf-8", "surrogateescape") + self._end)
        return 0


class Objects(_Writer):
    """An object a line. key: "name", or "id" for JSON lines. whole: with all there is to say."""

    at_once = True

    def __init__(
        self, classifier: "Classifier", key: str, whole: bool, by_name: bool = False
    ) -> None:
        super().__init__(by_name)
        self._classifier, self._key, self._whole = classifier, key, whole

    def put(self, item: Item, v: "Verdict | Exception") -> int:
        if self._key == "id":
            fields: dict[str, Any] = {"id": item.id}
        else:
            name = item.name.encode("utf-8", "surrogateescape")
            fields = {"name": name.decode("utf-8", "backslashreplace")}
        if isinstance(v, Exception):
            fields["error"] = str(v) if self._key == "id" else why(item, v)
        elif self._whole:
            fields |= report.whole(self._classifier, v)
        else:
            fields |= report.verdict(v)
        self._out.append(dump(fields))
        return 0


class Selected(_Writer):
    """The texts with the answer `wanted`, as they came: lines, objects, messages of an mbox; of
    files the names. `end`: after a line or a name.
    """

    def __init__(self, wanted: str, end: bytes, by_name: bool = False) -> None:
        super().__init__(by_name)
        self._wanted, self._end = wanted, end

    def put(self, item: Item, v: "Verdict | Exception") -> int:
        if isinstance(v, Exception) or v.answer != self._wanted:
            return 0
        if item.whole is None:
            self._out.append(item.name.encode("utf-8", "surrogateescape") + self._end)
        elif isinstance(item.whole, bytes):
            self._out.append(item.whole + self._end)
        else:
            self.flush()
            sources.write_whole(item.whole, lambda data: stream.write_all(1, data))
        return 1


class Rows(_Writer):
    """The rows of a Table, each with the answer and the probability of every answer behind it; or,
    with `wanted`, the rows as they came that have this answer.
    """

    def __init__(
        self, table: Table, name: str, answers: "Iterable[str]", wanted: str | None = None
    ) -> None:
        super().__init__()
        self.name = table.name
        self._table, self._answers, self._wanted = table, list(answers), wanted
        self._names = [name, *(f"{name}_p_{answer}" for answer in self._answers)]
        if wanted is None:
            table.refuse_taken(self._names)

    def begin(self) -> None:
        """Write the header."""
        t = self._table
        self._out.append(t.header_with(self._names if self._wanted is None else []))

    def put(self, item: Item, v: "Verdict | Exception | None") -> int:
        row = item.whole
        if self._wanted is not None:
            if not v or isinstance(v, Exception) or v.answer != self._wanted:
                return 0
            self._out.append(self._table.encode(row.raw + row.end))
            return 1
        if v is None:
            self._out.append(self._table.encode(row.raw + row.end))
        elif isinstance(v, Exception):
            self._out.append(self._table.with_fields(row, [""] * len(self._names)))
        else:
            p = [f"{v.scores[answer]:.6f}" for answer in self._answers]
            self._out.append(self._table.with_fields(row, [v.answer, *p]))
        return 0


def _table_items(table, column):
    """Yield an Item for each row of a Table, of the text in `column`."""
    for row in table.rows():
        name = f"{table.name}:{row.line}"
        if row.error:
            yield Item(name, None, data_error(table.name, f"line {row.line} {row.error}"), row)
        elif not row.fields:
            yield Item(name, None, whole=row)
        elif not row.fields[column]:
            yield Item(name, None, data_error(name, "no text: the field is empty"), row)
        else:
            yield Item(name, table.bytes_of(row.fields[column]), whole=row)


def _json_items(paths, charset) -> "Iterator[list[Item]]":
    """Yield lists of Items of JSON lines: those that arrived together."""
    for path in paths:
        fd = 0 if path == STDIN else os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        n = 0
        for arrived in lines_at_once(fd):
            items = []
            for line in arrived:
                n += 1
                items.append(_json_item(f"{path}:{n}", line, charset))
            yield from sources.groups(items)
        if fd:
            os.close(fd)


def _json_item(name, line, charset):
    try:
        id, data = report.parse(line, charset)
        if not data:
            raise BadLine("text is empty", id)
    except BadLine as e:
        return Item(name, None, e, line, e.id)
    return Item(name, data, None, line, id)
