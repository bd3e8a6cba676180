"""mail-filter and a resident worker: who answers, and what becomes of the mail where the worker is
absent, too slow or dead, or breaks the protocol.
"""

import os
import re
import signal
import socket
import subprocess
import threading

import pytest
from conftest import ROOT, wait_for
from mail_filter_box import CLASSIFY, FORTUNE, LINE, MAIL, MARKED

from sluice.mail import headers


def worker(path):
    """`classify --listen`, when it listens."""
    p = subprocess.Popen(
        [CLASSIFY, "--listen", path, "--workers", "1"],
        stdin=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        wait_for(lambda: p.poll() is not None or listens(path), "worker")
    except BaseException:
        os.killpg(p.pid, signal.SIGKILL)
        raise
    return p


def listens(path):
    with socket.socket(socket.AF_UNIX) as s:
        return s.connect_ex(str(path)) == 0


@pytest.mark.full
def test_worker_and_process_give_the_same_result(box):
    path = box.path / "socket"
    p = worker(path)
    try:
        for name in ("ham-mutt.eml", "spam-cards.eml"):
            mail = (ROOT / "tests/mails" / name).read_bytes()
            assert box.run("--socket", path, mail=mail).returncode == 0
            assert box.run("--classify", CLASSIFY, mail=mail).returncode == 0
            assert [
                re.search(r"by=(\w+) worker=([-\w]+)", line).groups() for line in box.lines()
            ] == [("worker", "answered"), ("process", "-")]
            one, other = box.mails()
            assert one == other and b"X-Spam-Score" in one
        # it hangs: half of the deadline is its, then there is a process
        os.killpg(p.pid, signal.SIGSTOP)
        assert box.run("--socket", path, "--deadline", 6).returncode == 0
        assert box.mails() == [MARKED] and "by=process worker=timeout" in box.lines()[0]
        assert box.run("--socket", path, "--deadline", 1, "--worker-only").returncode == 0
        assert box.mails() == [FORTUNE["error timeout"]]
    finally:
        os.killpg(p.pid, signal.SIGKILL)
        p.wait()
    box.lines()
    # nobody listens, or there is not even a socket
    assert box.run("--socket", path).returncode == 0
    path.unlink(missing_ok=True)
    assert box.run("--socket", path).returncode == 0
    assert box.mails() == [MARKED] * 2
    one, other = box.lines()
    # who took a connection may still be dying
    assert (
        re.search("by=process worker=(absent|closed)", one) and "by=process worker=absent" in other
    )


def serve(path, answer, read=True):
    """A worker that does what it likes: reads the mail (or not), sends `answer`, closes."""
    s = socket.socket(socket.AF_UNIX)
    s.bind(str(path))
    s.listen(5)

    def loop():
        while True:
            try:
                c, _ = s.accept()
            except OSError:
                return
            try:
                while read and c.recv(1 << 16):
                    pass
                c.sendall(answer)
            except OSError:
                pass
            c.close()

    threading.Thread(target=loop, daemon=True).start()
    return s


GOOD = LINE.replace(b"yes", b"no").replace(b"0.9931", b"0.0001") + b"\n"
WORKERS = [
    (GOOD, "answered", None),
    (b"error timeout\n", "answered", "timeout"),
    (b"error size\n", "answered", "size"),
    (b"error worker\n", "answered", "own"),
    (b"", "closed", "own"),
    (GOOD[:-1], "closed", "own"),
    (GOOD[:5], "closed", "own"),
    (b"hello\n", "protocol-error", "own"),
    (b"\n", "protocol-error", "own"),
    (GOOD + b"x", "protocol-error", "own"),
    (GOOD + GOOD, "protocol-error", "own"),
    (b"x" * 100000, "protocol-error", "own"),
    (b"\0" * 30 + b"\n", "protocol-error", "own"),
    (b"\xff\n", "protocol-error", "own"),
    (GOOD.replace(b"0.0001", b"0.00\r1"), "protocol-error", "own"),
]


@pytest.mark.full
@pytest.mark.parametrize("read", [True, False])
def test_whatever_a_worker_says(box, read):
    big = b"Subject: x\n\n" + b"text\n" * 400_000  # more than the socket holds
    for n, (answer, word, result) in enumerate(WORKERS):
        path = box.path / f"s{n}"
        with serve(path, answer, read):
            for mail in (MAIL, big):
                assert box.run("--socket", path, mail=mail).returncode == 0
                (line,), (sent,) = box.lines(), box.mails()
                said = (
                    LINE
                    if result == "own"
                    else GOOD[:-1]
                    if result is None
                    else f"error {result}".encode()
                )
                # it closed with the mail unread, and what it said was lost with it
                if f"worker={word}" not in line and not read:
                    said, word_here = LINE, "closed"
                    assert f"worker={word_here}" in line, (answer, line)
                else:
                    assert f"worker={word}" in line, (answer, line)
                assert sent == headers.mark(mail, headers.headers(said)), (answer, sent[:200])
                assert box.run("--socket", path, "--worker-only", mail=mail).returncode == 0
                (sent,) = box.mails()
                box.lines()
                assert sent == headers.mark(mail, headers.headers(said)) or b"; reason=" in sent


def test_full_connection_queue_falls_back_to_a_process(box):
    path = box.path / "socket"
    waiting = []
    with socket.socket(socket.AF_UNIX) as s:
        s.bind(str(path))
        s.listen(0)
        for _ in range(3):
            waiting.append(socket.socket(socket.AF_UNIX))
            waiting[-1].setblocking(False)
            if waiting[-1].connect_ex(str(path)):
                break
        assert box.run("--socket", path).returncode == 0
        assert box.mails() == [MARKED] and "worker=absent" in box.lines()[0]
        assert box.run("--socket", "x" * 200).returncode == 0  # a path too long for a socket
        assert box.mails() == [MARKED] and "worker=broken" in box.lines()[0]
