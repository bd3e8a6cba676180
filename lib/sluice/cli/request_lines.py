"""`generate --jsonl`: the requests on stdin, from the command's options to their answers."""

from __future__ import annotations

import functools
import time
from typing import Any

import click

from .. import faults, stream
from ..chat import renderings, template
from ..generate import batch, prompt_cache, requests
from ..messages import report
from ..tokenizer import vocabulary
from .keys import Keys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..chat import tools
    from ..grammar import matcher
    from ..model.model import Model


def answer(
    m: Model,
    grammar: matcher.Grammar | None,
    capacity: int | None,
    kv: str,
    kept: prompt_cache.PromptCache | None,
    n_parallel: int,
    is_chat: bool,
    special: bool,
    system: str | None,
    template_path: str | None,
    variables: dict[str, Any],
    verbose: bool,
    its_tools: list[tools.Tool],
    choice: str,
    note: Any,
) -> None:
    """Answer the requests of --jsonl on stdin. Raises DataError at the end if some were wrong, and
    Exit(1) if a text was cut before its grammar was complete.
    """
    began, words = time.monotonic(), vocabulary.Vocab(m.file)
    keys = Keys(click.get_current_context(), ("max_tokens", "stops", "complete"))

    @functools.cache
    def its_template() -> template.Template:
        found = template.of(m.file, words, template_path, variables)
        found.renderings = renderings.Renderings(kept.directory if kept else None)
        return found

    texts = batch.Batch(m, words, n_parallel, capacity, kv, kept)
    arriving = requests.Arriving(
        0,
        requests.Requests(
            *(m, words, keys.defaults(), keys.convert, its_template),
            *(texts.limit, grammar, is_chat, special, system),
            *(its_tools, choice, note),
        ),
        functools.partial(stream.write_all, 1),
        4 * n_parallel,
    )
    n_tokens = n_forced = 0
    for text in batch.run(texts, arriving, 2 * n_parallel):
        n_tokens += text.n_tokens
        n_forced += text.n_forced
        arriving.ended(text)
    m.file.check_unchanged()
    if verbose:
        report(
            requests=arriving.n,
            tokens=n_tokens,
            forced=n_forced,
            reused=texts.n_reused,
            ms=1e3 * (time.monotonic() - began),
        )
    if arriving.n_bad:
        raise faults.data_error(
            "standard input",
            f'{arriving.n_bad} of {arriving.n} requests have no text; their objects have "error"',
        )
    if arriving.n_cut:
        raise click.exceptions.Exit(1)
