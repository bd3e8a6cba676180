"""Writers of one file: many at a time, killed at any call, on a full disk. What one learned is not
lost, and the file is whole at any time.
"""

import os
import resource
import subprocess
import sys

import pytest
from conftest import BIN, ROOT
from learn_files import MAILS, SPAM
from test_identity import CALLS, TRACE, calls_of

from sluice.faults import Error
from sluice.learn import book, layout, writing

NAMES = "ash birch cedar elm fir hazel larch maple oak pine rowan yew ivy box gorse heath".split()

# teaches one text, whose answer and name are given, without a model; between the marks of calls_of
TEACH = f"""
import os, sys
sys.path.insert(0, {str(ROOT / "lib")!r})
import numpy, hashlib, fcntl
from sluice.learn import book, evidence, joint, layout, teach, writing
path, name, label = sys.argv[1], sys.argv[2].encode(), int(sys.argv[3])
key = b"modelone", b"question"
def change(found):
    part = found.parts.setdefault(key, book.Part(*key, 2, [1.5, 0.5, 0.0]))
    words = ["ash", "oak", sys.argv[2], "x:" + sys.argv[2]]
    lesson = teach.Lesson(name, label, [-0.1, -2.4], words)
    teach.Teacher(None, path).put(found, part, [lesson])
    part.fit()
os.access("/begin", 0)
writing.update(path, change)
os.access("/end", 0)
print("taught")
"""


def teach(path, name, label=0, *trace, **kwargs):
    argv = [*trace, sys.executable, "-S", "-c", SITE + TEACH, path, name, str(label)]
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, **kwargs)


SITE = f"import sys; sys.path += {[p for p in sys.path if p]!r}\n"


def names_in(path):
    """The names of the texts in a file that is whole: it is read, and a verdict can use it."""
    from sluice.learn import learned

    found = book.read(str(path))
    opened = layout.Opened(str(path))
    assert sum(s.n_texts for s in learned.sections(str(path), opened)) == found.n_texts
    digests = {d for part in found.parts.values() for d in part.texts}
    return {name for name in NAMES if found.salted.text(name.encode()) in digests}


@pytest.mark.full
def test_sixteen_writers_at_once_lose_nothing(taught):
    """The first of them makes the file, and all readers meanwhile find a whole one or none."""
    processes = [
        subprocess.Popen(
            [BIN / "classify", "--calibration", taught.path, "--learn", "no", "-j", "1"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for _ in NAMES
    ]
    for p, name in zip(processes, NAMES):
        p.stdin.write(f"Subject: about {name}\n\nThe text about {name}.\n".encode())
        p.stdin.close()
    while any(p.poll() is None for p in processes):
        if taught.path.exists():
            book.read(str(taught.path))
    assert [(p.stderr.read(), p.wait()) for p in processes] == [(b"", 0)] * len(NAMES)
    assert taught.n() == len(NAMES) == 16


@pytest.mark.full
def test_writers_and_forgetters_at_once(tmp_path):
    path = tmp_path / "f"
    running = [
        subprocess.Popen(
            [sys.executable, "-S", "-c", SITE + TEACH, path, name, str(n % 2)],
            stdout=subprocess.DEVNULL,
        )
        for n, name in enumerate(NAMES)
    ]
    assert [p.wait() for p in running] == [0] * len(NAMES)
    assert names_in(path) == set(NAMES)
    salt = book.read(str(path)).salt
    again = tmp_path / "again"
    empty = book.Book(salt)
    again.write_bytes(empty.dump())
    again.chmod(0o600)
    for n, name in reversed(list(enumerate(NAMES))):
        assert teach(again, name, n % 2).stdout == "taught\n"
    one, other = book.read(str(path)), book.read(str(again))
    for found in (one, other):
        for text in found.parts[b"modelone", b"question"].texts.values():
            text.date = 0
    assert one.dump() == other.dump()  # whoever came first


def test_learn_reports_a_lock_it_cannot_get(tmp_path, monkeypatch):
    monkeypatch.setattr(writing, "WAIT_S", 0.1)
    path = str(tmp_path / "f")
    held = pytest.raises(Error, match="another process has held the lock")
    with writing.locked(path), held as e, writing.locked(path):
        pass
    assert e.value.code == 75


def test_kill_at_any_call_leaves_the_old_file_or_the_new(strace, tmp_path):
    path, log = tmp_path / "d" / "f", tmp_path / "trace"
    assert teach(path, "ash").stdout == "taught\n"
    assert teach(path, "birch", 1, *TRACE, log, "-e", f"trace={CALLS},access").returncode == 0
    calls = calls_of(log.read_text())
    assert {"flock", "fsync", "write", "fchmod"} <= {name for name, _ in calls}
    kept, n_killed = names_in(path), 0
    assert kept == {"ash", "birch"}
    for n, (name, ordinal) in enumerate(calls):
        kill = "-e", f"trace={CALLS}", "-e", f"inject={name}:signal=SIGKILL:when={ordinal}"
        who = NAMES[2 + n % 14]
        done = teach(path, who, n % 2, *TRACE, "/dev/null", *kill)
        n_killed += done.returncode in (-9, 137)
        found = names_in(path)
        assert kept <= found <= kept | {who}, name
        assert done.returncode in (-9, 137) or who in found, name
        kept = found
    assert n_killed > len(calls) // 2
    # a lock ends with who held it, and nothing lies about
    assert teach(path, "ash", 1).stdout == "taught\n"
    assert sorted(p.name for p in path.parent.iterdir()) == ["f", "f.lock"]


@pytest.mark.parametrize("error", ["ENOSPC", "EIO"])
def test_whatever_call_fails_the_file_is_whole(strace, tmp_path, error):
    path, log = tmp_path / "d" / "f", tmp_path / "trace"
    assert teach(path, "ash").stdout == "taught\n"
    assert teach(path, "birch", 1, *TRACE, log, "-e", f"trace={CALLS},access").returncode == 0
    calls = calls_of(log.read_text())
    kept = names_in(path)
    for n, (name, ordinal) in enumerate(calls):
        inject = "-e", f"trace={CALLS}", "-e", f"inject={name}:error={error}:when={ordinal}"
        who = NAMES[2 + n % 14]
        done = teach(path, who, n % 2, *TRACE, "/dev/null", *inject)
        found = names_in(path)
        assert kept <= found <= kept | {who} and (who in found or done.returncode), name
        kept = found


def test_full_disk_leaves_the_old_file(taught):
    taught.learn("no")
    old = taught.path.read_bytes()
    full = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    done = taught.classify("--learn", "yes", *MAILS, preexec_fn=full)
    assert done.returncode in (74, 75) and done.stdout == b"" and done.stderr.count(b"\n") == 1
    assert taught.path.read_bytes() == old


def test_reset_empties_no_file_that_never_was_a_calibration(tmp_path, taught):
    taught.path = tmp_path / "letter"
    taught.path.write_bytes(b"Dear Ann,\n" * 99)
    done = taught.classify("--reset")
    assert (done.returncode, done.stdout, done.stderr.count(b"\n")) == (65, b"", 1)
    assert b"letter: line 1: is not the first line of a calibration" in done.stderr
    assert taught.path.read_bytes() == b"Dear Ann,\n" * 99


@pytest.mark.full
def test_unwritable_files_are_refused_in_one_line(tmp_path, taught):
    (tmp_path / "f").write_bytes(b"")
    (tmp_path / "link").symlink_to(tmp_path / "f")
    (tmp_path / "d").mkdir()
    for name, code in (("f/x", (73,)), ("d", (65, 73)), ("link", (65,))):
        taught.path = tmp_path / name
        for argv in ("--learn", "yes"), ("--reset",):
            done = taught.classify(*argv, input=SPAM)
            if argv == ("--reset",) and name == "f/x":
                assert done.returncode == 0  # nothing is there
                continue
            assert done.returncode in code and done.stdout == b"", (name, argv, done)
            assert done.stderr.count(b"\n") == 1
    assert os.listdir(tmp_path / "d") == [] and (tmp_path / "f").read_bytes() == b""
