"""A table goes out byte for byte as it came in, with columns behind its own."""

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.faults import DataError
from sluice.texts.table import Table

ENCODINGS = ("utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be")


def table(data, n=7):
    f = io.BytesIO(data)
    return Table(lambda: f.read(n), "in.csv")


fields = st.text(
    st.characters(codec="utf-8", exclude_characters="\0\r\ufeff", exclude_categories=["Cs"]),
    max_size=12,
)


@given(
    st.lists(st.tuples(fields, fields), max_size=6),
    st.sampled_from(ENCODINGS),
    st.sampled_from(",;\t"),
    st.sampled_from(["\n", "\r\n"]),
    st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
    st.integers(1, 50),
)
def test_fields_are_those_of_the_writer_and_bytes_stay(rows, encoding, delimiter, end, quoting, n):
    out = io.StringIO()
    writer = csv.writer(out, delimiter=delimiter, lineterminator=end, quoting=quoting)
    writer.writerows([("id", "text"), *rows])
    data = out.getvalue().encode(encoding)
    t = table(data, n)
    assert (t.header, t.delimiter) == (["id", "text"], delimiter)
    found = list(t.rows())
    assert [tuple(r.fields) for r in found] == rows and not any(r.error for r in found)
    mark = data[
        : len(data) - len(data.decode(t.encoding).removeprefix("\ufeff").encode(t.encoding))
    ]
    back = mark + b"".join(t.encode(r.raw + r.end) for r in [t.first, *found])
    assert back == data
    more = t.header_with(["q", "q_p_a"]) + b"".join(t.with_fields(r, ["a,;\t", ""]) for r in found)
    text = more.decode(t.encoding).removeprefix("\ufeff")
    again = list(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter))
    assert again == [["id", "text", "q", "q_p_a"], *([*r, "a,;\t", ""] for r in rows)]


def test_bytes_that_are_not_utf_8_stay_as_they_are():
    t = table("a,b\nx,café\n".encode("latin-1"))
    (row,) = t.rows()
    assert t.bytes_of(row.fields[1]) == b"caf\xe9"
    assert t.with_fields(row, ["yes"]) == b"x,caf\xe9,yes\n"


def test_rows_that_are_wrong_are_said_and_stay():
    data = b'id,text\n1,a\n\n2\n3,b,c\n4,\0\n5,"open\nnot closed\n'
    t = table(data)
    rows = list(t.rows())
    assert [(r.line, r.error) for r in rows] == [
        (2, None),
        (3, None),
        (4, "has 1 field, the header 2"),
        (5, "has 3 fields, the header 2"),
        (6, rows[4].error),
        (7, "a quote is opened and not closed"),
    ]
    assert "NUL" in rows[4].error
    assert b"".join(t.encode(r.raw + r.end) for r in rows) == data.split(b"\n", 1)[1]
    assert t.with_fields(rows[2], ["yes", "1"]) == b"2,,yes,1\n"


def test_columns_are_named_and_new_names_are_free():
    t = table(b"id,text,id\n")
    assert t.column("text") == 1
    with pytest.raises(DataError, match="in.csv: there is no column body; known: id, text, id"):
        t.column("body")
    with pytest.raises(DataError, match='2 columns called "id"'):
        t.column("id")
    with pytest.raises(DataError, match="has a column text already"):
        t.refuse_taken(["urgent", "text"])
    with pytest.raises(DataError, match="no header"):
        table(b"")


def test_a_row_without_an_end_is_bounded():
    parts = iter([b'a,b\n1,"', *[b"x" * (1 << 20)] * 70])
    with pytest.raises(DataError, match="line 2: a (row|line) of more than 64 Mi characters"):
        list(Table(lambda: next(parts, b""), "in.csv").rows())
