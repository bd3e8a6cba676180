"""AMX's kernels on processors without it: their tiles are emulated (emulated_tiles.c), and
the tests of the kernels run on a library built so.
"""

import os
import signal
import subprocess
import sys

import pytest
from conftest import ROOT, sets_here
from test_bits import EMULATED, SETS, lines

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(
        "avx512" not in sets_here(),
        reason=(
            "this processor has no AVX-512 VNNI, which the kernels of AMX are of beside their tiles"
        ),
    ),
]


@pytest.fixture(scope="module")
def library():
    """The directory that comes first on the path, so that `import sluice` finds the emulation."""
    env = {
        name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))
    }
    done = subprocess.run(
        ["make", "-C", ROOT, "tiles", f"PYTHON={sys.executable}"],
        capture_output=True,
        text=True,
        env=env,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return ROOT / "build" / "tiles"


@pytest.mark.parametrize(
    "argv",
    [
        (
            "tests/kernels/test_kernels.py",
            "-k",
            "amx or test_matmul_equals_reference or depend_on_the_batch",
        ),
        ("tests/kernels/test_attention.py", "-k", "amx"),
        ("tests/kernels/test_fast.py",),
        ("tests/kernels/test_threads.py", "-k", "grouped_products"),
        ("tests/model/test_model.py", "-k", "instruction_set and not gemma3"),
        ("tests/bench/test_bench.py", "-k", "test_limits_are"),
    ],
    ids=lambda argv: argv[0],
)
def test_with_emulated_tiles(library, argv):
    said = subprocess.run(
        [sys.executable, "-c", "from conftest import sets_here; print(*sets_here())"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": f"{library}:{ROOT / 'tests'}:{ROOT / 'tests/helpers'}"},
    ).stdout
    assert said.split()[:2] == ["reference", "amx"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *argv],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(library)},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "skipped" not in done.stdout and "passed" in done.stdout, done.stdout


# The emulation itself.


@pytest.fixture(scope="module")
def check(tmp_path_factory):
    """tile_check.c with the emulation, and with the processor's instructions."""
    d = tmp_path_factory.mktemp("check")
    flags = [
        "-std=c11",
        "-O2",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-I",
        ROOT / "csrc",
        "-I",
        ROOT / "tests" / "kernels",
        *SETS["avx512"],
    ]
    for name, more in (
        ("real", []),
        ("emulated", [*EMULATED, ROOT / "tests" / "kernels" / "emulated_tiles.c"]),
    ):
        done = subprocess.run(
            ["gcc", *flags, "-o", d / name, ROOT / "tests" / "kernels" / "tile_check.c", *more],
            capture_output=True,
        )
        assert done.returncode == 0, done.stderr.decode()
    return d


def real(check, *argv):
    """Lines of the processor's own instructions, or a skip."""
    done = subprocess.run([check / "real", *argv], capture_output=True)
    if done.returncode == 64:
        pytest.skip(
            f"this processor does not have {'AVX512_BF16' if argv else 'AMX-INT8 and AMX-BF16'}"
        )
    assert done.returncode == 0
    return done.stdout.decode().splitlines()


def test_emulated_tiles_are_those_of_the_processor(check):
    assert lines(check / "emulated") == real(check)


def test_emulated_rounding_to_bf16_is_that_of_the_processor(check):
    assert lines(check / "emulated", "bf16") == real(check, "bf16")


def test_wrong_shapes_are_refused(check):
    """By an abort that says why, as the processor refuses them by a fault."""
    has_amx = subprocess.run([check / "real"], stdout=subprocess.DEVNULL).returncode == 0
    for which in range(100):
        done = subprocess.run([check / "emulated", "fault", str(which)], capture_output=True)
        if done.returncode == 65:
            break
        assert (
            done.returncode == -signal.SIGABRT
            and done.stderr.startswith(b"emulated tiles: ")
            and done.stderr.count(b"\n") == 1
        ), which
        if has_amx:
            assert subprocess.run([check / "real", "fault", str(which)]).returncode in (
                -signal.SIGILL,
                -signal.SIGSEGV,
            ), which
    assert which == 14
