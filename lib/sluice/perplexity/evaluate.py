"""Perplexity of a model on a text, and its divergence from another model: windows of tokens, and
sums.

The whole text is tokenized once, with BOS first if the model adds it. A window is n_ctx consecutive
tokens; its first token is replaced by BOS, again if the model adds it. Each window is processed
with an empty cache.

    without a stride   windows follow each other; tokens from n_ctx / 2 + 1 on of each are scored
                       (n_ctx - n_ctx / 2 - 1 tokens), so each scored token has at least n_ctx / 2
                       tokens before it
    stride N           windows begin every N tokens, and the last N tokens of each are scored; each
                       window overlaps the one before

Tokens that fill no window are left out. The score of a token is ln p, its probability after the
tokens before it in the window. Without a stride and with n_ctx 512 the numbers are comparable with
those of llama.cpp's tool.
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
MAX_LOGITS = 1 << 23  # floats in memory: with a large vocabulary, logits of some positions only


def read_tokens(path: str | None, words: Vocab) -> array[int]:
    """Return the tokens (array of i32) of the text in the file `path`, or on stdin (None).

    DataError beyond limits.MAX_TEXT_BYTES; OSError.
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC) if path else 0
    data = stream.read_text(fd, path or "standard input")
    return array("i", words.encode(data, eos=False))


class Windows:
    """A text's tokens (array of i32), and its windows.

    n_ctx      tokens of a window;  stride: tokens between the starts of two windows
    n_count    scored tokens of a window
    n_window   number of windows, at most `maximum`
    bos        token, or None
    """

    def __init__(
        self,
        tokens: array[int],
        n_ctx: int,
        stride: int | None = None,
        bos: int | None = None,
        maximum: int | None = None,
    ) -> None:
        self.tokens, self.n_ctx, self.bos = tokens, n_ctx, bos
        self.stride = stride or n_ctx
        self.n_count = stride or n_ctx - n_ctx // 2 - 1
        n = (len(tokens) - n_ctx) // self.stride + 1 if len(tokens) >= n_ctx else 0
        self.n_window = n if maximum is None else min(n, maximum)

    def window(self, i: int) -> tuple[list[int], array[int]]:
        """Return (tokens of window `i` as the model reads them, list; its scored tokens as
        in the text, array).
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
    """Sums over ln p of scored tokens, in the order of the text.

    n: number of tokens; nll: sum of -ln p, nats; square: sum of (ln p)^2.
    """

    def __init__(self) -> None:
        self.n, self.nll, self.square = 0, 0.0, 0.0

    def add(self, log_p: float) -> None:
        """Add a token with ln p = `log_p`."""
        self.n, self.nll, self.square = self.n + 1, self.nll - log_p, self.square + log_p * log_p

    @property
    def perplexity(self) -> float:
        """exp of the mean of -ln p."""
        return lib.sluice_exp(self.nll / self.n)

    @property
    def error(self) -> float:
        """Standard error of the perplexity: that of the mean of ln p, times the perplexity."""
        return self.perplexity * error_of_mean(self.nll, self.square, self.n)


def error_of_mean(total: float, squares: float, n: int) -> float:
    """Return the standard error of the mean of n values with this sum and sum of squares."""
    mean = total / n
    return math.sqrt(max(0.0, squares / n - mean * mean) / max(1, n - 1))


class Divergence:
    """Sums of Scores of a model relative to the base model, in the order of the text."""

    def __init__(self) -> None:
        self.base, self.kl, self.n_same = Sums(), array("d"), 0
        self._ratio = self._ratio_square = 0.0

    def add(self, score: Score) -> None:
        """Add the Score of a token."""
        self.base.add(score.base_log_p)
        self.kl.append(score.kl)
        self.n_same += score.top == score.base_top
        ratio = score.base_log_p - score.log_p
        self._ratio, self._ratio_square = self._ratio + ratio, self._ratio_square + ratio * ratio

    def results(self) -> list[Result]:
        """Return a list of (name, value, standard error or None)."""
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
    """Run `m` (a Model) over `windows`. Yield the list of Scores of the scored tokens of each
    window.

    kv_type: type of the KV cache, a name of KV_TYPES. base: kept logits (kept_logits.Base) of
    the same windows, or None. keep: called with rows of kept logits (a buffer), in order, or
    None.
    """
    cache = Scratch(m.geometry(kv_type), windows.n_ctx)
    f, n_vocab = Forward(m.hparams, cache), m.hparams.n_vocab
    maximum = max(1, MAX_LOGITS // n_vocab)
    kept = (
        ffi.new("uint8_t[]", lib.kept_row_bytes(n_vocab) * min(maximum, windows.n_count))
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
            for at in range(0, n, maximum):
                n_row = min(maximum, n - at)
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
    """Return (Sums, Divergence or None) of all `scores`.

    watch: called with the number of each window, from 1 on, and the Sums so far. Error 74 if
    the model file was changed meanwhile.
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
    base: Base, m: Model, bos: int | None, vocab_id: bytes, maximum: int | None = None
) -> Windows:
    """Return the Windows of kept logits (kept_logits.Base), at most `maximum`.

    bos: the BOS token of `m` (a Model), or None. vocab_id: kept_logits.vocab_id of its
    vocabulary. DataError if the kept logits are of another vocabulary or need a longer context.
    """
    h, bos_or_none = base.h, -1 if bos is None else bos
    if h.n_vocab != m.hparams.n_vocab or h.vocab != vocab_id:
        raise data_error(
            base.path,
            f"made with another vocabulary ({h.n_vocab} tokens) than that of {m.file.path}"
            f" ({m.hparams.n_vocab})",
        )
    if h.bos != bos_or_none:
        raise data_error(
            base.path,
            f"its windows begin with token {h.bos}, those of {m.file.path} with {bos_or_none}",
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
        min(h.n_window, maximum or h.n_window),
    )


def lines(results: Iterable[Result]) -> str:
    """Return results (name, value, standard error or None) as text, a line each."""
    digits = lambda x: f"{x:.4f}" if x >= 0.1 else f"{x:.6g}"
    return "".join(
        f"{name} {digits(value)}"
        + ("" if error is None else f" +- {error:.5f}" if value >= 0.1 else f" +- {error:.3g}")
        + "\n"
        for name, value, error in results
    )


def as_json(results: Iterable[Result], n: int, windows: Windows) -> str:
    """Return results, and the sizes of the evaluation, as one line of JSON.

    n: number of scored tokens. A number beyond f64 is null.
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
