"""Logits of the real models on golden/real/prose.txt: the sample kept, and distances from it.

golden/real/MODEL.json           token IDs of the text by llama.cpp's tokenizer, and what llama.cpp
                                 generates and measures; written by golden_real_llama_cpp.py
golden/real/MODEL.npz            of transformers' logits in f32, with the weights dequantised;
                                 written by golden_real.py
golden/real/MODEL.llama.cpp.npz  of llama.cpp's logits with its default arithmetic; written by
                                 golden_real_llama_cpp.py

All logits of 300 positions are 59 MB for SmolLM2 and 315 MB for Gemma. Kept are, of each position,
the N_TOP largest with their token IDs, the logarithm of the sum of all exponentials, on which
every logit bears, and every `step`th logit, from another entry of the vocabulary on at each
position: with `step` N_POSITIONS each entry is kept at one position at least.
"""

import json
from pathlib import Path
from typing import NamedTuple

import numpy as np
import real_models

DIRECTORY = Path(__file__).parents[1] / "golden" / "real"
TEXT = DIRECTORY / "prose.txt"
N_POSITIONS = 300  # the last of the text: at most of them Gemma's window of 512 tokens is full
N_TOP = 8
MODELS = {"smollm2": real_models.SMOLLM2, "gemma3": real_models.GEMMA3}
STEPS = {"smollm2": N_POSITIONS, "gemma3": 4 * N_POSITIONS}
RIVAL = ".llama.cpp"
RIVAL_STEP = 16 * N_POSITIONS


class Kept(NamedTuple):
    """What is kept of the logits at n positions.

    top_ids: int32 [n][N_TOP], largest logit first; top: f32 [n][N_TOP], these logits; log_sum: f64
    [n], nats; spread: f32 [n][m], the logits of `entries(i, step, n_vocab)`; step: int.
    """

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
    """The JSON of golden_real_llama_cpp.py for the model `name`; "ids" are the tokens of TEXT."""
    return json.loads((DIRECTORY / f"{name}.json").read_text())


def log_sum_exp(row):
    """The logarithm of the sum of exponentials of one row of logits, in f64: float, nats."""
    x = row.astype(np.float64)
    return float(np.log(np.exp(x - x.max()).sum()) + x.max())


def entries(i, step, n_vocab):
    """The entries of the vocabulary that position `i` keeps: int [ceil(n_vocab / step)]."""
    return np.arange(i, i + n_vocab, step) % n_vocab


def largest(row):
    """The entries of the N_TOP largest logits of `row`, largest first, of equals the lower one."""
    tokens = np.flatnonzero(row >= np.partition(row, -N_TOP)[-N_TOP])
    return tokens[np.argsort(-row[tokens], kind="stable")][:N_TOP]


def keep(rows, step):
    """The Kept of `rows`, an iterable of f32 [n_vocab], one a position."""
    found = [], [], [], []
    for i, row in enumerate(rows):
        tokens = largest(row)
        values = tokens, row[tokens], log_sum_exp(row), row[entries(i, step, len(row))]
        for kept, value in zip(found, values):
            kept.append(value)
    kinds = "<i4", "<f4", "<f8", "<f4"
    return Kept(*(np.array(kept, kind) for kept, kind in zip(found, kinds)), step)


def save(kept, name):
    """Write golden/real/NAME.npz."""
    np.savez_compressed(DIRECTORY / f"{name}.npz", **kept._asdict())


def load(name):
    """The Kept in golden/real/NAME.npz."""
    with np.load(DIRECTORY / f"{name}.npz") as file:
        return Kept(*(file[field] for field in Kept._fields[:-1]), int(file["step"]))


def difference(kept, rows):
    """How far `rows` (as of `keep`) are from `kept` at most, as a share of the largest logit.

    NaN if one is not a number. ValueError where the number of positions is another one."""
    apart = []
    for i, row in enumerate(rows):
        apart.append(np.abs(row[kept.top_ids[i]] - kept.top[i]).max())
        apart.append(np.abs(row[entries(i, kept.step, len(row))] - kept.spread[i]).max())
        apart.append(abs(log_sum_exp(row) - kept.log_sum[i]))
    if len(apart) != 3 * len(kept.log_sum):
        raise ValueError(f"{len(apart) // 3} positions, {len(kept.log_sum)} are kept")
    return float(np.max(apart)) / kept.largest


class Distance(NamedTuple):
    """Between two arithmetics: worst and rms of the differences of the logits that both kept, as
    shares of the largest one; same: the share of positions with the same best token."""

    worst: float
    rms: float
    same: float


def distance(a, b):
    """The Distance of two Kept of one text; the step of one is a multiple of the other's."""
    step, size = max(a.step, b.step), max(a.largest, b.largest)
    apart = a.spread[:, :: step // a.step].astype("f8") - b.spread[:, :: step // b.step]
    worst, rms = np.abs(apart).max() / size, np.sqrt((apart**2).mean()) / size
    return Distance(float(worst), float(rms), float((a.top_ids[:, 0] == b.top_ids[:, 0]).mean()))
