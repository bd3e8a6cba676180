"""Timed runs of a model: prompts and generations at a depth, repeated, alternating with a rival's where there is one.

An engine is anything with these members; Engine is ours, rival.py has another:

    backend          what the table calls it
    to_depth(d)      a cache of the first d ids of `ids`, whatever was run before
    prompt(ids)      run them at once, to the logits after the last
    generate(ids)    run them one by one, each to its logits
"""
import os
import statistics
import time
from collections import namedtuple

from ..forward import Forward
from ..kernels import ffi, lib
from ..kvsnap import KV_TYPES
from ..model import Model
from ..scratch import Scratch
from . import limits
from .synthetic import FILE_TYPES

Test = namedtuple("Test", "n_prompt n_gen n_depth")  # one of the first two is 0
WARM_IDS = 4  # of a generation's warm-up; a prompt's is the whole prompt


class Engine:
    """A model of ours with its threads and kernels, and a cache for `capacity` ids."""

    def __init__(self, path, threads, kv, capacity):
        self.m = m = Model(path, threads)
        self.isa, self.threads, self.h, self.file = ffi.string(lib.isa_name()).decode(), lib.threads_count(), m.hparams, m.file
        self.backend = f"sluice {self.isa}"
        self._cache = Scratch(m.geometry(kv), capacity)
        self._f = Forward(self.h, self._cache)
        self._logits, self._depth = ffi.new("float[]", self.h.n_vocab), 0

    def to_depth(self, n):
        self._cache.n_tok = self._depth = min(n, self._depth)
        if n > self._depth:
            self.m.extend(self._cache, ids(self.h.n_vocab, n)[self._depth:], f=self._f)
            self._depth = n

    def prompt(self, part):
        _, x = self.m.extend(self._cache, part, f=self._f)
        self.m.head(self._f, x, self._logits)

    def generate(self, part):
        for id in part:
            self.prompt([id])

    def data(self):
        """(void *, n_bytes) of all tensors as they lie in the map."""
        tensors = list(self.file.tensors.values())
        return self.file.pointer(tensors[0]), tensors[-1].offset + tensors[-1].n_bytes - tensors[0].offset


def ids(n_vocab, n):
    """`n` ids, the same ones always; none is control."""
    return [n_vocab - 1 - i * 7919 % max(1, n_vocab - 259) for i in range(n)]


class Costs:
    """What a test of this model takes: operations (a multiplication and an addition each count) and bytes that must be read.

    Operations are those of products with weights and of attention. A prompt's head is computed for its last id alone.
    Bytes are counted for a generation: all weights but the rows of token_embd that nobody asks for, keys and values.
    """

    def __init__(self, m, kv):
        w, self.h = m.weights, m.hparams
        matrices = [x for layer in w.layers for x in vars(layer).values() if hasattr(x, "n_out")]
        self._per_id = 2 * sum(x.n_in * x.n_out for x in matrices)
        self._head = 2 * w.output.n_in * w.output.n_out
        self._weight_bytes = sum(lib.type_row_bytes(x.type, x.n_in) * x.n_out for x in [*matrices, w.output])
        self._kv_bytes = 2 * self.h.n_head_kv * lib.type_row_bytes(KV_TYPES[kv], self.h.head_dim)
        self.type = max(matrices, key=lambda x: x.n_in * x.n_out).type  # the one that the machine's limit is looked up for

    def _seen(self, pos, n):
        """Positions that the queries at pos ... pos + n - 1 see, all of them and all layers together."""
        h, total = self.h, 0
        for i in range(h.n_layer):
            is_local = h.window and i % h.pattern != h.pattern - 1
            total += sum(min(p + 1, h.window) if is_local else p + 1 for p in range(pos, pos + n))
        return total

    def operations(self, test):
        n, heads = test.n_prompt or test.n_gen, 1 if test.n_prompt else test.n_gen
        return n * self._per_id + heads * self._head + 4 * self.h.n_head * self.h.head_dim * self._seen(test.n_depth, n)

    def read_bytes(self, test):
        """Of a generation; None for a prompt, whose reading depends on how it is cut into chunks."""
        return None if test.n_prompt else test.n_gen * self._weight_bytes + self._kv_bytes * self._seen(test.n_depth, test.n_gen)


def run(path, tests, repetitions, threads, kv, make_rival=None):
    """Yield a row (see `row`) for each Test and engine: ours, and after it the rival's."""
    n_ids = max(t.n_depth + max(t.n_prompt, t.n_gen) for t in tests)
    ours = Engine(path, threads, kv, n_ids)
    costs, rival = Costs(ours.m, kv), None
    if make_rival:
        rival = make_rival(path, ours.threads, kv, n_ids, ids(ours.h.n_vocab, n_ids))
    could = limits.measure(ours.data())
    for test in sorted(tests, key=lambda t: t.n_depth):
        engines = [ours, rival] if rival else [ours]
        samples = time_test(engines, test, repetitions, ours.h.n_vocab)
        rows = [row(engine.backend, ours, test, ns, costs, could, kv) for engine, ns in zip(engines, samples)]
        if rival:
            ratio = [b / a for a, b in zip(*samples)]  # of neighbours in time, so that what disturbs both cancels
            rows[0] |= {"against": rival.backend, "ratio": statistics.median(ratio), "ratio_spread": spread(ratio)}
        yield from rows
    ours.file.check_unchanged()


def time_test(engines, test, repetitions, n_vocab):
    """[[nanoseconds of each repetition] for each engine], their repetitions alternating, each engine's first run thrown away."""
    n = test.n_prompt or test.n_gen
    part = ids(n_vocab, test.n_depth + n)[test.n_depth:]
    samples = [[] for _ in engines]
    for i in range(-1, repetitions):
        for engine, ns in zip(engines, samples):
            engine.to_depth(test.n_depth)
            began = time.perf_counter_ns()
            if test.n_prompt:
                engine.prompt(part)
            else:
                engine.generate(part if i >= 0 else part[:WARM_IDS])
            if i >= 0:
                ns.append(time.perf_counter_ns() - began)
    return samples


def spread(values):
    """Half the distance between the quartiles, 0 of a single value."""
    if len(values) < 2:
        return 0.0
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return (high - low) / 2


def row(backend, ours, test, ns, costs, could, kv):
    """One line of the table as a dict; keys are those of llama-bench's JSON where they mean the same."""
    n = test.n_prompt or test.n_gen
    ts = [1e9 * n / t for t in ns]
    median = statistics.median(ts)
    n_bytes = costs.read_bytes(test)
    gflops = costs.operations(test) / n * median / 1e9
    gbytes = n_bytes / n * median / 1e9 if n_bytes else None
    limit = ("read", could["read"]) if n_bytes else limits.peak(could, costs.type)
    return {
        **describe(ours.file), "backend": backend, "isa": ours.isa, "n_threads": ours.threads, "type_k": kv, "type_v": kv,
        "test": (f"pp{n}" if test.n_prompt else f"tg{n}") + (f" @ d{test.n_depth}" if test.n_depth else ""), **test._asdict(),
        "samples_ns": ns, "samples_ts": ts, "avg_ts": statistics.mean(ts), "stddev_ts": statistics.stdev(ts) if len(ts) > 1 else 0.0,
        "median_ts": median, "spread_ts": spread(ts), "gflops": gflops, "gbytes_per_s": gbytes,
        "limit": limit and limit[0], "of_limit": limit and (gbytes or gflops) / limit[1], "limits": could,
        "against": None, "ratio": None, "ratio_spread": None,
    }


def describe(file):
    """What a table says of a gguf.File."""
    matrices = [t for t in file.tensors.values() if len(t.shape) > 1]
    name_of = {number: name for name, number in FILE_TYPES.items()}
    largest = max(matrices, key=lambda t: sum(x.n_bytes for x in matrices if x.type == t.type))
    kind = name_of.get(file.metadata.get("general.file_type")) or ffi.string(lib.type_name(largest.type)).decode()
    return {"model": str(file.metadata.get("general.name") or os.path.basename(file.path)), "model_type": kind,
            "model_filename": file.path, "model_size": sum(t.n_bytes for t in file.tensors.values()),
            "model_n_params": sum(t.n_elements for t in file.tensors.values())}
