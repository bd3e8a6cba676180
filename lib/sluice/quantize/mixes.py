"""Quantization mixes: the type of each tensor in a file of a kind such as Q8_0 or Q4_K_M.

A kind that is the name of a type applies to every matrix, the output head included. A mix, for
instance Q4_K_M, has two types; matrices in which an error costs more get the second, which has more
bits. The rules are those of llama.cpp's quantizer, for the architectures that this build runs:

    output head               the second type in every mix: output.weight, or token_embd.weight if
                              that is the output head
    attn_v, ffn_down   _M     the second type in the first and the last eighth of the blocks, and in
                              every third block between them
                       Q4_K_S Q5_K: attn_v in the first four blocks, ffn_down in the first eighth
    attn_qkv           _M     Q5_K in Q4_K_M, Q6_K in Q5_K_M

If a row is not a multiple of the type's block, SHORT has the replacement; if that does not fit
either, the type is F16. Vectors (norms, biases, RoPE factors) are F32. The small matrices of STAYS
keep their type.
"""

from __future__ import annotations

from ..kernels import ffi, lib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

FLOATS = ("F32", "F16", "BF16")
MIXES = {
    "Q4_K_S": ("Q4_K", "Q6_K"),
    "Q4_K_M": ("Q4_K", "Q6_K"),
    "Q5_K_S": ("Q5_K", "Q6_K"),
    "Q5_K_M": ("Q5_K", "Q6_K"),
}
SHORT = {
    "Q2_K": "Q4_0",
    "Q3_K": "Q4_0",
    "Q4_K": "Q5_0",
    "Q5_K": "Q5_1",
    "Q6_K": "Q8_0",
    "IQ4_XS": "IQ4_NL",
    **dict.fromkeys(("IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S"), "IQ4_NL"),
    "TQ1_0": "Q4_0",
    "TQ2_0": "Q4_0",
}
FILE_TYPES = {  # general.file_type
    "F32": 0,
    "F16": 1,
    "Q4_0": 2,
    "Q4_1": 3,
    "Q8_0": 7,
    "Q5_0": 8,
    "Q5_1": 9,
    "Q2_K": 10,
    "Q3_K": 11,
    "Q4_K_S": 14,
    "Q4_K": 14,
    "Q4_K_M": 15,
    "Q5_K_S": 16,
    "Q5_K": 16,
    "Q5_K_M": 17,
    "Q6_K": 18,
    "IQ2_XXS": 19,
    "IQ2_XS": 20,
    "IQ3_XXS": 23,
    "IQ1_S": 24,
    "IQ4_NL": 25,
    "IQ3_S": 26,
    "IQ2_S": 28,
    "IQ4_XS": 30,
    "IQ1_M": 31,
    "BF16": 32,
    "TQ1_0": 36,
    "TQ2_0": 37,
    "MXFP4": 38,
    "NVFP4": 39,
}
STAYS = (
    "_norm.",
    "ffn_gate_inp.",
    "position_embd.",
    "token_types.",
    "rope_",
    "ssm_conv1d.",
    "shortconv.conv.",
    "attn_rel_b.",
)
MAX_TYPE = 256


def numbers() -> dict[str, int]:
    """Return a dict: name of a GGML type -> its number, ascending; of the table in
    csrc/formats/types.h.
    """
    return {ffi.string(lib.type_name(i)).decode(): i for i in range(MAX_TYPE) if lib.type_block(i)}


def block_types(can: Callable[[int], int]) -> list[str]:
    """Return the names of those types in blocks for whose number `can`, a function of lib such as
    lib.encodable, returns 1; by number.
    """
    return [name for name, i in numbers().items() if lib.type_block(i) > 1 and can(i)]


def is_vector(dims: Sequence[int]) -> bool:
    """Return whether a tensor of `dims` (GGUF order) has one row."""
    return all(n == 1 for n in dims[1:])


def is_quantised(tensor: str, dims: Sequence[int]) -> bool:
    """Whether `tensor` is a matrix that gets the type of its file."""
    return (
        not is_vector(dims)
        and tensor.endswith(".weight")
        and not any(part in tensor for part in STAYS)
    )


def type_of(kind: str, tensor: str, dims: Sequence[int], n_layer: int, tied: bool) -> str:
    """Return the name of the type of `tensor` in a file of `kind`, a type or a mix.

    dims: GGUF order. n_layer: blocks of the model. tied: there is no output.weight, and the
    embedding is the output head.
    """
    if is_vector(dims):
        return "F32"
    return fitting(_wanted(kind, tensor, n_layer, tied), dims[0])


def fitting(kind: str, n: int) -> str:
    """Return type `kind`, or its replacement for rows of `n` elements."""
    known = numbers()
    if n % lib.type_block(known[kind]) and kind in SHORT:
        kind = SHORT[kind]
    return kind if n % lib.type_block(known[kind]) == 0 else "F16"


def _wanted(kind, tensor, n_layer, tied):
    if kind not in MIXES:
        return kind
    first, more = MIXES[kind]
    block, i, role = (tensor.split(".") + ["", ""])[:3]
    if block != "blk" or not i.isdigit():
        return more if tensor == ("token_embd.weight" if tied else "output.weight") else first
    i = int(i)
    if role == "attn_qkv" and kind.endswith("_M"):
        return "Q5_K" if first == "Q4_K" else "Q6_K"
    if not (role == "attn_v" or role.startswith("ffn_down")):
        return first
    if kind == "Q4_K_S":
        return "Q5_K" if i < (4 if role == "attn_v" else n_layer // 8) else first
    return more if kind.endswith("_M") and _needs_more_bits(i, n_layer) else first


def _needs_more_bits(i, n_layer):
    """Whether block `i` is in the first or last eighth, or a third block between them."""
    begin, end = n_layer // 8, 7 * n_layer // 8
    return not begin <= i < end or (i - begin) % 3 == 2
