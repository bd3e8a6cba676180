"""Regular expressions: the common subset of RE2 and ECMAScript, parsed into a small tree.

    alternation ::= sequence ("|" sequence)*
    item        ::= character | . | [class] | (...) | (?:...) | (?<name>...) | ^ | $
    suffix      ::= * | + | ? | {m} | {m,} | {m,n}, and a lazy `?`, which changes no language
    escapes     ::= \\d \\D \\w \\W \\s \\S \\n \\t \\r \\f \\v \\0 \\cX \\xHH \\uHHHH \\u{H}
                    \\p{Category} \\P{Category}, or a punctuation character

Where the dialects differ, an item stands for the characters that they share: `.` excludes all line
ends, `\\s` is ASCII, `\\S` excludes all Unicode white space. Groups that look around, references
to groups, word boundaries and flags are refused by name.

A tree is a tuple: (SET, ranges), (SEQ, trees), (ALT, trees), (REP, tree, min, max or None),
(BEGIN,) and (END,). Expressions may come from an untrusted source: the parser does not recurse.
"""

import functools

from .charset import MAX_CODE_POINT, SURROGATES, complement, merge, without_surrogates

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

SET, SEQ, ALT, REP, BEGIN, END = range(6)
MAX_DEPTH = 100  # groups within each other
MAX_BYTES = 1 << 16
MAX_COUNT = 1_000_000_000
MAX_BRANCHES = 1000  # alternatives that an anchor within them multiplies out
LINE_ENDS = ((10, 10), (13, 13), (0x2028, 0x2029))
SPACE = ((9, 10), (12, 13), (32, 32))
ANY_SPACE = tuple(
    merge(
        [(9, 13), (28, 32), (0x85, 0x85), (0xA0, 0xA0), (0x1680, 0x1680), (0x2000, 0x200A)]
        + [(0x2028, 0x2029), (0x202F, 0x202F), (0x205F, 0x205F), (0x3000, 0x3000), (0xFEFF, 0xFEFF)]
    )
)
DIGIT = ((48, 57),)
WORD = ((48, 57), (65, 90), (95, 95), (97, 122))
CONTROLS = {"n": 10, "t": 9, "r": 13, "f": 12, "v": 11, "0": 0}
HEX = frozenset("0123456789abcdefABCDEF")
EVERY = without_surrogates([(0, MAX_CODE_POINT)])
EMPTY: "Any" = (SEQ, ())
NOTHING: "Any" = (ALT, ())  # matches no text
ANYTHING: "Any" = (REP, (SET, EVERY), 0, None)
LONG_CATEGORIES = {
    "Letter": "L", "Uppercase_Letter": "Lu", "Lowercase_Letter": "Ll", "Titlecase_Letter": "Lt",
    "Modifier_Letter": "Lm", "Other_Letter": "Lo", "Mark": "M", "Nonspacing_Mark": "Mn",
    "Spacing_Mark": "Mc", "Enclosing_Mark": "Me", "Number": "N", "Decimal_Number": "Nd",
    "Letter_Number": "Nl", "Other_Number": "No", "Punctuation": "P", "Connector_Punctuation": "Pc",
    "Dash_Punctuation": "Pd", "Open_Punctuation": "Ps", "Close_Punctuation": "Pe",
    "Initial_Punctuation": "Pi", "Final_Punctuation": "Pf", "Other_Punctuation": "Po",
    "Symbol": "S", "Math_Symbol": "Sm", "Currency_Symbol": "Sc", "Modifier_Symbol": "Sk",
    "Other_Symbol": "So", "Separator": "Z", "Space_Separator": "Zs", "Line_Separator": "Zl",
    "Paragraph_Separator": "Zp", "Other": "C", "Control": "Cc", "Format": "Cf",
    "Unassigned": "Cn", "Private_Use": "Co", "punct": "P", "digit": "Nd", "cntrl": "Cc",
}  # fmt: skip
CATEGORIES = frozenset(LONG_CATEGORIES.values())


class BadPattern(Exception):
    """An expression that is malformed."""


class Unsupported(Exception):
    """An expression that is well-formed, but not regular or not of the common subset."""


def parse(text: str) -> "Any":
    """Return the tree of the regular expression `text`. BadPattern, Unsupported."""
    if len(text) > MAX_BYTES:
        raise BadPattern(f"regular expression of more than {MAX_BYTES} characters")
    return _Parser(text).parse()


@functools.lru_cache(512)
def searched(text: str) -> "Any":
    """Return the tree of the texts in which the expression `text` is found, from end to end."""
    return search(parse(text))


@functools.lru_cache(512)
def whole(text: str) -> "Any":
    """Return the tree of the texts that the expression matches from end to end."""
    return anchored(parse(text), EMPTY, EMPTY)


def search(tree: "Any") -> "Any":
    """Return `tree` with anything before and behind it where no anchor stands."""
    return anchored(tree, ANYTHING, ANYTHING)


class _Parser:
    def __init__(self, text):
        self.text, self.at = text, 0

    def parse(self):
        text, groups = self.text, []
        branches, items = [], []
        while True:
            if self.at == len(text):
                if groups:
                    raise BadPattern("a group is never closed")
                branches.append(_sequence(items))
                return _choice(branches)
            c = text[self.at]
            self.at += 1
            if c == "(":
                if len(groups) == MAX_DEPTH:
                    raise BadPattern(f"more than {MAX_DEPTH} groups within each other")
                self._open_group()
                groups.append((branches, items))
                branches, items = [], []
            elif c == ")":
                if not groups:
                    raise BadPattern('")" without a group')
                branches.append(_sequence(items))
                tree = _choice(branches)
                branches, items = groups.pop()
                items.append(tree)
            elif c == "|":
                branches.append(_sequence(items))
                items = []
            elif c in "*+?":
                items[-1:] = [
                    self._repeat(items, *{"*": (0, None), "+": (1, None), "?": (0, 1)}[c])
                ]
            elif c == "{" and (bounds := self._bounds()):
                items[-1:] = [self._repeat(items, *bounds)]
            elif c == "^":
                items.append((BEGIN,))
            elif c == "$":
                items.append((END,))
            elif c == ".":
                items.append((SET, without_surrogates(complement(LINE_ENDS))))
            elif c == "[":
                items.append(self._class())
            elif c == "\\":
                items.append((SET, self._escape(False)))
            else:
                items.append((SET, self._single(ord(c))))

    def _open_group(self):
        text = self.text
        if not text.startswith("?", self.at):
            return
        for mark, name in (
            ("?=", "lookahead"),
            ("?!", "lookahead"),
            ("?<=", "lookbehind"),
            ("?<!", "lookbehind"),
            ("?>", "an atomic group"),
            ("?(", "a condition"),
            ("?P=", "a reference to a group"),
        ):
            if text.startswith(mark, self.at):
                raise Unsupported(f"{name}, ({mark}...), is not supported")
        if text.startswith("?:", self.at):
            self.at += 2
            return
        opened = 3 if text.startswith("?P<", self.at) else 2
        if opened == 2 and not text.startswith("?<", self.at):
            raise Unsupported("flags, (?...), are not supported")
        end = text.find(">", self.at)
        if end < 0 or not text[self.at + opened : end].replace("_", "a").isalnum():
            raise BadPattern("the name of a group is malformed")
        self.at = end + 1

    def _repeat(self, items, minimum, maximum):
        if not items or items[-1][0] in (BEGIN, END):
            raise BadPattern("nothing to repeat")
        if self.text.startswith("?", self.at):  # lazy: the same language
            self.at += 1
        elif self.text.startswith("+", self.at):
            raise Unsupported("a possessive quantifier is not supported")
        elif self.text.startswith("*", self.at):
            raise BadPattern("a quantifier of a quantifier")
        if _has_anchor(items[-1]):
            raise Unsupported("an anchor within a repeated group is not supported")
        return (REP, items[-1], minimum, maximum)

    def _bounds(self):
        """Return (min, max) of {m}, {m,} or {m,n}; None if the brace is a character."""
        end = self.text.find("}", self.at, self.at + 30)
        low, comma, high = self.text[self.at : end].partition(",") if end > 0 else ("", "", "")
        if not (
            low.isascii() and low.isdigit() and (not high or high.isascii() and high.isdigit())
        ):
            return None
        self.at = end + 1
        bounds = int(low), int(high) if high else None if comma else int(low)
        if max(bounds[0], bounds[1] or 0) > MAX_COUNT:
            raise BadPattern(f"more than {MAX_COUNT} repetitions")
        if bounds[1] is not None and bounds[1] < bounds[0]:
            raise BadPattern(f"{{{low},{high}}}: the upper bound is below the lower")
        return bounds

    def _single(self, point):
        if SURROGATES[0] <= point <= SURROGATES[1]:
            raise BadPattern(f"{point:#x} is not a Unicode character")
        return ((point, point),)

    def _escape(self, in_class):
        text = self.text
        if self.at == len(text):
            raise BadPattern("a backslash at the end")
        c = text[self.at]
        self.at += 1
        if c in "dws":
            return {"d": DIGIT, "w": WORD, "s": SPACE}[c]
        if c in "DWS":
            return without_surrogates(complement({"D": DIGIT, "W": WORD, "S": ANY_SPACE}[c]))
        if c == "0" and text[self.at : self.at + 1].isdigit():
            raise Unsupported("an octal escape is not supported")
        if c in CONTROLS:
            return self._single(CONTROLS[c])
        if c == "b" and in_class:
            return self._single(8)
        if c in "xu":
            return self._single(self._hexadecimal(c))
        if c == "c":
            letter = text[self.at : self.at + 1]
            if not (letter.isascii() and letter.isalpha()):
                raise BadPattern("\\c needs a letter")
            self.at += 1
            return self._single(ord(letter) % 32)
        if c in "pP":
            return self._category(c == "P")
        if c in "bB":
            raise Unsupported(f"a word boundary, \\{c}, is not supported")
        if c in "123456789k":
            raise Unsupported(f"a reference to a group, \\{c}, is not supported")
        if c in "AzZ":
            raise Unsupported(f"\\{c} is not supported: use ^ and $")
        if c.isalnum() and c.isascii():
            raise Unsupported(f"the escape \\{c} is not supported")
        return self._single(ord(c))

    def _hexadecimal(self, c):
        text, n = self.text, 2 if c == "x" else 4
        if text.startswith("{", self.at):
            end = text.find("}", self.at, self.at + 9)
            digits, after = text[self.at + 1 : end] if end > 0 else "", end + 1
        else:
            digits, after = text[self.at : self.at + n], self.at + n
            digits = digits if len(digits) == n else ""
        if not digits or not HEX.issuperset(digits) or int(digits, 16) > MAX_CODE_POINT:
            raise BadPattern(f"\\{c} needs hexadecimal digits")
        self.at = after
        point = int(digits, 16)
        low = text[self.at : self.at + 6]
        if 0xD800 <= point < 0xDC00 and low[:2] == "\\u" and HEX.issuperset(low[2:]):
            second = int(low[2:] or "0", 16)
            if 0xDC00 <= second < 0xE000:
                self.at += 6
                return 0x10000 + (point - 0xD800 << 10) + second - 0xDC00
        return point

    def _category(self, negated):
        text = self.text
        if text.startswith("{", self.at):
            end = text.find("}", self.at)
            name, self.at = text[self.at + 1 : end], end + 1
            if end < 0:
                raise BadPattern("\\p{ is never closed")
        else:
            name = text[self.at : self.at + 1]
            self.at += 1
        if name.startswith("^"):
            negated, name = not negated, name[1:]
        for prefix in ("General_Category=", "gc="):
            name = name.removeprefix(prefix)
        if name == "Any":
            return EVERY
        name = LONG_CATEGORIES.get(name, name)
        if name not in CATEGORIES:
            raise Unsupported(
                f"the property {name[:40]!r} is not supported: use a general category"
            )
        ranges = category(name)
        return without_surrogates(complement(ranges)) if negated else ranges

    def _class(self):
        text, ranges = self.text, []
        negated = text.startswith("^", self.at)
        self.at += negated
        if text.startswith("]", self.at):
            raise Unsupported("a class that begins with ] is not supported: write \\]")
        while True:
            if self.at >= len(text):
                raise BadPattern("a class is never closed")
            if text[self.at] == "]":
                break
            low = self._member()
            is_range = (
                text.startswith("-", self.at)
                and not text.startswith("-]", self.at)
                and self.at + 1 < len(text)
            )
            if not is_range:
                ranges += low
                continue
            if len(low) != 1 or low[0][0] != low[0][1]:  # [\w-.]: the hyphen is a character
                ranges += low
                continue
            self.at += 1
            high = self._member()
            if len(high) != 1 or high[0][0] != high[0][1]:
                ranges += low + ((45, 45),) + high
                continue
            if high[0][0] < low[0][0]:
                raise BadPattern("a class has a range from high to low")
            ranges.append((low[0][0], high[0][0]))
        self.at += 1
        if negated and set(SPACE) <= set(ranges):
            ranges += ANY_SPACE  # [^\s] is \S
        ranges = complement(merge(ranges)) if negated else merge(ranges)
        return (SET, without_surrogates(ranges))

    def _member(self):
        c = self.text[self.at]
        self.at += 1
        if c == "\\":
            return tuple(self._escape(True))
        if c == "[" and self.text.startswith(":", self.at) and ":]" in self.text[self.at :]:
            raise Unsupported("a POSIX class, [:...:], is not supported")
        return self._single(ord(c))


def _sequence(items):
    return items[0] if len(items) == 1 else (SEQ, tuple(items))


def _choice(branches):
    return branches[0] if len(branches) == 1 else (ALT, tuple(branches))


@functools.lru_cache(64)
def category(name: str) -> "tuple[tuple[int, int], ...]":
    """Return the code points of a general category, as ranges."""
    import unicodedata

    of, ranges, start = unicodedata.category, [], None
    for point in range(MAX_CODE_POINT + 2):
        is_in = point <= MAX_CODE_POINT and of(chr(point)).startswith(name)
        if is_in and start is None:
            start = point
        elif not is_in and start is not None:
            ranges.append((start, point - 1))
            start = None
    return without_surrogates(ranges)


def _has_anchor(tree):
    if tree[0] in (BEGIN, END):
        return True
    inner = tree[1] if tree[0] in (SEQ, ALT) else (tree[1],) if tree[0] == REP else ()
    return any(_has_anchor(t) for t in inner)


def _spread(tree):
    """Return the alternatives of `tree`, whose anchors then stand at the ends: [[item, ...]]."""
    if tree[0] == ALT:
        return [branch for t in tree[1] for branch in _spread(t)]
    if tree[0] != SEQ:
        return [[tree]]
    out = [[]]
    for item in tree[1]:
        inner = _spread(item) if item[0] in (ALT, SEQ) and _has_anchor(item) else [[item]]
        out = [a + b for a in out for b in inner]
        if len(out) > MAX_BRANCHES:
            raise Unsupported("too many alternatives with anchors")
    return out


def anchored(tree: "Any", before: "Any", after: "Any") -> "Any":
    """Return `tree` without anchors: with `before` where no ^ begins it, `after` where no $ ends
    it.
    """
    if not _has_anchor(tree):
        items = ((before,) if before != EMPTY else ()) + (tree,)
        return _sequence(items + ((after,) if after != EMPTY else ()))
    branches = []
    for items in _spread(tree):
        first, last = before, after
        while items and items[0] == (BEGIN,):
            first, items = EMPTY, items[1:]
        while items and items[-1] == (END,):
            last, items = EMPTY, items[:-1]
        while items and items[0] == (END,):  # ^$ and $: nothing may stand behind it
            last, items = EMPTY, items[1:]
        while items and items[-1] == (BEGIN,):
            first, items = EMPTY, items[:-1]
        if any(_has_anchor(item) for item in items):
            raise Unsupported("an anchor in the middle is not supported")
        parts = [p for p in (first, *items, last) if p != EMPTY]
        branches.append(_sequence(parts))
    return _choice(branches)


def lengths(tree: "Any") -> "tuple[int, int | None]":
    """Return the least and the largest number of characters of texts that `tree` matches; None: no
    limit.
    """
    kind = tree[0]
    if kind == SET:
        return 1, 1
    if kind == REP:
        a, b = lengths(tree[1])
        least, most = tree[2], tree[3]
        unlimited = b is None or most is None
        return a * least, 0 if b == 0 or most == 0 else None if unlimited else b * most
    if kind not in (SEQ, ALT) or not tree[1]:
        return 0, 0
    lows, highs = zip(*map(lengths, tree[1]))
    join = sum if kind == SEQ else max
    return (sum if kind == SEQ else min)(lows), None if None in highs else join(highs)


def text_tree(text: str) -> "Any":
    """Return the tree of one text."""
    return _sequence([(SET, ((ord(c), ord(c)),)) for c in text])
