"""Gemma 3, its text part: Gemma 2 with norms on queries and keys instead of soft caps.

Gemma Team 2025, arXiv:2503.19786. Five local blocks follow each global block; local blocks have a
RoPE base of their own, which is never scaled.
"""

from __future__ import annotations

import math

from ..blocks import attend, geglu
from ..rope import Rope
from . import gemma, gemma2

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..forward import Forward, Rows
    from ..interfaces import Config, Hparams, Keys, Model

BASE = gemma2.ARCHITECTURE
PERIOD, LOCAL_ROPE_BASE = 6, 10000.0
N_LAYER_27B = 62


def layers(m: Model, f: Forward) -> Rows:
    x = f.embed(m.weights.token_embd, math.sqrt(m.hparams.n_embd))
    for i, w in enumerate(m.weights.layers):
        h = f.rmsnorm(x, w.attn_norm)
        q, k, v = f.linears(h, w.attn_q, w.attn_k, w.attn_v)
        f.rmsnorm_heads(q, w.attn_q_norm)
        f.rmsnorm_heads(k, w.attn_k_norm)
        rope = "local" if m.hparams.window_of(i) else "global"
        x, o = attend(f, i, w, x, q, k, v, rope)
        f.add(x, f.rmsnorm(o, w.post_attention_norm))
        o = geglu(f, w, f.rmsnorm(x, w.ffn_norm))
        f.add(x, f.rmsnorm(o, w.post_ffw_norm))
    return x


def rules(h: Hparams, keys: Keys) -> None:
    """Without a window every block is global, and keys of local blocks have no effect."""
    h.window = keys.int("attention.sliding_window", 0, keys.MAX_CONTEXT, 0)
    h.final_cap = keys.cap("final_logit_softcapping")
    keys.known.update(("attention.sliding_window_pattern", "rope.freq_base_swa"))
    gemma2.scale_by_share(h, N_LAYER_27B)
    if h.window:
        h.pattern = keys.period("attention.sliding_window_pattern", PERIOD)
        h.rope_local = Rope(keys.float("rope.freq_base_swa", 0.0, 1e12, LOCAL_ROPE_BASE))


def refuse(c: Config) -> None:
    gemma2.refuse_scale(c, N_LAYER_27B)
    if c.get("attn_logit_softcapping", (int, float)) is not None:
        raise c.unsupported_error("attn_logit_softcapping")


def hugging_face_keys(c: Config) -> dict[str, tuple[str, Any]]:
    out: dict[str, tuple[str, Any]] = {"attention.sliding_window": ("u32", c.window)}
    period = c.period(PERIOD)
    if not 1 <= period <= 512:
        raise c.unsupported_error(f"sliding_window_pattern {period}")
    if period != PERIOD:
        out["attention.sliding_window_pattern"] = "u32", period
    if c.get("final_logit_softcapping", (int, float)) is not None:
        out["final_logit_softcapping"] = "f32", c.float("final_logit_softcapping")
    return out


ARCHITECTURE = BASE._replace(
    name="gemma3",
    layers=layers,
    rules=rules,
    tensors={
        **gemma.ARCHITECTURE.tensors,
        "attn_q_norm": ("head_dim",),
        "attn_k_norm": ("head_dim",),
        "post_attention_norm": ("n_embd",),
        "post_ffw_norm": ("n_embd",),
    },
    hugging_face=BASE.hugging_face._replace(
        models={
            "gemma3_text": ("Gemma3ForCausalLM", "Gemma3TextModel"),
            "gemma3": ("Gemma3ForConditionalGeneration", "Gemma3ForCausalLM"),
        },
        names={
            **BASE.hugging_face.names,
            "attn_q_norm": "self_attn.q_norm",
            "attn_k_norm": "self_attn.k_norm",
        },
        defaults={
            "vocab_size": 262208,
            "head_dim": 256,
            "num_attention_heads": 8,
            "num_key_value_heads": 4,
            "tie_word_embeddings": True,
            "sliding_window": 4096,
            "query_pre_attn_scalar": 256,
            "max_position_embeddings": 131072,
            "rope_theta": 1e6,
            "rope_local_base_freq": LOCAL_ROPE_BASE,
        },
        local_rope=True,
        refuse=refuse,
        keys=hugging_face_keys,
    ),
)
