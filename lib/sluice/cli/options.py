"""Options shared by several commands."""

import functools
import os
import stat
from collections.abc import Callable, Sequence
from typing import Any

import click

from .. import faults
from .declared import option
from .values import OrNone

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..grammar.sources import Source


def a_model_option(help: str, required: bool = False) -> Any:
    """Return the option -m, --model."""
    return option(
        "-m",
        "--model",
        last_wins=True,
        metavar="FILE",
        envvar="MODEL",
        required=required,
        show_envvar=True,
        show_default="$MODEL",
        files=("gguf",),
        group="Model",
        help=help,
    )


model_option = a_model_option("GGUF model; any file of a split one.", required=True)
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
        words=("chatml", "hermes", "plain"),
        group="Chat",
        show_default="the model's",
        help="Chat template: a file, or the bundled chatml, hermes (ChatML with tools) or plain.",
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


def tools_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator: --tools and --tool-choice."""
    for decorate in (
        option(
            "--tool-choice",
            "choice",
            last_wins=True,
            metavar="auto|required|none|NAME",
            words=("auto", "required", "none"),
            group="Chat",
            show_default="auto",
            help="Whether an answer calls tools: as the model likes, in any case, not at all, or"
            " the tool NAME.",
        ),
        option(
            "--tools",
            "tools_path",
            metavar="FILE",
            files=("json",),
            group="Chat",
            help="Tools that the model may call: a JSON list of functions in OpenAI's shape. A call"
            " is printed as a JSON line and not executed.",
        ),
    ):
        function = decorate(function)
    return function


def tools_of(
    path: str | None, choice: str | None, rules: Any, others: dict[str, Any]
) -> tuple[list[Any], str]:
    """Return (tools, choice) of --tools and --tool-choice; tools.Tool each.

    rules: the Source of a grammar. others: {option: value} of those that exclude tools. Raises
    UsageError, DataError or OSError.
    """
    if path is None:
        if choice is not None:
            raise click.UsageError("--tool-choice: needs --tools")
        return [], "auto"
    if rules.n_given:
        raise click.UsageError("--tools: not with -g, -e, --regex or --json-schema")
    for name, value in others.items():
        if value:
            raise click.UsageError(f"--tools: not with {name}")
    from ..chat import tools

    found = tools.read(path)
    try:
        return found, tools.choice_of(choice or "auto", found)
    except ValueError as e:
        raise click.UsageError(f"--tool-choice: {e}") from None


def cache_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator: --cache and --cache-bytes of prompts."""
    for decorate in (
        option(
            "--cache-bytes",
            type=click.IntRange(0),
            metavar="N",
            default=1 << 30,
            show_default="1 GiB",
            group="Cache",
            help="Limit of DIR in bytes; the least recently used snapshots are deleted.",
        ),
        option(
            "--cache",
            "cache_dir",
            last_wins=True,
            metavar="DIR",
            group="Cache",
            help="Prompt cache: what the prompt shares with an earlier one in DIR is not processed"
            " again; what will come again (of a conversation all before its last message) is"
            " stored there.",
        ),
    ):
        function = decorate(function)
    return function


continue_option = option(
    "--continue",
    "goes_on",
    is_flag=True,
    group="Chat",
    help="Go on with the last message, which must be the model's, instead of a new one.",
)
shift_option = option(
    "--shift",
    is_flag=True,
    group="Chat",
    show_default="an answer stops there",
    help="Where the context is full within an answer, go on without the oldest messages; the others"
    " are processed anew.",
)


def speculation_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator: --draft and --no-lookup."""
    for decorate in (
        option(
            "--no-lookup",
            is_flag=True,
            group="Speculation",
            help="Do not guess that the text goes on as it did where its last words stood before."
            " Affects speed only.",
        ),
        option(
            "--draft",
            "draft_path",
            metavar="MODEL",
            files=("gguf",),
            group="Speculation",
            help="A smaller model with the same vocabulary, which guesses tokens; the model checks"
            " several at once. Affects speed only.",
        ),
    ):
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


complete_option = option(
    "--complete",
    is_flag=True,
    group="Output",
    help="If -n or the context cuts the text before its grammar is complete, add the shortest text"
    " that completes it.",
)


def check_complete(
    complete: bool, rules: "Source", stops: Sequence[str], has_tools: bool = False
) -> None:
    """Raise click.UsageError for a --complete that has no meaning."""
    if complete and not (rules.n_given or has_tools):
        raise click.UsageError("--complete needs a grammar (see --json-schema)")
    if complete and stops:
        raise click.UsageError("--complete: not with --stop, which may end a text anywhere")


GRAMMAR_SOURCES = {
    "path": "-g",
    "text": "-e",
    "regex": "--regex",
    "schema": "--json-schema",
}


def grammar_options(group: str = "Output") -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return the decorator for a grammar that constrains the output: -g, -e, --regex and
    --json-schema. The function gets a grammar.sources.Source as `rules`.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def with_source(
            *args: Any,
            grammar_path: str | None,
            grammar_text: str | None,
            regex: str | None,
            json_schema: str | None,
            json_schema_lax: bool,
            json_indent: int | None,
            **values: Any,
        ) -> Any:
            from ..grammar.sources import Source

            if json_schema is None and (
                json_schema_lax and not values.get("tools_path") or json_indent is not None
            ):
                raise click.UsageError(
                    "--json-schema-lax and --json-indent: only with --json-schema"
                )
            rules = Source(
                grammar_path, grammar_text, regex, json_schema, json_schema_lax, json_indent
            )
            if rules.n_given > 1:
                given = [o for k, o in GRAMMAR_SOURCES.items() if getattr(rules, k) is not None]
                raise click.UsageError(f"{' and '.join(given)} exclude each other")
            return function(*args, rules=rules, **values)

        for made in reversed(_grammar_options(group)):
            made(with_source)
        return with_source

    return decorate


def _grammar_options(group: str) -> list[Any]:
    grouped = functools.partial(option, group=group)
    return [
        grouped(
            "-g",
            "--grammar",
            "grammar_path",
            aliases=("--grammar-file",),
            metavar="FILE",
            files=("gbnf",),
            help="Constrain the output to the grammar in FILE (GBNF).",
        ),
        grouped(
            "-e",
            "--grammar-text",
            metavar="TEXT",
            help="Constrain the output to the grammar TEXT (GBNF).",
        ),
        grouped(
            "--regex",
            metavar="RE",
            help="Constrain the output to texts that RE matches from end to end.",
        ),
        grouped(
            "--json-schema",
            metavar="SCHEMA",
            files=("json",),
            help="Constrain the output to JSON of a schema: a file, - for stdin, or its text.",
        ),
        grouped(
            "--json-schema-lax",
            is_flag=True,
            help="Leave out keywords of the schema that cannot be honoured, and say so.",
        ),
        grouped(
            "--json-indent",
            type=click.IntRange(0, 16),
            metavar="N",
            show_default="one line",
            help="Lay JSON out on lines, N blanks a level.",
        ),
    ]


def check_stops(stops: Sequence[str]) -> None:
    """Raise click.UsageError for an empty --stop."""
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
