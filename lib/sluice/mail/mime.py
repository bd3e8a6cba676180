"""Parse a message to a tree of parts, with the standard library's `email` under limits.

`email.feedparser` finds header, parts and parameters. Alone it is not safe for
hostile messages: it recurses, does not limit the number of parts, and decodes with any codec that a
message names. So its
parts are of class Part, which stops it, and bytes become characters by charsets.decode alone. It
reads the bytes as latin-1, so that each character is a byte.

Content beyond a limit, or malformed, is left as it is, and a word is added to `reasons`:

    lines       more than MAX_LINES lines: the rest is not read
    header      more than MAX_HEADER_LINES lines or MAX_HEADER_BYTES bytes of header fields: of the
                rest only those of KEPT_FIELDS count
    parts       more than MAX_PARTS parts: the rest is passed over
    depth       multiparts and messages within each other beyond MAX_DEPTH: those inside are shown
                as they are
    boundary    a multipart without the boundary it names: cut at what looks like one, or shown as
                it is
    ambiguous   two Content-Type fields or two boundaries, which readers understand differently; the
                first is used. Or parameters that contradict each other, so that none of the field's
                is used
    encoding    a transfer encoding that is not known: taken as none. Or base64 that goes on behind
                its padding as readers understand it differently. Or an encoded word in base64 that
                is cut
    charset     a character set that is not known: see charsets.decode
"""

import re
from email.feedparser import FeedParser
from email.message import Message

from . import charsets, transfer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# 15 MB of base64; the parser asks of every line whether it ends one of the parts it is in
MAX_LINES = 200000
MAX_LINES_AGAIN = 50000  # of what has to be parsed once more
MAX_HEADER_LINES = 1000
MAX_HEADER_BYTES = 1 << 16
MAX_VALUE = 2048  # characters of one field; what follows is not read
MAX_BOUNDARY = 200  # RFC 2046 allows 70
MAX_PARTS = 100
MAX_DEPTH = 20
MAX_MESSAGE_BYTES = 1 << 20  # of a message within a message whose encoding has to be taken off
GUESS = 1 << 16  # characters in which a boundary is looked for that no parameter names
CHUNK = 1 << 20  # bytes given to the parser at once: it holds four times as many

MAIL_FIELDS = frozenset(
    "from to cc subject date received return-path message-id mime-version content-type reply-to"
    " sender delivered-to content-transfer-encoding dkim-signature in-reply-to references"
    " x-mailer".split()
)
BINARY = "application/octet-stream"
SIGNED = frozenset(("application/pkcs7-mime", "application/x-pkcs7-mime"))
# wherever they stand: they say what a reader sees
KEPT_FIELDS = MAIL_FIELDS | {"content-disposition"}


class _Full(Exception):
    """The parser has to stop."""


class Part(Message):
    """One part: `kind` ("text/plain", lower case), `fields` {name: value}, `params` of its type,
    `disposition`, `name`, `children`.
    """

    depth = 0
    fixed_kind = None

    def __init__(self, tree: "Any", **kwargs: "Any") -> None:
        super().__init__(**kwargs)
        self.tree, self.fields, self.left_lines, self.left_bytes = (
            tree,
            {},
            MAX_HEADER_LINES,
            MAX_HEADER_BYTES,
        )

    # What the parser calls.

    def set_raw(self, name: str, value: "Any") -> None:
        self.left_lines -= 1 + value.count("\n")
        self.left_bytes -= len(name) + len(value)
        name = name.lower()
        if self.left_lines < 0 or self.left_bytes < 0:
            self.tree.reasons.add("header")
            if name not in KEPT_FIELDS:
                return
        if name not in self.fields:
            value = value.replace("\r", "").replace("\n", "")[:MAX_VALUE].strip(" \t")
            if name == "content-type" and value.startswith('"'):
                value = _unquoted(value)
            self.fields[name] = value
            super().set_raw(name, value)
        elif name == "content-type":
            self.tree.reasons.add("ambiguous")

    def attach(self, payload: "Any") -> None:
        self.tree.n_parts += 1
        if self.tree.n_parts > MAX_PARTS:
            self.tree.n_parts = MAX_PARTS
            self.tree.reasons.add("parts")
            raise _Full
        payload.depth = self.depth + 1
        super().attach(payload)

    def get_content_type(self) -> str:
        if self.depth < MAX_DEPTH or not self.kind.startswith(("multipart/", "message/")):
            return self.kind
        self.tree.reasons.add("depth")
        return "text/plain"

    def get_content_maintype(self) -> str:
        return self.get_content_type().partition("/")[0]

    def get_boundary(self, failobj: "Any" = None) -> "Any":
        boundary = self.params.get("boundary", "").rstrip()
        return boundary if 0 < len(boundary) <= MAX_BOUNDARY else failobj

    # What has been parsed.

    @property
    def kind(self) -> str:
        if self.fixed_kind is None:
            value = (
                _word(self.fields["content-type"])
                if "content-type" in self.fields
                else self.get_default_type()
            )
            kind = "/".join(word.strip() for word in value.split("/")).split()
            self.fixed_kind = kind[0] if kind and value.count("/") == 1 else "text/plain"
        return self.fixed_kind

    @property
    def params(self) -> dict[str, str]:
        return self._parameters("content-type")[1]

    @property
    def disposition(self) -> str:
        return self._parameters("content-disposition")[0]

    @property
    def name(self) -> str:
        return self._parameters("content-disposition")[1].get("filename") or self.params.get(
            "name", ""
        )

    @property
    def children(self) -> "list[Any]":
        payload = self.get_payload()
        return payload if isinstance(payload, list) else []

    @property
    def body(self) -> str:
        """The body as it is written, a character for each byte; "" of what has children."""
        payload = self.get_payload()
        return payload if isinstance(payload, str) else ""

    @property
    def encoding(self) -> str:
        return _word(self.fields.get("content-transfer-encoding", "")).strip(" \t\"'")

    @property
    def charset(self) -> str:
        """The character set that the part names, or else the first part within that names one."""
        work: list[Part] = [self]
        while work:
            part = work.pop()
            found: str = part.params.get("charset", "")
            if found:
                return found
            work += reversed(part.children)
        return ""

    def is_message(self) -> bool:
        """Whether it is a message that is shown, rather than a file."""
        return self.kind in ("message/rfc822", "message/global") and (
            self.disposition != "attachment" or self.tree.opens_attached
        )

    def is_signed(self) -> bool:
        """Whether it is an S/MIME signature around its message, which is its child then."""
        return self.kind in SIGNED or self.kind == BINARY and self.name.lower().endswith(".p7m")

    def _parameters(self, field: str) -> tuple[str, dict[str, str]]:
        """(the value, {name: parameter}) of a field, once."""
        found = self.__dict__.get(field)
        if found is None:
            found = self.__dict__[field] = self._read_parameters(field)
        return found

    def _read_parameters(self, field: str) -> tuple[str, dict[str, str]]:
        if field not in self.fields:
            return "", {}
        try:
            pairs = self.get_params([], header=field)
        except (TypeError, ValueError, AttributeError):  # of a=1; a*0=2 and the like
            pairs = []
            self.tree.reasons.add("ambiguous")
        params = {}
        for name, value in pairs[1:]:
            if name.lower() == "boundary" and "boundary" in params:
                self.tree.reasons.add("ambiguous")
            params.setdefault(name.lower(), _plain(value))
        if "charset" in params:
            params["charset"] = _without_comments(params["charset"]).strip()
        return _word(self.fields[field]), params


def _word(value: str) -> str:
    """What a field says before its parameters, in lower case."""
    return _without_comments(value).partition(";")[0].strip(" \t\"'").lower()


def _unquoted(value: str) -> str:
    """A field's value without the quotes that are around its type, or around all of it."""
    quoted, _, rest = value[1:].partition('"')
    return quoted + rest


def _without_comments(value: str) -> str:
    """A field's value without comments, which nest, and end with it if not before (RFC 5322,
    3.2.2).
    """
    out, depth = [], 0
    for piece in re.split(r"(\\.|[()])", value):
        if piece == "(":
            depth += 1
        elif piece == ")" and depth:
            depth -= 1
            piece = " "
        if not depth:
            out.append(piece)
    return "".join(out)


def _plain(value: "Any") -> "Any":
    """A parameter's value as str: of RFC 2231 it is (character set, language, bytes as latin-1)."""
    if isinstance(value, tuple):
        return charsets.decode(value[2].encode("latin-1", "replace"), value[0] or "")[0]
    return value


class _Tree:
    """What is counted while a message is parsed."""

    def __init__(self, opens_attached: bool = False) -> None:
        self.reasons, self.n_parts, self.left_lines = set(), 1, MAX_LINES
        self.opens_attached = opens_attached

    def feed(self, data: bytes, depth: int) -> "Part":
        """The Part in `data` (bytes), which lies at this depth."""
        made = []

        def factory(policy: "Any") -> "Part":
            part = Part(self, policy=policy)
            part.depth = part.depth if made else depth
            made.append(part)
            return part

        data = self._first_lines(data)
        parser = FeedParser(factory)  # type: ignore[arg-type]
        made.clear()  # it tries the factory first
        try:
            for at in range(0, len(data) or 1, CHUNK):
                parser.feed(data[at : at + CHUNK].decode("latin-1"))
            parser.close()
        except _Full:
            pass
        return made[0]

    def _first_lines(self, data: bytes) -> bytes:
        n = data.count(b"\n")
        if n > self.left_lines:
            self.reasons.add("lines")
            data = data[: len(data) - len(data.split(b"\n", self.left_lines)[-1])]
        self.left_lines = max(0, self.left_lines - n)
        return data


def parse(data: bytes, opens_attached: bool = False) -> "tuple[Part, int, set[str], bool]":
    """(root Part, number of parts, set of reasons, whether a header was there) of a message: bytes
    with LF line ends.

    opens_attached: messages that are attached are parsed, too.

    What is found out when a part is looked at, of its parameters, comes into the set then.
    """
    tree, is_mbox = _Tree(opens_attached), False
    data = data.removeprefix(b"\xef\xbb\xbf")
    # such a line alone is a text
    if data.startswith((b"From ", b">From ")) and data.partition(b"\n")[2].strip():
        data, is_mbox = data.partition(b"\n")[2], True
    root = tree.feed(_without_spaces_before_colons(data), 0)
    has_header = is_mbox or not MAIL_FIELDS.isdisjoint(root.fields)
    if not has_header:
        root = Part(tree)
        root.set_payload(data.decode("latin-1"))
    tree.left_lines = MAX_LINES_AGAIN
    work = [root]
    while work:
        part = work.pop()
        _look_again(tree, part)
        work += part.children
    return root, tree.n_parts, tree.reasons, has_header


def _without_spaces_before_colons(data: bytes) -> bytes:
    """The message with `Subject :` of RFC 822 as `Subject:`, where for the parser the header would
    end.
    """
    end = data.find(b"\n\n", 0, MAX_HEADER_BYTES)
    head = data[: end if end >= 0 else MAX_HEADER_BYTES]
    return (
        re.sub(rb"^([!-9;-~]{1,76})[ \t]+:", rb"\1:", head, flags=re.M) + data[len(head) :]
        if b" :" in head or b"\t:" in head
        else data
    )


def _look_again(tree: "_Tree", part: "Part") -> None:
    """Parse what the parser could not: a multipart with an unknown boundary, a message in base64,
    one in an S/MIME signature, one that is called a file.
    """
    if part.depth >= MAX_DEPTH:
        return
    if part.kind.startswith("multipart/") and isinstance(part.get_payload(), str):
        tree.reasons.add("boundary")
        like = re.search(r"^--([^\n]{1,200})\n(?=content-)", part.body[:GUESS], re.M | re.I)
        if like:
            again = _wrapped(
                tree,
                part,
                b'Content-Type: %s; boundary="%s"'
                % (part.kind.encode("latin-1"), _quoted(like.group(1).rstrip())),
            )
            part.set_payload(again.children or part.body)
    elif (
        part.is_message()
        and part.children
        and not part.children[0].fields
        and part.encoding == "base64"
    ):
        # the standard forbids it, senders do it
        _put_within(tree, part, part.children[0].body, "base64")
    elif part.is_signed() and part.body:
        _put_within(tree, part, part.body, part.encoding, is_signed=True)
    elif (
        tree.opens_attached
        and part.body
        and part.kind in (BINARY, "application/eml", "application/x-eml")
        and part.name.lower().endswith(".eml")
    ):
        _put_within(tree, part, part.body, part.encoding)
        part.fixed_kind = "message/rfc822" if part.children else part.kind


def _put_within(
    tree: "_Tree", part: "Part", body: str, encoding: str, is_signed: bool = False
) -> None:
    """Parse the message that a body holds, as the only child of its part."""
    data: bytes | None
    data, _ = transfer.decode(body, encoding, MAX_MESSAGE_BYTES, tree.reasons)
    if is_signed:
        from . import smime

        data = smime.signed_content(data)
        if data is None:
            return
    if not part.children:
        if tree.n_parts >= MAX_PARTS:
            tree.reasons.add("parts")
            return
        tree.n_parts += 1
    part.set_payload([tree.feed(with_newlines(data), part.depth + 1)])


def with_newlines(data: bytes) -> bytes:
    """Bytes with LF for each line end: CR LF, CR CR LF, as programs make it that add a CR to what
    has one, and CR.
    """
    return data.replace(b"\r\r\n", b"\n").replace(b"\r\n", b"\n").replace(b"\r", b"\n")


def _quoted(boundary: str) -> bytes:
    return boundary.replace("\\", "\\\\").replace('"', '\\"').encode("latin-1")


def _wrapped(tree: "_Tree", part: "Part", header: bytes) -> "Part":
    return tree.feed(header + b"\n\n" + part.body.encode("latin-1", "replace"), part.depth)


def content(part: "Part", limit: int, reasons: set[str]) -> tuple[bytes, bool]:
    """(bytes of the part's body with its transfer encoding taken off, at most `limit`; whether
    there is more).
    """
    if part.encoding not in transfer.DECODER and part.encoding not in transfer.NONE:
        reasons.add("encoding")
    return transfer.decode(part.body, part.encoding, limit, reasons)
