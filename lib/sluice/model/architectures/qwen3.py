"""Qwen 3: Llama's block, with a norm on each head of the queries and keys before they turn.

Qwen Team 2025, arXiv:2505.09388.
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
        f.rmsnorm_heads(q, w.attn_q_norm)
        f.rmsnorm_heads(k, w.attn_k_norm)
        x, o = attend(f, i, w, x, q, k, v)
        f.add(x, o)
        f.add(x, swiglu(f, w, f.rmsnorm(x, w.ffn_norm)))
    return x


ARCHITECTURE = llama.ARCHITECTURE._replace(
    name="qwen3",
    layers=layers,
    rules=no_window,
    neighbours=False,
    tensors={
        **llama.ARCHITECTURE.tensors,
        "attn_q_norm": ("head_dim",),
        "attn_k_norm": ("head_dim",),
    },
    hugging_face=HuggingFace(
        models={"qwen3": ("Qwen3ForCausalLM",)},
        defaults={"head_dim": 128},
        names={
            **llama.ARCHITECTURE.hugging_face.names,
            "attn_q_norm": "self_attn.q_norm",
            "attn_k_norm": "self_attn.k_norm",
        },
    ),
)
