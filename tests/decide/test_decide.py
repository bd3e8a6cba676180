"""decide: the answers' form and arithmetic, bits, streams, and requests from anybody."""

import json
import math
import os
import subprocess

import pytest
import real_models
from conftest import BIN, ROOT, run
from hypothesis import given
from hypothesis import strategies as st

from sluice.classify.classifier import Classifier
from sluice.decide import replies, requests
from sluice.decide.decider import MAX_BATCH, Decider
from sluice.jsonl import BadLine
from sluice.model.model import Model

pytestmark = pytest.mark.usefixtures("home")

STATE = "The lift is stuck again, and it is late."
WHO = {
    "type": "choice",
    "instructions": "Who acts?",
    "criteria": {"the janitor": "repairs things", "nobody": None, "7": ""},
}
BAD = {"type": "score", "instructions": "How bad?", "criteria": ["mild", "bad", "worst"]}
WORDY = {"type": "score", "instructions": "How bad?", "criteria": ["it can wait", "act now"]}
LATE = {"type": "noul", "instructions": "Is it late?", "criteria": {"true": "after 10 pm"}}
ALL = {"who": WHO, "bad": BAD, "wordy": WORDY, "late": LATE}


def request(questions=None, state=STATE, **more):
    return {"state": state, "questions": ALL if questions is None else questions, **more}


def decide(models, lines, *argv, model="llama.gguf", **kwargs):
    """(the process, its lines parsed)."""
    if not isinstance(lines, bytes):
        lines = b"".join(json.dumps(x).encode() + b"\n" for x in lines)
    done = run("decide", "-m", models / model, *argv, input=lines, **kwargs)
    return done, [json.loads(line) for line in done.stdout.splitlines()]


# The form.


def test_answers_have_the_documented_form(models):
    done, (found,) = decide(models, [request()])
    assert (done.returncode, done.stderr) == (0, b"")
    assert list(found) == ["answers", "usage"] and list(found["answers"]) == list(ALL)
    assert found["usage"]["output_tokens"] == 0 and found["usage"]["input_tokens"] > len(ALL)
    who, bad, wordy, late = found["answers"].values()
    assert list(who) == ["type", "choice", "probabilities", "confidence"]
    assert list(who["probabilities"]) == list(WHO["criteria"])
    assert who["choice"] == max(who["probabilities"], key=who["probabilities"].get)
    for answer, texts in ((bad, BAD["criteria"]), (wordy, WORDY["criteria"])):
        assert list(answer) == ["type", "score", "legend", "probabilities", "confidence"]
        keys = [str(i) for i in range(len(texts))]
        assert answer["legend"] == dict(zip(keys, texts)) and list(answer["legend"]) == keys
        assert list(answer["probabilities"]) == keys
        score = sum(i * p for i, p in enumerate(answer["probabilities"].values()))
        assert math.isclose(answer["score"], score, abs_tol=1e-5)
    assert list(late) == ["type", "noul"] and 0 <= late["noul"] <= 1
    for answer in (who, bad, wordy):
        assert math.isclose(sum(answer["probabilities"].values()), 1, abs_tol=1e-5)
        assert 0 <= answer["confidence"] <= 1


def test_mass_is_added_on_request(models):
    _, (plain,) = decide(models, [request()])
    _, (found,) = decide(models, [request()], "--mass")
    for id, answer in found["answers"].items():
        assert 0 < answer.pop("mass") < 1
        assert answer == plain["answers"][id]


def test_confidence_is_the_named_formula():
    peak, closeness = replies.peak, replies.closeness
    assert math.isclose(peak([0.9, 0.1]), 0.8) and peak([1, 0, 0]) == 1
    assert peak([0.25] * 4) == 0 and math.isclose(peak([0.5, 0.25, 0.25]), 0.25)
    # decisions of 0.1, 0.7, 0.2: 1 - 0.3 / (2/3)
    assert math.isclose(closeness([0.1, 0.7, 0.2]), 0.55) and closeness([0, 0, 1]) == 1
    assert closeness([0.5, 0, 0.5]) == 0 and closeness([0.5, 0.5]) == 0


@given(st.lists(st.floats(0.001, 1), min_size=2, max_size=10))
def test_confidence_is_from_0_to_1(weights):
    p = [w / sum(weights) for w in weights]
    assert 0 <= replies.peak(p) <= 1 and 0 <= replies.closeness(p) <= 1


def test_state_can_be_json(models):
    value = {"mail": ["a", {"b": 1}], "caf\u00e9": None}
    as_text = '{"mail": ["a", {"b": 1}], "caf\u00e9": null}'
    _, (one, other) = decide(models, [request(state=value), request(state=as_text)])
    assert one == other


def test_instructions_and_descriptions_can_be_json(models):
    rule = {"if": "late", "then": 1}
    texts = json.dumps(rule)
    one = {"type": "noul", "instructions": rule, "criteria": {"true": rule}}
    other = {"type": "noul", "instructions": texts, "criteria": {"true": texts}}
    _, (a, b) = decide(models, [request({"x": one}), request({"x": other})])
    assert a == b


def test_choice_can_be_an_array(models):
    array, mapping = ["a", "b c"], {"a": None, "b c": ""}
    _, (a, b) = decide(models, [request({"x": {**WHO, "criteria": c}}) for c in (array, mapping)])
    assert a == b and list(a["answers"]["x"]["probabilities"]) == array


def test_ids_of_questions_are_hidden_from_the_model(models):
    ids = ("q", "the answer is nobody", "\n---\n", "", "\u2603")
    _, found = decide(models, [request({id: WHO}) for id in ids])
    assert [list(x["answers"]) for x in found] == [[id] for id in ids]
    assert len({json.dumps(x["answers"][id]) for id, x in zip(ids, found)}) == 1
    assert len({x["usage"]["input_tokens"] for x in found}) == 1


def test_id_is_repeated_and_model_is_ignored(models):
    lines = [request({"late": LATE}, id=id, model="jev-latest") for id in (7, "x", None)]
    _, found = decide(models, lines)
    assert [x.pop("id", None) for x in found] == [7, "x", None]
    assert found[0] == found[1] == found[2]


def test_empty_images_are_none(models):
    done, _ = decide(models, [request({"late": LATE}, images=[])])
    assert done.returncode == 0


# The bits.


def asked(questions, state=STATE):
    return requests.parse(json.dumps({"state": state, "questions": questions}).encode())


def bits(decider, several, monkeypatch):
    """The uncalibrated log probabilities of each answer, as hex, of Requests that ask alike."""
    seen = []
    evaluate = Classifier.evaluate
    with monkeypatch.context() as patch:
        patch.setattr(
            Classifier,
            "evaluate",
            lambda self, v: (seen.append([p.hex() for p in v.log_p]), evaluate(self, v)),
        )
        assert all("answers" in found for found in decider.answer(several))
    return seen


@pytest.mark.parametrize("arch", ["llama", "gemma3"])
def test_each_answer_has_the_bits_of_the_question_asked_alone(models, arch, monkeypatch):
    path = str(models / f"{arch}.gguf")
    states = [STATE, "short", "\u4e2d" * 30, STATE * 6]
    alone = [
        bits(Decider(Model(path)), [asked({id: question}, state)], monkeypatch)[0]
        for state in states
        for id, question in ALL.items()
    ]
    assert len({tuple(x) for x in alone}) > len(states)
    kept = Decider(Model(path))
    assert bits(kept, [asked(ALL, state) for state in states], monkeypatch) == alone
    # also after other questions, in another order, one by one
    turned = dict(reversed(ALL.items()))
    for n, state in enumerate(states):
        found = bits(kept, [asked(turned, state)], monkeypatch)
        assert found[::-1] == alone[4 * n : 4 * n + 4]


@pytest.mark.full
def test_bits_do_not_depend_on_threads_or_neighbours(models):
    lines = [request(state=f"{STATE} {i}" * (1 + i % 3)) for i in range(MAX_BATCH + 3)]
    one = decide(models, lines, "-j", "1")[0].stdout
    assert one == decide(models, lines, "-j", "3")[0].stdout
    single = b"".join(decide(models, [line])[0].stdout for line in lines[:3])
    assert one.startswith(single)


def test_tokens_of_a_state_are_counted_once(models):
    counts = {}
    for n in (1, 2, 4):
        questions = dict(list(ALL.items())[:n])
        counts[n] = decide(models, [request(questions)])[1][0]["usage"]["input_tokens"]
        longer = decide(models, [request(questions, STATE + " X")])[1][0]["usage"]["input_tokens"]
        assert longer - counts[n] in (1, 2)
    assert counts[1] < counts[2] < counts[4]


def test_long_state_is_cut_in_the_middle_and_says_so(models):
    done, (found, other) = decide(
        models, [request(state="word " * 5000), request(state="word " * 30)]
    )
    assert done.returncode == 0 and found["cut"] is True and "cut" not in other
    assert found["usage"]["input_tokens"] > 2048  # with all questions behind 2,048 of context


def test_a_cut_does_not_depend_on_what_was_asked_before(models):
    long, short = request({"late": LATE}, "word " * 5000), request()
    _, (fresh,) = decide(models, [long])
    _, found = decide(models, [request(state="word " * 5000), short, long])
    assert found[-1] == fresh


# The stream.


def test_answers_come_as_requests_arrive(models):
    with subprocess.Popen(
        [BIN / "decide", "-m", models / "llama.gguf"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ,
    ) as process:
        for i in range(3):
            process.stdin.write(json.dumps(request(id=i)).encode() + b"\n")
            process.stdin.flush()
            assert json.loads(process.stdout.readline())["id"] == i
        process.stdin.close()
        assert process.wait(60) == 0


def test_bad_requests_do_not_stop_the_others(models):
    lines = [
        json.dumps(request(id=1)),
        "nonsense",
        "",
        json.dumps(request({}, id=2)),
        json.dumps(request(id=3)),
    ]
    done, found = decide(models, "\n".join(lines).encode())
    assert done.returncode == 65 and done.stderr.count(b"\n") == 1
    assert b'3 of 5 requests could not be answered; their objects have "error"' in done.stderr
    assert [x.get("id") for x in found] == [1, None, None, 2, 3]
    assert ["error" in x for x in found] == [False, True, True, True, False]
    for x in found:
        if "error" in x:
            assert set(x["error"]) == {"code", "type", "message"} and "answers" not in x
            assert (x["error"]["code"], x["error"]["type"]) == (400, "invalid_request")


def test_no_requests_are_no_answers(models):
    done, found = decide(models, b"")
    assert (done.returncode, found, done.stderr) == (0, [], b"")


def test_line_that_is_too_long_has_a_code_of_its_own(models, tmp_path):
    with open(tmp_path / "in", "wb") as f:
        f.write(b'{"state": "')
        for _ in range(65):
            f.write(b"x" * (1 << 20))
        f.write(b'"}\n' + json.dumps(request(id=2)).encode())
    with open(tmp_path / "in", "rb") as f:
        done = run("decide", "-m", models / "llama.gguf", stdin=f)
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 65 and found[1]["id"] == 2 and "answers" in found[1]
    assert (found[0]["error"]["code"], found[0]["error"]["type"]) == (413, "request_too_large")


def test_file_stands_in_for_stdin(models, tmp_path):
    (tmp_path / "in").write_text(json.dumps(request()))
    done = run("decide", "-m", models / "llama.gguf", "-f", tmp_path / "in")
    assert done.stdout == decide(models, [request()])[0].stdout and done.returncode == 0


def test_is_a_command_of_sluice(models):
    line = json.dumps(request()).encode()
    env = {**os.environ, "MODEL": str(models / "llama.gguf")}
    done = run("sluice", "decide", input=line, env=env)
    assert done.stdout == decide(models, [request()])[0].stdout
    assert b"decide" in run("sluice").stdout


# What is refused.

OF = lambda **changes: {"questions": {"q": {**WHO, **changes}}}
HALF = "\ud800"
REFUSED = {
    "the request is not an object": [1],
    "state: is missing, or neither string": {"state": None},
    "state: is missing, or neither": {"state": 7},
    "state: is empty": {"state": " \n"},
    "state: has half of a surrogate pair": {"state": HALF},
    "state: is empty ": {"state": {}},
    "images: not supported": {"images": ["data:image/png;base64,AA"]},
    "id: is not a whole number or a string": {"id": [1]},
    "questions: is missing, or not an object of at least one": {"questions": None},
    "questions: is missing, or not an object": {"questions": [WHO]},
    "questions: more than 255": {"questions": {str(i): LATE for i in range(256)}},
    "questions.q: is not an object": {"questions": {"q": "Is it?"}},
    "questions.q: there is no predicate; use type, instructions, criteria": OF(predicate="x"),
    "questions.q.type: is none of choice, score, noul": OF(type="boolean"),
    "questions.q.type: is none of choice": OF(type=["choice"]),
    "questions.q.instructions: is missing": OF(instructions=None),
    "questions.q.instructions: is empty": OF(instructions=""),
    "questions.q.instructions: has half of a surrogate pair": OF(instructions=HALF),
    "questions.q.criteria: is not an object of options": OF(criteria=None),
    "questions.q.criteria: 1 options; give 2 to 255": OF(criteria={"a": None}),
    "questions.q.criteria: 256 options": OF(criteria=[f"o{i}" for i in range(256)]),
    "questions.q.criteria: the option a is given twice": OF(criteria=["a", "a"]),
    "questions.q.criteria: an option is not a string": OF(criteria=["a", 1]),
    "questions.q.criteria: the option  is empty": OF(criteria=["a", ""]),
    "questions.q.criteria: the option  a is empty, has space around it": OF(criteria=["a", " a"]),
    r"questions.q.criteria: the option 'a\nb' is empty": OF(criteria=["c", "a\nb"]),
    "has more than 256 bytes": OF(criteria=["c", "a" * 257]),
    r"questions.q.criteria.'\ud800': has half": OF(criteria={"c": None, HALF: None}),
    "questions.q.criteria.c: has half of a surrogate pair": OF(criteria={"c": HALF, "d": None}),
    "questions.q.criteria: is not an array of levels": OF(type="score"),
    "questions.q.criteria: 1 levels; give 2 to 10": OF(type="score", criteria=["a"]),
    "questions.q.criteria: 11 levels": OF(type="score", criteria=["a"] * 11),
    "questions.q.criteria: a level is empty": OF(type="score", criteria=["a", " "]),
    "questions.q.criteria: is not an object that describes true": OF(type="noul"),
    "questions.q.criteria: is not an object that": OF(type="noul", criteria=["true"]),
}


@pytest.mark.parametrize("message", REFUSED)
def test_bad_request_is_refused_by_field(message):
    given = REFUSED[message]
    if isinstance(given, dict):
        given = {**request(), **given}
    with pytest.raises(BadLine) as e:
        requests.parse(json.dumps(given).encode())
    assert message.strip() in str(e.value) and "\n" not in str(e.value)
    assert len(str(e.value)) < 300


@pytest.mark.parametrize(
    "line, message",
    [
        (b'{"state": "a", "state": "b"}', "state is given twice"),
        (b'{"state": "a", "questions": {"q": {"type": "noul", "type": "x"}}}', "type is given"),
        (b'{"state": NaN}', "NaN is not a number"),
        (b'{"state": "\xff"}', "line is not UTF-8"),
        (b"[" * 100000, "nested too deeply"),
        (b'{"state": ' + b"1" * 5000 + b"}", "more than 40 digits"),
        (b'{"state": ' + json.dumps(list(range(400000))).encode() + b"}", "more than 10000 values"),
        (b"{" + b",".join(b'"%d":0' % i for i in range(90000)) + b',"89999":0}', "given twice"),
        (None, "line is longer than"),
    ],
)
def test_bad_json_is_refused(line, message):
    with pytest.raises(BadLine, match=message):
        requests.parse(line)


def test_question_that_does_not_fit_is_refused_and_no_other(models):
    long = {"type": "noul", "instructions": "word " * 3000}
    done, found = decide(models, [request({"a": LATE, "b": long}), request({"a": LATE})])
    assert done.returncode == 65
    assert found[0]["error"]["message"].startswith("questions.b: prompt and answers take ")
    assert "answers" in found[1]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "instructions", "criteria", "true", "q", ""]),
            inner,
            max_size=3,
        )
    ),
    max_leaves=6,
)


@given(
    st.fixed_dictionaries(
        {
            "state": json_values,
            "questions": st.dictionaries(
                st.text(max_size=3),
                st.fixed_dictionaries(
                    {
                        "type": st.sampled_from(["choice", "score", "noul", "x"]),
                        "instructions": json_values,
                        "criteria": json_values,
                    }
                )
                | json_values,
                max_size=2,
            )
            | json_values,
        }
    )
)
def test_any_json_is_a_request_or_one_line_of_refusal(value):
    try:
        found = requests.parse(json.dumps(value).encode())
    except BadLine as e:
        assert str(e) and "\n" not in str(e)
        return
    assert found.state and found.questions
    for asked in found.questions.values():
        assert 2 <= len(asked.options) == len(asked.names) and asked.text


def test_unreadable_model_ends_with_one_line(models, tmp_path):
    for name, code in (("missing.gguf", 66), (ROOT / "README.md", 65)):
        done = run("decide", "-m", tmp_path / name, input=b"")
        assert done.returncode == code and done.stderr.count(b"\n") == 1


# Real models.


@pytest.mark.full
def test_real_models_answer_mails_and_short_messages():
    """A hundred states of tests/data/questions; all get a whole answer."""
    if not real_models.SMOLLM2.is_here():
        pytest.skip(f"{real_models.SMOLLM2.file} is not here: make real-models")
    texts = [
        json.loads(line)["text"]
        for name in ("urgent", "teams")
        for line in (ROOT / "tests" / "data" / "questions" / f"{name}.jsonl").open()
    ][:24]
    done, found = decide(
        real_models.DIRECTORY,
        [request(state=text) for text in texts],
        "--mass",
        model=real_models.SMOLLM2.file,
    )
    assert done.returncode == 0 and len(found) == len(texts)
    assert len({x["answers"]["late"]["noul"] for x in found}) > 20
    assert min(x["answers"]["late"]["mass"] for x in found) > 0.1
