"""States of batched passes: where parts of one sequence branch off, and the copies kept for that.

Keys and values of a part are rows behind those of earlier parts, so a part can begin anywhere. A
state is that after one number of tokens. So before a pass the positions are found where later parts
begin, and while it runs the states there are copied. If all copies would take more than MAX_BYTES,
or a part begins where no state is known, it begins earlier, with the tokens that are there.
"""

from __future__ import annotations

from ..kernels import ffi

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from .interfaces import Cache
    from .packed import Part

MAX_BYTES = 1 << 28  # of copies


class Branches:
    """The states of one packed.Packed. The cache's own, after its tokens, stay as they are."""

    def __init__(self, cache: Cache, n_state: int, n_float: int) -> None:
        self._cache, self._n_state, self._n_float = cache, n_state, n_float
        self._tokens: list[int] = []  # the sequence as the rows of the cache have it
        self._now = [self._new() for _ in range(n_state)]  # states after the last row of a pass
        self._copies: dict[int, list[Any]] = {}  # by position
        self._spare: list[list[Any]] = []
        # of each part of a pass: where its states come from, None: those of now; then (tokens, what
        # the states are copied to after them, or None)
        self._steps: list[tuple[Callable[[int], Any] | None, list[tuple[int, Any]]]] = []
        self._position: int | None = None  # of now

    def _new(self):
        return ffi.new("float[]", self._n_float)

    def plan(self, parts: Sequence[Part], part_of: Callable[..., Part]) -> list[Part]:
        """Return `parts`, each beginning where states will be known, with the positions at which
        they are copied. part_of: makes a Part of position, tokens, key, None and these positions.
        """
        base = self._base()
        if self._tokens[: len(base)] != base:
            self._tokens = list(base)
        self._copies, self._position = {}, None
        tokens, kept, now, out = self._tokens, set(), -1, []
        maximum = max(1, MAX_BYTES // max(1, 4 * self._n_state * self._n_float))
        for i, part in enumerate(parts):
            known = [0, *kept]
            if tokens[: len(base)] == base:
                known.append(len(base))
            pos = part.pos
            begin = pos if now == pos else max(n for n in known if n <= pos)
            own = tokens[begin:pos] + part.tokens
            tokens[begin:] = own
            now, kept = begin + len(own), {n for n in kept if n <= pos}
            wanted = _branching(parts, i, begin, now)
            n_free = maximum - len(kept)
            if len(wanted) > n_free:
                wanted = [wanted[j * len(wanted) // n_free] for j in range(n_free)]
            kept.update(wanted)
            out.append(part_of(begin, own, part.key, None, tuple(wanted)))
        return out

    def _base(self):
        return self._cache.tokens[: self._cache.n_tok].tolist()

    def start(self, parts: Sequence[Part]) -> None:
        """Begin a pass of `parts`, those of `plan`, which may be cut."""
        self._steps = []
        for part in parts:
            source = None if part.pos == self._position else self._source(part.pos)
            self._drop(part.pos)
            self._position = part.pos + len(part.tokens)
            at, steps = part.pos, []
            for n in sorted(n for n in part.branches if at < n < self._position):
                steps.append((n - at, self._room(n)))
                at = n
            last = self._room(self._position) if self._position in part.branches else None
            steps.append((self._position - at, last))
            self._steps.append((source, steps))

    def _source(self, pos):
        """Return a function of a state's number that gives the states after `pos` tokens."""
        if pos in self._copies:
            return self._copies[pos].__getitem__
        if pos not in (0, self._cache.n_tok):
            raise ValueError(f"no states after {pos} tokens: parts must be those of `plan`")
        return self._cache.state if pos else lambda i: ffi.NULL

    def _drop(self, pos):
        """Forget copies that are of other tokens: those after `pos`."""
        for n in [n for n in self._copies if n > pos]:
            self._spare.append(self._copies.pop(n))

    def _room(self, pos):
        if pos not in self._copies:
            self._copies[pos] = (
                self._spare.pop() if self._spare else [self._new() for _ in range(self._n_state)]
            )
        return self._copies[pos]

    def change(
        self, i: int, at: int, n_float: int, change: Callable[[Any, int, int], None]
    ) -> None:
        """Forward._change_state, part by part, of state i."""
        now, n_bytes, row = self._now[i] + at, 4 * n_float, 0
        for source, steps in self._steps:
            if source:
                begin = source(i)
                if begin == ffi.NULL:
                    ffi.buffer(now, n_bytes)[:] = bytes(n_bytes)
                else:
                    ffi.memmove(now, begin + at, n_bytes)
            for n, copy in steps:
                change(now, row, n)
                row += n
                if copy:
                    ffi.memmove(copy[i] + at, now, n_bytes)


def _branching(parts, i, begin, end):
    """Return the positions after `begin`, up to `end`, at which parts after part i begin while its
    tokens are still those before them; not the next part's, if it goes on there and no other does.
    """
    found, lowest = {}, end
    for j in range(i + 1, len(parts)):
        pos = parts[j].pos
        if begin < pos <= lowest:
            found[pos] = found.get(pos, 0) + (pos < end or j > i + 1)
        lowest = min(lowest, pos)
        if lowest <= begin:
            break
    return sorted(pos for pos, n in found.items() if n)
