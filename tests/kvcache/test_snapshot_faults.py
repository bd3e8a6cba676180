"""Snapshots where they may not lie, and where a call, a disk or a process fails: named whole, or
not at all.
"""

import errno
import os
import random
import stat
import subprocess
import sys
import time

import pytest
from snapshot_files import LARGE, MAKER, MODEL, SMALL, TESTS, load, make, python, refused, seal

from sluice.faults import Error
from sluice.kvcache import format
from sluice.kvcache.snapshot import Geometry, Snapshot
from sluice.system import files

# Where it may lie (S8).


def test_a_file_that_others_could_write_is_refused(tmp_path):
    path = seal(tmp_path / "a.kv")
    for mode in (0o620, 0o602, 0o666):
        path.chmod(mode)
        assert refused(path) == f"could have been written by other users: its mode is {mode:04o}"
    path.chmod(0o644)
    load(path)
    if os.geteuid() == 0:
        os.chown(path, 12345, -1)
        assert "is owned by user 12345" in refused(path)


def test_what_is_no_regular_file_is_refused(tmp_path):
    os.symlink(seal(tmp_path / "a.kv"), tmp_path / "link")
    assert "symbolic link" in refused(tmp_path / "link")
    os.mkfifo(tmp_path / "fifo")
    assert "not a regular file" in refused(tmp_path / "fifo")
    (tmp_path / "dir").mkdir()
    assert "not a regular file" in refused(tmp_path / "dir")
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "absent")


def test_only_a_regular_file_is_replaced(tmp_path):
    victim = tmp_path / "victim"
    victim.write_bytes(b"mine")
    os.symlink(victim, tmp_path / "link")
    os.symlink(tmp_path / "nowhere", tmp_path / "dangling")
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "dir").mkdir()
    before = sorted(os.listdir(tmp_path))
    for name, error in (
        ("link", "a symbolic link"),
        ("dangling", "a symbolic link"),
        ("fifo", "not a regular file"),
        ("dir", "a directory"),
    ):
        with pytest.raises(Error, match=error) as e:
            make(tmp_path).seal(tmp_path / name)
        assert e.value.code == 73 and sorted(os.listdir(tmp_path)) == before
    os.link(victim, tmp_path / "hard")
    make(tmp_path).seal(tmp_path / "hard")
    assert victim.read_bytes() == b"mine" and load(tmp_path / "hard").n_tok == 10


@pytest.mark.parametrize("directory", ["absent", "file", "/proc"])
def test_a_place_that_takes_no_files_is_73(tmp_path, directory):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(Error) as e:
        make(tmp_path / directory)
    assert e.value.code == 73
    with pytest.raises(Error) as e:
        make(tmp_path).seal(tmp_path / directory / "a.kv")
    assert e.value.code == 73 and os.listdir(tmp_path) == ["file"]


def test_a_file_beyond_63_bits_is_73(tmp_path):
    with pytest.raises(Error, match="more than a file can have") as e:
        Snapshot.create(
            Geometry(512, 1 << 20, 1024, 1, 768), 1 << 22, MODEL, "exact-2", str(tmp_path)
        )
    assert e.value.code == 73 and os.listdir(tmp_path) == []


# Failures on the way (S2 to S5, S9).


@pytest.fixture(params=["nameless", "temporary name"])
def naming(request, monkeypatch):
    """Both ways to write: O_TMPFILE, and as on a file system that has none."""
    if request.param == "temporary name":
        monkeypatch.delattr(os, "O_TMPFILE")
    return request.param


def test_both_ways_of_naming_give_the_file_and_nothing_else(tmp_path, naming):
    s = make(tmp_path)
    assert len(os.listdir(tmp_path)) == (naming != "nameless")
    s.seal(tmp_path / "a.kv")
    first = (tmp_path / "a.kv").read_bytes()
    seal(tmp_path / "a.kv", seed=2)
    assert os.listdir(tmp_path) == ["a.kv"] and (tmp_path / "a.kv").read_bytes() != first
    assert stat.S_IMODE(os.stat(tmp_path / "a.kv").st_mode) == 0o600
    make(tmp_path).close()
    assert os.listdir(tmp_path) == ["a.kv"]


@pytest.mark.parametrize("call", ["fsync", "link", "rename"])
@pytest.mark.parametrize(
    "error, code", [(errno.EIO, 74), (errno.ENOSPC, 75), (errno.EDQUOT, 75), (errno.EROFS, 74)]
)
def test_a_call_that_fails_leaves_the_old_file(tmp_path, naming, monkeypatch, call, error, code):
    call = "rename" if call == "link" and naming != "nameless" else call  # nothing is linked then
    path = seal(tmp_path / "a.kv")
    before = path.read_bytes()
    s = make(tmp_path, seed=2)

    def fail(*args, **kwargs):
        raise OSError(error, os.strerror(error))

    real = getattr(os, call)
    monkeypatch.setattr(os, call, fail)
    with pytest.raises(Error) as e:
        s.seal(path)
    assert e.value.code == (73 if code == 74 and call != "fsync" else code) and str(path) in str(
        e.value
    )
    monkeypatch.setattr(os, call, real)
    s.close()
    assert path.read_bytes() == before and os.listdir(tmp_path) == ["a.kv"]


@pytest.mark.parametrize("replaces", [False, True])
def test_all_is_synced_before_it_is_named_and_the_name_after(tmp_path, monkeypatch, replaces):
    path = seal(tmp_path / "a.kv") if replaces else tmp_path / "a.kv"
    events, real = [], {call: getattr(os, call) for call in ("fsync", "link", "rename")}

    def record(call):
        def wrapped(first, *args, **kwargs):
            if call == "fsync":
                is_file = stat.S_ISREG(os.fstat(first).st_mode)
                events.append("sync file" if is_file else "sync directory")
                if is_file:
                    format.read_header(first, "the file")  # it is complete by now
            else:
                events.append(call)
            return real[call](first, *args, **kwargs)

        return wrapped

    for call in real:
        monkeypatch.setattr(os, call, record(call))
    s = make(tmp_path, seed=2)
    s.seal(path)
    assert events == ["sync file", "link", *["link", "rename"] * replaces, "sync directory"]


@pytest.mark.parametrize("nameless", [True, False])
@pytest.mark.full
def test_kill_at_any_moment_leaves_old_or_new(tmp_path, nameless):
    path = seal(tmp_path / "a.kv")
    before, rng = path.read_bytes(), random.Random(4)
    code = "" if nameless else "del os.O_TMPFILE\n"
    code += (
        f"import pathlib\np = pathlib.Path({str(path)!r})\nprint(flush=True)\nwhile True: seal(p,"
        " seed=2)"
    )
    after = seal(tmp_path / "b.kv", seed=2).read_bytes()
    os.unlink(tmp_path / "b.kv")
    for _ in range(12):
        with python(code) as p:
            p.stdout.readline()
            time.sleep(rng.uniform(0, 0.03))
            p.kill()
        assert path.read_bytes() in (before, after)
        load(path)
    make(tmp_path).close()  # the next start sweeps what a dead one may have left
    assert os.listdir(tmp_path) == ["a.kv"]


def test_a_killed_writer_leaves_nothing(tmp_path):
    code = f"s = make({str(tmp_path)!r}, 600, 700, LARGE)\nprint(flush=True)\ntime.sleep(60)"
    with python(code) as p:
        assert p.stdout.readline() == b"\n"
        p.kill()
    assert os.listdir(tmp_path) == []


def test_leftovers_are_swept_and_files_at_work_are_not(tmp_path, monkeypatch):
    monkeypatch.delattr(os, "O_TMPFILE")
    at_work = make(tmp_path)
    leftover = tmp_path / ".sluice-0123456789abcdef.tmp"
    leftover.write_bytes(b"half")
    other = tmp_path / "mine.tmp"
    other.write_bytes(b"")
    make(tmp_path).close()
    assert not leftover.exists() and other.exists()
    at_work.seal(tmp_path / "a.kv")
    load(tmp_path / "a.kv")


def test_a_sweep_between_making_and_locking_costs_no_work(tmp_path, monkeypatch):
    """Without O_TMPFILE a name is there before its lock is: another writer may take it for a
    leftover.
    """
    import fcntl

    monkeypatch.delattr(os, "O_TMPFILE")
    lock, sweeps = fcntl.flock, []

    def late(fd, how):
        if len(sweeps) < 2:  # as a sweep that is done by now, or that holds the lock just now
            sweeps.append([os.unlink(p) for p in tmp_path.glob(".sluice-*")])
            if len(sweeps) == 2:
                raise BlockingIOError(errno.EWOULDBLOCK, "taken")
        return lock(fd, how)

    monkeypatch.setattr(fcntl, "flock", late)
    seal(tmp_path / "a.snap")
    assert len(sweeps) == 2 and os.listdir(tmp_path) == ["a.snap"]


def test_a_limit_on_file_size_is_an_error_and_no_signal(tmp_path):
    code = f"""
resource.setrlimit(resource.RLIMIT_FSIZE, (100000, 100000))
try:
    make({str(tmp_path)!r}, 600, 700, LARGE)
except Error as e:
    print(e.code, e)
"""
    with python(code) as p:
        out, err = p.communicate(timeout=60)
    assert p.returncode == 0 and out.startswith(b"73 ") and b"File too large" in out, err
    assert os.listdir(tmp_path) == []


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 8 MB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if (
        os.geteuid()
        or subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=8m", "none", disk], capture_output=True
        ).returncode
    ):
        pytest.skip("mount is not permitted: run as root")
    yield disk
    subprocess.run(["umount", "-l", disk], check=True)


def test_a_full_disk_is_75_at_every_fill(small_disk, naming):
    old = seal(small_disk / "old.kv", n_tok=2, capacity=4).read_bytes()
    outcomes = set()
    for kib in [*range(0, 7800, 300), *range(7800, 8192, 40)]:
        with open(small_disk / "ballast", "wb") as f:
            try:
                f.write(bytes(kib << 10))
                f.flush()
            except OSError:
                pass
        outcome = 0
        try:
            seal(small_disk / "old.kv", n_tok=80, capacity=90, geometry=LARGE)  # wants 1.3 MB
        except Error as e:
            outcome = e.code
            assert (
                (small_disk / "old.kv").read_bytes() == old
                and "No space left" in str(e)
                and str(e).startswith(str(small_disk))
            )
        else:
            load(small_disk / "old.kv", LARGE)
            (small_disk / "old.kv").write_bytes(old)
        outcomes.add(outcome)
        os.unlink(small_disk / "ballast") if (small_disk / "ballast").exists() else None
        assert os.listdir(small_disk) == ["old.kv"]
    assert outcomes == {0, 75}


@pytest.mark.parametrize("error", ["ENOSPC", "EIO"])
def test_a_fault_in_the_nth_call_never_tears(tmp_path, error, strace):
    path = seal(tmp_path / "a.kv")
    old = path.read_bytes()
    new = seal(tmp_path / "b.kv", seed=2).read_bytes()
    os.unlink(tmp_path / "b.kv")
    code = f"""
import pathlib
try:
    seal(pathlib.Path({str(path)!r}), seed=2)
    print("sealed")
except Error as e:
    print(e.code)
"""
    script = MAKER.format(tests=TESTS) + code
    calls = ["fallocate", "ftruncate", "fsync", "linkat", "rename", "fchmod"]
    log = tmp_path.parent / "strace.log"
    outcomes = set()
    for call in calls:
        for nth in (1, 2, 3, 7):
            r = subprocess.run(
                [
                    *strace,
                    "-f",
                    "-o",
                    log,
                    "-e",
                    f"trace={call}",
                    "-e",
                    f"inject={call}:error={error}:when={nth}",
                    sys.executable,
                    "-B",
                    "-c",
                    script,
                ],
                capture_output=True,
                timeout=60,
            )
            out = r.stdout.strip()
            injected = b"INJECTED" in log.read_bytes()
            outcomes.add((call, out))
            now = path.read_bytes()
            if out == b"sealed":
                assert now == new and not injected
                path.write_bytes(old)
            else:
                assert injected and out in (b"73", b"74", b"75"), (call, nth, r)
                assert now == old or call == "fsync" and nth == 2 and now == new
                path.write_bytes(old)
            assert os.listdir(tmp_path) == ["a.kv"], (call, nth)
            if not injected:
                break
    # each was made, and failed once
    assert {call for call, out in outcomes if out != b"sealed"} == set(calls)


@pytest.mark.full
def test_readers_see_whole_files_while_a_writer_replaces_them(tmp_path):
    path = seal(tmp_path / "a.kv", n_tok=20)
    reader = f"""
import pathlib
n = 0
while not os.path.exists({str(tmp_path / "stop")!r}):
    s = load(pathlib.Path({str(path)!r}))
    assert len(set((s.tokens[0] - s.tokens[i] + 7 * i) % 40 for i in range(20))) == 1
    s.close()
    n += 1
    if n == 1:
        print("begun", flush=True)
print(n)
"""
    readers = [python(reader) for _ in range(3)]
    assert [p.stdout.readline() for p in readers] == [b"begun\n"] * 3
    for i in range(250):
        seal(path, n_tok=20, seed=i)
    (tmp_path / "stop").write_bytes(b"")
    for p in readers:
        out, err = p.communicate(timeout=60)
        assert p.returncode == 0 and int(out) > 0, err


def test_a_file_cut_while_it_is_mapped_is_74_and_no_signal(tmp_path):
    path = seal(tmp_path / "a.kv", n_tok=300, capacity=400, geometry=LARGE)
    code = (
        f"import pathlib\ns = load(pathlib.Path({str(path)!r}), LARGE)\nos.truncate({str(path)!r},"
        " 8192)\ncontent(s)"
    )
    with python(code) as p:
        out, err = p.communicate(timeout=60)
    assert p.returncode == 74 and err.count(b"\n") == 1 and os.fsencode(path) in err, err


def test_more_snapshots_than_are_guarded_still_open(tmp_path):
    path = seal(tmp_path / "a.kv")
    opened = [load(path) for _ in range(80)]
    assert all(s.n_tok == 10 for s in opened)


def test_no_descriptor_and_no_map_stays_behind(tmp_path):
    path = seal(tmp_path / "a.kv")

    def held():
        with open("/proc/self/maps") as maps:
            return len(os.listdir("/proc/self/fd")), sum(
                ".kv" in line or "deleted" in line for line in maps
            )

    before = held()
    for seed in range(20):
        load(path).close()
        with pytest.raises(Error):
            load(path, arithmetic="other")
        s = make(tmp_path, seed=seed)
        s.seal(path)
        s.close()
    assert held() == before


def test_misuse_is_refused(tmp_path):
    s = make(tmp_path)
    with pytest.raises(ValueError, match="reserved"):
        s.n_tok = 11
        s.seal(tmp_path / "a.kv")
    with pytest.raises(ValueError, match="capacity"):
        s.n_tok = 51
    with pytest.raises(ValueError, match="capacity"):
        s.reserve(51)
    with pytest.raises(ValueError, match="KV type 2"):
        make(tmp_path, geometry=SMALL._replace(kv_type=2))
    with pytest.raises(ValueError, match="not a multiple of 32"):
        make(tmp_path, geometry=SMALL._replace(kv_type=8))
    assert os.listdir(tmp_path) == []


def test_a_file_that_is_cut_right_after_it_was_named_is_no_bug(tmp_path, monkeypatch):
    publish = files.publish
    monkeypatch.setattr(
        files, "publish", lambda fd, name, path: (publish(fd, name, path), os.truncate(path, 100))
    )
    with pytest.raises(Error) as e:
        seal(tmp_path / "s.kv")
    assert e.value.code == 74 and str(e.value) == f"{tmp_path}/s.kv: cut while it was in use"
