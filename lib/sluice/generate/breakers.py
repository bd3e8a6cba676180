"""Sequence breakers of DRY: the token sequences that write a text."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ..tokenizer.vocabulary import Vocab

MAX_TAIL = 20  # tokens of a breaker after the one in which it begins, as in llama.cpp


def sequences(vocab: "Vocab", texts: "Iterable[str]") -> list[tuple[int, ...]]:
    """Return the sequences of tokens (sorted) that write one of `texts`.

    These are each token whose text contains it, and each token whose text ends with a beginning
    of it, followed by the tokens of its rest.
    """
    from bisect import bisect_right

    from ..kernels import ffi

    n = vocab.n_vocab
    text, offset = vocab.table()
    ends = ffi.unpack(offset, n + 1)
    written = bytes(ffi.buffer(text, ends[n]))

    def places(part: bytes) -> "Iterator[tuple[int, int]]":
        """Yield (token, place) for each place of `part` within the text of one token."""
        at = written.find(part)
        while at >= 0:
            token = bisect_right(ends, at) - 1
            if at + len(part) <= ends[token + 1]:
                yield token, at
            at = written.find(part, at + 1)

    found: set[tuple[int, ...]] = set()
    for breaker in texts:
        data = breaker.encode()
        whole = {token for token, _ in places(data)}
        found |= {(token,) for token in whole}
        for n_head in range(1, len(data)):
            heads = {
                token
                for token, at in places(data[:n_head])
                if at + n_head == ends[token + 1] and token not in whole
            }
            found |= {(head, *tail) for tail in _tails(vocab, data[n_head:]) for head in heads}
    return sorted(found)


def _tails(vocab, data):
    """The tokens that write `data`; it may begin within a character, whose other bytes are then
    tokens of their own, or one token.
    """
    n_open = next(i for i in range(len(data) + 1) if data[i : i + 1] < b"\x80" or data[i] >= 0xC0)
    rest = vocab.encode(data[n_open:], bos=False, eos=False, prefix=False) if data[n_open:] else []
    starts = [[]]
    if n_open:
        single = [vocab.tokens_writing(data[i : i + 1]) for i in range(n_open)]
        starts = [[token] for token in vocab.tokens_writing(data[:n_open])]
        if n_open > 1 and all(single):
            starts.append([tokens[0] for tokens in single])
    return [tuple([*start, *rest][:MAX_TAIL]) for start in starts]
