"""--arithmetic fast: products in sums of bf16 give the bits of reference_fast.c, are as exact as
f32, and depend on nothing else.
"""

import hashlib
import itertools
import os
import subprocess
import sys

import numpy as np
import pytest
from kernel_call import Buffer, number_of, weights
from tiny_model import write_model

import sluice
from sluice.kernels import ffi, lib
from sluice.kvcache.snapshot import Snapshot
from sluice.model.forward import Forward
from sluice.model.model import Model

NAMES = ["F32", "F16", "BF16"]
SETS = [
    name
    for name in ("reference", "amx")
    if lib.isa_select(name.encode()) == 0 and lib.fast_supported()
]
lib.isa_select(b"")
U = 2.0**-24
pytestmark = pytest.mark.usefixtures("best_set")


def need_tiles():
    if "amx" not in SETS:
        pytest.skip("this processor has no AMX-BF16, nor AVX-512 VNNI to emulate it on")


def product(isa, name, raw, x, n_tok, rows, n, pick=None, fast=True):
    """y f32 [n_tok, rows] of the weights `raw` (bytes) and x f32 [n_tok * n], by an instruction
    set.
    """
    assert lib.isa_select(isa.encode()) == 0
    w, x = Buffer(len(raw), np.uint8, np.frombuffer(raw, np.uint8)), Buffer(n_tok * n, values=x)
    y, tokens = (
        Buffer(n_tok * (rows if pick is None else len(pick))),
        ffi.NULL if pick is None else ffi.new("int32_t[]", list(pick)),
    )
    terms = Buffer(lib.terms_size(n_tok, n), np.uint16)
    if fast:
        lib.split_bf16(terms.p("uint16_t *"), x.p(), n_tok, n)
    lib.matmuls(
        ffi.new(
            "product *",
            (
                y.p(),
                w.p("void *"),
                tokens,
                x.p(),
                ffi.NULL,
                ffi.NULL,
                ffi.NULL,
                ffi.NULL,
                number_of(name),
                n_tok,
                len(y.a) // n_tok,
                n,
                terms.p("uint16_t *") if fast else ffi.NULL,
            ),
        ),
        1,
    )
    assert y.margins_untouched() and terms.margins_untouched()
    return y.a.reshape(n_tok, -1).copy()


def values(name, raw, rows, n):
    """What the weights are, f64 [rows, n]."""
    if name == "BF16":
        return (
            (np.frombuffer(raw, "<u2").astype("<u4") << 16)
            .view("<f4")
            .astype(np.float64)
            .reshape(rows, n)
        )
    return np.frombuffer(raw, "<f2" if name == "F16" else "<f4").astype(np.float64).reshape(rows, n)


def same(a, b):
    """Bits, but which NaN is nobody's choice."""
    return (np.isnan(a) == np.isnan(b)).all() and a[~np.isnan(a)].tobytes() == b[
        ~np.isnan(b)
    ].tobytes()


def spread_weights(rng, name, rows, n, reach):
    """Weights of either sign whose exponents lie within +-reach, or all the type has, and zeros."""
    w = (
        rng.normal(size=(rows, n))
        * 2.0 ** rng.integers(-reach, reach + 1, (rows, n))
        * (rng.random((rows, n)) > 0.1)
    )
    with np.errstate(over="ignore"):
        if name == "F16":
            return np.clip(w, -65504, 65504).astype("<f2").tobytes()
        w = w.astype("<f4")
    return (w.view("<u4") >> 16).astype("<u2").tobytes() if name == "BF16" else w.tobytes()


# The tiles against the definition.

SHAPES = [
    (1, 1, 1),
    (1, 5, 31),
    (2, 33, 32),
    (3, 40, 77),
    (15, 31, 33),
    (16, 32, 256),
    (17, 64, 257),
    (31, 7, 512),
    (33, 70, 300),
    (48, 33, 1056),
    (257, 3, 64),
    (300, 34, 40),
    (1, 66, 2100),
    (65, 9, 2080),
]


@pytest.mark.tiles
@pytest.mark.parametrize("name", NAMES)
def test_tiles_equal_the_definition(name):
    need_tiles()
    rng = np.random.default_rng(1)
    for n_tok, rows, n in SHAPES + [
        tuple(map(int, rng.integers(1, (70, 90, 700)))) for _ in range(12)
    ]:
        raw, x = weights(rng, name, rows, n), rng.normal(size=n_tok * n)
        for pick in (None, rng.integers(0, rows, 5)):
            assert same(*(product(isa, name, raw, x, n_tok, rows, n, pick) for isa in SETS)), (
                n_tok,
                rows,
                n,
            )


@pytest.mark.tiles
@pytest.mark.parametrize("name", NAMES)
def test_tiles_equal_the_definition_at_any_magnitude(name):
    """Sums that vanish, overflow or are below the least normal number; terms that are; infinities
    and NaN; any bits for weights.
    """
    need_tiles()
    rng, n_tok, rows, n = np.random.default_rng(2), 19, 35, 300
    for reach in (0, 4, 70, 140):
        raw = spread_weights(rng, name, rows, n, reach)
        x = (
            rng.normal(size=n_tok * n) * 2.0 ** rng.integers(-reach, min(reach, 126) + 1, n_tok * n)
        ).astype(np.float32)
        assert same(*(product(isa, name, raw, x, n_tok, rows, n) for isa in SETS)), reach
        x *= np.float32(2.0 ** -(148 - reach))
        assert same(*(product(isa, name, raw, x, n_tok, rows, n) for isa in SETS)), reach
    raw = rng.integers(0, 256, len(raw), dtype=np.uint8).tobytes()
    x[rng.random(len(x)) < 0.001] = np.float32("inf")
    assert same(*(product(isa, name, raw, x, n_tok, rows, n) for isa in SETS))


@pytest.mark.tiles
@pytest.mark.parametrize("name", NAMES)
def test_tiles_equal_the_definition_about_the_least_normal_number(name):
    """All products are, and so the sums they pass through, and weights, too: what is below it
    counts as 0 at each step.
    """
    need_tiles()
    rng, n_tok, rows, n, low, seen = (
        np.random.default_rng(8),
        18,
        33,
        70,
        {"F16": (-12,)}.get(name, (-60, -129)),
        set(),
    )
    for low, above in itertools.product(low, range(-3, 12)):
        w = (rng.normal(size=(rows, n)) * 2.0**low).astype("<f2" if name == "F16" else "<f4")
        raw = (w.view("<u4") >> 16).astype("<u2").tobytes() if name == "BF16" else w.tobytes()
        x = (rng.normal(size=n_tok * n) * 2.0 ** (-126 - low + above)).astype(np.float32)
        y = [product(isa, name, raw, x, n_tok, rows, n) for isa in SETS]
        assert same(*y), (low, above)
        exact = (x.reshape(n_tok, n).astype(np.float64) @ values(name, raw, rows, n).T).astype(
            np.float32
        )
        seen |= {(bool(a), bool(b)) for a, b in zip(y[0].ravel(), exact.ravel())}
    assert {(False, True), (True, True)} <= seen


# What the arithmetic is.


@pytest.mark.parametrize("isa", SETS)
@pytest.mark.parametrize("name", NAMES)
def test_fast_product_error_is_within_its_bound_and_that_of_f32(name, isa):
    rng, errors = np.random.default_rng(3), []
    for n_tok, rows, n, reach in (
        (3, 20, 17, 0),
        (5, 20, 256, 0),
        (5, 20, 700, 3),
        (6, 16, 1024, 0),
        (4, 16, 2048, 0),
        (4, 12, 5632, 0),
        (3, 9, 300, 30),
        (3, 9, 300, 60),
        (2, 7, 64, 70),
    ):
        raw = spread_weights(rng, name, rows, n, reach)
        x = (
            rng.normal(size=(n_tok, n)) * 2.0 ** rng.integers(-reach, reach + 1, (n_tok, n))
        ).astype(np.float32)
        if reach >= 60:
            x *= np.float32(2.0**-80)  # some are subnormal, and most products are
        w, wide = values(name, raw, rows, n), x.astype(np.float64)
        size = np.abs(wide) @ np.abs(w).T
        small = 2.0**-126 * (7 * n + 3 * np.abs(w).sum(1) + 3 * np.abs(wide).sum(1)[:, None])
        bound = (
            1.02 * U * (({"F32": 48, "F16": 40, "BF16": 24}[name]) + 18 + n / 256) * size + small
        )
        error = [
            np.abs(product(isa, name, raw, x, n_tok, rows, n, fast=fast) - wide @ w.T)
            for fast in (True, False)
        ]
        assert (error[0] <= bound).all(), (n_tok, rows, n, reach)
        if reach == 0:
            errors.append([np.sqrt((e**2).mean()) for e in error])
    ratios = [fast / exact for fast, exact in errors]
    # long rows: nearer than sums in 16 lanes are
    assert max(ratios) < 2 and max(ratios[-2:]) < 1, ratios


@pytest.mark.parametrize("isa", SETS)
def test_fast_weights_in_another_type_give_the_same_bits(isa):
    rng, n_tok, rows, n = np.random.default_rng(4), 18, 37, 333
    w = (rng.normal(size=(rows, n)).astype("<f4").view("<u4") & 0xFFFF0000).view("<f4")
    w[rng.random(w.shape) < 0.1] = 0
    w = np.where(np.abs(w) < 2.0**-12, 0, w).astype("<f4")
    x = rng.normal(size=n_tok * n)
    found = {
        product(isa, name, raw, x, n_tok, rows, n).tobytes()
        for name, raw in (
            ("F32", w.tobytes()),
            ("F16", w.astype("<f2").tobytes()),
            ("BF16", (w.view("<u4") >> 16).astype("<u2").tobytes()),
        )
    }
    assert len(found) == 1


@pytest.mark.parametrize("isa", SETS)
@pytest.mark.parametrize("name", NAMES)
def test_nonfinite_value_spoils_only_its_token_or_row(name, isa):
    rng, n_tok, rows, n = np.random.default_rng(5), 20, 40, 100
    raw, x = weights(rng, name, rows, n), rng.normal(size=(n_tok, n)).astype(np.float32)
    expected = product(isa, name, raw, x, n_tok, rows, n)
    assert np.isfinite(expected).all()
    for t, bad in ((0, np.inf), (7, -np.inf), (8, np.nan), (19, 3.4e38)):
        x[t, t] = bad
    spoilt = np.array(bytearray(raw)).reshape(rows, -1)
    for row, top in ((3, 0x7F), (39, 0xFF)):
        spoilt[row, : spoilt.shape[1] // n] = [0] * (spoilt.shape[1] // n - 2) + [
            {"F16": 0}.get(name, 0x80),
            {"F16": top - 3}.get(name, top),
        ]
    y, rest = (
        product(isa, name, spoilt.tobytes(), x, n_tok, rows, n),
        np.ix_(
            *(
                [i for i in range(m) if i not in bad]
                for m, bad in ((n_tok, (0, 7, 8, 19)), (rows, (3, 39)))
            )
        ),
    )
    assert np.isnan(y[[0, 7, 8, 19]]).all() and not np.isfinite(y[:, [3, 39]]).any()
    assert y[rest].tobytes() == expected[rest].tobytes()


@pytest.mark.parametrize("isa", SETS)
@pytest.mark.parametrize("name", NAMES)
def test_fast_product_does_not_depend_on_batch_or_rows(name, isa):
    rng, n_tok, rows, n = np.random.default_rng(6), 37, 45, 520
    raw, x = weights(rng, name, rows, n), rng.normal(size=(n_tok, n))
    whole = product(isa, name, raw, x, n_tok, rows, n)
    for begin, end in ((0, 1), (5, 12), (20, 36), (0, 17)):
        assert (
            product(isa, name, raw, x[begin:end], end - begin, rows, n).tobytes()
            == whole[begin:end].tobytes()
        )
    pick = [36, 0, 0, 17, 44]
    assert (
        product(isa, name, raw, x, n_tok, rows, n, pick).tobytes()
        == np.ascontiguousarray(whole[:, pick]).tobytes()
    )


# Models.


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    directory = tmp_path_factory.mktemp("models")
    out = {}
    # phi3: rows of one stored matrix
    for arch, kind in (("llama", "f32"), ("llama", "bf16"), ("gemma3", "f16"), ("phi3", "bf16")):
        out[f"{arch}-{kind}"] = path = directory / f"{arch}-{kind}.gguf"
        write_model(
            str(path),
            arch=arch,
            type=kind,
            n_layer=2,
            n_vocab=400,
            n_embd=64,
            n_ff=160,
            head_dim=32,
            n_head=2,
            n_head_kv=1,
            **({"window": 16} if arch == "gemma3" else {}),
        )
    return out


IDS = [1] + [(7919 * i + 13) % 400 for i in range(39)]


def fingerprint(m, tokens, directory, chunk, n_first=None):
    """The hash of the snapshot after `tokens`, those from n_first on one by one."""
    cache = Snapshot.create(m.geometry("f16"), 64, m.file.id, m.arithmetic, str(directory))
    m.prefill(cache, tokens[:n_first], chunk)
    f = Forward(m.hparams, cache)
    for id in tokens[n_first:] if n_first else []:
        _, x = m.extend(cache, [id], f=f)
        m.head(f, x, cache.logits)
    cache.seal(str(directory / "s"))
    return hashlib.sha256((directory / "s").read_bytes()).hexdigest()


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("name", ["llama-f32", "llama-bf16", "gemma3-f16", "phi3-bf16"])
def test_fast_model_has_the_same_bits_in_any_chunks_and_by_decode(models, tmp_path, name):
    found = set()
    for isa in SETS:
        lib.isa_select(b"")
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("SLUICE_ISA", isa)
            m = Model(str(models[name]), 1, "fast")
        assert m.arithmetic == "fast-2" and lib.isa_select(isa.encode()) == 0
        found |= {
            fingerprint(m, IDS, tmp_path, chunk)
            for chunk in ((1, 7, 512) if isa == "amx" else (7,))
        }
        found.add(fingerprint(m, IDS, tmp_path, 512, 36))
    assert len(found) == 1


def test_logits_are_near_those_of_exact(models, tmp_path):
    for name, path in models.items():
        logits = []
        for arithmetic in ("exact", "fast"):
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("SLUICE_ISA", SETS[-1])
                m = Model(str(path), 1, arithmetic)
            cache = Snapshot.create(m.geometry("f32"), 64, m.file.id, m.arithmetic, str(tmp_path))
            m.prefill(cache, IDS)
            logits.append(np.array(ffi.unpack(cache.logits, 400)))
        assert logits[0].tobytes() != logits[1].tobytes()
        # as both are of transformers'
        assert np.abs(logits[0] - logits[1]).max() < 2e-6 * np.abs(logits[0]).max(), name


MORE_THREADS = """
import sys
from sluice.kernels import lib
from sluice.model.model import Model
from sluice.model.forward import Forward
from sluice.kvcache.scratch import Scratch
m = Model(sys.argv[1], 1, "fast")
f = Forward(m.hparams, Scratch(m.geometry("f16"), 64))
for pos in range(60):  # the scores of a late position are room for the early ones of more threads, so that no buffer grows for another reason
    m.forward(f, [1], pos)
Model(sys.argv[1], 4, "fast")
m.forward(f, [1], 0)
print(len(f._buffers["terms"]) >= lib.terms_size(1, m.hparams.n_ff))
"""


def test_more_threads_find_room_in_a_forward_that_was_there_before(models):
    """In a process of its own: threads are started once."""
    path, library = str(models["llama-bf16"]), os.path.dirname(os.path.dirname(sluice.__file__))
    done = subprocess.run(
        [sys.executable, "-c", MORE_THREADS, path],
        stdout=subprocess.PIPE,
        env={**os.environ, "SLUICE_ISA": SETS[-1], "PYTHONPATH": library},
    )
    assert (done.returncode, done.stdout) == (0, b"True\n")
