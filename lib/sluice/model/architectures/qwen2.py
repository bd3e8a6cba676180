"""Qwen 2 and 2.5: Llama's block, with biases on queries, keys and values.

Qwen Team 2024, arXiv:2407.10671 (2412.15115 for 2.5).
"""

from __future__ import annotations

from ..architecture import HuggingFace
from . import llama

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..forward import Forward, Rows
    from ..interfaces import Model
    from ..weights import Layer


def add_biases(f: Forward, w: Layer, q: Rows, k: Rows, v: Rows) -> None:
    """Add the biases to queries, keys and values, in place."""
    f.add_bias(q, w.attn_q_bias)
    f.add_bias(k, w.attn_k_bias)
    f.add_bias(v, w.attn_v_bias)


def layers(m: Model, f: Forward) -> Rows:
    return llama.layers(m, f, add_biases)


ARCHITECTURE = llama.BASE._replace(
    name="qwen2",
    layers=layers,
    tensors={
        **llama.BASE.tensors,
        "attn_q.bias": ("n_q",),
        "attn_k.bias": ("n_kv",),
        "attn_v.bias": ("n_kv",),
    },
    hugging_face=HuggingFace(
        models={"qwen2": ("Qwen2ForCausalLM", "Qwen2Model")},
        names={
            **llama.BASE.hugging_face.names,
            "attn_q.bias": "self_attn.q_proj.bias",
            "attn_k.bias": "self_attn.k_proj.bias",
            "attn_v.bias": "self_attn.v_proj.bias",
        },
    ),
)
