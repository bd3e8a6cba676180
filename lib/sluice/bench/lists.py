"""Values of options that are lists."""
import click

from . import shapes

MOST = 1 << 22
LIST = {"metavar": "LIST"}


class Numbers(click.ParamType):
    """Numbers of at least `least`, separated by commas."""

    name = "list"

    def __init__(self, least):
        self.least = least

    def convert(self, value, param, context):
        try:
            out = [int(part) for part in str(value).split(",")]
        except ValueError:
            out = [-1]
        if not all(self.least <= n < MOST for n in out):
            self.fail(f"{value!r} is not a list of numbers from {self.least} to {MOST - 1}, like 128,512", param, context)
        return out


def words(context, param, value):
    return value.split(",") if value else []


def sizes(context, param, value):
    """[(m, n, k)] of "M,N,K;M,N,K"."""
    out = [Numbers(1).convert(part, param, context) for part in value.split(";")] if value else []
    if not all(len(size) == 3 for size in out):
        raise click.BadParameter(f"{value!r} is not M,N,K or M,N,K;M,N,K", context, param)
    return out


def models(context, param, value):
    """Keys of shapes.SHAPES of "smollm2-135m,gemma3-1b"."""
    out = [shapes.find(name) for name in words(context, param, value)]
    if None in out:
        raise click.BadParameter(f"{value!r} is none of {', '.join(shapes.SHAPES)}", context, param)
    return out
