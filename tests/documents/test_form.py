"""The form of the code: what the formatters and the linter say."""

import subprocess
import sys

import pytest
from conftest import ROOT

PYTHON = ["lib", "tests", "csrc"]


def ruff(*argv):
    return subprocess.run(
        [sys.executable, "-m", "ruff", *argv, *PYTHON], cwd=ROOT, capture_output=True, text=True
    )


@pytest.mark.parametrize("argv", [("format", "--check"), ("check", "--output-format", "concise")])
def test_python_is_in_the_form_of_the_formatter(argv):
    done = ruff(*argv)
    assert done.returncode == 0, done.stdout
