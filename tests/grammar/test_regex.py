"""Regular expressions: what they match is what Python's re matches, or they are refused by name."""

import re

import pytest
from conftest import run
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schema_grammar import accepts

from sluice import faults
from sluice.grammar import regex, regular, sources
from sluice.grammar.matcher import Grammar


def grammar_of(expression):
    return Grammar(sources.of_regex(expression, "re"), "re")


MEANING = [  # expression, texts that it matches, texts that it does not
    ("a+b?", ["a", "aab"], ["", "b", "abb"]),
    ("(ab|c)*", ["", "abc", "cab"], ["a"]),
    ("a{2}|b{1,}|c{,3}", ["aa", "bb", "c{,3}"], ["a", "ccc"]),
    ("[a-c-]", ["a", "c", "-"], ["d"]),
    (r"[\w.-]+", ["a_1.-"], ["é", "a b"]),
    (r"[^\s\d]", ["a", "é"], [" ", "7", "\u2003", "\n"]),
    (r"\d\D\w\W\s\S", ["1a_- x"], ["1a--x"]),
    (".", ["a", "é", "\0"], ["\n", "\r", "\u2028", ""]),
    (r"\x41\u00e9\u{1F600}\ud83d\ude00\n\.\/", ["Aé😀😀\n./"], ["A"]),
    (r"^a$|^$", ["a", ""], ["b"]),
    ("(?:a)(?<name>b)(?P<n2>c)", ["abc"], ["ab"]),
    ("a*?b+?c??", ["b", "aabbc"], ["a"]),
    (r"\p{Lu}\p{L}*", ["Aé", "É"], ["a", "1"]),
    (r"[\p{Nd}x]\PL", ["1-", "x٣"], ["xa"]),
    ("a{0,100000}", ["", "a" * 100_000], ["a" * 100_001]),
    ("{}", ["{}"], ["{"]),
    ("x{", ["x{"], ["x"]),
]


@pytest.mark.parametrize("expression, matched, others", MEANING)
def test_expression_matches(expression, matched, others):
    grammar = grammar_of(expression)
    assert [t for t in matched if not accepts(grammar, t)] == []
    assert [t for t in others if accepts(grammar, t)] == []


REFUSED = [  # expression, exit code, part of the message
    ("(?=a)", 69, "lookahead"),
    ("(?!a)", 69, "lookahead"),
    ("(?<=a)b", 69, "lookbehind"),
    (r"(a)\1", 69, "reference to a group"),
    (r"\bword", 69, "word boundary"),
    ("(?i)a", 69, "flags"),
    ("(?>a)", 69, "atomic"),
    ("a++", 69, "possessive"),
    (r"\p{Script=Greek}", 69, "property"),
    ("[[:alpha:]]", 69, "POSIX"),
    ("[]a]", 69, "begins with ]"),
    (r"\Aa", 69, "use ^"),
    ("a^b", 69, "anchor in the middle"),
    ("(^a)*", 69, "anchor"),
    (r"\01", 69, "octal"),
    ("(a", 65, "never closed"),
    ("a)", 65, "without a group"),
    ("*a", 65, "nothing to repeat"),
    ("a**", 65, "quantifier"),
    ("[a", 65, "never closed"),
    ("[z-a]", 65, "high to low"),
    ("a{3,2}", 65, "below the lower"),
    ("a\\", 65, "backslash"),
    (r"\x4", 65, "hexadecimal"),
    ("(" * 60_000, 65, "within each other"),
    ("a" * 100_000, 65, "more than"),
    (r"[^\x00-\u{10FFFF}]", 65, "matches no text"),
]


@pytest.mark.parametrize("expression, code, part", REFUSED, ids=[r[0][:30] for r in REFUSED])
def test_refusal_names_the_cause(expression, code, part):
    with pytest.raises(faults.Error) as e:
        sources.of_regex(expression, "--regex")
    assert e.value.code == code
    assert str(e.value).startswith("--regex: ") and part in str(e.value)


def expressions():
    leaves = st.sampled_from(["a", "b", "[ab]", "[^a]", ".", r"\d", "", "c"])
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.builds("".join, st.lists(inner, min_size=1, max_size=3)),
            st.builds(
                lambda parts: "(" + "|".join(parts) + ")", st.lists(inner, min_size=1, max_size=3)
            ),
            st.builds(
                lambda e, s: f"(?:{e}){s}",
                inner,
                st.sampled_from(["*", "+", "?", "{2}", "{1,3}", "*?"]),
            ),
        ),
        max_leaves=6,
    )


TEXTS = st.lists(st.text("abc1", max_size=6), min_size=1, max_size=6)


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(expressions(), TEXTS)
def test_grammar_and_automaton_agree_with_re(expression, texts):
    grammar = grammar_of(expression)
    automaton = regular.of_tree(regex.whole(expression))
    opposite = regular.inverse(automaton)
    for text in texts:
        expected = re.fullmatch(expression, text) is not None
        assert accepts(grammar, text) is expected
        assert automaton.matches(text) is expected
        assert opposite.matches(text) is not expected


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    expressions(),
    st.sampled_from(["{}", "^{}", "{}$", "^{}$", "^{}|a$", "b|{}$", "(^{}|a)b", "a(b|{}$)"]),
    TEXTS,
)
def test_search_agrees_with_re(expression, frame, texts):
    pattern = frame.format(f"(?:{expression})")
    try:
        automaton = regular.of_tree(regex.searched(pattern))
    except regex.Unsupported:
        return
    for text in texts:
        assert automaton.matches(text) is (re.search(pattern, text) is not None)


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(expressions(), expressions(), TEXTS)
def test_intersection_is_both(a, b, texts):
    both = regular.intersection(regular.of_tree(regex.whole(a)), regular.of_tree(regex.whole(b)))
    for text in texts:
        expected = re.fullmatch(a, text) is not None and re.fullmatch(b, text) is not None
        assert both.matches(text) is expected


def test_command_takes_an_expression():
    for text, code in ((b"aab", 0), (b"b", 1)):
        done = run("grammar-filter", "--regex", "a+b", "--check", input=text)
        assert (done.returncode, done.stderr) == (code, b"")
    assert run("grammar-filter", "--regex", "a+b", "--print").stdout == b'root ::= "a"+ "b"\n'
