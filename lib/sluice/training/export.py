"""Trained weights as GGUF, and back: Q8_0 matrices and F32 norms, metadata complete."""
import numpy as np

from .. import gguf
from ..faults import unsupported
from ..gguf import write as gguf_write

F32, Q8_0 = 0, 8


def q8_0(x):
    """bytes of float32 [n, 32 k] as blocks {f16 d, i8 q[32]}, d = max |x| / 127, rounded as ggml's reference quantiser does: half away from zero."""
    x = np.ascontiguousarray(x, np.float32).reshape(-1, 32)
    d = np.abs(x).max(1, keepdims=True) / np.float32(127)
    with np.errstate(divide="ignore"):
        y = x * np.where(d == 0, np.float32(0), np.float32(1) / d)
    whole = np.floor(np.abs(y))
    q = (np.sign(y) * (whole + np.floor(2 * (np.abs(y) - whole)))).astype(np.int8)
    return np.concatenate([d.astype("<f2").view(np.uint8), q.view(np.uint8)], 1).tobytes()


def dequantised(x):
    """float32 as it comes back from q8_0()."""
    return _of_q8_0(q8_0(x)).reshape(np.shape(x))


def _of_q8_0(data):
    raw = np.frombuffer(data, np.uint8).reshape(-1, 34)
    return (raw[:, :2].copy().view("<f2").astype(np.float32) * raw[:, 2:].view(np.int8)).ravel()


def tensors(state, shape):
    """[(name in GGUF, float32 array)] of a state_dict of net.Llama.

    net.rotate turns element i of a head with element i + n_rot / 2, `llama` files 2 i with 2 i + 1: rows of q and k change places.
    """
    out = [("token_embd.weight", state["token_embd.weight"])]
    for i in range(shape.n_layer):
        for name in ("attn_norm", "attn_q", "attn_k", "attn_v", "attn_output", "ffn_norm", "ffn_gate", "ffn_up", "ffn_down"):
            x = state[f"blk.{i}.{name}.weight"]
            if name in ("attn_q", "attn_k"):
                x = x.reshape(-1, 2, shape.n_rot // 2, shape.n_embd).transpose(0, 2, 1, 3).reshape(-1, shape.n_embd)
            out.append((f"blk.{i}.{name}.weight", x))
    return out + [("output_norm.weight", state["output_norm.weight"])]


def read(path):
    """What a file of write() was made of, as Q8_0 keeps it: (vocabulary, {name in a state_dict of net.Llama: float32 array}). Fault: of another kind."""
    file = gguf.File(path)
    tokens, scores, types = (file.get(f"tokenizer.ggml.{key}", kind).values() for key, kind in
                             (("tokens", "[string]"), ("scores", "[f32]"), ("token_type", "[i32]")))
    n_rot, state = file.get("llama.rope.dimension_count", "u32"), {}
    for name, t in file.tensors.items():
        if t.type not in (F32, Q8_0):
            raise unsupported(path, f"tensor {name}: a training begins with F32 and Q8_0")
        data = file.read(t, 0, t.n_bytes)
        x = (_of_q8_0(data) if t.type == Q8_0 else np.frombuffer(data, "<f4")).reshape(t.shape[::-1])
        if name.endswith(("attn_q.weight", "attn_k.weight")):
            x = x.reshape(-1, n_rot // 2, 2, t.shape[0]).transpose(0, 2, 1, 3).reshape(-1, t.shape[0])
        state[name] = np.ascontiguousarray(x)
    return ([token.decode() for token in tokens], scores, types), state


def metadata(shape, vocabulary, general):
    """{key: (kind, value)}. vocabulary: (tokens, scores, types); general: {key below general.: text}."""
    meta = {"general.architecture": ("string", "llama")}
    meta.update({f"general.{key}": ("[string]" if isinstance(v, list) else "string", v) for key, v in general.items()})
    for key, kind, v in (("context_length", "u32", shape.n_ctx), ("embedding_length", "u32", shape.n_embd), ("block_count", "u32", shape.n_layer),
                         ("feed_forward_length", "u32", shape.n_ff), ("attention.head_count", "u32", shape.n_head),
                         ("attention.head_count_kv", "u32", shape.n_head_kv), ("attention.layer_norm_rms_epsilon", "f32", shape.rms_eps),
                         ("rope.dimension_count", "u32", shape.n_rot), ("rope.freq_base", "f32", shape.rope_base), ("vocab_size", "u32", shape.n_vocab)):
        meta[f"llama.{key}"] = (kind, v)
    return {**meta, **tokenizer(vocabulary)}


def tokenizer(vocabulary):
    """The keys of a vocabulary."""
    tokens, scores, types = vocabulary
    return {f"tokenizer.ggml.{key}": value for key, value in {
        "model": ("string", "llama"), "pre": ("string", "default"),
        "tokens": ("[string]", tokens), "scores": ("[f32]", scores), "token_type": ("[i32]", types),
        "bos_token_id": ("u32", 1), "eos_token_id": ("u32", 2), "unknown_token_id": ("u32", 0),
        "add_bos_token": ("bool", True), "add_eos_token": ("bool", False), "add_space_prefix": ("bool", False),
        "remove_extra_whitespaces": ("bool", False)}.items()}


def write(path, meta, named):
    """Write a GGUF file, whole or not at all. named: [(name, float32 array)]: vectors stay F32, matrices become Q8_0."""
    gguf_write.write(path, meta, [(name, Q8_0 if x.ndim == 2 else F32, x.shape[::-1], lambda x=x: [_stored(x)]) for name, x in named])


def _stored(x):
    return q8_0(x) if x.ndim == 2 else np.ascontiguousarray(x, "<f4").tobytes()
