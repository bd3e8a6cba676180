"""Say how well the bundled questions, and typed ones, do on tests/data/questions with real models.

    .venv/bin/python3 tests/helpers/question_figures.py

A line a question and model: accuracy of the most probable answer, mean AUC of the answers, median
mass of all answers, and how often each answer was the most probable one. The sentences are of this
project, written before any model saw them; the wordings of the typed questions were chosen on half
of them.
"""

import json
from collections import Counter
from pathlib import Path
from statistics import fmean, median

import real_models

from sluice.classify.classifier import Classifier
from sluice.question import question

ROOT = Path(__file__).parents[2]
DATA = ROOT / "tests" / "data" / "questions"
TYPED = {
    "urgent": {"type": "yesno", "question": "Is this message urgent?"},
    "language-is-english": {"type": "yesno", "question": "Is this text written in English?"},
    "sentiment": {
        "type": "choice",
        "question": "What is the feeling of the writer?",
        "answers": ["positive", "negative", "neutral"],
    },
    "teams": {
        "type": "choice",
        "question": "Which team should handle this message?",
        "answers": ["billing", "technical", "sales", "delivery"],
    },
    "severity": {
        "type": "score",
        "question": "How severe is this problem?",
        "levels": ["low", "medium", "high"],
    },
}


def labelled(name):
    """[(text, answer)] of a set."""
    lines = (DATA / f"{name}.jsonl").read_text().splitlines()
    return [(x["text"].encode(), x["answer"]) for x in map(json.loads, lines)]


def auc(pairs):
    """Area under the ROC curve. pairs: [(score, whether it should be high)]."""
    high, low = ([s for s, is_high in pairs if is_high == side] for side in (True, False))
    return fmean((a > b) + (a == b) / 2 for a in high for b in low)


def figures(q, path, texts):
    """(accuracy, AUC, mass, {answer: how often it was the most probable})."""
    c = Classifier(q, str(path), mass=True)
    c.prepare()
    verdicts = list(c.ask_many([text for text, _ in texts]))
    best = [max(v.scores, key=v.scores.get) for v in verdicts]
    areas = [
        auc([(v.scores[name], answer == name) for v, (_, answer) in zip(verdicts, texts)])
        for name in q.answers
    ]
    accuracy = fmean(a == b for a, (_, b) in zip(best, texts))
    return accuracy, fmean(areas), median(v.mass for v in verdicts), Counter(best)


def main():
    for model in (real_models.SMOLLM2, real_models.GEMMA3):
        for name in ("urgent", "sentiment", "language-is-english"):
            q = question.read(str(ROOT / "configs" / f"{name}.yaml"))
            show(f"bundled {name}", model, figures(q, model.path, labelled(name)))
        for name, tree in TYPED.items():
            q = question.Question(tree, name)
            show(f"typed {name}", model, figures(q, model.path, labelled(name)))


def show(name, model, found):
    accuracy, area, mass, counts = found
    print(f"{name:28} {model.file[:12]} {accuracy:.2f} {area:.2f} {mass:.4f} {dict(counts)}")


if __name__ == "__main__":
    main()
