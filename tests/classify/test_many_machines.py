"""The examples of configs/recipes/many-machines.md, word for word: GNU parallel, xargs and Spark
divide texts among workers, and one of them is killed in the middle. Nothing is lost or doubled.

SLUICE_TEXTS=1000000: that many texts, for a run by hand.
"""

import json
import os
import shutil
import subprocess
import time

import pytest
from chat_model import write_chat_model
from conftest import BIN, ROOT
from readme_pages import block

PAGE = "configs/recipes/many-machines.md"
N = int(os.environ.get("SLUICE_TEXTS", 20_000))
PATIENCE = 300 + N // 500  # seconds
SPARK = ROOT / "build" / "spark-venv" / "bin"
ASKED = ("-q", "Is this urgent?", "--answers", "yes,no", "--jsonl")

# Stands before classify on the path. The run whose number is in the file `killed` is killed, the
# model in full work; with it the script that is its parent, if there is a file `parent`, too.
CLASSIFY = """#!/bin/sh
n=1; while ! mkdir "$RUNS/$n" 2>/dev/null; do n=$((n + 1)); done
[ "$n" = "$(cat "$RUNS/killed")" ] || exec "$REAL" "$@"
mkfifo "$RUNS/fifo"
exec 3<&0
"$REAL" "$@" <&3 >"$RUNS/fifo" &
exec 4<"$RUNS/fifo"
head $(cat "$RUNS/lines") <&4
kill -KILL $!
[ ! -e "$RUNS/parent" ] || kill -KILL "$PPID"
kill -KILL $$
"""

# Stands for ssh: every host is this machine, with little more than the environment of a login.
SSH = """#!/bin/sh
while :; do case $1 in -o|-l|-p|-i|-S) shift 2;; -*) shift;; *) break;; esac; done
echo "$1" >>"$RUNS/hosts"
shift
[ "$1" != -- ] || shift
cd / && exec env -i PATH="$PATH" HOME="$HOME" SHELL=/bin/sh RUNS="$RUNS" REAL="$REAL" sh -c "$*"
"""


def need(*commands):
    for command, package in commands:
        if not shutil.which(command):
            pytest.skip(f"{command} is not installed: apt install {package}")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("tiny") / "tiny.gguf"
    size = {"n_ctx": 512, "n_layer": 1, "n_embd": 32, "n_ff": 64, "n_head": 1, "n_head_kv": 1}
    return write_chat_model(path, ["<|user|>", "<|assistant|>"], **size)


def text(i):
    return f"Ticket {i}: the {('printer', 'login', 'invoice')[i % 3]} does not work"


def write_texts(path, bad=()):
    with open(path, "w") as f:
        for i in range(1, N + 1):
            f.write(json.dumps({"id": i} if i in bad else {"id": i, "text": text(i)}) + "\n")


@pytest.fixture(scope="module")
def alone(model, tmp_path_factory):
    """What one process answers to all texts."""
    path = tmp_path_factory.mktemp("alone") / "texts.jsonl"
    write_texts(path)
    with open(path) as f:
        done = subprocess.run([BIN / "classify", "-m", model, *ASKED], stdin=f, capture_output=True)
    assert (done.returncode, done.stdout.count(b"\n")) == (0, N)
    return done.stdout


class Place:
    """A folder with the texts and the scripts of the page, in which the page's commands run.

    killed: number of the run of classify that is killed, and `parent`: with the worker that
    started it. lines: options of head for what that run prints before.
    """

    def __init__(self, folder, model, bad=()):
        self.folder, self.runs = folder, folder / "runs"
        self.runs.mkdir()
        path = folder / "bin"
        path.mkdir()
        self.script("bin/classify", CLASSIFY)
        for name in ("worker", "part"):
            self.script(name, block(PAGE, name))
        write_texts(folder / "texts.jsonl", bad)
        self.env = {
            **os.environ,
            "PATH": f"{path}{os.pathsep}{SPARK}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(folder),
            "MODEL": model,
            "RUNS": str(self.runs),
            "REAL": str(BIN / "classify"),
        }
        self.kill(0)

    def script(self, name, code):
        (self.folder / name).write_text(code)
        (self.folder / name).chmod(0o755)

    def kill(self, number, parent=False, lines="-n 700"):
        (self.runs / "killed").write_text(f"{number}\n")
        (self.runs / "lines").write_text(f"{lines}\n")
        if parent:
            (self.runs / "parent").touch()

    @property
    def n_runs(self):
        return sum(p.is_dir() for p in self.runs.iterdir())

    def was_killed(self):
        return (self.runs / "fifo").exists()

    def start(self, script):
        return subprocess.Popen(
            ["sh", "-c", script],
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self.env,
            start_new_session=True,
        )

    def run(self, script):
        process = self.start(script)
        try:
            out, err = process.communicate(timeout=PATIENCE)
        finally:
            kill_session(process)
        return subprocess.CompletedProcess(script, process.returncode, out, err)

    def answers(self):
        return (self.folder / "answers.jsonl").read_bytes()

    def check(self):
        """What the page's check prints."""
        done = self.run(block(PAGE, "check"))
        assert not done.stderr
        return done.stdout.decode().splitlines()


def kill_session(process):
    try:
        os.killpg(process.pid, 9)
    except ProcessLookupError:
        pass


@pytest.fixture
def place(tmp_path, model):
    return Place(tmp_path, model)


@pytest.fixture
def place_with_bad_lines(tmp_path, model):
    return Place(tmp_path, model, bad=(5, 15_000))


def objects(data):
    return [json.loads(line) for line in data.splitlines()]


def assert_two_are_bad(place, alone):
    """Lines 5 and 15,000 have an error in their place, and the others their answers."""
    found, want = objects(place.answers()), objects(alone)
    assert [o["id"] for o in found if "error" in o] == [5, 15_000]
    for o in found:
        assert "error" in o or o == want[o["id"] - 1]
    complete, *errors = place.check()
    assert complete == "complete" and len(errors) == 2


KILLED = [
    pytest.param(3, False, id="classify"),
    pytest.param(3, True, id="classify-and-worker"),
]


# GNU parallel


@pytest.fixture
def parallel():
    need(("parallel", "parallel"))


@pytest.mark.full
@pytest.mark.usefixtures("parallel")
@pytest.mark.parametrize("number, parent", KILLED)
def test_parallel_repeats_the_block_of_a_killed_worker(place, alone, number, parent):
    place.kill(number, parent)
    done = place.run(block(PAGE, "parallel"))
    assert done.returncode == 0 and place.was_killed()
    assert place.answers() == alone
    assert place.check() == ["complete", "no errors"]


@pytest.mark.full
@pytest.mark.usefixtures("parallel")
def test_parallel_without_retries_says_what_is_missing(place, alone):
    """The check of the page finds it, too."""
    place.kill(3)
    done = place.run(block(PAGE, "parallel").replace("--retries 3 ", ""))
    assert done.returncode == 1 and place.was_killed()
    assert 700 <= place.answers().count(b"\n") < N
    found = place.check()
    assert "differ" in found[0] and "complete" not in found


@pytest.mark.full
@pytest.mark.usefixtures("parallel")
def test_parallel_repeats_no_block_with_invalid_lines(place_with_bad_lines, alone):
    place = place_with_bad_lines
    done = place.run(block(PAGE, "parallel"))
    n_blocks = len((place.folder / "log").read_text().splitlines()) - 1
    assert done.returncode == 0 and place.n_runs == n_blocks >= 5
    assert_two_are_bad(place, alone)


@pytest.mark.full
@pytest.mark.usefixtures("parallel")
def test_parallel_that_was_killed_resumes(place, alone):
    process = place.start(block(PAGE, "parallel"))
    log, end = place.folder / "log", time.monotonic() + 120
    try:
        while not log.exists() or log.read_text().count("\n") < 3:  # a header and two blocks
            assert process.poll() is None and time.monotonic() < end
            time.sleep(0.02)
    finally:
        kill_session(process)
        process.communicate()
    before = log.read_text().count("\n") - 1
    done = place.run(block(PAGE, "resume"))
    after = log.read_text().count("\n") - 1
    assert done.returncode == 0 and 2 <= before < after
    assert place.answers() == alone


@pytest.mark.full
@pytest.mark.usefixtures("parallel")
def test_parallel_repeats_on_another_host(place, alone):
    """Each host works, one of their workers is killed, and beta cannot be reached."""
    place.script("bin/ssh", SSH.replace("shift\n[", '[ "$1" != beta ] || exit 255\nshift\n['))
    place.kill(3)
    done = place.run(block(PAGE, "hosts"))
    rows = [line.split("\t") for line in (place.folder / "log").read_text().splitlines()[1:]]
    assert done.returncode == 0 and place.was_killed()
    assert {row[1] for row in rows} == {":", "alpha"} and {row[6] for row in rows} == {"0"}
    assert "beta" in (place.runs / "hosts").read_text()
    assert place.answers() == alone


# xargs

N_PARTS = N // 2000
SPLIT = block(PAGE, "split")


@pytest.mark.full
@pytest.mark.parametrize("number, parent", KILLED)
def test_xargs_does_the_part_of_a_killed_worker_in_the_next_round(place, alone, number, parent):
    place.kill(number, parent)
    done = place.run(SPLIT + block(PAGE, "xargs"))
    assert done.returncode == 0 and place.was_killed()
    assert place.answers() == alone and place.n_runs == N_PARTS + 1  # one part twice
    assert place.check() == ["complete", "no errors"]


@pytest.mark.full
def test_xargs_that_was_killed_continues_with_the_same_lines(place, alone):
    """Half a part is no part: its output has another name."""
    process = place.start(SPLIT + block(PAGE, "xargs"))
    end = time.monotonic() + 120
    try:
        while not list(place.folder.glob("parts/*.out")):
            assert process.poll() is None and time.monotonic() < end
            time.sleep(0.02)
    finally:
        kill_session(process)
        process.communicate()
    assert len(list(place.folder.glob("parts/*.out"))) < N_PARTS
    done = place.run(block(PAGE, "xargs"))
    assert done.returncode == 0 and place.answers() == alone


@pytest.mark.full
def test_xargs_repeats_no_part_with_invalid_lines(place_with_bad_lines, alone):
    place = place_with_bad_lines
    assert place.run(SPLIT + block(PAGE, "xargs")).returncode == 0 and place.n_runs == N_PARTS
    assert_two_are_bad(place, alone)


@pytest.mark.quick_cases(1)
def test_xargs_over_files_has_a_line_for_each_although_a_worker_is_killed(place):
    """Files whose names have spaces, tabs, newlines and quotes; 301 of them, so that the last
    process gets one."""
    folder = place.folder / "texts"
    folder.mkdir()
    names = [f"it's\t{i}\n.txt" for i in range(300)] + ["empty"]
    for i, name in enumerate(names):
        (folder / name).write_text(text(i) if name != "empty" else "")
    place.kill(2, lines="-z -n 50")
    done = place.run(block(PAGE, "files"))
    assert done.returncode == 0 and place.was_killed()
    *found, end = (place.folder / "answers").read_bytes().decode().split("\0")
    rows = {name: rest for name, *rest in (line.rsplit("\t", 2) for line in found)}
    assert end == "" and len(found) == len(rows) == 301
    assert set(rows) == {f"texts/{name}" for name in names}
    assert rows.pop("texts/empty") == ["error", "-"]
    (place.folder / "one").write_text(text(7))
    one = place.run("classify -q 'Is this urgent?' --answers yes,no -0 one").stdout.decode()
    assert one.rstrip("\0").split("\t")[1:] == rows["texts/it's\t7\n.txt"]


# Spark


@pytest.fixture
def spark(place):
    need(("java", "default-jre-headless"))
    if not (SPARK / "spark-submit").exists():
        pytest.skip("Spark is not installed: make spark-check")
    (place.folder / "urgent.py").write_text(block(PAGE, "spark"))
    return place


@pytest.mark.full
def test_spark_repeats_the_task_of_a_killed_worker(spark, alone):
    spark.kill(3, parent=True)
    done = spark.run(block(PAGE, "spark-submit"))
    assert done.returncode == 0, done.stderr[-2000:]
    assert spark.was_killed() and b"PIPE_FUNCTION_EXITED" in done.stderr
    assert spark.answers() == alone
    assert spark.check() == ["complete", "no errors"]


@pytest.mark.full
def test_spark_repeats_no_task_with_invalid_lines(spark, alone):
    write_texts(spark.folder / "texts.jsonl", bad=(5, 15_000))
    done = spark.run(block(PAGE, "spark-submit"))
    n_parts = len(list(spark.folder.glob("answers/part-*")))
    assert done.returncode == 0 and spark.n_runs == n_parts >= 8
    assert_two_are_bad(spark, alone)


# What the page says of the worker.


def test_damaged_model_is_found_before_the_run(place, model):
    place.env["MODEL"] = str(place.folder / "cut.gguf")
    with open(model, "rb") as f:
        (place.folder / "cut.gguf").write_bytes(f.read()[:20_000])
    (before,) = [line for line in block_lines() if line.endswith("</dev/null")]
    done = place.run(before)
    assert (done.returncode, done.stdout) == (65, b"") and b"cut.gguf" in done.stderr
    place.env["MODEL"] = model
    done = place.run(before)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def block_lines():
    return [line for b in (ROOT / PAGE).read_text().split("```") for line in b.splitlines()]
