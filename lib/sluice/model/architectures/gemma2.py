"""Gemma 2: norms before and after, alternating local and global blocks, soft caps.

Gemma Team 2024, arXiv:2408.00118. Blocks 0, 2, ... are local. Scores are capped by attn_cap (in
Forward.attention), logits by final_cap (in Model.head). Without keys for window and caps the
published values apply.
"""

from __future__ import annotations

import math

from ..blocks import attend, geglu
from . import gemma, llama

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..forward import Forward, Rows
    from ..interfaces import Config, Hparams, Keys, Model

BASE = gemma.ARCHITECTURE
WINDOW, PERIOD, ATTN_CAP, FINAL_CAP = 4096, 2, 50.0, 30.0
N_LAYER_27B = 46


def layers(m: Model, f: Forward) -> Rows:
    x = f.embed(m.weights.token_embd, math.sqrt(m.hparams.n_embd))
    for i, w in enumerate(m.weights.layers):
        h = f.rmsnorm(x, w.attn_norm)
        q, k, v = f.linears(h, w.attn_q, w.attn_k, w.attn_v)
        x, o = attend(f, i, w, x, q, k, v)
        f.add(x, f.rmsnorm(o, w.post_attention_norm))
        o = geglu(f, w, f.rmsnorm(x, w.ffn_norm))
        f.add(x, f.rmsnorm(o, w.post_ffw_norm))
    return x


def rules(h: Hparams, keys: Keys) -> None:
    """Read window, soft caps and scale; without keys the published values."""
    h.window = keys.int("attention.sliding_window", 0, keys.MAX_CONTEXT, WINDOW)
    h.pattern = keys.period("attention.sliding_window_pattern", PERIOD)
    if h.pattern != PERIOD:
        raise keys.unsupported_error(
            "attention.sliding_window_pattern is set: not supported by this build"
        )
    h.attn_cap = keys.cap("attn_logit_softcapping", ATTN_CAP)
    h.final_cap = keys.cap("final_logit_softcapping", FINAL_CAP)
    scale_by_share(h, N_LAYER_27B)


def scale_by_share(h: Hparams, n_layer_27b: int) -> None:
    """Set the scale of attention scores. Only the 27B of Gemma 2 and of Gemma 3 scale by n_embd
    / n_head; no key says so, so the number of blocks decides.
    """
    if h.n_layer == n_layer_27b:
        h.scale = 1.0 / math.sqrt(h.n_embd / h.n_head)


def refuse_scale(c: Config, n_layer_27b: int) -> None:
    """UnsupportedError if config.json has another scale of scores than `scale_by_share` sets."""
    scalar = c.float("query_pre_attn_scalar")
    expected = c.n_embd / c.n_head if c.n_layer == n_layer_27b else c.head_dim
    if scalar != expected:
        raise c.unsupported_error(
            f"query_pre_attn_scalar {scalar:g}: a GGUF of {c.n_layer} blocks means {expected:g}"
        )


def refuse(c: Config) -> None:
    """UnsupportedError for a scale, or null values, that a GGUF cannot express."""
    refuse_scale(c, N_LAYER_27B)
    for key in ("attn_logit_softcapping", "final_logit_softcapping"):
        if key in c.values and c.values[key] is None:  # a GGUF without the key means the published
            raise c.unsupported_error(f"{key} = null")


def hugging_face_keys(c: Config) -> dict[str, tuple[str, Any]]:
    period = c.period(PERIOD)
    if period != PERIOD:
        raise c.unsupported_error(f"sliding_window_pattern {period}")
    return {
        "attention.sliding_window": ("u32", c.window),
        "attn_logit_softcapping": ("f32", c.float("attn_logit_softcapping")),
        "final_logit_softcapping": ("f32", c.float("final_logit_softcapping")),
    }


ARCHITECTURE = BASE._replace(
    name="gemma2",
    layers=layers,
    rules=rules,
    tensors={
        **BASE.tensors,
        "post_attention_norm": ("n_embd",),
        "post_ffw_norm": ("n_embd",),
    },
    hugging_face=BASE.hugging_face._replace(
        models={"gemma2": ("Gemma2ForCausalLM",)},
        names={
            **llama.MATRICES,
            "attn_norm": "input_layernorm",
            "post_attention_norm": "post_attention_layernorm",
            "ffn_norm": "pre_feedforward_layernorm",
            "post_ffw_norm": "post_feedforward_layernorm",
        },
        defaults={
            "head_dim": 256,
            "num_key_value_heads": 4,
            "tie_word_embeddings": True,
            "query_pre_attn_scalar": 256,
            "sliding_window": WINDOW,
            "max_position_embeddings": 8192,
            "attn_logit_softcapping": ATTN_CAP,
            "final_logit_softcapping": FINAL_CAP,
        },
        refuse=refuse,
        keys=hugging_face_keys,
    ),
)
