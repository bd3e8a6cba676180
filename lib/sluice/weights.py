"""The tensors of a model: exactly those its architecture needs, each of the shape its hyper-parameters give."""
from .faults import unsupported
from .kernels import ffi, lib

MATRIX_TYPES = ("F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K",
                "IQ4_NL", "IQ4_XS")


class Matrix:
    """Weights [n_out, n_in] as they lie in the file: `type` (GGML number), `p` (const void *), `name` of its role.

    fast: the arithmetic of its products is that of --arithmetic fast, if it has one (floats have)."""

    __slots__ = ("name", "type", "p", "n_out", "n_in", "block", "in_terms")

    def __init__(self, name, tensor, p, fast=False):
        self.name, self.type, self.p = name, tensor.type, p
        self.n_in, self.n_out = tensor.shape
        self.block = lib.type_block(tensor.type)  # weights to a scale: its products take int8 activations in such blocks; 1: f32
        self.in_terms = fast and self.block == 1  # as sums of bf16


class Layer:
    """One block: a Matrix or an f32 vector (const float *) for each name of the architecture's table."""


class Weights:
    """token_embd, output (a Matrix; the same as token_embd where tied), output_norm, rope_freqs or None, layers: [Layer]."""

    def __init__(self, file, h, fast=False):
        self._file, self._left, self._fast = file, dict(file.tensors), fast
        self.token_embd = self._take("token_embd", (h.n_embd, h.n_vocab))
        self.output_norm = self._take("output_norm", (h.n_embd,))
        self.output = self._take("output", (h.n_embd, h.n_vocab)) if "output.weight" in self._left else self.token_embd
        self.rope_freqs = None
        if h.rope.scaled:
            self.rope_freqs = self._take("rope_freqs", (h.n_rot // 2,))
            if not all(0 < self.rope_freqs[i] < 1e9 for i in range(h.n_rot // 2)):
                raise file.fault("tensor rope_freqs.weight: a factor is not within 0 to 1e9")
        self.layers = [self._layer(f"blk.{i}", shapes(h)) for i in range(h.n_layer)]
        for name in self._left:
            raise unsupported(file.path, f"tensor {name}: not part of a {h.arch} model that this build runs")

    def _layer(self, prefix, table):
        layer = Layer()
        for name, shape in table.items():
            setattr(layer, name, self._take(f"{prefix}.{name}", shape))
        return layer

    def _take(self, name, shape):
        t = self._left.pop(name + ".weight", None)
        if t is None:
            raise self._file.fault(f"tensor {name}.weight is missing")
        while len(t.shape) > len(shape) and t.shape[-1] == 1:  # trailing dimensions of 1 are none
            t.shape = t.shape[:-1]
        if t.shape != shape:
            raise self._file.fault(f"tensor {t.name}: shape {list(t.shape)}, expected {list(shape)}")
        kind = ffi.string(lib.type_name(t.type)).decode()
        if kind not in (MATRIX_TYPES if len(shape) == 2 else ("F32",)):
            raise unsupported(self._file.path, f"tensor {t.name}: type {kind} here")
        p = self._file.pointer(t)
        return Matrix(name.rsplit(".", 1)[-1], t, p, self._fast) if len(shape) == 2 else ffi.cast("const float *", p)


def shapes(h):
    """The weights of one block: name -> shape in GGUF order (n_in first)."""
    n_q, n_kv = h.n_head * h.head_dim, h.n_head_kv * h.head_dim
    table = {
        "attn_norm": (h.n_embd,),
        "attn_q": (h.n_embd, n_q),
        "attn_k": (h.n_embd, n_kv),
        "attn_v": (h.n_embd, n_kv),
        "attn_output": (n_q, h.n_embd),
        "ffn_norm": (h.n_embd,),
        "ffn_gate": (h.n_embd, h.n_ff),
        "ffn_up": (h.n_embd, h.n_ff),
        "ffn_down": (h.n_ff, h.n_embd),
    }
    if h.arch == "gemma3":
        table.update(attn_q_norm=(h.head_dim,), attn_k_norm=(h.head_dim,),
                     post_attention_norm=(h.n_embd,), post_ffw_norm=(h.n_embd,))
    return table
