"""The C core: `lib` its functions, `ffi` its types (csrc/kernels.h is the declaration of both)."""
try:
    from ._kernels import ffi, lib
except ImportError as e:
    from .faults import OUR_BUG, Fault
    raise SystemExit(f"sluice: the kernels are not built: run make ({e})") from None

__all__ = ["ffi", "lib"]
