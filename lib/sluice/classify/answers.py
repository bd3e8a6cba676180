"""How probable is each of some answers, if the model must write one of them?

The answers' spellings, in tokens, are a tree. At each of its nodes the model's probabilities count
among the tokens that lead on to a spelling and no others, which is what a grammar does to the
tokens a sampler may choose from:

    P(answer) = sum over its paths of the product, over the nodes passed, of softmax(logits of the
    node's tokens)

A path ends as soon as only one answer is left: the rest would be multiplied by sums of 1. So
answers that differ in their first tokens take one look at the logits after the prompt, whatever
their length. Where a whole spelling is the begin of another answer's, the tokens that end a text
are the branch that ends there.

Tokenisations: with "all" the paths are all sequences of tokens whose bytes are the spelling, as
under grammar-filter; with "canonical" only the one sequence that the tokenizer makes of it.
"""

from ..faults import data_error, printable
from ..kernels import ffi, lib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from ..tokenizer.vocabulary import Vocab
    from .question import Question

MAX_NODES = 256  # each is a step of the model
NEVER = float("-inf")


class Node:
    """tokens: ascending, where the answers part or may part.
    next: for each an answer's index, or a Node.
    """

    __slots__ = ("tokens", "next", "rows")

    def __init__(self, branches: "dict[int, Any]") -> None:
        self.tokens = sorted(branches)
        self.next = [branches[i] for i in self.tokens]
        self.rows = ffi.new("int32_t[]", self.tokens)


class Tree:
    """The tree of a Question's answers in the tokens of a Vocab.
    root: Node; n_nodes; depth: tokens on the longest way to its last node.

    DataError naming answers that cannot be told apart, or that need more than MAX_NODES steps.
    """

    def __init__(self, question: "Question", vocab: "Vocab") -> None:
        self._path, self._vocab, self._names = question.path, vocab, list(question.answers)
        self._canonical = canonical = question.tokenisations == "canonical"
        self.n_nodes, self.depth, self._writing = 0, 0, {}
        states = [
            (a, s.encode(), self._canonical_tokens(s))
            for a, name in enumerate(self._names)
            for s in question.answers[name]
        ]
        self.root = self._grow(
            [(a, tokens if canonical else data) for a, data, tokens in states], 0
        )

    def _canonical_tokens(self, spelling):
        tokens = tuple(self._vocab.encode(spelling.encode(), bos=False, eos=False, prefix=False))
        written = b"".join(map(self._vocab.bytes_of, tokens))
        if (
            self._vocab.unknown in tokens
            or written != spelling.encode()
            and not self._vocab.remove_extra
        ):
            raise data_error(
                self._path, f"answers: the vocabulary cannot write {printable(spelling)}"
            )
        return tokens

    def _grow(self, states, depth):
        """The Node for `states` [(answer, rest of a spelling)], `depth` tokens below the root. Each
        spelling has at most 256 bytes, so does this recursion.
        """
        self.n_nodes, self.depth = self.n_nodes + 1, max(depth, self.depth)
        if self.n_nodes > MAX_NODES:
            raise data_error(
                self._path,
                f"answers: to tell them apart takes more than {MAX_NODES} steps of the model;"
                ' answers that begin differently take one, and "tokenisations: canonical" takes'
                " fewer",
            )
        branches, ended = {}, {a for a, rest in states if not rest}
        if len(ended) > 1:
            raise data_error(
                self._path,
                f"answers: {' and '.join(self._names[a] for a in sorted(ended))} are written with"
                " the same tokens",
            )
        for a, rest in states:
            for i, left in self._heads(rest) if rest else ():
                branches.setdefault(i, []).append((a, left))
        if ended and not self._vocab.eog:
            raise data_error(
                self._path,
                f"answers: another begins with {self._names[ended.pop()]}, and the vocabulary has"
                " no id that ends a text",
            )
        for i in self._vocab.eog if ended else ():
            branches[i] = [(a, None) for a in ended]
        if not branches:
            raise data_error(self._path, "answers: the vocabulary cannot write them")
        return Node(
            {
                i: (
                    below[0][0]
                    if len({a for a, _ in below}) == 1
                    else self._grow(dict.fromkeys(below), depth + 1)
                )
                for i, below in branches.items()
            }
        )

    def _heads(self, rest):
        if self._canonical:
            return [(rest[0], rest[1:])]
        return [(i, rest[n:]) for n in range(1, len(rest) + 1) for i in self._ids_writing(rest[:n])]

    def _ids_writing(self, data):
        if data not in self._writing:
            self._writing[data] = self._vocab.tokens_writing(data)
        return self._writing[data]

    def log_probabilities(
        self, look: "Callable[[list[int], Any], Any]", dense: "Callable[[], Any] | None" = None
    ) -> tuple[list[float], float | None]:
        """(log P [n_answer], log mass).

        look(path, rows) gives the logits f32 (float *) of `rows` (int32_t[]) after the tokens
        `path` (a list); it is called depth first. With dense(), the logits of the whole vocabulary
        after the same tokens, log mass is the logarithm of the probability, among all tokens, of
        the paths the answers took; else None. Sums are in a fixed order: the same bits on every
        machine.
        """
        found, masses, todo = [[] for _ in self._names], [], [(self.root, [], 0.0, 0.0)]
        while todo:
            node, path, log_p, log_q = todo.pop()
            logits = ffi.unpack(look(path, node.rows), len(node.tokens))
            among, of_all = log_sum(logits), None
            if dense:
                of_all = log_sum(ffi.unpack(dense(), self._vocab.n_vocab))
            for i, logit, below in zip(node.tokens, logits, node.next):
                p, q = log_p + (logit - among), log_q + (logit - of_all) if dense else 0.0
                if isinstance(below, Node):
                    todo.append((below, path + [i], p, q))
                else:
                    found[below].append(p)
                    masses.append(q)
        return [log_sum(terms) for terms in found], log_sum(masses) if dense else None


def log_sum(terms: list[float]) -> float:
    """ln of the sum of e^term, in order; -infinity of none."""
    top = max(terms, default=NEVER)
    if top == NEVER:
        return NEVER
    total = 0.0
    for t in terms:
        total += lib.sluice_exp(t - top)
    return top + lib.sluice_log(total)


def calibrated(log_p: "Iterable[float]", scale: float, bias: "Iterable[float]") -> list[float]:
    """The probabilities exp(scale log_p + bias), made to add up to 1."""
    scores = [scale * p + b for p, b in zip(log_p, bias)]
    total = log_sum(scores)
    return [lib.sluice_exp(s - total) for s in scores]
