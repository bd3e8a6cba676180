"""Measure the figures of csrc/README.md again: `python -m sluice.bench.figures [PART ...]`.

`make figures` measures those that need no other engine. A part is a command line of sluice-bench
and a function that formats its rows as Markdown. The Markdown replaces the text between
"<!-- figures: PART -->" and "<!-- end -->"; some parts also have a picture next to this module.
Parts amx-... are for processors with AMX, the others for processors without. Run it in the top
folder of a checkout, on an idle machine. All parts of `make figures` take 6 minutes on two cores;
the first time they need 3 GB of disk for models, and against-families 9 GB.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import textwrap
import time
from typing import Any

PAGE, HERE = "csrc/README.md", "lib/sluice/bench/pictures"
TYPES = (
    "F32",
    "F16",
    "BF16",
    "Q8_0",
    "Q4_0",
    "Q4_1",
    "Q5_0",
    "Q5_1",
    "IQ4_NL",
    "Q2_K",
    "Q3_K",
    "Q4_K",
    "Q5_K",
    "Q6_K",
    "IQ4_XS",
)
SETS = "avx512,avx-vnni,avx2"
SHAPE = "--shape tinyllama-1.1b"
BESIDE, BESIDE_FORK = "--against llama-cpp-python", "--against ik-llama-cpp-python"
FOUR = "--type Q8_0,Q4_0,Q4_K,Q6_K"
DEPTH = f"{SHAPE} --type Q8_0,Q4_0,Q4_K_M -p 512 -n 32 -d 0,512,1024,1536 --start 181 -r 3"
BOTH = {
    "against": f"{SHAPE} {FOUR} -p 512 -n 32 -r 3 {BESIDE}",
    "against-depth": f"{SHAPE} --type Q8_0 -p 512 -n 32 -d 1536 -r 2 {BESIDE}",
}
COMMANDS = {
    "depth": DEPTH,
    "sets": f"{SHAPE} --layers 6 --type Q8_0,Q4_0,Q4_K,Q6_K,F16 --isa {SETS} -p 512 -n 32 -r 3",
    "products": f"--matmul '512,2048,2048;1,2048,2048' --type {','.join(TYPES)} --isa {SETS} -r 5",
    **BOTH,
    "against-families": (
        f"--shape qwen3.5-0.8b,lfm2-350m,gemma-4-e2b --type Q8_0,Q4_K -p 512 -n 64 -r 3 {BESIDE}"
    ),
    "against-halves": f"{SHAPE} --layers 6 --type F16,BF16 -p 512 -n 32 -r 3 {BESIDE}",
    # needs a build of the other engine for AVX2
    "against-avx2": f"{SHAPE} {FOUR} --isa avx2 -p 256 -n 0 -r 3 {BESIDE}",
    "against-ik": f"{SHAPE} {FOUR} -p 512 -n 32 -r 3 {BESIDE_FORK}",
    "against-ik-halves": f"{SHAPE} --layers 6 --type F16,BF16 -p 512 -n 32 -r 3 {BESIDE_FORK}",
    "amx-depth": DEPTH,
    "amx-sets": f"{SHAPE} --layers 6 --type Q8_0,Q4_0,Q4_K,Q6_K,F16 --isa amx -p 512 -n 32 -r 3",
    "amx-products": f"--matmul '512,2048,2048;1,2048,2048' --type {','.join(TYPES)} --isa amx -r 5",
    **{f"amx-{part}": command for part, command in BOTH.items()},
    "amx-against-fast": (
        f"{SHAPE} --layers 6 --type F16,BF16 --arithmetic fast -p 512 -n 0 -r 3 {BESIDE}"
    ),
}
PICTURES = {
    "depth": "Tokens a second against the number of tokens in the cache",
    "products": "GFLOP/s of products by weight type and instruction set",
}
# load of an idle machine, in processors; seconds for which the load is measured first
IDLE, LOAD_SECONDS = 0.2, 2.0
# the other parts need llama-cpp-python or ik-llama-cpp-python, built for the instruction set, and
# more minutes
OWN = ("depth", "sets", "products")


def main(parts: list[str]) -> None:
    """Measure parts, by default OWN, and write them to the page."""
    load = busy()
    if load > IDLE:
        print(
            f"{load:.1f} processors are busy with other programs; the figures will say so",
            file=sys.stderr,
        )
    amx = "amx_int8" in read("/proc/cpuinfo")
    for part in parts or [("amx-" if amx else "") + part for part in OWN]:
        if part not in COMMANDS:
            sys.exit(f"{part}: none of {', '.join(COMMANDS)}")
        replace(read(PAGE), part, "")  # fails if the page has no place for it
        began = time.monotonic()
        rows = measure(part)
        where = textwrap.fill(place(rows, load), 100)
        text = f"{where}\n\n```sh\nsluice-bench {COMMANDS[part]}\n```\n\n{TEXTS[part](rows)}\n"
        if part in PICTURES:
            text += f"\n![{PICTURES[part]}]({picture(part)})\n"
        page = replace(read(PAGE), part, text)
        with open(PAGE, "w", encoding="utf-8") as f:
            f.write(page)
        print(f"{part}: {time.monotonic() - began:.0f} s", file=sys.stderr)


def busy() -> float:
    """Processors that other programs used in the last LOAD_SECONDS.

    The load average covers minutes, and this program.
    """

    def times():
        user, nice, system, idle, wait, *rest = map(
            int, read("/proc/stat").split("\n", 1)[0].split()[1:9]
        )
        return user + nice + system + sum(rest), idle + wait

    before = times()
    time.sleep(LOAD_SECONDS)
    worked, idle = (b - a for a, b in zip(before, times()))
    return os.cpu_count() * worked / max(1, worked + idle)


def read(path: str) -> str:
    """Text of a file."""
    with open(path, encoding="utf-8") as f:
        return f.read()


def picture(part: str) -> str:
    """Path of the picture of `part`, relative to the page."""
    return os.path.relpath(f"{HERE}/{part}.svg", os.path.dirname(PAGE))


def measure(part: str) -> list[dict]:
    """Run the command of a part; return its rows and write its picture."""
    argv = [
        "bin/sluice-bench",
        *(word.strip("'") for word in COMMANDS[part].split()),
        "-o",
        "json",
    ]
    if part in PICTURES:
        os.makedirs(HERE, exist_ok=True)
        argv += ["--plot", f"{HERE}/{part}.svg"]
    done = subprocess.run(argv, stdout=subprocess.PIPE)
    if done.returncode:
        sys.exit(done.returncode)  # its message is on stderr
    return json.loads(done.stdout)


def replace(page: str, part: str, text: str) -> str:
    """`page` with `text` between the marks of `part`, which must occur once."""
    page, n = re.subn(
        rf"(<!-- figures: {part} -->\n).*?(<!-- end -->)",
        lambda m: f"{m[1]}{text}{m[2]}",
        page,
        flags=re.S,
    )
    if n != 1:
        sys.exit(f"{PAGE}: {n} places for {part}")
    return page


def place(rows: list[dict], load: float) -> str:
    """Processor, threads, date and limits of `rows`; a warning for a high `load`, in processors."""
    name = next(
        (
            line.split(":")[1].strip()
            for line in read("/proc/cpuinfo").split("\n")
            if line.startswith("model name")
        ),
        "a processor",
    )
    best = {}
    for r in rows:
        for limit, value in r["limits"].items():
            best[limit] = max(best.get(limit, 0), value or 0)
    machine = ", ".join(
        f"{limit.replace('_', ' ')} {v:,.0f} {'GB/s' if limit == 'read' else 'GFLOP/s'}"
        for limit, v in best.items()
        if v
    )
    today = time.strftime("%Y-%m-%d", time.gmtime())
    return (
        f"{name}, {rows[0]['n_threads']} threads, {today}. Limits measured in the same run:"
        f" {machine}."
        + (
            f" **The machine was busy with something else ({load:.1f} processors at work): this is"
            " not its speed.**"
            if load > IDLE
            else ""
        )
    )


def table(head: list[str], lines: list[list[str]]) -> str:
    """Markdown; the first column is left-aligned, the others right-aligned."""
    return "\n".join(
        "| " + " | ".join(line) + " |"
        for line in (head, ["---"] + ["---:"] * (len(head) - 1), *lines)
    )


def number(x: float) -> str:
    """`x` with about three digits."""
    return f"{x:,.{0 if x >= 100 else 1}f}"


def cell(r: dict | None) -> str:
    """Tokens per second and, if reading is the limit, the share of it; "" for None."""
    if r is None:
        return ""
    return number(r["median_ts"]) + (
        f" ({100 * r['of_limit']:.0f} %)" if r["limit"] == "read" else ""
    )


def unique(rows: list[dict], key: str) -> list:
    """Values of `key` in order of first occurrence."""
    return list(dict.fromkeys(r[key] for r in rows))


def find(rows: list[dict], **wanted: Any) -> Any:
    """The first row with these values, or None."""
    return next((r for r in rows if all(r[k] == v for k, v in wanted.items())), None)


def depth(rows: list[dict]) -> str:
    """A line for each test, a column for each type; then memory and the time of a whole process."""
    kinds, tests = (
        unique(rows, "model_type"),
        [t for t in unique(rows, "test") if not t.startswith("start")],
    )
    lines = [
        [test] + [cell(find(rows, model_type=k, test=test)) for k in kinds]
        for test in sorted(tests, key=lambda t: (t[:2], int((t.split("@ d") + ["0"])[1])))
    ]
    lines.append(
        ["memory beyond the map, MiB, pp512"]
        + [f"{find(rows, model_type=k, test='pp512')['memory'] / 2**20:.0f}" for k in kinds]
    )
    for test in [t for t in unique(rows, "test") if t.startswith("start")]:
        seconds = [sorted(find(rows, model_type=k, test=test)["samples_ns"]) for k in kinds]
        lines.append([f"{test}, seconds"] + [f"{s[len(s) // 2] / 1e9:.2f}" for s in seconds])
    return table(["tokens a second", *kinds], lines)


def sets(rows: list[dict]) -> str:
    """A line for each test and set, a column for each type."""
    kinds = unique(rows, "model_type")
    return table(
        ["tokens a second", *kinds],
        [
            [f"{test}, {isa}"] + [cell(find(rows, model_type=k, test=test, isa=isa)) for k in kinds]
            for test in unique(rows, "test")
            for isa in unique(rows, "isa")
        ],
    )


def products(rows: list[dict]) -> str:
    """For each size a line for each type, a column for each set, and numpy's BLAS; collapsed."""
    out = []
    for m in unique(rows, "m"):
        some = [r for r in rows if r["m"] == m]
        isas = unique(some, "isa")
        blas = [r["blas_gflops"] for r in some if r["blas_gflops"]]
        lines = [
            [kind] + [number(find(some, type=kind, isa=isa)["gflops"]) for isa in isas]
            for kind in unique(some, "type")
        ]
        out.append(
            table([f"GFLOP/s, {m} x {some[0]['n']} x {some[0]['k']}", *isas], lines)
            + (f"\n\nnumpy's BLAS, f32: {number(sorted(blas)[len(blas) // 2])}" if blas else "")
        )
    return "<details><summary>As tables</summary>\n\n" + "\n\n".join(out) + "\n\n</details>"


def against(rows: list[dict]) -> str:
    """A line for each test and type, and model if there are several: sluice, the other engine, the
    ratio.
    """
    ours = [r for r in rows if r["ratio"] is not None]
    several = len(unique(rows, "model")) > 1
    theirs = lambda r: find(
        rows, **{key: r[key] for key in ("model", "model_type", "test")}, backend=r["against"]
    )
    return table(
        ["tokens a second", "sluice", unique(ours, "against")[0], "times"],
        [
            [
                f"{r['test']} {r['model_type']}"
                + (f", {r['model'].removesuffix(' random')}" if several else ""),
                cell(r),
                cell(theirs(r)),
                f"{r['ratio']:.2f} ± {r['ratio_spread']:.2f}",
            ]
            for r in ours
        ],
    )


TEXTS = {
    part: (
        {"depth": depth, "sets": sets, "products": products}.get(part.removeprefix("amx-"), against)
    )
    for part in COMMANDS
}

if __name__ == "__main__":
    main(sys.argv[1:])
