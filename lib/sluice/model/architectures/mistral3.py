"""Ministral 3, and the text part of Mistral Small 3.1: Llama's block with YaRN, and queries that
grow with their position.

Liu et al. 2026, arXiv:2601.08584 (Ministral 3). Behind the original context a query is multiplied
by 1 + beta ln(1 + floor(position / original context)), as in Llama 4: attention stays sharp over
more positions. Files of Mistral Small 3.1 have no beta.

`rope.scaling.yarn_log_multiplier` divides YaRN's factor of cosines and sines, 0.1 ln factor + 1, by
the same with ln factor multiplied by it; published files have 1, so the factor is 1.
"""

from __future__ import annotations

from ...kernels import lib
from ..architecture import HuggingFace, no_window
from . import llama

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..forward import Forward, Rows
    from ..interfaces import Config, Hparams, Keys, Model
    from ..weights import Layer

NONE, MAX = -1e-9, 1e3


def sharpen(f: Forward, w: Layer, q: Rows, k: Rows, v: Rows) -> None:
    """Scale queries; before RoPE, which turns them without changing their length."""
    if f.h.sharpening:
        f.sharpen(q)


def layers(m: Model, f: Forward) -> Rows:
    return llama.layers(m, f, sharpen)


def yarn_scale(factor: float, multiplier: float) -> float:
    """0.1 multiplier ln factor + 1; 1 if the factor is at most 1."""
    return 0.1 * multiplier * lib.sluice_log(factor) + 1.0 if factor > 1 else 1.0


def rules(h: Hparams, keys: Keys) -> None:
    no_window(h, keys)
    multiplier = keys.float("rope.scaling.yarn_log_multiplier", NONE, MAX, 0.0)
    if multiplier and h.rope.kind == "yarn":
        h.rope.scale = yarn_scale(h.rope.factor, 1.0) / yarn_scale(h.rope.factor, multiplier)
    beta = keys.float("attention.temperature_scale", NONE, MAX, 0.0)
    if beta:
        h.sharpening = beta, h.rope.n_ctx or h.n_ctx


def refuse(c: Config) -> None:
    """UnsupportedError for a factor of YaRN that no key expresses, and for the RoPE that
    transformers would assume without one.
    """
    if not {"rope_parameters", "rope_scaling", "rope_theta"} & c.values.keys():
        raise c.unsupported_error("rope_parameters: missing")
    if c.rope_value("mscale_all_dim", 0.0) and c.rope_value("mscale", 0.0) != 1:
        raise c.unsupported_error("rope scaling: mscale other than 1")
    if c.rope_value("attention_factor", 0.0):
        raise c.unsupported_error("rope scaling: attention_factor")


def hugging_face_keys(c: Config) -> dict[str, tuple[str, Any]]:
    if 0 < (c.window or 0) < c.n_ctx:
        raise c.unsupported_error(f"sliding_window {c.window}")
    out: dict[str, tuple[str, Any]] = {}
    for key, name in (
        ("rope.scaling.yarn_log_multiplier", "mscale_all_dim"),
        ("attention.temperature_scale", "llama_4_scaling_beta"),
    ):
        if value := c.rope_value(name, 0.0):
            out[key] = "f32", value
    return out


ARCHITECTURE = llama.ARCHITECTURE._replace(
    name="mistral3",
    layers=layers,
    rules=rules,
    hugging_face=HuggingFace(
        models={
            "ministral3": ("Ministral3ForCausalLM",),
            "mistral3": ("Mistral3ForConditionalGeneration",),
        },
        text_models=("mistral",),
        names=llama.ARCHITECTURE.hugging_face.names,
        defaults={
            "head_dim": 128,
            "num_key_value_heads": 8,
            "rms_norm_eps": 1e-5,
            "max_position_embeddings": 262144,
        },
        rope_values=("mscale", "mscale_all_dim", "llama_4_scaling_beta"),
        refuse=refuse,
        keys=hugging_face_keys,
    ),
)
