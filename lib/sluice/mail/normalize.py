"""The normal form of text: what mail-text prints and classify reads.

In this order:

    - CR LF, CR, VT, FF, NEL, U+2028 and U+2029 become LF
    - text whose direction is overridden (U+202E) is put in the order of the eye
    - invisible characters are removed and counted: the soft hyphen, zero-width characters
      and joiners, fillers,
      marks and overrides of direction, variation selectors, tags, the byte order mark inside a text
    - other control characters, surrogates and noncharacters are removed
    - a run of tabs and spaces, also Unicode's, becomes one space, none at the beginning and end of
      a line
    - a run of empty lines becomes one, none at the beginning and end of the text
    - four or more of one punctuation mark or symbol become three
    - a word of more than 60 printable ASCII characters is cut to 60

Nothing else is changed: case, accents, look-alike letters and U+FFFD stay as they came. A text in
normal form is not changed again. The sets are written out here, so that the form does not depend on
the version of Python.

fold() goes further: to the form that the spam model reads.
"""

import re
import unicodedata

NEWLINES = re.compile("\r\n|[\r\x0b\x0c\x85\u2028\u2029]")
INVISIBLE = (
    "[\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f"
    "\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]+"
)
CONTROL = (
    "[\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff"
    + "".join(f"{chr(plane << 16 | 0xFFFE)}{chr(plane << 16 | 0xFFFF)}" for plane in range(1, 17))
    + "]+"
)
ASCII_CONTROL = dict.fromkeys([*range(9), *range(0x0E, 0x20), 0x7F])
SPACES = re.compile("[ \t\xa0\u1680\u2000-\u200a\u202f\u205f\u3000]+")
LINE_ENDS = re.compile(" ?\n ?")
EMPTY_LINES = re.compile("\n{3,}")
MARKS = re.compile(
    "([!-/:-@\\[-`{-~\xa1-\xbf\u2010-\u2027\u2030-\u205e\u2190-\u2bff\u3001-\u303f\uff01-\uff0f])\\1{3,}"
)
LONG_WORD = re.compile("([!-~]{60})[!-~]+")


def normal(text: str) -> tuple[str, int]:
    """Return (the normal form, number of invisible characters removed)."""
    text, n_invisible = NEWLINES.sub("\n", text), 0
    if text.isascii():
        text = text.translate(ASCII_CONTROL)
    else:  # these are large to compile
        if "\u202e" in text:
            from . import bidi

            n_controls = len(text)
            text = bidi.displayed(text)
            n_invisible = n_controls - len(text)
        before = len(text)
        text = re.sub(INVISIBLE, "", text)
        n_invisible += before - len(text)
        text = re.sub(CONTROL, "", text)
    text = SPACES.sub(" ", text)
    text = EMPTY_LINES.sub("\n\n", LINE_ENDS.sub("\n", text)).strip(" \n")
    return LONG_WORD.sub(r"\1", MARKS.sub(r"\1\1\1", text)), n_invisible


def line(text: str, n_max: int) -> tuple[str, int]:
    """Return (the normal form as one line of at most n_max characters, number of invisible
    characters removed).
    """
    text, n_invisible = normal(text[: 4 * n_max])
    return text.replace("\n", " ").replace("  ", " ")[:n_max].rstrip(), n_invisible


class _Folded(dict):
    """str.translate's table of fold(): a digit is 0, a separator is a space, any other
    character stands alone.
    """

    def __missing__(self, code: int) -> str:
        c = chr(code)
        if c.isdecimal():
            to = "0"
        elif c.isspace():
            to = " "
        else:
            to = c if _in_word(c) else f" {c} "
        self[code] = to
        return to


def _in_word(c: str) -> bool:
    return c.isalnum() or unicodedata.category(c)[0] == "M"


_FOLDED = _Folded()
MAX_DIGITS, MAX_WORD, MAX_MARKS = 5, 24, 30
# the voiced marks of halfwidth katakana are letters, and marks in NFKC
MAY_BE_MARKS = "[\\W\uff9e\uff9f]{%d,}" % (MAX_MARKS + 1)


def _few_marks(m: "re.Match[str]") -> str:
    """Of combining marks in a row the first MAX_MARKS, as in UAX #15's Stream-Safe Text Format."""
    out, n = [], 0
    for c in m.group():
        n = n + 1 if unicodedata.combining(unicodedata.normalize("NFKD", c)[0]) else 0
        if n <= MAX_MARKS:
            out.append(c)
    return "".join(out)


def fold(text: str) -> str:
    """Normalize further, to one line: raw text and tokenized lower-case text get the same form.

    In this order: of combining marks in a row MAX_MARKS stay; Unicode's NFKC; lower case; a decimal
    digit is 0, and of a run of them MAX_DIGITS stay; what is neither letter, number, combining mark
    nor space stands alone between spaces; of three or more of one such character in a row two stay;
    of a word the first MAX_WORD characters; spaces and newlines are one space, none at the
    beginning and end. The form is idempotent. Python's Unicode tables decide, so
    that a character younger than they are may differ.
    """
    # NFKC sorts marks in a row, in time square in their number; no word keeps so many
    if not text.isascii():
        text = unicodedata.normalize("NFKC", re.sub(MAY_BE_MARKS, _few_marks, text))
    text = text.lower().translate(_FOLDED)
    run = "0" * MAX_DIGITS
    while run + "0" in text:  # each time a sixth of a run goes
        text = text.replace(run + "0", run)
    out, last, before = [], "", ""
    for word in text.split():
        if word == last == before and len(word) == 1 and not _in_word(word):
            continue
        before, last = last, word[:MAX_WORD]
        out.append(last)
    return " ".join(out)
