"""Choose the tests of `make test`, the quick part of the suite (pytest --quick).

A test is left to `make test-all` if
- it bears the marker `full`: it is long, or needs a program that pip does not install;
- it uses a fixture of FULL_FIXTURES.
Of a parametrized test the quick part runs the fewest cases, chosen in order, in which each value of
each parameter occurs (each-choice coverage): all rows of a table, but not all combinations of
instruction set, weight type and shape. The marker `quick_cases(n)` lowers that to n cases, evenly
spaced. The choice depends on nothing but the order of the cases.
Hypothesis runs a tenth of a test's examples, at least 10, and the same ones each time.
"""

from hypothesis import settings

FULL_FIXTURES = {"strace", "smollm2", "gemma3"}


def choose(items):
    """Split collected items into (chosen, left out), both in order."""
    families = {}
    for item in items:
        if not is_full(item):
            families.setdefault(item.nodeid.split("[")[0], []).append(item)
    kept = {item for family in families.values() for item in cases(family)}
    for item in {item.function: item for item in kept}.values():  # each function once
        run_fewer_examples(item)
    return [i for i in items if i in kept], [i for i in items if i not in kept]


def is_full(item):
    return item.get_closest_marker("full") or not FULL_FIXTURES.isdisjoint(item.fixturenames)


def cases(family):
    """The quick cases of one test function's items."""
    if len(family) == 1:
        return family
    chosen = each_value([values_of(item) for item in family])
    marker = family[0].get_closest_marker("quick_cases")
    n = min(marker.args[0], len(chosen)) if marker else len(chosen)
    return [family[chosen[i * len(chosen) // n]] for i in range(n)]


def values_of(item):
    """{(number of a parametrize mark, name of the case it gives the item)}."""
    # pytest has no public list: `id` joins these names by "-", which they contain as well.
    return set(enumerate(item.callspec._idlist)) if hasattr(item, "callspec") else set()


def each_value(rows):
    """Indices of few sets of `rows`, in order, that cover their union: greedy, the first wins."""
    missing, chosen = set().union(*rows), []
    while missing:
        best = max(range(len(rows)), key=lambda i: (len(rows[i] & missing), -i))
        chosen.append(best)
        missing -= rows[best]
    return sorted(chosen)


def run_fewer_examples(item):
    """Let Hypothesis try a tenth of an item's examples, always the same."""
    # @settings can be applied once and leaves what it was given in this attribute alone.
    given = getattr(item.function, "_hypothesis_internal_use_settings", None)
    if given is not None:
        item.function._hypothesis_internal_use_settings = settings(
            given, max_examples=max(10, given.max_examples // 10), derandomize=True, database=None
        )
