"""Convert a message, or any text, to the text that its reader sees. `mail-text`, training and
`classify` use read().

The text:

    From: Ann Example <ann@example.org>
    Subject: Minutes of Monday
    Links: example.org, www.example.com
    Files: minutes.pdf

    The body, in the normal form of normalize.py.

Empty lines of the head are omitted; an empty line ends the head, and without a head there is none.
From and Subject are at most MAX_LINE characters, encoded words decoded. Links: the hosts of up to
MAX_LINKS http links, each once, in order (of HTML those of href, action and a refresh, whatever the
text of the link says; relative ones have the host of <base href>). Files: up to MAX_FILES
attachments by name, or by type where they have none, and the names of those in a winmail.dat; they
are not opened.

The body is what a client shows. Of multipart/alternative the last part that is HTML or plain text
and not blank, if it is a picture alone, too; of multipart/related the part that it begins with, or
that `start` names, the others are files; all parts of any other multipart one after the other; a
message within a message with its From and Subject, and the message in an S/MIME signature. Text
that is sent as an attachment is a file, unless it is the whole message; so is a message, unless
read() is told to show it. HTML is read by markup.py, without what its reader cannot see; that is
counted. A part called plain that begins as HTML is read as HTML. A calendar part is the summary,
place and description of what it asks for. What has no mail header at all is a body from its first
byte. A first line `From ` (mbox) is passed over.

Whatever the bytes are, the result is a text: valid Unicode, no control character but newline.
`reasons` has a word for each problem: those of mime.py, and

    bytes      more than MAX_BYTES bytes: the rest is not read
    text       more than MAX_TEXT_BYTES of a part or MAX_ALL_BYTES of all parts: the rest is not
               read
    html       more than markup.MAX_TAGS tags, or sheets.MAX_CHARACTERS of style sheets: the rest is
               not read; or the page ends within a tag, comment or script
    empty      there is no text in it
    internal   a bug in this program: the bytes are shown as they are
"""

from . import charsets, links, mime, normalize, transfer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

MAX_BYTES = 16 << 20
MAX_TEXT_BYTES = 512 << 10  # of a part, transfer encoding taken off
MAX_ALL_BYTES = 1024 << 10  # of all parts together
MAX_LINE = 300  # characters
MAX_LINKS = MAX_FILES = 20
MAX_TAGS = 30000  # of all HTML parts together; of one markup.MAX_TAGS
NOT_SHOWN = frozenset(
    f"text/{kind}"
    for kind in (
        "vcard x-vcard directory css csv javascript rtf xml x-amp-html rfc822-headers".split()
    )
)
SECTION = (
    "[ \t\n]*<(?:!doctype html|html|head|body|meta|table|div|center|font|p|a|b|br|img|style)["
    " \t\n>]"
)
TNEF = frozenset(("application/ms-tnef", "application/vnd.ms-tnef"))
META_CHARSET = rb"""charset\s{0,9}=\s{0,9}["']?([A-Za-z0-9_.:-]{1,40})"""


class Mail:
    """sender, subject, body: str. links, files: lists of str. reasons: list of words, sorted.
    n_parts; n_html: parts of HTML; n_hidden: characters that HTML hides; n_comment: HTML comments;
    n_invisible: characters that show nothing.
    """

    def __init__(self) -> None:
        self.sender = self.subject = self.body = ""
        self.links, self.files, self.reasons = [], [], []
        self.n_parts = self.n_html = self.n_hidden = self.n_comment = self.n_invisible = 0

    def head(self, form: "Callable[[str], str]" = str) -> str:
        """The lines of the head, without the empty line; form: what is done with each value."""
        lines = (
            ("From", self.sender),
            ("Subject", self.subject),
            ("Links", ", ".join(self.links)),
            ("Files", ", ".join(self.files)),
        )
        return "".join(f"{name}: {form(value)}\n" for name, value in lines if value)

    def text(self, max_bytes: int | None = None, head: bool = True, fold: bool = False) -> bytes:
        """Head and body as UTF-8, a newline at the end of what is not empty, cut between characters
        to max_bytes.

        fold: each value of the head, and the body, as normalize.fold gives it, and no newline after
        the body.
        """
        text, body = (
            self.head(normalize.fold if fold else str) if head else "",
            normalize.fold(self.body) if fold else self.body,
        )
        text = text + "\n" + body if text and body else text + body
        data = (text + "\n" if text and not text.endswith("\n") and not fold else text).encode()
        return (
            data
            if max_bytes is None or len(data) <= max_bytes
            else data[:max_bytes].decode("utf-8", "ignore").encode()
        )


def read(data: bytes, attached: bool = False) -> "Mail":
    """The Mail in `data` (bytes): a message, or a text without a header.

    attached: messages that are sent as attachments are part of the body. Raises only MemoryError,
    and ImportError for HTML if lxml cannot be loaded: its hidden text must not be shown or
    classified.
    """
    mail, reasons = Mail(), set()
    if len(data) > MAX_BYTES:
        data = data[:MAX_BYTES]
        reasons.add("bytes")
    data = mime.with_newlines(data)
    try:
        root, mail.n_parts, found, has_header = mime.parse(data, attached)
        found |= reasons
        reasons = found  # parts put more into it while they are looked at
        view = _View(reasons, has_header)
        view.charset = root.charset
        blocks = view.blocks(root)
        if has_header:
            mail.sender, mail.subject = (
                _field(mail, root, name, reasons) for name in ("from", "subject")
            )
    except (MemoryError, ImportError):
        raise
    except Exception:  # a filter of hostile mail must answer; the tests fail on it
        reasons.add("internal")
        view, blocks = _View(reasons, False), [data[:MAX_TEXT_BYTES].decode("cp1252", "replace")]
    mail.body, n_invisible = normalize.normal("\n\n".join(block for block in blocks if block))
    mail.n_invisible += n_invisible
    mail.n_html, mail.n_hidden, mail.n_comment = view.n_html, view.n_hidden, view.n_comment
    mail.links = _first(view.links, MAX_LINKS)
    mail.files = _first(view.files, MAX_FILES)
    if not mail.body:
        reasons.add("empty")
    mail.reasons = sorted(reasons)
    return mail


def _field(mail: "Mail", part: "mime.Part", name: str, reasons: set[str]) -> str:
    """The text of a field as one line."""
    text, n_invisible = normalize.line(
        transfer.header_text(part.fields.get(name, ""), reasons, part.charset), MAX_LINE
    )
    mail.n_invisible += n_invisible
    return text


def _first(names: list[str], n: int) -> list[str]:
    """The first n different ones of some strings, each fit for a list in one line."""
    lines = dict.fromkeys(normalize.line(name.replace(",", " "), 100)[0] for name in names[:1000])
    return [line for line in lines if line][:n]


def _looks_like_html(text: str) -> bool:
    """Whether a text that is called plain begins as HTML and has an end tag."""
    import re

    return "</" in text and bool(re.match(SECTION, text[:200], re.I))


class _View:
    """What has been shown of a message: text comes from blocks(), everything else is added up
    here. n_drawn: pages of HTML that show something else than text.
    """

    def __init__(self, reasons: set[str], has_header: bool) -> None:
        self.reasons, self.has_header, self.left = reasons, has_header, MAX_ALL_BYTES
        self.left_tags = MAX_TAGS
        self.links, self.files = [], []
        self.n_html = self.n_hidden = self.n_comment = self.n_drawn = 0
        self.charset = ""

    def blocks(self, part: "mime.Part") -> list[str]:
        """The blocks of text of a part, a list of str. The depth of parts is at most
        mime.MAX_DEPTH, and so is this recursion.
        """
        children = part.children
        if part.kind == "multipart/alternative" and children:
            return self._alternative(children)
        if part.kind == "multipart/related" and children:
            return self._related(part)
        if part.kind.startswith("multipart/") and children:
            return [block for child in children for block in self.blocks(child)]
        if children and part.is_message():
            inner = children[0]
            if part.disposition == "attachment":
                self.files.append(self._name(part))
            fields = [
                (
                    name,
                    transfer.header_text(
                        inner.fields.get(name.lower(), ""), self.reasons, inner.charset
                    ),
                )
                for name in ("From", "Subject")
            ]
            return [
                "".join(f"{name}: {value}\n" for name, value in fields if value),
                *self.blocks(inner),
            ]
        if children and part.is_signed():
            return self.blocks(children[0])
        is_text = part.kind.startswith(("text/", "multipart/")) and part.kind not in NOT_SHOWN
        # one that lies too deep to be parsed
        is_text = is_text or part.is_message() and bool(part.body)
        if is_text and (part.depth == 0 or part.disposition != "attachment"):
            return [self._shown(part)]
        self._add_file(part)
        return []

    def _add_file(self, part: "mime.Part") -> None:
        """Add the names of a part that is not shown, and of those within."""
        if part.kind.startswith("multipart/") and part.children:
            for child in part.children:
                self._add_file(child)
        elif part.body or part.children or part.name:
            self.files.append(self._name(part))
            if part.kind in TNEF or self.files[-1].lower() == "winmail.dat":
                from . import tnef

                self.files += tnef.names(mime.content(part, MAX_TEXT_BYTES, self.reasons)[0])

    def _related(self, part: "mime.Part") -> list[str]:
        """The blocks of the part that a multipart/related shows (RFC 2387); others are files."""
        children = part.children
        shown = [child for child in children if child.kind.startswith(("text/", "multipart/"))]
        start = part.params.get("start", "").strip(" \t<>")
        named = [
            child
            for child in children
            if start and child.fields.get("content-id", "").strip(" \t<>") == start
        ]
        first = children[0]
        # a picture that comes first is not what all is about
        root = named[0] if named else first if first in shown or not shown else shown[0]
        blocks = self.blocks(root)
        for child in children:
            if child is not root:
                self._add_file(child)
        return blocks

    def _alternative(self, children: "list[mime.Part]") -> list[str]:
        """The blocks of the child that a client chooses; nothing of the others is counted.

        It is the last that is not blank. What a calendar says is shown next to any.
        """

        def rank(child: "mime.Part") -> bool:
            return child.kind.startswith("multipart/") or child.kind in ("text/html", "text/plain")

        first: Any = None
        outer = self._counts()
        for child in sorted(reversed(children), key=rank, reverse=True):  # stable: the last first
            self._set_counts(([], [], 0, 0, 0, 0))
            blocks = self.blocks(child)
            chosen = any(not block.isspace() for block in blocks if block)
            chosen = chosen or rank(child) and bool(self.n_drawn or self.n_hidden or self.links)
            first = first if first and not chosen else self._counts()
            if chosen:
                break
        # if none has a text, the pictures and links of the best
        self._set_counts(a + b for a, b in zip(outer, first))
        return [*blocks, *self._invitation(children, child, blocks)] if chosen else []

    def _invitation(
        self, children: "list[mime.Part]", chosen: "mime.Part", blocks: list[str]
    ) -> list[str]:
        """The lines of the calendars among alternatives that the chosen one does not say."""
        out, said = [], " ".join(" ".join(blocks).split())
        for child in children:
            if child.kind == "text/calendar" and child is not chosen:
                lines = self._shown(child).split("\n")
                out.append("\n".join(line for line in lines if " ".join(line.split()) not in said))
        return out

    def _counts(self) -> "tuple[Any, ...]":
        return self.links, self.files, self.n_html, self.n_hidden, self.n_comment, self.n_drawn

    def _set_counts(self, counts: "Iterable[Any]") -> None:
        (
            self.links,
            self.files,
            self.n_html,
            self.n_hidden,
            self.n_comment,
            self.n_drawn,
        ) = counts

    def _shown(self, part: "mime.Part") -> str:
        limit = min(MAX_TEXT_BYTES, self.left)
        data, more = mime.content(part, limit, self.reasons)
        if more:
            self.reasons.add("text")
        self.left -= len(data)
        kind, name = part.kind, part.params.get("charset", "")
        is_html = kind == "text/html"
        if is_html and not name and not data.isascii():
            import re

            found = re.search(META_CHARSET, data[:2000], re.I)
            name = found.group(1).decode() if found else ""
            # ASCII could be read up to there
            name = "utf-8" if (charsets.codec(name) or "").startswith("utf-16") else name
        text, known = charsets.decode(data, name, cut=more)
        if not known:
            self.reasons.add("charset")
        if kind in ("text/enriched", "text/richtext"):
            from . import enriched

            is_html, text = True, enriched.to_html(text, kind == "text/richtext")
        if not is_html and not (self.has_header and _looks_like_html(text)):
            return self._plain(part, text)
        from . import markup

        text, page = markup.read(text, self.left_tags)
        self.left_tags = max(0, self.left_tags - page.n_tags)
        if page.n_more or (page.is_cut and not more):
            self.reasons.add("html")
        self.links += links.hosts(page.links, page.base)
        self.n_html += 1
        self.n_hidden += page.n_hidden
        self.n_comment += page.n_comment
        self.n_drawn += not page.is_blank
        return text

    def _plain(self, part: "mime.Part", text: str) -> str:
        if part.kind == "text/calendar":
            from . import ical

            text = ical.text(text)
        elif part.params.get("format", "").lower() == "flowed":
            from . import flowed

            text = flowed.joined(text, part.params.get("delsp", "").lower() == "yes")
        self.links += links.hosts_in_text(text)
        return text

    def _name(self, part: "mime.Part") -> str:
        name = part.name
        if all(c <= "\xff" for c in name):  # else of RFC 2231: characters already
            name = transfer.header_text(name, self.reasons, self.charset)
        return name or part.kind
