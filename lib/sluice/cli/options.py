"""Options shared by several commands."""

import os
import stat
from collections.abc import Callable, Sequence
from typing import Any

import click

from .. import faults
from .declared import option
from .values import OrNone

model_option = option(
    "-m",
    "--model",
    metavar="FILE",
    envvar="MODEL",
    required=True,
    show_envvar=True,
    show_default="$MODEL",
    files=("gguf",),
    group="Model",
    help="GGUF model; any file of a split one.",
)
vocab_option = option(
    "--vocab",
    "vocab_file",
    metavar="FILE",
    files=("bin",),
    group="Model",
    help="tokenizer.bin of a llama2.c checkpoint.",
)
threads_option = option(
    "-j",
    "--threads",
    type=click.IntRange(1, 1024),
    metavar="N",
    default=None,
    show_default="available cores",
    help="Worker threads.",
)
arithmetic_option = option(
    "--arithmetic",
    type=click.Choice(["exact", "fast"]),
    metavar="MODE",
    default="exact",
    help=(
        "exact, or fast: matrix products with F32, F16 and BF16 weights by AMX-BF16, which the"
        " processor must have. fast is as accurate, but its output bits differ."
    ),
)
huge_pages_option = option(
    "--huge-pages",
    is_flag=True,
    help=(
        "Copy the model into memory in 2 MiB pages at start, for long-running processes. This takes"
        " 0.6 to 2.5 s and 1 GB of memory per GB. Generation is up to 1.6 times as fast as from a"
        " fragmented page cache; output bits do not change."
    ),
)
verbose_option = option(
    "-v", "--verbose", is_flag=True, help="Print one line of statistics to stderr."
)

FILE = "sluice.file"  # key in a context's meta of the path that -f names


def _open_as_stdin(context, parameter, path):
    """Open the file at `path` as standard input; "-" leaves standard input as it is.

    Raises DataError for a directory, or OSError.
    """
    if path is None:
        return
    context.meta[FILE] = path
    if path == "-":
        return
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY)
    if stat.S_ISDIR(os.fstat(fd).st_mode):
        raise faults.data_error(path, "is a directory")
    os.dup2(fd, 0)
    os.close(fd)


def text_option(help: str, group: str = "Input") -> Any:
    """Return the option -f FILE, which opens FILE as standard input before anything is read."""
    return option(
        "-f",
        "--file",
        "text_file",
        metavar="FILE",
        is_eager=True,
        expose_value=False,
        callback=_open_as_stdin,
        group=group,
        help=help,
    )


def or_file(
    context: click.Context, parameter: click.Parameter, words: tuple[str, ...]
) -> tuple[str, ...]:
    """Callback of an argument with several words, in which "-" means standard input.

    With -f, "-" is appended if it is missing.
    """
    return (*words, "-") if FILE in context.meta and "-" not in words else words


def not_with_file(context: click.Context, parameter: click.Parameter, path: Any) -> Any:
    """Callback of an argument FILE or FILE... Raises UsageError if -f is given, too."""
    if path and FILE in context.meta:
        raise click.UsageError("FILE and -f exclude each other")
    return path


def _variables(context, parameter, values):
    from ..chat import template

    try:
        return dict(template.parse_variable(value) for value in values)
    except ValueError as e:
        raise click.BadParameter(str(e)) from None


CHAT = (
    option(
        "--system",
        aliases=("--system-prompt",),
        metavar="TEXT",
        group="Chat",
        help="System message at the start of the conversation.",
    ),
    option(
        "--messages",
        "path",
        metavar="FILE",
        files=("jsonl", "json", "yaml", "yml"),
        group="Chat",
        help="Conversation to continue: JSON lines or a JSON array of objects with role and"
        " content, or a YAML list (.yaml, .yml).",
    ),
    option(
        "--template",
        "template_path",
        aliases=("--chat-template", "--chat-template-file"),
        metavar="FILE|NAME",
        files=("jinja",),
        words=("chatml", "plain"),
        group="Chat",
        show_default="the model's",
        help="Chat template: a file, or the bundled chatml or plain.",
    ),
    option(
        "--set",
        "variables",
        metavar="NAME=VALUE",
        multiple=True,
        callback=_variables,
        group="Chat",
        help="Set a template variable, such as enable_thinking=false; VALUE is JSON or a string."
        " Repeatable.",
    ),
)


def chat_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator: the options in CHAT, in the order of the help."""
    for decorate in reversed(CHAT):
        function = decorate(function)
    return function


def predict_option(what: str) -> Any:
    """Return the option -n, --n-predict, the limit of `what` in tokens."""
    return option(
        "-n",
        "--n-predict",
        "max_tokens",
        aliases=("--max-tokens", "--max-ids", "--predict"),
        type=OrNone(min=1),
        metavar="N",
        group="Output",
        show_default="no limit",
        help=f"End {what} after N tokens; -1: no limit.",
    )


stop_option = option(
    "--stop",
    "stops",
    multiple=True,
    metavar="TEXT",
    group="Output",
    help="End the output before the first occurrence of TEXT. Repeatable.",
)


def grammar_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator: -g and -e, a grammar that constrains the output."""
    by_text = option(
        "-e",
        "--grammar-text",
        metavar="TEXT",
        group="Output",
        help="Constrain the output to the grammar TEXT (GBNF).",
    )
    by_file = option(
        "-g",
        "--grammar",
        "grammar_path",
        aliases=("--grammar-file",),
        metavar="FILE",
        files=("gbnf",),
        group="Output",
        help="Constrain the output to the grammar in FILE (GBNF).",
    )
    decorated: Callable[..., Any] = by_file(by_text(function))
    return decorated


def check_text_options(
    grammar_path: str | None, grammar_text: str | None, stops: Sequence[str]
) -> None:
    """Raise click.UsageError if both -g and -e are given, or an empty --stop."""
    if grammar_path and grammar_text is not None:
        raise click.UsageError("-g and -e exclude each other")
    if not all(stops):
        raise click.UsageError("--stop: the text is empty")


def context_option(limit: int, help: str, shown: str) -> Any:
    """Return the option -c, --ctx-size, from 1 to `limit` tokens."""
    return option(
        "-c",
        "--ctx-size",
        "capacity",
        aliases=("--capacity",),
        type=click.IntRange(1, limit),
        metavar="N",
        group="Cache",
        show_default=shown,
        help=help,
    )
