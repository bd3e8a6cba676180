"""Token index of a vocabulary: checks the tokens of a file and finds them by text
(csrc/tokenizer/vocab_scan.c).
"""

import os

from ..faults import printable, unsupported_error
from ..kernels import ffi, lib
from ..limits import MAX_VOCAB
from .pieces import END_MARKS, KEY, new_raw, usual_types, wrong

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..gguf import File
    from ..gguf.metadata import Array

MAX_TRIE_BYTES = 1 << 22  # of all control and user defined texts
MAX_USER_TEXT = 3 * 1024  # bytes of one user defined text
WRONG_TOKEN = {  # by the result of vocab_scan: key, reason
    1: ("scores", "its score is not finite"),
    2: ("token_type", "its type is not one of 1 to 6"),
    3: ("tokens", "is of type byte but not of the form <0x41>"),
    6: ("token_type", "its type is byte, but every token of model gpt2 is bytes"),
    7: ("tokens", "is of type user defined and not UTF-8"),
}


def check_sizes(file: "File", n_vocab: int) -> None:
    """DataError if `n_vocab` tokens are too many, or differ from the rows of the model's
    matrices.
    """
    if not 1 <= n_vocab <= MAX_VOCAB:
        raise wrong(file, "tokens", f"{n_vocab} tokens, not 1 to {MAX_VOCAB}")
    for name in ("token_embd.weight", "output.weight"):
        tensor = file.tensors.get(name)
        if tensor and (len(tensor.shape) > 2 or len(tensor.dims) < 2 or tensor.dims[1] != n_vocab):
            raise wrong(
                file,
                "tokens",
                f"{n_vocab} tokens, but {name} has the shape {list(tensor.dims)}",
            )


def enter(file: "File", index: "Any", tokens: "Array", of_keys: "Any") -> "list[Any]":
    """Enter `tokens`, an Array of strings of a gguf.File, into `index` (a C vocab *).

    of_keys: results of special.named for special.NAMES; these are control tokens whatever their
    type. Returns a list of the objects that must live as long as `index`. Error 65 or 69 names
    the key and the token.
    """
    alive = _scan(file, index, tokens, of_keys)
    return alive + _find_texts(file, index)


def text_of(index: "Any", i: int) -> bytes:
    """Return the text of token `i` as the file has it (bytes), but with U+2581 for the spaces
    of a user defined piece.
    """
    piece = index.piece[i]
    texts = index.respelt if piece.flags & lib.PIECE_RESPELT else index.tokens
    return bytes(ffi.buffer(texts + piece.at, piece.n_bytes))


def _same_length(file, n_vocab, key, kind, default):
    """Return the elements of an array that is parallel to the tokens, for C; `default`() if it
    is absent.
    """
    found = file.get(KEY + key, kind, None)
    if found is None:
        return ffi.from_buffer("uint8_t[]", default())
    if found.n != n_vocab:
        raise wrong(file, key, f"{found.n} elements for {n_vocab} tokens")
    return ffi.from_buffer("uint8_t[]", found.raw)


def _scan(file, index, tokens, of_keys):
    n_vocab, scores = tokens.n, ffi.NULL
    if index.model == lib.VOCAB_SPM:
        scores = _same_length(file, n_vocab, "scores", "[f32]", lambda: bytes(4 * n_vocab))
    types = _same_length(
        file, n_vocab, "token_type", "[i32]", lambda: usual_types(file, tokens.values())
    )
    raw, pieces = ffi.from_buffer("uint8_t[]", tokens.raw), new_raw("vocab_piece[]", n_vocab)
    marks = ffi.from_buffer("uint8_t[]", b"\0" + b"\0".join(END_MARKS) + b"\0")
    respelt = new_raw("uint8_t[]", min(3 * len(raw), MAX_TRIE_BYTES + MAX_USER_TEXT))
    index.tokens, index.tokens_bytes, index.n_vocab = raw, len(raw), n_vocab
    index.scores, index.types, index.piece = scores, types, pieces
    index.end_marks, index.end_marks_bytes = marks, len(marks)
    index.respelt, index.respelt_capacity = respelt, len(respelt)
    index.seed = int.from_bytes(os.urandom(8), "little")
    clash = ffi.new("vocab_clash *")
    status = lib.vocab_scan(clash, index, [-1 if i is None else i for i in of_keys], len(of_keys))
    _check_scan(file, index, status, clash)
    return [raw, scores, types, pieces, marks, respelt]


def _check_scan(file, index, status, clash):
    if status == 4:
        raise unsupported_error(
            file.path, f"{KEY}tokens: token {clash.id} has more than 1024 bytes"
        )
    if status == 5:
        raise wrong(file, "tokens", f"there are byte tokens, but <0x{clash.other:02X}> is missing")
    if status:
        key, problem = WRONG_TOKEN[status]
        raise wrong(file, key, f"token {clash.id}: {problem}")
    if index.trie_bytes > MAX_TRIE_BYTES:
        raise unsupported_error(
            file.path,
            f"{KEY}tokens: {index.trie_bytes} bytes of control and user defined tokens, "
            f"more than {MAX_TRIE_BYTES}",
        )


def _find_texts(file, index):
    clash = ffi.new("vocab_clash *")
    n_slot, n_edge = power_of_two(2 * index.n_vocab), power_of_two(2 * index.trie_bytes + 2)
    slots, edges = ffi.new("uint32_t[]", n_slot), ffi.new("uint64_t[]", n_edge)
    index.slot, index.slot_mask, index.edge, index.edge_mask = slots, n_slot - 1, edges, n_edge - 1
    if lib.vocab_index(clash, index):
        raise wrong(
            file,
            "tokens",
            f"token {clash.id} has the same text as token {clash.other}, "
            f"{printable(text_of(index, clash.id))}",
        )
    return [slots, edges]


def power_of_two(n: int) -> int:
    """Return the smallest power of two that is at least `n`."""
    return 1 << max(n - 1, 1).bit_length()
