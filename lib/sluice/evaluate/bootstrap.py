"""Intervals of figures by the bootstrap (Efron 1979): texts are drawn with replacement, n of n.

The draws are the same on every machine and in every version of numpy: they come from the raw stream
of PCG64, which numpy keeps, and a fixed seed. Two classifiers on the same texts get the same draws,
so the interval of a difference is a paired one.

The interval of a figure is that between percentiles of the resamples. Of the expected calibration
error it is the basic one, 2 * value - percentile: noise within the bins makes it larger in each
resample, as it did in the sample, and the basic interval takes that off (Davison & Hinkley 1997,
section 5.2).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .metrics import Figures

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

RESAMPLES = 1000
LEVEL = 0.95
SEED = 33
BIASED = ("ece",)  # figures with the basic interval


class Figure(NamedTuple):
    """A figure and its interval, NaN where there is none."""

    value: float
    low: float
    high: float


def counts(n: int, resamples: int = RESAMPLES) -> Iterator[np.ndarray]:
    """Yield float64 [n], how often each of n texts is in a resample."""
    random = np.random.PCG64(SEED)
    for _ in range(resamples):
        # the upper 32 bits scaled to 0..n-1; uneven by less than n / 2^32
        drawn = (random.random_raw(n) >> np.uint64(32)) * np.uint64(n) >> np.uint64(32)
        yield np.bincount(drawn.astype(np.int64), minlength=n).astype(float)


def resampled(figures: Sequence[Figures], n: int, resamples: int = RESAMPLES) -> list[np.ndarray]:
    """For each of `figures`, of the same n texts: float64 [resamples][figures]."""
    found = [np.empty((resamples, len(f.names))) for f in figures]
    for i, count in enumerate(counts(n, resamples)):
        for rows, f in zip(found, figures):
            rows[i] = f.at(count)
    return found


def interval(name: str, value: float, samples: np.ndarray, is_difference: bool = False) -> Figure:
    """The Figure of a value and its resamples, float64 [resamples]; undefined ones do not count."""
    known = samples[~np.isnan(samples)]
    if np.isnan(value) or not len(known):
        return Figure(float(value), float("nan"), float("nan"))
    low, high = np.percentile(known, [50 * (1 - LEVEL), 50 * (1 + LEVEL)])
    if name in BIASED:
        low, high = 2 * value - high, 2 * value - low
        if not is_difference:
            low, high = max(0.0, low), min(1.0, high)
    return Figure(float(value), float(low), float(high))


def whole(n: int) -> np.ndarray:
    """float64 [n]: how often each text is in the texts themselves: once."""
    return np.ones(n)
