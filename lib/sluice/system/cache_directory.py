"""User cache directory: its path, whether it can be trusted, and its size limit."""

import os
import stat

from ..faults import NO_OUTPUT, Error
from . import files


def home() -> str | None:
    """Return the path of sluice in $XDG_CACHE_HOME or ~/.cache; None without a home directory.

    A home that does not exist counts as none: daemons have such homes (`/nonexistent`), and it
    is not created.
    """
    base = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(base):
        home = os.environ.get("HOME", "")
        if not os.path.isabs(home) or not os.path.isdir(home):
            return None
        base = os.path.join(home, ".cache")
    return os.path.join(base, "sluice")


def usable(directory: str | None) -> str | None:
    """Return `directory`, created with its parents if absent. None if it is None, cannot be
    created, or cannot be trusted.
    """
    if not directory:
        return None
    try:
        prepare_path(directory)
    except (Error, OSError):
        return None
    return directory


def prepare_path(directory: str) -> None:
    """As `prepare`, for `directory` and all its parents."""
    try:
        os.makedirs(os.path.dirname(os.path.abspath(directory)), 0o700, exist_ok=True)
    except OSError as e:
        raise files.write_error(directory, e, NO_OUTPUT) from None
    prepare(directory)


def prepare(directory: str) -> None:
    """Create `directory`, mode 0700, if absent. Error 73 if that fails or it cannot be trusted."""
    try:
        os.mkdir(directory, 0o700)
    except FileExistsError:
        pass
    except OSError as e:
        raise files.write_error(directory, e, NO_OUTPUT) from None
    check(directory)


def check(directory: str) -> None:
    """Error 73 unless `directory` is a directory of this user or root in which no other user
    can write.
    """
    if problem := files.distrust(os.stat(directory), stat.S_ISDIR, "directory"):
        raise Error(NO_OUTPUT, f"{directory}: {problem}: not used as a cache")


def trim(directory: str, suffix: str, max_files: int, max_bytes: int | None = None) -> None:
    """Remove files in `directory` that end in `suffix`, oldest mtime first, until both limits
    hold.

    max_bytes: of disk; None: no limit. The newest file always stays: it was just requested.
    """
    found = []
    for entry in os.scandir(directory):
        if entry.name.endswith(suffix):
            try:
                s = entry.stat(follow_symlinks=False)
            except FileNotFoundError:  # another process was faster
                continue
            if stat.S_ISREG(s.st_mode):
                found.append((s.st_mtime_ns, entry.path, s.st_blocks * 512))
    total = 0
    for n, (_, path, n_bytes) in enumerate(sorted(found, reverse=True)):
        total += n_bytes
        if n and (n >= max_files or max_bytes is not None and total > max_bytes):
            files.unlink(path)
