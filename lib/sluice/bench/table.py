"""Format rows: a Markdown table, or CSV or JSON with every field."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterable

from .. import stream
from .measure import spread

# {header: (width, text of a row)}
Columns = dict[str, tuple[int, Callable[[dict], str]]]


def _pair(value, spread):
    return "" if value is None else f"{value:.2f} ± {spread:.2f}"


def _number(value, form=".1f"):
    return "" if value is None else format(value, form)


def _share(row):
    return "" if row["of_limit"] is None else f"{100 * row['of_limit']:.0f} % {row['limit']}"


def _size(n_bytes):
    return f"{n_bytes / 2**30:.2f} GiB" if n_bytes >= 2**30 else f"{n_bytes / 2**20:.2f} MiB"


def _count(n):
    return f"{n / 1e9:.2f} B" if n >= 1e9 else f"{n / 1e6:.2f} M"


RUNS: Columns = {  # header: (width, text of a row); a negative width is left-aligned
    "model": (-36, lambda r: f"{r['model']} {r['model_type']}"),
    "size": (10, lambda r: _size(r["model_size"])),
    "params": (9, lambda r: _count(r["model_n_params"])),
    "backend": (-18, lambda r: r["backend"]),
    "threads": (7, lambda r: str(r["n_threads"])),
    "test": (14, lambda r: r["test"]),
    "t/s": (18, lambda r: _pair(r["median_ts"], r["spread_ts"])),
    "GFLOP/s": (8, lambda r: _number(r["gflops"])),
    "GB/s": (6, lambda r: _number(r["gbytes_per_s"])),
    "of limit": (14, _share),
    "memory": (8, lambda r: "" if r["memory"] is None else f"{r['memory'] / 2**20:.0f} MiB"),
}
PRODUCTS: Columns = {
    "type": (-6, lambda r: r["type"]),
    "backend": (-18, lambda r: r["backend"]),
    "threads": (7, lambda r: str(r["n_threads"])),
    "m x n x k": (18, lambda r: f"{r['m']} x {r['n']} x {r['k']}"),
    "GFLOP/s": (18, lambda r: _pair(r["gflops"], r["gflops_spread"])),
    "of limit": (14, _share),
    "numpy f32": (9, lambda r: _number(r["blas_gflops"])),
    "times numpy": (12, lambda r: _pair(r["ratio"], r["ratio_spread"])),
}
RATIO: Columns = {"times theirs": (15, lambda r: _pair(r["ratio"], r["ratio_spread"]))}


def columns(products: object, baseline: str | None) -> Columns:
    """Columns of a table of products, or of runs of a model, with ratios if there is a baseline."""
    return PRODUCTS if products else RUNS | RATIO if baseline else RUNS


def write(rows: Iterable[dict], form: str, columns: Columns, repetitions: int) -> list[dict]:
    """Write `rows`, one or more, to stdout as they arrive; return a list of them.

    form: "md", "csv" or "json". repetitions: number of runs, for the notes.
    """
    out = []
    for row in rows:
        if form == "md":
            _emit(_md(row, columns, first=not out))
        elif form == "csv":
            _emit(_csv(row, first=not out))
        out.append(row)
    if form == "json":
        _emit(json.dumps(out, indent=2) + "\n")
    if form == "md":
        _emit(notes(out, repetitions))
    return out


def _emit(text):
    stream.write_all(1, text.encode("utf-8", "surrogateescape"))


def _md(row, columns, first):
    def line(cells):
        return (
            "| "
            + " | ".join(f"{c:{'<>'[w > 0]}{abs(w)}}" for c, (w, _) in zip(cells, columns.values()))
            + " |\n"
        )

    head = (
        line(columns)
        + "|"
        + "|".join(" " + "-" * abs(w) + (":" if w > 0 else " ") for w, _ in columns.values())
        + "|\n"
    )
    return (head if first else "") + line([text(row) for _, text in columns.values()])


def _csv(row, first):
    """A row as a line, without the lists of samples."""
    flat = {k: v for k, v in row.items() if not k.startswith("samples")}
    flat |= {f"limit_{k}": v for k, v in flat.pop("limits").items()}
    import csv
    import io

    out = io.StringIO()
    w = csv.DictWriter(out, flat, lineterminator="\n")
    if first:
        w.writeheader()
    w.writerow(flat)
    return out.getvalue()


def notes(rows: list[dict], repetitions: int) -> str:
    """Notes below a table: the meaning of the figures and the machine's limits."""
    lines = [f"Median of {repetitions} runs after a warm-up, ± half the interquartile range."]
    seen = {}
    for r in rows:
        best = seen.setdefault((r["isa"], r["n_threads"]), {})
        best |= {name: max(v, best.get(name, 0)) for name, v in r["limits"].items() if v}
    for (isa, n_threads), machine in seen.items():
        parts = [
            f"{name.replace('_', ' ')} {v:,.1f} {'GB/s' if name == 'read' else 'GFLOP/s'}"
            for name, v in machine.items()
        ]
        lines.append(
            f"Limits, {isa}, {n_threads} thread{'s' * (n_threads > 1)}: {', '.join(parts)}."
        )
    for r in rows:
        if r.get("test", "").startswith("start"):
            seconds = [ns / 1e9 for ns in r["samples_ns"]]
            lines.append(
                f"{r['test']}, {r['model_type']}, {r['isa']}: {statistics.median(seconds):.3f} ±"
                f" {spread(seconds):.3f} s from exec of prefill to its exit, the snapshot synced."
            )
    if any(r.get("memory") for r in rows):
        lines.append("Memory: the peak outside of mapped files, KV cache included.")
    for path in dict.fromkeys(r["model_filename"] for r in rows if "model_filename" in r):
        lines.append(f"Model: {path}")
    return "\n" + "\n".join(lines) + "\n"
