"""Generation loop in one process: the same functions as decode | grammar-filter | sample.

    generation = Generation(model, cache, sampler, vocab.eog)
    for token in generation.tokens(256): ...
    generation.reason  # why it ended, one of stream.REASONS

Records pass from one step to the next as they do through the pipes, so every token, random number
and end equals the pipeline's.
"""

from .. import stream
from ..faults import data_error
from ..grammar.constraint import Constraint
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


CLOSING_ROOM = 1024  # places of a cache for the tokens of `closing`


class Generation:
    """Generates the tokens after those in `cache`, whose logits follow its last token.

    eog: tokens that end the text. matcher: a new grammar.Matcher, or None. keep: every token,
    also the last one, enters the cache with its logits, so that the cache can be sealed or
    continued. speculation: guesses tokens, or None.

    decoder: reads the tokens (records.Decoder).
    is_full: whether the text ended since the cache has no place for the token that was chosen last.
    After the cache was filled anew, with this token, `tokens` may be called again.
    n_forced: tokens that the grammar left no choice about. n_closed: tokens of `closing`.
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
        self.cache, self.sampler, self.keep = cache, sampler, keep
        self.reason, self._chosen, self._pos, self._at_limit = None, None, None, False
        self.is_full = self._is_cut_by_context = False
        self.n_forced = self.n_closed = 0
        self.constraint = Constraint(matcher) if matcher else None
        self.decoder = Decoder(model, cache, eog, keep, None, speculation)

    def tokens(self, max_tokens: int | None = None) -> "Iterator[int]":
        """Yield the tokens as they are chosen, at most `max_tokens`. DataError as in
        grammar-filter and sample.
        """
        return (token for token in self.steps(max_tokens) if token is not None)

    def steps(self, max_tokens: int | None = None) -> "Iterator[int | None]":
        """Yield the tokens as `tokens` does, and None where logits are needed after the pending
        ones of `decoder`. They may be served to it then; it computes them otherwise.
        """
        self.reason, self.is_full, self._at_limit = None, False, False
        self._is_cut_by_context = False
        prev = -1 if self._chosen is None else self._chosen
        records = self.decoder.records(self._chosen_tokens(), prev)
        constraint = self.constraint
        if constraint:
            records = constraint.filter(records, "the model's answer")
        for n, record in enumerate(records, 1):
            if record.kind == b"E":
                self.reason, self.is_full = record.end_before(), bool(record.flags & stream.FULL)
                return self.decoder.settle()
            if record.is_waiting:
                yield None
            self.n_forced += bool(constraint and constraint.is_forced)
            self._chosen = self.sampler.choose(record, name="the model's answer")[0]
            self._pos = record.pos
            self.reason = record.end_after(n == max_tokens)
            # behind the last token there are no logits, unless they are kept
            self.decoder.n_left = None if max_tokens is None else max_tokens - n - (not self.keep)
            yield self._chosen
            if n == max_tokens and not self.reason:
                self._at_limit = True
                at_end = next(records)
                self.reason = at_end.end_before()
                self._is_cut_by_context = bool(at_end.flags & stream.FULL)
            if self.reason:
                return self.finish(self.reason)

    def finish(self, reason: str) -> None:
        """End after the token that was yielded last, for `reason`: a stop string was found."""
        self.reason, self.decoder.n_left = reason, 0
        if self.keep and self._pos == self.decoder.n_tok < self.cache.capacity:
            self.decoder.append(self._chosen)
        self.decoder.settle()

    def fullness(self, what: str) -> str:
        """Return a line about `what`, a text that ended because the context is full."""
        return f"the context of {self.cache.capacity} tokens is full; the {what} ends"

    def closing(self) -> "Iterator[int]":
        """Yield the tokens of the shortest completion of a text that was cut (`reason`). With
        `keep` they enter the cache as far as there are places. The reason is then full or length.
        """
        assert self.constraint and self.reason == "cut"
        decoder = self.decoder
        for token in self.constraint.closing("the model's answer"):
            self.sampler.remember(self._chosen)
            if self.keep and decoder.n_tok < self.cache.capacity and not self.is_full:
                decoder.append(token)
            self._chosen = token
            self.n_closed += 1
            yield token
        decoder.settle()
        self.reason = "full" if self.is_full or self._is_cut_by_context else "length"

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
