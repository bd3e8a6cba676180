"""Train the vocabulary: SentencePiece BPE (Kudo & Richardson 2018, arXiv 1808.06226)."""

from __future__ import annotations

import io
import random
from collections.abc import Iterable

CONTROL = {"<s>": 1, "</s>": 2, "<|user|>": 3, "<|assistant|>": 4}
ANSWERS = ("yes", "no")
MAX_PIECE_CHARS = 24
Vocabulary = tuple[list[str], list[float], list[int]]  # tokens, scores, types, as in GGUF


def train(texts: Iterable[str], n_vocab: int, seed: int = 1, n_bytes: int = 24 << 20) -> Vocabulary:
    """(tokens [str], scores [float], types [int]) as in GGUF: n_vocab pieces, with the answers.

    texts: iterable of str, normalized; at most n_bytes characters are used. No space is put before
    a text; newline is a byte piece.
    """
    import sentencepiece

    lines = [
        line[i : i + 4000]
        for text in texts
        for line in text.split("\n")
        for i in range(0, len(line), 4000)
    ]
    random.Random(seed).shuffle(lines)
    n, chosen = 0, []
    for line in lines:
        n += len(line)
        if n > n_bytes:
            break
        chosen.append(" " + line)  # so the first word of a line is the same piece as elsewhere
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(chosen),
        model_writer=out,
        model_type="bpe",
        vocab_size=n_vocab,
        byte_fallback=True,
        character_coverage=0.9995,
        normalization_rule_name="identity",
        add_dummy_prefix=False,
        remove_extra_whitespaces=False,
        split_digits=False,
        allow_whitespace_only_pieces=False,
        max_sentencepiece_length=MAX_PIECE_CHARS,
        max_sentence_length=1 << 16,
        num_threads=2,
        unk_id=0,
        bos_id=1,
        eos_id=2,
        pad_id=-1,
        control_symbols=["<|user|>", "<|assistant|>"],
        minloglevel=2,
    )
    model = sentencepiece.SentencePieceProcessor(model_proto=out.getvalue())
    tokens = [model.id_to_piece(i) for i in range(n_vocab)]
    scores = [model.get_score(i) for i in range(n_vocab)]
    types = [
        2 if model.is_unknown(i) else 3 if model.is_control(i) else 6 if model.is_byte(i) else 1
        for i in range(n_vocab)
    ]
    missing = [word for word in ANSWERS if word not in tokens]
    rare = [
        i
        for i in range(n_vocab - 1, 0, -1)
        if types[i] == 1 and len(tokens[i]) == 1 and not tokens[i].isascii()
    ]
    for i, word in zip(rare, missing):  # the rarest characters become bytes
        tokens[i], scores[i] = word, min(scores) - 1
    return tokens, scores, types
