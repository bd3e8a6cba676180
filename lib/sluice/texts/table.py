"""Tables with a header: CSV with commas or semicolons, or TSV, as spreadsheets write them.

A row keeps its text as it was read, so a table goes out as it came in, with columns behind it.
Encodings: UTF-8 and UTF-16, with a byte-order mark or without. Bytes that are not UTF-8 stay as
they are. Fields are parsed by Python's csv module (RFC 4180).
"""

import codecs
import csv
import io

from ..faults import data_error, printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

DELIMITERS = ",;\t"
MAX_ROW = 64 << 20  # characters
MAX_FIELDS = 10000
MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
BOM = "\ufeff"


class Row:
    """A row: its fields, or why it has none that can be used; its line, from 1 on."""

    __slots__ = ("end", "error", "fields", "line", "raw")

    def __init__(self, line: int, raw: str, end: str, fields: list[str], error: str | None) -> None:
        self.line, self.raw, self.end, self.fields, self.error = line, raw, end, fields, error


class Table:
    """A table that is being read. read_some(): its next bytes, b"" at the end; name: what messages
    call it.

    n_not_utf8: rows so far, the header included, that should be UTF-8 and are not.
    first: the Row of the header; header: names of the columns; delimiter: one of DELIMITERS;
    encoding: Python's name. DataError if there is no header or it is not text.
    """

    def __init__(self, read_some: "Callable[[], bytes]", name: str) -> None:
        self.name, self.n_not_utf8 = name, 0
        self._lines = _Lines(read_some, name)
        self.encoding = self._lines.encoding
        line = self._lines.peek()
        self.delimiter = max(DELIMITERS, key=lambda c: _outside(line, c))
        csv.field_size_limit(MAX_ROW)
        self._reader = csv.reader(self._lines, delimiter=self.delimiter)
        first = self._next()
        if first is None or not first.fields:
            raise data_error(name, "no header: it is empty")
        if first.error:
            raise data_error(name, f"line 1: {first.error}")
        self.first, self.header = first, first.fields

    def doubts(self) -> list[str]:
        """Messages about the rows that were read."""
        if not self.n_not_utf8:
            return []
        rows = "1 row is" if self.n_not_utf8 == 1 else f"{self.n_not_utf8} rows are"
        return [
            f"{self.name}: {rows} not UTF-8; the bytes go to the model and to the output as they"
            " are; iconv -f WINDOWS-1252 -t UTF-8 converts a table of Windows"
        ]

    def column(self, name: str) -> int:
        """The index of the column called `name`. DataError where there is none, or two."""
        found = [i for i, field in enumerate(self.header) if field == name]
        if len(found) == 1:
            return found[0]
        if found:
            raise data_error(self.name, f"there are {len(found)} columns called {printable(name)}")
        known = ", ".join(printable(field)[1:-1] for field in self.header[:20])
        more = "" if len(self.header) <= 20 else f", and {len(self.header) - 20} more"
        raise data_error(
            self.name, f"there is no column {printable(name)[1:-1]}; known: {known}{more}"
        )

    def refuse_taken(self, names: list[str], remedy: str = "") -> None:
        """DataError where a new column's name is taken. remedy: besides renaming the old one."""
        for name in names:
            if name in self.header:
                raise data_error(
                    self.name,
                    f"has a column {printable(name)[1:-1]} already: rename it{remedy}",
                )

    def header_with(self, names: list[str]) -> bytes:
        """The header with further columns, as bytes."""
        header = self.with_fields(self.first, names) if names else self.as_it_came(self.first)
        return self.encode(self._lines.mark) + header

    def with_fields(self, row: Row, values: list[str]) -> bytes:
        """A row with further fields behind its own, as bytes. A row that has fewer fields than the
        header is filled up with empty ones, so that the new ones stand below their names.
        """
        missing = max(0, len(self.header) - len(row.fields)) if row.fields else 0
        quoted = io.StringIO()
        csv.writer(quoted, delimiter=self.delimiter, lineterminator="").writerow(
            [""] * missing + values if missing + len(values) > 1 else [*values, ""]
        )
        text = quoted.getvalue()
        if missing + len(values) == 1:  # a lone empty field would be written as ""
            text = text[: -len(self.delimiter)]
        return self.encode(row.raw + self.delimiter + text + row.end)

    def as_it_came(self, row: Row) -> bytes:
        """A row as bytes."""
        return self.encode(row.raw + row.end)

    def encode(self, text: str) -> bytes:
        return text.encode(self.encoding, self._lines.errors)

    def bytes_of(self, field: str) -> bytes:
        """A field's text as UTF-8; bytes that were none are as they were."""
        return field.encode("utf-8", "surrogateescape" if self.encoding == "utf-8" else "replace")

    def rows(self) -> "Iterator[Row]":
        """Yield the rows below the header; an empty line is a row without fields."""
        while (row := self._next()) is not None:
            n, of = len(row.fields), len(self.header)
            if row.fields and n != of and not row.error:
                row.error = f"has {n} field{'s' * (n != 1)}, the header {of}"
            yield row

    def _next(self):
        self._lines.begin_row()
        error = None
        try:
            fields = next(self._reader, None)
        except csv.Error as e:
            fields, error = [], str(e)
        raw = self._lines.row()
        if fields is None and not raw:
            return None
        fields = fields or []
        self.n_not_utf8 += self.encoding == "utf-8" and _has_other_bytes(raw)
        body = raw.rstrip("\r\n") if not raw.endswith("\n") else raw[:-1].removesuffix("\r")
        if len(fields) > MAX_FIELDS:
            fields, error = [], f"has more than {MAX_FIELDS} fields"
        elif "\0" in raw:
            error = "has a NUL"
        elif self._lines.at_end and _is_open(body, self.delimiter):
            error = "a quote is opened and not closed"
        return Row(self._lines.first, body, raw[len(body) :], fields, error)


class _Lines:
    """The lines of a text with their ends, as csv.reader asks for them; what the row at hand took
    of them. DataError where a row is too long, or the text is not of its encoding.
    """

    def __init__(self, read_some, name):
        self._read_some, self._name = read_some, name
        start = b""
        while len(start) < 4 and (more := read_some()):
            start += more
        self.encoding = next((kind for mark, kind in MARKS if start.startswith(mark)), None)
        if not self.encoding:
            zero = [i for i in range(min(4, len(start))) if not start[i]]
            self.encoding = {(1, 3): "utf-16-le", (0, 2): "utf-16-be"}.get(tuple(zero), "utf-8")
        self.errors = "surrogateescape" if self.encoding == "utf-8" else "strict"
        self._decoder = codecs.getincrementaldecoder(self.encoding)(self.errors)
        self._ready, self._rest, self._start, self.mark = [], "", start, ""
        self.at_end, self._line, self.first, self._row, self._n_row = False, 0, 1, [], 0

    def peek(self):
        if not self._ready:
            self._fill()
        return self._ready[-1] if self._ready else ""

    def begin_row(self):
        self.first, self._row, self._n_row = self._line + 1, [], 0

    def row(self):
        return "".join(self._row)

    def __iter__(self):
        return self

    def __next__(self):
        if not self._ready:
            self._fill()
        if not self._ready:
            raise StopIteration
        line = self._ready.pop()
        self._line += 1
        self._row.append(line)
        self._n_row += len(line)
        if self._n_row > MAX_ROW:
            raise data_error(
                self._name,
                f"line {self.first}: a row of more than {MAX_ROW >> 20} Mi characters; is a quote"
                " not closed?",
            )
        return line

    def _fill(self):
        """Lines into `_ready`, the next one last, unless all are read."""
        parts, n = [self._rest], len(self._rest)
        while not self.at_end:
            data, self._start = self._start or self._read_some(), b""
            self.at_end = not data
            try:
                text = self._decoder.decode(data, self.at_end)
            except UnicodeDecodeError as e:
                raise data_error(
                    self._name, f"line {self._line + 1}: is not {self.encoding}: {e.reason}"
                ) from None
            parts.append(text)
            n += len(text)
            if "\n" in text:
                break
            if n > MAX_ROW:
                raise data_error(
                    self._name,
                    f"line {self._line + 1}: a line of more than {MAX_ROW >> 20} Mi characters",
                )
        text = "".join(parts)
        if not self._line and not self.mark and text.startswith(BOM):
            self.mark, text = BOM, text[1:]
        lines = text.split("\n")
        self._rest = lines.pop()
        lines = [line + "\n" for line in lines]
        if self.at_end and self._rest:
            lines.append(self._rest)
            self._rest = ""
        self._ready = lines[::-1]


def _has_other_bytes(text):
    """Whether a text decoded with surrogateescape has bytes that are not UTF-8."""
    if text.isascii():
        return False
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def _outside(line, c):
    """How often `c` stands in a line outside of quotes."""
    return sum(part.count(c) for part in line.split('"')[::2])


def _is_open(body, delimiter):
    """Whether the text of a row ends within quotes."""
    reader = csv.reader(body.splitlines(True), delimiter=delimiter, strict=True)
    try:
        for _ in reader:
            pass
    except csv.Error as e:
        return "unexpected end" in str(e)
    return False
