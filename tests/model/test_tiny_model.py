"""The models that other tests run on: their numbers, their vocabulary, their files."""

import array
import hashlib
import subprocess
import sys

import gguf
import gguf.quants
import numpy as np
import pytest
import tiny_model
import tiny_vocab
from conftest import ROOT
from gguf.constants import GGMLQuantizationType

from sluice.gguf import File

TYPES = {"f16": "F16", "bf16": "BF16", "q8_0": "Q8_0", "q4_0": "Q4_0", "q4_1": "Q4_1"}


def blocks():
    """f32 [n, 32]: spread-out values, and the blocks that rounding rules differ on."""
    rng = np.random.default_rng(1)
    ordinary = rng.uniform(-1, 1, (2000, 32)) * 10 ** rng.uniform(-6, 3, (2000, 1))
    grid = rng.integers(-254, 255, (500, 32)) / 2  # halves: every second element is a tie for Q8_0
    grid[:, 0] = 127
    nibbles = rng.integers(-16, 17, (500, 32)) / 2  # ties for Q4_0 and Q4_1
    nibbles[:, 0], nibbles[:, 1] = -8, 7
    special = np.zeros((6, 32))
    special[1] = -0.0
    special[2] = 3.5
    special[3, 5], special[3, 9] = 2, -2  # two of the largest size: the first counts
    special[4] = 1e-9  # a scale below the smallest f16
    special[5, ::2] = -1
    return np.concatenate([ordinary, grid, nibbles, special]).astype(np.float32)


@pytest.mark.parametrize("type", TYPES)
def test_encode_equals_gguf_package(type):
    x = blocks()
    number, data = tiny_model.encode(array.array("f", x.tobytes()), type, 32)
    kind = GGMLQuantizationType[TYPES[type]]
    assert number == kind
    assert data == gguf.quants.quantize(x, kind).tobytes()


def test_encode_falls_back_to_f16_where_rows_are_not_whole_blocks():
    values = array.array("f", range(72))
    assert tiny_model.encode(values, "q4_0", 36) == tiny_model.encode(values, "f16", 36)


# One weight that differs shows here; so would a Python whose random() gave other bits.
@pytest.mark.parametrize(
    "arch, type, sha256",
    [
        ("llama", "f32", "b84a1eea3e45a6da88f981ebc788627866929d5ecf08a24e02405d27df4ab515"),
        ("llama", "q8_0", "f80d91f423dc15074a7c77bc6d587146208412c96fbc305017b9c4fb1d692b79"),
        ("gemma3", "q4_1", "9b0e0829e6cbe1b2f59a9972d3439d1cc798f26185d7c4d447ba067872526417"),
    ],
)
def test_model_bytes_are_fixed(tmp_path, arch, type, sha256):
    path = tmp_path / "m.gguf"
    tiny_model.write_model(path, arch=arch, type=type)
    assert hashlib.sha256(path.read_bytes()).hexdigest() == sha256


@pytest.mark.parametrize("arch", tiny_model.DEFAULTS)
def test_model_is_read_alike_by_gguf_package_and_sluice(tmp_path, arch):
    path = tmp_path / "m.gguf"
    tiny_model.write_model(
        path, arch=arch, type="q8_0", n_layer=1, rope_scaling={"type": "linear", "factor": 2.0}
    )
    ours, theirs = File(str(path)), gguf.GGUFReader(path)
    for key, value in ours.metadata.items():
        got = theirs.fields[key].contents()
        want = (
            [v.decode() if isinstance(v, bytes) else v for v in value.values()]
            if hasattr(value, "values")
            else value
        )
        assert got == want, key
    assert len(theirs.tensors) == len(ours.tensors)
    for t in theirs.tensors:
        mine = ours.tensors[t.name]
        assert (mine.type, list(mine.shape)) == (t.tensor_type, t.shape.tolist())
        assert (mine.offset, mine.n_bytes) == (t.data_offset, t.n_bytes)


def test_weights_of_a_tensor_do_not_depend_on_the_others():
    few, many = (tiny_model.complete({"arch": "llama", "n_layer": n}) for n in (1, 3))
    shape = tiny_model.shapes(few)["blk.0.ffn_up.weight"]
    assert tiny_model.weights(few, "blk.0.ffn_up.weight", shape) == tiny_model.weights(
        many, "blk.0.ffn_up.weight", shape
    )
    assert tiny_model.weights(few, "blk.0.ffn_up.weight", shape) != tiny_model.weights(
        few, "blk.0.ffn_gate.weight", shape
    )


def test_complete_refuses_an_unknown_key():
    with pytest.raises(KeyError):
        tiny_model.complete({"arch": "llama", "n_heads": 4})


@pytest.mark.parametrize("arch, n_vocab", [("llama", 384), ("llama", 768), ("gemma3", 768)])
def test_vocabulary_is_complete(arch, n_vocab):
    pieces, scores, types = tiny_vocab.vocabulary(arch, n_vocab)
    assert len(pieces) == len(scores) == len(types) == len(set(pieces)) == n_vocab
    assert [p for p, t in zip(pieces, types) if t == tiny_vocab.BYTE] == [
        f"<0x{b:02X}>" for b in range(256)
    ]
    assert set(tiny_vocab.ANSWERS) <= set(pieces)
    score = {p: s for p, s, t in zip(pieces, scores, types) if t == tiny_vocab.NORMAL}
    assert list(score.values()) == sorted(score.values(), reverse=True)
    for piece in score:  # merging the best pair first, each piece grows from its own characters
        parts = list(piece)
        while len(parts) > 1:
            at = max(
                (i for i in range(len(parts) - 1) if parts[i] + parts[i + 1] in score),
                key=lambda i: (score[parts[i] + parts[i + 1]], -i),
            )
            parts[at : at + 2] = [parts[at] + parts[at + 1]]
        assert parts == [piece]


def test_command_needs_the_standard_library_only(tmp_path):
    out = tmp_path / "m.gguf"
    options = ["--arch", "gemma3", "--type", "q4_0", "--seed", "7"]
    argv = [
        sys.executable,
        "-S",
        "-E",
        str(ROOT / "tests/helpers/tiny_model.py"),
        str(out),
        *options,
    ]
    assert subprocess.run(argv, capture_output=True).returncode == 0
    again = tmp_path / "again.gguf"
    tiny_model.write_model(again, arch="gemma3", type="q4_0", seed=7)
    assert out.read_bytes() == again.read_bytes()


@pytest.mark.parametrize(
    "argv, says",
    [
        (["/dev/null/x"], "/dev/null/x"),
        (["m.gguf", "--vocab", "300"], "n_vocab 300"),
        (["m.gguf", "--vocab", "5000"], "4646 are wanted"),
    ],
)
def test_command_says_what_is_wrong(tmp_path, argv, says):
    command = [sys.executable, str(ROOT / "tests/helpers/tiny_model.py")]
    done = subprocess.run([*command, *argv], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1 and says in done.stderr and done.stderr.count("\n") == 1
