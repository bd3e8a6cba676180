"""gguf-dump: what it prints of models, snapshots and streams; golden cases in
tests/golden/gguf-dump-*.

`python tests/gguf/test_gguf_dump.py` (with lib/ and tests/ on the path) writes the golden files
anew.
"""

import json
import math
import os
import struct
import subprocess
from pathlib import Path

import forked
import numpy as np
import pytest
from bad_gguf import EVERY_KIND
from conftest import BIN, ROOT, START, run
from gguf_writer import (
    BF16,
    BLOCK_TYPES,
    F16,
    F32,
    Q4_0,
    Q4_1,
    Q8_0,
    QUANTIZE,
    random_blocks,
    write_gguf,
)

from sluice import gguf, stream
from sluice.faults import Error
from sluice.gguf import dump_tensor, printing
from sluice.gguf.dump_state import SnapshotFile
from sluice.kernels import ffi, lib
from sluice.kvcache import format
from sluice.kvcache.snapshot import Geometry, Snapshot

GOLDEN = ROOT / "tests" / "golden"
MODEL_ID = bytes(range(32))
WEIGHTS = (np.arange(192) - 77).reshape(3, 64) / 16.0
TENSORS = [
    (f"blk.{i}.{name}.weight", number, (64, 3), QUANTIZE[number](WEIGHTS))
    for i, (name, number) in enumerate(
        (("f32", F32), ("f16", F16), ("bf16", BF16), ("q8_0", Q8_0), ("q4_0", Q4_0), ("q4_1", Q4_1))
    )
]
UNKNOWN = ("blk.6.q1_0.weight", 41, (256, 2), bytes(72))
TEMPLATE = "{% for m in messages %}\n\t{{ m['role'] + '\\n' }}\x1b[31m\n{% endfor %}" + "." * 100
METADATA = {
    "general.architecture": ("string", "llama"),
    **EVERY_KIND,
    "tokenizer.chat_template": ("string", TEMPLATE),
    "tokenizer.ggml.tokens": (
        "[string]",
        [f"<0x{i:02X}>" for i in range(256)] + ["\u2581the", "\u202eevil\x07", b"\xf0\x9f"],
    ),
}


def make_files(directory):
    """The files that the golden commands read."""
    write_gguf(directory / "model.gguf", METADATA, TENSORS + [UNKNOWN])
    write_gguf(directory / "empty.gguf", {}, [], version=2)
    spoilt = np.array(WEIGHTS, "<f4")
    spoilt[1, 5], spoilt[2, 63] = np.nan, np.inf
    q4 = bytearray(QUANTIZE[Q4_0](WEIGHTS))
    q4[5 * 18 : 5 * 18 + 2] = b"\0\x7c"
    write_gguf(
        directory / "spoilt.gguf",
        {},
        [
            ("good", F32, (64, 3), QUANTIZE[F32](WEIGHTS)),
            ("nan", F32, (64, 3), spoilt.tobytes()),
            ("scale", Q4_0, (64, 3), bytes(q4)),
        ],
    )
    head = stream.logits_header(MODEL_ID, 8)
    dense = struct.pack("<8f", 0, -1.5, 3.25, 3.25, math.nan, -math.inf, 0.1, math.inf)
    (directory / "stream.logits").write_bytes(
        head
        + stream.record(b"L", 0, 4, -1, dense)
        + stream.record(b"C", stream.LAST, 5, 2, struct.pack("<ifif", 3, 0.5, 6, 1.5))
        + stream.record(b"E", stream.FULL, 6, 6)
    )
    (directory / "stream.ids").write_bytes(
        stream.tokens_header(MODEL_ID, 32000)
        + b"".join(b"%d\t-0.5\n" % i for i in range(100, 140))
        + stream.tokens_end("length")
    )
    snapshot = Snapshot.create(Geometry(2, 2, 4, 1, 8), 40, MODEL_ID, "reference 1", str(directory))
    snapshot.reserve(20)
    snapshot.tokens[:20] = (
        memoryview(struct.pack("<20i", *(i % 8 for i in range(20)))).cast("B").cast("i")
    )
    snapshot.n_tok = 20
    ffi.memmove(snapshot.logits, dense, 32)
    snapshot.seal(directory / "state.snap")
    snapshot.close()


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    directory = tmp_path_factory.mktemp("files")
    make_files(directory)
    return directory


def run_golden(cmd, directory):
    """A golden command, by sh, with bin/ first on the path: (stdout and stderr, status)."""
    env = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["sh", "-c", cmd],
        cwd=directory,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        timeout=60,
    )
    return done.stdout + b"status %d\n" % done.returncode


@pytest.mark.parametrize("case", sorted(p.stem for p in GOLDEN.glob("gguf-dump-*.cmd")))
def test_golden(files, case):
    assert (
        run_golden((GOLDEN / f"{case}.cmd").read_text(), files)
        == (GOLDEN / f"{case}.out").read_bytes()
    )


def test_golden_cases_are_there():
    assert len(list(GOLDEN.glob("gguf-dump-*.cmd"))) >= 15


def test_marks_of_a_grammar_are_printed(tmp_path):
    one = struct.pack("<if", 3, 0.5)
    flags = [
        stream.CONSTRAINED,
        stream.CONSTRAINED | stream.MAY_END,
        stream.CONSTRAINED | stream.MAY_END | stream.LAST,
    ]
    (tmp_path / "s").write_bytes(
        stream.logits_header(MODEL_ID, 8)
        + b"".join(stream.record(b"C", f, 4 + i, -1, one) for i, f in enumerate(flags))
        + stream.record(b"E", stream.CONSTRAINED | stream.FULL, 7, 3)
    )
    lines = run("gguf-dump", tmp_path / "s").stdout.decode().splitlines()[3:]
    assert [line.partition("3 0.5")[2].split() for line in lines[:3]] == [
        ["constrained"],
        ["constrained", "may-end"],
        ["last", "constrained", "may-end"],
    ]
    assert lines[3].split()[-2:] == ["full", "constrained"]
    found = [
        json.loads(line) for line in run("gguf-dump", "--json", tmp_path / "s").stdout.splitlines()
    ]
    assert [r["flags"] for r in found[1:]] == [
        ["constrained"],
        ["constrained", "may-end"],
        ["last", "constrained", "may-end"],
        ["full", "constrained"],
    ]
    (tmp_path / "ids").write_bytes(
        stream.tokens_header(MODEL_ID, 8) + b"3\n" + stream.tokens_end("cut")
    )
    assert run("gguf-dump", tmp_path / "ids").stdout.endswith(b"\n1 tokens, end: cut\n")
    assert json.loads(run("gguf-dump", "--json", tmp_path / "ids").stdout.splitlines()[-1]) == {
        "count": 1,
        "end": "cut",
    }


# Models ------------------------------------------------------------------------


def every_output(files):
    model = files / "model.gguf"
    yield from ([model], ["--full", model], ["--json", model], ["--json", "--full", model])
    yield from (([model, key]) for key in METADATA if "string" in METADATA[key][0])
    yield from (
        (["--json", model, key])
        for key in ("k.string", "k.[string]", "k.bytes", "tokenizer.ggml.tokens")
    )


@pytest.mark.full
def test_no_control_code_reaches_the_output(files):
    """Nothing but printable characters, newlines, and the tabs of a string printed alone."""
    for argv in every_output(files):
        done = run("gguf-dump", *argv)
        assert done.returncode == 0 and done.stderr == b""
        text = done.stdout.decode()
        for c in "\n\t":
            text = text.replace(c, "")
        assert text.isprintable(), argv


def test_json_holds_everything(files):
    whole = json.loads(run("gguf-dump", "--json", "--full", files / "model.gguf").stdout)
    file = gguf.File(files / "model.gguf")
    assert (whole["version"], whole["bytes"], whole["alignment"], whole["model_id"]) == (
        3,
        file.size,
        32,
        file.id.hex(),
    )
    assert list(whole["metadata"]) == list(METADATA)
    for key, (kind, value) in METADATA.items():
        found = whole["metadata"][key]
        if kind.startswith("["):
            assert (found["type"], found["elements"], found["count"]) == (
                "array",
                kind[1:-1],
                len(value),
            )
            if kind not in ("[string]", "[f32]"):
                assert found["value"] == value
        else:
            assert found["type"] == kind
            if kind in ("u64", "i64", "u8", "bool", "f64", "f32") and math.isfinite(value):
                assert found["value"] == value  # f32 0.1 as 0.1
    assert (
        whole["metadata"]["k.nan"]["value"] == "NaN"
        and whole["metadata"]["k.inf"]["value"] == "-Infinity"
    )
    assert whole["metadata"]["k.[f32]"]["value"] == [0.5, "Infinity"]
    data = (files / "model.gguf").read_bytes()
    for t, (name, number, shape, written) in zip(whole["tensors"], TENSORS + [UNKNOWN]):
        assert (t["name"], t["shape"], t["bytes"]) == (name, list(shape), len(written))
        assert data[t["offset"] : t["offset"] + t["bytes"]] == written
    short = json.loads(run("gguf-dump", "--json", files / "model.gguf").stdout)
    assert "value" not in short["metadata"]["tokenizer.ggml.tokens"]
    assert short["tensors"] == whole["tensors"]


@pytest.mark.quick_cases(3)
@pytest.mark.parametrize("i", range(6))
def test_values_are_the_weights(files, i):
    from gguf import GGMLQuantizationType
    from gguf.quants import dequantize

    name, number, _, data = TENSORS[i]
    theirs = (
        dequantize(np.frombuffer(data, np.uint8).reshape(3, -1), GGMLQuantizationType(number))
        .ravel()
        .tolist()
    )
    for n in (1, 33, 192):
        done = run("gguf-dump", "--json", "--values", name, "-n", n, files / "model.gguf")
        assert json.loads(done.stdout) == [float(printing.number(x, gguf.F32)) for x in theirs[:n]]
    text = (
        run("gguf-dump", "--values", name, "-n", 1000, files / "model.gguf")
        .stdout.decode()
        .splitlines()[1:]
    )
    printed = np.array([w for line in text for w in line.split()[1:]], "<f4")
    assert (printed == np.array(theirs, "<f4")).all()


def test_block_types_are_listed_valued_and_checked(tmp_path):
    from gguf import GGMLQuantizationType
    from gguf.quants import dequantize

    rng, path = np.random.default_rng(1), tmp_path / "m.gguf"
    data = {name: random_blocks(rng, name, 3 * 512 // BLOCK_TYPES[name][1]) for name in BLOCK_TYPES}
    write_gguf(
        path, {}, [(name, BLOCK_TYPES[name][0], (512, 3), data[name].tobytes()) for name in data]
    )
    listed = json.loads(run("gguf-dump", "--json", path).stdout)["tensors"]
    assert [(t["name"], t["type"], t["shape"], t["bytes"]) for t in listed] == [
        (n, n, [512, 3], d.size) for n, d in data.items()
    ]
    file = gguf.File(path)
    for name, blocks in data.items():
        theirs = dequantize(blocks, GGMLQuantizationType[name]).ravel()
        assert dump_tensor.values(file, file.tensors[name], 700) == theirs[:700].tolist()
    assert run("gguf-dump", "--check", path).returncode == 0


def test_hexdump_is_the_bytes_at_the_offset_listed(files):
    listing = run("gguf-dump", files / "model.gguf").stdout.decode().splitlines()
    (row,) = [line.split() for line in listing if "blk.3.q8_0.weight" in line]
    offset, n_bytes = int(row[-2]), int(row[-1])
    out = run(
        "gguf-dump", "--hexdump", "blk.3.q8_0.weight", "-n", 10**6, files / "model.gguf"
    ).stdout.decode()
    data = b"".join(bytes.fromhex(line[10:58]) for line in out.splitlines())
    assert data == (files / "model.gguf").read_bytes()[offset : offset + n_bytes]
    assert int(out[:8], 16) == offset


@pytest.mark.parametrize(
    "x", [0.1, 1e-5, 3.4028235e38, -1.1754944e-38, 1e-45, 16777216.0, 1 / 3, -0.0, 123456.789]
)
def test_number_is_short_and_exact(x):
    x = struct.unpack("<f", struct.pack("<f", x))[0]
    text = printing.number(x, gguf.F32)
    assert struct.pack("<f", float(text)) == struct.pack("<f", x) and len(text) <= len(f"{x:.9g}")


def test_visible_text_can_be_read_back():
    for text in (
        "plain",
        "tab\tnew\nline",
        "back\\slash \\n",
        "\x1b[0m\x00\x7f\x9b",
        "\u202e\u2066\ufeff\xa0",
        "ümläut ▁ 😀",
        '"q"',
    ):
        shown = printing.visible(text)
        assert shown.isprintable()
        assert shown.encode("latin-1", "backslashreplace").decode("unicode_escape") == text
    assert printing.visible(b"\xff\\xff\x1b") == "\\xff\\\\xff\\x1b"


def test_streams_of_big_arrays_are_printed_whole(tmp_path):
    write_gguf(tmp_path / "m.gguf", {"a": ("[u32]", list(range(5000)))}, [])
    assert run("gguf-dump", tmp_path / "m.gguf", "a").stdout == b"".join(
        b"%d\n" % i for i in range(5000)
    )


# --check ---------------------------------------------------------------------------


def test_check_is_silent_on_a_good_model_and_names_what_it_cannot_check(files):
    write_gguf(files / "good.gguf", {}, TENSORS)
    done = run("gguf-dump", "--check", files / "good.gguf")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    done = run("gguf-dump", "--check", files / "model.gguf")
    assert (done.returncode, done.stdout) == (
        69,
        b"",
    ) and b"blk.6.q1_0.weight: type Q1_0" in done.stderr


def test_check_finds_a_value_in_a_late_piece(tmp_path):
    weights = np.zeros((3, 1 << 18), "<f4")
    weights[2, 12345] = np.inf
    write_gguf(tmp_path / "m.gguf", {}, [("t", F32, (1 << 18, 3), weights.tobytes())])
    done = run("gguf-dump", "--check", tmp_path / "m.gguf")
    assert done.returncode == 65 and done.stdout == b"t: 1 not finite, the first at [12345, 2]\n"


def test_check_of_a_snapshot_finds_one_bit(files, tmp_path):
    data = bytearray((files / "state.snap").read_bytes())
    for at, code in (
        (None, 0),
        (4096, 65),
        (format.Layout(Geometry(2, 2, 4, 1, 8), 40).kv_offset, 65),
    ):
        if at is not None:
            data[at] ^= 1
        (tmp_path / "s.snap").write_bytes(data)
        os.chmod(tmp_path / "s.snap", 0o600)
        done = run("gguf-dump", "--check", tmp_path / "s.snap")
        assert (done.returncode, done.stdout) == (code, b"")
        assert done.stderr.count(b"\n") == bool(code)
        with open(tmp_path / "s.snap", "rb") as f:
            by_stdin = run("gguf-dump", "--check", stdin=f)
        assert (by_stdin.returncode, by_stdin.stderr) == (code, done.stderr)


# Snapshots and streams -----------------------------------------------------------------


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("name", ["model.gguf", "state.snap", "stream.logits", "stream.ids"])
def test_stdin_gives_what_the_file_gives(files, name):
    for flags in ([], ["--json"]):
        by_name = run("gguf-dump", *flags, files / name)
        assert by_name.returncode == 0 and by_name.stdout
        with open(files / name, "rb") as f:
            assert run("gguf-dump", *flags, stdin=f).stdout == by_name.stdout
        by_pipe = run("gguf-dump", *flags, input=(files / name).read_bytes())
        if name.startswith("stream"):
            assert by_pipe.stdout == by_name.stdout
        else:
            assert by_pipe.returncode == 65 and b"in a pipe" in by_pipe.stderr


@pytest.mark.parametrize("name", ["model.gguf", "state.snap", "stream.logits", "stream.ids"])
def test_json_is_json(files, name):
    for line in run("gguf-dump", "--json", files / name).stdout.splitlines():
        json.loads(line, parse_constant=lambda c: pytest.fail(c))


@pytest.mark.parametrize("name", ["model.gguf", "state.snap", "stream.logits", "stream.ids"])
@pytest.mark.quick_cases(1)
def test_cut_file_exits_65(files, tmp_path, name):
    data = (files / name).read_bytes()
    # a model may lack 31 bytes of padding
    for n in {0, 1, 4, 5, 6, 7, 16, 31, 40, len(data) // 2, len(data) - 33}:
        (tmp_path / "cut").write_bytes(data[:n])
        done = run("gguf-dump", tmp_path / "cut")
        assert done.returncode == 65 and done.stderr.count(b"\n") == 1, (n, done)


def test_snapshot_that_lies_with_a_right_header_checksum_exits_65(files, tmp_path):
    """Every field is its writer's choice: bounded before use; what still makes sense is refused by
    --check.
    """
    data, path = (files / "state.snap").read_bytes(), tmp_path / "s.snap"
    for at in range(48, 144, 4):
        for value in (0, 0xFFFFFFFF, 0x7FFFFFFF, 100_000):
            page = bytearray(data[:4096])
            if page[at : at + 4] == struct.pack("<I", value):
                continue
            page[at : at + 4] = struct.pack("<I", value)
            page[4092:] = struct.pack("<I", lib.crc32c(0, bytes(page), 4092))
            path.write_bytes(page + data[4096:])
            path.chmod(0o600)
            fd = os.open(path, os.O_RDONLY)
            with pytest.raises(Error) as e:
                SnapshotFile(fd, str(path)).check()
            os.close(fd)
            assert e.value.code == 65


def test_stream_is_printed_as_it_arrives(files):
    data = (files / "stream.logits").read_bytes()
    child = subprocess.Popen([BIN / "gguf-dump"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    child.stdin.write(data[: 32 + 16 + 32])
    child.stdin.flush()
    lines = [child.stdout.readline() for _ in range(4)]
    assert lines[3].split()[:4] == [b"L", b"4", b"-1", b"8"]
    out, _ = child.communicate(data[80:], timeout=60)
    assert out.split()[0] == b"C" and child.returncode == 0


# Edges ------------------------------------------------------------------------------------


@pytest.mark.quick_cases(6)
@pytest.mark.parametrize(
    "argv, code, names",
    [
        (["model.gguf", "no.such.key"], 1, "no.such.key"),
        (["--values", "nothing", "model.gguf"], 1, "nothing"),
        (["--hexdump", "nothing", "model.gguf"], 1, "nothing"),
        (["--values", "blk.6.q1_0.weight", "model.gguf"], 69, "Q1_0"),
        (["absent.gguf"], 66, "absent.gguf"),
        (["."], 65, "directory"),
        (["--nonsense"], 64, "nonsense"),
        (["model.gguf", "a", "b"], 64, "b"),
        (["--check", "model.gguf", "key"], 64, "exclude"),
        (["-n", "0", "--values", "x", "model.gguf"], 64, "count"),
        (["stream.ids", "key"], 64, "stream.ids"),
        (["--check", "stream.logits"], 64, "stream.logits"),
        (["--values", "x", "state.snap"], 64, "state.snap"),
    ],
)
def test_wrong_use_ends_in_its_code(files, argv, code, names):
    done = forked.run("gguf-dump", *argv, cwd=files)
    assert done.returncode == code and done.stdout == b""
    assert done.stderr.count(b"\n") == 1 and names in done.stderr.decode()


def test_full_disk_and_closed_stdout(files):
    with open("/dev/full", "wb") as full:
        done = run("gguf-dump", files / "model.gguf", stdout=full)
    assert done.returncode == 74 and done.stderr.count(b"\n") == 1
    done = subprocess.run(
        ["sh", "-c", f'exec "{BIN}/gguf-dump" model.gguf >&-'], cwd=files, capture_output=True
    )
    assert done.returncode == 74 and done.stderr.count(b"\n") == 1
    done = subprocess.run(
        ["sh", "-c", f'"{BIN}/gguf-dump" --full model.gguf | :'], cwd=files, capture_output=True
    )
    assert done.stderr == b""


def test_start_imports_nothing_it_does_not_use(files):
    done = subprocess.run(
        [
            ROOT / ".venv/bin/python3",
            "-I",
            "-X",
            "importtime",
            START,
            BIN / "gguf-dump",
            files / "model.gguf",
        ],
        capture_output=True,
        timeout=60,
    )
    modules = {line.split(b"|")[-1].strip().decode() for line in done.stderr.splitlines()}
    assert {"click", "sluice.gguf"} <= modules
    assert not modules & {
        "json",
        "numpy",
        "cffi",
        "sluice.gguf.dump_state",
        "sluice.kvcache",
        "ctypes",
    }


def test_command_is_ours(files):
    """The gguf package installs a command of the same name."""
    assert b"(sluice)" in run("gguf-dump", "-V").stdout


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as d:
        make_files(Path(d))
        for path in sorted(GOLDEN.glob("gguf-dump-*.cmd")):
            path.with_suffix(".out").write_bytes(run_golden(path.read_text(), d))
