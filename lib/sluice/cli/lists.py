"""Values of options that are lists."""

from typing import Any

import click

from ..bench import shapes
from .values import Numbers

LIST: dict[str, Any] = {"metavar": "LIST"}


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
