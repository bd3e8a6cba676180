"""Run a generator or an object in a child process.

A process starts its threads once, so each number of threads needs a process of its own. Another
engine may crash, and then only its process ends. Values pass between the processes as JSON, one
line each.
"""

from __future__ import annotations

import json
import os
import signal
import tempfile
import traceback
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ..faults import OUR_BUG, TRY_AGAIN, Error, printable

MAX_STDERR = 1 << 14  # bytes of a child's stderr that are examined
# first line of a Python traceback, whose last line is the error
TRACEBACK = "Traceback (most recent call last):"


def rows(make: Callable[[], Iterable[dict]]) -> Iterator[dict]:
    """Yield the rows that make() yields in a child. An Error there is raised here."""
    from_child, to_parent = os.pipe()
    pid: Any = os.fork()  # None after waitpid
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
                if kind == "error":
                    raise Error(*what)
                yield what
        status, pid = os.waitpid(pid, 0)[1], None
        if status:
            raise Error(
                OUR_BUG if os.WIFEXITED(status) else TRY_AGAIN,
                f"a process of this benchmark ended early: {ending(status)}",
            )
    finally:
        if pid:
            os.kill(pid, signal.SIGTERM)
            os.waitpid(pid, 0)


def _interrupt(*_):
    """End this process once, for SIGINT, SIGTERM or both: finally clauses remove its files."""
    for n in (signal.SIGINT, signal.SIGTERM):
        signal.signal(n, signal.SIG_IGN)
    raise KeyboardInterrupt


class Remote:
    """An object in a child process, which is forked here, before this process has threads.

    make: constructor, called by start(). error: None, or one line, after which every call returns
    None: an Error of the object, or how its process ended, with its message on stderr.
    """

    def __init__(self, make: Callable[..., Any]) -> None:
        self.error: str | None = None
        self._stderr = tempfile.TemporaryFile()
        from_parent, to_child = os.pipe()
        from_child, to_parent = os.pipe()
        self._pid: Any = os.fork()  # None after waitpid
        if not self._pid:
            os.close(to_child)
            os.close(from_child)
            os.dup2(self._stderr.fileno(), 2)
            os.dup2(2, 1)
            _child(to_parent, lambda: _results(make, from_parent))
        os.close(from_parent)
        os.close(to_parent)
        self._out, self._in = (
            open(to_child, "w", encoding="utf-8"),
            open(from_child, encoding="utf-8"),
        )

    def start(self, *arguments: Any) -> None:
        """Call make(*arguments) in the child."""
        self.call("", *arguments)

    def call(self, name: str, *arguments: Any) -> Any:
        """Call the object's method `name`; None if there is an `error`, now or before."""
        if self.error:
            return None
        try:
            print(json.dumps([name, arguments]), file=self._out, flush=True)
            line = self._in.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            self.error = self._end()
            return None
        kind, what = json.loads(line)
        if kind == "error":
            self.error = what[1]
            return None
        return what

    def _end(self):
        status, self._pid = os.waitpid(self._pid, 0)[1], None
        text_written = os.pread(self._stderr.fileno(), MAX_STDERR, 0).decode("utf-8", "replace")
        lines = [line.strip() for line in text_written.split("\n") if line.strip()]
        what = f"its process ended: {ending(status)}"
        return (
            what
            + f", after the message {printable(lines[-1 if lines[0] == TRACEBACK else 0], 200)}"
            if lines
            else what
        )

    def close(self) -> None:
        """Kill the child."""
        if self._pid:
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
            self._pid = None

    __del__ = close


def ending(status: int) -> str:
    """Describe a status of waitpid: exit code or signal."""
    if os.WIFEXITED(status):
        return f"exit code {os.WEXITSTATUS(status)}"
    n = os.WTERMSIG(status)
    try:
        return f"{signal.Signals(n).name}, {signal.strsignal(n)}"
    except ValueError:  # a real-time signal
        return f"signal {n}"


def _results(make, fd):
    """Yield ("value", result) for each call that arrives on `fd`."""
    made = None
    with open(fd, encoding="utf-8") as calls:
        for line in calls:
            name, arguments = json.loads(line)
            if name:
                yield "value", getattr(made, name)(*arguments)
            else:
                made = make(*arguments)
                yield "value", None


def _child(fd, results):
    """Write what results() yields, and the Error that ends it, to `fd`; never return."""
    code = OUR_BUG
    try:
        with open(fd, "w", encoding="utf-8") as out:
            try:
                for result in results():
                    print(json.dumps(result), file=out, flush=True)
            except Error as e:
                print(json.dumps(["error", [e.code, str(e)]]), file=out)
            except MemoryError:
                print(json.dumps(["error", [TRY_AGAIN, "out of memory"]]), file=out)
        code = 0
    except KeyboardInterrupt:
        pass
    except BaseException:
        os.write(2, traceback.format_exc().encode("utf-8", "backslashreplace"))
    finally:
        os._exit(code)
