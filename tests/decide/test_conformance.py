"""decide and what others wrote of the same form: the schemas and requests of noulxp (the portable
standard of these tools), and the reader of answers of jev_tools, a client. Both are packages of
tests/requirements.txt; nothing of theirs is copied here.
"""

import json

import pytest
from conftest import run

from sluice.decide import requests

pytestmark = pytest.mark.usefixtures("home")

ASKED = {
    "state": "The lift is stuck again.",
    "questions": {
        "who": {
            "type": "choice",
            "instructions": "Who acts?",
            "criteria": {"janitor": "repairs", "nobody": "nothing to do"},
        },
        "bad": {"type": "score", "instructions": "How bad?", "criteria": ["mild", "bad", "worst"]},
        "late": {"type": "noul", "instructions": "Is it late?"},
    },
}
# what decide refuses of the standard's requests: a state without text, a question without
REFUSED = {"empty-state": "state: is empty", "empty-instructions": "instructions: is empty"}


def answered(models, several):
    lines = b"".join(json.dumps(x).encode() + b"\n" for x in several)
    done = run("decide", "-m", models / "llama.gguf", input=lines)
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture
def standard():
    """(schemas, cases) of noulxp."""
    schemas = pytest.importorskip("noulxp.schemas", reason="noulxp is not installed")
    conformance = pytest.importorskip("noulxp.conformance")
    return schemas, conformance.read_jsonl(conformance.DEFAULT_REQUESTS)


@pytest.mark.quick_cases(1)
def test_requests_of_the_standard_get_answers_in_its_form(models, standard):
    schemas, cases = standard
    assert len(cases) >= 50
    found = answered(models, [case["request"] for case in cases])
    assert len(found) == len(cases)
    for case, reply in zip(cases, found):
        refused = [REFUSED[tag] for tag in case["tags"] if tag in REFUSED]
        if refused:
            assert refused[0] in reply["error"]["message"]
            assert schemas.errors(reply, "error") == []
            continue
        assert schemas.errors(reply, "response") == [], case["id"]
        asked = requests.parse(json.dumps(case["request"]).encode()).questions
        assert list(reply["answers"]) == list(case["request"]["questions"]) == list(asked)
        for id, answer in reply["answers"].items():
            assert answer["type"] == case["request"]["questions"][id]["type"]
            if "probabilities" in answer:
                assert list(answer["probabilities"]) == asked[id].names


def test_confidence_is_the_standards(standard):
    rules = pytest.importorskip("noulxp.answers")
    from sluice.decide import replies

    for p in ([0.9, 0.1], [0.2, 0.5, 0.3], [0.25] * 4, [0, 0, 1], [0.1] * 10):
        assert abs(rules.confidence("typesafe", p) - replies.peak(p)) < 1e-12
        assert abs(rules.confidence("typesafe-ordinal", p) - replies.closeness(p)) < 1e-12


def test_what_the_standard_calls_a_request_is_one(standard):
    schemas, _ = standard
    assert schemas.errors(ASKED, "request") == []


def test_a_client_reads_the_answers(models):
    wire = pytest.importorskip("jevcore.wire", reason="jev_tools is not installed")
    q = pytest.importorskip("jevcore.questions")
    questions = {
        "who": q.Choice("Who acts?", ASKED["questions"]["who"]["criteria"]),
        "bad": q.Score("How bad?", ASKED["questions"]["bad"]["criteria"]),
        "late": q.Noul("Is it late?"),
    }
    body = wire.SYSTEMONE.body("any", ASKED["state"], questions)
    (reply,) = answered(models, [body])
    assert reply == answered(models, [ASKED])[0]  # the client asks in the same form
    answers, usage = wire.SYSTEMONE.parse(reply, questions)
    assert answers["who"].choice == reply["answers"]["who"]["choice"]
    assert answers["bad"].score == reply["answers"]["bad"]["score"]
    assert answers["bad"].legend == dict(enumerate(ASKED["questions"]["bad"]["criteria"]))
    assert answers["late"].probability == reply["answers"]["late"]["noul"]
    assert usage.input_tokens == reply["usage"]["input_tokens"] and usage.output_tokens == 0


def test_a_client_reads_the_error(models):
    wire = pytest.importorskip("jevcore.wire", reason="jev_tools is not installed")
    (reply,) = answered(models, [{**ASKED, "state": ""}])
    assert wire.SYSTEMONE.error_detail(reply) == "state: is empty"
