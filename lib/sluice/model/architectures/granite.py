"""Granite 3 and 4, dense: Llama's block with four multipliers.

IBM Granite Team 2024, "Granite 3.0 Language Models": embedding rows, scores, what attention and
feed-forward add, and logits are multiplied by numbers of the configuration (maximal update
parametrization, Yang et al. 2022, arXiv:2203.03466). That of scores replaces 1 / sqrt(head_dim);
that of logits is a divisor. Dense models of Granite 4 may have no RoPE:
`rope.scaling.finetuned` is then false.
"""

from __future__ import annotations

from ..architecture import HuggingFace, no_window
from ..blocks import attend, swiglu
from . import llama

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..forward import Forward, Rows
    from ..interfaces import Config, Hparams, Keys, Model

MAX = 1e6  # of a multiplier


def layers(m: Model, f: Forward) -> Rows:
    h = m.hparams
    rope = "global" if h.has_rope else None
    x = f.embed(m.weights.token_embd, h.embedding_scale)
    for i, w in enumerate(m.weights.layers):
        y = f.rmsnorm(x, w.attn_norm)
        q, k, v = f.linears(y, w.attn_q, w.attn_k, w.attn_v)
        x, o = attend(f, i, w, x, q, k, v, rope)
        f.scale(o, h.residual_scale)
        f.add(x, o)
        o = swiglu(f, w, f.rmsnorm(x, w.ffn_norm))
        f.scale(o, h.residual_scale)
        f.add(x, o)
    return x


def rules(h: Hparams, keys: Keys) -> None:
    no_window(h, keys)
    h.logit_scale = keys.float("logit_scale", 0.0, MAX)
    h.residual_scale = keys.float("residual_scale", 0.0, MAX, 1.0)
    h.embedding_scale = keys.float("embedding_scale", 0.0, MAX, 1.0)
    h.scale = keys.float("attention.scale", 0.0, MAX, h.scale)
    h.has_rope = keys.flag("rope.scaling.finetuned", True)


def hugging_face_keys(c: Config) -> dict[str, tuple[str, Any]]:
    return {
        key: ("f32", c.float(name, 1.0))
        for key, name in (
            ("logit_scale", "logits_scaling"),
            ("residual_scale", "residual_multiplier"),
            ("embedding_scale", "embedding_multiplier"),
            ("attention.scale", "attention_multiplier"),
        )
    }


ARCHITECTURE = llama.ARCHITECTURE._replace(
    name="granite",
    layers=layers,
    rules=rules,
    hugging_face=HuggingFace(
        models={"granite": ("GraniteForCausalLM",)},
        names=llama.ARCHITECTURE.hugging_face.names,
        keys=hugging_face_keys,
    ),
)
