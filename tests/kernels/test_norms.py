"""Norms, rotations, gates, caps and biases: every instruction set gives the bits of reference.c,
and what the formula says.
"""

import numpy as np
import pytest
from kernel_call import Buffer, both

from sluice.kernels import ffi, lib

pytestmark = pytest.mark.usefixtures("best_set")


@pytest.mark.parametrize("n", [1, 5, 16, 31, 64, 172, 1152])
def test_rmsnorm_equals_reference(n):
    rng = np.random.default_rng(n)
    x, w = rng.normal(size=(5, n)).astype(np.float32), rng.normal(size=n).astype(np.float32)

    def call():
        y = Buffer(5 * n)
        lib.rmsnorm(y.p(), Buffer(5 * n, values=x).p(), Buffer(n, values=w).p(), 5, n, 1e-5)
        assert y.margins_untouched()
        return y.a

    exact = x * w / np.sqrt((x.astype(np.float64) ** 2).mean(1, keepdims=True) + 1e-5)
    assert np.allclose(both(call).reshape(5, n), exact, rtol=2e-6)


@pytest.mark.parametrize("half", [0, 1])
def test_rope_equals_reference_and_rotates(half):
    rng, n_tok, n_head, dim, n_pair, pos = np.random.default_rng(5), 7, 3, 24, 10, 1000
    x = rng.normal(size=(n_tok, n_head, dim)).astype(np.float32)
    freq, cs = ffi.new("double[]", n_pair), Buffer(n_tok * n_pair * 2)
    lib.rope_freq(freq, ffi.NULL, n_pair, 10000.0, 1.0)
    lib.rope_angles(cs.p(), freq, pos, n_tok, n_pair, 1.0)

    def call():
        y = Buffer(x.size, values=x)
        lib.rope(y.p(), cs.p(), n_tok, n_head, dim, n_pair, half)
        assert y.margins_untouched()
        return y.a

    angle = (pos + np.arange(n_tok))[:, None, None] * 10000.0 ** (-np.arange(n_pair) / n_pair)
    at = (
        (np.arange(n_pair), np.arange(n_pair) + n_pair)
        if half
        else (2 * np.arange(n_pair), 2 * np.arange(n_pair) + 1)
    )
    exact = x.astype(np.float64)
    u, v = exact[..., at[0]].copy(), exact[..., at[1]].copy()
    exact[..., at[0]], exact[..., at[1]] = (
        u * np.cos(angle) - v * np.sin(angle),
        u * np.sin(angle) + v * np.cos(angle),
    )
    y = both(call).reshape(x.shape)
    assert np.abs(y - exact).max() < 1e-6
    assert (y[..., 20:] == x[..., 20:]).all()


@pytest.mark.parametrize(
    "op,exact",
    [
        ("silu_mul", lambda x: x / (1 + np.exp(-x))),
        ("gelu_mul", lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))),
    ],
)
def test_gates_equal_reference(op, exact):
    with np.errstate(over="ignore", invalid="ignore"):
        x = np.concatenate(
            [np.linspace(-100, 100, 4001), [0, -0.0, 1e-30, -1e-30, 3e38, -3e38]]
        ).astype(np.float32)
        up = np.linspace(-2, 2, x.size).astype(np.float32)

        def call():
            y = Buffer(x.size, values=x)
            getattr(lib, op)(y.p(), Buffer(x.size, values=up).p(), x.size)
            assert y.margins_untouched()
            return y.a

        want = (exact(x.astype(np.float64)) * up).astype(np.float32)
        assert np.allclose(
            both(call), np.nan_to_num(want, posinf=np.inf, neginf=-np.inf), rtol=1e-6, atol=2e-7
        )


def test_soft_cap_equals_reference_and_shows_what_is_not_finite():
    x = np.concatenate(
        [
            np.linspace(-400, 400, 4001),
            [0, -0.0, 1e-30, -1e-30, 1e-3, 3e38, -3e38, np.inf, -np.inf, np.nan],
        ]
    ).astype(np.float32)
    for cap in (1e-3, 0.3, 30.0, 50.0, 1e6):

        def call():
            y = Buffer(x.size, values=x)
            lib.soft_cap(y.p(), x.size, cap)
            assert y.margins_untouched()
            return y.a

        found, cap = both(call), float(np.float32(cap))
        want = cap * np.tanh(x.astype(np.float64) / cap)
        assert np.isnan(found[-3:]).all() and np.signbit(found[-9])
        # beyond, x / cap leaves f32, and the answer is NaN too
        good = np.abs(x.astype(np.float64)) < 1e38 * cap
        assert (
            np.abs(found[good] / np.where(want[good] == 0, 1, want[good]) - (want[good] != 0)).max()
            < 4e-7
        )


def test_add_bias_adds_to_every_row():
    rng = np.random.default_rng(2)
    x, b = rng.normal(size=(7, 33)).astype(np.float32), rng.normal(size=33).astype(np.float32)

    def call():
        y = Buffer(x.size, values=x)
        lib.add_bias(y.p(), Buffer(b.size, values=b).p(), 7, 33)
        assert y.margins_untouched()
        return y.a

    assert both(call).tobytes() == (x + b).tobytes()


def test_scale_multiplies_every_element():
    x = np.random.default_rng(3).normal(size=2**17 + 5).astype(np.float32)

    def call():
        y = Buffer(x.size, values=x)
        lib.scale(y.p(), x.size, 0.22)
        assert y.margins_untouched()
        return y.a

    assert both(call).tobytes() == (x * np.float32(0.22)).tobytes()


def test_scale_each_multiplies_every_row_by_its_factor():
    rng = np.random.default_rng(4)
    x, b = rng.normal(size=(70, 333)).astype(np.float32), rng.normal(size=70).astype(np.float32)

    def call():
        y = Buffer(x.size, values=x)
        lib.scale_each(y.p(), Buffer(b.size, values=b).p(), 70, 333)
        assert y.margins_untouched()
        return y.a

    assert both(call).tobytes() == (x * b[:, None]).tobytes()


def test_take_columns_copies_a_part_of_each_row():
    x = np.random.default_rng(5).normal(size=(70, 96)).astype(np.float32)
    source = Buffer(x.size, values=x)
    for begin, n in ((0, 96), (0, 1), (32, 32), (95, 1)):

        def call(begin=begin, n=n):
            y = Buffer(70 * n, values=np.zeros((70, n), np.float32))
            lib.take_columns(y.p(), source.p() + begin, 70, n, 96)
            assert y.margins_untouched()
            return y.a

        assert both(call).tobytes() == x[:, begin : begin + n].tobytes()


def test_yarn_frequencies_equal_the_paper():
    for base, factor, n_ctx, fast, slow in (
        (10000.0, 4.0, 4096, 32.0, 1.0),
        (1e6, 4.0, 32768, 32.0, 1.0),
        (500.0, 2.5, 64, 8.0, 2.0),
        (10000.0, 8.0, 1 << 24, 1.0, 1.0),
        (1.001, 3.0, 1, 32.0, 1.0),
    ):
        n_pair = 32
        freq = ffi.new("double[]", n_pair)
        lib.rope_freq_yarn(freq, n_pair, base, factor, n_ctx, fast, slow)
        border = [
            np.clip(n_pair * np.log(n_ctx / (turns * 2 * np.pi)) / np.log(base), 0, 2 * n_pair - 1)
            for turns in (fast, slow)
        ]
        low, high = np.floor(border[0]), np.ceil(border[1])
        share = np.clip((np.arange(n_pair) - low) / (high - low if high > low else 0.001), 0, 1)
        plain = base ** (-np.arange(n_pair) / n_pair)
        assert np.allclose(list(freq), plain / factor * share + plain * (1 - share), rtol=1e-14)


@pytest.mark.parametrize("n", [1, 255, 256, 257, 1000])
def test_first_nonfinite_finds_each_place(n):
    x = Buffer(n, values=np.full(n, 3e38))
    assert lib.first_nonfinite(x.p(), n) == -1
    for at in range(n - 1, -1, -1):
        x.a[at] = (np.nan, np.inf, -np.inf)[at % 3]
        assert lib.first_nonfinite(x.p(), n) == at


def test_first_nonfinite_finds_the_first():
    x = Buffer(100, values=np.zeros(100))
    assert lib.first_nonfinite(x.p(), 100) == -1
    x.a[70], x.a[41] = np.nan, -np.inf
    assert lib.first_nonfinite(x.p(), 100) == 41
