"""classify --long: its line, and the short way to it, which starts without click."""

import os
import subprocess

import pytest
from conftest import BIN, run
from worker_process import DATA, ENV, MAILS

from sluice import gguf
from sluice.question import question


@pytest.mark.full
def test_long_line_has_the_score_of_the_first_answer(tmp_path):
    q = question.read(question.find("spam"))
    model = gguf.File(question.model_path(q)).id[:8].hex()
    for path in MAILS:
        done = run("classify", "--long", path, env=ENV)
        answer, score, required, found = done.stdout.decode().split(" ")
        short = run("classify", path, env=ENV)
        assert short.stdout.decode().split()[
            0
        ] == answer and short.returncode == done.returncode == ["yes", "no", "unsure"].index(answer)
        assert required == f"{q.thresholds['yes']:.4f}" and found == model + "\n"
        assert (
            (answer == "yes") == (path.name.startswith("spam")) == (float(score) >= float(required))
        )
    for argv in (
        ("--long", "--json"),
        ("--long", "--jsonl"),
        ("--listen", "s", "--long"),
        ("--listen", "s", "x"),
        ("--workers", "2"),
        ("--listen", "s", "--mode", "0999"),
        ("--listen", "s", "--mode", "01000"),
        ("--listen", "s", "--workers", "0"),
    ):
        done = run("classify", *argv, env=ENV, cwd=tmp_path)
        assert done.returncode == 64 and done.stderr.count(b"\n") == 1, (argv, done.stderr)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    "argv",
    [
        (),
        ("-q", "./q.yaml"),
        ("-m", "spam.gguf"),
        ("--mail", "-j", "1"),
        ("--question", "spam", "--threads", "2"),
        ("--cache", "cache"),
        ("--no-calibration",),
        ("--calibration", "none"),
    ],
)
@pytest.mark.quick_cases(2)
def test_fast_start_prints_the_same_long_line(my_model, argv):
    for data in (DATA[0], DATA[3]):
        ways = [
            run("classify", *words, env=ENV, cwd=my_model.parent, input=data)
            for words in (("--long", *argv), (*argv, "--no-cache", "--long"))
        ]
        assert (
            len({(done.returncode, done.stdout, done.stderr) for done in ways}) == 1
            and ways[0].stdout.count(b" ") == 3
        )


@pytest.mark.full
def test_fast_start_fails_as_the_full_path(my_model):
    for argv in (
        ("-q", "none"),
        ("-q", "none.yaml"),
        ("-m", "none"),
        ("-m", "q.yaml"),
        ("-j", "0"),
        ("-j", "x"),
        ("-j",),
        ("-x",),
        ("none",),
        ("-m",),
        ("-m", ""),
        ("-q", "urgent"),
        ("--cache", "q.yaml"),
        ("--long",),
        ("-h",),
        ("--lon",),
        ("-vj1",),
        ("--threads=3",),
        ("-q", "-q"),
    ):
        ways = [
            run("classify", *words, env=ENV, cwd=my_model.parent, input=DATA[0])
            for words in (("--long", *argv), ("--no-cache", "--long", *argv))
        ]
        if "-vj1" in argv:
            assert ways[0].returncode == ways[1].returncode == 1
        else:
            assert len({(done.returncode, done.stdout, done.stderr) for done in ways}) == 1, (
                argv,
                ways,
            )
    for data, closed in (
        (b"", None),
        (DATA[0], ">&-"),
        (DATA[0], ">/dev/full"),
        (b"", "<&-"),
        (b"", "<."),
    ):
        ways = []
        for line in ("--long --no-cache", "--no-cache --long"):
            ways.append(
                subprocess.run(
                    ["sh", "-c", f"{BIN}/classify {line} {closed or ''}"],
                    input=data,
                    capture_output=True,
                    cwd=my_model.parent,
                    env=ENV,
                )
            )
        assert (
            len({(done.returncode, done.stdout, done.stderr) for done in ways}) == 1
            and ways[0].returncode >= 64
        ), ways
