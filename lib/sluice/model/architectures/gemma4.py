"""Gemma 4, its text part, dense: E2B, E4B, 31B.

Gemma Team 2026, "Gemma 4" (ai.google.dev/gemma/docs/core/model_card_4). Gemma 3's block, with

- heads of two sizes: those of global blocks are wider, and three quarters of their pairs do not
  turn (`rope_freqs` holds 1e30 for them);
- values that are normalized, without a gain, and scores without a scale;
- a factor for the whole residual stream at the end of each block;
- per-layer embeddings: each token has another short row for each block, which passes a gate that
  the residual stream opens (as in Gemma 3n);
- blocks that share: the last ones store no keys and values, but use those of the last block of
  their kind, local or global, that does. For tokens without logits they need not run.

Global blocks of 31B have no `attn_v`: their values are their keys before the norm.
"""

from __future__ import annotations

import math

from ..architecture import HuggingFace
from ..blocks import geglu
from ..hparams import Block
from ..rope import Rope
from . import gemma3

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..forward import Forward, Rows
    from ..interfaces import Hparams, Keys, Model

BASE = gemma3.ARCHITECTURE
LOCAL_ROPE_BASE = 10000.0
MAX_DIVISOR = 1e31  # of a frequency; published are 1 and 1e30


def layers(m: Model, f: Forward) -> Rows:
    h = m.hparams
    x = f.embed(m.weights.token_embd, math.sqrt(h.n_embd))
    own = [per_layer_rows(m, f, x)] if h.n_ple else []  # rows of all blocks
    for i, w in enumerate(m.weights.layers):
        rope, head_dim = "local" if h.window_of(i) else "global", h.block(i).head_dim
        y = f.rmsnorm(x, w.attn_norm)
        if h.kv_layers[i] != i:
            q = f.linear(y, w.attn_q)
        else:
            if w.attn_v:
                q, k, v = f.linears(y, w.attn_q, w.attn_k, w.attn_v)
            else:
                q, k = f.linears(y, w.attn_q, w.attn_k)
                v = f.columns(k, 0, k.n, "attn_v")
            f.rmsnorm_heads(k, w.attn_k_norm, head_dim)
            f.rope(k, rope, True, head_dim)
            f.rmsnorm_heads(v, None, head_dim)
            f.store(i, k, v)
        f.rmsnorm_heads(q, w.attn_q_norm, head_dim)
        f.rope(q, rope, True, head_dim)
        x, q, *own = f.needed(i, x, q, *own)
        o = f.linear(f.attention(i, q, h.window_of(i)), w.attn_output)
        f.add(x, f.rmsnorm(o, w.post_attention_norm))
        o = geglu(f, w, f.rmsnorm(x, w.ffn_norm))
        f.add(x, f.rmsnorm(o, w.post_ffw_norm))
        for rows in own:
            gate = f.linear(x, w.inp_gate)
            o = f.gelu_mul(gate, f.columns(rows, i * h.n_ple, h.n_ple, "own rows"))
            f.add(x, f.rmsnorm(f.linear(o, w.proj), w.post_norm))
        if w.layer_output_scale:
            f.scale(x, w.layer_output_scale[0])
    return x


def per_layer_rows(m: Model, f: Forward, x: Rows) -> Rows:
    """Return a row of n_ple elements for each block and token, [n_tok, n_layer * n_ple]: half of
    its variance from a table, half from the embedding x.
    """
    w, h = m.weights, m.hparams
    y = f.linear(x, w.per_layer_model_proj)
    f.scale(y, 1.0 / math.sqrt(h.n_embd))
    f.rmsnorm_heads(y, w.per_layer_proj_norm, h.n_ple)
    f.add(y, f.embed(w.per_layer_token_embd, math.sqrt(h.n_ple), "per-layer embedding"))
    f.scale(y, math.sqrt(0.5))
    return y


def rules(h: Hparams, keys: Keys) -> None:
    n, maximum = h.n_layer, keys.MAX_CONTEXT
    is_local = keys.bools("attention.sliding_window_pattern")
    window = keys.int("attention.sliding_window", 1, maximum)
    h.windows = [window if local else 0 for local in is_local]
    h.scale, h.final_cap = 1.0, keys.cap("final_logit_softcapping")
    h.n_ple = keys.int("embedding_length_per_layer_input", 0, keys.MAX_WIDTH, 0)
    read_rope(h, keys, all(is_local))
    n_head_kv = keys.ints("attention.head_count_kv", 1, h.n_head, h.n_head)
    n_ff = keys.ints("feed_forward_length", 1, keys.MAX_WIDTH)
    head_dim = keys.int("attention.key_length_swa", 2, keys.MAX_HEAD_DIM)
    if head_dim % 2 or h.n_rot_local > head_dim:
        raise keys.data_error(
            "attention.key_length_swa",
            f"{head_dim} is not an even number of at least rope.dimension_count_swa",
        )
    if keys.int("attention.value_length_swa", 2, keys.MAX_HEAD_DIM, head_dim) != head_dim:
        raise keys.unsupported_error("attention.value_length_swa other than key_length_swa")
    for i in range(n):
        if h.n_head % n_head_kv[i]:
            raise keys.data_error(
                "attention.head_count_kv",
                f"{n_head_kv[i]} of block {i} does not divide head_count {h.n_head}",
            )
    h.blocks = [
        Block(h, n_ff[i], n_head_kv[i], head_dim if is_local[i] else h.head_dim) for i in range(n)
    ]
    share(h, keys, is_local)


def read_rope(h: Hparams, keys: Keys, all_local: bool) -> None:
    """Local blocks turn by a base of their own, never scaled. Global ones need `rope_freqs`."""
    if h.rope.kind not in ("none", "linear"):
        raise keys.unsupported_error(f"rope.scaling.type {h.rope.kind}")
    h.rope.max_divisor = MAX_DIVISOR
    if not all_local:
        h.rope.divisors, h.rope.tensors = "rope_freqs", ("rope_freqs",)
    h.rope_local = Rope(keys.float("rope.freq_base_swa", 0.0, 1e12, LOCAL_ROPE_BASE))
    h.n_rot_local = keys.int("rope.dimension_count_swa", 2, keys.MAX_HEAD_DIM, h.n_rot)
    if h.n_rot_local % 2:
        raise keys.data_error("rope.dimension_count_swa", f"{h.n_rot_local} is odd")


def share(h: Hparams, keys: Keys, is_local: list[bool]) -> None:
    """Set the block whose keys and values each block uses: of the last ones, the last block of
    their kind and of their heads that stores some.
    """
    assert h.blocks is not None
    first = h.n_layer - keys.int("attention.shared_kv_layers", 0, h.n_layer - 1, 0)
    for i in range(first, h.n_layer):
        known = [j for j in range(first) if is_local[j] == is_local[i]]
        if not known or h.blocks[known[-1]].n_head_kv != h.blocks[i].n_head_kv:
            raise keys.unsupported_error(
                f"attention.shared_kv_layers {h.n_layer - first}: block {i} has none to share with"
            )
        h.kv_layers[i] = known[-1]


def may_lack(h: Hparams, i: int) -> tuple[str, ...]:
    """Tensors that block i may lack. Of a block that shares, files may have unused ones."""
    any_block = ("layer_output_scale",) if h.n_ple else ("layer_output_scale", "post_norm")
    if h.kv_layers[i] != i:
        return *any_block, "attn_k", "attn_v", "attn_k_norm"
    return any_block if h.window_of(i) else (*any_block, "attn_v")


ARCHITECTURE = BASE._replace(
    name="gemma4",
    layers=layers,
    rules=rules,
    varies=("feed_forward_length", "attention.head_count_kv"),
    may_lack=may_lack,
    globals={
        "per_layer_token_embd": ("n_ple_all", "n_vocab"),
        "per_layer_model_proj": ("n_embd", "n_ple_all"),
        "per_layer_proj_norm": ("n_ple",),
    },
    tensors={
        **BASE.tensors,
        "inp_gate": ("n_embd", "n_ple"),
        "proj": ("n_ple", "n_embd"),
        "post_norm": ("n_embd",),
        "layer_output_scale": ("one",),
    },
    # gguf-convert does not read these folders; names are those of transformers
    hugging_face=HuggingFace(
        models={},
        names={
            **BASE.hugging_face.names,
            "inp_gate": "per_layer_input_gate",
            "proj": "per_layer_projection",
            "post_norm": "post_per_layer_input_norm",
            "layer_output_scale": "layer_scalar",
        },
        activations=BASE.hugging_face.activations,
    ),
)
