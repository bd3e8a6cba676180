"""Snapshots whose content is known: made, sealed, loaded and refused, here and in another
process.
"""

import hashlib
import subprocess
import sys

import pytest
from conftest import ROOT

from sluice.faults import Error
from sluice.kernels import ffi
from sluice.kvcache.snapshot import Geometry, Snapshot

MODEL = bytes(range(32))
SMALL = Geometry(n_layer=2, n_head_kv=2, head_dim=8, kv_type=1, n_vocab=40)
# layers of several widths
MIXED = Geometry(3, 2, 8, 1, 40, ((2, 8), (1, 24), (3, 8)))
# blocks with states: of three pieces in all
STATES = Geometry(2, 2, 8, 1, 40, ((2, 8), (1, 24)), (3, 1200))
# rows of 4 KiB: several pieces
LARGE = Geometry(n_layer=2, n_head_kv=8, head_dim=128, kv_type=0, n_vocab=5000)


def fill(s, first, last, seed=1):
    """Fill tokens and rows first to last - 1 of `s` with values from the seed and their positions."""
    for pos in range(first, last):
        s.tokens[pos] = (pos * 7 + seed) % s.geometry.n_vocab
        for layer, row in enumerate(s.layout.rows):
            for part, at in ((0, s.k(layer)), (1, s.v(layer))):
                data = hashlib.sha256(f"{seed} {pos} {layer} {part}".encode()).digest()
                ffi.memmove(
                    ffi.cast("uint8_t *", at) + pos * row, (data * (row // 32 + 1))[:row], row
                )
    for i in range(s.geometry.n_vocab):
        s.logits[i] = last + i / 8
    for i in range(len(s.layout.states)):
        for j in range(s.geometry.states[1]):
            s.state(i)[j] = seed + last + i + j / 8
    s.end_pass(last)
    s.n_tok = last


def make(
    directory, n_tok=10, capacity=50, geometry=SMALL, seed=1, model_id=MODEL, arithmetic="exact-2"
):
    s = Snapshot.create(geometry, capacity, model_id, arithmetic, str(directory))
    s.reserve(n_tok)
    fill(s, 0, n_tok, seed)
    return s


def seal(path, **kwargs):
    make(path.parent, **kwargs).seal(path)
    return path


def load(path, geometry=SMALL, model_id=MODEL, arithmetic="exact-2"):
    return Snapshot.open(path, model_id, arithmetic, geometry)


def refused(path, **kwargs):
    """The message with which `load` refuses `path`, code 65."""
    with pytest.raises(Error) as e:
        load(path, **kwargs)
    assert e.value.code == 65 and str(e.value).startswith(f"{path}: ")
    return str(e.value)[len(str(path)) + 2 :]


def content(s):
    """All that is valid in `s`, as comparable values."""
    planes = [
        bytes(ffi.buffer(at, s.n_tok * row))
        for layer, row in enumerate(s.layout.rows)
        for at in (s.k(layer), s.v(layer))
    ]
    return (
        s.n_tok,
        s.tokens[: s.n_tok].tolist(),
        bytes(ffi.buffer(s.logits, s.layout.logits_bytes)),
        planes,
        [bytes(ffi.buffer(s.state(i), s.layout.state_bytes)) for i in range(len(s.layout.states))],
    )


# Of a child: tests, its helpers and the room of the snapshots
TESTS = [str(ROOT / "tests" / name) for name in ("", "helpers", "kvcache")]
MAKER = """
import os, resource, sys, time
sys.path[:0] = {tests!r}
from snapshot_files import *
"""


def python(code, **kwargs):
    code = MAKER.format(tests=TESTS) + code
    return subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, **kwargs
    )
