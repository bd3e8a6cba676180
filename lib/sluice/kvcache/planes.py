"""Memory map of a KV cache: pointers to its tokens, keys and values."""

from ..kernels import ffi

TYPE_CHECKING = False
if TYPE_CHECKING:
    import mmap
    from typing import Any

    from .format import Layout


class Planes:
    """A cache in a map, with the layout of a format.Layout.

    layout: format.Layout. capacity: maximum number of tokens. tokens: memoryview i32
    [capacity].
    """

    layout: "Layout"
    capacity: int
    tokens: memoryview

    def _set_map(self, area: "mmap.mmap") -> None:
        """Use `area`, a mmap.mmap of layout.file_bytes, as the memory of the cache."""
        self._map, self._buffer = area, ffi.from_buffer("uint8_t[]", area)
        self._base = ffi.cast("uint8_t *", self._buffer)
        at = self.layout.ids_offset
        self.tokens = memoryview(area)[at : at + 4 * self.capacity].cast("i")

    def k(self, layer: int) -> "Any":
        """Return void * to the keys of `layer`, [capacity][n_head_kv][head_dim] of the
        cache's type.
        """
        return ffi.cast("void *", self._base + self.layout.planes[2 * layer][0])

    def v(self, layer: int) -> "Any":
        """Return void * to the values of `layer`, as `k`."""
        return ffi.cast("void *", self._base + self.layout.planes[2 * layer + 1][0])

    def _check_capacity(self, n_tok: int) -> None:
        if n_tok > self.capacity:
            raise ValueError(f"{n_tok} tokens, but the capacity is {self.capacity}")
