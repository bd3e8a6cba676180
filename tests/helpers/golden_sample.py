"""Write tests/golden/sample-*.{in,out}: records of logits, and the tokens of seeded runs of `sample`.

    .venv/bin/python3 tests/helpers/golden_sample.py

The tokens come from the reference chains, not from `sample`. Inputs: 64 dense
records of 96 tokens, and 64 of candidates, about half of them.
"""

import struct
from pathlib import Path

import reference_sampler as reference
from reference_steps import Reference

from sluice import stream

GOLDEN = Path(__file__).parents[1] / "golden"
N_VOCAB, N_RECORD, FIRST_POS = 96, 64, 11
CASES = {  # name: (input, options of sample, the same for the reference and last_n)
    "default": ("dense", "-S 1", {}),
    "greedy": ("dense", "-t 0", dict(temperature=0)),
    "greedy-candidates": ("candidates", "-t 0", dict(temperature=0)),
    "plain": (
        "dense",
        "-S 2 -t 1 -k 0 -p 1 --min-p 0",
        dict(seed=2, temperature=1, top_k=0, top_p=1, min_p=0),
    ),
    "top-k": ("dense", "-S 3 -k 3 -p 1 --min-p 0", dict(seed=3, top_k=3, top_p=1, min_p=0)),
    "top-p": (
        "candidates",
        "-S 4 -k 0 -p 0.7 --min-p 0",
        dict(seed=4, top_k=0, top_p=0.7, min_p=0),
    ),
    "min-p": (
        "dense",
        "-S 5 -k 0 -p 1 --min-p 0.2 -t 1.5",
        dict(seed=5, top_k=0, top_p=1, min_p=0.2, temperature=1.5),
    ),
    "candidates": ("candidates", "-S 18446744073709551615", dict(seed=2**64 - 1)),
    "penalties": (
        "dense",
        "-S 6 --repeat-penalty 1.3 --presence-penalty 0.5 --frequency-penalty 0.25 --last-n 8",
        dict(seed=6, repeat=1.3, presence=0.5, frequency=0.25, last_n=8),
    ),
    "least": (
        "candidates",
        "-t 0 --least --presence-penalty 2",
        dict(temperature=0, least=True, presence=2),
    ),
    "bias": (
        "dense",
        "-S 7 --least -k 3 --bias 5=-9.5 --bias 17=4 --bias 5=-0.25",
        dict(seed=7, least=True, top_k=3, bias={5: -9.75, 17: 4}),
    ),
}

OFF = dict(top_k=0, top_p=1, min_p=0)
WIDE = "-k 0 -p 1 --min-p 0"
DRY = "--dry-multiplier 1.5 --dry-allowed-length 1 --dry-penalty-last-n -1"
STEP_CASES = {  # the same for the steps in numpy
    "typical": ("dense", f"-S 8 {WIDE} --typical 0.6", dict(seed=8, typical=0.6, **OFF)),
    "top-nsigma": (
        "candidates",
        f"-S 9 -t 1.7 {WIDE} --top-nsigma 1.21",
        dict(seed=9, temperature=1.7, top_nsigma=1.21, **OFF),
    ),
    "xtc": (
        "dense",
        f"-S 10 {WIDE} --xtc-probability 0.6 --xtc-threshold 0.021",
        dict(seed=10, xtc_probability=0.6, xtc_threshold=0.021, **OFF),
    ),
    "dynatemp": (
        "candidates",
        "-S 11 --dynatemp-range 0.6 --dynatemp-exp 1.5",
        dict(seed=11, dynatemp_range=0.6, dynatemp_exponent=1.5),
    ),
    "dry": (
        "dense",
        f"-S 12 --dry-sequence-breaker none {DRY}",
        dict(seed=12, dry_multiplier=1.5, dry_allowed_length=1, dry_last_n=-1),
    ),
    "mirostat-1": (
        "dense",
        "-S 13 --mirostat 1 --mirostat-ent 2 --mirostat-lr 0.4",
        dict(seed=13, mirostat=1, mirostat_entropy=2, mirostat_rate=0.4),
    ),
    "mirostat-2": (
        "candidates",
        "-S 14 --mirostat 2 --mirostat-ent 1.5 --mirostat-mu 4",
        dict(seed=14, mirostat=2, mirostat_entropy=1.5, mirostat_mu=4),
    ),
    "order": (
        "dense",
        "-S 15 --sampler-order temp;xtc;penalties;top_p --frequency-penalty 0.7"
        " --xtc-probability 0.5 --xtc-threshold 0.05",
        dict(
            seed=15,
            order=["temperature", "xtc", "penalties", "top-p"],
            frequency=0.7,
            xtc_probability=0.5,
            xtc_threshold=0.05,
        ),
    ),
}


def records(kind):
    """[(prev, [(id, logit)])]: logits of -8 to 8 in steps of 1/64, from an integer generator."""
    numbers = iter(reference.splitmix64(len(kind), N_RECORD * (2 * N_VOCAB + 1)))
    out = []
    for _ in range(N_RECORD):
        logits = [(next(numbers) % 1025 - 512) / 64 for _ in range(N_VOCAB)]
        kept = [next(numbers) % 2 for _ in range(N_VOCAB)]
        prev = next(numbers) % 12 if out else -1
        out.append(
            (prev, [(i, l) for i, l in enumerate(logits) if kind == "dense" or kept[i] or i == 5])
        )
    return out


def as_stream(kind):
    parts = [stream.logits_header(bytes(range(32)), N_VOCAB)]
    for i, (prev, candidates) in enumerate(records(kind)):
        if kind == "dense":
            payload = struct.pack(f"<{N_VOCAB}f", *(l for _, l in candidates))
        else:
            payload = b"".join(struct.pack("<if", *c) for c in candidates)
        parts.append(
            stream.record(b"L" if kind == "dense" else b"C", 0, FIRST_POS + i, prev, payload)
        )
    return b"".join(parts) + stream.record(b"E", 0, FIRST_POS + N_RECORD, 0)


def expected(kind, seed=1, last_n=64, **options):
    numbers = reference.splitmix64(seed, FIRST_POS + N_RECORD)
    recent, tokens = [], []
    for i, (prev, candidates) in enumerate(records(kind)):
        recent = (recent + [prev])[-last_n:] if prev >= 0 else recent
        tokens.append(reference.choose(candidates, numbers[FIRST_POS + i], recent, **options))
    return as_tokens(tokens)


def expected_of_steps(kind, **options):
    sampler = Reference(N_VOCAB, **options)
    return as_tokens(
        sampler.choose(candidates, FIRST_POS + i, prev)
        for i, (prev, candidates) in enumerate(records(kind))
    )


def as_tokens(tokens):
    return (
        b"#ids 1 model=0001020304050607 vocab=96\n"
        + b"".join(b"%d\n" % i for i in tokens)
        + b"#end stop\n"
    )


def main():
    GOLDEN.mkdir(exist_ok=True)
    for kind in ("dense", "candidates"):
        (GOLDEN / f"sample-{kind}.in").write_bytes(as_stream(kind))
    for name, (kind, _, options) in CASES.items():
        (GOLDEN / f"sample-{name}.out").write_bytes(expected(kind, **options))
    for name, (kind, _, options) in STEP_CASES.items():
        (GOLDEN / f"sample-{name}.out").write_bytes(expected_of_steps(kind, **options))


if __name__ == "__main__":
    main()
