"""Decide whether text is visible, from the declarations of style sheets and style attributes.

CSS 2.1, section 4 (declarations, escapes, comments), CSS Color 4, and of sizes and positions as
much as decides visibility. A declaration that is not understood changes nothing, and of two of one
name the last counts, as in a browser. Linear in MAX_STYLE characters.
"""

import math
import re
from functools import lru_cache

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from typing import NamedTuple

    class Look(NamedTuple):
        """What an element looks like; children begin with their parent's.

        ink, paper: colour of the text and of what is behind it: 0xRRGGBB, CLEAR, or None where it
        is not known (an image, an unknown name). fill: a colour that stands for ink, or CLEAR - 1.
        gone: neither it nor what is in it can be seen. veiled (visibility) and size (of the font,
        pixels) end where an element within sets another. rtl: text begins on the right; flipped:
        each character stands to the left of the one before it, whatever it is.
        """

        ink: int | None
        paper: int | None
        gone: bool
        veiled: bool
        size: float
        fill: int | None
        rtl: bool
        flipped: bool
else:
    from collections import namedtuple

    Look = namedtuple("Look", "ink paper gone veiled size fill rtl flipped")

MAX_STYLE = 8192  # characters of one attribute; what follows is not read
MAX_VALUE = 500  # of a value that has to be parsed; some searches are square in their number
CLEAR = -1
NO_FILL = -2
NEAR = 16  # difference of two colours that is not seen, in each of red, green and blue
WHITE = 0xFFFFFF
PAGE = Look(0, WHITE, False, False, 16.0, NO_FILL, False, False)

_NAMED = (
    "aliceblue f0f8ff antiquewhite faebd7 aqua 00ffff aquamarine 7fffd4 azure f0ffff beige "
    "f5f5dc bisque ffe4c4 black 000000 blanchedalmond ffebcd blue 0000ff blueviolet 8a2be2 "
    "brown a52a2a burlywood deb887 cadetblue 5f9ea0 chartreuse 7fff00 chocolate d2691e coral "
    "ff7f50 cornflowerblue 6495ed cornsilk fff8dc crimson dc143c cyan 00ffff darkblue 00008b "
    "darkcyan 008b8b darkgoldenrod b8860b darkgray a9a9a9 darkgreen 006400 darkkhaki bdb76b "
    "darkmagenta 8b008b darkolivegreen 556b2f darkorange ff8c00 darkorchid 9932cc darkred "
    "8b0000 darksalmon e9967a darkseagreen 8fbc8f darkslateblue 483d8b darkslategray 2f4f4f "
    "darkturquoise 00ced1 darkviolet 9400d3 deeppink ff1493 deepskyblue 00bfff dimgray 696969 "
    "dodgerblue 1e90ff firebrick b22222 floralwhite fffaf0 forestgreen 228b22 fuchsia ff00ff "
    "gainsboro dcdcdc ghostwhite f8f8ff gold ffd700 goldenrod daa520 gray 808080 green 008000 "
    "greenyellow adff2f honeydew f0fff0 hotpink ff69b4 indianred cd5c5c indigo 4b0082 ivory "
    "fffff0 khaki f0e68c lavender e6e6fa lavenderblush fff0f5 lawngreen 7cfc00 lemonchiffon "
    "fffacd lightblue add8e6 lightcoral f08080 lightcyan e0ffff lightgoldenrodyellow fafad2 "
    "lightgray d3d3d3 lightgreen 90ee90 lightpink ffb6c1 lightsalmon ffa07a lightseagreen "
    "20b2aa lightskyblue 87cefa lightslategray 778899 lightsteelblue b0c4de lightyellow "
    "ffffe0 lime 00ff00 limegreen 32cd32 linen faf0e6 magenta ff00ff maroon 800000 "
    "mediumaquamarine 66cdaa mediumblue 0000cd mediumorchid ba55d3 mediumpurple 9370db "
    "mediumseagreen 3cb371 mediumslateblue 7b68ee mediumspringgreen 00fa9a mediumturquoise "
    "48d1cc mediumvioletred c71585 midnightblue 191970 mintcream f5fffa mistyrose ffe4e1 "
    "moccasin ffe4b5 navajowhite ffdead navy 000080 oldlace fdf5e6 olive 808000 olivedrab "
    "6b8e23 orange ffa500 orangered ff4500 orchid da70d6 palegoldenrod eee8aa palegreen "
    "98fb98 paleturquoise afeeee palevioletred db7093 papayawhip ffefd5 peachpuff ffdab9 peru "
    "cd853f pink ffc0cb plum dda0dd powderblue b0e0e6 purple 800080 rebeccapurple 663399 red "
    "ff0000 rosybrown bc8f8f royalblue 4169e1 saddlebrown 8b4513 salmon fa8072 sandybrown "
    "f4a460 seagreen 2e8b57 seashell fff5ee sienna a0522d silver c0c0c0 skyblue 87ceeb "
    "slateblue 6a5acd slategray 708090 snow fffafa springgreen 00ff7f steelblue 4682b4 tan "
    "d2b48c teal 008080 thistle d8bfd8 tomato ff6347 turquoise 40e0d0 violet ee82ee wheat "
    "f5deb3 white ffffff whitesmoke f5f5f5 yellow ffff00 yellowgreen 9acd32"
).split()
COLORS = {name: int(value, 16) for name, value in zip(_NAMED[::2], _NAMED[1::2])}
COLORS.update(
    {name.replace("gray", "grey"): COLORS[name] for name in tuple(COLORS) if "gray" in name}
)
COLORS.update(canvas=WHITE, canvastext=0, window=WHITE, windowtext=0, transparent=CLEAR)
TINY = 2  # pixels; text of that size is read by no eye
FAR = 500  # pixels beyond an edge
BEYOND = 3000  # pixels to the right, where no window is as wide
THIN = 1  # pixels of a box that cuts what it holds
SIZES = {
    "xx-small": 9,
    "x-small": 10,
    "small": 13,
    "medium": 16,
    "large": 18,
    "x-large": 24,
    "xx-large": 32,
    "xxx-large": 48,
    "initial": 16,
}
# pixels of a unit; those of a window are for one of 600 pixels, as mail is read in
UNITS = {
    "": 1,
    "px": 1,
    "pt": 4 / 3,
    "pc": 16,
    "in": 96,
    "cm": 37.8,
    "mm": 3.78,
    "q": 0.945,
    "rem": 16,
    "vw": 6,
    "vh": 6,
    "vmin": 6,
    "vmax": 6,
    "%": 6,
}
EM = {"em": 1, "ex": 0.5, "ch": 0.5, "ic": 1, "lh": 1.2, "cap": 0.7}
ANGLES = {"deg": 1, "": 1, "grad": 0.9, "rad": 57.29578, "turn": 360}
NUMBER = r"[-+]?(?:[0-9]{1,9}(?:\.[0-9]{0,9})?|\.[0-9]{1,9})(?:e[-+]?[0-9]{1,2}(?![a-z0-9]))?"
HOLDS_SEMICOLON = r"""(/\*)(?:[^*]|\*(?!/))*(?:\*/)?|"[^"]*"?|'[^']*'?|url\([^)]*\)?"""
ESCAPE = r"\\(?:([0-9a-f]{1,6})[ \t\r\n\f]?|([^0-9a-f]))"
WORD = r"[a-z-]+\([^)]*\)?|[^\s(]+"  # a function that is not closed ends with the value
COLOR = r"(?:rgb|hsl|hwb)a?\([^()]{0,60}\)|#[0-9a-f]{3,8}|[a-z]{3,20}"
COLOR_FUNCTION = r"(?:rgba?|hsla?|hwb|lab|lch|oklab|oklch|color|color-mix|light-dark|var)\("
FUNCTION = r"([a-z0-9-]{1,30})\(([^()]{0,200})\)"
ARITHMETIC = (
    r"[-+]?(?:[0-9]{1,9}(?:\.[0-9]{0,9})?|\.[0-9]{1,9})[a-z%]{0,5}"
    r"|[()*/,]|[-+](?=\s)|calc|min|max|clamp"
)
HEX_DIGITS = frozenset("0123456789abcdef")
HIDES_OVERFLOW = ("hidden", "clip", "auto", "scroll", "overlay")
SIDES = ("top", "right", "bottom", "left")
# the values of a property that are valid; others are not looked at
EVERYWHERE = frozenset("inherit initial unset revert revert-layer".split())
SIZE = (
    frozenset(
        "auto none normal smaller larger min-content max-content fit-content -moz-fit-content"
        " intrinsic stretch available fill-available".split()
    )
    | SIZES.keys()
)
DIGITS = frozenset("+-.0123456789")
VALUES: "dict[str, frozenset[str] | str]" = {
    "display": frozenset(
        "none block inline inline-block flex inline-flex grid inline-grid table inline-table"
        " table-row table-cell table-row-group table-header-group table-footer-group table-column"
        " table-column-group table-caption list-item contents flow flow-root run-in ruby"
        " -webkit-box -webkit-inline-box -webkit-flex -ms-flexbox -ms-grid -moz-box math".split()
    ),
    "visibility": frozenset("visible hidden collapse".split()),
    "position": frozenset("static relative absolute fixed sticky -webkit-sticky".split()),
    "overflow": frozenset("visible hidden clip scroll auto overlay".split()),
    "color": "color",
    "-webkit-text-fill-color": "color",
    **dict.fromkeys(
        "font-size opacity text-indent width max-width height max-height top right bottom left"
        " margin-top margin-left".split(),
        SIZE,
    ),
}
SHORTHANDS = frozenset("background font margin inset overflow-x overflow-y".split())
# the properties that decide visibility, as declarations() names them
PROPERTIES = frozenset(
    (
        "color display visibility opacity content-visibility font-size text-indent filter"
        " background-color background-image -webkit-text-fill-color overflow width max-width height"
        " max-height position top right bottom left margin-top margin-left clip clip-path transform"
        " translate scale direction unicode-bidi float"
    ).split()
)


def near(a: int | None, b: int | None) -> bool:
    """Whether text of colour a cannot be seen on b; False where one is not known."""
    if a is None or b is None or a < 0 or b < 0:
        return a == CLEAR
    return all(abs((a >> shift & 255) - (b >> shift & 255)) <= NEAR for shift in (0, 8, 16))


def is_hidden(look: "Look") -> bool:
    """Whether nothing of an element's own text is seen."""
    return (
        look.gone
        or look.veiled
        or look.size <= TINY
        or near(look.ink if look.fill == NO_FILL else look.fill, look.paper)
    )


# Colours
# ------------------------------------------------------------------------------------------------


def color(value: str) -> int | None:
    """0xRRGGBB, CLEAR or None of a colour as CSS or an attribute of HTML writes it."""
    value = value[:100].strip().lower()
    if value in COLORS:
        return COLORS[value]
    if "(" in value:
        return _function(value)
    value = value.removeprefix("#")
    if len(value) not in (3, 4, 6, 8) or not HEX_DIGITS.issuperset(value):
        return None
    if len(value) < 6:
        value = "".join(c + c for c in value)
    return CLEAR if value[6:] == "00" else int(value[:6], 16)


def _function(value: str) -> int | None:
    """rgb(1, 2, 3), hsla(120deg 50% 50% / 0) and the like."""
    name, _, arguments = value.partition("(")
    name = name.removesuffix("a") if name in ("rgba", "hsla") else name
    numbers = [
        (float(number), unit)
        for number, unit in re.findall(f"({NUMBER})(%|[a-z]*)", arguments.replace("none", "0"))
    ][:4]
    if len(numbers) < 3:
        return None
    if len(numbers) == 4 and numbers[3][0] / (100 if numbers[3][1] == "%" else 1) <= 0.05:
        return CLEAR
    (a, unit), (b, b_unit), (c, c_unit) = numbers[:3]
    if name == "rgb":
        return _packed(x * 255 / 100 if unit == "%" else x for x, unit in numbers[:3])
    if name == "color":
        return _packed(x * 255 / (100 if unit == "%" else 1) for x, unit in numbers[:3])
    if name == "hsl":
        return _packed(255 * x for x in _hsl(a * ANGLES.get(unit, 1), b / 100, c / 100))
    if name == "hwb":
        white, black = b / 100, c / 100
        if white + black >= 1:
            return _packed([255 * white / (white + black)] * 3)
        hue = _hsl(a * ANGLES.get(unit, 1), 1, 0.5)
        return _packed(255 * (x * (1 - white - black) + white) for x in hue)
    if name in ("lab", "lch", "oklab", "oklch"):
        light = a / (100 if unit == "%" or not name.startswith("ok") else 1)
        return WHITE if light >= 0.995 else 0 if light <= 0.005 else None
    return None


def _packed(parts: "Iterable[float]") -> int:
    red, green, blue = (int(min(255, max(0, x))) for x in parts)
    return red << 16 | green << 8 | blue


def _hsl(hue: float, saturation: float, light: float) -> "Iterator[float]":
    """Red, green and blue from 0 to 1 (CSS Color 4, section 7.1)."""
    saturation, light = min(1, max(0, saturation)), min(1, max(0, light))
    a = saturation * min(light, 1 - light)
    for n in (0, 8, 4):
        k = (n + hue / 30) % 12
        yield light - a * max(-1, min(k - 3, 9 - k, 1))


def _first_color(value: str) -> int | None:
    """The first colour among the words of a `background` value; None if none is found."""
    words = re.findall(WORD, value[:MAX_VALUE])
    return next((found for found in map(color, words) if found is not None), None)


def _gradient(value: str) -> int | None:
    """The colour of a gradient all of whose colours look the same, else None."""
    found = set(map(color, re.findall(COLOR, value[:MAX_VALUE]))) - {None}
    one = found.pop() if found else None
    return one if one is not None and all(near(other, one) for other in found) else None


# Declarations
# ------------------------------------------------------------------------------------------------


def _unescape(m: "re.Match[str]") -> str:
    if not m.group(1):
        return m.group(2)
    code = int(m.group(1), 16)
    return chr(code).lower() if 0 < code < 0xD800 else "\ufffd"


def _placeholder(m: "re.Match[str]") -> str:
    return " " if m.group(1) else "url()" if m.group().startswith("url") else "''"


@lru_cache(512)
def declarations(style: str) -> "tuple[dict[str, str], dict[str, str]]":
    """({name: value}, {name: value} of those called !important) of PROPERTIES in a style attribute,
    in lower case; comments and what strings hold are taken out, shorthands taken apart.
    """
    style = style.lower()
    found: tuple[dict[str, str], dict[str, str]] = {}, {}
    if any(c in style for c in "/\"'("):
        style = re.sub(HOLDS_SEMICOLON, _placeholder, style)
    for declaration in style.split(";"):
        name, colon, value = declaration.partition(":")
        if "\\" in declaration:
            name, value = re.sub(ESCAPE, _unescape, name), re.sub(ESCAPE, _unescape, value)
        name, (value, _, priority) = name.strip(), value.partition("!")
        if name in PROPERTIES:
            value = value.strip()
            if _is_valid(name, value):
                found["important" in priority][name] = value
        elif name in SHORTHANDS or name.startswith("-webkit-"):
            found["important" in priority].update(
                pair for pair in _longhands(name, value.strip()) if _is_valid(*pair)
            )
    return found


def _is_valid(name: str, value: str) -> bool:
    """Whether a browser would take a value; it drops one that it does not know."""
    if name not in VALUES:
        return value != ""
    words = VALUES[name]
    if value in EVERYWHERE or value.startswith("var("):
        return True
    if words == "color":
        return color(value) is not None or bool(re.match(COLOR_FUNCTION, value))
    if words is SIZE and (value[:1] in DIGITS or "(" in value):
        return True
    return value.partition(" ")[0] in words


def _sides(words: list[str]) -> tuple[str, str, str, str]:
    """The values of top, right, bottom and left that one to four words give."""
    top, right = words[0], words[1] if len(words) > 1 else words[0]
    return top, right, words[2] if len(words) > 2 else top, words[3] if len(words) > 3 else right


def _longhands(name: str, value: str) -> "Iterator[tuple[str, str]]":
    """The declarations that one of a shorthand stands for, of PROPERTIES."""
    if name == "background":
        yield from (("background-color", value), ("background-image", value))
    elif name == "font":
        yield "font-size", _size_of_font(value)
    elif name in ("margin", "inset"):
        words = [value] if "(" in value else value[:MAX_VALUE].split(maxsplit=4)[:4]
        for side, word in zip(SIDES, _sides(words) if words else ()):
            if name == "inset" or side in ("top", "left"):
                yield (side if name == "inset" else f"margin-{side}"), word
    elif name in ("overflow-x", "overflow-y"):
        yield "overflow", value
    elif name.removeprefix("-webkit-") in PROPERTIES:
        yield name.removeprefix("-webkit-"), value


def _size_of_font(value: str) -> str:
    """The size in a value of `font`: the first word that begins as a number and is no weight."""
    if value.startswith(("inherit", "unset", "revert")):
        return value
    return next(
        (
            word.partition("/")[0]
            for word in value[:MAX_VALUE].split()
            if word in SIZES
            or word[0] in ".0123456789"
            and not (len(word) == 3 and word.endswith("00"))
        ),
        "medium",
    )


# Sizes
# ------------------------------------------------------------------------------------------------


def pixels(value: str, size: float) -> float | None:
    """A length in pixels, None where it is none; size: pixels of the font."""
    if "(" in value:
        return _calculated(value[:100], size)
    m = re.match(rf"({NUMBER})\s?([a-z%]*)", value)
    return _length(float(m.group(1)), m.group(2), size) if m else None


def _length(number: float, unit: str, size: float) -> float:
    scale = EM[unit] * size if unit in EM else UNITS.get(unit, 1)
    return number * scale


def _calculated(value: str, size: float) -> float | None:
    """calc(), min(), max() and clamp() of lengths, which are written as in arithmetic."""
    tokens = re.findall(ARITHMETIC, value)[:60][::-1]
    try:
        return _sum(tokens, size, 0)
    except (IndexError, ValueError, ZeroDivisionError, OverflowError):
        return None


def _sum(tokens: list[str], size: float, depth: int) -> float:
    total = _product(tokens, size, depth)
    while tokens and tokens[-1] in ("+", "-"):
        sign = tokens.pop()
        term = _product(tokens, size, depth)
        total = total + term if sign == "+" else total - term
    return total


def _product(tokens: list[str], size: float, depth: int) -> float:
    total = _term(tokens, size, depth)
    while tokens and tokens[-1] in ("*", "/"):
        sign = tokens.pop()
        term = _term(tokens, size, depth)
        total = total * term if sign == "*" else total / term
    return total


def _term(tokens: list[str], size: float, depth: int) -> float:
    token = tokens.pop()
    name = token if token in ("calc", "min", "max", "clamp") else ""
    if name:
        token = tokens.pop()
    if token != "(":
        m = re.fullmatch(f"({NUMBER})([a-z%]*)", token)
        if not m or name:
            raise ValueError
        return _length(float(m.group(1)), m.group(2), size)
    if depth > 8:
        raise ValueError
    values = [_sum(tokens, size, depth + 1)]
    while tokens and tokens[-1] == ",":
        tokens.pop()
        values.append(_sum(tokens, size, depth + 1))
    if tokens:
        tokens.pop()
    if name == "clamp" and len(values) == 3:
        return max(values[0], min(values[1], values[2]))
    return min(values) if name == "min" else max(values) if name == "max" else values[0]


def _share(value: str) -> float:
    """A number or a percentage as a share of 1; 1 for what is neither."""
    m = re.match(rf"({NUMBER})\s?(%?)", value)
    if "(" in value:
        found = _calculated(value[:100].replace("%", "* .01"), 16)
        return 1.0 if found is None else found
    return float(m.group(1)) / (100 if m.group(2) else 1) if m else 1.0


# What is seen
# ------------------------------------------------------------------------------------------------


def apply(d: "Mapping[str, str]", look: "Look", is_inline: bool = False) -> "Look":
    """The look of an element in a parent's, with these declarations.

    is_inline: its box has the size of its text whatever is declared, as that of a <span>.
    """
    get = d.get
    size = _font_size(d["font-size"], look.size) if "font-size" in d else look.size
    display = get("display", "")
    is_placed = get("position", "").startswith(("absolute", "fixed"))
    is_inline = is_inline and not display and not is_placed and get("float", "none") == "none"
    rtl = get("direction", "rtl" if look.rtl else "").startswith("rtl")
    return Look(
        _ink(d["color"], look.ink) if "color" in d else look.ink,
        _paper(d, look.paper),
        look.gone
        or display.startswith("none")
        or ("opacity" in d and _share(d["opacity"]) <= 0.02)
        or get("content-visibility", "").startswith("hidden")
        or ("filter" in d and _is_filtered(d["filter"]))
        or _is_cut(d, size, is_inline)
        or _is_away(d, size, is_placed),
        get("visibility", "hidden" if look.veiled else "").startswith(("hidden", "collapse")),
        size,
        _ink(d["-webkit-text-fill-color"], look.fill)
        if "-webkit-text-fill-color" in d
        else look.fill,
        rtl,
        rtl if get("unicode-bidi", "").endswith("-override") else look.flipped,
    )


def _ink(value: str, parent: int | None) -> int | None:
    if value.startswith(("inherit", "unset", "currentcolor", "revert")):
        return parent
    return 0 if value.startswith("initial") else color(value)


def _paper(d: "Mapping[str, str]", paper: int | None) -> int | None:
    if "background-color" in d:
        found = _first_color(d["background-color"])
        plain = d["background-color"].split(" ", 1)[0]
        is_none = plain in ("none", "initial", "unset", "inherit", "revert", "")
        if found is not None or not is_none:
            paper = paper if found == CLEAR else found
    image = d.get("background-image", "")
    if "gradient" in image:
        return _gradient(image)
    return None if "url(" in image or "image(" in image else paper


def _font_size(value: str, parent: float) -> float:
    if value in SIZES:
        return float(SIZES[value])
    if value.startswith(("smaller", "larger")):
        return parent / 1.2 if value[0] == "s" else parent * 1.2
    found = pixels(value.replace("%", "em") if value.endswith("%") else value, parent)
    if found is None or found < 0:
        return parent
    # so far from any size, and not beyond what a float holds
    return min(found / 100 if value.endswith("%") else found, 1e6)


def _is_cut(d: "Mapping[str, str]", size: float, is_inline: bool) -> bool:
    """Whether an element shows nothing of what it holds: a box of no size, or cut to none."""
    get = d.get
    if not is_inline and get("overflow", "").startswith(HIDES_OVERFLOW):
        for name in ("height", "max-height", "width", "max-width"):
            found = pixels(d[name], size) if name in d else None
            if found is not None and found <= THIN:
                return True
    if "clip" in d and get("position", "").startswith(("absolute", "fixed")):
        m = re.match(r"rect\s?\(([^)]*)\)?", d["clip"][:MAX_VALUE])
        sides = re.split(r"[\s,]+", m.group(1).strip()) if m else []
        if len(sides) == 4:
            ends = (0.0, math.inf, math.inf, 0.0)
            top, right, bottom, left = (
                end if found is None else found
                for end, found in zip(ends, (pixels(side, size) for side in sides))
            )
            if bottom - top <= THIN or right - left <= THIN:
                return True
    return "clip-path" in d and _is_clipped(d["clip-path"][:MAX_VALUE], size)


def _is_clipped(value: str, size: float) -> bool:
    m = re.match(FUNCTION, value)
    if not m:
        return False
    shape, arguments = m.groups()
    words = arguments.replace(",", " ").partition(" round")[0].split()
    if shape == "inset" and words:
        top, right, bottom, left = _sides(words)
        share = lambda side: _share(side) if side.endswith("%") else (pixels(side, size) or 0) / FAR
        return share(top) + share(bottom) >= 0.99 or share(left) + share(right) >= 0.99
    if shape in ("circle", "ellipse") and words and words[0] != "at":
        found = pixels(words[0], size)
        return found is not None and found <= THIN
    if shape in ("polygon", "rect", "xywh"):
        points = [pixels(word, size) for word in words if word not in ("evenodd", "nonzero")]
        return bool(points) and all(x is not None and abs(x) <= THIN for x in points)
    return False


def _is_filtered(value: str) -> bool:
    """Whether a filter leaves nothing: opacity(0), and alpha(opacity=0) of old."""
    return any(
        name in ("opacity", "alpha")
        and _share(f"{old.strip()}%" if (old := arguments.partition("=")[2]) else arguments) <= 0.02
        for name, arguments in re.findall(FUNCTION, value[:MAX_VALUE])
    )


def _is_away(d: "Mapping[str, str]", size: float, is_placed: bool) -> bool:
    """Whether an element stands where no one looks."""
    get = d.get
    if is_placed or get("position", "").startswith(("relative", "sticky")):
        for side in SIDES:
            found = pixels(d[side], size) if side in d else None
            if found is not None and (
                found <= -FAR or found >= BEYOND and side in ("left", "right")
            ):
                return True
    for name in ("text-indent", "margin-left", "margin-top"):
        found = pixels(d[name], size) if name in d else None
        if found is not None and found <= -FAR:
            return True
    if "scale" in d and any(abs(_share(word)) <= 0.02 for word in d["scale"].split()[:3]):
        return True
    moved = [("translate", d["translate"])] if "translate" in d else []
    moved += re.findall(FUNCTION, get("transform", "")[:MAX_VALUE])
    return any(_is_moved_away(name, arguments, size) for name, arguments in moved)


def _is_moved_away(name: str, arguments: str, size: float) -> bool:
    words = arguments.replace(",", " ").split()[:6]
    if name.startswith("scale"):
        return any(abs(_share(word)) <= 0.02 for word in words[:2])
    if name.startswith("translate"):
        found = [pixels(word, size) for word in words if not word.endswith("%")]
        return any(x is not None and (x <= -FAR or x >= BEYOND) for x in found)
    if name in ("rotatex", "rotatey") and words:
        m = re.match(f"({NUMBER})([a-z]*)", words[0])
        turned = float(m.group(1)) * ANGLES.get(m.group(2), 1) if m else 0.0
        return abs(turned % 180 - 90) < 1
    if name == "matrix" and len(words) == 6:
        a, b, c, d, x, y = (_share(word) for word in words)
        return abs(a * d - b * c) <= 0.0004 or x <= -FAR or y <= -FAR
    return False
