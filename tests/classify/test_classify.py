"""classify: the verdict, its arithmetic, its bits, the cache, and real weights."""

import json
import math
import os
import resource

import pytest
from chat_model import write_chat_model
from classify_call import ALIKE, TEXT, classify, opened, question, tree_of, write_question
from conftest import SPAM_MODEL, find_data, run, shell

from sluice import gguf, stream
from sluice.classify.classifier import Classifier
from sluice.faults import Error
from sluice.grammar import matcher as grammar
from sluice.kernels import ffi
from sluice.kvcache.scratch import Scratch
from sluice.question.answers import MAX_NODES, Tree, calibrated, log_sum
from sluice.question.question import Question

pytestmark = pytest.mark.usefixtures("home")


# The line and the status.


def test_exit_status_is_the_answer(models, tmp_path):
    three = {"answers": {"red": ["yes"], "green": ["no"], "blue": ["maybe"]}}
    for bias, thresholds, code, line in (
        ({"red": 900}, {}, 0, b"red 1.000\n"),
        ({"green": 900}, {}, 1, b"green 1.000\n"),
        ({"blue": 900}, {}, 1, b"blue 1.000\n"),
        ({"green": 900}, {"green": 1}, 1, b"green 1.000\n"),
        ({"green": 30}, {"green": 1}, 2, b"unsure 0.000\n"),
        ({"red": 30}, {"red": 1}, 2, b"unsure 1.000\n"),
        ({"green": 30}, {"red": 1}, 1, b"green 1.000\n"),
    ):
        write_question(
            tmp_path / "q.yaml", **three, thresholds=thresholds, calibration={"bias": bias}
        )
        done = classify(models, "-q", tmp_path / "q.yaml", input=TEXT)
        assert (done.returncode, done.stdout, done.stderr) == (code, line, b""), (bias, thresholds)


def test_classify_works_in_a_shell_condition(models, tmp_path):
    write_question(tmp_path / "q.yaml", calibration={"bias": {"yes": 900}})
    (tmp_path / "text").write_bytes(TEXT)
    script = "if classify -q ./q.yaml <text >/dev/null; then echo it is; else echo it is not; fi"
    assert shell(script, tmp_path, MODEL=str(models / "llama.gguf")).stdout == b"it is\n"
    write_question(tmp_path / "q.yaml", calibration={"bias": {"no": 900}})
    assert shell(script, tmp_path, MODEL=str(models / "llama.gguf")).stdout == b"it is not\n"


def test_file_and_stdin_are_the_same(models, tmp_path):
    q, file = write_question(tmp_path / "q.yaml"), tmp_path / "text"
    file.write_bytes(TEXT)
    lines = {
        classify(models, "-q", q, input=TEXT).stdout,
        classify(models, "-q", q, file).stdout,
        classify(models, "-q", q, "-", input=TEXT).stdout,
    }
    assert len(lines) == 1 and b" 0." in lines.pop()


def test_json_says_everything(models, tmp_path):
    q = write_question(tmp_path / "q.yaml", frame="auto", prompt=["input"], thresholds={"yes": 0.5})
    done = classify(models, "-q", q, "--json", "--mass", input=TEXT)
    found = json.loads(done.stdout)
    assert list(found) == [
        "answer",
        "score",
        "p",
        "mass",
        "margin",
        "scores",
        "ids",
        "reused",
        "cut",
        "ms",
        "model",
        "arithmetic",
        "frame",
        "calibration",
    ]
    assert (
        sum(found["scores"].values()) == pytest.approx(1, abs=2e-6)
        and found["frame"] == "sluice"
        and found["arithmetic"] == "exact-2"
    )
    assert found["model"] == gguf.File(str(models / "llama.gguf")).id[:8].hex()
    assert (
        done.returncode == {"yes": 0, "no": 1}[found["answer"]]
        and 0 < found["mass"] < 1
        and found["cut"] is False
    )
    assert "mass" not in json.loads(classify(models, "-q", q, "--json", input=TEXT).stdout)
    verbose = classify(models, "-q", q, "-v", input=TEXT).stderr.decode()
    assert f"tokens={found['ids']} reused=0 steps=1 cache=none ms=" in verbose


def test_models_come_from_option_question_and_variable_in_this_order(models, tmp_path):
    def model(*argv, **env):
        done = run(
            "classify",
            "--json",
            "-q",
            tmp_path / "q.yaml",
            *argv,
            input=TEXT,
            env={**os.environ, **env},
        )
        return json.loads(done.stdout)["model"]

    tokens = {a: gguf.File(str(models / f"{a}.gguf")).id[:8].hex() for a in ("llama", "gemma3")}
    write_question(tmp_path / "q.yaml", prompt=["input"])
    assert model(MODEL=str(models / "gemma3.gguf")) == tokens["gemma3"]
    write_question(tmp_path / "q.yaml", prompt=["input"], model="mine.gguf")
    (tmp_path / "mine.gguf").symlink_to(models / "llama.gguf")
    assert model(MODEL=str(models / "gemma3.gguf")) == tokens["llama"]
    assert model("-m", str(models / "gemma3.gguf")) == tokens["gemma3"]


# The arithmetic.


def prompt_ids(c, text=TEXT):
    return c.prompt.before + c.prompt.input_tokens(text)[0] + c.prompt.after


class Ring:
    """What the ring does, id by id: logits of the whole vocabulary, a grammar's choice, the softmax
    over what is left.
    """

    def __init__(self, c, tokens, source):
        self.c, self.tokens, self.grammar = c, tokens, grammar.Grammar(source.encode(), "test")

    def logits(self, path):
        m = self.c.model
        kv = Scratch(m.geometry("f16"), len(self.tokens) + 20)
        f, x = m.extend(kv, self.tokens + path)
        out = ffi.new("float[]", m.hparams.n_vocab)
        m.head(f, x, out)
        return ffi.unpack(out, m.hparams.n_vocab)

    def texts(self, path=(), p=1.0, q=1.0):
        """{text: [probability with the grammar, without it]} over all ways to write it."""
        words = self.c._vocab
        text = b"".join(words.bytes_of(i) for i in path)
        matcher = grammar.Matcher(self.grammar, words)
        assert matcher.feed(text)
        if path and (path[-1] in words.eog or not matcher.open):
            return {text.decode(): [p, q]}
        bits, _ = matcher.allowed()
        allowed = [i for i in range(words.n_vocab) if bits[i // 64] >> i % 64 & 1]
        logits, out = self.logits(list(path)), {}
        among, of_all = (
            math.fsum(math.exp(logits[i]) for i in allowed),
            math.fsum(map(math.exp, logits)),
        )
        for i in allowed:
            for t, (a, b) in self.texts(
                (*path, i), p * math.exp(logits[i]) / among, q * math.exp(logits[i]) / of_all
            ).items():
                sums = out.setdefault(t, [0.0, 0.0])
                sums[0], sums[1] = sums[0] + a, sums[1] + b
        return out


@pytest.mark.parametrize("arch", ["llama", "gemma3"])
@pytest.mark.parametrize(
    "answers",
    [
        {"yes": ["yes"], "no": ["no"]},
        {"yes": ["yes", "Yes"], "no": ["no", " no"]},
        ALIKE,
        {"a": ["\u00e9t"], "b": ["\u00e8"], "c": ["e"]},
    ],
)
def test_probabilities_are_those_of_the_ring_with_a_grammar(models, arch, answers):
    """Every way to write every spelling, walked one by one through grammar and softmax."""
    c = opened(models, arch, answers=answers)
    v = c.ask(TEXT)
    source = "root ::= " + " | ".join(
        json.dumps(s, ensure_ascii=False) for spellings in answers.values() for s in spellings
    )
    texts = Ring(c, prompt_ids(c), source).texts()
    for name, spellings in answers.items():
        assert v.scores[name] == pytest.approx(
            math.fsum(texts[s][0] for s in spellings), rel=1e-9, abs=1e-12
        ), name


def test_probabilities_equal_those_of_the_commands(models, tmp_path):
    """tokenize | prefill, then the candidates that decode | grammar-filter hands to sample: summed
    by answer.
    """
    q = write_question(tmp_path / "q.yaml", prompt=[{"special": "<s>"}, "input"])
    (tmp_path / "text").write_bytes(TEXT)
    script = """tokenize --special <text | prefill -o p.snap
        echo '#end text' | cat ids.head - | decode p.snap | grammar-filter -e 'root ::= "yes" | "no"' | head -c 4000 >left; :"""
    (tmp_path / "ids.head").write_bytes(
        run("tokenize", "-m", models / "llama.gguf", input=TEXT).stdout.splitlines(True)[0]
    )
    assert shell(script, tmp_path, MODEL=str(models / "llama.gguf")).returncode == 0
    left = (tmp_path / "left").read_bytes()
    record = stream.RECORD.unpack_from(left, stream.HEADER.size)
    at = stream.HEADER.size + stream.RECORD.size
    candidates = list(stream.CANDIDATE.iter_unpack(left[at : at + record[3]]))
    words = Classifier(question(), str(models / "llama.gguf"))._vocab
    total = math.fsum(math.exp(logit) for _, logit in candidates)
    yes = (
        math.fsum(math.exp(logit) for i, logit in candidates if words.bytes_of(i)[:1] == b"y")
        / total
    )
    assert len(candidates) >= 6  # y, ye, yes and n, no, and bytes
    found = json.loads(classify(models, "-q", q, "--json", input=TEXT).stdout)
    assert found["scores"]["yes"] == pytest.approx(yes, abs=6e-7)


def test_canonical_takes_the_one_way_of_the_tokenizer(models):
    c = opened(models, answers=ALIKE, tokenisations="canonical")
    v = c.ask(TEXT)
    words, ring = c._vocab, Ring(c, prompt_ids(c), 'root ::= "x"')
    paths = {
        s: words.encode(s.encode(), bos=False, prefix=False)
        for spellings in ALIKE.values()
        for s in spellings
    }
    ends = sorted(words.eog)

    def p(path, others):  # by hand: each id among those that follow the same begin in any spelling
        out = 1.0
        for n in range(len(path) + 1):
            following = {o[n] for o in others if o[:n] == path[:n] and len(o) > n}
            if any(o == path[:n] for o in others):
                following |= set(ends)
            if len({o for o in map(tuple, others) if list(o[:n]) == path[:n]}) < 2:
                return out
            logits = ring.logits(path[:n])
            chosen = ends if n == len(path) else [path[n]]
            out *= sum(math.exp(logits[i]) for i in chosen) / sum(
                math.exp(logits[i]) for i in following
            )
        return out

    for name, spellings in ALIKE.items():
        assert v.scores[name] == pytest.approx(
            sum(p(paths[s], list(paths.values())) for s in spellings), rel=1e-9
        ), name
    assert v.scores != opened(models, answers=ALIKE).ask(TEXT).scores


def test_mass_is_the_probability_without_the_restriction(models):
    c = opened(models)
    v = c.ask(TEXT)
    logits, total = Ring(c, prompt_ids(c), 'root ::= "x"').logits([]), 0.0
    for i in c.tree.root.tokens:
        total += math.exp(logits[i])
    assert v.mass == pytest.approx(total / math.fsum(map(math.exp, logits)), rel=1e-9)
    several = opened(models, answers=ALIKE)
    ring = Ring(several, prompt_ids(several), 'root ::= "no" | "none" | "not" | "yes" | " yes"')
    # paths end where the answer is decided
    assert several.ask(TEXT).mass >= math.fsum(q for _, q in ring.texts().values())


def test_calibration_is_the_formula():
    log_p = [math.log(0.7), math.log(0.2), math.log(0.1)]
    terms = [math.exp(1.5 * p + b) for p, b in zip(log_p, (0.1, -2.0, 3.0))]
    assert calibrated(log_p, 1.5, (0.1, -2.0, 3.0)) == pytest.approx(
        [t / sum(terms) for t in terms], rel=1e-14
    )
    assert calibrated(log_p, 1.0, (0.0, 0.0, 0.0)) == pytest.approx([0.7, 0.2, 0.1], rel=1e-14)
    assert calibrated([0.0, -math.inf], 2.0, (0.0, 5.0)) == [1.0, 0.0]
    assert (
        log_sum([-2000.0, -2000.0]) == pytest.approx(-2000 + math.log(2))
        and log_sum([]) == -math.inf
    )


class Words:
    """A vocabulary of single characters, without an id that ends a text."""

    eog, n_vocab, unknown, remove_extra = frozenset(), 256, None, False

    def encode(self, data, **_):
        return list(data)

    def bytes_of(self, i):
        return bytes([i])

    def tokens_writing(self, data):
        return list(data) if len(data) == 1 else []


def test_answers_that_cannot_be_told_apart_are_refused(models):
    same_ids = Words()
    # it changes texts, so they may become alike
    same_ids.encode, same_ids.remove_extra = lambda data, **_: [1, 2], True
    with pytest.raises(Error, match="yes and no have the same tokens"):
        Tree(question(tokenisations="canonical"), same_ids)
    with pytest.raises(
        Error, match="no is a prefix of another answer, and the vocabulary has no EOG token"
    ):
        Tree(question(answers={"no": ["no"], "none": ["none"]}), Words())
    with pytest.raises(Error, match="cannot spell"):
        Tree(
            question(answers={"no": ["a"], "yes": ["b"]}),
            type("None", (Words,), {"tokens_writing": lambda self, data: []})(),
        )


@pytest.mark.parametrize("tokenisations", ["all", "canonical"])
@pytest.mark.parametrize("spelling", ["\u2603", "yes\u2603"])
def test_answer_outside_the_vocabulary_is_refused(tokenisations, spelling):
    """It would have no probability, and the others all of it."""
    ascii = Words()
    ascii.unknown, ascii.tokens_writing = (
        0,
        lambda data: list(data) if data < b"\x80" and len(data) == 1 else [],
    )
    ascii.encode = lambda data, **_: [b if b < 128 else 0 for b in data]
    with pytest.raises(Error, match='q.yaml: answers: the vocabulary cannot spell ".*\u2603"'):
        Tree(
            question(answers={"yes": ["yes", spelling], "no": ["no"]}, tokenisations=tokenisations),
            ascii,
        )


def test_label_step_count_is_bounded(models):
    alike = {"first": ["abcdefghijklmnop1"], "second": ["abcdefghijklmnop2"]}
    with pytest.raises(Error, match=f"more than {MAX_NODES} evaluations"):
        opened(models, answers=alike)
    assert opened(models, answers=alike, tokenisations="canonical").tree.n_nodes <= 17
    assert (
        opened(
            models, answers={"first": ["abcdefghijklmnop"], "second": ["bcdefghijklmnopq"]}
        ).tree.n_nodes
        == 1
    )


# The bits.


@pytest.mark.parametrize("arch", ["llama", "gemma3"])
def test_logits_are_those_of_prefill(models, tmp_path, arch):
    """memcmp: for the same tokens, whatever threads, cache, instruction set and lines before; and so
    equal scores.
    """
    start = {"llama": "<s>", "gemma3": "<bos>"}[arch]
    tree = tree_of(
        prompt=[{"special": start}, {"text": "Is it? " * 70}, "input", {"text": "\nAnswer: "}]
    )
    c = Classifier(Question(tree, "q.yaml"), str(models / f"{arch}.gguf"))
    tokens = prompt_ids(c)
    model = str(models / f"{arch}.gguf")
    (tmp_path / "ids").write_bytes(
        stream.tokens_header(c.model.file.id, c._vocab.n_vocab)
        + b"".join(b"%d\n" % i for i in tokens)
        + stream.tokens_end("text")
    )
    done = shell(
        "prefill -o p.snap <ids && (head -n 1 ids; echo '#end text') | decode p.snap >logits",
        tmp_path,
        MODEL=model,
    )
    assert done.returncode == 0, done.stderr
    want = (tmp_path / "logits").read_bytes()[stream.HEADER.size + stream.RECORD.size :][
        : 4 * c._vocab.n_vocab
    ]
    for threads in (1, 2, 4):
        for prepared in (False, True):
            c = Classifier(Question(tree, "q.yaml"), model, threads)
            if prepared:
                c.prepare()
                c.ask(b"something else first, and longer than the text that comes then " * 3)
            c.ask(TEXT)
            assert bytes(ffi.buffer(c._dense())) == want, (threads, prepared)
            rows = c.tree.root.rows
            some = memoryview(ffi.buffer(c._look([], rows))).cast("f")
            assert list(some) == [memoryview(want).cast("f")[i] for i in rows]


def test_classify_output_does_not_depend_on_threads_and_cache(models, tmp_path):
    q = write_question(tmp_path / "q.yaml", answers=ALIKE)
    ways = [
        (("-j", "1"), {}),
        (("-j", "3"), {}),
        (("--no-cache",), {}),
        ((), {"SLUICE_ISA": "reference"}),
        ((), {"HOME": "/dev/null"}),
    ]
    found = set()
    for argv, env in ways:
        said = json.loads(
            classify(models, "-q", q, "--json", "--mass", *argv, input=TEXT, env=env).stdout
        )
        found.add(json.dumps({k: said[k] for k in ("answer", "score", "scores", "mass", "ids")}))
    assert len(found) == 1


# The cache.

LONG = [{"special": "<s>"}, {"text": "A rule that everybody knows. " * 100}, "input"]


@pytest.mark.full
def test_long_prefix_is_computed_once(models, tmp_path, home):
    write_chat_model(tmp_path / "m.gguf", n_ctx=4096, n_embd=256, n_ff=768)
    q = write_question(tmp_path / "q.yaml", prompt=LONG)

    def ask(*argv, text=TEXT):
        done = classify(
            models, "-m", tmp_path / "m.gguf", "-q", q, "--json", "-v", *argv, input=text
        )
        assert done.returncode in (0, 1), done.stderr
        said = json.loads(done.stdout)
        return (
            (said["scores"], said["ids"]),
            said["reused"],
            done.stderr.decode().split("cache=")[1].split()[0],
        )

    cold, warm, without = ask(), ask(), ask("--no-cache")
    assert cold[0] == warm[0] == without[0]
    assert cold[2] == "stored" and warm[2] == "found" and without[1:] == (0, "none")
    assert warm[1] == cold[1] > 800
    (snap,) = (home / ".cache" / "sluice").glob("*.kv")
    assert (os.stat(home / ".cache" / "sluice").st_mode & 0o777, os.stat(snap).st_mode & 0o777) == (
        0o700,
        0o600,
    )
    assert (
        ask(text=b"another text")[1:] == (warm[1], "found")
        and ask("--cache", tmp_path / "c")[2] == "stored"
    )
    # with the same begin
    write_question(
        q,
        prompt=LONG[:2] + ["input", {"text": "?"}],
        input={"kind": "text", "head_ids": 100, "tail_ids": 50},
    )
    assert ask()[2] == "found"
    # that needs more room
    write_question(q, prompt=LONG, input={"kind": "text", "head_ids": 600, "tail_ids": 50})
    assert ask(text=TEXT * 30)[1:] == (warm[1], "stored") and ask(text=TEXT * 30)[2] == "found"
    damaged = bytearray(snap.read_bytes())
    damaged[int.from_bytes(damaged[96:104], "little") + 77] ^= 16
    snap.write_bytes(damaged)
    write_question(q, prompt=LONG)
    assert ask() == (cold[0], warm[1], "stored") and ask()[2] == "found"
    snap.chmod(0o666)
    assert ask()[0] == cold[0]


def test_batch_lines_reuse_the_prefix(models):
    c = Classifier(question(prompt=LONG), str(models / "llama.gguf"))
    c.prepare()
    for text in (TEXT, b"short", TEXT * 20, b"x"):
        v, alone = (
            c.ask(text),
            Classifier(question(prompt=LONG), str(models / "llama.gguf")).ask(text),
        )
        assert v.n_reused == len(c.prompt.before) and alone.n_reused == 0
        assert (v.answer, v.score, v.scores) == (alone.answer, alone.score, alone.scores)


@pytest.mark.parametrize(
    "trouble", ["no home", "relative home", "unwritable", "a file", "writable by others", "full"]
)
@pytest.mark.quick_cases(2)
def test_classify_ignores_cache_errors(models, tmp_path, home, trouble):
    write_chat_model(tmp_path / "m.gguf", n_ctx=2048, n_embd=256, n_ff=768)
    q = write_question(tmp_path / "q.yaml", prompt=LONG)
    want = classify(models, "-m", tmp_path / "m.gguf", "-q", q, "--no-cache", input=TEXT)
    env, limit = {}, None
    if trouble == "no home":
        env = {"HOME": ""}
    elif trouble == "relative home":
        env = {"HOME": "."}
    elif trouble == "unwritable":
        env = {"HOME": "/proc/1"}
    elif trouble == "a file":
        home.rmdir()
        home.write_text("")
    elif trouble == "full":  # no file may grow
        limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    else:
        (home / ".cache" / "sluice").mkdir(parents=True)
        (home / ".cache" / "sluice").chmod(0o777)
    for _ in range(2):
        done = classify(
            models,
            "-m",
            tmp_path / "m.gguf",
            "-q",
            q,
            input=TEXT,
            env=env,
            preexec_fn=limit,
            cwd=tmp_path,
        )
        assert (done.returncode, done.stdout, done.stderr) == (want.returncode, want.stdout, b"")
    assert not list(tmp_path.rglob("*.kv"))


# Real weights.

PROTO = {
    "input": {"kind": "text", "head_ids": 384, "tail_ids": 0},
    "answers": {"yes": ["yes"], "no": ["no"]},
    "prompt": [
        {"special": "<s>"},
        {"special": "<|user|>"},
        {"text": "\nCan you say for certain that the following email is spam?\n\n"},
        "input",
        {"special": "</s>"},
        {"text": "\n"},
        {"special": "<|assistant|>"},
        {"text": "\n"},
    ],
}


def test_spam_prototype_answers_as_recorded(datafile):
    c = Classifier(
        Question(PROTO, "proto"), str(datafile("models/spam-proto-q8_0.gguf")), mass=True
    )
    head, tail = "<s><|user|>" + PROTO["prompt"][2]["text"], "</s>\n<|assistant|>\n"
    records = [
        json.loads(line)
        for line in datafile("models/spam-proto.expected.jsonl").read_text().splitlines()
    ]
    assert len(records) == 20
    for r in records:
        text = r["prompt"].removeprefix(head).removesuffix(tail).encode()
        assert prompt_ids(c, text) == r["ids"]
        v = c.ask(text)
        assert v.answer == r["answer"] and v.mass > 0.99
        p = 1 / (1 + math.exp(r["no_logit"] - r["yes_logit"]))
        assert v.scores["yes"] == pytest.approx(p, abs=0.01)


@pytest.mark.full
@pytest.mark.parametrize("name", ["language-is-english", "urgent", "sentiment"])
def test_shipped_questions_can_be_put_to_any_model(datafile, models, name):
    paths = [
        models / "llama.gguf",
        models / "gemma3.gguf",
        datafile("models/stories260K.gguf"),
        SPAM_MODEL,
    ]
    paths += filter(None, [find_data("models/spam-proto-q8_0.gguf")])
    frames = []
    for path in paths:
        done = run(
            "classify", "-m", path, "-q", name, "--json", input=b"I want my money back today!"
        )
        assert done.returncode in (0, 1, 2) and done.stderr == b"", done.stderr
        frames.append(json.loads(done.stdout)["frame"])
        steps = int(
            run("classify", "-m", path, "-q", name, "-v", input=b"x")
            .stderr.decode()
            .split("steps=")[1]
            .split()[0]
        )
        # its yes and no are one id
        assert steps <= (1 if "spam-proto" in path.name and name != "sentiment" else 12)
    assert frames == ["sluice", "gemma", "plain", "sluice", "sluice"][: len(paths)]
