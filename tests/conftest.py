"""What every test file uses: where the commands are, how to run one, where the shared data lies."""

import itertools
import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest
import quick
import real_models
import report
from hypothesis import settings

settings.register_profile("any machine", deadline=None)
settings.load_profile("any machine")
ROOT = Path(__file__).resolve().parent.parent
BIN = ROOT / "bin"
START = ROOT / "lib" / "sluice" / "start.py"  # what Python runs, with the command's path and words
SCRIPTS = sorted(p.name for p in BIN.iterdir() if p.is_symlink())  # mail-filter and sluice are none
_shared = Path(os.environ.get("SLUICE_SHARED") or ROOT.parent / "shared")
# data that tests read where it is, see data/README.md
SHARED = _shared if _shared.is_dir() else None
DATA_HOMES = itertools.count()
DATA = Path(__file__).parent / "data"
SPAM_MODEL = ROOT / "lib" / "sluice" / "data" / "spam.gguf"


# python -S -c MEASURE COMMAND...: runs it, then prints its peak in KiB. A child counts what its
# parent held when it forked, so a small parent is put between.
MEASURE = (
    "import os, resource, subprocess, sys; code = subprocess.run(sys.argv[1:]).returncode;"
    " print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, file=sys.stderr); os._exit(code"
    " & 255)"
)


def run(*argv, input=b"", timeout=60, **kwargs):
    """Run a command of bin/ (`run("sample", "-t", 0)`) with bytes on stdin; a CompletedProcess with
    bytes.
    """
    argv = [str(BIN / argv[0]), *map(str, argv[1:])]
    kwargs.setdefault("stdout", subprocess.PIPE)
    kwargs.setdefault("stderr", subprocess.PIPE)
    if "stdin" not in kwargs:
        kwargs["input"] = input
    return subprocess.run(argv, timeout=timeout, **kwargs)


def find_data(name):
    """The path of test data, committed, fetched or shared; None if it is nowhere."""
    folders = (DATA, real_models.DIRECTORY, *([SHARED / "data"] if SHARED else []))
    return next((folder / name for folder in folders if (folder / name).exists()), None)


@pytest.fixture(scope="session")
def datafile():
    """datafile("vocab/x.gguf"): the path of test data, or a skip that says how to get it."""

    def find(name):
        path = find_data(name)
        if path is None and name in real_models.llama_cpp_files():
            pytest.skip("a vocabulary or template of llama.cpp is not here: make real-models")
        if path is None:
            pytest.skip("test data without a free licence is not here: tests/data/README.md")
        return path

    return find


def _real_model(model):
    if not model.is_here():
        pytest.skip(f"{model.file} is not here: make real-models")
    return model.path


@pytest.fixture(scope="session")
def smollm2():
    """The path of SmolLM2-135M-Instruct, or a skip that names it."""
    return _real_model(real_models.SMOLLM2)


@pytest.fixture(scope="session")
def gemma3():
    """The path of Gemma 3 270M, or a skip that names it."""
    return _real_model(real_models.GEMMA3)


@pytest.fixture
def box(tmp_path):
    """mail-filter among stand-ins: a mail_filter_box.Box."""
    from mail_filter_box import Box

    return Box(tmp_path)


@pytest.fixture
def start(tmp_path):
    """start(*argv, path=None, ...): a worker_process.Worker; all are killed at the end."""
    from worker_process import Worker

    started = []

    def start(*argv, path=None, **kwargs):
        started.append(Worker(path or tmp_path / "s", *argv, **kwargs))
        return started[-1]

    yield start
    for w in started:
        w.kill()


@pytest.fixture
def strace():
    """The command, to which options are added; a skip where it is absent or may not trace."""
    if not shutil.which("strace"):
        pytest.skip("strace is not installed: apt install strace")
    if subprocess.run(["strace", "-o", "/dev/null", "true"], capture_output=True).returncode:
        pytest.skip("ptrace is not permitted: allow it, for strace")
    return ["strace"]


@pytest.fixture
def my_model(tmp_path):
    """A question with a model of its own, which a test may spoil."""
    shutil.copy(ROOT / "configs" / "spam.yaml", tmp_path / "q.yaml")
    shutil.copy(ROOT / "lib" / "sluice" / "data" / "spam.gguf", tmp_path)
    return tmp_path / "q.yaml"


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """The directory of the models that classify_call.py asks."""
    from classify_call import write_models

    return write_models(tmp_path_factory.mktemp("models"))


@pytest.fixture
def taught(tmp_path):
    """A file of what was learned, and the commands that use it."""
    from learn_files import Taught

    return Taught(tmp_path / "my.calibration")


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A home of its own for each test: cache and what is learned."""
    (tmp_path / "home").mkdir(exist_ok=True)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("XDG_CACHE_HOME", "XDG_DATA_HOME", "MODEL"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "home"


@pytest.fixture
def best_set():
    """The test may select instruction sets: the best one is selected again behind it."""
    from sluice.kernels import lib

    yield
    lib.isa_select(b"")


# Variables that the commands, make and pip heed, and that a test sets where it wants them.
NOT_INHERITED = (
    "MODEL",
    "SOURCE_DATE_EPOCH",
    "NOTIFY_SOCKET",
    "LISTEN_PID",
    "LISTEN_FDS",
    "MAKEFLAGS",
    "MFLAGS",
    "CFLAGS",
    "COLUMNS",
    "LINES",
    "POSIXLY_CORRECT",
    "PYTHONWARNINGS",
    "PYTHONOPTIMIZE",
)


@pytest.fixture(scope="session", autouse=True)
def surroundings(tmp_path_factory):
    """The same locale, umask and variables wherever the tests run; an empty folder to be in.

    Caches and settings are the run's own.
    """
    old = os.umask(0o022)
    with pytest.MonkeyPatch.context() as patch:
        for name in NOT_INHERITED:
            patch.delenv(name, raising=False)
        patch.chdir(tmp_path_factory.mktemp("empty"))
        patch.setenv("LC_ALL", "C.UTF-8")
        patch.setenv("XDG_DATA_HOME", str(tmp_path_factory.mktemp("data")))
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield
    os.umask(old)


@pytest.fixture(autouse=True)
def data_home(surroundings, tmp_path_factory, monkeypatch):
    """What a test learns changes no other test."""
    # the directory need not exist, and seldom does
    number = next(DATA_HOMES)
    path = tmp_path_factory.getbasetemp() / "data_homes" / str(number)
    monkeypatch.setenv("XDG_DATA_HOME", str(path))
    return path


def pytest_addoption(parser):
    parser.addoption(
        "--quick", action="store_true", help="the part of the tests that `make test` runs"
    )


def pytest_configure(config):
    if not hasattr(config, "workerinput"):  # not in a process of xdist, whose parent prints
        config.pluginmanager.register(report.FileLines(config))


def pytest_collection_modifyitems(config, items):
    """Leave out what --quick does not run, and what test_tiles.py runs by itself.

    Tests that are marked `tiles` need AMX; where only that is lacking, test_tiles.py runs them
    with tiles that are emulated.
    """
    left_out = []
    if config.getoption("--quick"):
        items[:], left_out = quick.choose(items)
    marked = [item for item in items if item.get_closest_marker("tiles")]
    here = sets_here() if marked else []
    if marked and "amx" not in here and "avx512" in here:
        items[:] = [item for item in items if item not in marked]
        left_out += marked
    config.hook.pytest_deselected(items=left_out)


def pytest_terminal_summary(terminalreporter):
    from sluice.model.model import known_sets

    here = sets_here()
    emulated = {"amx"} if "avx512" in here else set()  # by test_tiles.py
    absent = sorted({*known_sets()} - {*here} - emulated)
    report.write_skips(terminalreporter, absent, terminalreporter.config.getoption("--quick"))


def shell(script, directory, timeout=60, **env):
    """Run `script` by sh in `directory`, bin/ first on the path, nothing on stdin: a
    CompletedProcess with bytes.
    """
    path = f"{BIN}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        ["sh", "-c", script],
        cwd=directory,
        capture_output=True,
        timeout=timeout,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "PATH": path, "LC_ALL": "C.UTF-8", **env},
    )


def wait_for(condition, what, seconds=120):
    """What condition() gives as soon as it is true."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, f"no {what} in {seconds} s"
        time.sleep(0.01)
    return found


def opened(process, path, timeout=60):
    """Wait until a process (a Popen) has the file open or mapped: it has started, and is at
    work.
    """
    path, end = os.path.realpath(path), time.monotonic() + timeout
    proc = Path(f"/proc/{process.pid}")
    while True:
        try:
            if path in proc.joinpath("maps").read_text() or path in map(
                os.readlink, proc.joinpath("fd").iterdir()
            ):
                return
        except FileNotFoundError:  # a descriptor that was closed meanwhile
            pass
        assert process.poll() is None and time.monotonic() < end, f"{path} was not opened"
        time.sleep(0.001)


def sets_here():
    """The instruction sets of this build that this machine has, the definition ("reference")
    first.
    """
    from sluice.kernels import lib
    from sluice.model.model import known_sets

    names = [name for name in reversed(known_sets()) if lib.isa_select(name.encode()) == 0]
    lib.isa_select(b"")
    return names


def ids_in(stream):
    """The tokens of an id stream (bytes) that ends as it should."""
    lines = stream.decode().splitlines()
    assert lines[0].startswith("#ids 1 ") and lines[-1].startswith("#end "), stream[-200:]
    return [int(line.split("\t")[0]) for line in lines[1:-1]]
