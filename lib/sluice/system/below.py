"""A file in a directory of its user, below a directory of the administrator: DIR/USER/FILE.

Each step is opened relative to the last (openat), no symbolic link is followed, and what is opened
is checked, not what has its name later.
"""

import os
import stat

from ..faults import BAD_DATA, Error

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MAX_BYTES = 24 << 20
FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Below:
    """The file `name` in the directory `user` of `directory`; a path for open(2) and stat(2).

    It may belong to root, this process's user, the owner of `directory`, who could replace it in
    any case, or the account that is called `user`.
    """

    def __init__(self, directory: str, user: str, name: str) -> None:
        self._directory, self._user, self._name = directory, user, name

    def __fspath__(self) -> str:
        return os.path.join(self._directory, self._user, self._name)

    __str__ = __fspath__

    def open_trusted(self) -> int:
        """Return a read-only descriptor. DataError for a link, a file that is not regular, larger
        than MAX_BYTES, of another owner, or writable by its group or others; so for the
        directories. OSError if it cannot be opened.
        """
        top = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        place = -1
        try:
            s = os.fstat(top)
            if s.st_mode & 0o022:
                raise self._error(self._directory, s, "could have been written by other users")
            owners = {0, os.geteuid(), s.st_uid}
            place = self._open(top, self._user, os.O_DIRECTORY, self._directory, owners)
            return self._open(place, self._name, 0, os.path.dirname(self), owners)
        finally:
            os.close(top)
            if place >= 0:
                os.close(place)

    def _open(self, directory, name, flags, shown, owners):
        path = os.path.join(shown, name)
        try:
            fd = os.open(name, FLAGS | flags, dir_fd=directory)
        except OSError as e:
            if stat.S_ISLNK(_mode(name, directory)):
                raise Error(
                    BAD_DATA, f"{path}: is a symbolic link, which is not followed"
                ) from None
            raise OSError(e.errno, e.strerror, path) from None
        s = os.fstat(fd)
        why = None
        if not flags and not stat.S_ISREG(s.st_mode):
            why = "is not a regular file"
        elif not flags and s.st_size > MAX_BYTES:
            why = f"is larger than {MAX_BYTES} bytes"
        elif s.st_uid not in owners and s.st_uid != _uid(self._user):
            why = f"is owned by user {s.st_uid}, not by {self._user}"
        elif s.st_mode & 0o022:
            why = "could have been written by other users"
        if why:
            os.close(fd)
            raise self._error(path, s, why)
        return fd

    def _error(self, path: str, s: "Any", why: str) -> Error:
        mode = f": its mode is {stat.S_IMODE(s.st_mode):04o}" if "written" in why else ""
        return Error(BAD_DATA, f"{path}: {why}{mode}")


def _mode(name: str, directory: int) -> int:
    try:
        return os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode
    except OSError:
        return 0


def _uid(user: str) -> int:
    """The number of the account, -1 if there is none."""
    import pwd

    try:
        return pwd.getpwnam(user).pw_uid
    except (KeyError, OSError):
        return -1
