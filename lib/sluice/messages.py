"""Lines on stderr: `command: message`."""

import os
import sys

from . import faults


def say(message: object) -> None:
    """One line on stderr, `command: message`, without control codes, file names as they are; a
    closed stderr is nobody's business."""
    line = faults.one_line(f"{program()}: {message}".replace("\n", " "))
    try:
        os.write(2, line.encode("utf-8", "surrogateescape") + b"\n")
    except OSError:
        pass


def program() -> str:
    """The name this command was called by."""
    return os.path.basename(sys.argv[0])


def report(**fields: object) -> None:
    """The line of -v: `command: key=value key=value`; floats with one decimal."""
    say(" ".join(f"{k}={v:.1f}" if isinstance(v, float) else f"{k}={v}" for k, v in fields.items()))
