"""mail-filter under limits of its process: 0 with the mail delivered, 75 with a line that names the
limit, or a signal before its first instruction; never another status, for which Postfix bounces.
"""

import os
import resource
import subprocess
import sys

import pytest
from conftest import ROOT
from mail_filter_box import FILTER, MARKED, SANITIZED, refused

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="needs Linux"),
    pytest.mark.skipif(SANITIZED, reason="a sanitized program needs terabytes of address space"),
]
KIB = 1024
LIMITS = {
    "DATA": (range(4, 640, 12), b"data (ulimit -d)", 512),
    "AS": ([*range(16, 1000, 100), *range(1000, 1500, 10), 1800, 2047], b"address space", 2048),
    "STACK": (range(4, 300, 4), b"the stack (ulimit -s)", 256),
    "NOFILE": (range(0, 20), None, None),
    "FSIZE": ([0, 1, 100, 4096], None, None),
}


def limited(name, soft, hard=None):
    hard = soft if hard is None else hard
    return lambda: resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (soft, hard))


def started(box, name, soft, hard=None, **kwargs):
    """The end of mail-filter; None where the system could not start it, for which Postfix has its
    own message.
    """
    argv = box.argv(**kwargs)
    try:
        return subprocess.run(
            argv, input=b"mail", capture_output=True, preexec_fn=limited(name, soft, hard)
        )
    except (OSError, subprocess.SubprocessError):
        return None


@pytest.mark.full
@pytest.mark.parametrize("n_recipients", [1, 1000])
@pytest.mark.parametrize("name", LIMITS)
def test_any_limit_ends_in_delivery_deferral_or_a_signal(box, name, n_recipients):
    values, words, enough = LIMITS[name]
    unit = KIB if words else 1
    statuses = set()
    recipients = [f"r{n}@example.org" for n in range(n_recipients)]
    for value in values:
        done = started(box, name, value * unit, recipients=recipients)
        if done is None:
            continue
        statuses.add(done.returncode)
        assert done.returncode in (0, 75) or done.returncode < 0, (value, done)
        delivered = len(box.sent())
        assert delivered == (done.returncode == 0), (value, done)
        if done.returncode == 75:
            # stderr may be a file, which RLIMIT_FSIZE limits; here it is a pipe
            assert refused(done), (value, done)
            assert not words or (words in done.stderr) == (value < enough), (value, done)
        if words and value < enough:
            assert done.returncode, value
        assert os.listdir(box.path / "spool") == []
    assert 75 in statuses and statuses <= ({0, 75, -11, -9} if words else {0, 75})


def test_soft_limit_is_raised_to_the_hard_one(box):
    for name, soft in (("DATA", 200 * KIB), ("STACK", 64 * KIB), ("AS", 1500 * KIB), ("CPU", 1)):
        box.script("sendmail", f"ulimit -a >{box.path}/limits-{name}; {box.record()}")
        done = started(box, name, soft, resource.RLIM_INFINITY)
        assert (done.returncode, done.stderr) == (0, b""), (name, done)
        assert len(box.sent()) == 1
        text = (box.path / f"limits-{name}").read_text()
        word = {"DATA": "data", "STACK": "stack", "AS": "virtual memory", "CPU": "time"}[name]
        lines = [line for line in text.splitlines() if word in line or "vmemory" in line]
        assert any("unlimited" in line for line in lines), (name, text)


def test_limit_between_soft_and_hard_is_named(box):
    done = started(box, "DATA", 150 * KIB, 300 * KIB)
    assert refused(done)
    assert done.stderr == (
        b"4.3.0 mail-filter: data (ulimit -d) is limited to 307200 bytes; raise it to 524288\n"
    )


def test_limits_are_checked_before_libc_begins(box):
    """The entry is mail_filter_entry, whose object needs nothing but _start."""
    if os.uname().machine not in ("x86_64", "aarch64"):
        pytest.skip("there is an entry for x86-64 and AArch64 alone")
    header = open(FILTER, "rb").read(32)
    entry = int.from_bytes(header[24:32], "little")
    names = subprocess.run(["nm", FILTER], capture_output=True, text=True).stdout
    assert f"{entry:016x} T mail_filter_entry" in names
    found = ROOT / "build" / "filter" / "mail" / "filter" / "limits.o"
    if not found.exists():
        pytest.skip("mail-filter was not built here")
    needed = subprocess.run(["nm", "-u", found], capture_output=True, text=True).stdout
    assert needed.split() == ["U", "_start"]


def test_ordinary_limits_change_nothing(box):
    done = box.run()
    assert done.returncode == 0 and box.mails() == [MARKED]
