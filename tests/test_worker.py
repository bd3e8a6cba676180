"""classify --listen: the real worker, asked, hurried, starved, killed, restarted. And the line of --long."""
import contextlib
import dataclasses
import functools
import math
import os
import re
import resource
import shutil
import signal
import socket
import stat
import struct
import subprocess
import sys
import tarfile
import threading
import time
from pathlib import Path

import big_model
import pytest
from conftest import BIN, ROOT, SHARED, run, wait_for
from forked import run as forked_run
from worker_client import ask, connect, loop, receive

from sluice import gguf, question
from sluice.bench import shapes
from sluice.hook import serving
from sluice.hook.listener import BACKLOG, MAX_PATH
from sluice.question.classifier import Classifier

MAILS = sorted((ROOT / "tests" / "mails").glob("*.eml"))
DATA = [path.read_bytes() for path in MAILS]
SHIPPED = ROOT / "lib" / "sluice" / "data" / "spam.gguf"
ENV = {k: v for k, v in os.environ.items() if k != "MODEL"} | {"XDG_DATA_HOME": "/nonexistent"}  # nothing was learnt
ARCHIVE = "data/spam/spamassassin.tar.xz"
UNITS = ROOT / "configs" / "systemd"
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")


class Worker:
    """`classify --listen` as a process. constants: of serving.py, changed in it. before: Python lines that it begins with."""

    def __init__(self, path, *argv, constants=None, before="", env=(), ready=True, preexec=None, n=2):
        self.path, self._log = path, open(f"{path}.log", "w+b")
        command = [BIN / "classify", "--listen", path, "--workers", n, "--no-cache", *argv]
        if constants or before:
            program = f"import sys\nfrom sluice.hook import serving\nvars(serving).update({constants or {}!r})\n{before}\nsys.argv[0] = 'classify'\n" \
                      f"exec(compile(open({str(BIN / 'classify')!r}).read(), 'classify', 'exec'))"
            command[:1] = [sys.executable, "-I", "-c", program]
        self.process = subprocess.Popen(list(map(str, command)), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=self._log,
                                        env={**ENV, **dict(env)}, preexec_fn=preexec, close_fds=False)
        self.pid = self.process.pid
        if ready:
            self.wait_for(lambda: "python" in os.readlink(f"/proc/{self.pid}/exe") and len(self.workers()) == n, "its workers")

    def wait_for(self, condition, what, seconds=60):
        """What condition() gives as soon as it is true."""
        end = time.monotonic() + seconds
        while not (found := condition()):
            assert time.monotonic() < end and self.process.poll() is None, f"no {what}: {self.log()}"
            time.sleep(0.005)
        return found

    def groups(self):
        return children(self.pid)

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
            self.wait_for(lambda: len(now := self.groups()) == 1 and now != before and self.workers(), "new group")

    def end(self, number=signal.SIGTERM, code=0):
        if self.process.poll() is None:
            self.process.send_signal(number)
        assert self.process.wait(60) == code, self.log()


@functools.cache
def long_lines():
    """What `classify --long` prints of each of DATA."""
    return [run("classify", "--long", "--no-cache", path, env=ENV).stdout for path in MAILS]


def children(pid):
    """The living children of a process, from /proc: zombies are not alive."""
    out = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                fields = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[1]) == pid and fields[0] != "Z":
                out.append(int(entry))
    return out


def kill(pid):
    """It may have ended meanwhile."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def state(pid):
    """The letter of proc(5): R runs or could, S waits; Z has ended, also where there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "Z"


def is_alive(pid):
    return state(pid) != "Z"


def n_open(pid):
    """Descriptors of a process; 0 where it has ended."""
    try:
        return len(os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        return 0


@pytest.fixture
def start(tmp_path):
    started = []

    def start(*argv, path=None, **kwargs):
        started.append(Worker(path or tmp_path / "s", *argv, **kwargs))
        return started[-1]
    yield start
    for w in started:
        if w.process.poll() is None:
            w.process.kill()
            w.process.wait()
        w._log.close()


@pytest.fixture(scope="module")
def worker(tmp_path_factory):
    """One that many tests ask."""
    w = Worker(tmp_path_factory.mktemp("worker") / "s")
    yield w
    w.end()
    assert w.log() == ""


@pytest.fixture
def my_model(tmp_path):
    """A question with a model of its own, which a test may spoil."""
    shutil.copy(ROOT / "configs" / "spam.yaml", tmp_path / "q.yaml")
    shutil.copy(SHIPPED, tmp_path / "spam.gguf")
    return tmp_path / "q.yaml"


# The line.

def test_the_long_line_has_the_score_of_the_first_answer(tmp_path):
    q = question.read(question.find("spam"))
    model = gguf.File(question.model_path(q)).id[:8].hex()
    for path in MAILS:
        done = run("classify", "--long", path, env=ENV)
        answer, score, required, found = done.stdout.decode().split(" ")
        short = run("classify", path, env=ENV)
        assert short.stdout.decode().split()[0] == answer and short.returncode == done.returncode == ["yes", "no", "unsure"].index(answer)
        assert required == f"{q.thresholds['yes']:.4f}" and found == model + "\n"
        assert (answer == "yes") == (path.name.startswith("spam")) == (float(score) >= float(required))
    for argv in (("--long", "--json"), ("--long", "--jsonl"), ("--listen", "s", "--long"), ("--listen", "s", "x"), ("--workers", "2"),
                 ("--listen", "s", "--mode", "0999"), ("--listen", "s", "--mode", "01000"), ("--listen", "s", "--workers", "0")):
        done = run("classify", *argv, env=ENV, cwd=tmp_path)
        assert done.returncode == 64 and done.stderr.count(b"\n") == 1, (argv, done.stderr)
    assert os.listdir(tmp_path) == []


def test_a_worker_says_what_classify_says(worker):
    assert [worker.ask(data) for data in DATA] == long_lines()


def test_a_worker_names_answers_by_their_place(start, tmp_path):
    text = (ROOT / "configs" / "spam.yaml").read_text().replace('"yes": ', '"spam": ').replace('"no": ', '"ham": ')
    (tmp_path / "q.yaml").write_text(text)
    shutil.copy(SHIPPED, tmp_path)
    assert run("classify", "--long", "-q", tmp_path / "q.yaml", MAILS[0], env=ENV).stdout.split()[0] == b"ham"
    w = start("-q", tmp_path / "q.yaml")
    assert [w.ask(data) for data in DATA] == long_lines()


def test_a_worker_says_what_classify_says_of_mail_that_was_sent(worker):
    if SHARED is None or not (SHARED / ARCHIVE).exists():
        pytest.skip(f"missing: shared/{ARCHIVE}")
    with tarfile.open(SHARED / ARCHIVE) as archive:
        mails = [archive.extractfile(m).read() for m in archive if m.isfile() and m.size]
    mails = mails[::len(mails) // 200][:200]
    q = question.read(question.find("spam"))
    here = Classifier(q, question.model_path(q), 1)  # as the command makes it
    for i, data in enumerate(mails):
        v = here.ask(data)
        line = worker.ask(data)
        assert line == here.line(v, v.answer)
        if i % 20 == 0:
            assert line == forked_run("classify", "--long", "--no-cache", input=data).stdout


@pytest.mark.parametrize("argv", [(), ("-q", "./q.yaml"), ("-m", "spam.gguf"), ("--mail", "-j", "1"), ("--question", "spam", "--threads", "2"),
                                  ("--cache", "cache"), ("--no-calibration",), ("--calibration", "none")])
def test_the_short_way_to_the_long_line_is_the_same(my_model, argv):
    for data in (DATA[0], DATA[3]):
        ways = [run("classify", *words, env=ENV, cwd=my_model.parent, input=data) for words in (("--long", *argv), (*argv, "--no-cache", "--long"))]
        assert len({(done.returncode, done.stdout, done.stderr) for done in ways}) == 1 and ways[0].stdout.count(b" ") == 3


def test_the_short_way_fails_as_the_other_does(my_model):
    for argv in (("-q", "none"), ("-q", "none.yaml"), ("-m", "none"), ("-m", "q.yaml"), ("-j", "0"), ("-j", "x"), ("-j",), ("-x",), ("none",), ("-m",),
                 ("-m", ""), ("-q", "urgent"), ("--cache", "q.yaml"), ("--long",), ("-h",), ("--lon",), ("-vj1",), ("--threads=3",), ("-q", "-q")):
        ways = [run("classify", *words, env=ENV, cwd=my_model.parent, input=DATA[0]) for words in (("--long", *argv), ("--no-cache", "--long", *argv))]
        if "-vj1" in argv:
            assert ways[0].returncode == ways[1].returncode == 1
        else:
            assert len({(done.returncode, done.stdout, done.stderr) for done in ways}) == 1, (argv, ways)
    for data, closed in ((b"", None), (DATA[0], ">&-"), (DATA[0], ">/dev/full"), (b"", "<&-"), (b"", "<.")):
        ways = []
        for line in ("--long --no-cache", "--no-cache --long"):
            ways.append(subprocess.run(["sh", "-c", f"{BIN}/classify {line} {closed or ''}"], input=data, capture_output=True, cwd=my_model.parent, env=ENV))
        assert len({(done.returncode, done.stdout, done.stderr) for done in ways}) == 1 and ways[0].returncode >= 64, ways


# Clients.

def test_many_at_once_are_answered(worker):
    lines = long_lines()
    found = loop(worker.path, DATA, 100, lambda i: i >= 300)
    assert len(found) == 300 and all(reply == lines[i] for i, reply, _ in found)
    connections = [connect(worker.path) for _ in range(100)]
    for s in connections:
        s.sendall(DATA[0])
    for s in connections:
        s.shutdown(socket.SHUT_WR)
    assert {receive(s) for s in connections} == {lines[0]}
    for s in connections:
        s.close()


def test_no_more_wait_than_the_backlog_has_room_for(start):
    w = start(n=1)
    os.kill(w.workers()[0], signal.SIGSTOP)
    waiting = []
    for _ in range(2 * BACKLOG):
        s = socket.socket(socket.AF_UNIX)
        s.setblocking(False)
        try:
            s.connect(str(w.path))
        except BlockingIOError:
            s.close()
            break
        waiting.append(s)
    assert BACKLOG <= len(waiting) <= BACKLOG + 2
    os.kill(w.workers()[0], signal.SIGCONT)
    for s in waiting:
        s.setblocking(True)
        s.settimeout(60)
        s.sendall(DATA[0])
        s.shutdown(socket.SHUT_WR)
        assert receive(s) == long_lines()[0]
        s.close()


def test_whatever_is_sent_there_is_an_answer(worker):
    rows = {b"": b"error empty\n"}
    for data in (b"\0", b"\n", b"\xff" * 1000, b"From nobody\n\n", bytes(range(256)) * 400, b"Subject: x" * 9999, b"<" * 99999,
                 b"Content-Type: multipart/mixed; boundary=b\n\n" + b"--b\n" * 9999, DATA[0].replace(b"\n", b"\r\n"), os.urandom(1 << 20)):
        rows[data] = forked_run("classify", "--long", "--no-cache", input=data).stdout
        assert rows[data].count(b" ") == 3
    for data, line in rows.items():
        assert worker.ask(data) == line, data[:40]


def test_large_mails_are_answered_and_leave_no_memory_behind(start):
    w = start(n=1)
    body = b"x" * 70 + b"\n"
    plain = b"Subject: hello\n\n" + body * ((16 << 20) // len(body))
    page = b"Content-Type: text/html\n\n" + b"<p>word <a href='http://example.org/a'>x</a>\n" * (16 << 20 >> 6)
    for data in (plain, page, plain + plain):  # of the last one the first 16 MiB are read, and the rest is taken
        assert w.ask(data) == forked_run("classify", "--long", "--no-cache", input=data).stdout
    w.wait_for(lambda: [rss(pid) < 100 << 20 for pid in w.workers()] == [True], "small worker")
    assert w.log() == ""


def test_clients_that_stop_are_no_matter(worker):
    for n in (0, 100, 1 << 20):
        with connect(worker.path) as s:
            s.sendall(b"a" * n)
    with connect(worker.path) as s:  # who asks and does not wait
        s.sendall(DATA[0])
        s.shutdown(socket.SHUT_WR)
    for _ in range(200):
        connect(worker.path).close()
    assert worker.ask(DATA[0]) == long_lines()[0]


def test_a_client_that_does_not_end_is_told_so(start):
    w = start(constants={"SEND_SECONDS": 2})
    silent, begun, drops = connect(w.path), connect(w.path), connect(w.path)
    begun.sendall(DATA[0])
    assert w.ask(DATA[0]) == long_lines()[0]  # it waits until one of the two gives up
    assert receive(silent) == receive(begun) == b"error timeout\n"
    w.wait_for(lambda: not takes(drops, b"a"), "end of a connection that drops bytes")
    assert receive(drops) == b"error timeout\n"
    for s in (silent, begun, drops):
        s.close()


def takes(s, data):
    try:
        s.sendall(data)
    except BrokenPipeError:
        return False
    return True


ENDLESS = """
import itertools
from sluice.question import inputs
text = inputs.text
inputs.text = lambda data, *rest: sum(itertools.repeat(0)) if b"endless" in data else text(data, *rest)
"""  # a fault that no mail is known to meet: a loop in C code without an end


def test_a_mail_that_takes_too_long_ends_one_worker(start):
    w = start(constants={"ANSWER_SECONDS": 2.5}, before=ENDLESS, n=1)
    before = w.workers()
    assert w.ask(DATA[0]) == long_lines()[0] and w.workers() == before
    assert w.ask(b"Subject: endless\n\nendless\n") == b""
    assert w.ask(DATA[0]) == long_lines()[0] and w.workers() != before
    assert w.log() == f"classify: worker {before[0]} was ended by SIGALRM: a mail took longer than 2.5 s; it is replaced\n"


def test_out_of_memory_is_an_answer(start):
    w = start(n=1)
    (pid,) = w.workers()
    size = int(Path(f"/proc/{pid}/statm").read_text().split()[0]) * resource.getpagesize()
    resource.prlimit(pid, resource.RLIMIT_AS, (size + (12 << 20),) * 2)
    assert w.ask(DATA[0] + b"a line\n" * (2 << 20)) == b"error memory\n"
    assert w.ask(DATA[0]) == long_lines()[0] and w.workers() != [pid]


def test_workers_are_limited(worker):
    for pid in worker.workers():
        size = int(Path(f"/proc/{pid}/statm").read_text().split()[0]) * resource.getpagesize()
        assert size < resource.prlimit(pid, resource.RLIMIT_AS)[0] < size + (5 << 30)
        assert resource.prlimit(pid, resource.RLIMIT_CORE) == (0, 0)


def test_what_threads_need_is_not_of_what_mails_may(start):
    w = start("-j", 3, n=1)
    (pid,) = w.workers()
    w.wait_for(lambda: len(os.listdir(f"/proc/{pid}/task")) == 3, "threads")
    size = int(Path(f"/proc/{pid}/statm").read_text().split()[0]) * resource.getpagesize()
    assert size + serving.MEMORY < resource.prlimit(pid, resource.RLIMIT_AS)[0]  # though their stacks are of it, and attention is to come


def rss(pid):
    """Bytes; of a process that has ended, infinitely many."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize() or math.inf
    except (FileNotFoundError, ProcessLookupError):
        return math.inf


LEAKS = """
from sluice.question import inputs
text, kept = inputs.text, []
inputs.text = lambda data, *rest: kept.append(b"x" * (80 << 20)) or text(data, *rest)
"""  # a fault that no mail is known to meet: memory that is never given back


def test_a_worker_that_has_grown_is_replaced(start):
    w = start(before=LEAKS, n=1)
    before = w.workers()
    assert w.ask(DATA[0]) == long_lines()[0]
    w.wait_for(lambda: (now := w.workers()) and now != before, "new worker")
    assert w.ask(DATA[0]) == long_lines()[0] and w.log() == ""


LONG_MAIL = b"Subject: long\n\n" + b"one word after the other, more than are read\n" * 200


@pytest.fixture(scope="module")
def large_model(tmp_path_factory):
    """A question with a model of 95 MB, all of which is read for a mail; its keys, values and activations take 20 MB for a long one."""
    directory = tmp_path_factory.mktemp("large")
    shape = shapes.cut(shapes.SHAPES["tinyllama-1.1b"], 2)
    big_model.write(directory / "large.gguf", dataclasses.replace(shape, n_vocab=big_model.N_WORDS, tied=True))
    (directory / "q.yaml").write_text("model: large.gguf\ninput: {kind: mail, head_ids: 288, tail_ids: 96}\n"
                                      "prompt: [{special: <s>}, input, {text: '\\nspam ?\\n'}]\n"
                                      "answers: {'yes': ['yes'], 'no': ['no']}\nthresholds: {'yes': 0.5, 'no': 0.5}\n")
    return directory / "q.yaml"


@pytest.mark.parametrize("before", ["", "from sluice import memory; memory.STATUS = '/nonexistent'"], ids=["proc", "no proc"])
def test_a_worker_of_a_large_model_stays(start, large_model, before):
    """Neither the pages of the model's file nor what each mail needs again are growth: a tenth of what a worker may grow by is enough."""
    size = large_model.with_name("large.gguf").stat().st_size
    assert size > serving.MAX_GROWTH
    w = start("-q", large_model, constants={"MAX_GROWTH": serving.MAX_GROWTH // 10}, before=before, n=1)
    workers = w.workers()
    line = run("classify", "--long", "--no-cache", "-q", large_model, input=LONG_MAIL, env=ENV).stdout
    assert [w.ask(LONG_MAIL) for _ in range(3)] == [line] * 3
    assert rss(workers[0]) > size  # all of the model is in the map
    assert w.workers() == workers and w.log() == ""


def test_descriptors_and_memory_do_not_grow(start):
    w = start(n=1)
    pids, mails = [w.pid, *w.groups(), *w.workers()], [*DATA, *(b"Subject: %d\n\n<b>hello</b>\n" % i for i in range(30)), b"", b"x"]

    def held():
        return [(len(os.listdir(f"/proc/{pid}/fd")), rss(pid)) for pid in pids]
    loop(w.path, mails, 2, lambda i: i >= 300)
    before = held()
    found = loop(w.path, mails, 2, lambda i: i >= 2000)
    assert len(found) == 2000 and [w.pid, *w.groups(), *w.workers()] == pids
    for (n_fd, size), (n_fd_before, size_before) in zip(held(), before):
        assert n_fd == n_fd_before and size <= size_before + (1 << 20)


# Ends and beginnings.

def test_killed_workers_are_replaced_under_load(start):
    w, lines, killed = start(), long_lines(), []

    def kill_some(i):
        if i % 10 == 9 and i < 300:
            pid = w.wait_for(lambda: w.workers()[:1], "worker")[0]
            kill(pid)
            killed.append(pid)
        return i >= 400
    found = loop(w.path, DATA, 4, kill_some)
    wrong = [reply for i, reply, _ in found if reply != lines[i]]
    assert set(wrong) <= {b""} and len(wrong) <= len(killed) and len(killed) >= 20
    w.wait_for(lambda: len(w.workers()) == 2, "two workers")
    assert w.ask(DATA[0]) == lines[0]
    assert w.log().count("was ended by SIGKILL; it is replaced") == len(set(killed))


def test_workers_that_die_at_once_do_not_make_a_storm(start):
    w, seen, began = start(n=1), set(), time.monotonic()

    def five_are_killed():
        for pid in w.workers():
            seen.add(pid)
            kill(pid)
        return len(seen) >= 5
    w.wait_for(five_are_killed, "five workers that begin")
    assert time.monotonic() - began > 1.5  # pauses of 0.1, 0.2, 0.4, 0.8 s
    assert w.ask(DATA[0]) == long_lines()[0]


def test_a_group_that_is_killed_is_replaced(start):
    w = start()
    for _ in range(3):
        groups, workers = w.groups(), w.workers()
        os.kill(groups[0], signal.SIGKILL)
        assert w.ask(DATA[0]) == long_lines()[0]
        w.wait_for(lambda: not any(map(is_alive, workers)) and len(w.workers()) == 2, "other workers")
    assert w.log().count("was ended by SIGKILL: it is started again") == 3


def test_nothing_outlives_the_master(start):
    w = start()
    pids = [*w.groups(), *w.workers()]
    assert len(pids) == 3
    w.process.kill()
    w.process.wait()
    wait_for(lambda: not any(map(is_alive, pids)), "end of group and workers")
    with pytest.raises(ConnectionRefusedError):
        w.ask(b"")
    again = start()  # over the stale socket
    assert again.ask(DATA[0]) == long_lines()[0]


def test_no_request_is_lost_in_restarts(start):
    w, lines = start(), long_lines()

    def some_restarts(i):
        if i % 25 == 24 and i < 525:
            w.restart()
        return i >= 550
    found = loop(w.path, DATA, 4, some_restarts)
    assert len(found) == 550 and all(reply == lines[i] for i, reply, _ in found)
    for _ in range(20):  # faster than they can be followed
        w.restart(wait=False)
    w.restart()
    assert w.ask(DATA[0]) == lines[0]
    w.end()
    assert w.log() == ""


def test_a_mail_that_woke_a_worker_which_ends_is_answered(start):
    """The old worker is woken by a mail, and told of the end before it has a processor: nobody else was woken."""
    w = start(n=1)
    (group,), (worker,), core = w.groups(), w.workers(), max(os.sched_getaffinity(0))
    n = n_open(group)
    os.sched_setscheduler(worker, os.SCHED_IDLE, os.sched_param(0))
    os.sched_setaffinity(worker, {core})
    w.process.send_signal(signal.SIGHUP)
    w.wait_for(lambda: len(w.groups()) == 2, "new group")
    os.kill(w.pid, signal.SIGSTOP)
    w.wait_for(lambda: len(w.workers()) == 2 or not is_alive(worker), "new worker")
    w.wait_for(lambda: all(state(pid) == "S" for pid in w.workers()), "new worker that waits, too")
    with subprocess.Popen([sys.executable, "-c", f"import os; os.sched_setaffinity(0, {{{core}}})\nwhile True: pass"]) as busy:
        try:
            w.wait_for(lambda: os.sched_getaffinity(busy.pid) == {core} and state(busy.pid) == "R", "process that keeps the processor")
            s = connect(w.path)
            s.sendall(DATA[0])
            s.shutdown(socket.SHUT_WR)
            os.kill(w.pid, signal.SIGCONT)
            w.wait_for(lambda: n_open(group) < n, "end of the old group, of which it tells its worker by closing a pipe")
        finally:
            busy.kill()
    with contextlib.suppress(OSError):  # it has ended, or only root may; then it takes longer
        os.sched_setscheduler(worker, os.SCHED_OTHER, os.sched_param(0))
    assert receive(s) == long_lines()[0]
    s.close()


def test_a_restart_reads_question_and_model_again(start, my_model):
    w = start("-q", my_model)
    assert w.ask(DATA[0]) == long_lines()[0]
    my_model.write_text(re.sub(r'thresholds: {"yes": [0-9.]+', 'thresholds: {"yes": 0.1234', my_model.read_text()))
    assert w.ask(DATA[0]) == long_lines()[0]
    w.restart()
    line = w.ask(DATA[0])
    assert line.split()[2] == b"0.1234"
    my_model.write_text("answers: 1\n")
    for _ in range(3):
        w.restart(wait=False)
        w.wait_for(lambda: w.log().count("those that were loaded go on") > _, "refusal")
        assert w.ask(DATA[0]) == line
    assert f"{my_model}: " in w.log() and len(w.workers()) == 2


def test_a_model_that_is_changed_is_an_error_until_a_restart(start, my_model):
    w, model = start("-q", my_model), my_model.parent / "spam.gguf"
    os.utime(model, (1, 1))
    assert {w.ask(data) for data in DATA} == {b"error model\n"}
    assert w.log().count("\n") == 1 and "SIGHUP" in w.log() and str(model) in w.log()
    w.restart()
    assert w.ask(DATA[0]) == long_lines()[0]
    os.truncate(model, 1 << 20)
    assert w.ask(DATA[0]) in (b"", b"error model\n")
    w.restart(wait=False)
    w.wait_for(lambda: "those that were loaded go on" in w.log(), "refusal")
    shutil.copy(SHIPPED, model.parent / "new")
    (model.parent / "new").rename(model)
    w.restart()
    assert w.ask(DATA[0]) == long_lines()[0]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_end_answers_what_waits(start, number):
    w = start(n=1)
    connections = [connect(w.path) for _ in range(20)]
    for s in connections[1:]:
        s.sendall(DATA[0])
        s.shutdown(socket.SHUT_WR)
    w.process.send_signal(number)
    w.wait_for(lambda: not w.path.exists(), "end of the socket")
    connections[0].sendall(DATA[0])
    connections[0].shutdown(socket.SHUT_WR)
    assert {receive(s) for s in connections} == {long_lines()[0]}
    for s in connections:
        s.close()
    w.end()
    assert w.log() == ""


def test_the_log_says_nothing_of_a_mail(start):
    w = start("-v")
    for data in (*DATA, b"", b"Subject: secret\n\nsecret\n"):
        w.ask(data)
    w.end()
    lines = w.log().splitlines()
    assert len(lines) == len(DATA) + 2 and "secret" not in w.log()
    for line in lines:
        name, pid, answer, n_bytes, ids, ms = line.split(" ")
        assert answer in ("answer=yes", "answer=no", "answer=unsure", "error=empty") and pid.startswith("pid=") and ms.startswith("ms=")


# The socket.

def test_the_socket_has_its_mode(start, tmp_path):
    for argv, mode in (((), 0o600), (("--mode", "0660"), 0o660), (("--mode", "666"), 0o666)):
        w = start(*argv)
        assert stat.S_IMODE(w.path.stat().st_mode) == mode
        w.end()
        assert not w.path.exists()
    assert all(name.endswith(".log") for name in os.listdir(tmp_path))


def test_what_is_no_socket_is_refused(tmp_path):
    (tmp_path / "file").write_text("mine")
    (tmp_path / "dir").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "s")
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    here = sorted(os.listdir(tmp_path))
    for name in ("file", "dir", "link", "fifo", "none/s", "file/s", "open/s", "x" * (MAX_PATH + 1)):
        done = run("classify", "--listen", tmp_path / name, "--no-cache", env=ENV)
        assert done.returncode == 73 and done.stderr.count(b"\n") == 1 and name.encode() in done.stderr, (name, done.stderr)
    assert sorted(os.listdir(tmp_path)) == here and (tmp_path / "file").read_text() == "mine" and os.listdir(tmp_path / "open") == []


def test_what_cannot_start_says_so_and_ends(tmp_path):
    (tmp_path / "q.yaml").write_text("answers: 1\n")
    for argv, code in ((("-q", "q.yaml"), 65), (("-q", "none.yaml"), 66), (("-m", "none"), 66), (("-m", "q.yaml"), 65), (("-q", "urgent"), 64)):
        done = run("classify", "--listen", "s", "--no-cache", *argv, env=ENV, cwd=tmp_path)
        assert done.returncode == code and done.stderr.count(b"\n") == 1, (argv, done.stderr)
        assert os.listdir(tmp_path) == ["q.yaml"]


def test_another_takes_the_socket_over(start):
    first = start()
    inode = first.path.stat().st_ino
    assert first.ask(DATA[0]) == long_lines()[0]
    second = start(path=first.path)
    first.process.wait(60)
    assert first.process.returncode == 0 and first.path.stat().st_ino != inode
    assert second.ask(DATA[0]) == long_lines()[0]
    first.path.unlink()
    second.process.wait(60)
    assert second.process.returncode == 74


def test_a_socket_is_always_there_while_workers_follow_each_other(start):
    lines, w = long_lines(), start()
    followers, lock = [], threading.Lock()

    def follow(i):
        if i in (20, 60, 100):
            with lock:  # one after the other
                followers.append(start(path=w.path))
        return i >= 140
    found = loop(w.path, DATA, 3, follow)
    assert all(reply == lines[i] for i, reply, _ in found)
    for one in (w, *followers[:-1]):
        assert one.process.wait(60) == 0
    assert followers[-1].ask(DATA[0]) == lines[0]


def activated(path, s, *argv, n_fds="1"):
    """As systemd starts it, with `s` as descriptor 3."""
    program = "import os, sys; os.dup2(int(sys.argv[1]), 3); os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS=sys.argv[2]); " \
              "os.execv(sys.argv[3], sys.argv[3:])"
    os.set_inheritable(s.fileno(), True)
    return [sys.executable, "-I", "-c", program, str(s.fileno()), n_fds, str(BIN / "classify"), "--listen", str(path), "--workers", "2", "--no-cache",
            *argv]


def test_a_socket_of_systemd_is_used_and_left(tmp_path):
    path, note = tmp_path / "s", tmp_path / "note"
    s, told = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    with s, told:
        s.bind(str(path))
        s.listen(50)
        told.bind(str(note))
        told.settimeout(60)
        for _ in range(2):
            waiting = connect(path)  # before anybody serves
            waiting.sendall(DATA[0])
            waiting.shutdown(socket.SHUT_WR)
            with subprocess.Popen(activated(path, s), env={**ENV, "NOTIFY_SOCKET": str(note)}, close_fds=False, stderr=subprocess.PIPE) as p:
                try:
                    assert told.recv(999).split(b"\n")[0] == b"READY=1"
                    assert receive(waiting) == long_lines()[0] == ask(path, DATA[0])
                    waiting.close()
                    p.send_signal(signal.SIGHUP)
                    reloading = told.recv(999).split(b"\n")
                    assert reloading[0] == b"RELOADING=1" and reloading[1].startswith(b"MONOTONIC_USEC=")
                    assert told.recv(999).split(b"\n")[0] == b"READY=1"
                    assert ask(path, DATA[0]) == long_lines()[0]
                    p.terminate()
                    assert told.recv(999) == b"STOPPING=1"
                    assert p.communicate(timeout=60) == (None, b"") and p.returncode == 0
                finally:
                    p.kill()
            assert path.exists()


def test_what_systemd_passes_is_checked(tmp_path):
    rows = []
    with socket.socket(socket.AF_UNIX) as other, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as datagram, \
            socket.socket(socket.AF_UNIX) as deaf, socket.socket() as internet, open(os.devnull) as file, socket.socket(socket.AF_UNIX) as ok:
        for s, name in ((other, "other"), (deaf, "s1"), (datagram, "s2"), (ok, "s3")):
            s.bind(str(tmp_path / name))
        other.listen()
        ok.listen()
        internet.bind(("127.0.0.1", 0))
        internet.listen()
        rows = ((other, 64, "1"), (deaf, 65, "1"), (datagram, 65, "1"), (internet, 65, "1"), (file, 65, "1"), (ok, 64, "2"), (ok, 64, "x"))
        for s, code, n_fds in rows:
            done = subprocess.run(activated(tmp_path / "s", s, n_fds=n_fds), env=ENV, close_fds=False, capture_output=True, timeout=60)
            assert done.returncode == code and done.stderr.count(b"\n") == 1, done.stderr
    script = 'LISTEN_PID=$$ LISTEN_FDS=1 exec "$@" 3<&-'
    done = subprocess.run(["sh", "-c", script, "sh", str(BIN / "classify"), "--listen", str(tmp_path / "s")], env=ENV, capture_output=True, timeout=60)
    assert done.returncode == 65


# The units.

def test_the_units_are_right(tmp_path):
    if not shutil.which("systemd-analyze"):
        pytest.skip("systemd-analyze is not here: apt install systemd")
    here = (("/opt/sluice/bin/classify", str(BIN / "classify")), ("/opt/sluice/bin/mail-milter", "/bin/true"))  # the milter need not be built
    for path in UNITS.iterdir():
        text = path.read_text()
        for installed, there in here:
            text = text.replace(installed, there)
        assert "/opt/sluice" not in text and all((ROOT / page).is_file() for page in re.findall("file:/usr/local/src/sluice/(.*)", text))
        (tmp_path / path.name).write_text(text)
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", *map(str, sorted(tmp_path.iterdir()))], capture_output=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    for path in tmp_path.glob("*.service"):
        done = subprocess.run(["systemd-analyze", "security", "--offline=yes", "--threshold=15", str(path)], capture_output=True, timeout=60)
        assert done.returncode == 0, done.stdout.decode()[-3000:]
