"""llama.cpp through an installed llama-cpp-python: the same file, the same ids, the same number of threads.

Its C interface is called, not its class Llama, which copies logits into arrays of its own.
"""
import ctypes
import importlib.util
import os

from ..faults import TRY_AGAIN, Fault, unsupported

NAMES = ("llama-cpp-python",)
TYPES = {"f32": 0, "f16": 1, "q8_0": 8}
CHUNK = 512


def check(name):
    """Fault 69 where the package `name` is not installed."""
    if importlib.util.find_spec("llama_cpp") is None:
        raise unsupported("--against", f"{name} is not installed beside sluice (pip install {name})")


class LlamaCpp:
    """An engine as measure.py wants one."""

    def __init__(self, path, threads, kv, capacity, ids):
        import llama_cpp
        self._c, self._ids, self._depth = llama_cpp, ids, 0
        self.backend = f"llama.cpp ({llama_cpp.__version__})"
        self._quiet = llama_cpp.llama_log_callback(lambda level, text, data: None)  # kept: C keeps only its address
        llama_cpp.llama_log_set(self._quiet, None)
        llama_cpp.llama_backend_init()
        params = llama_cpp.llama_model_default_params()
        params.n_gpu_layers = 0
        self._model = llama_cpp.llama_model_load_from_file(os.fsencode(path), params)
        if not self._model:
            raise unsupported(path, "llama.cpp does not load it")
        params = llama_cpp.llama_context_default_params()
        params.n_ctx, params.n_batch, params.n_ubatch = capacity, CHUNK, CHUNK
        params.n_threads = params.n_threads_batch = threads
        params.type_k = params.type_v = TYPES[kv]
        self._context = llama_cpp.llama_init_from_model(self._model, params)
        if not self._context:
            raise Fault(TRY_AGAIN, f"{path}: llama.cpp has no memory for {capacity} ids")
        self._memory = llama_cpp.llama_get_memory(self._context)

    def to_depth(self, n):
        self._depth = min(n, self._depth)
        self._c.llama_memory_seq_rm(self._memory, 0, self._depth, -1)
        if n > self._depth:
            self._run(self._ids[self._depth:n])
            self._depth = n

    def _run(self, ids):
        for at in range(0, len(ids), CHUNK):
            part = ids[at:at + CHUNK]
            array = (ctypes.c_int32 * len(part))(*part)
            status = self._c.llama_decode(self._context, self._c.llama_batch_get_one(array, len(part)))
            if status:
                raise Fault(TRY_AGAIN, f"llama.cpp: llama_decode returned {status}")
        self._c.llama_synchronize(self._context)

    prompt = _run

    def generate(self, ids):
        for id in ids:
            self._run([id])

    def __del__(self):
        if getattr(self, "_context", None):
            self._c.llama_free(self._context)
        if getattr(self, "_model", None):
            self._c.llama_model_free(self._model)
