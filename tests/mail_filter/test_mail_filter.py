"""mail-filter: it ends with 0 or 75 and no other way, with 0 only where sendmail took the whole
mail, and leaves nothing behind.

The program is the real one ($SLUICE_MAIL_FILTER: another build of it). Where a verdict matters
classify and the model in the box give it; where only what the front does matters, shell scripts
stand for classify and sendmail. The real Postfix is in test_postfix.py and test_postfix_broken.py,
what mail-filter starts, asks, counts and meets in system calls in test_mail_filter_*.py.
"""

import os
import re
import resource
import shlex
import signal
import socket
import subprocess

import pytest
from conftest import ROOT, wait_for
from mail_filter_box import CLASSIFY, FILTER, FORTUNE, LINE, MAIL, MARKED, SANITIZED, refused

from sluice import VERSION
from sluice.mail import headers

# ---- the verdict, by the model in the box ----------------------------------------------------


def test_verdicts_are_those_of_classify(box):
    for path in sorted((ROOT / "tests/mails").glob("*.eml")):
        mail = path.read_bytes()
        line = subprocess.run(
            [CLASSIFY, "--long", "--no-calibration"], input=mail, capture_output=True
        ).stdout.rstrip(b"\n")
        done = box.run("--classify", CLASSIFY, "--queue-id", "4Fx1", mail=mail)
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
        assert box.sent() == [
            (["-G", "-i", "-f", "a@b.c", "--", "d@e.f"], headers.mark(mail, headers.headers(line)))
        ]
        answer, score, required, model = line.decode().split()
        (logged,) = box.lines()
        assert re.fullmatch(
            rf"\w{{3}} [ \d]\d \d\d:\d\d:\d\d mail-filter\[\d+\]: 4Fx1: answer={answer}"
            rf" score={score} required={required} "
            rf"model={model} rule=- reason=- by=process worker=- process=[012] ms=\d+ bytes={len(mail)}"
            r" begun=0 refused=0 "
            "deliver=headers sent",
            logged,
        )


def test_limits_hold_the_real_classify(box):
    (box.path / "cut.gguf").write_bytes((ROOT / "lib/sluice/data/spam.gguf").read_bytes()[:100_000])
    (box.path / "bad.yaml").write_text("answers: 1\n")
    for options, word in (
        (("--memory", 16), "memory|crashed"),
        (("-m", box.path / "absent"), "model"),
        (("-q", "no-such"), "model"),
        (("-m", box.path / "cut.gguf"), "model"),
        (("-q", box.path / "bad.yaml"), "model"),
    ):
        assert box.run("--classify", CLASSIFY, *options).returncode == 0
        (mail,) = box.mails()
        assert mail in [FORTUNE[f"error {w}"] for w in word.split("|")], mail[:200]


def test_calibration_option_is_passed_to_classify(box):
    mail = (ROOT / "tests/mails/spam-investment.eml").read_bytes()
    learnt = box.path / "learnt"
    done = subprocess.run(
        [CLASSIFY, "--learn", "no", "--calibration", learnt], input=mail, capture_output=True
    )
    assert done.returncode == 0, done.stderr
    line = subprocess.run(
        [CLASSIFY, "--long", "--calibration", learnt], input=mail, capture_output=True
    ).stdout.rstrip(b"\n")
    assert box.run("--classify", CLASSIFY, "--calibration", learnt, mail=mail).returncode == 0
    assert box.run("--classify", CLASSIFY, mail=mail).returncode == 0
    (_, one), (_, other) = sorted(
        box.sent(), key=lambda sent: sent[1] != headers.mark(mail, headers.headers(line))
    )
    assert one == headers.mark(mail, headers.headers(line)) != other


# ---- the mail --------------------------------------------------------------------------------------

MAILS = [
    b"\n",
    b"\0",
    b"text",
    b"Subject: x",
    b"Subject: x\r\n\r\nbody\r\n",
    b"From a b\nSubject: x\n\n.\n..\n",
    b"S: \0\xff\r\r\r\n\n\0\0\r.\r\n.\n",
    b"\xef\xbb\xbfS: x\n\n",
    b"S: x\n\n" + b"a" * 3_000_000,
    b"S: " + b"h" * 10_000_000 + b"\n\nb",
    b"S: x\nX-Spam-A: b\n" * 100_000 + b"\nb",
    b" \n" * 1000,
    b"S: x\n" + b" f\n" * 100_000 + b"\nb",
]


def test_odd_mails_keep_their_bytes(box):
    for mail in MAILS:
        assert box.run("--max-size", 1 << 30, mail=mail).returncode == 0
        (sent,) = box.mails()
        assert sent == headers.mark(mail, headers.headers(LINE)), mail[:60]
    assert box.run(mail=b"").returncode == 0 and box.mails() == [
        headers.headers(b"error empty") + b"\n"
    ]


@pytest.mark.parametrize(
    "make", [os.pipe, lambda: [s.detach() for s in socket.socketpair()]], ids=["pipe", "socket"]
)
def test_message_is_not_sent_if_the_result_has_no_reader(box, make):
    """pipe(8) was stopped while the mail was judged: it is in the queue, and comes again."""
    for deliver in ("headers", "unchanged", "nothing"):
        ours, its = make()
        box.script(
            "classify",
            f"cat >/dev/null; touch {box.path}/began; while [ ! -e {box.path}/go ]; do sleep 0.02;"
            f" done; echo {LINE.decode()}",
        )
        p = subprocess.Popen(
            box.argv("--deliver", deliver, "--queue-id", "4Fx1", "--state", box.path / "state"),
            stdin=subprocess.PIPE,
            stdout=its,
            stderr=its,
        )
        os.close(its)
        p.stdin.write(MAIL)
        p.stdin.close()
        wait_for(
            lambda: (box.path / "began").exists() or p.poll() is not None,
            "classify that is at work",
        )
        os.close(ours)
        (box.path / "go").touch()
        assert p.wait(60) == (0 if deliver == "nothing" else 75)
        assert box.mails() == [] and ("stdout has no reader" in "".join(box.lines())) == (
            deliver != "nothing"
        )
        # it came back from judging: no attempt is used
        assert [name for name in os.listdir(box.path / "state") if name[0] != "."] == []
        (box.path / "began").unlink()
        (box.path / "go").unlink()
    box.script("classify", f"cat >/dev/null; echo {LINE.decode()}")
    ours, its = make()
    with open(os.devnull, "w") as nowhere:  # to what is read, and to what is no pipe
        for out in (its, nowhere):
            assert subprocess.run(box.argv(), input=MAIL, stdout=out).returncode == 0
    assert box.mails() == [MARKED] * 2
    os.close(ours), os.close(its)


@pytest.mark.quick_cases(1)
def test_modes_of_delivery(box):
    assert box.run("--deliver", "unchanged").returncode == 0 and box.mails() == [MAIL]
    done = box.run("--deliver", "nothing", sender=None, recipients=())
    assert (done.returncode, done.stdout, done.stderr, box.mails()) == (0, b"", b"", [])
    done = box.run("--deliver", "stdout", sender=None, recipients=())
    assert (done.returncode, done.stdout, done.stderr, box.mails()) == (0, MARKED, b"", [])
    assert [re.search("answer=yes .* deliver=(.*)", line)[1] for line in box.lines()] == [
        "unchanged sent",
        "nothing done",
        "stdout sent",
    ]
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            box.argv("--deliver", "stdout"), input=MAIL, stdout=full, stderr=subprocess.PIPE
        )
    assert done.returncode == 75 and done.stderr.startswith(b"4.3.0 ")
    p = subprocess.Popen(
        box.argv("--deliver", "stdout"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    p.stdout.close()
    p.stdin.write(MAIL * 10_000)
    p.stdin.close()
    assert p.wait(60) == 75 and p.stderr.read().startswith(b"4.3.0 ")
    p = subprocess.Popen(
        box.argv("--deliver", "stdout", "--send-limit", 1),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    p.stdin.write(MAIL * 10_000)  # and nobody reads
    p.stdin.close()
    assert p.wait(60) == 75
    p.stdout.close()


def test_size_earlier_status_and_policy(box):
    n = len(MAIL)
    for limit, line in ((n, LINE), (n - 1, b"error size"), (0, b"error size")):
        assert box.run("--max-size", limit).returncode == 0 and box.mails() == [
            headers.mark(MAIL, headers.headers(line))
        ]
    assert box.run("--trust-earlier").returncode == 0 and box.mails() == [MAIL]
    other = MAIL.replace(b"-Status", b"-Stattus")
    assert box.run("--trust-earlier", mail=other).returncode == 0 and box.mails() == [
        headers.mark(other, headers.headers(LINE))
    ]
    box.script("classify", "exit 70")
    assert refused(box.run("--on-failure", "defer")) and box.mails() == []
    assert box.run("--on-failure", "defer", "--max-size", 1).returncode == 0 and box.mails() == [
        FORTUNE["error size"]
    ]
    assert (
        box.run("--on-failure", "defer", mail=b"").returncode == 0
        and box.run("--on-failure", "pass").returncode == 0
    )


# ---- what is around it --------------------------------------------------------------------------------


BAD_OPTIONS = [
    ["--nonsense"],
    ["-z"],
    ["--deliver", "x"],
    ["--deliver"],
    ["--deadline", "0"],
    ["--deadline", "x"],
    ["--deadline", "-1"],
    ["--deadline", "1e3"],
    ["--deadline", "99999999999999999999999"],
    ["--max-size", ""],
    ["--max-size", "1k"],
    ["--memory", "1"],
    ["-j", "0"],
    ["-j", "x"],
    ["--on-failure", "bounce"],
    ["--worker-only"],
    ["--spool", ""],
    ["--spool", "/dev/null/absent"],
    ["--spool", "/dev/null"],
    ["--spool", "x" * 5000],
    ["--spool", "/proc"],
    ["--sendmail", ""],
    ["--send-limit", "3601"],
    ["--read-limit", ""],
    ["--sen", "x"],
    ["--\n\x1b[31m"],
    ["-\xff"],
]


def test_bad_options_defer(box):
    for options in BAD_OPTIONS:
        assert refused(box.run(*options)), options
    for argv in (
        [],
        ["-f", "a"],
        ["-f", "a", "--"],
        ["x"],
        ["--", "x"],
        ["-f", "a", "--deliver", "unchanged"],
        ["--"],
        ["-f"],
    ):
        assert refused(subprocess.run([FILTER, *argv], input=MAIL, capture_output=True)), argv
    assert box.mails() == []


def test_help_and_version_end_with_0():
    for option in ("--help", "-h", "-V", "--version"):
        done = subprocess.run([FILTER, option], capture_output=True, stdin=subprocess.DEVNULL)
        assert done.returncode == 0 and done.stdout and not done.stderr
    assert done.stdout.decode() == f"mail-filter (sluice) {VERSION}\n"
    text = subprocess.run([FILTER, "-h"], capture_output=True).stdout.decode()
    assert max(map(len, text.splitlines())) <= 80 and len(text.splitlines()) < 115
    source = (ROOT / "csrc/mail/filter/options.c").read_text()
    names = re.findall(r'\{"([a-z-]+)", [01], 0,', source)
    assert len(names) >= 20 and all(
        f"  --{name}" in text or f", --{name}" in text for name in names
    )


@pytest.mark.full
def test_inherited_process_state_does_not_matter(box):
    def inherit():
        for number in (
            signal.SIGCHLD,
            signal.SIGPIPE,
            signal.SIGALRM,
            signal.SIGTERM,
            signal.SIGHUP,
        ):
            signal.signal(number, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_SETMASK, signal.valid_signals())
        os.umask(0)
        signal.setitimer(signal.ITIMER_REAL, 0)

    box.script("classify", f"echo $$ >{box.path}/one; exec sleep 1000")
    assert box.run("--deadline", 1, preexec_fn=inherit).returncode == 0 and box.mails() == [
        FORTUNE["error timeout"]
    ]
    box.script("classify", f"cat >/dev/null; yes | head -1 >/dev/null; echo {LINE.decode()}")
    assert box.run(preexec_fn=inherit).returncode == 0 and box.mails() == [MARKED]


@pytest.mark.parametrize("closed", [(0,), (1,), (2,), (0, 1), (0, 2), (1, 2), (0, 1, 2)])
def test_closed_standard_files(box, closed):
    command = " ".join(map(shlex.quote, map(str, box.argv()))) + "".join(
        f" {fd}{'<' if fd == 0 else '>'}&-" for fd in closed
    )
    done = subprocess.run(["sh", "-c", command], input=MAIL, capture_output=True)
    assert done.returncode == (75 if 0 in closed else 0)
    assert box.mails() == ([] if 0 in closed else [MARKED])


@pytest.mark.full
def test_stdin_that_is_unreadable_or_too_long_defers(box):
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
    # SIGXFSZ, were it not ignored
    assert refused(
        box.run(preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (n - 1, n - 1)))
    )
    # room for it, not for it with headers
    assert refused(
        box.run(preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (n + 1, n + 1)))
    )
    assert box.mails() == []


def test_mail_filter_defers_on_a_full_disk(box):
    if subprocess.run(["unshare", "-rm", "true"], capture_output=True).returncode:
        pytest.skip("unshare -rm is not permitted: run as root")
    spool = box.path / "spool"
    mail = MAIL + b"x" * 20_000
    # for neither, for the mail alone, for both
    for size, status in (("16k", 75), ("24k", 75), ("128k", 0)):
        script = f"mount -t tmpfs -o size={size} t {shlex.quote(str(spool))} && exec " + " ".join(
            map(shlex.quote, map(str, box.argv()))
        )
        done = subprocess.run(
            ["unshare", "-rm", "sh", "-c", script], input=mail, capture_output=True
        )
        assert (
            done.returncode == 0 if status == 0 else refused(done) and b"No space" in done.stderr
        ), (size, done)
    assert [len(m) > 20_000 for m in box.mails()] == [True]


def test_few_descriptors_and_little_memory(box):
    """Whatever there is too little of: 0 with a whole mail, marked or unchecked, or 75."""
    possible = {MARKED, *FORTUNE.values()}
    statuses = set()
    limits = [f"ulimit -n {n}" for n in range(3, 14)]
    if not SANITIZED:  # its shadow is larger than any limit
        limits += [f"ulimit -v {n}" for n in range(1000, 3600, 100)]
    for limit in limits:
        if subprocess.run(
            ["sh", "-c", f"{limit}; exec {FILTER} -V"], capture_output=True
        ).returncode:
            continue  # it cannot even be started
        done = subprocess.run(
            ["sh", "-c", f"{limit}; exec " + " ".join(map(shlex.quote, map(str, box.argv())))],
            input=MAIL,
            capture_output=True,
        )
        sent = box.mails()
        assert set(sent) <= possible and (
            done.returncode == 75
            or done.returncode < 0
            or (done.returncode == 0 and len(sent) == 1)
        ), (limit, done)
        statuses.add(done.returncode)
        box.lines()
    assert {0, 75} <= statuses


def test_mail_filter_log_has_no_message_content(box):
    secret = b"From: secret\nSubject: secret\nMessage-Id: <secret>\n\nsecret\n"
    box.script("classify", "cat; cat >&2; exit 70")
    assert box.run(mail=secret, sender="secret@x", recipients=["secret@y"]).returncode == 0
    box.script("sendmail", "exit 1")
    assert refused(box.run(mail=secret, sender="secret@x", recipients=["secret@y"]))
    assert len(text := box.lines()) == 3 and "secret" not in "".join(text)
    box.sent()
    box.log = "-"
    done = box.run()
    assert (
        re.fullmatch(rb"4\.3\.0 mail-filter: .*\n(\w{3} [ \d]\d .*\n){2}", done.stderr)
        and done.returncode == 75
    )
    for log in ("/dev/null/x", "/", "/dev/full"):
        box.log, box.sendmail = log, box.script("sendmail", box.record())
        assert box.run().returncode == 0 and len(box.mails()) == 1
