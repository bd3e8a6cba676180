"""Parts of a block that most architectures share: attention, SwiGLU, GeGLU.

f: a Forward that has begun a chunk; w: a Layer, the weights of block i. Rows are f32, one row per
token; n_tok tokens are in the chunk.
"""

from .forward import Forward, Rows
from .weights import Layer


def attend(
    f: Forward, i: int, w: Layer, x: Rows, q: Rows, k: Rows, v: Rows, rope: str | None = "global"
) -> tuple[Rows, Rows]:
    """Attention of block i: RoPE, append keys and values to the cache, attend, project.

    x: [n_tok, n_embd], the residual stream; q: [n_tok, n_head * head_dim]; k, v: [n_tok,
    n_head_kv * head_dim]; rope: "global", "local", or None: not rotated. q and k change in place.
    Returns (x, o), both [n, n_embd]. n is n_tok, but after the last block only the tokens whose
    logits are needed remain (Forward.needed).
    """
    half = not f.h.architecture.neighbours
    if rope:
        f.rope(q, rope, half)
        f.rope(k, rope, half)
    f.store(i, k, v)
    x, q = f.needed(i, x, q)
    return x, f.linear(f.attention(i, q, f.h.window_of(i)), w.attn_output)


def swiglu(f: Forward, w: Layer, h: Rows) -> Rows:
    """down(silu(gate h) * up h), [n_tok, n_embd]: Shazeer 2020, arXiv:2002.05202."""
    gate, up = f.linears(h, w.ffn_gate, w.ffn_up)
    return f.linear(f.silu_mul(gate, up), w.ffn_down)


def geglu(f: Forward, w: Layer, h: Rows) -> Rows:
    """down(gelu(gate h) * up h), [n_tok, n_embd], gelu by the tanh formula: Shazeer 2020,
    arXiv:2002.05202.
    """
    gate, up = f.linears(h, w.ffn_gate, w.ffn_up)
    return f.linear(f.gelu_mul(gate, up), w.ffn_down)
