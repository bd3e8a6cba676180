"""States of blocks that keep no keys and values: in the cache and in snapshots of version 4. They are
those after the last token, so a cache is cut back to a kept copy, or to nothing, and a snapshot is a
prefix at its own length alone.
"""

import hashlib
import os
import re
import struct

import pytest
from conftest import run
from snapshot_files import MODEL, STATES, content, load, make, refused, seal
from tiny_model import write_model

from sluice.faults import Error
from sluice.kernels import ffi, lib
from sluice.kvcache import prefix_cache
from sluice.kvcache.landmarks import landmarks
from sluice.kvcache.planes import MAX_COPIES
from sluice.kvcache.scratch import Scratch
from sluice.kvcache.snapshot import Snapshot
from sluice.model.forward import Forward
from sluice.model.model import ARITHMETIC, Model

FAMILIES = {"lfm2": {"n_layer": 3}, "qwen35": {"n_layer": 4, "n_unused": 1}}
IDS = [1] + [(7919 * i + 13) % 400 for i in range(99)]


@pytest.fixture(scope="module", params=FAMILIES)
def path(request, tmp_path_factory):
    out = tmp_path_factory.mktemp("states") / f"{request.param}.gguf"
    write_model(str(out), arch=request.param, n_vocab=400, n_embd=64, **FAMILIES[request.param])
    return str(out)


def logits(m, cache):
    return bytes(ffi.buffer(cache.logits, 4 * m.hparams.n_vocab))


def states(cache):
    return [bytes(ffi.buffer(cache.state(i), cache.layout.state_bytes)) for i in range(2)]


# The file.


def test_snapshot_with_states_is_as_documented(tmp_path):
    data = seal(tmp_path / "a.kv", geometry=STATES, n_tok=9, capacity=20).read_bytes()
    assert data[6:8] == b"\x04\x00" and struct.unpack_from("<2I4H", data, 192) == (
        *(3, 1200),
        *(2, 8, 1, 24),
    )
    kv, stride, v, size = struct.unpack_from("<4Q", data, 96)
    assert (stride, v, size) == (0, 0, len(data)) and not any(data[208:4092])
    assert size == kv + 4 * 4096 + 3 * 8192  # planes of a page, states of two
    for i in range(3):
        at = kv + 4 * 4096 + 8192 * i
        want = struct.pack("<1200f", *(1 + 9 + i + j / 8 for j in range(1200)))
        assert data[at : at + 8192] == want.ljust(8192, b"\0")


def test_opened_snapshot_has_the_states(tmp_path):
    before = content(make(tmp_path, geometry=STATES))
    path = seal(tmp_path / "a.kv", geometry=STATES)
    assert content(load(path, STATES)) == before
    new = Snapshot.create(STATES, 300, MODEL, "exact-2", str(tmp_path))
    new.copy_rows_from(load(path, STATES))
    assert content(new) == before
    scratch = Scratch(STATES, 60, logits=True)
    scratch.copy_rows_from(load(path, STATES))
    assert content(scratch) == before
    with pytest.raises(ValueError, match="no states after 4 tokens"):
        new.copy_rows_from(load(path, STATES), 4)


@pytest.mark.parametrize(
    "at, value, what",
    [
        (192, 0, "n_state is 0, not 1 to 512"),
        (192, 0xFFFFFFFF, "n_state is 4294967295, not 1 to 512"),
        (196, 0, "state_floats is 0"),
        (196, 0xFFFFFFFF, "state_floats is 4294967295"),
        (192, 2, r"made with states \(2, 1200\), but the model has \(3, 1200\)"),
        (196, 1201, r"made with states \(3, 1201\)"),
        (48, 3, "heads of a layer are 0"),
        (204, 0x80001, "made with widths"),
        (6, 3 | 4096 << 16, "not those of the first layer|heads of a layer|reserved"),
        (6, 2 | 4096 << 16, "reserved bytes"),
        (6, 5 | 4096 << 16, "snapshot version 5; this build reads 2 to 4"),
    ],
)
def test_wrong_header_of_states_is_refused(tmp_path, at, value, what):
    path = seal(tmp_path / "a.kv", geometry=STATES)
    page = bytearray(path.read_bytes())
    struct.pack_into("<I", page, at, value)
    struct.pack_into("<I", page, 4092, lib.crc32c(0, bytes(page[:4092]), 4092))
    path.write_bytes(page)
    assert re.search(what, refused(path, geometry=STATES))


def test_damaged_or_cut_states_are_refused_by_name(tmp_path):
    path = seal(tmp_path / "a.kv", geometry=STATES)
    data = bytearray(path.read_bytes())
    data[-8192 - 8] ^= 0  # behind state 1, in its last page: not valid, not checked
    data[-8192 + 17] ^= 4
    path.write_bytes(data)
    assert refused(path, geometry=STATES).startswith("state 2, bytes 0 to 4799: checksum is ")
    data[-8192 + 17] ^= 4
    path.write_bytes(data[:-4096])
    assert "file_bytes is" in refused(path, geometry=STATES)
    path.write_bytes(data)
    load(path, STATES)


def test_snapshot_with_a_nonfinite_state_is_refused(path, tmp_path):
    m = Model(path, 1)
    cache = Snapshot.create(m.geometry("f16"), 40, m.file.id, ARITHMETIC, str(tmp_path))
    m.prefill(cache, IDS[:5])
    cache.state(1)[7] = float("inf")
    cache.seal(str(tmp_path / "s"))
    with pytest.raises(Error, match="state 1: element 7 is not finite") as e:
        m.open_snapshot(str(tmp_path / "s"))
    assert e.value.code == 65


def test_gguf_dump_shows_the_states(path, tmp_path):
    m = Model(path, 1)
    cache = Snapshot.create(m.geometry("f16"), 40, m.file.id, ARITHMETIC, str(tmp_path))
    m.prefill(cache, IDS[:5])
    cache.seal(str(tmp_path / "s"))
    done = run("gguf-dump", tmp_path / "s")
    assert done.returncode == 0 and b"KVSNAP version 4" in done.stdout
    n, floats = m.geometry("f16").states
    assert f"{n} of {floats} F32".encode() in done.stdout
    assert run("gguf-dump", "--check", tmp_path / "s").returncode == 0


# The cache.


def test_cache_is_cut_to_kept_states_or_to_nothing(path):
    m = Model(path, 1)
    cache, fresh = (Scratch(m.geometry("f16"), 100, logits=True) for _ in range(2))
    for begin, end in ((0, 20), (20, 50), (50, 90)):
        m.extend(cache, IDS[begin:end])
        cache.keep_states()
    for wanted, n in ((90, 90), (89, 50), (50, 50), (49, 20), (19, 0)):
        assert cache.cut(wanted) == n == cache.n_tok
        fresh.n_tok = 0
        if n:
            m.extend(fresh, IDS[:n])
        assert states(cache) == states(fresh)
    m.prefill(cache, IDS)
    m.prefill(fresh, IDS)
    assert logits(m, cache) == logits(m, fresh)


def test_few_copies_are_kept_the_first_and_the_last_ones(path):
    m = Model(path, 1)
    cache = Scratch(m.geometry("f16"), 100)
    for at in range(0, 90, 10):
        m.extend(cache, IDS[at : at + 10])
        cache.keep_states()
    assert [cache.cut(n) for n in (85, 75, 65, 59)] == [80, 70, 10, 10] and MAX_COPIES == 4


def test_a_length_without_states_is_refused(path, tmp_path):
    m = Model(path, 1)
    snapshot = Snapshot.create(m.geometry("f16"), 100, m.file.id, ARITHMETIC, str(tmp_path))
    for cache in (Scratch(m.geometry("f16"), 100), snapshot):
        m.extend(cache, IDS[:20])
        with pytest.raises(ValueError, match="n_tok 10: states are those after 20"):
            cache.n_tok = 10
        with pytest.raises(ValueError, match="states are those after 20 tokens, not 19"):
            m.forward(Forward(m.hparams, cache), IDS[19:20], 19)
        assert cache.n_tok == 20
        cache.n_tok = 0
        assert not any(map(any, states(cache)))


def test_pass_that_fails_leaves_no_states_to_go_on_with(path, tmp_path, monkeypatch):
    m = Model(path, 1)
    cache = Snapshot.create(m.geometry("f16"), 100, m.file.id, ARITHMETIC, str(tmp_path))
    m.extend(cache, IDS[:20])
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Forward, "add", lambda *args: (_ for _ in ()).throw(KeyboardInterrupt))
        m.extend(cache, IDS[20:30])
    assert cache.n_tok == 20
    with pytest.raises(ValueError, match="after None tokens"):
        m.extend(cache, IDS[20:30])
    with pytest.raises(ValueError, match="after None tokens"):
        cache.seal(str(tmp_path / "s"))
    assert cache.cut(20) == 0 and os.listdir(tmp_path) == []
    m.extend(cache, IDS[:30])
    cache.close()


# Snapshots as prefixes.


def test_snapshot_goes_on_byte_for_byte(path, tmp_path):
    """Of any length, in another process's model with other threads, alone or grown."""
    m, again = Model(path, 1), Model(path, 2)
    found = set()
    for n in (1, 2, 3, 40, 99, 100):
        first = Snapshot.create(m.geometry("f16"), 100, m.file.id, ARITHMETIC, str(tmp_path))
        m.prefill(first, IDS[:n])
        first.seal(str(tmp_path / "first"))
        grown = Snapshot.create(m.geometry("f16"), 300, m.file.id, ARITHMETIC, str(tmp_path))
        again.fill(grown, again.open_snapshot(str(tmp_path / "first")), IDS[n:], 7)
        grown.seal(str(tmp_path / "grown"))
        found.add(hashlib.sha256((tmp_path / "grown").read_bytes()).hexdigest())
    assert len(found) == 1


def test_prefix_is_found_at_its_own_length_alone(path, tmp_path):
    m = Model(path, 1)
    geometry = m.geometry("f16")
    for n in (10, 30):
        s = Snapshot.create(geometry, 100, m.file.id, ARITHMETIC, str(tmp_path))
        m.prefill(s, IDS[:n])
        prefix_cache.store(str(tmp_path), s)
    find = lambda tokens: prefix_cache.find(str(tmp_path), m.file.id, ARITHMETIC, geometry, tokens)
    assert [find(IDS[:n]).n_tok for n in (10, 29, 30, 31)] == [10, 10, 30, 30]
    assert find(IDS[:9]) is None and find(IDS[:20] + [0] * 20).n_tok == 10
    assert prefix_cache.get(str(tmp_path), m.file.id, ARITHMETIC, geometry, IDS[:29]) is None


def test_landmarks_are_the_ends_of_the_first_and_the_last_message():
    assert landmarks([1, 5, 9, 5, 5, 9, 5, 9, 7], {9}) == [3, 8]
    assert landmarks([1, 9, 2], {9, 8}) == [2] and landmarks([1, 2], {9}) == []


def test_prefill_stores_the_states_after_the_system_prompt(path, tmp_path):
    """And before the answer begins: another question finds them. EOS ends a message here."""
    eos, cache = 2, tmp_path / "cache"
    system, question = IDS[:30] + [eos], [40, 41, 42, eos, 50, 51]
    texts = [system + question, system + [60, 61, eos, 50, 51], system + question + [8, 9]]
    m, reused = Model(path, 1), []
    head = run("tokenize", "-m", path, input=b"x").stdout.split(b"\n")[0]
    for tokens in texts:
        stream = b"".join(b"%d\n" % i for i in tokens)
        stream = head + b"\n" + stream + b"#end text\n"
        done = run("prefill", "-m", path, "--cache", cache, "-v", input=stream)
        alone = run("prefill", "-m", path, "-o", tmp_path / "alone", input=stream)
        assert done.returncode == alone.returncode == 0, done.stderr
        name = done.stdout.decode().strip()
        assert (tmp_path / "alone").read_bytes() == open(name, "rb").read()
        reused.append(int(re.search(rb"reused=(\d+)", done.stderr)[1]))
    assert reused == [0, 31, 37]
    lengths = sorted(
        m.open_snapshot(str(cache / name)).n_tok for name in os.listdir(cache) if name[-3:] == ".kv"
    )
    assert lengths == [31, 34, 35, 36, 37, 39]
