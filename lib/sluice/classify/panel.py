"""Several questions about each text. Questions that read the text alike share its tokens.

Prompts that are the same up to the text, as those with the text first are, need its tokens once. A
question whose prompt stands before the text has a KV cache of its own, which keeps that prompt.
"""

from ..faults import USAGE, Error, one_line
from ..question import kinds
from .classifier import UNSURE, Classifier, Verdict, ask_together

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any


class Panel:
    """The questions that are asked about each text.

    classifiers: one a question, all of one Model. names: of the questions, in the same order.
    Error 64 if two have the same name.
    """

    def __init__(self, classifiers: "Sequence[Classifier]") -> None:
        self.classifiers = list(classifiers)
        self.names = [c.question.name for c in self.classifiers]
        for name in self.names:
            if self.names.count(name) > 1:
                raise Error(USAGE, f"-q: two questions are called {one_line(name)}")
        self.model = self.classifiers[0].model
        groups: dict[Any, list[int]] = {}
        for i, c in enumerate(self.classifiers):
            groups.setdefault(c.reads_as(), []).append(i)
        self._groups = list(groups.values())
        for group in self._groups:
            c = self.classifiers[group[0]]
            c.reserve(max(self.classifiers[i].n_rows for i in group))

    @property
    def first(self) -> Classifier:
        return self.classifiers[0]

    @property
    def is_mail(self) -> bool:
        """Whether a question takes the texts as messages."""
        return any(c.is_mail for c in self.classifiers)

    def prepare(self) -> None:
        """Process the tokens before the input now, once for all texts."""
        for group in self._groups:
            self.classifiers[group[0]].prepare()

    def ask(self, data: bytes) -> list[Verdict]:
        """Return the Verdict of each question on an input. Raises DataError if it is empty."""
        (found,) = self.ask_many([data])
        if isinstance(found, Error):
            raise found
        return found

    def ask_many(self, inputs: "Sequence[bytes]") -> "Iterator[list[Verdict] | Error]":
        """Yield, for each input, the Verdicts of all questions, or the DataError that it is empty.

        The order is that of the inputs. Each Verdict has the bits of the question asked alone.
        """
        found = [
            ask_together([self.classifiers[i] for i in group], inputs) for group in self._groups
        ]
        for several in zip(*found):
            verdicts: list[Any] = [None] * len(self.classifiers)
            error = next((x for x in several if isinstance(x, Error)), None)
            if error:
                yield error
                continue
            for group, some in zip(self._groups, several):
                for i, v in zip(group, some):
                    verdicts[i] = v
            yield verdicts

    def status(self, verdicts: "Sequence[Verdict]") -> int:
        """Return the exit status: 0 if all answers are the first of their question, 2 if one is
        unsure, else 1.
        """
        return max(c.status(v) for c, v in zip(self.classifiers, verdicts))

    def lines(self, verdicts: "Sequence[Verdict]") -> bytes:
        """Return what is printed of a text: "ANSWER P", or a line for each of several questions."""
        if len(verdicts) == 1:
            return f"{verdicts[0].answer} {kinds.number(verdicts[0]):.3f}\n".encode()
        lines = [
            f"{name}\t{v.answer}\t{kinds.number(v):.3f}\n" for name, v in zip(self.names, verdicts)
        ]
        return "".join(lines).encode()

    def selects(self, wanted: str) -> "tuple[int, str]":
        """Return (index of the question, answer) that `wanted` names: ANSWER, or QUESTION=ANSWER.

        Error 64 if there is no such question or answer.
        """
        name, equals, answer = wanted.rpartition("=")
        if not equals or name not in self.names:
            name, answer = self.names[0], wanted
            if len(self.names) > 1:
                known = ", ".join(self.names)
                raise Error(
                    USAGE,
                    f"--select {one_line(wanted)}: say QUESTION=ANSWER, with one of the questions"
                    f" {known}",
                )
        k = self.names.index(name)
        answers = (*self.classifiers[k].question.answers, UNSURE)
        if answer not in answers:
            raise Error(USAGE, f"--select {one_line(wanted)}: no answer; use {', '.join(answers)}")
        return k, answer
