"""Requests of `generate --jsonl`: lines of JSON from anybody, and the objects that answer them.

    {"id": 1, "prompt": "Once upon a time", "max_tokens": 20, "seed": 3}
    {"id": "b", "messages": [{"role": "user", "content": "Hello"}], "temperature": 0}

prompt, messages and system are what they are for `generate`: messages or system make the prompt the
next message of a conversation. "continue": true goes on with the last message. "grammar" is a text
in GBNF, "regex" a regular expression, "json_schema" a JSON Schema. "tools" and "tool_choice" have
OpenAI's shapes. All other keys are options, which hold for the line instead of the command's. An
answer:

    {"id": 1, "text": " there was", "end": "length", "tokens": 2, "prompt_tokens": 4, "seed": 3}

It has "tool_calls" if it calls tools. end is as `generate -v` prints it. With "complete": true
there is also "closed", the number of tokens that completed a text which was cut. A line that is
wrong has {"id": ..., "error": ...} instead, and the others are answered.
"""

import functools
import json
import os
import select

from ..chat import conversation, messages, tools
from ..chat.message import Message
from ..chat.template import Callings
from ..faults import Error
from ..grammar import sources
from ..grammar.matcher import Grammar, Matcher
from ..jsonl import BadLine, dump, lines_at_once, load
from ..kvcache import capacity as capacities
from .batch import Text
from .sampler import from_options
from .settings import check_effect

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from ..chat.template import Template
    from ..chat.tools import Tool
    from ..model.model import Model
    from ..tokenizer.vocabulary import Vocab

MAX_ID_CHARACTERS = 1000
SOURCES = "grammar", "regex", "json_schema"
MAX_MESSAGE_VALUES = 1 << 17  # names and values of a line


class Requests:
    """Makes Texts of lines.

    settings: {name: value} of the command's options. convert: makes such a dict of a line's other
    keys, or raises ValueError. its_template: called when a line needs it. limit: tokens of the
    context. is_chat: a prompt alone is a user's message. system: of --system, or None. its_tools,
    choice: of --tools and --tool-choice. note: as of calling.Calling.
    """

    def __init__(
        self,
        model: "Model",
        vocab: "Vocab",
        settings: "dict[str, Any]",
        convert: "Callable[[dict[str, Any]], dict[str, Any]]",
        its_template: "Callable[[], Template]",
        limit: int,
        rules: "Grammar | None" = None,
        is_chat: bool = False,
        special: bool = False,
        system: str | None = None,
        its_tools: "list[Tool] | None" = None,
        choice: str = "auto",
        note: "Callable[[str], object] | None" = None,
    ) -> None:
        self._tools, self._choice, self._note = its_tools or [], choice, note
        self._callings = Callings()
        self._model, self._vocab, self._settings, self._convert = model, vocab, settings, convert
        self._template, self._limit, self._rules = its_template, limit, rules
        self._is_chat, self._special, self._system = is_chat, special, system

    def text(self, line: bytes | None, n: int) -> "Text":
        """Return the Text of line number `n`; its key is (n, id). Raises BadLine."""
        top = load(line, _unique, MAX_MESSAGE_VALUES)
        if not isinstance(top, dict):
            raise BadLine("the request is not an object")
        id = top.pop("id", None)
        if not (
            id is None or type(id) is int or isinstance(id, str) and len(id) <= MAX_ID_CHARACTERS
        ):
            raise BadLine("id: is not a whole number or a string of at most 1000 characters")
        try:
            return self._text(top, (n, id))
        except (BadLine, ValueError, Error) as e:
            raise BadLine(str(e), id) from None

    def _text(self, top, key):
        prompt, system = _string(top, "prompt"), _string(top, "system")
        said, goes_on = top.pop("messages", None), top.pop("continue", False)
        if type(goes_on) is not bool:
            raise ValueError("continue: is not true or false")
        its_tools, choice = self._tools_of(top)
        rules = self._constraint(top, bool(its_tools))
        found = self._convert(top)
        settings = {**self._settings, **found}
        check_effect(settings, found.__contains__)
        stable, own, its_calling, n_before = 0, [], None, 0
        if self._is_chat or said is not None or system is not None or its_tools:
            if its_tools and goes_on:
                raise ValueError("continue: not with tools")
            template = self._template()
            template.tools = its_tools
            its_calling = self._callings.of(template, choice, self._note) if its_tools else None
            rules = its_calling.grammar if its_calling else rules
            tokens, stable, own, n_before = self._conversation(
                template, prompt, system, said, goes_on
            )
        elif goes_on:
            raise ValueError("continue: needs messages")
        elif prompt is None:
            raise ValueError("neither prompt nor messages")
        else:
            data = prompt.encode()
            tokens = self._vocab.encode(data, special=self._special)
        if not 0 < len(tokens) <= self._limit:
            least = "no tokens" if not tokens else f"{len(tokens)} tokens, more than {self._limit}"
            raise ValueError("prompt: " + least + capacities.remedy(self._limit) * bool(tokens))
        max_tokens, stops = settings.pop("max_tokens"), settings.pop("stops")
        complete = settings.pop("complete")
        if found.get("complete") and not rules:
            raise ValueError("complete: needs a grammar (see json_schema)")
        if complete and stops:
            raise ValueError("complete: not with stop, which may end a text anywhere")
        if not all(stops):
            raise ValueError("stop: the text is empty")
        # the command's may be any bytes
        found_stops = [
            _encoded("stop", stop) if "stops" in found else os.fsencode(stop) for stop in stops
        ]
        seed, bias, words = (settings.pop(name) for name in ("seed", "bias", "bias_word"))
        sees_prompt, n_vocab = settings.pop("penalize_prompt"), self._model.hparams.n_vocab
        sampler = from_options(settings, n_vocab, seed, bias, words, self._vocab)
        if sees_prompt:
            sampler.read(tokens)
        return Text(
            key,
            tokens,
            sampler,
            max_tokens,
            found_stops,
            Matcher(rules, self._vocab) if rules else None,
            stable,
            own,
            complete,
            its_calling,
            n_before,
        )

    def _tools_of(self, top):
        """Return (tools, choice) of a request, or the command's."""
        given, choice = top.pop("tools", None), top.pop("tool_choice", None)
        its_tools = self._tools if given is None else []
        if given is not None and given != []:
            its_tools = tools.of_list(given, "tools")
        if isinstance(choice, dict) and isinstance(choice.get("function"), dict):
            choice = choice["function"].get("name")
        if choice is not None and not isinstance(choice, str):
            raise ValueError("tool_choice: is not a text or the object of a function")
        if choice is not None and not its_tools:
            raise ValueError("tool_choice: needs tools")
        if choice is None and (given is None or self._choice in ("auto", "required", "none")):
            choice = self._choice
        try:
            return its_tools, tools.choice_of(choice or "auto", its_tools)
        except ValueError as e:
            raise ValueError(f"tool_choice: {e}") from None

    def _constraint(self, top, has_tools):
        """Return the Grammar of a request, or the command's."""
        given = {key: top.pop(key) for key in SOURCES if top.get(key) is not None}
        if len(given) > 1:
            raise ValueError(f"{' and '.join(given)}: exclude each other")
        if given and has_tools:
            raise ValueError(f"{next(iter(given))}: not with tools")
        for key, value in given.items():
            if key == "json_schema" and isinstance(value, dict | bool):
                value = json.dumps(value)
            if not isinstance(value, str):
                raise ValueError(f"{key}: is not a text" + " or an object" * (key == "json_schema"))
            return _grammar(key, _encoded(key, value))
        return self._rules

    def _conversation(self, template, prompt, system, said, goes_on):
        """Return (tokens, stable, own, number of messages)."""
        talk = conversation.opening(self._system if system is None else system, None)
        talk += messages.of_list(said, "messages") if said is not None else []
        if goes_on:
            if prompt is not None:
                raise ValueError("continue: goes on with the last message; omit prompt")
            conversation.check_goes_on(talk, "assistant", "messages")
            tokens, _, stable = template.continuing(talk)
            return tokens, stable, tokens[stable:], len(talk)
        talk += [Message("user", prompt)] if prompt else []
        tokens, _, stable = template.prompt(talk)
        return tokens, stable, [], len(talk)


def answer(text: Text) -> "dict[str, Any]":
    """Return the object that answers a Text that has ended."""
    if text.error is not None:
        return error(text.key[1], text.error)
    return {
        **_id(text.key[1]),
        "text": text.text.decode("utf-8", "replace"),
        **({"tool_calls": [tools.as_dict(call) for call in text.calls]} if text.calls else {}),
        "end": text.reason,
        "tokens": text.n_tokens,
        "prompt_tokens": len(text.tokens),
        "seed": text.sampler.seed,
        **({"closed": text.n_closed} if text.complete else {}),
    }


def error(id: "str | int | None", message: str) -> "dict[str, Any]":
    """Return the object in place of an answer."""
    return {**_id(id), "error": message}


class Arriving:
    """Lines on a descriptor that become Texts, and answers in the order of the lines.

    Call it as batch.run does. write: called with bytes. n_ahead: lines that may have been read, and
    not be answered yet. After the end: n, lines; n_bad, those without an answer; n_cut, answers
    that were cut before their grammar was complete.
    """

    def __init__(
        self,
        fd: int,
        requests: Requests,
        write: "Callable[[bytes], None]",
        n_ahead: int,
    ) -> None:
        self._fd, self._requests, self._write, self._n_ahead = fd, requests, write, n_ahead
        self._lines: Iterator[list[bytes | None]] | None = lines_at_once(fd)
        self._queue: list[bytes | None] = []
        self._answers: dict[int, dict[str, Any]] = {}
        self.n = self.n_bad = self.n_cut = self._n_written = 0

    def __call__(self, may_wait: bool) -> "list[Text] | None":
        """Return the Texts of some lines, [] if there are none yet, None at the end."""
        found: list[Text] = []
        while not found:
            if not self._queue and not self._read(may_wait):
                return None if self._lines is None else []
            if not may_wait and self.n - self._n_written >= self._n_ahead:
                return []
            line = self._queue.pop(0)
            if line is None or line.strip():
                self.n += 1
                try:
                    found.append(self._requests.text(line, self.n))
                except BadLine as e:
                    self._put(self.n, error(e.id, str(e)))
        return found

    def ended(self, text: Text) -> None:
        """Write the answer of `text` as soon as those before it are written."""
        self.n_cut += text.reason == "cut"
        self._put(text.key[0], answer(text))

    def _read(self, may_wait):
        if self._lines is None or not may_wait and not select.select([self._fd], [], [], 0)[0]:
            return False
        arrived = next(self._lines, None)
        if arrived is None:
            self._lines = None
        self._queue += arrived or []
        return bool(self._queue)

    def _put(self, n, fields):
        self.n_bad += "error" in fields
        self._answers[n] = fields
        while (fields := self._answers.pop(self._n_written + 1, None)) is not None:
            self._n_written += 1
            self._write(dump(fields))


@functools.lru_cache(maxsize=16)  # many requests want the same form, whose masks are kept with it
def _grammar(key, source):
    if key == "grammar":
        return Grammar(source, key)
    if key == "regex":
        return Grammar(sources.of_regex(source.decode(), key), key)
    return Grammar(sources.of_schema(source, key, fixed=True), key)


def _encoded(key, text):
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{key}: has half of a surrogate pair") from None


def _id(id):
    return {} if id is None else {"id": id}


def _string(top, key):
    value = top.pop(key, None)
    if value is not None and not isinstance(value, str):
        raise ValueError(f"{key}: is not a string")
    return value and value.encode("utf-8", "replace").decode()  # without halves of surrogate pairs


def _unique(pairs):
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key appears twice")
    return found
