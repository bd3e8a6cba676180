"""LFM2 and LFM2.5, dense: attention in some blocks, a short convolution in the others.

Liquid AI 2025, arXiv:2511.23404. The convolution is over the last `shortconv.l_cache` tokens, for
each column by itself, between two gates that the token computes. A block of this kind keeps the last
tokens' columns instead of keys and values.
"""

from __future__ import annotations

from ..architecture import HuggingFace, no_window
from ..blocks import attend, swiglu
from ..hparams import Block
from . import llama, qwen3

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..forward import Forward, Rows
    from ..interfaces import Hparams, Keys, Model
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
    """out(c * convolution(b * y)), [n, n_embd], b, c, y = in(h); returns (x, it) as `attend` does."""
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
        models={},
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
