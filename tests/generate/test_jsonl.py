"""generate --jsonl: each line has the text that it has alone, whatever is generated beside it."""

import json
import os
import subprocess

import pytest
from chat_model import write_chat_model
from conftest import BIN, ROOT
from forked import run
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tiny_model import WITH_STATES, write_model

CHATML = (ROOT / "configs" / "chatml.jinja").read_text()
SYSTEM = "You are one who answers in words that are short, and never in long ones."


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    d = tmp_path_factory.mktemp("jsonl")
    write_model(str(d / "llama.gguf"), type="q8_0", n_layer=2, n_vocab=420, n_ctx=400)
    write_model(str(d / "gemma3.gguf"), arch="gemma3", type="f16", n_layer=2, n_vocab=420, n_ctx=99)
    for arch in WITH_STATES:
        write_model(str(d / f"{arch}.gguf"), arch=arch, n_layer=4, n_vocab=420, n_ctx=400)
    write_chat_model(d / "chat.gguf", ["<|im_start|>", "<|im_end|>"], CHATML, n_ctx=400)
    return d


def generate(model, lines, *options, status=0):
    data = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    done = run("generate", "-m", model, "--jsonl", *options, input=data)
    assert done.returncode == status, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()], done.stderr


def alone(model, line, *options):
    """The text that generate prints for a line of plain options."""
    words = []
    for key, value in line.items():
        if key not in ("id", "prompt"):
            for one in value if isinstance(value, list) else [value]:
                flag = {"grammar": "grammar-text"}.get(key, key.replace("_", "-"))
                words += [f"--{flag}"] + ([] if one is True else [str(one)])
    done = run("generate", "-m", model, *options, *words, "--", line["prompt"])
    assert done.returncode == 0, done.stderr
    return done.stdout.decode()


LINES = st.lists(
    st.fixed_dictionaries(
        {
            "prompt": st.sampled_from(
                ["Once upon", "Once upon a time there was a crab" * 3, "x", "🦀"]
            )
            | st.text(
                st.characters(min_codepoint=32, max_codepoint=0x2FF), min_size=1, max_size=9
            ).filter(lambda text: text != "-"),  # which is standard input
            "seed": st.integers(0, 9),
            "max_tokens": st.sampled_from([1, 2, 9, 30]),
        },
        optional={
            "temperature": st.sampled_from([0, 0.5, 2]),
            "top_k": st.integers(0, 9),
            "min_p": st.just(0.2),
            "repeat_penalty": st.just(1.3),
            "stop": st.lists(st.sampled_from(["e", "th", "\n"]), min_size=1, max_size=2),
            "grammar": st.just('root ::= "yes " root | "no"'),
            "penalize_prompt": st.just(True),
            "dry_multiplier": st.just(0.8),
            "sampler_order": st.sampled_from(["tmpksyldex", "xedlkypmts"]),
            "bias": st.just(["270=3", "2=-inf"]),  # in place of the command's
            "least": st.just(True),
        },
    ),
    min_size=1,
    max_size=6,
)


@pytest.mark.parametrize("arch", ["llama", "gemma3", *WITH_STATES])
@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(LINES, st.sampled_from([1, 2, 5]), st.sampled_from(["f16", "f32"]))
def test_each_text_is_that_of_its_line_alone(tiny, arch, lines, n_parallel, kv):
    model = tiny / f"{arch}.gguf"
    lines = [line for line in lines if "grammar" not in line or line["max_tokens"] > 29]
    lines = [{**line, "id": n} for n, line in enumerate(lines)]
    options = ["--kv", kv, "--bias", "2=-inf"]
    data = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    done = run("generate", "-m", model, "--jsonl", "--parallel", n_parallel, *options, input=data)
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode in (0, 1) and [x["id"] for x in found] == list(range(len(lines)))
    for line, answer in zip(lines, found):
        if answer["end"] == "cut":
            continue  # generate has the same text then, and status 1
        assert answer["text"] == alone(model, line, *options), line
        assert answer["seed"] == line["seed"] and answer["prompt_tokens"] > 0


def test_begins_that_are_shared_are_processed_once(tiny):
    """With the same text, of course."""
    lines = [
        {"messages": [{"role": "user", "content": f"Say {n}"}], "seed": n, "max_tokens": 7}
        for n in range(9)
    ]
    found, said = generate(tiny / "chat.gguf", lines, "--system", SYSTEM * 3, "-v")
    n_reused = int(said.decode().partition("reused=")[2].split()[0])
    assert n_reused > 8 * 130
    for n, answer in enumerate(found):
        done = run(
            *("generate", "-m", tiny / "chat.gguf", "--system", SYSTEM * 3),
            *("-S", n, "-n", 7, f"Say {n}"),
        )
        assert answer["text"] == done.stdout.decode()


def test_lines_use_the_prompt_cache(tiny, tmp_path):
    lines = [{"prompt": "Who?", "system": SYSTEM * 3, "max_tokens": 5, "seed": 1}]
    plain, _ = generate(tiny / "chat.gguf", lines)
    for n in range(2):
        found, said = generate(tiny / "chat.gguf", lines, "--cache", tmp_path / "c", "-v")
        assert found == plain and (b"reused=0" not in said or not n)


def test_requests_come_from_a_file_and_keys_of_other_servers_are_named(tiny, tmp_path):
    (tmp_path / "r").write_text(
        '{"prompt": "x", "max_tokens": 2, "seed": 1}\n{"prompt": "x", "n": 2}\n'
    )
    done = run("generate", "-m", tiny / "llama.gguf", "--jsonl", "-f", tmp_path / "r")
    one, other = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 65 and one["tokens"] == 2
    assert other["error"] == '"n": is no key of a request; use max_tokens'


def test_messages_go_on(tiny):
    said = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "One two "}]
    (found,), _ = generate(
        tiny / "chat.gguf", [{"messages": said, "continue": True, "seed": 2, "max_tokens": 9}]
    )
    path = tiny / "said.json"
    path.write_text(json.dumps(said))
    done = run(
        *("generate", "-m", tiny / "chat.gguf", "--messages", path, "--continue"),
        *("-S", 2, "-n", 9),
    )
    assert found["text"] == done.stdout.decode()


@pytest.mark.parametrize(
    "line, problem",
    [
        (b"[1]", "the request is not an object"),
        (b"{", "line is not JSON"),
        (b'{"prompt": "x", "prompt": "y"}', "a key appears twice"),
        (b"\xff", "line is not UTF-8 at byte 0"),
        (b'{"id": 1.5, "prompt": "x"}', "id: is not a whole number or a string"),
        (b'{"id": 7}', "neither prompt nor messages"),
        (b'{"id": 7, "prompt": 5}', "prompt: is not a string"),
        (b'{"id": 7, "prompt": "x", "colour": 1}', '"colour": is no key of a request'),
        (b'{"id": 7, "prompt": "x", "model": "y"}', '"model": is no key of a request'),
        (b'{"id": 7, "prompt": "x", "out": "y"}', '"out": is no key of a request'),
        (b'{"id": 7, "prompt": "x", "cache": "y"}', '"cache": is no key of a request'),
        (b'{"id": 7, "prompt": "x", "\x1b[2J": 1}', "is not JSON"),
        (b'{"id": 7, "prompt": "x", "\\u001b[2J": 1}', "\\x1b[2J"),
        (b'{"id": 7, "prompt": "x", "max_tokens": 0}', "max_tokens: "),
        (b'{"id": 7, "prompt": "x", "max_tokens": 1e3}', "max_tokens: "),
        (b'{"id": 7, "prompt": "x", "max_tokens": true}', "max_tokens: is not a number or a text"),
        (b'{"id": 7, "prompt": "x", "temperature": NaN}', "NaN is not a number"),
        (b'{"id": 7, "prompt": "x", "temperature": -1}', "temperature: "),
        (b'{"id": 7, "prompt": "x", "temp": 1, "temperature": 1}', "given in two spellings"),
        (b'{"id": 7, "prompt": "x", "top_k": [3]}', "top_k: is not a number or a text"),
        (b'{"id": 7, "prompt": "x", "least": "yes"}', "least: is not true or false"),
        (b'{"id": 7, "prompt": "x", "seed": 99999999999999999999}', "seed: "),
        (b'{"id": 7, "prompt": "x", "bias": "1000=1"}', "--bias: token ID 1000 is not below"),
        (b'{"id": 7, "prompt": "x", "stop": [""]}', "stop: the text is empty"),
        (b'{"id": 7, "prompt": "x", "stop": [{}]}', "stop: is not a number or a text"),
        (b'{"id": 7, "prompt": "x", "grammar": "root ::= \\"a"}', "grammar"),
        (b'{"id": 7, "prompt": "x", "grammar": 5}', "grammar: is not a text"),
        (b'{"id": 7, "prompt": "x", "continue": true}', "continue: needs messages"),
        (b'{"id": 7, "prompt": "x", "continue": 1}', "continue: is not true or false"),
        (b'{"id": 7, "messages": []}', "messages: has no messages"),
        (b'{"id": 7, "messages": [{"role": "boss", "content": ""}]}', "role"),
        (b'{"id": 7, "prompt": "%s"}' % (b"word " * 400), "more than 400"),
        (b'{"id": 7, "prompt": "x", "stop": "\\ud800"}', "stop: has half of a surrogate pair"),
        (b'{"id": 7, "prompt": "x", "stop": ["a", "\\udc80"]}', "stop: has half of a surrogate"),
        (b'{"id": 7, "prompt": "x", "regex": "a("}', "regex: "),
        (b'{"id": 7, "prompt": "x", "regex": "a", "grammar": "root ::= "}', "exclude each other"),
        (b'{"id": 7, "prompt": "x", "json_schema": 5}', "is not a text or an object"),
        (b'{"id": 7, "prompt": "x", "json_schema": {"uniqueItems": true}}', "uniqueItems"),
        (b'{"id": 7, "prompt": "x", "sampler_order": "qq"}', "sampler_order: "),
        (
            b'{"id": 7, "prompt": "x", "sampler_order": "t", "top_k": 3}',
            "leaves out the step top-k",
        ),
        (b'{"id": 7, "prompt": "x", "preset": "greedy"}', "is no key of a request"),
        (
            b'{"id": 7, "prompt": "x", "grammar": "\\ud800"}',
            "grammar: has half of a surrogate pair",
        ),
        (b'{"id": 7, "prompt": "x", "regex": "\\udc80"}', "regex: has half of a surrogate pair"),
        (b'{"id": 7, "prompt": "x", "json_schema": "\\ud800"}', "json_schema: has half of"),
        (b'{"id": 7, "prompt": "\\ud800"}', None),
        (b'{"id": 7, "prompt": "\\ud800", "system": "\\udfff"}', None),
    ],
)
def test_a_bad_line_has_an_error_and_the_others_a_text(tiny, line, problem):
    good = b'{"id": "a", "prompt": "x", "seed": 1, "max_tokens": 2}\n'
    done = run("generate", "-m", tiny / "chat.gguf", "--jsonl", input=good + line + b"\n\n" + good)
    first, bad, last = map(json.loads, done.stdout.splitlines())
    assert first == last and first["id"] == "a" and "text" in first
    if problem is None:
        assert done.returncode == 0 and "text" in bad
        return
    assert problem in bad["error"] and "\x1b" not in bad["error"]
    assert bad.get("id") == (7 if b'"id": 7' in line and "JSON" not in problem else None) or (
        "NaN" in problem
    )
    assert done.returncode == 65
    assert done.stderr.decode() == (
        'generate: standard input: 1 of 3 requests have no text; their objects have "error"\n'
    )


def test_each_request_has_a_form_of_its_own(tiny):
    schema = {"type": "object", "properties": {"n": {"enum": [1, 2]}}, "required": ["n"]}
    lines = [
        {"prompt": "x", "json_schema": {**schema, "additionalProperties": False}, "seed": 1},
        {"prompt": "x", "regex": "(ab){2,3}", "seed": 2},
        {"prompt": "x", "json_schema": '{"const": "z"}', "seed": 3},
    ]
    found, _ = generate(tiny / "llama.gguf", lines)
    texts = [line["text"] for line in found]
    assert json.loads(texts[0])["n"] in (1, 2) and texts[1] in ("abab", "ababab")
    assert texts[2] == '"z"'


def test_a_grammar_that_is_cut_gives_status_1(tiny):
    lines = [{"prompt": "x", "grammar": 'root ::= "yes and yes"', "max_tokens": 2}]
    found, said = generate(tiny / "llama.gguf", lines, status=1)
    assert found[0]["end"] == "cut" and not said


def test_an_answer_comes_before_the_next_line(tiny):
    """No line waits for one that has not arrived."""
    with subprocess.Popen(
        [BIN / "generate", "-m", tiny / "llama.gguf", "--jsonl", "-n", "3"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as child:
        for n in range(3):
            child.stdin.write(json.dumps({"id": n, "prompt": "x"}).encode() + b"\n")
            child.stdin.flush()
            assert json.loads(child.stdout.readline())["id"] == n
        child.stdin.close()
        assert child.stdout.read() == b""
    assert child.returncode == 0


@pytest.mark.parametrize("options", [["x"], ["-s", "s"], ["-o", "o"], ["--echo"], ["--shift"]])
def test_options_of_one_text_are_refused(tiny, options):
    done = run("generate", "-m", tiny / "llama.gguf", "--jsonl", *options, input=b"")
    assert done.returncode == 64 and b"--jsonl: not with" in done.stderr
    assert not os.path.exists("o")


def test_a_draft_model_is_refused(tiny):
    model = tiny / "llama.gguf"
    done = run("generate", "-m", model, "--jsonl", "--draft", model, input=b"")
    assert done.returncode == 64 and b"--jsonl and --draft exclude each other" in done.stderr
