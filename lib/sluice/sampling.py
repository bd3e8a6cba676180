"""Reading a little here and there in a large file, without leaving crumbs in the page cache.

What is mapped later goes there in pieces of 2 MiB (hugepages.py), but not where a piece is already there in part: one read of 4 KiB
costs every later process that maps these 2 MiB tens of page faults, and a read-ahead of 128 KiB is no better.
"""
import contextlib
import errno
import os

RWF_DONTCACHE = 0x80  # preadv2(2): what was not cached before is not after; Linux 6.14, on file systems that can
NO_SUCH_FLAG = (errno.EOPNOTSUPP, errno.EINVAL)


@contextlib.contextmanager
def of(fd):
    """Yields read(n_bytes, offset) of the descriptor `fd`: os.pread, without reading ahead and, where that can be, without caching."""
    flags = RWF_DONTCACHE

    def read(n_bytes, offset):
        nonlocal flags
        if flags:
            buffer = bytearray(n_bytes)
            try:
                return buffer[:os.preadv(fd, [buffer], offset, flags)]
            except (NotImplementedError, AttributeError):  # a Python without preadv2
                flags = 0
            except OSError as e:
                if e.errno not in NO_SUCH_FLAG:
                    raise
                flags = 0
        return os.pread(fd, n_bytes, offset)

    _advise(fd, "POSIX_FADV_RANDOM")
    try:
        yield read
    finally:
        _advise(fd, "POSIX_FADV_NORMAL")


def _advise(fd, how):
    """posix_fadvise(2) for all of the file; where it cannot be had, reading goes on without."""
    with contextlib.suppress(OSError, AttributeError):
        os.posix_fadvise(fd, 0, 0, getattr(os, how))
