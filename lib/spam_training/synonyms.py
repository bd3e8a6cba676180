"""Augmentation: synonym replacement.

An example with some words replaced by synonyms has the soft labels of the original. Synonyms are
neighbours by cosine of the encoder's vectors (encoder.py); a word's vector is the mean of the last
block's output. Zhang, Zhao & LeCun 2015 (arXiv 1509.01626, section 2.4) replace words by those of a
thesaurus, Wang & Yang 2015 (EMNLP, "That's So Annoying!!!") by neighbours in an embedding.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import torch

from . import augmentation, encoder, export
from .vocabulary import Vocabulary

# maximum number of synonyms of a word; minimum cosine; minimum number of letters of a word
N_SYNONYM, MIN_COSINE, MIN_LETTERS = 12, 0.5, 3
# share of examples with replacements; the share of their words that are replaced is uniform from 0
P_REPLACED, MAX_SHARE = 0.5, 0.3
BATCH = 512


class Synonyms:
    """Synonyms of the tokens that are whole words.

    words: {token: [int64 [n], tokens of a synonym]}. is_word: bool [n_vocab], whether a token is in
    `words`. continues_word: bool [n_vocab], whether a token continues the word before it.
    """

    def __init__(self, words: dict[int, list[np.ndarray]], continues_word: np.ndarray):
        self.words, self.continues_word, self.is_word = (
            words,
            continues_word,
            np.zeros(len(continues_word), bool),
        )
        self.is_word[list(words)] = True

    def replaced(self, tokens: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
        """Replace some words: (int64 [n], tokens without marks; int64 [n], their origins).

        An origin is the position in `tokens`, marked or not, that a token comes from.
        """
        tokens = augmentation.bare(tokens)
        places = np.arange(len(tokens))
        if rng.random() >= P_REPLACED:
            return tokens, places
        found = np.flatnonzero(
            self.is_word[tokens] & ~np.append(self.continues_word[tokens[1:]], False)
        )
        parts, at = [], 0
        for place in found[rng.random(len(found)) < rng.uniform(0, MAX_SHARE)]:
            words = self.words[int(tokens[place])]
            word = words[rng.integers(len(words))]
            parts += [(tokens[at:place], places[at:place]), (word, np.full(len(word), place))]
            at = place + 1
        parts.append((tokens[at:], places[at:]))
        return tuple(np.concatenate(part).astype(np.int64) for part in zip(*parts))


def read(vocabulary: Vocabulary, folder: str | None = None) -> Synonyms:
    """The Synonyms of a vocabulary (tokens, scores, types), for words that the encoder has as one
    piece. folder: another encoder, as for encoder.logits.
    """
    from transformers import AutoModel, AutoTokenizer

    folder = folder or encoder.package_folder()
    model, tokenizer = (
        AutoModel.from_pretrained(folder, local_files_only=True),
        AutoTokenizer.from_pretrained(folder, local_files_only=True),
    )
    known = sorted(
        word
        for word in tokenizer.get_vocab()
        if len(word) >= MIN_LETTERS and word.isalpha() and word == word.lower()
    )
    place, pieces, types = {word: i for i, word in enumerate(known)}, *vocabulary[::2]
    known_pieces = [
        (i, place[token[1:]])
        for i, token in enumerate(pieces)
        if types[i] == 1 and token[0] == "\u2581" and token[1:] in place
    ]
    vectors, tokens, words = (
        _vectors(model, tokenizer, known) if known_pieces else None,
        _tokens_of(vocabulary, known) if known_pieces else [],
        {},
    )
    for start in range(0, len(known_pieces), BATCH):
        some = known_pieces[start : start + BATCH]
        for (i, at), cosine in zip(some, vectors[[at for _, at in some]] @ vectors.T):
            cosine[at] = -1
            nearest = np.argsort(-cosine, kind="stable")[:N_SYNONYM]
            if cosine[nearest[0]] >= MIN_COSINE:
                words[i] = [tokens[k] for k in nearest if cosine[k] >= MIN_COSINE]
    return Synonyms(
        words, np.array([kind == 1 and token[0].isalpha() for token, kind in zip(pieces, types)])
    )


@torch.no_grad()
def _vectors(model, tokenizer, words):
    """float32 [n, width], normalized vectors of words [str]."""
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


def _tokens_of(vocabulary, words):
    """[int64 [n]]: the tokens of each word after a space."""
    with tempfile.TemporaryDirectory() as folder:
        table = export.table(Path(folder) / "vocabulary.gguf", vocabulary)
        return [
            np.array(list(table.encode(b" " + word.encode(), bos=False)), np.int64)
            for word in words
        ]
