"""Streaming detokenizer: the text of tokens as whole UTF-8 characters.

A token may have a part of a character. Output is valid UTF-8: the start of a character waits for
its other bytes. Invalid bytes become U+FFFD, one for each longest start of a character and one for
each other byte (Unicode 15.0, section 3.9, "U+FFFD Substitution of Maximal Subparts"; Python and
WHATWG decoders do the same).
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .vocabulary import Vocab

# by lead byte; RFC 3629, section 4
SECOND = {0xE0: (0xA0, 0xBF), 0xED: (0x80, 0x9F), 0xF0: (0x90, 0xBF), 0xF4: (0x80, 0x8F)}


def n_open_bytes(data: bytes) -> int:
    """Return how many bytes at the end of `data` begin an incomplete UTF-8 character: 0 to 3."""
    for n in range(1, min(3, len(data)) + 1):
        c = data[-n]
        if c & 0xC0 == 0x80:
            continue
        n_char = (
            2 if 0xC2 <= c <= 0xDF else 3 if 0xE0 <= c <= 0xEF else 4 if 0xF0 <= c <= 0xF4 else 1
        )
        low, high = SECOND.get(c, (0x80, 0xBF))
        return n if n < n_char and (n == 1 or low <= data[1 - n] <= high) else 0
    return 0


class Joiner:
    """Joins tokens: `add` appends one, `fetch` returns and removes the text that is complete.

    n_open: number of bytes that wait for the rest of a character. special: control tokens give
    their text; without it, nothing. prefix: remove the space that the vocabulary puts before a
    text, before text that follows an added token and, with `special`, before text that follows
    a control token.
    """

    def __init__(self, vocab: "Vocab", special: bool = False, prefix: bool = True) -> None:
        self._vocab, self._special, self._strip = vocab, special, prefix and vocab.add_prefix
        self._at_start = self._strip
        self._parts = []

    def add(self, i: int) -> None:
        """Append token `i`."""
        data = self._vocab.bytes_of(i, self._special)
        if self._strip and data:
            splits = self._vocab.splits(i)
            self._parts.append(data.removeprefix(b" ") if self._at_start and not splits else data)
            self._at_start = splits
        else:
            self._parts.append(data)

    def fetch(self) -> bytes:
        """Return and remove the text of the added tokens, as UTF-8 (bytes). The start of an
        incomplete character stays.
        """
        data = b"".join(self._parts)
        n = len(data) - n_open_bytes(data)
        self._parts = [data[n:]]
        return data[:n].decode("utf-8", "replace").encode()

    @property
    def n_open(self) -> int:
        """Number of bytes that wait for the rest of a character."""
        return n_open_bytes(b"".join(self._parts))
