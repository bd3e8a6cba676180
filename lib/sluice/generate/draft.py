"""Draft model: a smaller model with the same vocabulary guesses what the larger one will write.

It chooses by the same sampling steps, for each position with the same random number (sampler.py)
as the larger one. So where both find the same tokens probable, they choose the same, also at high
temperatures. Penalties and grammars do not enter its choice: a guess need not be right.
"""

from .. import stream
from ..faults import data_error, unsupported_error
from ..kernels import ffi
from ..kvcache import capacity as capacities
from ..kvcache.scratch import Scratch
from ..model.forward import Forward

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..model.model import Model
    from ..tokenizer.vocabulary import Vocab
    from .sampler import Sampler


class Draft:
    """A draft model for one text. sampler: as the text's, with its seed, but one of its own."""

    def __init__(self, model: "Model", sampler: "Sampler") -> None:
        self._model, self._sampler = model, sampler
        capacity = capacities.limit(model.hparams.n_ctx)
        self._cache = Scratch(model.geometry("f16"), capacity, logits=True)
        self._forward, self._wide = (Forward(model.hparams, self._cache) for _ in range(2))

    def guess(self, tokens: list[int], n: int) -> list[int]:
        """Return `n` guesses of the tokens after `tokens`, fewer at the end of its context."""
        cache, m = self._cache, self._model
        n = min(n, cache.capacity - len(tokens))
        if n < 1:
            return []
        known = cache.tokens[: min(cache.n_tok, len(tokens) - 1)].tolist()
        if known != tokens[: len(known)]:
            known = known[: next(i for i, token in enumerate(known) if token != tokens[i])]
        cache.n_tok, found = len(known), []
        new = tokens[len(known) :]
        _, x = m.extend(cache, new, f=self._wide if len(new) > 1 else self._forward)
        f = self._wide if len(new) > 1 else self._forward
        while True:
            m.head(f, x, cache.logits)
            payload = ffi.buffer(cache.logits, 4 * m.hparams.n_vocab)
            record = stream.Record(b"L", 0, cache.n_tok, -1, payload)
            found.append(self._sampler.choose(record, name="the draft model")[0])
            if len(found) == n:
                return found
            f, x = m.extend(cache, found[-1:], f=self._forward)


def check(draft: "Model", words: "Vocab", its_words: "Vocab", model: "Model") -> None:
    """DataError unless the draft model has the vocabulary of `model`, and UnsupportedError if one
    of them keeps states, which no guess can be cut off. words: of `model`.
    """
    for m in (draft, model):
        if m.hparams.n_state:
            raise unsupported_error(
                m.file.path, f"--draft: not with {m.hparams.arch}, whose states cannot be cut back"
            )
    if [words.bytes_of(i, True) for i in range(words.n_vocab)] != [
        its_words.bytes_of(i, True) for i in range(its_words.n_vocab)
    ]:
        raise data_error(
            draft.file.path, f"its vocabulary is not that of {model.file.path}: no --draft for it"
        )
