"""Model ID: the BLAKE3 of the whole model file. `b3sum FILE` prints the same digest.

A model of several files, such as shards or a checkpoint with its tokenizer, has the BLAKE3 of the
files' digests, in order.

The digest of a file is computed once and cached in the user's cache directory, in a file of one
line, DEVICE-INODE.id. Times are in ns, the digest is in hex, CRC is the CRC-32C of the bytes before
it:

    #model-id 1 DEVICE INODE SIZE MTIME CTIME DIGEST CRC

An entry counts if its five numbers are those of the file. Every change of a file, by write,
truncate or utime, sets ctime to the time at which the change began, and no program can choose it. A
digest is therefore cached only if

- ctime is at least SETTLED_NS before the start of the hash: the clock of a file system ticks, and a
  change within the tick of the last one does not show;
- fdatasync succeeded before: after it a store through a shared map sets ctime again; without it a
  page that is already dirty accepts stores that do not show;
- no process has the file open for writing after that: a write of many pages sets ctime before the
  first page and may then last for minutes (the kernel reports this for the user's own files on
  local file systems);
- the five numbers are the same after the hash.

The kernel does not report, and this module cannot notice: stores through a shared map on tmpfs,
which has no such pages; changes on a file system without ctime (FAT); blocks of a disk that are
written without its file system.

A directory or entry that other users could have written is not used. A damaged entry counts as
absent. If caching fails for any reason, the file is hashed again next time.
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
WINDOW = 64 << 20  # bytes mapped at a time: an interrupt waits for one window
THREADS_FROM = 16 << 20  # bytes: below this, starting threads takes longer than it saves
NOTHING_TO_SYNC = (errno.EINVAL, errno.EROFS)  # a read-only file system
SEVERAL = "sluice 2026-11-26 model of several files"  # BLAKE3's derive_key context


def of(parts: "Sequence[Part]", directory: str | None, more: "Sequence[bytes]" = ()) -> bytes:
    """Return the ID, bytes [32], of the model in the files `parts` and in `more`.

    parts: gguf.part.Part each. more: contents (bytes) of files that were read whole. directory:
    the cache of digests, or None. Error 74 if a file changed since it was opened. A file that
    is truncated while it is hashed ends the process with one line and status 74.
    """
    digests = [digest(part, directory) for part in parts]
    if more:
        digests += [_blake3()(data).digest() for data in more]
    if len(digests) == 1:
        return digests[0]
    return _blake3()(b"".join(digests), derive_key_context=SEVERAL).digest()


def digest(part: "Part", directory: str | None) -> bytes:
    """Return the BLAKE3 of the file `part`, cached in `directory` or computed and then cached.
    Error 74.
    """
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
    """Return the ID that earlier versions gave a GGUF.

    It is the SHA-256 of the size in bytes, all bytes before the tensor data, and the first 4
    KiB of each tensor.
    """
    import hashlib

    h = hashlib.sha256(b"sluice model 1\n" + struct.pack("<Q", size))
    h.update(head)
    for data in samples:
        h.update(data)
    return h.digest()


# hashing


def _blake3():
    from blake3 import blake3  # takes a millisecond, which most commands save

    return blake3


def _hash(part):
    h = _hasher(part.size)
    for at in range(0, part.size, WINDOW):
        _add(h, part, at, min(WINDOW, part.size - at))
    return h.digest()


def _hasher(n_bytes):
    """Return a hash object; for many bytes one that uses all cores, if the system grants
    threads.
    """
    n = 1
    if n_bytes >= THREADS_FROM:
        from ..system import cpus

        n = cpus.n_threads()
    if n > 1 and _can_start(2 * n):
        try:
            return _blake3()(max_threads=n)
        except BaseException as e:  # another process used them up meanwhile
            if type(e).__name__ != "PanicException":  # it has no public name
                raise
    return _blake3()()


def _can_start(n):
    """Whether the system grants `n` more threads. If it does not, the library panics, with many
    lines on stderr.
    """
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
    """Hash through a map: nothing is copied, and pages that are not in the page cache are read
    in large pieces (system/huge_pages.py).
    """
    import mmap

    try:
        window = mmap.mmap(part.fd, n_bytes, mmap.MAP_PRIVATE, mmap.PROT_READ, offset=at)
    except ValueError:  # truncated since it was opened
        raise part.changed() from None
    huge_pages.ask(window)
    with window, ffi.from_buffer(window) as start:
        mapping.begin(start, n_bytes, part.path)
        try:
            h.update(window)
        finally:
            lib.guard_forget(start)


# is the file unchanged


def _stat(part):
    """Return os.fstat of the file now. Error 74 if it differs from when the file was opened."""
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
    """Whether a process has the file of `fd` open for writing, or has a writable shared map of
    it.

    Only without a writer does Linux grant a lease to read it (F_SETLEASE); the lease is given
    back at once. False if leases are unknown, or not for this user and this file system.
    """
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


# the cache


def _path(directory, s):
    return os.path.join(directory, f"{s.st_dev:x}-{s.st_ino:x}{SUFFIX}")


def _entry(s, digest):
    """Return the cache line for a file whose os.fstat is `s`."""
    line = b"%b %d %d %d %d %d %b " % (MAGIC, *_key(s), digest.hex().encode())
    return line + b"%08x\n" % lib.crc32c(0, line, len(line))


def _recall(directory, s):
    """Return the cached digest for a file whose os.fstat is `s`, or None."""
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
