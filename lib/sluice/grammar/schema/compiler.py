"""JSON Schema to a grammar's syntax tree.

Each set of schemas that hold for the same value becomes a rule (`Compiler.value`); rules are made
one by one from a list, so that schemas may refer to each other in circles. What no value satisfies
matches nothing, and the builder removes it.
"""

from ...faults import data_error
from ..building import Builder
from ..json_text import json_text
from ..regex import EVERY, REP, SET
from . import arrays, numbers, objects, strings
from .document import Document
from .layout import Layout
from .logic import ASSERTIONS, Logic
from .validation import holds_all
from .values import TYPES, type_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..syntax import Syntax
    from .logic import Conjunct


def compile(
    source: bytes, name: str, note: "Any" = None, indent: "int | None" = None, fixed: bool = False
) -> "Syntax":
    """Return the Syntax of the JSON texts that the schema `source` allows.

    name: for messages. note: lax mode, see Document. indent, fixed: see Layout.
    DataError for an invalid schema, or one that allows nothing; UnsupportedError for a keyword that
    cannot be honoured. Both name the place.
    """
    document = Document(source, name, note)
    try:
        syntax = Compiler(document, Layout(indent, fixed)).run()
    except RecursionError:
        raise data_error(name, "schema nested too deeply") from None
    if syntax is None:
        raise data_error(name, "the schema allows no value")
    return syntax


def compile_object(builder: Builder, source: bytes, name: str, note: "Any" = None) -> str:
    """Return the rule, in the grammar of `builder`, of the JSON objects that the schema allows.

    Arguments and errors as of `compile`. If there is no such object `builder.finish` removes it.
    """
    document = Document(source, name, note)
    try:
        return Compiler(document, Layout(None), builder).rule("object")
    except RecursionError:
        raise data_error(name, "schema nested too deeply") from None


class Compiler:
    """Makes the rules of a document, in a grammar of its own or in that of `builder`."""

    def __init__(
        self, document: Document, layout: Layout, builder: "Builder | None" = None
    ) -> None:
        self.document, self.layout = document, layout
        self.logic, self.builder = Logic(document), builder or Builder(document.name)
        self.current = "root"  # like the rule that is being made
        self._rules: dict[Any, str] = {}
        self._todo: list[tuple[str, list[Any], int]] = []
        self._shared: dict[str, str] = {}
        self._names: dict[frozenset[str], str] = {}

    def run(self) -> "Syntax | None":
        """Return the Syntax; None if no value satisfies the schema."""
        self.rule()
        return self.builder.finish()

    def rule(self, kind: "str | None" = None) -> str:
        """Make the rules; return the one of the values that satisfy the schema, and are of the type
        `kind`.
        """
        name, literals = self.builder.fresh("root"), [(self.document.root, True)]
        if kind:
            wanted = self.document.made({"type": kind}, self.document.root)
            literals.append((wanted, True))
        self._define(name, literals, 0)
        while self._todo:
            self._define(*self._todo.pop())
        return name

    def value(self, literals: "list[Any]", depth: int, wanted: str) -> int:
        """Return the node of the values for which `literals` hold, at `depth`."""
        b = self.builder
        kept = []
        for node, sign in literals:
            if isinstance(node, bool):
                if node is not sign:
                    return b.nothing()
            elif sign is False or any(k in ASSERTIONS for k in node):
                kept.append((node, sign))
        if len(kept) == 1 and kept[0][1]:
            node = kept[0][0]
            kind = node.get("type")
            if isinstance(kind, str) and kind in SHARED and sum(k in ASSERTIONS for k in node) == 1:
                return b.name(self._simple(kind))
        level = self.layout.level(depth)
        key = frozenset((id(n), s) for n, s in kept), level
        if key not in self._rules:
            self._rules[key] = name = b.fresh(wanted if kept else "value")
            self._todo.append((name, kept, level))
        return b.name(self._rules[key])

    def _define(self, name, literals, depth):
        self.current = name
        parts = []
        for c in self.logic.expand(literals):
            parts += self._parts(c, depth)
        self.builder.rule(name, self.builder.choice(parts))

    def _parts(self, c: "Conjunct", depth: int) -> "list[int]":
        """Return the nodes of the alternatives of a Conjunct."""
        if c.values is not None:
            values = [v for v in c.values if holds_all(self.logic, c.literals, v)]
            return [node for v in values for node in self._constant(v, depth, bool(c.whole))]
        return [node for kind in TYPES if kind in c.types for node in MAKERS[kind](self, c, depth)]

    # constants

    def _constant(self, value, depth, is_whole=False):
        """Return the alternative nodes of one value. is_whole: a number is an integer."""
        b = self.builder
        kind = type_of(value)
        if kind == "string":
            return [b.sequence([b.text(b'"'), *self.string_text(value), b.text(b'"')])]
        if kind == "number":
            return [b.text(text.encode()) for text in numbers.texts(value, is_whole)]
        if kind in ("null", "boolean"):
            return [b.text({None: b"null", True: b"true", False: b"false"}[value])]
        if not value:
            return [b.text(b"{}" if kind == "object" else b"[]")]
        nodes = [b.text((b"{" if kind == "object" else b"[") + self.layout.open(depth))]
        for i, item in enumerate(value):
            if i:
                nodes += self.layout.comma(b, depth)
            if kind == "object":
                nodes += [b.text(b'"'), *self.string_text(item), b.text(b'":')]
                nodes += self.layout.colon(b)
                item = value[item]
            nodes.append(b.choice(self._constant(item, depth + 1)))
        nodes += self.layout.close(b, depth)
        return [b.sequence([*nodes, b.text(b"}" if kind == "object" else b"]")])]

    def string_text(self, text: str) -> "list[int]":
        """Return the nodes of a text within quotes; characters beyond ASCII may be escaped."""
        b = self.builder
        if text.isascii():
            return [b.text(json_text(text))]
        out = []
        for c in text:
            out.append(
                b.text(json_text(c)) if ord(c) < 128 else b.json_character(((ord(c), ord(c)),))
            )
        return out

    # types

    def _simple(self, kind):
        """Return the rule of all values of a type without conditions."""
        if kind not in self._shared:
            b = self.builder
            self._shared[kind] = name = b.fresh(kind)
            if kind == "string":
                node = b.sequence([b.text(b'"'), b.rest_of_string()])
            elif kind in ("integer", "number"):
                tree = numbers.WHOLE if kind == "integer" else numbers.NUMBER
                node = b.tree(tree, b.plain_character)
            elif kind == "boolean":
                node = b.choice([b.text(b"true"), b.text(b"false")])
            else:
                node = b.text(b"null")
            b.rule(name, node)
        return self._shared[kind]

    def other_name(self, names: "list[str]") -> str:
        """Return the rule of the rest of a string, with its quote, that is none of `names`."""
        key = frozenset(names)
        if key not in self._names:
            self._names[key] = rule = self.builder.fresh("name" if names else "rest")
            self.builder.rule(rule, self.builder.rest_of_string(names))
        return self._names[key]

    def _null(self, c, depth):
        return [] if any(v is None for v in c.excluded) else [self.builder.text(b"null")]

    def _boolean(self, c, depth):
        excluded = [v for v in c.excluded if isinstance(v, bool)]
        return [
            self.builder.text(text)
            for value, text in ((True, b"true"), (False, b"false"))
            if value not in excluded
        ]

    def _number(self, c, depth):
        b = self.builder
        language = numbers.language(self.logic, c)
        if language.dfa is not None:
            return [b.dfa(language.dfa, b.plain_character, f"{self.current}-number")]
        if language.tree in (numbers.WHOLE, numbers.NUMBER):
            return [b.name(self._simple("integer" if language.tree == numbers.WHOLE else "number"))]
        return [b.tree(language.tree, b.plain_character)]

    def _string(self, c, depth):
        b = self.builder
        language = strings.language(self.logic, c)
        if language.dfa is not None:
            inner = b.dfa(language.dfa, b.json_character, f"{self.current}-text")
        elif language.tree == (REP, (SET, EVERY), 0, None):
            return [b.name(self._simple("string"))]
        elif strings.is_free(language.tree):
            inner = b.repeat(b.any_character(), language.tree[2], language.tree[3])
        else:
            inner = b.tree(language.tree, b.json_character)
        return [b.sequence([b.text(b'"'), inner, b.text(b'"')])]

    def _array(self, c, depth):
        self._refuse_excluded(c, "array")
        return [arrays.build(self, c, depth)]

    def _object(self, c, depth):
        self._refuse_excluded(c, "object")
        return [objects.build(self, c, depth)]

    def _refuse_excluded(self, c, kind):
        if any(type_of(v) == kind for v in c.excluded):
            node = next((n for n, _ in c.literals if ("excluded",) in n), c.literals[0][0])
            self.document.skip(
                node, "", f"an {kind} that must not be a certain one is not supported"
            )


SHARED = frozenset(("string", "integer", "number", "boolean", "null"))
MAKERS = {
    "null": Compiler._null,
    "boolean": Compiler._boolean,
    "number": Compiler._number,
    "string": Compiler._string,
    "array": Compiler._array,
    "object": Compiler._object,
}
