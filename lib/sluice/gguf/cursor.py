"""Bounded sequential reader of the start of a file, from which a format is parsed.

The parser reads bytes into private memory, never from a map: another process may change a mapped
file between the check of a length and its use. The memory is reserved at once and filled on demand,
so nothing is copied and little more is read than the parser needs.
"""

import mmap
import os
import stat
import struct

from ..faults import IO_ERROR, Error, data_error
from ..kernels import ffi

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..faults import Error
    from .part import Part

FIRST_READ_BYTES = 1 << 16
MAX_READ_BYTES = 1 << 20
LENGTH = struct.Struct("<Q")  # of a string


def not_regular(path: str) -> str:
    """What is wrong with a path that is no regular file."""
    if os.path.isfile(os.path.join(path, "config.json")):
        return f"is a folder of Hugging Face; gguf-convert {path} -o FILE.gguf makes a GGUF of it"
    return "not a regular file"


def read_start(path: str, n: int) -> bytes:
    """Return the first `n` bytes of the file at `path`, or all if it has fewer.

    DataError if it is not a regular file: a FIFO must not block the process. Error 74 if
    reading fails.
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise data_error(path, not_regular(path))
        with open(fd, "rb", closefd=False) as f:
            return f.read(n)
    except OSError as e:
        raise Error(IO_ERROR, f"{path}: {e.strerror}") from None
    finally:
        os.close(fd)


class Cursor:
    """A position in a file (a part.Part). At most `limit` bytes are kept. Errors name path and
    field.

    memory   memoryview of the kept bytes; those before `n_read` are valid
    address  the same for C, const uint8_t *
    at       index in `memory` of the next byte to parse;  offset: the same byte's place in the file
    skipped  bytes of the file before `at` that are not kept
    scanned  skipped bytes that had to be read; the caller counts them
    """

    __slots__ = (
        "part",
        "path",
        "size",
        "limit",
        "memory",
        "address",
        "n_read",
        "at",
        "skipped",
        "scanned",
        "_fresh",
    )

    def __init__(self, part: "Part", limit: int) -> None:
        self.part, self.path, self.size, self.limit = part, part.path, part.size, limit
        reserved = mmap.mmap(-1, min(part.size, limit), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self.memory, self.address = memoryview(reserved), ffi.from_buffer("uint8_t[]", reserved)
        self.n_read = self.at = self.skipped = self.scanned = self._fresh = 0

    @property
    def offset(self) -> int:
        """Place in the file of the next byte to parse."""
        return self.at + self.skipped

    def need(self, n_bytes: int, field: str) -> None:
        """Make `n_bytes` bytes from `at` on valid. DataError if the file ends within `field`."""
        end = self.at + n_bytes
        if end <= self.n_read:
            return
        left = self.size - self.skipped
        if end > left:
            raise self.data_error(
                f"{field}: file ends at byte {self.size}, {end - left} bytes too early"
            )
        if end > self.limit:
            raise self.data_error(f"{field}: metadata of more than {self.limit >> 20} MiB")
        ahead = min(max(self.n_read - self._fresh, FIRST_READ_BYTES), MAX_READ_BYTES)
        goal = min(max(end, self.n_read + ahead), left, self.limit)
        while self.n_read < goal:
            # in pieces: a file that became shorter then costs no more memory than its size
            piece = self.memory[self.n_read : min(goal, self.n_read + MAX_READ_BYTES)]
            n = os.preadv(self.part.fd, [piece], self.n_read + self.skipped)
            if not n:
                raise self.data_error(f"{field}: file became shorter while it was read")
            self.n_read += n

    def drop(self, start: int, n_bytes: int, field: str) -> None:
        """Forget the kept bytes from `start` on, and skip `n_bytes` more from `at` on
        without keeping them.
        """
        if self.offset + n_bytes > self.size:
            n_more = self.offset + n_bytes - self.size
            raise self.data_error(
                f"{field}: file ends at byte {self.size}, {n_more} bytes too early"
            )
        behind = min(self.at + n_bytes, self.n_read)  # bytes read ahead beyond this stay valid
        n_left = self.n_read - behind
        self.memory[start : start + n_left] = self.memory[behind : self.n_read]
        self.skipped += self.at + n_bytes - start
        self.at, self.n_read = start, start + n_left
        self._fresh = self.n_read  # small reads again: the next value may be skipped, too

    def data_error(self, problem: str) -> "Error":
        """A DataError that names the file."""
        return data_error(self.path, problem)

    def unpack(self, packed: "struct.Struct", field: str) -> "tuple[Any, ...]":
        """Return the values of a struct.Struct at the cursor, as a tuple."""
        self.need(packed.size, field)
        values = packed.unpack_from(self.memory, self.at)
        self.at += packed.size
        return values

    def read(self, n_bytes: int, field: str) -> memoryview:
        """Return the next `n_bytes` bytes, as a memoryview of `memory`."""
        self.need(n_bytes, field)
        self.at += n_bytes
        return self.memory[self.at - n_bytes : self.at]

    def window(self, start: int, end: int) -> "Any":
        """Return the valid bytes from `start` to `end` as a buffer that keeps the memory
        alive.

        Not a memoryview: CPython (to 3.13 at least) crashes if its collector finds a cycle
        of a memoryview and a pointer that ffi.from_buffer made of it.
        """
        owner = self.address
        return ffi.buffer(ffi.gc(owner + start, lambda _: owner), end - start)

    def string(self, field: str, minimum: int, maximum: int) -> bytes:
        """Read a string {u64 n_bytes, bytes}. DataError unless it has `minimum` to
        `maximum` bytes.
        """
        (n_bytes,) = self.unpack(LENGTH, field)
        if not minimum <= n_bytes <= maximum:
            raise self.data_error(f"{field}: length {n_bytes} is not within {minimum} to {maximum}")
        return bytes(self.read(n_bytes, field))
