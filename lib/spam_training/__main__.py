"""Make the spam model: python -m spam_training CORPORA [OPTIONS], what `make model` calls.

Interrupted, it goes on where it was; --seconds makes pieces of it.
"""

import os
import time
from pathlib import Path

import click
import numpy as np
import torch
from torch import multiprocessing

from sluice import cli
from sluice.faults import TRY_AGAIN
from sluice.system.files import check_target

from . import begun, card, corpora, export, halves, judge, loop, prepare
from .halves import say
from .net import Shape

PACKAGE = Path(__file__).resolve().parents[1] / "sluice"
TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}{% if message['role'] == 'user' %}<|user|>\n{{"
    " message['content'] }}</s>{% else %}<|assistant|>\n{{ message['content'] }}</s>{% endif %}{%"
    " endfor %}{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
)


@click.command(context_settings={"show_default": True, "help_option_names": ["-h", "--help"]})
@click.argument("folder", type=click.Path(exists=True, file_okay=False))
@click.option(
    "--work",
    default="build/model",
    type=click.Path(file_okay=False),
    help="Folder for what is kept between pieces.",
)
@click.option(
    "--out",
    default=str(PACKAGE / "data"),
    type=click.Path(file_okay=False),
    help="Folder for spam.gguf, its card and its curve.",
)
@click.option(
    "--question",
    default=str(PACKAGE.parents[1] / "configs" / "spam.yaml"),
    type=click.Path(dir_okay=False),
    help="The question to write.",
)
@click.option(
    "--leave-out",
    multiple=True,
    type=click.Choice(corpora.NAMES),
    help="A corpus not to learn from; may be repeated.",
)
@click.option(
    "--begin",
    type=click.Path(exists=True, dir_okay=False),
    help="A model of this command, of as many layers or fewer: go on from it, with its vocabulary.",
)
@click.option(
    "--keep",
    default=0.0,
    type=cli.Number(0, 1),
    help="Share of the weights of --begin in those that are written.",
)
@click.option(
    "--encoder",
    is_flag=True,
    help=(
        "Let a pre-trained encoder teach as well, where a text is not among those it is tuned on"
        " (20 minutes more)."
    ),
)
@click.option(
    "--written",
    default=corpora.N_WRITTEN,
    type=click.IntRange(1),
    help="Texts to make of the templates.",
)
@click.option("--steps", default=12500, type=click.IntRange(0), help="Steps in all.")
@click.option("--layers", default=3, type=click.IntRange(1), help="Layers of the model.")
@click.option("--seed", default=1, type=click.IntRange(0))
@click.option("--seconds", default=1e9, help="Stop after this time; the next call goes on.")
@click.option("--threads", default=os.cpu_count(), type=click.IntRange(1))
@click.option("--date", default=time.strftime("%Y-%m-%d"), help="Date in the file.")
@click.option("--plain", is_flag=True, help="Without torch.compile, which needs a C++ compiler.")
@click.option(
    "--float32",
    is_flag=True,
    help="Products of f32 in place of bf16: faster on an Intel without AMX.",
)
def main(
    folder,
    work,
    out,
    question,
    leave_out,
    begin,
    keep,
    encoder,
    written,
    steps,
    layers,
    seed,
    seconds,
    threads,
    date,
    plain,
    float32,
):
    """Train on the corpora in FOLDER, judge, and write the model with its card."""
    if keep and not begin:
        raise click.UsageError("--keep: there is no --begin whose weights could be kept")
    os.makedirs(work, exist_ok=True)
    os.makedirs(out, exist_ok=True)
    path = f"{out}/spam.gguf"
    for target in (path, question):
        check_target(target, begin)
    begins = begun.read(begin, lambda n_vocab: Shape(n_vocab, n_layer=layers)) if begin else None
    source = folder, leave_out, begins, encoder
    torch.set_num_threads(threads)  # the encoder's as well
    p = prepare.load(work, *source, seed=seed, n_written=written, say=say, float32=float32)
    trainer = loop.Trainer(
        p, Shape(len(p.vocabulary[0]), n_layer=layers), steps, seed, compiled=False, float32=float32
    )
    trainer.resume(f"{work}/train.pt")
    if trainer.step < steps:
        shared = halves.Halves(trainer.shape)
        multiprocessing.spawn(
            halves.half,
            (
                shared,
                work,
                source,
                seed,
                written,
                steps,
                layers,
                seconds,
                max(1, threads // loop.N_HALF),
                not plain,
                float32,
            ),
            nprocs=loop.N_HALF,
        )
        trainer.resume(f"{work}/train.pt")
    if trainer.step < steps:
        say(f"step {trainer.step} of {steps}: call again to go on")
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
        "datasets": sorted({*p.corpus.tolist(), *(p.begun.datasets if p.begun else ())}),
    }
    weights = {name: x.numpy() for name, x in trainer.average.items()}
    if begins:
        weights = begun.kept(weights, begins, keep)
    meta = export.metadata(trainer.shape, p.vocabulary, general)
    meta["tokenizer.chat_template"] = ("string", TEMPLATE)
    export.write(path, meta, export.tensors(weights, trainer.shape))
    messages = list(corpora.messages(folder, leave_out, seed, written))
    finish(p, trainer, messages, work, out, path, question, date, keep)


def finish(p, trainer, messages, work, out, path, question, date, keep):
    """Judge the file, calibrate, and write what belongs to it."""
    validation = [m for m, val in zip(messages, p.is_val) if val]
    corpus, is_spam = p.corpus[p.is_val], p.is_spam[p.is_val]
    card.write_question(question, 1.0, 0.0, 0.5, 0.5)
    margin = judge.answers(path, question, validation)
    of_corpora = (corpus != "written") | (corpus == "written").all()
    # as the question has them
    scale, bias = (
        round(float(x), 4) for x in judge.calibrate(margin[of_corpora], is_spam[of_corpora])
    )
    score = judge.sigmoid(scale * margin + bias)
    yes, no = judge.thresholds(score[of_corpora], is_spam[of_corpora])
    card.write_question(question, scale, bias, yes, no)
    scores = {
        "sluice": score,
        "linear": judge.sigmoid(p.margin[p.is_val]),
        "bogofilter": judge.bogofilter(
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
        "begun": p.begun and p.begun.id,
        "begun_with": (
            ", ".join(card.NAMES.get(name, name) for name in p.begun.datasets) if p.begun else ""
        ),
        "keep": keep,
        "encoder": bool(p.joint),
        "seed": trainer.seed,
        "torch": torch.__version__,
        "prompt": "".join((*prepare.BEFORE, "MAIL", *prepare.AFTER)).replace("\n", "\\n"),
        "count": {name: int((p.corpus == name).sum()) for name in corpora.NAMES},
        "n_train": int((~p.is_val).sum()),
        "n_validation": int(p.is_val.sum()),
        "bogofilter": judge.bogofilter_version(),
    }
    card.write_card(f"{out}/spam.md", facts, scores, corpus, is_spam, yes, no)
    card.plot(
        f"{out}/spam-calibration.svg", score[of_corpora], is_spam[of_corpora], margin[of_corpora]
    )
    np.savez(f"{work}/validation.npz", margin=margin, score=score, is_spam=is_spam, corpus=corpus)
    for line in card.table(scores, corpus, is_spam):
        say(line)


if __name__ == "__main__":
    cli.run(main)
