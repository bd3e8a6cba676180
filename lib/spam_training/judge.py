"""The figures of the model card: of the shipped file through the code of `classify`, and of two
yardsticks taught with the same mails.
"""

import os
import shutil
import subprocess

import numpy as np

from sluice.classify import classifier, question


def answers(model, config, messages, threads=None):
    """float64 [n]: log P(yes) - log P(no), before calibration, of Messages asked as `classify -m
    MODEL -q CONFIG` asks. (What is empty: 0.)
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


def bogofilter(work, train, validation):
    """float64 [n]: bogofilter's spamicity of the validation Messages after the training ones; None
    where it is not installed.
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
        raise RuntimeError(f"bogofilter answered {len(p)} of {len(validation)} mails")
    return p


def bogofilter_version():
    """Name and version, or why there is none."""
    if not shutil.which("bogofilter"):
        return "not installed"
    return " ".join(
        subprocess.run(["bogofilter", "-V"], stdout=subprocess.PIPE).stdout.decode().split()[:3]
    )


def _files(folder, messages):
    """Each message in a file of the folder; their names, a line each."""
    names = [os.path.join(folder, f"mail-{i}") for i in range(len(messages))]
    for name, message in zip(names, messages):
        with open(name, "wb") as f:
            f.write(message.data)
    return "".join(name + "\n" for name in names).encode()


def figures(p, is_spam, threshold=0.5, rare=None):
    """dict: n, accuracy, precision, recall, f1, auc, and recall at the threshold `rare` (None: the
    one that calls 0.1 % of this ham spam).
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


def auc(p, is_spam):
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


def threshold_at(p, is_spam, rate):
    """The least threshold that calls at most this share of ham spam (p > threshold)."""
    ham = np.sort(p[~np.asarray(is_spam, bool)])
    return float(ham[len(ham) - 1 - int(rate * len(ham))]) if len(ham) else 1.0


def calibrate(margin, is_spam, n_step=50):
    """(scale, bias) of Platt scaling (Platt 1999): p = 1 / (1 + exp(-(scale margin + bias))), by
    Newton's method; his targets, which keep both finite.
    """
    n1, n0 = int(is_spam.sum()), int((~is_spam).sum())
    target = np.where(is_spam, (n1 + 1) / (n1 + 2), 1 / (n0 + 2))
    x, w = np.stack((margin, np.ones_like(margin)), 1), np.zeros(2)
    for _ in range(n_step):
        p = sigmoid(x @ w)
        hessian = (x * (p * (1 - p))[:, None]).T @ x + 1e-9 * np.eye(2)
        w = w - np.linalg.solve(hessian, x.T @ (p - target))
    return float(w[0]), float(w[1])


def sigmoid(x):
    return 1 / (1 + np.exp(-np.clip(x, -60, 60)))


def thresholds(p, is_spam, wrong_yes=0.0015, wrong_no=0.0025, unsure=0.035, more=0.0005):
    """(least probability of yes, of no) with which an answer counts, to four places: so that ham
    called yes and spam called no are at most these shares of all; 0.5 where there is no mail of the
    other label. Where more than `unsure` lies between, yes begins lower, until ham called yes is
    `more` above its share: how low it may begin is decided by the few mails that look most like
    spam, and these may have the wrong label.
    """
    n = len(p)
    ham, spam = np.sort(p[~is_spam])[::-1], np.sort(1 - p[is_spam])[::-1]
    least = lambda other, share: (
        float(other[min(len(other) - 1, int(share * n))]) + 1e-6 if len(other) else 0.5
    )
    no = max(0.5, least(spam, wrong_no))
    n_yes = int(np.ceil((1 - unsure) * n)) - int((1 - p >= no).sum())
    enough = float(np.sort(p)[::-1][min(n, n_yes) - 1]) if n_yes > 0 else 1.0
    yes = max(0.5, min(least(ham, wrong_yes), max(least(ham, wrong_yes + more), enough)))
    return tuple(min(1.0, float(np.ceil(x * 1e4) / 1e4)) for x in (yes, no))


def decided(p, is_spam, yes, no):
    """(share of wrong ones among what is called yes or no, share of unsure)."""
    sure = (p >= yes) | (1 - p >= no)
    return float(((p >= 0.5) != is_spam)[sure].mean()), float((~sure).mean())


def reliability(p, is_spam, n_bin=10):
    """[(mean p, share of spam, n)] of bins of equal width."""
    bins = np.minimum((p * n_bin).astype(int), n_bin - 1)
    return [
        (float(p[bins == b].mean()), float(is_spam[bins == b].mean()), int((bins == b).sum()))
        for b in range(n_bin)
        if (bins == b).any()
    ]
