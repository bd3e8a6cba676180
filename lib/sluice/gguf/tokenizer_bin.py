"""tokenizer.bin, the vocabulary file of llama2.c: reader, and its tokenizer.ggml keys.

Layout, little-endian: i32 length of the longest token; for each token f32 score, i32 n_bytes and
the bytes. A space stands for U+2581 of SentencePiece; newlines enclose <s> and </s>.

Source: karpathy/llama2.c, tokenizer.py and run.c.
"""

import struct

from ..faults import data_error
from ..limits import MAX_VOCAB_FILE_BYTES
from .cursor import read_start

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

TOKEN = struct.Struct("<fi")
BOS, EOS = 1, 2


def read_vocab(path: str, n_vocab: int) -> tuple[list[bytes], list[float]]:
    """Return (tokens, scores) of a tokenizer.bin of `n_vocab` tokens.

    tokens: list of bytes, with U+2581 as in SentencePiece. scores: list of float. DataError.
    """
    return parse_vocab(path, vocab_bytes(path), n_vocab)


def vocab_bytes(path: str) -> bytes:
    """Return the bytes of the tokenizer.bin at `path`. DataError."""
    data = read_start(path, MAX_VOCAB_FILE_BYTES + 1)
    if len(data) > MAX_VOCAB_FILE_BYTES:
        maximum = MAX_VOCAB_FILE_BYTES >> 20
        raise data_error(path, f"more than {maximum} MiB: not a tokenizer.bin")
    return data


def parse_vocab(path: str, data: bytes, n_vocab: int) -> tuple[list[bytes], list[float]]:
    """`read_vocab` of the bytes `data`; `path` is for messages."""
    at, tokens, scores = 4, [], []
    for i in range(n_vocab):
        if at + TOKEN.size > len(data):
            raise data_error(path, f"ends after {i} tokens; the model has {n_vocab}")
        score, n = TOKEN.unpack_from(data, at)
        at += TOKEN.size
        if not 0 <= n <= len(data) - at:
            raise data_error(path, f"token {i}: length {n}, but {len(data) - at} bytes are left")
        if score - score != 0:
            raise data_error(path, f"token {i}: its score is {score}")
        tokens.append(data[at : at + n].replace(b" ", b"\xe2\x96\x81"))
        scores.append(score)
        at += n
    if at != len(data):
        raise data_error(
            path, f"{len(data) - at} bytes follow the last of {n_vocab} tokens: of another model"
        )
    for i in (BOS, EOS):
        if i < n_vocab:
            tokens[i] = tokens[i].strip(b"\n")
    return tokens, scores


def vocab_metadata(tokens: list[bytes], scores: list[float]) -> "dict[str, tuple[str, Any]]":
    """Return the tokenizer.ggml keys of a llama2.c vocabulary: dict key -> (kind, value).

    Tokens 0 to 2 are <unk>, <s> and </s>. The next 256 are bytes, if they are named <0x00> to
    <0xFF>.
    """
    n, first_byte = len(tokens), 3
    types = [2, 3, 3][:n] + [1] * (n - 3)
    if tokens[first_byte : first_byte + 256] == [b"<0x%02X>" % b for b in range(256)]:
        types[first_byte : first_byte + 256] = [6] * 256
    key = "tokenizer.ggml."
    return {
        key + "model": ("string", "llama"),
        key + "tokens": ("[string]", tokens),
        key + "scores": ("[f32]", scores),
        key + "token_type": ("[i32]", types),
        key + "bos_token_id": ("u32", BOS),
        key + "eos_token_id": ("u32", EOS),
        key + "unknown_token_id": ("u32", 0),
        key + "add_bos_token": ("bool", True),
        key + "add_eos_token": ("bool", False),
    }
