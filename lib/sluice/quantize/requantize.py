"""Requantizer: copy a GGUF file with its weights in other types.

Metadata are copied byte by byte, except general.file_type and general.quantization_version, which
are set, and keys split.*, which are left out: the copy of a split model is one file. Tensors keep
their names, shapes and order, and the file its alignment. Weights are read from the map and encoded
in pieces of PIECE elements, so memory does not grow with the file or with a row.
"""

from __future__ import annotations

from fnmatch import fnmatchcase

from ..faults import USAGE, Error, unsupported_error
from ..gguf import shards, type_name
from ..gguf import write as gguf_write
from ..kernels import ffi, lib
from . import mixes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from ..gguf import File, Tensor

    Plan = list[tuple[Tensor, int]]

PIECE = 1 << 21  # elements: whole blocks of any type
QUANTIZATION_VERSION = 2  # of the block formats, as GGUF's specification counts them
KINDS = tuple(  # each type that encode_weights makes, and after it the mixes of it
    kind
    for type in (*mixes.block_types(lib.encodable), "F16", "BF16", "F32")
    for kind in (type, *(mix for mix in mixes.MIXES if mix.startswith(f"{type}_")))
)


def plan(file: File, kind: str, overrides: Sequence[tuple[str, str]] = ()) -> Plan:
    """Return a list of (Tensor, type number in the copy) of a gguf.File, in its order.

    kind: one of KINDS. overrides: list of (pattern, type name). The last pattern that matches
    the name of a matrix, with or without ".weight", wins; * and ? as in a shell. Vectors are
    not overridden: models run with vectors of F32 only. Error 64 for an override that matches
    no matrix, or whose blocks do not divide a row; 69 for a tensor of a type that this build
    cannot read.
    """
    known, used, out = mixes.numbers(), set(), []
    n_layer, tied = _n_layer(file), "output.weight" not in file.tensors
    for t in file.tensors.values():
        asked = [
            i
            for i, (pattern, _) in enumerate(overrides)
            if _fits(t.name, pattern) and not mixes.is_vector(t.shape)
        ]
        used.update(asked)
        if asked:
            pattern, name = overrides[asked[-1]]
            if t.shape[0] % lib.type_block(known[name]):
                raise Error(
                    USAGE,
                    f"--tensor {pattern}={name}: {t.name} has rows of {t.shape[0]}, no multiple of"
                    f" {lib.type_block(known[name])}",
                )
            type = known[name]
        else:
            type = _type_of(t, kind, n_layer, tied, known)
        if type != t.type and not lib.type_supported(t.type):
            problem = f"type {type_name(t.type)} is not supported by this build"
            raise unsupported_error(t.part.path, f"tensor {t.name}: {problem}")
        out.append((t, type))
    for i, (pattern, name) in enumerate(overrides):
        if i not in used:
            raise Error(
                USAGE, f"--tensor {pattern}={name}: no matrix of {file.path} has such a name"
            )
    return out


def _n_layer(file):
    key = f"{file.get('general.architecture', 'string', '')}.block_count"
    return file.get(key, "u32", 0)


def _fits(name, pattern):
    return any(
        n == pattern or fnmatchcase(n, pattern) for n in (name, name.removesuffix(".weight"))
    )


def _type_of(t, kind, n_layer, tied, known):
    if (
        mixes.is_quantised(t.name, t.shape)
        or mixes.is_vector(t.shape)
        and lib.type_supported(t.type)
    ):
        return known[mixes.type_of(kind, t.name, t.shape, n_layer, tied)]
    return t.type


def metadata(file: File, kind: str, plan: Plan) -> dict[str, tuple[str, Any]]:
    """Return the metadata of the copy, in the form of gguf.write."""
    out: dict[str, tuple[str, Any]] = {
        key: ("raw", file.raw(key)) for key in file.metadata if key not in shards.KEYS
    }
    out["general.file_type"] = ("u32", mixes.FILE_TYPES[kind])
    if any(lib.type_block(type) > 1 for _, type in plan):
        out["general.quantization_version"] = ("u32", QUANTIZATION_VERSION)
    return out


def write(
    path: str,
    file: File,
    kind: str,
    plan: Plan,
    advance: Callable[[int], object] = lambda n_bytes: None,
) -> None:
    """Write the copy.

    advance: called with the number of bytes of `file` read since the last call. DataError names
    a tensor and row that are not finite or too large for their type; 73, 74 and 75 as in
    gguf.write.
    """
    workspace = ffi.new(
        "uint8_t[]", 4 * min(PIECE, max((t.n_elements for t, _ in plan), default=1))
    )
    tensors = [
        (t.name, type, t.dims, lambda t=t, type=type: _pieces(file, t, type, workspace, advance))
        for t, type in plan
    ]
    gguf_write.write(
        path, metadata(file, kind, plan), tensors, file.alignment, file.check_unchanged
    )


def _pieces(file, t, type, workspace, advance):
    """Yield the bytes of tensor `t` as `type`, in pieces. A piece is valid until the next one."""
    is_read, beyond = lib.type_supported(t.type), ffi.new("int32_t *")
    p = file.pointer(t) if is_read else None
    for at in range(0, t.n_elements, PIECE):
        n = min(PIECE, t.n_elements - at)
        start, n_in = lib.type_row_bytes(t.type, at), lib.type_row_bytes(t.type, n)
        if is_read:
            bad_at = lib.encode_weights(beyond, workspace, type, p + start, t.type, n)
            if bad_at >= 0:
                raise t.data_error(f"row {(at + bad_at) // t.shape[0]}: {reason(type, beyond[0])}")
            yield memoryview(ffi.buffer(workspace, lib.type_row_bytes(type, n)))
        else:
            yield file.read(t, start, n_in)  # copied unread
        advance(n_in)


def reason(type: int, beyond: int) -> str:
    """Describe why encode_weights failed. type: number of the type it encoded to."""
    return (
        f"a weight is too large for {type_name(type)}" if beyond else "a weight is infinite or NaN"
    )


def lines(plan: Plan) -> list[str]:
    """Return the plan as a table (list of str): name, shape, types and bytes of each tensor,
    and sums.
    """
    rows: list[tuple[str, ...]] = [("tensor", "shape", "from", "to", "bytes", "bytes")]
    sums = [0, 0, 0]
    for t, type in plan:
        n_bytes = gguf_write.tensor_bytes(type, t.shape)
        sums = [a + b for a, b in zip(sums, (t.n_bytes, n_bytes, t.n_elements))]
        rows.append(
            (
                t.name,
                " x ".join(map(str, t.shape)),
                type_name(t.type),
                type_name(type),
                f"{t.n_bytes:,}",
                f"{n_bytes:,}",
            )
        )
    rows.append(
        (
            "all",
            "",
            *(f"{8 * n / max(1, sums[2]):.2f} bits" for n in sums[:2]),
            f"{sums[0]:,}",
            f"{sums[1]:,}",
        )
    )
    width = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return [
        "  ".join(c.ljust(w) if i < 4 else c.rjust(w) for i, (c, w) in enumerate(zip(row, width)))
        for row in rows
    ]
