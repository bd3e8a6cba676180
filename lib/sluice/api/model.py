"""Model: tokenize, logits, chat prompts and generation with an open model file."""

from __future__ import annotations

import json
import operator
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from .. import limits
from ..chat import template as chat_template
from ..chat.renderings import Renderings
from ..embed.embedder import Embedder
from ..generate import generation as engine
from ..generate.sampler import from_options
from ..generate.speculation import Speculation
from ..grammar import sources
from ..grammar.matcher import Grammar, Matcher
from ..kernels import ffi
from ..kvcache.format import KV_TYPES
from ..limits import MAX_CAPACITY
from ..model import model as models
from ..model.architecture import POOLINGS
from ..rerank import prompt as rerank_prompt
from ..rerank.reranker import Reranker
from ..tokenizer.detokenizer import Joiner
from ..tokenizer.vocabulary import Vocab
from .arguments import (
    Arithmetic,
    KvType,
    Path,
    Pooling,
    Text,
    as_bytes,
    bias_pairs,
    check_engine,
    check_one_of,
    finite,
    integer,
    sampler_settings,
    str_or_none,
)
from .chat import ChatPrompt, messages_of, tools_of
from .closable import Closable, engine_lock
from .generation import Generation
from .texts import Ranked, Vectors, prompt_of, ranked, vector


class Model(Closable):
    """An open model with its vocabulary; see `load`.

    path: str, the file.
    n_vocab: int, size of the vocabulary. Tokens are ints from 0 to n_vocab - 1.
    context_size: int, the context size in tokens that the model was trained with.
    end_tokens: frozenset of int, the EOG tokens.
    """

    def __init__(
        self,
        path: Path,
        *,
        threads: int | None = None,
        arithmetic: Arithmetic = "exact",
        vocab: Path | None = None,
        huge_pages: bool = False,
    ) -> None:
        check_engine(threads, arithmetic)
        self.path = os.fspath(path)
        with engine_lock:
            self._model = models.Model(
                self.path, threads, arithmetic, str_or_none(vocab), huge_pages
            )
            self._vocab = Vocab(self._model.file)
        self._renderings, self._callings = Renderings(None), chat_template.Callings()
        self.n_vocab: int = self._vocab.n_vocab
        self.context_size: int = min(self._model.hparams.n_ctx, MAX_CAPACITY)
        self.end_tokens: frozenset[int] = self._vocab.eog

    def __enter__(self) -> Model:
        self._check_open()
        return self

    def __repr__(self) -> str:
        return f"<sluice.Model {self.path!r}{' (closed)' if self._is_closed else ''}>"

    def _release(self) -> None:
        """Release the model; a running Generation keeps its own references."""
        if hasattr(self, "_model"):
            del self._model, self._vocab, self._callings

    def tokenize(self, text: Text, *, bos: bool | None = None, special: bool = False) -> list[int]:
        """Convert text to tokens, as the command `tokenize` does.

        text: str, or any bytes; at most 16 MiB.
        bos: begin with the BOS token. None: the model's setting.
        special: parse control tokens in `text`. Never use it with untrusted text.
        """
        self._check_open()
        with engine_lock:
            return list(self._vocab.encode(as_bytes(text), bos=bos, special=special))

    def detokenize(self, tokens: Iterable[int], *, special: bool = False) -> str:
        """Convert tokens to text, as `tokenize -d` does.

        Invalid UTF-8 becomes U+FFFD. An incomplete character at the end is dropped.
        special: include the names of control tokens; else they give no text.
        """
        self._check_open()
        with engine_lock:
            joiner = Joiner(self._vocab, special)
            for token in self._checked(tokens):
                joiner.add(token)
            return str(joiner.fetch(), "utf-8")

    def logits(self, tokens: Iterable[int]) -> memoryview[float]:
        """Compute the logits after the last of `tokens`: those in a snapshot of `prefill`.

        tokens: at least one.
        Returns a read-only memoryview, f32 [n_vocab], native byte order. `list(m)` gives floats,
        `numpy.asarray(m)` an array that shares its memory.
        """
        self._check_open()
        checked = self._checked(tokens)
        with engine_lock:
            cache = engine.begin(self._model, checked, max_tokens=0, name="tokens")
            self._model.file.check_unchanged()
            return memoryview(ffi.buffer(cache.logits, 4 * self.n_vocab)[:]).cast("f")

    def embed(
        self,
        text: Text,
        *,
        prompt: Path | Mapping[str, str] | None = None,
        pooling: Pooling | None = None,
        normalize: bool = True,
        dimensions: int | None = None,
        context_size: int | None = None,
        mail: bool = False,
    ) -> memoryview[float]:
        """Compute the vector of a text, as the command `embed` does.

        Of two texts that are near in meaning the cosine of the vectors is near 1: with `normalize`
        the sum of the products of their elements.

        prompt: what stands around the text: search, similarity, a YAML file (a path object, or a
        str that has "/" or ends in .yaml), or a dict with the keys of one: before, after, pooling.
        pooling: which hidden states make the vector. None: the prompt's, else the model's.
        normalize: bring the vector to length 1.
        dimensions: keep the first ones, for models that were trained for it. None: all.
        context_size: tokens of prompt and text, at least 4. None: the model's. A longer text loses
        its end, with a RuntimeWarning.
        mail: the text is a message (RFC 5322).
        Returns a read-only memoryview, f32 [dimensions], native byte order; see `logits`.
        Raises DataError for an empty text, UnsupportedError for a reranker.
        """
        with engine_lock:
            embedder = self._embedder(prompt, pooling, normalize, dimensions, context_size, mail)
            return vector(embedder, text)

    def embed_many(
        self,
        texts: Iterable[Text],
        *,
        prompt: Path | Mapping[str, str] | None = None,
        pooling: Pooling | None = None,
        normalize: bool = True,
        dimensions: int | None = None,
        context_size: int | None = None,
        mail: bool = False,
    ) -> Iterator[memoryview[float]]:
        """Compute the vector of each of `texts`, which have the same bits as from `embed`.

        Texts go through the model together; up to 65 are fetched at a time. After an error of one
        text, which names it as texts[n], `next` continues with the next text. The other arguments
        are those of `embed`. `numpy.array(list(vectors))` has a row for each text. As a Generation,
        the iterator keeps the model's file open.
        """
        with engine_lock:
            embedder = self._embedder(prompt, pooling, normalize, dimensions, context_size, mail)
        return Vectors(embedder, texts)

    def _embedder(
        self,
        prompt: Path | Mapping[str, str] | None,
        pooling: str | None,
        normalize: bool,
        dimensions: int | None,
        context_size: int | None,
        mail: bool,
    ) -> Embedder:
        self._check_open()
        if pooling is not None:
            check_one_of("pooling", pooling, POOLINGS)
        if dimensions is not None:
            dimensions = integer("dimensions", dimensions, 1, self._model.hparams.n_embd)
        if context_size is not None:
            context_size = integer("context_size", context_size, 4, MAX_CAPACITY)
        return Embedder(
            self._model,
            prompt_of(prompt),
            pooling,
            bool(normalize),
            dimensions,
            context_size,
            is_mail=bool(mail),
        )

    def rerank(
        self,
        query: str,
        texts: Iterable[Text],
        *,
        instruct: str | None = None,
        top: int | None = None,
        mail: bool = False,
    ) -> list[Ranked]:
        """Order texts by how well they answer a query, as the command `rerank` does.

        query: at most 16384 characters.
        instruct: what the search is for, in a sentence. None: a web search.
        top: return only so many. None: all.
        mail: the texts are messages (RFC 5322).
        Returns the best first; texts with equal scores stay in their order. A text that is longer
        than the context loses its end, with a RuntimeWarning. Raises DataError, which names the
        text as texts[n], if one is empty.
        """
        self._check_open()
        given = {"query": query} | ({} if instruct is None else {"instruct": instruct})
        for name, text in given.items():
            if not isinstance(text, str):
                raise TypeError(f"{name}: is not a str")
            rerank_prompt.check(name, text)
        if top is not None:
            top = integer("top", top, 1)
        with engine_lock:
            reranker = Reranker(self._model, query, instruct, bool(mail))
        return ranked(reranker, texts, top)

    def chat_prompt(
        self,
        messages: Iterable[Mapping[str, Any]],
        *,
        tools: Iterable[Mapping[str, Any]] = (),
        tool_choice: str | None = None,
        template: Path | None = None,
        variables: Mapping[str, Any] | None = None,
    ) -> ChatPrompt:
        """Format a conversation by the model's chat template, as a prompt for `generate`.

        messages: dicts with "role" (system, user, assistant or tool) and "content"; of an assistant
        perhaps "tool_calls", as in Generation.message; of a tool, whose content is the result of a
        call, perhaps "tool_call_id" (Call.id) or "name". Their text never becomes a control token.
        tools: functions that the answer may call, in the shape that OpenAI's API calls "tools".
        Generation.calls has the calls; nothing is executed.
        tool_choice: "auto" (call or answer by a text, as with None), "required", "none", or the
        name of the tool to call.
        template: a file, or the bundled chatml, hermes (with tools) or plain, instead of the
        model's chat template.
        variables: template variables, such as {"enable_thinking": False}.
        Returns the tokens. Raises UnsupportedError if the model has no chat template, if the
        template does not know tools, or for a schema that cannot be honoured; DataError for invalid
        messages or tools.
        """
        self._check_open()
        for name in variables or ():
            if not name.isidentifier() or name.startswith("_") or name in chat_template.RESERVED:
                raise ValueError(f"variables: {name!r} is reserved or not an identifier")
        found = messages_of(messages)
        its_tools, choice = tools_of(tools, tool_choice)
        with engine_lock:
            path = None if template is None else os.fspath(template)
            maker = chat_template.of(self._model.file, self._vocab, path, variables)
            maker.tools, maker.renderings = its_tools, self._renderings
            calling = self._callings.of(maker, choice) if its_tools else None
            return ChatPrompt(maker.tokens(found)[0], len(found), calling)

    def generate(
        self,
        prompt: Text | Iterable[int],
        *,
        max_tokens: int | None = None,
        stop: str | Iterable[str] = (),
        grammar: str | None = None,
        regex: str | None = None,
        json_schema: str | Mapping[str, Any] | None = None,
        json_indent: int | None = None,
        complete: bool = False,
        temperature: float = 0.8,
        top_k: int = 40,
        top_p: float = 0.95,
        min_p: float = 0.05,
        repeat_penalty: float = 1.0,
        presence_penalty: float = 0.0,
        frequency_penalty: float = 0.0,
        last_n: int = 64,
        bias: Mapping[int | str, float] | None = None,
        least: bool = False,
        seed: int | None = None,
        order: str | None = None,
        dry_breakers: Iterable[str] = (),
        special: bool = False,
        context_size: int | None = None,
        kv: KvType = "f16",
        **settings: float,
    ) -> Generation:
        """Process the prompt, and return an iterator of the generated text.

        Each element is a str of at least one whole character.

        prompt: text, or tokens (from `tokenize` or `chat_prompt`). If it was made with tools, the
        answer is constrained to a text or calls of them: no `grammar` then.
        max_tokens: limit of the text. None: until an EOG token, or until the context is full.
        stop: text or texts; the text ends before the first occurrence.
        grammar: GBNF grammar that constrains the text.
        regex: regular expression that the text matches from end to end; not with `grammar`.
        json_schema: JSON Schema, as JSON or as a dict, of the text; not with `grammar`.
        json_indent: blanks a level, to lay JSON out on lines; None: one line.
        complete: if the text is cut before its grammar is complete, add the shortest text that
        completes it, beyond `max_tokens`; not with `stop`.
        temperature: 0: greedy.
        top_k: 0: off. top_p: 1: off. min_p: 0: off.
        repeat_penalty: 1: off. presence_penalty, frequency_penalty: 0: off.
        last_n: number of recent tokens for the penalties.
        bias: {key: x} adds x to the logit of a token (int), or of all tokens of a word (str), with
        and without a leading space; -inf forbids them.
        least: prefer the least likely tokens.
        seed: RNG seed, int below 2^64. None: a random one (Generation.seed).
        order: the steps of the sampler, as --sampler-order takes them. None: all.
        dry_breakers: texts across which DRY sees no repetition. (): newline, colon, quotation mark,
        asterisk; ("none",): no text.
        special: parse control tokens in a text prompt. Never use it with untrusted text.
        context_size: context size in tokens, prompt included. None: the model's.
        kv: type of the KV cache.
        settings: further ones, by the names in the table of samplers in lib/README.md: typical,
        top_nsigma, xtc_probability, dry_multiplier, mirostat and others.
        """
        self._check_open()
        check_one_of("kv", kv, KV_TYPES)
        if max_tokens is not None:
            max_tokens = integer("max_tokens", max_tokens, 1)
        if context_size is not None:
            context_size = integer("context_size", context_size, 1, MAX_CAPACITY)
        if seed is None:
            seed = int.from_bytes(os.urandom(8), "little")
        stops = [stop] if isinstance(stop, str) else list(stop)
        if not all(stops):
            raise ValueError("stop: a text is empty")
        if complete and stops:
            raise ValueError("complete: not with stop, which may end a text anywhere")
        pairs, words = bias_pairs(bias or {})
        with engine_lock:
            chosen = {
                "temperature": finite("temperature", temperature, *limits.TEMPERATURE),
                "top_k": integer("top_k", top_k, *limits.TOP_K),
                "top_p": finite("top_p", top_p, *limits.TOP_P),
                "min_p": finite("min_p", min_p, *limits.MIN_P),
                "repeat": finite("repeat_penalty", repeat_penalty, *limits.REPEAT_PENALTY),
                "presence": finite("presence_penalty", presence_penalty, *limits.PRESENCE_PENALTY),
                "frequency": finite(
                    "frequency_penalty", frequency_penalty, *limits.FREQUENCY_PENALTY
                ),
                "last_n": integer("last_n", last_n, *limits.LAST_N),
                "least": bool(least),
                **sampler_settings(settings, order, dry_breakers),
            }
            sampler = from_options(
                chosen,
                self.n_vocab,
                integer("seed", seed, *limits.SEED),
                pairs,
                words,
                self._vocab,
            )
            rules = constraint(grammar, regex, json_schema, json_indent)
            calling = prompt._calling if isinstance(prompt, ChatPrompt) else None
            if calling:
                if rules:
                    raise ValueError("grammar, regex and json_schema: not with tools")
                if calling.vocab is not self._vocab:
                    raise ValueError("prompt: was made by another model")
                rules = calling.grammar
            if complete and not rules:
                raise ValueError("complete: needs grammar, regex, json_schema or tools")
            tokens = (
                self._vocab.encode(as_bytes(prompt), special=special)
                if isinstance(prompt, str | bytes)
                else self._checked(prompt)
            )
            cache = engine.begin(self._model, tokens, None, context_size, max_tokens, kv)
            matcher = Matcher(rules, self._vocab) if rules else None
            steps = engine.Generation(
                self._model, cache, sampler, self._vocab.eog, matcher, speculation=Speculation()
            )
            its_stops = [as_bytes(s) for s in stops]
            text = calling.answer(its_stops) if calling else engine.Answer(self._vocab, its_stops)
        n_messages = prompt.n_messages if isinstance(prompt, ChatPrompt) else 0
        return Generation(
            *(self._model.file, steps, text, max_tokens, seed, len(tokens), complete, n_messages)
        )

    def _checked(self, tokens: Iterable[int]) -> list[int]:
        out = [operator.index(token) for token in tokens]
        for token in out:
            if not 0 <= token < self.n_vocab:
                raise ValueError(f"token {token} is not from 0 to {self.n_vocab - 1}")
        return out


def constraint(
    grammar: str | None,
    regex: str | None,
    json_schema: str | Mapping[str, Any] | None,
    json_indent: int | None,
) -> Grammar | None:
    """Return the Grammar of the arguments of `generate`, or None. ValueError for two of them."""
    if sum(x is not None for x in (grammar, regex, json_schema)) > 1:
        raise ValueError("grammar, regex and json_schema exclude each other")
    if regex is not None:
        return Grammar(sources.of_regex(regex, "regex"), "regex")
    if json_schema is None:
        return None if grammar is None else Grammar(as_bytes(grammar), "grammar")
    source = json_schema if isinstance(json_schema, str) else json.dumps(json_schema)
    indent = None if json_indent is None else integer("json_indent", json_indent, 0, 16)
    syntax = sources.of_schema(as_bytes(source), "json_schema", indent=indent, fixed=True)
    return Grammar(syntax, "json_schema")


def load(
    path: Path,
    *,
    threads: int | None = None,
    arithmetic: Arithmetic = "exact",
    vocab: Path | None = None,
    huge_pages: bool = False,
) -> Model:
    """Open a GGUF model.

    path: the file; any file of a split model.
    threads: worker threads of this process. None: one per available core.
    arithmetic: "exact", or "fast": matrix products by AMX-BF16, with other bits.
    vocab: tokenizer.bin of a llama2.c checkpoint.
    huge_pages: copy the model into memory in 2 MiB pages, for long-running processes.
    """
    return Model(path, threads=threads, arithmetic=arithmetic, vocab=vocab, huge_pages=huge_pages)
