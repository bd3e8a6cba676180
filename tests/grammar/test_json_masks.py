"""Masks of JSON Schemas: each is the set of the tokens that can be fed, whatever the tokens cut."""

import json
import random

import grammar_reference as slow
import pytest
from grammar_words import Words
from schema_grammar import accepts, grammar_of
from test_json_schema import KEYWORDS

from sluice.gguf.model_file import open_model
from sluice.grammar import gbnf, matcher, show, sources, syntax
from sluice.tokenizer.vocabulary import Vocab

PIECES = [
    *"abcxyz019-+.eE {}[]:,_/@é日😀\n\t\x7f", '"', '",', '":', '": ', '", "', '{"', '"}', "]]", "null",
    "true", "1.5", "2024-", "ab", "aab", "abc", "the", " the", "\\", "\\n", '\\"', "\\u", "\\u00",
    "e9", "\\ud83d", "\\ude00",
]  # fmt: skip
CUT = [b"\xc3", b"\xa9", b"\xf0\x9f", b"\x98\x80", b"\xff", b"a\xe6\x97", b'"\x80']


def vocabulary(n=700, seed=1):
    """Tokens of one to four pieces, all single bytes, and tokens that cut characters."""
    rng = random.Random(seed)
    texts = {bytes([b]) for b in range(256)} | set(CUT)
    while len(texts) < n:
        texts.add("".join(rng.choice(PIECES) for _ in range(rng.randint(1, 4))).encode())
    texts |= {b"a" * k for k in (5, 9, 15, 30, 100, 249, 250, 251, 300)}
    texts |= {b"a" * k + b'"' for k in (5, 21, 250, 251)}
    return Words(sorted(texts))


WORDS = vocabulary()
SCHEMAS = [k[0] for k in KEYWORDS] + [
    {"type": "string", "maxLength": n} for n in (1, 5, 20, 21, 249, 251, 2000)
] + [
    {"type": "string", "minLength": 7, "maxLength": 9},
    {"properties": {"a": {"type": "string"}, "ab": {}, "aac": {}, "é": {}, 'a"b': {}}},
    {"additionalProperties": {"maxLength": 3}, "properties": {"the": {}, "thex": {}}},
    {"pattern": "a.*b"},
    {"pattern": "^[a-z]{0,7}$"},
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(SCHEMAS)))
def test_mask_is_every_token_that_can_be_fed(number):
    grammar, rng = grammar_of(SCHEMAS[number]), random.Random(number)
    for _ in range(3):
        m, text = matcher.Matcher(grammar, WORDS), b""
        for _ in range(12):
            bits, last = m.allowed()
            allowed = {i for i in range(WORDS.n_vocab) if bits[i // 64] >> i % 64 & 1}
            can_go_on = False
            for i in range(WORDS.n_vocab):
                other = matcher.Matcher(grammar)
                fed = other.feed(text + WORDS.texts[i])
                assert fed is (i in allowed), (SCHEMAS[number], text, WORDS.texts[i])
                can_go_on |= fed and other.open
            assert not (last and can_go_on)
            if not allowed:
                break
            token = rng.choice(sorted(allowed))
            assert m.accept(token)
            text += WORDS.texts[token]


@pytest.mark.full
def test_mask_of_a_real_vocabulary_is_exact(datafile):
    words = Vocab(open_model(str(datafile("vocab/ggml-vocab-llama-bpe.gguf")), None))
    rng = random.Random(5)
    text, offset = words.table()
    texts = [bytes(text[offset[i] : offset[i + 1]]) for i in range(words.n_vocab)]
    for number in rng.sample(range(len(SCHEMAS)), 12):
        grammar = grammar_of(SCHEMAS[number])
        m, before = matcher.Matcher(grammar, words), b""
        for _ in range(6):
            bits, _ = m.allowed()
            allowed = [i for i in range(words.n_vocab) if bits[i // 64] >> i % 64 & 1]
            allowed = [i for i in allowed if i not in words.eog]
            for i in rng.sample(range(words.n_vocab), 1500) + rng.sample(
                allowed, min(500, len(allowed))
            ):
                if texts[i] and i not in words.eog:
                    fed = matcher.Matcher(grammar).feed(before + texts[i])
                    assert fed is bool(bits[i // 64] >> i % 64 & 1), (number, before, texts[i])
            if not allowed:
                break
            token = rng.choice(allowed)
            assert m.accept(token)
            before += texts[token]


def reference(tree):
    """A Syntax as grammar_reference has it."""
    made = {}
    for i, (kind, value) in enumerate(zip(tree.kind, tree.value)):
        if kind == syntax.TEXT:
            made[i] = ("text", value.decode())
        elif kind == syntax.CLASS:
            made[i] = ("class", False, value)
        elif kind == syntax.NAME:
            made[i] = ("name", value)
        elif kind in (syntax.SEQUENCE, syntax.CHOICE):
            name = "sequence" if kind == syntax.SEQUENCE else "choice"
            made[i] = (name, tuple(made[n] for n in value))
        else:
            assert kind == syntax.REPEAT
            made[i] = ("repeat", made[value[0]], *value[1:])
    return {name: made[node] for name, node in tree.rules.items()}


@pytest.mark.parametrize(
    "schema, allowed, refused", KEYWORDS, ids=[str(k[0])[:60] for k in KEYWORDS]
)
def test_slow_matcher_agrees(schema, allowed, refused):
    printed = show.gbnf(sources.of_schema(json.dumps(schema).encode(), "s"))
    rules, grammar = reference(gbnf.parse(printed, "g")), grammar_of(schema)
    for text in [*allowed, *refused]:
        if len(text) < 25:
            assert slow.Matcher(rules, text).complete is accepts(grammar, text), text
