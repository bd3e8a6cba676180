"""Text that a grammar leaves no choice about: read in one batch, in the vocabulary's own tokens, and
text, snapshot and random numbers are those of the slow way. --complete: what a text that was cut
lacks.
"""

import json
import os
import re

import jsonschema
import pytest
from chat_model import write_chat_model
from conftest import ROOT, SHARED, shell
from forced_time import SlowDecoder
from forked import run
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from real_models import GEMMA3, SMOLLM2
from tiny_model import WITH_STATES, write_model

import sluice
from sluice.generate import sampler as chain
from sluice.generate.generation import Generation, begin
from sluice.generate.records import Decoder
from sluice.generate.sampler import Sampler
from sluice.grammar import sources
from sluice.grammar.matcher import Grammar, Matcher
from sluice.kernels import ffi
from sluice.model.model import Model
from sluice.stream import CANDIDATE
from sluice.tokenizer.vocabulary import Vocab

CHATML = (ROOT / "configs" / "chatml.jinja").read_text()
RECORD = {
    "type": "object",
    "properties": {
        "kind": {"enum": ["letter", "list", "note"]},
        "is_new": {"type": "boolean"},
        "n": {"type": "integer", "minimum": 0, "maximum": 99},
        "text": {"type": "string", "maxLength": 5},
    },
    "required": ["kind", "is_new", "n", "text"],
    "additionalProperties": False,
}
SCHEMA = json.dumps(RECORD)
RULES = {
    "record": Grammar(sources.of_schema(SCHEMA.encode(), "s", fixed=True), "s"),
    "constant": Grammar('root ::= "there is one text, and no other: é🦀"'.encode(), "c"),
    "list": Grammar(b'root ::= ("item " [0-9] ", ")* "end of the list"', "l"),
}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    d = tmp_path_factory.mktemp("forced")
    write_model(str(d / "llama.gguf"), type="q8_0", n_layer=2, n_vocab=420, n_ctx=400)
    write_model(
        str(d / "gemma3.gguf"), arch="gemma3", type="f16", n_layer=2, n_vocab=420, n_ctx=400
    )
    for arch in WITH_STATES:
        write_model(str(d / f"{arch}.gguf"), arch=arch, n_layer=4, n_vocab=420, n_ctx=400)
    write_chat_model(d / "chat.gguf", ["<|im_start|>", "<|im_end|>"], CHATML, n_ctx=400)
    return d


def generated(model, words, directory, rules, kind, n, rows, keep=True, complete=False, **steps):
    """(tokens, reason, bytes of the snapshot, tokens that were forced, that closed the text)."""
    tokens = words.encode(b"one two three")
    cache = begin(model, tokens, None, len(tokens) + rows, n, directory=directory)
    g = Generation(
        *(model, cache, Sampler(words.n_vocab, **steps), words.eog, Matcher(rules, words), keep)
    )
    g.decoder = kind(model, cache, words.eog, keep)
    found = list(g.tokens(n))
    if complete and g.reason == "cut":
        found += g.closing()
    cache.seal(os.path.join(directory, "s"))
    with open(os.path.join(directory, "s"), "rb") as f:
        return found, g.reason, f.read(), g.n_forced, g.n_closed


@pytest.mark.parametrize("arch", ["llama", "gemma3", *WITH_STATES])
@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.sampled_from(sorted(RULES)),
    st.integers(0, 9),
    st.sampled_from([0, 0.8, 2]),
    st.sampled_from([{}, {"repeat": 1.5}, {"mirostat": 2}, {"dry_multiplier": 1.0}]),
    st.sampled_from([None, 1, 2, 5, 20, 40]),
    st.sampled_from([1, 5, 30, 99]),
    st.booleans(),
)
def test_text_and_snapshot_are_those_of_the_slow_way(
    tiny, tmp_path_factory, arch, rules, seed, temperature, more, n, rows, complete
):
    """Which reads each token by itself, and computes all logits after it."""
    model, directory = Model(str(tiny / f"{arch}.gguf")), str(tmp_path_factory.mktemp("s"))
    words = Vocab(model.file)
    options = {"seed": seed, "temperature": temperature, "complete": complete, **more}
    found, slow = (
        generated(model, words, directory, RULES[rules], kind, n, rows, **options)
        for kind in (Decoder, SlowDecoder)
    )
    assert found == slow
    assert not complete or found[1] != "cut"


def test_forced_tokens_draw_no_random_number(tiny, tmp_path, monkeypatch):
    drawn, splitmix64 = [], chain.splitmix64

    def noted(seed, i):
        drawn.append(i)
        return splitmix64(seed, i)

    monkeypatch.setattr(chain, "splitmix64", noted)
    model = Model(str(tiny / "llama.gguf"))
    words = Vocab(model.file)
    tokens, reason, _, n_forced, _ = generated(
        model, words, str(tmp_path), RULES["record"], Decoder, None, 300, seed=1
    )
    assert reason == "stop" and n_forced > 20 and len(drawn) <= len(tokens) - n_forced
    drawn.clear()
    tokens, _, _, n_forced, _ = generated(
        model, words, str(tmp_path), RULES["constant"], Decoder, None, 300
    )
    assert n_forced == len(tokens) and drawn == []


def test_forced_text_has_the_tokens_of_the_vocabulary(tiny):
    """Not those that the model would have chosen among all that the grammar allows."""
    model = Model(str(tiny / "llama.gguf"))
    words = Vocab(model.file)
    text = "once upon a time there was a hen, and then"
    tokens = words.encode(text.encode(), bos=False, prefix=False)
    assert len(tokens) < len(text) - 3
    for seed in range(3):
        found = begin(model, words.encode(b"x"), None, 99)
        rules = Matcher(Grammar(f'root ::= "{text}"'.encode(), "g"), words)
        sampler = Sampler(words.n_vocab, seed=seed, temperature=2.0)
        assert list(Generation(model, found, sampler, words.eog, rules).tokens()) == tokens


@pytest.mark.parametrize("arch", ["llama", "gemma3"])
def test_logits_of_few_tokens_have_the_same_bits(tiny, arch):
    model = Model(str(tiny / f"{arch}.gguf"))
    words = Vocab(model.file)
    tokens = words.encode(b"one two three")
    rows = [3, 4, 77, 300, 419]
    bits = 0
    for i in rows:
        bits |= 1 << i
    allowed = ffi.new("uint64_t[]", [bits >> 64 * i & (1 << 64) - 1 for i in range(7)])
    decoder = Decoder(model, begin(model, tokens, None, 99), words.eog)
    whole = Decoder(model, begin(model, tokens, None, 99), words.eog)
    few, every = decoder.records(iter([(9, True)])), whole.records(iter([(9, True)]))
    for _ in range(2):  # the logits of the prompt, and those after a token
        some, full = next(few).narrow(allowed), next(every)
        logits = memoryview(bytes(full.payload)).cast("f")
        assert some.payload == b"".join(CANDIDATE.pack(i, logits[i]) for i in rows)
    assert decoder._logits is None and whole._logits is not None


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("options", ["-S 1", "-t 0", "-S 4 --mirostat 2", "-S 2 --top-k 3"])
@pytest.mark.parametrize("n", [3, 17, 200])
def test_equals_the_pipeline(tiny, tmp_path, options, n):
    """Text, snapshot and status, cut or completed."""
    (tmp_path / "prompt").write_bytes(b"one two three")
    (tmp_path / "schema.json").write_text(SCHEMA)
    path = tiny / "gemma3.gguf"
    for after, limit in ((f"--complete-after {n}", ""), ("", f"-n {n}")):
        done = shell(
            f"""rm -f ring; tokenize <prompt | prefill -o p.snap; mkfifo ring
            decode -o end.snap p.snap <ring |
              grammar-filter --json-schema schema.json {after} -v 2>log | sample {limit} {options} |
              tee ring | tokenize -d""",
            tmp_path,
            MODEL=str(path),
        )
        mine = run(
            *("generate", "-m", path, *options.split(), "-n", n, "-o", tmp_path / "mine.snap"),
            *("--json-schema", tmp_path / "schema.json", "-v", *(["--complete"] if after else [])),
            input=b"one two three",
        )
        assert (mine.returncode, mine.stdout) == (done.returncode, done.stdout), done.stderr
        assert (tmp_path / "mine.snap").read_bytes() == (tmp_path / "end.snap").read_bytes()
        assert mine.returncode == (1 if not after and n < 200 else 0)
        # sample -n reads a record more, which may count in the filter
        for figure in (rb"forced=\d+", rb"closed=\d+") if after else ():
            found = re.search(figure, (tmp_path / "log").read_bytes())[0]
            assert found == re.search(figure, mine.stderr)[0]
        assert int(re.search(rb"forced=(\d+)", mine.stderr)[1]) > 0 or n == 3
        if mine.returncode == 0:
            jsonschema.validate(json.loads(mine.stdout), RECORD)


def test_a_full_context_is_completed_beyond_it(tiny, tmp_path):
    """In the pipeline, too, where the filter then needs no more logits."""
    (tmp_path / "prompt").write_bytes(b"one two three")
    (tmp_path / "schema.json").write_text(SCHEMA)
    path = tiny / "llama.gguf"
    n = len(run("tokenize", "-m", path, input=b"one two three").stdout.splitlines()) - 2
    done = shell(
        f"""tokenize <prompt | prefill -c {n + 6} -o p.snap; mkfifo ring
        decode p.snap <ring | grammar-filter --json-schema schema.json --complete-after 99 |
          sample -S 3 | tee ring | tokenize -d""",
        tmp_path,
        MODEL=str(path),
    )
    mine = run(
        *("generate", "-m", path, "-S", 3, "-c", n + 6, "--json-schema", SCHEMA, "--complete"),
        *("-v",),
        input=b"one two three",
    )
    assert (mine.returncode, mine.stdout) == (done.returncode, done.stdout) == (0, done.stdout)
    assert b" end=full " in mine.stderr and re.search(rb"closed=[1-9]", mine.stderr)
    jsonschema.validate(json.loads(mine.stdout), RECORD)


def test_requests_complete_their_own_texts(tiny):
    lines = [
        {"id": i, "prompt": "one two", "seed": i, "max_tokens": n, "json_schema": RECORD, **more}
        for i, (n, more) in enumerate(
            [(3, {"complete": True}), (9, {}), (30, {"complete": True}), (200, {"complete": True})]
        )
    ]
    lines.append({"id": 9, "prompt": "x", "max_tokens": 2, "complete": True})
    lines.append(
        {"id": 10, "prompt": "x", "grammar": 'root ::= "x"', "complete": True, "stop": ["a"]}
    )
    done = run(
        *("generate", "-m", tiny / "llama.gguf", "--jsonl"),
        input=b"".join(json.dumps(line).encode() + b"\n" for line in lines),
    )
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 65  # two requests are wrong
    assert "needs a grammar" in answers[4]["error"] and "not with stop" in answers[5]["error"]
    for line, answer in zip(lines[:4], answers):
        complete = line.get("complete")
        alone = run(
            *("generate", "-m", tiny / "llama.gguf", "-S", line["seed"], "-n", line["max_tokens"]),
            *("--json-schema", SCHEMA, *(["--complete"] if complete else []), "one two"),
        )
        assert answer["text"] == alone.stdout.decode()
        assert alone.returncode == (0 if complete else 1)
        assert ("closed" in answer) == bool(complete)
        if complete:
            jsonschema.validate(json.loads(answer["text"]), RECORD)
    assert [a["end"] for a in answers[:4]] == ["length", "cut", "length", "stop"]
    assert answers[0]["closed"] > 10 and answers[3]["closed"] == 0
    done = run(
        *("generate", "-m", tiny / "llama.gguf", "--jsonl"),
        input=json.dumps(lines[1]).encode() + b"\n",
    )
    assert done.returncode == 1  # it was cut


def test_chat_completes_its_answers(tiny, tmp_path):
    common = ["chat", "-m", tiny / "chat.gguf", "-S", 1, "-n", 12, "--json-schema", SCHEMA]
    done = run(*common, input=b"one\ntwo\n")
    assert done.returncode == 1
    done = run(*common, "--complete", "--talk", tmp_path / "t.jsonl", input=b"one\n")
    assert done.returncode == 0
    again = run(*common, "--complete", "--talk", tmp_path / "t.jsonl", input=b"two\n")
    whole = run(*common, "--complete", input=b"one\ntwo\n")
    assert whole.returncode == 0 and whole.stdout == done.stdout + again.stdout
    for line in whole.stdout.splitlines():
        jsonschema.validate(json.loads(line), RECORD)


def test_python_completes_a_text(tiny):
    with sluice.load(tiny / "llama.gguf") as model:
        g = model.generate("one", json_schema=RECORD, max_tokens=9, complete=True, seed=2)
        jsonschema.validate(json.loads("".join(g)), RECORD)
        assert g.reason == "length" and 0 < g.closed == len(g.tokens) - 9
        with pytest.raises(ValueError, match="needs grammar"):
            model.generate("one", complete=True)
        with pytest.raises(ValueError, match="not with stop"):
            model.generate("one", json_schema=RECORD, complete=True, stop="a")


def test_complete_needs_a_grammar(tiny):
    for command in ("generate", "chat"):
        common = [command, "-m", tiny / "chat.gguf", "--complete"]
        done = run(*common, input=b"x")
        assert done.returncode == 64 and b"--complete needs a grammar" in done.stderr
        done = run(*common, "-e", 'root ::= "a"', "--stop", "x", input=b"x")
        assert done.returncode == 64 and b"--complete: not with --stop" in done.stderr


def test_a_character_is_completed(tiny):
    """A text that is cut within the bytes of a character."""
    for n in range(1, 9):
        done = run(
            *("generate", "-m", tiny / "llama.gguf", "-S", n, "-n", n, "--complete"),
            *("-e", "root ::= [🦀-🦿]{3}", "one"),
        )
        assert done.returncode == 0 and len(done.stdout.decode()) == 3, done


@pytest.mark.full
@pytest.mark.parametrize("real", [SMOLLM2, GEMMA3], ids=["smollm2", "gemma3"])
def test_every_text_of_real_models_validates(real):
    """Seeded runs over the bench's schemas, cut or not (helpers/valid_texts.py)."""
    from valid_texts import runs

    if not (real.is_here() and SHARED):
        pytest.skip("make real-models")
    n, wrong = runs(str(real.path), 40)
    assert n == 40 and wrong == []


@pytest.mark.full
@pytest.mark.parametrize("real", [SMOLLM2, GEMMA3], ids=["smollm2", "gemma3"])
def test_real_models_write_what_they_write_the_slow_way(real, tmp_path):
    if not real.is_here():
        pytest.skip("make real-models")
    model = Model(str(real.path))
    words = Vocab(model.file)
    for seed, n in ((1, 25), (2, 200)):
        options = {"seed": seed, "complete": True}
        found, slow = (
            generated(model, words, str(tmp_path), RULES["record"], kind, n, 300, **options)
            for kind in (Decoder, SlowDecoder)
        )
        assert found == slow and found[3] > 10
