"""classify --jsonl: every line is answered, in order, as it comes; bad ones by errors."""

import json
import subprocess

import pytest
from classify_call import ALIKE, classify, jsonl, question, run_measured, write_question
from conftest import BIN

from sluice import stream
from sluice.classify import many
from sluice.classify.classifier import Classifier
from sluice.classify.panel import Panel
from sluice.classify.plan import Texts
from sluice.faults import Error
from sluice.texts import objects

pytestmark = pytest.mark.usefixtures("home")


def test_lines_are_answered_in_order_as_single_calls_are(models, tmp_path):
    q = write_question(tmp_path / "q.yaml", answers=ALIKE, thresholds={"no": 0.4, "yes": 0.4})
    texts = [f"text number {i}, " * (1 + 7 * i % 40) + "\u00e9\u4e2d\n" for i in range(12)]
    done, found = jsonl(
        models,
        q,
        "".join(
            json.dumps({"id": i, "text": t, "label": "x"}) + "\n" for i, t in enumerate(texts)
        ).encode(),
        "--mass",
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert [o["id"] for o in found] == list(range(12))
    for text, o in zip(texts, found):
        single = json.loads(
            classify(models, "-q", q, "--json", "--mass", input=text.encode()).stdout
        )
        assert o == {"id": o["id"], **{k: single[k] for k in ("answer", "score", "p", "mass")}}


BAD_LINES = {
    b"": "line is not JSON",
    b"{": "line is not JSON",
    b"nonsense": "line is not JSON",
    b'"text"': "line is not an object",
    b"[]": "line is not an object",
    b'{"id": 1}': "text is missing",
    b'{"id": 1, "text": null}': "text is missing",
    b'{"id": 1, "text": 5}': "text is missing",
    b'{"id": 1, "text": ""}': "text is empty",
    b'{"id": 1.5, "text": "a"}': "id is not",
    b'{"id": true, "text": "a"}': "id is not",
    b'{"id": [1], "text": "a"}': "id is not",
    b'{"id": NaN, "text": "a"}': "NaN is not a number",
    b'{"text": "a", "x": -Infinity}': "Infinity",
    b'{"id": 1, "text": "\xff"}': "line is not UTF-8 at byte 19",
    b'{"id": 1, "text": "\\ud800x"}': "text: character 0 is half",
    b"[" * 200000: "line is ",
    b'{"a":' * 200000: "line is ",
    b'{"text": "a", "n": ' + b"9" * 10000 + b"}": "more than 40 digits",
    b'{"id": "' + b"x" * 2000 + b'", "text": "a"}': "id is not",
    b"\0" * 10: "line is not JSON",
    b'\xef\xbb\xbf{"id": 1, "text": "a"}': "line is not JSON",
}


def test_bad_lines_are_answered_by_errors_and_passed_over(models, tmp_path):
    q = write_question(tmp_path / "q.yaml")
    good = b'{"id": "good", "text": "a text"}\n'
    done, found = jsonl(models, q, good + b"".join(line + b"\n" + good for line in BAD_LINES))
    assert len(found) == 1 + 2 * len(BAD_LINES)
    assert {json.dumps(o) for o in found[::2]} == {json.dumps(found[0])} and set(found[0]) == {
        "id",
        "answer",
        "score",
        "p",
    }
    n_bad = 0
    for (line, words), o in zip(BAD_LINES.items(), found[1::2]):
        n_bad += 1
        assert set(o) == {"id", "error"} and words in o["error"], (line[:50], o)
        assert o["id"] == (1 if words.startswith("text") and b'"id": 1' in line else None), (
            line[:50],
            o,
        )
    assert (
        done.returncode == 65
        and done.stderr.decode().splitlines()[-1]
        == f"classify: standard input: {n_bad} of {len(found)} lines are invalid; their objects have"
        ' "error"'
    )


def test_jsonl_line_without_tokens_is_its_own_error(models, tmp_path, monkeypatch):
    c, out = (
        Classifier(
            question(prompt=["input"], input={"kind": "text", "head_ids": 9, "tail_ids": 0}),
            str(models / "llama.gguf"),
        ),
        [],
    )
    monkeypatch.setattr(
        c.prompt, "input_tokens", lambda data, rest: ([] if data == b"nothing" else [5], False)
    )
    monkeypatch.setattr(
        many,
        "lines_at_once",
        lambda fd: [[b'{"id": 1, "text": "nothing"}', b'{"id": 2, "text": "a"}']],
    )
    monkeypatch.setattr(stream, "write_all", lambda fd, data: out.append(json.loads(data)))
    with pytest.raises(Error, match="1 of 2 lines are invalid"):
        many.run(Texts(jsonl=True), Panel([c]), say=print)
    assert (
        out[0] == {"id": 1, "error": "input: no text, and the prompt is empty, too"}
        and out[1]["id"] == 2
        and "answer" in out[1]
    )


@pytest.mark.full
def test_jsonl_line_that_is_too_long_is_not_kept_in_memory(models, tmp_path):
    q = write_question(tmp_path / "q.yaml")
    code = (
        "import sys; w = sys.stdout.buffer.write; w(b'{\"text\": \"'); [w(b'a' * (1 << 20)) for i"
        ' in range(300)]; w(b\'"}\\n\'); w(b\'{"id": 2, "text": "b"}\\n\')'
    )
    with subprocess.Popen(["python3", "-c", code], stdout=subprocess.PIPE) as writer:
        done, peak = run_measured(models, ["-q", q, "--jsonl"], stdin=writer.stdout)
    found = [json.loads(line) for line in done.splitlines()]
    assert (
        found[0] == {"id": None, "error": "line is longer than 64 MiB"}
        and found[1]["id"] == 2
        and "answer" in found[1]
    )
    assert peak < 300 << 10


@pytest.mark.parametrize("unit", [b",[]", b",{}", b',""', b',"a":0'], ids=bytes.decode)
@pytest.mark.quick_cases(2)
def test_jsonl_line_with_a_million_values_is_refused_unread(models, tmp_path, unit):
    q, (start, end) = (
        write_question(tmp_path / "q.yaml"),
        (b"{", b"}") if b":" in unit else (b"[", b"]"),
    )
    (tmp_path / "lines").write_bytes(
        b'{"text": "a", "x": '
        + start
        + (unit * (40_000_000 // len(unit)))[1:]
        + end
        + b"}\n"
        + b'{"id": 2, "text": "b"}\n'
    )
    with open(tmp_path / "lines") as lines:
        done, peak = run_measured(models, ["-q", q, "--jsonl"], stdin=lines)
    found = [json.loads(line) for line in done.splitlines()]
    assert (
        "more than 10000 values" in found[0]["error"]
        and found[1]["id"] == 2
        and "answer" in found[1]
    )
    assert peak < 300 << 10


@pytest.mark.parametrize(
    "text", ["[,{" * 500_000, '\\"' * 500_000, "\\" * 999_999, '\\\\"[' * 300_000], ids=range(4)
)
def test_large_json_string_is_one_value(text):
    assert objects.parse(json.dumps({"id": 7, "text": text}).encode(), "utf-8") == (
        7,
        text.encode(),
    )


def test_lines_are_answered_as_they_come(models, tmp_path):
    q = write_question(tmp_path / "q.yaml")
    argv = [BIN / "classify", "-m", models / "llama.gguf", "-q", q, "--jsonl"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as p:
        for i in range(3):
            p.stdin.write(b'{"id": %d, "text": "a text"}\n' % i)
            p.stdin.flush()
            # a classify that waits for more would wait for ever
            assert json.loads(p.stdout.readline())["id"] == i
        p.stdin.write(b'{"id": 3, "text": "without a newline"}')
        p.stdin.close()
        assert json.loads(p.stdout.read())["id"] == 3 and p.wait() == 0


def test_closed_reader_is_silent(models, tmp_path):
    q = write_question(tmp_path / "q.yaml")
    line = b'{"id": 1, "text": "a text"}\n'
    argv = [BIN / "classify", "-m", models / "llama.gguf", "-q", q, "--jsonl"]
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen(argv, **pipes) as p:
        p.stdin.write(line)
        p.stdin.flush()
        assert json.loads(p.stdout.readline())["id"] == 1
        p.stdout.close()  # before the other lines are there to be answered
        p.stdin.write(line * 49)
        p.stdin.close()
        assert (p.stderr.read(), p.wait()) == (b"", 74)
