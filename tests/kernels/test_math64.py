"""exp, log, sin and cos in f64 against 200-bit arithmetic, and their bits against recorded ones."""

import hashlib
import math
import random
import struct
from decimal import Decimal, getcontext
from fractions import Fraction

import pytest

from sluice.kernels import ffi, lib

getcontext().prec = 60
ULP_BUDGET = 1.0


def sincos(x):
    out = ffi.new("double[2]")
    lib.sluice_sincos(out, out + 1, x)
    return out[0], out[1]


def error_ulp(got, exact):
    """|got - exact| in units of the last place of `exact` (a Fraction)."""
    return abs(Fraction(got) - exact) / Fraction(math.ulp(float(exact)))


def pi():
    """By Machin 1706: pi = 16 atan(1/5) - 4 atan(1/239)."""

    def atan_of_inverse(n):
        term = total = Fraction(1, n)
        k = 1
        while abs(term) > Fraction(1, 10**90):
            term, k = -term / (n * n), k + 2
            total += term / k
        return total

    return 4 * (4 * atan_of_inverse(5) - atan_of_inverse(239))


HALF_PI = Fraction(int(pi() * 10**85), 2 * 10**85)


def series(x, first):
    """x^first/first! - x^(first+2)/(first+2)! + ...: sin for first 1, cos for first 0."""
    x = Fraction(int(x * 10**60), 10**60)  # keeps the numbers short; |x| <= pi/4
    term = total = x if first else Fraction(1)
    k = first
    while abs(term) > Fraction(1, 10**45):
        term = -term * x * x / ((k + 1) * (k + 2))
        term = Fraction(int(term * 10**60), 10**60)
        k += 2
        total += term
    return total


def exact_sincos(x):
    k = round(Fraction(x) / HALF_PI)
    r = Fraction(x) - k * HALF_PI
    s, c = series(r, 1), series(r, 0)
    return [(s, c), (c, -s), (-s, -c), (-c, s)][k % 4]


def samples(seed, n, make):
    rng = random.Random(seed)
    return [make(rng) for _ in range(n)]


def test_exp_error_is_below_budget():
    xs = samples(1, 1500, lambda r: r.uniform(-708, 709)) + samples(
        2, 1500, lambda r: r.uniform(-2, 2)
    )
    xs += samples(3, 500, lambda r: r.choice([-1, 1]) * 2 ** r.uniform(-60, 9))
    xs += [0.0, -0.0, 709.78, -708.39, math.log(2) / 2, -math.log(2) / 2, 5e-324]
    worst = max(error_ulp(lib.sluice_exp(x), Fraction(Decimal(x).exp())) for x in xs)
    assert worst < ULP_BUDGET


def test_exp_of_subnormal_results_is_within_one_step():
    for x in samples(4, 300, lambda r: r.uniform(-745.13, -708.4)):
        # rounded twice there
        assert error_ulp(lib.sluice_exp(x), Fraction(Decimal(x).exp())) <= 1.5


def test_log_error_is_below_budget():
    xs = samples(5, 1500, lambda r: 2 ** r.uniform(-1074, 1023)) + samples(
        6, 1500, lambda r: r.uniform(0.4, 2.5)
    )
    xs += samples(7, 500, lambda r: 1 + r.choice([-1, 1]) * 2 ** r.uniform(-52, -1))
    xs += [5e-324, 2.2250738585072014e-308, 1.7976931348623157e308, math.sqrt(0.5), math.sqrt(2)]
    worst = max(error_ulp(lib.sluice_log(x), Fraction(Decimal(x).ln())) for x in xs if x != 1)
    assert worst < ULP_BUDGET and lib.sluice_log(1.0) == 0


@pytest.mark.full
def test_sincos_error_is_below_budget():
    xs = samples(8, 600, lambda r: r.uniform(-(2**23), 2**23)) + samples(
        9, 600, lambda r: r.uniform(-4, 4)
    )
    xs += samples(10, 400, lambda r: float(r.randrange(1 << 17)))
    # as near to a zero as doubles come
    xs += samples(11, 200, lambda r: r.randrange(1, 5340353) * math.pi / 2)
    xs += samples(12, 100, lambda r: 2 ** r.uniform(-40, 0))
    worst = 0
    for x in xs:
        worst = max(worst, *(error_ulp(g, e) for g, e in zip(sincos(x), exact_sincos(x))))
    assert worst < ULP_BUDGET


@pytest.mark.parametrize(
    "x, y",
    [
        (0.0, 1.0),
        (-0.0, 1.0),
        (math.inf, math.inf),
        (-math.inf, 0.0),
        (710.0, math.inf),
        (-746.0, 0.0),
        (709.782712893384, 1.7976931348622732e308),
        (-745.13, 5e-324),
    ],
)
def test_exp_at_its_ends(x, y):
    assert lib.sluice_exp(x) == y


@pytest.mark.parametrize(
    "x, y", [(1.0, 0.0), (0.0, -math.inf), (-0.0, -math.inf), (math.inf, math.inf)]
)
def test_log_at_its_ends(x, y):
    assert lib.sluice_log(x) == y


def test_math_functions_keep_nan():
    assert math.isnan(lib.sluice_exp(math.nan)) and math.isnan(lib.sluice_log(math.nan))
    assert math.isnan(lib.sluice_log(-1.0)) and math.isnan(lib.sluice_log(-math.inf))
    for x in (math.nan, math.inf, -math.inf, 2.0**23 + 1, -(2.0**23) - 1):
        assert all(map(math.isnan, sincos(x)))


def test_sincos_at_zero_and_symmetry():
    assert sincos(0.0) == (0.0, 1.0)
    for x in samples(13, 500, lambda r: r.uniform(0, 1e6)):
        (s, c), (minus_s, minus_c) = sincos(x), sincos(-x)
        assert (minus_s, minus_c) == (-s, c)


def test_bits_are_those_recorded():
    """A change of any bit changes the answers of every model: it must be meant."""
    h = hashlib.sha256()
    for x in samples(14, 20000, lambda r: r.uniform(-700, 700)):
        h.update(struct.pack("<4d", lib.sluice_exp(x), lib.sluice_log(abs(x)), *sincos(x * 1000)))
    assert h.hexdigest() == "71325584498645dd017b8eec65460ecb4ad1db30cb95d12c8d8227077eeda8d3"
