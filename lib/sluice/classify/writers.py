"""Forms in which the verdicts on many texts are printed: lines, JSON, rows of a table, the texts.

A verdict here is a list of Verdicts, one a question; an Exception that kept the text from being
classified; or None for a text that is missing, such as an empty line.
"""

from .. import stream
from ..faults import one_line
from ..jsonl import BadLine, dump
from ..question import kinds
from ..texts import sources
from ..texts.sources import Item
from . import report

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..texts.table import Table
    from .classifier import Verdict
    from .panel import Panel

    Found = list[Verdict] | Exception | None

ERROR, MISSING = "error", "-"  # in place of an answer


class Output:
    """What is printed on many texts, one after the other.

    by_name: Items come in no fixed order, and a State knows them by their names. at_once: each
    is printed as soon as it is known. says_errors: the output says what is wrong with a text.
    name: what the message at the end calls the input.
    """

    at_once = says_errors = False
    name = "input"
    by_name = False

    def __init__(self) -> None:
        self._out: list[bytes] = []

    def begin(self) -> None:
        """Write what stands before all texts."""

    def put(self, item: Item, found: "Any") -> int:
        """Write what was found of a text. Returns 1 if the text was selected, else 0."""
        raise NotImplementedError

    def flush(self) -> None:
        if self._out:
            stream.write_all(1, b"".join(self._out))
            self._out.clear()


class Writer(Output):
    """An Output of verdicts. by_name: see there."""

    def __init__(self, panel: "Panel", by_name: bool = False) -> None:
        super().__init__()
        self.panel, self.by_name = panel, by_name


class Lines(Writer):
    """NAME, the question if there are several, the answer and its probability, with tabs between
    and `end` behind.
    """

    def __init__(self, panel: "Panel", end: bytes, by_name: bool = False) -> None:
        super().__init__(panel, by_name)
        self._end = end

    def put(self, item: Item, found: "Found") -> int:
        name = item.name if self._end == b"\0" else one_line(item.name)
        names = self.panel.names
        for k, question in enumerate(names):
            if isinstance(found, list):
                answer = f"{found[k].answer}\t{kinds.number(found[k]):.3f}"
            else:
                answer = f"{MISSING if found is None else ERROR}\t-"
            fields = (name, question, answer) if len(names) > 1 else (name, answer)
            self._out.append("\t".join(fields).encode("utf-8", "surrogateescape") + self._end)
        return 0


class Objects(Writer):
    """An object a line. key: "name", or "id" for JSON lines. is_whole: with all there is to say."""

    at_once = True

    def __init__(self, panel: "Panel", key: str, is_whole: bool, by_name: bool = False) -> None:
        super().__init__(panel, by_name)
        self._key, self._is_whole = key, is_whole
        self.says_errors = key == "id"

    def put(self, item: Item, found: "Found") -> int:
        fields: dict[str, Any] = {"id": item.id}
        if self._key == "name":
            name = item.name.encode("utf-8", "surrogateescape")
            fields = {"name": name.decode("utf-8", "backslashreplace")}
        if isinstance(found, Exception):
            fields["error"] = str(found) if self.says_errors else why(item, found)
        elif found is None:
            fields["answer"] = None
        else:
            fields |= report.of_all(self.panel, found, self._is_whole)
        self._out.append(dump(fields))
        return 0


class Selected(Writer):
    """The texts that got an answer, as they came: lines, objects, messages of an mbox; of files the
    names.

    k, wanted: number of the question, and the answer. end: after a line or a name.
    """

    def __init__(
        self, panel: "Panel", k: int, wanted: str, end: bytes, by_name: bool = False
    ) -> None:
        super().__init__(panel, by_name)
        self._k, self._wanted, self._end = k, wanted, end

    def put(self, item: Item, found: "Found") -> int:
        if not isinstance(found, list) or found[self._k].answer != self._wanted:
            return 0
        if item.whole is None:
            self._out.append(item.name.encode("utf-8", "surrogateescape") + self._end)
        elif isinstance(item.whole, bytes):
            self._out.append(item.whole + self._end)
        else:
            self.flush()
            sources.write_whole(item.whole, lambda data: stream.write_all(1, data))
        return 1


class Rows(Writer):
    """The rows of a Table as they came, each with columns behind its own, question by question:
    the answer, its score (as in JSON lines), and the probability of every answer.

    selected: None, or (number of a question, an answer): the rows that got it, without more.
    """

    def __init__(
        self, panel: "Panel", table: "Table", selected: "tuple[int, str] | None" = None
    ) -> None:
        super().__init__(panel)
        self.name = table.name
        self._table, self._selected = table, selected
        self._columns = [] if selected else list(self._all_columns())
        table.refuse_taken(self._columns, self._remedy())

    def _remedy(self):
        if any(c.question.path == kinds.ASKED for c in self.panel.classifiers):
            return ", or write the question in a file: NAME.yaml gives the columns NAME"
        return ", or the question's file"

    def _all_columns(self):
        for c in self.panel.classifiers:
            yield c.question.name
            yield f"{c.question.name}_score"
            for answer in c.question.answers:
                yield f"{c.question.name}_p_{answer}"

    def begin(self) -> None:
        """Write the header."""
        self._out.append(self._table.header_with(self._columns))

    def put(self, item: Item, found: "Found") -> int:
        row, table = item.whole, self._table
        if self._selected:
            k, wanted = self._selected
            if not isinstance(found, list) or found[k].answer != wanted:
                return 0
            self._out.append(table.as_it_came(row))
            return 1
        if not row.fields and not row.error:  # an empty line
            self._out.append(table.as_it_came(row))
        elif not isinstance(found, list):
            self._out.append(table.with_fields(row, [""] * len(self._columns)))
        else:
            values = []
            for v in found:
                values += [v.answer, *(f"{p:.6f}" for p in (v.score, *v.scores.values()))]
            self._out.append(table.with_fields(row, values))
        return 0


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
