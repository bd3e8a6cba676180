"""The X-Spam headers of a mail: forged ones do not survive for any reader, ours are exact, and
nothing else changes.
"""

import email
import itertools
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluice import VERSION
from sluice.kernels import ffi, lib
from sluice.mail import headers

LINE = b"yes 0.9931 0.9386 3f9a0c1b2d4e5f60"
HEAD = headers.headers(LINE)
HEADER = re.compile(rb"[!-9;-~]+[ \t]*:")
OWN = re.compile(rb"x-spam-[!-9;-~]*[ \t]*:", re.I)
AFTER_CR = re.compile(rb"\r+(?=x-spam-[!-9;-~]*[ \t]*:)[^\r\n]*", re.I)
REASONS = "timeout size memory crashed model empty attempts input worker skipped".split()


def reference(mail, head=HEAD):
    """What marking.mark does, said a second time."""
    lines = re.findall(rb"[^\n]*\n|[^\n]+", mail)
    eol = b"\r\n" if lines and lines[0].endswith(b"\r\n") else b"\n"
    top, kept, own, n = b"", [], None, 0
    while (
        n < len(lines)
        and re.match(rb">*From [^\n]*\n", lines[n])
        and not HEADER.match(lines[n])
        and len(lines[n]) <= 998
    ):
        top += AFTER_CR.sub(b"", lines[n])
        n += 1
    while n < len(lines) and (HEADER.match(lines[n]) or own is not None and lines[n][:1] in b" \t"):
        if HEADER.match(lines[n]):
            own = bool(OWN.match(lines[n]))
        kept += [] if own else [AFTER_CR.sub(b"", lines[n])]
        n += 1
    missing = (
        n < len(lines)
        and not re.fullmatch(rb"\n" if eol == b"\n" else rb"\r*\n", lines[n])
        or not mail
    )
    return b"".join(
        [top, head.replace(b"\n", eol), *kept, eol * bool(missing and head), *lines[n:]]
    )


def family(mail):
    """Values of the top-level headers that Python's parser, for which a bare CR ends a line, takes
    for ours.
    """
    return [
        (k.strip().lower(), v)
        for k, v in email.message_from_bytes(mail).items()
        if k.strip().lower().startswith("x-spam-")
    ]


OURS = family(HEAD)

# ---- the headers themselves -------------------------------------------------------------


def test_headers_of_every_verdict():
    assert (
        HEAD.decode() == "X-Spam-Flag: YES\nX-Spam-Score: 0.9931\n"
        "X-Spam-Status: Yes, score=0.9931 required=0.9386 model=3f9a0c1b2d4e5f60\n"
        f"X-Spam-Checker-Version: Sluice {VERSION}\n"
    )
    for word, flag, said in (("no", "NO", "No"), ("unsure", "NO", "Unsure")):
        text = headers.headers(LINE.replace(b"yes", word.encode())).decode()
        assert text == HEAD.decode().replace("YES", flag).replace("Yes", said)
    for reason in REASONS:
        assert (
            headers.headers(f"error {reason}".encode()).decode()
            == f"X-Spam-Status: unchecked; reason={reason}\nX-Spam-Checker-Version: Sluice"
            f" {VERSION}\n"
        )
    assert [ffi.string(lib.mark_word(n)).decode() for n in range(len(REASONS))] == REASONS
    assert lib.mark_word(-1) == lib.mark_word(len(REASONS)) == ffi.NULL


BAD = [
    b"",
    b"yes",
    b"YES" + LINE[3:],
    b" " + LINE,
    LINE + b" ",
    LINE + b"\n",
    LINE + b"\0",
    LINE[:-1],
    LINE + b"0",
    LINE.replace(b" ", b"  ", 1),
    LINE.replace(b" ", b"\t"),
    LINE.replace(b"0.9931", b"1.0001"),
    LINE.replace(b"0.9931", b"2.0000"),
    LINE.replace(b"0.9931", b"0,9931"),
    LINE.replace(b"0.9386", b"0.938x"),
    LINE.replace(b"0.9386", b"-0.938"),
    LINE.replace(b"0.9386", b"   nan"),
    LINE.replace(b"f", b"F"),
    LINE.replace(b"f", b"g"),
    LINE.replace(b"yes", b"maybe"),
    b"error",
    b"error ",
    b"error other",
    b"error timeout ",
    b"error  size",
    b"error timeouts",
    b"Error size",
    b"unsure 0.5",
    LINE.replace(b"yes", b"yes\n"),
    b"\xff" * 34,
    b"error " + b"x" * 10000,
]


@pytest.mark.parametrize("line", BAD, ids=range(len(BAD)))
def test_any_other_line_is_no_verdict(line):
    with pytest.raises(ValueError):
        headers.headers(line)


@given(
    st.binary(max_size=60)
    | st.integers(0, len(LINE) - 1).flatmap(
        lambda i: st.binary(min_size=1, max_size=1).map(lambda b: LINE[:i] + b + LINE[i + 1 :])
    )
)
def test_verdict_line_matches_its_grammar_exactly(line):
    good = re.fullmatch(
        rb"(yes|no|unsure)( (0\.\d{4}|1\.0000)){2} [0-9a-f]{16}|error ("
        + "|".join(REASONS).encode()
        + rb")",
        line,
    )
    try:
        read = bool(headers.headers(line))
    except ValueError:
        read = False
    assert read == bool(good)


# ---- forged headers ---------------------------------------------------------------------

NAMES = [
    "X-Spam-Flag",
    "x-spam-status",
    "X-SPAM-SCORE",
    "x-SpAm-Checker-Version",
    "X-Spam-Level",
    "X-Spam-",
    "X-Spam-Report-2",
    "X-spam-!#$%&'*+/=?^_`{|}~",
]
BEFORE_COLON = ["", " ", "\t", " \t  "]
VALUES = [
    " NO",
    "",
    "NO",
    " No, score=0.0001\n required=0.9386\n\tmodel=x",
    "\n folded",
    " caf\u00e9 \x00 \x7f",
    " a\rb",
]
FORGED = [
    f"{name}{blanks}:{value}".encode()
    for name, blanks, value in itertools.product(NAMES, BEFORE_COLON, VALUES)
]


def test_forged_headers_do_not_survive():
    assert len(FORGED) > 100
    for eol in (b"\n", b"\r\n"):
        for forged in FORGED:
            f = forged.replace(b"\n", eol) + eol
            subject, to, body = (
                b"Subject: hi" + eol + b" there" + eol,
                b"To: x" + eol,
                eol + f + b"text" + eol,
            )
            head = HEAD.replace(b"\n", eol)
            for mail in (
                f + subject + to + body,
                subject + f + to + body,
                subject + to + f + body,
                f + subject + f + f + to + f + body,
            ):
                assert headers.mark(mail, HEAD) == head + subject + to + body, mail
                assert headers.mark(mail, b"") == subject + to + body
            for mail in (subject + f, subject + f[: -len(eol)], f + subject):
                assert headers.mark(mail, HEAD) == head + subject, mail
            separator = b"From a@b Sat Jul 28 22:01:23 2001" + eol
            for top in (separator, separator + b">" + separator, b">>" + separator):
                assert (
                    headers.mark(top + f + subject + f + body, HEAD) == top + head + subject + body
                )


def test_forged_headers_after_a_bare_cr_do_not_survive():
    for forged in FORGED:
        if b"\n" in forged or b"\r" in forged:
            continue
        for mail, left in (
            (b"Subject: a\r%s\nTo: x\n\nb", b"Subject: a\nTo: x\n\nb"),
            (b"Subject: a\r%s\r\nTo: x\r\n\r\nb", b"Subject: a\r\nTo: x\r\n\r\nb"),
            (b"Subject: a\n b\r%s\rTo: x\n\n", b"Subject: a\n b\rTo: x\n\n"),
            (b"Subject: a\r\r%s\r%s\n folded\n\n", b"Subject: a\n folded\n\n"),
            (b"From a b\r%s\nTo: x\n\n", b"From a b\nTo: x\n\n"),
            (b"Subject: a\r%s", b"Subject: a"),
        ):
            mail = mail.replace(b"%s", forged)
            assert headers.mark(mail, b"") == left, mail
            assert family(headers.mark(mail, HEAD)) == OURS


NO_END = [
    b"no header\n",
    b" folded\n",
    b": x\n",
    b"caf\xc3\xa9: x\n",
    b"a\0b: x\n",
    b"a b: c\n",
    b">>>\n",
    b"--b\n",
    b"\rx\n",
    b"\x7f: x\n",
    b"From x" * 200 + b"\n",
]


@pytest.mark.parametrize("line", NO_END, ids=range(len(NO_END)))
def test_headers_behind_what_is_no_header_are_in_the_body(line):
    """As for Postfix, an empty line is before it; so a forged header behind it is one for
    nobody.
    """
    mail = line + b"X-Spam-Flag: NO\n\ntext"
    assert headers.mark(mail, HEAD) == HEAD + b"\n" + mail and headers.mark(mail, b"") == mail
    assert family(headers.mark(mail, HEAD)) == OURS
    if not line.startswith(b" "):
        marked = headers.mark(b"Subject: x\n" + mail, HEAD)
        assert marked == HEAD + b"Subject: x\n\n" + mail and family(marked) == OURS


def test_parts_are_untouched():
    inner = b"".join(f + b"\n" for f in FORGED)
    parts = (
        b"--b\nContent-Type: message/rfc822\n\n"
        + inner
        + b"\ninner\n--b\n"
        + inner
        + b"\npart\n--b--\n"
    )
    mail = b"Content-Type: multipart/mixed; boundary=b\nX-Spam-Flag: NO\n\n" + parts
    assert (
        headers.mark(mail, HEAD) == HEAD + b"Content-Type: multipart/mixed; boundary=b\n\n" + parts
    )


ODD = [
    (b"", HEAD + b"\n"),
    (b"\n", HEAD + b"\n"),
    (b"\ntext", HEAD + b"\ntext"),
    (b"\r\n\r\ntext", HEAD.replace(b"\n", b"\r\n") + b"\r\n\r\ntext"),
    (b"text", HEAD + b"\ntext"),
    (b"\0\0", HEAD + b"\n\0\0"),
    (b"a: b", HEAD + b"a: b"),
    (b"a: b\r\r\n\r\r\ntext", HEAD.replace(b"\n", b"\r\n") + b"a: b\r\r\n\r\r\ntext"),
    (b"From x\n", b"From x\n" + HEAD),
    (b"From x", HEAD + b"\nFrom x"),
    (b"From x\r", HEAD + b"\nFrom x\r"),
    (b"From : x\n y\n", HEAD + b"From : x\n y\n"),
    (b"X-Spam-Flag: YES", HEAD),
    (b"\r", HEAD + b"\n\r"),
    (b"a: b\n\r\nX-Spam-Flag: NO\n\n", HEAD + b"a: b\n\n\r\nX-Spam-Flag: NO\n\n"),
    (b"a: b\r\n\nX-Spam-Flag: NO\n", HEAD.replace(b"\n", b"\r\n") + b"a: b\r\n\nX-Spam-Flag: NO\n"),
    (
        b"X-Spam: a\nX-Spamm-Flag: b\nY-X-Spam-Flag: c\n\n",
        HEAD + b"X-Spam: a\nX-Spamm-Flag: b\nY-X-Spam-Flag: c\n\n",
    ),
]


@pytest.mark.parametrize("mail, marked", ODD, ids=range(len(ODD)))
def test_odd_mails(mail, marked):
    assert headers.mark(mail, HEAD) == marked == reference(mail)


PIECES = st.sampled_from(
    [
        b"\n",
        b"\r\n",
        b"\r",
        b" ",
        b"\t",
        b":",
        b"a",
        b"X-Spam-",
        b"x-spam-status:",
        b"X-SPAM-FLAG : NO\n",
        b"From ",
        b">",
        b"Subject: x\n",
        b"To: y\r\n",
        b" fold\n",
        b"\n\n",
        b"\0",
        b"\xff",
        b"From a b\n",
    ]
) | st.binary(max_size=4)
MAILS = st.lists(PIECES, max_size=14).map(b"".join)


@settings(max_examples=1500, deadline=None)
@given(MAILS)
def test_marking_is_what_its_description_says(mail):
    marked = headers.mark(mail, HEAD)
    assert marked == reference(mail) and headers.mark(mail, b"") == reference(mail, b"")
    assert headers.mark(marked, HEAD) == marked  # again, and nothing changes
    other = headers.headers(b"error worker")
    assert headers.mark(headers.mark(mail, other), HEAD) == marked
    # Python knows one separator, and takes what follows a CR in it for the next line
    if not re.match(rb">*From ", mail):
        assert family(marked) == OURS


@settings(max_examples=500, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["A", "Subject", "X-Spa", "X-Spam"]),
            st.text("ab \t\u00e9:", max_size=8),
        ),
        max_size=6,
    ),
    st.lists(st.sampled_from(FORGED), max_size=4),
    st.binary(max_size=60),
    st.sampled_from([b"\n", b"\r\n"]),
    st.randoms(),
)
def test_other_headers_and_the_body_keep_their_bytes(others, forged, body, eol, random):
    others = [f"{k}: {v}".encode() + eol for k, v in others]
    lines = [(n, line) for n, line in enumerate(others)]
    for f in forged:
        lines.insert(random.randrange(len(lines) + 1), (None, f.replace(b"\n", eol) + eol))
    mail = b"".join(line for _, line in lines) + eol + body
    assert (
        headers.mark(mail, HEAD)
        == HEAD.replace(
            b"\n", mail[mail.index(b"\n") - 1 : mail.index(b"\n")] == b"\r" and b"\r\n" or b"\n"
        )
        + b"".join(others)
        + eol
        + body
    )


def test_header_marking_counts():
    m = ffi.new("mail_marking *")
    mail = (
        b"X-Spam-Status: a\nx-spam-STATUS : b\nX-Spam-Status-2: c\nX-Spam-Flag: d\nS:"
        b" x\rX-Spam-Flag: e\n\nX-Spam-Status: f\n"
    )
    lib.mark_mail(m, ffi.NULL, mail, len(mail), b"", 0)
    assert (m.n_removed, m.n_status, m.n_out, m.n_read) == (5, 2, 5, mail.index(b"\n\n") + 1)


def test_large_header_section_takes_linear_time():
    for line in (b"a: b\n", b"X-Spam-A: b\n", b"a: \rX-Spam-b: c\n", b"a\r:\r", b" x\n"):
        mail = b"S: x\n" + line * 100_000 + b"\n"
        assert headers.mark(mail, HEAD) == reference(mail)
