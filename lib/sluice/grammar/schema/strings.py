"""Texts: patterns, formats and lengths that hold together, as one regular language."""

from .. import regular
from ..regex import ANYTHING, EVERY, REP, SET, lengths
from . import formats

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .logic import Conjunct, Logic


class Language:
    """Texts by a tree (regex.py) or, where several conditions meet, by an automaton."""

    def __init__(self, tree: "Any" = None, dfa: "regular.Dfa | None" = None) -> None:
        self.tree, self.dfa = tree, dfa

    @property
    def is_empty(self) -> bool:
        """Whether no text is known to be in it. False: some may be."""
        return self.dfa is not None and self.dfa.is_empty

    def automaton(self) -> "regular.Dfa":
        """Return the automaton. TooLarge."""
        return self.dfa if self.dfa is not None else regular.of_tree(self.tree)


def language(logic: "Logic", c: "Conjunct") -> Language:
    """Return the texts that a Conjunct allows. UnsupportedError if they are too many to tell."""
    minimum, maximum = c.min_length, c.max_length
    if maximum is not None and maximum < minimum:
        return Language(dfa=regular.Dfa([[]], [False]))
    trees = [tree for tree, holds in c.patterns if holds] + [formats.tree(f) for f in c.formats]
    trees = [t for i, t in enumerate(trees) if t not in trees[:i] and t != ANYTHING]
    opposites = [tree for tree, holds in c.patterns if not holds]
    excluded = [v for v in c.excluded if isinstance(v, str)]
    if not trees and not opposites and not excluded:
        return Language((REP, (SET, EVERY), minimum, maximum))
    if len(trees) == 1 and not opposites and not excluded:
        folded = _with_lengths(trees[0], minimum, maximum)
        if folded is not None:
            return Language(folded)
    try:
        automata = [regular.of_tree(t) for t in trees]
        automata += [regular.inverse(regular.of_tree(t)) for t in opposites]
        if excluded:
            automata.append(regular.inverse(regular.of_words(excluded)))
        if minimum or maximum is not None:
            automata.append(regular.of_lengths(minimum, maximum))
        dfa = automata[0]
        for other in automata[1:]:
            dfa = regular.intersection(dfa, other)
        return Language(dfa=dfa)
    except regular.TooLarge:
        keyword = next(
            k for k in ("pattern", "format", "rest", "minLength", "maxLength") if k in c.where
        )
        logic.document.skip(
            c.where[keyword],
            keyword,
            f"its conditions together need an automaton of more than {regular.MAX_STATES} states",
        )
        return Language(trees[0] if trees else (REP, (SET, EVERY), minimum, maximum))


def _with_lengths(tree, minimum, maximum):
    """Return a tree of those texts of `tree` that have such a length, or None."""
    low, high = lengths(tree)
    if low >= minimum and (maximum is None or high is not None and high <= maximum):
        return tree
    if tree[0] == REP and tree[1][0] == SET:
        low = max(tree[2], minimum)
        highs = [h for h in (tree[3], maximum) if h is not None]
        if not highs or min(highs) >= low:
            return (REP, tree[1], low, min(highs) if highs else None)
    return None


def is_free(tree: "Any") -> bool:
    """Whether `tree` is any characters, counted or not."""
    return tree is not None and tree[0] == REP and tree[1] == (SET, EVERY)


def of_literals(logic: "Logic", literals: "list[Any]") -> "regular.Dfa":
    """Return the automaton of the texts for which `literals` hold. TooLarge."""
    from .validation import holds_all

    trees = []
    for c in logic.expand(literals):
        if c.values is not None:
            words = [v for v in c.values if isinstance(v, str) and holds_all(logic, c.literals, v)]
            trees.append(regular.of_words(words))
        elif "string" in c.types:
            trees.append(language(logic, c).automaton())
    if not trees:
        return regular.Dfa([[]], [False])
    if len(trees) == 1:
        return trees[0]
    whole = trees[0]
    for other in trees[1:]:
        whole = regular.inverse(
            regular.intersection(regular.inverse(whole), regular.inverse(other))
        )
    return whole
