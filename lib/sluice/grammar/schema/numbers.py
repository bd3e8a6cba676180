"""Numbers: bounds by digits, whole numbers, multiples, as one regular language of JSON texts.

Bounds are exact. A number with a bound has no exponent, and few enough digits after the point that
another reader, who rounds to an f64, finds the same order. An exponent is below 300: some readers
refuse a number that no f64 holds, and others take it for infinity.
"""

import math
from decimal import Decimal

from .. import regular
from ..regex import ALT, EMPTY, NOTHING, REP, SEQ, SET, text_tree
from .strings import Language
from .values import is_whole, type_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .logic import Conjunct, Logic

DIGITS = 15  # that an f64 keeps
LARGEST = 10**30  # bounds beyond it are drawn in
MAX_PLACES = 60  # digits of a bound after the point
BOUNDS = "minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum"
DIGIT = (SET, ((48, 57),))
LEADING = (SET, ((49, 57),))
MINUS = (REP, (SET, ((45, 45),)), 0, 1)
POINT = (SET, ((46, 46),))
NATURAL = (ALT, ((SET, ((48, 48),)), (SEQ, (LEADING, (REP, DIGIT, 0, None)))))
WHOLE = (SEQ, (MINUS, NATURAL))
BELOW_300 = (ALT, ((REP, DIGIT, 1, 2), (SEQ, ((SET, ((49, 50),)), DIGIT, DIGIT))))
EXPONENT = (SEQ, ((SET, ((69, 69), (101, 101))), (REP, (SET, ((43, 43), (45, 45))), 0, 1),
                  BELOW_300))  # fmt: skip
FRACTION = (SEQ, (POINT, (REP, DIGIT, 1, None)))
NUMBER = (SEQ, (WHOLE, (REP, FRACTION, 0, 1), (REP, EXPONENT, 0, 1)))
PLAIN = (SEQ, (WHOLE, (REP, (SEQ, (POINT, (REP, DIGIT, 1, DIGITS))), 0, 1)))
NOT_WHOLE = (SEQ, (MINUS, (ALT, ((SET, ((48, 48),)), (SEQ, (LEADING, (REP, DIGIT, 0, 7))))),
                   POINT, (REP, DIGIT, 0, 6), LEADING))  # fmt: skip


def language(logic: "Logic", c: "Conjunct") -> Language:
    """Return the texts of the numbers that a Conjunct allows. UnsupportedError."""
    whole, low, high = c.whole, c.low, c.high
    if whole is False and any(holds for _, holds in c.multiples):
        return Language(dfa=regular.Dfa([[]], [False]))
    if any(holds for _, holds in c.multiples):
        whole = True
    excluded = [v for v in c.excluded if type_of(v) == "number"]
    if low is None and high is None:
        tree = WHOLE if whole else NOT_WHOLE if whole is False else PLAIN if excluded else NUMBER
    else:
        if max(_places(low), _places(high)) > MAX_PLACES:
            problem = f"bounds of more than {MAX_PLACES} digits after the point"
            raise _refusal(logic, c, f"{problem} are not supported")
        tree = _bounded(c, bool(whole))
        if tree is None:
            raise _refusal(logic, c, f"numbers beyond {LARGEST:.0e} are not supported")
    if tree == NOTHING:
        return Language(dfa=regular.Dfa([[]], [False]))
    bounded = low is not None or high is not None
    if not (c.multiples or excluded or (whole is False and bounded)):
        return Language(tree)
    try:
        dfa = regular.of_tree(tree)
        if whole is False and bounded:
            dfa = regular.intersection(dfa, regular.of_tree(NOT_WHOLE))
        divisor = math.lcm(*(n for n, holds in c.multiples if holds))
        if divisor > 1:
            dfa = regular.intersection(dfa, _multiples(divisor))
        for number, holds in c.multiples:
            if not holds:
                dfa = regular.intersection(dfa, regular.inverse(_multiples(number)))
        for value in excluded:
            dfa = regular.intersection(dfa, regular.inverse(regular.of_tree(_spellings(value))))
        return Language(dfa=dfa)
    except regular.TooLarge:
        keyword = "multipleOf" if "multipleOf" in c.where else "enum"
        logic.document.skip(
            c.where.get(keyword, c.literals[0][0]),
            keyword,
            f"needs an automaton of more than {regular.MAX_STATES} states",
        )
        return Language(tree)


def _places(bound):
    """Return how many digits a bound has after the point, without zeros at the end."""
    return 0 if bound is None else max(0, -Decimal(bound).normalize().as_tuple().exponent)


def _refusal(logic, c, problem):
    """Return the error of the bound that was met last."""
    node = c.where["bound"]
    keyword = next((k for k in BOUNDS if k in node), "minimum")
    return logic.document.unsupported(node, keyword, problem)


def _multiples(number):
    """Return the automaton of the multiples of `number`; its zeros at the end are counted apart."""
    n = len(str(number)) - len(str(number).rstrip("0"))
    dfa = regular.of_multiples(int(str(number).rstrip("0")))
    if not n:
        return dfa
    zeros = (REP, (SET, ((48, 48),)), n, n)
    ends = (ALT, ((SEQ, ((REP, (SET, ((45, 45), (48, 57))), 0, None), zeros)), text_tree("0")))
    return regular.intersection(dfa, regular.of_tree((ALT, (ends, text_tree("-0")))))


def texts(value: "Any", whole: bool = False) -> "list[str]":
    """Return the usual texts of a number: shortest first. whole: without a fraction."""
    from .values import number_text

    first = number_text(value)
    if is_whole(value) and not whole and "e" not in first:
        return [first, first + ".0"]
    return [first]


def _spellings(value):
    """Return the tree of the texts without exponent that are `value`, with zeros at the end."""
    text = f"{Decimal(value):f}"
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    zeros = (REP, (SET, ((48, 48),)), 0, None)
    if text in ("0", "-0"):
        first = (SEQ, (MINUS, text_tree("0")))
    else:
        first = text_tree(text)
    if "." in text:
        return (SEQ, (first, zeros))
    return (SEQ, (first, (REP, (SEQ, (POINT, (REP, (SET, ((48, 48),)), 1, None))), 0, 1)))


def _bounded(c, whole):
    """Return the tree of the numbers within the bounds; None: beyond what is supported."""
    low = None if c.low is None else Decimal(c.low)
    high = None if c.high is None else Decimal(c.high)
    low_open, high_open = c.low_open, c.high_open
    if (low is not None and low > LARGEST) or (high is not None and high < -LARGEST):
        return None
    if low is not None and low < -LARGEST:
        low, low_open = Decimal(-LARGEST), False
    if high is not None and high > LARGEST:
        high, high_open = Decimal(LARGEST), False
    if (
        low is not None
        and high is not None
        and (low > high or (low == high and (low_open or high_open)))
    ):
        return NOTHING
    if whole:
        return _whole_range(low, low_open, high, high_open)
    return _decimal_range(low, low_open, high, high_open)


def _whole_range(low, low_open, high, high_open):
    first = last = None
    if low is not None:
        first = math.floor(low) + 1 if low_open else math.ceil(low)
    if high is not None:
        last = math.ceil(high) - 1 if high_open else math.floor(high)
    if first is not None and last is not None and first > last:
        return NOTHING
    parts = []
    if first is None or first < 0:
        a = 1 if last is None or last >= 0 else -last
        b = None if first is None else -first
        parts.append((SEQ, (text_tree("-"), _naturals(a, b))))
    if last is None or last >= 0:
        parts.append(_naturals(max(first or 0, 0), last))
    return parts[0] if len(parts) == 1 else (ALT, tuple(parts))


def _naturals(first, last):
    """Return the tree of the whole numbers from `first` (>= 0) to `last`; None: without an end."""
    a = str(first)
    if last is not None and len(str(last)) == len(a):
        return _same_length(a, str(last))
    parts = [_same_length(a, "9" * len(a))]
    n = len(a)
    if last is None:
        return (ALT, (parts[0], (SEQ, (LEADING, (REP, DIGIT, n, None)))))
    b = str(last)
    if len(b) - 1 > n:
        parts.append((SEQ, (LEADING, (REP, DIGIT, n, len(b) - 2))))
    parts.append(_same_length("1" + "0" * (len(b) - 1), b))
    return (ALT, tuple(parts))


def _digits(lo, hi):
    return (SET, ((48 + int(lo), 48 + int(hi)),))


def _same_length(a, b):
    """Return the tree of the digit strings from a to b, all of their length."""
    if not a:
        return EMPTY
    n = len(a) - 1
    if set(a[1:]) <= {"0"} and set(b[1:]) <= {"9"}:
        return (SEQ, (_digits(a[0], b[0]), (REP, DIGIT, n, n))) if n else _digits(a[0], b[0])
    if a[0] == b[0]:
        return (SEQ, (_digits(a[0], a[0]), _same_length(a[1:], b[1:])))
    parts, lo, hi = [], int(a[0]), int(b[0])
    if set(a[1:]) - {"0"}:
        parts.append((SEQ, (_digits(lo, lo), _same_length(a[1:], "9" * n))))
        lo += 1
    last = None
    if set(b[1:]) - {"9"}:
        last = (SEQ, (_digits(hi, hi), _same_length("0" * n, b[1:])))
        hi -= 1
    if lo <= hi:
        parts.append((SEQ, (_digits(lo, hi), (REP, DIGIT, n, n))) if n else _digits(lo, hi))
    if last:
        parts.append(last)
    return parts[0] if len(parts) == 1 else (ALT, tuple(parts))


def _decimal_range(low, low_open, high, high_open):
    parts = []
    if low is None or low < 0:
        if high is None or high >= 0:  # zero is in the other part
            part = _positive(Decimal(0), True, None if low is None else -low, low_open)
        else:
            part = _positive(-high, high_open, None if low is None else -low, low_open)
        parts.append((SEQ, (text_tree("-"), part)))
    if high is None or high >= 0:
        if low is None or low < 0:
            parts.append(_positive(Decimal(0), False, high, high_open))
        else:
            parts.append(_positive(low, low_open, high, high_open))
    return (ALT, tuple(parts))


def _positive(low, low_open, high, high_open):
    """Return the tree of the decimals from `low` (>= 0) to `high`; None: without an end."""
    if high is not None and high <= 0 and (low_open or high_open):
        return NOTHING
    a, b = _split(low), None if high is None else _split(high)
    n = max(1, DIGITS - max(len(str(a[0])), len(str(b[0])) if b else 0))
    n = max(n, len(a[1]), len(b[1]) if b else 0)
    any_fraction = (REP, (SEQ, (POINT, (REP, DIGIT, 1, n))), 0, 1)
    above = _fraction_from(a[1], low_open, n)
    if b is None:
        return (ALT, (_then(a[0], above), (SEQ, (_naturals(a[0] + 1, None), any_fraction))))
    below = _fraction_to(b[1], high_open, n)
    if a[0] == b[0]:
        if not a[1] and not low_open:
            return _then(a[0], below)
        both = regular.intersection(regular.of_tree(above), regular.of_tree(below))
        return _then(a[0], tree_of(both))
    parts = [_then(a[0], above)]
    if a[0] + 1 <= b[0] - 1:
        parts.append((SEQ, (_naturals(a[0] + 1, b[0] - 1), any_fraction)))
    parts.append(_then(b[0], below))
    return (ALT, tuple(parts))


def _split(number):
    """Return (whole part, digits of the fraction without zeros at the end)."""
    whole, _, fraction = f"{number:f}".partition(".")
    return int(whole), fraction.rstrip("0")


def _then(whole, fraction):
    return (SEQ, (text_tree(str(whole)), fraction))


def _fraction_from(digits, is_open, n):
    """Return the tree of fractions, with their point, that are at least (above) .digits"""
    rest = (REP, DIGIT, 0, n)
    if not digits and not is_open:
        return (REP, (SEQ, (POINT, (REP, DIGIT, 1, n))), 0, 1)
    zero = (SET, ((48, 48),))
    if not is_open:
        out = rest
    elif n > len(digits):  # a digit that is not zero must follow
        out = (SEQ, ((REP, zero, 0, n - len(digits) - 1), LEADING, rest))
    else:
        out = NOTHING
    for d in reversed(digits):
        parts = [(SEQ, (_digits(d, d), out))]
        if d < "9":
            parts.append((SEQ, (_digits(int(d) + 1, 9), rest)))
        out = (ALT, tuple(parts))
    return (SEQ, (POINT, out))


def _fraction_to(digits, is_open, n):
    """Return the tree of fractions, with their point, or none, that are at most (below) .digits"""
    rest = (REP, DIGIT, 0, n)
    if not digits:
        zeros = (REP, (SET, ((48, 48),)), 1, n)
        return NOTHING if is_open else (REP, (SEQ, (POINT, zeros)), 0, 1)
    out = NOTHING if is_open else EMPTY
    for i, d in enumerate(reversed(digits)):
        parts = [(SEQ, (_digits(d, d), out if not i else (ALT, (EMPTY, out))))]
        if d > "0":
            parts.append((SEQ, (_digits(0, int(d) - 1), rest)))
        out = (ALT, tuple(parts))
    return (ALT, (EMPTY, (SEQ, (POINT, out))))


def tree_of(dfa: "regular.Dfa") -> "Any":
    """Return a tree of an automaton without circles but at single states."""
    trees: dict[int, Any] = {}

    def of(state):
        if state not in trees:
            parts = [EMPTY] if dfa.accepts[state] else []
            for lo, hi, target in dfa.arcs[state]:
                parts.append((SEQ, ((SET, ((lo, hi),)), of(target))))
            trees[state] = (ALT, tuple(parts))
        return trees[state]

    return of(0) if not dfa.is_empty else NOTHING


def count_whole(c: "Conjunct") -> "int | None":
    """Return how many whole numbers are within the bounds; None: without an end."""
    if c.low is None or c.high is None:
        return None
    low, high = Decimal(c.low), Decimal(c.high)
    first = math.floor(low) + 1 if c.low_open else math.ceil(low)
    last = math.ceil(high) - 1 if c.high_open else math.floor(high)
    return max(0, last - first + 1)
