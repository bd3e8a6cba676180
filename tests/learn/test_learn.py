"""classify --learn, --forget, --list-learned and --reset: what the commands do and print."""

import fcntl
import json
import os
import re
import signal
import stat
import subprocess
import termios
import time

import pytest
from conftest import BIN, ROOT, run
from learn_files import HAM, MAILS, SPAM

from sluice import gguf
from sluice.learn import learned
from sluice.question import question

ABOUT_SPAM = question.read(str(ROOT / "configs" / "spam.yaml"))
HAMS = [p for p in MAILS if p.stem.startswith("ham")]
SPAMS = [p for p in MAILS if p.stem.startswith("spam")]


def test_taught_text_comes_out_as_taught(taught):
    assert taught.p() < 0.01 and not taught.path.exists()
    assert re.fullmatch(rb"yes [01]\.\d{3}\n", taught.learn("yes"))
    found = taught.json()
    assert (found["answer"], found["taught"]) == ("yes", True)
    assert found["scores"]["yes"] > ABOUT_SPAM.thresholds["yes"]
    assert sum(found["scores"].values()) == pytest.approx(1, abs=1e-5)
    assert found["calibration"]["learnt"] == 1
    verdict, p, threshold, _ = taught.classify("--long").stdout.split()
    assert verdict == b"yes" and float(p) > float(threshold)
    assert taught.learn("no").startswith(b"no ")  # moved
    assert taught.json()["answer"] == "no" and taught.n() == 1


def test_folder_of_texts_that_had_another_answer_is_named(taught, tmp_path):
    """As when the whole inbox is learned as wanted, with the spam in it."""
    (tmp_path / "box").mkdir()
    for i in range(26):
        part = bytes([97 + i]) * 9  # digits are folded
        (tmp_path / "box" / str(i)).write_bytes(SPAM + b"\n" + part + b"\n")
    done = taught.classify("--learn", "no", tmp_path / "box")
    assert done.stdout == b"learned 26 no, 26 new, 0 moved\n" and done.returncode == 0
    assert done.stderr == (
        b"classify: until now 26 of these 26 texts got another answer; if they are not all no,"
        b" --forget takes it back\n"
    )
    assert taught.classify("--learn", "no", tmp_path / "box").stderr == b""
    assert taught.classify("--forget", tmp_path / "box").stdout == b"forgotten 26\n"


@pytest.mark.full
def test_mail_is_known_whatever_a_mailbox_added(taught):
    taught.learn("yes")
    delivered = b"X-Spam-Flag: NO\nReceived: from here\nStatus: RO\n" + HAM[HAM.index(b"\n") + 1 :]
    assert taught.json(input=delivered)["answer"] == "yes"
    assert taught.learn("yes", input=delivered) and taught.n() == 1
    assert taught.classify("--forget", input=delivered).returncode == 0 and taught.n() == 0


def test_what_was_learned_moves_other_texts(taught):
    """Mails of a list that the model takes for neither, taught as wanted."""
    mails = [
        f"From: list@birds.example\nTo: me@home.example\nList-Id: <birds.example>\n"
        f"Subject: sighting of {bird}\n\nSeen at the lake: a {bird}. Win a free offer now!\n".encode()
        for bird in "wren finch robin heron swift crane plover godwit".split()
    ]
    before = taught.p(input=mails[0])
    for mail in mails[1:]:
        taught.learn("no", input=mail)
    taught.learn("yes", *SPAMS)
    after = taught.json(input=mails[0])
    assert "taught" not in after and after["scores"]["yes"] < before / 2
    assert taught.p("--no-calibration", input=mails[0]) == before


def test_forgetting_undoes_bit_by_bit(taught):
    taught.learn("ham", *HAMS[:2])
    taught.learn("spam", *SPAMS[:2])
    before, verdict = taught.path.read_bytes(), taught.json(input=SPAM)
    taught.learn("spam", HAMS[2])
    taught.learn("no", input=b"Subject: a\n\nsome text\n")
    assert taught.path.read_bytes() != before
    for argv, mail in (((HAMS[2],), b""), ((), b"Subject: a\n\nsome text\n")):
        assert taught.classify("--forget", *argv, input=mail).returncode == 0
    assert taught.path.read_bytes() == before
    now = taught.json(input=SPAM)
    assert {**now, "ms": 0} == {**verdict, "ms": 0}


@pytest.mark.full
def test_many_are_taught_by_one_process_from_folders_and_mboxes(taught, tmp_path):
    folder, maildir = tmp_path / "ham", tmp_path / "Maildir"
    folder.mkdir()
    for sub in ("cur", "new", "tmp"):
        (maildir / sub).mkdir(parents=True)
    for n, path in enumerate(HAMS):
        (folder / path.name).write_bytes(path.read_bytes())
        (maildir / "cur" / f"{n}:2,S").write_bytes(SPAMS[n].read_bytes())
    mbox = tmp_path / "mbox"
    of = lambda n: b"From a@b Thu Nov 26 10:00:00 2026\nFrom: a@b.example\n\nmail %b\n\n" % n
    mbox.write_bytes(of(b"one") + of(b"two") + of(b"three"))
    assert taught.learn("ham", folder) == b"learned 3 ham, 3 new, 0 moved\n"
    assert taught.learn("spam", maildir, mbox) == b"learned 6 spam, 6 new, 0 moved\n"
    assert taught.learn("ham", mbox) == b"learned 3 ham, 0 new, 3 moved\n"
    assert taught.learn("ham", mbox) == b"learned 3 ham, 0 new, 0 moved\n"
    counts = {name: some["texts"] for name, some in taught.listed()["answers"].items()}
    assert counts == {"yes": 3, "no": 6}
    done = taught.classify("--forget", mbox, folder)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"forgotten 6\n", b"")
    found = json.loads(taught.classify("--forget", "--json", maildir).stdout)
    assert found == {"texts": 3, "new": 0, "moved": 0, "forgotten": 3, "errors": 0}
    assert taught.n() == 0


def test_one_bad_text_of_many_is_named_and_the_others_are_taught(taught, tmp_path):
    (tmp_path / "box").mkdir()
    for name, data in ("a", HAM), ("b", b""), ("c", SPAM), ("d", b"\x7fELF\0\0\0"):
        (tmp_path / "box" / name).write_bytes(data)
    done = taught.classify("--learn", "no", tmp_path / "box")
    assert (done.returncode, done.stdout) == (65, b"learned 2 no, 2 new, 0 moved\n")
    said = done.stderr.decode().splitlines()
    assert len(said) == 2 and "/b: no text" in said[0] and "/d: is a program" in said[1]
    (tmp_path / "box" / "b").write_bytes(b"Subject: never taught\n\nx\n")
    done = taught.classify("--forget", tmp_path / "box")
    assert (done.returncode, done.stdout) == (65, b"forgotten 2\n")
    assert b"/b: nothing to forget: this text was not learned" in done.stderr


@pytest.mark.full
def test_ctrl_c_keeps_what_was_done(taught, tmp_path):
    p = subprocess.Popen(
        [BIN / "classify", "--calibration", taught.path, "--learn", "no", "--each", "line"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(
            signal.SIGINT, signal.SIG_DFL
        ),  # a background job ignores it
    )
    p.stdin.write(b"a line about ash\na line about birch\na line about cedar\n")
    p.stdin.flush()
    end = time.monotonic() + 60
    while any(fcntl.ioctl(p.stdin, termios.FIONREAD, bytes(4))) and time.monotonic() < end:
        time.sleep(0.1)  # until it has read the lines
    time.sleep(3)
    p.send_signal(signal.SIGINT)
    p.communicate(timeout=60)
    assert p.returncode not in (0, 1) and taught.n() == 3


@pytest.mark.full
def test_lines_of_any_question_are_taught(models, tmp_path):
    """With a chat model, a question of three answers, and tokens of the lines."""
    ask = ("-m", models / "llama.gguf", "-q", "Which team?", "--answers", "billing,technical,sales")
    file = ("--calibration", tmp_path / "team.calibration")
    for answer, word in ("billing", "invoice"), ("technical", "crash"), ("sales", "price"):
        lines = "".join(f"the {word} of {name} again\n" for name in ("ann", "bob", "eve", "joe"))
        done = run(
            "classify", *ask, *file, "--learn", answer, "--each", "line", input=lines.encode()
        )
        assert (done.returncode, done.stderr) == (0, b""), done.stderr
    for answer, word in ("billing", "invoice"), ("technical", "crash"), ("sales", "price"):
        text = f"a {word} of somebody else\n".encode()
        p = json.loads(run("classify", *ask, *file, "--json", input=text).stdout)["scores"]
        old = json.loads(run("classify", *ask, "--json", input=text).stdout)["scores"]
        assert max(p, key=p.get) == answer and p != old


@pytest.mark.full
def test_listing_says_what_is_kept_and_reset_empties_it(taught):
    taught.learn("ham", *HAMS)
    taught.learn("spam", *SPAMS)
    found = taught.listed()
    assert found["texts"] == found["with_tokens"] == found["counting"] == 6
    assert found["bytes"] == taught.path.stat().st_size and found["first"] <= found["last"]
    assert set(found["accuracy"]) == {"alone", "learned"} and found["accuracy"]["alone"] == 1
    lines = taught.classify("--list-learned").stdout.decode().splitlines()
    assert ["yes\t3", "no\t3"] == [x for x in lines if x.split("\t")[0] in ("yes", "no")]
    done = taught.classify("--reset")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"forgotten 6\n", b"")
    assert taught.n() == 0 and taught.json()["calibration"] is None
    taught.path.write_bytes(b"#calibration 2\n\0noise")
    done = taught.classify("--reset")
    assert (done.returncode, done.stdout) == (0, b"forgotten a damaged file\n")
    assert json.loads(taught.classify("--reset", "--json").stdout) == {"forgotten": 0}


def test_listing_of_nothing(taught):
    found = taught.listed()
    assert found["texts"] == found["bytes"] == 0 and found["accuracy"] is None
    assert taught.classify("--reset").stdout == b"forgotten 0\n" and not taught.path.exists()


def test_file_is_private_and_has_no_word(taught):
    old = os.umask(0)
    try:
        taught.learn("spam", *SPAMS)
    finally:
        os.umask(old)
    data = taught.path.read_bytes()
    assert stat.S_IMODE(taught.path.stat().st_mode) == 0o600
    words = {w for p in SPAMS for w in re.findall(rb"[A-Za-z]{6,}", p.read_bytes())}
    assert len(words) > 100 and not [w for w in words if w in data or w.lower() in data]


def test_readers_that_its_owner_let_in_stay(taught):
    taught.learn("no")
    taught.path.chmod(0o644)
    taught.learn("yes", input=SPAM)
    assert taught.path.stat().st_mode & 0o777 == 0o644


def test_default_place_is_the_data_home(tmp_path):
    for env, at in (
        ({"XDG_DATA_HOME": str(tmp_path / "data")}, tmp_path / "data"),
        ({"XDG_DATA_HOME": "", "HOME": str(tmp_path)}, tmp_path / ".local" / "share"),
    ):
        env = {**os.environ, **env}
        assert run("classify", "--learn", "no", input=HAM, env=env).returncode == 0
        assert stat.S_IMODE((at / "sluice").stat().st_mode) == 0o700
        assert (at / "sluice" / "spam.calibration").is_file()
    env = {k: v for k, v in os.environ.items() if k not in ("HOME", "XDG_DATA_HOME")}
    done = run("classify", "--learn", "no", input=HAM, env=env)
    assert done.returncode == 64 and b"--calibration FILE" in done.stderr


def other_question(tmp_path, name="other.yaml", old="head_ids: 288", new="head_ids: 200"):
    text = (ROOT / "configs" / "spam.yaml").read_text()
    text = text.replace("model: spam.gguf", f"model: {ROOT}/lib/sluice/data/spam.gguf")
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(re.sub(old, new, text))
    return path


@pytest.mark.full
def test_questions_of_one_name_share_the_default_file_in_silence(tmp_path):
    asked = other_question(tmp_path, "mine/spam.yaml")
    env = {**os.environ, "XDG_DATA_HOME": str(tmp_path / "data")}
    assert run("classify", "--learn", "no", input=HAM, env=env).returncode == 0
    done = run("classify", "-q", asked, input=HAM, env=env)
    assert done.returncode in (0, 1, 2) and done.stderr == b""
    assert run("classify", "-q", asked, "--learn", "yes", input=HAM, env=env).stderr == b""
    assert run("classify", "-q", asked, input=HAM, env=env).stdout.startswith(b"yes ")
    assert run("classify", input=HAM, env=env).stdout.startswith(b"no ")


@pytest.mark.full
def test_another_model_or_question_is_left_out_and_kept(taught, tmp_path):
    other = "-q", other_question(tmp_path)
    colder = "-q", other_question(tmp_path, "colder.yaml", r"scale: [0-9.]+", "scale: 1.2")
    taught.learn("yes")
    done = taught.classify(*other, "--json")
    assert json.loads(done.stdout)["calibration"] is None and done.stderr.count(b"\n") == 1
    assert b"belong to another model or question; the question's calibration is used" in done.stderr
    assert taught.classify(*other, "--learn", "no", input=SPAM).returncode == 0
    assert taught.json()["answer"] == "yes" and taught.listed()["others"] == 1
    assert taught.json(*other)["calibration"]["learnt"] == 1
    # the same question, calibrated anew by its maker
    done = taught.classify(*colder, "--json")
    assert b"another calibration of the question; the next --learn fits it again" in done.stderr
    assert taught.classify(*colder, "--learn", "no", input=SPAM).returncode == 0
    assert taught.json(*colder)["calibration"]["learnt"] == 2


def test_running_worker_uses_what_is_new(taught):
    """A daemon's Learned is asked before each answer."""
    said = []
    found = learned.Learned(str(taught.path), ABOUT_SPAM, said.append)
    model = gguf.File(question.model_path(ABOUT_SPAM))
    assert found.section(model) is None
    for n, mail in enumerate((HAM, SPAM), 1):
        taught.learn("no", input=mail)
        assert found.section(model).n_texts == n
    taught.path.write_bytes(b"noise")
    assert found.section(model) is None and found.section(model) is None and len(said) == 1
    taught.path.unlink()
    assert found.section(model) is None and len(said) == 1


@pytest.mark.full
@pytest.mark.parametrize("trouble", ["damaged", "writable", "directory", "unreadable", "fifo"])
def test_trouble_with_the_file_is_a_warning(taught, trouble):
    file = taught.path
    taught.learn("no", input=SPAM)
    want = taught.classify("--no-calibration")
    if trouble == "damaged":
        file.write_bytes(file.read_bytes()[:-30])
    elif trouble == "writable":
        file.chmod(0o666)
    else:
        file.unlink()
        if trouble == "directory":
            file.mkdir()
        elif trouble == "unreadable":
            file.symlink_to("/proc/self/mem")
        else:
            os.mkfifo(file)
    done = taught.classify()
    assert (done.returncode, done.stdout) == (want.returncode, want.stdout)
    assert done.stderr.count(b"\n") == 1
    assert done.stderr.endswith(b"; the question's calibration is used\n")
    for argv in ("--learn", "no"), ("--list-learned",):
        done = taught.classify(*argv)
        assert (done.returncode, done.stderr.count(b"\n")) == (65, 1)
        assert done.stderr.endswith(b"; --reset begins again\n") == (trouble == "damaged")
    if trouble == "damaged":
        assert taught.classify("--reset").stdout == b"forgotten a damaged file\n"
        assert taught.classify("--learn", "no").returncode == 0


@pytest.mark.full
def test_usage(taught):
    for argv in (
        ("--learn", "maybe"),
        ("--learn", "yes", "--forget"),
        ("--learn", "yes", "--no-calibration"),
        ("--learn", "yes", "--long"),
        ("--learn", "yes", "--select", "yes"),
        ("--learn", "yes", "--receipt", "r"),
        ("--learn", "yes", "--why"),
        ("--learn", "yes", "--auto-learn", "0.9"),
        ("--learn", "yes", "-q", "spam", "-q", "urgent"),
        ("--forget", "--pass-through"),
        ("--learn", "yes", "--listen", "s"),
        ("--reset", "--list-learned"),
        ("--reset", "x.eml"),
        ("--auto-learn", "0.3"),
        ("--auto-learn", "0.9", "--no-calibration"),
    ):
        done = taught.classify(*argv)
        assert (done.returncode, done.stdout, done.stderr.count(b"\n")) == (64, b"", 1), argv
        assert not taught.path.exists()
    done = taught.classify("--learn", "yes", input=b"")
    assert (done.returncode, done.stdout) == (65, b"") and not taught.path.exists()
    assert done.stderr == b"classify: standard input: no text: the input is empty\n"
    done = taught.classify("--forget")
    assert (done.returncode, done.stdout) == (65, b"") and b"nothing to forget" in done.stderr
    assert not taught.path.exists()
