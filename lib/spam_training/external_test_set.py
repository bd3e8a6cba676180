"""Evaluate a model on messages it was not trained on.

`make judge` runs python -m spam_training.external_test_set MESSAGES...
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click
import numpy as np

from sluice import cli
from sluice.faults import IO_ERROR, Error, data_error
from sluice.question import question

from . import corpora, evaluate
from .options import SETTINGS, messages_argument, model_option, question_option


@click.command(context_settings=SETTINGS)
@messages_argument
@model_option
@question_option
@click.option(
    "--rare",
    type=click.FloatRange(0, 1),
    help="Print recall and false positives at this threshold; the model card names one.",
)
def main(paths: Sequence[str], model: str, config: str, rare: float | None) -> None:
    """Print a model's accuracy on MESSAGES, one line of Markdown each.

    MESSAGES are archives or folders that hold one message a file under */ham/ and */spam/, or ham/
    and spam/. No message is stored.
    """
    asked = question.read(config)
    columns = [
        "messages",
        "n",
        "accuracy",
        "precision",
        "recall",
        "F1",
        "ROC AUC",
        "wrong, of yes or no",
        "unsure",
    ]
    columns += [f"recall above {rare:g}", "false positives there"] if rare is not None else []
    click.echo(f"| {' | '.join(columns)} |\n|{' --- |' + ' ---: |' * (len(columns) - 1)}")
    for path in paths:
        try:
            found = list(corpora.labelled(Path(path)))
        except OSError as e:
            raise Error(IO_ERROR, f"{path}: cannot read: {e.strerror or e}") from None
        if not found:
            raise data_error(path, "no messages under ham/ or spam/")
        logit = evaluate.logits(model, config, found)
        p = evaluate.sigmoid(asked.scale * logit + asked.bias["yes"] - asked.bias.get("no", 0.0))
        click.echo(line(path, p, np.array([m.is_spam for m in found]), asked.thresholds, rare))


def line(
    name: str,
    p: np.ndarray,
    is_spam: np.ndarray,
    thresholds: dict[str, float],
    rare: float | None = None,
) -> str:
    """Format a row of the table.

    p: float64 [n], probabilities of spam. is_spam: bool [n]. thresholds: {"yes": minimum
    probability of yes, "no": minimum probability of no}. rare: a further threshold, or None.
    """
    m = evaluate.metrics(p, is_spam)
    wrong, unsure = evaluate.error_rates(p, is_spam, thresholds["yes"], thresholds["no"])
    cells = (
        [str(m["n"])]
        + [f"{m[key]:.4f}" for key in ("accuracy", "precision", "recall", "f1", "auc")]
        + [f"{wrong:.4f}", f"{unsure:.4f}"]
    )
    if rare is not None:
        cells += [
            f"{np.mean(p[part] > rare):.4f}" if part.any() else "-" for part in (is_spam, ~is_spam)
        ]
    return f"| {Path(name).name} | {' | '.join(cells)} |"


if __name__ == "__main__":
    cli.run(main)
