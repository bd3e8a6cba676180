"""Mailboxes are split where a dated line From stands behind an empty line, however they are read."""

import io
import mailbox

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.texts import mbox

FROM = [
    b"From a@b  Thu Nov 26 10:00:00 2026",
    b"From a@b Thu, 26 Nov 2026 10:00:00 +0100",
    b"From MAILER-DAEMON Thu Nov  6 10:00 CET 2026",
    b"From a b c Sat Jan  3 01:05:34 1996 remote from x",
]
LINES = [
    b"x",
    b"",
    b"From here on",
    b"From me, Thursday",
    b"Subject: a",
    b">From a@b Thu Nov 26 10:00:00 2026",
    b"y" * 700,
]


def reader(data, n):
    f = io.BytesIO(data)
    return lambda: f.read(n)


bodies = st.lists(st.sampled_from(LINES), min_size=1, max_size=5)
boxes = st.lists(st.tuples(st.sampled_from(FROM), st.sampled_from([b"\n", b"\r\n"]), bodies))


@given(boxes, st.integers(1, 900))
def test_messages_are_those_that_were_written(box, n):
    want = [(line + nl, nl.join(body) + nl) for line, nl, body in box]
    raw = b"".join(line + body + nl for (line, body), (_, nl, _) in zip(want, box))
    found = list(mbox.messages(reader(raw, n), 1 << 20))
    assert [(m.from_line, m.data) for m in found] == want
    assert sum(m.n_bytes for m in found) == len(raw)
    assert mbox.is_mbox(reader(raw, n)) == (len(box) > 1)


@given(boxes, st.integers(1, 900))
def test_copies_hold_every_byte(box, n):
    raw = b"".join(line + nl + nl.join(body) + nl + nl for line, nl, body in box)
    copies = []

    def copy():
        copies.append(io.BytesIO())
        return copies[-1].write

    list(mbox.messages(reader(raw, n), 5, copy))
    assert b"".join(c.getvalue() for c in copies) == raw and len(copies) == max(1, len(box))


def test_a_box_of_pythons_mailbox_comes_apart_as_it_was_put_together(tmp_path):
    box = mailbox.mbox(tmp_path / "box")
    mails = [f"Subject: {i}\n\nFrom here\n\nFrom there\n{i}\n" for i in range(20)]
    for mail in mails:
        box.add(mail)
    box.flush()
    with open(tmp_path / "box", "rb") as f:
        found = [m.data.decode() for m in mbox.messages(lambda: f.read(100), 1 << 20)]
    assert found == [mail.replace("\nFrom ", "\n>From ") for mail in mails]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"From a Thu Nov 26 10:00:00 2026\nSubject: x\n\nalone\n",
        b"From a Thu Nov 26 10:00:00 2026\n\nno empty line\nFrom a Thu Nov 26 10:00:00 2026\n",
        b"From a Thu Nov 26 10:00:00 2026\n\nx\n\nFrom here to eternity\n",
        b"Subject: x\n\nx\n\nFrom a Thu Nov 26 10:00:00 2026\n\nquoted\n",
        b"From a Thu Nov 26 10:00:00 2026\n\nx\n\nFrom " + b"a" * 600 + b" Thu Nov 26 10:00 2026\n",
    ],
)
def test_one_message_is_no_mbox(data):
    assert not mbox.is_mbox(reader(data, 7))


def test_of_a_long_message_the_first_bytes_are_kept_and_all_are_counted():
    n = 50 << 20
    head = b"From a Thu Nov 26 10:00:00 2026\nSubject: x\n\n"
    left = [head, *[b"a" * (1 << 20)] * 50, b"\n\nFrom b Thu Nov 26 10:00:00 2026\n\nlast\n"]
    first, second = mbox.messages(lambda: left.pop(0) if left else b"", 1000)
    assert len(first.data) == 1000 and first.n_bytes == len(head) + n + 2
    assert first.data.startswith(b"Subject: x\n\naaa") and second.data == b"\nlast\n"
