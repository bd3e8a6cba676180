"""An answer, id by id, in one process: what the ring decode | grammar-filter | sample does, by the
same functions.

    generation = Generation(model, cache, sampler, vocab.eog)
    for id in generation.tokens(256): ...
    generation.reason  # why it ended, as `#end` says it

Records go from one step to the next as they do through the pipes, so every id, every random number
and every end is the ring's, byte for byte.
"""

from ..faults import data_error
from ..grammar import matcher as grammar
from ..kvcache import capacity as rooms
from ..kvcache.scratch import Scratch
from ..kvcache.snapshot import Snapshot
from ..tokenizer.detokenizer import Joiner
from .records import Decoder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator
    from typing import Any


class Generation:
    """What follows the tokens in `cache`, whose logits are those after the last one.

    eog: tokens that end it.
    matcher: a fresh grammar.Matcher, or None.
    keep: every id goes into the cache, with the logits after it,
    also the last one: so it can be sealed, or continued.
    """

    reason: str | None
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
    ) -> None:
        self.cache, self.sampler, self.matcher, self.keep = cache, sampler, matcher, keep
        self.reason, self._chosen, self._pos, self._enough = None, None, None, False
        self._decoder = Decoder(model, cache, eog, keep)

    def tokens(self, max_tokens: int | None = None) -> "Iterator[int]":
        """Yields the tokens as they are chosen, at most `max_ids`. DataError as grammar-filter and
        sample have it.
        """
        records = self._decoder.records(self._given())
        if self.matcher:
            records = grammar.filter_records(records, self.matcher, "the model's answer")
        for n, record in enumerate(records, 1):
            if record.kind == b"E":
                self.reason = record.end_before()
                return
            self._chosen = self.sampler.choose(record, name="the model's answer")[0]
            self._pos = record.pos
            self.reason = record.end_after(n == max_tokens)
            yield self._chosen
            if n == max_tokens and not self.reason:
                self._enough = True
                self.reason = next(records).end_before()
            if self.reason:
                return self.finish(self.reason)

    def finish(self, reason: str) -> None:
        """End here, after the last id that was yielded, for `reason`: a stop string was found."""
        self.reason = reason
        if self.keep and self._pos == self.cache.n_tok < self.cache.capacity:
            self._decoder.read(self._chosen)

    def _given(self):
        while True:
            yield self._chosen, not self._enough  # after enough, only marks are looked at


class Answer:
    """The text of tokens as they arrive: whole UTF-8 characters, up to the one of `stops` (bytes)
    that is complete first, of which no part is written.

    echo: tokens that stand before them and are written, too.
    stopped: whether one of `stops` was found.
    n_open: bytes at the end that begin a character and are not written.
    """

    def __init__(
        self, vocab: "Any", stops: "Iterable[bytes]" = (), echo: "Iterable[int]" = ()
    ) -> None:
        self._joiner, self._held, self.stopped = Joiner(vocab), b"", False
        self._stops = [stop.decode("utf-8", "replace").encode() for stop in stops]
        for id in echo:
            self._joiner.add(id)
        self.echo = self._joiner.take()  # no stop string is looked for in it

    def add(self, id: int) -> bytes:
        """What can be written after `id`, as bytes."""
        self._joiner.add(id)
        return self._pass(self._joiner.take())

    def rest(self) -> bytes:
        """What is left at the end: the begin of one of `stops`, whose rest did not come."""
        return self._held

    @property
    def n_open(self) -> int:
        return 0 if self.stopped else self._joiner.n_open

    def _pass(self, data):
        if self.stopped:
            return b""
        data = self._held + data
        found = [
            (data.find(stop) + len(stop), data.find(stop)) for stop in self._stops if stop in data
        ]
        if found:
            self.stopped, self._held = True, b""
            return data[: min(found)[1]]  # before the one that was complete first
        n = min(len(data), max((len(stop) - 1 for stop in self._stops), default=0))
        while n and not any(stop.startswith(data[-n:]) for stop in self._stops if n < len(stop)):
            n -= 1
        self._held = data[len(data) - n :]
        return data[: len(data) - n]


def begin(
    model: "Any",
    tokens: list[int],
    base: "Any" = None,
    capacity: int | None = None,
    max_tokens: int | None = None,
    kv: str | None = None,
    directory: str | None = None,
    name: str = "prompt",
) -> "Any":
    """The cache of `base` (a Snapshot or None) and `tokens` after it, with the logits after the
    last: what generation goes on from.

    In memory, or with `directory` a Snapshot there, to be sealed. Its capacity is the one asked
    for, or else that of `base` where no tokens follow it, or else the context's, but where
    `max_ids` is known no more than prefill would give it (or max_ids need). DataError where the
    tokens do not fit, or there are none.
    """
    n_base, limit = base.n_tok if base else 0, rooms.limit(model.hparams.n_ctx, capacity)
    if base and not (tokens or capacity):
        limit = base.capacity
    n = n_base + len(tokens)
    if not n:
        raise data_error(name, "no tokens: nothing to run")
    if n > limit:
        raise data_error(name, f"{n} tokens, more than {limit}{rooms.remedy(limit, capacity)}")
    if base and kv and model.geometry(kv) != base.geometry:
        raise data_error("the snapshot", f"its keys and values are not {kv} (see --kv)")
    is_exact = capacity or not tokens or max_tokens is None
    rows = limit if is_exact else rooms.rows(n, limit, max_tokens or 0)
    geometry = base.geometry if base else model.geometry(kv or "f16")
    if directory is None:
        cache: Any = Scratch(geometry, rows, logits=True)
    else:
        cache = Snapshot.create(geometry, rows, model.file.id, model.arithmetic, directory)
    model.fill(cache, base, tokens)
    return cache
