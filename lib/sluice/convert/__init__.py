"""What gguf-convert does: a module for each format that is read, and the writers. Only this tool
imports it; numpy comes with it.
"""

from ..faults import unsupported_error

try:
    import numpy  # noqa: F401
except ModuleNotFoundError:
    raise unsupported_error("numpy", "is not installed beside sluice (pip install numpy)") from None
