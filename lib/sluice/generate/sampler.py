"""Sampler: logits to tokens, by the steps of csrc/sampling/sample.c, recent tokens and a seeded
RNG.

Random numbers are SplitMix64 (Steele, Lea & Flood 2014, "Fast Splittable Pseudorandom Number
Generators", OOPSLA, figure 16). Position `pos` of a text uses number `pos`, from 0, of the
generator started at the seed. So all machines sample the same tokens, and a text continued later
with the same seed goes on as if it had not been interrupted.
"""

import os

from ..faults import USAGE, Error, data_error
from ..kernels import ffi, lib
from ..stream import CANDIDATE

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
    """Chooses a token from each record, and remembers the last `last_n` tokens of the records.

    The arguments are the options of `sample`. temperature 0 is greedy; top_k 0, top_p 1, min_p
    0, repeat 1, presence 0 and frequency 0 are off. bias: {token: number added to its logit;
    -inf: never chosen}, tokens below n_vocab. least: prefer the least likely tokens.
    """

    def __init__(
        self,
        n_vocab: int,
        temperature: float = 0.8,
        top_k: int = 40,
        top_p: float = 0.95,
        min_p: float = 0.05,
        repeat: float = 1.0,
        presence: float = 0.0,
        frequency: float = 0.0,
        last_n: int = 64,
        seed: int = 0,
        bias: "Any" = None,
        least: bool = False,
    ) -> None:
        self.seed, self.last_n = seed, last_n
        tokens = sorted(bias or ())
        # the options below point to these arrays
        self._bias = ffi.new("int32_t[]", tokens), ffi.new("double[]", [bias[i] for i in tokens])
        self._options = ffi.new(
            "sample_options *",
            dict(
                temperature=temperature,
                top_k=top_k,
                top_p=top_p,
                min_p=min_p,
                repeat=repeat,
                presence=presence,
                frequency=frequency,
                least=least,
                n_bias=len(tokens),
                bias_id=self._bias[0],
                bias=self._bias[1],
            ),
        )
        self._penalise = last_n > 0 and (repeat, presence, frequency) != (1, 0, 0)
        self._work = ffi.new("uint64_t[]", 4 * n_vocab)
        self._id, self._log_p = ffi.new("int32_t *"), ffi.new("double *")
        self._recent, self._next, self._count = [], 0, {}

    def choose(
        self, record: "Any", logprob: bool = False, name: str = "standard input"
    ) -> tuple[int, float | None]:
        """Return (token, ln p) for an L or C `record` (stream.Record).

        ln p is None unless `logprob`: the natural logarithm of the softmax of the record's
        own logits, before all steps. DataError if a logit is not finite, or if every
        candidate is forbidden.
        """
        if self._penalise and record.prev >= 0:
            self._remember(record.prev)
        dense = record.kind == b"L"
        n = len(record.payload) // (4 if dense else CANDIDATE.size)
        seen = ffi.new("int32_t[]", [x for pair in self._count.items() for x in pair])
        status = lib.sample_pick(
            self._id,
            self._log_p if logprob else ffi.NULL,
            self._work,
            ffi.from_buffer(record.payload),
            seen,
            n,
            dense,
            len(self._count),
            self._options,
            splitmix64(self.seed, record.pos),
        )
        if status == -2:
            raise data_error(name, f"every candidate at position {record.pos} has a bias of -inf")
        if status:
            raise data_error(
                name, f"logit of token {self._id[0]} at position {record.pos} is not finite"
            )
        return self._id[0], self._log_p[0] if logprob else None

    def _remember(self, token):
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


def from_options(
    options: "dict[str, Any]",
    n_vocab: int,
    seed: int | None = None,
    bias: "Iterable[tuple[int, float]]" = (),
    bias_words: "Iterable[tuple[str, float]]" = (),
    vocab: "Vocab | None" = None,
) -> Sampler:
    """Return the Sampler of a command's options.

    options: dict of the Sampler's arguments that are steps. seed: None: a random seed. bias:
    [(token, x)]. bias_words: [(text, x)]; they need `vocab`, a Vocab. Error 64 for a token that
    does not exist.
    """
    seed = int.from_bytes(os.urandom(8), "little") if seed is None else seed
    added = biases(bias, bias_words, n_vocab, vocab)
    return Sampler(n_vocab, **options, seed=seed, bias=added)


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
