"""Atomic file writes: a file appears under its name whole, or not at all.

A file is written without a name (O_TMPFILE), so a killed writer leaves nothing. If the file system
cannot do that, it gets a temporary name, which the next writer in the directory removes. A writer
holds a lock (flock) on its file while it lives; the lock distinguishes a file in progress from a
leftover.
"""

import errno
import os
import stat

from ..faults import BAD_DATA, IO_ERROR, NO_OUTPUT, TRY_AGAIN, USAGE, Error, data_error

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

FULL = (errno.ENOSPC, errno.EDQUOT, errno.ENOMEM)
# errors of kernels and file systems without it
NO_TMPFILE = (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOENT)
NO_COPY = (errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM, errno.EBADF)
PREFIX, SUFFIX = ".sluice-", ".tmp"


def write_error(path: str, e: "OSError", code: int = IO_ERROR) -> "Error":
    """Return the Error for OSError `e` while writing `path`: 75 if the disk is full, else
    `code`.
    """
    return Error(TRY_AGAIN if e.errno in FULL else code, f"{path}: cannot write: {e.strerror}")


def nameless(directory: str) -> tuple[int, str | None]:
    """Create a file without a name in `directory`, mode 0600, locked. Return (descriptor,
    None).

    If the file system cannot do that, return (descriptor, temporary path).
    """
    import fcntl

    _sweep(directory)
    fd, path = None, None
    if hasattr(os, "O_TMPFILE") and os.path.isdir("/proc/self/fd"):  # giving it a name needs /proc
        try:
            fd = os.open(directory, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
        except OSError as e:
            if e.errno not in NO_TMPFILE or not os.path.isdir(directory):
                raise
    if fd is None:
        path = _temporary(directory)
        fd = os.open(path, os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        os.fchmod(fd, 0o600)  # independent of the umask
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # another writer removed it as a leftover before the lock was held
        swept = path and not os.fstat(fd).st_nlink
    except OSError as e:
        swept = path and e.errno == errno.EWOULDBLOCK  # or is about to be
        # no locks on this file system: then no writer removes leftovers either
        if not swept and e.errno not in (errno.ENOLCK, errno.EOPNOTSUPP):
            os.close(fd)
            if path:
                unlink(path)
            raise
    if swept:
        os.close(fd)
        return nameless(directory)
    return fd, path


def check_target(target: str, *sources: str | None) -> None:
    """Error 73 or 75 if `publish` would refuse `target`: it is called before the work, not
    after it.

    Error 64 if `target` is, by any path, one of `sources` (paths or None), or a shard of the
    model of which a source is a shard.
    """
    for source in (path for source in sources if source for path in (source, *_shards(source))):
        if os.path.exists(source) and os.path.exists(target) and os.path.samefile(source, target):
            raise Error(
                USAGE, f"{target} is {source}: the output is also the input; write another file"
            )
    directory = os.path.dirname(target) or "."
    try:
        _refuse_special(target)
        fd, path = nameless(directory)
    except OSError as e:
        raise write_error(target, e, NO_OUTPUT) from None
    os.close(fd)
    if path:
        unlink(path)


def _shards(path):
    """Return the paths of the shards next to `path`, if it is a shard."""
    if not any("-of-" in name for name in (os.fspath(path), os.path.realpath(path))):
        return ()
    from . import shard_names

    return shard_names.beside(path)


def write(
    target: str, fill: "Callable[[Any], object]", mode: int | None = None, sync: bool = True
) -> None:
    """Write the file `target` atomically; `fill` writes its contents to the open binary file it
    gets.

    mode: None: the default mode, by the umask. sync: wait until the file is on disk; without
    it, a crash of the system can leave a truncated file. Error 73, 74 or 75, and `target` stays
    as it was.
    """
    fd, path = _filled(target, fill, mode, sync)
    try:
        publish(fd, path, target, sync)
        path = None
    finally:
        os.close(fd)
        if path:
            unlink(path)


def _filled(target, fill, mode=None, sync=True):
    """Create the file of `write` without its name. Return (descriptor, temporary path or None)."""
    try:
        fd, path = nameless(os.path.dirname(target) or ".")
    except OSError as e:
        raise write_error(target, e, NO_OUTPUT) from None
    try:
        with open(fd, "wb", closefd=False) as f:
            fill(f)
        os.fchmod(fd, 0o666 & ~_umask() if mode is None else mode)
        if sync:
            os.fsync(fd)
        return fd, path
    except BaseException as e:
        os.close(fd)
        if path:
            unlink(path)
        if isinstance(e, OSError):
            raise write_error(target, e) from None
        raise


def write_all(files: "list[tuple[str, Any]]") -> None:
    """Write several new files, all or none. files: list of (target, fill) as of `write`.

    All are written and synced before the first gets its name. Names are given from the last to
    the first: if the process is killed meanwhile, the first file is missing. Error 73, 74 or
    75; 73 if one of the files exists already.
    """
    for target, _ in files:
        if os.path.lexists(target):
            raise Error(NO_OUTPUT, f"{target}: exists: files of a set are not replaced")
    made = []
    try:
        for target, fill in files:
            made.append((*_filled(target, fill), target))
        for i in range(len(made) - 1, -1, -1):
            publish(*made[i])
            made[i] = made[i][0], None, made[i][2]
    except BaseException:
        for fd, _, target in made:
            if os.path.lexists(target) and os.path.samestat(os.lstat(target), os.fstat(fd)):
                unlink(target)
        raise
    finally:
        for fd, path, _ in made:
            os.close(fd)
            if path:
                unlink(path)


def _umask():
    mask = os.umask(0)
    os.umask(mask)
    return mask


def publish(fd: "Any", path: str | None, target: str, sync: bool = True) -> None:
    """Name the synced file `fd` `target`, and sync the directory, unless `sync` is false.

    path: its temporary path, or None. `target` may be absent or a regular file, which is
    replaced. Error 73 or 75 with `target` as it was and no temporary name left; 74 if only the
    last sync failed.
    """
    directory = os.path.dirname(target) or "."
    try:
        directory_fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as e:
        raise write_error(target, e, NO_OUTPUT) from None
    try:
        _refuse_special(target)
        _name(fd, path, target, directory_fd)
        if sync:
            _sync_directory(directory_fd, target)
    finally:
        os.close(directory_fd)


def _name(fd, path, target, directory_fd):
    """Give `fd` its name, in one step even if another file has that name."""
    try:
        if path is None:
            nameless = f"/proc/self/fd/{fd}"
            try:
                return os.link(nameless, os.path.basename(target), dst_dir_fd=directory_fd)
            except FileExistsError:
                path = _temporary(os.path.dirname(target))
                os.link(nameless, os.path.basename(path), dst_dir_fd=directory_fd)
        os.rename(path, target)
    except OSError as e:
        if path is not None:
            unlink(path)
        raise write_error(target, e, NO_OUTPUT) from None


def _refuse_special(target):
    try:
        mode = os.lstat(target).st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISREG(mode):
        kind = {stat.S_IFLNK: "a symbolic link", stat.S_IFDIR: "a directory"}.get(
            stat.S_IFMT(mode), "not a regular file"
        )
        raise Error(NO_OUTPUT, f"{target}: is {kind}: only a regular file is replaced")


def _sync_directory(fd, target):
    try:
        os.fsync(fd)
    except OSError as e:
        if e.errno != errno.EINVAL:  # directories of this file system need no sync
            raise write_error(target, e) from None


def _temporary(directory):
    return os.path.join(directory, f"{PREFIX}{os.urandom(8).hex()}{SUFFIX}")


def unlink(path: str) -> None:
    """Remove `path` if it can be removed."""
    try:
        os.unlink(path)
    except OSError:
        pass


def _sweep(directory):
    """Remove temporary names in `directory` whose writers are dead. Errors are ignored."""
    import fcntl

    for name in os.listdir(directory):
        if not (name.startswith(PREFIX) and name.endswith(SUFFIX)):
            continue
        path = os.path.join(directory, name)
        try:
            fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            if stat.S_ISREG(os.fstat(fd).st_mode) and os.fstat(fd).st_uid == os.geteuid():
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                unlink(path)
        except OSError:
            pass
        finally:
            os.close(fd)


def copy_range(to_fd: int, to: int, from_fd: int, at: int, n_bytes: int) -> int:
    """Copy up to `n_bytes` between files within the kernel, which may share blocks.

    Returns the bytes copied; 0 if the kernel cannot copy.
    """
    done = 0
    try:
        while done < n_bytes:
            n = os.copy_file_range(from_fd, to_fd, n_bytes - done, at + done, to + done)
            if n == 0:
                break
            done += n
    except AttributeError:  # absent on this system
        pass
    except OSError as e:
        if e.errno not in NO_COPY:
            raise
    return done


def make_directory_of(path: str) -> None:
    """Make the directory of the file at `path`, mode 0700, if it is missing. Error 73 or 75."""
    directory = os.path.dirname(os.path.abspath(path))
    try:
        os.makedirs(directory, 0o700, exist_ok=True)
    except OSError as e:
        raise write_error(directory, e, NO_OUTPUT) from None


def open_trusted(path: str, owner: int | None = None) -> int:
    """Open the regular file `path`, which only its owner, this user, root or the user `owner`,
    could have written.

    Returns a read-only descriptor. DataError for a symbolic link, a file of another kind or
    owner, or one that its group or others can write. OSError if it cannot be opened. A below.Below
    is opened by its own rules.
    """
    if not isinstance(path, str) and hasattr(path, "open_trusted"):
        return int(path.open_trusted())
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as e:
        if e.errno == errno.ELOOP:
            raise data_error(path, "is a symbolic link; name the file itself") from None
        raise
    if problem := distrust(os.fstat(fd), stat.S_ISREG, "regular file", owner):
        os.close(fd)
        raise Error(BAD_DATA, f"{path}: {problem}")
    return fd


def distrust(
    s: "os.stat_result", is_kind: "Callable[[int], bool]", kind: str, owner: int | None = None
) -> str | None:
    """Return why the file whose os.stat is `s` cannot be trusted, or None.

    Reasons: it is no `kind`, or a user other than this one, root or `owner` could have
    written it.
    """
    if not is_kind(s.st_mode):
        return f"is not a {kind}"
    if s.st_uid not in (os.geteuid(), 0, owner):
        return f"is owned by user {s.st_uid}, not by this user"
    if s.st_mode & 0o022:
        return f"could have been written by other users: its mode is {stat.S_IMODE(s.st_mode):04o}"
    return None
