"""Shapes of published models, and the metadata of a file of random weights with such a shape.

A shape is metadata. Its tensors are those that the engine, which reads these metadata, would need:
hparams.Hparams and the architecture's record say which, so that no rule of a family is here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

from ..gguf import KIND_NAMES, File
from ..gguf import write as gguf_write
from ..gguf.metadata import ARRAY, ARRAY_HEAD, Array
from ..model import architecture
from ..model.hparams import Hparams

NORMAL, UNKNOWN, CONTROL, BYTE = 1, 2, 3, 6  # token types
N_PLAIN = 3 + 256  # <unk> <s> </s> and the bytes come before the pieces


@dataclass(frozen=True)
class Shape:
    """Dimensions of a model, named as in hparams.Hparams. name: its published name.

    keys: keys below the architecture's name that other families lack, or that differ from what the
    dimensions say, of the shape -> (kind, value); a shape with fewer layers is asked, too.
    """

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
    # pairs of a head that turn, where a divisor of the frequencies stops the others; 0: all
    n_turning: int = 0
    keys: Callable[[Shape], dict[str, tuple[str, Any]]] = lambda shape: {}


def gemma4_keys(shape: Shape) -> dict[str, tuple[str, Any]]:
    """E2B: every fifth block is global; from block 15 on blocks share keys and values, and their
    feed-forward part is twice as wide.
    """
    n, first = shape.n_layer, 15
    return {
        "feed_forward_length": ("[i32]", [shape.n_ff * (1 + (i >= first)) for i in range(n)]),
        "embedding_length_per_layer_input": ("u32", 256),
        "attention.shared_kv_layers": ("u32", max(0, n - first)),
        "attention.sliding_window_pattern": ("[bool]", [i % 5 != 4 for i in range(n)]),
        "attention.key_length_swa": ("u32", 256),
        "attention.value_length_swa": ("u32", 256),
        "rope.dimension_count_swa": ("u32", 256),
        "rope.freq_base_swa": ("f32", 1e4),
        "final_logit_softcapping": ("f32", 30.0),
    }


def lfm2_keys(shape: Shape) -> dict[str, tuple[str, Any]]:
    """Six of sixteen blocks have attention."""
    heads = [shape.n_head_kv * (i in (2, 5, 8, 10, 12, 14)) for i in range(shape.n_layer)]
    return {"attention.head_count_kv": ("[i32]", heads), "shortconv.l_cache": ("u32", 3)}


def qwen35_keys(shape: Shape) -> dict[str, tuple[str, Any]]:
    """0.8B: as many heads of keys as of values."""
    return {
        "full_attention_interval": ("u32", 4),
        "rope.dimension_count": ("u32", 64),
        "rope.dimension_sections": ("[i32]", [11, 11, 10, 0]),
        "ssm.conv_kernel": ("u32", 4),
        "ssm.state_size": ("u32", 128),
        "ssm.group_count": ("u32", 16),
        "ssm.time_step_rank": ("u32", 16),
        "ssm.inner_size": ("u32", 2048),
    }


def granite_keys(shape: Shape) -> dict[str, tuple[str, Any]]:
    """Multipliers of Granite 3.1 2B."""
    return {
        "logit_scale": ("f32", 8.0),
        "residual_scale": ("f32", 0.22),
        "embedding_scale": ("f32", 12.0),
        "attention.scale": ("f32", 0.015625),
    }


# From the configuration files that the models are published with (huggingface.co:
# HuggingFaceTB/SmolLM2-135M-Instruct and -360M-Instruct, google/gemma-3-270m and -1b-it,
# Qwen/Qwen2.5-0.5B-Instruct, TinyLlama/TinyLlama-1.1B-Chat-v1.0, meta-llama/Llama-3.2-1B,
# mistralai/Mistral-7B-Instruct-v0.2, LiquidAI/LFM2-350M, Qwen/Qwen3.5-0.8B, google/gemma-4-E2B-it,
# ibm-granite/granite-3.1-2b-instruct, HuggingFaceTB/SmolLM3-3B), as texts: without vision and
# drafts of the next tokens. Published files of E2B have keys and values in all blocks, though the
# last 20 do not use theirs. tiny is for tests.
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
    "lfm2-350m": Shape(
        "LFM2 350M",
        "lfm2",
        65536,
        128000,
        1024,
        16,
        4608,
        16,
        8,
        64,
        1e6,
        tied=True,
        keys=lfm2_keys,
    ),
    "qwen3.5-0.8b": Shape(
        "Qwen3.5 0.8B",
        "qwen35",
        248320,
        262144,
        1024,
        24,
        3584,
        8,
        2,
        256,
        1e7,
        eps=1e-6,
        tied=True,
        keys=qwen35_keys,
    ),
    "gemma-4-e2b": Shape(
        "Gemma 4 E2B",
        "gemma4",
        262144,
        131072,
        1536,
        35,
        6144,
        8,
        1,
        512,
        1e6,
        eps=1e-6,
        tied=True,
        window=512,
        n_turning=64,
        keys=gemma4_keys,
    ),
    "granite-3.1-2b": Shape(
        "Granite 3.1 2B",
        "granite",
        49155,
        131072,
        2048,
        40,
        8192,
        32,
        8,
        64,
        5e6,
        tied=True,
        keys=granite_keys,
    ),
    "smollm3-3b": Shape(
        "SmolLM3 3B",
        "smollm3",
        128256,
        65536,
        2048,
        36,
        11008,
        16,
        4,
        128,
        5e6,
        eps=1e-6,
        tied=True,
    ),
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


class Unwritten(File):
    """The metadata of a shape, as the engine would read them from its file."""

    def __init__(self, shape: Shape) -> None:
        self.path = f"--shape {shape.name.rstrip(',')}"
        entries = {"general.architecture": ("string", shape.arch), **numbers(shape)}
        self.metadata = {key: _read(kind, value) for key, (kind, value) in entries.items()}
        self.kinds = {key: _number(kind) for key, (kind, _) in entries.items()}
        dims = shape.n_embd, shape.n_vocab
        self.tensors = {"token_embd.weight": SimpleNamespace(dims=dims, shape=dims)}
        if shape.rope_scaling:
            self.tensors["rope_freqs.weight"] = SimpleNamespace()


def _number(kind):
    return ARRAY if kind.startswith("[") else KIND_NAMES.index(kind)


def _read(kind, value):
    if not kind.startswith("["):
        return value
    data = gguf_write.value(kind, value)[ARRAY_HEAD.size :]
    return Array(KIND_NAMES.index(kind[1:-1]), len(value), data)


def tensors(shape: Shape) -> dict[str, tuple[int, ...]]:
    """Dict: tensor name -> shape in GGUF order, in file order. Error 69 if the engine would refuse
    the shape: its first layers may lack what a model needs.
    """
    h = Hparams(Unwritten(shape))
    record = h.architecture
    out: dict[str, tuple[int, ...]] = {
        "token_embd.weight": (shape.n_embd, shape.n_vocab),
        f"{record.output_norm}.weight": (shape.n_embd,),
    }
    if not shape.tied:
        out["output.weight"] = (shape.n_embd, shape.n_vocab)
    out.update((f"{name}.weight", (h.n_rot // 2,)) for name in h.rope.tensors)
    out.update(architecture.shapes(record.globals, h))
    for i in range(shape.n_layer):
        block = record.shapes(h.block(i))
        out.update((f"blk.{i}.{name}", dims) for name, dims in block.items())
    return out


def rope_factors(shape: Shape) -> list[float]:
    """Divisors of the RoPE frequencies, one for each pair.

    Of Llama 3: 1 for frequencies with many rotations within the original context, `factor` for
    those with less than about one, and linear in the number of rotations between. Where pairs do
    not turn, 1e30 for these.
    """
    n_pair = shape.head_dim // 2
    if shape.n_turning:
        return [1.0] * shape.n_turning + [1e30] * (n_pair - shape.n_turning)
    factor, low, high, n_ctx = shape.rope_scaling
    out = []
    for i in range(n_pair):
        turns = n_ctx / (2 * 3.141592653589793 * shape.rope_base ** (i / n_pair))
        share = min(1.0, max(0.0, (turns - low) / (high - low)))
        out.append(1 / ((1 - share) / factor + share))
    return out


def numbers(shape: Shape) -> dict[str, tuple[str, Any]]:
    """Dict: key -> (kind, value) of the metadata below the architecture's name."""
    own = {
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
        "rope.dimension_count": ("u32", shape.head_dim),
        "rope.freq_base": ("f32", shape.rope_base),
    }
    if shape.window:
        own["attention.sliding_window"] = ("u32", shape.window)
    own.update(shape.keys(shape))
    return {f"{shape.arch}.{key}": v for key, v in own.items()}


def metadata(shape: Shape, file_type: int) -> dict[str, tuple[str, Any]]:
    """Dict: key -> (kind, value), with a vocabulary of the right size that encodes any bytes."""
    texts, scores, types = vocabulary(shape.n_vocab)
    return {
        "general.architecture": ("string", shape.arch),
        "general.type": ("string", "model"),
        "general.name": ("string", f"{shape.name} random"),
        "general.file_type": ("u32", file_type),
        "general.quantization_version": ("u32", 2),
        **numbers(shape),
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
