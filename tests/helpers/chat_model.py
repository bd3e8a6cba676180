"""Tiny models whose vocabulary has the control tokens of a chat, and their template, for tests of
questions.
"""

from bpe_model import bpe_metadata
from gguf_writer import write_gguf
from tiny_model import complete, metadata, tensors
from tiny_vocab import CONTROL


def write_bpe_chat_model(path, made, control, **config):
    """A model with a byte-level vocabulary: 256 bytes, what the merges `made` make, the control
    tokens named, the last of which ends a text.
    """
    vocabulary = bpe_metadata(
        made,
        [(text, CONTROL) for text in control],
        "qwen2",
        eos_token_id=("u32", 256 + len(made) + len(control) - 1),
    )
    c = complete(
        {
            "n_vocab": len(vocabulary["tokenizer.ggml.tokens"][1]),
            "n_layer": 2,
            "type": "q8_0",
            **config,
        }
    )
    m = {
        key: value
        for key, value in metadata({**c, "n_vocab": 420}).items()
        if not key.startswith("tokenizer.")
    }
    m["llama.vocab_size"] = ("u32", c["n_vocab"])
    write_gguf(str(path), {**m, **vocabulary}, tensors(c))
    return str(path)


def write_chat_model(path, control=(), template=None, **config):
    """As tiny_model.write_model, but the last pieces (characters such as ~, which bytes can write)
    become the control tokens named.
    """
    c = complete({"n_vocab": 420, "n_layer": 2, "type": "q8_0", **config})
    m = metadata(c)
    first = c["n_vocab"] - len(control)
    m["tokenizer.ggml.tokens"] = ("[string]", (*m["tokenizer.ggml.tokens"][1][:first], *control))
    m["tokenizer.ggml.token_type"] = (
        "[i32]",
        (*m["tokenizer.ggml.token_type"][1][:first], *[CONTROL] * len(control)),
    )
    if template is not None:
        m["tokenizer.chat_template"] = ("string", template)
    write_gguf(str(path), m, tensors(c))
    return str(path)
