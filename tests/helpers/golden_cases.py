"""The golden logits: transformers in f32 on models of tests/helpers/tiny_model.py.

golden/logits/CASE.json
written by hand: `config` for tiny_model.write_model, `n_ids`, the length of the prompt, and
                          `positions`, ascending, at which the logits are kept
golden/logits/CASE.f32    written by golden_logits.py: f32 little-endian [n_positions, n_vocab]

Read here without torch or numpy.
"""

import array
import json
import os
import random
import sys

import tiny_model

DIRECTORY = os.path.join(
    os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "golden", "logits"
)
BOS = {"llama": 1, "gemma3": 2}


def cases():
    """Dict: name -> {config, n_ids, positions}, of every case, by name."""
    out = {}
    for entry in sorted(os.listdir(DIRECTORY)):
        if entry.endswith(".json"):
            with open(os.path.join(DIRECTORY, entry), encoding="utf-8") as file:
                out[entry[:-5]] = json.load(file)
    return out


def prompt(case):
    """The tokens of the case: BOS, then pseudo-random ones of the whole vocabulary."""
    config = tiny_model.complete(case["config"])
    draw = random.Random(config["seed"]).random
    return [BOS[tiny_model.FAMILY.get(config["arch"], "llama")]] + [
        int(draw() * config["n_vocab"]) for _ in range(case["n_ids"] - 1)
    ]


def expected(name, case):
    """List of array("f") [n_vocab], one for each of the case's positions; ValueError if the file
    has another size.
    """
    n_vocab = tiny_model.complete(case["config"])["n_vocab"]
    all = array.array("f")
    with open(os.path.join(DIRECTORY, name + ".f32"), "rb") as file:
        all.frombytes(file.read())
    if len(all) != n_vocab * len(case["positions"]):
        raise ValueError(
            f"{name}.f32: {len(all)} logits, {len(case['positions'])} times {n_vocab} are wanted:"
            " run make golden"
        )
    if sys.byteorder == "big":
        all.byteswap()
    return [all[at : at + n_vocab] for at in range(0, len(all), n_vocab)]


def golden_cases(directory, types=("f32", "f16", "bf16")):
    """Yield (name, path of a model written into `directory`, tokens, positions, expected logits) for
    these weight types.

    Expected logits after the tokens 0 to p of the prompt stand at the index of p in positions. With
    the types f32, f16 and bf16, where the golden logits come from the same weights and f32
    activations, an engine in f32 should agree within 1e-4 of the largest logit; with quantised
    weights transformers multiplies the dequantised weights by f32 activations, and an engine that
    quantises these too agrees to a few percent only.
    """
    for name, case in cases().items():
        if case["config"].get("type", "f32") in types:
            path = os.path.join(directory, name + ".gguf")
            tiny_model.write_model(path, **case["config"])
            yield name, path, prompt(case), case["positions"], expected(name, case)
