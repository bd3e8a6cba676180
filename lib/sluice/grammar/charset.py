"""Sets of Unicode characters: sorted ranges ((lo, hi), ...) of code points."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_CODE_POINT = 0x10FFFF
SURROGATES = (0xD800, 0xDFFF)  # code points that are no characters: UTF-8 has no bytes for them


def merge(ranges: "Iterable[tuple[int, int]]") -> list[tuple[int, int]]:
    """Return the ranges sorted and disjoint, with adjacent ones joined."""
    out = []
    for lo, hi in sorted(ranges):
        if out and lo <= out[-1][1] + 1:
            out[-1] = (out[-1][0], max(hi, out[-1][1]))
        else:
            out.append((lo, hi))
    return out


def complement(ranges: "Iterable[tuple[int, int]]") -> list[tuple[int, int]]:
    """Return the code points outside `ranges` (merged), as ranges."""
    starts = [0] + [hi + 1 for _, hi in ranges]
    ends = [lo - 1 for lo, _ in ranges] + [MAX_CODE_POINT]
    return [(lo, hi) for lo, hi in zip(starts, ends) if lo <= hi]


def without_surrogates(ranges: "Iterable[tuple[int, int]]") -> tuple[tuple[int, int], ...]:
    """Return `ranges` (merged) as a tuple, without surrogates, which UTF-8 cannot express."""
    first, last = SURROGATES
    cut = []
    for lo, hi in ranges:
        cut += (
            [(lo, min(hi, first - 1)), (max(lo, last + 1), hi)]
            if lo <= last and hi >= first
            else [(lo, hi)]
        )
    return tuple((lo, hi) for lo, hi in cut if lo <= hi)
