"""The bootstrap: the same draws everywhere, intervals that hold as often as they say, pairs."""

import numpy as np
import pytest
from scipy import stats

from sluice.evaluate import bootstrap, mcnemar
from sluice.evaluate.metrics import Figures, Outcome

FIRST = [1, 0, 2, 1, 1, 1, 3, 1, 0, 1, 1, 0]
SECOND = [3, 1, 0, 1, 2, 1, 1, 0, 0, 2, 0, 1]


def outcome(n, right_share, seed, k=2):
    """n texts, most probable answers that are right in this share, and honest probabilities."""
    random = np.random.default_rng(seed)
    right = random.integers(0, k, n)
    best = np.where(random.random(n) < right_share, right, (right + 1) % k)
    p = np.full((n, k), (1 - right_share) / (k - 1))
    p[np.arange(n), best] = right_share
    return Outcome(p, right, best)


def interval(o, name, samples=None):
    f = Figures(o)
    i = f.names.index((name, None))
    if samples is None:
        (samples,) = bootstrap.resampled([f], o.n)
    return bootstrap.interval(name, f.at(np.ones(o.n))[i], samples[:, i])


def test_draws_are_fixed():
    """They come from the raw stream of PCG64, so a new numpy or another machine has the same."""
    first, second = list(bootstrap.counts(12, 2))
    assert first.astype(int).tolist() == FIRST and second.astype(int).tolist() == SECOND
    again = [count.tolist() for count in bootstrap.counts(12, 2)]
    assert again == [first.tolist(), second.tolist()]


def test_each_text_is_drawn_as_often_as_any_other():
    total = sum(bootstrap.counts(50, 1000))
    assert total.sum() == 50 * 1000
    # chi-squared, 49 degrees of freedom: above 94.2 once in 10,000
    assert ((total - 1000) ** 2 / 1000).sum() < 94.2


def test_the_interval_of_a_share_is_about_the_normal_one():
    found = interval(outcome(2000, 0.8, 1), "accuracy")
    half = 1.96 * np.sqrt(found.value * (1 - found.value) / 2000)
    assert found.low == pytest.approx(found.value - half, abs=0.004)
    assert found.high == pytest.approx(found.value + half, abs=0.004)


@pytest.mark.full
@pytest.mark.parametrize("name, truth", [("accuracy", 0.8), ("ece", 0.0)])
def test_intervals_hold_the_truth_about_as_often_as_they_say(name, truth):
    """40 samples of a known classifier. That of the calibration error would hold none without the
    correction of its bias: a percentile of the resamples is never below what the bins add.
    """
    held = 0
    for seed in range(40):
        found = interval(outcome(200, 0.8, seed), name)
        held += found.low <= truth + 1e-9 and truth <= found.high
    assert held >= 34


def test_undefined_figures_and_resamples_have_no_interval():
    p = np.array([[0.9, 0.1]] * 3)
    found = interval(Outcome(p, np.zeros(3, int), np.zeros(3, int)), "auc")
    assert all(np.isnan(x) for x in found)
    # one text of the second answer: a third of the resamples lack it, and do not count
    p = np.array([[0.9, 0.1]] * 9 + [[0.2, 0.8]])
    found = interval(Outcome(p, np.r_[np.zeros(9, int), 1], np.zeros(10, int)), "auc")
    assert found == (1.0, 1.0, 1.0)


def test_a_difference_is_paired():
    """Two classifiers that err on the same texts differ by nothing, however uncertain each is."""
    a = outcome(60, 0.7, 3)
    b = Outcome(a.p.copy(), a.right.copy(), a.answered.copy())
    samples = bootstrap.resampled([Figures(a), Figures(b)], 60)
    assert (samples[0] == samples[1])[~np.isnan(samples[0])].all()
    found = bootstrap.interval("accuracy", 0.0, samples[1][:, 0] - samples[0][:, 0], True)
    assert found == (0, 0, 0)
    assert interval(a, "accuracy").high - interval(a, "accuracy").low > 0.1


@pytest.mark.parametrize(
    "a, b, p",
    [(0, 0, 1.0), (3, 3, 1.0), (0, 1, 1.0), (0, 5, 2 / 32), (1, 5, 2 * 7 / 64), (6, 0, 2 / 64)],
)
def test_mcnemar_worked_by_hand(a, b, p):
    assert mcnemar.p_value(a, b) == pytest.approx(p, rel=1e-12)
    assert mcnemar.p_value(b, a) == mcnemar.p_value(a, b)


@pytest.mark.parametrize("n", [1, 7, 60, 1000, 40001])
def test_mcnemar_is_the_binomial_test_of_scipy(n):
    for a in {0, 1, n // 7, n // 3, n // 2 - 1, n // 2, n // 2 + 1, n} & set(range(n + 1)):
        expected = stats.binomtest(a, n, 0.5).pvalue
        assert mcnemar.p_value(a, n - a) == pytest.approx(expected, rel=1e-8, abs=1e-300)
