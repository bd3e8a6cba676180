"""The README.md files and two more pages: examples, transcripts, prose and links."""

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
NAMES = (
    "README.md",
    "lib/README.md",
    "csrc/README.md",
    "configs/README.md",
    "configs/postfix/README.md",
    "configs/postfix/milter.md",
    "configs/recipes/many-machines.md",
    "tests/README.md",
    "lib/spam_training/README.md",
)
PAGES = {name: (ROOT / name).read_text() for name in NAMES}
BLOCK = re.compile(
    r"^(?:<!-- (?P<name>.*?) -->\n)?```(?P<kind>\w*)\n(?P<text>.*?)^```$", re.M | re.S
)
FIGURES = re.compile(r"<!-- figures: .*?<!-- end -->", re.S)  # written by sluice.bench.figures


class Block(NamedTuple):
    """A fenced block. name: of the comment in the line before, or None; kind: sh, console ..."""

    name: str | None
    kind: str
    text: str


def blocks(name):
    """[Block] of the page, without those of figures."""
    return [
        Block(*m.group("name", "kind", "text"))
        for m in BLOCK.finditer(FIGURES.sub("", PAGES[name]))
    ]


def block(page, name):
    """The text of the block with this name."""
    (found,) = (b.text for b in blocks(page) if b.name == name)
    return found


def commands(text):
    """[(command, output)] of a transcript. A command begins with "$ ". It goes on after "|" or a
    backslash at the end of a line, and to the END of a here-document."""
    found, lines = [], iter(text.splitlines())
    for line in lines:
        if not line.startswith("$ "):
            found[-1][1].append(line)
            continue
        command = [line[2:]]
        while command[-1].endswith(("|", "\\")) or "<<'END'" in command[0] and command[-1] != "END":
            command.append(next(lines))
        found.append(("\n".join(command), []))
    return [(command, "".join(line + "\n" for line in output)) for command, output in found]


def prose(name):
    """The page without code, comments, tables and the targets of links."""
    text = re.sub(r"<!--.*?-->", "", BLOCK.sub("", FIGURES.sub("", PAGES[name])))
    text = re.sub(r"^ *\|.*$|^    .*$", "", text, flags=re.M)
    text = re.sub(r"`[^`]*`", "`", text)
    return re.sub(r"\]\([^)]*\)", "]", text)


def links(name):
    """[(path, anchor or "")] of the page's links to files of this tree; path is relative to
    ROOT.
    """
    found = []
    for target in re.findall(r"\]\(([^)\s]+)\)", BLOCK.sub("", PAGES[name])):
        if "://" not in target:
            path, _, anchor = target.partition("#")
            here = (ROOT / name).parent / path if path else ROOT / name
            found.append((here.resolve().relative_to(ROOT), anchor))
    return found


def anchors(path):
    """The anchors that GitHub gives the headings of a page."""
    text = BLOCK.sub("", (ROOT / path).read_text())
    return {
        re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        for heading in re.findall(r"^#+ (.*)$", text, re.M)
    }
