"""`classify --listen`: a daemon that keeps the model loaded and answers on a Unix socket.

    client: connects, sends one message, half-closes and reads one line
    line:   "yes 0.9931 0.9386 3f9a0c1b2d4e5f60\\n" or "error WORD\\n" (connection.py); none if
            the process that had the message died

Three kinds of processes, each made by fork(2) alone:

    master   owns the socket and handles signals. It opens neither model nor message, so neither can
             end it.
    group    loads question and model, processes the prompt's common prefix, classifies a test
             message; then forks the workers and replaces those that die.
    worker   accepts a connection, answers it, accepts the next.

SIGHUP: the master forks a new group; when that is ready, the old one ends. If the new one fails,
the old one stays. A group that dies is replaced, and one whose master died ends. The group
alone has the writing end of a pipe: when the group ends in any way, the pipe closes, and its
workers finish their message and end. So kill -9 of any process costs at most the message it had,
and leaves no process behind.

Signals are blocked and waited for, so none interrupts a system call. No file is written, and no
message is kept or logged.
"""

import gc
import mmap
import os
import signal
import time

from .. import messages
from ..faults import IO_ERROR, TRY_AGAIN, Exit
from . import connection
from .listener import Listener, notify

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any, NoReturn

    from ..classify.classifier import Classifier

TICK = 1.0  # seconds between checks of parent and socket
# seconds before a process that died at its start is restarted; doubled each time
MIN_PAUSE, MAX_PAUSE = 0.1, 10
# seconds for the messages in progress, and some that wait
GRACE = connection.SEND_SECONDS + connection.ANSWER_SECONDS + 5
SIGNALS = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD, signal.SIGUSR1}
ENDS = (signal.SIGTERM, signal.SIGINT)
PROBE = b"""From: a@example.org
Subject: =?utf-8?q?=C3=A9?=
Content-Type: multipart/mixed; boundary=b

--b
Content-Type: text/plain; charset=utf-8
Content-Transfer-Encoding: base64

w6kgd29ya3Mg4oCLaHR0cDovL2V4YW1wbGUub3JnLwo=
--b
Content-Type: text/html; charset=utf-8
Content-Transfer-Encoding: quoted-printable

<p style=3D"color: white">A <a href=3D"http://example.org/">page</a> of =C3=A9.
--b--
"""  # uses every module that messages need, so all are loaded before the fork


def run(
    path: str,
    mode: int,
    load: "Callable[[], Classifier]",
    n_workers: int | None = None,
    threads: int | None = None,
    verbose: bool = False,
) -> None:
    """Listen on `path` (its mode: an int) until SIGTERM or SIGINT.

    load(): returns a Classifier of one thread; called in each group. n_workers: None is one for
    each core that this process may use. threads: of each worker. Error 64, 65 or 73 before anything
    is served; Exit with the code of a group that cannot start the first time.
    """
    is_ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    for number in SIGNALS:
        if number != signal.SIGINT or not is_ignored:
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGALRM})
    listener = Listener(path, mode)
    master = os.getpid()
    try:
        code = _Master(
            listener,
            lambda: _Group(
                master, listener, load(), n_workers or _n_cores(), threads or 1, verbose
            ).run(),
        ).run()
    finally:
        if os.getpid() == master:
            notify("STOPPING=1")
            listener.end()
    raise Exit(code)


def _n_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _become(run: "Callable[[], None]") -> "NoReturn":
    """Run a forked child to its end; its errors reach cli.run, like those of any command."""
    run()
    raise Exit(0)


def _wait(numbers: "set[signal.Signals]", seconds: float) -> "Any":
    return signal.sigtimedwait(numbers, max(0, seconds))


def _ended() -> "Iterator[tuple[int, int]]":
    """(pid, exit code or -signal) of each child that has ended."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not pid:
            return
        yield pid, os.waitstatus_to_exitcode(status)


def _ending(code: int) -> str:
    return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"


class _Pause:
    """The pause before a restart: none after a process that did its work, else longer each time."""

    def __init__(self) -> None:
        self.seconds = self.due = 0.0

    def failed(self) -> None:
        self.seconds = min(MAX_PAUSE, 2 * self.seconds or MIN_PAUSE)
        self.due = time.monotonic() + self.seconds

    def lived(self) -> None:
        self.seconds = self.due = 0.0

    def left(self) -> float:
        return self.due - time.monotonic()


class _Master:
    def __init__(self, listener: Listener, group: "Callable[[], None]") -> None:
        self._listener, self._group, self._pause = listener, group, _Pause()
        self._serving: int | None = None  # PID of the group that serves
        self._coming: int | None = None  # PID of the group that starts
        self._groups: set[int] = set()  # all that live, also those that are ending
        self._is_wanted = True  # a new group
        self._was_ready = False

    def run(self) -> int:
        """Serve to the end; return the exit code."""
        code: int | None = None
        while code is None:
            if self._is_wanted and not self._coming and self._pause.left() <= 0:
                self._start()
            wait = self._pause.left() if self._is_wanted and not self._coming else TICK
            code = self._handle(_wait(SIGNALS, min(TICK, wait)))
        self._stop()
        return code

    def _handle(self, info: "Any") -> int | None:
        """Handle a signal and ended children; return an exit code if this process must end."""
        number = info and info.si_signo
        if number in ENDS:
            return 0
        if number == signal.SIGHUP:
            self._is_wanted = True
            self._pause.lived()
            notify("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")
        elif number == signal.SIGUSR1 and info.si_pid == self._coming:
            if self._serving:
                os.kill(self._serving, signal.SIGTERM)
            self._serving, self._coming, self._was_ready = self._coming, None, True
            self._pause.lived()
            notify("READY=1", "STATUS=answering")
        for pid, code in _ended():
            self._groups.discard(pid)
            if pid == self._coming:
                self._coming = None
                if not self._was_ready:
                    return code if code >= 0 else TRY_AGAIN
                self._failed()
            elif pid == self._serving:
                self._serving, self._is_wanted = None, True
                messages.say(f"the group of workers {pid} {_ending(code)}: it is restarted")
        named = self._listener.is_named()
        if named is None:
            messages.say(f"{self._listener.path}: was removed, so no client can connect: ending")
            return IO_ERROR
        if named is False:
            messages.say(f"{self._listener.path}: another process listens there now: ending")
            return 0
        return None

    def _start(self) -> None:
        try:
            pid = os.fork()
        except OSError as e:  # no memory, or too many processes
            if not self._was_ready:
                raise
            messages.say(f"no group of workers can be started: {e.strerror}")
            self._pause.failed()
            return
        if not pid:
            _become(self._group)
        self._groups.add(pid)
        self._is_wanted, self._coming = False, pid

    def _failed(self) -> None:
        if self._serving:
            messages.say(
                "the new question and model are not used (see the line before): the old ones stay"
            )
            notify("READY=1", "STATUS=answering; the last reload failed")
        else:
            self._pause.failed()
            self._is_wanted = True

    def _stop(self) -> None:
        self._listener.end()
        for pid in self._groups:
            os.kill(pid, signal.SIGTERM)
        _wait_for(self._groups, time.monotonic() + GRACE + 2 * TICK)


def _wait_for(pids: "Iterable[int]", end: float) -> None:
    """Wait until these children have ended, or kill them at `end`, a time.monotonic()."""
    pids = set(pids)
    while True:
        pids -= {pid for pid, _ in _ended()}
        left = end - time.monotonic()
        if not pids or left <= 0:
            break
        _wait({signal.SIGCHLD}, min(TICK, left))
    for pid in pids:
        os.kill(pid, signal.SIGKILL)  # its PID is reserved: only this process waits for it


class _Group:
    """The workers of one question and model."""

    def __init__(
        self,
        master: int,
        listener: Listener,
        classifier: "Classifier",
        n_workers: int,
        threads: int,
        verbose: bool,
    ) -> None:
        self._master, self._listener, self._classifier = master, listener, classifier
        self._n, self._threads, self._verbose = n_workers, threads, verbose
        self._workers: dict[int, int] = {}  # PID: slot
        # shared; a byte for each worker: it has had a message; the last: see connection.py
        self._slots = mmap.mmap(-1, n_workers + 1)
        self._pauses = [_Pause() for _ in range(n_workers)]

    def run(self) -> None:
        c = self._classifier
        c.prepare()
        c.ask(PROBE)
        c.model.file.id  # computed here, once
        gc.collect()
        gc.freeze()
        self._life, self._life_end = os.pipe()
        self._start_missing()
        os.kill(self._master, signal.SIGUSR1)
        while os.getppid() == self._master:
            left = min((self._pauses[slot].left() for slot in self._idle()), default=TICK)
            info = _wait({signal.SIGTERM, signal.SIGCHLD}, min(TICK, left))
            if info and info.si_signo == signal.SIGTERM:
                break
            for pid, code in _ended():
                self._remove(pid, code)
            self._start_missing()
        os.close(self._life_end)
        _wait_for(self._workers, time.monotonic() + GRACE)

    def _idle(self) -> set[int]:
        return set(range(self._n)) - set(self._workers.values())

    def _remove(self, pid: int, code: int) -> None:
        slot = self._workers.pop(pid)
        if self._slots[slot]:
            self._pauses[slot].lived()
        else:
            self._pauses[slot].failed()
        if code:
            slow = (
                f": a message took longer than {connection.ANSWER_SECONDS} s"
                if code == -signal.SIGALRM
                else ""
            )
            messages.say(f"worker {pid} {_ending(code)}{slow}; it is replaced")

    def _start_missing(self) -> None:
        for slot in self._idle():
            if self._pauses[slot].left() <= 0:
                self._slots[slot] = 0
                try:
                    pid = os.fork()
                except OSError as e:  # no memory, or too many processes
                    messages.say(f"no worker can be started: {e.strerror}")
                    self._pauses[slot].failed()
                    continue
                if not pid:
                    _become(lambda: self._serve(slot))
                self._workers[pid] = slot

    def _serve(self, slot: int) -> None:
        os.close(self._life_end)
        connection.serve(
            self._listener.socket,
            self._life,
            self._classifier,
            self._slots,
            slot,
            self._threads,
            self._verbose,
        )
