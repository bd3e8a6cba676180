"""Start of every command: `start.py PATH WORD...` runs the command that PATH is a name of.

`sluice COMMAND` is COMMAND under the name "sluice COMMAND"; of the programs in PROGRAMS, which are
no Python, it becomes the one beside it.

An error before the command has begun ends with a code of its own, never with 1: from `classify`
that is a verdict.
"""

import os
import signal
import sys

# as in faults.py, which may be what cannot be imported
OUR_BUG, TRY_AGAIN, USAGE, UNAVAILABLE = 70, 75, 64, 69
UMBRELLA, PROGRAMS = "sluice", ("mail-filter", "mail-milter")


def run(path):
    """Run the command that `path` names as this process; sys.argv[1:] are its words."""
    sys.excepthook = _end
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:  # no traceback: cli.run takes over
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    name = name_of(path)
    if name == UMBRELLA:
        name = _chosen(path)
    module = __import__("sluice.commands." + name.replace("-", "_"), fromlist=["main"])
    from sluice import cli

    cli.run(module.main)


def name_of(path):
    """The command's name: the first in the chain of links from `path` that a command has."""
    while not os.path.isfile(_file(name := os.path.basename(path))) and os.path.islink(path):
        path = os.path.join(os.path.dirname(path), os.readlink(path))
    return name


def program_path(path: str, name: str) -> "str | None":
    """Where the program `name` is, beside `path` or what that is a link to; or None."""
    for directory in (os.path.dirname(path), os.path.dirname(os.path.realpath(path))):
        found = os.path.join(directory, name)
        if os.access(found, os.X_OK):
            return found
    return None


def _chosen(path):
    """The name of the command that `sluice COMMAND` means, whose name and words sys.argv then has;
    `sluice` itself if there is none of the name. Does not return for one of PROGRAMS.
    """
    word = sys.argv[1] if len(sys.argv) > 1 else ""
    if word in PROGRAMS:
        _become(path, word)
    if not (word[:1].isalpha() and "_" not in word and os.path.isfile(_file(word))):
        return UMBRELLA
    # in its directory: `sluice-bench --start` looks for a command beside its own
    directory, name = os.path.dirname(os.path.realpath(path)), os.path.basename(path)
    sys.argv[:2] = [os.path.join(directory, f"{name} {word}")]
    return word


def _become(path, program):
    """Replace this process by `program`, as if it had been started in place of `sluice`."""
    found = program_path(path, program)
    if found is None:
        name = os.path.basename(path)
        os.write(2, f"{name}: {program}: is not installed beside {name}\n".encode())
        os._exit(UNAVAILABLE)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # which Python ignores
        signal.signal(number, signal.SIG_DFL)
    os.execv(found, [found, *sys.argv[2:]])


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
