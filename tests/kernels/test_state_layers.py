"""Layers with a state: against NumPy in f64, and bit for bit over instruction sets, threads and
chunks.
"""

import numpy as np
import pytest
from conftest import sets_here
from kernel_call import Buffer

from sluice.kernels import lib

RNG = np.random.default_rng(7)


def runs(call):
    """The one result of `call`, a function of the lengths of chunks, on every set, with one and
    three threads, in chunks of 1, of 7, and all at once.
    """
    found = []
    try:
        for isa in sets_here():
            lib.isa_select(isa.encode())
            for threads in (1, 3):
                lib.threads_start(threads)
                found += [call(n) for n in (1, 7, 64)]
    finally:
        lib.isa_select(b"")
        lib.threads_start(1)
    assert all(
        a.tobytes() == b.tobytes()
        for result in found
        for a, b in zip(result, found[0], strict=True)
    )
    return found[0]


@pytest.mark.parametrize("n_tap", [2, 3, 4, 16])
@pytest.mark.parametrize("n, n_x", [(1, 1), (63, 70), (64, 64), (200, 333)])
@pytest.mark.parametrize("silu", [0, 1])
def test_convolution_is_over_the_rows_before_and_keeps_the_last(n, n_x, n_tap, silu):
    n_tok = 20
    x, w = (RNG.normal(size=s).astype(np.float32) for s in ((n_tok, n_x), (n, n_tap)))
    old = RNG.normal(size=(n_tap - 1, n)).astype(np.float32)

    def call(chunk):
        y, state = Buffer(n_tok * n), Buffer(old.size, values=old)
        rows, taps = Buffer(x.size, values=x), Buffer(w.size, values=w)
        for at in range(0, n_tok, chunk):
            args = (y.p() + at * n, rows.p() + at * n_x + n_x - n, taps.p(), state.p())
            lib.causal_conv(*args, min(chunk, n_tok - at), n, n_x, n_tap, silu)
        assert y.margins_untouched() and state.margins_untouched()
        return y.a.copy(), state.a.copy()

    y, state = runs(call)
    rows = np.concatenate([old, x[:, n_x - n :]]).astype(np.float64)
    want = sum(rows[j : j + n_tok] * w[:, j] for j in range(n_tap))
    want = want / (1 + np.exp(-want)) if silu else want
    assert np.abs(y.reshape(n_tok, n) - want).max() < 1e-5
    assert state.tobytes() == rows[-(n_tap - 1) :].astype(np.float32).tobytes()


@pytest.mark.parametrize("dim", [1, 8, 31, 32, 37, 64, 128])
@pytest.mark.parametrize("n_key, n_head", [(1, 1), (2, 2), (2, 6)])
def test_delta_net_is_the_gated_delta_rule_token_by_token(dim, n_key, n_head):
    n_tok = 20
    normal = lambda *shape: RNG.normal(size=shape).astype(np.float32)
    q, k, v = normal(n_tok, n_key, dim), normal(n_tok, n_key, dim), normal(n_tok, n_head, dim)
    k /= np.sqrt((k * k).sum(-1, keepdims=True))
    decay, beta = (RNG.uniform(size=(n_tok, n_head)).astype(np.float32) for _ in range(2))
    before = normal(n_head, dim, dim)

    def call(chunk):
        o, state = Buffer(v.size), Buffer(before.size, values=before)
        held = [Buffer(x.size, values=x) for x in (q, k, v, decay, beta)]
        for at in range(0, n_tok, chunk):
            rows = (b.p() + at * (b.a.size // n_tok) for b in (o, *held))
            lib.delta_net(*rows, state.p(), min(chunk, n_tok - at), n_key, n_head, dim)
        assert o.margins_untouched() and state.margins_untouched()
        return o.a.copy(), state.a.copy()

    o, state = runs(call)
    s, want = before.astype(np.float64), np.empty(v.shape)
    for t in range(n_tok):
        for h in range(n_head):
            key = k[t, h % n_key].astype(np.float64)
            s[h] *= decay[t, h]
            delta = beta[t, h] * (v[t, h] - key @ s[h])
            s[h] += np.outer(key, delta)
            want[t, h] = q[t, h % n_key] @ s[h]
    assert np.abs(o.reshape(v.shape) - want).max() < 2e-5 * max(1, np.abs(want).max())
    assert np.abs(state.reshape(s.shape) - s).max() < 1e-5 * max(1, np.abs(s).max())


def test_gates_of_a_delta_net_are_exact_and_show_what_is_not_finite():
    x = np.concatenate([np.linspace(-120, 120, 4001), [0, 3e38, -3e38, np.inf, -np.inf, np.nan]])
    x = x.astype(np.float32)
    n = x.size

    def call(_):
        decay, beta = Buffer(n), Buffer(n, values=x)
        held = [Buffer(n, values=v) for v in (x, np.full(n, -0.3), np.full(n, 0.25))]
        lib.delta_gates(decay.p(), beta.p(), *(b.p() for b in held), 1, n)
        assert decay.margins_untouched() and beta.margins_untouched()
        return decay.a.copy(), beta.a.copy()

    decay, beta = runs(call)
    with np.errstate(over="ignore", invalid="ignore"):
        exact = x.astype(np.float64)
        want = np.exp(-float(np.float32(0.3)) * np.logaddexp(0, exact + 0.25))
        assert np.abs(decay - want)[:-1].max() < 1e-7 and np.isnan(decay[-1])
        assert np.abs(beta - 1 / (1 + np.exp(-exact)))[:-1].max() < 1e-7 and np.isnan(beta[-1])


def test_sigmoid_gate_and_products_by_element():
    x, y = (RNG.normal(size=4099).astype(np.float32) * 9 for _ in range(2))

    def call(_):
        gated, product = Buffer(x.size, values=x), Buffer(x.size, values=x)
        lib.sigmoid_mul(gated.p(), Buffer(y.size, values=y).p(), x.size)
        lib.mul(product.p(), Buffer(y.size, values=y).p(), x.size)
        assert gated.margins_untouched() and product.margins_untouched()
        return gated.a.copy(), product.a.copy()

    gated, product = runs(call)
    assert np.abs(gated - x / (1 + np.exp(-y.astype(np.float64)))).max() < 1e-5
    assert product.tobytes() == (x * y).tobytes()
