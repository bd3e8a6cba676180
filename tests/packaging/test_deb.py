"""The Debian package: lintian finds no error, and in a Debian of its own it is installed, works,
and is removed without a trace.

The Debian is made once by debootstrap and kept as build/debian-SUITE.tar.
"""

import os
import re
import shutil
import subprocess
from importlib import metadata

import pytest
from conftest import ROOT
from tiny_model import write_model

NEEDED = ("dpkg-buildpackage", "dh", "debootstrap", "lintian", "unshare")
MISSING = [name for name in NEEDED if not shutil.which(name, path="/usr/sbin:/usr/bin:/sbin:/bin")]
pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(bool(MISSING), reason=f"not on this machine: {', '.join(MISSING)}"),
    pytest.mark.skipif(os.geteuid() != 0, reason="not root: no package is installed in a chroot"),
]
HOME = "/usr/lib/sluice"
VENDORED = ROOT / "configs" / "debian" / "vendored.txt"
# What others keep for themselves: dpkg, its log, man-db, ldconfig, Python's bytecode of its own
# modules, and what commands cache for their user.
STATE = re.compile(
    "/var/(lib/dpkg|log|cache/man|cache/ldconfig)/|/usr/lib/python3.*/__pycache__(/|$)|/home/"
)


def suite():
    """This machine's release: the package is built for its Python."""
    release = dict(re.findall(r'^(\w+)="?([^"\n]*)', open("/etc/os-release").read(), re.M))
    if release["ID"] != "debian":
        pytest.skip(f"{release['ID']} is not Debian: the package's dependencies have other names")
    return release["VERSION_CODENAME"]


@pytest.fixture(scope="module")
def deb():
    done = subprocess.run(["make", "-C", ROOT, "deb"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    (path,) = (ROOT / "build" / "deb").glob("sluice_*.deb")
    return path


@pytest.fixture(scope="module")
def chroot(tmp_path_factory, deb):
    """Debian in a directory, with what the package depends on, man and the package's file."""
    depends = subprocess.check_output(["dpkg-deb", "-f", deb, "Depends"], text=True)
    packages = ",".join(sorted([*re.findall(r"(?:^|, )([^ ,]+)", depends.strip()), "man-db"]))
    kept = ROOT / "build" / f"debian-{suite()}.tar"
    of = kept.with_suffix(".packages")  # a tarball with other packages is no use
    root = tmp_path_factory.mktemp("debian")
    if not kept.exists() or not of.exists() or of.read_text() != packages:
        make = ["debootstrap", "--variant=minbase", f"--include={packages}", suite(), root]
        done = subprocess.run(make, capture_output=True, text=True)
        if done.returncode:
            pytest.skip("debootstrap cannot run here: " + (done.stdout + done.stderr)[-300:])
        for name in (root / "var" / "cache" / "apt" / "archives").glob("*.deb"):
            name.unlink()
        subprocess.run(["tar", "-cf", f"{kept}.new", "-C", root, "."], check=True)
        os.replace(f"{kept}.new", kept)
        of.write_text(packages)
    else:
        subprocess.run(["tar", "-xf", kept, "-C", root], check=True)
    shutil.copy(deb, root / "sluice.deb")
    yield root
    shutil.rmtree(root)


@pytest.fixture
def inside(chroot):
    """inside(SCRIPT): a CompletedProcess of sh in the chroot, with a /proc of its own."""

    def inside(script):
        mounted = f'mount -t proc proc {chroot}/proc && exec chroot {chroot} sh -c "$0"'
        done = subprocess.run(
            ["unshare", "--mount", "sh", "-c", mounted, script],
            capture_output=True,
            text=True,
            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/home", "LC_ALL": "C.UTF-8"},
        )
        if "unshare failed" in done.stderr or "mount:" in done.stderr:
            pytest.skip(f"no mounts of its own: {done.stderr.strip()}")
        return done

    return inside


def required_by(name):
    """The packages that `name` requires and those that they require, extras left out."""
    out = set()
    for line in metadata.requires(name) or []:
        needed, _, marker = line.partition(";")
        if "extra ==" not in marker:
            needed = re.match(r"[\w-]+", needed)[0].lower()
            out |= {needed} | required_by(needed)
    return out


def test_vendored_packages_are_those_required():
    """Each at one version, and none that nothing requires. That none is missing is pip's to check,
    when the package is built.
    """
    lines = [line for line in VENDORED.read_text().splitlines() if not line.startswith("#")]
    assert all(re.fullmatch(r"[a-z0-9-]+==[0-9.]+", line) for line in lines)
    names = {line.partition("==")[0] for line in lines}
    required = (ROOT / "lib" / "requirements.txt").read_text()
    own = {name.lower() for name in re.findall(r"^([A-Za-z0-9-]+)", required, re.M)}
    assert own <= names <= own.union(*map(required_by, own))


def test_lintian_finds_no_error(deb):
    (changes,) = deb.parent.glob("*.changes")
    done = subprocess.run(
        ["lintian", "--allow-root", "--fail-on=error", "--tag-display-limit=0", changes],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "E: " not in done.stdout
    overrides = (ROOT / "configs" / "debian" / "sluice.lintian-overrides").read_text()
    assert "mismatched-override" not in done.stdout and "#" in overrides


def test_package_holds_what_it_should(deb):
    listing = subprocess.check_output(["dpkg-deb", "--fsys-tarfile", deb])
    names = subprocess.run(["tar", "-t"], input=listing, capture_output=True).stdout.decode()
    paths = {name[1:] for name in names.splitlines()}
    assert {p for p in paths if p.startswith("/usr/bin/")} == {"/usr/bin/", "/usr/bin/sluice"}
    commands = {p.name for p in (ROOT / "bin").iterdir() if p.name != "mail-milter"}
    assert {f"{HOME}/bin/{name}" for name in commands} <= paths
    pages = {p.rpartition("/")[2] for p in paths if p.startswith("/usr/share/man/man1/")}
    for name in commands - {"sluice", "sluice-bench"}:
        assert f"sluice-{name}.1.gz" in pages
    assert {"sluice.1.gz", "sluice-bench.1.gz"} <= pages
    assert all(page.startswith("sluice") for page in pages if page)
    assert {
        f"/lib/systemd/system/{p.name}" for p in (ROOT / "configs" / "systemd").iterdir()
    } <= paths
    examples = "/usr/share/doc/sluice/examples"
    assert {f"{examples}/postfix/master.cf", f"{examples}/recipes/procmailrc"} <= paths
    assert {
        "/usr/share/bash-completion/completions/sluice",
        "/usr/share/zsh/vendor-completions/_sluice",
        "/usr/share/fish/vendor_completions.d/sluice.fish",
    } <= paths
    assert not [p for p in paths if "spam_training" in p or p.endswith((".pyc", ".o"))]


def test_paths_in_units_and_examples_exist(chroot, deb):
    """No unit, recipe or setting names a path of another installation."""
    (chroot / "unpacked").mkdir()
    subprocess.run(["dpkg-deb", "-x", deb, chroot / "unpacked"], check=True)
    named = []
    examples = "usr/share/doc/sluice/examples"
    for d in ("lib/systemd/system", f"{examples}/recipes", f"{examples}/postfix"):
        for path in (chroot / "unpacked" / d).iterdir():
            if path.suffix == ".md":  # about an installation from source
                continue
            text = path.read_text()
            assert "/opt/" not in text and "/usr/local/" not in text, path
            named += re.findall(r"/usr/(?:lib|share/doc)/sluice/[\w./-]*\w", text)
    assert len(set(named)) >= 4
    for path in set(named):
        found = chroot / "unpacked" / path[1:]
        assert found.exists() or found.with_name(found.name + ".gz").exists(), path
    shutil.rmtree(chroot / "unpacked")


def everything(root):
    """The paths of all that is in the chroot, apart from other programs' state."""
    found = subprocess.check_output(["find", root, "-xdev", "-printf", "/%P\n"], text=True)
    return {path for path in found.splitlines() if not STATE.match(path)}


def test_installed_used_and_purged(chroot, inside):
    write_model(str(chroot / "m.gguf"), n_layer=1, n_vocab=400)
    shutil.copy(ROOT / "tests" / "mails" / "spam-cards.eml", chroot / "spam.eml")
    before = everything(chroot)

    done = inside("dpkg -i /sluice.deb")
    assert done.returncode == 0, done.stdout + done.stderr
    assert not (chroot / "etc/systemd/system/sockets.target.wants/sluice-classify.socket").exists()

    done = inside("sluice classify --no-cache </spam.eml")
    assert (done.returncode, done.stdout, done.stderr) == (0, "yes 1.000\n", "")
    done = inside("sluice generate -m /m.gguf -t 0 -n 8 hello")
    assert (done.returncode, done.stderr) == (0, "") and done.stdout
    done = inside(f"echo hello | {HOME}/bin/tokenize -m /m.gguf | sluice tokenize -m /m.gguf -d")
    assert (done.returncode, done.stdout) == (0, "hello\n")
    done = inside("sluice mail-filter --deliver stdout </spam.eml")
    assert done.returncode == 0 and "X-Spam-Flag: YES" in done.stdout
    done = inside("sluice classify --evaluate yes=/spam.eml | head -1")
    assert (done.returncode, done.stdout, done.stderr) == (0, "1 text\n", "")
    done = inside("man sluice-classify | head -3")
    assert done.returncode == 0 and done.stdout.lower().startswith("classify(1)"), done.stderr
    # every extension module is whole after dh_strip, and nobody else's Python is seen
    modules = (
        "_cffi_backend, blake3, jinja2, lxml.etree, markupsafe._speedups, numpy.linalg, yaml._yaml"
    )
    code = f'import {modules}, sys; print("dist-packages" in str(sys.path))'
    done = inside(f"{HOME}/venv/bin/python3 -I -c '{code}'")
    assert (done.returncode, done.stdout) == (0, "False\n"), done.stderr
    # root has used it, and bytecode of another optimization level lies beside the modules
    done = inside(f"{HOME}/venv/bin/python3 -I -O -c 'import sluice.stream, yaml'")
    assert done.returncode == 0, done.stderr

    done = inside("dpkg -r sluice && dpkg -P sluice")
    assert done.returncode == 0 and "warning" not in done.stderr, done.stderr
    after = everything(chroot)
    assert (after - before, before - after) == (set(), set())
