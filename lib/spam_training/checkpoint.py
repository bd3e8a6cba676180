"""The initial checkpoint of a training: a GGUF file that export.write() wrote."""

from __future__ import annotations

import hashlib
from collections import namedtuple
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from sluice import gguf
from sluice.faults import data_error, unsupported_error

from . import augmentation, export, vocabulary

# vocabulary: (tokens, scores, types); weights: {name in a state_dict of net.Llama: float32 array},
# dequantized from Q8_0; n_layer: number of layers; id: model ID, 16 hexadecimal digits; datasets:
# names of its training data; digest: SHA-256 of the whole file, hexadecimal
Checkpoint = namedtuple("Checkpoint", "vocabulary weights n_layer id datasets digest")


def read(path: str, shape_of: Callable[[int], Any]) -> Checkpoint:
    """Read a Checkpoint.

    shape_of(n_vocab): the net.Shape to train; the file may have fewer layers. DataError or
    UnsupportedError names the key or tensor that does not fit.
    """
    file = gguf.File(path)  # refuses anything but a regular file before all of it is read
    digest = hashlib.sha256(Path(path).read_bytes()).hexdigest()
    pieces = _vocabulary(file)
    shape = shape_of(len(pieces[0]))
    shape = replace(shape, n_layer=max(1, min(shape.n_layer, file.get("llama.block_count", "u32"))))
    for key, (kind, value) in export.metadata(shape, pieces, {}).items():
        if not kind.startswith("["):
            found = file.get(key, kind)
            if np.float32(found) != np.float32(value) if kind == "f32" else found != value:
                raise data_error(path, f"{key}: {found}; the model to train has {value}")
    sizes = export.sizes(shape)
    for name in sorted(sizes.keys() | file.tensors.keys()):
        found = file.tensors[name].shape[::-1] if name in file.tensors else "missing"
        if found != sizes.get(name):
            raise data_error(
                path, f"tensor {name}: {found}; the model to train has {sizes.get(name, 'none')}"
            )
    weights = {name: _weights(file, tensor) for name, tensor in file.tensors.items()}
    datasets = (
        [name.decode() for name in file.get("general.datasets", "[string]").values()]
        if "general.datasets" in file.metadata
        else []
    )
    return Checkpoint(
        pieces,
        export.from_pairs(weights, shape),
        shape.n_layer,
        file.id[:8].hex(),
        datasets,
        digest,
    )


def averaged(
    weights: dict[str, np.ndarray], initial: Checkpoint, share: float
) -> dict[str, np.ndarray]:
    """Average trained weights with those of the initial checkpoint.

    weights: {name: float32 array}. share: of the initial weights, 0 to 1. Returns {name: float32
    array}. Such an average is often more accurate on unseen data than either ("Robust fine-tuning",
    Wortsman et al. 2022, arXiv 2109.01903). Layers that the checkpoint lacks count as adding zero.
    """
    added = ("attn_output.weight", "ffn_down.weight")
    return {
        name: (
            (
                (1 - share) * x
                + share * initial.weights.get(name, np.zeros_like(x) if name.endswith(added) else x)
            ).astype(np.float32)
        )
        for name, x in weights.items()
    }


def _vocabulary(file):
    """Read (tokens, scores, types); check the tokens that augmentation and prepare rely on."""
    tokens, scores, types = (
        file.get(f"tokenizer.ggml.{key}", kind).values()
        for key, kind in (("tokens", "[string]"), ("scores", "[f32]"), ("token_type", "[i32]"))
    )
    if not len(tokens) == len(scores) == len(types):
        raise file.data_error(
            f"tokenizer.ggml.scores: {len(scores)} and token_type: {len(types)}, but there are"
            f" {len(tokens)} tokens"
        )
    try:
        tokens = [token.decode() for token in tokens]
    except UnicodeDecodeError:
        raise file.data_error("tokenizer.ggml.tokens: not UTF-8") from None
    for text, i in {**vocabulary.CONTROL, "<0x0A>": augmentation.NEWLINE}.items():
        if tokens[i : i + 1] != [text]:
            raise file.data_error(f"tokenizer.ggml.tokens: token ID {i} is not {text}")
    for word in vocabulary.ANSWERS:
        if word not in tokens:
            raise file.data_error(f"tokenizer.ggml.tokens: no piece {word!r} for the answer")
    return tokens, scores, types


def _weights(file, tensor):
    if tensor.type not in (export.F32, export.Q8_0):
        raise unsupported_error(
            file.path, f"tensor {tensor.name}: an initial checkpoint has F32 and Q8_0 only"
        )
    data = file.read(tensor, 0, tensor.n_bytes)
    x = export.of_q8_0(data) if tensor.type == export.Q8_0 else np.frombuffer(data, "<f4")
    return x.reshape(tensor.shape[::-1]).copy()
