"""Take the message out of an opaque S/MIME signature (RFC 8551, CMS of RFC 5652).

Signed is not encrypted: the message lies in the structure as it is. Nothing is verified.
"""

SIGNED_DATA = bytes.fromhex("2a864886f70d010702")  # 1.2.840.113549.1.7.2
DATA = bytes.fromhex("2a864886f70d010701")
SEQUENCE, OBJECT_ID, OCTETS, EXPLICIT, INTEGER, SET = 0x30, 0x06, 0x04, 0xA0, 0x02, 0x31
MAX_ELEMENTS = 20_000  # chunks of the content, and what is skipped before it
MAX_DEPTH = 20


class _Bad(Exception):
    """Not BER, or not what is looked for."""


class _Reader:
    """Elements of BER in `data`, whose end may be cut off."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at, self.left = data, 0, MAX_ELEMENTS

    def head(self) -> tuple[int, int | None]:
        """(tag, length, None where it is indefinite) of the next element; its content follows."""
        data, at = self.data, self.at
        self.left -= 1
        if at + 2 > len(data) or data[at] & 0x1F == 0x1F or self.left < 0:
            raise _Bad
        tag, n = data[at], data[at + 1]
        self.at = at + 2
        if n == 0x80:
            return tag, None
        if n & 0x80:
            n_bytes = n & 0x7F
            if n_bytes > 8:
                raise _Bad
            self.at += n_bytes
            n = int.from_bytes(data[at + 2 : self.at], "big")
        return tag, n

    def enter(self, tag: int) -> int | None:
        """Read the head of an element that has this tag; its length."""
        found, n = self.head()
        if found != tag:
            raise _Bad
        return n

    def skip(self, tag: int, depth: int = 0) -> None:
        """Read past an element that has this tag (0: any)."""
        found, n = self.head()
        if tag and found != tag or depth > MAX_DEPTH:
            raise _Bad
        if n is not None:
            self.at += n
            return
        while not self.is_end():
            self.skip(0, depth + 1)

    def is_end(self) -> bool:
        """Read past the mark that ends what has no length, if it comes next, or the data ends."""
        if self.data[self.at : self.at + 2] == b"\0\0":
            self.at += 2
            return True
        return self.at >= len(self.data)

    def octets(self, depth: int = 0) -> bytes:
        """The content of an octet string, which may be made of others."""
        tag, n = self.head()
        if tag == OCTETS and n is not None:
            self.at += n
            return self.data[self.at - n : self.at]
        if tag != OCTETS | 0x20 or depth > MAX_DEPTH:
            raise _Bad
        end = len(self.data) if n is None else min(len(self.data), self.at + n)
        out = []
        while self.at < end and not (n is None and self.is_end()):
            out.append(self.octets(depth + 1))
        return b"".join(out)


def signed_content(data: bytes) -> bytes | None:
    """The bytes that are signed in `data`, or None: encrypted, or nothing that can be read."""
    r = _Reader(data)
    try:
        r.enter(SEQUENCE)
        _object_id(r, SIGNED_DATA)
        r.enter(EXPLICIT)
        r.enter(SEQUENCE)
        r.skip(INTEGER)  # version
        r.skip(SET)  # digest algorithms
        r.enter(SEQUENCE)
        _object_id(r, DATA)
        r.enter(EXPLICIT)
        return r.octets()
    except _Bad:
        return None


def _object_id(r: "_Reader", wanted: bytes) -> None:
    n = r.enter(OBJECT_ID) or 0
    r.at += n
    if r.data[r.at - n : r.at] != wanted:
        raise _Bad
