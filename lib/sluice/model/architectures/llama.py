"""Llama and compatible models: Llama 1 to 3, TinyLlama, SmolLM, Mistral.

Touvron et al. 2023, arXiv:2302.13971 (2307.09288 for grouped queries, 2407.21783 for Llama 3):
pre-norm, RoPE, SwiGLU. Mistral, Jiang et al. 2023, arXiv:2310.06825, section 2: with a window in
every block.
"""

from __future__ import annotations

from ..architecture import Architecture, HuggingFace, no_window
from ..blocks import attend, swiglu

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ..forward import Forward, Rows
    from ..interfaces import Config, Hparams, Keys, Model
    from ..weights import Layer

    Change = Callable[[Forward, Layer, Rows, Rows, Rows], None]


def layers(
    m: Model,
    f: Forward,
    change: Change | None = None,
    rope_of: Callable[[int], str | None] = lambda i: "global",
) -> Rows:
    """The forward pass of Architecture.layers.

    change: (f, w, q, k, v), changes queries, keys and values in place before RoPE; rope_of: the
    RoPE of a block, as `attend` takes it. For families that differ from Llama in these steps alone.
    """
    x = f.embed(m.weights.token_embd)
    for i, w in enumerate(m.weights.layers):
        h = f.rmsnorm(x, w.attn_norm)
        q, k, v = f.linears(h, w.attn_q, w.attn_k, w.attn_v)
        if change:
            change(f, w, q, k, v)
        x, o = attend(f, i, w, x, q, k, v, rope_of(i))
        f.add(x, o)
        f.add(x, swiglu(f, w, f.rmsnorm(x, w.ffn_norm)))
    return x


def rules(h: Hparams, keys: Keys) -> None:
    """A window applies to every block, as in transformers.

    llama.cpp's converter writes none, and its engine ignores one: its files of Mistral 7B v0.1
    see all positions, as versions 0.2 and later do.
    """
    h.window = keys.int("attention.sliding_window", 0, keys.MAX_CONTEXT, 0)


def hugging_face_keys(c: Config) -> dict[str, tuple[str, Any]]:
    """Return the key of a window shorter than the context."""
    if c.window and c.window < c.n_ctx:
        return {"attention.sliding_window": ("u32", c.window)}
    return {}


MATRICES = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_down": "mlp.down_proj",
}
ARCHITECTURE = Architecture(
    name="llama",
    layers=layers,
    rules=rules,
    neighbours=True,
    tensors={
        "attn_norm": ("n_embd",),
        "attn_q": ("n_embd", "n_q"),
        "attn_k": ("n_embd", "n_kv"),
        "attn_v": ("n_embd", "n_kv"),
        "attn_output": ("n_q", "n_embd"),
        "ffn_norm": ("n_embd",),
        "ffn_gate": ("n_embd", "n_ff"),
        "ffn_up": ("n_embd", "n_ff"),
        "ffn_down": ("n_ff", "n_embd"),
    },
    hugging_face=HuggingFace(
        models={
            "llama": ("LlamaForCausalLM", "LlamaModel"),
            "mistral": ("MistralForCausalLM", "MistralModel"),
        },
        names={
            **MATRICES,
            "attn_norm": "input_layernorm",
            "ffn_norm": "post_attention_layernorm",
        },
        keys=hugging_face_keys,
    ),
)
# for families that build on Llama: no window; the elements of a RoPE pair are half a head apart
BASE = ARCHITECTURE._replace(rules=no_window, neighbours=False)
