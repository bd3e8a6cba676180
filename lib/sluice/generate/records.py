"""The loop of generation: read an id, compute the logits after it, yield them as a record.

`decode` runs it on the tokens of a stream, `generation.Generation` on those it chooses itself.
"""

from .. import stream
from ..kernels import ffi
from ..model.forward import Forward

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator
    from typing import Any

    from ..model.model import Model


class Decoder:
    """A model that reads one id after another; the records are those that `decode` writes.

    model: model.Model. cache: a Snapshot or Scratch with logits, which grows by each id.
    eog: tokens that end the text.
    keep: the cache will be saved or continued, so it takes every id with all logits after it.
    rows: ascending tokens whose logits alone are computed, as C records; None: all, as L records.
    """

    def __init__(
        self,
        model: "Model",
        cache: "Any",
        eog: "Container[int]",
        keep: bool = False,
        rows: list[int] | None = None,
    ) -> None:
        self.model, self.cache, self.keep = model, cache, keep
        self._eog, self._rows, self._forward = eog, rows, Forward(model.hparams, cache)
        self._picked = self._some = None  # `rows` for C, and where their logits go
        if rows and not keep:
            self._picked, self._some = ffi.new("int32_t[]", rows), ffi.new("float[]", len(rows))
        self._values = None  # of `rows`, where the cache's logits are not theirs

    def records(self, given: "Iterable[tuple[int, bool]]") -> "Iterator[stream.Record]":
        """Yield a stream.Record of logits for what the cache holds and one after each id, then E.

        given: iterator of (id, is_asked), read after each record: the id that was chosen from it,
        and whether the logits after that id are needed. Where they are not, the next record has
        the logits of the one before it: its head and a grammar's marks are right.
        The E record is flagged FULL where the cache has no room for the last id.
        DataError where logits are not finite.
        """
        pos, prev, flags = self.cache.n_tok, -1, 0
        yield self._record(pos, prev)
        for id, is_asked in given:
            ends = id in self._eog
            prev, pos = id, pos + 1
            # the end of a text needs no room
            if self.cache.n_tok == self.cache.capacity and (self.keep or not ends):
                flags = stream.FULL
                break
            if self.keep or is_asked and not ends:
                self.read(id)
            if ends:
                break
            yield self._record(pos, prev)
        yield stream.Record(b"E", flags, pos, prev, b"")

    def read(self, id: int) -> None:
        """Take `id` into the cache, with the logits after it."""
        _, x = self.model.extend(self.cache, [id], f=self._forward)
        self._values = self._some
        self.model.head(self._forward, x, self._some or self.cache.logits, self._picked)

    def _record(self, pos, prev):
        logits = self.cache.logits
        if not self._rows:
            payload = ffi.buffer(logits, 4 * self.model.hparams.n_vocab)
            return stream.Record(b"L", 0, pos, prev, payload)
        values = self._values or [logits[i] for i in self._rows]
        payload = b"".join(map(stream.CANDIDATE.pack, self._rows, values))
        return stream.Record(b"C", 0, pos, prev, payload)
