"""Lengths of a prompt at which other prompts may part from it: where copies of states are worth
their memory, since a state cannot be cut back.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Container, Sequence


def landmarks(tokens: "Sequence[int]", ends: "Container[int]") -> list[int]:
    """Return the numbers of tokens up to the first message's end, the system prompt, and up to the
    last one's: before the beginning of an answer, which templates change in the next turn. ends:
    tokens that end a message.
    """
    found = [i for i, token in enumerate(tokens, 1) if token in ends]
    return sorted({found[0], found[-1]}) if found else []
