"""The opposite of a schema: one alternative for each keyword that may not hold."""

from . import formats
from .logic import ASSERTIONS, EXCLUDED, NOT_MULTIPLE, NOT_PATTERN, WHOLE, NoNegation
from .values import TYPES, is_whole, type_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .logic import Logic


def alternatives(logic: "Logic", node: "Any") -> "list[list[tuple[Any, bool]]]":
    """Return lists of literals: `node` does not hold exactly if all of one list hold.

    NoNegation.
    """
    out = []
    for keyword, value in node.items():
        if keyword not in ASSERTIONS:
            continue
        found = _of_keyword(logic, node, keyword, value)
        for i, each in enumerate(found):
            if isinstance(each, dict):
                out.append([(logic.make(node, ("not", keyword, i), each), True)])
            else:
                out.append(each)
    return out


def _of_keyword(logic, node, keyword, value):
    """Return schemas (dict) or lists of literals, one of which holds if the keyword does not."""
    simple = SIMPLE.get(keyword)
    if simple:
        return simple(logic, node, keyword, value)
    if keyword == "$ref":
        return [[(logic.document.target(node, "$ref"), False)]]
    if keyword == "allOf":
        return [[(s, False)] for s in logic.schemas(node, keyword)]
    if keyword == "anyOf":
        return [[(s, False) for s in logic.schemas(node, keyword)]]
    if keyword == "oneOf":
        schemas = logic.schemas(node, keyword)
        none = [(s, False) for s in schemas]
        two = [
            [(a, True), (b, True)]
            for i, a in enumerate(schemas)
            for b in schemas[:i]
            if not logic.apart(a, b)
        ]
        return [none, *two]
    if keyword == "not":
        return [[(logic.schema(node, keyword), True)]]
    if keyword == "if":
        condition = logic.schema(node, "if")
        out = []
        if "then" in node:
            out.append([(condition, True), (logic.schema(node, "then"), False)])
        if "else" in node:
            out.append([(condition, False), (logic.schema(node, "else"), False)])
        return out
    raise NoNegation(f"the opposite of {keyword} is not supported")


def _type(logic, node, keyword, value):
    names = value if isinstance(value, list) else [value]
    known = {n for n in names if isinstance(n, str)}
    rest = [t for t in TYPES if t not in known and not (t == "number" and "integer" in known)]
    out = [{"type": rest}] if rest else []
    if "integer" in known and "number" not in known:
        out.append({"type": "number", WHOLE: False})
    return out


def _bound(logic, node, keyword, value):
    if isinstance(value, bool) or type_of(value) != "number":
        return []
    is_open = keyword.startswith("exclusive") or node.get("exclusiveM" + keyword[1:]) is True
    other = "aximum" if keyword.lower().endswith("minimum") else "inimum"
    return [{"type": "number", ("m" if is_open else "exclusiveM") + other: value}]


def _count(logic, node, keyword, value):
    count = logic.count(node, keyword)
    kind = {"Length": "string", "Items": "array", "Properties": "object"}[keyword[3:]]
    if keyword.startswith("max"):
        return [{"type": kind, "min" + keyword[3:]: count + 1}]
    return [{"type": kind, "max" + keyword[3:]: count - 1}] if count else []


def _multiple(logic, node, keyword, value):
    if type_of(value) != "number" or not is_whole(value):
        raise NoNegation(f"the opposite of {keyword} of a fraction is not supported")
    return [
        {"type": "number", WHOLE: False},
        {"type": "number", WHOLE: True, NOT_MULTIPLE: value},
    ]


def _pattern(logic, node, keyword, value):
    return [{"type": "string", NOT_PATTERN: value}]


def _format(logic, node, keyword, value):
    if not isinstance(value, str):
        raise logic.document.invalid(node, keyword, "not a text")
    if value not in formats.NUMBERS:
        raise NoNegation("the opposite of a format of texts is not supported")
    bounds = formats.NUMBERS[value]
    if not bounds:
        return []
    return [
        {"type": "number", WHOLE: False},
        {"type": "number", "exclusiveMaximum": bounds[0]},
        {"type": "number", "exclusiveMinimum": bounds[1]},
    ]


def _values(logic, node, keyword, value):
    return [{EXCLUDED: list(value) if keyword == "enum" else [value]}]


def _required(logic, node, keyword, value):
    if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
        raise logic.document.invalid(node, keyword, "not a list of names")
    return [{"type": "object", "properties": {name: False}} for name in value]


def _properties(logic, node, keyword, value):
    return [
        {"type": "object", "required": [name], "properties": {name: {"not": schema}}}
        for name, schema in logic.mapping(node, keyword).items()
        if schema is not True
    ]


def _rest(logic, node, keyword, value):
    if logic.schema(node, keyword) is True or value == {}:
        return []
    raise NoNegation(f"the opposite of {keyword} is not supported")


def _items(logic, node, keyword, value):
    if keyword == "prefixItems" or isinstance(value, list):
        schemas = logic.schemas(node, keyword, True)
        return [
            {"type": "array", "minItems": i + 1, "prefixItems": [True] * i + [{"not": s}]}
            for i, s in enumerate(schemas)
            if s is not True
        ]
    if logic.schema(node, keyword) is True:
        return []
    if value is False:
        first = len(node.get("prefixItems", ()))
        return [{"type": "array", "minItems": first + 1}]
    raise NoNegation("the opposite of items is not supported")


def _unique(logic, node, keyword, value):
    if value is True:
        raise NoNegation("the opposite of uniqueItems is not supported")
    return []


SIMPLE = {
    "type": _type,
    "minimum": _bound,
    "maximum": _bound,
    "exclusiveMinimum": _bound,
    "exclusiveMaximum": _bound,
    "minLength": _count,
    "maxLength": _count,
    "minItems": _count,
    "maxItems": _count,
    "minProperties": _count,
    "maxProperties": _count,
    "multipleOf": _multiple,
    "pattern": _pattern,
    "format": _format,
    "enum": _values,
    "const": _values,
    "required": _required,
    "properties": _properties,
    "additionalProperties": _rest,
    "items": _items,
    "prefixItems": _items,
    "uniqueItems": _unique,
}
