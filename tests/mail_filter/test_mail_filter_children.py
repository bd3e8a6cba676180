"""What mail-filter starts, classify and sendmail: whatever they do, the mail is passed on or
deferred, and no process stays.
"""

import os
import re
import signal

import pytest
from mail_filter_box import FORTUNE, LINE, MAIL, MARKED, gone, refused

from sluice.mail import headers

HANG = "echo $$ >{0}/one; sleep 1000 & echo $! >{0}/two; {1}"

# ---- what classify may do ---------------------------------------------------------------------

BAD_CLASSIFY = [  # a script, the reason
    ("exit 0", "crashed"),
    ("exit 1", "crashed"),
    ("exit 2", "crashed"),
    ("exit 64", "model"),
    ("exit 65", "model"),
    ("exit 66", "model"),
    ("exit 69", "model"),
    ("exit 70", "crashed"),
    ("exit 74", "model"),
    ("exit 75", "memory"),
    ("exit 255", "crashed"),
    ("kill -9 $$", "crashed"),
    ("kill -SEGV $$", "crashed"),
    ("kill -XCPU $$", "timeout"),
    ("echo error input; exit 65", "input"),
    ("echo error size; exit 1", "size"),
    ("echo error nonsense; exit 65", "model"),
    (f"echo {LINE.decode()}; exit 1", "crashed"),
    (f"echo {LINE.decode()}; exit 70", "crashed"),
    (f"echo {LINE.decode()}; kill -9 $$", "crashed"),
    (f"printf '{LINE.decode()}'", "crashed"),
    (f"echo {LINE.decode()}; echo", "crashed"),
    (f"echo; echo {LINE.decode()}", "crashed"),
    (f"echo ' {LINE.decode()}'", "crashed"),
    ("echo yes", "crashed"),
    ("echo 'yes 0.9'", "crashed"),
    (f"printf '{LINE.decode()}\\r\\n'", "crashed"),
    ("echo 'yes 0.9931 0.9386 3f9a0c1b2d4e5f60\nX-Evil: 1'", "crashed"),
    ("yes | head -c 1000000", "crashed"),
    ("head -c 300 /dev/zero", "crashed"),
    ("exec >&-", "crashed"),
    ("printf '\\377'; exit 1", "crashed"),
    ("ulimit -c; exit 3", "crashed"),
]


def test_whatever_classify_does_the_mail_passes(box):
    for script, word in BAD_CLASSIFY:
        box.script("classify", script)
        done = box.run()
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b""), script
        assert box.mails() == [FORTUNE[f"error {word}"]], script
        assert f"reason={word} by=process" in box.lines()[0]
    (box.path / "plain").touch(0o644)
    for path in (box.path / "absent", "/", box.path / "plain", box.path):
        assert box.run("--classify", path).returncode == 0
        assert box.mails() == [FORTUNE["error crashed"]] and "process=errno" in box.lines()[0]
    for answer, status in (("no", 1), ("unsure", 2)):
        line = LINE.decode().replace("yes", answer)
        box.script("classify", f"echo {line}; exit {status}")
        assert box.run().returncode == 0 and box.mails() == [
            headers.mark(MAIL, headers.headers(line.encode()))
        ]


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    "how",
    [
        "wait",
        "trap '' TERM HUP INT; while :; do wait; done",
        "echo yes; exec >&-; wait",
        "kill -STOP $$",
        "while :; do :; done",
    ],
)
def test_hanging_classify_is_killed_with_its_children(box, how):
    box.script("classify", HANG.format(box.path, how))
    assert box.run("--deadline", 1).returncode == 0
    assert box.mails() == [FORTUNE["error timeout"]] and gone(box.path / "one", box.path / "two")


def test_children_that_outlive_classify_are_killed(box):
    box.script("classify", HANG.format(box.path, f"echo {LINE.decode()}"))
    assert box.run().returncode == 0 and box.mails() == [MARKED] and gone(box.path / "two")


def test_children_get_limits_and_little_of_the_environment(box):
    box.script(
        "classify",
        f"env >{box.path}/env1; ulimit -a >{box.path}/limits; ls -l /proc/self/fd >{box.path}/fds;"
        f" (echo >&0) 2>/dev/null && exit 3; echo {LINE.decode()}",
    )
    box.script("sendmail", f"env >{box.path}/env2\n" + box.record())
    extra = os.open("/dev/null", os.O_RDONLY)
    done = box.run(
        "--memory",
        100,
        "--deadline",
        7,
        pass_fds=[extra],
        env={
            "LD_PRELOAD": "",
            "IFS": "x",
            "PYTHONPATH": "/evil",
            "SECRET": "1",
            "TZ": "UTC",
            "LANG": "C",
            "MAIL_CONFIG": "/etc/x",
            "PATH": os.environ["PATH"],
        },
    )
    os.close(extra)
    assert done.returncode == 0 and box.mails() == [MARKED]
    names = [
        {line.split("=")[0] for line in (box.path / f).read_text().splitlines()}
        - {"_", "PWD", "SHLVL", "OLDPWD"}
        for f in ("env1", "env2")
    ]
    assert names == [{"PATH"}, {"PATH", "TZ", "LANG", "MAIL_CONFIG"}]
    text = (box.path / "limits").read_text()  # as dash prints it, or bash
    assert re.search(r"(vmemory|virtual memory).* 102400$", text, re.M) and re.search(
        r"time.* [789]$", text, re.M
    ), text
    assert re.search(r"core.* 0$", text, re.M)
    # 0, 1, 2 and those of sh and ls
    assert len(re.findall(r" \d+ -> ", (box.path / "fds").read_text())) <= 5


# ---- what sendmail may do ------------------------------------------------------------------------


@pytest.mark.full
def test_sendmail_exit_status_and_signal_decide_the_exit_code(box):
    for code in range(256):
        box.script("sendmail", f"cat >/dev/null; exit {code}")
        done = box.run()
        assert done.returncode == 0 if code == 0 else refused(done), code
    box.lines()
    for number in sorted(
        signal.valid_signals()
        - {
            signal.SIGSTOP,
            signal.SIGTSTP,
            signal.SIGTTIN,
            signal.SIGTTOU,
            signal.SIGCHLD,
            signal.SIGCONT,
            signal.SIGURG,
            signal.SIGWINCH,
        }
    ):
        box.script("sendmail", f"cat >/dev/null; kill -{int(number)} $$; exit 0")
        assert refused(box.run()), number
        assert f"signal={int(number)} " in box.lines()[0]


@pytest.mark.full
def test_failing_sendmail_defers(box):
    (box.path / "plain").touch(0o644)
    for path in (box.path / "absent", "/", box.path / "plain", box.path / "spool"):
        done = box.run("--sendmail", path)
        assert (
            refused(done)
            and b"the message cannot be delivered: sendmail cannot be started: " in done.stderr
        )
        assert re.search(r"sendmail status=-?\d+ signal=0 late=0 errno=[1-9]", box.lines()[0])
    box.script("sendmail", HANG.format(box.path, "wait"))
    done = box.run("--send-limit", 1)
    assert (
        refused(done)
        and b"sendmail took too long" in done.stderr
        and gone(box.path / "one", box.path / "two")
    )
    assert "late=1" in box.lines()[0]
    box.script("sendmail", "exit 75")  # without reading
    assert refused(box.run(mail=MAIL * 100_000))


def test_sendmail_output_is_logged_sanitized_and_truncated(box):
    box.script(
        "sendmail",
        box.record(
            "printf 'a\\033[31m\\n\\0\\377b%s' '%s%n'; head -c 3000000 /dev/zero | tr '\\0' x >&2;"
            " exit 1"
        ),
    )
    done = box.run("--queue-id", "A1")
    assert refused(done) and len(done.stderr) < 100
    said, mail = box.lines()
    assert (
        "A1: sendmail status=1 signal=0 late=0 errno=0 said=a?[31m ??b%s%nxxxx" in said
        and len(said) < 600
        and mail.endswith("deferred")
    )
    box.sent()
    box.script("sendmail", box.record("echo queued as 12"))
    done = box.run()
    assert (done.returncode, done.stdout, done.stderr) == (
        0,
        b"",
        b"",
    ) and "said=queued as 12" in box.lines()[0]


SENDERS = [
    "",
    "<>",
    "-f",
    "--",
    "-x@y",
    "-",
    '"a b"@c',
    '"a\\"b"@c',
    "\u00fcser@\u00e9xample.org",
    "a@b\nc",
    "a;rm -rf /@b",
    "$(id)@b",
    "a" * 2000,
    "\udcff@x",
]


def test_sendmail_gets_the_envelope_unchanged(box):
    for sender in SENDERS:
        assert box.run(sender=sender, recipients=SENDERS).returncode == 0
        assert box.sent() == [(["-G", "-i", "-f", sender, "--", *SENDERS], MARKED)], sender
    many = [f"r{n}@example.org" for n in range(1000)]
    assert box.run(recipients=many).returncode == 0 and box.sent()[0][0][5:] == many
