"""The beginning of a file, read once and in order: what a format is parsed from.

Bytes are read into private memory and parsed there, never from a map: another
process may change a mapped file between the check of a length and its use. The
memory is reserved at once and filled as the parser asks, so that nothing is
copied, and little more is read than is needed.
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


def read_begin(path: str, n: int) -> bytes:
    """The first `n` bytes of the file at `path`, or all it has. DataError where it is no regular
    file: a FIFO must not hang us.
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise data_error(path, "not a regular file")
        with open(fd, "rb", closefd=False) as f:
            return f.read(n)
    except OSError as e:
        raise Error(IO_ERROR, f"{path}: {e.strerror}") from None
    finally:
        os.close(fd)


class Cursor:
    """A position in a file (a part.Part), of whose bytes at most `limit` are kept. Errors name its
    path and the field.

    memory   memoryview of the bytes that are kept; those before `n_read` are valid
    address  the same for C, const uint8_t *
    at       the byte of `memory` that is parsed next;  offset: where it lies in the file
    skipped  bytes of the file before it that are not kept
    scanned  bytes of them that had to be read, by whoever counts them
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
        return self.at + self.skipped

    def need(self, n_bytes: int, field: str) -> None:
        """Make `n_bytes` bytes from `at` on valid, or raise the Error that the file ends within
        `field`.
        """
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
            # In pieces, so that a file that became shorter costs no more than it has.
            piece = self.memory[self.n_read : min(goal, self.n_read + MAX_READ_BYTES)]
            n = os.preadv(self.part.fd, [piece], self.n_read + self.skipped)
            if not n:
                raise self.data_error(f"{field}: file became shorter while it was read")
            self.n_read += n

    def drop(self, start: int, n_bytes: int, field: str) -> None:
        """Forget what was kept from `start` on, and pass over `n_bytes` more from `at` on without
        keeping them."""
        if self.offset + n_bytes > self.size:
            n_more = self.offset + n_bytes - self.size
            raise self.data_error(
                f"{field}: file ends at byte {self.size}, {n_more} bytes too early"
            )
        behind = min(self.at + n_bytes, self.n_read)  # what was read ahead from here on stays
        n_left = self.n_read - behind
        self.memory[start : start + n_left] = self.memory[behind : self.n_read]
        self.skipped += self.at + n_bytes - start
        self.at, self.n_read = start, start + n_left
        self._fresh = self.n_read  # reading ahead begins anew: more may be passed over soon

    def data_error(self, what: str) -> "Error":
        return data_error(self.path, what)

    def unpack(self, packed: "struct.Struct", field: str) -> "tuple[Any, ...]":
        """The values of a struct.Struct."""
        self.need(packed.size, field)
        values = packed.unpack_from(self.memory, self.at)
        self.at += packed.size
        return values

    def take(self, n_bytes: int, field: str) -> memoryview:
        """`n_bytes` bytes, as a memoryview."""
        self.need(n_bytes, field)
        self.at += n_bytes
        return self.memory[self.at - n_bytes : self.at]

    def window(self, start: int, end: int) -> "Any":
        """The bytes from `start` to `end`, valid already, as a buffer that keeps the memory alive.

        Not a memoryview: CPython (to 3.13 at least) crashes when its collector meets a
        cycle that holds both a memoryview and a pointer made of it by ffi.from_buffer.
        """
        owner = self.address
        return ffi.buffer(ffi.gc(owner + start, lambda _: owner), end - start)

    def string(self, field: str, least: int, most: int) -> bytes:
        """A string {u64 n_bytes, bytes} of `least` to `most` bytes, as bytes."""
        (n_bytes,) = self.unpack(LENGTH, field)
        if not least <= n_bytes <= most:
            raise self.data_error(f"{field}: length {n_bytes} is not within {least} to {most}")
        return bytes(self.take(n_bytes, field))
