"""`classify --listen`: a daemon that keeps the model loaded and answers on a Unix socket.

    client: connects, sends one message, half-closes and reads one line
    line:   "yes 0.9931 0.9386 3f9a0c1b2d4e5f60\\n" or "error WORD\\n" (connection.py); none if
            the process that had the message died

Four kinds of processes, each made by fork(2) alone:

    master     owns the socket and handles signals. It opens neither model nor message, so neither
               can end it.
    receiver   accepts clients, reads their messages and hands whole ones to the workers
               (receiver.py, handing.py); it keeps the statistics.
    group      loads question and model, processes the prompt's common prefix, classifies a test
               message; then forks the workers and replaces those that die.
    worker     takes a message, answers its client, takes the next (connection.py).

SIGHUP: the master forks a new group; when that is ready, the old one ends. If the new one fails,
the old one stays. The receiver stays in any case. SIGUSR1: the receiver prints its statistics.
SIGTERM: the receiver reads the messages that have begun and hands them over, then the group ends.

A receiver or group that dies is replaced, and one whose master died ends. The group alone has the
writing end of a pipe: when the group ends in any way, the pipe closes, and its workers finish their
message and end. So kill -9 of a worker costs at most the message it had, and of the receiver those
that were arriving or waiting. No kill leaves a process behind.

Signals are blocked and waited for, so none interrupts a system call. No file is written but the
metrics and, without a name, large messages that arrive (body.py). No message is kept or logged.
"""

import gc
import mmap
import os
import select
import signal
import time

from .. import messages
from ..faults import IO_ERROR, OUR_BUG, TRY_AGAIN, Exit
from . import connection, handing, receiver, statistics
from .listener import Listener, notify

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any, NoReturn

    from ..classify.classifier import Classifier

TICK = 1.0  # seconds between checks of parent and socket
# seconds before a process that died at its start is restarted; doubled each time
MIN_PAUSE, MAX_PAUSE = 0.1, 10
# seconds for the messages in progress, and some that wait
GRACE = connection.SEND_SECONDS + connection.ANSWER_SECONDS + 10
LOOK = 0.01  # seconds between looks at a queue that empties
READY = signal.SIGUSR2  # from a group to the master
SIGNALS = {
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGHUP,
    signal.SIGCHLD,
    signal.SIGUSR1,
    READY,
}
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
    stats: str | None = None,
) -> None:
    """Listen on `path` (its mode: an int) until SIGTERM or SIGINT.

    load(): returns a Classifier of one thread; called in each group. n_workers: None is one for
    each core that this process may use. threads: of each worker. stats: path of the metrics
    (statistics.py). Error 64, 65, 73 or 75 before anything is served; Exit with the code of a group
    that cannot start the first time.
    """
    is_ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    for number in SIGNALS:
        if number != signal.SIGINT or not is_ignored:
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGALRM})
    if stats is not None:
        statistics.check(stats)
    listener = Listener(path, mode)
    giving, taking = handing.pair()
    master = os.getpid()
    try:
        code = _Master(
            listener,
            taking,
            _Reception(lambda pipe: receiver.run(listener, giving, pipe, stats, verbose)),
            lambda: _Group(
                master, taking, load(), n_workers or _n_cores(), threads or 1, verbose
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


class _Reception:
    """The receiver's process, as its master sees it. run(commands): what it does."""

    def __init__(self, run: "Callable[[int], None]") -> None:
        self._run, self._pause = run, _Pause()
        self.pid: int | None = None
        self._pipe: int | None = None  # the writing end of its commands

    def left(self) -> float:
        """Return the seconds until a missing receiver may be started."""
        return TICK if self.pid else self._pause.left()

    def start_if_missing(self) -> None:
        if self.pid or self._pause.left() > 0:
            return
        reader, writer = os.pipe()
        try:
            pid = os.fork()
        except OSError as e:  # no memory, or too many processes
            messages.say(f"no receiver can be started: {e.strerror}")
            os.close(reader)
            os.close(writer)
            self._pause.failed()
            return
        if not pid:
            os.close(writer)
            _become(lambda: self._run(reader))
        os.close(reader)
        self.pid, self._pipe, self._began = pid, writer, time.monotonic()

    def ended(self, code: int) -> None:
        """Note that the process has ended; it is not started here."""
        self.pid = None
        self.close()
        if time.monotonic() - self._began < MAX_PAUSE:
            self._pause.failed()
        else:
            self._pause.lived()
        if code:
            messages.say(
                f"the receiver of messages {_ending(code)}: it is restarted; those that were"
                " arriving or waiting have no answer"
            )

    def tell(self, command: bytes) -> None:
        """Send a command, if there is a receiver."""
        if self._pipe is not None:
            try:
                os.write(self._pipe, command)
            except OSError:  # it has ended
                pass

    def close(self) -> None:
        """Close the pipe: in a child, so that the receiver sees the end of the master alone."""
        if self._pipe is not None:
            os.close(self._pipe)
            self._pipe = None


class _Master:
    def __init__(
        self,
        listener: Listener,
        taking: "socket.socket",
        reception: _Reception,
        group: "Callable[[], None]",
    ) -> None:
        self._listener, self._group, self._pause = listener, group, _Pause()
        self._taking, self._reception = taking, reception
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
            if self._was_ready:
                self._reception.start_if_missing()
            wait = self._pause.left() if self._is_wanted and not self._coming else TICK
            code = self._handle(_wait(SIGNALS, min(TICK, wait, self._reception.left())))
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
        elif number == signal.SIGUSR1:
            self._reception.tell(receiver.PRINT)
        elif number == READY and info.si_pid == self._coming:
            if self._serving:
                os.kill(self._serving, signal.SIGTERM)
            self._serving, self._coming, self._was_ready = self._coming, None, True
            self._pause.lived()
            notify("READY=1", "STATUS=answering")
        for pid, code in _ended():
            self._groups.discard(pid)
            if pid == self._reception.pid:
                self._reception.ended(code)
            elif pid == self._coming:
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
            self._reception.close()
            self._listener.socket.close()
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
        """End the receiver when it has handed over all messages; then the groups, which must answer
        the last ones.
        """
        self._listener.end()
        end = time.monotonic() + GRACE + 2 * TICK
        self._reception.tell(receiver.FINISH)
        if self._reception.pid:
            self._wait_for_reception(end - connection.ANSWER_SECONDS - TICK)
        for pid in self._groups:
            os.kill(pid, signal.SIGTERM)
        _wait_for(self._groups, end)

    def _wait_for_reception(self, end: float) -> None:
        """Wait until the receiver has ended and the queue is empty, or kill it at `end`."""
        pid = self._reception.pid
        queue = select.poll()
        queue.register(self._taking, select.POLLIN)
        while self._groups and (pid or queue.poll(0)):
            if time.monotonic() >= end:
                break
            if pid:
                _wait({signal.SIGCHLD}, min(TICK, end - time.monotonic()))
            else:
                time.sleep(LOOK)
            for ended, _ in _ended():
                self._groups.discard(ended)
                pid = None if ended == pid else pid
        if pid:
            os.kill(pid, signal.SIGKILL)


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
        taking: "socket.socket",
        classifier: "Classifier",
        n_workers: int,
        threads: int,
        verbose: bool,
    ) -> None:
        self._master, self._taking, self._classifier = master, taking, classifier
        self._n, self._threads, self._verbose = n_workers, threads, verbose
        self._workers: dict[int, int] = {}  # PID: slot
        # shared; a byte for each worker, and the last: see connection.serve
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
        os.kill(self._master, READY)
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
        if code not in (0, OUR_BUG) and self._slots[slot] == connection.BUSY:
            now = time.monotonic()
            handing.report(self._taking, handing.Result("killed", now, now, now, now))
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
            self._taking,
            self._life,
            self._classifier,
            self._slots,
            slot,
            self._threads,
            self._verbose,
        )
