"""Vectors of texts: the model's last hidden states, pooled, cut and brought to length 1.

    last   the state after the last token
    cls    the state after the first token
    mean   the mean over all tokens, those of the prompt around the text included

The hidden states come after the model's last norm. Texts go through the layers together
(model/packed.py), and csrc/kernels/pooling.c has every sum in order, so a vector has the same bits
alone, in any batch, with any number of threads and on any instruction set.
"""

from ..faults import Error, data_error, unsupported_error
from ..kernels import ffi, lib
from ..kvcache import capacity
from ..kvcache.scratch import Scratch
from ..model import packed
from ..model.architecture import POOLINGS
from ..model.packed import Part
from ..model.weights import POOLING_RANK
from ..texts import inputs
from ..tokenizer.vocabulary import Vocab

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

    from ..model.model import Model
    from .prompt import Prompt

KV_TYPE = "f32"  # nothing is generated from this cache, so it is small: no rounding
LAST, MEAN, CLS = POOLINGS
# values of the key ARCHITECTURE.pooling_type
KEY, OF_KEY = "pooling_type", {1: MEAN, 2: CLS, 3: LAST}
END = "<|endoftext|>"  # ends a text for families that pool the last token, where a file is silent


class Vector:
    """values: f32 [dimensions], as bytes in the order of this machine. n_tokens: of prompt and
    text. cut: whether the end of the text was dropped.
    """

    __slots__ = ("cut", "n_tokens", "values")

    def __init__(self, values: bytes, n_tokens: int, cut: bool) -> None:
        self.values, self.n_tokens, self.cut = values, n_tokens, cut


class Embedder:
    """A Model, ready for texts.

    prompt: what stands around each text. pooling: one of POOLINGS; None: that of the prompt, of the
    model's metadata, or of its family. normalize: bring each vector to length 1. dimensions: keep
    only the first ones; None: all. n_ctx: tokens of prompt and text, of which a longer text loses
    its end; None: the model's context. n_batch: texts that go through the layers together. is_mail:
    the texts are messages (RFC 5322).

    Attributes pooling and dimensions have what is in use. n_tokens: tokens so far, n_cut: texts
    that were cut.

    Raises DataError naming the key at fault, and UnsupportedError for a reranker.
    """

    def __init__(
        self,
        model: "Model",
        prompt: "Prompt",
        pooling: str | None = None,
        normalize: bool = True,
        dimensions: int | None = None,
        n_ctx: int | None = None,
        n_batch: int = 64,
        is_mail: bool = False,
    ) -> None:
        self._model, self._prompt, self.is_mail = model, prompt, is_mail
        self.pooling = pooling or prompt.pooling or pooling_of(model)
        self._normalize, self.dimensions = normalize, dimensions or model.hparams.n_embd
        self._n_batch = n_batch
        self._vocab = Vocab(model.file)
        self._end = self._end_token()
        self._limit = n_ctx or capacity.limit(model.hparams.n_ctx)
        self.n_tokens = self.n_cut = 0
        n = len(self._tokens_of(b""))
        if n >= self._limit:
            raise data_error(
                "-q", f"the prompt takes {n} tokens, all of the context of {self._limit}"
            )
        self._known: list[int] = []  # tokens whose keys and values are in the cache
        self._cache: Any = None
        self._forward: Any = None

    def _end_token(self):
        """Return the token after each text, or None."""
        vocab, file = self._vocab, self._model.file
        if vocab.add_eos or "tokenizer.ggml.add_eos_token" in file.metadata:
            return vocab.eos if vocab.add_eos else None
        if (self.pooling, self._model.hparams.architecture.pooling) != (LAST, LAST):
            return None
        end = vocab.control_token(END)
        return vocab.eos if end is None else end

    def prepare(self) -> None:
        """Do nothing: what texts have in common is processed with the first."""

    def ask_many(self, inputs: "Sequence[bytes]") -> "Iterator[Vector | Error]":
        """Yield the Vector of each input, or the DataError that it is empty, in their order."""
        for at in range(0, len(inputs), self._n_batch):
            yield from self._batch([self._tokenized(x) for x in inputs[at : at + self._n_batch]])

    def _tokenized(self, data):
        """Return (tokens, whether the end was dropped), or the DataError that a text is empty."""
        if not data:
            return data_error("input", "no text: the input is empty")
        try:
            text, rest, _ = inputs.text(data, self.is_mail, False)
        except Error as e:
            return e
        tokens = self._tokens_of(text)
        cut, room = rest is not None, self._limit - (self._end is not None)
        if len(tokens) > room:
            tokens, cut = tokens[:room], True
        if self._end is not None:
            tokens.append(self._end)
        return (tokens, cut) if tokens else data_error("input", "no text: it has no tokens")

    def _tokens_of(self, text):
        p = self._prompt
        return self._vocab.encode(p.before + text + p.after, eos=False, marks=False)

    def _batch(self, texts):
        parts = []
        self._reserve(max((len(x[0]) for x in texts if not isinstance(x, Error)), default=0))
        known, self._known = self._known, []  # nothing is known if this ends early
        for i, text in enumerate(texts):
            if not isinstance(text, Error):
                tokens, begin = text[0], 0
                if self.pooling == LAST:  # the others need the states of all tokens
                    begin = min(_n_common(known, tokens), len(tokens) - 1)
                parts.append(Part(begin, tokens[begin:], i))
                known = tokens
        n_done = 0
        for i, x in self._pooled(parts):
            yield from texts[n_done:i]  # errors
            tokens, cut = texts[i]
            self.n_tokens, self.n_cut, n_done = self.n_tokens + len(tokens), self.n_cut + cut, i + 1
            yield Vector(self._finished(x), len(tokens), cut)
        self._known = known
        yield from texts[n_done:]

    def _reserve(self, n_tok):
        """Have a cache of at least `n_tok` tokens."""
        if self._cache is None or self._cache.capacity < n_tok:
            m = self._model
            self._cache = Scratch(m.geometry(KV_TYPE), capacity.rows(n_tok, self._limit))
            self._forward = packed.Packed(m.hparams, self._cache, self.pooling != LAST)
            self._known = []

    def _pooled(self, parts):
        """Yield (key, pooled state f32 [n_embd]) of each Part, in order."""
        m, n = self._model, self._model.hparams.n_embd
        if self.pooling == LAST:
            for key, x in packed.run(m, self._forward, parts):
                yield key, x.copy().p
            return
        y, sums, n_row = ffi.new("float[]", n), ffi.new("double[]", n), 0
        for key, x, n_tok in packed.run_all(m, self._forward, parts):
            if self.pooling == MEAN:
                lib.pool_add(sums, x.p, n_tok, n)
            elif not n_row:
                ffi.memmove(y, x.p, 4 * n)
            n_row += n_tok
            if key is not None:
                if self.pooling == MEAN:
                    lib.pool_mean(y, sums, n_row, n)
                yield key, y
                sums, n_row = ffi.new("double[]", n), 0

    def _finished(self, x):
        """Return the first `dimensions` of x f32 [n_embd], in bytes, of length 1 if asked for.

        DataError if one is not finite, or all are 0: a damaged file must not give a vector.
        """
        file = self._model.file
        file.check_unchanged()
        at = lib.first_nonfinite(x, self._model.hparams.n_embd)
        if at >= 0:
            raise file.data_error(
                f"element {at} of a hidden state is not finite: damaged weights, or activations"
                " beyond f32"
            )
        if self._normalize and not lib.to_unit_length(x, self.dimensions):
            raise file.data_error("a hidden state is 0, and has no direction: damaged weights")
        return bytes(ffi.buffer(x, 4 * self.dimensions))


def pooling_of(model: "Model") -> str:
    """Return the pooling that the metadata name, else that of the model's family."""
    name = f"{model.hparams.arch}.{KEY}"
    value = model.file.get(name, "u32", 0)
    if value == POOLING_RANK:
        raise unsupported_error(
            model.file.path, f"{name}: {POOLING_RANK}, a reranker: use rerank, or say --pooling"
        )
    if value and value not in OF_KEY:
        raise model.file.data_error(f"{name}: {value} is not within 0 to {POOLING_RANK}")
    return OF_KEY.get(value, model.hparams.architecture.pooling)


def _n_common(a, b):
    """Return the number of first tokens that `a` and `b` share."""
    n = min(len(a), len(b))
    return next((i for i in range(n) if a[i] != b[i]), n)


def cosine(a: bytes, b: bytes) -> float:
    """Return the cosine of two vectors (f32 in bytes), which are not 0; within -1 to 1."""
    import math

    x, y = (ffi.from_buffer("float[]", v) for v in (a, b))
    length = math.sqrt(lib.dot_f64(x, x, len(x))) * math.sqrt(lib.dot_f64(y, y, len(y)))
    return max(-1.0, min(1.0, lib.dot_f64(x, y, len(x)) / length))
