"""Classify texts: process prompt and input, and read label probabilities from the logits."""

from ..faults import Error, data_error
from ..kernels import ffi, lib
from ..kvcache import capacity
from ..kvcache.scratch import Scratch
from ..kvcache.snapshot import Snapshot
from ..model import packed
from ..model.model import Model
from ..model.packed import Part
from ..tokenizer.vocabulary import Vocab
from . import inputs
from .answers import Tree, calibrated
from .prompt import Prompt
from .question import UNSURE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

    from .calibration import Fit

KV_TYPE = "f16"
EXIT_OTHER, EXIT_UNSURE = 1, 2
# Tokens before the input * bytes of weights. Below this, processing the tokens is faster than
# opening a snapshot.
MIN_CACHE_COST = 1 << 28


class Verdict:
    """The result for one text.

    answer: the most probable label, or "unsure".
    score: probability of the answer; of the first label if unsure.
    scores: {label: probability}.
    log_p: uncalibrated log probabilities (nats) in the order of the labels.
    fit: the calibration.Fit in use; None: the question's calibration.
    n_tokens: tokens of prompt and input.
    n_reused: those of them that came from the cache or from an earlier text.
    cut: whether the middle of the text was dropped.
    mass: probability of all labels' paths among all tokens, or None.
    reasons: problems found in a message (see sluice.mail, inputs.NO_TEXT), or None.
    """

    answer: str
    score: float
    scores: dict[str, float]
    log_p: list[float]
    fit: "Fit | None"
    n_tokens: int
    n_reused: int
    cut: bool
    mass: float | None
    reasons: list[str] | None = None


class _Text:
    """tokens: with the prompt's. n_known: of them, those whose keys and values are in the cache.
    cut, reasons: see Verdict.
    """

    __slots__ = ("tokens", "n_known", "cut", "reasons")

    def __init__(self, tokens, n_known, cut, reasons):
        self.tokens, self.n_known, self.cut, self.reasons = tokens, n_known, cut, reasons


class Classifier:
    """A question with the model file at `path`, ready for one text after another.

    cache_dir: directory for the model ID and for a snapshot of the tokens before the input, or
    None. Cache errors are ignored.
    as_mail: the inputs are messages (RFC 5322), whatever the question says.
    mass: compute Verdict.mass. user_calibration: a calibration.UserCalibration, or None.
    threads, arithmetic, vocab, huge_pages: see model.Model.

    Raises DataError or UnsupportedError for a model that is invalid or does not fit the question.
    """

    def __init__(
        self,
        question: "Any",
        path: str,
        threads: int | None = None,
        cache_dir: str | None = None,
        as_mail: bool = False,
        mass: bool = False,
        arithmetic: str = "exact",
        vocab: str | None = None,
        user_calibration: "Any" = None,
        huge_pages: bool = False,
    ) -> None:
        self.user_calibration, self.question, self.as_mail, self._with_mass = (
            user_calibration,
            question,
            as_mail,
            mass,
        )
        self.is_mail = as_mail or question.kind == "mail"
        self.model = m = Model(path, threads, arithmetic, vocab, huge_pages)
        m.file.id_cache = cache_dir
        self._vocab = Vocab(m.file)
        self.tree = Tree(question, self._vocab)
        self.prompt = p = Prompt(
            question, m.file, self._vocab, capacity.limit(m.hparams.n_ctx), self.tree.depth
        )
        self._n_rows = len(p.before) + p.head + p.tail + len(p.after) + self.tree.depth
        self.cache_state = "none"  # or "found" or "stored": what -v prints as cache
        self._kv = self._cached_prefix(cache_dir) or Scratch(m.geometry(KV_TYPE), self._n_rows)
        self._forward = packed.Packed(m.hparams, self._kv)
        self._hidden: dict[tuple[int, ...], Any] = {}
        self.n_known = self._kv.n_tok

    def _cached_prefix(self, cache_dir):
        """Open or store a snapshot of the tokens before the input in `cache_dir`.

        Returns None if the tokens are too few, or if the cache cannot be used.
        """
        m, tokens = self.model, self.prompt.before
        weights = sum(t.n_bytes for t in m.file.tensors.values())
        if not cache_dir or not tokens or len(tokens) * weights < MIN_CACHE_COST:
            return None
        from ..kvcache import prefix_cache  # seldom needed

        geometry = m.geometry(KV_TYPE)
        known = prefix_cache.get(cache_dir, m.file.id, m.arithmetic, geometry, tokens)
        if known and known.capacity >= self._n_rows:
            self.cache_state = "found"
            return known
        try:
            prefix_cache.prepare(cache_dir)
            new = Snapshot.create(geometry, self._n_rows, m.file.id, m.arithmetic, cache_dir)
            m.fill(new, known, [] if known else tokens)
            m.file.check_unchanged()
            prefix_cache.store(cache_dir, new)
        except (Error, OSError):
            return None
        self.cache_state = "stored"
        return new

    def buffer_bytes(self) -> int:
        """Return the bytes kept from one text to the next: activations, and the KV cache."""
        return self._kv.layout.file_bytes + self._forward.buffer_bytes()

    def prepare(self) -> None:
        """Process the tokens before the input now, once for all texts."""
        if not self.n_known and self.prompt.before:
            for _ in packed.run(self.model, self._forward, [Part(0, self.prompt.before)]):
                pass
            self.n_known = len(self.prompt.before)

    def ask(self, data: bytes) -> "Verdict":
        """Classify an input. Raises DataError if it is empty."""
        (v,) = self.ask_many((data,))
        if isinstance(v, Error):
            raise v
        return v

    def ask_many(self, inputs: "Iterable[bytes]") -> "Iterator[Verdict | Error]":
        """Classify inputs in one batch. Yields a Verdict each, or the DataError that it is empty.

        The order is that of the inputs; a Verdict is yielded as soon as it is known. All inputs
        share the keys and values of the prompt. Each Verdict has the same bits as from `ask`.
        """
        texts = [self._tokenized(data) for data in inputs]
        n_done = 0
        hidden: dict[tuple[int, ...], Any] = {}
        for (i, path), x in packed.run(self.model, self._forward, self._parts(texts)):
            hidden[path] = x.copy()
            if len(hidden) < len(self.tree.paths):
                continue
            yield from texts[n_done:i]  # errors
            v = self._verdict(texts[i], hidden)
            self.model.file.check_unchanged()
            n_done, hidden = i + 1, {}
            yield v
        yield from texts[n_done:]

    def _tokenized(self, data):
        """Return a _Text of an input (bytes), or the DataError that it is empty."""
        if not data:
            return data_error("input", "no text: the input is empty")
        try:
            text, rest, reasons = inputs.text(data, self.is_mail, self.question.fold)
        except Error as e:
            return e
        tokens, cut = self.prompt.input_tokens(text, rest)
        tokens = self.prompt.before + tokens + self.prompt.after
        if not tokens:
            return data_error("input", "no text, and the prompt is empty, too")
        # the logits come from the last one
        return _Text(tokens, min(self.n_known, len(tokens) - 1), cut, reasons)

    def _parts(self, texts):
        """Return what is run: for each text the tokens after the cached ones, then the nodes."""
        parts = []
        for i, text in enumerate(texts):
            if isinstance(text, Error):
                continue
            parts.append(Part(text.n_known, text.tokens[text.n_known :], (i, ())))
            n = len(text.tokens) - 1
            parts += [Part(n + len(p), [p[-1]], (i, p)) for p in self.tree.paths if p]
        return parts

    def _verdict(self, text, hidden):
        """Return the Verdict on a _Text. hidden: {path: hidden state after text and path}."""
        self._hidden = hidden
        v = Verdict()
        v.log_p, log_mass = self.tree.log_probabilities(
            self._look, self._dense if self._with_mass else None
        )
        v.n_tokens, v.n_reused = len(text.tokens), text.n_known
        v.cut, v.reasons = text.cut, text.reasons
        self.evaluate(v)
        v.mass = None if log_mass is None else min(1.0, lib.sluice_exp(log_mass))
        return v

    def evaluate(self, v: "Verdict") -> None:
        """Set answer, scores and fit of `v` from its log_p and the current calibration.

        The answer is "unsure" to a message without text and links, whatever its subject says.
        """
        q, names = self.question, list(self.question.answers)
        v.fit = self.user_calibration and self.user_calibration.fit(self.model.file)
        scale, *bias = v.fit.fitted if v.fit else (q.scale, *(q.bias[name] for name in names))
        p = calibrated(v.log_p, scale, bias)
        best = max(range(len(p)), key=lambda a: p[a])
        v.scores = dict(zip(names, p))
        is_sure = p[best] >= q.thresholds[names[best]] and inputs.NO_TEXT not in (v.reasons or ())
        v.answer, v.score = (names[best], p[best]) if is_sure else (UNSURE, p[0])

    def line(self, v: "Verdict", name: str | None = None) -> bytes:
        """Return the line of --long: label, P(first label), threshold, model ID (16 hex digits).

        name: printed as label. None: "yes" for the first label, "no" for another one, or "unsure".
        """
        first = next(iter(self.question.answers))
        name = name or (UNSURE if v.answer == UNSURE else "yes" if v.answer == first else "no")
        return (
            f"{name} {v.scores[first]:.4f} {self.question.thresholds[first]:.4f}"
            f" {self.model.file.id[:8].hex()}\n".encode()
        )

    def status(self, v: "Verdict") -> int:
        """Return the exit status: 0 for the first label, 1 for another one, 2 for unsure."""
        return (
            EXIT_UNSURE
            if v.answer == UNSURE
            else EXIT_OTHER * (v.answer != next(iter(self.question.answers)))
        )

    def _look(self, path, rows):
        """Return the logits of `rows` after the prompt and the tokens `path`."""
        self._looked = self._hidden[tuple(path)]
        out = ffi.new("float[]", len(rows))
        self.model.head(self._forward, self._forward.part(self._looked, 0, 1), out, rows)
        return out

    def _dense(self):
        """Return the logits of the whole vocabulary at the position of the last _look."""
        out = ffi.new("float[]", self.model.hparams.n_vocab)
        self.model.head(self._forward, self._forward.part(self._looked, 0, 1), out)
        return out
