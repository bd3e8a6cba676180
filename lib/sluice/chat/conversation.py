"""A conversation with a model: its messages, their KV cache, and the next answer.

The template renders all messages for each turn. Tokens that agree with those in the KV cache are
not processed again. An answer keeps the tokens that the model generated.

An answer needs a quarter of the context, or `max_tokens` if that is less. If the remaining context
is smaller, the oldest messages are dropped from the prompt, up to the next one of the same role; a
leading system message stays. A message reports that. `messages` keeps all of them.
"""

import time

from ..faults import data_error
from ..generate.generation import Answer, Generation
from ..grammar.matcher import Matcher
from ..kvcache.landmarks import landmarks
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
    """Return the messages of --system and --messages. Raises DataError or OSError."""
    return (
        []
        if system is None
        else [
            Message("system", system.encode("utf-8", "surrogateescape").decode("utf-8", "replace"))
        ]
    ) + (files.read(path) if path else [])


class Conversation:
    """A conversation with a model.

    messages: list of Message, all of them. author: the user's role.
    figures: dict, statistics of the last answer (see terminal.summary).
    n_cut: number of answers that `max_tokens` or the context cut before their grammar was complete.

    cache: a Scratch with logits. speaker: the model's role.
    max_tokens: limit of an answer, or None.
    report: called with a message if messages are dropped.
    interrupted: called between tokens and batches of the prompt; True stops.
    """

    def __init__(
        self,
        model: "Model",
        vocab: "Vocab",
        its_template: "Template",
        cache: "Scratch",
        messages: "list[Message]",
        speaker: str = "assistant",
        max_tokens: int | None = None,
        report: "Callable[[str], None]" = lambda line: None,
        interrupted: "Callable[[], bool]" = lambda: False,
    ) -> None:
        self.model, self.vocab, self.template, self.cache = model, vocab, its_template, cache
        self.messages, self.speaker, self.max_tokens = messages, speaker, max_tokens
        self._report, self._interrupted, self._n_dropped, self._reported_roles = (
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
        """Yield the answer to `messages` as bytes, token by token, and append it as a message.

        Interrupted before the first token, it removes the message that was to be answered.
        Raises DataError if the messages do not fit into the context, and the errors of the template
        and of Generation.
        """
        self.figures = {}
        tokens, began = (
            self._fitting_tokens(),
            time.monotonic(),  # after the template: its time is not the model's
        )
        n_known = self._fill(tokens)
        if n_known is None:  # interrupted: as if the message had not been sent
            asked = self.messages and self.messages[-1].role == self.author
            self._report(
                "stopped before the answer" + ("; the message was removed" if asked else "")
            )
            del self.messages[len(self.messages) - bool(asked) :]
            return
        answer_began = time.monotonic()
        matcher = Matcher(rules, self.vocab) if rules else None
        generation = Generation(self.model, self.cache, sampler, self.vocab.eog, matcher)
        answer, chosen, parts = Answer(self.vocab, stops), [], []
        reason: str | None = "stop"
        try:
            for token in generation.tokens(self.max_tokens):
                chosen.append(token)
                parts.append(answer.add(token))
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
            self._append_answer(chosen, b"".join(parts), answer.stopped)
            self.figures = {
                "prompt": len(tokens),
                "new": len(tokens) - n_known,
                "prompt_s": answer_began - began,
                "tokens": len(chosen),
                "s": time.monotonic() - answer_began,
                "used": self.cache.n_tok,
                "context": self.cache.capacity,
                "end": reason,
                "open": answer.n_open,
            }
            self.n_cut += reason == "cut"

    def _append_answer(self, chosen, data, stopped):
        """Append the answer as a message, with its tokens except the end marker, which the template
        adds.
        """
        while chosen and self.vocab.is_control(chosen[-1]):
            chosen = chosen[:-1]
        self.messages.append(
            Message(self.speaker, data.decode("utf-8", "replace"), None if stopped else chosen)
        )

    def _fitting_tokens(self):
        """Return the tokens of the conversation, without old messages that do not fit."""
        capacity = self.cache.capacity
        n_needed = min(capacity // 4, self.max_tokens or capacity)
        start = next((i for i, m in enumerate(self.messages) if m.role != "system"), 0)
        said, n_before = self.messages[start:], self._n_dropped
        cuts = [
            i for i in range(n_before, len(said)) if i == n_before or said[i].role == said[0].role
        ] or [0]
        rendered = {}

        def fits(cut):
            rendered[cut] = self._tokens(self.messages[:start] + said[cut:])
            return len(rendered[cut]) + n_needed <= capacity

        first, last = (0, 0) if fits(cuts[0]) else (1, len(cuts) - 1)
        # the first cut that fits; the last one is used even if it leaves less context
        while first < last:
            middle = (first + last) // 2
            first, last = (first, middle) if fits(cuts[middle]) else (middle + 1, last)
        cut = cuts[min(first, last)]
        if cut not in rendered:
            fits(cut)
        if len(rendered[cut]) >= capacity:
            raise data_error(
                "message",
                f"{len(rendered[cut])} tokens with the template's, more than the context of"
                f" {capacity}; shorten it, or raise --ctx-size",
            )
        if cut > n_before:
            self._n_dropped = cut
            self._report(f"the context is full; the oldest {cut} messages are dropped")
        return rendered[cut]

    def _tokens(self, kept):
        if self.speaker != "assistant":
            tokens, dropped = self.template.tokens_before(kept, self.speaker), ()
        else:
            tokens, dropped = self.template.tokens(kept)
        if not tokens:
            raise data_error(self.template.name, "prints nothing for the conversation: no tokens")
        for role in {kept[i].role for i in dropped} - self._reported_roles:
            self._reported_roles.add(role)
            self._report(f"the template drops messages of the role {role}")
        return tokens

    def _stops(self, tokens):
        """Lengths of the prompt at which the cache keeps its states, and its whole length."""
        marks = landmarks(tokens, self.vocab.eog) if self.model.hparams.n_state else []
        return [*(n for n in marks if n < len(tokens)), len(tokens)]

    def _fill(self, tokens):
        """Process `tokens` so that the cache has exactly these, and the logits after them.

        Returns the number of tokens that it had before, or None if interrupted.
        """
        cache, known = self.cache, self.cache.tokens[: self.cache.n_tok].tolist()
        n_known = 0
        while n_known < min(len(known), len(tokens) - 1) and known[n_known] == tokens[n_known]:
            n_known += 1
        n_known, f, x = cache.cut(n_known), Forward(self.model.hparams, cache), None
        begin = n_known
        for end in [n for n in self._stops(tokens) if n > n_known]:
            for at in range(begin, end, CHUNK):
                f, x = self.model.extend(cache, tokens[at : min(end, at + CHUNK)], f=f)
                if self._interrupted():
                    return None
            cache.keep_states()
            begin = end
        self.model.head(f, x, cache.logits)
        return n_known
