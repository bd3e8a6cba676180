"""Write a trained model's question file, model card and calibration curve."""

from __future__ import annotations

from typing import Any

import numpy as np

from sluice.system import files

from . import augmentation, evaluate, mailing_lists, prepare

CORPORA = {  # corpus: its origin and licence, as the card states them
    "spamassassin": (
        "The public Apache SpamAssassin corpus, 2002-2003, whole mails with headers; as"
        " stdlib-js/datasets-spam-assassin publishes it (database PDDL 1.0, contents CC0 1.0)."
    ),
    "enron": (
        'Enron-Spam, "preprocessed" form: V. Metsis, I. Androutsopoulos and G. Paliouras, "Spam'
        ' Filtering with Naive Bayes - Which Naive Bayes?", CEAS 2006. Distributed publicly by its'
        " authors, no licence stated; none of its text is in this project."
    ),
    "ling": (
        'Ling-Spam, "bare": I. Androutsopoulos, J. Koutsias, K. V. Chandrinos, G. Paliouras and C.'
        ' D. Spyropoulos, "An Evaluation of Naive Bayesian Anti-Spam Filtering", workshop on'
        " Machine Learning in the New Information Age, ECML 2000: mails of the Linguist List, and"
        " spam one of the authors received. Use and origin are acknowledged here as its readme"
        " asks; none of its text is in this project."
    ),
    "sms": (
        "SMS Spam Collection v.1: T. A. Almeida and J. M. Gomez Hidalgo, UCI Machine Learning"
        " Repository (CC BY 4.0)."
    ),
    "written": (
        "Templates written for this project (lib/spam_training/templates, MIT): ham and spam of"
        " today's kinds, which the others lack."
    ),
}
NAMES = {
    "all": "all but templated",
    "spamassassin": "SpamAssassin",
    "enron": "Enron-Spam",
    "ling": "Ling-Spam",
    "sms": "SMS",
    "written": "templated",
}


def write_question(path: str, scale: float, bias: float, yes: float, no: float) -> None:
    """Write the bundled question about spam: prompt as trained, calibration, thresholds.

    scale, bias: of the calibration. yes, no: minimum probabilities, 0.5 to 1.
    """
    prompt = (
        "".join(
            f'  - special: "{part}"\n' if part.startswith("<") else f"  - text: {_quoted(part)}\n"
            for part in prepare.BEFORE
        )
        + "  - input\n"
        + "".join(
            f'  - special: "{part}"\n' if part.startswith("<") else f"  - text: {_quoted(part)}\n"
            for part in prepare.AFTER
        )
    )
    text = f"""\
# Is this message spam? For the bundled model. `make model` writes this file, with calibration and
# thresholds.
# Good for tagging English mail: spam.md beside the model has figures on four corpora; on mail of
# other times and sources it errs more (lib/spam_training/README.md). Chat models lack its tokens.
model: spam.gguf
input: {{kind: mail, fold: true, head_ids: {augmentation.N_HEAD}, tail_ids: {augmentation.N_TAIL}}}
prompt:
{prompt}answers: {{"yes": ["yes"], "no": ["no"]}}
aliases: {{spam: "yes", ham: "no"}}
tokenisations: canonical
thresholds: {{"yes": {yes:.4f}, "no": {no:.4f}}}
calibration: {{scale: {scale:.4f}, bias: {{"yes": {bias:.4f}}}}}
"""
    files.write(path, lambda f: f.write(text.encode()))


def _quoted(text):
    return '"' + text.replace("\n", "\\n") + '"'


def groups(corpus: np.ndarray) -> list[tuple[str, np.ndarray]]:
    """[(name, bool [n])]: all but the templated texts, then each corpus that is present."""
    return [("all", corpus != "written")] * bool((corpus != "written").any()) + [
        (name, corpus == name) for name in CORPORA if (corpus == name).any()
    ]


def table(
    scores: dict[str, np.ndarray | None], corpus: np.ndarray, is_spam: np.ndarray
) -> list[str]:
    """Lines of Markdown: a row per corpus and classifier.

    scores: {classifier: float64 [n], probabilities of spam, or None}. corpus: str [n]. is_spam:
    bool [n].
    """
    lines = [
        (
            "| messages | classifier | n | accuracy | precision | recall | F1 | ROC AUC | recall at"
            " 0.1 % false positives |"
        ),
        "| --- | --- " + "| ---: " * 7 + "|",
    ]
    everything = (corpus != "written") | (corpus == "written").all()
    for name, part in groups(corpus):
        for classifier, p in scores.items():
            if p is not None:
                rare = evaluate.threshold_at(p[everything], is_spam[everything], 0.001)
                f = evaluate.metrics(p[part], is_spam[part], rare=rare)
                lines.append(
                    f"| {NAMES[name]} | {classifier} | {f['n']} | {f['accuracy']:.4f} |"
                    f" {f['precision']:.4f} | {f['recall']:.4f} | {f['f1']:.4f} | {f['auc']:.5f} |"
                    f" {f['rare']:.3f} |"
                )
    return lines


def write_card(
    path: str,
    facts: dict[str, Any],
    scores: dict[str, np.ndarray | None],
    corpus: np.ndarray,
    is_spam: np.ndarray,
    yes: float,
    no: float,
) -> None:
    """Write the model card.

    facts: {name: value} as used below. scores, corpus, is_spam: as for table(). yes, no: the
    thresholds.
    """
    p = scores["sluice"]
    everything = (corpus != "written") | (corpus == "written").all()
    rare = evaluate.threshold_at(p[everything], is_spam[everything], 0.001)
    rows = [
        f"| {NAMES[name]} | {wrong:.4f} | {unsure:.4f} |"
        for name, part in groups(corpus)
        for wrong, unsure in [evaluate.error_rates(p[part], is_spam[part], yes, no)]
    ]
    real = p[everything], is_spam[everything]
    curve = [
        f"| {mean:.3f} | {share:.3f} | {n} |" for mean, share, n in evaluate.reliability(*real)
    ]
    used = "\n".join(
        f"- **{NAMES[name]}** ({int(facts['count'][name])} texts): {CORPORA[name]}"
        for name in CORPORA
        if facts["count"].get(name)
    )
    mean = (
        f" The weights are an average: {100 * facts['keep']:g} % those of that model, the"
        " rest the trained ones."
        if facts["keep"]
        else ""
    )
    origin = (
        f"""
The initial checkpoint is model {facts["initial"]}, which was trained on
{facts["initial_datasets"]}. The validation texts are the same if corpora, templates, seed and
numbers of texts were. The card of that model names its teachers.{mean}
"""
        if facts["initial"]
        else ""
    )
    if facts["encoder"]:
        origin += """
The encoder all-MiniLM-L6-v2 (Apache-2.0; Wang et al. 2020, Reimers & Gurevych 2019) was a teacher
next to the linear models. It was tuned on a third of the same texts. Its vectors chose the synonyms
for augmentation. The file has no weight of it.
"""
    with open(path, "w", encoding="utf-8") as f:
        f.write(f"""# spam.gguf: is this mail spam?

A Llama of {facts["n_parameter"] / 1e6:.2f} million parameters ({facts["n_layer"]} layers of width
256, vocabulary {facts["n_vocab"]}, Q8_0, {facts["n_bytes"]:,} bytes) that answers `yes` or `no`
after `{facts["prompt"]}`. MAIL is the output of `mail-text --fold`, its first
{augmentation.N_HEAD} and last {augmentation.N_TAIL} tokens. Made by `make model` on {facts["date"]}
({facts["n_step"]} steps{f" from model {facts['initial']}" if facts["initial"] else ""}, seed
{facts["seed"]}, torch {facts["torch"]}). Weights: MIT, as the project.

## Not for

Rejecting mail automatically: the model makes errors, more of them on mail of other times and
sources than its training data (lib/spam_training/README.md has figures). Calibrate on mail of your
own before you trust a verdict. The ham of the corpora is from 1997 to 2006 and mostly English; much
of it is from two mailing-list communities and one company. Only templates written for this project
resemble the mail of today. The model reads text: no sender reputation, no attachments, no pictures.
A sender who knows the model can evade it.

## Training data

{used}

Near-duplicates (MinHash, Jaccard 0.5) lie on one side of the split: {facts["n_train"]} texts for
training, {facts["n_validation"]} for validation. The validation texts of the corpora chose
calibration and thresholds; the templated ones did not. The figures below are measured on these
validation texts, so they flatter. {100 * mailing_lists.P_RESENT:.0f} % of the training texts, the
same share of both labels, are changed as a mailing list would resend them.
{origin}
## Figures

`sluice`: this file, through the code of `classify`. `linear`: TF-IDF and logistic regression on the
tokens of the same text, on pairs of neighbours, and on tokens by header line. `bogofilter`:
{facts["bogofilter"]}, trained on the same messages, unchanged. The last column's threshold calls
0.1 % of the ham spam, templated ham excluded: {rare:.5f} for sluice.

{chr(10).join(table(scores, corpus, is_spam))}

Two thresholds (yes from {yes:.3f}, no from {no:.3f}); between them the answer is `unsure`:

| messages | wrong, of what is called yes or no | unsure |
| --- | ---: | ---: |
{chr(10).join(rows)}

Calibration (`spam-calibration.svg`): share of spam among the messages with about this probability,
templated ones excluded:

| probability | spam | n |
| ---: | ---: | ---: |
{chr(10).join(curve)}
""")


def plot(path: str, p: np.ndarray, is_spam: np.ndarray, logit: np.ndarray) -> None:
    """Draw the calibration curve as SVG, before and after calibration.

    p: float64 [n], calibrated probabilities. logit: float64 [n], before calibration.
    """
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams.update({"svg.hashsalt": "sluice", "font.size": 9})
    from matplotlib import pyplot

    figure, axis = pyplot.subplots(figsize=(4.2, 4))
    axis.plot([0, 1], [0, 1], color="0.7", linewidth=1)
    for name, q, style in (
        ("as the logits say", evaluate.sigmoid(np.asarray(logit)), "o--"),
        ("calibrated", p, "o-"),
    ):
        mean, share, _ = zip(*evaluate.reliability(q, is_spam))
        axis.plot(mean, share, style, label=name, markersize=4)
    axis.set(xlabel="probability of spam", ylabel="share that is spam", xlim=(0, 1), ylim=(0, 1))
    axis.legend()
    figure.tight_layout()
    figure.savefig(path, format="svg", metadata={"Date": None})
