"""Apply the style sheets of a page to its elements as they come, without a tree.

Selectors Level 3: types, classes, ids, attributes and their tests, :first-child, :link, :root, :not
of one of these, all four combinators, lists; the cascade of CSS 2.1, section 6.4. A selector with
anything else (:hover, ::before, :nth-child) matches nothing. @media counts where a window of WIDTH
pixels on a screen fits it. Only rules that can hide or show (css.PROPERTIES) are kept.

Each compound of a selector (`p.x` of `div > p.x`) is a bit. Of the elements that are open, a bit
string tells what they and theirs before them match, so that an element is matched by a few
operations on bits, however deep it is: the time is that of the tags times MAX_COMPOUNDS / 64 at
most. Selectors get their bits in the order of specificity, so that of the rules of one property the
highest bit wins. (lxml's cssselect and soupsieve need a tree, and search it for each selector.)
"""

import re

from . import css

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

    Declared = tuple[dict[str, str], dict[str, str]]  # {name: value}: normal, !important
    # specificity, order, compounds, declarations
    Rule = tuple[tuple[int, int, int], int, "list[_Compound]", Declared]

MAX_CHARACTERS = 64 << 10  # of all sheets of a page; what follows is not read
MAX_COMPOUNDS = 2000  # of the rules that are kept
MAX_PARTS = 8  # of one compound; one with more matches nothing
MAX_TESTS = 20  # of attributes' values
MAX_CLASSES = 100  # of one element
MAX_KNOWN = 4000  # elements of one kind, and sets of rules, that are kept
MAX_ATTRIBUTE = 2000  # characters of a value that is tested
IMPLIED = "tbody, implied"
WIDTH, HEIGHT = 1024, 768  # pixels of the window that @media asks for

PIECE = re.compile(
    r"""/\*(?:[^*]|\*(?!/))*(?:\*/)?|"(?:[^"\\\n]|\\.)*"?|'(?:[^'\\\n]|\\.)*'?|<!--|-->"""
    r"""|url\([^)"']*\)?|\\.|[{};]|[^"'{};\\/<u-]+|.""",
    re.S | re.I,
)
NAME = r"(?:[\w-]|[^\x00-\x7f]|\\[0-9a-fA-F]{1,6}[ \t\r\n\f]?|\\[^0-9a-fA-F\n])+"
TEST = (
    rf"\[\s*(?P<attribute>{NAME})\s*(?:(?P<operator>[~|^$*]?)="
    rf"\s*(?P<value>\"[^\"]*\"|'[^']*'|{NAME})\s*(?P<flag>[isIS]?)\s*)?\]"
)
SIMPLE = re.compile(
    rf"(?P<key>[#.]?)(?P<name>{NAME})|(?P<all>\*)|(?P<test>{TEST})"
    rf"|(?P<pseudo>::?{NAME})(?P<arguments>\([^()]*\))?"
    r"|\s*(?P<combinator>[>+~])\s*|(?P<space>\s+)",
)
ESCAPE = re.compile(r"\\(?:([0-9a-fA-F]{1,6})[ \t\r\n\f]?|(.))", re.S)
PSEUDO = {":link": ":link", ":any-link": ":link", ":first-child": ":first-child", ":root": "html"}
FEATURE = re.compile(r"\(\s*(?:(min|max)-)?(-?[a-z-]{1,40})\s*(?:(:|<=?|>=?|=)\s*([^()]{1,40}))?\)")


# Reading
# ------------------------------------------------------------------------------------------------


def rules(sheet: str) -> "Iterator[tuple[str, str]]":
    """(selectors, declarations) of the rules that count on a screen. Linear."""
    pieces: list[str] = []
    # what the open blocks are: a list of rules that counts, or does not; a rule; what is skipped
    open_blocks: list[str] = []
    selectors = ""
    for m in PIECE.finditer(sheet):
        piece = m.group()
        inside = open_blocks[-1] if open_blocks else "list"
        if piece == "{":
            prelude = "".join(pieces).strip()
            if inside != "list":
                kind = "skipped"
            elif prelude.startswith("@"):
                kind = "list" if _counts(prelude.lower()) else "skipped"
            else:
                kind, selectors = "rule", prelude
            open_blocks.append(kind)
            if inside != "rule":
                pieces = []
        elif piece == "}" and open_blocks:
            if inside == "rule":
                yield selectors, "".join(pieces)
            open_blocks.pop()
            if open_blocks and open_blocks[-1] == "rule":
                pieces.append(";")  # what is nested in a rule is no part of the next declaration
            else:
                pieces = []
        elif inside == "skipped" or piece in ("<!--", "-->") and inside == "list":
            pass
        elif piece == ";" and inside == "list":
            pieces = []  # @import and the like
        else:
            pieces.append(" " if piece.startswith("/*") else piece)
    if open_blocks and open_blocks[-1] == "rule":
        yield selectors, "".join(pieces)


def _counts(prelude: str) -> bool:
    """Whether the rules of an at-rule count."""
    name, _, condition = prelude.partition(" ")
    if name.startswith("@media"):
        return is_shown_on(prelude[len("@media") :])
    if name == "@supports":
        return "not" not in condition
    return name in ("@layer", "@document", "@-moz-document", "@scope", "@starting-style")


def is_shown_on(media: str) -> bool:
    """Whether a list of media queries, in lower case, fits a screen of WIDTH pixels."""
    return any(_fits(query.strip()) for query in media[:1000].split(","))


def _fits(query: str) -> bool:
    words = re.sub(r"\([^()]*\)", " ", query).split()
    is_not = "not" in words
    kinds = [word for word in words if word not in ("only", "not", "and", "or")]
    fits = all(kind in ("all", "screen") for kind in kinds)
    features = query.count("(")
    found = FEATURE.findall(query)
    fits = fits and len(found) == features and all(_has(*feature) for feature in found)
    return fits != is_not


def _has(limit: str, name: str, relation: str, value: str) -> bool:
    """Whether the window has a feature of a media query."""
    name = name.removeprefix("device-")
    of_window = {
        "width": WIDTH,
        "height": HEIGHT,
        "-webkit-device-pixel-ratio": 1,
        "-webkit-min-device-pixel-ratio": 1,
        "resolution": 1,
        "color": 8,
    }.get(name)
    if name.startswith("-webkit-min-"):
        limit = "min"
    if of_window is None:
        return (name, value.strip()) in (
            ("orientation", "landscape"),
            ("prefers-color-scheme", "light"),
            ("hover", "hover"),
            ("pointer", "fine"),
        )
    if not relation:
        return True
    wanted = css.pixels(value.strip(), 16)
    if wanted is None:
        return False
    if limit == "min" or relation in (">", ">="):
        return of_window >= wanted
    if limit == "max" or relation in ("<", "<="):
        return of_window <= wanted
    return of_window == wanted


class _Compound:
    """parts: features that an element must have; lacks: those that it must not; combinator: what
    joins it to the compound before it, "" for the first.
    """

    def __init__(self, combinator: str) -> None:
        self.parts: list[str] = []
        self.lacks: list[str] = []
        self.combinator = combinator


def _unescaped(name: str) -> str:
    return ESCAPE.sub(_character, name) if "\\" in name else name


def _character(m: "re.Match[str]") -> str:
    if m.group(2):
        return m.group(2)
    code = int(m.group(1), 16)
    return chr(code) if 0 < code < 0xD800 or 0xE000 <= code < 0x110000 else "\ufffd"


class _Selectors:
    """Parses selectors; `tests` are {attribute: [(operator, value, whether upper and lower case are
    the same, feature)]}.
    """

    def __init__(self, fold: bool) -> None:
        self.fold = fold
        self.tests: dict[str, list[tuple[str, str, bool, str]]] = {}
        self.n_tests = 0

    def parse(self, text: str) -> "tuple[tuple[int, int, int], list[_Compound]] | None":
        """(specificity, compounds) of one selector, None of one that matches nothing."""
        weights = [0, 0, 0]
        compounds, combinator, at = [_Compound("")], "", 0
        text = text.strip()
        while at < len(text):
            m = SIMPLE.match(text, at)
            if not m:
                return None
            at = m.end()
            if m.group("combinator") or m.group("space"):
                combinator = m.group("combinator") or combinator or " "
                continue
            if combinator:
                compounds.append(_Compound(combinator))
                combinator = ""
            into = compounds[-1]
            if m.group("pseudo") == ":not":
                inner = SIMPLE.fullmatch((m.group("arguments") or "")[1:-1].strip())
                feature = inner and self._feature(inner, weights)
                if not feature:
                    return None
                into.lacks.append(feature)
            elif not m.group("all"):
                feature = self._feature(m, weights)
                if not feature:
                    return None
                into.parts.append(feature)
            if len(into.parts) > MAX_PARTS:
                return None
        return None if combinator else ((weights[0], weights[1], weights[2]), compounds)

    def _feature(self, m: "re.Match[str]", weights: list[int]) -> str | None:
        """The feature that a simple selector asks for, None for one that is not known."""
        key, name = m.group("key"), m.group("name")
        if name:
            name = _unescaped(name)
            weights["#.".find(key) if key else 2] += 1
            return key + name.lower() if not key or self.fold else key + name
        weights[1] += 1
        pseudo = m.group("pseudo")
        if pseudo:
            pseudo = pseudo.lower()
            if m.group("arguments"):
                return None
            return PSEUDO.get(pseudo)
        if m.group("test"):
            return self._test(m)
        return None

    def _test(self, m: "re.Match[str]") -> str | None:
        attribute, operator = _unescaped(m.group("attribute")).lower(), m.group("operator")
        value, is_folded = m.group("value"), m.group("flag") in ("i", "I")
        tests = self.tests.setdefault(attribute, [])
        if value is None:
            return f"[{attribute}"
        value = _unescaped(value[1:-1] if value[0] in "\"'" else value)
        value = value.lower() if is_folded else value
        feature = f"[{attribute}{operator}={value}{' i' if is_folded else ''}"
        if all(known[3] != feature for known in tests):
            self.n_tests += 1
            if self.n_tests > MAX_TESTS:
                return None
            tests.append((operator, value, is_folded, feature))
        return feature


def _passes(operator: str, wanted: str, value: str) -> bool:
    if operator == "":
        return value == wanted
    if not wanted:
        return False
    if operator == "~":
        return wanted in value.split()
    if operator == "|":
        return value == wanted or value.startswith(wanted + "-")
    if operator == "^":
        return value.startswith(wanted)
    return value.endswith(wanted) if operator == "$" else wanted in value


def _split(selectors: str) -> list[str]:
    """The selectors of a list; commas within brackets and strings do not part them."""
    if "[" not in selectors and "(" not in selectors:
        return selectors.split(",")
    return re.findall(r"""(?:\[[^\]]*\]?|\([^)]*\)?|"[^"]*"?|'[^']*'?|[^,\[("'])+""", selectors)


# Matching
# ------------------------------------------------------------------------------------------------


class Sheets:
    """The rules of a page's sheets, and where among its elements the reader is.

    texts: sheets in their order. fold: classes and ids are the same in upper and lower case, as in
    a page without doctype. is_cut: there was more than the limits let in.
    """

    def __init__(self, texts: list[str], fold: bool) -> None:
        text = "\n".join(texts)
        self.is_cut = len(text) > MAX_CHARACTERS
        self.fold = fold
        self._parser = _Selectors(fold)
        self._make(self._read(text[:MAX_CHARACTERS]))
        self._known: dict[Any, int] = {}
        self._looks: dict[int, Declared] = {}
        # of each open element: what it or one around it matches, what it matches itself, what its
        # last child and what any of its children matched, whether it has one, and its tag
        self._open: list[list[Any]] = [[0, 0, 0, 0, False, ""]]

    def __bool__(self) -> bool:
        return bool(self._rules)

    def _read(self, text: str) -> "list[Rule]":
        """[(specificity, order, compounds, declarations)] of the rules that count."""
        out, n_left = [], MAX_COMPOUNDS
        for selectors, body in rules(text):
            declared = css.declarations(body[: css.MAX_STYLE])
            if not (declared[0] or declared[1]):
                continue
            for selector in _split(selectors):
                found = self._parser.parse(selector)
                if not found or not selector.strip():
                    continue
                n_left -= len(found[1])
                if n_left < 0:
                    self.is_cut = True
                    return out
                out.append((found[0], len(out), found[1], declared))
        return out

    def _make(self, found: "list[Rule]") -> None:
        found.sort(key=lambda rule: rule[:2])
        self._rules: dict[int, Declared] = {}  # by bit
        self._first = self._finals = n = 0
        # of compounds before each combinator
        self._before = {" ": 0, ">": 0, "+": 0, "~": 0}
        self._needs: list[dict[str, int]] = [{} for _ in range(MAX_PARTS)]
        self._has_less = [0] * MAX_PARTS
        self._lacks: dict[str, int] = {}
        self._of_property: list[dict[str, int]] = [{}, {}]  # normal, important
        for _, _, compounds, declared in found:
            for i, compound in enumerate(compounds):
                bit = 1 << n
                if i == 0:
                    self._first |= bit
                else:
                    self._before[compound.combinator] |= bit >> 1
                parts = list(dict.fromkeys(compound.parts))
                for j in range(MAX_PARTS):
                    if j < len(parts):
                        self._needs[j][parts[j]] = self._needs[j].get(parts[j], 0) | bit
                    else:
                        self._has_less[j] |= bit
                for feature in compound.lacks:
                    self._lacks[feature] = self._lacks.get(feature, 0) | bit
                n += 1
            bit = 1 << n - 1
            self._finals |= bit
            self._rules[n - 1] = declared
            for of_property, names in zip(self._of_property, declared):
                for name in names:
                    of_property[name] = of_property.get(name, 0) | bit
        while len(self._needs) > 1 and not self._needs[-1]:
            self._needs.pop()

    def enter(self, tag: str, attributes: "Mapping[str, str]") -> "Declared":
        """Open an element; ({name: value}, {name: value} of those called !important) that the
        sheets declare for it.
        """
        if tag == "tr" and self._open[-1][5] == "table":
            self.enter("tbody", {})  # browsers open one, the parser does not
            self._open[-1][5] = IMPLIED
        around = self._open[-1]
        before, first = self._before, not around[4]
        allowed = (
            self._first
            | (around[0] & before[" "]) << 1
            | (around[1] & before[">"]) << 1
            | (around[2] & before["+"]) << 1
            | (around[3] & before["~"]) << 1
        )
        matched = allowed and allowed & self._fitting(tag, attributes, first)
        self._open.append([around[0] | matched, matched, 0, 0, False, tag])
        around[4] = True
        return self._declared(matched & self._finals)

    def leave(self) -> None:
        """Close the element that was opened last."""
        if len(self._open) > 1:
            matched = self._open.pop()[1]
            around = self._open[-1]
            around[2] = matched
            around[3] |= matched
            if around[5] == IMPLIED:
                self.leave()

    def _fitting(self, tag: str, attributes: "Mapping[str, str]", first: bool) -> int:
        """The compounds that an element fits, whatever it is in."""
        tests = self._parser.tests
        key: Any
        if not attributes:
            key = (tag, first)
        elif any(name in tests for name in attributes):
            key = None
        else:
            key = (tag, first, attributes.get("class"), attributes.get("id"), "href" in attributes)
        found = self._known.get(key) if key else None
        if found is None:
            found = self._fit(self._features(tag, attributes, first))
            if key and len(self._known) < MAX_KNOWN:
                self._known[key] = found
        return found

    def _features(self, tag: str, attributes: "Mapping[str, str]", first: bool) -> list[str]:
        out = [tag]
        if first:
            out.append(":first-child")
        id, classes = attributes.get("id"), attributes.get("class")
        if id:
            out.append("#" + (id.lower() if self.fold else id).strip())
        if classes:
            words = (classes.lower() if self.fold else classes).split(maxsplit=MAX_CLASSES)
            out += ["." + word for word in words[:MAX_CLASSES]]
        if tag == "a" and "href" in attributes:
            out.append(":link")
        if self._parser.tests:
            for name, value in attributes.items():
                tests = self._parser.tests.get(name)
                if tests is not None:
                    value = (value or "")[:MAX_ATTRIBUTE]
                    out.append(f"[{name}")
                    out += [
                        feature
                        for operator, wanted, is_folded, feature in tests
                        if _passes(operator, wanted, value.lower() if is_folded else value)
                    ]
        return out

    def _fit(self, features: list[str]) -> int:
        found = -1
        for needs, less in zip(self._needs, self._has_less):
            fits = less
            for feature in features:
                fits |= needs.get(feature, 0)
            found &= fits
        for feature in features if self._lacks else ():
            found &= ~self._lacks.get(feature, 0)
        return found

    def _declared(self, matched: int) -> "Declared":
        if not matched:
            return NOTHING
        found = self._looks.get(matched)
        if found is None:
            normal, important = (
                {
                    name: self._rules[(matched & bits).bit_length() - 1][i][name]
                    for name, bits in of_property.items()
                    if matched & bits
                }
                for i, of_property in enumerate(self._of_property)
            )
            found = normal, important
            if len(self._looks) < MAX_KNOWN:
                self._looks[matched] = found
        return found


NOTHING: "Declared" = ({}, {})
