"""Values of options that are lists: words, matrix sizes, model shapes."""

from typing import Any

import click

from ..bench import shapes
from .values import Numbers

LIST: dict[str, Any] = {"metavar": "LIST"}


def words(context: click.Context, param: click.Parameter, value: str | None) -> list[str]:
    """Split "a,b" into its words; none for None."""
    return value.split(",") if value else []


def sizes(
    context: click.Context, param: click.Parameter, value: str | None
) -> list[tuple[int, int, int]]:
    """Parse "M,N,K;M,N,K" into [(m, n, k)]. Raises BadParameter."""
    out = [Numbers(1).convert(part, param, context) for part in value.split(";")] if value else []
    if not all(len(size) == 3 for size in out):
        raise click.BadParameter(f"{value!r} is not M,N,K or M,N,K;M,N,K", context, param)
    return out


def models(context: click.Context, param: click.Parameter, value: str | None) -> list[str]:
    """Parse "smollm2-135m,gemma3-1b" into keys of shapes.SHAPES. Raises BadParameter."""
    out: list[Any] = [shapes.find(name) for name in words(context, param, value)]
    if None in out:
        raise click.BadParameter(f"{value!r} is none of {', '.join(shapes.SHAPES)}", context, param)
    return out
