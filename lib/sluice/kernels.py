"""The C core: `lib` its functions, `ffi` its types (csrc/kernels.h is the declaration of both)."""
try:
    from ._kernels import ffi, lib
except ImportError as e:
    from . import cli, faults
    cli.say(f"the kernels cannot be loaded: run make ({e})")
    raise SystemExit(faults.OUR_BUG) from None  # not 1, which says no

__all__ = ["ffi", "lib"]
