"""llama2.c checkpoint reader, all versions (gguf/llama2c.py has the layouts)."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...faults import BAD_DATA, Error
from ...gguf import llama2c
from .. import types
from ..reader import Reader
from ..tensor import Tensor, transposed

# a matrix stored by columns is read as a whole for every piece, so pieces are larger
COLUMN_PIECE = 64 << 20


def tensors(path: str, version: int | None = None) -> tuple[llama2c.Config, list[Tensor]]:
    """Return (Config, list of Tensor) of the checkpoint at `path`. version: the version that
    the user names; only -1 and -2 need it.
    """
    r = Reader(path)
    c = llama2c.read_config(path, r.bytes(0, min(r.size, llama2c.VERSIONED.size)), r.size, version)
    return c, [_tensor(r, c, *part) for part in by_layer(c)]


def by_layer(c: Any) -> list[tuple]:
    """Return c.parts() without RoPE tables, in GGUF order: embedding, layers, the rest."""
    order = {
        "token_embd.weight": -1,
        "output_norm.weight": c.n_layers,
        "output.weight": c.n_layers + 1,
    }
    parts = [p for p in c.parts()[0] if p[0] != "rope"]
    return sorted(parts, key=lambda p: order[p[0]] if p[0] in order else int(p[0].split(".")[1]))


def _tensor(r, c, name, role, at, n_bytes):
    shape = c.shape(role)
    if role in llama2c.MATRICES and c.version == 2:
        return _groups(r, c, name, shape, at)
    type = "BF16" if role in llama2c.MATRICES and role != "token_embd" and c.version < 0 else "F32"
    if c.version == -2 and type == "BF16":
        n_in, n_out = shape
        stored = r.rows(types.STORED[type], at, n_out)
        return Tensor(
            name,
            shape,
            type,
            lambda first, n: transposed(stored, n_in, n_out, first, n),
            piece=COLUMN_PIECE,
            source=r,
        )
    return Tensor(name, shape, type, r.rows(types.STORED[type], at, shape[0]), source=r)


def _groups(r, c, name, shape, at):
    """Return a Tensor of version 2: int8, and a scale per group of elements, which may cross a
    row's end.
    """
    n_in, group = shape[0], c.group
    scales_at = at + n_in * shape[1]

    def parts(first, n):
        begin, end = first * n_in, (first + n) * n_in
        q = np.frombuffer(r.bytes(at + begin, end - begin), np.int8)
        lo, hi = begin // group, -(-end // group)
        s = np.frombuffer(r.bytes(scales_at + 4 * lo, 4 * (hi - lo)), "<f4")
        if not (np.isfinite(s).all() and (s >= 0).all()):
            raise Error(
                BAD_DATA,
                f"{r.path}: tensor {name}: a scale is negative or not finite (a file of 2023, whose"
                " scales stand at its end?)",
            )
        return q, s, begin - lo * group

    def read(first, n):
        q, s, skip = parts(first, n)
        return (q * np.repeat(s, group)[skip : skip + len(q)]).reshape(n, n_in)

    def blocks(first, n):
        q, s, skip = parts(first, n)
        return types.blocks_q8_0(
            np.repeat(s, group)[skip : skip + len(q) : 32], q, f"{r.path}: tensor {name}"
        )

    exact = group % 32 == 0 and n_in % 32 == 0 and n_in % group == 0
    return Tensor(name, shape, "F32", read, blocks=blocks if exact else None, source=r)
