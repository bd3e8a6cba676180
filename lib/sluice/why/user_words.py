"""What the user's own words and header fields added to an answer (see learn/evidence.py).

The effect of a word: the log-odds of the answer less those without what the word adds to the
evidence. `together` is the effect of all of them; it is what learning added beside the scale and
the bias of the fit.
"""

from ..question.answers import log_sum
from .visible import visible

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..classify.classifier import Classifier, Verdict

N_SHOWN = 10  # unless --top says otherwise
MAX_SHOWN = 60  # characters of a word


class Words:
    """n_texts: learned texts of this model and question. taught: the answer that the user gave to
    this text, or None. together: effect of all words, nats. effects: [(word, effect)], the largest
    first; none until each answer has learned texts.
    """

    def __init__(
        self, n_texts: int, taught: str | None, together: float, effects: list[tuple[str, float]]
    ) -> None:
        self.n_texts, self.taught, self.together = n_texts, taught, together
        self.effects = effects


def explain(c: "Classifier", v: "Verdict", of: str) -> Words | None:
    """Return the Words of a Verdict, for the log-odds of the answer `of`; None if nothing was
    learned.
    """
    section = v.learned
    if section is None:
        return None
    if not section.has_evidence:
        return Words(section.n_texts, v.taught, 0.0, [])
    joint, at = section.joint, list(c.question.answers).index(of)
    t, weights = section.evidence(c.words_of(v))
    terms = [
        joint.scale * p + b + joint.trust * x
        for p, b, x in zip(v.log_p, joint.bias, t, strict=True)
    ]
    score = _log_odds(terms, at)

    def effect(added: "Any") -> float:
        return score - _log_odds([x - joint.trust * y for x, y in zip(terms, added)], at)

    effects = [(word, effect(added)) for word, added in weights.items() if any(added)]
    effects.sort(key=lambda pair: (-abs(pair[1]), pair[0]))
    return Words(section.n_texts, v.taught, effect(t), effects)


def _log_odds(terms, at):
    return terms[at] - log_sum(terms[:at] + terms[at + 1 :])


def head(words: Words, top: int | None) -> str:
    """Return what was learned and what it added, in one line."""
    taught = f"; this text was learned as {visible(words.taught)}" if words.taught else ""
    learned = f"learned from {words.n_texts} text{'s' * (words.n_texts != 1)}{taught}"
    n = min(len(words.effects), top or N_SHOWN)
    if not n:
        return f"{learned}: no word or field of this text weighs"
    which = "the one" if n == 1 else f"the {n}"
    return (
        f"{learned}: words and fields add {words.together:+.2f};"
        f" {which} of {len(words.effects)} that weigh most:"
    )


def shown(word: str) -> str:
    """Return a word as it is shown on a terminal or a page."""
    text = visible(word)
    return text if len(text) <= MAX_SHOWN else text[: MAX_SHOWN - 3] + "..."


def fields(words: Words, top: int | None) -> "dict[str, Any]":
    """Return the value of the key `learned` of --why --json. Without --top it has all words."""
    return {
        "n_texts": words.n_texts,
        "taught": words.taught,
        "together": round(words.together, 6),
        "n_words": len(words.effects),
        "words": [{"word": w, "effect": round(x, 6)} for w, x in words.effects[:top]],
    }
