"""Models whose blocks keep states: a verdict has the same bits alone, in a batch, behind a prompt from
the cache, in trees of labels and orders, and with spans left out, although no state can be cut back.
"""

import os

import pytest
from classify_call import ALIKE, TEXT, question
from tiny_model import write_model

from sluice.classify import classifier
from sluice.classify.classifier import Classifier
from sluice.classify.panel import Panel
from sluice.model import branches
from sluice.question.question import Question
from sluice.why import why

TEXTS = [
    b"The pump broke.",
    TEXT,
    b"Dust",
    b"It smells of smoke in here, and nobody knows why.",
] * 2
LINES = b"The meeting has moved.\nPlease bring the numbers!\n\nIs it today? Yes.\nThanks.\n"
CHOICE = {
    "type": "choice",
    "question": "Which element?",
    "answers": {"water": "rain, rivers", "fire": "heat, smoke", "air": None},
    "input": {"kind": "text", "head_ids": 200, "tail_ids": 50},
    "frame": "plain",
}


@pytest.fixture(scope="module", params=["lfm2", "qwen35"])
def model(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / f"{request.param}.gguf"
    write_model(str(path), arch=request.param, n_layer=4, n_vocab=420, n_ctx=2048, n_embd=64)
    return str(path)


QUESTIONS = {
    "plain": lambda: question(),
    "text alone": lambda: question(prompt=["input"], tokenisations="canonical"),
    "text last": lambda: question(prompt=[{"special": "<s>"}, {"text": "Is it? "}, "input"]),
    "tree": lambda: question(answers=ALIKE),
    "truncated": lambda: question(input={"kind": "text", "head_ids": 20, "tail_ids": 9}),
    "orders": lambda: Question({**CHOICE, "orders": 3, "order": "text-first"}, "q.yaml"),
    "orders first": lambda: Question({**CHOICE, "orders": 2, "order": "question-first"}, "q.yaml"),
}


@pytest.mark.parametrize("kind", QUESTIONS)
def test_batches_and_neighbours_leave_the_bits(model, kind):
    singly = [Classifier(QUESTIONS[kind](), model, 1).ask(text).log_p for text in TEXTS]
    c = Classifier(QUESTIONS[kind](), model, 2)
    assert [v.log_p for v in c.ask_many(TEXTS)] == singly
    c.prepare()
    assert [v.log_p for v in c.ask_many(TEXTS)] == singly
    assert [c.ask(text).log_p for text in TEXTS[::-1]] == singly[::-1]


def test_several_questions_share_a_text(model):
    questions = [
        Question({**CHOICE, "orders": 3, "order": "text-first"}, "a.yaml"),
        Question({**CHOICE, "question": "Which now?"}, "b.yaml"),
    ]
    alone = [[v.log_p for v in Classifier(q, model).ask_many(TEXTS)] for q in questions]
    first = Classifier(questions[0], model)
    panel = Panel([first, *(Classifier(q, "", model=first.model) for q in questions[1:])])
    panel.prepare()
    together = [[v.log_p for v in verdicts] for verdicts in panel.ask_many(TEXTS)]
    assert together == [list(row) for row in zip(*alone)]


@pytest.mark.parametrize("kind", ["plain", "tree", "text last"])
def test_prompt_from_the_cache_gives_the_same_bits(model, tmp_path, monkeypatch, kind):
    """Its snapshot has the states after the question's first part."""
    want = [Classifier(QUESTIONS[kind](), model).ask(text).log_p for text in TEXTS]
    monkeypatch.setattr(classifier, "MIN_CACHE_COST", 0)
    for state in ("stored", "found", "found"):
        c = Classifier(QUESTIONS[kind](), model, cache_dir=str(tmp_path))
        assert c.cache_state == state
        assert [v.log_p for v in c.ask_many(TEXTS)] == want
        assert [c.ask(text).log_p for text in TEXTS] == want
    assert len([name for name in os.listdir(tmp_path) if name.endswith(".kv")]) == 1


@pytest.mark.parametrize("kind", ["plain", "text alone", "tree", "orders"])
@pytest.mark.parametrize("max_bytes", [branches.MAX_BYTES, 1])
def test_texts_with_a_span_left_out_have_their_own_bits(model, kind, max_bytes, monkeypatch):
    """They begin within the whole text: where a copy is kept, or with fewer of them before that."""
    monkeypatch.setattr(branches, "MAX_BYTES", max_bytes)
    c = Classifier(QUESTIONS[kind](), model)
    w = why.explain(c, LINES, counterfactual=True)
    parts = w.spans.texts
    for i, v in enumerate(w.verdicts):
        left = b"".join(parts[:i] + parts[i + 1 :])
        assert v.log_p == Classifier(QUESTIONS[kind](), model).ask(left).log_p, i
    assert c.ask(LINES).log_p == w.verdict.log_p
