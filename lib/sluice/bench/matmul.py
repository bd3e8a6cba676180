"""Time matrix products alone: activations [m, k] times a matrix [n, k], and numpy's BLAS in f32.

The time includes packing of the activations, as in a layer.
"""

from __future__ import annotations

import importlib.util
import itertools
import mmap
import os
import random
import statistics
import time
from array import array
from collections.abc import Iterable, Iterator, Sequence

from ..faults import USAGE, Error
from ..kernels import ffi, lib
from ..model import model
from ..model.forward import Forward, Rows
from ..model.weights import Matrix
from ..system import huge_pages
from . import limits
from .measure import REST_S, spread
from .synthetic import MIXES, Weights, numbers

# activations, repeated. They are normally distributed, because a kernel's time depends on the share
# of large values (csrc/kernels/x86/avx512_kquant.c)
N_RANDOM = 1 << 12
MIN_NS = 20_000_000  # of a sample; short products are repeated within it
# numpy reads them when it is loaded
BLAS_THREADS = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS")


def run(
    kinds: Iterable[str],
    sizes: Sequence[tuple[int, int, int]],
    repetitions: int,
    threads: int | None,
    arithmetic: str = "exact",
    huge_pages: bool = False,
) -> Iterator[dict]:
    """Yield a row for each type of `kinds` and (m, n, k) of `sizes`.

    threads: None is the default. huge_pages: put the matrix in huge pages.
    """
    model.start(threads, arithmetic)
    isa, n_threads = ffi.string(lib.isa_name()).decode(), lib.threads_count()
    blas = _blas(n_threads)
    machine = limits.measure()
    for kind in kinds:
        weights = Weights(kind)
        for m, n, k in sizes:
            own = _product(weights, m, n, k, arithmetic == "fast", huge_pages)
            blas_product = blas and blas(m, n, k)
            samples = _time([own, blas_product] if blas_product else [own], repetitions)
            rates = [[2 * m * n * k / ns for ns in s] for s in samples]
            limit = limits.peak(
                machine, weights.type, arithmetic == "fast" and lib.type_block(weights.type) == 1
            )
            median = statistics.median(rates[0])
            ratios = [a / b for a, b in zip(*rates)] if blas_product else []
            yield {
                "type": kind,
                "backend": f"sluice {isa}" + (" fast" if arithmetic == "fast" else ""),
                "isa": isa,
                "n_threads": n_threads,
                "m": m,
                "n": n,
                "k": k,
                "samples_ns": samples[0],
                "gflops": median,
                "gflops_spread": spread(rates[0]),
                "limit": limit and limit[0],
                "of_limit": limit and median / limit[1],
                "limits": machine,
                "blas_gflops": statistics.median(rates[1]) if blas_product else None,
                "ratio": statistics.median(ratios) if blas_product else None,
                "ratio_spread": spread(ratios) if blas_product else None,
            }


def check(kinds: Iterable[str], sizes: Iterable[tuple[int, int, int]]) -> None:
    """Error 64: a type and a size have no product."""
    for (_, _, k), kind in itertools.product(sizes, kinds):
        if kind in MIXES:
            raise Error(
                USAGE, f"--matmul: {kind} is a mix of types; use {' or '.join(MIXES[kind])}"
            )
        if lib.type_row_bytes(numbers()[kind], k) < 0:
            raise Error(
                USAGE,
                f"--matmul: K {k} is not a multiple of {lib.type_block(numbers()[kind])}, the block"
                f" size of {kind}",
            )


def _product(weights, m, n, k, fast, in_huge_pages):
    """A function that computes y [m, n] once, through Forward as in a layer of a model."""
    # page-aligned, as weights in a file almost are
    data = mmap.mmap(-1, lib.type_row_bytes(weights.type, k) * n)
    if in_huge_pages:
        huge_pages.ask(data)
    for piece in weights.pieces(k, n):
        data.write(piece)
    w = Matrix("product", weights.type, ffi.cast("const void *", ffi.from_buffer(data)), k, n, fast)
    rng = random.Random(1)
    x = array("f", [rng.gauss(0, 1) for _ in range(N_RANDOM)]) * -(-m * k // N_RANDOM)
    f = Forward(None, None)
    f.n_tok = m
    p = ffi.from_buffer("float[]", x)

    def work(keep_alive=(data, x)):
        f.linear(Rows(p, k), w)  # new Rows, so that the activations are packed again

    return work


def _blas(threads):
    """A function like _product for numpy, or None if numpy is not installed."""
    if importlib.util.find_spec("numpy") is None:
        return None
    for name in BLAS_THREADS:
        os.environ[name] = str(threads)
    import numpy

    def make(m, n, k):
        rng = numpy.random.default_rng(1)
        x, w = rng.standard_normal((m, k), "f4"), rng.standard_normal((n, k), "f4")
        y = numpy.empty((m, n), "f4")
        return lambda: numpy.matmul(x, w.T, out=y)

    return make


def _time(works, repetitions):
    """[[nanoseconds of a call, by repetition] for each of `works`], after two warm-up calls."""
    samples = []
    for work in works:
        time.sleep(REST_S if len(works) > 1 else 0)
        work()
        n = -(-MIN_NS // max(1, _ns(work, 1)))
        samples.append([_ns(work, n) / n for _ in range(repetitions)])
    return samples


def _ns(work, n):
    began = time.perf_counter_ns()
    for _ in range(n):
        work()
    return time.perf_counter_ns() - began
