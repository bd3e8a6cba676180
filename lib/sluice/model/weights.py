"""The tensors of a model: exactly those its architecture needs, each of the shape its
hyper-parameters give.
"""

from ..faults import unsupported
from ..gguf import without_ones
from ..kernels import ffi, lib

MATRIX_TYPES = (
    "F32",
    "F16",
    "BF16",
    "Q8_0",
    "Q4_0",
    "Q4_1",
    "Q5_0",
    "Q5_1",
    "Q2_K",
    "Q3_K",
    "Q4_K",
    "Q5_K",
    "Q6_K",
    "IQ4_NL",
    "IQ4_XS",
)


class Matrix:
    """Weights [n_out, n_in] as they lie in the file: `type` (GGML number), `p` (const void *),
    `name` of its role.

    fast: the arithmetic of its products is that of --arithmetic fast, if it has one (floats have).
    """

    __slots__ = ("name", "type", "p", "n_out", "n_in", "block", "in_terms")

    def __init__(self, name, type, p, n_in, n_out, fast=False):
        self.name, self.type, self.p, self.n_in, self.n_out = name, type, p, n_in, n_out
        # weights to a scale: its products take int8 activations in such blocks; 1: f32
        self.block = lib.type_block(type)
        self.in_terms = fast and self.block == 1  # as sums of bf16

    def rows(self, name, begin, n_out):
        """Rows `begin` to begin + n_out - 1, in another role."""
        at = ffi.cast("const uint8_t *", self.p) + begin * lib.type_row_bytes(self.type, self.n_in)
        return Matrix(name, self.type, at, self.n_in, n_out, self.in_terms)


class Layer:
    """One block: a Matrix, or an f32 vector (const float *), for each name of the architecture's
    tables.
    """


class Weights:
    """token_embd, output (a Matrix; the same as token_embd where tied), output_norm, layers:
    [Layer], and rope_divisors (f32 [n_rot / 2] or NULL).
    """

    def __init__(self, file, h, fast=False):
        self._file, self._left, self._fast = file, dict(file.tensors), fast
        self.token_embd = self._take("token_embd", (h.n_embd, h.n_vocab))
        self.output_norm = self._take("output_norm", (h.n_embd,))
        self.output = (
            self._take("output", (h.n_embd, h.n_vocab))
            if "output.weight" in self._left
            else self.token_embd
        )
        divisors = {name: self._take_divisors(name, h.n_rot // 2) for name in h.rope.tensors}
        self.rope_divisors = divisors.get(h.rope.divisors, ffi.NULL)
        self.layers = [self._layer(f"blk.{i}", h) for i in range(h.n_layer)]
        for name, t in self._left.items():
            raise unsupported(
                t.part.path, f"tensor {name}: not part of a {h.arch} model that this build runs"
            )

    def _layer(self, prefix, h):
        layer, table, bias = Layer(), shapes(h), biases(h)
        if f"{prefix}.attn_qkv.weight" in self._left:
            self._split(layer, f"{prefix}.attn_qkv", table, ("attn_q", "attn_k", "attn_v"))
        if h.arch == "phi3" and f"{prefix}.ffn_gate.weight" not in self._left:
            self._split(layer, f"{prefix}.ffn_up", table, ("ffn_gate", "ffn_up"))
        for name, shape in table.items():
            setattr(layer, name, self._take(f"{prefix}.{name}", shape))
        if bias and f"{prefix}.attn_qkv.bias" in self._left:
            p = self._take(f"{prefix}.attn_qkv", (sum(bias.values()),), "bias")
            for name, n in bias.items():
                setattr(layer, f"{name}_bias", p)
                p += n
        else:
            for name, n in bias.items():
                setattr(layer, f"{name}_bias", self._take(f"{prefix}.{name}", (n,), "bias"))
        return layer

    def _split(self, layer, fused, table, names):
        """Matrices stored as one, the rows of the first before those of the next; they leave the
        table.
        """
        parts, begin = [(name, *table.pop(name)) for name in names], 0
        whole = self._take(fused, (parts[0][1], sum(n_out for _, _, n_out in parts)))
        for name, _, n_out in parts:
            setattr(layer, name, whole.rows(name, begin, n_out))
            begin += n_out

    def _take_divisors(self, name, n):
        p = self._take(name, (n,))
        if not all(0 < p[i] < 1e9 for i in range(n)):
            raise self._file.fault(f"tensor {name}.weight: a factor is not within 0 to 1e9")
        return p

    def _take(self, name, shape, kind="weight"):
        t = self._left.pop(f"{name}.{kind}", None)
        if t is None:
            raise self._file.fault(f"tensor {name}.{kind} is missing")
        if t.shape != without_ones(shape):
            raise t.fault(f"shape {list(t.dims)}, expected {list(shape)}")
        type = ffi.string(lib.type_name(t.type)).decode()
        if type not in (MATRIX_TYPES if len(shape) == 2 else ("F32",)):
            raise unsupported(t.part.path, f"tensor {t.name}: type {type} here")
        p = self._file.pointer(t)
        return (
            Matrix(name.rsplit(".", 1)[-1], t.type, p, *shape, self._fast)
            if len(shape) == 2
            else ffi.cast("const float *", p)
        )


def shapes(h):
    """The weights of one block: name -> shape in GGUF order (n_in first). attn_q, attn_k and attn_v
    may be stored as one, attn_qkv, and phi3's ffn_gate and ffn_up are, as ffn_up.
    """
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
    if h.arch in ("qwen3", "gemma3"):
        table.update(attn_q_norm=(h.head_dim,), attn_k_norm=(h.head_dim,))
    if h.arch in ("gemma2", "gemma3"):
        table.update(post_attention_norm=(h.n_embd,), post_ffw_norm=(h.n_embd,))
    return table


def biases(h):
    """The biases of one block: name of the matrix -> elements."""
    n_kv = h.n_head_kv * h.head_dim
    return (
        {"attn_q": h.n_head * h.head_dim, "attn_k": n_kv, "attn_v": n_kv}
        if h.arch == "qwen2"
        else {}
    )
