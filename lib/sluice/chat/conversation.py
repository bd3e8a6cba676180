"""A conversation with a model: messages, the cache that holds them as tokens, and what is said
next.

Tokens are rendered anew by the template for every turn, and what the cache holds already is not
computed again: it is compared id by id. An answer stays in the tokens it was written in.

When the conversation and room for an answer (a quarter of the context, or the maximum of an answer
if that is less) are more than the cache holds, the oldest messages leave it, up to the next of the
same author; a system message in front stays. What is left out is told, and stays in `messages`.
"""

import time

from ..faults import data_error
from ..generate.generation import Answer, Generation
from ..grammar.matcher import Matcher
from ..model.forward import Forward
from ..model.model import CHUNK
from . import messages as files
from .template import Message

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ..generate.sampler import Sampler
    from ..grammar.matcher import Grammar
    from ..kvcache.scratch import Scratch
    from ..model.model import Model
    from ..tokenizer.vocabulary import Vocab
    from .template import Template


def opening(system: str | None, path: str | None) -> "list[Message]":
    """The Messages that --system and --messages begin a conversation with. DataError; OSError."""
    return (
        []
        if system is None
        else [
            Message("system", system.encode("utf-8", "surrogateescape").decode("utf-8", "replace"))
        ]
    ) + (files.read(path) if path else [])


class Conversation:
    """messages: list of Message, all there were.   figures: of the last answer, a dict.
    n_cut: answers that `n_answer` or the context cut before their grammar was complete.

    cache: with logits (scratch.Scratch).
    speaker: the role the model speaks in.
    n_answer: most tokens of an answer, or None.
    report: is told a line when something is left out.
    interrupted: asked between tokens and pieces of the prompt whether to stop.
    """

    def __init__(
        self,
        model: "Model",
        vocab: "Vocab",
        its_template: "Template",
        cache: "Scratch",
        messages: "list[Message]",
        speaker: str = "assistant",
        n_answer: int | None = None,
        report: "Callable[[str], None]" = lambda line: None,
        interrupted: "Callable[[], bool]" = lambda: False,
    ) -> None:
        self.model, self.vocab, self.template, self.cache = model, vocab, its_template, cache
        self.messages, self.speaker, self.n_answer = messages, speaker, n_answer
        self._report, self._interrupted, self._n_left_out, self._told = (
            report,
            interrupted,
            0,
            set(),
        )
        self.author = "user" if speaker == "assistant" else "assistant"
        self.figures, self.n_cut = {}, 0

    def answer(
        self, sampler: "Sampler", rules: "Grammar | None" = None, stops: "Iterable[bytes]" = ()
    ) -> "Iterator[bytes]":
        """Yields the answer to `messages` as bytes, as it is written; it is then the last message,
        as far as it went.

        DataError where the messages do not fit, or as the template and generation have them.
        Interrupted before the first id, it takes back the message that was to be answered.
        """
        self.figures = {}
        tokens, began = (
            self._fitting(),
            time.monotonic(),
        )  # what the template takes is not the model's
        n_known = self._fill(tokens)
        if n_known is None:  # nothing was answered: the message was not sent
            asked = self.messages and self.messages[-1].role == self.author
            self._report(
                "stopped before an answer began" + (": the message is taken back" if asked else "")
            )
            del self.messages[len(self.messages) - bool(asked) :]
            return
        read = time.monotonic()
        matcher = Matcher(rules, self.vocab) if rules else None
        generation = Generation(self.model, self.cache, sampler, self.vocab.eog, matcher)
        answer, chosen, parts = Answer(self.vocab, stops), [], []
        reason: str | None = "stop"
        try:
            for id in generation.tokens(self.n_answer):
                chosen.append(id)
                parts.append(answer.add(id))
                yield parts[-1]
                if answer.stopped:
                    break
                if self._interrupted():
                    reason = "interrupted"
                    break
            else:
                reason = generation.reason
            parts.append(answer.remainder())
            yield parts[-1]
        finally:
            self._keep(chosen, b"".join(parts), answer.stopped)
            self.figures = {
                "prompt": len(tokens),
                "new": len(tokens) - n_known,
                "prompt_s": read - began,
                "ids": len(chosen),
                "s": time.monotonic() - read,
                "used": self.cache.n_tok,
                "context": self.cache.capacity,
                "end": reason,
                "open": answer.n_open,
            }
            self.n_cut += reason == "cut"

    def _keep(self, chosen, data, stopped):
        """Make the answer a message: in its own tokens, but for the mark that ended it, which the
        template writes.
        """
        while chosen and self.vocab.is_control(chosen[-1]):
            chosen = chosen[:-1]
        self.messages.append(
            Message(self.speaker, data.decode("utf-8", "replace"), None if stopped else chosen)
        )

    def _fitting(self):
        """The tokens of the conversation, of as many of the last messages as leave room."""
        capacity = self.cache.capacity
        room = min(capacity // 4, self.n_answer or capacity)
        start = next((i for i, m in enumerate(self.messages) if m.role != "system"), 0)
        said, n_before = self.messages[start:], self._n_left_out
        cuts = [
            i for i in range(n_before, len(said)) if i == n_before or said[i].role == said[0].role
        ] or [0]
        made = {}

        def fits(cut):
            made[cut] = self._tokens(self.messages[:start] + said[cut:])
            return len(made[cut]) + room <= capacity

        first, last = (0, 0) if fits(cuts[0]) else (1, len(cuts) - 1)
        # the first cut that fits; what remains in the end is taken also if it leaves less room
        while first < last:
            middle = (first + last) // 2
            first, last = (first, middle) if fits(cuts[middle]) else (middle + 1, last)
        cut = cuts[min(first, last)]
        if cut not in made:
            fits(cut)
        if len(made[cut]) >= capacity:
            raise data_error(
                "message",
                f"{len(made[cut])} tokens with the template's, more than the context of"
                f" {capacity} holds",
            )
        if cut > n_before:
            self._n_left_out = cut
            self._report(f"the context is full: the oldest {cut} messages are left out")
        return made[cut]

    def _tokens(self, kept):
        if self.speaker != "assistant":
            tokens, left_out = self.template.tokens_before(kept, self.speaker), ()
        else:
            tokens, left_out = self.template.tokens(kept)
        if not tokens:
            raise data_error(self.template.name, "makes nothing of the conversation: no tokens")
        for role in {kept[i].role for i in left_out} - self._told:
            self._told.add(role)
            self._report(f"the template leaves out what is said in the role {role}")
        return tokens

    def _fill(self, tokens):
        """Make the cache hold exactly `tokens`, and the logits after them; how many it held before.
        None if interrupted.
        """
        cache, known = self.cache, self.cache.tokens[: self.cache.n_tok].tolist()
        n_known = 0
        while n_known < min(len(known), len(tokens) - 1) and known[n_known] == tokens[n_known]:
            n_known += 1
        cache.n_tok, f, x = n_known, Forward(self.model.hparams, cache), None
        for at in range(n_known, len(tokens), CHUNK):
            f, x = self.model.extend(cache, tokens[at : at + CHUNK], f=f)
            if self._interrupted():
                return None
        self.model.head(f, x, cache.logits)
        return n_known
