"""Prompts of conversations, and the calls of tools in answers to them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ..chat import messages as conversations
from ..chat import tools
from ..chat.message import Message
from ..faults import data_error
from .arguments import as_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..chat.calling import Calling


class Call(NamedTuple):
    """A call of a tool. Nothing is executed."""

    name: str
    """The name of the tool."""
    json: str
    """The arguments as the model wrote them: a JSON object that satisfies the tool's schema."""
    id: str
    """What names the call in a message of role tool, as "tool_call_id"."""

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments. Raises DataError if they are nested more than 100 levels deep."""
        try:
            return tools.arguments_of(self.json)
        except ValueError as e:
            raise data_error(f"arguments of {self.name}", str(e)) from None


class ChatPrompt(list[int]):
    """The tokens of a conversation, made by Model.chat_prompt: a list of int.

    It knows the tools that its answer may call, which a slice or a copy does not, and with tools
    keeps the model's file open, as a Generation does.
    n_messages: int, messages of the conversation.
    """

    def __init__(self, tokens: Iterable[int], n_messages: int, calling: Calling | None) -> None:
        super().__init__(tokens)
        self.n_messages, self._calling = n_messages, calling

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy, also one for another process, is a list."""
        return list, (list(self),)


def messages_of(messages: Iterable[Mapping[str, Any]]) -> list[Message]:
    """Return the messages of the argument `messages`. Raises DataError, TypeError, ValueError."""
    given = None if isinstance(messages, str | bytes | Mapping) else list(messages)
    if given is None or not all(isinstance(message, Mapping) for message in given):
        raise TypeError("messages: is not a list of objects with role and content")
    found = [dict(message) for message in given]
    for message in found:
        if "tool_calls" in message:
            message["tool_calls"] = as_json("messages: tool_calls", message["tool_calls"])
    return conversations.of_list(found, "messages")


def tools_of(
    given: Iterable[Mapping[str, Any]], choice: str | None
) -> tuple[list[tools.Tool], str]:
    """Return the tools and the choice of the arguments `tools` and `tool_choice`.

    Raises DataError, TypeError, ValueError.
    """
    entries = as_json("tools", list(given))
    if not entries:
        if choice is not None:
            raise ValueError("tool_choice: needs tools")
        return [], "auto"
    found = tools.of_list(entries, "tools")
    try:
        return found, tools.choice_of(choice or "auto", found)
    except ValueError as e:
        raise ValueError(f"tool_choice: {e}") from None
