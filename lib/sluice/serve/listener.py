"""The Unix socket that workers listen on, created here or by systemd (sd_listen_fds(3)), and
notifications of systemd.

A socket created here is bound under a temporary name and then renamed: a client finds the old
socket or the new one. The mode is set before the rename. An existing socket is replaced, even if a
process listens on it; any other file is an error.
"""

import errno
import os
import socket
import stat

from ..faults import NO_OUTPUT, USAGE, Error, data_error
from ..system import files

# connections that wait for a worker; the next client waits in connect(2), or gets EAGAIN
BACKLOG = 128
MAX_PATH = 107  # bytes: sun_path of unix(7) without its NUL
PASSED = 3  # the first descriptor that systemd passes
SO_ACCEPTCONN = getattr(socket, "SO_ACCEPTCONN", 30)


class Listener:
    """socket: listening, not blocking.
    path: as given.
    passed: whether systemd created it; then it stays when this process ends.
    """

    def __init__(self, path: str, mode: int) -> None:
        self.path = path
        passed = _passed(path)
        self.passed = passed is not None
        if passed is not None:
            self.socket = passed
        else:
            self.socket, self._id = _own(path, mode)
        self.socket.setblocking(False)

    def is_named(self) -> "bool | None":
        """True while the socket has its name; None if it was removed, False if something else is
        there.
        """
        if self.passed:
            return True
        try:
            return bool(_id(self.path) == self._id)
        except FileNotFoundError:
            return None
        except OSError:  # of a file system that is gone for a moment
            return True

    def end(self) -> None:
        """Accept no new connection; those that wait can still be accepted. The socket of systemd is
        left as it is.
        """
        if not self.passed:
            if self.is_named():
                files.unlink(self.path)
            self.socket.shutdown(socket.SHUT_RDWR)


def _own(path: str, mode: int) -> tuple[socket.socket, tuple[int, int]]:
    """(socket, its device and inode) at `path`. Error 73 if it cannot be created."""
    temporary = f"{path}.{os.getpid()}"
    n_bytes = len(os.fsencode(temporary))
    if n_bytes > MAX_PATH:
        raise Error(
            NO_OUTPUT,
            f"{path}: a socket's path has at most {MAX_PATH - n_bytes + len(os.fsencode(path))}"
            " bytes here",
        )
    s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        _check_directory(path)
        _refuse_other(path)
        _refuse_other(temporary)
        files.unlink(temporary)
        mask = os.umask(0o177)
        try:
            s.bind(temporary)
        finally:
            os.umask(mask)
        try:
            os.chmod(temporary, mode)
            s.listen(BACKLOG)
            found = _id(temporary)
            os.rename(temporary, path)
        except OSError:
            files.unlink(temporary)
            raise
    except OSError as e:
        raise Error(NO_OUTPUT, f"{path}: cannot listen: {e.strerror}") from None
    return s, found


def _check_directory(path: str) -> None:
    s = os.stat(os.path.dirname(path) or ".")
    if s.st_mode & 0o022 and not s.st_mode & stat.S_ISVTX:
        raise Error(
            NO_OUTPUT,
            f"{path}: others could put their socket there: the mode of the directory is"
            f" {stat.S_IMODE(s.st_mode):04o}",
        )


def _refuse_other(path: str) -> None:
    try:
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            raise Error(NO_OUTPUT, f"{path}: is there and no socket: only a socket is replaced")
    except FileNotFoundError:
        pass


def _id(path: str) -> tuple[int, int]:
    s = os.lstat(path)
    return s.st_dev, s.st_ino


def _passed(path: str) -> socket.socket | None:
    """The socket that systemd passed to this process, checked; None if none was. Error 64, 65."""
    if os.environ.get("LISTEN_PID") != str(os.getpid()):
        return None
    n = os.environ.get("LISTEN_FDS", "0")
    if n != "1":
        raise Error(USAGE, f"LISTEN_FDS: {n} descriptors were passed; one socket is served")
    try:
        s = socket.socket(fileno=PASSED)
        fits = (s.family, s.type) == (socket.AF_UNIX, socket.SOCK_STREAM) and s.getsockopt(
            socket.SOL_SOCKET, SO_ACCEPTCONN
        )
    except OSError as e:
        if e.errno not in (errno.EBADF, errno.ENOTSOCK):
            raise
        fits = False
    if not fits:
        raise data_error(
            f"descriptor {PASSED}",
            "LISTEN_FDS says that a socket was passed, but it is no listening Unix stream socket",
        )
    s.set_inheritable(False)
    name = s.getsockname()
    if not isinstance(name, str) or os.path.realpath(name) != os.path.realpath(path):
        raise Error(USAGE, f"--listen {path}: the socket that was passed is {name!r}")
    return s


def notify(*lines: str) -> None:
    """Notify systemd if $NOTIFY_SOCKET is set (sd_notify(3)): notify("READY=1"). Errors are
    ignored.
    """
    address = os.environ.get("NOTIFY_SOCKET", "")
    if address[:1] not in ("/", "@"):
        return
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
            s.setblocking(False)
            s.sendto(
                "\n".join(lines).encode(),
                address.replace("@", "\0", 1) if address[0] == "@" else address,
            )
    except OSError:
        pass
