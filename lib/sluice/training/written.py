"""Mail of our own writing for training: templates in written/*.txt, expanded with a seeded generator.

A template begins with a line `=== ham KIND [LANG]` or `=== spam KIND [LANG]`. After it come, each optional, the lines
`From:`, `Subject:`, `Links:` (hosts, separated by commas) and `Files:`, then an empty line and the body. Inside:

    {a|b|c}     one of the alternatives, as likely as the others; they nest and may be empty
    $slot       a value of that slot, the same wherever the text says $slot; $slot2 to $slot9 are others, $SLOT is fresh
    #           a digit, unless it begins a line or $, a letter or ! follows
    $$          a dollar sign; so is a $ that no letter follows

The slots are in written/slots.conf: lines `key: value | value` (`key.de:` for a language), where values may hold
alternatives and slots, and `#` is any digit, `^` any capital, `~` any hexadecimal digit. A value `Shop=shop.example`
gives $key and, for the part after the `=`, $keyhost; of a value without it $keyhost is made from its words. Of $name
come $first, $last and $user; $email is the user at the host of $company, which is also called $host.

Endings that either kind of mail may have (footers.txt) and hosts that either may link to are added to a share of the
texts, with the same chance for both labels, so that they decide nothing.
"""
import random
import re
import unicodedata
from functools import lru_cache
from pathlib import Path

FOLDER = Path(__file__).parent / "written"
LABELS = ("ham", "spam")
HEAD = ("From", "Subject", "Links", "Files")
P_FOOTER, P_COMMON_LINKS = 0.12, 0.2

_OPENING = re.compile(r"=== (ham|spam|both) ([a-z0-9-]+)(?: (de|fr|es|it|pt|nl))?$")
_TOKEN = re.compile(r"\$([A-Za-z]+)([2-9]?)|\$\$|[{|}]")
_FORMS = re.compile(r"\b(?:ltd|inc|llc|gmbh|plc|bv|sa|spa|srl|ag|co|and|the|of)\b")
_DIGIT = re.compile(r"(?<!^)#(?![$A-Za-z!])|^#(?=[#\d])", re.M)
_DERIVED = ("first", "last", "user", "email")
_DIGITS, _CAPITALS, _HEX = "0123456789", "ABCDEFGHJKLMNPQRSTUVWXYZ", "0123456789abcdef"


def parse(text):
    """The tree of a template's text: a list of str, ("slot", key, number) and ("one of", trees). ValueError: unbalanced."""
    tree, at = [], 0
    open_trees, choices = [tree], []
    for match in _TOKEN.finditer(text):
        now, token = open_trees[-1], match[0]
        if token == "|" and not choices:
            continue  # outside braces a bar is a bar
        if match.start() > at:
            now.append(text[at:match.start()])
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
                raise ValueError(f"a brace closes that was not opened: {text[max(at - 40, 0):at]!r}")
            choices.pop()
            open_trees.pop()
        else:
            now.append("$" if token == "$$" else ("slot", match[1], match[2]))
    if choices:
        raise ValueError(f"a brace stays open: {text[:60]!r}")
    return tree + [text[at:]]


_parse = lru_cache(maxsize=None)(parse)


@lru_cache(maxsize=None)
def slots():
    """{key: [value, ...]} of written/slots.conf; keys of a language end in `.de` and the like."""
    found = {}
    for line in (FOLDER / "slots.conf").read_text("utf-8").splitlines():
        if line.strip() and not line.startswith("# "):
            key, _, values = line.partition(": ")
            found.setdefault(key, []).extend(value.strip() for value in values.split(" | "))
    return found


def is_slot(key):
    """Whether `key`, in small letters, names a slot or what is derived from one."""
    return key in slots() or key in _DERIVED or key == "host" or key.endswith("host") and key[:-4] in slots()


@lru_cache(maxsize=None)
def templates():
    """Every template: a tuple of (label, kind, text); text begins with the line `=== ...`. In the order of the files."""
    return tuple(t for path in sorted(FOLDER.glob("*.txt")) if path.name != "footers.txt" for t in read(path))


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


class _Filler:
    """The slots of one text: chosen when first asked for, then kept."""

    def __init__(self, rng, language):
        self.rng, self.language, self.kept = rng, language, {}

    def template(self, source):
        return re.sub("\0", lambda _: self.rng.choice(_DIGITS), self.text(_DIGIT.sub("\0", source)))

    def text(self, source):
        return "".join(self._parts(_parse(source)))

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
            return _Filler(self.rng, self.language).slot(key.lower(), "")
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
        marked = re.sub("[#^~]", lambda m: self.rng.choice({"#": _DIGITS, "^": _CAPITALS, "~": _HEX}[m[0]]), self.text(source))
        value, _, host = marked.partition("=")
        return value, host or self._host(value)

    def _host(self, value):
        words = re.findall("[a-z0-9]+", _FORMS.sub("", _plain(value)))
        joint = self.rng.choice(("", "", "-"))
        return joint.join(words[:2]) + "." + self.rng.choice(slots()["tld"]) if words else "localhost"

    def _of_name(self, key, number):
        first, _, last = self.slot("name", number).partition(" ")
        if key in ("first", "last"):
            return first if key == "first" else last
        a, b = (re.sub("[^a-z]", "", _plain(part)) for part in (first, last))
        if ("user", number) not in self.kept:
            self.kept["user", number] = self.rng.choice((f"{a}.{b}", a, f"{a[0]}{b}", f"{a}{b[:1]}", f"{a[0]}.{b}", b))
        user = self.kept["user", number]
        return user if key == "user" else f"{user}@{self.slot('companyhost', '')}"


def _plain(text):
    """Small letters of ASCII, accents taken away."""
    return unicodedata.normalize("NFKD", text.lower().replace("ß", "ss").replace("ø", "o")).encode("ascii", "ignore").decode()


def expand(template, rng):
    """One mail from a template (its text, or the tuple that templates() gives) with random.Random `rng`, as Mail.text() lays it out.

    Lines From, Subject, Links and Files, only those that say something; an empty line; the body.
    """
    source = template if isinstance(template, str) else template[2]
    opening, _, rest = source.partition("\n")
    filler = _Filler(rng, _OPENING.match(opening)[3])
    head, body = {}, rest
    while (match := re.match(r"(From|Subject|Links|Files):(.*)(?:\n|$)", body)):
        head[match[1]] = " ".join(filler.template(match[2]).split())
        body = body[match.end():]
    body = filler.template(body.strip("\n")) + _footer(rng)
    links = head.get("Links", "").split(",") + _common_links(rng)
    head["Links"] = ", ".join(dict.fromkeys(link.strip() for link in links if link.strip()))
    lines = [f"{key}: {head[key]}" for key in HEAD if head.get(key)]
    body = re.sub(r"\n{3,}", "\n\n", re.sub(r"[ \t]+$", "", body, flags=re.M)).strip("\n")
    return "\n".join([*lines, "", body, ""])


@lru_cache(maxsize=None)
def _footers():
    return [text.partition("\n")[2].strip("\n") for _, _, text in read(FOLDER / "footers.txt")]


def _footer(rng):
    if rng.random() >= P_FOOTER:
        return ""
    return "\n\n" + _Filler(rng, None).template(rng.choice(_footers()))


def _common_links(rng):
    return rng.sample(slots()["commonlink"], rng.randint(1, 3)) if rng.random() < P_COMMON_LINKS else []


def texts(seed, n):
    """n mails: a list of (label, kind, index of the template, text). Every template once before any comes again."""
    rng, all_templates, found, order = random.Random(f"written {seed}"), templates(), [], []
    while len(found) < n:
        if not order:
            order = rng.sample(range(len(all_templates)), len(all_templates))
        index = order.pop()
        label, kind, source = all_templates[index]
        found.append((label, kind, index, expand(source, rng)))
    return found
