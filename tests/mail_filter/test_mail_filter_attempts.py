"""mail-filter --state: the attempts at a mail are counted, and the third passes it without a
verdict.
"""

import os
import signal
import stat
import subprocess
import time

from conftest import wait_for
from mail_filter_box import FORTUNE, LINE, MAIL, MARKED, alive, gone, refused

BARE = MAIL.replace(b"X-Spam-Status: No\n", b"")


def killed_while_judging(box, *options, **envelope):
    """The front is killed when classify runs."""
    box.script("classify", f"echo $$ >{box.path}/one; exec sleep 1000")
    p = subprocess.Popen(
        box.argv(*options, **envelope), stdin=subprocess.PIPE, stderr=subprocess.PIPE
    )
    p.stdin.write(MAIL)
    p.stdin.close()
    wait_for(lambda: alive(box.path / "one") or p.poll() is not None, "classify that is at work")
    p.kill()
    assert p.wait() == -signal.SIGKILL, p.stderr.read()
    p.stderr.close()
    assert gone(box.path / "one") and os.listdir(box.path / "spool") == []
    (box.path / "one").unlink()


def test_third_attempt_passes_unchecked(box):
    options = ("--queue-id", "4Fx1zZ", "--state", box.path / "state")
    for attempt in range(2):
        killed_while_judging(box, *options)
        (mark,) = (box.path / "state").glob("4Fx1zZ-*")
        assert stat.S_IMODE(mark.stat().st_mode) == 0o600
    # another delivery of that mail counts for itself
    killed_while_judging(box, *options, recipients=["other@e.f"])
    box.script("classify", f"touch {box.path}/ran")
    assert box.run(*options).returncode == 0
    assert box.mails() == [FORTUNE["error attempts"]] and not (box.path / "ran").exists()
    # the mark of the other; ours went with the delivery
    assert len(list((box.path / "state").glob("4Fx1zZ-*"))) == 1
    box.script("classify", f"echo {LINE.decode()}")
    assert box.run(*options).returncode == 0 and box.mails() == [MARKED]


def test_deferring_for_want_of_a_verdict_ends_as_well(box):
    box.script("classify", "exit 70")
    options = ("--on-failure", "defer", "--queue-id", "A1", "--state", box.path / "state")
    assert (
        refused(box.run(*options))
        and refused(box.run(*options))
        and box.run(*options).returncode == 0
    )
    assert box.mails() == [FORTUNE["error attempts"]]


def test_broken_sendmail_uses_no_attempts(box):
    options = ("--queue-id", "A1", "--state", box.path / "state")
    for script in ("exit 75", "exit 69", "kill -9 $$", "exit 69", "exit 75", "exit 69"):
        box.script("sendmail", script)
        assert refused(box.run(*options))
    box.sendmail = box.script("sendmail", box.record())
    assert box.run(*options).returncode == 0 and box.mails() == [MARKED]
    assert not list((box.path / "state").glob("A1-*"))


def test_message_too_large_with_headers_is_sent_without_them(box):
    options = ("--queue-id", "A1", "--state", box.path / "state")
    box.script(
        "sendmail",
        "d=$(mktemp); cat >$d; [ $(wc -c <$d) -le %d ] || { rm $d; exit 69; }; exec <$d; rm $d\n%s"
        % (len(MAIL), box.record()),
    )
    for _ in range(2):
        assert refused(box.run(*options)) and box.mails() == []
    assert box.run(*options).returncode == 0 and box.mails() == [BARE]
    assert box.lines()[-1].endswith("sent-bare")
    for _ in range(4):  # without counting, it waits
        assert refused(box.run())


def test_state_that_cannot_be_kept_stops_no_mail(box):
    (box.path / "file").write_text("x")
    for state in (
        box.path / "file",
        box.path / "no/such",
        "/proc",
        "/dev/null",
        box.path / "file/x",
    ):
        assert box.run("--queue-id", "A1", "--state", state).returncode == 0 and box.mails() == [
            MARKED
        ]
    state = box.path / "state"
    for queue_id in ("../x", "a/b", "", "a b", "A\n", "x" * 100, "."):
        assert box.run(
            "--queue-id", queue_id, "--state", state
        ).returncode == 0 and box.mails() == [MARKED]
    assert not (box.path / "x").exists() and (
        not state.exists() or [p.name for p in state.iterdir() if p.name != ".swept"] == []
    )
    killed_while_judging(box, "--queue-id", "A1", "--state", state)
    (mark,) = state.glob("A1-*")
    box.script("classify", f"echo {LINE.decode()}")
    for content in (b"", b"9", b"\xff\xff", b"-1", b"no"):
        mark.write_bytes(content)
        assert box.run("--queue-id", "A1", "--state", state).returncode == 0 and box.mails() == [
            MARKED
        ]
    victim = box.path / "victim"
    victim.write_text("99")
    for make in (lambda: mark.symlink_to(victim), lambda: mark.mkdir(), lambda: os.mkfifo(mark)):
        make()
        assert box.run(
            "--queue-id", "A1", "--state", state, timeout=60
        ).returncode == 0 and box.mails() == [MARKED]
        assert victim.read_text() == "99"
        if mark.is_dir() and not mark.is_symlink():
            mark.rmdir()
        mark.unlink(missing_ok=True)


def test_marks_that_others_could_have_written_count_for_nothing(box):
    state = box.path / "state"
    killed_while_judging(box, "--queue-id", "A1", "--state", state)
    box.script("classify", f"echo {LINE.decode()}")
    (mark,) = state.glob("A1-*")
    changes = [
        (lambda: state.chmod(0o777), False),
        (lambda: state.chmod(0o1777), False),
        (lambda: state.chmod(0o700), True),
    ]
    if os.geteuid() == 0:
        changes.insert(0, (lambda: os.chown(state, 12345, 12345), False))
        changes.insert(1, (lambda: os.chown(state, 0, 0), True))
    for change, counts in changes:
        mark.write_text("99")
        change()
        assert box.run("--queue-id", "A1", "--state", state).returncode == 0
        assert (
            box.mails() == [FORTUNE["error attempts"] if counts else MARKED]
            and ("no attempts are counted" in "".join(box.lines())) != counts
        )


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
    # not within the hour
    assert (
        box.run("--queue-id", "A1", "--state", state).returncode == 0 and (state / "OLD-3").exists()
    )
    os.utime(state / ".swept", (time.time() - 3700,) * 2)
    assert (
        box.run("--queue-id", "A1", "--state", state).returncode == 0
        and not (state / "OLD-3").exists()
    )
