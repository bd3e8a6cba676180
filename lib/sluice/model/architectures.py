"""The architectures: one function each, that reads like its paper.

`m` is a model.Model, `f` a forward.Forward that has begun a chunk; each returns the hidden states
after the last block that were asked for, Rows [n_last, n_embd]; of other ids that block makes keys
and values alone. What is stored how, in a GGUF file, is said in tests/helpers/tiny_model.py, and
followed by the checks of hparams.py and weights.py: queries and keys of llama are permuted so that
the pairs RoPE turns are neighbours; elsewhere a pair is two elements half a head apart (`half`).
Norm gains of the Gemmas have their 1 added.
"""

import math


def llama(m, f):
    """Touvron et al. 2023, arXiv:2302.13971 (2307.09288 for grouped queries, 2407.21783 for Llama
    3): pre-norm, RoPE, SwiGLU. Mistral, Jiang et al. 2023, arXiv:2310.06825, section 2: with a
    window in every block.
    """
    x = f.embed(m.weights.token_embd)
    for i, w in enumerate(m.weights.layers):
        h = f.rmsnorm(x, w.attn_norm)
        q, k, v = f.linears(h, w.attn_q, w.attn_k, w.attn_v)
        f.rope(q, "global")
        f.rope(k, "global")
        f.store(i, k, v)
        x, q = f.needed(i, x, q)
        o = f.attention(i, q, m.hparams.window_of(i))
        f.add(x, f.linear(o, w.attn_output))
        h = f.rmsnorm(x, w.ffn_norm)
        gate, up = f.linears(h, w.ffn_gate, w.ffn_up)
        f.add(x, f.linear(f.silu_mul(gate, up), w.ffn_down))
    return x


def qwen2(m, f):
    """Qwen Team 2024, arXiv:2407.10671 (2412.15115 for 2.5): Llama's block, with biases on queries,
    keys and values.
    """
    x = f.embed(m.weights.token_embd)
    for i, w in enumerate(m.weights.layers):
        h = f.rmsnorm(x, w.attn_norm)
        q, k, v = f.linears(h, w.attn_q, w.attn_k, w.attn_v)
        f.add_bias(q, w.attn_q_bias)
        f.add_bias(k, w.attn_k_bias)
        f.add_bias(v, w.attn_v_bias)
        f.rope(q, "global", half=True)
        f.rope(k, "global", half=True)
        f.store(i, k, v)
        x, q = f.needed(i, x, q)
        f.add(x, f.linear(f.attention(i, q), w.attn_output))
        h = f.rmsnorm(x, w.ffn_norm)
        gate, up = f.linears(h, w.ffn_gate, w.ffn_up)
        f.add(x, f.linear(f.silu_mul(gate, up), w.ffn_down))
    return x


def qwen3(m, f):
    """Qwen Team 2025, arXiv:2505.09388: no biases; a norm on each head of the queries and keys
    instead, before they turn.
    """
    x = f.embed(m.weights.token_embd)
    for i, w in enumerate(m.weights.layers):
        h = f.rmsnorm(x, w.attn_norm)
        q, k, v = f.linears(h, w.attn_q, w.attn_k, w.attn_v)
        f.rmsnorm_heads(q, w.attn_q_norm)
        f.rmsnorm_heads(k, w.attn_k_norm)
        f.rope(q, "global", half=True)
        f.rope(k, "global", half=True)
        f.store(i, k, v)
        x, q = f.needed(i, x, q)
        f.add(x, f.linear(f.attention(i, q), w.attn_output))
        h = f.rmsnorm(x, w.ffn_norm)
        gate, up = f.linears(h, w.ffn_gate, w.ffn_up)
        f.add(x, f.linear(f.silu_mul(gate, up), w.ffn_down))
    return x


def phi3(m, f):
    """Abdin et al. 2024, arXiv:2404.14219: Llama's block, with a window in every block of the
    short-context models, LongRoPE in the long-context ones; Phi-4-mini (2503.01743) turns three
    quarters of each head. q, k, v are rows of one stored matrix, gate and up of another.
    """
    x = f.embed(m.weights.token_embd)
    for i, w in enumerate(m.weights.layers):
        h = f.rmsnorm(x, w.attn_norm)
        q, k, v = f.linears(h, w.attn_q, w.attn_k, w.attn_v)
        f.rope(q, "global", half=True)
        f.rope(k, "global", half=True)
        f.store(i, k, v)
        x, q = f.needed(i, x, q)
        o = f.attention(i, q, m.hparams.window_of(i))
        f.add(x, f.linear(o, w.attn_output))
        h = f.rmsnorm(x, w.ffn_norm)
        gate, up = f.linears(h, w.ffn_gate, w.ffn_up)
        f.add(x, f.linear(f.silu_mul(gate, up), w.ffn_down))
    return x


def gemma(m, f):
    """Gemma Team 2024, arXiv:2403.08295: Llama's block with GeGLU, an embedding that is scaled,
    heads wider than their share.
    """
    x = f.embed(m.weights.token_embd, math.sqrt(m.hparams.n_embd))
    for i, w in enumerate(m.weights.layers):
        h = f.rmsnorm(x, w.attn_norm)
        q, k, v = f.linears(h, w.attn_q, w.attn_k, w.attn_v)
        f.rope(q, "global", half=True)
        f.rope(k, "global", half=True)
        f.store(i, k, v)
        x, q = f.needed(i, x, q)
        f.add(x, f.linear(f.attention(i, q), w.attn_output))
        h = f.rmsnorm(x, w.ffn_norm)
        gate, up = f.linears(h, w.ffn_gate, w.ffn_up)
        f.add(x, f.linear(f.gelu_mul(gate, up), w.ffn_down))
    return x


def gemma2(m, f):
    """Gemma Team 2024, arXiv:2408.00118: norms before and after, local and global blocks in turn,
    local first; soft caps on the scores (hparams.attn_cap, in `attention`) and on the logits
    (hparams.final_cap, in Model.head).
    """
    x = f.embed(m.weights.token_embd, math.sqrt(m.hparams.n_embd))
    for i, w in enumerate(m.weights.layers):
        h = f.rmsnorm(x, w.attn_norm)
        q, k, v = f.linears(h, w.attn_q, w.attn_k, w.attn_v)
        f.rope(q, "global", half=True)
        f.rope(k, "global", half=True)
        f.store(i, k, v)
        x, q = f.needed(i, x, q)
        o = f.linear(f.attention(i, q, m.hparams.window_of(i)), w.attn_output)
        f.add(x, f.rmsnorm(o, w.post_attention_norm))
        h = f.rmsnorm(x, w.ffn_norm)
        gate, up = f.linears(h, w.ffn_gate, w.ffn_up)
        o = f.linear(f.gelu_mul(gate, up), w.ffn_down)
        f.add(x, f.rmsnorm(o, w.post_ffw_norm))
    return x


def gemma3(m, f):
    """Gemma Team 2025, arXiv:2503.19786: as Gemma 2, but norms on queries and keys for the soft
    caps, five local blocks to one global, and another rope in the local ones.
    """
    x = f.embed(m.weights.token_embd, math.sqrt(m.hparams.n_embd))
    for i, w in enumerate(m.weights.layers):
        window = m.hparams.window_of(i)
        kind = "local" if window else "global"
        h = f.rmsnorm(x, w.attn_norm)
        q, k, v = f.linears(h, w.attn_q, w.attn_k, w.attn_v)
        f.rmsnorm_heads(q, w.attn_q_norm)
        f.rmsnorm_heads(k, w.attn_k_norm)
        f.rope(q, kind, half=True)
        f.rope(k, kind, half=True)
        f.store(i, k, v)
        x, q = f.needed(i, x, q)
        o = f.linear(f.attention(i, q, window), w.attn_output)
        f.add(x, f.rmsnorm(o, w.post_attention_norm))
        h = f.rmsnorm(x, w.ffn_norm)
        gate, up = f.linears(h, w.ffn_gate, w.ffn_up)
        o = f.linear(f.gelu_mul(gate, up), w.ffn_down)
        f.add(x, f.rmsnorm(o, w.post_ffw_norm))
    return x


ARCHITECTURES = {
    "llama": llama,
    "qwen2": qwen2,
    "qwen3": qwen3,
    "phi3": phi3,
    "gemma": gemma,
    "gemma2": gemma2,
    "gemma3": gemma3,
}
