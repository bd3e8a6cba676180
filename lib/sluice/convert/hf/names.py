"""Tensors of a Hugging Face checkpoint: GGUF names, shapes and order, and permuted or adjusted
rows.

The names of a block's tensors are not here: each family's file in model/architectures has them, in
`hugging_face.names` of its record. This module adds embedding, output norm and output head.
"""

from __future__ import annotations

import numpy as np

from ...faults import data_error, printable, unsupported_error
from .. import types
from ..tensor import Read, Tensor
from .config import Config
from .safetensors import Entry

PREFIXES = ("model.", "language_model.model.", "model.language_model.", "")
HEADS = ("lm_head.weight", "language_model.lm_head.weight")
# prefixes of tensors outside the text part's blocks
OTHERS = (
    "vision_tower.",
    "multi_modal_projector.",
    "model.vision_tower.",
    "model.multi_modal_projector.",
    "model.visual.",
    "visual.",
    "mtp.",  # predicts further tokens
)


def tensors(folder: str, c: Config, entries: dict[str, Entry]) -> list[Tensor]:
    """Return the list of Tensor of a model.

    c: its Config. entries: result of safetensors.read. DataError: a tensor is missing or of
    another shape; UnsupportedError: an unknown tensor.
    """
    left = dict(entries)
    prefix = next((p for p in PREFIXES if p + "embed_tokens.weight" in left), None)
    if prefix is None:
        raise data_error(folder, "tensor model.embed_tokens.weight is missing")
    wanted: list[tuple[str, str, tuple[int, ...]]] = [
        ("token_embd.weight", prefix + "embed_tokens.weight", (c.n_embd, c.n_vocab))
    ]
    for i in range(c.n_layer):
        wanted += [
            (f"blk.{i}.{name}", f"{prefix}layers.{i}.{stored_name}", shape)
            for name, (stored_name, shape) in c.architecture.stored_shapes(c.hf.block(c, i)).items()
        ]
    norm = f"{c.architecture.output_norm}.weight", f"{prefix}{c.hf.output_norm}.weight"
    wanted.append((*norm, (c.n_embd,)))
    head = next((h for h in HEADS if h in left), HEADS[0])
    if not c.tied:
        wanted.append(("output.weight", head, (c.n_embd, c.n_vocab)))
    out = []
    for name, stored_name, shape in wanted:
        entry = left.pop(stored_name, None)
        if entry is None:
            raise data_error(folder, f"tensor {stored_name} is missing")
        out.append(_tensor(c, name, stored_name, shape, entry))
    left.pop(head, None)
    for name, entry in left.items():
        if not name.startswith(OTHERS) and not name.endswith("rotary_emb.inv_freq"):
            raise unsupported_error(
                entry.reader.path,
                f"tensor {printable(name)}: not part of a {c.arch} model as config.json has it",
            )
    return out + c.rope.tensors()


def _tensor(c, name, stored_name, shape, entry):
    role = name.split(".", 2)[-1].removesuffix(".weight")
    is_float = role in c.architecture.floats  # a convolution: [columns, 1, taps]
    if entry.shape != shape[::-1] and not (is_float and entry.shape == (shape[1], 1, shape[0])):
        raise data_error(
            entry.reader.path,
            f"tensor {stored_name}: shape {list(entry.shape)}, but config.json means"
            f" {list(shape[::-1])}",
        )
    if entry.dtype not in types.STORED:
        raise unsupported_error(
            entry.reader.path,
            f"tensor {stored_name}: dtype {entry.dtype}; this build converts F32, F16 and BF16",
        )
    read, type, unit = (
        entry.reader.rows(types.STORED[entry.dtype], entry.at, shape[0]),
        entry.dtype,
        1,
    )
    if c.architecture.neighbours and name.endswith(("attn_q.weight", "attn_k.weight")):
        read, unit = neighbours(read, c.head_dim), c.head_dim
    if c.hf.norms_lack_one and name.endswith("norm.weight") and role not in c.hf.whole_norms:
        read, type = plus_one(read, type), "F32"
    if is_float:
        read, type = as_f32(read, type), "F32"
    if role in c.hf.negated_exp:
        read, type = negated_exp(read, type), "F32"
    rows, columns = c.hf.order(c, role)
    read = reordered(read, rows, columns) if rows or columns else read
    return Tensor(name, shape, type, read, unit, source=entry.reader)


def neighbours(read: Read, head_dim: int) -> Read:
    """Return a read function that reorders the rows of heads for RoPE.

    The source rotates pairs (i, i + head_dim / 2); the result rotates neighbours (2 i, 2 i +
    1), for architectures with `neighbours`. It must be called for whole heads.
    """

    def permuted(first, n):
        x = read(first, n)
        return np.ascontiguousarray(
            x.reshape(n // head_dim, 2, head_dim // 2, -1).swapaxes(1, 2)
        ).reshape(x.shape)

    return permuted


def plus_one(read: Read, type: str) -> Read:
    """Return a read function that adds 1 to gains; the sum is rounded once, to f32."""
    return lambda first, n: types.to_f32(read(first, n), type) + np.float32(1)


def as_f32(read: Read, type: str) -> Read:
    """Return a read function whose rows are f32."""
    return lambda first, n: types.to_f32(read(first, n), type)


def negated_exp(read: Read, type: str) -> Read:
    """Return a read function of -exp(x), computed in f64 and rounded once, to f32."""
    return lambda first, n: (-np.exp(types.to_f32(read(first, n), type).astype(np.float64))).astype(
        np.float32
    )


def reordered(read: Read, rows: list[int] | None, columns: list[int] | None) -> Read:
    """Return a read function of rows, and of elements of a row, in another order: their numbers in
    the source.
    """

    def permuted(first, n):
        if rows is None:
            x = read(first, n)
        else:
            runs, wanted = [], rows[first : first + n]
            begin = 0
            for i in range(1, len(wanted) + 1):
                if i == len(wanted) or wanted[i] != wanted[i - 1] + 1:
                    runs.append(read(wanted[begin], i - begin))
                    begin = i
            x = np.concatenate(runs)
        return np.ascontiguousarray(x[:, columns] if columns else x)

    return permuted
