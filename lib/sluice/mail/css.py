"""Decide whether text is visible, from a style attribute and the colours of HTML.

CSS 2.1, section 4 (declarations, escapes, comments), and CSS Color 3, as much of them as decides
visibility. A declaration that is not understood changes nothing, and of two of one name the last
counts, as in a browser. Linear in MAX_STYLE characters.
"""

import re
from functools import lru_cache

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MAX_STYLE = 8192  # characters of one attribute; what follows is not read
MAX_BACKGROUND = 500  # of a background; the search for words is square in their number
# a colour that is none; others are 0xRRGGBB, and None is one that is not known: an image, an
# unknown name
CLEAR = -1
NEAR = 16  # difference of two colours that is not seen, in each of red, green and blue

# Those that mail uses to hide or to show, and all that are nearly white.
COLORS = {
    "white": 0xFFFFFF,
    "black": 0,
    "red": 0xFF0000,
    "green": 0x008000,
    "blue": 0x0000FF,
    "yellow": 0xFFFF00,
    "gray": 0x808080,
    "grey": 0x808080,
    "silver": 0xC0C0C0,
    "navy": 0x000080,
    "maroon": 0x800000,
    "purple": 0x800080,
    "teal": 0x008080,
    "olive": 0x808000,
    "lime": 0x00FF00,
    "aqua": 0x00FFFF,
    "cyan": 0x00FFFF,
    "fuchsia": 0xFF00FF,
    "magenta": 0xFF00FF,
    "orange": 0xFFA500,
    "snow": 0xFFFAFA,
    "ivory": 0xFFFFF0,
    "ghostwhite": 0xF8F8FF,
    "whitesmoke": 0xF5F5F5,
    "floralwhite": 0xFFFAF0,
    "azure": 0xF0FFFF,
    "mintcream": 0xF5FFFA,
    "aliceblue": 0xF0F8FF,
    "honeydew": 0xF0FFF0,
    "seashell": 0xFFF5EE,
    "lavenderblush": 0xFFF0F5,
    "lightyellow": 0xFFFFE0,
    "lightgrey": 0xD3D3D3,
    "lightgray": 0xD3D3D3,
    "transparent": CLEAR,
}
NUMBER = r"[-+]?(?:[0-9]{1,9}(?:\.[0-9]{0,9})?|\.[0-9]{1,9})"
HOLDS_SEMICOLON = r"""(/\*)(?:[^*]|\*(?!/))*(?:\*/)?|"[^"]*"?|'[^']*'?|url\([^)]*\)?"""
ESCAPE = r"\\(?:([0-9a-f]{1,6})[ \t\r\n\f]?|([^0-9a-f]))"
WORD = r"[a-z-]+\([^)]*\)?|[^\s(]+"  # a function that is not closed ends with the value
HEX_DIGITS = frozenset("0123456789abcdef")


def near(a: int | None, b: int | None) -> bool:
    """Whether text of colour a cannot be seen on b; False where one is not known."""
    if a is None or b is None or a < 0 or b < 0:
        return a == CLEAR
    return all(abs((a >> shift & 255) - (b >> shift & 255)) <= NEAR for shift in (0, 8, 16))


def color(value: str) -> int | None:
    """0xRRGGBB, CLEAR or None of a colour as CSS or an attribute of HTML writes it."""
    value = value[:100].strip().lower()
    if value in COLORS:
        return COLORS[value]
    if value.startswith(("rgb(", "rgba(")):
        return _rgb(value)
    value = value.removeprefix("#")
    if len(value) not in (3, 4, 6, 8) or not HEX_DIGITS.issuperset(value):
        return None
    if len(value) < 6:
        value = "".join(c + c for c in value)
    return CLEAR if value[6:] == "00" else int(value[:6], 16)


def _rgb(value: str) -> int | None:
    """rgb(1, 2, 3), rgba(1 2 3 / 0) and the like."""
    parts = [
        (float(m.group()), value[m.end() : m.end() + 1] == "%") for m in re.finditer(NUMBER, value)
    ][:4]
    if len(parts) < 3:
        return None
    if len(parts) == 4 and parts[3][0] / (100 if parts[3][1] else 1) <= 0.05:
        return CLEAR
    red, green, blue = (
        int(min(255, max(0, x * 255 / 100 if percent else x))) for x, percent in parts[:3]
    )
    return red << 16 | green << 8 | blue


def _background(value: str) -> int | None:
    """The first colour among the words of a `background` value, None if it names an image or no
    colour is found.
    """
    if "url(" in value or "gradient" in value:
        return None
    return next(
        (
            found
            for found in map(color, re.findall(WORD, value[:MAX_BACKGROUND]))
            if found is not None
        ),
        None,
    )


def _unescape(m: "re.Match[str]") -> str:
    if not m.group(1):
        return m.group(2)
    code = int(m.group(1), 16)
    return chr(code).lower() if 0 < code < 0xD800 else "\ufffd"


def _placeholder(m: "re.Match[str]") -> str:
    return " " if m.group(1) else "url()" if m.group().startswith("url") else "''"


@lru_cache(512)
def declarations(style: str) -> dict[str, str]:
    """{name: value} of a style attribute, in lower case, comments and what strings hold taken
    out.
    """
    style, found = style.lower(), {}
    if any(c in style for c in "/\"'("):
        style = re.sub(HOLDS_SEMICOLON, _placeholder, style)
    for declaration in style.split(";"):
        name, colon, value = declaration.partition(":")
        if "\\" in declaration:
            name, value = re.sub(ESCAPE, _unescape, name), re.sub(ESCAPE, _unescape, value)
        name, value = name.strip(), value.strip()
        if colon and not ("!important" in found.get(name, "") and "!important" not in value):
            found[name] = value
    return found


def _number(value: str) -> tuple[float | None, str]:
    """(the number that a value begins with or None, what follows it)."""
    m = re.match(NUMBER, value)
    return (float(m.group()), value[m.end() :]) if m else (None, value)


def _is_zero(value: str) -> bool:
    return _number(value)[0] == 0


def apply(style: str, look: "tuple[Any, ...]") -> "tuple[Any, ...]":
    """The look of an element in a parent's with this style attribute: (text colour, background,
    gone, veiled, tiny).

    gone: neither it nor what is in it can be seen; veiled (visibility) and tiny (size) end where an
    element within sets another.
    """
    ink, paper, gone, veiled, tiny = look
    d = declarations(style[:MAX_STYLE])
    get = d.get
    opacity, indent = _number(get("opacity", ""))[0], _number(get("text-indent", ""))[0]
    gone = (
        gone
        or get("display", "").startswith("none")
        or (opacity is not None and opacity <= 0.02)
        or (indent is not None and indent < -500)
        or (
            get("overflow", "").startswith("hidden")
            and any(
                _is_zero(get(name, "")) for name in ("height", "max-height", "width", "max-width")
            )
        )
    )
    if "visibility" in d:
        veiled = d["visibility"].startswith(("hidden", "collapse"))
    if "color" in d:
        ink = color(d["color"].partition("!")[0])
    for name in d:
        if name == "background-image":
            paper = paper if d[name].startswith("none") else None
        elif name in ("background", "background-color"):
            found = _background(d[name].partition("!")[0])
            paper = paper if found == CLEAR else found
    for name in ("font", "font-size"):
        if name in d:
            tiny = _is_tiny(_size_of_font(d[name]) if name == "font" else d[name], tiny)
    return ink, paper, gone, veiled, tiny


def _size_of_font(value: str) -> str:
    """The size in a value of `font`: the first word that begins as a number and is no weight."""
    return next(
        (
            word
            for word in value.split()
            if word[0] in ".0123456789" and not (len(word) == 3 and word.endswith("00"))
        ),
        "",
    )


def _is_tiny(value: str, parent: bool) -> bool:
    """Whether text of this font-size is read by no eye; `parent`: whether that of the element
    around it is not.
    """
    size, unit = _number(value)
    if size is None:
        return False  # a word: small, large
    unit = unit.strip()
    if unit.startswith(("%", "em")):
        return parent or size < (8 if unit[0] == "%" else 0.08)
    return size <= (0.08 if unit.startswith("rem") else 1)  # a pixel or a point
