"""The command generate: byte for byte what the ring of plumbing gives, its ends, its prompts, its
errors.
"""

import json
import math
import os
import pty
import re
import signal
import subprocess
import time

import grammar_reference as slow
import pytest
from bytes_vocab import Bytes
from chat_model import write_chat_model
from conftest import BIN, ROOT, shell
from conftest import run as start
from forked import run
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from test_grammar import grammars, longer
from tiny_model import write_model

from sluice import gguf
from sluice.chat import messages, terminal
from sluice.faults import Error
from sluice.generate import generation
from sluice.generate import sampler as chain
from sluice.generate.sampler import Sampler
from sluice.grammar import matcher as grammar
from sluice.grammar.matcher import Matcher
from sluice.model.model import Model
from sluice.tokenizer.vocabulary import Vocab

CHATML = (ROOT / "configs" / "chatml.jinja").read_text()
WORDS = 'root ::= " "? word (" " word)* "."\nword ::= [BWbw] [a-z]*\n'


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    d = tmp_path_factory.mktemp("generate")
    write_model(str(d / "llama.gguf"), type="q8_0", n_layer=2, n_vocab=420, n_ctx=400)
    write_model(
        str(d / "gemma3.gguf"), arch="gemma3", type="f16", n_layer=2, n_vocab=420, n_ctx=400
    )
    write_chat_model(d / "chat.gguf", ["<|im_start|>", "<|im_end|>"], CHATML, n_ctx=400)
    return d


def ring(directory, model, prompt, options="", grammar=None, out=False, n=40, how=""):
    """(text, snapshot or None) that the ring gives."""
    (directory / "prompt").write_bytes(prompt)
    for name in ("ring", "end.snap"):
        if (directory / name).exists():
            os.unlink(directory / name)
    choose = f"grammar-filter -g {grammar} |" if grammar else ""
    done = shell(
        f"""set -e; tokenize {how} <prompt | prefill -o p.snap; mkfifo ring
        decode {"-o end.snap" if out else ""} p.snap <ring | {choose} sample -n {n} {options} | tee ring | tokenize -d""",
        directory,
        MODEL=str(model),
    )
    assert (done.returncode, done.stderr) == (0, b"")
    return done.stdout, (directory / "end.snap").read_bytes() if out else None


@pytest.mark.quick_cases(3)
@pytest.mark.parametrize(
    "model, options, grammar",
    [
        ("llama", "-t 0", None),
        ("gemma3", "-S 1 -k 20 --repeat-penalty 1.2 --last-n 9", None),
        ("llama", "-S 5", "words.gbnf"),
        ("llama", "-t 0 --least --bias 300=2.5", "yesno.gbnf"),
        ("gemma3", "-S 3 -t 1.5 --min-p 0.01 --bias 270=9 --presence-penalty 1", None),
    ],
)
def test_equals_the_ring(tiny, tmp_path, model, options, grammar):
    """Text and snapshot."""
    (tmp_path / "words.gbnf").write_text(WORDS)
    (tmp_path / "yesno.gbnf").write_text('root ::= "yes" | "no"')
    path, prompt = tiny / f"{model}.gguf", b"Once upon a time there was \xf0\x9f\xa6\x80 and"
    text, snapshot = ring(tmp_path, path, prompt, options, grammar, out=True)
    g = ["-g", tmp_path / grammar] if grammar else []
    done = run(
        "generate",
        "-m",
        path,
        *options.split(),
        "-n",
        40,
        *g,
        "-o",
        tmp_path / "mine.snap",
        input=prompt,
    )
    assert (done.returncode, done.stderr) == (0, b"") and done.stdout == text and text
    assert (tmp_path / "mine.snap").read_bytes() == snapshot
    assert os.stat(tmp_path / "mine.snap").st_mode & 0o777 == 0o600


def test_bundled_model_generates_text(tmp_path):
    path = ROOT / "lib" / "sluice" / "data" / "spam.gguf"
    done = run(
        "generate",
        "-m",
        path,
        "-S",
        1,
        "-n",
        8,
        "--special",
        "<|user|>\nis this mail spam ?\nhello</s><|assistant|>\n",
    )
    assert (
        done.returncode == 0
        and done.stdout
        == ring(
            tmp_path,
            path,
            b"<|user|>\nis this mail spam ?\nhello</s><|assistant|>\n",
            "-S 1",
            n=8,
            how="--special",
        )[0]
    )


def test_equals_the_ring_on_trained_weights(datafile, tmp_path):
    model = datafile("models/stories260K.gguf")
    done = run("generate", "-m", model, "-t", 0, "-n", 256, "")
    assert done.stdout == datafile("models/stories260K.greedy.txt").read_bytes().rstrip(b"\n")
    assert (
        run("generate", "-m", model, "-S", 4, "-n", 60, "Lily").stdout
        == ring(tmp_path, model, b"Lily", "-S 4", n=60)[0]
    )


@pytest.mark.full
def test_ends_at_an_end_of_text_id_and_where_there_is_no_room(tiny, tmp_path):
    def end(*options):
        done = run("generate", "-m", tiny / "llama.gguf", "-t", 0, "-v", *options, "Once")
        assert done.returncode == 0
        fields = dict(f.split("=") for f in done.stderr.decode().split()[1:])
        return fields["end"], int(fields["tokens"]), done.stdout

    assert end("-n", 7)[:2] == ("length", 7)
    assert end("--bias", "2=1000")[:3] == ("stop", 1, b"")  # </s>
    assert end("--bias", "2=1000", "-o", tmp_path / "s")[0] == "stop"
    kind, n, text = end("-c", 30, "--bias", "2=-1000")
    assert kind == "full" and text and n < 30
    assert end("-n", 5, "--stop", "\u2603")[0] == "length"
    escape = Vocab(gguf.File(str(tiny / "llama.gguf"))).tokens_writing(b"\xff")[0]
    # what is no text is this character, here and there
    for stop in ("\ufffd", b"\xff", b"\x80", "\ufffd\ufffd"):
        assert end("-n", 5, "--bias", f"{escape}=1000", "--stop", os.fsdecode(stop))[0] == "stop"


def test_two_steps_give_what_one_gives(tiny, tmp_path):
    model = tiny / "llama.gguf"
    whole = run("generate", "-m", model, "-S", 9, "-n", 30, "--bias", "2=-1000", "A fox").stdout
    first = run(
        "generate",
        "-m",
        model,
        "-S",
        9,
        "-n",
        12,
        "--bias",
        "2=-1000",
        "-o",
        tmp_path / "s",
        "A fox",
    ).stdout
    second = run(
        "generate", "-m", model, "-S", 9, "-n", 18, "--bias", "2=-1000", "-s", tmp_path / "s"
    ).stdout
    # the first blank of a text is taken away
    assert whole.replace(b" ", b"") == (first + second).replace(b" ", b"")
    echoed = run(
        "generate",
        "-m",
        model,
        "-S",
        9,
        "-n",
        18,
        "--bias",
        "2=-1000",
        "-s",
        tmp_path / "s",
        "--echo",
    ).stdout
    assert (
        echoed
        == run(
            "generate", "-m", model, "-S", 9, "-n", 30, "--bias", "2=-1000", "--echo", "A fox"
        ).stdout
    )
    assert echoed.startswith(b"A fox") and echoed.endswith(second)


@pytest.mark.full
def test_prompt_is_arguments_and_stdin(tiny):
    model = tiny / "llama.gguf"
    go = lambda *words, input=b"": (
        run("generate", "-m", model, "-t", 0, "-n", 3, "--echo", *words, input=input).stdout
    )
    assert (
        go("a", "fox", "and")
        == go("a fox and")
        == go(input=b"a fox and")
        == go("a", "-", "and", input=b"fox")
    )
    assert go("a", input=b"never read") == go("a")
    assert go(input=b"a\n").startswith(b"a\n")
    assert go("--", "-x").startswith(b"-x")
    r, w = os.pipe()  # arguments are enough: an open stdin that never ends is no matter
    done = start("generate", "-m", model, "-n", 1, "a", stdin=r)
    os.close(r), os.close(w)
    assert done.returncode == 0


def test_stop_strings_are_never_written_in_part(tiny):
    model = tiny / "llama.gguf"
    letters = ["generate", "-m", model, "-S", 2, "-n", 40, "-e", "root ::= [a-z ]*"]
    text = run(*letters, "A fox").stdout.decode()
    assert len(text) > 30
    for stop in (text[10:14], text[15:16], text[3:20], "\u2603"):
        done = run(*letters, "--stop", stop, "--stop", "\u2604never", "A fox")
        cut = text.find(stop)
        assert done.stdout.decode() == (text[:cut] if cut >= 0 else text), stop


@settings(max_examples=150, deadline=None)
@given(
    st.text("ab\u00e9\U0001f980", max_size=30),
    st.lists(st.text("ab\u00e9", min_size=1, max_size=4), max_size=3),
    st.data(),
)
def test_answers_are_whole_characters_up_to_the_first_stop(text, stops, data):
    raw, parts = text.encode(), []
    while raw:
        n = data.draw(st.integers(1, 5))
        parts.append(raw[:n])
        raw = raw[n:]
    answer, out = generation.Answer(Bytes(parts), [s.encode() for s in stops]), []
    for i in range(len(parts)):
        out.append(answer.add(i))
        out[-1].decode()
        assert not any(s.encode() in b"".join(out) for s in stops)
    out.append(answer.remainder())
    found = [(text.find(s) + len(s), text.find(s)) for s in stops if s in text]
    want = text[: min(found)[1]] if found else text
    assert b"".join(out).decode() == want and answer.stopped == bool(found)


@pytest.fixture(scope="module")
def in_process(tiny):
    """(model, vocabulary, caches of a prompt by the room behind it, how many tokens that is, the
    logits after them).
    """
    m = Model(str(tiny / "llama.gguf"), 1)
    words = Vocab(m.file)
    tokens = words.encode(b"Once upon")
    caches = {room: generation.begin(m, tokens, capacity=len(tokens) + room) for room in (1, 4, 50)}
    return m, words, caches, len(tokens), list(caches[1].logits[0 : m.hparams.n_vocab])


@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
@given(
    grammars(),
    st.one_of(st.none(), st.integers(1, 20)),
    st.sampled_from([1, 4, 50]),
    st.integers(0, 1 << 30),
    st.booleans(),
    st.booleans(),
)
def test_text_is_incomplete_exactly_if_its_grammar_does_not_accept_it(
    in_process, g, n, room, seed, keep, ends
):
    """Random grammars, maxima, contexts and seeds; the slow matcher says what a sentence is."""
    g = longer(g)
    assume(len(slow.can_end(g)) == 3 and not slow.left_recursive(g))
    m, words, caches, n_prompt, logits = in_process
    cache = caches[room]
    cache.n_tok, cache.logits[0 : len(logits)] = n_prompt, logits
    sampler = Sampler(
        m.hparams.n_vocab, top_k=0, top_p=1, seed=seed, bias={2: 5 if ends else -1000}
    )
    go = generation.Generation(
        m, cache, sampler, words.eog, Matcher(grammar.of_options(None, slow.gbnf(g)), words), keep
    )
    try:
        raw = b"".join(words.bytes_of(i) for i in go.tokens(n))
    except Error as e:
        assert "too ambiguous" in str(e)
        return
    try:
        is_whole = slow.Matcher(g, raw.decode()).complete if len(raw) < 40 else None
    except UnicodeDecodeError:
        is_whole = False
    assert is_whole is None or (go.reason == "cut") == (not is_whole)
    assert go.reason in ("cut", "stop", "full" if n is None or n > room else "length")


def at_terminal(*argv, size=1 << 16):
    """(status, bytes) of a command whose stdout alone is a terminal."""
    master, slave = pty.openpty()
    p = subprocess.Popen(
        [str(BIN / argv[0]), *map(str, argv[1:])],
        stdin=subprocess.DEVNULL,
        stdout=slave,
        stderr=subprocess.PIPE,
    )
    os.close(slave)
    out = b""
    while True:
        try:
            part = os.read(master, size)
        except OSError:
            break
        out += part
        if not part:
            break
    os.close(master)
    assert p.communicate()[1] == b""
    return p.returncode, out.replace(b"\r\n", b"\n")


def test_terminal_gets_no_control_characters(tiny):
    """A model that wants to write escapes: a pipe gets them, a terminal is shown them."""
    model = tiny / "llama.gguf"
    escape = Vocab(gguf.File(str(model))).tokens_writing(b"\x1b")[0]
    options = ["generate", "-m", model, "-n", 3, "-t", 0, "--bias", f"{escape}=1000", "x"]
    assert run(*options).stdout == b"\x1b\x1b\x1b"
    assert at_terminal(*options) == (0, b"^[^[^[\n")


@pytest.mark.parametrize(
    "data, shown",
    [
        (b"plain \xc3\xa9\t\n", b"plain \xc3\xa9\t\n"),
        (b"\x1b[2J\x07\x7f\r", b"^[[2J^G^?^M"),
        ("\u009b31m".encode(), b"\\x9b31m"),
        (b"\x9b\xff", b"\\x9b\\xff"),
        ("a\u202eb\u2066".encode(), b"a\\u202eb\\u2066"),
        (b"\x00", b"^@"),
        ("a\U000e0041\u206e\ufffb".encode(), b"a\\U000e0041\\u206e\\ufffb"),
        ("\u2764\ufe0f \u200d".encode(), "\u2764\ufe0f \u200d".encode()),
    ],
)
def test_harmless_text(data, shown):
    assert terminal.harmless(data) == shown


@given(st.binary(max_size=40))
def test_harmless_text_has_no_controls(data):
    out = terminal.harmless(data).decode()
    assert all(c in "\t\n" or ord(c) >= 32 and not 127 <= ord(c) < 160 for c in out)


def test_words_can_be_bound_biased_and_turned_round(tiny, tmp_path):
    """The recipes of lib/README.md."""
    model = tiny / "llama.gguf"
    (tmp_path / "words.gbnf").write_text(WORDS)
    text = run(
        "generate", "-m", model, "-g", tmp_path / "words.gbnf", "-S", 1, "-n", 60, "The"
    ).stdout.decode()
    assert all(word[0] in "BWbw" for word in text.rstrip(".").split()) and len(text) > 5
    plain = run("generate", "-m", model, "-t", 0, "-n", 12, "The").stdout
    least = run("generate", "-m", model, "-t", 0, "-n", 12, "--least", "The").stdout
    assert plain != least
    spam = run("generate", "-m", model, "-t", 0, "-n", 12, "--bias-word", "yes=100", "The").stdout
    assert spam.count(b"yes") == 12
    assert (
        run(
            "generate",
            "-m",
            model,
            "-t",
            0,
            "-n",
            12,
            "--bias-word",
            "yes=-100",
            "--bias-word",
            "no=100",
            "The",
        ).stdout.count(b"no")
        == 12
    )


def test_chat_takes_the_template(tiny, tmp_path):
    model = tiny / "chat.gguf"
    (tmp_path / "talk.yaml").write_text(
        "- {role: user, content: Hello}\n- {role: assistant, content: Hi}\n- {role: user, content:"
        " Why?}\n"
    )
    (tmp_path / "talk.jsonl").write_text(
        '{"role": "user", "content": "Hello"}\n\n{"role": "assistant", "content": "Hi"}\n'
    )
    whole = "".join(
        f"<|im_start|>{role}\n{text}<|im_end|>\n"
        for role, text in (("user", "Hello"), ("assistant", "Hi"), ("user", "Why?"))
    )
    want, _ = ring(
        tmp_path,
        model,
        (whole + "<|im_start|>assistant\n").encode(),
        "-t 0",
        n=12,
        how="--special --no-bos",
    )
    for options, input in (
        [["--messages", tmp_path / "talk.yaml"], b""],
        [["--messages", tmp_path / "talk.jsonl", "-"], b"Why?\n"],
        [["--messages", tmp_path / "talk.jsonl", "--template", "chatml", "Why?"], b""],
    ):
        got = run("generate", "-m", model, "-t", 0, "-n", 12, "-v", *options, input=input)
        assert got.returncode == 0, got.stderr
        assert got.stdout == want and len(want) > 5


def test_closed_reader_and_interrupt_end_generate(tiny, tmp_path):
    model = tiny / "llama.gguf"
    done = shell(f"generate -m '{model}' --bias 2=-1000 Once | head -c 3 | wc -c", tmp_path)
    assert (done.stdout.strip(), done.stderr) == (b"3", b"")
    argv = [
        str(BIN / "generate"),
        "-m",
        str(model),
        "--bias",
        "2=-1000",
        "-c",
        "100000",
        "-o",
        str(tmp_path / "x.snap"),
        "Once",
    ]
    p = subprocess.Popen(
        argv,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        # a background job has it ignored
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    p.stdout.read(1)
    time.sleep(0.1)
    p.send_signal(signal.SIGINT)
    _, err = p.communicate(timeout=60)
    assert p.returncode == -signal.SIGINT and err == b"" and not os.listdir(tmp_path)


@pytest.mark.quick_cases(9)
@pytest.mark.parametrize(
    "options, code, error",
    [
        (["-g", "x", "-e", "y", "a"], 64, b"exclude each other"),
        (["--chat", "-s", "x", "a"], 64, b"-s and --special"),
        (["--chat", "--special", "a"], 64, b"--special"),
        (["--stop", "", "a"], 64, b"--stop"),
        (["--bias", "x=1", "a"], 64, b"not a token ID"),
        (["--bias", "5", "a"], 64, b"ID=X"),
        (["--bias", "5=nan", "a"], 64, b"--bias"),
        (["--bias", "5=inf", "a"], 64, b"--bias"),
        (["-n", "-2", "a"], 64, b"-n"),
        (["-S", "-2", "a"], 64, b"-S"),
        (["--bias", "420=1", "a"], 64, b"not below the vocabulary size"),
        (["--bias-word", "=1", "a"], 64, b"WORD=X"),
        (["--set", "x", "a"], 64, b"NAME=VALUE"),
        (["--template", "nowhere", "a"], 66, b"nowhere"),
        (["--messages", "nowhere"], 66, b"nowhere"),
        (["-s", "nowhere"], 66, b"nowhere"),
        (["-o", "/dev/null", "a"], 73, b"/dev/null"),
        (["--kv", "q9", "a"], 64, b"--kv"),
    ],
)
def test_bad_use_ends_in_one_line(tiny, options, code, error):
    done = run("generate", "-m", tiny / "llama.gguf", *options)
    assert done.returncode == code and error in done.stderr and done.stderr.count(b"\n") == 1, (
        done.stderr
    )
    assert done.stdout == b""


def test_minus_one_is_no_limit_and_a_random_seed(tiny):
    greedy = [
        start("generate", "-m", tiny / "llama.gguf", "-t", 0, "-c", 60, *n, "a")
        for n in ((), ("-n", -1), ("-n", 100))
    ]
    assert len({done.stdout for done in greedy}) == 1 and all(
        done.returncode == 0 for done in greedy
    )
    seeds = {
        start("generate", "-m", tiny / "llama.gguf", "-S", -1, "-n", 1, "-v", "a")
        .stderr.split(b"seed=")[1]
        .split()[0]
        for _ in range(3)
    }
    assert len(seeds) == 3


def test_token_with_a_bias_of_minus_infinity_is_never_generated(tiny):
    m, seen = Model(str(tiny / "llama.gguf"), 1), set()
    for _ in range(4):  # each time without all that was written before
        sampler = Sampler(
            m.hparams.n_vocab,
            temperature=0,
            bias=chain.biases([(i, -math.inf) for i in seen], (), m.hparams.n_vocab),
        )
        tokens = set(
            generation.Generation(m, generation.begin(m, [1, 300, 301]), sampler, ()).tokens(12)
        )
        assert tokens and not tokens & seen
        seen |= tokens
    plain, without = (
        start("generate", "-m", tiny / "llama.gguf", "-t", 0, "-n", 1, *bias, "a")
        for bias in ((), [w for i in range(210) for w in ("--bias", f"{i}=-inf")])
    )
    assert plain.returncode == without.returncode == 0
    allowed = start(
        "generate",
        "-m",
        tiny / "llama.gguf",
        "-e",
        'root ::= "zq"',
        *[w for i in range(420) for w in ("--bias", f"{i}=-inf")],
        "a",
    )
    assert allowed.returncode == 65 and b"every candidate at position" in allowed.stderr


def read(tmp_path, text, name="a.json"):
    (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    return [(m.role, m.content) for m in messages.read(str(tmp_path / name))]


def test_golden_message_array_is_read(datafile):
    assert [
        (m.role, m.content)
        for m in messages.read(str(datafile("cases/models/messages_array.json")))
    ] == [("user", "Hi")]


SAID = st.lists(
    st.tuples(
        st.sampled_from(["system", "user", "assistant"]),
        st.one_of(
            st.none(),
            st.text(st.characters(exclude_categories=["Cs"])),
            st.lists(st.text(st.characters(exclude_categories=["Cs"]))),
        ),
    ),
    min_size=1,
    max_size=8,
)


@given(
    said=SAID,
    indent=st.sampled_from([None, 0, 1, 4]),
    ascii=st.booleans(),
    bom=st.booleans(),
    empty=st.booleans(),
)
@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
def test_json_array_and_lines_give_the_same_messages(
    tmp_path_factory, said, indent, ascii, bom, empty
):
    """However the array is laid out; no content is an empty text, parts are joined by line ends,
    keys that hold nothing are passed over.
    """
    d = tmp_path_factory.mktemp("said")
    entries = [
        {
            "role": role,
            "content": (
                [{"type": "text", "text": t} for t in content]
                if isinstance(content, list)
                else content
            ),
            **({"refusal": None, "tool_calls": [], "annotations": {}} if empty else {}),
        }
        for role, content in said
    ]
    want = [
        (role, "\n".join(content) if isinstance(content, list) else content or "")
        for role, content in said
    ]
    start = "\ufeff" * bom
    assert read(d, start + json.dumps(entries, indent=indent, ensure_ascii=ascii)) == want
    assert (
        read(
            d, start + "".join(json.dumps(e, ensure_ascii=ascii) + "\n" for e in entries), "a.jsonl"
        )
        == want
    )


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image_url", "image_url": {"url": "data:,"}},
        {"type": "input_audio"},
        {"type": "file", "text": "x"},
    ],
)
def test_message_part_other_than_text_is_refused_by_name(tmp_path, part):
    text = json.dumps(
        [{"role": "user", "content": [{"type": "text", "text": "What is this?"}, part]}]
    )
    with pytest.raises(
        Error, match=f'message 1: part 2 of content is of type "{part["type"]}"'
    ) as e:
        read(tmp_path, text)
    assert e.value.code == 69


@pytest.mark.parametrize(
    "name, text, error",
    [
        ("a.jsonl", "", "has no messages"),
        ("a.jsonl", "[]", "has no messages"),
        ("a.jsonl", "5", "line 1 is not an object"),
        ("a.jsonl", '{"role": "user"}', "role and content"),
        ("a.jsonl", '{"role": "user", "content": "x", "name": "y"}', "no other keys"),
        ("a.jsonl", '{"role": "tool", "content": "x"}', "role tool: there is no call"),
        ("a.jsonl", '{"role": "user", "content": 5}', "content is not a text"),
        ("a.jsonl", "{", "line 1 is not JSON"),
        ("a.jsonl", "[" * 100000, "nested too deeply"),
        ("a.yaml", "role: user", "not a list"),
        ("a.yaml", "- &a [*a]", "anchors"),
        ("a.yaml", "- {role: user, content: [x]}", "part 1 of content is not an object"),
        ("a.json", '[{"role": "user", "content": "x"}, 5]', "message 2 is not an object"),
        ("a.json", '[{"role": "user", "content": "x"}', "is not JSON"),
        (
            "a.json",
            '[{"role": "user", "content": [{"type": "text", "text": 5}]}]',
            "message 1: part 1 of content: text is missing or not a text",
        ),
        (
            "a.json",
            '[{"role": "user", "content": [{"text": "x"}]}]',
            "message 1: part 1 of content is not an object with a type",
        ),
        (
            "a.json",
            '[{"role": "user", "content": "x", "name": "y"}]',
            "message 1 is not an object with role and content and no other keys",
        ),
        ("a.json", '[{"role": "user", "content": {}}]', "message 1: content is not a text"),
        (
            "a.json",
            '[{"role": "user", "content": ""}' + ', {"role": "user", "content": ""}' * 10000 + "]",
            "message 10001: more than 10000 messages",
        ),
        ("a.json", "[" + "[]," * 400000 + "[]]", "has more than 160000 values"),
        ("a.json", "[1] [2]", "is not JSON"),
        ("a.jsonl", '{"role": ["user"], "content": "x"}', "is not one of"),
        ("a.jsonl", '{"role": "user", "content": "\\ud800"}', "half of a surrogate pair"),
        (
            "a.jsonl",
            '{"role": "system", "role": "user", "content": "x"}',
            "line 1 is not JSON: a key appears twice",
        ),
        (
            "a.jsonl",
            '{"role": "user", "content": [' + "[]," * 400000 + "[]]}",
            "has more than 10000 values",
        ),
        (
            "a.jsonl",
            '{"role": "user", "content": ""}\n' * 10001,
            "line 10001: more than 10000 messages",
        ),
        ("a.yaml", " " * 1048577, "more than 1 MiB"),
    ],
)
def test_bad_messages_are_refused_by_place(tmp_path, name, text, error):
    (tmp_path / name).write_text(text)
    with pytest.raises(Error, match=re.escape(error)) as e:
        messages.read(str(tmp_path / name))
    assert e.value.code == 65 and str(e.value).startswith(str(tmp_path / name))


def test_the_name_of_a_file_as_prompt_is_pointed_out(tiny, tmp_path):
    """And is the prompt nevertheless."""
    common = ["generate", "-m", tiny / "llama.gguf", "-n", 3, "-S", 1, "notes.txt"]
    plain = run(*common, cwd=tmp_path)
    (tmp_path / "notes.txt").write_text("once")
    done = run(*common, cwd=tmp_path)
    assert plain.stderr == b"" and done.stdout == plain.stdout and done.returncode == 0
    assert done.stderr == b'generate: "notes.txt" is the prompt, not the file; -f reads a file\n'


def test_a_folder_of_hugging_face_is_named():
    folder = ROOT / "tests" / "golden" / "folders" / "llama"
    for path, said in {
        folder: b"is a folder of Hugging Face; gguf-convert",
        folder / "model.safetensors": b"not GGUF; gguf-convert makes one of the folder",
    }.items():
        done = run("generate", "-m", path, "x")
        assert done.returncode == 65 and said in done.stderr
    done = run("gguf-convert", folder / "config.json", "-o", "none.gguf")
    assert done.returncode == 64 and b"give the folder that it is in" in done.stderr
