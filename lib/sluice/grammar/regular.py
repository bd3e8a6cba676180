"""Finite automata over characters: intersection, complement and emptiness of regular languages.

They are needed where two conditions hold for one text: a pattern and a length, a name that is no
declared one. Each automaton is bounded (MAX_STATES); TooLarge says that it would not fit.
"""

from .charset import MAX_CODE_POINT, complement, merge
from .regex import ALT, REP, SEQ, SET, text_tree

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

MAX_STATES = 6000
MAX_NFA = 40_000


class TooLarge(Exception):
    """The automaton would need more than MAX_STATES states."""


class Dfa:
    """A deterministic automaton: state 0 is the start.

    arcs[s]: [(lo, hi, target)], disjoint and ascending. accepts[s]: whether a text may end in s.
    """

    def __init__(self, arcs: "list[list[tuple[int, int, int]]]", accepts: "list[bool]") -> None:
        self.arcs, self.accepts = arcs, accepts

    @property
    def is_empty(self) -> bool:
        """Whether no text is accepted. Holds for trimmed automata, as all functions return."""
        return not any(self.accepts)

    def matches(self, text: str) -> bool:
        """Whether the automaton accepts `text`."""
        state = 0
        for c in text:
            point = ord(c)
            for lo, hi, target in self.arcs[state]:
                if lo <= point <= hi:
                    state = target
                    break
            else:
                return False
        return self.accepts[state]


def of_tree(tree: "Any") -> Dfa:
    """Return the automaton of a tree of regex.py. TooLarge."""
    nfa = _Nfa(tree)
    index, sets, arcs, accepts = {}, [], [], []

    def number(states):
        closed = nfa.closure(states)
        if closed not in index:
            if len(index) >= MAX_STATES:
                raise TooLarge
            index[closed] = len(sets)
            sets.append(closed)
        return index[closed]

    number((nfa.start,))
    for closed in sets:  # grows during the loop
        edges = [edge for s in closed for edge in nfa.edges[s]]
        out = []
        for lo, hi, targets in _cut(edges):
            target = number(targets)
            if out and out[-1][2] == target and out[-1][1] + 1 == lo:
                out[-1] = (out[-1][0], hi, target)
            else:
                out.append((lo, hi, target))
        arcs.append(out)
        accepts.append(nfa.end in closed)
    return _trim(Dfa(arcs, accepts))


def _cut(edges):
    """Yield (lo, hi, targets) of disjoint ranges for overlapping `edges` [(lo, hi, target)]."""
    if len(edges) == 1:
        lo, hi, target = edges[0]
        return [(lo, hi, (target,))]
    events = []
    for lo, hi, target in edges:
        events.append((lo, 1, target))
        events.append((hi + 1, -1, target))
    events.sort()
    out, live, start = [], {}, 0
    for at, sign, target in events:
        if at > start and live:
            out.append((start, at - 1, tuple(live)))
        start = at
        count = live.get(target, 0) + sign
        if count:
            live[target] = count
        else:
            del live[target]
    return out


class _Nfa:
    """States with edges [(lo, hi, target)] and jumps [target], by Thompson's construction."""

    def __init__(self, tree):
        self.edges, self.jumps, self._closures = [], [], {}
        self.start = self._new()
        self.end = self._build(tree, self.start)

    def _new(self):
        if len(self.edges) >= MAX_NFA:
            raise TooLarge
        self.edges.append([])
        self.jumps.append([])
        return len(self.edges) - 1

    def _build(self, tree, at):
        kind = tree[0]
        if kind == SET:
            end = self._new()
            self.edges[at] += [(lo, hi, end) for lo, hi in tree[1]]
            return end
        if kind == SEQ:
            for t in tree[1]:
                at = self._build(t, at)
            return at
        if kind == ALT:
            end = self._new()
            for t in tree[1]:
                start = self._new()
                self.jumps[at].append(start)
                self.jumps[self._build(t, start)].append(end)
            return end
        assert kind == REP
        _, part, minimum, maximum = tree
        if minimum > MAX_NFA or (maximum or 0) > MAX_NFA:
            raise TooLarge
        for _ in range(minimum):
            at = self._build(part, at)
        if maximum is None:
            loop = self._new()
            self.jumps[at].append(loop)
            self.jumps[self._build(part, loop)].append(loop)
            end = self._new()
            self.jumps[loop].append(end)
            return end
        end = self._new()
        for _ in range(maximum - minimum):
            self.jumps[at].append(end)
            start = self._new()
            self.jumps[at].append(start)
            at = self._build(part, start)
        self.jumps[at].append(end)
        return end

    def closure(self, states):
        known = self._closures.get(states)
        if known is not None:
            return known
        seen, todo = set(states), list(states)
        while todo:
            for target in self.jumps[todo.pop()]:
                if target not in seen:
                    seen.add(target)
                    todo.append(target)
        # states without edges matter only if they are the end
        self._closures[states] = closed = frozenset(
            s for s in seen if self.edges[s] or s == self.end
        )
        return closed


def _trim(dfa):
    """Return `dfa` without the states from which no text is accepted."""
    back = [[] for _ in dfa.arcs]
    for s, arcs in enumerate(dfa.arcs):
        for _, _, target in arcs:
            back[target].append(s)
    live = {s for s, accepts in enumerate(dfa.accepts) if accepts}
    todo = list(live)
    while todo:
        for s in back[todo.pop()]:
            if s not in live:
                live.add(s)
                todo.append(s)
    if 0 not in live:
        return Dfa([[]], [False])
    number = {s: i for i, s in enumerate(sorted(live))}
    arcs = [[(lo, hi, number[t]) for lo, hi, t in dfa.arcs[s] if t in live] for s in sorted(live)]
    return Dfa(arcs, [dfa.accepts[s] for s in sorted(live)])


def intersection(a: Dfa, b: Dfa) -> Dfa:
    """Return the automaton of the texts that both accept. TooLarge."""
    index, pairs, arcs = {(0, 0): 0}, [(0, 0)], []
    for s, t in pairs:  # grows during the loop
        out, i, j = [], 0, 0
        x, y = a.arcs[s], b.arcs[t]
        while i < len(x) and j < len(y):
            lo, hi = max(x[i][0], y[j][0]), min(x[i][1], y[j][1])
            if lo <= hi:
                pair = (x[i][2], y[j][2])
                if pair not in index:
                    if len(pairs) >= MAX_STATES:
                        raise TooLarge
                    index[pair] = len(pairs)
                    pairs.append(pair)
                out.append((lo, hi, index[pair]))
            if x[i][1] < y[j][1]:
                i += 1
            else:
                j += 1
        arcs.append(out)
    return _trim(Dfa(arcs, [a.accepts[s] and b.accepts[t] for s, t in pairs]))


def inverse(dfa: Dfa) -> Dfa:
    """Return the automaton of the texts that `dfa` refuses."""
    sink = len(dfa.arcs)
    arcs = []
    for out in dfa.arcs:
        rest = complement(merge([(lo, hi) for lo, hi, _ in out]))
        arcs.append(sorted(out + [(lo, hi, sink) for lo, hi in rest]))
    arcs.append([(0, MAX_CODE_POINT, sink)])
    return _trim(Dfa(arcs, [not accepts for accepts in dfa.accepts] + [True]))


def of_words(words: "Iterable[str]") -> Dfa:
    """Return the automaton of exactly these texts."""
    arcs, accepts = [{}], [False]
    for word in words:
        state = 0
        for c in word:
            target = arcs[state].get(ord(c))
            if target is None:
                arcs.append({})
                accepts.append(False)
                arcs[state][ord(c)] = target = len(arcs) - 1
            state = target
        accepts[state] = True
    return Dfa([[(c, c, t) for c, t in sorted(out.items())] for out in arcs], accepts)


def of_lengths(minimum: int, maximum: "int | None") -> Dfa:
    """Return the automaton of the texts with that many characters. TooLarge."""
    n = minimum if maximum is None else maximum
    if n >= MAX_STATES:
        raise TooLarge
    arcs: list[list[tuple[int, int, int]]] = [[(0, MAX_CODE_POINT, i + 1)] for i in range(n)]
    arcs.append([(0, MAX_CODE_POINT, n)] if maximum is None else [])
    return _trim(Dfa(arcs, [i >= minimum for i in range(n + 1)]))


def of_multiples(number: int) -> Dfa:
    """Return the automaton of the multiples of `number`, as JSON writes them. TooLarge."""
    if 2 * number + 2 >= MAX_STATES:
        raise TooLarge
    # 0: nothing read; 1: a sign; 2: zero; 3 + r: digits with the remainder r
    arcs = [[], [], []]
    for state in (0, 1):
        arcs[state] = [(45, 45, 1)] if state == 0 else []
        arcs[state].append((48, 48, 2))
        arcs[state] += [(48 + d, 48 + d, 3 + d % number) for d in range(1, 10)]
    for r in range(number):
        arcs.append([(48 + d, 48 + d, 3 + (10 * r + d) % number) for d in range(10)])
    return _trim(Dfa(arcs, [False, False, True] + [r == 0 for r in range(number)]))


def of_text(text: str) -> Dfa:
    """Return the automaton of one text."""
    return of_tree(text_tree(text))
