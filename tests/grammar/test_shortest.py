"""Text that a grammar leaves no choice about, and the shortest text that completes a sentence."""

import json
import os

import grammar_reference as slow
import jsonschema
import pytest
from conftest import SHARED
from grammar_words import Words
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from schema_grammar import grammar_of
from test_grammar import grammars, longer

from sluice import faults
from sluice.grammar import constraint, spelling
from sluice.grammar.matcher import Grammar, Matcher

BENCH = SHARED and SHARED / "data" / "schema" / "bench"
LETTERS = [b"a", b"b", b"c", "é".encode(), "🦀".encode(), b"\xc3", b"\xa9", b"ab", b"aa", b""]
WORDS = Words([*LETTERS, b"<end>"], eog=[10])


def compiled(source):
    return Grammar(source.encode() if isinstance(source, str) else source, "g")


def reached(rules, data):
    """A Matcher behind `data`, or None."""
    m = Matcher(rules, WORDS)
    return m if m.feed(data) else None


@pytest.mark.parametrize(
    "source, begin, end",
    [
        ('root ::= "yes" | "no"', "", "no"),
        ('root ::= "yes" | "no"', "y", "es"),
        ('root ::= "a"*', "aa", ""),
        ('root ::= "b"{3,9}', "", "bbb"),
        ('root ::= "b"{3,9}', "bb", "b"),
        ('root ::= ("ab"{2} "c"?){100000}', "ab", "ab" + 99999 * "abab"),
        ('root ::= "(" root ")" | "x"', "(((", "x)))"),
        ('root ::= x "." \nx ::= "a" x "b" | "c" "c" "c"', "aa", "cccbb."),
        ('root ::= ("a" | "")* "z"', "aaa", "z"),
        ("root ::= [^a-z] [é🦀]", "A", "é"),
        ("root ::= . [^ ] [^!-~] [\\\\-~] [ \\t\\n] [\\x00-\\x1f]", "", " ! ] \t"),
        ('root ::= "\\n" | "b" | "\\x01"', "", "b"),
        ('root ::= "\\x01" | "\\\\"', "", "\x01"),
        ('root ::= "🦀"', b"\xf0\x9f", b"\xa6\x80"),
        ('root ::= "a" (root | "b"){2} | "a"', "aa", "a"),
        ('root ::= "a" root "b" | "ab"', "aaab", "bb"),
    ],
)
def test_the_shortest_text_completes_the_sentence(source, begin, end):
    begin, end = (x.encode() if isinstance(x, str) else x for x in (begin, end))
    assert b"".join(reached(compiled(source), begin).shortest()) == end


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(grammars(), st.text("abé", max_size=4), st.booleans())
def test_no_text_is_shorter(g, begin, is_longer):
    """Random grammars, against a search by length that knows nothing of needs."""
    g = longer(g) if is_longer else g
    assume(len(slow.can_end(g)) == 3 and not slow.left_recursive(g))
    rules = compiled(slow.gbnf(g))
    try:
        m = reached(rules, begin.encode())
        assume(m)
        found = b"".join(m.shortest())
        after = reached(rules, begin.encode() + found)
        assert after and after.complete
        alive = [b""]  # all texts of a length that may go on, until one is a sentence
        for _ in range(min(3, len(found))):
            states = [(t, reached(rules, begin.encode() + t)) for t in alive]
            assert not any(state.complete for _, state in states)
            tried = [bytes([b]) for b in {*b"abc ", *"é🦀".encode(), 0x80}]
            more = [t + b for t, _ in states for b in tried]
            alive = [t for t in more if reached(rules, begin.encode() + t)]
    except faults.Error as e:
        assert "too ambiguous" in str(e)


@pytest.mark.parametrize(
    "source",
    [
        'root ::= (("a"{1000}){1000}){1000}',
        'root ::= "a" r0\n'
        + "".join(f"r{i} ::= r{i + 1} r{i + 1}\n" for i in range(200))
        + 'r200 ::= "a" | "b"\n',
    ],
)
def test_a_text_that_is_too_long_is_an_error(source):
    with pytest.raises(faults.DataError, match="longer than 1024 KiB"):
        reached(compiled(source), b"a").shortest()


def test_token_terminals_are_tokens():
    m = Matcher(compiled('root ::= "a" <[3]> !<[0]> "b"'), WORDS)
    assert m.feed(b"a")
    assert m.shortest() == [(3, False), (0, True), b"b"]


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(grammars(), st.text("abé", max_size=3))
def test_forced_bytes_are_the_only_ones(g, begin):
    g = longer(g)
    assume(len(slow.can_end(g)) == 3 and not slow.left_recursive(g))
    rules = compiled(slow.gbnf(g))
    try:
        m = reached(rules, begin.encode())
        assume(m)
        text, is_open, last = m.forced()
    except faults.Error as e:
        assert "too ambiguous" in str(e)
        return
    assert len(text) == len(is_open)
    for i in range(len(text)):
        before = begin.encode() + text[:i]
        assert not reached(rules, before).complete
        assert [b for b in range(256) if reached(rules, before + bytes([b]))] == [text[i]]
        # the tokens that are allowed go no further than the text, or it is marked
        m = reached(rules, before)
        bits, _ = m.allowed()
        allowed = [t for j, t in enumerate(WORDS.texts) if bits[j // 64] >> j % 64 & 1]
        assert any(len(t) > len(text) - i for t in allowed) == bool(is_open[i])
    end = reached(rules, begin.encode() + text)
    assert last == (end.complete and not end.open)


def test_a_thousand_bytes_are_looked_at():
    text = "b" + "ab" * 3000
    m = reached(compiled(f'root ::= "{text}"'), b"")
    forced, is_open, last = m.forced()
    assert (forced, last) == (text[:1024].encode(), False)
    # the last byte that was looked at begins "ab"
    assert is_open == bytes(1023) + b"\1"


@pytest.mark.parametrize("step", [7, pytest.param(1, marks=pytest.mark.full)])
def test_a_value_of_a_bench_schema_can_be_completed(step):
    """From the beginning, and from each byte of its valid instances; jsonschema says it is one."""
    if not (BENCH and BENCH.is_dir()):
        pytest.skip("shared data is not here")
    n = 0
    for name in sorted(os.listdir(BENCH))[::step]:
        bench = json.loads((BENCH / name).read_bytes())
        try:
            rules = grammar_of(bench["schema"], fixed=True)
        except faults.UnsupportedError:
            continue
        check = jsonschema.Draft202012Validator(bench["schema"])
        texts = [json.dumps(t["data"])[:400].encode() for t in bench["tests"] if t["valid"]]
        for text in [b"", *texts[:2]]:
            m = Matcher(rules)
            for at in range(len(text) + 1):
                if at % 37 == 0 or at == len(text):
                    check.validate(json.loads((text[:at] + b"".join(m.shortest())).decode()))
                    n += 1
                if at == len(text) or not m.feed(text[at : at + 1]):
                    break
    assert n > 60


def test_spelling_joins_with_the_token_before():
    class Pairs(Words):
        """Joins two equal letters, from the left."""

        def encode(self, data, **_):
            found, at = [], 0
            while at < len(data):
                n = 2 if data[at : at + 2] == b"aa" else 1
                found.append(self.texts.index(data[at : at + n]))
                at += n
            return found

        def bytes_of(self, i):
            return self.texts[i]

        def is_control(self, i):
            return False

        def tokens_writing(self, data):
            return [i for i, text in enumerate(self.texts) if text == data]

    words = Pairs([b"a", b"b", b"aa", b"\xc3", b"\xa9"])
    assert spelling.of_text(words, [], b"aab") == [2, 1]
    assert spelling.of_text(words, [2], b"aab") == [2, 1]
    assert spelling.of_text(words, [0], b"ab") == [0, 1]  # the one before stands
    assert spelling.of_text(words, [1, 2, 1], b"aaa") == [2, 0]
    m = Matcher(compiled('root ::= "é" "aaa"'), words)
    assert m.feed(b"\xc3") and spelling.closing(m, words, [3]) == [4, 2, 0]
    m = Matcher(compiled('root ::= "b" "aaa" [a-b]'), words)
    assert m.feed(b"b")
    assert spelling.forced(m, words, [1]) == ([2], False)  # "aa"; the third may begin "aa", too
    m = Matcher(compiled('root ::= "b" "aaa" [a-b]'), words)
    c = constraint.Constraint(m)
    assert list(c.closing()) == [1, 2, 2] and m.complete
