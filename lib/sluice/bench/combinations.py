"""Rows of every combination: of models or products, instruction sets and numbers of threads."""

import itertools
import os

from . import apart as processes
from . import measure, rival


def of_model(path, vocab, tests, repetitions, kv, against, starts, arithmetic, huge_pages=False):
    """A function of a number of threads (None: the default) that yields the rows of the model at
    `path`; see measure.run.
    """
    return lambda n_threads: measure.run(
        path,
        tests,
        repetitions,
        n_threads,
        kv,
        rival.make(against),
        starts,
        arithmetic,
        vocab,
        huge_pages,
    )


def rows(makes, isas, threads, apart=False):
    """Yield the rows of each of `makes` (functions of a number of threads) with each set of `isas`
    (None: $SLUICE_ISA, else the best) and number of `threads`; where the numbers are several, or
    `apart`, each combination in a process of its own.
    """
    for make, isa, n_threads in itertools.product(makes, isas, threads):
        if isa:
            os.environ["SLUICE_ISA"] = isa
        of = lambda: make(n_threads)
        yield from processes.rows(of) if len(threads) > 1 or apart else of()
