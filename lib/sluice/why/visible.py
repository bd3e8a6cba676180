"""Text of a stranger, made fit for a terminal or a page."""

import re

LINE_END = re.compile(r"[ \t\r]*\n[ \t\r\n]*")


def visible(text: bytes | str) -> str:
    """Text for a terminal or a page: one line without control characters.

    They become ^[ and the like; others that show nothing or turn the direction become \\u202e.
    """
    if isinstance(text, bytes):
        text = text.decode("utf-8", "replace")
    text = LINE_END.sub(" / ", text.strip("\r\n\t ")).replace("\t", " ")
    return text if text.isprintable() else "".join(map(_visible, text))


def _visible(c):
    if c.isprintable():
        return c
    if c < " " or c == "\x7f":
        return "^" + chr(ord(c) ^ 64)
    return c.encode("unicode_escape").decode()
