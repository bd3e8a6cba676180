"""C core: `lib` has its functions, `ffi` its types. csrc/api declares both."""

try:
    from ._kernels import ffi, lib
except ImportError as e:
    from . import faults, messages

    is_absent = isinstance(e, ModuleNotFoundError)  # else it exists but cannot be mapped
    messages.say(f"the kernels cannot be loaded{': run make' if is_absent else ''} ({e})")
    # not 1, which means no
    raise SystemExit(faults.OUR_BUG if is_absent else faults.TRY_AGAIN) from None

__all__ = ["ffi", "lib"]
