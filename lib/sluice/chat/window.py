"""The part of a conversation that fits into the context.

A prompt leaves a quarter of the context for the answer, or `max_tokens` if that is less. If the
context is too small for that, the oldest messages are dropped from the prompt, up to the next one
of the same role; a leading system message stays.
"""

from ..faults import Error, data_error
from .message import Message

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from .template import Prompt, Template


class Window:
    """What fits of conversations that only grow, in a context of `capacity` tokens.

    speaker: the role of the next message. report: called with a line if messages are dropped.
    """

    def __init__(
        self,
        its_template: "Template",
        capacity: int,
        speaker: str = "assistant",
        report: "Callable[[str], object]" = lambda line: None,
    ) -> None:
        self.template, self.capacity, self.speaker = its_template, capacity, speaker
        self._report, self._n_dropped = report, 0
        self._reported_roles: set[str] = set()

    def prompt(
        self,
        messages: "list[Message]",
        max_tokens: int | None = None,
        goes_on: bool = False,
    ) -> "Prompt":
        """Return the Prompt of `messages` without the oldest that do not fit.

        max_tokens: of the answer, or None. goes_on: the prompt ends within the last message.
        Raises DataError if even the last ones do not fit, and the template's errors.
        """
        cuts, prompts, capacity = self._cuts(messages, goes_on), {}, self.capacity
        n_needed = min(capacity // 4, max_tokens or capacity)

        def fits(cut):
            if cut not in prompts:
                prompts[cut] = self._prompt(messages, cut, goes_on)
            return len(prompts[cut].tokens) + n_needed <= capacity

        first, last = (0, 0) if fits(cuts[0]) else (1, len(cuts) - 1)
        # the first cut that fits; the last one is used even if it leaves less context
        while first < last:
            middle = (first + last) // 2
            first, last = (first, middle) if fits(cuts[middle]) else (middle + 1, last)
        cut = cuts[min(first, last)]
        fits(cut)
        n = len(prompts[cut].tokens)
        if n >= capacity:
            raise data_error(
                "message",
                f"{n} tokens with the template's, more than the context of"
                f" {capacity}; shorten it, or raise --ctx-size",
            )
        if cut > self._n_dropped:
            self._n_dropped = cut
            self._report(f"the context is full; the oldest {cut} messages are dropped")
        return prompts[cut]

    def next_turn(self, messages: "list[Message]", author: str) -> "list[int]":
        """Return the tokens of the prompt after `messages` and one more of `author`, of which any
        text is in the place of the one to come; [] if the template has none.
        """
        try:
            return self._prompt([*messages, Message(author, ".")], self._n_dropped, False).tokens
        except Error:
            return []

    def can_shift(self, messages: "list[Message]") -> bool:
        """Whether older messages can be dropped, while the last one goes on."""
        return len(self._cuts(messages, True)) > 1

    def _cuts(self, messages, goes_on):
        """Return the numbers of messages, behind a leading system one, that may be dropped."""
        start = _n_system(messages)
        said, n = messages[start:], self._n_dropped
        return [
            i for i in range(n, len(said) - goes_on) if i == n or said[i].role == said[0].role
        ] or [0]

    def _prompt(self, messages, cut, goes_on):
        start = _n_system(messages)
        kept = messages[:start] + messages[start + cut :]
        if goes_on:
            found = self.template.continuing(kept)
        elif self.speaker != "assistant":
            found = self.template.before(kept, self.speaker)
        else:
            found = self.template.prompt(kept)
        if not found.tokens:
            raise data_error(self.template.name, "prints nothing for the conversation: no tokens")
        for role in {kept[i].role for i in found.dropped} - self._reported_roles:
            self._reported_roles.add(role)
            self._report(f"the template drops messages of the role {role}")
        return found


def _n_system(messages):
    return next((i for i, m in enumerate(messages) if m.role != "system"), 0)
