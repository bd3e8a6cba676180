"""Convert text/enriched (RFC 1896) and text/richtext (RFC 1341) to HTML, which markup.py reads.

Both have commands as HTML has tags. Colours become those of a font, so that text in white is found;
parameters and comments are not text.
"""

import html
import re

TOKEN = re.compile(r"(</?[A-Za-z0-9-]{1,60}>)")
LESS = "\0"  # a `<` that begins no command; enriched text writes it `<<`
HIDDEN = frozenset(("param", "comment"))
HEX = re.compile(r"([0-9A-Fa-f]{2})[0-9A-Fa-f]{2},([0-9A-Fa-f]{2})[0-9A-Fa-f]{2},([0-9A-Fa-f]{2})")
MAX_COLOR = 30  # characters
RICHTEXT = {"lt": "&lt;", "nl": "<br>", "np": "<br>", "paragraph": "<p>"}


def to_html(text: str, is_richtext: bool) -> str:
    """The HTML that shows the same. Linear."""
    out, n_silent, n_nofill = [], 0, 0
    color: list[str] | None = None  # pieces of a colour's parameter
    text = text.replace(LESS, "")
    text = text if is_richtext else text.replace("<<", LESS)
    for i, piece in enumerate(TOKEN.split(text)):
        name = piece[1:-1].lower() if i % 2 else ""
        word = name.removeprefix("/")
        if not name:
            if not n_silent:
                out.append(_text(piece, is_richtext or n_nofill > 0, is_richtext))
            elif color is not None:
                color.append(piece)
        elif word in HIDDEN:
            n_silent = max(0, n_silent + (1 if name == word else -1))
            if not n_silent and color is not None:
                out.append(f'<font color="{_color("".join(color))}">')
                color = None
        elif n_silent:
            pass
        elif is_richtext:
            out.append(RICHTEXT.get(word, "") if name == word else "")
        elif word == "color":
            color = [] if name == word else color
            out.append("" if name == word else "</font>")
        elif word == "nofill":
            n_nofill = max(0, n_nofill + (1 if name == word else -1))
        elif word in ("center", "flushleft", "flushright", "flushboth", "paraindent", "excerpt"):
            out.append("<br>")
    return "".join(out)


def _text(text: str, is_filled: bool, is_richtext: bool) -> str:
    """Escaped text; of newlines in a row each but the first is one, alone it is a space."""
    text = html.escape(text, quote=False).replace(LESS, "&lt;")
    if is_richtext:
        return text
    return text.replace("\n", "<br>") if is_filled else re.sub("\n(\n*)", _newlines, text)


def _newlines(m: "re.Match[str]") -> str:
    return " " if not m.group(1) else "<br>" * min(3, len(m.group(1)))


def _color(value: str) -> str:
    """A colour as HTML writes it: a name, or 16 bits of each, of which the upper 8 are kept."""
    value = value[:MAX_COLOR].strip()
    found = HEX.match(value)
    return "#" + "".join(found.groups()) if found else html.escape(value)
