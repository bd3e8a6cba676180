"""Commands of this checkout as AArch64 programs, run by qemu: Debian's Python for arm64, unpacked
without being installed, and the kernels of a cross compiler.

    python3 tests/helpers/arm64.py classify tests/mails/ham-apt.eml

What it takes is kept in build/arm64: packages of this machine's Debian, 25 MB, and object files.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
HERE = ROOT / "build" / "arm64"
CROSS = "aarch64-linux-gnu-gcc"
NEEDED = (CROSS, "apt-get", "dpkg-deb", "make")
PACKAGES = ("python3", "python3-cffi-backend", "python3-lxml")
APT = """APT::Architecture "arm64";
APT::Architectures {{ "arm64"; }};
APT::Sandbox::User "root";
Dir::State "{0}/state";
Dir::State::status "{0}/state/status";
Dir::Cache "{0}/cache";
"""


class Missing(Exception):
    """The reason why there are no programs of AArch64 here."""


def command(*argv, cpu="max"):
    """The words that run a command of bin/ on a processor of qemu. Missing."""
    qemu = shutil.which("qemu-aarch64") or shutil.which("qemu-aarch64-static")
    lacks = [name for name in NEEDED if not shutil.which(name)]
    if lacks or not qemu:
        raise Missing("no programs for AArch64: apt install gcc-aarch64-linux-gnu qemu-user")
    python, package = _python(), _package()
    env = {"PYTHONHOME": HERE / "root" / "usr", "PYTHONPATH": f"{package}:{HERE / 'site'}"}
    env["PYTHONDONTWRITEBYTECODE"] = 1
    start = ROOT / "lib" / "sluice" / "start.py"
    words = ["env", *(f"{name}={value}" for name, value in env.items()), qemu, "-cpu", cpu]
    words += ["-L", HERE / "root", python, start, ROOT / "bin" / argv[0], *argv[1:]]
    return [str(word) for word in words]


def _python():
    """The path of Python for arm64, unpacked on the first call."""
    root = HERE / "root"
    if not root.exists():
        new = HERE / "new"
        shutil.rmtree(new, ignore_errors=True)
        for name in ("state/lists/partial", "cache/archives/partial"):
            (new / "apt" / name).mkdir(parents=True)
        (new / "apt" / "state" / "status").touch()
        conf = new / "apt.conf"
        conf.write_text(APT.format(new / "apt"))
        env = {**os.environ, "APT_CONFIG": str(conf)}
        fetch = ["apt-get", "-q", "-y", "--no-install-recommends", "--download-only", "install"]
        for argv in (["apt-get", "-q", "update"], [*fetch, *PACKAGES]):
            done = subprocess.run(argv, env=env, capture_output=True, text=True)
            if done.returncode:
                raise Missing("Debian's Python for arm64 cannot be fetched: " + done.stderr[-200:])
        for package in sorted((new / "apt" / "cache" / "archives").glob("*.deb")):
            subprocess.run(["dpkg-deb", "-x", package, new / "root"], check=True)
        os.rename(new / "root", root)
        shutil.rmtree(new)
    return next(p for p in (root / "usr" / "bin").glob("python3.*") if p.name[8:].isdigit())


def _package():
    """The directory of the package sluice: the checkout's Python, and kernels for AArch64."""
    src, package = HERE / "src", HERE / "lib" / "sluice"
    (src / "lib" / "sluice").mkdir(parents=True, exist_ok=True)
    package.mkdir(parents=True, exist_ok=True)
    for name in ("Makefile", "csrc", "lib/sluice/__init__.py"):  # times stay, so make sees changes
        to = (src / name).parent
        subprocess.run(["cp", "-a", "--update", ROOT / name, to], check=True)
    make = ["make", "-C", src, "kernels", f"CC={CROSS}", f"PYTHON={sys.executable}"]
    done = subprocess.run(make, capture_output=True, text=True)
    if done.returncode:
        raise Missing(f"the kernels cannot be compiled by {CROSS}: {done.stderr[-200:]}")
    for path in (ROOT / "lib" / "sluice").iterdir():
        link = package / path.name
        if path.suffix != ".so" and path.name != "__pycache__" and not link.is_symlink():
            link.symlink_to(path)
    shutil.copy(src / "lib" / "sluice" / "_kernels.abi3.so", package)
    import click

    (HERE / "site").mkdir(exist_ok=True)
    link = HERE / "site" / "click"
    link.unlink(missing_ok=True)
    link.symlink_to(Path(click.__file__).parent)
    return package.parent


if __name__ == "__main__":
    os.execvp("env", command(*sys.argv[1:]))
