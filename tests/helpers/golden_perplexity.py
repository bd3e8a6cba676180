"""The perplexity of a text by llama.cpp: tests/golden/perplexity.json.

    python3 tests/helpers/golden_perplexity.py ../shared/data/models  with a Python that has
            llama-cpp-python and numpy

Logits from llama-cpp-python, with keys and values in f32; windows and sums as llama.cpp's
perplexity tool has them: windows of n_ctx tokens, the first of each replaced by BOS if the vocabulary
puts one before a text; the tokens after the middle of each window count.
"""

import json
import math
import sys
from pathlib import Path

OUT = Path(__file__).parents[1] / "golden" / "perplexity.json"
# texts of the repository; those of the directory of models come first
TEXTS = Path(__file__).parents[1]
CASES = [
    ("stories260K.gguf", "stories260K.greedy.txt", 64),
    ("stories260K.gguf", "stories260K.greedy.txt", 128),
    ("stories260K.gguf", "mails/ham-mutt.eml", 512),
]


def perplexity(model, text, n_ctx):
    import numpy as np
    from llama_cpp import Llama

    llm = Llama(
        str(model), n_ctx=n_ctx, n_batch=n_ctx, logits_all=True, verbose=False, type_k=0, type_v=0
    )
    tokens, nll = llm.tokenize(text.read_bytes(), add_bos=True, special=False), []
    begin = llm.tokenize(b"", add_bos=True)  # [] where the vocabulary has no begin id before a text
    for i in range(len(tokens) // n_ctx):
        window = tokens[i * n_ctx : (i + 1) * n_ctx]
        llm.reset()
        llm.eval(begin + window[len(begin) :])
        for j in range(n_ctx // 2, n_ctx - 1):
            x = llm.scores[j].astype("f8")
            nll.append(math.log(np.exp(x - x.max()).sum()) + x.max() - x[window[j + 1]])
    mean, square = sum(nll) / len(nll), sum(v * v for v in nll) / len(nll)
    return {
        "ids": len(nll),
        "perplexity": math.exp(mean),
        "error": math.exp(mean) * math.sqrt((square - mean * mean) / (len(nll) - 1)),
    }


def find(directory, text):
    path = Path(directory, text)
    return path if path.exists() else TEXTS / text


def main(directory):
    found = [
        {
            "model": model,
            "text": text,
            "n_ctx": n_ctx,
            **perplexity(Path(directory, model), find(directory, text), n_ctx),
        }
        for model, text, n_ctx in CASES
    ]
    OUT.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
