"""GGUF to a llama2.c checkpoint and its vocabulary."""

from __future__ import annotations

import os

from ..cli import progress
from .llama2c import write as to


def run(source: str, out: str, version: int, vocab_out: str | None, verbose: bool) -> None:
    """Convert the GGUF `source` to the checkpoint `out` of `version`, and its vocabulary to
    `vocab_out`.
    """
    clock = progress.Clock()
    file, c = to.source(source)
    words = to.vocab(file) if vocab_out else None
    with progress.shown(
        os.path.basename(out), sum(t.n_elements for t in file.tensors.values())
    ) as tell:
        to.write(out, file, c, version, tell)
    if vocab_out and words:
        to.write_vocab(vocab_out, *words, c)
    if verbose:
        clock.report(out, len(file.tensors))
