"""classify --pass-through: the mail comes out whole, marked, or not at all; whatever becomes of the
verdict.
"""

import faulthandler
import os
import random
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time

import pytest
from conftest import BIN, MEASURE, ROOT, run, shell

from sluice.classify.classifier import Verdict
from sluice.faults import Error
from sluice.mail import headers
from sluice.serve import pass_through

MAILS = {p.stem: p.read_bytes() for p in sorted((ROOT / "tests" / "mails").glob("*.eml"))}
MAIL = MAILS["ham-mutt"]
MODEL = ROOT / "lib" / "sluice" / "data" / "spam.gguf"
UNCHECKED = re.compile(
    rb"(?m)^X-Spam-Status: unchecked; reason=([a-z]+)\r?\nX-Spam-Checker-Version: Sluice"
    rb" [0-9.]+\r?$"
)


def through(mail, *argv, **kwargs):
    kwargs.setdefault("timeout", 120)
    return run("classify", "--pass-through", "--no-cache", *argv, input=mail, **kwargs)


def reason(done, mail):
    """The word that it was passed unchecked with; everything else of it is as it was, and stderr
    has one line.
    """
    assert done.returncode == 0 and headers.mark(done.stdout, b"") == headers.mark(mail, b""), done
    assert done.stderr.count(b"\n") == 1 and done.stderr.startswith(
        b"classify: not classified: "
    ), done.stderr
    return UNCHECKED.search(done.stdout)[1].decode()


@pytest.mark.quick_cases(3)
@pytest.mark.parametrize("name", MAILS)
def test_headers_say_what_long_says(name):
    done, line = through(MAILS[name]), run("classify", "--long", "--no-cache", input=MAILS[name])
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout == headers.mark(MAILS[name], headers.headers(line.stdout[:-1]))


def hostile():
    draw = random.Random(1)
    yield "noise", draw.randbytes(100_000)
    yield "one byte", b"x"
    yield "newlines", b"\n" * 1000
    yield "nul", bytes(5000)
    yield "no header", b"just a text\nof two lines"
    yield "header only", b"Subject: x"
    yield "crlf", MAIL.replace(b"\n", b"\r\n")
    yield "cr", MAIL.replace(b"\n", b"\r")
    yield (
        "forged",
        b"X-Spam-Flag: YES\r\nx-spam-STATUS :\r\n\tNo\r\nSubject: x\r\n\r\nX-Spam-Flag: YES\r\n",
    )
    yield "from", b"From me\n>From you\nSubject: x\n\nbody"
    yield (
        "nested",
        b"Content-Type: multipart/mixed; boundary=b\n\n"
        + b"--b\nContent-Type: multipart/mixed; boundary=b\n\n" * 20_000,
    )
    yield "tags", b"Content-Type: text/html\n\n" + b"<a " * 300_000
    yield "headers", b"X-Spam-A: b\n" * 50_000 + b"\nbody"
    yield "long header", b"X-Spam-Long: " + b"y" * 3_000_000 + b"\nSubject: x\n\nbody"


@pytest.mark.parametrize("name", dict(hostile()))
@pytest.mark.quick_cases(2)
def test_hostile_mail_comes_out_whole(name):
    mail = dict(hostile())[name]
    done = through(mail)
    assert (done.returncode, done.stderr) == (0, b"")
    heads = [
        line
        for line in done.stdout.replace(b"\r\n", b"\n").split(b"\n")[:6]
        if line.startswith(b"X-Spam-Status: ")
    ]
    assert len(heads) == 1 and b", score=" in heads[0]
    # where a mail has no header there is an empty line between
    assert headers.mark(done.stdout, b"").endswith(headers.mark(mail, b""))


def test_empty_mail():
    done = through(b"")
    assert (
        (done.returncode, done.stderr) == (0, b"")
        and UNCHECKED.match(done.stdout)[1] == b"empty"
        and done.stdout.endswith(b"\n\n")
    )


@pytest.mark.parametrize(
    "n_bytes", [(16 << 20) - 1, 16 << 20, (16 << 20) + 1, (16 << 20) + 2, 70 << 20]
)
@pytest.mark.quick_cases(2)
def test_any_size_comes_out_whole_and_in_bounded_memory(n_bytes, tmp_path):
    """More than 16 MiB lie in a file without a name, and are read as --long reads them: the first
    16 MiB.
    """
    line = b"The numbers of May, as they are.\r\n"
    mail = (b"Subject: Minutes\r\nX-Spam-Flag: YES\r\n\r\n" + line * (n_bytes // len(line) + 1))[
        :n_bytes
    ]
    (tmp_path / "mail").write_bytes(mail)
    with open(tmp_path / "mail", "rb") as stdin, open(tmp_path / "out", "wb") as stdout:
        done = subprocess.run(
            [sys.executable, "-S", "-c", MEASURE, BIN / "classify", "--pass-through", "--no-cache"],
            stdin=stdin,
            stdout=stdout,
            stderr=subprocess.PIPE,
        )
    assert done.returncode == 0
    want = run("classify", "--long", "--no-cache", tmp_path / "mail").stdout[:-1]
    assert (tmp_path / "out").read_bytes() == headers.mark(mail, headers.headers(want))
    assert int(done.stderr) < 400 << 10


@pytest.mark.full
def test_nothing_is_written_until_all_is_read():
    p = subprocess.Popen(
        [BIN / "classify", "--pass-through", "--no-cache"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    p.stdin.write(MAIL)
    p.stdin.flush()
    os.set_blocking(p.stdout.fileno(), False)
    time.sleep(0.5)
    assert p.stdout.read() is None
    p.send_signal(signal.SIGKILL)  # Python's own death
    p.stdin.close()
    assert p.wait() == -9 and p.stdout.read() == b""


# No verdict.


@pytest.mark.full
def test_without_model_or_question_it_is_unchecked(tmp_path):
    (tmp_path / "bad.yaml").write_text("input: {kind: mail}\nno: such\n")
    (tmp_path / "cut.gguf").write_bytes(MODEL.read_bytes()[:100_000])
    env = {k: v for k, v in os.environ.items() if k != "MODEL"}
    for argv in (
        ("-m", tmp_path / "none.gguf"),
        ("-m", tmp_path),
        ("-m", tmp_path / "cut.gguf"),
        ("-m", "/dev/null"),
        ("-q", tmp_path / "bad.yaml"),
        ("-q", tmp_path / "none.yaml"),
        ("-q", "nobody-asks-this"),
        ("-q", "urgent"),
    ):
        for mail in (MAIL, b"X-Spam-Flag: YES\nSubject: x\n\n"):
            assert reason(through(mail, *argv, env=env), mail) == "model", argv


@pytest.mark.full
def test_out_of_memory_is_unchecked_or_nothing_was_written():
    """Whatever the limit: exit 0 with the whole mail, or another status with no byte of it."""
    said = set()
    for mib in (20, 60, 90, 110, 130, 150, 170, 190, 210, 240, 280):
        done = through(
            MAIL,
            "-j",
            "1",
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (mib << 20, mib << 20)),
        )
        if done.returncode == 0:
            assert (
                headers.mark(done.stdout, b"") == headers.mark(MAIL, b"")
                and b"X-Spam-Status: " in done.stdout
            )
            found = UNCHECKED.search(done.stdout)
            said.add(found[1] if found else b"checked")
        else:
            assert done.stdout == b"" and done.returncode > 2, (mib, done)
    assert said <= {b"checked", b"memory", b"model", b"crashed"} and b"checked" in said


class Stub:
    """Stands for what load() gives: a Classifier that does what hurts."""

    def __init__(self, hurt):
        self.hurt = hurt

    def ask(self, data):
        self.hurt()
        return Verdict()

    def line(self, verdict, name=None):
        return b"yes 1.0000 0.5000 0123456789abcdef\n"


def die(number):
    faulthandler.disable()  # pytest's
    os.kill(os.getpid(), number)
    time.sleep(100)


def recurse():
    return recurse()


@pytest.mark.quick_cases(5)
@pytest.mark.parametrize(
    "hurt,word",
    [
        (lambda: die(signal.SIGKILL), b"crashed"),
        (lambda: die(signal.SIGSEGV), b"crashed"),
        (lambda: os._exit(0), b"crashed"),
        (lambda: os._exit(1), b"crashed"),
        (lambda: os._exit(74), b"model"),
        (recurse, b"crashed"),
        (lambda: None, b""),
        (lambda: bytearray(1 << 60), b"memory"),
        (lambda: 1 / 0, b"crashed"),
        (lambda: [][1], b"crashed"),
        (lambda: open("/dev/null/absent"), b"model"),
        (lambda: time.sleep(1000), b"timeout"),
    ],
)
def test_whatever_ends_the_verdict_the_mail_passes(hurt, word, monkeypatch, capfd):
    monkeypatch.setattr(pass_through, "SECONDS", 1 if word == b"timeout" else 60)
    assert pass_through.classify(memoryview(MAIL), lambda: Stub(hurt))[0] == (
        b"error " + word if word else Stub(None).line(None)[:-1]
    )
    said = capfd.readouterr()
    assert said.out == "" and said.err.count("\n") <= 1 and "numbers" not in said.err
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)  # no child is left


def test_text_of_a_bug_is_not_that_of_the_mail(capfd):
    def raises():
        raise ValueError("a private word")

    assert pass_through.classify(memoryview(MAIL), lambda: Stub(raises))[0] == b"error crashed"
    assert "private" not in capfd.readouterr().err


def test_many_inherited_descriptors_are_no_matter():
    if resource.getrlimit(resource.RLIMIT_NOFILE)[1] < 1200:
        pytest.skip("ulimit -Hn is below 1200")

    def inherit():
        resource.setrlimit(resource.RLIMIT_NOFILE, (1200, 1200))
        for fd in range(3, 1100):
            os.dup2(2, fd)  # which is inherited, as what dup() makes is not

    done = through(MAIL, preexec_fn=inherit, close_fds=False)
    assert done.returncode == 0 and b"\nX-Spam-Score: " in done.stdout


def test_no_process_is_memory(monkeypatch):
    def no_fork():
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", no_fork)
    assert pass_through.classify(memoryview(MAIL), lambda: None)[0] == b"error memory"


@pytest.mark.full
def test_kill_at_any_moment_writes_all_or_nothing():
    """kill -9 of the process that holds the mail: no byte, or all of them."""
    n_none = 0
    for i in range(25):
        p = subprocess.Popen(
            [BIN / "classify", "--pass-through", "--no-cache"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        p.stdin.write(MAIL)
        p.stdin.close()
        time.sleep(0.006 * i)
        p.send_signal(signal.SIGKILL)
        out = p.stdout.read()
        p.wait()
        n_none += not out
        assert not out or headers.mark(out, b"") == headers.mark(MAIL, b"")
    assert n_none


# Reading and writing.


def test_failed_write_is_74(tmp_path):
    with open("/dev/full", "wb") as full:
        done = through(MAIL, stdout=full)
    assert (done.returncode, done.stderr) == (
        74,
        b"classify: standard output: No space left on device\n",
    )
    (tmp_path / "mail").write_bytes(MAIL)
    done = shell(
        "classify --pass-through --no-cache <mail >&-; echo $?; (classify --pass-through --no-cache"
        " <mail; echo $? >status) | true; cat status",
        tmp_path,
    )
    assert done.stdout == b"74\n74\n"
    with open(tmp_path / "out", "wb") as out:
        done = through(
            MAIL,
            stdout=out,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100)),
        )
    assert done.returncode == 74


def test_failed_read_writes_nothing(tmp_path):
    done = shell(
        "classify --pass-through --no-cache <&-; echo $?; classify --pass-through --no-cache <.;"
        " echo $?",
        tmp_path,
    )
    assert done.stdout == b"74\n65\n" and done.stderr.count(b"\n") == 2


def test_no_room_for_a_large_mail_is_not_0_and_writes_nothing(tmp_path):
    with open(tmp_path / "mail", "wb") as f:
        f.truncate(20 << 20)
    with open(tmp_path / "mail", "rb") as stdin:
        done = run(
            "classify",
            "--pass-through",
            "--no-cache",
            stdin=stdin,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20)),
        )
    assert done.returncode in (74, 75) and done.stdout == b"" and done.stderr.count(b"\n") == 1


def test_no_place_for_a_temporary_file_is_75(monkeypatch):
    def no_room(**kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tempfile, "TemporaryFile", no_room)
    with pytest.raises(Error, match="a temporary file: cannot write: No space left") as e:
        pass_through._temporary()
    assert e.value.code == 75


@pytest.mark.full
def test_pass_through_uses_the_learned_calibration(tmp_path):
    def score():
        return float(
            re.search(
                rb"X-Spam-Score: ([0-9.]+)",
                through(MAILS["spam-cards"], "--calibration", tmp_path / "c").stdout,
            )[1]
        )

    before = score()
    for name in MAILS:
        run("classify", "--calibration", tmp_path / "c", "--learn", "no", input=MAILS[name])
    assert score() < before
    (tmp_path / "c").write_bytes(b"damaged")
    assert score() == before


def test_usage():
    for argv in (
        ("x",),
        ("--json",),
        ("--jsonl",),
        ("--long",),
        ("--learn", "yes"),
        ("--listen", "s"),
        ("--mass",),
    ):
        done = through(MAIL, *argv)
        assert (done.returncode, done.stdout, done.stderr.count(b"\n")) == (64, b"", 1), argv
