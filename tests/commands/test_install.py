"""pip install . into clean environments: every command runs, from any supported Python that is
here.
"""

import os
import shutil
import subprocess
import sys

import pytest
from conftest import BIN, ROOT
from test_bits import CROSS, SOURCES, flags_of
from tiny_model import write_model

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


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    d = tmp_path_factory.mktemp("wheel")
    # nothing that was built here may leak in
    shutil.copytree(
        ROOT,
        d / "source",
        ignore=shutil.ignore_patterns(
            ".git",
            ".venv",
            "build",
            "__pycache__",
            "*.so",
            ".hypothesis",
            ".pytest_cache",
            "mail-filter",
            "mail-milter",
            "*.new",
        ),
    )
    (d / "a venv").symlink_to(sys.prefix)  # a path with a blank is a path
    python = d / "a venv" / "bin" / "python3"
    done = subprocess.run(
        [python, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(d), str(d / "source")],
        capture_output=True,
    )
    assert done.returncode == 0, done.stderr.decode()
    (path,) = d.glob("*.whl")
    return path


def test_wheel_is_tagged_for_every_python_from_3_10(wheel):
    assert "-cp310-abi3-" in wheel.name
    listing = subprocess.run(
        [sys.executable, "-m", "zipfile", "-l", str(wheel)], capture_output=True
    ).stdout.decode()
    assert listing.count(".so ") == 1 and all(f"scripts/{tool} " in listing for tool in TOOLS)
    assert all(f"share/man/man1/{tool}.1 " in listing for tool in TOOLS)
    data = [f"sluice/configs/{p.name} " for p in (ROOT / "configs").glob("*.yaml")]
    data += [f"sluice/configs/{p.name} " for p in (ROOT / "configs").glob("*.jinja")]
    data += [f"sluice/data/{p.name} " for p in (ROOT / "lib" / "sluice" / "data").glob("*.gguf")]
    assert len(data) >= 6 and all(name in listing for name in data), listing


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
    script = """set -e
        for tool in %s; do $tool -V; done
        echo hello | tokenize | prefill -o p.snap
        mkfifo ring
        decode p.snap <ring | grammar-filter -e 'root ::= "yes" | "no"' | sample -t 0 | tee ring | tokenize -d
        gguf-dump p.snap >/dev/null
        echo; echo hello | chat --template plain -n 3 >talk; [ -s talk ]
        generate -n 3 hello >/dev/null
        echo hello | classify -q language-is-english >answer || [ $? -le 2 ]
        grep -Eq '^(yes|no|unsure) [01]\\.[0-9]{3}$' answer
        printf 'Subject: hi\n\nhello\n' | mail-filter --deliver stdout >marked; grep -q '^X-Spam-Score: ' marked""" % " ".join(
        TOOLS
    )
    done = subprocess.run(
        ["sh", "-c", script], cwd=tmp_path, env=env, capture_output=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.endswith((b"yes\n", b"no\n")) and done.stdout.count(b"(sluice)") == len(
        TOOLS
    )


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
