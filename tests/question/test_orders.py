"""`orders: N`: the average over orders of the listed answers."""

import math

import pytest
from classify_call import write_models

from sluice.classify.classifier import Classifier
from sluice.classify.panel import Panel
from sluice.faults import Error
from sluice.question import calibration, orders
from sluice.question.question import Question

ANSWERS = {"water": "rain, rivers", "fire": "heat, smoke", "air": None, "earth": "soil"}
TEXTS = [b"The pump broke.", b"It smells of smoke in here, and nobody knows why.", b"Dust"]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return str(write_models(tmp_path_factory.mktemp("models")) / "llama.gguf")


def tree(**changes):
    return {
        "type": "choice",
        "question": "Which element?",
        "answers": ANSWERS,
        "input": {"kind": "text", "head_ids": 200, "tail_ids": 50},
        "frame": "plain",
        **changes,
    }


def log_p(model, text, **changes):
    c = Classifier(Question(tree(**changes), "q.yaml"), model)
    return dict(zip(c.question.answers, c.ask(text).log_p))


def reordered(names):
    return {name: ANSWERS[name] for name in names}


@pytest.mark.parametrize("order", ["text-first", "question-first"])
@pytest.mark.parametrize("n", [2, 4])
def test_orders_are_the_mean_of_the_questions_with_shifted_lists(model, order, n):
    base = sorted(ANSWERS)
    for text in TEXTS:
        rows = []
        for i in range(n):
            k = i * len(base) // n
            names = [*base[k:], *base[:k]]
            rows.append(log_p(model, text, answers=reordered(names), order=order))
        means = {name: sum(row[name] for row in rows) / n for name in base}
        total = math.log(sum(map(math.exp, means.values())))
        found = log_p(model, text, orders=n, order=order)
        assert found == pytest.approx({k: v - total for k, v in means.items()}, abs=1e-12)


def test_order_in_the_file_does_not_matter(model):
    first = log_p(model, TEXTS[0], orders=4)
    for names in (sorted(ANSWERS), sorted(ANSWERS, reverse=True)):
        again = log_p(model, TEXTS[0], orders=4, answers=reordered(names))
        assert again == pytest.approx(first, abs=1e-12)
    one, other = (
        log_p(model, TEXTS[0], answers=reordered(names)) for names in (ANSWERS, sorted(ANSWERS))
    )
    assert one != pytest.approx(other, abs=1e-6)  # without orders it does


@pytest.mark.parametrize("order", ["text-first", "question-first"])
def test_batches_and_neighbours_leave_the_bits(model, order):
    c = Classifier(Question(tree(orders=3, order=order), "q.yaml"), model)
    singly = [Classifier(c.question, model).ask(text).log_p for text in TEXTS]
    assert [v.log_p for v in c.ask_many(TEXTS)] == singly
    c.prepare()
    assert [v.log_p for v in c.ask_many(TEXTS * 2)] == singly * 2


@pytest.mark.parametrize("order", ["text-first", "question-first"])
def test_several_questions_share_the_text_as_far_as_they_can(model, order):
    questions = [
        Question(tree(orders=3, order=order), "a.yaml"),
        Question(tree(orders=2, question="What else?"), "b.yaml"),
        Question(tree(question="Which now?"), "c.yaml"),
    ]
    alone = [[v.log_p for v in Classifier(q, model).ask_many(TEXTS)] for q in questions]
    first = Classifier(questions[0], model)
    panel = Panel([first, *(Classifier(q, "", model=first.model) for q in questions[1:])])
    panel.prepare()
    together = [[v.log_p for v in verdicts] for verdicts in panel.ask_many(TEXTS)]
    assert together == [list(row) for row in zip(*alone)]


def test_text_first_processes_the_text_once(model):
    """Counted in tokens that run through the layers."""
    from sluice.model import packed

    def n_tokens(n):
        c = Classifier(Question(tree(orders=n), "q.yaml"), model)
        c.prepare()
        texts, seen, passes = [c.tokenized(b"word " * 100)], [], packed.passes
        packed.passes = lambda parts, chunk: (
            seen.append(sum(len(p.tokens) for p in parts)) or passes(parts, chunk)
        )
        try:
            list(c.ask_many([b"word " * 100]))
        finally:
            packed.passes = passes
        (total,) = seen
        return total, len(texts[0].tokens) - c.n_known, len(c.prompt.after)

    (one, n_text, n_after), (four, *_) = n_tokens(1), n_tokens(4)
    assert one >= n_text + n_after
    assert four - one <= 3 * (one - n_text) + 8


def test_levels_are_asked_up_and_down(model):
    levels = {"type": "score", "levels": ["mild", "bad", "worst"], "orders": 2}
    base = {k: v for k, v in tree(**levels).items() if k != "answers"}
    q = Question(base, "q.yaml")
    lists = [
        next(text for kind, text in prompt if kind == "options") for prompt in orders.prompts(q)
    ]
    assert lists == ["- mild\n- bad\n- worst", "- worst\n- bad\n- mild"]


def test_question_digest_tells_orders_apart():
    digests = {
        calibration.digest(Question(tree(**changes), "q.yaml"))
        for changes in ({}, {"orders": 1}, {"orders": 2}, {"orders": 4})
    }
    assert len(digests) == 3


def test_why_leaves_out_spans_in_all_orders(model):
    from sluice.why import why

    c = Classifier(Question(tree(orders=4), "q.yaml"), model)
    lines = [b"The pump broke.\n", b"There is smoke.\n", b"Dust is in the air.\n"]
    found = why.explain(c, b"".join(lines))
    for i, v in enumerate(found.verdicts):
        rest = b"".join(line for j, line in enumerate(lines) if j != i)
        assert v.log_p == Classifier(c.question, model).ask(rest).log_p


BAD = {
    "orders: is not a number from 1": {"orders": 0},
    "orders: is not a number from 1 to": {"orders": True},
    "orders: is not a number": {"orders": "2"},
    "orders: is not a number from 1 to 64": {"orders": 65},
    "orders: 4 answers have 4 cyclic shifts": {"orders": 5},
    "orders: the prompt does not list the answers": {
        "type": "yesno",
        "answers": None,
        "orders": 2,
    },
    "orders: levels have two orders": {"type": "score", "levels": ["a", "b", "c"], "orders": 3},
}


@pytest.mark.parametrize("message", BAD)
def test_bad_orders_are_refused(message):
    changed = {k: v for k, v in tree(**BAD[message]).items()}
    if changed["type"] != "choice":
        changed.pop("answers")
    with pytest.raises(Error) as e:
        Question(changed, "q.yaml")
    assert e.value.code == 65 and str(e.value).startswith(f"q.yaml: {message}")


def test_equal_before_is_shared():
    assert orders.common([[1, 2, 3], [1, 2, 4], [1, 2]]) == 2
    assert orders.common([[1, 2]]) == 2
