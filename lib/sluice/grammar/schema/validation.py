"""Whether a value satisfies a schema. It filters the values of enum and const, and names.

The rules are those of Logic; a keyword that is refused there is refused there first.
"""

from .. import regular
from . import formats
from .logic import EXCLUDED, NOT_MULTIPLE, NOT_PATTERN, WHOLE
from .values import is_whole, key, type_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .logic import Logic

_automata: "dict[Any, regular.Dfa]" = {}


def holds_all(logic: "Logic", literals: "list[Any]", value: "Any") -> bool:
    """Whether all `literals` hold for `value`."""
    return all(holds(logic, node, value) is sign for node, sign in literals)


def holds(logic: "Logic", node: "Any", value: "Any", depth: int = 0) -> bool:
    """Whether the schema `node` holds for `value`."""
    if isinstance(node, bool):
        return node
    if depth > 250:
        raise logic.document.invalid(node, "", "refers to itself without a value in between")
    kind = type_of(value)
    for keyword, wanted in node.items():
        rule = RULES.get(keyword)
        if rule and not rule(logic, node, keyword, wanted, value, kind, depth + 1):
            return False
    return True


def found(tree: "Any", text: str) -> bool:
    """Whether the tree matches all of `text`. TooLarge."""
    if tree not in _automata:
        if len(_automata) > 1000:
            _automata.clear()
        _automata[tree] = regular.of_tree(tree)
    return _automata[tree].matches(text)


def _type(logic, node, keyword, wanted, value, kind, depth):
    names = wanted if isinstance(wanted, list) else [wanted]
    return kind in names or (kind == "number" and "integer" in names and is_whole(value))


def _among(logic, node, keyword, wanted, value, kind, depth):
    return key(value) in logic.keys(node, keyword)


def _bound(logic, node, keyword, wanted, value, kind, depth):
    if kind != "number" or isinstance(wanted, bool) or type_of(wanted) != "number":
        return True
    is_open = keyword.startswith("exclusive") or node.get("exclusiveM" + keyword[1:]) is True
    if keyword.lower().endswith("minimum"):
        return value > wanted if is_open else value >= wanted
    return value < wanted if is_open else value <= wanted


def _count(logic, node, keyword, wanted, value, kind, depth):
    if kind != {"Length": "string", "Items": "array", "Properties": "object"}[keyword[3:]]:
        return True
    n = logic.count(node, keyword)
    return len(value) >= n if keyword.startswith("min") else len(value) <= n


def _multiple(logic, node, keyword, wanted, value, kind, depth):
    if kind != "number" or type_of(wanted) != "number" or not wanted:
        return True
    return (value % wanted == 0) is (keyword == "multipleOf")


def _pattern(logic, node, keyword, wanted, value, kind, depth):
    tree = logic.pattern(node, "pattern", wanted) if kind == "string" else None
    return tree is None or found(tree, value) is (keyword == "pattern")


def _format(logic, node, keyword, wanted, value, kind, depth):
    bounds = formats.NUMBERS.get(wanted) if kind == "number" and isinstance(wanted, str) else None
    if bounds:
        return is_whole(value) and bounds[0] <= value <= bounds[1]
    tree = formats.tree(wanted) if kind == "string" and isinstance(wanted, str) else None
    return tree is None or found(tree, value)


def _reference(logic, node, keyword, wanted, value, kind, depth):
    return holds(logic, logic.document.target(node, keyword), value, depth)


def _all(logic, node, keyword, wanted, value, kind, depth):
    return all(holds(logic, s, value, depth) for s in logic.schemas(node, keyword))


def _any(logic, node, keyword, wanted, value, kind, depth):
    return any(holds(logic, s, value, depth) for s in logic.schemas(node, keyword))


def _one(logic, node, keyword, wanted, value, kind, depth):
    return sum(holds(logic, s, value, depth) for s in logic.schemas(node, keyword)) == 1


def _not(logic, node, keyword, wanted, value, kind, depth):
    return not holds(logic, logic.schema(node, keyword), value, depth)


def _if(logic, node, keyword, wanted, value, kind, depth):
    branch = "then" if holds(logic, logic.schema(node, "if"), value, depth) else "else"
    return branch not in node or holds(logic, logic.schema(node, branch), value, depth)


def _required(logic, node, keyword, wanted, value, kind, depth):
    return kind != "object" or not isinstance(wanted, list) or all(name in value for name in wanted)


def _dependent(logic, node, keyword, wanted, value, kind, depth):
    if kind != "object" or not isinstance(wanted, dict):
        return True
    for name, then in wanted.items():
        if name not in value:
            continue
        if isinstance(then, list):
            if not all(other in value for other in then):
                return False
        elif not holds(logic, then, value, depth):
            return False
    return True


def _object(logic, node, keyword, wanted, value, kind, depth):
    if kind != "object":
        return True
    first = next(
        k for k in ("properties", "patternProperties", "additionalProperties") if k in node
    )
    if first != keyword:
        return True
    properties = logic.mapping(node, "properties")
    patterns = [
        (logic.pattern(node, "patternProperties", text), schema)
        for text, schema in logic.mapping(node, "patternProperties").items()
    ]
    rest = node.get("additionalProperties", True)
    for name, each in value.items():
        schemas = [s for tree, s in patterns if tree is not None and found(tree, name)]
        if name in properties:
            schemas.append(properties[name])
        if not all(holds(logic, s, each, depth) for s in schemas or [rest]):
            return False
    return True


def _names(logic, node, keyword, wanted, value, kind, depth):
    return kind != "object" or all(holds(logic, wanted, name, depth) for name in value)


def _array(logic, node, keyword, wanted, value, kind, depth):
    if kind != "array":
        return True
    items = node.get("items", True)
    if isinstance(items, list):
        first, rest = items, node.get("additionalItems", True)
    else:
        first, rest = node.get("prefixItems", []), items
    return all(
        holds(logic, first[i] if i < len(first) else rest, each, depth)
        for i, each in enumerate(value)
    )


def _unique(logic, node, keyword, wanted, value, kind, depth):
    return kind != "array" or wanted is not True or len({key(v) for v in value}) == len(value)


RULES = {
    "type": _type,
    "enum": _among,
    "const": _among,
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
    NOT_MULTIPLE: _multiple,
    "pattern": _pattern,
    NOT_PATTERN: _pattern,
    "format": _format,
    "$ref": _reference,
    "allOf": _all,
    "anyOf": _any,
    "oneOf": _one,
    "not": _not,
    "if": _if,
    "required": _required,
    "dependentRequired": _dependent,
    "dependentSchemas": _dependent,
    "dependencies": _dependent,
    "properties": _object,
    "patternProperties": _object,
    "additionalProperties": _object,
    "propertyNames": _names,
    "items": _array,
    "prefixItems": _array,
    "uniqueItems": _unique,
    WHOLE: lambda logic, node, k, wanted, value, kind, d: (
        kind != "number" or is_whole(value) is wanted
    ),
    EXCLUDED: lambda logic, node, k, wanted, value, kind, d: key(value) not in map(key, wanted),
}
