"""KV-cache snapshot file format: byte layout, header, checksums.

Little-endian. A header page, then regions that begin on pages of 4096 bytes:

    offset  type    field            value
         0  u8[6]   magic            "KVSNAP"
         6  u16     version          2, 3 or 4
         8  u32     header_bytes     4096
        12  u32     flags            0
        16  u8[32]  model_id         BLAKE3 of the model
        48  u32     n_layer
        52  u32     n_head_kv
        56  u32     head_dim
        60  u32     kv_type          GGML type number: 0 = f32, 1 = f16, 8 = q8_0
        64  u32     n_vocab
        68  u32     capacity         in tokens
        72  u32     n_tok            tokens stored
        76  u32     zero             0
        80  u64     ids_offset       of the tokens, i32 [capacity]
        88  u64     logits_offset    of the logits after the last token, f32 [n_vocab]
        96  u64     kv_offset        of the KV planes
       104  u64     layer_stride     bytes from a layer's K to the next layer's K
       112  u64     v_distance       bytes from a layer's K to its V
       120  u64     file_bytes
       128  u64     checksum_offset  of the checksums, u32 [n_checksum]
       136  u32     n_checksum
       140  u32     piece_bytes      bytes per checksum, 2^20
       144  u8[16]  arithmetic       a name, NUL-padded
       160  u8[32]  digest           SHA-256 of bytes 0 to 159 and of the checksums
       192          zero
      4092  u32     CRC32C of the 4092 bytes before

    region          contents
    tokens          i32 [capacity]
    logits          f32 [n_vocab]
    KV planes       [layer][K or V][capacity][n_head_kv][head_dim], of kv_type
    checksums       u32 [n_checksum]

K is stored after RoPE, so a row belongs to its position: a snapshot is a prefix, never a fragment.
Tokens, model and arithmetic determine every byte of the file, however it was computed.

A checksum is the CRC32C of 1 MiB, or of the remainder, of the valid part of a section: the n_tok
tokens, the logits, then n_tok rows of K and of V of each layer. The file has a hole behind the
valid rows: it takes no disk space and is not read.

Version 3 is written for models whose blocks differ in heads (Gemma 4). Only blocks that store keys
and values have planes; n_layer counts them, n_head_kv and head_dim are those of the first, and
layer_stride and v_distance are 0. A table follows at byte 192: u16 n_head_kv, u16 head_dim of each
block. A plane takes as many pages as `capacity` of its own rows need; planes follow each other.

Version 4 is written for models with blocks that keep a state instead of keys and values (LFM2,
Qwen3.5). At byte 192 are u32 n_state, the number of these blocks, and u32 state_floats, the f32 of
each; the table of version 3 follows. States are at the end of the file, each begins on a page, and
they have checksums as planes have. They are those after the last token, so such a snapshot is a
prefix at its own length only.

Version 1 has the same bytes, but its model ID covers samples of the model file only, so different
models can share one. It is refused.
"""

import os
import struct
from collections import namedtuple

from ..faults import data_error
from ..kernels import lib
from ..limits import MAX_CAPACITY, MAX_LAYERS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

MAGIC, VERSION, OF_SAMPLES = b"KVSNAP", 2, 1
WITH_WIDTHS, WITH_STATES = 3, 4
PAGE_BYTES = 4096
PIECE_BYTES = 1 << 20
KV_TYPES = {"f32": 0, "f16": 1, "q8_0": 8}  # GGML numbers
HEADER = struct.Struct("<6sHII32s4I4I3Q3QQII16s32s")
FIELDS = (
    "magic version header_bytes flags model_id n_layer n_head_kv head_dim kv_type n_vocab capacity"
    " n_tok zero ids_offset logits_offset kv_offset layer_stride v_distance file_bytes"
    " checksum_offset n_checksum piece_bytes arithmetic digest"
).split()
DIGESTED_BYTES = 160
CRC = struct.Struct("<I")
WIDTH, STATES = struct.Struct("<HH"), struct.Struct("<II")
MAX_STATE_FLOATS = 1 << 31

# widths: (n_head_kv, head_dim) of each layer if layers differ, or with states, else (); then
# n_head_kv and head_dim are those of the first. states: (n_state, state_floats), or ()
Geometry = namedtuple(
    "Geometry", "n_layer n_head_kv head_dim kv_type n_vocab widths states", defaults=[(), ()]
)


def _widths(geometry):
    return geometry.widths or ((geometry.n_head_kv, geometry.head_dim),) * geometry.n_layer


def misfit(geometry: "Any") -> str | None:
    """Return an error text if a head is not a whole number of blocks of the KV type, else None."""
    for _, head_dim in _widths(geometry):
        if lib.type_row_bytes(geometry.kv_type, head_dim) < 0:
            return (
                f"head_dim is {head_dim}, not a multiple of 32 as kv_type {geometry.kv_type} needs"
            )
    return None


def _pages(n_bytes):
    return -(-n_bytes // PAGE_BYTES) * PAGE_BYTES


class Layout:
    """Offsets in bytes of a snapshot of `geometry` and `capacity`, named as in the header.

    rows: bytes of a row of each layer's keys, and of its values. planes: (offset, bytes of a row)
    of each plane: K and V of layer 0, K and V of layer 1 ... token_bytes: of all rows of a token.
    states: offset of each state, of state_bytes; state_offset: of the first.
    """

    def __init__(self, geometry: "Any", capacity: int) -> None:
        if geometry.kv_type not in KV_TYPES.values():
            raise ValueError(f"KV type {geometry.kv_type}")
        if problem := misfit(geometry):
            raise ValueError(problem)
        if not 1 <= capacity <= MAX_CAPACITY:
            raise ValueError(f"capacity {capacity} is not 1 to {MAX_CAPACITY}")
        self._geometry = geometry
        self.rows = [
            n_head_kv * lib.type_row_bytes(geometry.kv_type, head_dim)
            for n_head_kv, head_dim in _widths(geometry)
        ]
        self.token_bytes = 2 * sum(self.rows)
        self.n_plane = 2 * geometry.n_layer
        self.v_distance = 0 if geometry.widths else _pages(capacity * self.rows[0])
        self.layer_stride = 2 * self.v_distance
        self.ids_offset = PAGE_BYTES
        self.logits_offset = self.ids_offset + _pages(4 * capacity)
        self.logits_bytes = 4 * geometry.n_vocab
        self.checksum_offset = self.logits_offset + _pages(self.logits_bytes)
        self.kv_offset = self.checksum_offset + _pages(4 * self.n_checksum(capacity))
        self.planes, at = [], self.kv_offset
        for row_bytes in self.rows:
            for _ in "KV":
                self.planes.append((at, row_bytes))
                at += _pages(capacity * row_bytes)
        n_state, state_floats = geometry.states or (0, 0)
        self.state_offset, self.state_bytes = at, 4 * state_floats
        self.states = [at + i * _pages(self.state_bytes) for i in range(n_state)]
        self.file_bytes = at + n_state * _pages(self.state_bytes)

    def sections(self, n_tok: int) -> "Iterator[tuple[str, int, int]]":
        """Yield (name, offset, bytes) of each valid section with `n_tok` tokens."""
        yield "ids", self.ids_offset, 4 * n_tok
        yield "logits", self.logits_offset, self.logits_bytes
        for i, (at, row_bytes) in enumerate(self.planes):
            yield f"{'KV'[i % 2]} of layer {i // 2}", at, n_tok * row_bytes
        for i, at in enumerate(self.states):
            yield f"state {i}", at, self.state_bytes

    def n_checksum(self, n_tok: int) -> int:
        """Return the number of checksums with `n_tok` tokens."""
        sections = [4 * n_tok, self.logits_bytes, *(n_tok * n for n in self.rows for _ in "KV")]
        n_state, state_floats = self._geometry.states or (0, 0)
        return sum(-(-n // PIECE_BYTES) for n in sections) + n_state * -(
            -4 * state_floats // PIECE_BYTES
        )


def pack_header(
    geometry: "Any", capacity: int, n_tok: int, model_id: bytes, arithmetic: str, checksums: bytes
) -> bytes:
    """Return the header page (bytes); the inverse of `read_header`. checksums: packed, bytes."""
    lay, g = Layout(geometry, capacity), geometry
    digested = HEADER.pack(
        MAGIC,
        WITH_STATES if g.states else WITH_WIDTHS if g.widths else VERSION,
        PAGE_BYTES,
        0,
        model_id,
        g.n_layer,
        g.n_head_kv,
        g.head_dim,
        g.kv_type,
        g.n_vocab,
        capacity,
        n_tok,
        0,
        lay.ids_offset,
        lay.logits_offset,
        lay.kv_offset,
        lay.layer_stride,
        lay.v_distance,
        lay.file_bytes,
        lay.checksum_offset,
        len(checksums) // CRC.size,
        PIECE_BYTES,
        arithmetic.encode("ascii"),
        b"",
    )[:DIGESTED_BYTES]
    table = STATES.pack(*g.states) if g.states else b""
    table += b"".join(WIDTH.pack(*width) for width in g.widths)
    page = digested + sha256(digested + checksums) + table
    page = page.ljust(PAGE_BYTES - CRC.size, b"\0")
    return page + CRC.pack(lib.crc32c(0, page, len(page)))


def read_header(fd: int, name: str) -> "dict[str, Any]":
    """Return the header of the snapshot on `fd` as a dict of FIELDS; `arithmetic` is a str.

    DataError names `name` and the field unless the header is consistent. It is not yet compared
    with a model (check_identity) or with the size of the file (check_extent).
    """
    page = os.pread(fd, PAGE_BYTES, 0)
    if len(page) < 8 or page[:6] != MAGIC:
        raise data_error(name, "does not begin with KVSNAP: not a snapshot")
    version = int.from_bytes(page[6:8], "little")
    if version == OF_SAMPLES:
        raise data_error(
            name,
            "snapshot version 1, of an earlier sluice, has a model ID of samples of the file; "
            "make it again with prefill, generate -o or decode -o",
        )
    if version not in (VERSION, WITH_WIDTHS, WITH_STATES):
        raise data_error(
            name, f"snapshot version {version}; this build reads {VERSION} to {WITH_STATES}"
        )
    if len(page) < PAGE_BYTES:
        raise data_error(name, f"header cut at byte {len(page)} of {PAGE_BYTES}")
    crc, stored = lib.crc32c(0, page, PAGE_BYTES - 4), CRC.unpack_from(page, PAGE_BYTES - 4)[0]
    if crc != stored:
        raise data_error(
            name, f"header checksum is {crc:08x}, but the header says {stored:08x}: damaged"
        )
    h = dict(zip(FIELDS, HEADER.unpack_from(page)))
    for field, value in (
        ("header_bytes", PAGE_BYTES),
        ("flags", 0),
        ("zero", 0),
        ("piece_bytes", PIECE_BYTES),
    ):
        if h[field] != value:
            raise data_error(name, f"{field} is {h[field]}, not {value}")
    at, h["widths"], h["states"] = HEADER.size, (), ()
    if version == WITH_STATES:
        h["states"], at = STATES.unpack_from(page, at), at + STATES.size
        for field, value, maximum in zip(
            ("n_state", "state_floats"), h["states"], (MAX_LAYERS, MAX_STATE_FLOATS)
        ):
            if not 1 <= value <= maximum:
                raise data_error(name, f"{field} is {value}, not 1 to {maximum}")
    if version != VERSION:
        begin, at = at, at + WIDTH.size * h["n_layer"]
        if at > PAGE_BYTES - 4:
            raise data_error(name, f"n_layer is {h['n_layer']}, more than the header has room for")
        h["widths"] = tuple(WIDTH.iter_unpack(page[begin:at]))
        if not h["widths"] or not all(map(all, h["widths"])):
            raise data_error(name, "heads of a layer are 0")
        if h["widths"][0] != (h["n_head_kv"], h["head_dim"]):
            raise data_error(name, "n_head_kv and head_dim are not those of the first layer")
    if any(page[at : PAGE_BYTES - 4]):
        raise data_error(name, "reserved bytes of the header are not zero")
    arithmetic = h["arithmetic"].rstrip(b"\0")
    if not arithmetic.isascii() or not arithmetic.decode().isprintable() or not arithmetic:
        raise data_error(name, "arithmetic is not a name")
    h["arithmetic"] = arithmetic.decode()
    return h


def check_identity(
    h: "dict[str, Any]", path: str, model_id: bytes, arithmetic: str, geometry: "Any", model: str
) -> None:
    """DataError unless the header `h` is of this model, arithmetic and geometry; `model` is the
    model's path.
    """
    if h["model_id"] != model_id:
        raise data_error(
            path, f"made with model {h['model_id'][:8].hex()}, but {model} is {model_id[:8].hex()}"
        )
    if h["arithmetic"] != arithmetic:
        raise data_error(
            path,
            f"made with arithmetic {h['arithmetic']}, but this is {arithmetic} (see --arithmetic)",
        )
    if h["kv_type"] not in KV_TYPES.values():
        raise data_error(
            path, f"kv_type {h['kv_type']} is not one of {', '.join(map(str, KV_TYPES.values()))}"
        )
    for field, value in geometry._asdict().items():
        if h[field] != value:
            raise data_error(path, f"made with {field} {h[field]}, but {model} has {value}")
    if problem := misfit(geometry):
        raise data_error(path, problem)
    if not 1 <= h["capacity"] <= MAX_CAPACITY:
        raise data_error(path, f"capacity {h['capacity']} is not 1 to {MAX_CAPACITY}")
    if not 1 <= h["n_tok"] <= h["capacity"]:
        raise data_error(path, f"n_tok {h['n_tok']} is not 1 to the capacity {h['capacity']}")


def check_extent(h: "dict[str, Any]", path: str, layout: "Layout", size: int) -> None:
    """DataError unless the offsets and sizes in the header `h` are those of `layout`, and
    `size` that of the file.
    """
    for field in FIELDS[FIELDS.index("ids_offset") : FIELDS.index("n_checksum")]:
        if h[field] != getattr(layout, field):
            raise data_error(path, f"{field} is {h[field]}, but must be {getattr(layout, field)}")
    if h["n_checksum"] != layout.n_checksum(h["n_tok"]):
        raise data_error(
            path, f"n_checksum is {h['n_checksum']}, but must be {layout.n_checksum(h['n_tok'])}"
        )
    if size != layout.file_bytes:
        raise data_error(path, f"file_bytes is {layout.file_bytes}, but the file has {size}")


def sha256(data: "Any") -> bytes:
    """Return the SHA-256 of `data`."""
    import hashlib

    return hashlib.sha256(data).digest()
