"""mail-filter where a system call fails, or where it is killed at one: no mail is lost."""

import re
import shutil
import signal

import pytest
from mail_filter_box import LINE, LINES, MAIL, SANITIZED, gone

from sluice.mail import headers

pytestmark = pytest.mark.full


def calls_of(box, options, prefix):
    """[(name, how many)] of the system calls that the front itself makes; arch_prctl, by which libc
    starts, fails on no machine.
    """
    trace = box.path / "trace"
    assert box.run(*options, prefix=[*prefix, "-o", trace]).returncode == 0
    box.sent()
    names = re.findall(r"^(\w+)\(", trace.read_text(), re.M)
    return sorted(
        (name, names.count(name))
        for name in set(names) - {"execve", "exit_group", "restart_syscall", "arch_prctl"}
    )


@pytest.fixture
def tracer(strace):
    if SANITIZED:
        pytest.skip(
            "a sanitized program makes system calls of its own: make test-all traces the plain one"
        )
    return [*strace, "-e", "signal=none"]


ERRORS = {
    "write": ("ENOSPC", "EIO"),
    "openat": ("EMFILE", "ENOSPC"),
    "open": ("EMFILE",),
    "fork": ("EAGAIN",),
    "clone": ("EAGAIN",),
    "clone3": ("EAGAIN",),
    "mmap": ("ENOMEM",),
    "brk": ("ENOMEM",),
    "read": ("EIO",),
    "pipe2": ("EMFILE",),
    "close": ("EIO",),
}


def test_final_deadline_is_set_first(box, tracer):
    trace = box.path / "trace"
    assert (
        box.run(
            "--deadline", 5, "--read-limit", 6, "--send-limit", 7, prefix=[*tracer, "-o", trace]
        ).returncode
        == 0
    )
    lines = trace.read_text().splitlines()
    alarms = [n for n, line in enumerate(lines) if line.startswith("alarm(")]
    opened = [n for n, line in enumerate(lines) if line.startswith("openat(")]
    assert [lines[n].split(")")[0] for n in alarms] == ["alarm(60", "alarm(55"] and alarms[
        1
    ] < opened[0]
    assert [line for line in lines if "SIGALRM" in line][0].startswith(
        "rt_sigaction(SIGALRM, {sa_handler=SIG_DFL"
    )


def mail_of(run):
    """A mail that no other run has: which one was lost, or comes late, is told by it."""
    return MAIL.replace(b"Subject: hi", b"Subject: " + run.encode())


def test_mail_filter_loses_no_message_if_a_system_call_fails(box, tracer):
    """The n-th call of each kind fails: 0 with exactly one whole mail, or 75, or a signal; nothing
    stays in the spool.
    """
    options = ("--queue-id", "A1", "--state", box.path / "state")
    box.run(*options)
    box.sent()
    statuses, runs = {}, {}  # what may become of the mail of each run: its name
    for name, n in calls_of(box, options, tracer):
        for error in ERRORS.get(name, ("EINVAL",)):
            for nth in range(1, min(n, 12) + 1):
                shutil.rmtree(box.path / "state", ignore_errors=True)
                run = f"{name} {error} {nth}"
                mail = mail_of(run)
                runs.update((headers.mark(mail, headers.headers(line)), run) for line in LINES)
                done = box.run(
                    *options,
                    mail=mail,
                    prefix=[
                        *tracer,
                        "-o",
                        "/dev/null",
                        "-e",
                        f"inject={name}:error={error}:when={nth}",
                    ],
                )
                sent = [runs.get(data, data) for data in box.mails()]
                statuses.setdefault(done.returncode, []).append(run)
                assert done.returncode in (0, 75) or done.returncode < 0, (run, done)
                assert (
                    set(sent) <= set(runs.values())
                    and sent.count(run) <= 1
                    and (run in sent or done.returncode)
                ), (run, done, sent)
                if done.returncode == 75:
                    assert not done.stderr or done.stderr.startswith(b"4.3.0 "), (run, done)
    assert len(statuses[0]) > 10 and len(statuses[75]) > 10, {
        k: len(v) for k, v in statuses.items()
    }


def test_kill_at_any_system_call_loses_nothing(box, tracer):
    """SIGKILL at each system call: a signal's death, by which Postfix defers; nothing stays but a
    mark, no child runs on.
    """
    options = ("--queue-id", "A1", "--state", box.path / "state")
    box.script("sendmail", f"echo $$ >{box.path}/two\n" + box.record())
    box.run(*options)
    box.sent()
    n_sent, runs = 0, {}  # the mail of each run, marked: its name
    for name, n in calls_of(box, options, tracer):
        for nth in range(1, min(n, 12) + 1):
            shutil.rmtree(box.path / "state", ignore_errors=True)
            run = f"{name} {nth}"
            mail = mail_of(run)
            runs[headers.mark(mail, headers.headers(LINE))] = run
            done = box.run(
                *options,
                mail=mail,
                prefix=[*tracer, "-o", "/dev/null", "-e", f"inject={name}:signal=KILL:when={nth}"],
            )
            # 0: that call was not made this time
            assert done.returncode in (-signal.SIGKILL, 0), (run, done)
            # one of a run that was killed may come later
            sent = [runs.get(data, data) for data in box.mails()]
            assert (
                set(sent) <= set(runs.values())
                and sent.count(run) <= 1
                and (run in sent or done.returncode)
            ), (run, done.returncode, sent)
            n_sent += len(sent) - (done.returncode == 0)
            if (box.path / "state").exists():
                assert len(list((box.path / "state").glob("A1-*"))) <= 1, run
    assert gone(box.path / "two") and n_sent < 40  # killed after sendmail had it: those come twice
