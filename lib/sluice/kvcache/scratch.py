"""A KV cache in memory, for a process that keeps no snapshot: to the rooms model and question it is
one (see snapshot.Snapshot).
"""

import mmap

from ..kernels import ffi
from .format import Layout
from .planes import Planes
from .snapshot import MAP_NORESERVE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Scratch(Planes):
    """An empty cache of `geometry` for `capacity` tokens. Pages that are not written cost nothing.

    logits: float * [n_vocab], only where they are asked for; else None.
    """

    def __init__(self, geometry: "Any", capacity: int, logits: bool = False) -> None:
        self.geometry, self.capacity, self.n_tok = geometry, capacity, 0
        self.layout = Layout(geometry, capacity)
        self.logits = ffi.new("float[]", geometry.n_vocab) if logits else None
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_NORESERVE
        self._take_map(mmap.mmap(-1, self.layout.file_bytes, flags=flags))

    def reserve(self, n_tok: int) -> None:
        """Nothing: memory comes when it is written."""
        self._check_room(n_tok)

    def copy_rows_from(self, base: "Any") -> None:
        """Take the tokens, rows and logits of `base`, a Snapshot of this geometry; they become this
        one's only ones.
        """
        assert base.geometry == self.geometry and base.n_tok <= self.capacity
        n_bytes = base.n_tok * self.layout.row_bytes
        for i in range(self.geometry.n_layer):
            ffi.memmove(self.k(i), base.k(i), n_bytes)
            ffi.memmove(self.v(i), base.v(i), n_bytes)
        self.tokens[: base.n_tok] = base.tokens[: base.n_tok]
        ffi.memmove(self.logits, base.logits, 4 * self.geometry.n_vocab)
        self.n_tok = base.n_tok
