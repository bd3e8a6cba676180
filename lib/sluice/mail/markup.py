"""Convert HTML to the text that a reader sees, and list its links. lxml (libxml2) parses the HTML.

It tells a target of tags and text; no tree is built, since its time would be the square of the
depth of the tags. libxml2 looks through all open elements at an end tag that fits none, so that
there are limits: MAX_TAGS and what the caller lets in.

Not text: comments, script, style, title and the like, and elements that cannot be seen: `hidden`,
or by their style (css.py), which attributes and the page's own style sheets give (sheets.py): not
displayed, without size, off the screen, cut to nothing, in the colour of what is behind it. Their
characters are counted. A formatting element ends with the block it is in, as libxml2 has it;
browsers open it again in the next.

Blocks become newlines (one, or two around what stands apart), other white space one space. The
alternative text of an image is text, as readers see it who do not load images. What <bdo> and
styles turn round is in the order of the eye.
"""

import re

from . import css

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from . import sheets

MAX_TAGS = 30000  # `<` of one page; the busiest of 4,561 mails has 2,306
MAX_LINKS = 500
MAX_LINK = 2000  # characters of one
MAX_ALT = 2000  # characters of an alternative text
MIN_ALT_BOX = 5  # pixels; in a smaller image no text can be read
NOT_IN_URLS = dict.fromkeys(map(ord, "\t\n\r"))
REFRESH = r"[\s0-9.]{0,20}[;,\s]\s{0,20}(?:url\s{0,20}=\s{0,20})?[\"']?(.*)"
# Tags that libxml2 takes otherwise than browsers, so that the colour of a font would be lost: it
# ends a font before <center>, but not before <div>, and at </body> and </html>, after which a
# browser goes on as if they were not there.
OTHERWISE = "<(/?center|/body|/html)(?=[ \t\r\n\f/>])"
INSTEAD = {"center": "<div", "/center": "</div", "/body": "<br", "/html": "</x"}
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
RLO, PDF = "\u202e", "\u202c"
# elements that have the size of their text, whatever size they are given
INLINE = frozenset(
    "a abbr acronym b bdi bdo big cite code del dfn em font i ins kbd label mark q s samp small"
    " span strike strong sub sup tt u var".split()
)
# a page of nothing but these shows nothing
BLANK = frozenset(
    "html head body meta title style base link div p br span font b i u center table tr td tbody"
    " strong em small blockquote".split()
)
# what stands before a body, and what that is in
HEAD = frozenset("html head style meta title link base script noscript template".split())
ABOVE = (["html"], ["head"])
URLS = ("href", "action", "formaction", "xlink:href")


class Page:
    """What has been read: text, links (as written), base (URL), n_hidden characters, n_comment,
    is_cut: it ends within a tag, comment or script, or its style sheets are longer than is read;
    n_tags, and whether there are n_more; is_blank: it has no element that shows anything but text.

    sheets: a Sheets, or None. end_tag: a tag that is not in the page, but ends it.
    """

    def __init__(self, sheets: "Any" = None) -> None:
        self.out, self.links, self.looks = [], [], [(css.PAGE, False)]
        self.base = ""
        self.sheets = sheets
        self.n_hidden = self.n_comment = self.n_open_pre = self.n_open_silent = self.want = (
            self.n_tags
        ) = self.n_more = 0
        self.has_space = self.is_cut = self.is_flipped = self.has_flipped = False
        self.is_blank = True
        self.last = self.end_tag = ""

    # What lxml calls.

    def start(self, tag: str, attributes: "Mapping[str, str]") -> None:
        self.last = tag
        look = self.looks[-1]
        declared = self.sheets.enter(tag, attributes) if self.sheets else None
        if attributes or tag in ("template", "dialog") or declared and (declared[0] or declared[1]):
            look = self._look(tag, attributes, declared, look[0])
        self.looks.append(look)
        self.is_blank = self.is_blank and (tag in BLANK or tag == self.end_tag)
        self._break(tag)
        if tag == "br":
            self.want = min(2, self.want + 1)
        elif tag in NO_TEXT:
            self.n_open_silent += 1
        elif tag in PRE:
            self.n_open_pre += 1
        elif "alt" in attributes and not self.n_open_silent:
            self._alternative(attributes)

    def end(self, tag: str) -> None:
        if len(self.looks) > 1:
            self.looks.pop()
            if self.sheets:
                self.sheets.leave()
        self._break(tag)
        if tag in NO_TEXT:
            self.n_open_silent -= 1
        elif tag in PRE:
            self.n_open_pre -= 1

    def data(self, text: str) -> None:
        if self.n_open_silent:
            return
        if self.looks[-1][1]:
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
        is_flipped = self.looks[-1][0].flipped
        if self.is_flipped and (self.want or not is_flipped):
            self.out.append(PDF)
            self.is_flipped = False
        if self.out and self.want:
            self.out.append("\n" * self.want)
        elif self.out and (self.has_space or text[0].isspace()):
            self.out.append(" ")
        if is_flipped and not self.is_flipped:
            self.out.append(RLO)
            self.is_flipped = self.has_flipped = True
        self.out.append(words)
        self.want, self.has_space = 0, text[-1].isspace()

    def _alternative(self, attributes: "Mapping[str, str]") -> None:
        """Put the alternative text of an image, as a word of its own."""
        sides = [css.pixels(attributes.get(side) or "", 16) for side in ("width", "height")]
        text = attributes["alt"][:MAX_ALT]
        if self.looks[-1][1] or any(side is not None and side < MIN_ALT_BOX for side in sides):
            self.n_hidden += sum(map(len, text.split()))
        elif text.strip():
            self._put(f" {text} ")

    def _break(self, tag: str) -> None:
        n = NEWLINES.get(tag)
        if n == 0:
            self.has_space = True
        elif n and n > self.want:
            self.want = n

    def _look(
        self, tag: str, attributes: "Mapping[str, str]", declared: "Any", look: "css.Look"
    ) -> "tuple[css.Look, bool]":
        get = attributes.get
        ink, paper, gone, veiled, size, fill, rtl, flipped = look
        if attributes:
            self._add_links(tag, attributes)
        if tag == "a" and "href" in attributes:
            ink = 0x0000EE
        written = get("color") if tag == "font" else get("text") if tag == "body" else None
        if written:
            ink = css.color(written)
        written = get("bgcolor")
        if written:
            found = css.color(written)
            paper = paper if found == css.CLEAR else found
        if "background" in attributes:
            paper, self.is_blank = None, False
        direction = (get("dir") or "").strip().lower()
        rtl = direction == "rtl" if direction in ("rtl", "ltr") else rtl
        flipped = rtl if tag == "bdo" and direction else flipped
        gone = gone or "hidden" in attributes or tag == "template"
        gone = gone or tag == "dialog" and "open" not in attributes
        look = css.Look(ink, paper, gone, veiled, size, fill, rtl, flipped)
        style = get("style")
        inline = css.declarations(style[: css.MAX_STYLE]) if style else None
        if declared and (declared[0] or declared[1]):
            all_of = {**declared[0], **(inline[0] if inline else {}), **declared[1]}
            all_of.update(inline[1] if inline else {})
        elif inline:
            all_of = {**inline[0], **inline[1]} if inline[1] else inline[0]
        else:
            return look, css.is_hidden(look)
        if "url(" in all_of.get("background-image", ""):
            self.is_blank = False
        look = css.apply(all_of, look, tag in INLINE)
        return look, css.is_hidden(look)

    def _add_links(self, tag: str, attributes: "Mapping[str, str]") -> None:
        get = attributes.get
        if tag == "base":
            self.base = self.base or (get("href") or "")[:MAX_LINK].translate(NOT_IN_URLS)
        elif tag == "meta":
            if (get("http-equiv") or "").strip().lower() == "refresh":
                m = re.match(REFRESH, (get("content") or "")[:MAX_LINK], re.I | re.S)
                self._add_link(m.group(1) if m else "")
        elif tag != "link":
            for name in URLS:
                if name in attributes:
                    self._add_link(get(name) or "")

    def _add_link(self, link: str) -> None:
        if link and len(self.links) < MAX_LINKS:
            self.links.append(link[:MAX_LINK].translate(NOT_IN_URLS))  # as browsers do


class _Recording:
    """What lxml says of a page that has style sheets: they count for what is before them, too."""

    def __init__(self) -> None:
        self.events: list[tuple[str, Any, Any]] = []
        self.sheets: list[str] = []
        self.is_style = False
        self.open_tags: list[list[str]] = [[]]  # what ends with each open element
        self.has_body = False

    def start(self, tag: str, attributes: "Mapping[str, str]") -> None:
        self.events.append(("start", tag, attributes))
        self.is_style = tag == "style" and _is_sheet(attributes)

    def end(self, tag: str) -> None:
        self.events.append(("end", tag, None))
        self.is_style = False

    def data(self, text: str) -> None:
        self.events.append(("data", text, None))
        if self.is_style:
            self.sheets.append(text)

    def comment(self, text: str) -> None:
        self.events.append(("comment", text, None))

    def close(self) -> "Any":
        return self

    def replay(self, page: "Page") -> None:
        """Tell a page all of it, and that a body begins where the parser knows of none."""
        for what, a, b in self.events:
            if what == "start":
                if not self.has_body and a not in HEAD:
                    self._open_body(page, a)
                self.open_tags.append([a])
                page.start(a, b)
            elif what == "end":
                for tag in self.open_tags.pop() if len(self.open_tags) > 1 else (a,):
                    page.end(tag)
            elif what == "data":
                if not self.has_body and a.strip() and self.open_tags[-1][:1] in ([], *ABOVE):
                    self._open_body(page, "")
                page.data(a)
            else:
                page.comment(a)

    def _open_body(self, page: "Page", tag: str) -> None:
        self.has_body = True
        around = self.open_tags[-1]
        if tag == "body":
            return
        if around == ["head"]:
            page.end(around.pop())
        around.insert(0, "body")
        page.start("body", {})


def _is_sheet(attributes: "Mapping[str, str]") -> bool:
    """Whether a <style> counts on a screen."""
    from . import sheets

    media = (attributes.get("media") or "").strip().lower()
    kind = (attributes.get("type") or "").strip().lower()
    return kind in ("", "text/css") and (not media or sheets.is_shown_on(media))


def read(html: str, max_tags: int = MAX_TAGS) -> "tuple[str, Page]":
    """(text, Page) of a str."""
    from lxml import etree  # slow to load, and most plain mail needs it not

    n_tags = html.count("<")
    n_more = max(0, n_tags - max_tags)
    if n_more:
        html = "<".join(html.split("<", max_tags + 1)[:-1])
    # a tag that is not seen if the page ends within a tag, comment or script
    end = f"end-{len(html)}"
    data = (
        re.sub(OTHERWISE, lambda m: INSTEAD[m.group(1).lower()], f"{html}<{end}>", flags=re.I)
        .replace("\0", "")
        .encode("utf-8", "replace")
    )
    if re.search("<style", html, re.I):
        recording = _Recording()
        etree.fromstring(data, etree.HTMLParser(target=recording, encoding="utf-8"))
        page = Page(_sheets(recording.sheets, html))
        page.end_tag = end
        recording.replay(page)
    else:
        page = Page()
        page.end_tag = end
        etree.fromstring(data, etree.HTMLParser(target=page, encoding="utf-8"))
    page.n_tags, page.n_more = n_tags, n_more
    page.is_cut = page.last != end or page.sheets is not None and page.sheets.is_cut
    if page.has_flipped:
        from . import bidi

        page.out = [bidi.displayed("".join(page.out))]
    return "".join(page.out), page


def _sheets(texts: list[str], html: str) -> "sheets.Sheets | None":
    """The Sheets of a page, None if they decide nothing."""
    if not texts:
        return None
    from . import sheets

    is_quirky = not re.match(r"\s*<!doctype", html[:2000], re.I)
    found = sheets.Sheets(texts, is_quirky)
    return found if found or found.is_cut else None
