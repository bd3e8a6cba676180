"""Grammars: the parser and its refusals, the automaton against a slow matcher, masks against
feeding every id.
"""

import random
import resource

import grammar_reference as slow
import pytest
from conftest import DATA
from grammar_words import Words
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sluice import faults
from sluice.grammar import charset
from sluice.grammar import matcher as grammar
from sluice.kernels import ffi, lib

JSON = DATA / "grammars" / "json.gbnf"


def compiled(source):
    return grammar.Grammar(source.encode() if isinstance(source, str) else source, "g")


def outcome(rules, text):
    """ "yes" a sentence, "open" the beginning of one, "no"."""
    m = grammar.Matcher(rules)
    alive = m.feed(text.encode() if isinstance(text, str) else text)
    return "yes" if m.complete else "open" if alive else "no"


def comparable(rules, text):
    """The outcome, or None where the grammar is too ambiguous for this text: an Error is never a
    wrong answer.
    """
    try:
        return outcome(rules, text)
    except faults.Error as e:
        assert "too ambiguous" in str(e)
        return None


def tokens(matcher):
    bits, last = matcher.allowed()
    return {i for i in range(matcher.vocab.n_vocab) if bits[i // 64] >> i % 64 & 1}, last


# What the notation means -------------------------------------------------------

MEANING = [  # grammar, sentences, beginnings, others
    ('root ::= "yes" | "no"', ["yes", "no"], ["", "y", "ye", "n"], ["yesno", "x", "yess"]),
    ("root ::= ", [""], [], ["a"]),
    ('root ::= "a" | ', ["", "a"], [], ["aa"]),
    ("root ::= ()", [""], [], ["a"]),
    ('root ::= "a" x\n  x ::= ', ["a"], [""], ["b"]),
    ('root ::= "a" "b"', ["ab"], ["a"], ["b", "a b"]),
    ('root ::= "a"\n  # or\n\n  | "b"\nx ::= "c"', ["a", "b"], [""], ["c"]),
    ("root ::= [+\\-a]", ["+", "-", "a"], [""], [",", "\\"]),
    ('root ::= "a" |\n  "b" | # then\n\n "c"', ["a", "b", "c"], [""], ["d"]),
    ('root ::=\n\n "a"\n\n', ["a"], [""], ["b"]),
    ('root ::= ("a"\n"b"\n|\n"c")*\n', ["", "ab", "c", "abc"], ["a"], ["b"]),
    ('x ::= "b"\nroot ::= x # comment\n# another\r\ny-2_Z ::= x', ["b"], [""], ["a"]),
    ('root ::= "a"*', ["", "aaaa"], [], ["b"]),
    ('root ::= "ab"+', ["ab", "abab"], ["", "a", "aba"], ["b"]),
    ('root ::= "a"?"b"', ["b", "ab"], ["", "a"], ["aa"]),
    ('root ::= "a"**', ["", "aa"], [], ["b"]),
    ('root ::= "a"{2}', ["aa"], ["", "a"], ["aaa"]),
    ('root ::= "a"{2,}', ["aa", "aaaaa"], ["", "a"], ["b"]),
    ('root ::= "a"{ 1 , 3 }', ["a", "aa", "aaa"], [""], ["aaaa"]),
    ('root ::= "a"{0} "b"', ["b"], [""], ["ab"]),
    ('root ::= "a"{0,0}"b"', ["b"], [""], ["ab"]),
    ('root ::= ("a"{2}){2,3}', ["aaaa", "aaaaaa"], ["a", "aaaaa"], ["aaaaaaa"]),
    (
        'root ::= ("a" | "b"{2,3}){2}',
        ["aa", "abb", "bbbbbb", "bba"],
        ["b", "bb", "bbb"],
        ["aaa", "bab"],
    ),
    ('root ::= ("a"?){3,5}', ["", "a", "aaaaa"], [], ["aaaaaa"]),
    ('root ::= ("a"? "b"?){2,3} "c"', ["c", "abc", "bac", "aaac"], ["aaa"], ["aaaa"]),
    ('root ::= ("a"*)*', ["", "aaa"], [], ["b"]),
    ('root ::= (("a"*)* | "b")* "c"', ["c", "abac"], ["aaa"], ["d"]),
    ('root ::= (("a"{0,2}){0,2}){2}', ["", "aaaaaaaa"], [], ["aaaaaaaaa"]),
    ('root ::= "a" root | "b"', ["b", "aaab"], ["aa"], ["ba"]),
    ('root ::= "(" root ")" | ', ["", "()", "((()))"], ["((", "(()"], [")", "())"]),
    (
        'root ::= "a" root "a" | "b" root "b" | "."',
        ["a.a", "ab.ba"],
        ["ab.", "aba"],
        ["ab.aa", "a.b"],
    ),
    ("root ::= [abc]", ["a", "b", "c"], [""], ["d", "ab"]),
    ("root ::= [a-cx-z]", ["b", "y"], [""], ["d"]),
    ("root ::= [az-]", ["a", "z", "-"], [""], ["b"]),
    ("root ::= [-a]", ["-", "a"], [""], ["b"]),
    (
        "root ::= [^a-y]",
        ["z", "-", "\n", "é", "日", "😀", "\0"],
        ["", b"\xc3", b"\xf0\x9f"],
        ["b", b"\xff", b"\x80", b"\xc0"],
    ),
    ("root ::= [^é]", ["e", "è", "日"], [b"\xc3"], ["é"]),
    (
        "root ::= .",
        ["a", "\n", "é", "\U0010ffff", "\ud7ff", "\ue000"],
        [b"\xed\x9f"],
        [b"\xed\xa0", b"\xf4\x90", b"\xc1", b"\xe0\x80", b"\xf5", "ab"],
    ),
    ('root ::= [.*"] "."', ["..", "*.", '".'], ["."], ["a."]),
    ("root ::= [\\]\\[\\\\^]", ["]", "[", "\\", "^"], [""], ["a"]),
    ("root ::= [[]", ["["], [""], ["]"]),
    (
        'root ::= "\\x41\\u00e9\\U0001F600\\n\\t\\r\\\\\\"\\[\\]"',
        ['Aé😀\n\t\r\\"[]'],
        ["A", "Aé"],
        ["a"],
    ),
    ('root ::= "\\xe9"', ["é"], [b"\xc3"], [b"\xe9"]),
    ("root ::= [\\x00-\\x1F\\u00e0-\\u00ef]", ["\0", "\x1f", "é"], [""], [" ", "ð"]),
    ('root ::= "a#b" # "c"', ["a#b"], ["a#", "a"], ["ab"]),
    ('root ::= "a\nb"', ["a\nb"], ["a\n"], ["ab"]),
    (
        'root ::= "日本" | "日没" | "é"',
        ["日本", "日没", "é"],
        ["日", b"\xe6", b"\xe6\x97\xa5\xe6"],
        ["本"],
    ),
    (
        'root ::= "in" | "int" | "integer" | "i" | ""',
        ["", "i", "in", "int", "integer"],
        ["inte", "intege"],
        ["x", "ints"],
    ),
    ('root ::= "a" | "a" | ("a")', ["a"], [""], ["aa"]),
    ('root ::= ("a" | "aa"){3}', ["aaa", "aaaaaa", "aaaa"], ["aa"], ["aaaaaaa"]),
    ('root ::= ("a" | "aa"){2,} "b"', ["aab", "aaaaaab"], ["a"], ["ab"]),
]


@pytest.mark.parametrize("source, sentences, beginnings, others", MEANING)
def test_notation_means(source, sentences, beginnings, others):
    rules = compiled(source)
    for wanted, texts in (("yes", sentences), ("open", beginnings), ("no", others)):
        for text in texts:
            assert outcome(rules, text) == wanted, text


# What is refused -----------------------------------------------------------------

REFUSED = [  # grammar, line, column, part of the message
    ("", 1, 1, 'no rule is called "root"'),
    ("x ::= []", 1, 7, "empty class"),
    ("root ::= [^]", 1, 10, "empty class"),
    ('root ::= "a', 1, 10, "text is never closed"),
    ('root ::= "a\\"', 1, 10, "text is never closed"),
    ("root ::= [a", 1, 10, "class is never closed"),
    ("root ::= [a-", 1, 10, "class is never closed"),
    ('root ::= ("a"', 1, 10, '"(" is never closed'),
    ('root ::= ("a" ("b" )', 1, 10, '"(" is never closed'),
    ('root ::= "a")', 1, 13, "the end of the rule"),
    ("root ::= [z-a]", 1, 11, "range from 0x7a down to 0x61"),
    ("root ::= [^\\x00-\\U0010FFFF]", 1, 10, "class of no character"),
    ('root ::= "\\q"', 1, 11, "unknown escape"),
    ('root ::= "\\x4"', 1, 11, "needs 2 hexadecimal digits"),
    ('root ::= "\\u12g4"', 1, 11, "needs 4 hexadecimal digits"),
    ('root ::= "\\U00110000"', 1, 11, "0x110000 is not a Unicode character"),
    ('root ::= "\\uD800"', 1, 11, "0xd800 is not a Unicode character"),
    ('root ::= "a"{5,0}', 1, 13, "{5,0}: the upper bound is below the lower"),
    ('root ::= "a"{}', 1, 14, "a number"),
    ('root ::= "a"{,5}', 1, 14, "a number"),
    ('root ::= "a"{1', 1, 15, 'ends where "}"'),
    ('root ::= "a"{1,2,3}', 1, 17, '"}"'),
    ('root ::= "a"{99999999999}', 1, 14, "more than 1000000000 repetitions"),
    ('root ::= "a"{0,' + "9" * 100_000 + "}", 1, 16, "more than 1000000000 repetitions"),
    ('root ::= *"a"', 1, 10, "no element before"),
    ("root ::= (+)", 1, 11, "no element before"),
    ('root = "a"', 1, 6, '"::="'),
    ("root", 1, 5, 'ends where "::="'),
    ('root ::= "a"\n + "b"', 2, 2, "a rule's name"),
    ("root ::= <[x]>", 1, 10, "a token's number"),
    ("root ::= <[]>", 1, 10, "a token's number"),
    ("root ::= <think", 1, 10, "never closed"),
    ("root ::= !x", 1, 10, "the end of the rule"),
    ('root ::= "\\-"', 1, 11, "unknown escape"),
    ('root ::= "a" $', 1, 14, "the end of the rule"),
    ('root ::= "é" x\n', 1, 14, 'rule "x" is not defined'),
    ('\n\nroot ::= "a"\n y ::= (\n"é"\n é', 6, 2, "an element"),
    ('root ::= "a"\nroot ::= "b"', 2, 1, "defined again; first at line 1, column 1"),
    ("root ::= root", 1, 1, "can never end"),
    ('root ::= "a" root', 1, 1, "can never end"),
    ('root ::= "a"\nx ::= x "b" | "c" ', 2, 7, '"x" is left-recursive (x -> x)'),
    (
        'root ::= a\na ::= b "x" | "y"\nb ::= a "z" | "w"',
        3,
        7,
        '"a" is left-recursive (a -> b -> a)',
    ),
    ('root ::= e root "x" | "y"\ne ::= "" | "z"', 1, 12, '"root" is left-recursive'),
    ('root ::= ("a"* "b"{0,3} e) root | "c"\ne ::= ', 1, 28, "left-recursive"),
    ('root ::= (root)* "a"', 1, 11, "left-recursive"),
    ('root ::= "a"{0} root | "b"', 1, 17, "left-recursive"),
    ('root ::= "a"\0', 1, 13, "the end of the rule"),
]


@pytest.mark.parametrize("source, line, column, what", REFUSED)
def test_bad_grammar_is_refused_at_its_place(source, line, column, what):
    with pytest.raises(faults.Error) as e:
        compiled(source)
    assert e.value.code == faults.BAD_DATA
    assert str(e.value).startswith(f"g: line {line}, column {column}: ")
    assert what in str(e.value) and "\n" not in str(e.value)


def test_grammar_that_is_not_utf8_is_refused_at_its_place():
    with pytest.raises(faults.Error, match="g: line 2, column 3: not valid UTF-8"):
        compiled(b'root ::= "a"\n# \xff')


class Tokens(Words):
    """Words whose texts in <> are control tokens: their text is not of the grammar."""

    def __init__(self, texts, eog=()):
        super().__init__([b"" if t.startswith(b"<") else t for t in texts], eog)
        self.names = texts

    def encode(self, data, **_):
        return [self.names.index(data)] if data in self.names else [0, 1]


CONTROL = Tokens([b"a", b"ab", b"b", b"<think>", b"</think>", b"<end>"], eog=[5])


@pytest.mark.parametrize(
    "source, texts",
    [  # each text: tokens, and whether it may end there
        (
            'root ::= <think> "ab" </think>',
            [([3, 0, 2, 4], True), ([3, 1, 4], True), ([3, 4], None)],
        ),
        ("root ::= <[3]> <[1]>", [([3, 1], True), ([3, 0], None), ([0], None), ([3], False)]),
        ("root ::= <think> !</think>* </think>", [([3, 0, 1, 3, 2, 4], True), ([3, 2], False)]),
        ("root ::= !<[3]>", [([0], True), ([4], True), ([3], None), ([5], None)]),
        ('root ::= <[1]> "x" | "ab" "a"', [([1, 0], True), ([0, 2, 0], True), ([1, 1], None)]),
        (
            "root ::= (<[0]> | !<[0]>){3}",
            [([0, 1, 4], True), ([0, 1], False), ([0, 1, 4, 0], None)],
        ),
    ],
)
def test_token_terminals_match_whole_tokens(source, texts):
    for chosen, ends in texts:
        m = grammar.Matcher(compiled(source), CONTROL)
        taken = []
        for token in chosen:
            allowed = tokens(m)[0]
            copies = [grammar.Matcher(compiled(source), CONTROL) for _ in range(CONTROL.n_vocab)]
            for c in copies:
                assert all(c.accept(t) for t in taken)
            assert {i for i, c in enumerate(copies) if c.accept(i)} == allowed - {5}
            assert (5 in allowed) == m.complete
            if not m.accept(token):
                assert ends is None
                break
            taken.append(token)
        else:
            assert ends is m.complete


def test_token_terminals_need_a_model_and_its_tokens():
    with pytest.raises(faults.UnsupportedError, match="need a model"):
        grammar.Matcher(compiled("root ::= <think>"))
    for source in ("root ::= <[6]>", "root ::= <thank>"):
        with pytest.raises(faults.DataError, match="is no token of the model"):
            grammar.Matcher(compiled(source), CONTROL)
    with pytest.raises(faults.UnsupportedError, match="ends the text"):
        grammar.Matcher(compiled("root ::= <end>"), CONTROL)


# What has brought other parsers down (each is refused, or right, soon and in little memory) -----


def chain(n, last):
    return (
        "root ::= r0\n" + "".join(f"r{i} ::= r{i + 1}\n" for i in range(n)) + f"r{n} ::= {last}\n"
    )


DEEP = "(" * 256 + '"a"' + ")" * 256
HOSTILE = {  # grammar, text, outcome; or the message
    "60,000 groups": (
        "root ::= " + "(" * 60_000 + '"a"' + ")" * 60_000,
        None,
        "line 1, column 266: more than 256 groups",
    ),
    "60,000 open groups": ("root ::= " + "(" * 60_000, None, "more than 256 groups"),
    "257 groups": (f"root ::= ({DEEP})", None, "more than 256 groups"),
    "256 groups": (f"root ::= {DEEP}", "a", "yes"),
    "256 starred groups": ("root ::= " + "(" * 256 + '"a"' + ")*" * 256, "aaaaa", "yes"),
    "256 counted groups": (
        "root ::= " + "(" * 256 + '"a"' + "){0,9}" * 256,
        "aaaaa",
        "too ambiguous",
    ),
    "50,000 stars": ('root ::= "a"' + "*" * 50_000, "aaa", "yes"),
    "1,000 counts": ('root ::= "a"' + "{2,3}" * 1_000, "aaa", "open"),
    "5,000 rules, right": (chain(5_000, '"a"'), "a", "yes"),
    "5,000 rules, left-recursive": (
        chain(5_000, 'r0 "a" | "b"'),
        None,
        "left-recursive (r0 -> r1 -> r2 -> ... -> r5000 -> r0)",
    ),
    "10,001 rules": (chain(10_000, '"a"'), None, "more than 10000 rules"),
    "100,001 elements": ('root ::= "' + "a" * 100_001 + '"', None, "more than 100000 elements"),
    "100,001 alternatives": ('root ::= "a"' + "|" * 100_001, None, "more than 100000 elements"),
    "2 MiB": ("#" * (2 << 20), None, "more than 1 MiB"),
    "long text": ('root ::= "' + "a" * 90_000 + '"', "a" * 90_000, "yes"),
    "20,000 dots": ("root ::= " + "." * 20_000, "a" * 20_000, "yes"),
    "99,000 dots": ("root ::= " + "." * 99_000, None, "more than 200000 nodes"),
    "99,000 negated classes": (
        "root ::= " + "[^\U00015555]" * 99_000,
        None,
        "more than 200000 nodes",
    ),
    "nested stars": ('root ::= ("a"*)*', "aaaa", "yes"),
    "nested nullable": ('root ::= ((("a"? "b"*)* | "c"{0,5})+)* "d"', "abcbad", "yes"),
    "million": ('root ::= "a"{0,1000000}', "a" * 1000, "yes"),
    "million of empty rules": ('root ::= e{0,1000000} "b"\ne ::= "a"?', "aab", "yes"),
    "million of millions": ('root ::= ("a"{0,1000000}){0,1000000}', "a" * 3000, "yes"),
    "six deep": ('root ::= (((((("a"){0,99}){0,99}){0,99}){0,99}){0,99}){0,99}', "a" * 3000, "yes"),
    "ambiguous count": ('root ::= ("a" | "aa"){0,1000000}', "a" * 3000, "yes"),
    "ambiguous exact count": ('root ::= ("a" | "aa"){500}', "a" * 700, "yes"),
    "4,000 optionals": ("root ::= " + '"x"? ' * 4_000, "x" * 200, "yes"),
    "5,000 optionals": ("root ::= " + '"x"? ' * 5_000, "x", "too ambiguous"),
    "10,000 words": ("root ::= " + " | ".join(f'"w{i}"' for i in range(10_000)), "w9999", "yes"),
    "ambiguous stacks": ('root ::= "a" root | "a" root "b" | "a"', "a" * 3000, "too ambiguous"),
    "exponentially many stacks": ('root ::= . root? root? "a"*', "a" * 30, "too ambiguous"),
    "palindromes": ('root ::= "a" root "a" | "b" root "b" | ""', "ab" * 1000, "open"),
    "two lists": ('root ::= ("a" "a"?){0,50} ("a" "a"?){0,50} "b"', "a" * 150 + "b", "yes"),
    "exponential for backtracking": ('root ::= ("a"* "a"*)* "b"', "a" * 3000, "open"),
}


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.quick_cases(3)
def test_hostile_grammar_is_refused_or_right(name):
    source, text, wanted = HOSTILE[name]
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        result = outcome(compiled(source), text)
    except faults.Error as e:
        assert e.code == faults.BAD_DATA
        result = str(e)
    assert result == wanted or wanted in result and len(wanted) > 4
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory < 256 << 10  # KiB


@settings(max_examples=400, deadline=None)
@given(
    st.one_of(
        st.binary(max_size=60),
        st.lists(
            st.sampled_from(
                [
                    "root ::= ",
                    '"a"',
                    "(",
                    ")",
                    "|",
                    "*",
                    "+",
                    "?",
                    "{",
                    "}",
                    "{2,3}",
                    ",",
                    "1",
                    "[a-z]",
                    "[^",
                    "]",
                    "[",
                    '"',
                    "\\",
                    "x",
                    "x ::= ",
                    ".",
                    "\n",
                    " ",
                    "#",
                    "\\x41",
                    "-",
                    "<",
                    "root",
                    "é",
                    "\0",
                ]
            ),
            max_size=25,
        ).map(lambda parts: "".join(["root ::= ", *parts]).encode()),
    )
)
def test_any_bytes_are_a_grammar_or_a_fault(source):
    try:
        rules = compiled(source)
    except faults.Error as e:
        assert e.code in (faults.BAD_DATA, faults.UNSUPPORTED) and "\n" not in str(e)
    else:
        grammar.Matcher(rules).feed(b"aab")


# Against the slow matcher ------------------------------------------------------------

LETTERS = "abé"


def grammars():
    leaf = st.one_of(
        st.text(LETTERS, max_size=3).map(lambda t: ("text", t)),
        st.tuples(
            st.just("class"),
            st.booleans(),
            st.sampled_from([((97, 97),), ((97, 98),), ((98, 300),), ((98, 98), (233, 233))]),
        ),
        st.just(("any",)),
        st.sampled_from(["root", "x", "y"]).map(lambda n: ("name", n)),
    )

    def more(inner):
        parts = st.lists(inner, min_size=1, max_size=3).map(tuple)
        counts = st.sampled_from(
            [(0, None), (1, None), (0, 1), (2, None), (2, 2), (0, 2), (1, 3), (2, 3), (0, 0)]
        )
        return st.one_of(
            st.tuples(st.just("sequence"), parts),
            st.tuples(st.just("choice"), parts),
            st.builds(lambda p, c: ("repeat", p, *c), inner, counts),
        )

    rule = st.recursive(leaf, more, max_leaves=7)
    return st.fixed_dictionaries({"root": rule, "x": rule, "y": rule})


def longer(g):
    """The grammar with sentences that are worth cutting."""
    return {
        **g,
        "root": (
            "sequence",
            (
                ("class", False, ((97, 97), (233, 233), (0x1F980, 0x1F980))),
                ("repeat", g["root"], 1, 3),
                ("repeat", ("name", "x"), 0, None),
                ("name", "y"),
                ("repeat", ("text", "é"), 2, 4),
            ),
        ),
    }


@settings(
    max_examples=600,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
@given(grammars(), st.lists(st.text(LETTERS + "c", max_size=6), min_size=1, max_size=6))
def test_automaton_agrees_with_slow_matcher(g, texts):
    source = slow.gbnf(g)
    if len(slow.can_end(g)) < 3:
        with pytest.raises(faults.Error, match="can never end"):
            compiled(source)
        return
    if slow.left_recursive(g):
        with pytest.raises(faults.Error, match="left-recursive"):
            compiled(source)
        return
    rules = compiled(source)
    # two characters are never too ambiguous
    assert outcome(rules, "") and outcome(rules, texts[0][:2])
    for text in texts + [""]:
        expected = slow.Matcher(g, text)
        wanted = "yes" if expected.complete else "open" if expected.alive else "no"
        assert comparable(rules, text) in (wanted, None), (source, text)


@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
@given(grammars(), st.lists(st.integers(0, 10**6), max_size=6), st.randoms(use_true_random=False))
def test_mask_is_every_id_that_can_be_fed(g, choices, rng):
    if len(slow.can_end(g)) < 3 or slow.left_recursive(g):
        return
    try:
        compare_masks(compiled(slow.gbnf(g)), choices, rng)
    except faults.Error as e:
        assert "too ambiguous" in str(e)


def compare_masks(rules, choices, rng):
    """Go along a path of allowed tokens; at each place the mask must be what feeding every id says."""
    texts = [b"", b"a", b"b", b"\xc3", b"\xa9", b"c", b"a\xc3", b"\xa9b", b"", b"\xff"]
    texts += ["".join(rng.choices(LETTERS + "c", k=rng.randint(1, 5))).encode() for _ in range(70)]
    words = Words(texts, eog=(0, 1))
    m, taken = grammar.Matcher(rules, words), b""
    for choice in [None] + choices:
        allowed, last = tokens(m)
        allowed_again, _ = tokens(m)  # from the cache
        assert allowed_again == allowed
        expected, ends = set(), True
        for i, text in enumerate(texts):
            if i in words.eog:
                expected |= {i} if m.complete else set()
                continue
            one = grammar.Matcher(rules)
            if text and one.feed(taken + text):
                expected.add(i)
                ends &= one.complete and not one.open
        assert allowed == expected
        assert last == ends
        left = sorted(allowed - words.eog)
        if choice is None or not left:
            continue
        chosen = left[choice % len(left)]
        taken += texts[chosen]
        assert m.accept(chosen)
    refused = [i for i in range(len(texts)) if i not in tokens(m)[0]]
    if refused:
        assert (
            not m.accept(refused[0])
            and not m.open
            or refused[0] in words.eog
            or not texts[refused[0]]
        )


def expand(e):
    """`e` without counted repetitions."""
    if e[0] in ("sequence", "choice"):
        return e[0], tuple(map(expand, e[1]))
    if e[0] != "repeat" or (e[2], e[3]) in ((0, None), (1, None), (0, 1)):
        return (e[0], expand(e[1]), *e[2:]) if e[0] == "repeat" else e
    part = expand(e[1])
    rest = [("repeat", part, 0, None)] if e[3] is None else [("repeat", part, 0, 1)] * (e[3] - e[2])
    return "sequence", (*[part] * e[2], *rest)


@settings(
    max_examples=300,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
@given(grammars(), st.text(LETTERS, max_size=12))
def test_counters_equal_expansion(g, text):
    if len(slow.can_end(g)) < 3 or slow.left_recursive(g):
        return
    wide = {name: expand(e) for name, e in g.items()}
    try:
        expanded = compiled(slow.gbnf(wide))
    except faults.Error:  # a{0,0} of a rule that is left-recursive only inside it
        return
    results = {comparable(compiled(slow.gbnf(g)), text), comparable(expanded, text)} - {None}
    assert len(results) <= 1


@pytest.mark.parametrize("least, most", [(0, 7), (3, 3), (3, 9), (5, None), (2, 1_000_000)])
@pytest.mark.parametrize("body", ['"a"', '("a" | "aa")', '("a"{2,3})', '("a" "b"?)'])
def test_count_bounds_are_exact(body, least, most):
    part = {'"a"': (1, 1), '("a" | "aa")': (1, 2), '("a"{2,3})': (2, 3), '("a" "b"?)': (1, 1)}[body]
    rules = compiled(f"root ::= {body}{{{least},{'' if most is None else most}}}")
    for n in range(30):
        possible = any(
            k * part[0] <= n <= k * part[1] for k in range(least, min(most or 40, 40) + 1)
        )
        assert (outcome(rules, "a" * n) == "yes") == possible


def test_large_count_is_exact():
    rules = compiled('root ::= [ab]{99999,100000} "c"')
    assert outcome(rules, "ab" * 49_999 + "c") == "no"
    assert outcome(rules, "ab" * 49_999 + "a" + "c") == "yes"
    assert outcome(rules, "ab" * 50_000 + "c") == "yes"
    assert outcome(rules, "ab" * 50_000 + "ac") == "no"


@pytest.mark.full
def test_deep_nesting_is_matched_and_its_end_is_a_fault():
    rules = compiled('root ::= "[" root? "]"')
    assert outcome(rules, "[" * 200_000 + "]" * 200_000) == "yes"
    assert outcome(rules, "[" * 200_000 + "]" * 199_999) == "open"
    with pytest.raises(faults.Error, match="g: nested too deeply"):
        outcome(rules, "[" * 1_100_000)


def test_matcher_forgets_states_and_stays_right():
    # every count and depth is a state of its own
    rules = compiled('root ::= "[" ([a-z]{0,50000} root){0,2} "]"')
    text = "[" * 300 + "x" * 40_000 + "[" + "y" * 50_000 + "[]" + "]"
    words = Words([b"x", b"y", b"[", b"]", b"[]", b"yy"])
    m = grammar.Matcher(rules, words)
    assert m.feed(text.encode())
    assert (
        tokens(m)[0] == {0, 1, 2, 4, 5, 3}
        and m.feed(b"]" * 299)
        and not m.complete
        and m.feed(b"]")
        and m.complete
    )


# Characters ------------------------------------------------------------------------


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, charset.MAX_CODE_POINT), st.integers(0, 3000)),
        min_size=1,
        max_size=5,
    ),
    st.booleans(),
    st.lists(st.integers(0, charset.MAX_CODE_POINT), max_size=20),
)
def test_class_takes_exactly_its_characters(ranges, negated, probes):
    ranges = [(lo, min(lo + n, charset.MAX_CODE_POINT)) for lo, n in ranges]
    source = "".join(
        f"\\U{lo:08X}-\\U{hi:08X}"
        for lo, hi in ranges
        if not (0xD800 <= lo <= 0xDFFF or 0xD800 <= hi <= 0xDFFF)
    )
    if not source:
        return
    rules = compiled(f"root ::= [{'^' * negated}{source}]")
    kept = [(lo, hi) for lo, hi in ranges if not (0xD800 <= lo <= 0xDFFF or 0xD800 <= hi <= 0xDFFF)]
    for c in (
        probes
        + [max(0, e + d) for r in kept for e in r for d in (-1, 0, 1)]
        + [0x7F, 0x80, 0x7FF, 0x800, 0xFFFF, 0x10000]
    ):
        if c > charset.MAX_CODE_POINT or 0xD800 <= c <= 0xDFFF:
            continue
        inside = any(lo <= c <= hi for lo, hi in kept) != negated
        assert (outcome(rules, chr(c)) == "yes") == inside, hex(c)


def test_any_takes_exactly_utf8():
    rules = compiled("root ::= .")
    rng = random.Random(5)
    tried = [bytes([a, b]) for a in range(128, 256) for b in range(0, 256, 3)]
    tried += [
        bytes(
            [rng.randrange(0xE0, 0xF8)]
            + [rng.choice((rng.randrange(256), rng.randrange(128, 192))) for _ in range(n)]
        )
        for n in (2, 3)
        for _ in range(3000)
    ]
    for data in tried:
        try:
            wanted = len(data.decode()) == 1
        except UnicodeDecodeError:
            wanted = False
        assert (outcome(rules, data) == "yes") == wanted, data


@pytest.mark.parametrize("cut", [1, 2, 3])
def test_character_may_be_split_over_ids(cut):
    data = "😀".encode()
    words = Words([data[:cut], data[cut:], b"a", data, data[:cut] + b"a", b""], eog=[5])
    m = grammar.Matcher(compiled("root ::= [^a]"), words)
    assert tokens(m) == ({0, 3}, False)
    assert m.accept(0) and tokens(m) == ({1}, True)
    assert m.accept(1) and tokens(m)[0] == {5}


# Vocabularies ------------------------------------------------------------------------


def test_grammar_keeps_all_spellings_of_an_answer():
    words = Words(
        [
            b"",
            b"",
            b"yes",
            b"y",
            b"es",
            b"e",
            b"s",
            b"no",
            b"n",
            b"o",
            b"not",
            b"yesterday",
            b" yes",
        ],
        eog=[1],
    )
    m = grammar.Matcher(compiled('root ::= "yes" | "no"'), words)
    assert tokens(m) == ({2, 3, 7, 8}, False)
    assert m.accept(3) and tokens(m) == ({4, 5}, False)
    assert m.accept(4) and tokens(m) == ({1}, True)


def test_last_says_that_nothing_can_follow():
    words = Words([b"", b"yes", b"no", b"!", b"y"], eog=[0])
    assert tokens(
        grammar.Matcher(compiled('root ::= "yes" | "no"'), Words(words.texts[:4], [0]))
    ) == (
        {1, 2},
        True,
    )
    m = grammar.Matcher(compiled('root ::= "yes" "!"?'), words)
    assert tokens(m) == ({1, 4}, False)
    assert m.accept(1) and tokens(m) == ({0, 3}, True)


def test_ids_without_text_and_end_ids_are_never_text():
    words = Words([b"", b"a", b"a", b""], eog=[1])
    m = grammar.Matcher(compiled('root ::= "a"*'), words)
    assert tokens(m) == ({1, 2}, False)
    assert not m.accept(0)
    assert not grammar.Matcher(compiled('root ::= "a"*'), words).accept(1)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.binary(max_size=4),
            st.binary(max_size=30).map(lambda b: b"common prefix of 17" + b),
            st.text("\0a", max_size=12).map(str.encode),
        ),
        min_size=1,
        max_size=300,
    )
)
def test_trie_holds_every_text(texts):
    words = Words(texts)
    m = grammar.Matcher(compiled("root ::= [\\x00-\\x7f]*"), words)
    assert tokens(m)[0] == {i for i, t in enumerate(texts) if t and all(b < 128 for b in t)}
    trie = lib.trie_new(*words.table(), ffi.new("uint64_t[]", 8), len(texts))
    assert lib.trie_n_node(trie) == len({t[:k] for t in texts for k in range(len(t) + 1)})
    lib.trie_free(trie)


def test_mask_of_a_large_vocabulary_is_exact_in_any_order_of_grammars():
    """Busy states take whole subtrees; two grammars that class bytes differently take turns on one
    trie.
    """
    rng = random.Random(7)
    parts = [b"a", b"b", b"c", b'"', b"\xc3\xa9", b"\xc3", b" ", b"ab"]
    texts = [
        b"".join(rng.choices(parts, weights=[9, 9, 9, 1, 2, 1, 2, 9], k=rng.randint(0, 8)))
        for _ in range(6000)
    ]
    words = Words(texts)
    # 64 classes of byte and more share their bits
    odd = "".join(chr(c) for c in range(0x25, 0xFF, 2) if chr(c) not in "[]\\")
    sources = [
        f'root ::= "\\"" [^"\\x01]* "\\"" root? | ([abc é] | [{odd}] "!")+',
        'root ::= ([ab]* " "?)* "c"',
        'root ::= "\\"" ([abc]* | "é"){2,2000} "\\""',
    ]
    matchers = [grammar.Matcher(compiled(source), words) for source in sources]
    for m in matchers:
        m._trie = matchers[0]._trie
    paths = ([b"", b'"a"', b'"ab', b"a"], [b"", b"ab", b"a", b" "], [b"", b'"', b"a", b"bc"])
    for steps in range(4):
        for m, path in zip(matchers, paths):
            assert m.feed(path[steps])
            expected = set()
            for i, text in enumerate(texts):
                one = grammar.Matcher(m.grammar)
                if text and one.feed(b"".join(path[: steps + 1]) + text):
                    expected.add(i)
            assert tokens(m)[0] == expected


# The grammars of llama.cpp ---------------------------------------------------------------

GRAMMARS = {
    "arithmetic": (["x=1\n", "a+b*(c-1)=42\n", "a=1\nb=2\n"], ["x", "(1"], ["=1\n", "x==1\n"]),
    "english": (["Hello", "Hello, world!\tYes"], ["a "], ["é", " a"]),
    "japanese": (["ひらがな", "カタカナ 漢字、"], ["ひ ", b"\xe3\x81"], ["abc"]),
    "json": (
        ["{}", '{"a":[1,2.5e3,{"b":"x\\u12aF日"}],"c":null}', '{ "k":\n true}'],
        ['{"a', '{"a":[', '{"é'.encode()[:4]],
        ["[]", '{"a":1,}', '{"a" 1}', '{"a":"\n"}', '{"a":01}', '{"a":"\\x"}'],
    ),
    "json_arr": (["[\n1,\n2]", '[\n{"a":"b"}]'], ["[\n"], ["[1]", "{}"]),
    "list": (
        ["- one\n", "- one\n- two é\n"],
        ["- one", "- one\n-"],
        ["- \n", "- a\u2028\n", "-one\n", "- a\x85\n"],
    ),
}


@pytest.mark.parametrize("name", GRAMMARS)
def test_grammars_of_llama_cpp(name, datafile):
    rules = grammar.read(str(datafile(f"grammars/{name}.gbnf")))
    for wanted, texts in zip(("yes", "open", "no"), GRAMMARS[name]):
        for text in texts:
            assert outcome(rules, text) == wanted, text


def json_values():
    return st.recursive(
        st.one_of(st.none(), st.booleans(), st.integers(-(10**9), 10**9), st.text(max_size=8)),
        lambda v: st.one_of(
            st.lists(v, max_size=4), st.dictionaries(st.text(max_size=4), v, max_size=4)
        ),
        max_leaves=12,
    )


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(st.text(max_size=4), json_values(), max_size=4), st.data())
def test_json_texts_match_and_damaged_ones_do_not(value, data):
    import json

    rules = grammar.read(str(JSON))
    text = json.dumps(value, ensure_ascii=data.draw(st.booleans()), separators=(",", ":"))
    text = text.replace("\x7f", "")  # json.gbnf wants it escaped
    encoded = text.encode("utf-8", "replace")
    assert outcome(rules, encoded) == "yes"
    cut = data.draw(st.integers(0, len(encoded) - 1))
    assert outcome(rules, encoded[:cut]) == "open"
    damaged = encoded[:cut] + b"\x01" + encoded[cut:]
    assert outcome(rules, damaged) == "no"
