"""Qwen 2 and 2.5: Llama's block, with biases on queries, keys and values.

Qwen Team 2024, arXiv:2407.10671 (2412.15115 for 2.5).
"""

from __future__ import annotations

from ..architecture import HuggingFace, no_window
from ..blocks import attend, swiglu
from . import llama

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..forward import Forward, Rows
    from ..interfaces import Model


def layers(m: Model, f: Forward) -> Rows:
    x = f.embed(m.weights.token_embd)
    for i, w in enumerate(m.weights.layers):
        h = f.rmsnorm(x, w.attn_norm)
        q, k, v = f.linears(h, w.attn_q, w.attn_k, w.attn_v)
        f.add_bias(q, w.attn_q_bias)
        f.add_bias(k, w.attn_k_bias)
        f.add_bias(v, w.attn_v_bias)
        x, o = attend(f, i, w, x, q, k, v)
        f.add(x, o)
        f.add(x, swiglu(f, w, f.rmsnorm(x, w.ffn_norm)))
    return x


ARCHITECTURE = llama.ARCHITECTURE._replace(
    name="qwen2",
    layers=layers,
    rules=no_window,
    neighbours=False,
    tensors={
        **llama.ARCHITECTURE.tensors,
        "attn_q.bias": ("n_q",),
        "attn_k.bias": ("n_kv",),
        "attn_v.bias": ("n_kv",),
    },
    hugging_face=HuggingFace(
        models={"qwen2": ("Qwen2ForCausalLM",)},
        names={
            **llama.ARCHITECTURE.hugging_face.names,
            "attn_q.bias": "self_attn.q_proj.bias",
            "attn_k.bias": "self_attn.k_proj.bias",
            "attn_v.bias": "self_attn.v_proj.bias",
        },
    ),
)
