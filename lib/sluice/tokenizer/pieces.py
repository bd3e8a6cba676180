"""Tokens as a GGUF file has them: their kinds, which of them end a turn, and their types where the
file has none.
"""

from array import array

from ..faults import data_error
from ..kernels import ffi, lib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..faults import Error
    from ..gguf import File

KEY = "tokenizer.ggml."
UNKNOWN, CONTROL, MARKER, BYTE = (
    lib.PIECE_UNKNOWN,
    lib.PIECE_CONTROL,
    lib.PIECE_MARKER,
    lib.PIECE_BYTE,
)
NORMAL, ADDED, ADDED_MARKER = lib.PIECE_NORMAL, lib.PIECE_ADDED, lib.PIECE_ADDED_MARKER
TEXT_KINDS = (NORMAL, lib.PIECE_USER, MARKER, ADDED, ADDED_MARKER)
END_MARKS = (  # tokens that end a turn, whatever the metadata says of them
    b"</s>",
    b"<eos>",
    b"<|eot_id|>",
    b"<|eom_id|>",
    b"<|im_end|>",
    b"<|end|>",
    b"<|end_of_text|>",
    b"<|endoftext|>",
    b"<end_of_turn>",
    b"<turn|>",
    b"<|return|>",
    b"<|call|>",
    b"<end_of_utterance>",
    b"<EOT>",
    b"_<EOT>",
    b"[EOT]",
)
# work space: pages that are not used cost nothing
new_raw = ffi.new_allocator(should_clear_after_alloc=False)


def wrong(file: "File", key: str, what: str) -> "Error":
    """The Error (65) that `key`, without KEY, of a gguf.File has `what` wrong with it."""
    return data_error(file.path, f"{KEY}{key}: {what}")


def usual_types(file: "File", tokens: list[bytes]) -> bytes:
    """The bytes of an array of token types for a gguf.File that has none, of its `tokens` (list of
    bytes): the unknown token and those that end a turn are what they are, <0x00> to <0xFF> bytes if
    all are there, and all others normal."""
    types = array("i", [NORMAL]) * len(tokens)
    of_byte = {b"<0x%02X>" % b for b in range(256)}
    is_llama = file.get(KEY + "model", "string") == "llama"
    has_bytes = is_llama and of_byte <= set(tokens)
    for i, token in enumerate(tokens):
        if has_bytes and token in of_byte:
            types[i] = BYTE
        elif token in END_MARKS or is_llama and token == b"<s>":
            types[i] = CONTROL
    unknown = file.get(KEY + "unknown_token_id", "u32", 0)
    if is_llama and unknown < len(tokens):
        types[unknown] = UNKNOWN
    return types.tobytes()
