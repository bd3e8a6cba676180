"""Make tests/golden/llama.pb, or compare with it, by the `protobuf` package from
lib/sluice/convert/llama.proto itself.

    python3 tests/helpers/golden_pb.py              write it
    python3 tests/helpers/golden_pb.py --check      exit 1 where the package writes other bytes
    python3 tests/helpers/golden_pb.py --read FILE  print what the package finds in FILE, as JSON
"""

import json
import os
import random
import re
import sys

from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # tests
SCHEMA = os.path.join(HERE, "..", "lib", "sluice", "convert", "llama.proto")
GOLDEN = os.path.join(HERE, "golden", "llama.pb")
KINDS = {"int32": 5, "float": 2, "string": 9}


def messages():
    """Dict: name -> class, of the messages that the schema declares."""
    file = descriptor_pb2.FileDescriptorProto(
        name="llama.proto", package="llama_infer", syntax="proto3"
    )
    with open(SCHEMA, encoding="utf-8") as f:
        text = re.sub(r"//.*", "", f.read())
    for name, body in re.findall(r"message (\w+) \{(.*?)\}", text, re.S):
        message = file.message_type.add(name=name)
        for repeated, kind, field, number in re.findall(r"(repeated )?(\w+) (\w+) = (\d+);", body):
            f = message.field.add(
                name=field, number=int(number), label=3 if repeated else 1, type=KINDS.get(kind, 11)
            )
            if kind not in KINDS:
                f.type_name = f".llama_infer.{kind}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        m.name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"llama_infer.{m.name}"))
        for m in file.message_type
    }


def sample():
    """A whole model: two layers, 260 tokens."""
    kinds = messages()
    t, draw = kinds["Transformer"](), random.Random(5).uniform
    for field, value in dict(
        dim=8, hidden_dim=12, num_layers=2, num_heads=2, n_kv_heads=1, vocab_size=262, seq_len=16
    ).items():
        setattr(t.config, field, value)
    sizes = dict(
        token_embedding=262 * 8,
        rms_attention=16,
        wQ=128,
        wK=64,
        wV=64,
        wO=128,
        w1=192,
        w2=192,
        w3=192,
        rms_ffn=16,
        rms_final=8,
    )
    for field, n in sizes.items():
        getattr(t.weights, field).extend(draw(-1, 1) for _ in range(n))
    tokens = [
        "<unk>",
        "\n<s>\n",
        "\n</s>\n",
        *(f"<0x{b:02X}>" for b in range(256)),
        " ",
        " caf\u00e9",
        "ab",
    ]
    t.tokenizer.vocab.extend(tokens)
    t.tokenizer.scores.extend(0.0 if i < 259 else -float(i) for i in range(len(tokens)))
    t.tokenizer.vocab_sized, t.tokenizer.max_token_len = (
        len(tokens),
        max(len(s.encode()) for s in tokens),
    )
    return t


def main():
    if sys.argv[1:2] == ["--read"]:
        with open(sys.argv[2], "rb") as f:
            print(
                json.dumps(
                    json_format.MessageToDict(
                        messages()["Transformer"].FromString(f.read()),
                        preserving_proto_field_name=True,
                    )
                )
            )
        return 0
    data = sample().SerializeToString(deterministic=True)
    if sys.argv[1:] == ["--check"]:
        with open(GOLDEN, "rb") as f:
            return 0 if f.read() == data else 1
    with open(GOLDEN, "wb") as f:
        f.write(data)
    return 0


if __name__ == "__main__":
    sys.exit(main())
