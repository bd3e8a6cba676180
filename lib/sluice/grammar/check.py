"""Grammar checks: every rule is defined, none is left-recursive, and every rule can end.

All checks are linear in the size of the grammar, and none recurses.
"""

from ..faults import printable
from .syntax import CHOICE, CLASS, JSON_CHARACTER, JSON_REST, NAME, REPEAT, SEQUENCE, TEXT, TOKEN

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from .syntax import Syntax


def productive_and_nullable(syntax: "Syntax") -> tuple[list[bool], list[bool]]:
    """Return which nodes match some text, and which match the empty one."""
    up, needs = _parents(syntax)
    return _spread(syntax, up, needs, _is_text), _spread(syntax, up, needs, _is_empty)


def _is_text(kind, value):
    return kind in (TEXT, CLASS, JSON_CHARACTER, JSON_REST, TOKEN)


def _is_empty(kind, value):
    return kind == TEXT and not value


def check(syntax: "Syntax") -> None:
    """Raise the Error for the first problem; set syntax.nullable."""
    for kind, value, at in zip(syntax.kind, syntax.value, syntax.at):
        if kind == NAME and value not in syntax.rules:
            raise syntax.data_error(at, f"rule {printable(value)} is not defined")
    up, needs = _parents(syntax)
    ends = _spread(syntax, up, needs, _is_text)
    for name, node in syntax.rules.items():
        if not ends[node]:
            raise syntax.data_error(
                syntax.rule_at[name],
                f"rule {printable(name)} can never end: it always needs itself or another such"
                " rule",
            )
    syntax.nullable = _spread(syntax, up, needs, _is_empty)
    _refuse_left_recursion(syntax)


def children(kind: int, value: "Any") -> "Sequence[int]":
    """Return the nodes within a node."""
    return value if kind in (SEQUENCE, CHOICE) else (value[0],) if kind == REPEAT else ()


def _parents(syntax):
    """Return (up, needs). up[i]: nodes that contain node i, or that name it. needs[i]: number
    of parts that node i requires.
    """
    up = [[] for _ in syntax.kind]
    needs = []
    for i, (kind, value) in enumerate(zip(syntax.kind, syntax.value)):
        for child in children(kind, value):
            up[child].append(i)
        if kind == NAME:
            up[syntax.rules[value]].append(i)
        needs.append(len(value) if kind == SEQUENCE else 1)
    return up, needs


def _spread(syntax, up, needs, basic):
    """Return which nodes have a property. `basic` nodes and repetitions of zero have it; a
    choice gets it from any part, a sequence from all parts.
    """
    has = [
        basic(kind, value) or kind == SEQUENCE and not value or kind == REPEAT and value[1] == 0
        for kind, value in zip(syntax.kind, syntax.value)
    ]
    missing = list(needs)
    todo = [i for i, h in enumerate(has) if h]
    while todo:
        for parent in up[todo.pop()]:
            missing[parent] -= 1
            if not missing[parent] and not has[parent]:
                has[parent] = True
                todo.append(parent)
    return has


def _leftmost(syntax):
    """Return node of a rule -> [(node of the rule it may begin with, where that is named)]."""
    owner = [None] * len(syntax.kind)  # node of the rule in which this node may come first
    for node in syntax.rules.values():
        owner[node] = node
    edges = {node: [] for node in syntax.rules.values()}
    for i in range(len(owner) - 1, -1, -1):
        if owner[i] is None:
            continue
        kind, value = syntax.kind[i], syntax.value[i]
        if kind == NAME:
            edges[owner[i]].append((syntax.rules[value], i))
        for child in children(kind, value):
            if kind != REPEAT or value[2] != 0:
                owner[child] = owner[i]
            if kind == SEQUENCE and not syntax.nullable[child]:
                break
    return edges


def _refuse_left_recursion(syntax):
    edges = _leftmost(syntax)
    name_of = {node: name for name, node in syntax.rules.items()}
    done, on_path = set(), {}
    for start in edges:
        if start in done:
            continue
        path = [(start, iter(edges[start]))]
        on_path[start] = 0
        while path:
            node, rest = path[-1]
            for target, named in rest:
                if target in on_path:
                    cycle = [name_of[n] for n, _ in path[on_path[target] :]] + [name_of[target]]
                    shown = cycle if len(cycle) <= 6 else cycle[:3] + ["..."] + cycle[-2:]
                    raise syntax.data_error(
                        syntax.at[named],
                        f"rule {printable(name_of[target])} is left-recursive"
                        f" ({' -> '.join(n[:40] for n in shown)})",
                    )
                if target not in done:
                    on_path[target] = len(path)
                    path.append((target, iter(edges[target])))
                    break
            else:
                path.pop()
                del on_path[node]
                done.add(node)
