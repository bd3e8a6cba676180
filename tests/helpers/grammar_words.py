"""A vocabulary of byte strings, without a model."""

from sluice.kernels import ffi


class Words:
    """A vocabulary of plain byte strings: what grammar.Matcher wants of vocab.Vocab."""

    def __init__(self, texts, eog=()):
        self.texts, self.n_vocab, self.eog = texts, len(texts), frozenset(eog)
        self.suppressed = frozenset()
        self._text = ffi.from_buffer("uint8_t[]", b"".join(texts) + b"\0")
        ends = [0]
        for t in texts:
            ends.append(ends[-1] + len(t))
        self._offset = ffi.new("uint32_t[]", ends)

    def table(self):
        return self._text, self._offset
