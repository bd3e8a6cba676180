"""Products alone, as matmul tables are published: m rows of activations times a matrix [n, k],
beside numpy's BLAS in f32.

What is timed is what a layer pays: the packing of the activations, and the product.
"""

import importlib.util
import itertools
import mmap
import os
import random
import statistics
import time
from array import array

from ..faults import USAGE, Error
from ..kernels import ffi, lib
from ..model import model
from ..model.forward import Forward, Rows
from ..model.weights import Matrix
from ..system import huge_pages
from . import limits
from .measure import REST_S, spread
from .synthetic import MIXES, Weights, numbers

# activations, repeated; of the normal distribution, as few of a model's are large: kernels look
# (csrc/kernels/x86/avx512_kquant.c)
N_RANDOM = 1 << 12
LEAST_NS = 20_000_000  # of a sample: short products are repeated within it
# read when numpy is loaded
BLAS_THREADS = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS")


def run(kinds, sizes, repetitions, threads, arithmetic="exact", huge_pages=False):
    """Yield a row (a dict) for each type of `kinds` and (m, n, k) of `sizes`. huge_pages: ask for
    them for the matrix.
    """
    model.start(threads, arithmetic)
    isa, n_threads = ffi.string(lib.isa_name()).decode(), lib.threads_count()
    blas = _blas(n_threads)
    could = limits.measure()
    for kind in kinds:
        weights = Weights(kind)
        for m, n, k in sizes:
            ours = _product(weights, m, n, k, arithmetic == "fast", huge_pages)
            theirs = blas and blas(m, n, k)
            samples = _time([ours, theirs] if theirs else [ours], repetitions)
            rates = [[2 * m * n * k / ns for ns in s] for s in samples]
            limit = limits.peak(
                could, weights.type, arithmetic == "fast" and lib.type_block(weights.type) == 1
            )
            median = statistics.median(rates[0])
            ratios = [a / b for a, b in zip(*rates)] if theirs else []
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
                "limits": could,
                "blas_gflops": statistics.median(rates[1]) if theirs else None,
                "ratio": statistics.median(ratios) if theirs else None,
                "ratio_spread": spread(ratios) if theirs else None,
            }


def check(kinds, sizes):
    """Error 64 where there is no product of a type and a size."""
    for (_, _, k), kind in itertools.product(sizes, kinds):
        if kind in MIXES:
            raise Error(
                USAGE, f"--matmul: {kind} is a mix of types: name one of {', '.join(MIXES[kind])}"
            )
        if lib.type_row_bytes(numbers()[kind], k) < 0:
            raise Error(
                USAGE,
                f"--matmul: K {k} is no multiple of {lib.type_block(numbers()[kind])}, the block of"
                f" {kind}",
            )


def _product(weights, m, n, k, fast, in_huge_pages):
    """A function that computes y [m, n] once, through forward.py like a layer of a model."""
    # on a page, as weights nearly are in a file
    data = mmap.mmap(-1, lib.type_row_bytes(weights.type, k) * n)
    if in_huge_pages:
        huge_pages.ask(data)
    for piece in weights.pieces(k, n):
        data.write(piece)
    w = Matrix("product", weights.type, ffi.cast("const void *", ffi.from_buffer(data)), k, n, fast)
    draw = random.Random(1)
    x = array("f", [draw.gauss(0, 1) for _ in range(N_RANDOM)]) * -(-m * k // N_RANDOM)
    f = Forward(None, None)
    f.n_tok = m
    p = ffi.from_buffer("float[]", x)

    def work(held=(data, x)):
        f.linear(Rows(p, k), w)  # new Rows: the activations are packed anew

    return work


def _blas(threads):
    """A maker of the same by numpy, or None where numpy is not installed."""
    if importlib.util.find_spec("numpy") is None:
        return None
    for name in BLAS_THREADS:
        os.environ[name] = str(threads)
    import numpy

    def make(m, n, k):
        draw = numpy.random.default_rng(1)
        x, w = draw.standard_normal((m, k), "f4"), draw.standard_normal((n, k), "f4")
        y = numpy.empty((m, n), "f4")
        return lambda: numpy.matmul(x, w.T, out=y)

    return make


def _time(works, repetitions):
    """[[nanoseconds of one call, for each repetition] for each of `works`], one after the other,
    each after two calls that warm up.
    """
    samples = []
    for work in works:
        time.sleep(REST_S if len(works) > 1 else 0)
        work()
        n = -(-LEAST_NS // max(1, _ns(work, 1)))
        samples.append([_ns(work, n) / n for _ in range(repetitions)])
    return samples


def _ns(work, n):
    began = time.perf_counter_ns()
    for _ in range(n):
        work()
    return time.perf_counter_ns() - began
