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

from ...limits import MAX_HEAD_DIM, MAX_WIDTH
from ..architecture import HuggingFace
from ..blocks import geglu
from ..hparams import Block
from ..rope import Rope
from . import gemma3

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..forward import Forward, Rows
    from ..interfaces import Config, Hparams, Keys, Model, Sizes

BASE = gemma3.ARCHITECTURE
LOCAL_ROPE_BASE = 10000.0
PERIOD = 6
MAX_DIVISOR = 1e31  # of a frequency; published are 1 and 1e30
MARKS = ("channel", "tool_call", "tool_response")  # of parts of an answer


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


def stored_local(c: Config) -> list[bool]:
    """Whether each layer is local; the last one is not."""
    kinds = c.get("layer_types", list)
    if kinds is None:
        return [i % PERIOD != PERIOD - 1 for i in range(c.n_layer - 1)] + [False]
    if len(kinds) != c.n_layer or not {"sliding_attention", "full_attention"} >= set(
        map(str, kinds)
    ):
        raise c.data_error(
            "layer_types", f"is not sliding_attention or full_attention, {c.n_layer} times"
        )
    if kinds[-1] != "full_attention":
        raise c.unsupported_error("layer_types: the last layer is local")
    return [kind == "sliding_attention" for kind in kinds]


def stored_heads(c: Config, i: int) -> tuple[int, int]:
    """Elements of a head, and heads of keys and values, of layer i: from per_layer_config, which
    transformers writes, else from the keys of published folders.
    """
    head_dim, n_head_kv = c.int("head_dim"), c.n_head_kv
    layers = c.get("per_layer_config", dict)
    if layers is None:
        if stored_local(c)[i]:
            return head_dim, n_head_kv
        if c.flag("attention_k_eq_v"):
            n_head_kv = c.int("num_global_key_value_heads", n_head_kv)
        return c.int("global_head_dim"), n_head_kv
    own = layers.get(str(i), {})
    if not isinstance(own, dict) or not {"head_dim", "num_key_value_heads"} >= own.keys():
        raise c.unsupported_error(
            f"per_layer_config: layer {i}: other than head_dim and num_key_value_heads"
        )
    head_dim, n_head_kv = (
        own.get("head_dim", head_dim),
        own.get("num_key_value_heads", n_head_kv),
    )
    for n, maximum in ((head_dim, MAX_HEAD_DIM), (n_head_kv, c.n_head)):
        if type(n) is not int or not 1 <= n <= maximum:
            raise c.data_error(
                f"per_layer_config: layer {i}", f"a number not within 1 to {maximum}"
            )
    return head_dim, n_head_kv


def first_sharing(c: Config) -> int:
    """Return the first of the layers that use keys and values of others."""
    n = c.int("num_kv_shared_layers", 0, 0)
    if n >= c.n_layer:
        raise c.data_error("num_kv_shared_layers", f"{n} of {c.n_layer} layers")
    return c.n_layer - n


def stored_block(c: Config, i: int) -> Sizes:
    is_wide = c.flag("use_double_wide_mlp") and i >= first_sharing(c)
    head_dim, n_head_kv = stored_heads(c, i)
    return Block(c, c.n_ff * (2 if is_wide else 1), n_head_kv, head_dim)


def lacks(c: Config, i: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Published folders have keys and values of layers that share, which nothing uses."""
    absent: tuple[str, ...] = () if c.n_ple else ("post_norm",)
    if c.flag("attention_k_eq_v") and not stored_local(c)[i]:
        absent += ("attn_v",)
    if i < first_sharing(c):
        return absent, ("layer_output_scale",)
    return absent, ("layer_output_scale", "attn_k", "attn_v", "attn_k_norm")


def refuse(c: Config) -> None:
    """UnsupportedError for experts, and for layers that a GGUF cannot describe."""
    if c.flag("enable_moe_block") or c.int("num_experts", 0, 0):
        raise c.unsupported_error("enable_moe_block: a mixture of experts")
    if c.n_ple and c.int("vocab_size_per_layer_input", c.n_vocab) != c.n_vocab:
        raise c.unsupported_error("vocab_size_per_layer_input other than vocab_size")
    is_local, first = stored_local(c), first_sharing(c)
    heads = [stored_heads(c, i) for i in range(c.n_layer)]
    sizes = {(local, head_dim) for local, (head_dim, _) in zip(is_local, heads)}
    if len(sizes) > len(set(is_local)):
        raise c.unsupported_error("per_layer_config: head_dim differs between layers of one kind")
    for i, (head_dim, n_head_kv) in enumerate(heads):
        if c.n_head % n_head_kv or head_dim % 2:
            raise c.data_error(
                "head_dim" if head_dim % 2 else "num_key_value_heads",
                f"{head_dim if head_dim % 2 else n_head_kv} of layer {i} does not fit",
            )
        known = [j for j in range(first) if is_local[j] == is_local[i]]
        if i >= first and (not known or heads[known[-1]][1] != n_head_kv):
            raise c.unsupported_error(f"num_kv_shared_layers: layer {i} has none to share with")
    if c.flag("use_double_wide_mlp") and 2 * c.n_ff > MAX_WIDTH:
        raise c.data_error("intermediate_size", f"twice {c.n_ff} is more than {MAX_WIDTH}")


def hugging_face_keys(c: Config) -> dict[str, tuple[str, Any]]:
    is_local, heads = stored_local(c), [stored_heads(c, i) for i in range(c.n_layer)]
    n_ff = [stored_block(c, i).n_ff for i in range(c.n_layer)]
    n_head_kv = [n for _, n in heads]
    local_dim = next((d for local, (d, _) in zip(is_local, heads) if local), c.head_dim)
    out: dict[str, tuple[str, Any]] = {
        "attention.sliding_window": ("u32", c.int("sliding_window")),
        "attention.sliding_window_pattern": ("[bool]", is_local),
        "attention.shared_kv_layers": ("u32", c.n_layer - first_sharing(c)),
        "attention.key_length_swa": ("u32", local_dim),
        "attention.value_length_swa": ("u32", local_dim),
        "rope.dimension_count_swa": ("u32", local_dim),
        "embedding_length_per_layer_input": ("u32", c.n_ple),
    }
    for key, values in (("feed_forward_length", n_ff), ("attention.head_count_kv", n_head_kv)):
        out[key] = ("[i32]", values) if len(set(values)) > 1 else ("u32", values[0])
    if c.get("final_logit_softcapping", (int, float)) is not None:
        out["final_logit_softcapping"] = "f32", c.float("final_logit_softcapping")
    return out


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
    hugging_face=HuggingFace(
        models={
            "gemma4_text": ("Gemma4ForCausalLM",),
            "gemma4": ("Gemma4ForConditionalGeneration", "Gemma4ForCausalLM"),
        },
        globals={
            "per_layer_token_embd": "embed_tokens_per_layer",
            "per_layer_model_proj": "per_layer_model_projection",
            "per_layer_proj_norm": "per_layer_projection_norm",
        },
        names={
            **BASE.hugging_face.names,
            "inp_gate": "per_layer_input_gate",
            "proj": "per_layer_projection",
            "post_norm": "post_per_layer_input_norm",
            "layer_output_scale": "layer_scalar",
        },
        activations=BASE.hugging_face.activations,
        defaults={
            "head_dim": 256,
            "global_head_dim": 512,
            "num_key_value_heads": 4,
            "tie_word_embeddings": True,
            "sliding_window": 512,
            "hidden_size_per_layer_input": 256,
            "max_position_embeddings": 131072,
            "rope_parameters": {
                "sliding_attention": {"rope_theta": LOCAL_ROPE_BASE},
                "full_attention": {
                    "rope_type": "proportional",
                    "partial_rotary_factor": 0.25,
                    "rope_theta": 1e6,
                },
            },
        },
        ropes=("proportional",),
        local_rope=True,
        space_prefix=False,
        merges_model="gemma4",
        visible=(*map("<|{}>".format, MARKS), *map("<{}|>".format, MARKS), '<|"|>'),
        head_dim=lambda c: stored_heads(c, c.n_layer - 1)[0],
        block=stored_block,
        lacks=lacks,
        refuse=refuse,
        keys=hugging_face_keys,
    ),
)
