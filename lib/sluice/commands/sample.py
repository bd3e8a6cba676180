"""sample: logits to tokens."""

from .. import cli, stream
from ..generate.sampler import from_options
from ..cli import sampling


@cli.command()
@sampling.options
@cli.predict_option("the text")
@cli.option(
    "--logprob",
    is_flag=True,
    group="Output",
    help="Print the natural logarithm of each token's probability as a second column.",
)
@cli.verbose_option
def main(seed, max_tokens, logprob, verbose, bias, **steps):
    """Sample a token from each record of logits.

    SYNOPSIS
      sample [OPTIONS] <logits >tokens

    DESCRIPTION
      Read a stream of logits, as decode or grammar-filter writes it. Write one token ID for each
      record before reading the next one, and at the end "#end" with a reason: stop, at a record
      marked as the last one or at the end of the logits; full, if the KV cache is full; length,
      after -n tokens. If grammar-filter marks the records as constrained, one more record is read
      after -n tokens, which tells whether the text may end there. If it may not, or the cache is
      full before it may, the reason is cut, and tokenize -d exits with 1. A truncated stream of
      logits is an error.

      The steps, in this order: --bias, the three penalties, --least, -k, -p, --min-p, -t, random
      draw. -p and --min-p use probabilities before the temperature. Of two tokens with equal logits
      the one with the lower ID wins. Recent tokens are taken from the records, so tokens of the
      prompt do not count. The draw for position N of a text is number N of SplitMix64, started at
      the seed. All arithmetic is exact or fixed, so a seed gives the same tokens on every machine.

      --logprob applies to the record as received: the softmax over its candidates, before all
      steps.

    EXIT STATUS
      0   the tokens ended with #end, whatever the reason
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
    n_tokens, records = 0, iter(logits)
    for record in records:
        if record.kind == b"E":
            reason, line = record.end_before(), b""
        else:
            id, log_p = sampler.choose(record, logprob)
            line, n_tokens = b"%d\t%.6f\n" % (id, log_p) if logprob else b"%d\n" % id, n_tokens + 1
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
