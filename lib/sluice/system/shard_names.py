"""Names of the files of a model in several files: NAME-00001-of-000NN.gguf."""

import os
import re

from ..limits import MAX_SHARDS

_NAME = re.compile(r"(.*)-(\d{5})-of-(\d{5})\.gguf", re.DOTALL)


def name(prefix: str, i: int, count: int) -> str:
    """The path of shard `i` (from 0) of `count`."""
    return f"{prefix}-{i + 1:05}-of-{count:05}.gguf"


def beside(path: str) -> list[str]:
    """The names of all shards, if `path` is the name of one, or leads to one."""
    found = parse(path)
    return (
        [name(found[1], i, int(found[3])) for i in range(min(int(found[3]), MAX_SHARDS))]
        if found
        else []
    )


def parse(path: str) -> "re.Match[str] | None":
    """The match of _NAME with `path`, or with the name of what it leads to: a link to a shard, or
    standard input. None: with neither."""
    return _NAME.fullmatch(os.fspath(path)) or _NAME.fullmatch(os.path.realpath(path))
