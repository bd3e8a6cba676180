"""Hyper-parameters and tensors: every value an architecture could trip over is refused with its key or tensor named."""
import math
import struct

import pytest
import tiny_model
from gguf_writer import write_gguf
from sluice.faults import Fault
from sluice.model import Model

BASE = dict(arch="llama", type="f32", n_layer=2, n_embd=64, n_ff=96, n_head=4, n_head_kv=2, head_dim=16, n_vocab=400)


def build(path, change, **config):
    """Write a tiny model after `change(metadata, tensors)`, tensors: name -> [type, shape, bytes]."""
    c = tiny_model.complete({**BASE, **config})
    metadata, tensors = tiny_model.metadata(c), {}
    for name, shape in tiny_model.shapes(c).items():
        kind, data = tiny_model.encode(tiny_model.weights(c, name, shape), "f32", shape[0])
        tensors[name] = [kind, shape, data]
    change(metadata, tensors)
    write_gguf(str(path), metadata, [(name, *t) for name, t in tensors.items()])
    return str(path)


def put(key, kind, value):
    return lambda m, t: m.__setitem__(key, (kind, value))


def drop(key):
    return lambda m, t: (m if key in m else t).pop(key)


def reshape(name, *shape):
    return lambda m, t: t.__setitem__(name, [0, shape, bytes(4 * math.prod(shape))])


def retype(name, kind):
    return lambda m, t: t[name].__setitem__(0, kind) or t[name].__setitem__(2, t[name][2][:len(t[name][2]) // 2])


NAN, INF = float("nan"), float("inf")
BAD = [
    # (what is changed, exit code, what the message names)
    (drop("general.architecture"), 65, "general.architecture"),
    (put("general.architecture", "u32", 1), 65, "general.architecture"),
    (put("general.architecture", "string", "mamba"), 69, '"mamba"'),
    (put("general.architecture", "string", "m\n" * 99999), 69, '\\nm...";'),
    (drop("llama.block_count"), 65, "llama.block_count"),
    (put("llama.block_count", "u32", 0), 65, "llama.block_count"),
    (put("llama.block_count", "u32", 513), 65, "llama.block_count"),
    (put("llama.block_count", "u32", 3), 65, "blk.2."),
    (put("llama.block_count", "u32", 1), 69, "blk.1."),
    (put("llama.block_count", "i32", -1), 65, "llama.block_count"),
    (put("llama.block_count", "string", "2"), 65, "llama.block_count"),
    (drop("llama.embedding_length"), 65, "llama.embedding_length"),
    (put("llama.embedding_length", "u32", 1 << 31), 65, "llama.embedding_length"),
    (put("llama.embedding_length", "u32", 128), 65, "token_embd.weight"),
    (put("llama.feed_forward_length", "u32", 0), 65, "llama.feed_forward_length"),
    (put("llama.feed_forward_length", "[i32]", [96, 96]), 65, "llama.feed_forward_length"),
    (put("llama.feed_forward_length", "u32", 97), 65, "ffn_"),
    (drop("llama.context_length"), 65, "llama.context_length"),
    (put("llama.context_length", "u32", 0), 65, "llama.context_length"),
    (put("llama.attention.head_count", "u32", 0), 65, "llama.attention.head_count"),
    (put("llama.attention.head_count", "u32", 5), 65, "head_count"),
    (put("llama.attention.head_count_kv", "u32", 0), 65, "llama.attention.head_count_kv"),
    (put("llama.attention.head_count_kv", "u32", 3), 65, "llama.attention.head_count_kv"),
    (put("llama.attention.head_count_kv", "u32", 8), 65, "llama.attention.head_count_kv"),
    (put("llama.attention.key_length", "u32", 15), 65, "llama.attention.key_length"),
    (put("llama.attention.key_length", "u32", 2048), 65, "llama.attention.key_length"),
    (put("llama.attention.value_length", "u32", 8), 69, "llama.attention.value_length"),
    (put("llama.rope.dimension_count", "u32", 0), 65, "llama.rope.dimension_count"),
    (put("llama.rope.dimension_count", "u32", 7), 65, "llama.rope.dimension_count"),
    (put("llama.rope.dimension_count", "u32", 18), 65, "llama.rope.dimension_count"),
    (put("llama.rope.freq_base", "f32", 0.0), 65, "llama.rope.freq_base"),
    (put("llama.rope.freq_base", "f32", NAN), 65, "llama.rope.freq_base"),
    (put("llama.rope.freq_base", "f32", INF), 65, "llama.rope.freq_base"),
    (put("llama.rope.scaling.type", "string", "yarn"), 69, "llama.rope.scaling.type"),
    (put("llama.rope.scaling.type", "string", "y\x1b" * 99999), 69, 'y...";'),
    (put("llama.attention.layer_norm_rms_epsilon", "f32", 0.0), 65, "epsilon"),
    (put("llama.attention.layer_norm_rms_epsilon", "f32", 1.0), 65, "epsilon"),
    (put("llama.attention.layer_norm_rms_epsilon", "f32", NAN), 65, "epsilon"),
    (drop("llama.attention.layer_norm_rms_epsilon"), 65, "epsilon"),
    (put("llama.attention.sliding_window", "u32", 128), 69, "sliding_window"),
    (put("llama.expert_count", "u32", 8), 69, "llama.expert_count"),
    (put("llama.vocab_size", "u32", 399), 65, "llama.vocab_size"),
    (put("tokenizer.ggml.tokens", "[string]", [b"a"] * 399), 65, "tokenizer.ggml.tokens"),
    (put("tokenizer.ggml.tokens", "[u32]", [1] * 400), 65, "tokenizer.ggml.tokens"),
    (drop("token_embd.weight"), 65, "token_embd.weight"),
    (drop("output_norm.weight"), 65, "output_norm.weight"),
    (drop("blk.1.attn_k.weight"), 65, "blk.1.attn_k.weight"),
    (reshape("blk.0.attn_q.weight", 64, 32), 65, "blk.0.attn_q.weight"),
    (reshape("blk.0.attn_q.weight", 64, 8, 8), 65, "blk.0.attn_q.weight"),
    (reshape("blk.0.attn_norm.weight", 32), 65, "blk.0.attn_norm.weight"),
    (reshape("output.weight", 64, 300), 65, "output.weight"),
    (reshape("blk.0.attn_q.bias", 64), 69, "blk.0.attn_q.bias"),
    (reshape("surprise.weight", 8), 69, "surprise.weight"),
    (reshape("rope_freqs.weight", 4), 65, "rope_freqs.weight"),
    (reshape("rope_freqs.weight", 8), 65, "rope_freqs.weight"),  # zeros: a division
    (retype("blk.0.ffn_norm.weight", 1), 69, "blk.0.ffn_norm.weight"),
]


@pytest.mark.parametrize("row", range(len(BAD)))
def test_bad_model_is_refused_by_name(tmp_path, row):
    change, code, named = BAD[row]
    with pytest.raises(Fault) as e:
        Model(build(tmp_path / "m.gguf", change), 1)
    assert e.value.code == code and named in str(e.value) and str(tmp_path / "m.gguf") in str(e.value)


def test_the_unchanged_model_is_accepted(tmp_path):
    m = Model(build(tmp_path / "m.gguf", lambda m, t: None), 1)
    assert (m.hparams.n_head, m.hparams.n_head_kv, m.hparams.head_dim, m.hparams.n_vocab) == (4, 2, 16, 400)


@pytest.mark.parametrize("pattern,ok", [([True] * 5 + [False], True), ([True] * 6, False), ([False] * 6, False)])
def test_gemma3_pattern_as_bools(tmp_path, pattern, ok):
    change = put("gemma3.attention.sliding_window_pattern", "[bool]", pattern)
    make = lambda: Model(build(tmp_path / "m.gguf", change, arch="gemma3", n_layer=6, window=16), 1)
    if ok:
        assert make().hparams.pattern == 6
    else:
        with pytest.raises(Fault, match="sliding_window_pattern") as e:
            make()
        assert e.value.code == 69


def test_trailing_dimensions_of_one_are_none(tmp_path):
    def change(m, t):
        t["blk.0.attn_norm.weight"][1] = (64, 1, 1)
    assert Model(build(tmp_path / "m.gguf", change), 1)


def test_legacy_linear_scale_is_read(tmp_path):
    m = Model(build(tmp_path / "m.gguf", put("llama.rope.scale_linear", "f32", 4.0)), 1)
    assert m.hparams.rope.linear == 4.0
    assert struct.unpack("f", struct.pack("f", m._ropes["global"][0]))[0] == 0.25
