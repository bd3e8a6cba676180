"""Checkpoints of llama2.c for tests, written from their description alone (llama2c.py has it), and
random models for them.
"""

import struct

import numpy as np

ROLES = (
    "attn_norm",
    "attn_q",
    "attn_k",
    "attn_v",
    "attn_output",
    "ffn_norm",
    "ffn_gate",
    "ffn_down",
    "ffn_up",
)
VECTORS = ("attn_norm", "ffn_norm", "output_norm")


def model(dim=64, hidden=96, layers=2, heads=4, kv=2, vocab=300, ctx=24, tied=True, seed=1):
    """Dict: `numbers` of the header, `tied`, and role -> f32 [n_layers, n_out, n_in] or without the
    first; vectors [.., n].
    """
    draw, kv_dim = np.random.default_rng(seed), dim // heads * kv
    shapes = {
        "attn_norm": (layers, dim),
        "attn_q": (layers, dim, dim),
        "attn_k": (layers, kv_dim, dim),
        "attn_v": (layers, kv_dim, dim),
        "attn_output": (layers, dim, dim),
        "ffn_norm": (layers, dim),
        "ffn_gate": (layers, hidden, dim),
        "ffn_down": (layers, dim, hidden),
        "ffn_up": (layers, hidden, dim),
        "output_norm": (dim,),
        "token_embd": (vocab, dim),
    }
    if not tied:
        shapes["output"] = (vocab, dim)
    out = {
        role: draw.uniform(-0.4, 0.4, shape).astype("<f4") + (role in VECTORS) * np.float32(1)
        for role, shape in shapes.items()
    }
    return {"numbers": (dim, hidden, layers, heads, kv, vocab, ctx), "tied": tied, **out}


def bf16(x):
    """The f32 nearest to each that is a bf16, ties to even, the plain way: by the three
    candidates.
    """
    low = (x.view(np.uint32) & 0xFFFF0000).view(np.float32)
    high = ((x.view(np.uint32) & 0xFFFF0000) + np.uint32(0x10000)).view(np.float32)
    down, up = np.abs(x.astype(np.float64) - low), np.abs(high.astype(np.float64) - x)
    even = (low.view(np.uint32) >> 16) & 1 == 0
    return np.where((down < up) | ((down == up) & even), low, high)


def groups(x, group):
    """(int8, f32 scales) of a matrix, as export.py makes them."""
    x = x.reshape(-1, group)
    s = (np.abs(x).max(axis=1) / np.float32(127)).astype("<f4")
    return np.rint(x / s[:, None]).astype(np.int8), s


def checkpoint(m, version, group=32):
    """The bytes of the file."""
    dim, _, layers, heads, _, vocab, ctx = m["numbers"]
    put = {0: lambda r, x: x.tobytes(), 1: lambda r, x: x.tobytes()}
    half = lambda x: (bf16(x).view(np.uint32) >> 16).astype("<u2")
    put[-1] = lambda r, x: x.tobytes() if r in VECTORS or r == "token_embd" else half(x).tobytes()
    put[-2] = lambda r, x: (
        x.tobytes()
        if r in VECTORS or r == "token_embd"
        else half(np.ascontiguousarray(x.T)).tobytes()
    )
    put[2] = lambda r, x: (
        x.tobytes() if r in VECTORS else b"".join(a.tobytes() for a in groups(x, group))
    )
    put = put[version]
    each = lambda role: [put(role, x) for x in m[role]]
    if version <= 0:
        numbers = list(m["numbers"])
        numbers[5] *= 1 if m["tied"] else -1
        out = [struct.pack("<7i", *numbers), put("token_embd", m["token_embd"])]
        for role in ROLES:
            out += each(role)
        out += [put("output_norm", m["output_norm"]), bytes(4 * ctx * (dim // heads))]
    else:
        out = [struct.pack("<4si7iB", b"24ka", version, *m["numbers"], m["tied"])]
        out[0] = (out[0] + (struct.pack("<i", group) if version == 2 else b"")).ljust(256, b"\0")
        out += (
            each("attn_norm")
            + each("ffn_norm")
            + [put("output_norm", m["output_norm"]), put("token_embd", m["token_embd"])]
        )
        for role in ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_down", "ffn_up"):
            out += each(role)
    if not m["tied"]:
        out.append(put("output", m["output"]))
    return b"".join(out)


def tokenizer(n):
    """The bytes of a tokenizer.bin of `n` tokens, at least 260."""
    tokens = [b"<unk>", b"\n<s>\n", b"\n</s>\n", *(b"<0x%02X>" % b for b in range(256)), b" "]
    tokens += [b" t%d" % i for i in range(n - len(tokens))]
    return struct.pack("<i", max(map(len, tokens))) + b"".join(
        struct.pack("<fi", -float(i), len(t)) + t for i, t in enumerate(tokens)
    )


def tensors(m):
    """Dict: name in a GGUF -> array."""
    out = {
        f"{role}.weight": m[role] for role in ("token_embd", "output_norm", "output") if role in m
    }
    for role in ROLES:
        out.update({f"blk.{i}.{role}.weight": x for i, x in enumerate(m[role])})
    return out
