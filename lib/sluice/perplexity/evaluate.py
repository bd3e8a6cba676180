"""How well a model foretells a text, and how far from another model it is: windows of tokens, and
sums over them.

A text becomes tokens once, as a whole, with the begin id first if the model wants one. A window is
n_ctx tokens in a row, and its first id is replaced by the begin id, again if the model wants one;
every window is read with an empty cache.

    without a stride   windows follow each other; of each the tokens from n_ctx / 2 + 1 on count
                       (n_ctx - n_ctx / 2 - 1 of them), so that every id that counts has n_ctx / 2
                       others before it
    stride N           windows begin every N tokens, and the last N tokens of each count: N or more
                       tokens in common with the one before

Tokens that fill no window are left out. An id counts with ln p, its probability after the tokens
before it in the window. The first way, with n_ctx 512, is that of llama.cpp's tool, and the numbers
can be compared.
"""

from __future__ import annotations

import math
import os
from array import array
from collections import namedtuple

from .. import stream
from ..faults import data_error
from ..kernels import ffi, lib
from ..kvcache.scratch import Scratch
from ..model.forward import Forward

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any

    from ..model.model import Model
    from ..tokenizer.vocabulary import Vocab
    from .kept_logits import Base

    Result = tuple[str, float, float | None]  # name, value, standard error

Score = namedtuple("Score", "log_p base_log_p kl top base_top")  # logit_score of csrc/api
MAX_LOGITS = 1 << 23  # floats that are held at a time: of a large vocabulary only some positions


def read_tokens(path: str | None, words: Vocab) -> array[int]:
    """The tokens (array of i32) of the text in the file `path`, or on stdin, by a Vocab. DataError
    beyond limits.MAX_TEXT_BYTES.
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC) if path else 0
    data = stream.read_text(fd, path or "standard input")
    return array("i", words.encode(data, eos=False))


class Windows:
    """tokens (array of i32), and how they are cut: n_ctx, stride, n_count tokens of each count,
    n_window, bos (an id or None).
    """

    def __init__(
        self,
        tokens: array[int],
        n_ctx: int,
        stride: int | None = None,
        bos: int | None = None,
        most: int | None = None,
    ) -> None:
        self.tokens, self.n_ctx, self.bos = tokens, n_ctx, bos
        self.stride = stride or n_ctx
        self.n_count = stride or n_ctx - n_ctx // 2 - 1
        n = (len(tokens) - n_ctx) // self.stride + 1 if len(tokens) >= n_ctx else 0
        self.n_window = n if most is None else min(n, most)

    def window(self, i: int) -> tuple[list[int], array[int]]:
        """The tokens of window `i`, as the model reads them (a list), and those that count, as the
        text has them (array).
        """
        at = i * self.stride
        tokens, counted = (
            self.tokens[at : at + self.n_ctx].tolist(),
            self.tokens[at + self.n_ctx - self.n_count : at + self.n_ctx],
        )
        if self.bos is not None:
            tokens[0] = self.bos
        return tokens, counted


class Sums:
    """Of ln p over what was counted: n, the sum of - ln p, of its square. Added in the order of the
    text.
    """

    def __init__(self) -> None:
        self.n, self.nll, self.square = 0, 0.0, 0.0

    def add(self, log_p: float) -> None:
        self.n, self.nll, self.square = self.n + 1, self.nll - log_p, self.square + log_p * log_p

    @property
    def perplexity(self) -> float:
        return lib.sluice_exp(self.nll / self.n)

    @property
    def error(self) -> float:
        """Standard error of the perplexity: that of the mean of ln p, times the perplexity."""
        return self.perplexity * error_of_mean(self.nll, self.square, self.n)


def error_of_mean(total: float, squares: float, n: int) -> float:
    """Standard error of the mean of n values with this sum and sum of squares."""
    mean = total / n
    return math.sqrt(max(0.0, squares / n - mean * mean) / max(1, n - 1))


class Divergence:
    """Of a model from the base: sums of Scores, in the order of the text."""

    def __init__(self) -> None:
        self.base, self.kl, self.n_same = Sums(), array("d"), 0
        self._ratio = self._ratio_square = 0.0

    def add(self, score: Score) -> None:
        self.base.add(score.base_log_p)
        self.kl.append(score.kl)
        self.n_same += score.top == score.base_top
        ratio = score.base_log_p - score.log_p
        self._ratio, self._ratio_square = self._ratio + ratio, self._ratio_square + ratio * ratio

    def results(self) -> list[Result]:
        """List of (name, value, standard error or None)."""
        n, kl = len(self.kl), sorted(self.kl)
        total, same = math.fsum(self.kl), self.n_same / len(self.kl)
        out: list[Result] = [
            ("base-perplexity", self.base.perplexity, self.base.error),
            ("ln-ratio", self._ratio / n, error_of_mean(self._ratio, self._ratio_square, n)),
            ("kl-mean", total / n, error_of_mean(total, math.fsum(k * k for k in self.kl), n)),
        ]
        out += [
            (f"kl-{name}", kl[min(n - 1, int(share * n))], None)
            for name, share in (("median", 0.5), ("99%", 0.99), ("99.9%", 0.999))
        ]
        return out + [
            ("kl-max", kl[-1], None),
            ("same-top", same, math.sqrt(same * (1 - same) / max(1, n - 1))),
        ]


def scores(
    m: Model,
    windows: Windows,
    kv_type: str = "f16",
    base: Base | None = None,
    keep: Callable[[Any], object] | None = None,
) -> Iterator[list[Score]]:
    """For each window of `windows` the Scores (a list) of its counted tokens, run through `m` (a
    Model).

    base: a basefile.Base of the same windows, or None; keep: called with rows in the kept form (a
    buffer), in order, or None.
    """
    cache = Scratch(m.geometry(kv_type), windows.n_ctx)
    f, n_vocab = Forward(m.hparams, cache), m.hparams.n_vocab
    most = max(1, MAX_LOGITS // n_vocab)
    kept = (
        ffi.new("uint8_t[]", lib.kept_row_bytes(n_vocab) * min(most, windows.n_count))
        if keep
        else None
    )
    for i in range(windows.n_window):
        tokens, counted = windows.window(i)
        out, targets = (
            ffi.new("logit_score[]", windows.n_count),
            ffi.from_buffer("int32_t[]", counted),
        )
        cache.n_tok = n_done = 0
        for f, x, n in m.run(cache, tokens[:-1], windows.n_count, f=f):
            for at in range(0, n, most):
                n_row = min(most, n - at)
                y = m.head_rows(f, x, at, n_row)
                rows = ffi.from_buffer("uint8_t[]", base.rows(n_row)) if base else ffi.NULL
                lib.score_logits(out + n_done, y.p, targets + n_done, rows, n_row, n_vocab)
                if keep:
                    lib.keep_logits(kept, y.p, n_row, n_vocab)
                    keep(ffi.buffer(kept, n_row * lib.kept_row_bytes(n_vocab)))
                n_done += n_row
        yield [Score(s.log_p, s.base_log_p, s.kl, s.top, s.base_top) for s in out]


def measure(
    m: Model,
    windows: Windows,
    kv_type: str,
    base: Base | None,
    keep: Callable[[Any], object] | None,
    watch: Callable[[int, Sums], object],
) -> tuple[Sums, Divergence | None]:
    """(Sums, Divergence or None) of all `scores`; `watch` is called with each window's number, from
    1 on, and the Sums so far. Error 74 where the model's file was changed meanwhile.
    """
    sums, divergence = Sums(), Divergence() if base else None
    for i, window in enumerate(scores(m, windows, kv_type, base, keep), 1):
        for score in window:
            sums.add(score.log_p)
            if divergence:
                divergence.add(score)
        watch(i, sums)
    m.file.check_unchanged()
    return sums, divergence


def windows_of(
    base: Base, m: Model, bos: int | None, vocab_id: bytes, most: int | None = None
) -> Windows:
    """The Windows of a basefile.Base, the first `most` of them. DataError where it is of another
    vocabulary than that of `m` (a Model), whose begin id is `bos` and whose tokens have this
    basefile.vocab_id.
    """
    h, ours = base.h, -1 if bos is None else bos
    if h.n_vocab != m.hparams.n_vocab or h.vocab != vocab_id:
        raise data_error(
            base.path,
            f"made with another vocabulary ({h.n_vocab} tokens) than that of {m.file.path}"
            f" ({m.hparams.n_vocab})",
        )
    if h.bos != ours:
        raise data_error(
            base.path, f"its windows begin with id {h.bos}, those of {m.file.path} with {ours}"
        )
    if h.n_ctx > m.hparams.n_ctx:
        raise data_error(
            base.path,
            f"its windows are of {h.n_ctx} tokens, and the context of {m.file.path} is "
            f"{m.hparams.n_ctx}",
        )
    return Windows(
        base.tokens,
        h.n_ctx,
        h.stride if h.stride == h.n_count else None,
        bos,
        min(h.n_window, most or h.n_window),
    )


def lines(results: Iterable[Result]) -> str:
    """Results (name, value, standard error or None) as text."""
    digits = lambda x: f"{x:.4f}" if x >= 0.1 else f"{x:.6g}"
    return "".join(
        f"{name} {digits(value)}"
        + ("" if error is None else f" +- {error:.5f}" if value >= 0.1 else f" +- {error:.3g}")
        + "\n"
        for name, value, error in results
    )


def as_json(results: Iterable[Result], n: int, windows: Windows) -> str:
    """The same, with what was counted, as one line of JSON; null for a number that is too large for
    f64.
    """
    import json

    found: dict[str, float | None] = {
        "ids": n,
        "windows": windows.n_window,
        "context": windows.n_ctx,
        "stride": windows.stride,
    }
    for name, value, error in results:
        found[name] = value if math.isfinite(value) else None
        if error is not None:
            found[name + "-error"] = error if math.isfinite(error) else None
    return json.dumps(found) + "\n"
