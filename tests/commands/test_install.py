"""pip install . into clean environments: every command runs, from any supported Python that is
here.
"""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile

import pytest
from conftest import BIN, ROOT
from test_bits import CROSS, SOURCES, flags_of
from tiny_model import write_model

from sluice import start

pytestmark = pytest.mark.full

# made by `make milter` alone, where libmilter is
TOOLS = sorted(p.name for p in BIN.iterdir() if p.name != "mail-milter")
# Debian's, where a compiler is not named as its package
PACKAGES = {CROSS: "gcc-aarch64-linux-gnu"}
VERSIONS = ("3.10", "3.11", "3.12", "3.13", "3.14")


def pythons():
    """Interpreters of supported versions, by version: python3.N on the path (or a pyenv's), and the
    one that runs this.
    """
    found = {"{}.{}".format(*sys.version_info): sys.executable}
    pyenv = os.path.expanduser("~/.pyenv/versions")
    for version in VERSIONS:
        path = shutil.which(f"python{version}")
        candidates = (
            [path]
            + [
                f"{pyenv}/{d}/bin/python{version}"
                for d in sorted(os.listdir(pyenv))
                if d.startswith(version + ".")
            ]
            if os.path.isdir(pyenv)
            else [path]
        )
        for path in candidates:
            if (
                path
                and subprocess.run(
                    [path, "-c", "import venv, ensurepip"], capture_output=True
                ).returncode
                == 0
            ):
                found.setdefault(version, path)
    return found


def copy_checkout(to, *more):
    """Copy the checkout, links as links, without what was built; `more` are names to leave out."""
    names = [".git", ".venv", "*-venv", "__pycache__", ".hypothesis", ".*_cache", "*.egg-info"]
    ignored = shutil.ignore_patterns(*names, "deb", "asan", "tiles", "*.tar", *more)
    shutil.copytree(ROOT, to, symlinks=True, ignore=ignored)
    return to


def names_in(wheel):
    with zipfile.ZipFile(wheel) as file:
        return set(file.namelist())


def pip_wheel(directory, source):
    """The wheel that pip builds of a folder or an sdist, in `directory`."""
    directory.mkdir()
    # a path with a space is a path; what the build needs must come from pip's own environment
    subprocess.run([sys.executable, "-m", "venv", directory / "a venv"], check=True)
    python = directory / "a venv" / "bin" / "python3"
    done = subprocess.run(
        [python, "-m", "pip", "wheel", "-q", "--no-deps", "-w", directory, source],
        capture_output=True,
        cwd=directory,
    )
    assert done.returncode == 0, done.stderr.decode()
    (path,) = directory.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def sdist(tmp_path_factory):
    d = tmp_path_factory.mktemp("sdist")
    source = copy_checkout(d / "source", "build", "*.so", "mail-filter", "mail-milter")
    subprocess.run([sys.executable, "-m", "venv", d / "venv"], check=True)
    python = d / "venv" / "bin" / "python3"
    subprocess.run([python, "-m", "pip", "install", "-q", "build"], check=True)
    command = [python, "-m", "build", "--sdist", "-o", d, source]
    done = subprocess.run(command, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    (path,) = d.glob("*.tar.gz")
    return path


@pytest.fixture(scope="module")
def wheel(tmp_path_factory, sdist):
    """Built of the sdist, which pip unpacks in an empty folder."""
    return pip_wheel(tmp_path_factory.mktemp("wheel") / "of sdist", sdist)


def test_sdist_has_no_tests_and_nothing_built(sdist):
    with tarfile.open(sdist) as file:
        names = {member.name.partition("/")[2] for member in file}
    assert {"README.md", "LICENSE", "Makefile", "bin/classify", "configs/debian/rules"} <= names
    assert not [name for name in names if name.endswith((".o", ".so", ".pyc"))]
    assert not names & {"bin/mail-filter", "bin/mail-milter"}
    assert all(
        name.endswith("requirements.txt")
        for name in names
        if name.startswith(("tests/", "lib/spam_training/")) and "." in name
    )


def test_wheel_holds_what_it_should(wheel):
    assert wheel.name.startswith("sluice_lm-") and "-cp310-abi3-" in wheel.name
    assert wheel.stat().st_size <= 9_000_000  # with the bundled model
    names = names_in(wheel)
    package = (ROOT / "lib" / "sluice").rglob("*.py")  # of each room that pyproject.toml must list
    assert {str(path.relative_to(ROOT / "lib")) for path in package} <= names
    assert not [name for name in names if "training" in name or "/written" in name]
    assert [name for name in names if name.endswith(".so")] == ["sluice/_kernels.abi3.so"]
    configs = [p for p in (ROOT / "configs").iterdir() if p.suffix in (".yaml", ".jinja")]
    models = list((ROOT / "lib" / "sluice" / "data").glob("*.gguf"))
    assert len(configs) >= 6 and models
    assert {f"sluice/configs/{p.name}" for p in configs} <= names
    assert {f"sluice/data/{p.name}" for p in models} <= names
    presets = {
        f"sluice/configs/{room}/{p.name}"
        for room in ("embed", "samplers")
        for p in (ROOT / "configs" / room).iterdir()
    }
    assert {name for name in names if re.match("sluice/configs/.*/", name)} == presets != set()

    data = wheel.name.rpartition("-cp310")[0] + ".data"
    assert {f"{data}/scripts/{tool}" for tool in TOOLS} <= names
    share = f"{data}/data/share"
    assert {f"{share}/man/man1/{tool}.1" for tool in TOOLS} <= names
    assert {
        f"{share}/bash-completion/completions/sluice",
        f"{share}/zsh/site-functions/_sluice",
        f"{share}/fish/vendor_completions.d/sluice.fish",
    } <= names


def test_wheel_of_a_built_checkout_is_the_same(wheel, tmp_path):
    """Nothing that an earlier build left gets into it."""
    source = copy_checkout(tmp_path / "source")
    stale = source / "build" / "lib.linux-x86_64-cpython-311" / "sluice" / "training"
    stale.mkdir(parents=True)
    (stale / "old.py").write_text("")
    assert names_in(pip_wheel(tmp_path / "wheel", source)) == names_in(wheel)


@pytest.mark.parametrize("version", VERSIONS)
def test_installed_commands_run(wheel, tmp_path, version):
    python = pythons().get(version)
    if python is None:
        pytest.skip("an older Python is not here: pyenv install 3.10 3.12 3.13")
    subprocess.run([python, "-m", "venv", str(tmp_path / "venv")], check=True)
    bin = tmp_path / "venv" / "bin"
    done = subprocess.run(
        [bin / "pip", "install", "-q", "--disable-pip-version-check", str(wheel)],
        capture_output=True,
    )
    assert done.returncode == 0, done.stderr.decode()
    write_model(str(tmp_path / "m.gguf"), n_layer=1, n_vocab=400)
    env = {"PATH": f"{bin}:/usr/bin:/bin", "MODEL": "m.gguf", "HOME": str(tmp_path)}
    env["TOOLS"] = " ".join(TOOLS)
    script = r"""set -e
        for tool in $TOOLS; do $tool -V; done
        sluice classify -V | grep -q '^sluice classify (sluice) '
        sluice mail-filter -V | grep -q '(sluice)'
        echo hello | tokenize | prefill -o p.snap
        mkfifo ring
        decode p.snap <ring | grammar-filter -e 'root ::= "yes" | "no"' |
            sample -t 0 | tee ring | tokenize -d
        gguf-dump p.snap >/dev/null
        echo; echo hello | chat --template plain -n 3 >talk; [ -s talk ]
        generate -n 3 hello >/dev/null
        echo hello | classify -q language-is-english >answer || [ $? -le 2 ]
        grep -Eq '^(yes|no|unsure) [01]\.[0-9]{3}$' answer
        printf 'Subject: hi\n\nhello\n' | mail-filter --deliver stdout >marked
        grep -q '^X-Spam-Score: ' marked"""
    done = subprocess.run(
        ["sh", "-c", script], cwd=tmp_path, env=env, capture_output=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.endswith((b"yes\n", b"no\n")) and done.stdout.count(b"(sluice)") == len(
        TOOLS
    )

    # nor is a directory in place of a standard file, with which Python does not start
    directory = os.open("/", os.O_RDONLY)
    for tool in (tool for tool in TOOLS if tool not in start.PROGRAMS):
        for name, code, said in (
            ("stdin", 65, f"{tool}: standard input: is a directory\n"),
            ("stdout", 74, f"{tool}: standard output: is a directory\n"),
            ("stderr", 74, None),
        ):
            files = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE}
            files |= {"stderr": subprocess.PIPE, name: directory}
            done = subprocess.run([tool], env=env, text=True, **files)
            assert (done.returncode, done.stdout or "", done.stderr) == (code, "", said), tool
    os.close(directory)

    # an error before the command has begun is no verdict
    (package,) = (tmp_path / "venv" / "lib").glob("python*/site-packages/sluice")
    for cause, code, lines in (
        ("raise OSError(5, 'cannot be read')", 75, 1),
        ("raise ImportError('cannot be mapped')", 75, 1),
        ("raise ValueError", 70, None),
        ("import nothing_of_this_name", 70, None),
    ):
        (package / "__init__.py").write_text(cause)
        done = subprocess.run(["classify"], env=env, input=b"hello", capture_output=True)
        assert (done.returncode, done.stdout) == (code, b""), done.stderr
        assert lines is None or done.stderr.count(b"\n") == lines
    shutil.rmtree(package)
    done = subprocess.run(["classify"], env=env, input=b"hello", capture_output=True)
    assert (done.returncode, done.stdout) == (70, b"")


@pytest.mark.parametrize("compiler", ["gcc", "clang", CROSS])
def test_kernels_compile_without_a_warning(compiler):
    if not shutil.which(compiler):
        pytest.skip(f"{compiler} is not installed: apt install {PACKAGES.get(compiler, compiler)}")
    for source in [
        *SOURCES,
        ROOT / "csrc/mail/client.c",
        *sorted((ROOT / "csrc/mail/filter").glob("*.c")),
    ]:
        wide = flags_of(source, compiler)
        done = subprocess.run(
            [
                compiler,
                "-std=c11",
                "-Wall",
                "-Wextra",
                "-Werror",
                "-fsyntax-only",
                '-DSLUICE_VERSION="test"',
                "-I",
                ROOT / "csrc",
                *wide,
                source,
            ],
            capture_output=True,
        )
        assert done.returncode == 0, done.stderr.decode()


def test_flags_of_the_user_cannot_change_bits():
    for compiler in ["gcc", *([CROSS] if shutil.which(CROSS) else [])]:
        listed = subprocess.run(
            ["make", "-nB", "-C", ROOT, "kernels", "CFLAGS=-O1", f"CC={compiler}"],
            capture_output=True,
            text=True,
        ).stdout
        lines = {
            line.split()[-1]: line.split()
            for line in listed.splitlines()
            if " -c " in line and "_kernels" not in line
        }
        assert sorted(lines) == sorted(str(source.relative_to(ROOT)) for source in SOURCES)
        assert all("-ffp-contract=off" in line and "-O3" not in line for line in lines.values())
        for source in SOURCES:
            sets = [
                flag
                for flag in lines[str(source.relative_to(ROOT))]
                if flag.startswith("-m") and "prefer" not in flag
            ]
            assert sets == flags_of(source, compiler), source
    fast = subprocess.run(
        ["gcc", "-Ofast", "-fsyntax-only", "-I", ROOT / "csrc", ROOT / "csrc/kernels/reference.c"],
        capture_output=True,
    )
    assert fast.returncode != 0 and b"IEEE" in fast.stderr


def test_missing_library_is_one_line_and_no_verdict(tmp_path):
    shutil.copytree(
        ROOT / "lib", tmp_path / "lib", ignore=shutil.ignore_patterns("*.so", "__pycache__")
    )
    code = f"import sys; sys.path.insert(0, {str(tmp_path / 'lib')!r}); import sluice.kernels"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, env={})
    assert (done.returncode, done.stderr.count(b"\n")) == (70, 1) and b"run make" in done.stderr
