"""Make tests/golden/embed.json with Hugging Face transformers in f32, or compare with it.

    python3 tests/helpers/golden_embed.py            write it
    python3 tests/helpers/golden_embed.py --check    exit 1 if fresh vectors differ

For each model of embed_models.MODELS and each text: its tokens, and its vector by each pooling,
neither cut nor of length 1. For each of RANKERS and each text: the tokens of the whole prompt, and
the probability of yes. Where sentence-transformers is installed, its modules Pooling and Normalize must
give the same. The tokens are those that `tokenize` prints, and the EOS token of a model whose file
asks for it.
"""

import json
import os
import subprocess
import sys
import tempfile

import embed_models
import golden_logits
import torch
from golden_forms import FORM, QUERY

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
GOLDEN = os.path.join(ROOT, "tests", "golden", "embed.json")
TEXTS = [
    "a",
    "The cat sat on the mat, and the dog lay on the log.",
    "Grüße aus Köln, где тоже идёт дождь 雨 🌧.",
    "Where does it rain most? " * 8,
]
TOLERANCE = 1e-6
# of a model with a template of its own, that
FORMS = {"qwen3": FORM, "own": embed_models.RANK_TEMPLATE}


def tokens_of(path, text, *options):
    """What `tokenize` makes of a text."""
    done = subprocess.run(
        [os.path.join(ROOT, "bin", "tokenize"), "-m", path, *options],
        input=text.encode(),
        capture_output=True,
        check=True,
    )
    return [int(line) for line in done.stdout.split(b"\n") if line and line[:1] != b"#"]


@torch.no_grad()
def pooled(net, tokens):
    """{pooling: f32 vector} of a text; asserts that sentence-transformers agrees."""
    states = net.model(torch.tensor([tokens])).last_hidden_state
    found = {
        "last": states[0, -1],
        "mean": states[0].double().mean(0).float(),
        "cls": states[0, 0],
    }
    try:
        from sentence_transformers.sentence_transformer.modules import Normalize, Pooling
    except ImportError:
        return found
    for mode, x in found.items():
        name = {"last": "lasttoken"}.get(mode, mode)
        pool = Pooling(states.shape[-1], pooling_mode=name)
        mask = torch.ones(1, len(tokens), dtype=torch.long)
        y = pool({"token_embeddings": states, "attention_mask": mask})
        y = Normalize()(y)["sentence_embedding"][0]
        assert (y - x / x.norm()).abs().max() < TOLERANCE, (mode, y, x)
    return found


@torch.no_grad()
def ranked(directory, name):
    """[{text, tokens, score}] of a ranker."""
    path = os.path.join(directory, "ranker.gguf")
    embed_models.write_ranker(path, name)
    metadata, tensors = golden_logits.read(path)
    n = len(metadata["tokenizer.ggml.tokens"])
    rows = tensors.pop("cls.output.weight", tensors["token_embd.weight"][n - 2 : n])  # yes, no
    net, out = golden_logits.model(metadata, tensors), []
    for text in TEXTS:
        prompt = FORMS[name].replace("{query}", QUERY).replace("{document}", text)
        tokens = tokens_of(path, prompt, "--special")
        state = net.model(torch.tensor([tokens])).last_hidden_state[0, -1]
        score = torch.softmax((rows @ state).double(), 0)[0].item()
        out.append({"text": text, "tokens": tokens, "score": score})
    return out


def fresh():
    """The content of the golden file."""
    out = {}
    with tempfile.TemporaryDirectory() as directory:
        for name in embed_models.MODELS:
            path = os.path.join(directory, name + ".gguf")
            embed_models.write_golden(path, name)
            net = golden_logits.model(*golden_logits.read(path))
            out[name] = []
            for text in TEXTS:
                tokens = tokens_of(path, text)
                vectors = {how: x.tolist() for how, x in pooled(net, tokens).items()}
                out[name].append({"text": text, "tokens": tokens, "vectors": vectors})
        for name in embed_models.RANKERS:
            out[f"rank {name}"] = ranked(directory, name)
    return out


def main():
    """Write the golden file, or compare with it."""
    found = fresh()
    if sys.argv[1:] != ["--check"]:
        with open(GOLDEN, "w") as f:
            short = lambda x: float("%.9g" % x)
            for texts in found.values():
                for of in texts:
                    if "vectors" in of:
                        of["vectors"] = {how: [*map(short, x)] for how, x in of["vectors"].items()}
            f.write(
                "{\n"
                + ",\n".join(
                    f"{json.dumps(name)}: [\n" + ",\n".join(map(json.dumps, texts)) + "\n]"
                    for name, texts in found.items()
                )
                + "\n}\n"
            )
        return
    with open(GOLDEN) as f:
        golden = json.load(f)
    for name, texts in golden.items():
        for a, b in zip(texts, found[name]):
            assert (a["text"], a["tokens"]) == (b["text"], b["tokens"])
            assert abs(a.get("score", 0) - b.get("score", 0)) < 1e-5, (name, a["text"])
            for how, x in a.get("vectors", {}).items():
                x, y = torch.tensor(x), torch.tensor(b["vectors"][how])
                assert (x - y).abs().max() <= 1e-5 * x.abs().max(), (name, a["text"], how)


if __name__ == "__main__":
    main()
