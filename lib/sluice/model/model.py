"""A model, ready to run: what calls the layers of its architecture chunk by chunk."""

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


ARITHMETIC = (
    "exact-2"  # the name snapshots carry for the bits that csrc/kernels/reference.c defines
)
# the latter: with products as csrc/kernels/reference_fast.c defines them
ARITHMETICS = {"exact": ARITHMETIC, "fast": "fast-2"}
CHUNK = 512  # tokens that prefill takes through the layers at once
# the same for a model of at most SMALL_MODEL bytes: its weights stay in the processor's cache, and
# so
SMALL_CHUNK = 128
SMALL_MODEL = 1 << 25  # do this many activations
# floats of a chunk's widest activation: a wide model gets shorter chunks, not more memory
MAX_ACTIVATIONS = 1 << 26


class Model:
    """A gguf.File with its hyper-parameters and weights checked, and the threads and kernels it
    runs on chosen.

    arithmetic: "exact" or "fast"; after that the name snapshots carry. vocab: the tokenizer.bin of
    a llama2.c checkpoint. huge_pages: see gguf.File. `threads`: how many (None: as
    csrc/runtime/cores.c decides). The environment variable SLUICE_ISA names an instruction set (one
    of lib.isa_known); without it the best is taken. Neither changes a bit of any result.
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
        self._ropes = {
            "global": (h.rope.frequencies(h.n_rot // 2, self.weights.rope_divisors), h.rope.scale)
        }
        if h.rope_local:
            self._ropes["local"] = (
                h.rope_local.frequencies(h.n_rot // 2, ffi.NULL),
                h.rope_local.scale,
            )

    def forward(self, f: Forward, tokens: list[int], pos: int, n_last: int = 1) -> Rows:
        """The hidden states after the last `n_last` of `tokens` (a list) at positions pos ..., as
        Rows [n_last, n_embd]; K and V of all go into the cache of `f` (a Forward).
        """
        f.start(tokens, pos, self._ropes, n_last)
        return f.through(
            self,
            lambda: f.rmsnorm(
                self.hparams.architecture.layers(self, f), self.weights.output_norm, "output_norm"
            ),
        )

    def head(self, f: Forward, x: Rows, logits: Any, tokens: Any = None) -> None:
        """logits (float *) [n_vocab] of the hidden state `x`; or only those of `tokens` (an
        int32_t[]), in its order.

        DataError where one is not finite: a damaged file must not become an answer.
        """
        y = self._logits(f, x, tokens)
        ffi.memmove(logits, y.p, 4 * y.n)

    def head_rows(self, f: Forward, x: Rows, begin: int, n: int) -> Rows:
        """logits, Rows [n, n_vocab], of the hidden states `x` from row `begin` on; they are the
        Forward's, until its next product.

        Each row has the bits that `head` gives. DataError where one is not finite.
        """
        return self._logits(f, f.part(x, begin, n))

    def _logits(self, f, x, tokens=None):
        y = f.linear(x, self.weights.output, tokens)
        if self.hparams.final_cap:
            f.soft_cap(y, self.hparams.final_cap)
        at = lib.first_nonfinite(y.p, f.n_tok * y.n)
        if at >= 0:
            raise self.file.data_error(
                f"logit {at % y.n} is not finite: damaged weights or cache, or activations beyond"
                " what it holds"
            )
        return y

    def geometry(self, kv_type: str | None) -> Geometry:
        """What a snapshot of this model looks like, with a cache of `kv_type` (a name of KV_TYPES,
        or None: any).
        """
        h = self.hparams
        geometry = Geometry(
            h.n_layer, h.n_head_kv, h.head_dim, KV_TYPES.get(kv_type or ""), h.n_vocab
        )
        if kv_type and misfit(geometry):
            raise unsupported_error(
                self.file.path,
                f"heads of {h.head_dim} are no whole blocks of {kv_type}; f16 and f32 hold them",
            )
        return geometry

    def open_snapshot(self, path: str, kv_type: str | None = None) -> Snapshot:
        """The snapshot at `path`, if it is one of this model and this arithmetic (and `kv_type`, or
        any); else DataError.
        """
        cache = Snapshot.open(
            path, self.file.id, self.arithmetic, self.geometry(kv_type), self.file.path
        )
        at = lib.first_nonfinite(cache.logits, self.hparams.n_vocab)
        if at >= 0:
            raise data_error(path, f"logits: that of id {at} is not finite")
        return cache

    def run(
        self,
        cache: Cache,
        tokens: list[int],
        n_last: int,
        chunk: int = CHUNK,
        f: Forward | None = None,
    ) -> Iterator[tuple[Forward, Rows, int]]:
        """Run `tokens` (a non-empty list) after those `cache` (a Snapshot or Scratch with room for
        them) holds, chunk by chunk.

        Yields (Forward, x, n) after each chunk: the hidden states x, Rows [n, n_embd], after those
        of its tokens that are among the last `n_last` of all; of a chunk without such (n is 0) x
        has a row all the same. The cache then holds its tokens and rows.
        """
        f, h = f or Forward(self.hparams, cache), self.hparams
        if self.file.size <= SMALL_MODEL:
            chunk = min(chunk, SMALL_CHUNK)
        chunk = max(1, min(chunk, MAX_ACTIVATIONS // max(h.n_embd, h.n_ff, h.n_head * h.head_dim)))
        chunk = -(-len(tokens) // -(-len(tokens) // chunk))  # as many chunks, but alike
        for at in range(0, len(tokens), chunk):
            part, n_tok = tokens[at : at + chunk], cache.n_tok
            n = max(0, min(len(part), n_last - (len(tokens) - at - len(part))))
            cache.reserve(n_tok + len(part))
            x = self.forward(f, part, n_tok, max(1, n))
            cache.tokens[n_tok : n_tok + len(part)] = array("i", part)
            cache.n_tok = n_tok + len(part)
            yield f, x, n

    def extend(
        self, cache: Cache, tokens: list[int], chunk: int = CHUNK, f: Forward | None = None
    ) -> tuple[Forward, Rows]:
        """`run` to its end: the Forward and the hidden state after the last of `tokens`."""
        f = f or Forward(self.hparams, cache)
        for _, x, _ in self.run(cache, tokens, 1, chunk, f):
            pass
        return f, x

    def fill(
        self, cache: Cache, base: Snapshot | None, tokens: list[int], chunk: int = CHUNK
    ) -> None:
        """Make `cache`, an empty one, hold what `base` (a Snapshot, or None) holds and `tokens`
        after it, with the logits after the last.
        """
        cache.reserve((base.n_tok if base else 0) + len(tokens))
        if base:
            cache.copy_rows_from(base)
        if tokens:
            self.prefill(cache, tokens, chunk)

    def prefill(self, cache: Cache, tokens: list[int], chunk: int = CHUNK) -> None:
        """`extend`, and the logits after the last id into the cache."""
        f, x = self.extend(cache, tokens, chunk)
        self.head(f, x, cache.logits)


def start(threads: int | None, arithmetic: str = "exact") -> None:
    """Choose the instruction set, which must have the arithmetic, and start the threads of this
    process.
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
    lib.threads_start(threads)  # fewer where the system refuses more: slower, the same bits


def known_sets() -> list[str]:
    """Names of the instruction sets of this build, the best first, the definition ("reference")
    last.
    """
    names: list[str] = []
    while name := lib.isa_known(len(names)):
        names.append(ffi.string(name).decode())
    return names
