"""Call classify as a command and in this process; questions and models for it."""

import json
import os
import subprocess
import sys

from chat_model import write_chat_model
from conftest import BIN, MEASURE, run

from sluice.classify.classifier import Classifier
from sluice.question.question import Question

TEXT = b"Dear friends, the meeting has been moved. Please bring the numbers."
ALIKE = {"no": ["no"], "none": ["none"], "not": ["not"], "yes": ["yes", " yes"]}


def tree_of(**changes):
    """A question as its file is parsed."""
    return {
        "input": {"kind": "text", "head_ids": 200, "tail_ids": 50},
        "prompt": [{"special": "<s>"}, {"text": "Is it? "}, "input"],
        "answers": {"yes": ["yes"], "no": ["no"]},
        **changes,
    }


def question(**changes):
    return Question(tree_of(**changes), "q.yaml")


def write_question(path, **changes):
    path.write_text(json.dumps(tree_of(**changes)))  # JSON is YAML
    return path


def write_models(directory):
    write_chat_model(directory / "llama.gguf", ["<|user|>", "<|assistant|>"], n_ctx=2048)
    write_chat_model(directory / "gemma3.gguf", arch="gemma3", type="bf16", n_layer=6)
    return directory


def classify(models, *argv, arch="llama", **kwargs):
    env = {
        k: v for k, v in os.environ.items() if k not in ("MODEL", "XDG_CACHE_HOME")
    } | kwargs.pop("env", {})
    model = () if "-m" in argv else ("-m", models / f"{arch}.gguf")
    return run("classify", *model, *argv, env=env, **kwargs)


def jsonl(models, q, lines, *argv):
    done = classify(models, "-q", q, "--jsonl", *argv, input=lines)
    return done, [json.loads(line) for line in done.stdout.splitlines()]


def run_measured(models, argv, stdin):
    """(stdout, peak KiB) of classify."""
    done = subprocess.run(
        [sys.executable, "-S", "-c", MEASURE, BIN / "classify", "-m", models / "llama.gguf", *argv],
        stdin=stdin,
        capture_output=True,
    )
    assert done.returncode < 128
    return done.stdout, int(done.stderr.split()[-1])


def opened(models, arch="llama", **changes):
    if arch == "gemma3":
        changes.setdefault("prompt", [{"special": "<bos>"}, {"text": "Is it? "}, "input"])
    return Classifier(question(**changes), str(models / f"{arch}.gguf"), mass=True)
