"""Shapes of published models, and the metadata of a file of random weights with such a shape."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from ..model import architectures

NORMAL, UNKNOWN, CONTROL, BYTE = 1, 2, 3, 6  # token types
N_PLAIN = 3 + 256  # <unk> <s> </s> and the bytes come before the pieces


@dataclass(frozen=True)
class Shape:
    """Dimensions of a model, named as in hparams.Hparams. name: its published name."""

    name: str
    arch: str
    n_vocab: int
    n_ctx: int
    n_embd: int
    n_layer: int
    n_ff: int
    n_head: int
    n_head_kv: int
    head_dim: int
    rope_base: float
    eps: float = 1e-5
    tied: bool = False
    window: int = 0
    # llama 3: factor, low and high frequency factor, original context size
    rope_scaling: tuple = ()

    @property
    def n_rot(self) -> int:
        return self.head_dim


# From the configuration files that the models are published with (huggingface.co:
# HuggingFaceTB/SmolLM2-135M-Instruct and -360M-Instruct, google/gemma-3-270m and -1b-it,
# Qwen/Qwen2.5-0.5B-Instruct, TinyLlama/TinyLlama-1.1B-Chat-v1.0, meta-llama/Llama-3.2-1B,
# mistralai/Mistral-7B-Instruct-v0.2). tiny is for tests.
SHAPES = {
    "smollm2-135m": Shape(
        "SmolLM2 135M", "llama", 49152, 8192, 576, 30, 1536, 9, 3, 64, 1e5, tied=True
    ),
    "smollm2-360m": Shape(
        "SmolLM2 360M", "llama", 49152, 8192, 960, 32, 2560, 15, 5, 64, 1e5, tied=True
    ),
    "gemma-3-270m": Shape(
        "Gemma 3 270M",
        "gemma3",
        262144,
        32768,
        640,
        18,
        2048,
        4,
        1,
        256,
        1e6,
        eps=1e-6,
        tied=True,
        window=512,
    ),
    "qwen2.5-0.5b": Shape(
        "Qwen2.5 0.5B", "qwen2", 151936, 32768, 896, 24, 4864, 14, 2, 64, 1e6, eps=1e-6, tied=True
    ),
    "gemma-3-1b": Shape(
        "Gemma 3 1B",
        "gemma3",
        262144,
        32768,
        1152,
        26,
        6912,
        4,
        1,
        256,
        1e6,
        eps=1e-6,
        tied=True,
        window=512,
    ),
    "tinyllama-1.1b": Shape("TinyLlama 1.1B", "llama", 32000, 2048, 2048, 22, 5632, 32, 4, 64, 1e4),
    "llama-3.2-1b": Shape(
        "Llama 3.2 1B",
        "llama",
        128256,
        131072,
        2048,
        16,
        8192,
        32,
        8,
        64,
        5e5,
        tied=True,
        rope_scaling=(32.0, 1.0, 4.0, 8192),
    ),
    "mistral-7b": Shape("Mistral 7B", "llama", 32000, 32768, 4096, 32, 14336, 32, 8, 128, 1e6),
    "tiny": Shape("tiny", "llama", 512, 2048, 256, 2, 768, 4, 2, 64, 1e4, tied=True),
}
# the default: a small model and a large one
BOTH_ENDS = ("smollm2-135m", "tinyllama-1.1b")


def find(name: str) -> str | None:
    """The key of SHAPES for `name`, or None. Case and punctuation are ignored ("Gemma3-1B")."""
    return next((key for key in SHAPES if _plain(key) == _plain(name)), None)


def _plain(name):
    return "".join(c for c in name.lower() if c.isalnum())


def cut(shape: Shape, n_layer: int) -> Shape:
    """`shape` with its first `n_layer` blocks only."""
    return replace(shape, n_layer=n_layer, name=f"{shape.name}, {n_layer} layers,")


def tensors(shape: Shape) -> dict[str, tuple[int, ...]]:
    """Dict: tensor name -> shape in GGUF order, in file order."""
    out: dict[str, tuple[int, ...]] = {
        "token_embd.weight": (shape.n_embd, shape.n_vocab),
        "output_norm.weight": (shape.n_embd,),
    }
    if not shape.tied:
        out["output.weight"] = (shape.n_embd, shape.n_vocab)
    if shape.rope_scaling:
        out["rope_freqs.weight"] = (shape.n_rot // 2,)
    record = architectures.find(shape.arch)
    assert record, shape.arch
    block = record.shapes(shape)
    for i in range(shape.n_layer):
        out.update((f"blk.{i}.{name}", dims) for name, dims in block.items())
    return out


def rope_factors(shape: Shape) -> list[float]:
    """Divisors of Llama 3's RoPE frequencies, n_rot / 2 of them.

    1 for frequencies with many rotations within the original context, `factor` for those with less
    than about one, and linear in the number of rotations between.
    """
    factor, low, high, n_ctx = shape.rope_scaling
    out = []
    for i in range(shape.n_rot // 2):
        turns = n_ctx / (2 * 3.141592653589793 * shape.rope_base ** (2 * i / shape.n_rot))
        share = min(1.0, max(0.0, (turns - low) / (high - low)))
        out.append(1 / ((1 - share) / factor + share))
    return out


def metadata(shape: Shape, file_type: int) -> dict[str, tuple[str, Any]]:
    """Dict: key -> (kind, value), with a vocabulary of the right size that encodes any bytes."""
    numbers = {
        "vocab_size": ("u32", shape.n_vocab),
        "context_length": ("u32", shape.n_ctx),
        "embedding_length": ("u32", shape.n_embd),
        "block_count": ("u32", shape.n_layer),
        "feed_forward_length": ("u32", shape.n_ff),
        "attention.head_count": ("u32", shape.n_head),
        "attention.head_count_kv": ("u32", shape.n_head_kv),
        "attention.key_length": ("u32", shape.head_dim),
        "attention.value_length": ("u32", shape.head_dim),
        "attention.layer_norm_rms_epsilon": ("f32", shape.eps),
        "rope.dimension_count": ("u32", shape.n_rot),
        "rope.freq_base": ("f32", shape.rope_base),
    }
    if shape.window:
        numbers["attention.sliding_window"] = ("u32", shape.window)
    texts, scores, types = vocabulary(shape.n_vocab)
    return {
        "general.architecture": ("string", shape.arch),
        "general.type": ("string", "model"),
        "general.name": ("string", f"{shape.name} random"),
        "general.file_type": ("u32", file_type),
        "general.quantization_version": ("u32", 2),
        **{f"{shape.arch}.{key}": v for key, v in numbers.items()},
        "tokenizer.ggml.model": ("string", "llama"),
        "tokenizer.ggml.pre": ("string", "default"),
        "tokenizer.ggml.tokens": ("[string]", texts),
        "tokenizer.ggml.scores": ("[f32]", scores),
        "tokenizer.ggml.token_type": ("[i32]", types),
        "tokenizer.ggml.unknown_token_id": ("u32", 0),
        "tokenizer.ggml.bos_token_id": ("u32", 1),
        "tokenizer.ggml.eos_token_id": ("u32", 2),
        "tokenizer.ggml.add_bos_token": ("bool", True),
        "tokenizer.ggml.add_eos_token": ("bool", False),
    }


def vocabulary(n: int) -> tuple[list[str], list[float], list[int]]:
    """(texts, scores, types) of `n` tokens: three control tokens, the bytes, and pieces that are
    numbers.
    """
    n_piece = n - N_PLAIN
    texts = [
        "<unk>",
        "<s>",
        "</s>",
        *(f"<0x{i:02X}>" for i in range(256)),
        *(f"\u2581{i}" for i in range(n_piece)),
    ]
    return (
        texts,
        [0.0] * N_PLAIN + [-1.0 - i for i in range(n_piece)],
        [UNKNOWN, CONTROL, CONTROL] + [BYTE] * 256 + [NORMAL] * n_piece,
    )
