"""`classify --listen` as a process, and what /proc says of it."""

import contextlib
import functools
import math
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

from conftest import BIN, ROOT, run
from worker_client import ask

from sluice.serve import receiver

MAILS = sorted((ROOT / "tests" / "mails").glob("*.eml"))
DATA = [path.read_bytes() for path in MAILS]
SHIPPED = ROOT / "lib" / "sluice" / "data" / "spam.gguf"
# nothing was learnt
ENV = {k: v for k, v in os.environ.items() if k != "MODEL"} | {"XDG_DATA_HOME": "/dev/null"}


class Worker:
    """`classify --listen` as a process. constants: of serve/, changed in it. before: Python
    lines that it begins with.
    """

    def __init__(
        self, path, *argv, constants=None, before="", env=(), ready=True, preexec=None, n=2
    ):
        # O_APPEND: reading moves the offset that the processes write at
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
        self.path, self._log = path, os.fdopen(os.open(f"{path}.log", flags, 0o600), "r+b")
        command = [BIN / "classify", "--listen", path, "--workers", n, "--no-cache", *argv]
        if constants or before:
            program = (
                "import sys\nfrom sluice.serve import body, connection, receiver, statistics\n"
                f"for name, value in {constants or {}!r}.items():\n"
                "    (m,) = [m for m in (body, connection, receiver, statistics) if name in vars(m)]\n"
                f"    setattr(m, name, value)\n{before}\nsys.argv[0]"
                " = 'classify'\nfrom sluice import start\nstart.run('classify')"
            )
            command[:1] = [sys.executable, "-I", "-c", program]
        self.process = subprocess.Popen(
            list(map(str, command)),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._log,
            env={**ENV, **dict(env)},
            preexec_fn=preexec,
            close_fds=False,
        )
        self.pid = self.process.pid
        if ready:
            self.wait_for(
                lambda: (
                    "python" in os.readlink(f"/proc/{self.pid}/exe") and len(self.workers()) == n
                ),
                "its workers",
            )
            self.receiver()

    def wait_for(self, condition, what, seconds=60):
        """What condition() gives as soon as it is true."""
        end = time.monotonic() + seconds
        while not (found := condition()):
            assert time.monotonic() < end and self.process.poll() is None, (
                f"no {what}: {self.log()}"
            )
            time.sleep(0.005)
        return found

    def groups(self):
        return [pid for pid in children(self.pid) if name(pid) != receiver.NAME]

    def receiver(self):
        """Its PID, as soon as there is one."""
        found = lambda: [pid for pid in children(self.pid) if name(pid) == receiver.NAME]
        return self.wait_for(found, "receiver")[0]

    def workers(self):
        return [pid for group in self.groups() for pid in children(group)]

    def log(self):
        self._log.seek(0)
        return self._log.read().decode()

    def ask(self, data, **kwargs):
        return ask(self.path, data, **kwargs)

    def restart(self, wait=True):
        """SIGHUP, until another group serves alone."""
        before = self.groups()
        self.process.send_signal(signal.SIGHUP)
        if wait:
            self.wait_for(
                lambda: len(now := self.groups()) == 1 and now != before and self.workers(),
                "new group",
            )

    def end(self, number=signal.SIGTERM, code=0):
        if self.process.poll() is None:
            self.process.send_signal(number)
        assert self.process.wait(60) == code, self.log()

    def kill(self):
        """Whatever it does; its log is closed."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self._log.close()


@functools.cache
def long_lines():
    """What `classify --long` prints of each of DATA."""
    return [run("classify", "--long", "--no-cache", path, env=ENV).stdout for path in MAILS]


def children(pid):
    """The living children of a process, from /proc: zombies are not alive."""
    return [child for child, state in _children(pid) if state != "Z"]


def zombies(pid):
    """The children of a process that have ended, and that it has not waited for."""
    return [child for child, state in _children(pid) if state == "Z"]


def _children(pid):
    """[(child, the letter of its state)]."""
    out = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                fields = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[1]) == pid:
                out.append((int(entry), fields[0]))
    return out


def name(pid):
    """What ps calls a process; "" where it has ended."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def kill(pid):
    """It may have ended meanwhile."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def state(pid):
    """The letter of proc(5): R runs or could, S waits; Z has ended, also where there is no such
    process.
    """
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "Z"


def is_alive(pid):
    return state(pid) != "Z"


def rss(pid):
    """Resident bytes; of a process that has ended, infinitely many."""
    try:
        return (
            int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()
            or math.inf
        )
    except (FileNotFoundError, ProcessLookupError):
        return math.inf


def n_open(pid):
    """Descriptors of a process; 0 where it has ended."""
    try:
        return len(os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        return 0
