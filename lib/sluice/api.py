"""The Python API, which the package `sluice` names: load, Model, Generation, Question, Verdict.

    with sluice.load("m.gguf") as model:
        for text in model.generate("Once upon a time", max_tokens=20, seed=1):
            print(text, end="", flush=True)

    with sluice.Question("spam") as question:
        verdict = question.classify(mail)

Results are those of the commands `tokenize`, `prefill`, `generate` and `classify`, bit for bit, and
so are the defaults of arguments that are options there.

Errors: DataError (bad model, grammar, question or text), UnsupportedError (a model or processor
beyond this build), and other Errors, whose `code` is the exit code of the commands; OSError for a
file that cannot be opened or read; MemoryError; ValueError and TypeError for wrong arguments.

Any thread may call; one at a time computes. The worker threads of the kernels belong to the
process, and the model opened last chooses their number. A forked child has none until it opens a
model of its own: open models after forking. A model file that is truncated while it is in use ends
the process with status 74; replace models by rename.
"""

from __future__ import annotations

import math
import operator
import os
import sys
import threading
import warnings
from collections.abc import Generator, Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any, Literal, NamedTuple

from . import limits
from .chat import messages as conversations
from .chat import template as chat_template
from .classify.setup import Setup
from .generate import generation as engine
from .generate.sampler import Sampler, biases
from .grammar.matcher import Grammar, Matcher
from .kernels import ffi
from .kvcache.format import KV_TYPES
from .limits import MAX_CAPACITY, MAX_VOCAB
from .model import model as models
from .tokenizer.detokenizer import Joiner
from .tokenizer.vocabulary import Vocab

Path = str | os.PathLike[str]
Text = str | bytes
Arithmetic = Literal["exact", "fast"]
KvType = Literal["f32", "f16", "q8_0"]
MAX_THREADS = 1024
MAX_FLOAT = sys.float_info.max

_turn = threading.RLock()  # the kernels take one caller at a time


class _Closable:
    """A context manager; `close` gives back file and memory, and is allowed twice."""

    _is_closed = False

    def close(self) -> None:
        """Give back the file and the memory. Any later use is a ValueError."""
        with _turn:
            self._is_closed = True
            self._release()

    def _release(self) -> None:
        raise NotImplementedError

    def _check_open(self) -> None:
        if self._is_closed:
            raise ValueError(f"the {type(self).__name__.lower()} is closed")

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class Model(_Closable):
    """An open model with its vocabulary; see `load`.

    path: str, the file.
    n_vocab: int, tokens of the vocabulary. Tokens are ints from 0 to n_vocab - 1.
    context_size: int, tokens the model was made for.
    end_tokens: frozenset of int, the tokens that end a generation.
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
        _check_engine(threads, arithmetic)
        self.path = os.fspath(path)
        with _turn:
            self._model = models.Model(
                self.path, threads, arithmetic, _str_or_none(vocab), huge_pages
            )
            self._vocab = Vocab(self._model.file)
        self.n_vocab: int = self._vocab.n_vocab
        self.context_size: int = min(self._model.hparams.n_ctx, MAX_CAPACITY)
        self.end_tokens: frozenset[int] = self._vocab.eog

    def __enter__(self) -> Model:
        self._check_open()
        return self

    def __repr__(self) -> str:
        return f"<sluice.Model {self.path!r}{' (closed)' if self._is_closed else ''}>"

    def _release(self) -> None:
        """A Generation that still runs keeps what it needs."""
        if hasattr(self, "_model"):
            del self._model, self._vocab

    def tokenize(self, text: Text, *, bos: bool | None = None, special: bool = False) -> list[int]:
        """The tokens of `text`, as `tokenize` writes them.

        text: str, or bytes of which any are allowed; at most 16 MiB.
        bos: whether the BOS token comes first. None: as the model says.
        special: whether names of control tokens in `text` become these tokens. Never for text that
        somebody else wrote.
        """
        self._check_open()
        with _turn:
            return list(self._vocab.encode(_as_bytes(text), bos=bos, special=special))

    def detokenize(self, tokens: Iterable[int], *, special: bool = False) -> str:
        """The text of `tokens`, as `tokenize -d` writes it: U+FFFD for bytes that make no
        character, nothing of a character that is incomplete at the end.

        special: control tokens are written by their names, else not at all.
        """
        self._check_open()
        with _turn:
            joiner = Joiner(self._vocab, special)
            for token in self._checked(tokens):
                joiner.add(token)
            return str(joiner.fetch(), "utf-8")

    def logits(self, tokens: Iterable[int]) -> memoryview[float]:
        """The logits after the last of `tokens`, of which there must be one: those of a snapshot
        that `prefill` writes.

        Returns a read-only memoryview, f32 [n_vocab], native byte order: `list(m)` gives floats,
        `numpy.asarray(m)` an array that shares its memory.
        """
        self._check_open()
        checked = self._checked(tokens)
        with _turn:
            cache = engine.begin(self._model, checked, max_tokens=0, name="tokens")
            self._model.file.check_unchanged()
            return memoryview(ffi.buffer(cache.logits, 4 * self.n_vocab)[:]).cast("f")

    def chat_prompt(
        self,
        messages: Iterable[Mapping[str, Any]],
        *,
        template: Path | None = None,
        variables: Mapping[str, Any] | None = None,
    ) -> list[int]:
        """The tokens of a conversation up to where the assistant answers: a prompt for `generate`.

        messages: dicts with "role" (system, user or assistant) and "content". Their text never
        becomes a control token.
        template: a file, or chatml or plain, in place of the model's chat template. variables: more
        variables for it. UnsupportedError where the model has no template.
        """
        self._check_open()
        for name in variables or ():
            if not name.isidentifier() or name.startswith("_") or name in chat_template.RESERVED:
                raise ValueError(f"variables: {name!r} cannot be set")
        found = conversations.of_list([dict(message) for message in messages], "messages")
        with _turn:
            path = None if template is None else os.fspath(template)
            maker = chat_template.of(self._model.file, self._vocab, path, variables)
            return list(maker.tokens(found)[0])

    def generate(
        self,
        prompt: Text | Iterable[int],
        *,
        max_tokens: int | None = None,
        stop: str | Iterable[str] = (),
        grammar: str | None = None,
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
        special: bool = False,
        context_size: int | None = None,
        kv: KvType = "f16",
    ) -> Generation:
        """Process the prompt, and return an iterator of the text that follows it: str, at least one
        whole character each.

        prompt: text, or tokens (of `tokenize` or `chat_prompt`).
        max_tokens: at most so many. None: until the model ends the text or the context is full.
        stop: texts before the first of which the text ends.
        grammar: GBNF, which the text obeys.
        temperature: 0 takes the most probable token. top_k 0, top_p 1, min_p 0, repeat_penalty 1,
        presence_penalty 0 and frequency_penalty 0 are off. last_n: tokens that the penalties see.
        bias: what is added to the logit of a token (int), or of all tokens that begin a word (str)
        or are it; -inf: never.
        least: prefer the least probable tokens.
        seed: int below 2^64. None: a random one, which Generation.seed tells.
        special: as for `tokenize`, where the prompt is text.
        context_size: tokens there is room for, prompt included. None: the model's.
        kv: type of the cached keys and values.
        """
        self._check_open()
        _check_one_of("kv", kv, KV_TYPES)
        if max_tokens is not None:
            max_tokens = _whole("max_tokens", max_tokens, 1)
        if context_size is not None:
            context_size = _whole("context_size", context_size, 1, MAX_CAPACITY)
        if seed is None:
            seed = int.from_bytes(os.urandom(8), "little")
        stops = [stop] if isinstance(stop, str) else list(stop)
        if not all(stops):
            raise ValueError("stop: an empty text is everywhere")
        pairs, words = _biases(bias or {})
        with _turn:
            sampler = Sampler(
                self.n_vocab,
                temperature=_number("temperature", temperature, *limits.TEMPERATURE),
                top_k=_whole("top_k", top_k, *limits.TOP_K),
                top_p=_number("top_p", top_p, *limits.TOP_P),
                min_p=_number("min_p", min_p, *limits.MIN_P),
                repeat=_number("repeat_penalty", repeat_penalty, *limits.REPEAT_PENALTY),
                presence=_number("presence_penalty", presence_penalty, *limits.PRESENCE_PENALTY),
                frequency=_number(
                    "frequency_penalty", frequency_penalty, *limits.FREQUENCY_PENALTY
                ),
                last_n=_whole("last_n", last_n, *limits.LAST_N),
                seed=_whole("seed", seed, *limits.SEED),
                bias=biases(pairs, words, self.n_vocab, self._vocab),
                least=bool(least),
            )
            rules = None if grammar is None else Grammar(_as_bytes(grammar), "grammar")
            tokens = (
                self._vocab.encode(_as_bytes(prompt), special=special)
                if isinstance(prompt, str | bytes)
                else self._checked(prompt)
            )
            cache = engine.begin(self._model, tokens, None, context_size, max_tokens, kv)
            matcher = Matcher(rules, self._vocab) if rules else None
            steps = engine.Generation(self._model, cache, sampler, self._vocab.eog, matcher)
            text = engine.Answer(self._vocab, [_as_bytes(s) for s in stops])
        return Generation(self._model.file, steps, text, max_tokens, seed, len(tokens))

    def _checked(self, tokens: Iterable[int]) -> list[int]:
        out = [operator.index(token) for token in tokens]
        for token in out:
            if not 0 <= token < self.n_vocab:
                raise ValueError(f"token {token} is not from 0 to {self.n_vocab - 1}")
        return out


def load(
    path: Path,
    *,
    threads: int | None = None,
    arithmetic: Arithmetic = "exact",
    vocab: Path | None = None,
    huge_pages: bool = False,
) -> Model:
    """Open the model at `path`, a GGUF file; of a model in several files any one.

    threads: worker threads of this process. None: one for each core that it may use.
    arithmetic: "exact", or "fast" for products on AMX-BF16, which have other bits.
    vocab: the tokenizer.bin, where the model is a checkpoint of llama2.c.
    huge_pages: copy the model into memory in 2 MiB pages, for a process that stays.
    """
    return Model(path, threads=threads, arithmetic=arithmetic, vocab=vocab, huge_pages=huge_pages)


class Generation(Iterator[str]):
    """The text that follows a prompt, as it is chosen; see Model.generate.

    tokens: list of int, those chosen so far.
    reason: why the text ended, None before: "stop" (an end token, a stop text, or the grammar is
    complete), "length" (max_tokens), "full" (no room in the context), or "cut" (max_tokens or no
    room, before the grammar was complete: `generate` exits with 1).
    n_prompt: int, tokens of the prompt.
    seed: int, of the random numbers.
    """

    def __init__(
        self,
        file: Any,
        steps: engine.Generation,
        text: engine.Answer,
        max_tokens: int | None,
        seed: int,
        n_prompt: int,
    ) -> None:
        self.tokens: list[int] = []
        self.seed, self.n_prompt = seed, n_prompt
        self._pieces = _pieces(steps.tokens(max_tokens), steps, text, self.tokens, file)
        self._steps = steps

    @property
    def reason(self) -> str | None:
        reason: str | None = self._steps.reason
        return reason

    def __iter__(self) -> Generation:
        return self

    def __next__(self) -> str:
        with _turn:
            return next(self._pieces)

    def close(self) -> None:
        """End here, and give back the memory."""
        with _turn:
            self._pieces.close()


def _pieces(
    tokens: Iterable[int],
    steps: engine.Generation,
    text: engine.Answer,
    chosen: list[int],
    file: Any,
) -> Generator[str, None, None]:
    """The text of `tokens`, which are put into `chosen`. Not a method: an object that held it would
    hold itself, and the model after its end."""
    for token in tokens:
        chosen.append(token)
        if piece := text.add(token):
            yield piece.decode()
        if text.stopped:
            steps.finish("stop")
            break
    if rest := text.remainder():
        yield rest.decode()
    file.check_unchanged()


class Verdict(NamedTuple):
    """The answer to a question about one text."""

    label: str
    """The most probable label, or "unsure" where that is below its threshold."""
    score: float
    """The probability of `label`; that of the first label if unsure."""
    scores: dict[str, float]
    """The probability of each label; together 1."""
    status: int
    """The exit status of `classify`: 0 the first label, 1 another one, 2 unsure."""
    n_tokens: int
    """Tokens of the prompt with the text."""
    is_cut: bool
    """Whether the middle of the text was left out."""
    mass: float | None
    """The labels' share of the total probability, where that was asked for."""
    reasons: list[str] | None
    """Of a message: words for what could not be followed in it; see `mail-text`."""


class Question(_Closable):
    """A question with the model that answers it, ready for one text after another.

    question: spam, language-is-english, urgent or sentiment, or a YAML file: a path, or a str
    with a slash or that ends in .yaml.
    model: a GGUF file. None: the question's own, else the one that the variable MODEL names.
    mail: the texts are whole messages (RFC 5322), whatever the question says.
    mass: compute Verdict.mass.
    calibration: True for the user's own (`classify --learn`), False for the bundled one, or a file.
    One that cannot be used is ignored, with a warning.
    cache: True for the user's, False for none, or a directory: it holds the parsed question and
    the state after the prompt's first part, never a text.
    threads, arithmetic, vocab, huge_pages: as for `load`.

    labels: tuple of str, in the question's order.
    thresholds: dict, the probability that each label needs.
    """

    def __init__(
        self,
        question: Path = "spam",
        *,
        model: Path | None = None,
        mail: bool = False,
        mass: bool = False,
        calibration: bool | Path = True,
        cache: bool | Path = True,
        threads: int | None = None,
        arithmetic: Arithmetic = "exact",
        vocab: Path | None = None,
        huge_pages: bool = False,
    ) -> None:
        _check_engine(threads, arithmetic)
        name = os.fspath(question)
        options = Setup(
            name if isinstance(question, str) else os.path.join(os.curdir, name),
            _str_or_none(model),
            None if isinstance(cache, bool) else os.fspath(cache),
            cache is False,
            None if isinstance(calibration, bool) else os.fspath(calibration),
            calibration is False,
            threads,
            mail,
            mass,
            arithmetic,
            _str_or_none(vocab),
            huge_pages,
            _warn,
        )
        with _turn:
            asked = options.question()
            self._classifier = options.classifier(asked)
        self.labels: tuple[str, ...] = tuple(asked.answers)
        self.thresholds: dict[str, float] = dict(asked.thresholds)

    def __enter__(self) -> Question:
        self._check_open()
        return self

    def _release(self) -> None:
        if hasattr(self, "_classifier"):
            del self._classifier

    def classify(self, text: Text) -> Verdict:
        """The Verdict on a text of any length, str or bytes. DataError where it is empty."""
        self._check_open()
        with _turn:
            c = self._classifier
            c.prepare()
            v = c.ask(_as_bytes(text))
            return Verdict(
                v.answer, v.score, v.scores, c.status(v), v.n_tokens, v.cut, v.mass, v.reasons
            )

    def classify_many(self, texts: Iterable[Text]) -> Iterator[Verdict]:
        """The Verdict on each of `texts`, which are fetched one by one.

        After a DataError of one text `next` goes on with the following text.
        """
        self._check_open()
        return map(self.classify, texts)


def _as_bytes(text: Text) -> bytes:
    if isinstance(text, str):
        return text.encode()
    return bytes(memoryview(text))  # TypeError for an int, of which bytes() would make zeros


def _str_or_none(path: Path | None) -> str | None:
    return None if path is None else os.fspath(path)


def _warn(message: str) -> None:
    warnings.warn(message, RuntimeWarning, stacklevel=2)


def _check_engine(threads: int | None, arithmetic: str) -> None:
    if threads is not None:
        _whole("threads", threads, 1, MAX_THREADS)
    _check_one_of("arithmetic", arithmetic, models.ARITHMETICS)


def _check_one_of(name: str, value: str, choices: Iterable[str]) -> None:
    if value not in choices:
        raise ValueError(f"{name}: {value!r} is none of {', '.join(choices)}")


def _number(name: str, value: float, least: float, most: float | None = None) -> float:
    number, most = float(value), MAX_FLOAT if most is None else most
    if not least <= number <= most:  # NaN is not
        raise ValueError(f"{name}: {value} is not a number from {least} to {most}")
    return number


def _whole(name: str, value: int, least: int, most: int = MAX_CAPACITY) -> int:
    number = operator.index(value)
    if not least <= number <= most:
        raise ValueError(f"{name}: {value} is not a whole number from {least} to {most}")
    return number


def _biases(
    bias: Mapping[int | str, float],
) -> tuple[list[tuple[int, float]], list[tuple[str, float]]]:
    """(tokens, words) with what is added to each."""
    tokens, words = [], []
    for key, value in bias.items():
        is_never, span = value == -math.inf, limits.MAX_BIAS
        number = value if is_never else _number("bias", value, -span, span)
        if isinstance(key, str):
            words.append((key, number))
        else:
            tokens.append((_whole("bias", key, 0, MAX_VOCAB), number))
    return tokens, words
