"""README.md is tested: its ring runs, killing a stage of it never looks like an answer, its
bad-input table is true.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import time

import pytest
from bpe_model import bpe_metadata
from chat_model import write_chat_model
from conftest import BIN, ROOT, shell
from gguf_writer import write_gguf
from tiny_model import write_model

README = (ROOT / "README.md").read_text()
RING = re.search(r"<!-- ring -->\n```sh\n(.*?)```", README, re.S).group(1)
ROWS = re.findall(r"^\| `(.+?)` \| .+? \| (\d+) \| (.+?) \|$", README, re.M)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A directory with everything the table's commands name."""
    d = tmp_path_factory.mktemp("readme")
    write_model(str(d / "m.gguf"), type="q8_0", n_layer=2, n_vocab=400)
    write_model(str(d / "other.gguf"), type="q8_0", n_layer=2, n_vocab=400, seed=2)
    write_model(str(d / "long.gguf"), type="q8_0", n_layer=2, n_vocab=400, n_ctx=60000)
    write_gguf(d / "words.gguf", bpe_metadata([(b"y", b"e")], rule="unheard-of"), [])
    write_gguf(
        d / "merges.gguf", bpe_metadata([(b"y", b"e")], merges=("[string]", ["y e", "e z"])), []
    )
    model = (d / "m.gguf").read_bytes()
    (d / "cut.gguf").write_bytes(model[: len(model) // 2])
    (d / "empty").write_bytes(b"")
    (d / "garbage").write_bytes(bytes((i * i * 2654435761 >> 13) & 255 for i in range(5000)))
    (d / "yesno.gbnf").write_bytes((ROOT / "configs" / "yesno.gbnf").read_bytes())
    (d / "bad.gbnf").write_text('root ::= "yes" |\n  missing')
    (d / "left.gbnf").write_text('root ::= root "a" | "a"')
    (d / "nested.gbnf").write_text("root ::= " + "(" * 60000)
    (d / "bad.jinja").write_text(
        "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
    )
    (d / "bad.yaml").write_text((ROOT / "configs" / "urgent.yaml").read_text() + "treshold: 1")
    (d / "prompt.txt").write_text("Is this mail spam?")
    done = shell(
        """set -e
        tokenize -m m.gguf <prompt.txt >ids
        tokenize -m other.gguf <prompt.txt >other.ids
        prefill -m m.gguf -o p.snap <ids
        prefill -m other.gguf -o other.snap <other.ids
        decode -m m.gguf p.snap <ids >logits
        head -n 3 ids >cut.ids
        head -c 1000 logits >cut.logits
        tokenize -m long.gguf <prompt.txt | prefill -m long.gguf -c 60000 -o long.snap""",
        d,
    )
    assert done.returncode == 0, done.stderr
    (d / "cut.snap").write_bytes((d / "p.snap").read_bytes()[:5000])
    damaged = bytearray((d / "p.snap").read_bytes())
    damaged[-200000] ^= 1  # in a hole; and one bit of a key
    damaged[kv_offset(damaged) + 77] ^= 16
    (d / "damaged.snap").write_bytes(damaged)
    for name in ("cut.snap", "damaged.snap"):
        os.chmod(d / name, 0o600)
    (d / "model.pth").write_bytes(b"PK\3\4" + bytes(300))
    mkdirs = d / "directory"
    mkdirs.mkdir()
    return d


def kv_offset(snapshot):
    return int.from_bytes(snapshot[96:104], "little")


def tree(directory):
    return {
        (p.relative_to(directory), p.stat().st_size, p.stat().st_mtime_ns)
        for p in directory.rglob("*")
    }


def test_table_has_rows_for_every_tool():
    assert len(ROWS) >= 40
    for tool in (
        "gguf-dump",
        "tokenize",
        "prefill",
        "decode",
        "grammar-filter",
        "sample",
        "mail-text",
        "classify",
        "mail-filter",
        "generate",
        "chat",
        "sluice-bench",
        "gguf-convert",
        "gguf-quantize",
        "perplexity",
    ):
        assert sum(tool in command for command, _, _ in ROWS) >= 5, tool


@pytest.mark.parametrize(
    "row", range(len(ROWS)), ids=lambda i: re.sub(r"\W+", "-", ROWS[i][0])[:60]
)
def test_bad_input_ends_as_the_table_says(files, row):
    command, code, message = ROWS[row]
    command = command.replace("\\|", "|")
    before = tree(files)
    done = shell(command, files, timeout=60)
    err = done.stderr.decode()
    assert done.returncode == int(code), err
    if message == "(silent)":
        assert err == ""
    else:
        words = message.strip("`").replace("\\|", "|")
        assert words in err
        assert err.count("\n") == 1 and err.endswith("\n") and "Traceback" not in err
        assert re.match(
            r"(4.3.0"
            r" mail-filter|gguf-dump|gguf-convert|gguf-quantize|perplexity|tokenize|prefill|decode|grammar-filter|sample|mail-text|classify|generate|chat|sluice-bench): ",
            err,
        )
    assert tree(files) == before, "something was left behind"


def test_ring_answers(files, tmp_path):
    for name in ("prompt.txt", "yesno.gbnf"):
        (tmp_path / name).write_bytes((files / name).read_bytes())
    done = shell(RING, tmp_path, M=str(files / "m.gguf"))
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout in (b"yes", b"no")


def test_script_answers_with_a_score(files, tmp_path):
    for name in ("p.snap", "yesno.gbnf"):
        shutil.copy2(files / name, tmp_path / name)
    script = re.search(r"<!-- script -->\n```sh\n(.*?)```", README, re.S).group(1)
    done = shell("mkfifo ring\n" + script, tmp_path, M=str(files / "m.gguf"))
    assert (done.returncode, done.stderr) == (0, b"")
    assert re.fullmatch(
        r"(yes|no), says the model\n#ids 1 .*\n(\d+\t-\d\.\d+\n)+#end stop\n", done.stdout.decode()
    )


SHIPPED = ROOT / "lib" / "sluice" / "data" / "spam.gguf"
MAIL = (
    b"From: Ann <ann@example.org>\nSubject: Minutes of Monday\n\nDear all, the meeting is moved to"
    b" 12:30. Bring the numbers!\n"
)


def block(name):
    return re.search(rf"<!-- {name} -->\n```sh\n(.*?)```", README, re.S).group(1)


@pytest.fixture(params=["the shipped model", "a stand-in"])
def spam_model(request, tmp_path):
    """(path, name of the question that classify is to be asked): the shipped model, or a random one
    with its control tokens.
    """
    if request.param == "a stand-in":
        path = write_chat_model(
            tmp_path / "stand-in.gguf", ["<|user|>", "<|assistant|>"], n_ctx=1024, seed=3
        )
        return path, f"classify -m '{path}'"
    if not SHIPPED.exists():
        pytest.skip(f"missing: {SHIPPED.relative_to(ROOT)}")
    return SHIPPED, "classify"


def test_spam_script_answers_alike_in_all_three_forms(spam_model, tmp_path):
    path, command = spam_model
    (tmp_path / "mail").write_bytes(MAIL)
    ring = shell(block("spam ring"), tmp_path, M=str(path))
    assert (ring.returncode, ring.stderr) == (0, b"") and ring.stdout in (b"yes", b"no")
    verdict = shell(block("classify").replace("classify", command), tmp_path)
    answer, score = verdict.stdout.decode().split()
    assert verdict.stderr == b"" and verdict.returncode == {"yes": 0, "no": 1, "unsure": 2}[answer]
    # the ring knows no calibration: near the middle it may lean otherwise
    assert answer in (ring.stdout.decode(), "unsure")
    # of unsure it is the first answer's
    assert (0 if answer == "unsure" else 0.5) <= float(score) <= 1
    ids = int(
        shell("gguf-dump --json p.snap", tmp_path)
        .stdout.decode()
        .split('"n_tok": ')[1]
        .split(",")[0]
    )
    # the same prompt
    assert json.loads(shell(command + " --json <mail", tmp_path).stdout)["ids"] == ids
    said = shell(block("if").replace("classify", command), tmp_path)
    assert (
        said.stderr == b""
        and said.stdout.decode()
        == {"yes": "spam\n", "no": "let it pass (1)\n", "unsure": "let it pass (2)\n"}[answer]
    )


def test_question_in_the_readme_is_the_shipped_one():
    shown = re.search(r"```yaml\n(.*?)```", README, re.S).group(1)
    assert shown in (ROOT / "configs" / "sentiment.yaml").read_text()


def test_ring_is_six_lines_or_fewer():
    assert len(RING.strip().splitlines()) <= 6


STAGES = ("decode", "grammar-filter", "sample", "tee")


@pytest.mark.parametrize("victim", STAGES)
@pytest.mark.parametrize("when", [0.0, 0.3])
def test_ring_killed_stage_never_looks_complete(files, tmp_path, victim, when):
    """Each stage in its own process with an endless grammar; one dies by SIGKILL: the last stage
    ends with 65.
    """
    os.mkfifo(tmp_path / "ring")
    (tmp_path / "long.gbnf").write_text("root ::= [a-z ]{50000,}")
    model, processes = files / "long.gguf", {}

    def start(name, argv, stdin, stdout):
        argv = [str(BIN / argv[0]) if (BIN / argv[0]).exists() else argv[0], *map(str, argv[1:])]
        processes[name] = subprocess.Popen(
            argv, stdin=stdin, stdout=stdout, stderr=subprocess.DEVNULL, cwd=tmp_path
        )
        return processes[name].stdout

    # both ends of the FIFO are opened by shells, as in the README, so that no open waits for ever
    a = start(
        "decode",
        ["sh", "-c", f'exec "{BIN}/decode" -m "{model}" "{files}/long.snap" <ring'],
        subprocess.DEVNULL,
        subprocess.PIPE,
    )
    b = start(
        "grammar-filter", ["grammar-filter", "-m", model, "-g", "long.gbnf"], a, subprocess.PIPE
    )
    c = start("sample", ["sample", "-S", 1, "-n", 100000], b, subprocess.PIPE)
    t = start("tee", ["tee", "ring"], c, subprocess.PIPE)
    start("tokenize", ["tokenize", "-m", model, "-d"], t, subprocess.PIPE)
    for pipe in (a, b, c, t):
        pipe.close()
    last = processes["tokenize"]
    if when:
        assert last.stdout.read(20)  # the ring turns
        time.sleep(when)
    processes[victim].send_signal(signal.SIGKILL)
    # a stage that died before it opened the FIFO leaves its partner waiting: be that partner
    for _ in range(200):
        for mode in (os.O_RDONLY, os.O_WRONLY):
            try:
                os.close(os.open(tmp_path / "ring", mode | os.O_NONBLOCK))
            except OSError:
                pass
        if all(p.poll() is not None for p in processes.values()):
            break
        time.sleep(0.1)
    for name, p in processes.items():
        p.wait(timeout=60)
    assert last.returncode == 65


def test_stages_without_an_end_mark_end_in_65(files):
    for tail in ("sample -t 0", "grammar-filter -m m.gguf -g yesno.gbnf"):
        assert shell(f"head -c 3000 logits | {tail}", files).returncode == 65
    assert shell("head -n 4 ids | tokenize -m m.gguf -d", files).returncode == 65


def test_text_blocks_and_recipes_run(files, tmp_path):
    (tmp_path / "prompt.txt").write_bytes((files / "prompt.txt").read_bytes())
    (tmp_path / "words.gbnf").write_text(
        re.search(r"```\n(root ::= .*?)```", README, re.S).group(1)
    )
    (tmp_path / "before.yaml").write_text(
        re.search(r"```yaml\n(- \{role.*?)```", README, re.S).group(1)
    )
    for name in ("generate", "recipes"):
        done = shell("set -e\n" + block(name), tmp_path, M=str(files / "m.gguf"))
        assert (done.returncode, done.stderr) == (0, b"") and done.stdout


def test_demo_takes_a_model_whose_name_has_a_blank(files):
    shutil.copy(files / "m.gguf", files / "my model.gguf")
    done = subprocess.run(
        ["make", "-s", "demo", f"MODEL={files}/my model.gguf"],
        cwd=ROOT,
        capture_output=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert {"yes", "no"} & set(done.stdout.decode(errors="replace").split("\n"))
