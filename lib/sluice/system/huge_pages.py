"""Huge pages: memory in pages of 2 MiB, if the kernel has them (madvise(2), MADV_HUGEPAGE).

Tensor data are mapped in pages of the page cache's size: 2 MiB if Linux and the file system keep
the file in large folios (ext4 since Linux 6.16, XFS); 4 KiB if the file was written in small pieces
or memory was fragmented. `--huge-pages` copies them into anonymous memory instead, for which the
kernel compacts memory if necessary. csrc/README.md has gain and cost.
"""

from ..faults import IO_ERROR, TRY_AGAIN, Error, unsupported_error

TYPE_CHECKING = False
if TYPE_CHECKING:
    import mmap

ENABLED = "/sys/kernel/mm/transparent_hugepage/enabled"
PIECE = 1 << 23  # bytes of a read


def ask(area: "mmap.mmap") -> None:
    """Request huge pages for `area`, a mmap.mmap; no effect if there are none."""
    import mmap

    if hasattr(mmap, "MADV_HUGEPAGE"):
        try:
            area.madvise(mmap.MADV_HUGEPAGE)
        except OSError:  # the kernel has none
            pass


def of_file(fd: int, start: int, n_bytes: int, path: str, is_copied: bool = False) -> "mmap.mmap":
    """Return bytes start ... start + n_bytes - 1 of the file `fd` as a mmap.mmap.

    It is a read-only map, or with `is_copied` a copy in huge pages. start: a multiple of
    mmap.ALLOCATIONGRANULARITY. path: for messages.

    Pages that the map is the first to read enter the page cache in pieces of 2 MiB, if kernel
    and file system can do that. Every later process then needs one page fault instead of 32 (of
    16 pages each, 0.1 s of processor time in 1 GB).

    ValueError if the file is shorter; UnsupportedError if the kernel has no huge pages; 74 if
    the file cannot be read; 75 if there is not enough memory for a copy.
    """
    import mmap

    if is_copied:
        return _copy(fd, start, n_bytes, path)
    area = mmap.mmap(fd, n_bytes, mmap.MAP_PRIVATE, mmap.PROT_READ, offset=start)
    ask(area)
    return area


def _copy(fd, start, n_bytes, path):
    import mmap
    import os

    _check(n_bytes, path)
    try:
        area = mmap.mmap(-1, n_bytes, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError:
        raise _not_enough_memory(n_bytes, path) from None
    ask(area)
    at = 0
    with memoryview(area) as view:
        while at < n_bytes:
            with view[at : at + PIECE] as piece:
                try:
                    n = os.preadv(fd, [piece], start + at)
                except OSError as e:
                    raise Error(IO_ERROR, f"{path}: {e.strerror}") from None
            if not n:
                raise ValueError("the file is shorter")
            at += n
    return area


def _check(n_bytes, path):
    """UnsupportedError if the kernel has no huge pages on request; 75 without memory for
    `n_bytes`.
    """
    try:
        with open(ENABLED) as f:
            has = "[never]" not in f.read()
    except OSError:
        has = False
    if not has:
        raise unsupported_error(
            "--huge-pages", f"this system has no huge pages: {ENABLED} is absent or says never"
        )
    from . import memory

    free = memory.available()
    if free is not None and n_bytes > free:
        raise _not_enough_memory(n_bytes, path, f", of which {max(0, free) / 1e9:.2f} can be had")


def _not_enough_memory(n_bytes, path, free=""):
    return Error(
        TRY_AGAIN,
        f"{path}: --huge-pages needs {n_bytes / 1e9:.2f} GB of memory{free}; without it the file is"
        " mapped",
    )
