"""mail-filter: it ends with 0 or 75 and no other way, with 0 only where sendmail took the whole mail, and leaves nothing behind.

The program is the real one ($SLUICE_MAIL_FILTER: another build of it). Where a verdict matters classify and the model in the
box give it; where only what the front does matters, shell scripts stand for classify and sendmail. The real Postfix is in
test_postfix.py and test_postfix_broken.py.
"""
import os
import re
import resource
import shlex
import shutil
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from conftest import BIN, ROOT, wait_for

from sluice import VERSION
from sluice.hook import marking

FILTER = str(Path(os.environ.get("SLUICE_MAIL_FILTER") or BIN / "mail-filter").resolve())
SANITIZED = "SLUICE_MAIL_FILTER" in os.environ
CLASSIFY = str(BIN / "classify")
LINE = b"yes 0.9931 0.9386 3f9a0c1b2d4e5f60"
MAIL = b"Received: x\nX-Spam-Status: No\nSubject: hi\n there\n\nbody\n.\nX-Spam-Flag: NO\nlast"
BARE = MAIL.replace(b"X-Spam-Status: No\n", b"")
MARKED = marking.mark(MAIL, marking.headers(LINE))
UNCHECKED = [f"error {word}" for word in ("timeout", "size", "memory", "crashed", "model", "empty", "attempts", "input", "worker")]
FORTUNE = {line: marking.mark(MAIL, marking.headers(line.encode())) for line in UNCHECKED}
LINES = [LINE, *(line.encode() for line in UNCHECKED)]


class Box:
    """A directory with stand-ins, what they recorded, and the program started with all of it."""

    def __init__(self, path):
        self.path = path
        for name in ("spool", "sent"):
            (path / name).mkdir()
        self.log = path / "log"
        self.classify = self.script("classify", f"cat >/dev/null; echo {LINE.decode()}")
        self.sendmail = self.script("sendmail", self.record())

    def record(self, then=""):
        """The lines of shell that keep what sendmail got: arguments, a mail, and only then its final name."""
        q = shlex.quote(str(self.path / "sent"))
        return f'for a; do printf "%s\\0" "$a"; done >{q}/$$.args; cat >{q}/$$.part && mv {q}/$$.part {q}/$$.mail\n{then}'

    def script(self, name, text):
        path = self.path / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
        return str(path)

    def argv(self, *options, sender="a@b.c", recipients=("d@e.f",)):
        return [FILTER, "--spool", self.path / "spool", "--classify", self.classify, "--sendmail", self.sendmail, "--log", self.log,
                *map(str, options), *(["-f", sender] if sender is not None else []), "--", *recipients]

    def run(self, *options, mail=MAIL, prefix=(), sender="a@b.c", recipients=("d@e.f",), timeout=60, **kwargs):
        if "stdin" not in kwargs:
            kwargs["input"] = mail
        done = subprocess.run([*prefix, *self.argv(*options, sender=sender, recipients=recipients)], capture_output=True, timeout=timeout, **kwargs)
        assert os.listdir(self.path / "spool") == []
        return done

    def sent(self):
        """[(arguments, mail)] that sendmail read to the end, which are forgotten."""
        found = []
        for mail in sorted((self.path / "sent").glob("*.mail")):
            found.append((mail.with_suffix(".args").read_bytes().decode("utf-8", "surrogateescape").split("\0")[:-1], mail.read_bytes()))
        for path in (self.path / "sent").iterdir():
            path.unlink(missing_ok=True)
        return found

    def mails(self):
        return [mail for _, mail in self.sent()]

    def lines(self):
        """The log, which is forgotten."""
        text = self.log.read_text("utf-8", "surrogateescape").splitlines() if self.log.exists() else []
        self.log.unlink(missing_ok=True)
        return text


@pytest.fixture
def box(tmp_path):
    return Box(tmp_path)


def refused(done):
    """Whether it ended as Postfix must see it: 75, one line that begins with 4.3.0, nothing else."""
    return done.returncode == 75 and done.stdout == b"" and re.fullmatch(rb"4\.3\.0 mail-filter: [ -~]+\n", done.stderr)


# ---- the verdict, by the model in the box ----------------------------------------------------


def test_verdicts_are_those_of_classify(box):
    for path in sorted((ROOT / "tests/mails").glob("*.eml")):
        mail = path.read_bytes()
        line = subprocess.run([CLASSIFY, "--long", "--no-calibration"], input=mail, capture_output=True).stdout.rstrip(b"\n")
        done = box.run("--classify", CLASSIFY, "--queue-id", "4Fx1", mail=mail)
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
        assert box.sent() == [(["-G", "-i", "-f", "a@b.c", "--", "d@e.f"], marking.mark(mail, marking.headers(line)))]
        answer, score, required, model = line.decode().split()
        (logged,) = box.lines()
        assert re.fullmatch(rf"\w{{3}} [ \d]\d \d\d:\d\d:\d\d mail-filter\[\d+\]: 4Fx1: answer={answer} score={score} required={required} "
                            rf"model={model} reason=- by=process worker=- process=[012] ms=\d+ bytes={len(mail)} begun=0 refused=0 "
                            "deliver=headers sent", logged)


def test_limits_hold_the_real_classify(box):
    (box.path / "cut.gguf").write_bytes((ROOT / "lib/sluice/data/spam.gguf").read_bytes()[:100_000])
    (box.path / "bad.yaml").write_text("answers: 1\n")
    for options, word in ((("--memory", 16), "memory|crashed"), (("-m", "/nonexistent"), "model"), (("-q", "no-such"), "model"),
                          (("-m", box.path / "cut.gguf"), "model"), (("-q", box.path / "bad.yaml"), "model")):
        assert box.run("--classify", CLASSIFY, *options).returncode == 0
        (mail,) = box.mails()
        assert mail in [FORTUNE[f"error {w}"] for w in word.split("|")], mail[:200]


def test_a_calibration_is_used_where_it_is_named(box):
    mail = (ROOT / "tests/mails/spam-investment.eml").read_bytes()
    learnt = box.path / "learnt"
    done = subprocess.run([CLASSIFY, "--learn", "no", "--calibration", learnt], input=mail, capture_output=True)
    assert done.returncode == 0, done.stderr
    line = subprocess.run([CLASSIFY, "--long", "--calibration", learnt], input=mail, capture_output=True).stdout.rstrip(b"\n")
    assert box.run("--classify", CLASSIFY, "--calibration", learnt, mail=mail).returncode == 0
    assert box.run("--classify", CLASSIFY, mail=mail).returncode == 0
    (_, one), (_, other) = sorted(box.sent(), key=lambda sent: sent[1] != marking.mark(mail, marking.headers(line)))
    assert one == marking.mark(mail, marking.headers(line)) != other


def worker(path):
    """`classify --listen`, when it listens."""
    p = subprocess.Popen([CLASSIFY, "--listen", path, "--workers", "1"], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        wait_for(lambda: p.poll() is not None or listens(path), "worker")
    except BaseException:
        os.killpg(p.pid, signal.SIGKILL)
        raise
    return p


def listens(path):
    with socket.socket(socket.AF_UNIX) as s:
        return s.connect_ex(str(path)) == 0


def test_a_worker_answers_as_a_process_does(box):
    path = box.path / "socket"
    p = worker(path)
    try:
        for name in ("ham-mutt.eml", "spam-cards.eml"):
            mail = (ROOT / "tests/mails" / name).read_bytes()
            assert box.run("--socket", path, mail=mail).returncode == 0
            assert box.run("--classify", CLASSIFY, mail=mail).returncode == 0
            assert [re.search(r"by=(\w+) worker=([-\w]+)", line).groups() for line in box.lines()] == [("worker", "answered"), ("process", "-")]
            one, other = box.mails()
            assert one == other and b"X-Spam-Score" in one
        os.killpg(p.pid, signal.SIGSTOP)  # it hangs: half of the deadline is its, then there is a process
        assert box.run("--socket", path, "--deadline", 6).returncode == 0
        assert box.mails() == [MARKED] and "by=process worker=late" in box.lines()[0]
        assert box.run("--socket", path, "--deadline", 1, "--worker-only").returncode == 0
        assert box.mails() == [FORTUNE["error timeout"]]
    finally:
        os.killpg(p.pid, signal.SIGKILL)
        p.wait()
    box.lines()
    assert box.run("--socket", path).returncode == 0  # nobody listens, or there is not even a socket
    path.unlink(missing_ok=True)
    assert box.run("--socket", path).returncode == 0
    assert box.mails() == [MARKED] * 2
    one, other = box.lines()
    assert re.search("by=process worker=(absent|died)", one) and "by=process worker=absent" in other  # who took a connection may still be dying


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
WORKERS = [(GOOD, "answered", None), (b"error timeout\n", "answered", "timeout"), (b"error size\n", "answered", "size"),
           (b"error worker\n", "answered", "own"), (b"", "died", "own"), (GOOD[:-1], "died", "own"), (GOOD[:5], "died", "own"), (b"hello\n", "babbled", "own"),
           (b"\n", "babbled", "own"), (GOOD + b"x", "babbled", "own"), (GOOD + GOOD, "babbled", "own"), (b"x" * 100000, "babbled", "own"),
           (b"\0" * 30 + b"\n", "babbled", "own"), (b"\xff\n", "babbled", "own"), (GOOD.replace(b"0.0001", b"0.00\r1"), "babbled", "own")]


@pytest.mark.parametrize("read", [True, False])
def test_whatever_a_worker_says(box, read):
    big = b"Subject: x\n\n" + b"text\n" * 400_000  # more than the socket holds
    for n, (answer, word, result) in enumerate(WORKERS):
        path = box.path / f"s{n}"
        with serve(path, answer, read):
            for mail in (MAIL, big):
                assert box.run("--socket", path, mail=mail).returncode == 0
                (line,), (sent,) = box.lines(), box.mails()
                said = LINE if result == "own" else GOOD[:-1] if result is None else f"error {result}".encode()
                if f"worker={word}" not in line and not read:  # it closed with the mail unread, and what it said was lost with it
                    said, word_here = LINE, "died"
                    assert f"worker={word_here}" in line, (answer, line)
                else:
                    assert f"worker={word}" in line, (answer, line)
                assert sent == marking.mark(mail, marking.headers(said)), (answer, sent[:200])
                assert box.run("--socket", path, "--worker-only", mail=mail).returncode == 0
                (sent,) = box.mails()
                box.lines()
                assert sent == marking.mark(mail, marking.headers(said)) or b"; reason=" in sent


def test_a_full_queue_of_connections_is_no_worker(box):
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


# ---- what classify may do ---------------------------------------------------------------------

BAD_CLASSIFY = [  # a script, the reason
    ("exit 0", "crashed"), ("exit 1", "crashed"), ("exit 2", "crashed"), ("exit 64", "model"), ("exit 65", "model"), ("exit 66", "model"), ("exit 69", "model"),
    ("exit 70", "crashed"), ("exit 74", "model"), ("exit 75", "memory"), ("exit 255", "crashed"), ("kill -9 $$", "crashed"), ("kill -SEGV $$", "crashed"),
    ("kill -XCPU $$", "timeout"), ("echo error input; exit 65", "input"), ("echo error size; exit 1", "size"), ("echo error nonsense; exit 65", "model"),
    (f"echo {LINE.decode()}; exit 1", "crashed"), (f"echo {LINE.decode()}; exit 70", "crashed"), (f"echo {LINE.decode()}; kill -9 $$", "crashed"),
    (f"printf '{LINE.decode()}'", "crashed"), (f"echo {LINE.decode()}; echo", "crashed"), (f"echo; echo {LINE.decode()}", "crashed"),
    (f"echo ' {LINE.decode()}'", "crashed"), ("echo yes", "crashed"), ("echo 'yes 0.9'", "crashed"), (f"printf '{LINE.decode()}\\r\\n'", "crashed"),
    ("echo 'yes 0.9931 0.9386 3f9a0c1b2d4e5f60\nX-Evil: 1'", "crashed"), ("yes | head -c 1000000", "crashed"), ("head -c 300 /dev/zero", "crashed"),
    ("exec >&-", "crashed"), ("printf '\\377'; exit 1", "crashed"), ("ulimit -c; exit 3", "crashed")]


def test_whatever_classify_does_the_mail_passes(box):
    for script, word in BAD_CLASSIFY:
        box.script("classify", script)
        done = box.run()
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b""), script
        assert box.mails() == [FORTUNE[f"error {word}"]], script
        assert f"reason={word} by=process" in box.lines()[0]
    for path in ("/nonexistent", "/", "/etc/passwd", box.path):
        assert box.run("--classify", path).returncode == 0
        assert box.mails() == [FORTUNE["error crashed"]] and "process=errno" in box.lines()[0]
    for answer, status in (("no", 1), ("unsure", 2)):
        line = LINE.decode().replace("yes", answer)
        box.script("classify", f"echo {line}; exit {status}")
        assert box.run().returncode == 0 and box.mails() == [marking.mark(MAIL, marking.headers(line.encode()))]


def alive(path):
    """Whether the process whose number a script wrote to `path` still runs."""
    try:
        state = Path(f"/proc/{int(path.read_text())}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError, ValueError):  # or it was killed before it wrote it
        return False
    return state not in "ZX"


def gone(*paths):
    return wait_for(lambda: not any(map(alive, paths)), "end of a child")


HANG = "echo $$ >{0}/one; sleep 1000 & echo $! >{0}/two; {1}"


@pytest.mark.parametrize("how", ["wait", "trap '' TERM HUP INT; while :; do wait; done", "echo yes; exec >&-; wait", "kill -STOP $$", "while :; do :; done"])
def test_a_classify_that_hangs_is_killed_with_its_children(box, how):
    box.script("classify", HANG.format(box.path, how))
    assert box.run("--deadline", 1).returncode == 0
    assert box.mails() == [FORTUNE["error timeout"]] and gone(box.path / "one", box.path / "two")


def test_children_that_outlive_classify_are_killed(box):
    box.script("classify", HANG.format(box.path, f"echo {LINE.decode()}"))
    assert box.run().returncode == 0 and box.mails() == [MARKED] and gone(box.path / "two")


def test_children_get_limits_and_little_of_the_environment(box):
    box.script("classify", f"env >{box.path}/env1; ulimit -a >{box.path}/limits; ls -l /proc/self/fd >{box.path}/fds; (echo >&0) 2>/dev/null && exit 3; echo {LINE.decode()}")
    box.script("sendmail", f"env >{box.path}/env2\n" + box.record())
    extra = os.open("/dev/null", os.O_RDONLY)
    done = box.run("--memory", 100, "--deadline", 7, pass_fds=[extra], env={"LD_PRELOAD": "", "IFS": "x", "PYTHONPATH": "/evil", "SECRET": "1", "TZ": "UTC",
                                                                          "LANG": "C", "MAIL_CONFIG": "/etc/x", "PATH": os.environ["PATH"]})
    os.close(extra)
    assert done.returncode == 0 and box.mails() == [MARKED]
    names = [{line.split("=")[0] for line in (box.path / f).read_text().splitlines()} - {"_", "PWD", "SHLVL", "OLDPWD"} for f in ("env1", "env2")]
    assert names == [{"PATH"}, {"PATH", "TZ", "LANG", "MAIL_CONFIG"}]
    text = (box.path / "limits").read_text()  # as dash prints it, or bash
    assert re.search(r"(vmemory|virtual memory).* 102400$", text, re.M) and re.search(r"time.* [789]$", text, re.M), text
    assert re.search(r"core.* 0$", text, re.M)
    assert len(re.findall(r" \d+ -> ", (box.path / "fds").read_text())) <= 5  # 0, 1, 2 and those of sh and ls


# ---- what sendmail may do ------------------------------------------------------------------------


def test_every_exit_status_and_signal_of_sendmail(box):
    for code in range(256):
        box.script("sendmail", f"cat >/dev/null; exit {code}")
        done = box.run()
        assert done.returncode == 0 if code == 0 else refused(done), code
    box.lines()
    for number in sorted(signal.valid_signals() - {signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU, signal.SIGCHLD, signal.SIGCONT,
                                                   signal.SIGURG, signal.SIGWINCH}):
        box.script("sendmail", f"cat >/dev/null; kill -{int(number)} $$; exit 0")
        assert refused(box.run()), number
        assert f"signal={int(number)} " in box.lines()[0]


def test_a_sendmail_that_cannot_do_it(box):
    for path in ("/nonexistent", "/", "/etc/passwd", box.path / "spool"):
        assert refused(box.run("--sendmail", path))
        assert re.search(r"sendmail status=-?\d+ signal=0 late=0 errno=[1-9]", box.lines()[0])
    box.script("sendmail", HANG.format(box.path, "wait"))
    assert refused(box.run("--send-limit", 1)) and gone(box.path / "one", box.path / "two")
    assert "late=1" in box.lines()[0]
    box.script("sendmail", "exit 75")  # without reading
    assert refused(box.run(mail=MAIL * 100_000))


def test_what_sendmail_prints_goes_to_the_log_clean_and_cut(box):
    box.script("sendmail", box.record("printf 'a\\033[31m\\n\\0\\377b%s' '%s%n'; head -c 3000000 /dev/zero | tr '\\0' x >&2; exit 1"))
    done = box.run("--queue-id", "A1")
    assert refused(done) and len(done.stderr) < 100
    said, mail = box.lines()
    assert "A1: sendmail status=1 signal=0 late=0 errno=0 said=a?[31m ??b%s%nxxxx" in said and len(said) < 600 and mail.endswith("deferred")
    box.sent()
    box.script("sendmail", box.record("echo queued as 12"))
    done = box.run()
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"") and "said=queued as 12" in box.lines()[0]


SENDERS = ["", "<>", "-f", "--", "-x@y", "-", '"a b"@c', '"a\\"b"@c', "\u00fcser@\u00e9xample.org", "a@b\nc", "a;rm -rf /@b", "$(id)@b", "a" * 2000, "\udcff@x"]


def test_the_envelope_reaches_sendmail_as_it_is(box):
    for sender in SENDERS:
        assert box.run(sender=sender, recipients=SENDERS).returncode == 0
        assert box.sent() == [(["-G", "-i", "-f", sender, "--", *SENDERS], MARKED)], sender
    many = [f"r{n}@example.org" for n in range(1000)]
    assert box.run(recipients=many).returncode == 0 and box.sent()[0][0][5:] == many


# ---- the mail --------------------------------------------------------------------------------------

MAILS = [b"\n", b"\0", b"text", b"Subject: x", b"Subject: x\r\n\r\nbody\r\n", b"From a b\nSubject: x\n\n.\n..\n", b"S: \0\xff\r\r\r\n\n\0\0\r.\r\n.\n", b"\xef\xbb\xbfS: x\n\n",
         b"S: x\n\n" + b"a" * 3_000_000, b"S: " + b"h" * 10_000_000 + b"\n\nb", b"S: x\nX-Spam-A: b\n" * 100_000 + b"\nb", b" \n" * 1000, b"S: x\n" + b" f\n" * 100_000 + b"\nb"]


def test_odd_mails_keep_their_bytes(box):
    for mail in MAILS:
        assert box.run("--max-size", 1 << 30, mail=mail).returncode == 0
        (sent,) = box.mails()
        assert sent == marking.mark(mail, marking.headers(LINE)), mail[:60]
    assert box.run(mail=b"").returncode == 0 and box.mails() == [marking.headers(b"error empty") + b"\n"]


@pytest.mark.parametrize("make", [os.pipe, lambda: [s.detach() for s in socket.socketpair()]], ids=["pipe", "socket"])
def test_a_mail_is_not_sent_where_nobody_waits_for_the_result(box, make):
    """pipe(8) was stopped while the mail was judged: it is in the queue, and comes again."""
    for deliver in ("headers", "unchanged", "nothing"):
        ours, its = make()
        box.script("classify", f"cat >/dev/null; touch {box.path}/began; while [ ! -e {box.path}/go ]; do sleep 0.02; done; echo {LINE.decode()}")
        p = subprocess.Popen(box.argv("--deliver", deliver, "--queue-id", "4Fx1", "--state", box.path / "state"), stdin=subprocess.PIPE, stdout=its, stderr=its)
        os.close(its)
        p.stdin.write(MAIL)
        p.stdin.close()
        wait_for(lambda: (box.path / "began").exists() or p.poll() is not None, "classify that is at work")
        os.close(ours)
        (box.path / "go").touch()
        assert p.wait(60) == (0 if deliver == "nothing" else 75)
        assert box.mails() == [] and ("nobody waits" in "".join(box.lines())) == (deliver != "nothing")
        assert [name for name in os.listdir(box.path / "state") if name[0] != "."] == []  # it came back from judging: no attempt is used
        (box.path / "began").unlink()
        (box.path / "go").unlink()
    box.script("classify", f"cat >/dev/null; echo {LINE.decode()}")
    ours, its = make()
    with open(os.devnull, "w") as nowhere:  # to what is read, and to what is no pipe
        for out in (its, nowhere):
            assert subprocess.run(box.argv(), input=MAIL, stdout=out).returncode == 0
    assert box.mails() == [MARKED] * 2
    os.close(ours), os.close(its)


def test_modes_of_delivery(box):
    assert box.run("--deliver", "unchanged").returncode == 0 and box.mails() == [MAIL]
    done = box.run("--deliver", "nothing", sender=None, recipients=())
    assert (done.returncode, done.stdout, done.stderr, box.mails()) == (0, b"", b"", [])
    done = box.run("--deliver", "stdout", sender=None, recipients=())
    assert (done.returncode, done.stdout, done.stderr, box.mails()) == (0, MARKED, b"", [])
    assert [re.search("answer=yes .* deliver=(.*)", line)[1] for line in box.lines()] == ["unchanged sent", "nothing done", "stdout sent"]
    with open("/dev/full", "w") as full:
        done = subprocess.run(box.argv("--deliver", "stdout"), input=MAIL, stdout=full, stderr=subprocess.PIPE)
    assert done.returncode == 75 and done.stderr.startswith(b"4.3.0 ")
    p = subprocess.Popen(box.argv("--deliver", "stdout"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    p.stdout.close()
    p.stdin.write(MAIL * 10_000)
    p.stdin.close()
    assert p.wait(60) == 75 and p.stderr.read().startswith(b"4.3.0 ")
    p = subprocess.Popen(box.argv("--deliver", "stdout", "--send-limit", 1), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    p.stdin.write(MAIL * 10_000)  # and nobody reads
    p.stdin.close()
    assert p.wait(60) == 75
    p.stdout.close()


def test_size_earlier_status_and_policy(box):
    n = len(MAIL)
    for limit, line in ((n, LINE), (n - 1, b"error size"), (0, b"error size")):
        assert box.run("--max-size", limit).returncode == 0 and box.mails() == [marking.mark(MAIL, marking.headers(line))]
    assert box.run("--trust-earlier").returncode == 0 and box.mails() == [MAIL]
    other = MAIL.replace(b"-Status", b"-Stattus")
    assert box.run("--trust-earlier", mail=other).returncode == 0 and box.mails() == [marking.mark(other, marking.headers(LINE))]
    box.script("classify", "exit 70")
    assert refused(box.run("--on-failure", "defer")) and box.mails() == []
    assert box.run("--on-failure", "defer", "--max-size", 1).returncode == 0 and box.mails() == [FORTUNE["error size"]]
    assert box.run("--on-failure", "defer", mail=b"").returncode == 0 and box.run("--on-failure", "pass").returncode == 0


# ---- attempts ------------------------------------------------------------------------------------------


def killed_while_judging(box, *options, **envelope):
    """The front is killed when classify runs."""
    box.script("classify", f"echo $$ >{box.path}/one; exec sleep 1000")
    p = subprocess.Popen(box.argv(*options, **envelope), stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    p.stdin.write(MAIL)
    p.stdin.close()
    wait_for(lambda: alive(box.path / "one") or p.poll() is not None, "classify that is at work")
    p.kill()
    assert p.wait() == -signal.SIGKILL, p.stderr.read()
    p.stderr.close()
    assert gone(box.path / "one") and os.listdir(box.path / "spool") == []
    (box.path / "one").unlink()


def test_the_third_attempt_passes_unchecked(box):
    options = ("--queue-id", "4Fx1zZ", "--state", box.path / "state")
    for attempt in range(2):
        killed_while_judging(box, *options)
        (mark,) = (box.path / "state").glob("4Fx1zZ-*")
        assert stat.S_IMODE(mark.stat().st_mode) == 0o600
    killed_while_judging(box, *options, recipients=["other@e.f"])  # another delivery of that mail counts for itself
    box.script("classify", f"touch {box.path}/ran")
    assert box.run(*options).returncode == 0
    assert box.mails() == [FORTUNE["error attempts"]] and not (box.path / "ran").exists()
    assert len(list((box.path / "state").glob("4Fx1zZ-*"))) == 1  # the mark of the other; ours went with the delivery
    box.script("classify", f"echo {LINE.decode()}")
    assert box.run(*options).returncode == 0 and box.mails() == [MARKED]


def test_deferring_for_want_of_a_verdict_ends_as_well(box):
    box.script("classify", "exit 70")
    options = ("--on-failure", "defer", "--queue-id", "A1", "--state", box.path / "state")
    assert refused(box.run(*options)) and refused(box.run(*options)) and box.run(*options).returncode == 0
    assert box.mails() == [FORTUNE["error attempts"]]


def test_a_broken_sendmail_uses_no_attempts(box):
    options = ("--queue-id", "A1", "--state", box.path / "state")
    for script in ("exit 75", "exit 69", "kill -9 $$", "exit 69", "exit 75", "exit 69"):
        box.script("sendmail", script)
        assert refused(box.run(*options))
    box.sendmail = box.script("sendmail", box.record())
    assert box.run(*options).returncode == 0 and box.mails() == [MARKED]
    assert not list((box.path / "state").glob("A1-*"))


def test_a_mail_that_is_too_large_with_our_headers_goes_without(box):
    options = ("--queue-id", "A1", "--state", box.path / "state")
    box.script("sendmail", 'd=$(mktemp); cat >$d; [ $(wc -c <$d) -le %d ] || { rm $d; exit 69; }; exec <$d; rm $d\n%s' % (len(MAIL), box.record()))
    for _ in range(2):
        assert refused(box.run(*options)) and box.mails() == []
    assert box.run(*options).returncode == 0 and box.mails() == [BARE]
    assert box.lines()[-1].endswith("sent-bare")
    for _ in range(4):  # without counting, it waits
        assert refused(box.run())


def test_state_that_cannot_be_kept_stops_no_mail(box):
    (box.path / "file").write_text("x")
    for state in (box.path / "file", box.path / "no/such", "/proc", "/dev/null", "/nonexistent/x"):
        assert box.run("--queue-id", "A1", "--state", state).returncode == 0 and box.mails() == [MARKED]
    state = box.path / "state"
    for queue_id in ("../x", "a/b", "", "a b", "A\n", "x" * 100, "."):
        assert box.run("--queue-id", queue_id, "--state", state).returncode == 0 and box.mails() == [MARKED]
    assert not (box.path / "x").exists() and (not state.exists() or [p.name for p in state.iterdir() if p.name != ".swept"] == [])
    killed_while_judging(box, "--queue-id", "A1", "--state", state)
    (mark,) = state.glob("A1-*")
    box.script("classify", f"echo {LINE.decode()}")
    for content in (b"", b"9", b"\xff\xff", b"-1", b"no"):
        mark.write_bytes(content)
        assert box.run("--queue-id", "A1", "--state", state).returncode == 0 and box.mails() == [MARKED]
    victim = box.path / "victim"
    victim.write_text("99")
    for make in (lambda: mark.symlink_to(victim), lambda: mark.mkdir(), lambda: os.mkfifo(mark)):
        make()
        assert box.run("--queue-id", "A1", "--state", state, timeout=60).returncode == 0 and box.mails() == [MARKED]
        assert victim.read_text() == "99"
        if mark.is_dir() and not mark.is_symlink():
            mark.rmdir()
        mark.unlink(missing_ok=True)


def test_marks_that_others_could_have_written_count_for_nothing(box):
    state = box.path / "state"
    killed_while_judging(box, "--queue-id", "A1", "--state", state)
    box.script("classify", f"echo {LINE.decode()}")
    (mark,) = state.glob("A1-*")
    changes = [(lambda: state.chmod(0o777), False), (lambda: state.chmod(0o1777), False), (lambda: state.chmod(0o700), True)]
    if os.geteuid() == 0:
        changes.insert(0, (lambda: os.chown(state, 12345, 12345), False))
        changes.insert(1, (lambda: os.chown(state, 0, 0), True))
    for change, counts in changes:
        mark.write_text("99")
        change()
        assert box.run("--queue-id", "A1", "--state", state).returncode == 0
        assert box.mails() == [FORTUNE["error attempts"] if counts else MARKED] and ("no attempts are counted" in "".join(box.lines())) != counts


def test_old_marks_are_swept(box):
    state = box.path / "state"
    state.mkdir()
    for name, days in (("OLD-1", 20), ("OLD-2", 15), ("NEW-1", 13), (".other", 99)):
        (state / name).write_text("10")
        os.utime(state / name, (time.time() - days * 86400,) * 2)
    assert box.run("--queue-id", "A1", "--state", state).returncode == 0
    assert sorted(p.name for p in state.iterdir()) == [".other", ".swept", "NEW-1"]
    (state / "OLD-3").write_text("10")
    os.utime(state / "OLD-3", (1, 1))
    assert box.run("--queue-id", "A1", "--state", state).returncode == 0 and (state / "OLD-3").exists()  # not within the hour
    os.utime(state / ".swept", (time.time() - 3700,) * 2)
    assert box.run("--queue-id", "A1", "--state", state).returncode == 0 and not (state / "OLD-3").exists()


# ---- what is around it --------------------------------------------------------------------------------


BAD_OPTIONS = [["--nonsense"], ["-z"], ["--deliver", "x"], ["--deliver"], ["--deadline", "0"], ["--deadline", "x"], ["--deadline", "-1"], ["--deadline", "1e3"],
               ["--deadline", "99999999999999999999999"], ["--max-size", ""], ["--max-size", "1k"], ["--memory", "1"], ["-j", "0"], ["-j", "x"], ["--on-failure", "bounce"],
               ["--worker-only"], ["--spool", ""], ["--spool", "/nonexistent"], ["--spool", "/etc/passwd"], ["--spool", "x" * 5000], ["--spool", "/proc"],
               ["--sendmail", ""], ["--send-limit", "3601"], ["--read-limit", ""], ["--sen", "x"], ["--\n\x1b[31m"], ["-\xff"]]


def test_bad_options_defer(box):
    for options in BAD_OPTIONS:
        assert refused(box.run(*options)), options
    for argv in ([], ["-f", "a"], ["-f", "a", "--"], ["x"], ["--", "x"], ["-f", "a", "--deliver", "unchanged"], ["--"], ["-f"]):
        assert refused(subprocess.run([FILTER, *argv], input=MAIL, capture_output=True)), argv
    assert box.mails() == []


def test_help_and_version_end_with_0():
    for option in ("--help", "-h", "-V", "--version"):
        done = subprocess.run([FILTER, option], capture_output=True, stdin=subprocess.DEVNULL)
        assert done.returncode == 0 and done.stdout and not done.stderr
    assert done.stdout.decode() == f"mail-filter (sluice) {VERSION}\n"
    text = subprocess.run([FILTER, "-h"], capture_output=True).stdout.decode()
    assert max(map(len, text.splitlines())) <= 118 and len(text.splitlines()) < 90
    source = (ROOT / "csrc/hook/options.c").read_text()
    assert all(f"--{name}" in text for name in re.findall(r'\{ "([a-z-]+)", [01], 0,', source))


def test_what_is_inherited_does_not_matter(box):
    def inherit():
        for number in (signal.SIGCHLD, signal.SIGPIPE, signal.SIGALRM, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_SETMASK, signal.valid_signals())
        os.umask(0)
        signal.setitimer(signal.ITIMER_REAL, 0)
    box.script("classify", f"echo $$ >{box.path}/one; exec sleep 1000")
    assert box.run("--deadline", 1, preexec_fn=inherit).returncode == 0 and box.mails() == [FORTUNE["error timeout"]]
    box.script("classify", f"cat >/dev/null; yes | head -1 >/dev/null; echo {LINE.decode()}")
    assert box.run(preexec_fn=inherit).returncode == 0 and box.mails() == [MARKED]


@pytest.mark.parametrize("closed", [(0,), (1,), (2,), (0, 1), (0, 2), (1, 2), (0, 1, 2)])
def test_closed_standard_files(box, closed):
    command = " ".join(map(shlex.quote, map(str, box.argv()))) + "".join(f" {fd}{'<' if fd == 0 else '>'}&-" for fd in closed)
    done = subprocess.run(["sh", "-c", command], input=MAIL, capture_output=True)
    assert done.returncode == (75 if 0 in closed else 0)
    assert box.mails() == ([] if 0 in closed else [MARKED])


def test_a_stdin_that_cannot_be_read_to_its_end(box):
    directory = os.open("/", os.O_RDONLY)
    assert refused(box.run(stdin=directory))
    os.close(directory)
    with open("/dev/zero") as endless:
        assert refused(box.run("--spool-limit", 1_000_000, stdin=endless))
    r, w = os.pipe()
    os.write(w, MAIL)
    assert refused(box.run("--read-limit", 1, stdin=r))
    os.close(r)
    os.close(w)
    n = len(MAIL)
    assert box.run("--spool-limit", n).returncode == 0 and refused(box.run("--spool-limit", n - 1))
    assert box.mails() == [MARKED]
    assert refused(box.run(preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (n - 1, n - 1))))  # SIGXFSZ, were it not ignored
    assert refused(box.run(preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (n + 1, n + 1))))  # room for it, not for it with headers
    assert box.mails() == []


def test_a_full_disk_defers(box):
    if subprocess.run(["unshare", "-rm", "true"], capture_output=True).returncode:
        pytest.skip("unshare -rm is not permitted: no small file system")
    spool = box.path / "spool"
    mail = MAIL + b"x" * 20_000
    for size, status in (("16k", 75), ("24k", 75), ("128k", 0)):  # for neither, for the mail alone, for both
        script = f"mount -t tmpfs -o size={size} t {shlex.quote(str(spool))} && exec " + " ".join(map(shlex.quote, map(str, box.argv())))
        done = subprocess.run(["unshare", "-rm", "sh", "-c", script], input=mail, capture_output=True)
        assert done.returncode == 0 if status == 0 else refused(done) and b"No space" in done.stderr, (size, done)
    assert [len(m) > 20_000 for m in box.mails()] == [True]


def test_few_descriptors_and_little_memory(box):
    """Whatever there is too little of: 0 with a whole mail, marked or unchecked, or 75."""
    possible = {MARKED, *FORTUNE.values()}
    statuses = set()
    limits = [f"ulimit -n {n}" for n in range(3, 14)]
    if not SANITIZED:  # its shadow is larger than any limit
        limits += [f"ulimit -v {n}" for n in range(1000, 3600, 100)]
    for limit in limits:
        if subprocess.run(["sh", "-c", f"{limit}; exec {FILTER} -V"], capture_output=True).returncode:
            continue  # it cannot even be started
        done = subprocess.run(["sh", "-c", f"{limit}; exec " + " ".join(map(shlex.quote, map(str, box.argv())))], input=MAIL, capture_output=True)
        sent = box.mails()
        assert set(sent) <= possible and (done.returncode == 75 or done.returncode < 0 or (done.returncode == 0 and len(sent) == 1)), (limit, done)
        statuses.add(done.returncode)
        box.lines()
    assert {0, 75} <= statuses


def test_the_log_has_nothing_of_the_mail(box):
    secret = b"From: secret\nSubject: secret\nMessage-Id: <secret>\n\nsecret\n"
    box.script("classify", "cat; cat >&2; exit 70")
    assert box.run(mail=secret, sender="secret@x", recipients=["secret@y"]).returncode == 0
    box.script("sendmail", "exit 1")
    assert refused(box.run(mail=secret, sender="secret@x", recipients=["secret@y"]))
    assert len(text := box.lines()) == 3 and "secret" not in "".join(text)
    box.sent()
    box.log = "-"
    done = box.run()
    assert re.fullmatch(rb"4\.3\.0 mail-filter: .*\n(\w{3} [ \d]\d .*\n){2}", done.stderr) and done.returncode == 75
    for log in ("/nonexistent/x", "/", "/dev/full"):
        box.log, box.sendmail = log, box.script("sendmail", box.record())
        assert box.run().returncode == 0 and len(box.mails()) == 1


# ---- faults in each system call ---------------------------------------------------------------------


def calls_of(box, options, prefix):
    """[(name, how many)] of the system calls that the front itself makes; arch_prctl, by which libc starts, fails on no machine."""
    trace = box.path / "trace"
    assert box.run(*options, prefix=[*prefix, "-o", trace]).returncode == 0
    box.sent()
    names = re.findall(r"^(\w+)\(", trace.read_text(), re.M)
    return sorted((name, names.count(name)) for name in set(names) - {"execve", "exit_group", "restart_syscall", "arch_prctl"})


@pytest.fixture
def strace():
    if not shutil.which("strace"):
        pytest.skip("strace is not there: faults of system calls are not injected")
    if SANITIZED:
        pytest.skip("a sanitized program makes system calls of its own")
    if subprocess.run(["strace", "-o", "/dev/null", "true"], capture_output=True).returncode:
        pytest.skip("ptrace is not permitted: faults of system calls are not injected")
    return ["strace", "-e", "signal=none"]


ERRORS = {"write": ("ENOSPC", "EIO"), "openat": ("EMFILE", "ENOSPC"), "open": ("EMFILE",), "fork": ("EAGAIN",), "clone": ("EAGAIN",), "clone3": ("EAGAIN",),
          "mmap": ("ENOMEM",), "brk": ("ENOMEM",), "read": ("EIO",), "pipe2": ("EMFILE",), "close": ("EIO",)}


def test_the_last_backstop_is_set_before_anything_else(box, strace):
    trace = box.path / "trace"
    assert box.run("--deadline", 5, "--read-limit", 6, "--send-limit", 7, prefix=[*strace, "-o", trace]).returncode == 0
    lines = trace.read_text().splitlines()
    alarms = [n for n, line in enumerate(lines) if line.startswith("alarm(")]
    opened = [n for n, line in enumerate(lines) if line.startswith("openat(")]
    assert [lines[n].split(")")[0] for n in alarms] == ["alarm(60", "alarm(55"] and alarms[1] < opened[0]
    assert [line for line in lines if "SIGALRM" in line][0].startswith("rt_sigaction(SIGALRM, {sa_handler=SIG_DFL")


def mail_of(run):
    """A mail that no other run has: which one was lost, or comes late, is told by it."""
    return MAIL.replace(b"Subject: hi", b"Subject: " + run.encode())


def test_a_fault_in_any_system_call_loses_nothing(box, strace):
    """The n-th call of each kind fails: 0 with exactly one whole mail, or 75, or a signal; nothing stays in the spool."""
    options = ("--queue-id", "A1", "--state", box.path / "state")
    box.run(*options)
    box.sent()
    statuses, runs = {}, {}  # what may become of the mail of each run: its name
    for name, n in calls_of(box, options, strace):
        for error in ERRORS.get(name, ("EINVAL",)):
            for nth in range(1, min(n, 12) + 1):
                shutil.rmtree(box.path / "state", ignore_errors=True)
                run = f"{name} {error} {nth}"
                mail = mail_of(run)
                runs.update((marking.mark(mail, marking.headers(line)), run) for line in LINES)
                done = box.run(*options, mail=mail, prefix=[*strace, "-o", "/dev/null", "-e", f"inject={name}:error={error}:when={nth}"])
                sent = [runs.get(data, data) for data in box.mails()]
                statuses.setdefault(done.returncode, []).append(run)
                assert done.returncode in (0, 75) or done.returncode < 0, (run, done)
                assert set(sent) <= set(runs.values()) and sent.count(run) <= 1 and (run in sent or done.returncode), (run, done, sent)
                if done.returncode == 75:
                    assert not done.stderr or done.stderr.startswith(b"4.3.0 "), (run, done)
    assert len(statuses[0]) > 10 and len(statuses[75]) > 10, {k: len(v) for k, v in statuses.items()}


def test_kill_at_any_system_call_loses_nothing(box, strace):
    """SIGKILL at each system call: a signal's death, by which Postfix defers; nothing stays but a mark, no child runs on."""
    options = ("--queue-id", "A1", "--state", box.path / "state")
    box.script("sendmail", f"echo $$ >{box.path}/two\n" + box.record())
    box.run(*options)
    box.sent()
    n_sent, runs = 0, {}  # the mail of each run, marked: its name
    for name, n in calls_of(box, options, strace):
        for nth in range(1, min(n, 12) + 1):
            shutil.rmtree(box.path / "state", ignore_errors=True)
            run = f"{name} {nth}"
            mail = mail_of(run)
            runs[marking.mark(mail, marking.headers(LINE))] = run
            done = box.run(*options, mail=mail, prefix=[*strace, "-o", "/dev/null", "-e", f"inject={name}:signal=KILL:when={nth}"])
            assert done.returncode in (-signal.SIGKILL, 0), (run, done)  # 0: that call was not made this time
            sent = [runs.get(data, data) for data in box.mails()]  # one of a run that was killed may come later
            assert set(sent) <= set(runs.values()) and sent.count(run) <= 1 and (run in sent or done.returncode), (run, done.returncode, sent)
            n_sent += len(sent) - (done.returncode == 0)
            if (box.path / "state").exists():
                assert len(list((box.path / "state").glob("A1-*"))) <= 1, run
    assert gone(box.path / "two") and n_sent < 40  # killed after sendmail had it: those come twice
