"""Change the file of what was learned, safe from other writers and from kill -9.

A lock (FILE.lock, an empty file that stays) is held from reading the file to replacing it, so
concurrent changes are not lost. A process waits WAIT_S seconds for it. The file is replaced
atomically.
"""

import contextlib
import os
import time

from ..faults import IO_ERROR, NO_OUTPUT, TRY_AGAIN, Error
from ..system import files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .book import Book

WAIT_S = 20.0


def update(path: str, change: "Callable[[Book], None]") -> "Book":
    """Read the file at `path`, call change(book), write what the book is then, and return it.

    Raises DataError for a damaged file, Error 73, 74 or 75 if it cannot be written, and what
    `change` raises; the file stays as it was then.
    """
    from . import book as books

    files.make_directory_of(path)
    with locked(path):
        book = books.read(path)
        change(book)
        write(path, book)
    return book


def write(path: str, book: "Book") -> None:
    """Replace the file at `path`, which is locked."""
    data = book.dump()
    files.write(path, lambda f: f.write(data), mode=_mode(path))


def _mode(path):
    """Return mode 0600, with the read bits that the owner gave to others in the present file."""
    try:
        return 0o600 | os.stat(path).st_mode & 0o044
    except OSError:
        return 0o600


@contextlib.contextmanager
def locked(path: str) -> "Iterator[None]":
    """Hold the lock of the file at `path`. Raises Error 73, 74 or 75."""
    import fcntl

    name = path + ".lock"
    try:
        fd = os.open(
            name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600
        )
    except OSError as e:
        raise files.write_error(name, e, NO_OUTPUT) from None
    try:
        end = time.monotonic() + WAIT_S
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > end:
                    raise Error(
                        TRY_AGAIN, f"{name}: another process has held the lock for {WAIT_S:.0f} s"
                    ) from None
                time.sleep(0.02)
            except OSError as e:
                raise Error(IO_ERROR, f"{name}: cannot lock: {e.strerror}") from None
        yield
    finally:
        os.close(fd)
