"""Train the spam model: `make model` runs python -m spam_training CORPORA [OPTIONS].

An interrupted training resumes with the next call; --seconds limits the time of one call.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence

import click
import numpy as np
import torch
from torch import multiprocessing

from sluice import cli
from sluice.faults import TRY_AGAIN
from sluice.system.files import check_target

from . import card, checkpoint, corpora, evaluate, export, loop, prepare, ranks
from .net import Shape
from .options import (
    PACKAGE,
    SETTINGS,
    OptionWithAlias,
    corpora_argument,
    seed_option,
    templated_option,
)
from .ranks import say

TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}{% if message['role'] == 'user' %}<|user|>\n{{"
    " message['content'] }}</s>{% else %}<|assistant|>\n{{ message['content'] }}</s>{% endif %}{%"
    " endfor %}{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
)


@click.command(context_settings=SETTINGS)
@corpora_argument
@click.option(
    "--work",
    default="build/model",
    type=click.Path(file_okay=False),
    help="Folder of the state that a later call resumes from.",
)
@click.option(
    "--out",
    default=str(PACKAGE / "data"),
    type=click.Path(file_okay=False),
    help="Folder for spam.gguf, its card and its calibration curve.",
)
@click.option(
    "--question",
    default=str(PACKAGE.parents[1] / "configs" / "spam.yaml"),
    type=click.Path(dir_okay=False),
    help="Question file to write.",
)
@click.option(
    "--leave-out",
    multiple=True,
    type=click.Choice(corpora.NAMES),
    help="Do not train on this corpus; may be repeated.",
)
@click.option(
    "--init-from",
    cls=OptionWithAlias,
    aliases=("--begin",),
    type=click.Path(exists=True, dir_okay=False),
    help=(
        "Initial checkpoint: a GGUF file of this command with the same or fewer layers; its"
        " vocabulary is used."
    ),
)
@click.option(
    "--keep",
    default=0.0,
    type=cli.Number(0, 1),
    help="Share of the weights of --init-from in the average that is written.",
)
@click.option(
    "--encoder",
    is_flag=True,
    help=(
        "Use a pre-trained encoder as a second teacher, on texts it is not tuned on (20 minutes"
        " more)."
    ),
)
@templated_option("Number of texts to make from templates.")
@click.option("--steps", default=12500, type=click.IntRange(0), help="Number of steps.")
@click.option("--layers", default=3, type=click.IntRange(1), help="Layers of the model.")
@seed_option
@click.option("--seconds", default=1e9, help="Stop after this time; the next call resumes.")
@click.option("--threads", default=os.cpu_count(), type=click.IntRange(1))
@click.option("--date", default=time.strftime("%Y-%m-%d"), help="Date in the file's metadata.")
@click.option("--plain", is_flag=True, help="Without torch.compile, which needs a C++ compiler.")
@click.option(
    "--float32",
    is_flag=True,
    help="Compute in f32 instead of bf16: faster on Intel processors without AMX.",
)
def main(
    folder: str,
    work: str,
    out: str,
    question: str,
    leave_out: Sequence[str],
    init_from: str | None,
    keep: float,
    encoder: bool,
    templated: int,
    steps: int,
    layers: int,
    seed: int,
    seconds: float,
    threads: int,
    date: str,
    plain: bool,
    float32: bool,
) -> None:
    """Train on the corpora in FOLDER, evaluate, and write the model with its card."""
    if keep and not init_from:
        raise click.UsageError("--keep: needs --init-from, whose weights are kept")
    os.makedirs(work, exist_ok=True)
    os.makedirs(out, exist_ok=True)
    path = f"{out}/spam.gguf"
    for target in (path, question):
        check_target(target, init_from)
    initial = (
        checkpoint.read(init_from, lambda n_vocab: Shape(n_vocab, n_layer=layers))
        if init_from
        else None
    )
    source = folder, leave_out, initial, encoder
    torch.set_num_threads(threads)  # also for the encoder
    p = prepare.load(work, *source, seed=seed, n_templated=templated, say=say, float32=float32)
    trainer = loop.Trainer(
        p, Shape(len(p.vocabulary[0]), n_layer=layers), steps, seed, compiled=False, float32=float32
    )
    trainer.resume(f"{work}/train.pt")
    if trainer.step < steps:
        shared = ranks.Ranks(trainer.shape)
        multiprocessing.spawn(
            ranks.run,
            (
                shared,
                work,
                source,
                seed,
                templated,
                steps,
                layers,
                seconds,
                max(1, threads // loop.N_RANK),
                not plain,
                float32,
            ),
            nprocs=loop.N_RANK,
        )
        trainer.resume(f"{work}/train.pt")
    if trainer.step < steps:
        say(f"step {trainer.step} of {steps}: call again to resume")
        raise click.exceptions.Exit(TRY_AGAIN)
    general = {
        "type": "model",
        "name": "Sluice spam",
        "version": date,
        "date": date,
        "license": "MIT",
        "author": "the Sluice project",
        "description": (
            "Answers yes or no: is this mail spam? Reads the text of mail-text --fold. See spam.md."
        ),
        "languages": ["en"],
        "tags": ["spam", "classification"],
        "datasets": sorted({*p.corpus.tolist(), *(p.initial.datasets if p.initial else ())}),
    }
    weights = {name: x.numpy() for name, x in trainer.average.items()}
    if initial:
        weights = checkpoint.averaged(weights, initial, keep)
    meta = export.metadata(trainer.shape, p.vocabulary, general)
    meta["tokenizer.chat_template"] = ("string", TEMPLATE)
    export.write(path, meta, export.tensors(weights, trainer.shape))
    messages = list(corpora.messages(folder, leave_out, seed, templated))
    finish(p, trainer, messages, work, out, path, question, date, keep)


def finish(
    p: prepare.Prepared,
    trainer: loop.Trainer,
    messages: Sequence[corpora.Message],
    work: str,
    out: str,
    path: str,
    question: str,
    date: str,
    keep: float,
) -> None:
    """Evaluate the model file, calibrate it, and write its question, card and curve.

    messages: every Message, in the order of p.texts. path: of the GGUF file. keep: share of the
    initial weights in it.
    """
    validation = [m for m, val in zip(messages, p.is_val) if val]
    corpus, is_spam = p.corpus[p.is_val], p.is_spam[p.is_val]
    card.write_question(question, 1.0, 0.0, 0.5, 0.5)
    logit = evaluate.logits(path, question, validation)
    of_corpora = (corpus != "written") | (corpus == "written").all()
    # rounded as in the question file
    scale, bias = (
        round(float(x), 4) for x in evaluate.calibrate(logit[of_corpora], is_spam[of_corpora])
    )
    score = evaluate.sigmoid(scale * logit + bias)
    yes, no = evaluate.thresholds(score[of_corpora], is_spam[of_corpora])
    card.write_question(question, scale, bias, yes, no)
    scores = {
        "sluice": score,
        "linear": evaluate.sigmoid(p.logit[p.is_val]),
        "bogofilter": evaluate.bogofilter(
            work, [m for m, val in zip(messages, p.is_val) if not val], validation
        ),
    }
    facts = {
        "n_parameter": sum(
            x.size
            for _, x in export.tensors(
                {k: v.numpy() for k, v in trainer.average.items()}, trainer.shape
            )
        ),
        "n_layer": trainer.shape.n_layer,
        "n_vocab": trainer.shape.n_vocab,
        "n_bytes": os.path.getsize(path),
        "date": date,
        "n_step": trainer.n_step,
        "initial": p.initial and p.initial.id,
        "initial_datasets": (
            ", ".join(card.NAMES.get(name, name) for name in p.initial.datasets)
            if p.initial
            else ""
        ),
        "keep": keep,
        "encoder": bool(p.joint_weights),
        "seed": trainer.seed,
        "torch": torch.__version__,
        "prompt": "".join((*prepare.BEFORE, "MAIL", *prepare.AFTER)).replace("\n", "\\n"),
        "count": {name: int((p.corpus == name).sum()) for name in corpora.NAMES},
        "n_train": int((~p.is_val).sum()),
        "n_validation": int(p.is_val.sum()),
        "bogofilter": evaluate.bogofilter_version(),
    }
    card.write_card(f"{out}/spam.md", facts, scores, corpus, is_spam, yes, no)
    card.plot(
        f"{out}/spam-calibration.svg", score[of_corpora], is_spam[of_corpora], logit[of_corpora]
    )
    np.savez(f"{work}/validation.npz", logit=logit, score=score, is_spam=is_spam, corpus=corpus)
    for line in card.table(scores, corpus, is_spam):
        say(line)


if __name__ == "__main__":
    cli.run(main)
