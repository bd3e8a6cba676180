"""The threshold for a stated risk: the bound, the cuts, and that it holds."""

import random
from math import comb

import pytest

from sluice.probability import risk


@pytest.mark.parametrize(
    ("most", "n"), [(0.05, (59, 93, 124)), (0.02, (149, 236, 313)), (0.01, (299, 473, 628))]
)
def test_number_of_labels_needed(most, n):
    """The table of Clopper and Pearson at 95 %, for 0, 1 and 2 errors; scipy's beta.ppf agrees."""
    assert tuple(risk.needed(most, e) for e in range(3)) == n


def test_bound_without_an_error_by_hand():
    """0.95^58 = 0.0510 and 0.95^59 = 0.0485: 59 texts without an error are the first below 0.05."""
    assert not risk.holds(58, 0, 0.05) and risk.holds(59, 0, 0.05)
    assert not risk.holds(0, 0, 0.05)


@pytest.mark.parametrize("most", [0.01, 0.05, 0.137, 0.5])
def test_bound_is_the_binomial_tail(most):
    for n in (1, 7, 60, 200):
        for e in range(0, min(n, 30) + 1):
            tail = sum(comb(n, i) * most**i * (1 - most) ** (n - i) for i in range(e + 1))
            assert risk.holds(n, e, most) == (tail <= 0.05 and e < n * most), (n, e, tail)


def test_many_labels_take_no_time():
    assert risk.holds(20_000, 170, 0.01) and not risk.holds(20_000, 190, 0.01)


def test_cuts_are_fixed_by_the_number_of_labels():
    assert risk.sizes(58, 59) == []
    assert risk.sizes(59, 59) == [59]
    assert risk.sizes(61, 59) == [59, 60, 61]
    found = risk.sizes(1000, 59)
    assert (found[0], found[-1], len(found)) == (200, 1000, risk.N_CUTS)


def test_cut_accepts_the_surest_until_errors_are_too_many():
    p = [1 - i / 1000 for i in range(400)]
    right = [i < 200 for i in range(400)]
    cut = risk.find(p, right, 0.05)
    assert 180 <= cut.n_accepted < 230 and cut.threshold == p[cut.n_accepted - 1]
    assert cut.n_errors == max(0, cut.n_accepted - 200)
    assert risk.holds(cut.n_accepted, cut.n_errors, 0.05)


def test_texts_of_the_same_probability_are_accepted_together():
    cut = risk.find([0.9] * 100 + [0.5] * 100, [True] * 100 + [False] * 100, 0.05)
    assert (cut.threshold, cut.n_accepted, cut.n_errors) == (0.9, 100, 0)


def test_there_is_no_cut_if_the_surest_are_wrong():
    p = [1 - i / 1000 for i in range(100)]
    assert risk.find(p, [i != 5 for i in range(100)], 0.05) is None
    assert risk.find(p[:58], [True] * 58, 0.05) is None


def test_risk_is_kept_in_19_of_20_samples():
    """Texts whose error falls with p, so that the true error above a threshold is known: in at most
    5 % of samples, and a little for chance, is it above the risk.
    """
    error_at = lambda p: 0.5 * (1 - p) ** 2
    true_error = lambda t: (1 - t) ** 2 / 6  # mean over p uniform in [t, 1]
    n_broken = n_found = 0
    for seed in range(400):
        r = random.Random(seed)
        p = [r.random() for _ in range(300)]
        right = [r.random() >= error_at(x) for x in p]
        cut = risk.find(p, right, 0.05)
        if cut:
            n_found += 1
            n_broken += true_error(cut.threshold) > 0.05
    assert n_found > 200
    assert n_broken <= 0.05 * 400 + 9  # two standard deviations
