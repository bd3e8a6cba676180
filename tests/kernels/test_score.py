"""Rows of logits: log-softmax, divergence, and the form they are kept in."""

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from sluice.kernels import ffi, lib
from sluice.perplexity import evaluate


def score(logits, tokens, kept=None):
    logits = np.ascontiguousarray(logits, "<f4")
    out = ffi.new("logit_score[]", len(logits))
    lib.score_logits(
        out,
        ffi.from_buffer("float[]", logits),
        tokens,
        ffi.from_buffer("uint8_t[]", kept) if kept is not None else ffi.NULL,
        *logits.shape,
    )
    return [evaluate.Score(s.log_p, s.base_log_p, s.kl, s.top, s.base_top) for s in out]


def keep(logits):
    logits = np.ascontiguousarray(logits, "<f4")
    kept = np.full(len(logits) * lib.kept_row_bytes(logits.shape[1]), 0xA5, np.uint8)
    lib.keep_logits(
        ffi.from_buffer("uint8_t[]", kept), ffi.from_buffer("float[]", logits), *logits.shape
    )
    return kept


def log_softmax(x):
    x = x.astype("f8") - x.astype("f8").max(1, keepdims=True)
    return x - np.log(np.exp(x).sum(1, keepdims=True))


@given(st.integers(0, 2**32), st.integers(1, 70), st.floats(0.01, 300))
@settings(max_examples=60, deadline=None)
def test_log_softmax_and_divergence_equal_numpy(seed, n, size):
    rng = np.random.default_rng(seed)
    x, y = (rng.standard_normal((5, n)).astype("<f4") * np.float32(size) for _ in range(2))
    tokens, kept = rng.integers(0, n, 5).tolist(), keep(y)
    rows = kept.reshape(5, -1)
    steps = rows[:, 4:8].copy().view("<f4").astype("f8")
    meant = -steps * rows[:, 8 : 8 + 2 * n].copy().view("<u2")
    assert (rows[:, :4].copy().view("<i4").ravel() == y.argmax(1)).all() and (
        n % 2 == 0 or not rows[:, -6:-4].any()
    )
    assert lib.first_bad_kept(ffi.from_buffer("uint8_t[]", kept), 5, n) == -1
    assert np.abs(meant - (y.astype("f8") - y.max(1, keepdims=True))).max() <= steps.max() * 0.51
    q, p = log_softmax(x), log_softmax(meant)
    for i, s in enumerate(score(x, tokens, kept)):
        assert s.log_p == score(x, tokens)[i].log_p and math.isclose(
            s.log_p, q[i, tokens[i]], rel_tol=1e-13, abs_tol=1e-13
        )
        assert math.isclose(s.base_log_p, p[i, tokens[i]], rel_tol=1e-13, abs_tol=1e-13)
        assert math.isclose(
            s.kl, max(0, (np.exp(p[i]) * (p[i] - q[i])).sum()), rel_tol=1e-9, abs_tol=1e-12 * size
        )
        assert (s.top, s.base_top) == (x[i].argmax(), y[i].argmax())


def test_logits_far_apart_are_no_trouble():
    x = np.array([[3e38, -3e38, 0], [1e-40, 0, -1e-40], [5, 5, 5]], "<f4")
    found = score(x, [0, 0, 2], keep(x))
    assert (
        found[0].log_p == 0
        and found[0].kl < 1e-200
        and found[2].log_p == score(x[1:2], [1])[0].log_p
    )
    assert found[2].top == 0 and score(x[:1], [1])[0].log_p == float(
        np.float64(x[0, 1]) - np.float64(x[0, 0])
    )


@given(st.binary(min_size=44, max_size=44))
def test_any_kept_bits_are_safe(data):
    assert lib.first_bad_kept(ffi.from_buffer("uint8_t[]", data), 1, 15) == 0
    score(np.zeros((1, 15), "<f4"), [14], np.frombuffer(data, np.uint8).copy())


def test_score_detects_each_changed_bit_of_a_row():
    kept = keep(np.arange(21, dtype="<f4").reshape(3, 7))
    row_bytes = lib.kept_row_bytes(7)
    for i in range(8 * len(kept)):
        kept[i // 8] ^= 1 << i % 8
        assert lib.first_bad_kept(ffi.from_buffer("uint8_t[]", kept), 3, 7) == i // 8 // row_bytes
        kept[i // 8] ^= 1 << i % 8
