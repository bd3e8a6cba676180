"""Run a command: parse its options, print one-line errors, end with an exit code of sysexits.h."""

import errno
import os
import signal
import sys
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from collections.abc import Callable

IGNORED = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
# An interrupt while a command starts ends it without a traceback. From `run` on, Python handles it.
if not IGNORED:
    signal.signal(signal.SIGINT, signal.SIG_DFL)

from .. import VERSION, faults  # noqa: E402
from ..messages import program, say  # noqa: E402
from ..system import descriptors  # noqa: E402
from . import lean  # noqa: E402

with lean.imports():
    import click  # noqa: E402

from . import declared  # noqa: E402

CONTEXT = {"help_option_names": ["-h", "--help"]}


def command(**settings: Any) -> "Callable[[Callable[..., Any]], click.Command]":
    """Decorator: a click command with -h and -V, whose help is its manual.

    settings: context settings of click.
    """

    def wrap(function: "Callable[..., Any]") -> click.Command:
        option = click.version_option(
            VERSION,
            "-V",
            "--version",
            message="%(prog)s (sluice) %(version)s",
            help="Print the version.",
        )
        return click.command(cls=declared.Command, context_settings={**CONTEXT, **settings})(
            option(function)
        )

    return wrap


def only_one(**given: object) -> None:
    """Raise UsageError if more than one of these options is given.

    The name `as_json` stands for --json, `file` and `files` for FILE.
    """
    names = [
        "FILE" if name in ("file", "files") else "--" + name.removeprefix("as_").replace("_", "-")
        for name, value in given.items()
        if value
    ]
    if len(names) > 1:
        raise click.UsageError(f"{names[0]} and {names[1]} exclude each other")


def refuse_terminal(what: str) -> None:
    """Raise UsageError if stdout is a terminal, because `what` is binary."""
    if os.isatty(1):
        raise click.UsageError(
            f"standard output: is a terminal, and {what} is binary; pipe it into a command or a"
            " file"
        )


def refuse(is_wrong: object, why: str) -> None:
    """Raise UsageError `why` if `is_wrong`."""
    if is_wrong:
        raise click.UsageError(why)


def run(main: click.Command) -> NoReturn:
    """Run `main` as this process and exit. No other function converts errors to codes and lines.

    Exit code: that of an Error; 64 for a usage error; 66 for an input file that is missing or not
    readable; 74 for another failed read or write, without a line if the reader of stdout went away;
    75 for lack of memory and for a library that cannot be loaded; 70, with a traceback, for any
    other exception, which is a bug.
    """
    descriptors.fill_closed()
    if not IGNORED:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    code = 0
    try:
        # Not main.main(): it exits with 1, the status of "no", if the reader of stdout went away.
        with main.make_context(program(), sys.argv[1:]) as context:
            main.invoke(context)
        if sys.stdout:  # None when the command was started with it closed
            sys.stdout.flush()
    except BaseException as e:
        code = code_of(e)
    os._exit(code)  # stdout is flushed or broken, and nothing else is left to do


def code_of(e: BaseException) -> int:
    """Print the line for an exception that ended a command, and return its exit code.

    An interrupt ends the process by SIGINT. Call it while the exception is being handled.
    """
    if isinstance(e, click.exceptions.Exit):
        return e.exit_code
    if isinstance(e, faults.Exit):
        return e.code
    if isinstance(e, click.UsageError):
        say(f"{_usage_message(e)} (see {program()} --help)")
        return faults.USAGE
    if isinstance(e, (KeyboardInterrupt, click.Abort)):
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
        return 0
    if isinstance(e, faults.Error):
        say(e)
        return e.code
    if isinstance(e, MemoryError):
        say("out of memory")
        return faults.TRY_AGAIN
    # a library that exists cannot be mapped
    if isinstance(e, ImportError) and not isinstance(e, ModuleNotFoundError):
        say(e)
        return faults.TRY_AGAIN
    if isinstance(e, OSError):
        if e.errno != errno.EPIPE:
            say(
                e.strerror or e
                if e.filename is None
                else f"{e.filename or 'empty file name'}: {e.strerror}"
            )
        missing = isinstance(e, (FileNotFoundError, PermissionError))
        return (
            faults.TRY_AGAIN
            if e.errno == errno.ENOMEM
            else faults.NO_INPUT
            if missing
            else faults.IO_ERROR
        )
    if isinstance(e, SystemExit):  # click's reaction to EPIPE in its own code
        return faults.IO_ERROR
    return _our_bug()


def _usage_message(e):
    """The message of a usage error, in the form "object: cause; remedy"."""
    hint = e.param.get_error_hint(e.ctx) if isinstance(e, click.BadParameter) and e.param else ""
    if isinstance(e, click.MissingParameter) and hint:
        if not isinstance(e.param, declared.Option):
            return f"{hint}: missing argument"
        variable = f" or set ${e.param.envvar}" if e.param.envvar else ""
        return f"{hint}: missing option; give {e.param.names[0]} {e.param.metavar}{variable}"
    if hint:
        return f"{hint}: {e.message.removesuffix('.')}"
    if isinstance(e, click.NoSuchOption):
        near = [name for name in e.possibilities or () if name.startswith("-")]
        return f"{e.option_name}: no such option" + f"; try {', '.join(near)}" * bool(near)
    if isinstance(e, click.BadOptionUsage):
        takes_one = "does not take" not in e.message
        return f"{e.option_name}: {'needs a value' if takes_one else 'does not take a value'}"
    return e.format_message().removesuffix(".")


def _our_bug():
    import traceback

    traceback.print_exc()
    say("internal error: please report the lines above")
    return faults.OUR_BUG
