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

from ..faults import IO_ERROR, Fault, bad
from ..kernels import ffi

FIRST_READ_BYTES = 1 << 16
MAX_READ_BYTES = 1 << 20
LENGTH = struct.Struct("<Q")  # of a string


def read_begin(path, n):
    """The first `n` bytes of the file at `path`, or all it has. Fault 65 where it is no regular file: a FIFO must not hang us."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise bad(path, "not a regular file")
        with open(fd, "rb", closefd=False) as f:
            return f.read(n)
    except OSError as e:
        raise Fault(IO_ERROR, f"{path}: {e.strerror}") from None
    finally:
        os.close(fd)


class Cursor:
    """A position in the first `limit` bytes of an open file of `size` bytes. Faults name `path` and the field.

    memory   memoryview of the bytes; those before `n_read` are valid
    address  the same for C, const uint8_t *
    at       the byte that is parsed next
    """

    __slots__ = ("fd", "path", "size", "limit", "memory", "address", "n_read", "at")

    def __init__(self, fd, path, size, limit):
        self.fd, self.path, self.size, self.limit = fd, path, size, limit
        reserved = mmap.mmap(-1, min(size, limit), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self.memory, self.address = memoryview(reserved), ffi.from_buffer("uint8_t[]", reserved)
        self.n_read = self.at = 0

    def need(self, n_bytes, field):
        """Make `n_bytes` bytes from `at` on valid, or raise the Fault that the file ends within `field`."""
        end = self.at + n_bytes
        if end <= self.n_read:
            return
        if end > self.size:
            raise self.bad(f"{field}: file ends at byte {self.size}, {end - self.size} bytes too early")
        if end > self.limit:
            raise self.bad(f"{field}: metadata of more than {self.limit >> 20} MiB")
        ahead = min(max(self.n_read, FIRST_READ_BYTES), MAX_READ_BYTES)
        goal = min(max(end, self.n_read + ahead), self.size, self.limit)
        while self.n_read < goal:
            # In pieces, so that a file that became shorter costs no more than it has.
            n = os.preadv(self.fd, [self.memory[self.n_read:min(goal, self.n_read + MAX_READ_BYTES)]], self.n_read)
            if not n:
                raise self.bad(f"{field}: file became shorter while it was read")
            self.n_read += n

    def bad(self, what):
        return bad(self.path, what)

    def unpack(self, packed, field):
        """The values of a struct.Struct."""
        self.need(packed.size, field)
        values = packed.unpack_from(self.memory, self.at)
        self.at += packed.size
        return values

    def take(self, n_bytes, field):
        """`n_bytes` bytes, as a memoryview."""
        self.need(n_bytes, field)
        self.at += n_bytes
        return self.memory[self.at - n_bytes:self.at]

    def window(self, start, end):
        """The bytes from `start` to `end`, valid already, as a buffer that keeps the memory alive.

        Not a memoryview: CPython (to 3.13 at least) crashes when its collector meets a
        cycle that holds both a memoryview and a pointer made of it by ffi.from_buffer.
        """
        owner = self.address
        return ffi.buffer(ffi.gc(owner + start, lambda _: owner), end - start)

    def string(self, field, least, most):
        """A string {u64 n_bytes, bytes} of `least` to `most` bytes, as bytes."""
        (n_bytes,) = self.unpack(LENGTH, field)
        if not least <= n_bytes <= most:
            raise self.bad(f"{field}: length {n_bytes} is not within {least} to {most}")
        return bytes(self.take(n_bytes, field))
