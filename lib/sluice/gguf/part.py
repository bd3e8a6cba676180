"""One file of a model, the whole of it or a shard: open, and read or mapped where its tensor data
are asked for."""

import os
import stat

from ..faults import IO_ERROR, Error, data_error
from ..kernels import ffi, lib
from ..system import huge_pages, mapping

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..faults import Error


class Part:
    """The file at `path`, open. DataError where it is no regular file or has less than `least`
    bytes; OSError.

    fd, size, stat   descriptor, bytes and os.stat_result of when it was opened
    data_offset      first byte of tensor data
    head             the bytes before it that were kept in memory: all but those of Unread values,
                     and padding
    """

    fd: "Any"
    _map: "Any"
    _pointer: "Any"

    def __init__(self, path: str, least: int, kind: str) -> None:
        self.path, self.data_offset, self.head = path, 0, b""
        self.fd = self._map = self._pointer = None
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY  # a FIFO must not hang us
        self.fd = os.open(path, flags)
        self.stat = os.fstat(self.fd)
        if not stat.S_ISREG(self.stat.st_mode):
            raise data_error(path, "not a regular file")
        self.size = self.stat.st_size
        if self.size < least:
            raise self.data_error(
                "is empty" if not self.size else f"{self.size} bytes: too short for {kind} header"
            )

    def __del__(self) -> None:
        if self._pointer is not None:
            lib.guard_forget(self._pointer)
        if self.fd is not None:
            os.close(self.fd)

    def data_error(self, what: str) -> "Error":
        """The Error (65) that this file has `what` wrong with it."""
        return data_error(self.path, what)

    def read(self, n_bytes: int, offset: int, what: str, least: int | None = None) -> bytes:
        """A copy of `n_bytes` bytes from `offset` on, or, where the file ends there, of `least` at
        least. Error 74 names `what` where the file has them no more."""
        data = os.pread(self.fd, n_bytes, offset)
        if len(data) < (n_bytes if least is None else least):
            raise Error(
                IO_ERROR, f"{self.path}: {what}: the file became shorter while it was in use"
            )
        return data

    def pointer(self, offset: int, huge_pages: bool = False) -> "Any":
        """Address of byte `offset` of the tensor data or behind, in a read-only map, or with
        `huge_pages` in a copy, which live as long as this Part. The first call decides which.

        If the file is cut while it is mapped, touching what is gone ends the process: 74.
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
        except ValueError:  # it is already shorter than this
            raise self.changed() from None
        pointer = ffi.cast("const uint8_t *", ffi.from_buffer(self._map))
        mapping.begin(pointer, n_bytes, self.path, "cut while it was in use")
        self._pointer = pointer

    def changed(self) -> "Error":
        return Error(
            IO_ERROR,
            f"{self.path}: the file was changed while it was in use; replace models by rename",
        )

    def check_unchanged(self) -> None:
        """Error 74 if the file was overwritten, cut or touched since it was opened: results are
        void.

        The time of the last status change counts only while the number of links
        is the same: replacing a model by rename takes a link from the file we
        hold open, and changes nothing in it.
        """
        then, now = self.stat, os.fstat(self.fd)
        same = (then.st_size, then.st_mtime_ns) == (now.st_size, now.st_mtime_ns)
        if not same or then.st_nlink == now.st_nlink and then.st_ctime_ns != now.st_ctime_ns:
            raise self.changed()
