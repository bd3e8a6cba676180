"""Models of random weights: a shape and a type, written once to a folder, named by their content.

The bytes of a block are random, except for its scale. Scales give a row of n weights a standard
deviation of 1 / sqrt(n), so activations stay near 1. The output of such a model is meaningless, but
it reads and computes as much as a real model of its shape. The bytes are the same on every machine;
only the standard library is needed.
"""

from __future__ import annotations

import hashlib
import math
import os
import random
import struct
from array import array
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ..faults import USAGE, Error, unsupported_error
from ..gguf import write as gguf_write
from ..kernels import ffi, lib
from ..quantize import mixes
from ..quantize.mixes import FILE_TYPES, FLOATS, MIXES, numbers
from ..system import cache_directory
from . import shapes

VERSION = b"sluice synthetic 1\n"
# of random blocks, which are repeated from different offsets; each tensor still has its own pages
POOL_BYTES = 8 << 20


def scales(type: int) -> dict[int, float]:
    """The scales of a block of type number `type`, each an f16: byte where it is -> its size beside
    d. A minimum is chosen so that the mean is near 0: it is added in blocks of 32, and taken off in
    blocks of 256.
    """
    facts = lib.type_facts(type)
    middle = ((1 << facts.bits) - 1) / 2
    sizes = (1, middle if facts.block == 256 else -middle)
    return {facts.at_d + 2 * i: sizes[i] for i in range(facts.n_scale)}


def types() -> list[str]:
    """The types that this build computes with and this module can make, mixes among them."""
    plain = [*FLOATS, *mixes.block_types(lib.type_supported)]
    return plain + [name for name, parts in MIXES.items() if set(parts) <= set(plain)]


def check_type(name: str, option: str = "--type") -> None:
    """Error 64 or 69: no model, or for --head no matrix, can be made of type `name`."""
    known = types() if option == "--type" else [kind for kind in types() if kind not in MIXES]
    if name not in FILE_TYPES or option != "--type" and name in MIXES:
        raise Error(USAGE, f"{option}: {name!r}: unknown type; use {', '.join(known)}")
    if name not in known:
        raise unsupported_error(
            option, f"{name} is not supported by this build; use {', '.join(known)}"
        )


def check_types(names: Iterable[str], head: str | None = None) -> None:
    """check_type for the values of --type and of --head, which may be None."""
    for name in names:
        check_type(name)
    if head:
        check_type(head, "--head")


def type_of(
    kind: str, tensor: str, dims: tuple[int, ...], shape: shapes.Shape, head: str | None = None
) -> str:
    """The type of `tensor` with dimensions `dims` in a model of `shape` and `kind`.

    head: another type for the head, or None.
    """
    if not mixes.is_quantised(tensor, dims):
        return "F32"
    if head and tensor == ("token_embd.weight" if shape.tied else "output.weight"):
        return mixes.fitting(head, dims[0])
    return mixes.type_of(kind, tensor, dims, shape.n_layer, shape.tied)


def _mxfp4(blocks, d, factors, n):
    """Write 2^(e - 128) of `n` blocks: powers of two beside `d`, whose mean square is d's."""
    exponent = math.floor(math.log2(d))
    above = ((d / 2.0**exponent) ** 2 - 1) / 3
    of = bytes(128 + exponent + (2 * (f - 0.75) < above) for f in factors)
    blocks[::17] = (of * -(-n // len(of)))[:n]


def _nvfp4(blocks, d, factors, n):
    """Write the four scales in E4M3 of `n` blocks around `d`; it counts them twice."""
    known = [(e % 8 / 8 + (e > 7)) * 2.0 ** (max(e // 8, 1) - 8) for e in range(0x7F)]
    of = bytes(min(range(0x7F), key=lambda e: abs(known[e] - f * d)) for f in factors)
    for at in range(4):
        blocks[at::36] = (of * -(-n // len(of)))[:n]


def _iq1_m(blocks, d, factors, n):
    """Write f16 around `d` to `n` blocks: 4 bits above the scales in each of 4 words."""
    halves = [int.from_bytes(struct.pack("<e", f * d), "little") for f in factors]
    for i in range(n):
        for j in range(4):
            at = 56 * i + 49 + 2 * j
            blocks[at] = blocks[at] & 15 | (halves[i % len(halves)] >> 4 * j & 15) << 4


OTHER_SCALES = {"MXFP4": _mxfp4, "NVFP4": _nvfp4, "IQ1_M": _iq1_m}  # than f16


class Weights:
    """Random rows of one type, as bytes of a GGUF file."""

    def __init__(self, name: str) -> None:
        self.name, self.type = name, numbers()[name]
        self._base = (
            Weights("Q8_0") if name in FLOATS else None
        )  # floats are dequantized Q8_0 blocks
        self.block = lib.type_block(self.type)
        self.block_bytes = lib.type_row_bytes(self.type, self.block)
        if self._base is None:
            self._n = POOL_BYTES // self.block_bytes
            rng = random.Random(self.type)
            self._random = rng.randbytes(self._n * self.block_bytes)
            # blocks differ in scale
            self._factor = [0.75 + 0.5 * rng.random() for _ in range(1 << 10)]
            self._unit = self._deviation()
        self._pool: tuple[float | None, bytes] = (None, b"")

    def _scaled(self, d, n):
        """The first `n` blocks with scales around `d`."""
        blocks = bytearray(self._random[: n * self.block_bytes])
        if self.name in OTHER_SCALES:
            OTHER_SCALES[self.name](blocks, d, self._factor, n)
        for at, size in scales(self.type).items():
            halves = struct.pack(
                f"<{len(self._factor)}e", *[f * d * size for f in self._factor]
            ) * -(-n // len(self._factor))
            blocks[at :: self.block_bytes], blocks[at + 1 :: self.block_bytes] = (
                halves[: 2 * n : 2],
                halves[1 : 2 * n : 2],
            )
        return blocks

    def _deviation(self):
        """Root mean square of the weights with d around 1."""
        n = 8192 // self.block
        values = self._values(self._scaled(1.0, n), n * self.block)
        return (sum(v * v for v in values) / len(values)) ** 0.5

    def _values(self, blocks, n):
        """array("f") of the `n` weights in `blocks`."""
        out = array("f", bytes(4 * n))
        lib.dequantize_row(ffi.from_buffer("float[]", out), self.type, ffi.from_buffer(blocks), n)
        return out

    def pool(self, deviation: float) -> bytes:
        """Bytes of many blocks whose weights have this standard deviation."""
        if self._pool[0] != deviation:
            self._pool = (
                deviation,
                self._floats(deviation)
                if self._base
                else bytes(self._scaled(deviation / self._unit, self._n)),
            )
        return self._pool[1]

    def _floats(self, deviation):
        n = POOL_BYTES // 4
        values = self._base._values(self._base.pool(deviation), n)
        if self.name == "F32":
            return values.tobytes()
        if self.name == "F16":
            out = array("H", bytes(2 * n))
            lib.convert_f32_f16(
                ffi.from_buffer("uint16_t[]", out), ffi.from_buffer("float[]", values), n
            )
            return out.tobytes()
        raw, out = values.tobytes(), bytearray(2 * n)
        out[0::2], out[1::2] = raw[2::4], raw[3::4]  # the upper halves
        return bytes(out)

    def pieces(self, n_in: int, n_row: int, start: int = 0) -> Iterator[memoryview]:
        """Yield the bytes of a matrix [n_row, n_in]; another `start` gives another matrix."""
        pool, left = memoryview(self.pool(n_in**-0.5)), lib.type_row_bytes(self.type, n_in) * n_row
        at = start * 7919 * self.block_bytes % len(pool)
        while left:
            piece = pool[at : at + left]
            yield piece
            at, left = 0, left - len(piece)


def tensors(shape: shapes.Shape, kind: str, head: str | None = None) -> list[tuple]:
    """The tensors of a model, for gguf_write; their data is made when they are written.

    kind, head: as for type_of.
    """
    made: dict[str, Weights] = {}
    out: list[tuple] = []
    data: bytes | Callable[[], Iterator[memoryview]]
    for i, (name, dims) in enumerate(shapes.tensors(shape).items()):
        type = type_of(kind, name, dims, shape, head)
        if name == "rope_freqs.weight":
            data = struct.pack(f"<{dims[0]}f", *shapes.rope_factors(shape))
        elif len(dims) == 1:
            data = struct.pack("<f", _constant(name)) * dims[0]
        else:
            data = lambda type=type, dims=dims, i=i: _weights(made, type).pieces(*dims, start=i)
        out.append((name, numbers()[type], dims, data))
    return out


def _constant(name):
    """Every element of a vector: a gain is 1, and a state decays."""
    return 0.0 if name.endswith(".bias") else -1.0 if name.endswith(".ssm_a") else 1.0


def _weights(made, type):
    if type not in made:
        made[type] = Weights(type)
    return made[type]


def cache_home() -> str:
    """The default directory of models: in the cache, else in the temporary directory."""
    import tempfile

    temporary = os.path.join(tempfile.gettempdir(), f"sluice-{os.geteuid()}")
    return os.path.join(cache_directory.home() or temporary, "bench")


def find_all(
    directory: str | None,
    keys: Iterable[str],
    kinds: Iterable[str],
    n_layer: int | None,
    head: str | None,
    say: Callable[[str], Any],
) -> list[str]:
    """The paths of find() for each of `keys` and `kinds`. directory: None is cache_home()."""
    return [
        find(directory or cache_home(), key, kind, n_layer, say, head)
        for key in keys
        for kind in kinds
    ]


def find(
    directory: str,
    key: str,
    kind: str,
    n_layer: int | None = None,
    say: Callable[[str], Any] = lambda message: None,
    head: str | None = None,
) -> str:
    """Path of the model of SHAPES[key] in `directory`; it is written if it does not exist.

    kind, head: as for type_of. n_layer: number of layers, or None for all. Error 64, 69, 73 to 75.
    """
    check_type(kind)
    shape = shapes.SHAPES[key]
    if n_layer is not None and n_layer != shape.n_layer:
        if n_layer > shape.n_layer:
            raise Error(USAGE, f"--layers: {key} has only {shape.n_layer}")
        shape, key = shapes.cut(shape, n_layer), f"{key}-{n_layer}"
    meta, parts = shapes.metadata(shape, FILE_TYPES[kind]), tensors(shape, kind, head)
    start = gguf_write.head(meta, parts)
    path = os.path.join(
        directory, f"{key}-{kind.lower()}-{hashlib.sha256(VERSION + start).hexdigest()[:8]}.gguf"
    )
    n_bytes = gguf_write.file_bytes(start, parts)
    cache_directory.prepare_path(directory)
    if not (os.path.isfile(path) and os.path.getsize(path) == n_bytes):
        if n_bytes > 1 << 28:
            say(f"writing {path}, {n_bytes / 1e9:.1f} GB; it is kept")
        gguf_write.write(path, meta, parts)
        _forget(path)
    return path


def _forget(path):
    """Drop a new file from the page cache.

    Its pages are laid out as they were written; measured are pages that were read.
    """
    if hasattr(os, "posix_fadvise"):
        with open(path, "rb") as f:
            os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
