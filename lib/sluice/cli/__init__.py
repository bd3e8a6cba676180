"""Command lines: options and their values, one-line errors, exit codes.

@cli.command()
@cli.model_option
def main(model): ...

cli.run(main)
"""

from ..messages import program, report, say
from .command import IGNORED, code_of, command, only_one, refuse, refuse_terminal, run
from .options import (
    arithmetic_option,
    calibration_options,
    chat_options,
    huge_pages_option,
    listen_options,
    model_option,
    threads_option,
    verbose_option,
    vocab_option,
)
from .values import Bytes, Number, OrNone

__all__ = [
    "IGNORED",
    "Bytes",
    "Number",
    "OrNone",
    "arithmetic_option",
    "calibration_options",
    "chat_options",
    "code_of",
    "command",
    "huge_pages_option",
    "listen_options",
    "model_option",
    "only_one",
    "program",
    "refuse",
    "refuse_terminal",
    "report",
    "run",
    "say",
    "threads_option",
    "verbose_option",
    "vocab_option",
]
