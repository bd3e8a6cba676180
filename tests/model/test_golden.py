"""The golden logits against fresh ones from transformers, where torch is installed."""

import importlib.util
import shutil
import struct
import subprocess
import sys

import golden_cases
import pytest
from conftest import ROOT

VENV = ROOT / "build/golden-venv"


def torch_python(*argv):
    """Run a Python that has torch and transformers with tests/ as its directory, or skip."""
    if (VENV / "done").exists():
        python = VENV / "bin/python3"
    elif all(importlib.util.find_spec(name) for name in ("torch", "transformers", "gguf")):
        python = sys.executable
    else:
        pytest.skip("torch and transformers are not installed: make golden-check")
    return subprocess.run(
        [str(python), *map(str, argv)], cwd=ROOT / "tests/helpers", capture_output=True, text=True
    )


def test_golden_files_fit_their_cases():
    cases = golden_cases.cases()
    assert len(cases) >= 33
    for name, case in cases.items():
        rows = golden_cases.expected(name, case)
        assert all(max(map(abs, row)) > 1 for row in rows)
        assert (
            case["positions"] == sorted(case["positions"]) and case["positions"][-1] < case["n_ids"]
        )
    assert {p.stem for p in (ROOT / "tests/golden/logits").iterdir()} == set(cases)


@pytest.mark.full
def test_golden_logits_equal_transformers():
    done = torch_python("golden_logits.py", "--check")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.full
def test_golden_check_finds_one_changed_logit(tmp_path):
    for suffix in (".json", ".f32"):
        shutil.copy(ROOT / f"tests/golden/logits/llama-odd{suffix}", tmp_path)
    path = tmp_path / "llama-odd.f32"
    data = bytearray(path.read_bytes())
    struct.pack_into("<f", data, 4000, struct.unpack_from("<f", data, 4000)[0] + 3e-4)
    path.write_bytes(data)
    code = (
        "import sys, golden_cases; golden_cases.DIRECTORY = sys.argv[1]; "
        "import golden_logits; sys.exit(3 * (not golden_logits.check_all()))"
    )
    done = torch_python("-c", code, tmp_path)
    assert done.returncode == 3, done.stdout + done.stderr


@pytest.mark.parametrize(
    "record, said",
    [
        ("stories260K.greedy.ids", "stories260K: 256 of 256"),
        ("spam-proto.expected.jsonl", "spam-proto: 20 mails"),
    ],
)
@pytest.mark.full
def test_trained_models_answer_as_on_record(datafile, record, said):
    done = torch_python("golden_logits.py", "--real", datafile(f"models/{record}").parent)
    assert done.returncode == 0, done.stdout + done.stderr
    assert said in done.stdout
