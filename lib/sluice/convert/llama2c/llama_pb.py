"""llama.proto reader and writer: a message with config, vocabulary and perhaps weights."""

from __future__ import annotations

import struct
from typing import Any

from ...faults import Error, data_error, unsupported_error
from ...gguf import llama2c, tokenizer_bin
from ...limits import MAX_VOCAB_FILE_BYTES
from .. import protobuf, types
from ..reader import Reader
from ..tensor import Tensor
from .read import by_layer

CONFIG, WEIGHTS, TOKENIZER = 1, 2, 3
ROLES = {
    1: "token_embd",
    2: "attn_norm",
    3: "attn_q",
    4: "attn_k",
    5: "attn_v",
    6: "attn_output",
    7: "ffn_gate",
    8: "ffn_down",
    9: "ffn_up",
    10: "ffn_norm",
    11: "output_norm",
    12: "output",
}


class File:
    """A parsed Transformer. Error 65 or 69 names the field.

    config    dict of llama2c.FIELDS, or None
    vocab     (tokens, scores) as tokenizer_bin.read_vocab returns them, or None
    weights   dict: role -> protobuf.Span, or None
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.config: Any = None
        self.vocab: Any = None
        self.weights: Any = None
        r = Reader(path)
        for number, kind, value in protobuf.Span(r, 0, r.size).fields():
            name = {CONFIG: "config", WEIGHTS: "weights", TOKENIZER: "tokenizer"}.get(number)
            if name is None:
                continue  # a later version may add fields
            if kind != protobuf.BYTES:
                raise data_error(path, f"{name}: not a message")
            if getattr(self, "vocab" if number == TOKENIZER else name) is not None:
                raise unsupported_error(path, f"{name}: written in two pieces")
            if number == CONFIG:
                self.config = self._config(value)
            elif number == WEIGHTS:
                self.weights = self._weights(value)
            elif value.end - value.at > MAX_VOCAB_FILE_BYTES:
                raise data_error(path, f"tokenizer: more than {MAX_VOCAB_FILE_BYTES >> 20} MiB")
            else:
                self.vocab = self._vocab(protobuf.message(path, value.bytes()))

    def _config(self, span):
        out = dict.fromkeys(llama2c.FIELDS, 0)
        for number, kind, value in span.fields():
            if number <= len(llama2c.FIELDS):
                name = llama2c.FIELDS[number - 1]
                out[name] = protobuf.int32(kind, value, self.path, f"config.{name}")
        return out

    def _weights(self, span):
        out = {}
        for number, kind, value in span.fields():
            role = ROLES.get(number)
            if role and (kind != protobuf.BYTES or role in out):
                raise unsupported_error(
                    self.path, f"weights, field {number}: not in one packed piece"
                )
            if role:
                out[role] = value
        return out

    def _vocab(self, span):
        tokens, scores, n_vocab = [], [], None
        for number, kind, value in span.fields():
            if number == 1 and kind == protobuf.BYTES:
                token = value.bytes()
                if not is_utf8(token):
                    raise data_error(
                        self.path, f"tokenizer.vocab: token {len(tokens)} is not UTF-8"
                    )
                tokens.append(token.replace(b" ", b"\xe2\x96\x81"))
            elif number == 2:
                scores += protobuf.floats(kind, value, self.path, "tokenizer.scores")
            elif number == 3:
                n_vocab = protobuf.int32(kind, value, self.path, "tokenizer.vocab_sized")
        if not len(tokens) == len(scores) == (n_vocab or len(tokens)):
            raise data_error(
                self.path,
                f"tokenizer: {len(tokens)} tokens, {len(scores)} scores, vocab_sized {n_vocab}",
            )
        wrong = next((i for i, x in enumerate(scores) if x - x != 0), None)
        if wrong is not None:
            raise data_error(
                self.path, f"tokenizer.scores: that of token {wrong} is {scores[wrong]}"
            )
        for i in (tokenizer_bin.BOS, tokenizer_bin.EOS):
            if i < len(tokens):
                tokens[i] = tokens[i].strip(b"\n")
        return tokens, scores

    def tensors(self) -> tuple[llama2c.Config, list[Tensor]]:
        """Return (llama2c.Config, list of Tensor) of its weights."""
        if self.config is None or self.vocab is None:
            raise data_error(self.path, f"{'tokenizer' if self.config else 'config'} is missing")
        c: Any = llama2c.Config(self.path, self.config.values(), "output" not in self.weights, 0)
        out = []
        for name, role, _, n_bytes in by_layer(c):
            span = self.weights.get(role)
            n_all = n_bytes * (1 if role in llama2c.OUTSIDE else c.n_layers)
            if span is None or span.end - span.at != n_all:
                found = "missing" if span is None else f"{span.end - span.at} bytes"
                raise data_error(self.path, f"weights of {role}: {found}, expected {n_all}")
            at = span.at + (n_bytes * int(name.split(".")[1]) if role not in llama2c.OUTSIDE else 0)
            shape = c.shape(role)
            out.append(
                Tensor(
                    name,
                    shape,
                    "F32",
                    span.source.rows(types.STORED["F32"], at, shape[0]),
                    source=span.source,
                )
            )
        return c, out


def is_utf8(data: bytes) -> bool:
    """Whether `data` is valid UTF-8."""
    try:
        data.decode()
        return True
    except UnicodeDecodeError:
        return False


def file_bytes(config: Any, tokens: list[bytes], scores: Any) -> bytes:
    """Return the bytes of a Transformer without weights. config: object with llama2c.FIELDS;
    tokens as in tokenizer.bin.
    """
    numbers = b"".join(
        protobuf.put_int(i, getattr(config, name)) for i, name in enumerate(llama2c.FIELDS, 1)
    )
    vocab = b"".join(protobuf.put_bytes(1, token) for token in tokens) + protobuf.put_bytes(
        2, struct.pack(f"<{len(scores)}f", *scores)
    )
    vocab += protobuf.put_int(3, len(tokens)) + protobuf.put_int(4, max(map(len, tokens)))
    return protobuf.put_bytes(CONFIG, numbers) + protobuf.put_bytes(TOKENIZER, vocab)


def is_message(path: str) -> bool:
    """Whether the file begins like a Transformer message."""
    r = Reader(path)
    try:
        number, kind, value = next(protobuf.Span(r, 0, r.size).fields())
        return kind == protobuf.BYTES and next(value.fields())[1] == protobuf.VARINT
    except (Error, StopIteration):
        return False
