"""llama2.c checkpoint file format: header, tensor order, sizes.

Little-endian. Versions:

    0       i32[7] dim, hidden_dim, n_layers, n_heads, n_kv_heads, vocab_size (negative: the output
            head has weights of its own), seq_len; f32 tensors in the order of ORDER_0. `rope`
            stands for two unused tables, cos and sin, [seq_len, head_dim / 2] each
    -1      as 0, but the seven matrices of a layer and the output head are bf16; the embedding is
            f32
    -2      as -1, each bf16 matrix [n_out, n_in] stored by columns. Neither size nor header
            distinguishes -1 and -2
    1       "24ka", i32 1, the seven numbers (vocab_size positive), u8 1 if the output head is the
            embedding, zeros to byte 256; f32 tensors in the order of ORDER_1
    2       as 1 with i32 2, and i32 group after the u8. Vectors are f32. A matrix is int8 for all
            its elements, then f32 scales, one for each `group` consecutive elements

A role of ORDER_* stands for all layers, one after the other. Rows of wq and wk are in the order
that rotates neighbours, as in a GGUF of llama, so no rows are permuted. The RMS epsilon is always
1e-5, the RoPE base 10000.

Source: karpathy/llama2.c, export.py and run.c (versions 0, 1 and 2); SX-Aurora/ve-llama2.c,
export.py (-1 and -2).
"""

import os
import struct

from .. import limits
from ..faults import data_error, unsupported_error
from .cursor import read_start

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

MAGIC = b"24ka"
NUMBERS = struct.Struct("<7i")
VERSIONED = struct.Struct("<4si7iBi")  # the last is the group of version 2
FIELDS = ("dim", "hidden_dim", "n_layers", "n_heads", "n_kv_heads", "vocab_size", "seq_len")
LIMITS = (
    limits.MAX_WIDTH,
    limits.MAX_WIDTH,
    limits.MAX_LAYERS,
    limits.MAX_HEADS,
    limits.MAX_HEADS,
    limits.MAX_VOCAB,
    limits.MAX_CONTEXT,
)
HEADER_BYTES = {0: 28, -1: 28, -2: 28, 1: 256, 2: 256}
EPS, ROPE_BASE = 1e-5, 10000.0

MATRICES = {
    "attn_q",
    "attn_k",
    "attn_v",
    "attn_output",
    "ffn_gate",
    "ffn_down",
    "ffn_up",
    "token_embd",
    "output",
}
ORDER_0 = (
    "token_embd",
    "attn_norm",
    "attn_q",
    "attn_k",
    "attn_v",
    "attn_output",
    "ffn_norm",
    "ffn_gate",
    "ffn_down",
    "ffn_up",
    "output_norm",
    "rope",
    "output",
)
ORDER_1 = (
    "attn_norm",
    "ffn_norm",
    "output_norm",
    "token_embd",
    "attn_q",
    "attn_k",
    "attn_v",
    "attn_output",
    "ffn_gate",
    "ffn_down",
    "ffn_up",
    "output",
)
OUTSIDE = ("token_embd", "output_norm", "rope", "output")  # of the layers


class Config:
    """The checked numbers of a header: FIELDS, `tied`, `version`, and `group` (0 unless version
    2).
    """

    dim: int
    hidden_dim: int
    n_layers: int
    n_heads: int
    n_kv_heads: int
    vocab_size: int
    seq_len: int

    def __init__(
        self, path: str, numbers: "Sequence[int]", tied: bool, version: int, group: int = 0
    ) -> None:
        for field, value, maximum in zip(FIELDS, numbers, LIMITS):
            if not 1 <= value <= maximum:
                raise data_error(path, f"{field}: {value} is not within 1 to {maximum}")
            setattr(self, field, value)
        for of, by in (("dim", "n_heads"), ("n_heads", "n_kv_heads")):
            if getattr(self, of) % getattr(self, by):
                raise data_error(
                    path, f"{by}: {getattr(self, by)} does not divide {of} {getattr(self, of)}"
                )
        self.tied, self.version, self.group = tied, version, group
        self.head_dim = self.dim // self.n_heads
        if self.head_dim % 2:
            raise data_error(path, f"n_heads: heads of {self.head_dim} elements, an odd number")
        if version == 2 and not (1 <= group <= self.dim and not self.dim % group):
            raise data_error(path, f"group size: {group} does not divide dim {self.dim}")

    def shape(self, role: str) -> tuple[int, ...]:
        """Return the dimensions of a tensor of `role` in GGUF order: row length first."""
        d, kv, ff = self.dim, self.n_kv_heads * self.head_dim, self.hidden_dim
        return {
            "attn_q": (d, d),
            "attn_k": (d, kv),
            "attn_v": (d, kv),
            "attn_output": (d, d),
            "ffn_gate": (d, ff),
            "ffn_down": (ff, d),
            "ffn_up": (d, ff),
            "token_embd": (d, self.vocab_size),
            "output": (d, self.vocab_size),
            "rope": (self.head_dim, self.seq_len),
        }.get(role, (d,))

    def parts(self) -> tuple[list[tuple[str, str, int, int]], int]:
        """Return (list of (name, role, offset, n_bytes) in file order, size of the file in
        bytes).

        Names end in ".weight", except that of `rope`.
        """
        at, out = HEADER_BYTES[self.version], []
        for role in ORDER_0 if self.version <= 0 else ORDER_1:
            if role == "output" and self.tied:
                continue
            n = self.n_bytes(role)
            for i in range(1 if role in OUTSIDE else self.n_layers):
                name = (
                    role
                    if role == "rope"
                    else f"{role}.weight"
                    if role in OUTSIDE
                    else f"blk.{i}.{role}.weight"
                )
                out.append((name, role, at, n))
                at += n
        return out, at

    def n_bytes(self, role: str) -> int:
        """Return the bytes of one tensor of `role`."""
        n = 1
        for d in self.shape(role):
            n *= d
        if role in MATRICES and self.version == 2:
            return n + 4 * -(-n // self.group)
        return (2 if role in MATRICES and role != "token_embd" and self.version < 0 else 4) * n

    def metadata(self) -> "dict[str, tuple[str, Any]]":
        """Return the GGUF metadata of this model without the vocabulary: dict key -> (kind,
        value).
        """
        return {
            "general.architecture": ("string", "llama"),
            "llama.context_length": ("u32", self.seq_len),
            "llama.embedding_length": ("u32", self.dim),
            "llama.block_count": ("u32", self.n_layers),
            "llama.feed_forward_length": ("u32", self.hidden_dim),
            "llama.attention.head_count": ("u32", self.n_heads),
            "llama.attention.head_count_kv": ("u32", self.n_kv_heads),
            "llama.attention.layer_norm_rms_epsilon": ("f32", EPS),
            "llama.rope.dimension_count": ("u32", self.head_dim),
            "llama.rope.freq_base": ("f32", ROPE_BASE),
            "llama.vocab_size": ("u32", self.vocab_size),
        }


def read_config(path: str, head: bytes, size: int, version: int | None = None) -> "Config":
    """Return the Config of a checkpoint of `size` bytes that begins with `head`.

    version: the version that the user names, or None. DataError if size and header do not fit,
    or if the user must name the version (-1 or -2). UnsupportedError for an unknown version.
    """
    if head[:4] == MAGIC and len(head) >= VERSIONED.size:
        _, found, *numbers, tied, group = VERSIONED.unpack_from(head)
        if found not in (1, 2):
            raise unsupported_error(
                path, f"version: llama2.c checkpoint {found}; this build reads 0, 1, 2, -1 and -2"
            )
        if tied > 1:
            raise data_error(path, f"shared classifier: {tied} is not 0 or 1")
        c = Config(path, numbers, bool(tied), found, group if found == 2 else 0)
    else:
        if len(head) < NUMBERS.size:
            raise data_error(
                path, f"{size} bytes: too short for the header of a llama2.c checkpoint"
            )
        numbers = list(NUMBERS.unpack_from(head))
        tied, numbers[5] = numbers[5] > 0, abs(numbers[5])
        c = Config(path, numbers, tied, 0)
        if version is None:
            if size == Config(path, numbers, tied, -1).parts()[1]:
                raise data_error(
                    path,
                    "matrices are bf16, by rows (version -1) or columns (-2): the header does not"
                    " say which; give gguf-convert --from -1 or --from -2",
                )
        elif version < 0:
            c = Config(path, numbers, tied, version)
    if version is not None and version != c.version:
        raise data_error(path, f"is of version {c.version}, not {version}")
    expected = c.parts()[1]
    if size != expected:
        raise data_error(
            path,
            f"has {size} bytes; its header, of version {c.version}, means {expected}"
            + (": cut" if size < expected else ""),
        )
    return c


def looks_like(path: str) -> bool:
    """Whether the file begins like a llama2.c checkpoint."""
    try:
        read_config(path, read_start(path, VERSIONED.size), os.path.getsize(path))
    except Exception:
        return False
    return True
