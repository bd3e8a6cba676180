"""Formats as regular expressions (regex.py): dates by the calendar, addresses and names by their
RFCs. Each stands for texts that are valid; rare forms are left out, as the comments say.
"""

import functools

from .. import regex

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

YEAR = "([1-9][0-9]{3}|0([1-9][0-9]{2}|0([1-9][0-9]|0[1-9])))"
LEAP = "([0-9][0-9](0[48]|[2468][048]|[13579][26])|([2468][048]|[13579][26]|0[48])00)"
DATE = (  # RFC 3339 full-date, proleptic Gregorian; without the year 0, which few readers know
    f"({YEAR}-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)"
    f"|02-(0[1-9]|1[0-9]|2[0-8]))|{LEAP}-02-29)"
)
OFFSET = "([Zz]|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"
FRACTION = r"(\.[0-9]+)?"


def _leap_seconds():
    """Return the times with a second 60: 23:59 in UTC; offsets of whole hours."""
    parts = [f"23:59:60{FRACTION}[Zz]"]
    for hours in range(24):
        parts.append(f"{(23 + hours) % 24:02}:59:60{FRACTION}\\+{hours:02}:00")
        parts.append(f"{(23 - hours) % 24:02}:59:60{FRACTION}-{hours:02}:00")
    return "|".join(parts)


TIME = f"(([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]{FRACTION}{OFFSET}|{_leap_seconds()})"
WEEKS = "P[0-9]+W"
_TIME_PARTS = "T([0-9]+H([0-9]+M([0-9]+S)?)?|[0-9]+M([0-9]+S)?|[0-9]+S)"
_DATE_PARTS = "([0-9]+Y([0-9]+M([0-9]+D)?)?|[0-9]+M([0-9]+D)?|[0-9]+D)"
DURATION = f"(P({_DATE_PARTS}({_TIME_PARTS})?|{_TIME_PARTS})|{WEEKS})"  # RFC 3339, appendix A
OCTET = "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
IPV4 = rf"({OCTET}\.){{3}}{OCTET}"
H16 = "[0-9A-Fa-f]{1,4}"
LS32 = f"({H16}:{H16}|{IPV4})"
IPV6 = "|".join(  # RFC 3986, IPv6address
    [f"({H16}:){{6}}{LS32}", f"::({H16}:){{5}}{LS32}"]
    + [f"({H16})?::({H16}:){{4}}{LS32}"]
    + [f"(({H16}:){{0,{n}}}{H16})?::({H16}:){{{4 - n}}}{LS32}" for n in (1, 2, 3)]
    + [f"(({H16}:){{0,4}}{H16})?::{LS32}", f"(({H16}:){{0,5}}{H16})?::{H16}"]
    + [f"(({H16}:){{0,6}}{H16})?::"]
)


def _label(n):
    """Return a host name's label of at most n characters. `--` at its third is for IDNs: not
    allowed.
    """
    inner = "[0-9A-Za-z]"
    rest = n - 4
    return (
        f"({inner}([0-9A-Za-z-]?{inner})?"
        f"|{inner}({inner}|-){inner}(([0-9A-Za-z-]){{0,{rest}}}{inner})?"
        f"|{inner}{inner}-({inner}|[0-9A-Za-z]([0-9A-Za-z-]){{0,{rest - 1}}}{inner}))"
    )


# at most 253 characters: 4 labels of which the last is short, or 15 short ones
HOSTNAME = rf"({_label(63)}\.){{0,3}}{_label(61)}|({_label(15)}\.){{4,14}}{_label(15)}"
ATEXT = "[0-9A-Za-z!#$%&'*+/=?^_`{|}~-]"
_LOCAL = (
    rf"{ATEXT}{{1,64}}|{ATEXT}{{1,12}}(\.{ATEXT}{{1,12}}){{1,3}}"
    rf"|{ATEXT}{{1,5}}(\.{ATEXT}{{1,5}}){{1,9}}"
)
_QUOTED = r'"([ !#-\[\]-~]|\\[ -~]){0,31}"'
EMAIL = (  # RFC 5321: 64 characters before the @
    rf"({_LOCAL}|{_QUOTED})@({HOSTNAME}|\[{IPV4}\]|\[IPv6:({IPV6})\])"
)
UUID = "[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}"
_PCT = "%[0-9A-Fa-f]{2}"
_PCHAR = f"([0-9A-Za-z._~!$&'()*+,;=:@-]|{_PCT})"
_REG_NAME = f"([0-9A-Za-z._~!$&'()*+,;=-]|{_PCT})*"
_USER = f"(([0-9A-Za-z._~!$&'()*+,;=:-]|{_PCT})*@)?"
_AUTHORITY = (
    rf"{_USER}({_REG_NAME}|\[({IPV6}|[vV][0-9A-Fa-f]+\.[0-9A-Za-z._~!$&'()*+,;=:-]+)\])(:[0-9]*)?"
)
_PATH_ABEMPTY = f"(/{_PCHAR}*)*"
_TAIL = rf"(\?({_PCHAR}|[/?])*)?(#({_PCHAR}|[/?])*)?"
_HIER = f"(//{_AUTHORITY}{_PATH_ABEMPTY}|/({_PCHAR}+{_PATH_ABEMPTY})?|{_PCHAR}+{_PATH_ABEMPTY}|)"
URI = f"[A-Za-z][0-9A-Za-z+.-]*:{_HIER}{_TAIL}"  # RFC 3986
_SEGMENT_NC = f"([0-9A-Za-z._~!$&'()*+,;=@-]|{_PCT})+"
_RELATIVE = (
    f"(//{_AUTHORITY}{_PATH_ABEMPTY}|/({_PCHAR}+{_PATH_ABEMPTY})?|{_SEGMENT_NC}{_PATH_ABEMPTY}|)"
)
URI_REFERENCE = f"({URI}|{_RELATIVE}{_TAIL})"
POINTER = "(/([^/~]|~[01])*)*"  # RFC 6901

PATTERNS = {
    "date": DATE,
    "time": TIME,
    "date-time": f"{DATE}([Tt]){TIME}",
    "duration": DURATION,
    "email": EMAIL,
    "hostname": HOSTNAME,
    "ipv4": IPV4,
    "ipv6": IPV6,
    "uuid": UUID,
    "uri": URI,
    "uri-reference": URI_REFERENCE,
    "json-pointer": POINTER,
}


# of numbers, from OpenAPI's registry: the least and the largest, None where there are no bounds
NUMBERS: "dict[str, tuple[int, int] | None]" = {
    **{f"int{bits}": (-(1 << bits - 1), (1 << bits - 1) - 1) for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": (0, (1 << bits) - 1) for bits in (8, 16, 32, 64)},
    "float": None,
    "double": None,
}


@functools.cache
def tree(name: str) -> "Any":
    """Return the tree of a format, or None if it is not known."""
    return regex.whole(f"^({PATTERNS[name]})$") if name in PATTERNS else None
