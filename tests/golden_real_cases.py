"""Logits of the real models on golden/real/prose.txt: what is kept of them, and how far others are from it.

golden/real/MODEL.json            token IDs of the text as llama.cpp's tokenizer has them, and what llama.cpp generates and measures;
                                  written by golden_real_rival.py
golden/real/MODEL.npz             of transformers' f32 logits with the weights dequantised; written by golden_real.py
golden/real/MODEL.llama.cpp.npz   of llama.cpp's logits with its default arithmetic; written by golden_real_rival.py

All logits of 300 positions are 59 MB for SmolLM2 and 315 MB for Gemma. Kept are, of each position, the N_TOP largest with their token
IDs, the logarithm of the sum of all exponentials, on which every logit bears, and every `step`th logit, from another entry of the
vocabulary on at each position: with `step` N_POSITIONS each entry is kept at one position.
"""
import json
from pathlib import Path
from typing import NamedTuple

import numpy as np

import real_models

DIRECTORY = Path(__file__).parent / "golden" / "real"
TEXT = DIRECTORY / "prose.txt"
N_POSITIONS = 300  # the last ones of the text: Gemma's window of 512 tokens has left its begin behind in most of them
N_TOP = 8
MODELS = {"smollm2": real_models.SMOLLM2, "gemma3": real_models.GEMMA3}
STEPS = {"smollm2": N_POSITIONS, "gemma3": 4 * N_POSITIONS}
RIVAL = ".llama.cpp"
RIVAL_STEP = 16 * N_POSITIONS


class Kept(NamedTuple):
    """top_ids: int32 [n_position][N_TOP], of the logits top: f32 alike, largest first; log_sum: f64 [n_position], nats; spread: f32
    [n_position][n], where `entries` says; step."""
    top_ids: np.ndarray
    top: np.ndarray
    log_sum: np.ndarray
    spread: np.ndarray
    step: int

    @property
    def largest(self):
        """The largest logit."""
        return float(self.top.max())


def facts(name):
    """What golden_real_rival.py wrote of the model `name`: a dict; "ids" are the token IDs of TEXT."""
    return json.loads((DIRECTORY / f"{name}.json").read_text())


def log_sum_exp(row):
    """Of one row of logits, in f64: float, nats."""
    x = row.astype(np.float64)
    return float(np.log(np.exp(x - x.max()).sum()) + x.max())


def entries(i, step, n_vocab):
    """Of which entries of the vocabulary position i keeps the logit."""
    return np.arange(i, i + n_vocab, step) % n_vocab


def keep(rows, step):
    """The Kept of `rows`, an iterable of f32 [n_vocab], one a position."""
    found = [], [], [], []
    for i, row in enumerate(rows):
        ids = np.argsort(-row, kind="stable")[:N_TOP]
        for values, value in zip(found, (ids, row[ids], log_sum_exp(row), row[entries(i, step, len(row))])):
            values.append(value)
    return Kept(*(np.array(values, kind) for values, kind in zip(found, ("<i4", "<f4", "<f8", "<f4"))), step)


def save(kept, name):
    np.savez_compressed(DIRECTORY / f"{name}.npz", **kept._asdict())


def load(name):
    """The Kept in golden/real/NAME.npz."""
    with np.load(DIRECTORY / f"{name}.npz") as file:
        return Kept(**{field: file[field] for field in Kept._fields})._replace(step=int(file["step"]))


def difference(kept, rows):
    """How far `rows` (as of `keep`) are from `kept` at most: all logits kept and the log sums, as a share of the largest logit."""
    worst, n = 0.0, 0
    for i, row in enumerate(rows):
        for found, want in ((row[kept.top_ids[i]], kept.top[i]), (row[entries(i, kept.step, len(row))], kept.spread[i]),
                            (log_sum_exp(row), kept.log_sum[i])):
            apart = float(np.abs(found - want).max())
            worst = apart if not apart <= worst else worst  # also where it is not a number
        n += 1
    if n != len(kept.log_sum):
        raise ValueError(f"{n} positions, {len(kept.log_sum)} are kept")
    return worst / kept.largest


class Distance(NamedTuple):
    """Between two arithmetics: worst and rms of the differences of the logits that both kept, as shares of the largest logit; same: the
    share of positions at which both have the same largest logit."""
    worst: float
    rms: float
    same: float


def distance(a, b):
    """The Distance of two Kept of one text; the step of one is a multiple of the other's."""
    step = max(a.step, b.step)
    apart = a.spread[:, ::step // a.step].astype("f8") - b.spread[:, ::step // b.step]
    size = max(a.largest, b.largest)
    same = float((a.top_ids[:, 0] == b.top_ids[:, 0]).mean())
    return Distance(float(np.abs(apart).max()) / size, float(np.sqrt((apart ** 2).mean())) / size, same)
