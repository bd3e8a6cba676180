"""What a talk (chat --talk) keeps if another chat wants it, if the disk is full, and if the chat is
interrupted.
"""

import json
import os
import re
import signal
import subprocess
from pathlib import Path

import pytest
from chat_model import write_chat_model
from conftest import BIN, ROOT
from forked import run

from sluice.chat import talk as talks
from sluice.faults import Error

CHATML = (ROOT / "configs" / "chatml.jinja").read_text()
YES = ["-e", 'root ::= "yes" | "no"']
ENDLESS = ["-c", 200000, "-e", "root ::= [a-z ]*", "--bias", "2=-inf", "--bias", "419=-inf"]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("kept") / "chat.gguf"
    return write_chat_model(path, ["<|im_start|>", "<|im_end|>"], CHATML, n_layer=2, n_ctx=400)


def start(model, *options, cwd, **streams):
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE) | streams
    return subprocess.Popen(
        [BIN / "chat", "-m", model, "-S", "5", *map(str, options)],
        bufsize=0,
        cwd=cwd,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        **pipes,
    )


def say(chat, text):
    """Its answer to a message."""
    chat.stdin.write(text + b"\n")
    return chat.stdout.readline()


def said(path):
    return [(m["role"], m["content"]) for m in map(json.loads, path.read_bytes().splitlines())]


def messages(path):
    return [text for role, text in said(path) if role == "user"]


# one chat at a time


@pytest.mark.parametrize("begin", ["new", "empty", "of an earlier run"])
@pytest.mark.parametrize("n_answers", [0, 1, 2])
def test_a_second_chat_is_refused_and_loses_nothing(model, tmp_path, begin, n_answers):
    """Before the first message, and after answers, each of which has replaced the file."""
    talk, wanted, locks = tmp_path / "two.jsonl", [], Path("/proc/locks")
    if begin == "empty":
        talk.touch()
    elif begin == "of an earlier run":
        run("chat", "-m", model, *YES, "--talk", talk, input=b"start\n")
        wanted.append("start")
    with start(model, *YES, "--talk", "two.jsonl", "-v", cwd=tmp_path) as first:
        for n in range(n_answers):
            assert say(first, b"message %d" % n)
            wanted.append(f"message {n}")
        if not n_answers:  # it has the lock before it waits for a message
            wait_for(lambda: talk.exists() and f":{talk.stat().st_ino} " in locks.read_text())
        wait_for(lambda: messages(talk) == wanted)
        before = talk.read_bytes()
        second = run("chat", "-m", model, "--talk", "two.jsonl", input=b"mine\n", cwd=tmp_path)
        assert (second.returncode, second.stdout) == (75, b"")
        assert second.stderr == (
            b"chat: two.jsonl: another chat has it open; end that one, or give another FILE\n"
        )
        assert talk.read_bytes() == before
        if wanted:  # who only reads the talk is not locked out
            reader = run("generate", "-m", model, "-n", 1, "--messages", talk)
            assert reader.returncode == 0, reader.stderr
        assert say(first, b"the last")
        first.stdin.close()
        assert first.wait(60) == 0, first.stderr.read()
    assert run("chat", "-m", model, *YES, "--talk", talk, input=b"mine\n").returncode == 0
    assert messages(talk) == [*wanted, "the last", "mine"]


def wait_for(condition):
    for _ in range(6000):
        if condition():
            return
        signal.sigtimedwait([], 0.01)
    raise AssertionError("it does not come")


def is_waiting(pid):
    """Whether the process sleeps, and did so for a moment."""
    at = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for _ in range(2)]
    return all(fields[0] == "S" for fields in at) and at[0][11:13] == at[1][11:13]


def is_locked(path):
    try:
        with talks.Lock(str(path)):
            return False
    except Error as e:
        assert e.code == 75
        return True


def test_chats_that_begin_a_talk_together_lose_no_message(model, tmp_path):
    """Each has all its messages in the talk, or ends with 75 and has none there."""
    chats = []
    for n in range(6):
        with open(tmp_path / f"{n}", "wb") as f:
            f.write(b"%d a\n%d b\n" % (n, n))
        with open(tmp_path / f"{n}") as f:
            chats.append(start(model, *YES, "--talk", "t", cwd=tmp_path, stdin=f))
    texts = [chat.communicate(timeout=60) for chat in chats]
    ended = [n for n, chat in enumerate(chats) if chat.returncode == 0]
    assert {chat.returncode for chat in chats} <= {0, 75} and ended, texts
    found = messages(tmp_path / "t")
    assert sorted(found) == sorted(f"{n} {c}" for n in ended for c in "ab")


def test_the_lock_goes_with_its_file(tmp_path):
    """However often the file is replaced, and also where one waits with the replaced file."""
    path = tmp_path / "t"
    with talks.Lock(str(path)) as lock:
        for n in range(3):
            replaced = os.open(path, os.O_RDWR)
            lock.take(talks.files.replace(str(path), []))
            assert not os.path.samestat(os.fstat(replaced), os.stat(path))
            assert is_locked(path)
            os.close(replaced)
    assert not is_locked(path)
    assert len(os.listdir(tmp_path)) == 1


@pytest.mark.parametrize(
    "options, status", [([], 0), (["--template", "none"], 66), (["-e", "root ::= ("], 65)]
)
def test_a_chat_without_messages_leaves_no_talk(model, tmp_path, options, status):
    done = run("chat", "-m", model, *options, "--talk", tmp_path / "t", cwd=tmp_path)
    assert done.returncode == status and os.listdir(tmp_path) == []


def test_a_killed_chat_holds_no_lock(model, tmp_path):
    with start(model, *YES, "--talk", "t", cwd=tmp_path) as chat:
        assert say(chat, b"one")
        wait_for((tmp_path / "t").read_bytes)
        chat.kill()
    assert run("chat", "-m", model, *YES, "--talk", tmp_path / "t", input=b"two\n").returncode == 0
    assert messages(tmp_path / "t") == ["one", "two"]


def test_what_does_not_exist_cannot_go_on(model, tmp_path):
    done = run("chat", "-m", model, "--talk", "new.jsonl", "--continue", cwd=tmp_path)
    assert (done.returncode, done.stdout, os.listdir(tmp_path)) == (66, b"", [])
    assert done.stderr == (
        b"chat: new.jsonl: No such file or directory: --continue needs an answer to go on with\n"
    )


# interrupts


@pytest.mark.parametrize("n_before", [0, 2])
@pytest.mark.parametrize("ended", ["chat", "chat and reader", "reader"])
def test_a_chat_that_is_broken_off_keeps_what_was_said(model, tmp_path, n_before, ended):
    """Of a pipe as at a terminal, also if Ctrl-C ended the reader of the answers, too."""
    files, shown = ["--talk", "talk", "-o", "out"], b""
    if n_before:
        run("chat", "-m", model, *YES, *files, input=b"one\n" * n_before, cwd=tmp_path)
    with start(model, *ENDLESS, *files, cwd=tmp_path) as chat:
        chat.stdin.write(b"the last\nnever read\n")
        while len(shown) < 20:
            shown += chat.stdout.read(20)
        chat.send_signal(signal.SIGSTOP)
        if ended != "reader":
            chat.send_signal(signal.SIGINT)
        if ended != "chat":
            chat.stdout.close()
        chat.send_signal(signal.SIGCONT)
        if ended == "chat":
            shown += chat.stdout.read()
        assert chat.wait(60) == (74 if ended == "reader" else -signal.SIGINT)
        assert chat.stderr.read() == b""
    assert said(tmp_path / "talk") == said(tmp_path / "out")
    *before, asked, (role, answer) = said(tmp_path / "talk")
    assert len(before) == 2 * n_before and asked == ("user", "the last") and role == "assistant"
    shown = shown.removesuffix(b"\n")
    assert answer.encode() == shown if ended == "chat" else answer.encode().startswith(shown)
    # and it goes on
    done = run("chat", "-m", model, "-n", 3, *files[:2], "--continue", cwd=tmp_path)
    assert done.returncode == 0 and said(tmp_path / "talk")[-1][1].startswith(answer)


@pytest.mark.parametrize("kept", ["talk", "out"])
def test_an_interrupt_between_messages_keeps_what_was_said(model, tmp_path, kept):
    option = "--talk" if kept == "talk" else "-o"
    with start(model, *YES, option, kept, cwd=tmp_path) as chat:
        for _ in range(2):
            assert say(chat, b"Hello")
        wait_for(lambda: is_waiting(chat.pid))
        chat.send_signal(signal.SIGINT)
        assert chat.wait(60) == -signal.SIGINT and chat.stderr.read() == b""
    assert [role for role, _ in said(tmp_path / kept)] == ["user", "assistant"] * 2


def test_an_ignored_interrupt_stays_ignored(model, tmp_path):
    """As that of a job in the background of sh."""
    command = [BIN / "chat", "-m", model, *map(str, ENDLESS), "-n", "400", "--talk", "t"]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=tmp_path,
        bufsize=0,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
    ) as chat:
        chat.stdin.write(b"Hello\n")
        chat.stdin.close()
        shown = chat.stdout.read(1)
        chat.send_signal(signal.SIGINT)
        shown += chat.stdout.read()
        assert chat.wait(60) == 0
    ids = json.loads((tmp_path / "t").read_bytes().splitlines()[1])["tokens"]["ids"]
    assert len(ids) == 400 and shown


# a full disk


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 2 MB."""
    disk = tmp_path / "small"
    disk.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=2m", "none", disk]
    if os.geteuid() or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("mount is not permitted: run as root")
    yield disk
    subprocess.run(["umount", "-l", disk], check=True)


@pytest.mark.parametrize("is_first", [True, False])
def test_a_full_disk_costs_no_answer(model, small_disk, is_first):
    """Whatever is free, the answer comes, and is kept if it fits; the state is dispensable."""
    talk, outcomes = small_disk / "t.jsonl", set()
    ask = lambda text: run(
        *("chat", "-m", model, "-S", 5, "-n", 60, "--talk", "small/t.jsonl"),
        input=text,
        cwd=small_disk.parent,
    )
    begin = {}
    if not is_first:
        assert ask(b"Hello\n").returncode == 0
        begin = {path: path.read_bytes() for path in small_disk.iterdir()}
    wanted = ask(b"And now?\n")
    whole = said(talk)
    assert wanted.returncode == 0 and not wanted.stderr
    for n_free in [0, 1, *range(2, 300, 24)]:  # blocks
        for path in small_disk.iterdir():
            path.unlink()
        for path, data in begin.items():
            path.write_bytes(data)
            path.chmod(0o600)
        fill(small_disk, n_free)
        done = ask(b"And now?\n")
        assert done.stdout == wanted.stdout, (n_free, done.stderr)
        if done.returncode:
            assert done.returncode == 75
            assert done.stderr == (
                b"chat: small/t.jsonl: cannot write: No space left on device\n"
            ), n_free
            assert not talk.exists() or talk.read_bytes() == begin.get(talk, b"")
            outcomes.add("nothing kept")
            continue
        assert said(talk) == whole
        if done.stderr:
            assert re.fullmatch(
                rb"chat: small/t\.jsonl\.kv: [a-z: ]*: No space left on device;"
                rb" the talk is kept without it\n",
                done.stderr,
            ), done.stderr
        outcomes.add("kept without it" if done.stderr else "kept")
    assert outcomes == {"nothing kept", "kept without it", "kept"}


def test_a_full_disk_costs_no_answer_that_begins_with_a_cached_prompt(model, small_disk):
    ask = lambda n, cache: run(
        *("chat", "-m", model, "-S", 5, "-n", n, "-c", 1000, "--kv", "f32", "--cache", cache),
        *("--bias", "2=-inf", "--bias", "419=-inf", "--system", "Be brief. " * 15),
        input=b"And now?\n",
    )
    wanted = ask(600, small_disk.parent / "elsewhere")
    ask(1, small_disk / "cache")
    assert wanted.returncode == 0 and any((small_disk / "cache").glob("*.kv"))
    fill(small_disk, 0)
    done = ask(600, small_disk / "cache")
    assert (done.returncode, done.stdout, done.stderr) == (0, wanted.stdout, wanted.stderr)


def fill(disk, n_free):
    """Leave `n_free` blocks on `disk`."""
    with open(disk / "ballast", "wb", buffering=0) as f:
        for block in (1 << 16, 1 << 12):
            try:
                while f.write(bytes(block)) == block:
                    pass
            except OSError:
                pass
        size = f.tell()
        f.truncate(max(0, size - (n_free << 12)))
