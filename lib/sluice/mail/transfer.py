"""Decode what makes bytes and characters of a message pass as ASCII: transfer encodings and encoded
words.

RFC 2045, section 6, and RFC 2047. A str is one of latin-1 characters, each of them a byte, as
mime.py reads them.
"""

import binascii
import re

from . import charsets

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MAX_ENCODED_WORDS = 60  # of one field; the standard library's search is square in their number
MAX_RUNS = 4000  # of base64 in a body, each with its padding
NOT_BASE64 = bytes(
    set(range(256)) - set(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=")
)
NOT_BASE64_NOR_BLANK = NOT_BASE64.translate(None, b" \t\n\r")
NOT_IN_TEXT = bytes(set(range(32)) - set(b"\t\n\f\r\x1b"))
RUN = re.compile(rb"([^=]+)(=*)")
PADDING = re.compile(rb"=[ \t]+\n")
NONE = ("", "7bit", "8bit", "binary", "7-bit", "8-bit")


def decode(body: str, encoding: str, limit: int, reasons: set[str]) -> tuple[bytes, bool]:
    """Decode a transfer encoding; return (at most `limit` bytes, whether there are more)."""
    decoder, factor = DECODER.get(encoding, (_as_it_is, 1))
    n_in = factor * limit + 1
    out = decoder(body[:n_in].encode("latin-1", "replace"), reasons)
    return out[:limit], len(out) > limit or len(body) > n_in


def _as_it_is(raw: bytes, reasons: set[str]) -> bytes:
    return raw


def _base64(raw: bytes, reasons: set[str]) -> bytes:
    """Decode base64, also of several runs, each with its padding: mailers join them, and clients
    show all. Other text after the padding, such as the footer of a list, is skipped.
    """
    out, is_whole = [], True
    for n, m in enumerate(RUN.finditer(raw)):
        if n >= MAX_RUNS:
            reasons.add("encoding")
            break
        run = m.group(1).translate(None, NOT_BASE64)
        if not run:
            continue
        data = _groups(run)
        was_whole, is_whole = is_whole, (len(run) + len(m.group(2))) % 4 == 0
        is_more = not out or is_whole and _is_clean(m.group(1)) or _reads(data)
        if not (is_more and was_whole):
            reasons.add("encoding")
        if is_more:
            out.append(data)
    return b"".join(out)


def _groups(run: bytes) -> bytes:
    """The bytes of base64 without padding; a last character alone is less than a byte."""
    run = run[: len(run) - (len(run) % 4 == 1)]
    return binascii.a2b_base64(run + b"=" * (-len(run) % 4))


def _is_clean(run: bytes) -> bool:
    return len(run) == len(run.translate(None, NOT_BASE64_NOR_BLANK))


def _reads(data: bytes) -> bool:
    """Whether bytes are UTF-8 without control characters; text decoded as base64 rarely is."""
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return len(data) == len(data.translate(None, NOT_IN_TEXT))


def _quoted_printable(raw: bytes, reasons: set[str]) -> bytes:
    # blanks behind a soft line end are padding (RFC 2045, 6.7, rule 3)
    return binascii.a2b_qp(PADDING.sub(b"=\n", raw) if b"= " in raw or b"=\t" in raw else raw)


def _uudecode(raw: bytes, reasons: set[str]) -> bytes:
    out = []
    for line in raw.partition(b"begin ")[2].split(b"\n")[1:]:
        if line.startswith((b"end", b"`")):
            break
        try:
            out.append(binascii.a2b_uu(line))
        except binascii.Error:
            pass  # a damaged line of many
    return b"".join(out)


# Transfer encoding: its decoder, and bytes read for a byte that is wanted. Not
# Message.get_payload(decode=True), which decodes all, and leaves base64 with a stray character as
# it is.
DECODER = {
    "base64": (_base64, 2),
    "quoted-printable": (_quoted_printable, 3),
    "x-uuencode": (_uudecode, 2),
    "uuencode": (_uudecode, 2),
    "x-uue": (_uudecode, 2),
}


def header_text(value: str, reasons: set[str], default: str = "") -> str:
    """The characters of a field's value: encoded words of RFC 2047 decoded, also split within a
    character.

    default: the character set of bytes outside of them that are no UTF-8.
    """
    pieces: list[tuple[Any, Any]] = [(value, None)]
    if "=?" in value:
        from email.errors import HeaderParseError
        from email.header import decode_header, ecre  # type: ignore[attr-defined]

        words = value.split("=?", MAX_ENCODED_WORDS)
        head, tail = (
            "=?".join(words[:MAX_ENCODED_WORDS]),
            "".join("=?" + word for word in words[MAX_ENCODED_WORDS:]),
        )
        try:
            pieces = decode_header(head)
        except (
            HeaderParseError,
            ValueError,
        ):  # a word of base64 that is cut: it must not take the others with it
            reasons.add("encoding")
            pieces = decode_header(
                "".join(ecre.sub(_mended, line) for line in head.splitlines(True))
            )
        pieces.append((tail, None))
    out = []
    for data, charset in pieces:
        data = data.encode("latin-1", "replace") if isinstance(data, str) else data
        # RFC 2231 puts a language behind it
        text, known = charsets.decode(data, (charset or "").partition("*")[0], default=default)
        out.append(text)
        if not known:
            reasons.add("charset")
    return "".join(out).replace("\n", " ")


def _mended(m: "re.Match[str]") -> str:
    """An encoded word; of one in base64 without the last character, if that is less than a byte."""
    charset, encoding, data = m.groups()
    if encoding in "bB":
        data = data.encode("latin-1", "replace").translate(None, NOT_BASE64 + b"=").decode("ascii")
        data = data[: len(data) - (len(data) % 4 == 1)]
    return f"=?{charset}?{encoding}?{data}?="
