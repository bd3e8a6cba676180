"""Constraint: a grammar applied to records of logits, as they are chosen from.

A record keeps the candidates that the grammar allows. Where it allows one text only, the record
keeps one candidate, the next token of that text as spelling.py has it; the sampler then has nothing
to choose. Both the filter of a pipeline and a generation in one process run `filter`, so they write
the same tokens.
"""

from .. import stream
from ..faults import data_error
from . import spelling

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ..stream import Record
    from .matcher import Matcher


class Constraint:
    """The grammar of one text.

    matcher: a new Matcher with a vocabulary. close_after: how many tokens may be chosen, at least
    one, before only the shortest text that completes them may follow. It also follows where the
    context is full. None: the text is not closed.

    is_forced: whether the last record has the only token that may come. n_closing: tokens that
    close the text.
    """

    def __init__(self, matcher: "Matcher", close_after: int | None = None) -> None:
        self.matcher, self._close_after = matcher, close_after
        self.is_forced, self.n_closing = False, 0
        self._before: list[int] = []  # the last tokens of the text
        self._plan: list[int] = []  # the tokens that must come next, the last one first
        self._ends = False  # whether nothing may follow the last of them
        self._is_closing = False

    def filter(
        self, records: "Iterable[Record]", name: str = "standard input"
    ) -> "Iterator[Record]":
        """Yield Records of `records` (a stream.LogitsReader, or an iterator of stream.Record) with
        the candidates that are allowed; the last one is an E.

        `prev` of the first record precedes the text; `prev` of each later one is the token chosen
        from the record before. All are flagged constrained, and may-end if the text so far is
        complete, also in the grammar of an earlier filter, if there is one. DataError if an E comes
        before the text is complete, unless it says that the cache is full or the maximum number of
        tokens was reached; if a chosen token is not allowed; if no candidate is allowed.
        """
        matcher, pos, n_chosen = self.matcher, -1, 0
        eog = matcher.vocab.eog
        for n, r in enumerate(records, 1):
            place = f"{name}: record {n}"
            is_chosen = n > 1 and (r.kind != b"E" or r.pos > pos and r.prev >= 0)
            if is_chosen and r.prev in eog and not matcher.complete:
                raise data_error(
                    place, f"token {r.prev} ends the text before it is complete in the grammar"
                )
            if is_chosen and r.prev not in eog:
                self._accept(r.prev, place)
            n_chosen += is_chosen
            marks, pos = stream.CONSTRAINED, r.pos
            if matcher.complete and r.is_complete:
                marks |= stream.MAY_END
            if r.kind == b"E":
                if not matcher.complete and r.end_before() == "stop":
                    raise data_error(
                        place, "the input ends before the text is complete in the grammar"
                    )
                if r.flags & stream.FULL and self._close_after and not matcher.complete:
                    yield from self._closed(pos, r.prev, r.flags)
                else:
                    yield stream.Record(b"E", r.flags & ~stream.MAY_END | marks, pos, r.prev, b"")
                return
            if n_chosen == self._close_after:
                self.close()
            if self._is_closing and not self._plan:
                yield stream.Record(b"E", stream.LENGTH | marks, pos, r.prev, b"")
                return
            kept, last = None, False
            if matcher.open and not (is_chosen and r.prev in eog):
                kept, last = self._narrow(r)
            if kept is None:
                if not marks & stream.MAY_END:
                    raise data_error(place, "none of the candidates is allowed by the grammar")
                yield stream.Record(b"E", marks, pos, r.prev, b"")
                return
            last = last and bool(r.flags & stream.LAST or not r.flags & stream.CONSTRAINED)
            if self._is_closing:  # the record behind the last token tells why the text ends
                last = False
            kept.flags = marks | (stream.LAST if last else 0)
            yield kept
            if last:
                ends = stream.CONSTRAINED | stream.MAY_END
                yield stream.Record(b"E", ends, pos + 1, -1, b"")
                return

    def close(self) -> None:
        """Let only the shortest text follow that completes what has been written. DataError."""
        if self._is_closing:
            return
        self._is_closing = True
        matcher = self.matcher
        self._plan = spelling.closing(matcher, matcher.vocab, self._before)[::-1]
        self.n_closing = len(self._plan)

    def closing(self, name: str = "standard input") -> "Iterator[int]":
        """Close the text after the end of its records: yield the tokens that complete it."""
        self.close()
        while self._plan:
            token = self._plan[-1]
            self._accept(token, name)
            yield token

    def _closed(self, pos, prev, flags):
        """Close the text where the records end, as the limit or the context does."""
        marks = stream.CONSTRAINED
        for token in self.closing():
            payload = stream.CANDIDATE.pack(token, 0.0)
            yield stream.Record(b"C", marks, pos, prev, payload)
            pos, prev = pos + 1, token
        yield stream.Record(b"E", flags | marks | stream.MAY_END, pos, prev, b"")

    def _accept(self, token, place):
        """Append `token` to the text."""
        if token < 0 or not self.matcher.accept(token):
            raise data_error(place, f"token {token} was chosen, but the grammar does not allow it")
        if self._plan and self._plan[-1] == token:
            self._plan.pop()
        else:
            self._plan = []
        self._before = [*self._before[1 - spelling.N_BEFORE :], token]

    def _narrow(self, r):
        """Return (record, last): the Record `r` with what is allowed, None without; and whether
        each of its candidates ends the text.
        """
        matcher = self.matcher
        if not self._plan and not self._is_closing:
            tokens, self._ends = spelling.forced(matcher, matcher.vocab, self._before)
            self._plan = tokens[::-1]
        self.is_forced = False
        if self._plan:
            kept = r.only(self._plan[-1])
            if kept is not None:
                self.is_forced = not self._is_closing
                return kept, self._ends and len(self._plan) == 1
            if self._is_closing:
                return None, False
            self._plan = []  # another filter does not allow the token
        allowed, last = matcher.allowed()
        return matcher.narrow(r, allowed), last
