"""The golden cases read by llama.cpp: does it find in these files what we and transformers find?

    python3 tests/helpers/llama_cpp_logits.py    exit 1 if llama-cpp-python's logits are not the golden
                                             ones
                                     within TOLERANCE

For a Python that has llama-cpp-python; no test runs it. llama.cpp reads the same keys and tensors
as we do, so a case that agrees is one whose file is as its converter writes it. Where the two
differ on purpose is said in KNOWN, and checked to be so.
"""

import os
import sys
import tempfile

import golden_cases
import llama_cpp
import tiny_model

# Of the largest logit. Its GELU is a table of f16, its products of rows that are no whole blocks
# round activations to f16 or bf16, and those with quantised weights to int8.
TOLERANCE = {"f32": 4e-6, "f16": 3e-3, "bf16": 1e-2, "q8_0": 4e-2, "q4_0": 4e-2, "q4_1": 4e-2}
GELU = 5e-4
# of models with states, in which int8 activations of 64 elements leave larger differences
STATES = {"q8_0": 0.2}
F32 = 0  # the type of its cache
KNOWN = {
    "llama-yarn": "yarn_attn_factor is not read",
    "mistral3-gqa": "the turns of YaRN are the package's own, not those of the file",
    "mistral-window": "the window of a llama is not read",
    "phi3-window": "the window of a phi3 is read and ignored",
    "phi3-short": (
        "the context is rounded up to 256, beyond the original one, so the long factors apply"
    ),
}
# It ends the process: blocks share with the two before the first that shares, in this order
NOT_READ = ("gemma4-other-order",)


def difference(path, case, want):
    """The largest, as a share of the largest golden logit."""
    n_ctx = tiny_model.complete(case["config"])["n_ctx"]
    m = llama_cpp.Llama(
        path, n_ctx=n_ctx, n_threads=1, logits_all=True, verbose=False, type_k=F32, type_v=F32
    )
    m.eval(golden_cases.prompt(case))
    apart = max(
        abs(float(a) - b)
        for p, row in zip(case["positions"], want)
        for a, b in zip(m.scores[p], row)
    )
    return apart / max(max(map(abs, row)) for row in want)


def main():
    good = True
    with tempfile.TemporaryDirectory() as directory:
        for name, case in golden_cases.cases().items():
            if name in NOT_READ:
                continue
            path = os.path.join(directory, name + ".gguf")
            # blocks that are not run: it wants all of their tensors
            left_out = {"n_unused": 0} if "n_unused" in case["config"] else {}
            tiny_model.write_model(path, **case["config"] | left_out)
            found = difference(path, case, golden_cases.expected(name, case))
            limit = TOLERANCE[case["config"].get("type", "f32")]
            if name.startswith(("lfm2", "qwen35")):
                limit = STATES.get(case["config"].get("type", "f32"), limit)
            limit = max(limit, GELU) if name.startswith("gemma") else limit
            right = (found > limit) == (name in KNOWN)
            good = good and right
            print(
                f"{name}:"
                f" {found:.0e}{', ' + KNOWN[name] if name in KNOWN else ''}{'' if right else ' <- not as expected'}",
                flush=True,
            )
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
