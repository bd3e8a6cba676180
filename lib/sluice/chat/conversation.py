"""A conversation with a model: its messages, their KV cache, and the next answer.

The template renders all messages for each turn. Tokens that agree with those in the KV cache are
not processed again. An answer keeps the tokens that the model generated.

The oldest messages are dropped from the prompt where the context is too small (window.py); with
`shift` also while an answer is generated. `messages` keeps all of them.
"""

import time

from ..faults import BAD_DATA, Error, data_error
from ..generate.generation import Answer, Generation
from ..generate.prompt_cache import Interrupted
from ..generate.speculation import Speculation
from ..grammar.matcher import Matcher
from ..kvcache.landmarks import landmarks
from ..model.forward import Forward
from ..model.model import CHUNK
from . import messages as files
from .message import Message
from .talk import are_tokens_of, lasting_tokens
from .window import Window

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any

    from ..generate.prompt_cache import PromptCache
    from ..generate.sampler import Sampler
    from ..grammar.matcher import Grammar
    from ..kvcache.scratch import Scratch
    from ..kvcache.snapshot import Snapshot
    from ..model.model import Model
    from ..tokenizer.vocabulary import Vocab
    from .calling import Calling
    from .template import Template
    from .tools import Call


def opening(system: str | None, path: str | None) -> "list[Message]":
    """Return the messages of --system and --messages. Raises DataError or OSError."""
    return (
        []
        if system is None
        else [
            Message("system", system.encode("utf-8", "surrogateescape").decode("utf-8", "replace"))
        ]
    ) + (files.read(path) if path else [])


def check_goes_on(messages: "list[Message]", speaker: str, path: str | None) -> None:
    """DataError unless the last message is one of `speaker`, with text. path: the file of the
    messages, or None.
    """
    if not (messages and messages[-1].role == speaker and messages[-1].content.strip()):
        raise data_error(
            path or "--continue", f"the last message is none of the {speaker}'s that could go on"
        )


class Conversation:
    """A conversation with a model.

    messages: list of Message, all of them. author: the user's role.
    figures: dict, statistics of the last answer (see terminal.summary).
    n_cut: number of answers that `max_tokens` or the context cut before their grammar was complete.
    was_call_cut: whether the last answer ended within the call of a tool.
    fullness: a line, if the last answer ended because the context is full, or None.

    cache: a Scratch with logits, or a Snapshot. speaker: the model's role.
    max_tokens: limit of an answer, or None.
    report: called with a message if messages are dropped.
    interrupted: called between tokens and batches of the prompt; True stops.
    penalize_prompt: penalties and DRY see the whole conversation, not just the answers.
    calling: the calls of tools that answers may have, or None. after_result: those of answers to
    results of calls, if they are others.
    kept: a PromptCache, where the first prompt's begin is looked for and kept, or None.
    complete: an answer that was cut before its grammar was complete gets the shortest completion.
    speculate: called with the seconds that a prompt took; returns the Speculation for its answer.
    """

    def __init__(
        self,
        model: "Model",
        vocab: "Vocab",
        its_template: "Template",
        cache: "Scratch | Snapshot",
        messages: "list[Message]",
        speaker: str = "assistant",
        max_tokens: int | None = None,
        report: "Callable[[str], None]" = lambda line: None,
        interrupted: "Callable[[], bool]" = lambda: False,
        kept: "PromptCache | None" = None,
        shift: bool = False,
        speculate: "Callable[[float], Speculation | None]" = Speculation.of_prompt,
        penalize_prompt: bool = False,
        complete: bool = False,
        calling: "Calling | None" = None,
        after_result: "Calling | None" = None,
    ) -> None:
        self._penalize_prompt, self._complete = penalize_prompt, complete
        self._calling, self._after_result = calling, after_result or calling
        self.model, self.vocab, self.cache = model, vocab, cache
        self.messages, self.speaker, self.max_tokens = messages, speaker, max_tokens
        self._report, self._interrupted = report, interrupted
        self._kept, self._shift, self._speculate = kept, shift, speculate
        self._window = Window(its_template, cache.capacity, speaker, report)
        self._is_whole = False  # whether the logits in the cache are those after its tokens
        self.author = "user" if speaker == "assistant" else "assistant"
        self.figures, self.n_cut, self.was_call_cut = {}, 0, False
        self.fullness: str | None = None

    @property
    def awaited(self) -> "Call | None":
        """The first call of the last answer whose result is not among the messages yet."""
        return awaited(self.messages)

    def answer(
        self,
        sampler: "Sampler",
        rules: "Grammar | None" = None,
        stops: "Iterable[bytes]" = (),
        goes_on: bool = False,
    ) -> "Iterator[bytes]":
        """Yield the answer to `messages` as bytes, token by token, and append it as a message.
        Calls of tools are in the message alone; the text ends where they begin.

        goes_on: the model's last message goes on, instead of a new one. Interrupted before the
        first token, `answer` removes the message that was to be answered. Raises DataError if the
        messages do not fit into the context, and the errors of the template and of Generation.
        """
        self.figures, self.was_call_cut, self.fullness = {}, False, None
        before = self.messages[-1] if goes_on else None
        prompt, began = (
            self._window.prompt(self.messages, self.max_tokens, goes_on),
            time.monotonic(),  # after the template: its time is not the model's
        )
        n_known = self._fill(prompt)
        if n_known is None:  # interrupted: as if the message had not been sent
            asked = self.messages and self.messages[-1].role == self.author
            self._report(
                "stopped before the answer" + ("; the message was removed" if asked else "")
            )
            del self.messages[len(self.messages) - bool(asked) :]
            return
        answer_began = time.monotonic()
        if self._penalize_prompt:
            sampler.read(prompt.tokens)
        has_result = bool(self.messages) and self.messages[-1].role == "tool"
        calling = self._after_result if has_result else self._calling
        if calling:
            rules = calling.grammar
        matcher = Matcher(rules, self.vocab) if rules else None
        speculation = self._speculate(answer_began - began)
        generation = Generation(
            *(self.model, self.cache, sampler, self.vocab.eog, matcher, False, speculation)
        )
        own = prompt.tokens[prompt.stable :] if before else []  # tokens of the message that goes on
        chosen, parts = [], []
        answer = calling.answer(stops, own) if calling else Answer(self.vocab, stops, own)
        reason: str | None = "stop"
        n_shifts = 0
        try:
            n_left = self.max_tokens
            while True:
                for token in generation.tokens(n_left):
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
                    said = self._said(before, own + chosen, b"".join(parts), False)
                    n_left = self.max_tokens and self.max_tokens - len(chosen)
                    if generation.is_full and self._shifted(before, said, n_left):
                        n_shifts += 1
                        continue
                break
            if reason == "cut" and self._complete:
                for token in generation.closing():
                    chosen.append(token)
                    parts.append(answer.add(token))
                    yield parts[-1]
                reason = generation.reason
            if generation.is_full:
                self.fullness = generation.fullness("answer")
                if self._shift and not self._interrupted():
                    self.fullness += ", and no older message is left to drop"
            parts.append(answer.remainder())
            yield parts[-1]
        finally:
            self._is_whole = generation.decoder.is_whole
            if before:
                self.messages.pop()
            said = self._said(before, own + chosen, b"".join(parts), answer.stopped)
            said = with_calls(said, answer, len(self.messages))
            self.was_call_cut = answer.called and not said.calls
            self.messages.append(said)
            self.figures = {
                "prompt": len(prompt.tokens),
                "new": len(prompt.tokens) - n_known,
                "prompt_s": answer_began - began,
                "tokens": len(chosen),
                "s": time.monotonic() - answer_began,
                "used": generation.decoder.n_tok,
                "context": self.cache.capacity,
                "end": reason,
                "open": answer.n_open,
                "shifts": n_shifts,
                "guessed": speculation.n_guessed if speculation else 0,
                "right": speculation.n_right if speculation else 0,
                "forced": generation.n_forced,
                "closed": generation.n_closed,
            }
            self.n_cut += reason == "cut"

    def _said(self, before, tokens, data, stopped):
        """Return the answer as a Message: what was said before it went on, or None, and the text
        `data`. Its tokens go without the end marker, which the template adds. It has none if they
        are not those of its whole text: the template printed a part of what was said before.
        """
        while tokens and self.vocab.is_control(tokens[-1]):
            tokens = tokens[:-1]
        text = (before.content if before else "") + data.decode("utf-8", "replace")
        is_part = before and not are_tokens_of(tokens, text, self.vocab)
        return Message(self.speaker, text, None if stopped or is_part else tokens)

    def _shifted(self, before, said, n_left):
        """Fill the cache anew without the oldest messages, if `shift` and the messages allow it.
        `said` is the answer so far, `n_left` how many tokens it may still have, or None.

        Returns whether the answer can go on.
        """
        messages = [*(self.messages[:-1] if before else self.messages), said]
        if not self._shift or n_left == 0 or not self._window.can_shift(messages):
            return False
        try:
            prompt = self._window.prompt(messages, n_left, True)
        except Error as e:
            if e.code != BAD_DATA:
                raise
            return False  # the last messages alone do not fit
        return self._fill(prompt) is not None

    def _start(self, prompt):
        """Fill the cache with what the prompt cache has of `prompt`. Raises Interrupted."""
        kept, self._kept, cache = self._kept, None, self.cache
        base, n = kept.find(
            self.model,
            cache.geometry,
            prompt.tokens,
            prompt.stable,
            cache.capacity,
            interrupted=self._interrupted,
        )
        if not base or n <= _n_common(cache, prompt.tokens):
            return
        base.n_tok = n
        # not in the map of the file: the holes of a file on tmpfs take space when they are touched
        cache.copy_rows_from(base)

    def _fill(self, prompt):
        """Process `prompt` so that the cache has exactly its tokens, and the logits after them.

        Returns the number of tokens that it had before, or None if interrupted.
        """
        tokens, self._is_whole = prompt.tokens, False
        if self._kept:
            try:
                self._start(prompt)
            except Interrupted:
                return None
        cache = self.cache
        n_known = cache.cut(min(_n_common(cache, tokens), len(tokens) - 1))
        begin, f, x = n_known, Forward(self.model.hparams, cache), None
        for end in [n for n in self._stops(tokens) if n > n_known]:
            for at in range(begin, end, CHUNK):
                f, x = self.model.extend(cache, tokens[at : min(end, at + CHUNK)], f=f)
                if self._interrupted():
                    return None
            cache.keep_states()
            begin = end
        self.model.head(f, x, cache.logits)
        self._is_whole = True
        return n_known

    def _stops(self, tokens):
        """Lengths of the prompt at which the cache keeps its states, and its whole length."""
        marks = landmarks(tokens, self.vocab.eog) if self.model.hparams.n_state else []
        return [*(n for n in marks if n < len(tokens)), len(tokens)]

    def statistics(self) -> "dict[str, Any]":
        """Return the figures of the last answer under the names that `generate -v` prints."""
        f = self.figures
        return {
            "prompt": f["prompt"],
            "tokens": f["tokens"],
            "end": f["end"],
            "open": f["open"],
            "guessed": f["guessed"],
            "right": f["right"],
            "reused": f["prompt"] - f["new"],
            "forced": f["forced"],
            "closed": f["closed"],
            "shifts": f["shifts"],
            "prompt_ms": 1e3 * f["prompt_s"],
            "ms": 1e3 * f["s"],
        }

    def settled(self) -> "Scratch | Snapshot | None":
        """Return the cache, cut to the tokens that are worth keeping, with the logits after them;
        None if there are none.
        """
        cache = self.cache
        n = self._n_lasting()
        # where the answer was interrupted, the logits are older than the tokens
        if n and (n < cache.n_tok or not self._is_whole):
            tokens = cache.tokens[:n].tolist()
            self.model.prefill(cache, tokens[cache.cut(n - 1) :])
        return cache if cache.n_tok else None

    def _n_lasting(self):
        """Number of tokens in the cache that are worth keeping. States cannot be cut back, and a
        template may drop from an answer what the model thought: of a cache with states, those that
        the next prompt begins with.
        """
        if not self.model.hparams.n_state or self.awaited or not self.messages:
            return self.cache.n_tok
        *others, last = self.messages
        last = Message(last.role, last.content, lasting_tokens(last, self.vocab), last.calls)
        return _n_common(self.cache, self._window.next_turn([*others, last], self.author))


def with_calls(said: Message, answer: Answer, n_before: int) -> Message:
    """Return the message of an answer that may call tools. said: the message of its text.

    n_before: number of messages before it.
    """
    if not answer.called:
        return said
    calls = answer.calls(n_before) or ()
    return Message(said.role, said.content.rstrip(), None, tuple(calls))


def awaited(messages: "list[Message]") -> "Call | None":
    """Return the first call of the last answer whose result is not among `messages` yet."""
    n = next((n for n, m in enumerate(reversed(messages)) if m.role != "tool"), 0)
    calls = messages[-1 - n].calls if messages else ()
    return calls[n] if n < len(calls) else None


def _n_common(cache, tokens):
    """Return the number of tokens with which both the cache and `tokens` begin."""
    known = cache.tokens[: min(cache.n_tok, len(tokens))].tolist()
    if known == tokens[: len(known)]:
        return len(known)
    return next(i for i, token in enumerate(known) if token != tokens[i])
