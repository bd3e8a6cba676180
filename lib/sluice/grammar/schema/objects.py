"""Objects: their properties, in the schema's order, as rules of a grammar.

Declared names come in the order in which the schema names them, then names that are required only,
then all others. Rule i says how an object goes on behind a comma where properties before the i-th
are done:

    tail-i ::= name-i ": " value-i more | tail-(i+1)      the second if property i is optional
    more   ::= "," "\"" tail-(i+1) | <nothing>            the second if nothing is required any more
"""

from .. import regular
from .validation import found, holds

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .compiler import Compiler
    from .logic import Conjunct

MAX_CLASSES = 64  # of names that different patterns match
MAX_TAILS = 20_000


def value_literals(c: "Conjunct", name: str) -> "list[Any]":
    """Return the literals for the value of property `name`."""
    out = []
    for properties, patterns, rest in c.objects:
        schemas = [schema for tree, schema in patterns if found(tree, name)]
        if name in properties:
            schemas.append(properties[name])
        out += [(s, True) for s in schemas or [rest]]
    return out


def build(compiler: "Compiler", c: "Conjunct", depth: int) -> int:
    """Return the node of the objects that a Conjunct allows."""
    return _Object(compiler, c, depth).node()


class _Object:
    def __init__(self, compiler, c, depth):
        self.compiler, self.c, self.depth = compiler, c, depth
        self.builder, self.logic = compiler.builder, compiler.logic
        names = dict.fromkeys(n for properties, _, _ in c.objects for n in properties)
        names.update(c.required)
        logic = self.logic
        self.known = []  # (name, literals, is required)
        for name in names:
            allowed = all(holds(logic, schema, name) for schema in c.names)
            literals = value_literals(c, name) if allowed else [(False, True)]
            self.known.append((name, literals, name in c.required))
        self.others = self._others(list(names))
        if c.min_properties > len(self.known) + bool(self.others):
            if self.others:
                logic.document.skip(
                    c.where["minProperties"],
                    "minProperties",
                    f"more than the {len(self.known)} declared names and one more: names that are"
                    " not declared may repeat",
                )
        self.minimum = min(c.min_properties, len(self.known) + bool(self.others))
        if c.min_properties > self.minimum and not self.others:
            self.minimum = c.min_properties  # never reached
        self.maximum = c.max_properties
        self.last_required = max(
            (i for i, (_, _, required) in enumerate(self.known) if required), default=-1
        )
        self.counts = bool(self.minimum or self.maximum is not None)

    def _others(self, names):
        """Return [(language, literals)] of names that are not declared. A language is an automaton,
        or a list of names that are not in it.
        """
        c, logic = self.c, self.logic
        rests = [(rest, True) for _, _, rest in c.objects]
        has_patterns = any(patterns for _, patterns, _ in c.objects)
        if any(rest is False for rest, _ in rests) and not has_patterns:
            return []
        if not has_patterns and not c.names:
            return [(names, rests)]
        node = c.where.get("rest") or c.where.get("propertyNames") or c.where.get("properties")
        try:
            start = regular.inverse(regular.of_words(names))
            for schema in c.names:
                start = regular.intersection(start, logic.names(schema))
            out = []
            done = [(start, [[] for _ in c.objects])]
            for view, (_, patterns, _) in enumerate(c.objects):
                for tree, schema in patterns:
                    dfa = regular.of_tree(tree)
                    opposite = regular.inverse(dfa)
                    split = []
                    for language, matched in done:
                        inside = regular.intersection(language, dfa)
                        if not inside.is_empty:
                            mine = [list(m) for m in matched]
                            mine[view].append(schema)
                            split.append((inside, mine))
                        outside = regular.intersection(language, opposite)
                        if not outside.is_empty:
                            split.append((outside, matched))
                    done = split
                    if len(done) > MAX_CLASSES:
                        raise regular.TooLarge
            for language, matched in done:
                literals = [
                    (s, True)
                    for (_, _, rest), schemas in zip(c.objects, matched)
                    for s in schemas or [rest]
                ]
                if not any(s is False for s, _ in literals) and not language.is_empty:
                    out.append((language, literals))
            return out
        except regular.TooLarge:
            logic.document.skip(node, "patternProperties", "its names are too many to tell apart")
            return []

    def node(self):
        b, layout, depth = self.builder, self.compiler.layout, self.depth
        tails = {}
        order = [(0, 0)]
        inner = self._tail_name(tails, order, 0, 0)
        may_be_empty = self._may_end(0, 0)
        for i, n in order:  # grows during the loop
            if len(order) > MAX_TAILS:
                raise self.logic.document.unsupported(
                    self.c.where.get("properties", self.c.literals[0][0]),
                    "",
                    "too many properties for a number of them",
                )
            self._tail(tails, order, i, n)
        opened = b.sequence(
            [b.text(layout.open(depth) + b'"'), b.name(inner)] + layout.close(b, depth)
        )
        parts = [opened]
        if may_be_empty:
            parts.append(b.empty())
        return b.sequence([b.text(b"{"), b.choice(parts), b.text(b"}")])

    def _may_end(self, i, n):
        """Whether an object may end with n properties where those before the i-th are done."""
        return i > self.last_required and n >= self.minimum

    def _tail_name(self, tails, order, i, n):
        n = n if self.counts else 0
        if (i, n) not in tails:
            tails[i, n] = self.builder.fresh(f"{self.compiler.current}-{i}")
            if (i, n) != (0, 0):
                order.append((i, n))
        return tails[i, n]

    def _tail(self, tails, order, i, n):
        """Define the rule for property i behind n properties."""
        b = self.builder
        if self.maximum is not None and n >= self.maximum:
            b.rule(tails[i, n], b.nothing())
            return
        if i == len(self.known):
            b.rule(tails[i, n], self._other(n))
            return
        name, literals, required = self.known[i]
        after = n + 1
        parts = [
            b.sequence(
                [
                    *self.compiler.string_text(name),
                    b.text(b'":'),
                    *self.compiler.layout.colon(b),
                    self.compiler.value(literals, self.depth + 1, name),
                    self._more(tails, order, i + 1, after),
                ]
            )
        ]
        if not required:
            parts.append(b.name(self._tail_name(tails, order, i + 1, n)))
        b.rule(tails[i, n], b.choice(parts))

    def _more(self, tails, order, i, n):
        """Return the node that goes on behind n properties."""
        b, layout = self.builder, self.compiler.layout
        parts = []
        if (i < len(self.known) or self.others) and (self.maximum is None or n < self.maximum):
            name = self._tail_name(tails, order, i, n)
            parts.append(b.sequence([*layout.comma(b, self.depth), b.text(b'"'), b.name(name)]))
        if self._may_end(i, n):
            parts.append(b.empty())
        return b.choice(parts)

    def _other(self, n):
        """Return the node of one and more other properties behind n."""
        b, layout = self.builder, self.compiler.layout
        if not self.others or n + 1 < self.minimum:
            return b.nothing()
        name = b.fresh(f"{self.compiler.current}-other")
        parts = []
        for language, literals in self.others:
            if isinstance(language, regular.Dfa):
                key = b.dfa(language, b.json_character, f"{self.compiler.current}-name")
                key = b.sequence([key, b.text(b'"')])
            else:
                key = b.name(self.compiler.other_name(language))
            value = self.compiler.value(literals, self.depth + 1, "other")
            parts.append(b.sequence([key, b.text(b":"), *layout.colon(b), value]))
        b.rule(name, b.choice(parts))
        again = b.sequence([*layout.comma(b, self.depth), b.text(b'"'), b.name(name)])
        maximum = None if self.maximum is None else self.maximum - n - 1
        return b.sequence([b.name(name), b.repeat(again, 0, maximum)])
