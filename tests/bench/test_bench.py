"""sluice-bench: the models it makes are valid, its figures agree with each other.

No test depends on the time.
"""

import csv
import faulthandler
import hashlib
import io
import itertools
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import types as python_types
import xml.dom.minidom

import gguf_writer
import pytest
from conftest import BIN, START, run, sets_here

from sluice import gguf
from sluice.bench import (
    child_process,
    figures,
    limits,
    measure,
    peer,
    plot,
    shapes,
    start,
    synthetic,
    table,
)
from sluice.faults import Error
from sluice.gguf import write as gguf_write
from sluice.kernels import ffi, lib
from sluice.kvcache.scratch import Scratch
from sluice.model import model
from sluice.quantize import mixes

META = {
    "general.architecture": ("string", "llama"),
    "a.string": ("string", "grüße"),
    "a.flag": ("bool", True),
    "a.float": ("f32", 0.5),
    "a.u8": ("u8", 255),
    "a.i64": ("i64", -1 << 63),
    "some.words": ("[string]", ["", "x"]),
    "some.numbers": ("[i32]", [1, -2]),
    "some.floats": ("[f32]", [0.25]),
    "none": ("[u32]", []),
}
F32 = 0
TENSORS = [
    ("matrix", 8, (64, 3), bytes(range(34)) * 6),
    ("vector", F32, (5,), bytes(20)),
    ("last", F32, (1,), b"abcd"),
]


# The writer


def test_writer_equals_the_writer_of_the_tests(tmp_path):
    pieces = lambda data: lambda: (data[i : i + 7] for i in range(0, len(data), 7))
    gguf_write.write(
        tmp_path / "m",
        META,
        [(name, type, shape, pieces(data)) for name, type, shape, data in TENSORS],
    )
    assert (tmp_path / "m").read_bytes() == gguf_writer.gguf_bytes(META, TENSORS)
    assert (
        gguf_write.file_bytes(gguf_write.head(META, TENSORS), TENSORS)
        == (tmp_path / "m").stat().st_size
    )


def test_writer_is_read_by_our_reader(tmp_path):
    gguf_write.write(tmp_path / "m", META, TENSORS)
    file = gguf.File(str(tmp_path / "m"))
    for key, (kind, value) in META.items():
        read = file.get(key, kind)
        if kind.startswith("["):
            read = [v.decode() if isinstance(v, bytes) else v for v in read.values()]
        assert read == value, key
    for name, type, shape, data in TENSORS:
        t = file.tensors[name]
        assert (t.type, t.shape, file.read(t, 0, t.n_bytes)) == (type, shape, data)


def test_writer_is_read_by_the_gguf_package(tmp_path):
    package = pytest.importorskip("gguf", reason="gguf is not installed: make .venv/test")
    gguf_write.write(tmp_path / "m", META, TENSORS)
    reader = package.GGUFReader(tmp_path / "m")
    assert [
        (t.name, int(t.tensor_type), tuple(map(int, t.shape)), t.data.tobytes())
        for t in reader.tensors
    ] == TENSORS
    assert reader.get_field("a.string").contents() == "grüße" and reader.get_field(
        "some.numbers"
    ).contents() == [1, -2]


@pytest.mark.parametrize(
    "error", [KeyboardInterrupt, OSError(28, "No space left on device"), ValueError]
)
def test_writer_leaves_nothing_half_written(tmp_path, error):
    def pieces():
        yield bytes(100)
        raise error

    (tmp_path / "m").write_bytes(b"before")
    with pytest.raises(Error if isinstance(error, OSError) else error):
        gguf_write.write(tmp_path / "m", META, [*TENSORS, ("big", F32, (1000,), pieces)])
    assert os.listdir(tmp_path) == ["m"] and (tmp_path / "m").read_bytes() == b"before"


def test_writer_refuses_what_has_no_room(tmp_path):
    with pytest.raises(Error, match="bytes are needed, .* are free") as e:
        gguf_write.write(tmp_path / "m", META, [("big", F32, (1 << 39,), b"")])
    assert e.value.code == 75 and not os.listdir(tmp_path)


def test_writer_refuses_a_directory_that_is_not_there(tmp_path):
    with pytest.raises(Error) as e:
        gguf_write.write(tmp_path / "no" / "m", META, TENSORS)
    assert e.value.code == 73


# Models of random weights


def test_synthetic_has_all_supported_types():
    supported = {name for name, number in synthetic.numbers().items() if lib.type_supported(number)}
    assert supported <= set(synthetic.types()) and set(synthetic.types()) <= set(
        synthetic.FILE_TYPES
    )


@pytest.mark.quick_cases(7)
@pytest.mark.parametrize("kind", [k for k in synthetic.types() if k not in synthetic.MIXES])
def test_weights_have_the_deviation_of_their_row(kind):
    w, n_in, n_row = synthetic.Weights(kind), 512, 64
    data = b"".join(w.pieces(n_in, n_row, start=5))
    assert len(data) == n_row * lib.type_row_bytes(w.type, n_in)
    y = ffi.new("float[]", n_in * n_row)
    lib.dequantize_row(y, w.type, ffi.from_buffer(data), n_in * n_row)
    values = list(y)
    assert statistics.fmean(v * v for v in values) ** 0.5 == pytest.approx(n_in**-0.5, rel=0.1)
    assert data != b"".join(w.pieces(n_in, n_row, start=6)) and data == b"".join(
        synthetic.Weights(kind).pieces(n_in, n_row, start=5)
    )


# blocks of every kind; two of Gemma 4's use keys and values of earlier blocks
FEW = {"lfm2-350m": 4, "qwen3.5-0.8b": 5, "gemma-4-e2b": 17}


def small(name):
    """A published shape with few and narrow blocks, so that tests are fast."""
    narrow = shapes.replace(
        shapes.SHAPES[name], n_vocab=512, n_embd=256, n_ff=512, n_head=4, n_head_kv=1
    )
    return shapes.cut(narrow, FEW.get(name, 1))


def written(tmp_path, shape, kind):
    """The path of a new file of random weights."""
    parts = synthetic.tensors(shape, kind)
    gguf_write.write(tmp_path / "m", shapes.metadata(shape, synthetic.FILE_TYPES[kind]), parts)
    return str(tmp_path / "m")


@pytest.mark.quick_cases(14)
@pytest.mark.parametrize(
    "name, kind",
    [*itertools.product(["tiny"], synthetic.types()), *((n, "Q8_0") for n in shapes.SHAPES)],
)
def test_model_stays_finite(tmp_path, name, kind):
    m = model.Model(written(tmp_path, small(name), kind), 1)
    assert m.hparams.arch == shapes.SHAPES[name].arch
    cache, logits = Scratch(m.geometry("f16"), 40), ffi.new("float[]", m.hparams.n_vocab)
    f, x = m.extend(cache, measure.tokens(m.hparams.n_vocab, 40))
    m.head(f, x, logits)  # an Error where one is not finite
    assert 0.1 < statistics.pstdev(list(logits)) < 20


@pytest.mark.full
def test_kept_models_are_found_again():
    """Names have a digest of the whole header: metadata, and tensors in their order."""
    digest = lambda shape: hashlib.sha256(
        synthetic.VERSION
        + gguf_write.head(
            shapes.metadata(shape, synthetic.FILE_TYPES["Q8_0"]), synthetic.tensors(shape, "Q8_0")
        )
    ).hexdigest()[:8]
    assert {name: digest(shape) for name, shape in shapes.SHAPES.items()} == {
        "smollm2-135m": "69571f6b",
        "smollm2-360m": "ab9114d8",
        "gemma-3-270m": "32a47989",
        "qwen2.5-0.5b": "b73baa8c",
        "gemma-3-1b": "9e28012c",
        "tinyllama-1.1b": "c9201f7a",
        "llama-3.2-1b": "5f1b7466",
        "mistral-7b": "8aae25dd",
        "lfm2-350m": "b83e078c",
        "qwen3.5-0.8b": "4616c4ac",
        "gemma-4-e2b": "57a460c8",
        "granite-3.1-2b": "3c83d635",
        "smollm3-3b": "77242146",
        "tiny": "9a2cdf37",
    }


def test_shapes_have_the_published_number_of_weights():
    n = {
        name: sum(d[0] * (d[1] if len(d) > 1 else 1) for d in shapes.tensors(s).values())
        for name, s in shapes.SHAPES.items()
    }
    assert n.pop("tiny") and n == {
        "smollm2-135m": 134515008,
        "smollm2-360m": 361821120,
        "gemma-3-270m": 268098176,
        "qwen2.5-0.5b": 494032768,
        "gemma-3-1b": 999885952,
        "tinyllama-1.1b": 1100048384,
        "llama-3.2-1b": 1235814400 + 32,
        "mistral-7b": 7241732096,
        "lfm2-350m": 354483968,
        "qwen3.5-0.8b": 752393024,
        # with the keys and values that the last 20 blocks do not use, and the divisors of RoPE
        "gemma-4-e2b": 4647450147,
        "granite-3.1-2b": 2533531648,
        "smollm3-3b": 3075098624,
    }


def test_shapes_have_the_published_number_of_tensors():
    """Gemma 4 E2B as llama.cpp prints it for the published file, the others by their blocks."""
    n = {name: len(shapes.tensors(shapes.SHAPES[name])) for name in FEW}
    assert n == {"lfm2-350m": 148, "qwen3.5-0.8b": 320, "gemma-4-e2b": 601}


@pytest.mark.parametrize(
    "name, kind, head, real",
    [("smollm2-135m", "Q4_1", "Q8_0", "smollm2"), ("gemma-3-270m", "Q4_K_M", None, "gemma3")],
)
def test_shape_is_that_of_the_real_file_tensor_by_tensor(name, kind, head, real, request):
    """Names, dimensions and types of all tensors, and all common numbers of the metadata."""
    file, shape = gguf.File(request.getfixturevalue(real)), shapes.SHAPES[name]
    name_of = {number: kind for kind, number in synthetic.numbers().items()}
    theirs = {t.name: (t.shape, name_of[t.type]) for t in file.tensors.values()}
    assert theirs == {
        tensor: (dims, synthetic.type_of(kind, tensor, dims, shape, head))
        for tensor, dims in shapes.tensors(shape).items()
    }
    ours = {
        key: value
        for key, (_, value) in shapes.metadata(shape, synthetic.FILE_TYPES[kind]).items()
        if key.startswith(shape.arch)
    }
    both = ours.keys() & file.metadata.keys()
    assert len(both) >= 9 and {key: file.metadata[key] for key in both} == pytest.approx(
        {key: ours[key] for key in both}, rel=1e-6
    )


@pytest.mark.parametrize(
    "spelling, key",
    [
        ("gemma3-1b", "gemma-3-1b"),
        ("Gemma-3-270M", "gemma-3-270m"),
        ("qwen2.5:0.5b", "qwen2.5-0.5b"),
        ("SmolLM2-135M", "smollm2-135m"),
        ("smollm3", None),
        ("", None),
    ],
)
def test_shapes_are_found_in_usual_spellings(spelling, key):
    assert shapes.find(spelling) == key


def test_shapes_have_unique_names_in_all_spellings():
    assert [shapes.find(key.replace("-", "").upper()) for key in shapes.SHAPES] == list(
        shapes.SHAPES
    )


def test_rows_that_do_not_fit_take_another_type():
    gemma, tiny = shapes.SHAPES["gemma-3-1b"], shapes.SHAPES["tiny"]
    of = lambda kind, name, dims, shape=gemma: synthetic.type_of(kind, name, dims, shape)
    assert (
        of("Q4_K", "blk.0.ffn_up.weight", (1152, 6912)) == "Q5_0"
        and of("Q4_K", "blk.0.ffn_down.weight", (6912, 1152)) == "Q4_K"
    )
    assert of("Q8_0", "x.weight", (40, 2)) == "F16" and of("Q8_0", "x.weight", (40,)) == "F32"
    # another type for the head alone
    assert synthetic.type_of("Q4_1", "token_embd.weight", (1152, 512), gemma, "Q6_K") == "Q8_0"
    assert synthetic.type_of("Q4_1", "blk.0.ffn_up.weight", (1152, 512), gemma, "Q6_K") == "Q4_1"
    assert [
        synthetic.type_of("Q4_0", name, (2048, 32000), shapes.SHAPES["tinyllama-1.1b"], "Q6_K")
        for name in ("output.weight", "token_embd.weight")
    ] == ["Q6_K", "Q4_0"]
    assert of("Q4_K_M", "token_embd.weight", (256, 512), tiny) == "Q6_K"  # tied: it is the head
    assert [
        i
        for i in range(22)
        if synthetic.type_of(
            "Q4_K_M", f"blk.{i}.attn_v.weight", (2048, 256), shapes.SHAPES["tinyllama-1.1b"]
        )
        == "Q6_K"
    ] == [0, 1, 4, 7, 10, 13, 16, 19, 20, 21]


def test_model_is_found_again_and_made_again_where_it_was_cut(tmp_path):
    path = synthetic.find(str(tmp_path / "a" / "b"), "tiny", "Q8_0", 1)
    assert os.path.basename(path).startswith("tiny-1-q8_0-")
    data, stat = open(path, "rb").read(), os.stat(path)
    assert (
        synthetic.find(str(tmp_path / "a" / "b"), "tiny", "Q8_0", 1) == path
        and os.stat(path).st_ino == stat.st_ino
    )
    os.truncate(path, 1000)
    assert (
        synthetic.find(str(tmp_path / "a" / "b"), "tiny", "Q8_0", 1) == path
        and open(path, "rb").read() == data
    )
    assert synthetic.find(str(tmp_path / "a" / "b"), "tiny", "Q8_0") != path


# Runs


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return synthetic.find(str(tmp_path_factory.mktemp("bench")), "tiny", "Q8_0")


def bench(*argv, code=0):
    done = run("sluice-bench", *argv, timeout=600)
    assert done.returncode == code, done.stderr
    assert (done.stderr == b"") == (code == 0) and done.stderr.count(b"\n") <= 1
    return done.stdout.decode() if code == 0 else done.stderr.decode()


@pytest.mark.quick_cases(1)
def test_json_is_consistent(tiny):
    rows = json.loads(bench("-m", tiny, "-p", "16,8", "-n", 3, "-d", "0,32", "-r", 3, "-o", "json"))
    assert [r["test"] for r in rows] == [
        "pp16",
        "pp8",
        "tg3",
        "pp16 @ d32",
        "pp8 @ d32",
        "tg3 @ d32",
    ]
    for r in rows:
        n = r["n_prompt"] or r["n_gen"]
        assert (
            r["samples_ts"] == pytest.approx([1e9 * n / ns for ns in r["samples_ns"]])
            and len(r["samples_ns"]) == 3
        )
        assert r["median_ts"] == sorted(r["samples_ts"])[1] and min(r["samples_ts"]) <= r[
            "avg_ts"
        ] <= max(r["samples_ts"])
        assert (r["model_type"], r["model_filename"], r["backend"]) == (
            "Q8_0",
            tiny,
            f"sluice {r['isa']}",
        )
        assert (
            r["model_size"] < os.path.getsize(tiny)
            and 1.6e6 < r["model_n_params"] < 1.8e6
            and r["limits"]["read"] > 0
        )
        used = r["gbytes_per_s"] if r["n_gen"] else r["gflops"]
        assert (r["gbytes_per_s"] is None) == bool(r["n_prompt"])
        if r["limit"]:
            if r["n_gen"]:  # beside what memory gave around each repetition
                assert len(r["samples_read"]) == len(r["samples_ns"]) and min(r["samples_read"]) > 0
                shares = [
                    used * statistics.median(r["samples_ns"]) / ns / read
                    for ns, read in zip(r["samples_ns"], r["samples_read"])
                ]
                assert r["of_limit"] == pytest.approx(statistics.median(shares))
            else:
                assert (
                    r["of_limit"] == pytest.approx(used / r["limits"][r["limit"]])
                    and not r["samples_read"]
                )


def test_costs_are_counted_right(tiny):
    m = model.Model(tiny, 1)
    costs = measure.Costs(m, "f16")
    kv = 256 * 128 * 2
    # weights of the products of one of two blocks
    block, head = 256 * 256 * 2 + kv + 3 * 256 * 768, 256 * 512
    seen = 11 + 12 + 13  # in a layer
    assert costs.operations(measure.Test(3, 0, 10)) == 2 * (
        3 * (block + kv) + block - kv + head
    ) + 4 * 4 * 64 * (seen + 13)
    assert (
        costs.operations(measure.Test(0, 3, 10))
        == 2 * 3 * (2 * block + head) + 4 * 4 * 64 * 2 * seen
    )
    assert (
        costs.read_bytes(measure.Test(0, 3, 10))
        == 3 * (2 * block + head) // 32 * 34 + 2 * 2 * 2 * 64 * 2 * seen
    )
    assert costs.read_bytes(measure.Test(3, 0, 10)) is None


# a position's keys and values in each block that has attention, and states, bytes in f16 and f32
KEPT = {
    "lfm2-350m": 2 * 64 * 2 + 3 * 2 * 256 * 4,
    "qwen3.5-0.8b": 2 * 256 * 2 + 4 * (3 * 3 * 2048 + 16 * 128 * 128) * 4,
    "gemma-4-e2b": 2 * 2 * (14 * 256 + 3 * 512),
}


@pytest.mark.parametrize("name", FEW)
def test_bytes_of_a_token_are_those_of_the_tensors_that_it_reads(tmp_path, name):
    """No rows of other tokens, and no keys and values that a block does not use."""
    engine = measure.Engine(written(tmp_path, small(name), "Q4_0"), 1, "f16", 1)
    unused = {f"blk.{i}.attn_{x}.weight" for i in (15, 16) for x in ("k", "v", "k_norm")}
    read = [
        t
        for t in engine.file.tensors.values()
        if t.name != "per_layer_token_embd.weight" and (t.name not in unused or "gemma" not in name)
    ]
    weights = [t.n_bytes for t in read if len(t.shape) == 2 and t.dims[0] > 4]  # no taps
    test = measure.Test(0, 1, 0)
    assert measure.Costs(engine.m, "f16").read_bytes(test) == sum(weights) + KEPT[name]
    spans = [(int(ffi.cast("intptr_t", p)), n) for p, n in engine.spans()]
    for t in engine.file.tensors.values():
        at = int(ffi.cast("intptr_t", engine.file.pointer(t)))
        inside = any(p <= at and at + t.n_bytes <= p + n for p, n in spans)
        assert inside == (t in read), t.name
    assert sum(n for _, n in spans) < sum(t.n_bytes for t in read) + 32 * len(read)


def test_blocks_that_do_not_run_are_not_read(tmp_path):
    """Blocks that draft further tokens."""
    shape, kind = small("qwen3.5-0.8b"), "Q4_0"
    head = shapes.metadata(shape, synthetic.FILE_TYPES[kind])
    head["qwen35.block_count"] = "u32", shape.n_layer + 1
    head["qwen35.nextn_predict_layers"] = "u32", 1
    parts = synthetic.tensors(shape, kind)
    extra = f"blk.{shape.n_layer}.nextn.eh_proj.weight", F32, (64, 8), bytes(64 * 8 * 4)
    gguf_write.write(tmp_path / "m", head, [*parts[:-1], extra, parts[-1]])
    engine = measure.Engine(str(tmp_path / "m"), 1, "f16", 1)
    assert measure.unread(engine.h, engine.file.tensors) == {extra[0]}


def test_operations_of_blocks_that_differ_are_counted_right(tmp_path):
    """Of a prompt, blocks after the last one that keeps something are for the last token only."""
    test = measure.Test(3, 0, 0)
    seen = 1 + 2 + 3
    attention = lambda dim, n_seen: 4 * 4 * dim * n_seen  # 4 heads

    def costs(name):
        return measure.Costs(model.Model(written(tmp_path, small(name), "Q4_0"), 1), "f16")

    def local(n_ff, q, kv):  # products of a token: queries and what follows; keys and values
        return 2 * (2 * 256 * q + 3 * 256 * n_ff + 2 * 256 * 256), 2 * 2 * 256 * kv

    shared, head = 2 * 256 * 17 * 256, 2 * 256 * 512
    narrow, wide = local(512, 1024, 256), local(1024, 1024, 256)
    global_ = local(512, 2048, 512)
    assert costs("gemma-4-e2b").operations(test) == (
        3 * (shared + 12 * sum(narrow) + 2 * sum(global_) + global_[1])
        + global_[0]  # block 14, the last one that keeps keys and values
        + 2 * wide[0]  # blocks 15 and 16, local ones that use those of block 13
        + head
        + attention(256, 12 * seen + 2 * 3)
        + attention(512, 2 * seen + 3)
    )
    ffn, mixed = 3 * 256 * 512, 3 * 2048
    delta = 2 * (256 * (mixed + 2048 + 16 + 16) + 2048 * 256 + ffn)
    gated = 2 * (256 * (2048 + 2 * 256) + 1024 * 256 + ffn)
    last = 2 * 256 * (mixed + 16 + 16)  # what changes the state
    assert costs("qwen3.5-0.8b").operations(test) == (
        3 * (3 * delta + gated + last + 4 * 7 * 16 * 128 * 128)
        + (delta - last)
        + head
        + attention(256, seen)
    )
    convolution, plain = 4 * 256 * 256 + ffn, 2 * 256 * 256 + 2 * 256 * 64 + ffn
    assert costs("lfm2-350m").operations(test) == (
        3 * 2 * (2 * convolution + plain + 3 * 256 * 256)
        + 2 * (256 * 256 + ffn)
        + head
        + attention(64, seen)
    )


@pytest.mark.parametrize("tied", [True, False])
def test_reading_is_measured_on_the_bytes_that_a_generation_reads(tmp_path, tied):
    """All matrices and vectors; token_embd only if it is the head, too."""
    shape = shapes.replace(shapes.SHAPES["tiny"], tied=tied)
    parts = synthetic.tensors(shape, "Q4_0")
    gguf_write.write(tmp_path / "m", shapes.metadata(shape, 2), parts)
    engine = measure.Engine(str(tmp_path / "m"), 1, "f16", 1)
    read = sum(n for _, n in engine.spans())
    n_bytes = {t.name: t.n_bytes for t in engine.file.tensors.values()}
    vectors = sum(n_bytes[t.name] for t in engine.file.tensors.values() if len(t.shape) == 1)
    matrices = sum(n_bytes.values()) - vectors - (0 if tied else n_bytes["token_embd.weight"])
    # keys and values of one position
    weights = measure.Costs(engine.m, "f16").read_bytes(measure.Test(0, 1, 0)) - 2 * 2 * 2 * 64 * 2
    assert weights == matrices and 0 <= read - matrices - vectors < 32 * len(n_bytes)
    assert {p for p, _ in engine.spans()} <= {
        engine.file.pointer(t) for t in engine.file.tensors.values()
    }


def test_limit_is_that_of_the_largest_matrix_where_types_are_mixed(tmp_path, monkeypatch):
    """The first of the largest, ffn_gate, is Q8_0: its products are exact ones in --arithmetic fast
    too.
    """
    of = synthetic.type_of
    monkeypatch.setattr(
        synthetic,
        "type_of",
        lambda kind, name, *more: "F16" if "ffn_down" in name else of(kind, name, *more),
    )
    monkeypatch.setenv("SLUICE_ISA", "reference")
    costs = measure.Costs(
        model.Model(synthetic.find(str(tmp_path), "tiny", "Q8_0"), 1, "fast"), "f16"
    )
    assert (costs.type, costs.in_terms) == (synthetic.numbers()["Q8_0"], False)
    lib.isa_select(b"")


@pytest.mark.full
def test_csv_and_md_say_what_json_says(tiny):
    rows = list(
        csv.DictReader(io.StringIO(bench("-m", tiny, "-p", 4, "-n", 2, "-r", 1, "-o", "csv")))
    )
    assert [r["test"] for r in rows] == ["pp4", "tg2"] and all(
        float(r["median_ts"]) > 0 and float(r["limit_read"]) > 0 for r in rows
    )
    lines = bench("-m", tiny, "-p", 4, "-n", 2, "-r", 1).splitlines()
    cells = [
        [c.strip() for c in line.strip("|").split("|")] for line in lines if line.startswith("|")
    ]
    assert cells[0] == list(table.RUNS) and all(len(c) == len(cells[0]) for c in cells)
    assert [c[5] for c in cells[2:]] == ["pp4", "tg2"] and f"Model: {tiny}" in lines


@pytest.mark.full
def test_combinations_are_all_run(tmp_path):
    rows = json.loads(
        bench(
            "--shape",
            "tiny",
            "--layers",
            1,
            "--cache",
            tmp_path / "c",
            "--type",
            "Q8_0,F32",
            "--isa",
            "reference",
            "-j",
            "1,2",
            "-p",
            2,
            "-n",
            0,
            "-r",
            1,
            "-o",
            "json",
        )
    )
    assert [(r["model_type"], r["isa"], r["n_threads"]) for r in rows] == [
        (t, "reference", j) for t in ("Q8_0", "F32") for j in (1, 2)
    ]
    assert len(os.listdir(tmp_path / "c")) == 2


@pytest.mark.full
def test_without_a_model_a_small_and_a_large_one_run(tmp_path, monkeypatch):
    monkeypatch.delenv("MODEL", raising=False)
    done = run(
        "sluice-bench",
        "--layers",
        1,
        "--cache",
        tmp_path,
        "-p",
        1,
        "-n",
        1,
        "-r",
        1,
        "-o",
        "json",
        timeout=600,
    )
    rows = json.loads(done.stdout)
    assert (done.returncode, [(r["model"], r["test"]) for r in rows]) == (
        0,
        [
            (f"{name}, 1 layers, random", test)
            for name in ("SmolLM2 135M", "TinyLlama 1.1B")
            for test in ("pp1", "tg1")
        ],
    )


@pytest.mark.full
def test_head_of_another_type_is_another_model(tmp_path):
    rows = [
        json.loads(
            bench(
                "--shape",
                "tiny",
                "--cache",
                tmp_path,
                "--type",
                "Q4_0",
                *head,
                "-p",
                0,
                "-n",
                1,
                "-r",
                1,
                "-o",
                "json",
            )
        )[0]
        for head in ((), ("--head", "Q8_0"))
    ]
    assert [r["model_size"] for r in rows][1] - rows[0]["model_size"] == 256 * 512 // 32 * (34 - 18)
    assert rows[0]["model_filename"] != rows[1]["model_filename"]


@pytest.mark.full
def test_mix_of_types_is_run_and_is_no_product(tmp_path):
    (row,) = json.loads(
        bench(
            "--shape",
            "tiny",
            "--cache",
            tmp_path,
            "--type",
            "Q4_K_M",
            "-p",
            2,
            "-n",
            0,
            "-r",
            1,
            "-o",
            "json",
        )
    )
    assert row["model_type"] == "Q4_K_M"
    assert "mix of types" in bench("--matmul", "8,8,256", "--type", "Q4_K_M", code=64)


@pytest.mark.full
def test_isa_of_the_environment_is_used_and_shown(tiny, monkeypatch):
    monkeypatch.setenv("SLUICE_ISA", "reference")
    assert "sluice reference" in bench("-m", tiny, "-p", 1, "-n", 0, "-r", 1)


@pytest.mark.full
def test_matmul_is_consistent():
    rows = json.loads(
        bench("--matmul", "8,64,64;1,64,32", "--type", "Q8_0,F32", "-r", 2, "-o", "json", "-j", 1)
    )
    assert [(r["type"], r["m"], r["n"], r["k"]) for r in rows] == [
        (t, *s) for t in ("Q8_0", "F32") for s in ((8, 64, 64), (1, 64, 32))
    ]
    for r in rows:
        assert r["gflops"] == pytest.approx(
            statistics.median(2 * r["m"] * r["n"] * r["k"] / ns for ns in r["samples_ns"])
        )
        assert r["blas_gflops"] > 0 and r["ratio"] > 0  # numpy is one of the tests' packages


@pytest.mark.full
def test_matmul_has_every_type_on_every_set():
    kinds = [k for k in synthetic.types() if k not in synthetic.MIXES]
    isas = sets_here()
    rows = json.loads(
        bench(
            "--matmul",
            "3,16,256",
            "--type",
            ",".join(kinds),
            "--isa",
            ",".join(isas),
            "-r",
            1,
            "-o",
            "json",
            "-j",
            1,
        )
    )
    assert [(r["isa"], r["type"]) for r in rows] == [*itertools.product(isas, kinds)] and all(
        r["gflops"] > 0 for r in rows
    )
    known = mixes.numbers()
    assert {r["type"] for r in rows} == {t for t in known if lib.type_supported(known[t])}


def test_limits_are_what_this_set_has():
    model.start(1)
    try:
        assert lib.isa_select(b"reference") == 0
        could = limits.measure()
        assert could["fma_f32"] > 0 and all(
            could[name] is None for name in limits.UNITS if name != "fma_f32"
        )
        for name in sets_here():
            lib.isa_select(name.encode())
            assert not name.startswith("avx") or all(
                lib.limit_products(unit, 1) > 0 for unit in (lib.LIMIT_FMA_F32, lib.LIMIT_DOT_INT8)
            )
            assert all(
                (lib.limit_products(unit, 1) > 0) == (name == "amx")
                for unit in (lib.LIMIT_TILE_INT8, lib.LIMIT_FMA_TILES)
            )
            assert lib.limit_products(lib.LIMIT_FMA_TILES + 1, 1) == 0  # no such unit
            assert (lib.limit_products(lib.LIMIT_TILE_BF16, 1) > 0) == (
                name == "amx" and lib.fast_supported() == 1
            )
    finally:
        model.start(1)
    data = ffi.from_buffer(bytes(range(256)) * 1024)
    assert (
        lib.limit_read(data, len(data))
        == sum(int.from_bytes(bytes(range(i, i + 8)), "little") for i in range(0, 256, 8))
        * 1024
        % 2**64
    )
    assert (
        limits.read([(data, len(data))]) > 0
        and limits.read_once([(data, len(data)), (data, 64)]) > 0
    )


class Slow:
    """An engine that records its calls."""

    backend, error, calls = "slow", None, []

    def start(self, path, threads, kv, capacity, tokens):
        assert len(tokens) == capacity

    def to_depth(self, n):
        self.calls.append(n)

    def prompt(self, part):
        self.calls.append(len(part))
        return 10**9

    generate = prompt


@pytest.mark.full
def test_peer_alternates_and_gives_a_ratio(tiny):
    ours, theirs = measure.run(tiny, [measure.Test(8, 0, 4)], 2, 1, "f16", Slow())
    assert Slow.calls == [4, 8] * 3 and (theirs["backend"], ours["against"]) == ("slow", "slow")
    assert theirs["samples_ns"] == [10**9] * 2 and theirs["median_ts"] == 8
    assert ours["ratio"] == pytest.approx(
        statistics.median(b / a for a, b in zip(ours["samples_ns"], theirs["samples_ns"]))
    )
    assert "slow" in table._md(theirs, table.columns(None, "slow"), first=True)


class Fragile:
    """An engine that fails in a generation; kv says how."""

    def __init__(self, path, threads, kv, capacity, tokens):
        if kv == "f32":
            raise Error(69, "no such cache")
        faulthandler.disable()  # pytest's
        self.way = kv

    def name(self):
        return "fragile 1"

    def to_depth(self, n):
        pass

    def timed(self, tokens, at_once):
        if not at_once and self.way == "f16":
            os.kill(os.getpid(), signal.SIGSEGV)
        if not at_once:
            os.write(2, b"\n  file.c:7: it gave up\nmore lines\n")
            os.abort()
        return 1000 * len(tokens)


@pytest.mark.parametrize(
    "kv, n_peer_rows, says",
    [
        ("f16", 1, "fragile 1: its process ended: SIGSEGV, "),
        ("q8_0", 1, 'SIGABRT, Aborted, after the message "file.c:7: it gave up"'),
        ("f32", 0, "a name: no such cache"),
    ],
)
@pytest.mark.full
def test_peer_that_fails_leaves_the_other_rows(tiny, kv, n_peer_rows, says):
    rows = list(
        measure.run(
            tiny,
            [measure.Test(8, 0, 0), measure.Test(0, 2, 0)],
            2,
            1,
            kv,
            peer.Peer(Fragile, "a name"),
        )
    )
    ours = [r for r in rows if r["backend"].startswith("sluice")]
    assert [r["test"] for r in ours] == ["pp8", "tg2"] and all(
        len(r["samples_ns"]) == 2 for r in ours
    )
    assert [r["median_ts"] for r in rows if r not in ours] == [1e6] * n_peer_rows and (
        ours[0]["ratio"] is None
    ) == (not n_peer_rows)
    assert ours[1]["ratio"] is None and says in ours[1]["rival_fault"]
    with pytest.raises(Error) as e:
        peer.check_rows(rows)
    assert e.value.code == 69 and says in str(e.value)


def test_traceback_in_a_child_is_one_line():
    far = child_process.Remote(lambda: {}["key"])
    assert far.start() is None and far.call("anything") is None
    assert far.error == "its process ended: exit code 70, after the message \"KeyError: 'key'\""
    far.close()


PACKAGE = """
import os, signal, types
__version__ = "0"
LLAMA = types.SimpleNamespace
def __getattr__(name):
    return lambda *a: LLAMA()
def llama_decode(context, batch):
    os.kill(os.getpid(), signal.SIGSEGV)
"""


@pytest.mark.parametrize("form", ["json", "md"])
@pytest.mark.full
def test_command_survives_a_peer_that_crashes(tiny, tmp_path, form):
    (tmp_path / "llama_cpp.py").write_text(PACKAGE)
    argv = [
        sys.executable,
        START,
        BIN / "sluice-bench",
        "-m",
        tiny,
        "-p",
        "4",
        "-n",
        "2",
        "-r",
        "1",
        "-o",
        form,
        "--against",
        "llama-cpp-python",
    ]
    done = subprocess.run(
        argv,
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{BIN.parent / 'lib'}"},
    )
    assert (done.returncode, done.stderr) == (
        69,
        "sluice-bench: --baseline: llama.cpp (0): its process ended: SIGSEGV, Segmentation fault\n",
    )
    if form == "json":
        assert [r["test"] for r in json.loads(done.stdout)] == ["pp4", "tg2"]
    else:
        assert done.stdout.count("sluice") >= 2 and "Limits" in done.stdout


class Package(python_types.ModuleType):
    """A stand-in for a peer's package; calls with their arguments are recorded in `calls`."""

    __version__ = "0"

    def __init__(self, name, calls):
        super().__init__(name)
        self.calls = calls

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)

        def call(*args, **named):
            self.calls.append(
                (
                    name,
                    *[
                        list(a) if hasattr(a, "_length_") else getattr(a, "value", a)
                        for a in (*args, *named.values())
                    ],
                )
            )
            known = {
                "llama_decode": 0,
                "llama_batch_get_one": object(),
                "llama_batch": object(),
                "llama_init_from_model": 5,
            }
            return (
                known[name] if name in known else python_types.SimpleNamespace(flash_attn_type=-1)
            )

        return call


def asked_of_peers(monkeypatch, make, calls, flash):
    """The calls for a depth of 600, a batch of two tokens, the same depth, and two single tokens."""
    monkeypatch.setenv("GGML_NO_BACKTRACE", "")
    for kv, number in (("q8_0", 8), ("f16", 1)):
        engine = make("m", 2, kv, 1000, list(range(600)))
        params = [c[2] for c in calls if c[0] == "llama_init_from_model"][-1]
        assert (
            params.n_ctx,
            params.n_threads,
            params.n_threads_batch,
            params.type_k,
            params.type_v,
        ) == (1000, 2, 2, number, number)
        assert params.flash_attn_type == flash[kv]
    calls.clear()
    engine.to_depth(600)
    assert engine.timed([7, 8], True) > 0
    engine.to_depth(600)
    engine.timed([7, 8], False)
    return engine


def test_peer_calls_llama_cpp_as_its_header_declares(monkeypatch):
    calls = []
    monkeypatch.setitem(sys.modules, "llama_cpp", Package("llama_cpp", calls))
    # a quantised cache needs flash attention there
    engine = asked_of_peers(monkeypatch, peer.LlamaCpp, calls, {"q8_0": 1, "f16": -1})
    batches = [c[1:] for c in calls if c[0] == "llama_batch_get_one"]
    assert batches == [
        (list(range(512)), 512),
        (list(range(512, 600)), 88),
        ([7, 8], 2),
        ([7], 1),
        ([8], 1),
    ]
    assert [c[2:] for c in calls if c[0] == "llama_memory_seq_rm"] == [(0, 0, -1), (0, 600, -1)]
    assert engine.name() == "llama.cpp (0)"


def test_peer_calls_ik_llama_cpp_as_its_header_declares(monkeypatch):
    """Batches have positions, the cache is the context's, undeclared functions have raw pointers."""
    calls = []
    package, interface = Package("ik_llama_cpp", calls), Package("ik_llama_cpp._ctypes_api", calls)
    package._ctypes_api, interface._lib = interface, Package("ik_lib", calls)
    for module in (package, interface):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    engine = asked_of_peers(monkeypatch, peer.IkLlamaCpp, calls, {"q8_0": 1, "f16": -1})
    batches = [c[1:] for c in calls if c[0] == "llama_batch"]
    assert batches == [
        (512, list(range(512)), 0, 1, 0),
        (88, list(range(512, 600)), 512, 1, 0),
        (2, [7, 8], 600, 1, 0),
        (1, [7], 600, 1, 0),
        (1, [8], 601, 1, 0),
    ]
    assert [c[1:] for c in calls if c[0] == "llama_kv_cache_seq_rm"] == [
        (5, 0, 0, -1),
        (5, 0, 600, -1),
    ]
    assert [c[1:] for c in calls if c[0] == "llama_synchronize"] == [(5,)] * 4
    assert engine.name() == "ik_llama.cpp (0)"


# Memory and whole processes


@pytest.mark.skipif(
    not os.path.exists("/proc/self/clear_refs"), reason="missing: /proc/self/clear_refs"
)
def test_memory_is_the_peak_outside_of_mapped_files(tmp_path):
    """In a process of its own: here, garbage of other tests could be collected meanwhile."""
    n = 32 << 20
    (tmp_path / "f").write_bytes(bytes(n))
    code = f"""
import mmap
from sluice.system import memory

n = {n}
with open("f", "rb") as f:
    mapped = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ)
memory.begin()
before, now = memory.peak(), memory.now()
grown = lambda: (memory.peak() - before, memory.now() - now)
assert sum(mapped[::4096]) == 0 and max(grown()) < n // 4, grown()  # nobody's: a file's pages
held = b"\\1" * n
assert all(n // 2 < x < 2 * n for x in grown()), grown()
del held
peak, at_end = grown()
assert peak > n // 2 and at_end < n // 4, (peak, at_end)
memory.begin()
assert memory.peak() - before < n // 4, grown()
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.full
def test_memory_has_the_cache_in_it(tiny):
    rows = json.loads(bench("-m", tiny, "-p", 4, "-n", 2, "-r", 1, "-o", "json"))
    assert all(4 << 20 < r["memory"] < 200 << 20 for r in rows)
    assert "MiB |" in bench("-m", tiny, "-p", 4, "-n", 0, "-r", 1)


@pytest.mark.full
def test_start_runs_whole_processes(tiny, tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    (row,) = json.loads(bench("-m", tiny, "-p", 0, "-n", 0, "--start", 20, "-r", 2, "-o", "json"))
    assert (row["test"], row["n_prompt"], row["n_gen"], len(row["samples_ns"]), row["memory"]) == (
        "start20",
        20,
        0,
        2,
        None,
    )
    assert (
        row["samples_ts"] == pytest.approx([20e9 / ns for ns in row["samples_ns"]])
        and min(row["samples_ns"]) > 1e6
    )
    assert "start20, Q8_0, reference: " in bench(
        "-m", tiny, "-p", 0, "-n", 0, "--start", 20, "-r", 1, "--isa", "reference"
    )
    assert not os.listdir(tmp_path)


@pytest.mark.full
def test_start_reports_the_error_of_prefill(tiny):
    assert "prefill: standard input: line 2050: more than 2048 tokens" in bench(
        "-m", tiny, "-p", 0, "-n", 0, "--start", 3000, code=65
    )
    engine = measure.Engine(tiny, 1, "f16", 1)
    with pytest.raises(Error, match="ended with 3") as e:
        start.times(engine, [1], 1, "f16", str(script(tiny + ".sh", "exit 3")))
    assert e.value.code == 3


def test_start_without_a_prefill_beside_it_is_refused_before_anything_runs(tiny, tmp_path):
    done = subprocess.run(
        [
            sys.executable,
            START,
            tmp_path / "sluice-bench",
            "-m",
            tiny,
            "-p",
            "4",
            "-n",
            "0",
            "-r",
            "1",
            "--start",
            "8",
        ],
        capture_output=True,
        env={**os.environ, "PYTHONPATH": str(BIN.parent / "lib")},
    )
    assert (done.returncode, done.stdout) == (69, b"")
    assert done.stderr == f"sluice-bench: --start: {tmp_path}/prefill: no such command\n".encode()


def script(path, text):
    with open(path, "w") as f:
        f.write("#!/bin/sh\n" + text)
    os.chmod(path, 0o755)
    return path


def test_missing_package_is_a_one_line_error(monkeypatch, tmp_path, tiny):
    import importlib.util

    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    for check in (
        lambda: peer.check("llama-cpp-python"),
        lambda: plot.check(str(tmp_path / "x.svg")),
    ):
        with pytest.raises(Error, match="not installed") as e:
            check()
        assert e.value.code == 69


def run_row(kind="Q8_0", isa="amx", n_prompt=512, n_gen=0, n_depth=0, backend=None):
    """A row as measure.py makes it, as far as pictures and tables of figures look at it."""
    n = n_prompt or n_gen
    return {
        "model": "tiny random",
        "model_type": kind,
        "isa": isa,
        "backend": backend or f"sluice {isa}",
        "n_threads": 2,
        "n_prompt": n_prompt,
        "n_gen": n_gen,
        "n_depth": n_depth,
        "test": (f"pp{n}" if n_prompt else f"tg{n}") + (f" @ d{n_depth}" if n_depth else ""),
        "median_ts": 1000.0 - n_depth,
        "spread_ts": 5.0,
        "gflops": 2000.0,
        "samples_ns": [10**9],
        "samples_ts": [1.0],
        "of_limit": 0.5,
        "limit": "read",
        "memory": 80 << 20,
        "ratio": 3.0,
        "ratio_spread": 0.1,
        "against": "llama.cpp (0)",
    }


def product_row(kind, isa, m, blas=50.0):
    return {
        "type": kind,
        "isa": isa,
        "backend": f"sluice {isa}",
        "n_threads": 2,
        "m": m,
        "n": 2048,
        "k": 2048,
        "gflops": 10.0 * m,
        "blas_gflops": blas,
        "ratio": 1.0,
    }


@pytest.mark.full
def test_plot_shows_what_rows_have(tmp_path):
    depths = [
        run_row(kind, n_prompt=p, n_gen=n, n_depth=d)
        for kind in ("Q8_0", "Q4_K")
        for p, n in ((512, 0), (0, 32))
        for d in (0, 512)
    ]
    beside = depths + [r | {"backend": "other 1"} for r in depths]
    products = [
        product_row(kind, isa, m)
        for kind in ("F32", "Q6_K")
        for isa in ("avx2", "amx", "unheard-of")
        for m in (512, 1)
    ]
    for i, (rows, shape, words) in enumerate(
        (
            (
                depths,
                [2],
                [
                    "pp512, sluice amx, 2 threads",
                    "tg32, sluice amx",
                    "Q8_0",
                    "Q4_K",
                    "tokens in the cache before",
                ],
            ),
            (beside, [2, 1], ["Q8_0 sluice amx", "Q4_K other 1", "Prompt of 512 tokens"]),
            (
                products,
                [1, 1],
                [
                    "512 x 2048 x 2048, 2 threads",
                    "1 x 2048 x 2048",
                    "F32",
                    "Q6_K",
                    "avx2",
                    "amx",
                    "unheard-of",
                    "BLAS, f32",
                ],
            ),
            ([run_row()], [1], ["Prompt of 512 tokens", "Q8_0"]),
            ([run_row(n_prompt=0, n_gen=8)], [1], ["tg8"]),
            ([run_row() | {"test": "start181"}], [], []),
        )
    ):
        assert [len(line) for line in plot.panels(rows)] == shape
        path = tmp_path / f"{i}.svg"
        for _ in range(2):
            before = path.read_bytes() if path.exists() else None
            plot.check(str(path))
            plot.write(str(path), rows)
        # the same picture of the same rows
        assert path.read_bytes() == before and len(before) < 60_000
        text = xml.dom.minidom.parseString(before).toxml()
        assert all(word in text for word in words), words


def test_figures_replace_the_text_between_their_marks(monkeypatch):
    rows = [
        run_row(k, n_prompt=p, n_gen=n, n_depth=d)
        | {
            "limits": {"read": 29.4, "fma_f32": None},
            "limit": "read" if n else "fma_f32",
        }
        for k in ("Q8_0", "Q4_K")
        for d in (0, 1536, 512)
        for p, n in ((512, 0), (0, 32))
    ]
    assert figures.place(rows, 0.1).endswith(
        "same run: read 29 GB/s."
    ) and "2.0 processors at work" in figures.place(rows, 2.0)
    rows += [
        run_row("Q8_0", n_prompt=181)
        | {
            "test": "start181",
            "samples_ns": [3 * 10**8, 10**9, 2 * 10**8],
        }
    ]
    rows += [run_row("Q4_K", n_prompt=181) | {"test": "start181"}]
    text = figures.depth(rows)
    assert text.splitlines() == [
        "| tokens a second | Q8_0 | Q4_K |",
        "| --- | ---: | ---: |",
        "| pp512 | 1,000 | 1,000 |",
        "| pp512 @ d512 | 488 | 488 |",
        "| pp512 @ d1536 | -536.0 | -536.0 |",
        "| tg32 | 1,000 (50 %) | 1,000 (50 %) |",
        "| tg32 @ d512 | 488 (50 %) | 488 (50 %) |",
        "| tg32 @ d1536 | -536.0 (50 %) | -536.0 (50 %) |",
        "| memory beyond the map, MiB, pp512 | 80 | 80 |",
        "| start181, seconds | 0.30 | 1.00 |",
    ]
    sets = figures.sets(
        [
            run_row(k, isa)
            for isa in ("amx", "avx2")
            for k in ("Q8_0", "F16")
            if (k, isa) != ("F16", "avx2")
        ]
    )
    assert sets.splitlines()[2:] == [
        "| pp512, amx | 1,000 (50 %) | 1,000 (50 %) |",
        "| pp512, avx2 | 1,000 (50 %) |  |",
    ]
    products = figures.products(
        [
            product_row(k, isa, m)
            for k in ("F32", "Q8_0")
            for isa in ("amx", "avx2")
            for m in (512, 1)
        ]
    )
    assert (
        "| GFLOP/s, 1 x 2048 x 2048 | amx | avx2 |" in products
        and "| Q8_0 | 5,120 | 5,120 |" in products
        and "f32: 50.0" in products
        and "| F32 | 10.0 | 10.0 |" in products
    )
    theirs = run_row(backend="llama.cpp (0)") | {"ratio": None, "against": None}
    other = {"model": "large random"}
    of_two = figures.against([run_row(), theirs, run_row() | other, theirs | other])
    assert "| pp512 Q8_0, tiny |" in of_two and "| pp512 Q8_0, large |" in of_two
    assert "| pp512 Q8_0 | 1,000 (50 %) | 1,000 (50 %) | 3.00 ± 0.10 |" in figures.against(
        [run_row(), theirs]
    )
    page = (
        "a\n<!-- figures: sets -->\nold\n<!-- end -->\n<!-- figures: depth -->\nold\n<!-- end"
        " -->\nb\n"
    )
    assert (
        figures.replace(page, "depth", "new \\1\n")
        == page[: -len("old\n<!-- end -->\nb\n")] + "new \\1\n<!-- end -->\nb\n"
    )
    with pytest.raises(SystemExit, match="0 places for products"):
        figures.replace(page, "products", "new")
    assert (
        set(figures.TEXTS)
        == set(figures.COMMANDS)
        >= {*figures.PICTURES, *figures.OWN, *(f"amx-{part}" for part in figures.OWN)}
    )
    page = (BIN.parent / figures.PAGE).read_text()
    assert all(figures.replace(page, part, "") for part in figures.COMMANDS)
    assert all(f"sluice-bench {command}" in page for command in figures.COMMANDS.values())
    monkeypatch.setattr(figures, "LOAD_SECONDS", 0.05)
    assert 0 <= figures.busy() <= os.cpu_count() + 0.5
    with pytest.raises(SystemExit, match="none of depth, "):
        figures.main(["speed"])


@pytest.mark.full
def test_figures_run_their_commands(tmp_path, monkeypatch):
    monkeypatch.chdir(BIN.parent)
    monkeypatch.setattr(figures, "PAGE", str(tmp_path / "page.md"))
    monkeypatch.setattr(figures, "LOAD_SECONDS", 0.05)
    monkeypatch.setattr(figures, "HERE", str(tmp_path / "pictures"))
    monkeypatch.setattr(
        figures,
        "COMMANDS",
        {
            "depth": f"--shape tiny --cache {tmp_path} -p 512 -n 2 -d 0,8 --start 9 -r 1",
            "products": "--matmul '2,64,64' --type F32,Q8_0 -r 1",
        },
    )
    (tmp_path / "page.md").write_text(
        "".join(f"<!-- figures: {part} -->\n<!-- end -->\n" for part in figures.COMMANDS)
    )
    figures.main(["products", "depth"])
    page = (tmp_path / "page.md").read_text()
    assert (
        "](pictures/depth.svg)" in page
        and "| pp512 @ d8 |" in page
        and "| start9, seconds |" in page
        and "sluice-bench --matmul '2,64,64' --type" in page
    )
    assert sorted(os.listdir(tmp_path / "pictures")) == ["depth.svg", "products.svg"]


def test_page_has_a_place_for_each_figure():
    page = (BIN.parent / figures.PAGE).read_text()
    for part in figures.COMMANDS:
        assert figures.replace(page, part, "x\n") != page
    for part, says in figures.PICTURES.items():
        assert f"![{says}](../{figures.HERE}/{part}.svg)" in page
        assert (BIN.parent / figures.HERE / f"{part}.svg").stat().st_size < 60_000


@pytest.mark.full
def test_command_draws_its_rows(tiny, tmp_path):
    bench("-m", tiny, "-p", 4, "-n", 2, "-d", "0,8", "-r", 1, "--plot", tmp_path / "runs.svg")
    bench("--matmul", "4,64,64", "--type", "Q8_0,F32", "-r", 1, "--plot", tmp_path / "products.png")
    assert (
        "pp4, Q8_0, sluice" in (tmp_path / "runs.svg").read_text()
        and (tmp_path / "products.png").read_bytes()[:4] == b"\x89PNG"
    )


def test_rows_and_errors_come_from_a_child():
    assert list(child_process.rows(lambda: iter([{"a": 1}, {"b": 2}]))) == [{"a": 1}, {"b": 2}]

    def fails():
        yield {"a": 1}
        raise Error(69, "no")

    rows = child_process.rows(fails)
    assert next(rows) == {"a": 1}
    with pytest.raises(Error, match="no") as e:
        next(rows)
    assert e.value.code == 69
    for ending, code, says in (
        (lambda: os._exit(3), 70, "exit code 3"),
        (lambda: os.kill(os.getpid(), signal.SIGKILL), 75, "SIGKILL, Killed"),
    ):
        with pytest.raises(Error, match=says) as e:
            list(child_process.rows(ending))
        assert e.value.code == code


@pytest.mark.parametrize("also", [(), (signal.SIGINT,)])
def test_child_that_is_ended_puts_its_files_away(tmp_path, also):
    def make():
        with tempfile.TemporaryDirectory(dir=tmp_path):
            yield os.getpid()
            time.sleep(60)

    rows = child_process.rows(make)
    pid = next(rows)
    for n in also:
        os.kill(pid, n)
    rows.close()
    assert not os.listdir(tmp_path)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@pytest.mark.quick_cases(8)
@pytest.mark.parametrize(
    "argv, code, says",
    [
        (("--shape", "tiny", "-m", "x"), 64, "exclude"),
        (("--shape", "tiny,nobody", "-p", 1), 64, "smollm2-135m"),
        (("--shape", "tiny", "-p", "x"), 64, "'x'"),
        (("--shape", "tiny", "--head", "Q4_K_M"), 64, "--head"),
        (("--shape", "tiny", "--head", "Q1_0"), 64, "Q1_0"),
        (("-m", "x", "--head", "Q8_0"), 64, "--head"),
        (("--shape", "tiny", "-p", 0, "-n", 0), 64, "no test is left"),
        (("--shape", "tiny", "--type", "Q9"), 64, "Q9"),
        (("--shape", "tiny", "--layers", 3), 64, "tiny has only 2"),
        (("--shape", "lfm2-350m", "--layers", 2), 69, "LFM2 350M, 2 layers: "),
        (("--matmul", "8,8"), 64, "M,N,K"),
        (("--matmul", "8,8,31"), 64, "31"),
        (("--matmul", "8,8,32", "--against", "llama-cpp-python"), 64, "--matmul"),
        (("--matmul", "8,8,32", "--start", 8), 64, "--start"),
        (("--shape", "tiny", "--isa", "foo"), 64, "foo"),
        (
            ("--shape", "tiny", "-p", 0, "-n", 0, "--start", 8, "--plot", "x.svg"),
            64,
            "nothing to draw",
        ),
        (("--shape", "tiny", "--plot", "x.jpeg"), 64, "x.jpeg"),
        (("-m", "missing.gguf"), 66, "missing.gguf"),
        (("--shape", "tiny", "--type", "Q1_0"), 64, "Q1_0"),
        (("--shape", "tiny", "--cache", "/proc/here"), 73, "/proc/here"),
    ],
)
def test_refusals_are_one_line(argv, code, says):
    assert says in bench(*argv, code=code)
