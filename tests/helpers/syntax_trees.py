"""Compare the Python of two trees by syntax: what stays when comments, docstrings and layout go.

    python3 tests/helpers/syntax_trees.py OLDTREE NEWTREE
    python3 tests/helpers/syntax_trees.py OLDTREE NEWTREE --map FILE --level names

Modules are paired by --map, else by path, else by content: of those left over, the two that have
most definitions in common, at least a third. Then each definition is looked for, wherever it lies
now: a module's functions, classes and other statements, each method of a class by itself.
Docstrings, comments and positions do not count, and the order of a module's definitions does not.
The levels of likeness:

    same     the syntax tree is the same
    names    the same but for identifiers, attributes and imported modules, Python's own (max, len)
             excepted; each name has become one other in the whole definition (--renamed lists
             OLD -> NEW with counts, and marks with `!` an old name that became several)
    words    as names, and text in quotes may differ: help, messages, keys
    changed  else, or gone, or new

It prints a line a module and a line a definition that is less than `same`, and ends with 1 if any
definition is below --level (same, names or words; same is the default), else 0. Import statements
are compared with the rest of the module's own statements; --no-imports leaves them out, for steps
in which modules move; --no-annotations leaves types out, for steps that add them.

--map FILE has lines OLD=NEW: files by their path in the tree (`lib/sluice/bpe.py=
lib/sluice/tokenizer/bpe.py`) and names (`max_ids=max_tokens`, `sluice.bpe=sluice.tokenizer.bpe`)
that are put in OLDTREE's place before comparing. --in DIRS says which folders are read
(lib,bin,tests; of bin those whose first line is #!/bin/sh or Python's).
"""

import argparse
import ast
import builtins
import collections
import sys
from pathlib import Path

BUILTINS = set(dir(builtins)) - {
    "open",
    "id",
    "type",
    "input",
    "format",
    "hash",
}  # also words of ours
LEVELS = ("same", "names", "words")
DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
NAME_FIELDS = {"id", "attr", "arg", "name", "asname", "module", "names", "kwd_attrs", "rest"}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("old", type=Path, metavar="OLDTREE")
    parser.add_argument("new", type=Path, metavar="NEWTREE")
    parser.add_argument("--map", metavar="FILE", help="lines OLD=NEW: files and names")
    parser.add_argument("--level", choices=LEVELS, default="same", help="what is good enough")
    parser.add_argument("--no-imports", action="store_true", help="leave import statements out")
    parser.add_argument("--no-annotations", action="store_true", help="leave types out")
    parser.add_argument("--renamed", action="store_true", help="list the names that differ")
    parser.add_argument("--in", dest="folders", default="lib,bin,tests", metavar="DIRS")
    a = parser.parse_args()
    lines = Path(a.map).read_text().split() if a.map else []
    names = dict(line.split("=") for line in lines)
    old, new = (modules(tree, a, names if tree is a.old else {}) for tree in (a.old, a.new))
    if not old or not new:
        sys.exit(f"{a.new if old else a.old}: no Python in {a.folders}")
    return compare(old, new, pairs(old, new, names), a)


# Read


class Unit:
    """A definition: its name, and its tree at each level of likeness."""

    def __init__(self, name, node, names):
        self.name = name
        node = Renamed(names).visit(node)
        self.same = dumped(node, "same")
        self.names = dumped(node, "names")
        self.words = dumped(node, "words")
        self.used = list(identifiers(node))


class Renamed(ast.NodeTransformer):
    """Old names replaced by new ones."""

    def __init__(self, names):
        self._names = names

    def visit(self, node):
        for field, value in ast.iter_fields(node):
            if field in NAME_FIELDS and isinstance(value, str):
                setattr(node, field, self._names.get(value, value))
            elif field == "names" and value and isinstance(value[0], str):  # global, nonlocal
                node.names = [self._names.get(x, x) for x in value]
        return self.generic_visit(node) or node


def identifiers(node):
    """The names in a tree, in the order of a walk."""
    for child in ast.walk(node):
        for field, value in ast.iter_fields(child):
            if field in NAME_FIELDS and isinstance(value, str):
                yield value
            elif field == "names" and value and isinstance(value[0], str):
                yield from value


def dumped(node, level):
    """The tree as text; below `same`, names are numbered as they first come."""
    numbers = {}

    def number(name):
        return numbers.setdefault(name, len(numbers))

    def text(value, field):
        if isinstance(value, ast.AST):
            fields = (
                (f, v)
                for f, v in ast.iter_fields(value)
                if f not in ("type_comment", "kind", "ctx")
            )
            return f"{type(value).__name__}({','.join(text(v, f) for f, v in fields)})"
        if isinstance(value, list):
            return f"[{','.join(text(v, field) for v in value)}]"
        if (
            level != "same"
            and field in NAME_FIELDS
            and isinstance(value, str)
            and value not in BUILTINS
        ):
            return f"#{number(value)}"
        if level == "words" and isinstance(value, (str, bytes)):
            return type(value).__name__
        return repr(value)

    return text(node, "")


def modules(tree, a, names):
    """Dict: path in the tree -> list of Units, of every Python file."""
    out = {}
    for folder in a.folders.split(","):
        for path in sorted((tree / folder).rglob("*")):
            if (
                path.is_file()
                and not path.is_symlink()
                and "__pycache__" not in path.parts
                and is_python(path)
            ):
                try:
                    module = ast.parse(path.read_bytes())
                except SyntaxError as e:
                    sys.exit(f"{path}: {e}")
                out[str(path.relative_to(tree))] = list(units(module, names, a))
    return out


def is_python(path):
    if path.suffix == ".py":
        return True
    if path.suffix or path.parent.name != "bin":
        return False
    with path.open("rb") as file:
        head = file.read(200).split(b"\n")
    return head[0].startswith(b"#!") and (b"python" in head[0] or b"'''" in b"".join(head[1:3]))


def units(module, names, a):
    """The Units of a module: its definitions, and all its other statements as one."""
    without_docstrings(module)
    if a.no_annotations:
        module = WithoutAnnotations().visit(module)
    rest = []
    for node in module.body:
        if isinstance(node, (ast.Import, ast.ImportFrom)) and a.no_imports:
            continue
        if isinstance(node, ast.ClassDef):
            methods = [n for n in node.body if isinstance(n, DEFINITIONS)]
            node.body = [n for n in node.body if not isinstance(n, DEFINITIONS)]
            yield Unit(node.name, node, names)
            for method in methods:
                yield Unit(f"{node.name}.{method.name}", method, names)
        elif isinstance(node, DEFINITIONS):
            yield Unit(node.name, node, names)
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            yield Unit(node.targets[0].id, node, names)
        else:
            rest.append(node)
    if rest:
        yield Unit("(statements)", ast.Module(rest, []), names)


class WithoutAnnotations(ast.NodeTransformer):
    """Functions without types; `x: T = 1` as `x = 1`."""

    def visit_FunctionDef(self, node):
        node.returns = None
        return self.generic_visit(node)

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_arg(self, node):
        node.annotation = None
        return node

    def visit_AnnAssign(self, node):
        if node.value is None:
            return node
        return ast.copy_location(ast.Assign([node.target], self.visit(node.value)), node)


def without_docstrings(module):
    """Take away every string that stands as a statement."""
    for node in ast.walk(module):
        if hasattr(node, "body") and isinstance(node.body, list):
            node.body = [
                n
                for n in node.body
                if not (
                    isinstance(n, ast.Expr)
                    and isinstance(n.value, ast.Constant)
                    and isinstance(n.value.value, str)
                )
            ]


# Pair


def pairs(old, new, names):
    """Dict: old path -> new path or None."""
    out = {path: names.get(path, path) for path in old}
    out = {path: target if target in new else None for path, target in out.items()}
    free = set(new) - set(out.values())
    scores = [(likeness(old[a], new[b]), a, b) for a in old if not out[a] for b in free]
    for score, a, b in sorted(scores, reverse=True):
        if score > 1 / 3 and not out[a] and b in free:
            out[a] = b
            free.remove(b)
    return out


def likeness(a, b):
    """The share of definitions that two modules have in common, names apart: 0 to 1."""
    a, b = (collections.Counter(u.words for u in x) for x in (a, b))
    return 2 * (a & b).total() / ((a.total() + b.total()) or 1)


# Compare


def compare(old, new, paired, a):
    """Print what differs; 1 if a definition is less alike than is asked, else 0."""
    left_old = {path: list(found) for path, found in old.items()}
    left_new = {path: list(found) for path, found in new.items()}
    matches = []
    for level in LEVELS:  # within pairs first, then wherever
        for old_path, new_path in paired.items():
            if new_path:
                matches += match(left_old, left_new, [old_path], [new_path], level)
        matches += match(left_old, left_new, list(left_old), list(left_new), level)
    for old_path, new_path in sorted(paired.items()):
        if new_path != old_path:
            print(f"{old_path} -> {new_path or 'nowhere'}")
    for new_path in sorted(set(new) - set(paired.values())):
        print(f"{new_path} is new")
    counts = collections.Counter(level for *_, level in matches)
    n_moved = 0
    for old_path, before, new_path, after, level in matches:
        moved = paired[old_path] != new_path
        n_moved += moved
        if level != "same" or moved or before.name != after.name:
            print(
                f"{level}: {old_path} {before.name}"
                + (f" -> {new_path} {after.name}" if moved or before.name != after.name else "")
            )
    n_left = 0
    for sign, left in (("changed or gone", left_old), ("changed or new", left_new)):
        for path, found in sorted(left.items()):
            for unit in found:
                print(f"{sign}: {path} {unit.name}")
                n_left += 1
    if a.renamed:
        print_names(matches)
    print(
        f"{sum(map(len, old.values()))} definitions before, {sum(map(len, new.values()))} after: "
        + ", ".join(f"{counts[level]} {level}" for level in LEVELS)
        + f", {n_left} left; {n_moved} in another module"
    )
    good = LEVELS[: LEVELS.index(a.level) + 1]
    return int(n_left > 0 or any(level not in good for level in counts))


def match(left_old, left_new, old_paths, new_paths, level):
    """Take out of both what is alike: a list of (old path, Unit, new path, Unit, level)."""
    found, waiting = [], collections.defaultdict(list)
    for path in new_paths:
        for unit in left_new[path]:
            waiting[getattr(unit, level)].append((path, unit))
    for path in old_paths:
        for unit in list(left_old[path]):
            same = waiting.get(getattr(unit, level))
            if same:  # of several, one of the same name
                where, other = next((x for x in same if x[1].name == unit.name), same[0])
                same.remove((where, other))
                left_old[path].remove(unit)
                left_new[where].remove(other)
                found.append((path, unit, where, other, level))
    return found


def print_names(matches):
    """What each name became, in definitions that are the same but for names."""
    became = collections.defaultdict(collections.Counter)
    for _, before, _, after, level in matches:
        if level != "same":
            for a, b in set(zip(before.used, after.used)):
                became[a][b] += 1
    for a, counts in sorted(became.items()):
        for b, n in counts.most_common():
            if a != b:
                print(f"{'!' if len(counts) > 1 else ' '} {a} -> {b} ({n})")


if __name__ == "__main__":
    sys.exit(main())
