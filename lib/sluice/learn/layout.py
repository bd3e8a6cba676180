"""The file of what was learned, format 2: what each byte is, and what a verdict reads of it.

All numbers are little-endian. A file is a head, an entry of 64 bytes for each section, and the
sections. A section has the texts of one model and one question with k answers.

    head           0  16 bytes  MAGIC
                  16  16 bytes  salt, random: the key of all digests in the file
                  32  u64       size of the file
                  40  u32       number of sections, at most MAX_SECTIONS
                  44  u32       CRC-32C of head and entries, with 0 here
                  48  u32       CRC-32C of the sections
                  52  12 bytes  0
    entry          0  8 bytes   model: the first of its ID
                   8  8 bytes   question: see calibration.digest
                  16  u32       k
                  20  u32       n: texts
                  24  u32       m: pairs of a token and an answer
                  28  u32       codes
                  32  u32       texts with tokens that count, by hand or not
                  36  28 bytes  0
    section, each array from a multiple of 8 bytes on:
        prior     f64 [1 + k]   scale and biases of the question, from which the fit starts
        joint     f64 [2 + k]   the fit: scale, trust in tokens, biases (joint.py)
        pairs     u64 [m]       ascending: digest of the token << 32 | answer << 24 | texts of this
                                answer that have the token and count
        texts     u64 [n]       ascending: digest of the text
        log_p     f32 [n][k]    the model's log probabilities, nats
        dates     u32 [n]       seconds since 1970 of the learning; small numbers: of format 1
        starts    u32 [n + 1]   where the codes of a text begin
        totals    u32 [k]       texts with tokens that count, of each answer
        labels    u8 [n]        index of the answer
        flags     u8 [n]        AUTO: learned by --auto-learn
        codes     u16 [codes]   the tokens of a text are pairs with its label: their indices,
                                ascending, each as the difference from the one before (the first
                                from -1); JUMP stands for JUMP more of difference

Digests are BLAKE2b with the salt as key: 4 bytes of a token, 8 of a text. The lowest bit of a
token's is 1 if it names a sender or list. So the file has no word;
but who has the file and a text, or a list of words, can tell which of them it has. Its mode is
0600. The contents depend on salt, texts, labels, dates and priors alone, not on their history.

A verdict maps the file. It checks the sums of the head, and that the sizes fit; not the sum of the
sections, for it reads little of them. Whatever stands there, the result is a number or DataError,
in bounded time.
"""

import os
import struct

from ..faults import Error, data_error
from ..kernels import lib
from ..system import files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

MAGIC = b"#calibration 2\n\0"
MAGIC_1 = b"#calibration 1 "
MAGIC_ANY = b"#calibration "
HEAD = struct.Struct("<16s16sQIII12s")
ENTRY = struct.Struct("<8s8sIIIII28s")
MAX_BYTES = 20 << 20
MAX_KEPT = 300  # tokens of a text
MAX_TEXTS = 20000
MAX_SECTIONS = 16
MAX_ANSWERS = 255
MAX_COUNT = (1 << 24) - 1
MAX_NUMBER = 1e4  # absolute value of a number in a file
JUMP = 0xFFFF
AUTO = 1


class Salted:
    """The digests of a file with this salt."""

    def __init__(self, salt: bytes) -> None:
        import hashlib

        self._sha256 = hashlib.sha256
        self._token = hashlib.blake2b(digest_size=4, key=salt)
        self._text = hashlib.blake2b(digest_size=8, key=salt)

    def tokens(self, tokens: "Iterable[str]") -> list[int]:
        """Return the digests of tokens, in their order; odd ones are of tokens.is_of_sender."""
        from . import tokens as kinds

        found, copy, number = [], self._token.copy, int.from_bytes
        for token in tokens:
            h = copy()
            h.update(token.encode("utf-8", "surrogatepass"))
            digest = number(h.digest(), "little")
            found.append(digest | 1 if kinds.is_of_sender(token) else digest & ~1)
        return found

    def kept(self, words: "Iterable[str]") -> list[int]:
        """Return the digests of the tokens that are kept of a text, ascending: those of its header,
        then those with the smallest digests, MAX_KEPT in all.
        """
        from . import tokens as kinds

        words = list(words)
        first = sorted(set(self.tokens(w for w in words if kinds.is_of_header(w))))
        more = set(self.tokens(w for w in words if not kinds.is_of_header(w)))
        return sorted((first + sorted(more.difference(first)))[:MAX_KEPT])

    def text(self, name: bytes) -> int:
        """Return the digest of the text with this `name`."""
        h = self._text.copy()
        h.update(name)
        return int.from_bytes(h.digest(), "little")


def name_of(parts: tuple[bytes, bytes | None]) -> bytes:
    """Return the name of a text in files: 8 bytes of a hash of what the prompt gets.

    parts: (text, rest) as inputs.text gives them. Headers that a filter or a mailbox adds to a
    message do not change the name.
    """
    import hashlib

    text, rest = parts
    return hashlib.sha256(text + (rest or b"")).digest()[:8]


class Entry:
    """A section's entry. at: where the section begins. offsets: {array: (begin, end)} in bytes."""

    def __init__(
        self, model: bytes, question: bytes, k: int, n: int, m: int, n_codes: int, n_counted: int
    ) -> None:
        self.model, self.question, self.k = model, question, k
        self.n, self.m, self.n_codes, self.n_counted = n, m, n_codes, n_counted
        self.at, self.offsets = 0, {}
        end = 0
        for name, n_bytes in arrays(k, n, m, n_codes):
            self.offsets[name] = end, end + n_bytes
            end += n_bytes + -n_bytes % 8
        self.n_bytes = end

    def pack(self) -> bytes:
        """Return the entry's bytes."""
        return ENTRY.pack(
            self.model,
            self.question,
            self.k,
            self.n,
            self.m,
            self.n_codes,
            self.n_counted,
            bytes(28),
        )


def arrays(k: int, n: int, m: int, n_codes: int) -> "Iterable[tuple[str, int]]":
    """Yield (name, bytes) of each array of a section, in order."""
    yield "prior", 8 * (1 + k)
    yield "joint", 8 * (2 + k)
    yield "pairs", 8 * m
    yield "texts", 8 * n
    yield "log_p", 4 * n * k
    yield "dates", 4 * n
    yield "starts", 4 * (n + 1)
    yield "totals", 4 * k
    yield "labels", n
    yield "flags", n
    yield "codes", 2 * n_codes


def head_of(salt: bytes, entries: "list[Entry]", crc: int) -> bytes:
    """Return head and entries of a file; crc: of its sections."""
    n_bytes = HEAD.size + sum(ENTRY.size + e.n_bytes for e in entries)
    packed = b"".join(e.pack() for e in entries)
    fields = [MAGIC, salt, n_bytes, len(entries), 0, crc, bytes(12)]
    fields[4] = checksum(HEAD.pack(*fields) + packed)
    return HEAD.pack(*fields) + packed


def damaged(path: str, what: str) -> Error:
    """Return the DataError of a file that was a calibration, with its remedy."""
    return data_error(path, f"damaged: {what}; --reset begins again")


def parse(path: str, data: "Any", n_bytes: int) -> tuple[bytes, list[Entry], int]:
    """Parse head and entries: (salt, entries, CRC of the sections).

    data: the first bytes of the file, which has `n_bytes`. Raises DataError.
    """
    if len(data) < HEAD.size or bytes(data[: len(MAGIC)]) != MAGIC:
        raise data_error(path, "line 1: is not the first line of a calibration")
    magic, salt, size, n_sections, crc, crc_sections, zero = HEAD.unpack_from(data)
    if n_sections > MAX_SECTIONS:
        raise damaged(path, f"head: {n_sections} sections")
    end = HEAD.size + n_sections * ENTRY.size
    packed = bytes(data[HEAD.size : end])
    head = HEAD.pack(magic, salt, size, n_sections, 0, crc_sections, zero)
    if len(packed) != n_sections * ENTRY.size or checksum(head + packed) != crc:
        raise damaged(path, "wrong checksum of the head")
    entries = []
    for i in range(n_sections):
        *fields, _ = ENTRY.unpack_from(packed, i * ENTRY.size)
        if not 2 <= fields[2] <= MAX_ANSWERS or max(fields[3:6]) > MAX_BYTES:
            raise damaged(path, f"section {i + 1}: {fields[2]} answers, {fields[3]} texts")
        entry = Entry(*fields)
        entry.at = end
        end += entry.n_bytes
        entries.append(entry)
    if not end == size == n_bytes <= MAX_BYTES:
        raise damaged(path, f"has {n_bytes} bytes, where its head says {end}")
    return salt, entries, crc_sections


def checksum(data: "Any") -> int:
    """Return the CRC-32C of `data`."""
    return lib.crc32c(0, data, len(data))


class Opened:
    """A file, mapped or in memory. data: its bytes. identity: of the file (see identity_of).

    owner: ID of the user who may own the file, besides this user and root. A file of another owner
    is read, not mapped: its owner could cut it while it is mapped.

    Raises DataError for a file that others could have written or that is too large, OSError.
    """

    def __init__(self, path: str, owner: int | None = None) -> None:
        fd = files.open_trusted(path, owner)
        try:
            s = os.fstat(fd)
            self.identity = identity_of(s)
            if s.st_size > MAX_BYTES:
                raise data_error(path, f"has {s.st_size} bytes; at most {MAX_BYTES} are read")
            self._map: Any = None
            if s.st_uid in (os.geteuid(), 0) and s.st_size:
                import mmap

                self._map = mmap.mmap(fd, s.st_size, prot=mmap.PROT_READ)
                self._guard(path, s.st_size)
            self.data: Any = memoryview(self._map if self._map else _all_of(fd, s.st_size))
        finally:
            os.close(fd)

    def _guard(self, path, n_bytes):
        from ..kernels import ffi
        from ..system import mapping

        self._pointer = ffi.from_buffer(self._map)
        mapping.begin(self._pointer, n_bytes, path)

    def __del__(self) -> None:
        if getattr(self, "_map", None):
            lib.guard_forget(self._pointer)


def identity_of(s: os.stat_result) -> tuple[int, ...]:
    """Return what changes when a file is replaced or written."""
    return s.st_dev, s.st_ino, s.st_size, s.st_mtime_ns, s.st_ctime_ns


def _all_of(fd, n_bytes):
    parts = []
    while n_bytes > 0 and (part := os.read(fd, n_bytes)):
        parts.append(part)
        n_bytes -= len(part)
    return b"".join(parts)
