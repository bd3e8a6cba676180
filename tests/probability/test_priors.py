"""Label-free priors: what they compute, that they change p alone, and what they refuse."""

import json
import math
import os
import subprocess

import pytest
from classify_call import classify, question, tree_of, write_question
from conftest import ROOT, run

from sluice.classify.classifier import Classifier
from sluice.faults import Error
from sluice.probability import priors
from sluice.question.question import Question

pytestmark = pytest.mark.usefixtures("home")

SENTENCES = ROOT / "tests" / "data" / "sentences"
TEXTS = [f"text number {i}, " * (1 + 3 * i % 7) for i in range(12)]


@pytest.fixture
def lines(tmp_path):
    file = tmp_path / "texts"
    file.write_text("\n".join(TEXTS) + "\n")
    return file


@pytest.fixture
def q(tmp_path):
    return write_question(tmp_path / "q.yaml")


def objects(done):
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def asked(models, q, lines, *argv):
    return objects(classify(models, "-q", q, "--each", "line", "--json", *argv, lines))


# What is computed.


def divided(p, prior, strength=1.0):
    rest = [x / y**strength for x, y in zip(p, prior)]
    return [x / sum(rest) for x in rest]


def test_prior_by_hand():
    """Two texts get 0.8 and 0.6: 0.7 on average. So 0.6 is less than usual: 0.6 / 0.7 to 0.4 / 0.3."""
    assert priors.mean([[0.8, 0.2], [0.6, 0.4]]) == pytest.approx([math.log(0.7), math.log(0.3)])
    assert divided([0.6, 0.4], [0.7, 0.3]) == pytest.approx([0.39130, 0.60870], abs=1e-5)


@pytest.mark.quick_cases(1)
def test_prior_of_texts_is_the_mean_and_divides_p(models, q, lines):
    before, after = asked(models, q, lines), asked(models, q, lines, "--prior", "texts")
    names = list(before[0]["p"])
    prior = [sum(o["p"][name] for o in before) / len(before) for name in names]
    for o, new in zip(before, after):
        want = divided([o["p"][name] for name in names], prior)
        assert [new["p"][name] for name in names] == pytest.approx(want, abs=2e-6)
        assert new["score"] == max(new["p"].values())
        assert new["margin"] == pytest.approx(abs(new["p"]["yes"] - new["p"]["no"]), abs=2e-6)
    assert {o["answer"] for o in after} == {"yes", "no"}
    assert [math.exp(x) for x in after[0]["prior"].values()] == pytest.approx(prior, abs=2e-6)


def test_prior_of_content_free_inputs(models, q, lines):
    c = Classifier(question(), str(models / "llama.gguf"))
    found = [c.ask(data).scores.values() for data in priors.INPUTS]
    prior = [sum(column) / len(found) for column in zip(*found)]
    before, after = asked(models, q, lines), asked(models, q, lines, "--prior", "content-free")
    for o, new in zip(before, after):
        want = divided(o["p"].values(), prior)
        assert list(new["p"].values()) == pytest.approx(want, abs=2e-6)


def test_strength_in_the_question(models, tmp_path, lines):
    half = write_question(tmp_path / "q.yaml", prior={"kind": "content-free", "strength": 0.5})
    full = write_question(tmp_path / "full.yaml", prior={"kind": "content-free"})
    none, some, more = (
        asked(models, path, lines, *argv)[0]["p"]["yes"]
        for path, argv in ((half, ("--prior", "none")), (half, ()), (full, ()))
    )
    odds = [math.log(p / (1 - p)) for p in (none, some, more)]
    assert odds[1] - odds[0] == pytest.approx((odds[2] - odds[0]) / 2, abs=1e-4)
    assert abs(odds[2] - odds[0]) > 0.01


def test_prior_given_in_the_question_equals_the_same_biases(models):
    log_p = {"yes": math.log(0.75), "no": math.log(0.25)}
    path = str(models / "llama.gguf")
    from sluice.classify import setup

    def p(**changes):
        q = Question(tree_of(**changes), "q.yaml")
        c = setup.Setup("q.yaml", path, no_cache=True, no_calibration=True).classifier(q)
        v = c.ask(b"a text")
        return v.log_p, v.scores

    raw, with_prior = p(prior={"log_p": log_p})
    want = p(calibration={"bias": {name: -x for name, x in log_p.items()}})
    assert (raw, with_prior) == want
    assert raw == p()[0] and with_prior != p()[1]


def test_prior_leaves_the_raw_log_probabilities(models, q):
    from sluice.classify.setup import Setup

    found = []
    for prior in ("none", "content-free"):
        c = Setup(str(q), str(models / "llama.gguf"), prior=prior, no_cache=True).classifier()
        v = c.ask(b"a text of some words")
        found.append((v.log_p, v.scores))
    assert found[0][0] == found[1][0]
    assert found[0][1] != found[1][1]


def test_prior_does_not_depend_on_the_order_of_the_texts(models, q, lines, tmp_path):
    back = tmp_path / "back"
    back.write_text("\n".join(reversed(TEXTS)) + "\n")
    first = asked(models, q, lines, "--prior", "texts")
    second = asked(models, q, back, "--prior", "texts")
    key = lambda o: {k: v for k, v in o.items() if k not in ("name", "reused")}
    assert list(map(key, first)) == list(map(key, reversed(second)))


# Forms of input and output.


def test_prior_of_texts_reads_a_pipe(models, q, lines):
    argv = ("-q", q, "--each", "line", "--prior", "texts")
    from_file = classify(models, *argv, lines)
    piped = classify(models, *argv, input=lines.read_bytes())
    assert piped.returncode == 0, piped.stderr
    cut = lambda done: [line.partition(b"\t")[2] for line in done.stdout.splitlines()]
    assert cut(piped) == cut(from_file) and len(cut(piped)) == len(TEXTS)


def test_prior_of_texts_in_a_table_and_selected(models, q, tmp_path):
    table = tmp_path / "t.csv"
    table.write_text("n,body\n" + "".join(f'{i},"{t}"\n' for i, t in enumerate(TEXTS)))
    argv = ("-q", q, "--csv", "body", "--prior", "texts")
    done = classify(models, *argv, table)
    header, *rows = done.stdout.decode().splitlines()
    assert header == "n,body,q,q_score,q_p_yes,q_p_no" and len(rows) == len(TEXTS)
    yes = [row.split(",")[0] for row in rows if row.split(",")[-4] == "yes"]
    chosen = classify(models, *argv, "--select", "yes", table).stdout.decode().splitlines()[1:]
    assert [row.split(",")[0] for row in chosen] == yes != []


def test_bad_texts_are_named_once_and_do_not_count(models, q, tmp_path):
    lines = [json.dumps({"id": i, "text": t}) for i, t in enumerate(TEXTS)]
    good, bad = tmp_path / "good.jsonl", tmp_path / "bad.jsonl"
    good.write_text("\n".join(lines) + "\n")
    bad.write_text("\n".join([lines[0], "{", *lines[1:], '{"text": ""}']) + "\n")
    argv = ("-q", q, "--jsonl", "--prior", "texts")
    want = objects(classify(models, *argv, good))
    done = classify(models, *argv, bad)
    assert done.returncode == 65 and done.stderr.count(b"2 of 14 lines are invalid") == 1
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [o for o in found if "error" not in o] == want


def test_prior_of_each_of_several_questions(models, tmp_path, lines):
    one = write_question(tmp_path / "one.yaml")
    two = write_question(tmp_path / "two.yaml", prompt=[{"text": "So? "}, "input"])
    argv = ("--each", "line", "--json", "--prior", "texts", lines)
    both = objects(classify(models, "-q", one, "-q", two, *argv))
    for path in (one, two):
        alone = objects(classify(models, "-q", path, *argv))
        assert [o["answers"][path.stem]["p"] for o in both] == [o["p"] for o in alone]


# Files.


def test_saved_prior_gives_the_same_p(models, q, lines, tmp_path):
    file = tmp_path / "my.prior"
    want = asked(models, q, lines, "--prior", "texts", "--save-prior", file)
    assert file.stat().st_mode & 0o777 == 0o600
    assert asked(models, q, lines, "--prior", file) == want
    one = classify(models, "-q", q, "--json", "--prior", file, input=TEXTS[0].encode())
    assert json.loads(one.stdout)["p"] == want[0]["p"]


def test_file_of_texts_is_a_prior(models, q, lines, tmp_path):
    want = asked(models, q, lines, "--prior", "texts")
    assert asked(models, q, lines, "--prior", lines) == want
    as_json = tmp_path / "texts.jsonl"
    as_json.write_text("".join(json.dumps({"text": t}) + "\n" for t in TEXTS))
    assert [o["p"] for o in asked(models, q, lines, "--prior", as_json)] == [o["p"] for o in want]


@pytest.mark.full
def test_saved_priors_that_do_not_fit_are_refused(models, q, lines, tmp_path):
    file = tmp_path / "my.prior"
    asked(models, q, lines, "--prior", "content-free", "--save-prior", file)
    data = file.read_bytes()
    other = write_question(tmp_path / "other.yaml", prompt=[{"text": "Other? "}, "input"])
    calibrated = write_question(tmp_path / "c.yaml", calibration={"scale": 2.0})
    damaged = tmp_path / "damaged.prior"
    damaged.write_bytes(data[:-5] + b"1" + data[-4:])
    fit = tmp_path / "fit.prior"
    fit.write_bytes(data.replace(b"#prior", b"#fit"))
    cases = {
        ("-q", other, "--prior", file): "another question",
        ("-q", calibrated, "--prior", file): "another calibration",
        ("-q", q, "--prior", damaged): "damaged",
        ("-q", q, "--prior", fit): "is not the first line of a prior",
    }
    for argv, message in cases.items():
        done = classify(models, *argv, "--each", "line", lines)
        assert (done.returncode, done.stdout) == (65, b""), argv
        assert message in done.stderr.decode() and done.stderr.count(b"\n") == 1
    done = classify(models, "-q", q, "--prior", file, "-m", models / "gemma3.gguf", input=b"a")
    assert done.returncode == 65 and b"another model" in done.stderr


# Refusals.


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize(
    ("argv", "code", "message"),
    [
        (("--prior", "texts"), 64, "needs many texts"),
        (("--each", "line", "--prior", "texts", "--state", "s"), 64, "not with --state"),
        (("--each", "line", "--save-prior", "p"), 64, "--save-prior: needs --prior"),
        (("--prior", "content-free", "--learn", "yes"), 64, "--prior excludes"),
        (("--prior", "content-free", "--calibration", "c"), 64, "--prior excludes"),
        (("--prior", "missing"), 66, "missing: No such file"),
        (("--each", "line", "--prior", "texts"), 65, "at least 8"),
        (("--each", "line", "--prior", "few"), 65, "few: 2 texts cannot show a prior"),
        (("--each", "line", "--prior", "content-free", "--save-prior", "no/p"), 73, "no/p"),
    ],
)
def test_bad_calls(models, q, tmp_path, argv, code, message):
    (tmp_path / "few").write_text("one\ntwo\n")
    done = classify(models, "-q", q, *argv, input=b"a\nb\nc\n", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (code, b""), done.stderr
    assert message in done.stderr.decode() and done.stderr.count(b"\n") == 1
    assert {p.name for p in tmp_path.iterdir()} == {"few", "q.yaml", "home"}


def test_pipe_by_name_cannot_be_read_twice(models, q, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = subprocess.Popen(["sh", "-c", f"echo a >{pipe}"])
    try:
        argv = ("-q", q, "--each", "line", "--prior", "texts", pipe)
        done = classify(models, *argv)
        assert done.returncode == 65 and b"reads its input twice" in done.stderr
    finally:
        writer.kill()
        writer.wait()


BAD_KEYS = {
    "prior: is not a mapping": "content-free",
    "prior: give either kind or log_p": {"strength": 1},
    "prior: there is no key": {"kind": "none", "weight": 1},
    "prior.kind: is none of": {"kind": "texts"},
    "prior.strength: is not a number": {"kind": "none", "strength": -1},
    "prior.strength: is not a number from": {"kind": "none", "strength": True},
    "prior.log_p: is not a mapping of every answer": {"log_p": {"yes": -1}},
    "prior.log_p.no: is not a number": {"log_p": {"yes": -1, "no": 0.5}},
    "prior.log_p.yes: is not a number": {"log_p": {"yes": float("nan"), "no": -1}},
}


@pytest.mark.parametrize("message", BAD_KEYS)
def test_bad_keys_are_named(message):
    with pytest.raises(Error) as e:
        question(prior=BAD_KEYS[message])
    assert e.value.code == 65 and str(e.value).startswith(f"q.yaml: {message}")


def test_text_that_changed_between_the_readings_is_classified_as_it_is(models, tmp_path):
    """The first reading is of other texts than the second: one changed, one gone, one new."""
    from sluice.classify.panel import Panel
    from sluice.classify.replay import Replay
    from sluice.texts.sources import Item

    c = Classifier(question(), str(models / "llama.gguf"))
    replay = Replay(Panel([c]))
    data = [t.encode() for t in TEXTS]
    replay.read([[Item("", d) for d in data]])
    now = [data[0], b"changed", data[2], *data[4:], b"new"]
    found = [v.log_p for (v,) in replay.ask_many(now)]
    assert found == [c.ask(d).log_p for d in now]


# Real models.


def right(file, found, prior=None):
    """The share of correct answers, with ln of another prior than the one in use."""
    labels = [json.loads(line)["label"] for line in file.read_text().splitlines()]
    n = 0
    for o, label in zip(found, labels, strict=True):
        odds = {
            name: math.log(max(p, 1e-9)) + (o["prior"][name] - prior[name] if prior else 0)
            for name, p in o["p"].items()
        }
        n += max(odds, key=odds.get) == label
    return n / len(labels)


@pytest.mark.full
@pytest.mark.parametrize(
    ("model", "none", "content_free", "texts"),
    [("gemma3", 0.65, 0.80, 0.90), ("smollm2", 0.80, 0.80, 0.90)],
)
def test_prior_without_labels_on_balanced_sentences(request, model, none, content_free, texts):
    """200 sentences, of which a weak model without a prior calls nearly all positive."""
    from sluice.classify.setup import Setup

    path = request.getfixturevalue(model)
    q = SENTENCES / "feeling.yaml"

    def found(file):
        argv = ("--jsonl", "--json", "--prior", "texts", file)
        return objects(run("classify", "-m", path, "-q", q, *argv))

    file = SENTENCES / "feelings.jsonl"
    verdicts = found(file)
    free = Setup(str(q), str(path), prior="content-free", no_cache=True).classifier()
    assert right(file, verdicts, {"positive": 0.0, "negative": 0.0}) < none
    assert right(file, verdicts, dict(zip(free.question.answers, free.prior.log_p))) > content_free
    assert right(file, verdicts) > texts
    held_out = SENTENCES / "feelings-held-out.jsonl"
    assert right(held_out, found(held_out)) > 0.8


def test_sentences_are_balanced_and_differ():
    seen = set()
    for name, n in (("feelings", 200), ("feelings-held-out", 40)):
        rows = [json.loads(line) for line in (SENTENCES / f"{name}.jsonl").read_text().splitlines()]
        assert [row["label"] for row in rows].count("positive") == n // 2 == len(rows) // 2
        seen |= {row["text"] for row in rows}
    assert len(seen) == 240
