"""What every command does at its edges: options, one-line messages, exit codes.

    @cli.command()
    @cli.model_option
    def main(model): ...
    if __name__ == "__main__":
        cli.run(main)
"""
import errno
import os
import signal
import sys

IGNORED = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
if not IGNORED:  # an interrupt while a command is still starting ends it without a traceback; `run` takes over from here
    signal.signal(signal.SIGINT, signal.SIG_DFL)

from .. import VERSION, faults  # noqa: E402
from ..system import descriptors  # noqa: E402
from . import lean  # noqa: E402

with lean.imports():
    import click  # noqa: E402

CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100, "show_default": True}


def command(**kwargs):
    """click.command with -h, -V and a help text that keeps its lines."""
    def wrap(function):
        option = click.version_option(VERSION, "-V", "--version", message="%(prog)s (sluice) %(version)s")
        return click.command(context_settings=CONTEXT, **kwargs)(option(function))
    return wrap


model_option = click.option(
    "-m", "--model", metavar="FILE", envvar="MODEL", required=True, show_envvar=True,
    help="GGUF file; of a model in several files any one.")
vocab_option = click.option("--vocab", "vocab_file", metavar="FILE", help="tokenizer.bin, where the model is a checkpoint of llama2.c.")
threads_option = click.option(
    "-j", "--threads", type=click.IntRange(1, 1024), metavar="N", default=None,
    help="Worker threads.  [default: one a core that this process may use]")
arithmetic_option = click.option(
    "--arithmetic", type=click.Choice(["exact", "fast"]), default="exact",
    help="Of products with F32, F16 and BF16 weights: fast splits numbers into bf16 for AMX, as exact as f32, but other bits.")


def _want_huge_pages(context, param, value):
    if value:
        from .system import huge_pages
        huge_pages.wanted = True


huge_pages_option = click.option(
    "--huge-pages", is_flag=True, expose_value=False, callback=_want_huge_pages,
    help="Copy the model into memory in pages of 2 MiB first, for processes that stay: 0.6 to 2.5 s "
    "and 1 GB of memory for each GB. Generation is then 1.1 to 1.6 times as fast as from a page "
    "cache in scattered pages of 4 KiB, and no faster than from one in large pages. The same bits.")


class Number(click.FloatRange):
    """A finite number from `min` to `max`."""

    def convert(self, value, param, ctx):
        number = super().convert(value, param, ctx)
        if number != number or number in (float("inf"), float("-inf")):
            self.fail(f"{value} is not a number.", param, ctx)
        return number


class OrNone(click.IntRange):
    """A whole number within a range, or -1, as llama.cpp's commands have it, which is None: no
    limit, a random seed."""

    def convert(self, value, param, ctx):
        return None if str(value).strip() == "-1" else super().convert(value, param, ctx)

    def _describe_range(self):  # of click, for --help
        return f"-1 or {super()._describe_range()}"


class Bytes(click.ParamType):
    """A number of bytes: 4096, or 500K, 50M, 2G (thousands, millions and so on)."""

    name = "bytes"

    def convert(self, value, param, ctx):
        if isinstance(value, int):
            return value
        unit = {"K": 1000, "M": 1000 ** 2, "G": 1000 ** 3}.get(value[-1:].upper(), 1)
        digits = value if unit == 1 else value[:-1]
        if not (digits.isascii() and digits.isdigit() and len(digits) <= 15 and int(digits)):
            self.fail(f"{value!r} is not a number of bytes such as 4096, 50M or 2G.", param, ctx)
        return int(digits) * unit


class Mode(click.ParamType):
    """The mode of a file, in octal: "0660"."""

    name = "mode"

    def convert(self, value, param, context):
        if isinstance(value, int):
            return value
        if not (value.isdigit() and value.isascii() and len(value) <= 4 and "8" not in value and "9" not in value and int(value, 8) <= 0o777):
            self.fail(f"{value!r} is not a mode from 0000 to 0777", param, context)
        return int(value, 8)


def calibration_options(function):
    """--learn, --forget, --calibration and --no-calibration, as the arguments of calibration.which()."""
    for option in (
            click.option("--no-calibration", is_flag=True, help="Answer as shipped, whatever was learnt."),
            click.option("--calibration", "learnt_file", metavar="FILE", help="What was learnt.  [default: QUESTION.calibration in "
                         "$XDG_DATA_HOME/sluice or ~/.local/share/sluice]"),
            click.option("--forget", is_flag=True, help="Forget what was learnt of this text."),
            click.option("--learn", metavar="ANSWER", help="Learn that this is the right answer; print what is answered from now on.")):
        function = option(function)
    return function


def listen_options(function):
    """--listen, --workers and --mode, those of worker.run()."""
    for option in (
            click.option("--mode", type=Mode(), metavar="MODE", help="Of --listen: who may connect, as for chmod.  [default: 0600]"),
            click.option("--workers", type=click.IntRange(1, 1024), metavar="N", help="Of --listen: how many mails at a time.  "
                         "[default: one a core that this process may use]"),
            click.option("--listen", metavar="SOCKET", help="Stay, and answer mails that come on this Unix socket.")):
        function = option(function)
    return function


verbose_option = click.option("-v", "--verbose", is_flag=True, help="One key=value line on stderr at the end.")


def only_one(**given):
    """Usage error where more than one of these arguments is given; `as_json` is called --json, `file` FILE."""
    names = ["FILE" if name == "file" else "--" + name.removeprefix("as_").replace("_", "-") for name, value in given.items() if value]
    if len(names) > 1:
        raise click.UsageError(f"{names[0]} and {names[1]} exclude each other")


def say(message):
    """One line on stderr, `command: message`, without control codes, file names as they are; a
    closed stderr is nobody's business."""
    line = faults.one_line(f"{program()}: {message}".replace("\n", " "))
    try:
        os.write(2, line.encode("utf-8", "surrogateescape") + b"\n")
    except OSError:
        pass


def program():
    """The name this command was called by."""
    return os.path.basename(sys.argv[0])


def report(**fields):
    """The line of -v: `command: key=value key=value`; floats with one decimal."""
    say(" ".join(f"{k}={v:.1f}" if isinstance(v, float) else f"{k}={v}" for k, v in fields.items()))


def refuse_terminal(what):
    """Usage error if stdout is a terminal: `what` is binary, and would be noise there."""
    if os.isatty(1):
        raise click.UsageError(f"stdout is a terminal, and {what} is binary: pipe it into a command or a file")


def refuse(is_wrong, why):
    """Usage error `why` if the options do not go together."""
    if is_wrong:
        raise click.UsageError(why)


def run(main):
    """Run `main` (a click command) as this process and exit: the only place that turns errors into codes and lines.

    A Fault ends in its own code; click's usage errors in 64; a missing or
    unreadable input file in 66; any other failing read or write in 74 (a reader
    of our stdout that went away is silent); out of memory, and a library that
    is there but cannot be loaded, in 75. Anything else is our bug: its
    traceback, and 70.
    """
    descriptors.hold()
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
    """The exit code for what ended a command, an exception that is being handled; its line is said. After an interrupt: ends by it."""
    if isinstance(e, click.exceptions.Exit):
        return e.exit_code
    if isinstance(e, click.UsageError):
        say(f"{e.format_message()} (see {program()} --help)")
        return faults.USAGE
    if isinstance(e, (KeyboardInterrupt, click.Abort)):
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
        return 0
    if isinstance(e, faults.Fault):
        say(e)
        return e.code
    if isinstance(e, MemoryError):
        say("out of memory")
        return faults.TRY_AGAIN
    if isinstance(e, ImportError) and not isinstance(e, ModuleNotFoundError):  # a library that is there could not be mapped
        say(e)
        return faults.TRY_AGAIN
    if isinstance(e, OSError):
        if e.errno != errno.EPIPE:
            say(f"{e.filename}: {e.strerror}" if e.filename else e.strerror or e)
        missing = isinstance(e, (FileNotFoundError, PermissionError))
        return faults.TRY_AGAIN if e.errno == errno.ENOMEM else faults.NO_INPUT if missing else faults.IO_ERROR
    if isinstance(e, SystemExit):  # click's answer to EPIPE, before it comes to us
        return faults.IO_ERROR
    return _our_bug()


def _our_bug():
    import traceback
    traceback.print_exc()
    say("internal error: please report the lines above")
    return faults.OUR_BUG
