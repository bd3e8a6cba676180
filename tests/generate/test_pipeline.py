"""The commands joined by pipes, on real trained weights, and the same bits however the work is
done.
"""

import hashlib
import json
import os

import forked
import grammar_reference as slow
import pytest
from conftest import ids_in, run, shell
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from test_grammar import grammars, longer
from tiny_model import write_model

from sluice.gguf import File
from sluice.stream import CANDIDATE, HEADER, RECORD
from sluice.tokenizer.vocabulary import Vocab

RING = """mkfifo ring
decode -m "$M" p.snap <ring | {filter} sample -t 0 -n {n} --logprob | tee ring >answer"""


def ring(directory, model, filter="", n=256):
    """Run the ring on p.snap of `directory`: the tokens it chose."""
    done = shell(RING.format(filter=filter, n=n), directory, M=str(model))
    assert (done.returncode, done.stderr) == (0, b"")
    os.unlink(directory / "ring")
    return ids_in((directory / "answer").read_bytes())


@pytest.mark.full
def test_stories260k_tells_its_story(datafile, tmp_path):
    model = datafile("models/stories260K.gguf")
    done = shell('tokenize -m "$M" </dev/null | prefill -m "$M" -o p.snap', tmp_path, M=str(model))
    assert (done.returncode, done.stderr) == (0, b"")
    expected = [int(i) for i in datafile("models/stories260K.greedy.ids").read_text().split()]
    assert ring(tmp_path, model) == expected
    text = run("tokenize", "-m", model, "-d", input=(tmp_path / "answer").read_bytes()).stdout
    assert text == datafile("models/stories260K.greedy.txt").read_bytes().rstrip(b"\n")


@pytest.mark.full
def test_spam_prototype_answers_as_recorded(datafile, tmp_path):
    model = datafile("models/spam-proto-q8_0.gguf")
    (tmp_path / "yesno.gbnf").write_text('root ::= "yes" | "no"')
    records = datafile("models/spam-proto.expected.jsonl").read_text().splitlines()
    assert len(records) == 20
    for line in records:
        r = json.loads(line)
        tokens = run(
            "tokenize", "-m", model, "--special", "--no-bos", input=r["prompt"].encode()
        ).stdout
        assert ids_in(tokens) == r["ids"], r["file"]
        (tmp_path / "ids").write_bytes(tokens)
        assert shell('prefill -m "$M" -o p.snap <ids', tmp_path, M=str(model)).returncode == 0
        rows = run(
            "decode",
            "-m",
            model,
            "--rows",
            f"{r['yes_id']},{r['no_id']}",
            tmp_path / "p.snap",
            input=tokens.splitlines(True)[0] + b"#end text\n",
        ).stdout
        pairs = dict(CANDIDATE.iter_unpack(rows[HEADER.size + RECORD.size :][:16]))
        assert (pairs[r["yes_id"]] > pairs[r["no_id"]]) == (r["answer"] == "yes"), r["file"]
        # theirs are f32 activations on the same weights before rounding to Q8_0; llama.cpp differs
        # by up to 0.034
        assert abs(pairs[r["yes_id"]] - pairs[r["no_id"]] - (r["yes_logit"] - r["no_logit"])) < 0.06
        answer = ring(tmp_path, model, 'grammar-filter -m "$M" -g yesno.gbnf |')
        assert answer == [r[r["answer"] + "_id"]], r["file"]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    d = tmp_path_factory.mktemp("bits")
    for arch, kind in (("llama", "q8_0"), ("gemma3", "bf16")):
        write_model(str(d / f"{arch}.gguf"), arch=arch, type=kind, n_vocab=500, n_ctx=2048)
    (d / "text").write_text("The same bits, whatever the number of threads. " * 30)
    for arch in ("llama", "gemma3"):
        (d / f"{arch}.ids").write_bytes(
            run("tokenize", "-m", d / f"{arch}.gguf", input=(d / "text").read_bytes()).stdout
        )
    return d


def digest(*parts):
    return hashlib.sha256(b"".join(parts)).hexdigest()


@pytest.mark.parametrize("arch", ["llama", "gemma3"])
@pytest.mark.quick_cases(1)
def test_bits_do_not_depend_on_how_the_work_is_done(files, tmp_path, arch):
    """Threads, chunks, instruction sets, a base snapshot, a cache: one hash of snapshot and of
    decoded logits.
    """
    tokens = (files / f"{arch}.ids").read_bytes().splitlines(True)
    head, last, body = tokens[0], b"#end text\n", tokens[1:-1]
    n = len(body)
    assert n > 300
    (tmp_path / "ids").write_bytes(b"".join(tokens))
    (tmp_path / "begin").write_bytes(head + b"".join(body[: n // 3]) + last)
    (tmp_path / "rest").write_bytes(head + b"".join(body[n // 3 :]) + last)
    (tmp_path / "more").write_bytes(head + b"".join(body[:40]) + last)
    ways = {
        "threads 1": "prefill -j 1 -o p.snap <ids",
        "threads 2": "prefill -j 2 -o p.snap <ids",
        "threads 4": "prefill -j 4 -o p.snap <ids",
        "chunks of 1": "prefill --chunk 1 -o p.snap <ids",
        "chunks of 7": "prefill --chunk 7 -o p.snap <ids",
        "chunks of 64": "prefill --chunk 64 -j 4 -o p.snap <ids",
        "reference": "SLUICE_ISA=reference prefill -o p.snap <ids",
        "continued": "prefill -o base.snap <begin && prefill -s base.snap -o p.snap <rest",
        "decoded": (
            "prefill -o base.snap <begin && decode -j 2 -o p.snap base.snap <rest >/dev/null"
        ),
        "cached": (
            "prefill --cache c <begin >name && prefill --cache c -v <ids 2>log >name && cp -p"
            f" $(cat name) p.snap && grep -q reused={n // 3} log"
        ),
    }
    found = {}
    for way, script in ways.items():
        done = shell(f"rm -rf *.snap c\n{script}", tmp_path, MODEL=str(files / f"{arch}.gguf"))
        assert (done.returncode, done.stderr) == (0, b""), way
        snap = (tmp_path / "p.snap").read_bytes()
        isa = {"SLUICE_ISA": "reference"} if way == "reference" else {}
        done = shell(
            f"decode -j {1 + len(way) % 4} p.snap <more",
            tmp_path,
            MODEL=str(files / f"{arch}.gguf"),
            **isa,
        )
        assert (done.returncode, done.stderr) == (0, b""), way
        assert (tmp_path / "p.snap").read_bytes() == snap, "decode changed its snapshot"
        found[way] = digest(snap, done.stdout)
    assert len(set(found.values())) == 1, found


@pytest.mark.full
def test_rows_of_decode_equal_the_dense_ones(files, tmp_path):
    env = {"MODEL": str(files / "llama.gguf")}
    shell(f"prefill -o p.snap <'{files}/llama.ids'", tmp_path, **env)
    dense = shell(f"decode p.snap <'{files}/llama.ids'", tmp_path, **env).stdout
    some = shell(f"decode --rows 7,499,0 p.snap <'{files}/llama.ids'", tmp_path, **env).stdout
    size, n = RECORD.size + 4 * 500, 0
    for at in range(HEADER.size, len(dense) - RECORD.size, size):
        logits = memoryview(dense[at + RECORD.size : at + size]).cast("f")
        small = some[HEADER.size + n * (RECORD.size + 24) :][RECORD.size : RECORD.size + 24]
        assert list(CANDIDATE.iter_unpack(small)) == [(i, logits[i]) for i in (0, 7, 499)]
        n += 1
    assert n > 300


# A text that is cut before its grammar is complete
# --------------------------------------------------


@pytest.fixture(scope="module")
def cuts(tmp_path_factory):
    """A model, and snapshots of a prompt that have room for 3, for 9 and for 300 tokens more."""
    d = tmp_path_factory.mktemp("cuts")
    write_model(str(d / "m.gguf"), n_layer=1, n_vocab=420, n_ctx=400)
    tokens = run("tokenize", "-m", d / "m.gguf", input=b"Once upon").stdout
    for room in (3, 9, 300):
        done = run(
            "prefill",
            "-m",
            d / "m.gguf",
            "-c",
            len(ids_in(tokens)) + room,
            "-o",
            d / f"{room}.snap",
            input=tokens,
        )
        assert done.returncode == 0, done.stderr
    return d


def both(d, room, source, n, options):
    """(status, text, reason, text of the tokens as bytes) of generate and of the ring alike; or None,
    where the grammar is too ambiguous for both.
    """
    model, snapshot, limit = d / "m.gguf", d / f"{room}.snap", ["-n", n] if n else []
    choose = [*map(str, options), *map(str, limit)]
    codes, text, said, passed = forked.ring(
        ["decode", "-m", model, snapshot],
        ["grammar-filter", "-m", model, "-e", source],
        ["sample", *choose],
        ["tokenize", "-m", model, "-d"],
    )
    one = forked.run("generate", "-m", model, "-s", snapshot, "-e", source, "-v", *choose)
    assert (one.returncode, one.stdout) == (codes[-1], text), (codes, one.stderr, said, passed)
    if one.returncode == 65:
        assert b"too ambiguous" in one.stderr and b"too ambiguous" in said
        return None
    assert codes[:-1] == [0, 0, 0] and said == b""
    reason = passed.splitlines()[-1].decode().removeprefix("#end ")
    fields = dict(f.split("=") for f in one.stderr.decode().split()[1:])
    words = Vocab(File(str(model)))
    raw = b"".join(words.bytes_of(i) for i in ids_in(passed))
    assert fields["end"] == reason and raw.removeprefix(b" ").startswith(text)
    assert len(text) + int(fields["open"]) + raw.startswith(b" ") == len(raw)
    return one.returncode, text.decode(), reason, raw


PAIR = r"""root ::= "{" pair ("," pair)? "}"
pair ::= "\"" [a-zé😀]{1,3} "\":" ("true" | [0-9]{1,2} | "\"" [^"\\\x00-\x1f]{0,2} "\"")
"""


@pytest.mark.full
def test_status_of_ring_and_generate_at_every_place_of_a_text(cuts):
    """JSON, cut by -n at every n: 1 until Python can read it, 0 from then on."""
    for seed in (1, 2):
        n, found = 0, []
        while len(found) < 3 or found[-3:] != [0, 0, 0]:
            n += 1
            status, text, reason, raw = both(cuts, 300, PAIR, n, ["-S", seed])
            try:
                json.loads(raw)
                is_whole = True
            except ValueError:
                is_whole = False
            assert status == (not is_whole) and (reason == "cut") == (not is_whole), raw
            found.append(status)
        assert n > 8 and sorted(found, reverse=True) == found and reason == "stop"


@pytest.mark.full
@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[
        HealthCheck.too_slow,
        HealthCheck.filter_too_much,
        HealthCheck.function_scoped_fixture,
    ],
)
@given(
    grammars(),
    st.sampled_from([3, 9, 300]),
    st.integers(1, 12),
    st.integers(0, 99),
    st.sampled_from([[], ["--bias", "2=9"]]),
)
def test_status_is_1_exactly_if_the_text_is_no_sentence_of_its_grammar(
    cuts, g, room, n, seed, options
):
    """Random grammars, cut by -n and by the context, against the slow matcher."""
    g = longer(g)
    assume(len(slow.can_end(g)) == 3 and not slow.left_recursive(g))
    found = both(
        cuts, room, slow.gbnf(g), n if room != 3 else None, ["-S", seed, "-k", 0, "-p", 1, *options]
    )
    if found is None:
        return
    status, _, reason, raw = found
    try:
        is_whole = slow.Matcher(g, raw.decode()).complete
    except UnicodeDecodeError:
        is_whole = False
    assert status == (not is_whole) and (reason == "cut") == (status == 1)


@pytest.mark.quick_cases(3)
@pytest.mark.parametrize(
    "source, n, options, status, reason",
    [
        ('root ::= "abc"', None, [], 0, "stop"),
        ('root ::= "abc"', 40, [], 0, "stop"),
        ("root ::= [a-z]{9}", 4, [], 1, "cut"),
        ("root ::= [a-z]*", 4, [], 0, "length"),
        ("root ::= [a-z]{2} [a-z]*", 1, ["--bias", "264=-99"], 1, "cut"),
        # the context
        ("root ::= [a-z]{50}", None, [], 1, "cut"),
        ("root ::= [a-z]*", None, ["--bias", "2=-1000"], 0, "full"),
        # the end of text, and the maximum with it
        ("root ::= [a-z]*", 1, ["--bias", "2=1000"], 0, "stop"),
        ("root ::= [a-z]{50}", 9, [], 1, "cut"),  # both
    ],
)
def test_ends_of_ring_and_generate(cuts, source, n, options, status, reason):
    found = both(cuts, 9, source, n, ["-S", 3, *options])
    assert (found[0], found[2]) == (status, reason)


@pytest.mark.full
@pytest.mark.parametrize("n", [None, 4, 5])
@pytest.mark.parametrize(
    "source, status",
    [
        ('root ::= "~~~" "~"*', 0),
        ('root ::= "~~~~" "~"*', 0),
        ('root ::= "~~~~~" "~"*', 1),
        ('root ::= ("~~")*', 0),
        ('root ::= ("~~~")*', 1),
        ('root ::= "~~~~" "\U0001f980"*', 0),
        ('root ::= ("~~~" "~~"?)', 1),
    ],
)
def test_token_without_remaining_context_counts(cuts, source, status, n):
    """Four tokens of one character each: room for three, and one that is the last."""
    found = both(cuts, 3, source, n, ["-t", 0, "--bias", "2=-1000"])
    assert found[3] == b"~~~~" and found[0] == status
    assert found[2] == ("cut" if status else "full")


def test_status_stays_0_without_a_grammar(cuts):
    for room, n in ((300, 5), (3, None)):
        limit = ["-n", n] if n else []
        codes, text, said, passed = forked.ring(
            ["decode", "-m", cuts / "m.gguf", cuts / f"{room}.snap"],
            ["sample", "-S", 1, *limit],
            ["tokenize", "-m", cuts / "m.gguf", "-d"],
        )
        one = forked.run(
            "generate", "-m", cuts / "m.gguf", "-s", cuts / f"{room}.snap", "-S", 1, *limit
        )
        assert codes == [0, 0, 0] and (one.returncode, one.stdout, said) == (0, text, b"")
        full = b"generate: the context of 12 tokens is full; the text ends\n"
        assert one.stderr == (b"" if n else full)
        assert passed.endswith(b"#end length\n" if n else b"#end full\n")


@pytest.mark.full
def test_saved_cache_does_not_depend_on_where_the_text_is_split(cuts, tmp_path):
    for n in (1, 3, 8, 40):
        for source in ("root ::= [a-z]{5}", 'root ::= "\U0001f980"'):
            codes, _, said, _ = forked.ring(
                ["decode", "-m", cuts / "m.gguf", "-o", tmp_path / "ring", cuts / "9.snap"],
                ["grammar-filter", "-m", cuts / "m.gguf", "-e", source],
                ["sample", "-S", 1, "-n", n],
                ["tokenize", "-m", cuts / "m.gguf", "-d"],
            )
            one = forked.run(
                "generate",
                "-m",
                cuts / "m.gguf",
                "-s",
                cuts / "9.snap",
                "-S",
                1,
                "-n",
                n,
                "-e",
                source,
                "-o",
                tmp_path / "one",
            )
            assert (codes[0], one.returncode, said) == (0, codes[-1], b"")
            assert (tmp_path / "ring").read_bytes() == (tmp_path / "one").read_bytes()
            os.unlink(tmp_path / "ring"), os.unlink(tmp_path / "one")


EMOJI = r"root ::= [\U0001F980-\U0001F9FF]{2} [一-龥]{2} [é-ü]"


PERSON = r'''root ::= "{\"name\": \"" [A-Za-z ]{1,9} "\", \"age\": " [0-9]{1,2} "}"'''


@pytest.mark.parametrize(
    "name, source, is_whole",
    [
        ("smollm2", EMOJI, lambda text: len(text) == 5),
        ("gemma3", EMOJI, lambda text: len(text) == 5),
        ("smollm2", PERSON, lambda text: text.endswith("}") and "age" in json.loads(text)),
    ],
    ids=["smollm2", "gemma3", "json"],
)
@pytest.mark.full
def test_real_models_are_cut_within_characters_and_within_json(name, source, is_whole, request):
    """Emoji and Chinese written byte by byte, and an object: at every n the text is valid UTF-8 and
    the status right.
    """
    model, n, n_open, last, status = request.getfixturevalue(name), 0, 0, "", 1
    while status:
        n += 1
        done = forked.run(
            "generate", "-m", model, "-t", 0, "-n", n, "-v", "-e", source, "Some text: "
        )
        text, status = done.stdout.decode(), done.returncode
        fields = dict(f.split("=") for f in done.stderr.decode().split()[1:])
        assert text.startswith(last) and status == (not is_whole(text)), (n, text)
        assert fields["end"] == ("cut" if status else "stop")
        n_open, last = n_open + int(fields["open"]), text
    assert n > 5 and (n_open > 0) == (source is EMOJI)
