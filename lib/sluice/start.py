"""Start a command: `start.py PATH WORD...` runs the command that PATH names.

`sluice COMMAND` runs COMMAND under the name "sluice COMMAND". For a C program in PROGRAMS, it
replaces itself by the program of this name in the same directory.

An error before the command begins exits with a code of its own, never with 1, which is a result of
`classify`.
"""

import os
import sys

# as in faults.py, which may fail to import
OUR_BUG, TRY_AGAIN, USAGE, UNAVAILABLE = 70, 75, 64, 69
UMBRELLA, PROGRAMS = "sluice", ("mail-filter", "mail-milter")


def run(path: str) -> None:
    """Run the command that `path` names as this process, with sys.argv[1:], and exit."""
    sys.excepthook = _end
    import signal  # after setting excepthook: the import can fail for lack of memory

    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:  # no traceback: cli.run takes over
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    name = name_of(path)
    if name == UMBRELLA:
        name = _chosen(path)
    module = __import__("sluice.commands." + name.replace("-", "_"), fromlist=["main"])
    from sluice import cli

    cli.run(module.main)


def name_of(path: str) -> str:
    """Return the name of the command: the first one in the chain of links from `path`."""
    while not os.path.isfile(_file(name := os.path.basename(path))) and os.path.islink(path):
        path = os.path.join(os.path.dirname(path), os.readlink(path))
    return name


def program_path(path: str, name: str) -> "str | None":
    """Return the path of the program `name`, next to `path` or to the link's target; or None."""
    for directory in (os.path.dirname(path), os.path.dirname(os.path.realpath(path))):
        found = os.path.join(directory, name)
        if os.access(found, os.X_OK):
            return found
    return None


def _chosen(path):
    """Return the COMMAND of `sluice COMMAND`, and put its name and words into sys.argv.

    Returns "sluice" if there is no such command. Does not return for one of PROGRAMS.
    """
    word = sys.argv[1] if len(sys.argv) > 1 else ""
    if word in PROGRAMS:
        _become(path, word)
    if not (word[:1].isalpha() and "_" not in word and os.path.isfile(_file(word))):
        return UMBRELLA
    # with a directory: `sluice-bench --start` looks for a command next to its own
    directory, name = os.path.dirname(os.path.realpath(path)), os.path.basename(path)
    sys.argv[:2] = [os.path.join(directory, f"{name} {word}")]
    return word


def _become(path, program):
    """Replace this process by `program`, as if the user had started it instead of `sluice`."""
    import signal

    found = program_path(path, program)
    if found is None:
        name = os.path.basename(path)
        os.write(2, f"{name}: {program}: is not installed in the directory of {name}\n".encode())
        os._exit(UNAVAILABLE)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores these
        signal.signal(number, signal.SIG_DFL)
    os.execv(found, [found, *sys.argv[2:]])


def _file(name):
    import sluice

    return os.path.join(
        os.path.dirname(sluice.__file__), "commands", name.replace("-", "_") + ".py"
    )


def _end(kind, e, trace):
    if issubclass(kind, KeyboardInterrupt):
        import signal

        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    if issubclass(kind, (MemoryError, OSError, ImportError)) and not issubclass(
        kind, ModuleNotFoundError
    ):
        # a file or library exists, but cannot be loaded
        name = os.path.basename(sys.argv[0])
        os.write(
            2, f"{name}: {e if str(e) else 'out of memory'}\n".encode("utf-8", "surrogateescape")
        )
        os._exit(TRY_AGAIN)
    sys.__excepthook__(kind, e, trace)
    os._exit(OUR_BUG)


if __name__ == "__main__":
    del sys.argv[0]
    run(sys.argv[0])
