"""All texts of a grammar that has few: the answers of a question that a grammar names."""

import json

from ..faults import data_error
from .syntax import CHOICE, CLASS, NAME, REPEAT, SEQUENCE, TEXT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..faults import Error
    from .syntax import Syntax

MAX_TEXTS, MAX_BYTES = 4096, 1024  # of a part of the grammar; of a text


def texts(syntax: "Syntax") -> list[bytes]:
    """Return the texts of a grammar in its order, each once. DataError if there are more than
    MAX_TEXTS, if one is longer than MAX_BYTES, or if a rule needs itself.
    """
    root = syntax.rules["root"]
    found: dict[int, list[bytes]] = {}
    opened, stack = set(), [root]
    while stack:
        node = stack[-1]
        missing = [] if node in found else [i for i in _parts(syntax, node) if i not in found]
        if missing:
            opened.add(node)
            if opened.intersection(missing):
                raise _too_many(syntax)
            stack += missing[::-1]
            continue
        stack.pop()
        if node not in found:
            found[node] = _texts(syntax, node, found)
            opened.discard(node)
    return found[root]


def json_values(syntax: "Syntax") -> list[str]:
    """Return the values of a grammar of JSON, as `texts`: strings without their quotes, others as
    JSON. Values that are equal, such as 1 and 1.0, are one.
    """
    found: dict[str, str] = {}
    for text in texts(syntax):
        value = _plain(json.loads(text))
        key = json.dumps(value, ensure_ascii=False)
        found.setdefault(key, value if isinstance(value, str) else key)
    return list(found.values())


def _parts(syntax, node):
    kind, value = syntax.kind[node], syntax.value[node]
    if kind == NAME:
        return [syntax.rules[value]]
    if kind == REPEAT:
        return [value[0]]
    return value if kind in (SEQUENCE, CHOICE) else []


def _texts(syntax, node, found):
    """The texts of a node whose parts are in `found`."""
    kind, value = syntax.kind[node], syntax.value[node]
    if kind == TEXT:
        return [value]
    if kind == NAME:
        return found[syntax.rules[value]]
    if kind == CLASS:
        if sum(high - low + 1 for low, high in value) > MAX_TEXTS:
            raise _too_many(syntax)
        return [
            chr(x).encode() for low, high in value for x in range(low, high + 1) if x >> 11 != 27
        ]
    if kind == CHOICE:
        return _checked(syntax, {text: None for part in value for text in found[part]})
    if kind == SEQUENCE:
        out = [b""]
        for part in value:
            out = _product(syntax, out, found[part])
        return out
    if kind != REPEAT:  # a character of a JSON string, the rest of one, a token
        raise _too_many(syntax)
    part, minimum, maximum = value
    once = found[part]
    if once in ([], [b""]):
        return [b""] if once or not minimum else []
    if maximum is None:
        raise _too_many(syntax)
    last, out = [b""], {} if minimum else {b"": None}
    for n in range(1, maximum + 1):
        last = _product(syntax, last, once)
        if n >= minimum:
            out.update(dict.fromkeys(last))
            _checked(syntax, out)
    return list(out)


def _product(syntax, first, second):
    if len(first) * len(second) > MAX_TEXTS:
        raise _too_many(syntax)
    out = dict.fromkeys(a + b for a in first for b in second)
    if any(len(text) > MAX_BYTES for text in out):
        raise data_error(
            syntax.name, f"has texts longer than {MAX_BYTES} bytes, too long to answer"
        )
    return list(out)


def _checked(syntax, out):
    if len(out) > MAX_TEXTS:
        raise _too_many(syntax)
    return list(out)


def _too_many(syntax) -> "Error":
    return data_error(syntax.name, f"allows more than {MAX_TEXTS} texts; give 2 to 255 answers")


def _plain(value: "Any") -> "Any":
    """A value in which a whole number is an int."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [_plain(x) for x in value]
    if isinstance(value, dict):
        return {key: _plain(x) for key, x in value.items()}
    return value
