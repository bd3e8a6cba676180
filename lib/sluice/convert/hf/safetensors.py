"""safetensors reader: one file or several, checked before use.

Layout (https://huggingface.co/docs/safetensors): u64 n, little-endian; n bytes of JSON, an object
of name -> {"dtype", "shape", "data_offsets": [begin, end]} and optionally "__metadata__"; then the
data, to which the offsets refer. Tensors must cover the data without holes or overlaps, as the
format requires.
"""

from __future__ import annotations

import os

from ...faults import data_error, printable, unsupported_error
from ...limits import MAX_SHARDS
from ..reader import Reader, parse_json, read_json

MAX_HEADER_BYTES, MAX_INDEX_BYTES = 64 << 20, 32 << 20
WIDTHS = {
    "BOOL": 1,
    "U8": 1,
    "I8": 1,
    "F8_E5M2": 1,
    "F8_E4M3": 1,
    "F8_E8M0": 1,
    "I16": 2,
    "U16": 2,
    "F16": 2,
    "BF16": 2,
    "I32": 4,
    "U32": 4,
    "F32": 4,
    "I64": 8,
    "U64": 8,
    "F64": 8,
    "C64": 8,
}
MAX_DIMS, MAX_BYTES = 8, 1 << 50


class Entry:
    """A tensor in a file.

    reader, dtype (a name), shape (as stored: row length last), at (its first byte in the file)
    """

    __slots__ = ("reader", "dtype", "shape", "at")

    def __init__(self, reader: Reader, dtype: str, shape: tuple[int, ...], at: int) -> None:
        self.reader, self.dtype, self.shape, self.at = reader, dtype, shape, at


def read(folder: str) -> dict[str, Entry]:
    """Return a dict of all tensors of the model in `folder`: name -> Entry. Error 65, 66 or 69."""
    index = os.path.join(folder, "model.safetensors.index.json")
    single = os.path.join(folder, "model.safetensors")
    if os.path.lexists(index):
        return _sharded(folder, index)
    if os.path.lexists(single):
        return shard(single)
    for name in sorted(os.listdir(folder)):
        if name.endswith((".bin", ".pth", ".pt", ".ckpt", ".pkl")):
            raise unsupported_error(
                os.path.join(folder, name),
                "is a pickle, which can run programs; it is never read. Save the model as"
                " safetensors",
            )
    raise data_error(folder, "no model.safetensors and no model.safetensors.index.json")


def _sharded(folder, index):
    where = read_json(index, MAX_INDEX_BYTES).get("weight_map")
    if (
        not isinstance(where, dict)
        or not where
        or not all(isinstance(v, str) for v in where.values())
    ):
        raise data_error(index, "weight_map: is not an object of file names")
    names = sorted(set(where.values()))
    if len(names) > MAX_SHARDS:
        raise data_error(index, f"weight_map: {len(names)} files, more than {MAX_SHARDS}")
    for name in names:
        if (
            name != os.path.basename(name)
            or name in ("", ".", "..")
            or not name.endswith(".safetensors")
            or "\0" in name
        ):
            raise data_error(
                index,
                f"weight_map: {printable(name)} is not the name of a safetensors file in this"
                " folder",
            )
    out = {}
    for name in names:
        path = os.path.join(folder, name)
        found = shard(path)
        for tensor, entry in found.items():
            if where.get(tensor) != name:
                raise data_error(path, f"tensor {printable(tensor)}: is here, but not by the index")
            out[tensor] = entry
    for tensor, name in where.items():
        if tensor not in out:
            raise data_error(
                os.path.join(folder, name),
                f"tensor {printable(tensor)}: is missing here, where the index has it",
            )
    return out


def shard(path: str) -> dict[str, Entry]:
    """Return a dict of the tensors of one file: name -> Entry."""
    r = Reader(path)
    if r.size < 8:
        raise data_error(path, f"{r.size} bytes: too short for a safetensors file")
    n = int.from_bytes(r.bytes(0, 8), "little")
    if n > min(r.size - 8, MAX_HEADER_BYTES):
        raise data_error(
            path,
            f"header: {n} bytes, but the file has {r.size}, and the maximum is"
            f" {MAX_HEADER_BYTES >> 20} MiB",
        )
    header, data_at = parse_json(path, r.bytes(8, n)), 8 + n
    header.pop("__metadata__", None)
    out, spans = {}, []
    for name, value in header.items():
        dtype, shape, begin, end = _entry(path, name, value)
        out[name] = Entry(r, dtype, shape, data_at + begin)
        spans.append((begin, end, name))
    expected = 0
    for begin, end, name in sorted(spans):
        if begin != expected:
            raise data_error(
                path,
                f"tensor {printable(name)}: begins at byte {begin} of the data, but the one before"
                f" it ends at {expected}",
            )
        expected = end
    if data_at + expected != r.size:
        raise data_error(
            path,
            f"{r.size} bytes; its header means {data_at + expected}"
            + (": cut" if data_at + expected > r.size else ""),
        )
    return out


def _entry(path, name, value):
    """Return (dtype, shape, begin, end) of a header's entry, checked by itself."""
    label = f"tensor {printable(name)}"
    if not isinstance(value, dict) or value.keys() != {"dtype", "shape", "data_offsets"}:
        raise data_error(path, f"{label}: not an object of dtype, shape and data_offsets")
    dtype, shape, offsets = value["dtype"], value["shape"], value["data_offsets"]
    if dtype not in WIDTHS if isinstance(dtype, str) else True:
        raise unsupported_error(
            path, f"{label}: dtype {printable(str(dtype))} is not known to this build"
        )
    full = lambda v: type(v) is int and 0 <= v <= MAX_BYTES
    if not isinstance(shape, list) or len(shape) > MAX_DIMS or not all(map(full, shape)):
        raise data_error(path, f"{label}: shape {printable(str(shape))}")
    if not isinstance(offsets, list) or len(offsets) != 2 or not all(map(full, offsets)):
        raise data_error(path, f"{label}: data_offsets {printable(str(offsets))}")
    n_bytes = WIDTHS[dtype]
    for d in shape:
        n_bytes *= d
    if offsets[1] - offsets[0] != n_bytes:
        raise data_error(
            path,
            f"{label}: {offsets[1] - offsets[0]} bytes, but its shape {shape} of {dtype} needs"
            f" {n_bytes}",
        )
    return dtype, tuple(shape), *offsets
