"""classify with many texts: files, folders, mboxes, lines and tables, each with its own answer."""

import csv
import io
import json
import os
import shutil
import signal
import subprocess
import time

import pytest
from classify_call import classify, write_question
from conftest import BIN, ROOT

pytestmark = pytest.mark.usefixtures("home")

MAILS = sorted((ROOT / "tests" / "mails").glob("*.eml"))
DATED = b"From someone@example.org Thu Nov 26 10:00:00 2026\n"
TEXTS = ["The first text", "another, with a comma", 'a "quoted" one', "\u00e9\u4e2d text"]


@pytest.fixture
def q(tmp_path):
    return write_question(tmp_path / "q.yaml", thresholds={"yes": 0.4, "no": 0.4})


def spam(*argv, **kwargs):
    """Run classify with the bundled model."""
    return subprocess.run([BIN / "classify", *argv], capture_output=True, **kwargs)


def rows_of(done):
    return [line.split("\t") for line in done.stdout.decode().splitlines()]


def alone(models, q, data, *argv):
    """(answer, score, p) of a text that is classified alone."""
    found = json.loads(classify(models, "-q", q, "--json", *argv, input=data).stdout)
    return found["answer"], found["score"], found["p"]


def maildir(path, mails=MAILS):
    """A Maildir with half of `mails` in new, half in cur."""
    for kind in ("cur", "new", "tmp"):
        (path / kind).mkdir(parents=True)
    for i, mail in enumerate(mails):
        place = path / ("new" if i % 2 else "cur") / f"{i:03d}.host"
        shutil.copy(mail, f"{place}:2,S" if not i % 2 else place)
    (path / "tmp" / "half").write_bytes(b"half a message")
    return path


def mbox(path, mails=MAILS):
    path.write_bytes(b"".join(DATED + mail.read_bytes().rstrip(b"\n") + b"\n\n" for mail in mails))
    return path


# The form follows from what was asked, never from the number of texts.


def test_one_file_gives_a_line_and_the_status_of_its_answer():
    done = spam(MAILS[-1])
    assert (done.returncode, done.stdout.split()[0], done.stderr) == (0, b"yes", b"")
    assert spam(MAILS[0]).returncode == 1


@pytest.mark.full
def test_several_files_give_a_line_each_and_status_0():
    done = spam(*MAILS)
    assert (done.returncode, done.stderr) == (0, b"")
    for mail, (name, answer, p) in zip(MAILS, rows_of(done), strict=True):
        assert (name, [f"{answer} {p}"]) == (str(mail), spam(mail).stdout.decode().splitlines())


def test_folder_of_one_file_gives_a_line_with_its_name(tmp_path):
    shutil.copy(MAILS[0], tmp_path / "only.eml")
    done = spam(tmp_path)
    assert (done.returncode, rows_of(done)[0][:2]) == (0, [f"{tmp_path}/only.eml", "no"])


def test_maildir_is_its_cur_and_new_and_below_it_only_with_recursive(tmp_path):
    box = maildir(tmp_path / "Maildir")
    maildir(box / ".Lists.sluice", MAILS[:1])
    names = [name for name, *_ in rows_of(spam(box))]
    assert names == sorted(names) and len(names) == len(MAILS)
    assert {os.path.basename(os.path.dirname(name)) for name in names} == {"cur", "new"}
    assert len(rows_of(spam("-r", box))) == len(MAILS) + 1


def test_mbox_file_is_split_and_its_mails_are_numbered(tmp_path):
    done = spam(mbox(tmp_path / "box"))
    assert [name for name, *_ in rows_of(done)] == [
        f"{tmp_path}/box:{n}" for n in range(1, len(MAILS) + 1)
    ]
    assert [row[1:] for row in rows_of(done)] == [row[1:] for row in rows_of(spam(*MAILS))]


def test_mbox_on_stdin_is_split_with_the_option_alone(tmp_path):
    data = mbox(tmp_path / "box").read_bytes()
    done = spam("--mbox", input=data)
    assert [row[0] for row in rows_of(done)] == [f"-:{n}" for n in range(1, len(MAILS) + 1)]
    one = spam(input=data)
    assert len(one.stdout.split()) == 2 and b"\t" not in one.stdout


@pytest.mark.full
def test_mail_with_a_lone_from_line_is_one_mail(tmp_path):
    """procmail pipes and saves a message like this."""
    (tmp_path / "m").write_bytes(DATED + MAILS[-1].read_bytes())
    assert spam(tmp_path / "m").stdout == spam(MAILS[-1]).stdout
    assert spam(input=(tmp_path / "m").read_bytes()).stdout == spam(MAILS[-1]).stdout


def test_text_insists_on_one_text(tmp_path):
    done = spam("--text", mbox(tmp_path / "box"))
    assert done.returncode in (0, 1, 2) and b"\t" not in done.stdout
    (tmp_path / "t.csv").write_text("a,b\n1,2\n")
    assert spam("--text", tmp_path / "t.csv").returncode in (0, 1, 2)


# Lines, objects and tables.


@pytest.mark.quick_cases(1)
def test_each_line_is_a_text(models, q):
    done = classify(models, "-q", q, "--each", "line", input="\n".join(TEXTS).encode())
    assert (done.returncode, done.stderr) == (0, b"")
    want = [alone(models, q, text.encode()) for text in TEXTS]
    assert rows_of(done) == [
        [f"-:{n}", answer, f"{score:.3f}"] for n, (answer, score, _) in enumerate(want, 1)
    ]


def test_line_ends_of_windows_are_no_part_of_the_text(models, q):
    unix, windows = (
        classify(models, "-q", q, "--each", "line", input=end.join(TEXTS).encode()).stdout
        for end in ("\n", "\r\n")
    )
    assert unix == windows


def test_empty_line_has_no_answer_and_is_no_error(models, q):
    done = classify(models, "-q", q, "--each", "line", input=b"a text\n\nanother\n")
    assert done.returncode == 0 and rows_of(done)[1] == ["-:2", "-", "-"]
    assert b"1 of 3 texts have no answer, because they are empty" in done.stderr


def test_json_of_lines_has_names_and_all_there_is(models, q):
    done = classify(models, "-q", q, "--each", "line", "--json", input="\n".join(TEXTS).encode())
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [o["name"] for o in found] == ["-:1", "-:2", "-:3", "-:4"]
    for text, o in zip(TEXTS, found):
        assert (o["answer"], o["score"], o["p"]) == alone(models, q, text.encode())
        assert {"ids", "model", "arithmetic"} <= set(o)


def test_jsonl_and_json_together_give_all_there_is(models, q):
    line = json.dumps({"id": 7, "text": TEXTS[0]}).encode()
    (found,) = map(
        json.loads, classify(models, "-q", q, "--jsonl", "--json", input=line).stdout.splitlines()
    )
    assert found["id"] == 7 and {"p", "ids", "model"} <= set(found) and "ms" not in found


def test_jsonl_reads_files(models, q, tmp_path):
    for name in ("a.jsonl", "b.jsonl"):
        (tmp_path / name).write_text(json.dumps({"id": name, "text": TEXTS[0]}) + "\n")
    done = classify(models, "-q", q, "--jsonl", tmp_path / "a.jsonl", tmp_path / "b.jsonl")
    assert [json.loads(line)["id"] for line in done.stdout.splitlines()] == ["a.jsonl", "b.jsonl"]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le"])
@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
@pytest.mark.quick_cases(1)
def test_table_comes_back_with_the_answers_behind_it(models, q, encoding, delimiter):
    text = io.StringIO()
    writer = csv.writer(text, delimiter=delimiter, lineterminator="\r\n")
    writer.writerows([["id", "body"], *([str(i), t + "\nline 2"] for i, t in enumerate(TEXTS))])
    done = classify(models, "-q", q, "--csv", "body", input=text.getvalue().encode(encoding))
    assert (done.returncode, done.stderr) == (0, b"")
    bom = done.stdout[:3] == b"\xef\xbb\xbf"
    assert bom == (encoding == "utf-8-sig")
    out = list(csv.reader(io.StringIO(done.stdout.decode(encoding)), delimiter=delimiter))
    assert out[0] == ["id", "body", "q", "q_score", "q_p_yes", "q_p_no"]
    for i, (t, row) in enumerate(zip(TEXTS, out[1:], strict=True)):
        answer, score, p = alone(models, q, (t + "\nline 2").encode())
        assert row[:3] == [str(i), t + "\nline 2", answer]
        assert [float(x) for x in row[3:]] == [score, p["yes"], p["no"]]


def test_rows_without_a_text_or_with_other_fields_stay_and_are_named(models, q):
    data = b"id,body\n1,a text\n2,\n3,one,too many\n\n4\n5,the last\n"
    done = classify(models, "-q", q, "--csv", "body", input=data)
    assert done.returncode == 65
    out = done.stdout.decode().splitlines()
    assert len(out) == 7 and out[2] == "2,,,,," and out[3] == "3,one,too many,,,,"
    assert out[4] == "" and out[5] == "4,,,,," and out[6].startswith("5,the last,")
    err = done.stderr.decode()
    assert "standard input: line 4 has 3 fields, the header 2" in err
    assert "line 6 has 1 field, the header 2" in err and "2 of " in err.splitlines()[-1]


@pytest.mark.parametrize(
    "data, column, words",
    [
        (b"id,text\n1,a\n", "body", "there is no column body; known: id, text"),
        (b"id,body,q\n1,a,b\n", "body", "has a column q already"),
        (b"body,body\n1,a\n", "body", 'there are 2 columns called "body"'),
        (b"", "body", "no header: it is empty"),
        (b"\n", "body", "no header"),
    ],
)
def test_table_that_cannot_take_the_answers_is_refused(models, q, data, column, words):
    done = classify(models, "-q", q, "--csv", column, input=data)
    assert (done.returncode, done.stdout) == (65, b"") and words in done.stderr.decode()
    assert done.stderr.count(b"\n") == 1


def test_taken_columns_are_refused_with_a_remedy_for_each_kind_of_question(models, q, tmp_path):
    """What answers a table twice: a question in a file has the name of the file."""
    asked = ("-q", "Who?", "--answers", "a,b", "--csv", "body")
    once = classify(models, *asked, input=b"body\na text\n")
    assert once.returncode == 0
    again = classify(models, *asked, input=once.stdout)
    assert (again.returncode, again.stdout) == (65, b"")
    assert again.stderr.endswith(
        b"standard input: has a column answer already: rename it, or write the question in a file:"
        b" NAME.yaml gives the columns NAME\n"
    )
    (tmp_path / "who.yaml").write_text("type: choice\nquestion: Who?\nanswers: [a, b]\n")
    more = classify(models, "-q", tmp_path / "who.yaml", "--csv", "body", input=once.stdout)
    first, second = more.stdout.decode().splitlines()
    assert first == "body,answer,answer_score,answer_p_a,answer_p_b,who,who_score,who_p_a,who_p_b"
    assert second.split(",")[1:5] == second.split(",")[5:]
    third = classify(models, "-q", tmp_path / "who.yaml", "--csv", "body", input=more.stdout)
    assert third.stderr.endswith(b"has a column who already: rename it, or the question's file\n")


@pytest.mark.parametrize("n", [0, 1, 3])
def test_rows_that_are_not_utf8_are_counted_once_and_stay(models, q, n):
    bad = [b"\xfcber %d" % i for i in range(n)]
    good = [b"over %d" % i for i in range(8)]
    table = b"\n".join([b"body", b"\xc3\xbcber", *bad, *good, b""])
    for argv in ((), ("--prior", "texts"), ("--select", "yes")):
        done = classify(models, "-q", q, "--csv", "body", *argv, input=table)
        assert done.returncode in (0, 1)
        rows = "1 row is not UTF-8" if n == 1 else f"{n} rows are not UTF-8"
        said = done.stderr.decode().splitlines()
        assert len(said) == bool(n) and all(f"standard input: {rows}; the b" in s for s in said)
    plain = classify(models, "-q", q, "--csv", "body", input=table).stdout.splitlines()
    assert [line.split(b",")[0] for line in plain] == table.splitlines()
    for line in plain[2:]:
        alone_p = alone(models, q, line.split(b",")[0])[2]
        assert float(line.split(b",")[-2]) == alone_p["yes"]


def test_row_with_nul_is_an_error_of_its_own(models, q):
    done = classify(models, "-q", q, "--csv", "body", input=b"id,body\n1,a\0b\n2,a text\n")
    assert done.returncode == 65 and b"line 2 has a NUL" in done.stderr
    assert done.stdout.splitlines()[2].startswith(b"2,a text,")


# Texts that are printed, as grep prints lines.


def test_select_prints_the_lines_that_got_the_answer(models, q):
    lines = [f"text number {i}, " * (1 + i % 5) for i in range(20)]
    rows = rows_of(classify(models, "-q", q, "--each", "line", input="\n".join(lines).encode()))
    for answer in ("yes", "no"):
        want = [line for line, row in zip(lines, rows) if row[1] == answer]
        done = classify(
            models, "-q", q, "--each", "line", "--select", answer, input="\n".join(lines).encode()
        )
        assert done.stdout.decode().splitlines() == want
        assert done.returncode == (0 if want else 1)


def test_select_prints_names_of_files_ended_by_nul(tmp_path):
    box = maildir(tmp_path / "Maildir with a blank")
    done = spam("--select", "yes", "-0", box)
    spams = [name for name, answer, _ in rows_of(spam(box)) if answer == "yes"]
    assert done.stdout.decode().split("\0") == [*spams, ""] and done.returncode == 0
    junk = tmp_path / "junk"
    junk.mkdir()
    moved = subprocess.run(["xargs", "-0", "mv", "-t", junk], input=done.stdout)
    assert moved.returncode == 0 and len(list(junk.iterdir())) == len(spams)
    assert spam("--select", "yes", "-0", box).returncode == 1


def test_select_prints_messages_of_an_mbox_as_they_came(tmp_path):
    box = mbox(tmp_path / "box")
    done = spam("--select", "yes", box)
    (tmp_path / "selected").write_bytes(done.stdout)
    data = box.read_bytes()
    assert all(part in data for part in done.stdout.split(DATED)[1:])
    assert [row[1] for row in rows_of(spam("--mbox", tmp_path / "selected"))] == ["yes"] * 3


def test_select_prints_objects_and_rows_as_they_came(models, q):
    lines = [json.dumps({"id": i, "text": t, "more": [1]}) for i, t in enumerate(TEXTS)]
    done = classify(models, "-q", q, "--jsonl", "--select", "no", input="\n".join(lines).encode())
    assert set(done.stdout.decode().splitlines()) <= set(lines)
    table = "id;body\r\n" + "".join(f"{i};{t[:9]}\r\n" for i, t in enumerate(TEXTS))
    got = [
        classify(models, "-q", q, "--csv", "body", "--select", a, input=table.encode()).stdout
        for a in ("yes", "no", "unsure")
    ]
    rows = [row for out in got for row in out.decode().splitlines()[1:]]
    assert sorted(rows) == sorted(table.splitlines()[1:])
    assert all(out.startswith(b"id;body\r\n") for out in got)


# What is wrong with one text never stops the rest.


def test_bad_files_are_named_and_the_rest_is_classified(tmp_path):
    for i, data in enumerate([b"", b"%PDF-1.7 ...", b"\x7fELF\2\1"]):
        (tmp_path / f"{i}").write_bytes(data)
    shutil.copy(MAILS[0], tmp_path / "good")
    os.mkfifo(tmp_path / "pipe")  # nobody writes to it: it must not be waited for
    (tmp_path / "link").symlink_to("nowhere")
    done = spam(tmp_path, tmp_path / "missing")
    assert done.returncode == 65
    answers = {os.path.basename(name): answer for name, answer, _ in rows_of(done)}
    assert answers == {"0": "error", "1": "error", "2": "error", "good": "no", "missing": "error"}
    err = done.stderr.decode()
    for words in ("no text: it is empty", "is a PDF, not text; --text", "is a program, not text"):
        assert words in err
    assert err.splitlines()[-1].endswith("4 of 5 texts have no answer, because of errors")
    assert all(line.startswith("classify: ") for line in err.splitlines())


@pytest.mark.parametrize(
    "name, data, words",
    [
        ("t.csv", b"id,text\n", "is a table: --csv COLUMN"),
        ("T.TSV", b"id\ttext\n", "is a table: --csv COLUMN"),
        ("t.jsonl", b"{}\n", "is JSON lines: --jsonl"),
        ("t.txt", b"\xff\xfea\0b\0", "is UTF-16: iconv"),
        ("t.zip", b"PK\x03\x04", "is a ZIP archive"),
        ("t.bin", b"text\0\1\2", "is binary, not text"),
    ],
)
def test_file_that_is_no_text_is_refused_with_the_option_that_was_meant(
    tmp_path, name, data, words
):
    (tmp_path / name).write_bytes(data)
    done = spam(tmp_path / name)
    assert (done.returncode, done.stdout) == (65, b"")
    assert words in done.stderr.decode() and done.stderr.count(b"\n") == 1


def test_mail_on_stdin_is_never_refused_for_its_form():
    for data in (b"%PDF-1.7 x", b"a,b\n1,2\n", b"\0\1\2\n", DATED + b"\n\n" + DATED + b"\n"):
        done = spam(input=data)
        assert done.returncode in (0, 1, 2) and len(done.stdout.split()) == 2


def test_empty_folder_is_an_error(tmp_path):
    done = spam(tmp_path)
    assert done.returncode == 65 and b"no text: there is no file in it" in done.stderr


def test_name_with_a_newline_stays_on_a_line(tmp_path):
    shutil.copy(MAILS[0], tmp_path / "two\nlines\t.eml")
    assert spam(tmp_path).stdout.count(b"\n") == 1
    assert spam("-0", tmp_path).stdout.startswith(f"{tmp_path}/two\nlines\t.eml\tno\t".encode())


def test_name_that_is_no_utf8_is_printed_as_it_is(tmp_path):
    name = os.fsencode(tmp_path) + b"/\xff.eml"
    shutil.copy(MAILS[0], name)
    assert spam("-0", tmp_path).stdout.startswith(name + b"\t")
    assert json.loads(spam("--json", tmp_path).stdout)["name"].endswith("\\xff.eml")


@pytest.mark.quick_cases(7)
@pytest.mark.parametrize(
    "argv, words",
    [
        (["--each", "line", "--jsonl"], "--jsonl and --each exclude"),
        (["--csv", "a", "--mbox"], "--csv and --mbox exclude"),
        (["--csv", "a", "x.csv", "y.csv"], "--csv: reads one FILE"),
        (["-r"], "--recursive: needs a folder"),
        (["-0", "--jsonl"], "--null"),
        (["--json", "--select", "yes"], "--json and --select"),
        (["--select", "perhaps", "--each", "line"], "--select perhaps: no answer; use yes, no"),
        (["--each", "word"], "--each"),
        (["--long", "--each", "line"], "--long"),
        (["--listen", "s", "--each", "line"], "--listen"),
        (["--pass-through", "--select", "yes"], "--pass-through"),
        (["--learn", "yes", "--each", "line", "--select", "yes"], "--learn"),
        (["--state", "s", "--each", "line"], "--state: standard output must be a file"),
    ],
)
def test_options_that_do_not_go_together_are_usage_errors(tmp_path, argv, words):
    done = spam(*argv, input=b"a text\n", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (64, b"") and words in done.stderr.decode()


def test_reader_that_leaves_ends_the_run_quietly(models, q, tmp_path):
    lines = b"a text\n" * 2000
    shell = f"'{BIN}/classify' -m '{models}/llama.gguf' -q '{q}' --each line | head -n 1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", shell], input=lines, capture_output=True)
    assert (done.stdout.split()[-1], done.stderr) == (b"74", b"")


# A run that is killed goes on.


@pytest.mark.full
def test_killed_runs_go_on_with_nothing_twice_and_nothing_missed(models, q, tmp_path):
    lines = "".join(f"text number {i}, of many\n" for i in range(4000)).encode()
    (tmp_path / "in").write_bytes(lines)
    argv = [BIN / "classify", "-m", models / "llama.gguf", "-q", q, "--each", "line"]
    want = subprocess.run([*argv, tmp_path / "in"], capture_output=True).stdout
    for part in (0.1, 0.4, 0.7):  # of the output, at which a run is killed
        with open(tmp_path / "out", "ab") as out:
            run = subprocess.Popen([*argv, tmp_path / "in", "--state", tmp_path / "s"], stdout=out)
            while run.poll() is None and out.tell() < part * len(want):
                time.sleep(0.002)
                out.seek(0, os.SEEK_END)
            run.send_signal(signal.SIGKILL)
            assert run.wait() == -signal.SIGKILL
            out.write(b"half a li")  # what a kill between two writes may leave
    with open(tmp_path / "out", "ab") as out:
        subprocess.run([*argv, tmp_path / "in", "--state", tmp_path / "s"], stdout=out, check=True)
    assert (tmp_path / "out").read_bytes() == want


def test_state_of_another_question_is_refused(models, q, tmp_path):
    (tmp_path / "in").write_text("a text\n")
    other = write_question(tmp_path / "other.yaml", answers={"no": ["no"], "yes": ["yes"]})
    for question, code in ((q, 0), (other, 65)):
        with open(tmp_path / "out", "ab") as out:
            done = subprocess.run(
                [BIN / "classify", "-m", models / "llama.gguf", "-q", question, "--each", "line"]
                + [tmp_path / "in", "--state", tmp_path / "s"],
                stdout=out,
                stderr=subprocess.PIPE,
            )
        assert done.returncode == code
    assert b"is of a run with another question" in done.stderr


def test_what_was_learned_between_two_runs_is_said_and_another_file_refused(tmp_path):
    """Texts without an answer get that of what is learned now; those with one keep it."""
    file, box = ("--calibration", tmp_path / "c"), tmp_path / "box"
    box.mkdir()

    def run(*argv):
        with open(tmp_path / "out", "ab") as out:
            done = subprocess.run(
                [BIN / "classify", "--state", tmp_path / "s", *argv, box],
                stdout=out,
                stderr=subprocess.PIPE,
            )
        return done.returncode, done.stderr.decode()

    said = (
        f"classify: {tmp_path}/s: something was learned or forgotten since this run began;"
        " the answers so far stay\n"
    )
    shutil.copy(MAILS[0], box / "0")
    assert run(*file) == run(*file) == (0, "")
    subprocess.run([BIN / "classify", *file, "--learn", "yes", MAILS[0], MAILS[1]], check=True)
    shutil.copy(MAILS[1], box / "1")
    assert run(*file, "--auto-learn", "1")[1] == ""  # learns by itself: not compared
    answers = [line.split("\t")[1] for line in (tmp_path / "out").read_text().splitlines()]
    assert answers == ["no", "yes"]
    assert run(*file) == (0, said)
    assert run(*file) == (0, "")
    for other in ("--calibration", tmp_path / "d"), ("--no-calibration",):
        code, stderr = run(*other)
        assert code == 65 and "is of a run with another calibration" in stderr


def test_state_of_a_run_with_other_rules_is_refused(tmp_path):
    (tmp_path / "box").mkdir()
    shutil.copy(MAILS[0], tmp_path / "box" / "0")
    for name in ("a", "b"):
        (tmp_path / name).write_text("rules: []\n")
    for argv, code in (["a"], 0), (["a"], 0), (["b"], 65), (["a", "--authserv-id", "mx"], 65):
        with open(tmp_path / "out", "ab") as out:
            done = subprocess.run(
                [BIN / "classify", "--state", "s", "box", "--rules", *argv],
                stdout=out,
                stderr=subprocess.PIPE,
                cwd=tmp_path,
            )
        assert done.returncode == code, done.stderr
        assert (b"is of a run with another rule file" in done.stderr) == bool(code)


def test_maildir_run_goes_on_while_mail_moves(tmp_path):
    """A message that was answered stays answered when its reader marks it."""
    box = maildir(tmp_path / "Maildir")
    argv = [BIN / "classify", "--state", tmp_path / "s", box]
    with open(tmp_path / "out", "ab") as out:
        subprocess.run(argv, stdout=out, check=True)
    for path in (box / "new").iterdir():
        path.rename(box / "cur" / f"{path.name}:2,S")
    shutil.copy(MAILS[0], box / "new" / "999.host")
    with open(tmp_path / "out", "ab") as out:
        subprocess.run(argv, stdout=out, check=True)
    names = [line.split("\t")[0] for line in (tmp_path / "out").read_text().splitlines()]
    assert len(names) == len(MAILS) + 1 and names[-1].endswith("new/999.host")


# Answers come as texts do.


def test_line_is_answered_before_the_next_one_comes(models, q):
    argv = [BIN / "classify", "-m", models / "llama.gguf", "-q", q, "--each", "line"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as run:
        for n in (1, 2, 3):
            run.stdin.write(b"a text\n")
            run.stdin.flush()
            assert run.stdout.readline().startswith(b"-:%d\t" % n)
        run.stdin.close()
        assert run.wait() == 0


@pytest.mark.full
def test_memory_does_not_grow_with_an_mbox(tmp_path):
    """Messages of 2 MB through a pipe: 60 and 6 of them."""
    import sys

    from conftest import MEASURE

    peaks = []
    for n in (6, 60):
        write = (
            "import sys\nfor i in range(%d):\n sys.stdout.write('From a@b Thu Nov 26 10:00:00"
            " 2026\\nSubject: x\\n\\n' + 'some words on a line\\n' * 100000 + '\\n')" % n
        )
        with subprocess.Popen([sys.executable, "-c", write], stdout=subprocess.PIPE) as writer:
            done = subprocess.run(
                [sys.executable, "-S", "-c", MEASURE, BIN / "classify", "--mbox"],
                stdin=writer.stdout,
                capture_output=True,
            )
        assert done.stdout.count(b"\n") == n
        peaks.append(int(done.stderr.split()[-1]))
    assert peaks[1] < peaks[0] * 1.2 < 300 << 10
