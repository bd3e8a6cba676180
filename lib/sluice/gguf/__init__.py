"""A model file: GGUF v2 and v3, checked before anything in it is believed.

Layout (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md), little-endian:

    u8[4] "GGUF", u32 version, u64 n_tensors, u64 n_kv
    n_kv times:       string key, u32 type, value
    n_tensors times:  string name, u32 n_dims, u64 dims[n_dims], u32 type, u64 offset
    padding to `alignment`, then the tensor data, each tensor padded to `alignment`

where a string is u64 n_bytes and the bytes, and an array is u32 type, u64 n and
the elements. Metadata is read once into private memory and parsed there; only
tensor data is used from a (read-only) map. A file is checked whole, whatever is
asked of it: one key is only as good as the file it stands in, and the largest
vocabulary known (gemma 4: 262,144 tokens, 514,906 merges, 15.7 MB) costs 10 ms.
"""
import os
import stat
import struct

from .. import cachedir, hugepages
from ..faults import IO_ERROR, Fault, bad, printable, unsupported
from ..kernels import ffi, lib
from .cursor import Cursor
from .metadata import ARRAY, F32, F64, INTEGERS, KIND_NAMES, U32, describe, parse_metadata

HEADER = struct.Struct("<4sI")
COUNTS = struct.Struct("<QQ")
N_DIMS = struct.Struct("<I")
TENSOR_TAIL = struct.Struct("<IQ")
DIMS = {n: struct.Struct(f"<{n}Q") for n in (1, 2, 3, 4)}

MIN_FILE_BYTES = HEADER.size + COUNTS.size
MIN_KV_BYTES, MIN_TENSOR_BYTES = 8 + 1 + 4 + 1, 8 + 1 + 4 + 8 + 4 + 8
MAX_KV, MAX_TENSORS = 65_536, 65_536
MAX_METADATA_BYTES = 64 << 20  # four times the largest known; also what a hostile file can cost in memory
MAX_NAME_BYTES = 64
MAX_DIM, MAX_BYTES = 1 << 40, 1 << 63
MAX_ALIGNMENT = 1 << 20
SAMPLE_BYTES = 4096  # of each tensor, in `earlier_id`


class Tensor:
    """One entry of the tensor directory.

    type     GGML type number; a format of the GGML table, not always one this build computes with
    shape    tuple, in GGUF order: the row length first
    offset   bytes from the start of the file
    n_bytes  of data, without padding
    """

    __slots__ = ("name", "type", "shape", "offset", "n_bytes")

    def __init__(self, name, type, shape, offset, n_bytes):
        self.name, self.type, self.shape, self.offset, self.n_bytes = name, type, shape, offset, n_bytes

    @property
    def n_elements(self):
        n = 1
        for d in self.shape:
            n *= d
        return n


class File:
    """A checked GGUF file, open. Fault 65 or 69 names the field that is wrong; OSError if it cannot be read.

    path        as given
    size        bytes
    version     2 or 3
    alignment   bytes, of tensor data
    metadata    dict: key -> bool, int, float, str or Array, in file order
    kinds       dict: key -> type number of its value
    tensors     dict: name -> Tensor, in file order
    data_offset first byte of tensor data
    id          bytes [32], what this model is, computed when it is asked for (see identity.py)
    id_cache    directory where the id is kept: the user's cache; set it to None to keep none
    """

    kind = "a GGUF"  # in messages

    def __init__(self, path):
        self.path = path
        self._fd = self._id = self._earlier_id = self._map = self._pointer = None
        self.id_cache = cachedir.home()
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)  # a FIFO must not hang us
        self._stat = os.fstat(self._fd)
        if not stat.S_ISREG(self._stat.st_mode):
            raise bad(path, "not a regular file")
        self.size = self._stat.st_size
        if self.size < MIN_FILE_BYTES:
            raise self._bad("is empty" if not self.size else f"{self.size} bytes: too short for {self.kind} header")
        self._parse(Cursor(self._fd, path, self.size, MAX_METADATA_BYTES))

    def __del__(self):
        if self._pointer is not None:
            lib.guard_forget(self._pointer)
        if self._fd is not None:
            os.close(self._fd)

    def fault(self, what):
        """The Fault (65) that this file has `what` wrong with it."""
        return bad(self.path, what)

    _bad = fault

    # Reading metadata.

    def _parse(self, cursor):
        magic, self.version = cursor.unpack(HEADER, "header")
        if magic != b"GGUF":
            raise self._bad(f"magic: begins not with GGUF but with {printable(magic)}")
        if self.version not in (2, 3):
            swapped = int.from_bytes(self.version.to_bytes(4, "little"), "big")
            if swapped in (1, 2, 3):
                raise unsupported(self.path, f"version: GGUF {swapped} in the other byte order")
            raise unsupported(self.path, f"version: GGUF {self.version}; this build reads 2 and 3")
        n_tensors, n_kv = cursor.unpack(COUNTS, "header")
        left = self.size - cursor.at
        for field, n, least, most in (("n_tensors", n_tensors, MIN_TENSOR_BYTES, MAX_TENSORS),
                                      ("n_kv", n_kv, MIN_KV_BYTES, MAX_KV)):
            if n > most:
                raise self._bad(f"{field}: {n} is more than {most}")
            if n > left // least:
                raise self._bad(f"{field}: {n} do not fit into {left} bytes")
        self.metadata, self.kinds, self._spans = parse_metadata(cursor, n_kv)
        self.alignment = a = self._alignment()
        self.tensors = {}
        for i in range(n_tensors):
            self._parse_tensor(cursor, i)
        self._head = cursor.memory[:cursor.at]  # all before the data, without its padding
        self.data_offset = -(-cursor.at // a) * a
        self._place_tensors()

    def _alignment(self):
        key = "general.alignment"
        if key not in self.metadata:
            return 32
        a = self.metadata[key]
        if self.kinds[key] != U32:
            raise self._bad(f"{key}: expected u32, found {describe(a, self.kinds[key])}")
        if not (8 <= a <= MAX_ALIGNMENT and a & (a - 1) == 0):  # 8: so every type is aligned in the map
            raise self._bad(f"{key}: {a} is not a power of two from 8 to {MAX_ALIGNMENT}")
        return a

    def _parse_tensor(self, cursor, i):
        name = cursor.string(f"tensor {i}: name", 1, MAX_NAME_BYTES)
        if not name.isascii() or not name.decode().isprintable():
            raise self._bad(f"tensor {i}: name {printable(name)} is not printable ASCII")
        name = name.decode()
        what = f"tensor {name}"
        if name in self.tensors:
            raise self._bad(f"{what}: the name appears twice")
        (n_dims,) = cursor.unpack(N_DIMS, what)
        if not 1 <= n_dims <= 4:
            raise self._bad(f"{what}: n_dims {n_dims} is not 1 to 4")
        shape = cursor.unpack(DIMS[n_dims], what)
        kind, offset = cursor.unpack(TENSOR_TAIL, what)
        for d in shape:
            if not 1 <= d <= MAX_DIM:
                raise self._bad(f"{what}: dimension {d} is not 1 to 2^40")
        row_bytes = lib.type_row_bytes(kind, shape[0]) if kind < 1 << 31 else 0
        if row_bytes == 0:
            raise unsupported(self.path, f"{what}: type number {kind} is not known to this build")
        if row_bytes < 0:
            raise self._bad(f"{what}: row of {shape[0]} is not a multiple of the {type_name(kind)} block, "
                            f"{lib.type_block(kind)}")
        tensor = Tensor(name, kind, shape, offset, 0)
        tensor.n_bytes = row_bytes * (tensor.n_elements // shape[0])  # Python integers do not wrap
        if tensor.n_elements >= MAX_BYTES or tensor.n_bytes >= MAX_BYTES:
            raise self._bad(f"{what}: dimensions {shape} are more than 2^63 bytes")
        self.tensors[name] = tensor

    def _place_tensors(self):
        """Turn offsets into absolute ones; the data must be consecutive, padded to the alignment, inside the file."""
        expected = 0
        for t in self.tensors.values():
            if t.offset % self.alignment:
                raise self._bad(f"tensor {t.name}: offset {t.offset} is not a multiple of the alignment, {self.alignment}")
            if t.offset != expected:
                raise self._bad(f"tensor {t.name}: offset {t.offset}, but the tensors before it end at {expected}")
            t.offset += self.data_offset
            if t.offset + t.n_bytes > self.size:
                raise self._bad(f"tensor {t.name}: ends at byte {t.offset + t.n_bytes}, but the file has {self.size}")
            expected += -(-t.n_bytes // self.alignment) * self.alignment

    # Using it.

    def get(self, key, kind, default=...):
        """The value of `key`, which must be of `kind`: a name of KIND_NAMES, or "[u32]" for an array; else 65 naming both.

        A scalar integer may be stored as any integer type if its value fits `kind`,
        and a float as f32 or f64, as writers differ; arrays are of exactly `kind`.
        `default` is returned where the key is absent; without one that is an error too.
        """
        if key not in self.metadata:
            if default is ...:
                raise self._bad(f"{key} is missing")
            return default
        value, stored = self.metadata[key], self.kinds[key]
        if kind.startswith("["):
            fits = stored == ARRAY and KIND_NAMES[value.kind] == kind[1:-1]
        elif KIND_NAMES.index(kind) in INTEGERS:
            signed, bits = INTEGERS[KIND_NAMES.index(kind)]
            fits = stored in INTEGERS and -signed << bits <= value < 1 << bits
        elif kind in ("f32", "f64"):
            fits = stored in (F32, F64)
        else:
            fits = KIND_NAMES[stored] == kind
        if not fits:
            raise self._bad(f"{key}: expected {kind}, found {describe(value, stored)}")
        return value

    def raw(self, key):
        """The bytes of the value of `key` as the file has them, its type number first (a memoryview)."""
        begin, end = self._spans[key]
        return self._head[begin:end]

    @property
    def id(self):
        if self._id is None:
            self._id = self._identify()
        return self._id

    def _identify(self):
        from .. import identity
        parts = [identity.Part(self.path, self._fd, self.size, self._stat)]
        return identity.of(parts, self.id_cache)

    @property
    def earlier_id(self):
        """bytes [32], the id of this model in earlier versions (see identity.earlier), which
        calibrations may have."""
        if self._earlier_id is None:
            from .. import identity
            samples = (self.read(t, 0, min(SAMPLE_BYTES, t.n_bytes)) for t in self.tensors.values())
            self._earlier_id = identity.earlier(self.size, self._head, samples)
        return self._earlier_id

    def read(self, tensor, start, n_bytes):
        """A copy of `n_bytes` bytes of `tensor` from its byte `start` on, read and not mapped."""
        assert 0 <= start and start + n_bytes <= tensor.n_bytes
        return self._whole(tensor, os.pread(self._fd, n_bytes, tensor.offset + start), n_bytes)

    def _whole(self, tensor, data, n_bytes):
        if len(data) < n_bytes:
            raise Fault(IO_ERROR, f"{self.path}: tensor {tensor.name}: the file became shorter while it was in use")
        return data

    def pointer(self, tensor):
        """Address of the first byte of `tensor` (const uint8_t *) in the read-only map, which lives as long as this File.

        Fault 69 if the tensor's type is none this build computes with. If the
        file is cut while it is mapped, touching what is gone ends the process: 74.
        """
        if not lib.type_supported(tensor.type):
            raise unsupported(self.path, f"tensor {tensor.name}: type {type_name(tensor.type)} is not supported by this build")
        if self._pointer is None:
            self._map_data()
        return self._pointer + (tensor.offset - self._map_start)

    def _map_data(self):
        import mmap
        import sys
        self._map_start = self.data_offset - self.data_offset % mmap.ALLOCATIONGRANULARITY
        n_bytes = self.size - self._map_start
        try:
            self._map = mmap.mmap(self._fd, n_bytes, mmap.MAP_PRIVATE, mmap.PROT_READ, offset=self._map_start)
        except ValueError:  # it is already shorter than this
            raise changed(self.path) from None
        self._ask_for_large_pages()
        pointer = ffi.cast("const uint8_t *", ffi.from_buffer(self._map))
        line = f"{os.path.basename(sys.argv[0])}: {printable(str(self.path), 400)[1:-1]}: cut while it was in use"
        if lib.guard_map(pointer, n_bytes, line.encode("utf-8", "backslashreplace")):
            raise RuntimeError("too many maps")
        self._pointer = pointer

    def _ask_for_large_pages(self):
        """What this map is the first to read goes into the page cache in pieces of 2 MiB where the kernel and the file system can:
        then every later process needs one page fault where it needs 32 (of 16 pages each, 0.1 s of processor time in 1 GB)."""
        hugepages.ask(self._map)

    def check_unchanged(self):
        """Fault 74 if the file was overwritten, cut or touched since it was opened: results are
        void."""
        if not unchanged(self._stat, os.fstat(self._fd)):
            raise changed(self.path)


def unchanged(then, now):
    """Whether a file of which os.fstat said `then` and says `now` was neither overwritten, cut nor
    touched meanwhile.

    The time of the last status change counts only while the number of links
    is the same: replacing a model by rename takes a link from the file we
    hold open, and changes nothing in it.
    """
    same = (then.st_size, then.st_mtime_ns) == (now.st_size, now.st_mtime_ns)
    return same and (then.st_nlink != now.st_nlink or then.st_ctime_ns == now.st_ctime_ns)


def changed(path):
    """The Fault (74) that the file was changed meanwhile."""
    return Fault(IO_ERROR, f"{path}: the file was changed while it was in use; "
                           "replace models by rename")


def type_name(kind):
    """The customary name of a GGML type number, or the number."""
    name = ffi.string(lib.type_name(kind)).decode() if kind < 1 << 31 else ""
    return name or f"number {kind}"
