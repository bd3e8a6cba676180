"""The chain of `sample` once more, slowly and plainly: the oracle of its tests and of its golden
files.
"""

import struct
from decimal import Decimal, getcontext

getcontext().prec = 40
DEFAULTS = dict(
    temperature=0.8,
    top_k=40,
    top_p=0.95,
    min_p=0.05,
    repeat=1.0,
    presence=0.0,
    frequency=0.0,
    bias={},
    least=False,
)


def f32(x):
    """The nearest f32 of a float."""
    return struct.unpack("<f", struct.pack("<f", x))[0]


def splitmix64(seed, n):
    """The first `n` numbers, by stepping the state as the paper does."""
    out = []
    for _ in range(n):
        seed = (seed + 0x9E3779B97F4A7C15) % 2**64
        z = seed
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        z = (z ^ z >> 27) * 0x94D049BB133111EB % 2**64
        out.append(z ^ z >> 31)
    return out


def mass(x):
    """2^42 e^x to the nearest integer."""
    return int((Decimal(x).exp() * 2**42).quantize(Decimal(1))) if x > -30 else 0


def choose(candidates, random, recent=(), **options):
    """The id for `candidates`, a list of (id, logit), and 64 random bits as an int."""
    o = {**DEFAULTS, **options}
    kept = []
    for id, l in candidates:
        if o["bias"].get(id) == float("-inf"):
            continue
        l = f32(l + o["bias"].get(id, 0.0))
        if id in recent:
            l = l / o["repeat"] if l > 0 else l * o["repeat"]
            l = f32(l - (o["presence"] + recent.count(id) * o["frequency"]))
        kept.append((id, -l if o["least"] else l))
    kept.sort(key=lambda c: (-c[1], c[0]))
    best = kept[0][1]
    if o["temperature"] == 0:
        return kept[0][0]
    if o["top_k"]:
        kept = kept[: o["top_k"]]
    if o["top_p"] < 1:
        masses = [mass(l - best) for _, l in kept]
        n = cumulative = 0
        while n == 0 or n < len(kept) and cumulative < o["top_p"] * sum(masses):
            cumulative += masses[n]
            n += 1
        kept = kept[:n]
    if o["min_p"] > 0:
        kept = [c for c in kept if c[1] >= best + float(Decimal(o["min_p"]).ln())]
    kept.sort()
    masses = [mass((l - best) * (1 / o["temperature"])) for _, l in kept]
    unit = random * sum(masses) >> 64
    for (id, _), m in zip(kept, masses):
        if unit < m:
            return id
        unit -= m
    raise AssertionError("the masses are less than their sum")
