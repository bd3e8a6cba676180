"""config.json of a Hugging Face folder: what model it is, as the keys of a GGUF.

Keys and their meaning are those of llama.cpp's converter; what has no key there, or would change
results in silence, is refused by name.
"""

from ...faults import bad, printable, unsupported
from . import rope

ARCHITECTURES = {  # model_type: (architecture in GGUF, class of transformers)
    "llama": ("llama", "LlamaForCausalLM"),
    "mistral": ("llama", "MistralForCausalLM"),
    "gemma": ("gemma", "GemmaForCausalLM"),
    "gemma2": ("gemma2", "Gemma2ForCausalLM"),
    "gemma3_text": ("gemma3", "Gemma3ForCausalLM"),
    "gemma3": ("gemma3", "Gemma3ForConditionalGeneration"),
    "qwen2": ("qwen2", "Qwen2ForCausalLM"),
    "qwen3": ("qwen3", "Qwen3ForCausalLM"),
    "phi3": ("phi3", "Phi3ForCausalLM"),
}
DEFAULTS = {  # what a config.json may leave out, as transformers has it
    "llama": {},
    "qwen2": {},
    "qwen3": {"head_dim": 128},
    "phi3": {"rms_norm_eps": 1e-5},
    "gemma": {"head_dim": 256, "tie_word_embeddings": True},
    "gemma2": {
        "head_dim": 256,
        "num_key_value_heads": 4,
        "tie_word_embeddings": True,
        "query_pre_attn_scalar": 256,
        "sliding_window": 4096,
        "max_position_embeddings": 8192,
        "attn_logit_softcapping": 50.0,
        "final_logit_softcapping": 30.0,
    },
    "gemma3": {
        "head_dim": 256,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "tie_word_embeddings": True,
        "sliding_window": 4096,
        "query_pre_attn_scalar": 256,
        "max_position_embeddings": 131072,
    },
}
ACTIVATIONS = {"gemma": ("gelu_pytorch_tanh", "gelu")}  # of gemma, the latter means the former
# blocks of the 27B, which alone scale by n_embd / n_head; no key says so
BY_WIDTH = {"gemma2": 46, "gemma3": 62}
LIMITS = {
    "num_hidden_layers": 512,
    "hidden_size": 1 << 20,
    "intermediate_size": 1 << 20,
    "num_attention_heads": 4096,
    "num_key_value_heads": 4096,
    "head_dim": 1024,
    "max_position_embeddings": 1 << 24,
    "vocab_size": 1 << 21,
}


class Config:
    """path, values (the object, of a model with a text part that part), arch, and the numbers every
    source of tensors needs: n_layer, n_embd, n_ff, n_head, n_head_kv, head_dim, n_vocab, tied.
    `rope`: a rope.Scaling. Fault 65, 69 naming the key.
    """

    def __init__(self, path, values):
        self.path, kind = path, values.get("model_type")
        known = ARCHITECTURES.get(kind) if isinstance(kind, str) else None
        if known is None:
            raise unsupported(
                path,
                f"model_type {printable(str(kind))}; this build converts"
                f" {', '.join(sorted(ARCHITECTURES))}",
            )
        self.arch, wanted = known
        classes = values.get("architectures") or [wanted]
        if classes not in ([wanted], ["Gemma3ForCausalLM"] if kind == "gemma3" else [wanted]):
            raise unsupported(path, f"architectures {printable(str(classes))}, not {wanted}")
        if values.get("quantization_config"):
            raise unsupported(path, "quantization_config: weights that are quantised already")
        inner = values.get("text_config")
        self.values = {**values, **inner} if isinstance(inner, dict) else values
        self.defaults = DEFAULTS[self.arch]
        self.n_layer, self.n_embd = self.int("num_hidden_layers"), self.int("hidden_size")
        self.n_ff, self.n_head = self.int("intermediate_size"), self.int("num_attention_heads")
        self.n_head_kv = self.int("num_key_value_heads", self.n_head)
        self.head_dim = self.int("head_dim", max(1, self.n_embd // self.n_head))
        self.n_ctx = self.int("max_position_embeddings", 2048)
        self.n_vocab = self.int("vocab_size", 262208 if self.arch == "gemma3" else ...)
        self.tied = self.flag("tie_word_embeddings")
        if self.n_head % self.n_head_kv:
            raise self.bad(
                "num_key_value_heads",
                f"{self.n_head_kv} does not divide num_attention_heads {self.n_head}",
            )
        if self.head_dim % 2:
            raise self.bad("head_dim", f"{self.head_dim} is odd")
        self._refuse()
        self.rope = rope.Scaling(self)

    def bad(self, key, what):
        return bad(self.path, f"{key}: {what}")

    def get(self, key, kinds, default=None):
        """The value of `key`, of one of the types `kinds`; the default where it is absent or
        null.
        """
        value = self.values.get(key)
        if value is None:
            value = self.defaults.get(key, default)
            if value is ...:
                raise self.bad(key, "is missing")
            return value
        if (
            not isinstance(value, kinds)
            or isinstance(value, bool)
            and bool not in (kinds if isinstance(kinds, tuple) else (kinds,))
        ):
            raise self.bad(key, f"is {printable(str(value), 40)}")
        return value

    def int(self, key, default=..., least=1):
        value, most = self.get(key, int, default), LIMITS.get(key, 1 << 24)
        if not least <= value <= most:
            raise self.bad(key, f"{value} is not within {least} to {most}")
        return value

    def float(self, key, default=...):
        value = float(self.get(key, (int, float), default))
        if not 0 < value < 1e12:
            raise self.bad(key, f"{value:g} is not within 0 to 1e12")
        return value

    def flag(self, key, default=False):
        return self.get(key, bool, default)

    def _refuse(self):
        for key in (
            "attention_bias",
            "mlp_bias",
            "use_sliding_window",
            "use_bidirectional_attention",
        ):
            if self.flag(key):
                raise unsupported(self.path, f"{key} = true")
        gemma = self.arch.startswith("gemma")
        allowed = ACTIVATIONS["gemma"] if gemma else ("silu",)
        act = self.get("hidden_activation", str) or self.get("hidden_act", str, allowed[0])
        if act not in allowed:
            raise unsupported(self.path, f"hidden_act {printable(act)}, not {allowed[0]}")
        if self.arch in BY_WIDTH:
            scalar = self.float("query_pre_attn_scalar")
            expected = (
                self.n_embd / self.n_head if self.n_layer == BY_WIDTH[self.arch] else self.head_dim
            )
            if scalar != expected:
                raise unsupported(
                    self.path,
                    f"query_pre_attn_scalar {scalar:g}: a GGUF of {self.n_layer} blocks means"
                    f" {expected:g}",
                )
        if self.arch == "gemma3" and self.get("attn_logit_softcapping", (int, float)) is not None:
            raise unsupported(self.path, "attn_logit_softcapping")

    def metadata(self, name):
        """Dict: key -> (kind, value), for a model called `name`."""
        arch = self.arch
        own = {
            "context_length": ("u32", self.n_ctx),
            "embedding_length": ("u32", self.n_embd),
            "block_count": ("u32", self.n_layer),
            "feed_forward_length": ("u32", self.n_ff),
            "attention.head_count": ("u32", self.n_head),
            "attention.head_count_kv": ("u32", self.n_head_kv),
            "attention.layer_norm_rms_epsilon": ("f32", self.float("rms_norm_eps", 1e-6)),
            "attention.key_length": ("u32", self.head_dim),
            "attention.value_length": ("u32", self.head_dim),
            "vocab_size": ("u32", self.n_vocab),
            **self.rope.keys(),
        }
        window = self.get("sliding_window", int)
        if window is not None and not 0 <= window <= 1 << 24:
            raise self.bad("sliding_window", f"{window} is not within 0 to 2^24")
        if arch in ("gemma2", "gemma3"):
            own["attention.sliding_window"] = ("u32", window)
            own.update(self._pattern())
            own.update(self._caps())
        elif arch == "phi3":
            own["attention.sliding_window"] = ("u32", window or 0)
        elif arch == "llama" and window and window < self.n_ctx:
            own["attention.sliding_window"] = ("u32", window)
        return {
            "general.architecture": ("string", arch),
            "general.type": ("string", "model"),
            "general.name": ("string", name),
            **{f"{arch}.{key}": value for key, value in own.items()},
        }

    def _caps(self):
        out = {}
        for key in ("attn_logit_softcapping", "final_logit_softcapping"):
            if self.arch == "gemma2" and key in self.values and self.values[key] is None:
                # a GGUF without the key means 50 and 30
                raise unsupported(self.path, f"{key} = null")
            if self.get(key, (int, float)) is not None:
                out[key] = ("f32", self.float(key))
        return out

    def _pattern(self):
        """Which layers are local. A GGUF can say that every n-th is global; 2 goes without saying
        for gemma2, 6 for gemma3.
        """
        usual = 2 if self.arch == "gemma2" else 6
        types = self.get("layer_types", list)
        n = (
            self.get("sliding_window_pattern", int)
            or self.get("_sliding_window_pattern", int)
            or usual
        )
        if types is not None:
            fits = lambda n: (
                types
                == [
                    "full_attention" if i % n == n - 1 else "sliding_attention"
                    for i in range(self.n_layer)
                ]
            )
            n = next((n for n in (usual, *range(1, self.n_layer + 1)) if fits(n)), None)
            if n is None:
                raise unsupported(
                    self.path, "layer_types: not every n-th layer is global and all others local"
                )
        if n == usual:
            return {}
        if self.arch == "gemma2" or not 1 <= n <= 512:
            raise unsupported(self.path, f"sliding_window_pattern {n}")
        return {"attention.sliding_window_pattern": ("u32", n)}
