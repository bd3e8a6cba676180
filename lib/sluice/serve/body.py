"""The bytes of a message that arrives: in memory, and a large one in a file without a name.

Kept are the first HEAD_BYTES and the last TAIL_BYTES (handing.py). The receiver does not know
whether the question reads messages or texts; the worker does.

The memory of all messages together is bounded: one that exceeds KEPT_BYTES, or comes when all have
TOTAL_BYTES, moves to a temporary file in $TMPDIR (else /tmp or /var/tmp).
"""

import os

from .. import stream
from .handing import HEAD_BYTES, TAIL_BYTES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

KEPT_BYTES = 1 << 20
TOTAL_BYTES = 64 << 20
MFD_NOEXEC_SEAL = 8  # Linux 6.3, which logs its absence


class Memory:
    """n_bytes: how much the messages of one receiver hold in memory."""

    def __init__(self) -> None:
        self.n_bytes = 0


class Body:
    """n_bytes: of the message so far, also those that are not kept."""

    def __init__(self, memory: Memory) -> None:
        self._memory, self.n_bytes = memory, 0
        self._data = bytearray()
        self._file: Any = None

    def add(self, chunk: memoryview) -> None:
        """Append `chunk`, of at most TAIL_BYTES. Raises OSError (no space, no descriptor), or
        MemoryError.
        """
        head = chunk[: max(0, HEAD_BYTES - self.n_bytes)]
        n = len(head)
        if self._file is None:
            if len(self._data) + n > KEPT_BYTES or self._memory.n_bytes + n > TOTAL_BYTES:
                self._spill()
            else:
                self._data += head
                self._memory.n_bytes += n
        if self._file is not None:
            stream.write_all(self._file.fileno(), head)
        self.n_bytes += n
        if n < len(chunk):
            self._add_tail(chunk[n:])

    def _add_tail(self, rest: memoryview) -> None:
        """Write to the ring of TAIL_BYTES behind the head."""
        fd, at = self._file.fileno(), (self.n_bytes - HEAD_BYTES) % TAIL_BYTES
        first = rest[: TAIL_BYTES - at]
        _write_at(fd, first, HEAD_BYTES + at)
        _write_at(fd, rest[len(first) :], HEAD_BYTES)
        self.n_bytes += len(rest)

    def _spill(self) -> None:
        import tempfile

        self._file = tempfile.TemporaryFile(buffering=0)
        stream.write_all(self._file.fileno(), self._data)
        self._release()

    def _release(self) -> None:
        self._memory.n_bytes -= len(self._data)
        self._data = bytearray()

    def finish(self) -> None:
        """Put the bytes of the ring in order. Call it once, at the end. Raises OSError."""
        n_tail = self.n_bytes - HEAD_BYTES
        at = n_tail % TAIL_BYTES
        if n_tail > TAIL_BYTES and at:
            fd = self._file.fileno()
            ring = os.pread(fd, TAIL_BYTES, HEAD_BYTES)
            if len(ring) != TAIL_BYTES:
                raise OSError("a temporary file was cut")
            _write_at(fd, memoryview(ring[at:] + ring[:at]), HEAD_BYTES)

    def file(self) -> tuple[int, int]:
        """Return (descriptor of a file with the kept bytes, their number) after `finish`.

        The descriptor belongs to this object. Raises OSError.
        """
        if self._file is None:
            self._file = os.fdopen(_memory_file(), "r+b", buffering=0)
            stream.write_all(self._file.fileno(), self._data)
            self._release()
        return self._file.fileno(), min(self.n_bytes, HEAD_BYTES + TAIL_BYTES)

    def close(self) -> None:
        self._release()
        if self._file is not None:
            self._file.close()
            self._file = None


def _write_at(fd: int, data: memoryview, at: int) -> None:
    while data:
        n = os.pwrite(fd, data, at)
        data, at = data[n:], at + n


def _memory_file() -> int:
    """A new file in memory; where that is impossible, a temporary one."""
    if hasattr(os, "memfd_create"):
        for flags in (MFD_NOEXEC_SEAL, 0):
            try:
                return os.memfd_create("message", os.MFD_CLOEXEC | flags)
            except OSError:
                pass
    import tempfile

    with tempfile.TemporaryFile(buffering=0) as f:
        return os.dup(f.fileno())
