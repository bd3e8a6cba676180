"""The chain from logits to an id as options of a command: of `sample`, `generate` and `chat` alike, for Sampler."""
import math

import click

from .. import stream
from ..cli import Number, OrNone

MAX_BIAS = 1e6


class Bias(click.ParamType):
    """KEY=X: (KEY, a number from -MAX_BIAS to MAX_BIAS, or -inf), the last `=` counts. KEY is an
    id, or with `words` any text."""

    def __init__(self, words=False):
        self.name, self._words = ("word=x" if words else "id=x"), words

    def convert(self, value, param, ctx):
        key, equals, number = value.rpartition("=")
        if not (equals and key):
            self.fail(f"{value!r} is not of the form {self.name.upper()}.", param, ctx)
        is_never = number.strip().lower() in ("-inf", "-infinity")
        number = -math.inf if is_never else Number(-MAX_BIAS, MAX_BIAS).convert(number, param, ctx)
        if self._words:
            return key, number
        if not (key.isascii() and key.isdigit() and len(key) <= 7):
            self.fail(f"{key!r} is not an id.", param, ctx)
        return int(key), number


OPTIONS = (
    click.option("-t", "--temperature", type=Number(min=0), default=0.8, metavar="T",
                 help="Divide logits by T before the draw; 0 takes the best id."),
    click.option("-k", "--top-k", type=click.IntRange(0, stream.MAX_VOCAB), default=40, metavar="K",
                 help="Keep the K best; 0 keeps all."),
    click.option("-p", "--top-p", type=Number(0, 1), default=0.95, metavar="P",
                 help="Keep the fewest best that have probability P together; 1 keeps all."),
    click.option("--min-p", type=Number(0, 1), default=0.05, metavar="P",
                 help="Keep those at least P times as probable as the best; 0 keeps all."),
    click.option("--repeat-penalty", "repeat", type=Number(0.01, 100), default=1.0, metavar="R",
                 help="Divide logits above 0 of recent ids by R, multiply others; 1 is off."),
    click.option("--presence-penalty", "presence", type=Number(-1000, 1000), default=0.0, metavar="A",
                 help="Subtract A from logits of recent ids; 0 is off."),
    click.option("--frequency-penalty", "frequency", type=Number(-1000, 1000), default=0.0, metavar="A",
                 help="Subtract A for each time a recent id occurred; 0 is off."),
    click.option("--last-n", type=click.IntRange(0, 1 << 20), default=64, metavar="N", help="How many ids are recent."),
    click.option("--bias", type=Bias(), multiple=True, metavar="ID=X",
                 help="Add X to the logit of this id; -inf: never choose it; can be given again."),
    click.option("--least", is_flag=True,
                 help="Turn the order round: the least likely are the best. With -t 0 the very least."),
    click.option("-S", "--seed", type=OrNone(0, (1 << 64) - 1), metavar="N",
                 help="Start of the random numbers; -1: a random one.  "
                      "[default: random; -v tells]"),
)
bias_word_option = click.option(
    "--bias-word", type=Bias(words=True), multiple=True, metavar="WORD=X",
    help="Add X to the logits of all ids that WORD is written in, with a blank before it and without.")


def options(function):
    """Decorator: all of OPTIONS, in their order in the help."""
    for option in reversed(OPTIONS):
        function = option(function)
    return function


def biases(pairs, words, n_vocab, vocab=None):
    """{id: sum of what is added}, of the options' values; UsageError for an id that is none. `words` need a vocab.Vocab."""
    out = {}
    for id, x in pairs:
        if id >= n_vocab:
            raise click.UsageError(f"--bias: id {id} is not below the vocabulary size {n_vocab}")
        out[id] = out.get(id, 0.0) + x
    for word, x in words:
        text = word.encode("utf-8", "surrogateescape").lstrip(b" ")
        forms = [vocab.encode(blank + text, bos=False, eos=False, prefix=False) for blank in (b"", b" ")]
        for id in set(sum(forms, [])):
            out[id] = out.get(id, 0.0) + x
    return out
