"""config.json reader: hyperparameters of a Hugging Face folder as keys of a GGUF.

Keys and their meaning are those of llama.cpp's converter. A value that has no key there, or would
change results if ignored, is refused by name.
"""

import builtins
from typing import Any

from ... import limits
from ...faults import Error, data_error, printable, unsupported_error
from ...model import architectures
from . import rope

LIMITS = {
    "num_hidden_layers": limits.MAX_LAYERS,
    "hidden_size": limits.MAX_WIDTH,
    "intermediate_size": limits.MAX_WIDTH,
    "num_attention_heads": limits.MAX_HEADS,
    "num_key_value_heads": limits.MAX_HEADS,
    "shared_intermediate_size": limits.MAX_WIDTH,
    "head_dim": limits.MAX_HEAD_DIM,
    "global_head_dim": limits.MAX_HEAD_DIM,
    "hidden_size_per_layer_input": limits.MAX_WIDTH,
    "max_position_embeddings": limits.MAX_CONTEXT,
    "vocab_size": limits.MAX_VOCAB,
}


class Config:
    """A checked config.json. Error 65 or 69 names the key.

    path, values      the file, and its object; for a model with a text part, that part
    architecture      record of the family; hf: its HuggingFace part; arch: its name
    kind, bare        model_type; whether the class is a model without an output head
    n_layer, n_embd, n_ff, n_head, n_head_kv, head_dim, n_ctx, n_vocab, n_ple    as in Hparams
    tied              whether the embedding is also the output head
    window            sliding_window, positions, or None
    rope              a rope.Scaling
    """

    def __init__(self, path: str, values: dict[str, Any]) -> None:
        self.path, kind = path, values.get("model_type")
        records = {t: r for r in architectures.load_all() for t in r.hugging_face.models}
        if not isinstance(kind, str) or kind not in records:
            raise self.unsupported_error(
                f"model_type {printable(str(kind))}; this build converts"
                f" {', '.join(sorted(records))}"
            )
        self.architecture = records[kind]
        self.arch, self.hf = self.architecture.name, self.architecture.hugging_face
        self.kind, wanted = kind, self.hf.models[kind]
        classes = values.get("architectures") or [wanted[0]]
        if classes not in [[name] for name in wanted]:
            raise self.unsupported_error(
                f"architectures {printable(str(classes))}, not {' or '.join(wanted)}"
            )
        self.bare = classes[0].endswith("Model")
        if values.get("quantization_config"):
            raise self.unsupported_error("quantization_config: the weights are already quantized")
        inner = values.get("text_config")
        self.values = values
        if isinstance(inner, dict):
            self.values = {**values, **inner}
            of_text = inner.get("model_type", kind)
            if of_text not in (*self.hf.models, *self.hf.text_models):
                raise self.unsupported_error(
                    f"text_config: model_type {printable(str(of_text), 40)} in a {kind}"
                )
        self.n_layer, self.n_embd = self.int("num_hidden_layers"), self.int("hidden_size")
        self.n_ff, self.n_head = self.hf.n_ff(self), self.int("num_attention_heads")
        self.n_head_kv = self.int("num_key_value_heads", self.n_head)
        self.head_dim = self.hf.head_dim(self)
        self.n_ple = self.int("hidden_size_per_layer_input", 0, 0)
        self.n_ctx = self.int("max_position_embeddings", 2048)
        self.n_vocab = self.int("vocab_size")
        self.tied = self.flag("tie_word_embeddings")
        if self.n_head % self.n_head_kv:
            raise self.data_error(
                "num_key_value_heads",
                f"{self.n_head_kv} does not divide num_attention_heads {self.n_head}",
            )
        if self.head_dim % 2:
            raise self.data_error("head_dim", f"{self.head_dim} is odd")
        self._refuse()
        self.rope, self.window = rope.Scaling(self), self._window()

    def data_error(self, key: str, problem: str) -> Error:
        """A DataError that names the file and `key`."""
        return data_error(self.path, f"{key}: {problem}")

    def unsupported_error(self, problem: str) -> Error:
        """An UnsupportedError that names the file; the text begins with a key."""
        return unsupported_error(self.path, problem)

    def get(self, key: str, kinds: Any, default: Any = None) -> Any:
        """Return the value of `key`, of one of the types `kinds`; the default if it is
        absent or null.
        """
        value = self.values.get(key)
        if value is None:
            value = self.values.get(self.hf.other_names.get(key, ""))
        if value is None:
            value = self.hf.defaults.get(key, default)
            if value is ...:
                raise self.data_error(key, "is missing")
            return value
        if (
            not isinstance(value, kinds)
            or isinstance(value, bool)
            and bool not in (kinds if isinstance(kinds, tuple) else (kinds,))
        ):
            raise self.data_error(key, f"is {printable(str(value), 40)}")
        return value

    def int(self, key: str, default: Any = ..., minimum: builtins.int = 1) -> builtins.int:
        """Return an int from `minimum` to the limit of the key, or the default. DataError."""
        value, maximum = self.get(key, int, default), LIMITS.get(key, limits.MAX_CONTEXT)
        if not minimum <= value <= maximum:
            raise self.data_error(key, f"{value} is not within {minimum} to {maximum}")
        return value

    def float(self, key: str, default: Any = ...) -> builtins.float:
        """Return a float above 0, at most 1e12, or the default. DataError."""
        value = float(self.get(key, (int, float), default))
        if not 0 < value < 1e12:
            raise self.data_error(key, f"{value:g} is not within 0 to 1e12")
        return value

    def rope_value(self, key: str, default: builtins.float) -> builtins.float:
        """Return a number of the RoPE scaling, 0 to 1e6, or the default. DataError."""
        values = self.get("rope_parameters", dict) or self.get("rope_scaling", dict) or {}
        value = values.get(key)
        if value is None:
            return default
        if type(value) not in (int, float) or not 0 <= value <= 1e6:
            raise self.data_error(f"rope scaling: {key}", f"is {printable(str(value), 40)}")
        return float(value)

    def flag(self, key: str, default: bool = False) -> bool:
        """Return a bool, or the default. DataError."""
        return self.get(key, bool, default)

    def _refuse(self):
        for key in ("attention_bias", "mlp_bias", "use_sliding_window"):
            if self.flag(key):
                raise self.unsupported_error(f"{key} = true")
        if not self.flag("is_causal", True):
            raise self.unsupported_error("is_causal = false")
        # "vision": tokens of an image alone see later ones
        seen = self.get("use_bidirectional_attention", (bool, str), False)
        if seen not in (False, "vision"):
            raise self.unsupported_error(
                f"use_bidirectional_attention = {printable(str(seen).lower())}"
            )
        allowed = self.hf.activations
        act = self.get("hidden_activation", str) or self.get("hidden_act", str, allowed[0])
        if act not in allowed:
            raise self.unsupported_error(f"hidden_act {printable(act)}, not {allowed[0]}")
        self.hf.refuse(self)

    def _window(self) -> builtins.int | None:
        window = self.get("sliding_window", int)
        if window is not None and not 0 <= window <= limits.MAX_CONTEXT:
            raise self.data_error("sliding_window", f"{window} is not within 0 to 2^24")
        return window

    def metadata(self, name: str) -> dict[str, tuple[str, Any]]:
        """Return the GGUF metadata of a model called `name`: dict key -> (kind, value)."""
        arch, eps = self.arch, self.float("rms_norm_eps", 1e-6)
        if eps >= 1:
            raise self.data_error("rms_norm_eps", f"{eps:g} is not below 1")
        own = {
            "context_length": ("u32", self.n_ctx),
            "embedding_length": ("u32", self.n_embd),
            "block_count": ("u32", self.n_layer),
            "feed_forward_length": ("u32", self.n_ff),
            "attention.head_count": ("u32", self.n_head),
            "attention.head_count_kv": ("u32", self.n_head_kv),
            "attention.layer_norm_rms_epsilon": ("f32", eps),
            "attention.key_length": ("u32", self.head_dim),
            "attention.value_length": ("u32", self.head_dim),
            "vocab_size": ("u32", self.n_vocab),
            **self.rope.keys(),
            **self.hf.keys(self),
        }
        return {
            "general.architecture": ("string", arch),
            "general.type": ("string", "model"),
            "general.name": ("string", name),
            **{f"{arch}.{key}": value for key, value in own.items()},
        }

    def period(self, usual: builtins.int) -> builtins.int:
        """Return the period of global layers: every how many layers one is global, the last
        of each period.

        `usual` if config.json does not say. UnsupportedError if the layers are in another
        order.
        """
        types = self.get("layer_types", list)
        if types is None:
            return (
                self.get("sliding_window_pattern", int)
                or self.get("_sliding_window_pattern", int)
                or usual
            )
        for n in (usual, *range(1, self.n_layer + 1)):
            if types == [
                "full_attention" if i % n == n - 1 else "sliding_attention"
                for i in range(self.n_layer)
            ]:
                return n
        raise self.unsupported_error(
            "layer_types: not every n-th layer is global and all others local"
        )
