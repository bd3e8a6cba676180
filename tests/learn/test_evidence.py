"""The evidence of a text's tokens: what counts, what does not, and what a hostile text can do."""

import random
from math import fsum, isclose

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.learn import evidence

BALANCED = [50, 50]


@st.composite
def tables(draw):
    """(counts, totals, of_sender) of tokens, 2 to 4 answers."""
    totals = draw(st.lists(st.integers(0, 200), min_size=2, max_size=4))
    rows = st.tuples(*(st.integers(0, n) for n in totals))
    counts = draw(st.lists(rows, max_size=30))
    senders = draw(st.lists(st.integers(0, 1), min_size=len(counts), max_size=len(counts)))
    return counts, totals, senders


def of(counts, totals, senders=None):
    return evidence.of(counts, totals, senders)[0]


@given(tables())
def test_t_is_the_sum_of_what_its_tokens_add_and_its_own_sum_is_0(table):
    counts, totals, senders = table
    t, shares = evidence.of(counts, totals, senders)
    assert len(t) == len(totals) and len(shares) == len(counts)
    for a, value in enumerate(t):
        assert isclose(value, fsum(row[a] for row in shares), abs_tol=1e-12)
    assert abs(fsum(t)) < 1e-9
    if len(totals) == 2:
        assert t[1] == -t[0]


@given(tables(), st.randoms(use_true_random=False))
def test_the_order_of_tokens_changes_no_bit(table, rng):
    counts, totals, senders = table
    order = list(range(len(counts)))
    rng.shuffle(order)
    other = of([counts[i] for i in order], totals, [senders[i] for i in order])
    assert other == of(counts, totals, senders)


@given(tables())
def test_answers_in_another_order_have_the_same_evidence(table):
    counts, totals, senders = table
    turned = of([row[::-1] for row in counts], totals[::-1], senders)
    assert turned[::-1] == pytest.approx(of(counts, totals, senders), abs=1e-12)


def test_a_token_speaks_for_the_answer_whose_texts_have_it_more_often():
    assert of([[30, 3]], BALANCED)[0] > 0 > of([[3, 30]], BALANCED)[0]
    # shares of texts, not numbers
    assert of([[30, 30]], [300, 40])[0] < 0


def test_texts_with_the_other_answer_that_have_a_token_weaken_it():
    said = [of([[20, n]], BALANCED)[0] for n in (0, 1, 5, 20)]
    assert said == sorted(said, reverse=True) and len(set(said)) == 4 and said[-1] == 0


def test_a_text_of_one_known_token_is_less_sure_than_one_of_many():
    assert of([[20, 0]], BALANCED)[0] < of([[20, 0]] * 5, BALANCED)[0]
    # and no more tokens than there are kinds of evidence can do it: t is a mean
    assert of([[20, 0]] * 500, BALANCED)[0] < 1.02 * of([[20, 0]] * 200, BALANCED)[0]


@pytest.mark.parametrize("words", [[0, 0], [25, 25], [1, 1]], ids=["unknown", "common", "rare"])
def test_100000_words_that_say_nothing_do_not_dilute_the_words_that_do(words):
    telling = [[0, 20]] * 10 + [[0, 9]] * 10
    assert of(telling + [words] * 100_000, BALANCED) == of(telling, BALANCED)


def test_100000_words_that_say_little_hardly_dilute_the_words_that_do():
    telling = [[0, 30]] * 40
    plain, padded = (of(telling + more, BALANCED)[0] for more in ([], [[26, 25]] * 100_000))
    assert padded < 0.3 * plain < 0  # it stays evidence for the second answer


def test_without_taught_texts_or_known_tokens_there_is_no_evidence():
    assert of([], BALANCED) == [0, 0]
    assert of([], [0, 0]) == [0, 0]
    assert of([[0, 0]] * 3, [0, 0]) == [0, 0]
    assert of([[0, 0, 0]] * 3, [5, 5, 5]) == [0, 0, 0]


def test_words_of_texts_with_one_answer_alone_say_nothing():
    assert of([[5, 0], [2, 0], [1, 0]], [5, 0]) == [0, 0]


def test_a_sender_says_something_after_texts_with_one_answer_alone():
    once, often = (of([[n, 0]] * 4, [n, 0], [1] * 4)[0] for n in (1, 12))
    assert 0 < once < often
    assert of([[12, 0]], [12, 0], [0]) == [0, 0]


def test_a_sender_of_texts_with_two_answers_says_nothing():
    assert of([[6, 6]], [6, 6], [1]) == [0, 0]


@given(st.integers(2, 4), st.integers(1, 12), st.randoms(use_true_random=False))
def test_a_taught_text_has_the_evidence_of_all_others(k, n, rng):
    texts = [np.array(sorted(rng.sample(range(40), rng.randint(0, 20)))) for _ in range(n)]
    labels = np.array([rng.randrange(k) for _ in range(n)])
    found = evidence.taught(texts, labels, k)
    assert found.shape == (n, k)
    for i in range(n):
        others = [j for j in range(n) if j != i]
        totals = [sum(labels[j] == a for j in others) for a in range(k)]
        counts = [
            [sum(labels[j] == a and token in texts[j] for j in others) for a in range(k)]
            for token in texts[i]
        ]
        senders = [int(token) % 2 for token in texts[i]]
        assert found[i] == pytest.approx(evidence.of(counts, totals, senders)[0], abs=1e-12)


@given(st.integers(2, 3), st.randoms(use_true_random=False))
def test_a_table_gives_other_texts_the_evidence_of_all_taught_ones(k, rng):
    texts = [np.array(sorted(rng.sample(range(40), 10))) for _ in range(8)]
    labels = np.array([rng.randrange(k) for _ in range(8)])
    asked = [np.array(sorted(rng.sample(range(60), rng.randint(0, 30)))) for _ in range(5)]
    found = evidence.Table(texts, labels, k).evidence(asked)
    totals = np.bincount(labels, minlength=k).tolist()
    for t, text in zip(found, asked):
        counts = [
            [sum(label == a and token in x for x, label in zip(texts, labels)) for a in range(k)]
            for token in text
        ]
        senders = [int(token) % 2 for token in text]
        assert t == pytest.approx(evidence.of(counts, totals, senders)[0], abs=1e-12)


def test_some_taught_texts_have_the_evidence_that_they_have_among_all():
    rng = random.Random(1)
    texts = [np.array(sorted(rng.sample(range(100), 30))) for _ in range(20)]
    labels = np.arange(20) % 2
    every = evidence.taught(texts, labels, 2)
    some = evidence.taught(texts, labels, 2, np.array([7, 3]))
    assert some.tolist() == every[[7, 3]].tolist()


def test_only_the_most_telling_tokens_count(monkeypatch):
    monkeypatch.setattr(evidence, "MAX_TELLING", 3)
    strong, weak = [[0, 40]] * 3, [[26, 24]] * 50
    assert of(weak + strong, BALANCED) == of(strong, BALANCED)
    texts = [np.arange(0, 100, 2), np.arange(0, 60, 2), np.arange(40, 200, 2)]
    labels = np.array([0, 1, 1])
    few = evidence.taught(texts, labels, 2)
    monkeypatch.setattr(evidence, "MAX_TELLING", 1000)
    assert few.tolist() != evidence.taught(texts, labels, 2).tolist()


@pytest.mark.parametrize("cells", [1, 50, 1 << 21])
def test_how_many_texts_are_weighed_at_once_changes_nothing(monkeypatch, cells):
    rng = random.Random(2)
    texts = [np.array(sorted(rng.sample(range(100), rng.randint(0, 30)))) for _ in range(30)]
    labels = np.array([rng.randrange(3) for _ in range(30)])
    every = evidence.taught(texts, labels, 3)
    monkeypatch.setattr(evidence, "MAX_CELLS", cells)
    assert evidence.taught(texts, labels, 3) == pytest.approx(every, abs=1e-12)


def test_texts_without_tokens_have_no_evidence():
    nothing = np.zeros(0, np.uint32)
    assert evidence.taught([nothing] * 3, np.array([0, 1, 1]), 2).tolist() == [[0, 0]] * 3
    assert evidence.taught([], np.zeros(0, int), 2).shape == (0, 2)
