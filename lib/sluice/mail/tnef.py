"""List the files within a winmail.dat: Microsoft's Transport Neutral Encapsulation Format, as
[MS-OXTNEF] describes it.
"""

import struct

SIGNATURE = 0x223E9F78
# attributes: when an attachment begins, its short name, its MAPI properties
BEGIN, TITLE, PROPERTIES = 0x9002, 0x8010, 0x9005
LONG_NAME, SHORT_NAME, DISPLAY_NAME = 0x3707, 0x3704, 0x3001
STRING8, UNICODE, OBJECT, BINARY = 0x1E, 0x1F, 0x0D, 0x102
# bytes of a value of a type of fixed size, padded to 4
FIXED = {2: 4, 3: 4, 4: 4, 5: 8, 6: 8, 7: 8, 10: 4, 11: 4, 20: 8, 0x40: 8, 0x48: 16}
MAX_NAMES = 100
MAX_PROPERTIES = 200


def names(data: bytes) -> list[str]:
    """The names of the files in `data`, whose end may be cut off; empty if it is no TNEF."""
    if len(data) < 6 or struct.unpack_from("<I", data)[0] != SIGNATURE:
        return []
    out, at = [], 6
    while at + 9 <= len(data) and len(out) < MAX_NAMES:
        id, n = struct.unpack_from("<H2xI", data, at + 1)
        content = data[at + 9 : at + 9 + n]
        if id == BEGIN:
            out.append("")
        elif id == TITLE and out and not out[-1]:
            out[-1] = content.rstrip(b"\0").decode("cp1252", "replace")
        elif id == PROPERTIES and out:
            try:
                out[-1] = _long_name(content) or out[-1]
            except struct.error:  # it is cut, or no list of properties
                pass
        at += 9 + n + 2  # a checksum follows
    return [name for name in out if name]


def _long_name(data: bytes) -> str:
    """The name of an attachment in a list of MAPI properties, "" if it has none."""
    found, at = {}, 4
    for _ in range(min(struct.unpack_from("<I", data)[0], MAX_PROPERTIES)):
        kind, id = struct.unpack_from("<HH", data, at)
        at += 4
        if id >= 0x8000:  # a property with a name: GUID, then a number or a string
            is_string, n = struct.unpack_from("<II", data, at + 16)
            at += 24 + (_padded(n) if is_string else 0)
        n_values = 1
        if kind & 0x1000 or kind in (STRING8, UNICODE, OBJECT, BINARY):
            (n_values,) = struct.unpack_from("<I", data, at)
            at += 4
        kind &= ~0x1000
        if kind in FIXED:
            at += FIXED[kind] * n_values
            continue
        if n_values > MAX_PROPERTIES or kind not in (STRING8, UNICODE, OBJECT, BINARY):
            break
        for _ in range(n_values):
            (n,) = struct.unpack_from("<I", data, at)
            value = data[at + 4 : at + 4 + n]
            at += 4 + _padded(n)
            if kind in (STRING8, UNICODE) and id in (LONG_NAME, SHORT_NAME, DISPLAY_NAME):
                charset = "utf-16-le" if kind == UNICODE else "cp1252"
                found[id] = value.decode(charset, "replace").rstrip("\0")
    return found.get(LONG_NAME) or found.get(DISPLAY_NAME) or found.get(SHORT_NAME) or ""


def _padded(n: int) -> int:
    return n + 3 & ~3
