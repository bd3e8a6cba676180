"""Several questions about a text: each is answered as if it were asked alone."""

import json
import subprocess

import pytest
from classify_call import TEXT, classify, question, write_question
from conftest import BIN

from sluice.classify.classifier import Classifier
from sluice.classify.panel import Panel

pytestmark = pytest.mark.usefixtures("home")

LAST = [{"special": "<s>"}, "input", {"text": " Is it? "}]
ALSO = [{"special": "<s>"}, "input", {"text": " Or is it not? "}]
BARE = [{"special": "<s>"}, "input"]
FIRST = [{"special": "<s>"}, {"text": "Is it? "}, "input"]
MORE = {"no": ["no"], "none": ["none", "nothing"], "maybe": ["may be", "maybe"]}
TEXTS = [TEXT, b"short", b"\xe4\xb8\xad" * 30, TEXT * 40]


def bits(v):
    return [p.hex() for p in v.log_p], v.n_tokens, v.cut, v.mass


@pytest.mark.parametrize(
    "prompts",
    [(LAST, ALSO), (LAST, BARE, ALSO), (BARE, BARE), (FIRST, LAST), (FIRST, FIRST, ALSO)],
    ids=["text first", "nothing behind", "nothing behind all", "one each", "mixed"],
)
@pytest.mark.parametrize("arch", ["llama", "gemma3"])
@pytest.mark.quick_cases(2)
def test_each_answer_has_the_bits_of_the_question_asked_alone(models, arch, prompts):
    path = str(models / f"{arch}.gguf")
    bos = {"llama": "<s>", "gemma3": "<bos>"}[arch]
    asked = []
    for i, prompt in enumerate(prompts):
        prompt = [{"special": bos}, *prompt[1:]]
        changes = {"answers": MORE, "tokenisations": "canonical"} if i % 2 else {}
        asked.append(question(prompt=prompt, **changes))
    alone = [Classifier(q, path, mass=True) for q in asked]
    for i, q in enumerate(asked):
        q.name = f"q{i}"
    first = Classifier(asked[0], path, mass=True)
    panel = Panel([first, *(Classifier(q, path, mass=True, model=first.model) for q in asked[1:])])
    want = [[bits(c.ask(data)) for c in alone] for data in TEXTS]
    for prepare in (False, True):
        if prepare:
            panel.prepare()
        assert [[bits(v) for v in found] for found in panel.ask_many(TEXTS)] == want
        assert [[bits(v) for v in panel.ask(data)] for data in TEXTS] == want


def test_text_that_stands_first_is_processed_once(models):
    path = str(models / "llama.gguf")
    first = Classifier(question(prompt=LAST), path)
    second = Classifier(question(prompt=ALSO), path, model=first.model)
    second.question.name = "also"
    one, two = Panel([first, second]).ask(TEXT)
    assert one.n_reused == 0
    assert two.n_reused == two.n_tokens - len(second.prompt.after)


def test_empty_text_is_one_error_for_all_questions(models):
    path = str(models / "llama.gguf")
    first = Classifier(question(prompt=LAST), path)
    second = Classifier(question(prompt=FIRST), path, model=first.model)
    second.question.name = "second"
    found = list(Panel([first, second]).ask_many([TEXT, b"", TEXT]))
    assert [isinstance(x, list) for x in found] == [True, False, True]


@pytest.fixture
def two(tmp_path):
    write_question(tmp_path / "one.yaml", prompt=LAST, thresholds={"yes": 0.01})
    write_question(tmp_path / "two.yaml", prompt=ALSO, answers=MORE)
    return tmp_path


def test_a_line_for_each_question_and_a_status_of_all(models, two):
    ask = lambda *names: classify(
        models, *(w for n in names for w in ("-q", n)), input=TEXT, cwd=two
    )
    alone = {n: ask(f"./{n}.yaml") for n in ("one", "two")}
    done = ask("./one.yaml", "./two.yaml")
    assert done.stdout.decode().splitlines() == [
        "\t".join([n, *alone[n].stdout.decode().split()]) for n in ("one", "two")
    ]
    assert done.returncode == max(alone[n].returncode for n in alone)
    write_question(two / "sure.yaml", prompt=LAST, thresholds={"yes": 1, "no": 1})
    assert ask("./one.yaml", "./sure.yaml").returncode == 2


def test_list_in_a_file_is_asked_together(models, two):
    inline = {"name": "three words", **json.loads((two / "two.yaml").read_text())}
    (two / "all.yaml").write_text(json.dumps(["one.yaml", "two.yaml", inline]))
    done = classify(models, "-q", two / "all.yaml", "--json", input=TEXT)
    found = json.loads(done.stdout)["answers"]
    assert list(found) == ["one", "two", "three words"]
    assert found["two"]["p"] == found["three words"]["p"]


def test_many_texts_get_a_line_or_columns_for_each_question(models, two):
    both = ("-q", "./one.yaml", "-q", "./two.yaml")
    done = classify(models, *both, "--each", "line", input=b"a\nb b\n", cwd=two)
    rows = [line.split("\t")[:2] for line in done.stdout.decode().splitlines()]
    assert rows == [["-:1", "one"], ["-:1", "two"], ["-:2", "one"], ["-:2", "two"]]
    done = classify(models, *both, "--csv", "t", input=b"t\na\nb b\n", cwd=two)
    header = done.stdout.decode().splitlines()[0].split(",")
    assert header == [
        *("t", "one", "one_score", "one_p_yes", "one_p_no"),
        *("two", "two_score", *(f"two_p_{a}" for a in MORE)),
    ]
    done = classify(
        models, *both, "--each", "line", "--select", "one=yes", input=b"a\nb b\n", cwd=two
    )
    assert set(done.stdout.splitlines()) <= {b"a", b"b b"} and done.returncode in (0, 1)


BAD = {
    "twice the same": (
        ["-q", "./one.yaml", "-q", "./one.yaml"],
        64,
        "two questions are called one",
    ),
    "select without a question": (
        ["-q", "./one.yaml", "-q", "./two.yaml", "--each", "line", "--select", "yes"],
        64,
        "say QUESTION=ANSWER, with one of the questions one, two",
    ),
    "select of no answer": (
        ["-q", "./one.yaml", "-q", "./two.yaml", "--each", "line", "--select", "two=yes"],
        64,
        "no answer; use no, none, maybe, unsure",
    ),
    "long": (["-q", "./one.yaml", "-q", "./two.yaml", "--long"], 64, "need one question"),
    "learn": (["-q", "./one.yaml", "-q", "./two.yaml", "--learn", "yes"], 64, "--learn"),
    "answers without a question": (["--answers", "yes,no"], 64, "need exactly one -q"),
    "answers of two questions": (
        ["-q", "A?", "-q", "B?", "--answers", "yes,no"],
        64,
        "need exactly one -q",
    ),
    "a schema without a question": (["--json-schema", "true"], 65, "allows more than 4096 texts"),
    "a schema of one value": (
        ["-q", "A?", "--json-schema", '{"const": "x"}'],
        65,
        "--json-schema: 1 answer; give at least two",
    ),
    "a schema of any text": (
        ["-q", "A?", "--json-schema", '{"type": "string"}'],
        65,
        "--json-schema: allows more than 4096 texts",
    ),
    "a schema from stdin": (["-q", "A?", "--json-schema", "-"], 64, "stdin has the text"),
    "a schema that is none": (["-q", "A?", "--json-schema", "{"], 65, "--json-schema"),
    "a keyword that is not honoured": (
        ["-q", "A?", "--json-schema", '{"uniqueItems": true}'],
        69,
        "uniqueItems",
    ),
    "a regular expression of long texts": (
        ["-q", "A?", "--regex", "a{100000}"],
        65,
        "texts longer than 1024 bytes",
    ),
    "a regular expression without end": (["-q", "A?", "--regex", "a*"], 65, "--regex: allows more"),
    "answers of two kinds": (
        ["-q", "A?", "--answers", "a,b", "--regex", "a|b"],
        64,
        "--answers and --regex exclude each other",
    ),
    "answer twice": (["-q", "A?", "--answers", "a,b,a"], 65, '"a" is given twice'),
    "one answer": (["-q", "A?", "--answers", "a"], 65, "--answers: 1 answer; give at least"),
    "256 answers": (
        ["-q", "A?", "--answers", ",".join(f"a{i}" for i in range(256))],
        65,
        "256 given; give 2 to 255",
    ),
    "an empty answer": (["-q", "A?", "--answers", "a,,b"], 65, "number 2 is not a text"),
    "a list of nothing": (["-q", "./none.yaml"], 65, "not a list of 1 to 64 questions"),
    "a list within a list": (["-q", "./nest.yaml"], 65, "is a list of questions, and one"),
    "a list of itself": (["-q", "./self.yaml"], 65, "is a list of questions, and one"),
    "a number in a list": (["-q", "./five.yaml"], 65, "question 1: is no name or path"),
    "a list where one is asked": (["-q", "./list.yaml", "--long"], 64, "need one question"),
}


@pytest.mark.quick_cases(8)
@pytest.mark.parametrize("what", BAD)
def test_bad_questions_end_in_one_line_and_their_code(models, two, what):
    argv, code, words = BAD[what]
    for name, tree in {
        "none": [],
        "nest": ["list.yaml"],
        "self": ["self.yaml"],
        "five": [5],
        "list": ["one.yaml", "two.yaml"],
    }.items():
        (two / f"{name}.yaml").write_text(json.dumps(tree))
    done = classify(models, *argv, input=TEXT, cwd=two)
    assert (done.returncode, done.stdout) == (code, b""), done.stderr
    assert words in done.stderr.decode() and done.stderr.count(b"\n") == 1


def test_questions_of_different_models_are_refused(models, two):
    for name in ("a", "b"):
        (two / f"{name}.gguf").write_bytes((models / "llama.gguf").read_bytes())
        write_question(two / f"{name}.yaml", model=f"{name}.gguf", prompt=LAST)
    both = ("-q", "./a.yaml", "-q", "./b.yaml")
    done = subprocess.run([BIN / "classify", *both], input=TEXT, capture_output=True, cwd=two)
    assert done.returncode == 64 and b"name different models; choose one with -m" in done.stderr
    assert classify(models, *both, input=TEXT, cwd=two).returncode in (0, 1, 2)


@pytest.mark.parametrize(
    "argv, answers",
    [
        (["--json-schema", '{"enum": ["low", "high", 7, 7.0, null]}'], "low high 7 null".split()),
        (["--json-schema", '{"type": "integer", "minimum": 1, "maximum": 3}'], ["1", "2", "3"]),
        (["--json-schema", '{"type": "boolean"}'], ["true", "false"]),
        (["--regex", "[1-3]|none"], ["1", "2", "3", "none"]),
        (["--regex", "(ü|a){2}"], ["üü", "üa", "aü", "aa"]),
    ],
)
def test_answers_are_the_texts_of_a_schema_or_an_expression(models, argv, answers):
    """As those of --answers, with the same probabilities."""
    found = classify(models, "-q", "Which?", *argv, "--json", input=TEXT)
    named = classify(models, "-q", "Which?", "--answers", ",".join(answers), "--json", input=TEXT)
    of_found, of_named = ({**json.loads(x.stdout), "ms": 0} for x in (found, named))
    assert list(of_found["p"]) == answers and found.returncode == named.returncode
    assert of_found == of_named


def test_question_without_a_file_is_asked_by_its_text(models):
    done = classify(models, "-q", "Is it late?", "--answers", "yes,no", "--json", input=TEXT)
    found = json.loads(done.stdout)
    assert list(found["p"]) == ["yes", "no"] and done.returncode in (0, 1, 2)
    done = classify(
        models, "-q", "Which?", "--answers", "red, green ,blue", "--csv", "t", input=b"t\nx\n"
    )
    assert done.stdout.splitlines()[0] == (
        b"t,answer,answer_score,answer_p_red,answer_p_green,answer_p_blue"
    )
