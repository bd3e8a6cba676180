"""Small models that embed and rank: tiny_model's, with further metadata and tensors."""

import random
import struct

import tiny_model
from gguf_writer import write_gguf

CHATML = ("<|im_start|>", "<|im_end|>", "<|endoftext|>", "<think>", "</think>", "yes", "no")
CONTROL, USER_DEFINED = 3, 4  # types of tokens
RANK_TEMPLATE = (
    "<|im_start|>user\nQuery: {query}\nText: {document}<|im_end|>\n<|im_start|>assistant\n"
)

# name -> (configuration, further metadata) of models with golden vectors (golden_embed.py)
MODELS = {
    "qwen3": (
        {"arch": "qwen3", "n_embd": 64, "n_layer": 3, "n_ff": 128, "head_dim": 32, "n_ctx": 256},
        {
            "qwen3.pooling_type": ("u32", 3),
            "tokenizer.ggml.add_bos_token": ("bool", False),
            "tokenizer.ggml.add_eos_token": ("bool", True),
        },
    ),
    "llama": ({"arch": "llama", "n_embd": 96, "n_layer": 2, "n_ff": 160, "n_ctx": 256}, {}),
    "gemma3": (
        {"arch": "gemma3", "n_embd": 64, "n_layer": 7, "n_ff": 96, "window": 8, "n_ctx": 256},
        {"gemma3.pooling_type": ("u32", 1)},
    ),
}

# as MODELS, of models that rank; the second has rows of its own for yes and no, and a template
N_RANK = 64
RANKERS = {
    "qwen3": ({"arch": "qwen3", "n_embd": N_RANK, "n_layer": 3, "n_ff": 128, "n_ctx": 512}, {}),
    "own": (
        {"arch": "qwen3", "n_embd": N_RANK, "n_layer": 2, "n_ff": 96, "n_ctx": 256, "seed": 2},
        {
            "qwen3.pooling_type": ("u32", 4),
            "tokenizer.chat_template.rerank": ("string", RANK_TEMPLATE),
        },
    ),
}


def write(path, more=(), without=(), tensors=(), chatml=False, **config):
    """Write the model of a configuration of tiny_model.

    more: {key: (kind, value)} of further metadata; without: keys that are left out. tensors:
    further ones, as of write_gguf. chatml: the last tokens of the vocabulary are those of CHATML.
    """
    c = tiny_model.complete(config)
    metadata = {**tiny_model.metadata(c), **dict(more)}
    if chatml:
        for key, values in (
            ("tokens", CHATML),
            ("token_type", [CONTROL if "|" in text else USER_DEFINED for text in CHATML]),
        ):
            kind, found = metadata[f"tokenizer.ggml.{key}"]
            metadata[f"tokenizer.ggml.{key}"] = kind, [*found[: -len(CHATML)], *values]
    for key in without:
        del metadata[key]
    all_tensors = []
    for name, shape in tiny_model.shapes(c).items():
        type = "f32" if len(shape) == 1 else c["type"]
        number, data = tiny_model.encode(tiny_model.weights(c, name, shape), type, shape[0])
        all_tensors.append((name, number, shape, data))
    write_gguf(str(path), metadata, [*all_tensors, *tensors])


def answer_rows(n_embd, seed=1):
    """The tensor cls.output.weight of a reranker: f32 rows for yes and no."""
    draw = random.Random(seed).random
    values = [draw() - 0.5 for _ in range(2 * n_embd)]
    return ("cls.output.weight", 0, (n_embd, 2), struct.pack(f"<{len(values)}f", *values))


def write_golden(path, name):
    """Write one of MODELS."""
    config, more = MODELS[name]
    write(path, more, **config)


def write_ranker(path, name):
    """Write one of RANKERS."""
    config, more = RANKERS[name]
    # as in Qwen's vocabulary, which tiny_vocab is not
    no = dict.fromkeys(("add_bos_token", "add_space_prefix"), ("bool", False))
    more = {**more, **{f"tokenizer.ggml.{key}": value for key, value in no.items()}}
    write(path, more, (), [answer_rows(N_RANK)] if name == "own" else (), True, **config)
