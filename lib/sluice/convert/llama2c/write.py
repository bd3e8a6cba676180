"""llama2.c checkpoint writer: a GGUF to any version (gguf/llama2c.py has the layouts), and its
vocabulary.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ... import gguf
from ...faults import BAD_DATA, Error, unsupported_error
from ...gguf import llama2c, tokenizer_bin
from ...gguf.write import check_disk_space
from ...kernels import ffi, lib
from ...model.hparams import Hparams
from ...system import files
from ...tokenizer.pieces import usual_types
from .. import types
from ..tensor import PIECE_BYTES, Tensor, transposed
from . import llama_pb
from .vocabulary import bin_bytes, tokens_as_bin


def source(path: str) -> tuple[gguf.File, llama2c.Config]:
    """Return (gguf.File, llama2c.Config) of a GGUF. UnsupportedError if llama2.c cannot express
    the model.
    """
    file = gguf.File(path)
    h = Hparams(file)
    if h.arch != "llama":
        raise unsupported_error(path, f"general.architecture {h.arch}: llama2.c has llama only")
    eps = np.float32(llama2c.EPS)
    for label, found, wanted in (
        ("llama.attention.layer_norm_rms_epsilon", np.float32(h.eps), eps),
        ("llama.rope.freq_base", h.rope.base, llama2c.ROPE_BASE),
        ("llama.rope.scaling.factor", h.rope.factor, 1.0),
        ("llama.rope.scaling.attn_factor", h.rope.scale, 1.0),
        ("llama.rope.scaling.type yarn", h.rope.kind == "yarn", False),
        ("llama.rope.dimension_count", h.n_rot, h.head_dim),
        ("llama.attention.key_length", h.head_dim * h.n_head, h.n_embd),
        ("rope factors", bool(h.rope.tensors), False),
        ("llama.attention.sliding_window", h.window, 0),
    ):
        if found != wanted:
            raise unsupported_error(
                path,
                f"{label}: llama2.c has no place for it (here {found:g}, there always {wanted:g})",
            )
    tied = "output.weight" not in file.tensors or _same(file, "output.weight", "token_embd.weight")
    numbers = (h.n_embd, h.n_ff, h.n_layer, h.n_head, h.n_head_kv, h.n_vocab, h.n_ctx)
    return file, llama2c.Config(path, numbers, tied, 0)


def _same(file, a, b):
    a, b = file.tensors[a], file.tensors[b]
    if (a.type, a.n_bytes) != (b.type, b.n_bytes):
        return False
    step = 16 << 20
    return all(
        file.read(a, i, min(step, a.n_bytes - i)) == file.read(b, i, min(step, a.n_bytes - i))
        for i in range(0, a.n_bytes, step)
    )


def tensors(file: gguf.File, c: llama2c.Config) -> dict[str, Tensor]:
    """Return a dict of the tensors of `c`: name -> Tensor of `file`. Error 65 or 69."""
    left, out = dict(file.tensors), {}
    for name, role, _, _ in c.parts()[0]:
        if role == "rope":
            continue
        t = left.pop(name, None)
        if t is None:
            raise file.data_error(f"tensor {name} is missing")
        if t.shape != gguf.without_ones(c.shape(role)):
            raise t.data_error(f"shape {list(t.dims)}, expected {list(c.shape(role))}")
        out[name] = _tensor(file, t, c.shape(role))
    left.pop("output.weight", None)
    for name in left:
        raise unsupported_error(
            left[name].part.path, f"tensor {name}: llama2.c has no place for it"
        )
    return out


def _tensor(file, t, shape):
    type, n_in = gguf.type_name(t.type), t.shape[0]
    if not lib.type_supported(t.type):
        raise unsupported_error(
            t.part.path, f"tensor {t.name}: type {type} is not supported by this build"
        )
    row_bytes = lib.type_row_bytes(t.type, n_in)

    def read(first, n):
        data = file.read(t, first * row_bytes, n * row_bytes)
        if type in types.STORED:
            return np.frombuffer(data, types.STORED[type]).reshape(n, n_in)
        x = np.empty((n, n_in), np.float32)
        lib.dequantize_row(ffi.from_buffer("float[]", x), t.type, ffi.from_buffer(data), x.size)
        return x

    def blocks(first, n):
        return file.read(t, first * row_bytes, n * row_bytes)

    return Tensor(
        t.name,
        shape,
        type if type in types.STORED else "F32",
        read,
        blocks=blocks if type == "Q8_0" else None,
        source=file,
    )


def write(
    path: str, file: gguf.File, c: llama2c.Config, version: int, progress: Callable[[int], Any]
) -> None:
    """Write the checkpoint atomically. progress: called with the number of elements done."""
    group = group_size(file, c) if version == 2 else 0
    numbers = [getattr(c, name) for name in llama2c.FIELDS]
    c = llama2c.Config(file.path, numbers, c.tied, version, group)
    found = tensors(file, c)
    parts, size = c.parts()

    def fill(f):
        if version <= 0:
            numbers[5] *= 1 if c.tied else -1
            f.write(llama2c.NUMBERS.pack(*numbers))
        else:
            head = llama2c.VERSIONED.pack(llama2c.MAGIC, version, *numbers, c.tied, group)
            f.write(head.ljust(llama2c.HEADER_BYTES[version], b"\0"))
        for name, role, at, _ in parts:
            if role == "rope":
                f.writelines(rope_tables(c))
                continue
            for piece in _pieces(found[name], role, c, progress):
                f.write(piece)
        file.check_unchanged()
        if f.tell() != size:
            raise AssertionError(f"{f.tell()} bytes written, not {size}")

    check_disk_space(path, size)
    files.write(path, fill)


def _pieces(t, role, c, progress):
    if (
        role not in llama2c.MATRICES
        or c.version in (0, 1)
        or role == "token_embd"
        and c.version < 0
    ):
        return t.pieces("F32", progress)
    if c.version == 2:
        return _grouped(t, c.group, progress)
    return _by_columns(t, progress) if c.version == -2 else t.pieces("BF16", progress)


def _by_columns(t, progress):
    n_in, n_out = t.shape
    step = max(1, (32 << 20) // n_out)
    for first in range(0, n_in, step):
        n = min(step, n_in - first)
        x = transposed(lambda i, m: t.read(i, m), n_out, n_in, first, n)
        yield types.encode("BF16", x, t.type, f"{t.label}, by columns", first)
        progress(n * n_out)


def _grouped(t, group, progress):
    """Yield int8 of all elements, then the scales.

    Q8_0 blocks keep their scales. Otherwise a scale is max |x| / 127 of its group, and an
    element is x / scale rounded to nearest, ties to even, as in export.py.
    """
    scales = []
    for first in range(0, t.n_rows, step := max(1, t.piece // (4 * t.shape[0]))):
        n = min(step, t.n_rows - first)
        if t.blocks:
            b = np.frombuffer(t.blocks(first, n), np.uint8).reshape(-1, 34)
            s = np.repeat(b[:, :2].copy().view("<f2").astype(np.float32), 32 // group, axis=0)
            types.check_finite(s, "F32", t.label)
            q = b[:, 2:].tobytes()
        else:
            x = t.read(first, n)
            types.check_finite(x, t.type, t.label, first)
            x = types.to_f32(x, t.type).reshape(-1, group)
            s = np.abs(x).max(axis=1, keepdims=True) / np.float32(127)
            q = (
                np.rint(np.divide(x, s, out=np.zeros_like(x), where=s > 0))
                .clip(-127, 127)
                .astype(np.int8)
                .tobytes()
            )
        scales.append(s.astype("<f4").tobytes())
        yield q
        progress(n * t.shape[0])
    yield b"".join(scales)


def group_size(file: gguf.File, c: Any) -> int:
    """Return 64, or 32 if matrices are Q8_0, halved until rows are whole groups, which runq.c
    requires.
    """
    n = 32 if any(gguf.type_name(t.type) == "Q8_0" for t in file.tensors.values()) else 64
    while c.dim % n or c.hidden_dim % n:
        n //= 2
    return n


def rope_tables(c: Any) -> Iterator[bytes]:
    """Yield the two unused tables of versions 0 to -2, in pieces: cos, then sin, of position
    times frequency, f32 [seq_len, head_dim / 2] each.
    """
    freq = np.float32(1) / np.power(
        np.float32(llama2c.ROPE_BASE),
        np.arange(0, c.head_dim, 2, dtype=np.float32) / np.float32(c.head_dim),
    )
    step = PIECE_BYTES // (4 * len(freq))
    for turn in (np.cos, np.sin):
        for first in range(0, c.seq_len, step):
            positions = np.arange(first, min(first + step, c.seq_len), dtype=np.float32)
            yield (
                turn(np.outer(positions, freq.astype(np.float32)).astype(np.float64))
                .astype("<f4")
                .tobytes()
            )


def vocab(file: gguf.File) -> tuple[Any, Any]:
    """Return (tokens, scores) of the GGUF `file`. UnsupportedError if llama2.c would tokenize
    differently.
    """
    key = "tokenizer.ggml."
    if file.get(key + "model", "string") != "llama":
        raise unsupported_error(
            file.path, f"{key}model: llama2.c has SentencePiece vocabularies only"
        )
    tokens = file.get(key + "tokens", "[string]").values()
    scores = file.get(key + "scores", "[f32]", None)
    types_ = file.get(key + "token_type", "[i32]", None)
    scores = scores.values() if scores else [0.0] * len(tokens)
    types_ = types_.values() if types_ else array("i", usual_types(file, tokens))
    if not len(tokens) == len(scores) == len(types_):
        raise Error(
            BAD_DATA,
            f"{file.path}: {key}tokens: {len(tokens)}, with {len(scores)} scores and {len(types_)}"
            " types",
        )
    for name, wanted in (("bos", tokenizer_bin.BOS), ("eos", tokenizer_bin.EOS)):
        found = file.get(f"{key}{name}_token_id", "u32", wanted)
        if found != wanted:
            raise unsupported_error(
                file.path, f"{key}{name}_token_id: {found}; llama2.c always has {wanted}"
            )
    at = [i for i, type in enumerate(types_) if type == 6]
    if at and at != list(range(3, 259)):
        raise unsupported_error(
            file.path, f"{key}token_type: bytes are not tokens 3 to 258, as in llama2.c"
        )
    return tokens, scores


def write_vocab(path: str, tokens: Any, scores: Any, c: llama2c.Config) -> None:
    """Write a tokenizer.bin, or if the name ends in .pb a Transformer of llama.proto with the
    config `c` and no weights.
    """
    if path.endswith(".pb"):
        tokens = tokens_as_bin(tokens)
        for i, token in enumerate(tokens):
            if not llama_pb.is_utf8(token):
                raise unsupported_error(
                    path, f"token {i} is not UTF-8, as strings of protocol buffers are"
                )
        data = llama_pb.file_bytes(c, tokens, scores)
    else:
        data = bin_bytes(tokens, scores)
    files.write(path, lambda f: f.write(data))
