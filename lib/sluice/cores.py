"""How many threads suit this process."""
import os

from .kernels import lib


def n_threads():
    """The number of threads that csrc/cores.c chooses for the CPUs on which this process may run."""
    cpus = list(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))
    return lib.threads_default(b"/proc", b"/sys", cpus, len(cpus))
