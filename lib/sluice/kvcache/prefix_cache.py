"""Prefix cache: a directory of snapshots, found by their tokens.

A snapshot is called `<8 hex of the model ID>-<16 hex>.kv`. The second part begins the SHA-256 of a
line with its arithmetic and the number of its KV type, followed by its tokens as i32,
little-endian. The name is therefore known before the directory is read. A snapshot that is found is
checked like any other, and its tokens are compared.

There is no index and no lock: files are only replaced, the last writer wins, and a reader keeps the
file it opened. The directory contains private text: its mode is 0700, and it is refused if other
users could write there. Its size is bounded; the least recently used files are removed first.
"""

import os
import struct

from ..faults import Error
from ..system import files
from ..system.cache_directory import check, prepare, trim
from . import format
from .snapshot import Snapshot

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

MAX_BYTES = 1 << 30
MAX_FILES = 4096  # each costs a stat(2)
SUFFIX = ".kv"


def file_name(model_id: bytes, arithmetic: str, kv_type: int, tokens: "Sequence[int]") -> str:
    """Return the file name of the snapshot of `tokens` (sequence of int).

    model_id: bytes [32]. arithmetic: its name. kv_type: a number of format.KV_TYPES.
    """
    digest = _digest(arithmetic, kv_type)
    digest.update(_bytes(tokens))
    return _name(model_id, digest)


def find(
    directory: str,
    model_id: bytes,
    arithmetic: str,
    geometry: "Any",
    tokens: "Sequence[int]",
    report: "Callable[[str], object]" = lambda message: None,
) -> "Snapshot | None":
    """Return the opened Snapshot of the longest prefix of `tokens` in `directory`, or None.

    A damaged snapshot is skipped, removed and reported to `report`. One of another arithmetic,
    KV type or geometry is skipped. Error 73 if the directory cannot be trusted.
    """
    try:
        check(directory)
        names = os.listdir(directory)
    except FileNotFoundError:
        return None
    wanted = {}  # n_tok: [path], of this model
    for name in names:
        path = os.path.join(directory, name)
        if name.startswith(model_id[:4].hex() + "-") and name.endswith(SUFFIX):
            n_tok = _peek(path, model_id, arithmetic, geometry, report)
            if n_tok is not None and 1 <= n_tok <= len(tokens):
                wanted.setdefault(n_tok, []).append(path)
    prefixes, digest, done = [], _digest(arithmetic, geometry.kv_type), 0
    for n_tok in sorted(wanted):
        digest.update(_bytes(tokens[done:n_tok]))
        done = n_tok
        path = os.path.join(directory, _name(model_id, digest))
        if path in wanted[n_tok]:
            prefixes.append(path)
    for path in reversed(prefixes):
        s = _open(path, model_id, arithmetic, geometry, report)
        if s and s.tokens[: s.n_tok].tolist() == list(tokens[: s.n_tok]):
            _touch(path)
            return s
        if s:
            s.close()
    return None


def get(
    directory: str, model_id: bytes, arithmetic: str, geometry: "Any", tokens: "Sequence[int]"
) -> "Snapshot | None":
    """Return the opened Snapshot of exactly `tokens`. None if it is absent, or if it or the
    directory cannot be trusted.
    """
    path = os.path.join(directory, file_name(model_id, arithmetic, geometry.kv_type, tokens))
    try:
        check(directory)
        s = Snapshot.open(path, model_id, arithmetic, geometry)
    except (OSError, Error):
        return None
    if s.tokens[: s.n_tok].tolist() != list(tokens):
        s.close()
        return None
    _touch(path)
    return s


def find_common(
    directory: str,
    model_id: bytes,
    arithmetic: str,
    geometry: "Any",
    tokens: "Sequence[int]",
    report: "Callable[[str], object]" = lambda message: None,
) -> "tuple[Snapshot | None, int]":
    """Return the opened Snapshot in `directory` that begins with the most of `tokens`, and how
    many. It may go on with other tokens: then its rows up to there are of use, its logits not.

    (None, 0) without one. Otherwise as `find`.
    """
    try:
        check(directory)
        names = os.listdir(directory)
    except FileNotFoundError:
        return None, 0
    found = []  # (tokens in common, -tokens in all, path)
    for name in names:
        path = os.path.join(directory, name)
        if name.startswith(model_id[:4].hex() + "-") and name.endswith(SUFFIX):
            stored = _peek_tokens(path, model_id, arithmetic, geometry, report, len(tokens))
            n = _n_common(stored[1], tokens) if stored else 0
            if stored and n:
                found.append((n, -stored[0], path))
    for _, _, path in sorted(found, reverse=True):
        s = _open(path, model_id, arithmetic, geometry, report)
        if s:
            _touch(path)
            return s, _n_common(s.tokens[: min(s.n_tok, len(tokens))].tolist(), tokens)
    return None, 0


def store(directory: str, snapshot: "Snapshot", max_bytes: int = MAX_BYTES) -> str:
    """Seal `snapshot` under its name in `directory`, which is created if absent. Return its
    path.

    Then the oldest snapshots are removed until the rest take at most `max_bytes` of disk. Error
    73, 74 or 75.
    """
    prepare(directory)
    s = snapshot
    name = file_name(s.model_id, s.arithmetic, s.geometry.kv_type, s.tokens[: s.n_tok])
    path = os.path.join(directory, name)
    snapshot.seal(path)
    trim(directory, SUFFIX, MAX_FILES, max_bytes)
    return path


def _digest(arithmetic, kv_type):
    import hashlib  # slow to load, and not always needed

    return hashlib.sha256(f"{arithmetic} {kv_type}\n".encode())


def _bytes(tokens):
    return struct.pack(f"<{len(tokens)}i", *tokens)


def _name(model_id, digest):
    return f"{model_id[:4].hex()}-{digest.hexdigest()[:16]}{SUFFIX}"


def _n_common(a, b):
    """Return the number of tokens with which both sequences begin."""
    n = min(len(a), len(b))
    if a[:n] == b[:n]:
        return n
    return next(i for i in range(n) if a[i] != b[i])


def _peek(path, model_id, arithmetic, geometry, report):
    """Return n_tok of the snapshot at `path`, or None unless its header is sound and of this
    model.
    """
    found = _peek_tokens(path, model_id, arithmetic, geometry, report)
    return None if found is None else found[0]


def _peek_tokens(path, model_id, arithmetic, geometry, report, maximum=None):
    """Return (n_tok, the first `maximum` tokens) of the snapshot at `path`, its header checked,
    its tokens not; or None unless it is of this model.
    """
    try:
        fd = files.open_trusted(path)
    except (OSError, Error):
        return None  # gone, or not removable by this user
    try:
        h = format.read_header(fd, path)
        tokens = os.pread(fd, 4 * min(h["n_tok"], maximum or 0), format.PAGE_BYTES)
    except Error as e:
        _remove(path, e, report)
        return None
    except OSError:
        return None
    finally:
        os.close(fd)
    ours = (model_id, arithmetic, *geometry)
    if (h["model_id"], h["arithmetic"], *(h[f] for f in geometry._fields)) != ours:
        return None
    return h["n_tok"], memoryview(tokens[: len(tokens) // 4 * 4]).cast("i").tolist()


def _open(path, model_id, arithmetic, geometry, report):
    try:
        return Snapshot.open(path, model_id, arithmetic, geometry)
    except OSError:
        return None
    except Error as e:  # the header was right, so the file is damaged
        _remove(path, e, report)
        return None


def _remove(path, error, report):
    report(f"{error}; removed from the cache")
    files.unlink(path)


def _touch(path):
    try:
        os.utime(path)
    except OSError:
        pass
