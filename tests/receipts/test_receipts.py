"""classify --receipt and --verify: a receipt says what a verdict was made of and every bit of it;
the same texts give the same bits again, on any processor, and nothing else passes.
"""

import hashlib
import hmac
import json
import os
import resource
import subprocess

import arm64
import pytest
from chat_model import write_chat_model
from classify_call import classify, opened, write_question
from conftest import BIN, ROOT, run, sets_here

from sluice.receipts import receipts

pytestmark = pytest.mark.usefixtures("home")
MAILS = sorted((ROOT / "tests" / "mails").glob("*.eml"))
TEXTS = {f"{i}.txt": b"The meeting has been moved. " * i + b"%d" % i for i in range(1, 6)}
KEY = b"a key of enough bytes"


@pytest.fixture
def box(tmp_path, models):
    """A directory with a question and texts, and what runs classify in it."""

    class Box:
        path, q, r = tmp_path, write_question(tmp_path / "q.yaml"), tmp_path / "R"

        def classify(self, *argv, **kwargs):
            return classify(models, "-q", self.q, *argv, cwd=tmp_path, **kwargs)

        def receipt(self, *argv, **kwargs):
            done = self.classify("--receipt", self.r, *argv, **kwargs)
            assert done.returncode in (0, 1), done.stderr
            return done

        def verify(self, *argv, **kwargs):
            done = self.classify("--verify", self.r, *argv, **kwargs)
            return done.returncode, done.stdout.decode().splitlines(), done.stderr.decode()

        def lines(self):
            return self.r.read_bytes().splitlines(keepends=True)

    for name, data in TEXTS.items():
        (tmp_path / name).write_bytes(data)
    return Box()


def words(lines):
    return [line.split("\t")[1] for line in lines]


def resealed(line, key=None, **changes):
    """A receipt as somebody would write it who knows the format."""
    fields = json.loads(line)
    del fields["seal"]
    return receipts.seal(fields | changes, receipts.Digester(key))


# What a receipt says.


@pytest.mark.quick_cases(1)
def test_receipt_has_every_bit_and_digests_that_other_programs_compute(box, models):
    box.receipt("3.txt")
    (line,) = box.lines()
    found, data = json.loads(line), TEXTS["3.txt"]
    c = opened(models)
    v = c.ask(data)
    assert [float.fromhex(x) for x in found["log_p"].values()] == v.log_p
    assert [float.fromhex(x) for x in found["scores"].values()] == list(v.scores.values())
    assert list(found["scores"]) == ["yes", "no"] and found["answer"] == v.answer
    assert found["raw"] == {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    assert found["text"] == found["raw"]  # of a text that is neither a message nor folded
    assert (found["tokens"], found["cut"], found["name"]) == (v.n_tokens, v.cut, "3.txt")
    assert found["model"] == c.model.file.id.hex() and found["arithmetic"] == c.model.arithmetic
    assert found["question_file"] == hashlib.sha256(box.q.read_bytes()).hexdigest()
    body, _, end = line.rpartition(b', "seal": "')
    assert end == hashlib.sha256(body).hexdigest().encode() + b'"}\n'


def test_file_is_private_and_holds_no_word_of_the_text(box):
    box.receipt("2.txt")
    assert box.r.stat().st_mode & 0o777 == 0o600 and b"meeting" not in box.r.read_bytes()


def test_with_a_key_no_text_can_be_guessed_and_no_line_written(box):
    (box.path / "key").write_bytes(KEY)
    box.receipt("--receipt-key", "key", "1.txt")
    (line,) = box.lines()
    found, mac = json.loads(line), lambda data: hmac.digest(KEY, data, "sha256").hex()
    assert found["raw"]["hmac-sha256"] == mac(TEXTS["1.txt"]) and "sha256" not in found["raw"]
    assert hashlib.sha256(TEXTS["1.txt"]).hexdigest().encode() not in line
    assert box.verify("--receipt-key", "key", "1.txt")[0] == 0
    for refused, why in (
        (line, "was made with a key: give --receipt-key"),
        (resealed(line), "was made with a key"),
    ):
        box.r.write_bytes(refused)
        code, lines, said = box.verify("1.txt")
        assert code == 65 and why in said, said
    (box.path / "other").write_bytes(KEY[::-1])
    code, lines, said = box.verify("--receipt-key", "other", "1.txt")
    assert code == 65 and "line 1 was made with another key" in said
    box.r.write_bytes(resealed(line))  # the seal of somebody without the key
    code, lines, said = box.verify("--receipt-key", "key", "1.txt")
    assert code == 65 and "line 1 is damaged: its seal" in said


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("many", [("--each", "line"), ("--jsonl",), ("--csv", "text"), ()])
def test_every_form_of_many_texts_leaves_receipts_that_verify(box, many):
    rows = [f"text number {i}, " * i for i in range(1, 5)]
    forms = {
        "--each": "\n".join(rows) + "\n",
        "--jsonl": "".join(json.dumps({"id": i, "text": t}) + "\n" for i, t in enumerate(rows)),
        "--csv": "id,text\n" + "".join(f'{i},"{t}"\n' for i, t in enumerate(rows)),
    }
    files = () if many else sorted(TEXTS)
    data = forms[many[0]].encode() if many else b""
    box.receipt(*many, *files, input=data)
    assert len(box.lines()) == (4 if many else 5)
    code, lines, said = box.verify(*many, *files, input=data)
    assert (code, set(words(lines)), said) == (0, {"same"}, "")
    assert [line.split("\t")[2] for line in lines] == [str(n + 1) for n in range(len(lines))]
    if many == ("--jsonl",):
        assert [json.loads(line)["id"] for line in box.lines()] == list(range(4))


@pytest.mark.full
def test_receipts_of_many_texts_are_those_of_single_ones(box):
    for name in sorted(TEXTS):
        box.receipt(name)
    single = box.lines()
    box.r.unlink()
    box.receipt(*sorted(TEXTS))
    assert box.lines() == single


def test_several_questions_leave_a_receipt_each(box):
    other = write_question(box.path / "other.yaml", prompt=[{"text": "Or not? "}, "input"])
    box.receipt("-q", other, "1.txt")
    assert [json.loads(line)["question_name"] for line in box.lines()] == ["q", "other"]
    code, lines, _ = box.verify("-q", other, "1.txt")
    assert code == 0 and [line.split("\t")[:4] for line in lines] == [
        ["1.txt", "q", "same", "1"],
        ["1.txt", "other", "same", "2"],
    ]
    assert box.verify("1.txt")[0] == 0  # by one of them, the receipts of the other do not matter


def test_of_a_message_both_digests_count(tmp_path):
    r = tmp_path / "R"
    run("classify", "--receipt", r, MAILS[0])
    found = json.loads(r.read_bytes())
    folded = run("mail-text", "--normalize", input=MAILS[0].read_bytes()).stdout
    assert found["text"] == {"bytes": len(folded), "sha256": hashlib.sha256(folded).hexdigest()}
    assert found["raw"]["sha256"] == hashlib.sha256(MAILS[0].read_bytes()).hexdigest()
    # another header that no reader sees: other bytes, the same text
    done = run("classify", "--verify", r, input=b"X-Note: here\n" + MAILS[0].read_bytes())
    assert done.returncode == 0 and words(done.stdout.decode().splitlines()) == ["same"]


def test_long_text_is_known_by_its_beginning_and_end(box):
    words = b"some words of it, and more. " * 20_000
    box.receipt(input=words)
    assert json.loads(box.r.read_bytes())["cut"] is True
    assert box.verify(input=words)[0] == 0
    assert box.verify(input=b"x" + words[1:])[0] == 1
    assert box.verify(input=words[:-1] + b"x")[0] == 1


# The same bits elsewhere.


@pytest.mark.full
def test_receipts_are_the_same_bytes_on_every_set_and_number_of_threads(box):
    seen = set()
    for isa in sets_here():
        for j in (1, 2):
            box.r.unlink(missing_ok=True)
            box.receipt("-j", j, *sorted(TEXTS), env={"SLUICE_ISA": isa})
            seen.add(box.r.read_bytes())
    assert len(seen) == 1 and len(sets_here()) > 1
    for isa in sets_here():
        code, lines, _ = box.verify("-j", 1, "5.txt", "2.txt", env={"SLUICE_ISA": isa})
        assert (code, words(lines)) == (0, ["same", "same"]), isa


@pytest.mark.full
@pytest.mark.parametrize("cpu", ["max", "cortex-a76", "cortex-a57"])
def test_receipts_verify_on_aarch64(tmp_path, cpu):
    """With SMMLA, with SDOT, and with neither."""
    r = tmp_path / "R"
    assert run("classify", "--receipt", r, *MAILS).returncode == 0
    try:
        argv = arm64.command("classify", "-j", "2", "--verify", r, *MAILS, cpu=cpu)
    except arm64.Missing as e:
        pytest.skip(str(e))
    done = subprocess.run(argv, capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stderr) == (0, "")
    assert words(done.stdout.splitlines()) == ["same"] * len(MAILS)


# What verifies, and what does not.


def test_text_is_known_by_its_digest_not_by_its_name(box):
    box.receipt(*sorted(TEXTS))
    (box.path / "moved").write_bytes(TEXTS["4.txt"])
    code, lines, _ = box.verify("moved")
    assert code == 0 and lines[0].split("\t")[:3] == ["moved", "same", "4"]
    (box.path / "4.txt").write_bytes(b"Something else.")
    code, lines, _ = box.verify("4.txt")
    assert code == 1 and lines[0].split("\t")[1:3] == ["differs", "4"]
    assert "the text of this name was another" in lines[0]
    (box.path / "new").write_bytes(b"Something else.")
    code, lines, _ = box.verify("1.txt", "new")
    assert (code, words(lines)) == (1, ["same", "unknown"])


def test_same_bytes_with_another_text_differ(tmp_path):
    """As with another version of the reader of messages: here, read as a text."""
    r, q = tmp_path / "R", tmp_path / "q.yaml"
    spam = (ROOT / "configs" / "spam.yaml").read_text()
    q.write_text(spam)
    run("classify", "-q", q, "--receipt", r, MAILS[0])
    line = r.read_bytes()
    r.write_bytes(resealed(line, text={"bytes": 3, "sha256": "00" * 32}))
    done = run("classify", "-q", q, "--verify", r, MAILS[0])
    assert (
        done.returncode == 1 and b"differs\t1\t-\tthe same bytes give another text" in done.stdout
    )


def test_one_bit_that_is_another_differs(box):
    """In a line that holds together otherwise, as a false claim would."""
    box.receipt("1.txt")
    (line,) = box.lines()
    found = json.loads(line)
    log_p = {k: (float.fromhex(x) * (1 + 2**-52)).hex() for k, x in found["log_p"].items()}
    fit = found["calibration"]
    scores = receipts.calibrated(
        map(float.fromhex, log_p.values()),
        float.fromhex(fit["scale"]),
        map(float.fromhex, fit["bias"].values()),
    )
    scores = dict(zip(log_p, (x.hex() for x in scores)))
    box.r.write_bytes(resealed(line, log_p=log_p, scores=scores))
    code, lines, _ = box.verify("1.txt")
    assert code == 1 and lines[0].split("\t")[1] == "differs" and "log_p of " in lines[0]


@pytest.mark.full
def test_what_is_learnt_later_does_not_break_a_receipt(box):
    box.receipt("1.txt", "2.txt")
    calibration = "--calibration", box.path / "learnt"
    assert box.classify("--learn", "no", *calibration, "3.txt").returncode == 0
    code, lines, _ = box.verify(*calibration, "1.txt", "2.txt")
    was = json.loads(box.lines()[0])["calibration"]["digest"]
    assert code == 0
    for line in lines:
        name, word, n, digest, why = line.split("\t")
        assert (word, digest) == ("same", was) and why.startswith("calibration now ")
        assert was not in why
    box.receipt(*calibration, "1.txt")
    assert json.loads(box.lines()[-1])["calibration"]["digest"] == why.split()[-1]


def test_thresholds_are_no_part_of_the_question(box):
    box.receipt("1.txt")
    write_question(box.q, thresholds={"yes": 0.99, "no": 0.99})
    assert box.verify("1.txt")[0] == 0


@pytest.mark.full
def test_other_model_question_or_arithmetic_is_refused_by_name(box, models):
    box.receipt("1.txt")
    (line,) = box.lines()
    write_chat_model(box.path / "m.gguf", ["<|user|>", "<|assistant|>"], n_ctx=1024)
    code, lines, said = box.verify("-m", box.path / "m.gguf", "1.txt")
    assert (code, lines) == (65, []) and "the model is another file (" in said
    assert said.endswith("not comparable\n") and said.count("\n") == 1
    other = write_question(box.path / "other.yaml", answers={"yes": ["yes"], "no": ["none"]})
    done = classify(models, "-q", other, "--verify", box.r, box.path / "1.txt")
    assert done.returncode == 65 and b"the question is another (" in done.stderr
    box.r.write_bytes(resealed(line, arithmetic="fast-1"))
    code, lines, said = box.verify("1.txt")
    assert code == 65 and "the arithmetic is another (fast-1, not exact" in said
    # among others that can be compared, such a receipt is none of this text
    box.r.write_bytes(resealed(line, arithmetic="fast-1"))
    box.receipt("2.txt")
    code, lines, said = box.verify("1.txt", "2.txt")
    assert (code, words(lines)) == (1, ["unknown", "same"])
    assert lines[0].endswith("its receipt is of another arithmetic")


def test_json_has_an_object_per_text(box):
    box.receipt("1.txt")
    _, (line,), _ = box.verify("--json", "1.txt")
    found = json.loads(line)
    assert (found["name"], found["verified"], found["line"]) == ("1.txt", "same", 1)
    assert found["calibration"] == found["calibration_now"]


def test_texts_that_cannot_be_classified_do_not_stop_the_others(box):
    box.receipt(*sorted(TEXTS))
    (box.path / "empty").touch()
    code, lines, said = box.verify("1.txt", "empty", "missing", "2.txt")
    assert (code, words(lines)) == (65, ["same", "error", "error", "same"])
    assert "empty: no text" in said and "missing: No such file" in said


# A damaged file.

DAMAGE = {
    "a flipped digit": lambda line: line.replace(b'"0x1.', b'"0x2.', 1),
    "a text's digest": lambda line: line.replace(b'"sha256": "', b'"sha256": "0', 1),
    "cut": lambda line: line[: len(line) // 2] + b"\n",
    "empty": lambda line: b"\n",
    "no JSON": lambda line: b"{nonsense}\n",
    "no object": lambda line: b"[1, 2]\n",
    "binary": lambda line: bytes(range(256)).replace(b"\n", b"") + b"\n",
    "nested": lambda line: b"[" * 100_000 + b"\n",
    "too long": lambda line: b"x" * 3_000_000 + b"\n",
    "another format": lambda line: resealed(line, receipt=2),
    "no answer": lambda line: resealed(line, answer="maybe"),
    "no number": lambda line: resealed(line, log_p={"yes": "nan", "no": "-0x1p+0"}),
    "one answer": lambda line: resealed(line, log_p={}, scores={}, thresholds={}),
    "scores that do not follow": lambda line: resealed(
        line, scores={"yes": "0x1.8p-1", "no": "0x1.0p-2"}
    ),
    "answer below its threshold": lambda line: resealed(line, thresholds={"yes": 1.0, "no": 1.0}),
    "no digest": lambda line: resealed(line, raw={"bytes": 3}),
    "another type": lambda line: resealed(line, tokens="3"),
}


@pytest.mark.quick_cases(3)
@pytest.mark.parametrize("name", DAMAGE)
def test_damaged_line_is_named_and_the_others_are_used(box, name):
    box.receipt(*sorted(TEXTS))
    lines = box.lines()
    lines[2] = DAMAGE[name](lines[2])
    box.r.write_bytes(b"".join(lines))
    code, found, said = box.verify("1.txt", "5.txt", "2.txt")
    assert (code, words(found)) == (65, ["same"] * 3)
    first, last = said.splitlines()
    assert f"{box.r}: line 3 " in first and "Traceback" not in said
    assert last.endswith("1 of 5 lines are damaged; see above")


@pytest.mark.full
def test_half_a_line_at_the_end_is_bad_and_the_next_append_removes_it(box):
    box.receipt("1.txt", "2.txt")
    whole = box.r.read_bytes()
    for n in (1, 5, 11, 300, len(box.lines()[1]) - 1):
        box.r.write_bytes(whole + box.lines()[1][:n])
        code, found, said = box.verify("1.txt", "2.txt")
        assert (code, words(found)) == (65, ["same"] * 2) and "line 3 has no end" in said
        box.receipt("3.txt")
        assert box.r.read_bytes().startswith(whole) and len(box.lines()) == 3
        assert box.verify("1.txt", "2.txt", "3.txt")[0] == 0
        box.r.write_bytes(whole)


def test_of_many_damaged_lines_the_first_are_named_and_all_are_counted(box):
    box.receipt("1.txt")
    box.r.write_bytes(box.r.read_bytes() + b"nonsense\n" * 50)
    code, found, said = box.verify("1.txt")
    assert (code, words(found)) == (65, ["same"])
    assert said.count("\n") == 21 and said.endswith("50 of 51 lines are damaged; see above\n")


def test_file_of_another_kind_is_one_line(box, models):
    box.r = models / "llama.gguf"
    code, found, said = box.verify("1.txt")
    assert (code, found) == (65, []) and said.endswith(": is not a file of receipts\n")
    assert said.count("\n") == 1


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("data", [b"notes\n", b"notes", b'{"receipt"}\n', b"\0" * 2000])
def test_another_file_is_left_alone(box, data):
    box.r.write_bytes(data)
    done = box.classify("--receipt", box.r, "1.txt")
    assert (done.returncode, done.stdout) == (
        65,
        b"",
    ) and b"is not a file of receipts" in done.stderr
    assert box.r.read_bytes() == data
    assert box.verify("1.txt")[0] == 65


def test_last_line_that_is_no_receipt_is_left_alone(box):
    box.receipt("1.txt")
    data = box.r.read_bytes() + b"a note of somebody"
    box.r.write_bytes(data)
    assert box.classify("--receipt", box.r, "1.txt").returncode == 65
    assert box.r.read_bytes() == data


@pytest.mark.full
def test_what_is_no_file_is_refused_before_any_work(box):
    os.mkfifo(box.path / "fifo")
    (box.path / "link").symlink_to("elsewhere")
    for path, code in {".": 73, "no/R": 73, "link": 73, "fifo": 65, "/dev/null": 65}.items():
        done = box.classify("--receipt", path, "1.txt")
        assert (done.returncode, done.stdout, done.stderr.count(b"\n")) == (code, b"", 1), path
    assert box.classify("--receipt", box.r, "missing").returncode == 66 and not box.r.exists()
    for path, code in {".": 65, "missing": 66, "fifo": 65, "/dev/null": 65}.items():
        assert box.classify("--verify", path, "1.txt").returncode == code, path


def test_disk_that_is_full_leaves_whole_lines_and_gives_no_verdict(box):
    box.receipt("1.txt")
    before = box.r.read_bytes()
    limit = len(before) + 100
    done = box.classify(
        "--receipt",
        box.r,
        "2.txt",
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
    )
    assert (done.returncode, done.stdout) == (74, b"") and b"R: cannot write" in done.stderr
    assert box.r.read_bytes() == before


@pytest.mark.quick_cases(1)
def test_processes_that_append_at_the_same_time_write_whole_lines(box, models):
    words = [str(BIN / "classify"), "-m", str(models / "llama.gguf"), "-q", str(box.q)]
    started = [
        subprocess.Popen(
            [*words, "--receipt", box.r, "-j1", *sorted(TEXTS)],
            cwd=box.path,
            stdout=subprocess.DEVNULL,
        )
        for _ in range(4)
    ]
    assert [p.wait() for p in started] == [0] * 4
    lines = box.lines()
    assert len(lines) == 20 and len(set(lines)) == 5
    assert box.verify(*sorted(TEXTS))[0] == 0


@pytest.mark.full
def test_killed_writer_leaves_a_file_that_goes_on(box, models):
    text = "".join(f"text number {i}\n" for i in range(2000)).encode()
    words = [BIN / "classify", "-m", models / "llama.gguf", "-q", box.q, "--each", "line"]
    for _ in range(3):
        p = subprocess.Popen(
            [*words, "--receipt", box.r], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        p.stdin.write(text)
        p.stdin.flush()
        p.stdout.read(200)  # it is in the middle of it
        p.kill()
        p.wait()
        p.stdin.close()
        p.stdout.close()
    box.receipt("1.txt")
    box.receipt("--each", "line", input=b"text number 0\n")
    assert all(line.endswith(b'"}\n') for line in box.lines())
    assert box.verify("1.txt")[0] == 0


def test_keys_that_are_none_are_refused(box):
    key = box.path / "key"
    for data, mode, why in (
        (b"short", 0o600, "is not a key: 16 to 4096 bytes"),
        (b"", 0o600, "is not a key"),
        (b"x" * 5000, 0o600, "is not a key"),
        (KEY, 0o666, "could have been written by other users"),
    ):
        key.write_bytes(data)
        key.chmod(mode)
        done = box.classify("--receipt", box.r, "--receipt-key", key, "1.txt")
        assert done.returncode == 65 and why in done.stderr.decode()
    assert not box.r.exists()
    assert box.classify("--receipt", box.r, "--receipt-key", "no", "1.txt").returncode == 66


@pytest.mark.quick_cases(3)
@pytest.mark.parametrize(
    "argv",
    [
        ("--receipt", "R", "--verify", "R"),
        ("--receipt", "R", "--learn", "yes"),
        ("--receipt", "R", "--pass-through"),
        ("--verify", "R", "--select", "yes"),
        ("--verify", "R", "--long"),
        ("--verify", "R", "--state", "S"),
        ("--receipt-key", "K"),
    ],
)
def test_options_that_do_not_go_together(box, argv):
    done = box.classify(*argv, input=b"text")
    assert (done.returncode, done.stdout) == (64, b"") and not box.r.exists()
