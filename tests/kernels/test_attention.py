"""Attention and the cache it reads: every instruction set gives the bits of reference.c, and
nothing outside the window is touched.
"""

import subprocess
import sys

import numpy as np
import pytest
from gguf import GGMLQuantizationType
from gguf.quants import dequantize
from gguf_writer import F16, F32, Q8_0
from kernel_call import Buffer, both, for_each_set, need

from sluice.kernels import lib

pytestmark = pytest.mark.usefixtures("best_set")


@pytest.mark.parametrize("kv", [F32, F16])
@pytest.mark.parametrize(
    "n_tok,pos,n_head,n_head_kv,dim,window,cap",
    [
        (1, 0, 1, 1, 8, 0, 0),
        (1, 40, 4, 2, 24, 0, 2),
        (9, 0, 8, 2, 64, 0, 0),
        (17, 30, 6, 6, 20, 16, 50),
        (33, 5, 4, 1, 256, 7, 0),
        (2, 3, 600, 1, 8, 0, 1),
        (1, 300, 8, 1, 64, 0, 0),
        (3, 170, 9, 3, 96, 0, 0.5),
        (1, 99, 14, 2, 128, 40, 0),
        (64, 0, 1, 1, 1024, 8, 0),
        (70, 9, 2, 1, 320, 8, 3),
        (1, 500, 32, 4, 64, 0, 30),
        (5, 400, 8, 8, 34, 100, 0),
        # these three: converted once for many items
        (150, 37, 6, 3, 72, 40, 0),
        (49, 70, 16, 2, 64, 0, 0),
        (140, 5, 2, 2, 20, 0, 2),
    ],
)
def test_attention_equals_reference(kv, n_tok, pos, n_head, n_head_kv, dim, window, cap):
    rng, n_kv = np.random.default_rng(6), pos + n_tok
    q = rng.normal(size=(n_tok, n_head, dim)).astype(np.float32)
    k, v = (
        rng.normal(size=(n_kv, n_head_kv, dim)).astype("<f2" if kv == F16 else "<f4") for _ in "kv"
    )

    def call():
        o = Buffer(q.size)
        scores = Buffer(lib.attention_scores(n_tok, pos, n_head, n_head_kv))
        kb, vb = Buffer(k.size, k.dtype, k), Buffer(v.size, v.dtype, v)
        lib.attention(
            o.p(),
            Buffer(q.size, values=q).p(),
            kv,
            kb.p("void *"),
            vb.p("void *"),
            scores.p(),
            n_tok,
            pos,
            n_head,
            n_head_kv,
            dim,
            window,
            dim**-0.5,
            cap,
        )
        assert o.margins_untouched() and scores.margins_untouched()
        return o.a

    y = both(call).reshape(q.shape)
    for t in range(n_tok):
        first = max(0, pos + t - window + 1) if window else 0
        for h in range(n_head):
            g = h // (n_head // n_head_kv)
            s = k[first : pos + t + 1, g].astype(np.float64) @ q[t, h] * dim**-0.5
            s = cap * np.tanh(s / cap) if cap else s
            p = np.exp(s - s.max())
            error = np.abs(y[t, h] - p @ v[first : pos + t + 1, g] / p.sum()).max()
            # a score is one sum over dim: its error grows with it, to 5.7e-6 at 1,024
            assert error < 2e-6 * max(1, dim / 256)


@for_each_set
@pytest.mark.parametrize("kv", [F32, F16])
def test_attention_of_random_shapes_equals_reference(kv, isa):
    need(isa)
    rng = np.random.default_rng(14)
    for cap in 20 * (0.0, 2.0):
        n_head_kv, group, dim = (
            int(rng.integers(1, 4)),
            int(rng.choice([1, 2, 3, 5, 8, 13])),
            int(rng.choice([1, 7, 16, 40, 64, 80, 130])),
        )
        n_tok, pos, window = (
            int(rng.integers(1, 70)),
            int(rng.choice([0, 1, 50, 300])),
            int(rng.choice([0, 1, 9, 33])),
        )
        q, n_kv = rng.normal(size=(n_tok, n_head_kv * group, dim)), pos + n_tok
        k, v = (
            rng.normal(size=(n_kv, n_head_kv, dim)).astype("<f2" if kv == F16 else "<f4")
            for _ in "kv"
        )
        if pos == 50:  # what the window hides must not matter, nor what is beyond each token
            k[0, 0, 0], v[-1, 0, 0] = np.nan, np.inf
        out = []
        for set_ in ("reference", isa):
            lib.isa_select(set_.encode())
            o = Buffer(q.size)
            scores = Buffer(lib.attention_scores(n_tok, pos, n_head_kv * group, n_head_kv))
            lib.attention(
                o.p(),
                Buffer(q.size, values=q).p(),
                kv,
                Buffer(k.size, k.dtype, k).p("void *"),
                Buffer(v.size, v.dtype, v).p("void *"),
                scores.p(),
                n_tok,
                pos,
                n_head_kv * group,
                n_head_kv,
                dim,
                window,
                dim**-0.5,
                cap,
            )
            assert o.margins_untouched() and scores.margins_untouched()
            out.append(np.where(np.isnan(o.a), np.float32("nan"), o.a))
        assert out[0].tobytes() == out[1].tobytes(), (
            n_tok,
            pos,
            n_head_kv,
            group,
            dim,
            window,
            cap,
        )
        assert np.isfinite(out[0]).any()


def stored(x, kv):
    """f32 [n, n_head_kv, dim] as a cache of type kv holds it."""
    cache = Buffer(lib.type_row_bytes(kv, x.size), np.uint8)
    lib.cache_store(cache.p("void *"), kv, Buffer(x.size, values=x).p(), x.size)
    assert cache.margins_untouched()
    return cache


@pytest.mark.parametrize(
    "n_tok,pos,n_head,n_head_kv,dim,window",
    [
        (1, 0, 1, 1, 32, 0),
        (1, 170, 8, 1, 64, 0),
        (17, 30, 6, 6, 96, 16),
        (20, 5, 16, 2, 128, 0),
        (1, 300, 5, 1, 256, 0),
        (41, 60, 16, 2, 96, 50),
    ],
)
def test_attention_over_q8_0_equals_that_over_its_values(
    n_tok, pos, n_head, n_head_kv, dim, window
):
    rng = np.random.default_rng(19)
    q = rng.normal(size=n_tok * n_head * dim).astype(np.float32)
    planes = [
        stored(rng.normal(size=(pos + n_tok, n_head_kv, dim)).astype(np.float32), Q8_0)
        for _ in "kv"
    ]
    values = [dequantize(p.a, GGMLQuantizationType.Q8_0).astype(np.float32) for p in planes]

    def attend(kv, k, v):
        o, scores = Buffer(q.size), Buffer(lib.attention_scores(n_tok, pos, n_head, n_head_kv))
        lib.attention(
            o.p(),
            Buffer(q.size, values=q).p(),
            kv,
            k.p("void *"),
            v.p("void *"),
            scores.p(),
            n_tok,
            pos,
            n_head,
            n_head_kv,
            dim,
            window,
            dim**-0.5,
            0,
        )
        assert o.margins_untouched() and scores.margins_untouched()
        return o.a

    want = both(lambda: attend(F32, *(Buffer(x.size, values=x) for x in values)))
    assert both(lambda: attend(Q8_0, *planes)).tobytes() == want.tobytes()


def test_cache_store_q8_0_rounds_by_blocks_and_marks_what_is_too_large():
    x = np.random.default_rng(7).normal(size=(40, 32)).astype(np.float32)
    x[3] = 0
    # the last: below what a block tells from 0
    x[4, 5], x[5, 6], x[6, 7], x[7] = np.nan, np.inf, 127 * 65520, 1e-31
    found = both(lambda: stored(x, Q8_0).a).view(np.uint8).reshape(40, 34)
    y = dequantize(found, GGMLQuantizationType.Q8_0)
    assert np.isnan(y[4:7]).all() and (y[3] == 0).all() and (y[7] == 0).all()
    good = np.r_[0:4, 8:40]
    most = np.abs(x[good]).max(1, keepdims=True)
    assert (np.abs(y[good] - x[good]) <= most / 127 * 0.5 + most * 2.0**-11).all()
    d = found[good, :2].copy().view(np.float16)
    assert (d == (most / np.float32(127)).astype(np.float16)).all()


LAYERS = """
import random, sys
from array import array
from sluice.kernels import ffi, lib
window, n_tok, pos, n_head, n_head_kv, dim, kind = map(int, sys.argv[3:])
draw = random.Random(5)
def floats(n):
    return ffi.from_buffer("float[]", array("f", [draw.gauss(0, 1) for _ in range(n)]))
def stored(n):
    x, y = floats(n), ffi.new("uint8_t[]", 4 * n)
    lib.cache_store(y, kind, x, n)
    return y
q, n = floats(n_tok * n_head * dim), (pos + n_tok) * n_head_kv * dim
layers = [(stored(n), stored(n)) for _ in "ab"]  # one after the other: what was converted of one is nothing for the next
def attend():
    out = []
    for k, v in layers:
        o, scores = ffi.new("float[]", len(q)), ffi.new("float[]", lib.attention_scores(n_tok, pos, n_head, n_head_kv))
        lib.attention(o, q, kind, k, v, scores, n_tok, pos, n_head, n_head_kv, dim, window, 0.125, 0)
        out.append(bytes(ffi.buffer(o)))
    return out
assert lib.isa_select(b"reference") == 0
want = attend()
lib.threads_start(int(sys.argv[2]))
assert lib.isa_select(sys.argv[1].encode()) == 0
assert all(attend() == want for _ in range(3))
"""


@pytest.mark.quick_cases(2)
@for_each_set
@pytest.mark.parametrize("threads", ["1", "2", "3"])
@pytest.mark.parametrize("window", ["0", "60"])
@pytest.mark.parametrize(
    "shape",
    [
        (210, 45, 6, 2, 40, F32),
        (1, 300, 32, 4, 64, F16),
        (1, 333, 12, 6, 40, F16),
        (2, 270, 12, 6, 72, F16),
    ],
    ids=str,
)
def test_attention_of_two_layers_on_threads_equals_reference(isa, threads, window, shape):
    """A prompt's items, and few queries: whole heads for each thread where they go round, else
    parts of each step.
    """
    need(isa)
    done = subprocess.run(
        [sys.executable, "-c", LAYERS, isa, threads, window, *map(str, shape)],
        capture_output=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr.decode()


WINDOW = """
import ctypes, mmap, sys
from sluice.kernels import ffi, lib
n, row, dim, window = 4096, 2 * 64 * 2, 64, 100  # positions, bytes of an F16 row: 2 heads
map_ = mmap.mmap(-1, n * row)
libc, at = ctypes.CDLL(None, use_errno=True), ctypes.addressof(ctypes.c_char.from_buffer(map_))
hidden = (3000 - window + 1) * row // mmap.PAGESIZE * mmap.PAGESIZE
assert libc.mprotect(ctypes.c_void_p(at), ctypes.c_size_t(hidden), 0) == 0
kv, q, o = ffi.cast("void *", at), ffi.new("float[]", 300 * 4 * dim), ffi.new("float[]", 300 * 4 * dim)
lib.threads_start(int(sys.argv[2]))
assert lib.isa_select(sys.argv[1].encode()) == 0
for n_tok in 1, 9, 300:
    scores = ffi.new("float[]", lib.attention_scores(n_tok, 3000, 4, 2))
    lib.attention(o, q, 1, kv, kv, scores, n_tok, 3000, 4, 2, dim, window, 0.125, 0)
"""


@for_each_set
@pytest.mark.parametrize("threads", ["1", "3"])
def test_attention_does_not_touch_what_the_window_hides(isa, threads):
    need(isa)
    done = subprocess.run(
        [sys.executable, "-c", WINDOW, isa, threads], capture_output=True, timeout=60
    )
    assert done.returncode == 0, done.stderr.decode()


def test_cache_store_rounds_to_nearest_even_and_marks_what_is_too_large():
    x = np.random.default_rng(7).normal(size=1003).astype(np.float32) * 1e-3
    x[:8] = [65519.9, 65520, 1e-8, -2e-8, 0.1, np.inf, -1e9, -65504]
    x[-2:] = [70000, 65504]  # among the last ones, which no vector takes

    def call():
        y = Buffer(x.size, np.float16)
        lib.cache_store(y.p("void *"), F16, Buffer(x.size, values=x).p(), x.size)
        assert y.margins_untouched()
        return y.a.astype(np.float32)

    found, beyond = both(call), np.abs(x) >= 65520
    with np.errstate(over="ignore"):
        assert (
            found[~beyond].tobytes() == x[~beyond].astype(np.float16).astype(np.float32).tobytes()
        )
    assert np.isnan(found[beyond]).all() and beyond.sum() == 4
