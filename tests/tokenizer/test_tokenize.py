"""The command `tokenize`: streams, flags, exit codes, the ring's live text, and texts made to be
slow.
"""

import os
import pty
import re
import resource
import subprocess
import threading

import pytest
from conftest import BIN, run
from gguf_writer import write_gguf
from spm_model import Model
from test_vocab import BYTES, SPECIAL, normal

TEXTS = [
    b"",
    b" ",
    b"  a ",
    b"ab\n\n",
    "é漢😀 a".encode(),
    b"\0\t\r\n",
    b"</s><s><unk>",
    b"a" * 999,
    "e\u0301\u0302".encode(),
]
BOS, EOS, A, AB, BLANK_A = 1, 2, 260, 262, 263


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("tokenize") / "m.gguf"
    write_gguf(
        path, Model(SPECIAL + BYTES + normal("\u2581", "a", "b", "ab", "\u2581a", "é")).gguf(), []
    )
    return path


def tokens(result):
    """The tokens of a complete stream."""
    assert result.returncode == 0 and result.stderr == b"", result.stderr
    head, *lines, end, last = result.stdout.split(b"\n")
    assert re.fullmatch(rb"#ids 1 model=[0-9a-f]{16} vocab=\d+", head) and (end, last) == (
        b"#end text",
        b"",
    )
    return [int(line) for line in lines]


def stream(model, numbers, end=b"#end text\n"):
    """A stream of tokens as `tokenize` would write it for this model."""
    head = run("tokenize", "-m", model).stdout.split(b"\n")[0]
    return head + b"\n" + b"".join(b"%d\n" % i for i in numbers) + end


@pytest.mark.parametrize(
    "flags, expected",
    [
        ([], [BOS, BLANK_A]),
        (["--no-bos"], [BLANK_A]),
        (["--bos"], [BOS, BLANK_A]),
        (["--eos"], [BOS, BLANK_A, EOS]),
        (["--no-prefix"], [BOS, A]),
        (["--no-bos", "--no-eos", "--no-prefix"], [A]),
    ],
)
def test_flags(model, flags, expected):
    assert tokens(run("tokenize", "-m", model, *flags, input=b"a")) == expected


def test_empty_text_is_the_begin_id_alone(model):
    assert tokens(run("tokenize", "-m", model)) == [BOS]
    assert tokens(run("tokenize", "-m", model, "--no-bos")) == []


def test_special_is_needed_for_control_tokens(model):
    assert EOS not in tokens(run("tokenize", "-m", model, input=b"a</s>"))
    assert tokens(run("tokenize", "-m", model, "--special", input=b"a</s>")) == [BOS, BLANK_A, EOS]


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize("flags", [[], ["--no-prefix"]])
@pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))
def test_decode_reverses(model, text, flags):
    there = run("tokenize", "-m", model, *flags, input=text)
    back = run("tokenize", "-m", model, "-d", *flags, input=there.stdout)
    assert (back.returncode, back.stdout, back.stderr) == (0, text, b"")


def test_decode_special_shows_control_tokens(model):
    numbers = stream(model, [BOS, BLANK_A, EOS])
    assert run("tokenize", "-m", model, "-d", input=numbers).stdout == b"a"
    assert run("tokenize", "-m", model, "-d", "--special", input=numbers).stdout == b"<s>a</s>"


def test_decode_ignores_the_second_column(model):
    assert (
        run(
            "tokenize", "-m", model, "-d", input=stream(model, [], b"%d\t-0.0132\n#end stop\n" % AB)
        ).stdout
        == b"ab"
    )


def byte(b):
    return 3 + b


def test_decode_writes_whole_characters_as_ids_arrive(model):
    head = stream(model, [], b"")
    child = subprocess.Popen(
        [BIN / "tokenize", "-m", model, "-d"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    send = lambda *numbers: os.write(child.stdin.fileno(), b"".join(b"%d\n" % i for i in numbers))
    os.write(child.stdin.fileno(), head)
    send(AB)
    assert os.read(child.stdout.fileno(), 100) == b"ab"
    send(byte(0xE2))
    send(byte(0x82))
    send(byte(0xAC))
    # one read: nothing came before the last byte
    assert os.read(child.stdout.fileno(), 100) == "€".encode()
    send(byte(0xF0), byte(0x9F))
    send(A)
    # can no longer become a character
    assert os.read(child.stdout.fileno(), 100) == "\ufffda".encode()
    send(byte(0xC3))
    os.write(child.stdin.fileno(), b"#end stop\n")
    assert child.communicate(timeout=60)[0] == b"" and child.returncode == 0


def test_decode_of_a_cut_stream_writes_what_came_and_exits_65(model):
    result = run("tokenize", "-m", model, "-d", input=stream(model, [AB, byte(0xE2)], b""))
    assert (result.returncode, result.stdout) == (65, b"ab")
    assert result.stderr.count(b"\n") == 1 and b"line 4" in result.stderr


@pytest.mark.parametrize(
    "parts, shown",
    [
        ([0x80], "\ufffd"),
        ([0xC0, 0xAF], "\ufffd\ufffd"),
        ([0xE0, 0x80, 0xAF], "\ufffd" * 3),
        ([0xED, 0xA0, 0x80], "\ufffd" * 3),
        ([0xF4, 0x90, 0x80, 0x80], "\ufffd" * 4),
        ([0xF5], "\ufffd"),
        ([0xFF, 0xFE], "\ufffd\ufffd"),
        ([0xE2, 0x82, 0x28], "\ufffd("),
        ([0xF0, 0x9F, 0xC3, 0xA9], "\ufffdé"),
        ([0xF0, 0x9F, 0xA6, 0x80], "\U0001f980"),
        ([0xC3], ""),
        ([0xF0, 0x9F, 0xA6], ""),
        ([0xED, 0xA0], "\ufffd\ufffd"),
    ],
)
@pytest.mark.quick_cases(2)
def test_decode_writes_valid_utf8_to_the_last_byte(model, parts, shown):
    """Between two letters all at once, and at the end; iconv has nothing to say about it."""
    for numbers, text in (
        (parts, shown),
        ([A, *parts], "a" + shown),
        ([*parts, A], bytes([*parts, 97]).decode("utf-8", "replace")),
    ):
        numbers = [n if n == A else byte(n) for n in numbers]
        result = run("tokenize", "-m", model, "-d", input=stream(model, numbers))
        assert (result.returncode, result.stdout.decode(), result.stderr) == (0, text, b"")
        assert (
            subprocess.run(
                ["iconv", "-f", "utf-8"], input=result.stdout, capture_output=True
            ).returncode
            == 0
        )


@pytest.mark.full
def test_decode_ends_with_1_where_the_text_was_cut(model):
    for end, code in ((b"cut", 1), (b"length", 0), (b"full", 0), (b"stop", 0), (b"text", 0)):
        result = run(
            "tokenize", "-m", model, "-d", input=stream(model, [AB, byte(0xE2)], b"#end %s\n" % end)
        )
        assert (result.returncode, result.stdout, result.stderr) == (code, b"ab", b"")


def test_decode_does_not_drop_a_second_stream_in_silence(model):
    one = stream(model, [A])
    for more in (one, b"#end cut\n", b"x"):
        done = run("tokenize", "-m", model, "-d", input=one + more)
        assert (done.returncode, done.stdout) == (65, b"a")
        assert b'line 4: there is more after "#end"' in done.stderr


def at_terminal(*argv, input):
    """What a command writes to a terminal, with its status."""
    leader, follower = pty.openpty()
    with subprocess.Popen([BIN / argv[0], *argv[1:]], stdin=subprocess.PIPE, stdout=follower) as p:
        os.close(follower)
        p.stdin.write(input)
        p.stdin.close()
        out = b""
        while True:
            try:
                out += os.read(leader, 1 << 16)
            except OSError:
                break
        os.close(leader)
    return p.returncode, out.replace(b"\r\n", b"\n")


def test_decode_shows_controls_to_a_terminal_and_writes_them_to_a_pipe(model):
    numbers = stream(
        model,
        [
            A,
            byte(0x1B),
            byte(0x5B),
            byte(0x07),
            byte(0xC2),
            byte(0x9B),
            byte(0x0A),
            byte(0xE2),
            byte(0x80),
            byte(0xAE),
            byte(0xFF),
            A,
            byte(0xF0),
        ],
    )
    assert (
        run("tokenize", "-m", model, "-d", input=numbers).stdout
        == "a\x1b[\x07\x9b\n\u202e\ufffda".encode()
    )
    assert at_terminal("tokenize", "-m", model, "-d", input=numbers) == (
        0,
        "a^[[^G\\x9b\n\\u202e\ufffda".encode(),
    )
    assert at_terminal("tokenize", "-m", model, "-d", input=stream(model, [A], b"#end cut\n")) == (
        1,
        b"a",
    )


def test_verbose_reports_one_line(model):
    result = run("tokenize", "-v", "-m", model, input=b"a b")
    assert re.fullmatch(rb"tokenize: tokens=4 bytes=3 ms=\d+\.\d\n", result.stderr)
    result = run("tokenize", "-v", "-d", "-m", model, input=result.stdout)
    assert re.fullmatch(rb"tokenize: tokens=4 bytes=3 open=0 ms=\d+\.\d\n", result.stderr)
    result = run(
        "tokenize", "-v", "-d", "-m", model, input=stream(model, [A, byte(0xE2), byte(0x82)])
    )
    assert re.fullmatch(rb"tokenize: tokens=3 bytes=1 open=2 ms=\d+\.\d\n", result.stderr)


def bad_input(model):
    """(flags, stdin, exit code, what the line says)"""
    good = stream(model, [A])
    head = good.split(b"\n")[0]
    d = ["-m", model, "-d"]
    return [
        ([], b"", 64, "--model"),
        (["-m", model, "extra"], b"", 64, "extra"),
        (["-m", model, "-x"], b"", 64, "-x"),
        ([*d, "--bos"], good, 64, "--bos"),
        (["-m", model.parent / "none.gguf"], b"", 66, "none.gguf"),
        (["-m", model.parent], b"", 65, "not a regular file"),
        (["-m", "/dev/null"], b"", 65, "/dev/null"),
        (["-m", BIN / "tokenize"], b"", 65, "GGUF"),
        (["-m", model], b"a" * ((16 << 20) + 1), 65, "16 MiB"),
        (d, b"", 65, "empty"),
        (d, b"260\n", 65, "line 1"),
        (d, head + b"\n", 65, "line 2"),
        (d, good.replace(b"#ids 1", b"#ids 2"), 65, "line 1"),
        (d, re.sub(rb"model=\w+", b"model=" + b"0" * 16, good), 65, "model"),
        (d, re.sub(rb"vocab=\d+", b"vocab=7", good), 65, "vocabulary"),
        (d, stream(model, [99999]), 65, "line 2"),
        (d, stream(model, [], b"-1\n#end text\n"), 65, "line 2"),
        (d, stream(model, [], b"4294967297\n#end text\n"), 65, "line 2"),
        (d, stream(model, [], b"x\n#end text\n"), 65, "line 2"),
        (d, stream(model, [], b"\xff\xfe\n#end text\n"), 65, "line 2"),
        (d, stream(model, [A], b"#end\n"), 65, "line 3"),
        (d, stream(model, [A], b"#stop\n"), 65, "line 3"),
        (d, stream(model, [A], b"1" * 5000), 65, "too long"),
        (d, b"LOGITS" + bytes(99), 65, "line 1"),
    ]


@pytest.mark.full
def test_bad_input_is_one_line_and_a_code(model):
    environment = {k: v for k, v in os.environ.items() if k != "MODEL"}
    for flags, data, code, says in bad_input(model):
        result = run("tokenize", *flags, input=data, env=environment)
        assert result.returncode == code, (flags, data[:40], result.stderr)
        assert result.stderr.count(b"\n") == 1 and result.stderr.startswith(b"tokenize: "), (
            result.stderr
        )
        assert says in result.stderr.decode(), result.stderr


@pytest.mark.parametrize("flags", [[], ["-d"]])
def test_full_disk_and_closed_stdout_exit_74(model, flags):
    data = stream(model, [A]) if flags else b"a"
    with open("/dev/full", "wb") as full:
        result = run("tokenize", "-m", model, *flags, input=data, stdout=full)
    assert result.returncode == 74 and result.stderr.count(b"\n") == 1
    closed = ["sh", "-c", '"$@" >&-', "sh", BIN / "tokenize", "-m", model, *flags]
    result = subprocess.run(closed, input=data, stderr=subprocess.PIPE, timeout=60)
    assert result.returncode == 74 and result.stderr.count(b"\n") == 1


def test_model_from_the_environment(model):
    assert tokens(run("tokenize", input=b"a", env={**os.environ, "MODEL": str(model)})) == [
        BOS,
        BLANK_A,
    ]


@pytest.mark.full
def test_ids_of_a_long_text_take_little_memory(model):
    """A byte of what is not UTF-8 may become three tokens; writing them takes no more than they do."""

    def peak(n):
        with subprocess.Popen(
            [BIN / "tokenize", "-m", model], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as p:
            threading.Thread(target=lambda: (p.stdin.write(b"\xff" * n), p.stdin.close())).start()
            lines = sum(1 for _ in p.stdout)
            _, status, usage = os.wait4(p.pid, 0)
            p.returncode = status
        assert status == 0 and lines >= n
        return usage.ru_maxrss << 10, lines

    (small, few), (large, many) = peak(1 << 16), peak(1 << 21)
    assert (large - small) / (many - few) < 45, (large, many)


SLOW = {
    "a": b"a",
    "blank": b" ",
    "newline": b"\n",
    "nul": b"\0",
    "ab": b"ab",
    "line": b"_",
    "marker": b"<start_of_turn",
    "less": b"<",
    "cjk": "漢".encode(),
    "combining": "\u0301".encode(),
    "broken": b"\xe2\x96",
    "words": b"once upon a time ",
}


@pytest.mark.parametrize("text", SLOW)
@pytest.mark.full
def test_megabyte_of_any_text_round_trips(datafile, text):
    """Quadratic time would be hours, recursion would not fit the stack, memory has a limit: then
    back again.
    """

    def limits():
        resource.setrlimit(resource.RLIMIT_STACK, (1 << 20, 1 << 20))
        resource.setrlimit(resource.RLIMIT_AS, (400 << 20, 400 << 20))

    path = datafile("vocab/ggml-vocab-llama-spm.gguf")
    data = SLOW[text] * ((1 << 20) // len(SLOW[text]))
    there = run("tokenize", "-m", path, input=data, preexec_fn=limits)
    assert len(tokens(there)) > 1 << 13
    back = run("tokenize", "-m", path, "-d", input=there.stdout, preexec_fn=limits)
    assert back.returncode == 0
    assert back.stdout.decode() == ("\ufffd" * len(data) if text == "broken" else data.decode())
