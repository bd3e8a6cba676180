"""Snapshots: right in every byte, or refused with the field named."""

import hashlib
import os
import random
import re
import resource
import stat
import struct

import pytest
from conftest import run
from snapshot_files import LARGE, MIXED, MODEL, SMALL, content, fill, load, make, refused, seal

from sluice.faults import Error
from sluice.kernels import ffi, lib
from sluice.kvcache import format
from sluice.kvcache.snapshot import Geometry, Snapshot

# What is written is what is read.


@pytest.mark.parametrize(
    "geometry, n_tok, capacity",
    [
        (SMALL, 1, 1),
        (SMALL, 10, 50),
        (SMALL, 50, 50),
        (LARGE, 600, 700),
        (MIXED, 10, 50),
        (MIXED, 200, 200),
    ],
)
def test_opened_equals_sealed(tmp_path, geometry, n_tok, capacity):
    s = make(tmp_path, n_tok, capacity, geometry)
    before = content(s)
    s.seal(tmp_path / "a.kv")
    assert content(s) == before
    opened = load(tmp_path / "a.kv", geometry)
    assert content(opened) == before and opened.capacity == capacity
    assert stat.S_IMODE(os.stat(tmp_path / "a.kv").st_mode) == 0o600
    assert os.listdir(tmp_path) == ["a.kv"]


def test_snapshot_of_layers_of_several_widths_is_as_documented(tmp_path):
    data = seal(tmp_path / "a.kv", geometry=MIXED, n_tok=100, capacity=200).read_bytes()
    assert data[6:8] == b"\x03\x00" and struct.unpack_from("<3I", data, 48) == (3, 2, 8)
    kv, stride, v, size = struct.unpack_from("<4Q", data, 96)
    assert (stride, v, size) == (0, 0, len(data))
    assert struct.unpack_from("<6H", data, 192) == (2, 8, 1, 24, 3, 8) and not any(data[204:4092])
    at = kv
    for layer, row in enumerate((32, 48, 48)):
        for part in (0, 1):
            digest = hashlib.sha256(f"1 3 {layer} {part}".encode()).digest()
            assert data[at + 3 * row :][:row] == (digest * 2)[:row]
            at += -(-200 * row // 4096) * 4096
    assert at == size


def test_dump_names_every_width(tmp_path):
    done = run("gguf-dump", seal(tmp_path / "a.kv", geometry=MIXED))
    assert done.returncode == 0 and b"key and value heads  2 x 8, 1 x 24, 3 x 8\n" in done.stdout
    assert b"F16, 256 bytes per token" in done.stdout
    assert run("gguf-dump", "--check", tmp_path / "a.kv").returncode == 0


def test_grown_copy_of_layers_of_several_widths_has_all_rows(tmp_path):
    base = load(seal(tmp_path / "a.kv", geometry=MIXED), MIXED)
    new = Snapshot.create(MIXED, 300, MODEL, "exact-2", str(tmp_path))
    new.copy_rows_from(base)
    assert content(new) == content(base)
    part = Snapshot.create(MIXED, 300, MODEL, "exact-2", str(tmp_path))
    part.copy_rows_from(base, 4)
    for (rows, row), whole in zip(part.layout.planes, content(base)[3]):
        assert bytes(ffi.buffer(part._base + rows, 4 * row)) == whole[: 4 * row]


@pytest.mark.parametrize(
    "table, what",
    [
        ((2, 8, 1, 24, 3, 16), "made with widths"),
        ((2, 8, 0, 24, 3, 8), "heads of a layer are 0"),
        ((1, 8, 1, 24, 3, 8), "are not those of the first layer"),
    ],
)
def test_wrong_table_of_widths_is_refused(tmp_path, table, what):
    path = seal(tmp_path / "a.kv", geometry=MIXED)
    page = bytearray(path.read_bytes())
    struct.pack_into("<6H", page, 192, *table)
    struct.pack_into("<I", page, 4092, lib.crc32c(0, bytes(page[:4092]), 4092))
    path.write_bytes(page)
    assert what in refused(path, geometry=MIXED)


def test_tables_of_too_many_layers_are_refused(tmp_path):
    path = seal(tmp_path / "a.kv", geometry=MIXED)
    page = bytearray(path.read_bytes())
    for n_layer in (0, 976, 0xFFFFFFFF):
        struct.pack_into("<I", page, 48, n_layer)
        struct.pack_into("<I", page, 4092, lib.crc32c(0, bytes(page[:4092]), 4092))
        path.write_bytes(page)
        assert re.search("n_layer|layer are 0|reserved", refused(path, geometry=MIXED))


def test_snapshot_bytes_are_as_documented(tmp_path):
    data = seal(tmp_path / "a.kv").read_bytes()
    assert data[:16] == b"KVSNAP\x02\x00" + struct.pack("<II", 4096, 0) and data[16:48] == MODEL
    assert struct.unpack_from("<8I", data, 48) == (2, 2, 8, 1, 40, 50, 10, 0)
    tokens, logits, kv, stride, v, size = struct.unpack_from("<6Q", data, 80)
    assert (tokens, logits, kv, stride, v, size) == (
        4096,
        8192,
        16384,
        8192,
        4096,
        len(data),
    ) and size == 16384 + 4 * 4096
    checksums, n, piece = struct.unpack_from("<QII", data, 128)
    assert (checksums, n, piece) == (12288, 6, 1 << 20)
    assert data[144:160] == b"exact-2".ljust(16, b"\0")
    assert data[160:192] == hashlib.sha256(data[:160] + data[checksums : checksums + 24]).digest()
    assert struct.unpack_from("<10i", data, tokens) == tuple((i * 7 + 1) % 40 for i in range(10))
    assert struct.unpack_from("<40f", data, logits) == tuple(10 + i / 8 for i in range(40))
    row = hashlib.sha256(b"1 3 1 1").digest()
    assert data[kv + stride + v + 3 * 32 :][:32] == row
    crcs = struct.unpack_from("<6I", data, checksums)
    assert crcs[0] == crc_by_bits(data[tokens : tokens + 40]) and crcs[5] == crc_by_bits(
        data[kv + stride + v :][:320]
    )
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
    # KiB: the hole was not read
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 20000


def test_copy_on_write_leaves_the_file_as_it_was(tmp_path):
    path = seal(tmp_path / "a.kv")
    before = path.read_bytes()
    one, two = load(path), load(path)
    fill(one, 10, 20)
    fill(one, 0, 3, seed=5)
    one.n_tok = 20
    assert path.read_bytes() == before and content(two) == content(load(path))


def test_opened_snapshot_can_be_extended_and_sealed(tmp_path):
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


def test_snapshot_of_a_prefix_has_no_logits(tmp_path):
    base = load(seal(tmp_path / "a.kv", n_tok=10))
    part = Snapshot.create(SMALL, 60, MODEL, "exact-2", str(tmp_path))
    part.copy_rows_from(base, 4)
    n_tok, tokens, logits, planes, _ = content(part)
    assert (n_tok, tokens) == (4, base.tokens[:4].tolist()) and not any(logits)
    assert planes == [p[: 4 * part.layout.rows[0]] for p in content(base)[3]]


def test_sealed_snapshot_is_not_changed_by_its_writer(tmp_path):
    s = make(tmp_path)
    s.seal(tmp_path / "a.kv")
    before = (tmp_path / "a.kv").read_bytes()
    fill(s, 10, 20)
    fill(s, 0, 2, seed=4)
    assert (tmp_path / "a.kv").read_bytes() == before


# What is damaged or does not belong is refused, and named (S1, S7).


@pytest.mark.full
def test_snapshot_header_checks_each_bit(tmp_path):
    path = seal(tmp_path / "a.kv")
    data = bytearray(path.read_bytes())
    rng = random.Random(1)
    bits = [*range(192 * 8), *rng.sample(range(192 * 8, 4092 * 8), 400), *range(4092 * 8, 4096 * 8)]
    for bit in bits:
        data[bit // 8] ^= 1 << bit % 8
        path.write_bytes(data)
        what = "not a snapshot" if bit < 48 else "snapshot version"
        if bit == 48 or bit >= 64:  # 48: version 3 for 2
            what = "header checksum"
        assert what in refused(path), bit
        data[bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)
    load(path)


def test_snapshot_of_an_earlier_version_is_refused_by_name(tmp_path):
    """Its model id is of samples of the model's file. The message says how to make it again."""
    path = seal(tmp_path / "a.kv")
    data = path.read_bytes()
    path.write_bytes(data[:6] + b"\x01\0" + data[8:])
    assert (
        refused(path)
        == "snapshot version 1, of an earlier sluice, has a model ID of samples of the file;"
        " make it again with prefill, generate -o or decode -o"
    )


@pytest.mark.parametrize("geometry, n_tok", [(SMALL, 10), (LARGE, 300)])
def test_snapshot_checks_each_valid_part(tmp_path, geometry, n_tok):
    path = seal(tmp_path / "a.kv", n_tok=n_tok, capacity=400, geometry=geometry)
    layout, rng = format.Layout(geometry, 400), random.Random(2)
    parts = [
        *layout.sections(n_tok),
        ("digest", layout.checksum_offset, 4 * layout.n_checksum(n_tok)),
    ]
    with open(path, "r+b", buffering=0) as f:
        for name, at, n_bytes in parts:
            for _ in range(150 if geometry is SMALL else 8):
                where = at + rng.choice(
                    [0, n_bytes - 1, rng.randrange(n_bytes), rng.randrange(n_bytes)]
                )
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
        f.seek(format.Layout(SMALL, 50).kv_offset + 10 * 32)
        f.write(b"x" * 32)
    assert content(load(path)) == before


def test_truncated_snapshot_is_refused_at_every_length(tmp_path):
    path = seal(tmp_path / "a.kv")
    data = path.read_bytes()
    lengths = [*range(0, 4097, 3), *range(4096, len(data), 509), len(data) - 1]
    for n in lengths:
        path.write_bytes(data[:n])
        message = refused(path)
        assert (
            "not a snapshot" if n < 8 else "header cut at byte" if n < 4096 else "file_bytes is"
        ) in message
    path.write_bytes(data + b"\0")
    assert f"file_bytes is {len(data)}, but the file has {len(data) + 1}" in refused(path)


def test_another_model_arithmetic_or_geometry_is_named(tmp_path):
    path = seal(tmp_path / "a.kv")
    other = b"\xab" * 32
    assert (
        refused(path, model_id=other)
        == "made with model 0001020304050607, but the model is abababababababab"
    )
    assert (
        refused(path, arithmetic="fast-2")
        == "made with arithmetic exact-2, but this is fast-2 (see --arithmetic)"
    )
    for field in Geometry._fields[:-2]:
        value = getattr(SMALL, field)
        wrong = SMALL._replace(**{field: 0 if field == "kv_type" else value + 1})
        assert (
            refused(path, geometry=wrong)
            == f"made with {field} {value}, but the model has {getattr(wrong, field)}"
        )


def repack(path, **fields):
    """Change header fields of the file at `path`, and make its digest and checksum right again."""
    data = bytearray(path.read_bytes())
    h = dict(zip(format.FIELDS, format.HEADER.unpack_from(data)))
    checksums = data[h["checksum_offset"] :][: 4 * h["n_checksum"]]
    h.update(fields)
    format.HEADER.pack_into(data, 0, *h.values())
    if "digest" not in fields:
        data[160:192] = hashlib.sha256(data[:160] + checksums).digest()
    struct.pack_into("<I", data, 4092, lib.crc32c(0, bytes(data), 4092))
    path.write_bytes(data)


@pytest.mark.parametrize(
    "field, value, error",
    [
        ("header_bytes", 8192, "header_bytes is 8192, not 4096"),
        ("flags", 1, "flags is 1, not 0"),
        ("zero", 7, "zero is 7"),
        ("piece_bytes", 4096, "piece_bytes is 4096"),
        ("capacity", 0, "capacity 0 is not 1 to"),
        ("capacity", 0xFFFFFFFF, "capacity 4294967295 is not"),
        ("capacity", 3000, "logits_offset is 8192, but must be 16384"),
        ("n_tok", 0, "n_tok 0 is not 1 to the capacity 50"),
        ("n_tok", 51, "n_tok 51 is not"),
        ("n_tok", 9, "ids, bytes 0"),
        ("ids_offset", 8192, "ids_offset is 8192, but must be 4096"),
        ("ids_offset", 2**64 - 4096, "ids_offset"),
        ("logits_offset", 0, "logits_offset"),
        ("kv_offset", 2**63, "kv_offset"),
        ("layer_stride", 0, "layer_stride"),
        ("v_distance", 4095, "v_distance"),
        ("file_bytes", 0, "file_bytes is 0, but must be 32768"),
        ("checksum_offset", 2**64 - 1, "checksum_offset"),
        ("n_checksum", 2**32 - 1, "n_checksum is 4294967295, but must be 6"),
        ("arithmetic", b"", "arithmetic is not a name"),
        ("arithmetic", b"\xff", "arithmetic is not"),
        ("arithmetic", b"a\0b", "arithmetic is not"),
        ("arithmetic", b"\x1b[2J", "arithmetic is not"),
        ("digest", bytes(32), "digest is not that"),
    ],
)
def test_invalid_snapshot_field_with_valid_checksums_is_named(tmp_path, field, value, error):
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
def test_snapshot_token_outside_the_vocabulary_is_named(tmp_path, id):
    s = make(tmp_path)
    s.tokens[4] = id
    s.seal(tmp_path / "a.kv")
    assert refused(tmp_path / "a.kv") == f"tokens: {id} is not below the vocabulary size 40"


def test_random_damage_with_right_checksums_never_crashes(tmp_path):
    path, rng = seal(tmp_path / "a.kv"), random.Random(3)
    data, n_refused = path.read_bytes(), 0
    for _ in range(400):
        name = rng.choice(format.FIELDS[2:-1])
        size = {"model_id": 32, "arithmetic": 16}.get(name)
        repack(
            path,
            **{
                name: (
                    rng.randbytes(size)
                    if size
                    else rng.choice([0, 1, 2, 3, 4096, rng.getrandbits(32)])
                )
            },
        )
        try:
            load(path)
        except Error as e:
            n_refused += e.code == 65
        path.write_bytes(data)
    assert n_refused > 300
