"""Batched passes give the bits of single ones: memcmp over architectures, types of weights and
caches, threads, instruction sets, sizes of a pass and neighbours.
"""

import random

import pytest
from conftest import sets_here
from tiny_model import write_model

from sluice.kernels import ffi
from sluice.kvcache.scratch import Scratch
from sluice.model import branches, packed
from sluice.model.model import Model
from sluice.model.packed import Part

N_VOCAB = 400
CONFIGS = {
    "llama-q8_0": dict(arch="llama"),
    "llama-f16": dict(arch="llama"),
    "gemma2-f32": dict(arch="gemma2", window=16, n_layer=3, attn_cap=2.0),
    "gemma3-q4_0": dict(arch="gemma3", window=16, n_layer=6),
    "qwen3-q4_1": dict(
        arch="qwen3", rope_scaling={"type": "yarn", "factor": 4.0, "original_context_length": 64}
    ),
    "phi3-bf16": dict(arch="phi3", window=37),
    "olmo2-q4_0": dict(arch="olmo2"),
    "gemma4-q8_0": dict(arch="gemma4", window=16, n_layer=6),
    "gemma4-f16": dict(arch="gemma4", window=9, n_layer=4, n_shared=1, n_ple=8, wide=False),
    "smollm3-f32": dict(arch="smollm3", n_layer=4),
    "granite-q8_0": dict(arch="granite", scale=0.3, embedding_scale=3.0, logit_scale=2.0),
    "mistral3-q8_0": dict(
        arch="mistral3",
        rope_scaling={"type": "yarn", "factor": 8.0, "original_context_length": 16},
    ),
    "lfm2-q8_0": dict(arch="lfm2", n_layer=4),
    "lfm2-f32": dict(arch="lfm2", attention=[True, False], n_tap=4),
    "qwen35-q8_0": dict(arch="qwen35", n_layer=4),
    "qwen35-bf16": dict(arch="qwen35", interval=2, n_key_heads=3, n_value_heads=3, state_dim=37),
}
SMALL = {"n_layer": 2, "n_embd": 64, "n_ff": 96, "n_head": 2, "n_head_kv": 1}


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Name -> path of a small model."""
    directory = tmp_path_factory.mktemp("packed")
    out = {name: str(directory / f"{name}.gguf") for name in CONFIGS}
    for name, config in CONFIGS.items():
        write_model(out[name], type=name.split("-")[1], n_vocab=N_VOCAB, **SMALL | config)
    return out


def some_parts(seed, prefix):
    """Texts behind a prefix, each with a tree of continuations, depth first; then what is left of
    the prefix where a piece is left out, the last piece first.
    """
    rnd = random.Random(seed)
    tokens = lambda n: [rnd.randrange(3, N_VOCAB) for _ in range(n)]
    parts = []
    for _ in range(rnd.randrange(1, 7)):
        text = tokens(rnd.choice([1, 2, 5, 17, 40]))
        end = len(prefix) + len(text)
        parts.append(Part(len(prefix), text, len(parts)))
        for depth in rnd.choice([(), (0,), (0, 0), (0, 1, 1, 0), (0, 1, 2, 1, 0, 1)]):
            parts.append(Part(end + depth, tokens(1), len(parts)))
    for at in sorted(rnd.sample(range(1, len(prefix)), 3), reverse=True):
        parts.append(Part(at, prefix[at + 1 :] + tokens(2), len(parts)))
    return parts


def logits(m, f, x):
    out = ffi.new("float[]", N_VOCAB)
    m.head(f, x, out)
    return bytes(ffi.buffer(out))


def prefilled(m, kv, prefix):
    cache = Scratch(m.geometry(kv), 300)
    m.extend(cache, prefix)
    return cache


def one_by_one(m, kv, prefix, parts):
    """{key: logits} of each part run alone, over a cache of its own."""
    out, cache, tokens = {}, prefilled(m, kv, prefix), list(prefix)
    for part in parts:
        if m.hparams.n_state:  # cannot be cut back
            tokens[part.pos :] = part.tokens
            cache.n_tok = 0
            f, x = m.extend(cache, tokens)
        else:
            cache.n_tok = part.pos
            f, x = m.extend(cache, part.tokens)
        out[part.key] = logits(m, f, x)
    return out


def together(m, kv, prefix, parts, chunk):
    f = packed.Packed(m.hparams, prefilled(m, kv, prefix))
    return {key: logits(m, f, x) for key, x in packed.run(m, f, parts, chunk)}


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize("kv", ["f16", "f32", "q8_0"])
@pytest.mark.parametrize("name", CONFIGS)
def test_parts_have_the_bits_of_single_runs(models, name, kv):
    if kv == "q8_0" and Model(models[name], 1).hparams.head_dim % 32:
        kv = "f16"
    m = Model(models[name], 2)
    for seed in range(3):
        prefix = [random.Random(seed).randrange(3, N_VOCAB) for _ in range(20)]
        parts = some_parts(seed, prefix)
        want = one_by_one(m, kv, prefix, parts)
        for chunk in (1, 2, 7, 33, 512):
            assert together(m, kv, prefix, parts, chunk) == want, (seed, chunk)


def test_bits_do_not_depend_on_sets_threads_and_neighbours(models, monkeypatch):
    path, prefix = models["llama-q8_0"], list(range(50, 70))
    parts = some_parts(9, prefix)
    texts = [p for p in parts if p.pos == len(prefix)]
    monkeypatch.setenv("SLUICE_ISA", "reference")
    want = one_by_one(Model(path, 1), "f16", prefix, parts)
    for isa in sets_here():
        monkeypatch.setenv("SLUICE_ISA", isa)
        for threads in (1, 2, 3):
            m = Model(path, threads)
            assert together(m, "f16", prefix, parts, 512) == want, (isa, threads)
            turned = together(m, "f16", prefix, texts[::-1], 512)
            assert turned == {key: want[key] for key in turned} and len(turned) == len(texts)


def test_the_prefix_stays_as_it_is(models):
    m, prefix = Model(models["llama-f16"], 2), list(range(3, 23))
    f = packed.Packed(m.hparams, prefilled(m, "f16", prefix))
    parts = [Part(20, [7, 8, 9], 0), Part(20, [9, 9], 1)]
    first = {key: logits(m, f, x) for key, x in packed.run(m, f, parts)}
    again = {key: logits(m, f, x) for key, x in packed.run(m, f, parts)}
    assert first == again and f.cache.n_tok == 20


@pytest.mark.parametrize("name", ["lfm2-q8_0", "qwen35-q8_0"])
def test_few_copies_of_states_give_the_same_bits(models, name, monkeypatch):
    """Parts then begin earlier."""
    m, prefix = Model(models[name], 2), list(range(50, 70))
    parts = some_parts(9, prefix)
    want = one_by_one(m, "f16", prefix, parts)
    size = 4 * m.hparams.n_state * m.hparams.state_floats
    for n_copies in (1, 2, 3):
        monkeypatch.setattr(branches, "MAX_BYTES", n_copies * size)
        for chunk in (1, 7, 512):
            assert together(m, "f16", prefix, parts, chunk) == want, (n_copies, chunk)


def test_part_without_known_states_is_refused(models):
    """It would go on from those of other tokens."""
    m, prefix = Model(models["lfm2-f32"], 1), list(range(50, 70))
    f = packed.Packed(m.hparams, prefilled(m, "f16", prefix))
    with pytest.raises(ValueError, match="no states after 7 tokens"):
        f.start_parts([Part(7, [1, 2])], m.ropes)


@pytest.mark.parametrize("chunk", [1, 4, 9])
def test_passes_hold_all_tokens_in_order(chunk):
    parts = [Part(3, [1, 2, 3, 4, 5], "a"), Part(8, [6]), Part(2, [7, 8, 9], "b")]
    cuts = list(packed.passes(parts, chunk))
    assert all(sum(len(p.tokens) for p in cut) == chunk for cut in cuts[:-1])
    rows = [(p.pos + i, t) for cut in cuts for p in cut for i, t in enumerate(p.tokens)]
    assert rows == [(p.pos + i, t) for p in parts for i, t in enumerate(p.tokens)]
    assert [p.key for cut in cuts for p in cut if p.key] == ["a", "b"]


def test_no_parts_are_no_pass(models):
    m = Model(models["llama-f16"], 1)
    f = packed.Packed(m.hparams, Scratch(m.geometry("f16"), 8))
    assert list(packed.run(m, f, [])) == []
