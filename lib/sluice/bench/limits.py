"""What this machine could do, measured in the same run: bytes read from memory, and products that
stay in registers.

Reading is of the bytes that a generated id reads, where they lie and in the order of the file,
again and again, as generation does it. So it is that of memory for a model that is much larger than
the processor's caches, and that of a cache for one that fits in it: there both come from the cache,
and a share of memory's speed would flatter.
"""

import time

from ..kernels import lib

UNITS = {
    "fma_f32": lib.LIMIT_FMA_F32,
    "dot_int8": lib.LIMIT_DOT_INT8,
    "tile_int8": lib.LIMIT_TILE_INT8,
    "tile_bf16": lib.LIMIT_TILE_BF16,
    "fma_f32_beside_tiles": lib.LIMIT_FMA_TILES,
}
N_BEST = 5  # the best of so many: a limit is what was reached once
LEAST_SECONDS = 0.02  # of a measurement
# bytes of a measurement of reading, some 20 ms: waking the threads, 0.05 ms, must not count
LEAST_READ = 1 << 29


def measure(spans=()):
    """Dict: "read" GB/s of `spans` [(void *, n_bytes)], if there are any, and operations in 10^9 a
    second of each unit, None where it is absent; with the threads and the instruction set that are
    chosen.
    """
    out = {"read": read(spans)} if spans else {}
    return out | {name: products(unit) for name, unit in UNITS.items()}


def read(spans):
    """GB/s, the best of N_BEST."""
    return _best(lambda n: _pass(spans, n), 1)


def read_once(spans):
    """The same once, over LEAST_READ bytes or all: what memory gives at this moment."""
    n_pass = -(-LEAST_READ // sum(n for _, n in spans))
    began = time.perf_counter()
    n_bytes = _pass(spans, n_pass)
    return n_bytes / 1e9 / (time.perf_counter() - began)


def _pass(spans, n_pass):
    """Read all of `spans` n_pass times; returns the bytes."""
    for _ in range(n_pass):
        for p, n_bytes in spans:
            lib.limit_read(p, n_bytes)
    return n_pass * sum(n for _, n in spans)


def products(unit):
    return _best(lambda n: lib.limit_products(unit, n), 64) if lib.limit_products(unit, 1) else None


def _best(work, n):
    """work(n) returns how much it did: 10^9 of that a second, the best of N_BEST with an n that
    takes long enough.
    """
    while _seconds(lambda: work(n)) < LEAST_SECONDS:
        n *= 2
    best = 0.0
    for _ in range(N_BEST):
        began = time.perf_counter()
        done = work(n)
        best = max(best, done / 1e9 / (time.perf_counter() - began))
    return best


def peak(limits, type, in_terms=False):
    """(name, 10^9 operations a second) of the fastest unit here that products of this GGML type
    could use, exact or in_terms of bf16; or None.
    """
    units = (
        ("tile_bf16",)
        if in_terms
        else ("tile_int8", "dot_int8")
        if lib.type_block(type) > 1
        else ("fma_f32",)
    )
    return next(((u, limits[u]) for u in units if limits[u]), None)


def _seconds(work):
    began = time.perf_counter()
    work()
    return max(time.perf_counter() - began, 1e-9)
