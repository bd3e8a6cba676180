"""SentencePiece models for the tests: read a `.model`, write one, and turn one into GGUF metadata.

A `.model` is a protocol buffer (sentencepiece_model.proto of google/sentencepiece). Of its fields
these are used: 1 pieces {1 text, 2 score f32, 3 type}; 2 trainer_spec {3 model_type (2: BPE), 35
byte_fallback, 40..43 tokens of unk, bos, eos, pad}; 3 normalizer_spec {3 add_dummy_prefix, 4
remove_extra_whitespaces}.
"""

import lzma
import struct

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)


class Model:
    """pieces: list of (text in bytes, score, type); the rest are the flags of the same names."""

    def __init__(
        self, pieces, byte_fallback=True, add_dummy_prefix=True, remove_extra_whitespaces=False
    ):
        self.pieces, self.byte_fallback = list(pieces), byte_fallback
        self.add_dummy_prefix, self.remove_extra_whitespaces = (
            add_dummy_prefix,
            remove_extra_whitespaces,
        )

    def __repr__(self):
        pieces = [p for p in self.pieces if p[2] != BYTE]
        return (
            f"Model({pieces}, {self.byte_fallback}, {self.add_dummy_prefix},"
            f" {self.remove_extra_whitespaces})"
        )

    def gguf(self, **more):
        """Metadata for write_gguf; `more` adds or replaces keys of tokenizer.ggml (KEY=None leaves
        one out).
        """
        texts, scores, types = zip(*self.pieces)
        first = lambda text: texts.index(text) if text in texts else 0xFFFFFFFF
        keys = {
            "model": ("string", "llama"),
            "tokens": ("[string]", texts),
            "scores": ("[f32]", scores),
            "token_type": ("[i32]", types),
            "bos_token_id": ("u32", first(b"<s>")),
            "eos_token_id": ("u32", first(b"</s>")),
            "unknown_token_id": ("u32", types.index(UNKNOWN)),
            "add_bos_token": ("bool", b"<s>" in texts and CONTROL in types),
            "add_space_prefix": ("bool", self.add_dummy_prefix),
            "remove_extra_whitespaces": ("bool", self.remove_extra_whitespaces),
            **more,
        }
        return {
            "general.architecture": ("string", "llama"),
            **{f"tokenizer.ggml.{k}": v for k, v in keys.items() if v is not None},
        }

    def proto(self):
        """The bytes of a `.model`."""
        texts = [p[0] for p in self.pieces]
        tokens = [(40, [p[2] for p in self.pieces].index(UNKNOWN)), (41, -1), (42, -1), (43, -1)]
        tokens[1:3] = [
            (41, texts.index(b"<s>") if b"<s>" in texts else -1),
            (42, texts.index(b"</s>") if b"</s>" in texts else -1),
        ]
        out = b"".join(
            field(1, field(1, t) + tag(2, 5) + struct.pack("<f", s) + field(3, k))
            for t, s, k in self.pieces
        )
        out += field(
            2,
            field(3, 2)
            + field(35, int(self.byte_fallback))
            + b"".join(field(n, i) for n, i in tokens),
        )
        out += field(
            3,
            field(1, b"identity")
            + field(3, int(self.add_dummy_prefix))
            + field(4, int(self.remove_extra_whitespaces))
            + field(5, 1),
        )
        return out


def varint(n):
    n &= (1 << 64) - 1
    out = bytearray()
    while n > 127:
        out.append(n & 127 | 128)
        n >>= 7
    return bytes([*out, n])


def tag(number, wire):
    return varint(number << 3 | wire)


def field(number, value):
    """An integer or a string field."""
    return (
        tag(number, 0) + varint(value)
        if isinstance(value, int)
        else tag(number, 2) + varint(len(value)) + value
    )


def fields(data):
    """(number, value) of every field of a message: int, or bytes."""
    at = 0

    def number():
        nonlocal at
        n = shift = 0
        while True:
            byte, at = data[at], at + 1
            n |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return n

    while at < len(data):
        head = number()
        wire = head & 7
        if wire == 0:
            yield head >> 3, number()
        else:
            n_bytes = {1: 8, 2: None, 5: 4}[wire]
            n_bytes = number() if n_bytes is None else n_bytes
            yield head >> 3, bytes(data[at : at + n_bytes])
            at += n_bytes


def read(path):
    """The Model of a `.model` file."""
    model = Model([], byte_fallback=False)
    for number, value in fields(path.read_bytes()):
        if number == 1:
            piece = dict(fields(value))
            model.pieces.append(
                (piece[1], struct.unpack("<f", piece.get(2, bytes(4)))[0], piece.get(3, NORMAL))
            )
        elif number == 2:
            model.byte_fallback = bool(dict(fields(value)).get(35, 0))
        elif number == 3:
            spec = dict(fields(value))
            assert not spec.get(2), "this model has a charsmap"
            model.add_dummy_prefix, model.remove_extra_whitespaces = (
                bool(spec.get(3, 1)),
                bool(spec.get(4, 1)),
            )
    return model


def read_table(path):
    """The Model of a table `id, type, score, piece`, tab separated and escaped, compressed with
    xz.
    """
    unescape = {"\\\\": "\\", "\\n": "\n", "\\t": "\t", "\\r": "\r"}
    pieces = []
    for line in lzma.decompress(path.read_bytes()).decode().split("\n")[:-1]:
        _, kind, score, text = line.split("\t")
        if "\\" in text:
            pairs = iter(text)
            text = "".join(unescape["\\" + next(pairs)] if c == "\\" else c for c in pairs)
        pieces.append((text.encode(), float(score), int(kind)))
    return Model(pieces, add_dummy_prefix=False)
