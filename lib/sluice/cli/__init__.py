"""Command-line interface of all commands: options, option values, one-line errors, exit codes.

@cli.command()
@cli.model_option
def main(model): ...

cli.run(main)
"""

from ..messages import hint, program, report, say
from .command import IGNORED, code_of, command, only_one, refuse, refuse_terminal, run

# isort: split
# the others import click, which command imports without what is slow in it
from .classify_options import (
    answers_options,
    evaluate_options,
    fit_options,
    learning_options,
    listen_options,
    mail_options,
    receipt_options,
    texts_options,
    why_options,
)
from .declared import argument, option
from .options import (
    a_model_option,
    arithmetic_option,
    cache_options,
    chat_options,
    check_complete,
    check_stops,
    complete_option,
    context_option,
    continue_option,
    grammar_options,
    huge_pages_option,
    model_option,
    not_with_file,
    or_file,
    predict_option,
    shift_option,
    speculation_options,
    stop_option,
    text_option,
    threads_option,
    tools_of,
    tools_options,
    verbose_option,
    vocab_option,
)
from .values import Bytes, Number, OrNone

__all__ = [
    "IGNORED",
    "Bytes",
    "Number",
    "OrNone",
    "a_model_option",
    "answers_options",
    "argument",
    "arithmetic_option",
    "cache_options",
    "chat_options",
    "check_complete",
    "check_stops",
    "code_of",
    "command",
    "complete_option",
    "context_option",
    "continue_option",
    "evaluate_options",
    "fit_options",
    "grammar_options",
    "learning_options",
    "huge_pages_option",
    "listen_options",
    "mail_options",
    "model_option",
    "not_with_file",
    "only_one",
    "option",
    "or_file",
    "predict_option",
    "program",
    "receipt_options",
    "refuse",
    "refuse_terminal",
    "report",
    "run",
    "hint",
    "say",
    "shift_option",
    "speculation_options",
    "stop_option",
    "text_option",
    "texts_options",
    "threads_option",
    "tools_of",
    "tools_options",
    "verbose_option",
    "vocab_option",
    "why_options",
]
