"""The text of tokens that arrive one by one, as whole UTF-8 characters.

An id may write a part of a character. What is handed on is valid UTF-8: the begin
of a character waits for the rest, and bytes that cannot become one are U+FFFD, each
longest begin of a character and each other byte once (Unicode 15.0, section 3.9,
"U+FFFD Substitution of Maximal Subparts"; so do Python and the WHATWG's decoders).
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .vocabulary import Vocab

# by lead byte; RFC 3629, section 4
SECOND = {0xE0: (0xA0, 0xBF), 0xED: (0x80, 0x9F), 0xF0: (0x90, 0xBF), 0xF4: (0x80, 0x8F)}


def n_open_bytes(data: bytes) -> int:
    """How many bytes at the end of `data` are the begin of a UTF-8 character that is not complete:
    0 to 3.
    """
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
    """Takes tokens with `add`; `take` returns the text that can be written now.

    n_open: how many bytes wait for the rest of a character.

    special: control tokens write their text, else nothing. prefix: the blank that
    the vocabulary puts before a text (also before one that follows an added token and,
    with `special`, one that follows a control token) is taken away.
    """

    def __init__(self, vocab: "Vocab", special: bool = False, prefix: bool = True) -> None:
        self._vocab, self._special, self._strip = vocab, special, prefix and vocab.add_prefix
        self._at_start = self._strip
        self._parts = []

    def add(self, i: int) -> None:
        data = self._vocab.bytes_of(i, self._special)
        if self._strip and data:
            splits = self._vocab.splits(i)
            self._parts.append(data.removeprefix(b" ") if self._at_start and not splits else data)
            self._at_start = splits
        else:
            self._parts.append(data)

    def take(self) -> bytes:
        """What was added and not taken, as UTF-8 (bytes); the begin of a character stays back."""
        data = b"".join(self._parts)
        n = len(data) - n_open_bytes(data)
        self._parts = [data[n:]]
        return data[:n].decode("utf-8", "replace").encode()

    @property
    def n_open(self) -> int:
        return n_open_bytes(b"".join(self._parts))
