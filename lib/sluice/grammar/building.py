"""Nodes of a grammar's syntax tree, made by compilers rather than read from GBNF.

A Builder adds nodes and rules to a Syntax. Every node has one parent; shared parts are rules. What
matches nothing is a choice of no parts; `finish` removes all that needs it.
"""

from ..faults import data_error
from .charset import complement, merge, without_surrogates
from .check import productive_and_nullable
from .json_text import SHORT, json_text
from .regex import ALT, REP, SEQ, SET
from .syntax import (
    CHOICE,
    CLASS,
    JSON_CHARACTER,
    JSON_REST,
    MAX_ELEMENTS,
    NAME,
    REPEAT,
    SEQUENCE,
    TEXT,
    TOKEN,
    Syntax,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from .regular import Dfa

CONTROL_RANGES = ((0, 7), (11, 11), (14, 31), (127, 127))  # without a short escape
BARE = without_surrogates(complement([(0, 31), (34, 34), (92, 92)]))
HEX_CLASS = ((48, 57), (65, 70), (97, 102))
MAX_ESCAPED_RANGES = 16  # a class of more ranges beyond ASCII has no \\u forms


class Builder:
    """Makes a Syntax."""

    def __init__(self, name: str, syntax: "Syntax | None" = None) -> None:
        self.syntax = syntax or Syntax("", name)
        self._sets: dict[Any, str] = {}
        self._names: dict[str, int] = dict.fromkeys(self.syntax.rules, 1)

    def _add(self, kind, value, _):
        if len(self.syntax.kind) >= 4 * MAX_ELEMENTS:
            raise data_error(
                self.syntax.name, f"needs a grammar of more than {4 * MAX_ELEMENTS} nodes"
            )
        return self.syntax.add(kind, value, 0)

    # nodes

    def text(self, data: bytes) -> int:
        """Return a node that matches `data`."""
        return self._add(TEXT, data, 0)

    def token(self, token: int) -> int:
        """Return a node that matches a token of the model."""
        return self._add(TOKEN, (False, token), 0)

    def characters(self, ranges: "tuple[tuple[int, int], ...]") -> int:
        """Return a node that matches one character of `ranges`."""
        return self._add(CLASS, ranges, 0) if ranges else self.nothing()

    def sequence(self, nodes: "Sequence[int]") -> int:
        """Return a node that matches `nodes` one after the other."""
        return nodes[0] if len(nodes) == 1 else self._add(SEQUENCE, list(nodes), 0)

    def choice(self, nodes: "Sequence[int]") -> int:
        """Return a node that matches one of `nodes`; without nodes it matches nothing."""
        return nodes[0] if len(nodes) == 1 else self._add(CHOICE, list(nodes), 0)

    def nothing(self) -> int:
        """Return a node that matches no text, not even the empty one."""
        return self._add(CHOICE, [], 0)

    def empty(self) -> int:
        """Return a node that matches the empty text."""
        return self._add(SEQUENCE, [], 0)

    def repeat(self, node: int, minimum: int, maximum: "int | None") -> int:
        """Return a node that matches `node` so many times."""
        if (minimum, maximum) == (1, 1):
            return node
        return self._add(REPEAT, (node, minimum, maximum), 0)

    def name(self, name: str) -> int:
        """Return a node that matches what rule `name` matches."""
        return self._add(NAME, name, 0)

    # rules

    def fresh(self, wanted: str) -> str:
        """Return a rule's name like `wanted` that is not in use."""
        short = "".join(c if c.isascii() and c.isalnum() else "-" for c in wanted[:40])
        name = short
        while name in self._names:
            name = f"{short}-{self._names[short]}"
            self._names[short] += 1
        self._names[name] = 1
        return name

    def rule(self, name: str, node: int) -> None:
        """Define rule `name`."""
        self.syntax.rules[name] = node
        self.syntax.rule_at[name] = 0

    # languages

    def tree(self, tree: "Any", character: "Callable[[Any], int]") -> int:
        """Return the node of a tree of regex.py. character(ranges): the node of a class."""
        kind = tree[0]
        if kind == SET:
            return character(tree[1])
        if kind == SEQ:
            return self._texts([self.tree(t, character) for t in tree[1]])
        if kind == ALT:
            return self.choice([self.tree(t, character) for t in tree[1]])
        assert kind == REP
        if tree[3] == 0:
            return self.empty()
        return self.repeat(self.tree(tree[1], character), tree[2], tree[3])

    def _texts(self, nodes):
        """Return the sequence of `nodes`, with neighbouring texts joined."""
        kind, value, out = self.syntax.kind, self.syntax.value, []
        for node in nodes:
            if out and kind[node] == TEXT and kind[out[-1]] == TEXT:
                value[out[-1]] += value[node]
            else:
                out.append(node)
        return self.sequence(out)

    def dfa(self, dfa: "Dfa", character: "Callable[[Any], int]", wanted: str) -> int:
        """Return the node of an automaton, whose states become rules."""
        if dfa.is_empty:
            return self.nothing()
        names = [self.fresh(wanted) for _ in dfa.arcs]
        for name, arcs, accepts in zip(names, dfa.arcs, dfa.accepts):
            by_target: dict[int, list[tuple[int, int]]] = {}
            for lo, hi, target in arcs:
                by_target.setdefault(target, []).append((lo, hi))
            parts = [
                self.sequence(
                    [character(without_surrogates(merge(ranges))), self.name(names[target])]
                )
                for target, ranges in by_target.items()
            ]
            if accepts:
                parts.append(self.empty())
            self.rule(name, self.choice(parts))
        return self.name(names[0])

    def plain_character(self, ranges: "tuple[tuple[int, int], ...]") -> int:
        """Return the node of a character that stands for itself."""
        if len(ranges) == 1 and ranges[0][0] == ranges[0][1]:
            return self.text(chr(ranges[0][0]).encode())
        return self.characters(ranges)

    def json_character(self, ranges: "tuple[tuple[int, int], ...]") -> int:
        """Return the node of a character within a JSON string.

        A character may stand for itself; quotes, backslashes and control characters are escaped;
        characters beyond ASCII may be. Other escapes of ASCII are not allowed.
        """
        if len(ranges) == 1 and ranges[0][0] == ranges[0][1] and ranges[0][0] < 127:
            point = ranges[0][0]
            if point >= 32 or point in SHORT:
                return self.text(json_text(chr(point)))
        if all(32 <= lo and hi < 127 for lo, hi in ranges) and not any(
            lo <= c <= hi for lo, hi in ranges for c in (34, 92)
        ):
            return self.characters(ranges)
        if ranges not in self._sets:
            self._sets[ranges] = name = self.fresh("character")
            self.rule(name, self._json_set(ranges))
        return self.name(self._sets[ranges])

    def any_character(self) -> int:
        """Return the node of one character of a JSON string, in any form, but no lone surrogate."""
        return self._add(JSON_CHARACTER, None, 0)

    def free_character(self) -> int:
        """Return what `any_character` is, in nodes that GBNF has, too."""
        short = (*SHORT.values(), "/")
        escapes = [self.characters(tuple(merge([(ord(c), ord(c)) for c in short])))]
        escapes += self._unicode_escapes([(0, 0x10FFFF)])
        return self.choice(
            [self.characters(BARE), self.sequence([self.text(b"\\"), self.choice(escapes)])]
        )

    def rest_of_string(self, names: "Sequence[str]" = ()) -> int:
        """Return the node of the rest of a JSON string behind its first quote, with the second,
        but for the texts `names`.
        """
        return self._add(JSON_REST, tuple(names), 0)

    def _json_set(self, ranges):
        inside = lambda c: any(lo <= c <= hi for lo, hi in ranges)
        bare = without_surrogates(merge(_common(ranges, BARE)))
        parts = [self.characters(bare)] if bare else []
        escapes = [self.text(SHORT[c].encode()) for c in SHORT if inside(c)]
        rest = _common(ranges, CONTROL_RANGES + ((128, 0x10FFFF),))
        beyond = [r for r in rest if r[0] > 127]
        if beyond == [(128, 0x10FFFF)] or beyond == [(128, 0xD7FF), (0xE000, 0x10FFFF)]:
            escapes.append(self.name(self.beyond_ascii()))
        elif len(beyond) <= MAX_ESCAPED_RANGES:
            escapes += self._unicode_escapes(beyond)
        escapes += self._unicode_escapes([r for r in rest if r[1] <= 127])
        if escapes:
            parts.append(self.sequence([self.text(b"\\"), self.choice(escapes)]))
        return self.choice(parts)

    def beyond_ascii(self) -> str:
        """Return the rule of the \\u forms, without the backslash, of all characters above 127."""
        if "escape" not in self._sets:
            self._sets["escape"] = name = self.fresh("escape")
            parts = self._unicode_escapes([(128, 0xD7FF), (0xE000, 0x10FFFF)])
            self.rule(name, self.choice(parts))
        return self._sets["escape"]

    def _unicode_escapes(self, ranges):
        parts = []
        for lo, hi in ranges:
            if lo <= 0xFFFF:
                for a, b in without_surrogates([(lo, min(hi, 0xFFFF))]):
                    for digits in _hex_ranges(a, b, 4):
                        parts.append(self.sequence([self.text(b"u"), *self._hex(digits)]))
            if hi > 0xFFFF:
                for first, second in _pair_ranges(max(lo, 0x10000) - 0x10000, hi - 0x10000):
                    parts.append(
                        self.sequence(
                            [self.text(b"u"), *self._hex(first)]
                            + [self.text(b"\\u"), *self._hex(second)]
                        )
                    )
        return parts

    def _hex(self, digits):
        """Return nodes of hexadecimal digits, each within (lo, hi)."""
        out = []
        for lo, hi in digits:
            ranges = [(48 + lo, 48 + min(hi, 9))] if lo < 10 else []
            if hi > 9:
                ranges += [(55 + max(lo, 10), 55 + hi), (87 + max(lo, 10), 87 + hi)]
            out.append(self.characters(tuple(ranges)))
        return out

    # the end

    def finish(self) -> "Syntax | None":
        """Return the Syntax without rules and parts that match nothing; None if root matches
        nothing.
        """
        syntax = self.syntax
        good, syntax.nullable = productive_and_nullable(syntax)
        if not good[syntax.rules["root"]]:
            return None
        if not all(good):
            self._drop(good)
        return syntax

    def _drop(self, good):
        """Remove the nodes that are not good. What only they reach stays, and names nothing."""
        syntax = self.syntax
        kind, value = syntax.kind, syntax.value
        for i, k in enumerate(kind):
            if k == CHOICE:
                value[i] = [n for n in value[i] if good[n]]
            elif k == REPEAT and not good[value[i][0]]:
                kind[i], value[i], syntax.nullable[i] = SEQUENCE, [], True
        syntax.rules = {name: node for name, node in syntax.rules.items() if good[node]}
        for i, k in enumerate(kind):
            if k == NAME and value[i] not in syntax.rules:
                kind[i], value[i] = SEQUENCE, []


def _common(a, b):
    """Return the ranges of code points that both have."""
    out = [
        (max(lo, first), min(hi, last))
        for lo, hi in a
        for first, last in b
        if lo <= last and hi >= first
    ]
    return sorted(out)


def _hex_ranges(lo, hi, n):
    """Yield lists of n digit ranges that together are the numbers from lo to hi."""
    if n == 0:
        return [[]]
    unit = 16 ** (n - 1)
    a, b = lo // unit, hi // unit
    if lo % unit == 0 and hi % unit == unit - 1:
        return [[(a, b)] + [(0, 15)] * (n - 1)]
    if a == b:
        return [[(a, a)] + rest for rest in _hex_ranges(lo % unit, hi % unit, n - 1)]
    out = []
    if lo % unit:
        out += [[(a, a)] + rest for rest in _hex_ranges(lo % unit, unit - 1, n - 1)]
        a += 1
    last = []
    if hi % unit != unit - 1:
        last = [[(b, b)] + rest for rest in _hex_ranges(0, hi % unit, n - 1)]
        b -= 1
    if a <= b:
        out.append([(a, b)] + [(0, 15)] * (n - 1))
    return out + last


def _pair_ranges(lo, hi):
    """Return [(high, low)], digit ranges of surrogate pairs of the numbers from lo to hi."""
    out = []
    a, b = lo >> 10, hi >> 10
    first, last = lo & 1023, hi & 1023
    parts = []
    if a == b:
        parts.append((a, a, first, last))
    else:
        if first:
            parts.append((a, a, first, 1023))
            a += 1
        if last != 1023:
            parts.append((b, b, 0, last))
            b -= 1
        if a <= b:
            parts.append((a, b, 0, 1023))
    for a, b, first, last in parts:
        for high in _hex_ranges(0xD800 + a, 0xD800 + b, 4):
            for low in _hex_ranges(0xDC00 + first, 0xDC00 + last, 4):
                out.append((high, low))
    return out
