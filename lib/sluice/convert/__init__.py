"""What gguf-convert does: a module for each format that is read, and the writers. Only this tool
imports it; numpy comes with it.
"""

from ..faults import unsupported

try:
    import numpy  # noqa: F401
except ModuleNotFoundError:
    raise unsupported("numpy", "is not installed beside sluice (pip install numpy)") from None
