"""Generation: an iterator of the text that follows a prompt."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any

from ..chat.conversation import with_calls
from ..chat.message import Message
from ..chat.messages import as_dict
from ..generate import generation as engine
from .chat import Call
from .closable import engine_lock


class Generation(Iterator[str]):
    """An iterator of the generated text; see Model.generate.

    tokens: list of int, the tokens generated so far.
    reason: why the text ended; None before the end.
        "stop": an EOG token, a stop text, or the grammar is complete
        "length": max_tokens
        "full": the context is full
        "cut": max_tokens or the full context, before the grammar was complete; `generate` exits
        with 1
    n_prompt: int, tokens of the prompt.
    seed: int, the RNG seed.
    closed: int, the last tokens, which `complete` added.
    calls: list of Call, of a prompt with tools. [] before the end, or if the text was cut within
    one.
    message: dict, the answer so far, to be appended to the messages of a conversation.
    """

    def __init__(
        self,
        file: Any,
        steps: engine.Generation,
        text: engine.Answer,
        max_tokens: int | None,
        seed: int,
        n_prompt: int,
        complete: bool = False,
        n_messages: int = 0,
    ) -> None:
        self.tokens: list[int] = []
        self.seed, self.n_prompt = seed, n_prompt
        self._text: list[str] = []
        self._pieces = _pieces(steps, max_tokens, text, self.tokens, self._text, file, complete)
        self._steps, self._answer, self._n_messages = steps, text, n_messages

    @property
    def reason(self) -> str | None:
        """Why the text ended; None before the end."""
        reason: str | None = self._steps.reason
        return reason

    @property
    def closed(self) -> int:
        """Number of tokens that completed the text."""
        n: int = self._steps.n_closed
        return n

    @property
    def calls(self) -> list[Call]:
        """The calls of tools at the end of the answer."""
        return [Call(call.name, call.arguments, call.id) for call in self._said().calls]

    @property
    def message(self) -> dict[str, Any]:
        """The answer as a message: role, content, and tool_calls if there are any."""
        return as_dict(self._said())

    def _said(self) -> Message:
        said = Message("assistant", "".join(self._text))
        return with_calls(said, self._answer, self._n_messages) if self.reason else said

    def __iter__(self) -> Generation:
        return self

    def __next__(self) -> str:
        with engine_lock:
            return next(self._pieces)

    def close(self) -> None:
        """Stop generating, and release the memory."""
        with engine_lock:
            self._pieces.close()


def _pieces(
    steps: engine.Generation,
    max_tokens: int | None,
    text: engine.Answer,
    chosen: list[int],
    said: list[str],
    file: Any,
    complete: bool,
) -> Generator[str, None, None]:
    """Yield the text that `steps` generates, and append its tokens to `chosen` and it to
    `said`.

    A function, not a method: a reference from the generator to the Generation would keep both, and
    the model, alive.
    """
    for token in _tokens(steps, max_tokens, complete):
        chosen.append(token)
        if piece := text.add(token):
            said.append(piece.decode())
            yield said[-1]
        if text.stopped:
            steps.finish("stop")
            break
    if rest := text.remainder():
        said.append(rest.decode())
        yield said[-1]
    file.check_unchanged()


def _tokens(steps: engine.Generation, max_tokens: int | None, complete: bool) -> Iterator[int]:
    yield from steps.tokens(max_tokens)
    if complete and steps.reason == "cut":
        yield from steps.closing()
