"""Options that several commands have."""

import click

from .values import Mode

model_option = click.option(
    "-m",
    "--model",
    metavar="FILE",
    envvar="MODEL",
    required=True,
    show_envvar=True,
    help="GGUF file; of a model in several files any one.",
)
vocab_option = click.option(
    "--vocab",
    "vocab_file",
    metavar="FILE",
    help="tokenizer.bin, where the model is a checkpoint of llama2.c.",
)
threads_option = click.option(
    "-j",
    "--threads",
    type=click.IntRange(1, 1024),
    metavar="N",
    default=None,
    help="Worker threads.  [default: one a core that this process may use]",
)
arithmetic_option = click.option(
    "--arithmetic",
    type=click.Choice(["exact", "fast"]),
    default="exact",
    help=(
        "Of products with F32, F16 and BF16 weights: fast splits numbers into bf16 for AMX, as"
        " exact as f32, but other bits."
    ),
)
huge_pages_option = click.option(
    "--huge-pages",
    is_flag=True,
    help=(
        "Copy the model into memory in pages of 2 MiB first, for processes that stay: 0.6 to 2.5 s"
        " and 1 GB of memory for each GB. Generation is then 1.1 to 1.6 times as fast as from a"
        " page cache in scattered pages of 4 KiB, and no faster than from one in large pages. The"
        " same bits."
    ),
)


def calibration_options(function):
    """--learn, --forget, --calibration and --no-calibration, for learning.learner()."""
    for option in (
        click.option(
            "--no-calibration", is_flag=True, help="Answer as shipped, whatever was learnt."
        ),
        click.option(
            "--calibration",
            "learnt_file",
            metavar="FILE",
            help=(
                "What was learnt.  [default: QUESTION.calibration in "
                "$XDG_DATA_HOME/sluice or ~/.local/share/sluice]"
            ),
        ),
        click.option("--forget", is_flag=True, help="Forget what was learnt of this text."),
        click.option(
            "--learn",
            metavar="ANSWER",
            help="Learn that this is the right answer; print what is answered from now on.",
        ),
    ):
        function = option(function)
    return function


def listen_options(function):
    """--listen, --workers and --mode, those of worker.run()."""
    for option in (
        click.option(
            "--mode",
            type=Mode(),
            metavar="MODE",
            help="Of --listen: who may connect, as for chmod.  [default: 0600]",
        ),
        click.option(
            "--workers",
            type=click.IntRange(1, 1024),
            metavar="N",
            help=(
                "Of --listen: how many mails at a time.  "
                "[default: one a core that this process may use]"
            ),
        ),
        click.option(
            "--listen",
            metavar="SOCKET",
            help="Stay, and answer mails that come on this Unix socket.",
        ),
    ):
        function = option(function)
    return function


verbose_option = click.option(
    "-v", "--verbose", is_flag=True, help="One key=value line on stderr at the end."
)


def _variables(context, parameter, values):
    from ..chat import template

    try:
        return dict(template.parse_variable(value) for value in values)
    except ValueError as e:
        raise click.BadParameter(str(e))


CHAT = (
    click.option(
        "--system", metavar="TEXT", help="What the model is told first, in the system's role."
    ),
    click.option(
        "--messages",
        "path",
        metavar="FILE",
        help=(
            "A conversation that was: JSON lines or a JSON array with role and content, "
            "or a list in YAML (.yaml, .yml)."
        ),
    ),
    click.option(
        "--template",
        "template_path",
        metavar="FILE|NAME",
        help=(
            "Chat template in place of the model's: a file, or chatml or plain, which come with"
            " sluice."
        ),
    ),
    click.option(
        "--set",
        "variables",
        metavar="NAME=VALUE",
        multiple=True,
        callback=_variables,
        help=(
            "A variable for the template: JSON, or else a string, as in enable_thinking=false; can"
            " be given again."
        ),
    ),
)


def chat_options(function):
    """Decorator: all of CHAT, in their order in the help."""
    for option in reversed(CHAT):
        function = option(function)
    return function
