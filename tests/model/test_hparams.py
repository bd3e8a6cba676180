"""Hyper-parameters and tensors: every value an architecture could trip over is refused with its key
or tensor named.
"""

import math
import struct

import pytest
import tiny_model
from conftest import run
from gguf_writer import write_gguf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sluice import gguf
from sluice.faults import Error
from sluice.gguf.metadata import KIND_NAMES
from sluice.kernels import ffi
from sluice.kvcache.scratch import Scratch
from sluice.kvcache.snapshot import Snapshot
from sluice.model import architectures
from sluice.model.hparams import Keys
from sluice.model.model import ARITHMETIC, Model
from sluice.model.rope import read_rope
from sluice.tokenizer.vocabulary import Vocab

BASE = dict(
    arch="llama",
    type="f32",
    n_layer=2,
    n_embd=64,
    n_ff=96,
    n_head=4,
    n_head_kv=2,
    head_dim=16,
    n_vocab=400,
)


def build(path, change, **config):
    """Write a tiny model after `change(metadata, tensors)`, tensors: name -> [type, shape,
    bytes].
    """
    c = tiny_model.complete({**BASE, **config})
    metadata, tensors = tiny_model.metadata(c), {}
    for name, shape in tiny_model.shapes(c).items():
        kind, data = tiny_model.encode(tiny_model.weights(c, name, shape), "f32", shape[0])
        tensors[name] = [kind, shape, data]
    change(metadata, tensors)
    write_gguf(str(path), metadata, [(name, *t) for name, t in tensors.items()])
    return str(path)


def put(key, kind, value):
    return lambda m, t: m.__setitem__(key, (kind, value))


def drop(key):
    return lambda m, t: (m if key in m else t).pop(key)


def reshape(name, *shape):
    return lambda m, t: t.__setitem__(name, [0, shape, bytes(4 * math.prod(shape))])


def retype(name, kind):
    return lambda m, t: (
        t[name].__setitem__(0, kind) or t[name].__setitem__(2, t[name][2][: len(t[name][2]) // 2])
    )


NAN, INF = float("nan"), float("inf")
BAD = [
    # (what is changed, exit code, what the message names)
    (drop("general.architecture"), 65, "general.architecture"),
    (put("general.architecture", "u32", 1), 65, "general.architecture"),
    (put("general.architecture", "string", "mamba"), 69, '"mamba"'),
    (put("general.architecture", "string", "m\n" * 9999), 69, '\\nm...";'),
    (
        put("general.architecture", "string", "m" * 99999),
        65,
        "general.architecture: 99999 bytes, more than",
    ),
    (drop("llama.block_count"), 65, "llama.block_count"),
    (put("llama.block_count", "u32", 0), 65, "llama.block_count"),
    (put("llama.block_count", "u32", 513), 65, "llama.block_count"),
    (put("llama.block_count", "u32", 3), 65, "blk.2."),
    (put("llama.block_count", "u32", 1), 69, "blk.1."),
    (put("llama.block_count", "i32", -1), 65, "llama.block_count"),
    (put("llama.block_count", "string", "2"), 65, "llama.block_count"),
    (drop("llama.embedding_length"), 65, "llama.embedding_length"),
    (put("llama.embedding_length", "u32", 1 << 31), 65, "llama.embedding_length"),
    (put("llama.embedding_length", "u32", 128), 65, "token_embd.weight"),
    (put("llama.feed_forward_length", "u32", 0), 65, "llama.feed_forward_length"),
    (
        put("llama.feed_forward_length", "[i32]", [96, 97]),
        69,
        "llama.feed_forward_length differs from block to block",
    ),
    (
        put("llama.feed_forward_length", "[i32]", [96]),
        65,
        "llama.feed_forward_length: an array of 1 i32, not one for each block",
    ),
    (
        put("llama.feed_forward_length", "[i32]", [96, 96, 96]),
        65,
        "llama.feed_forward_length: an array of 3 i32",
    ),
    (
        put("llama.feed_forward_length", "[i32]", []),
        65,
        "llama.feed_forward_length: an array of 0 i32",
    ),
    (
        put("llama.feed_forward_length", "[i32]", [-1, -1]),
        65,
        "llama.feed_forward_length: expected u32, found i32 -1",
    ),
    (
        put("llama.feed_forward_length", "[f32]", [96.0, 96.0]),
        65,
        "llama.feed_forward_length: expected u32",
    ),
    (
        put("llama.feed_forward_length", "[string]", ["96", "96"]),
        65,
        "llama.feed_forward_length: expected u32, found an array of 2 string",
    ),
    (
        put("llama.feed_forward_length", "[u32]", [96] * 20_000),
        65,
        "llama.feed_forward_length: 80000 bytes, more than 65536",
    ),
    (put("llama.block_count", "[u32]", [2]), 65, "llama.block_count: an array of 1 u32"),
    (put("llama.block_count", "[u32]", []), 65, "llama.block_count: an array of 0 u32"),
    (put("llama.block_count", "[u32]", [2, 3]), 69, "llama.block_count differs"),
    (
        put("llama.attention.head_count_kv", "[i32]", [2, 0]),
        69,
        "llama.attention.head_count_kv differs",
    ),
    (put("llama.attention.layer_norm_rms_epsilon", "[f32]", [1e-5, 1e-6]), 69, "epsilon differs"),
    (
        put("llama.attention.sliding_window_pattern", "[bool]", [True, False]),
        69,
        "sliding_window_pattern is set",
    ),
    (put("llama.expert_count", "[u32]", [0, 8]), 69, "llama.expert_count is set"),
    (put("llama.feed_forward_length", "u32", 97), 65, "ffn_"),
    (drop("llama.context_length"), 65, "llama.context_length"),
    (put("llama.context_length", "u32", 0), 65, "llama.context_length"),
    (put("llama.attention.head_count", "u32", 0), 65, "llama.attention.head_count"),
    (put("llama.attention.head_count", "u32", 5), 65, "head_count"),
    (put("llama.attention.head_count_kv", "u32", 0), 65, "llama.attention.head_count_kv"),
    (put("llama.attention.head_count_kv", "u32", 3), 65, "llama.attention.head_count_kv"),
    (put("llama.attention.head_count_kv", "u32", 8), 65, "llama.attention.head_count_kv"),
    (put("llama.attention.key_length", "u32", 15), 65, "llama.attention.key_length"),
    (put("llama.attention.key_length", "u32", 2048), 65, "llama.attention.key_length"),
    (put("llama.attention.value_length", "u32", 8), 69, "llama.attention.value_length"),
    (put("llama.rope.dimension_count", "u32", 0), 65, "llama.rope.dimension_count"),
    (put("llama.rope.dimension_count", "u32", 7), 65, "llama.rope.dimension_count"),
    (put("llama.rope.dimension_count", "u32", 18), 65, "llama.rope.dimension_count"),
    (put("llama.rope.freq_base", "f32", 0.0), 65, "llama.rope.freq_base"),
    (put("llama.rope.freq_base", "f32", NAN), 65, "llama.rope.freq_base"),
    (put("llama.rope.freq_base", "f32", INF), 65, "llama.rope.freq_base"),
    (put("llama.rope.scaling.type", "string", "dynamic"), 69, "llama.rope.scaling.type"),
    (put("llama.rope.scaling.type", "string", "y\x1b" * 9999), 69, 'y...";'),
    (put("llama.attention.layer_norm_rms_epsilon", "f32", 0.0), 65, "epsilon"),
    (put("llama.attention.layer_norm_rms_epsilon", "f32", 1.0), 65, "epsilon"),
    (put("llama.attention.layer_norm_rms_epsilon", "f32", NAN), 65, "epsilon"),
    (drop("llama.attention.layer_norm_rms_epsilon"), 65, "epsilon"),
    (put("llama.attention.sliding_window", "i32", -1), 65, "sliding_window"),
    (put("llama.attention.sliding_window", "u32", (1 << 24) + 1), 65, "sliding_window"),
    (
        put("llama.rope.dimension_sections", "[i32]", [1, 2, 3, 4]),
        69,
        "llama.rope.dimension_sections",
    ),
    (put("llama.expert_count", "u32", 8), 69, "llama.expert_count"),
    (put("llama.vocab_size", "u32", 399), 65, "llama.vocab_size"),
    (put("tokenizer.ggml.tokens", "[string]", [b"a"] * 399), 65, "tokenizer.ggml.tokens"),
    (put("tokenizer.ggml.tokens", "[u32]", [1] * 400), 65, "tokenizer.ggml.tokens"),
    (drop("token_embd.weight"), 65, "token_embd.weight"),
    (drop("output_norm.weight"), 65, "output_norm.weight"),
    (drop("blk.1.attn_k.weight"), 65, "blk.1.attn_k.weight"),
    (reshape("blk.0.attn_q.weight", 64, 32), 65, "blk.0.attn_q.weight"),
    (reshape("blk.0.attn_q.weight", 64, 8, 8), 65, "blk.0.attn_q.weight"),
    (reshape("blk.0.attn_norm.weight", 32), 65, "blk.0.attn_norm.weight"),
    (reshape("output.weight", 64, 300), 65, "output.weight"),
    (reshape("blk.0.attn_q.bias", 64), 69, "blk.0.attn_q.bias"),
    (reshape("surprise.weight", 8), 69, "surprise.weight"),
    (reshape("rope_freqs.weight", 4), 65, "rope_freqs.weight"),
    (reshape("rope_freqs.weight", 8), 65, "rope_freqs.weight"),  # zeros: a division
    (retype("blk.0.ffn_norm.weight", 1), 69, "blk.0.ffn_norm.weight"),
]


def every(*changes):
    return lambda m, t: [change(m, t) for change in changes] and None


def yarn(**keys):
    """Metadata of YaRN in a llama file, with these values."""
    keys = {"type": "yarn", "factor": 4.0, "original_context_length": 64, **keys}
    kind = lambda v: "string" if isinstance(v, str) else "u32" if isinstance(v, int) else "f32"
    return every(
        *(put(f"llama.rope.scaling.{key}", kind(v), v) for key, v in keys.items() if v is not None)
    )


LONG = {"arch": "phi3", "rope_scaling": {"type": "longrope", "original_context_length": 64}}
LFM2 = {"arch": "lfm2", "n_layer": 3}
QWEN35 = {"arch": "qwen35", "n_layer": 4, "interval": 4}
GEMMA4 = {"arch": "gemma4", "n_layer": 6}
BAD_OF = [
    # (configuration, what is changed, exit code, the line that is printed, after the file's name)
    ({}, yarn(factor=None), 65, "llama.rope.scaling.factor is missing"),
    ({}, yarn(factor=0.0), 65, "llama.rope.scaling.factor: 0.0 is not within 0 to 1e+06"),
    ({}, yarn(factor=NAN), 65, "llama.rope.scaling.factor: nan is not within 0 to 1e+06"),
    ({}, yarn(factor="4"), 65, 'llama.rope.scaling.factor: expected f32, found string "4"'),
    (
        {},
        yarn(original_context_length=0),
        65,
        "llama.rope.scaling.original_context_length: 0 is not within 1 to 16777216",
    ),
    (
        {},
        yarn(yarn_beta_fast=0.5),
        65,
        "llama.rope.scaling.yarn_beta_fast: 0.5 is less than yarn_beta_slow 1.0",
    ),
    (
        {},
        yarn(yarn_beta_slow=-1.0),
        65,
        "llama.rope.scaling.yarn_beta_slow: -1.0 is not within 0 to 1e+06",
    ),
    (
        {},
        yarn(yarn_attn_factor=INF),
        65,
        "llama.rope.scaling.yarn_attn_factor: inf is not within 0 to 1000",
    ),
    ({}, yarn(yarn_ext_factor=0.5), 69, "llama.rope.scaling.yarn_ext_factor other than 1"),
    (
        {},
        yarn(yarn_log_multiplier=0.1),
        69,
        "llama.rope.scaling.yarn_log_multiplier is set: not supported by this build",
    ),
    (
        {},
        every(yarn(), put("llama.rope.freq_base", "f32", 1.0)),
        65,
        "llama.rope.freq_base: 1.0 is not above 1, as yarn needs",
    ),
    (
        {},
        every(yarn(), reshape("rope_freqs.weight", 8)),
        69,
        "tensor rope_freqs.weight: not part of a llama model that this build runs",
    ),
    (
        LONG,
        put("phi3.rope.scaling.original_context_length", "u32", 1),
        65,
        "phi3.rope.scaling.original_context_length: 1 is not within 2 to 16777216",
    ),
    (
        LONG,
        put("phi3.rope.scaling.factor", "f32", 2.0),
        69,
        "phi3.rope.scaling.factor with longrope",
    ),
    (
        LONG,
        put("phi3.rope.scaling.attn_factor", "f32", 0.0),
        65,
        "phi3.rope.scaling.attn_factor: 0.0 is not within 0 to 1000",
    ),
    (
        LONG,
        put("phi3.rope.scaling.type", "string", "su"),
        69,
        (
            'phi3.rope.scaling.type "su"; this build has none, linear, yarn, longrope, and llama3'
            " (tensor rope_freqs.weight)"
        ),
    ),
    (LONG, drop("rope_factors_short.weight"), 65, "tensor rope_factors_short.weight is missing"),
    (
        LONG,
        every(
            drop("rope_factors_long.weight"), put("phi3.rope.scaling.type", "string", "longrope")
        ),
        65,
        "tensor rope_factors_long.weight is missing",
    ),
    (
        LONG,
        drop("rope_factors_long.weight"),
        69,
        "tensor rope_factors_short.weight: not part of a phi3 model that this build runs",
    ),
    (
        LONG,
        reshape("rope_factors_long.weight", 9),
        65,
        "tensor rope_factors_long.weight: shape [9], expected [8]",
    ),
    (
        LONG,
        reshape("rope_factors_short.weight", 8),
        65,
        "tensor rope_factors_short.weight: a factor is not within 0 to 1e9",
    ),
    ({"arch": "phi3"}, drop("blk.0.attn_qkv.weight"), 65, "tensor blk.0.attn_q.weight is missing"),
    (
        {"arch": "phi3"},
        reshape("blk.1.attn_qkv.weight", 64, 64),
        65,
        "tensor blk.1.attn_qkv.weight: shape [64, 64], expected [64, 128]",
    ),
    (
        {"arch": "phi3"},
        reshape("blk.1.ffn_up.weight", 64, 96),
        65,
        "tensor blk.1.ffn_up.weight: shape [64, 96], expected [64, 192]",
    ),
    (
        {"arch": "phi3"},
        reshape("blk.0.attn_qkv.bias", 128),
        69,
        "tensor blk.0.attn_qkv.bias: not part of a phi3 model that this build runs",
    ),
    ({}, drop("blk.0.ffn_gate.weight"), 65, "tensor blk.0.ffn_gate.weight is missing"),
    ({"arch": "qwen2"}, drop("blk.1.attn_k.bias"), 65, "tensor blk.1.attn_k.bias is missing"),
    (
        {"arch": "qwen2"},
        reshape("blk.0.attn_v.bias", 64),
        65,
        "tensor blk.0.attn_v.bias: shape [64], expected [32]",
    ),
    (
        {"arch": "qwen2"},
        retype("blk.0.attn_q.bias", 1),
        69,
        "tensor blk.0.attn_q.bias: type F16 here",
    ),
    (
        {"arch": "qwen2"},
        reshape("blk.0.attn_output.bias", 64),
        69,
        "tensor blk.0.attn_output.bias: not part of a qwen2 model that this build runs",
    ),
    (
        {"arch": "qwen2"},
        put("qwen2.attention.sliding_window", "u32", 64),
        69,
        "qwen2.attention.sliding_window is set: not supported by this build",
    ),
    (
        {"arch": "qwen3"},
        put("qwen3.attention.sliding_window", "u32", 64),
        69,
        "qwen3.attention.sliding_window is set: not supported by this build",
    ),
    (
        {"arch": "qwen3"},
        drop("blk.0.attn_k_norm.weight"),
        65,
        "tensor blk.0.attn_k_norm.weight is missing",
    ),
    (
        {"arch": "qwen3"},
        reshape("blk.0.attn_q_norm.weight", 32),
        65,
        "tensor blk.0.attn_q_norm.weight: shape [32], expected [16]",
    ),
    (
        {"arch": "qwen3"},
        reshape("cls.output.weight", 64, 2),
        69,
        "tensor cls.output.weight: not part of a qwen3 model that this build runs",
    ),
    (
        {"arch": "gemma"},
        put("gemma.final_logit_softcapping", "f32", 30.0),
        69,
        "gemma.final_logit_softcapping is set: not supported by this build",
    ),
    (
        {"arch": "gemma"},
        put("gemma.attention.sliding_window", "u32", 64),
        69,
        "gemma.attention.sliding_window is set: not supported by this build",
    ),
    (
        {"arch": "gemma"},
        reshape("blk.0.post_ffw_norm.weight", 64),
        69,
        "tensor blk.0.post_ffw_norm.weight: not part of a gemma model that this build runs",
    ),
    (
        {"arch": "gemma2"},
        put("gemma2.attn_logit_softcapping", "f32", -50.0),
        65,
        "gemma2.attn_logit_softcapping: -50.0 is not within 0.001 to 1e+06",
    ),
    (
        {"arch": "gemma2"},
        put("gemma2.attn_logit_softcapping", "f32", NAN),
        65,
        "gemma2.attn_logit_softcapping: nan is not within 0.001 to 1e+06",
    ),
    (
        {"arch": "gemma2"},
        put("gemma2.final_logit_softcapping", "f64", 1e-30),
        65,
        "gemma2.final_logit_softcapping: 1e-30 is not within 0.001 to 1e+06",
    ),
    (
        {"arch": "gemma2"},
        put("gemma2.final_logit_softcapping", "u32", 30),
        65,
        "gemma2.final_logit_softcapping: expected f32, found u32 30",
    ),
    (
        {"arch": "gemma2"},
        put("gemma2.rope.freq_base_swa", "f32", 5000.0),
        69,
        "gemma2.rope.freq_base_swa is set: not supported by this build",
    ),
    (
        {"arch": "gemma2"},
        put("gemma2.attention.sliding_window_pattern", "u32", 3),
        69,
        "gemma2.attention.sliding_window_pattern is set: not supported by this build",
    ),
    (
        {"arch": "gemma2"},
        drop("blk.1.post_attention_norm.weight"),
        65,
        "tensor blk.1.post_attention_norm.weight is missing",
    ),
    (LFM2, drop("lfm2.shortconv.l_cache"), 65, "lfm2.shortconv.l_cache is missing"),
    (
        LFM2,
        put("lfm2.shortconv.l_cache", "u32", 17),
        65,
        "lfm2.shortconv.l_cache: 17 is not within 2 to 16",
    ),
    (
        LFM2,
        put("lfm2.shortconv.l_cache", "u32", 4),
        65,
        "tensor blk.0.shortconv.conv.weight: shape [3, 64], expected [4, 64]",
    ),
    (
        LFM2,
        put("lfm2.attention.head_count_kv", "[i32]", [0, 2]),
        65,
        "lfm2.attention.head_count_kv: an array of 2 i32, not one for each block",
    ),
    (
        LFM2,
        put("lfm2.attention.head_count_kv", "[i32]", [0, -1, 0]),
        65,
        "lfm2.attention.head_count_kv: expected u32, found i32 -1",
    ),
    (
        LFM2,
        put("lfm2.attention.head_count_kv", "[i32]", [0, 3, 0]),
        65,
        "lfm2.attention.head_count_kv: 3 does not divide head_count 4",
    ),
    (
        LFM2,
        put("lfm2.attention.head_count_kv", "[i32]", [0, 0, 0]),
        69,
        "lfm2.attention.head_count_kv: no block has attention",
    ),
    (
        LFM2,
        put("lfm2.attention.head_count_kv", "[i32]", [2, 2, 0]),
        65,
        "tensor blk.0.attn_q.weight is missing",
    ),
    (LFM2, drop("token_embd_norm.weight"), 65, "tensor token_embd_norm.weight is missing"),
    (
        LFM2,
        put("lfm2.expert_count", "u32", 32),
        69,
        "lfm2.expert_count is set: not supported by this build",
    ),
    (
        LFM2,
        put("lfm2.attention.causal", "bool", False),
        69,
        "lfm2.attention.causal is false: not supported by this build",
    ),
    (
        QWEN35,
        drop("qwen35.rope.dimension_sections"),
        65,
        "qwen35.rope.dimension_sections: missing, or no array of integers",
    ),
    (
        QWEN35,
        put("qwen35.rope.dimension_sections", "u32", 16),
        65,
        "qwen35.rope.dimension_sections: missing, or no array of integers",
    ),
    (
        QWEN35,
        put("qwen35.rope.dimension_sections", "[i32]", [2, 1, 0, 0]),
        69,
        "qwen35.rope.dimension_sections [2, 1, 0, 0]: not all 4 pairs",
    ),
    (
        QWEN35,
        put("qwen35.rope.dimension_sections", "[i32]", [8, -4, 0, 0]),
        69,
        "qwen35.rope.dimension_sections [8, -4, 0, 0]: not all 4 pairs",
    ),
    (QWEN35, drop("qwen35.ssm.state_size"), 65, "qwen35.ssm.state_size is missing"),
    (
        QWEN35,
        put("qwen35.ssm.conv_kernel", "u32", 1),
        65,
        "qwen35.ssm.conv_kernel: 1 is not within 2 to 16",
    ),
    (
        QWEN35,
        put("qwen35.ssm.group_count", "u32", 3),
        65,
        "qwen35.ssm.group_count: 3 does not divide time_step_rank",
    ),
    (
        QWEN35,
        put("qwen35.ssm.group_count", "u32", 5),
        65,
        "qwen35.ssm.group_count: 5 is not within 1 to 4",
    ),
    (
        QWEN35,
        put("qwen35.ssm.inner_size", "u32", 96),
        65,
        "qwen35.ssm.inner_size: 96 is not time_step_rank x state_size",
    ),
    (
        QWEN35,
        put("qwen35.full_attention_interval", "u32", 5),
        69,
        "qwen35.attention.head_count_kv: no block has attention",
    ),
    (
        QWEN35,
        put("qwen35.attention.recurrent_layers", "[bool]", [True, True, False]),
        65,
        "qwen35.attention.recurrent_layers: an array of 3 bool, not one for each block",
    ),
    (
        QWEN35,
        put("qwen35.nextn_predict_layers", "u32", 4),
        65,
        "qwen35.nextn_predict_layers: 4 is not within 0 to 3",
    ),
    (
        QWEN35,
        put("qwen35.decision.type", "string", "lev"),
        69,
        "qwen35.decision.type is set: not supported by this build",
    ),
    (QWEN35, drop("blk.0.ssm_a"), 65, "tensor blk.0.ssm_a is missing"),
    (QWEN35, drop("blk.2.ssm_dt.bias"), 65, "tensor blk.2.ssm_dt.bias is missing"),
    (
        GEMMA4,
        put("gemma4.expert_count", "u32", 128),
        69,
        "gemma4.expert_count is set: not supported by this build",
    ),
    (
        GEMMA4,
        drop("gemma4.attention.sliding_window_pattern"),
        65,
        "gemma4.attention.sliding_window_pattern is missing",
    ),
    (
        GEMMA4,
        put("gemma4.attention.sliding_window_pattern", "[bool]", [True] * 5),
        65,
        "gemma4.attention.sliding_window_pattern: an array of 5 bool, not one for each block",
    ),
    (
        GEMMA4,
        put("gemma4.attention.sliding_window_pattern", "[bool]", [True] * 4 + [True, False]),
        69,
        "gemma4.attention.shared_kv_layers 2: block 5 has none to share with",
    ),
    (
        GEMMA4,
        put("gemma4.attention.shared_kv_layers", "u32", 6),
        65,
        "gemma4.attention.shared_kv_layers: 6 is not within 0 to 5",
    ),
    (
        GEMMA4,
        put("gemma4.attention.head_count_kv", "[i32]", [1, 1, 3, 1, 1, 4]),
        65,
        "gemma4.attention.head_count_kv: 3 of block 2 does not divide head_count 4",
    ),
    (
        GEMMA4,
        put("gemma4.attention.head_count_kv", "[i32]", [1, 1, 1, 1, 1, 2]),
        69,
        "gemma4.attention.shared_kv_layers 2: block 5 has none to share with",
    ),
    (
        GEMMA4,
        put("gemma4.feed_forward_length", "[i32]", [256, 256, 256, 256, 0, 256]),
        65,
        "gemma4.feed_forward_length: 0 of block 4 is not within 1 to 1048576",
    ),
    (
        GEMMA4,
        put("gemma4.attention.key_length_swa", "u32", 31),
        65,
        "gemma4.attention.key_length_swa: 31 is not an even number of at least"
        " rope.dimension_count_swa",
    ),
    (
        GEMMA4,
        put("gemma4.attention.value_length_swa", "u32", 12),
        69,
        "gemma4.attention.value_length_swa other than key_length_swa",
    ),
    (GEMMA4, drop("rope_freqs.weight"), 65, "tensor rope_freqs.weight is missing"),
    (
        GEMMA4,
        every(
            put("gemma4.rope.scaling.type", "string", "yarn"),
            put("gemma4.rope.scaling.factor", "f32", 4.0),
        ),
        69,
        "gemma4.rope.scaling.type yarn",
    ),
    (GEMMA4, drop("blk.0.attn_k.weight"), 65, "tensor blk.0.attn_k.weight is missing"),
    (GEMMA4, drop("blk.0.attn_v.weight"), 65, "tensor blk.0.attn_v.weight is missing"),
    (
        GEMMA4,
        drop("per_layer_token_embd.weight"),
        65,
        "tensor per_layer_token_embd.weight is missing",
    ),
    (
        {**GEMMA4, "n_ple": 0},
        put("gemma4.embedding_length_per_layer_input", "u32", 8),
        65,
        "tensor per_layer_token_embd.weight is missing",
    ),
    (
        {"arch": "granite"},
        drop("granite.logit_scale"),
        65,
        "granite.logit_scale is missing",
    ),
    (
        {"arch": "granite"},
        put("granite.residual_scale", "f32", -1.0),
        65,
        "granite.residual_scale: -1.0 is not within 0 to 1e+06",
    ),
    (
        {"arch": "granite"},
        put("granite.deepstack_mapping", "[i32]", [1, 2]),
        69,
        "granite.deepstack_mapping is set: not supported by this build",
    ),
    (
        {"arch": "granite"},
        put("granite.expert_count", "u32", 32),
        69,
        "granite.expert_count is set: not supported by this build",
    ),
    (
        {"arch": "mistral3"},
        put("mistral3.attention.temperature_scale", "f32", -0.5),
        65,
        "mistral3.attention.temperature_scale: -0.5 is not within -1e-09 to 1000",
    ),
    (
        {"arch": "smollm3"},
        put("smollm3.attention.sliding_window", "u32", 100),
        69,
        "smollm3.attention.sliding_window is set: not supported by this build",
    ),
    (
        {"arch": "gemma3"},
        put("gemma3.attn_logit_softcapping", "f32", 50.0),
        69,
        "gemma3.attn_logit_softcapping is set: not supported by this build",
    ),
]


@pytest.mark.quick_cases(23)
@pytest.mark.parametrize("row", range(len(BAD_OF)))
def test_bad_model_of_each_architecture_prints_one_line(tmp_path, row):
    config, change, code, line = BAD_OF[row]
    path = build(tmp_path / "m.gguf", change, **config)
    with pytest.raises(Error) as e:
        Model(path, 1)
    assert (e.value.code, str(e.value)) == (code, f"{path}: {line}")


@pytest.mark.quick_cases(36)
@pytest.mark.parametrize("row", range(len(BAD)))
def test_bad_model_is_refused_by_name(tmp_path, row):
    change, code, named = BAD[row]
    with pytest.raises(Error) as e:
        Model(build(tmp_path / "m.gguf", change), 1)
    assert (
        e.value.code == code and named in str(e.value) and str(tmp_path / "m.gguf") in str(e.value)
    )


def hparams(tmp_path, change=lambda m, t: None, **config):
    return Model(build(tmp_path / "m.gguf", change, **config), 1).hparams


@pytest.mark.parametrize("arch", tiny_model.DEFAULTS)
def test_hparams_accept_every_architecture(tmp_path, arch):
    assert sorted(tiny_model.DEFAULTS) == architectures.names()
    more = {"n_layer": 6, "head_dim_global": 16} if arch == "gemma4" else {}
    h = hparams(tmp_path, arch=arch, **more)
    assert (h.arch, h.n_head, h.n_head_kv, h.head_dim, h.n_vocab) == (arch, 4, 2, 16, 400)


def test_window_of_the_whole_context_is_none(tmp_path):
    for arch in ("qwen2", "qwen3", "gemma"):
        assert (
            hparams(tmp_path, put(f"{arch}.attention.sliding_window", "u32", 512), arch=arch).window
            == 0
        )


def test_windows_are_in_the_blocks_that_have_them(tmp_path):
    windows = lambda **config: [
        h.window_of(i) for h in [hparams(tmp_path, **config)] for i in range(h.n_layer)
    ]
    assert windows(window=24) == [24, 24] and windows() == [0, 0]
    assert windows(arch="phi3", window=21) == [21, 21] and windows(arch="phi3") == [0, 0]
    assert windows(arch="gemma2", window=16, n_layer=5) == [16, 0, 16, 0, 16]
    assert windows(arch="gemma2", window=0) == [4096, 0]  # a file without the key
    assert windows(arch="gemma3", window=16, n_layer=7) == [16] * 5 + [0, 16]
    assert windows(arch="gemma3", window=0, n_layer=7) == [0] * 7


def test_gemma2_without_keys_has_the_published_caps(tmp_path):
    h = hparams(tmp_path, arch="gemma2", attn_cap=0, final_cap=0)
    assert (h.attn_cap, h.final_cap) == (50.0, 30.0)
    h = hparams(tmp_path, put("gemma2.final_logit_softcapping", "f32", 0.0), arch="gemma2")
    assert (h.attn_cap, h.final_cap) == (4.0, 0.0)


@pytest.mark.parametrize("arch,n_layer", [("gemma2", 46), ("gemma3", 62)])
def test_gemma_27b_scales_by_n_embd_over_n_head(tmp_path, arch, n_layer):
    config = dict(arch=arch, n_embd=32, n_ff=32, n_head_kv=1, window=16)
    assert hparams(tmp_path, n_layer=n_layer, **config).scale == 1 / math.sqrt(8)
    assert hparams(tmp_path, n_layer=n_layer - 1, **config).scale == 0.25


def test_rope_scaling_is_read_as_written(tmp_path):
    factor = put("llama.rope.scaling.factor", "f32", 4.0)
    kind = lambda name: put("llama.rope.scaling.type", "string", name)
    rope = hparams(tmp_path, factor).rope  # without a type: linear
    assert (rope.kind, rope.factor, rope.scale) == ("linear", 4.0, 1.0)
    assert hparams(tmp_path, every(factor, kind("none"))).rope.factor == 1.0
    rope = hparams(tmp_path, yarn()).rope
    assert (rope.kind, rope.factor, rope.n_ctx, rope.fast, rope.slow) == (
        "yarn",
        4.0,
        64,
        32.0,
        1.0,
    )
    assert abs(rope.scale - (0.1 * math.log(4) + 1)) < 1e-15
    assert (
        hparams(
            tmp_path, yarn(yarn_attn_factor=1.25, attn_factor=2.0, yarn_ext_factor=-1.0)
        ).rope.scale
        == 2.5
    )
    assert hparams(tmp_path, yarn(factor=0.5, original_context_length=None)).rope.n_ctx == 512


ROPE_KEYS = (
    "freq_base",
    "scale_linear",
    *(
        f"scaling.{key}"
        for key in (
            "factor",
            "original_context_length",
            "attn_factor",
            "yarn_attn_factor",
            "yarn_beta_fast",
            "yarn_beta_slow",
            "yarn_ext_factor",
        )
    ),
)
NUMBERS = st.one_of(
    st.sampled_from([0.0, 1.0, 1 + 2**-52, 5e-324, 1e308, 1e6, -1.0, NAN, INF]),
    st.floats(),
    st.integers(0, (1 << 32) - 1),
)


@given(
    st.sampled_from(["none", "linear", "yarn", "longrope"]),
    st.dictionaries(st.sampled_from(ROPE_KEYS), NUMBERS),
)
@settings(max_examples=150, deadline=None)
def test_any_rope_is_refused_by_name_or_has_frequencies(kind, numbers):
    """Whatever a file says: the borders of yarn become integers in C. Too fast a turn has an angle
    of NaN, and the logits show it.
    """

    class File:
        path, tensors = "m.gguf", {}
        metadata = {
            "llama.rope.scaling.type": kind,
            **{f"llama.rope.{key}": v for key, v in numbers.items()},
        }
        kinds = {
            key: KIND_NAMES.index({str: "string", int: "u32", float: "f64"}[type(v)])
            for key, v in metadata.items()
        }
        get, data_error = gguf.File.get, gguf.File.data_error

    try:
        rope = read_rope(Keys(File(), "llama"), File.tensors, 4096)
    except Error as e:
        assert e.code in (65, 69) and "llama.rope." in str(e)
        return
    freq = list(rope.frequencies(16, ffi.new("float[]", [1.5] * 16)))
    assert all(f >= 0 for f in freq) and 0 < rope.scale < 1e6 + 1


def test_longrope_is_chosen_by_the_model_alone(tmp_path):
    for n_ctx, which, scale in (
        (512, "long", math.sqrt(1 + math.log(8) / math.log(64))),
        (64, "short", 1.0),
        (32, "short", 1.0),
    ):
        rope = hparams(tmp_path, **LONG, n_ctx=n_ctx).rope
        assert rope.divisors == f"rope_factors_{which}" and abs(rope.scale - scale) < 1e-15
    assert (
        hparams(tmp_path, put("phi3.rope.scaling.attn_factor", "f32", 1.5), **LONG).rope.scale
        == 1.5
    )


def fuse(prefix, whole, names, suffix):
    """Tensors of one block put into one, their rows in this order."""

    def change(m, t):
        parts = [t.pop(f"{prefix}.{name}.{suffix}") for name in names]
        kind, shape, _ = parts[0]
        rows = sum(p[1][-1] for p in parts)
        t[f"{prefix}.{whole}.{suffix}"] = [kind, (*shape[:-1], rows), b"".join(p[2] for p in parts)]

    return change


def split(prefix, whole, parts):
    """The reverse: `parts` name -> rows."""

    def change(m, t):
        kind, (n_in, _), data = t.pop(f"{prefix}.{whole}.weight")
        at = 0
        for name, rows in parts.items():
            n_bytes = 4 * n_in * rows
            t[f"{prefix}.{name}.weight"] = [kind, (n_in, rows), data[at : at + n_bytes]]
            at += n_bytes

    return change


def logits(path, tmp_path):
    m = Model(path, 1)
    with Snapshot.create(m.geometry("f32"), 64, m.file.id, ARITHMETIC, str(tmp_path)) as cache:
        m.prefill(cache, list(range(3, 40)))
        return bytes(ffi.buffer(cache.logits, 4 * m.hparams.n_vocab))


QKV = ("attn_q", "attn_k", "attn_v")


@pytest.mark.parametrize(
    "arch,changes",
    [
        (
            "qwen2",
            [fuse(f"blk.{i}", "attn_qkv", QKV, s) for i in (0, 1) for s in ("weight", "bias")],
        ),
        ("qwen2", [fuse("blk.1", "attn_qkv", QKV, "weight")]),
        ("llama", [fuse("blk.0", "attn_qkv", QKV, "weight")]),
        (
            "phi3",
            [
                split("blk.0", "attn_qkv", {"attn_q": 64, "attn_k": 32, "attn_v": 32}),
                split("blk.1", "ffn_up", {"ffn_gate": 96, "ffn_up": 96}),
            ],
        ),
    ],
)
def test_fused_matrices_give_the_bits_of_separate_ones(tmp_path, arch, changes):
    found = {
        logits(build(tmp_path / "m.gguf", every(*some), arch=arch), tmp_path)
        for some in ([], changes)
    }
    assert len(found) == 1


def test_unchanged_model_is_accepted(tmp_path):
    m = Model(build(tmp_path / "m.gguf", lambda m, t: None), 1)
    assert (m.hparams.n_head, m.hparams.n_head_kv, m.hparams.head_dim, m.hparams.n_vocab) == (
        4,
        2,
        16,
        400,
    )


def last_logits(path):
    m = Model(path, 1)
    cache = Scratch(m.geometry("f32"), 8, logits=True)
    m.prefill(cache, [1, 300, 17, 350])
    return bytes(ffi.buffer(cache.logits, 4 * m.hparams.n_vocab))


PER_LAYER = (
    "block_count",
    "embedding_length",
    "feed_forward_length",
    "attention.head_count",
    "attention.head_count_kv",
    "attention.key_length",
    "attention.value_length",
    "rope.dimension_count",
    "context_length",
    "attention.sliding_window",
    "attention.layer_norm_rms_epsilon",
    "rope.freq_base",
    "attn_logit_softcapping",
)
INTEGERS = st.sampled_from(["[u8]", "[i16]", "[u16]", "[i32]", "[u32]", "[i64]", "[u64]"])


@given(
    st.sampled_from(["llama", "qwen3", "gemma2", "gemma3"]),
    st.sets(st.sampled_from(PER_LAYER), min_size=1),
    st.data(),
)
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@pytest.mark.full
def test_arrays_of_equal_entries_are_the_number(tmp_path_factory, arch, keys, data):
    """Of any integer type that holds it, as converters of other projects write them."""
    d = tmp_path_factory.mktemp("layers")
    config = {"arch": arch, "window": 16} if arch.startswith("gemma") else {"arch": arch}

    def change(m, t):
        n_layer = m[f"{arch}.block_count"][1]
        for key in sorted(keys):
            if f"{arch}.{key}" in m:
                kind, v = m[f"{arch}.{key}"]
                kind = (
                    data.draw(INTEGERS)
                    if isinstance(v, int)
                    else data.draw(st.sampled_from(["[f32]", "[f64]"]))
                )
                if isinstance(v, float) or v < 1 << {"[u8]": 8, "[i16]": 15, "[u16]": 16}.get(
                    kind, 31
                ):
                    m[f"{arch}.{key}"] = kind, [v] * n_layer

    plain = build(d / "a.gguf", lambda m, t: None, **config)
    assert last_logits(build(d / "b.gguf", change, **config)) == last_logits(plain)


# What the specification calls optional, or says what its absence means, where the model has that
# value.
OPTIONAL = (
    "attention.head_count_kv",
    "attention.key_length",
    "attention.value_length",
    "rope.dimension_count",
    "rope.freq_base",
    "vocab_size",
    "rope.scaling.type",
    "rope.scaling.factor",
    "general.name",
    "general.type",
    "general.file_type",
    "general.quantization_version",
    "tokenizer.ggml.scores",
    "tokenizer.ggml.token_type",
    "tokenizer.ggml.pre",
    "tokenizer.ggml.bos_token_id",
    "tokenizer.ggml.eos_token_id",
    "tokenizer.ggml.unknown_token_id",
    "tokenizer.ggml.padding_token_id",
    "tokenizer.ggml.add_bos_token",
    "tokenizer.ggml.add_eos_token",
    "tokenizer.ggml.add_space_prefix",
)


@given(st.sets(st.sampled_from(OPTIONAL), min_size=1))
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
def test_optional_keys_may_be_absent_in_any_combination(tmp_path_factory, gone):
    d = tmp_path_factory.mktemp("optional")
    config = dict(n_head_kv=4)

    def change(m, t):
        for key in gone:
            m.pop(key if key.startswith(("general.", "tokenizer.")) else f"llama.{key}", None)

    plain, less = (
        build(d / "a.gguf", lambda m, t: None, **config),
        build(d / "b.gguf", change, **config),
    )
    assert last_logits(less) == last_logits(plain)
    a, b = Vocab(gguf.File(plain)), Vocab(gguf.File(less))
    assert (b.bos, b.eos, b.add_bos, b.add_eos, b.add_prefix) == (
        a.bos,
        a.eos,
        a.add_bos,
        a.add_eos,
        a.add_prefix,
    ) and a.eog <= b.eog
    if "tokenizer.ggml.scores" not in gone:
        for text in (b"Once upon a time", b"\x00\xff\n  ", "h\u00e9llo \u65e5".encode()):
            assert b.encode(text) == a.encode(text)
    text = b"any text, \x01 \xc3\xa9"
    assert b"".join(b.bytes_of(i) for i in b.encode(text))[1:] == text


@given(st.lists(st.integers(0, 2), min_size=30, max_size=30))
@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
def test_trailing_dimensions_of_one_anywhere_change_nothing(tmp_path_factory, ones):
    d = tmp_path_factory.mktemp("dims")

    def change(m, t):
        for n, entry in zip(ones, t.values()):
            entry[1] = (*entry[1], *[1] * n)

    plain, more = build(d / "a.gguf", lambda m, t: None), build(d / "b.gguf", change)
    assert last_logits(more) == last_logits(plain)
    assert all(
        t.shape == gguf.File(plain).tensors[name].shape
        for name, t in gguf.File(more).tensors.items()
    )


@pytest.mark.full
def test_golden_dimensions_and_scores_run(datafile):
    whole = run(
        "generate", "-m", datafile("models/stories260K.gguf"), "-t", 0, "-n", 8, "Once upon"
    )
    dims = run("generate", "-m", datafile("cases/models/dims4.gguf"), "-t", 0, "-n", 8, "Once upon")
    assert (dims.returncode, dims.stdout, dims.stderr) == (0, whole.stdout, b"")
    bare = run(
        "generate", "-m", datafile("cases/models/no_scores.gguf"), "-t", 0, "-n", 8, "Once upon"
    )
    assert bare.returncode == 0 and bare.stderr == b"" and bare.stdout.decode()


@pytest.mark.parametrize(
    "pattern,ok", [([True] * 5 + [False], True), ([True] * 6, False), ([False] * 6, False)]
)
def test_gemma3_pattern_as_bools(tmp_path, pattern, ok):
    change = put("gemma3.attention.sliding_window_pattern", "[bool]", pattern)
    make = lambda: Model(build(tmp_path / "m.gguf", change, arch="gemma3", n_layer=6, window=16), 1)
    if ok:
        assert make().hparams.pattern == 6
    else:
        with pytest.raises(Error, match="sliding_window_pattern") as e:
            make()
        assert e.value.code == 69


def test_trailing_dimensions_of_one_are_none(tmp_path):
    def change(m, t):
        t["blk.0.attn_norm.weight"][1] = (64, 1, 1)

    assert Model(build(tmp_path / "m.gguf", change), 1)


def test_legacy_linear_scale_is_read(tmp_path):
    m = Model(build(tmp_path / "m.gguf", put("llama.rope.scale_linear", "f32", 4.0)), 1)
    assert m.hparams.rope.factor == 4.0
    assert struct.unpack("f", struct.pack("f", m.ropes["global"][0][0]))[0] == 0.25
