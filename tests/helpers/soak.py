"""Send mail through a private Postfix with the filter, with failures on the way and for speed.

make soak MAILS=5000 KILLS=600        python3 tests/helpers/soak.py --mails 5000 --kills 600
                                      --speed 600
"""

import argparse
import contextlib
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import letters
import postfix
from conftest import BIN
from filtered import PLAIN, filtered, start_worker

from sluice.classify.setup import Setup

VICTIMS = {
    "hook": "/mail-filter",
    "classify": "/classify",
    "worker": "--listen",
    "sendmail": "/sendmail",
    "postdrop": "/postdrop",
}
MODEL = "lib/sluice/data/spam.gguf"
QUEUE_MIB = 256
LEARNED = "/var/lib/sluice/learned"
# What each account has taught of every mail of the tests; carol teaches while mail arrives.
USERS = {"ann": "yes", "bob": "no", "carol": "yes"}


def kind_of(argv):
    """Which of VICTIMS a process is, or None."""
    if "--listen" in argv:
        return "worker"
    for kind, end in VICTIMS.items():
        if any(word.endswith(end) for word in argv[:4]):
            return kind
    return None


class Trouble:
    """Kills and breaks things inside, by a seed, until told to stop. counts: {what: how often}."""

    def __init__(self, p, n_kills, seed, n_each):
        self.p, self.rng, self.counts = p, random.Random(seed), dict.fromkeys(VICTIMS, 0)
        plan = ["kill"] * n_kills + [self.restart, self.no_model, self.full_disk] * n_each
        self.rng.shuffle(plan)
        self.plan = plan
        self.error = None
        self.thread = threading.Thread(target=self._guarded)
        self.thread.start()

    def end(self):
        """Wait until all of it has happened."""
        self.thread.join()
        if self.error:
            raise self.error

    def _guarded(self):
        try:
            self._run()
        except BaseException as e:
            self.error = e

    def _run(self):
        for what in self.plan:
            time.sleep(self.rng.uniform(0.0, 0.2))
            if what == "kill":
                self.kill()
            else:
                what()
                self.counts[what.__name__] = self.counts.get(what.__name__, 0) + 1

    def kill(self):
        """kill -9 of one of a kind that is drawn; where none comes in 0.4 seconds, of any other."""
        kind, end = self.rng.choice(list(VICTIMS)), time.monotonic() + 0.4
        while True:
            running = [(kind_of(argv), pid) for pid, argv in self.p.processes().items()]
            hits = [(k, pid) for k, pid in running if k == kind or (k and time.monotonic() > end)]
            if hits:
                hit, pid = self.rng.choice(hits)
                with contextlib.suppress(ProcessLookupError):  # it had just ended
                    os.kill(pid, signal.SIGKILL)
                    self.counts[hit] += 1
                    return
            if time.monotonic() > end + 60:
                raise RuntimeError("nothing is left to kill")

    def restart(self):
        self.p.stop()
        time.sleep(self.rng.uniform(0, 1))
        self.p.start()

    def no_model(self):
        """An empty file in the model's place; the worker is made to read it."""
        path = letters.ROOT / MODEL
        self.p.run("mount", "--bind", "/dev/null", path)
        for pid, argv in self.p.processes().items():
            if kind_of(argv) == "worker":
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        time.sleep(self.rng.uniform(0.5, 2))
        self.p.run("umount", "-l", path)

    def full_disk(self):
        """The queue and the hook's spool are full, to the last page."""
        fill = "for d in /var/spool/postfix /var/tmp; do cat /dev/zero >$d/.full 2>/dev/null; done"
        self.p.run("sh", "-c", fill + "; true")
        time.sleep(self.rng.uniform(0.5, 2))
        self.p.run("rm", "-f", "/var/spool/postfix/.full", "/var/tmp/.full")


# Keeps as many clients of a worker that begin a message and never end it, whatever becomes of it.
IDLE = """
import select, socket, sys, time
path, n, idle = sys.argv[1], int(sys.argv[2]), []
while True:
    for s in select.select(idle, [], [], 0)[0]:
        idle.remove(s)
        s.close()
    try:
        while len(idle) < n:
            s = socket.socket(socket.AF_UNIX)
            s.connect(path)
            s.sendall(b"From: a\\n")
            idle.append(s)
    except OSError:
        pass
    time.sleep(0.05)
"""


@contextlib.contextmanager
def idle_clients(p, n):
    """n clients of the worker that send nothing more."""
    argv = p.argv(sys.executable, "-I", "-c", IDLE, "/run/sluice/classify.sock", n, user="filter")
    with subprocess.Popen(argv, cwd="/", stdin=subprocess.DEVNULL) as process:
        try:
            yield
            assert process.poll() is None, "the idle clients have ended"
        finally:
            process.kill()


def learned(p):
    """Let the accounts teach; {user: path of the calibration, outside}."""
    found = {}
    for user, answer in USERS.items():
        path = f"{LEARNED}/{user}/spam.calibration"
        p.run("install", "-d", "-o", user, f"{LEARNED}/{user}")
        for mail in letters.ordinary()[:20]:
            teach(p, user, answer, mail)
        p.run("chmod", "644", path)
        found[user] = f"{p.directory}{path}"
    return found


def teach(p, user, answer, mail, check=True):
    """Whether it was taught; it must be, if `check`."""
    path = f"{LEARNED}/{user}/spam.calibration"
    argv = BIN / "classify", "--calibration", path, "--learn", answer
    return p.run(*argv, user=user, input=mail, check=check).returncode == 0


@contextlib.contextmanager
def teaching(p):
    """carol teaches one mail after the other meanwhile. A list that gets how many."""
    ended, n = threading.Event(), []

    def loop():
        mails = letters.ordinary()
        while not ended.wait(0.2):
            answer, mail = "yes" if len(n) % 2 else "no", mails[len(n) % len(mails)]
            if teach(p, "carol", answer, mail, check=False):  # not without model or disk
                n.append(1)

    thread = threading.Thread(target=loop)
    thread.start()
    try:
        yield n
    finally:
        ended.set()
        thread.join()
    teach(p, "carol", "yes", letters.ordinary()[0])  # the file is whole


def to_users(mails):
    """The mails, three in four of them to the accounts."""
    names = [*USERS, None]
    user = lambda i: names[i % len(names)]
    return [(f"{user(i)}+{to}" if user(i) else to, data) for i, (to, data) in enumerate(mails)]


def expected(mails, files, bad):
    """{recipient: score} of the ordinary mails by what the recipient taught, or by the shipped
    calibration; not of those to carol.
    """
    classifiers = {"": Setup(no_calibration=True, no_cache=True).classifier(threads=1)}
    with tempfile.TemporaryDirectory() as directory:
        for user, path in files.items():
            own = Path(directory, user)  # that of the account is not trusted outside
            own.write_bytes(Path(path).read_bytes())
            c = Setup(calibration_file=str(own), no_cache=True).classifier(threads=1)
            assert c.learned.section(c.model.file)
            classifiers[user] = c
        return scores_of(mails, classifiers, bad)


def scores_of(mails, classifiers, bad):
    found = {}
    for to, data in mails:
        user = to.partition("+")[0] if "+" in to else ""
        if user != "carol" and data not in bad:
            c = classifiers[user]
            found[to] = c.line(c.ask(data)).split()[1].decode()
    return found


@contextlib.contextmanager
def kept_running(p, *options):
    """The worker, started again a second after its end, as systemd does."""
    ended = threading.Event()

    def keep():
        while not ended.is_set():
            process = start_worker(p, *options)
            while process.poll() is None and not ended.wait(0.1):
                pass
            ended.wait(1)
        process.kill()
        process.wait()

    thread = threading.Thread(target=keep)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def soak(n_mails, n_kills, seed=1, n_each=1, worker=True, n_idle=12, by_recipient=True):
    """Send n_mails while n_kills processes are killed and all else of Trouble happens, with n_idle
    idle clients of the worker: the figures, a dict.

    by_recipient: each account is judged by what it taught, and one teaches meanwhile.
    """
    mails = letters.load(n_mails, seed)
    mails = to_users(mails) if by_recipient else mails
    options = f"--learned-by recipient --learned-in {LEARNED}" if by_recipient else ""
    bad = [letters.crlf(m) for m in letters.hostile()]
    main = {"soft_bounce": "no", "queue_minfree": "1000000"}
    users = ("filter", *(USERS if by_recipient else ()))
    with filtered(main, False, options, queue_mib=QUEUE_MIB, users=users) as (p, sink):
        files = learned(p) if by_recipient else {}
        p.run("mount", "-t", "tmpfs", "-o", "mode=1777,size=64m", "none", "/var/tmp")
        references = {}
        refused = dict(
            letters.send(p, [(f"{n}@reference.example", data) for n, data in enumerate(bad)], PLAIN)
        )
        sink.wait(len(bad) - len(refused))
        for mail in sink.mails:
            references[bad[int(mail.recipients[0].split("@")[0])]] = letters.without_ours(mail.data)
        mails = [(to, data) for to, data in mails if data not in bad or data in references]
        sink.mails.clear()
        began, sent = time.time(), {}
        with contextlib.ExitStack() as stack:
            if worker:
                about = ("--learned-in", LEARNED) if by_recipient else ()
                stack.enter_context(kept_running(p, *about))
                stack.enter_context(idle_clients(p, n_idle))
            taught = stack.enter_context(teaching(p)) if by_recipient else []
            trouble = Trouble(p, n_kills, seed, n_each)
            errors = letters.send(
                p, mails, senders=4, gap=pace(n_mails, n_kills, n_each), sent=sent
            )
            trouble.end()
            p.drain(600)
        seconds = time.time() - began
        left = int(
            p.run(
                "sh",
                "-c",
                "ls -A /var/tmp /var/lib/filter/attempts 2>/dev/null | grep -c '^[A-Za-z0-9]'",
                check=False,
            ).stdout
        )
        scores = expected(mails, files, bad) if by_recipient else {}
        return {
            **judge(mails, sink.mails, sent, references, p.log(), scores),
            "judged by their own": len(scores),
            "taught meanwhile": len(taught),
            "refused": len(errors),
            "seconds": round(seconds),
            "files left": left,
            **{f"killed {k}" if k in VICTIMS else k: n for k, n in trouble.counts.items()},
        }


def pace(n_mails, n_kills, n_each):
    """Seconds between a sender's messages, so that they last as long as the failures."""
    return 4 * (0.3 * n_kills + 3 * n_each) / n_mails


def judge(mails, arrived, sent, references, log, scores=()):
    """The fate of the messages. scores: {recipient: that of its messages that are checked}."""
    got = {}
    for mail in arrived:
        # Postfix tells its postmaster
        for to in mail.recipients if mail.sender != "double-bounce@mx.example.com" else ():
            got.setdefault(to, []).append(mail)
    figures = {
        "mails": len(mails),
        "lost": 0,
        "bounced": log.count("status=bounced"),
        "changed": 0,
        "badly marked": 0,
        "judged by another's": 0,
        "duplicates": 0,
        "duplicates by Postfix": 0,
        "unchecked": 0,
    }
    for to, data in mails:
        copies = got.pop(to, [])
        figures["lost"] += not copies
        # of the topmost Received: through the filter so often
        passes = {re.search(rb"\sid (\w+);", m.data)[1] for m in copies}
        figures["duplicates"] += max(0, len(passes) - 1)
        # stopped while the next server's answer was on its way
        figures["duplicates by Postfix"] += len(copies) - len(passes)
        wanted = references.get(data) or letters.without_ours(data)
        figures["changed"] += any(
            letters.without_ours(m.data) != wanted or m.sender != "from@example.net" for m in copies
        )
        figures["badly marked"] += any(not letters.marked_once(m.data) for m in copies)
        own = [letters.own_fields(m.data).get("x-spam-score") for m in copies if to in scores]
        figures["judged by another's"] += any(found and found[0] != scores[to] for found in own)
        figures["unchecked"] += any(
            letters.own_fields(m.data).get("x-spam-status", [""])[0].startswith("unchecked")
            for m in copies
        )
    figures["to nobody we wrote to"] = len(got)
    return figures


# --- speed ---


def percentile(values, share):
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def load(p, sink, mails, port, rate=None):
    """(messages/s, p50, p99 of the seconds from SMTP's answer to arrival).

    At full speed, or at `rate` messages/s.
    """
    sink.mails.clear()
    sent, began = {}, time.time()
    errors = letters.send(p, mails, port, senders=4, sent=sent, gap=4 / rate if rate else 0.0)
    sink.wait(len(mails) - len(errors), 600)
    seconds = max(m.time for m in sink.mails) - began
    waits = [m.time - sent[m.recipients[0]] for m in sink.mails]
    return len(sent) / seconds, percentile(waits, 0.5), percentile(waits, 0.99)


def resources(p):
    """(MiB resident, descriptors) of the worker's processes."""
    pids = [
        pid
        for pid, argv in p.processes().items()
        if "--listen" in argv and not any("setpriv" in a or "nsenter" in a for a in argv[:1])
    ]
    pages = sum(int(open(f"/proc/{pid}/statm").read().split()[1]) for pid in pids)
    return pages * os.sysconf("SC_PAGESIZE") / 2**20, sum(
        len(os.listdir(f"/proc/{pid}/fd")) for pid in pids
    )


def speed(n_mails, seed=2):
    """[(way, figures)] of each way through Postfix."""
    ordinary = [
        m
        for m in letters.load(2 * n_mails, seed)
        if m[1] not in {letters.crlf(h) for h in letters.hostile()}
    ][:n_mails]
    rows = []
    for way, worker, port in (
        ("no filter", False, PLAIN),
        ("one process a mail", False, 25),
        ("resident worker", True, 25),
    ):
        with filtered(worker=worker) as (p, sink):
            mails = ordinary if port == PLAIN or worker else ordinary[: max(50, n_mails // 3)]
            load(p, sink, mails[:20], port)
            before = resources(p)
            rate, p50, p99 = load(p, sink, mails, port)
            half = load(p, sink, mails[: len(mails) // 2], port, rate / 2)
            unchecked = sum(b"unchecked" in m.data for m in sink.mails)
            after = resources(p)
            rows.append(
                (way, rate, p50, p99, *half, unchecked, after[0] - before[0], after[1] - before[1])
            )
    return rows


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--mails", type=int, default=5000)
    options.add_argument("--kills", type=int, default=600)
    options.add_argument(
        "--speed", type=int, default=600, help="mails of the measurements of speed; 0: none"
    )
    options.add_argument("--idle", type=int, default=12, help="idle clients of the worker")
    options.add_argument("--seed", type=int, default=1)
    o = options.parse_args()
    if postfix.missing():
        raise SystemExit(f"soak: {postfix.missing()}")
    if o.mails:
        figures = soak(o.mails, o.kills, o.seed, n_each=max(1, o.mails // 1000), n_idle=o.idle)
        print(*(f"{name}: {n}" for name, n in figures.items()), sep="\n", flush=True)
        if any(
            figures[name]
            for name in ("lost", "bounced", "changed", "badly marked", "judged by another's")
            + ("to nobody we wrote to",)
        ):
            raise SystemExit("soak: not as promised")
    if o.speed:
        print(
            "| way | mails/s | p50 s | p99 s | at half of that rate: mails/s | p50 s | p99 s |"
            " unchecked | worker MiB more | descriptors more |"
        )
        print("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |")
        for way, rate, p50, p99, half, h50, h99, unchecked, mib, fds in speed(o.speed):
            print(
                f"| {way} | {rate:.1f} | {p50:.2f} | {p99:.2f} | {half:.1f} | {h50:.2f} | {h99:.2f}"
                f" | {unchecked} | {mib:.1f} | {fds} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
