"""The spans of a text that --why leaves out: its lines, or the sentences of a text with one line.

Spans are cut in bytes, and together they are the whole text. Empty lines belong to the line before
them. A message's spans are those of the text that its reader sees (mail-text): the lines of its
head, and the lines or sentences of its body. A text that is left with some spans is turned into
what the prompt gets as any input is.

Of a text that is longer than the prompt takes, the spans in the middle are one span.
"""

import copy
import re

from ..learn import tokens
from ..mail import message
from ..texts import inputs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection

MAX_SPANS = 500
MAX_BYTES = 32 << 20  # of all texts with a span left out: each is tokenized
LINE = re.compile(rb"[^\n]*\n?(?:[ \t\r]*\n)*")
# a full stop or the like, quotes and brackets that close, and the space before the next sentence;
# in Chinese and Japanese there is no space
SENTENCE_END = re.compile(
    rb"(?<![.!?])[.!?]+[\"')\]]*\s+(?![a-z\s])"  # begins once in a row of marks: linear time
    rb"|(?:\xe3\x80\x82|\xef\xbc\x81|\xef\xbc\x9f)+(?:\xe3\x80\x8d|\xe2\x80\x9d)*\s*"
)
LINES, SENTENCES = "lines", "sentences"


class Spans:
    """The spans of an input `data` in the form of a question.

    is_mail: it is a message. fold: normalize it (mail-text --normalize). n: spans at most; of
    more, neighbours are one. read: None, or how many first and last bytes of what the prompt gets
    it takes, about; the spans between are one.

    texts: the spans, bytes each, as a reader sees them. kind: "lines" or "sentences". n_cut: how
    many there were before neighbours were put together. unread: the number of the span in the
    middle, or None; n_unread: the lines or sentences in it. reasons: see inputs.text.
    header: of a message, with all fields whatever is left out, or None.
    """

    texts: list[bytes]
    kind: str
    reasons: list[str] | None
    header: bytes | None
    unread: int | None

    def __init__(
        self,
        data: bytes,
        is_mail: bool,
        fold: bool,
        n: int = MAX_SPANS,
        read: "tuple[int, int] | None" = None,
    ) -> None:
        self._fold, self._mail, self.reasons = fold, None, None
        self.header = tokens.header_of(data) if is_mail else None
        if is_mail:
            self._mail = mail = message.read(data[: inputs.MAIL_BYTES])
            self.reasons = mail.reasons
            head = [(0, line) for line in mail.head().encode().splitlines(keepends=True)]
            body, self.kind = _cut(mail.body.encode())
            cut = head + [(1, span) for span in body]
        else:
            parts = [data]
            if len(data) > 2 * inputs.END_BYTES:
                parts = [data[: inputs.END_BYTES], data[-inputs.END_BYTES :]]
            self._n_parts = len(parts)
            first, self.kind = _cut(parts[0])
            cut = [(0, span) for span in first]
            cut += [(1, span) for part in parts[1:] for span in _cut(part, self.kind)[0]]
        self.n_cut = len(cut)
        # (part, bytes) of the pieces of each span: those of two parts stay apart
        a, b = self._between(cut, *read) if read else (len(cut), len(cut))
        self.unread, self.n_unread = None, b - a
        n = max(2, min(n, MAX_BYTES // (1 + sum(len(piece) for _, piece in cut))))
        if a == b:
            self._spans = _merged(cut, n)
        else:
            n_before = max(1, (n - 1) * a // (a + len(cut) - b)) if a else 0
            before = _merged(cut[:a], n_before)
            self._spans = [*before, cut[a:b], *_merged(cut[b:], max(1, n - 1 - n_before))]
            self.unread = len(before)
        self.texts = [b"".join(piece for _, piece in span) for span in self._spans]

    def _between(self, cut, n_first, n_last):
        """The pieces (begin, end) behind the first n_first bytes and before the last n_last ones of
        what the prompt gets.
        """
        sizes = [len(inputs.form(piece, self._fold)) + 1 for _, piece in cut]
        begin, end = 0, len(cut)
        while begin < len(cut) and n_first > 0:
            n_first -= sizes[begin]
            begin += 1
        while end > begin and n_last > 0:
            end -= 1
            n_last -= sizes[end]
        return (begin, end) if end - begin > 1 else (len(cut), len(cut))

    def without(self, left_out: "Collection[int]") -> tuple[bytes, bytes | None]:
        """What the prompt gets of the text without the spans of these numbers: (text, rest), see
        inputs.text.
        """
        pieces = [p for i, span in enumerate(self._spans) if i not in left_out for p in span]
        first, second = (b"".join(piece for part, piece in pieces if part == k) for k in (0, 1))
        if self._mail is None:
            form = lambda part: inputs.form(part, self._fold)
            return form(first), form(second) if self._n_parts == 2 else None
        if not left_out:
            return self._mail.text(fold=self._fold), None
        mail = copy.copy(self._mail)
        kept = first.decode().splitlines()
        has = lambda name: any(line.startswith(name + ": ") for line in kept)
        mail.sender = mail.sender if has("From") else ""
        mail.subject = mail.subject if has("Subject") else ""
        mail.links = mail.links if has("Links") else []
        mail.files = mail.files if has("Files") else []
        mail.body = second.decode()
        return mail.text(fold=self._fold), None


def _cut(text, kind=None):
    """The lines of a text if several have something in them, else its sentences: (list, kind)."""
    lines = [m.group() for m in LINE.finditer(text) if m.group()]
    if lines and not lines[0].strip() and len(lines) > 1:  # empty lines at the beginning
        lines[:2] = [lines[0] + lines[1]]
    if kind != SENTENCES and (kind == LINES or len(lines) > 1):
        return lines, LINES
    found, at = [], 0
    for m in SENTENCE_END.finditer(text):
        found.append(text[at : m.end()])
        at = m.end()
    if at < len(text):
        found.append(text[at:])
    return found, SENTENCES


def _merged(cut, k):
    """At most `k` spans of neighbours, of as many each."""
    n = len(cut)
    k = min(n, k)
    edges = [i * n // k for i in range(k + 1)] if k else []
    return [cut[a:b] for a, b in zip(edges, edges[1:])]
