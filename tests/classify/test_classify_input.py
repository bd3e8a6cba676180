"""classify and what it is given: any bytes, too much of them, bad calls, too little memory,
mail.
"""

import json
import os
import re
import resource
import signal
import subprocess
import sys
import threading

import pytest
from chat_model import write_chat_model
from classify_call import TEXT, classify, jsonl, opened, question, run_measured, write_question
from conftest import START, run, shell

from sluice.classify.classifier import Classifier
from sluice.faults import Error
from sluice.texts import inputs

pytestmark = pytest.mark.usefixtures("home")


# Bad input.


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize(
    "data",
    [
        b"\0" * 5000,
        bytes(range(256)) * 20,
        b"\xff\xfe\xfd",
        b"\n",
        b" ",
        b"\x1b[2J<s></s>[INST]" * 30,
        b"\xed\xa0\x80",
    ],
)
def test_whatever_the_bytes_there_is_a_verdict(models, tmp_path, data):
    q = write_question(tmp_path / "q.yaml", input={"kind": "text", "head_ids": 100, "tail_ids": 30})
    done = classify(models, "-q", q, input=data)
    assert done.returncode in (0, 1) and done.stderr == b""


def test_of_a_long_text_both_ends_are_looked_at(tmp_path):
    n = inputs.END_BYTES
    for size in (0, 1, n, 2 * n, 2 * n + 1, 5 * n + 12345):
        data = os.urandom(size)
        want = (data, None, None) if size <= 2 * n else (data[:n], data[-n:], None)
        # in odd pieces
        with subprocess.Popen(
            ["sh", "-c", "dd bs=7001 2>/dev/null"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as p:
            writer = threading.Thread(target=lambda: (p.stdin.write(data), p.stdin.close()))
            writer.start()
            read = inputs.read(p.stdout.fileno(), False)
            assert len(read) <= 2 * n + 1
            assert inputs.text(read, False, False) == inputs.text(data, False, False) == want, size
            writer.join()


def test_text_with_a_skipped_middle_is_truncated(models, monkeypatch):
    """Also where what was read of it has fewer tokens than are kept."""
    c = opened(models, input={"kind": "text", "head_ids": 1000, "tail_ids": 500})
    assert not c.ask(TEXT).cut
    monkeypatch.setattr(inputs, "END_BYTES", 20)
    assert c.ask(TEXT).cut and not c.ask(TEXT[:40]).cut


def test_short_head_or_tail_is_not_extended(models):
    """Folded, a hundred kilobytes of blanks are nothing: the tokens of a head that has few are not the
    tail's first ones.
    """
    c = opened(models, input={"kind": "text", "fold": True, "head_ids": 200, "tail_ids": 50})
    blanks, words = b" " * inputs.END_BYTES, b"The meeting has been moved. " * 10_000
    n = {text: len(c.prompt.input_tokens(text)[0]) for text in (b"begin", b"end")}
    around = len(c.prompt.before) + len(c.prompt.after)
    for data, n_tokens in (
        (b"begin" + blanks + words, n[b"begin"] + 50),
        (words + blanks + b"end", 200 + n[b"end"]),
        (b"begin" + 3 * blanks + b"end", n[b"begin"] + n[b"end"]),
        (blanks + words, 50),
        (words, 250),
    ):
        v = c.ask(data)
        assert (v.n_tokens, v.cut) == (around + n_tokens, True), data[:10]
    behind_the_seam = lambda mark: b"begin" + blanks + mark * 50 + words[: inputs.END_BYTES - 50]
    assert c.ask(behind_the_seam(b"a")).log_p == c.ask(behind_the_seam(b"b")).log_p


@pytest.mark.full
def test_too_little_memory_gives_no_other_verdict(models, tmp_path):
    """At whatever step it ends, libraries that are loaded late among them."""
    mail = (
        b"From: a@b.example\nContent-Type: text/html\n\n<p style='display:none'>hidden</p><p>The"
        b" numbers.</p>"
    )
    q = write_question(
        tmp_path / "q.yaml", input={"kind": "mail", "fold": True, "head_ids": 200, "tail_ids": 50}
    )
    want, seen, mib = classify(models, "-q", q, "-j", "1", input=mail), set(), 6
    while want.returncode not in seen and mib < 1024:
        mib += 2 if 75 in seen else 1
        limit = lambda: resource.setrlimit(resource.RLIMIT_AS, (mib << 20, mib << 20))
        if subprocess.run(
            [sys.executable, "-I", "-c", "import os"], preexec_fn=limit, capture_output=True
        ).returncode:
            # Python itself has too little: its status is 1, and there is no line on stdout
            continue
        done = classify(models, "-q", q, "-j", "1", input=mail, preexec_fn=limit)
        assert (
            done.returncode == 75
            and not done.stdout
            or (done.returncode, done.stdout) == (want.returncode, want.stdout)
        ), (mib, done)
        seen.add(done.returncode)
    assert seen == {75, want.returncode}


def test_model_changed_meanwhile_gives_no_verdict(tmp_path):
    c = Classifier(question(), write_chat_model(tmp_path / "m.gguf"))
    c.ask(TEXT)
    os.utime(tmp_path / "m.gguf", (1, 1))
    with pytest.raises(Error, match="was changed while it was in use") as e:
        c.ask(TEXT)
    assert e.value.code == 74


def test_classify_reads_a_hundred_megabytes_in_little_memory(models, tmp_path):
    q = write_question(tmp_path / "q.yaml")
    with open(tmp_path / "large", "wb") as f:
        f.write(TEXT)
        f.seek(100 << 20)
        f.write(TEXT)
    with open(tmp_path / "small", "wb") as f:
        f.write(TEXT)
    with open(tmp_path / "large") as large, open(tmp_path / "small") as small:
        out, peak = run_measured(models, ["-q", q], stdin=large)
        _, usual = run_measured(models, ["-q", q], stdin=small)
    assert out and peak < usual + (100 << 10)


BAD = {  # what is wrong: (arguments, input, code, words)
    "empty": ([], b"", 65, "standard input: no text"),
    "no such file": (["nowhere"], b"", 66, "nowhere: No such file"),
    "directory on stdin": (["-f", "."], b"", 65, ".: is a directory"),
    "binary file": (["noise"], b"", 65, "noise: is binary, not text; --text"),
    "no such question": (["-q", "nothing"], TEXT, 66, "unknown question"),
    "no such question file": (["-q", "nowhere.yaml"], TEXT, 66, "nowhere.yaml: No such file"),
    "question is a directory": (["-q", "./."], TEXT, 65, "is a directory"),
    "question is noise": (["-q", "./noise"], TEXT, 65, "noise"),
    "no such model": (["-m", "nowhere.gguf"], TEXT, 66, "nowhere.gguf: No such file"),
    "model is noise": (["-m", "noise"], TEXT, 65, "noise: "),
    "long and jsonl": (["--long", "--jsonl"], TEXT, 64, "--long"),
    "long and json": (["--long", "--json"], TEXT, 64, "--long"),
    "mass alone": (["--mass"], TEXT, 64, "--mass"),
    "threads": (["-j", "0"], TEXT, 64, "-j"),
    "unknown option": (["--spam"], TEXT, 64, "--spam"),
    "prompt too long": (["-q", "./long.yaml"], TEXT, 65, "more than the context of"),
    "control token": (["-q", "./user.yaml"], TEXT, 65, '"<|nobody|>"'),
}


@pytest.mark.quick_cases(8)
@pytest.mark.parametrize("what", BAD)
def test_bad_calls_end_in_one_line_and_their_code(models, tmp_path, what):
    argv, data, code, words = BAD[what]
    write_question(tmp_path / "q.yaml")
    write_question(tmp_path / "long.yaml", prompt=[{"text": "too long " * 5000}, "input"])
    write_question(tmp_path / "user.yaml", prompt=[{"special": "<|nobody|>"}, "input"])
    (tmp_path / "noise").write_bytes(bytes((i * i * 2654435761 >> 13) & 255 for i in range(5000)))
    argv = argv if "-q" in argv else ["-q", "./q.yaml", *argv]
    done = classify(models, *argv, input=data, cwd=tmp_path)
    err = done.stderr.decode()
    assert done.returncode == code and done.stdout == b"", err
    assert (
        words in err
        and err.startswith("classify: ")
        and err.count("\n") == 1
        and "Traceback" not in err
    )


def test_missing_module_gives_no_verdict():
    done = subprocess.run(
        [sys.executable, "-I", "-S", START, "classify"], capture_output=True, input=TEXT
    )
    assert done.returncode == 70 and b"ModuleNotFoundError" in done.stderr


WATCH = """
import runpy, signal, sys
class Finder:
    def find_spec(name, path=None, target=None):
        if name == "click" or name.startswith("sluice.") and name != "sluice.cli":
            print(name, signal.getsignal(signal.SIGINT).name)
sys.meta_path.insert(0, Finder)
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.mark.parametrize("tool", ["classify", "mail-text"])
def test_interrupt_while_a_command_loads_is_silent(tool):
    done = subprocess.run(
        [sys.executable, "-c", WATCH, START, tool, "--version"],
        capture_output=True,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    *lines, version = done.stdout.splitlines()
    assert version.startswith(f"{tool} (sluice)")
    seen = dict(line.split() for line in lines)
    assert {"click", "sluice.stream"} <= set(seen) and set(seen.values()) == {"SIG_DFL"}, done


def test_no_model_is_a_usage_error(tmp_path):
    done = run("classify", "-q", "urgent", input=TEXT)
    assert done.returncode == 64 and b"give -m FILE or set $MODEL" in done.stderr


def test_full_disk_and_closed_streams_give_no_verdict(models, tmp_path):
    write_question(tmp_path / "q.yaml")
    for script, words in (
        ("classify -q ./q.yaml <text >/dev/full", b"No space left"),
        ("classify -q ./q.yaml <text >&-", b"Bad file descriptor"),
        ("classify -q ./q.yaml <&-", b"standard input: Bad file descriptor"),
    ):
        (tmp_path / "text").write_bytes(TEXT)
        done = shell(script, tmp_path, MODEL=str(models / "llama.gguf"))
        assert done.returncode == 74 and words in done.stderr and done.stderr.count(b"\n") == 1, (
            script
        )


# Mail.

LETTER = (
    "From: =?iso-8859-1?q?J=F6rg?= <j@example.org>\r\nSubject: Minutes\r\nContent-Type: text/plain;"
    " charset=iso-8859-1\r\n\r\nGr\u00fc\u00dfe, the meeting is moved to 12:30.\r\n"
).encode("latin-1")
ABOUT_MAIL = {"input": {"kind": "mail", "fold": True, "head_ids": 384, "tail_ids": 128}}


def test_classify_mail_reads_the_output_of_mail_text(models, tmp_path):
    mail, text = (
        write_question(tmp_path / "mail.yaml", **ABOUT_MAIL),
        write_question(tmp_path / "text.yaml"),
    )
    folded = run("mail-text", "--fold", input=LETTER).stdout
    assert (
        folded
        == "From: j\u00f6rg < j @ example . org >\nSubject: minutes\n\ngr\u00fc\u00dfe , the"
        " meeting is moved to 00 : 00 .".encode()
    )
    as_mail, as_text = (
        json.loads(classify(models, "-q", q, "--json", input=data).stdout)
        for q, data in ((mail, LETTER), (text, folded))
    )
    assert (
        as_mail["scores"] == as_text["scores"]
        and as_mail["reasons"] == []
        and "reasons" not in as_text
    )
    plain = run("mail-text", input=LETTER).stdout
    forced = json.loads(classify(models, "-q", text, "--mail", "--json", input=LETTER).stdout)
    assert (
        forced["scores"]
        == json.loads(classify(models, "-q", text, "--json", input=plain).stdout)["scores"]
        != as_mail["scores"]
    )


def test_texts_are_folded_where_the_question_says_so(models, tmp_path):
    fold, text = (
        write_question(
            tmp_path / "fold.yaml",
            input={"kind": "text", "fold": True, "head_ids": 99, "tail_ids": 9},
        ),
        write_question(tmp_path / "text.yaml"),
    )
    scores = lambda q, data: json.loads(classify(models, "-q", q, "--json", input=data).stdout)[
        "scores"
    ]
    assert (
        scores(fold, b"HELLO,  World\n123456789!!!!\xff")
        == scores(text, "hello , world 00000 ! ! \ufffd".encode())
        != scores(text, b"HELLO,  World")
    )


@pytest.mark.full
def test_lines_hold_whole_mails_as_latin_1(models, tmp_path):
    q = write_question(tmp_path / "q.yaml", **ABOUT_MAIL)
    raw = [LETTER, b"\x80\xff\0" * 50, b"From x\nSubject: only a head\n\n", bytes(range(256))]
    lines = b"".join(
        json.dumps({"id": i, "text": m.decode("latin-1")}).encode() + b"\n"
        for i, m in enumerate(raw)
    )
    done, found = jsonl(models, q, lines + b'{"id": 9, "text": "\\u20ac"}\n', "--mail")
    assert (
        found[-1]
        == {
            "id": 9,
            "error": "text: character 0 is not a byte; give the bytes of a message as characters of Latin-1",
        }
        and done.returncode == 65
    )
    for m, o in zip(raw, found):
        single = json.loads(classify(models, "-q", q, "--json", input=m).stdout)
        assert (o["answer"], o["score"]) == (single["answer"], single["score"])
    assert json.loads(classify(models, "-q", q, "--json", input=raw[2]).stdout)["reasons"] == [
        "empty",
        "no-text",
    ]


@pytest.mark.full
def test_message_of_a_hundred_megabytes_is_read_to_its_limit(models, tmp_path):
    q = write_question(tmp_path / "q.yaml", **ABOUT_MAIL)
    with open(tmp_path / "large", "wb") as f:
        f.write(LETTER + b"And so on, for ever. \n" * 100000)
        f.truncate(100 << 20)
    with open(tmp_path / "large") as large:
        out, peak = run_measured(models, ["-q", q, "--json"], stdin=large)
    assert json.loads(out)["reasons"] == ["bytes", "text"] and peak < 400 << 10


def test_odd_mails_have_verdicts(models, tmp_path, datafile):
    q = write_question(tmp_path / "q.yaml", **ABOUT_MAIL)
    samples = sorted(datafile("spam/samples").glob("*.*"))
    assert len(samples) >= 40
    lines = b"".join(
        json.dumps({"id": p.name, "text": p.read_bytes().decode("latin-1")}).encode() + b"\n"
        for p in samples
        if p.stat().st_size
    )
    done, found = jsonl(models, q, lines, "--mail")
    # a model with random weights gives its answers little mass, and classify says so
    doubt = (
        rb"classify: q: in \d+ of 20 texts all answers together have a probability below [^\n]+\n"
    )
    assert done.returncode == 0 and re.fullmatch(doubt, done.stderr), done.stderr
    assert len(found) == lines.count(b"\n") and all("answer" in o for o in found)
