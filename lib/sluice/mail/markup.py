"""Convert HTML to the text that a reader sees, and list the hosts of its links. lxml (libxml2)
parses the HTML.

It tells a target of tags and text; no tree is built, since its time would be the square of the
depth of the tags. libxml2 looks through all open elements at an end tag that fits none, so that
there are limits: MAX_TAGS and what the caller lets in.

Not text: comments, script, style, title and the like, and elements that cannot be seen: `hidden`,
display: none, visibility: hidden, font-size 0, boxes of no size, and text of its background's
colour (css.py). Their characters are counted. Style sheets are not applied; where one speaks of
backgrounds, only a background that is set by an attribute counts. A formatting element ends with
the block it is in, as libxml2 has it; browsers open it again in the next.

Blocks become newlines (one, or two around what stands apart), other white space one space.
Alternative texts of images are left out.
"""

import re

from . import css

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

MAX_TAGS = 30000  # `<` of one page; the busiest of 4,561 mails has 2,306
MAX_LINKS = 500
MAX_LINK = 2000  # characters of one
# Expressions are compiled when they are needed, since most of a short run is loading.
HOST_CHARACTERS = "[^/?#\\\\\\s<>\"']{1,255}"
# browsers need no slashes after http:
URL = r"[\x00-\x20]*(?:https?:[/\\]*|[/\\]{2,})(" + HOST_CHARACTERS + ")"
NOT_IN_URLS = dict.fromkeys(map(ord, "\t\n\r"))
URL_IN_TEXT = "https?://(" + HOST_CHARACTERS + ")"
# Tags that libxml2 takes otherwise than browsers, so that the colour of a font would be lost: it
# ends a font before <center>, but not before <div>, and at </body> and </html>, after which a
# browser goes on as if they were not there.
OTHERWISE = "<(/?center|/body|/html)(?=[ \t\r\n\f/>])"
INSTEAD = {"center": "<div", "/center": "</div", "/body": "<br", "/html": "</x"}
SECTION = (
    "[ \t\n]*<(?:!doctype html|html|head|body|meta|table|div|center|font|p|a|b|br|img|style)["
    " \t\n>]"
)

# Newlines before and after an element; 0 is a space.
NEWLINES = dict.fromkeys("td th".split(), 0)
NEWLINES.update(
    dict.fromkeys(
        "tr li dt dd div body html head center form address article section aside header footer"
        " main nav figure fieldset tbody thead tfoot caption option select textarea".split(),
        1,
    )
)
NEWLINES.update(
    dict.fromkeys(
        "p hr ul ol dl h1 h2 h3 h4 h5 h6 table pre blockquote dir menu listing".split(), 2
    )
)
NO_TEXT = frozenset("script style title iframe noembed noframes".split())
PRE = frozenset(("pre", "listing"))
WHITE = 0xFFFFFF
# (look as in css.apply, whether nothing of it is seen)
PAGE: "tuple[tuple[Any, ...], bool]" = ((0, WHITE, False, False, False), False)


class Page:
    """What has been read: text, links (as written), n_hidden characters, n_comment, is_cut: it ends
    within a tag, comment or script; n_tags, and whether there are n_more.
    """

    def __init__(self) -> None:
        self.out, self.links, self.looks, self.sheet = [], [], [PAGE], []
        self.n_hidden = self.n_comment = self.n_open_pre = self.n_open_silent = self.want = (
            self.n_tags
        ) = self.n_more = 0
        self.has_space = self.has_sheet = self.is_cut = False
        self.last = ""

    # What lxml calls.

    def start(self, tag: str, attributes: "Mapping[str, str]") -> None:
        self.last = tag
        look = self.looks[-1]
        self.looks.append(
            self._look(tag, attributes, look[0]) if attributes or tag == "template" else look
        )
        self._break(tag)
        if tag == "br":
            self.want = min(2, self.want + 1)
        elif tag in NO_TEXT:
            self.n_open_silent += 1
        elif tag in PRE:
            self.n_open_pre += 1

    def end(self, tag: str) -> None:
        if len(self.looks) > 1:
            self.looks.pop()
        self._break(tag)
        if tag in NO_TEXT:
            self.n_open_silent -= 1
            if self.sheet and "background" in "".join(self.sheet).lower():
                self._paint()
            self.sheet = []
        elif tag in PRE:
            self.n_open_pre -= 1

    def data(self, text: str) -> None:
        if self.n_open_silent:
            if self.last == "style":
                self.sheet.append(text)
        elif self.looks[-1][1]:
            self.n_hidden += sum(map(len, text.split()))
            self.has_space = self.has_space or text[:1].isspace() or text[-1:].isspace()
        elif self.n_open_pre and "\n" in text:
            for i, line in enumerate(text.split("\n")):
                if i:
                    self.want = min(2, self.want + 1)
                self._put(line)
        else:
            self._put(text)

    def comment(self, text: str) -> None:
        self.n_comment += 1

    def close(self) -> "Any":
        return self

    def _put(self, text: str) -> None:
        words = " ".join(text.split())
        if not words:
            self.has_space = self.has_space or bool(text)
            return
        if self.out and self.want:
            self.out.append("\n" * self.want)
        elif self.out and (self.has_space or text[0].isspace()):
            self.out.append(" ")
        self.out.append(words)
        self.want, self.has_space = 0, text[-1].isspace()

    def _break(self, tag: str) -> None:
        n = NEWLINES.get(tag)
        if n == 0:
            self.has_space = True
        elif n and n > self.want:
            self.want = n

    def _look(
        self, tag: str, attributes: "Mapping[str, str]", look: "tuple[Any, ...]"
    ) -> "tuple[tuple[Any, ...], bool]":
        get = attributes.get
        ink, paper, gone, veiled, tiny = look
        link = get("href") or get("action")
        if link and tag not in ("base", "link"):
            if len(self.links) < MAX_LINKS:
                self.links.append(link[:MAX_LINK].translate(NOT_IN_URLS))  # as browsers do
            if tag == "a":
                ink = 0x0000EE
        written = get("color") if tag == "font" else get("text") if tag == "body" else None
        if written:
            ink = css.color(written)
        if self.has_sheet and ("class" in attributes or "id" in attributes):
            paper = None
        written = get("bgcolor")
        if written:
            found = css.color(written)
            paper = paper if found == css.CLEAR else found
        if "background" in attributes:
            paper = None
        look = ink, paper, gone or "hidden" in attributes or tag == "template", veiled, tiny
        style = get("style")
        look = css.apply(style, look) if style else look
        return look, look[2] or look[3] or look[4] or css.near(look[0], look[1])

    def _paint(self) -> None:
        """A style sheet may have painted the page."""
        if not self.has_sheet:
            self.has_sheet = True
            looks: list[tuple[tuple[Any, ...], bool]] = [
                ((ink, None if paper == WHITE else paper, *rest), hidden)
                for (ink, paper, *rest), hidden in self.looks
            ]
            self.looks = [
                (look, look[2] or look[3] or look[4] or css.near(look[0], look[1]))
                for look, _ in looks
            ]


def looks_like(text: str) -> bool:
    """Whether a text that is called plain begins as HTML and has an end tag."""
    return "</" in text and bool(re.match(SECTION, text[:200], re.I))


def read(html: str, max_tags: int = MAX_TAGS) -> "tuple[str, Page]":
    """(text, Page) of a str."""
    from lxml import etree  # slow to load, and most plain mail needs it not

    page = Page()
    page.n_tags = html.count("<")
    page.n_more = max(0, page.n_tags - max_tags)
    if page.n_more:
        html = "<".join(html.split("<", max_tags + 1)[:-1])
    # a tag that is not seen if the page ends within a tag, comment or script
    end = f"end-{len(html)}"
    data = (
        re.sub(OTHERWISE, lambda m: INSTEAD[m.group(1).lower()], f"{html}<{end}>", flags=re.I)
        .replace("\0", "")
        .encode("utf-8", "replace")
    )
    etree.fromstring(data, etree.HTMLParser(target=page, encoding="utf-8"))
    page.is_cut = page.last != end
    return "".join(page.out), page


def hosts(urls: "Iterable[str]") -> list[str]:
    """The hosts of URLs, in lower case, without user and port; what is no http URL has none."""
    return [
        host
        for host in (_host(m.group(1)) for m in (re.match(URL, url, re.I) for url in urls) if m)
        if host
    ]


def hosts_in_text(text: str) -> list[str]:
    """The hosts of the http URLs in a plain text, in order."""
    return [
        host
        for host in map(_host, re.findall(URL_IN_TEXT, text, re.I) if "://" in text else ())
        if host
    ]


def _host(authority: str) -> str:
    host = authority.rpartition("@")[2].lower()
    return host.partition(":")[0].rstrip(".,;)") if not host.startswith("[") else host
