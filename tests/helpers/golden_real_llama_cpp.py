"""llama.cpp's results on the real models: tests/golden/real/MODEL.json and MODEL.llama.cpp.npz.

    python3 tests/helpers/golden_real_llama_cpp.py      with a Python that has llama-cpp-python and
                                                    numpy

Its default arithmetic on the file as it is: activations are rounded to int8. Keys and values are
f16, as in sluice. The perplexity is computed as golden_perplexity.py does it. No test runs this.
"""

import json

import golden_real_cases as cases
import numpy as np
from golden_perplexity import perplexity
from llama_cpp import Llama

PROMPTS = {
    "capital": "The capital of France is",
    "code": "def fibonacci(n):\n",
    "story": "Once upon a time, in a small village by the sea,",
}
N_GREEDY = 48
F16 = 1  # the type of its cache
WINDOW = 256  # of the perplexity


def greedy(llm, tokens, n):
    """The `n` token IDs that follow `tokens`, fewer if the text ends."""
    llm.reset()
    out = []
    while len(out) < n:
        llm.eval(tokens)
        tokens = [int(llm.scores[llm.n_tokens - 1].argmax())]
        if tokens[0] == llm.token_eos():
            break
        out += tokens
    return out


def rows(llm, tokens):
    """f32 [N_POSITIONS][n_vocab] after the last of `tokens`."""
    llm.reset()
    llm.eval(tokens)
    return np.array(llm.scores[len(tokens) - cases.N_POSITIONS : len(tokens)])


def main():
    for name, model in cases.MODELS.items():
        llm = Llama(
            str(model.path),
            n_ctx=1024,
            n_batch=1024,
            n_threads=1,
            logits_all=True,
            verbose=False,
            type_k=F16,
            type_v=F16,
        )
        # add_bos: where the vocabulary has one before a text
        encode = lambda text: llm.tokenize(text, add_bos=True, special=False)
        tokens = encode(cases.TEXT.read_bytes())
        cases.save(cases.keep(rows(llm, tokens), cases.RIVAL_STEP), name + cases.RIVAL)
        texts = {key: greedy(llm, encode(text.encode()), N_GREEDY) for key, text in PROMPTS.items()}
        measured = {"n_ctx": WINDOW, **perplexity(model.path, cases.TEXT, WINDOW)}
        found = {"ids": tokens, "prompts": PROMPTS, "greedy": texts, "perplexity": measured}
        (cases.DIRECTORY / f"{name}.json").write_text(json.dumps(found) + "\n")
        print(name, len(tokens), measured)


if __name__ == "__main__":
    main()
