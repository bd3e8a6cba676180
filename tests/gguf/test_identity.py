"""What a model is: every byte counts, a digest that was kept is another file's never, and no
trouble with keeping it shows."""

import errno
import fcntl
import hashlib
import mmap
import os
import random
import resource
import shutil
import signal
import struct
import subprocess
import sys
import time
from functools import partial

import llama2c_writer
import numpy as np
import pytest
from blake3 import blake3
from conftest import BIN, ROOT, START, run, wait_for
from gguf_writer import F32, Q8_0, f32, gguf_bytes, q8_0, write_gguf
from tiny_model import write_model

from sluice import gguf
from sluice.faults import Error
from sluice.gguf import identity, model_file
from sluice.gguf.metadata import Unread
from sluice.gguf.part import Part
from sluice.system import cache_directory

SPAM = ROOT / "lib" / "sluice" / "data" / "spam.gguf"
TICK_NS = 50_000_000  # longer than any clock tick of the file systems that tests run on


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """A directory for digests, in which one is kept of a file that was left alone for TICK_NS."""
    monkeypatch.setattr(identity, "SETTLED_NS", TICK_NS)
    return tmp_path / "cache" / "sluice"


@pytest.fixture
def hashed(monkeypatch):
    """The paths of the files that were hashed, in order."""
    paths, real = [], identity._hash

    def hash(part):
        paths.append(part.path)
        return real(part)

    monkeypatch.setattr(identity, "_hash", hash)
    return paths


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "m.gguf"
    write_model(str(path), type="q8_0", n_layer=1, n_vocab=400)
    settle(path)
    return path


def settle(path):
    while time.time_ns() - os.stat(path).st_ctime_ns < TICK_NS:
        time.sleep(0.01)


def part_of(path):
    """The file at `path`, any file, as a part of a model."""
    return Part(str(path), 1, "a")


def id_of(path, cache):
    file = gguf.File(str(path))
    file.id_cache = cache and str(cache)
    return file.id


def truth(path):
    return blake3(path.read_bytes()).digest()


def entries(cache):
    return sorted(name for name in os.listdir(cache)) if cache.exists() else []


def flip(path, at):
    """Change a byte in place."""
    with open(path, "r+b") as f:
        f.seek(at)
        byte = f.read(1)[0]
        f.seek(at)
        f.write(bytes([byte ^ 1 << random.Random(at).randrange(8)]))


def set_mtime_back(path, then):
    os.utime(path, ns=(then.st_atime_ns, then.st_mtime_ns))


# Every byte.


def test_hash_is_blake3_as_published():
    """Digests from the paper's reference implementation."""
    for data, digest in (
        (b"", "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"),
        (b"abc", "6437b3ac38465133ffb63b75273a8db548c558465d79db03fd359c6cd5bd9d85"),
    ):
        assert blake3(data).hexdigest() == digest


def test_id_is_the_blake3_of_the_file_and_not_of_its_name(model, tmp_path):
    shutil.copy(model, tmp_path / "b.gguf")
    assert id_of(model, None) == id_of(tmp_path / "b.gguf", None) == truth(model)


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize(
    "n_bytes",
    [32, 4095, 4096, (1 << 16) + 1, identity.WINDOW - 1, identity.WINDOW, identity.WINDOW + 1],
)
def test_id_does_not_depend_on_how_a_file_is_cut_into_windows(tmp_path, n_bytes):
    data = np.random.default_rng(n_bytes).bytes(n_bytes)
    (tmp_path / "f").write_bytes(data)
    part = part_of(tmp_path / "f")
    assert identity.of([part], None) == blake3(data).digest()
    assert identity.of([part, part], None) != identity.of([part], None)


@pytest.mark.quick_cases(1)
def test_each_of_1000_bytes_of_a_made_model_changes_its_id(model, cache):
    """And so it does when the id before was kept."""
    draw, size, known, n_read = random.Random(1), model.stat().st_size, {id_of(model, cache)}, 0
    for n, at in enumerate(draw.sample(range(size), 1000)):
        flip(model, at)
        known.add(identity.of([part_of(model)], str(cache)))
        assert len(known) == n + 2, at
        try:
            n_read += id_of(model, cache) in known
        except Error:  # it is no model any more
            pass
        flip(model, at)
    assert n_read > 500 and id_of(model, cache) in known and len(known) == 1001


@pytest.mark.parametrize("name", ["smollm2", "gemma3"])
@pytest.mark.full
def test_each_of_1000_bytes_of_a_real_model_changes_its_id(name, request, tmp_path):
    """24 bytes of the whole file, the ends of windows among them; 1,000 of a file of its first and
    last 4 MiB, as hashing all of a real file 1,000 times takes minutes."""
    draw, path = random.Random(2), request.getfixturevalue(name)
    whole = tmp_path / "whole.gguf"
    shutil.copyfile(path, whole)
    size, known = whole.stat().st_size, {id_of(whole, None)}
    places = {0, 5, size - 1, identity.WINDOW - 1, identity.WINDOW}
    places |= {draw.randrange(size) for _ in range(19)}
    with open(whole, "r+b") as f, mmap.mmap(f.fileno(), size) as m:
        for n, at in enumerate(sorted(places)):
            m[at] ^= 0x10
            known.add(identity.of([part_of(whole)], None))
            assert len(known) == n + 2, at
            m[at] ^= 0x10
    ends = tmp_path / "ends"
    with open(path, "rb") as f:
        ends.write_bytes(f.read(4 << 20) + os.pread(f.fileno(), 4 << 20, size - (4 << 20)))
    with open(ends, "r+b") as f, mmap.mmap(f.fileno(), 8 << 20) as m:
        for n in range(1000):
            at = draw.randrange(8 << 20)
            m[at] ^= 1 << draw.randrange(8)
            known.add(identity.of([part_of(ends)], None))
            assert len(known) == len(places) + n + 2, at
            # left as it is: the next id differs from those of all states before


def test_id_changes_with_every_part_of_a_file(tmp_path):
    weights = np.random.default_rng(1).standard_normal((4, 32))
    tensors = [("a", F32, (32, 4), f32(weights)), ("b", Q8_0, (32, 4), q8_0(weights))]
    path = tmp_path / "a.gguf"
    write_gguf(path, {"general.architecture": ("string", "llama")}, tensors)
    data, tokens = path.read_bytes(), {truth(path)}
    places = [t.offset + t.n_bytes - 1 for t in gguf.File(str(path)).tensors.values()]
    changed = [data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :] for at in places]
    for n, other in enumerate((data + b"\0", data.replace(b"llama", b"lIama"), *changed)):
        path.write_bytes(other)
        tokens.add(id_of(path, None))
        assert len(tokens) == n + 2


def test_llama2c_checkpoint_and_tokenizer_are_both_covered(tmp_path, hashed, cache):
    m = llama2c_writer.model()
    contents = {"v1": llama2c_writer.checkpoint(m, 1), "tok": llama2c_writer.tokenizer(300)}
    for name, data in contents.items():
        (tmp_path / name).write_bytes(data)
    settle(tmp_path / "tok")

    def id_now():
        file = model_file.open_model(str(tmp_path / "v1"), str(tmp_path / "tok"))
        file.id_cache = str(cache)
        return file.id

    known = {id_now()}
    assert id_now() in known and len(hashed) == 1 and truth(tmp_path / "v1") not in known
    last = {name: len(data) - 1 for name, data in contents.items()}
    places = ("v1", 300), ("v1", last["v1"]), ("tok", 0), ("tok", 4), ("tok", last["tok"])
    for n, (name, at) in enumerate(places):
        flip(tmp_path / name, at)
        known.add(id_now())
        assert len(known) == n + 2, (name, at)


def test_files_of_a_model_count_in_their_order(tmp_path):
    for i in range(3):
        (tmp_path / str(i)).write_bytes(bytes([i]) * 100)
    a, b, c = (part_of(tmp_path / str(i)) for i in range(3))
    several = [[a], [b], [a, b], [b, a], [a, b, c], [a, c, b], [a, a]]
    assert len({identity.of(parts, None) for parts in several}) == len(several)
    assert identity.of([a], None, [bytes([1]) * 100]) == identity.of([a, b], None)


# A digest that was kept.


def test_model_is_hashed_once(model, cache, hashed):
    assert id_of(model, cache) == truth(model) and len(hashed) == 1
    (name,) = entries(cache)
    assert [os.stat(p).st_mode & 0o7777 for p in (cache, cache / name)] == [0o700, 0o600]
    assert id_of(model, cache) == truth(model) and len(hashed) == 1
    s = model.stat()
    assert (cache / name).read_text().split()[:7] == [
        "#model-id",
        "1",
        *map(str, (s.st_dev, s.st_ino, s.st_size, s.st_mtime_ns, s.st_ctime_ns)),
    ]


@pytest.mark.full
def test_another_process_takes_what_was_kept(tmp_path):
    """A file as a command sees it, with the clock tick of real life."""
    shutil.copy(SPAM, tmp_path / "m.gguf")
    time.sleep(identity.SETTLED_NS / 1e9 + 0.1)
    env = {"XDG_CACHE_HOME": str(tmp_path / "c")}
    tokens = {importing("blake3", "tokenize", "-m", tmp_path / "m.gguf", env=env) for _ in range(2)}
    assert {has for has, _ in tokens} == {True, False} and len({out for _, out in tokens}) == 1


def test_id_cache_of_none_keeps_nothing(model, cache, hashed):
    assert id_of(model, None) == id_of(model, None) and len(hashed) == 2 and not cache.exists()


def write_in_place(path):
    flip(path, path.stat().st_size - 7)


def write_anew(path):
    data = path.read_bytes()
    path.write_bytes(data[:-7] + b"changed")


def store_in_a_map(path):
    with open(path, "r+b") as f, mmap.mmap(f.fileno(), 0) as m:
        m[-7:] = b"changed"


def replace(path):
    other = path.with_suffix(".new")
    shutil.copy2(path, other)
    flip(other, path.stat().st_size - 7)
    os.utime(other, ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns))
    os.replace(other, path)


def remove_and_make(path):
    """With the inode number of the one before, if the file system gives it again."""
    data = path.read_bytes()
    path.unlink()
    path.write_bytes(data[:-7] + b"changed")


def clone_over(path):
    other = path.with_suffix(".new")
    shutil.copy2(path, other)
    flip(other, path.stat().st_size - 7)
    size = path.stat().st_size
    with open(other, "rb") as a, open(path, "r+b") as b:
        assert os.copy_file_range(a.fileno(), b.fileno(), size) == size


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize("is_settled", [True, False])
@pytest.mark.parametrize(
    "change", [write_in_place, write_anew, store_in_a_map, replace, remove_and_make, clone_over]
)
def test_identity_changes_if_mtime_is_set_back(model, cache, change, is_settled):
    before, known = model.stat(), id_of(model, cache)
    assert len(entries(cache)) == 1
    change(model)
    set_mtime_back(model, before)
    if is_settled:
        settle(model)
    assert (model.stat().st_size, model.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    assert id_of(model, cache) == truth(model) != known
    assert id_of(model, cache) == truth(model)


def test_identity_cache_has_an_entry_for_each_copy(model, cache, tmp_path, hashed):
    known, copy = id_of(model, cache), tmp_path / "copy.gguf"
    shutil.copy2(model, copy)
    settle(copy)
    assert id_of(copy, cache) == known and len(hashed) == 2 and len(entries(cache)) == 2
    write_in_place(copy)
    set_mtime_back(copy, model.stat())
    assert id_of(copy, cache) == truth(copy) != known == id_of(model, cache)


def test_names_of_one_file_share_what_was_kept(model, cache, tmp_path, hashed):
    os.link(model, tmp_path / "hard.gguf")  # which sets ctime
    os.symlink(model, tmp_path / "soft.gguf")
    settle(model)
    names = model, tmp_path / "hard.gguf", tmp_path / "soft.gguf"
    assert len({id_of(name, cache) for name in names}) == len(hashed) == 1


# Within a clock tick.


def test_identity_of_a_just_changed_file_is_not_cached(model, cache, hashed):
    os.utime(model)
    assert id_of(model, cache) == truth(model) and entries(cache) == []
    settle(model)
    assert id_of(model, cache) == truth(model) and len(entries(cache)) == 1 and len(hashed) == 2


def test_identity_of_a_file_with_future_mtime_is_not_cached(model, cache, monkeypatch):
    """A clock that was set back: what changes until it is there again could have any ctime."""
    now = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: now() - 3600 * 10**9)
    assert id_of(model, cache) == truth(model) and entries(cache) == []


def test_identity_tick_is_longer_than_that_of_file_systems():
    assert identity.SETTLED_NS > 2e9


def test_changes_in_quick_succession_are_all_seen(model, cache):
    """As fast as they can be made, mtime set back each time; ctime may be the same for many."""
    before, draw = model.stat(), random.Random(3)
    for _ in range(300):
        flip(model, draw.randrange(5000, before.st_size))
        set_mtime_back(model, before)
        id_of_parsed = identity.of([part_of(model)], str(cache))
        assert id_of_parsed == truth(model)
    settle(model)
    assert identity.of([part_of(model)], str(cache)) == truth(model)


def test_without_the_wait_a_change_within_the_tick_would_be_missed(model, cache, monkeypatch):
    """What the wait is for, on a clock that stands still: the same five numbers, other bytes."""
    monkeypatch.setattr(identity, "_key", lambda s: (s.st_dev, s.st_ino, s.st_size, 1, 1))
    monkeypatch.setattr(identity, "SETTLED_NS", 3600 * 10**9)
    for _ in range(2):
        assert id_of(model, cache) == truth(model)
        write_in_place(model)
    monkeypatch.setattr(identity, "SETTLED_NS", 0)
    known = id_of(model, cache)
    write_in_place(model)
    assert id_of(model, cache) == known != truth(model)  # this test can tell


def test_store_into_a_dirty_page_is_seen_without_leases(model, cache, monkeypatch):
    """The kernel sets ctime when a clean page of a shared map is written, not for what is stored
    there until it is written back."""
    monkeypatch.setattr(identity, "_has_writer", lambda fd: False)
    if subprocess.check_output(["stat", "-f", "-c", "%T", model], text=True).strip() == "tmpfs":
        pytest.skip("tmpfs: stores through a map set no ctime there, as the module says")
    with open(model, "r+b") as f, mmap.mmap(f.fileno(), 0) as m:
        m[-7] ^= 1
        settle(model)
        known = id_of(model, cache)
        assert known == truth(model) and len(entries(cache)) == 1
        m[-7] ^= 2
        assert id_of(model, cache) == truth(model) != known


def open_to_write(path):
    return open(path, "r+b")


def open_a_shared_map(path):
    with open(path, "r+b") as f:
        return mmap.mmap(f.fileno(), 0)


@pytest.mark.skipif(not hasattr(fcntl, "F_SETLEASE"), reason="leases are Linux's")
@pytest.mark.parametrize("begin", [open_to_write, open_a_shared_map])
def test_identity_of_a_file_open_for_writing_is_not_cached(model, cache, begin, hashed):
    """One write of many pages sets ctime first and stores the last page long after."""
    with begin(model):
        settle(model)
        assert id_of(model, cache) == id_of(model, cache) == truth(model)
        assert len(hashed) == 2 and entries(cache) == []
    assert id_of(model, cache) == truth(model) and len(entries(cache)) == 1


@pytest.mark.quick_cases(1)
def test_opening_a_leased_file_for_writing_kills_no_process(model):
    """A lease that somebody breaks is told by a signal, which must not be SIGIO."""
    end = time.monotonic() + 0.5
    part = part_of(model)
    script = "import sys\nfor _ in range(20000): open(sys.argv[1], 'r+b').close()"
    writer = subprocess.Popen([sys.executable, "-c", script, model])
    found = set()
    while writer.poll() is None or time.monotonic() < end:
        found.add(identity._has_writer(part.fd))
    assert writer.returncode == 0 and found == {False, True}


def test_identity_of_an_unsyncable_file_is_not_cached(model, cache, monkeypatch, hashed):
    def fail(fd):
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr(os, "fdatasync", fail)
    error = errno.EIO
    assert id_of(model, cache) == truth(model) and entries(cache) == []
    error = errno.EROFS  # a disk that is only read has nothing to sync
    assert id_of(model, cache) == truth(model) and len(entries(cache)) == 1


# While it is hashed.


def test_model_changed_before_or_during_hashing_is_refused(model, cache, monkeypatch):
    real = identity._hash
    file = gguf.File(str(model))
    file.id_cache = str(cache)
    write_in_place(model)
    with pytest.raises(Error, match="m.gguf: the file was changed while it was in use") as e:
        file.id
    assert e.value.code == 74 and entries(cache) == []
    settle(model)
    file = gguf.File(str(model))
    file.id_cache = str(cache)
    monkeypatch.setattr(identity, "_hash", lambda part: (real(part), write_in_place(model))[0])
    with pytest.raises(Error, match="changed while it was in use"):
        file.id
    assert entries(cache) == []


def test_model_replaced_during_hashing_keeps_the_opened_identity(
    model, cache, monkeypatch, tmp_path
):
    """Models are replaced by rename, which changes the ctime of the open one, and no byte of it."""
    real, expected, new = identity._hash, truth(model), tmp_path / "new"
    shutil.copy(SPAM, new)
    monkeypatch.setattr(identity, "_hash", lambda part: (real(part), os.replace(new, model))[0])
    file = gguf.File(str(model))
    file.id_cache = str(cache)
    assert file.id == expected and entries(cache) == []
    monkeypatch.undo()
    assert id_of(model, None) == truth(SPAM)


HASH_IT = f"""
import os, sys
sys.path[:0] = [{str(ROOT / "lib")!r}]
from sluice import cli
from sluice.gguf import identity
from sluice.gguf.metadata import Unread
from sluice.gguf.part import Part
import blake3, fcntl, mmap, threading, sluice.system.cpus
path, directory = sys.argv[1:3]
identity.SETTLED_NS = {TICK_NS}
def main():
    part = Part(path, 1, "a")
    os.access("/begin", 0)
    digest = identity.of([part], directory)
    os.access("/end", 0)
    print(digest.hex())
try:
    main()
except BaseException as e:
    sys.argv[0] = "hash"
    os._exit(cli.code_of(e))
"""


def hashing(path, directory, script=HASH_IT):
    """The command that hashes a file, keeps the digest in `directory` and prints it."""
    script = f"import sys; sys.path += {sys.path!r}\n{script}"
    return [sys.executable, "-S", "-c", script, path, directory]


def hash_it(path, directory, *before, script=HASH_IT, **kwargs):
    return subprocess.run(
        [*before, *hashing(path, directory, script)],
        capture_output=True,
        text=True,
        timeout=120,
        **kwargs,
    )


def piped(command):
    """The process of `command`, which an interrupt ends: in a background job, as those of CI are,
    it would be ignored."""
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def test_model_truncated_during_hashing_is_a_one_line_error(tmp_path):
    """A hole of 16 GB takes seconds to hash."""
    path = tmp_path / "hole"
    with open(path, "wb") as f:
        f.truncate(16 << 30)
    settle(path)
    process = piped(hashing(path, tmp_path / "c"))
    wait_for(lambda: str(path) in open(f"/proc/{process.pid}/maps").read(), "map")
    os.truncate(path, 4096)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 74 and out == "" and err.count("\n") == 1
    assert str(path) in err and ("cut" in err or "changed" in err) and entries(tmp_path / "c") == []


def test_interrupt_ends_hashing_soon(tmp_path):
    path = tmp_path / "hole"
    with open(path, "wb") as f:
        f.truncate(64 << 30)
    process = piped(hashing(path, tmp_path / "c"))
    wait_for(lambda: str(path) in open(f"/proc/{process.pid}/maps").read(), "map")
    process.send_signal(signal.SIGINT)
    began = time.monotonic()
    assert process.wait(timeout=60) == -signal.SIGINT and process.stderr.read() == ""
    assert time.monotonic() - began < 10


# Entries that are not to be believed.


def kept(model, cache):
    known = id_of(model, cache)
    (name,) = entries(cache)
    return known, cache / name


@pytest.mark.quick_cases(1)
def test_damaged_identity_entry_is_ignored(model, cache, hashed):
    known, path = kept(model, cache)
    good = path.read_bytes()
    spoilt = [good[:n] for n in range(len(good))]
    spoilt += [good + b"\n", good + good, b"\0" * len(good), b"x" * (1 << 20)]
    for at in range(len(good)):
        spoilt += [
            good[:at] + bytes([good[at] ^ 1 << bit]) + good[at + 1 :] for bit in (0, 4, 5, 7)
        ]
    part = part_of(model)
    for n, data in enumerate(spoilt):
        path.write_bytes(data)
        assert identity._recall(str(cache), part.stat) is None, data
    assert id_of(model, cache) == known and path.read_bytes() == good and len(hashed) == 2


def test_identity_entry_of_another_file_or_time_is_not_used(model, cache, tmp_path):
    known, path = kept(model, cache)
    other = tmp_path / "other.gguf"
    shutil.copy2(model, other)
    write_in_place(other)
    set_mtime_back(other, model.stat())
    settle(other)
    theirs = id_of(other, cache)
    (name,) = set(entries(cache)) - {path.name}
    old = path.read_bytes()
    shutil.copyfile(cache / name, path)
    assert id_of(model, cache) == known != theirs and path.read_bytes() == old
    write_in_place(model)
    settle(model)
    assert id_of(model, cache) == truth(model)
    path.write_bytes(old)  # as a backup of the cache would bring it back
    assert id_of(model, cache) == truth(model) != known


def test_identity_entry_that_is_not_a_private_regular_file_is_not_read(model, cache):
    known, path = kept(model, cache)
    wrong = identity._entry(model.stat(), bytes(32))
    path.write_bytes(wrong)
    assert id_of(model, cache) == bytes(32)  # so it would be believed
    path.chmod(0o620)
    assert id_of(model, cache) == known
    path.write_bytes(wrong)
    if os.geteuid() == 0:
        os.chown(path, 12345, -1)
        assert id_of(model, cache) == known
    for make in (os.mkdir, os.mkfifo, lambda p: os.symlink(cache / "wrong", p)):
        path.unlink()
        (cache / "wrong").write_bytes(wrong)
        make(path)
        assert id_of(model, cache) == known
        path.rmdir() if path.is_dir() else path.unlink()
        path.write_bytes(b"")


def test_identity_cache_writable_by_others_is_not_used(model, cache):
    known, path = kept(model, cache)
    path.write_bytes(identity._entry(model.stat(), bytes(32)))
    for mode in (0o770, 0o707, 0o777):
        cache.chmod(mode)
        assert id_of(model, cache) == known
    cache.chmod(0o700)
    if os.geteuid() == 0:
        os.chown(cache, 12345, -1)
        assert id_of(model, cache) == known
        os.chown(cache, 0, -1)
    assert id_of(model, cache) == bytes(32)  # so it would be believed


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("where", ["", "/proc/1/sluice", "/dev/null/sluice"])
def test_without_a_place_a_file_is_hashed_each_time(model, hashed, where, cache):
    assert [id_of(model, where) for _ in range(3)] == 3 * [truth(model)] and len(hashed) == 3


def test_no_home_is_no_place(model, monkeypatch, tmp_path):
    monkeypatch.delenv("XDG_CACHE_HOME")
    for home in ("", ".", "relative/home", str(tmp_path / "absent")):
        monkeypatch.setenv("HOME", home)
        assert cache_directory.home() is gguf.File(str(model)).id_cache is None
    assert not (tmp_path / "absent").exists()


def test_entries_are_bounded(model, cache, monkeypatch, tmp_path):
    monkeypatch.setattr(identity, "MAX_ENTRIES", 5)
    (cache).mkdir(mode=0o700, parents=True)
    (cache / "notes.txt").write_text("not ours")
    copies = [tmp_path / f"{i}.gguf" for i in range(9)]
    for copy in copies:
        shutil.copy(model, copy)
    settle(copies[-1])
    for copy in copies:
        id_of(copy, cache)
        time.sleep(0.02)
        assert len(entries(cache)) <= 6
    of_the_last = {os.path.basename(identity._path(cache, c.stat())) for c in copies[-5:]}
    assert set(entries(cache)) == of_the_last | {"notes.txt"}


# Errors, kills and crowds.

CALLS = (
    "openat,open,fstat,newfstatat,stat,statx,lstat,mkdir,write,link,linkat,rename,renameat,"
    "fchmod,flock,fdatasync,fsync,getdents64,mmap,read,close,unlink,madvise"
)
TRACE = ("strace", "-f", "-qq", "-o")


def calls_of(trace):
    """(name, ordinal among calls of that name) of each call between the marks."""
    counts, found, is_within = {}, [], False
    for line in trace.splitlines():
        call = line.split(None, 1)[-1] if line.split(None, 1)[0].isdigit() else line
        name = call.partition("(")[0]
        if name == "access":
            is_within = '"/begin"' in call or is_within and '"/end"' not in call
            continue
        if not name.isidentifier():
            continue
        counts[name] = counts.get(name, 0) + 1
        if is_within:
            found.append((name, counts[name]))
    return found


@pytest.mark.parametrize("error", ["ENOSPC", "EIO"])
def test_whatever_call_fails_the_id_is_right_or_there_is_one_line(strace, model, tmp_path, error):
    """Each system call between the marks fails once. A failed reading of the model itself may end
    in 74 or 75, all else changes nothing."""
    log, right = tmp_path / "trace", truth(model).hex() + "\n"

    def traced(directory, *options):
        return hash_it(model, directory, *TRACE, log, "-e", f"trace={CALLS},access", *options)

    assert traced(tmp_path / "c").stdout == right and len(entries(tmp_path / "c")) == 1
    calls = calls_of(log.read_text())
    assert {"mkdir", "fdatasync", "mmap", "write"} <= {name for name, _ in calls}
    assert len(calls) > 20
    ended = []
    for n, (name, ordinal) in enumerate(calls):
        directory = tmp_path / f"c{n}"
        done = traced(directory, "-e", f"inject={name}:error={error}:when={ordinal}")
        if done.returncode:
            assert done.returncode in (66, 74, 75) and done.stdout == "", (name, done.stderr)
            assert done.stderr.count("\n") == 1, (name, done.stderr)
            ended.append(name)
        else:
            assert (done.stdout, done.stderr) == (right, ""), name
        assert hash_it(model, directory).stdout == right  # whatever was left there
    assert set(ended) <= {"fstat", "newfstatat", "mmap"}


def test_identity_is_correct_on_a_full_disk(strace, model, tmp_path):
    """From the first write on, all fail."""
    right = truth(model).hex() + "\n"
    full = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1, 1))
    for calls in ("mkdir", "linkat", "fchmod"):
        inject = "-e", f"trace={calls}", "-e", f"inject={calls}:error=ENOSPC"
        done = hash_it(model, tmp_path / "c", *TRACE, "/dev/null", *inject)
        assert (done.stdout, done.stderr) == (right, "") and entries(tmp_path / "c") == []
    done = hash_it(model, tmp_path / "c", preexec_fn=full)  # a file may have one byte
    assert (done.stdout, done.stderr) == (right, "") and entries(tmp_path / "c") == []


def test_killed_hashing_leaves_a_whole_entry_or_none(strace, model, tmp_path):
    log = tmp_path / "trace"
    hash_it(model, tmp_path / "c", *TRACE, log, "-e", f"trace={CALLS},access")
    calls = calls_of(log.read_text())
    n_killed = 0
    for n, (name, ordinal) in enumerate(calls):
        directory = tmp_path / f"c{n % 3}"  # with what others left: it may not come to this call
        kill = "-e", f"trace={CALLS}", "-e", f"inject={name}:signal=SIGKILL:when={ordinal}"
        done = hash_it(model, directory, *TRACE, "/dev/null", *kill)
        n_killed += done.returncode in (-9, 137)
        assert done.returncode in (-9, 137) or done.stdout == truth(model).hex() + "\n", name
        for name in entries(directory):
            assert name.endswith(".id") and (directory / name).stat().st_size > 100
        if n % 4 == 3:
            assert hash_it(model, directory).stdout == truth(model).hex() + "\n"
            shutil.rmtree(directory)
    assert n_killed > len(calls) // 2


CROWD = f"""
import sys
sys.path += {sys.path!r}
import test_identity as t
t.identity.SETTLED_NS, t.identity.MAX_ENTRIES = {TICK_NS}, 3
from pathlib import Path
directory, seed = Path(sys.argv[1]), int(sys.argv[2])
draw = t.random.Random(seed)
for _ in range(150):
    path = directory / f"{{draw.randrange(6)}}.gguf"
    assert t.identity.of([t.part_of(path)], str(directory / "cache")) == t.truth(path)
"""


@pytest.mark.full
def test_many_processes_hash_at_once(model, tmp_path):
    for i in range(6):
        shutil.copy(model, tmp_path / f"{i}.gguf")
        flip(tmp_path / f"{i}.gguf", 6000 + i)
    settle(tmp_path / "5.gguf")
    crowd = [piped([sys.executable, "-c", CROWD, tmp_path, seed]) for seed in "1234"]
    for p in crowd:
        err = p.communicate(timeout=120)[1]
        assert p.returncode == 0, err
    left = entries(tmp_path / "cache")
    assert all(name.endswith(".id") for name in left) and 1 <= len(left) <= 6


def test_hashing_works_without_further_threads(tmp_path):
    if os.geteuid():
        pytest.skip("needs root")
    path = tmp_path / "hole"
    with open(path, "wb") as f:
        f.truncate(identity.THREADS_FROM)
    poor = "import resource; resource.setrlimit(resource.RLIMIT_NPROC, (0, 0)); os.setuid(65534)"
    script = HASH_IT.replace("    digest =", f"    {poor}\n    digest =")
    done = hash_it(path, "/dev/null/absent", script=script)
    assert (done.stdout, done.stderr) == (truth(path).hex() + "\n", "")


@pytest.mark.full
def test_hashing_a_large_file_needs_little_address_space(tmp_path):
    path = tmp_path / "hole"
    with open(path, "wb") as f:
        f.truncate(1 << 30)

    def limit():
        resource.setrlimit(resource.RLIMIT_AS, (900 << 20,) * 2)

    done = hash_it(path, tmp_path / "c", preexec_fn=limit)
    assert done.returncode == 0 and done.stderr == "" and len(done.stdout) == 65


# In the page cache.


def test_uncached_model_is_read_in_large_pages(model, monkeypatch):
    asked = []
    monkeypatch.setattr(identity.huge_pages, "ask", lambda memory: asked.append(len(memory)))
    id_of(model, None)
    assert asked == [model.stat().st_size]


# Which commands compute it.


def importing(module, tool, *argv, input=b"Some words", env=(), cwd=None):
    """(whether the command loaded `module`, its stdout)."""
    command = [sys.executable, "-I", "-X", "importtime", START, BIN / tool, *argv]
    done = subprocess.run(
        command,
        input=input,
        capture_output=True,
        timeout=60,
        cwd=cwd,
        env={**os.environ, **dict(env)},
    )
    assert done.returncode in (0, 1, 2), done.stderr[-500:]
    return f" {module}\n".encode() in done.stderr, done.stdout


@pytest.mark.full
def test_only_commands_that_need_it_compute_it(tmp_path):
    model = tmp_path / "m.gguf"
    write_model(str(model), type="q8_0", n_layer=1, n_vocab=400, n_ctx=128)
    look = partial(
        importing, "sluice.gguf.identity", cwd=tmp_path, env={"XDG_CACHE_HOME": str(tmp_path / "c")}
    )
    needs = lambda *argv, **how: look(*argv, **how)[0]
    assert not needs("generate", "-m", model, "-n", "2", "-S", "1")
    assert needs("generate", "-m", model, "-n", "2", "-S", "1", "-o", "g.snap")
    assert needs("generate", "-m", model, "-n", "2", "-S", "1", "-s", "g.snap", input=b"")
    has, tokens = look("tokenize", "-m", model)
    assert has and needs("tokenize", "-m", model, "-d", input=tokens)
    assert needs("prefill", "-m", model, "-o", "p.snap", input=tokens)
    text = b"Some words " * 20
    assert not needs("perplexity", "-m", model, "-c", "8", input=text)
    assert needs("perplexity", "-m", model, "-c", "8", "--save-logits", "l", input=text)
    mail = (ROOT / "tests" / "mails" / "ham-apt.eml").read_bytes()
    assert not needs("classify", "--mail", input=mail)
    assert needs("classify", "--long", "--mail", "--no-cache", input=mail)
    assert needs("gguf-dump", model) and not needs("gguf-dump", model, "general.architecture")


@pytest.mark.full
def test_cache_option_and_no_cache_are_obeyed(tmp_path):
    """`--cache DIR` has the id as well as all else, `--no-cache` keeps none."""
    shutil.copy(SPAM, tmp_path / "m.gguf")
    time.sleep(identity.SETTLED_NS / 1e9 + 0.1)
    env = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "x")}
    for argv in (["--no-cache"], ["--cache", tmp_path / "c"]):
        argv = "--long", "-m", tmp_path / "m.gguf", *argv
        done = run("classify", *argv, input=b"Subject: a\n\nb\n", env=env)
        assert done.stdout.split()[3] == truth(SPAM)[:8].hex().encode()
    assert len([name for name in entries(tmp_path / "c") if name.endswith(".id")]) == 1
    assert not (tmp_path / "x").exists()


# What it was called before.


def test_earlier_id_is_what_it_was():
    """Of the spam model as it was first published, whose page says 8af9fe374fbc5cc7."""
    assert gguf.File(str(SPAM)).earlier_id[:8].hex() == "8af9fe374fbc5cc7"


def test_earlier_id_is_of_size_head_and_samples(model):
    file, data = gguf.File(str(model)), model.read_bytes()
    last = list(file.tensors.values())[-1]
    name = last.name.encode()
    end = data.index(struct.pack("<Q", len(name)) + name)
    end += 8 + len(name) + 4 + 8 * len(last.shape) + 4 + 8
    expected = hashlib.sha256(b"sluice model 1\n" + struct.pack("<Q", len(data)) + data[:end])
    for t in file.tensors.values():
        expected.update(data[t.offset : t.offset + min(4096, t.n_bytes)])
    assert file.earlier_id == expected.digest()


def test_earlier_id_covers_long_values_that_stay_in_the_file(tmp_path):
    """They were read with the rest of the head."""
    path = tmp_path / "m.gguf"
    data = gguf_bytes(
        {
            "a.long": ("string", "x" * 100_000),
            "b.numbers": ("[u32]", range(50_000)),
            "c.short": ("u32", 7),
        },
        [("t", F32, (8,), bytes(range(32)))],
    )
    path.write_bytes(data)
    file = gguf.File(str(path))
    assert isinstance(file.metadata["a.long"], Unread)
    end = data.index(struct.pack("<Q", 1) + b"t") + 8 + 1 + 4 + 8 + 4 + 8
    expected = hashlib.sha256(b"sluice model 1\n" + struct.pack("<Q", len(data)) + data[:end])
    expected.update(bytes(range(32)))
    assert file.earlier_id == expected.digest()
