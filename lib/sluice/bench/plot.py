"""Two pictures of rows: tokens a second against depth, and operations a second by type and instruction set."""
import importlib.util
import io
import os

from .. import newfile
from ..faults import USAGE, Fault, unsupported

FORMATS = (".svg", ".png", ".pdf")


def check(path):
    """Fault 64, 69, 73 or 75, before any work is done, where `path` could not be written by `write`."""
    if os.path.splitext(path)[1] not in FORMATS:
        raise Fault(USAGE, f"--plot: {path}: its name ends in none of {', '.join(FORMATS)}")
    if importlib.util.find_spec("matplotlib") is None:
        raise unsupported("--plot", "matplotlib is not installed beside sluice (pip install matplotlib)")
    newfile.check_target(path)


def write(path, rows):
    """Draw what `rows` (of measure.py or of matmul.py) have to show."""
    import matplotlib
    matplotlib.use("Agg")
    matplotlib.rcParams |= {"svg.hashsalt": "sluice", "font.size": 9}
    from matplotlib import pyplot
    panels = [draw for draw, has in ((_depths, any("n_depth" in r for r in rows)), (_types, any(_is_product(r) for r in rows))) if has]
    figure, axes = pyplot.subplots(len(panels), 1, figsize=(9, 3.5 * len(panels)), squeeze=False, layout="constrained")
    for draw, ax in zip(panels, axes[:, 0]):
        draw(ax, rows)
    out = io.BytesIO()
    kind = os.path.splitext(path)[1][1:]
    figure.savefig(out, format=kind, metadata={"Date": None} if kind == "svg" else None)
    newfile.write(path, lambda f: f.write(out.getvalue()))


def _depths(ax, rows):
    """Lines: one for each test, type, backend and number of threads."""
    lines = {}
    for r in rows:
        test = r["test"].split(" @ ")[0]
        lines.setdefault(f"{test} {r['model_type']} {r['backend']}, {r['n_threads']} threads", []).append(r)
    for label, points in lines.items():
        points.sort(key=lambda r: r["n_depth"])
        ax.errorbar([r["n_depth"] for r in points], [r["median_ts"] for r in points], [r["spread_ts"] for r in points],
                    marker="o", capsize=2, label=label)
    ax.set(xlabel="ids before (depth)", ylabel="tokens a second", yscale="log")
    ax.grid(alpha=0.3)
    _legend(ax)


def _is_product(r):
    return "m" in r or r["n_prompt"] and not r["n_depth"]


def _types(ax, rows):
    """Bars: types side by side, one bar for each backend."""
    best = {}
    for r in filter(_is_product, rows):
        key = r.get("type") or r["model_type"], f"{r['backend']}, {r['n_threads']} threads"
        best[key] = max(best.get(key, 0), r["gflops"])
    types, backends = (list(dict.fromkeys(part)) for part in zip(*best))
    width = 0.8 / len(backends)
    for i, backend in enumerate(backends):
        ax.bar([j + (i - (len(backends) - 1) / 2) * width for j in range(len(types))],
               [best.get((t, backend), 0) for t in types], width, label=backend)
    ax.set(ylabel="GFLOP/s", xticks=range(len(types)), xticklabels=types)
    ax.grid(alpha=0.3, axis="y")
    _legend(ax)


def _legend(ax):
    ax.legend(fontsize="small", loc="center left", bbox_to_anchor=(1, 0.5))
