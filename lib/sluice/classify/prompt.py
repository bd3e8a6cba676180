"""A prompt in tokens: what stands before the input, the input itself cut to size, what stands after
it.

Segments are encoded one by one and joined as tokens, so nothing in the input can become a control
token or merge with its surroundings. The blank that some vocabularies put before a text (see
tokenizer/vocabulary.py) is put where a text begins the prompt or follows a control token, as
`tokenize --special` does.
"""

from ..faults import data_error
from . import templates

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..gguf import File
    from ..tokenizer.vocabulary import Vocab
    from .question import Question

CUT_BYTES = 64 << 10  # of a text's head and as many of its tail are encoded, whatever its length,
CUT_BYTES_PER_ID = 16  # and this many more for each id that is to be kept


class Prompt:
    """A Question in the tokens of a vocabulary.

    before, after: lists of tokens around the input.   frame: name of the frame, or None.
    head, tail: how many tokens of the input fit, with `n_more` after the prompt, into `n_ctx`.
    DataError where a control token is missing or the prompt alone does not fit.
    """

    def __init__(
        self, question: "Question", file: "File", vocab: "Vocab", n_ctx: int, n_more: int
    ) -> None:
        self._vocab, segments, tokens, self.frame = vocab, question.prompt, [], None
        if question.frame:
            self.frame = (
                templates.choose(file, vocab)
                if question.frame == templates.AUTO
                else question.frame
            )
            frame = templates.FRAMES[self.frame]
            segments = frame.before + segments + frame.after
            tokens = [vocab.bos] if vocab.add_bos else []
        self.after = tokens  # until the input comes
        for kind, text, first in joined(segments):
            last = self.after[-1] if self.after else None
            # also where that took along all white space between
            first = first or (last is not None and vocab.splits(last))
            if kind == "special":
                self.after.append(templates.need(file, vocab, text))
            elif kind == "text":
                self.after += vocab.encode(
                    text.encode(), bos=False, eos=False, prefix=first, marks=False, after=last
                )
            else:
                self.before, self.after, self._prefix, self._last = self.after, [], first, last
        room = n_ctx - len(self.before) - len(self.after) - n_more
        if room < 1:
            raise data_error(
                question.path,
                f"the prompt and the answers take {n_ctx - room} tokens, and {file.path} has a"
                f" context of {n_ctx}",
            )
        self.head, self.tail = fit(question.head_ids, question.tail_ids, room)

    def input_tokens(self, data: bytes, rest: bytes | None = None) -> tuple[list[int], bool]:
        """(tokens, cut): the tokens of a text (bytes), at most head + tail: the first and the last
        ones; whether some are left out.

        rest: where the text's middle is not there, `data` is what stands before it and this what
        stands behind it. They are encoded apart, so that neither takes the other's place nor merges
        with it, however few tokens one of them has.
        """
        encode = lambda part, prefix: self._vocab.encode(
            part,
            bos=False,
            eos=False,
            prefix=prefix,
            marks=False,
            after=self._last if prefix else None,
        )
        keep = CUT_BYTES + CUT_BYTES_PER_ID * max(self.head, self.tail)
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


def joined(segments: list[tuple[str, str]]) -> list[tuple[str, str, bool]]:
    """(kind, text, first) of segments, texts that follow each other made one; first: at the begin
    or after a control token.
    """
    out, first = [], True
    for kind, text in segments:
        if kind == "text" and out and out[-1][0] == "text":
            out[-1] = (kind, out[-1][1] + text, out[-1][2])
        else:
            out.append((kind, text, first))
        first = kind == "special"
    return out


def fit(head: int, tail: int, room: int) -> tuple[int, int]:
    """(head, tail) made smaller in proportion where they are more than `room` together."""
    if head + tail <= room:
        return head, tail
    less = room * tail // (head + tail)
    return room - less, less
