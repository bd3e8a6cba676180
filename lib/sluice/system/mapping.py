"""Maps of files that are cut while they are in use: one line, and 74, in place of a signal
(csrc/runtime/guard.c)."""

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
    what: str = "cut, or its disk failed, while it was in use",
) -> None:
    """From now on, until lib.guard_forget(pointer), touching a page of the map that is gone ends
    the process with a line that says `what` of the file at `path`."""
    line = f"{os.path.basename(sys.argv[0])}: {one_line(str(path)[:400])}: {what}"
    if lib.guard_map(pointer, n_bytes, line.encode("utf-8", "surrogateescape")):
        raise RuntimeError("too many maps")
