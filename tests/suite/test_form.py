"""The form of the code: what the formatters and the linter say."""

import subprocess
import sys
from pathlib import Path

import clang_format
import pytest
from conftest import ROOT

CLANG_FORMAT = Path(clang_format.__file__).parent / "data" / "bin" / "clang-format"
PYTHON = ["lib", "tests", "csrc"]


def ruff(*argv):
    return subprocess.run(
        [sys.executable, "-m", "ruff", *argv, *PYTHON], cwd=ROOT, capture_output=True, text=True
    )


@pytest.mark.parametrize("argv", [("format", "--check"), ("check", "--output-format", "concise")])
def test_python_is_in_the_form_of_the_formatter(argv):
    done = ruff(*argv)
    assert done.returncode == 0, done.stdout


def test_c_is_in_the_form_of_the_formatter():
    sources = [
        str(path)
        for folder in ("csrc", "tests")
        for suffix in ("c", "h")
        for path in sorted((ROOT / folder).rglob(f"*.{suffix}"))
    ]
    done = subprocess.run(
        [CLANG_FORMAT, "--dry-run", "--Werror"]
        + [f"--style=file:{ROOT / 'csrc/.clang-format'}", *sources],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[:2000]
