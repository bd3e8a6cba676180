"""sample: sample a token from each record of logits."""

from typing import Any

from .. import cli, stream
from ..generate.sampler import from_options
from ..cli import sampling


@cli.command()
@sampling.options_without_words
@cli.predict_option("the text")
@cli.option(
    "--logprob",
    is_flag=True,
    group="Output",
    help="Add a column: ln of the token's probability, before all sampling steps.",
)
@cli.verbose_option
def main(
    seed: int | None,
    max_tokens: int | None,
    logprob: bool,
    verbose: bool,
    bias: tuple[tuple[int, float], ...],
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

      The steps are, in this order: --bias, the three penalties, --least, -k, -p, --min-p, -t and
      the random choice. -p and --min-p use probabilities before the temperature. Of two tokens with
      equal logits the one with the lower ID comes first. The penalties see the generated tokens
      only, not the prompt. The choice at position N of the text uses number N of the generator
      SplitMix64, which starts from the seed. All results are reproducible to the bit, so a seed
      gives the same tokens on every machine.

      The probability of --logprob is the softmax over all logits of the record.

    EXIT STATUS
      0   "#end" was printed, whatever its reason
      64  usage error
      65  invalid or truncated input; a logit that is not finite
      74  I/O error

    EXAMPLES
      decode -m m.gguf p.snap <ring |
        sample -t 0 -n 256 | tee ring | tokenize -m m.gguf -d

    SEE ALSO
      decode, grammar-filter, tokenize
    """
    logits = stream.LogitsReader(0)
    sampler = from_options(steps, logits.n_vocab, seed, bias)
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
        cli.report(tokens=n_tokens, end=reason, seed=sampler.seed)
