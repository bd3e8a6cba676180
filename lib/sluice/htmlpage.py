"""A report as a page: one HTML file without scripts or anything from outside.

It has texts of strangers in it, so it is written with mode 0600, callers escape all that comes from
texts, files and questions, and a Content-Security-Policy keeps the browser from running or fetching
anything, should that fail. The same report gives the same bytes.
"""

import html
import unicodedata

from .system import files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

POLICY = "default-src 'none'; style-src 'unsafe-inline'"
# colours by name, for light and dark pages; a page may declare more of them
STYLE = """\
:root { color-scheme: light dark; --page: #fdfdfc; --box: #fff; --ink: #1d2329; --soft: #59636e;
  --rule: #dde1e5; }
@media (prefers-color-scheme: dark) { :root { --page: #14181c; --box: #1b2127; --ink: #e4e7ea;
  --soft: #a3adb7; --rule: #39424b; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink);
  font: 16px/1.5 system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
main { margin: 0 auto; padding: 1rem clamp(0.75rem, 3vw, 2.5rem) 3rem; }
h1 { line-height: 1.25; margin: 0.5rem 0; overflow-wrap: anywhere; }
p { margin: 0.3rem 0; max-width: 75ch; overflow-wrap: anywhere; }
.soft, figcaption, caption { color: var(--soft); font-size: 0.875rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
caption { text-align: left; padding: 0.2rem 0; }
th, td { text-align: left; vertical-align: top; border-bottom: 1px solid var(--rule); }
thead th { color: var(--soft); font-weight: 500; font-size: 0.875rem; }
td.n, th.n { text-align: right; white-space: nowrap; }
"""


def write(path: str, text: str) -> None:
    """Write a page. Error 73 to 75, and `path` stays as it was."""
    data = text.encode("utf-8", "backslashreplace")
    files.write(path, lambda f: f.write(data), mode=0o600)


def page(title: str, style: str, parts: "Iterable[str]", policy: str = "") -> str:
    """Return a page with `title` as its heading, too.

    title, parts: HTML; empty parts are left out. style: CSS of this page, behind STYLE. policy:
    what the Content-Security-Policy allows besides styles.
    """
    lines = [
        "<!DOCTYPE html>",
        '<html lang="en">',
        "<head>",
        '<meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{html.escape(POLICY + policy)}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta name="referrer" content="no-referrer">',
        f"<title>{title}</title>",
        f"<style>\n{STYLE}{style}</style>",
        "</head>",
        "<body>",
        "<main>",
        f"<h1>{title}</h1>",
        *parts,
        "</main>",
        "</body>",
        "</html>",
    ]
    return "\n".join(line for line in lines if line) + "\n"


def shown(text: str) -> str:
    """Text as HTML. Controls, and marks that reorder or hide letters, are written as escapes."""
    return html.escape("".join(c if _is_seen(c) else _escape(c) for c in text))


def _is_seen(c):
    # joiners are letters' own in many scripts, and in emoji
    return c.isprintable() or c in "\n\t\u200c\u200d" or unicodedata.category(c) == "Zs"


def _escape(c):
    return c.encode("unicode_escape").decode()
