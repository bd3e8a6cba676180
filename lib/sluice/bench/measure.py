"""Time a model: prompts and generations at a depth, alternating with another engine if any.

An engine has these members; Engine is that of sluice, peer.Peer another:

    backend             name in the table
    error               None, or one line: why it cannot run any more
    to_depth(d)         fill the KV cache with the first d tokens of tokens()
    prompt(tokens)      process them in one batch, up to the last logits; return nanoseconds
    generate(tokens)    process them one by one, each up to its logits; return nanoseconds
"""

from __future__ import annotations

import os
import statistics
import time
from collections import namedtuple
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ..kernels import ffi, lib
from ..kvcache.format import KV_TYPES
from ..kvcache.scratch import Scratch
from ..model.forward import Forward
from ..model.model import Model
from ..system import memory
from . import limits, start
from .synthetic import FILE_TYPES

Test = namedtuple("Test", "n_prompt n_gen n_depth")  # one of the first two is 0
WARM_TOKENS = 4  # of a generation's warm-up; a prompt's warm-up is the whole prompt
# between engines: threads of OpenMP and OpenBLAS keep their processors for up to 0.2 s after their
# work, and would slow down the next engine
REST_S = 0.3


class Engine:
    """A model of sluice, its threads and kernels, and a KV cache of `capacity` tokens."""

    error: str | None = None

    def __init__(
        self,
        path: str,
        threads: int | None,
        kv: str,
        capacity: int,
        arithmetic: str = "exact",
        vocab: str | None = None,
        huge_pages: bool = False,
    ) -> None:
        self.m, self.arithmetic = Model(path, threads, arithmetic, vocab, huge_pages), arithmetic
        self.vocab = vocab
        m = self.m
        self.isa, self.threads, self.h, self.file = (
            ffi.string(lib.isa_name()).decode(),
            lib.threads_count(),
            m.hparams,
            m.file,
        )
        self.backend = f"sluice {self.isa}" + (" fast" if arithmetic == "fast" else "")
        self._cache = Scratch(m.geometry(kv), capacity)
        self._logits, self._depth = ffi.new("float[]", self.h.n_vocab), 0
        self.forget()

    def forget(self) -> None:
        """Free the activations; the KV cache stays."""
        self._f = Forward(self.h, self._cache)

    def to_depth(self, n: int) -> None:
        """Fill the KV cache with the first n tokens."""
        self._depth = self._cache.cut(min(n, self._depth))
        if n > self._depth:
            self.m.extend(self._cache, tokens(self.h.n_vocab, n)[self._depth :], f=self._f)
            self._depth = n
            self._cache.keep_states()

    def prompt(self, part: Sequence[int]) -> int | None:
        """Nanoseconds for tokens in one batch."""
        return self._timed([part])

    def generate(self, part: Sequence[int]) -> int | None:
        """Nanoseconds for tokens one by one."""
        return self._timed([[id] for id in part])

    def _timed(self, parts):
        began = time.perf_counter_ns()
        for part in parts:
            _, x = self.m.extend(self._cache, part, f=self._f)
            self.m.head(self._f, x, self._logits)
        return time.perf_counter_ns() - began

    def spans(self) -> list[tuple[Any, int]]:
        """[(const uint8_t *, n_bytes)] of the tensors that a generated token reads, in file order.

        Neighbours are one span. All tensors but those of unread().
        """
        out: list[tuple[Any, int]] = []
        skipped = unread(self.h, self.file.tensors)
        for t in self.file.tensors.values():
            if t.name in skipped:
                continue
            p = self.file.pointer(t)
            gap = p - (out[-1][0] + out[-1][1]) if out else -1
            if 0 <= gap < self.file.alignment:
                out[-1] = out[-1][0], out[-1][1] + gap + t.n_bytes
            else:
                out.append((p, t.n_bytes))
        return out


def tokens(n_vocab: int, n: int) -> list[int]:
    """`n` fixed tokens; none is a control token."""
    return [n_vocab - 1 - i * 7919 % max(1, n_vocab - 259) for i in range(n)]


# products that every token needs in the last block that keeps something of it: keys and values, and
# what changes a state
OF_ALL_TOKENS = "attn_k", "attn_v", "attn_qkv", "ssm_alpha", "ssm_beta", "shortconv_in_proj"
# of a block that uses those of an earlier one
UNUSED = "attn_k", "attn_v", "attn_k_norm"


def tables(h: Any) -> list[str]:
    """Attributes of Weights of which a token reads its row: embeddings beside token_embd."""
    return [name for name, sizes in h.architecture.globals.items() if sizes[-1] == "n_vocab"]


def unread(h: Any, names: Mapping[str, Any]) -> set[str]:
    """Of the tensors `names` of a file, those that a generated token does not read, or only rows of
    them.
    """
    out = {f"{name}.weight" for name in tables(h)}
    if "output.weight" in names:
        out.add("token_embd.weight")
    for i in range(h.n_layer):
        if h.shares(i):
            out.update(f"blk.{i}.{name}.weight" for name in UNUSED)
    for i in range(h.n_layer, h.n_layer + h.n_unused):
        out.update(name for name in names if name.startswith(f"blk.{i}."))
    return out


class Costs:
    """Operations and bytes of a test. A multiplication and an addition are one operation each.

    Operations are those of products with weights, of attention and of delta nets, as far as the
    result needs them: the head and the blocks after the last one that keeps keys, values or a state
    are for the last token of a prompt only; so is that block, but for what it keeps. Bytes are
    counted for a generation: all weights but embeddings that are read by rows; keys, values and
    states.
    """

    def __init__(self, m: Model, kv: str) -> None:
        w, h = m.weights, m.hparams
        self.h = h
        shared = [getattr(w, name) for name in h.architecture.globals if name not in tables(h)]
        blocks = [
            [
                (name, x)
                for name, x in vars(layer).items()
                if hasattr(x, "n_out") and not (h.shares(i) and name in UNUSED)
            ]
            for i, layer in enumerate(w.layers)
        ]
        matrices = [x for x in shared if hasattr(x, "n_out")]
        matrices += [x for block in blocks for _, x in block]
        self._per_token = sum(map(_operations, matrices)) + sum(
            _delta_operations(h.block(i)) for i in range(h.n_layer)
        )
        self._once = sum(
            _operations(x)
            for i in range(h.last_stored, h.n_layer)
            for name, x in blocks[i]
            if i > h.last_stored or name not in OF_ALL_TOKENS
        )
        self._head = _operations(w.output)
        self._weight_bytes = sum(
            lib.type_row_bytes(x.type, x.n_in) * x.n_out for x in [*matrices, w.output]
        )
        self._kv_type = KV_TYPES[kv]
        largest = max((x for _, x in sum(blocks, [])), key=_operations)
        # the type whose limit applies
        self.type, self.in_terms = largest.type, largest.in_terms

    def _seen(self, pos, n, n_last):
        """Yield (block, positions that the queries at pos ... pos + n - 1 attend to in it).

        From the last block that keeps something on, only the last n_last queries count.
        """
        h = self.h
        for i in range(h.n_layer):
            if h.kv_layers[i] < 0:
                continue
            window, begin = h.window_of(i), pos + n - n_last if i >= h.last_stored else pos
            yield (
                h.block(i),
                sum(min(p + 1, window) if window else p + 1 for p in range(begin, pos + n)),
            )

    def _kv_bytes(self, block):
        """Bytes of the keys and values of a position."""
        return 2 * block.n_head_kv * lib.type_row_bytes(self._kv_type, block.head_dim)

    def operations(self, test: Test) -> int:
        """Operations of all tokens of a test."""
        n, n_last = test.n_prompt or test.n_gen, 1 if test.n_prompt else test.n_gen
        products = n * (self._per_token - self._once) + n_last * (self._once + self._head)
        return products + sum(
            4 * block.n_head * block.head_dim * n_seen
            for block, n_seen in self._seen(test.n_depth, n, n_last)
        )

    def read_bytes(self, test: Test) -> int | None:
        """Bytes that a generation reads; None for a prompt, where they depend on the chunks."""
        return (
            None
            if test.n_prompt
            else test.n_gen * (self._weight_bytes + 4 * self.h.n_state * self.h.state_floats)
            + sum(
                self._kv_bytes(block) * n_seen
                for block, n_seen in self._seen(test.n_depth, test.n_gen, test.n_gen)
            )
        )


def _operations(x):
    """Operations of the product of a matrix and a token."""
    return 2 * x.n_in * x.n_out


def _delta_operations(block):
    """Operations of a token in a delta net, if the block is one: for each element of its matrices a
    decay, two products and a change.
    """
    return 7 * getattr(block, "n_value", 0) * getattr(block, "d_delta", 0)


def run(
    path: str,
    tests: Sequence[Test],
    repetitions: int,
    threads: int | None,
    kv: str,
    peer: Any = None,
    starts: Sequence[int] = (),
    arithmetic: str = "exact",
    vocab: str | None = None,
    huge_pages: bool = False,
) -> Iterator[dict]:
    """Yield a row (see row()) for each Test and engine: sluice, then `peer` if there is one.

    Then a row for each of `starts`, prompt sizes for whole processes (see start.py). peer: a
    peer.Peer that was not started, or None.
    """
    n_tokens = max((t.n_depth + max(t.n_prompt, t.n_gen) for t in tests), default=1)
    ours = Engine(path, threads, kv, n_tokens, arithmetic, vocab, huge_pages)
    costs, machine = Costs(ours.m, kv), limits.measure(ours.spans())
    if peer:
        peer.start(
            ours.file.parts[0].path, ours.threads, kv, n_tokens, tokens(ours.h.n_vocab, n_tokens)
        )
    for test in sorted(tests, key=lambda t: t.n_depth):
        ours.forget()
        memory.begin()
        read = (lambda: limits.read_once(ours.spans())) if test.n_gen else None
        samples, reads = time_test(
            [ours, peer] if peer else [ours], test, repetitions, ours.h.n_vocab, read
        )
        first = row(ours.backend, ours, test, samples[0], costs, machine, kv, reads) | {
            "memory": memory.peak()
        }
        if peer and peer.error:
            yield first | {"rival_fault": peer.error}
        elif peer:
            # ratios of runs next to each other, so that common disturbances cancel
            ratio = [b / a for a, b in zip(*samples)]
            yield first | {
                "against": peer.backend,
                "ratio": statistics.median(ratio),
                "ratio_spread": spread(ratio),
            }
            yield row(peer.backend, ours, test, samples[1], costs, machine, kv, reads)
        else:
            yield first
    for n in starts:
        ns = start.times(ours, tokens(ours.h.n_vocab, n), repetitions, kv)
        yield row(ours.backend, ours, Test(n, 0, 0), ns, costs, machine, kv) | {"test": f"start{n}"}
    ours.file.check_unchanged()


def time_test(
    engines: Sequence[Any],
    test: Test,
    repetitions: int,
    n_vocab: int,
    limit: Callable[[], float] | None = None,
) -> tuple[list[list[int]], list[float]]:
    """([[nanoseconds of each repetition] for each engine], [limit of each repetition]).

    Engines alternate, with a rest before each run if there are several. The first run of each does
    not count. An engine with an error has fewer. limit(): the machine's limit at that moment; that
    of a repetition is the mean of before and after, because the speed of memory varies on shared
    machines. Without it the second list is empty.
    """
    n = test.n_prompt or test.n_gen
    part = tokens(n_vocab, test.n_depth + n)[test.n_depth :]
    samples, machine = [[] for _ in engines], []
    for i in range(-1, repetitions):
        for engine, taken in zip(engines, samples):
            engine.to_depth(test.n_depth)
            time.sleep(REST_S if len(engines) > 1 else 0)
            ns = (
                engine.prompt(part)
                if test.n_prompt
                else engine.generate(part if i >= 0 else part[:WARM_TOKENS])
            )
            if i >= 0 and not engine.error:
                taken.append(ns)
        if limit:
            machine.append(limit())
    return samples, [(before + after) / 2 for before, after in zip(machine, machine[1:])]


def spread(values: Sequence[float]) -> float:
    """Half the interquartile range, 0 for a single value."""
    if len(values) < 2:
        return 0.0
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return (high - low) / 2


def row(
    backend: str,
    ours: Engine,
    test: Test,
    ns: Sequence[int],
    costs: Costs,
    machine: dict[str, float | None],
    kv: str,
    reads: Sequence[float] = (),
) -> dict:
    """One line of the table. Keys are those of llama-bench's JSON if they mean the same.

    ns: nanoseconds of each run. machine: limits.measure(). reads: GB/s of memory at each run; the
    share "of_limit" of a generation is the median of its shares of them.
    """
    n = test.n_prompt or test.n_gen
    ts = [1e9 * n / t for t in ns]
    median = statistics.median(ts)
    n_bytes = costs.read_bytes(test)
    gflops = costs.operations(test) / n * median / 1e9
    gbytes = n_bytes / n * median / 1e9 if n_bytes else None
    limit = (
        ("read", machine["read"]) if n_bytes else limits.peak(machine, costs.type, costs.in_terms)
    )
    share = limit and (gbytes or gflops) / limit[1]
    if n_bytes and reads:
        share = statistics.median(n_bytes / t / read for t, read in zip(ns, reads))
    return {
        **describe(ours.file),
        "backend": backend,
        "isa": ours.isa,
        "n_threads": ours.threads,
        "type_k": kv,
        "type_v": kv,
        "test": (f"pp{n}" if test.n_prompt else f"tg{n}")
        + (f" @ d{test.n_depth}" if test.n_depth else ""),
        **test._asdict(),
        "samples_ns": ns,
        "samples_ts": ts,
        "avg_ts": statistics.mean(ts),
        "stddev_ts": statistics.stdev(ts) if len(ts) > 1 else 0.0,
        "median_ts": median,
        "spread_ts": spread(ts),
        "gflops": gflops,
        "gbytes_per_s": gbytes,
        "limit": limit and limit[0],
        "of_limit": share,
        "limits": machine,
        "samples_read": list(reads),
        "against": None,
        "ratio": None,
        "ratio_spread": None,
        "rival_fault": None,
        "memory": None,
    }


def describe(file: Any) -> dict:
    """The fields of a row that describe a gguf.File."""
    matrices = [t for t in file.tensors.values() if len(t.shape) > 1]
    name_of = {number: name for name, number in FILE_TYPES.items()}
    largest = max(matrices, key=lambda t: sum(x.n_bytes for x in matrices if x.type == t.type))
    kind = (
        name_of.get(file.metadata.get("general.file_type"))
        or ffi.string(lib.type_name(largest.type)).decode()
    )
    return {
        "model": str(file.metadata.get("general.name") or os.path.basename(file.path)),
        "model_type": kind,
        "model_filename": file.path,
        "model_size": sum(t.n_bytes for t in file.tensors.values()),
        "model_n_params": sum(t.n_elements for t in file.tensors.values()),
    }
