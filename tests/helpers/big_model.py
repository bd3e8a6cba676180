"""A model of TinyLlama-1.1B's shape with random Q8_0 weights and a vocabulary that spells English,
1.17 GB, for timing `classify`:

    .venv/bin/python3 tests/helpers/big_model.py OUT.gguf

Its answers are meaningless; it reads and computes as much as a real model of the shape.
"""

import sys

from tiny_vocab import vocabulary

from sluice.bench import shapes, synthetic
from sluice.gguf import write as gguf_write

N_WORDS = 768  # tokens of the small vocabulary; the others are there to be computed


def write(path, shape):
    """A model of `shape`, in which the answers yes and no are tokens of their own."""
    meta, extra = (
        shapes.metadata(shape, synthetic.FILE_TYPES["Q8_0"]),
        range(N_WORDS, shape.n_vocab),
    )
    for key, values, of_extra in zip(
        ("tokens", "scores", "token_type"),
        vocabulary(shape.arch, N_WORDS),
        (lambda i: f"~{i}~", lambda i: -1e6 - i, lambda i: 1),
    ):
        kind, _ = meta[f"tokenizer.ggml.{key}"]
        meta[f"tokenizer.ggml.{key}"] = (kind, [*values, *map(of_extra, extra)])
    gguf_write.write(path, meta, synthetic.tensors(shape, "Q8_0"))


if __name__ == "__main__":
    write(sys.argv[1], shapes.SHAPES["tinyllama-1.1b"])
