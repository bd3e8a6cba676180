"""Make training texts from the templates in templates/*.txt and templates/realistic/*.txt.

Templates in realistic/ imitate wording and layout of real mail; they are used REALISTIC times as
often. The order of files and templates decides which ones are kept for validation.

A template begins with a line `=== ham KIND [LANG]` or `=== spam KIND [LANG]`. The optional lines
`From:`, `Subject:`, `Links:` (hosts, separated by commas) and `Files:` follow, then an empty line
and the body. Syntax:

    {a|b|c}     one of the alternatives, equally likely; they nest and may be empty
    $slot       a value of that slot, the same for each $slot of the text; $slot2 to $slot9 have
                other values, each $SLOT has a new one
    #           a digit, unless it begins a line or is followed by $, a letter or !
    ^ ~         a capital and a hexadecimal digit, in runs of two or more of ^, ~ and #
    $$          a dollar sign; a $ without a letter after it is one too

The slots are in templates/slots.conf: lines `key: value | value` (`key.de:` for a language). Values
may contain alternatives and slots; `#` is a digit, `^` a capital, `~` a hexadecimal digit. A value
`Shop=shop.example` gives $key and, after the `=`, $keyhost; without `=`, $keyhost is made from the
words of the value. $first, $last and $user are parts of $name; $email is the user at the host of
$company, which is also $host.

Lines that mailers add to any message (footers.txt) and hosts that any message may link to are added
to a share of the texts, with the same probability for both labels, so they are no evidence.
mailing_lists.py adds list_footers.txt to texts of any corpus. Templates of spam have more header
lines, so these are dropped from a share of its texts.
"""

from __future__ import annotations

import math
import random
import re
import unicodedata
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).parent / "templates"
LABELS = ("ham", "spam")
HEAD = ("From", "Subject", "Links", "Files")
# files of lines that mailers and lists add to a message, not of templates
AROUND = ("footers.txt", "list_footers.txt")
P_MAILER_LINES, P_LINE, P_FOOTER, P_COMMON_LINKS = 0.6, 0.3, 0.12, 0.2
P_MAILER_LINES_REALISTIC = 0.25  # of templates in realistic, which have such lines already
BITS, MAX_TIMES, REALISTIC = 8, 6, 3  # of times()
# shares of spam texts whose header line is dropped, so that a line is no evidence
P_DROPPED = {"From": 0.16, "Links": 0.34, "Files": 0.28}

_OPENING = re.compile(r"=== (ham|spam|both) ([a-z0-9-]+)(?: (de|fr|es|it|pt|nl))?$")
_TOKEN = re.compile(r"\$([A-Za-z]+)([2-9]?)|\$\$|[{|}]")
_FORMS = re.compile(r"\b(?:ltd|inc|llc|gmbh|plc|bv|sa|spa|srl|ag|co|and|the|of)\b")
_DIGIT = re.compile(r"(?<!^)#(?![$A-Za-z!])|^#(?=[#\d])", re.M)
_CODE = re.compile(r"[\^~#]{2,}")
_DERIVED = ("first", "last", "user", "email")
_DIGITS, _CAPITALS, _HEX = "0123456789", "ABCDEFGHJKLMNPQRSTUVWXYZ", "0123456789abcdef"
_MARKS = {"\0": _DIGITS, "\1": _CAPITALS, "\2": _HEX}


@cache
def parse(text: str) -> list:
    """Parse a template's text: a list of str, ("slot", key, number) and ("one of", trees).

    ValueError: unbalanced braces.
    """
    tree, at = [], 0
    open_trees, choices = [tree], []
    for match in _TOKEN.finditer(text):
        now, token = open_trees[-1], match[0]
        if token == "|" and not choices:
            continue  # outside braces, a bar is text
        if match.start() > at:
            now.append(text[at : match.start()])
        at = match.end()
        if token == "{":
            choices.append([[]])
            now.append(("one of", choices[-1]))
            open_trees.append(choices[-1][0])
        elif token == "|":
            choices[-1].append([])
            open_trees[-1] = choices[-1][-1]
        elif token == "}":
            if not choices:
                raise ValueError(f"unmatched closing brace: {text[max(at - 40, 0) : at]!r}")
            choices.pop()
            open_trees.pop()
        else:
            now.append("$" if token == "$$" else ("slot", match[1], match[2]))
    if choices:
        raise ValueError(f"unmatched opening brace: {text[:60]!r}")
    return tree + [text[at:]]


@cache
def slots() -> dict[str, list[str]]:
    """{key: [value, ...]} of templates/slots.conf; keys of a language end in `.de` and the like."""
    found = {}
    for line in (FOLDER / "slots.conf").read_text("utf-8").splitlines():
        if line.strip() and not line.startswith("# "):
            key, _, values = line.partition(": ")
            found.setdefault(key, []).extend(value.strip() for value in values.split(" | "))
    return found


@cache
def load() -> tuple[tuple[str, str, str], ...]:
    """All templates in the order of the files: a tuple of (label, kind, text).

    A text includes its line `=== ...`.
    """
    return tuple(
        t
        for path in files()
        if path.suffix == ".txt" and path.name not in AROUND
        for t in read(path)
    )


def files() -> list[Path]:
    """[Path] of all files that texts are made from, sorted; those in realistic last."""
    return [
        path
        for folder in (FOLDER, FOLDER / "realistic")
        for path in sorted(folder.iterdir())
        if path.is_file()
    ]


@cache
def realistic() -> frozenset[str]:
    """The texts of the templates in realistic/: a frozenset."""
    return frozenset(text for path in files() if path.parent != FOLDER for _, _, text in read(path))


def read(path: Path) -> list[tuple[str, str, str]]:
    """[(label, kind, text)] of one file. ValueError names an invalid first line."""
    found = []
    for part in re.split(r"^(?==== )", path.read_text("utf-8"), flags=re.M):
        first = part.partition("\n")[0]
        opening = _OPENING.match(first)
        if opening:
            found.append((opening[1], opening[2], part.rstrip("\n")))
        elif part.strip():
            raise ValueError(f"{path.name}: {first!r}: not `=== LABEL KIND [LANG]`")
    return found


class Filler:
    """The slots of one text. Values are chosen at first use. rng: random.Random."""

    def __init__(self, rng: random.Random, language: str | None):
        self.rng, self.language, self.values_so_far = rng, language, {}

    def template(self, source: str) -> str:
        """Expand the text of a template: alternatives, slots, digits and codes."""
        marked = _CODE.sub(lambda code: code[0].replace("^", "\1").replace("~", "\2"), source)
        return re.sub(
            "[\0-\2]",
            lambda mark: self.rng.choice(_MARKS[mark[0]]),
            self.text(_DIGIT.sub("\0", marked)),
        )

    def text(self, source: str) -> str:
        """Expand alternatives and slots."""
        return "".join(self._parts(parse(source)))

    def _parts(self, tree):
        for node in tree:
            if isinstance(node, str):
                yield node
            elif node[0] == "one of":
                yield from self._parts(self.rng.choice(node[1]))
            else:
                yield self.slot(node[1], node[2])

    def slot(self, key: str, number: str) -> str:
        """The value of slot `key`; number: "" or "2" to "9"."""
        if key.isupper() and len(key) > 1 or key == "W":
            return Filler(self.rng, self.language).slot(key.lower(), "")
        if key == "host":
            key = "companyhost"
        if key in _DERIVED:
            return self._of_name(key, number)
        own = key.endswith("host") and key[:-4] in slots() and key not in slots()
        value = self._value(key[:-4] if own else key, number)
        return value[1] if own else value[0]

    def _value(self, key, number):
        """(value, host or None), different for each number as far as there are enough."""
        if (key, number) not in self.values_so_far:
            values = slots().get(f"{key}.{self.language}") or slots()[key]
            taken = {value for (k, _), value in self.values_so_far.items() if k == key}
            for _ in range(4):
                value = self._make(self.rng.choice(values))
                if value not in taken:
                    break
            self.values_so_far[key, number] = value
        return self.values_so_far[key, number]

    def _make(self, source):
        marked = re.sub(
            "[#^~]",
            lambda m: self.rng.choice({"#": _DIGITS, "^": _CAPITALS, "~": _HEX}[m[0]]),
            self.text(source),
        )
        value, _, host = marked.partition("=")
        return value, host or self._host(value)

    def _host(self, value):
        words = re.findall("[a-z0-9]+", _FORMS.sub("", _plain(value)))
        separator = self.rng.choice(("", "", "-"))
        return (
            separator.join(words[:2]) + "." + self.rng.choice(slots()["tld"])
            if words
            else "localhost"
        )

    def _of_name(self, key, number):
        first, _, last = self.slot("name", number).partition(" ")
        if key in ("first", "last"):
            return first if key == "first" else last
        a, b = (re.sub("[^a-z]", "", _plain(part)) for part in (first, last))
        if ("user", number) not in self.values_so_far:
            self.values_so_far["user", number] = self.rng.choice(
                (f"{a}.{b}", a, f"{a[0]}{b}", f"{a}{b[:1]}", f"{a[0]}.{b}", b)
            )
        user = self.values_so_far["user", number]
        return user if key == "user" else f"{user}@{self.slot('companyhost', '')}"


def _plain(text):
    """Lower-case ASCII without accents."""
    return (
        unicodedata.normalize("NFKD", text.lower().replace("ß", "ss").replace("ø", "o"))
        .encode("ascii", "ignore")
        .decode()
    )


def expand(template: str | tuple[str, str, str], rng: random.Random) -> str:
    """Make one text from a template, laid out as by Mail.text().

    template: its text, or a tuple of load(). rng: random.Random. The result has the lines From,
    Subject, Links and Files that are not empty, an empty line and the body.
    """
    source = template if isinstance(template, str) else template[2]
    opening, _, rest = source.partition("\n")
    label, language = _OPENING.match(opening).group(1, 3)
    filler = Filler(rng, language)
    head, body = {}, rest
    while match := re.match(r"(From|Subject|Links|Files):(.*)(?:\n|$)", body):
        head[match[1]] = " ".join(filler.template(match[2]).split())
        body = body[match.end() :]
    body = _with_mailer_lines(
        filler.template(body.strip("\n")),
        rng,
        P_MAILER_LINES_REALISTIC if source in realistic() else P_MAILER_LINES,
    )
    if label == "spam":
        head = {key: line for key, line in head.items() if rng.random() >= P_DROPPED.get(key, 0)}
    links = head.get("Links", "").split(",") + _common_links(rng)
    head["Links"] = ", ".join(dict.fromkeys(link.strip() for link in links if link.strip()))
    lines = [f"{key}: {head[key]}" for key in HEAD if head.get(key)]
    body = re.sub(r"\n{3,}", "\n\n", re.sub(r"[ \t]+$", "", body, flags=re.M)).strip("\n")
    return "\n".join([*lines, "", body, ""])


@cache
def around(name: str) -> list[tuple[str, str]]:
    """[(kind, text)] of a file of AROUND, in its order; kind `top`: before the body."""
    return [(kind, text.partition("\n")[2].strip("\n")) for _, kind, text in read(FOLDER / name)]


def _with_mailer_lines(body, rng, p_mailer_lines):
    """Add lines of mailers to a body: several (probability p_mailer_lines), one or none."""
    parts = around("footers.txt")
    if rng.random() < p_mailer_lines:
        parts = [part for part in parts if rng.random() < P_LINE]
    else:
        parts = [rng.choice(parts)] if rng.random() < P_FOOTER else []
    filler, separator = Filler(rng, None), rng.choice(("\n", "\n\n"))
    text = {
        is_top: separator.join(filler.template(t) for kind, t in parts if (kind == "top") == is_top)
        for is_top in (True, False)
    }
    return "\n\n".join(part for part in (text[True], body, text[False]) if part)


def _common_links(rng):
    return (
        rng.sample(slots()["commonlink"], rng.randint(1, 3))
        if rng.random() < P_COMMON_LINKS
        else []
    )


def bits(tree: list) -> float:
    """Bits of choice in the tree of a template: alternatives are equally likely, slots count 0."""
    return sum(
        math.log2(len(node[1])) + sum(map(bits, node[1])) / len(node[1])
        for node in tree
        if node and node[0] == "one of"
    )


def times(text: str) -> int:
    """How often a template is used in a round: once for each BITS of choice, rounded.

    At least once and at most MAX_TIMES; REALISTIC times that for templates in realistic/.
    """
    return min(max(round(bits(parse(text)) / BITS), 1), MAX_TIMES) * (
        REALISTIC if text in realistic() else 1
    )


def texts(seed: int, n: int) -> list[tuple[str, str, int, str]]:
    """n texts, ham and spam alternating: [(label, kind, index of the template, text)].

    In a round each template of a label is used times() times, in random order. Ham has more kinds
    and more templates.
    """
    rng, templates, found = random.Random(f"written {seed}"), load(), []
    order = {label: [] for label in LABELS}
    while len(found) < n:
        label = LABELS[len(found) % 2]
        if not order[label]:
            order[label] = [
                i
                for i, template in enumerate(templates)
                if template[0] == label
                for _ in range(times(template[2]))
            ]
            rng.shuffle(order[label])
        index = order[label].pop()
        found.append((label, templates[index][1], index, expand(templates[index], rng)))
    return found
