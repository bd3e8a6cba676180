"""The tensors of Hugging Face's models: their names in a GGUF, their shapes, and what is done to
them on the way.
"""

import numpy as np

from ...faults import bad, printable, unsupported
from .. import types
from ..tensor import Tensor

NORMS = {
    "llama": {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm"},
    "gemma2": {
        "attn_norm": "input_layernorm",
        "post_attention_norm": "post_attention_layernorm",
        "ffn_norm": "pre_feedforward_layernorm",
        "post_ffw_norm": "post_feedforward_layernorm",
    },
}
HEAD_NORMS = {"attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm"}
BIASES = {"attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj"}
PREFIXES = ("model.", "language_model.model.", "model.language_model.", "")
HEADS = ("lm_head.weight", "language_model.lm_head.weight")
# not of the text
OTHERS = (
    "vision_tower.",
    "multi_modal_projector.",
    "model.vision_tower.",
    "model.multi_modal_projector.",
)


def block(c):
    """List of (name in GGUF, name in a layer, shape in GGUF order) of one layer of the Config
    `c`.
    """
    n, q, kv = c.n_embd, c.n_head * c.head_dim, c.n_head_kv * c.head_dim
    if c.arch == "phi3":  # fused: queries, keys and values; gate and up
        out = [
            ("attn_qkv", "self_attn.qkv_proj", (n, q + 2 * kv)),
            ("ffn_up", "mlp.gate_up_proj", (n, 2 * c.n_ff)),
        ]
    else:
        out = [
            ("attn_q", "self_attn.q_proj", (n, q)),
            ("attn_k", "self_attn.k_proj", (n, kv)),
            ("attn_v", "self_attn.v_proj", (n, kv)),
            ("ffn_gate", "mlp.gate_proj", (n, c.n_ff)),
            ("ffn_up", "mlp.up_proj", (n, c.n_ff)),
        ]
    out += [("attn_output", "self_attn.o_proj", (q, n)), ("ffn_down", "mlp.down_proj", (c.n_ff, n))]
    norms = NORMS["gemma2" if c.arch in ("gemma2", "gemma3") else "llama"]
    out += [(name, theirs, (n,)) for name, theirs in norms.items()]
    if c.arch in ("gemma3", "qwen3"):
        out += [(name, theirs, (c.head_dim,)) for name, theirs in HEAD_NORMS.items()]
    out = [(f"{name}.weight", f"{theirs}.weight", shape) for name, theirs, shape in out]
    if c.arch == "qwen2":
        out += [
            (f"{name}.bias", f"{theirs}.bias", (q if name == "attn_q" else kv,))
            for name, theirs in BIASES.items()
        ]
    return out


def tensors(folder, c, entries):
    """List of Tensor for the Config `c` of what safetensors.read found. Fault 65: one is missing or
    of another shape; 69: one too many.
    """
    left = dict(entries)
    prefix = next((p for p in PREFIXES if p + "embed_tokens.weight" in left), None)
    if prefix is None:
        raise bad(folder, "tensor model.embed_tokens.weight is missing")
    wanted = [("token_embd.weight", prefix + "embed_tokens.weight", (c.n_embd, c.n_vocab))]
    for i in range(c.n_layer):
        wanted += [
            (f"blk.{i}.{name}", f"{prefix}layers.{i}.{theirs}", shape)
            for name, theirs, shape in block(c)
        ]
    wanted.append(("output_norm.weight", prefix + "norm.weight", (c.n_embd,)))
    head = next((h for h in HEADS if h in left), HEADS[0])
    if not c.tied:
        wanted.append(("output.weight", head, (c.n_embd, c.n_vocab)))
    out = []
    for name, theirs, shape in wanted:
        entry = left.pop(theirs, None)
        if entry is None:
            raise bad(folder, f"tensor {theirs} is missing")
        out.append(_tensor(c, name, theirs, shape, entry))
    left.pop(head, None)
    for name, entry in left.items():
        if not name.startswith(OTHERS) and not name.endswith("rotary_emb.inv_freq"):
            raise unsupported(
                entry.reader.path,
                f"tensor {printable(name)}: not part of a {c.arch} model as config.json has it",
            )
    return out + c.rope.tensors()


def _tensor(c, name, theirs, shape, entry):
    if entry.shape != shape[::-1]:
        raise bad(
            entry.reader.path,
            f"tensor {theirs}: shape {list(entry.shape)}, but config.json means"
            f" {list(shape[::-1])}",
        )
    if entry.dtype not in types.STORED:
        raise unsupported(
            entry.reader.path,
            f"tensor {theirs}: dtype {entry.dtype}; this build converts F32, F16 and BF16",
        )
    read, type, unit = (
        entry.reader.rows(types.STORED[entry.dtype], entry.at, shape[0]),
        entry.dtype,
        1,
    )
    if c.arch == "llama" and name.endswith(("attn_q.weight", "attn_k.weight")):
        read, unit = neighbours(read, c.head_dim), c.head_dim
    if c.arch.startswith("gemma") and name.endswith("norm.weight"):
        read, type = plus_one(read, type), "F32"
    return Tensor(name, shape, type, read, unit, source=entry.reader)


def neighbours(read, head_dim):
    """Rows of heads that rotate in halves (i, i + head_dim / 2) put in the order that rotates
    neighbours (2 i, 2 i + 1), as a GGUF of llama has them. Called for whole heads.
    """

    def permuted(first, n):
        x = read(first, n)
        return np.ascontiguousarray(
            x.reshape(n // head_dim, 2, head_dim // 2, -1).swapaxes(1, 2)
        ).reshape(x.shape)

    return permuted


def plus_one(read, type):
    """Gains of Gemma, which the checkpoint has without their 1; the sum is rounded once, to f32."""
    return lambda first, n: types.to_f32(read(first, n), type) + np.float32(1)
