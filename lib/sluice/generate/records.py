"""Decode loop: append a token, compute the logits after it, yield them as a record.

`decode` runs it on the tokens of a stream, generation.Generation on the tokens it samples.
"""

import time

from .. import stream
from ..faults import Error
from ..kernels import ffi
from ..model.forward import Forward

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator
    from typing import Any

    from ..model.model import Model
    from .speculation import Speculation


class Decoder:
    """Decodes one token after another. Its records are those of `decode`.

    model: model.Model. cache: a Snapshot or Scratch with logits; each token is appended to it.
    eog: tokens that end the text. keep: the cache will be saved or continued, so every token
    enters it with all logits. rows: ascending tokens; only their logits are computed, as C
    records. None: all, as L records. speculation: guesses the next tokens, or None.

    n_left: how many tokens may follow the one that is read next; None: no limit. May be set.
    """

    def __init__(
        self,
        model: "Model",
        cache: "Any",
        eog: "Container[int]",
        keep: bool = False,
        rows: list[int] | None = None,
        speculation: "Speculation | None" = None,
    ) -> None:
        self.model, self.cache, self.keep = model, cache, keep
        self._eog, self._rows, self._forward = eog, rows, Forward(model.hparams, cache)
        self._picked = self._some = None  # `rows` for C, and the array of their logits
        if rows and not keep:
            self._picked, self._some = ffi.new("int32_t[]", rows), ffi.new("float[]", len(rows))
        # tokens whose logits were computed ahead, and how many of them came
        self._ahead: list[int] = []
        self._ahead_logits: Any = None
        self._n_taken = 0
        self._speculation = None if rows else speculation
        self._wide: Forward | None = None  # for passes with guesses
        self.n_left: int | None = None
        self._values = None  # logits of `rows`, if they are not in the cache

    def records(
        self, chosen: "Iterable[tuple[int, bool]]", prev: int = -1
    ) -> "Iterator[stream.Record]":
        """Yield a stream.Record of logits for the tokens in the cache, one after each
        further token, then E.

        chosen: iterator of (token, is_needed), advanced after each record: the token chosen
        from the record, and whether the logits after that token are needed. If not, the
        next record has the logits of the one before it, but its own header and flags. prev: that
        of the first record, -1 unless a text goes on in a cache that was filled anew. The E
        record is flagged FULL if the cache has no free position for the last token.
        DataError if logits are not finite.
        """
        pos, flags, self._ahead, self._n_taken = self.cache.n_tok, 0, [], 0
        yield self._record(pos, prev)
        for token, is_needed in chosen:
            ends = token in self._eog
            prev, pos = token, pos + 1
            # EOG needs no position in the cache
            if self.cache.n_tok == self.cache.capacity and (self.keep or not ends):
                flags = stream.FULL
                break
            if self.keep or is_needed and not ends:
                self.read(token)
            if ends:
                break
            yield self._record(pos, prev)
        yield stream.Record(b"E", flags, pos, prev, b"")

    def read(self, token: int) -> None:
        """Append `token` to the cache, and compute the logits after it, unless that was done."""
        if self._take(token) or self._read_ahead(token):
            return
        began = time.perf_counter()
        _, x = self.model.extend(self.cache, [token], f=self._forward)
        self._values = self._some
        self.model.head(self._forward, x, self._some or self.cache.logits, self._picked)
        if self._speculation:
            self._speculation.took(0, time.perf_counter() - began)

    def _read_ahead(self, token):
        """Append `token` as `read` does, in one pass with guesses of the next ones. Returns whether
        there were guesses.
        """
        if not self._speculation:
            return False
        cache, m = self.cache, self.model
        room = cache.capacity - cache.n_tok - 1
        if self.n_left is not None:
            room = min(room, self.n_left)
        guesses = self._speculation.guess(cache.tokens, cache.n_tok, token, room)
        ends = next((i for i, guess in enumerate(guesses) if guess in self._eog), len(guesses))
        guesses = guesses[:ends]  # nothing is read behind an end
        if not guesses:
            return False
        if self._wide is None:
            self._wide = Forward(m.hparams, cache)
        began, tokens = time.perf_counter(), [token, *guesses]
        cache.reserve(cache.n_tok + len(tokens))
        x = m.forward(self._wide, tokens, cache.n_tok, len(tokens))
        try:
            y = m.head_rows(self._wide, x, 0, len(tokens))
        except Error:  # a logit that is not finite, perhaps of a guess
            return False
        self.serve(tokens, y.p)
        self._speculation.took(len(guesses), time.perf_counter() - began)
        return self._take(token)

    def needs(self, token: int) -> bool:
        """Whether the logits after `token`, the next one, can be computed for `serve`."""
        return token not in self._eog and self.cache.n_tok < self.cache.capacity

    def serve(self, tokens: list[int], logits: "Any") -> None:
        """Give the logits (float *, [len(tokens)][n_vocab]) after each of `tokens`, perhaps the
        next ones. Their keys and values are in the cache already, behind its own tokens. Valid
        until a token that is read is another one.
        """
        self._ahead, self._ahead_logits, self._n_taken = tokens, logits, 0

    def _take(self, token):
        """Append `token` if it was served. Returns whether it was."""
        i = self._n_taken
        if i == len(self._ahead) or self._ahead[i] != token:
            self._ahead, self._n_taken = [], 0
            return False
        n_vocab, cache = self.model.hparams.n_vocab, self.cache
        if self._speculation and i:
            self._speculation.was_right(cache.tokens, cache.n_tok, token)
        ffi.memmove(cache.logits, self._ahead_logits + i * n_vocab, 4 * n_vocab)
        cache.tokens[cache.n_tok] = token
        cache.n_tok += 1
        self._n_taken, self._values = i + 1, None
        return True

    def _record(self, pos, prev):
        logits = self.cache.logits
        if not self._rows:
            payload = ffi.buffer(logits, 4 * self.model.hparams.n_vocab)
            return stream.Record(b"L", 0, pos, prev, payload)
        values = self._values or [logits[i] for i in self._rows]
        payload = b"".join(map(stream.CANDIDATE.pack, self._rows, values))
        return stream.Record(b"C", 0, pos, prev, payload)
