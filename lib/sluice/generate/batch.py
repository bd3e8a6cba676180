"""Texts that are generated together: each pass of the layers takes the next token of all of them.

A pass reads the weights once, however many texts there are, and that is what generating one text
waits for. Each text has a cache, a sampler and a grammar of its own, and runs through the same
Generation as alone; only the logits come from packed passes (model/packed.py), which have the bits
of single ones. A text that ends makes place for the next.

A prompt that begins like one that is still there is copied up to where they part, not processed.
"""

from array import array

from ..faults import BAD_DATA, Error
from ..kernels import ffi
from ..kvcache import capacity as capacities
from ..kvcache.scratch import Scratch
from ..model.model import CHUNK
from ..model.packed import Packed, Part, passes
from .generation import Answer, Generation, n_rows

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any

    from ..chat.calling import Calling
    from ..chat.tools import Call
    from ..grammar.matcher import Matcher
    from ..model.model import Model
    from ..tokenizer.vocabulary import Vocab
    from .prompt_cache import PromptCache
    from .sampler import Sampler

MIN_COMMON = 32  # tokens: fewer are not worth waiting for the prompt that has them, too


class Text:
    """A text to be generated. key: the caller's.

    tokens: of the prompt; the first `stable` are worth keeping. own: tokens of the prompt that the
    text continues within a message, for whole characters. complete: a text that is cut before its
    grammar is complete gets the shortest completion. calling: the calls of tools that the text may
    have, or None; n_before, number of messages before it.

    After the end: text, bytes; calls; n_tokens, generated, n_forced of them without a choice, the
    last n_closed for completion; reason, one of stream.REASONS; n_open, bytes of an incomplete
    character. error: why there is no text, or None.
    """

    reason: str | None
    error: str | None
    calls: "list[Call]"

    def __init__(
        self,
        key: "Any",
        tokens: list[int],
        sampler: "Sampler",
        max_tokens: int | None = None,
        stops: "Sequence[bytes]" = (),
        matcher: "Matcher | None" = None,
        stable: int = 0,
        own: "Sequence[int]" = (),
        complete: bool = False,
        calling: "Calling | None" = None,
        n_before: int = 0,
    ) -> None:
        self.calling, self.n_before, self.calls = calling, n_before, []
        self.complete, self.n_closed, self.n_forced = complete, 0, 0
        self.key, self.tokens, self.sampler, self.max_tokens = key, tokens, sampler, max_tokens
        self.stops, self.matcher, self.stable, self.own = stops, matcher, stable, own
        self.text, self.n_tokens, self.reason, self.n_open = b"", 0, None, 0
        self.error = None


class _Running:
    """A text whose prompt has been processed, up to `n_known` at first. is_alone: it computes its
    logits itself.
    """

    def __init__(self, model, text, cache, vocab, is_alone=False):
        self.text, self.cache, self.parts, self._is_alone = text, cache, [], is_alone
        self.planes = [
            (ffi.cast("uint8_t *", cache.k(i)), ffi.cast("uint8_t *", cache.v(i)))
            for i in range(cache.geometry.n_layer)
        ]
        self.answer = (
            text.calling.answer(text.stops, text.own)
            if text.calling
            else Answer(vocab, text.stops, text.own)
        )
        self.generation = Generation(model, cache, text.sampler, vocab.eog, text.matcher)
        self.steps = self.generation.steps(text.max_tokens)

    def step(self):
        """Return the next tokens, after which logits are needed; None at the end."""
        try:
            return self._next()
        except Error as e:  # of its grammar or its sampler: the others go on
            if e.code != BAD_DATA:
                raise
            self.text.error = str(e)
            return None

    def _next(self):
        t, generation = self.text, self.generation
        for token in self.steps:
            if token is None:
                if self._is_alone:
                    continue
                return generation.decoder.pending
            self._add(token)
            if self.answer.stopped:
                generation.finish("stop")
                break
        if t.complete and generation.reason == "cut":
            for token in generation.closing():
                self._add(token)
            t.n_closed = generation.n_closed
        t.text = b"".join(self.parts) + self.answer.remainder()
        t.reason, t.n_open = generation.reason, self.answer.n_open
        if self.answer.called:
            t.calls, t.text = self.answer.calls(t.n_before) or [], t.text.rstrip()
        t.n_forced = generation.n_forced
        return None

    def _add(self, token):
        self.text.n_tokens += 1
        self.parts.append(self.answer.add(token))


class Batch:
    """Generates up to `size` texts at the same time.

    capacity: the value of --ctx-size, or None. kv: type of the caches. kept: a PromptCache or None.
    n_reused: tokens of prompts that were not processed.
    """

    def __init__(
        self,
        model: "Model",
        vocab: "Vocab",
        size: int,
        capacity: int | None = None,
        kv: str = "f16",
        kept: "PromptCache | None" = None,
    ) -> None:
        # packed passes have no states of several caches: such texts are generated in turn
        self._in_turn = bool(model.hparams.n_state)
        self.model, self.size = model, 1 if self._in_turn else size
        self.kept, self.n_reused = kept, 0
        self._vocab, self._capacity, self._geometry = vocab, capacity, model.geometry(kv)
        self.limit = capacities.limit(model.hparams.n_ctx, capacity)
        # two: the buffers of long passes are not those of the many short ones
        own = Scratch(self._geometry, 1)
        self._prefill, self._decode = Packed(model.hparams, own), Packed(model.hparams, own)
        self._running: list[_Running] = []
        self._last: _Running | None = None  # the text whose prompt came last

    @property
    def n_running(self) -> int:
        """Number of texts that are being generated."""
        return len(self._running)

    def start(self, texts: "list[Text]") -> int:
        """Process the prompts of the first of `texts`, those for which there is a place and that
        need not wait for a prompt among them. Returns their number.

        Each prompt has at least one token and at most `limit`.
        """
        if self._in_turn:
            started = [self._begun_alone(text) for text in texts[: 1 - len(self._running)]]
            self._running += started
            return len(started)
        started = []
        for text in texts[: self.size - len(self._running)]:
            n_shared = max((_n_common(r.text.tokens, text.tokens) for r in started), default=0)
            donor, n = self._donor(text.tokens)
            if n_shared >= n + MIN_COMMON:
                break  # the next time its begin can be copied
            started.append(self._begun(text, donor, n))
        parts = [Part(r.cache.n_tok, r.text.tokens[r.cache.n_tok :], r, r.planes) for r in started]
        for r, logits in self._run(self._prefill, parts, CHUNK):
            n = len(r.text.tokens)
            r.cache.tokens[:n] = array("i", r.text.tokens)
            r.cache.n_tok = n
            ffi.memmove(r.cache.logits, logits, 4 * self.model.hparams.n_vocab)
        if started:
            self._last = started[-1]
        self._running += started
        return len(started)

    def step(self) -> "list[Text]":
        """Choose the next token of each text. Returns the texts that have ended."""
        ended, parts = [], []
        for r in self._running:
            tokens = r.step()
            if tokens is None:
                ended.append(r)
            else:
                parts.append(Part(r.cache.n_tok, tokens, r, r.planes))
        self._running = [r for r in self._running if r not in ended]
        for r, logits in self._run(self._decode, parts, CHUNK):
            r.generation.decoder.serve(logits)
        return [r.text for r in ended]

    def _run(self, f, parts, chunk):
        """Run `parts`; yield (key, logits) of each. logits, float *, stay until the next pass."""
        for cut in passes(parts, self.model.chunk_for(chunk)):
            f.start_parts(cut, self.model.ropes)
            x = self.model.layers(f)
            y = self.model.head_rows(f, x, 0, len(cut))
            for i, part in enumerate(cut):
                if part.key is not None:
                    yield part.key, y.p + i * y.n

    def _begun_alone(self, text):
        """Return a _Running of `text` whose prompt has been processed, from where the prompt cache
        has the states.
        """
        rows = n_rows(len(text.tokens), self.limit, self._capacity, text.max_tokens)
        cache, base, n = Scratch(self._geometry, rows, logits=True), None, 0
        if self.kept:
            base, n = self.kept.find(
                self.model, self._geometry, text.tokens, text.stable, self.limit
            )
        self.model.fill(cache, base, text.tokens[n:])
        if base:
            base.close()
        self.n_reused += n
        return _Running(self.model, text, cache, self._vocab, True)

    def _donor(self, tokens):
        """Return the _Running whose prompt begins with most of `tokens`, and how many."""
        there = [*self._running, *([self._last] if self._last else [])]
        found = [(_n_common(r.text.tokens, tokens), i) for i, r in enumerate(there)]
        n, i = max(found, default=(0, 0))
        return (there[i], n) if n else (None, 0)

    def _begun(self, text, donor, n):
        """Return a _Running of `text` whose cache has the first `n` tokens, copied from `donor`,
        or more from the prompt cache.
        """
        tokens, last, base = text.tokens, len(text.tokens) - 1, None
        rows = n_rows(len(tokens), self.limit, self._capacity, text.max_tokens)
        cache = Scratch(self._geometry, rows, logits=True)
        if self.kept:
            base, n_base = self.kept.find(
                self.model, self._geometry, tokens, text.stable, self.limit
            )
            if base and n_base > n:
                donor, n = None, n_base
        n = min(n, last)  # the logits of the last token are needed
        source = donor.cache if donor else base
        if source and n:
            cache.copy_prefix_from(source, n)
        if base:
            base.close()
        self.n_reused += n
        return _Running(self.model, text, cache, self._vocab)


def run(
    batch: Batch, arriving: "Callable[[bool], list[Text] | None]", n_waiting: int
) -> "Iterator[Text]":
    """Generate texts as they arrive; yield each as it ends.

    arriving: called with whether it may wait; returns texts, [] if none are there yet, or None at
    the end of the input. n_waiting: texts that are fetched ahead.
    """
    waiting: list[Text] = []
    at_end = False
    while True:
        while not at_end and len(waiting) < n_waiting:
            more = arriving(not waiting and not batch.n_running)
            at_end = more is None
            waiting += more or []
            if not more:
                break
        while waiting and (n := batch.start(waiting)):
            del waiting[:n]
        if not batch.n_running:
            if at_end:
                return
            continue
        yield from batch.step()


def _n_common(a, b):
    """Return the number of tokens with which both lists begin."""
    n = min(len(a), len(b))
    if a[:n] == b[:n]:
        return n
    low, high = 0, n  # a[:low] is common, a[:high] is not
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if a[low:middle] == b[low:middle] else (low, middle)
    return low
