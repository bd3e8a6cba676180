"""The fit of scale and biases to labelled texts, by which `classify --fit` calibrates."""

import random
import time

import pytest

from sluice.probability import fitting

SHIPPED = (1.5, [0.5, 0.0])


def margins(*pairs):
    """([rows], [labels]) of (margin, is yes) pairs."""
    rows = [
        [
            -fitting.lib.sluice_log(1 + fitting.lib.sluice_exp(-m)),
            -fitting.lib.sluice_log(1 + fitting.lib.sluice_exp(m)),
        ]
        for m, _ in pairs
    ]
    return rows, [0 if yes else 1 for _, yes in pairs]


def margin_after(fit, m):
    rows, _ = margins((m, True))
    return fit[0] * (rows[0][0] - rows[0][1]) + fit[1][0] - fit[1][1]


def test_nothing_learnt_is_as_shipped():
    assert fitting.fit([], [], *SHIPPED) == (1.5, [0.5, 0.0])


def test_one_shifts_little_and_a_hundred_a_lot():
    shift = [
        margin_after(
            fitting.fit(*margins(*[(1.0, False), (-3.0, False), (4.0, True)] * n), *SHIPPED), 1.0
        )
        - 2.0
        for n in (1, 10, 100)
    ]
    assert 0 > shift[0] > -0.7 and -1 > shift[1] > shift[2] and shift[2] < -2


def test_one_that_is_wrong_cannot_turn_what_is_certain():
    """A slip of the hand: the contrary of a margin of 12 nats."""
    for m, yes in ((8.0, False), (-8.0, True)):
        assert abs(margin_after(fitting.fit(*margins((m, yes)), *SHIPPED), m)) > 0.75 * abs(
            1.5 * m + 0.5
        )


def test_fit_is_the_minimum():
    """The gradient by differences is 0, and no point nearby is lower."""
    draw = random.Random(1)
    for n_answers in (2, 3, 7):
        rows = [[draw.gauss(-3, 2) for _ in range(n_answers)] for _ in range(40)]
        labels = [max(range(n_answers), key=lambda a: row[a] + draw.gauss(0, 2)) for row in rows]
        bias = [draw.gauss(0, 1) for _ in range(n_answers)]
        scale, found = fitting.fit(rows, labels, 0.8, bias)
        problem = fitting.Problem([fitting._clipped(row) for row in rows], labels, 0.8, bias)
        at = [scale, *found]
        value, gradient, hessian = problem.at(at)
        assert max(map(abs, gradient)) < 1e-3 * len(rows)
        for i in range(len(at)):
            up, down = ([x + (d if j == i else 0) for j, x in enumerate(at)] for d in (1e-4, -1e-4))
            assert problem.at(up)[0] >= value - 1e-9 <= problem.at(down)[0] + 1e-9
            for j, h in enumerate(hessian[i]):
                assert (problem.at(up)[1][j] - problem.at(down)[1][j]) / 2e-4 == pytest.approx(
                    h, abs=1e-3
                )


@pytest.mark.parametrize(
    "pairs",
    [
        [(9.0, False)] * 300,
        [(60.0, False), (-60.0, True)] * 200,
        [(0.0, True)] * 500,
        [(1e4, True)],
        [(1e4, False)] * 50,
    ],
)
def test_scale_stays_positive_and_all_is_finite(pairs):
    scale, bias = fitting.fit(
        [[0.0, -m] if m > 0 else [m, 0.0] for m, _ in pairs],
        [0 if yes else 1 for _, yes in pairs],
        *SHIPPED,
    )
    assert 0.3 <= scale <= 7.5 and all(abs(b) < 100 for b in bias)


@pytest.mark.full
def test_fit_of_as_many_as_are_kept_is_quick():
    draw, began = random.Random(2), time.process_time()
    for n_answers in (2, 64):
        n = min(10000, fitting.max_rows(n_answers))
        fitting.fit(
            [[draw.gauss(-3, 2) for _ in range(n_answers)] for _ in range(n)],
            [draw.randrange(n_answers) for _ in range(n)],
            1.0,
            [0.0] * n_answers,
        )
    # a bound, not a timing: without it an hour
    assert n == 946 and time.process_time() - began < 120
