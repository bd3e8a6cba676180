"""Granite 3 and 4, dense: Llama's block with four multipliers.

IBM Granite Team 2024, "Granite 3.0 Language Models": embedding rows, scores, what attention and
feed-forward add, and logits are multiplied by numbers of the configuration (maximal update
parametrization, Yang et al. 2022, arXiv:2203.03466). That of scores replaces 1 / sqrt(head_dim);
that of logits is a divisor. Dense models of Granite 4 may have no RoPE:
`rope.scaling.finetuned` is then false.
"""

from __future__ import annotations

from ...faults import printable
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


def is_hybrid(c: Config) -> bool:
    """Whether the folder is of the class that can also have experts and layers of Mamba 2."""
    return c.kind == "granitemoehybrid"


def stored_n_ff(c: Config) -> int:
    if is_hybrid(c):
        return c.int("shared_intermediate_size", 1024)
    return c.int("intermediate_size")


def refuse(c: Config) -> None:
    """UnsupportedError for experts, layers without attention, and other positions."""
    if not is_hybrid(c):
        return
    if n := c.int("num_local_experts", 8, 0):
        raise c.unsupported_error(f"num_local_experts {n}: a mixture of experts")
    kinds = c.get("layer_types", list, c.get("layers_block_type", list, ["mamba"] * c.n_layer))
    if len(kinds) != c.n_layer:
        raise c.data_error("layer_types", f"{len(kinds)} of {c.n_layer} layers")
    for i, kind in enumerate(kinds):
        if kind not in ("attention", "full_attention"):
            raise c.unsupported_error(
                f"layer_types: layer {i} is {printable(str(kind), 40)}, not attention"
            )
    positions = c.get("position_embedding_type", str, "nope")
    if positions not in ("rope", "nope"):
        raise c.unsupported_error(f"position_embedding_type {printable(positions, 40)}")


def hugging_face_keys(c: Config) -> dict[str, tuple[str, Any]]:
    no_rope = is_hybrid(c) and c.get("position_embedding_type", str) != "rope"
    return ({"rope.scaling.finetuned": ("bool", False)} if no_rope else {}) | {
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
        models={
            "granite": ("GraniteForCausalLM",),
            "granitemoehybrid": ("GraniteMoeHybridForCausalLM",),
        },
        names=llama.ARCHITECTURE.hugging_face.names,
        parts={
            "shared_mlp.input_linear": ("mlp.gate_proj", "mlp.up_proj"),
            "shared_mlp.output_linear": ("mlp.down_proj",),
        },
        n_ff=stored_n_ff,
        refuse=refuse,
        keys=hugging_face_keys,
    ),
)
