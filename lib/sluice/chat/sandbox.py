"""Render chat templates in a child process with bounded time and memory: the parent's side.

renderer.py is the program of the child. It gets a request as JSON on stdin and prints the answer as
JSON; its docstring has the format.
"""

import json
import os

from ..faults import TRY_AGAIN, Error, data_error

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

PROGRAM = "import sys; sys.path[:] = sys.argv[1:]; from sluice.chat.renderer import main; main()"
WALL_SECONDS = 20  # the child limits its processor time itself; this is for a busy machine


def ask(request: "dict[str, Any]", name: str) -> "dict[str, Any]":
    """Start a renderer, send it `request` and return its answer.

    name: the template, for messages. Raises DataError if the template exceeds a limit, or Error 75
    if the child failed otherwise.
    """
    import signal
    import subprocess
    import sys

    try:
        data = json.dumps(request).encode()
    except RecursionError:
        raise data_error(name, "a variable is nested too deeply") from None
    environment = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}
    # The child inherits the mask: Ctrl-C does not end it, even before it has its own session.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        child = subprocess.Popen(
            [sys.executable, "-I", "-c", PROGRAM, *sys.path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            start_new_session=True,
        )
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    with child:
        try:
            out, _ = child.communicate(data, WALL_SECONDS)
        except subprocess.TimeoutExpired:
            raise data_error(name, f"took more than {WALL_SECONDS} s") from None
        finally:
            child.kill()
    try:
        return json.loads(out)
    except ValueError:
        raise _error(child.returncode, name) from None


def _error(code, name):
    """The Error for a child that ended with `code` and without an answer."""
    import signal

    from .renderer import CPU_SECONDS

    if code in (-signal.SIGXCPU, -signal.SIGKILL):
        return data_error(name, f"took more than {CPU_SECONDS} s of processor time")
    if code >= 0:
        return Error(TRY_AGAIN, f"{name}: cannot be rendered: the process ended with {code}")
    return data_error(name, f"the process ended by signal {-code}: nested too deeply, or too large")
