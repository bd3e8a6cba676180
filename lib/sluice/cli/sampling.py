"""Options of the sampler, which `sample`, `generate` and `chat` share."""

import functools
from collections.abc import Callable
from typing import Any

import click

from .. import limits
from ..generate import settings
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
BIAS = option(
    "--bias",
    type=Bias(),
    multiple=True,
    metavar="ID=X",
    help="Add X to the logit of token ID; -inf forbids the token. Repeatable.",
)


def _number(setting):
    """The option of a setting."""
    is_int = isinstance(setting.default, int)
    return option(
        *setting.flags[::-1],
        setting.argument,
        aliases=setting.aliases,
        type=click.IntRange(*setting.limits) if is_int else Number(*setting.limits),
        default=setting.default,
        metavar=setting.metavar,
        show_default=setting.shown,
        help=setting.help,
    )


def _parsed(parse):
    """A callback that replaces a value by parse(value); `parse` is an attribute of it. A preset
    has parsed its values.
    """

    def callback(context, parameter, value):
        if context.get_parameter_source(parameter.name) is click.core.ParameterSource.DEFAULT_MAP:
            return (context.default_map or {})[parameter.name]
        try:
            return parse(value)
        except ValueError as e:
            raise click.BadParameter(str(e)) from None

    callback.parse = parse
    return callback


def _apply_preset(context, parameter, path):
    """Make the settings in a preset the defaults of the other options."""
    if path is not None:
        context.default_map = {**(context.default_map or {}), **settings.read_preset(path)}


DRY_BREAKERS = option(
    "--dry-sequence-breaker",
    "dry_breakers",
    multiple=True,
    metavar="TEXT",
    callback=_parsed(settings.check_breakers),
    show_default="newline, colon, quotation mark, asterisk",
    help="Let no repetition go on across TEXT; none: across all. Repeatable.",
)
OPTIONS = (
    option(
        "--preset",
        last_wins=True,
        metavar="FILE|NAME",
        is_eager=True,
        expose_value=False,
        callback=_apply_preset,
        files=("yaml", "yml"),
        words=settings.PRESETS,
        help="Read settings from a YAML file, or from a bundled preset: "
        + ", ".join(settings.PRESETS)
        + ". Options given here override it.",
    ),
    *(_number(setting) for setting in settings.SETTINGS if setting.step != "mirostat"),
    DRY_BREAKERS,
    *(_number(setting) for setting in settings.SETTINGS if setting.step == "mirostat"),
    BIAS,
    BIAS_WORD,
    option(
        "--least",
        is_flag=True,
        help="Prefer the least likely tokens; with -t 0 choose the least likely one.",
    ),
    option(
        "--sampler-order",
        "order",
        aliases=("--samplers", "--sampler-seq", "--sampling-seq"),
        last_wins=True,
        metavar="STEPS",
        default=";".join(settings.STEPS),
        callback=_parsed(settings.order_of),
        show_default="".join(settings.LETTERS),
        words=settings.STEPS,
        help="Run only these steps, in this order, as letters or as names separated by ;: "
        + ", ".join(f"{letter} {name}" for letter, name in settings.LETTERS.items())
        + "; none: no step. Biases are always first.",
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


penalize_prompt = option(
    "--penalize-prompt",
    is_flag=True,
    help="Let the penalties and DRY see the prompt, too, not just the generated tokens.",
)


def _refuse_without_effect(steps):
    """Raise UsageError for an option of the command line whose step is not run."""
    context = click.get_current_context()
    given = click.core.ParameterSource.COMMANDLINE
    try:
        settings.check_effect(steps, lambda name: context.get_parameter_source(name) is given)
    except ValueError as e:
        raise click.UsageError(str(e)) from None


def options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator: the options in OPTIONS, in the order of the help."""

    @functools.wraps(function)
    def checked(*arguments: Any, **values: Any) -> Any:
        _refuse_without_effect(values)
        return function(*arguments, **values)

    for decorate in reversed(OPTIONS):
        checked = decorate(checked)
    return checked
