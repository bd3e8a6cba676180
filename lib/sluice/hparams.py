"""The hyper-parameters of a model, read from its metadata and checked one by one.

Names are those of the literature and of GGUF: n_embd, n_ff, n_layer, n_head,
n_head_kv, head_dim, n_rot, n_ctx, n_vocab.
"""
import math

from .faults import printable, unsupported

MAX_LAYERS, MAX_WIDTH, MAX_HEADS, MAX_HEAD_DIM, MAX_CONTEXT = 512, 1 << 20, 4096, 1024, 1 << 24


class Rope:
    """How one kind of layer rotates: f64 `base`, `linear` (angles are divided by it), `scaled` (rope_freqs.weight applies)."""

    __slots__ = ("base", "linear", "scaled")

    def __init__(self, base, linear, scaled):
        self.base, self.linear, self.scaled = base, linear, scaled


class Hparams:
    """What `arch` needs to know; every number is within the limits above.

    n_ctx                    trained context, positions
    n_vocab                  rows of token_embd.weight
    n_layer, n_embd, n_ff    blocks, model width, feed-forward width
    n_head, n_head_kv        query heads, key-value heads
    head_dim, n_rot          elements of a head, and how many of them rotate
    eps                      of the RMS norms
    rope                     Rope of global layers;  rope_local: of local ones (gemma3)
    window, pattern          positions a local layer sees (0: all); layer i is global where i % pattern == pattern - 1
    scale                    of attention scores
    """

    def __init__(self, file):
        self.arch = arch = file.get("general.architecture", "string")
        if arch not in ARCHITECTURES:
            raise unsupported(file.path, f"architecture {printable(arch)}; this build runs " + ", ".join(ARCHITECTURES))
        self._file = file
        embd = file.tensors.get("token_embd.weight")
        if embd is None or len(embd.shape) != 2:
            raise file.fault("tensor token_embd.weight is missing or not a matrix: not a file of weights")
        self.n_vocab = embd.shape[1]
        self.n_layer = self._int("block_count", 1, MAX_LAYERS)
        self.n_embd = self._int("embedding_length", 1, MAX_WIDTH)
        self.n_ff = self._int("feed_forward_length", 1, MAX_WIDTH)
        self.n_ctx = self._int("context_length", 1, MAX_CONTEXT)
        self.n_head = self._int("attention.head_count", 1, MAX_HEADS)
        self.n_head_kv = self._int("attention.head_count_kv", 1, self.n_head, self.n_head)
        if self.n_head % self.n_head_kv:
            raise self._bad("attention.head_count_kv", f"{self.n_head_kv} does not divide head_count {self.n_head}")
        if f"{arch}.attention.key_length" not in file.metadata and self.n_embd % self.n_head:
            raise self._bad("attention.head_count", f"{self.n_head} does not divide embedding_length {self.n_embd}")
        self.head_dim = self._int("attention.key_length", 2, MAX_HEAD_DIM, self.n_embd // self.n_head)
        if self.head_dim % 2 or not 2 <= self.head_dim <= MAX_HEAD_DIM:
            raise self._bad("attention.key_length", f"{self.head_dim} is not an even number up to {MAX_HEAD_DIM}")
        if self._int("attention.value_length", 2, MAX_HEAD_DIM, self.head_dim) != self.head_dim:
            raise unsupported(file.path, f"{arch}.attention.value_length other than key_length")
        self.n_rot = self._int("rope.dimension_count", 2, self.head_dim, self.head_dim)
        if self.n_rot % 2:
            raise self._bad("rope.dimension_count", f"{self.n_rot} is odd")
        if self._int("vocab_size", 1, 1 << 21, self.n_vocab) != self.n_vocab:
            raise self._bad("vocab_size", f"token_embd.weight has {self.n_vocab} rows")
        if self.n_vocab > 1 << 21:
            raise file.fault(f"tensor token_embd.weight: {self.n_vocab} rows, more than 2^21")
        tokens = file.metadata.get("tokenizer.ggml.tokens")
        if tokens is not None and file.get("tokenizer.ggml.tokens", "[string]").n != self.n_vocab:
            raise file.fault(f"tokenizer.ggml.tokens: {tokens.n} tokens, but token_embd.weight has {self.n_vocab} rows")
        self.eps = self._float("attention.layer_norm_rms_epsilon", 0.0, 1.0)
        self.scale = 1.0 / math.sqrt(self.head_dim)
        self.window = self.pattern = 0
        self.rope = self.rope_local = self._rope()
        self._refuse_unknown()
        ARCHITECTURES[arch](self)

    def _bad(self, key, what):
        return self._file.fault(f"{self.arch}.{key}: {what}")

    def _int(self, key, least, most, default=...):
        value = self._file.get(f"{self.arch}.{key}", "u32", default)
        if f"{self.arch}.{key}" in self._file.metadata and not least <= value <= most:
            raise self._bad(key, f"{value} is not within {least} to {most}")
        return value

    def _float(self, key, above, below, default=...):
        value = self._file.get(f"{self.arch}.{key}", "f32", default)
        if not above < value < below:  # false for NaN
            raise self._bad(key, f"{value} is not within {above:g} to {below:g}")
        return value

    def _rope(self):
        base = self._float("rope.freq_base", 0.0, 1e12, 10000.0)
        kind = self._file.get(f"{self.arch}.rope.scaling.type", "string", "none")
        if kind not in ("none", "linear"):
            raise unsupported(self._file.path, f"{self.arch}.rope.scaling.type {printable(kind)}; this build has none, linear "
                                               "and llama3 (tensor rope_freqs.weight)")
        linear = self._float("rope.scaling.factor", 0.0, 1e6, 1.0) if kind == "linear" else 1.0
        if kind == "none" and f"{self.arch}.rope.scale_linear" in self._file.metadata:  # the name older writers used
            linear = self._float("rope.scale_linear", 0.0, 1e6)
        return Rope(base, linear, "rope_freqs.weight" in self._file.tensors)

    def _refuse_unknown(self):
        """Refuse by name what would change the result and is not built: silence would be a wrong answer."""
        for key in ("expert_count", "attention.clamp_kqv", "attention.max_alibi_bias", "logit_scale", "residual_scale",
                    "embedding_scale", "attention.scale", "final_logit_softcapping", "attn_logit_softcapping"):
            if self._file.metadata.get(f"{self.arch}.{key}"):
                raise unsupported(self._file.path, f"{self.arch}.{key}")
        if self._file.metadata.get(f"{self.arch}.attention.causal", True) is not True:
            raise unsupported(self._file.path, f"{self.arch}.attention.causal = false")


def _llama(h):
    """Llama 1 to 3, TinyLlama, SmolLM, Mistral without a window."""
    if h._int("attention.sliding_window", 0, MAX_CONTEXT, 0):
        raise unsupported(h._file.path, "llama.attention.sliding_window")


def _gemma3(h):
    """Gemma 3, text: five local layers to one global; local layers rotate by another base and are never scaled."""
    h.window = h._int("attention.sliding_window", 0, MAX_CONTEXT, 0)
    key = "gemma3.attention.sliding_window_pattern"
    if not h.window:
        h.pattern = 1
        return
    if isinstance(h._file.metadata.get(key), int):
        h.pattern = h._int("attention.sliding_window_pattern", 1, MAX_LAYERS, 6)
    else:  # absent, or an array of bool, true where a layer is local
        h.pattern = 6
        if key in h._file.metadata:
            local = h._file.get(key, "[bool]").values()
            if local != [i % 6 != 5 for i in range(h.n_layer)]:
                raise unsupported(h._file.path, f"{key} other than five local layers to one global")
    h.rope_local = Rope(h._float("rope.freq_base_swa", 0.0, 1e12, 10000.0), 1.0, False)
    if h.n_layer == 62:  # the 27B alone scales by the width of a head as if heads filled the model; no key says so
        h.scale = 1.0 / math.sqrt(h.n_embd / h.n_head)


ARCHITECTURES = {"llama": _llama, "gemma3": _gemma3}
