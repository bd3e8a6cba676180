"""Command-line options that several commands of this package share."""

from __future__ import annotations

import copy
from pathlib import Path

import click

from sluice.cli.declared import Option

PACKAGE = Path(__file__).resolve().parents[1] / "sluice"


class OptionWithAlias(Option):
    """An option whose `aliases` are accepted, but not shown in --help."""

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        shown = copy.copy(self)
        shown.opts = self.names
        return super(Option, shown).get_help_record(ctx)


# Help shows defaults; -h is --help.
SETTINGS = {"show_default": True, "help_option_names": ["-h", "--help"]}
corpora_argument = click.argument("folder", type=click.Path(exists=True, file_okay=False))
messages_argument = click.argument(
    "paths", metavar="MESSAGES...", nargs=-1, required=True, type=click.Path(exists=True)
)
model_option = click.option(
    "-m",
    "--model",
    default=str(PACKAGE / "data" / "spam.gguf"),
    type=click.Path(exists=True, dir_okay=False),
    help="GGUF model.",
)
question_option = click.option(
    "-q",
    "--question",
    "config",
    default=str(PACKAGE / "configs" / "spam.yaml"),
    type=click.Path(exists=True, dir_okay=False),
    help="Question with prompt, calibration and thresholds.",
)
seed_option = click.option("--seed", default=1, type=click.IntRange(0), help="RNG seed.")


def templated_option(help: str):
    """--templated N, how many texts are made from templates; accepts its old name, --written."""
    from .corpora import N_TEMPLATED

    return click.option(
        "--templated",
        cls=OptionWithAlias,
        aliases=("--written",),
        default=N_TEMPLATED,
        type=click.IntRange(1),
        help=help,
    )
