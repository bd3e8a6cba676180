"""gguf-quantize: files whose weights have other types, and the rest as it was; right, or not
there.
"""

import fcntl
import os
import resource
import signal
import struct
import subprocess
import termios
from array import array

import forked
import gguf_writer
import numpy as np
import pytest
from conftest import BIN, opened, run
from test_encode import encode
from tiny_model import write_model

from sluice import gguf
from sluice.faults import Error
from sluice.model import architectures
from sluice.model.model import Model
from sluice.perplexity import evaluate
from sluice.quantize import mixes, requantize

ODD = {  # metadata of every kind, and what no reader knows
    "general.architecture": ("string", "llama"),
    "general.alignment": ("u32", 64),
    "general.file_type": ("u32", 0),
    "odd.bytes": ("string", b"\xff\xfe\\x41\0"),
    "odd.empty": ("[string]", []),
    "odd.bools": ("[bool]", [True, False]),
    "odd.f64": ("f64", 1e-300),
    "odd.words": ("[string]", [b"a", b"\x80", b""]),
    "odd.i8": ("i8", -3),
    "llama.block_count": ("u32", 1),
}


def odd_file(path, tensors=(), version=3, **more):
    x = np.random.default_rng(5).standard_normal((6, 256)).astype("<f4")
    tensors = list(tensors) or [
        ("output_norm.weight", 1, (256,), x[0].astype("<f2").tobytes()),
        ("blk.0.attn_q.weight", 0, (256, 6), x.tobytes()),
        ("blk.0.attn_k.weight", 0, (96, 2), x[0, :192].tobytes()),
        ("blk.0.attn_v.weight", 0, (40, 3), x[0, :120].tobytes()),
        ("blk.0.attn_q.bias", 0, (256,), x[1].tobytes()),
        ("blk.0.ffn_gate_inp.weight", 0, (256, 2), x[:2].tobytes()),
        ("rope_freqs.weight", 0, (3,), x[0, :3].tobytes()),
        ("some.table", 27, (5,), bytes(40)),
        ("token_embd.weight", 8, (32, 8), gguf_writer.q8_0(x[2, :256])),
    ]
    gguf_writer.write_gguf(path, {**ODD, **more}, tensors, version, alignment=64)
    return x


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    path = tmp_path_factory.mktemp("quantize") / "m.gguf"
    write_model(
        str(path), type="f32", n_embd=256, n_ff=256, head_dim=64, n_vocab=400, n_layer=3, tied=False
    )
    return path


def parts(path):
    """(metadata bytes by key, tensors: name -> (type, shape, bytes)) of a file."""
    file = gguf.File(str(path))
    tensors = {
        t.name: (gguf.type_name(t.type), t.shape, file.read(t, 0, t.n_bytes))
        for t in file.tensors.values()
    }
    return {key: bytes(file.raw(key)) for key in file.metadata}, tensors, file


@pytest.mark.parametrize("version", [2, 3])
def test_metadata_alignment_and_what_is_no_matrix_stay(tmp_path, version):
    x = odd_file(tmp_path / "a.gguf", version=version)
    done = run("gguf-quantize", tmp_path / "a.gguf", tmp_path / "b.gguf", "Q4_K")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    (before, old, _), (after, new, file) = parts(tmp_path / "a.gguf"), parts(tmp_path / "b.gguf")
    assert after.pop("general.file_type") == struct.pack("<II", 4, 14) and after.pop(
        "general.quantization_version"
    ) == struct.pack("<II", 4, 2)
    before.pop("general.file_type")
    assert after == before and list(after) == list(before)
    assert file.alignment == 64 and all(t.offset % 64 == 0 for t in file.tensors.values())
    assert list(new) == list(old) and {name: t[1] for name, t in new.items()} == {
        name: t[1] for name, t in old.items()
    }
    assert {name: t[0] for name, t in new.items()} == {
        "output_norm.weight": "F32",
        "blk.0.attn_q.weight": "Q4_K",
        "blk.0.attn_k.weight": "Q5_0",
        "blk.0.attn_v.weight": "F16",
        "blk.0.attn_q.bias": "F32",
        "blk.0.ffn_gate_inp.weight": "F32",
        "rope_freqs.weight": "F32",
        "some.table": "I64",
        "token_embd.weight": "Q5_0",
    }
    for name in (
        "blk.0.attn_q.bias",
        "blk.0.ffn_gate_inp.weight",
        "rope_freqs.weight",
        "some.table",
    ):
        assert new[name] == old[name]
    assert new["output_norm.weight"][2] == x[0].astype("<f2").astype("<f4").tobytes()
    assert new["blk.0.attn_q.weight"][2] == encode(x, "Q4_K")[0]
    assert new["blk.0.attn_v.weight"][2] == x[0, :120].astype("<f2").tobytes()


@pytest.mark.full
def test_q8_0_of_a_real_model_equals_llama_quantize(datafile, tmp_path):
    done = run("gguf-quantize", datafile("models/spam-proto-f32.gguf"), tmp_path / "q.gguf", "q8_0")
    assert (done.returncode, done.stderr) == (0, b"")
    theirs = parts(datafile("models/spam-proto-q8_0.gguf"))[1]
    assert parts(tmp_path / "q.gguf")[1] == theirs and len(theirs) == 38


@pytest.mark.parametrize("kind", requantize.KINDS)
@pytest.mark.quick_cases(3)
def test_models_of_each_kind_run(tiny, tmp_path, kind):
    out, twice = tmp_path / "q.gguf", str(tmp_path / "twice.gguf")
    assert run("gguf-quantize", "-j", 3, tiny, out, kind).returncode == 0
    file = gguf.File(str(out))
    requantize.write(twice, file, kind, requantize.plan(file, kind))  # nothing is rounded again
    assert os.path.getsize(twice) == os.path.getsize(out) and parts(twice)[:2] == parts(out)[:2]
    file = gguf.File(str(tiny))
    requantize.write(twice, file, kind, requantize.plan(file, kind))  # by one thread
    assert parts(twice)[:2] == parts(out)[:2]
    m = Model(twice, 1)
    windows = evaluate.Windows(array("i", range(3, 67)), 32)
    found = [score.log_p for window in evaluate.scores(m, windows) for score in window]
    assert len(found) == 30 and all(-40 < p < 0 for p in found)


def test_mixes_are_the_customary_ones():
    of = lambda kind, name, n=32, tied=False: mixes.type_of(kind, name, (4096, 4096), n, tied)
    more = [i for i in range(32) if of("Q4_K_M", f"blk.{i}.ffn_down.weight") == "Q6_K"]
    assert more == [0, 1, 2, 3, 6, 9, 12, 15, 18, 21, 24, 27, 28, 29, 30, 31]
    assert more == [i for i in range(32) if of("Q5_K_M", f"blk.{i}.attn_v.weight") == "Q6_K"]
    assert [i for i in range(32) if of("Q4_K_S", f"blk.{i}.ffn_down.weight") == "Q5_K"] == [
        0,
        1,
        2,
        3,
    ]
    assert [i for i in range(80) if of("Q4_K_S", f"blk.{i}.attn_v.weight", 80) == "Q5_K"] == [
        0,
        1,
        2,
        3,
    ]
    assert {of("Q5_K_S", f"blk.{i}.attn_v.weight") for i in range(32)} == {"Q5_K"}
    for kind in mixes.MIXES:
        assert of(kind, "output.weight") == of(kind, "token_embd.weight", tied=True) == "Q6_K"
        assert of(kind, "token_embd.weight") == of(kind, "blk.7.attn_q.weight") == kind[:4]
    assert (of("Q4_K_M", "blk.9.attn_qkv.weight"), of("Q5_K_M", "blk.9.attn_qkv.weight")) == (
        "Q5_K",
        "Q6_K",
    )
    assert of("Q4_K", "output.weight") == "Q4_K" and of("Q6_K", "output.weight") == "Q6_K"
    assert mixes.type_of("Q6_K", "blk.0.ffn_down.weight", (96, 4), 1, False) == "Q8_0"
    assert mixes.type_of("Q4_0", "blk.0.ffn_down.weight", (40, 4), 1, False) == "F16"


def test_tensors_can_be_chosen_and_dry_run_says_it(tiny, tmp_path):
    options = [
        "--tensor",
        "blk.*.attn_v=F16",
        "--tensor",
        "token_embd=q8_0",
        "--tensor",
        "blk.2.attn_v.weight=Q5_1",
    ]
    done = run("gguf-quantize", "--dry-run", tiny, "Q4_K_M", *options)
    assert done.returncode == 0 and list(tmp_path.iterdir()) == []
    table = {line.split()[0]: line.split() for line in done.stdout.decode().splitlines()}
    assert (
        run("gguf-quantize", "--dry-run", tiny, tmp_path / "o", "Q4_K_M", *options).stdout
        == done.stdout
    )
    assert run("gguf-quantize", tiny, tmp_path / "o", "Q4_K_M", *options).returncode == 0
    tensors = parts(tmp_path / "o")[1]
    of = {name: t[0] for name, t in tensors.items()}
    assert (
        of["blk.0.attn_v.weight"],
        of["blk.1.attn_v.weight"],
        of["blk.2.attn_v.weight"],
        of["token_embd.weight"],
    ) == ("F16", "F16", "Q5_1", "Q8_0")
    for name, (type, shape, data) in tensors.items():
        assert table[name][-3:] == [type, f"{4 * np.prod(shape):,}", f"{len(data):,}"]
    assert table["all"][-1] == f"{sum(len(t[2]) for t in tensors.values()):,}"


def test_tensor_type_pattern_applies_to_matrices_only(tmp_path):
    """Every norm and bias fits this one, and no model runs with vectors in blocks."""
    write_model(str(tmp_path / "m.gguf"), arch="qwen2", type="f32", n_layer=1, n_vocab=400)
    assert (
        run(
            "gguf-quantize", tmp_path / "m.gguf", tmp_path / "o", "Q4_0", "--tensor", "blk.0.*=Q8_0"
        ).returncode
        == 0
    )
    of = {name: t[0] for name, t in parts(tmp_path / "o")[1].items()}
    assert {
        type
        for name, type in of.items()
        if name.startswith("blk.0.") and "norm" not in name and "bias" not in name
    } == {"Q8_0"}
    assert of["blk.0.attn_norm.weight"] == of["blk.0.attn_q.bias"] == "F32" and Model(
        str(tmp_path / "o"), 1
    )


def test_tensor_name_with_pattern_characters_can_be_literal(tmp_path):
    odd_file(
        tmp_path / "m.gguf",
        [
            (name, 0, (256, 4), ONES.tobytes())
            for name in ("a[0]*.weight", "a0x.weight", "=\\n.weight")
        ],
    )
    file = gguf.File(str(tmp_path / "m.gguf"))
    of = lambda *overrides: [
        gguf.type_name(type) for _, type in requantize.plan(file, "Q4_0", overrides)
    ]
    assert of(("a[0]*", "F16")) == ["F16", "F16", "Q4_0"] and of(("a[[]0]*", "F16")) == [
        "F16",
        "Q4_0",
        "Q4_0",
    ]
    assert of(("=\\n.weight", "F16")) == ["Q4_0", "Q4_0", "F16"] == of(("=*", "F16"))


@pytest.mark.quick_cases(3)
@pytest.mark.parametrize("arch", architectures.names())
def test_quantized_model_of_every_architecture_runs(tmp_path, arch):
    scaling = {
        "phi3": {"type": "longrope", "original_context_length": 64},
        "llama": {
            "type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_context_length": 64,
        },
    }
    write_model(
        str(tmp_path / "m.gguf"),
        arch=arch,
        type="f32",
        n_layer=2 if arch in ("lfm2", "qwen35") else 1,
        n_embd=256,
        n_ff=256,
        head_dim=64,
        n_vocab=400,
        rope_scaling=scaling.get(arch),
        **({"n_shared": 0, "n_ple": 256} if arch == "gemma4" else {}),
    )
    file = gguf.File(str(tmp_path / "m.gguf"))
    requantize.write(str(tmp_path / "o"), file, "Q4_K_M", requantize.plan(file, "Q4_K_M"))
    before, after = parts(tmp_path / "m.gguf")[1], parts(tmp_path / "o")[1]
    for name, (type, shape, data) in after.items():
        assert (
            type in ("Q4_K", "Q5_K", "Q6_K", "Q5_0")
            if len(shape) == 2 and not name.endswith(("conv.weight", "conv1d.weight"))
            else (type, data) == ("F32", before[name][2])
        ), name
    tokens = run(
        "tokenize", "-m", tmp_path / "o", input=b"The quick brown fox jumps over the lazy dog. " * 9
    ).stdout
    done = run("prefill", "-m", tmp_path / "o", "-o", tmp_path / "p.snap", input=tokens)
    assert (done.returncode, done.stderr) == (0, b"")


def test_names_that_look_like_those_of_blocks_are_no_blocks(tmp_path):
    x = np.ones((4, 256), "<f4").tobytes()
    names = [
        "blk.weight",
        "blk.0.weight",
        "blk..ffn_down.weight",
        "blk.attn_v.weight",
        "blk.x.attn_v.weight",
        "blk.99999999999999999999.attn_v.weight",
    ]
    odd_file(tmp_path / "m.gguf", [(name, 0, (256, 4), x) for name in names])
    for kind in mixes.MIXES:
        done = run("gguf-quantize", "m.gguf", "o", kind, cwd=tmp_path)
        assert (done.returncode, done.stderr) == (0, b"")
        assert parts(tmp_path / "o")[1]["blk.weight"][0] == kind[:4]


BAD_LINES = [
    (["m.gguf", "Q8_0"], 64, "give IN OUT TYPE"),
    (["m.gguf", "a", "b", "Q8_0"], 64, "give IN OUT TYPE"),
    ([], 64, "IN"),
    (["m.gguf", "o", "Q3_K"], 64, "'Q3_K' is none of Q4_0"),
    (["m.gguf", "o", "Q8_0", "--tensor", "x"], 64, "is not NAME=TYPE"),
    (["m.gguf", "o", "Q8_0", "--tensor", "output=Q4_K_M"], 64, "is not NAME=TYPE"),
    (["m.gguf", "o", "Q8_0", "--tensor", "nowhere=F16"], 64, "nowhere"),
    (["m.gguf", "o", "Q8_0", "--tensor", "output_norm=F16"], 64, "no matrix"),
    (["m.gguf", "o", "Q8_0", "--tensor", "blk.0.attn_v=Q4_K"], 64, "rows of 40"),
    (["m.gguf", "m.gguf", "Q8_0"], 64, "the output is also the input"),
    (["m.gguf", "link.gguf", "Q8_0"], 64, "the output is also the input"),
    (["none.gguf", "o", "Q8_0"], 66, "none.gguf"),
    (["m.gguf", "no/where", "Q8_0"], 73, "no/where"),
    (["m.gguf", ".", "Q8_0"], 73, "directory"),
    (["--dry-run", "m.gguf"], 64, "IN TYPE"),
    (["text", "o", "Q8_0"], 65, "GGUF"),
]


@pytest.mark.quick_cases(8)
@pytest.mark.parametrize("argv, code, what", BAD_LINES)
def test_bad_lines_are_refused(tmp_path, argv, code, what):
    odd_file(tmp_path / "m.gguf")
    os.link(tmp_path / "m.gguf", tmp_path / "link.gguf")
    (tmp_path / "text").write_text("GGML and no more than that, long enough")
    before = sorted(os.listdir(tmp_path)), (tmp_path / "m.gguf").read_bytes()
    done = forked.run("gguf-quantize", *argv, cwd=tmp_path)
    assert (
        done.returncode == code
        and what in done.stderr.decode()
        and done.stderr.count(b"\n") == 1
        and done.stdout == b""
    )
    assert (sorted(os.listdir(tmp_path)), (tmp_path / "m.gguf").read_bytes()) == before


ONES = np.ones((4, 256), "<f4")


def with_one(value):
    x = ONES.copy()
    x[2, 100] = value
    return x.tobytes()


BAD_FILES = [
    (
        [("blk.0.attn_q.weight", 0, (256, 4), with_one(np.nan))],
        {},
        65,
        "tensor blk.0.attn_q.weight: row 2: a weight is infinite or NaN",
    ),
    (
        [("blk.0.attn_norm.weight", 0, (1024,), with_one(-np.inf))],
        {},
        65,
        "tensor blk.0.attn_norm.weight: row 0: a weight is infinite",
    ),
    (
        [("blk.0.attn_q.weight", 0, (256, 4), with_one(1e30))],
        {},
        65,
        "tensor blk.0.attn_q.weight: row 2: a weight is too large for Q8_0",
    ),
    (
        [
            (
                "blk.0.attn_q.weight",
                8,
                (256, 4),
                gguf_writer.q8_0(ONES)[:-34] + b"\0\x7c" + bytes(32),
            )
        ],
        {},
        65,
        "row 3: a weight is infinite",
    ),
    (
        [("blk.0.attn_q.weight", 41, (256, 4), bytes(144))],
        {},
        69,
        "tensor blk.0.attn_q.weight: type Q1_0",
    ),
    (
        [("blk.0.attn_q.weight", 0, (256, 4), ONES.tobytes())],
        {"split.count": ("u16", 2)},
        65,
        "split.count",
    ),
]


@pytest.mark.parametrize("tensors, more, code, what", BAD_FILES)
def test_bad_files_leave_what_was_there(tmp_path, tensors, more, code, what):
    odd_file(tmp_path / "m.gguf", tensors, **more)
    (tmp_path / "o").write_text("old")
    done = run("gguf-quantize", "m.gguf", "o", "Q8_0", cwd=tmp_path)
    assert (
        done.returncode == code and what in done.stderr.decode() and done.stderr.count(b"\n") == 1
    ), done.stderr
    assert sorted(os.listdir(tmp_path)) == ["m.gguf", "o"] and (tmp_path / "o").read_text() == "old"


def test_full_disk_leaves_what_was_there(tiny, tmp_path):
    (tmp_path / "o").write_text("old")
    limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
    done = run("gguf-quantize", tiny, tmp_path / "o", "Q8_0", preexec_fn=limit)
    assert (
        done.returncode == 74 and b"cannot write" in done.stderr and done.stderr.count(b"\n") == 1
    )
    assert os.listdir(tmp_path) == ["o"] and (tmp_path / "o").read_text() == "old"


def test_interrupt_leaves_nothing(tmp_path):
    n_row = 1 << 20  # more than a moment's work, for any processor
    head = gguf_writer.header(1, len(ODD)) + b"".join(
        gguf_writer.key_value(k, *v) for k, v in ODD.items()
    )
    head = gguf_writer.padded(head + gguf_writer.tensor_info("a.weight", 0, (256, n_row), 0), 64)
    (tmp_path / "m.gguf").write_bytes(head)
    os.truncate(tmp_path / "m.gguf", len(head) + 1024 * n_row)  # zeros, on disk a hole
    p = subprocess.Popen(
        [BIN / "gguf-quantize", "-j", "1", "m.gguf", "o", "Q6_K"],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        # what a background job inherits is ignored
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    opened(p, tmp_path / "m.gguf")
    p.send_signal(signal.SIGINT)
    assert (
        p.wait(60) == -signal.SIGINT
        and p.stderr.read() == b""
        and os.listdir(tmp_path) == ["m.gguf"]
    )
    p.stderr.close()


@pytest.mark.full
def test_memory_does_not_grow_with_the_rows(tmp_path):
    # rows of 64 MiB
    head = gguf_writer.padded(
        gguf_writer.header(1, 0) + gguf_writer.tensor_info("a.weight", 1, (1 << 25, 2), 0)
    )
    (tmp_path / "m.gguf").write_bytes(head)
    os.truncate(tmp_path / "m.gguf", len(head) + (1 << 27))
    # in f32 a row would take 128
    limit = lambda: resource.setrlimit(resource.RLIMIT_DATA, (96 << 20, 96 << 20))
    done = run(
        "gguf-quantize", "-j", 1, tmp_path / "m.gguf", tmp_path / "o", "Q8_0", preexec_fn=limit
    )
    assert (done.returncode, done.stderr) == (0, b"") and os.path.getsize(tmp_path / "o") > 1 << 26


def test_progress_is_shown_on_a_terminal_alone(tiny, tmp_path):
    master, slave = os.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    done = run("gguf-quantize", tiny, tmp_path / "o", "Q8_0", stderr=slave)
    os.close(slave)
    shown = os.read(master, 1 << 16)
    os.close(master)
    assert done.returncode == 0 and done.stdout == b"" and b"100%" in shown and b"o" in shown
    done = run("gguf-quantize", "-v", tiny, tmp_path / "o", "Q8_0")
    assert done.stdout == b"" and done.stderr.count(b"\n") == 1 and b" bytes=" in done.stderr


def test_changed_file_is_refused(tiny, tmp_path, monkeypatch):
    path = tmp_path / "m.gguf"
    path.write_bytes(tiny.read_bytes())
    file = gguf.File(str(path))
    plan = requantize.plan(file, "Q8_0")

    def touch(n_bytes):
        os.utime(path)

    with pytest.raises(Error, match="changed while it was in use") as e:
        requantize.write(str(tmp_path / "o"), file, "Q8_0", plan, touch)
    assert e.value.code == 74 and os.listdir(tmp_path) == ["m.gguf"]
