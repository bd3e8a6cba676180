"""Options of the sampler, which `sample`, `generate` and `chat` share."""

import functools
from collections.abc import Callable
from typing import Any

import click

from .. import limits
from . import declared
from .values import Bias, Number, OrNone

option = functools.partial(declared.option, group="Sampling")

BIAS_WORD = option(
    "--bias-word",
    type=Bias(words=True),
    multiple=True,
    metavar="WORD=X",
    help="Add X to the logits of all tokens of WORD, with and without a leading space. Repeatable.",
)
OPTIONS = (
    option(
        "-t",
        "--temperature",
        aliases=("--temp",),
        type=Number(*limits.TEMPERATURE),
        default=0.8,
        metavar="T",
        help="Divide logits by T; 0: greedy.",
    ),
    option(
        "-k",
        "--top-k",
        type=click.IntRange(*limits.TOP_K),
        default=40,
        metavar="K",
        help="Keep the K most likely tokens; 0: all.",
    ),
    option(
        "-p",
        "--top-p",
        type=Number(*limits.TOP_P),
        default=0.95,
        metavar="P",
        help="Keep the fewest most likely tokens with total probability P; 1: all.",
    ),
    option(
        "--min-p",
        type=Number(*limits.MIN_P),
        default=0.05,
        metavar="P",
        help="Keep tokens at least P times as likely as the most likely one; 0: all.",
    ),
    option(
        "--repeat-penalty",
        "repeat",
        type=Number(*limits.REPEAT_PENALTY),
        default=1.0,
        metavar="R",
        help="Divide positive logits of recent tokens by R and multiply negative ones; 1: off.",
    ),
    option(
        "--presence-penalty",
        "presence",
        type=Number(*limits.PRESENCE_PENALTY),
        default=0.0,
        metavar="A",
        help="Subtract A from the logits of recent tokens; 0: off.",
    ),
    option(
        "--frequency-penalty",
        "frequency",
        type=Number(*limits.FREQUENCY_PENALTY),
        default=0.0,
        metavar="A",
        help="Subtract A per occurrence of a recent token; 0: off.",
    ),
    option(
        "--last-n",
        aliases=("--repeat-last-n",),
        type=click.IntRange(*limits.LAST_N),
        default=64,
        metavar="N",
        help="Number of recent tokens for the penalties.",
    ),
    option(
        "--bias",
        type=Bias(),
        multiple=True,
        metavar="ID=X",
        help="Add X to the logit of token ID; -inf forbids the token. Repeatable.",
    ),
    BIAS_WORD,
    option(
        "--least",
        is_flag=True,
        help="Prefer the least likely tokens; with -t 0 choose the least likely one.",
    ),
    option(
        "-S",
        "--seed",
        type=OrNone(*limits.SEED),
        metavar="N",
        show_default="random; -v prints it",
        help="RNG seed; -1: a random one.",
    ),
)


def options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator: the options in OPTIONS, in the order of the help."""
    for decorate in reversed(OPTIONS):
        function = decorate(function)
    return function


def options_without_words(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator: the same without --bias-word, for `sample`, which has no vocabulary."""
    for decorate in reversed(OPTIONS):
        function = function if decorate is BIAS_WORD else decorate(function)
    return function
