"""Phi 3, 3.5 and 4: Llama's block, stored in fewer matrices, with LongRoPE for long contexts.

Abdin et al. 2024, arXiv:2404.14219. Phi-4-mini (2503.01743) rotates three quarters of each head. q,
k and v are rows of one stored matrix, gate and up of another.

A window applies to every block, as in Llama and in transformers. It is 2,047 in the 4k models,
wider than the context in others, and 0 in Phi 4; files of early 2024 lack the key. llama.cpp
ignores it, and the 4k models then go wrong after 2,048 tokens.
"""

from __future__ import annotations

from ..architecture import HuggingFace
from . import llama

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..interfaces import Config


def hugging_face_keys(c: Config) -> dict[str, tuple[str, Any]]:
    return {"attention.sliding_window": ("u32", c.window or 0)}


ARCHITECTURE = llama.ARCHITECTURE._replace(
    name="phi3",
    neighbours=False,
    fused={**llama.ARCHITECTURE.fused, "ffn_up": ("ffn_gate", "ffn_up")},
    hugging_face=HuggingFace(
        models={"phi3": ("Phi3ForCausalLM",)},
        defaults={"rms_norm_eps": 1e-5},
        ropes=("none", "linear", "llama3", "yarn", "longrope"),
        partial_rotary=True,
        names={
            "attn_qkv": "self_attn.qkv_proj",
            "ffn_up": "mlp.gate_up_proj",
            "attn_output": "self_attn.o_proj",
            "ffn_down": "mlp.down_proj",
            "attn_norm": "input_layernorm",
            "ffn_norm": "post_attention_layernorm",
        },
        keys=hugging_face_keys,
    ),
)
