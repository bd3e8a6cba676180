"""classify --fit: what is taken, the file, who uses it, and what is refused."""

import base64
import json
import math
import random
import shutil
from array import array

import pytest
from classify_call import classify, tree_of, write_question
from conftest import run

import sluice
from sluice.classify.classifier import Classifier
from sluice.faults import Error
from sluice.kernels import ffi
from sluice.learn import place
from sluice.probability import fit_file, fits, heads
from sluice.question.question import Question

pytestmark = pytest.mark.usefixtures("home")

WORDS = {"yes": "apple pear plum fig".split(), "no": "stone iron brick sand".split()}


def labelled(n, seed=0, words=WORDS):
    """`n` texts, whose words tell their label."""
    r = random.Random(seed)
    rows = []
    for i in range(n):
        label = ("yes", "no")[i % 2]
        text = " ".join((f"{i // 2}", *r.choices(words[label], k=2), words[label][0]))
        rows.append({"text": text, "label": label})
    return rows


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture(autouse=True)
def data_home(monkeypatch):
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)


@pytest.fixture
def q(tmp_path):
    return write_question(tmp_path / "q.yaml")


@pytest.fixture
def file(tmp_path):
    return tmp_path / "my.fit"


def fit(models, q, path, *argv, code=0, **kwargs):
    done = classify(models, "-q", q, "--fit", "--json", *argv, path, **kwargs)
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout) if not code else done.stderr.decode()


def p_yes(models, q, text, *argv, **kwargs):
    done = classify(models, "-q", q, "--json", *argv, input=text.encode(), **kwargs)
    assert done.returncode in (0, 1, 2), done.stderr
    return json.loads(done.stdout)["p"]["yes"]


# What is taken.


@pytest.mark.full
def test_fit_is_used_by_every_later_run(models, q, tmp_path, home):
    rows = labelled(20, seed=9)

    def p_of_all(*argv):
        done = classify(models, "-q", q, "--jsonl", *argv, input=path_of(rows))
        return [json.loads(o)["p"]["yes"] for o in done.stdout.splitlines()]

    before = p_of_all()
    found = fit(models, q, write(tmp_path / "l.jsonl", labelled(100)))
    assert found["taken"] == "head" and found["labels"] == 100
    path = home / ".local" / "share" / "sluice" / "q.fit"
    assert path.stat().st_mode & 0o777 == 0o600
    after = p_of_all()
    right = [(p > 0.5) == (row["label"] == "yes") for p, row in zip(after, rows)]
    assert sum(right) >= 18 and after != before
    assert p_of_all("--no-calibration") == before
    assert p_yes(models, q, rows[0]["text"]) == after[0]
    long = classify(models, "--long", "-q", q, input=rows[1]["text"].encode())
    assert float(long.stdout.split()[1]) == pytest.approx(after[1], abs=1e-4)
    with sluice.Question(q, model=models / "llama.gguf") as question:
        assert [round(question.classify(row["text"]).scores["yes"], 6) for row in rows] == after


def path_of(rows):
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


@pytest.mark.full
def test_fit_of_what_cannot_be_learnt_takes_nothing_and_says_so(models, q, tmp_path, file):
    """Labels that have nothing to do with the texts."""
    same = {"yes": WORDS["yes"], "no": WORDS["yes"]}
    path = write(tmp_path / "l.jsonl", labelled(80, words=same))
    q = write_question(tmp_path / "q.yaml", calibration=centred(models, q, path))
    done = classify(models, "-q", q, "--fit", "--fit-file", file, path)
    assert done.returncode == 0, done.stderr
    assert b"calibration: does not help on cross-validation" in done.stderr
    assert b"head: does not help on cross-validation" in done.stderr
    lines = done.stdout.decode().splitlines()
    assert lines[0] == "labels 80, 5-fold cross-validation"
    assert lines[2].startswith("none") and lines[2].endswith("taken")
    text = "plum fig 3"
    assert p_yes(models, q, text, "--fit-file", file) == p_yes(models, q, text)


def centred(models, q, path):
    """The calibration that fits a question without information best: the shares of the labels."""
    c = Classifier(Question(tree_of(), "q.yaml"), str(models / "llama.gguf"))
    odds = [
        (v := c.ask(json.loads(line)["text"].encode()).log_p)[0] - v[1]
        for line in path.read_text().splitlines()
    ]
    return {"scale": 0.01, "bias": {"yes": -0.01 * sum(odds) / len(odds)}}


def test_few_labels_have_no_head(models, q, tmp_path, file):
    path = write(tmp_path / "l.jsonl", labelled(30))
    done = classify(models, "-q", q, "--fit", "--fit-file", file, path)
    assert b"no head: 30 labelled texts; 60 are needed" in done.stderr
    assert set(fit_file.read(str(file), "fit")["figures"]) == {"none", "calibration"}


@pytest.mark.full
def test_calibration_moves_p_to_the_shares_of_the_labels(models, q, tmp_path, file):
    """Nine of ten texts are no, and the model knows nothing: P(yes) comes to a tenth."""
    rows = labelled(50, words={"yes": WORDS["yes"], "no": WORDS["yes"]})
    for i, row in enumerate(rows):
        row["label"] = "yes" if i % 10 == 0 else "no"
    found = fit(models, q, write(tmp_path / "l.jsonl", rows), "--fit-file", file)
    assert found["taken"] == "calibration"
    p = [p_yes(models, q, row["text"], "--fit-file", file) for row in rows[:10]]
    assert 0.05 < sum(p) / len(p) < 0.2


@pytest.mark.quick_cases(1)
def test_figures_are_out_of_fold(models, q, tmp_path, file):
    """The labels of a fold do not reach its own predictions: with random labels, which a head with
    more dimensions than texts fits perfectly, its accuracy is that of guessing.
    """
    rows = labelled(100)
    labels = random.Random(5).choices(("yes", "no"), k=100)
    rows = [{**row, "label": label} for row, label in zip(rows, labels)]
    found = fit(models, q, write(tmp_path / "l.jsonl", rows), "--fit-file", file)
    assert 0.3 < found["figures"]["head"]["accuracy"] < 0.7
    assert found["taken"] != "head"


def test_figures_by_hand():
    rung = fits.Rung("none", [[0.8, 0.2], [0.6, 0.4]], [0, 1])
    assert rung.figures == pytest.approx(
        {"log_loss": (0.2231436 + 0.9162907) / 2, "brier": (0.04 + 0.36) / 2, "accuracy": 0.5}
    )
    assert fits.Rung("none", [[0.5, 0.3, 0.2]], [1]).figures["brier"] == pytest.approx(0.78)


def test_rung_must_beat_the_other_by_a_standard_error():
    p = [[0.5, 0.5]] * 50
    some = [[0.5 + 0.3 * (-1) ** i, 0.5 - 0.3 * (-1) ** i] for i in range(50)]
    base = fits.Rung("none", p, [0] * 50)
    assert fits.Rung("head", [[0.6, 0.4]] * 50, [0] * 50).beats(base)
    assert not fits.Rung("head", some, [0] * 50).beats(base)
    assert not base.beats(base, by_errors=0.0)


# The same labels, the same bytes.


@pytest.mark.full
def test_bytes_do_not_depend_on_order_repetition_and_threads(models, q, tmp_path):
    rows = labelled(80)
    mixed = rows + rows[:10]
    random.Random(3).shuffle(mixed)
    table = tmp_path / "l.csv"
    table.write_text("label,body\n" + "".join(f"{r['label']},{r['text']}\n" for r in mixed))
    ways = [
        (write(tmp_path / "a.jsonl", rows), (), {}),
        (write(tmp_path / "b.jsonl", mixed), ("-j", 1), {}),
        (write(tmp_path / "b.jsonl", mixed), ("-j", 3), {"SLUICE_ISA": "reference"}),
        (table, ("--csv", "body"), {"OPENBLAS_NUM_THREADS": "1"}),
    ]
    found = set()
    for i, (path, argv, env) in enumerate(ways):
        file = tmp_path / f"{i}.fit"
        fit(models, q, path, "--fit-file", file, "--risk", "0.3", *argv, env=env)
        found.add(file.read_bytes())
    assert len(found) == 1


# Risk.


@pytest.mark.full
def test_risk_sets_the_threshold(models, q, tmp_path, file):
    path = write(tmp_path / "l.jsonl", labelled(120))
    done = classify(models, "-q", q, "--fit", "--risk", "0.05", "--fit-file", file, path)
    assert done.returncode == 0, done.stderr
    found = fit_file.read(str(file), "fit")["risk"]
    assert found["of"] == 120 and found["accepted"] >= 59
    line = done.stdout.decode().splitlines()[-2]
    assert line.startswith(f"threshold {found['threshold']:.4f}: {found['accepted']} of 120 texts")
    said = classify(models, "-q", q, "--fit-file", file, "--long", input=b"apple pear plum 1")
    assert float(said.stdout.split()[2]) == pytest.approx(found["threshold"], abs=1e-4)


@pytest.mark.parametrize(
    ("n", "risk", "message"),
    [
        (58, "0.05", "58 labelled texts cannot show an error of 0.05 with 95 % confidence: 59"),
        (100, "0.01", "299 without an error are needed"),
        (120, "0.02", "149 without an error are needed"),
    ],
)
def test_risk_says_how_many_labels_are_needed(models, q, tmp_path, file, n, risk, message):
    path = write(tmp_path / "l.jsonl", labelled(n))
    said = fit(models, q, path, "--risk", risk, "--fit-file", file, code=65)
    assert message in said and said.count("\n") == 1
    assert not file.exists()


def test_risk_that_the_surest_do_not_keep_is_refused(models, q, tmp_path, file):
    same = {"yes": WORDS["yes"], "no": WORDS["yes"]}
    path = write(tmp_path / "l.jsonl", labelled(80, words=same))
    said = fit(models, q, path, "--risk", "0.05", "--fit-file", file, code=65)
    assert "no threshold shows an error of 0.05" in said and not file.exists()


# With --learn.


@pytest.mark.full
def test_learning_starts_from_a_fit(models, q, tmp_path):
    path = write(tmp_path / "l.jsonl", labelled(40))
    found = fit(models, q, path)
    assert found["taken"] in ("none", "calibration")
    text = "apple pear 1"
    before, other = p_yes(models, q, text), p_yes(models, q, "plum")
    done = classify(models, "-q", q, "--learn", "no", "--json", input=text.encode())
    assert done.returncode == 0, done.stderr
    learnt = json.loads(done.stdout)
    assert learnt["p"]["yes"] < before and learnt["calibration"]["learnt"] == 1
    # one text moves the others a little; they do not go back to the question's calibration
    assert abs(p_yes(models, q, "plum") - other) < 0.2


@pytest.mark.quick_cases(1)
def test_learning_is_refused_where_a_fit_has_a_head(models, q, tmp_path, home):
    fit(models, q, write(tmp_path / "l.jsonl", labelled(100)))
    for argv in (("--learn", "yes"), ("--forget",)):
        done = classify(models, "-q", q, *argv, input=b"apple")
        assert done.returncode == 65 and done.stderr.count(b"\n") == 1
        assert b"q.fit: has a head" in done.stderr
    assert [p.name for p in (home / ".local/share/sluice").iterdir()] == ["q.fit"]


@pytest.mark.full
def test_what_was_learnt_before_a_fit_is_said_to_be_out_of_date(models, q, tmp_path):
    assert classify(models, "-q", q, "--learn", "yes", input=b"apple").returncode == 0
    rows = labelled(50, words={"yes": WORDS["yes"], "no": WORDS["yes"]})
    rows = [{**row, "label": "yes" if i % 10 == 0 else "no"} for i, row in enumerate(rows)]
    assert fit(models, q, write(tmp_path / "l.jsonl", rows))["taken"] == "calibration"
    done = classify(models, "-q", q, input=b"apple")
    assert b"fitted to another calibration of the question" in done.stderr


# The file.


@pytest.fixture(scope="module")
def fitted(models, tmp_path_factory):
    """(question, fit with a head)."""
    d = tmp_path_factory.mktemp("fit")
    q = write_question(d / "q.yaml")
    fit(models, q, write(d / "l.jsonl", labelled(80)), "--fit-file", d / "q.fit")
    return q, d / "q.fit"


def changed(data, **fields):
    import hashlib

    found = json.loads(data.partition(b"\n")[2])
    for key, value in fields.items():
        if callable(value):
            value = value(found[key])
        found[key] = value
    body = json.dumps(found).encode() + b"\n"
    return b"#fit 1 " + hashlib.sha256(body).hexdigest().encode() + b"\n" + body


DAMAGE = {
    "empty": (lambda d: b"", "line 1: is not the first line of a fit"),
    "cut": (lambda d: d[:-100], "damaged: wrong checksum"),
    "one bit": (lambda d: d[:200] + bytes([d[200] ^ 1]) + d[201:], "damaged"),
    "noise": (lambda d: bytes(range(256)) * 9, "line 1"),
    "version": (lambda d: d.replace(b"#fit 1", b"#fit 2", 1), "version"),
    "a prior": (lambda d: d.replace(b"#fit", b"#prior", 1), "line 1"),
    "other model": (lambda d: changed(d, model="0" * 64), "another model"),
    "other question": (lambda d: changed(d, question="0" * 16), "another question"),
    "other answers": (lambda d: changed(d, answers=["a", "b"]), "answers: are not those"),
    "other base": (lambda d: changed(d, base=[2.0, 0.0, 0.0]), "another calibration"),
    "base of text": (lambda d: changed(d, base="x"), "base: is not a list of 3 numbers"),
    "scale 0": (lambda d: changed(d, scale=0), "scale"),
    "scale true": (lambda d: changed(d, scale=True), "scale"),
    "bias NaN": (lambda d: changed(d, bias=[float("nan"), 0]), "NaN is not a number"),
    "bias large": (lambda d: changed(d, bias=[1e9, 0]), "bias: is not a list of 2 numbers"),
    "short bias": (lambda d: changed(d, bias=[0.0]), "bias: is not a list of 2 numbers"),
    "labels": (lambda d: changed(d, labels=-1), "labels or taken"),
    "taken": (lambda d: changed(d, taken="all"), "labels or taken"),
    "taken list": (lambda d: changed(d, taken=[]), "labels or taken"),
    "no head": (lambda d: changed(d, head=None), "head: is missing"),
    "head too many": (lambda d: changed(d, taken="none"), "head: is missing, or one too many"),
    "head number": (lambda d: changed(d, head=5), "head: is not an object"),
    "head short": (
        lambda d: changed(d, head=lambda h: {**h, "weights": h["weights"][:-8]}),
        "head.weights: is not 2 rows",
    ),
    "head noise": (
        lambda d: changed(d, head=lambda h: {**h, "weights": "\u00e9!"}),
        "head.weights: is not base64",
    ),
    "head NaN": (
        lambda d: changed(d, head=lambda h: {**h, "weights": with_nan(h["weights"])}),
        "head.weights: a number is not finite",
    ),
    "head offset": (
        lambda d: changed(d, head=lambda h: {**h, "offset": [1]}),
        "offset: is not a list of 2 numbers",
    ),
    "risk": (lambda d: changed(d, risk=[1]), "risk: is not an object"),
    "risk threshold": (
        lambda d: changed(d, risk={"error": 0.1, "confidence": 0.95, "threshold": 2}),
        "risk.threshold",
    ),
    "a list": (lambda d: changed_to(b"[1]\n"), "line 2: is not an object"),
    "no JSON": (lambda d: changed_to(b"nonsense\n"), "line 2"),
    "deep": (lambda d: changed_to(b"[" * 100_000), "line 2"),
}


def changed_to(body):
    import hashlib

    return b"#fit 1 " + hashlib.sha256(body).hexdigest().encode() + b"\n" + body


def with_nan(weights):
    found = array("f", base64.b64decode(weights))
    found[3] = float("nan")
    return base64.b64encode(found.tobytes()).decode()


@pytest.mark.quick_cases(6)
@pytest.mark.parametrize("name", DAMAGE)
def test_damaged_fits_are_refused_by_one_line(models, fitted, tmp_path, name):
    change, message = DAMAGE[name]
    q, good = fitted
    bad = tmp_path / "bad.fit"
    bad.write_bytes(change(good.read_bytes()))
    bad.chmod(0o600)
    q = Question(json.loads(q.read_text()), "q.yaml")
    c = Classifier(q, str(models / "llama.gguf"))
    with pytest.raises(Error) as e:
        fit_file.use(c, str(bad))
    assert e.value.code == 65
    assert str(e.value).startswith(f"{bad}: ") and message in str(e.value)
    assert "\n" not in str(e.value)
    assert (q.scale, q.bias, c.head) == (1.0, {"yes": 0.0, "no": 0.0}, None)


def test_fits_of_others_are_refused_by_the_command(models, fitted, tmp_path):
    q, good = fitted
    other = write_question(tmp_path / "q.yaml", prompt=[{"text": "Other? "}, "input"])
    done = classify(models, "-q", other, "--fit-file", good, input=b"a")
    assert (done.returncode, done.stdout) == (65, b"") and b"another question" in done.stderr
    done = classify(models, "-q", q, "--fit-file", tmp_path / "none.fit", input=b"a")
    assert done.returncode == 66
    open_to_all = tmp_path / "open.fit"
    shutil.copy(good, open_to_all)
    open_to_all.chmod(0o666)
    done = classify(models, "-q", q, "--fit-file", open_to_all, input=b"a")
    assert done.returncode == 65 and done.stderr.count(b"\n") == 1


def test_raw_log_probabilities_keep_their_bits(models, fitted):
    q, good = fitted
    q = Question(json.loads(q.read_text()), "q.yaml")
    c = Classifier(q, str(models / "llama.gguf"))
    before = c.ask(b"apple fig").log_p
    fit_file.use(c, str(good))
    assert c.ask(b"apple fig").log_p == before
    assert c.fitted.digest == good.read_bytes().split()[2][:16].decode()


def test_head_of_the_file_is_that_of_the_fit(models, fitted):
    """The scores of the file's head are what ridge regression gives for these hidden states."""
    q, good = fitted
    c = Classifier(Question(json.loads(q.read_text()), "q.yaml"), str(models / "llama.gguf"))
    c.keeps_hidden = True
    rows = sorted(
        ((fits.hashlib.sha256(t).digest(), label, t) for t, label in texts_of(labelled(80)))
    )
    hidden = [bytes(ffi.buffer(c.ask(t).hidden.p, 4 * c.model.hparams.n_embd)) for *_, t in rows]
    problem = heads.Problem(hidden, [label for _, label, _ in rows], 2)
    fit = problem.fit(range(80))
    fit_file.use(c, str(good))
    assert c.question.scale == fit.scale
    for i, (*_, text) in list(enumerate(rows))[:5]:
        want = problem.scores(fit, [i])[0]
        assert c.head.scores(c.ask(text).hidden) == pytest.approx(want, abs=1e-3)


def texts_of(rows):
    return [(row["text"].encode(), ("yes", "no").index(row["label"])) for row in rows]


# With other commands.


def test_receipts_name_the_fit_and_verify_without_it(models, fitted, tmp_path):
    q, good = fitted
    text, book = tmp_path / "t.txt", tmp_path / "R"
    text.write_text("apple fig 3")
    done = classify(models, "-q", q, "--fit-file", good, "--receipt", book, text)
    assert done.returncode in (0, 1, 2), done.stderr
    receipt = json.loads(book.read_text())
    assert receipt["calibration"] == {"digest": good.read_bytes().split()[2][:16].decode()} | {
        "head": True
    }
    done = classify(models, "-q", q, "--verify", book, text)
    assert done.returncode == 0 and b"\tsame\t1\t" in done.stdout


@pytest.mark.full
def test_evaluation_compares_with_a_fit(models, fitted, tmp_path):
    q, good = fitted
    path = write(tmp_path / "l.jsonl", labelled(60, seed=4))
    done = classify(models, "-q", q, "--evaluate", "--json", "--compare", good, path)
    assert done.returncode == 0, done.stderr
    assert good.read_bytes().split()[2][:16] in done.stdout
    assert b'"taken": "head"' in done.stdout


def test_why_explains_the_probability_of_the_head(models, fitted):
    q, good = fitted
    argv = ("-q", q, "--fit-file", good, "--json")
    text = b"apple plum\nstone brick\nfig pear 1 apple\n"
    why = json.loads(classify(models, *argv, "--why", input=text).stdout)["why"]
    p = json.loads(classify(models, *argv, input=text).stdout)["p"]
    of = max(p, key=p.get)
    assert why["log_odds"] == pytest.approx(math.log(p[of] / (1 - p[of])), abs=1e-3)


# Refusals.


@pytest.mark.full
def test_bad_calls(models, q, tmp_path):
    good = write(tmp_path / "l.jsonl", labelled(30))
    few = write(tmp_path / "few.jsonl", labelled(9))
    one = write(tmp_path / "one.jsonl", [r for r in labelled(40) if r["label"] == "yes"])
    wrong = write(tmp_path / "wrong.jsonl", [{"text": "a", "label": "maybe"}])
    cases = [
        (("--fit",), 64, "needs LABELLED"),
        (("--head", good), 64, "need --fit"),
        (("--risk", "0.1", good), 64, "need --fit"),
        (("--fit", "--risk", "0", good), 64, "--risk"),
        (("--fit", "--prior", "texts", good), 64, "--fit and --prior exclude"),
        (("--fit", "--no-calibration", good), 64, "--fit and --no-calibration exclude"),
        (("--fit", "missing.jsonl"), 66, "missing.jsonl: No such file"),
        (("--fit", few), 65, "9 labelled texts; at least 10 are needed"),
        (("--fit", one), 65, "all texts are yes; two answers are needed"),
        (("--fit", wrong), 65, '"maybe" is no answer'),
        (("--fit", "--head", good), 65, "--head: 30 labelled texts; 60 are needed"),
        (("--fit", "--fit-file", "/proc/no/x.fit", good), 73, "/proc/no"),
    ]
    for argv, code, message in cases:
        done = classify(models, "-q", q, *argv, cwd=tmp_path)
        assert (done.returncode, done.stdout) == (code, b""), (argv, done.stderr)
        assert message in done.stderr.decode() and done.stderr.count(b"\n") == 1, done.stderr


def test_bad_texts_are_named_and_the_rest_is_fitted(models, q, tmp_path, file):
    rows = labelled(30)
    path = tmp_path / "l.jsonl"
    path.write_text(path_of(rows).decode() + '{"text": "", "label": "yes"}\nnonsense\n')
    done = classify(models, "-q", q, "--fit", "--fit-file", file, path)
    assert done.returncode == 65 and file.exists()
    assert b"l.jsonl:31: text is empty" in done.stderr
    assert b"2 labelled texts could not be used" in done.stderr
    assert fit_file.read(str(file), "fit")["labels"] == 30


def test_question_without_a_file_has_no_default_fit():
    from sluice.classify.setup import Setup

    q = Question(tree_of(), "-q", "answer")
    assert Setup("Is it fruit?", answers=["yes", "no"]).fit_path(q) is None


def test_question_without_a_file_needs_a_name_for_its_fit(models, tmp_path, file):
    path = write(tmp_path / "l.jsonl", labelled(20))
    argv = ("-q", "Is it fruit?", "--answers", "yes,no")
    done = classify(models, *argv, "--fit", path)
    assert done.returncode == 64 and b"--fit-file" in done.stderr
    done = classify(models, *argv, "--fit", "--fit-file", file, path)
    assert done.returncode == 0, done.stderr
    done = classify(models, *argv, "--fit-file", file, "--json", input=b"plum")
    assert json.loads(done.stdout)["fit"]["labels"] == 20


def test_prior_of_the_question_gives_way_to_a_fit(models, tmp_path, file):
    q = write_question(tmp_path / "q.yaml", prior={"kind": "content-free"})
    path = write(tmp_path / "l.jsonl", labelled(40))
    fit(models, q, path, "--fit-file", file)
    said = json.loads(
        classify(models, "-q", q, "--fit-file", file, "--json", input=b"apple").stdout
    )
    assert "prior" not in said and said["fit"]["labels"] == 40


def test_name_of_the_fit_follows_the_calibration(home):
    from sluice.classify.setup import Setup

    q = Question(tree_of(), "dir/team.yaml")
    path = Setup("dir/team.yaml").fit_path(q)
    assert path == place.home("team", ".fit")


# A real model.


def test_fit_of_real_sentences(smollm2, tmp_path, file):
    """100 of the sentences fit a head that is right on the 40 others."""
    from conftest import ROOT

    d = ROOT / "tests" / "data" / "sentences"
    some = tmp_path / "some.jsonl"
    some.write_text("".join((d / "feelings.jsonl").read_text().splitlines(True)[:100]))
    argv = ("classify", "-m", smollm2, "-q", d / "feeling.yaml", "--fit-file", file)
    done = run(*argv, "--fit", "--json", "--risk", "0.1", some)
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)["figures"]
    assert figures["head"]["log_loss"] < figures["none"]["log_loss"]
    held_out = d / "feelings-held-out.jsonl"
    done = run(*argv, "--jsonl", held_out)
    labels = [json.loads(line)["label"] for line in held_out.read_text().splitlines()]
    found = [json.loads(line) for line in done.stdout.splitlines()]
    best = [max(o["p"], key=o["p"].get) for o in found]
    assert sum(a == b for a, b in zip(best, labels)) >= 34
    accepted = [(o["answer"], b) for o, b in zip(found, labels) if o["answer"] != "unsure"]
    assert len(accepted) >= 20
    assert sum(a != b for a, b in accepted) <= 0.2 * len(accepted)
