"""Whether any value may satisfy schemas: what tells alternatives of oneOf apart."""

from .. import regular
from . import numbers, strings
from .objects import value_literals
from .validation import holds, holds_all

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .logic import Conjunct, Logic


def may_hold(logic: "Logic", literals: "list[Any]") -> bool:
    """Whether some value may satisfy `literals`. False only if none does."""
    return any(_may_hold(logic, c) for c in logic.expand(literals))


def _may_hold(logic, c):
    if c.values is not None:
        return any(holds_all(logic, c.literals, v) for v in c.values)
    return any(TESTS[kind](logic, c) for kind in c.types)


def _null(logic: "Logic", c: "Conjunct") -> bool:
    return not any(v is None for v in c.excluded)


def _boolean(logic, c):
    return not all(any(v is b for v in c.excluded) for b in (True, False))


def _number(logic, c):
    if c.low is not None and c.high is not None:
        if c.low > c.high or (c.low == c.high and (c.low_open or c.high_open)):
            return False
        if (c.whole or any(holds for _, holds in c.multiples)) and not numbers.count_whole(c):
            return False
    if not (c.multiples or c.excluded):
        return True
    try:
        return not numbers.language(logic, c).is_empty
    except regular.TooLarge:
        return True


def _string(logic, c):
    if c.max_length is not None and c.max_length < c.min_length:
        return False
    if len(c.patterns) + len(c.formats) + len(c.excluded) < 1:
        return True
    return not strings.language(logic, c).is_empty


def _array(logic, c):
    if c.max_items is not None and c.max_items < c.min_items:
        return False
    first = max((len(prefix) for prefix, _ in c.arrays), default=0)
    return all(
        logic.satisfiable([(p[i] if i < len(p) else rest, True) for p, rest in c.arrays])
        for i in range(min(c.min_items, first + 1))
    )


def _object(logic, c):
    if c.max_properties is not None and c.max_properties < max(c.min_properties, len(c.required)):
        return False
    return all(
        logic.satisfiable(value_literals(c, name))
        and all(holds(logic, names, name) for names in c.names)
        for name in c.required
    )


TESTS = {
    "null": _null,
    "boolean": _boolean,
    "number": _number,
    "string": _string,
    "array": _array,
    "object": _object,
}
