"""The vocabulary beside a checkpoint of llama2.c, whatever it is kept in: told apart by its first
bytes, not by its name.
"""

from __future__ import annotations

from typing import Any

from ...faults import data_error
from ...gguf import tokenizer_bin
from .. import protobuf
from ..hf import sentencepiece
from ..reader import Reader
from ..tensor import Metadata
from . import llama_pb


def kind(path: str) -> str:
    """ "bin" for a tokenizer.bin, "pb" for a Transformer of llama.proto, "model" for one of
    SentencePiece.
    """
    r = Reader(path)
    head = r.bytes(0, min(r.size, 64))
    # a length below 65,536; in a message of ours the third byte is none
    if head[2:4] == b"\0\0" or head[:1] != b"\n":
        return "bin"
    try:
        number, how, value = next(protobuf.Span(r, 0, r.size).fields())
        return "model" if next(value.fields())[1] == protobuf.BYTES else "pb"
    except StopIteration:
        return "pb"


def metadata(path: str, c: Any) -> Metadata:
    """The keys of tokenizer.ggml for the vocabulary at `path`, which must be that of `c`, a
    llama2c.Config: dict key -> (kind, value).
    """
    what = kind(path)
    if what == "bin":
        return tokenizer_bin.vocab_metadata(*tokenizer_bin.read_vocab(path, c.vocab_size))
    if what == "model":
        model = sentencepiece.Model(path)
        _check_size(path, len(model.tokens), c)
        return model.metadata()
    file = llama_pb.File(path)
    if file.vocab is None:
        raise data_error(path, "tokenizer is missing")
    for name, value in (file.config or {}).items():
        if value != getattr(c, name):
            raise data_error(
                path, f"config.{name}: {value}, but the checkpoint's header says {getattr(c, name)}"
            )
    _check_size(path, len(file.vocab[0]), c)
    return tokenizer_bin.vocab_metadata(*file.vocab)


def _check_size(path, n, c):
    if n != c.vocab_size:
        raise data_error(path, f"{n} tokens; the model has {c.vocab_size}")


def tokens_as_bin(tokens: Any) -> list[bytes]:
    """Tokens as tokenizer.bin has them: a blank for U+2581, newlines around BOS and EOS."""
    out = [t.replace(b"\xe2\x96\x81", b" ") for t in tokens]
    for i in (tokenizer_bin.BOS, tokenizer_bin.EOS):
        if i < len(out):
            out[i] = b"\n" + out[i] + b"\n"
    return out


def bin_bytes(tokens: Any, scores: Any) -> bytes:
    """The bytes of a tokenizer.bin. tokens, scores: as a GGUF has them."""
    tokens = tokens_as_bin(tokens)
    longest = max(map(len, tokens)).to_bytes(4, "little")
    return longest + b"".join(
        tokenizer_bin.TOKEN.pack(score, len(t)) + t for t, score in zip(tokens, scores)
    )
