"""The cache: the longest known prefix, or nothing; never something damaged; never more than its
bound.
"""

import hashlib
import os
import stat
import struct

import pytest
from snapshot_files import LARGE, MODEL, SMALL, content, make, python

from sluice.faults import Error
from sluice.kvcache import prefix_cache
from sluice.system import cache_directory


def ids_of(n, seed=1):
    return [(i * 7 + seed) % 40 for i in range(n)]


def store(directory, n_tok, seed=1, **kwargs):
    prefix_cache.prepare(str(directory))
    with make(directory, n_tok, seed=seed, **kwargs) as s:
        return prefix_cache.store(str(directory), s)


def find(
    directory, tokens, model_id=MODEL, arithmetic="exact-2", geometry=SMALL, report=lambda m: None
):
    return prefix_cache.find(str(directory), model_id, arithmetic, geometry, tokens, report)


def test_cache_name_is_by_content(tmp_path):
    path = store(tmp_path / "c", 3)
    want = hashlib.sha256(b"exact-2 1\n" + struct.pack("<3i", 1, 8, 15)).hexdigest()[:16]
    assert (
        os.path.basename(path)
        == f"00010203-{want}.kv"
        == prefix_cache.file_name(MODEL, "exact-2", 1, [1, 8, 15])
    )
    assert stat.S_IMODE(os.stat(tmp_path / "c").st_mode) == 0o700
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600


def test_find_gives_the_longest_prefix(tmp_path):
    for n in (2, 5, 9, 30):
        store(tmp_path, n)
    store(tmp_path, 12, seed=2)
    assert [find(tmp_path, ids_of(n)).n_tok for n in (2, 4, 5, 8, 9, 29, 30, 31, 45)] == [
        2,
        2,
        5,
        5,
        9,
        9,
        30,
        30,
        30,
    ]
    assert find(tmp_path, ids_of(1)) is None and find(tmp_path, []) is None
    assert find(tmp_path, ids_of(8) + [0] * 10).n_tok == 5  # leaves the others after 8 tokens
    assert find(tmp_path, ids_of(20, seed=2)).n_tok == 12
    assert find(tmp_path, ids_of(20, seed=3)) is None
    with make(tmp_path, 9) as s:
        assert content(find(tmp_path, ids_of(9))) == content(s)


def test_get_gives_exactly_these_ids(tmp_path):
    path = store(tmp_path / "c", 5)
    get = lambda tokens, model=MODEL: prefix_cache.get(
        str(tmp_path / "c"), model, "exact-2", SMALL, tokens
    )
    assert get(ids_of(5)).tokens[:5].tolist() == ids_of(5)
    assert (
        get(ids_of(4)) is None
        and get(ids_of(6)) is None
        and get(ids_of(5), MODEL[:8] + bytes(24)) is None
    )
    # under a name that is not its own
    os.rename(path, tmp_path / "c" / prefix_cache.file_name(MODEL, "exact-2", 1, ids_of(5, seed=2)))
    assert get(ids_of(5, seed=2)) is None
    store(tmp_path / "c", 5)
    os.chmod(tmp_path / "c", 0o777)
    assert (
        get(ids_of(5)) is None
        and prefix_cache.get(str(tmp_path / "absent"), MODEL, "exact-2", SMALL, ids_of(5)) is None
    )


def test_missing_or_empty_cache_has_no_prefix(tmp_path):
    assert find(tmp_path / "absent", ids_of(5)) is None and not (tmp_path / "absent").exists()
    assert find(tmp_path, ids_of(5)) is None


def test_other_models_arithmetics_and_geometries_are_passed_over_and_kept(tmp_path):
    path = store(tmp_path, 5)
    messages = []
    assert find(tmp_path, ids_of(5), model_id=MODEL[::-1], report=messages.append) is None
    assert find(tmp_path, ids_of(5), model_id=MODEL[:8] + bytes(24), report=messages.append) is None
    assert find(tmp_path, ids_of(5), arithmetic="fast-2", report=messages.append) is None
    assert (
        find(tmp_path, ids_of(5), geometry=SMALL._replace(kv_type=0), report=messages.append)
        is None
    )
    assert os.path.exists(path) and messages == []


def test_arithmetics_and_kv_types_lie_side_by_side(tmp_path):
    for kw in ({}, {"arithmetic": "fast-1"}, {"geometry": SMALL._replace(kv_type=0)}):
        store(tmp_path, 5, **kw)
    assert len(os.listdir(tmp_path)) == 3
    for kw in ({}, {"arithmetic": "fast-1"}, {"geometry": SMALL._replace(kv_type=0)}):
        assert find(tmp_path, ids_of(5), **kw).n_tok == 5


# magic, version, header, tokens, logits, V of the last layer
@pytest.mark.parametrize("at", [0, 6, 100, 4092, 4096, 8200, -4096])
def test_damaged_cache_entry_is_skipped_reported_and_removed(tmp_path, at):
    store(tmp_path, 5)
    path = store(tmp_path, 9)
    with open(path, "r+b") as f:
        f.seek(at, os.SEEK_SET if at >= 0 else os.SEEK_END)
        byte = f.read(1)[0]
        f.seek(at, os.SEEK_SET if at >= 0 else os.SEEK_END)
        f.write(bytes([byte ^ 4]))
    messages = []
    assert find(tmp_path, ids_of(20), report=messages.append).n_tok == 5
    assert (
        len(messages) == 1
        and path in messages[0]
        and "removed" in messages[0]
        and not os.path.exists(path)
    )
    assert find(tmp_path, ids_of(20)).n_tok == 5


def test_one_under_a_wrong_name_is_not_used(tmp_path):
    path = store(tmp_path, 9)
    os.rename(path, tmp_path / prefix_cache.file_name(MODEL, "exact-2", 1, ids_of(9, seed=2)))
    assert find(tmp_path, ids_of(9)) is None
    assert find(tmp_path, ids_of(9, seed=2)) is None  # the name fits, the tokens do not


def test_cache_entry_writable_by_others_is_not_used(tmp_path):
    path = store(tmp_path, 9)
    os.chmod(path, 0o666)
    assert find(tmp_path, ids_of(9)) is None
    os.chmod(path, 0o600)
    os.rename(path, tmp_path / "elsewhere")
    os.symlink(tmp_path / "elsewhere", path)
    assert find(tmp_path, ids_of(9)) is None
    os.unlink(path)
    os.mkfifo(path)
    assert find(tmp_path, ids_of(9)) is None and os.path.exists(path)


@pytest.mark.parametrize("mode", [0o777, 0o720, 0o1777])
def test_cache_directory_writable_by_others_is_refused(tmp_path, mode):
    (tmp_path / "c").mkdir()
    (tmp_path / "c").chmod(mode)
    for use in (
        lambda: find(tmp_path / "c", ids_of(5)),
        lambda: prefix_cache.prepare(str(tmp_path / "c")),
    ):
        with pytest.raises(Error, match="could have been written by other users") as e:
            use()
        assert e.value.code == 73


def test_cache_directory_of_another_user_or_missing_is_refused(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    for place, error in (
        (tmp_path / "file", "not a directory"),
        (tmp_path / "no" / "c", "No such file"),
        (tmp_path / "file" / "c", "Not a directory"),
    ):
        with pytest.raises(Error, match=error) as e:
            prefix_cache.prepare(str(place))
        assert e.value.code == 73
    if os.geteuid() == 0:
        (tmp_path / "c").mkdir(mode=0o755)
        os.chown(tmp_path / "c", 12345, -1)
        with pytest.raises(Error, match="owned by user 12345"):
            find(tmp_path / "c", ids_of(5))


def test_cache_evicts_the_least_recently_used_first(tmp_path):
    paths = [
        store(tmp_path, 200, seed=seed, capacity=200, geometry=LARGE._replace(n_vocab=40))
        for seed in range(5)
    ]
    for i, path in enumerate(paths):
        os.utime(path, (1000 + i, 1000 + i))
    n_bytes = os.stat(paths[0]).st_blocks * 512
    # used now
    assert find(tmp_path, ids_of(200, seed=0), geometry=LARGE._replace(n_vocab=40)).n_tok == 200
    cache_directory.trim(
        str(tmp_path), prefix_cache.SUFFIX, prefix_cache.MAX_FILES, 3 * n_bytes + n_bytes // 2
    )
    assert [os.path.exists(p) for p in paths] == [True, False, False, True, True]
    cache_directory.trim(str(tmp_path), prefix_cache.SUFFIX, 1)
    assert [os.path.exists(p) for p in paths] == [True, False, False, False, False]
    (tmp_path / "notes.txt").write_bytes(b"not ours")
    # the one used last stays
    cache_directory.trim(str(tmp_path), prefix_cache.SUFFIX, prefix_cache.MAX_FILES, 0)
    assert sorted(os.listdir(tmp_path)) == sorted([os.path.basename(paths[0]), "notes.txt"])


def test_store_keeps_the_bound(tmp_path):
    for seed in range(6):
        with make(tmp_path, 200, 200, LARGE, seed=seed) as s:
            n_bytes = 200 * s.layout.rows[0] * s.layout.n_plane
            prefix_cache.store(str(tmp_path), s, max_bytes=3 * n_bytes)
        assert sum(e.stat().st_blocks * 512 for e in os.scandir(tmp_path)) <= 3 * n_bytes
    assert len(os.listdir(tmp_path)) == 2  # each is a little more than its rows


def test_named_snapshot_can_be_stored_in_the_cache(tmp_path):
    with make(tmp_path, 5) as s:
        s.seal(tmp_path / "mine.kv")
        path = prefix_cache.store(str(tmp_path / "c"), s)
    with open(path, "rb") as a, open(tmp_path / "mine.kv", "rb") as b:
        assert a.read() == b.read()


@pytest.mark.full
def test_many_writers_and_readers_at_once(tmp_path):
    code = f"""
import test_cache as t
for i in range(40):
    n = 3 + i % 5
    s = t.find({str(tmp_path)!r}, t.ids_of(9))
    if s:
        assert s.tokens[:s.n_tok].tolist() == t.ids_of(s.n_tok)
        s.close()
    t.store({str(tmp_path)!r}, n)
    cache.trim({str(tmp_path)!r}, cache.SUFFIX, 3)
"""
    workers = [
        python("from sluice.kvcache import prefix_cache as cache\n" + code) for _ in range(4)
    ]
    for p in workers:
        out, err = p.communicate(timeout=60)
        assert p.returncode == 0, err
    assert (
        all(name.endswith(".kv") for name in os.listdir(tmp_path))
        and find(tmp_path, ids_of(9)) is not None
    )
