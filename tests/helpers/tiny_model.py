"""Small GGUF models of pseudo-random weights, the same bytes on every machine.

    python3 tests/helpers/tiny_model.py OUT.gguf [--arch llama|gemma|...]
                                         [--type f32|f16|bf16|q8_0|q4_0|q4_1] [--seed N] [--vocab N]

Only the standard library; no number depends on anything but random.Random(integer).random(), whose bits Python guarantees
for every version, and on IEEE 754 arithmetic rounded once to f32 (llama3's rope factors also take a power, in f64, where
libraries may differ in a last bit that the rounding drops). What is written follows the files that llama.cpp's
converter makes of Hugging Face checkpoints, and this is what such a file means:

All architectures.  Matrices are stored [n_in, n_out] in GGUF order: n_out rows of n_in, y = W x. Norms and rope factors are F32
in every file. No `output.weight`: the head is `token_embd.weight`. Missing keys: head_count_kv = head_count, key_length
= value_length = embedding_length / head_count, rope.dimension_count = key_length, rope.freq_base = 10000. Query head h
uses key-value head h / (head_count / head_count_kv). RMS norm: x / sqrt(mean(x^2) + epsilon) * weight.
    Rope: pair i of a head turns by pos * base^(-2 i / dimension_count) * scale / factor[i].
    `rope.scaling.type` "linear" with `rope.scaling.factor` f: scale = 1 / f, else 1. `rope_freqs.weight`, f32
    [dimension_count / 2], holds factor[i], else 1: this is how Llama 3.1's scaling is stored, with no key for it. "yarn": lib/sluice/model/rope.py
    names its keys. Long rope: `rope_factors_long.weight` and `rope_factors_short.weight`, f32 [dimension_count / 2], one of them
    is factor[i], and cosines and sines are multiplied by `rope.scaling.attn_factor`.

llama.  Pairs are neighbours (2 i, 2 i + 1): the converter has permuted the rows of attn_q and attn_k for it, so row 2 i + j
    of a head is row j * head_dim / 2 + i of the checkpoint. Scores are scaled by 1 / sqrt(key_length). A block:
    x += attn_output(attention(norm(x, attn_norm)));  x += ffn_down(silu(ffn_gate(h)) * ffn_up(h)), h = norm(x, ffn_norm).
    `attention.sliding_window` w, if there is one: position p sees p - w + 1 to p, in every block (Mistral 7B v0.1).

qwen2, qwen3, phi3.  Llama's block, but pairs are (i, i + dimension_count / 2), rows as in the checkpoint. qwen2 has attn_q.bias, attn_k.bias
    and attn_v.bias, F32; qwen3 attn_q_norm and attn_k_norm, [key_length], on each head before rope. phi3 stores the rows of attn_q,
    attn_k and attn_v as one matrix attn_qkv, those of ffn_gate and ffn_up as one, ffn_up; its window is in every block.

smollm3, granite, mistral3.  Llama's block, pairs and all. smollm3: no rope in blocks 3, 7, ... granite: x begins as
    `embedding_scale` times the row, scores are scaled by `attention.scale`, what attention and feed-forward add is
    multiplied by `residual_scale`, logits are divided by `logit_scale`; `rope.scaling.finetuned` false: no rope at all.
    mistral3: after rope a query is multiplied by 1 + `attention.temperature_scale` ln(1 + floor(pos / n)), n
    `rope.scaling.original_context_length`; with `rope.scaling.yarn_log_multiplier` m cosines and sines are multiplied
    by (0.1 ln factor + 1) / (0.1 m ln factor + 1).

olmo2.  As qwen3, but attn_q_norm and attn_k_norm are for all heads together, [head_count * key_length] and
    [head_count_kv * key_length]; there are no norms before: x += norm(attn_output(attention(x)), post_attention_norm);
    x += norm(ffn_down(silu(ffn_gate(x)) * ffn_up(x)), post_ffw_norm).

gemma.  As gemma3, without norms after, norms on heads, and local blocks. gemma2: as gemma3, without norms on heads; one rope;
    block i is local where i is even; a score s is c * tanh(s / c) with c `attn_logit_softcapping`, else 50, a logit the
    same with `final_logit_softcapping`, else 30; of the published sizes only the 27B (46 blocks) scales by
    1 / sqrt(embedding_length / head_count).

gemma3.  Pairs are (i, i + head_dim / 2), rows as in the checkpoint. Every stored norm already has the 1 added that
    Gemma's own weights leave out: plain RMS norm. x begins as sqrt(embedding_length) * the row of token_embd, the root
    rounded to f32 (a checkpoint run in bfloat16 rounds it to that). attn_q_norm and attn_k_norm, [key_length], are applied
    to each head before rope. Scores are scaled by 1 / sqrt(key_length); of the published sizes only the 27B (62
    blocks) differs, 1 / sqrt(embedding_length / head_count), and no key says so. A block:
    x += norm(attn_output(attention(norm(x, attn_norm))), post_attention_norm);
    x += norm(ffn_down(gelu(ffn_gate(h)) * ffn_up(h)), post_ffw_norm), h = norm(x, ffn_norm), gelu by the tanh formula.
    `attention.sliding_window` w: position p sees p - w + 1 to p, in local blocks. Block i is global where i % n == n - 1;
    n is `attention.sliding_window_pattern` (u32; some writers store an array of bool, true = local), else 6. Without
    the window every block is global. Global blocks turn by rope.freq_base and its scaling, local ones by
    `rope.freq_base_swa`, else 10000, never scaled. `final_logit_softcapping` c, if present and not 0: c * tanh(logit / c).

gemma4.  Gemma 3's block, and norms hold no 1. Heads of global blocks have `key_length`, those of local ones
    `key_length_swa`; `sliding_window_pattern`, array of bool, is true for local blocks. `rope_freqs` holds 1 for pairs of
    global blocks that turn, 1e30 for others. Values are normalized head by head, without a gain; scores have no scale;
    without attn_v values are the keys before their norm. The last `shared_kv_layers` blocks use keys and values of the
    last block of their kind before them. The row of a block is ((proj x / sqrt(n)) normalized + sqrt(p) row of
    per_layer_token_embd) / sqrt 2, x the scaled embedding, proj per_layer_model_proj, p its width; after the
    feed-forward part x += norm(proj(gelu(inp_gate x) * row), post_norm); then x *= layer_output_scale.

lfm2.  Llama's block with pairs (i, i + head_dim / 2) and attn_q_norm, attn_k_norm as in qwen3, where `head_count_kv`, an
    array, is not 0. Elsewhere, instead of attention, out_proj(c * y), (b, c, x) thirds of in_proj(norm(x)), y_t = sum over
    j < L of conv[j] (b * x)_{t - L + 1 + j}, L `shortconv.l_cache`, conv F32 [L, n]. The last norm is token_embd_norm.

qwen35.  Qwen 3's block with post_attention_norm for ffn_norm. In block i where (i + 1) % `full_attention_interval` is 0,
    rows of attn_q are, head by head, those of the query and then as many of a gate; what attention gives is multiplied by
    sigmoid(gate). Elsewhere a delta net: qkv = silu(sum over j < L of ssm_conv1d[j] (attn_qkv h)_{t - L + 1 + j}); q and
    k of each of `ssm.group_count` heads divided by their length, q by sqrt(`ssm.state_size`), too; beta = sigmoid(ssm_beta h),
    g = ssm_a softplus(ssm_alpha h + ssm_dt); in head j of `ssm.time_step_rank`, with q and k of head j % group_count:
    S = e^g S; S += k (outer) beta (v - S^T k); o = S^T q. Then ssm_out(norm(o, ssm_norm) * silu(attn_gate h)).

A type that a row does not fit (32 weights to a block) gives way to F16 for that matrix, as in llama.cpp's quantiser.
"""

import array
import math
import random
import struct
import sys
import zlib

from gguf_writer import write_gguf
from tiny_vocab import vocabulary

TYPES = {
    "f32": 0,
    "f16": 1,
    "q4_0": 2,
    "q4_1": 3,
    "q8_0": 8,
    "bf16": 30,
}  # the numbers of ggml_type
FILE_TYPES = {"f32": 0, "f16": 1, "q4_0": 2, "q4_1": 3, "q8_0": 7, "bf16": 32}  # general.file_type
BLOCK = 32

WITH_STATES = ("lfm2", "qwen35")  # architectures with states in some blocks

LLAMA = {
    "arch": "llama",
    "n_vocab": 768,
    "n_ctx": 512,
    "n_embd": 128,
    "n_layer": 4,
    "n_ff": 384,
    "n_head": 4,
    "n_head_kv": 2,
    "head_dim": 32,
    "tied": True,
    "eps": 1e-5,
    "rope_base": 10000.0,
    "rope_scaling": None,
    "window": 0,
}
GEMMA3 = {
    "arch": "gemma3",
    "n_vocab": 768,
    "n_ctx": 512,
    "n_embd": 96,
    "n_layer": 7,
    "n_ff": 256,
    "n_head": 4,
    "n_head_kv": 2,
    "head_dim": 32,
    "tied": True,
    "eps": 1e-6,
    "rope_base": 1e6,
    "rope_base_local": 10000.0,
    "rope_scaling": None,
    "window": 64,
    "pattern": None,
    "final_cap": 0.0,
}
GEMMA = {**LLAMA, "arch": "gemma", "eps": 1e-6, "head_dim": 48}
GEMMA2 = {**GEMMA, "arch": "gemma2", "window": 64, "attn_cap": 4.0, "final_cap": 10.0}
GEMMA4 = {
    **{key: GEMMA3[key] for key in GEMMA3 if key not in ("rope_scaling",)},
    "arch": "gemma4",
    "rope_scaling": None,
    "n_head_kv": 1,
    "head_dim": 32,
    "head_dim_global": 64,
    "n_head_kv_global": None,
    "window": 24,
    "pattern": None,
    "local": None,
    "n_shared": 2,
    "wide": True,
    "n_ple": 32,
    "turning": 0.25,
    "layer_scale": True,
    "k_eq_v": False,
    "unused_kv": False,
    "final_cap": 30.0,
}
DEFAULTS = {
    "llama": LLAMA,
    "gemma": GEMMA,
    "gemma2": GEMMA2,
    "gemma3": GEMMA3,
    "gemma4": GEMMA4,
    "olmo2": {**LLAMA, "arch": "olmo2", "rope_base": 5e5, "eps": 1e-6},
    "phi3": {**LLAMA, "arch": "phi3", "n_rot": None},
    "qwen2": {**LLAMA, "arch": "qwen2", "rope_base": 1e6, "eps": 1e-6},
    "qwen3": {**LLAMA, "arch": "qwen3", "rope_base": 1e6, "eps": 1e-6, "head_dim": 48},
    "smollm3": {**LLAMA, "arch": "smollm3", "rope_base": 2e6, "eps": 1e-6},
    "granite": {
        **LLAMA,
        "arch": "granite",
        "logit_scale": 8.0,
        "residual_scale": 0.22,
        "embedding_scale": 12.0,
        "scale": 0.0156,
        "rope": True,
    },
    "lfm2": {**LLAMA, "arch": "lfm2", "rope_base": 1e6, "n_tap": 3, "attention": None},
    "qwen35": {
        **LLAMA,
        "arch": "qwen35",
        "rope_base": 1e7,
        "eps": 1e-6,
        "head_dim": 64,
        "n_rot": None,
        "interval": 2,
        "n_key_heads": 2,
        "n_value_heads": 4,
        "state_dim": 32,
        "n_tap": 4,
        "n_unused": 0,
    },
    "mistral3": {**LLAMA, "arch": "mistral3", "rope_base": 1e6, "head_dim": 48, "sharpening": 0.1},
}
FAMILY = {
    "gemma": "gemma3",
    "gemma2": "gemma3",
    "gemma3": "gemma3",
    "gemma4": "gemma3",
}  # whose vocabulary; else llama's


def complete(config):
    """`config` with every key it leaves out taken from the architecture's default; KeyError naming a key that means nothing."""
    full = dict(DEFAULTS[config.get("arch", "llama")], type="f32", seed=1)
    for key in config:
        full[key]  # a misspelt key must not pass for a default
    return {**full, **config}


# Weights


def shapes(c):
    """Dict: tensor name -> shape in GGUF order, of the complete config `c`, in file order."""
    q, kv, n = c["n_head"] * c["head_dim"], c["n_head_kv"] * c["head_dim"], c["n_embd"]
    out = {"token_embd.weight": (n, c["n_vocab"]), "output_norm.weight": (n,)}
    if not c["tied"]:
        out["output.weight"] = (n, c["n_vocab"])
    if (c["rope_scaling"] or {}).get("type") == "llama3":
        out["rope_freqs.weight"] = (c["head_dim"] // 2,)
    if (c["rope_scaling"] or {}).get("type") == "longrope":
        out["rope_factors_long.weight"] = out["rope_factors_short.weight"] = (n_rot(c) // 2,)
    if c["arch"] == "gemma4":
        return out | gemma4_shapes(c)
    if c["arch"] == "lfm2":
        out["token_embd_norm.weight"] = out.pop("output_norm.weight")
    for i in range(c["n_layer"]):
        block = {
            "attn_norm": (n,),
            "attn_q": (n, q),
            "attn_k": (n, kv),
            "attn_v": (n, kv),
            "attn_output": (q, n),
            "ffn_norm": (n,),
            "ffn_gate": (n, c["n_ff"]),
            "ffn_up": (n, c["n_ff"]),
            "ffn_down": (c["n_ff"], n),
        }
        if c["arch"] == "qwen35":
            names = qwen35_block(c, i)
            out.update(
                (f"blk.{i}.{n}" + ("" if "." in n or n == "ssm_a" else ".weight"), shape)
                for n, shape in names.items()
            )
            continue
        if c["arch"] == "phi3":
            block = {
                "attn_norm": (n,),
                "attn_qkv": (n, q + 2 * kv),
                "attn_output": (q, n),
                "ffn_norm": (n,),
                "ffn_up": (n, 2 * c["n_ff"]),
                "ffn_down": (c["n_ff"], n),
            }
        if c["arch"] == "lfm2" and not has_attention(c)[i]:
            for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
                del block[name]
            block["shortconv.in_proj"] = n, 3 * n
            block["shortconv.conv"] = c["n_tap"], n
            block["shortconv.out_proj"] = n, n
        elif c["arch"] in ("gemma3", "qwen3", "lfm2"):
            block.update(attn_q_norm=(c["head_dim"],), attn_k_norm=(c["head_dim"],))
        if c["arch"] == "olmo2":
            del block["attn_norm"], block["ffn_norm"]
            block.update(attn_q_norm=(q,), attn_k_norm=(kv,))
        if c["arch"] in ("gemma2", "gemma3", "olmo2"):
            block.update(post_attention_norm=(n,), post_ffw_norm=(n,))
        if c["arch"] == "qwen2":
            out.update(
                (f"blk.{i}.attn_{x}.bias", (size,)) for x, size in (("q", q), ("k", kv), ("v", kv))
            )
        out.update((f"blk.{i}.{name}.weight", shape) for name, shape in block.items())
    for i in range(c.get("n_unused", 0)):
        out[f"blk.{c['n_layer'] + i}.nextn.eh_proj.weight"] = n, n
    return out


def qwen35_block(c, i):
    """The tensors of block i of a qwen35."""
    n, d, n_head = c["n_embd"], c["head_dim"], c["n_head"]
    if has_attention(c)[i]:
        block = {
            "attn_q": (n, 2 * n_head * d),
            "attn_k": (n, c["n_head_kv"] * d),
            "attn_v": (n, c["n_head_kv"] * d),
            "attn_q_norm": (d,),
            "attn_k_norm": (d,),
            "attn_output": (n_head * d, n),
        }
    else:
        heads, dim = c["n_value_heads"], c["state_dim"]
        mixed = (2 * c["n_key_heads"] + heads) * dim
        block = {
            "attn_qkv": (n, mixed),
            "attn_gate": (n, heads * dim),
            "ssm_conv1d": (c["n_tap"], mixed),
            "ssm_beta": (n, heads),
            "ssm_alpha": (n, heads),
            "ssm_dt.bias": (heads,),
            "ssm_a": (heads,),
            "ssm_norm": (dim,),
            "ssm_out": (heads * dim, n),
        }
    return {
        "attn_norm": (n,),
        **block,
        "post_attention_norm": (n,),
        "ffn_gate": (n, c["n_ff"]),
        "ffn_up": (n, c["n_ff"]),
        "ffn_down": (c["n_ff"], n),
    }


def has_attention(c):
    """Whether each block has attention: of an lfm2, by default every second one."""
    if c["arch"] == "qwen35":
        return [(i + 1) % c["interval"] == 0 for i in range(c["n_layer"])]
    return c["attention"] or [i % 2 == 1 for i in range(c["n_layer"])]


def local_blocks(c):
    """Whether each block of a gemma4 is local: the default is two local ones to a global one."""
    return c["local"] or [i % 3 != 2 for i in range(c["n_layer"])]


def gemma4_shapes(c):
    """The tensors of a gemma4 but for those of every family, as `shapes`."""
    n, p, n_layer = c["n_embd"], c["n_ple"], c["n_layer"]
    out = {"rope_freqs.weight": (c["head_dim_global"] // 2,)}
    if p:
        out["per_layer_token_embd.weight"] = (p * n_layer, c["n_vocab"])
        out["per_layer_model_proj.weight"] = (n, p * n_layer)
        out["per_layer_proj_norm.weight"] = (p,)
    for i, local in enumerate(local_blocks(c)):
        shares = i >= n_layer - c["n_shared"]
        dim = c["head_dim"] if local else c["head_dim_global"]
        n_kv = (c["n_head_kv"] if local else c["n_head_kv_global"] or c["n_head_kv"]) * dim
        n_ff = c["n_ff"] * (2 if c["wide"] and shares else 1)
        block = {"attn_norm": (n,), "attn_q": (n, c["n_head"] * dim), "attn_q_norm": (dim,)}
        if not shares or c["unused_kv"]:
            block.update(attn_k=(n, n_kv), attn_k_norm=(dim,))
            if local or not c["k_eq_v"]:
                block["attn_v"] = (n, n_kv)
        block.update(
            attn_output=(c["n_head"] * dim, n),
            post_attention_norm=(n,),
            ffn_norm=(n,),
            ffn_gate=(n, n_ff),
            ffn_up=(n, n_ff),
            ffn_down=(n_ff, n),
            post_ffw_norm=(n,),
        )
        if p:
            block.update(inp_gate=(n, p), proj=(p, n), post_norm=(n,))
        if c["layer_scale"]:
            block["layer_output_scale"] = (1,)
        out.update((f"blk.{i}.{name}.weight", shape) for name, shape in block.items())
    return out


def weights(c, name, shape):
    """array("f") of the weights of one tensor, uniform. Its numbers depend on the seed, its name and its shape alone.

    The spreads keep activations near 1, let attention choose (score deviation about 1.5), let the blocks outweigh the
    embedding in the residual sum, and make logits of deviation about 3: far from ties, so an argmax means something.
    """
    if name == "rope_freqs.weight" and c["arch"] == "gemma4":
        n_turning = int(c["turning"] * shape[0])
        return array.array("f", [1.0] * n_turning + [1e30] * (shape[0] - n_turning))
    if name == "rope_freqs.weight":
        return array.array("f", llama3_factors(c))
    if name.startswith("rope_factors_"):
        last = shape[0] - 1 or 1
        return array.array(
            "f", [1 + (5 if "long" in name else 0.5) * (i / last) ** 2 for i in range(shape[0])]
        )
    draw = random.Random(c["seed"] << 32 | zlib.crc32(name.encode())).random
    n = math.prod(shape)
    if name.endswith(".ssm_a"):
        return array.array("f", [-4 * draw() ** 2 - 0.01 for _ in range(n)])
    if name.endswith(".bias"):
        return array.array("f", [draw() - 0.5 for _ in range(n)])
    if c["arch"] == "gemma4" and name.split(".")[-2] == "attn_q_norm":
        return array.array("f", [(0.75 + 0.5 * draw()) / 3 for _ in range(n)])  # no other scale
    if len(shape) == 1:  # norms: around 1, and exact after 1 is subtracted
        return array.array("f", [0.75 + 0.5 * draw() for _ in range(n)])
    kind = name.split(".")[-2]
    gain = {
        "token_embd": 3.0 if c["tied"] else math.sqrt(shape[0]),
        "output": 3.0,
        "attn_q": 1.25,
        "attn_k": 1.25,
        "attn_qkv": 1.25,
        "ffn_gate": 1.5,
        "ffn_up": 1.5,
        "ffn_down": 1.5,
        "per_layer_token_embd": math.sqrt(shape[0] / max(1, c.get("n_ple", 0))),
        "inp_gate": 1.5,
        "in_proj": 1.5,
        "proj": 1.5,
    }.get(kind, 1.0)
    reach = gain * math.sqrt(3 / shape[0])
    return array.array("f", [(2 * draw() - 1) * reach for _ in range(n)])


def llama3_factors(c):
    """The divisors of Llama 3.1's rope frequencies, head_dim / 2 of them: 1 for short waves, `factor` for waves longer than
    the original context, and between them a blend of the frequencies that is linear in the number of turns.
    """
    s = c["rope_scaling"]
    low, high, out = s["low_freq_factor"], s["high_freq_factor"], []
    for i in range(c["head_dim"] // 2):
        turns = s["original_context_length"] / (
            2 * math.pi * c["rope_base"] ** (2 * i / c["head_dim"])
        )
        share = min(1.0, max(0.0, (turns - low) / (high - low)))
        out.append(1 / ((1 - share) / s["factor"] + share))
    return out


# Quantisation: bit for bit what gguf.quants does, which works in f32. A result of + - * / on f32 values, computed in
# f64 and then rounded to f32, is the f32 result (Figueroa 1995, "When is double rounding innocuous?").


def encode(values, type, n_row):
    """(type number, bytes) of array("f") `values` in rows of `n_row`, as `type`, or as f16 where a row is not whole blocks."""
    if type.startswith("q") and n_row % BLOCK:
        type = "f16"
    if type == "f32":
        data = struct.pack(f"<{len(values)}f", *values)
    elif type == "f16":
        data = struct.pack(f"<{len(values)}e", *values)
    elif type == "bf16":
        data = struct.pack(
            f"<{len(values)}H", *[(u + 0x7FFF + (u >> 16 & 1)) >> 16 for u in _bits(values)]
        )
    else:
        quantize = {"q8_0": _q8_0, "q4_0": _q4_0, "q4_1": _q4_1}[type]
        data = b"".join(quantize(values[at : at + BLOCK]) for at in range(0, len(values), BLOCK))
    return TYPES[type], data


def _bits(values):
    return struct.unpack(f"<{len(values)}I", struct.pack(f"<{len(values)}f", *values))


def _f32(values):
    return array.array("f", values)


def _inverse(d):
    return _f32([1 / d if d else 0.0])[0]


def _q8_0(block):
    d = _f32([max(map(abs, block)) / 127])[0]
    inverse = _inverse(d)
    q = [
        int(v + 0.5) if v >= 0 else -int(0.5 - v) for v in _f32([v * inverse for v in block])
    ]  # half away from zero
    return struct.pack("<e32b", d, *q)


def _nibbles(q):
    return bytes(q[i] | q[i + 16] << 4 for i in range(16))


def _q4_0(block):
    d = _f32([max(block, key=abs) / -8])[0]  # the first largest: -8 is there, +8 is not
    inverse = _inverse(d)
    q = [min(15, int(v)) for v in _f32([v + 8.5 for v in _f32([v * inverse for v in block])])]
    return struct.pack("<e", d) + _nibbles(q)


def _q4_1(block):
    least = min(block)
    d = _f32([_f32([max(block) - least])[0] / 15])[0]
    inverse = _inverse(d)
    scaled = _f32([v * inverse for v in _f32([v - least for v in block])])
    return struct.pack("<ee", d, least) + _nibbles(
        [min(15, int(v)) for v in _f32([v + 0.5 for v in scaled])]
    )


# Files


def metadata(c):
    """Dict: key -> (kind, value), of the complete config `c`."""
    arch = c["arch"]
    family = FAMILY.get(arch, "llama")
    pieces, scores, types = vocabulary(family, c["n_vocab"])
    special = {
        "llama": dict(bos=1, eos=2, unknown=0),
        "gemma3": dict(bos=2, eos=1, unknown=3, padding=0, eot=5),
    }[family]
    numbers = {
        "vocab_size": ("u32", c["n_vocab"]),
        "context_length": ("u32", c["n_ctx"]),
        "embedding_length": ("u32", c["n_embd"]),
        "block_count": ("u32", c["n_layer"]),
        "feed_forward_length": ("u32", c["n_ff"]),
        "attention.head_count": ("u32", c["n_head"]),
        "attention.head_count_kv": ("u32", c["n_head_kv"]),
        "attention.key_length": ("u32", c["head_dim"]),
        "attention.value_length": ("u32", c["head_dim"]),
        "attention.layer_norm_rms_epsilon": ("f32", c["eps"]),
        "rope.freq_base": ("f32", c["rope_base"]),
    }
    if arch in ("qwen2", "phi3", "olmo2"):  # their converters write no width of heads
        del numbers["attention.key_length"], numbers["attention.value_length"]
    for name, key in (
        ("logit_scale", "logit_scale"),
        ("residual_scale", "residual_scale"),
        ("embedding_scale", "embedding_scale"),
        ("scale", "attention.scale"),
        ("sharpening", "attention.temperature_scale"),
    ):
        if c.get(name):
            numbers[key] = ("f32", c[name])
    if not c.get("rope", True):
        numbers["rope.scaling.finetuned"] = ("bool", False)
    if arch in ("llama", "phi3", "smollm3", "granite", "mistral3"):
        numbers["rope.dimension_count"] = ("u32", n_rot(c))
    if c["window"] or arch == "phi3":
        numbers["attention.sliding_window"] = ("u32", c["window"])
    if c.get("pattern"):
        numbers["attention.sliding_window_pattern"] = ("u32", c["pattern"])
    if c.get("rope_base_local", 10000.0) != 10000.0:
        numbers["rope.freq_base_swa"] = ("f32", c["rope_base_local"])
    for name, key in (
        ("attn_cap", "attn_logit_softcapping"),
        ("final_cap", "final_logit_softcapping"),
    ):
        if c.get(name):
            numbers[key] = ("f32", c[name])
    if arch == "gemma4":
        numbers.update(gemma4_keys(c))
    if arch == "lfm2":
        heads = [c["n_head_kv"] if x else 0 for x in has_attention(c)]
        numbers["attention.head_count_kv"] = ("[i32]", heads)
        numbers["shortconv.l_cache"] = ("u32", c["n_tap"])
    if arch == "qwen35":
        n_pair = (c["n_rot"] or c["head_dim"] // 2) // 2
        sections = [n_pair - 2 * (n_pair // 3), n_pair // 3, n_pair // 3, 0]
        numbers.update(
            {
                "rope.dimension_count": ("u32", 2 * n_pair),
                "rope.dimension_sections": ("[i32]", sections),
                "full_attention_interval": ("u32", c["interval"]),
                "ssm.conv_kernel": ("u32", c["n_tap"]),
                "ssm.state_size": ("u32", c["state_dim"]),
                "ssm.group_count": ("u32", c["n_key_heads"]),
                "ssm.time_step_rank": ("u32", c["n_value_heads"]),
                "ssm.inner_size": ("u32", c["n_value_heads"] * c["state_dim"]),
            }
        )
        if c["n_unused"]:
            numbers["nextn_predict_layers"] = ("u32", c["n_unused"])
            numbers["block_count"] = ("u32", c["n_layer"] + c["n_unused"])
    numbers.update(scaling_keys(c))
    return {
        "general.architecture": ("string", arch),
        "general.type": ("string", "model"),
        "general.name": ("string", "tiny random"),
        "general.file_type": ("u32", FILE_TYPES[c["type"]]),
        "general.quantization_version": ("u32", 2),
        **{f"{arch}.{key}": value for key, value in numbers.items()},
        "tokenizer.ggml.model": ("string", "llama"),
        "tokenizer.ggml.pre": ("string", "default"),
        "tokenizer.ggml.tokens": ("[string]", pieces),
        "tokenizer.ggml.scores": ("[f32]", scores),
        "tokenizer.ggml.token_type": ("[i32]", types),
        **{f"tokenizer.ggml.{name}_token_id": ("u32", id) for name, id in special.items()},
        "tokenizer.ggml.add_bos_token": ("bool", True),
        "tokenizer.ggml.add_eos_token": ("bool", False),
        "tokenizer.ggml.add_space_prefix": ("bool", family == "llama"),
    }


def gemma4_keys(c):
    """The metadata that only a gemma4 has, or that mean something else there."""
    local, first = local_blocks(c), c["n_layer"] - c["n_shared"]
    own = {
        "attention.shared_kv_layers": ("u32", c["n_shared"]),
        "embedding_length_per_layer_input": ("u32", c["n_ple"]),
        "attention.sliding_window_pattern": ("[bool]", local),
        "attention.key_length": ("u32", c["head_dim_global"]),
        "attention.value_length": ("u32", c["head_dim_global"]),
        "attention.key_length_swa": ("u32", c["head_dim"]),
        "attention.value_length_swa": ("u32", c["head_dim"]),
        "rope.dimension_count": ("u32", c["head_dim_global"]),
        "rope.dimension_count_swa": ("u32", c["head_dim"]),
    }
    if c["wide"]:
        own["feed_forward_length"] = (
            "[i32]",
            [c["n_ff"] * (2 if i >= first else 1) for i in range(c["n_layer"])],
        )
    if c["n_head_kv_global"]:
        own["attention.head_count_kv"] = (
            "[i32]",
            [c["n_head_kv"] if x else c["n_head_kv_global"] for x in local],
        )
    return own


def n_rot(c):
    """Elements of a head that turn."""
    return c.get("n_rot") or c["head_dim"]


def scaling_keys(c):
    """The metadata of c["rope_scaling"]; llama3 has none, and the type of longrope is written by few."""
    s = c["rope_scaling"] or {"type": "none"}
    names = {
        "original_context_length": "u32",
        "factor": "f32",
        "attn_factor": "f32",
        "yarn_attn_factor": "f32",
        "yarn_beta_fast": "f32",
        "yarn_beta_slow": "f32",
        "yarn_log_multiplier": "f32",
    }
    out = {
        f"rope.scaling.{key}": (kind, s[key])
        for key, kind in names.items()
        if key in s and s["type"] != "llama3"
    }
    if s["type"] in ("linear", "yarn"):
        out["rope.scaling.type"] = ("string", s["type"])
    return out


def tensors(c):
    """The tensors of the complete config `c`: (name, type number, shape, bytes) each."""
    out = []
    for name, shape in shapes(c).items():
        is_float = len(shape) == 1 or name.split(".")[-2] in (
            "conv",
            "ssm_conv1d",
        )
        type, data = encode(weights(c, name, shape), "f32" if is_float else c["type"], shape[0])
        out.append((name, type, shape, data))
    return out


def write_model(path, **config):
    """Write a model to `path`. `config`: arch, type, seed and any key of its DEFAULTS; the rest is as there."""
    c = complete(config)
    write_gguf(path, metadata(c), tensors(c))


def main(argv):
    import argparse

    parser = argparse.ArgumentParser(description="Write a small model of pseudo-random weights.")
    parser.add_argument("out", metavar="OUT.gguf")
    parser.add_argument("--arch", choices=sorted(DEFAULTS), default="llama")
    parser.add_argument("--type", choices=sorted(TYPES), default="q8_0")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--vocab", type=int, default=768, metavar="N")
    a = parser.parse_args(argv)
    try:
        write_model(a.out, arch=a.arch, type=a.type, seed=a.seed, n_vocab=a.vocab)
    except (OSError, ValueError) as e:
        parser.exit(1, f"tiny_model.py: {e}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
