"""A command from its first word to its exit code."""

import errno
import os
import signal
import sys

IGNORED = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
# an interrupt while a command is still starting ends it without a traceback; `run` takes over from
# here
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


def command(**settings):
    """click.command with -h and -V, and its manual for a help text; `settings` of its context."""

    def wrap(function):
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


def only_one(**given):
    """Usage error where more than one of these arguments is given; `as_json` is called --json,
    `file` FILE.
    """
    names = [
        "FILE" if name == "file" else "--" + name.removeprefix("as_").replace("_", "-")
        for name, value in given.items()
        if value
    ]
    if len(names) > 1:
        raise click.UsageError(f"{names[0]} and {names[1]} exclude each other")


def refuse_terminal(what):
    """Usage error if stdout is a terminal: `what` is binary, and would be noise there."""
    if os.isatty(1):
        raise click.UsageError(
            f"stdout is a terminal, and {what} is binary: pipe it into a command or a file"
        )


def refuse(is_wrong, why):
    """Usage error `why` if the options do not go together."""
    if is_wrong:
        raise click.UsageError(why)


def run(main):
    """Run `main` (a click command) as this process and exit: the only place that turns errors into
    codes and lines.

    An Error ends in its own code; click's usage errors in 64; a missing or
    unreadable input file in 66; any other failing read or write in 74 (a reader
    of our stdout that went away is silent); out of memory, and a library that
    is there but cannot be loaded, in 75. Anything else is our bug: its
    traceback, and 70.
    """
    descriptors.fill_closed()
    if not IGNORED:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    code = 0
    try:
        # Not main.main(): that ends in 1, the code of "no", where a reader of our stdout went away.
        with main.make_context(program(), sys.argv[1:]) as context:
            main.invoke(context)
        if sys.stdout:  # None when the command was started with it closed
            sys.stdout.flush()
    except BaseException as e:
        code = code_of(e)
    os._exit(code)  # stdout was flushed or is broken, and nothing else is left to do


def code_of(e):
    """The exit code for what ended a command, an exception that is being handled; its line is said.
    After an interrupt: ends by it.
    """
    if isinstance(e, click.exceptions.Exit):
        return e.exit_code
    if isinstance(e, faults.Exit):
        return e.code
    if isinstance(e, click.UsageError):
        say(f"{e.format_message()} (see {program()} --help)")
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
    # a library that is there could not be mapped
    if isinstance(e, ImportError) and not isinstance(e, ModuleNotFoundError):
        say(e)
        return faults.TRY_AGAIN
    if isinstance(e, OSError):
        if e.errno != errno.EPIPE:
            say(f"{e.filename}: {e.strerror}" if e.filename else e.strerror or e)
        missing = isinstance(e, (FileNotFoundError, PermissionError))
        return (
            faults.TRY_AGAIN
            if e.errno == errno.ENOMEM
            else faults.NO_INPUT
            if missing
            else faults.IO_ERROR
        )
    if isinstance(e, SystemExit):  # click's answer to EPIPE, before it comes to us
        return faults.IO_ERROR
    return _our_bug()


def _our_bug():
    import traceback

    traceback.print_exc()
    say("internal error: please report the lines above")
    return faults.OUR_BUG
