"""Print what learning adds to the time of a verdict: python tests/learn/verdict_time.py MAILS...

MAILS: folders with messages below them. All are taught, with labels by their digests, and again
with words of their own in them until the file is full. Then the time of a verdict's part is
measured on mails of median and of large size: tokens, digests, lookups, evidence.
"""

import gc
import glob
import os
import random
import statistics
import sys
import tempfile
import time
import zlib

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "lib"))
from sluice.learn import book as books
from sluice.learn import layout, learned, tokens
from sluice.texts import inputs

RUNS = 30
MODEL, QUESTION = b"\1" * 8, b"\2" * 8


def main(folders: list[str]) -> None:
    """Teach, fill, measure, print."""
    if not folders:
        sys.exit(__doc__)
    paths = sorted(p for f in folders for p in glob.glob(f"{f}/**/*", recursive=True))
    mails = [open(p, "rb").read() for p in paths if os.path.isfile(p)]
    read = [(m, inputs.text(m, True, True)[0], tokens.header_of(m)) for m in mails]
    words = [tokens.of(text, None, header) for _, text, header in read]
    print(f"mails {len(mails)}, tokens median {statistics.median(map(len, words)):.0f}")
    book = filled(words)
    gc.collect()
    gc.freeze()  # a collection of all these is not part of a verdict
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "full.calibration")
        began = time.perf_counter()
        data = book.dump()
        print(
            f"written in {time.perf_counter() - began:.2f} s: {len(data)} bytes, "
            f"{book.n_texts} texts"
        )
        with open(path, "wb") as f:
            f.write(data)
        os.chmod(path, 0o600)
        began = time.perf_counter()
        books.read(path)
        print(f"read for a change in {time.perf_counter() - began:.2f} s")
        began = time.perf_counter()
        (section,) = learned.sections(path, layout.Opened(path))
        print(f"opened for a verdict in {1e3 * (time.perf_counter() - began):.2f} ms")
        by_size = sorted(read, key=lambda r: len(r[1]))
        middle = len(by_size) // 2
        show("median", section, by_size[middle - 50 : middle + 50])
        show("largest", section, by_size[-100:])


def filled(words: "list[set[str]]") -> books.Book:
    """A Book that has reached a limit."""
    book, draw = books.Book(bytes(16)), random.Random(1)
    part = books.Part(MODEL, QUESTION, 2, [1.0, 0.0, 0.0])
    book.parts[MODEL, QUESTION] = part
    n = 0
    while n < layout.MAX_TEXTS:
        for some in words:
            # a further mail of the same kind: a tenth of its words are others
            more = {f"{w}{n}" if n > len(words) and draw.random() < 0.1 else w for w in some}
            label = zlib.crc32(repr(n).encode()) & 1
            log_p = np.array([-0.1, -2.4] if label == 0 else [-2.4, -0.1], np.float32)
            part.texts[n] = books.Text(label, 2**30 + n, False, log_p, book.kept(more))
            n += 1
            if n == layout.MAX_TEXTS:
                break
    began = time.perf_counter()
    part.fit()
    print(f"fitted in {time.perf_counter() - began:.2f} s")
    return book


def show(
    name: str, section: learned.Section, some: "list[tuple[bytes, bytes, bytes | None]]"
) -> None:
    """Print the times, in ms, of mails of a size."""
    steps = {"tokens": [], "evidence": [], "label": []}
    n = []
    for _ in range(RUNS):
        for mail, text, header in some:
            a = time.thread_time()
            header = tokens.header_of(mail)
            found = tokens.of(text, None, header)
            b = time.thread_time()
            section.evidence(found)
            c = time.thread_time()
            section.label((text, None))
            d = time.thread_time()
            for step, t in zip(steps, (b - a, c - b, d - c)):
                steps[step].append(1e3 * t)
            n.append(len(found))
    all_ms = [sum(t) for t in zip(*steps.values())]
    parts = ", ".join(f"{step} {statistics.median(t):.2f}" for step, t in steps.items())
    print(
        f"{name}: {statistics.median(n):.0f} tokens, {statistics.median(all_ms):.2f} ms"
        f" (p99 {sorted(all_ms)[len(all_ms) * 99 // 100]:.2f}): {parts}"
    )


if __name__ == "__main__":
    main(sys.argv[1:])
