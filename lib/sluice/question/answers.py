"""Probability of each label (answer) of a question, given that the model generates one of them.

The spellings of all answers, as token sequences, form a tree. At each node the softmax is over the
tokens that continue a spelling and no others, as if grammar-filter constrained the output:

    P(answer) = sum over its paths of the product over the nodes of softmax(logits of the node's
    tokens)

A path ends as soon as only one answer is left, because all further factors add up to 1. So answers
with different first tokens need the logits after the prompt only, whatever their length. If a
spelling is a prefix of another answer's spelling, the EOG tokens are the branch that ends there.

Tokenisations: "all" has a path for each token sequence whose bytes are the spelling, as
grammar-filter does; "canonical" has one path per spelling, the tokenizer's.
"""

from ..faults import data_error, printable
from ..kernels import ffi, lib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from ..tokenizer.vocabulary import Vocab
    from .question import Question

MAX_NODES = 1024  # each costs a token in the pass of a text
NEVER = float("-inf")


class Node:
    """A node of the tree.

    tokens: list of int, ascending, the possible next tokens.
    next: for each token the index of an answer, or a Node.
    rows: int32_t[], the same tokens, for Model.head.
    """

    __slots__ = ("tokens", "next", "rows")

    def __init__(self, branches: "dict[int, Any]") -> None:
        self.tokens = sorted(branches)
        self.next = [branches[i] for i in self.tokens]
        self.rows = ffi.new("int32_t[]", self.tokens)


class Tree:
    """The tree of a question's answers in the tokens of a vocabulary.

    root: Node. n_nodes: int. depth: int, tokens on the longest path to a node.

    Raises DataError if two answers have the same tokens, if the vocabulary cannot spell an answer,
    or if the tree has more than MAX_NODES nodes.
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
        self.paths = list(_paths(self.root, ()))

    def _canonical_tokens(self, spelling):
        tokens = tuple(self._vocab.encode(spelling.encode(), bos=False, eos=False, prefix=False))
        written = b"".join(map(self._vocab.bytes_of, tokens))
        if (
            self._vocab.unknown in tokens
            or written != spelling.encode()
            and not self._vocab.remove_extra
        ):
            raise data_error(
                self._path, f"answers: the vocabulary cannot spell {printable(spelling)}"
            )
        return tokens

    def _grow(self, states, depth):
        """Build the Node for `states` [(answer, rest of a spelling)], `depth` tokens below root.

        The recursion is at most 256 deep, because a spelling has at most 256 bytes.
        """
        self.n_nodes, self.depth = self.n_nodes + 1, max(depth, self.depth)
        if self.n_nodes > MAX_NODES:
            raise data_error(
                self._path,
                f"answers: more than {MAX_NODES} evaluations of the model are needed to tell them"
                ' apart; answers with different first tokens need one, and "tokenisations:'
                ' canonical" needs fewer',
            )
        branches, ended = {}, {a for a, rest in states if not rest}
        if len(ended) > 1:
            raise data_error(
                self._path,
                f"answers: {' and '.join(self._names[a] for a in sorted(ended))} have the same"
                " tokens",
            )
        for a, rest in states:
            for i, left in self._first_tokens(rest) if rest else ():
                branches.setdefault(i, []).append((a, left))
        if ended and not self._vocab.eog:
            raise data_error(
                self._path,
                f"answers: {self._names[ended.pop()]} is a prefix of another answer, and the"
                " vocabulary has no EOG token",
            )
        for i in self._vocab.eog if ended else ():
            branches[i] = [(a, None) for a in ended]
        if not branches:
            raise data_error(self._path, "answers: the vocabulary cannot spell them")
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

    def _first_tokens(self, rest):
        if self._canonical:
            return [(rest[0], rest[1:])]
        return [
            (i, rest[n:]) for n in range(1, len(rest) + 1) for i in self._tokens_writing(rest[:n])
        ]

    def _tokens_writing(self, data):
        if data not in self._writing:
            self._writing[data] = self._vocab.tokens_writing(data)
        return self._writing[data]

    def log_probabilities(
        self, look: "Callable[[list[int], Any], Any]", dense: "Callable[[], float] | None" = None
    ) -> tuple[list[float], float | None]:
        """Return (log P [n_answers], log mass), in nats.

        look(path, rows): returns the logits, f32 (float *), of the tokens `rows` (int32_t[]) after
        the prompt and the tokens `path` (list of int). Calls are depth first.
        dense(): returns ln(sum of e^logit) over the whole vocabulary after the same tokens. With
        it, log mass is the log probability of all paths together among all tokens; without it,
        None.
        Sums have a fixed order, so the bits are the same on every machine.
        """
        found, masses, todo = [[] for _ in self._names], [], [(self.root, [], 0.0, 0.0)]
        while todo:
            node, path, log_p, log_q = todo.pop()
            logits = ffi.unpack(look(path, node.rows), len(node.tokens))
            among, of_all = log_sum(logits), None
            if dense:
                of_all = dense()
            for i, logit, below in zip(node.tokens, logits, node.next):
                p, q = log_p + (logit - among), log_q + (logit - of_all) if dense else 0.0
                if isinstance(below, Node):
                    todo.append((below, path + [i], p, q))
                else:
                    found[below].append(p)
                    masses.append(q)
        return [log_sum(terms) for terms in found], log_sum(masses) if dense else None


def _paths(node, path):
    yield path
    for i, below in zip(node.tokens, node.next):
        if isinstance(below, Node):
            yield from _paths(below, (*path, i))


def log_sum(terms: list[float]) -> float:
    """Return ln(sum of e^term), summed in order; -infinity if there are no terms."""
    top = max(terms, default=NEVER)
    if top == NEVER:
        return NEVER
    total = 0.0
    for t in terms:
        total += lib.sluice_exp(t - top)
    return top + lib.sluice_log(total)


def calibrated(log_p: "Iterable[float]", scale: float, bias: "Iterable[float]") -> list[float]:
    """Return the probabilities exp(scale * log_p + bias), normalized to a sum of 1."""
    scores = [scale * p + b for p, b in zip(log_p, bias)]
    total = log_sum(scores)
    return [lib.sluice_exp(s - total) for s in scores]
