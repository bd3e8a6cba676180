"""Generate the manual of a command from its declarations: text for --help, roff for man.

A manual is a list of sections, (title, blocks). A block is one of

    ("text", STR)          a paragraph, to be filled
    ("lines", [STR])       lines to be printed verbatim
    ("row", HEAD, STR)     an option, exit status or other term, and its meaning
    ("group", STR)         the heading of the following rows

For a click command (`of_command`) the sections come from its docstring. The first line is the
summary. A line in capitals begins a section, indented by two columns. OPTIONS lists the declared
options. For a C program (`of_usage`) the sections come from its --help.
"""

import inspect
import os
import re
import textwrap
import time

import click

from .. import VERSION

WIDTH, COLUMN = 80, 26  # of a terminal; column of an option's meaning
GROUPS: tuple[str, ...] = (
    "Model",
    "Prompt",
    "Chat",
    "Input",
    "Many texts",
    "Output",
    "Conversion",
    "Sampling",
    "Tests",
    "Why",
    "Receipts",
    "Evaluation",
    "Honest probabilities",
    "Learning",
    "Mail",
    "Cache",
    "Speculation",
    "Server",
    "General",
)  # in the order of the manual
Manual = list[tuple[str, list[tuple]]]  # [(title, [block])]
VERBATIM = ("SYNOPSIS", "EXAMPLES")
LATER = ("EXIT STATUS", "EXAMPLES", "SEE ALSO")  # sections after OPTIONS


def of_command(name: str, command: click.Command) -> Manual:
    """Return the manual of a click command, called `name`."""
    summary, given = _docstring(inspect.cleandoc(command.help or ""))
    return _ordered(name, summary, [*given, ("OPTIONS", _options(command))])


def of_usage(usage: str) -> Manual:
    """The manual of a program that prints `usage` for --help: `text` of the manual is `usage`.

    Raises ValueError where a section of it is missing.
    """
    titles_and_bodies = re.split(r"^([A-Z][A-Z ]+)\n", usage, flags=re.M)[1:]
    part = dict(zip(titles_and_bodies[::2], titles_and_bodies[1::2]))
    missing = {"NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", *LATER} - set(part)
    if missing:
        raise ValueError(f"--help: no {', '.join(sorted(missing))}")
    out: Manual = []
    for title, body in part.items():
        if title == "OPTIONS":
            out.append((title, _usage_rows(body)))
        elif title in VERBATIM:
            out.append((title, [("lines", textwrap.dedent(body).strip("\n").split("\n"))]))
        else:
            out.append((title, _blocks(textwrap.dedent(body))))
    return out


def text(manual: Manual) -> str:
    """Return the manual as text for --help, with lines of at most WIDTH columns."""
    return "\n".join(line for title, blocks in manual for line in _section(title, blocks)) + "\n"


def roff(manual: Manual) -> str:
    """Return the manual as a page of section 1 for man. Date: $SOURCE_DATE_EPOCH, or today."""
    name = summary_of(manual)[0]
    date = time.gmtime(int(os.environ.get("SOURCE_DATE_EPOCH") or time.time()))
    out = [f'.TH {name.upper()} 1 "{time.strftime("%Y-%m-%d", date)}" "Sluice {VERSION}" "Sluice"']
    for title, blocks in manual:
        out.append(f".SH {title}")
        for i, block in enumerate(blocks):
            out += _roff_block(title, block, is_first=not i or blocks[i - 1][0] == "group")
    return "\n".join(out) + "\n"


def summary_of(manual: Manual) -> tuple[str, str]:
    """Return (name, summary) of a manual."""
    name, _, summary = manual[0][1][0][1].partition(" - ")
    return name, summary


def flags(option: click.Option) -> str:
    """Return the head of an option's row: "-m, --model FILE", "--bos, --no-bos"."""
    names = ", ".join([*names_of(option), *option.secondary_opts])
    return names if option.is_flag else f"{names} {metavar_of(option)}"


def names_of(option: click.Option) -> list[str]:
    """Return the spellings of an option in the help, without negations (--no-bos)."""
    return getattr(option, "names", option.opts)


def metavar_of(option: click.Option) -> str:
    """Return the placeholder for the value of an option, such as FILE."""
    return option.metavar or option.type.name.upper()


# Reading ---------------------------------------------------------------------------------


def _docstring(doc):
    """Split a docstring into (summary, sections)."""
    summary, *parts = re.split(r"^([A-Z][A-Z ]+)\n", doc, flags=re.M)
    return summary.strip(), [
        (title, [("lines", textwrap.dedent(body).strip("\n").split("\n"))])
        if title in VERBATIM
        else (title, _blocks(textwrap.dedent(body)))
        for title, body in zip(parts[::2], parts[1::2])
    ]


def _ordered(name, summary, sections):
    heading = ("NAME", [("text", f"{name} - {summary[0].lower()}{summary[1:].rstrip('.')}")])
    first = [section for section in sections if section[0] not in ("OPTIONS", *LATER)]
    last = sorted(
        (section for section in sections if section[0] in ("OPTIONS", *LATER)),
        key=lambda section: ("OPTIONS", *LATER).index(section[0]),
    )
    return [heading, *first, *last]


def _blocks(body):
    """Split a section into paragraphs, indented lines and rows ("65  bad input")."""
    out = []
    for part in re.split(r"\n\s*\n", body.strip("\n")):
        lines = part.split("\n")
        if re.match(r"\S+ {2,}\S", lines[0]):
            for line in lines:
                found = re.match(r"(\S+) {2,}(\S.*)", line)
                if found:
                    out.append(("row", *found.groups()))
                elif line.startswith(" "):
                    out[-1] = ("row", out[-1][1], f"{out[-1][2]} {line.strip()}")
                else:
                    out.append(("text", line))
        elif lines[0].startswith(" "):
            out.append(("lines", textwrap.dedent(part).split("\n")))
        elif part.strip():
            out.append(("text", " ".join(part.split())))
    return out


def _options(command):
    """Return the rows of all options in their groups, and a line with their aliases."""
    options = [p for p in command.params if isinstance(p, click.Option) and not p.hidden]
    with click.Context(command, **command.context_settings) as context:
        options.append(command.get_help_option(context))
    options.sort(key=lambda option: option.name in ("version", "help"))  # these last
    group_of = lambda option: getattr(option, "group", "General")
    out = []
    for group in GROUPS:
        rows = [("row", flags(o), _meaning(o)) for o in options if group_of(o) == group]
        out += [("group", group), *rows] if rows else []
    aliases = [
        f"{', '.join(o.aliases)} ({names_of(o)[0]})" for o in options if getattr(o, "aliases", ())
    ]
    return [*out, ("text", f"Also accepted: {'; '.join(aliases)}.")] if aliases else out


def _meaning(option):
    """Return the help of an option, and its default in brackets."""
    default, help = option.show_default, option.help or ""
    if not isinstance(default, str):
        is_said = not option.is_flag and not option.multiple and _is_value(option.default)
        default = (
            f"{option.default:{'g' if isinstance(option.default, float) else ''}}"
            if is_said
            else ""
        )
    help = help if ". " in help else help.removesuffix(".")
    return f"{help} [{default}]".strip() if default else help


def _is_value(default):
    """Whether a default is a value: for none click has a sentinel of a type of its own."""
    return isinstance(default, (str, int, float)) and not isinstance(default, bool)


def _usage_rows(body):
    """Groups and rows of OPTIONS as `text` writes them."""
    out: list[list[str]] = []
    for line in body.rstrip("\n").split("\n"):
        if not line.startswith("  "):
            out.append(["group", line.strip()])
        elif line.startswith("  -"):
            head, _, meaning = line.strip().partition("  ")
            out.append(["row", head, meaning.strip()])
        else:
            out[-1][2] = f"{out[-1][2]} {line.strip()}".strip()
    return [tuple(row) for row in out]


# Writing ---------------------------------------------------------------------------------


def _section(title, blocks):
    out = [title]
    heads = [len(block[1]) for block in blocks if block[0] == "row"]
    column = COLUMN if title == "OPTIONS" else 4 + max(heads, default=0)
    for i, block in enumerate(blocks):
        kind, body = block[0], block[-1]
        apart = i and "text" in (kind, blocks[i - 1][0])
        out += [""] if apart else []
        if kind == "text":
            out += textwrap.wrap(
                body, WIDTH - 2, initial_indent="  ", subsequent_indent="  ", **FILL
            )
        elif kind == "lines":
            extra = "" if title in VERBATIM else "  "
            out += [f"  {extra}{line}".rstrip() for line in body]
        elif kind == "group":
            out.append(f" {body}")
        else:
            out += _row(block[1], body, column)
    return out


FILL = {"break_long_words": False, "break_on_hyphens": False}


def _row(head, meaning, column):
    first = f"  {head}".ljust(column)
    lines = textwrap.wrap(meaning, WIDTH - 1 - column, **FILL)
    if not lines:
        return [first.rstrip()]
    rest = [" " * column + line for line in lines]
    return [first + lines[0], *rest[1:]] if first.endswith("  ") else [first.rstrip(), *rest]


def _roff_block(title, block, is_first):
    kind, body = block[0], block[-1]
    if kind == "group":
        return [f".SS {body}"]
    if kind == "row":
        return [".TP", _roff_flags(block[1]), *(_roff_text(body) or ["\\&"])]
    if kind == "lines":
        lines = [_protected(_escaped(line)) or "\\&" for line in body]
        return [*([] if is_first else [".PP"]), ".nf", *lines, ".fi"]
    if title == "SEE ALSO":
        pages = [name if name.endswith(")") else f"{name}(1)" for name in body.split(", ")]
        return _roff_text(", ".join(pages))
    return [*([] if is_first else [".PP"]), *_roff_text(body)]


def _roff_text(text):
    lines = textwrap.wrap(_escaped(text), WIDTH - 2, **FILL)
    return [_protected(line) for line in lines]


def _roff_flags(head):
    """Return a row's head with bold options and italic values."""
    bold = re.sub(r"(?<![\w-])(-[\w-]*\w)", r"\\fB\1\\fR", head.replace("\\", "\\(rs"))
    value = re.sub(r"(?<= )([A-Z][A-Z|=,_]*)\b", r"\\fI\1\\fR", bold)
    return _protected(value.replace("-", "\\-"))


def _escaped(text):
    """Escape text for roff."""
    for plain, escape in (("\\", "\\(rs"), ("-", "\\-"), ("'", "\\(aq"), ("`", "\\(ga")):
        text = text.replace(plain, escape)
    return text.replace("^", "\\(ha").replace("~", "\\(ti")


def _protected(line):
    """Protect a line of roff from being read as a request."""
    return "\\&" + line if line.startswith((".", "'")) else line
