"""Weights of a model: exactly the tensors its architecture needs, each of the expected shape."""

from __future__ import annotations

from ..faults import unsupported_error
from ..gguf import File, type_name, without_ones
from ..kernels import ffi, lib
from .architecture import full_name, shapes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


POOLING_RANK = 4  # value of ARCHITECTURE.pooling_type


class Matrix:
    """Weights [n_out, n_in] in the file's map.

    type: GGML type number. p: const void *. name: of its role. fast: products use --arithmetic
    fast, if the type has one (floats have).
    """

    __slots__ = ("name", "type", "p", "n_out", "n_in", "block", "in_terms")

    def __init__(
        self, name: str, type: int, p: Any, n_in: int, n_out: int, fast: bool = False
    ) -> None:
        self.name, self.type, self.p, self.n_in, self.n_out = name, type, p, n_in, n_out
        # its products use int8 activations in blocks of this size; 1: f32
        self.block = lib.type_facts(type).activations
        self.in_terms = fast and lib.type_block(type) == 1  # as sums of bf16

    def rows(self, name: str, begin: int, n_out: int) -> Matrix:
        """Return rows `begin` to begin + n_out - 1 as a Matrix of another role."""
        at = ffi.cast("const uint8_t *", self.p) + begin * lib.type_row_bytes(self.type, self.n_in)
        return Matrix(name, self.type, at, self.n_in, n_out, self.in_terms)


class Layer:
    """The tensors of one block: a Matrix, or an f32 vector (const float *), for each tensor of
    the architecture. The bias of attn_q is attn_q_bias.
    """

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...


class Weights:
    """The weights of a model. DataError, UnsupportedError.

    token_embd      a Matrix
    output          a Matrix; the same as token_embd if tied
    output_norm     const float *
    cls_output      rows for "yes" and "no" of a reranker, a Matrix; None elsewhere
    layers          [Layer]
    rope_divisors   f32 [n_rot / 2] or NULL
    further         those of Architecture.globals, None where a size is 0
    """

    def __init__(self, file: File, h: Any, fast: bool = False) -> None:
        self._file, self._left, self._fast = file, dict(file.tensors), fast
        for i in range(h.n_layer, h.n_layer + h.n_unused):
            self._left = {n: t for n, t in self._left.items() if not n.startswith(f"blk.{i}.")}
        self._floats = {full_name(name) for name in h.architecture.floats}
        self.token_embd = self._fetch("token_embd.weight", (h.n_embd, h.n_vocab))
        self.output_norm = self._fetch(h.architecture.output_norm + ".weight", (h.n_embd,))
        self.output = (
            self._fetch("output.weight", (h.n_embd, h.n_vocab))
            if "output.weight" in self._left
            else self.token_embd
        )
        divisors = {
            name: self._fetch_divisors(name, h.n_rot // 2, h.rope.max_divisor)
            for name in h.rope.tensors
        }
        self.cls_output = (
            self._fetch("cls.output.weight", (h.n_embd, 2)) if _ranks(file, h) else None
        )
        self.rope_divisors = divisors.get(h.rope.divisors, ffi.NULL)
        for name in h.architecture.globals:
            setattr(self, name, None)
        for name, shape in shapes(h.architecture.globals, h).items():
            setattr(self, _attribute(name), self._fetch(name, shape))
        self.layers = [self._layer(f"blk.{i}", h, i) for i in range(h.n_layer)]
        for name, t in self._left.items():
            raise unsupported_error(
                t.part.path, f"tensor {name}: not part of a {h.arch} model that this build runs"
            )

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...

    def _layer(self, prefix: str, h: Any, i: int) -> Layer:
        layer, table = Layer(), h.architecture.shapes(h.block(i))
        for name in h.architecture.tensors:
            setattr(layer, _attribute(name), None)
        for name in map(full_name, h.architecture.may_lack(h, i)):
            if name in table and f"{prefix}.{name}" not in self._left:
                del table[name]
        for whole, parts in h.architecture.fused.items():
            for kind in ("weight", "bias"):
                if self._is_fused(prefix, whole, parts, kind, table):
                    self._split(layer, prefix, whole, parts, kind, table)
        for name, shape in table.items():
            setattr(layer, _attribute(name), self._fetch(f"{prefix}.{name}", shape))
        return layer

    def _is_fused(self, prefix, whole, parts, kind, table):
        """Whether the file has `parts` as one tensor. If that has the name of a part, the
        absence of the first part decides.
        """
        if f"{parts[0]}.{kind}" not in table:
            return False
        if whole in parts:
            return f"{prefix}.{parts[0]}.{kind}" not in self._left
        return f"{prefix}.{whole}.{kind}" in self._left

    def _split(self, layer, prefix, whole, parts, kind, table):
        """Split a tensor into its parts, whose rows follow each other, and remove it from
        the table.
        """
        shapes, begin = [table.pop(f"{part}.{kind}") for part in parts], 0
        shape = *shapes[0][:-1], sum(shape[-1] for shape in shapes)
        fetched = self._fetch(f"{prefix}.{whole}.{kind}", shape)
        for part, (*n_in, n_out) in zip(parts, shapes):
            value = fetched.rows(part, begin, n_out) if n_in else fetched + begin
            setattr(layer, _attribute(f"{part}.{kind}"), value)
            begin += n_out

    def _fetch_divisors(self, name, n, maximum):
        p = self._fetch(f"{name}.weight", (n,))
        if not all(0 < p[i] < maximum for i in range(n)):
            raise self._file.data_error(
                f"tensor {name}.weight: a factor is not within 0 to"
                f" {f'{maximum:g}'.replace('+0', '').replace('+', '')}"
            )
        return p

    def _fetch(self, name, shape):
        t = self._left.pop(name, None)
        if t is None:
            raise self._file.data_error(f"tensor {name} is missing")
        if t.shape != without_ones(shape):
            raise t.data_error(f"shape {list(t.dims)}, expected {list(shape)}")
        type = type_name(t.type)
        is_f32 = len(shape) == 1 or name.split(".", 2)[-1] in self._floats
        if not (type == "F32" if is_f32 else lib.type_supported(t.type)):
            raise unsupported_error(t.part.path, f"tensor {t.name}: type {type} here")
        p = self._file.pointer(t)
        if is_f32:
            return ffi.cast("const float *", p)
        n_in, n_out = shape
        return Matrix(name.split(".")[-2], t.type, p, n_in, n_out, self._fast)


def _ranks(file, h):
    """Whether a file is a reranker's, with rows of its own for yes and no."""
    return (
        "cls.output.weight" in file.tensors
        and file.get(f"{h.arch}.pooling_type", "u32", 0) == POOLING_RANK
    )


def _attribute(name: str) -> str:
    """Of a Layer: "attn_q.weight" -> "attn_q", "attn_q.bias" -> "attn_q_bias"."""
    return name.removesuffix(".weight").replace(".", "_")
