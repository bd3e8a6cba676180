"""A message as a tree of parts: RFC 5322, 2045 to 2047 and 2231, within limits that hold whatever the message is.

Written for hostile input, where the standard library's parser is not: that one descends by recursion (1,000 nested
multiparts end it), and spends 0.2 us on every line (10 MB of newlines take two seconds). Here a multipart is cut from the
outside in, each level by one search for its boundary within its own extent, so the time is at most bytes x MAX_DEPTH
at the speed of memchr, and nothing is copied. Bodies are decoded only when they are asked for, and only as much as is wanted.

What goes beyond a limit, or is malformed, is left as it is, and a word is put into `reasons`:

    header      a header block of more than MAX_HEADER_LINES lines or MAX_HEADER_BYTES bytes: the rest of it is passed over
    parts       more than MAX_PARTS parts: the rest is passed over
    depth       multiparts and messages within each other beyond MAX_DEPTH: those inside are shown as they are
    boundary    a multipart without the boundary it names: cut at what looks like one, or shown as it is
    ambiguous   two Content-Type fields or two boundaries, which readers understand differently; the first is used
    encoding    a transfer encoding that is not known: taken as none
    charset     a character set that is not known: see charsets.decode
"""
import binascii
import re
from itertools import islice

from . import charsets

MAX_HEADER_LINES = 1000
MAX_HEADER_BYTES = 1 << 16
MAX_VALUE_BYTES = 4096    # of one field; what follows is not read
MAX_PARAMETERS = 50
MAX_PARTS = 100
MAX_DEPTH = 20
MAX_MESSAGE_BYTES = 1 << 20  # of a message within a message whose encoding has to be taken off
MAX_FALSE_DELIMITERS = 10000  # lines that begin like a delimiter and are none, in one message
GUESS_BYTES = 1 << 16     # how far a boundary is looked for that no parameter names

FIELD = re.compile(rb"([!-9;-~]{1,76})[ \t]*:")
QUOTED_OR_COMMENT = re.compile(r'"(?:[^"\\]|\\.)*"?|\([^()]*\)')
PARAMETER = re.compile(r'[; ] ?([^ =;"]+) ?= ?(?:"((?:[^"\\]|\\.)*)"?|([^;]*))')
SECTION = re.compile(r"([^*]+)(?:\*([0-9]{1,3}))?(\*)?")
DELIMITER_LIKE = re.compile(rb"^--([^\n]{1,200})\n(?=content-)", re.M | re.I)
ENCODED_WORD = re.compile(r"=\?([^?\s]{1,64})\?([bBqQ])\?([^?]*)\?=")
BETWEEN_WORDS = re.compile(r"(\?=)[ \t]+(?==\?[^?\s]{1,64}\?[bBqQ]\?)")
NOT_BASE64 = bytes(set(range(256)) - set(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/="))


class Part:
    """One part: `kind` ("text/plain", lower case), `fields` {name: value as bytes}, its body data[start:end], `children`."""

    __slots__ = ("kind", "params", "fields", "disposition", "name", "data", "start", "end", "depth", "children")


def parse(data):
    """(root Part, number of parts, set of reasons, whether a header was there) of a message: bytes with LF line ends."""
    reasons, start, is_mbox = set(), 3 if data.startswith(b"\xef\xbb\xbf") else 0, False
    if data.startswith((b"From ", b">From "), start):
        start, is_mbox = data.find(b"\n", start) + 1 or len(data), True
    root = _part(data, start, len(data), 0, "text/plain", reasons)
    has_header = is_mbox or not MAIL_FIELDS.isdisjoint(root.fields)
    if not has_header:
        root, reasons = _part(data, start, start, 0, "text/plain", set()), set()
        root.end = len(data)
    work, n_parts, false = [root], 1, [MAX_FALSE_DELIMITERS]
    while work:
        part = work.pop()
        if not part.kind.startswith("multipart/") and not _is_message(part):
            continue
        if part.depth == MAX_DEPTH:
            reasons.add("depth")
            continue
        default = "message/rfc822" if part.kind == "multipart/digest" else "text/plain"
        inner, extents = _extents(part, MAX_PARTS - n_parts, false, reasons)
        part.children = [_part(inner, begin, end, part.depth + 1, default, reasons) for begin, end in extents]
        n_parts += len(part.children)
        work += reversed(part.children)
    return root, n_parts, reasons, has_header


def _is_message(part):
    return part.kind in ("message/rfc822", "message/global") and part.disposition != "attachment"


MAIL_FIELDS = frozenset("from to cc subject date received return-path message-id mime-version content-type reply-to sender "
                        "delivered-to content-transfer-encoding dkim-signature in-reply-to references x-mailer".split())


def _part(data, start, end, depth, default, reasons):
    part = Part()
    part.fields, part.start = _header(data, start, end, reasons)
    part.data, part.end, part.depth, part.children = data, end, depth, []
    part.kind, part.params, twice = parameters(part.fields.get("content-type", b""))
    part.kind = part.kind if "/" in part.kind else default
    part.disposition, more, _ = parameters(part.fields.get("content-disposition", b""))
    part.name = more.get("filename") or part.params.get("name") or ""
    if twice or "content-type twice" in part.fields:
        reasons.add("ambiguous")
    return part


def _header(data, start, end, reasons):
    """The fields of the header at data[start:end], the first of each name, and where the body begins."""
    fields, name, value, size, at, over = {}, None, [], 0, start, True
    for _ in range(MAX_HEADER_LINES):
        stop = data.find(b"\n", at, end)
        stop = stop if stop >= 0 else end
        if stop == at or at >= end:
            over = False
            break
        if stop - start > MAX_HEADER_BYTES:
            break
        folded = data[at] in b" \t" and name
        found = None if folded else FIELD.match(data, at, stop)
        if found:
            _keep(fields, name, value)
            name, value, size = found.group(1).decode().lower(), [data[found.end():min(stop, found.end() + MAX_VALUE_BYTES)]], 0
        elif folded:
            if size < MAX_VALUE_BYTES:
                value.append(data[at:min(stop, at + MAX_VALUE_BYTES)])
        elif not data.startswith((b"From ", b">From "), at):
            over = False  # not a field: the body, without the empty line before it
            break
        size += stop - at
        at = stop + 1
    _keep(fields, name, value)
    if over and at < end:
        reasons.add("header")
        empty = data.find(b"\n\n", max(start, at - 1), end)
        return fields, empty + 2 if empty >= 0 else end
    return fields, min(end, at + 1 if data[at:at + 1] == b"\n" else at)


def _keep(fields, name, value):
    if name == "content-type" and name in fields:
        fields["content-type twice"] = b""
    if name and name not in fields:
        fields[name] = b"".join(value)[:MAX_VALUE_BYTES].strip()


def parameters(value):
    """("text/plain", {"charset": ...}, whether a boundary is there twice) of the value of a Content-* field."""
    text = re.sub("[ \t\r\n\0]+", " ", value[:MAX_VALUE_BYTES].decode("latin-1")).strip(" ")
    text = re.sub(" +", " ", QUOTED_OR_COMMENT.sub(lambda m: m.group() if m.group()[0] == '"' else " ", text))
    kind = re.match(r"[^;=\"]*(?=$|[; ])", text.replace(" /", "/").replace("/ ", "/").strip())
    kind = kind.group().strip().lower().split(" ")[0] if kind else ""
    sections, twice = {}, False
    for found in islice(PARAMETER.finditer(text), MAX_PARAMETERS):
        name, quoted, plain = found.groups(default="")
        found = SECTION.fullmatch(name.lower())
        if not found:
            continue
        key, number, extended = found.group(1), int(found.group(2) or 0), bool(found.group(3))
        twice |= key == "boundary" and (number, extended) in [s[:2] for s in sections.get(key, ())]
        raw = re.sub(r"\\(.)", r"\1", quoted) if quoted or not plain else plain.strip()
        if not any(s[0] == number for s in sections.get(key, ())) and len(sections.get(key, ())) < 20:
            sections.setdefault(key, []).append((number, extended, raw))
    params = {key: _joined(sorted(parts)) for key, parts in sections.items()}
    for key in ("charset", "boundary"):
        if key in params and f'{key}="' not in text.lower().replace(" ", ""):
            params[key] = (params[key].split() or [""])[0]
    return kind, params, twice


def _joined(parts):
    """The value of sections of RFC 2231: (number, extended, text), of which the first may name a character set."""
    if not any(extended for _, extended, _ in parts):
        return "".join(text for _, _, text in parts)
    charset, data = "", b""
    for i, (_, extended, text) in enumerate(parts):
        raw = text.encode("latin-1")
        if extended and i == 0 and text.count("'") >= 2:
            charset, _, raw = text.split("'", 2)
            raw = raw.encode("latin-1")
        data += re.sub(rb"%([0-9A-Fa-f]{2})", lambda m: binascii.unhexlify(m.group(1)), raw) if extended else raw
    return charsets.decode(data, charset)[0]


def _extents(part, n_max, false, reasons):
    """What is directly within a multipart or message: (the bytes it is in, extents (start, end), at most n_max of them)."""
    data = part.data
    if n_max <= 0:
        reasons.add("parts")
        return data, []
    if _is_message(part):
        if _encoding(part) in DECODER:  # the standard forbids it, senders do it
            data, _ = content(part, MAX_MESSAGE_BYTES, reasons)
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
            return data, [(0, len(data))]
        return data, [(part.start, part.end)]
    boundary = part.params.get("boundary", "").encode("latin-1", "replace").rstrip(b" ")
    extents = _cut(data, part, b"--" + boundary, n_max, false, reasons) if boundary else []
    if not extents:
        reasons.add("boundary")
        like = DELIMITER_LIKE.search(data, part.start, min(part.end, part.start + GUESS_BYTES))
        if like:
            extents = _cut(data, part, b"--" + like.group(1).rstrip(), n_max, false, reasons)
    return data, extents


def _cut(data, part, delimiter, n_max, false, reasons):
    """Cut a multipart's body at the lines that are `delimiter`; RFC 2046, section 5.1.1."""
    def next_line(begin):
        found = data.find(b"\n" + delimiter, begin, part.end)
        return found + 1 if found >= 0 else -1

    extents, begin = [], None
    at = part.start if data.startswith(delimiter, part.start, part.end) else next_line(part.start)
    while at >= 0:
        stop = data.find(b"\n", at, part.end)
        stop = stop if stop >= 0 else part.end
        rest = data[at + len(delimiter):min(stop, at + len(delimiter) + 1000)].strip(b" \t")
        if rest in (b"", b"--"):
            if begin is not None:
                extents.append((begin, max(begin, at - 1)))
            if rest:
                return extents
            if len(extents) == n_max:
                reasons.add("parts")
                return extents
            begin = min(stop + 1, part.end)
        else:
            false[0] -= 1
            if false[0] < 0:
                reasons.add("boundary")
                break
        at = next_line(stop)
    return extents if begin is None else [*extents, (begin, part.end)]


def _encoding(part):
    return part.fields.get("content-transfer-encoding", b"").decode("latin-1").split(";")[0].strip(" \t\"'").lower()


def content(part, limit, reasons):
    """(bytes of the part's body with its transfer encoding taken off, at most `limit`; whether there is more)."""
    encoding = _encoding(part)
    decoder, factor = DECODER.get(encoding, (bytes, 1))
    if encoding not in DECODER and encoding not in ("", "7bit", "8bit", "binary", "7-bit", "8-bit"):
        reasons.add("encoding")
    n_in = factor * limit + 1
    out = decoder(part.data[part.start:min(part.end, part.start + n_in)])
    return out[:limit], len(out) > limit or part.end - part.start > n_in


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


# Transfer encoding: its decoder, and bytes read for a byte that is wanted.
DECODER = {"base64": (_base64, 2), "quoted-printable": (binascii.a2b_qp, 3), "x-uuencode": (_uudecode, 2),
           "uuencode": (_uudecode, 2), "x-uue": (_uudecode, 2)}


def header_text(value, reasons):
    """The characters of a field's value (bytes): encoded words of RFC 2047 decoded, also split within a character."""
    text = charsets.decode(value[:MAX_VALUE_BYTES], "")[0].replace("\n", " ")
    words, out, at = [], [], 0  # words: those of one character set that stand side by side: (charset, bytes)

    def flush():
        if words:
            decoded, known = charsets.decode(b"".join(data for _, data in words), words[0][0])
            out.append(decoded)
            if not known:
                reasons.add("charset")
            words.clear()

    text = BETWEEN_WORDS.sub(r"\1", text)
    for found in ENCODED_WORD.finditer(text):
        charset, how, raw = found.groups()
        charset = charset.partition("*")[0].lower()  # RFC 2231 puts a language behind it
        raw = raw.encode("latin-1", "ignore")
        if how in "bB":
            raw = _base64(raw)
        else:
            raw = binascii.a2b_qp(b"".join(raw.split(b"\t")), header=True)
        if found.start() > at or (words and words[0][0] != charset):
            flush()
            out.append(text[at:found.start()])
        words.append((charset, raw))
        at = found.end()
    flush()
    return "".join(out) + text[at:]
