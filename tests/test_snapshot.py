"""Snapshots: right in every byte, or refused with the field named; named whole, or not at all."""
import errno
import hashlib
import os
import random
import re
import resource
import stat
import struct
import subprocess
import sys
import time

import pytest

from sluice import newfile
from sluice.faults import Fault
from sluice.kernels import ffi, lib
from sluice.snapshot import kvsnap
from sluice.snapshot import Geometry, Snapshot

MODEL = bytes(range(32))
SMALL = Geometry(n_layer=2, n_head_kv=2, head_dim=8, kv_type=1, n_vocab=40)
LARGE = Geometry(n_layer=2, n_head_kv=8, head_dim=128, kv_type=0, n_vocab=5000)  # rows of 4 KiB: several pieces


def fill(s, first, last, seed=1):
    """Ids and rows first to last - 1 of `s` become what the seed and their positions say."""
    row = s.layout.row_bytes
    for pos in range(first, last):
        s.ids[pos] = (pos * 7 + seed) % s.geometry.n_vocab
        for layer in range(s.geometry.n_layer):
            for part, at in ((0, s.k(layer)), (1, s.v(layer))):
                data = hashlib.sha256(f"{seed} {pos} {layer} {part}".encode()).digest()
                ffi.memmove(ffi.cast("uint8_t *", at) + pos * row, (data * (row // 32 + 1))[:row], row)
    for i in range(s.geometry.n_vocab):
        s.logits[i] = last + i / 8
    s.n_tok = last


def make(directory, n_tok=10, capacity=50, geometry=SMALL, seed=1, model_id=MODEL, arithmetic="exact-2"):
    s = Snapshot.create(geometry, capacity, model_id, arithmetic, str(directory))
    s.reserve(n_tok)
    fill(s, 0, n_tok, seed)
    return s


def seal(path, **kwargs):
    make(path.parent, **kwargs).seal(path)
    return path


def load(path, geometry=SMALL, model_id=MODEL, arithmetic="exact-2"):
    return Snapshot.open(path, model_id, arithmetic, geometry)


def refused(path, **kwargs):
    """The message with which `load` refuses `path`, code 65."""
    with pytest.raises(Fault) as e:
        load(path, **kwargs)
    assert e.value.code == 65 and str(e.value).startswith(f"{path}: ")
    return str(e.value)[len(str(path)) + 2:]


def content(s):
    """All that is valid in `s`, as comparable values."""
    n = s.n_tok * s.layout.row_bytes
    planes = [bytes(ffi.buffer(at, n)) for l in range(s.geometry.n_layer) for at in (s.k(l), s.v(l))]
    return s.n_tok, s.ids[:s.n_tok].tolist(), bytes(ffi.buffer(s.logits, s.layout.logits_bytes)), planes


# What is written is what is read.

@pytest.mark.parametrize("geometry, n_tok, capacity", [(SMALL, 1, 1), (SMALL, 10, 50), (SMALL, 50, 50), (LARGE, 600, 700)])
def test_opened_equals_sealed(tmp_path, geometry, n_tok, capacity):
    s = make(tmp_path, n_tok, capacity, geometry)
    before = content(s)
    s.seal(tmp_path / "a.kv")
    assert content(s) == before
    opened = load(tmp_path / "a.kv", geometry)
    assert content(opened) == before and opened.capacity == capacity
    assert stat.S_IMODE(os.stat(tmp_path / "a.kv").st_mode) == 0o600
    assert os.listdir(tmp_path) == ["a.kv"]


def test_the_bytes_are_those_of_the_table(tmp_path):
    data = seal(tmp_path / "a.kv").read_bytes()
    assert data[:16] == b"KVSNAP\x01\x00" + struct.pack("<II", 4096, 0) and data[16:48] == MODEL
    assert struct.unpack_from("<8I", data, 48) == (2, 2, 8, 1, 40, 50, 10, 0)
    ids, logits, kv, stride, v, size = struct.unpack_from("<6Q", data, 80)
    assert (ids, logits, kv, stride, v, size) == (4096, 8192, 16384, 8192, 4096, len(data)) and size == 16384 + 4 * 4096
    checksums, n, piece = struct.unpack_from("<QII", data, 128)
    assert (checksums, n, piece) == (12288, 6, 1 << 20)
    assert data[144:160] == b"exact-2".ljust(16, b"\0")
    assert data[160:192] == hashlib.sha256(data[:160] + data[checksums:checksums + 24]).digest()
    assert struct.unpack_from("<10i", data, ids) == tuple((i * 7 + 1) % 40 for i in range(10))
    assert struct.unpack_from("<40f", data, logits) == tuple(10 + i / 8 for i in range(40))
    row = hashlib.sha256(b"1 3 1 1").digest()
    assert data[kv + stride + v + 3 * 32:][:32] == row
    crcs = struct.unpack_from("<6I", data, checksums)
    assert crcs[0] == crc_by_bits(data[ids:ids + 40]) and crcs[5] == crc_by_bits(data[kv + stride + v:][:320])
    assert struct.unpack_from("<I", data, 4092)[0] == crc_by_bits(data[:4092])


def crc_by_bits(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def test_crc32c_gives_the_published_values_by_both_ways():
    for crc in (lib.crc32c, lib.crc32c_plain):  # RFC 3720, appendix B.4
        assert crc(0, bytes(32), 32) == 0x8A9136AA and crc(0, b"\xff" * 32, 32) == 0x62A8AB43
        assert crc(0, bytes(range(32)), 32) == 0x46DD794E and crc(0, b"123456789", 9) == 0xE3069283


def test_crc32c_equals_the_plain_one_at_every_cut():
    data = random.Random(1).randbytes(200000)
    at = ffi.from_buffer("uint8_t[]", data)
    sizes = [0, 1, 7, 8, 9, 49151, 49152, 49153, 98304, 98311, 147456, 199990]
    for n in sizes:
        for start in (0, 1, 5):
            assert lib.crc32c(n, at + start, n) == lib.crc32c_plain(n, at + start, n)
    whole = lib.crc32c(0, at, len(data))
    for cut in (1, 4096, 100001):
        assert lib.crc32c(lib.crc32c(0, at, cut), at + cut, len(data) - cut) == whole


def test_equal_content_gives_equal_bytes_however_it_was_made(tmp_path):
    whole = seal(tmp_path / "whole.kv", n_tok=10).read_bytes()
    base = load(seal(tmp_path / "base.kv", n_tok=6, capacity=20))
    grown = Snapshot.create(SMALL, 50, MODEL, "exact-2", str(tmp_path))
    grown.copy_rows_from(base)
    for n in (7, 10):
        grown.reserve(n)
        fill(grown, grown.n_tok, n)
    grown.seal(tmp_path / "grown.kv")
    assert (tmp_path / "grown.kv").read_bytes() == whole
    ahead = Snapshot.create(SMALL, 50, MODEL, "exact-2", str(tmp_path))
    ahead.reserve(33)
    fill(ahead, 0, 33, seed=2)  # rows that do not count in the end
    fill(ahead, 0, 10)
    ahead.seal(tmp_path / "ahead.kv")
    assert (tmp_path / "ahead.kv").read_bytes() == whole


def test_unused_capacity_costs_no_disk(tmp_path):
    seal(tmp_path / "a.kv", n_tok=2, capacity=20000, geometry=LARGE)
    s = os.stat(tmp_path / "a.kv")
    assert s.st_size > 300e6 and s.st_blocks * 512 < 1e6
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    load(tmp_path / "a.kv", LARGE)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 20000  # KiB: the hole was not read


def test_copy_on_write_leaves_the_file_as_it_was(tmp_path):
    path = seal(tmp_path / "a.kv")
    before = path.read_bytes()
    one, two = load(path), load(path)
    fill(one, 10, 20)
    fill(one, 0, 3, seed=5)
    one.n_tok = 20
    assert path.read_bytes() == before and content(two) == content(load(path))


def test_what_was_written_to_an_opened_one_can_be_sealed(tmp_path):
    path = seal(tmp_path / "a.kv")
    s = load(path)
    fill(s, 10, 20)
    s.seal(tmp_path / "b.kv")
    assert (tmp_path / "b.kv").read_bytes() == seal(tmp_path / "c.kv", n_tok=20).read_bytes()
    s.seal(path)  # over its own file, which it still maps
    assert path.read_bytes() == (tmp_path / "b.kv").read_bytes()
    assert sorted(os.listdir(tmp_path)) == ["a.kv", "b.kv", "c.kv"]


def test_rewound_rows_are_copied_as_they_are_now(tmp_path):
    s = load(seal(tmp_path / "a.kv", n_tok=10))
    s.n_tok = 4
    fill(s, 4, 8, seed=9)
    copy = Snapshot.create(SMALL, 60, MODEL, "exact-2", str(tmp_path))
    copy.copy_rows_from(s)
    assert content(copy) == content(s)


def test_a_part_of_a_base_has_no_logits(tmp_path):
    base = load(seal(tmp_path / "a.kv", n_tok=10))
    part = Snapshot.create(SMALL, 60, MODEL, "exact-2", str(tmp_path))
    part.copy_rows_from(base, 4)
    n_tok, ids, logits, planes = content(part)
    assert (n_tok, ids) == (4, base.ids[:4].tolist()) and not any(logits)
    assert planes == [p[:4 * part.layout.row_bytes] for p in content(base)[3]]


def test_a_sealed_file_is_not_changed_by_its_maker(tmp_path):
    s = make(tmp_path)
    s.seal(tmp_path / "a.kv")
    before = (tmp_path / "a.kv").read_bytes()
    fill(s, 10, 20)
    fill(s, 0, 2, seed=4)
    assert (tmp_path / "a.kv").read_bytes() == before


# What is damaged or does not belong is refused, and named (S1, S7).

def test_every_header_bit_is_checked(tmp_path):
    path = seal(tmp_path / "a.kv")
    data = bytearray(path.read_bytes())
    rng = random.Random(1)
    bits = [*range(192 * 8), *rng.sample(range(192 * 8, 4092 * 8), 400), *range(4092 * 8, 4096 * 8)]
    for bit in bits:
        data[bit // 8] ^= 1 << bit % 8
        path.write_bytes(data)
        what = "not a snapshot" if bit < 48 else "snapshot version" if bit < 64 else "header checksum"
        assert what in refused(path), bit
        data[bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)
    load(path)


@pytest.mark.parametrize("geometry, n_tok", [(SMALL, 10), (LARGE, 300)])
def test_every_valid_part_is_checked(tmp_path, geometry, n_tok):
    path = seal(tmp_path / "a.kv", n_tok=n_tok, capacity=400, geometry=geometry)
    layout, rng = kvsnap.Layout(geometry, 400), random.Random(2)
    parts = [*layout.sections(n_tok), ("digest", layout.checksum_offset, 4 * layout.n_checksum(n_tok))]
    with open(path, "r+b", buffering=0) as f:
        for name, at, n_bytes in parts:
            for _ in range(150 if geometry is SMALL else 8):
                where = at + rng.choice([0, n_bytes - 1, rng.randrange(n_bytes), rng.randrange(n_bytes)])
                byte = os.pread(f.fileno(), 1, where)[0]
                os.pwrite(f.fileno(), bytes([byte ^ 1 << rng.randrange(8)]), where)
                message = refused(path, geometry=geometry)
                assert message.startswith(name) and "damaged" in message
                if name != "digest":
                    first, last = map(int, re.search(r"bytes (\d+) to (\d+):", message).groups())
                    assert first <= where - at <= last < first + (1 << 20)
                os.pwrite(f.fileno(), bytes([byte]), where)
    load(path, geometry)


def test_unused_capacity_is_not_looked_at(tmp_path):
    path = seal(tmp_path / "a.kv", n_tok=10)
    before = content(load(path))
    with open(path, "r+b") as f:
        f.seek(kvsnap.Layout(SMALL, 50).kv_offset + 10 * 32)
        f.write(b"x" * 32)
    assert content(load(path)) == before


def test_a_cut_file_is_refused_at_every_length(tmp_path):
    path = seal(tmp_path / "a.kv")
    data = path.read_bytes()
    lengths = [*range(0, 4097, 3), *range(4096, len(data), 509), len(data) - 1]
    for n in lengths:
        path.write_bytes(data[:n])
        message = refused(path)
        assert ("not a snapshot" if n < 8 else "header cut at byte" if n < 4096 else "file_bytes is") in message
    path.write_bytes(data + b"\0")
    assert f"file_bytes is {len(data)}, but the file has {len(data) + 1}" in refused(path)


def test_another_model_arithmetic_or_geometry_is_named(tmp_path):
    path = seal(tmp_path / "a.kv")
    other = b"\xab" * 32
    assert refused(path, model_id=other) == \
        "made with model 0001020304050607, but the model is abababababababab"
    assert refused(path, arithmetic="fast-2") == "made with arithmetic exact-2, but this is fast-2 (see --arithmetic)"
    for field in Geometry._fields:
        value = getattr(SMALL, field)
        wrong = SMALL._replace(**{field: 0 if field == "kv_type" else value + 1})
        assert refused(path, geometry=wrong) == f"made with {field} {value}, but the model has {getattr(wrong, field)}"


def repack(path, **fields):
    """Change header fields of the file at `path`, and make its digest and checksum right again."""
    data = bytearray(path.read_bytes())
    h = dict(zip(kvsnap.FIELDS, kvsnap.HEADER.unpack_from(data)))
    checksums = data[h["checksum_offset"]:][:4 * h["n_checksum"]]
    h.update(fields)
    kvsnap.HEADER.pack_into(data, 0, *h.values())
    if "digest" not in fields:
        data[160:192] = hashlib.sha256(data[:160] + checksums).digest()
    struct.pack_into("<I", data, 4092, lib.crc32c(0, bytes(data), 4092))
    path.write_bytes(data)


@pytest.mark.parametrize("field, value, error", [
    ("header_bytes", 8192, "header_bytes is 8192, not 4096"), ("flags", 1, "flags is 1, not 0"), ("zero", 7, "zero is 7"),
    ("piece_bytes", 4096, "piece_bytes is 4096"), ("capacity", 0, "capacity 0 is not 1 to"),
    ("capacity", 0xFFFFFFFF, "capacity 4294967295 is not"), ("capacity", 3000, "logits_offset is 8192, but must be 16384"),
    ("n_tok", 0, "n_tok 0 is not 1 to the capacity 50"), ("n_tok", 51, "n_tok 51 is not"), ("n_tok", 9, "ids, bytes 0"),
    ("ids_offset", 8192, "ids_offset is 8192, but must be 4096"), ("ids_offset", 2**64 - 4096, "ids_offset"),
    ("logits_offset", 0, "logits_offset"), ("kv_offset", 2**63, "kv_offset"), ("layer_stride", 0, "layer_stride"),
    ("v_distance", 4095, "v_distance"), ("file_bytes", 0, "file_bytes is 0, but must be 32768"),
    ("checksum_offset", 2**64 - 1, "checksum_offset"), ("n_checksum", 2**32 - 1, "n_checksum is 4294967295, but must be 6"),
    ("arithmetic", b"", "arithmetic is not a name"), ("arithmetic", b"\xff", "arithmetic is not"),
    ("arithmetic", b"a\0b", "arithmetic is not"), ("arithmetic", b"\x1b[2J", "arithmetic is not"),
    ("digest", bytes(32), "digest is not that")])
def test_a_field_that_cannot_be_is_named_though_the_checksums_fit(tmp_path, field, value, error):
    path = seal(tmp_path / "a.kv")
    repack(path, **{field: value})
    assert error in refused(path)


def test_reserved_header_bytes_must_be_zero(tmp_path):
    path = seal(tmp_path / "a.kv")
    data = bytearray(path.read_bytes())
    data[300] = 1
    path.write_bytes(data)
    repack(path)
    assert refused(path) == "reserved bytes of the header are not zero"


@pytest.mark.parametrize("id", [40, -1, 2**31 - 1])
def test_an_id_outside_the_vocabulary_is_named(tmp_path, id):
    s = make(tmp_path)
    s.ids[4] = id
    s.seal(tmp_path / "a.kv")
    assert refused(tmp_path / "a.kv") == f"ids: {id} is not below the vocabulary size 40"


def test_random_damage_with_right_checksums_never_crashes(tmp_path):
    path, rng = seal(tmp_path / "a.kv"), random.Random(3)
    data, n_refused = path.read_bytes(), 0
    for _ in range(400):
        name = rng.choice(kvsnap.FIELDS[2:-1])
        size = {"model_id": 32, "arithmetic": 16}.get(name)
        repack(path, **{name: rng.randbytes(size) if size else rng.choice([0, 1, 2, 3, 4096, rng.getrandbits(32)])})
        try:
            load(path)
        except Fault as e:
            n_refused += e.code == 65
        path.write_bytes(data)
    assert n_refused > 300


# Where it may lie (S8).

def test_a_file_that_others_could_write_is_refused(tmp_path):
    path = seal(tmp_path / "a.kv")
    for mode in (0o620, 0o602, 0o666):
        path.chmod(mode)
        assert refused(path) == f"could have been written by others: its mode is {mode:04o}"
    path.chmod(0o644)
    load(path)
    if os.geteuid() == 0:
        os.chown(path, 12345, -1)
        assert "is owned by user 12345" in refused(path)


def test_what_is_no_regular_file_is_refused(tmp_path):
    os.symlink(seal(tmp_path / "a.kv"), tmp_path / "link")
    assert "symbolic link" in refused(tmp_path / "link")
    os.mkfifo(tmp_path / "fifo")
    assert "not a regular file" in refused(tmp_path / "fifo")
    (tmp_path / "dir").mkdir()
    assert "not a regular file" in refused(tmp_path / "dir")
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "absent")


def test_only_a_regular_file_is_replaced(tmp_path):
    victim = tmp_path / "victim"
    victim.write_bytes(b"mine")
    os.symlink(victim, tmp_path / "link")
    os.symlink(tmp_path / "nowhere", tmp_path / "dangling")
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "dir").mkdir()
    before = sorted(os.listdir(tmp_path))
    for name, error in (("link", "a symbolic link"), ("dangling", "a symbolic link"), ("fifo", "not a regular file"),
                        ("dir", "a directory")):
        with pytest.raises(Fault, match=error) as e:
            make(tmp_path).seal(tmp_path / name)
        assert e.value.code == 73 and sorted(os.listdir(tmp_path)) == before
    os.link(victim, tmp_path / "hard")
    make(tmp_path).seal(tmp_path / "hard")
    assert victim.read_bytes() == b"mine" and load(tmp_path / "hard").n_tok == 10


@pytest.mark.parametrize("directory", ["absent", "file", "/proc"])
def test_a_place_that_takes_no_files_is_73(tmp_path, directory):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(Fault) as e:
        make(tmp_path / directory)
    assert e.value.code == 73
    with pytest.raises(Fault) as e:
        make(tmp_path).seal(tmp_path / directory / "a.kv")
    assert e.value.code == 73 and os.listdir(tmp_path) == ["file"]


def test_a_file_beyond_63_bits_is_73(tmp_path):
    with pytest.raises(Fault, match="more than a file can have") as e:
        Snapshot.create(Geometry(512, 1 << 20, 1024, 1, 768), 1 << 22, MODEL, "exact-2", str(tmp_path))
    assert e.value.code == 73 and os.listdir(tmp_path) == []


# Failures on the way (S2 to S5, S9).

@pytest.fixture(params=["nameless", "temporary name"])
def naming(request, monkeypatch):
    """Both ways to write: O_TMPFILE, and as on a file system that has none."""
    if request.param == "temporary name":
        monkeypatch.delattr(os, "O_TMPFILE")
    return request.param


def test_both_ways_of_naming_give_the_file_and_nothing_else(tmp_path, naming):
    s = make(tmp_path)
    assert len(os.listdir(tmp_path)) == (naming != "nameless")
    s.seal(tmp_path / "a.kv")
    first = (tmp_path / "a.kv").read_bytes()
    seal(tmp_path / "a.kv", seed=2)
    assert os.listdir(tmp_path) == ["a.kv"] and (tmp_path / "a.kv").read_bytes() != first
    assert stat.S_IMODE(os.stat(tmp_path / "a.kv").st_mode) == 0o600
    make(tmp_path).close()
    assert os.listdir(tmp_path) == ["a.kv"]


@pytest.mark.parametrize("call", ["fsync", "link", "rename"])
@pytest.mark.parametrize("error, code", [(errno.EIO, 74), (errno.ENOSPC, 75), (errno.EDQUOT, 75), (errno.EROFS, 74)])
def test_a_call_that_fails_leaves_the_old_file(tmp_path, naming, monkeypatch, call, error, code):
    call = "rename" if call == "link" and naming != "nameless" else call  # nothing is linked then
    path = seal(tmp_path / "a.kv")
    before = path.read_bytes()
    s = make(tmp_path, seed=2)

    def fail(*args, **kwargs):
        raise OSError(error, os.strerror(error))
    real = getattr(os, call)
    monkeypatch.setattr(os, call, fail)
    with pytest.raises(Fault) as e:
        s.seal(path)
    assert e.value.code == (73 if code == 74 and call != "fsync" else code) and str(path) in str(e.value)
    monkeypatch.setattr(os, call, real)
    s.close()
    assert path.read_bytes() == before and os.listdir(tmp_path) == ["a.kv"]


@pytest.mark.parametrize("replaces", [False, True])
def test_all_is_synced_before_it_is_named_and_the_name_after(tmp_path, monkeypatch, replaces):
    path = seal(tmp_path / "a.kv") if replaces else tmp_path / "a.kv"
    events, real = [], {call: getattr(os, call) for call in ("fsync", "link", "rename")}

    def record(call):
        def wrapped(first, *args, **kwargs):
            if call == "fsync":
                is_file = stat.S_ISREG(os.fstat(first).st_mode)
                events.append("sync file" if is_file else "sync directory")
                if is_file:
                    kvsnap.read_header(first, "the file")  # it is complete by now
            else:
                events.append(call)
            return real[call](first, *args, **kwargs)
        return wrapped
    for call in real:
        monkeypatch.setattr(os, call, record(call))
    s = make(tmp_path, seed=2)
    s.seal(path)
    assert events == ["sync file", "link", *["link", "rename"] * replaces, "sync directory"]


MAKER = """
import sys
sys.path[:0] = [{tests!r}]
from test_snapshot import *
"""


def python(code, **kwargs):
    code = MAKER.format(tests=os.path.dirname(os.path.abspath(__file__))) + code
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, **kwargs)


@pytest.mark.parametrize("nameless", [True, False])
def test_kill_at_any_moment_leaves_old_or_new(tmp_path, nameless):
    path = seal(tmp_path / "a.kv")
    before, rng = path.read_bytes(), random.Random(4)
    code = "" if nameless else "del os.O_TMPFILE\n"
    code += f"import pathlib\np = pathlib.Path({str(path)!r})\nprint(flush=True)\nwhile True: seal(p, seed=2)"
    after = seal(tmp_path / "b.kv", seed=2).read_bytes()
    os.unlink(tmp_path / "b.kv")
    for _ in range(12):
        with python(code) as p:
            p.stdout.readline()
            time.sleep(rng.uniform(0, 0.03))
            p.kill()
        assert path.read_bytes() in (before, after)
        load(path)
    make(tmp_path).close()  # the next start sweeps what a dead one may have left
    assert os.listdir(tmp_path) == ["a.kv"]


def test_a_killed_writer_leaves_nothing(tmp_path):
    code = f"s = make({str(tmp_path)!r}, 600, 700, LARGE)\nprint(flush=True)\ntime.sleep(60)"
    with python(code) as p:
        assert p.stdout.readline() == b"\n"
        p.kill()
    assert os.listdir(tmp_path) == []


def test_leftovers_are_swept_and_files_at_work_are_not(tmp_path, monkeypatch):
    monkeypatch.delattr(os, "O_TMPFILE")
    at_work = make(tmp_path)
    leftover = tmp_path / ".sluice-0123456789abcdef.tmp"
    leftover.write_bytes(b"half")
    other = tmp_path / "mine.tmp"
    other.write_bytes(b"")
    make(tmp_path).close()
    assert not leftover.exists() and other.exists()
    at_work.seal(tmp_path / "a.kv")
    load(tmp_path / "a.kv")


def test_a_sweep_between_making_and_locking_costs_no_work(tmp_path, monkeypatch):
    """Without O_TMPFILE a name is there before its lock is: another writer may take it for a leftover."""
    import fcntl
    monkeypatch.delattr(os, "O_TMPFILE")
    lock, sweeps = fcntl.flock, []

    def late(fd, how):
        if len(sweeps) < 2:  # as a sweep that is done by now, or that holds the lock just now
            sweeps.append([os.unlink(p) for p in tmp_path.glob(".sluice-*")])
            if len(sweeps) == 2:
                raise BlockingIOError(errno.EWOULDBLOCK, "taken")
        return lock(fd, how)

    monkeypatch.setattr(fcntl, "flock", late)
    seal(tmp_path / "a.snap")
    assert len(sweeps) == 2 and os.listdir(tmp_path) == ["a.snap"]


def test_a_limit_on_file_size_is_an_error_and_no_signal(tmp_path):
    code = f"""
resource.setrlimit(resource.RLIMIT_FSIZE, (100000, 100000))
try:
    make({str(tmp_path)!r}, 600, 700, LARGE)
except Fault as e:
    print(e.code, e)
"""
    with python(code) as p:
        out, err = p.communicate(timeout=60)
    assert p.returncode == 0 and out.startswith(b"73 ") and b"File too large" in out, err
    assert os.listdir(tmp_path) == []


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 8 MB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if os.geteuid() or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "none", disk], capture_output=True).returncode:
        pytest.skip("mount is not permitted: the full disk is not tested")
    yield disk
    subprocess.run(["umount", "-l", disk], check=True)


def test_a_full_disk_is_75_at_every_fill(small_disk, naming):
    old = seal(small_disk / "old.kv", n_tok=2, capacity=4).read_bytes()
    outcomes = set()
    for kib in [*range(0, 7800, 300), *range(7800, 8192, 40)]:
        with open(small_disk / "ballast", "wb") as f:
            try:
                f.write(bytes(kib << 10))
                f.flush()
            except OSError:
                pass
        outcome = 0
        try:
            seal(small_disk / "old.kv", n_tok=80, capacity=90, geometry=LARGE)  # wants 1.3 MB
        except Fault as e:
            outcome = e.code
            assert (small_disk / "old.kv").read_bytes() == old and "No space left" in str(e) and str(e).startswith(str(small_disk))
        else:
            load(small_disk / "old.kv", LARGE)
            (small_disk / "old.kv").write_bytes(old)
        outcomes.add(outcome)
        os.unlink(small_disk / "ballast") if (small_disk / "ballast").exists() else None
        assert os.listdir(small_disk) == ["old.kv"]
    assert outcomes == {0, 75}


@pytest.mark.parametrize("error", ["ENOSPC", "EIO"])
def test_a_fault_in_the_nth_call_never_tears(tmp_path, error, strace):
    path = seal(tmp_path / "a.kv")
    old = path.read_bytes()
    new = seal(tmp_path / "b.kv", seed=2).read_bytes()
    os.unlink(tmp_path / "b.kv")
    code = f"""
import pathlib
try:
    seal(pathlib.Path({str(path)!r}), seed=2)
    print("sealed")
except Fault as e:
    print(e.code)
"""
    script = MAKER.format(tests=os.path.dirname(os.path.abspath(__file__))) + code
    calls = ["fallocate", "ftruncate", "fsync", "linkat", "rename", "fchmod"]
    log = tmp_path.parent / "strace.log"
    outcomes = set()
    for call in calls:
        for nth in (1, 2, 3, 7):
            r = subprocess.run([*strace, "-f", "-o", log, "-e", f"trace={call}", "-e",
                                f"inject={call}:error={error}:when={nth}", sys.executable, "-B", "-c", script],
                               capture_output=True, timeout=60)
            out = r.stdout.strip()
            injected = b"INJECTED" in log.read_bytes()
            outcomes.add((call, out))
            now = path.read_bytes()
            if out == b"sealed":
                assert now == new and not injected
                path.write_bytes(old)
            else:
                assert injected and out in (b"73", b"74", b"75"), (call, nth, r)
                assert now == old or call == "fsync" and nth == 2 and now == new
                path.write_bytes(old)
            assert os.listdir(tmp_path) == ["a.kv"], (call, nth)
            if not injected:
                break
    assert {call for call, out in outcomes if out != b"sealed"} == set(calls)  # each was made, and failed once


def test_readers_see_whole_files_while_a_writer_replaces_them(tmp_path):
    path = seal(tmp_path / "a.kv", n_tok=20)
    reader = f"""
import pathlib
n = 0
while not os.path.exists({str(tmp_path / "stop")!r}):
    s = load(pathlib.Path({str(path)!r}))
    assert len(set((s.ids[0] - s.ids[i] + 7 * i) % 40 for i in range(20))) == 1
    s.close()
    n += 1
    if n == 1:
        print("begun", flush=True)
print(n)
"""
    readers = [python(reader) for _ in range(3)]
    assert [p.stdout.readline() for p in readers] == [b"begun\n"] * 3
    for i in range(250):
        seal(path, n_tok=20, seed=i)
    (tmp_path / "stop").write_bytes(b"")
    for p in readers:
        out, err = p.communicate(timeout=60)
        assert p.returncode == 0 and int(out) > 0, err


def test_a_file_cut_while_it_is_mapped_is_74_and_no_signal(tmp_path):
    path = seal(tmp_path / "a.kv", n_tok=300, capacity=400, geometry=LARGE)
    code = f"import pathlib\ns = load(pathlib.Path({str(path)!r}), LARGE)\nos.truncate({str(path)!r}, 8192)\ncontent(s)"
    with python(code) as p:
        out, err = p.communicate(timeout=60)
    assert p.returncode == 74 and err.count(b"\n") == 1 and os.fsencode(path) in err, err


def test_more_snapshots_than_are_guarded_still_open(tmp_path):
    path = seal(tmp_path / "a.kv")
    opened = [load(path) for _ in range(80)]
    assert all(s.n_tok == 10 for s in opened)


def test_no_descriptor_and_no_map_stays_behind(tmp_path):
    path = seal(tmp_path / "a.kv")

    def held():
        with open("/proc/self/maps") as maps:
            return len(os.listdir("/proc/self/fd")), sum(".kv" in line or "deleted" in line for line in maps)
    before = held()
    for seed in range(20):
        load(path).close()
        with pytest.raises(Fault):
            load(path, arithmetic="other")
        s = make(tmp_path, seed=seed)
        s.seal(path)
        s.close()
    assert held() == before


def test_misuse_is_refused(tmp_path):
    s = make(tmp_path)
    with pytest.raises(ValueError, match="reserved"):
        s.n_tok = 11
        s.seal(tmp_path / "a.kv")
    with pytest.raises(ValueError, match="capacity"):
        s.n_tok = 51
    with pytest.raises(ValueError, match="capacity"):
        s.reserve(51)
    with pytest.raises(ValueError, match="KV type 2"):
        make(tmp_path, geometry=SMALL._replace(kv_type=2))
    with pytest.raises(ValueError, match="not a multiple of 32"):
        make(tmp_path, geometry=SMALL._replace(kv_type=8))
    assert os.listdir(tmp_path) == []


def test_a_file_that_is_cut_right_after_it_was_named_is_no_bug(tmp_path, monkeypatch):
    publish = newfile.publish
    monkeypatch.setattr(newfile, "publish", lambda fd, name, path: (publish(fd, name, path), os.truncate(path, 100)))
    with pytest.raises(Fault) as e:
        seal(tmp_path / "s.kv")
    assert e.value.code == 74 and str(e.value) == f"{tmp_path}/s.kv: cut while it was in use"
