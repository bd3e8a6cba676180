"""RoPE of a model: its metadata, checked, and the frequencies (csrc/kernels/rope_freq.c).

Keys of {arch}.rope., as llama.cpp's converter writes them:

    freq_base                          default 10000
    scaling.type                       none, linear, yarn, longrope; default: linear, or longrope if
                                       the file has its tensors
    scaling.factor                     linear and yarn: divisor of the frequencies; scale_linear is
                                       its old name
    scaling.original_context_length    yarn and longrope: positions of the first training; default:
                                       {arch}.context_length
    scaling.attn_factor                factor of cosines and sines; default 1, or the paper's for
                                       longrope
    scaling.yarn_attn_factor           the same in a yarn checkpoint; default: the paper's 0.1 ln
                                       factor + 1
    scaling.yarn_beta_fast, _slow      turns between which yarn blends; default 32 and 1
    tensor rope_freqs.weight           llama3: a divisor for each pair; there is no type for it
    tensors rope_factors_long.weight, rope_factors_short.weight    longrope: the same

LongRoPE has two sets of divisors, for contexts up to the original length and for longer ones. Other
programs choose by the requested length, or change in mid-sequence; then the same tokens have
several results, and a stored cache may be of the wrong kind. Here the model alone decides: the long
divisors if its context_length exceeds the original, else the short ones. So bits depend only on
tokens, model and arithmetic, and a snapshot can grow up to the whole context. Prompts longer than
the original context are computed as in transformers; shorter ones as in a server that was started
for the whole context.
"""

from __future__ import annotations

import math

from ..faults import printable
from ..kernels import ffi, lib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Container
    from typing import Any


KINDS = ("none", "linear", "yarn", "longrope")
MAX_FACTOR, MAX_SCALE = 1e6, 1e3


class Rope:
    """RoPE of one kind of block.

    base, kind     f64; a name of KINDS
    factor         of linear and yarn, else 1
    n_ctx          positions of the first training;  fast, slow: turns (yarn)
    scale          of cosines and sines
    tensors        names the file must have;  divisors: the one that applies, or None;  max_divisor:
                   what a divisor is below
    """

    def __init__(self, base: float, kind: str = "none", factor: float = 1.0) -> None:
        self.base, self.kind, self.factor, self.scale = base, kind, factor, 1.0
        self.n_ctx: int | None = None
        self.fast: float | None = None
        self.slow: float | None = None
        self.divisors: str | None = None
        self.tensors: tuple[str, ...] = ()
        self.max_divisor = 1e9

    def frequencies(self, n_pair: int, divisors: Any) -> Any:
        """Return f64 [n_pair], the angle of each pair per position; divisors: f32 [n_pair]
        or NULL.
        """
        freq = ffi.new("double[]", n_pair)
        if self.kind == "yarn":
            lib.rope_freq_yarn(
                freq, n_pair, self.base, self.factor, self.n_ctx, self.fast, self.slow
            )
        else:
            lib.rope_freq(freq, divisors, n_pair, self.base, self.factor)
        return freq


def read_rope(keys: Any, tensors: Container[str], n_ctx: int) -> Rope:
    """Return the Rope of `keys` (an hparams.Keys) and the names `tensors`, of a model trained
    for n_ctx positions. DataError, UnsupportedError.
    """
    longrope = "rope_factors_long.weight" in tensors
    kind = keys.text("rope.scaling.type", "longrope" if longrope else "linear")
    if kind not in KINDS:
        raise keys.unsupported_error(
            f"rope.scaling.type {printable(kind)}; this build has {', '.join(KINDS)}, and llama3 "
            "(tensor rope_freqs.weight)"
        )
    rope = Rope(keys.float("rope.freq_base", 0.0, 1e12, 10000.0), kind)
    {"none": _none, "linear": _linear, "yarn": _yarn, "longrope": _longrope}[kind](
        rope, keys, n_ctx
    )
    if kind in ("none", "linear") and "rope_freqs.weight" in tensors:
        rope.divisors, rope.tensors = "rope_freqs", ("rope_freqs",)
    return rope


def _none(rope, keys, n_ctx):
    rope.scale = keys.float("rope.scaling.attn_factor", 0.0, MAX_SCALE, 1.0)


def _linear(rope, keys, n_ctx):
    name = "rope.scaling.factor" if keys.has("rope.scaling.factor") else "rope.scale_linear"
    rope.factor = keys.float(name, 0.0, MAX_FACTOR, 1.0)
    rope.scale = keys.float("rope.scaling.attn_factor", 0.0, MAX_SCALE, 1.0)


def _yarn(rope, keys, n_ctx):
    """Peng et al. 2023, arXiv:2309.00071."""
    rope.factor = keys.float("rope.scaling.factor", 0.0, MAX_FACTOR)
    rope.n_ctx = keys.int("rope.scaling.original_context_length", 1, keys.MAX_CONTEXT, n_ctx)
    rope.fast = keys.float("rope.scaling.yarn_beta_fast", 0.0, MAX_FACTOR, 32.0)
    rope.slow = keys.float("rope.scaling.yarn_beta_slow", 0.0, MAX_FACTOR, 1.0)
    if rope.fast < rope.slow:
        raise keys.data_error(
            "rope.scaling.yarn_beta_fast", f"{rope.fast} is less than yarn_beta_slow {rope.slow}"
        )
    if not rope.base > 1:
        raise keys.data_error("rope.freq_base", f"{rope.base} is not above 1, as yarn needs")
    usual = 0.1 * lib.sluice_log(rope.factor) + 1.0 if rope.factor > 1 else 1.0
    rope.scale = keys.float("rope.scaling.yarn_attn_factor", 0.0, MAX_SCALE, usual)
    rope.scale *= keys.float("rope.scaling.attn_factor", 0.0, MAX_SCALE, 1.0)
    # -1: not set
    if keys.float("rope.scaling.yarn_ext_factor", -math.inf, math.inf, 1.0) not in (1.0, -1.0):
        raise keys.unsupported_error("rope.scaling.yarn_ext_factor other than 1")


def _longrope(rope, keys, n_ctx):
    """Ding et al. 2024, arXiv:2402.13753; the default of `scale` as Phi-3's code has it."""
    rope.n_ctx = keys.int("rope.scaling.original_context_length", 2, keys.MAX_CONTEXT, n_ctx)
    if keys.float("rope.scaling.factor", 0.0, MAX_FACTOR, 1.0) != 1.0:
        raise keys.unsupported_error("rope.scaling.factor with longrope")
    is_long = n_ctx > rope.n_ctx
    usual = (
        math.sqrt(1 + lib.sluice_log(n_ctx / rope.n_ctx) / lib.sluice_log(rope.n_ctx))
        if is_long
        else 1.0
    )
    rope.scale = keys.float("rope.scaling.attn_factor", 0.0, MAX_SCALE, usual)
    rope.tensors = "rope_factors_long", "rope_factors_short"
    rope.divisors = rope.tensors[not is_long]
