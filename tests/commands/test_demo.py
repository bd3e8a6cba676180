"""make demo: says first how long it takes, classifies, and ends with generated text."""

import os
import subprocess

import pytest
from conftest import ROOT
from tiny_model import write_model

SPAM = ROOT / "lib" / "sluice" / "data" / "spam.gguf"


def demo(*argv, **env):
    done = subprocess.run(
        ["sh", ROOT / "tests" / "helpers" / "demo.sh", *argv],
        capture_output=True,
        timeout=120,
        env={**os.environ, **env},
    )
    assert (done.returncode, done.stderr) == (0, b"")
    return done.stdout.decode(errors="replace").strip().split("\n")


@pytest.mark.full
@pytest.mark.parametrize("there", [True, False], ids=["a model is there", "none is there"])
def test_demo(tmp_path, there):
    if not SPAM.exists():
        pytest.skip(f"missing: {SPAM.relative_to(ROOT)}")
    if there:
        write_model(str(tmp_path / "SmolLM2-135M-Instruct.Q4_1.gguf"), n_layer=1, n_vocab=400)
    lines = demo(SLUICE_REAL_MODELS=str(tmp_path))
    assert lines[0].startswith("This takes about ") and "no" in lines
    verdicts = [line.split()[:2] for line in lines if ".eml " in line and line[0] != "$"]
    assert len(verdicts) == 6
    assert all(answer == ("yes" if "spam" in name else "no") for name, answer in verdicts)
    commands = [line for line in lines if line.startswith("$ ")]
    if there:
        assert commands[-1].startswith("$ generate ") and lines[-1] != commands[-1]
    else:
        assert not any("generate" in line for line in commands)
        assert "`make real-models`" in "\n".join(lines[-3:])


def test_demo_of_a_model(tmp_path):
    write_model(str(tmp_path / "m.gguf"), n_layer=1, n_vocab=400)
    lines = demo(str(tmp_path / "m.gguf"))
    assert "This takes some seconds" in lines[1] and {"yes", "no"} & set(lines)
    assert any(line.startswith("$ generate ") for line in lines)
