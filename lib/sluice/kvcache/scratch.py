"""KV cache in memory, without a file. It has the interface of snapshot.Snapshot that model and
classify use.
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
    """An empty cache of `geometry` for `capacity` tokens. Unused pages take no memory.

    logits: float * [n_vocab] if `logits` is true, else None.
    """

    _n_stored = 0  # tokens that are in a file

    def __init__(self, geometry: "Any", capacity: int, logits: bool = False) -> None:
        self.geometry, self.capacity, self._n_tok = geometry, capacity, 0
        self.layout = Layout(geometry, capacity)
        self.logits = ffi.new("float[]", geometry.n_vocab) if logits else None
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_NORESERVE
        self._set_map(mmap.mmap(-1, self.layout.file_bytes, flags=flags))

    @property
    def n_tok(self) -> int:
        """Number of tokens."""
        return self._n_tok

    @n_tok.setter
    def n_tok(self, n: int) -> None:
        self._check_states(n)
        self._n_tok = n

    def reserve(self, n_tok: int) -> None:
        """Do nothing: memory is allocated on the first write."""
        self._check_capacity(n_tok)

    def copy_rows_from(self, base: "Any") -> None:
        """Replace the contents by the tokens, rows and logits of `base`, a Snapshot of this
        geometry.
        """
        self.copy_prefix_from(base, base.n_tok)
        ffi.memmove(self.logits, base.logits, 4 * self.geometry.n_vocab)

    def copy_prefix_from(self, base: "Any", n_tok: int) -> None:
        """Replace the contents by the first `n_tok` tokens and rows of `base`, a cache of this
        geometry. The logits stay what they were.
        """
        assert base.geometry == self.geometry and n_tok <= min(base.n_tok, self.capacity)
        for i, row_bytes in enumerate(self.layout.rows):
            n_bytes = n_tok * row_bytes
            ffi.memmove(self.k(i), base.k(i), n_bytes)
            ffi.memmove(self.v(i), base.v(i), n_bytes)
        self.tokens[:n_tok] = base.tokens[:n_tok]
        self._copy_states(base, n_tok)
        self.n_tok = n_tok
