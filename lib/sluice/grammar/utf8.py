"""Classes of code points as trees of UTF-8 byte ranges."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

LAST_POINTS = (0x7F, 0x7FF, 0xFFFF, 0x10FFFF)  # the last code point of 1, 2, 3, 4 bytes
LEAD_BYTES = (0x00, 0xC0, 0xE0, 0xF0)


def class_arcs(
    ranges: "Iterable[tuple[int, int]]",
    after: int,
    label_of: "Callable[[list[tuple[int, int, int]]], int]",
) -> list[tuple[int, int, int]]:
    """Return the arcs (lo, hi, label), in order, of the first UTF-8 byte of a class.

    ranges: ((lo, hi), ...) of code points. label_of(arcs) returns the label for the following
    bytes; `after` follows the last byte.
    """
    arcs, first = [], 0
    for n_more, last in enumerate(LAST_POINTS):
        inside = [
            (max(lo, first), min(hi, last)) for lo, hi in ranges if lo <= last and hi >= first
        ]
        arcs += [
            (LEAD_BYTES[n_more] + lo, LEAD_BYTES[n_more] + hi, to)
            for lo, hi, to in _tail(inside, n_more, after, label_of)
        ]
        first = last + 1
    return arcs


def _tail(ranges, n_more, after, label_of):
    """Return [(lo, hi, label)] for the first of 1 + n_more six-bit digits of `ranges`;
    recursion at most four levels deep.
    """
    if n_more == 0:
        return [(lo, hi, after) for lo, hi in ranges]
    bits, full = 6 * n_more, (1 << 6 * n_more) - 1
    parts = {}  # digit -> ranges that may follow it
    whole = []  # (lo, hi) of digits that any digit may follow
    for lo, hi in ranges:
        a, b = lo >> bits, hi >> bits
        if a == b and hi - lo < full:
            parts.setdefault(a, []).append((lo & full, hi & full))
            continue
        if lo & full:
            parts.setdefault(a, []).append((lo & full, full))
            a += 1
        if hi & full != full:
            parts.setdefault(b, []).append((0, hi & full))
            b -= 1
        if a <= b:
            whole.append((a, b))

    def follow(inside):
        return label_of(
            tuple(
                (0x80 + lo, 0x80 + hi, to)
                for lo, hi, to in _tail(inside, n_more - 1, after, label_of)
            )
        )

    out = [(digit, digit, follow(inside)) for digit, inside in parts.items()]
    if whole:
        anything = follow([(0, full)])
        out += [(a, b, anything) for a, b in whole]
    return sorted(out)
