"""Start of every command: `start.py PATH WORD...` runs the command that PATH is a name of.

An error before the command has begun ends with a code of its own, never with 1: from `classify`
that is a verdict.
"""

import os
import signal
import sys

OUR_BUG, TRY_AGAIN, USAGE = 70, 75, 64  # as in faults.py, which may be what cannot be imported


def run(path):
    """Run the command that `path` names as this process; sys.argv[1:] are its words."""
    sys.excepthook = _end
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:  # no traceback: cli.run takes over
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    module = __import__("sluice.commands." + name_of(path).replace("-", "_"), fromlist=["main"])
    from sluice import cli

    cli.run(module.main)


def name_of(path):
    """The command's name: the first in the chain of links from `path` that a command has."""
    while not os.path.isfile(_file(name := os.path.basename(path))) and os.path.islink(path):
        path = os.path.join(os.path.dirname(path), os.readlink(path))
    return name


def _file(name):
    import sluice

    return os.path.join(
        os.path.dirname(sluice.__file__), "commands", name.replace("-", "_") + ".py"
    )


def _end(kind, e, trace):
    if issubclass(kind, KeyboardInterrupt):
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    if issubclass(kind, (MemoryError, OSError, ImportError)) and not issubclass(
        kind, ModuleNotFoundError
    ):
        name = os.path.basename(sys.argv[0])  # what is there cannot be had
        os.write(
            2, f"{name}: {e if str(e) else 'out of memory'}\n".encode("utf-8", "surrogateescape")
        )
        os._exit(TRY_AGAIN)
    sys.__excepthook__(kind, e, trace)
    os._exit(OUR_BUG)


if __name__ == "__main__":
    del sys.argv[0]
    run(sys.argv[0])
