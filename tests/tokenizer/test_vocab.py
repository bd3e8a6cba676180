"""Vocabularies: tokens equal SentencePiece's and llama.cpp's, text never becomes a control token, bad
files are refused.
"""

import json
import os
import random
import struct

import pytest
import sentencepiece
import spm_model
from conftest import SPAM_MODEL, find_data
from gguf_writer import write_gguf
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from spm_model import BYTE, CONTROL, NORMAL, UNKNOWN, UNUSED, USER_DEFINED, Model

from sluice import gguf, stream
from sluice.faults import BAD_DATA, UNSUPPORTED, Error
from sluice.kernels import ffi
from sluice.tokenizer import detokenizer as text
from sluice.tokenizer.vocabulary import MAX_TEXT_BYTES, Vocab

SPECIAL = [(b"<unk>", 0.0, UNKNOWN), (b"<s>", 0.0, CONTROL), (b"</s>", 0.0, CONTROL)]
BYTES = [(b"<0x%02X>" % i, 0.0, BYTE) for i in range(256)]
BLANK = "\u2581".encode()
TEXT_SEPARATOR = b"\n__ggml_vocab_test__\n"
EXAMPLES = settings(
    deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


def normal(*texts):
    """Pieces of falling score."""
    return [(t.encode(), -float(i), NORMAL) for i, t in enumerate(texts)]


SMALL = Model(
    SPECIAL + BYTES + normal("\u2581", "a", "b", "ab", "\u2581a", "abab", "é", "\u2581\u2581")
)


@pytest.fixture
def build(tmp_path):
    """build(a_model, KEY=(kind, value)): the Vocab of a Model written as GGUF."""

    def make(a_model, tensors=(), **more):
        write_gguf(tmp_path / "v.gguf", a_model.gguf(**more), list(tensors))
        return Vocab(gguf.File(str(tmp_path / "v.gguf")))

    return make


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """tables(path): (Model, Vocab, SentencePieceProcessor) of a SentencePiece model of the shared
    directory.
    """
    made = {}

    def make(path):
        if path not in made:
            model = spm_model.read_table(path) if path.suffix == ".xz" else spm_model.read(path)
            out = tmp_path_factory.mktemp("tables") / "v.gguf"
            write_gguf(out, model.gguf(), [])
            made[path] = (
                model,
                Vocab(gguf.File(str(out))),
                sentencepiece.SentencePieceProcessor(model_proto=model.proto()),
            )
        return made[path]

    return make


def cases(inputs, outputs):
    """(text, tokens) of a file of texts and a file of lines of ids."""
    texts, lines = inputs.read_bytes().split(TEXT_SEPARATOR), outputs.read_text().split("\n")
    assert len(texts) >= 46
    return [(t, [int(i) for i in line.split()]) for t, line in zip(texts, lines)][:46]


# The same tokens as others ----------------------------------------------------------------


@pytest.mark.parametrize("name", ["llama-spm", "phi-3"])
def test_encode_equals_llama_cpp(datafile, name):
    path = datafile(f"vocab/ggml-vocab-{name}.gguf")
    vocab = Vocab(gguf.File(str(path)))
    for data, tokens in cases(path.with_suffix(".gguf.inp"), path.with_suffix(".gguf.out")):
        assert vocab.encode(data, bos=False) == tokens, data


@pytest.mark.full
def test_encode_equals_llama_cpp_gemma(datafile, tables):
    _, vocab, _ = tables(datafile("tokenizers/gemma3.vocab.derived.tsv.xz"))
    path = datafile("vocab/ggml-vocab-gemma-4.gguf")
    for data, tokens in cases(path.with_suffix(".gguf.inp"), path.with_suffix(".gguf.out")):
        assert vocab.encode(data, bos=False) == tokens, data


PARTS = [
    "\n",
    "\n\n\n",
    "\t\t",
    "\r\n",
    " ",
    "  ",
    " " * 7,
    "\0",
    "<",
    ">",
    "<table>",
    "</td>",
    "<b>",
    "\u2581",
    "\u2581\u2581",
    "the ",
    " and",
    "ing",
    "return x;",
    "    if (",
    "3.14159",
    "Größe",
    "été",
    "漢字",
    "かな",
    "한국어",
    "привет",
    "العربية",
    "हिन्दी",
    "😀",
    "👩‍👩‍👧",
    "e\u0301\u0302\u0303",
    "\u200d",
    "\ufeff",
    "\ufffd",
    "\ufb01",
    "\x7f",
    "\x1b[0m",
    "\u00a0",
    "\u3000",
    "=====",
    "aaaa",
]
BROKEN = [
    b"\xff",
    b"\xc3",
    b"\xe6\xad",
    b"\xf0\x9f\x98",
    b"\xc0\x80",
    b"\xed\xa0\x80",
    b"\xf4\x90\x80\x80",
    b"\x80",
    b"\xe2\x96",
]


def random_text(rng):
    """Bytes: parts of words, blanks, characters of every plane, in a third of the texts bytes that
    are not UTF-8.
    """
    broken = rng.random() < 1 / 3
    out = []
    for _ in range(rng.randint(1, 24)):
        kind = rng.random()
        if kind < 0.45:
            out.append(rng.choice(PARTS).encode())
        elif kind < 0.75:
            out.append(
                "".join(
                    rng.choice("etaoinshrdlu ETAOIN.,0123456789") for _ in range(rng.randint(1, 9))
                ).encode()
            )
        elif kind < 0.9 or not broken:
            c = rng.choice(
                [
                    rng.randrange(1, 0x80),
                    rng.randrange(0x80, 0x800),
                    rng.randrange(0x800, 0xD800),
                    rng.randrange(0x10000, 0x110000),
                ]
            )
            out.append(chr(c).encode() * rng.choice([1, 1, 2, 5]))
        else:
            out.append(rng.choice([*BROKEN, rng.randbytes(3)]))
    return b"".join(out)


@pytest.mark.parametrize(
    "name",
    [
        "mistral.tokenizer.model.v3",
        "mistral.tokenizer.model.v1",
        "llama2.tokenizer.model",
        "gemma3.vocab.derived.tsv.xz",
    ],
)
@pytest.mark.quick_cases(1)
def test_encode_equals_sentencepiece(datafile, tables, name):
    model, vocab, reference = tables(datafile("tokenizers/" + name))
    rng = random.Random(name)
    for _ in range(int(os.environ.get("SLUICE_STRINGS", 10_000))):
        data = random_text(rng)
        assert vocab.encode(data, bos=False) == reference.encode(data), data


@st.composite
def models(draw):
    """A Model over the letters a b c, blank and one of two bytes, with every type of piece and
    every flag.
    """
    words = st.text("abcé\u2581", min_size=1, max_size=5)
    texts = draw(st.lists(words, unique=True, max_size=30))
    texts += [c for c in "abc\u2581" if c not in texts and draw(st.booleans())]
    kinds = st.sampled_from(
        [NORMAL, NORMAL, NORMAL, USER_DEFINED, UNUSED] if draw(st.booleans()) else [NORMAL]
    )
    scores = (
        st.sampled_from([0.0, -1.0, -2.5, -2.5000002, 3.0])
        if draw(st.booleans())
        else st.floats(-1e6, 1e6, width=32)
    )
    # + 0.0: versions differ on whether -0 is below 0
    pieces = [(t.encode(), draw(scores) + 0.0, draw(kinds)) for t in texts]
    fallback = draw(st.booleans())
    return Model(
        SPECIAL + (BYTES if fallback else []) + pieces,
        fallback,
        draw(st.booleans()),
        draw(st.booleans()),
    )


hostile_parts = [
    b"a",
    b"b",
    b"c",
    b" ",
    b"  ",
    b"ab",
    b"abc",
    "é".encode(),
    BLANK,
    b"\xe2\x96",
    b"\xff",
    b"\0",
]
hostile_bytes = st.lists(
    st.one_of(st.sampled_from(hostile_parts), st.binary(max_size=3)), max_size=40
).map(b"".join)


@EXAMPLES
@given(models(), st.lists(hostile_bytes, min_size=1, max_size=6))
def test_encode_of_any_vocabulary_equals_sentencepiece(build, model, texts):
    reference = sentencepiece.SentencePieceProcessor(model_proto=model.proto())
    vocab = build(model)
    for data in texts:
        assert vocab.encode(data, bos=False) == reference.encode(data), data


def test_unused_pieces_are_taken_apart(build):
    pieces = [
        (b"a", -1.0, NORMAL),
        (b"b", -2.0, NORMAL),
        (b"ab", -0.5, UNUSED),
        (b"abab", -0.1, UNUSED),
    ]
    vocab = build(Model(SPECIAL + BYTES + pieces, add_dummy_prefix=False))
    a = len(SPECIAL + BYTES)
    assert vocab.encode(b"abab", bos=False) == [a, a + 1, a, a + 1]


def test_run_of_unknown_text_is_one_token(build):
    vocab = build(Model(SPECIAL + normal("\u2581", "a"), byte_fallback=False))
    assert vocab.encode("xyé a zz".encode(), bos=False) == [3, 0, 3, 4, 3, 0]


# Text and control tokens ------------------------------------------------------------------

CONTEXTS = [
    b"%s",
    b" %s",
    b"%s ",
    b" %s ",
    b"a%s",
    b"%sa",
    b"a %s b",
    b"\n%s",
    b"%s\n",
    b"%s%s",
    b"<%s>",
    b"<s>%s",
    b"%s</s>",
    b"\t%s",
    "é%s".encode(),
    b"%s\xff",
    b"\xe2%s",
    b"[%s]",
    b"  %s  ",
    b"%s!",
]


def control_ids(vocab):
    return {i for i in range(vocab.n_vocab) if vocab.is_control(i)}


def fill(context, data):
    return context.replace(b"%s", data)


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize(
    "name",
    [
        "vocab/ggml-vocab-llama-spm.gguf",
        "vocab/ggml-vocab-phi-3.gguf",
        "vocab/ggml-vocab-qwen2.gguf",
        "vocab/ggml-vocab-llama-bpe.gguf",
        "vocab/ggml-vocab-starcoder.gguf",
        "vocab/ggml-vocab-gemma-4.gguf",
        "models/stories260K.gguf",
        "the shipped model",
        "tokenizers/mistral.tokenizer.model.v1",
        "tokenizers/mistral.tokenizer.model.v3",
        "tokenizers/gemma3.vocab.derived.tsv.xz",
    ],
)
def test_text_never_becomes_a_control_token(datafile, tables, name):
    path = SPAM_MODEL if name == "the shipped model" else datafile(name)
    vocab = Vocab(gguf.File(str(path))) if path.suffix == ".gguf" else tables(path)[1]
    control = control_ids(vocab)
    assert control >= vocab.eog | {vocab.bos}  # of Qwen2 and StarCoder that is the end id
    for i in sorted(control):
        data = vocab.bytes_of(i, special=True)
        contexts = CONTEXTS if len(control) < 2000 or i < 300 else CONTEXTS[:2]
        for context in contexts:
            tokens = vocab.encode(fill(context, data), bos=False)
            assert not control & set(tokens), (data, context)
            if context.isascii() and data.isascii():
                assert decode(vocab, tokens) == fill(context, data)
        assert vocab.encode(data, bos=False, special=True) == [i]


@pytest.mark.full
def test_special_equals_llama_cpp_on_prompts(datafile):
    vocab = Vocab(gguf.File(str(datafile("models/spam-proto-q8_0.gguf"))))
    mails = [
        json.loads(line)
        for line in datafile("models/spam-proto.expected.jsonl").read_text().splitlines()
    ]
    assert len(mails) == 20
    for mail in mails:
        assert vocab.encode(mail["prompt"].encode(), bos=False, special=True) == mail["ids"]


def test_marks_can_be_left_as_text(build):
    """User defined pieces all become tokens in a text, but where a text must not forge marks of
    turns.
    """
    marks = [
        "<start_of_turn>",
        "<unused7>",
        "[INST]",
        "[/INST]",
        "<|im_start|>",
        '<|"|>',
        "\u2581<PRE>",
        "[multimodal]",
        "<mask>",
        "<start_of_image>",
        "<<SYS>>",
        "<｜User｜>",
        "\n<|end|>\n",
    ]
    words = [
        "<table>",
        "</td>",
        "<h1>",
        "<b>",
        "<s>",
        "</s>",
        "<>",
        "[]",
        "<-->",
        "\n\n",
        "\t",
        "\u2581\u2581",
        "->",
        "a",
        "[",
        "word>",
        "<word",
        "</>",
    ]
    pieces = [(t.encode(), 0.0, USER_DEFINED) for t in [*marks, *words]]
    model = Model(
        [(b"<unk>", 0.0, UNKNOWN)] + BYTES + pieces + normal("\u2581"), add_dummy_prefix=False
    )
    vocab = build(model, bos_token_id=None, eos_token_id=None, add_bos_token=None)
    assert not control_ids(vocab)
    for i, t in enumerate([*marks, *words], 1 + 256):
        text = t.replace("\u2581", " ").encode()
        for special in (False, True):
            assert vocab.encode(text, bos=False, special=special) == [i]
        assert (vocab.encode(text, bos=False, marks=False) == [i]) == (t in words), t
        assert decode(vocab, [i]) == decode(vocab, vocab.encode(text, marks=False)) == text
        assert (vocab.control_token(t) == i) == (t in marks)


def test_user_defined_pieces_that_end_turns_are_control_tokens(build):
    """As llama.cpp has it, but for </s>, which in Gemma is HTML."""
    pieces = [(t, 0.0, USER_DEFINED) for t in (b"<end_of_turn>", b"<|im_end|>", b"</s>", b"<s>")]
    vocab = build(
        Model([(b"<unk>", 0.0, UNKNOWN)] + BYTES + pieces, add_dummy_prefix=False),
        bos_token_id=None,
        eos_token_id=None,
        add_bos_token=None,
    )
    assert control_ids(vocab) == vocab.eog == {257, 258}
    assert vocab.encode(b"<s></s><|im_end|>", bos=False) == [
        260,
        259,
        *(1 + b for b in b"<|im_end|>"),
    ]


def test_special_takes_the_longest_and_gives_each_text_a_prefix(build):
    vocab = build(
        Model([*SPECIAL, (b"</s>x", 0.0, CONTROL)] + BYTES + normal("\u2581", "a", "\u2581a"))
    )
    a = 4 + 256 + 2
    assert vocab.encode(b"a</s>xa<s>a", special=True) == [1, a, 3, a, 1, a]
    assert vocab.encode(b"a</s>", special=True, prefix=False) == [1, a - 1, 2]


def test_ids_named_as_special_are_control_whatever_their_type(build):
    model = Model(SPECIAL + BYTES + normal("a", "b", "ab", "\u2581"))
    vocab = build(model, eos_token_id=("u32", 261))
    assert model.pieces[261][0] == b"ab"
    assert vocab.encode(b"ab", bos=False, prefix=False) == [259, 260]
    assert vocab.eos == 261 and vocab.bytes_of(261) == b"" and 261 in vocab.eog


def test_end_of_generation_ids(build):
    names = [b"<|eot_id|>", b"<|im_end|>", b"<|user|>", b"<end_of_turn>"]
    added = [(t, 0.0, CONTROL) for t in names[:3]] + [(names[3], 0.0, USER_DEFINED)]
    vocab = build(Model(SPECIAL + added + BYTES + normal("<|end|>")), eot_token_id=("u32", 5))
    assert vocab.eog == {2, 3, 4, 5, 6}  # not the ordinary piece "<|end|>"


def test_absent_and_none_special_ids(build):
    vocab = build(SMALL, bos_token_id=None, eos_token_id=None, add_bos_token=None)
    assert (vocab.bos, vocab.eos, vocab.add_bos) == (1, 2, True)
    vocab = build(SMALL, bos_token_id=("u32", 0xFFFFFFFF), add_bos_token=None)
    assert vocab.bos is None and vocab.encode(b"a") == [263]
    with pytest.raises(Error, match="bos_token_id"):
        vocab.encode(b"a", bos=True)


def test_bos_and_eos_flags(build):
    vocab = build(SMALL, add_eos_token=("bool", True))
    assert vocab.encode(b"") == [1, 2]
    assert vocab.encode(b"", bos=False, eos=False) == []
    assert build(SMALL).encode(b"a", eos=True) == [1, 263, 2]


# And back ------------------------------------------------------------------------------------


def decode(vocab, tokens, **how):
    joiner, out = text.Joiner(vocab, **how), b""
    for i in tokens:
        joiner.add(i)
        data = joiner.fetch()
        data.decode()
        out += data
    return out


@EXAMPLES
@given(st.text(), st.booleans())
def test_round_trip(build, data, prefix):
    assume("\u2581" not in data)
    vocab = build(SMALL)
    assert decode(vocab, vocab.encode(data.encode(), prefix=prefix), prefix=prefix) == data.encode()


@EXAMPLES
@given(st.text(st.sampled_from("ab é漢<s>/")))
def test_round_trip_special(build, data):
    vocab = build(SMALL)
    assert (
        decode(vocab, vocab.encode(data.encode(), bos=False, special=True), special=True)
        == data.encode()
    )


@pytest.mark.full
def test_round_trip_real(tables):
    rng = random.Random(7)
    names = ("llama2.tokenizer.model", "mistral.tokenizer.model.v3", "gemma3.vocab.derived.tsv.xz")
    # at least Mistral's
    for path in filter(None, (find_data("tokenizers/" + name) for name in names)):
        _, vocab, _ = tables(path)
        for _ in range(1000):
            data = random_text(rng).decode("utf-8", "replace").replace("\u2581", " ").encode()
            assert decode(vocab, vocab.encode(data)) == data


def test_table_is_what_each_id_writes(datafile, tables):
    model, vocab, _ = tables(datafile("tokenizers/mistral.tokenizer.model.v1"))
    data, offset = vocab.table()
    assert offset[0] == 0
    for i, (t, _, kind) in enumerate(model.pieces):
        expected = {
            NORMAL: t.replace(BLANK, b" "),
            BYTE: bytes([int(t[3:5], 16)]) if kind == BYTE else b"",
        }.get(kind, b"")
        assert (
            bytes(ffi.buffer(data + offset[i], offset[i + 1] - offset[i]))
            == expected
            == vocab.bytes_of(i)
        )


# Files that are refused -------------------------------------------------------------------------


def array(kind, values):
    return (f"[{kind}]", values)


N = len(SMALL.pieces)
SCORES, TYPES, TEXTS = ([p[i] for p in SMALL.pieces] for i in (1, 2, 0))


def with_item(values, i, v):
    return [*values[:i], v, *values[i + 1 :]]


BAD = [  # keys, exit code, what the message must hold
    ({"model": ("string", "bert")}, UNSUPPORTED, 'model "bert"'),
    ({"model": ("string", "gpt2")}, UNSUPPORTED, "tokenizer.ggml.pre is missing"),
    ({"model": ("string", "gemma4")}, BAD_DATA, "tokenizer.ggml.merges is missing"),
    ({"model": ("u32", 1)}, BAD_DATA, "model: expected string"),
    ({"model": None}, BAD_DATA, "tokenizer.ggml.model is missing"),
    ({"tokens": None}, BAD_DATA, "tokenizer.ggml.tokens is missing"),
    ({"tokens": array("u8", [1] * N)}, BAD_DATA, "tokens: expected [string]"),
    ({"tokens": array("string", [])}, BAD_DATA, "tokens: 0 tokens"),
    ({"tokens": array("string", TEXTS[:-1])}, BAD_DATA, "scores"),
    (
        {"tokens": array("string", with_item(TEXTS, 260, BLANK))},
        BAD_DATA,
        "tokens: token 260 has the same text as token 259",
    ),
    (
        {"tokens": array("string", with_item(TEXTS, 2, b"<s>"))},
        BAD_DATA,
        "tokens: token 2 has the same text as token 1",
    ),
    ({"tokens": array("string", with_item(TEXTS, 4, b"<0x-1>"))}, BAD_DATA, "tokens: token 4"),
    ({"tokens": array("string", with_item(TEXTS, 4, b"<0x0g>"))}, BAD_DATA, "tokens: token 4"),
    ({"tokens": array("string", with_item(TEXTS, 4, b"<0x\0\0>"))}, BAD_DATA, "tokens: token 4"),
    ({"tokens": array("string", with_item(TEXTS, 13, b"<0x0a>"))}, BAD_DATA, "tokens: token 13"),
    (
        {
            "tokens": array("string", with_item(TEXTS, 4, b"x")),
            "token_type": array("i32", with_item(TYPES, 4, NORMAL)),
        },
        BAD_DATA,
        "<0x01> is missing",
    ),
    ({"tokens": array("string", with_item(TEXTS, 260, b"x" * 1025))}, UNSUPPORTED, "token 260"),
    ({"scores": array("u8", [0] * N)}, BAD_DATA, "scores: expected [f32]"),
    ({"scores": array("f64", SCORES)}, BAD_DATA, "scores: expected [f32]"),
    ({"scores": array("f32", SCORES[:-1])}, BAD_DATA, f"scores: {N - 1} elements for {N}"),
    ({"scores": array("f32", with_item(SCORES, 7, float("nan")))}, BAD_DATA, "scores: token 7"),
    (
        {"scores": array("f32", with_item(SCORES, N - 1, float("-inf")))},
        BAD_DATA,
        f"scores: token {N - 1}",
    ),
    ({"token_type": array("u32", TYPES)}, BAD_DATA, "token_type: expected [i32]"),
    ({"token_type": array("u8", TYPES)}, BAD_DATA, "token_type: expected [i32]"),
    ({"token_type": array("i32", TYPES + [1])}, BAD_DATA, "token_type"),
    ({"token_type": array("i32", with_item(TYPES, 5, 0))}, BAD_DATA, "token_type: token 5"),
    ({"token_type": array("i32", with_item(TYPES, 5, 7))}, BAD_DATA, "token_type: token 5"),
    ({"token_type": array("i32", with_item(TYPES, 1, -(2**31)))}, BAD_DATA, "token_type: token 1"),
    ({"bos_token_id": ("u32", N)}, BAD_DATA, f"bos_token_id: {N} is not below"),
    ({"eos_token_id": ("u32", 0xFFFFFFFE)}, BAD_DATA, "eos_token_id"),
    ({"eot_token_id": ("u32", N)}, BAD_DATA, "eot_token_id"),
    ({"unknown_token_id": ("u32", N)}, BAD_DATA, "unknown_token_id"),
    ({"bos_token_id": ("string", "1")}, BAD_DATA, "bos_token_id: expected u32"),
    ({"bos_token_id": ("i32", -1)}, BAD_DATA, "bos_token_id: expected u32"),
    (
        {"bos_token_id": ("u32", 0xFFFFFFFF), "add_bos_token": ("bool", True)},
        BAD_DATA,
        "bos_token_id: names no token",
    ),
    (
        {"eos_token_id": ("u32", 0xFFFFFFFF), "add_eos_token": ("bool", True)},
        BAD_DATA,
        "eos_token_id: names no token",
    ),
    ({"add_bos_token": ("u32", 1)}, BAD_DATA, "add_bos_token: expected bool"),
    ({"add_space_prefix": ("string", "yes")}, BAD_DATA, "add_space_prefix: expected bool"),
    ({"precompiled_charsmap": array("u8", [1, 2, 3])}, UNSUPPORTED, "precompiled_charsmap"),
    ({"treat_whitespace_as_suffix": ("bool", True)}, UNSUPPORTED, "treat_whitespace_as_suffix"),
]


@pytest.mark.parametrize("keys, code, message", BAD, ids=range(len(BAD)))
def test_bad_vocabulary_is_refused(build, keys, code, message):
    with pytest.raises(Error) as e:
        build(SMALL, **keys)
    assert (
        e.value.code == code
        and message in str(e.value)
        and "v.gguf" in str(e.value)
        and "\n" not in str(e.value)
    )


def test_unknown_text_needs_an_id(build):
    model = Model(SPECIAL + normal("a"), byte_fallback=False)
    for i in (0xFFFFFFFF, 1):  # none; a control token
        with pytest.raises(Error, match="unknown_token_id"):
            build(model, unknown_token_id=("u32", i))


def test_rows_of_the_embedding_must_be_as_many(build):
    rows = lambda n: ("token_embd.weight", 0, (2, n), struct.pack(f"<{2 * n}f", *[0.0] * 2 * n))
    assert build(SMALL, [rows(N)]).n_vocab == N
    with pytest.raises(Error, match="token_embd.weight"):
        build(SMALL, [rows(N - 1)])


def test_control_texts_are_bounded(build):
    pieces = [(b"<%05d" % i + b"x" * 1010 + b">", 0.0, USER_DEFINED) for i in range(4200)]
    with pytest.raises(Error) as e:
        build(Model(SPECIAL + BYTES + pieces))
    assert e.value.code == UNSUPPORTED


def test_tokens_without_text_are_never_produced(build):
    vocab = build(
        Model(
            SPECIAL
            + BYTES
            + [(b"", 9.0, kind) for kind in (NORMAL, USER_DEFINED, UNUSED, CONTROL)]
            + normal("a")
        )
    )
    assert vocab.encode(b"aa", special=True, prefix=False) == [1, 263, 263]
    assert [vocab.bytes_of(i) for i in range(259, 263)] == [b""] * 4


def test_text_and_control_token_of_the_same_text(build):
    vocab = build(Model(SPECIAL + BYTES + normal("<", "/", "s", ">", "</", "</s", "</s>")))
    assert vocab.encode(b"</s>", bos=False, prefix=False) == [265]
    assert vocab.encode(b"</s>", bos=False, special=True) == [2]


def test_too_much_text_is_refused(build):
    with pytest.raises(Error) as e:
        build(SMALL).encode(b"a" * (MAX_TEXT_BYTES + 1))
    assert e.value.code == BAD_DATA


arbitrary_pieces = st.lists(
    st.tuples(st.binary(max_size=6), st.floats(width=32), st.integers(0, 7)),
    min_size=1,
    max_size=40,
)


@EXAMPLES
@given(
    arbitrary_pieces,
    st.booleans(),
    st.lists(st.integers(0, 45), min_size=4, max_size=4),
    hostile_bytes,
    st.booleans(),
)
def test_any_vocabulary_is_refused_or_encodes(build, pieces, with_bytes, special, data, parse):
    tokens = dict(
        zip(
            ("bos_token_id", "eos_token_id", "unknown_token_id", "eot_token_id"),
            (("u32", i) for i in special),
        )
    )
    model = Model(SPECIAL + pieces + (BYTES if with_bytes else []))
    try:
        vocab = build(model, **tokens)
        out = vocab.encode(data, special=parse)
    except Error as e:
        assert e.code in (BAD_DATA, UNSUPPORTED)
        return
    assert all(0 <= i < vocab.n_vocab for i in out) and len(out) <= 3 * len(data) + 5
    if not parse:
        assert not control_ids(vocab) & set(vocab.encode(data, bos=False, eos=False))


@pytest.mark.parametrize("n", [1, 7, 8, 9, 4096])
def test_line_is_waiting_only_when_it_is(n):
    r, w = os.pipe()
    os.write(w, stream.tokens_header(bytes(32), 10) + b"1\n" * n)
    reader = stream.TokenReader(r)
    for k, _ in zip(range(n), reader):
        assert reader.is_waiting() == (k == n - 1)
    os.close(r), os.close(w)
