"""HTML to text and the hosts of its links: csrc/html.c, and the character references that it leaves to Python."""
import re

from .kernels import ffi, lib

MAX_LINK_BYTES = 1 << 14
HOST_CHARACTERS = "[^/?#\\\\\\s<>\"']{1,255}"
URL = re.compile(r"[\x00-\x20]*(?:https?:)?[/\\]{2,}(" + HOST_CHARACTERS + ")", re.I)
URL_IN_TEXT = re.compile("https?://(" + HOST_CHARACTERS + ")", re.I)
ZEROS = re.compile("(&#[xX]?)0+(?=[0-9a-fA-F])")
TOO_LONG = re.compile("&#(?:[0-9]{8,}|[xX][0-9a-fA-F]{7,});?")
SECTION = re.compile("[ \t\n]*<(?:!doctype html|html|head|body|meta|table|div|center|font|p|a|b|br|img|style)[ \t\n>]", re.I)


def unescape(text):
    """A str with its character references decoded; a number that is no character becomes U+FFFD."""
    if "&" not in text:
        return text
    from html import unescape  # brings a table of 2,231 names
    return unescape(TOO_LONG.sub("\ufffd", ZEROS.sub(r"\1", text)))


def looks_like(text):
    """Whether a text that is called plain begins as HTML and has an end tag."""
    return bool(SECTION.match(text[:200])) and "</" in text


def read(html):
    """(text, links as a list of URLs as written, the html_page of counts) of a str."""
    data = html.encode("utf-8", "replace")
    page, text, link = ffi.new("html_page *"), ffi.new("uint8_t[]", len(data) + 1), ffi.new("uint8_t[]", MAX_LINK_BYTES)
    lib.html_text(page, text, link, ffi.from_buffer("uint8_t[]", data), len(data), MAX_LINK_BYTES)
    links = bytes(ffi.buffer(link, page.n_link)).decode("utf-8", "replace").split("\n")[:-1]
    return unescape(bytes(ffi.buffer(text, page.n_text)).decode("utf-8", "replace")), links, page


def hosts(urls):
    """The hosts of URLs, in lower case, without user and port; what is no http URL has none."""
    found = (URL.match(unescape(url)) for url in urls)
    return [host for host in (_host(m.group(1)) for m in found if m) if host]


def hosts_in_text(text):
    """The hosts of the http URLs in a plain text, in order."""
    return [host for host in map(_host, URL_IN_TEXT.findall(text)) if host]


def _host(authority):
    host = authority.rpartition("@")[2].lower()
    return host.partition(":")[0].rstrip(".,;)") if not host.startswith("[") else host
