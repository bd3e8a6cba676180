"""Tensors of a Hugging Face checkpoint: GGUF names, shapes and order, and permuted or adjusted
rows.

The names of a block's tensors are not here: each family's file in model/architectures has them, in
`hugging_face.names` of its record. This module adds embedding, output norm and output head.
"""

from __future__ import annotations

import numpy as np

from ...faults import data_error, printable, unsupported_error
from ...model.architecture import full_name, shapes
from .. import types
from ..tensor import Read, Tensor
from .config import Config
from .safetensors import WIDTHS, Entry

PREFIXES = ("model.", "language_model.model.", "model.language_model.", "")
HEADS = ("lm_head.weight", "language_model.lm_head.weight")
# parts of a model outside its text part, behind "model." or at the start of a name
OTHERS = (
    "vision_tower",
    "audio_tower",
    "embed_vision",
    "embed_audio",
    "multi_modal_projector",
    "visual",
    "mtp",  # predicts further tokens
)


def tensors(folder: str, c: Config, entries: dict[str, Entry]) -> tuple[list[Tensor], list[str]]:
    """Return the list of Tensor of a model, and notes: what the checkpoint has and the model
    lacks, or the other way round.

    c: its Config. entries: result of safetensors.read. DataError: a tensor is missing or of
    another shape; UnsupportedError: an unknown tensor.
    """
    left, notes = _split(c, entries), []
    prefix = next((p for p in PREFIXES if p + "embed_tokens.weight" in left), None)
    if prefix is None:
        raise data_error(folder, "tensor model.embed_tokens.weight is missing")
    wanted: list[tuple[str, str, tuple[int, ...]]] = [
        ("token_embd.weight", prefix + "embed_tokens.weight", (c.n_embd, c.n_vocab))
    ]
    outside = shapes(c.architecture.globals, c)
    wanted += [
        (full_name(name), prefix + full_name(stored_name), outside[full_name(name)])
        for name, stored_name in c.hf.globals.items()
        if full_name(name) in outside
    ]
    for i in range(c.n_layer):
        absent, optional = (set(map(full_name, names)) for names in c.hf.lacks(c, i))
        for name, (stored_name, shape) in c.architecture.stored_shapes(c.hf.block(c, i)).items():
            stored_name = f"{prefix}layers.{i}.{stored_name}"
            if name not in absent and (name not in optional or stored_name in left):
                wanted.append((f"blk.{i}.{name}", stored_name, shape))
    norm = f"{c.architecture.output_norm}.weight", f"{prefix}{c.hf.output_norm}.weight"
    wanted.append((*norm, (c.n_embd,)))
    head = next((h for h in HEADS if h in left), HEADS[0])
    if not c.tied and head not in left and (c.bare or not prefix):
        notes.append("has no output head: the GGUF is for embed, not for generate")
    elif not c.tied:
        wanted.append(("output.weight", head, (c.n_embd, c.n_vocab)))
    out = []
    for name, stored_name, shape in wanted:
        entry = left.pop(stored_name, None)
        if entry is None:
            raise data_error(folder, f"tensor {stored_name} is missing")
        out.append(_tensor(c, name, stored_name, shape, entry))
    left.pop(head, None)
    parts = set()
    for name, entry in left.items():
        part = name.removeprefix("model.").split(".")[0]
        if part in OTHERS:
            parts.add(part)
        elif not name.endswith("rotary_emb.inv_freq"):
            raise unsupported_error(
                entry.reader.path,
                f"tensor {printable(name)}: not part of a {c.arch} model as config.json has it",
            )
    if parts:
        notes.append(f"left out, not of the text model: {', '.join(sorted(parts))}")
    return out + c.rope.tensors(), notes


def _split(c, entries):
    """Return the entries, with those of hugging_face.parts as their parts."""
    left = dict(entries)
    found = [(n, s) for n in left for s in c.hf.parts if n.endswith("." + full_name(s))]
    for name, stored_name in found:
        whole, parts = left.pop(name), c.hf.parts[stored_name]
        n_rows = whole.shape[0] // len(parts) if whole.shape else 0
        if len(whole.shape) != 2 or n_rows * len(parts) != whole.shape[0]:
            raise data_error(
                whole.reader.path,
                f"tensor {printable(name)}: shape {list(whole.shape)}: not {len(parts)} equal"
                " parts",
            )
        n_bytes = n_rows * whole.shape[1] * WIDTHS[whole.dtype]
        for i, part in enumerate(parts):
            left[name.removesuffix(full_name(stored_name)) + full_name(part)] = Entry(
                whole.reader, whole.dtype, (n_rows, whole.shape[1]), whole.at + i * n_bytes
            )
    return left


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
