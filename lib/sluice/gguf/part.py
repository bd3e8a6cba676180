"""One file of a model (the only file, or a shard): open descriptor, reads, and the map of its
tensor data.
"""

import os
import stat

from ..faults import IO_ERROR, Error, data_error
from ..kernels import ffi, lib
from ..system import huge_pages, mapping
from .cursor import not_regular

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..faults import Error


class Part:
    """The open file at `path`. DataError if it is not a regular file or shorter than `minimum`
    bytes.

    fd, size, stat   descriptor, bytes and os.stat_result from when the file was opened
    data_offset      first byte of tensor data
    head             kept bytes before tensor data: all except Unread values and padding
    """

    fd: "Any" = None
    _map: "Any" = None
    _pointer: "Any" = None

    def __init__(self, path: str, minimum: int, kind: str) -> None:
        self.path, self.data_offset, self.head = path, 0, b""
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY  # a FIFO must not block
        self.fd = os.open(path, flags)
        self.stat = os.fstat(self.fd)
        if not stat.S_ISREG(self.stat.st_mode):
            raise data_error(path, not_regular(path))
        self.size = self.stat.st_size
        if self.size < minimum:
            raise self.data_error(
                "is empty" if not self.size else f"{self.size} bytes: too short for {kind} header"
            )

    def __del__(self) -> None:
        if self._pointer is not None:
            lib.guard_forget(self._pointer)
        if self.fd is not None:
            os.close(self.fd)

    def data_error(self, problem: str) -> "Error":
        """A DataError (65) that names this file."""
        return data_error(self.path, problem)

    def read(self, n_bytes: int, offset: int, label: str, minimum: int | None = None) -> bytes:
        """Return a copy of `n_bytes` bytes from `offset` on; of at least `minimum` if the
        file ends there.

        Error 74 names `label` if the file no longer has these bytes.
        """
        data = os.pread(self.fd, n_bytes, offset)
        if len(data) < (n_bytes if minimum is None else minimum):
            raise Error(
                IO_ERROR, f"{self.path}: {label}: the file became shorter while it was in use"
            )
        return data

    def pointer(self, offset: int, huge_pages: bool = False) -> "Any":
        """Return the address of byte `offset`, within the tensor data or behind them, in a
        read-only map.

        With `huge_pages` the address is in a copy. The first call decides which. Map or
        copy live as long as this Part. If the file is truncated while it is mapped, an
        access to a missing page ends the process with status 74.
        """
        if self._pointer is None:
            self._map_data(huge_pages)
        return self._pointer + (offset - self._map_start)

    def _map_data(self, is_copied):
        import mmap

        self._map_start = self.data_offset - self.data_offset % mmap.ALLOCATIONGRANULARITY
        n_bytes = self.size - self._map_start
        try:
            self._map = huge_pages.of_file(self.fd, self._map_start, n_bytes, self.path, is_copied)
        except ValueError:  # truncated since it was opened
            raise self.changed() from None
        pointer = ffi.cast("const uint8_t *", ffi.from_buffer(self._map))
        mapping.begin(pointer, n_bytes, self.path, "cut while it was in use")
        self._pointer = pointer

    def changed(self) -> "Error":
        """The Error (74) for a file that was changed while it was in use."""
        return Error(
            IO_ERROR,
            f"{self.path}: the file was changed while it was in use; replace models by rename",
        )

    def check_unchanged(self) -> None:
        """Error 74 if the file was overwritten, truncated or touched since it was opened:
        results are then invalid.

        The time of the last status change counts only while the number of links is the
        same: replacing a model by rename removes a link of the open file and changes
        nothing in it.
        """
        then, now = self.stat, os.fstat(self.fd)
        same = (then.st_size, then.st_mtime_ns) == (now.st_size, now.st_mtime_ns)
        if not same or then.st_nlink == now.st_nlink and then.st_ctime_ns != now.st_ctime_ns:
            raise self.changed()
