"""What this machine could do, measured in the same run: bytes read from memory, and products that stay in registers."""
import time

from ..kernels import lib

UNITS = {"fma_f32": lib.LIMIT_FMA_F32, "dot_int8": lib.LIMIT_DOT_INT8, "tile_int8": lib.LIMIT_TILE_INT8,
         "tile_bf16": lib.LIMIT_TILE_BF16, "fma_f32_beside_tiles": lib.LIMIT_FMA_TILES}
N_BEST = 5            # the best of so many: a limit is what was reached once
LEAST_SECONDS = 0.02  # of a measurement
LEAST_READ = 1 << 26  # bytes, some milliseconds


def measure(data=None):
    """Dict: "read" GB/s of the buffer `data` (void *, n_bytes), if there is one, and operations in 10^9 a second of each
    unit, None where it is absent; with the threads and the instruction set that are chosen."""
    out = {"read": read(*data)} if data else {}
    return out | {name: products(unit) for name, unit in UNITS.items()}


def read(p, n_bytes):
    def work(n):
        for _ in range(n):
            lib.limit_read(p, n_bytes)
        return n * n_bytes
    return _best(work, 1)


def read_once(p, n_bytes):
    """The same once, over LEAST_READ bytes or all: what memory gives at this moment."""
    n_pass = -(-LEAST_READ // n_bytes)
    began = time.perf_counter()
    for _ in range(n_pass):
        lib.limit_read(p, n_bytes)
    return n_pass * n_bytes / 1e9 / (time.perf_counter() - began)


def products(unit):
    return _best(lambda n: lib.limit_products(unit, n), 64) if lib.limit_products(unit, 1) else None


def _best(work, n):
    """work(n) returns how much it did: 10^9 of that a second, the best of N_BEST with an n that takes long enough."""
    while _seconds(lambda: work(n)) < LEAST_SECONDS:
        n *= 2
    best = 0.0
    for _ in range(N_BEST):
        began = time.perf_counter()
        done = work(n)
        best = max(best, done / 1e9 / (time.perf_counter() - began))
    return best


def peak(limits, type, in_terms=False):
    """(name, 10^9 operations a second) of the fastest unit here that products of this GGML type could use, exact or in_terms of bf16; or None."""
    units = ("tile_bf16",) if in_terms else ("tile_int8", "dot_int8") if lib.type_block(type) > 1 else ("fma_f32",)
    return next(((u, limits[u]) for u in units if limits[u]), None)


def _seconds(work):
    began = time.perf_counter()
    work()
    return max(time.perf_counter() - began, 1e-9)
