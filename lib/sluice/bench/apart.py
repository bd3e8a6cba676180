"""Work in a child of this process: rows that come back one by one, or an object whose methods are
called from here.

A process starts its threads once, so each number of threads needs a process of its own; and what
may crash is kept where only its own process ends. What passes between the two must be what JSON can
hold, one line each.
"""

import json
import os
import signal
import tempfile
import traceback

from ..faults import OUR_BUG, TRY_AGAIN, Error, printable

MOST_SAID = 1 << 14  # bytes that are looked at of what a child wrote on stderr
# what one of Python begins with, whose last line says most
TRACEBACK = "Traceback (most recent call last):"


def rows(make):
    """Yield the rows (dicts) that make() yields in a child; an Error there is one here."""
    from_child, to_parent = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(from_child)
        for n in (signal.SIGINT, signal.SIGTERM):
            if signal.getsignal(n) is not signal.SIG_IGN:
                signal.signal(n, _interrupt)
        _child(to_parent, lambda: (("row", row) for row in make()))
    os.close(to_parent)
    try:
        with open(from_child, encoding="utf-8") as lines:
            for line in lines:
                kind, what = json.loads(line)
                if kind == "fault":
                    raise Error(*what)
                yield what
        status, pid = os.waitpid(pid, 0)[1], None
        if status:
            raise Error(
                OUR_BUG if os.WIFEXITED(status) else TRY_AGAIN,
                f"a process of this bench ended early: {ending(status)}",
            )
    finally:
        if pid:
            os.kill(pid, signal.SIGTERM)
            os.waitpid(pid, 0)


def _interrupt(*_):
    """The end, asked for by the parent or at the keyboard, or both: what was begun here, processes
    and files, is put away, once.
    """
    for n in (signal.SIGINT, signal.SIGTERM):
        signal.signal(n, signal.SIG_IGN)
    raise KeyboardInterrupt


class Remote:
    """make(*arguments) in a child, forked here, before this process has threads; `start` has it
    made.

    `fault`: None, or why there is nothing more to be had from it, one line: an Error of its own, or
    how its process ended and what it said on stderr first, which nobody sees otherwise.
    """

    def __init__(self, make):
        self.fault, self._said = None, tempfile.TemporaryFile()
        from_parent, to_child = os.pipe()
        from_child, to_parent = os.pipe()
        self._pid = os.fork()
        if not self._pid:
            os.close(to_child)
            os.close(from_child)
            os.dup2(self._said.fileno(), 2)
            os.dup2(2, 1)
            _child(to_parent, lambda: _answers(make, from_parent))
        os.close(from_parent)
        os.close(to_parent)
        self._out, self._in = (
            open(to_child, "w", encoding="utf-8"),
            open(from_child, encoding="utf-8"),
        )

    def start(self, *arguments):
        """make(*arguments)."""
        return self.call("", *arguments)

    def call(self, name, *arguments):
        """What the object's method `name` returns there; None where there is a `fault`, now or
        before.
        """
        if self.fault:
            return None
        try:
            print(json.dumps([name, arguments]), file=self._out, flush=True)
            line = self._in.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            self.fault = self._end()
            return None
        kind, what = json.loads(line)
        if kind == "fault":
            self.fault = what[1]
            return None
        return what

    def _end(self):
        status, self._pid = os.waitpid(self._pid, 0)[1], None
        said = os.pread(self._said.fileno(), MOST_SAID, 0).decode("utf-8", "replace")
        lines = [line.strip() for line in said.split("\n") if line.strip()]
        what = f"its process ended: {ending(status)}"
        return (
            what + f", after it said {printable(lines[-1 if lines[0] == TRACEBACK else 0], 200)}"
            if lines
            else what
        )

    def close(self):
        """End the child, wherever it is."""
        if self._pid:
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
            self._pid = None

    __del__ = close


def ending(status):
    """What a status of waitpid says, in words."""
    if os.WIFEXITED(status):
        return f"exit code {os.WEXITSTATUS(status)}"
    n = os.WTERMSIG(status)
    try:
        return f"{signal.Signals(n).name}, {signal.strsignal(n)}"
    except ValueError:  # a real-time signal
        return f"signal {n}"


def _answers(make, fd):
    """Yield ("value", what a call returned) for each call that comes in."""
    made = None
    with open(fd, encoding="utf-8") as calls:
        for line in calls:
            name, arguments = json.loads(line)
            if name:
                yield "value", getattr(made, name)(*arguments)
            else:
                made = make(*arguments)
                yield "value", None


def _child(fd, answers):
    """Write what answers() yields, and the Error that ends it, to `fd`; never returns."""
    code = OUR_BUG
    try:
        with open(fd, "w", encoding="utf-8") as out:
            try:
                for answer in answers():
                    print(json.dumps(answer), file=out, flush=True)
            except Error as e:
                print(json.dumps(["fault", [e.code, str(e)]]), file=out)
            except MemoryError:
                print(json.dumps(["fault", [TRY_AGAIN, "out of memory"]]), file=out)
        code = 0
    except KeyboardInterrupt:
        pass
    except BaseException:
        os.write(2, traceback.format_exc().encode("utf-8", "backslashreplace"))
    finally:
        os._exit(code)
