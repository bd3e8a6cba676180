"""Words near in meaning: what a net has learnt of one shall hold for those it has never met.

The encoder of encoder.py knows: a word's vector is the mean of its last block's rows, and words are
near whose vectors are (cosine). A view in which some words are replaced by such ones is to be
answered like the view itself. Zhang, Zhao & LeCun 2015 (arXiv 1509.01626, section 2.4) replace
words by those of a thesaurus; the nearest words of another model are Wang & Yang's 2015 (EMNLP,
"That's So Annoying!!!").
"""

import tempfile
from pathlib import Path

import numpy as np
import torch

from . import encoder, export, views

# words that a word may become, at most; cosine, letters, at least
N_NEAR, LEAST, N_LETTER = 12, 0.5, 3
# of views; share of the words that can be replaced: from none to this
P_REWORDED, MOST = 0.5, 0.3
BATCH = 512


class Near:
    """words: {id of a piece that is a word: [int64 [n], the ids of a word near to it]}; is_word,
    goes_on: bool [n_vocab], whether an id is in `words`, and whether it goes on with the word that
    the id before it began.
    """

    def __init__(self, words, goes_on):
        self.words, self.goes_on, self.is_word = words, goes_on, np.zeros(len(goes_on), bool)
        self.is_word[list(words)] = True

    def reworded(self, ids, rng):
        """(int64 [n], ids, some words of which are replaced, without marks; int64 [n], the place in
        `ids` that each comes from). Now and then none is. ids: marked or not.
        """
        ids = views.bare(ids)
        places = np.arange(len(ids))
        if rng.random() >= P_REWORDED:
            return ids, places
        found = np.flatnonzero(self.is_word[ids] & ~np.append(self.goes_on[ids[1:]], False))
        parts, at = [], 0
        for place in found[rng.random(len(found)) < rng.uniform(0, MOST)]:
            words = self.words[int(ids[place])]
            word = words[rng.integers(len(words))]
            parts += [(ids[at:place], places[at:place]), (word, np.full(len(word), place))]
            at = place + 1
        parts.append((ids[at:], places[at:]))
        return tuple(np.concatenate(part).astype(np.int64) for part in zip(*parts))


def read(vocabulary, folder=None):
    """The Near of a vocabulary (tokens, scores, types), such as sentencepiece's of folded texts; of
    words that the encoder has in one piece. folder: of another encoder, as encoder.margins has it.
    """
    from transformers import AutoModel, AutoTokenizer

    folder = folder or encoder.shipped()
    model, tokenizer = (
        AutoModel.from_pretrained(folder, local_files_only=True),
        AutoTokenizer.from_pretrained(folder, local_files_only=True),
    )
    known = sorted(
        word
        for word in tokenizer.get_vocab()
        if len(word) >= N_LETTER and word.isalpha() and word == word.lower()
    )
    place, tokens, types = {word: i for i, word in enumerate(known)}, *vocabulary[::2]
    own = [
        (i, place[token[1:]])
        for i, token in enumerate(tokens)
        if types[i] == 1 and token[0] == "\u2581" and token[1:] in place
    ]
    vectors, ids, words = (
        _vectors(model, tokenizer, known) if own else None,
        _ids_of(vocabulary, known) if own else [],
        {},
    )
    for start in range(0, len(own), BATCH):
        some = own[start : start + BATCH]
        for (i, at), cosine in zip(some, vectors[[at for _, at in some]] @ vectors.T):
            cosine[at] = -1
            nearest = np.argsort(-cosine, kind="stable")[:N_NEAR]
            if cosine[nearest[0]] >= LEAST:
                words[i] = [ids[k] for k in nearest if cosine[k] >= LEAST]
    return Near(
        words, np.array([kind == 1 and token[0].isalpha() for token, kind in zip(tokens, types)])
    )


@torch.no_grad()
def _vectors(model, tokenizer, words):
    """float32 [n, width], of length 1."""
    model.eval()
    out = []
    for start in range(0, len(words), BATCH):
        batch = tokenizer(words[start : start + BATCH], padding=True, return_tensors="pt")
        out.append(
            torch.nn.functional.normalize(
                encoder.mean(model(**batch).last_hidden_state, batch["attention_mask"])
            )
        )
    return torch.cat(out).numpy()


def _ids_of(vocabulary, words):
    """The ids, int64, of each word as it stands behind a blank."""
    with tempfile.TemporaryDirectory() as folder:
        table = export.table(Path(folder) / "vocabulary.gguf", vocabulary)
        return [
            np.array(list(table.encode(b" " + word.encode(), bos=False)), np.int64)
            for word in words
        ]
