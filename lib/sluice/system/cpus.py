"""Number of threads for this process."""

import os

from ..kernels import lib


def n_threads() -> int:
    """Return the number that csrc/runtime/cores.c chooses for the CPUs on which this process
    may run.
    """
    if hasattr(os, "sched_getaffinity"):
        cpus = list(os.sched_getaffinity(0))
    else:
        cpus = list(range(os.cpu_count() or 1))
    return lib.threads_default(b"/proc", b"/sys", cpus, len(cpus))
