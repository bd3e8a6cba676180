"""The version stands in lib/sluice/__init__.py alone; all that states it takes it from there."""

import re
import shutil
import subprocess

import pytest
from conftest import ROOT, run

from sluice import VERSION

HOME = "lib/sluice/__init__.py"


def files_with(version):
    """Files under version control that contain `version`, as a whole number and of no package that
    a list of requirements pins.
    """
    pattern = rf"(?<![\d.=]){re.escape(version)}(?![\d.])"
    done = subprocess.run(
        ["git", "-C", ROOT, "grep", "-I", "-l", "-P", "-e", pattern], capture_output=True, text=True
    )
    if done.returncode > 1:
        pytest.skip("this is no git checkout: its files are not searched")
    return set(done.stdout.splitlines())


def test_version_stands_in_one_file():
    assert files_with(VERSION) - {"CHANGELOG.md"} == {HOME}


def test_search_finds_what_it_looks_for():
    """Unicode's version is found; a version that only lists of requirements pin is not."""
    assert "csrc/tokenizer/unicode.py" in files_with("16.0.0")
    requirements = (ROOT / "tests" / "requirements.txt").read_text()
    pinned = set(re.findall(r"==(\d+\.\d+\.\d+)\b", requirements))
    assert pinned and any(not files_with(version) for version in pinned)


@pytest.mark.full
def test_programs_are_built_with_the_version_of_the_package(tmp_path):
    """In a copy with another version, make compiles what prints it with that one."""
    copy = tmp_path / "copy"
    names = shutil.ignore_patterns("tests", "build", ".git", ".venv", "*.so", "data", "configs")
    shutil.copytree(ROOT, copy, symlinks=True, ignore=names)
    init = copy / HOME
    init.write_text(init.read_text().replace(f'"{VERSION}"', '"7.65.4"'))
    done = subprocess.run(["make", "-C", copy, "hook"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    said = subprocess.run([copy / "bin/mail-filter", "-V"], capture_output=True).stdout
    assert said == b"mail-filter (sluice) 7.65.4\n"
    marked = subprocess.run(
        [copy / "bin/mail-filter", "--deliver", "stdout", "--classify", "/bin/false"],
        input=b"Subject: hi\n\nhello\n",
        capture_output=True,
    ).stdout
    assert b"\nX-Spam-Checker-Version: Sluice 7.65.4\n" in marked
    listed = subprocess.run(
        ["make", "-nB", "-C", copy, "V=1", "kernels", "milter"], capture_output=True, text=True
    ).stdout
    stated = re.findall(r"-DSLUICE_VERSION='\"(.*?)\"' .*?(\S+)\.c$", listed, re.M)
    assert {version for version, _ in stated} == {"7.65.4"}
    assert {"csrc/mail/marking", "csrc/mail/milter/milter"} <= {name for _, name in stated}


def test_headers_of_the_library_have_the_version():
    message = run("classify", "--pass-through", input=b"Subject: hi\n\nhello\n").stdout
    assert f"\nX-Spam-Checker-Version: Sluice {VERSION}\n".encode() in message
