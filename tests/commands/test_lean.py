"""Starting without what click imports for its help pages alone."""

import inspect
import subprocess
import sys

import pytest
from conftest import ROOT, SCRIPTS, START

from sluice.cli import lean

HEAVY = {"ast", "dis", "inspect", "tokenize"}


@pytest.mark.quick_cases(7)
@pytest.mark.parametrize("tool", [name for name in SCRIPTS if name != "sluice-bench"])
def test_command_starts_without_module(tool):
    """All but the benchmark, which needs dataclasses."""
    done = subprocess.run(
        [sys.executable, "-I", "-X", "importtime", START, tool, "--version"],
        capture_output=True,
        text=True,
    )
    imported = {line.rsplit("|", 1)[1].strip() for line in done.stderr.splitlines()}
    assert done.returncode == 0 and "click" in imported and not imported & HEAVY


def test_stand_in_is_gone_afterwards_and_hands_on_all_else():
    code = (
        "from sluice import cli; from sluice.cli import lean; import sys; assert 'inspect' not in"
        " sys.modules; import click.core, inspect as real; known = click.core.inspect; assert known"
        " is not real and known.isfunction is real.isfunction; assert known.cleandoc('  a\\n    b')"
        " == 'a\\nb' and sys.modules['inspect'] is real"
    )
    subprocess.run(
        [sys.executable, "-c", code], check=True, cwd=ROOT, env={"PYTHONPATH": str(ROOT / "lib")}
    )


@pytest.mark.parametrize(
    "doc",
    [
        "",
        "Help.",
        "  Help.  ",
        "\tA tab\there.",
        "Two\n   lines.",
        "\n\n  A.\n\n    B.\n  ",
        "a\n\tb\n\tc\n",
    ],
)
def test_cleandoc_is_that_of_inspect(doc):
    assert lean._Inspect("inspect").cleandoc(doc) == inspect.cleandoc(doc)


def test_stand_in_hands_on_while_it_is_there():
    """To a click of another version, that asks for more while it is imported."""
    code = (
        "import sys; from sluice.cli import lean\n"
        "with lean.imports():\n"
        "    from inspect import signature\n"
        "    import dataclasses, inspect as real\n"
        "assert sys.modules['inspect'] is real and real.signature is signature"
    )
    subprocess.run(
        [sys.executable, "-c", code], check=True, cwd=ROOT, env={"PYTHONPATH": str(ROOT / "lib")}
    )


def test_imported_module_stays():
    with lean.imports():
        assert sys.modules["inspect"] is inspect
    assert sys.modules["inspect"] is inspect
