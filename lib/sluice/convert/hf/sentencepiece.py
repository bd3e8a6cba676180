"""SentencePiece reader: tokenizer.model as keys of tokenizer.ggml.

A ModelProto of google/sentencepiece, src/sentencepiece_model.proto: 1 pieces {1 piece, 2 score, 3
type}, 2 trainer_spec {3 model_type: 1 unigram, 2 BPE; 24 treat_whitespace_as_suffix; 35
byte_fallback; 40 unk_id, 41 bos_id, 42 eos_id, 43 pad_id}, 3 normalizer_spec {2
precompiled_charsmap, 3 add_dummy_prefix, 4 remove_extra_whitespaces, 5 escape_whitespaces}. Types
of pieces are numbered as in GGUF.
"""

from __future__ import annotations

import struct

from ...faults import data_error, unsupported_error
from ...limits import MAX_VOCAB, MAX_VOCAB_FILE_BYTES
from .. import protobuf
from ..reader import read_small
from ..tensor import Metadata


class Model:
    """A SentencePiece model.

    tokens (bytes), scores, types: lists; ids: dict of bos, eos, unknown, padding -> token ID;
    add_prefix, remove_extra: bool. DataError, UnsupportedError.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.tokens: list[bytes] = []
        self.scores: list[float] = []
        self.types: list[int] = []
        self.ids = {"unknown": 0, "bos": 1, "eos": 2, "padding": -1}
        self.add_prefix = self.remove_extra = True
        for number, kind, value in protobuf.message(
            path, read_small(path, MAX_VOCAB_FILE_BYTES)
        ).fields():
            if number in (1, 2, 3) and kind != protobuf.BYTES:
                raise data_error(path, f"field {number}: not a message: not a SentencePiece model")
            if number == 1:
                self._piece(value)
            elif number == 2:
                self._trainer(value)
            elif number == 3:
                self._normalizer(value)
        if not self.tokens:
            raise data_error(path, "has no pieces: not a SentencePiece model")
        for name, i in self.ids.items():
            if i >= len(self.tokens):
                raise data_error(path, f"{name}_id: {i} is not below the {len(self.tokens)} pieces")

    def _piece(self, span):
        label, token, score, type = f"piece {len(self.tokens)}", b"", 0.0, 1
        for number, kind, value in span.fields():
            if number == 1 and kind == protobuf.BYTES:
                token = value.bytes()
            elif number == 2 and kind == protobuf.FIXED32:
                (score,) = struct.unpack("<f", value)
            elif number == 3:
                type = protobuf.int32(kind, value, self.path, label)
        if score - score != 0 or not 1 <= type <= 6:
            raise data_error(self.path, f"{label}: score {score}, type {type}")
        if len(self.tokens) == MAX_VOCAB:
            raise data_error(self.path, f"more than {MAX_VOCAB} pieces")
        self.tokens.append(token), self.scores.append(score), self.types.append(type)

    def _trainer(self, span):
        model_type = 1
        for number, kind, value in span.fields():
            if number == 3:
                model_type = value
            elif number == 24 and value:
                raise unsupported_error(self.path, "trainer_spec.treat_whitespace_as_suffix")
            elif 40 <= number <= 43:
                name = ("unknown", "bos", "eos", "padding")[number - 40]
                self.ids[name] = protobuf.int32(kind, value, self.path, f"trainer_spec, {name} id")
        if model_type != 2:
            raise unsupported_error(
                self.path,
                f"trainer_spec.model_type {model_type if isinstance(model_type, int) else ''}: not"
                " BPE (2)",
            )

    def _normalizer(self, span):
        for number, kind, value in span.fields():
            if number == 2 and kind == protobuf.BYTES and value.end > value.at:
                raise unsupported_error(
                    self.path,
                    "normalizer_spec.precompiled_charsmap: text normalization other than identity",
                )
            if number == 3:
                self.add_prefix = bool(value)
            elif number == 4:
                self.remove_extra = bool(value)
            elif number == 5 and not value:
                raise unsupported_error(self.path, "normalizer_spec.escape_whitespaces = false")

    def metadata(self) -> Metadata:
        """Return the tokenizer.ggml keys: dict key -> (kind, value)."""
        key = "tokenizer.ggml."
        out: Metadata = {
            key + "model": ("string", "llama"),
            key + "pre": ("string", "default"),
            key + "tokens": ("[string]", self.tokens),
            key + "scores": ("[f32]", self.scores),
            key + "token_type": ("[i32]", self.types),
        }
        out.update({f"{key}{name}_token_id": ("u32", i) for name, i in self.ids.items() if i >= 0})
        out[key + "add_space_prefix"] = ("bool", self.add_prefix)
        if self.remove_extra:
            out[key + "remove_extra_whitespaces"] = ("bool", True)
        out[key + "add_bos_token"] = ("bool", self.ids["bos"] >= 0)
        out[key + "add_eos_token"] = ("bool", False)
        return out
