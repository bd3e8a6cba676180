"""Write trained weights as GGUF: Q8_0 matrices, F32 norms, complete metadata."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sluice import gguf
from sluice.gguf import write as gguf_write
from sluice.tokenizer import vocabulary as vocab

from .vocabulary import Vocabulary

F32, Q8_0 = 0, 8
TURNED = ("attn_q.weight", "attn_k.weight")


def q8_0(x: np.ndarray) -> bytes:
    """Quantize float32 [n, 32 k] to blocks {f16 d, i8 q[32]}, d = max |x| / 127.

    Rounds half away from zero, as ggml's reference quantizer.
    """
    x = np.ascontiguousarray(x, np.float32).reshape(-1, 32)
    d = np.abs(x).max(1, keepdims=True) / np.float32(127)
    with np.errstate(divide="ignore"):
        y = x * np.where(d == 0, np.float32(0), np.float32(1) / d)
    whole = np.floor(np.abs(y))
    q = (np.sign(y) * (whole + np.floor(2 * (np.abs(y) - whole)))).astype(np.int8)
    return np.concatenate([d.astype("<f2").view(np.uint8), q.view(np.uint8)], 1).tobytes()


def dequantised(x: np.ndarray) -> np.ndarray:
    """float32 x after quantization to Q8_0 and back, same shape."""
    return of_q8_0(q8_0(x)).reshape(np.shape(x))


def of_q8_0(data: bytes) -> np.ndarray:
    """Dequantize n / 32 blocks: float32 [n]."""
    raw = np.frombuffer(data, np.uint8).reshape(-1, 34)
    return (raw[:, :2].copy().view("<f2").astype(np.float32) * raw[:, 2:].view(np.int8)).ravel()


def sizes(shape: Any) -> dict[str, tuple[int, ...]]:
    """{tensor name: shape, rows first} of a net, in file order. shape: net.Shape."""
    n, n_kv = shape.n_embd, shape.n_head_kv * shape.n_rot
    block = {
        "attn_norm": (n,),
        "attn_q": (n, n),
        "attn_k": (n_kv, n),
        "attn_v": (n_kv, n),
        "attn_output": (n, n),
        "ffn_norm": (n,),
        "ffn_gate": (shape.n_ff, n),
        "ffn_up": (shape.n_ff, n),
        "ffn_down": (n, shape.n_ff),
    }
    blocks = {
        f"blk.{i}.{name}.weight": size for i in range(shape.n_layer) for name, size in block.items()
    }
    return {"token_embd.weight": (shape.n_vocab, n), **blocks, "output_norm.weight": (n,)}


def tensors(state: dict[str, np.ndarray], shape: Any) -> list[tuple[str, np.ndarray]]:
    """[(name in GGUF, float32 array)] of a state_dict of net.Llama.

    net.rotate rotates the pair of elements i and i + n_rot / 2 of a head; `llama` files have pairs
    2 i, 2 i + 1. So the rows of q and k are permuted.
    """
    return [
        (
            name,
            _turned(state[name], shape, 2, shape.n_rot // 2)
            if name.endswith(TURNED)
            else state[name],
        )
        for name in sizes(shape)
    ]


def from_pairs(named: dict[str, np.ndarray], shape: Any) -> dict[str, np.ndarray]:
    """The inverse of tensors(): a state_dict. named: {name in GGUF: float32 array}."""
    return {
        name: _turned(x, shape, shape.n_rot // 2, 2) if name.endswith(TURNED) else x
        for name, x in named.items()
    }


def _turned(x, shape, n_outer, n_inner):
    """Transpose the rows of each head from [n_outer, n_inner] to [n_inner, n_outer]."""
    return (
        x.reshape(-1, n_outer, n_inner, shape.n_embd)
        .transpose(0, 2, 1, 3)
        .reshape(-1, shape.n_embd)
    )


def metadata(
    shape: Any, vocabulary: Vocabulary, general: dict[str, Any]
) -> dict[str, tuple[str, Any]]:
    """{key: (kind, value)} of a file.

    shape: net.Shape. vocabulary: (tokens, scores, types). general: {key after "general.": str or
    [str]}.
    """
    meta = {"general.architecture": ("string", "llama")}
    meta.update(
        {
            f"general.{key}": ("[string]" if isinstance(v, list) else "string", v)
            for key, v in general.items()
        }
    )
    for key, kind, v in (
        ("context_length", "u32", shape.n_ctx),
        ("embedding_length", "u32", shape.n_embd),
        ("block_count", "u32", shape.n_layer),
        ("feed_forward_length", "u32", shape.n_ff),
        ("attention.head_count", "u32", shape.n_head),
        ("attention.head_count_kv", "u32", shape.n_head_kv),
        ("attention.layer_norm_rms_epsilon", "f32", shape.rms_eps),
        ("rope.dimension_count", "u32", shape.n_rot),
        ("rope.freq_base", "f32", shape.rope_base),
        ("vocab_size", "u32", shape.n_vocab),
    ):
        meta[f"llama.{key}"] = (kind, v)
    return {**meta, **tokenizer(vocabulary)}


def tokenizer(vocabulary: Vocabulary) -> dict[str, tuple[str, Any]]:
    """{key: (kind, value)} of a vocabulary (tokens, scores, types)."""
    tokens, scores, types = vocabulary
    return {
        f"tokenizer.ggml.{key}": value
        for key, value in {
            "model": ("string", "llama"),
            "pre": ("string", "default"),
            "tokens": ("[string]", tokens),
            "scores": ("[f32]", scores),
            "token_type": ("[i32]", types),
            "bos_token_id": ("u32", 1),
            "eos_token_id": ("u32", 2),
            "unknown_token_id": ("u32", 0),
            "add_bos_token": ("bool", True),
            "add_eos_token": ("bool", False),
            "add_space_prefix": ("bool", False),
            "remove_extra_whitespaces": ("bool", False),
        }.items()
    }


def table(path: str | Path, vocabulary: Vocabulary) -> vocab.Vocab:
    """Write a vocabulary (tokens, scores, types) to `path`; return it as a vocab.Vocab."""
    write(path, {"general.architecture": ("string", "llama"), **tokenizer(vocabulary)}, [])
    return vocab.Vocab(gguf.File(str(path)))


def write(
    path: str | Path, meta: dict[str, tuple[str, Any]], named: Sequence[tuple[str, np.ndarray]]
) -> None:
    """Write a GGUF file atomically.

    meta: {key: (kind, value)}. named: [(name, float32 array)]; vectors are F32, matrices Q8_0.
    """
    gguf_write.write(
        path,
        meta,
        [
            (name, Q8_0 if x.ndim == 2 else F32, x.shape[::-1], lambda x=x: [_stored(x)])
            for name, x in named
        ],
    )


def _stored(x):
    return q8_0(x) if x.ndim == 2 else np.ascontiguousarray(x, "<f4").tobytes()
