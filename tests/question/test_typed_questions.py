"""Typed questions: yesno, choice and score, in files and on the command line; what is refused; what
255 answers cost.
"""

import inspect
import json
import math
import random
import re
import textwrap

import pytest
import question_figures
import real_models
from chat_model import write_chat_model
from classify_call import TEXT, classify, opened

from sluice import gguf
from sluice.classify.classifier import Classifier, ask_together
from sluice.commands import classify as classify_command
from sluice.faults import Error
from sluice.question import kinds, prompt, question, templates
from sluice.question.answers import MAX_NODES
from sluice.question.question import Question
from sluice.tokenizer.vocabulary import Vocab

pytestmark = pytest.mark.usefixtures("home")

CHOICE = {
    "type": "choice",
    "question": "Who acts?",
    "answers": {"janitor": "repairs\n  things", "nobody": None},
}
SCORE = {"type": "score", "question": "How bad?", "levels": ["mild", "bad", "worst"]}
YESNO = {"type": "yesno", "question": "Is it late?"}


def write(path, tree):
    path.write_text(json.dumps(tree))  # JSON is YAML
    return path


def asked(q):
    """The prompt of a question as one text, with [input] where the text goes."""
    return "".join("[input]" if kind == "input" else text for kind, text in q.prompt)


# The form.


def test_prompt_has_the_text_first_and_lists_the_answers_with_their_descriptions():
    q = Question(CHOICE, "q.yaml")
    assert (q.type, q.frame, q.tokenisations) == ("choice", "chat", "canonical")
    assert q.options == ["- janitor: repairs things", "- nobody"]
    assert asked(q) == (
        "Text:\n---\n[input]\n---\n\nQuestion: Who acts?\n- janitor: repairs things\n- nobody\n"
        "Answer with one of these words."
    )
    assert dict(q.prompt)["options"] == "- janitor: repairs things\n- nobody"


def test_yesno_lists_nothing_without_descriptions():
    assert asked(Question(YESNO, "q.yaml")).endswith("Question: Is it late? Answer yes or no.")
    described = Question({**YESNO, "answers": {"yes": "after noon"}}, "q.yaml")
    assert asked(described).endswith("Is it late?\n- yes: after noon\n- no\nAnswer yes or no.")


def test_noul_is_another_name_of_yesno():
    one, other = (Question({**YESNO, "type": name}, "q.yaml") for name in ("yesno", "noul"))
    assert (one.prompt, one.answers, one.type) == (other.prompt, other.answers, other.type)


def test_questions_of_all_types_begin_alike_so_they_share_a_text():
    begins = {tuple(Question(tree, "q.yaml").prompt[:2]) for tree in (CHOICE, SCORE, YESNO)}
    assert begins == {(("text", "Text:\n---\n"), ("input", ""))}


def test_question_first_is_possible():
    for tree in (CHOICE, SCORE, YESNO):
        text = asked(Question({**tree, "order": "question-first"}, "q.yaml"))
        assert text.startswith(f"Question: {tree['question']}") and not text.endswith("[input]")


def test_more_than_sixteen_listed_answers_come_first():
    names = [f"a{i}" for i in range(17)]
    order = lambda tree: asked(Question(tree, "q.yaml")).index("[input]")
    few = {**CHOICE, "answers": names[:16]}
    many = {**CHOICE, "answers": names}
    assert order(few) == order(CHOICE) < order(many)
    assert order({**many, "order": "text-first"}) == order(CHOICE)


def test_long_list_without_descriptions_is_left_out():
    names = [f"answer-{i:03}" for i in range(255)]
    tree = {**CHOICE, "answers": names}
    assert "answer-000" not in asked(Question(tree, "q.yaml"))
    assert "- answer-254" in asked(Question({**tree, "list": True}, "q.yaml"))
    described = {**CHOICE, "answers": {names[0]: "x", **dict.fromkeys(names[1:])}}
    assert "- answer-000: x\n- answer-001\n" in asked(Question(described, "q.yaml"))
    assert "- janitor" not in asked(Question({**CHOICE, "list": False}, "q.yaml"))


def test_keys_of_the_full_form_stay_possible():
    tree = {
        **SCORE,
        "input": {"kind": "mail", "head_ids": 7, "tail_ids": 3},
        "frame": "plain",
        "tokenisations": "all",
        "thresholds": {"worst": 0.9},
        "calibration": {"scale": 2, "bias": {"mild": 1}},
        "prompt": ["input", {"text": "\n"}, "options", {"text": "\nSo?"}],
    }
    q = Question(tree, "q.yaml")
    assert (q.kind, q.head_ids, q.tail_ids, q.frame, q.tokenisations) == (
        "mail",
        7,
        3,
        "plain",
        "all",
    )
    assert q.thresholds == {"mild": 0, "bad": 0, "worst": 0.9} and q.scale == 2
    assert q.bias == {"mild": 1, "bad": 0, "worst": 0}
    assert asked(q) == "[input]\n- mild\n- bad\n- worst\nSo?"


def test_thresholds_can_be_one_number():
    assert set(Question({**CHOICE, "thresholds": 0.7}, "q").thresholds.values()) == {0.7}
    assert Question(YESNO, "q").thresholds == {"yes": 0.6, "no": 0.6}
    assert set(Question(SCORE, "q").thresholds.values()) == {0.0}


def test_list_can_be_shifted():
    q = Question(SCORE, "q.yaml")
    assert kinds.listing(q.options) == "- mild\n- bad\n- worst"
    assert kinds.listing(q.options, 2) == "- worst\n- mild\n- bad"


def test_spellings_are_both_cases_with_and_without_a_space():
    assert kinds.spellings(["yes", "no"]) == [
        ["yes", "Yes", " yes", " Yes"],
        ["no", "No", " no", " No"],
    ]
    assert kinds.spellings(["Ann", "IBM", "7"]) == [
        ["Ann", "ann", " Ann", " ann"],
        ["IBM", " IBM"],
        ["7", " 7"],
    ]


def test_answers_that_differ_in_case_alone_keep_their_own_spelling():
    assert kinds.spellings(["Polish", "polish"]) == [["Polish", " Polish"], ["polish", " polish"]]


@pytest.mark.parametrize(
    "words, made",
    [
        ("yes,no", {"type": "yesno", "question": "Is it?"}),
        (["yes", "no"], {"type": "yesno", "question": "Is it?"}),
        ("red, green", {"type": "choice", "question": "Is it?", "answers": ["red", "green"]}),
        ("no,yes", {"type": "choice", "question": "Is it?", "answers": ["no", "yes"]}),
    ],
)
def test_question_of_the_command_line_is_a_typed_one(words, made):
    assert kinds.ad_hoc("Is it?", words) == made


# The frame.


def test_model_without_a_chat_template_gets_a_text_to_continue(tmp_path):
    marks = ["<|im_start|>", "<|im_end|>"]
    write_chat_model(tmp_path / "base.gguf", marks)
    write_chat_model(tmp_path / "chat.gguf", marks, template="{{ messages }}")
    for name, auto, chat in (("base", "chatml", "answer"), ("chat", "chatml", "chatml")):
        file = gguf.File(str(tmp_path / f"{name}.gguf"))
        vocab = Vocab(file)
        assert templates.choose(file, vocab) == auto
        assert templates.choose(file, vocab, "chat") == chat
    q = Question(YESNO, "q.yaml")
    file = gguf.File(str(tmp_path / "base.gguf"))
    p = prompt.Prompt(q, file, Vocab(file), 4096, 1)
    assert b"".join(map(Vocab(file).bytes_of, p.after)).endswith(b"Answer yes or no.\nAnswer:")


# The verdict.


@pytest.mark.quick_cases(1)
def test_level_is_the_expected_one_and_the_answer_is_nearest(models, tmp_path):
    for bias, level, answer in (
        ({"worst": 900}, 2.0, "worst"),
        ({"mild": 900}, 0.0, "mild"),
        ({"mild": 800, "worst": 800}, None, None),
    ):
        q = write(tmp_path / "how.yaml", {**SCORE, "calibration": {"bias": bias}})
        done = classify(models, "-q", q, "--json", input=TEXT)
        found = json.loads(done.stdout)
        p = list(found["p"].values())
        assert list(found["p"]) == SCORE["levels"] and math.isclose(sum(p), 1, abs_tol=2e-6)
        assert math.isclose(found["level"], p[1] + 2 * p[2], abs_tol=3e-6)
        assert found["answer"] == SCORE["levels"][int(found["level"] + 0.5)]
        assert found["score"] == found["p"][found["answer"]]
        assert level is None or (found["level"], found["answer"]) == (level, answer)
        line = classify(models, "-q", q, input=TEXT)
        assert line.stdout == f"{found['answer']} {found['level']:.3f}\n".encode()
        assert line.returncode == (found["answer"] != "mild")


def test_level_of_an_even_split_is_the_upper_one():
    assert (kinds.level([0.5, 0.5]), kinds.nearest([0.5, 0.5])) == (0.5, 1)
    assert kinds.nearest([0.0, 0.0, 1.0]) == 2 and kinds.nearest([1.0, 0.0]) == 0


def test_other_types_have_no_level(models, tmp_path):
    for tree in (CHOICE, YESNO):
        done = classify(models, "-q", write(tmp_path / "q.yaml", tree), "--json", input=TEXT)
        assert "level" not in json.loads(done.stdout)


def test_several_texts_show_the_level(models, tmp_path):
    q = write(tmp_path / "how.yaml", SCORE)
    (tmp_path / "text").write_bytes(TEXT)
    one = classify(models, "-q", q, tmp_path / "text").stdout.decode().split()
    done = classify(models, "-q", q, "--each", "line", tmp_path / "text")
    assert done.stdout.decode().split("\t")[1:] == [one[0], one[1] + "\n"]


def test_every_answer_has_the_bits_of_the_question_alone(models):
    several = [Question(tree, "q.yaml") for tree in (CHOICE, SCORE, YESNO)]
    path = str(models / "llama.gguf")
    (together,) = ask_together([Classifier(q, path) for q in several], [TEXT])
    assert [v.log_p for v in together] == [Classifier(q, path).ask(TEXT).log_p for q in several]


def test_many_answers_are_a_conditional_probability(models):
    """The sum over 255 answers is 1, and their order does not matter."""
    names = [f"k{i}" for i in range(255)]
    c = opened(models, answers={name: [name] for name in names}, tokenisations="canonical")
    v = c.ask(TEXT)
    assert len(v.scores) == 255 and math.isclose(math.fsum(v.scores.values()), 1, abs_tol=1e-9)
    assert c.tree.n_nodes <= MAX_NODES
    mixed = random.Random(1).sample(names, 255)
    other = opened(models, answers={n: [n] for n in mixed}, tokenisations="canonical").ask(TEXT)
    for name in names:
        assert math.isclose(v.scores[name], other.scores[name], rel_tol=1e-9)


@pytest.mark.full
def test_many_answers_can_be_learned(models, tmp_path):
    names = [f"k{i}" for i in range(255)]
    q = write(tmp_path / "q.yaml", {**CHOICE, "answers": names})
    file = tmp_path / "c"
    for text in (b"one", b"two"):
        done = classify(models, "-q", q, "--calibration", file, "--learn", "k7", input=text)
        assert done.returncode == 0 and not done.stderr
    learned = json.loads(
        classify(models, "-q", q, "--calibration", file, "--json", input=b"one").stdout
    )
    plain = json.loads(classify(models, "-q", q, "--no-calibration", "--json", input=b"one").stdout)
    assert learned["calibration"]["learnt"] == 2 and learned["p"]["k7"] > plain["p"]["k7"]


# What is refused.

A255 = [f"a{i}" for i in range(255)]
REFUSED = {
    "type: is none of yesno, noul, choice, score": {**YESNO, "type": "rating"},
    "type: is none of yesno, noul, choice": {**YESNO, "type": ["choice"]},
    "answers: 1 given; give 2 to 255 answers": {**CHOICE, "answers": ["a"]},
    "answers: 256 given; give 2 to 255 answers": {**CHOICE, "answers": [*A255, "b"]},
    "answers: 0 given; give 2 to 255": {**CHOICE, "answers": {}},
    "answers: the key is missing; give 2 to 255 answers": {"type": "choice", "question": "Who?"},
    "answers: is neither a list nor a mapping of 2 to 255": {**CHOICE, "answers": "a,b"},
    'answers: "a" is given twice': {**CHOICE, "answers": ["a", "b", "a"]},
    "answers: number 2 is not a text": {**CHOICE, "answers": ["a", 2]},
    'answers: "a b c" has a space, by which an answer ends in the output; write a-b-c': {
        **CHOICE,
        "answers": ["a b c", "c"],
    },
    'answers: "a\\tb" is not printable': {**CHOICE, "answers": ["a\tb", "c"]},
    'aaa..." has more than 80 characters': {**CHOICE, "answers": ["a" * 81, "c"]},
    'answers: "unsure" is reserved for texts without a probable answer; write undecided': {
        **CHOICE,
        "answers": ["unsure", "c"],
    },
    'levels: "so so" has a space': {**SCORE, "levels": ["bad", "so so", "good"]},
    'answers."a": is not a text, or is empty': {**CHOICE, "answers": {"a": "", "b": None}},
    'answers."b": is not a text, or is empty': {**CHOICE, "answers": {"a": None, "b": 3}},
    'answers."c": is not a text, or is empty': {**CHOICE, "answers": {"c": " \n", "b": None}},
    "levels: 1 given; give 2 to 10 levels, low to high": {**SCORE, "levels": ["a"]},
    "levels: 11 given; give 2 to 10 levels": {**SCORE, "levels": A255[:11]},
    "levels: the key is missing": {"type": "score", "question": "How?"},
    'levels: "b" is given twice': {**SCORE, "levels": ["b", "b"]},
    'score has no key "answers"; use': {**SCORE, "answers": ["a", "b"]},
    'choice has no key "levels"; use': {**CHOICE, "levels": ["a", "b"]},
    'yesno has no key "levels"': {**YESNO, "levels": ["a", "b"]},
    'choice has no key "threshold"': {**CHOICE, "threshold": 1},
    'a question of type yesno has yes and no, not "maybe"': {**YESNO, "answers": {"maybe": "x"}},
    "answers: is not a mapping of yes and no to descriptions": {**YESNO, "answers": ["yes", "no"]},
    "answers.yes: is not a text, or is empty": {**YESNO, "answers": {"yes": ""}},
    "question: is not a text, or is empty": {"type": "yesno"},
    "question: is not a text": {**YESNO, "question": 7},
    "question: more than 16384 characters": {**YESNO, "question": "x" * 16385},
    "order: is none of text-first, question-first": {**YESNO, "order": "last"},
    "list: is not true or false": {**YESNO, "list": "yes"},
    "thresholds.yes: is not a number from 0 to 1": {**YESNO, "thresholds": 2},
    'thresholds: there is no key "maybe"': {**YESNO, "thresholds": {"maybe": 0.5}},
    "prompt: the segment input occurs 0 times": {**YESNO, "prompt": ["options"]},
    "frame: is none of": {**YESNO, "frame": "none"},
}


@pytest.mark.parametrize("message", REFUSED)
def test_bad_typed_question_is_refused_by_file_and_key(tmp_path, message):
    path = write(tmp_path / "q.yaml", REFUSED[message])
    with pytest.raises(Error) as e:
        question.read(str(path))
    text = str(e.value)
    assert e.value.code == 65 and text.startswith(f"{path}: ") and message in text, text
    assert "\n" not in text


def test_answer_given_twice_in_a_mapping_is_refused_with_its_line(tmp_path):
    path = tmp_path / "q.yaml"
    path.write_text("type: choice\nquestion: Who?\nanswers:\n  a: x\n  b:\n  a: y\n")
    with pytest.raises(Error, match='line 6: the key "a" appears twice'):
        question.read(str(path))


def test_options_segment_is_of_typed_questions_only(tmp_path):
    full = {
        "input": {"kind": "text", "head_ids": 1, "tail_ids": 1},
        "prompt": ["options", "input"],
        "answers": {"a": ["a"], "b": ["b"]},
    }
    with pytest.raises(Error, match="prompt, segment 1: is none of"):
        Question(full, "q.yaml")


def test_bad_questions_end_the_command_with_one_line(models, tmp_path):
    q = write(tmp_path / "q.yaml", {**CHOICE, "answers": ["a"]})
    done = classify(models, "-q", q, input=TEXT)
    assert done.returncode == 65 and done.stdout == b"" and done.stderr.count(b"\n") == 1
    for words, what in (
        ("a", b"--answers: 1 answer; give at least two"),
        (
            "a,b c",
            b'--answers: "b c" has a space, by which an answer ends in the output; write b-c',
        ),
        ("a,unsure", b'--answers: "unsure" is reserved'),
        ("a,a", b'answers: "a" is given twice'),
        ("a,,b", b"answers: number 2 is not a text, or is empty"),
        (",".join([*A255, "b"]), b"answers: 256 given; give 2 to 255"),
    ):
        done = classify(models, "-q", "Who?", "--answers", words, input=TEXT)
        assert done.returncode in (64, 65) and what in done.stderr, done.stderr
        assert done.stdout == b"" and done.stderr.count(b"\n") == 1


@pytest.mark.parametrize("option, of", [("--json-schema", json.dumps), ("--regex", "|".join)])
def test_answers_of_a_grammar_are_refused_by_the_option_that_gave_them(models, option, of):
    """`of` makes the option's value of a list of answers, by a schema's enum or alternatives."""
    for names, words in (
        (["a", "b c"], '"b c" has a space, by which an answer ends in the output; write b-c'),
        (["a", "unsure"], '"unsure" is reserved'),
        (["a", "\u00a0"], "is not printable"),
        (["a"], "1 answer; give at least two"),
    ):
        value = of({"enum": names} if of is json.dumps else names)
        done = classify(models, "-q", "Who?", option, value, input=TEXT)
        assert (done.returncode, done.stdout) == (65, b"")
        assert done.stderr.decode().startswith(f"classify: {option}: ")
        assert words in done.stderr.decode() and done.stderr.count(b"\n") == 1


@pytest.mark.parametrize("text", ["Which team must act?", "Late?", "a b"])
def test_text_without_answers_is_told_of_answers(models, text):
    done = classify(models, "-q", text, input=TEXT)
    assert (done.returncode, done.stdout) == (66, b"") and done.stderr.count(b"\n") == 1
    assert b"; or give --answers A,B to ask this text" in done.stderr
    assert b"--answers" not in classify(models, "-q", "urgently", input=TEXT).stderr


def test_question_file_of_the_manual_is_one(tmp_path):
    manual = inspect.cleandoc(classify_command.main.help)
    (example,) = re.findall(r"^ +type: .*\n(?:^ +\S.*\n)+", manual, re.M)
    (tmp_path / "team.yaml").write_text(textwrap.dedent(example))
    q = question.read(str(tmp_path / "team.yaml"))
    assert (q.name, q.type, list(q.answers)) == ("team", "choice", ["billing", "support"])
    assert len(example.splitlines()) == 4 and set(q.thresholds.values()) == {0.5}


# Real models.


@pytest.mark.full
@pytest.mark.parametrize("model", [real_models.SMOLLM2, real_models.GEMMA3], ids=lambda m: m.file)
def test_prompts_put_mass_on_the_answers_of_real_models(model):
    """The floor is below what tests/helpers/question_figures.py prints, for other arithmetic."""
    if not model.is_here():
        pytest.skip(f"{model.file} is not here: make real-models")
    for name, floor in (("urgent", 0.3), ("language-is-english", 0.4), ("sentiment", 0.01)):
        q = Question(question_figures.TYPED[name], name)
        texts = question_figures.labelled(name)[:9]
        _, _, mass, _ = question_figures.figures(q, model.path, texts)
        assert mass > floor, (name, mass)


def test_255_answers_cost_few_more_tokens_than_two():
    """A text's time is that of the tokens in its pass: those of the prompt and one a node."""
    model = real_models.SMOLLM2
    if not model.is_here():
        pytest.skip(f"{model.file} is not here: make real-models")
    text = b"The lift is stuck again, and nobody comes. " * 27  # about 300 tokens
    cost = {}
    for n in (2, 255):
        tree = {**CHOICE, "answers": [f"label{i:03}" for i in range(n)]}
        c = Classifier(Question(tree, "q"), str(model.path))
        tokens = c.tokenized(text).tokens
        cost[n] = len(tokens) + len(c.prompt.after) + c.tree.n_nodes - 1
    assert 290 < cost[2] < 400 and cost[255] < 1.5 * cost[2], cost
