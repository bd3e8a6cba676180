"""classify --listen and its clients: many, idle, slow, leaving, large, more than there are
descriptors for; and the process that receives them, which is killed.
"""

import contextlib
import os
import re
import resource
import select
import signal
import socket
import sys
import threading
import time

import pytest
from conftest import ROOT, run, wait_for
from worker_client import connect, receive
from worker_process import DATA, ENV, SHIPPED, is_alive, kill, long_lines, n_open, rss

from sluice.serve import handing
from sluice.serve.listener import BACKLOG

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")
LONG = {"SEND_SECONDS": 300}


def send(path, data):
    """A client whose message is complete."""
    s = connect(path)
    s.sendall(data)
    s.shutdown(socket.SHUT_WR)
    return s


def waits(s):
    """Whether a client is connected and has no answer."""
    poll = select.poll()
    poll.register(s, select.POLLIN)
    return poll.poll(0) == []


def figures(w):
    """What SIGUSR1 prints: {name: number}."""
    n = w.log().count("per_minute=")
    w.process.send_signal(signal.SIGUSR1)
    w.wait_for(lambda: w.log().count("per_minute=") > n, "line of figures")
    line = [line for line in w.log().splitlines() if "per_minute=" in line][-1]
    return {name: float(value) for name, value in re.findall(r"(\w+)=(\S+)", line)}


@contextlib.contextmanager
def stopped(*pids):
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):  # it was killed meanwhile
                os.kill(pid, signal.SIGCONT)


@contextlib.contextmanager
def closing(clients):
    try:
        yield clients
    finally:
        for s in clients:
            s.close()


# Clients that send nothing, slowly, or leave.


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("n", [12, 200])
def test_message_does_not_wait_for_idle_clients(start, n):
    w = start(constants=LONG)
    receiver, before = w.receiver(), n_open(w.receiver())
    with closing([connect(w.path) for _ in range(n)]) as idle:
        for s in idle[::2]:
            s.sendall(b"From: a\n")
        assert [w.ask(data) for data in DATA] == long_lines()
        assert all(map(waits, idle)) and figures(w)["arriving"] == n
        assert n_open(receiver) == before + n  # one descriptor each
        idle[0].shutdown(socket.SHUT_WR)
        assert receive(idle[0]).count(b" ") == 3
        idle[1].shutdown(socket.SHUT_WR)
        assert receive(idle[1]) == b"error empty\n"


@pytest.mark.full
def test_slow_senders_delay_nobody_and_have_a_deadline(start):
    w = start(n=1, constants={"SEND_SECONDS": 5})
    over = threading.Event()
    replies = {}

    def drip(i):
        with connect(w.path) as s:
            # byte by byte, until the worker says that it is too late
            while not over.wait(0.1) and waits(s):
                with contextlib.suppress(OSError):
                    s.sendall(b"x")
            replies[i] = receive(s) or b"read"

    began = time.monotonic()
    threads = [threading.Thread(target=drip, args=(i,)) for i in range(8)]
    for t in threads:
        t.start()
    fast = [w.ask(DATA[0]) for _ in range(3)]
    assert fast == [long_lines()[0]] * 3
    with connect(w.path) as s:  # slow, but in time
        for at in range(0, len(DATA[0]), len(DATA[0]) // 5):
            s.sendall(DATA[0][at : at + len(DATA[0]) // 5])
            time.sleep(0.1)
        s.shutdown(socket.SHUT_WR)
        assert receive(s) == long_lines()[0]
    wait_for(lambda: figures(w)["timeout"] == 8, "deadline of all slow senders")
    assert time.monotonic() - began >= 5
    over.set()
    for t in threads:
        t.join()
    assert figures(w)["arriving"] == 0 and w.ask(DATA[0]) == long_lines()[0]


def test_message_of_a_client_that_left_is_not_classified(start):
    w = start(n=1)
    with stopped(*w.workers()):
        for _ in range(20):
            send(w.path, DATA[0]).close()
        for _ in range(20):
            connect(w.path).close()
        last = send(w.path, DATA[1])
        wait_for(lambda: figures(w)["waiting"] <= 1, "end of those that left")
    assert receive(last) == long_lines()[1]
    last.close()
    found = figures(w)
    # a message that was handed to the worker is its own: at most two wait there
    assert found["left"] >= 38 and found["answers"] <= 3
    assert found["left"] + found["answers"] == 41 and found["arriving"] == found["waiting"] == 0


# Order, and bounds.


def test_messages_are_answered_in_order(start):
    w = start("-v", n=1)
    mails = [DATA[0] + b"x" * i + b"\n" for i in range(16)]
    with stopped(*w.workers()), closing([]) as clients:
        for mail in mails:
            clients.append(send(w.path, mail))
            time.sleep(0.01)
        wait_for(lambda: figures(w)["arriving"] == 0, "that all have been read")
        os.kill(w.workers()[0], signal.SIGCONT)
        assert [receive(s).count(b" ") for s in clients] == [3] * 16
    sizes = re.findall(r"answer=\w+ bytes=(\d+) ", w.log())
    assert sizes == [str(len(mail)) for mail in mails]


@pytest.mark.full
def test_waiting_messages_are_bounded(start):
    w = start(n=1, constants={"MAX_WAITING": 4})
    with closing([]) as clients:
        with stopped(*w.workers()):
            for _ in range(BACKLOG + 4):
                clients.append(send(w.path, DATA[0]))
            wait_for(lambda: figures(w)["waiting"] == 4, "bound")
            assert figures(w)["full"] >= 1
        assert {receive(s) for s in clients} == {long_lines()[0]}


def test_clients_are_bounded_and_the_next_wait_in_the_queue(start):
    w = start(n=1, constants={**LONG, "MAX_CLIENTS": 10})
    with closing([connect(w.path) for _ in range(10)]) as clients:
        wait_for(lambda: figures(w)["arriving"] == 10, "bound")
        for _ in range(2 * BACKLOG):
            s = socket.socket(socket.AF_UNIX)
            s.setblocking(False)
            try:
                s.connect(str(w.path))
            except BlockingIOError:
                s.close()
                break
            clients.append(s)
        assert 10 + BACKLOG <= len(clients) <= 10 + BACKLOG + 2
        assert figures(w)["arriving"] == 10
        last = clients.pop()
        last.settimeout(60)
        last.sendall(DATA[0])
        last.shutdown(socket.SHUT_WR)
        assert waits(last)
        for s in clients:
            s.close()
        assert receive(last) == long_lines()[0]
        last.close()


def seconds_of_processor(pid):
    fields = open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.full
def test_few_descriptors_bound_the_clients(start):
    """ulimit -n 64: clients wait in the socket's queue, and nobody spins."""
    limit = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    w = start(n=1, constants=LONG, preexec=limit)
    with closing([connect(w.path) for _ in range(64)]) as idle:
        wait_for(lambda: figures(w)["arriving"] == 16, "bound")
        assert n_open(w.receiver()) < 64
        mail = send(w.path, DATA[0])
        before = seconds_of_processor(w.receiver())
        time.sleep(2)
        assert seconds_of_processor(w.receiver()) - before < 0.5 and waits(mail)
        for s in idle:
            s.close()
        assert receive(mail) == long_lines()[0]
        mail.close()
    # large messages, which take a second descriptor, too
    with closing([connect(w.path) for _ in range(16)]) as large:
        for s in large:
            s.sendall(DATA[0] + b"y" * (2 << 20))
        for s in large:
            s.shutdown(socket.SHUT_WR)
        assert {receive(s).count(b" ") for s in large} == {3}
    assert w.ask(DATA[0]) == long_lines()[0]


REFUSED = """
import resource
setrlimit = resource.setrlimit
def refuse(which, limits):
    if which == resource.RLIMIT_NOFILE:
        raise PermissionError(1, "Operation not permitted")
    setrlimit(which, limits)
resource.setrlimit = refuse
"""  # as a filter of system calls does (SystemCallFilter= of systemd)


def test_limit_that_cannot_be_raised_bounds_the_clients(start):
    limit = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (64, 4096))
    w = start(n=1, before=REFUSED, preexec=limit)
    with closing([connect(w.path) for _ in range(20)]):
        wait_for(lambda: figures(w)["arriving"] == 16, "bound")
    w.wait_for(lambda: figures(w)["arriving"] == 0, "end of clients")
    assert w.ask(DATA[0]) == long_lines()[0]


@pytest.mark.full
def test_failing_accept_does_not_spin(start):
    w = start(n=1)
    receiver = w.receiver()
    soft, hard = resource.prlimit(receiver, resource.RLIMIT_NOFILE)
    resource.prlimit(receiver, resource.RLIMIT_NOFILE, (3, hard))  # as if all were taken
    mail = send(w.path, DATA[0])
    before = seconds_of_processor(receiver)
    time.sleep(2)
    assert seconds_of_processor(receiver) - before < 0.5 and waits(mail)
    resource.prlimit(receiver, resource.RLIMIT_NOFILE, (soft, hard))
    assert receive(mail) == long_lines()[0]
    mail.close()
    assert w.receiver() == receiver


# Large messages.


@pytest.mark.full
def test_client_that_sends_100_mb_delays_nobody(start):
    w = start()
    receiver, before = w.receiver(), rss(w.receiver())
    body = b"x" * 70 + b"\n"
    mail = DATA[0] + body * (100_000_000 // len(body))
    over = threading.Event()
    replies = []

    def large():
        replies.append(w.ask(mail))
        over.set()

    t = threading.Thread(target=large)
    t.start()
    while not over.is_set():
        assert w.ask(DATA[1]) == long_lines()[1]
        assert rss(receiver) < before + (8 << 20)
    t.join()
    assert replies == [run("classify", "--long", "--no-cache", input=mail, env=ENV).stdout]
    assert n_open(receiver) == n_open(w.receiver()) and w.log() == ""


@pytest.mark.full
def test_messages_that_arrive_have_bounded_memory(start):
    w = start(n=1, constants={**LONG, "TOTAL_BYTES": 2 << 20})
    receiver, before = w.receiver(), rss(w.receiver())
    data = DATA[0] + b"a line\n" * 110_000
    with closing([connect(w.path) for _ in range(12)]) as clients:
        for s in clients:
            s.sendall(data)
        assert w.ask(DATA[0]) == long_lines()[0]
        assert rss(receiver) < before + (6 << 20)
        for s in clients:
            s.shutdown(socket.SHUT_WR)
        assert len({receive(s) for s in clients}) == 1
    w.wait_for(lambda: figures(w)["arriving"] + figures(w)["waiting"] == 0, "end of all")


def test_full_disk_is_an_answer(start, tmp_path):
    """A large message cannot be kept; small ones are answered as ever."""
    w = start(n=1, env={"TMPDIR": str(tmp_path / "none")}.items(), before=NO_TEMPORARY)
    assert w.ask(DATA[0] + b"a line\n" * (1 << 20)) == b"error memory\n"
    assert w.ask(DATA[0]) == long_lines()[0] and w.log() == ""


NO_TEMPORARY = """
import tempfile
def none(*args, **kwargs):
    raise OSError(28, "No space left on device")
tempfile.TemporaryFile = none
"""  # no disk can be filled for a test


@pytest.mark.full
def test_long_texts_have_the_answer_of_classify(start, tmp_path):
    """Of a text the first and the last bytes count: of one above 16 MiB, too."""
    text = (ROOT / "configs" / "spam.yaml").read_text()
    text, n = re.subn(r"kind: mail", "kind: text", text)
    assert n == 1
    (tmp_path / "q.yaml").write_text(text)
    (tmp_path / "spam.gguf").symlink_to(SHIPPED)
    w = start("-q", tmp_path / "q.yaml")
    words = b" ".join(b"%d" % i for i in range(4_000_000))
    answers = set()
    for n_bytes in (99, 262_145, 16 << 20, (16 << 20) + 100, (16 << 20) + 131_073, 27_000_000):
        data = words[: n_bytes - 40] + b" you have won a free prize, click here! "
        argv = ("classify", "--long", "--no-cache", "-q", tmp_path / "q.yaml")
        assert w.ask(data) == run(*argv, input=data, env=ENV).stdout, n_bytes
        answers.add(w.ask(data))
    assert len(answers) > 1


# Ends and beginnings.


@pytest.mark.full
def test_killed_receiver_is_replaced(start):
    w = start(constants=LONG)
    for _ in range(2):
        receiver, workers = w.receiver(), w.workers()
        with closing([connect(w.path) for _ in range(5)]) as clients:
            for s in clients:
                s.sendall(DATA[0])
            wait_for(lambda: figures(w)["arriving"] == 5, "clients")
            kill(receiver)
            assert {receive(s) for s in clients} == {b""}
        assert w.ask(DATA[0]) == long_lines()[0]  # it waits for the new one
        assert w.receiver() != receiver and w.workers() == workers
    assert w.log().count("was ended by SIGKILL: it is restarted; those that were") == 2


def test_message_that_was_handed_survives_the_receiver(start):
    w = start(n=1)
    with stopped(*w.workers()):
        mail = send(w.path, DATA[0])
        wait_for(lambda: figures(w)["arriving"] + figures(w)["waiting"] == 0, "hand-over")
        kill(w.receiver())
    assert receive(mail) == long_lines()[0]
    mail.close()


@pytest.mark.quick_cases(1)
def test_messages_outlive_a_worker_that_has_not_taken_them(start):
    w = start(n=1)
    for _ in range(3):
        (worker,) = w.workers()
        with stopped(worker), closing([send(w.path, data) for data in DATA]) as clients:
            kill(worker)
            assert [receive(s) for s in clients] == long_lines()
        w.wait_for(lambda: w.workers() not in ([], [worker]), "new worker")
    assert figures(w)["killed"] == 0


ENDLESS = """
import itertools
from sluice.texts import inputs
text = inputs.text
inputs.text = lambda data, *rest: sum(itertools.repeat(0)) if b"endless" in data else text(data, *rest)
"""  # a fault that no mail is known to meet: a loop in C code without an end


def test_worker_that_is_killed_in_the_middle_costs_one_answer(start):
    w = start(n=1, before=ENDLESS)
    (worker,) = w.workers()
    with closing([send(w.path, b"Subject: endless\n\nendless\n")]) as (first,):
        w.wait_for(lambda: figures(w)["arriving"] + figures(w)["waiting"] == 0, "hand-over")
        with closing([send(w.path, data) for data in DATA]) as others:
            kill(worker)
            assert receive(first) == b""
            assert [receive(s) for s in others] == long_lines()
    assert figures(w)["killed"] == 1 and figures(w)["answers"] == len(DATA)
    assert w.log().count("was ended by SIGKILL; it is replaced") == 1


@pytest.mark.full
def test_client_that_is_sending_survives_a_reload(start):
    w = start(constants=LONG)
    with closing([connect(w.path) for _ in range(5)]) as clients:
        for s in clients:
            s.sendall(DATA[0][:100])
        receiver = w.receiver()
        w.restart()
        w.restart()
        for s in clients:
            s.sendall(DATA[0][100:])
            s.shutdown(socket.SHUT_WR)
            assert receive(s) == long_lines()[0]
        assert w.receiver() == receiver
    w.end()


@pytest.mark.full
def test_shutdown_waits_for_clients_until_their_deadline(start):
    w = start(constants={"SEND_SECONDS": 3})
    with closing([connect(w.path) for _ in range(3)]) as (idle, slow, waiting):
        slow.sendall(DATA[0])
        for s in (idle, slow):
            wait_for(lambda: figures(w)["arriving"] >= 2, "clients")
        w.process.send_signal(signal.SIGTERM)
        w.wait_for(lambda: not w.path.exists(), "end of the socket")
        waiting.sendall(DATA[1])
        waiting.shutdown(socket.SHUT_WR)
        assert receive(waiting) == long_lines()[1]
        assert receive(idle) == receive(slow) == b"error timeout\n"
    w.end()
    assert "error" not in w.log()


def test_receiver_does_not_outlive_the_master(start):
    w = start(constants=LONG)
    receiver = w.receiver()
    with connect(w.path) as s:
        wait_for(lambda: figures(w)["arriving"] == 1, "client")
        w.process.kill()
        w.process.wait()
        wait_for(lambda: not is_alive(receiver), "end of the receiver")
        assert receive(s) == b""


def test_descriptors_of_packets_are_closed_if_nobody_takes_them():
    """A daemon that ends with packets in the queue: clients read the end of the connection."""
    giving, taking = handing.pair()
    ours, theirs = socket.socketpair()
    with open(__file__) as file:
        handing.give(giving, file.fileno(), theirs.fileno(), 0.0, 0.0, 1)
    theirs.close()
    giving.close()
    taking.close()
    assert ours.recv(9) == b""
    ours.close()
