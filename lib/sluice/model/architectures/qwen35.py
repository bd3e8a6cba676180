"""Qwen3.5 and 3.6, dense, their text part: gated delta nets, and gated attention in every fourth
block.

Yang et al. 2024, "Gated Delta Networks", arXiv:2412.06464; Qwen Team 2025, Qwen3-Next (gates of
attention: arXiv:2505.06708). A delta net keeps a matrix for each head, in which a token replaces
what its key finds there by its value. Queries, keys and values pass a short convolution over the
last tokens first.

A head of values h uses the query and the key h mod K (K: their heads), the order of llama.cpp's
converter. Positions of an image have three parts, those of a text one: RoPE is the usual one if its
sections cover all pairs.
"""

from __future__ import annotations

import math

from ..architecture import HuggingFace, no_window
from ..blocks import swiglu
from ..hparams import Block
from . import llama, qwen3

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..forward import Forward, Rows
    from ..interfaces import Config, Hparams, Keys, Model, Sizes
    from ..weights import Layer

PERIOD = 4  # of blocks with attention
NORM_EPS = 1e-6  # of keys and queries, in transformers a constant


def layers(m: Model, f: Forward) -> Rows:
    x = f.embed(m.weights.token_embd)
    for i, w in enumerate(m.weights.layers):
        h = f.rmsnorm(x, w.attn_norm)
        x, o = (delta_net if f.h.states[i] else gated_attention)(f, i, w, x, h)
        f.add(x, o)
        f.add(x, swiglu(f, w, f.rmsnorm(x, w.post_attention_norm)))
    return x


def gated_attention(f: Forward, i: int, w: Layer, x: Rows, h: Rows) -> tuple[Rows, Rows]:
    """Attention of which each element passes a gate that the token computes; as blocks.attend."""
    n_head, dim = f.h.n_head, f.h.head_dim
    both, k, v = f.linears(h, w.attn_q, w.attn_k, w.attn_v)
    q, gate = (f.columns(both, at * dim, dim, name, n_head) for at, name in enumerate("qg"))
    qwen3.norm_heads(f, w, q, k, v)
    f.rope(q, "global", True)
    f.rope(k, "global", True)
    f.store(i, k, v)
    x, q, gate = f.needed(i, x, q, gate)
    o = f.attention(i, q, f.h.window_of(i))
    return x, f.linear(f.sigmoid_mul(o, gate), w.attn_output)


def delta_net(f: Forward, i: int, w: Layer, x: Rows, h: Rows) -> tuple[Rows, Rows]:
    """The gated delta rule behind a convolution; as blocks.attend.

    The state of the block: the last rows before the convolution, of queries, keys and values, then
    the matrices.
    """
    b = f.h.block(i)
    dim, n_tap = b.d_delta, b.n_tap
    mixed, gate, beta, alpha = f.linears(h, w.attn_qkv, w.attn_gate, w.ssm_beta, w.ssm_alpha)
    qkv, at = [], 0
    for name, n in zip("qkv", (b.n_key, b.n_key, b.n_value)):
        taps = w.ssm_conv1d + at * n_tap
        qkv.append(
            f.causal_conv(i, mixed, taps, n_tap, (at, n), (n_tap - 1) * at, silu=True, name=name)
        )
        at += n
    q, k, v = qkv
    f.unit_heads(q, dim, NORM_EPS, 1 / math.sqrt(dim))
    f.unit_heads(k, dim, NORM_EPS)
    decay = f.delta_gates(alpha, beta, w.ssm_a, w.ssm_dt_bias)
    o = f.delta_net(i, q, k, v, decay, beta, (n_tap - 1) * at)
    x, o, gate = f.needed(i, x, o, gate)
    f.rmsnorm_heads(o, w.ssm_norm, dim)
    return x, f.linear(f.silu_mul(gate, o), w.ssm_out)


def rules(h: Hparams, keys: Keys) -> None:
    no_window(h, keys)
    sections = keys.numbers("rope.dimension_sections")
    if any(n < 0 for n in sections) or sum(sections) != h.n_rot // 2:
        raise keys.unsupported_error(
            f"rope.dimension_sections {sections}: not all {h.n_rot // 2} pairs"
        )
    n_tap = keys.int("ssm.conv_kernel", 2, keys.MAX_CONV)
    dim = keys.int("ssm.state_size", 1, keys.MAX_HEAD_DIM)
    n_head = keys.int("ssm.time_step_rank", 1, keys.MAX_HEADS)
    n_head_k = keys.int("ssm.group_count", 1, n_head)
    n_value, n_key = keys.int("ssm.inner_size", 1, keys.MAX_WIDTH), n_head_k * dim
    if n_head % n_head_k:
        raise keys.data_error("ssm.group_count", f"{n_head_k} does not divide time_step_rank")
    if n_value != n_head * dim:
        raise keys.data_error("ssm.inner_size", f"{n_value} is not time_step_rank x state_size")
    sizes = dict(n_key=n_key, n_value=n_value, n_delta=n_head, d_delta=dim, n_tap=n_tap)
    n_state = (n_tap - 1) * (2 * n_key + n_value) + n_value * dim
    recurrent = recurrent_blocks(h, keys)
    h.blocks = [
        Block(h, h.n_ff, 0, 0, **sizes) if x else Block(h, h.n_ff, h.n_head_kv, h.head_dim)
        for x in recurrent
    ]
    h.kv_layers = [-1 if x else i - sum(recurrent[:i]) for i, x in enumerate(recurrent)]
    h.states = [n_state if x else 0 for x in recurrent]


def recurrent_blocks(h: Hparams, keys: Keys) -> list[bool]:
    """Whether each block is a delta net."""
    if keys.has("attention.recurrent_layers"):
        return keys.bools("attention.recurrent_layers")[: h.n_layer]
    period = keys.int("full_attention_interval", 1, keys.MAX_CONTEXT, PERIOD)
    return [(i + 1) % period != 0 for i in range(h.n_layer)]


def stored_sizes(c: Config) -> tuple[int, int, int, int]:
    """Heads of keys and of values of a delta net, elements of a head, taps."""
    n_key, n_value = c.int("linear_num_key_heads", 16), c.int("linear_num_value_heads", 32)
    return n_key, n_value, c.int("linear_key_head_dim", 128), c.int("linear_conv_kernel_dim", 4)


def is_recurrent(c: Config) -> list[bool]:
    """Whether each layer is a delta net."""
    kinds = c.get("layer_types", list)
    if kinds is None:
        period = c.int("full_attention_interval", PERIOD)
        return [(i + 1) % period != 0 for i in range(c.n_layer)]
    if len(kinds) != c.n_layer or not {"linear_attention", "full_attention"} >= set(
        map(str, kinds)
    ):
        raise c.data_error(
            "layer_types", f"is not linear_attention or full_attention, {c.n_layer} times"
        )
    return [kind == "linear_attention" for kind in kinds]


def stored_block(c: Config, i: int) -> Sizes:
    if not is_recurrent(c)[i]:
        return c
    n_key, n_value, dim, n_tap = stored_sizes(c)
    sizes = dict(n_key=n_key * dim, n_value=n_value * dim, n_delta=n_value, d_delta=dim)
    return Block(c, c.n_ff, 0, 0, n_tap=n_tap, **sizes)


def refuse(c: Config) -> None:
    n_key, n_value, dim, n_tap = stored_sizes(c)
    if n_value % n_key:
        raise c.data_error("linear_num_value_heads", f"{n_value} is no multiple of {n_key}")
    if c.int("linear_value_head_dim", 128) != dim:
        raise c.unsupported_error("linear_value_head_dim other than linear_key_head_dim")
    if not c.flag("attn_output_gate", True):
        raise c.unsupported_error("attn_output_gate = false")


def order(c: Config, name: str) -> tuple[list[int] | None, list[int] | None]:
    """Heads of values that share a key are neighbours in a checkpoint. In a GGUF, of K keys, they
    are K apart.
    """
    n_key, n_value, dim, _ = stored_sizes(c)
    heads = [k * (n_value // n_key) + i for i in range(n_value // n_key) for k in range(n_key)]
    every = [head * dim + i for head in heads for i in range(dim)]
    if n_key == n_value:
        return None, None
    if name in ("attn_qkv", "ssm_conv1d"):
        n = 2 * n_key * dim
        return [*range(n), *(n + i for i in every)], None
    if name in ("ssm_alpha", "ssm_beta"):
        return heads, None
    if name in ("ssm_a", "ssm_dt.bias"):
        return None, heads
    return (every, None) if name == "attn_gate" else (None, every if name == "ssm_out" else None)


def hugging_face_keys(c: Config) -> dict[str, tuple[str, Any]]:
    n_key, n_value, dim, n_tap = stored_sizes(c)
    recurrent, n_pair = is_recurrent(c), c.rope.n_rot // 2
    values = c.get("rope_parameters", dict) or c.get("rope_scaling", dict) or {}
    sections = values.get("mrope_section", [11, 11, 10])
    if (
        not isinstance(sections, list)
        or any(type(n) is not int or n < 0 for n in sections)
        or sum(sections) != n_pair
    ):
        raise c.unsupported_error(f"mrope_section: not {n_pair} pairs in all")
    out: dict[str, tuple[str, Any]] = {
        "rope.dimension_sections": ("[i32]", (sections + [0] * 4)[:4]),
        "ssm.conv_kernel": ("u32", n_tap),
        "ssm.state_size": ("u32", dim),
        "ssm.group_count": ("u32", n_key),
        "ssm.time_step_rank": ("u32", n_value),
        "ssm.inner_size": ("u32", n_value * dim),
    }
    period = c.n_layer - sum(recurrent) and recurrent.index(False) + 1
    if recurrent == [bool(period) and (i + 1) % period != 0 for i in range(c.n_layer)]:
        return {**out, "full_attention_interval": ("u32", period)}
    return {**out, "attention.recurrent_layers": ("[bool]", recurrent)}


ARCHITECTURE = llama.BASE._replace(
    name="qwen35",
    layers=layers,
    rules=rules,
    unused_blocks="nextn_predict_layers",
    floats=("ssm_conv1d",),
    fused={},
    tensors={
        "attn_norm": ("n_embd",),
        "attn_q": ("n_embd", "n_q_2"),
        "attn_k": ("n_embd", "n_kv"),
        "attn_v": ("n_embd", "n_kv"),
        "attn_q_norm": ("head_dim",),
        "attn_k_norm": ("head_dim",),
        "attn_output": ("n_q", "n_embd"),
        "attn_qkv": ("n_embd", "n_mixed"),
        "attn_gate": ("n_embd", "n_value"),
        "ssm_conv1d": ("n_tap", "n_mixed"),
        "ssm_beta": ("n_embd", "n_delta"),
        "ssm_alpha": ("n_embd", "n_delta"),
        "ssm_dt.bias": ("n_delta",),
        "ssm_a": ("n_delta",),
        "ssm_norm": ("d_delta",),
        "ssm_out": ("n_value", "n_embd"),
        "post_attention_norm": ("n_embd",),
        "ffn_gate": ("n_embd", "n_ff"),
        "ffn_up": ("n_embd", "n_ff"),
        "ffn_down": ("n_ff", "n_embd"),
    },
    hugging_face=HuggingFace(
        models={
            "qwen3_5_text": ("Qwen3_5ForCausalLM",),
            "qwen3_5": ("Qwen3_5ForConditionalGeneration", "Qwen3_5ForCausalLM"),
        },
        defaults={
            "num_key_value_heads": 4,
            "head_dim": 256,
            "max_position_embeddings": 32768,
            "partial_rotary_factor": 0.25,
        },
        partial_rotary=True,
        norms_lack_one=True,
        whole_norms=("ssm_norm",),
        negated_exp=("ssm_a",),
        refuse=refuse,
        block=stored_block,
        order=order,
        keys=hugging_face_keys,
        names={
            **llama.MATRICES,
            "attn_norm": "input_layernorm",
            "post_attention_norm": "post_attention_layernorm",
            "attn_q_norm": "self_attn.q_norm",
            "attn_k_norm": "self_attn.k_norm",
            "attn_qkv": "linear_attn.in_proj_qkv",
            "attn_gate": "linear_attn.in_proj_z",
            "ssm_conv1d": "linear_attn.conv1d",
            "ssm_beta": "linear_attn.in_proj_b",
            "ssm_alpha": "linear_attn.in_proj_a",
            "ssm_dt.bias": "linear_attn.dt_bias",
            "ssm_a": "linear_attn.A_log",
            "ssm_norm": "linear_attn.norm",
            "ssm_out": "linear_attn.out_proj",
        },
    ),
)
