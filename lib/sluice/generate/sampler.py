"""Sampler: logits to tokens, by the steps of csrc/sampling/sample.c, recent tokens and a seeded
RNG.

Random numbers are SplitMix64 (Steele, Lea & Flood 2014, "Fast Splittable Pseudorandom Number
Generators", OOPSLA, figure 16). Position `pos` of a text uses number `pos`, from 0, of the
generator started at the seed. So all machines sample the same tokens, and a text continued later
with the same seed goes on as if it had not been interrupted.
"""

import array
import math
import os

from ..faults import USAGE, Error, data_error
from ..kernels import ffi, lib
from ..limits import DRY_LAST_N
from ..stream import CANDIDATE
from .settings import BREAKERS, DEFAULTS, STEPS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from ..tokenizer.vocabulary import Vocab

MASK = (1 << 64) - 1


def splitmix64(seed: int, i: int) -> int:
    """Return number `i`, from 0, of SplitMix64 started at `seed`: a 64-bit int."""
    z = (seed + (i + 1) * 0x9E3779B97F4A7C15) & MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


class Sampler:
    """Chooses a token from each record, and remembers the tokens of the text.

    settings: numbers by the names in settings.SETTINGS; those that are missing have their
    defaults. order: the steps that are run. bias: {token: number added to its logit; -inf: never
    chosen}, tokens below n_vocab. least: prefer the least likely tokens. dry_breakers: sequences
    of tokens (breakers.sequences).

    The memory is what the records told: `prev` of each, the token before it. A record without one
    begins another text; repetitions (DRY) do not go on across that border, but penalties still see
    the tokens before it, and Mirostat keeps its limit.

    mu: the limit of Mirostat in bits.
    """

    def __init__(
        self,
        n_vocab: int,
        seed: int = 0,
        bias: "Any" = None,
        least: bool = False,
        order: "Iterable[str]" = STEPS,
        dry_breakers: "Iterable[tuple[int, ...]]" = (),
        **settings: "Any",
    ) -> None:
        if unknown := set(settings) - set(DEFAULTS):
            raise TypeError(f"no such setting: {', '.join(sorted(unknown))}")
        s = {**DEFAULTS, **settings}
        self.seed, self.last_n, self.n_vocab = seed, s["last_n"], n_vocab
        self.has_mirostat = bool(s["mirostat"])
        steps = ("temperature",) if self.has_mirostat else tuple(order)
        active = [step for step in steps if _is_active(step, s, least)]
        self._penalise, self._dry_n = "penalties" in active, s["dry_last_n"]
        self._has_dry = "dry" in active
        if self._dry_n < 0:
            self._dry_n = DRY_LAST_N[1]
        tokens = sorted(bias or ())
        # the options below point to these arrays
        self._bias = ffi.new("int32_t[]", tokens), ffi.new("double[]", [bias[i] for i in tokens])
        self._breaker = ffi.new("uint8_t[]", n_vocab if self._has_dry else 1)
        self._sequences: dict[int, list[tuple[int, ...]]] = {}  # by their last token
        for sequence in dry_breakers if self._has_dry else ():
            if len(sequence) == 1:
                self._breaker[sequence[0]] = 1
            else:
                self._sequences.setdefault(sequence[-1], []).append(sequence)
        self._options = ffi.new(
            "sample_options *",
            dict(
                temperature=s["temperature"],
                dynatemp_range=s["dynatemp_range"],
                dynatemp_exponent=s["dynatemp_exponent"],
                typical=s["typical"],
                top_p=s["top_p"],
                min_p=s["min_p"],
                top_nsigma=s["top_nsigma"],
                xtc_probability=s["xtc_probability"],
                xtc_threshold=s["xtc_threshold"],
                repeat=s["repeat"],
                presence=s["presence"],
                frequency=s["frequency"],
                dry_multiplier=s["dry_multiplier"],
                dry_base=s["dry_base"],
                mirostat_ent=s["mirostat_entropy"],
                mirostat_lr=s["mirostat_rate"],
                top_k=s["top_k"],
                dry_allowed_length=s["dry_allowed_length"],
                mirostat=s["mirostat"],
                n_vocab=n_vocab,
                n_step=len(active),
                step=[STEPS.index(step) for step in active],
                n_bias=len(tokens),
                bias_id=self._bias[0],
                bias=self._bias[1],
                dry_breaker=self._breaker,
            ),
        )
        self._work = ffi.new("uint64_t[]", 5 * n_vocab)
        self._memory = ffi.new("sample_memory *")
        self._longest = ffi.new("int32_t[]", n_vocab if self._has_dry else 1)
        self._length = ffi.new("int32_t[]", 1)
        self._memory.longest, self._memory.length = self._longest, self._length
        mu = s["mirostat_mu"]
        self._memory.mu = 2 * s["mirostat_entropy"] if mu is None else mu
        self._id, self._log_p = ffi.new("int32_t *"), ffi.new("double *")
        self._is_begun = True  # nothing is between the text remembered and the next record
        self.forget()

    @property
    def mu(self) -> float:
        """The limit of Mirostat, in bits."""
        return float(self._memory.mu)

    def figures(self) -> "dict[str, Any]":
        """Return what -v prints of the sampler: the seed, and the limit of Mirostat."""
        return {"seed": self.seed, **({"mu": repr(self.mu)} if self.has_mirostat else {})}

    def choose(
        self, record: "Any", logprob: bool = False, name: str = "standard input"
    ) -> tuple[int, float | None]:
        """Return (token, ln p) for an L or C `record` (stream.Record).

        ln p is None unless `logprob`: the natural logarithm of the softmax of the record's
        own logits, before all steps. DataError if a logit is not finite, or if every
        candidate is forbidden (a bias of -inf, which suppressed tokens have).
        """
        if record.prev >= 0:
            self.remember(record.prev)
        elif not self._is_begun:
            self._begin_text()
        self._is_begun = False
        dense = record.kind == b"L"
        n = len(record.payload) // (4 if dense else CANDIDATE.size)
        seen = ffi.new("int32_t[]", [x for pair in self._count.items() for x in pair])
        self._memory.seen, self._memory.n_seen = seen, len(self._count)
        history = self._history_for_dry()
        status = lib.sample_pick(
            self._id,
            self._log_p if logprob else ffi.NULL,
            self._work,
            ffi.from_buffer(record.payload),
            n,
            dense,
            self._memory,
            self._options,
            splitmix64(self.seed, record.pos) if n > 1 else 0,  # one candidate: no choice
        )
        del history  # C no longer reads it
        if status == -2:
            raise data_error(
                name,
                f"every candidate at position {record.pos} is suppressed or has a bias of -inf",
            )
        if status:
            raise data_error(
                name, f"logit of token {self._id[0]} at position {record.pos} is not finite"
            )
        return self._id[0], self._log_p[0] if logprob else None

    def remember(self, token: int) -> None:
        """Remember a token of the text that no record has as its `prev`, in order."""
        if self._penalise:
            self._count_recent(token)
        if self._has_dry:
            self._add_to_history(token)

    def read(self, tokens: "Iterable[int]") -> None:
        """Forget all tokens, and remember these: the text that the next record continues."""
        self.forget()
        for token in tokens:
            self.remember(token)

    def forget(self) -> None:
        """Forget all tokens. Mirostat keeps its limit."""
        self._recent, self._next, self._count = [], 0, {}
        self._history, self._unbroken = array.array("i"), 0
        self._is_begun = True

    def state(self) -> "dict[str, Any]":
        """Return the memory as a dict of int, float and lists, for JSON."""
        recent = self._recent[self._next :] + self._recent[: self._next]
        history = self._history[-self._dry_n :].tolist() if self._has_dry else []
        return {"recent": recent, "history": history, "mu": self.mu}

    def restore(self, state: "dict[str, Any]") -> None:
        """Go on from a memory that `state` returned; the next record begins a text, or goes on
        with its `prev`. The settings must be those of the sampler that returned it.
        """
        self.forget()
        for token in state["recent"] if self._penalise else ():
            self._count_recent(token)
        for token in state["history"] if self._has_dry else ():
            self._begin_text() if token < 0 else self._add_to_history(token)
        self._memory.mu = state["mu"]
        self._is_begun = False

    def _count_recent(self, token):
        """Put `token` into the ring buffer of the last_n recent tokens, and update the counts."""
        if len(self._recent) < self.last_n:
            self._recent.append(token)
        else:
            old, self._recent[self._next] = self._recent[self._next], token
            self._next = (self._next + 1) % self.last_n
            self._count[old] -= 1
            if not self._count[old]:
                del self._count[old]
        self._count[token] = self._count.get(token, 0) + 1

    def _begin_text(self):
        if self._has_dry and self._history and self._history[-1] >= 0:
            self._history.append(-1)
        self._unbroken = 0

    def _add_to_history(self, token):
        self._history.append(token)
        if len(self._history) > 2 * self._dry_n:  # so that each token is moved once
            del self._history[: -self._dry_n]
        self._unbroken += 1
        if self._breaker[token] or any(
            tuple(self._history[-len(sequence) :]) == sequence
            for sequence in self._sequences.get(token, ())
        ):
            self._unbroken = 0

    def _history_for_dry(self):
        """Point the memory of C to the last tokens. Returns an object that keeps them alive."""
        if not self._has_dry:
            return None
        n = min(len(self._history), self._dry_n)
        if n > len(self._length):
            self._length = ffi.new("int32_t[]", min(2 * n, self._dry_n))
            self._memory.length = self._length
        buffer = ffi.from_buffer("int32_t[]", self._history) if n else ffi.new("int32_t[]", 1)
        self._memory.history = buffer + (len(self._history) - n)
        self._memory.n_history, self._memory.n_unbroken = n, min(n, self._unbroken)
        return buffer


def _is_active(step, s, least):
    """Whether a step with the settings `s` changes anything."""
    return {
        "penalties": s["last_n"] > 0 and (s["repeat"], s["presence"], s["frequency"]) != (1, 0, 0),
        "dry": s["dry_multiplier"] > 0 and s["dry_last_n"] != 0,
        "least": least,
        "top-n-sigma": s["top_nsigma"] > 0,
        "top-k": s["top_k"] > 0,
        "typical": s["typical"] < 1,
        "top-p": s["top_p"] < 1,
        "min-p": s["min_p"] > 0,
        "xtc": s["xtc_probability"] > 0 and s["xtc_threshold"] <= 0.5,
        "temperature": True,
    }[step]


def from_options(
    options: "dict[str, Any]",
    n_vocab: int,
    seed: int | None = None,
    bias: "Iterable[tuple[int, float]]" = (),
    bias_words: "Iterable[tuple[str, float]]" = (),
    vocab: "Vocab | None" = None,
) -> Sampler:
    """Return the Sampler of a command's options.

    options: dict of the Sampler's arguments that are steps; dry_breakers are texts here. seed:
    None: a random seed. bias: [(token, x)]. bias_words: [(text, x)]. vocab: a Vocab, if
    needs_vocab; the tokens that it suppresses are never sampled. Error 64 for a token that does not
    exist.
    """
    seed = int.from_bytes(os.urandom(8), "little") if seed is None else seed
    never = [(i, -math.inf) for i in vocab.suppressed] if vocab else []
    added = biases([*bias, *never], bias_words, n_vocab, vocab)
    rest, found = dict(options), []
    texts = rest.pop("dry_breakers", BREAKERS)
    if _is_dry(options) and texts:
        from . import breakers

        assert vocab is not None
        found = breakers.sequences(vocab, texts)
    return Sampler(n_vocab, **rest, seed=seed, bias=added, dry_breakers=found)


def needs_vocab(options: "dict[str, Any]", bias_words: "Iterable[tuple[str, float]]") -> bool:
    """Whether from_options needs a vocabulary for these arguments."""
    return bool(bias_words) or _is_dry(options) and bool(options.get("dry_breakers", BREAKERS))


def _is_dry(options):
    s = {**DEFAULTS, **options}
    is_chosen = not s["mirostat"] and "dry" in s.get("order", STEPS)
    return is_chosen and _is_active("dry", s, False)


def biases(
    pairs: "Iterable[tuple[int, float]]",
    words: "Iterable[tuple[str, float]]",
    n_vocab: int,
    vocab: "Any" = None,
) -> dict[int, float]:
    """Return {token: sum of its biases}. pairs: [(token, x)]; words: [(text, x)], which need a
    Vocab.

    A word's bias applies to every token of the word, encoded with and without a leading space.
    Error 64 for a token that does not exist.
    """
    out = {}
    for token, x in pairs:
        if token >= n_vocab:
            raise Error(
                USAGE,
                f"--bias: token ID {token} is not below the vocabulary size {n_vocab} (see --help)",
            )
        out[token] = out.get(token, 0.0) + x
    for word, x in words:
        text = word.encode("utf-8", "surrogateescape").lstrip(b" ")
        forms = [
            vocab.encode(space + text, bos=False, eos=False, prefix=False) for space in (b"", b" ")
        ]
        for token in set(sum(forms, [])):
            out[token] = out.get(token, 0.0) + x
    return out
