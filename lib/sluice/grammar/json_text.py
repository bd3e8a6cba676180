"""Texts as they stand within JSON strings, and automata over bytes that match them.

An automaton (Made) is made once and copied into each grammar that needs it: nodes of arcs (lo, hi,
target), the first one the start. Targets are nodes, or AFTER and FREE, which the grammar knows.
"""

import functools

from .charset import complement, without_surrogates
from .utf8 import class_arcs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

SHORT = {8: "b", 9: "t", 10: "n", 12: "f", 13: "r", 34: '"', 92: "\\"}  # JSON's short escapes


def json_text(text: str) -> bytes:
    """Return `text` as within a JSON string, in UTF-8."""
    out = []
    for c in text:
        point = ord(c)
        if point in SHORT:
            out.append("\\" + SHORT[point])
        elif point < 32 or 0xD800 <= point <= 0xDFFF:
            out.append(f"\\u{point:04x}")
        else:
            out.append(c)
    return "".join(out).encode()


FREE, AFTER = -2, -1  # places behind the last node
BEYOND_ASCII = without_surrogates(complement([(0, 127)]))


def _hex(*digits):
    """Return the byte ranges of hexadecimal digits, each given as (lo, hi)."""
    out = []
    for lo, hi in digits:
        if lo < 10:
            out.append((48 + lo, 48 + min(hi, 9)))
        if hi > 9:
            out += [(55 + max(lo, 10), 55 + hi), (87 + max(lo, 10), 87 + hi)]
    return tuple(sorted(out))


ANY_HEX = _hex((0, 15))
ZERO = _hex((0, 0))
PAIR = (
    _hex((13, 13)), _hex((8, 11)), ANY_HEX, ANY_HEX, ((0x5C, 0x5C),), ((0x75, 0x75),),
    _hex((13, 13)), _hex((12, 15)), ANY_HEX, ANY_HEX,
)  # fmt: skip
# steps of \\u forms: of all characters; of those that need one; of those beyond ASCII
UNITS = (
    (_hex((0, 12), (14, 15)), ANY_HEX, ANY_HEX, ANY_HEX),
    (_hex((13, 13)), _hex((0, 7)), ANY_HEX, ANY_HEX),
    PAIR,
)
NEEDED_UNITS = (
    (ZERO, ZERO, ZERO, _hex((0, 7), (11, 11), (14, 15))),
    (ZERO, ZERO, _hex((1, 1)), ANY_HEX),
    (ZERO, ZERO, _hex((7, 7)), _hex((15, 15))),
)
BEYOND_UNITS = (
    (ZERO, ZERO, _hex((8, 15)), ANY_HEX),
    (ZERO, _hex((1, 15)), ANY_HEX, ANY_HEX),
    (_hex((1, 12), (14, 15)), ANY_HEX, ANY_HEX, ANY_HEX),
    (_hex((13, 13)), _hex((0, 7)), ANY_HEX, ANY_HEX),
    PAIR,
)


class Made:
    """The automaton of one character and, with a quote, of the rest of a string.

    after: where a character leads. units: the \\u forms that are allowed. any_escape: whether
    characters that need no escape may have one. quote: whether a quote leads to AFTER.
    """

    def __init__(self, after: int, units: "Any", any_escape: bool, quote: bool) -> None:
        self._after, self._units_allowed = after, units
        self._any_escape, self._quote = any_escape, quote

    @functools.cached_property
    def arcs(self) -> "list[Any]":
        """Arcs of each node. Made when a grammar needs them, since that takes 5 ms."""
        self._arcs, self._known = [[]], {}
        after = self._after
        short = '"/\\bfnrt' if self._any_escape else '"\\bfnrt'
        escapes = [(ord(c), ord(c), after) for c in short]
        escapes.append((0x75, 0x75, self._units(after, self._units_allowed)))
        arcs = [(0x20, 0x21, after), (0x23, 0x5B, after), (0x5D, 0x7F, after)]
        arcs.append((0x5C, 0x5C, self._node(escapes)))
        arcs += class_arcs(BEYOND_ASCII, after, self._node)
        self._arcs[0] = sorted(arcs + ([(0x22, 0x22, AFTER)] if self._quote else []))
        return self._arcs

    def _node(self, arcs):
        arcs = tuple(sorted(arcs))
        if arcs not in self._known:
            self._arcs.append(arcs)
            self._known[arcs] = len(self._arcs) - 1
        return self._known[arcs]

    def _units(self, after, units):
        tree = {}
        for steps in units:
            at = tree
            for step in steps[:-1]:
                at = at.setdefault(step, {})
            at[steps[-1]] = None
        return self._tree(after, tree)

    def _tree(self, after, tree):
        return self._node(
            (lo, hi, after if below is None else self._tree(after, below))
            for step, below in tree.items()
            for lo, hi in step
        )


CHARACTER = Made(AFTER, UNITS, True, False)
REST = Made(0, UNITS, True, True)
# the same where names are still possible that are not allowed: one form of each character. Names
# beyond ASCII could be escaped, so such escapes are not allowed then.
BOUND = Made(FREE, NEEDED_UNITS + BEYOND_UNITS, False, True)
BOUND_ASCII = Made(FREE, NEEDED_UNITS, False, True)
