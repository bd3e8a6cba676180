"""What `classify --learn` is worth: python -m spam_training.taught MAILS..., with MAILS as for
unseen.py.

A user is simulated who teaches some mails, drawn at random from an archive or a folder, and is
judged by the others: wrong ones among what is called yes or no, unsure ones, and log loss (nats),
before and after. Each row is the mean of several such users. The mails come as they are, or in a
form that the model was not calibrated for, as an account gets them that they take another way to.
"""

import random
from pathlib import Path

import click
import numpy as np

from sluice import cli
from sluice.classify import calibration, fitting, question
from sluice.faults import data_error
from sluice.mail import message

from . import corpora, judge
from .unseen import PACKAGE

FORMS = {  # what becomes of a mail: its sender, its subject, its body
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
    "-f",
    "--form",
    "forms",
    multiple=True,
    type=click.Choice(["whole", *FORMS]),
    default=("whole",),
    help="How they come; may be repeated.",
)
@click.option(
    "-n",
    "--learn",
    "sizes",
    multiple=True,
    default=(1, 20, 100),
    type=click.IntRange(1),
    help="Mails taught; may be repeated.",
)
@click.option(
    "-r",
    "--users",
    default=50,
    type=click.IntRange(1),
    help="Simulated, each with mails of its own.",
)
@click.option("-S", "--seed", default=1)
def main(mails, model, config, forms, sizes, users, seed):
    """Print, as Markdown, what a model's verdicts on MAILS are before and after a user taught some
    of them. Nothing is written anywhere.
    """
    asked = question.read(config)
    click.echo(
        "| mail | form | of them | taught | wrong of yes and no | unsure | log loss |\n| --- | ---"
        " | ---: | ---: | ---: | ---: | ---: |"
    )
    for path in mails:
        found = list(corpora.labelled(Path(path)))
        if not found:
            raise data_error(path, "no messages under ham/ or spam/")
        is_spam = np.array([m.is_spam for m in found])
        for form in forms:
            margin = judge.answers(
                model,
                config,
                [
                    (
                        m
                        if form == "whole"
                        else m._replace(data=FORMS[form](message.read(m.data)).encode())
                    )
                    for m in found
                ],
            )
            for n, figures in table(
                margin, is_spam, asked, [n for n in (0, *sizes) if n < len(found)], users, seed
            ):
                click.echo(
                    f"| {Path(path).name} | {form} | {len(found)} | {n} | {figures[0]:.4f} |"
                    f" {figures[1]:.4f} | {figures[2]:.4f} |"
                )


def table(margin, is_spam, asked, sizes, users, seed):
    """[(n, [wrong, unsure, log loss])] for n of `sizes` mails taught. margin: float64 [n], raw log
    P(yes) - log P(no).
    """
    shipped = calibration.prior(asked)
    # log P of yes and of no
    rows = np.stack((-np.logaddexp(0, -margin), -np.logaddexp(0, margin)), 1)
    for n in sizes:
        found, draw = [], random.Random(seed)
        for _ in range(users):
            order = draw.sample(range(len(rows)), len(rows))
            # all users of all sizes are judged by as many
            some, rest = order[:n], order[max(sizes) :]
            scale, bias = fitting.fit(
                rows[some].tolist(), [0 if is_spam[i] else 1 for i in some], shipped[0], shipped[1:]
            )
            p = judge.sigmoid(scale * margin[rest] + bias[0] - bias[1])
            right = np.clip(np.where(is_spam[rest], p, 1 - p), 1e-12, 1)
            is_called = (p >= asked.thresholds["yes"]) | (1 - p >= asked.thresholds["no"])
            n_wrong = (((p >= 0.5) != is_spam[rest]) & is_called).sum()
            found.append(
                [n_wrong / max(1, is_called.sum()), 1 - is_called.mean(), -np.log(right).mean()]
            )
        yield n, np.mean(found, 0)


if __name__ == "__main__":
    cli.run(main)
