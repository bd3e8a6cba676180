"""Other engines to compare with: llama.cpp and ik_llama.cpp.

They come from an installed llama-cpp-python or ik-llama-cpp-python and get the same file, tokens
and number of threads. Their C interface is called, because their classes copy logits. They run in a
child process: some builds crash, and then only the comparison ends.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ..faults import TRY_AGAIN, Error, unsupported_error
from . import child_process

MODULES = {"llama-cpp-python": "llama_cpp", "ik-llama-cpp-python": "ik_llama_cpp"}
NAMES = tuple(MODULES)
TYPES = {"f32": 0, "f16": 1, "q8_0": 8}
# LLAMA_FLASH_ATTN_TYPE_ENABLED: llama.cpp needs it for quantized values in the KV cache
FLASH = 1
CHUNK = 512


def check(name: str) -> None:
    """UnsupportedError: the package `name` is not installed."""
    if importlib.util.find_spec(MODULES[name]) is None:
        raise unsupported_error("--baseline", f"{name} is not installed (pip install {name})")


def make(name: str | None) -> Any:
    """The Peer `name` of NAMES, or None."""
    return name and Peer(LlamaCpp if MODULES[name] == "llama_cpp" else IkLlamaCpp, name)


def check_rows(rows: Iterable[dict]) -> None:
    """UnsupportedError: a peer failed while `rows` were measured; the other figures are valid."""
    for row in rows:
        if row.get("rival_fault"):
            raise unsupported_error("--baseline", row["rival_fault"])


class Peer:
    """Another engine, as measure.py needs one, in a child process.

    The child is forked here, before this process has threads. make: constructor of the engine.
    name: its name until it has started. error: None, or one line, after which every call returns
    None.
    """

    def __init__(self, make: Callable[..., LlamaCpp], name: str) -> None:
        self._remote, self.backend = child_process.Remote(make), name

    def start(self, *arguments: Any) -> None:
        """Make the engine: arguments of LlamaCpp."""
        self._remote.start(*arguments)
        self.backend = self._remote.call("name") or self.backend

    @property
    def error(self) -> str | None:
        what = self._remote.error
        return what and f"{self.backend}: {what}"

    def to_depth(self, n: int) -> None:
        self._remote.call("to_depth", n)

    def prompt(self, tokens: Sequence[int]) -> int | None:
        return self._remote.call("timed", tokens, True)

    def generate(self, tokens: Sequence[int]) -> int | None:
        return self._remote.call("timed", tokens, False)

    def close(self) -> None:
        """End the child process."""
        self._remote.close()


class LlamaCpp:
    """llama.cpp with a model and a KV cache of `capacity` tokens of type `kv`."""

    title = "llama.cpp"

    def __init__(self, path: str, threads: int, kv: str, capacity: int, tokens: list[int]) -> None:
        # on abort, print a message and start no debugger
        os.environ["GGML_NO_BACKTRACE"] = "1"
        self._c, self._tokens, self._depth = self._open(), tokens, 0
        self._c.llama_backend_init()
        params = self._c.llama_model_default_params()
        params.n_gpu_layers = 0
        self._model = self._c.llama_model_load_from_file(os.fsencode(path), params)
        if not self._model:
            raise unsupported_error(path, f"{self.title} does not load it")
        self._context = self._c.llama_init_from_model(
            self._model, self._params(threads, kv, capacity)
        )
        if not self._context:
            raise Error(TRY_AGAIN, f"{path}: {self.title}: out of memory for {capacity} tokens")

    def _open(self):
        """The module of its C interface, with its log turned off."""
        import llama_cpp

        # an attribute, because C has only its address
        self._quiet, self.version = (
            llama_cpp.llama_log_callback(_say_nothing),
            llama_cpp.__version__,
        )
        llama_cpp.llama_log_set(self._quiet, None)
        return llama_cpp

    def _params(self, threads, kv, capacity):
        params = self._c.llama_context_default_params()
        params.n_ctx, params.n_batch, params.n_ubatch = capacity, CHUNK, CHUNK
        params.n_threads = params.n_threads_batch = threads
        params.type_k = params.type_v = TYPES[kv]
        if kv == "q8_0":
            if hasattr(params, "flash_attn_type"):
                params.flash_attn_type = FLASH
            else:  # the name in older versions
                params.flash_attn = True
        return params

    def name(self) -> str:
        """Name and version."""
        return f"{self.title} ({self.version})"

    def to_depth(self, n: int) -> None:
        """Fill the KV cache with the first n tokens."""
        self._depth = min(n, self._depth)
        self._forget(self._depth)
        if n > self._depth:
            self._run(self._tokens[self._depth : n], self._depth)
            self._depth = n

    def _forget(self, n):
        """Truncate the KV cache to n tokens."""
        self._c.llama_memory_seq_rm(self._c.llama_get_memory(self._context), 0, n, -1)

    def _batch(self, array, position):
        return self._c.llama_batch_get_one(array, len(array))

    def _run(self, tokens, position):
        for at in range(0, len(tokens), CHUNK):
            part = tokens[at : at + CHUNK]
            array = (ctypes.c_int32 * len(part))(*part)  # kept: a batch has its address only
            status = self._c.llama_decode(self._context, self._batch(array, position + at))
            if status:
                raise Error(TRY_AGAIN, f"llama_decode returned {status}")
        self._synchronize(self._context)

    def _synchronize(self, context):
        self._c.llama_synchronize(context)

    def timed(self, tokens: Sequence[int], at_once: bool) -> int:
        """Nanoseconds for `tokens`, in one batch or one by one."""
        began = time.perf_counter_ns()
        for i, part in enumerate([tokens] if at_once else [[id] for id in tokens]):
            self._run(part, self._depth + i)
        return time.perf_counter_ns() - began


class IkLlamaCpp(LlamaCpp):
    """ik_llama.cpp, a fork of llama.cpp with its own kernels.

    Its C interface is that of llama.cpp of 2024; the package declares a part of it.
    """

    title = "ik_llama.cpp"

    def _open(self):
        import ik_llama_cpp
        from ik_llama_cpp import _ctypes_api

        self._lib, self.version = _ctypes_api._lib, ik_llama_cpp.__version__
        self._quiet = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)(
            _say_nothing
        )
        self._lib.llama_log_set(self._quiet, None)
        return _ctypes_api

    def _forget(self, n):
        self._lib.llama_kv_cache_seq_rm(ctypes.c_void_p(self._context), 0, n, -1)

    def _batch(self, array, position):
        return self._c.llama_batch(
            n_tokens=len(array), token=array, all_pos_0=position, all_pos_1=1, all_seq_id=0
        )

    def _synchronize(self, context):
        self._lib.llama_synchronize(ctypes.c_void_p(context))


def _say_nothing(level, text, data):
    pass
