"""mail-milter and a resident worker as processes, for the tests of the milter."""

import contextlib
import fcntl
import os
import shutil
import signal
import socket
import subprocess
import time

from conftest import BIN, ROOT

HEADER = "/usr/include/libmilter/mfapi.h"
USER = "nobody"
SANITIZED = ROOT / "build" / "milter-asan" / "mail-milter"
SANITIZERS = "-fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer -O1"


def missing():
    """Why mail-milter cannot be built here, as a reason for a skip, or None."""
    if not os.path.exists(HEADER):
        return "libmilter is not installed: apt install libmilter-dev"
    return (
        None if shutil.which(os.environ.get("CC", "cc")) else "cc is not installed: apt install gcc"
    )


def build(sanitized=False):
    """The program, made now: `make milter`, or the same under AddressSanitizer and UBSan."""
    options = (
        [f"MILTER={SANITIZED}", f"MILTER_BUILD={SANITIZED.parent}", f"MILTER_SET={SANITIZERS}"]
        if sanitized
        else []
    )
    (ROOT / "build").mkdir(exist_ok=True)
    with open(ROOT / "build" / "milter.lock", "w") as lock:  # test files run beside each other
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = subprocess.run(["make", "-C", ROOT, "milter", *options], capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    return SANITIZED if sanitized else BIN / "mail-milter"


class Process:
    """A server that tests start, kill and restart; its stderr is in `log`."""

    def __init__(self, argv, address, log, env=None):
        self.argv, self.address, self.log_path, self.env = (
            list(map(str, argv)),
            address,
            log,
            {**os.environ, **(env or {})},
        )
        self.start()

    def start(self, timeout=60):
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(
                self.argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self.env
            )
        end = time.monotonic() + timeout
        while True:
            with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as s:
                s.connect(str(self.address))
                return self
            assert self.process.poll() is None and time.monotonic() < end, self.log()
            time.sleep(0.01)

    def kill(self, number=signal.SIGKILL):
        """Send a signal; the exit status."""
        self.process.send_signal(number)
        return self.process.wait(60)

    def log(self):
        return self.log_path.read_text()

    def rss(self):
        """Resident memory of its own (anonymous), bytes."""
        with open(f"/proc/{self.process.pid}/status") as f:
            return next(int(line.split()[1]) << 10 for line in f if line.startswith("RssAnon"))

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def descendants(self):
        """Process IDs of its children and their descendants."""
        found, at = [self.process.pid], 0
        while at < len(found):
            with (
                contextlib.suppress(OSError),
                open(f"/proc/{found[at]}/task/{found[at]}/children") as f,
            ):
                found += map(int, f.read().split())
            at += 1
        return found[1:]

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        if self.process.poll() is None:
            self.kill()


def worker(directory, *options):
    """`classify --listen` with two children on directory/worker, for everybody."""
    path = directory / "worker"
    return Process(
        [BIN / "classify", "--listen", path, "--workers", 2, "--mode", "0666", *options],
        path,
        directory / "worker.log",
    )


def milter(directory, *options, program=None, socket_path=None, worker_path=None, env=None):
    """mail-milter on directory/milter/socket, as user nobody if this process is root."""
    place = directory / "milter"
    place.mkdir(exist_ok=True)
    user = []
    if os.geteuid() == 0:
        shutil.chown(place, USER)
        user = ["--user", USER]
    path = socket_path or place / "socket"
    return Process(
        [
            program or BIN / "mail-milter",
            "-p",
            f"unix:{path}",
            "--socket",
            worker_path or directory / "worker",
            "-v",
            *user,
            *options,
        ],
        path,
        directory / "milter.log",
        env,
    )
