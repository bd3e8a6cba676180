"""Linear heads: ridge regression against scikit-learn's numbers, leaving one out, the same bits."""

import os
import subprocess
import sys
from array import array

import numpy as np
import pytest
from conftest import ROOT

from sluice.kernels import ffi
from sluice.model.forward import Rows
from sluice.probability import fitting, heads

N, D = 12, 5
X = [[((7 * i + 3 * j * j + i * j) % 11) - 4 + 0.25 * j for j in range(D)] for i in range(N)]
LABELS = [0, 0, 1, 2, 1, 0, 0, 0, 1, 2, 1, 0]
# scikit-learn 1.9.1: StandardScaler on all, Ridge(alpha=0.3 * mean squared length) on the first 9
RIDGE = [
    [0.707793, 0.079127, 0.21308],
    [0.708689, 0.255001, 0.03631],
    [0.709584, 0.430874, -0.140459],
]


def packed(rows):
    return [array("f", row).tobytes() for row in rows]


@pytest.fixture
def problem():
    return heads.Problem(packed(X), LABELS, 3)


def test_scores_are_those_of_scikit_learn(problem):
    fit = problem._fit(range(9), 0.3)
    assert problem.scores(fit, [9, 10, 11]) == [pytest.approx(row, abs=2e-4) for row in RIDGE]


def test_head_gives_the_scores_of_the_fit(problem):
    fit = problem._fit(range(9), 0.3)
    head = problem.head(fit)
    for i, want in zip((9, 10, 11), RIDGE):
        x = Rows(ffi.new("float[]", X[i]), D)
        assert head.scores(x) == pytest.approx(want, abs=2e-4)


def test_leaving_one_out_is_a_fit_without_it(problem):
    """The closed form is right: its loss is that of N fits, each without one text."""
    of = list(range(N))
    fit = problem._fit(of, 0.3)
    rows = []
    for i in of:
        others = [j for j in of if j != i]
        # the same penalty, which is relative to the texts at hand
        spread = [problem._products[np.ix_(s, s)] for s in (of, others)]
        length = [np.trace(g) / len(g) - g.mean() for g in spread]
        rows += problem.scores(problem._fit(others, 0.3 * length[0] / length[1]), [i])
    loss = heads.log_loss(rows, LABELS, fit.scale, fit.bias)
    assert fit.loss == pytest.approx(loss, rel=1e-9)


def test_strength_is_the_one_that_leaves_out_best(problem):
    losses = [problem._fit(range(N), s).loss for s in heads.STRENGTHS]
    assert problem.fit(range(N)).loss == min(losses)


def test_constant_dimensions_do_no_harm():
    head = heads.Problem(packed([[*row, 7.0] for row in X]), LABELS, 3)
    fit = head._fit(range(9), 0.3)
    assert head.scores(fit, [9, 10, 11]) == [pytest.approx(row, abs=2e-4) for row in RIDGE]


PROGRAM = """
import hashlib, random
from array import array
from sluice.probability import heads
r = random.Random(1)
labels = [i % 2 for i in range(80)]
rows = [array("f", [r.gauss(0.2 * y, 1) for _ in range(200)]).tobytes() for y in labels]
problem = heads.Problem(rows, labels, 2)
fit = problem.fit(range(80))
head = problem.head(fit)
data = b"".join(w.tobytes() for w in head.weights) + repr((head.offset, fit.scale, fit.bias)).encode()
print(hashlib.sha256(data).hexdigest())
"""


def test_bits_do_not_depend_on_threads_and_instruction_sets():
    """numpy with other loops, BLAS with other kernels and threads, the reference kernels."""
    found = set()
    for env in (
        {},
        {"OPENBLAS_NUM_THREADS": "1"},
        {"OPENBLAS_CORETYPE": "Nehalem"},
        {"OPENBLAS_CORETYPE": "Haswell"},
        {"NPY_DISABLE_CPU_FEATURES": "AVX512F AVX512CD AVX512_SKX AVX2 FMA3"},
        {"SLUICE_ISA": "reference"},
    ):
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", PROGRAM],
            capture_output=True,
            env={**os.environ, "PYTHONPATH": str(ROOT / "lib"), **env},
        )
        assert done.returncode == 0, done.stderr
        found.add(done.stdout)
    assert len(found) == 1


def test_light_penalty_has_scipys_minimum():
    """scipy.optimize.minimize (BFGS) on the same objective."""
    p = [
        [0.7, 0.2, 0.1],
        [0.5, 0.3, 0.2],
        [0.2, 0.5, 0.3],
        [0.3, 0.3, 0.4],
        [0.1, 0.1, 0.8],
        [0.6, 0.3, 0.1],
        [0.25, 0.5, 0.25],
    ]
    rows, labels = np.log(p).tolist(), [0, 0, 1, 2, 2, 1, 1]
    want = {
        fitting.PENALTY: [1.01782, -0.126075, 0.154541, -0.028466],
        fitting.LIGHT: [1.862487, -0.519247, 0.436288, 0.082959],
    }
    for penalty, (scale, *bias) in want.items():
        found = fitting.fit(rows, labels, 1.0, [0.0] * 3, penalty)
        assert found[0] == pytest.approx(scale, abs=1e-5)
        assert found[1] == pytest.approx(bias, abs=1e-5)
