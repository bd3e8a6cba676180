"""Vocabulary of a llama2.c checkpoint, in any of three formats, recognized by its first bytes."""

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
    """Return "bin" for a tokenizer.bin, "pb" for a Transformer of llama.proto, "model" for
    SentencePiece.
    """
    r = Reader(path)
    head = r.bytes(0, min(r.size, 64))
    # a length below 65,536; the third byte of a llama.proto message is never 0
    if head[2:4] == b"\0\0" or head[:1] != b"\n":
        return "bin"
    try:
        number, how, value = next(protobuf.Span(r, 0, r.size).fields())
        return "model" if next(value.fields())[1] == protobuf.BYTES else "pb"
    except StopIteration:
        return "pb"


def metadata(path: str, c: Any) -> Metadata:
    """Return the tokenizer.ggml keys of the vocabulary at `path`: dict key -> (kind, value).

    c: the llama2c.Config of its checkpoint. DataError if they do not fit.
    """
    kind_of_file = kind(path)
    if kind_of_file == "bin":
        return tokenizer_bin.vocab_metadata(*tokenizer_bin.read_vocab(path, c.vocab_size))
    if kind_of_file == "model":
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
    """Return tokens as in tokenizer.bin: a space for U+2581, newlines around BOS and EOS."""
    out = [t.replace(b"\xe2\x96\x81", b" ") for t in tokens]
    for i in (tokenizer_bin.BOS, tokenizer_bin.EOS):
        if i < len(out):
            out[i] = b"\n" + out[i] + b"\n"
    return out


def bin_bytes(tokens: Any, scores: Any) -> bytes:
    """Return the bytes of a tokenizer.bin. tokens, scores: as in a GGUF."""
    tokens = tokens_as_bin(tokens)
    longest = max(map(len, tokens)).to_bytes(4, "little")
    return longest + b"".join(
        tokenizer_bin.TOKEN.pack(score, len(t)) + t for t, score in zip(tokens, scores)
    )
