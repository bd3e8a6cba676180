"""OLMo 2: Llama's block with norms after, not before, and on all queries and all keys as a whole.

OLMo Team 2024, arXiv:2501.00656, section 3.2. Files of OLMo 3 have the same architecture name and a
window, which is refused.
"""

from __future__ import annotations

from ..architecture import HuggingFace
from ..blocks import attend, swiglu
from . import llama

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..forward import Forward, Rows
    from ..interfaces import Model


def layers(m: Model, f: Forward) -> Rows:
    x = f.embed(m.weights.token_embd)
    for i, w in enumerate(m.weights.layers):
        q, k, v = f.linears(x, w.attn_q, w.attn_k, w.attn_v)
        q = f.rmsnorm(q, w.attn_q_norm, "q_norm")
        k = f.rmsnorm(k, w.attn_k_norm, "k_norm")
        x, o = attend(f, i, w, x, q, k, v)
        f.add(x, f.rmsnorm(o, w.post_attention_norm))
        f.add(x, f.rmsnorm(swiglu(f, w, x), w.post_ffw_norm))
    return x


ARCHITECTURE = llama.BASE._replace(
    name="olmo2",
    layers=layers,
    tensors={
        "attn_q": ("n_embd", "n_q"),
        "attn_k": ("n_embd", "n_kv"),
        "attn_v": ("n_embd", "n_kv"),
        "attn_output": ("n_q", "n_embd"),
        "attn_q_norm": ("n_q",),
        "attn_k_norm": ("n_kv",),
        "post_attention_norm": ("n_embd",),
        "ffn_gate": ("n_embd", "n_ff"),
        "ffn_up": ("n_embd", "n_ff"),
        "ffn_down": ("n_ff", "n_embd"),
        "post_ffw_norm": ("n_embd",),
    },
    hugging_face=HuggingFace(
        models={"olmo2": ("Olmo2ForCausalLM",)},
        defaults={"rms_norm_eps": 1e-5},
        names={
            **llama.MATRICES,
            "attn_q_norm": "self_attn.q_norm",
            "attn_k_norm": "self_attn.k_norm",
            "post_attention_norm": "post_attention_layernorm",
            "post_ffw_norm": "post_feedforward_layernorm",
        },
    ),
)
