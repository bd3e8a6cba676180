"""Signs that a question does not suit a model or the texts, seen over many texts.

Two are looked for. The answers may be improbable among all tokens: the model would write something
else. Or one answer may take nearly all texts: the model may prefer it whatever the text says.
"""

from ..question import kinds

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..classify.classifier import Verdict
    from ..classify.panel import Panel

# The mass costs a product with the whole output matrix a text: 5 ms for SmolLM2-135M, 20 ms for
# Gemma 3 270M with its 262,144 tokens. So it is looked at in the first texts only.
N_SAMPLED = 20
LOW_MASS, LOW_SHARE = 0.1, 0.2
MIN_TEXTS, ONE_ANSWER_SHARE = 50, 0.95


class Doubts:
    """Counts over the verdicts of a run of many texts."""

    def __init__(self, panel: "Panel") -> None:
        self._panel = panel
        self._n = [0] * len(panel.classifiers)  # texts whose mass is known
        self._n_low = [0] * len(panel.classifiers)
        self._answers: list[dict[str, int]] = [{} for _ in panel.classifiers]
        self._has_learned = [False] * len(panel.classifiers)
        for c in panel.classifiers:
            c.n_to_sample = N_SAMPLED

    def add(self, verdicts: "Sequence[Verdict]") -> None:
        """Count the verdicts of all questions on a text."""
        for k, v in enumerate(verdicts):
            mass = v.begin_mass if v.mass is None else v.mass
            if mass is not None:
                self._n[k] += 1
                self._n_low[k] += mass < LOW_MASS
            self._has_learned[k] |= v.learned is not None
            if v.taught is not None:  # the user's answer, not the model's
                continue
            best = max(v.scores, key=lambda name: v.scores[name])
            self._answers[k][best] = self._answers[k].get(best, 0) + 1

    def lines(self) -> list[str]:
        """Return a message for each question that is in doubt."""
        out = []
        for k, (name, c) in enumerate(zip(self._panel.names, self._panel.classifiers)):
            low = self._low_mass(k)
            found = [*low, *self._one_answer(k)]
            if found:
                wordings = _wordings(c.question) if low else []
                advice = _advice(wordings, bool(c.prior or c.fitted), self._has_learned[k])
                out.append(f"{name}: {'; '.join(found)}{advice}")
        return out

    def _low_mass(self, k):
        n, n_low = self._n[k], self._n_low[k]
        if n < N_SAMPLED or n_low <= LOW_SHARE * n or self._panel.classifiers[k].head:
            return []
        return [
            f"in {n_low} of {n} texts all answers together have a probability below {LOW_MASS:g}"
            " among all tokens (--mass)"
        ]

    def _one_answer(self, k):
        n = sum(self._answers[k].values())
        if n < MIN_TEXTS:
            return []
        answer, most = max(self._answers[k].items(), key=lambda item: item[1])
        if most <= ONE_ANSWER_SHARE * n:
            return []
        return [f"{most} of {n} texts got the answer {answer}"]


def _wordings(question):
    """Other prompts to try."""
    tries = ["another wording"]
    if question.type is None:
        tries.append("the question behind the text instead of before it")
    elif order := kinds.other_order(question.prompt):
        tries.append(f"in a question file, order: {order}")
    return [", or ".join(tries)]


def _advice(wordings, is_corrected, has_learned):
    tries = []
    if has_learned:
        tries.append("--list-learned for what was learned of each answer")
    tries += wordings
    if not is_corrected and not has_learned:
        tries.append("--prior texts")
    tries.append("another model (-m)")
    return f"; if that is not as it should be, try {', '.join(tries)}"
