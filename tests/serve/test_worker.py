"""classify --listen: the real worker, asked, hurried, starved, killed, restarted."""

import contextlib
import dataclasses
import os
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import big_model
import pytest
from conftest import ROOT, run, wait_for
from forked import run as forked_run
from worker_client import connect, loop, receive
from worker_process import (
    DATA,
    ENV,
    MAILS,
    SHIPPED,
    Worker,
    is_alive,
    kill,
    long_lines,
    n_open,
    rss,
    state,
    zombies,
)

from sluice.bench import shapes
from sluice.classify.classifier import Classifier
from sluice.question import question
from sluice.serve import connection

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")


@pytest.fixture(scope="module")
def worker(tmp_path_factory):
    """One that many tests ask."""
    w = Worker(tmp_path_factory.mktemp("worker") / "s")
    yield w
    w.end()
    assert w.log() == ""


def test_worker_verdict_equals_classify(worker):
    assert [worker.ask(data) for data in DATA] == long_lines()


@pytest.mark.full
def test_worker_maps_answers_by_position(start, tmp_path):
    text = (
        (ROOT / "configs" / "spam.yaml")
        .read_text()
        .replace('"yes": ', '"spam": ')
        .replace('"no": ', '"ham": ')
    )
    text = "".join(line for line in text.splitlines(True) if not line.startswith("aliases:"))
    (tmp_path / "q.yaml").write_text(text)
    shutil.copy(SHIPPED, tmp_path)
    assert (
        run("classify", "--long", "-q", tmp_path / "q.yaml", MAILS[0], env=ENV).stdout.split()[0]
        == b"ham"
    )
    w = start("-q", tmp_path / "q.yaml")
    assert [w.ask(data) for data in DATA] == long_lines()


@pytest.mark.full
def test_worker_verdict_equals_classify_for_real_messages(worker, datafile):
    with tarfile.open(datafile("spam/spamassassin.tar.xz")) as archive:
        mails = [archive.extractfile(m).read() for m in archive if m.isfile() and m.size]
    mails = mails[:: len(mails) // 200][:200]
    q = question.read(question.find("spam"))
    here = Classifier(q, question.model_path(q), 1)  # as the command makes it
    for i, data in enumerate(mails):
        v = here.ask(data)
        line = worker.ask(data)
        assert line == here.line(v, v.answer)
        if i % 20 == 0:
            assert line == forked_run("classify", "--long", "--no-cache", input=data).stdout


# Clients.


@pytest.mark.full
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


@pytest.mark.full
def test_whatever_is_sent_there_is_an_answer(worker):
    rows = {b"": b"error empty\n"}
    for data in (
        b"\0",
        b"\n",
        b"\xff" * 1000,
        b"From nobody\n\n",
        bytes(range(256)) * 400,
        b"Subject: x" * 9999,
        b"<" * 99999,
        b"Content-Type: multipart/mixed; boundary=b\n\n" + b"--b\n" * 9999,
        DATA[0].replace(b"\n", b"\r\n"),
        os.urandom(1 << 20),
    ):
        rows[data] = forked_run("classify", "--long", "--no-cache", input=data).stdout
        assert rows[data].count(b" ") == 3
    for data, line in rows.items():
        assert worker.ask(data) == line, data[:40]


@pytest.mark.full
def test_large_mails_are_answered_and_leave_no_memory_behind(start):
    w = start(n=1)
    body = b"x" * 70 + b"\n"
    plain = b"Subject: hello\n\n" + body * ((16 << 20) // len(body))
    page = b"Content-Type: text/html\n\n" + b"<p>word <a href='http://example.org/a'>x</a>\n" * (
        16 << 20 >> 6
    )
    # of the last one the first 16 MiB are read, and the rest is taken
    for data in (plain, page, plain + plain):
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


@pytest.mark.full
def test_worker_reports_a_timeout_to_a_slow_client(start):
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
from sluice.texts import inputs
text = inputs.text
inputs.text = lambda data, *rest: sum(itertools.repeat(0)) if b"endless" in data else text(data, *rest)
"""  # a fault that no mail is known to meet: a loop in C code without an end


@pytest.mark.full
def test_message_that_takes_too_long_ends_one_worker(start):
    w = start(constants={"ANSWER_SECONDS": 2.5}, before=ENDLESS, n=1)
    before = w.workers()
    assert w.ask(DATA[0]) == long_lines()[0] and w.workers() == before
    assert w.ask(b"Subject: endless\n\nendless\n") == b""
    assert w.ask(DATA[0]) == long_lines()[0] and w.workers() != before
    assert (
        w.log()
        == f"classify: worker {before[0]} was ended by SIGALRM: a message took longer than 2.5 s; it"
        " is replaced\n"
    )


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


def test_worker_memory_limit_excludes_thread_memory(start):
    w = start("-j", 3, n=1)
    (pid,) = w.workers()
    w.wait_for(lambda: len(os.listdir(f"/proc/{pid}/task")) == 3, "threads")
    size = int(Path(f"/proc/{pid}/statm").read_text().split()[0]) * resource.getpagesize()
    # though their stacks are of it, and attention is to come
    assert size + connection.MEMORY < resource.prlimit(pid, resource.RLIMIT_AS)[0]


LEAKS = """
from sluice.texts import inputs
text, kept = inputs.text, []
inputs.text = lambda data, *rest: kept.append(b"x" * (80 << 20)) or text(data, *rest)
"""  # a fault that no mail is known to meet: memory that is never given back


@pytest.mark.full
def test_worker_that_has_grown_is_replaced(start):
    w = start(before=LEAKS, n=1)
    before = w.workers()
    assert w.ask(DATA[0]) == long_lines()[0]
    w.wait_for(lambda: (now := w.workers()) and now != before, "new worker")
    assert w.ask(DATA[0]) == long_lines()[0] and w.log() == ""


LONG_MAIL = b"Subject: long\n\n" + b"one word after the other, more than are read\n" * 200


@pytest.fixture(scope="module")
def large_model(tmp_path_factory):
    """A question with a model of 95 MB, all of which is read for a mail; its keys, values and
    activations take 20 MB for a long one.
    """
    directory = tmp_path_factory.mktemp("large")
    shape = shapes.cut(shapes.SHAPES["tinyllama-1.1b"], 2)
    big_model.write(
        directory / "large.gguf", dataclasses.replace(shape, n_vocab=big_model.N_WORDS, tied=True)
    )
    (directory / "q.yaml").write_text(
        "model: large.gguf\ninput: {kind: mail, head_ids: 288, tail_ids: 96}\n"
        "prompt: [{special: <s>}, input, {text: '\\nspam ?\\n'}]\n"
        "answers: {'yes': ['yes'], 'no': ['no']}\nthresholds: {'yes': 0.5, 'no': 0.5}\n"
    )
    return directory / "q.yaml"


@pytest.mark.parametrize(
    "before",
    ["", "from sluice.system import memory; memory.STATUS = '/dev/null/absent'"],
    ids=["proc", "no proc"],
)
@pytest.mark.full
def test_worker_of_a_large_model_is_not_replaced(start, large_model, before):
    """Neither the pages of the model's file nor what each mail needs again are growth: a tenth of
    what a worker may grow by is enough.
    """
    size = large_model.with_name("large.gguf").stat().st_size
    assert size > connection.MAX_GROWTH
    w = start(
        "-q", large_model, constants={"MAX_GROWTH": connection.MAX_GROWTH // 10}, before=before, n=1
    )
    workers = w.workers()
    line = run(
        "classify", "--long", "--no-cache", "-q", large_model, input=LONG_MAIL, env=ENV
    ).stdout
    assert [w.ask(LONG_MAIL) for _ in range(3)] == [line] * 3
    assert rss(workers[0]) > size  # all of the model is in the map
    assert w.workers() == workers and w.log() == ""


@pytest.mark.full
def test_descriptors_and_memory_do_not_grow(start):
    w = start(n=1)
    pids, mails = (
        [w.pid, w.receiver(), *w.groups(), *w.workers()],
        [*DATA, *(b"Subject: %d\n\n<b>hello</b>\n" % i for i in range(30)), b"", b"x"],
    )

    def held():
        return [(n_open(pid), rss(pid)) for pid in pids]

    def n_open(pid):
        """Descriptors of a process at rest: the last connection may be closing still."""
        counts = [-1]
        while len(counts) < 3 or len(set(counts[-3:])) > 1:
            time.sleep(0.05)
            counts.append(len(os.listdir(f"/proc/{pid}/fd")))
        return counts[-1]

    loop(w.path, mails, 2, lambda i: i >= 300)
    before = held()
    found = loop(w.path, mails, 2, lambda i: i >= 2000)
    assert len(found) == 2000
    assert [w.pid, w.receiver(), *w.groups(), *w.workers()] == pids
    assert not any(zombies(pid) for pid in pids)
    for (n_fd, size), (n_fd_before, size_before) in zip(held(), before):
        assert n_fd == n_fd_before and size <= size_before + (1 << 20)


# Ends and beginnings.


@pytest.mark.full
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


@pytest.mark.full
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


@pytest.mark.full
def test_killed_worker_group_is_replaced(start):
    w = start()
    for _ in range(3):
        groups, workers = w.groups(), w.workers()
        os.kill(groups[0], signal.SIGKILL)
        assert w.ask(DATA[0]) == long_lines()[0]
        w.wait_for(
            lambda: not any(map(is_alive, workers)) and len(w.workers()) == 2, "other workers"
        )
    assert w.log().count("was ended by SIGKILL: it is restarted") == 3


@pytest.mark.full
def test_nothing_outlives_the_master(start):
    w = start()
    pids = [w.receiver(), *w.groups(), *w.workers()]
    assert len(pids) == 4
    w.process.kill()
    w.process.wait()
    wait_for(lambda: not any(map(is_alive, pids)), "end of receiver, group and workers")
    with pytest.raises(ConnectionRefusedError):
        w.ask(b"")
    again = start()  # over the stale socket
    assert again.ask(DATA[0]) == long_lines()[0]


@pytest.mark.full
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


@pytest.mark.full
def test_message_that_woke_an_ending_worker_is_answered(start):
    """The old worker is woken by a mail, and told of the end before it has a processor: nobody else
    was woken.
    """
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
    with subprocess.Popen(
        [sys.executable, "-c", f"import os; os.sched_setaffinity(0, {{{core}}})\nwhile True: pass"]
    ) as busy:
        try:
            w.wait_for(
                lambda: os.sched_getaffinity(busy.pid) == {core} and state(busy.pid) == "R",
                "process that keeps the processor",
            )
            s = connect(w.path)
            s.sendall(DATA[0])
            s.shutdown(socket.SHUT_WR)
            os.kill(w.pid, signal.SIGCONT)
            w.wait_for(
                lambda: n_open(group) < n,
                "end of the old group, of which it tells its worker by closing a pipe",
            )
        finally:
            busy.kill()
    with contextlib.suppress(OSError):  # it has ended, or only root may; then it takes longer
        os.sched_setscheduler(worker, os.SCHED_OTHER, os.sched_param(0))
    assert receive(s) == long_lines()[0]
    s.close()


@pytest.mark.quick_cases(1)
def test_worker_restart_reads_question_and_model_again(start, my_model):
    w = start("-q", my_model)
    assert w.ask(DATA[0]) == long_lines()[0]
    my_model.write_text(
        re.sub(r'thresholds: {"yes": [0-9.]+', 'thresholds: {"yes": 0.1234', my_model.read_text())
    )
    assert w.ask(DATA[0]) == long_lines()[0]
    w.restart()
    line = w.ask(DATA[0])
    assert line.split()[2] == b"0.1234"
    my_model.write_text("answers: 1\n")
    for _ in range(3):
        w.restart(wait=False)
        w.wait_for(lambda: w.log().count("the old ones stay") > _, "refusal")
        assert w.ask(DATA[0]) == line
    assert f"{my_model}: " in w.log() and len(w.workers()) == 2


@pytest.mark.full
def test_worker_reports_a_changed_model_until_a_restart(start, my_model):
    w, model = start("-q", my_model), my_model.parent / "spam.gguf"
    os.utime(model, (1, 1))
    assert {w.ask(data) for data in DATA} == {b"error model\n"}
    assert w.log().count("\n") == 1 and "SIGHUP" in w.log() and str(model) in w.log()
    w.restart()
    assert w.ask(DATA[0]) == long_lines()[0]
    os.truncate(model, 1 << 20)
    assert w.ask(DATA[0]) in (b"", b"error model\n")
    w.restart(wait=False)
    w.wait_for(lambda: "the old ones stay" in w.log(), "refusal")
    shutil.copy(SHIPPED, model.parent / "new")
    (model.parent / "new").rename(model)
    w.restart()
    assert w.ask(DATA[0]) == long_lines()[0]


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_shutdown_answers_waiting_requests(start, number):
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


def test_worker_log_has_no_message_content(start):
    w = start("-v")
    for data in (*DATA, b"", b"Subject: secret\n\nsecret\n"):
        w.ask(data)
    w.end()
    lines = w.log().splitlines()
    assert len(lines) == len(DATA) + 2 and "secret" not in w.log()
    for line in lines:
        name, pid, answer, n_bytes, tokens, ms = line.split(" ")
        assert (
            answer in ("answer=yes", "answer=no", "answer=unsure", "error=empty")
            and pid.startswith("pid=")
            and ms.startswith("ms=")
        )
