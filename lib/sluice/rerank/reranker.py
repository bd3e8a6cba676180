"""A model that says of each text how probably it answers a query: a Classifier with the answers yes
and no.

A file for this alone has `cls.output.weight`, the two rows of the output matrix for yes and no. Of
other files these two rows of the output matrix are used.
"""

from ..classify.classifier import Classifier
from ..kernels import lib
from ..tokenizer.vocabulary import Vocab
from . import prompt

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

    from ..classify.classifier import Verdict
    from ..faults import Error
    from ..model.model import Model


class Reranker:
    """A query, ready for texts. instruct: what the search is for, or None: a web search. is_mail:
    the texts are messages (RFC 5322).

    Attributes: n_tokens: tokens so far; n_cut: texts of which the end was dropped.
    """

    def __init__(
        self, model: "Model", query: str, instruct: str | None = None, is_mail: bool = False
    ) -> None:
        question, self._lead = prompt.question_of(model.file, Vocab(model.file), query, instruct)
        self._classifier = c = Classifier(question, model.file.path, model=model)
        if model.weights.cls_output:
            c.head, c.keeps_hidden = _Rows(c), True
        self._is_mail = is_mail
        self.n_tokens = self.n_cut = 0

    def prepare(self) -> None:
        """Process the tokens before the texts now, once for all."""
        self._classifier.prepare()

    def ask_many(self, inputs: "Sequence[bytes]") -> "Iterator[Verdict | Error]":
        """Yield, for each input, a Verdict or the DataError that it is empty, in their order."""
        for v in self._classifier.ask_many([self._data(x) for x in inputs]):
            if not isinstance(v, Exception):
                self.n_tokens, self.n_cut = self.n_tokens + v.n_tokens, self.n_cut + v.cut
            yield v

    def _data(self, data):
        if self._is_mail:
            from ..mail import message
            from ..texts import inputs

            data = message.read(data[: inputs.MAIL_BYTES]).text()
        return self._lead + data


class _Rows:
    """Scores of yes and no by the rows of cls.output.weight, in place of those of the output
    matrix. As a heads.Head.
    """

    def __init__(self, classifier: Classifier) -> None:
        self._classifier = classifier

    def scores(self, x: "Any") -> list[float]:
        """Return the logits of yes and no. x: forward.Rows, a hidden state."""
        f, m = self._classifier.forward, self._classifier.model
        y = f.linear(f.part(x, 0, 1), m.weights.cls_output)
        if lib.first_nonfinite(y.p, 2) >= 0:
            raise m.file.data_error("a logit of cls.output is not finite: damaged weights")
        return [y.p[0], y.p[1]]
