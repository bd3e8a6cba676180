"""chat --talk keeps a conversation and the model's state, --continue goes on with an answer that was
cut, --shift goes on where the context is full: each as if there had been one run.
"""

import json
import os
import re
import stat

import pytest
from chat_model import write_chat_model
from conftest import ROOT
from forked import run
from tiny_model import WITH_STATES

import sluice
from sluice.chat import talk
from sluice.chat.message import Message
from sluice.kvcache.snapshot import Snapshot
from sluice.model.model import Model
from sluice.tokenizer.vocabulary import Vocab

CHATML = (ROOT / "configs" / "chatml.jinja").read_text()
# without control tokens, whose answers a talk keeps as text: <unk>, <s> and <|im_start|>
PLAIN = [word for i in (0, 1, 418) for word in ("--bias", f"{i}=-inf")]
ENDLESS = [*PLAIN, "--bias", "419=-inf", "--bias", "2=-inf"]  # without <|im_end|>, </s>


@pytest.fixture(scope="module", params=["llama", *WITH_STATES])
def model(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("talk") / "chat.gguf"
    config = {"arch": request.param, "n_layer": 4, "n_ctx": 700}
    return write_chat_model(path, ["<|im_start|>", "<|im_end|>"], CHATML, **config)


def chat(model, *options, input=b"", status=0):
    done = run("chat", "-m", model, "-S", 5, "-v", *options, input=input)
    assert done.returncode == status, done.stderr
    return done


def said(path):
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def new_tokens(done):
    return [(int(a), int(b)) for a, b in re.findall(rb"prompt: (\d+) of (\d+)", done.stderr)]


def test_runs_that_share_a_talk_are_one_conversation(model, tmp_path):
    lines = [b"Who are you?\n", b"And now?\n", "Grüße!\n".encode()]
    options = [*PLAIN, "-n", 12, "--system", "Be brief."]
    one = chat(model, *options, "-o", tmp_path / "one", input=b"".join(lines))
    talk, answers = tmp_path / "talk.jsonl", b""
    for n, line in enumerate(lines):
        done = chat(model, *options, "--talk", talk, input=line)
        answers += done.stdout
        new, all_of_them = new_tokens(done)[0]
        assert new == all_of_them if not n else new < 40 < all_of_them
    assert answers == one.stdout
    plain = [{"role": m["role"], "content": m["content"]} for m in said(talk)]
    assert plain == said(tmp_path / "one")
    for path in (talk, tmp_path / "talk.jsonl.kv"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    # other commands read the messages of a talk
    assert run("generate", "-m", model, "-n", 1, "--messages", talk).returncode == 0


def test_the_state_is_the_snapshot_of_its_tokens(model, tmp_path):
    """Also where an answer was taken up again in a map of the state."""
    talk = tmp_path / "talk.jsonl"
    m = Model(model)
    for options in ([], ["--continue"], ["--kv", "f16", "-c", 300]):
        chat(model, "-n", 9, "--talk", talk, *options, input=b"" if options else b"Hello\n")
        state = m.open_snapshot(f"{talk}.kv")
        tokens = state.tokens[: state.n_tok].tolist()
        again = Snapshot.create(state.geometry, state.capacity, m.file.id, m.arithmetic, tmp_path)
        m.fill(again, None, tokens, 7)
        again.seal(tmp_path / "again")
        assert (tmp_path / "again").read_bytes() == (tmp_path / "talk.jsonl.kv").read_bytes()


def test_an_empty_file_is_a_new_talk(model, tmp_path):
    (tmp_path / "empty").touch()
    for name in ("new", "empty"):
        chat(model, "-n", 5, "--talk", tmp_path / name, input=b"Hello\n")
    assert (tmp_path / "new").read_bytes() == (tmp_path / "empty").read_bytes()


@pytest.mark.parametrize("state", ["absent", "damaged", "other type", "of another talk", "smaller"])
def test_no_answer_depends_on_the_state(model, tmp_path, state):
    talk, options = tmp_path / "talk.jsonl", []
    chat(model, "-n", 9, "--talk", talk, input=b"Hello\n")
    data = talk.read_bytes()
    plain = chat(model, "-n", 9, "--talk", talk, input=b"And?\n")
    talk.write_bytes(data)
    path = tmp_path / "talk.jsonl.kv"
    if state == "absent":
        path.unlink()
    elif state == "damaged":
        path.write_bytes(path.read_bytes()[:-5])
    elif state == "other type":
        chat(model, "--kv", "f32", "-n", 2, "--talk", tmp_path / "x", input=b"x\n")
        os.rename(tmp_path / "x.kv", path)
    elif state == "of another talk":
        chat(model, "-n", 20, "--talk", tmp_path / "x", input=b"Quite another one\n")
        os.rename(tmp_path / "x.kv", path)
    else:
        chat(model, "-c", 100, "-n", 2, "--talk", tmp_path / "x", input=b"Hello\n")
        os.rename(tmp_path / "x.kv", path)
    done = chat(model, "-n", 9, "--talk", talk, *options, input=b"And?\n")
    assert done.stdout == plain.stdout
    assert (b"not used" in done.stderr) == (state in ("damaged", "other type"))
    assert new_tokens(chat(model, "-n", 9, "--talk", talk, input=b"Well\n"))[0][0] < 40


@pytest.mark.parametrize("n", [1, 5, 11, 19])
def test_an_answer_that_was_cut_goes_on_as_if_it_had_not_been(model, tmp_path, n):
    """Even within a character, or with tokens that its text would not give."""
    options = ["-t", "1.5", *ENDLESS]
    whole = chat(model, "-n", 20, "--talk", tmp_path / "whole", *options, input=b"Hello\n")
    talk = tmp_path / "talk.jsonl"
    chat(model, "-n", n, "--talk", talk, *options, input=b"Hello\n")
    done = chat(model, "-n", 20 - n, "--talk", talk, "--continue", *options)
    assert said(talk) == said(tmp_path / "whole")
    assert new_tokens(done)[0][0] == 1  # the last token was not in the cache
    assert whole.stdout.endswith(done.stdout)
    # and the next turn is that of the whole talk
    one, other = (
        chat(model, "-n", 5, "--talk", path, *options, input=b"More\n").stdout
        for path in (talk, tmp_path / "whole")
    )
    assert one == other


# as Qwen3's: an answer goes without its thoughts once there is a later message of the user
THOUGHTS = """{%- set ns = namespace(last=-1) -%}
{%- for m in messages -%}
{%- if m.role == 'user' -%}{%- set ns.last = loop.index0 -%}{%- endif -%}
{%- endfor -%}
{%- for m in messages -%}
{%- set old = m.role == 'assistant' and loop.index0 < ns.last and '</think>' in m.content -%}
{{ '<|im_start|>' + m.role + '\n' + (m.content.split('</think>')[-1] if old else m.content)
 + '<|im_end|>\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\n' }}{%- endif -%}"""
THINKING = ["-t", "1.2", "-e", 'root ::= "<think>" [a-f]{4,20} "</think>" [a-m]{9,30}']


@pytest.mark.parametrize("n", [[3, 3, 60], [9, 40], [12, 5, 5, 5, 60], [5, 60]])
def test_an_answer_with_thoughts_goes_on(model, tmp_path, n):
    """Wherever it was cut, with the state and without it; and so does the talk."""
    template = tmp_path / "thoughts.jinja"
    template.write_text(THOUGHTS)
    answers = {}
    for name in ("with", "without"):
        talk, answers[name] = tmp_path / name, b""
        for i, (length, more) in enumerate([*zip(n, [[], *[["--continue"]] * 9]), (60, [])]):
            done = run(
                *("chat", "-m", model, "-S", 5, "--template", template, *THINKING, "-n", length),
                *("--talk", talk, *more),
                input=b"" if more else b"Line %d\n" % i,
            )
            assert done.returncode in (0, 1), done.stderr
            answers[name] += done.stdout
            if name == "without":
                (tmp_path / "without.kv").unlink()
    assert answers["with"] == answers["without"]
    assert said(tmp_path / "with") == said(tmp_path / "without") and len(said(talk)) == 4


def test_an_answer_that_ends_with_a_thinking_marker_goes_on(model, tmp_path):
    """Behind the marker."""
    template = tmp_path / "thoughts.jinja"
    template.write_text(THOUGHTS)
    with sluice.load(model) as m:
        for content in ("<think>", "<think>a</think>", "a<think>"):
            begin = [{"role": "user", "content": "Hi"}]
            (tmp_path / "m").write_text(
                "\n".join(map(json.dumps, [*begin, {"role": "assistant", "content": content}]))
            )
            done = run(
                *("generate", "-m", model, "-n", 3, "-S", 5, "--template", template, "-v"),
                *("--messages", tmp_path / "m", "--continue", "-o", tmp_path / "s"),
            )
            assert done.returncode == 0, done.stderr
            prompt = int(re.search(rb"prompt=(\d+)", done.stderr)[1])
            n_more = prompt - len(m.chat_prompt(begin, template=template))
            state = Model(model).open_snapshot(str(tmp_path / "s"))
            assert m.detokenize(state.tokens[prompt - n_more : prompt].tolist()).strip() == content


def test_an_answer_that_the_template_trims_goes_on(model, tmp_path):
    template, talk = tmp_path / "trims.jinja", tmp_path / "talk"
    template.write_text(CHATML.replace("+ m.content +", "+ (m.content | trim) +"))
    assert "| trim" in template.read_text()
    talk.write_text(
        '{"role": "user", "content": "Hi"}\n{"role": "assistant", "content": "  Yes "}\n'
    )
    for more, line in ((["--continue"], b""), ([], b"And?\n")):
        chat(model, "-n", 4, "--template", template, "--talk", talk, *more, *ENDLESS, input=line)
    assert said(talk)[1]["content"].startswith("  Yes ")


def test_generate_prints_what_follows_the_last_message(model, tmp_path):
    messages = tmp_path / "m.jsonl"
    messages.write_text(
        '{"role": "user", "content": "Count"}\n{"role": "assistant", "content": "One two "}\n'
    )
    run_it = lambda *options: run("generate", "-m", model, "-S", 5, "-n", 6, *options)
    done = run_it("--messages", messages, "--continue", "-o", tmp_path / "s")
    assert done.returncode == 0 and done.stdout
    with sluice.load(model) as m:
        begin = m.chat_prompt([{"role": "user", "content": "Count"}])
        state = Model(model).open_snapshot(str(tmp_path / "s"))
        tokens = state.tokens[: state.n_tok].tolist()
        assert tokens[: len(begin)] == begin and len(tokens) > len(begin) + 6
        text = m.detokenize(tokens[len(begin) :])
        assert text.strip() == f"One two {done.stdout.decode()}".strip()
    assert run_it("--messages", messages, "--continue", "--shift").stdout == done.stdout
    echoed = run_it("--messages", messages, "--continue", "--echo").stdout
    assert echoed.endswith(b"assistant\nOne two " + done.stdout)


@pytest.mark.parametrize(
    "options, status, problem",
    [
        (["--continue"], 64, b"need a conversation"),
        (["--shift"], 64, b"need a conversation"),
        (["--messages", "user.jsonl", "--continue"], 65, b"user.jsonl: the last message is none"),
        (["--messages", "user.jsonl", "--continue", "x"], 64, b"omit PROMPT"),
        (["--messages", "empty.jsonl", "--continue"], 65, b"that could go on"),
        (["--messages", "user.jsonl", "--shift", "-o", "x"], 64, b"--shift: not with"),
    ],
)
def test_what_cannot_go_on_is_said(model, tmp_path, options, status, problem):
    (tmp_path / "user.jsonl").write_text('{"role": "user", "content": "Hi"}\n')
    (tmp_path / "empty.jsonl").write_text('{"role": "assistant", "content": " "}\n')
    done = run("generate", "-m", model, "-n", 1, *options, input=b"x", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (status, b"") and problem in done.stderr


def test_an_answer_shifts_as_if_each_window_were_a_run(model, tmp_path):
    """--shift gives what --continue gives after each stop at the end of the context."""
    talk, options = tmp_path / "talk.jsonl", ["-c", 250, *ENDLESS]
    turns = b"One\nTwo\nThree\nFour\nFive\n"
    chat(model, "-n", 5, "--talk", talk, "--system", "Short.", input=turns)
    before = talk.read_bytes()
    shifted = chat(model, *options, "-n", 190, "--shift", "--talk", talk, input=b"Six\n")
    assert re.search(rb"generated: 190 tokens, .* \(length\)", shifted.stderr)
    whole, n = said(talk), 0
    talk.write_bytes(before)
    chat(model, *options, "-n", 190, "--talk", talk, input=b"Six\n")
    while (n_left := 190 - len(said(talk)[-1]["tokens"]["ids"])) > 0:
        n += 1
        done = chat(model, *options, "-n", n_left, "--talk", talk, "--continue")
        assert new_tokens(done)[0][0] > 1 and b"messages are dropped" in done.stderr
    assert n > 1 and said(talk) == whole and shifted.stderr.count(b"messages are dropped") >= n
    assert whole[1]["content"] == "One"  # the file keeps all


@pytest.mark.parametrize("n_turns", [1, 3])
def test_an_answer_that_fills_the_context_says_so(model, tmp_path, n_turns):
    """Without --shift, and with it where nothing is left to drop. No other answer does."""
    options = ["-m", model, "-S", 5, "-c", 90, *ENDLESS]
    turns = b"Hello\n" * n_turns
    shifted = run("chat", *options, "--shift", input=b"Hello\n")
    stopped = run("chat", *options, input=turns)
    full = b"chat: the context of 90 tokens is full; the answer ends"
    assert shifted.stderr == full + b", and no older message is left to drop\n"
    assert shifted.returncode == stopped.returncode == 0
    assert stopped.stderr.count(full + b"\n") == n_turns
    assert stopped.stdout.startswith(shifted.stdout)
    assert b"(full); context: 90 of 90" in run("chat", *options, "-v", input=turns).stderr
    for ends in (["-n", 5], ["-e", 'root ::= "yes"']):
        assert run("chat", *options, *ends, input=b"Hello\n").stderr == b""
    cut = run("chat", *options, "-e", "root ::= [a-z]{500}", input=b"Hello\n")
    assert (cut.returncode, cut.stderr) == (1, full + b"\n")


@pytest.mark.parametrize("shift", [[], ["--shift"]])
def test_a_text_that_fills_the_context_says_so(model, tmp_path, shift):
    run_it = lambda *words: run("generate", "-m", model, "-S", 5, "-c", 90, *ENDLESS, *words)
    line = "generate: the context of 90 tokens is full; the {} ends"
    done = run_it("--chat", *shift, "Hello")
    assert done.returncode == 0
    what = "answer" if shift else "text"
    more = ", and no older message is left to drop" if shift else ""
    assert done.stderr.decode() == line.format(what) + more + "\n"
    assert run_it("Once").stderr.decode() == line.format("text") + "\n"
    for words in (["--chat", *shift, "Hello"], ["Once"]):
        assert run_it("-n", 5, *words).stderr == b""


HOSTILE = [
    ({"model": "MODEL", "ids": [418]}, "418 is a control token"),
    ({"model": "MODEL", "ids": [72]}, "their text is not the content"),
    ({"model": "MODEL", "ids": [420]}, '"420" is not a token ID of the model'),
    ({"model": "MODEL", "ids": [-1]}, '"-1" is not a token ID of the model'),
    ({"model": "MODEL", "ids": [1.5]}, '"1.5" is not a token ID of the model'),
    ({"model": "MODEL", "ids": [True]}, '"True" is not a token ID of the model'),
    ({"model": "MODEL", "ids": {"a": 1}}, "not an object with model and ids"),
    ({"ids": [1]}, "not an object with model and ids"),
    ([1, 2], "not an object with model and ids"),
    ("x\x1b", "not an object with model and ids"),
]


@pytest.mark.parametrize("tokens, problem", HOSTILE)
def test_tokens_that_are_not_the_text_are_refused(model, tmp_path, tokens, problem):
    name = Model(model).file.id[:8].hex()
    if isinstance(tokens, dict) and "model" in tokens:
        tokens = {**tokens, "model": name}
    (tmp_path / "t.jsonl").write_text(
        '{"role": "user", "content": "Hi"}\n'
        + json.dumps({"role": "assistant", "content": "yes", "tokens": tokens})
    )
    done = run("chat", "-m", model, "--talk", "t.jsonl", input=b"x\n", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (65, b"")
    assert done.stderr.decode() == f"chat: t.jsonl: line 2: tokens: {problem}\n"


def test_tokens_of_another_model_are_ignored(model, tmp_path):
    (tmp_path / "a").write_text(
        '{"role": "user", "content": "Hi"}\n'
        '{"role": "assistant", "content": "yes", "tokens": {"model": "00", "ids": [418]}}\n'
    )
    (tmp_path / "b").write_text(
        '{"role": "user", "content": "Hi"}\n{"role": "assistant", "content": "yes"}\n'
    )
    texts = [
        chat(model, "-n", 9, "--talk", tmp_path / name, input=b"x\n").stdout for name in ("a", "b")
    ]
    assert texts[0] == texts[1]


def test_another_system_message_is_refused(model, tmp_path):
    talk = tmp_path / "talk"
    chat(model, "-n", 2, "--talk", talk, "--system", "A", input=b"x\n")
    done = chat(model, "-n", 2, "--talk", talk, "--system", "B", input=b"x\n", status=64)
    assert b"begins with another one" in done.stderr
    done = chat(model, "--talk", talk, "--messages", talk, status=64)
    assert b"exclude each other" in done.stderr


def test_messages_are_kept_after_each_answer(model, tmp_path):
    """An error in a later line leaves those before it in the talk."""
    talk = tmp_path / "talk"
    done = chat(model, "-c", 80, "-n", 3, "--talk", talk, input=b"x\n" + b"y" * 500, status=65)
    assert b"message: " in done.stderr and [m["role"] for m in said(talk)] == ["user", "assistant"]


def test_a_control_token_that_the_model_wrote_is_not_kept(model, tmp_path):
    m, path = Model(model), str(tmp_path / "talk")
    words = Vocab(m.file)
    tokens = words.encode(b"yes", bos=False, eos=False)
    with_control = [tokens[0], 418, *tokens[1:]]
    own = [Message("assistant", "yes", ids) for ids in (with_control, tokens)]
    talk.write(path, own, m, words)
    assert [m.tokens for m in talk.read(path, m, words)] == [None, tokens]
