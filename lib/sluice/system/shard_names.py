"""Shard file names, NAME-00001-of-000NN.gguf: formatted and parsed."""

import os
import re

from ..limits import MAX_SHARDS

_NAME = re.compile(r"(.*)-(\d{5})-of-(\d{5})\.gguf", re.DOTALL)


def name(prefix: str, i: int, count: int) -> str:
    """Return the path of shard `i` (from 0) of `count`."""
    return f"{prefix}-{i + 1:05}-of-{count:05}.gguf"


def beside(path: str) -> list[str]:
    """Return the names of all shards if `path` is one, or a link to one; else an empty list."""
    found = parse(path)
    return (
        [name(found[1], i, int(found[3])) for i in range(min(int(found[3]), MAX_SHARDS))]
        if found
        else []
    )


def parse(path: str) -> "re.Match[str] | None":
    """Return the match of _NAME with `path`, or with the target of `path` (a link, or standard
    input); else None.
    """
    return _NAME.fullmatch(os.fspath(path)) or _NAME.fullmatch(os.path.realpath(path))
