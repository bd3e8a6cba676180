"""--huge-pages: a copy of the model that has its bytes, is refused where it cannot be had, and
changes no bit of any answer.
"""

import os
import resource
import shutil

import pytest
from conftest import BIN, run
from hypothesis import given
from hypothesis import strategies as st
from tiny_model import write_model

from sluice import gguf
from sluice.faults import Error
from sluice.kernels import ffi
from sluice.system import huge_pages, memory

DATA = bytes(i * i % 251 for i in range(5 << 12))
GRAIN = os.sysconf("SC_PAGE_SIZE")


def has_huge_pages():
    try:
        with open(huge_pages.ENABLED) as f:
            return "[never]" not in f.read()
    except OSError:
        return False


here = pytest.mark.skipif(
    not has_huge_pages(), reason="no huge pages: echo madvise >" + huge_pages.ENABLED
)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    path = tmp_path_factory.mktemp("hugepages") / "m.gguf"
    write_model(str(path), type="q8_0", n_layer=2, n_vocab=420, n_ctx=400)
    return path


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("hugepages") / "f"
    path.write_bytes(DATA)
    return path


@here
@given(st.integers(0, 4), st.integers(1, len(DATA)), st.sampled_from([1000, 1 << 23]))
def test_huge_page_copy_has_the_bytes_of_the_file(file, page, n_bytes, piece):
    with open(file, "rb") as f, pytest.MonkeyPatch.context() as patch:
        patch.setattr(huge_pages, "PIECE", piece)  # reads of any size make it up
        if page * GRAIN + n_bytes > len(DATA):  # as of a map: the file was cut
            with pytest.raises(ValueError):
                huge_pages.of_file(f.fileno(), page * GRAIN, n_bytes, "f", True)
        else:
            assert (
                huge_pages.of_file(f.fileno(), page * GRAIN, n_bytes, "f", True)[:]
                == DATA[page * GRAIN :][:n_bytes]
            )


@here
def test_huge_page_copy_lies_in_huge_pages(tmp_path):
    n_bytes = 16 << 20
    with open(tmp_path / "f", "w+b") as f:
        f.truncate(n_bytes)
        before = huge_bytes()
        area = huge_pages.of_file(f.fileno(), 0, n_bytes, "f", True)
        if not huge_bytes() - before:
            pytest.skip("no huge page is free: run again after a reboot")
        assert huge_bytes() - before <= n_bytes == len(area)


def huge_bytes():
    with open("/proc/self/smaps") as f:
        return 1024 * sum(int(line.split()[1]) for line in f if line.startswith("AnonHugePages"))


@pytest.mark.parametrize("says, code", [("always madvise [never]\n", 69), (None, 69)])
def test_missing_huge_pages_are_named(tmp_path, monkeypatch, tiny, says, code):
    monkeypatch.setattr(huge_pages, "ENABLED", str(tmp_path / "enabled"))
    if says:
        (tmp_path / "enabled").write_text(says)
    file = gguf.File(str(tiny), huge_pages=True)
    with pytest.raises(Error, match="--huge-pages: this system has no huge pages") as e:
        file.pointer(next(iter(file.tensors.values())))
    assert e.value.code == code


@here
def test_huge_page_copy_without_enough_pages_is_refused_first(tmp_path, monkeypatch, file):
    (tmp_path / "meminfo").write_text("MemTotal: 900 kB\nMemAvailable:        8 kB\n")
    monkeypatch.setattr(memory, "MACHINE", str(tmp_path / "meminfo"))
    with open(file, "rb") as f, pytest.raises(Error) as e:
        huge_pages.of_file(f.fileno(), 0, len(DATA), "f", True)
    assert (e.value.code, str(e.value)) == (
        75,
        (
            "f: --huge-pages needs 0.00 GB of memory, of which 0.00 can be had; without it the file"
            " is mapped"
        ),
    )


@here
def test_address_space_that_is_limited_is_one_line(tmp_path):
    """A model of 1 GB, most of it a hole in the file, in a process that may have less."""
    path = tmp_path / "m.gguf"
    write_model(str(path), type="q8_0", n_layer=1, n_vocab=420, n_ctx=64)
    os.truncate(path, 1 << 30)
    limit = lambda: resource.setrlimit(resource.RLIMIT_AS, (800 << 20, 800 << 20))
    done = run("generate", "-m", path, "-n", 1, "-j", 1, "--huge-pages", "x", preexec_fn=limit)
    assert (done.returncode, done.stdout) == (75, b"")
    assert (
        done.stderr
        == f"generate: {path}: --huge-pages needs 1.07 GB of memory; without it the file is"
        " mapped\n".encode()
    )


@pytest.mark.parametrize(
    "groups, group, machine, free",
    [
        ({}, "0::/\n", 100, 100 << 10),
        ({"a": ("5000", 1000), "a/b": ("max", 7)}, "0::/a/b\n", 100, 4000),
        ({"a": ("max", 0), "a/b": ("2000", 2500)}, "1:x:/c\n0::/a/b\n", 100, -500),
        ({"": ("9000", 1000)}, "0::/\n", None, 8000),
        ({"a": ("5000", None)}, "0::/a\n", None, None),
        ({}, "4:memory:/a\n", None, None),
    ],
)
def test_available_memory_is_that_of_the_machine_and_of_each_group(
    tmp_path, monkeypatch, groups, group, machine, free
):
    for name, (most, held) in groups.items():
        (tmp_path / "groups" / name).mkdir(parents=True, exist_ok=True)
        (tmp_path / "groups" / name / "memory.max").write_text(most + "\n")
        if held is not None:
            (tmp_path / "groups" / name / "memory.stat").write_text(f"anon {held}\nfile 123\n")
    (tmp_path / "group").write_text(group)
    (tmp_path / "meminfo").write_text(
        "MemFree: 1 kB\n" + (f"MemAvailable:   {machine} kB\n" if machine else "")
    )
    for name, path in (("MACHINE", "meminfo"), ("GROUP", "group"), ("GROUPS", "groups")):
        monkeypatch.setattr(memory, name, str(tmp_path / path))
    assert memory.available() == free


@here
@pytest.mark.parametrize("change", ["cut", "written", "touched"])
def test_model_changed_after_its_huge_page_copy_is_noticed(tmp_path, tiny, change):
    path = tmp_path / "m.gguf"
    shutil.copy(tiny, path)
    file = gguf.File(str(path), huge_pages=True)
    t = list(file.tensors.values())[-1]
    p, before = file.pointer(t), file.read(t, 0, t.n_bytes)
    file.check_unchanged()
    if change == "cut":
        os.truncate(path, t.offset)
    elif change == "written":
        with open(path, "r+b") as f:
            f.seek(t.offset)
            f.write(bytes(t.n_bytes))
    os.utime(path, ns=(1, 1))
    # the copy is what was opened, and no signal comes of it
    assert ffi.buffer(p, t.n_bytes)[:] == before
    with pytest.raises(Error, match="changed while it was in use") as e:
        file.check_unchanged()
    assert e.value.code == 74


@here
def test_model_truncated_before_its_huge_page_copy_is_a_one_line_error(tmp_path, tiny):
    shutil.copy(tiny, tmp_path / "m.gguf")
    file = gguf.File(str(tmp_path / "m.gguf"), huge_pages=True)
    os.truncate(tmp_path / "m.gguf", file.data_offset + 5)
    with pytest.raises(Error, match="changed while it was in use") as e:
        file.pointer(next(iter(file.tensors.values())))
    assert e.value.code == 74


@pytest.mark.full
@here
def test_commands_answer_the_same_with_a_copy(tiny, tmp_path, home):
    mail = BIN.parent / "tests" / "mails" / "spam-cards.eml"
    tokens = run("tokenize", "-m", tiny, input=b"some text").stdout
    assert run("prefill", "-m", tiny, "-o", tmp_path / "s", input=tokens).returncode == 0
    for command in (
        ("generate", "-m", tiny, "-n", 20, "-t", 0, "-c", 100, "some text"),
        ("classify", "--json", "--no-cache", mail),
        ("decode", "-m", tiny, tmp_path / "s"),
        ("chat", "-m", tiny, "--template", "plain", "-n", 5, "-S", 1, "-c", 100),
    ):
        said = b"" if command[0] == "decode" else b"Hello\n"
        plain, copied = (run(*command, *more, input=said) for more in ((), ("--huge-pages",)))
        assert (copied.returncode, without_time(copied.stdout)) == (
            plain.returncode,
            without_time(plain.stdout),
        ), copied.stderr
        assert plain.stdout, plain.stderr


def without_time(data):
    import re

    return re.sub(rb'"ms": [0-9.]+', b"", data)


@here
def test_worker_gives_the_same_result_from_huge_pages(start):
    plain, copied = start(path=None, n=1), None
    line = plain.ask(b"Subject: x\n\nhello\n")
    plain.process.terminate()
    plain.process.wait()
    copied = start("--huge-pages", path=plain.path, n=1)
    assert line and copied.ask(b"Subject: x\n\nhello\n") == line
