"""Pictures of rows: tokens a second against depth, and operations a second by type and instruction
set.
"""

import importlib.util
import io
import os
import re

from ..faults import USAGE, Error, unsupported_error
from ..system import files

FORMATS = (".svg", ".png", ".pdf")
WIDTH, HEIGHT = 9.0, 3.4  # inches, of a panel
STYLE = {
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
}  # slow to fast is light to dark
LINES = ("#1b6ca8", "#d1495b", "#3a7d44", "#e08e0b", "#6a4c93", "#00798c", "#8d5524", "#555555")
OTHERS = "#a65628"  # a set without a colour


def check(path, drawn=True):
    """Error 64, 69, 73 or 75, before any work is done, where `path` could not be written by
    `write`. drawn: whether there will be rows to draw.
    """
    if not drawn:
        raise Error(
            USAGE, "--plot: nothing to draw: rows of --start are not, and there are no others"
        )
    if os.path.splitext(path)[1] not in FORMATS:
        raise Error(USAGE, f"--plot: {path}: its name ends in none of {', '.join(FORMATS)}")
    if importlib.util.find_spec("matplotlib") is None:
        raise unsupported_error(
            "--plot", "matplotlib is not installed beside sluice (pip install matplotlib)"
        )
    files.check_target(path)


def write(path, rows):
    """Draw what `rows` (of measure.py or of matmul.py) have to show."""
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
    """`svg` (bytes) without comments and indentation, numbers to a hundredth of a point."""
    return re.sub(
        rb"(\.\d\d)\d+",
        rb"\1",
        re.sub(rb"\n\s+", rb"\n", re.sub(rb"<!--.*?-->", b"", svg, flags=re.S)),
    )


def panels(rows):
    """[[draw(axes), ...] of each line of the figure]: where there are several depths, tokens a
    second of prompts beside those of generations; then bars, a line for each size of product, and
    for prompts of several backends or where there is nothing else.
    """
    runs = [r for r in rows if "n_depth" in r and not r["test"].startswith("start")]
    prompts = [r for r in runs if r["n_prompt"] and not r["n_depth"]]
    out, bars = [], {}
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
        for ax, draw in zip(part.subplots(1, len(line), squeeze=False)[0], line):
            draw(ax)
    return figure


def _depths(ax, rows):
    """Lines: one for each test, type, backend and number of threads; what is the same in all of
    them is in the title.
    """
    parts = [
        (r["test"].split(" @ ")[0], r["model_type"], r["backend"], f"{r['n_threads']} threads")
        for r in rows
    ]
    fixed = [len(set(column)) == 1 for column in zip(*parts)]
    lines = {}
    for part, r in zip(parts, rows):
        lines.setdefault(" ".join(p for p, same in zip(part, fixed) if not same), []).append(r)
    colours = {}  # the same for ours and a rival's
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
    """Bars: types side by side, one bar for each backend and number of threads; numpy's BLAS as a
    line where it was measured.
    """
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
