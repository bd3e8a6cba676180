"""sample: logits to ids."""

from .. import cli, stream
from ..generate.sampler import drawn
from ..cli import sampling
import click


@cli.command(options_metavar="[OPTIONS] <logits >ids")
@sampling.options
@click.option(
    "-n",
    "--max-ids",
    type=cli.OrNone(min=1),
    metavar="N",
    help="End after N ids; -1: no limit.  [default: no limit]",
)
@click.option(
    "--logprob",
    is_flag=True,
    help="Write the natural logarithm of each id's probability as a second column.",
)
@cli.verbose_option
def main(seed, max_ids, logprob, verbose, bias, **steps):
    """Choose an id for each record of logits.

    stdin is a stream of logits, as decode or grammar-filter writes it; stdout gets one id for each
    record, written before the next record is read, and `#end` with a reason: stop, after a record
    that says it is the last one or at the end of the logits; full, if they end because there is no
    room in the cache; length, after N ids. Of records that grammar-filter marks as constrained, one
    more is read after N ids, to see whether the text may end there. If not, or if the cache is full
    before it may, the reason is cut, and tokenize -d ends with 1. A stream of logits that is cut is
    an error.

    The chain, in this order: --bias, the three penalties, --least, -k, -p, --min-p, -t, draw. -p
    and --min-p look at probabilities before the temperature. The better of two ids is the one with
    the larger logit, then the lower one. Recent ids are learned from the records, so ids of the
    prompt are not among them. The draw for position N of a text is number N of SplitMix64 started
    at the seed, and all arithmetic is exact or fixed: a seed gives the same ids on every machine.

    --logprob is about the record as it came: the softmax over its candidates, before the chain.

    \b
    Exit status: 0 the ids ended with #end, whatever its reason; 64 usage; 65 bad or cut input, or
      a logit that is not finite; 74 cannot read or write.

    \b
    Example:  decode -m m.gguf p.snap <ring | sample -t 0 -n 256 | tee ring | tokenize -m m.gguf -d

    See also: decode, grammar-filter, tokenize.
    """
    logits = stream.LogitsReader(0)
    sampler = drawn(steps, logits.n_vocab, seed, bias)
    stream.write_all(1, stream.ids_header(logits.model_half, logits.n_vocab))
    n_ids, records = 0, iter(logits)
    for record in records:
        if record.kind == b"E":
            reason, line = record.end_before(), b""
        else:
            id, log_p = sampler.choose(record, logprob)
            line, n_ids = b"%d\t%.6f\n" % (id, log_p) if logprob else b"%d\n" % id, n_ids + 1
            reason = record.end_after(n_ids == max_ids)
            if n_ids == max_ids and not reason:
                stream.write_all(1, line)
                reason, line = next(records).end_before(), b""
        if reason:
            stream.write_all(1, line + stream.ids_end(reason))
            break
        stream.write_all(1, line)
    logits.finish()
    if verbose:
        cli.report(ids=n_ids, end=reason, seed=sampler.seed)
