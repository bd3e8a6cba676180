"""The compiled C core, as cffi makes it: csrc/kernels.h declares both."""

from typing import Any

ffi: Any
lib: Any
