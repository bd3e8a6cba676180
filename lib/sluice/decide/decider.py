"""Answer requests: the state's tokens are read once for all questions, texts first.

Requests that arrive together and ask the same questions are run in one batch. Each probability has
the bits that the question alone would give.
"""

from itertools import groupby

from .. import stream
from ..classify.classifier import Classifier, ask_together
from ..faults import BAD_DATA, Error, data_error
from ..jsonl import BadLine, dump, lines_at_once
from ..question import kinds
from ..question.question import Question
from . import replies, requests
from .requests import Asked, Request

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

    from ..model.model import Model

HEAD_TOKENS, TAIL_TOKENS = 24 << 10, 8 << 10  # of a longer state; less if the context is shorter
MAX_KEPT = 64  # questions that are kept ready
MAX_QUESTION_TOKENS = 1 << 16  # of all questions of a request
MAX_BATCH, MAX_BATCH_BYTES = 64, 1 << 18


class Decider:
    """A model, ready for requests. mass: add to each answer the probability of all its options
    together among all that the model could write.
    """

    def __init__(self, model: "Model", mass: bool = False) -> None:
        self._model, self._mass = model, mass
        # {key of a question: (its Classifier, tokens of a longer state that fit beside it)}
        self._kept: dict[Any, tuple[Classifier, tuple[int, int]]] = {}
        self._base: Classifier | None = None
        self.n_tokens = 0

    def answer(self, arrived: "Sequence[Request]") -> "Iterator[dict[str, Any]]":
        """Yield the object that answers each Request. All ask the same questions."""
        questions = arrived[0].questions
        try:
            classifiers = self._ready(questions)
        except Error as e:
            if e.code != BAD_DATA:
                raise
            for request in arrived:
                yield replies.error(str(e), request.id)
            return
        found = ask_together(classifiers, [request.state for request in arrived])
        for request, verdicts in zip(arrived, found):
            if isinstance(verdicts, Error):
                yield replies.error(str(verdicts), request.id)
                continue
            n = verdicts[0].n_tokens + sum(len(c.prompt.after) for c in classifiers[1:])
            self.n_tokens += n
            answers = {
                id: replies.answer(asked, list(v.scores.values()), v.mass)
                for (id, asked), v in zip(questions.items(), verdicts)
            }
            yield replies.reply(request, answers, n, verdicts[0].cut)

    def _ready(self, questions: "dict[str, Asked]") -> "list[Classifier]":
        """Return a Classifier for each question. They use one cache, whose first tokens are those
        before every state, and the buffers of one Forward. Raises DataError naming the question.
        """
        found = [self._classifier(asked, f"questions.{id}") for id, asked in questions.items()]
        classifiers = [c for c, _ in found]
        if sum(len(c.prompt.after) for c in classifiers) > MAX_QUESTION_TOKENS:
            raise data_error("questions", f"more than {MAX_QUESTION_TOKENS} tokens in all")
        self._base = base = self._base or classifiers[0]
        base.reserve(max(c.n_rows for c in classifiers))
        base.prepare()
        for c in classifiers:
            c.share(base)
        # a longer state is cut alike for all: to what fits beside the longest question
        classifiers[0].prompt.head, classifiers[0].prompt.tail = min(fits for _, fits in found)
        return classifiers

    def _classifier(self, asked, where):
        key = asked.key()
        found = self._kept.pop(key, None)
        if found is None:
            names = [str(i) for i in range(len(asked.options))]
            form = kinds.full(asked.kind, asked.text, asked.options, kinds.TEXT_FIRST, names=names)
            form["input"] = {"kind": "text", "head_ids": HEAD_TOKENS, "tail_ids": TAIL_TOKENS}
            c = Classifier(
                Question(form, where), self._model.file.path, mass=self._mass, model=self._model
            )
            found = c, (c.prompt.head, c.prompt.tail)
        self._kept[key] = found  # the one asked last stays longest
        while len(self._kept) > MAX_KEPT:
            del self._kept[next(iter(self._kept))]
        return found


def run(decider: Decider, fd: int) -> int:
    """Answer the lines on a descriptor, an object each, as they arrive. Returns their number.

    A request that cannot be answered gets an object with "error". If there were such, raises
    DataError at the end.
    """
    n = n_bad = 0
    for arrived in lines_at_once(fd):
        for batch in _batches(map(_parsed, arrived)):
            out = []
            for found in decider.answer(batch) if isinstance(batch, list) else [batch]:
                n, n_bad = n + 1, n_bad + ("error" in found)
                out.append(dump(found))
            stream.write_all(1, b"".join(out))
    if n_bad:
        raise data_error(
            "standard input",
            f'{n_bad} of {n} requests could not be answered; their objects have "error"',
        )
    return n


def _parsed(line):
    """Return the Request in a line, or the object that says what is wrong with it."""
    try:
        return requests.parse(line)
    except BadLine as e:
        return replies.error(str(e), e.id, is_too_large=line is None)


def _batches(found):
    """Yield lists of consecutive Requests with the same questions; and what is none as it is."""

    def alike(x):
        if not isinstance(x, Request):
            return None
        return [(id, asked.key()) for id, asked in x.questions.items()]

    for key, run_of in groupby(found, alike):
        if key is None:
            yield from run_of
            continue
        batch, n_bytes = [], 0
        for request in run_of:
            batch.append(request)
            n_bytes += len(request.state)
            if len(batch) == MAX_BATCH or n_bytes > MAX_BATCH_BYTES:
                yield batch
                batch, n_bytes = [], 0
        if batch:
            yield batch
