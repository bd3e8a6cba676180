"""How far the corpora carry: python -m spam_training.elsewhere CORPORA.

Mail of a source that took no part in training is harder than mail kept out of corpora that did.
This leaves out one corpus after the other, fits the linear yardstick (teacher.py) to all the rest
and judges the one left out: those of its mails that are as they came, for lists.py changes a fifth;
with the written templates and without. It takes minutes where a model (`make model
TRAIN="--leave-out enron"`) takes an hour and a half, and says what a change of the data is worth
before one is trained. Only the vocabulary has seen the one left out.
"""

from pathlib import Path

import click
import numpy as np

from sluice import cli

from . import corpora, judge, prepare, teacher

N_OWN = 100  # mails of the corpus left out, in the last column


@click.command(context_settings={"show_default": True, "help_option_names": ["-h", "--help"]})
@click.argument("folder", type=click.Path(exists=True, file_okay=False))
@click.option(
    "--work",
    default="build/model",
    type=click.Path(file_okay=False),
    help="Folder of `make model`: its ids are taken where it has them.",
)
@click.option(
    "--written",
    default=corpora.N_WRITTEN,
    type=click.IntRange(1),
    help="Texts made of the templates.",
)
@click.option("--seed", default=1, type=click.IntRange(0))
def main(folder, work, written, seed):
    """Print a line of Markdown for each corpus in FOLDER: the linear model of all others, judged on
    it.
    """
    p = prepared(work, folder, seed, written, lambda text: click.echo(text, err=True))
    rows = [p.whole(i) for i in range(len(p.texts))]
    columns = [
        "left out",
        "learnt from",
        "n",
        "accuracy",
        "precision",
        "recall",
        "ROC AUC",
        f"accuracy, calibrated on {N_OWN} of it",
    ]
    click.echo(f"| {' | '.join(columns)} |\n| --- | --- |{' ---: |' * (len(columns) - 2)}")
    for name in (name for name in corpora.NAMES if name != "written"):
        shown = np.flatnonzero(~(p.is_listed & (p.corpus == name)))
        for without in ((), ("written",)):
            click.echo(
                line([rows[i] for i in shown], p.is_spam[shown], p.corpus[shown], name, without)
            )


def prepared(work, folder, seed, n_written, say):
    """The Prepared of `make model` where that is of the same texts with a vocabulary of their own,
    whoever judged them besides; else one in a folder of its own below, for what a training goes on
    with is not to be lost.
    """
    p = prepare.kept(work, prepare.key_of(folder, seed=seed, n_written=n_written), say)
    if not p:
        work = Path(work) / "elsewhere"
        work.mkdir(parents=True, exist_ok=True)
    return p or prepare.load(work, folder, seed=seed, n_written=n_written, say=say)


def line(rows, is_spam, corpus, left_out, without):
    """A row of the table. rows: marked ids of every text; is_spam, corpus: its label and corpus
    [n]; without: corpora not learnt from either.
    """
    out, learnt = corpus == left_out, np.flatnonzero(~np.isin(corpus, (left_out, *without)))
    linear = teacher.yardstick([rows[i] for i in learnt], is_spam[learnt])
    margin = np.array([linear.margin(rows[i]) for i in np.flatnonzero(out)])
    f = judge.figures(judge.sigmoid(margin), is_spam[out])
    figures = " | ".join(f"{f[key]:.3f}" for key in ("accuracy", "precision", "recall", "auc"))
    return (
        f"| {left_out} | {'all others' if not without else 'all others but ' + ', '.join(without)}"
        f" | {f['n']} | {figures} | {calibrated(margin, is_spam[out]):.3f} |"
    )


def calibrated(margin, is_spam, n_draw=50):
    """The accuracy on all the others when N_OWN of the mails, drawn at random, set scale and bias:
    what a user who judges some mails gets. Mean of n_draw.
    """
    rng, right = np.random.default_rng(1), []
    for _ in range(n_draw):
        order = rng.permutation(len(margin))
        own, others = order[:N_OWN], order[N_OWN:]
        scale, bias = judge.calibrate(margin[own], is_spam[own])
        right.append(np.mean((scale * margin[others] + bias > 0) == is_spam[others]))
    return float(np.mean(right))


if __name__ == "__main__":
    cli.run(main)
