"""Byte-pair vocabularies of real models: many strings against Hugging Face, a megabyte of anything,
and the commands.
"""

import json
import random
import resource
import struct

import hf_tokenizer
import pytest
from bpe_model import CONTROL, bpe_metadata
from chat_model import write_bpe_chat_model
from conftest import ids_in, run, shell
from gguf_writer import write_gguf
from test_bpe import FAMILIES, N_STRINGS, NEWER_DIGITS, random_words, vocabularies
from test_vocab import random_text

from sluice import gguf, stream
from sluice.tokenizer.vocabulary import Vocab

pytestmark = pytest.mark.full

__all__ = ["vocabularies"]  # a fixture


@pytest.mark.parametrize(
    "name, pre",
    [(name, None) for name in FAMILIES]
    + [
        ("gpt-2", "smollm"),
        ("llama-bpe", "tekken"),
        ("llama-bpe", "gpt-4o"),
        ("llama-bpe", "lfm2"),
    ],
)
def test_encode_equals_hugging_face(datafile, vocabularies, name, pre):
    file, vocab = vocabularies(datafile(f"vocab/ggml-vocab-{name}.gguf"), pre)
    reference = hf_tokenizer.Reference(file, vocab.is_control)
    rng = random.Random(f"{name} {pre}")
    for i in range(N_STRINGS):
        text = random_words(rng) if i % 2 else random_text(rng).decode("utf-8", "replace")
        if not NEWER_DIGITS & {ord(c) for c in text}:
            assert vocab.encode(text.encode(), bos=False) == reference.encode(text), text


def test_grammar_filter_with_a_byte_level_vocabulary(tmp_path):
    path = tmp_path / "v.gguf"
    write_gguf(
        path,
        bpe_metadata(
            [(b"y", b"e"), (b"ye", b"s"), (b" ", b"yes")],
            [("<|end|>", CONTROL)],
            eos_token_id=("u32", 259),
        ),
        [],
    )
    vocab, file = Vocab(gguf.File(str(path))), gguf.File(str(path))
    rows = struct.pack(f"<{vocab.n_vocab}f", *range(vocab.n_vocab))
    chosen, records = 257, [(0, -1, rows), (1, 257, rows)]
    data = stream.logits_header(file.id, vocab.n_vocab) + b"".join(
        stream.record(b"L", 0, pos, prev, row) for pos, prev, row in records
    )
    result = run(
        "grammar-filter",
        "-m",
        path,
        "-e",
        'root ::= "yes" " yes"?',
        input=data + stream.record(b"E", 0, 2, 259),
    )
    assert result.returncode == 0 and result.stderr == b"", result.stderr
    kept, at = [], len(stream.logits_header(file.id, vocab.n_vocab))
    while result.stdout[at : at + 1] == b"C":
        n_bytes = struct.unpack_from("<I", result.stdout, at + 4)[0]
        kept.append(
            [i for i, _ in struct.iter_unpack("<if", result.stdout[at + 16 : at + 16 + n_bytes])]
        )
        at += 16 + n_bytes
    assert kept == [[chosen], [32, 258, 259]]  # "yes" is forced: its own token alone


def test_tokenize_and_back(datafile):
    for name in ("gpt-2", "llama-bpe", "gemma-4"):
        path, text = (
            datafile(f"vocab/ggml-vocab-{name}.gguf"),
            "  Größe 漢字😀\n\t'll 12345<|end_of_text|>\0".encode(),
        )
        there = run("tokenize", "-m", path, input=text)
        assert there.returncode == 0 and len(ids_in(there.stdout)) > 9
        back = run("tokenize", "-m", path, "-d", input=there.stdout)
        assert (back.returncode, back.stdout, back.stderr) == (0, text, b"")


def test_tokenize_special(datafile):
    path = datafile("vocab/ggml-vocab-llama-bpe.gguf")
    text = b"<|begin_of_text|>Hello<|eot_id|>"
    assert ids_in(run("tokenize", "-m", path, "--special", "--no-bos", input=text).stdout) == [
        128000,
        9906,
        128009,
    ]
    assert 128009 not in ids_in(run("tokenize", "-m", path, input=text).stdout)
    there = run("tokenize", "-m", path, "--special", "--no-bos", input=text).stdout
    assert run("tokenize", "-m", path, "-d", "--special", input=there).stdout == text
    assert run("tokenize", "-m", path, "-d", input=there).stdout == b"Hello"


RING = """set -e
tokenize -m m.gguf --special --no-bos <prompt | prefill -m m.gguf -o p.snap
mkfifo ring
decode -m m.gguf p.snap <ring | grammar-filter -m m.gguf -e 'root ::= "yes" | "no"' | sample -t 0 | tee ring | tokenize -m m.gguf -d"""
QUESTION = """input: {kind: text, head_ids: 64, tail_ids: 64}
frame: auto
prompt: [input]
answers: {"yes": ["yes"], "no": ["no"]}
thresholds: {"yes": 0.5, "no": 0.5}
"""


def test_ring_and_classify_answer_alike_with_a_byte_level_vocabulary(tmp_path):
    made = [
        (b"y", b"e"),
        (b"ye", b"s"),
        (b"n", b"o"),
        (b"u", b"s"),
        (b"us", b"er"),
        (b"e", b"r"),
        (b" ", b"a"),
    ]
    write_bpe_chat_model(
        tmp_path / "m.gguf",
        [m for m in made if m != (b"us", b"er")],
        ["<|im_start|>", "<|im_end|>"],
        n_ctx=512,
        seed=5,
    )
    (tmp_path / "q.yaml").write_text(QUESTION)
    text = "Größe 漢字 a user 123"
    (tmp_path / "prompt").write_text(f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n")
    ring = shell(RING, tmp_path)
    assert (ring.returncode, ring.stderr) == (0, b"") and ring.stdout in (b"yes", b"no")
    verdict = run(
        "classify",
        "-m",
        tmp_path / "m.gguf",
        "-q",
        tmp_path / "q.yaml",
        "--json",
        input=text.encode(),
        cwd=tmp_path,
    )
    assert verdict.stderr == b"" and verdict.returncode == (b"yes", b"no").index(ring.stdout), (
        verdict
    )
    assert json.loads(verdict.stdout)["answer"].encode() == ring.stdout


LONG = {
    "a": "a",
    "blank": " ",
    "cjk": "漢",
    "newline": "\n",
    "dot": ".",
    "digit": "1",
    "apostrophe": "'",
    "combining": "\u0301",
    "case": "Aa日",
    "lines": " \n",
    "words": "once upon a time ",
}


@pytest.mark.parametrize(
    "name, pre",
    [
        ("llama-bpe", None),
        ("llama-bpe", "tekken"),
        ("llama-bpe", "gpt-4o"),
        ("deepseek-llm", None),
        ("gpt-2", None),
        ("gemma-4", None),
    ],
)
def test_megabyte_of_any_text_round_trips(datafile, vocabularies, name, pre):
    """Quadratic time would be hours (a megabyte) or a minute (the quarter of one that most get);
    all comes back.
    """
    _, vocab = vocabularies(datafile(f"vocab/ggml-vocab-{name}.gguf"), pre)
    for text in LONG if pre is None else ("A", "case", "combining", "dot"):
        unit = LONG.get(text, text).encode()
        data = unit * (
            ((1 << 20) if name == "llama-bpe" and text in ("a", "blank", "cjk") else 1 << 18)
            // len(unit)
        )
        tokens = vocab.encode(data, bos=False)
        assert b"".join(map(vocab.bytes_of, tokens)) == data


def test_megabyte_of_one_word_needs_bounded_memory(datafile):
    limit = lambda: resource.setrlimit(resource.RLIMIT_AS, (400 << 20, 400 << 20))
    there = run(
        "tokenize",
        "-m",
        datafile("vocab/ggml-vocab-gpt-2.gguf"),
        input=b"a" * (1 << 20),
        preexec_fn=limit,
    )
    assert there.returncode == 0 and len(ids_in(there.stdout)) > 1 << 15
