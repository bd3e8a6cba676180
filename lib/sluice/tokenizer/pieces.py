"""Token types of a GGUF vocabulary, end-of-turn marks, and default types."""

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
END_MARKS = (  # tokens that end a turn, whatever their metadata
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
    b"<|tool_response>",
    b"<|return|>",
    b"<|call|>",
    b"<end_of_utterance>",
    b"<EOT>",
    b"_<EOT>",
    b"[EOT]",
)
# workspace: unused pages cost nothing
new_raw = ffi.new_allocator(should_clear_after_alloc=False)


def wrong(file: "File", key: str, problem: str) -> "Error":
    """A DataError (65) that names the file and `key`, without KEY."""
    return data_error(file.path, f"{KEY}{key}: {problem}")


def usual_types(file: "File", tokens: list[bytes]) -> bytes:
    """Return the bytes of an array of token types for a gguf.File without one.

    tokens: list of bytes. The unknown token and end-of-turn marks get their types, <0x00> to
    <0xFF> are bytes if all are there, and all others are normal.
    """
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
