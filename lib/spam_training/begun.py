"""A model that a training goes on from: one of export.write(), its vocabulary and weights."""

import hashlib
from collections import namedtuple
from dataclasses import replace
from pathlib import Path

import numpy as np

from sluice import gguf
from sluice.faults import data_error, unsupported_error

from . import export, views, vocabulary

# vocabulary: (tokens, scores, types); weights: {name in a state_dict of net.Llama: float32 array},
# as Q8_0 keeps them; n_layer: how many it has; id: the model's, 16 hexadecimal digits; datasets:
# names of what it learnt from; digest: of the whole file
Begun = namedtuple("Begun", "vocabulary weights n_layer id datasets digest")


def read(path, shape_of):
    """The Begun in a file. shape_of(n_vocab): the net.Shape that is to be trained; the file's may
    have fewer layers. Error 65 or 69 names the key or tensor that does not fit.
    """
    file = gguf.File(path)  # refuses what is not a regular file, before it is read whole
    digest = hashlib.sha256(Path(path).read_bytes()).hexdigest()
    words = _vocabulary(file)
    shape = shape_of(len(words[0]))
    shape = replace(shape, n_layer=max(1, min(shape.n_layer, file.get("llama.block_count", "u32"))))
    for key, (kind, value) in export.metadata(shape, words, {}).items():
        if not kind.startswith("["):
            found = file.get(key, kind)
            if np.float32(found) != np.float32(value) if kind == "f32" else found != value:
                raise data_error(path, f"{key}: {found}, where what is trained has {value}")
    sizes = export.sizes(shape)
    for name in sorted(sizes.keys() | file.tensors.keys()):
        found = file.tensors[name].shape[::-1] if name in file.tensors else "missing"
        if found != sizes.get(name):
            raise data_error(
                path, f"tensor {name}: {found}, where what is trained has {sizes.get(name, 'none')}"
            )
    weights = {name: _weights(file, tensor) for name, tensor in file.tensors.items()}
    datasets = (
        [name.decode() for name in file.get("general.datasets", "[string]").values()]
        if "general.datasets" in file.metadata
        else []
    )
    return Begun(
        words, export.from_pairs(weights, shape), shape.n_layer, file.id[:8].hex(), datasets, digest
    )


def kept(weights, begun, share):
    """{name: float32 array}: the mean of `weights`, {name: float32 array} of a net that went on
    from `begun`, and of the weights it began with, which count `share`. Such a mean is often more
    right on what neither has met than both ("Robust fine-tuning", Wortsman et al. 2022, arXiv
    2109.01903). A block that was not there counts as one that adds nothing.
    """
    added = ("attn_output.weight", "ffn_down.weight")
    return {
        name: (
            (
                (1 - share) * x
                + share * begun.weights.get(name, np.zeros_like(x) if name.endswith(added) else x)
            ).astype(np.float32)
        )
        for name, x in weights.items()
    }


def _vocabulary(file):
    """(tokens, scores, types), with what views and prepare rely on where it must be."""
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
    for text, i in {**vocabulary.CONTROL, "<0x0A>": views.NEWLINE}.items():
        if tokens[i : i + 1] != [text]:
            raise file.data_error(f"tokenizer.ggml.tokens: id {i} is not {text}")
    for word in vocabulary.ANSWERS:
        if word not in tokens:
            raise file.data_error(
                f"tokenizer.ggml.tokens: there is no piece {word!r} to answer with"
            )
    return tokens, scores, types


def _weights(file, tensor):
    if tensor.type not in (export.F32, export.Q8_0):
        raise unsupported_error(
            file.path, f"tensor {tensor.name}: a training begins with F32 and Q8_0"
        )
    data = file.read(tensor, 0, tensor.n_bytes)
    x = export.of_q8_0(data) if tensor.type == export.Q8_0 else np.frombuffer(data, "<f4")
    return x.reshape(tensor.shape[::-1]).copy()
