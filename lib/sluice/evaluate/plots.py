"""Plots of an evaluation by matplotlib, as SVG elements for the page.

Colours are those of the page's style, light or dark: a plot is drawn in placeholders, which become
its variables. Text stays text, in the page's font.
"""

from __future__ import annotations

import functools
import importlib.util
import io
import logging
import re
import sys
import warnings
from math import sqrt

import numpy as np

from ..faults import one_line, unsupported_error
from . import metrics

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .curve import Curve
    from .metrics import Outcome
    from .result import Result

INK, RULE, N_SERIES = "#010101", "#020202", 8
SERIES = [f"#0303{i:02x}" for i in range(N_SERIES)]
VARIABLES = {INK: "var(--ink)", RULE: "var(--rule)"} | {
    colour: f"var(--series-{i})" for i, colour in enumerate(SERIES)
}
SIZE = (4.0, 3.25)  # inches
N_RELIABILITY, N_HISTOGRAM = 10, 20  # bins
MAX_POINTS = 400  # of a curve
MAX_NAME = 30  # characters of an answer in a legend
Z = 1.959963984540054  # 97.5 % of the normal distribution
STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "text.parse_math": False,
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": RULE,
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "legend.frameon": False,
    "lines.linewidth": 1.6,
}


def check() -> None:
    """Raise UnsupportedError (69) if there is no matplotlib."""
    if importlib.util.find_spec("matplotlib") is None:
        raise unsupported_error(
            "--html",
            f"matplotlib is not installed; {sys.executable} -m pip install matplotlib, or"
            " sluice-lm with the extra plots",
        )


def draw(r: Result) -> list[tuple[str, str, str]]:
    """[(title, caption, SVG element)]."""
    is_binary = len(r.answers) == 2
    shown = _most_frequent(r)
    first = r.answers[0]
    each = (
        f"each of the {len(shown)} most frequent answers" if len(r.answers) > N_SERIES else "each"
    )
    against = f"the answer {first}" if is_binary else f"{each} against the rest"
    of = f"P({first})" if is_binary else "the highest probability"
    plots: list[tuple[str, str, Any]] = [
        (
            "ROC curve",
            f"True and false positives at every threshold, {against}. A dot: the threshold in use."
            if is_binary
            else f"True and false positives at every threshold, {against}.",
            lambda ax: _roc(ax, r, shown),
        ),
        (
            "Reliability",
            f"How often it is so, by {of}: {N_RELIABILITY} bins with 95 % intervals (Wilson); a"
            " larger dot has more texts. On the diagonal, probabilities are what they say.",
            lambda ax: _reliability(ax, r),
        ),
    ]
    scores = f"Number of texts by {of}; a logarithmic scale."
    for system, outcome in zip(r.systems, r.outcomes):
        name = "" if len(r.systems) == 1 else f", {one_line(system.label)}"
        paint = functools.partial(_histogram, r=r, outcome=outcome)
        plots.append((f"Scores{name}", scores, paint))
    return _drawn(plots, "plot")


def draw_curve(curve: Curve) -> list[tuple[str, str, str]]:
    """[(title, caption, SVG element)] of the learning curve."""
    plots: list[tuple[str, str, Any]] = [
        (
            title,
            f"{what} after so many learned texts; a logarithmic scale.",
            functools.partial(_learning, curve=curve, figure=figure, name=name),
        )
        for title, what, figure, name in (
            ("Learning: accuracy", "Accuracy", "accuracy", "accuracy"),
            ("Learning: AUC", "Area under the ROC curve", "auc", "AUC"),
        )
    ]
    return _drawn(plots, "learning")


def _drawn(plots, id):
    import matplotlib

    matplotlib.use("Agg")
    logging.getLogger("matplotlib").setLevel(logging.ERROR)  # "building the font cache", and such
    with matplotlib.rc_context(STYLE), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a letter that the font lacks: the browser has another
        return [
            (title, caption, _svg(paint, f"{id}{i}", title))
            for i, (title, caption, paint) in enumerate(plots)
        ]


def _most_frequent(r):
    """The answers that a plot of all shows: indices."""
    if len(r.answers) == 2:
        return [0]
    order = sorted(range(len(r.answers)), key=lambda a: -r.n_per_answer[a])
    return sorted(a for a in order[:N_SERIES] if 0 < r.n_per_answer[a] < r.n_texts)


def _svg(paint, id, title):
    import matplotlib
    from matplotlib.figure import Figure

    figure = Figure(figsize=SIZE, layout="constrained")
    ax = figure.add_subplot()
    paint(ax)
    out = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": id}):
        figure.savefig(
            out, format="svg", transparent=True, metadata={"Date": None, "Creator": None}
        )
    return _inline(out.getvalue(), id, title)


def _inline(svg: str, id: str, title: str) -> str:
    """An SVG file as an element of a page, in the page's colours."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<!--.*?-->|<metadata>.*?</metadata>|<style.*?</style>", "", svg, flags=re.S)
    # two places are enough for coordinates; text between the elements keeps its numbers
    svg = re.sub(r"<[^>]*>", lambda tag: re.sub(r"(\.\d\d)\d+", r"\1", tag[0]), svg)
    svg = re.sub(r"\n\s*", "\n", svg)
    svg = re.sub(r'\bid="', f'id="{id}-', svg)
    svg = re.sub(r'(url\(#|href="#)', rf"\1{id}-", svg)
    svg = re.sub(r"#0[123]0[123][0-9a-f]{2}", lambda m: VARIABLES.get(m[0], m[0]), svg)
    box = re.search(r'viewBox="[^"]*"', svg)
    end = svg.index(">")
    head = f'<svg {box[0] if box else ""} role="img" aria-label="{title}"'
    return head + svg[end:]


def _square(ax, x, y):
    ax.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), xlabel=x, ylabel=y)
    ax.plot([0, 1], [0, 1], color=INK, linewidth=0.8, linestyle=(0, (2, 3)))


def _roc(ax, r: Result, shown: list[int]) -> None:
    _square(ax, "false positives", "true positives")
    many = len(r.outcomes) > 1
    for i, (system, outcome) in enumerate(zip(r.systems, r.outcomes)):
        for n, a in enumerate(shown):
            positive = outcome.right == a
            if positive.all() or not positive.any():
                continue
            x, y = metrics.roc(outcome.p[:, a], positive)
            auc = r.figures[i]["auc", a].value
            name = system.label if len(r.answers) == 2 else r.answers[a]
            if many and len(r.answers) > 2:
                name += f", {system.label}"
            colour = SERIES[i if len(r.answers) == 2 else n]
            x, y = _thinned(x, y)
            style = "--" if i and len(r.answers) > 2 else "-"
            ax.plot(x, y, color=colour, label=f"{_cut(name)} (area {auc:.3f})", linestyle=style)
            if len(r.answers) == 2:
                given = outcome.answered == a
                ax.plot(
                    [given[~positive].mean()], [given[positive].mean()], "o", color=colour, ms=5
                )
    _legend(ax, 1 if len(shown) * len(r.systems) < 4 else 2)


def _thinned(x, y):
    """At most MAX_POINTS points of a curve, corners first."""
    bends = np.r_[True, (np.diff(x)[1:] != 0) != (np.diff(x)[:-1] != 0), True]
    at = np.flatnonzero(bends)
    if len(at) > MAX_POINTS:
        at = at[np.unique(np.linspace(0, len(at) - 1, MAX_POINTS).astype(int))]
    return x[at], y[at]


def _reliability(ax, r: Result) -> None:
    first = r.answers[0]
    is_binary = len(r.answers) == 2
    what = (f"P({_cut(first)})", f"share of {_cut(first)}")
    _square(ax, *(what if is_binary else ("highest probability", "share of correct answers")))
    for i, (system, outcome) in enumerate(zip(r.systems, r.outcomes)):
        p, is_true = scored(outcome)
        points = metrics.reliability(p, is_true, N_RELIABILITY)
        mean = [m for m, _, _ in points]
        share = [s for _, s, _ in points]
        intervals = [wilson(s, n) for _, s, n in points]
        error = [
            [max(0.0, s - low) for s, (low, _) in zip(share, intervals)],
            [max(0.0, high - s) for s, (_, high) in zip(share, intervals)],
        ]
        n = [count for _, _, count in points]
        ax.errorbar(mean, share, yerr=error, color=SERIES[i], fmt="none", elinewidth=0.9)
        ax.plot(mean, share, color=SERIES[i], linewidth=0.8, alpha=0.35)
        size = [8 + 72 * count / max(n) for count in n]  # the area is the number of texts
        label = _cut(system.label)
        ax.scatter(mean, share, size, color=SERIES[i], linewidths=0, zorder=3, label=label)
    if len(r.systems) > 1:
        _legend(ax, 1)


def _histogram(ax, r: Result, outcome: Outcome) -> None:
    p, is_true = scored(outcome)
    if len(r.answers) == 2:
        names = [f"correct: {_cut(name)}" for name in r.answers]
        ax.set(xlabel=f"P({_cut(r.answers[0])})", ylabel="texts")
    else:
        names = ["correct", "wrong"]
        ax.set(xlabel="highest probability", ylabel="texts")
    edges = np.linspace(0, 1, N_HISTOGRAM + 1)
    width = 0.5 / N_HISTOGRAM
    for i, (name, part) in enumerate(zip(names, (is_true, ~is_true))):
        where = metrics.bins(p[part], N_HISTOGRAM)
        n = np.bincount(where, minlength=N_HISTOGRAM)
        ax.bar(
            edges[:-1] + i * width,
            n,
            width,
            align="edge",
            color=SERIES[i],
            label=name,
            linewidth=0,
        )
    ax.set_xlim(0, 1)
    ax.set_yscale("log")
    ax.set_ylim(0.7, None)
    ax.yaxis.set_major_formatter("{x:g}")
    ax.grid(axis="x", visible=False)
    _legend(ax, 2)


def _learning(ax, curve: Curve, figure: str, name: str) -> None:
    n = [p.n for p in curve.points]
    for i, system in enumerate(curve.systems):
        y = [getattr(p, figure)[system] for p in curve.points]
        ax.plot(n, y, color=SERIES[i], marker="o", ms=4, label=system)
    ax.set(xlabel="texts learned", ylabel=name, xscale="log")
    ax.set_xticks(n, [str(x) for x in n])
    ax.minorticks_off()
    _legend(ax, len(curve.systems))


def _legend(ax, n_columns):
    """A legend above the plot, where it hides nothing."""
    if ax.get_legend_handles_labels()[0]:
        ax.legend(loc="lower left", bbox_to_anchor=(-0.02, 1), ncols=n_columns, fontsize=8.5)


def scored(outcome: Outcome) -> tuple[np.ndarray, np.ndarray]:
    """(probabilities float64 [n], whether they are of what is true, bool [n]): for two answers
    those of the first, for more those of the most probable one.
    """
    if outcome.n_answers == 2:
        return outcome.p[:, 0], outcome.right == 0
    return outcome.p_best, outcome.is_right


def wilson(share: float, n: int) -> tuple[float, float]:
    """The 95 % interval of a share of n (Wilson 1927)."""
    centre = (share + Z * Z / (2 * n)) / (1 + Z * Z / n)
    half = Z / (1 + Z * Z / n) * sqrt(share * (1 - share) / n + Z * Z / (4 * n * n))
    return centre - half, centre + half


def _cut(name: str) -> Any:
    return name if len(name) <= MAX_NAME else name[: MAX_NAME - 1] + "…"
