"""The same bits on another processor and from another compiler: tests/bits.c, built here and for aarch64, prints the same."""
import shutil
import subprocess

import pytest
from conftest import ROOT

SETS = {"avx2": "-mavx2 -mfma -mf16c".split()}
SETS["avx-vnni"] = SETS["avx2"] + ["-mavxvnni"]
SETS["avx512"] = SETS["avx2"] + "-mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512vnni".split()
SETS["amx"] = SETS["avx512"]
FLAGS = "-std=c11 -O3 -Wall -Wextra -fno-math-errno -ffp-contract=off".split()


def build(directory, compiler, *flags):
    """tests/bits.c with all of csrc by `compiler`: the path of the program."""
    objects = []
    for source in sorted((ROOT / "csrc").glob("*.c")) + [ROOT / "tests" / "bits.c"]:
        extra = SETS.get(source.stem.split("_")[0], []) if "aarch64" not in compiler else []
        out = directory / f"{source.stem}.o"
        done = subprocess.run([compiler, *FLAGS, *flags, *extra, "-I", ROOT / "csrc", "-c", "-o", out, source], capture_output=True)
        assert done.returncode == 0, done.stderr.decode()
        objects.append(out)
    done = subprocess.run([compiler, *flags, "-o", directory / "bits", *objects, "-lm", "-pthread"], capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    return directory / "bits"


def lines(*argv):
    done = subprocess.run([str(a) for a in argv], capture_output=True, timeout=120)
    assert done.returncode == 0, (argv, done.stderr)
    return done.stdout.decode().splitlines()


def sets_of(program):
    """The instruction sets this machine has beside the reference."""
    return [name for name in SETS if subprocess.run([program, name, "1"], capture_output=True).returncode == 0]


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    program = build(tmp_path_factory.mktemp("here"), "gcc")
    expected = lines(program, "reference", 1)
    assert len(expected) > 50
    return program, expected


def test_bits_do_not_depend_on_set_or_threads(here):
    program, expected = here
    for name in ["reference"] + sets_of(program):
        for threads in (1, 2, 4):
            assert lines(program, name, threads) == expected, (name, threads)


@pytest.mark.parametrize("flags", [("-O0",), ("-O2", "-fno-tree-vectorize")])
def test_bits_do_not_depend_on_the_optimiser(here, tmp_path, flags):
    program, expected = here
    other = build(tmp_path, "gcc", *flags)
    assert lines(other, "reference", 1) == expected
    for name in sets_of(program):
        assert lines(other, name, 2) == expected


def test_bits_do_not_depend_on_the_compiler(here, tmp_path):
    if not shutil.which("clang"):
        pytest.skip("clang is not on this machine")
    program = build(tmp_path, "clang")
    for name in sets_of(program):
        assert lines(program, name, 2) == here[1]


def test_bits_are_the_same_on_aarch64(here, tmp_path):
    compiler = "aarch64-linux-gnu-gcc"
    qemu = shutil.which("qemu-aarch64") or shutil.which("qemu-aarch64-static")
    if not (shutil.which(compiler) and qemu):
        pytest.skip("no aarch64 here: apt install gcc-aarch64-linux-gnu qemu-user")
    program = build(tmp_path, compiler, "-static")
    assert lines(qemu, program, "", 1) == here[1]
    assert lines(qemu, program, "reference", 2) == here[1]
