"""Bounded reader of weight files and JSON files, both checked."""

from __future__ import annotations

import builtins
import json
import os
import re
import stat
from collections.abc import Callable
from typing import Any

from ..faults import IO_ERROR, Error, data_error


class Reader:
    """An open regular file. DataError for another kind; 74 if it becomes shorter; OSError."""

    def __init__(self, path: str | os.PathLike) -> None:
        self.path = os.fspath(path)
        self._fd = -1
        self._fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
        self._stat = s = os.fstat(self._fd)
        if not stat.S_ISREG(s.st_mode):
            raise data_error(
                self.path, "is a directory" if stat.S_ISDIR(s.st_mode) else "not a regular file"
            )
        self.size = s.st_size

    def __del__(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)

    def bytes(self, at: int, n: int) -> builtins.bytes:
        """Return `n` bytes from `at` on."""
        out = []
        while n:
            try:
                data = os.pread(self._fd, min(n, 1 << 30), at)
            except OSError as e:
                raise Error(IO_ERROR, f"{self.path}: {e.strerror}") from None
            if not data:
                raise Error(IO_ERROR, f"{self.path}: the file became shorter while it was read")
            out.append(data)
            at, n = at + len(data), n - len(data)
        return out[0] if len(out) == 1 else b"".join(out)

    def check_unchanged(self) -> None:
        """Error 74 if the file was overwritten, truncated or touched since it was opened."""
        then, now = self._stat, os.fstat(self._fd)
        if (then.st_size, then.st_mtime_ns) != (now.st_size, now.st_mtime_ns):
            raise Error(IO_ERROR, f"{self.path}: the file was changed while it was in use")

    def rows(self, dtype: Any, at: int, n_in: int) -> Callable[[int, int], Any]:
        """Return a function `read` of a Tensor whose rows are consecutive from byte `at` on."""
        import numpy as np

        return lambda first, n: np.frombuffer(
            self.bytes(at + first * n_in * dtype.itemsize, n * n_in * dtype.itemsize), dtype
        ).reshape(n, n_in)


def read_small(path: str, maximum: int) -> bytes:
    """Return the bytes of a file. DataError: more than `maximum`."""
    r = Reader(path)
    if r.size > maximum:
        raise data_error(path, f"{r.size} bytes, more than {maximum >> 20} MiB")
    return r.bytes(0, r.size)


def parse_json(path: str, data: bytes, kind: type = dict) -> Any:
    """Return the object in `data` (bytes), or the list if `kind` is list.

    DataError: not JSON, a duplicate name in an object, no object at the top, or nested too
    deeply.
    """

    def once(pairs):
        out = dict(pairs)
        if len(out) < len(pairs):
            seen = set()
            name = next(k for k, _ in pairs if k in seen or seen.add(k))
            raise ValueError(f"the name {json.dumps(name)[:80]} appears twice in an object")
        return out

    try:
        found = json.loads(data, object_pairs_hook=once)
    except RecursionError:
        raise data_error(path, "nested too deeply") from None
    except ValueError as e:  # UnicodeDecodeError too
        raise data_error(path, f"not JSON: {str(e)[:120]}") from None
    if not isinstance(found, kind):
        raise data_error(path, "is not an object" if kind is dict else "is not a list")
    # half a surrogate pair is no character, and UTF-8 cannot express it
    if re.search(rb"\\u[dD][89a-fA-F]", data):
        try:
            json.dumps(found, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise data_error(path, "not JSON: half of a surrogate pair in a string") from None
    return found


def read_json(path: str, maximum: int) -> dict[str, Any]:
    """Return the object in a JSON file of at most `maximum` bytes. DataError."""
    return parse_json(path, read_small(path, maximum))
