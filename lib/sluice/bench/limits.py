"""The machine's limits, measured in the same run: reading, and products in registers.

Reading is measured on the bytes that a generated token reads, in file order, repeatedly, as
generation does. So it is the speed of memory for a model much larger than the caches, and the speed
of a cache for a model that fits in it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from ..kernels import lib

Spans = Sequence[tuple[Any, int]]  # (void *, n_bytes)
UNITS = {
    "fma_f32": lib.LIMIT_FMA_F32,
    "dot_int8": lib.LIMIT_DOT_INT8,
    "tile_int8": lib.LIMIT_TILE_INT8,
    "tile_bf16": lib.LIMIT_TILE_BF16,
    "fma_f32_beside_tiles": lib.LIMIT_FMA_TILES,
}
N_BEST = 5  # measurements, of which the best counts: a limit is what was reached once
MIN_SECONDS = 0.02  # of a measurement
# bytes of a measurement of reading, about 20 ms, so that waking the threads (0.05 ms) is negligible
MIN_READ_BYTES = 1 << 29


def measure(spans: Spans = ()) -> dict[str, float | None]:
    """{"read": GB/s of `spans`, if any; unit: 10^9 operations/s, None without the unit}.

    spans: [(void *, n_bytes)]. Uses the current threads and instruction set.
    """
    out: dict[str, float | None] = {"read": read(spans)} if spans else {}
    return out | {name: products(unit) for name, unit in UNITS.items()}


def read(spans: Spans) -> float:
    """Read spans repeatedly: GB/s, the best of N_BEST."""
    return _best(lambda n: _pass(spans, n), 1)


def read_once(spans: Spans) -> float:
    """GB/s of one measurement over MIN_READ_BYTES or all: the speed of memory at this moment."""
    n_pass = -(-MIN_READ_BYTES // sum(n for _, n in spans))
    start = time.perf_counter()
    n_bytes = _pass(spans, n_pass)
    return n_bytes / 1e9 / (time.perf_counter() - start)


def _pass(spans, n_pass):
    """Read all of `spans` n_pass times; returns the bytes."""
    for _ in range(n_pass):
        for p, n_bytes in spans:
            lib.limit_read(p, n_bytes)
    return n_pass * sum(n for _, n in spans)


def products(unit: int) -> float | None:
    """10^9 operations/s of a unit, the best of N_BEST; None without the unit."""
    return _best(lambda n: lib.limit_products(unit, n), 64) if lib.limit_products(unit, 1) else None


def _best(work, n):
    """10^9 operations/s of work(n), which returns their number: the best of N_BEST.

    n is doubled until a measurement takes MIN_SECONDS.
    """
    while _seconds(lambda: work(n)) < MIN_SECONDS:
        n *= 2
    best = 0.0
    for _ in range(N_BEST):
        start = time.perf_counter()
        done = work(n)
        best = max(best, done / 1e9 / (time.perf_counter() - start))
    return best


def peak(
    limits: dict[str, float | None], type: int, in_terms: bool = False
) -> tuple[str, Any] | None:
    """(name, 10^9 operations/s) of the fastest unit for products of a GGML type, or None.

    limits: from measure(). in_terms: products in bf16 terms (--arithmetic fast).
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
    start = time.perf_counter()
    work()
    return max(time.perf_counter() - start, 1e-9)
