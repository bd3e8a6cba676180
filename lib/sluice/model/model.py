"""Model: runs the layers of an architecture over tokens, chunk by chunk."""

from __future__ import annotations

import os
from array import array

from ..faults import UNSUPPORTED, USAGE, Error, data_error, unsupported_error
from ..gguf.model_file import open_model
from ..kernels import ffi, lib
from ..kvcache.format import KV_TYPES, misfit
from ..kvcache.snapshot import Geometry, Snapshot
from ..system import cpus
from .forward import Forward, Rows
from .hparams import Hparams
from .weights import Weights

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from .interfaces import Cache


ARITHMETIC = "exact-2"  # name in snapshots of the arithmetic that csrc/kernels/reference.c defines
# "fast-2": products as csrc/kernels/reference_fast.c defines them
ARITHMETICS = {"exact": ARITHMETIC, "fast": "fast-2"}
CHUNK = 512  # tokens that prefill processes at once
# for a model of at most SMALL_MODEL bytes: its weights stay in the processor's cache, and so do the
# activations of this many tokens
SMALL_CHUNK = 128
SMALL_MODEL = 1 << 25
# floats of a chunk's widest activation: a wide model gets shorter chunks, not more memory
MAX_ACTIVATIONS = 1 << 26


class Model:
    """A gguf.File with checked hyperparameters and weights, and the threads and kernels it runs
    on.

    threads: number of threads; None: as csrc/runtime/cores.c decides. arithmetic: "exact" or
    "fast"; the attribute has the name in snapshots. vocab: the tokenizer.bin of a llama2.c
    checkpoint. huge_pages: see gguf.File.

    The environment variable SLUICE_ISA names an instruction set (one of lib.isa_known); the
    default is the best. Neither instruction set nor threads change a bit of a result.
    """

    def __init__(
        self,
        path: str,
        threads: int | None = None,
        arithmetic: str = "exact",
        vocab: str | None = None,
        huge_pages: bool = False,
    ) -> None:
        start(threads, arithmetic)
        self.arithmetic = ARITHMETICS[arithmetic]
        self.file = open_model(path, vocab, huge_pages)
        self.hparams = h = Hparams(self.file)
        self.weights = Weights(self.file, h, arithmetic == "fast")
        self.ropes = {
            "global": (h.rope.frequencies(h.n_rot // 2, self.weights.rope_divisors), h.rope.scale)
        }
        if h.rope_local:
            self.ropes["local"] = (
                h.rope_local.frequencies(h.n_rot_local // 2, ffi.NULL),
                h.rope_local.scale,
            )

    def forward(self, f: Forward, tokens: list[int], pos: int, n_last: int = 1) -> Rows:
        """Return the hidden states after the last `n_last` of `tokens`, Rows [n_last,
        n_embd].

        tokens: list, at positions pos ...; K and V of all of them enter the cache of `f` (a
        Forward).
        """
        f.start(tokens, pos, self.ropes, n_last)
        f.cache.begin_pass(pos)
        x = self.layers(f)
        f.cache.end_pass(pos + len(tokens))
        return x

    def layers(self, f: Forward) -> Rows:
        """Return the hidden states of the chunk that `f` has begun: all blocks, the last norm."""
        return f.run(
            self,
            lambda: f.rmsnorm(
                self.hparams.architecture.layers(self, f), self.weights.output_norm, "output_norm"
            ),
        )

    def head(self, f: Forward, x: Rows, logits: Any, tokens: Any = None) -> None:
        """Compute logits (float *) [n_vocab] of the hidden state `x`, or only those of
        `tokens` (an int32_t[]), in its order.

        DataError if a logit is not finite: a damaged file must not give an answer.
        """
        y = self._logits(f, x, tokens)
        ffi.memmove(logits, y.p, 4 * y.n)

    def head_rows(self, f: Forward, x: Rows, begin: int, n: int) -> Rows:
        """Return logits, Rows [n, n_vocab], of the hidden states `x` from row `begin` on.

        They are in a buffer of the Forward, valid until its next product. Each row has the
        bits of `head`. DataError if a logit is not finite.
        """
        return self._logits(f, f.part(x, begin, n))

    def _logits(self, f, x, tokens=None):
        y = f.linear(x, self.weights.output, tokens)
        if self.hparams.logit_scale != 1.0:
            f.scale(y, 1.0 / self.hparams.logit_scale)
        if self.hparams.final_cap:
            f.soft_cap(y, self.hparams.final_cap)
        at = lib.first_nonfinite(y.p, f.n_tok * y.n)
        if at >= 0:
            raise self.file.data_error(
                f"logit {at % y.n} is not finite: damaged weights or cache, or activations beyond"
                " f32"
            )
        return y

    def geometry(self, kv_type: str | None) -> Geometry:
        """Return the Geometry of snapshots with a cache of `kv_type` (a name of KV_TYPES,
        or None: any).
        """
        h = self.hparams
        blocks = [h.block(h.kv_layers.index(i)) for i in range(h.n_kv)]
        widths = [(block.n_head_kv, block.head_dim) for block in blocks]
        geometry = Geometry(
            h.n_kv,
            *widths[0],
            KV_TYPES.get(kv_type or ""),
            h.n_vocab,
            tuple(widths) if len(set(widths)) > 1 or h.n_state else (),
            (h.n_state, h.state_floats) if h.n_state else (),
        )
        if kv_type and misfit(geometry):
            raise unsupported_error(
                self.file.path,
                f"heads of {min(dim for _, dim in widths)} are not whole blocks of {kv_type};"
                " use f16 or f32",
            )
        return geometry

    def open_snapshot(self, path: str, kv_type: str | None = None) -> Snapshot:
        """Open the snapshot at `path`. DataError unless it is of this model, this
        arithmetic, and `kv_type` (None: any).
        """
        cache = Snapshot.open(
            path, self.file.id, self.arithmetic, self.geometry(kv_type), self.file.path
        )
        at = lib.first_nonfinite(cache.logits, self.hparams.n_vocab)
        if at >= 0:
            raise data_error(path, f"logits: that of token {at} is not finite")
        for i in range(self.hparams.n_state):
            at = lib.first_nonfinite(cache.state(i), self.hparams.state_floats)
            if at >= 0:
                raise data_error(path, f"state {i}: element {at} is not finite")
        return cache

    def run(
        self,
        cache: Cache,
        tokens: list[int],
        n_last: int,
        chunk: int = CHUNK,
        f: Forward | None = None,
    ) -> Iterator[tuple[Forward, Rows, int]]:
        """Run `tokens` (a list, not empty) after those in `cache`, chunk by chunk.

        cache: a Snapshot or Scratch with enough capacity. Yields (Forward, x, n) after each
        chunk. x, Rows [n, n_embd], has the hidden states of the chunk's tokens that are
        among the last `n_last` of all; if there are none, n is 0 and x still has a row. The
        cache then has the chunk's tokens and rows.
        """
        f = f or Forward(self.hparams, cache)
        chunk = self.chunk_for(chunk)
        chunk = -(-len(tokens) // -(-len(tokens) // chunk))  # as many chunks, but alike
        for at in range(0, len(tokens), chunk):
            part, n_tok = tokens[at : at + chunk], cache.n_tok
            n = max(0, min(len(part), n_last - (len(tokens) - at - len(part))))
            cache.reserve(n_tok + len(part))
            x = self.forward(f, part, n_tok, max(1, n))
            cache.tokens[n_tok : n_tok + len(part)] = array("i", part)
            cache.n_tok = n_tok + len(part)
            yield f, x, n

    def chunk_for(self, chunk: int) -> int:
        """How many tokens go through the layers at once, at most `chunk`."""
        h = self.hparams
        if self.file.size <= SMALL_MODEL:
            chunk = min(chunk, SMALL_CHUNK)
        widest = max(h.n_embd, h.n_ff, h.n_head * h.head_dim, h.n_ple * h.n_layer)
        return max(1, min(chunk, MAX_ACTIVATIONS // widest))

    def extend(
        self, cache: Cache, tokens: list[int], chunk: int = CHUNK, f: Forward | None = None
    ) -> tuple[Forward, Rows]:
        """Run all chunks. Return (Forward, hidden state after the last of `tokens`)."""
        f = f or Forward(self.hparams, cache)
        for _, x, _ in self.run(cache, tokens, 1, chunk, f):
            pass
        return f, x

    def fill(
        self, cache: Cache, base: Snapshot | None, tokens: list[int], chunk: int = CHUNK
    ) -> None:
        """Fill `cache`, an empty one, with the contents of `base` (a Snapshot, or None),
        then `tokens`, and the logits after the last token.
        """
        cache.reserve((base.n_tok if base else 0) + len(tokens))
        if base:
            cache.copy_rows_from(base)
        if tokens:
            self.prefill(cache, tokens, chunk)

    def prefill(self, cache: Cache, tokens: list[int], chunk: int = CHUNK) -> None:
        """`extend`, then write the logits after the last token into the cache."""
        f, x = self.extend(cache, tokens, chunk)
        self.head(f, x, cache.logits)


def start(threads: int | None, arithmetic: str = "exact") -> None:
    """Choose the instruction set, which must have the arithmetic, and start the threads of this
    process.

    Error 64 and 69.
    """
    wanted = os.environ.get("SLUICE_ISA", "")
    status = lib.isa_select(os.fsencode(wanted))
    if status == -1:
        raise Error(USAGE, f"SLUICE_ISA: {wanted!r} is not {' or '.join(known_sets())}")
    if status == -2:
        raise Error(UNSUPPORTED, f"SLUICE_ISA: this processor does not have {wanted}")
    if arithmetic == "fast" and not lib.fast_supported():
        raise Error(
            UNSUPPORTED,
            f"--arithmetic fast: {ffi.string(lib.isa_name()).decode()} has no products in bf16,"
            " which amx (AMX-BF16) has; leave it out, or SLUICE_ISA=reference computes the same"
            " bits, slowly",
        )
    if threads is None:
        threads = cpus.n_threads()
    lib.threads_start(threads)  # fewer if the system grants no more: slower, the same bits


def known_sets() -> list[str]:
    """Return the names of this build's instruction sets, the best first, "reference" (the
    definition) last.
    """
    names: list[str] = []
    while name := lib.isa_known(len(names)):
        names.append(ffi.string(name).decode())
    return names
