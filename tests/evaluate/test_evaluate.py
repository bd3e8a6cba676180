"""`classify --evaluate`: the report, the object of --json, comparisons, and what is refused."""

import json
import re

import pytest
from classify_call import classify, write_models, write_question
from conftest import ROOT, run

from sluice.classify.classifier import Classifier
from sluice.question import question

WORDS = "meeting numbers friends lunch money winner prize hello urgent report".split()
ANSWERS = {"yes": ["yes"], "no": ["no"]}


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    return write_models(tmp_path_factory.mktemp("models"))


@pytest.fixture
def q(tmp_path):
    """A question for which the tiny model is sometimes right, wrong and unsure."""
    aliases = {"spam": "yes", "ham": "no"}
    return write_question(
        tmp_path / "q.yaml",
        answers=ANSWERS,
        aliases=aliases,
        thresholds={"yes": 0.505, "no": 0.505},
        calibration={"scale": 0.2},
    )


@pytest.fixture
def labelled(tmp_path):
    """40 labelled texts, as JSON lines."""
    path = tmp_path / "texts.jsonl"
    texts = [f"{WORDS[i % 10]} {WORDS[i // 10]} {i}" for i in range(40)]
    lines = [{"text": t, "label": ("spam", "ham", "no")[i % 3]} for i, t in enumerate(texts)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def evaluate(models, *argv, **kwargs):
    return classify(models, "--evaluate", *argv, **kwargs)


def figures(models, *argv, code=0):
    done = evaluate(models, "--json", *argv)
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout)


def verdicts(models, q, texts, **options):
    classifier = Classifier(question.read(str(q)), str(models / "llama.gguf"), **options)
    return list(classifier.ask_many(text.encode() for text in texts))


@pytest.mark.quick_cases(1)
def test_figures_are_those_of_the_answers_that_classify_gives(models, q, labelled):
    found = figures(models, "-q", q, labelled)
    lines = [json.loads(line) for line in labelled.read_text().splitlines()]
    said = verdicts(models, q, [line["text"] for line in lines])
    right = ["yes" if line["label"] == "spam" else "no" for line in lines]
    best = [max(v.scores, key=v.scores.get) for v in said]
    hits = [a == b for a, b in zip(best, right)]
    given = [v.answer for v in said]
    assert found["n"] == 40 and found["bad"] == 0
    assert found["accuracy"]["value"] == sum(hits) / 40
    assert found["coverage"]["value"] == sum(a != "unsure" for a in given) / 40
    for a in ANSWERS:
        for b in (*ANSWERS, "unsure"):
            n = sum((x, y) == (a, b) for x, y in zip(right, given))
            assert found["confusion"][a][b] == n
        assert found["answers"][a]["n"] == right.count(a)
    brier = sum((v.scores["yes"] - (r == "yes")) ** 2 for v, r in zip(said, right)) / 40
    assert found["brier"]["value"] == pytest.approx(brier, abs=1e-5)
    wrong = sorted(
        (v.scores[r], i) for i, (v, r, hit) in enumerate(zip(said, right, hits)) if not hit
    )
    assert len(found["mistakes"]) == min(20, len(wrong)) > 0
    assert [m["name"] for m in found["mistakes"]] == [f"{labelled}:{i + 1}" for _, i in wrong[:20]]
    # the cases that the rest of this file takes for granted
    assert {"unsure"} < set(given) and 0 < sum(hits) < 40


def test_every_figure_has_an_interval_around_it(models, q, labelled):
    found = figures(models, "-q", q, labelled)
    shown = [found[name] for name in ("accuracy", "auc", "brier", "log_loss", "coverage")]
    shown += [found["answers"][a][name] for a in ANSWERS for name in ("recall", "precision", "f1")]
    for f in shown:
        assert f["low"] <= f["value"] <= f["high"]
    assert 0 <= found["ece"]["low"] <= found["ece"]["high"]
    assert found["interval"] == {"level": 0.95, "resamples": 1000, "seed": 33}
    assert found["ece_bins"] == 15


@pytest.mark.full
def test_two_runs_print_the_same_bytes_at_any_number_of_threads(models, q, labelled):
    for form in ((), ("--json",)):
        argv = ("-q", q, labelled, *form)
        one, two = evaluate(models, *argv, "-j", 1), evaluate(models, *argv, "-j", 2)
        assert one.returncode == 0 and one.stdout == two.stdout


def test_the_report_has_the_figures_of_the_object(models, q, labelled):
    report = evaluate(models, "-q", q, labelled).stdout.decode()
    found = figures(models, "-q", q, labelled)
    for title, name in (("accuracy", "accuracy"), ("AUC", "auc"), ("Brier score", "brier")):
        f = found[name]
        shown = f"{f['value']:.3f} ({f['low']:.3f} to {f['high']:.3f})"
        assert re.search(rf"^{title} +{re.escape(shown)}", report, re.M)
    rows = {a: [str(n) for n in found["confusion"][a].values()] for a in ANSWERS}
    for a in ANSWERS:
        assert re.search(rf"^{a} +" + " +".join(rows[a]) + "$", report, re.M)
    assert "40 texts" in report and f"{labelled}:" in report


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("form", ["csv", "folders", "folder of folders", "stdin"])
def test_every_form_of_labelled_texts_gives_the_same_figures(models, q, labelled, tmp_path, form):
    lines = [json.loads(line) for line in labelled.read_text().splitlines()]
    kwargs = {}
    if form == "csv":
        rows = "".join(f"{o['label']};{o['text']}\n" for o in lines)
        (tmp_path / "t.csv").write_text("kind;body\n" + rows)
        argv = ("--csv", "body", "--label", "kind", tmp_path / "t.csv")
    elif form == "stdin":
        argv, kwargs = ("-",), {"input": labelled.read_bytes()}
    else:
        for i, o in enumerate(lines):
            path = tmp_path / "set" / o["label"] / f"{i:03}"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(o["text"])
        by_name = [f"{a}={tmp_path}/set/{a}" for a in ("spam", "ham", "no")]
        argv = (tmp_path / "set",) if form == "folder of folders" else by_name
    done = evaluate(models, "--json", "-q", q, *argv, **kwargs)
    assert done.returncode == 0, done.stderr
    found, expected = json.loads(done.stdout), figures(models, "-q", q, labelled)
    for name in ("n", "accuracy", "auc", "confusion"):
        value = lambda o: o[name].get("value", o[name]) if isinstance(o[name], dict) else o[name]
        assert value(found) == value(expected), name


def test_bad_texts_are_named_and_counted_and_the_rest_is_evaluated(models, q, labelled):
    good = labelled.read_text()
    bad = ['{"text": "", "label": "yes"}', "{", '{"text": "x"}']
    labelled.write_text("\n".join(bad) + "\n" + good)
    done = evaluate(models, "--json", "-q", q, labelled)
    assert done.returncode == 65
    found = json.loads(done.stdout)
    assert (found["n"], found["bad"]) == (40, 3)
    *named, last = done.stderr.decode().splitlines()
    assert [line.split(": ")[1] for line in named] == [f"{labelled}:{i}" for i in (1, 2, 3)]
    assert "3 of 43 texts could not be used" in last


@pytest.mark.full
def test_a_classifier_is_compared_with_another_model(models, q, labelled):
    other = write_models(models).joinpath("gemma3.gguf")
    other_q = labelled.parent / "r.yaml"
    write_question(
        other_q, prompt=[{"text": "Is it? "}, "input"], aliases={"spam": "yes", "ham": "no"}
    )
    found = figures(models, "-q", other_q, labelled, "--compare", other)
    alone = [figures(models, "-q", other_q, labelled, *m) for m in ((), ("-m", other))]
    for one, both in zip(alone, (found, found["compare"])):
        for name in ("model", "accuracy", "auc", "brier", "log_loss", "ece", "confusion"):
            assert both[name] == one[name], name
    assert found["model"] != found["compare"]["model"]
    difference = found["compare"]["brier"]["value"] - found["brier"]["value"]
    assert found["difference"]["brier"]["value"] == pytest.approx(difference, abs=2e-6)
    assert 0 <= found["mcnemar"]["p"] <= 1
    gain = found["mcnemar"]["only_second"] - found["mcnemar"]["only_first"]
    assert gain / 40 == pytest.approx(found["difference"]["accuracy"]["value"], abs=1e-6)
    report = evaluate(models, "-q", other_q, labelled, "--compare", other).stdout.decode()
    assert "McNemar's exact test: llama alone is right on" in report and "difference" in report


@pytest.mark.full
def test_a_classifier_is_compared_with_another_question(models, q, labelled, tmp_path):
    other = tmp_path / "other.yaml"
    write_question(
        other, answers={"ham": ["no"], "spam": ["yes"]}, prompt=[{"text": "Yes? "}, "input"]
    )
    found = figures(models, "-q", q, labelled, "--compare", other)
    (tmp_path / "same.jsonl").write_text(labelled.read_text().replace('"no"', '"ham"'))
    alone = figures(models, "-q", other, tmp_path / "same.jsonl")
    assert found["compare"]["question"] == "other"
    assert found["compare"]["accuracy"] == alone["accuracy"]
    assert found["compare"]["confusion"]["yes"]["yes"] == alone["confusion"]["spam"]["spam"]
    # its answers in another order are the same ones; the same question differs by nothing
    same = figures(models, "-q", q, labelled, "--compare", q)
    assert same["mcnemar"] == {"only_first": 0, "only_second": 0, "p": 1.0}
    assert all(same["difference"]["accuracy"][key] == 0 for key in ("value", "low", "high"))


@pytest.mark.full
def test_a_classifier_is_compared_with_what_was_learnt(models, q, labelled, tmp_path):
    path = tmp_path / "mine.calibration"
    for i, label in enumerate(("yes", "no", "no", "no")):
        done = classify(
            models,
            *("-q", q, "--calibration", path, "--learn", label),
            input=f"{WORDS[i]} 1".encode(),
        )
        assert done.returncode == 0, done.stderr
    found = figures(models, "-q", q, "--no-calibration", labelled, "--compare", path)
    assert found["calibration"] is None and found["compare"]["calibration"]["learnt"] == 4
    assert found["difference"]["brier"]["value"] != 0


def test_learned_texts_are_classified_as_if_they_had_not_been(models, tmp_path):
    """Else a user who evaluates on what was learned would see no error, whatever was learned."""
    q, path = tmp_path / "q.yaml", tmp_path / "mine.calibration"
    q.write_text("type: yesno\nquestion: Is it?\n")
    rows = [f"text {word} {i}" for i, word in enumerate(WORDS[:4])]
    for i, text in enumerate(rows):  # at random: nothing but the text itself tells its answer
        label = "yes" if i % 2 else "no"
        done = classify(
            models, "-q", q, "--calibration", path, "--learn", label, input=text.encode()
        )
        assert done.returncode == 0, done.stderr
    data = tmp_path / "texts.jsonl"
    lines = [{"text": t, "answer": "yes" if i % 2 else "no"} for i, t in enumerate(rows)]
    data.write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = figures(models, "-q", q, "--calibration", path, data)
    assert found["learned"] == 4
    done = classify(models, "-q", q, "--calibration", path, "--evaluate", data)
    assert b"4 texts, 4 of them learned: each is classified as if it had not" in done.stdout
    plain = figures(models, "-q", q, "--no-calibration", data)
    assert plain["learned"] == 0
    sure = [
        json.loads(
            classify(models, "-q", q, "--calibration", path, "--json", input=t.encode()).stdout
        )
        for t in rows
    ]
    assert all(x["taught"] for x in sure) and found["coverage"]["value"] < 1


@pytest.mark.full
def test_two_wordings_without_files_are_compared(models, labelled):
    labelled.write_text(labelled.read_text().replace("spam", "yes").replace("ham", "no"))
    argv = ("--answers", "yes,no", labelled)
    found = figures(models, "-q", "Urgent?", *argv, "--compare", "Must the reader act?")
    alone = figures(models, "-q", "Must the reader act?", *argv)
    assert found["compare"]["brier"] == alone["brier"] != found["brier"]


def test_mails_of_maildirs_are_read_as_messages_for_any_question(models, tmp_path):
    q = write_question(tmp_path / "q.yaml")
    box = tmp_path / "box"
    for name in ("yes/cur/1", "no/new/2"):
        (box / name).parent.mkdir(parents=True)
        (box / name).write_bytes((ROOT / "tests" / "mails" / "ham-mutt.eml").read_bytes())
    for path in (box / "yes" / "new", box / "no" / "cur"):
        path.mkdir()
    found = figures(models, "-q", q, box)
    (v,) = verdicts(models, q, [(box / "yes/cur/1").read_text()], as_mail=True)
    (raw,) = verdicts(models, q, [(box / "yes/cur/1").read_text()])
    (mistake,) = found["mistakes"]
    assert mistake["p"] == {name: round(p, 6) for name, p in v.scores.items()}
    assert v.scores != raw.scores


@pytest.mark.full
def test_many_answers_have_areas_of_their_own_and_a_list_of_confusions(models, tmp_path):
    letters = [chr(97 + i) * 2 for i in range(14)]
    q = write_question(tmp_path / "q.yaml", answers={a: [a] for a in letters})
    lines = [{"text": f"text {i}", "label": letters[i % 13]} for i in range(52)]
    path = tmp_path / "t.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = figures(models, "-q", q, path)
    assert all("auc" in found["answers"][a] for a in letters)
    assert found["answers"][letters[13]]["auc"] == {"value": None, "low": None, "high": None}
    report = evaluate(models, "-q", q, path).stdout.decode()
    assert f"no text is labelled {letters[13]}" in report
    assert re.search(r"^correct +answer +texts$", report, re.M)


def test_no_error_says_what_error_rate_it_excludes(models, q, tmp_path):
    path = tmp_path / "t.jsonl"
    (v,) = verdicts(models, q, ["hello"])
    best = max(v.scores, key=v.scores.get)
    path.write_text(f'{{"text": "hello", "label": "{best}"}}\n' * 59)
    report = evaluate(models, "-q", q, path).stdout.decode()
    # 0.95 ** 59 is just below 0.05
    assert "no error in 59 texts: its error rate is at most 5 %" in report


def bad_inputs(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "x.jsonl").write_text('{"text": "a", "label": "maybe"}\n')
    (tmp_path / "r.yaml").write_text('{"input": 1}')
    good = tmp_path / "texts.jsonl"
    three = {"a": ["a"], "b": ["b"], "c": ["c"]}
    other = write_question(tmp_path / "three.yaml", answers=three)
    return {
        "no texts": ([], 64, "--evaluate: needs LABELLED"),
        "label": ([tmp_path / "x.jsonl"], 65, 'x.jsonl:1: the label: "maybe" is no answer; known'),
        "empty folder": ([f"yes={tmp_path}/empty"], 65, "empty: there is no file in it"),
        "missing": ([tmp_path / "none"], 66, "none: No such file"),
        "table": ([good, "--csv", "x"], 65, "there is no column x"),
        "other question": ([good, "--compare", other], 65, "three.yaml: its answers are a, b, c"),
        "other unknown": ([good, "--compare", "nothing"], 66, "unknown question"),
        "other model": ([good, "--compare", tmp_path / "n.gguf"], 66, "n.gguf: No such file"),
        "broken question": ([good, "--compare", tmp_path / "r.yaml"], 65, "r.yaml: "),
        "page is a folder": ([good, "--html", tmp_path], 73, "is a directory"),
        "page nowhere": ([good, "--html", tmp_path / "no" / "p.html"], 73, "p.html: cannot write"),
        "page is the input": ([good, "--html", good], 64, "the output is also the input"),
    }


NAMES = [
    *("no texts", "label", "empty folder", "missing", "table", "other question", "other unknown"),
    *("other model", "broken question", "page is a folder", "page nowhere", "page is the input"),
]


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize("name", NAMES)
def test_bad_input_is_refused_in_one_line(models, q, labelled, tmp_path, name):
    argv, code, words = bad_inputs(tmp_path)[name]
    done = evaluate(models, "-q", q, *argv)
    assert (done.returncode, done.stdout) == (code, b"")
    (line,) = done.stderr.decode().splitlines()
    assert words in line
    assert labelled.read_text().count("\n") == 40


def test_options_of_evaluation_need_it(models, q, labelled):
    for argv in (("--html", "x.html"), ("--compare", q), ("--label", "x")):
        done = classify(models, "-q", q, *argv, labelled)
        assert done.returncode == 64 and b"--evaluate" in done.stderr


def test_spam_and_ham_are_labels_of_the_bundled_question():
    mails = ROOT / "tests" / "mails"
    words = [f"{kind}={path}" for path in sorted(mails.glob("*.eml")) for kind in [path.name[:4]]]
    words = [word.replace("ham-=", "ham=") for word in words]
    done = run("classify", "--evaluate", "--no-calibration", "--json", *words)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["confusion"] == {
        "yes": {"yes": 3, "no": 0, "unsure": 0},
        "no": {"yes": 0, "no": 3, "unsure": 0},
    }
    assert found["auc"] == {"value": 1.0, "low": 1.0, "high": 1.0} and found["mistakes"] == []
