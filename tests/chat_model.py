"""Tiny models whose vocabulary has the control tokens of a chat, and their template, for tests of questions."""
from gguf_writer import write_gguf
from tiny_model import complete, encode, metadata, shapes, weights
from tiny_vocab import CONTROL


def write_chat_model(path, control=(), template=None, **config):
    """As tiny_model.write_model, but the last pieces (characters such as ~, which bytes can write) become the control tokens named."""
    c = complete({"n_vocab": 420, "n_layer": 2, "type": "q8_0", **config})
    m = metadata(c)
    first = c["n_vocab"] - len(control)
    m["tokenizer.ggml.tokens"] = ("[string]", (*m["tokenizer.ggml.tokens"][1][:first], *control))
    m["tokenizer.ggml.token_type"] = ("[i32]", (*m["tokenizer.ggml.token_type"][1][:first], *[CONTROL] * len(control)))
    if template is not None:
        m["tokenizer.chat_template"] = ("string", template)
    tensors = []
    for name, shape in shapes(c).items():
        type, data = encode(weights(c, name, shape), c["type"] if len(shape) == 2 else "f32", shape[0])
        tensors.append((name, type, shape, data))
    write_gguf(str(path), m, tensors)
    return str(path)
