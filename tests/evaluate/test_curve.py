"""`classify --evaluate --curve`: the learning curve, next to bogofilter where it is installed."""

import json
import os
import shutil
import stat

import numpy as np
import pytest
from classify_call import classify, write_models, write_question
from conftest import run

from sluice.classify.classifier import Classifier
from sluice.evaluate import curve
from sluice.faults import Error
from sluice.learn import learned, teach
from sluice.question import question

THEMES = {
    "spam": "winner prize claim lottery casino bonus discount cheap offer".split(),
    "ham": "meeting numbers report minutes agenda project draft review budget".split(),
}
FILLER = "the of and to a in for is on that by this with you it not or be are from".split()
BOGOFILTER = shutil.which("bogofilter")
needs_bogofilter = pytest.mark.skipif(not BOGOFILTER, reason="needs bogofilter")


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    return write_models(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="module")
def q(tmp_path_factory):
    """A question to which the tiny model's answers are noise."""
    return write_question(
        tmp_path_factory.mktemp("q") / "q.yaml", aliases={"spam": "yes", "ham": "no"}
    )


@pytest.fixture(scope="module")
def labelled(tmp_path_factory):
    """60 messages; words tell their answers."""
    folder = tmp_path_factory.mktemp("mail")
    rng = np.random.default_rng(1)
    for i in range(60):
        label = ("spam", "ham", "ham")[i % 3]
        words = [*rng.choice(THEMES[label], 4), *rng.choice(FILLER, 12)]
        path = folder / label / f"{i:02}.eml"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"From: a{i}@example.org\nSubject: {words[0]}\n\n{' '.join(words[1:])}\n")
    return folder


def evaluate(models, *argv, **kwargs):
    return classify(models, "--evaluate", "--mail", *argv, **kwargs)


def points(models, *argv, **kwargs):
    done = evaluate(models, "--json", *argv, **kwargs)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["curve"]


def without_bogofilter(tmp_path):
    """An environment whose PATH has python3 and nothing else."""
    (tmp_path / "bin").mkdir()
    for name in "python3", "env":
        (tmp_path / "bin" / name).symlink_to(shutil.which(name))
    return {"PATH": str(tmp_path / "bin")}


@pytest.mark.quick_cases(1)
def test_learned_texts_raise_accuracy_above_that_of_the_model(models, q, labelled):
    found = points(models, "-q", q, "--curve", "5,40", labelled)
    few, many = found["points"]
    assert [few["learned"], few["tested"]] == [5, 55] and many["tested"] == 20
    assert many["accuracy"]["learned"] > 0.95 > many["accuracy"]["model"]
    assert many["auc"]["learned"] > few["auc"]["learned"] > few["auc"]["model"]
    assert found["draws"] == 5


@pytest.mark.full
def test_two_runs_print_the_same_bytes_at_any_number_of_threads(models, q, labelled):
    for form in ((), ("--json",)):
        argv = ("-q", q, labelled, "--curve", "20,10,20", *form)
        one, two = evaluate(models, *argv, "-j", 1), evaluate(models, *argv, "-j", 2)
        assert one.returncode == 0 and one.stdout == two.stdout and one.stderr == b""


@pytest.mark.full
def test_the_report_has_the_figures_of_the_object(models, q, labelled):
    argv = ("-q", q, labelled, "--curve", "10,20")
    report = evaluate(models, *argv).stdout.decode().splitlines()
    found = points(models, *argv)
    for point in found["points"]:
        row = [str(point["learned"]), str(point["tested"])]
        row += [f"{point['accuracy'][s]:.3f}" for s in found["systems"]]
        row += [f"{point['auc'][s]:.4f}" for s in found["systems"]]
        assert row in [line.split() for line in report]


@pytest.mark.full
def test_figures_are_those_of_texts_taught_by_learn(models, q, labelled, tmp_path):
    """One number of texts, taught draw by draw into a file, and the others judged by it."""
    number, files = 12, sorted(labelled.glob("*/*"), key=lambda p: (p.parent.name, p.name))
    right = ["yes" if p.parent.name == "spam" else "no" for p in files]
    asked = question.read(str(q))
    c = Classifier(asked, str(models / "llama.gguf"), as_mail=True)
    hits = {"learned": [], "model": []}
    for draw, order in enumerate(curve._orders(len(files), number)):
        path = str(tmp_path / str(draw))
        teacher = teach.Teacher(c, path)
        c.learned = None
        for i in order[:number]:
            v = c.ask(files[i].read_bytes())
            teacher.add(teach.lesson_of(c, v, list(asked.answers).index(right[i])))
        teacher.save()
        for name in hits:
            c.learned = learned.Learned(path, asked) if name == "learned" else None
            said = [c.ask(files[i].read_bytes()).scores for i in order[number:]]
            best = [max(p, key=p.get) for p in said]
            hits[name].append(np.mean([a == right[i] for a, i in zip(best, order[number:])]))
    (point,) = points(models, "-q", q, "--curve", number, labelled)["points"]
    for name in hits:
        assert point["accuracy"][name] == pytest.approx(np.mean(hits[name]), abs=1e-6)


@pytest.mark.full
def test_what_was_learned_is_neither_used_nor_changed(models, q, labelled, tmp_path):
    kept = tmp_path / "kept.calibration"
    plain = points(models, "-q", q, "--curve", "10", labelled)
    one = next((labelled / "ham").iterdir())
    argv = ("--mail", "-q", q, "--calibration", kept)
    assert classify(models, *argv, "--learn", "spam", one).returncode == 0
    before = kept.read_bytes()
    assert points(models, "-q", q, "--curve", "10", labelled, "--calibration", kept) == plain
    assert kept.read_bytes() == before


@needs_bogofilter
def test_bogofilter_is_taught_the_same_texts(models, q, labelled):
    found = points(models, "-q", q, "--curve", "40", labelled)
    assert found["systems"] == ["model", "learned", "bogofilter"]
    (point,) = found["points"]
    assert point["accuracy"]["bogofilter"] > 0.7 and point["auc"]["bogofilter"] > 0.9


@pytest.mark.full
@needs_bogofilter
def test_the_settings_of_the_users_bogofilter_do_not_count(models, q, labelled, tmp_path):
    plain = points(models, "-q", q, "--curve", "20", labelled)
    (tmp_path / ".bogofilter.cf").write_text("robs=30\nmin_dev=0.45\n")
    env = {**os.environ, "HOME": str(tmp_path)}
    assert points(models, "-q", q, "--curve", "20", labelled, env=env) == plain


@pytest.mark.full
def test_without_bogofilter_the_curve_says_so(models, q, labelled, tmp_path):
    env = without_bogofilter(tmp_path)
    done = evaluate(models, "-q", q, "--curve", "10", labelled, env=env)
    assert done.returncode == 0 and b"No bogofilter: it is not installed." in done.stdout
    assert points(models, "-q", q, "--curve", "10", labelled, env=env)["systems"] == [
        "model",
        "learned",
    ]


@pytest.mark.full
@pytest.mark.parametrize(
    "script, why",
    [
        ("echo 'x H 0.5'", "answered 1 of 50 texts"),
        ("echo no room >&2; exit 3", "no room"),
        ("kill -9 $$", "exit status -9"),
        ("for i in $(seq 50); do echo x y z; done", "could not convert"),
    ],
    ids=["too-few", "error", "killed", "no-numbers"],
)
def test_a_bogofilter_that_fails_costs_its_column_only(models, q, labelled, tmp_path, script, why):
    env = without_bogofilter(tmp_path)
    fake = tmp_path / "bin" / "bogofilter"
    fake.write_text(f"#!/bin/sh\nPATH=/bin:/usr/bin\n{script}\n")
    fake.chmod(0o755)
    done = evaluate(models, "--json", "-q", q, "--curve", "10,20", labelled, env=env)
    found = json.loads(done.stdout)["curve"]
    assert done.returncode == 0 and found["systems"] == ["model", "learned"]
    assert len(found["points"]) == 2
    assert done.stderr.startswith(b"classify: bogofilter: ") and why.encode() in done.stderr


@pytest.mark.full
def test_no_text_stays_in_the_temporary_directory(models, q, labelled, tmp_path):
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    assert points(models, "-q", q, "--curve", "10", labelled, env=env)
    assert evaluate(models, "-q", q, "--curve", "60", labelled, env=env).returncode == 65
    assert os.listdir(tmp_path) == []


def test_texts_for_bogofilter_are_private(models, q, labelled):
    c = Classifier(question.read(str(q)), str(models / "llama.gguf"), as_mail=True)
    with curve.Collector(c) as collector:
        if collector._folder:
            folder = collector._folder.name
            assert stat.S_IMODE(os.stat(folder).st_mode) == 0o700
        one = next((labelled / "ham").iterdir()).read_bytes()
        collector.see(one, c.ask(one), 1)
    assert not collector._folder or not os.path.exists(folder)


def test_questions_with_more_answers_have_a_curve_without_bogofilter(models, tmp_path):
    q = write_question(tmp_path / "q.yaml", answers={a: [a] for a in ("one", "two", "three")})
    lines = [
        json.dumps({"text": f"{word} {word}ish {i}", "label": answer})
        for i in range(10)
        for answer, word in (("one", "red"), ("two", "green"), ("three", "blue"))
    ]
    (tmp_path / "t.jsonl").write_text("\n".join(lines))
    done = classify(models, "--evaluate", "--json", "-q", q, "--curve", "15", tmp_path / "t.jsonl")
    found = json.loads(done.stdout)["curve"]
    assert found["systems"] == ["model", "learned"]
    assert found["points"][0]["accuracy"]["learned"] > 0.9


@pytest.mark.full
def test_a_page_has_a_plot_for_accuracy_and_one_for_auc(models, q, labelled, tmp_path):
    page = tmp_path / "p.html"
    assert evaluate(models, "-q", q, "--curve", "10,20", labelled, "--html", page).returncode == 0
    text = page.read_text()
    assert text.count("<svg") == 5 and "<h2>Learning</h2>" in text
    assert 'aria-label="Learning: accuracy"' in text and 'aria-label="Learning: AUC"' in text


@pytest.mark.parametrize("numbers", ["", "x", "0", "10,", "-1", "20001", "1.5"])
def test_numbers_that_are_none_are_refused(numbers):
    with pytest.raises(Error) as caught:
        curve.sizes(numbers)
    assert caught.value.code == 64 and "--curve" in str(caught.value)


def test_numbers_are_sorted_and_may_repeat():
    assert curve.sizes("200,10, 50,10") == [10, 50, 200]
    with pytest.raises(Error):
        curve.sizes(",".join(map(str, range(1, 30))))


@pytest.mark.parametrize(
    "argv, code, why",
    [
        (["--evaluate", "--curve", "x"], 64, b"--curve: up to 20 numbers"),
        (["--evaluate", "--curve", "10", "--compare", "urgent"], 64, b"excludes --compare"),
        (["--evaluate", "--curve", "60"], 65, b"--curve: 60 texts to learn of 60"),
        (["--curve", "10"], 64, b"--curve: needs --evaluate"),
    ],
    ids=["numbers", "compare", "too-many", "alone"],
)
def test_a_curve_that_cannot_be_drawn_is_refused(models, q, labelled, argv, code, why):
    done = classify(models, "--mail", "-q", q, *argv, labelled)
    assert done.returncode == code and why in done.stderr and done.stdout == b""
    assert done.stderr.count(b"\n") == 1


def test_the_manual_names_the_option():
    assert b"--curve" in run("classify", "--help").stdout
