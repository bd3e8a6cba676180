"""Tensors during conversion: the source of their rows, and encoding in pieces of bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ..gguf import write as gguf_write
from ..quantize import mixes
from ..quantize.requantize import QUANTIZATION_VERSION
from . import types

# bytes of f32 in a piece of a tensor; the workspace is a small multiple of that
PIECE_BYTES = 4 << 20
Read = Callable[[int, int], np.ndarray]  # first row, rows -> [rows, n_in]
Tell = Callable[[int], Any]  # called with the number of elements done
Metadata = dict[str, tuple[str, Any]]  # key -> (kind, value)


class Tensor:
    """A tensor to be converted.

    name      as in a GGUF
    shape     in GGUF order (row length first)
    type      of the stored rows: F32, F16 or BF16
    read      read(first, n): rows `first` to `first + n` as an array of types.STORED[type], [n,
              n_in]
    unit      rows are read in multiples of it, except the last; n_rows if all are needed at once
    blocks    function like read for the bytes of Q8_0, if the source has these exactly; else None
    piece     bytes of f32 that are read at once
    source    the reader.Reader or gguf.File, which must not change meanwhile; or None
    """

    __slots__ = ("name", "shape", "type", "read", "unit", "blocks", "piece", "source")

    def __init__(
        self,
        name: str,
        shape: tuple[int, ...],
        type: str,
        read: Read,
        unit: int = 1,
        blocks: Callable[[int, int], bytes] | None = None,
        piece: int = PIECE_BYTES,
        source: Any = None,
    ) -> None:
        self.name, self.shape, self.type, self.read = name, tuple(shape), type, read
        self.unit, self.blocks, self.piece, self.source = unit, blocks, piece, source

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return self.shape[1] if len(self.shape) > 1 else 1

    @property
    def label(self) -> str:
        """The tensor's name in a message."""
        return (
            f"{self.source.path}: tensor {self.name}"
            if self.source is not None
            else f"tensor {self.name}"
        )

    def target(self, kind: str | None, n_layer: int, tied: bool) -> str:
        """Return the type in a file of `kind`, by the rules of mixes.py; None: the source's
        type.
        """
        return mixes.type_of(
            kind or ("Q8_0" if self.blocks else self.type), self.name, self.shape, n_layer, tied
        )

    def pieces(self, type: str, tell: Tell = lambda n: None) -> Iterator[Any]:
        """Yield its bytes in `type`, in pieces. tell(n): n elements are done."""
        n_in = self.shape[0]
        step, small = (
            max(1, n // (4 * n_in) // self.unit) * self.unit for n in (self.piece, PIECE_BYTES)
        )
        for first in range(0, self.n_rows, step):
            n = min(step, self.n_rows - first)
            if type == "Q8_0" and self.blocks:
                yield self.blocks(first, n)
                tell(n * n_in)
                continue
            x = self.read(first, n)
            for i in range(0, n, small):
                yield types.encode(type, x[i : i + small], self.type, self.label, first + i)
                tell(min(small, n - i) * n_in)
        if self.source is not None:
            self.source.check_unchanged()


def transposed(read: Read, n_rows: int, n_columns: int, first: int, n: int) -> np.ndarray:
    """Return columns `first` to `first + n` of a matrix as rows: [n, n_rows].

    read(i, m) gives rows of the matrix. All rows are read, a few at a time.
    """
    step = max(1, PIECE_BYTES // (4 * n_columns))
    columns = lambda i: read(i, min(step, n_rows - i))[:, first : first + n]
    part = columns(0)
    out = np.empty((n, n_rows), part.dtype)
    out[:, : len(part)] = part.T
    for i in range(step, n_rows, step):
        part = columns(i)
        out[:, i : i + len(part)] = part.T
    return out


def constant(name: str, values: list[float]) -> Tensor:
    """Return a vector of f32 that is computed, not read."""
    x = np.asarray(values, "<f4").reshape(1, -1)
    return Tensor(name, (x.shape[1],), "F32", lambda first, n: x)


def write_gguf(
    path: str, metadata: Metadata, tensors: list[Tensor], kind: str | None, progress: Tell
) -> None:
    """Write the file atomically. kind: one of requantize.KINDS or None; progress: called with
    the number of elements done.
    """
    n_layer = next((v for key, (_, v) in metadata.items() if key.endswith(".block_count")), 0)
    tied = all(t.name != "output.weight" for t in tensors)
    plan = [(t, t.target(kind, n_layer, tied)) for t in tensors]
    out = [
        (t.name, types.NUMBERS[type], t.shape, lambda t=t, type=type: t.pieces(type, progress))
        for t, type in plan
    ]
    metadata = {
        **metadata,
        "general.quantization_version": ("u32", QUANTIZATION_VERSION),
        "general.file_type": ("u32", mixes.FILE_TYPES[kind or _main_type(plan)]),
    }
    gguf_write.write(path, metadata, out)


def _main_type(plan):
    """Return the type of most elements of matrices."""
    n = {"F32": 0}
    for t, type in plan:
        if not mixes.is_vector(t.shape):
            n[type] = n.get(type, 0) + t.shape[0] * t.n_rows
    return max(n, key=n.get)
