"""Syntax tree of a grammar, as a list of nodes."""

from ..faults import data_error

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..faults import Error

MAX_ELEMENTS = 100_000
TEXT, CLASS, NAME, SEQUENCE, CHOICE, REPEAT, JSON_CHARACTER, JSON_REST, TOKEN = range(9)


class Syntax:
    """A parsed grammar.

    kind[i], value[i] and at[i] describe node i. Children have lower numbers than their parent.
    value: TEXT bytes; CLASS ((lo, hi), ...) of code points; NAME the rule's name; SEQUENCE and
    CHOICE lists of nodes; REPEAT (node, min, max); TOKEN (whether all others are meant, token
    number or text (str)). Only compilers make (building.py) JSON_CHARACTER None, a character of a
    JSON string in any of its forms, and JSON_REST names (str, ...), the rest of a JSON string with
    its quote, but not one of the names. rules: name -> node. nullable[i]: node i may be empty.
    """

    def __init__(self, source: str, name: str) -> None:
        self.source, self.name = source, name
        self.kind, self.value, self.at, self.rules, self.rule_at = [], [], [], {}, {}
        self.nullable = []

    def data_error(self, at: int, problem: str) -> "Error":
        """A DataError that names the place of character `at`."""
        return data_error(f"{self.name}: {self.place(at)}", problem)

    def place(self, at: int) -> str:
        """`line L, column C` of character `at`."""
        line = self.source.count("\n", 0, at) + 1
        return f"line {line}, column {at - self.source.rfind(chr(10), 0, at)}"

    def add(self, kind: int, value: "Any", at: int) -> int:
        """Add a node. Return its number."""
        if len(self.kind) >= 4 * MAX_ELEMENTS:
            raise self.data_error(at, f"more than {MAX_ELEMENTS} elements")
        self.kind.append(kind)
        self.value.append(value)
        self.at.append(at)
        return len(self.kind) - 1
