"""Prompt look-up: guess that a text goes on as it did where its last tokens stood before.

Saxena 2023, "Prompt Lookup Decoding". A match is a place in the text behind tokens that equal its
last ones, N of them or more. It is followed as long as the text agrees with what stands there; only
then is the latest other place looked for, by the last N tokens.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

N = 3  # tokens of a match at least
MAX_LENGTH = 32  # a longer match counts as this


class Lookup:
    """The tokens of a text, and the match of its end.

    length: tokens of the match, 0 without one.
    """

    def __init__(self) -> None:
        self._tokens: list[int] = []
        self._places: dict[tuple[int, ...], int] = {}  # N tokens: the place behind them, the latest
        self._at, self.length = 0, 0

    def __len__(self) -> int:
        return len(self._tokens)

    @property
    def next(self) -> int | None:
        """The token with which the text goes on according to the match; None without one."""
        return self._tokens[self._at] if self.length else None

    def extend(self, tokens: "Sequence[int]") -> None:
        """Append `tokens` to the text."""
        text, places = self._tokens, self._places
        for token in tokens:
            if self.length and text[self._at] == token:
                self._at, self.length = self._at + 1, min(self.length + 1, MAX_LENGTH)
            else:
                self.length = 0
            text.append(token)
            key = tuple(text[-N:])
            place = places.get(key)
            places[key] = len(text)
            if not self.length and place is not None:
                self._at, self.length = place, self._common(place)

    def guess(self, n: int) -> list[int]:
        """Return `n` tokens that follow according to the match, [] without one. Behind the end of
        the text its repetition goes on.
        """
        if not self.length:
            return []
        text, at = self._tokens, self._at
        found = text[at : at + n]
        while len(found) < n:
            found += found[: n - len(found)]
        return found

    def _common(self, place):
        """Return how many tokens before `place` equal the last ones."""
        text, n = self._tokens, N
        while n < MAX_LENGTH and place > n and text[place - 1 - n] == text[-1 - n]:
            n += 1
        return n
