"""Rows of all combinations of models or products, instruction sets and numbers of threads."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Sequence

from . import child_process, measure, peer


def of_model(
    path: str,
    vocab: str | None,
    tests: Sequence[measure.Test],
    repetitions: int,
    kv: str,
    baseline: str | None,
    starts: Sequence[int],
    arithmetic: str,
    huge_pages: bool = False,
) -> Callable[[int | None], Iterator[dict]]:
    """A function of a number of threads (None: the default) that yields the rows of a model.

    baseline: one of peer.NAMES, or None. The others are arguments of measure.run.
    """
    return lambda n_threads: measure.run(
        path,
        tests,
        repetitions,
        n_threads,
        kv,
        peer.make(baseline),
        starts,
        arithmetic,
        vocab,
        huge_pages,
    )


def rows(
    makes: Iterable[Callable[[int | None], Iterable[dict]]],
    isas: Iterable[str | None],
    threads: Sequence[int | None],
    separate: bool = False,
) -> Iterator[dict]:
    """Yield the rows of all combinations.

    makes: functions of a number of threads. isas: instruction sets; None is $SLUICE_ISA, else the
    best. With several numbers of threads, or `separate`, each combination has its own process.
    """
    for make, isa, n_threads in itertools.product(makes, isas, threads):
        if isa:
            os.environ["SLUICE_ISA"] = isa
        of = lambda: make(n_threads)
        yield from child_process.rows(of) if len(threads) > 1 or separate else of()
