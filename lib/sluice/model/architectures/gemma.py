"""Gemma: Llama's block with GeGLU, a scaled embedding, and heads wider than their share.

Gemma Team 2024, arXiv:2403.08295. Gains of norms have their 1 added in a GGUF.
"""

from __future__ import annotations

import math

from ..architecture import HuggingFace
from ..blocks import attend, geglu
from . import llama

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..forward import Forward, Rows
    from ..interfaces import Model


def layers(m: Model, f: Forward) -> Rows:
    x = f.embed(m.weights.token_embd, math.sqrt(m.hparams.n_embd))
    for i, w in enumerate(m.weights.layers):
        h = f.rmsnorm(x, w.attn_norm)
        q, k, v = f.linears(h, w.attn_q, w.attn_k, w.attn_v)
        x, o = attend(f, i, w, x, q, k, v)
        f.add(x, o)
        f.add(x, geglu(f, w, f.rmsnorm(x, w.ffn_norm)))
    return x


ARCHITECTURE = llama.BASE._replace(
    name="gemma",
    layers=layers,
    hugging_face=HuggingFace(
        models={"gemma": ("GemmaForCausalLM",)},
        names=llama.BASE.hugging_face.names,
        defaults={"head_dim": 256, "tie_word_embeddings": True},
        activations=("gelu_pytorch_tanh", "gelu"),  # gelu means gelu_pytorch_tanh
        norms_lack_one=True,
        space_prefix=False,
    ),
)
