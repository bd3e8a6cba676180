"""Figures: those worked by hand, those of scikit-learn, and weights that mean repeated texts."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn import metrics as reference

from sluice.evaluate.metrics import (
    LEAST_P,
    N_BINS,
    Figures,
    Outcome,
    reliability,
    roc,
)
from sluice.evaluate.plots import wilson

# Five texts, yes and no. P(yes), correct answer, answer given (2 is unsure).
BY_HAND = Outcome(
    np.array([[0.9, 0.1], [0.6, 0.4], [0.4, 0.6], [0.4, 0.6], [0.1, 0.9]]),
    np.array([0, 1, 0, 1, 1]),
    np.array([0, 2, 2, 1, 1]),
)


def figures(outcome, count=None):
    """{(name, answer): value}; float where there is a value, None for NaN."""
    f = Figures(outcome)
    values = f.at(np.ones(outcome.n) if count is None else np.asarray(count, float))
    return {key: None if np.isnan(x) else float(x) for key, x in zip(f.names, values)}


def test_figures_worked_by_hand():
    found = figures(BY_HAND)
    overall = {name: x for (name, answer), x in found.items() if answer is None}
    # pairs of a yes and a no: 0.9 is above three; 0.4 below one, beside one, above one
    assert overall.pop("auc") == pytest.approx((3 + 0 + 0.5 + 1) / 6)
    # most probable: yes, yes, no, no, no; right: 1st, 4th, 5th
    assert overall.pop("accuracy") == pytest.approx(3 / 5)
    assert overall.pop("brier") == pytest.approx((0.01 + 0.36 + 0.36 + 0.16 + 0.01) / 5)
    losses = -np.log([0.9, 0.4, 0.4, 0.6, 0.9])
    assert overall.pop("log_loss") == pytest.approx(losses.mean())
    # highest probabilities: 0.9 (two, both right) and 0.6 (three, one right), each in one bin
    assert overall.pop("ece") == pytest.approx(2 / 5 * 0.1 + 3 / 5 * (0.6 - 1 / 3))
    assert overall.pop("coverage") == pytest.approx(3 / 5)
    assert overall.pop("accuracy_answered") == 1.0
    assert not overall
    assert BY_HAND.confusion().tolist() == [[1, 0, 1], [0, 2, 1]]
    assert [found["precision", a] for a in (0, 1)] == [1, 1]
    assert [found["recall", a] for a in (0, 1)] == pytest.approx([1 / 2, 2 / 3])
    assert [found["f1", a] for a in (0, 1)] == pytest.approx([2 / 3, 4 / 5])


def test_what_has_no_texts_to_be_computed_from_is_undefined():
    p = np.array([[0.9, 0.1], [0.8, 0.2]])
    found = figures(Outcome(p, np.array([0, 0]), np.array([0, 2])))
    assert found["auc", None] is None
    assert (found["precision", 1], found["recall", 1], found["f1", 1]) == (None, None, None)
    assert (found["accuracy", None], found["coverage", None]) == (1.0, 0.5)
    found = figures(Outcome(p, np.array([0, 1]), np.array([2, 2])))
    assert found["accuracy_answered", None] is None and found["precision", 0] is None
    assert (found["recall", 0], found["f1", 0], found["coverage", None]) == (0, 0, 0)


def test_a_probability_of_zero_has_a_finite_loss():
    found = figures(Outcome(np.array([[1.0, 0.0]]), np.array([1]), np.array([0])))
    assert found["log_loss", None] == pytest.approx(-np.log(LEAST_P))
    assert found["brier", None] == 1.0 and found["ece", None] == 1.0


def test_the_answer_given_counts_even_if_another_level_is_more_probable():
    """As for a score, whose answer is the level next to the expected one."""
    p = np.array([[0.4, 0.3, 0.3], [0.4, 0.3, 0.3]])
    o = Outcome(p, np.array([1, 1]), np.array([1, 3]))
    found = figures(o)
    assert found["accuracy", None] == 0.5  # the second is unsure: its most probable answer counts
    assert found["ece", None] == pytest.approx((0.7 + 0.4) / 2)


@st.composite
def outcomes(draw, answers=st.integers(2, 5)):
    """Outcomes with ties, texts without an answer, and answers that no text has."""
    k, n = draw(answers), draw(st.integers(1, 40))
    weights = st.lists(st.integers(1, 9), min_size=k, max_size=k)
    p = np.array(draw(st.lists(weights, min_size=n, max_size=n)), float)
    ints = lambda top: np.array(draw(st.lists(st.integers(0, top), min_size=n, max_size=n)))
    return Outcome(p / p.sum(1, keepdims=True), ints(k - 1), ints(k))


@given(outcomes())
def test_figures_are_those_of_scikit_learn(o):
    found, k = figures(o), o.n_answers
    labels = list(range(k))
    assert found["accuracy", None] == pytest.approx(reference.accuracy_score(o.right, o.best))
    assert o.confusion()[:, :k].tolist() == [
        [int(((o.right == a) & (o.answered == b)).sum()) for b in labels] for a in labels
    ]
    for a in labels:
        of_a = (o.right == a, o.answered == a)
        for name, score in (
            ("precision", reference.precision_score),
            ("recall", reference.recall_score),
            ("f1", reference.f1_score),
        ):
            value = score(*of_a, zero_division=np.nan)
            assert found[name, a] == (None if np.isnan(value) else pytest.approx(value)), name
        if 0 < of_a[0].sum() < o.n:
            expected = reference.roc_auc_score(of_a[0], o.p[:, a])
            assert found["auc", a] == pytest.approx(expected)
            x, y = roc(o.p[:, a], of_a[0])
            rx, ry, _ = reference.roc_curve(of_a[0], o.p[:, a], drop_intermediate=False)
            assert x.tolist() == pytest.approx(rx.tolist())
            assert y.tolist() == pytest.approx(ry.tolist())
        elif k > 2 or a == 0:
            assert found["auc", a] is None
    loss = reference.log_loss(o.right, o.p, labels=labels)
    assert found["log_loss", None] == pytest.approx(loss)
    brier = np.mean([((o.p[i] - np.eye(k)[o.right[i]]) ** 2).sum() for i in range(o.n)])
    if k == 2:
        brier = reference.brier_score_loss(o.right == 0, o.p[:, 0])
    assert found["brier", None] == pytest.approx(brier)
    known = [found["auc", a] for a in labels if found["auc", a] is not None]
    if k > 2 and known:
        assert found["auc", None] == pytest.approx(np.mean(known))


@given(outcomes())
def test_the_calibration_error_is_that_of_a_loop_over_bins(o):
    top, error = o.p_best, 0.0
    for b in range(N_BINS):
        inside = [
            i
            for i in range(o.n)
            if b / N_BINS <= top[i] < (b + 1) / N_BINS or (b, top[i]) == (14, 1)
        ]
        if inside:
            gap = np.mean([o.is_right[i] for i in inside]) - np.mean([top[i] for i in inside])
            error += len(inside) / o.n * abs(gap)
    # a probability on the edge of a bin may fall to either side of it
    if not np.isclose(top * N_BINS, np.round(top * N_BINS)).any():
        assert figures(o)["ece", None] == pytest.approx(error)


@given(outcomes(), st.data())
def test_a_text_that_counts_twice_is_a_text_that_is_there_twice(o, data):
    count = data.draw(st.lists(st.integers(0, 3), min_size=o.n, max_size=o.n).filter(any))
    rows = np.repeat(np.arange(o.n), count)
    repeated = Outcome(o.p[rows], o.right[rows], o.answered[rows])
    expected = figures(repeated)
    for key, value in figures(o, count).items():
        assert value == (None if expected[key] is None else pytest.approx(expected[key])), key


def test_reliability_and_wilson_worked_by_hand():
    p, is_true = np.array([0.0, 0.05, 0.31, 0.39, 1.0]), np.array([0, 1, 1, 1, 0], bool)
    assert reliability(p, is_true, 10) == [
        (0.025, 0.5, 2),
        (pytest.approx(0.35), 1.0, 2),
        (1.0, 0.0, 1),
    ]
    assert wilson(0.5, 10) == pytest.approx((0.2366, 0.7634), abs=1e-4)
    assert wilson(0.0, 20) == pytest.approx((0, 0.1611), abs=1e-4)
