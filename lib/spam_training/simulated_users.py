"""Learning curves of simulated users: how well `classify` answers after `--learn`.

python -m spam_training.simulated_users CORPORA

A user is a corpus, or the mailbox of one of the Enron-Spam users. Random draws of the user's
messages are learned, all others are classified (sluice.evaluate.curve), and bogofilter, which
learned the same messages, stands next to it. A model that was trained on the corpora is tested on
messages that were kept for validation. One that has not seen a user's corpus, trained with
--leave-out or another model altogether, can be tested on all of them (--everything).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import click
import numpy as np

from sluice import cli
from sluice.classify import classifier
from sluice.evaluate import curve
from sluice.faults import USAGE, Error
from sluice.question import question

from . import corpora, near_duplicates, prepare, texts
from .options import SETTINGS, corpora_argument, model_option, question_option

USERS: dict[str, Callable[[corpora.Message], bool]] = {
    "spamassassin": lambda m: m.corpus == "spamassassin",
    "ling": lambda m: m.corpus == "ling",
    **{
        f"enron{i}": lambda m, i=i: m.corpus == "enron" and m.name.startswith(f"enron{i}.")
        for i in range(1, 7)
    },
}
SEED = 1


@click.command(context_settings=SETTINGS)
@corpora_argument
@model_option
@question_option
@click.option(
    "-u",
    "--user",
    "users",
    multiple=True,
    type=click.Choice(list(USERS)),
    default=("spamassassin", "enron1", "enron4"),
    help="Simulated user; may be repeated.",
)
@click.option(
    "-n",
    "--curve",
    "numbers",
    default="10,20,50,100,200",
    metavar="N,N",
    help="Numbers of learned messages.",
)
@click.option("--everything", is_flag=True, help="Messages used for training, too.")
@click.option(
    "--most",
    default=1200,
    type=click.IntRange(2),
    help="Messages of a user; of more, a random sample.",
)
@click.option("--threads", type=click.IntRange(1), help="[cores]")
def main(
    folder: str,
    model: str,
    config: str,
    users: Sequence[str],
    numbers: str,
    everything: bool,
    most: int,
    threads: int | None,
) -> None:
    """Print learning curves on the mail of simulated users in FOLDER as Markdown: accuracy / AUC,
    mean of five draws. Nothing is kept.
    """
    sizes = curve.sizes(numbers)
    found = list(corpora.messages(folder, ("written", "sms")))
    if not everything:
        read = texts.read_all(found)
        is_val = prepare.validation(read, near_duplicates.clusters(read))
        found = [m for m, val in zip(found, is_val) if val]
    c = classifier.Classifier(question.read(config), model, threads)
    missing = ""
    click.echo(
        f"| user | messages, spam | messages learned | {' | '.join((curve.MODEL, curve.LEARNED))} |"
        f" {curve.BOGOFILTER} |\n| --- | ---: | ---: | --- | --- | --- |"
    )
    for user in users:
        mine = sample([m for m in found if USERS[user](m)], most)
        asked = [n for n in sizes if n < len(mine)]
        if not asked:
            raise Error(USAGE, f"--user {user}: {len(mine)} messages are too few for --curve")
        with curve.Collector(c) as collector:
            for m in mine:
                collector.see(m.data, c.ask(m.data), 0 if m.is_spam else 1)
            result = collector.curve(asked, lambda line: click.echo(line, err=True))
        missing = result.missing
        n = f"{len(mine)}, {sum(m.is_spam for m in mine)}"
        for point in result.points:
            cells = [
                f"{point.accuracy[s]:.3f} / {point.auc[s]:.4f}" if s in point.auc else "-"
                for s in (curve.MODEL, curve.LEARNED, curve.BOGOFILTER)
            ]
            click.echo(f"| {user} | {n} | {point.n} | {' | '.join(cells)} |")
    if missing:
        click.echo(f"no bogofilter: {missing}", err=True)


def sample(messages: Sequence[corpora.Message], most: int) -> list[corpora.Message]:
    """At most `most` of some messages that are not empty, in their order; the same in every run."""
    some = [m for m in messages if m.data]
    order = np.argsort(np.random.PCG64(SEED).random_raw(len(some)), kind="stable")
    return [some[i] for i in sorted(order[:most])]


if __name__ == "__main__":
    cli.run(main)
