"""Prompt cache: what a prompt shares with earlier ones is not processed again.

It is the directory of `prefill --cache` (kvcache/prefix_cache.py). A prompt starts from the stored
snapshot that begins with the most of its tokens, even if that goes on with others. The part of a
prompt that will come again is its `stable` one: all of a plain prompt; of a conversation the tokens
before the last message. It is stored if that spares a later run MIN_TOKENS tokens or more. A model
that keeps states starts from snapshots alone of which the prompt has all tokens. No bit of a result
depends on what is stored.
"""

from ..faults import BAD_DATA, Error
from ..kvcache import capacity as capacities
from ..kvcache import prefix_cache
from ..kvcache.format import Layout
from ..kvcache.snapshot import Snapshot

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from ..model.model import Model

MIN_TOKENS = 32  # storing fewer costs more than processing them
# A stored snapshot has the capacity of the whole context, so that a process can generate in its map
# of the file, if the file then has at most this size. Only the bytes of tokens take disk space.
MAX_SPARSE_BYTES = 1 << 33


class Interrupted(Exception):
    """The user stopped the processing of a prompt."""


class PromptCache:
    """The prompts in `directory`, which is created if absent, up to `max_bytes` of disk.

    report: called with lines about files that are damaged, or cannot be written. n_known: tokens of
    the last prompt that were not processed.

    Raises Error 73 or 75 if the directory cannot be created or trusted.
    """

    def __init__(
        self,
        directory: str,
        max_bytes: int = prefix_cache.MAX_BYTES,
        report: "Callable[[str], object]" = lambda line: None,
    ) -> None:
        prefix_cache.prepare(directory)
        self.directory, self.max_bytes, self._report = directory, max_bytes, report
        self.n_known = 0

    def find(
        self,
        model: "Model",
        geometry: "Any",
        tokens: "Sequence[int]",
        stable: int,
        limit: int,
        base: "Snapshot | None" = None,
        interrupted: "Callable[[], bool]" = lambda: False,
    ) -> "tuple[Snapshot | None, int]":
        """Return a Snapshot whose first n tokens are those of `tokens`, and n; or (None, 0).

        Its logits are those after token n if n is the length of `tokens`. The stable part of
        `tokens`, the first `stable`, is processed and stored first if it is new. limit: tokens of
        the context. base: an opened Snapshot to start from, if the directory has nothing longer.

        What cannot be written is reported, and the prompt is not stored. Raises Interrupted, and
        DataError as Model.run.
        """
        ours = self.directory, model.file.id, model.arithmetic, geometry, tokens, self._report
        if geometry.states:  # they are those after the last token
            known = prefix_cache.find(*ours)
            n = known.n_tok if known else 0
        else:
            known, n = prefix_cache.find_common(*ours)
        if known and n == len(tokens) < known.n_tok:
            n -= 1  # its logits are those after other tokens
        if base and base.n_tok >= n:
            known, n = base, base.n_tok
        self.n_known = n
        if stable - n < MIN_TOKENS:
            return (known, n) if n else (None, 0)
        try:
            made = self._made(model, geometry, tokens[:stable], limit, known, n, interrupted)
            prefix_cache.store(self.directory, made, self.max_bytes)
        except Error as e:
            if e.code == BAD_DATA:
                raise
            self._report(f"{e}; the prompt is not stored")
            return (known, n) if n else (None, 0)
        return made, stable

    def _made(self, model, geometry, tokens, limit, known, n, interrupted):
        """Return a Snapshot in the directory, to be stored, of `tokens`; the first n of `known`."""
        rows = limit
        if Layout(geometry, rows).file_bytes > MAX_SPARSE_BYTES:
            rows = capacities.rows(len(tokens), limit)
        made = Snapshot.create(geometry, rows, model.file.id, model.arithmetic, self.directory)
        made.reserve(len(tokens))
        if n:
            made.copy_rows_from(known, n)
        for f, x, _ in model.run(made, list(tokens[n:]), 1):
            if interrupted():
                raise Interrupted
        model.head(f, x, made.logits)
        model.file.check_unchanged()
        return made
