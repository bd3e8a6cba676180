"""Memory in pages of 2 MiB, where the kernel has them (madvise(2), MADV_HUGEPAGE)."""


def ask(memory):
    """Ask for them for `memory`, a mmap.mmap; where there are none nothing happens."""
    import mmap
    if hasattr(mmap, "MADV_HUGEPAGE"):
        try:
            memory.madvise(mmap.MADV_HUGEPAGE)
        except OSError:  # a kernel without
            pass
