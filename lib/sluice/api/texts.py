"""Texts that go through a model in groups: vectors, and the order of texts by a query."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from ..classify import many
from ..classify.writers import why
from ..embed import prompt as prompts
from ..embed.embedder import Embedder
from ..faults import BAD_DATA, Error, data_error
from ..rerank.ranking import YES
from ..rerank.reranker import Reranker
from ..texts import sources
from ..texts.sources import Item
from .arguments import Path, Text, as_bytes, named
from .closable import engine_lock


class Ranked(NamedTuple):
    """A text in the order that Model.rerank found."""

    place: int
    """Its index among the texts."""
    score: float
    """The probability that it answers the query."""


class Vectors(Iterator["memoryview[float]"]):
    """An iterator of vectors; see Model.embed_many."""

    def __init__(self, embedder: Embedder, texts: Iterable[Text]) -> None:
        self._answers = _Answers(embedder, texts)

    def __next__(self) -> memoryview[float]:
        return memoryview(self._answers.next(3).values).cast("f")


def vector(embedder: Embedder, text: Text) -> memoryview[float]:
    """Return the vector of a text. Raises its error."""
    return memoryview(_Answers(embedder, [text], "text").next(4).values).cast("f")


def ranked(reranker: Reranker, texts: Iterable[Text], top: int | None) -> list[Ranked]:
    """Return the `top` best of `texts`, or all, the best first. Raises the first error."""
    answers, found = _Answers(reranker, texts), []
    while True:
        try:
            found.append(Ranked(len(found), answers.next(4).scores[YES]))
        except StopIteration:
            return sorted(found, key=lambda one: -one.score)[:top]


def prompt_of(prompt: Path | Mapping[str, str] | None) -> prompts.Prompt:
    """Return what stands around texts: of a bundled prompt, a file, or the keys of one."""
    if prompt is None:
        return prompts.Prompt()
    if isinstance(prompt, Mapping):
        return prompts.parse(dict(prompt), "prompt")
    return prompts.read(named(prompt))


class _Answers:
    """What a model finds of texts, one after the other. name: of a text in messages, by its index.

    Texts are fetched in groups, and not under the lock: they may come from a thread that needs it.
    """

    def __init__(
        self, answering: many.Answering, texts: Iterable[Text], name: str = "texts[{}]"
    ) -> None:
        if isinstance(texts, str | bytes):
            raise TypeError("texts: is one text, not several")
        self._answering = answering
        self._groups = iter(sources.groups(_items(iter(texts), name)))
        self._found: Iterator[tuple[Item, Any]] = iter(())

    def next(self, level: int) -> Any:
        """Return what was found of the next text. Raises its error, or StopIteration.

        level: of the stack, to which a warning about a text that was cut points.
        """
        while True:
            with engine_lock:
                try:
                    pair = next(self._found, None)
                except BaseException:  # not about a text: the rest of its group has no answers
                    self._groups = iter(())
                    raise
            if pair:
                break
            self._fetch()
        item, found = pair
        if isinstance(found, Error):
            raise Error(BAD_DATA, why(item, found))
        if isinstance(found, BaseException):
            raise found
        if found.cut:
            problem = f"{item.name}: longer than the context; its end was dropped"
            warnings.warn(problem, RuntimeWarning, level)
        return found

    def _fetch(self) -> None:
        items = next(self._groups)
        with engine_lock:
            self._answering.prepare()
            self._found = iter(zip(items, many.found_of(self._answering, items)))


def _items(texts: Iterator[Text], name: str) -> Iterator[Item]:
    """Yield an Item for each text, with its error if it is none; at the end that of `texts`."""
    for n in itertools.count():
        item = Item(name.format(n), None)
        try:
            text = next(texts)
        except StopIteration:
            return
        except Exception as e:
            item.error = e
            yield item
            return
        try:
            item.data = as_bytes(text)
        except TypeError as e:
            item.error = TypeError(f"{item.name}: {e}")
        except UnicodeEncodeError as e:
            item.error = e
            e.reason = f"{item.name}: {e.reason}"
        if item.data == b"":
            item.data, item.error = None, data_error("input", "no text: it is empty")
        yield item
