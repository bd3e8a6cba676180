"""List the hosts of links: of URLs as HTML writes them, and of those in a plain text."""

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

# Expressions are compiled when they are needed, since most of a short run is loading.
HOST_CHARACTERS = "[^/?#\\\\\\s<>\"']{1,255}"
# browsers need no slashes after http:
URL = r"[\x00-\x20]*(?:https?:[/\\]*|[/\\]{2,})(" + HOST_CHARACTERS + ")"
SCHEME = r"[\x00-\x20]*[A-Za-z][A-Za-z0-9+.-]{0,30}:(?![0-9])"
# what mail clients take for a host where a scheme and a base are missing; a file has another ending
BARE = r"[\x00-\x20]*((?:[\w-]{1,63}\.){1,10}[A-Za-z][\w-]{1,62})\.?(?::[0-9]{1,5})?(?=[/?#\s]|$)"
FILE_TYPES = frozenset(
    "html htm xhtml shtml php php3 asp aspx jsp cgi cfm do exe gif jpg jpeg png bmp webp svg css js"
    " txt pdf doc docx xls xlsx ppt pptx xml zip rtf csv eml mp3 mp4 avi mov wav".split()
)
URL_IN_TEXT = "https?://(" + HOST_CHARACTERS + ")"


def hosts(urls: "Iterable[str]", base: str = "") -> list[str]:
    """The hosts of URLs, in lower case, without user and port; what is no http URL has none.

    base: the URL that those without scheme and host are relative to, as <base href> gives it.
    """
    of_base = ""
    if base:
        m = re.match(URL, base, re.I)
        of_base = _host(m.group(1)) if m else ""
    found = (_of_url(url, of_base) for url in urls)
    return [host for host in found if host]


def _of_url(url: str, of_base: str) -> str:
    m = re.match(URL, url, re.I)
    if m:
        return _host(m.group(1))
    if re.match(SCHEME, url) or url[:1] == "#" or not url.strip():
        return ""
    if of_base:
        return of_base
    m = re.match(BARE, url)
    if not m:
        return ""
    host = m.group(1).lower()
    return host if host.startswith("www.") or host.rpartition(".")[2] not in FILE_TYPES else ""


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
