"""Qwen 3: Llama's block, with a norm on each head of queries and keys before RoPE.

Qwen Team 2025, arXiv:2505.09388.
"""

from __future__ import annotations

from ..architecture import HuggingFace
from . import llama

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..forward import Forward, Rows
    from ..interfaces import Model
    from ..weights import Layer


def norm_heads(f: Forward, w: Layer, q: Rows, k: Rows, v: Rows) -> None:
    """Normalize each head of queries and keys, in place."""
    f.rmsnorm_heads(q, w.attn_q_norm)
    f.rmsnorm_heads(k, w.attn_k_norm)


def layers(m: Model, f: Forward) -> Rows:
    return llama.layers(m, f, norm_heads)


ARCHITECTURE = llama.BASE._replace(
    name="qwen3",
    layers=layers,
    tensors={
        **llama.BASE.tensors,
        "attn_q_norm": ("head_dim",),
        "attn_k_norm": ("head_dim",),
    },
    pooling="last",
    hugging_face=HuggingFace(
        models={"qwen3": ("Qwen3ForCausalLM", "Qwen3Model")},
        defaults={"head_dim": 128},
        names={
            **llama.BASE.hugging_face.names,
            "attn_q_norm": "self_attn.q_norm",
            "attn_k_norm": "self_attn.k_norm",
        },
    ),
)
