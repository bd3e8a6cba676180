"""Whole models of K-quants and the other block types: near the same weights in F32, the same bits
however the work is done.
"""

import json

import numpy as np
import pytest
from conftest import run, sets_here, shell
from gguf import GGMLQuantizationType
from gguf.quants import dequantize, quantize
from gguf_writer import BLOCK_TYPES, random_blocks, set_scales, write_gguf
from tiny_model import complete, metadata, shapes, weights

from sluice.kernels import ffi, lib
from sluice.kvcache.snapshot import Snapshot
from sluice.model.model import ARITHMETIC, Model

SETS = sets_here()
SHAPE = {
    "n_vocab": 420,
    "n_layer": 2,
    "n_embd": 256,
    "n_ff": 512,
    "n_head": 4,
    "n_head_kv": 2,
    "head_dim": 64,
}
NEW = [name for name in BLOCK_TYPES if name not in ("Q8_0", "Q4_0", "Q4_1")]


def q4_k_m(name, n_in):
    """As llama.cpp's mixture of that name: Q4_K, some tensors Q6_K, and what rows of part of a
    block get instead.
    """
    large = name == "token_embd" or name.endswith(("attn_v", "ffn_down"))
    if n_in % 256:
        return "Q8_0" if large else "Q5_0"
    # gate and up: both forms of one row
    return "Q5_0" if name == "blk.1.ffn_up" else "Q6_K" if large else "Q4_K"


def rows_of(rng, name, values):
    """u8 [n_out, bytes] of f32 [n_out, n_in]: rounded where the gguf package can, else random
    blocks of the same spread.
    """
    try:
        return quantize(values, GGMLQuantizationType[name])
    except NotImplementedError:
        blocks = random_blocks(rng, name, values.size // BLOCK_TYPES[name][1])
        sign = rng.choice([-1, 1], len(blocks))
        set_scales(blocks, name, sign)
        set_scales(
            blocks,
            name,
            sign * (values.std() / dequantize(blocks, GGMLQuantizationType[name]).std()),
        )
        return blocks.reshape(len(values), -1)


def write_pair(directory, name, kind_of, **config):
    """NAME.gguf, each matrix of the type kind_of(its name, n_in), and NAME-f32.gguf, the same
    weights in F32.
    """
    c, rng, tensors, twins = complete({**SHAPE, **config}), np.random.default_rng(1), [], []
    for role, shape in shapes(c).items():
        values = np.array(weights(c, role, shape), "<f4").reshape(shape[::-1])
        if len(shape) == 2:
            kind = kind_of(role.removesuffix(".weight"), shape[0])
            data = rows_of(rng, kind, values)
            tensors.append((role, int(GGMLQuantizationType[kind]), shape, data.tobytes()))
            values = dequantize(data, GGMLQuantizationType[kind])
        else:
            tensors.append((role, 0, shape, values.tobytes()))
        twins.append((role, 0, shape, values.astype("<f4").tobytes()))
    write_gguf(directory / f"{name}.gguf", metadata(c), tensors)
    write_gguf(directory / f"{name}-f32.gguf", metadata(c), twins)


def logits_after(path, directory, tokens, threads=1, chunk=512):
    m = Model(str(path), threads)
    cache = Snapshot.create(m.geometry("f16"), 256, m.file.id, ARITHMETIC, str(directory))
    m.prefill(cache, tokens, chunk)
    return np.array(ffi.unpack(cache.logits, m.hparams.n_vocab), "<f4")


@pytest.fixture(autouse=True)
def best_set():
    yield
    lib.isa_select(b"")
    lib.threads_start(1)


IDS = [1] + [(7919 * i + 13) % 420 for i in range(40)]


@pytest.mark.parametrize("name", NEW + ["mixed"])
@pytest.mark.quick_cases(2)
def test_logits_are_near_those_of_f32_and_the_same_bits_everywhere(tmp_path, name):
    write_pair(
        tmp_path,
        name,
        q4_k_m if name == "mixed" else lambda *_: name,
        **({"n_ff": 352} if name == "mixed" else {}),
    )
    exact = logits_after(tmp_path / f"{name}-f32.gguf", tmp_path, IDS)
    found = {}
    for isa, threads, chunk in [(isa, t, c) for isa in SETS for t, c in ((1, 512), (3, 7), (2, 1))]:
        lib.isa_select(isa.encode())
        found[isa, threads, chunk] = logits_after(
            tmp_path / f"{name}.gguf", tmp_path, IDS, threads, chunk
        ).tobytes()
    assert len(set(found.values())) == 1, found.keys()
    difference = (
        np.abs(np.frombuffer(found["reference", 1, 512], "<f4") - exact).max() / np.abs(exact).max()
    )
    # as lib/README.md says: activations in int8, a step is max/127 of 32 or of 256
    assert difference < 0.07, difference


@pytest.fixture(scope="module")
def mixed(tmp_path_factory):
    directory = tmp_path_factory.mktemp("mixed")
    write_pair(directory, "m", q4_k_m, n_ff=352)
    question = {
        "input": {"kind": "text", "head_ids": 200, "tail_ids": 50},
        "prompt": [{"special": "<s>"}, {"text": "Is it? "}, "input"],
        "answers": {"yes": ["yes"], "no": ["no"]},
    }
    (directory / "q.yaml").write_text(json.dumps(question))  # JSON is YAML
    (directory / "text").write_text("Dear friends, the meeting has been moved. " * 3)
    (directory / "ids").write_bytes(
        run("tokenize", "-m", directory / "m.gguf", input=(directory / "text").read_bytes()).stdout
    )
    return directory


def test_each_form_of_a_row_is_made_once(mixed, tmp_path, monkeypatch):
    """q, k, v share one; gate and up of the second block take both; ffn_down, of rows of 352, takes
    that of 32.
    """
    made = []

    class Counting:
        def __getattr__(self, name):
            if name.startswith("quantize"):
                made.append(name)
            return getattr(lib, name)

    monkeypatch.setattr("sluice.model.forward.lib", Counting())
    logits_after(mixed / "m.gguf", tmp_path, IDS)
    assert made == (
        ["quantize_q8_k"] * 3
        + ["quantize_q8"]
        + ["quantize_q8_k"] * 3
        + ["quantize_q8"] * 2
        + ["quantize_q8_k"]
    )


@pytest.mark.full
def test_commands_give_the_same_bytes_on_every_set_and_thread_count(mixed):
    script = """prefill -j $J -o p.snap <ids && decode -j $J p.snap <ids && cat p.snap &&
        classify --no-cache --json -q ./q.yaml -j $J <text | sed 's/"ms": [^,]*,//'"""
    found = set()
    for isa in SETS:
        for threads in "12":
            done = shell(script, mixed, MODEL=str(mixed / "m.gguf"), SLUICE_ISA=isa, J=threads)
            assert (done.returncode, done.stderr) == (0, b"") and b'"answer"' in done.stdout
            found.add(done.stdout)
    assert len(found) == 1


def test_type_without_kernels_is_refused_by_name(tmp_path):
    c = complete(SHAPE)
    tensors = []
    for role, shape in shapes(c).items():
        kind, block, n_bytes = (
            (0, 1, 4) if len(shape) == 1 else (41, 128, 18) if "ffn_down" in role else (1, 1, 2)
        )
        tensors.append((role, kind, shape, bytes(np.prod(shape) // block * n_bytes)))
    write_gguf(tmp_path / "m.gguf", metadata(c), tensors)
    done = run("prefill", "-m", tmp_path / "m.gguf", "-o", tmp_path / "p.snap")
    assert (
        done.returncode == 69
        and b"tensor blk.0.ffn_down.weight: type Q1_0 here" in done.stderr
        and done.stderr.count(b"\n") == 1
    )
