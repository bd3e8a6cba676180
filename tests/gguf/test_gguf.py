"""The reader of model files: what it takes, what it refuses and how, what it costs."""

import gc
import os
import struct
import subprocess
import sys
import time

import bad_gguf
import forked
import numpy as np
import pytest
from bad_gguf import CASES, EVERY_KIND, GOOD_KV, TWO
from conftest import run
from gguf_writer import (
    F32,
    Q8_0,
    f32,
    gguf_bytes,
    header,
    key_value,
    padded,
    string,
    tensor_info,
    write_gguf,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sluice import gguf
from sluice.faults import BAD_DATA, IO_ERROR, UNSUPPORTED, Error
from sluice.gguf.metadata import KIND_NAMES
from sluice.kernels import ffi, lib


@pytest.fixture
def memory_file():
    """put(data) -> the path of a file in memory with these bytes; the same one each time."""
    fd = os.memfd_create("gguf")

    def put(data, at=0):
        if not at:
            os.ftruncate(fd, len(data))
        os.pwrite(fd, data, at)
        return f"/proc/self/fd/{fd}"

    put.fd = fd
    yield put
    os.close(fd)


def fault_of(path):
    """The Error of opening `path`, None if it is taken; anything else escapes and fails the
    test.
    """
    try:
        gguf.File(path)
    except Error as e:
        assert e.code in (BAD_DATA, UNSUPPORTED) and "\n" not in str(e) and str(e).startswith(path)
        return e


# Good files --------------------------------------------------------------------


@pytest.mark.parametrize("version", [2, 3])
def test_file_gives_back_what_was_written(tmp_path, version):
    path = tmp_path / "m.gguf"
    write_gguf(path, EVERY_KIND, TWO, version, alignment=64)
    file = gguf.File(path)
    assert (file.version, file.alignment, file.size) == (version, 64, path.stat().st_size)
    assert list(file.metadata) == [*EVERY_KIND, "general.alignment"]
    for key, (kind, value) in EVERY_KIND.items():
        found = file.metadata[key]
        if kind.startswith("["):
            assert KIND_NAMES[found.kind] == kind[1:-1] and found.n == len(value)
            assert found.values() == [v.encode() if isinstance(v, str) else v for v in value]
            assert file.get(key, kind) is found
        else:
            assert KIND_NAMES[file.kinds[key]] == kind
            if kind == "f32":
                value = struct.unpack("<f", struct.pack("<f", value))[0]
            if key == "k.bytes":
                value = "\\xff\\xfe\\x41"
            assert found == value or found != found and value != value
    data = path.read_bytes()
    for (name, number, shape, written), t in zip(TWO, file.tensors.values()):
        assert (t.name, t.type, t.shape, t.n_bytes) == (name, number, shape, len(written))
        assert t.offset % 64 == 0 and data[t.offset : t.offset + t.n_bytes] == written
        assert (
            bytes(ffi.buffer(file.pointer(t), t.n_bytes)) == written == file.read(t, 0, t.n_bytes)
        )


def test_get_states_what_was_expected_and_found(tmp_path):
    write_gguf(tmp_path / "m.gguf", EVERY_KIND, [])
    file = gguf.File(str(tmp_path / "m.gguf"))
    assert (
        file.get("k.u8", "u32") == 255
        and file.get("k.i8", "i32") == -128
        and file.get("absent", "u32", 5) == 5
    )
    assert file.get("k.f64", "f32") == 0.1
    for key, kind, found in (
        ("k.i32", "u32", "i32 -1"),
        ("k.u64", "u32", "u64"),
        ("k.u16", "i16", "u16 65535"),
        ("k.bool", "u32", "bool"),
        ("k.u32", "bool", "u32 1"),
        ("k.u32", "string", "u32"),
        ("k.string", "u32", "string"),
        ("k.u32", "f32", "u32"),
        ("k.[u8]", "[f32]", "3 u8"),
        ("k.[u8]", "u8", "3 u8"),
        ("k.u8", "[u8]", "u8 255"),
        ("k.[i32]", "[u32]", "3 i32"),
    ):
        with pytest.raises(Error) as e:
            file.get(key, kind)
        assert (
            e.value.code == BAD_DATA
            and f"{key}: expected {kind}, found" in str(e.value)
            and found in str(e.value)
        )
        assert str(e.value).isprintable()
    with pytest.raises(Error, match="absent is missing"):
        file.get("absent", "u32")


@pytest.mark.parametrize("name, n_tokens", [("ggml-vocab-llama-spm.gguf", 32000)])
@pytest.mark.full
def test_real_vocabulary_equals_gguf_package(datafile, name, n_tokens):
    from gguf import GGUFReader

    path = datafile(f"vocab/{name}")
    file, theirs = gguf.File(path), GGUFReader(path)
    assert list(file.metadata) == [k for k in theirs.fields if not k.startswith("GGUF.")]
    tokens = file.get("tokenizer.ggml.tokens", "[string]")
    field = theirs.fields["tokenizer.ggml.tokens"]
    ours = tokens.values()
    assert tokens.n == n_tokens == len(field.data)
    for i in [*range(0, n_tokens, 997), n_tokens - 1]:
        assert ours[i] == bytes(field.parts[field.data[i]])


@pytest.mark.full
def test_largest_vocabulary_is_taken(datafile):
    file = gguf.File(datafile("vocab/ggml-vocab-gemma-4.gguf"))
    assert file.get("tokenizer.ggml.tokens", "[string]").values(3) == [b"<pad>", b"<eos>", b"<bos>"]
    merges = file.get("tokenizer.ggml.merges", "[string]")
    assert merges.n == 514_906 and all(b" " in m for m in merges.values())


# Bad files -----------------------------------------------------------------------


def test_cases_are_many_and_named_once():
    names = [c[0] for c in CASES]
    assert len(set(names)) == len(names) >= 100 and sum(1 for c in CASES if c[2]) >= 80


@pytest.mark.quick_cases(50)
@pytest.mark.parametrize("name, data, code, names", CASES, ids=[c[0] for c in CASES])
def test_bad_file_ends_in_its_code_and_names_the_field(
    tmp_path, memory_file, name, data, code, names
):
    fault = fault_of(memory_file(data))
    assert (fault.code if fault else 0) == code, fault
    path = tmp_path / f"{name}.gguf"
    path.write_bytes(data)
    done = forked.run("gguf-dump", path)
    assert done.returncode == code, done.stderr
    if code:
        assert names in str(fault)
        assert done.stdout == b"" and done.stderr.count(b"\n") == 1
        line = done.stderr.decode()[:-1]
        assert (
            line.startswith(f"gguf-dump: {path}: ")
            and names in line
            and len(line) < 400
            and line.isprintable()
        )
    else:
        assert done.stdout and done.stderr == b""


def test_file_that_is_none_is_refused(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path, tmp_path / "fifo", "/dev/null", "/dev/zero"):
        with pytest.raises(Error, match="not a regular file"):
            gguf.File(path)
    with pytest.raises(FileNotFoundError):
        gguf.File(tmp_path / "absent")
    assert run("gguf-dump", tmp_path / "absent").returncode == 66
    assert run("gguf-dump", tmp_path).returncode == 65


def test_refused_files_leave_no_descriptor_open(memory_file):
    path = memory_file(b"GGUF" + bytes(60))
    fault_of(path)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(50):
        fault_of(path)
    assert len(os.listdir("/proc/self/fd")) == before


def peak_bytes(code, *argv):
    """Resident memory at its highest of a fresh interpreter that runs `code`, and what it
    printed.
    """
    code = (
        "import resource, sys; from sluice import gguf\nfrom sluice.faults import Error\npath ="
        f" sys.argv[1]\n{code}\nprint(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10)"
    )
    out = subprocess.run(
        [sys.executable, "-I", "-c", code, *map(str, argv)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    *said, peak = out.stdout.splitlines()
    return int(peak), said


@pytest.mark.parametrize(
    "what",
    [
        "array",
        "strings",
        "keys",
        "tensors",
        "array nobody needs",
        "strings nobody needs",
        "large values",
    ],
)
@pytest.mark.quick_cases(2)
def test_hostile_size_costs_bounded_memory_and_time(tmp_path, what):
    """Sparse files of 1 GiB that promise as much as the header can: refused or passed over, within
    the memory limit and a few seconds.
    """
    path = tmp_path / "m.gguf"
    size = 1 << 30
    begin = {
        "array": lambda: (
            header(0, 1) + string("tokenizer.ggml.scores") + struct.pack("<IIQ", 9, 0, size - 100)
        ),
        "strings": lambda: (
            header(0, 1)
            + string("tokenizer.ggml.tokens")
            + struct.pack("<IIQ", 9, 8, size // 8 - 100)
        ),
        "array nobody needs": lambda: (
            header(0, 1) + string("a.list") + struct.pack("<IIQ", 9, 0, size - 100)
        ),
        "strings nobody needs": lambda: (
            header(0, 1) + string("a.list") + struct.pack("<IIQ", 9, 8, size // 8 - 100)
        ),
        "large values": lambda: (
            header(0, 12_000)
            + b"".join(key_value(f"k{i:05}", "string", bytes(65_537)) for i in range(12_000))
        ),
        "keys": lambda: (
            header(0, 65_536)
            + b"".join(key_value(f"k{i:05}", "u32", 1) for i in range(65_535))
            + string("k00000")
        ),
        "tensors": lambda: (
            header(65_536, 0)
            + b"".join(tensor_info(f"t{i:05}", F32, (8,), 32 * i) for i in range(65_535))
            + string("t00000")
        ),
    }[what]()
    path.write_bytes(begin)
    os.truncate(path, size)
    peak, said = peak_bytes(
        "try:\n gguf.File(path)\nexcept Error as e:\n print(str(e)[len(path):])", path
    )
    base, _ = peak_bytes("gguf", path)
    if what in ("keys", "tensors", "array", "strings"):
        assert any(word in said[0] for word in ("more than 64 MiB", "twice"))
        assert peak - base < (64 << 20) + (16 << 20)
    else:
        assert said == [] and peak - base < 16 << 20
    if what in ("array", "strings"):
        assert "tokenizer.ggml." in said[0]


def test_collector_takes_cycles_of_files_and_pointers(tmp_path):
    """It crashed where one held a memoryview and a pointer into it, as the traceback of a refused
    file does.
    """
    good, path = gguf_bytes({"a.list": ("[string]", ["a", "b"])}, []), tmp_path / "m.gguf"
    path.write_bytes(good)
    code = """
import gc
from sluice.kernels import ffi
gc.disable()
def open_one(n_bytes):
    with open(path, "r+b") as f:
        f.truncate(n_bytes)
    try:
        file = gguf.File(path)
        cycle = [file, file.metadata["a.list"].raw]
        cycle += [memoryview(cycle[1]), ffi.from_buffer(cycle[1]), cycle]
    except Error as e:
        e.cycle = e
        return 1
    return 0
size = int(sys.argv[2])
good = sum(1 - open_one(size) for _ in range(100))
print(good, sum(open_one(size - i) for i in range(60) for _ in range(5)), gc.collect() > 1000)
"""
    _, said = peak_bytes(code, path, len(good))
    assert (
        said[0].startswith("100 ") and said[0].endswith(" True") and int(said[0].split()[1]) > 100
    )


# Every byte and every bit -----------------------------------------------------------


def small_model():
    """A file of every kind of value, with string arrays longer than one read, and seven tensors."""
    metadata = {
        **EVERY_KIND,
        "tokenizer.ggml.tokens": ("[string]", [f"token {i}" for i in range(40)]),
    }
    tensors = [(f"blk.{i}.w", F32, (8, i + 1), f32(np.arange(8 * (i + 1)))) for i in range(6)]
    return gguf_bytes(metadata, tensors + [("output", Q8_0, (32, 3), bytes(102))])


@pytest.mark.full
def test_truncation_at_every_byte_is_refused(memory_file):
    data = small_model()
    path = memory_file(data)
    assert fault_of(path) is None
    file = gguf.File(path)
    last = list(file.tensors.values())[-1]
    end = last.offset + last.n_bytes
    for n in range(len(data) - 1, -1, -1):
        os.ftruncate(memory_file.fd, n)
        fault = fault_of(path)
        # only the padding of the last tensor may be missing
        assert (fault is None) == (n >= end), n
        assert fault is None or fault.code == BAD_DATA


@pytest.mark.full
def test_bit_flips_are_refused_or_harmless(memory_file):
    data = small_model()
    path = memory_file(data)
    file = gguf.File(path)
    head = file.parts[0].head.nbytes
    taken = 0
    for at in range(head):
        for bit in range(8):
            os.pwrite(memory_file.fd, bytes([data[at] ^ 1 << bit]), at)
            if fault_of(path) is None:
                taken += 1
        os.pwrite(memory_file.fd, data[at : at + 1], at)
    # Bits of values, of letters in keys and names, of types of equal size: nothing else.
    assert 0 < taken < head * 8 * 0.7
    assert fault_of(path) is None


@settings(max_examples=1500, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_mutated_file_never_escapes_as_anything_but_a_fault(memory_file, data):
    """Bytes overwritten, cut out and put in, at places the format cares about; lengths near the
    edges of u64.
    """
    model = bytearray(small_model())
    size = len(model)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, min(len(model), size * 2 // 3)))
        how = data.draw(st.sampled_from(["u64", "u32", "bytes", "cut", "copy"]))
        if how == "u64":
            edge = data.draw(
                st.sampled_from(
                    [0, 1, 1 << 20, 1 << 31, 1 << 32, 1 << 40, 1 << 61, 1 << 63, (1 << 64) - 1]
                )
            )
            model[at : at + 8] = struct.pack(
                "<Q", (edge + data.draw(st.integers(-9, 9))) % (1 << 64)
            )
        elif how == "u32":
            model[at : at + 4] = struct.pack(
                "<I", data.draw(st.sampled_from([0, 4, 5, 7, 8, 9, 12, 13, 1 << 31, (1 << 32) - 1]))
            )
        elif how == "bytes":
            some = data.draw(st.binary(min_size=1, max_size=24))
            model[at : at + len(some)] = some
        elif how == "cut":
            del model[at : at + data.draw(st.integers(1, 64))]
        else:
            model[at:at] = model[at // 2 : at // 2 + data.draw(st.integers(1, 200))]
    path = memory_file(bytes(model))
    if fault_of(path) is None:
        file = gguf.File(path)
        assert len(file.id) == 32
        for t in file.tensors.values():
            assert t.offset % file.alignment == 0 and t.offset + t.n_bytes <= file.size


@settings(max_examples=500, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.binary(max_size=400), st.integers(0, 5), st.integers(0, 5))
def test_random_bytes_after_a_header_never_escape(memory_file, noise, n_tensors, n_kv):
    fault_of(memory_file(header(n_tensors, n_kv) + noise))


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.binary(max_size=40)), st.integers(0, 60), st.integers(0, 30), st.integers(0, 40))
def test_string_scanner_equals_a_loop(strings, cut, n_more, most):
    data = b"".join(map(string, strings))
    data = data[: max(0, len(data) - cut)]
    n, at, done, status, stopped = len(strings) + n_more, 0, 0, 0, 0
    while done < n and len(data) - at >= 8:
        (n_bytes,) = struct.unpack_from("<Q", data, at)
        if n_bytes > most or n_bytes > len(data) - at - 8:
            status, stopped = -1 if n_bytes > most else 0, n_bytes
            break
        at, done = at + 8 + n_bytes, done + 1
    scan = ffi.new("gguf_scan *")
    assert lib.gguf_skip_strings(scan, ffi.from_buffer(data), len(data), 0, n, most) == status
    assert (scan.at, scan.n_done, scan.n_bytes) == (at, done, stopped)


# What is read, and what is not ---------------------------------------------------------


def test_opening_reads_no_tensor_data(tmp_path):
    """A sparse file of 1 GB: what the process reads is metadata and at most a chunk beyond, and no
    page of it is mapped.
    """
    path = tmp_path / "m.gguf"
    rows, n = 4096, 61
    infos = [tensor_info(f"blk.{i}.w", F32, (1024, rows), i * 4096 * rows) for i in range(n)]
    head = padded(
        header(n, 2)
        + key_value("general.architecture", "string", "llama")
        + key_value("tokenizer.ggml.tokens", "[string]", [f"token {i}" for i in range(32_000)])
        + b"".join(infos)
    )
    path.write_bytes(head)
    os.truncate(path, len(head) + n * 4096 * rows)
    assert path.stat().st_size > 1_000_000_000

    def read_bytes():
        with open("/proc/self/io") as f:
            return int(f.readline().split()[1])

    before = read_bytes()
    file = gguf.File(path)
    assert file.get("general.architecture", "string") == "llama"
    assert read_bytes() - before < 2 * len(head) + 8192
    with open("/proc/self/maps") as f:
        assert str(path) not in f.read()
    done = run("gguf-dump", path, "general.architecture")
    assert (done.stdout, done.stderr, done.returncode) == (b"llama\n", b"", 0)


def test_pointer_maps_the_data_and_not_the_metadata(tmp_path):
    path = tmp_path / "m.gguf"
    write_gguf(path, {"a.text": ("string", "x" * 300_000)}, TWO)
    file = gguf.File(path)
    assert bytes(ffi.buffer(file.pointer(file.tensors["a.weight"]), 128)) == bad_gguf.ROW
    with open("/proc/self/maps") as f:
        (line,) = [line for line in f if str(path) in line]
    _, rights, offset, *_ = line.split()
    assert rights == "r--p" and int(offset, 16) == file.data_offset // 4096 * 4096 > 290_000


@pytest.mark.skipif(
    not os.path.exists("/sys/kernel/mm/transparent_hugepage"),
    reason="missing: large pages of this kernel",
)
def test_map_asks_for_large_pages(tmp_path):
    write_gguf(tmp_path / "m", {}, [("t", F32, (64, 64), bytes(64 * 64 * 4))])
    file = gguf.File(str(tmp_path / "m"))
    file.pointer(file.tensors["t"])
    with open("/proc/self/smaps") as f:
        maps = f.read().split(str(tmp_path / "m"))
    assert len(maps) == 2 and " hg" in maps[1].split("VmFlags:")[1].split("\n")[0]


def test_pointer_refuses_a_type_it_does_not_compute_with(tmp_path):
    write_gguf(tmp_path / "m.gguf", {}, [("t", 41, (256,), bytes(36))])
    file = gguf.File(tmp_path / "m.gguf")
    with pytest.raises(Error, match="tensor t: type Q1_0 is not supported") as e:
        file.pointer(file.tensors["t"])
    assert e.value.code == UNSUPPORTED


# Files that change --------------------------------------------------------------------------


@pytest.fixture
def model_path(tmp_path):
    path = tmp_path / "m.gguf"
    write_gguf(path, GOOD_KV, [("t", F32, (1024, 64), f32(np.arange(65536)))])
    return path


def test_replaced_by_rename_changes_nothing(tmp_path, model_path):
    file = gguf.File(model_path)
    p = file.pointer(file.tensors["t"])
    before = bytes(ffi.buffer(p, 262144))
    write_gguf(tmp_path / "new", GOOD_KV, [("t", F32, (32,), f32(np.ones(32)))])
    os.rename(tmp_path / "new", model_path)
    assert bytes(ffi.buffer(p, 262144)) == before
    file.check_unchanged()


@pytest.mark.parametrize("how", ["overwritten", "cut", "longer", "touched"])
def test_changed_in_place_is_noticed(model_path, how):
    file = gguf.File(model_path)
    file.check_unchanged()
    time.sleep(0.02)  # longer than the clock of the file system ticks
    if how == "touched":
        os.utime(model_path)
    else:
        with open(model_path, "r+b") as f:
            if how == "cut":
                f.truncate(file.size - 4096)
            else:
                f.seek(file.size if how == "longer" else file.data_offset)
                f.write(b"\0")
    with pytest.raises(Error, match="changed while it was in use") as e:
        file.check_unchanged()
    assert e.value.code == IO_ERROR
    if how == "cut":
        with pytest.raises(Error, match="changed while"):
            file.pointer(file.tensors["t"])  # the map would be longer than the file
        with pytest.raises(Error, match="tensor t: the file became shorter"):
            file.read(file.tensors["t"], 0, 262144)


CHILD = """
import mmap, os, signal, sys, threading
from sluice import gguf
from sluice.kernels import ffi, lib
sys.argv[0] = "/somewhere/decode"
path, how = sys.argv[1:]
others = []
file = gguf.File(path)
p = file.pointer(file.tensors["t"])
y = ffi.new("float[1024]")
lib.dequantize_row(y, 0, p, 1024)
fd = os.open(path, os.O_RDONLY)
stray = mmap.mmap(fd, 0, mmap.MAP_PRIVATE, mmap.PROT_READ)
print("ready", flush=True)
sys.stdin.read(1)
def touch():
    lib.dequantize_row(y, 0, p + 63 * 4096, 1024)
if how == "thread":
    t = threading.Thread(target=touch); t.start(); t.join()
elif how == "python":
    bytes(ffi.buffer(p + 63 * 4096, 1))
elif how == "stray":
    stray[len(stray) - 1]
elif how == "kill":
    os.kill(os.getpid(), signal.SIGBUS)
else:
    touch()
print("went on")
"""


@pytest.mark.parametrize(
    "how, code", [("main", 74), ("thread", 74), ("python", 74), ("stray", -7), ("kill", -7)]
)
def test_map_of_a_cut_file_ends_in_one_line_and_74(model_path, how, code):
    """A fault in a map of ours, in any thread, is an error; one elsewhere, or a signal sent, takes
    the default action.
    """
    child = subprocess.Popen(
        [sys.executable, "-I", "-c", CHILD, model_path, how],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert child.stdout.readline() == b"ready\n"
    os.truncate(model_path, 8192)
    out, err = child.communicate(b"x", timeout=60)
    assert (out, child.returncode) == (b"", code)
    assert err.decode() == (
        f"decode: {model_path}: cut while it was in use\n" if code == 74 else ""
    )


def test_guards_are_freed_with_their_files(model_path):
    # files of other tests that a traceback still holds in a cycle; of its own none may need this
    gc.collect()
    for _ in range(1500):  # the table holds 1,024
        file = gguf.File(model_path)
        file.pointer(file.tensors["t"])
    del file
    page = ffi.new("char[]", 1100)
    n = 0
    while lib.guard_map(page + n, 1, b"full") == 0:
        n += 1
    for i in range(n):
        lib.guard_forget(page + i)
    assert n == 1024
    assert lib.guard_map(ffi.NULL, 1, b"") == lib.guard_map(page, 0, b"") == -1


def test_names_with_control_codes_stay_out_of_messages(tmp_path):
    path = tmp_path / "evil\x1b[2J\nname.gguf"
    path.write_bytes(b"GGUF" + bytes(40))
    done = run("gguf-dump", path)
    assert done.returncode == 69 and done.stderr.count(b"\n") == 1 and b"\x1b" not in done.stderr
