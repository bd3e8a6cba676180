"""Join the lines of text/plain; format=flowed (RFC 3676)."""

import re

QUOTE = re.compile(">*")
SIGNATURE = "-- "


def joined(text: str, delsp: bool) -> str:
    """The text with its soft line ends taken out.

    A line that ends with a space goes on in the next, if both are quoted as deep; delsp: that space
    is no part of the text. Linear.
    """
    out: list[str] = []
    is_open, depth = False, 0
    for line in text.split("\n"):
        line = line.removesuffix("\r")
        mark = QUOTE.match(line).group()  # type: ignore[union-attr]
        rest = line[len(mark) :].removeprefix(" ")
        is_flowed = rest.endswith(" ") and rest != SIGNATURE
        if is_open and len(mark) == depth and rest != SIGNATURE:
            out.append(rest)
        else:
            out.append("\n" if out else "")
            out.append(f"{mark} {rest}" if mark else rest)
        if is_flowed and delsp:
            out[-1] = out[-1][:-1]
        is_open, depth = is_flowed, len(mark)
    return "".join(out)
