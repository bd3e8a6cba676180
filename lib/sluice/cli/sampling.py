"""The options of the sampler: of `sample`, `generate` and `chat` alike."""

import click

from .. import limits
from .values import Bias, Number, OrNone

OPTIONS = (
    click.option(
        "-t",
        "--temperature",
        type=Number(min=0),
        default=0.8,
        metavar="T",
        help="Divide logits by T before the draw; 0 takes the best id.",
    ),
    click.option(
        "-k",
        "--top-k",
        type=click.IntRange(0, limits.MAX_VOCAB),
        default=40,
        metavar="K",
        help="Keep the K best; 0 keeps all.",
    ),
    click.option(
        "-p",
        "--top-p",
        type=Number(0, 1),
        default=0.95,
        metavar="P",
        help="Keep the fewest best that have probability P together; 1 keeps all.",
    ),
    click.option(
        "--min-p",
        type=Number(0, 1),
        default=0.05,
        metavar="P",
        help="Keep those at least P times as probable as the best; 0 keeps all.",
    ),
    click.option(
        "--repeat-penalty",
        "repeat",
        type=Number(0.01, 100),
        default=1.0,
        metavar="R",
        help="Divide logits above 0 of recent ids by R, multiply others; 1 is off.",
    ),
    click.option(
        "--presence-penalty",
        "presence",
        type=Number(-1000, 1000),
        default=0.0,
        metavar="A",
        help="Subtract A from logits of recent ids; 0 is off.",
    ),
    click.option(
        "--frequency-penalty",
        "frequency",
        type=Number(-1000, 1000),
        default=0.0,
        metavar="A",
        help="Subtract A for each time a recent id occurred; 0 is off.",
    ),
    click.option(
        "--last-n",
        type=click.IntRange(0, 1 << 20),
        default=64,
        metavar="N",
        help="How many ids are recent.",
    ),
    click.option(
        "--bias",
        type=Bias(),
        multiple=True,
        metavar="ID=X",
        help="Add X to the logit of this id; -inf: never choose it; can be given again.",
    ),
    click.option(
        "--least",
        is_flag=True,
        help="Turn the order round: the least likely are the best. With -t 0 the very least.",
    ),
    click.option(
        "-S",
        "--seed",
        type=OrNone(0, (1 << 64) - 1),
        metavar="N",
        help="Start of the random numbers; -1: a random one.  [default: random; -v tells]",
    ),
)
bias_word_option = click.option(
    "--bias-word",
    type=Bias(words=True),
    multiple=True,
    metavar="WORD=X",
    help=(
        "Add X to the logits of all ids that WORD is written in, with a blank before it and"
        " without."
    ),
)


def options(function):
    """Decorator: all of OPTIONS, in their order in the help."""
    for option in reversed(OPTIONS):
        function = option(function)
    return function
