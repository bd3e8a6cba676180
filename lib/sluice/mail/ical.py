"""Read from a calendar part (RFC 5545) what its reader sees: summary, place and description of what
it asks for.
"""

import re

SHOWN = ("SUMMARY", "LOCATION", "DESCRIPTION")
# components that are shown; an alarm within one, or a time zone, is not
COMPONENTS = frozenset(("VEVENT", "VTODO", "VJOURNAL"))
# name, parameters whose values may be quoted, and the colon before the value
NAME = re.compile(r'([A-Za-z0-9-]{1,60})(?:;(?:[^":]|"[^"]*")*)?:')
ESCAPE = re.compile(r"\\(.)", re.S)


def text(calendar: str) -> str:
    """The values of SHOWN of each component, each on lines of its own. Linear."""
    lines = re.sub("\n[ \t]", "", calendar.replace("\r", "")).split("\n")
    out, open_in = [], ""
    found: dict[str, str] = {}
    for line in lines:
        m = NAME.match(line)
        if not m:
            continue
        name, value = m.group(1).upper(), line[m.end() :]
        if name == "BEGIN":
            inner = value.strip().upper()
            # what an alarm says is no part of what it is in
            open_in = inner if inner in COMPONENTS else f"-{open_in.lstrip('-')}"
        elif name == "END":
            if value.strip().upper() in COMPONENTS:
                out += [found[key] for key in SHOWN if found.get(key)]
                found, open_in = {}, ""
            else:
                open_in = open_in.lstrip("-")
        elif name in SHOWN and open_in in COMPONENTS and name not in found:
            found[name] = ESCAPE.sub(_unescaped, value).strip()
    out += [found[key] for key in SHOWN if found.get(key)]
    return "\n".join(out)


def _unescaped(m: "re.Match[str]") -> str:
    return "\n" if m.group(1) in "nN" else m.group(1)
