"""Guarded maps: if a mapped file is truncated, the process ends with one line and status 74, not
with a signal (csrc/runtime/guard.c).
"""

import os
import sys

from ..faults import one_line
from ..kernels import lib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def begin(
    pointer: "Any",
    n_bytes: int,
    path: str,
    problem: str = "cut, or its disk failed, while it was in use",
) -> None:
    """Guard a map until lib.guard_forget(pointer).

    An access to a page that no longer exists ends the process with a line: `problem`, of the
    file at `path`.
    """
    line = f"{os.path.basename(sys.argv[0])}: {one_line(str(path)[:400])}: {problem}"
    if lib.guard_map(pointer, n_bytes, line.encode("utf-8", "surrogateescape")):
        raise RuntimeError("too many maps")
