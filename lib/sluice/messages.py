"""Messages on stderr: `command: message`."""

import os
import sys

from . import faults


def say(message: object) -> None:
    """Write one line to stderr, `command: message`, without control codes. A closed stderr is
    ignored.
    """
    line = faults.one_line(f"{program()}: {message}".replace("\n", " "))
    try:
        os.write(2, line.encode("utf-8", "surrogateescape") + b"\n")
    except OSError:
        pass


def hint(message: object) -> None:
    """Say what a person may want to know; scripts are spared: only if stderr is a terminal."""
    try:
        if os.isatty(2):
            say(message)
    except OSError:
        pass


def program() -> str:
    """Return the name under which this command was called."""
    return os.path.basename(sys.argv[0])


def report(**fields: object) -> None:
    """Write the statistics line of -v: `command: key=value key=value`; floats with one decimal."""
    say(" ".join(f"{k}={v:.1f}" if isinstance(v, float) else f"{k}={v}" for k, v in fields.items()))
