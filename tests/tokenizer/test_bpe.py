"""Byte-pair vocabularies: words and tokens equal Hugging Face's and llama.cpp's, text comes back, bad
files are refused.
"""

import importlib.util
import json
import os
import random
import unicodedata

import hf_tokenizer
import pytest
import spm_model
from bpe_model import BYTE, CONTROL, LETTERS, NORMAL, UNUSED, USER_DEFINED, bpe_metadata, letters
from conftest import ROOT
from gguf_writer import write_gguf
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from test_vocab import cases, decode

from sluice import gguf
from sluice.faults import BAD_DATA, UNSUPPORTED, Error
from sluice.grammar import matcher as grammar
from sluice.kernels import ffi, lib
from sluice.question import answers
from sluice.tokenizer import bpe
from sluice.tokenizer.vocabulary import Vocab

# a vocabulary; `make vocab-check` has 100,000
N_STRINGS = int(os.environ.get("SLUICE_STRINGS", 1000))
EXAMPLES = settings(
    deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
FAMILIES = ["gpt-2", "llama-bpe", "qwen2", "deepseek-llm", "starcoder", "gemma-4"]
RULES = [
    *("gpt-2", "llama-bpe", "qwen2", "qwen35", "tekken", "gpt-4o", "starcoder", "deepseek-llm"),
]
OTHER_NAMES = sorted(set(bpe.PRE) - set(RULES))
# of Unicode 17: the reference's Digits know them, its expressions do not
NEWER_DIGITS = {*range(0x11DE0, 0x11DEA), *range(0x16FF4, 0x16FF7)}


@pytest.fixture(scope="module")
def vocabularies():
    """vocabularies(path, pre): (gguf.File, Vocab), with another rule for words if `pre` is
    given.
    """
    made = {}

    def make(path, pre=None):
        if (path, pre) not in made:
            file = gguf.File(str(path))
            if pre:
                file.metadata["tokenizer.ggml.pre"] = pre
            made[path, pre] = file, Vocab(file)
        return made[path, pre]

    return make


@pytest.fixture
def build(tmp_path):
    """build(made, added, rule, KEY=(kind, value)): the Vocab of bpe_metadata written as GGUF."""

    def make(*what, **more):
        write_gguf(tmp_path / "v.gguf", bpe_metadata(*what, **more), [])
        return Vocab(gguf.File(str(tmp_path / "v.gguf")))

    return make


def words(pre, text):
    """The words of a text (str) by our rule of this name."""
    data, ends, at, out = text.encode(), ffi.new("word_ends *"), 0, []
    source = ffi.from_buffer("uint8_t[]", data)
    while at < len(data):
        end = lib.pretokenize(ends, source, at, len(data), bpe.PRE[pre][0])
        assert at < end <= len(data)
        out.append(data[at:end].decode())
        at = end
    return out


# The same as others --------------------------------------------------------------------


@pytest.mark.parametrize("name", FAMILIES)
def test_encode_equals_llama_cpp(datafile, vocabularies, name):
    path = datafile(f"vocab/ggml-vocab-{name}.gguf")
    _, vocab = vocabularies(path)
    for data, tokens in cases(path.with_suffix(".gguf.inp"), path.with_suffix(".gguf.out")):
        assert vocab.encode(data, bos=False) == tokens, data
        assert decode(vocab, tokens) == data


TRICKY = [
    *"'''sStTrReEvVmMlLdDſßabAB/.!?-—‘’。！()[]_*ʰªʼ̈\u0300\u0301\u0903éÉǅ٣²½Ⅷ12 ",
    "\u00a0",
    "\u2003",
    "\u0085",
    "\u1680",
    "\u180e",
    "\u3000",
    "\u2028",
    "\t",
    "\n",
    "\r",
    "\n\n",
    "\r\n",
    "   ",
    "一二",
    "漢",
    "かな",
    "가",
    "हि",
    "👩‍👩‍👧",
    "Ḁ",
    "Ა",
    "\u2126",
    "\u212a",
    "'LL",
    "'ve",
    " the",
    "Größe",
    "\0",
    "\ufeff",
    "\U0010ffff",
    "x" * 20,
    "1234567",
]


def random_words(rng):
    """A text (str) of what pre-tokenisers tell apart, and characters of every plane."""
    out = []
    for _ in range(rng.randint(1, 16)):
        c = chr(
            rng.choice(
                [rng.randrange(0x250), rng.randrange(0xD800), rng.randrange(0xE000, 0x110000)]
            )
        )
        out.append(c if rng.random() < 0.25 and ord(c) not in NEWER_DIGITS else rng.choice(TRICKY))
    return "".join(out)


@pytest.mark.parametrize("pre", RULES)
def test_words_equal_hugging_face(pre):
    rng, reference = random.Random(pre), hf_tokenizer.pre_tokenizer(pre)
    for _ in range(N_STRINGS):
        text = random_words(rng)
        assert words(pre, text) == [text[a:b] for _, (a, b) in reference.pre_tokenize_str(text)], (
            text
        )


# Others cut these elsewhere: by A-Z and a-z for the classes, and without marks
@pytest.mark.parametrize(
    "text, expected",
    [
        ("ÜBERÉTAT été", ["ÜBERÉTAT", " été"]),
        ("हिन्दी में", ["हिन्दी", " में"]),
        ("We'LL don't I'm", ["We'LL", " don't", " I'm"]),
        ("'tis HTTPServer's 12345", ["'tis", " HTTPServer's", " ", "123", "45"]),
        ("x's'ſ a/b//\n\n", ["x's", "'ſ", " a", "/b", "//\n\n"]),
    ],
)
def test_words_of_gpt_4o_follow_the_published_expression(text, expected):
    assert words("gpt-4o", text) == expected
    spans = hf_tokenizer.pre_tokenizer("gpt-4o").pre_tokenize_str(text)
    assert expected == [text[a:b] for _, (a, b) in spans]


@pytest.mark.full
@pytest.mark.parametrize("pre", OTHER_NAMES)
def test_other_names_of_a_rule_cut_alike(pre):
    test_words_equal_hugging_face(pre)


def test_other_names_of_a_rule_are_known_with_their_side_effects():
    assert {*OTHER_NAMES, *RULES} - {*hf_tokenizer.ALIASES} == {*RULES}
    for name, known in hf_tokenizer.ALIASES.items():
        assert bpe.PRE[name][0] == bpe.PRE[known][0]
    assert {name for name, (_, ignore, _) in bpe.PRE.items() if ignore} == hf_tokenizer.WHOLE_WORDS
    assert bpe.PRE["lfm2"] == bpe.PRE["llama-bpe"] != bpe.PRE["smaug-bpe"]


@pytest.mark.full
def test_encode_of_gemma_3_is_as_published(datafile, tmp_path):
    """Of the article's eight cases; with the derived vocabulary all of them hold."""
    write_gguf(
        tmp_path / "g.gguf",
        spm_model.read_table(datafile("tokenizers/gemma3.vocab.derived.tsv.xz")).gguf(),
        [],
    )
    vocab = Vocab(gguf.File(str(tmp_path / "g.gguf")))
    for text, tokens in GEMMA_3.items():
        assert vocab.encode(text.encode(), bos=False) == tokens, text


GEMMA_3 = {
    "Derinkuyu is an underground city.": [17361, 961, 78658, 563, 614, 26407, 3207, 236761],
    " hello": [29104],
    "hello": [23391],
    "  hello": [138, 23391],
    "   hello": [139, 23391],
    "回転行列": [57364, 167089],
    " " * 40 + "hello": [167, 145, 23391],
}


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("version, model", [("1", "v1"), ("2", "v3"), ("3", "v3")])
def test_encode_equals_mistral_conversations(datafile, tmp_path, version, model):
    """Their texts are pieces side by side: U+2581 for a blank, also for the prefix, and <0x0A> for
    a byte.
    """
    write_gguf(
        tmp_path / "m.gguf",
        spm_model.read(datafile(f"tokenizers/mistral.tokenizer.model.{model}")).gguf(),
        [],
    )
    vocab = Vocab(gguf.File(str(tmp_path / "m.gguf")))
    paths = sorted(datafile("tokenizers/mistral-common").glob(f"*/text_v{version}.txt"))
    assert len(paths) == (1 if version == "1" else 5)
    for path in paths:
        expected = json.loads(path.with_name(f"tokens_v{version}.json").read_text())["tokens"]
        text = path.read_text().replace("\u2581", " ").replace("<0x0A>", "\n")
        assert vocab.encode(text.encode(), bos=False, special=True, prefix=False) == expected, path


@st.composite
def merge_lists(draw):
    """Merges over a few bytes, each of two things that are there; a third of the lists in another
    order than they were made.
    """
    known, merges = [b"a", b"b", b"c", b" ", "é".encode()[:1], "é".encode()[1:]], []
    for _ in range(draw(st.integers(0, 25))):
        pair = draw(st.sampled_from(known)), draw(st.sampled_from(known))
        if b"".join(pair) not in known and len(b"".join(pair)) < 12:
            merges.append(pair)
            known.append(b"".join(pair))
    return merges, draw(st.permutations(merges)) if draw(st.integers(0, 2)) == 0 else merges


few_letters = st.text(st.sampled_from("aabbcc é\n1"), max_size=60)


@settings(EXAMPLES, max_examples=40)
@given(
    merge_lists(),
    st.sampled_from(["gpt-2", "llama-bpe", "starcoder"]),
    st.lists(few_letters, min_size=1, max_size=5),
)
def test_encode_of_any_merges_equals_hugging_face(build, lists, pre, texts):
    merges, order = lists
    vocab = build(
        merges, (), pre, merges=("[string]", [f"{letters(a)} {letters(b)}" for a, b in order])
    )
    reference = hf_tokenizer.Reference(vocab._file, vocab.is_control)
    for text in texts:
        assert vocab.encode(text.encode()) == reference.encode(text), text


def test_unicode_classes_are_those_of_this_python():
    """Of every character that this Python's database knows: later versions of Unicode move few."""
    spec = importlib.util.spec_from_file_location(
        "unicode_table", ROOT / "csrc/tokenizer/unicode.py"
    )
    maker = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(maker)
    numbers = [
        int(n, 16)
        for n in (ROOT / "csrc/tokenizer/unicode.h")
        .read_text()
        .split("{", 1)[1]
        .split("}")[0]
        .replace(",", " ")
        .split()
    ]
    assert numbers == sorted(set(numbers)) and numbers[0] >> 3 == 0
    ends = [n >> 3 for n in numbers[1:]] + [0x110000]
    differ = []
    for number, end in zip(numbers, ends):
        for point in range(number >> 3, end):
            category = unicodedata.category(chr(point))
            if category != "Cn" and maker.CLASSES[number & 7] != maker.class_of(point, category):
                differ.append(point)
    assert len(differ) < 40, [hex(point) for point in differ]


# Text and tokens -------------------------------------------------------------------------


@EXAMPLES
@given(st.text(), st.booleans())
@example("'\u017f \u0085\u3000", False)
def test_round_trip(datafile, vocabularies, text, special):
    for name in ("gpt-2", "qwen2"):
        _, vocab = vocabularies(datafile(f"vocab/ggml-vocab-{name}.gguf"))
        assert (
            decode(vocab, vocab.encode(text.encode(), special=special), special=special)
            == text.encode()
        )


@EXAMPLES
@given(st.binary(max_size=40))
def test_bytes_that_are_not_utf8_become_replacement_characters(build, data):
    vocab, at, repaired = build([(b"a", b"b")]), 0, ""
    while at < len(data):
        for n in (1, 2, 3, 4):
            try:
                repaired += data[at : at + n].decode()
                break
            except UnicodeDecodeError:
                pass
        else:
            n, repaired = 1, repaired + "\ufffd"
        at += n
    assert decode(vocab, vocab.encode(data)) == repaired.encode()


@pytest.mark.quick_cases(3)
@pytest.mark.parametrize("name", FAMILIES)
def test_table_is_what_each_id_writes(datafile, vocabularies, name):
    file, vocab = vocabularies(datafile(f"vocab/ggml-vocab-{name}.gguf"))
    texts, types = (
        file.metadata["tokenizer.ggml." + key].values() for key in ("tokens", "token_type")
    )
    bytes_of = {c: bytes([b]) for b, c in enumerate(LETTERS)}
    for i in range(0, vocab.n_vocab, 7):
        text = texts[i].decode()
        if vocab.is_control(i) or types[i] == UNUSED:
            expected = b""
        elif types[i] == BYTE:
            expected = bytes([int(text[3:5], 16)])
        elif name == "gemma-4":
            expected = text.replace("\u2581", " ").encode()
        else:
            expected = (
                text.encode() if types[i] == USER_DEFINED else b"".join(bytes_of[c] for c in text)
            )
        assert vocab.bytes_of(i) == expected, i
        if expected and types[i] != BYTE:
            assert i in vocab.tokens_writing(expected)


AB, ABC = (b"a", b"b"), (b"ab", b"c")


def test_tokens_outside_the_alphabet_write_their_text(build):
    """As in Hugging Face's decoder; text never becomes one of them."""
    vocab = build(
        [AB],
        [
            ("x y", NORMAL),
            ("漢", NORMAL),
            ("\u00ad", NORMAL),
            ("<odd>", USER_DEFINED),
            ("odd one", USER_DEFINED),
            ("gone", UNUSED),
        ],
    )
    assert [vocab.bytes_of(i) for i in range(257, 263)] == [
        b"x y",
        "漢".encode(),
        "\u00ad".encode(),
        b"<odd>",
        b"odd one",
        b"",
    ]
    assert vocab.encode("x y漢".encode()) == [ord("x"), 32, ord("y"), *"漢".encode()]
    assert vocab.encode(b"ab<odd>odd one gone") == [256, 260, 261, *b" gone"]
    assert (
        vocab.tokens_writing(b"odd one") == [261]
        and vocab.tokens_writing("漢".encode()) == [258]
        and vocab.tokens_writing(b"gone") == []
    )


def test_user_defined_and_normal_of_the_same_letters_are_two_tokens(build):
    """DeepSeek-LLM has "ø" as a token of text, and in others that letter stands for byte F8."""
    vocab = build([AB], [("ø", USER_DEFINED)])
    assert (
        vocab.encode("aø".encode()) == [97, 257]
        and vocab.bytes_of(257) == "ø".encode()
        and vocab.bytes_of(0xF8) == b"\xf8"
    )


def test_special_takes_control_tokens_only_on_request(build):
    vocab = build(
        [AB], [("<|end|>", CONTROL), ("<think>", USER_DEFINED)], eos_token_id=("u32", 257)
    )
    data = b"ab<|end|><think>ab"
    assert vocab.encode(data) == [256, *b"<|end|>", 258, 256]
    assert vocab.encode(data, marks=False) == [256, *b"<|end|><think>", 256]
    assert vocab.encode(data, special=True) == [256, 257, 258, 256]
    assert vocab.eog == {257} and vocab.bos is None and vocab.control_token("<think>") == 258


def test_begin_id_is_put_first_as_the_rule_and_the_file_say(build):
    added, bos = [("<s>", CONTROL)], {"bos_token_id": ("u32", 257)}
    assert build([AB], added, **bos).encode(b"ab") == [256]
    assert build([AB], added, "llama-bpe", **bos).encode(b"ab") == [257, 256]
    assert build([AB], added, "llama-bpe", add_bos_token=("bool", False), **bos).encode(b"ab") == [
        256
    ]
    assert build(
        [AB],
        added,
        add_bos_token=("bool", True),
        add_eos_token=("bool", True),
        eos_token_id=("u32", 257),
        **bos,
    ).encode(b"ab") == [257, 256, 257]
    assert build([AB], added, "llama-bpe").encode(b"ab") == [256]


def test_space_prefix_is_not_of_these_vocabularies(build):
    vocab = build([AB], add_space_prefix=("bool", True), remove_extra_whitespaces=("bool", True))
    assert vocab.encode(b"  ab ") == [32, 32, 256, 32] and decode(vocab, [32, 256]) == b" ab"


def test_words_that_are_tokens_are_not_merged_where_the_rule_says_so(build):
    """abc is a token, but merging a bc first never makes it."""
    merges = [(b"b", b"c"), AB, ABC]
    assert build(merges).encode(b"abc") == [97, 256]
    assert build(merges, (), "llama-bpe").encode(b"abc") == [258]


def test_bytes_without_a_token_give_no_id(build):
    """As in Hugging Face tokenizers; StarCoder has none for F1."""
    vocab = build(
        [AB],
        tokens=("[string]", [*LETTERS.replace("c", ""), "ab"]),
        token_type=("[i32]", [NORMAL] * 256),
    )
    assert decode(vocab, vocab.encode(b"xacbcc")) == b"xab" and vocab.encode(b"acb") == [255]


def test_answers_need_tokens_that_write_them(build):
    class Question:
        path, answers, tokenisations = "q", {"yes": ["ab"], "no": ["c"]}, "canonical"

    gone = dict(
        tokens=("[string]", [*LETTERS.replace("c", ""), "ab"]), token_type=("[i32]", [NORMAL] * 256)
    )
    with pytest.raises(Error, match="cannot spell"):
        answers.Tree(Question, build([AB], **gone))
    vocab = build([AB], [("ab", USER_DEFINED)])
    assert answers.Tree(Question, vocab).root.tokens == [99, 257]
    Question.tokenisations = "all"
    assert answers.Tree(Question, vocab).root.tokens == [97, 99, 256, 257]


def test_grammar_matches_the_bytes_of_tokens(datafile, vocabularies):
    """What is allowed is what the bytes of each id say, a character in pieces too."""
    _, vocab = vocabularies(datafile("vocab/ggml-vocab-gpt-2.gguf"))
    matcher = grammar.Matcher(
        grammar.Grammar('root ::= " " ("yes" | "漢字" | [0-9]{2})'.encode(), "g"), vocab
    )
    sentences = [s.encode() for s in (" yes", " 漢字", *(f" {n:02}" for n in range(100)))]
    begins = {s[:n] for s in sentences for n in range(1, len(s) + 1)}
    allowed, _ = matcher.allowed()
    found = {i for i in range(vocab.n_vocab) if allowed[i // 64] >> i % 64 & 1}
    assert found == {i for i in range(vocab.n_vocab) if vocab.bytes_of(i) in begins}
    assert max(len(vocab.bytes_of(i)) for i in found) > 3
    for text, tokens in ((" 漢字", None), (" yes", None), (" 42", vocab.encode(b" 42"))):
        matcher = grammar.Matcher(matcher.grammar, vocab)
        assert (
            all(matcher.accept(i) for i in tokens or vocab.encode(text.encode()))
            and matcher.complete
        )


@pytest.mark.parametrize(
    "name, pre",
    [("llama-bpe", None), ("llama-bpe", "tekken"), ("deepseek-llm", None), ("gemma-4", None)],
)
@pytest.mark.full
def test_words_that_are_long(datafile, vocabularies, name, pre):
    """As tests/tokenizer/test_bpe_large.py has them, but small enough for the sanitizers."""
    _, vocab = vocabularies(datafile(f"vocab/ggml-vocab-{name}.gguf"), pre)
    for text in ("a", " ", "漢", "Aa日", "\u0301", "<"):
        assert decode(vocab, vocab.encode(text.encode() * 3000)) == text.encode() * 3000


# Files that are refused ----------------------------------------------------------------------


def array(kind, values):
    return (f"[{kind}]", values)


TOKENS = [*LETTERS, "ab", "abc", "<|end|>"]
TYPES = [NORMAL] * 258 + [CONTROL]


def with_item(values, i, v):
    return [*values[:i], v, *values[i + 1 :]]


def with_token(i, text, kind=NORMAL):
    """The keys with token `i` replaced."""
    return {
        "tokens": array("string", with_item(TOKENS, i, text)),
        "token_type": array("i32", with_item(TYPES, i, kind)),
    }


BAD = [  # keys, exit code, what the message must hold
    ({"model": ("string", "bert")}, UNSUPPORTED, 'model "bert"'),
    ({"pre": None}, UNSUPPORTED, "tokenizer.ggml.pre is missing"),
    ({"pre": ("string", "default")}, UNSUPPORTED, 'pre "default"'),
    ({"pre": ("string", "falcon\n")}, UNSUPPORTED, 'pre "falcon\\n"'),
    ({"pre": ("u32", 1)}, BAD_DATA, "pre: expected string"),
    ({"merges": None}, BAD_DATA, "tokenizer.ggml.merges is missing"),
    ({"merges": array("u8", [1, 2])}, BAD_DATA, "merges: expected [string]"),
    (
        {"merges": array("string", ["a b", "ab"])},
        BAD_DATA,
        'merges: merge 1, "ab", is not two texts',
    ),
    ({"merges": array("string", ["a b", ""])}, BAD_DATA, "merges: merge 1"),
    ({"merges": array("string", ["a b", " "])}, BAD_DATA, "merges: merge 1"),
    ({"merges": array("string", ["a b", " ab"])}, BAD_DATA, "merges: merge 1"),
    ({"merges": array("string", ["a b", "ab "])}, BAD_DATA, "merges: merge 1"),
    (
        {"merges": array("string", ["a b", "ab x"])},
        BAD_DATA,
        'merges: merge 1, "ab x", makes no token',
    ),
    ({"merges": array("string", ["a b", "ab  c"])}, BAD_DATA, "merges: merge 1"),
    ({"merges": array("string", ["<| end|>", "a b"])}, BAD_DATA, "merges: merge 0"),
    ({"merges": array("string", ["a b", "x" * 2000 + " y"])}, BAD_DATA, "merges: merge 1"),
    (
        {"merges": array("string", ["a b", "ab c", "a b"])},
        BAD_DATA,
        'merges: merge 2, "a b", is merge 0 again',
    ),
    ({"tokens": None}, BAD_DATA, "tokenizer.ggml.tokens is missing"),
    ({"tokens": array("string", [])}, BAD_DATA, "tokens: 0 tokens"),
    ({"tokens": array("string", TOKENS[:-1])}, BAD_DATA, "token_type: 259 elements for 258"),
    ({"token_type": array("i32", with_item(TYPES, 3, 0))}, BAD_DATA, "token_type: token 3"),
    ({"token_type": array("i32", with_item(TYPES, 3, 7))}, BAD_DATA, "token_type: token 3"),
    ({"token_type": array("i32", with_item(TYPES, 3, -1))}, BAD_DATA, "token_type: token 3"),
    (with_token(3, "<0x03>", BYTE), BAD_DATA, "token_type: token 3: its type is byte"),
    (
        with_token(257, b"\xe6\xbc", USER_DEFINED),
        BAD_DATA,
        "tokens: token 257: is of type user defined and not UTF-8",
    ),
    (with_token(5, "a"), BAD_DATA, "has the same text as token"),
    (with_token(257, "ab"), BAD_DATA, "tokens: token 257 has the same text as token 256"),
    (with_token(258, "x" * 1025, CONTROL), UNSUPPORTED, "token 258 has more than 1024 bytes"),
    ({"bos_token_id": ("u32", 259)}, BAD_DATA, "bos_token_id: 259 is not below"),
    ({"eos_token_id": ("u32", 1 << 31)}, BAD_DATA, "eos_token_id"),
    ({"bos_token_id": ("i32", -1)}, BAD_DATA, "bos_token_id: expected u32"),
    ({"add_bos_token": ("bool", True)}, BAD_DATA, "bos_token_id: names no token"),
    ({"add_bos_token": ("u32", 1)}, BAD_DATA, "add_bos_token: expected bool"),
]


@pytest.mark.parametrize("keys, code, message", BAD, ids=range(len(BAD)))
def test_bad_vocabulary_is_refused(build, keys, code, message):
    with pytest.raises(Error) as e:
        build([AB, ABC], [("<|end|>", CONTROL)], **keys)
    assert (
        e.value.code == code
        and message in str(e.value)
        and "v.gguf" in str(e.value)
        and "\n" not in str(e.value)
    )


def test_merges_whose_halves_are_no_tokens_are_never_made(build):
    """As in llama.cpp: "xa" is nothing that merging makes."""
    vocab = build([AB], [("xab", NORMAL)], merges=array("string", ["a b", "xa b"]))
    assert vocab.encode(b"xab") == [ord("x"), 256]


def test_without_merges_and_types_texts_are_written_in_single_bytes(build):
    """The specification: where the keys are absent, tokens are atomic. Marks of an end stay
    marks.
    """
    vocab = build([], [("<|im_end|>", NORMAL)], merges=None, token_type=None)
    for text in (b"Once upon", "h\u00e9llo \u65e5\n".encode(), b"<|im_end|>"):
        assert vocab.encode(text, bos=False) == list(text) and decode(vocab, list(text)) == text
    assert vocab.encode(b"a<|im_end|>", bos=False, special=True) == [97, 256] and 256 in vocab.eog
    with pytest.raises(Error, match="merges is missing, and token 256") as e:
        build([], [("ab", NORMAL)], merges=None)
    assert e.value.code == BAD_DATA


def test_long_merges_in_any_order_are_found(build):
    """Texts around the 16 bytes that are compared as one number, halves of every length, tokens out
    of order.
    """
    made = [bytes([97 + i]) * n for i in range(8) for n in range(2, 24)]
    random.Random(1).shuffle(made)
    merges = [(t[:k], t[k:]) for t in made for k in {1, len(t) // 2, len(t) - 1}]
    vocab = build(
        [],
        [(letters(t), NORMAL) for t in made],
        merges=array("string", [f"{a.decode()} {b.decode()}" for a, b in merges]),
    )
    reference = hf_tokenizer.Reference(vocab._file, vocab.is_control)
    for t in made:
        assert vocab.encode(t) == reference.encode(t.decode())


@pytest.mark.parametrize("left", [" !", " ", "  !", " !" * 7])
def test_merge_part_may_begin_with_a_space(build, left):
    """As llama.cpp reads merges; a vocabulary of model gemma4 could use one."""
    if " " in left[1:]:
        with pytest.raises(Error, match="merge 0"):
            build(
                [AB, ABC],
                [(left + "x", NORMAL)],
                merges=array("string", [f"{left} x", "a b", "ab c"]),
            )
    else:
        assert build(
            [AB, ABC], [(left + "x", NORMAL)], merges=array("string", [f"{left} x", "a b", "ab c"])
        ).encode(b"ab") == [256]


odd_texts = st.one_of(
    st.text(st.sampled_from("ab Ġé<|>x\u2581漢"), max_size=5).map(str.encode), st.binary(max_size=3)
)


@EXAMPLES
@given(
    st.lists(st.tuples(odd_texts, st.integers(0, 6)), max_size=12),
    st.lists(odd_texts, max_size=12),
    st.sampled_from(["gpt2", "gemma4"]),
    st.sampled_from(sorted(bpe.PRE)),
    st.binary(max_size=30),
    st.booleans(),
)
def test_any_vocabulary_is_refused_or_encodes(build, added, merges, model, pre, data, special):
    try:
        vocab = build(
            [AB, ABC],
            added,
            pre,
            model=("string", model),
            unknown_token_id=("u32", 3),
            merges=array("string", [b"a b", b"ab c", *merges]),
        )
        out = vocab.encode(data, special=special)
    except Error as e:
        assert e.code in (BAD_DATA, UNSUPPORTED)
        return
    assert all(0 <= i < vocab.n_vocab for i in out) and len(out) <= 3 * len(data) + 2
    assert special or not any(map(vocab.is_control, vocab.encode(data)))
    assert len(decode(vocab, out)) <= 64 * len(data) + 64


def test_gemma_4_ends_at_turns_and_before_the_response_of_a_tool(datafile, vocabularies):
    file, vocab = vocabularies(datafile("vocab/ggml-vocab-gemma-4.gguf"))
    tokens = file.metadata["tokenizer.ggml.tokens"].values()
    assert {tokens[i] for i in vocab.eog} == {b"<eos>", b"<turn|>", b"<|tool_response>"}
    assert not any(map(vocab.is_control, vocab.encode(b"<|tool_response><turn|></s>", bos=False)))
