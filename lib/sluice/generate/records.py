"""Decode loop: append a token, compute the logits after it, yield them as a record.

`decode` runs it on the tokens of a stream, generation.Generation on the tokens it samples.
"""

import time
from array import array

from .. import stream
from ..faults import Error
from ..kernels import ffi, lib
from ..model.forward import Forward

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator
    from typing import Any

    from ..model.model import Model
    from .speculation import Speculation


MIN_BATCH = 4  # tokens that take less time in one pass than one by one
FEW = 4  # rows of the head are computed alone if they are a FEW-th of all, at most


class Waiting(stream.Record):
    """A record of a Decoder, whose logits are computed when its payload is read.

    It must be read, or left unread, before the next record is asked for. ids: int32_t[] of its
    candidates if they are few; allowed: their set, or None for all tokens.
    """

    __slots__ = ("_decoder", "_allowed", "_ids", "_read")

    def __init__(
        self,
        decoder: "Decoder",
        kind: bytes,
        pos: int,
        prev: int,
        allowed: "Any" = None,
        ids: "Any" = None,
    ) -> None:
        self.kind, self.flags, self.pos, self.prev = kind, 0, pos, prev
        self._decoder, self._allowed, self._ids = decoder, allowed, ids
        self._read: Any = None

    @property
    def is_waiting(self) -> bool:
        """Whether the payload needs a pass through the layers first."""
        return self._read is None and bool(self._decoder.pending)

    @property
    def payload(self) -> "Any":
        """The payload, computed if need be."""
        if self._read is None:
            self._read = self._decoder.payload(self._allowed, self._ids)
        return self._read

    def narrow(self, allowed: "Any") -> "stream.Record | None":
        """Return the record with the tokens of `allowed`, a mask of the grammar; None without."""
        found, n_vocab = self._decoder.few, self._decoder.model.hparams.n_vocab
        n = lib.tokens_of_mask(found, len(found), allowed, n_vocab)
        if n == 0:
            return None
        if n == 1:
            return self.only(found[0])
        ids = ffi.new("int32_t[]", n) if n > 0 else None
        if ids:
            ffi.memmove(ids, found, 4 * n)
        return Waiting(self._decoder, b"C", self.pos, self.prev, allowed, ids)

    def only(self, token: int) -> "stream.Record":
        """Return the record with one candidate. Its logit decides nothing, so it is 0."""
        return stream.Record(b"C", 0, self.pos, self.prev, stream.CANDIDATE.pack(token, 0.0))


class Decoder:
    """Decodes one token after another. Its records are those of `decode`.

    A token is read when the logits after it are needed. So tokens that leave no choice are read
    together with the one before the next choice, and of that the logits of the candidates alone,
    if they are few.

    model: model.Model. cache: a Snapshot or Scratch with logits; tokens are appended to it.
    eog: tokens that end the text. keep: the cache will be saved or continued, so at the end every
    token is in it, with all logits. rows: ascending tokens; only their logits are computed, as C
    records. None: all, as L records. speculation: guesses the next tokens, or None.

    n_left: how many tokens may follow the one that is read next; None: no limit. May be set.
    pending: tokens that have not been read yet.
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
        self._eog, self._forward = eog, Forward(model.hparams, cache)
        self._wide: Forward | None = None  # for passes of several tokens
        self._rows = ffi.new("int32_t[]", rows) if rows else None
        # a wrong guess is cut off the cache, which states cannot be
        self._speculation = None if rows or model.hparams.n_state else speculation
        self.n_left: int | None = None
        self.pending: list[int] = []
        self._few: Any = None
        self._out: Any = None  # candidates of a payload
        # logits after the last token that was read: all (float *), or None; those of some tokens
        self._logits: Any = cache.logits
        self._some: Any = None
        self._state: Any = None  # (Forward, hidden state) of that token, to compute all from
        # guesses that were read behind it, and the logits after each; how many of them came
        self._ahead: list[int] = []
        self._ahead_logits: Any = None
        self._n_taken = 0

    @property
    def few(self) -> "Any":
        """An int32_t[] for the tokens of a set, as many as are few."""
        if self._few is None:
            self._few = ffi.new("int32_t[]", max(1, self.model.hparams.n_vocab // FEW))
        return self._few

    @property
    def n_tok(self) -> int:
        """Tokens of the text, those that have not been read included."""
        return int(self.cache.n_tok) + len(self.pending)

    @property
    def is_whole(self) -> bool:
        """Whether the cache has the logits after its last token."""
        return self._logits is not None and self._logits == self.cache.logits

    def records(
        self, chosen: "Iterable[tuple[int, bool]]", prev: int = -1
    ) -> "Iterator[stream.Record]":
        """Yield a stream.Record of logits for the tokens in the cache, one after each
        further token, then E.

        chosen: iterator of (token, is_needed), advanced after each record: the token chosen
        from the record, and whether the logits after that token are needed. If not, the
        payload of the next record is undefined. prev: that of the first record, -1 unless a text
        goes on in a cache that was filled anew. The E record is flagged FULL if the cache has no
        free position for the last token. DataError if logits are not finite.
        """
        pos, flags = self.cache.n_tok, 0
        self.pending, self._ahead, self._n_taken = [], [], 0
        self._logits, self._some, self._state = self.cache.logits, None, None
        yield Waiting(self, self._kind, pos, prev)
        for token, is_needed in chosen:
            ends = token in self._eog
            prev, pos = token, pos + 1
            # EOG needs no position in the cache
            if self.n_tok == self.cache.capacity and (self.keep or not ends):
                flags = stream.FULL
                break
            if self.keep or is_needed and not ends:
                self.append(token)
            if ends:
                break
            yield Waiting(self, self._kind, pos, prev)
        self.settle()
        yield stream.Record(b"E", flags, pos, prev, b"")

    @property
    def _kind(self):
        return b"C" if self._rows else b"L"

    def append(self, token: int) -> None:
        """Append `token` to the text."""
        cache, i = self.cache, self._n_taken
        if not self.pending and i < len(self._ahead) and self._ahead[i] == token:
            if self._speculation:
                self._speculation.was_right(cache.tokens, cache.n_tok, token)
            cache.tokens[cache.n_tok] = token
            cache.n_tok += 1
            self._logits = self._ahead_logits + i * self.model.hparams.n_vocab
            self._n_taken, self._state = i + 1, None
            return
        self._ahead, self._n_taken = [], 0
        self.pending.append(token)

    def settle(self) -> None:
        """With `keep`, read what is pending, so that the cache has all logits after it."""
        if not self.keep:
            return
        if self.pending:
            self._read(None)
        if self._logits is None:
            f, x = self._state
            self.model.head(f, x, self.cache.logits)
            self._logits = self.cache.logits
        self._keep_logits()

    def serve(self, logits: "Any") -> None:
        """Take `logits` (float *, [n_vocab]) after the pending tokens, whose keys and values are in
        the cache already.
        """
        cache, n = self.cache, len(self.pending)
        cache.tokens[cache.n_tok : cache.n_tok + n] = array("i", self.pending)
        cache.n_tok += n
        self.pending, self._logits, self._some, self._state = [], logits, None, None
        self._keep_logits()

    def payload(self, allowed: "Any", ids: "Any") -> "Any":
        """Return the payload of a Waiting record."""
        n_vocab = self.model.hparams.n_vocab
        if ids is None and self._rows:
            ids = self._rows
        if self.pending:
            self._read(ids)
        if allowed is None and not self._rows:
            return ffi.buffer(self._all(), 4 * n_vocab)
        if self._out is None:
            self._out = ffi.new("candidate[]", n_vocab)
        if self._some is None and allowed is not None:
            n = lib.candidates_of_dense(self._out, self._all(), allowed, n_vocab)
        else:
            n = len(ids)
            if self._some is None:
                logits = self._all()
                self._some = ffi.new("float[]", [logits[i] for i in ids])
            lib.candidates_of_rows(self._out, ids, self._some, n)
        return ffi.buffer(self._out, n * ffi.sizeof("candidate"))[:]

    def _all(self):
        """Return all logits after the last token, float * [n_vocab]."""
        if self._logits is None:
            f, x = self._state
            self.model.head(f, x, self.cache.logits)
            self._logits = self.cache.logits
        return self._logits

    def _keep_logits(self):
        if self._logits != self.cache.logits:
            ffi.memmove(self.cache.logits, self._logits, 4 * self.model.hparams.n_vocab)
            self._logits = self.cache.logits

    def _read(self, ids):
        """Read the pending tokens, and compute the logits after them: of all tokens, or of `ids`
        (int32_t[]).
        """
        began, m, cache = time.perf_counter(), self.model, self.cache
        tokens, self.pending = self.pending, []
        n = len(tokens)
        self._ahead, self._n_taken, self._logits, self._some = [], 0, None, None
        if n == 1 and self._speculation and self._read_ahead(tokens[0], began):
            return
        if n < MIN_BATCH:
            f = self._forward
            for token in tokens:
                _, x = m.extend(cache, [token], f=f)
        else:
            f, x = m.extend(cache, tokens, f=self._wide_forward())
        self._state = f, x
        if ids is None:
            m.head(f, x, cache.logits)
            self._logits = cache.logits
        else:
            self._some = ffi.new("float[]", len(ids))
            m.head(f, x, self._some, ids)
        if self._speculation and n == 1:
            self._speculation.took(0, time.perf_counter() - began)

    def _read_ahead(self, token, began):
        """Read `token` in one pass with guesses of the next ones, and compute the logits after
        each. Returns whether there were guesses.
        """
        cache, m = self.cache, self.model
        room = cache.capacity - cache.n_tok - 1
        if self.n_left is not None:
            room = min(room, self.n_left)
        guesses = self._speculation.guess(cache.tokens, cache.n_tok, token, room)
        ends = next((i for i, guess in enumerate(guesses) if guess in self._eog), len(guesses))
        guesses = guesses[:ends]  # nothing is read behind an end
        if not guesses:
            return False
        f, tokens = self._wide_forward(), [token, *guesses]
        cache.reserve(cache.n_tok + len(tokens))
        x = m.forward(f, tokens, cache.n_tok, len(tokens))
        try:
            y = m.head_rows(f, x, 0, len(tokens))
        except Error:  # a logit that is not finite, perhaps of a guess
            return False
        self._speculation.took(len(guesses), time.perf_counter() - began)
        cache.tokens[cache.n_tok] = token
        cache.n_tok += 1
        self._logits, self._state = y.p, None
        self._ahead, self._ahead_logits = guesses, y.p + y.n
        return True

    def _wide_forward(self):
        if self._wide is None:
            self._wide = Forward(self.model.hparams, self.cache)
        return self._wide
