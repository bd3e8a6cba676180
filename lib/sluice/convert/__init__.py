"""Model conversion for gguf-convert: readers of other formats, and writers. Requires numpy."""

from ..faults import unsupported_error

try:
    import numpy  # noqa: F401
except ModuleNotFoundError:
    raise unsupported_error("numpy", "is not installed; pip install numpy") from None
