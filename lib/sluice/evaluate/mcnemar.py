"""McNemar's exact test: is one of two classifiers right more often than the other?

Only texts that exactly one of them got right count. If both are equally good, each of these is a
fair coin (McNemar 1947), so the two-sided p is twice the smaller tail of the binomial distribution.
"""

from math import exp, fsum, lgamma, log


def p_value(only_first: int, only_second: int) -> float:
    """The probability of a split at least as uneven, from 0 to 1.

    only_first, only_second: numbers of texts that only this classifier got right.
    """
    n, fewer = only_first + only_second, min(only_first, only_second)
    if only_first == only_second:
        return 1.0
    term = exp(lgamma(n + 1) - lgamma(fewer + 1) - lgamma(n - fewer + 1) - n * log(2))
    terms = []
    for k in range(fewer, -1, -1):  # each term from the one above it: C(n, k-1) / C(n, k)
        terms.append(term)
        term *= k / (n - k + 1)
        if term < 1e-20 * terms[0]:
            break
    return min(1.0, 2 * fsum(terms))
