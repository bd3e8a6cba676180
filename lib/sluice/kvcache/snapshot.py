"""Snapshot: KV cache and last logits of a model after some tokens, as a file that is mapped, not
loaded.

format.py describes the bytes. A named snapshot is whole and never changes: it is written without a
name, synced, and then named in one step. Writers to one name need no lock: the last one wins, and
readers keep the file they opened. A snapshot contains the text it was made from, so its mode is
0600. One that other users could have written is refused: owned by neither the user nor root,
writable by group or others, or a symbolic link.
"""

import mmap
import os

from ..faults import IO_ERROR, NO_OUTPUT, TRY_AGAIN, Error, data_error
from ..kernels import ffi, lib
from ..system import files, mapping
from . import format
from .format import Geometry
from .planes import Planes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["Geometry", "Snapshot"]
MAP_NORESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000)  # named since Python 3.13


class Snapshot(Planes):
    """An open snapshot, made by `create` or `open`.

    geometry, capacity, model_id, arithmetic: as in the header. tokens: memoryview i32
    [capacity]; the first n_tok are valid. n_tok: may be set if the tokens and rows exist.
    logits: float * [n_vocab]. k(layer), v(layer): void * to [capacity][n_head_kv][head_dim].
    Pointers are valid until `seal` or `close`.

    Writes to an opened or sealed snapshot stay private to the process. Close it, or use it in
    `with`: contents that were not sealed are lost.
    """

    _fd: "Any"
    _map: "Any"
    _name: "Any"
    _directory: str

    def __init__(
        self,
        fd: int,
        geometry: "Any",
        capacity: int,
        model_id: bytes,
        arithmetic: str,
        layout: "format.Layout",
    ) -> None:
        self.geometry, self.capacity, self.model_id, self.arithmetic = (
            geometry,
            capacity,
            model_id,
            arithmetic,
        )
        self.layout, self._fd, self._map, self._name = layout, fd, None, None
        self._n_tok = self._n_stored = self._n_reserved = 0

    def _attach(self, flags, name):
        """Map the file again. An access to a missing page ends the process with a line
        about `name` and status 74.
        """
        self._release()
        try:
            area = mmap.mmap(
                self._fd, self.layout.file_bytes, flags=flags, prot=mmap.PROT_READ | mmap.PROT_WRITE
            )
        except ValueError:  # truncated since the size was read
            raise Error(IO_ERROR, f"{name}: cut while it was in use") from None
        self._private = bool(flags & mmap.MAP_PRIVATE)
        self._set_map(area)
        mapping.begin(self._base, self.layout.file_bytes, name)
        self.logits = ffi.cast("float *", self._base + self.layout.logits_offset)

    def _release(self):
        if self._map is not None:
            lib.guard_forget(self._base)
            # its last view unmaps it
            self._map = self._buffer = self._base = self.logits = self.tokens = None

    def close(self) -> None:
        """Release the map and the descriptor. Contents that were not sealed are lost."""
        self._release()
        if self._fd is not None:
            if self._name:
                files.unlink(self._name)
            os.close(self._fd)
            self._fd = self._name = None

    __del__ = close

    def __enter__(self) -> "Snapshot":
        return self

    def __exit__(self, *exception: "Any") -> None:
        self.close()

    @property
    def n_tok(self) -> int:
        return self._n_tok

    @n_tok.setter
    def n_tok(self, n: int) -> None:
        if not 0 <= n <= self.capacity:
            raise ValueError(f"n_tok {n} is not 0 to the capacity {self.capacity}")
        self._check_states(n)
        self._n_tok, self._n_stored = n, min(n, self._n_stored)  # rows from n on may change now

    # creation

    @classmethod
    def create(
        cls, geometry: "Any", capacity: int, model_id: bytes, arithmetic: str, directory: str | None
    ) -> "Snapshot":
        """Create an empty snapshot, a file without a name in `directory` ("": the current
        one), mapped shared.

        model_id: bytes [32]. arithmetic: 1 to 16 ASCII characters. Every row must be
        reserved (`reserve`) before it is written. Error 73 or 75.
        """
        assert len(model_id) == 32 and 1 <= len(arithmetic.encode("ascii")) <= 16
        layout = format.Layout(geometry, capacity)
        directory, self = directory or ".", None
        if layout.file_bytes >= 1 << 63:
            raise Error(
                NO_OUTPUT,
                f"{directory}: cannot create a snapshot: {layout.file_bytes} bytes, more than a"
                " file can have",
            )
        try:
            fd, name = files.nameless(directory)
            self = cls(fd, geometry, capacity, model_id, arithmetic, layout)
            self._name, self._directory = name, directory
            os.ftruncate(fd, layout.file_bytes)
            self._attach(mmap.MAP_SHARED, directory)
            os.posix_fallocate(fd, 0, format.PAGE_BYTES)
            os.posix_fallocate(fd, layout.logits_offset, layout.kv_offset - layout.logits_offset)
            if geometry.states:
                os.posix_fallocate(fd, layout.state_offset, layout.file_bytes - layout.state_offset)
        except OSError as e:
            if self:
                self.close()
            raise Error(
                TRY_AGAIN if e.errno in files.FULL else NO_OUTPUT,
                f"{directory}: cannot create a snapshot: {e.strerror}",
            ) from None
        return self

    def reserve(self, n_tok: int) -> None:
        """Allocate disk space for the first `n_tok` tokens and rows.

        Error 75 here; without it a kernel's store would raise SIGBUS.
        """
        self._check_capacity(n_tok)
        first, self._n_reserved = self._n_reserved, max(n_tok, self._n_reserved)
        if self._private or n_tok <= first:
            return
        n_row = n_tok - first
        try:
            os.posix_fallocate(self._fd, self.layout.ids_offset + 4 * first, 4 * n_row)
            for at, row_bytes in self.layout.planes:
                os.posix_fallocate(self._fd, at + first * row_bytes, n_row * row_bytes)
        except OSError as e:
            self._n_reserved = first
            raise files.write_error(f"{self._directory}: snapshot", e) from None

    def copy_rows_from(self, base: "Any", n_tok: int | None = None) -> None:
        """Replace the contents by the first `n_tok` (default: all) tokens and rows of
        `base`, and by its logits if all are copied.

        `base`, a Snapshot or a Scratch with logits, must have the same geometry, model and
        arithmetic. Error 74 or 75.
        """
        n_tok = base.n_tok if n_tok is None else n_tok
        assert base.geometry == self.geometry
        if isinstance(base, Snapshot):
            assert (base.model_id, base.arithmetic) == (self.model_id, self.arithmetic)
        assert n_tok <= base.n_tok and not self._private
        self.reserve(n_tok)
        self.tokens[:n_tok] = base.tokens[:n_tok]
        n_stored = min(n_tok, base._n_stored)
        for (to, row_bytes), (at, _) in zip(self.layout.planes, base.layout.planes):
            done = 0
            try:
                if n_stored:
                    done = files.copy_range(self._fd, to, base._fd, at, n_stored * row_bytes)
            except OSError as e:
                raise files.write_error(f"{self._directory}: snapshot", e) from None
            ffi.memmove(self._base + to + done, base._base + at + done, n_tok * row_bytes - done)
        if n_tok == base.n_tok:
            ffi.memmove(self.logits, base.logits, self.layout.logits_bytes)
        self._copy_states(base, n_tok)
        self.n_tok = n_tok

    def seal(self, path: str) -> None:
        """Write checksums and header, sync, and name the file `path`, replacing a regular
        file of that name.

        `path` is in the directory given to `create`; an opened or sealed snapshot is copied
        into a new file there. Error 73, 74 or 75; `path` then stays as it was, unless only
        the last step fails, the sync of the directory.
        """
        path = os.fspath(path)
        if self._private:
            with Snapshot.create(
                self.geometry, self.capacity, self.model_id, self.arithmetic, os.path.dirname(path)
            ) as new:
                new.copy_rows_from(self)
                return new.seal(path)
        if not 1 <= self.n_tok <= self._n_reserved:
            raise ValueError(f"{self.n_tok} tokens to seal, {self._n_reserved} reserved")
        self._check_states(self.n_tok)
        # bytes that are reserved but not valid are zero
        for at, row_bytes in self.layout.planes:
            n_bytes = (self._n_reserved - self.n_tok) * row_bytes
            ffi.memmove(self._base + at + self.n_tok * row_bytes, bytes(n_bytes), n_bytes)
        self.tokens[self.n_tok : self._n_reserved] = memoryview(
            bytes(4 * (self._n_reserved - self.n_tok))
        ).cast("i")
        checksums = b"".join(format.CRC.pack(crc) for _, crc in self._checksums())
        ffi.memmove(self._base + self.layout.checksum_offset, checksums, len(checksums))
        self._map[: format.PAGE_BYTES] = format.pack_header(
            self.geometry, self.capacity, self.n_tok, self.model_id, self.arithmetic, checksums
        )
        try:
            os.fsync(self._fd)
        except OSError as e:
            raise files.write_error(path, e) from None
        files.publish(self._fd, self._name, path)
        self._name, self._n_stored = None, self.n_tok
        self._attach(mmap.MAP_PRIVATE | MAP_NORESERVE, path)

    def _checksums(self):
        """Return [(name, CRC32C)] of the pieces of the valid sections, in file order."""
        pieces = [
            (f"{name}, bytes {first} to", first, at, min(first + format.PIECE_BYTES, n_bytes))
            for name, at, n_bytes in self.layout.sections(self.n_tok)
            for first in range(0, n_bytes, format.PIECE_BYTES)
        ]
        crc, n = ffi.new("uint32_t[]", len(pieces)), len(pieces)
        begin = ffi.new("uint64_t[]", [at + first for _, first, at, _ in pieces])
        end = ffi.new("uint64_t[]", [at + last for _, _, at, last in pieces])
        lib.crc32c_pieces(crc, ffi.cast("uint8_t *", self._base), begin, end, n)
        return [(f"{p[0]} {p[3] - 1}", crc[i]) for i, p in enumerate(pieces)]

    # opening

    @classmethod
    def open(
        cls, path: str, model_id: bytes, arithmetic: str, geometry: "Any", model: str = "the model"
    ) -> "Snapshot":
        """Open the snapshot at `path`, check every valid byte, and map it copy-on-write.

        DataError names the field, and both values if it belongs to another model (called
        `model` in the message), arithmetic or geometry (kv_type None: any). OSError if it
        cannot be read. Reads the valid bytes once.
        """
        path = os.fspath(path)
        fd = files.open_trusted(path)
        try:
            h = format.read_header(fd, path)
            if geometry.kv_type is None:
                geometry = geometry._replace(kv_type=h["kv_type"])
            format.check_identity(h, path, model_id, arithmetic, geometry, model)
            layout = format.Layout(geometry, h["capacity"])
            format.check_extent(h, path, layout, os.fstat(fd).st_size)
            self = cls(fd, geometry, h["capacity"], model_id, arithmetic, layout)
        except BaseException:
            os.close(fd)
            raise
        try:
            self._attach(mmap.MAP_PRIVATE | MAP_NORESERVE, path)
        except ValueError:  # mmap: length is greater than file size
            raise data_error(path, "became shorter while it was opened") from None
        self._n_tok = self._n_stored = self._n_reserved = self._states_after = h["n_tok"]
        self._check_sections(h, path)
        return self

    def _check_sections(self, h, path):
        checksums = os.pread(self._fd, h["n_checksum"] * format.CRC.size, h["checksum_offset"])
        header = os.pread(self._fd, format.DIGESTED_BYTES, 0)
        if format.sha256(header + checksums) != h["digest"]:
            raise data_error(path, "digest is not that of the header and the checksums: damaged")
        for (stored,), (label, crc) in zip(format.CRC.iter_unpack(checksums), self._checksums()):
            if crc != stored:
                raise data_error(
                    path, f"{label}: checksum is {crc:08x}, but the file says {stored:08x}: damaged"
                )
        n_vocab = self.geometry.n_vocab
        for token in self.tokens[: self.n_tok].tolist():
            if not 0 <= token < n_vocab:
                raise data_error(
                    path, f"tokens: {token} is not below the vocabulary size {n_vocab}"
                )
