"""GGUF reader: a model file, version 2 or 3, checked before use.

Layout (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md), little-endian:

    u8[4] "GGUF", u32 version, u64 n_tensors, u64 n_kv
    n_kv times:       string key, u32 type, value
    n_tensors times:  string name, u32 n_dims, u64 dims[n_dims], u32 type, u64 offset
    padding to `alignment`, then the tensor data, each tensor padded to `alignment`

A string is u64 n_bytes and the bytes. An array is u32 type, u64 n and the elements.

Metadata are read once into private memory and parsed there; only tensor data are used from a
(read-only) map. The whole header is always checked, even for one key. The largest vocabulary known
(Gemma 4: 262,144 tokens, 514,906 merges, 15.7 MB) costs 10 ms. Values of more than 64 KiB that no
command needs stay in the file (metadata.Unread). A model of several files (shards.py) is one File.
"""

import struct

from ..faults import data_error, printable, unsupported_error
from ..system import cache_directory
from . import tensor
from .cursor import Cursor
from .metadata import (
    ARRAY,
    F32,
    F64,
    INTEGERS,
    KIND_NAMES,
    LARGE,
    U32,
    Unread,
    describe,
    parse_metadata,
)
from .part import Part

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..faults import Error

HEADER = struct.Struct("<4sI")
COUNTS = struct.Struct("<QQ")

MIN_FILE_BYTES = HEADER.size + COUNTS.size
MIN_KV_BYTES = 8 + 1 + 4 + 1
MAX_KV, MAX_TENSORS = 65_536, 65_536
# four times the largest known; bounds the memory that a hostile file can cost
MAX_METADATA_BYTES = 64 << 20
MAX_ALIGNMENT = 1 << 20
SAMPLE_BYTES = 4096  # of each tensor, in `earlier_id`
LFS_POINTER = b"version https://git-lfs"


class File:
    """A checked and open GGUF file, or all shards of a split model.

    Errors 65 and 69 name the wrong field. OSError if a file cannot be read.

    path        as given; for a split model the path of any shard
    parts       list of Part: the file, or all shards in order
    size        bytes of all parts
    version     2 or 3
    alignment   bytes, of tensor data
    metadata    dict: key -> bool, int, float, str, Array or Unread, in file order; for a split
                model the metadata of the first shard
    kinds       dict: key -> type number of the value
    tensors     dict: name -> Tensor, in file order
    data_offset first byte of tensor data, in the first part
    n_scanned   bytes that were read only to find the end of a value, in the file at `path`
    id          bytes [32], the model ID, computed on first use (identity.py)
    id_cache    directory of cached IDs; default: the user's cache; None: no cache
    """

    kind = "a GGUF"  # in messages
    id_cache: str | None
    _id: bytes | None
    _earlier_id: bytes | None
    MAX_METADATA_BYTES, MAX_TENSORS = MAX_METADATA_BYTES, MAX_TENSORS

    def __init__(self, path: str, alone: bool = False, huge_pages: bool = False) -> None:
        """Open and check the file.

        alone: open only this shard of a split model. huge_pages: on the first use of tensor
        data copy them into memory in pages of 2 MiB instead of mapping them.
        """
        self.path, self._id, self._earlier_id = path, None, None
        self._huge_pages = huge_pages
        self.id_cache = cache_directory.home()
        self.parts = [Part(path, MIN_FILE_BYTES, self.kind)]
        cursor = Cursor(self.parts[0], MAX_METADATA_BYTES)
        self._parse(cursor)
        self.n_scanned = cursor.scanned
        if "split.count" in self.metadata and not alone:
            from . import shards

            shards.join(self)

    @property
    def size(self) -> int:
        """Bytes of all parts."""
        return sum(part.size for part in self.parts)

    @property
    def data_offset(self) -> int:
        """First byte of tensor data, in the first part."""
        return self.parts[0].data_offset

    def data_error(self, problem: str) -> "Error":
        """A DataError (65) that names this file."""
        return data_error(self.path, problem)

    # parsing

    def _parse(self, cursor):
        magic, self.version = cursor.unpack(HEADER, "header")
        if magic == LFS_POINTER[:4] and cursor.memory[: len(LFS_POINTER)] == LFS_POINTER:
            raise self.data_error(
                "is a pointer of Git LFS, not a model; git lfs pull fetches the file"
            )
        if magic != b"GGUF" and self.path.endswith(".safetensors"):
            raise self.data_error("not GGUF; gguf-convert makes one of the folder that it is in")
        if magic != b"GGUF":
            raise self.data_error(f"magic: is {printable(magic)}, not GGUF")
        if self.version not in (2, 3):
            swapped = int.from_bytes(self.version.to_bytes(4, "little"), "big")
            if swapped in (1, 2, 3):
                raise unsupported_error(
                    self.path, f"version: GGUF {swapped} in the other byte order"
                )
            raise unsupported_error(
                self.path, f"version: GGUF {self.version}; this build reads 2 and 3"
            )
        n_tensors, n_kv = cursor.unpack(COUNTS, "header")
        left = cursor.size - cursor.at
        for field, n, minimum, maximum in (
            ("n_tensors", n_tensors, tensor.MIN_BYTES, MAX_TENSORS),
            ("n_kv", n_kv, MIN_KV_BYTES, MAX_KV),
        ):
            if n > maximum:
                raise self.data_error(f"{field}: {n} is more than {maximum}")
            if n > left // minimum:
                raise self.data_error(f"{field}: {n} do not fit into {left} bytes")
        self.metadata, self.kinds, self._spans = parse_metadata(cursor, n_kv)
        self.alignment = a = self._alignment()
        self.tensors = {}
        part = self.parts[0]
        for i in range(n_tensors):
            t = tensor.parse(cursor, i, part, self.tensors)
            self.tensors[t.name] = t
        part.head, self._n_head = cursor.memory[: cursor.at], cursor.offset
        part.data_offset = -(-self._n_head // a) * a
        tensor.place(self.tensors.values(), part, a)

    def _alignment(self):
        key = "general.alignment"
        if key not in self.metadata:
            return 32
        a = self.metadata[key]
        if self.kinds[key] != U32:
            raise self.data_error(f"{key}: expected u32, found {describe(a, self.kinds[key])}")
        # at least 8, so that every type is aligned in the map
        if not (8 <= a <= MAX_ALIGNMENT and a & (a - 1) == 0):
            raise self.data_error(f"{key}: {a} is not a power of two from 8 to {MAX_ALIGNMENT}")
        return a

    # access

    def get(
        self, key: str, kind: str, default: "Any" = ..., scalar: "tuple[Any, int] | None" = None
    ) -> "Any":
        """Return the value of `key`. DataError unless it is of `kind`.

        kind: a name of KIND_NAMES, or "[u32]" for an array. A scalar integer may be stored
        in any integer type if the value fits `kind`, and a float as f32 or f64, since
        writers differ. Arrays must be of exactly `kind`. default: returned if the key is
        absent; without a default an absent key is a DataError. scalar: (value, type number)
        to use instead of the stored ones.
        """
        if key not in self.metadata:
            if default is ...:
                raise self.data_error(f"{key} is missing")
            return default
        value, stored = scalar or (self.metadata[key], self.kinds[key])
        if isinstance(value, Unread):
            raise self.data_error(f"{key}: {value.n_bytes} bytes, more than {LARGE}")
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
            raise self.data_error(f"{key}: expected {kind}, found {describe(value, stored)}")
        return value

    def raw(self, key: str) -> "bytes | memoryview | Unread":
        """Return the stored bytes of the value of `key`, type number first: a memoryview,
        or the Unread.
        """
        if self._spans[key] is None:
            return self.metadata[key]
        begin, end = self._spans[key]
        return self.parts[0].head[begin:end]

    @property
    def id(self) -> bytes:
        """The model ID, bytes [32], computed on first use. Error 74 if the file changed."""
        if self._id is None:
            self._id = self._identify()
        return self._id

    def _identify(self):
        from . import identity

        return identity.of(self.parts, self.id_cache)

    @property
    def earlier_id(self) -> bytes:
        """bytes [32], the ID of this model in earlier versions (identity.earlier); old
        calibrations have it.
        """
        if self._earlier_id is None:
            from . import identity

            samples = (self.read(t, 0, min(SAMPLE_BYTES, t.n_bytes)) for t in self.tensors.values())
            self._earlier_id = identity.earlier(self.size, self._earlier_head(), samples)
        return self._earlier_id

    def _earlier_head(self):
        """The bytes before the tensor data that `earlier_id` covers. Earlier versions
        refused more than MAX_METADATA_BYTES.
        """
        return self.parts[0].read(min(self._n_head, MAX_METADATA_BYTES), 0, "header")

    def read(self, t: "tensor.Tensor", start: int, n_bytes: int) -> bytes:
        """Return a copy of `n_bytes` bytes of the Tensor `t` from byte `start` on, by
        read(2), not the map.
        """
        assert 0 <= start and start + n_bytes <= t.n_bytes
        return t.part.read(n_bytes, t.offset + start, f"tensor {t.name}")

    def pointer(self, t: "tensor.Tensor") -> "Any":
        """Return const uint8_t * to the first byte of the Tensor `t` in the read-only map
        of its part.

        The map lives as long as this File. UnsupportedError if this build does not compute
        with the tensor's type.
        """
        t.check_type()
        return t.part.pointer(t.offset, self._huge_pages)

    def check_unchanged(self) -> None:
        """Error 74 if a file was overwritten, truncated or touched since it was opened:
        results are then invalid.
        """
        for part in self.parts:
            part.check_unchanged()
