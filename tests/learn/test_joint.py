"""The joint fit of the model's log probabilities and the evidence of the user's tokens."""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluice.learn import joint

SCALE, BIAS = 1.2, [0.3, 0.0]


def rows(d, t):
    """(log_p, t) of two answers from log-odds and evidence of the first."""
    d, t = np.asarray(d, float), np.asarray(t, float)
    return np.stack((-np.logaddexp(0, -d), -np.logaddexp(0, d)), 1), np.stack((t, -t), 1)


def user(n, model, tokens, seed=1):
    """(log_p, t, labels) of n texts: log-odds and evidence are these times the truth, and noise."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 2, n)
    sign = 1.0 - 2 * labels
    return *rows(model * sign + 2 * rng.normal(size=n), tokens * sign + rng.normal(size=n)), labels


def fit(log_p, t, labels, scale=SCALE, bias=BIAS):
    return joint.fit(log_p, t, labels, scale, bias)


def log_odds(found, d, t):
    (log_p,), (e,) = rows([d], [t])
    z = joint.apply(found, log_p.tolist(), e.tolist())
    return z[0] - z[1]


def test_without_texts_it_is_the_calibration_of_the_question():
    nothing = np.zeros((0, 2))
    assert fit(nothing, nothing, []) == (SCALE, joint.TRUST[0], BIAS)


def test_a_model_that_knows_nothing_loses_its_weight_to_the_tokens():
    weak, strong = fit(*user(300, 0.0, 2.0)), fit(*user(300, 4.0, 0.2))
    assert weak.scale < 0.4 and weak.trust > 1.2
    assert strong.scale > 0.8 and strong.trust < 0.6


def test_trust_in_tokens_grows_with_the_texts_that_show_them_right():
    found = [fit(*user(n, 0.0, 3.0)).trust for n in (10, 40, 300)]
    assert found == sorted(found) and found[2] > 1.2 * found[0]


def test_a_threshold_at_the_wrong_place_moves():
    d = np.r_[np.full(20, 9.0), np.full(20, 4.0)]  # all are called the first answer
    labels = np.repeat([0, 1], 20)
    found = fit(*rows(d, np.zeros(40)), labels)
    assert log_odds(found, 9.0, 0.0) > 0 > log_odds(found, 4.0, 0.0)


@pytest.mark.parametrize("label", [0, 1])
@pytest.mark.parametrize("n", [5, 20, 100])
def test_texts_of_one_answer_alone_flip_nothing(label, n):
    """They are called the other answer, all of them: the worst that a user can teach at once."""
    d = np.full(n, 2.0 if label else -2.0)
    found = fit(*rows(d, np.zeros(n)), np.full(n, label))
    sign = 1 if label else -1
    before = SCALE * 5 + sign * BIAS[0]
    assert sign * log_odds(found, 5.0 * sign, 0.0) > 0.3 * before
    if n == 5:
        assert abs(found.bias[0] - BIAS[0]) < 0.15 and abs(found.scale - SCALE) < 0.05


def test_texts_of_one_answer_alone_do_not_change_the_trust_much():
    t = np.full(50, 1.0)
    found = fit(*rows(np.zeros(50), t), np.zeros(50, int))
    assert found.trust == pytest.approx(joint.TRUST[0], abs=0.5)


def test_one_text_of_the_other_answer_does_not_move_the_bias_of_many():
    d = np.r_[np.full(30, 6.0), 5.0]
    labels = np.r_[np.zeros(30, int), 1]
    found = fit(*rows(d, np.zeros(31)), labels)
    assert abs(found.bias[0] - BIAS[0]) < 1


@settings(deadline=None)
@given(st.integers(1, 40), st.integers(2, 5), st.randoms(use_true_random=False))
def test_the_order_of_texts_changes_no_bit(n, k, rng):
    numbers = np.random.default_rng(rng.randrange(1 << 30))
    log_p, t = numbers.normal(size=(2, n, k)) * 3
    labels = numbers.integers(0, k, n)
    bias = [0.1 * a for a in range(k)]
    order = numbers.permutation(n)
    one = joint.fit(log_p, t, labels, SCALE, bias)
    assert one == joint.fit(log_p[order], t[order], labels[order], SCALE, bias)


@settings(deadline=None)
@given(st.integers(1, 40), st.integers(2, 5), st.randoms(use_true_random=False))
def test_the_fit_is_the_minimum_of_the_penalized_loss(n, k, rng):
    numbers = np.random.default_rng(rng.randrange(1 << 30))
    log_p, t = numbers.normal(size=(2, n, k)) * 3
    labels, bias = numbers.integers(0, k, n), numbers.normal(size=k)
    found = joint.fit(log_p, t, labels, SCALE, bias.tolist())
    totals = np.bincount(labels, minlength=k).tolist()
    mean, deviation = map(np.array, joint.prior(totals, SCALE, bias.tolist()))
    x = log_p - log_p.max(1, keepdims=True)

    def loss(w):
        z = w[0] * x + w[1] * t + w[2:]
        rest = (((w - mean) / deviation) ** 2).sum() / 2
        return (np.logaddexp.reduce(z, axis=1) - z[np.arange(n), labels]).sum() + rest

    w = np.array([found.scale, found.trust, *found.bias])
    least = loss(w)
    for i in range(len(w)):
        for step in (-1e-3, 1e-3):
            moved = w.copy()
            moved[i] += step
            if moved[0] >= 0 and moved[1] >= 0:
                assert loss(moved) > least - 1e-7


def test_a_scale_is_never_negative():
    found = fit(*user(500, -4.0, 1.0))
    assert found.scale == 0
    assert log_odds(found, 9.0, 1.0) == log_odds(found, -9.0, 1.0) > 0


def test_trust_in_tokens_is_never_negative():
    found = fit(*user(500, 1.0, -3.0))
    assert found.trust == 0 and found.scale > 0
    assert fit(*user(500, -4.0, -3.0))[:2] == (0, 0)


def test_the_same_texts_twice_need_not_be_told_apart():
    log_p, t, labels = user(40, 1.0, 1.0)
    twice = fit(np.r_[log_p, log_p], np.r_[t, t], np.r_[labels, labels])
    order = np.random.default_rng(3).permutation(80)
    both = (np.r_[x, x][order] for x in (log_p, t, labels))
    assert twice == fit(*both)


@pytest.mark.parametrize("size", [0.0, 1e-300, 1e4, 1e300])
def test_numbers_of_any_size_give_finite_numbers(size):
    log_p = np.array([[0.0, -size], [-size, 0.0], [-size, -size]])
    t = np.array([[0.5, -0.5], [-9.0, 9.0], [0.0, 0.0]])
    found = fit(log_p, t, np.array([1, 1, 0]))
    assert np.isfinite([found.scale, found.trust, *found.bias]).all() and found.scale >= 0
    assert np.isfinite(joint.apply(found, [0.0, -size], [0.0, 0.0])).all()


def test_255_answers_are_fitted():
    rng = random.Random(4)
    k = 255
    labels = np.array([rng.randrange(k) for _ in range(600)])
    log_p = np.random.default_rng(5).normal(size=(600, k))
    log_p[np.arange(600), labels] += 2
    found = joint.fit(log_p, np.zeros((600, k)), labels, 1.0, [0.0] * k)
    assert len(found.bias) == k and found.scale > 0.5


def test_an_answer_without_texts_does_not_keep_the_others_from_being_learned():
    (_, two), (_, three) = (joint.prior(n, 1.0, [0.0] * len(n)) for n in ([20, 20], [20, 20, 0]))
    assert three[:4] == two and three[4] == joint.FREE_BIAS[0]


def test_texts_of_one_answer_alone_and_none_have_the_same_prior():
    alone = joint.prior([40, 0], 1.0, BIAS)
    assert alone == joint.prior([0, 0], 1.0, BIAS) == joint.prior([0, 3], 1.0, BIAS)
    assert alone[1] == [joint.FREE_SCALE[0], joint.FREE_TRUST[0], *[joint.FREE_BIAS[0]] * 2]
