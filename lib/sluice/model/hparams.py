"""Hyperparameters of a model, read from its metadata and checked.

Names are those of the literature and of GGUF: n_embd, n_ff, n_layer, n_head, n_head_kv, head_dim,
n_rot, n_ctx, n_vocab.
"""

from __future__ import annotations

import math

from ..faults import printable, unsupported_error
from ..gguf.metadata import ARRAY, STRING, Array, Unread, describe
from ..limits import (
    MAX_CONTEXT,
    MAX_CONV,
    MAX_HEAD_DIM,
    MAX_HEADS,
    MAX_LAYERS,
    MAX_VOCAB,
    MAX_WIDTH,
)
from . import architectures
from .rope import read_rope

TYPE_CHECKING = False
if TYPE_CHECKING:
    import builtins
    from typing import Any

    from ..faults import Error
    from .rope import Rope


MIN_CAP, MAX_CAP = 1e-3, 1e6  # of soft caps: beyond these, 1 / cap or x / cap could overflow f32

# Keys that change results: refused if they are set and the architecture did not read them, since
# ignoring them would give wrong results.
CHANGES = (
    "expert_count",
    "logit_scale",
    "residual_scale",
    "embedding_scale",
    "final_logit_softcapping",
    "attn_logit_softcapping",
    "attention.clamp_kqv",
    "attention.max_alibi_bias",
    "attention.scale",
    "attention.value_scale",
    "attention.output_scale",
    "attention.temperature_scale",
    "attention.shared_kv_layers",
    "embedding_length_per_layer_input",
    "attention.sliding_window",
    "attention.sliding_window_pattern",
    "attention.key_length_swa",
    "attention.value_length_swa",
    "rope.freq_base_swa",
    "rope.dimension_count_swa",
    "rope.dimension_sections",
    "rope.scaling.alpha",
    "rope.scaling.yarn_log_multiplier",
    "deepstack_mapping",
    "hidden_activation",
    "dense_2_feat_in",
    "nextn_predict_layers",
    "decision.type",
)


class Keys:
    """The metadata of one architecture: values of {arch}.`key`, each checked.

    known: set of the keys that were read.
    """

    MAX_CONTEXT, MAX_WIDTH, MAX_CONV = MAX_CONTEXT, MAX_WIDTH, MAX_CONV
    MAX_HEADS, MAX_HEAD_DIM = MAX_HEADS, MAX_HEAD_DIM

    def __init__(self, file: Any, arch: str) -> None:
        self.file, self.arch = file, arch
        self.known: set[str] = set()

    def has(self, key: str) -> bool:
        """Whether the file has the key."""
        return f"{self.arch}.{key}" in self.file.metadata

    def scalar(self, key: str) -> tuple[Any, builtins.int]:
        """Return (value, type number) of a key. An array with one entry per block, all
        equal, counts as a scalar.

        DataError if the entries are not as many as the blocks; UnsupportedError if they
        differ.
        """
        name = f"{self.arch}.{key}"
        value, kind = self.file.metadata[name], self.file.kinds[name]
        if kind != ARRAY or isinstance(value, Unread) or value.kind in (STRING, ARRAY):
            return value, kind
        entries = value.values(MAX_LAYERS + 1)
        n_layer = value.n if key == "block_count" else self.int("block_count", 1, MAX_LAYERS)
        if not entries or value.n != n_layer or key == "block_count" and entries[0] != n_layer:
            raise self.data_error(key, f"{describe(value, kind)}, not one for each block")
        if any(entry != entries[0] for entry in entries):
            raise self.unsupported_error(
                f"{key} differs from block to block: not supported by this build"
            )
        return entries[0], value.kind

    def data_error(self, key: str, problem: str) -> Error:
        """A DataError that names file and key."""
        return self.file.data_error(f"{self.arch}.{key}: {problem}")

    def unsupported_error(self, problem: str) -> Error:
        """An UnsupportedError that names the file; the text begins with a key."""
        return unsupported_error(self.file.path, f"{self.arch}.{problem}")

    def _get(self, key, kind, default):
        self.known.add(key)
        scalar = self.scalar(key) if self.has(key) else None
        return self.file.get(f"{self.arch}.{key}", kind, default, scalar)

    def int(
        self, key: str, minimum: builtins.int, maximum: builtins.int, default: Any = ...
    ) -> builtins.int:
        """Return an int within `minimum` to `maximum`, or the default. DataError."""
        value = self._get(key, "u32", default)
        if self.has(key) and not minimum <= value <= maximum:
            raise self.data_error(key, f"{value} is not within {minimum} to {maximum}")
        return value

    def ints(
        self, key: str, minimum: builtins.int, maximum: builtins.int, default: Any = ...
    ) -> list[builtins.int]:
        """Return an int for each block, from one number or an array. DataError."""
        name, n_layer = f"{self.arch}.{key}", self.int("block_count", 1, MAX_LAYERS)
        value = self.file.metadata.get(name)
        if not isinstance(value, Array) or value.kind in (STRING, ARRAY):
            return [self.int(key, minimum, maximum, default)] * n_layer
        self.known.add(key)
        if value.n != n_layer:
            raise self.data_error(key, f"{describe(value, ARRAY)}, not one for each block")
        out = [self.file.get(name, "u32", default, (entry, value.kind)) for entry in value.values()]
        for i, entry in enumerate(out):
            if not minimum <= entry <= maximum:
                raise self.data_error(
                    key, f"{entry} of block {i} is not within {minimum} to {maximum}"
                )
        return out

    def bools(self, key: str) -> list[bool]:
        """Return a bool for each block, from an array. DataError."""
        n_layer = self.int("block_count", 1, MAX_LAYERS)
        self.known.add(key)
        value = self.file.get(f"{self.arch}.{key}", "[bool]")
        if value.n != n_layer:
            raise self.data_error(key, f"{describe(value, ARRAY)}, not one for each block")
        return [bool(entry) for entry in value.values()]

    def numbers(self, key: str) -> list[builtins.int]:
        """Return the ints of an array, at most MAX_LAYERS. DataError."""
        self.known.add(key)
        name = f"{self.arch}.{key}"
        value = self.file.metadata.get(name)
        if (
            isinstance(value, Unread)
            or not isinstance(value, Array)
            or value.kind in (STRING, ARRAY)
        ):
            raise self.data_error(key, "missing, or no array of integers")
        entries = value.values(MAX_LAYERS)
        if any(not isinstance(n, int) for n in entries):
            raise self.data_error(key, "missing, or no array of integers")
        return list(entries)

    def float(
        self, key: str, above: builtins.float, below: builtins.float, default: Any = ...
    ) -> builtins.float:
        """Return a float above `above` and below `below`, or the default. DataError."""
        value = self._get(key, "f32", default)
        if not above < value < below:  # false for NaN
            raise self.data_error(key, f"{value} is not within {above:g} to {below:g}")
        return value

    def text(self, key: str, default: Any) -> str:
        """Return a string, or the default."""
        return self._get(key, "string", default)

    def period(self, key: str, usual: builtins.int) -> builtins.int:
        """Return the period of global blocks: every how many blocks one is global.

        The key is a number, or an array of bools that are true for local blocks; then the
        period must be `usual`. DataError, UnsupportedError.
        """
        if self.has(key) and self.file.kinds[f"{self.arch}.{key}"] == ARRAY:
            found = self.bools(key)
            if found != [i % usual != usual - 1 for i in range(len(found))]:
                raise self.unsupported_error(
                    f"{key} other than {usual - 1} local to one global block"
                )
            return usual
        return self.int(key, 1, MAX_LAYERS, usual)

    def cap(self, key: str, default: builtins.float = 0.0) -> builtins.float:
        """Return a soft cap; 0: none. DataError."""
        value = self._get(key, "f32", default)
        if value and not MIN_CAP <= value <= MAX_CAP:
            raise self.data_error(key, f"{value} is not within {MIN_CAP:g} to {MAX_CAP:g}")
        return value

    def flag(self, key: str, default: bool) -> bool:
        """Return a bool, or the default. DataError."""
        return self._get(key, "bool", default)

    def refuse_unknown(self) -> None:
        """UnsupportedError if a key that changes results is set and was not read."""
        for key in CHANGES:
            value = self.file.metadata.get(f"{self.arch}.{key}")
            if key not in self.known and (
                any(value.values(MAX_LAYERS)) if isinstance(value, Array) else value
            ):
                raise self.unsupported_error(f"{key} is set: not supported by this build")
        if self.file.metadata.get(f"{self.arch}.attention.causal", True) is not True:
            raise self.unsupported_error("attention.causal is false: not supported by this build")


class Block:
    """Sizes of one block, as in Hparams, for models whose blocks differ. Without attention
    n_head_kv and head_dim are 0. sizes: others of architecture.SIZES.
    """

    def __init__(self, h: Any, n_ff: int, n_head_kv: int, head_dim: int, **sizes: int) -> None:
        self.n_embd, self.n_head, self.n_ple = h.n_embd, h.n_head, getattr(h, "n_ple", 0)
        self.n_ff, self.n_head_kv, self.head_dim = n_ff, n_head_kv, head_dim
        self.__dict__.update(sizes)

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> int: ...


class Hparams:
    """The hyperparameters; every number is within the limits above. DataError,
    UnsupportedError.

    arch, architecture       general.architecture, and its record (architecture.Architecture)
    n_ctx                    trained context, positions
    n_vocab                  rows of token_embd.weight
    n_layer, n_embd, n_ff    blocks, model width, feed-forward width; n_unused: blocks of the file
                             that are not run
    n_head, n_head_kv        query heads, key-value heads
    head_dim, n_rot          elements of a head, and how many of them RoPE rotates
    eps                      of the RMS norms
    blocks                   sizes of each block if blocks differ, else None; n_ff and n_head_kv are
                             then the largest, head_dim and n_rot those of global blocks
    kv_layers                for each block the keys and values it uses, by their number: the block
                             that stores them, or with states the how manieth such block; -1: none.
                             n_kv: how many blocks store some
    states                   floats of the state that each block keeps, 0: none; state_of: the
                             number of each block's state, or None; n_state: how many there are
    last_stored              the last block that stores keys and values or has a state
    n_ple                    elements of an embedding row for each block (Gemma 4); 0: none
    rope, rope_local         Rope of global blocks; of local blocks, None: the same
    n_rot_local              n_rot of local blocks
    windows                  window of each block, or None: by window and pattern
    window, pattern          positions in a local block's window (0: all); block i is global if
                             i % pattern == pattern - 1 (pattern 0: none is)
    scale                    of attention scores
    attn_cap, final_cap      soft caps of scores and of logits (0: none)
    embedding_scale, residual_scale, logit_scale    factors of embedding rows and of what a part of
                             a block adds; divisor of logits
    sharpening               (beta, n_ctx): Forward.sharpen; None: none
    has_rope                 whether any block has RoPE
    """

    def __init__(self, file: Any) -> None:
        self.arch = arch = file.get("general.architecture", "string")
        record = architectures.find(arch)
        if record is None:
            raise unsupported_error(
                file.path,
                f"architecture {printable(arch)}; this build runs "
                + ", ".join(architectures.names()),
            )
        self.architecture = record
        keys = Keys(file, arch)
        embd = file.tensors.get("token_embd.weight")
        if embd is None or len(embd.dims) < 2 or len(embd.shape) > 2:
            raise file.data_error(
                "tensor token_embd.weight is missing or not a matrix: not a model"
            )
        self.n_vocab = embd.dims[1]
        self.n_layer = keys.int("block_count", 1, MAX_LAYERS)
        self.n_unused = 0
        if record.unused_blocks:
            self.n_unused = keys.int(record.unused_blocks, 0, self.n_layer - 1, 0)
            self.n_layer -= self.n_unused
        self.n_embd = keys.int("embedding_length", 1, MAX_WIDTH)
        self.n_ff = self._largest(keys, "feed_forward_length", MAX_WIDTH)
        self.n_ctx = keys.int("context_length", 1, MAX_CONTEXT)
        self._read_heads(keys)
        self._check_vocab(keys)
        self.eps = keys.float("attention.layer_norm_rms_epsilon", 0.0, 1.0)
        self.scale = 1.0 / math.sqrt(self.head_dim)
        self.window = self.pattern = 0
        self.attn_cap = self.final_cap = 0.0
        self.embedding_scale = self.residual_scale = self.logit_scale = 1.0
        self.sharpening: tuple[float, int] | None = None
        self.has_rope, self.n_ple = True, 0
        self.blocks: list[Block] | None = None
        self.windows: list[int] | None = None
        self.kv_layers, self.n_rot_local = list(range(self.n_layer)), self.n_rot
        self.states = [0] * self.n_layer
        self.rope: Rope = read_rope(keys, file.tensors, self.n_ctx)
        self.rope_local: Rope | None = None
        record.rules(self, keys)
        self._count_stored(keys)
        keys.refuse_unknown()

    def _count_stored(self, keys):
        self.n_kv = 1 + max(self.kv_layers)
        if not self.n_kv:
            raise keys.unsupported_error("attention.head_count_kv: no block has attention")
        blocks = [i for i, n in enumerate(self.states) if n]
        self.n_state, self.state_floats = len(blocks), max(self.states)
        self.state_of = [blocks.index(i) if n else None for i, n in enumerate(self.states)]
        self.last_stored = self.n_layer - 1 if blocks else self.n_kv - 1

    def _largest(self, keys, key, maximum, default=...):
        if key in self.architecture.varies:
            return max(1, *keys.ints(key, 0, maximum, default))
        return keys.int(key, 1, maximum, default)

    def _read_heads(self, keys):
        self.n_head = keys.int("attention.head_count", 1, MAX_HEADS)
        self.n_head_kv = self._largest(keys, "attention.head_count_kv", self.n_head, self.n_head)
        if self.n_head % self.n_head_kv:
            raise keys.data_error(
                "attention.head_count_kv",
                f"{self.n_head_kv} does not divide head_count {self.n_head}",
            )
        if not keys.has("attention.key_length") and self.n_embd % self.n_head:
            raise keys.data_error(
                "attention.head_count",
                f"{self.n_head} does not divide embedding_length {self.n_embd}",
            )
        self.head_dim = keys.int(
            "attention.key_length", 2, MAX_HEAD_DIM, self.n_embd // self.n_head
        )
        if self.head_dim % 2 or not 2 <= self.head_dim <= MAX_HEAD_DIM:
            raise keys.data_error(
                "attention.key_length",
                f"{self.head_dim} is not an even number up to {MAX_HEAD_DIM}",
            )
        if keys.int("attention.value_length", 2, MAX_HEAD_DIM, self.head_dim) != self.head_dim:
            raise keys.unsupported_error("attention.value_length other than key_length")
        self.n_rot = keys.int("rope.dimension_count", 2, self.head_dim, self.head_dim)
        if self.n_rot % 2:
            raise keys.data_error("rope.dimension_count", f"{self.n_rot} is odd")

    def _check_vocab(self, keys):
        file = keys.file
        if keys.int("vocab_size", 1, MAX_VOCAB, self.n_vocab) != self.n_vocab:
            raise keys.data_error("vocab_size", f"token_embd.weight has {self.n_vocab} rows")
        if self.n_vocab > MAX_VOCAB:
            raise file.data_error(f"tensor token_embd.weight: {self.n_vocab} rows, more than 2^21")
        tokens = file.metadata.get("tokenizer.ggml.tokens")
        if tokens is not None and file.get("tokenizer.ggml.tokens", "[string]").n != self.n_vocab:
            raise file.data_error(
                f"tokenizer.ggml.tokens: {tokens.n} tokens, but token_embd.weight has"
                f" {self.n_vocab} rows"
            )

    def block(self, layer: int) -> Any:
        """Return the sizes of block `layer`: a Block, or this object if all are alike."""
        return self.blocks[layer] if self.blocks else self

    def shares(self, layer: int) -> bool:
        """Return whether block `layer` uses keys and values that an earlier block stores."""
        return 0 <= self.kv_layers[layer] in self.kv_layers[:layer]

    def window_of(self, layer: int) -> int:
        """Return the positions in the window of block `layer`; 0: all."""
        if self.windows:
            return self.windows[layer]
        return 0 if self.pattern and layer % self.pattern == self.pattern - 1 else self.window
