"""Mail of our own writing for training: templates in written/*.txt and written/close/*.txt,
expanded with a seeded generator. Those in close are worded and laid out as such mail mostly is, and
come CLOSE times as often.

A template begins with a line `=== ham KIND [LANG]` or `=== spam KIND [LANG]`. After it come, each
optional, the lines `From:`, `Subject:`, `Links:` (hosts, separated by commas) and `Files:`, then an
empty line and the body. Inside:

    {a|b|c}     one of the alternatives, as likely as the others; they nest and may be empty
    $slot       a value of that slot, the same wherever the text says $slot; $slot2 to $slot9 are
                others, $SLOT is fresh
    #           a digit, unless it begins a line or $, a letter or ! follows
    ^ ~         a capital, a hexadecimal digit, where two or more of ^, ~ and # stand together
    $$          a dollar sign; so is a $ that no letter follows

The slots are in written/slots.conf: lines `key: value | value` (`key.de:` for a language), where
values may hold alternatives and slots, and `#` is any digit, `^` any capital, `~` any hexadecimal
digit. A value `Shop=shop.example` gives $key and, for the part after the `=`, $keyhost; of a value
without it $keyhost is made from its words. Of $name come $first, $last and $user; $email is the
user at the host of $company, which is also called $host.

What mailers put above and below either kind of mail (footers.txt) and hosts that either may link to
are added to a share of the texts, with the same chance for both labels, so that they decide
nothing; what mailing lists add (list_footers.txt) lists.py puts around texts of any corpus. Lines
of the head that templates of spam have more often are taken from a share of its texts, for the same
reason.
"""

import math
import random
import re
import unicodedata
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).parent / "written"
LABELS = ("ham", "spam")
HEAD = ("From", "Subject", "Links", "Files")
# what stands around a mail, and no mail: of mailers, of lists (lists.py)
AROUND = ("footers.txt", "list_footers.txt")
P_FRAME, P_PART, P_FOOTER, P_COMMON_LINKS = 0.6, 0.3, 0.12, 0.2
P_FRAME_CLOSE = 0.25  # of templates in close, which have such lines of their own
BITS, MOST_TIMES, CLOSE = 8, 6, 3  # of times()
# of spam, whose templates have these lines more often: so that having one tells nothing
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
def parse(text):
    """The tree of a template's text: a list of str, ("slot", key, number) and ("one of", trees).
    ValueError: unbalanced.
    """
    tree, at = [], 0
    open_trees, choices = [tree], []
    for match in _TOKEN.finditer(text):
        now, token = open_trees[-1], match[0]
        if token == "|" and not choices:
            continue  # outside braces a bar is a bar
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
                raise ValueError(
                    f"a brace closes that was not opened: {text[max(at - 40, 0) : at]!r}"
                )
            choices.pop()
            open_trees.pop()
        else:
            now.append("$" if token == "$$" else ("slot", match[1], match[2]))
    if choices:
        raise ValueError(f"a brace stays open: {text[:60]!r}")
    return tree + [text[at:]]


@cache
def slots():
    """{key: [value, ...]} of written/slots.conf; keys of a language end in `.de` and the like."""
    found = {}
    for line in (FOLDER / "slots.conf").read_text("utf-8").splitlines():
        if line.strip() and not line.startswith("# "):
            key, _, values = line.partition(": ")
            found.setdefault(key, []).extend(value.strip() for value in values.split(" | "))
    return found


@cache
def templates():
    """Every template: a tuple of (label, kind, text); text begins with the line `=== ...`. In the
    order of the files.
    """
    return tuple(
        t
        for path in files()
        if path.suffix == ".txt" and path.name not in AROUND
        for t in read(path)
    )


def files():
    """[Path] of all that texts are made of: those in close last."""
    return [
        path
        for folder in (FOLDER, FOLDER / "close")
        for path in sorted(folder.iterdir())
        if path.is_file()
    ]


@cache
def close():
    """The texts of the templates in close."""
    return frozenset(text for path in files() if path.parent != FOLDER for _, _, text in read(path))


def read(path):
    """The templates of one file. ValueError names the line that does not begin one as it should."""
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
    """The slots of one text: chosen when first asked for, then kept."""

    def __init__(self, rng, language):
        self.rng, self.language, self.kept = rng, language, {}

    def template(self, source):
        marked = _CODE.sub(lambda code: code[0].replace("^", "\1").replace("~", "\2"), source)
        return re.sub(
            "[\0-\2]",
            lambda mark: self.rng.choice(_MARKS[mark[0]]),
            self.text(_DIGIT.sub("\0", marked)),
        )

    def text(self, source):
        return "".join(self._parts(parse(source)))

    def _parts(self, tree):
        for node in tree:
            if isinstance(node, str):
                yield node
            elif node[0] == "one of":
                yield from self._parts(self.rng.choice(node[1]))
            else:
                yield self.slot(node[1], node[2])

    def slot(self, key, number):
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
        """(value, host or None), another one for every number as far as there are others."""
        if (key, number) not in self.kept:
            values = slots().get(f"{key}.{self.language}") or slots()[key]
            taken = {value for (k, _), value in self.kept.items() if k == key}
            for _ in range(4):
                value = self._make(self.rng.choice(values))
                if value not in taken:
                    break
            self.kept[key, number] = value
        return self.kept[key, number]

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
        joint = self.rng.choice(("", "", "-"))
        return (
            joint.join(words[:2]) + "." + self.rng.choice(slots()["tld"]) if words else "localhost"
        )

    def _of_name(self, key, number):
        first, _, last = self.slot("name", number).partition(" ")
        if key in ("first", "last"):
            return first if key == "first" else last
        a, b = (re.sub("[^a-z]", "", _plain(part)) for part in (first, last))
        if ("user", number) not in self.kept:
            self.kept["user", number] = self.rng.choice(
                (f"{a}.{b}", a, f"{a[0]}{b}", f"{a}{b[:1]}", f"{a[0]}.{b}", b)
            )
        user = self.kept["user", number]
        return user if key == "user" else f"{user}@{self.slot('companyhost', '')}"


def _plain(text):
    """Small letters of ASCII, accents taken away."""
    return (
        unicodedata.normalize("NFKD", text.lower().replace("ß", "ss").replace("ø", "o"))
        .encode("ascii", "ignore")
        .decode()
    )


def expand(template, rng):
    """One mail from a template (its text, or the tuple that templates() gives) with random.Random
    `rng`, as Mail.text() lays it out.

    Lines From, Subject, Links and Files, only those that say something; an empty line; the body.
    """
    source = template if isinstance(template, str) else template[2]
    opening, _, rest = source.partition("\n")
    label, language = _OPENING.match(opening).group(1, 3)
    filler = Filler(rng, language)
    head, body = {}, rest
    while match := re.match(r"(From|Subject|Links|Files):(.*)(?:\n|$)", body):
        head[match[1]] = " ".join(filler.template(match[2]).split())
        body = body[match.end() :]
    body = _framed(
        filler.template(body.strip("\n")), rng, P_FRAME_CLOSE if source in close() else P_FRAME
    )
    if label == "spam":
        head = {key: line for key, line in head.items() if rng.random() >= P_DROPPED.get(key, 0)}
    links = head.get("Links", "").split(",") + _common_links(rng)
    head["Links"] = ", ".join(dict.fromkeys(link.strip() for link in links if link.strip()))
    lines = [f"{key}: {head[key]}" for key in HEAD if head.get(key)]
    body = re.sub(r"\n{3,}", "\n\n", re.sub(r"[ \t]+$", "", body, flags=re.M)).strip("\n")
    return "\n".join([*lines, "", body, ""])


@cache
def around(name):
    """(kind, text) of a file of AROUND, in its order; kind `top`: before the body."""
    return [(kind, text.partition("\n")[2].strip("\n")) for _, kind, text in read(FOLDER / name)]


def _framed(body, rng, p_frame):
    """A body with what mailers put around any mail (of probability p_frame), or with one line of
    it, or as it is.
    """
    parts = around("footers.txt")
    if rng.random() < p_frame:
        parts = [part for part in parts if rng.random() < P_PART]
    else:
        parts = [rng.choice(parts)] if rng.random() < P_FOOTER else []
    filler, joint = Filler(rng, None), rng.choice(("\n", "\n\n"))
    text = {
        is_top: joint.join(filler.template(t) for kind, t in parts if (kind == "top") == is_top)
        for is_top in (True, False)
    }
    return "\n\n".join(part for part in (text[True], body, text[False]) if part)


def _common_links(rng):
    return (
        rng.sample(slots()["commonlink"], rng.randint(1, 3))
        if rng.random() < P_COMMON_LINKS
        else []
    )


def bits(tree):
    """How many bits of choice the tree of a template has: alternatives are alike, slots count
    nothing.
    """
    return sum(
        math.log2(len(node[1])) + sum(map(bits, node[1])) / len(node[1])
        for node in tree
        if node and node[0] == "one of"
    )


def times(text):
    """How often the template of that text comes in a round: once for every BITS of choice, rounded,
    but once at least and MOST_TIMES at most; and CLOSE times that if it is one of those in close.
    """
    return min(max(round(bits(parse(text)) / BITS), 1), MOST_TIMES) * (
        CLOSE if text in close() else 1
    )


def texts(seed, n):
    """n mails, ham and spam by turns: a list of (label, kind, index of the template, text). Of each
    label every template as often as `times` says before any comes again; there are more templates
    of ham, as it has more kinds.
    """
    rng, all_templates, found = random.Random(f"written {seed}"), templates(), []
    order = {label: [] for label in LABELS}
    while len(found) < n:
        label = LABELS[len(found) % 2]
        if not order[label]:
            order[label] = [
                i
                for i, template in enumerate(all_templates)
                if template[0] == label
                for _ in range(times(template[2]))
            ]
            rng.shuffle(order[label])
        index = order[label].pop()
        found.append((label, all_templates[index][1], index, expand(all_templates[index], rng)))
    return found
