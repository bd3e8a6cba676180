"""A grammar's syntax tree as GBNF."""

from . import regular
from .building import Builder
from .check import children
from .syntax import CHOICE, CLASS, JSON_CHARACTER, JSON_REST, NAME, REPEAT, SEQUENCE, TEXT, TOKEN

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .syntax import Syntax

SUFFIXES = {(0, None): "*", (1, None): "+", (0, 1): "?"}


def gbnf(syntax: "Syntax") -> bytes:
    """Return the grammar as GBNF: the rules that root needs, root first."""
    _spell_out(syntax)
    out, todo, known = [], ["root"], {"root"}
    while todo:
        name = todo.pop()
        text, used = _right_side(syntax, syntax.rules[name])
        out.append(f"{name} ::= {text}\n")
        for each in reversed(used):
            if each not in known:
                known.add(each)
                todo.append(each)
    return "".join(out).encode()


def _spell_out(syntax):
    """Replace the nodes that GBNF does not have by names of rules that say the same."""
    kinds, names = syntax.kind, {}
    builder = Builder(syntax.name, syntax)
    for i in range(len(kinds)):
        if kinds[i] not in (JSON_CHARACTER, JSON_REST):
            continue
        key = kinds[i], syntax.value[i]
        if key not in names:
            names[key] = builder.fresh("char" if kinds[i] == JSON_CHARACTER else "rest")
            if kinds[i] == JSON_CHARACTER:
                node = builder.free_character()
            elif not syntax.value[i]:
                node = builder.sequence(
                    [builder.repeat(builder.free_character(), 0, None), builder.text(b'"')]
                )
            else:
                dfa = regular.inverse(regular.of_words(syntax.value[i]))
                text = builder.dfa(dfa, builder.json_character, "name")
                node = builder.sequence([text, builder.text(b'"')])
            builder.rule(names[key], node)
        kinds[i], syntax.value[i] = NAME, names[key]


def _right_side(syntax, root):
    """Return (text, names of rules in it) of a node. Parts come before what contains them."""
    order, todo, used = [], [root], []
    while todo:
        node = todo.pop()
        order.append(node)
        todo += children(syntax.kind[node], syntax.value[node])
    texts = {}  # node -> (text, how loosely it binds: 0 an item, 1 a sequence, 2 a choice)
    for node in reversed(order):
        kind, value = syntax.kind[node], syntax.value[node]
        if kind == TEXT:
            texts[node] = _text(value), 0
        elif kind == CLASS:
            texts[node] = _class(value), 0
        elif kind == TOKEN:
            shown = value[1] if isinstance(value[1], str) else f"<[{value[1]}]>"
            texts[node] = ("!" if value[0] else "") + shown, 0
        elif kind == NAME:
            used.append(value)
            texts[node] = value, 0
        elif kind == SEQUENCE:
            parts = [_within(texts.pop(n), 1) for n in value]
            texts[node] = (" ".join(parts), 1) if parts else ('""', 0)
        elif kind == CHOICE:
            texts[node] = " | ".join(_within(texts.pop(n), 2) for n in value), 2
        else:
            assert kind == REPEAT
            part, low, high = value
            suffix = SUFFIXES.get((low, high))
            if suffix is None:
                suffix = (
                    f"{{{low}}}" if low == high else f"{{{low},{'' if high is None else high}}}"
                )
            inner = texts.pop(part)[0]
            is_item = syntax.kind[part] in (TEXT, CLASS, NAME)
            texts[node] = (inner if is_item else f"({inner})") + suffix, 0
    return texts[root][0], used[::-1]


def _within(part, loosest):
    text, binds = part
    return text if binds < loosest or binds == 1 == loosest else f"({text})"


def _text(data):
    return '"' + "".join(_character(ord(c), '"\\') for c in data.decode()) + '"'


def _class(ranges):
    out = []
    for lo, hi in ranges:
        out.append(_character(lo, "[]^-\\"))
        if hi > lo:
            out.append(("-" if hi > lo + 1 else "") + _character(hi, "[]^-\\"))
    return "[" + "".join(out) + "]"


def _character(point, special):
    c = chr(point)
    if c in special or not c.isprintable():
        if point in (10, 13, 9):
            return {10: "\\n", 13: "\\r", 9: "\\t"}[point]
        if c in '"[]\\':
            return "\\" + c
        n = 2 if point < 256 else 4 if point < 0x10000 else 8
        return "\\" + {2: "x", 4: "u", 8: "U"}[n] + f"{point:0{n}X}"
    return c
