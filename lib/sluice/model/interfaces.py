"""Protocols of the objects that the functions of an architecture record receive, for the type
checker.

A record depends on these, not on the modules that read it: hparams.py, model.py and gguf-convert.
"""

import builtins
from typing import Any, Protocol

from ..faults import Error
from .rope import Rope


class Sizes(Protocol):
    """The sizes on which the shapes of a block's tensors depend."""

    @property
    def n_embd(self) -> int: ...
    @property
    def n_ff(self) -> int: ...
    @property
    def n_head(self) -> int: ...
    @property
    def n_head_kv(self) -> int: ...
    @property
    def head_dim(self) -> int: ...


class Hparams(Sizes, Protocol):
    """hparams.Hparams: the sizes, and the fields that `rules` sets."""

    n_layer: int
    n_ctx: int
    n_rot: int
    n_rot_local: int
    n_ple: int
    blocks: list[Any] | None
    windows: list[int] | None
    kv_layers: list[int]
    window: int
    pattern: int
    scale: float
    attn_cap: float
    final_cap: float
    embedding_scale: float
    residual_scale: float
    logit_scale: float
    sharpening: tuple[float, int] | None
    rope: Rope
    rope_local: Rope | None
    has_rope: bool

    def window_of(self, layer: int) -> int: ...
    def block(self, layer: int) -> Any: ...


class Keys(Protocol):
    """hparams.Keys: values below the architecture's name, each checked when it is read."""

    MAX_CONTEXT: builtins.int
    MAX_WIDTH: builtins.int
    MAX_HEAD_DIM: builtins.int
    known: set[str]

    def int(
        self, key: str, minimum: builtins.int, maximum: builtins.int, default: Any = ...
    ) -> builtins.int: ...
    def ints(
        self, key: str, minimum: builtins.int, maximum: builtins.int, default: Any = ...
    ) -> list[builtins.int]: ...
    def bools(self, key: str) -> list[bool]: ...
    def float(
        self, key: str, above: builtins.float, below: builtins.float, default: Any = ...
    ) -> builtins.float: ...
    def cap(self, key: str, default: builtins.float = ...) -> builtins.float: ...
    def flag(self, key: str, default: bool) -> bool: ...
    def has(self, key: str) -> bool: ...
    def period(self, key: str, usual: builtins.int) -> builtins.int: ...
    def data_error(self, key: str, problem: str) -> Error: ...
    def unsupported_error(self, problem: str) -> Error: ...


class Model(Protocol):
    """model.Model: weights.token_embd, and weights.layers, one Layer per block."""

    @property
    def weights(self) -> Any: ...
    @property
    def hparams(self) -> Hparams: ...


class Cache(Protocol):
    """kvcache: a Snapshot, or a Scratch in memory.

    n_tok, tokens    number of tokens, and the tokens, int32_t[capacity]
    logits           float[n_vocab], after the last token
    k(i), v(i)       keys and values of block i, rows of layout.rows[i] bytes
    """

    n_tok: builtins.int

    @property
    def tokens(self) -> Any: ...
    @property
    def logits(self) -> Any: ...
    @property
    def layout(self) -> Any: ...
    @property
    def geometry(self) -> Any: ...
    def k(self, layer: builtins.int) -> Any: ...
    def v(self, layer: builtins.int) -> Any: ...
    def reserve(self, n_tok: builtins.int) -> None: ...
    def copy_rows_from(self, base: Any) -> None: ...


class Config(Sizes, Protocol):
    """convert.hf.config.Config: a config.json, each value checked when it is read."""

    n_layer: builtins.int
    n_ctx: builtins.int
    window: builtins.int | None
    values: dict[str, Any]

    def get(self, key: str, kinds: Any, default: Any = None) -> Any: ...
    def int(self, key: str, default: Any = ..., minimum: builtins.int = 1) -> builtins.int: ...
    def float(self, key: str, default: Any = ...) -> builtins.float: ...
    def flag(self, key: str, default: bool = False) -> bool: ...
    def rope_value(self, key: str, default: builtins.float) -> builtins.float: ...
    def period(self, usual: builtins.int) -> builtins.int: ...
    def data_error(self, key: str, problem: str) -> Error: ...
    def unsupported_error(self, problem: str) -> Error: ...
