"""Judge a model on mail that took no part in making it: python -m spam_training.unseen MAILS...,
what `make judge` calls.
"""

from pathlib import Path

import click
import numpy as np

from sluice import cli
from sluice.classify import question
from sluice.faults import IO_ERROR, Error, data_error

from . import corpora, judge

PACKAGE = Path(__file__).resolve().parents[1] / "sluice"


@click.command(context_settings={"show_default": True, "help_option_names": ["-h", "--help"]})
@click.argument("mails", nargs=-1, required=True, type=click.Path(exists=True))
@click.option(
    "-m",
    "--model",
    default=str(PACKAGE / "data" / "spam.gguf"),
    type=click.Path(exists=True, dir_okay=False),
)
@click.option(
    "-q",
    "--question",
    "config",
    default=str(PACKAGE / "configs" / "spam.yaml"),
    type=click.Path(exists=True, dir_okay=False),
)
@click.option(
    "--rare",
    type=click.FloatRange(0, 1),
    help="Threshold whose recall and false positives are wanted: the card names one.",
)
def main(mails, model, config, rare):
    """Print the figures of a model's verdicts on MAILS, one line of Markdown each: archives or
    folders with whole messages, one a file, under */ham/ and */spam/ (or ham/ and spam/).  Nothing
    of them is written anywhere.
    """
    asked = question.read(config)
    columns = [
        "mail",
        "n",
        "accuracy",
        "precision",
        "recall",
        "F1",
        "ROC AUC",
        "wrong of yes and no",
        "unsure",
    ]
    columns += [f"recall above {rare:g}", "false positives there"] if rare is not None else []
    click.echo(f"| {' | '.join(columns)} |\n|{' --- |' + ' ---: |' * (len(columns) - 1)}")
    for path in mails:
        try:
            found = list(corpora.labelled(Path(path)))
        except OSError as e:
            raise Error(IO_ERROR, f"{path}: cannot read: {e.strerror or e}") from None
        if not found:
            raise data_error(path, "no messages under ham/ or spam/")
        margin = judge.answers(model, config, found)
        p = judge.sigmoid(asked.scale * margin + asked.bias["yes"] - asked.bias.get("no", 0.0))
        click.echo(line(path, p, np.array([m.is_spam for m in found]), asked.thresholds, rare))


def line(name, p, is_spam, thresholds, rare=None):
    """A row of the table. p: float64 [n], probabilities of spam; is_spam: bool [n]; thresholds:
    {"yes": least, "no": least}.
    """
    f = judge.figures(p, is_spam)
    wrong, unsure = judge.decided(p, is_spam, thresholds["yes"], thresholds["no"])
    cells = (
        [str(f["n"])]
        + [f"{f[key]:.4f}" for key in ("accuracy", "precision", "recall", "f1", "auc")]
        + [f"{wrong:.4f}", f"{unsure:.4f}"]
    )
    if rare is not None:
        cells += [
            f"{np.mean(p[part] > rare):.4f}" if part.any() else "-" for part in (is_spam, ~is_spam)
        ]
    return f"| {Path(name).name} | {' | '.join(cells)} |"


if __name__ == "__main__":
    cli.run(main)
