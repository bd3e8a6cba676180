"""Models in several files: any cut of a model is that model, written and merged whole or not at
all, and every shard that is wrong is named."""

import os
import random
import shutil
import signal
import struct
import subprocess
import sys

import numpy as np
import pytest
import tiny_model
from conftest import BIN, run
from gguf_writer import F32, f32, gguf_bytes, header, key_value, padded, tensor_info, write_gguf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sluice import gguf
from sluice.faults import Error
from sluice.gguf import resplit, shards
from sluice.kernels import ffi
from sluice.kvcache.scratch import Scratch
from sluice.model.model import Model
from sluice.system import files

SMALL = dict(
    type="q8_0", n_layer=3, n_embd=64, n_ff=96, n_head=4, n_head_kv=2, head_dim=16, n_vocab=400
)
IDS = [1, 300, 301, 17, 350, 5, 399]


def logits(path):
    """The logits after IDS, as bytes."""
    m = Model(str(path), 1)
    cache = Scratch(m.geometry("f32"), 16, logits=True)
    m.prefill(cache, IDS)
    return bytes(ffi.buffer(cache.logits, 4 * m.hparams.n_vocab))


def contents(path):
    """(metadata as bytes without split.*, tensors as they are) of a model."""
    file = gguf.File(str(path))
    metadata = {key: bytes(file.raw(key)) for key in file.metadata if not key.startswith("split.")}
    read = lambda t: (t.type, t.dims, file.read(t, 0, t.n_bytes))
    return metadata, {name: read(t) for name, t in file.tensors.items()}


def cut(path, counts, extra=lambda i: {}):
    """Write the model at `path` in shards of so many tensors each, by a writer that knows nothing
    of ours; the paths."""
    file, out, at = gguf.File(str(path)), [], 0
    tensors = [(t.name, t.type, t.dims, file.read(t, 0, t.n_bytes)) for t in file.tensors.values()]
    for i, n in enumerate(counts):
        metadata = {
            "split.no": ("u16", i),
            "split.count": ("u16", len(counts)),
            "split.tensors.count": ("i32", len(tensors)),
            **extra(i),
        }
        if i:
            data = gguf_bytes(metadata, tensors[at : at + n])
        else:
            data = with_metadata(file, metadata, tensors[at : at + n])
        out.append(path.with_name(f"cut-{i + 1:05}-of-{len(counts):05}.gguf"))
        out[-1].write_bytes(data)
        at += n
    assert at == len(tensors)
    return out


def with_metadata(file, more, tensors):
    """A GGUF file of the metadata of `file` and `more`."""
    out = [header(len(tensors), len(file.metadata) + len(more))]
    out += [
        struct.pack("<Q", len(key)) + key.encode() + bytes(file.raw(key)) for key in file.metadata
    ]
    out += [key_value(key, kind, v) for key, (kind, v) in more.items()]
    offset = 0
    for name, kind, dims, data in tensors:
        out.append(tensor_info(name, kind, dims, offset))
        offset += len(padded(data))
    return padded(b"".join(out)) + b"".join(padded(data) for *_, data in tensors)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("shards") / "m.gguf"
    tiny_model.write_model(str(path), **SMALL)
    return path


@pytest.fixture
def here(tmp_path, model):
    """The model in three shards: their paths, in tmp_path."""
    n = len(gguf.File(str(model)).tensors)
    shutil.copy(model, tmp_path / "m.gguf")
    return cut(tmp_path / "m.gguf", [9, 9, n - 18])


def fault_of(path):
    with pytest.raises(Error) as e:
        gguf.File(str(path))
    return e.value.code, str(e.value)


# One model -----------------------------------------------------------------------


@pytest.mark.full
def test_split_model_runs_from_any_of_its_files(datafile):
    whole = run(
        "generate", "-m", datafile("models/stories260K.gguf"), "-t", 0, "-n", 40, "Once upon"
    )
    for i in (1, 2):
        done = run(
            "generate",
            "-m",
            datafile(f"cases/models/shard-0000{i}-of-00002.gguf"),
            "-t",
            0,
            "-n",
            40,
            "Once upon",
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, whole.stdout, b"")


@given(st.data())
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
def test_any_cut_is_the_model_whichever_shard_is_named(model, tmp_path_factory, data):
    """Cut at random tensors, some shards empty, by another writer; read, merged, and run."""
    d = tmp_path_factory.mktemp("cut")
    n = len(gguf.File(str(model)).tensors)
    at = sorted(data.draw(st.lists(st.integers(0, n), max_size=6)))
    shutil.copy(model, d / "m.gguf")
    paths = cut(d / "m.gguf", [b - a for a, b in zip([0, *at], [*at, n])])
    named = data.draw(st.sampled_from(paths))
    assert contents(named) == contents(model)
    if len(paths) > 1:
        assert gguf.File(str(named)).id == gguf.File(str(paths[0])).id
        assert len(gguf.File(str(named)).parts) == len(paths)
    resplit.merge(gguf.File(str(named)), str(d / "again.gguf"))
    assert (d / "again.gguf").read_bytes() == model.read_bytes()
    assert logits(named) == logits(model)
    shutil.rmtree(d)


@given(
    most=st.integers(20_000, 400_000),
    tensors_first=st.booleans(),
    name=st.sampled_from(["s", "s.gguf", "s.x", "ü ö"]),
)
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
def test_split_files_keep_the_limit_and_merge_to_the_same_bytes(
    model, tmp_path_factory, most, tensors_first, name
):
    from gguf import GGUFReader

    d = tmp_path_factory.mktemp("split")
    try:
        paths = resplit.split(gguf.File(str(model)), str(d / name), most, tensors_first)
    except Error as e:
        assert e.code == 64 and "--split-bytes: " in str(e)
        assert os.listdir(d) == [] and most < 60_000
        return
    n, n_tensors = len(paths), len(gguf.File(str(model)).tensors)
    stem = name.removesuffix(".gguf")
    assert [os.path.basename(p) for p in paths] == sorted(os.listdir(d))
    assert sorted(os.listdir(d)) == [f"{stem}-{i:05}-of-{n:05}.gguf" for i in range(1, n + 1)]
    assert all(os.path.getsize(path) <= most for path in paths)
    readers = [GGUFReader(path) for path in paths]
    for i, reader in enumerate(readers):
        found = [int(reader.fields[key].parts[-1][0]) for key in shards.KEYS]
        assert found == [i, n, n_tensors] and (len(reader.tensors) > 0 or i == 0)
        kinds = [reader.fields[key].types[0].name for key in shards.KEYS]
        assert kinds == ["UINT16", "UINT16", "INT32"]
    assert tensors_first or not readers[0].tensors
    theirs = [t.name for reader in readers for t in reader.tensors]
    assert theirs == list(gguf.File(str(model)).tensors)
    assert contents(paths[-1]) == contents(model)
    resplit.merge(gguf.File(paths[0]), str(d / "again.gguf"))
    assert (d / "again.gguf").read_bytes() == model.read_bytes()
    shutil.rmtree(d)


@pytest.mark.parametrize("version, alignment", [(2, 32), (3, 64), (3, 8), (2, 4096)])
def test_version_alignment_and_dimensions_come_back(tmp_path, version, alignment):
    tensors = [
        (f"t{i}", F32, (8, i + 1, 1, 1)[: 1 + i % 4], f32(np.arange(8 * (i + 1 if i % 4 else 1))))
        for i in range(7)
    ]
    write_gguf(tmp_path / "m.gguf", {"general.name": ("string", "x")}, tensors, version, alignment)
    paths = resplit.split(
        gguf.File(str(tmp_path / "m.gguf")), str(tmp_path / "s"), 2 * alignment + 700
    )
    assert len(paths) > 1 and gguf.File(paths[1]).alignment == alignment
    resplit.merge(gguf.File(paths[1]), str(tmp_path / "again"))
    assert (tmp_path / "again").read_bytes() == (tmp_path / "m.gguf").read_bytes()


@pytest.mark.full
def test_commands_of_a_ring_take_the_shards(here, model, tmp_path):
    """Ids, snapshots and logits of one shard's name go with another's."""
    tokens = run("tokenize", "-m", here[1], input=b"Once upon a time")
    assert (
        run("prefill", "-m", here[0], "-o", tmp_path / "snap", input=tokens.stdout).returncode == 0
    )
    ring = run("decode", "-m", here[2], tmp_path / "snap", input=tokens.stdout)
    assert ring.returncode == 0 and len(ring.stdout) > 400
    text = b"Once upon a time there was a model in three files."
    ours, theirs = (
        run("perplexity", "-m", m, "-c", 8, input=text).stdout for m in (here[2], model)
    )
    assert ours == theirs != b""
    bench = run("sluice-bench", "-m", here[1], "-p", 4, "-n", 2, "-r", 1, "--start", 3)
    assert bench.returncode == 0
    for source, out in ((here[2], "q"), (model, "w")):
        assert run("gguf-quantize", source, tmp_path / out, "F16").returncode == 0
    assert (tmp_path / "q").read_bytes() == (tmp_path / "w").read_bytes()


def test_gguf_dump_shows_the_model_or_one_file(here):
    whole = run("gguf-dump", here[1]).stdout.decode()
    alone = run("gguf-dump", "--alone", here[1]).stdout.decode()
    assert "shards: 3" in whole and "token_embd.weight" in whole and "split.count" in whole
    assert "shards:" not in alone and "token_embd.weight" not in alone
    assert alone.startswith("GGUF version 3, ")
    here[0].unlink()
    assert run("gguf-dump", here[1]).returncode == 66
    assert run("gguf-dump", "--alone", here[1]).stdout.decode() == alone


def test_gguf_dump_takes_a_shard_on_standard_input(here):
    with open(here[0], "rb") as f:
        done = run("gguf-dump", stdin=f)
    assert done.returncode == 0 and b"shards: 3" in done.stdout


def test_link_to_a_shard_is_that_shard(here, tmp_path):
    (tmp_path / "sub").mkdir()
    os.symlink(here[0], tmp_path / "sub" / "any name.gguf")
    assert len(gguf.File(str(tmp_path / "sub" / "any name.gguf")).parts) == 3
    for i, path in enumerate(here):  # as the hub's cache has them: links with good names to blobs
        path.rename(tmp_path / f"blob{i}")
        os.symlink(tmp_path / f"blob{i}", tmp_path / "sub" / path.name)
    assert len(gguf.File(str(tmp_path / "sub" / here[1].name)).parts) == 3


@pytest.mark.parametrize("count", [0, 1])
def test_split_count_of_zero_or_one_is_a_single_file(tmp_path, count):
    """0 is what gguf-split --merge leaves behind."""
    split = {"split.no": ("u16", 0), "split.count": ("u16", count)}
    write_gguf(tmp_path / "m.gguf", split, [("t", F32, (8,), bytes(32))])
    assert len(gguf.File(str(tmp_path / "m.gguf")).parts) == 1
    write_gguf(tmp_path / "n.gguf", {"split.no": ("u16", 1), "split.count": ("u16", count)}, [])
    assert fault_of(tmp_path / "n.gguf")[0] == 65


# Wrong shards ----------------------------------------------------------------------


def test_missing_shard_is_named(here):
    for gone in here:
        kept = gone.read_bytes()
        gone.unlink()
        for other in here:
            if other != gone:
                line = f"{gone}: missing: shard {here.index(gone) + 1} of 3 of the model"
                assert fault_of(other) == (66, line)
        done = run("generate", "-m", here[1 if gone != here[1] else 0], "x")
        assert done.returncode == 66 and done.stderr.count(b"\n") == 1
        assert gone.name.encode() in done.stderr
        gone.write_bytes(kept)


def test_swapped_shards_are_named(here):
    data = [path.read_bytes() for path in here]
    for a, b in ((1, 2), (0, 1), (0, 2)):
        here[a].write_bytes(data[b])
        here[b].write_bytes(data[a])
        for path in here:
            code, line = fault_of(path)
            assert code == 65 and "split.no" in line
            assert line.startswith((str(here[a]), str(here[b])))
        for i in (a, b):
            here[i].write_bytes(data[i])
    assert gguf.File(str(here[0]))


WRONG = {
    "another count": (lambda i: {"split.count": ("u16", 4)} if i == 1 else {}, 1, "split.count: 4"),
    "another number of tensors": (
        lambda i: {"split.tensors.count": ("i32", 7)} if i == 2 else {},
        2,
        "split.tensors.count: 7",
    ),
    "all of them too many": (
        lambda i: {"split.tensors.count": ("i32", 1000)},
        0,
        "split.tensors.count: 1000, but the 3 shards have",
    ),
    "negative": (lambda i: {"split.tensors.count": ("i32", -1)}, 0, "split.tensors.count"),
    "no a string": (
        lambda i: {"split.no": ("string", "1")} if i == 1 else {},
        1,
        "split.no: expected u32",
    ),
    "another architecture": (
        lambda i: {"general.architecture": ("string", "x")} if i == 1 else {},
        1,
        "general.architecture: differs",
    ),
    "the same number again": (
        lambda i: {"split.no": ("u16", 0)} if i == 1 else {},
        1,
        "split.no: 0",
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_shard_that_does_not_belong_is_named(tmp_path, model, what):
    extra, wrong, names = WRONG[what]
    shutil.copy(model, tmp_path / "m.gguf")
    n = len(gguf.File(str(model)).tensors)
    paths = cut(tmp_path / "m.gguf", [9, 9, n - 18], extra)
    code, line = fault_of(paths[0])
    assert code == 65 and line.startswith(f"{paths[wrong]}: ") and names in line


def test_shard_of_another_model_is_named(here, tmp_path):
    """Of one with other tensors by what is twice or missing, with other shapes by the tensor."""
    other = tmp_path / "other"
    other.mkdir()
    tiny_model.write_model(str(other / "m.gguf"), **{**SMALL, "n_ff": 128})
    n = len(gguf.File(str(other / "m.gguf")).tensors)
    theirs = cut(other / "m.gguf", [9, 9, n - 18])
    kept = here[1].read_bytes()
    shutil.copy(theirs[1], here[1])
    with pytest.raises(Error) as e:
        Model(str(here[0]), 1)
    assert e.value.code == 65 and "shape" in str(e.value)
    assert str(e.value).startswith(f"{here[1]}: tensor blk.")
    theirs = cut(other / "m.gguf", [8, 10, n - 18])
    shutil.copy(theirs[1], here[1])
    code, line = fault_of(here[2])
    assert code == 65 and line.startswith(f"{here[1]}: tensor blk.")
    assert f"is in {here[0]}, too" in line
    here[1].write_bytes(kept)
    assert gguf.File(str(here[2]))


@pytest.mark.parametrize(
    "how", ["cut", "empty", "text", "fifo", "directory", "dangling", "cut head"]
)
def test_damaged_shard_is_named(here, how):
    data = here[1].read_bytes()
    here[1].unlink()
    if how == "fifo":
        os.mkfifo(here[1])
    elif how == "directory":
        here[1].mkdir()
    elif how == "dangling":
        here[1].symlink_to("nowhere")
    else:
        here[1].write_bytes(
            {
                "cut": data[:-400],
                "empty": b"",
                "cut head": data[:90],
                "text": b"not a model at all, but a longer text",
            }[how]
        )
    code, line = fault_of(here[0])
    assert code == (66 if how == "dangling" else 65) and line.startswith(f"{here[1]}: ")


def test_shards_joined_by_cat_are_told_how_to_merge(here, tmp_path):
    (tmp_path / "joined.gguf").write_bytes(b"".join(path.read_bytes() for path in here))
    code, line = fault_of(tmp_path / "joined.gguf")
    assert code == 65 and "does not end in -00001-of-00003.gguf" in line
    assert "gguf-convert --merge" in line


def test_shard_with_a_contradicting_name_is_refused(here, tmp_path):
    for name, names in (
        ("x-00001-of-00004.gguf", "split.count: 3, but the name says 4"),
        ("x-00002-of-00003.gguf", "the name says 2"),
        ("x-1-of-3.gguf", "not end"),
        ("x-00001-of-00003.gguf.bin", "does not end"),
    ):
        shutil.copy(here[0], tmp_path / name)
        code, line = fault_of(tmp_path / name)
        assert code == 65 and line.startswith(f"{tmp_path / name}: ") and names in line


def test_shard_number_beyond_the_count_is_refused(here):
    data = here[2].read_bytes()
    at = data.index(b"split.no") + len("split.no") + 4
    for no in (3, 4):
        path = here[2].with_name(
            f"{here[2].name[: -len('00003-of-00003.gguf')]}{no + 1:05}-of-00003.gguf"
        )
        path.write_bytes(data[:at] + struct.pack("<H", no) + data[at + 2 :])
        assert fault_of(path) == (65, f"{path}: split.no: {no}, but split.count is 3")


def test_maximum_shard_count_costs_nothing(tmp_path):
    for count, code in ((65535, 69), (513, 69), (512, 66)):
        path = tmp_path / f"m-00001-of-{count:05}.gguf"
        write_gguf(
            path,
            {
                "split.no": ("u16", 0),
                "split.count": ("u16", count),
                "split.tensors.count": ("i32", 0),
            },
            [],
        )
        assert fault_of(path)[0] == code
    most = {"split.count": ("u32", 99_999), "split.no": ("u16", 0)}
    write_gguf(tmp_path / "m-00001-of-99999.gguf", most, [])
    assert fault_of(tmp_path / "m-00001-of-99999.gguf")[0] == 69


def test_many_shards_are_one_model(tmp_path):
    """More than guard.c had room for once, and every map is guarded and given back."""
    tensors = [(f"t{i}", F32, (8,), f32([i] * 8)) for i in range(200)]
    write_gguf(tmp_path / "m.gguf", {}, tensors)
    paths = cut(tmp_path / "m.gguf", [1] * 200)
    for _ in range(8):
        file = gguf.File(str(paths[77]))
        first = [ffi.cast("float *", file.pointer(t))[0] for t in file.tensors.values()]
        assert first == list(range(200))
        del file


def test_refused_shards_leave_no_descriptor_open(here):
    here[2].unlink()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        try:
            gguf.File(str(here[0]))
        except Error:
            pass
    assert len(os.listdir("/proc/self/fd")) == before


def test_changed_shard_is_noticed(here):
    file = gguf.File(str(here[0]))
    file.check_unchanged()
    with open(here[2], "r+b") as f:
        f.seek(-1, 2)
        f.write(b"\xff")
    os.utime(here[2], ns=(1, 1))
    with pytest.raises(Error, match="changed while") as e:
        file.check_unchanged()
    assert str(e.value).startswith(str(here[2]))


# Written whole or not at all -----------------------------------------------------------


def test_command_splits_and_merges(model, tmp_path):
    done = run("gguf-convert", model, "--split-bytes", "60K", "-o", tmp_path / "s.gguf", "-v")
    assert done.returncode == 0 and b"files=" in done.stderr
    first = sorted(tmp_path.iterdir())[0]
    assert run("gguf-convert", first, "--merge", "-o", tmp_path / "m.gguf").returncode == 0
    assert (tmp_path / "m.gguf").read_bytes() == model.read_bytes()


@pytest.mark.quick_cases(7)
@pytest.mark.parametrize(
    "argv, code, names",
    [
        (["--split-bytes", "100K", "--merge"], 64, "exclude each other"),
        *[
            (["--split-bytes", n], 64, "not a number of bytes")
            for n in ("0", "1X", "-5", "", "1 K", "5KM", "9MM", "K")
        ],
        (["--merge"], 64, "is already one file"),
        (["--no-tensor-first-split"], 64, "needs --split-bytes"),
        (["--split-bytes", "1M", "--type", "F16"], 64, "exclude each other"),
        (["--split-bytes", "9"], 64, "the metadata of"),
        (["--split-bytes", "20K"], 64, "tensor token_embd.weight needs"),
    ],
)
def test_conflicting_options_are_refused(model, tmp_path, argv, code, names):
    done = run("gguf-convert", model, "-o", tmp_path / "x", *argv)
    assert done.returncode == code and names in done.stderr.decode()
    assert done.stderr.count(b"\n") == 1
    assert os.listdir(tmp_path) == []


@pytest.mark.full
def test_input_is_not_overwritten(here):
    """As gguf-split --merge did with a pattern in place of the first shard."""
    before = [path.read_bytes() for path in here]
    for path in here:
        assert run("gguf-convert", here[0], "--merge", "-o", path).returncode == 64
        assert run("gguf-quantize", here[0], path, "F16").returncode == 64
        assert run("generate", "-m", here[1], "-o", path, "x").returncode == 64
    assert run("gguf-convert", *here, "--merge", "-o", "x").returncode == 64
    assert [path.read_bytes() for path in here] == before


def test_no_shard_is_overwritten_where_the_model_is_named_by_a_link(here, tmp_path):
    os.symlink(here[0], tmp_path / "link.gguf")
    before = [path.read_bytes() for path in here]
    for path in here:
        done = run("generate", "-m", tmp_path / "link.gguf", "-n", "1", "-o", path, "x")
        assert done.returncode == 64 and b"the output is also the input" in done.stderr
    assert [path.read_bytes() for path in here] == before


def test_shards_that_are_there_are_not_replaced(model, tmp_path):
    assert run("gguf-convert", model, "--split-bytes", "60K", "-o", tmp_path / "s").returncode == 0
    names = sorted(os.listdir(tmp_path))
    before = {name: (tmp_path / name).read_bytes() for name in names}
    (tmp_path / names[0]).unlink()
    done = run("gguf-convert", model, "--split-bytes", "60K", "-o", tmp_path / "s")
    assert done.returncode == 73 and names[1].encode() in done.stderr
    assert sorted(os.listdir(tmp_path)) == names[1:]
    assert all((tmp_path / name).read_bytes() == before[name] for name in names[1:])


@pytest.mark.parametrize("step", ["write", "name", "sync"])
@pytest.mark.parametrize("nth", [1, 2, 3])
def test_failed_split_leaves_no_files(model, tmp_path, monkeypatch, step, nth):
    calls, name = [], {"write": "fsync", "name": "link", "sync": "fsync"}[step]
    real = getattr(os, name)

    def failing(*args, **kwargs):
        is_directory = name == "fsync" and os.path.isdir(f"/proc/self/fd/{args[0]}")
        if is_directory == (step == "sync"):
            calls.append(1)
            if len(calls) == nth:
                raise OSError(28, "No space left on device")
        return real(*args, **kwargs)

    monkeypatch.setattr(os, name, failing)
    with pytest.raises(Error) as e:
        resplit.split(gguf.File(str(model)), str(tmp_path / "s"), 50_000)
    assert e.value.code in (73, 74, 75) and len(calls) == nth and os.listdir(tmp_path) == []


@pytest.mark.full
def test_killed_split_leaves_no_model(model, tmp_path):
    """At any moment: either all shards, or the first is missing."""
    rng = random.Random(1)
    for _ in range(12):
        d = tmp_path / f"{rng.random()}"
        d.mkdir()
        p = subprocess.Popen(
            [BIN / "gguf-convert", model, "--split-bytes", "50K", "-o", d / "s"],
            stderr=subprocess.DEVNULL,
        )
        try:
            p.wait(rng.uniform(0.1, 0.5))
        except subprocess.TimeoutExpired:
            p.send_signal(signal.SIGKILL)
            p.wait()
        names = sorted(n for n in os.listdir(d) if n.endswith(".gguf"))
        if names and "-00001-of-" in names[0]:
            assert contents(d / names[0]) == contents(model)


def test_no_room_is_said_before_a_byte_is_written(model, tmp_path, monkeypatch):
    full = os.statvfs(tmp_path)
    said = type("Said", (), dict(f_bavail=1, f_frsize=4096, f_blocks=full.f_blocks))
    monkeypatch.setattr(os, "statvfs", lambda path: said)
    with pytest.raises(Error, match="bytes are needed, 4,096 are free") as e:
        resplit.split(gguf.File(str(model)), str(tmp_path / "s"), 50_000)
    assert e.value.code == 75 and os.listdir(tmp_path) == []


def test_conversion_losses_are_reported(model, tmp_path):
    data = model.read_bytes()
    (tmp_path / "long.gguf").write_bytes(data + bytes(100))
    done = run("gguf-convert", tmp_path / "long.gguf", "--split-bytes", "60K", "-o", tmp_path / "s")
    assert done.returncode == 0 and b"100 bytes behind the last tensor are left out" in done.stderr
    shutil.copy(model, tmp_path / "m.gguf")
    n = len(gguf.File(str(model)).tensors)
    paths = cut(tmp_path / "m.gguf", [9, n - 9], lambda i: {"other.key": ("u8", 1)} if i else {})
    done = run("gguf-convert", paths[0], "--merge", "-o", tmp_path / "again.gguf")
    assert done.returncode == 0 and f"{paths[1]}: other.key is left out".encode() in done.stderr
    assert (tmp_path / "again.gguf").read_bytes() == data


def test_write_all_names_all_or_none(tmp_path):
    files.write_all(
        [(str(tmp_path / name), lambda f, name=name: f.write(name.encode())) for name in "abc"]
    )
    assert sorted(os.listdir(tmp_path)) == ["a", "b", "c"] and (tmp_path / "b").read_bytes() == b"b"

    def stop(f):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        files.write_all(
            [(str(tmp_path / "d"), lambda f: f.write(b"d")), (str(tmp_path / "e"), stop)]
        )
    assert sorted(os.listdir(tmp_path)) == ["a", "b", "c"]


# Real models ---------------------------------------------------------------------------


def test_smollm2_in_five_files_is_smollm2(smollm2, tmp_path):
    done = run(
        "gguf-convert",
        smollm2,
        "--split-bytes",
        "31M",
        "--no-tensor-first-split",
        "-o",
        tmp_path / "s",
    )
    paths = sorted(tmp_path.iterdir())
    assert done.returncode == 0 and len(paths) == 5
    assert len(gguf.File(str(paths[0]), alone=True).tensors) == 0
    text = b"The capital of France is Paris.\n  def f(x):\n\treturn 1\n" * 40
    for argv in (["generate", "-t", 0, "-n", 16, "The capital of"], ["perplexity", "-c", 128]):
        whole, split = (
            run(argv[0], "-m", path, *argv[1:], input=text, timeout=300)
            for path in (smollm2, paths[3])
        )
        assert whole.stdout == split.stdout != b"" and split.returncode == 0
    tokens = [
        run("tokenize", "-m", path, input=text).stdout.split(b"\n")[1:]
        for path in (smollm2, paths[0])
    ]
    assert tokens[0] == tokens[1] and len(tokens[0]) > 400
    assert run("gguf-convert", paths[2], "--merge", "-o", tmp_path / "m.gguf").returncode == 0
    assert subprocess.run(["cmp", tmp_path / "m.gguf", smollm2]).returncode == 0


def test_start_does_not_load_what_only_shards_need():
    code = (
        "import sys; from sluice import gguf; "
        "sys.exit(any('sluice.gguf.' + n in sys.modules for n in ('shards', 'resplit')))"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_identity_covers_each_byte_of_all_shards_and_is_the_same_for_each(here, model):
    """A split model is not the file it was cut from: its bytes are others."""
    tokens = {gguf.File(str(path)).id for path in here}
    assert len(tokens) == 1 and gguf.File(str(model)).id not in tokens
    for n, path in enumerate(here):
        for at in (
            path.stat().st_size - 1,
            path.stat().st_size // 2 if n else path.stat().st_size - 2,
        ):
            data = path.read_bytes()
            path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
            try:
                known = len(tokens)
                tokens.add(gguf.File(str(here[0])).id)
                assert len(tokens) == known + 1, (path, at)
            finally:
                path.write_bytes(data)
