"""The pool: groups of products, each item once, idle workers, signals, more threads than
processors, a child.
"""

import os
import shutil
import subprocess
import sys

import numpy as np
import pytest
from conftest import ROOT, sets_here
from kernel_call import Buffer, activations_of, number_of, product, quantised, weights

from sluice.kernels import ffi, lib

GROUPS = [
    ["Q4_K", "Q4_K", "Q6_K"],
    ["Q8_0", "Q8_0"],
    ["Q5_0", "Q4_K", "F16"],
    ["F32", "BF16", "IQ4_XS"],
    ["IQ2_XS", "Q4_K", "TQ1_0"],
    ["NVFP4", "F16", "IQ1_M"],
    ["MXFP4", "Q8_0"],
]
pytestmark = pytest.mark.usefixtures("best_set")


@pytest.mark.parametrize("names", GROUPS, ids=",".join)
def test_grouped_products_equal_single_products(names):
    """Of several types, which take other forms of the same activations; of few rows and many; of
    picked rows.
    """
    rng, n = np.random.default_rng(21), 512
    lib.threads_start(3)
    for n_tok, rows, pick in (
        (1, (1500, 33, 130), None),
        (9, (256, 64, 1), None),
        (40, (31, 32, 500), None),
        (2, (70, 7, 90), [3, 0, 6]),
    ):
        x = Buffer(n_tok * n, values=rng.normal(size=n_tok * n))
        raw = [weights(rng, name, r, n) for name, r in zip(names, rows)]
        for isa in sets_here():
            lib.isa_select(isa.encode())
            fields, held = [], []
            for name, w, r in zip(names, raw, rows):
                n_out = r if pick is None else len(pick)
                parts = (
                    quantised(x, n_tok, n, activations_of(name))
                    if activations_of(name) > 1
                    else [None] * 4
                )
                kinds = ("int8_t *", "float *", "float *", "int16_t *")
                pointers = [part.p(kind) if part else ffi.NULL for part, kind in zip(parts, kinds)]
                y, w = Buffer(n_tok * n_out), Buffer(len(w), np.uint8, np.frombuffer(w, np.uint8))
                tokens = ffi.NULL if pick is None else ffi.new("int32_t[]", pick)
                fields.append(
                    (
                        y.p(),
                        w.p("void *"),
                        tokens,
                        x.p(),
                        *pointers,
                        number_of(name),
                        n_tok,
                        n_out,
                        n,
                    )
                )
                held.append((y, w, tokens, parts))
            group = ffi.new("product[]", fields)
            # what threads that wait ask for changes nothing
            group[0].then, group[0].n_then = group, len(group)
            lib.matmuls(group, len(group))
            for name, w, r, (y, *_) in zip(names, raw, rows, held):
                assert y.margins_untouched()
                assert y.a.tobytes() == product(name, w, x, n_tok, r, n, pick).tobytes(), (
                    isa,
                    name,
                    n_tok,
                    r,
                )


@pytest.mark.quick_cases(2)
@pytest.mark.skipif(not shutil.which("cc"), reason="needs a C compiler, cc")
@pytest.mark.parametrize("threads", [1, 2, 5, 40])
def test_threads_do_each_item_once(threads, tmp_path):
    """Whichever thread takes it: chunks.c, with few items and with many, on more threads than
    there are processors.
    """
    program = tmp_path / "chunks"
    subprocess.run(
        [
            "cc",
            "-O2",
            "-std=c11",
            "-I",
            ROOT / "csrc",
            "-o",
            program,
            ROOT / "tests" / "kernels" / "chunks.c",
            ROOT / "csrc" / "runtime" / "threads.c",
            "-pthread",
        ],
        check=True,
    )
    done = subprocess.run(
        [program, str(threads), "3000"], capture_output=True, timeout=600, text=True
    )
    assert (done.returncode, done.stdout) == (0, "")


def python(code):
    """Run `code` in a process of its own that has `lib`, a pool of 4 and work() for it."""
    before = """
import os, signal, sys, time
from sluice.kernels import ffi, lib
assert lib.threads_start(4) == 0
n = 1 << 17
gate, up = ffi.new("float[]", n), ffi.new("float[]", [1] * n)
def work():
    ffi.memmove(gate, up, 4 * n)
    lib.silu_mul(gate, up, n)
    return bytes(ffi.buffer(gate))
def workers(field):
    me, found = os.getpid(), []
    for task in os.listdir("/proc/self/task"):
        if int(task) != me:
            found += [line.split()[1] for line in open(f"/proc/self/task/{task}/status") if line.startswith(field)]
    return found
"""
    subprocess.run(
        [sys.executable, "-c", before + code],
        check=True,
        timeout=120,
        env={"PYTHONPATH": str(ROOT / "lib"), **os.environ},
    )


linux = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux's /proc")


@linux
def test_idle_workers_sleep_and_wake():
    python("""
right = work()
for _ in range(3):
    while workers("State:") != ["S"] * 3:
        time.sleep(0.01)
    assert work() == right
""")


@linux
def test_signals_go_to_the_program():
    """But for those that a fault raises in the thread that made it: guard.c must see them."""
    python("""
work()
for mask in workers("SigBlk:"):
    mask = int(mask, 16)
    is_blocked = lambda s: mask >> s - 1 & 1
    assert all(map(is_blocked, (signal.SIGINT, signal.SIGTERM, signal.SIGALRM, signal.SIGCHLD)))
    assert not any(map(is_blocked, (signal.SIGBUS, signal.SIGSEGV, signal.SIGFPE, signal.SIGILL)))
assert not signal.pthread_sigmask(signal.SIG_BLOCK, [])
""")


@linux
def test_threads_that_share_one_processor_compute_the_same():
    python("""
right = work()
os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
for task in os.listdir("/proc/self/task"):
    os.sched_setaffinity(int(task), os.sched_getaffinity(0))
for i in range(60):
    assert work() == right
    time.sleep(0.001 * (i % 3))
""")


FORK = """
import os
from sluice.kernels import ffi, lib
n = 1 << 20
gate, up = ffi.new("float[]", n), ffi.new("float[]", n)
lib.threads_start(3)
lib.silu_mul(gate, up, n)
if child := os.fork():
    os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
assert lib.threads_count() == 1
lib.silu_mul(gate, up, n)
assert lib.threads_start(2) == 0
for _ in range(100):
    lib.silu_mul(gate, up, n)
os._exit(0)
"""


def test_threads_work_in_a_forked_child():
    """Its parent's workers are not there: it must not wait for them."""
    subprocess.run([sys.executable, "-c", FORK], check=True, timeout=60)
