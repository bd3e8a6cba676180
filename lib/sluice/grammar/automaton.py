"""Pushdown automaton of a grammar, over bytes: nodes, arcs, targets and loops of
csrc/api/grammar.h.

Classes of code points become trees of UTF-8 byte ranges, so a character may be split over tokens in
any way, and invalid UTF-8 never matches. Counted repetitions stay counters: {0,1000000} is as small
as {0,2}.
"""

from ..faults import data_error
from ..kernels import lib
from . import json_text
from .syntax import TEXT
from .utf8 import class_arcs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .syntax import Syntax

JUMP = -1
MAX_LABELS = 200_000  # in addition to those of the syntax; a negated class needs ten


class Program:
    """Automaton of a Syntax.

    Node i of the syntax begins at label i; further labels are intermediate nodes. code[label]
    is (op, a, b) with labels as places, or (JUMP, label, 0). The result is in `start`, `node`,
    `arc`, `target`, `loop`, `exception`, `words` and
    `token` [(negated, number or text, node after)], the arguments of grammar_new.
    """

    def __init__(self, syntax: "Syntax") -> None:
        self.syntax = syntax
        n = len(syntax.kind)
        self.code = [None] * n
        self.after = [None] * n  # the label that follows each node
        self.known = {}  # (arcs) -> label
        self.classes = {}  # (ranges, label after) -> label
        self.shared = {}  # (json_text.Made, label after) -> label
        self.loops, self.loop = [], []
        self.excepts, self.exception, self.words = [], [], []
        self.terminals, self.token = [], []
        self.node, self.arc, self.target = [], [], []
        self.end = self._label((lib.GRAMMAR_RETURN, 0, 0))
        for node in syntax.rules.values():
            self.after[node] = self.end
        make = (
            self._text,
            self._class,
            self._name,
            self._sequence,
            self._choice,
            self._repeat,
            self._json_character,
            self._json_rest,
            self._token,
        )
        for i in range(n - 1, -1, -1):  # parents first: they determine the following label
            if self.after[i] is not None:
                self.code[i] = make[syntax.kind[i]](i, syntax.value[i], self.after[i])
        self._shorten()
        self.start = self._finish()

    def _label(self, code):
        if len(self.code) >= len(self.after) + MAX_LABELS:
            raise data_error(
                self.syntax.name, f"its characters and classes need more than {MAX_LABELS} nodes"
            )
        self.code.append(code)
        return len(self.code) - 1

    def _bytes(self, arcs):
        """Return a label that reads a byte by `arcs`, a tuple of (lo, hi, label); equal
        arcs share a label.
        """
        if arcs not in self.known:
            self.known[arcs] = self._label((lib.GRAMMAR_BYTES, arcs, 0))
        return self.known[arcs]

    def _text(self, i, value, after):
        for byte in reversed(value):
            after = self._bytes(((byte, byte, after),))
        return JUMP, after, 0

    def _class(self, i, ranges, after):
        if (ranges, after) not in self.classes:
            self.classes[ranges, after] = self._bytes(tuple(class_arcs(ranges, after, self._bytes)))
        return JUMP, self.classes[ranges, after], 0

    def _json_character(self, i, _, after):
        return JUMP, self._made(json_text.CHARACTER, after), 0

    def _json_rest(self, i, names, after):
        free = self._made(json_text.REST, after)
        if not names:
            return JUMP, free, 0
        ascii_only = all(map(str.isascii, names))
        bound = self._made(json_text.BOUND if ascii_only else json_text.BOUND_ASCII, after, free)
        words = sorted({json_text.json_text(name) + b'"' for name in names})
        self.excepts.append((bound, free, words))
        return lib.GRAMMAR_EXCEPT, len(self.excepts) - 1, 0

    def _token(self, i, value, after):
        self.terminals.append((*value, after))
        return lib.GRAMMAR_TOKEN, len(self.terminals) - 1, 0

    def _made(self, made, after, free=None):
        """Return the label of a json_text.Made, which leads to `after` and to `free`."""
        if (made, after) not in self.shared:
            arcs = made.arcs
            first = len(self.code)
            places = [
                *range(first, first + len(arcs)),
                free,
                after,
            ]  # FREE and AFTER are at the end
            for node in arcs:
                self._label(
                    (lib.GRAMMAR_BYTES, tuple([(lo, hi, places[to]) for lo, hi, to in node]), 0)
                )
            self.shared[made, after] = first
        return self.shared[made, after]

    def _name(self, i, name, after):
        return lib.GRAMMAR_CALL, self.syntax.rules[name], after

    def _sequence(self, i, parts, after):
        for k, part in enumerate(parts):
            self.after[part] = parts[k + 1] if k + 1 < len(parts) else after
        return JUMP, parts[0] if parts else after, 0

    def _choice(self, i, parts, after):
        """Texts are merged into one tree by their first bytes, so that a thousand words are
        one live stack.
        """
        kind, value = self.syntax.kind, self.syntax.value
        words = sorted({value[p] for p in parts if kind[p] == TEXT})
        others = [p for p in parts if kind[p] != TEXT]
        for part in others:
            self.after[part] = after
        targets = self._words(words, after) + others
        return (JUMP, targets[0], 0) if len(targets) == 1 else (lib.GRAMMAR_SPLIT, targets, 0)

    def _words(self, words, after):
        """Create labels from which exactly `words` (sorted, distinct) lead to `after`."""
        path, last = [{}], b""  # the open nodes from the root down: byte -> label
        for word in words + [b""]:
            shared = 0
            while shared < min(len(word), len(last)) and word[shared] == last[shared]:
                shared += 1
            while len(path) - 1 > shared:  # close nodes that the next word does not share
                arcs = path.pop()
                down = self._node_of(arcs, after)
                path[-1][last[len(path) - 1]] = down
            path += [{} for _ in word[shared:]]
            if word:
                path[-1][None] = True  # a word ends here
            last = word
        labels = [self._node_of(path[0], after)] if path[0] else []
        return labels + ([after] if b"" in words else [])

    def _node_of(self, arcs, after):
        ends = arcs.pop(None, False)
        branch = self._bytes(tuple((b, b, arcs[b]) for b in sorted(arcs))) if arcs else None
        if ends and branch is not None:
            return self._label((lib.GRAMMAR_SPLIT, [branch, after], 0))
        return after if ends else branch

    def _repeat(self, i, value, after):
        part, minimum, maximum = value
        if maximum == 0:
            return JUMP, after, 0
        if self.syntax.nullable[part]:
            minimum = 0
        if (minimum, maximum) in ((0, 1), (1, 1)):
            self.after[part] = after
            return (JUMP, part, 0) if minimum else (lib.GRAMMAR_SPLIT, [part, after], 0)
        if maximum is None and minimum <= 1:
            self.after[part] = (
                i if minimum == 0 else self._label((lib.GRAMMAR_SPLIT, [part, after], 0))
            )
            return (JUMP, part, 0) if minimum else (lib.GRAMMAR_SPLIT, [part, after], 0)
        self.loops.append((part, after, minimum, -1 if maximum is None else maximum))
        number = len(self.loops) - 1
        self.after[part] = self._label((lib.GRAMMAR_AGAIN, number, 0))
        return lib.GRAMMAR_REPEAT, number, 0

    def _finish(self):
        """Number the nodes reachable from root, without jumps. Return the number of root's
        node.
        """
        code, numbers, order = self.code, {}, []

        def number(label):
            label = self._follow_jumps(label)
            if label not in numbers:
                numbers[label] = len(order)
                order.append(label)
            return numbers[label]

        start = number(self.syntax.rules["root"])
        loop_of = {}
        for label in order:  # grows during the loop
            op, a, b = code[label]
            if op == lib.GRAMMAR_BYTES:
                first = len(self.arc)
                self.arc += [(number(to), lo, hi) for lo, hi, to in a]
                a, b = first, len(a)
            elif op == lib.GRAMMAR_SPLIT:
                first = len(self.target)
                self.target += [number(to) for to in a]
                a, b = first, len(a)
            elif op == lib.GRAMMAR_CALL:
                a, b = number(a), number(b)
            elif op in (lib.GRAMMAR_REPEAT, lib.GRAMMAR_AGAIN):
                if a not in loop_of:
                    part, after, minimum, maximum = self.loops[a]
                    loop_of[a] = len(self.loop)
                    self.loop.append((number(part), number(after), minimum, maximum))
                a = loop_of[a]
            elif op == lib.GRAMMAR_EXCEPT:
                bound, free, words = self.excepts[a]
                a = len(self.exception)
                self.exception.append((number(bound), number(free), len(self.words), len(words)))
                self.words += words
            elif op == lib.GRAMMAR_TOKEN:
                negated, wanted, after = self.terminals[a]
                a = len(self.token)
                self.token.append((negated, wanted, number(after)))
            self.node.append((op, a, b))
        return start

    def _shorten(self):
        """Remove the return of a rule named at the end of a rule: right recursion then
        keeps its stack flat.
        """
        for label, (op, a, b) in ((i, c) for i, c in enumerate(self.code) if c):
            if op == lib.GRAMMAR_CALL and self._follow_jumps(b) == self.end:
                self.code[label] = (JUMP, a, 0)

    def _follow_jumps(self, label):
        """Return the label at the end of the jumps from `label`."""
        passed = []
        while self.code[label][0] == JUMP:
            passed.append(label)
            label = self.code[label][1]
        for p in passed:
            self.code[p] = (JUMP, label, 0)
        return label
