"""The line at the end of many texts that says when a question does not suit them."""

import json

import pytest
from classify_call import classify, opened, write_question

from sluice.classify.panel import Panel
from sluice.probability.doubts import Doubts

pytestmark = pytest.mark.usefixtures("home")


def said(models, q, n, *argv):
    data = "".join(f"text number {i}\n" for i in range(n)).encode()
    done = classify(models, "-q", q, "--each", "line", *argv, input=data)
    assert done.returncode == 0
    return done.stdout.splitlines(), done.stderr.decode().splitlines()


@pytest.mark.quick_cases(1)
def test_low_mass_is_said_once_with_a_remedy(models, tmp_path):
    q = write_question(tmp_path / "q.yaml")
    lines, (message,) = said(models, q, 25)
    assert len(lines) == 25
    assert "q: in 20 of 20 texts all answers together have a probability below 0.1" in message
    assert "--prior texts" in message


@pytest.mark.parametrize(
    "order, other", [("text-first", "question-first"), ("question-first", "text-first")]
)
def test_typed_question_is_advised_the_other_order(models, tmp_path, order, other):
    q = tmp_path / "q.yaml"
    q.write_text(f"type: choice\nquestion: Who?\nanswers: [a, b]\norder: {order}\n")
    _, (message,) = said(models, q, 20)
    assert f"try another wording, or in a question file, order: {other}, " in message


def test_question_of_the_command_line_is_advised_a_file(models):
    _, (message,) = said(models, "Who?", 20, "--answers", "a,b")
    assert "try another wording, or in a question file, order: question-first, " in message


def test_mass_of_the_message_is_that_of_the_output(models, tmp_path):
    """Answers that differ in their first tokens: what is sampled is what --mass says."""
    q = write_question(tmp_path / "q.yaml")
    data = b"".join(b'{"text": "text number %d"}\n' % i for i in range(30))
    done = classify(models, "-q", q, "--jsonl", "--mass", input=data)
    masses = [json.loads(line)["mass"] for line in done.stdout.splitlines()]
    assert f"in {sum(m < 0.1 for m in masses)} of 30 texts".encode() in done.stderr
    assert b"of 20 texts" in classify(models, "-q", q, "--jsonl", input=data).stderr


def test_few_texts_are_not_judged(models, tmp_path):
    assert said(models, write_question(tmp_path / "q.yaml"), 19)[1] == []


def test_one_answer_for_nearly_all_texts(models, tmp_path):
    q = write_question(tmp_path / "q.yaml", calibration={"bias": {"yes": 50.0}})
    _, (message,) = said(models, q, 50)
    assert "; 50 of 50 texts got the answer yes; if that is not as it should be" in message
    _, (message,) = said(models, q, 49)
    assert "got the answer" not in message


def test_prior_is_not_advised_to_who_has_one(models, tmp_path):
    q = write_question(tmp_path / "q.yaml")
    for prior in ("content-free", "texts"):
        _, (message,) = said(models, q, 20, "--prior", prior)
        assert "--prior" not in message and "another model" in message


def test_answers_that_the_user_gave_are_no_sign(models, tmp_path):
    q = write_question(tmp_path / "q.yaml", calibration={"bias": {"yes": 50.0}})
    files = ("--calibration", tmp_path / "c")
    _, (message,) = said(models, q, 60, *files)
    assert "60 of 60 texts got the answer yes" in message and "--prior texts" in message
    assert said(models, q, 10, *files, "--learn", "yes")[1] == []
    assert "got the answer" not in "".join(said(models, q, 59, *files)[1])  # of 49
    _, (message,) = said(models, q, 60, *files)
    assert "50 of 50 texts got the answer yes" in message
    assert "try --list-learned for what" in message and "--prior" not in message


def test_each_question_in_doubt_has_its_line(models, tmp_path):
    one, two = (write_question(tmp_path / f"{name}.yaml") for name in ("one", "two"))
    _, messages = said(models, one, 20, "-q", two)
    assert [m.split(": ")[1] for m in messages] == ["one", "two"]


@pytest.mark.parametrize(
    ("masses", "is_doubted"),
    [([0.09] * 4 + [0.5] * 16, False), ([0.09] * 5 + [0.5] * 15, True), ([0.1] * 20, False)],
)
def test_a_fifth_of_the_texts_may_have_a_low_mass(models, masses, is_doubted):
    c = opened(models)
    doubts = Doubts(Panel([c]))
    v = c.ask(b"a text")
    for v.mass in masses:
        doubts.add([v])
    assert bool(doubts.lines()) == is_doubted
