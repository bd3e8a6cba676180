"""A model of TinyLlama-1.1B's shape with random Q8_0 weights, 1.17 GB, for timing: python3 tests/big_model.py OUT.gguf

What it answers means nothing; that it reads and computes what a real one of the shape does, is the point.
"""
import sys

import numpy as np
from gguf_writer import header, key_value, padded, tensor_info
from tiny_model import TYPES, complete, metadata, shapes

N_VOCAB, POOL_BLOCKS = 32000, 1 << 20


def main(path):
    c = complete({"n_vocab": 768, "n_ctx": 2048, "n_embd": 2048, "n_layer": 22, "n_ff": 5632, "n_head": 32, "n_head_kv": 4, "head_dim": 64, "tied": False, "type": "q8_0"})
    meta = metadata(c)
    extra = range(768, N_VOCAB)
    for key, of_extra in (("tokens", lambda i: f"~{i}~"), ("scores", lambda i: -1e6 - i), ("token_type", lambda i: 1)):
        kind, values = meta[f"tokenizer.ggml.{key}"]
        meta[f"tokenizer.ggml.{key}"] = (kind, (*values, *map(of_extra, extra)))
    c["n_vocab"] = N_VOCAB
    if "llama.vocab_size" in meta:
        meta["llama.vocab_size"] = ("u32", N_VOCAB)
    rng = np.random.default_rng(1)
    pool = np.empty((POOL_BLOCKS, 34), np.uint8)
    pool[:, :2] = np.full((POOL_BLOCKS, 1), 0.0003, "<f2").view(np.uint8)  # about 0.02 a weight
    pool[:, 2:] = rng.integers(0, 256, (POOL_BLOCKS, 32), np.uint8)
    pool = pool.tobytes()
    infos, offset = [], 0
    for name, shape in shapes(c).items():
        n_bytes = shape[0] * 4 if len(shape) == 1 else shape[0] * shape[1] // 32 * 34
        infos.append((name, TYPES["f32" if len(shape) == 1 else "q8_0"], shape, offset, n_bytes))
        offset += -(-n_bytes // 32) * 32
    with open(path, "wb") as f:
        head = header(len(infos), len(meta)) + b"".join(key_value(key, *value) for key, value in meta.items())
        f.write(padded(head + b"".join(tensor_info(*info[:4]) for info in infos)))
        for i, (name, _, shape, _, n_bytes) in enumerate(infos):
            if len(shape) == 1:
                data = np.ones(shape[0], "<f4").tobytes()
                f.write(padded(data))
                continue
            at, left = i * 34 * 7919 % (len(pool) // 34) * 34 % len(pool), n_bytes
            while left:
                part = pool[at:at + left]
                f.write(part)
                at, left = 0, left - len(part)
            f.write(bytes(-n_bytes % 32))


if __name__ == "__main__":
    main(sys.argv[1])
