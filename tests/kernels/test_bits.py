"""The same bits on another processor and from another compiler: bits.c, built here and for
aarch64, prints the same.
"""

import os
import resource
import shutil
import subprocess

import pytest
from conftest import ROOT, sets_here

pytestmark = pytest.mark.full

SETS = {"avx2": "-mavx2 -mfma -mf16c".split()}
SETS["avx-vnni"] = SETS["avx2"] + ["-mavxvnni"]
SETS["avx512"] = SETS["avx2"] + "-mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512vnni".split()
SETS["amx"] = SETS["emulated"] = SETS["avx512"]
ARM_SETS = {"neon": ["-march=armv8.2-a+dotprod"], "i8mm": ["-march=armv8.2-a+dotprod+i8mm"]}
ENGINE = ("formats", "kernels", "runtime", "tokenizer", "grammar", "sampling")
SOURCES = [path for room in ENGINE for path in sorted((ROOT / "csrc" / room).rglob("*.c"))]
SOURCES.append(ROOT / "csrc" / "mail" / "marking.c")
EMULATED = ["-DEMULATED_TILES", "-I", ROOT / "tests" / "kernels"]  # see csrc/kernels/x86/amx_tile.h
FLAGS = "-std=c11 -O3 -Wall -Wextra -fno-math-errno -ffp-contract=off".split()
FLAGS.append('-DSLUICE_VERSION="test"')


def flags_of(source, compiler):
    """What the Makefile adds for a file of one instruction set."""
    arm = "aarch64" in compiler or os.uname().machine == "aarch64"
    return (ARM_SETS if arm else SETS).get(source.stem.split("_")[0], [])


def tiles_of(compiler):
    """What makes the set amx run on a processor with AVX-512 alone."""
    here = sets_here()
    return EMULATED if "aarch64" not in compiler and "avx512" in here and "amx" not in here else []


def build(directory, compiler, *flags, names=("bits", "sets")):
    """bits.c and sets.c, each with all of csrc, by `compiler`: the path of the first program; the
    other is beside it.
    """
    emulated = tiles_of(compiler)

    def compiled(source):
        out = directory / f"{source.stem}.o"
        done = subprocess.run(
            [
                compiler,
                *FLAGS,
                *flags,
                *flags_of(source, compiler),
                *emulated,
                "-I",
                ROOT / "csrc",
                "-c",
                "-o",
                out,
                source,
            ],
            capture_output=True,
        )
        assert done.returncode == 0, done.stderr.decode()
        return out

    objects = [
        compiled(source)
        for source in [
            *SOURCES,
            *([ROOT / "tests" / "kernels" / "emulated_tiles.c"] if emulated else []),
        ]
    ]
    for name in names:
        done = subprocess.run(
            [
                compiler,
                *flags,
                "-o",
                directory / name,
                compiled(ROOT / "tests" / "kernels" / f"{name}.c"),
                *objects,
                "-lm",
                "-pthread",
            ],
            capture_output=True,
        )
        assert done.returncode == 0, done.stderr.decode()
    return directory / names[0]


def lines(*argv):
    done = subprocess.run([str(a) for a in argv], capture_output=True, timeout=600)
    assert done.returncode == 0, (argv, done.stderr)
    return done.stdout.decode().splitlines()


def sets_of(program):
    """The instruction sets this machine has beside the reference, or can emulate."""
    return [
        name
        for name in (*SETS, *ARM_SETS)
        if subprocess.run([program, name, "1"], capture_output=True).returncode == 0
    ]


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


def test_gbnf_needs_a_small_stack_only(here):
    """Kernels run in the caller's thread too, whose stack may be `ulimit -s 256`, with Python's
    frames and the environment on it.
    """
    program, expected = here

    def limit():
        resource.setrlimit(resource.RLIMIT_STACK, (176 << 10, 176 << 10))

    for name in ["reference"] + sets_of(program):
        done = subprocess.run([program, name, "1"], capture_output=True, env={}, preexec_fn=limit)
        assert done.returncode == 0 and done.stdout.decode().splitlines() == expected, name


@pytest.mark.parametrize("flags", [("-O0",), ("-O2", "-fno-tree-vectorize")])
def test_bits_do_not_depend_on_the_optimiser(here, tmp_path, flags):
    program, expected = here
    other = build(tmp_path, "gcc", *flags)
    assert lines(other, "reference", 1) == expected
    for name in sets_of(program):
        assert lines(other, name, 2) == expected


def test_bits_do_not_depend_on_the_compiler(here, tmp_path):
    if not shutil.which("clang"):
        pytest.skip("clang is not installed: apt install clang")
    program = build(tmp_path, "clang")
    for name in sets_of(program):
        assert lines(program, name, 2) == here[1]


CROSS = "aarch64-linux-gnu-gcc"
# A processor of each kind: baseline, with SDOT, with SMMLA too; and the sets it has, the best
# first.
PROCESSORS = {
    "cortex-a57": ["reference"],
    "cortex-a76": ["neon", "reference"],
    "max": ["i8mm", "neon", "reference"],
}


@pytest.fixture(scope="module")
def qemu():
    path = shutil.which("qemu-aarch64") or shutil.which("qemu-aarch64-static")
    if not (shutil.which(CROSS) and path):
        pytest.skip("no aarch64 compiler and qemu: apt install gcc-aarch64-linux-gnu qemu-user")
    return path


def test_bits_are_the_same_on_aarch64(here, tmp_path, qemu):
    program = build(tmp_path, CROSS, "-static")
    for name in PROCESSORS["max"]:
        for threads in (1, 2):
            assert lines(qemu, "-cpu", "max", program, name, threads) == here[1], (name, threads)
    program = tmp_path / "sets"
    for name in ("neon", "i8mm"):
        assert lines(qemu, "-cpu", "max", program, name)[0].split()[0] == name
    for processor, names in PROCESSORS.items():
        assert lines(qemu, "-cpu", processor, program, "", "best") == names[:1]
        for name in PROCESSORS["max"]:
            done = subprocess.run(
                [qemu, "-cpu", processor, program, name, "best"], capture_output=True
            )
            assert done.returncode == (0 if name in names else 64)


def test_sets_of_aarch64_have_no_undefined_behaviour(tmp_path, qemu):
    """UBSan's checks, which trap here: its library is not linked."""
    program = build(
        tmp_path,
        CROSS,
        "-static",
        "-O1",
        "-fsanitize=undefined",
        "-fsanitize-undefined-trap-on-error",
        names=("sets",),
    )
    for name in ("neon", "i8mm"):
        assert lines(qemu, "-cpu", "max", program, name)[0].split()[0] == name


def test_kernels_equal_the_reference_on_guarded_buffers(here):
    """What test_kernels.py, test_norms.py and test_attention.py do, but a read past the end of a
    buffer is a fault too.
    """
    program, _ = here
    for name in sets_of(program):
        assert lines(program.with_name("sets"), name)[0].split()[0] == name
