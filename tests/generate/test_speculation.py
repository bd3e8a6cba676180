"""Speculation: text, snapshot and random numbers are those without guesses, whatever is guessed;
guesses are made where they pay.
"""

import os
import re

import pytest
from chat_model import write_chat_model
from conftest import ROOT
from forked import run
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from real_models import GEMMA3, SMOLLM2
from tiny_model import write_model

from sluice.faults import data_error
from sluice.generate import speculation
from sluice.generate.draft import Draft
from sluice.generate.generation import Answer, Generation, begin
from sluice.generate.lookup import MAX_LENGTH, Lookup, N
from sluice.generate.sampler import Sampler
from sluice.generate.speculation import LOSS, Speculation
from sluice.grammar.matcher import Grammar, Matcher
from sluice.kernels import ffi
from sluice.model.model import Model
from sluice.tokenizer.vocabulary import Vocab

CHATML = (ROOT / "configs" / "chatml.jinja").read_text()
PROMPT = b"one two three one two three one two three one two"
RULES = Grammar(b'root ::= "yes " root | [a-z] root | "."', "r")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    d = tmp_path_factory.mktemp("speculation")
    write_model(str(d / "llama.gguf"), type="q8_0", n_layer=2, n_vocab=420, n_ctx=400)
    write_model(
        str(d / "gemma3.gguf"), arch="gemma3", type="f16", n_layer=2, n_vocab=420, n_ctx=400
    )
    write_model(str(d / "small.gguf"), type="q8_0", n_layer=1, n_vocab=420, n_ctx=200)
    write_chat_model(d / "chat.gguf", ["<|im_start|>", "<|im_end|>"], CHATML, n_ctx=400)
    return d


class Told:
    """Guesses what it is told: for each position of the text, a list of tokens."""

    def __init__(self, guesses):
        self.guesses, self.n_guessed, self.n_right = guesses, 0, 0

    def guess(self, before, n_tok, token, room):
        found = self.guesses(n_tok)[: max(0, room)]
        self.n_guessed += len(found)
        return found

    def took(self, n_guesses, seconds):
        assert seconds >= 0

    def was_right(self, before, n_tok, token):
        self.n_right += 1


class Drawn(Sampler):
    """A sampler that notes the positions, whose random numbers it takes."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.positions = []

    def choose(self, record, logprob=False, name="x"):
        self.positions.append((record.pos, record.prev, bytes(record.kind)))
        return super().choose(record, logprob, name)


def generated(model, words, directory, told=None, n=25, grammar=False, stops=(), rows=90, **steps):
    """(tokens, reason, positions, bytes of the snapshot, the speculation)."""
    tokens = words.encode(PROMPT)
    cache = begin(model, tokens, None, rows, n, directory=directory)
    sampler = Drawn(words.n_vocab, **steps)
    matcher = Matcher(RULES, words) if grammar else None
    g = Generation(model, cache, sampler, words.eog, matcher, True, told)
    answer, found = Answer(words, stops), []
    for token in g.tokens(n):
        found.append(token)
        answer.add(token)
        if answer.stopped:
            g.finish("stop")
            break
    path = os.path.join(directory, "s")
    cache.seal(path)
    with open(path, "rb") as f:
        return found, g.reason, sampler.positions, f.read()


@pytest.mark.parametrize("arch", ["llama", "gemma3"])
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_no_guess_changes_a_byte_or_a_draw(tiny, tmp_path_factory, arch, data):
    """Guesses that are right, wrong, right for a while, or ends of the text; a grammar, penalties,
    stop texts, the limit of tokens and the end of the context.
    """
    model, directory = Model(str(tiny / f"{arch}.gguf")), str(tmp_path_factory.mktemp("s"))
    words = Vocab(model.file)
    options = {
        "seed": data.draw(st.integers(0, 9)),
        "temperature": data.draw(st.sampled_from([0, 0.8, 2])),
        "repeat": data.draw(st.sampled_from([1.0, 1.3])),
        "bias": {2: data.draw(st.sampled_from([-50.0, 0.0, 3.0]))},
        "grammar": data.draw(st.booleans()),
        "stops": data.draw(st.sampled_from([(), (b"e",), (b"th", b"a ")])),
        "n": data.draw(st.sampled_from([1, 2, 9, 40])),
        "rows": data.draw(st.sampled_from([50, 60, 90])),
    }
    n_prompt = len(words.encode(PROMPT))
    options["rows"] = max(options["rows"], n_prompt + 2)
    plain = generated(model, words, directory, **options)
    n_right = data.draw(st.integers(0, 9))
    wrong = data.draw(st.lists(st.integers(0, words.n_vocab - 1), max_size=9))
    every = data.draw(st.integers(1, 3))

    def guesses(n_tok):
        at = n_tok - n_prompt + 1
        return [] if n_tok % every else plain[0][at : at + n_right] + wrong

    told = Told(guesses)
    assert generated(model, words, directory, told, **options) == plain
    if every == 1 and n_right > 1 and len(plain[0]) > 3:
        assert told.n_right


def test_a_guess_with_a_logit_that_is_not_finite_is_dropped(tiny, tmp_path, monkeypatch):
    model = Model(str(tiny / "llama.gguf"))
    words = Vocab(model.file)
    plain = generated(model, words, str(tmp_path), seed=3)

    def fail(*args):
        raise data_error("model", "logit 3 is not finite")

    monkeypatch.setattr(model, "head_rows", fail)
    told = Told(lambda n_tok: [1, 2])
    assert generated(model, words, str(tmp_path), told, seed=3) == plain and told.n_guessed


def test_a_draft_model_that_is_the_model_is_always_right(tiny, tmp_path):
    """Since it draws the same random numbers."""
    model = Model(str(tiny / "llama.gguf"))
    words = Vocab(model.file)
    n = words.n_vocab
    draft = Draft(model, Sampler(n, seed=5, temperature=1.5))
    tokens = words.encode(PROMPT)
    cache = begin(model, tokens, None, 200, 30)
    plain = list(Generation(model, cache, Sampler(n, seed=5, temperature=1.5), ()).tokens(30))
    for at in (0, 7, 3, 20):  # forwards, and back
        assert draft.guess(tokens + plain[:at], 10) == plain[at : at + 10]
    assert len(draft.guess(tokens * 20, 5)) == max(0, min(5, 400 - 20 * len(tokens)))


@pytest.mark.parametrize(
    "steps", [["-t", "0"], ["-S", "4"], ["-S", "4", "--repeat-penalty", "1.3"]]
)
@pytest.mark.parametrize(
    "how", [["--no-lookup"], ["--draft", "small.gguf"], ["--draft", "llama.gguf"]]
)
def test_commands_write_the_same(tiny, tmp_path, how, steps):
    how = [tiny / word if word.endswith(".gguf") else word for word in how]
    common = ["generate", "-m", tiny / "llama.gguf", *steps, "-n", 120, "--bias", "2=-inf", "-v"]
    outs = []
    for options in ([], how):
        done = run(*common, *options, "-o", tmp_path / "s", input=PROMPT)
        assert done.returncode == 0
        outs.append((done.stdout, (tmp_path / "s").read_bytes()))
        guessed, right = map(int, re.search(rb"guessed=(\d+) right=(\d+)", done.stderr).groups())
        assert guessed >= right and (guessed == 0 or options != ["--no-lookup"])
    assert outs[0] == outs[1]


def test_chat_writes_the_same(tiny):
    lines = b"One two three\nOne two three\nOne two three\n"
    common = ["chat", "-m", tiny / "chat.gguf", "-S", 2, "-n", 40, "--bias", "419=-inf"]
    outs = [
        run(*common, *options, input=lines)
        for options in ([], ["--no-lookup"], ["--draft", tiny / "chat.gguf"])
    ]
    assert all(done.returncode == 0 and done.stdout == outs[0].stdout for done in outs)


def test_a_draft_model_needs_the_same_vocabulary(tiny):
    for command in ("generate", "chat"):
        common = [command, "-m", tiny / "chat.gguf", "-n", 1]
        done = run(*common, "--draft", tiny / "llama.gguf", input=b"x")
        assert done.returncode == 65 and b"llama.gguf: its vocabulary is not that" in done.stderr
        assert run(*common, "--draft", tiny / "none.gguf", input=b"x").returncode == 66


@pytest.mark.parametrize("which", ["model", "draft"])
def test_states_take_no_guess(tiny, tmp_path, which):
    """Which could not be cut off: a draft model is refused, and nothing is looked up."""
    path = tmp_path / "states.gguf"
    write_model(str(path), arch="lfm2", n_layer=2, n_vocab=420, n_ctx=400)
    words = ["-m", path] if which == "model" else ["-m", tiny / "llama.gguf", "--draft", path]
    more = ["--draft", path] if which == "model" else []
    done = run("generate", *words, *more, "-n", 1, input=b"x")
    assert done.returncode == 69 and b"--draft: not with lfm2, whose states" in done.stderr
    if which == "model":
        done = run("generate", *words, "-n", 9, "-v", input=b"ab ab ab ab ab ab ab ab ab ab")
        assert done.returncode == 0 and b"guessed=0" in done.stderr


# look-up


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.integers(0, 3), max_size=80),
    st.lists(st.integers(1, 5), max_size=40),
    st.integers(1, 40),
)
def test_a_match_is_a_place_behind_the_same_tokens(text, cuts, n):
    lookup, at = Lookup(), 0
    for cut in [*cuts, len(text)]:
        lookup.extend(text[at : at + cut])
        at = min(len(text), at + cut)
        seen = text[:at]
        length = lookup.length
        grams = [tuple(seen[i : i + N]) for i in range(len(seen) - N + 1)]
        assert (length >= N) == (len(grams) > 0 and grams[-1] in grams[:-1]) or length == 0
        if not length:
            assert lookup.next is None and lookup.guess(n) == []
            assert not grams or grams[-1] not in grams[:-1]
            continue
        guess = lookup.guess(n)
        assert len(guess) == n and guess[0] == lookup.next
        # some earlier place has the last tokens before it, and the guess behind it
        whole = seen + guess
        assert length <= MAX_LENGTH and any(
            seen[i - length : i] == seen[-length:] and whole[i : i + n] == guess
            for i in range(length, len(seen))
        )


# what pays


def played(texts, ratio, seconds=0.0, single=0.01):
    """(time with speculation, time without, the Speculation) of `texts`, a list of tokens each, if
    a pass with k guesses takes ratio(k) of a single one.
    """
    s, total, n_tokens = Speculation(seconds=seconds), 0.0, 0
    text, at = texts[0], 1
    before = memoryview(bytearray(4 * len(text))).cast("i")
    for i, token in enumerate(text):
        before[i] = token
    while at < len(text):
        guesses = s.guess(before, at, text[at], len(text) - at - 1)
        took = single * (ratio(len(guesses)) if guesses else 1)
        total, n_tokens = total + took, n_tokens + 1
        s.took(len(guesses), took)
        at += 1
        for guess in guesses:
            if at == len(text) or text[at] != guess:
                break
            s.was_right(before, at, guess)
            at, n_tokens = at + 1, n_tokens + 1
    return total, single * (len(text) - 1), s


SMALL = lambda k: 3 + 0.13 * (k + 1)  # as measured: small models, AVX-512
LARGE = lambda k: 1.1 + 0.02 * (k + 1)  # a model that waits for memory
NEVER = lambda k: 1.5 * (k + 1)


@pytest.mark.parametrize("ratio, least", [(SMALL, 1.7), (LARGE, 4.0)])
def test_a_text_that_repeats_is_faster(ratio, least):
    text = list(range(200)) + list(range(200))
    _, _, s = played([text], ratio)
    began = played([list(range(200))], ratio)[0]
    total = played([text], ratio)[0]
    assert s.n_right > 150 and 200 * 0.01 / (total - began) > least


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(0, 6), min_size=10, max_size=400),
    st.integers(1, 6),
    st.sampled_from([SMALL, LARGE, NEVER]),
)
def test_no_text_is_much_slower(text, n, ratio):
    """At most by LOSS, and one pass, whatever repeats, as far as times are what they were."""
    text = [token % (n + 1) for token in text]
    total, plain, _ = played([text], ratio)
    assert total <= plain / (1 - LOSS) + 0.01 * ratio(31)


def test_guesses_that_never_pay_are_not_made():
    text = list(range(100)) * 4
    assert played([text], NEVER)[2].n_guessed < 40


def test_a_draft_that_is_wrong_is_tried_seldom():
    class Wrong:
        n = 0

        def guess(self, tokens, n):
            self.n += n
            return [-1] * n

    wrong = Wrong()
    s = Speculation(wrong, lookup=False)
    before = memoryview(bytearray(4 * 2000)).cast("i")
    for at in range(1, 1500):
        guesses = s.guess(before, at, 7, 100)
        s.took(len(guesses), 0.02 * (SMALL(len(guesses)) if guesses else 1))
    assert 3 <= wrong.n < 150 and s.n_right == 0
    assert speculation.SIZES == tuple(sorted(speculation.SIZES))


@pytest.mark.full
@pytest.mark.parametrize("real", [SMOLLM2, GEMMA3], ids=["smollm2", "gemma3"])
@pytest.mark.parametrize("steps", [{"temperature": 0}, {"seed": 3}])
def test_real_models_write_the_same(real, steps, tmp_path):
    if not real.is_here():
        pytest.skip("make real-models")
    model = Model(str(real.path))
    words = Vocab(model.file)
    text = "The clerk counts the crates and writes the numbers into a book with a red cover. "
    tokens = words.encode(f"{text * 2}The clerk counts".encode())
    found = []
    for speculate in (False, True):
        s = Speculation(seconds=9) if speculate else None
        cache = begin(model, tokens, None, None, 60, directory=str(tmp_path))
        g = Generation(model, cache, Sampler(words.n_vocab, **steps), (), None, True, s)
        chosen = list(g.tokens(60))
        cache.seal(tmp_path / "s")
        found.append((chosen, (tmp_path / "s").read_bytes(), ffi.sizeof("float")))
    assert found[0] == found[1] and (s.n_right or steps != {"temperature": 0})
