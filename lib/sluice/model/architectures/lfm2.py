"""LFM2 and LFM2.5, dense: attention in some blocks, a short convolution in the others.

Liquid AI 2025, arXiv:2511.23404. The convolution is over the last `shortconv.l_cache` tokens, for
each column by itself, between two gates that the token computes. A block of this kind keeps the
columns of the last tokens instead of keys and values.
"""

from __future__ import annotations

from ..architecture import HuggingFace, no_window
from ..blocks import attend, swiglu
from ..hparams import Block
from . import llama, qwen3

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..forward import Forward, Rows
    from ..interfaces import Config, Hparams, Keys, Model, Sizes
    from ..weights import Layer


def layers(m: Model, f: Forward) -> Rows:
    x = f.embed(m.weights.token_embd)
    for i, w in enumerate(m.weights.layers):
        h = f.rmsnorm(x, w.attn_norm)
        if f.h.states[i]:
            x, o = short_convolution(f, i, w, x, h)
        else:
            q, k, v = f.linears(h, w.attn_q, w.attn_k, w.attn_v)
            qwen3.norm_heads(f, w, q, k, v)
            x, o = attend(f, i, w, x, q, k, v)
        f.add(x, o)
        f.add(x, swiglu(f, w, f.rmsnorm(x, w.ffn_norm)))
    return x


def short_convolution(f: Forward, i: int, w: Layer, x: Rows, h: Rows) -> tuple[Rows, Rows]:
    """Return (x, o) as blocks.attend: o = out(c * convolution(b * y)), with b, c, y = in(h)."""
    n = x.n
    every = f.linear(h, w.shortconv_in_proj)
    b, c, y = (f.columns(every, at * n, n, name) for at, name in enumerate(("b", "c", "y")))
    y = f.causal_conv(i, f.mul(b, y), w.shortconv_conv, f.h.block(i).n_tap)
    x, y = f.needed(i, x, f.mul(y, c))
    return x, f.linear(y, w.shortconv_out_proj)


def rules(h: Hparams, keys: Keys) -> None:
    """A block without heads of keys and values has a convolution."""
    no_window(h, keys)
    n_tap = keys.int("shortconv.l_cache", 2, keys.MAX_CONV)
    n_head_kv = keys.ints("attention.head_count_kv", 0, h.n_head)
    for i, n in enumerate(n_head_kv):
        if n and h.n_head % n:
            raise keys.data_error(
                "attention.head_count_kv", f"{n} of block {i} does not divide head_count {h.n_head}"
            )
    h.blocks = [
        Block(h, h.n_ff, n, h.head_dim)
        if n
        else Block(h, h.n_ff, 0, 0, n_conv=h.n_embd, n_tap=n_tap)
        for n in n_head_kv
    ]
    h.kv_layers = [sum(map(bool, n_head_kv[:i])) if n else -1 for i, n in enumerate(n_head_kv)]
    h.states = [0 if n else (n_tap - 1) * h.n_embd for n in n_head_kv]


def stored_n_ff(c: Config) -> int:
    """Width of the feed-forward part: two thirds of intermediate_size, rounded up, if it adjusts
    itself.
    """
    n = c.int("intermediate_size")
    if c.flag("block_auto_adjust_ff_dim", True):
        unit = c.int("block_multiple_of", 256)
        n = int(c.float("block_ffn_dim_multiplier", 1.0) * int(2 * n / 3))
        n = -(-n // unit) * unit
    return n


def has_attention(c: Config) -> list[bool]:
    """Whether each layer has attention."""
    kinds = c.get("layer_types", list)
    if kinds is None:
        found = c.get("full_attn_idxs", list, list(range(c.n_layer)))
        return [i in found for i in range(c.n_layer)]
    if len(kinds) != c.n_layer or not {"conv", "full_attention"} >= set(map(str, kinds)):
        raise c.data_error("layer_types", f"is not conv or full_attention, {c.n_layer} times")
    return [kind == "full_attention" for kind in kinds]


def stored_block(c: Config, i: int) -> Sizes:
    if has_attention(c)[i]:
        return c
    return Block(c, c.n_ff, 0, 0, n_conv=c.n_embd, n_tap=c.int("conv_L_cache", 3))


def refuse(c: Config) -> None:
    if c.flag("conv_bias"):
        raise c.unsupported_error("conv_bias = true")


def hugging_face_keys(c: Config) -> dict[str, tuple[str, Any]]:
    heads = [c.n_head_kv if x else 0 for x in has_attention(c)]
    return {
        "attention.head_count_kv": ("[i32]", heads),
        "shortconv.l_cache": ("u32", c.int("conv_L_cache", 3)),
    }


ARCHITECTURE = llama.BASE._replace(
    name="lfm2",
    layers=layers,
    rules=rules,
    varies=("attention.head_count_kv",),
    output_norm="token_embd_norm",
    floats=("shortconv.conv",),
    tensors={
        **qwen3.ARCHITECTURE.tensors,
        "shortconv.in_proj": ("n_embd", "n_conv_3"),
        "shortconv.conv": ("n_tap", "n_conv"),
        "shortconv.out_proj": ("n_conv", "n_embd"),
    },
    hugging_face=HuggingFace(
        models={"lfm2": ("Lfm2ForCausalLM",)},
        output_norm="embedding_norm",
        other_names={
            "rms_norm_eps": "norm_eps",
            "intermediate_size": "block_ff_dim",
            "tie_word_embeddings": "tie_embedding",
        },
        defaults={
            "rms_norm_eps": 1e-5,
            "tie_word_embeddings": True,
            "max_position_embeddings": 128000,
            "num_key_value_heads": 8,
            "rope_theta": 1e6,
        },
        n_ff=stored_n_ff,
        refuse=refuse,
        block=stored_block,
        keys=hugging_face_keys,
        names={
            "attn_norm": "operator_norm",
            "attn_q": "self_attn.q_proj",
            "attn_k": "self_attn.k_proj",
            "attn_v": "self_attn.v_proj",
            "attn_output": "self_attn.out_proj",
            "attn_q_norm": "self_attn.q_layernorm",
            "attn_k_norm": "self_attn.k_layernorm",
            "shortconv.in_proj": "conv.in_proj",
            "shortconv.conv": "conv.conv",
            "shortconv.out_proj": "conv.out_proj",
            "ffn_norm": "ffn_norm",
            "ffn_gate": "feed_forward.w1",
            "ffn_up": "feed_forward.w3",
            "ffn_down": "feed_forward.w2",
        },
    ),
)
