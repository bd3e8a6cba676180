"""python -m spam_training.user_calibration: what a fit to a user's labels gains."""

import subprocess

import pytest
from conftest import ROOT

from sluice.question import question

MAILS = sorted((ROOT / "tests" / "mails").glob("*.eml"))


def test_learning_a_hundred_messages_of_another_kind_improves_the_verdicts():
    """The corpora's mails in a form that the model was not calibrated for."""
    np = pytest.importorskip("numpy", reason="numpy is not installed: make .venv/test")
    from spam_training import user_calibration

    draw = np.random.default_rng(1)
    is_spam = draw.random(400) < 0.3
    # all look more like spam than they should
    margin = np.where(is_spam, 2.5, -1.0) + draw.normal(0, 1.5, 400) + 1.5
    rows = dict(
        user_calibration.table(
            margin, is_spam, question.read(str(ROOT / "configs" / "spam.yaml")), [0, 20, 100], 10, 1
        )
    )
    assert rows[100][2] < rows[20][2] < rows[0][2] and rows[100][0] < rows[0][0]


def test_user_calibration_command_prints_its_table(tmp_path):
    pytest.importorskip("numpy", reason="numpy is not installed: make .venv/test")
    import sys

    for mail in MAILS:
        kind = tmp_path / "mine" / mail.stem.split("-")[0]
        kind.mkdir(parents=True, exist_ok=True)
        (kind / mail.name).write_bytes(mail.read_bytes())
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "spam_training.user_calibration",
            tmp_path / "mine",
            "-n",
            "2",
            "-r",
            "2",
            "-f",
            "whole",
            "-f",
            "forwarded",
        ],
        capture_output=True,
        timeout=60,
    )
    lines = done.stdout.decode().splitlines()
    assert (
        done.returncode == 0
        and len(lines) == 6
        and lines[2].startswith("| mine | whole | 6 | 0 | ")
    ), done.stderr
