"""What a model is: the BLAKE3 of its file, all of it. `b3sum FILE` prints the same digest.

A model of several files, such as shards or a checkpoint with its tokenizer, has the BLAKE3 of their
digests, in order.

The digest of a file is computed once and kept in the user's cache, a line in a file of its own,
DEVICE-INODE.id; times are in ns, the digest is in hex, CRC is the CRC-32C of what is before it:

    #model-id 1 DEVICE INODE SIZE MTIME CTIME DIGEST CRC

It is taken for a file whose five numbers are these. Every change of a file, by write, truncate or
utime, sets its ctime to the time when that change began, which no program can choose. So a digest
is kept if
  - ctime lies SETTLED_NS before the hash began: the clock of a file system ticks, and a change
    within the tick of the last one does not show;
  - fdatasync succeeded before: after it a store through a shared map sets ctime again, without it a
    page that is dirty already takes stores that do not show;
  - nobody has the file open for writing after that: a write of many pages sets ctime before the
    first of them and then may last for minutes (as far as the system tells: it does for files of
    the user's own on a disk of the machine's own);
  - the five numbers are the same after the hash.
What does not show to the kernel does not show here: stores through a shared map on tmpfs, which has
no such pages; a file system without ctime (FAT); blocks of a disk that are written past its file
system.

A directory or an entry that others could have written is not used, a damaged entry is not there,
and whatever hinders keeping is no matter: the file is hashed again.
"""

import errno
import os
import struct
import time

from ..faults import Error
from ..kernels import ffi, lib
from ..system import cache_directory, files, huge_pages, mapping

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from .part import Part

MAGIC, SUFFIX = b"#model-id 1", ".id"
MAX_ENTRIES = 1024  # a model may have 512 files
SETTLED_NS = 2_500_000_000  # FAT's clock ticks every 2 s, the coarsest of those in use
WINDOW = 64 << 20  # bytes mapped at a time: an interrupt waits for so many
THREADS_FROM = 16 << 20  # bytes: below, making threads takes longer than they save
NOTHING_TO_SYNC = (errno.EINVAL, errno.EROFS)  # a file system that is only read
SEVERAL = "sluice 2026-11-26 model of several files"  # BLAKE3's derive_key context


def of(parts: "Sequence[Part]", directory: str | None, more: "Sequence[bytes]" = ()) -> bytes:
    """bytes [32], the id of the model in the files `parts` (gguf.part.Part) and in `more`, contents
    (bytes) of files that were read whole.

    directory: where digests are kept, or None. Error 74 where a file is no longer what it was when
    it was opened; a file that is cut while it is hashed ends the process with a line, and 74.
    """
    digests = [digest(part, directory) for part in parts]
    if more:
        digests += [_blake3()(data).digest() for data in more]
    if len(digests) == 1:
        return digests[0]
    return _blake3()(b"".join(digests), derive_key_context=SEVERAL).digest()


def digest(part: "Part", directory: str | None) -> bytes:
    """The BLAKE3 of the file `part`: kept in `directory`, or computed and then kept. Error 74."""
    before = _stat(part)
    if known := directory and _recall(directory, before):
        return known
    keeps = (
        _is_settled(before)
        and cache_directory.usable(directory)
        and _is_synced(part.fd)
        and not _has_writer(part.fd)
    )
    found = _hash(part)
    if _key(_stat(part)) == _key(before) and keeps:
        _keep(directory, before, found)
    return found


def earlier(size: int, head: bytes, samples: "Iterable[bytes]") -> bytes:
    """The id by which earlier versions knew a GGUF: SHA-256 of its size in bytes, all that is
    before its tensor data, and the first 4 KiB of each tensor."""
    import hashlib

    h = hashlib.sha256(b"sluice model 1\n" + struct.pack("<Q", size))
    h.update(head)
    for data in samples:
        h.update(data)
    return h.digest()


# Hashing.


def _blake3():
    from blake3 import blake3  # a millisecond, which most commands need not wait

    return blake3


def _hash(part):
    h = _hasher(part.size)
    for at in range(0, part.size, WINDOW):
        _add(h, part, at, min(WINDOW, part.size - at))
    return h.digest()


def _hasher(n_bytes):
    """A hash, for many bytes one that uses all cores, unless the system grants no threads."""
    n = 1
    if n_bytes >= THREADS_FROM:
        from ..system import cpus

        n = cpus.n_threads()
    if n > 1 and _can_start(2 * n):
        try:
            return _blake3()(max_threads=n)
        except BaseException as e:  # somebody else took them meanwhile
            if type(e).__name__ != "PanicException":  # it has no public name
                raise
    return _blake3()()


def _can_start(n):
    """Whether the system grants `n` more threads: where it does not the library panics, with many
    lines on stderr."""
    import threading

    done, threads = threading.Event(), []
    try:
        for _ in range(n):
            threads.append(threading.Thread(target=done.wait, daemon=True))
            threads[-1].start()
    except (RuntimeError, MemoryError):
        threads.pop()
        return False
    finally:
        done.set()
        for thread in threads:
            thread.join()
    return True


def _add(h, part, at, n_bytes):
    """Hash through a map: nothing is copied, and what is not in the page cache comes there in large
    pieces (system/huge_pages.py)."""
    import mmap

    try:
        window = mmap.mmap(part.fd, n_bytes, mmap.MAP_PRIVATE, mmap.PROT_READ, offset=at)
    except ValueError:  # it is already shorter than this
        raise part.changed() from None
    huge_pages.ask(window)
    with window, ffi.from_buffer(window) as start:
        mapping.begin(start, n_bytes, part.path)
        try:
            h.update(window)
        finally:
            lib.guard_forget(start)


# Whether a file is the same.


def _stat(part):
    """os.fstat of the file now. Error 74 where it is not what it was when it was opened."""
    part.check_unchanged()
    return os.fstat(part.fd)


def _key(s):
    return s.st_dev, s.st_ino, s.st_size, s.st_mtime_ns, s.st_ctime_ns


def _is_settled(s):
    return time.time_ns() - s.st_ctime_ns >= SETTLED_NS


def _is_synced(fd):
    try:
        getattr(os, "fdatasync", os.fsync)(fd)
    except OSError as e:
        return e.errno in NOTHING_TO_SYNC
    return True


def _has_writer(fd):
    """Whether anybody has the file of `fd` open for writing, or a shared map of it that can be
    written: only without does Linux grant a lease to read it, which is given back at once. False
    where leases are unknown, or not for this user and this file system."""
    import fcntl
    import signal

    if not hasattr(fcntl, "F_SETLEASE"):
        return False
    try:
        fcntl.fcntl(fd, fcntl.F_SETSIG, signal.SIGURG)  # of a breach: ignored; SIGIO kills
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except OSError as e:
        return e.errno == errno.EAGAIN
    return False


# Keeping.


def _path(directory, s):
    return os.path.join(directory, f"{s.st_dev:x}-{s.st_ino:x}{SUFFIX}")


def _entry(s, digest):
    """The line for a file of which os.fstat says `s`."""
    line = b"%b %d %d %d %d %d %b " % (MAGIC, *_key(s), digest.hex().encode())
    return line + b"%08x\n" % lib.crc32c(0, line, len(line))


def _recall(directory, s):
    """The digest kept for a file of which os.fstat says `s`, or None."""
    expected = _entry(s, bytes(32))
    try:
        cache_directory.check(directory)
        with open(files.open_trusted(_path(directory, s)), "rb", buffering=0) as f:
            entry = f.read(len(expected) + 1)
        digest = bytes.fromhex(entry[-74:-10].decode("ascii"))
    except (OSError, Error, ValueError):
        return None
    return digest if len(digest) == 32 and entry == _entry(s, digest) else None


def _keep(directory, s, digest):
    path = _path(directory, s)
    try:
        files.write(path, lambda f: f.write(_entry(s, digest)), 0o600, sync=False)
        cache_directory.trim(directory, SUFFIX, MAX_ENTRIES)
    except (OSError, Error):
        pass
