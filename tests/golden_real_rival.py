"""What llama.cpp says of the real models: tests/golden/real/MODEL.json and MODEL.llama.cpp.npz.

    python3 tests/golden_real_rival.py      with a Python that has llama-cpp-python and numpy; no test runs it

Its default arithmetic on the file as it is: activations are rounded to int8. Keys and values are f16, as ours are. The perplexity is
computed as golden_perplexity.py does it.
"""
import json

import numpy as np
from llama_cpp import Llama

import golden_real_cases as cases
from golden_perplexity import perplexity

PROMPTS = {"capital": "The capital of France is", "story": "Once upon a time, in a small village by the sea,", "code": "def fibonacci(n):\n"}
N_GREEDY = 48
F16 = 1  # the type of its cache
WINDOW = 256  # of the perplexity


def greedy(llm, ids, n):
    """The `n` token IDs that follow `ids`, fewer where the text ends."""
    llm.reset()
    out = []
    while len(out) < n:
        llm.eval(ids)
        ids = [int(llm.scores[llm.n_tokens - 1].argmax())]
        if ids[0] == llm.token_eos():
            break
        out += ids
    return out


def rows(llm, ids, n):
    llm.reset()
    llm.eval(ids)
    yield from np.array(llm.scores[len(ids) - n:len(ids)])


def main():
    for name, model in cases.MODELS.items():
        llm = Llama(str(model.path), n_ctx=1024, n_batch=1024, n_threads=1, logits_all=True, verbose=False, type_k=F16, type_v=F16)
        tokens = lambda text: llm.tokenize(text, add_bos=True, special=False)  # where the vocabulary has one before a text
        ids = tokens(cases.TEXT.read_bytes())
        kept = cases.keep(rows(llm, ids, cases.N_POSITIONS), cases.RIVAL_STEP)
        cases.save(kept, name + cases.RIVAL)
        texts = {key: greedy(llm, tokens(prompt.encode()), N_GREEDY) for key, prompt in PROMPTS.items()}
        found = {"ids": ids, "prompts": PROMPTS, "greedy": texts,
                 "perplexity": {"n_ctx": WINDOW, **perplexity(model.path, cases.TEXT, WINDOW)}}
        (cases.DIRECTORY / f"{name}.json").write_text(json.dumps(found) + "\n")
        print(name, len(ids), kept.largest, found["perplexity"])


if __name__ == "__main__":
    main()
