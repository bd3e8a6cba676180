"""sample: sample a token from each record of logits."""

import collections
import math
from typing import Any

from .. import cli, stream
from ..limits import LAST_N
from ..generate.sampler import from_options, needs_vocab
from ..cli import sampling
import click


@cli.command()
@cli.a_model_option(
    "GGUF model of the logits. --bias-word and sequence breakers need its vocabulary; tokens"
    " that it suppresses are never sampled."
)
@cli.vocab_option
@sampling.options
@cli.option(
    "--prompt",
    "prompt_path",
    metavar="FILE",
    group="Sampling",
    help="Let the penalties and DRY see the tokens in FILE, too: the prompt, from tokenize.",
)
@cli.predict_option("the text")
@cli.option(
    "--logprob",
    is_flag=True,
    group="Output",
    help="Add a column: ln of the token's probability, before all sampling steps.",
)
@cli.verbose_option
def main(
    model: str | None,
    vocab_file: str | None,
    prompt_path: str | None,
    seed: int | None,
    max_tokens: int | None,
    logprob: bool,
    verbose: bool,
    bias: tuple[tuple[int, float], ...],
    bias_word: tuple[tuple[str, float], ...],
    **steps: Any,
) -> None:
    """Sample a token from each record of logits.

    SYNOPSIS
      sample [OPTIONS] <logits >tokens

    DESCRIPTION
      Read a stream of logits, as decode or grammar-filter writes it. Print one token ID for each
      record before reading the next one, and at the end "#end" with a reason:

      stop    a record marked as the last one, or the end of the logits
      length  -n tokens
      full    the context is full
      cut     length or full, before the grammar was complete; tokenize -d exits with 1

      For a stream of grammar-filter, sample reads one more record after -n tokens, which tells
      whether the grammar is complete. A truncated stream of logits is an error.

      Biases come first, then the steps of --sampler-order, then the random choice. Each step sees
      the candidates that the one before left, and the probabilities among these; before the step
      temperature they do not depend on it. Of two tokens with equal logits the one with the lower
      ID comes first. An option whose step is not run is an error.

      The penalties and DRY see the generated tokens only, not the prompt, unless it is in --prompt.
      With --mirostat only biases and the temperature come before the choice. A record that a
      grammar left with one candidate does not move its limit.

      The choice at position N of the text uses number N of the generator SplitMix64, which starts
      from the seed; --xtc-probability uses a number that follows from it. All results are
      reproducible to the bit, so a seed gives the same tokens on every machine.

      A vocabulary is only needed for --bias-word, and for the sequence breakers of DRY unless
      --dry-sequence-breaker is none. A model whose file suppresses tokens (Gemma 4) needs -m or
      $MODEL, too; generate and chat know it anyway.

      The probability of --logprob is the softmax over all logits of the record.

    EXIT STATUS
      0   "#end" was printed, whatever its reason
      64  usage error
      65  invalid or truncated input; a logit that is not finite; an invalid preset
      66  no such file
      69  unsupported vocabulary
      74  I/O error

    EXAMPLES
      decode -m m.gguf p.snap <ring |
        sample -t 0 -n 256 | tee ring | tokenize -m m.gguf -d

    SEE ALSO
      decode, grammar-filter, tokenize
    """
    has_words = needs_vocab(steps, bias_word)
    if has_words and model is None:
        raise click.UsageError(
            "--bias-word and sequence breakers need a vocabulary; give -m FILE or set $MODEL, or"
            " --dry-sequence-breaker none"
        )
    logits = stream.LogitsReader(0)
    words = _vocabulary(model, vocab_file, logits) if has_words else None
    if model is not None and not words:
        bias += tuple((i, -math.inf) for i in _suppressed(model, vocab_file, logits))
    sampler = from_options(steps, logits.n_vocab, seed, bias, bias_word, words)
    if prompt_path is not None:
        sampler.read(_tokens_in(prompt_path, logits))
    stream.write_all(1, stream.tokens_header(logits.model_half, logits.n_vocab))
    reason: str | None = None
    n_tokens, records = 0, iter(logits)
    for record in records:
        if record.kind == b"E":
            reason, line = record.end_before(), b""
        else:
            token, log_p = sampler.choose(record, logprob)
            line = b"%d\n" % token if log_p is None else b"%d\t%.6f\n" % (token, log_p)
            n_tokens += 1
            reason = record.end_after(n_tokens == max_tokens)
            if n_tokens == max_tokens and not reason:
                stream.write_all(1, line)
                reason, line = next(records).end_before(), b""
        if reason:
            stream.write_all(1, line + stream.tokens_end(reason))
            break
        stream.write_all(1, line)
    logits.finish()
    if verbose:
        cli.report(tokens=n_tokens, end=reason, **sampler.figures())


def _vocabulary(model, vocab_file, logits):
    """The vocabulary of the model that the logits come from. DataError if it is another one."""
    from ..gguf.model_file import open_model
    from ..tokenizer.vocabulary import Vocab

    file = open_model(model, vocab_file)
    if file.id[:16] != logits.model_half:
        raise stream.data_error(
            logits.name, f"logits of another model than {model} (see -m, $MODEL)"
        )
    return Vocab(file)


def _suppressed(model, vocab_file, logits):
    """The tokens that are never sampled, if the model is that of the logits."""
    from ..gguf.model_file import open_model
    from ..tokenizer.special import suppressed

    file = open_model(model, vocab_file)
    return suppressed(file, logits.n_vocab) if file.id[:16] == logits.model_half else ()


def _tokens_in(path, logits):
    """The tokens in the file at `path`, which tokenize wrote for the same model."""
    with open(path, "rb") as f:
        reader = stream.TokenReader(f.fileno(), None, logits.n_vocab, path)
        tokens = collections.deque(reader, maxlen=LAST_N[1])  # as many as any step sees
        if reader.model_hex != logits.model_half[:8].hex():
            raise stream.data_error(path, "tokens made with another model than the logits")
    return tokens
