"""Where a mapped KV cache has its tokens, keys and values."""

from ..kernels import ffi

TYPE_CHECKING = False
if TYPE_CHECKING:
    import mmap
    from typing import Any

    from .format import Layout


class Planes:
    """A cache whose bytes lie as a format.Layout says, in a map.

    layout: format.Layout. capacity: tokens it has room for.
    tokens: memoryview i32 [capacity].
    """

    layout: "Layout"
    capacity: int
    tokens: memoryview

    def _take_map(self, area: "mmap.mmap") -> None:
        """Let `area`, a mmap.mmap of layout.file_bytes, be the cache's bytes."""
        self._map, self._buffer = area, ffi.from_buffer("uint8_t[]", area)
        self._base = ffi.cast("uint8_t *", self._buffer)
        at = self.layout.ids_offset
        self.tokens = memoryview(area)[at : at + 4 * self.capacity].cast("i")

    def k(self, layer: int) -> "Any":
        """void * to the keys of `layer`, [capacity][n_head_kv][head_dim] of the cache's type."""
        at = self.layout.kv_offset + layer * self.layout.layer_stride
        return ffi.cast("void *", self._base + at)

    def v(self, layer: int) -> "Any":
        """void * to the values of `layer`, as `k`."""
        at = self.layout.kv_offset + layer * self.layout.layer_stride + self.layout.v_distance
        return ffi.cast("void *", self._base + at)

    def _check_room(self, n_tok: int) -> None:
        if n_tok > self.capacity:
            raise ValueError(f"{n_tok} tokens, but the capacity is {self.capacity}")
