"""A set of schemas as alternatives of plain conditions.

A literal is (schema, True) or (schema, False): the schema holds, or it does not. `Logic.expand`
turns literals, all of which must hold, into Conjuncts: $ref and allOf are followed, anyOf, oneOf,
not, if and the like become alternatives (disjunctive normal form). A Conjunct has the conditions of
each type merged; what it says of properties and items stays as literals, for a later expansion.

A schema that does not hold is the alternative of its keywords that do not hold, each of them again
a schema.
"""

from collections import deque

from ..regex import BadPattern, Unsupported, searched
from .values import TYPES, is_whole, key, type_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from .document import Document

    Literal = tuple[Any, bool]

MAX_CONJUNCTS = 2000
MAX_ONE_OF = 100
MAX_CHAIN = 300  # schemas that hold for the same value, each because of the one before
MAX_COUNT = 1_000_000_000
ALL = frozenset(TYPES)
# What opposites say. No schema that is read can have these keys, since they are no texts.
WHOLE, EXCLUDED, NOT_PATTERN, NOT_MULTIPLE = ("whole",), ("excluded",), ("pattern",), ("multiple",)
# Keywords that say something of a value.
ASSERTIONS = frozenset({WHOLE, EXCLUDED, NOT_PATTERN, NOT_MULTIPLE}) | frozenset(
    """$ref allOf anyOf oneOf not if type enum const
    minLength maxLength pattern format minimum maximum exclusiveMinimum exclusiveMaximum multipleOf
    items prefixItems additionalItems minItems maxItems uniqueItems contains
    properties patternProperties additionalProperties required minProperties maxProperties
    propertyNames dependentRequired dependentSchemas dependencies unevaluatedItems
    unevaluatedProperties $dynamicRef $recursiveRef""".split()
)
PLAIN = frozenset(  # keywords that need no second look if a schema has only them
    "$schema $comment title description default examples readOnly writeOnly deprecated".split()
)


class Conjunct:
    """Conditions that hold together.

    types: the types that are allowed. whole: numbers are whole (True), are not (False), or either
    (None). literals: all that were merged. values: allowed values, or None.
    """

    __slots__ = (
        "types", "whole", "literals", "seen", "values", "excluded", "patterns", "formats",
        "min_length", "max_length", "low", "low_open", "high", "high_open", "multiples",
        "arrays", "min_items", "max_items", "objects", "required", "min_properties",
        "max_properties", "names", "where",
    )  # fmt: skip

    def __init__(self) -> None:
        self.types: frozenset[str] = ALL
        self.whole: bool | None = None
        self.literals: list[Literal] = []
        self.seen: set[tuple[int, bool]] = set()
        self.values: list[Any] | None = None
        self.excluded: list[Any] = []
        self.patterns: list[tuple[Any, bool]] = []
        self.formats: list[str] = []
        self.min_length, self.max_length = 0, None
        self.low = self.high = None
        self.low_open = self.high_open = False
        self.multiples: list[tuple[int, bool]] = []
        self.arrays: list[tuple[list[Any], Any]] = []
        self.min_items, self.max_items = 0, None
        self.objects: list[tuple[dict[str, Any], list[tuple[Any, Any]], Any]] = []
        self.required: dict[str, None] = {}
        self.min_properties, self.max_properties = 0, None
        self.names: list[Any] = []
        self.where: dict[str, Any] = {}  # keyword -> the schema that has it, for messages

    def bound(self, node: "Any", value: "Any", is_open: bool, is_low: bool) -> None:
        """Numbers are at least (is_low) or at most `value`; is_open: and not `value` itself."""
        if is_low:
            if self.low is None or value > self.low or (value == self.low and is_open):
                self.low, self.low_open = value, is_open
        elif self.high is None or value < self.high or (value == self.high and is_open):
            self.high, self.high_open = value, is_open
        self.where["bound"] = node

    def make_whole(self) -> None:
        """Numbers are whole."""
        if self.whole is False:
            self.types -= {"number"}
        self.whole = True

    def copy(self) -> "Conjunct":
        """Return an independent copy."""
        new = Conjunct.__new__(Conjunct)
        for slot in Conjunct.__slots__:
            value = getattr(self, slot)
            setattr(new, slot, value.copy() if isinstance(value, (list, set, dict)) else value)
        return new


class Logic:
    """Expansion of the schemas of a document."""

    def __init__(self, document: "Document") -> None:
        self.document = document
        self._opposites: dict[int, Any] = {}
        self._made: dict[Any, Any] = {}
        self._keys: dict[tuple[int, str], frozenset[Any]] = {}
        self._apart: dict[Any, bool] = {}
        self._satisfiable: dict[Any, bool | None] = {}

    def expand(self, literals: "Iterable[Literal]") -> "list[Conjunct]":
        """Return the alternatives of `literals`. Errors name keyword and place."""
        out = []
        todo = [(Conjunct(), deque((node, sign, None) for node, sign in literals), [])]
        n = 0
        while todo:
            conjunct, waiting, branches = todo.pop()
            n += 1
            self._limit(n, literals)
            if not self._merge_all(conjunct, waiting, branches):
                continue
            if not branches:
                out.append(conjunct)
                continue
            alternatives = branches.pop(0)
            self._limit(len(alternatives), literals)
            for i, alternative in enumerate(reversed(alternatives)):
                mine = conjunct if i == len(alternatives) - 1 else conjunct.copy()
                todo.append((mine, deque(alternative), list(branches)))
        return out

    def _limit(self, n, literals):
        if n > MAX_CONJUNCTS:
            raise self.document.unsupported(
                next(iter(literals))[0], "", f"more than {MAX_CONJUNCTS} combinations"
            )

    def _merge_all(self, conjunct, waiting, branches):
        """Merge all waiting literals; alternatives go to `branches`. False: nothing can hold."""
        while waiting:
            node, sign, chain = waiting.popleft()
            if node is True or node is False:
                if node is not sign:
                    return False
                continue
            if (id(node), sign) in conjunct.seen:
                self._refuse_circle(node, sign, chain)
                continue
            conjunct.seen.add((id(node), sign))
            conjunct.literals.append((node, sign))
            link = (id(node), sign, chain, (chain[3] if chain else 0) + 1)
            if link[3] > MAX_CHAIN:
                raise self.document.invalid(node, "", f"more than {MAX_CHAIN} references in a row")
            if sign:
                if not self._merge(conjunct, node, waiting, branches, link):
                    return False
            else:
                try:
                    found = self._negations(node)
                except NoNegation as e:
                    self.document.skip(node, "", str(e))
                    continue
                if not found:
                    return False
                branches.append([[(n, s, link) for n, s in each] for each in found])
            if not conjunct.types:
                return False
        return True

    def _refuse_circle(self, node, sign, chain):
        while chain:
            if chain[:2] == (id(node), sign):
                raise self.document.invalid(node, "", "refers to itself without a value in between")
            chain = chain[2]

    # one schema that holds

    def _merge(self, c, node, waiting, branches, link):
        document = self.document
        for keyword, value in node.items():
            if keyword not in ASSERTIONS:
                continue
            if keyword == "type":
                self._merge_type(c, node, value)
            elif keyword == "$ref":
                waiting.append((document.target(node, "$ref"), True, link))
            elif keyword == "allOf":
                waiting += [(s, True, link) for s in self.schemas(node, keyword)]
            elif keyword == "anyOf":
                branches.append([[(s, True, link)] for s in self.schemas(node, keyword)])
            elif keyword == "oneOf":
                branches.append(
                    [[(s, g, link) for s, g in each] for each in self._exactly_one(node)]
                )
            elif keyword == "not":
                waiting.append((self.schema(node, keyword), False, link))
            elif keyword == "if":
                condition = self.schema(node, "if")
                then = self.schema(node, "then") if "then" in node else True
                other = self.schema(node, "else") if "else" in node else True
                if then is not True or other is not True:
                    branches.append(
                        [
                            [(condition, True, link), (then, True, link)],
                            [(condition, False, link), (other, True, link)],
                        ]
                    )
            elif keyword in ("dependentRequired", "dependentSchemas", "dependencies"):
                for name, then in self._dependencies(node, keyword):
                    if not isinstance(then, list):
                        then = [then]
                    absent = self.make(node, ("absent", name), {"required": [name]})
                    branches.append(
                        [
                            [(absent, False, link)],
                            [(absent, True, link)] + [(t, True, link) for t in then],
                        ]
                    )
            elif keyword in ("enum", "const"):
                self._merge_values(c, node, keyword, value)
            else:
                merge = MERGES.get(keyword)
                if merge:
                    merge(self, c, node, keyword, value)
        if any(k in node for k in ("properties", "patternProperties", "additionalProperties")):
            self._merge_object(c, node)
        if "items" in node or "prefixItems" in node or "additionalItems" in node:
            self._merge_array(c, node)
        return c.values is None or bool(c.values)

    def _merge_type(self, c, node, value):
        names = value if isinstance(value, list) else [value]
        known = [n for n in names if isinstance(n, str) and (n in ALL or n == "integer")]
        if len(known) != len(names):
            raise self.document.invalid(node, "type", "not a type, or a list of types")
        allowed = {"number" if n == "integer" else n for n in known}
        if "integer" in known and "number" not in known:
            c.make_whole()
        c.types &= allowed

    def _merge_values(self, c, node, keyword, value):
        if keyword == "enum" and not isinstance(value, list):
            raise self.document.invalid(node, keyword, "not a list of values")
        values = value if keyword == "enum" else [value]
        if c.values is None:
            c.values = list({key(v): v for v in values}.values())
        else:
            wanted = {key(v) for v in values}
            c.values = [v for v in c.values if key(v) in wanted]

    def _merge_count(self, c, node, keyword, value):
        count = self.count(node, keyword)
        slot = SLOTS[keyword]
        c.where[keyword] = node
        old = getattr(c, slot)
        if keyword.startswith("min"):
            setattr(c, slot, max(old, count))
        else:
            setattr(c, slot, count if old is None else min(old, count))

    def count(self, node: "Any", keyword: str) -> int:
        """Return the value of a keyword that counts."""
        value = node[keyword]
        if type_of(value) != "number" or not is_whole(value) or value < 0:
            raise self.document.invalid(node, keyword, "not a number of things")
        if value > MAX_COUNT:
            raise self.document.unsupported(node, keyword, f"more than {MAX_COUNT}")
        return int(value)

    def _merge_bound(self, c, node, keyword, value):
        if isinstance(value, bool) and keyword.startswith("exclusive"):
            return  # draft 4: says how `minimum` is meant
        if type_of(value) != "number":
            raise self.document.invalid(node, keyword, "not a number")
        is_open = keyword.startswith("exclusive") or node.get("exclusiveM" + keyword[1:]) is True
        c.bound(node, value, is_open, keyword.lower().endswith("minimum"))

    def _merge_multiple(self, c, node, keyword, value):
        if type_of(value) != "number" or value <= 0:
            raise self.document.invalid(node, keyword, "not a number above 0")
        if not is_whole(value):
            return self.document.skip(
                node, keyword, "only multiples of whole numbers are supported"
            )
        c.where["multipleOf"] = node
        c.multiples.append((int(value), keyword == "multipleOf"))
        return None

    def _merge_pattern(self, c, node, keyword, value):
        tree = self.pattern(node, "pattern", value)
        if tree is not None:
            c.patterns.append((tree, keyword == "pattern"))
            c.where["pattern"] = node

    def pattern(self, node: "Any", keyword: str, value: "Any", *more: str) -> "Any":
        """Return the tree of a pattern; None: left out."""
        if not isinstance(value, str):
            raise self.document.invalid(node, keyword, "not a regular expression")
        try:
            return searched(value)
        except BadPattern as e:
            raise self.document.invalid(node, keyword, str(e)) from None
        except Unsupported as e:
            self.document.skip(node, keyword, str(e))
            return None

    def _merge_format(self, c, node, keyword, value):
        from . import formats

        if not isinstance(value, str):
            raise self.document.invalid(node, keyword, "not a text")
        if value in formats.NUMBERS:
            bounds = formats.NUMBERS[value]
            if bounds:
                c.bound(node, bounds[0], False, True)
                c.bound(node, bounds[1], False, False)
                c.make_whole()
            return None
        if value not in formats.PATTERNS:
            return self.document.skip(node, keyword, f"the format {value[:40]!r} is not supported")
        c.formats.append(value)
        c.where["format"] = node
        return None

    def _merge_required(self, c, node, keyword, value):
        if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
            raise self.document.invalid(node, keyword, "not a list of names")
        c.required.update(dict.fromkeys(value))

    def _merge_names(self, c, node, keyword, value):
        c.names.append(self.schema(node, keyword))
        c.where["propertyNames"] = node

    def _merge_unique(self, c, node, keyword, value):
        if value is not True:
            return
        if "maxItems" in node and self.count(node, "maxItems") <= 1:
            return
        self.document.skip(node, keyword, "not supported")

    def _merge_whole(self, c, node, keyword, value):
        if c.whole is (not value):
            c.types -= {"number"}
        c.whole = value

    def _merge_excluded(self, c, node, keyword, value):
        c.excluded += value

    def _unsupported(self, c, node, keyword, value):
        if keyword == "unevaluatedProperties" and value is True:
            return
        if keyword == "unevaluatedItems" and value is True:
            return
        self.document.skip(node, keyword, "not supported")

    def _merge_object(self, c, node):
        properties = self.mapping(node, "properties")
        patterns = []
        for text, schema in self.mapping(node, "patternProperties").items():
            tree = self.pattern(node, "patternProperties", text)
            if tree is not None:
                patterns.append((tree, schema))
        rest = self.schema(node, "additionalProperties") if "additionalProperties" in node else True
        c.objects.append((properties, patterns, rest))
        c.where["properties"] = node
        if any(k in node for k in ("patternProperties", "additionalProperties")):
            c.where["rest"] = node

    def _merge_array(self, c, node):
        first, rest = [], True
        if "prefixItems" in node:
            first = self.schemas(node, "prefixItems")
        if isinstance(node.get("items"), list):  # draft 7
            first = self.schemas(node, "items", True)
            rest = self.schema(node, "additionalItems") if "additionalItems" in node else True
        elif "items" in node:
            rest = self.schema(node, "items")
        c.arrays.append((first, rest))
        c.where["items"] = node

    # values of keywords

    def keys(self, node: "Any", keyword: str) -> "frozenset[Any]":
        """Return the keys (values.key) of the values that enum or const allows."""
        at = id(node), keyword
        if at not in self._keys:
            values = node[keyword] if keyword == "enum" else [node[keyword]]
            if not isinstance(values, list):
                raise self.document.invalid(node, keyword, "not a list of values")
            self._keys[at] = frozenset(map(key, values))
        return self._keys[at]

    def schema(self, node: "Any", keyword: str) -> "Any":
        """Return the schema that a keyword has."""
        value = node[keyword]
        if not isinstance(value, (dict, bool)):
            raise self.document.invalid(node, keyword, "not a schema")
        return value

    def schemas(self, node: "Any", keyword: str, may_be_empty: bool = False) -> "list[Any]":
        """Return the list of schemas that a keyword has."""
        value = node[keyword]
        if not isinstance(value, list) or not (value or may_be_empty):
            raise self.document.invalid(node, keyword, "not a list of schemas")
        for i, each in enumerate(value):
            if not isinstance(each, (dict, bool)):
                raise self.document.invalid(node, f"{keyword}", f"item {i} is not a schema")
        return value

    def mapping(self, node: "Any", keyword: str) -> "dict[str, Any]":
        """Return the schemas by name that a keyword has."""
        value = node.get(keyword, {})
        if not isinstance(value, dict):
            raise self.document.invalid(node, keyword, "not an object of schemas")
        for name, each in value.items():
            if not isinstance(each, (dict, bool)):
                raise self.document.invalid(node, keyword, f"{name[:40]!r} has no schema")
        return value

    def _dependencies(self, node, keyword):
        value = node[keyword]
        if not isinstance(value, dict):
            raise self.document.invalid(node, keyword, "not an object")
        for name, then in value.items():
            if isinstance(then, list):
                yield name, self.make(node, (keyword, name), {"required": then})
            elif isinstance(then, (dict, bool)):
                yield name, then
            else:
                raise self.document.invalid(node, keyword, f"{name[:40]!r} has no schema")

    # alternatives

    def make(self, origin: "Any", mark: "Any", node: "Any") -> "Any":
        """Return a schema made from `origin`: the same one for the same mark."""
        at = id(origin), mark
        if at not in self._made:
            self._made[at] = self.document.made(node, origin)
        return self._made[at]

    def _exactly_one(self, node):
        schemas = self.schemas(node, "oneOf")
        if self._are_constants(schemas):
            return [[(schema, True)] for schema in schemas]
        if len(schemas) > MAX_ONE_OF:
            self.document.skip(node, "oneOf", f"more than {MAX_ONE_OF} alternatives to tell apart")
            return [[(schema, True)] for schema in schemas]
        out = []
        for i, schema in enumerate(schemas):
            each = [(schema, True)]
            for j, other in enumerate(schemas):
                if i == j or self.apart(schema, other):
                    continue
                try:
                    self._negations(other)
                except NoNegation as e:
                    self.document.skip(
                        node, "oneOf", f"alternatives {i} and {j} cannot be told apart: {e}"
                    )
                    continue
                each.append((other, False))
            out.append(each)
        return out

    def _are_constants(self, schemas):
        """Whether the schemas are lists of values, none of which is in two of them."""
        found = set()
        for schema in schemas:
            if not isinstance(schema, dict) or not ("const" in schema or "enum" in schema):
                return False
            values = [schema["const"]] if "const" in schema else schema["enum"]
            if not isinstance(values, list):
                return False
            keys = {key(v) for v in values}
            if found & keys:
                return False
            found |= keys
        return True

    def apart(self, a: "Any", b: "Any") -> bool:
        """Whether no value is known to satisfy both schemas. False: some value may."""
        mark = (id(a), id(b)) if id(a) < id(b) else (id(b), id(a))
        if mark not in self._apart:
            self._apart[mark] = False  # while it is being found out
            self._apart[mark] = not self.satisfiable([(a, True), (b, True)])
        return self._apart[mark]

    def satisfiable(self, literals: "list[Literal]") -> bool:
        """Whether some value may satisfy `literals`; False only if none does."""
        from .satisfying import may_hold

        mark = frozenset((n if isinstance(n, bool) else id(n), s) for n, s in literals)
        found = self._satisfiable.get(mark)
        if found is None:
            self._satisfiable[mark] = True  # while it is being found out
            found = self._satisfiable[mark] = may_hold(self, literals)
        return found

    def names(self, schema: "Any") -> "Any":
        """Return the automaton of the names that satisfy `schema`. TooLarge."""
        from .strings import of_literals

        return of_literals(self, [(schema, True)])

    # a schema that does not hold

    def _negations(self, node):
        """Return the alternatives of `node` not holding: lists of literals. NoNegation."""
        if isinstance(node, bool):
            return [] if node else [[(True, True)]]
        if id(node) not in self._opposites:
            from .negation import alternatives

            self._opposites[id(node)] = alternatives(self, node)
        return self._opposites[id(node)]


class NoNegation(Exception):
    """A schema whose opposite cannot be written; the message says why."""


SLOTS = {
    "minLength": "min_length",
    "maxLength": "max_length",
    "minItems": "min_items",
    "maxItems": "max_items",
    "minProperties": "min_properties",
    "maxProperties": "max_properties",
}
MERGES: "dict[Any, Any]" = {
    **dict.fromkeys(SLOTS, Logic._merge_count),
    "minimum": Logic._merge_bound,
    "maximum": Logic._merge_bound,
    "exclusiveMinimum": Logic._merge_bound,
    "exclusiveMaximum": Logic._merge_bound,
    "multipleOf": Logic._merge_multiple,
    NOT_MULTIPLE: Logic._merge_multiple,
    "pattern": Logic._merge_pattern,
    NOT_PATTERN: Logic._merge_pattern,
    "format": Logic._merge_format,
    "required": Logic._merge_required,
    "propertyNames": Logic._merge_names,
    "uniqueItems": Logic._merge_unique,
    WHOLE: Logic._merge_whole,
    EXCLUDED: Logic._merge_excluded,
    "contains": Logic._unsupported,
    "unevaluatedItems": Logic._unsupported,
    "unevaluatedProperties": Logic._unsupported,
    "$dynamicRef": Logic._unsupported,
    "$recursiveRef": Logic._unsupported,
}
