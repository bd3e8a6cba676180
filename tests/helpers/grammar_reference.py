"""A slow matcher of grammars to compare with: a fixpoint over (node, position), nothing shared with
lib/sluice.

A grammar here is {name: expression}; an expression is a tuple:

    ("text", str)  ("class", negated, ((lo, hi), ...))  ("any",)  ("name", name)
    ("sequence", parts)  ("choice", parts)  ("repeat", part, min, max or None)
"""


def gbnf(grammar):
    """The grammar as GBNF text."""
    return "".join(f"{name} ::= {show(e)}\n" for name, e in grammar.items())


def show(e):
    kind = e[0]
    if kind == "text":
        return '"' + "".join(_escape(c) for c in e[1]) + '"'
    if kind == "class":
        return (
            "["
            + "^" * e[1]
            + "".join(_escape(chr(a)) + ("-" + _escape(chr(b)) if b > a else "") for a, b in e[2])
            + "]"
        )
    if kind == "any":
        return "."
    if kind == "name":
        return e[1]
    if kind == "sequence":
        return "(" + " ".join(map(show, e[1])) + ")"
    if kind == "choice":
        return "(" + " | ".join(map(show, e[1])) + ")"
    _, part, least, most = e
    suffix = {(0, None): "*", (1, None): "+", (0, 1): "?"}.get((least, most))
    if suffix is None:
        suffix = f"{{{least}}}" if least == most else f"{{{least},{'' if most is None else most}}}"
    return f"({show(part)}){suffix}"


def _escape(c):
    if c in '"\\[]':
        return "\\" + c
    return (
        c
        if c.isalnum() and c.isascii()
        else f"\\x{ord(c):02X}"
        if ord(c) < 256
        else f"\\U{ord(c):08X}"
    )


def expressions(e):
    """`e` and all within it."""
    todo = [e]
    while todo:
        e = todo.pop()
        yield e
        todo += e[1] if e[0] in ("sequence", "choice") else [e[1]] if e[0] == "repeat" else []


def can_end(grammar):
    """The names of rules that have a finite sentence."""
    good, size = set(), -1

    def ends(e):
        kind = e[0]
        if kind == "name":
            return e[1] in good
        if kind == "sequence":
            return all(map(ends, e[1]))
        if kind == "choice":
            return any(map(ends, e[1]))
        return kind != "repeat" or e[2] == 0 or ends(e[1])

    while len(good) > size:
        size = len(good)
        good |= {name for name, e in grammar.items() if ends(e)}
    return good


def left_recursive(grammar):
    """Whether some rule may begin with itself."""
    empty = Matcher(grammar, "").nullable

    def firsts(e):
        kind = e[0]
        if kind == "name":
            return {e[1]}
        if kind == "sequence":
            out = set()
            for part in e[1]:
                out |= firsts(part)
                if not empty(part):
                    break
            return out
        if kind == "choice":
            return set().union(*map(firsts, e[1]))
        return firsts(e[1]) if kind == "repeat" and e[3] != 0 else set()

    reach = {name: firsts(e) for name, e in grammar.items()}
    for _ in grammar:
        reach = {name: r.union(*(reach[n] for n in r)) for name, r in reach.items()}
    return any(name in r for name, r in reach.items())


class Matcher:
    """What `text` is to a grammar without left recursion, all of whose rules can end.

    ends(e, i): the positions where a match of e from i may end; and, as -1, whether the text runs
    out on the way, that is, text[i:] is the beginning of something that e matches.
    """

    def __init__(self, grammar, text):
        self.grammar, self.text, self.known = grammar, text, {}
        while True:  # left recursion apart one round would do; repeat to a fixpoint all the same
            before = dict(self.known)
            self.memo = {}  # (expression, position): nested repetitions would be exponential
            for name, e in grammar.items():
                for i in range(len(text) + 1):
                    self.known[name, i] = self.known.get((name, i), frozenset()) | self.ends(e, i)
            if self.known == before:
                return

    @property
    def complete(self):
        return len(self.text) in self.known["root", 0]

    @property
    def alive(self):
        return self.complete or -1 in self.known["root", 0]

    def nullable(self, e):
        return 0 in self.ends(e, 0)

    def ends(self, e, i):
        if (e, i) not in self.memo:
            self.memo[e, i] = self._ends(e, i)
        return self.memo[e, i]

    def _ends(self, e, i):
        kind, text = e[0], self.text
        if kind == "text":
            rest = text[i : i + len(e[1])]
            return frozenset(
                [i + len(rest)]
                if rest == e[1]
                else [-1]
                if e[1].startswith(rest) and i + len(rest) == len(text)
                else []
            )
        if kind in ("class", "any"):
            if i == len(text):
                return frozenset([-1])
            inside = kind == "any" or any(a <= ord(text[i]) <= b for a, b in e[2]) != e[1]
            return frozenset([i + 1] if inside else [])
        if kind == "name":
            return self.known.get((e[1], i), frozenset())
        if kind == "choice":
            return frozenset().union(*(self.ends(part, i) for part in e[1]))
        if kind == "sequence":
            at = frozenset([i])
            for part in e[1]:
                at = self._then(at, part)
            return at
        _, part, least, most = e
        at, out = frozenset([i]), set()
        seen = set()
        count = 0
        while True:
            if count >= least:
                out |= at
            out |= at & {-1}
            if count == most or not at or (count >= least and (at, min(count, least)) in seen):
                return frozenset(out)
            seen.add((at, min(count, least)))
            at = self._then(at, part)
            count += 1
            if count > least + len(self.text) + 2 and (most is None or at <= out):
                return frozenset(out)

    def _then(self, at, part):
        return frozenset(at & {-1}).union(*(self.ends(part, i) for i in at if i >= 0))
