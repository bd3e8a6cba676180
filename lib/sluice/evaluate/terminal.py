"""The report of an evaluation as text, for a terminal or a file."""

from __future__ import annotations

import math

from ..faults import one_line
from . import bootstrap, metrics

TYPE_CHECKING = False
if TYPE_CHECKING:
    import numpy as np

    from .bootstrap import Figure
    from .result import Result

TITLES = {
    "accuracy": "accuracy",
    "auc": "AUC",
    "brier": "Brier score",
    "log_loss": "log loss",
    "ece": "ECE",
    "coverage": "coverage",
    "accuracy_answered": "accuracy, answered",
    "precision": "precision",
    "recall": "recall",
    "f1": "F1",
}
NOTES = {
    "accuracy": 'of the most probable answer, "unsure" or not',
    "auc": "",
    "brier": "0 is perfect",
    "log_loss": "nats; 0 is perfect",
    "ece": f"{metrics.N_BINS} bins of equal width",
    "coverage": 'texts that are not "unsure"',
    "accuracy_answered": "of these",
}
MAX_COLUMNS = 12  # answers in a confusion matrix; of more, the most frequent confusions are listed
MAX_CONFUSIONS = 20
MAX_MISTAKES = 5


def report(r: Result) -> str:
    """The report of a Result, lines with newlines."""
    parts = [_head(r), _overall(r), _per_answer(r)]
    for i in range(len(r.systems)):
        parts.append(_confusion(r, i))
    if r.mistakes:
        parts.append(_mistakes(r))
    if r.curve:
        parts.append(_curve(r))
    parts.append(
        [f"{100 * bootstrap.LEVEL:g} % intervals: bootstrap, {bootstrap.RESAMPLES} resamples"]
    )
    return "\n".join("".join(line.rstrip() + "\n" for line in part) for part in parts)


def number(x: float, is_difference: bool = False) -> str:
    """A figure with three places."""
    return "-" if math.isnan(x) else f"{x:+.3f}" if is_difference else f"{x:.3f}"


def with_interval(f: Figure, is_difference: bool = False) -> str:
    """A figure and its interval: 0.951 (0.93 to 0.97)."""
    if math.isnan(f.low):
        return number(f.value, is_difference)
    low, high = number(f.low, is_difference), number(f.high, is_difference)
    return f"{number(f.value, is_difference)} ({low} to {high})"


def p_text(p: float) -> str:
    """A p value."""
    return f"{p:.4f}" if p >= 1e-4 else f"{p:.1e}"


def system_line(r: Result, i: int) -> str:
    """What was evaluated, in a line."""
    s = r.systems[i]
    return f"{one_line(s.label)}: question {one_line(s.question)}, model {one_line(s.model)}"


def counted(n: int, what: str) -> str:
    """1 text, 2 texts."""
    return f"{n} {what}{'s' * (n != 1)}"


def remarks(r: Result) -> list[str]:
    """Sentences on what the figures cannot say alone."""
    found = []
    for system, outcome in zip(r.systems, r.outcomes):
        most = r.most_errors(outcome)
        if most is not None:
            found.append(
                f"{one_line(system.label)}: no error in {counted(r.n_texts, 'text')}: its error"
                f" rate is at most {100 * most:.2g} % ({100 * bootstrap.LEVEL:g} % confidence)."
            )
    missing = [name for name, n in zip(r.answers, r.n_per_answer) if not n]
    if missing:
        found.append(f"no text is labelled {', '.join(missing[:20])}")
    if r.only_right is not None and r.p_value is not None:
        a, b = r.only_right
        first, second = (one_line(s.label) for s in r.systems)
        found.append(
            f"McNemar's exact test: {first} alone is right on {counted(a, 'text')}, {second} alone"
            f" on {b}; p = {p_text(r.p_value)}"
        )
    return found


def _head(r):
    lines = [counted(r.n_texts, "text") + (f", {r.n_bad} not classified" if r.n_bad else "")]
    if r.n_learned:
        lines[0] += f", {r.n_learned} of them learned: each is classified as if it had not been"
    return lines + [system_line(r, i) for i in range(len(r.systems))]


def _overall(r):
    rows = [
        ["", *(one_line(s.label) for s in r.systems)] + ["difference"] * (r.differences is not None)
    ]
    for name in metrics.OVERALL:
        row = [TITLES[name], *(with_interval(f[name, None]) for f in r.figures)]
        if r.differences is not None:
            row.append(with_interval(r.differences[name, None], True))
        rows.append(row)
    if len(r.systems) == 1:
        rows = [row + [NOTES[name]] for name, row in zip(metrics.OVERALL, rows[1:])]
    notes = remarks(r)
    return table(rows) + ([""] if notes else []) + notes


def _per_answer(r):
    names = ["precision", "recall", "f1"] + ["auc"] * (len(r.answers) > 2)
    lines = []
    for i, figures in enumerate(r.figures):
        title = "answer" if len(r.figures) == 1 else one_line(r.systems[i].label)
        rows = [[title, "texts", *(TITLES[n] for n in names)]]
        for a, answer in enumerate(r.answers):
            row = [with_interval(figures[n, a]) for n in names]
            rows.append([answer, str(r.n_per_answer[a]), *row])
        lines += ([""] if lines else []) + table(rows)
    return lines


def _confusion(r, i):
    cells, columns = r.outcomes[i].confusion(), [*r.answers, "unsure"]
    title = "" if len(r.systems) == 1 else f"{one_line(r.systems[i].label)}, "
    if len(r.answers) <= MAX_COLUMNS:
        rows = [[f"{title}correct", *columns]]
        rows += [[name, *map(str, row)] for name, row in zip(r.answers, cells)]
        return table(rows, right=True)
    most = confusions(cells)
    rows = [[f"{title}correct", "answer", "texts"]]
    rows += [[r.answers[a], columns[b], str(n)] for a, b, n in most]
    return table(rows)


def confusions(cells: np.ndarray) -> list[tuple[int, int, int]]:
    """The most frequent (correct answer, other answer or "unsure", texts), at most
    MAX_CONFUSIONS, of a confusion matrix.
    """
    found = [
        (a, b, int(n)) for a, row in enumerate(cells) for b, n in enumerate(row) if n and a != b
    ]
    return sorted(found, key=lambda x: -x[2])[:MAX_CONFUSIONS]


def _mistakes(r):
    rows = [["worst mistakes", "correct", "P", "most probable", "P"]]
    for m in r.mistakes[:MAX_MISTAKES]:
        best = r.answers[m.best] + " (unsure)" * m.is_unsure
        rows.append(
            [one_line(m.name), r.answers[m.right], number(m.p_right), best, number(m.p_best)]
        )
    return table(rows)


def _curve(r):
    from . import curve

    return [curve.note(r.curve), *table(curve.rows(r.curve), right=True)]


def table(rows: list[list[str]], right: bool = False) -> list[str]:
    """Rows of cells as aligned lines. right: columns behind the first are right-aligned."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    justify = str.rjust if right else str.ljust
    return [
        "  ".join(
            cell.ljust(width) if not i else justify(cell, width)
            for i, (cell, width) in enumerate(zip(row, widths))
        ).rstrip()
        for row in rows
    ]
