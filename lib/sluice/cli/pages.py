"""Write the man pages of all commands: `python -m sluice.cli.pages DIRECTORY`, to NAME.1."""

import ast
import os
import re
import sys
from pathlib import Path

from .. import start
from ..commands import sluice
from . import manual

CSRC = Path(__file__).resolve().parents[3] / "csrc"


def write_all(directory: str) -> list[str]:
    """Write a page for each command and for sluice itself; return the paths."""
    os.makedirs(directory, exist_ok=True)
    paths = []
    for name in (*sluice.NAMES, "sluice"):
        paths.append(os.path.join(directory, f"{name}.1"))
        with open(paths[-1], "w", encoding="utf-8") as file:
            file.write(manual.roff(page(name)))
    return paths


def page(name: str) -> manual.Manual:
    """Return the manual of a command; that of a C program from its source, as it may be unbuilt."""
    if name in start.PROGRAMS:
        return manual.of_usage(usage_in_source(name))
    return sluice.manual_of(name)


def usage_in_source(name: str) -> str:
    """The text that the C program `name` prints for --help: the string literals that begin with the
    section NAME. Raises LookupError if no source has it.
    """
    begin = re.compile(rf'"NAME\\n"\s*"  {name} - (?:[^"\\]|\\.)*"\s*(?:"(?:[^"\\]|\\.)*"\s*)*;')
    for path in sorted(CSRC.rglob("*.c")):
        found = begin.search(path.read_text(encoding="utf-8"))
        if found:
            literals = re.findall(r'"(?:[^"\\]|\\.)*"', found[0])
            return "".join(map(ast.literal_eval, literals))
    raise LookupError(f"{CSRC}: no usage text of {name}")


if __name__ == "__main__":
    write_all(sys.argv[1])
