"""A message of a conversation."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .tools import Call

ROLES = ("system", "user", "assistant", "tool")


class Message:
    """A message of a conversation.

    role: one of ROLES. content: str.
    tokens: the tokens that the model generated, for its own answers; else None.
    calls: the calls of tools (Call) in an answer. A message of role tool has the result of
    the call with the ID call_id, of the tool `name`; either may be "".
    """

    __slots__ = ("role", "content", "tokens", "calls", "call_id", "name")

    def __init__(
        self,
        role: str,
        content: str,
        tokens: list[int] | None = None,
        calls: "tuple[Call, ...]" = (),
        call_id: str = "",
        name: str = "",
    ) -> None:
        self.role, self.content, self.tokens = role, content, tokens
        self.calls, self.call_id, self.name = calls, call_id, name
