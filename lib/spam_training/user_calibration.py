"""Measure what `classify --learn` gains: python -m spam_training.user_calibration MESSAGES...

MESSAGES are archives or folders, as for external_test_set.py. A simulated user labels some
messages, sampled at random from an archive or folder. The others measure the result, before and
after: errors among labels other than "unsure", share of "unsure", and log loss in nats. Each row is
the mean of several users. Messages come unchanged, or in a form that the model was not calibrated
for, such as forwarded ones.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path

import click
import numpy as np

from sluice import cli
from sluice.faults import data_error
from sluice.mail import message
from sluice.probability import fitting
from sluice.question import calibration, question

from . import corpora, evaluate
from .options import SETTINGS, messages_argument, model_option, question_option

FORMS = {  # name: the text of a message that is made of sender, subject and body
    "forwarded": lambda m: (
        f"Subject: Fwd: {m.subject}\n\n---- forwarded message ----\n"
        + "".join(f"> {line}\n" for line in m.body.split("\n"))
    ),
    "footer": lambda m: (
        f"From: {m.sender}\nSubject: [list] {m.subject}\n\n{m.body}\n\n-- \nTo unsubscribe from"
        " this list, click http://lists.example.org/unsubscribe/ or reply with REMOVE\nSponsored:"
        " free offers, click here now http://ads.example.com/\n"
    ),
    "body": lambda m: f"\n{m.body}",
    "subject": lambda m: f"Subject: {m.subject}\n\n",
}


@click.command(context_settings=SETTINGS)
@messages_argument
@model_option
@question_option
@click.option(
    "-f",
    "--form",
    "forms",
    multiple=True,
    type=click.Choice(["whole", *FORMS]),
    default=("whole",),
    help="Form of the messages; may be repeated.",
)
@click.option(
    "-n",
    "--learn",
    "sizes",
    multiple=True,
    default=(1, 20, 100),
    type=click.IntRange(1),
    help="Number of messages that a user labels; may be repeated.",
)
@click.option(
    "-r",
    "--users",
    default=50,
    type=click.IntRange(1),
    help="Number of simulated users.",
)
@click.option("-S", "--seed", default=1, help="RNG seed.")
def main(
    paths: Sequence[str],
    model: str,
    config: str,
    forms: Sequence[str],
    sizes: Sequence[int],
    users: int,
    seed: int,
) -> None:
    """Print errors, share of "unsure" and log loss on MESSAGES as Markdown, before and after users
    label some of them. No calibration is written.
    """
    asked = question.read(config)
    click.echo(
        "| messages | form | n | learned | wrong, of yes or no | unsure | log loss |\n| --- | ---"
        " | ---: | ---: | ---: | ---: | ---: |"
    )
    for path in paths:
        results = list(corpora.labelled(Path(path)))
        if not results:
            raise data_error(path, "no messages under ham/ or spam/")
        is_spam = np.array([m.is_spam for m in results])
        for form in forms:
            logit = evaluate.logits(
                model,
                config,
                [
                    (
                        m
                        if form == "whole"
                        else m._replace(data=FORMS[form](message.read(m.data)).encode())
                    )
                    for m in results
                ],
            )
            for n, figures in table(
                logit, is_spam, asked, [n for n in (0, *sizes) if n < len(results)], users, seed
            ):
                click.echo(
                    f"| {Path(path).name} | {form} | {len(results)} | {n} | {figures[0]:.4f} |"
                    f" {figures[1]:.4f} | {figures[2]:.4f} |"
                )


def table(
    logit: np.ndarray,
    is_spam: np.ndarray,
    asked: question.Question,
    sizes: Sequence[int],
    users: int,
    seed: int,
) -> Iterator[tuple[int, np.ndarray]]:
    """Yield (n, float64 [3]: wrong, unsure, log loss in nats) for n of `sizes` labelled messages.

    logit: float64 [n], log P(yes) - log P(no) before calibration. is_spam: bool [n]. asked: the
    Question, with its thresholds. users: number of users, whose mean each row is.
    """
    bundled = calibration.prior(asked)
    # columns: log P(yes), log P(no)
    rows = np.stack((-np.logaddexp(0, -logit), -np.logaddexp(0, logit)), 1)
    for n in sizes:
        results, rng = [], random.Random(seed)
        for _ in range(users):
            order = rng.sample(range(len(rows)), len(rows))
            # every user and size is measured on equally many messages
            learned, rest = order[:n], order[max(sizes) :]
            scale, bias = fitting.fit(
                rows[learned].tolist(),
                [0 if is_spam[i] else 1 for i in learned],
                bundled[0],
                bundled[1:],
            )
            p = evaluate.sigmoid(scale * logit[rest] + bias[0] - bias[1])
            p_label = np.clip(np.where(is_spam[rest], p, 1 - p), 1e-12, 1)
            is_called = (p >= asked.thresholds["yes"]) | (1 - p >= asked.thresholds["no"])
            n_wrong = (((p >= 0.5) != is_spam[rest]) & is_called).sum()
            results.append(
                [n_wrong / max(1, is_called.sum()), 1 - is_called.mean(), -np.log(p_label).mean()]
            )
        yield n, np.mean(results, 0)


if __name__ == "__main__":
    cli.run(main)
