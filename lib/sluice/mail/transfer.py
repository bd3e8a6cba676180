"""What mail does to bytes and characters so that they pass as ASCII, taken off: transfer encodings and encoded words.

RFC 2045, section 6, and RFC 2047. A str is one of latin-1 characters, each of them a byte, as mime.py reads them.
"""
import binascii

from . import charsets

MAX_ENCODED_WORDS = 60    # of one field; the standard library's search is square in their number
NOT_BASE64 = bytes(set(range(256)) - set(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/="))
NONE = ("", "7bit", "8bit", "binary", "7-bit", "8-bit")


def decode(body, encoding, limit):
    """(bytes of a str with its transfer encoding taken off, at most `limit`; whether there is more)."""
    decoder, factor = DECODER.get(encoding, (bytes, 1))
    n_in = factor * limit + 1
    out = decoder(body[:n_in].encode("latin-1", "replace"))
    return out[:limit], len(out) > limit or len(body) > n_in


def _base64(raw):
    raw = raw.translate(None, NOT_BASE64).partition(b"=")[0]
    raw = raw[:len(raw) - (len(raw) % 4 == 1)]
    return binascii.a2b_base64(raw + b"=" * (-len(raw) % 4))


def _uudecode(raw):
    out = []
    for line in raw.partition(b"begin ")[2].split(b"\n")[1:]:
        if line.startswith((b"end", b"`")):
            break
        try:
            out.append(binascii.a2b_uu(line))
        except binascii.Error:
            pass  # a damaged line of many
    return b"".join(out)


# Transfer encoding: its decoder, and bytes read for a byte that is wanted. Not Message.get_payload(decode=True), which decodes all,
# and leaves base64 with a stray character as it is.
DECODER = {"base64": (_base64, 2), "quoted-printable": (binascii.a2b_qp, 3), "x-uuencode": (_uudecode, 2),
           "uuencode": (_uudecode, 2), "x-uue": (_uudecode, 2)}


def header_text(value, reasons):
    """The characters of a field's value: encoded words of RFC 2047 decoded, also split within a character."""
    pieces = [(value, None)]
    if "=?" in value:
        from email.errors import HeaderParseError
        from email.header import decode_header, ecre

        words = value.split("=?", MAX_ENCODED_WORDS)
        head, tail = "=?".join(words[:MAX_ENCODED_WORDS]), "".join("=?" + word for word in words[MAX_ENCODED_WORDS:])
        try:
            pieces = decode_header(head)
        except (HeaderParseError, ValueError):  # a word of base64 that is cut: it must not take the others with it
            reasons.add("encoding")
            pieces = decode_header("".join(ecre.sub(_mended, line) for line in head.splitlines(True)))
        pieces.append((tail, None))
    out = []
    for data, charset in pieces:
        data = data.encode("latin-1", "replace") if isinstance(data, str) else data
        text, known = charsets.decode(data, (charset or "").partition("*")[0])  # RFC 2231 puts a language behind it
        out.append(text)
        if not known:
            reasons.add("charset")
    return "".join(out).replace("\n", " ")


def _mended(m):
    """An encoded word; of one in base64 without the last character, if that is less than a byte."""
    charset, encoding, data = m.groups()
    if encoding in "bB":
        data = data.encode("latin-1", "replace").translate(None, NOT_BASE64 + b"=").decode("ascii")
        data = data[:len(data) - (len(data) % 4 == 1)]
    return f"=?{charset}?{encoding}?{data}?="
