"""The command chat: at a (pseudo-)terminal and through pipes, the context when it is full, and what
messages cannot do.
"""

import json
import os
import pty
import re
import select
import signal
import time
from pathlib import Path

import pytest
from chat_model import write_chat_model
from conftest import BIN, ROOT
from forked import render_here, run
from hypothesis import given
from hypothesis import strategies as st

from sluice import gguf
from sluice.chat import template, terminal
from sluice.chat.conversation import Conversation
from sluice.chat.message import Message
from sluice.generate.sampler import Sampler
from sluice.grammar import matcher
from sluice.kvcache.scratch import Scratch
from sluice.model.model import Model
from sluice.tokenizer.vocabulary import Vocab

CHATML = (ROOT / "configs" / "chatml.jinja").read_text()
YES = ["-e", 'root ::= "yes" | "no"']


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_chat_model(
        tmp_path_factory.mktemp("chat") / "chat.gguf",
        ["<|im_start|>", "<|im_end|>"],
        CHATML,
        n_ctx=400,
    )


@pytest.fixture
def here(monkeypatch):
    render_here(monkeypatch)


class Terminal:
    """chat at a pseudo-terminal of its own, 200 columns wide. seen: all that it wrote."""

    def __init__(self, model, *options, term="xterm", env=()):
        self.pid, self.fd = pty.fork()
        if not self.pid:
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # a background job has it ignored
            os.environ.update(
                TERM=term, INPUTRC="/dev/null", LC_ALL="C.UTF-8", COLUMNS="200", **dict(env)
            )
            os.execv(BIN / "chat", ["chat", "-m", str(model), *map(str, options)])
        self.seen, self._at = b"", 0

    def expect(self, text, timeout=60):
        """What came up to `text`, from where the last call ended."""
        text, end = text.encode(), time.monotonic() + timeout
        while text not in self.seen[self._at :]:
            assert self._read(end - time.monotonic()), (text, self.seen)
        at = self.seen.index(text, self._at)
        self._at, before = at + len(text), self.seen[self._at : at]
        return before.replace(b"\r\n", b"\n").decode()

    def _read(self, timeout=60):
        """What is there; b"" at the end. A chat that says nothing for `timeout` seconds is
        killed.
        """
        if not select.select([self.fd], [], [], max(0, timeout))[0]:
            os.kill(self.pid, signal.SIGKILL)
            raise AssertionError(f"nothing came in {timeout:.0f} s after {self.seen!r}")
        try:
            part = os.read(self.fd, 1 << 16)
        except OSError:
            return b""
        self.seen += part
        return part

    def wait_for_keys(self, timeout=60):
        """Until it sleeps: between its echo and its wait for keys Python's readline would not see
        an interrupt, and sleep on.
        """
        end = time.monotonic() + timeout
        while Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0] != "S":
            assert time.monotonic() < end, "it does not wait"
            time.sleep(0.01)

    def type(self, text):
        os.write(self.fd, text.encode())

    def end(self):
        """Ctrl-D at the next prompt: the exit status."""
        self.expect("> ")
        self.type("\x04")
        while self._read():
            pass
        status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        os.close(self.fd)
        return status


def said(path):
    return [(m["role"], m["content"]) for m in map(json.loads, path.read_text().splitlines())]


@pytest.mark.quick_cases(1)
def test_talk_at_a_terminal(model, tmp_path):
    """Lines, UTF-8 that is edited, a line brought back, a paste of several lines; speeds after each
    answer.
    """
    t = Terminal(model, "-o", tmp_path / "talk", *YES)
    t.expect("> ")
    t.type("Grü\x7f\x7foß\r")  # the last two characters rubbed out, whatever their bytes
    assert re.search(r"[\r\n](yes|no)\n$", t.expect("chat: prompt: "))
    line = t.expect(" in use")
    assert re.fullmatch(
        r"(\d+) of \1 tokens processed, [\d.]+/s; generated: [12] tokens(, [12] of them forced)?,"
        r" [\d.]+/s \(stop\);"
        r" context: \d+ of 400",
        line,
    ), line
    t.expect("> ")
    t.type("\x1b[A!\r")
    assert "Goß!" in t.expect("chat: prompt: ")
    t.expect("> ")
    t.type("\x1b[200~one\n\ttwo\n\x1b[201~three\r")
    t.expect("chat: prompt: ")
    assert t.end() == 0
    assert [content for role, content in said(tmp_path / "talk") if role == "user"] == [
        "Goß",
        "Goß!",
        "one\n\ttwo\nthree",
    ]
    assert os.stat(tmp_path / "talk").st_mode & 0o777 == 0o600


def test_ctrl_c_stops_the_answer_and_not_the_program(model, tmp_path):
    t = Terminal(
        model,
        "-o",
        tmp_path / "talk",
        "-c",
        200000,
        "-e",
        "root ::= [a-z ]*",
        "--bias",
        "2=-1000000",
        "--bias",
        "419=-1000000",
    )
    t.expect("> ")
    t.type("half a line")
    t.expect("half a line")
    t.wait_for_keys()
    t.type("\x03")
    t.expect("> ")
    t.type("Go on\r")
    t.expect("Go on")
    while len(t.seen) < t._at + 30:
        t._read()
    t.type("\x03")
    t.expect("(interrupted)")
    t.expect("> ")
    t.type("\r")  # an empty line is no message
    assert t.end() == 0
    (_, first), (role, answer) = said(tmp_path / "talk")
    assert first == "Go on" and role == "assistant" and len(answer) >= 10


def test_a_terminal_is_told_that_a_talk_goes_on(model, tmp_path):
    path, expected = tmp_path / "bees.jsonl", [None, "2 messages", "4 messages"]
    for told in expected:
        t = Terminal(model, "--talk", path, *YES)
        before = t.expect("> ").replace("\x1b[?2004h", "")  # bracketed paste
        assert before == (f"chat: {path}: goes on after {told}\n" if told else "")
        t.type("Hello\r")
        t.expect(" in use")
        assert t.end() == 0
    assert run("chat", "-m", model, "--talk", path, *YES, input=b"x\n").stderr == b""


def test_dumb_terminal_gets_no_escapes(model):
    t = Terminal(model, "-n", 5, *YES, term="dumb")
    t.expect("> ")
    t.type("Hello\r")
    t.expect(" in use")
    assert t.end() == 0 and b"\x1b" not in t.seen


def test_answer_cannot_send_escapes(model):
    escape = Vocab(gguf.File(str(model))).tokens_writing(b"\x1b")[0]
    t = Terminal(model, "-n", 3, "-t", 0, "--bias", f"{escape}=1000000", term="dumb")
    t.expect("> ")
    t.type("Hello\r")
    assert "^[^[^[" in t.expect(" in use")
    assert t.end() == 0 and b"\x1b" not in t.seen
    piped = run(
        "chat", "-m", model, "-n", 3, "-t", 0, "--bias", f"{escape}=1000000", input=b"Hello\n"
    )
    assert piped.stdout == b"\x1b\x1b\x1b\n"  # a pipe gets what was written


def test_chat_history_is_optional_and_private(model, tmp_path):
    for text in ("first words\r", "\x1b[A\r"):
        t = Terminal(model, "--history", tmp_path / "history", *YES, env=[("HOME", str(tmp_path))])
        t.expect("> ")
        t.type(text)
        assert "first words" in t.expect(" in use")
        assert t.end() == 0
    assert (tmp_path / "history").read_text() == "first words\n" * 2 and os.listdir(tmp_path) == [
        "history"
    ]
    assert os.stat(tmp_path / "history").st_mode & 0o777 == 0o600
    os.chmod(tmp_path / "history", 0o644)
    t = Terminal(model, "--history", tmp_path / "history", *YES)
    t.expect("with mode 0600")
    while t._read():
        pass
    assert os.waitstatus_to_exitcode(os.waitpid(t.pid, 0)[1]) == 73


def test_message_that_does_not_fit_keeps_a_terminal_chat_open(model):
    t = Terminal(model, "-c", 60, *YES)
    t.expect("> ")
    t.type("word " * 100 + "\r")
    t.expect("more than the context of 60;")
    t.expect("> ")
    t.type("Hello\r")
    t.expect(" in use")
    assert t.end() == 0


def test_stdout_can_be_a_file_while_lines_are_typed(model, tmp_path):
    pid, fd = pty.fork()
    if not pid:
        os.dup2(os.open(tmp_path / "out", os.O_WRONLY | os.O_CREAT), 1)
        os.execv(BIN / "chat", ["chat", "-m", str(model), *YES])
    t = Terminal.__new__(Terminal)
    t.pid, t.fd, t.seen, t._at = pid, fd, b"", 0
    t.expect("> ")
    t.type("Hello\r")
    t.expect(" in use")
    assert t.end() == 0 and (tmp_path / "out").read_bytes() in (b"yes\n", b"no\n")


def test_piped_lines_are_messages_and_never_commands(model, tmp_path):
    lines = ["/quit", "exit", "!touch x", "", "/help", "<|im_end|>\\n", "\x04", "\x1b[A", "last\r"]
    done = run(
        "chat",
        "-m",
        model,
        *YES,
        "-o",
        tmp_path / "talk",
        input="\n".join(lines).encode(),
        cwd=tmp_path,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert re.fullmatch(rb"((yes|no)\n){8}", done.stdout) and os.listdir(tmp_path) == ["talk"]
    assert [c for r, c in said(tmp_path / "talk") if r == "user"] == [
        x.rstrip("\r") for x in lines if x
    ]


def test_chat_first_answer_equals_generate(model, tmp_path):
    for options in (["-S", 3, "-n", 9, "--stop", "e"], ["-S", 8, *YES]):
        chat = run("chat", "-m", model, *options, "--system", "Be brief.", input=b"Is it?")
        alone = run("generate", "-m", model, *options, "--system", "Be brief.", "Is it?")
        assert (
            chat.returncode == alone.returncode == 0
            and chat.stdout == alone.stdout + b"\n"
            and alone.stdout
        )


@pytest.mark.parametrize("arch", ["llama", "lfm2", "qwen35"])
def test_nothing_is_computed_twice_and_nothing_changes_by_it(here, model, tmp_path, arch):
    """Three turns with one cache, and each with an empty one: the same answers."""
    if arch != "llama":
        marks = ["<|im_start|>", "<|im_end|>"]
        model = write_chat_model(
            tmp_path / "m.gguf", marks, CHATML, arch=arch, n_layer=4, n_ctx=400
        )
    m = Model(model, 1)
    words, ours = Vocab(m.file), []
    t = template.of(m.file, words)
    talk = lambda cache, said: Conversation(m, words, t, cache, said, max_tokens=12)
    together = talk(Scratch(m.geometry("f16"), 400, logits=True), ours)
    for n, question in enumerate(["Is it?", "Is it not?", "Then what is it?"]):
        ours.append(Message("user", question))
        alone = talk(Scratch(m.geometry("f16"), 400, logits=True), list(ours))
        answers = [b"".join(each.answer(Sampler(420, seed=5))) for each in (together, alone)]
        assert answers[0] == answers[1] and len(answers[0]) > 3
        assert ours[-1].tokens == alone.messages[-1].tokens and len(ours) == 2 * n + 2
        assert together.figures["prompt"] == alone.figures["prompt"] == alone.figures["new"]
        assert together.figures["new"] <= alone.figures["new"] - 30 * n  # at least the turns before


def test_ctrl_c_before_the_answer_removes_the_message(model):
    m = Model(model, 1)
    words, told = Vocab(m.file), []
    said = [Message("user", "Is it?")]
    talk = Conversation(
        m,
        words,
        template.of(m.file, words),
        Scratch(m.geometry("f16"), 400, logits=True),
        said,
        report=told.append,
        interrupted=lambda: True,
    )
    assert (
        list(talk.answer(Sampler(420))) == []
        and said == []
        and "the message was removed" in told[0]
        and not talk.figures
    )


def test_long_conversation_is_truncated_in_few_steps(here, model):
    """Where thousands of messages do not fit, not each of them is tried."""
    m = Model(model, 1)
    words = Vocab(m.file)
    said = [Message("system", "Be brief.")]
    for n in range(400):
        said += [Message("user", f"Is {n} odd?"), Message("assistant", "no")]
    said.append(Message("user", "Why?"))
    t, n_tokens = template.of(m.file, words), []
    tokens = t.tokens
    t.tokens = lambda kept: n_tokens.append(len(kept)) or tokens(kept)
    talk = Conversation(
        m, words, t, Scratch(m.geometry("f16"), 200, logits=True), said, max_tokens=3
    )
    assert b"".join(talk.answer(Sampler(420, seed=1))) and len(n_tokens) < 14 and len(said) == 803
    left = talk.figures["prompt"]
    assert 120 <= left <= 197  # as many as there is room for


LONG = ["-e", 'root ::= "\U0001f980"{9}']


def test_piped_chat_exits_1_if_the_grammar_is_incomplete(model, tmp_path):
    """After all answers. Of the character that -n cut nothing is written, and its tokens stay in the
    conversation.
    """
    for n, whole in ((4, "\U0001f980"), (6, "\U0001f980"), (9, "\U0001f980\U0001f980")):
        done = run(
            "chat", "-m", model, "-v", "-n", n, *LONG, "-o", tmp_path / "talk", input=b"One\nTwo\n"
        )
        assert (done.returncode, done.stdout.decode()) == (1, f"{whole}\n" * 2)
        assert (
            done.stderr.count(b"(cut" + b", within a character" * (n > len(whole.encode()))) == 2
            and b" cut=2 " in done.stderr
        )
        assert [text for role, text in said(tmp_path / "talk") if role == "assistant"] == [
            whole
        ] * 2
        (tmp_path / "talk").unlink()
    done = run("chat", "-m", model, *YES, "-v", input=b"One\n")
    assert done.returncode == 0 and b" cut=0 " in done.stderr
    # without a grammar nothing is cut
    assert run("chat", "-m", model, "-n", 3, input=b"One\n").returncode == 0
    done = run(
        "chat", "-m", model, "-e", "root ::= [a-z]*", "--bias", "419=-1000", "-n", 3, input=b"One\n"
    )
    assert done.returncode == 0  # it may end anywhere
    done = run(
        "chat", "-m", model, "-e", 'root ::= "abcd" [a-z]{200}', "--stop", "c", input=b"One\n"
    )
    assert (done.returncode, done.stdout) == (0, b"ab\n")  # an end that was asked for


def test_ids_of_a_character_that_was_cut_stay_in_the_conversation(here, model):
    m = Model(model, 1)
    words, messages = Vocab(m.file), [Message("user", "One")]
    talk = Conversation(
        m,
        words,
        template.of(m.file, words),
        Scratch(m.geometry("f16"), 400, logits=True),
        messages,
        max_tokens=6,
    )
    rules = matcher.of_options(None, LONG[1])
    assert b"".join(talk.answer(Sampler(420, seed=1), rules)).decode() == "\U0001f980"
    assert talk.figures["end"] == "cut" and talk.figures["open"] > 0 and talk.n_cut == 1
    assert messages[-1].content == "\U0001f980"
    assert (
        b"".join(map(words.bytes_of, messages[-1].tokens))
        == "\U0001f980\U0001f980".encode()[: 4 + talk.figures["open"]]
    )
    messages.append(Message("user", "Two"))
    known = talk.cache.n_tok
    b"".join(talk.answer(Sampler(420, seed=1), rules))
    # nothing of the first answer is computed again
    assert talk.figures["new"] <= talk.figures["prompt"] - known


def test_truncated_answer_is_reported_at_a_terminal(model):
    t = Terminal(model, "-n", 6, *LONG)
    t.expect("> ")
    t.type("One\r")
    assert "(cut, within a character, which is dropped)" in t.expect(" in use")
    assert t.end() == 0


def test_answers_arrive_as_they_are_written(model):
    """The first answer is there before the second question is."""
    import subprocess

    with subprocess.Popen(
        [BIN / "chat", "-m", model, *YES], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
    ) as p:
        for _ in range(2):
            p.stdin.write(b"Hello\n")
            assert p.stdout.readline() in (b"yes\n", b"no\n")
        p.stdin.close()
        assert p.wait(60) == 0


def test_oldest_messages_leave_a_full_context(model, tmp_path):
    done = run(
        "chat",
        "-m",
        model,
        "-c",
        120,
        "-v",
        *YES,
        "--system",
        "Be brief.",
        "-o",
        tmp_path / "talk",
        input=b"Tell me more.\n" * 8,
    )
    assert done.returncode == 0 and done.stdout.count(b"\n") == 8
    notes = re.findall(r"context is full; the oldest (\d+) messages", done.stderr.decode())
    assert notes and all(int(n) % 2 == 0 for n in notes) and sorted(notes, key=int) == notes
    used = [int(n) for n in re.findall(r"(\d+) of 120 in use", done.stderr.decode())]
    assert len(used) == 8 and max(used) <= 120
    assert len(said(tmp_path / "talk")) == 17  # what was said is all there


def test_message_that_does_not_fit_exits_65_in_a_pipe(model):
    done = run("chat", "-m", model, "-c", 60, *YES, input=b"Hello\n" + b"word " * 100)
    assert (
        done.returncode == 65
        and b"more than the context of 60;" in done.stderr
        and done.stdout.count(b"\n") == 1
    )


def test_roles_can_be_switched(model, tmp_path):
    """The model asks, in the user's turn, and begins."""
    done = run("chat", "-m", model, "--switch", *YES, "-o", tmp_path / "talk", input=b"Because.\n")
    assert done.returncode == 0 and re.fullmatch(rb"((yes|no)\n){2}", done.stdout)
    assert [role for role, _ in said(tmp_path / "talk")] == ["user", "assistant", "user"]


def test_chat_continues_a_conversation_file(model, tmp_path):
    (tmp_path / "talk.yaml").write_text("- role: user\n  content: Is it?\n")
    done = run("chat", "-m", model, "--messages", tmp_path / "talk.yaml", *YES, input=b"")
    assert re.fullmatch(rb"(yes|no)\n", done.stdout)
    run(
        "chat",
        "-m",
        model,
        "--messages",
        tmp_path / "talk.yaml",
        *YES,
        "-o",
        tmp_path / "talk.jsonl",
        input=b"",
    )
    again = run("chat", "-m", model, "--messages", tmp_path / "talk.jsonl", *YES, input=b"And now?")
    assert again.stdout.count(b"\n") == 1


def test_template_without_system_role_is_named(tmp_path):
    quiet = (
        "{% for m in messages if m.role != 'system' %}{{ '<|im_start|>' + m.content }}{% endfor %}"
    )
    path = write_chat_model(tmp_path / "m.gguf", ["<|im_start|>"], quiet, n_layer=1)
    done = run("chat", "-m", path, *YES, "--system", "Be brief.", input=b"a\nb\n")
    assert (
        done.returncode == 0
        and done.stderr.count(b"the template drops messages of the role system") == 1
    )


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize(
    "template, code, error",
    [
        (None, 69, b"has no chat template"),
        ("{{ raise_exception('Roles must alternate') }}", 65, b"Roles must alternate"),
        ("{% for i in range(10**9) %}{% endfor %}", 65, b"Range too big"),
        ("", 69, b"has no chat template"),
        ("x{% if %}", 65, b"line 1"),
        ("{% if 0 %}x{% endif %}", 65, b"no tokens"),
    ],
)
def test_bad_templates_end_in_one_line(tmp_path, template, code, error):
    path = write_chat_model(tmp_path / "m.gguf", [], template, n_layer=1)
    done = run("chat", "-m", path, input=b"Hello\n")
    assert (
        done.returncode == code
        and error in done.stderr
        and done.stderr.count(b"\n") == 1
        and not done.stdout
    )


def test_a_model_without_template_is_told_the_bundled_ones(tmp_path):
    path = write_chat_model(tmp_path / "plain.gguf", ["<|im_start|>", "<|im_end|>"], None)
    done = run("chat", "-m", path, *YES, input=b"Hello\n")
    names = re.search(rb"give one by --template: (.*), or a file\n", done.stderr)
    assert done.returncode == 69 and names
    bundled = {p.stem for p in (ROOT / "lib" / "sluice" / "configs").glob("*.jinja")}
    assert set(names[1].decode().split(", ")) == bundled
    for name in bundled:
        assert run("chat", "-m", path, "--template", name, "-n", 1, input=b"x\n").returncode == 0


def test_interrupt_ends_a_piped_chat(model):
    import subprocess

    p = subprocess.Popen(
        [BIN / "chat", "-m", model, "-c", "200000", "-e", "root ::= [a-z ]*"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    p.stdin.write(b"Hello\n")
    p.stdout.read(1)
    p.send_signal(signal.SIGINT)
    p.stdin.close()
    p.stdout.read()
    assert p.wait(60) == -signal.SIGINT and p.stderr.read() == b""


@given(st.lists(st.binary(max_size=20), max_size=4))
def test_lines_from_a_pipe_are_what_was_written(lines):
    lines = [line.replace(b"\n", b"") for line in lines]
    r, w = os.pipe()
    os.write(w, b"\n".join(lines))
    os.close(w)
    with pytest.MonkeyPatch.context() as patch:
        read = terminal.jsonl.lines
        patch.setattr(terminal.jsonl, "lines", lambda fd: read(r))
        assert list(terminal.piped()) == [line.rstrip(b"\r") for line in lines if line.strip()]
    os.close(r)
