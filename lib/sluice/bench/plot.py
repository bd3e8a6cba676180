"""Plot rows: tokens/s against depth, and operations/s by type and instruction set."""

from __future__ import annotations

import importlib.util
import io
import os
import re
from collections.abc import Callable
from typing import Any

from ..faults import USAGE, Error, unsupported_error
from ..system import files

FORMATS = (".svg", ".png", ".pdf")
WIDTH, HEIGHT = 9.0, 3.4  # inches, of a panel
STYLE: dict[Any, Any] = {
    # the same bytes from the same rows; text as text
    "svg.hashsalt": "sluice",
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.edgecolor": "#666666",
    "xtick.color": "#444444",
    "ytick.color": "#444444",
    "axes.grid": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "legend.fontsize": 8,
}
SETS = {
    "reference": "#bdbdbd",
    "avx2": "#9ecae1",
    "avx-vnni": "#6baed6",
    "avx512": "#2171b5",
    "amx": "#08306b",
    "neon": "#74c476",
    "i8mm": "#00692b",
}  # light to dark is slow to fast
LINES = ("#1b6ca8", "#d1495b", "#3a7d44", "#e08e0b", "#6a4c93", "#00798c", "#8d5524", "#555555")
OTHERS = "#a65628"  # other backends


def check(path: str, from_options: object = True) -> None:
    """Error 64, 69, 73 or 75: write() could not write `path`. drawn: whether rows can be drawn."""
    if not from_options:
        raise Error(
            USAGE, "--plot: nothing to draw: --start has no plot, and there are no other tests"
        )
    if os.path.splitext(path)[1] not in FORMATS:
        raise Error(
            USAGE, f"--plot: {path}: unknown format; use a name that ends in {', '.join(FORMATS)}"
        )
    if importlib.util.find_spec("matplotlib") is None:
        raise unsupported_error("--plot", "matplotlib is not installed (pip install matplotlib)")
    files.check_target(path)


def write(path: str, rows: list[dict]) -> None:
    """Draw `rows` of measure.py or matmul.py; the suffix of `path` is the format."""
    import matplotlib

    matplotlib.use("Agg")
    with matplotlib.rc_context(STYLE):
        figure = _figure(panels(rows))
        out = io.BytesIO()
        kind = os.path.splitext(path)[1][1:]
        figure.savefig(
            out, format=kind, facecolor="white", metadata={"Date": None} if kind == "svg" else None
        )
    data = _smaller(out.getvalue()) if kind == "svg" else out.getvalue()
    files.write(path, lambda f: f.write(data))


def _smaller(svg):
    """`svg` (bytes) without comments and indentation, numbers rounded to 0.01 point."""
    return re.sub(
        rb"(\.\d\d)\d+",
        rb"\1",
        re.sub(rb"\n\s+", rb"\n", re.sub(rb"<!--.*?-->", b"", svg, flags=re.S)),
    )


def panels(rows: list[dict]) -> list[list[Callable[..., None]]]:
    """[[paint(axes), ...] of each line of the figure].

    With several depths, tokens/s of prompts and of generations; then bars for each size of product,
    and for prompts if there are several backends or nothing else.
    """
    runs = [r for r in rows if "n_depth" in r and not r["test"].startswith("start")]
    prompts = [r for r in runs if r["n_prompt"] and not r["n_depth"]]
    out: list[Any] = []
    bars: dict[str, list[dict]] = {}
    if len({r["n_depth"] for r in runs}) > 1 or runs and not prompts:
        out.append(
            [
                lambda ax, k=k: _depths(ax, [r for r in runs if r[k]])
                for k in ("n_prompt", "n_gen")
                if any(r[k] for r in runs)
            ]
        )
    if len({r["backend"] for r in prompts}) > 1 or not out:
        for r in prompts:
            bars.setdefault(f"Prompt of {r['n_prompt']} tokens", []).append(r)
    for r in rows:
        if "m" in r:
            bars.setdefault(f"{r['m']} x {r['n']} x {r['k']}", []).append(r)
    return out + [
        [lambda ax, title=title, some=some: _bars(ax, title, some)] for title, some in bars.items()
    ]


def _figure(lines):
    from matplotlib import pyplot

    figure = pyplot.figure(figsize=(WIDTH, HEIGHT * max(1, len(lines))), layout="constrained")
    for part, line in zip(figure.subfigures(max(1, len(lines)), 1, squeeze=False)[:, 0], lines):
        for ax, paint in zip(part.subplots(1, len(line), squeeze=False)[0], line):
            paint(ax)
    return figure


def _depths(ax, rows):
    """A line for each test, type, backend and number of threads; common values are in the title."""
    parts = [
        (r["test"].split(" @ ")[0], r["model_type"], r["backend"], f"{r['n_threads']} threads")
        for r in rows
    ]
    fixed = [len(set(column)) == 1 for column in zip(*parts)]
    lines = {}
    for part, r in zip(parts, rows):
        lines.setdefault(" ".join(p for p, same in zip(part, fixed) if not same), []).append(r)
    colours = {}  # the same for sluice and a peer
    for label, points in lines.items():
        points.sort(key=lambda r: r["n_depth"])
        key = (
            points[0]["model_type"],
            points[0]["n_prompt"],
            points[0]["n_gen"],
            points[0]["n_threads"],
            points[0]["isa"],
        )
        colour = colours.setdefault(key, LINES[len(colours) % len(LINES)])
        ours = points[0]["backend"].startswith("sluice")
        ax.errorbar(
            [r["n_depth"] for r in points],
            [r["median_ts"] for r in points],
            [r["spread_ts"] for r in points],
            color=colour,
            marker="o",
            markersize=4,
            linewidth=1.6,
            capsize=2,
            linestyle="-" if ours else "--",
            label=label or parts[0][0],
        )
    ax.set(
        title=", ".join(p for p, same in zip(parts[0], fixed) if same),
        xlabel="tokens in the cache before",
        ylabel="tokens a second",
    )
    ax.set_ylim(bottom=0)
    ax.yaxis.set_major_formatter("{x:,.0f}")
    if len(lines) > 1:
        ax.legend()


def _bars(ax, title, rows):
    """Bars by type, one for each backend and number of threads; numpy's BLAS is a line."""
    threads = {r["n_threads"] for r in rows}
    of, blas = {}, [r["blas_gflops"] for r in rows if r.get("blas_gflops")]
    for r in rows:
        name = r["backend"].removeprefix("sluice ") + (
            f", {r['n_threads']} threads" if len(threads) > 1 else ""
        )
        of.setdefault(name, {"isa": r["isa"] if r["backend"].startswith("sluice") else None})[
            r.get("type") or r["model_type"]
        ] = r["gflops"]
    types = list(dict.fromkeys(r.get("type") or r["model_type"] for r in rows))
    order = sorted(
        of,
        key=lambda name: (
            [*SETS, None].index(of[name]["isa"]) if of[name]["isa"] in SETS else len(SETS)
        ),
    )
    width = 0.84 / len(of)
    for i, name in enumerate(order):
        ax.bar(
            [j + (i - (len(of) - 1) / 2) * width for j in range(len(types))],
            [of[name].get(t, 0) for t in types],
            width * 0.95,
            color=SETS.get(of[name]["isa"], OTHERS),
            label=name,
        )
    if blas:
        ax.axhline(
            sorted(blas)[len(blas) // 2],
            color="#d1495b",
            linewidth=1.2,
            linestyle="--",
            label="numpy's BLAS, f32",
        )
    ax.set(
        title=title + (f", {min(threads)} threads" if len(threads) == 1 else ""),
        ylabel="GFLOP/s",
        xticks=range(len(types)),
        xticklabels=types,
    )
    ax.yaxis.set_major_formatter("{x:,.0f}")
    ax.margins(x=0.01)
    ax.grid(False, axis="x")
    ax.tick_params(axis="x", length=0)
    ax.legend(ncols=len(of) + bool(blas), loc="lower right", bbox_to_anchor=(1, 1))
