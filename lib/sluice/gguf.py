"""A model file: GGUF v2 and v3, checked before anything in it is believed.

Layout (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md), little-endian:

    u8[4] "GGUF", u32 version, u64 n_tensors, u64 n_kv
    n_kv times:       string key, u32 type, value
    n_tensors times:  string name, u32 n_dims, u64 dims[n_dims], u32 type, u64 offset
    padding to `alignment`, then the tensor data, each tensor padded to `alignment`

where a string is u64 n_bytes and the bytes, and an array is u32 type, u64 n and
the elements. Metadata is read once into private memory and parsed there; only
tensor data is used from a (read-only) map.
"""
import os
import stat
import struct

from .faults import bad, printable, unsupported
from .kernels import ffi, lib

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
SCALARS = {U8: "B", I8: "b", U16: "H", I16: "h", U32: "I", I32: "i", F32: "f", BOOL: "B", U64: "Q", I64: "q", F64: "d"}
KIND_NAMES = ("u8", "i8", "u16", "i16", "u32", "i32", "f32", "bool", "string", "array", "u64", "i64", "f64")
MIN_KV_BYTES, MIN_TENSOR_BYTES = 8 + 1 + 4 + 1, 8 + 1 + 4 + 8 + 4 + 8
MAX_KV, MAX_TENSORS = 65_536, 65_536
MAX_METADATA_BYTES = 256 << 20
MAX_KEY_BYTES, MAX_STRING_BYTES, MAX_NAME_BYTES = 65_535, 1 << 20, 64
MAX_DIM = 1 << 40
FIRST_READ_BYTES = 1 << 16
SAMPLE_BYTES = 4096


class Array:
    """A metadata array: `kind` of its elements, `n` of them, `raw` their bytes as in the file."""

    __slots__ = ("kind", "n", "raw")

    def __init__(self, kind, n, raw):
        self.kind, self.n, self.raw = kind, n, raw

    def values(self):
        """The elements as a list; strings as bytes."""
        if self.kind != STRING:
            values = list(memoryview(self.raw).cast("B").cast(SCALARS[self.kind])) if self.n else []
            return [bool(v) for v in values] if self.kind == BOOL else values
        out, at = [], 0
        for _ in range(self.n):
            (n_bytes,) = struct.unpack_from("<Q", self.raw, at)
            out.append(bytes(self.raw[at + 8:at + 8 + n_bytes]))
            at += 8 + n_bytes
        return out


class Tensor:
    """One entry of the tensor directory: `shape` in GGUF order (the row length first), `offset` absolute, in bytes."""

    __slots__ = ("name", "type", "shape", "offset", "n_bytes")

    def __init__(self, name, type, shape, offset, n_bytes):
        self.name, self.type, self.shape, self.offset, self.n_bytes = name, type, shape, offset, n_bytes


class File:
    """A checked GGUF file, open.

    path        as given
    size        bytes
    version     2 or 3
    alignment   bytes, of tensor data
    metadata    dict: key -> bool, int, float, str or Array, in file order
    tensors     dict: name -> Tensor, in file order
    data_offset first byte of tensor data
    id          bytes [32], what this model is (SHA-256, see `_identify`)
    """

    def __init__(self, path):
        self.path = path
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # NONBLOCK: a FIFO must not hang us
        self._stat = os.fstat(self._fd)
        if not stat.S_ISREG(self._stat.st_mode):
            raise bad(path, "not a regular file")
        self.size = self._stat.st_size
        if self.size < 24:
            raise bad(path, f"{self.size} bytes: too short for a GGUF header")
        self._buffer, self._at = b"", 0
        self._id = self._map = self._pointer = None
        self._parse()

    def fault(self, what):
        """The Fault (65) that this file has `what` wrong with it."""
        return bad(self.path, what)

    _bad = fault

    # Reading metadata: a cursor over bytes that are read once, in order.

    def _need(self, n_bytes, what):
        """Make `n_bytes` more bytes after the cursor readable, or raise the Fault that the file ends within `what`."""
        end = self._at + n_bytes
        if end <= len(self._buffer):
            return
        if end > self.size:
            raise self._bad(f"{what}: file ends at byte {self.size}, {end - self.size} bytes too early")
        if end > MAX_METADATA_BYTES:
            raise self._bad(f"{what}: metadata of more than {MAX_METADATA_BYTES >> 20} MiB")
        goal = min(self.size, max(end, 2 * len(self._buffer), FIRST_READ_BYTES))
        parts = [self._buffer]
        have = len(self._buffer)
        while have < goal:
            part = os.pread(self._fd, goal - have, have)
            if not part:
                raise self._bad(f"{what}: file became shorter while it was read")
            parts.append(part)
            have += len(part)
        self._buffer = b"".join(parts)

    def _unpack(self, form, what):
        n_bytes = struct.calcsize(form)
        self._need(n_bytes, what)
        values = struct.unpack_from(form, self._buffer, self._at)
        self._at += n_bytes
        return values

    def _bytes(self, what, least, most):
        (n_bytes,) = self._unpack("<Q", what)
        if not least <= n_bytes <= most:
            raise self._bad(f"{what}: length {n_bytes} is not within {least} to {most}")
        self._need(n_bytes, what)
        self._at += n_bytes
        return self._buffer[self._at - n_bytes:self._at]

    def _parse(self):
        magic, self.version = self._unpack("<4sI", "header")
        if magic != b"GGUF":
            raise self._bad(f"does not begin with GGUF but with {printable(magic)}")
        if self.version not in (2, 3):
            swapped = int.from_bytes(self.version.to_bytes(4, "little"), "big")
            if swapped in (1, 2, 3):
                raise unsupported(self.path, f"GGUF version {swapped} in the other byte order")
            raise unsupported(self.path, f"GGUF version {self.version}; this build reads 2 and 3")
        n_tensors, n_kv = self._unpack("<QQ", "header")
        left = self.size - self._at
        if n_tensors > min(MAX_TENSORS, left // MIN_TENSOR_BYTES):
            raise self._bad(f"n_tensors {n_tensors}: too many for {left} bytes")
        if n_kv > min(MAX_KV, left // MIN_KV_BYTES):
            raise self._bad(f"n_kv {n_kv}: too many for {left} bytes")
        self.metadata = {}
        for i in range(n_kv):
            self._parse_kv(i)
        self.alignment = self.get("general.alignment", "u32", 32)
        a = self.alignment
        if not (8 <= a <= 1 << 20 and a & (a - 1) == 0):
            raise self._bad(f"general.alignment {a}: not a power of two from 8 to 1 MiB")
        self.tensors = {}
        for i in range(n_tensors):
            self._parse_tensor(i)
        self.n_metadata_bytes = self._at
        self.data_offset = -(-self._at // a) * a
        self._place_tensors()
        self._buffer = self._buffer[:self._at]

    def _parse_kv(self, i):
        key = self._bytes(f"key {i}", 1, MAX_KEY_BYTES)
        if not (key.isascii() and key.isprintable() if isinstance(key, str) else all(32 < c < 127 for c in key)):
            raise self._bad(f"key {i}: {printable(key)} is not printable ASCII")
        key = key.decode()
        if key in self.metadata:
            raise self._bad(f"key {printable(key)} appears twice")
        (kind,) = self._unpack("<I", key)
        self.metadata[key] = self._value(key, kind)

    def _value(self, key, kind):
        if kind == STRING:
            return self._bytes(key, 0, MAX_STRING_BYTES).decode("utf-8", "backslashreplace")
        if kind == ARRAY:
            return self._array(key)
        if kind not in SCALARS:
            raise self._bad(f"{key}: value type {kind} is not one of 0 to 12")
        (value,) = self._unpack("<" + SCALARS[kind], key)
        if kind == BOOL:
            if value > 1:
                raise self._bad(f"{key}: bool is {value}")
            return bool(value)
        return value

    def _array(self, key):
        kind, n = self._unpack("<IQ", key)
        if kind == ARRAY or kind > F64:
            raise self._bad(f"{key}: array of type {kind} is not supported")
        width = 8 if kind == STRING else struct.calcsize(SCALARS[kind])
        if n > (self.size - self._at) // width:
            raise self._bad(f"{key}: {n} elements do not fit into the file")
        start = self._at
        if kind == STRING:
            self._skip_strings(key, n)
        else:
            self._need(n * width, key)
            self._at += n * width
        raw = memoryview(self._buffer)[start:self._at]
        if kind == BOOL and n and max(raw) > 1:
            raise self._bad(f"{key}: a bool of the array is {max(raw)}")
        return Array(kind, n, raw)

    def _skip_strings(self, key, n):
        """Move the cursor over `n` strings; the C scanner checks every length against what was read."""
        done, state = 0, ffi.new("gguf_scan *")
        while done < n:
            status = lib.gguf_skip_strings(state, ffi.from_buffer(self._buffer), len(self._buffer), self._at,
                                           n - done, MAX_STRING_BYTES)
            done += state.n_done
            self._at = state.at
            if status < 0:
                raise self._bad(f"{key}: string {done} has {state.n_bytes} bytes, more than {MAX_STRING_BYTES}")
            if done < n:
                self._need(8 + state.n_bytes, f"{key}: string {done}")

    def _parse_tensor(self, i):
        name = self._bytes(f"tensor {i}: name", 1, MAX_NAME_BYTES)
        if not all(32 <= c < 127 for c in name):
            raise self._bad(f"tensor {i}: name {printable(name)} is not printable ASCII")
        name = name.decode()
        what = f"tensor {name}"
        if name in self.tensors:
            raise self._bad(f"{what} appears twice")
        (n_dims,) = self._unpack("<I", what)
        if not 1 <= n_dims <= 4:
            raise self._bad(f"{what}: n_dims {n_dims} is not 1 to 4")
        shape = self._unpack(f"<{n_dims}Q", what)
        kind, offset = self._unpack("<IQ", what)
        n_elements = 1
        for d in shape:
            if not 1 <= d <= MAX_DIM:
                raise self._bad(f"{what}: dimension {d} is not 1 to 2^40")
            n_elements *= d  # Python integers do not wrap
        if n_elements >= 1 << 63:
            raise self._bad(f"{what}: {n_elements} elements")
        row_bytes = lib.type_row_bytes(kind, shape[0])
        if row_bytes == 0:
            raise unsupported(self.path, f"{what}: type {type_name(kind)} is not supported by this build")
        if row_bytes < 0:
            raise self._bad(f"{what}: row of {shape[0]} is not a multiple of the {type_name(kind)} block")
        n_bytes = row_bytes * (n_elements // shape[0])
        self.tensors[name] = Tensor(name, kind, shape, offset, n_bytes)

    def _place_tensors(self):
        """Turn offsets into absolute ones; the data must be consecutive, padded to the alignment, inside the file."""
        expected = 0
        for t in self.tensors.values():
            if t.offset != expected:
                raise self._bad(f"tensor {t.name}: offset {t.offset}, but the tensors before it end at {expected}")
            t.offset += self.data_offset
            if t.offset + t.n_bytes > self.size:
                raise self._bad(f"tensor {t.name}: ends at byte {t.offset + t.n_bytes}, but the file has {self.size}")
            expected += -(-t.n_bytes // self.alignment) * self.alignment

    # Using it.

    def get(self, key, kind, default=...):
        """The value of `key`, which must be of `kind`: a name of KIND_NAMES, or "[u32]" for an array; else 65 naming both.

        "u32" also takes the narrower unsigned types and a non-negative i32, as writers differ.
        `default` is returned where the key is absent; without one that is an error too.
        """
        if key not in self.metadata:
            if default is ...:
                raise self._bad(f"{key} is missing")
            return default
        value = self.metadata[key]
        if kind.startswith("["):
            fits = isinstance(value, Array) and KIND_NAMES[value.kind] == kind[1:-1]
        elif kind in ("f32", "f64"):
            fits = isinstance(value, float)
        elif kind == "bool":
            fits = isinstance(value, bool)
        elif kind == "string":
            fits = isinstance(value, str)
        else:
            fits = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << int(kind[1:])
        if not fits:
            raise self._bad(f"{key}: expected {kind}, found {self._describe(value)}")
        return value

    @staticmethod
    def _describe(value):
        if isinstance(value, Array):
            return f"an array of {value.n} {KIND_NAMES[value.kind]}"
        return f"{type(value).__name__} {printable(str(value), 40)}"

    @property
    def id(self):
        if self._id is None:
            self._id = self._identify()
        return self._id

    def _identify(self):
        """SHA-256 of: a version line, the file size, all metadata and the tensor directory, and the
        first 4 KiB of every tensor. Tells two fine-tunes apart and reads about 1 MB of a large file."""
        import hashlib
        h = hashlib.sha256(b"sluice model 1\n" + struct.pack("<Q", self.size))
        h.update(self._buffer)
        for t in self.tensors.values():
            want = min(SAMPLE_BYTES, t.n_bytes)
            part = os.pread(self._fd, want, t.offset)
            if len(part) < want:
                raise self._bad(f"tensor {t.name}: file became shorter while it was read")
            h.update(part)
        return h.digest()

    def pointer(self, tensor):
        """Address of the first byte of `tensor` (const void *) in the read-only map, which lives as long as this File."""
        if self._map is None:
            import mmap
            self._map = mmap.mmap(self._fd, self.size, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ)
            self._pointer = ffi.cast("const uint8_t *", ffi.from_buffer(self._map))
        return self._pointer + tensor.offset

    def check_unchanged(self):
        """Fault 74 if the file was replaced in place, cut or touched since it was opened: results are void."""
        now = os.fstat(self._fd)
        if any(getattr(now, f) != getattr(self._stat, f) for f in ("st_size", "st_mtime_ns", "st_ctime_ns")):
            from .faults import IO_ERROR, Fault
            raise Fault(IO_ERROR, f"{self.path}: the file was changed while it was in use; replace models by rename")


def type_name(kind):
    """The customary name of a GGML type number, or the number."""
    name = ffi.string(lib.type_name(kind)).decode()
    return name or f"number {kind}"
