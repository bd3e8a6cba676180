"""Renderings of chat templates, kept in a directory: a process of its own renders a template, which
takes longer than all else that a short prompt needs.

A rendering has random placeholders where messages were, so it holds no text of a message. It is
kept under the SHA-256 of all on which it depends (template.Template): the template, its variables,
and of each message its role, the white space around it, and its marks of thinking. A template that
prints the time is not kept. The directory is that of a prompt cache: nobody else can write there.
"""

import json
import os

from ..faults import Error
from ..system import files
from ..system.cache_directory import trim

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

SUFFIX = ".rendering"
MAX_FILES = 1024
MAX_BYTES = 1 << 20  # of one; a longer conversation is rendered each time
MAX_HERE = 64  # that a process keeps
FORM = 2  # of what renderer.py makes of a request: another number, other files


class Renderings:
    """The renderings in `directory`, which exists and can be trusted; None: in this process."""

    def __init__(self, directory: str | None) -> None:
        self._directory = directory
        self._here: dict[str, tuple[list[str], list[str]]] = {}

    def get(self, shape: "Any") -> "tuple[list[str], list[str]] | None":
        """Return (placeholders, texts) of `shape`, or None if there are none, or not whole."""
        path = self._path(shape)
        if path is None or path in self._here or self._directory is None:
            return self._here.get(path or "")
        try:
            fd = files.open_trusted(path)
        except (OSError, Error):
            return None
        with open(fd, "rb") as f:
            digest, _, data = f.read(MAX_BYTES + 1).partition(b"\n")
        if _sha256(data).encode() != digest:
            return None
        nonces, texts = json.loads(data)
        return nonces, texts

    def put(self, shape: "Any", rendering: "tuple[list[str], list[str]]") -> None:
        """Keep `rendering` as that of `shape`. A file that cannot be written is none."""
        data, path = json.dumps(rendering).encode(), self._path(shape)
        if path is None or len(data) > MAX_BYTES - 65:
            return
        if len(self._here) < MAX_HERE:
            self._here[path] = rendering
        if self._directory is None:
            return
        try:
            fd, name = files.nameless(self._directory)
        except OSError:
            return
        try:
            with open(fd, "wb", closefd=False) as f:
                f.write(_sha256(data).encode() + b"\n" + data)
            files.publish(fd, name, path)
        except (OSError, Error):
            return
        finally:
            os.close(fd)
        trim(self._directory, SUFFIX, MAX_FILES)

    def _path(self, shape):
        if shape is None:
            return None
        try:
            data = json.dumps([FORM, shape], sort_keys=True).encode()
        except RecursionError:  # a variable is nested too deeply: the renderer says so
            return None
        digest = _sha256(data)
        return os.path.join(self._directory or "", digest[:32] + SUFFIX)


def _sha256(data):
    """Return the digest of `data` in hexadecimal digits."""
    import hashlib  # slow to load, and not always needed

    return hashlib.sha256(data).hexdigest()
