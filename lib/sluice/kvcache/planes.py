"""Memory map of a KV cache: pointers to its tokens, keys and values, and states.

Keys and values are rows, one for each token: those of a longer text contain those of its prefixes.
A state is that after the last token alone. It cannot be cut back, only replaced by a copy that was
kept.
"""

from ..kernels import ffi

TYPE_CHECKING = False
if TYPE_CHECKING:
    import mmap
    from typing import Any

    from .format import Layout


MAX_COPIES = 4  # of the states of a cache


class Planes:
    """A cache in a map, with the layout of a format.Layout.

    layout: format.Layout. capacity: maximum number of tokens. tokens: memoryview i32
    [capacity].
    """

    layout: "Layout"
    geometry: "Any"
    capacity: int
    tokens: memoryview
    n_tok: int
    # tokens that the states are after; None while a forward pass changes them, or after it failed
    _states_after: int | None = 0
    _copies: "dict[int, bytes]" = {}  # of the states, by number of tokens; replaced, not changed

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

    def state(self, i: int) -> "Any":
        """Return float * to state i, geometry.states[1] floats."""
        return ffi.cast("float *", self._base + self.layout.states[i])

    def _all_states(self):
        return ffi.buffer(
            self._base + self.layout.state_offset, self.layout.file_bytes - self.layout.state_offset
        )

    def _copy_states(self, base, n_tok):
        """Copy the states of `base`, of the same geometry, which are those after `n_tok` tokens."""
        if self.geometry.states:
            if base._states_after != n_tok:
                raise ValueError(f"no states after {n_tok} tokens: they are after another number")
            self._all_states()[:] = base._all_states()
            self._states_after = n_tok

    def begin_pass(self, pos: int) -> None:
        """Say that a forward pass of tokens from position `pos` on begins to change the states."""
        if self.geometry.states and self._states_after != pos:
            raise ValueError(f"states are those after {self._states_after} tokens, not {pos}")
        self._states_after = None

    def end_pass(self, n_tok: int) -> None:
        """Say that the states are those after `n_tok` tokens."""
        self._states_after = n_tok

    def keep_states(self) -> None:
        """Keep a copy of the states, which `cut` may go back to."""
        if self.geometry.states and self._states_after == self.n_tok:
            self._copies = {**self._copies, self.n_tok: bytes(self._all_states())}
            if len(self._copies) > MAX_COPIES:  # the first is a system prompt's
                del self._copies[sorted(self._copies)[1]]

    def cut(self, n_tok: int) -> int:
        """Cut the cache to its first `n_tok` tokens, at most as many as it has. Return how many it
        has then: with states the longest part whose states are known, which may be none.
        """
        if self.geometry.states and n_tok != self._states_after:
            n_tok = max((n for n in self._copies if n <= n_tok), default=0)
            self._all_states()[:] = self._copies.get(n_tok) or bytes(len(self._all_states()))
            self._states_after = n_tok
        self._copies = {n: copy for n, copy in self._copies.items() if n <= n_tok}
        self.n_tok = n_tok
        return n_tok

    def _check_states(self, n_tok):
        """ValueError unless the states are those after `n_tok` tokens; of none they become 0."""
        if self.geometry.states and n_tok != self._states_after:
            if n_tok:
                raise ValueError(
                    f"n_tok {n_tok}: states are those after {self._states_after} tokens (use cut)"
                )
            self._all_states()[:] = bytes(len(self._all_states()))
            self._states_after = 0

    def _check_capacity(self, n_tok: int) -> None:
        if n_tok > self.capacity:
            raise ValueError(f"{n_tok} tokens, but the capacity is {self.capacity}")
