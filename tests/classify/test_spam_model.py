"""The model in the box: lib/sluice/data/spam.gguf and configs/spam.yaml, as `make model` left
them.
"""

import json
import os
import re
import subprocess
import sys
import tarfile

import pytest
from conftest import ROOT, run, sets_here

from sluice import gguf
from sluice.question import question

DATA = ROOT / "lib" / "sluice" / "data"
MAILS = sorted((ROOT / "tests" / "mails").glob("*.eml"))


def test_file_is_small_and_says_what_it_is():
    file = gguf.File(str(DATA / "spam.gguf"))
    assert file.size <= 8 << 20
    for key in ("name", "description", "license", "author", "version", "date"):
        assert file.get(f"general.{key}", "string")
    assert b"spamassassin" in file.get("general.datasets", "[string]").values()
    assert "assistant" in file.get("tokenizer.chat_template", "string")
    assert all(shape[0] % 256 == 0 for shape in (t.shape for t in file.tensors.values())), (
        "K-quants take rows of 256"
    )
    assert {t.type for t in file.tensors.values()} == {0, 8}


def test_card_and_curve_lie_beside_it():
    card = (DATA / "spam.md").read_text()
    for word in ("Enron-Spam", "Ling-Spam", "SpamAssassin", "Not for", "bogofilter", "flatter"):
        assert word in card
    assert (DATA / "spam-calibration.svg").read_text().count("<path") > 10


def test_question_asks_as_training_did():
    pytest.importorskip("numpy", reason="numpy is not installed: make .venv/test")
    from spam_training import augmentation, prepare

    q = question.read(str(ROOT / "configs" / "spam.yaml"))
    asked = [("special" if part.startswith("<") else "text", part) for part in prepare.BEFORE] + [
        ("input", "")
    ]
    asked += [("special" if part.startswith("<") else "text", part) for part in prepare.AFTER]
    assert (
        q.prompt == asked
        and q.fold
        and (q.head_ids, q.tail_ids) == (augmentation.N_HEAD, augmentation.N_TAIL)
    )
    assert q.scale != 1.0 and 0.5 < q.thresholds["yes"] < 1


@pytest.mark.quick_cases(3)
@pytest.mark.parametrize("mail", MAILS, ids=lambda path: path.stem)
def test_bundled_model_is_right_on_new_messages(mail):
    done = run("classify", "--no-cache", input=mail.read_bytes())
    right = b"yes" if mail.stem.startswith("spam") else b"no"
    answer = done.stdout.split()[0]
    assert answer in (right, b"unsure") and (done.stderr, done.returncode) == (
        b"",
        {b"yes": 0, b"no": 1, b"unsure": 2}[answer],
    )


def test_verdicts_have_the_same_bits_on_every_instruction_set(monkeypatch):
    said = {}
    sets = sets_here()
    lines = b"".join(
        json.dumps({"id": path.stem, "text": path.read_bytes().decode("latin-1")}).encode() + b"\n"
        for path in MAILS
    )
    for name in sets:
        for threads in (1, 2):
            monkeypatch.setenv("SLUICE_ISA", name)
            done = run(
                "classify", "--jsonl", "--mail", "--mass", "--no-cache", "-j", threads, input=lines
            )
            assert (done.returncode, done.stderr) == (0, b"")
            said[name, threads] = done.stdout
    assert len(set(said.values())) == 1 and len(said) == 2 * len(sets)


@pytest.mark.full
def test_demo_classifies_six_messages():
    done = subprocess.run(
        ["sh", ROOT / "tests" / "helpers" / "demo.sh"],
        capture_output=True,
        timeout=120,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert (
        len(
            re.findall(
                rb"^(ham|spam)-[a-z-]+\.eml +(yes|no|unsure) [01]\.\d{3}$", done.stdout, re.M
            )
        )
        == 6
    )
    assert b"\nno\n" in done.stdout  # the yes or no of a prompt, and then text of another model


@pytest.mark.full
def test_external_test_set_evaluates_a_folder_of_messages(tmp_path):
    pytest.importorskip("numpy", reason="numpy is not installed: make .venv/test")
    for mail in MAILS:
        folder = tmp_path / "mine" / mail.stem.split("-")[0]
        folder.mkdir(parents=True, exist_ok=True)
        (folder / mail.name).write_bytes(mail.read_bytes())
    judge = [
        sys.executable,
        "-m",
        "spam_training.external_test_set",
        tmp_path / "mine",
        "--rare",
        "0.5",
    ]
    done = subprocess.run(
        judge,
        env={**os.environ, "PYTHONPATH": str(ROOT / "lib")},
        capture_output=True,
        timeout=120,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    head, _, row = [
        [cell.strip() for cell in line.split("|")[1:-1]]
        for line in done.stdout.decode().splitlines()
    ]
    figures = dict(zip(head, row))
    answers = {
        mail.stem: json.loads(
            run("classify", "--json", "--no-cache", input=mail.read_bytes()).stdout
        )["scores"]["yes"]
        for mail in MAILS
    }
    right = sum((p > 0.5) == name.startswith("spam") for name, p in answers.items())
    assert (figures["messages"], figures["n"], figures["accuracy"]) == (
        "mine",
        "6",
        f"{right / 6:.4f}",
    )
    assert figures["recall above 0.5"] == figures["recall"]


def test_external_test_set_names_a_folder_without_mails(tmp_path):
    pytest.importorskip("numpy", reason="numpy is not installed: make .venv/test")
    judge = [sys.executable, "-m", "spam_training.external_test_set", tmp_path]
    done = subprocess.run(
        judge,
        env={**os.environ, "PYTHONPATH": str(ROOT / "lib")},
        capture_output=True,
        timeout=120,
    )
    assert done.returncode == 65 and b"no messages under ham/ or spam/" in done.stderr


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    "broken", ["not an archive", "an archive that is cut", "a model that is cut"]
)
def test_external_test_set_names_a_broken_file_in_one_line(tmp_path, broken):
    pytest.importorskip("numpy", reason="numpy is not installed: make .venv/test")
    (tmp_path / "mine" / "ham").mkdir(parents=True)
    (tmp_path / "mine" / "ham" / "1").write_bytes(MAILS[0].read_bytes())
    archive, model = tmp_path / "mails.tar.xz", tmp_path / "model.gguf"
    with tarfile.open(archive, "w:xz") as tar:
        tar.add(tmp_path / "mine", "mine")
    archive.write_bytes(
        b"no archive" * 100 if broken == "not an archive" else archive.read_bytes()[:-60]
    )
    model.write_bytes((DATA / "spam.gguf").read_bytes()[:100000])
    options = [tmp_path / "mine", "-m", model] if broken == "a model that is cut" else [archive]
    judge = [sys.executable, "-m", "spam_training.external_test_set", *options]
    done = subprocess.run(
        judge,
        env={**os.environ, "PYTHONPATH": str(ROOT / "lib")},
        capture_output=True,
        timeout=120,
    )
    assert (
        done.returncode == 65
        and done.stderr.count(b"\n") == 1
        and str(options[-1]).encode() in done.stderr
    )
