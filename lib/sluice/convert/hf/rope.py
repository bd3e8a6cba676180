"""RoPE scaling in a config.json, as keys and tensors of a GGUF: old form (rope_theta, rope_scaling)
and new form (rope_parameters).
"""

from __future__ import annotations

import math
from typing import Any

from ...faults import data_error, printable, unsupported_error
from ...limits import MAX_CONTEXT
from ..tensor import Metadata, Tensor, constant

MAX_FACTOR = 1e6  # as the engine reads it
UNTURNED = 1e30  # divisor of a frequency, as llama.cpp's converter writes it


class Scaling:
    """RoPE scaling of a model: base, n_rot, kind (of architecture.ROPES) and `values`, the object
    that describes it.
    """

    def __init__(self, config: Any) -> None:
        self.config, c = config, config
        new = c.get("rope_parameters", dict) or {}
        self.local = None
        if c.hf.local_rope:
            nested = isinstance(new.get("full_attention"), dict)
            local = new.get("sliding_attention", {}) if nested else {}
            if not isinstance(local, dict):
                raise self._data_error("sliding_attention", local)
            new = new["full_attention"] if nested else new
            self._plain(local)
            self.local = self._number(local, "rope_theta", c.float("rope_local_base_freq", 10000.0))
        self.values = values = new or c.get("rope_scaling", dict) or {}
        self.base = self._number(new, "rope_theta", c.float("rope_theta", 10000.0))
        kind = values.get("rope_type") or values.get("type") or "default"
        self.kind = (
            {"default": "none", "su": "longrope"}.get(kind, kind)
            if isinstance(kind, str)
            else str(kind)
        )
        if self.kind not in c.hf.ropes:
            raise unsupported_error(c.path, f"rope_type {printable(self.kind)} of a {c.arch}")
        partial = self._number(new, "partial_rotary_factor", c.float("partial_rotary_factor", 1.0))
        self.n_rot, self.n_turned = int(c.head_dim * partial), 0
        if self.kind == "proportional":  # pairs that do not turn are the last ones
            self.n_turned, self.n_rot = self.n_rot // 2, c.head_dim
        allowed = self.n_turned if self.kind == "proportional" else c.hf.partial_rotary
        allowed = partial <= 1 and (partial == 1 or allowed)
        if not allowed or self.n_rot % 2 or not 2 <= self.n_rot <= c.head_dim:
            raise unsupported_error(c.path, f"partial_rotary_factor {partial:g} of a {c.arch}")
        self.factor = (
            self._number(values, "factor", ...)
            if self.kind in ("linear", "llama3", "yarn")
            else self._number(values, "factor", 1.0)
            if self.kind == "proportional"
            else 1.0
        )
        if self.factor >= MAX_FACTOR:
            raise self._data_error("factor", f"{self.factor:g} is not below {MAX_FACTOR:g}")
        original = values.get("original_max_position_embeddings") or c.get(
            "original_max_position_embeddings", int
        )
        self.original = original or (8192 if self.kind == "llama3" else c.n_ctx)
        if type(self.original) is not int or not 1 <= self.original <= MAX_CONTEXT:
            raise self._data_error("original_max_position_embeddings", self.original)

    def _data_error(self, key, value):
        return data_error(self.config.path, f"rope scaling: {key}: {printable(str(value), 40)}")

    def _number(self, values, key, default):
        value = values.get(key, default)
        if value is ... or type(value) not in (int, float) or not 0 < value < 1e12:
            raise self._data_error(key, "is missing" if value is ... else value)
        return float(value)

    def _plain(self, local):
        if local.get("rope_type", "default") != "default":
            raise unsupported_error(
                self.config.path, f"rope_type {printable(str(local['rope_type']))} of local layers"
            )
        if self._number(local, "partial_rotary_factor", 1.0) != 1:
            raise unsupported_error(self.config.path, "partial_rotary_factor of local layers")

    def keys(self) -> Metadata:
        """Return keys below the architecture's name: dict key -> (kind, value)."""
        out = {"rope.freq_base": ("f32", self.base), "rope.dimension_count": ("u32", self.n_rot)}
        if self.local is not None:
            out["rope.freq_base_swa"] = ("f32", self.local)
        if "longrope" in self.config.hf.ropes:
            out["rope.scaling.original_context_length"] = ("u32", self.original)
        if self.kind in ("linear", "yarn"):
            out["rope.scaling.type"], out["rope.scaling.factor"] = (
                ("string", self.kind),
                ("f32", self.factor),
            )
        if self.kind == "yarn":
            out.update(self._yarn())
        if self.kind == "longrope":
            factor = self._number(
                self.values,
                "attention_factor",
                attention_factor(self.config.n_ctx / self.original, self.original),
            )
            out["rope.scaling.type"], out["rope.scaling.attn_factor"] = (
                ("string", "longrope"),
                ("f32", factor),
            )
        return out

    def _yarn(self):
        out = {"rope.scaling.original_context_length": ("u32", self.original)}
        for key in ("mscale", "mscale_all_dim", "llama_4_scaling_beta"):
            if self.values.get(key) and key not in self.config.hf.rope_values:
                raise unsupported_error(self.config.path, f"rope scaling: {key}")
        if self.values.get("truncate", True) is not True:
            raise unsupported_error(self.config.path, "rope scaling: truncate = false")
        for key, name in (
            ("attention_factor", "attn_factor"),
            ("beta_fast", "yarn_beta_fast"),
            ("beta_slow", "yarn_beta_slow"),
        ):
            if self.values.get(key) is not None:
                out[f"rope.scaling.{name}"] = ("f32", self._number(self.values, key, ...))
        return out

    def tensors(self) -> list[Tensor]:
        """Return the factors of llama3, longrope or proportional as tensors: f32 [n_rot / 2]."""
        if self.kind == "proportional":
            n = self.n_rot // 2 - self.n_turned
            return [
                constant("rope_freqs.weight", [self.factor] * self.n_turned + [UNTURNED] * n),
            ]
        if self.kind == "llama3":
            return [constant("rope_freqs.weight", self._llama3())]
        if self.kind != "longrope":
            return []
        return [
            constant(f"rope_factors_{name}.weight", self._factors(f"{name}_factor"))
            for name in ("long", "short")
        ]

    def _factors(self, key):
        values = self.values.get(key)
        if not isinstance(values, list) or len(values) != self.n_rot // 2:
            raise self._data_error(key, f"is not a list of {self.n_rot // 2} numbers")
        return [self._number({key: v}, key, ...) for v in values]

    def _llama3(self):
        """Return the divisor of each frequency: `factor` for long waves, 1 for short ones,
        a blend between them (Llama Team 2024, arXiv:2407.21783; formula of transformers).
        """
        low, high = (
            self._number(self.values, "low_freq_factor", 1.0),
            self._number(self.values, "high_freq_factor", 4.0),
        )
        if low >= high:
            raise self._data_error(
                "low_freq_factor", f"{low:g} is not below high_freq_factor {high:g}"
            )
        out = []
        for i in range(0, self.n_rot, 2):
            # rotations within the original context
            turns = self.original * self.base ** (-i / self.n_rot) / (2 * math.pi)
            blend = min(max((turns - low) / (high - low), 0.0), 1.0)
            out.append(1 / ((1 - blend) / self.factor + blend))
        return out


def attention_factor(scale: float, n_original: int) -> float:
    """Return longrope's factor of cosines and sines (Ding et al. 2024, arXiv:2402.13753, as in
    transformers).
    """
    return math.sqrt(1 + math.log(scale) / math.log(n_original)) if scale > 1 else 1.0
