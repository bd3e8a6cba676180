"""Metadata that no command needs: of any length, anywhere, passed over where a file is opened, and
carried over by every copy."""

import json
import os
import random
import struct
import subprocess
import sys

import pytest
import tiny_model
from conftest import run
from gguf_writer import header, key_value, string, write_gguf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_shards import IDS, logits

from sluice import gguf
from sluice.faults import Error
from sluice.gguf import resplit, shards
from sluice.gguf.metadata import KEPT, KIND_NAMES, LARGE, PIECE, Unread
from sluice.gguf.metadata import MAX_SCAN_BYTES as MOST

SMALL = dict(
    type="f32", n_layer=1, n_embd=32, n_ff=32, n_head=2, n_head_kv=1, head_dim=16, n_vocab=400
)
SIZES = (0, 1, LARGE - 1, LARGE, LARGE + 1, 100_000, PIECE - 1, PIECE + 1, 2 * PIECE + 17)
KINDS = {"u8": 1, "i16": 2, "u32": 4, "f32": 4, "f64": 8, "i64": 8, "bool": 1}


def value_of(kind, size, rng):
    """(kind, value) of about `size` bytes."""
    if kind == "string":
        return kind, bytes(rng.choices(b'ab\n\xc3\xa9\xff"\\', k=size))
    if kind == "[string]":
        out, left = [], size
        while left > 0:
            n = min(left, rng.choice((0, 1, 7, 300, LARGE, LARGE + 1, 3 * PIECE // 2)))
            out.append(rng.randbytes(n))
            left -= n + 8
        return kind, out
    n = size // KINDS[kind[1:-1]]
    if kind == "[bool]":
        return kind, [rng.random() < 0.5 for _ in range(n)]
    if kind in ("[f32]", "[f64]"):
        return kind, [float(i % 1000) for i in range(n)]
    return kind, [i % 100 for i in range(n)]


@pytest.fixture(scope="module")
def model():
    """(metadata, tensors) of a small model, for write_gguf."""
    c = tiny_model.complete(SMALL)
    tensors = []
    for name, shape in tiny_model.shapes(c).items():
        kind, data = tiny_model.encode(tiny_model.weights(c, name, shape), "f32", shape[0])
        tensors.append((name, kind, shape, data))
    return tiny_model.metadata(c), tensors


VALUES = st.tuples(
    st.integers(0, 40),
    st.sampled_from(["string", "[string]", *(f"[{k}]" for k in KINDS)]),
    st.sampled_from(SIZES),
)


@pytest.mark.full
@given(st.lists(VALUES, min_size=1, max_size=4), st.integers(0, 1 << 32))
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
def test_large_values_anywhere_change_nothing_and_are_copied(model, tmp_path_factory, extra, seed):
    rng = random.Random(seed)
    d = tmp_path_factory.mktemp("unread")
    metadata, tensors = model
    items = list(metadata.items())
    more = {f"extra.{i}.key": value_of(kind, size, rng) for i, (_, kind, size) in enumerate(extra)}
    for (at, _, _), item in zip(extra, more.items()):
        items.insert(min(at, len(items)), item)
    write_gguf(d / "m.gguf", dict(items), tensors)
    write_gguf(d / "bare.gguf", metadata, tensors)
    file = gguf.File(str(d / "m.gguf"))
    assert list(file.metadata) == [key for key, _ in items]
    for key, (kind, value) in more.items():
        found = file.metadata[key]
        raw = key_value("k", kind, value)[9:]
        is_large = len(raw) - (16 if kind.startswith("[") else 12) > LARGE
        assert isinstance(found, Unread) == is_large, (kind, len(raw))
        data = b"".join(found.raw()) if is_large else bytes(file.raw(key))
        assert data == raw
        if is_large:
            if kind != "string":
                assert [v if kind != "[string]" else v[: PIECE - 8] for v in found.values()] == [
                    v if kind != "[string]" else v[: PIECE - 8] for v in value
                ]
            with pytest.raises(Error, match=f"more than {LARGE}") as e:
                file.get(key, kind)
            assert e.value.code == 65
    assert logits(d / "m.gguf") == logits(d / "bare.gguf")
    paths = resplit.split(file, str(d / "s"), os.path.getsize(d / "m.gguf") - 3000)
    assert len(paths) == 2
    resplit.merge(gguf.File(paths[1]), str(d / "again.gguf"))
    assert (d / "again.gguf").read_bytes() == (d / "m.gguf").read_bytes()
    assert run("gguf-quantize", d / "m.gguf", d / "q.gguf", "F16").returncode == 0
    copy = gguf.File(str(d / "q.gguf"))
    for key in more:
        a, b = file.raw(key), copy.raw(key)
        assert (list(a.raw()) == list(b.raw())) if isinstance(a, Unread) else bytes(a) == bytes(b)
    subprocess.run(["rm", "-r", d], check=True)


@pytest.mark.full
def test_gguf_dump_shows_them_short_and_whole(tmp_path):
    text = ('{"vocab": "é\u202e\n\t' + "x" * 70_000) * 40
    numbers, words = list(range(50_000)), [b"word %d\xff" % i for i in range(30_000)]
    write_gguf(
        tmp_path / "m.gguf",
        {
            "tokenizer.huggingface.json": ("string", text),
            "a.numbers": ("[u32]", numbers),
            "a.words": ("[string]", words),
            "b": ("u8", 7),
        },
        [],
    )
    listed = run("gguf-dump", tmp_path / "m.gguf").stdout.decode()
    assert f"({len(text.encode())} bytes)" in listed and "u32[50000]" in listed
    assert '"word 0' in listed and len(listed) < 2000
    whole = run("gguf-dump", tmp_path / "m.gguf", "tokenizer.huggingface.json").stdout.decode()
    assert whole == text.replace("\u202e", "\\u202e") + "\n"
    assert (
        json.loads(
            run("gguf-dump", "--json", tmp_path / "m.gguf", "tokenizer.huggingface.json").stdout
        )
        == text
    )
    assert (
        json.loads(run("gguf-dump", "--json", tmp_path / "m.gguf", "a.numbers").stdout) == numbers
    )
    assert (
        json.loads(run("gguf-dump", "--json", tmp_path / "m.gguf", "a.words").stdout)[777]
        == "word 777\\xff"
    )
    assert run("gguf-dump", tmp_path / "m.gguf", "a.numbers").stdout.split()[-1] == b"49999"
    assert run("gguf-dump", tmp_path / "m.gguf", "b").stdout == b"7\n"
    entry = json.loads(run("gguf-dump", "--json", "--full", tmp_path / "m.gguf").stdout)[
        "metadata"
    ]["tokenizer.huggingface.json"]
    assert entry == {"type": "string", "bytes": len(text.encode())}
    assert run("gguf-dump", "--full", tmp_path / "m.gguf").returncode == 0


PEAK = """
import resource, sys, time
from sluice import gguf
before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
file = gguf.File(sys.argv[1])
seconds, after = time.process_time() - began, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(after - before, seconds, len(file.metadata))
"""


def opened(path):
    """(KiB that opening took, seconds of processor time, keys), the fastest of five."""
    runs = [
        subprocess.run(
            [sys.executable, "-c", PEAK, path], capture_output=True, text=True, check=True
        ).stdout.split()
        for _ in range(5)
    ]
    return min(int(r[0]) for r in runs), min(float(r[1]) for r in runs), int(runs[0][2])


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("size", [20 << 20, 600 << 20])
def test_large_tokenizer_key_does_not_slow_opening(model, tmp_path, size):
    metadata, tensors = model
    write_gguf(tmp_path / "m.gguf", metadata, tensors)
    data = (tmp_path / "m.gguf").read_bytes()
    entry = string("tokenizer.huggingface.json") + struct.pack("<IQ", 8, size)
    body = header(len(tensors), len(metadata) + 1) + entry
    with open(tmp_path / "large.gguf", "wb") as f:  # the key comes first, its value is a hole
        f.write(body)
        f.seek(len(body) + size)
        head = gguf.File(str(tmp_path / "m.gguf")).parts[0]
        f.write(data[24 : len(head.head)])
        f.write(bytes(-f.tell() % 32) + data[head.data_offset :])
    (kib, seconds, n), (more_kib, more_seconds, more_n) = (
        opened(tmp_path / "m.gguf"),
        opened(tmp_path / "large.gguf"),
    )
    assert more_n == n + 1 and more_kib < kib + 2048 and more_seconds < 2 * seconds + 0.01
    assert logits(tmp_path / "large.gguf") == logits(tmp_path / "m.gguf") and len(IDS) > 1


def hole_of_strings(path, keys, metadata=()):
    """A file with as many `keys` of empty strings, each MOST / 2 bytes, that takes no disk."""
    with open(path, "wb") as f:
        f.write(header(0, len(keys) + len(metadata)) + b"".join(metadata))
        for key in keys:
            f.write(string(key) + struct.pack("<IIQ", 9, 8, MOST // 16))
            f.seek(MOST // 2, os.SEEK_CUR)
        f.truncate(f.tell() + 64)


@pytest.mark.full
def test_strings_that_are_read_to_be_passed_over_are_bounded(tmp_path, monkeypatch):
    hole_of_strings(tmp_path / "m.gguf", ["a.x", "a.y"])
    assert len(gguf.File(str(tmp_path / "m.gguf")).metadata) == 2
    hole_of_strings(tmp_path / "m.gguf", ["a.x", "a.y", "a.z"])
    with pytest.raises(Error, match=r"m.gguf: a.z: arrays of strings of more than 1 GiB") as e:
        gguf.File(str(tmp_path / "m.gguf"))
    assert e.value.code == 69


@pytest.mark.full
def test_and_so_are_those_of_all_shards(tmp_path):
    for i in range(4):
        split = [key_value(key, "u16", n) for key, n in zip(shards.KEYS, (i, 4, 0))]
        hole_of_strings(shards.name(tmp_path / "m", i, 4), ["a.x"], split)
    with pytest.raises(Error, match=r"m-00003-of-00004.gguf: arrays of strings of more") as e:
        gguf.File(shards.name(tmp_path / "m", 0, 4))
    assert e.value.code == 69


def test_hub_names_of_needed_keys_are_kept():
    for key in (
        "tokenizer.ggml.tokens",
        "tokenizer.ggml.merges",
        "tokenizer.chat_template",
        "tokenizer.chat_template.tool_use",
    ):
        assert KEPT.fullmatch(key)
    for key in (
        "tokenizer.huggingface.json",
        "general.description",
        "tokenizer.ggml.tokens.x",
        "x.tokenizer.ggml.tokens",
    ):
        assert not KEPT.fullmatch(key)
    assert KIND_NAMES[8] == "string"


def test_dump_of_a_file_truncated_meanwhile_exits_74(tmp_path):
    write_gguf(
        tmp_path / "m.gguf",
        {"a.text": ("string", b"x" * (4 * PIECE)), "a.list": ("[u32]", list(range(PIECE)))},
        [],
    )
    file = gguf.File(str(tmp_path / "m.gguf"))
    os.truncate(tmp_path / "m.gguf", 1000)
    for key in file.metadata:
        with pytest.raises(Error, match="became shorter") as e:
            list(file.metadata[key].pieces())
        assert e.value.code == 74
