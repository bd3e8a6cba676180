"""classify --learn and --forget: the fit, the file, learners at the same time, and what is wrong
with a file.
"""

import json
import os
import random
import re
import resource
import signal
import stat
import subprocess
import time

import pytest
from conftest import BIN, ROOT, run

from sluice import gguf
from sluice.classify import calibration, fitting, learning, question
from sluice.faults import Error

MAILS = sorted((ROOT / "tests" / "mails").glob("*.eml"))
HAM, SPAM = (
    next(p for p in MAILS if p.stem.startswith(kind)).read_bytes() for kind in ("ham", "spam")
)
SHIPPED = (1.5, [0.5, 0.0])
ABOUT_SPAM = question.read(str(ROOT / "configs" / "spam.yaml"))


def classify(file, *argv, mail=HAM, **kwargs):
    return run("classify", "--calibration", file, *argv, input=mail, **kwargs)


def report(file, mail=HAM, *argv):
    done = classify(file, "--json", *argv, mail=mail)
    assert done.returncode in (0, 1, 2), done.stderr
    return json.loads(done.stdout)


def spam_probability(file, mail=HAM, *argv):
    return report(file, mail, *argv)["scores"]["yes"]


@pytest.fixture
def file(tmp_path):
    return tmp_path / "my.calibration"


# The fit.


def margins(*pairs):
    """([rows], [labels]) of (margin, is yes) pairs."""
    rows = [
        [
            -fitting.lib.sluice_log(1 + fitting.lib.sluice_exp(-m)),
            -fitting.lib.sluice_log(1 + fitting.lib.sluice_exp(m)),
        ]
        for m, _ in pairs
    ]
    return rows, [0 if yes else 1 for _, yes in pairs]


def margin_after(fit, m):
    rows, _ = margins((m, True))
    return fit[0] * (rows[0][0] - rows[0][1]) + fit[1][0] - fit[1][1]


def test_nothing_learnt_is_as_shipped():
    assert fitting.fit([], [], *SHIPPED) == (1.5, [0.5, 0.0])


def test_one_shifts_little_and_a_hundred_a_lot():
    shift = [
        margin_after(
            fitting.fit(*margins(*[(1.0, False), (-3.0, False), (4.0, True)] * n), *SHIPPED), 1.0
        )
        - 2.0
        for n in (1, 10, 100)
    ]
    assert 0 > shift[0] > -0.7 and -1 > shift[1] > shift[2] and shift[2] < -2


def test_one_that_is_wrong_cannot_turn_what_is_certain():
    """A slip of the hand: the contrary of a margin of 12 nats."""
    for m, yes in ((8.0, False), (-8.0, True)):
        assert abs(margin_after(fitting.fit(*margins((m, yes)), *SHIPPED), m)) > 0.75 * abs(
            1.5 * m + 0.5
        )


def test_fit_is_the_minimum():
    """The gradient by differences is 0, and no point nearby is lower."""
    draw = random.Random(1)
    for n_answers in (2, 3, 7):
        rows = [[draw.gauss(-3, 2) for _ in range(n_answers)] for _ in range(40)]
        labels = [max(range(n_answers), key=lambda a: row[a] + draw.gauss(0, 2)) for row in rows]
        bias = [draw.gauss(0, 1) for _ in range(n_answers)]
        scale, found = fitting.fit(rows, labels, 0.8, bias)
        problem = fitting.Problem([fitting._clipped(row) for row in rows], labels, 0.8, bias)
        at = [scale, *found]
        value, gradient, hessian = problem.at(at)
        assert max(map(abs, gradient)) < 1e-3 * len(rows)
        for i in range(len(at)):
            up, down = ([x + (d if j == i else 0) for j, x in enumerate(at)] for d in (1e-4, -1e-4))
            assert problem.at(up)[0] >= value - 1e-9 <= problem.at(down)[0] + 1e-9
            for j, h in enumerate(hessian[i]):
                assert (problem.at(up)[1][j] - problem.at(down)[1][j]) / 2e-4 == pytest.approx(
                    h, abs=1e-3
                )


@pytest.mark.parametrize(
    "pairs",
    [
        [(9.0, False)] * 300,
        [(60.0, False), (-60.0, True)] * 200,
        [(0.0, True)] * 500,
        [(1e4, True)],
        [(1e4, False)] * 50,
    ],
)
def test_scale_stays_positive_and_all_is_finite(pairs):
    scale, bias = fitting.fit(
        [[0.0, -m] if m > 0 else [m, 0.0] for m, _ in pairs],
        [0 if yes else 1 for _, yes in pairs],
        *SHIPPED,
    )
    assert 0.3 <= scale <= 7.5 and all(abs(b) < 100 for b in bias)


@pytest.mark.full
def test_fit_of_as_many_as_are_kept_is_quick():
    draw, began = random.Random(2), time.process_time()
    for n_answers in (2, 64):
        n = min(calibration.MAX_LINES, fitting.max_rows(n_answers))
        fitting.fit(
            [[draw.gauss(-3, 2) for _ in range(n_answers)] for _ in range(n)],
            [draw.randrange(n_answers) for _ in range(n)],
            1.0,
            [0.0] * n_answers,
        )
    # a bound, not a timing: without it an hour
    assert n == 946 and time.process_time() - began < 120


# What the command does.


def test_learned_calibration_is_used_afterwards(file):
    before = spam_probability(file)
    assert report(file)["calibration"] is None and not file.exists()
    done = classify(file, "--learn", "yes")
    assert (done.returncode, done.stderr) == (0, b"") and re.fullmatch(
        rb"(yes|no|unsure) [01]\.\d{3}\n", done.stdout
    )
    after, found = spam_probability(file), report(file)["calibration"]
    assert after > before and found["learnt"] == 1 and set(found["bias"]) == {"yes", "no"}
    assert found["scale"] < ABOUT_SPAM.scale and found["bias"]["yes"] - found["bias"][
        "no"
    ] > ABOUT_SPAM.bias["yes"] - ABOUT_SPAM.bias.get("no", 0)
    assert spam_probability(file, HAM, "--no-calibration") == before
    assert classify(file).stdout == done.stdout
    line = classify(file, "--long").stdout.split()
    # thresholds stay
    assert (
        float(line[1]) == pytest.approx(after, abs=6e-5)
        and line[2] == b"%.4f" % ABOUT_SPAM.thresholds["yes"]
    )


def test_same_mail_again_replaces_its_answer_and_is_forgotten(file):
    before = spam_probability(file)
    for answer in ("yes", "yes", "no", "yes"):
        classify(file, "--learn", answer)
    assert report(file)["calibration"]["learnt"] == 1 and len(learning.read_lines(str(file))) == 1
    once = spam_probability(file)
    delivered = b"X-Spam-Flag: NO\nReceived: from here\nStatus: RO\n" + HAM[HAM.index(b"\n") + 1 :]
    classify(file, "--learn", "yes", mail=delivered)  # the same text, as a mailbox gives it back
    assert report(file)["calibration"]["learnt"] == 1 and spam_probability(file) == once
    classify(file, "--learn", "no", mail=SPAM)
    assert report(file)["calibration"]["learnt"] == 2
    for mail in (SPAM, HAM):
        assert classify(file, "--forget", mail=mail).returncode == 0
    assert spam_probability(file) == before and report(file)["calibration"] is None
    done = classify(file, "--forget")
    assert (done.returncode, done.stdout, done.stderr.count(b"\n")) == (
        65,
        b"",
        1,
    ) and b"nothing to forget" in done.stderr


@pytest.mark.full
def test_order_of_learning_does_not_matter(tmp_path):
    found = []
    for name, order in (("a", MAILS), ("b", MAILS[::-1])):
        for mail in order:
            classify(
                tmp_path / name,
                "--learn",
                "yes" if mail.stem.startswith("ham") else "no",
                mail=mail.read_bytes(),
            )
        found.append(report(tmp_path / name)["calibration"])
    assert (
        found[0]["scale"] == pytest.approx(found[1]["scale"], abs=1e-6) and found[0]["learnt"] == 6
    )


def test_file_holds_numbers_only_and_is_private(file):
    old = os.umask(0)
    try:
        for mail in MAILS:
            classify(file, "--learn", "yes", mail=mail.read_bytes())
    finally:
        os.umask(old)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    first, *lines = file.read_text().splitlines()
    assert first.startswith("#calibration 1 ") and all(
        re.fullmatch(r"[0-9a-f]{16} [0-9a-f]{16} [-0-9a-f.e ,]+", line) for line in lines
    ), lines


def test_readers_that_its_owner_let_in_stay(file):
    classify(file, "--learn", "no")
    file.chmod(0o644)
    assert (
        classify(file, "--learn", "yes", mail=SPAM).returncode == 0
        and file.stat().st_mode & 0o777 == 0o644
    )


def test_default_place_is_the_data_home(tmp_path):
    for env, at in (
        ({"XDG_DATA_HOME": str(tmp_path / "data")}, tmp_path / "data"),
        ({"XDG_DATA_HOME": "", "HOME": str(tmp_path)}, tmp_path / ".local" / "share"),
    ):
        assert (
            run("classify", "--learn", "no", input=HAM, env={**os.environ, **env}).returncode == 0
        )
        assert (
            stat.S_IMODE((at / "sluice").stat().st_mode) == 0o700
            and (at / "sluice" / "spam.calibration").is_file()
        )
    assert calibration.home("./mine/asked.yaml").endswith("/sluice/asked.calibration")
    done = run(
        "classify",
        "--learn",
        "no",
        input=HAM,
        env={k: v for k, v in os.environ.items() if k not in ("HOME", "XDG_DATA_HOME")},
    )
    assert done.returncode == 64 and b"--calibration FILE" in done.stderr


def test_questions_of_one_name_share_the_default_file_in_silence(tmp_path):
    """What was learnt of one is nothing that is wrong with the other; each is taught apart."""
    asked = tmp_path / "mine" / "spam.yaml"
    asked.parent.mkdir()
    asked.write_text(
        (BIN.parent / "configs" / "spam.yaml").read_text().replace("head_ids: 288", "head_ids: 200")
    )
    env = {**os.environ, "XDG_DATA_HOME": str(tmp_path / "data")}
    assert run("classify", "--learn", "no", input=HAM, env=env).returncode == 0
    done = run("classify", "-q", asked, input=HAM, env=env)
    assert done.returncode in (0, 1, 2) and done.stderr == b""
    assert run("classify", "-q", asked, "--learn", "no", input=HAM, env=env).stderr == b""
    assert len((tmp_path / "data" / "sluice" / "spam.calibration").read_text().splitlines()) > 2
    said = run(
        "classify",
        "-q",
        asked,
        "--calibration",
        tmp_path / "data" / "sluice" / "spam.calibration",
        input=HAM,
        env=env,
    )
    assert said.returncode in (0, 1, 2) and said.stderr == b""


def test_another_model_or_question_is_left_out_and_kept(file, tmp_path):
    """Two questions in one file: each has its own fit, and learning for one leaves the other's as
    it is.
    """
    text = (
        (ROOT / "configs" / "spam.yaml")
        .read_text()
        .replace("model: spam.gguf", f"model: {ROOT}/lib/sluice/data/spam.gguf")
    )
    (tmp_path / "other.yaml").write_text(text.replace("head_ids: 288", "head_ids: 200"))
    (tmp_path / "colder.yaml").write_text(re.sub(r"scale: [0-9.]+", "scale: 1.2", text))
    classify(file, "--learn", "yes")
    done = classify(file, "-q", tmp_path / "other.yaml", "--json")
    assert done.returncode in (0, 1, 2) and json.loads(done.stdout)["calibration"] is None
    assert (
        done.stderr.count(b"\n") == 1
        and b"belong to another model or question; the question's calibration is used"
        in done.stderr
    )
    for answer in ("no", "yes"):
        classify(file, "-q", tmp_path / "other.yaml", "--learn", answer, mail=SPAM)
    fit = report(file)["calibration"]
    assert (
        fit["learnt"] == 1
        and report(file, HAM, "-q", tmp_path / "other.yaml")["calibration"]["learnt"] == 1
    )
    # the same question, calibrated anew by its maker
    done = classify(file, "-q", tmp_path / "colder.yaml", "--json")
    assert (
        b"another calibration of the question" in done.stderr
        and json.loads(done.stdout)["calibration"] is None
    )
    classify(file, "-q", tmp_path / "colder.yaml", "--learn", "no", mail=SPAM)
    # what was learnt before counts
    assert report(file, HAM, "-q", tmp_path / "colder.yaml")["calibration"]["learnt"] == 2


def test_oldest_are_dropped(file, monkeypatch):
    lines = [
        learning.Example(f"{i:016x}", "0" * 16, "1" * 16, i % 2, [-0.5, -0.9]) for i in range(5)
    ]
    q = question.read(str(ROOT / "configs" / "spam.yaml"))
    monkeypatch.setattr(calibration, "MAX_LINES", 3)
    learning._write(str(file), lines[-calibration.MAX_LINES :], q, "0" * 16, "1" * 16)
    assert [line.text for line in learning.read_lines(str(file))] == [
        line.text for line in lines[2:]
    ]
    assert calibration.read_head(str(file))["0" * 16, "1" * 16].n_texts == 3


# Learners at the same time, killed ones, full disks.


def test_learners_at_the_same_time_lose_nothing(file):
    mails = [
        f"Subject: number {word}\n\nThe text about {word}.\n".encode()
        for word in "ash birch cedar elm fir hazel larch maple oak pine rowan yew".split()
    ]
    processes = [
        subprocess.Popen(
            [BIN / "classify", "--calibration", file, "--learn", "no", "-j", "1"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        for _ in mails
    ]
    for p, mail in zip(processes, mails):
        p.stdin.write(mail)
        p.stdin.close()
    assert [(p.stderr.read(), p.wait()) for p in processes] == [(b"", 0)] * len(mails)
    assert report(file)["calibration"]["learnt"] == len(mails)


def test_learn_reports_a_lock_it_cannot_get(file, monkeypatch):
    monkeypatch.setattr(learning, "WAIT_S", 0.1)
    with (
        learning._lock(str(file)),
        pytest.raises(Error, match="another process has held the lock") as e,
        learning._lock(str(file)),
    ):
        pass
    assert e.value.code == 75


def test_kill_leaves_the_old_file_or_the_new(file):
    classify(file, "--learn", "no")
    for i in range(12):
        before = len(learning.read_lines(str(file)))
        p = subprocess.Popen(
            [BIN / "classify", "--calibration", file, "--learn", "no"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
        )
        p.stdin.write(f"Subject: {'abcdefghijkl'[i]}\n\nsome text {'abcdefghijkl'[i]}\n".encode())
        p.stdin.close()
        time.sleep(0.02 + 0.012 * i)
        p.send_signal(signal.SIGKILL)
        p.wait()
        assert len(learning.read_lines(str(file))) in (before, before + 1)
    assert sorted(p.name for p in file.parent.iterdir()) == [file.name, file.name + ".lock"]
    # a lock ends with who held it
    assert classify(file, "--learn", "no", mail=SPAM).returncode == 0


def test_full_disk_leaves_the_old_file(file):
    classify(file, "--learn", "no")
    old = file.read_bytes()
    done = classify(
        file,
        "--learn",
        "yes",
        mail=SPAM,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0)),
    )
    assert (
        done.returncode in (74, 75)
        and done.stdout == b""
        and done.stderr.count(b"\n") == 1
        and file.read_bytes() == old
    )


def test_unwritable_calibration_exits_73(tmp_path):
    (tmp_path / "f").write_bytes(b"")
    (tmp_path / "link").symlink_to(tmp_path / "f")
    (tmp_path / "d").mkdir()
    for name in ("f/x", "d"):
        done = classify(tmp_path / name, "--learn", "yes")
        assert (done.returncode, done.stdout, done.stderr.count(b"\n")) in (
            (73, b"", 1),
            (65, b"", 1),
        ), (name, done)
    done = classify(tmp_path / "link", "--learn", "yes")
    assert done.returncode == 65 and b"symbolic link" in done.stderr


# A damaged file.


def damages(data):
    yield "empty", b""
    yield "noise", bytes(range(256)) * 4
    yield "another version", data.replace(b"#calibration 1", b"#calibration 2")
    yield "long", data + b"\n"
    yield from ((f"cut at {n}", data[:n]) for n in range(1, len(data), 37))
    yield from (
        (f"bit {n}", data[:n] + bytes([data[n] ^ 1 << n % 8]) + data[n + 1 :])
        for n in range(0, len(data), 7)
    )
    yield "huge head", data.replace(data[15:21], b"999999")
    yield "negative", data.replace(data[15:21], b"-00001")


def test_damage_is_one_line_for_a_learner_and_never_stops_an_answer(file):
    """Any bit flipped, any cut: `Learnt` gives the shipped calibration or the whole fit, a learner
    65.
    """
    classify(file, "--learn", "no", mail=SPAM)
    data, q = file.read_bytes(), question.read(str(ROOT / "configs" / "spam.yaml"))
    good = calibration.read_head(str(file))

    class Model:
        id = bytes.fromhex(next(iter(good))[0]) + bytes(24)

    for name, bad in damages(data):
        file.write_bytes(bad)
        said = []
        fit = calibration.UserCalibration(str(file), q, said.append).fit(Model)
        assert (
            fit is None
            and len(said) == 1
            or fit.fitted == next(iter(good.values())).fitted
            and not said
        ), name
        with pytest.raises(Error) as e:
            learning.read_lines(str(file))
        assert (
            e.value.code == 65 and str(e.value).startswith(f"{file}: ") and "\n" not in str(e.value)
        ), name
        assert file.read_bytes() == bad


@pytest.mark.parametrize("trouble", ["damaged", "writable", "directory", "unreadable", "fifo"])
def test_trouble_with_the_file_is_a_warning(file, trouble):
    classify(file, "--learn", "no", mail=SPAM)
    want = classify(file, "--no-calibration")
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
    done = classify(file)
    assert (done.returncode, done.stdout) == (want.returncode, want.stdout)
    assert done.stderr.count(b"\n") == 1 and done.stderr.endswith(
        b"; the question's calibration is used\n"
    )
    done = classify(file, "--learn", "no")
    assert (done.returncode, done.stderr.count(b"\n")) == (65, 1)


def test_lines_with_the_right_checksum_are_still_checked(file):
    """A file that somebody made: every number within limits, or 65 with the line."""
    classify(file, "--learn", "no", mail=SPAM)
    data = file.read_bytes()
    n_head = int(data[15:21])
    head, body = data[calibration.FIRST_BYTES :][:n_head], data[calibration.FIRST_BYTES + n_head :]

    def put(head, body):
        file.write_bytes(
            calibration.MAGIC
            + b"%06d %08x %08d %08x\n"
            % (len(head), calibration.checksum(head), len(body), calibration.checksum(body))
            + head
            + body
        )

    put(head, body)
    assert len(learning.read_lines(str(file))) == 1
    for bad in (
        b"x" + body,
        body.replace(b" 1 ", b" 2 ", 1),
        body.replace(b" 1 ", b" -1 ", 1),
        body[:-1] + b" nan\n",
        body[:-1] + b" 1e9\n",
        b"\n",
        b"\xff\n",
    ):
        put(head, bad)
        with pytest.raises(Error, match="line 3: "):
            learning.read_lines(str(file))
    for bad in (
        re.sub(rb" [0-9.]+", b" inf", head, count=1),
        head.replace(b",", b" ", 1),
        re.sub(rb" ([0-9.]+)", rb" -\1", head, count=1),
        b"\n",
    ):
        put(bad, body)
        with pytest.raises(Error, match="line 2: "):
            calibration.read_head(str(file))


def test_running_worker_uses_a_new_calibration(file):
    """A resident worker asks Learnt before each answer."""
    q, said = question.read(str(ROOT / "configs" / "spam.yaml")), []
    learnt = calibration.UserCalibration(str(file), q, said.append)
    from sluice import gguf

    model = gguf.File(question.model_path(q))
    assert learnt.fit(model) is None
    for n, mail in enumerate((HAM, SPAM), 1):
        classify(file, "--learn", "no", mail=mail)
        assert learnt.fit(model).n_texts == n
    file.write_bytes(b"noise")
    assert learnt.fit(model) is None and learnt.fit(model) is None and len(said) == 1
    file.unlink()
    assert learnt.fit(model) is None and len(said) == 1


def test_usage(file):
    for argv in (
        ("--learn", "maybe"),
        ("--learn", "yes", "--forget"),
        ("--learn", "yes", "--jsonl"),
        ("--learn", "yes", "--no-calibration"),
        ("--forget", "--pass-through"),
        ("--learn", "yes", "--listen", "s"),
    ):
        done = classify(file, *argv)
        assert (done.returncode, done.stdout, done.stderr.count(b"\n")) == (
            64,
            b"",
            1,
        ) and not file.exists(), argv
    done = classify(file, "--learn", "yes", mail=b"")
    assert (done.returncode, done.stderr) == (
        65,
        b"classify: standard input: no text: the input is empty\n",
    ) and not file.exists()


# Whether it helps.


def test_learning_a_hundred_messages_of_another_kind_improves_the_verdicts():
    """The corpora's mails in a form that the model was not calibrated for."""
    np = pytest.importorskip("numpy", reason="numpy is not installed: make .venv/test")
    from spam_training import user_calibration

    draw = np.random.default_rng(1)
    is_spam = draw.random(400) < 0.3
    # all look more like spam than they should
    margin = np.where(is_spam, 2.5, -1.0) + draw.normal(0, 1.5, 400) + 1.5
    rows = dict(
        user_calibration.table(
            margin, is_spam, question.read(str(ROOT / "configs" / "spam.yaml")), [0, 20, 100], 10, 1
        )
    )
    assert rows[100][2] < rows[20][2] < rows[0][2] and rows[100][0] < rows[0][0]


def test_user_calibration_command_prints_its_table(tmp_path):
    pytest.importorskip("numpy", reason="numpy is not installed: make .venv/test")
    import sys

    for mail in MAILS:
        kind = tmp_path / "mine" / mail.stem.split("-")[0]
        kind.mkdir(parents=True, exist_ok=True)
        (kind / mail.name).write_bytes(mail.read_bytes())
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "spam_training.user_calibration",
            tmp_path / "mine",
            "-n",
            "2",
            "-r",
            "2",
            "-f",
            "whole",
            "-f",
            "forwarded",
        ],
        capture_output=True,
        timeout=60,
    )
    lines = done.stdout.decode().splitlines()
    assert (
        done.returncode == 0
        and len(lines) == 6
        and lines[2].startswith("| mine | whole | 6 | 0 | ")
    ), done.stderr


# Of a model under its earlier id.


def with_model(data, old, new):
    """The bytes of a calibration, with the model called `new` where they have `old`."""
    begin = calibration.FIRST_BYTES
    end = begin + calibration.parse_first("file", data)[0]
    head, lines = (
        part.replace(old.encode(), new.encode()) for part in (data[begin:end], data[end:])
    )
    sizes = len(head), calibration.checksum(head), len(lines), calibration.checksum(lines)
    return calibration.MAGIC + b"%06d %08x %08d %08x\n" % sizes + head + lines


@pytest.fixture
def named(file):
    """The calibration `file` with two mails learnt; (its bytes as an earlier version wrote them,
    the present id, the earlier one)."""
    for answer, mail in (("yes", HAM), ("no", SPAM)):
        assert classify(file, "--learn", answer, mail=mail).returncode == 0
    model = gguf.File(question.model_path(ABOUT_SPAM))
    now, earlier = calibration.name_of(model), calibration.earlier_name_of(model)
    assert earlier == "8af9fe374fbc5cc7" != now
    return with_model(file.read_bytes(), now, earlier), now, earlier


def test_calibration_of_the_earlier_id_counts_and_is_renamed_by_learn(file, named):
    old, now, earlier = named
    present, taught = file.read_bytes(), spam_probability(file)
    file.write_bytes(old)
    done = classify(file, "--long")
    _, p, _, model = done.stdout.split()
    assert done.stderr == b"" and model == now.encode()
    assert float(p) == pytest.approx(taught, abs=6e-5)
    assert report(file)["calibration"]["learnt"] == 2 and file.read_bytes() == old
    assert classify(file, "--learn", "no", mail=SPAM).returncode == 0
    assert file.read_bytes() == present and earlier.encode() not in present


def test_message_learned_under_the_earlier_model_id_can_be_forgotten(file, named):
    old, now, earlier = named
    file.write_bytes(old)
    assert classify(file, "--forget").returncode == 0
    assert report(file)["calibration"]["learnt"] == 1 and earlier.encode() not in file.read_bytes()


def test_of_a_mail_taught_under_both_ids_the_later_one_counts(file, named):
    old, now, earlier = named
    lines = [line for line in learning.read_lines(str(file)) for _ in range(2)]
    for n, line in enumerate(lines):
        lines[n] = learning.Example(
            line.text, (earlier, now)[n % 2], line.question, n % 2, line.log_p
        )
    kept = learning._renamed(lines, earlier, now)
    assert [(l.model, l.label) for l in kept] == 2 * [(now, 1)] and len({l.text for l in kept}) == 2


def test_earlier_id_of_another_model_is_refused(file, named, my_model):
    """Of a model where a byte of a sample differs."""
    old, now, earlier = named
    path = my_model.parent / "spam.gguf"
    model, data = gguf.File(str(path)), bytearray(path.read_bytes())
    tensor = max(model.tensors.values(), key=lambda t: t.n_bytes)
    data[tensor.offset] ^= 1
    path.write_bytes(data)
    assert calibration.earlier_name_of(gguf.File(str(path))) != earlier
    for contents in (old, with_model(old, earlier, now)):
        file.write_bytes(contents)
        done = classify(file, "-q", my_model)
        assert (
            done.returncode in (0, 1, 2)
            and b"belong to another model or question; the question's cal" in done.stderr
        )
        assert classify(file, "-q", my_model, "--learn", "yes").returncode == 0
        theirs = contents[calibration.FIRST_BYTES :][:16].decode()
        ours = calibration.name_of(gguf.File(str(path)))
        assert {line.model for line in learning.read_lines(str(file))} == {ours, theirs}


def test_fits_of_other_models_stay_under_their_names(file, named):
    old, now, earlier = named
    other = "00112233445566ff"
    file.write_bytes(with_model(old, earlier, other))
    assert classify(file, "--learn", "yes").returncode == 0
    assert {model for model, _ in calibration.read_head(str(file))} == {now, other}
