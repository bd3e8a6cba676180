"""What is written about a trained model: its question with the calibration, its card, its
calibration curve.
"""

import numpy as np

from sluice.system import files

from . import judge, lists, prepare, views

CORPORA = {  # as the card names them: what, where from, on what terms
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
        "Templates written for this project (lib/spam_training/written, MIT): ham and spam of"
        " today's kinds, which the others lack."
    ),
}
NAMES = {
    "all": "all but written",
    "spamassassin": "SpamAssassin",
    "enron": "Enron-Spam",
    "ling": "Ling-Spam",
    "sms": "SMS",
    "written": "written",
}


def write_question(path, scale, bias, yes, no):
    """The shipped question about spam: prompt as trained, calibration, thresholds."""
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
model: spam.gguf
input: {{kind: mail, fold: true, head_ids: {views.HEAD_IDS}, tail_ids: {views.TAIL_IDS}}}
prompt:
{prompt}answers: {{"yes": ["yes"], "no": ["no"]}}
tokenisations: canonical
thresholds: {{"yes": {yes:.4f}, "no": {no:.4f}}}
calibration: {{scale: {scale:.4f}, bias: {{"yes": {bias:.4f}}}}}
"""
    files.write(path, lambda f: f.write(text.encode()))


def _quoted(text):
    return '"' + text.replace("\n", "\\n") + '"'


def groups(corpus):
    """[(name, bool [n])]: all but the written texts, then each corpus that is there."""
    return [("all", corpus != "written")] * bool((corpus != "written").any()) + [
        (name, corpus == name) for name in CORPORA if (corpus == name).any()
    ]


def table(scores, corpus, is_spam):
    """Lines of Markdown: a row per corpus and classifier. scores: {classifier: probabilities or
    None}.
    """
    lines = [
        (
            "| mail | classifier | n | accuracy | precision | recall | F1 | ROC AUC | recall at 0.1"
            " % false positives |"
        ),
        "| --- | --- " + "| ---: " * 7 + "|",
    ]
    everything = (corpus != "written") | (corpus == "written").all()
    for name, part in groups(corpus):
        for who, p in scores.items():
            if p is not None:
                rare = judge.threshold_at(p[everything], is_spam[everything], 0.001)
                f = judge.figures(p[part], is_spam[part], rare=rare)
                lines.append(
                    f"| {NAMES[name]} | {who} | {f['n']} | {f['accuracy']:.4f} |"
                    f" {f['precision']:.4f} | {f['recall']:.4f} | {f['f1']:.4f} | {f['auc']:.5f} |"
                    f" {f['rare']:.3f} |"
                )
    return lines


def write_card(path, facts, scores, corpus, is_spam, yes, no):
    """The model card. facts: what only the caller knows, by the names used below."""
    p = scores["sluice"]
    everything = (corpus != "written") | (corpus == "written").all()
    rare = judge.threshold_at(p[everything], is_spam[everything], 0.001)
    rows = [
        f"| {NAMES[name]} | {wrong:.4f} | {unsure:.4f} |"
        for name, part in groups(corpus)
        for wrong, unsure in [judge.decided(p[part], is_spam[part], yes, no)]
    ]
    real = p[everything], is_spam[everything]
    curve = [f"| {mean:.3f} | {share:.3f} | {n} |" for mean, share, n in judge.reliability(*real)]
    used = "\n".join(
        f"- **{NAMES[name]}** ({int(facts['count'][name])} texts): {CORPORA[name]}"
        for name in CORPORA
        if facts["count"].get(name)
    )
    mean = (
        f" The weights are the mean of that model's ({100 * facts['keep']:g} %) and of those"
        " learnt."
        if facts["keep"]
        else ""
    )
    begun = (
        f"""
It goes on from model {facts["begun"]}, which learnt from {facts["begun_with"]}, with the same texts
kept for validation where corpora, templates, seed and numbers of texts were the same; what taught
that model besides, its own card says.{mean}
"""
        if facts["begun"]
        else ""
    )
    if facts["encoder"]:
        begun += """
Beside linear models the encoder all-MiniLM-L6-v2 (Apache-2.0; Wang et al. 2020, Reimers & Gurevych
2019) was its teacher, tuned on a third of the same texts, and said which words are near in meaning,
some of which took others' place in what was shown; no weight of it is in the file.
"""
    with open(path, "w", encoding="utf-8") as f:
        f.write(f"""# spam.gguf: is this mail spam?

A Llama of {facts["n_parameter"] / 1e6:.2f} million parameters ({facts["n_layer"]} layers of width
256, vocabulary {facts["n_vocab"]}, Q8_0, {facts["n_bytes"]:,} bytes) that answers `yes` or `no`
after `{facts["prompt"]}`. MAIL is what `mail-text --fold` prints, the first {views.HEAD_IDS} and
the last {views.TAIL_IDS} ids of it. Made by `make model` on {facts["date"]}
({facts["n_step"]} steps{f" more of model {facts['begun']}" if facts["begun"] else ""}, seed
{facts["seed"]}, torch {facts["torch"]}). Weights: MIT, as the project.

## Not for

Rejecting mail without a person to look: it is wrong now and then, and mail of other times and
places than its training mail is harder than the figures say: lib/spam_training/README.md shows how
much. Calibrate on mail of your own before you trust a verdict. The ham of the corpora is from 1997
to 2006, mostly English, much of it of two mailing-list communities and one company; what there is
of today's mail are templates written for this project. It reads text only: no sender reputation, no
attachment, no picture. A sender who knows it can get around it.

## Learnt from

{used}

Near twins (MinHash, Jaccard of 0.5) stay on one side: {facts["n_train"]} texts for training,
{facts["n_validation"]} for validation, which chose the calibration and the thresholds (those of the
corpora alone, not the written). The figures below are of these validation texts, so they flatter.
{100 * lists.P_LISTED:.0f} % of the texts for training, of both labels alike, are shown as a mailing
list would have sent them on.
{begun}
## Figures

`sluice`: this file, through the code of `classify`. `linear`: TF-IDF with logistic regression of
the ids of the same text, of pairs of neighbours among them, and of ids by the line of the head they
stand in. `bogofilter`: {facts["bogofilter"]}, taught the same mails as they came. The last column's
threshold is the one for 0.1 % of all ham but the written: {rare:.5f} of sluice.

{chr(10).join(table(scores, corpus, is_spam))}

Two thresholds (yes from {yes:.3f}, no from {no:.3f}); between them the answer is `unsure`:

| mail | wrong, of what is called yes or no | unsure |
| --- | ---: | ---: |
{chr(10).join(rows)}

Calibration (`spam-calibration.svg`): of the mails but the written with about this probability, this
share is spam:

| probability | spam | n |
| ---: | ---: | ---: |
{chr(10).join(curve)}
""")


def plot(path, p, is_spam, margin):
    """The calibration curve as SVG: before (logits as they are) and after calibration."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams.update({"svg.hashsalt": "sluice", "font.size": 9})
    from matplotlib import pyplot

    figure, axis = pyplot.subplots(figsize=(4.2, 4))
    axis.plot([0, 1], [0, 1], color="0.7", linewidth=1)
    for name, q, style in (
        ("as the logits say", judge.sigmoid(np.asarray(margin)), "o--"),
        ("calibrated", p, "o-"),
    ):
        mean, share, _ = zip(*judge.reliability(q, is_spam))
        axis.plot(mean, share, style, label=name, markersize=4)
    axis.set(xlabel="probability of spam", ylabel="share that is spam", xlim=(0, 1), ylim=(0, 1))
    axis.legend()
    figure.tight_layout()
    figure.savefig(path, format="svg", metadata={"Date": None})
