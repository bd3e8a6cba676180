"""Test on a source that is not in the training data: leave one corpus out.

`make elsewhere` runs python -m spam_training.leave_one_corpus_out CORPORA.

Messages of a new source are harder than held-out messages of a known one. For each corpus, fit the
linear baseline (teacher.py) to all others and test it on this one, with templated texts in training
and without. Messages that mailing_lists.py changed are not tested. This takes minutes, a model
(`make model TRAIN="--leave-out enron"`) 90 minutes, so changes of the data can be tried before a
training. Only the vocabulary has seen the corpus left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np

from sluice import cli

from . import corpora, evaluate, prepare, teacher
from .options import SETTINGS, corpora_argument, seed_option, templated_option

N_OWN = 100  # messages of the corpus left out that fit the calibration of the last column


@click.command(context_settings=SETTINGS)
@corpora_argument
@click.option(
    "--work",
    default="build/model",
    type=click.Path(file_okay=False),
    help="Folder of `make model`, whose prepared texts are reused.",
)
@templated_option("Number of texts made from templates.")
@seed_option
def main(folder: str, work: str, templated: int, seed: int) -> None:
    """Print the accuracy of a linear model on each corpus in FOLDER, trained on the others."""
    p = prepared(work, folder, seed, templated, lambda text: click.echo(text, err=True))
    rows = [p.whole(i) for i in range(len(p.texts))]
    columns = [
        "left out",
        "trained on",
        "n",
        "accuracy",
        "precision",
        "recall",
        "ROC AUC",
        f"accuracy, calibrated on {N_OWN} messages of it",
    ]
    click.echo(f"| {' | '.join(columns)} |\n| --- | --- |{' ---: |' * (len(columns) - 2)}")
    for name in (name for name in corpora.NAMES if name != "written"):
        tested = np.flatnonzero(~(p.is_resent & (p.corpus == name)))
        for without in ((), ("written",)):
            click.echo(
                line([rows[i] for i in tested], p.is_spam[tested], p.corpus[tested], name, without)
            )


def prepared(
    work: str, folder: str, seed: int, n_templated: int, say: Callable[[str], Any]
) -> prepare.Prepared:
    """Load the Prepared of `make model` if its texts are the same and its vocabulary is new.

    Whether an encoder was a teacher does not matter. Otherwise prepare in a subfolder, so that the
    state of a training is not overwritten.
    """
    p = prepare.load_cached(work, prepare.key_of(folder, seed=seed, n_templated=n_templated), say)
    if not p:
        work = Path(work) / "elsewhere"
        work.mkdir(parents=True, exist_ok=True)
    return p or prepare.load(work, folder, seed=seed, n_templated=n_templated, say=say)


def line(
    rows: Sequence[np.ndarray],
    is_spam: np.ndarray,
    corpus: np.ndarray,
    left_out: str,
    without: Sequence[str],
) -> str:
    """Format a row of the table.

    rows: marked tokens of every text. is_spam: bool [n]. corpus: str [n]. left_out: the corpus to
    test on. without: further corpora that are not trained on.
    """
    out, train = corpus == left_out, np.flatnonzero(~np.isin(corpus, (left_out, *without)))
    linear = teacher.baseline([rows[i] for i in train], is_spam[train])
    logit = np.array([linear.logit(rows[i]) for i in np.flatnonzero(out)])
    m = evaluate.metrics(evaluate.sigmoid(logit), is_spam[out])
    cells = " | ".join(f"{m[key]:.3f}" for key in ("accuracy", "precision", "recall", "auc"))
    return (
        f"| {left_out} | {'all others' if not without else 'all others but ' + ', '.join(without)}"
        f" | {m['n']} | {cells} | {calibrated(logit, is_spam[out]):.3f} |"
    )


def calibrated(logit: np.ndarray, is_spam: np.ndarray, n_sample: int = 50) -> float:
    """Accuracy after N_OWN random messages fit scale and bias, measured on all the others.

    This is what a user gets who labels N_OWN messages. logit: float64 [n]. Mean of n_sample runs.
    """
    rng, accuracies = np.random.default_rng(1), []
    for _ in range(n_sample):
        order = rng.permutation(len(logit))
        own, others = order[:N_OWN], order[N_OWN:]
        scale, bias = evaluate.calibrate(logit[own], is_spam[own])
        accuracies.append(np.mean((scale * logit[others] + bias > 0) == is_spam[others]))
    return float(np.mean(accuracies))


if __name__ == "__main__":
    cli.run(main)
