"""JSON values: their types, their equality, their texts."""

from decimal import Decimal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

TYPES = ("null", "boolean", "number", "string", "array", "object")
MAX_WHOLE = 10**21  # whole numbers below it are written without an exponent


def type_of(value: "Any") -> str:
    """Return the type of a value, one of TYPES."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, str):
        return "string"
    return "object" if isinstance(value, dict) else "array" if isinstance(value, list) else "number"


def is_whole(value: "Any") -> bool:
    """Whether a number has no fraction: 1.0 is whole."""
    return isinstance(value, int) or value == value.to_integral_value()


def key(value: "Any") -> "Any":
    """Return a hashable value, equal for equal JSON values: 1 and 1.0 are, 1 and true are not."""
    kind = type_of(value)
    if kind == "object":
        return kind, frozenset((k, key(v)) for k, v in value.items())
    if kind == "array":
        return kind, tuple(key(v) for v in value)
    return kind, value


def number_text(value: "Any") -> str:
    """Return a number as JSON, the shortest usual form."""
    if is_whole(value) and -MAX_WHOLE < value < MAX_WHOLE:
        return str(int(value))
    if isinstance(value, int):
        return str(value)
    text = str(value.normalize() if isinstance(value, Decimal) else value)
    return text.replace("E", "e")
