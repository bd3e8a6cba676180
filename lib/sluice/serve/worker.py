"""`classify --listen`: processes that have the model ready and answer on a Unix socket.

    client: connects, writes a mail, shuts down its writing side, reads one line to its end
    line:   "yes 0.9931 0.9386 3f9a0c1b2d4e5f60\\n" or "error WORD\\n" (connection.py); none where
            the process that had the mail died

Three kinds of processes, each made by fork(2) alone:

    master   holds the socket and takes signals. It opens no model and no mail, so that neither can
             end it.
    group    reads question and model, computes what all mails have in common, answers a mail of its
             own to see that it can; then forks the workers and replaces those that die.
    worker   accepts a connection, answers it, accepts the next.

SIGHUP: the master forks a new group, and when that is ready the old one ends. If the new one fails,
the old one stays. A group that dies is replaced. What holds them together is who is whose parent,
and a pipe of which the group alone holds the writing end: when it is closed, by whatever end of the
group, its workers finish the mail in hand and go. So kill -9 of any process costs at most the mail
it had, and leaves no process behind.

Signals are blocked in all of them and waited for, so none interrupts anything. No file is written
and no mail is kept or logged.
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
    from collections.abc import Callable

    from ..classify.classifier import Classifier

TICK = 1.0  # seconds between looks at whether parent and socket are still there
# seconds before what died at its start is started again; doubled each time
MIN_PAUSE, MAX_PAUSE = 0.1, 10
# seconds in which the mails in hand end, and then some that wait
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
"""  # of what mail is made of, so that every module is loaded before the fork


def run(
    path: str,
    mode: int,
    load: "Callable[[], Classifier]",
    n_workers: int | None = None,
    threads: int | None = None,
    verbose: bool = False,
) -> None:
    """Listen on `path` (its mode: an int) until SIGTERM or SIGINT.

    load(): a Classifier, of one thread; called in each group. n_workers: None is one a core that
    this process may use. threads: of each worker. Error 64, 65 or 73 before anything is served;
    Exit with the code of a group that cannot start the first time.
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


def _n_cores():
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _become(what):
    """What a forked child does, to its end; its errors go the way to cli.run, like those of any
    command.
    """
    what()
    raise Exit(0)


def _wait(numbers, seconds):
    return signal.sigtimedwait(numbers, max(0, seconds))


def _dead():
    """(pid, exit code or -signal) of each child that has ended."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not pid:
            return
        yield pid, os.waitstatus_to_exitcode(status)


def _how(code):
    return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"


class _Pause:
    """When what died may be started again: at once, but later and later if it does not live to do
    anything.
    """

    def __init__(self):
        self.seconds, self.due = 0, 0

    def failed(self):
        self.seconds = min(MAX_PAUSE, 2 * self.seconds or MIN_PAUSE)
        self.due = time.monotonic() + self.seconds

    def lived(self):
        self.seconds = self.due = 0

    def left(self):
        return self.due - time.monotonic()


class _Master:
    def __init__(self, listener, group):
        self._listener, self._group, self._pause = listener, group, _Pause()
        self._serving = self._coming = None  # pids of groups
        self._groups = set()  # all that live, those that are ending too
        self._is_wanted = True  # a new group
        self._was_ready = False

    def run(self):
        """Exit code, when all is over."""
        code = None
        while code is None:
            if self._is_wanted and not self._coming and self._pause.left() <= 0:
                self._start()
            wait = self._pause.left() if self._is_wanted and not self._coming else TICK
            code = self._take(_wait(SIGNALS, min(TICK, wait)))
        self._stop()
        return code

    def _take(self, info):
        """Do what a signal asks for; an exit code if it asks for the end."""
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
        for pid, code in _dead():
            self._groups.discard(pid)
            if pid == self._coming:
                self._coming = None
                if not self._was_ready:
                    return code if code >= 0 else TRY_AGAIN
                self._failed()
            elif pid == self._serving:
                self._serving, self._is_wanted = None, True
                messages.say(f"the group of workers {pid} {_how(code)}: it is started again")
        named = self._listener.is_named()
        if named is None:
            messages.say(
                f"{self._listener.path}: was removed, so nobody can connect: this is the end"
            )
            return IO_ERROR
        if named is False:
            messages.say(f"{self._listener.path}: another one listens there now: this is the end")
            return 0
        return None

    def _start(self):
        try:
            pid = os.fork()
        except OSError as e:  # no memory, or too many processes
            if not self._was_ready:
                raise
            messages.say(f"no group of workers can be started: {e.strerror}")
            return self._pause.failed()
        if not pid:
            _become(self._group)
        self._groups.add(pid)
        self._is_wanted, self._coming = False, pid

    def _failed(self):
        if self._serving:
            messages.say(
                "the new question and model are not used (see the line before): those that were"
                " loaded go on"
            )
            notify("READY=1", "STATUS=answering; the last reload failed")
        else:
            self._pause.failed()
            self._is_wanted = True

    def _stop(self):
        self._listener.end()
        for pid in self._groups:
            os.kill(pid, signal.SIGTERM)
        _wait_for(self._groups, time.monotonic() + GRACE + 2 * TICK)


def _wait_for(pids, end):
    """Wait until these children have ended, or kill them at `end`, a time.monotonic()."""
    pids = set(pids)
    while True:
        pids -= {pid for pid, _ in _dead()}
        left = end - time.monotonic()
        if not pids or left <= 0:
            break
        _wait({signal.SIGCHLD}, min(TICK, left))
    for pid in pids:
        os.kill(pid, signal.SIGKILL)  # ours still: nobody else waits for it


class _Group:
    """The workers of one question and model."""

    def __init__(self, master, listener, classifier, n_workers, threads, verbose):
        self._master, self._listener, self._classifier = master, listener, classifier
        self._n, self._threads, self._verbose = n_workers, threads, verbose
        self._workers = {}  # pid: slot
        # shared; a byte for each: it has had a mail; the last: see connection.py
        self._slots = mmap.mmap(-1, n_workers + 1)
        self._pauses = [_Pause() for _ in range(n_workers)]

    def run(self):
        c = self._classifier
        c.prepare()
        c.ask(PROBE)
        c.model.file.id  # computed here, once
        gc.collect()
        gc.freeze()
        self._life, self._hold = os.pipe()
        self._fill()
        os.kill(self._master, signal.SIGUSR1)
        while os.getppid() == self._master:
            left = min((self._pauses[slot].left() for slot in self._idle()), default=TICK)
            info = _wait({signal.SIGTERM, signal.SIGCHLD}, min(TICK, left))
            if info and info.si_signo == signal.SIGTERM:
                break
            for pid, code in _dead():
                self._bury(pid, code)
            self._fill()
        os.close(self._hold)
        _wait_for(self._workers, time.monotonic() + GRACE)

    def _idle(self):
        return set(range(self._n)) - set(self._workers.values())

    def _bury(self, pid, code):
        slot = self._workers.pop(pid)
        if self._slots[slot]:
            self._pauses[slot].lived()
        else:
            self._pauses[slot].failed()
        if code:
            slow = (
                f": a mail took longer than {connection.ANSWER_SECONDS} s"
                if code == -signal.SIGALRM
                else ""
            )
            messages.say(f"worker {pid} {_how(code)}{slow}; it is replaced")

    def _fill(self):
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

    def _serve(self, slot):
        os.close(self._hold)
        connection.serve(
            self._listener.socket,
            self._life,
            self._classifier,
            self._slots,
            slot,
            self._threads,
            self._verbose,
        )
