"""The files of a folder: those of a Maildir (`cur` and `new`), or all that lie in it.

Names that begin with a dot, and what is no regular file, are passed over. Files come in the order
of their names, folder by folder, so two runs name them in the same order.
"""

import os
import stat

from ..faults import DataError, data_error

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

MAILDIR = ("cur", "new")
MAX_DEPTH = 64  # folders below each other


def paths(folder: str, recursive: bool = False) -> "Iterator[str | OSError | DataError]":
    """Yield the paths of the files in `folder`, and what keeps a folder from being read.

    recursive: in the folders below it, too, and a Maildir's `.Folder`s (Maildir++). Links to files
    are followed, links to folders are not, so no file comes twice by a circle.
    """
    yield from _paths(folder, recursive, 0)


def _paths(folder, recursive, depth):
    if depth > MAX_DEPTH:
        yield data_error(folder, f"is more than {MAX_DEPTH} folders deep")
        return
    try:
        with os.scandir(folder) as found:
            entries = sorted(found, key=lambda entry: os.fsencode(entry.name))
    except OSError as e:
        yield e
        return
    below = {entry.name for entry in entries if entry.is_dir(follow_symlinks=False)}
    is_maildir = below.issuperset(MAILDIR)
    if is_maildir:
        yield from _mails(folder)
        below = {name for name in below if name.startswith(".")}
    else:
        yield from _regular(entries)
        below = {name for name in below if not name.startswith(".")}
    if recursive:
        for name in sorted(below, key=os.fsencode):
            yield from _paths(os.path.join(folder, name), recursive, depth + 1)


def _mails(folder):
    """The mails of a Maildir. One that is moved from `new` to `cur` meanwhile comes once: `new` is
    listed first, and what is in both by then is taken as it is in `cur`.
    """
    found, failed = {}, []
    for kind in ("new", "cur"):
        try:
            with os.scandir(os.path.join(folder, kind)) as entries:
                found.update((unique_name(path), path) for path in _regular(entries))
        except OSError as e:
            failed.append(e)
    yield from sorted(found.values(), key=os.fsencode)
    yield from failed


def is_maildir(folder: str) -> bool:
    """Whether there is a Maildir at `folder`."""
    return all(os.path.isdir(os.path.join(folder, kind)) for kind in MAILDIR)


def lasting_name(path: str) -> str:
    """The path of a file, or of a Maildir's message what stays of it when its reader marks it."""
    place, name = os.path.split(path)
    root, kind = os.path.split(place)
    return os.path.join(root, unique_name(name)) if kind in MAILDIR else path


def unique_name(path: str) -> str:
    """What stays of the name of a Maildir's mail when its flags change."""
    return os.path.basename(path).partition(":")[0]


def _regular(entries):
    for entry in entries:
        if not entry.name.startswith(".") and entry.is_file():
            yield entry.path


def open_file(path: str) -> int:
    """A descriptor of the regular file at `path`. OSError; DataError where it is none.

    A mail that a reader has marked or taken out of `new` meanwhile is found under its new name.
    """
    fd = _opened(path)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise data_error(path, "is not a regular file")
    return fd


def _opened(path):
    # a pipe without a writer would be waited for
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
    try:
        return os.open(path, flags)
    except FileNotFoundError:
        folder, name = os.path.split(path)
        root, kind = os.path.split(folder)
        if kind not in MAILDIR:
            raise
        base = unique_name(name)
        for kind in MAILDIR:
            try:
                names = os.listdir(os.path.join(root, kind))
            except OSError:
                continue
            for other in names:
                if unique_name(other) == base:
                    return os.open(os.path.join(root, kind, other), flags)
        raise
