"""SmolLM3: Llama's block, without RoPE in every fourth block.

Hugging Face 2025, huggingface.co/blog/smollm3; the pattern is that of Yang et al. 2025,
arXiv:2501.18795 (RNoPE). No key says which blocks have RoPE.
"""

from __future__ import annotations

from ..architecture import HuggingFace, no_window
from . import llama

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..forward import Forward, Rows
    from ..interfaces import Config, Model

PERIOD = 4


def layers(m: Model, f: Forward) -> Rows:
    return llama.layers(m, f, rope_of=lambda i: None if i % PERIOD == PERIOD - 1 else "global")


def refuse(c: Config) -> None:
    """UnsupportedError if other blocks than every fourth lack RoPE."""
    rotated = [int(i % PERIOD != PERIOD - 1) for i in range(c.n_layer)]
    if c.get("no_rope_layers", list, rotated) != rotated:
        raise c.unsupported_error("no_rope_layers: not every 4th layer is without RoPE")
    if c.get("no_rope_layers", list) is None and c.int("no_rope_layer_interval", PERIOD) != PERIOD:
        raise c.unsupported_error("no_rope_layer_interval other than 4")


ARCHITECTURE = llama.ARCHITECTURE._replace(
    name="smollm3",
    layers=layers,
    rules=no_window,
    hugging_face=HuggingFace(
        models={"smollm3": ("SmolLM3ForCausalLM",)},
        names=llama.ARCHITECTURE.hugging_face.names,
        defaults={
            "num_key_value_heads": 4,
            "tie_word_embeddings": True,
            "max_position_embeddings": 32768,
            "rope_theta": 2e6,
        },
        refuse=refuse,
    ),
)
