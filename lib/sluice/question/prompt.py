"""The prompt of a question as tokens: the part before the input, the cut input, the part after.

Segments are tokenized one by one and joined as tokens, so no input becomes a control token or
merges with its surroundings. Some vocabularies add a space before a text (tokenizer/vocabulary.py).
Like `tokenize --special`, this module adds the space if a text begins the prompt or follows a
control token.
"""

from ..faults import data_error
from . import templates

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..gguf import File
    from ..tokenizer.vocabulary import Vocab
    from .question import Question

# Of a longer text the first and last CUT_BYTES + CUT_BYTES_PER_TOKEN * (tokens to keep) bytes are
# tokenized.
CUT_BYTES = 64 << 10
CUT_BYTES_PER_TOKEN = 16


class Prompt:
    """A question in the tokens of a vocabulary.

    before, after: list of int, the tokens around the input.
    template: name of the chat template, or None.
    head, tail: int, the number of first and last tokens of the input that fit into `n_ctx`, with
    `n_more` tokens after the prompt.

    segments: [(kind, text)]; None: those of the question.

    Raises DataError if a control token is missing or the prompt without input does not fit.
    """

    def __init__(
        self,
        question: "Question",
        file: "File",
        vocab: "Vocab",
        n_ctx: int,
        n_more: int,
        segments: "list[tuple[str, str]] | None" = None,
    ) -> None:
        self._vocab, tokens, self.template = vocab, [], None
        segments = segments or question.prompt
        if question.frame:
            self.template = (
                templates.choose(file, vocab, question.frame)
                if question.frame in (templates.AUTO, templates.CHAT)
                else question.frame
            )
            template = templates.ALL[self.template]
            segments = template.before + segments + template.after
            tokens = [vocab.bos] if vocab.add_bos else []
        self.after = tokens  # becomes `before` at the input
        for kind, text, first in joined(segments):
            last = self.after[-1] if self.after else None
            # also if that token took along all white space between
            first = first or (last is not None and vocab.splits(last))
            if kind == "special":
                self.after.append(templates.need(file, vocab, text))
            elif kind == "text":
                self.after += vocab.encode(
                    text.encode(), bos=False, eos=False, prefix=first, marks=False, after=last
                )
            else:
                self.before, self.after, self._prefix, self._last = self.after, [], first, last
        n_free = n_ctx - len(self.before) - len(self.after) - n_more
        if n_free < 1:
            raise data_error(
                question.path,
                f"prompt and answers take {n_ctx - n_free} tokens, more than the context of"
                f" {file.path}, {n_ctx}",
            )
        self.head, self.tail = fit(question.head_ids, question.tail_ids, n_free)

    def reads_as(self) -> "tuple[object, ...]":
        """What decides the tokens up to the end of an input."""
        return tuple(self.before), self.head, self.tail, self._prefix, self._last

    def input_tokens(self, data: bytes, rest: bytes | None = None) -> tuple[list[int], bool]:
        """Tokenize a text: (tokens, cut).

        tokens: at most head + tail of them, the first and the last ones. cut: whether some are
        missing.
        rest: None, or the end of a text whose middle is missing; `data` is then its begin. Both are
        tokenized separately, so they neither merge nor take each other's share.
        """
        encode = lambda part, prefix: self._vocab.encode(
            part,
            bos=False,
            eos=False,
            prefix=prefix,
            marks=False,
            after=self._last if prefix else None,
        )
        keep = CUT_BYTES + CUT_BYTES_PER_TOKEN * max(self.head, self.tail)
        if rest is not None or len(data) > 2 * keep:
            first, last = (
                encode(data[:keep], self._prefix),
                encode((data if rest is None else rest)[-keep:], False),
            )
        else:
            first = last = encode(data, self._prefix)
            if len(first) <= self.head + self.tail:
                return first, False
        return first[: self.head] + (last[-self.tail :] if self.tail else []), True

    def bytes_read(self, tokens: list[int]) -> tuple[int, int]:
        """About how many bytes of a text that was cut its first tokens are, and its last ones."""
        n = [len(self._vocab.bytes_of(token)) for token in tokens]
        return sum(n[: self.head]), sum(n[self.head :])


def joined(segments: list[tuple[str, str]]) -> list[tuple[str, str, bool]]:
    """Join adjacent text segments; return [(kind, text, first)].

    first: whether the segment is the first one, or follows a control token.
    """
    out, first = [], True
    for kind, text in segments:
        kind = "text" if kind == "options" else kind
        if kind == "text" and out and out[-1][0] == "text":
            out[-1] = (kind, out[-1][1] + text, out[-1][2])
        else:
            out.append((kind, text, first))
        first = kind == "special"
    return out


def fit(head: int, tail: int, n_free: int) -> tuple[int, int]:
    """Scale (head, tail) down in proportion if their sum exceeds `n_free` tokens."""
    if head + tail <= n_free:
        return head, tail
    less = n_free * tail // (head + tail)
    return n_free - less, less
