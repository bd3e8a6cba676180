"""The text of tokens: valid UTF-8 whatever bytes they write, and all of it as soon as it is one."""

import codecs
import itertools

import pytest
from bytes_vocab import Bytes
from hypothesis import given
from hypothesis import strategies as st

from sluice.tokenizer import detokenizer

# Unicode 15.0, table 3-7: well-formed UTF-8, a range for each byte.
TAIL = (0x80, 0xBF)
WELL_FORMED = [
    [(0x00, 0x7F)],
    [(0xC2, 0xDF), TAIL],
    [(0xE0, 0xE0), (0xA0, 0xBF), TAIL],
    [(0xE1, 0xEC), TAIL, TAIL],
    [(0xED, 0xED), (0x80, 0x9F), TAIL],
    [(0xEE, 0xEF), TAIL, TAIL],
    [(0xF0, 0xF0), (0x90, 0xBF), TAIL, TAIL],
    [(0xF1, 0xF3), TAIL, TAIL, TAIL],
    [(0xF4, 0xF4), (0x80, 0x8F), TAIL, TAIL],
]
# A byte of each class of that table, and those that are in none.
CLASSES = bytes(
    [0x61, 0x80, 0x90, 0xA0, 0xBF, 0xC1, 0xC3, 0xE0, 0xE2, 0xED, 0xF0, 0xF1, 0xF4, 0xF5]
)


def expected(data):
    """(text, how many bytes are open at the end), by the table alone: of what is not well-formed,
    the longest begin of something well-formed, or else one byte, is a U+FFFD.
    """
    out, at = "", 0
    while at < len(data):
        longest = 0
        for row in WELL_FORMED:
            n = 0
            while n < len(row) and at + n < len(data) and row[n][0] <= data[at + n] <= row[n][1]:
                n += 1
            if n == len(row):
                out += data[at : at + n].decode()
                break
            longest = max(longest, n)
        else:
            if longest and at + longest == len(data):
                return out, longest
            out, n = out + "\ufffd", max(longest, 1)
        at += n
    return out, 0


def joined(parts):
    """(what is written after each part, the bytes that are open then) for tokens that write
    `parts`.
    """
    joiner, out = detokenizer.Joiner(Bytes(parts)), []
    for i in range(len(parts)):
        joiner.add(i)
        out.append((joiner.fetch().decode(), joiner.n_open))
    return out


@pytest.mark.full
def test_all_short_sequences_byte_by_byte():
    """Every sequence of up to four bytes of every class: after each byte all is written that is
    decided.
    """
    for n in range(1, 5):
        for data in itertools.product(CLASSES, repeat=n):
            data = bytes(data)
            out = joined([bytes([b]) for b in data])
            assert ("".join(s for s, _ in out), out[-1][1]) == expected(data), data
            assert joined([data]) == [expected(data)], data


@pytest.mark.parametrize(
    "data, shown, n_open",
    [
        # no begin
        (b"a\x80b", "a\ufffdb", 0),
        (b"\xbf\xbf", "\ufffd\ufffd", 0),
        # overlong
        (b"\xc0\xaf", "\ufffd\ufffd", 0),
        (b"\xe0\x80\xaf", "\ufffd" * 3, 0),
        (b"\xf0\x80\x80\xaf", "\ufffd" * 4, 0),
        # surrogates
        (b"\xed\xa0\x80", "\ufffd" * 3, 0),
        (b"\xed\xa0\xbd\xed\xb8\x80", "\ufffd" * 6, 0),
        (b"\xed\xa0", "\ufffd" * 2, 0),
        # above U+10FFFF
        (b"\xf4\x90\x80\x80", "\ufffd" * 4, 0),
        (b"\xf5\xf8\xfc\xfe\xff", "\ufffd" * 5, 0),
        # cut by another
        (b"\xc3(", "\ufffd(", 0),
        (b"\xe2\x82(", "\ufffd(", 0),
        (b"\xf0\x9f\xa6(", "\ufffd(", 0),
        (b"\xf0\x9f\xf0\x9f\xa6\x80", "\ufffd\U0001f980", 0),
        (b"\xc3\xc3\xa9", "\ufffd\u00e9", 0),
        # open
        (b"\xc3", "", 1),
        (b"\xe2", "", 1),
        (b"\xe2\x82", "", 2),
        (b"\xf0\x9f\xa6", "", 3),
        (b"a\xff\xf0\x9f", "a\ufffd", 2),
    ],
)
def test_each_kind_of_invalid_sequence(data, shown, n_open):
    assert joined([data]) == [(shown, n_open)] == [expected(data)]
    out = joined([bytes([b]) for b in data])
    assert ("".join(s for s, _ in out), out[-1][1]) == (shown, n_open)


@given(
    st.lists(
        st.one_of(
            st.binary(max_size=5),
            st.text(max_size=3).map(str.encode),
            st.lists(st.sampled_from(CLASSES), max_size=4).map(bytes),
        )
    )
)
def test_text_of_any_ids_is_that_of_pythons_decoder(parts):
    """An open character at the end, which a decoder shows as U+FFFD, is left out; what waits for
    the next id can become one.
    """
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    whole = "".join(map(decoder.decode, parts)) + decoder.decode(b"", True)
    out = joined(parts)
    n_open = out[-1][1] if out else 0
    assert "".join(s for s, _ in out) + "\ufffd" * (n_open > 0) == whole
    for i, (_, n) in enumerate(out):
        assert ("".join(s for s, _ in out[: i + 1]), n) == expected(b"".join(parts[: i + 1]))


@given(st.text(), st.data())
def test_text_that_is_valid_stays_as_it_is_however_ids_cut_it(whole, data):
    raw, parts = whole.encode(), []
    while raw:
        n = data.draw(st.integers(1, 4))
        parts.append(raw[:n])
        raw = raw[n:]
    out = joined(parts)
    assert "".join(s for s, _ in out) == whole and not any(n for _, n in out[-1:])
