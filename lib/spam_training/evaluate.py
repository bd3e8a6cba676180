"""Metrics, calibration and thresholds of the model card.

The model file is evaluated through the code of `classify`; bogofilter is a baseline.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from typing import Any

import numpy as np

from sluice.classify import classifier
from sluice.question import question

from .corpora import Message


def logits(
    model: str, config: str, messages: Sequence[Message], threads: int | None = None
) -> np.ndarray:
    """float64 [n]: log P(yes) - log P(no) before calibration, as `classify -m MODEL -q CONFIG`.

    messages: [corpora.Message]; 0 for an empty one. threads: None is all cores.
    """
    c = classifier.Classifier(question.read(config), model, threads)
    q = c.question
    q.scale, q.bias = 1.0, dict.fromkeys(q.bias, 0.0)
    out = np.zeros(len(messages))
    for i, message in enumerate(messages):
        if message.data:
            scores = c.ask(message.data).scores
            out[i] = np.log(max(scores["yes"], 1e-30)) - np.log(max(scores["no"], 1e-30))
    return out


def bogofilter(
    work: str, train: Sequence[Message], validation: Sequence[Message]
) -> np.ndarray | None:
    """float64 [n]: spamicity of the validation Messages by bogofilter, None if not installed.

    work: folder for its database. train: Messages to train it on.
    """
    if not shutil.which("bogofilter"):
        return None
    home = os.path.join(work, "bogofilter")
    shutil.rmtree(home, ignore_errors=True)
    os.makedirs(home)
    for messages, option in (
        ([m for m in train if m.is_spam], "-s"),
        ([m for m in train if not m.is_spam], "-n"),
    ):
        subprocess.run(
            ["bogofilter", "-d", home, option, "-b"], input=_files(home, messages), check=True
        )
    shown = subprocess.run(
        ["bogofilter", "-d", home, "-T", "-b", "-v"],
        input=_files(home, validation),
        stdout=subprocess.PIPE,
    ).stdout.decode()
    p = np.array([float(line.split()[-1]) for line in shown.splitlines()])
    shutil.rmtree(home)
    if len(p) != len(validation):
        raise RuntimeError(f"bogofilter classified {len(p)} of {len(validation)} messages")
    return p


def bogofilter_version() -> str:
    """Name and version, or "not installed"."""
    if not shutil.which("bogofilter"):
        return "not installed"
    return " ".join(
        subprocess.run(["bogofilter", "-V"], stdout=subprocess.PIPE).stdout.decode().split()[:3]
    )


def _files(folder, messages):
    """Write each message to a file of the folder; return the names, a line each."""
    names = [os.path.join(folder, f"mail-{i}") for i in range(len(messages))]
    for name, message in zip(names, messages):
        with open(name, "wb") as f:
            f.write(message.data)
    return "".join(name + "\n" for name in names).encode()


def metrics(
    p: np.ndarray, is_spam: np.ndarray, threshold: float = 0.5, rare: float | None = None
) -> dict[str, Any]:
    """{"n", "accuracy", "precision", "recall", "f1", "auc", "rare": number}.

    p: float64 [n], probabilities of spam. is_spam: bool [n]. rare: threshold of the recall "rare";
    None is the one at which 0.1 % of this ham is called spam.
    """
    is_spam = np.asarray(is_spam, bool)
    called = p > threshold
    hit = int((called & is_spam).sum())
    rare = threshold_at(p, is_spam, 0.001) if rare is None else rare
    return {
        "n": len(p),
        "accuracy": float((called == is_spam).mean()),
        "precision": hit / max(1, int(called.sum())),
        "recall": hit / max(1, int(is_spam.sum())),
        "f1": 2 * hit / max(1, int(called.sum()) + int(is_spam.sum())),
        "auc": auc(p, is_spam),
        "rare": float((p[is_spam] > rare).mean()) if is_spam.any() else float("nan"),
    }


def auc(p: np.ndarray, is_spam: np.ndarray) -> float:
    """Area under the ROC curve: the share of pairs in order, ties half (Mann & Whitney 1947)."""
    _, rank = np.unique(p, return_inverse=True)
    count = np.bincount(rank).astype(float)
    mean_rank = np.cumsum(count) - (count - 1) / 2
    n1, n0 = int(is_spam.sum()), int((~is_spam).sum())
    return (
        float((mean_rank[rank][is_spam].sum() - n1 * (n1 + 1) / 2) / (n1 * n0))
        if n1 and n0
        else float("nan")
    )


def threshold_at(p: np.ndarray, is_spam: np.ndarray, rate: float) -> float:
    """The minimum threshold, p > threshold, that calls at most the share `rate` of ham spam."""
    ham = np.sort(p[~np.asarray(is_spam, bool)])
    return float(ham[len(ham) - 1 - int(rate * len(ham))]) if len(ham) else 1.0


def calibrate(logit: np.ndarray, is_spam: np.ndarray, n_step: int = 50) -> tuple[float, float]:
    """Fit (scale, bias) of p = 1 / (1 + exp(-(scale * logit + bias))) by Newton's method.

    logit: float64 [n]. is_spam: bool [n]. Platt's smoothed targets keep both finite (Platt 1999).
    """
    n1, n0 = int(is_spam.sum()), int((~is_spam).sum())
    target = np.where(is_spam, (n1 + 1) / (n1 + 2), 1 / (n0 + 2))
    x, w = np.stack((logit, np.ones_like(logit)), 1), np.zeros(2)
    for _ in range(n_step):
        p = sigmoid(x @ w)
        hessian = (x * (p * (1 - p))[:, None]).T @ x + 1e-9 * np.eye(2)
        w = w - np.linalg.solve(hessian, x.T @ (p - target))
    return float(w[0]), float(w[1])


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-np.clip(x, -60, 60)))


def thresholds(
    p: np.ndarray,
    is_spam: np.ndarray,
    wrong_yes: float = 0.0015,
    wrong_no: float = 0.0025,
    unsure: float = 0.035,
    more: float = 0.0005,
) -> tuple[float, ...]:
    """(minimum probability of yes, of no) below which the answer is "unsure", to four places.

    Ham called yes is at most wrong_yes of all messages, spam called no at most wrong_no; 0.5 if no
    message has the other label. If more than the share `unsure` lies between, yes is lowered until
    ham called yes is `more` above wrong_yes: the few messages that are most like spam decide that
    limit, and their labels may be wrong. p: float64 [n], probabilities. is_spam: bool [n].
    """
    n = len(p)
    ham, spam = np.sort(p[~is_spam])[::-1], np.sort(1 - p[is_spam])[::-1]
    min_probability = lambda other, share: (
        float(other[min(len(other) - 1, int(share * n))]) + 1e-6 if len(other) else 0.5
    )
    no = max(0.5, min_probability(spam, wrong_no))
    n_yes = int(np.ceil((1 - unsure) * n)) - int((1 - p >= no).sum())
    limit = float(np.sort(p)[::-1][min(n, n_yes) - 1]) if n_yes > 0 else 1.0
    yes = max(
        0.5,
        min(min_probability(ham, wrong_yes), max(min_probability(ham, wrong_yes + more), limit)),
    )
    return tuple(min(1.0, float(np.ceil(x * 1e4) / 1e4)) for x in (yes, no))


def error_rates(p: np.ndarray, is_spam: np.ndarray, yes: float, no: float) -> tuple[float, float]:
    """(share of errors among answers yes and no, share of "unsure")."""
    is_called = (p >= yes) | (1 - p >= no)
    return float(((p >= 0.5) != is_spam)[is_called].mean()), float((~is_called).mean())


def reliability(
    p: np.ndarray, is_spam: np.ndarray, n_bin: int = 10
) -> list[tuple[float, float, int]]:
    """[(mean p, share of spam, n)] of each bin of equal width that is not empty."""
    bins = np.minimum((p * n_bin).astype(int), n_bin - 1)
    return [
        (float(p[bins == b].mean()), float(is_spam[bins == b].mean()), int((bins == b).sum()))
        for b in range(n_bin)
        if (bins == b).any()
    ]
