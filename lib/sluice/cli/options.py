"""Options shared by several commands."""

import os
import stat
from collections.abc import Callable, Sequence
from typing import Any

import click

from .. import faults
from .declared import option
from .values import Mode, OrNone

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


def texts_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator: the options of many texts."""
    for decorate in (
        option(
            "--state",
            "state_file",
            metavar="FILE",
            group="Many texts",
            help="Record progress in FILE; a run that was killed continues. Needs >>OUTPUT.",
        ),
        option(
            "--select",
            metavar="ANSWER",
            group="Many texts",
            help="Print only the texts with this answer, as they came; of files the names.",
        ),
        option(
            "-0",
            "--null",
            is_flag=True,
            group="Many texts",
            help="End lines with NUL instead of a newline, for xargs -0.",
        ),
        option(
            "--text",
            "as_text",
            is_flag=True,
            group="Many texts",
            help="Each FILE is one text, even if it looks like a table, an mbox or binary.",
        ),
        option(
            "--csv",
            "column",
            metavar="COLUMN",
            group="Many texts",
            help="Read a CSV or TSV with a header; classify COLUMN; add columns with the answers.",
        ),
        option(
            "--each",
            type=click.Choice(["line"]),
            metavar="line",
            words=("line",),
            group="Many texts",
            help="Each line of the input is a text.",
        ),
        option(
            "--mbox",
            is_flag=True,
            group="Many texts",
            help="The input is an mbox; classify each message.",
        ),
        option(
            "-r",
            "--recursive",
            is_flag=True,
            group="Many texts",
            help="Read folders below a folder, too, and the folders of a Maildir.",
        ),
    ):
        function = decorate(function)
    return function


def why_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator: --why, --top, --spans, --counterfactual and --html."""
    for decorate in (
        option(
            "--html",
            metavar="FILE",
            files=("html",),
            group="Output",
            help="Write the explanation of --why, or the report of --evaluate with plots (extra"
            " plots), to FILE: one self-contained page (mode 0600: it has texts in it).",
        ),
        option(
            "--counterfactual",
            is_flag=True,
            group="Why",
            help="Name lines without which the answer is another, and as few as are needed.",
        ),
        option(
            "--spans",
            type=click.IntRange(2, 500),
            metavar="N",
            group="Why",
            show_default="500",
            help="At most N spans: of more lines, neighbours are left out together. Time grows with"
            " the number of spans.",
        ),
        option(
            "--top",
            type=click.IntRange(min=1),
            metavar="N",
            group="Why",
            show_default="all, in their order",
            help="The N lines with the largest effects, the largest first.",
        ),
        option(
            "--why",
            is_flag=True,
            group="Why",
            help="Print how much each line (or sentence, of a text with one line) moved the"
            " log-odds of the answer: each is left out in turn.",
        ),
    ):
        function = decorate(function)
    return function


def receipt_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator: --receipt, --receipt-key and --verify."""
    for decorate in (
        option(
            "--verify",
            metavar="RECEIPTS",
            files=("jsonl", "receipts"),
            group="Receipts",
            help="Classify the texts again; compare every bit with their receipts.",
        ),
        option(
            "--receipt-key",
            "receipt_key",
            metavar="FILE",
            group="Receipts",
            help="Key of the digests in receipts: guessing a text or forging a receipt needs it.",
        ),
        option(
            "--receipt",
            metavar="FILE",
            files=("jsonl", "receipts"),
            group="Receipts",
            help="Append a receipt of each verdict to FILE: digests, and every bit of the scores.",
        ),
    ):
        function = decorate(function)
    return function


def learning_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator: --learn, --forget, --list-learned, --reset, --auto-learn, --calibration and
    --no-calibration.
    """
    for decorate in (
        option(
            "--no-calibration",
            is_flag=True,
            group="Learning",
            help="Ignore what was learned; use the question's calibration.",
        ),
        option(
            "--calibration",
            "calibration_file",
            metavar="FILE",
            files=("calibration",),
            group="Learning",
            show_default="QUESTION.calibration in $XDG_DATA_HOME/sluice or ~/.local/share/sluice",
            help="The file of what was learned, read and updated.",
        ),
        option(
            "--auto-learn",
            type=click.FloatRange(0.5, 1.0),
            metavar="P",
            group="Learning",
            help="Learn the answers that are surer than P, too. They never count for more than the"
            " texts that you taught.",
        ),
        option(
            "--reset",
            is_flag=True,
            group="Learning",
            help="Forget all that was learned, and print the number of texts.",
        ),
        option(
            "--list-learned",
            is_flag=True,
            group="Learning",
            help="Print what was learned: texts, dates, and how they would be classified if each"
            " had not been learned.",
        ),
        option(
            "--forget",
            is_flag=True,
            group="Learning",
            help="Forget these texts, as if they had never been learned.",
        ),
        option(
            "--learn",
            metavar="ANSWER",
            words=("yes", "no", "spam", "ham"),
            group="Learning",
            help="Learn that ANSWER is correct for these texts. The model does not change.",
        ),
    ):
        function = decorate(function)
    return function


def evaluate_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator: --evaluate, --label and --compare."""
    for decorate in (
        option(
            "--compare",
            "compared",
            metavar="OTHER",
            files=("gguf", "yaml", "yml", "fit", "calibration"),
            group="Evaluation",
            help="Evaluate another model (.gguf), question, or calibration on the same texts, and"
            " test the difference.",
        ),
        option(
            "--label",
            "label_column",
            metavar="COLUMN",
            group="Evaluation",
            show_default="label; in JSON answer or label",
            help="Column, or key of a JSON object, with the correct answer of a text.",
        ),
        option(
            "--evaluate",
            is_flag=True,
            group="Evaluation",
            help="Classify labelled texts and print how good the answers are. LABELLED is a JSONL"
            " file, a CSV file (with --csv), ANSWER=FOLDER, or a folder of folders named after"
            " answers.",
        ),
    ):
        function = decorate(function)
    return function


def fit_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator: --prior and --save-prior, --fit and its options."""
    for decorate in (
        option(
            "--fit-file",
            "fit_path",
            metavar="FILE",
            files=("fit",),
            group="Honest probabilities",
            show_default="QUESTION.fit in $XDG_DATA_HOME/sluice or ~/.local/share/sluice",
            help="The fit, written by --fit and used by every other run.",
        ),
        option(
            "--risk",
            type=click.FloatRange(0.001, 0.5),
            metavar="R",
            group="Honest probabilities",
            help="With --fit: the threshold at which at most a share R of the accepted answers is"
            " wrong, with 95 % confidence.",
        ),
        option(
            "--head",
            is_flag=True,
            group="Honest probabilities",
            help="With --fit: insist on trying a linear head on the hidden state; needs 60 labels.",
        ),
        option(
            "--fit",
            is_flag=True,
            group="Honest probabilities",
            help="Fit the question to labelled texts: LABELLED as for --evaluate. Later runs use"
            " the fit.",
        ),
        option(
            "--save-prior",
            metavar="FILE",
            group="Honest probabilities",
            help="Write the prior that was found, for a later --prior FILE.",
        ),
        option(
            "--prior",
            metavar="KIND|FILE",
            files=("prior", "txt", "jsonl"),
            words=("none", "content-free", "texts"),
            group="Honest probabilities",
            show_default="the question's",
            help="Divide the probabilities by what the answers get on average: for content-free"
            " inputs, over all the texts, over the texts in FILE, or as saved in FILE.",
        ),
    ):
        function = decorate(function)
    return function


def listen_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator: --listen, --workers, --mode and --stats."""
    for decorate in (
        option(
            "--stats",
            metavar="FILE",
            files=("prom",),
            group="Server",
            help="Write counts and times for node_exporter's textfile collector to FILE, every 15"
            " s. FILE ends in .prom.",
        ),
        option(
            "--mode",
            type=Mode(),
            metavar="MODE",
            group="Server",
            show_default="0600",
            help="Permissions of the socket, in octal.",
        ),
        option(
            "--workers",
            type=click.IntRange(1, 1024),
            metavar="N",
            group="Server",
            show_default="available cores",
            help="Messages classified at the same time.",
        ),
        option(
            "--listen",
            metavar="SOCKET",
            group="Server",
            help="Serve this Unix socket until SIGTERM.",
        ),
    ):
        function = decorate(function)
    return function


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
