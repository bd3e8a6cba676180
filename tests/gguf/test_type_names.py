"""Tensors of every block type in files: named by gguf-dump, and refused where rows or bytes lack."""

import json

import pytest
from conftest import run
from gguf_writer import BLOCK_TYPES, write_gguf

UNREAD = {"Q1_0": (41, 128, 18), "Q2_0": (42, 64, 18), "I8": (24, 1, 1), "F64": (28, 1, 8)}
SIZES = {**{name: sizes[:3] for name, sizes in BLOCK_TYPES.items()}, **UNREAD}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "m.gguf"


def test_dump_names_every_type(path):
    tensors = [
        (f"{name}.weight", number, (block * 2, 3), bytes(6 * n_bytes))
        for name, (number, block, n_bytes) in SIZES.items()
    ]
    write_gguf(path, {}, tensors)
    done = run("gguf-dump", "--json", path)
    assert done.returncode == 0
    assert [(t["name"], t["type"], t["bytes"]) for t in json.loads(done.stdout)["tensors"]] == [
        (f"{name}.weight", name, 6 * n_bytes) for name, (_, _, n_bytes) in SIZES.items()
    ]


@pytest.mark.parametrize("name", [name for name in SIZES if SIZES[name][1] > 1])
def test_row_of_part_of_a_block_is_refused_by_name(path, name):
    number, block, n_bytes = SIZES[name]
    write_gguf(path, {}, [("t.weight", number, (block + block // 2, 2), bytes(4 * n_bytes))])
    done = run("gguf-dump", path)
    assert (done.returncode, done.stdout) == (65, b"")
    expected = f"tensor t.weight: row of {block + block // 2} is not a multiple of the {name} block"
    assert expected in done.stderr.decode() and done.stderr.count(b"\n") == 1


@pytest.mark.parametrize("name", SIZES)
def test_tensor_that_is_cut_is_refused_by_name(path, name):
    number, block, n_bytes = SIZES[name]
    write_gguf(path, {}, [("t.weight", number, (block * 8, 64), bytes(8 * 64 * n_bytes))])
    data = path.read_bytes()
    path.write_bytes(data[: len(data) - 32])
    done = run("gguf-dump", path)
    assert (done.returncode, done.stdout) == (65, b"") and done.stderr.count(b"\n") == 1
    assert b"t.weight" in done.stderr


@pytest.mark.parametrize(
    "number, why",
    [
        (4, ", Q4_2, was withdrawn"),
        (5, ", Q4_3, was withdrawn"),
        (9, ", Q8_1, is a format of activations"),
        (15, ", Q8_K, is a format of activations"),
        (31, ", Q4_0_4_4, was withdrawn"),
        (38, ", IQ4_NL_8_8, was withdrawn"),
        *((n, " is not known") for n in (43, 142, 143, 1 << 31, (1 << 32) - 256, (1 << 32) - 1)),
    ],
)
def test_number_that_is_no_type_of_files_is_refused(path, number, why):
    """Withdrawn ones, formats of activations, those of other programs, and the library's own."""
    write_gguf(path, {}, [("t.weight", number, (256, 2), bytes(640))])
    done = run("gguf-dump", path)
    assert (done.returncode, done.stdout) == (69, b"")
    assert f"tensor t.weight: type number {number}{why}".encode() in done.stderr
