"""Generation loop in one process: the same functions as decode | grammar-filter | sample.

    generation = Generation(model, cache, sampler, vocab.eog)
    for token in generation.tokens(256): ...
    generation.reason  # why it ended, one of stream.REASONS

Records pass from one step to the next as they do through the pipes, so every token, random number
and end equals the pipeline's.
"""

from .. import stream
from ..faults import data_error
from ..grammar import matcher as grammar
from ..kvcache import capacity as capacities
from ..kvcache.scratch import Scratch
from ..kvcache.snapshot import Snapshot
from ..tokenizer.detokenizer import Joiner
from .records import Decoder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator
    from typing import Any

    from ..chat.tools import Call
    from .prompt_cache import PromptCache
    from .speculation import Speculation


class Generation:
    """Generates the tokens after those in `cache`, whose logits follow its last token.

    eog: tokens that end the text. matcher: a new grammar.Matcher, or None. keep: every token,
    also the last one, enters the cache with its logits, so that the cache can be sealed or
    continued. speculation: guesses tokens, or None.

    decoder: reads the tokens (records.Decoder).
    is_full: whether the text ended since the cache has no place for the token that was chosen last.
    After the cache was filled anew, with this token, `tokens` may be called again.
    """

    reason: str | None
    is_full: bool
    _chosen: "Any"
    _pos: int | None

    def __init__(
        self,
        model: "Any",
        cache: "Any",
        sampler: "Any",
        eog: "Container[int]",
        matcher: "Any" = None,
        keep: bool = False,
        speculation: "Speculation | None" = None,
    ) -> None:
        self.cache, self.sampler, self.matcher, self.keep = cache, sampler, matcher, keep
        self.reason, self._chosen, self._pos, self._at_limit = None, None, None, False
        self.is_full = False
        self.decoder = Decoder(model, cache, eog, keep, None, speculation)

    def tokens(self, max_tokens: int | None = None) -> "Iterator[int]":
        """Yield the tokens as they are chosen, at most `max_tokens`. DataError as in
        grammar-filter and sample.
        """
        self.reason, self.is_full, self._at_limit = None, False, False
        prev = -1 if self._chosen is None else self._chosen
        records = self.decoder.records(self._chosen_tokens(), prev)
        if self.matcher:
            records = grammar.filter_records(records, self.matcher, "the model's answer")
        for n, record in enumerate(records, 1):
            if record.kind == b"E":
                self.reason, self.is_full = record.end_before(), bool(record.flags & stream.FULL)
                return
            self._chosen = self.sampler.choose(record, name="the model's answer")[0]
            self._pos = record.pos
            self.reason = record.end_after(n == max_tokens)
            # behind the last token there are no logits, unless they are kept
            self.decoder.n_left = None if max_tokens is None else max_tokens - n - (not self.keep)
            yield self._chosen
            if n == max_tokens and not self.reason:
                self._at_limit = True
                self.reason = next(records).end_before()
            if self.reason:
                return self.finish(self.reason)

    def finish(self, reason: str) -> None:
        """End after the token that was yielded last, for `reason`: a stop string was found."""
        self.reason, self.decoder.n_left = reason, 0
        if self.keep and self._pos == self.cache.n_tok < self.cache.capacity:
            self.decoder.read(self._chosen)

    def _chosen_tokens(self):
        while True:
            yield self._chosen, not self._at_limit  # at the limit only flags of the record matter


class Answer:
    """Text of tokens as they arrive: whole UTF-8 characters, before the first of `stops`
    (bytes). chat/calling.py has the one of answers that may call tools.

    echo: tokens before the generated ones, whose text is in `echo` as bytes. stopped: whether
    one of `stops` was found. n_open: bytes of an incomplete character at the end, which are not
    part of the text.
    """

    def __init__(
        self, vocab: "Any", stops: "Iterable[bytes]" = (), echo: "Iterable[int]" = ()
    ) -> None:
        self._joiner, self._pending, self.stopped = Joiner(vocab), b"", False
        self._stops = [stop.decode("utf-8", "replace").encode() for stop in stops]
        for token in echo:
            self._joiner.add(token)
        self.echo = self._joiner.fetch()  # not searched for stop strings

    def add(self, token: int) -> bytes:
        """Return the text (bytes) that is complete with `token`."""
        self._joiner.add(token)
        return self._release(self._joiner.fetch())

    @property
    def called(self) -> bool:
        """Whether the call of a tool has begun."""
        return False

    def calls(self, n_before: int) -> "list[Call] | None":
        """Return the calls of tools; None if there are none, or if they are not whole.

        n_before: number of messages before the answer.
        """
        return None

    def remainder(self) -> bytes:
        """Return the text left at the end: the start of a stop string that was not completed."""
        return self._pending

    @property
    def n_open(self) -> int:
        """Bytes of an incomplete character at the end; 0 after a stop string."""
        return 0 if self.stopped else self._joiner.n_open

    def _release(self, data):
        if self.stopped:
            return b""
        data = self._pending + data
        found = [
            (data.find(stop) + len(stop), data.find(stop)) for stop in self._stops if stop in data
        ]
        if found:
            self.stopped, self._pending = True, b""
            return data[: min(found)[1]]  # before the stop string that was complete first
        n = min(len(data), max((len(stop) - 1 for stop in self._stops), default=0))
        while n and not any(stop.startswith(data[-n:]) for stop in self._stops if n < len(stop)):
            n -= 1
        self._pending = data[len(data) - n :]
        return data[: len(data) - n]


def n_rows(n_tok: int, limit: int, capacity: int | None, max_tokens: int | None) -> int:
    """Return the capacity of a new cache for a prompt of `n_tok` tokens and the text after it.

    limit: maximum number of tokens. capacity: the value of --ctx-size, or None.
    """
    if capacity or max_tokens is None:
        return limit
    return capacities.rows(n_tok, limit, max_tokens)


def begin(
    model: "Any",
    tokens: list[int],
    base: "Any" = None,
    capacity: int | None = None,
    max_tokens: int | None = None,
    kv: str | None = None,
    directory: str | None = None,
    name: str = "prompt",
    kept: "PromptCache | None" = None,
    stable: int | None = None,
) -> "Any":
    """Return a cache with the contents of `base` (a Snapshot or None) and `tokens` after it,
    and the logits.

    The cache is a Scratch, or with `directory` a Snapshot there, to be sealed. Its size is
    `capacity`; without one that of `base` if there are no tokens, else the model's context. If
    `max_tokens` is known the size is no larger than prefill's, or than max_tokens need.
    kept: a PromptCache, where the prompt's first tokens are looked for, and its first `stable`
    (None: all) are kept. The cache may then be a Snapshot that is private to the process.
    DataError if the tokens do not fit, or if there are none.
    """
    n_base, limit = base.n_tok if base else 0, capacities.limit(model.hparams.n_ctx, capacity)
    if base and not (tokens or capacity):
        limit = base.capacity
    n = n_base + len(tokens)
    if not n:
        raise data_error(name, "no tokens")
    if n > limit:
        raise data_error(name, f"{n} tokens, more than {limit}{capacities.remedy(limit, capacity)}")
    if base and kv and model.geometry(kv) != base.geometry:
        raise data_error("the snapshot", f"its keys and values are not {kv} (see --kv)")
    rows = limit if not tokens else n_rows(n, limit, capacity, max_tokens)
    geometry = base.geometry if base else model.geometry(kv or "f16")
    if kept:
        tokens = (base.tokens[:n_base].tolist() if base else []) + tokens
        base, n_base = kept.find(
            model, geometry, tokens, n if stable is None else stable, limit, base
        )
        tokens = tokens[n_base:]
        if base:
            base.n_tok = n_base
        if base and directory is None and base.capacity >= rows:
            base.capacity = rows
            if tokens:
                model.prefill(base, tokens)
            return base
    if directory is None:
        cache: Any = Scratch(geometry, rows, logits=True)
    else:
        cache = Snapshot.create(geometry, rows, model.file.id, model.arithmetic, directory)
    model.fill(cache, base, tokens)
    return cache
