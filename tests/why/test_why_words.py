"""classify --why after --learn: the user's own words and fields, each with what it added."""

import json

import pytest
from classify_call import classify, write_question
from conftest import run

from sluice.classify.classifier import Classifier
from sluice.learn.learned import Learned
from sluice.question import question
from sluice.why import user_words

pytestmark = pytest.mark.usefixtures("home")
WANTED = [b"The orchard meeting is at %d.\nBring apples." % i for i in range(8)]
OTHER = [b"The harbour meeting is at %d.\nBring ropes." % i for i in range(8)]
ASKED = b"Who comes to the orchard?\nThere will be apples, and ropes."


@pytest.fixture
def taught(models, tmp_path):
    """(path of a question, path of what was learned): words of orchards are yes, of harbours no."""
    q, path = write_question(tmp_path / "q.yaml"), tmp_path / "learned"
    for answer, texts in (("yes", WANTED), ("no", OTHER)):
        for i, text in enumerate(texts):
            (tmp_path / f"{answer}{i}").write_bytes(text)
        files = [tmp_path / f"{answer}{i}" for i in range(len(texts))]
        done = classify(models, "-q", q, "--calibration", path, "--learn", answer, *files)
        assert done.returncode == 0, done.stderr
    return q, path


def explained(models, taught, *options, text=ASKED):
    q, path = taught
    done = classify(models, "-q", q, "--calibration", path, "--why", "--json", *options, input=text)
    assert done.returncode in (0, 1, 2), done.stderr
    return json.loads(done.stdout)["why"]


@pytest.mark.quick_cases(1)
def test_words_have_the_sign_of_what_was_taught(models, taught):
    found = explained(models, taught)
    sign = 1 if found["of"] == "yes" else -1
    words = {w["word"]: sign * w["effect"] for w in found["learned"]["words"]}
    assert words["orchard"] > 0 and words["apples"] > 0 and words["ropes"] < 0
    assert "comes" not in words  # nobody has taught it
    assert found["learned"]["n_texts"] == 16 and found["learned"]["taught"] is None


def test_effect_is_the_log_odds_less_those_without_the_word(models, taught):
    q, path = taught
    read = question.read(str(q))
    c = Classifier(read, str(models / "llama.gguf"), 1)
    c.learned = Learned(str(path), read)
    v = c.ask(ASKED)
    words = user_words.explain(c, v, "yes")
    joint, (t, weights) = v.learned.joint, v.learned.evidence(c.words_of(v))
    # of two answers a word moves the log-odds by trust times the difference of its two shares
    for word, effect in words.effects:
        yes, no = weights[word]
        assert effect == pytest.approx(joint.trust * (yes - no), abs=1e-9)
    assert words.together == pytest.approx(joint.trust * (t[0] - t[1]), abs=1e-9)
    assert sum(x for _, x in words.effects) == pytest.approx(words.together, abs=1e-6)


def test_top_limits_the_words_and_the_largest_come_first(models, taught):
    found = explained(models, taught, "--top", "2")["learned"]
    assert len(found["words"]) == 2 < found["n_words"]
    assert abs(found["words"][0]["effect"]) >= abs(found["words"][1]["effect"])


@pytest.mark.quick_cases(1)
def test_terminal_shows_words_without_control_characters(models, taught):
    q, path = taught
    hostile = b"orchard\x1b[31m apples\nropes\x9b and \xe2\x80\xaeropes"
    done = classify(models, "-q", q, "--calibration", path, "--why", input=hostile)
    out = done.stdout.decode()
    assert "learned from 16 texts: words and fields add" in out and "orchard" in out
    assert all(line.isprintable() for line in out.splitlines())


@pytest.mark.quick_cases(1)
def test_page_has_the_words(models, taught, tmp_path):
    q, path = taught
    page = tmp_path / "page.html"
    options = ("--calibration", path, "--why", "--html", page)
    classify(models, "-q", q, *options, input=ASKED + b"\n<script>orchard</script>")
    text = page.read_text()
    assert "<h2>Your words</h2>" in text and "orchard" in text and "<script" not in text


def test_text_that_was_taught_says_so(models, taught):
    assert explained(models, taught, text=WANTED[0])["learned"]["taught"] == "yes"


def test_nothing_is_said_of_words_where_nothing_was_learned(models, tmp_path):
    q = write_question(tmp_path / "q.yaml")
    assert "learned" not in explained(models, (q, tmp_path / "absent"))


@pytest.mark.full
def test_fields_of_a_message_are_words_too(tmp_path):
    path = tmp_path / "learned"
    for answer, host in (("no", b"friend.example"), ("yes", b"shop.example")):
        for i in range(4):
            mail = b"From: a@%s\nSubject: number %d\n\nSee the list, please.\n" % (host, i)
            done = run("classify", "--calibration", path, "--learn", answer, input=mail)
            assert done.returncode == 0, done.stderr
    mail = b"From: b@friend.example\nSubject: hello\n\nSee you.\nPlease call.\n"
    done = run("classify", "--calibration", path, "--why", "--json", input=mail)
    found = json.loads(done.stdout)["why"]
    sign = 1 if found["of"] == "no" else -1
    words = {w["word"]: sign * w["effect"] for w in found["learned"]["words"]}
    assert any(x > 0 and word.startswith("from:") for word, x in words.items()), words
