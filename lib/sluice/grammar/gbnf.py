"""GBNF grammar parser: the notation of llama.cpp, parsed and checked.

    grammar  ::= (rule newline)*            `#` begins a comment, to the end of the line
    rule     ::= name "::=" choice          name: letters, digits, `-`, `_`; the start rule is
                                            `root`
    choice   ::= sequence ("|" sequence)*   a sequence may be empty; lines may end after `|` and
                                            `::=`, and a line may begin with `|`
    sequence ::= (item suffix*)*
    item     ::= "text" | [class] | [^class] | . | name | ( choice )     lines may end within ( )
               | <[number]> | <text>        the token with that number; with the text "<text>"
               | !<[number]> | !<text>      any other token
    suffix   ::= * | + | ? | {m} | {m,} | {m,n}
    escapes  ::= \\xHH \\uHHHH \\UHHHHHHHH \\n \\t \\r \\\\ \\" \\[ \\]   code points, in texts and
                                            classes; \\- in classes

A grammar may come from an untrusted source: no function here recurses, every size is bounded, and
every error names the line and the column (in characters, from 1).
"""

from ..faults import data_error, printable
from .charset import MAX_CODE_POINT, SURROGATES, complement, merge, without_surrogates
from .check import check
from .syntax import CHOICE, CLASS, MAX_ELEMENTS, NAME, REPEAT, SEQUENCE, TEXT, TOKEN, Syntax

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .syntax import Syntax

MAX_SOURCE_BYTES = 1 << 20
MAX_RULES, MAX_DEPTH = 10_000, 256
MAX_COUNT = 1_000_000_000
MAX_TOKEN = 1000  # characters of a token's text
ESCAPES = {"n": 10, "t": 9, "r": 13, "\\": 92, '"': 34, "[": 91, "]": 93}
HEX_DIGITS = {"x": 2, "u": 4, "U": 8}
NAME_CHARACTERS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")
DIGITS = frozenset("0123456789")
SUFFIXES = {"*": (0, None), "+": (1, None), "?": (0, 1)}


def parse(source: bytes, name: str) -> "Syntax":
    """Return the checked Syntax of `source` (bytes); `name` is for messages.

    DataError with line and column.
    """
    if len(source) > MAX_SOURCE_BYTES:
        raise data_error(name, f"grammar of more than {MAX_SOURCE_BYTES >> 20} MiB")
    try:
        text = source.decode("utf-8")
    except UnicodeDecodeError as e:
        before = source[: e.start].decode("utf-8")
        raise data_error(
            f"{name}: {Syntax(before, name).place(len(before))}", "not valid UTF-8"
        ) from None
    syntax = Syntax(text, name)
    _Parser(syntax).grammar()
    check(syntax)
    return syntax


class _Parser:
    def __init__(self, syntax):
        # a NUL in the text itself is an error wherever it stands
        self.syntax, self.text, self.at = syntax, syntax.source + "\0", 0
        self.n_elements = 0

    def _data_error(self, problem, at=None):
        return self.syntax.data_error(self.at if at is None else at, problem)

    def _unexpected(self, wanted):
        if self.at >= len(self.text) - 1:
            return self._data_error(f"the grammar ends where {wanted} is expected")
        return self._data_error(f"{printable(self.text[self.at])} where {wanted} is expected")

    def _count(self, n, at):
        self.n_elements += n
        if self.n_elements > MAX_ELEMENTS:
            raise self._data_error(f"more than {MAX_ELEMENTS} elements", at)

    def _skip(self, newlines):
        """Skip white space and comments; line ends, too, if `newlines`."""
        text, at = self.text, self.at
        spaces = " \t\r\n" if newlines else " \t"
        while True:
            c = text[at]
            if c == "#":
                end = text.find("\n", at)
                at = end if end >= 0 else len(text) - 1
            elif c in spaces:
                at += 1
            else:
                break
        self.at = at

    def _name(self, wanted):
        start = self.at
        while self.text[self.at] in NAME_CHARACTERS:
            self.at += 1
        if self.at == start:
            raise self._unexpected(wanted)
        return self.text[start : self.at]

    def grammar(self):
        self._skip(True)
        syntax, end = self.syntax, len(self.text) - 1
        while self.at < end:
            start = self.at
            name = self._name("a rule's name")
            if name in syntax.rules:
                raise self._data_error(
                    f"rule {printable(name)} is defined again; first at"
                    f" {syntax.place(syntax.rule_at[name])}",
                    start,
                )
            if len(syntax.rules) >= MAX_RULES:
                raise self._data_error(f"more than {MAX_RULES} rules", start)
            self._skip(False)
            if not self.text.startswith("::=", self.at):
                raise self._unexpected('"::="')
            self.at += 3
            self._skip(True)
            syntax.rule_at[name] = start
            syntax.rules[name] = self._choice()
            if self.at < end and self.text[self.at] not in "\r\n":
                raise self._unexpected("the end of the rule")
            self._skip(True)
        if "root" not in syntax.rules:
            raise self._data_error('no rule is called "root"')

    def _choice(self):
        """Parse the right side of a rule. Open groups are in a list, not on Python's stack."""
        syntax = self.syntax
        groups = []  # (start, sequences so far, enclosing sequence)
        began, sequences, sequence = self.at, [], []
        while True:
            start, c = self.at, self.text[self.at]
            if c == '"':
                sequence.append(self._text())
            elif c == "[":
                sequence.append(self._class())
            elif c == ".":
                self.at += 1
                self._count(1, start)
                sequence.append(syntax.add(CLASS, without_surrogates([(0, MAX_CODE_POINT)]), start))
            elif c in NAME_CHARACTERS:
                name = self._name("a rule's name")
                self._count(1, start)
                sequence.append(syntax.add(NAME, name, start))
            elif c == "(":
                if len(groups) == MAX_DEPTH:
                    raise self._data_error(f"more than {MAX_DEPTH} groups within each other")
                self.at += 1
                self._count(1, start)
                groups.append((start, began, sequences, sequence))
                began, sequences, sequence = start, [], []
                self._skip(True)
                continue
            elif c == "|":
                self.at += 1
                self._count(1, start)
                sequences.append(self._close(SEQUENCE, sequence, began))
                sequence = []
                self._skip(True)
                continue
            elif c in "*+?{":
                if not sequence:
                    raise self._data_error(f'no element before "{c}" to repeat')
                sequence[-1] = self._repeat(sequence[-1], bool(groups))
            elif c == ")" and groups:
                self.at += 1
                sequences.append(self._close(SEQUENCE, sequence, began))
                node = self._close(CHOICE, sequences, began)
                _, began, sequences, sequence = groups.pop()
                sequence.append(node)
            elif c == "<" or (c == "!" and self.text[start + 1] == "<"):
                sequence.append(self._token())
            elif groups:
                self.at = groups[-1][0] if self.at >= len(self.text) - 1 else self.at
                raise (
                    self._data_error('"(" is never closed')
                    if self.at == groups[-1][0]
                    else self._unexpected('an element or ")"')
                )
            elif not (c in "\r\n" and self._line_goes_on()):
                sequences.append(self._close(SEQUENCE, sequence, began))
                return self._close(CHOICE, sequences, began)
            self._skip(bool(groups))

    def _line_goes_on(self):
        """Whether the next line with anything on it begins with `|`; go there if so."""
        start = self.at
        self._skip(True)
        if self.text[self.at] == "|":
            return True
        self.at = start
        return False

    def _token(self):
        """Return the node of a token terminal."""
        start = self.at
        negated = self.text[start] == "!"
        opened = start + 1 + negated
        end = self.text.find(">", opened)
        if end < 0 or "\n" in self.text[opened:end] or end - opened > MAX_TOKEN:
            raise self._data_error('"<" is never closed')
        inner = self.text[opened:end]
        self.at = end + 1
        self._count(1, start)
        if not inner.startswith("["):
            return self.syntax.add(TOKEN, (negated, f"<{inner}>"), start)
        digits = inner[1:-1]
        if not (inner.endswith("]") and digits and DIGITS.issuperset(digits) and len(digits) < 10):
            raise self._data_error("<[ ]> needs a token's number", start)
        return self.syntax.add(TOKEN, (negated, int(digits)), start)

    def _close(self, kind, nodes, at):
        return nodes[0] if len(nodes) == 1 else self.syntax.add(kind, nodes, at)

    def _character(self, opened, label):
        """Return a code point of the text or class that began at `opened`. Surrogates are
        refused.
        """
        start, c = self.at, self.text[self.at]
        if self.at >= len(self.text) - 1:
            raise self._data_error(f"{label} is never closed", opened)
        self.at += 1
        if c != "\\":
            return ord(c)
        c = self.text[self.at]
        if c in ESCAPES or (c == "-" and label == "class"):
            self.at += 1
            return ESCAPES.get(c, 45)
        if c not in HEX_DIGITS:
            raise self._data_error(
                f"unknown escape {printable(self.text[start : start + 2])}", start
            )
        n = HEX_DIGITS[c]
        digits = self.text[self.at + 1 : self.at + 1 + n]
        if len(digits) != n or not all(d in "0123456789abcdefABCDEF" for d in digits):
            raise self._data_error(f"\\{c} needs {n} hexadecimal digits", start)
        value = int(digits, 16)
        if value > MAX_CODE_POINT or SURROGATES[0] <= value <= SURROGATES[1]:
            raise self._data_error(f"{value:#x} is not a Unicode character", start)
        self.at += 1 + n
        return value

    def _text(self):
        start = self.at
        self.at += 1
        out = []
        while self.text[self.at] != '"':
            out.append(chr(self._character(start, "text")))
            self._count(1, start)
        self.at += 1
        return self.syntax.add(TEXT, "".join(out).encode("utf-8"), start)

    def _class(self):
        start = self.at
        negated = self.text[start + 1] == "^"
        self.at += 2 if negated else 1
        ranges = []
        while self.text[self.at] != "]":
            began = self.at
            lo = hi = self._character(start, "class")
            if self.text[self.at] == "-" and self.text[self.at + 1] != "]":
                self.at += 1
                hi = self._character(start, "class")
                if hi < lo:
                    raise self._data_error(f"range from {lo:#x} down to {hi:#x}", began)
            ranges.append((lo, hi))
            self._count(1, began)
        self.at += 1
        if not ranges:
            raise self._data_error("empty class", start)
        ranges = without_surrogates(complement(merge(ranges)) if negated else merge(ranges))
        if not ranges:
            raise self._data_error("class of no character", start)
        return self.syntax.add(CLASS, ranges, start)

    def _repeat(self, node, nested):
        start = self.at
        self._count(1, start)
        self.at += 1
        if self.text[start] != "{":
            return self.syntax.add(REPEAT, (node, *SUFFIXES[self.text[start]]), start)
        self._skip(nested)
        minimum = maximum = self._number()
        self._skip(nested)
        if self.text[self.at] == ",":
            self.at += 1
            self._skip(nested)
            maximum = self._number() if self.text[self.at] in DIGITS else None
            self._skip(nested)
        if self.text[self.at] != "}":
            raise self._unexpected('"}"')
        self.at += 1
        if maximum is not None and maximum < minimum:
            raise self._data_error(
                f"{{{minimum},{maximum}}}: the upper bound is below the lower", start
            )
        return self.syntax.add(REPEAT, (node, minimum, maximum), start)

    def _number(self):
        start = self.at
        while self.text[self.at] in DIGITS:
            self.at += 1
        digits = self.text[start : self.at].lstrip("0")
        if self.at == start:
            raise self._unexpected("a number")
        if len(digits) > 10 or int(digits or "0") > MAX_COUNT:
            raise self._data_error(f"more than {MAX_COUNT} repetitions", start)
        return int(digits or "0")
