"""classify: the verdict, its arithmetic, its bits, JSON lines, the cache, and bad input."""
import json
import math
import os
import resource
import signal
import subprocess
import sys
import threading

import pytest
from chat_model import write_chat_model
from conftest import BIN, MEASURE, run, shell

from sluice import gguf, grammar, stream
from sluice.question import inputs
from sluice import jsonl as jsonl_lines
from sluice.faults import Fault
from sluice.kernels import ffi
from sluice.question import Question
from sluice.question.answers import MAX_NODES, Tree, calibrated, log_sum
from sluice.question.classifier import Classifier
from sluice.snapshot.scratch import Scratch

TEXT = b"Dear friends, the meeting has been moved. Please bring the numbers."
ALIKE = {"no": ["no"], "none": ["none"], "not": ["not"], "yes": ["yes", " yes"]}


def tree_of(**changes):
    """A question as its file is parsed."""
    return {"input": {"kind": "text", "head_ids": 200, "tail_ids": 50}, "prompt": [{"special": "<s>"}, {"text": "Is it? "}, "input"],
            "answers": {"yes": ["yes"], "no": ["no"]}, **changes}


def question(**changes):
    return Question(tree_of(**changes), "q.yaml")


def write_question(path, **changes):
    path.write_text(json.dumps(tree_of(**changes)))  # JSON is YAML
    return path


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    d = tmp_path_factory.mktemp("models")
    write_chat_model(d / "llama.gguf", ["<|user|>", "<|assistant|>"], n_ctx=2048)
    write_chat_model(d / "gemma3.gguf", arch="gemma3", type="bf16", n_layer=6)
    return d


def classify(models, *argv, arch="llama", **kwargs):
    env = {k: v for k, v in os.environ.items() if k not in ("MODEL", "XDG_CACHE_HOME")} | kwargs.pop("env", {})
    model = () if "-m" in argv else ("-m", models / f"{arch}.gguf")
    return run("classify", *model, *argv, env=env, **kwargs)


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """A cache of its own for each test."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("MODEL", raising=False)
    return tmp_path / "home"


# The line and the status.

def test_the_status_is_the_answer(models, tmp_path):
    three = {"answers": {"red": ["yes"], "green": ["no"], "blue": ["maybe"]}}
    for bias, thresholds, code, line in (
            ({"red": 900}, {}, 0, b"red 1.000\n"), ({"green": 900}, {}, 1, b"green 1.000\n"), ({"blue": 900}, {}, 1, b"blue 1.000\n"),
            ({"green": 900}, {"green": 1}, 1, b"green 1.000\n"), ({"green": 30}, {"green": 1}, 2, b"unsure 0.000\n"),
            ({"red": 30}, {"red": 1}, 2, b"unsure 1.000\n"), ({"green": 30}, {"red": 1}, 1, b"green 1.000\n")):
        write_question(tmp_path / "q.yaml", **three, thresholds=thresholds, calibration={"bias": bias})
        done = classify(models, "-q", tmp_path / "q.yaml", input=TEXT)
        assert (done.returncode, done.stdout, done.stderr) == (code, line, b""), (bias, thresholds)


def test_a_shell_can_ask(models, tmp_path):
    write_question(tmp_path / "q.yaml", calibration={"bias": {"yes": 900}})
    (tmp_path / "text").write_bytes(TEXT)
    script = "if classify -q ./q.yaml <text >/dev/null; then echo it is; else echo it is not; fi"
    assert shell(script, tmp_path, MODEL=str(models / "llama.gguf")).stdout == b"it is\n"
    write_question(tmp_path / "q.yaml", calibration={"bias": {"no": 900}})
    assert shell(script, tmp_path, MODEL=str(models / "llama.gguf")).stdout == b"it is not\n"


def test_file_and_stdin_are_the_same(models, tmp_path):
    q, file = write_question(tmp_path / "q.yaml"), tmp_path / "text"
    file.write_bytes(TEXT)
    lines = {classify(models, "-q", q, input=TEXT).stdout, classify(models, "-q", q, file).stdout, classify(models, "-q", q, "-", input=TEXT).stdout}
    assert len(lines) == 1 and b" 0." in lines.pop()


def test_json_says_everything(models, tmp_path):
    q = write_question(tmp_path / "q.yaml", frame="auto", prompt=["input"], thresholds={"yes": 0.5})
    done = classify(models, "-q", q, "--json", "--mass", input=TEXT)
    found = json.loads(done.stdout)
    assert list(found) == ["answer", "score", "mass", "scores", "ids", "reused", "cut", "ms", "model", "arithmetic", "frame", "calibration"]
    assert sum(found["scores"].values()) == pytest.approx(1, abs=2e-6) and found["frame"] == "sluice" and found["arithmetic"] == "exact-2"
    assert found["model"] == gguf.File(str(models / "llama.gguf")).id[:8].hex()
    assert done.returncode == {"yes": 0, "no": 1}[found["answer"]] and 0 < found["mass"] < 1 and found["cut"] is False
    assert "mass" not in json.loads(classify(models, "-q", q, "--json", input=TEXT).stdout)
    verbose = classify(models, "-q", q, "-v", input=TEXT).stderr.decode()
    assert f"ids={found['ids']} reused=0 steps=1 cache=none ms=" in verbose


def test_models_come_from_option_question_and_variable_in_this_order(models, tmp_path):
    def model(*argv, **env):
        done = run("classify", "--json", "-q", tmp_path / "q.yaml", *argv, input=TEXT, env={**os.environ, **env})
        return json.loads(done.stdout)["model"]
    ids = {a: gguf.File(str(models / f"{a}.gguf")).id[:8].hex() for a in ("llama", "gemma3")}
    write_question(tmp_path / "q.yaml", prompt=["input"])
    assert model(MODEL=str(models / "gemma3.gguf")) == ids["gemma3"]
    write_question(tmp_path / "q.yaml", prompt=["input"], model="mine.gguf")
    (tmp_path / "mine.gguf").symlink_to(models / "llama.gguf")
    assert model(MODEL=str(models / "gemma3.gguf")) == ids["llama"]
    assert model("-m", str(models / "gemma3.gguf")) == ids["gemma3"]


# The arithmetic.

def opened(models, arch="llama", **changes):
    if arch == "gemma3":
        changes.setdefault("prompt", [{"special": "<bos>"}, {"text": "Is it? "}, "input"])
    return Classifier(question(**changes), str(models / f"{arch}.gguf"), mass=True)


def prompt_ids(c, text=TEXT):
    return c.prompt.before + c.prompt.input_ids(text)[0] + c.prompt.after


class Ring:
    """What the ring does, id by id: logits of the whole vocabulary, a grammar's choice, the softmax over what is left."""

    def __init__(self, c, ids, source):
        self.c, self.ids, self.grammar = c, ids, grammar.Grammar(source.encode(), "test")

    def logits(self, path):
        m = self.c.model
        kv = Scratch(m.geometry("f16"), len(self.ids) + 20)
        f, x = m.extend(kv, self.ids + path)
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
        among, of_all = math.fsum(math.exp(logits[i]) for i in allowed), math.fsum(map(math.exp, logits))
        for i in allowed:
            for t, (a, b) in self.texts((*path, i), p * math.exp(logits[i]) / among, q * math.exp(logits[i]) / of_all).items():
                sums = out.setdefault(t, [0.0, 0.0])
                sums[0], sums[1] = sums[0] + a, sums[1] + b
        return out


@pytest.mark.parametrize("arch", ["llama", "gemma3"])
@pytest.mark.parametrize("answers", [{"yes": ["yes"], "no": ["no"]}, {"yes": ["yes", "Yes"], "no": ["no", " no"]}, ALIKE,
                                     {"a": ["\u00e9t"], "b": ["\u00e8"], "c": ["e"]}])
def test_probabilities_are_those_of_the_ring_with_a_grammar(models, arch, answers):
    """Every way to write every spelling, walked one by one through grammar and softmax."""
    c = opened(models, arch, answers=answers)
    v = c.ask(TEXT)
    source = "root ::= " + " | ".join(json.dumps(s, ensure_ascii=False) for spellings in answers.values() for s in spellings)
    texts = Ring(c, prompt_ids(c), source).texts()
    for name, spellings in answers.items():
        assert v.scores[name] == pytest.approx(math.fsum(texts[s][0] for s in spellings), rel=1e-9, abs=1e-12), name


def test_probabilities_equal_those_of_the_commands(models, tmp_path):
    """tokenize | prefill, then the candidates that decode | grammar-filter hands to sample: summed by answer."""
    q = write_question(tmp_path / "q.yaml", prompt=[{"special": "<s>"}, "input"])
    (tmp_path / "text").write_bytes(TEXT)
    script = """tokenize --special <text | prefill -o p.snap
        echo '#end text' | cat ids.head - | decode p.snap | grammar-filter -e 'root ::= "yes" | "no"' | head -c 4000 >left; :"""
    (tmp_path / "ids.head").write_bytes(run("tokenize", "-m", models / "llama.gguf", input=TEXT).stdout.splitlines(True)[0])
    assert shell(script, tmp_path, MODEL=str(models / "llama.gguf")).returncode == 0
    left = (tmp_path / "left").read_bytes()
    record = stream.RECORD.unpack_from(left, stream.HEADER.size)
    at = stream.HEADER.size + stream.RECORD.size
    candidates = list(stream.CANDIDATE.iter_unpack(left[at:at + record[3]]))
    words = Classifier(question(), str(models / "llama.gguf"))._vocab
    total = math.fsum(math.exp(logit) for _, logit in candidates)
    yes = math.fsum(math.exp(logit) for i, logit in candidates if words.bytes_of(i)[:1] == b"y") / total
    assert len(candidates) >= 6  # y, ye, yes and n, no, and bytes
    found = json.loads(classify(models, "-q", q, "--json", input=TEXT).stdout)
    assert found["scores"]["yes"] == pytest.approx(yes, abs=6e-7)


def test_canonical_takes_the_one_way_of_the_tokenizer(models):
    c = opened(models, answers=ALIKE, tokenisations="canonical")
    v = c.ask(TEXT)
    words, ring = c._vocab, Ring(c, prompt_ids(c), 'root ::= "x"')
    paths = {s: words.encode(s.encode(), bos=False, prefix=False) for spellings in ALIKE.values() for s in spellings}
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
            out *= sum(math.exp(logits[i]) for i in chosen) / sum(math.exp(logits[i]) for i in following)
        return out

    for name, spellings in ALIKE.items():
        assert v.scores[name] == pytest.approx(sum(p(paths[s], list(paths.values())) for s in spellings), rel=1e-9), name
    assert v.scores != opened(models, answers=ALIKE).ask(TEXT).scores


def test_mass_is_the_probability_without_the_restriction(models):
    c = opened(models)
    v = c.ask(TEXT)
    logits, total = Ring(c, prompt_ids(c), 'root ::= "x"').logits([]), 0.0
    for i in c.tree.root.ids:
        total += math.exp(logits[i])
    assert v.mass == pytest.approx(total / math.fsum(map(math.exp, logits)), rel=1e-9)
    several = opened(models, answers=ALIKE)
    ring = Ring(several, prompt_ids(several), 'root ::= "no" | "none" | "not" | "yes" | " yes"')
    assert several.ask(TEXT).mass >= math.fsum(q for _, q in ring.texts().values())  # paths end where the answer is decided


def test_calibration_is_the_formula():
    log_p = [math.log(0.7), math.log(0.2), math.log(0.1)]
    terms = [math.exp(1.5 * p + b) for p, b in zip(log_p, (0.1, -2.0, 3.0))]
    assert calibrated(log_p, 1.5, (0.1, -2.0, 3.0)) == pytest.approx([t / sum(terms) for t in terms], rel=1e-14)
    assert calibrated(log_p, 1.0, (0.0, 0.0, 0.0)) == pytest.approx([0.7, 0.2, 0.1], rel=1e-14)
    assert calibrated([0.0, -math.inf], 2.0, (0.0, 5.0)) == [1.0, 0.0]
    assert log_sum([-2000.0, -2000.0]) == pytest.approx(-2000 + math.log(2)) and log_sum([]) == -math.inf


class Words:
    """A vocabulary of single characters, without an id that ends a text."""
    eog, n_vocab, unknown, remove_extra = frozenset(), 256, None, False

    def encode(self, data, **_):
        return list(data)

    def bytes_of(self, i):
        return bytes([i])

    def ids_writing(self, data):
        return list(data) if len(data) == 1 else []


def test_answers_that_cannot_be_told_apart_are_refused(models):
    same_ids = Words()
    same_ids.encode, same_ids.remove_extra = lambda data, **_: [1, 2], True  # it changes texts, so they may become alike
    with pytest.raises(Fault, match="yes and no are written with the same ids"):
        Tree(question(tokenisations="canonical"), same_ids)
    with pytest.raises(Fault, match="another begins with no, and the vocabulary has no id"):
        Tree(question(answers={"no": ["no"], "none": ["none"]}), Words())
    with pytest.raises(Fault, match="cannot write"):
        Tree(question(answers={"no": ["a"], "yes": ["b"]}), type("None", (Words,), {"ids_writing": lambda self, data: []})())


@pytest.mark.parametrize("tokenisations", ["all", "canonical"])
@pytest.mark.parametrize("spelling", ["\u2603", "yes\u2603"])
def test_an_answer_that_the_vocabulary_cannot_write_is_refused(tokenisations, spelling):
    """It would have no probability, and the others all of it."""
    ascii = Words()
    ascii.unknown, ascii.ids_writing = 0, lambda data: list(data) if data < b"\x80" and len(data) == 1 else []
    ascii.encode = lambda data, **_: [b if b < 128 else 0 for b in data]
    with pytest.raises(Fault, match="q.yaml: answers: the vocabulary cannot write \".*\u2603\""):
        Tree(question(answers={"yes": ["yes", spelling], "no": ["no"]}, tokenisations=tokenisations), ascii)


def test_the_number_of_steps_is_bounded(models):
    alike = {"first": ["abcdefghijklmnop1"], "second": ["abcdefghijklmnop2"]}
    with pytest.raises(Fault, match=f"more than {MAX_NODES} steps"):
        opened(models, answers=alike)
    assert opened(models, answers=alike, tokenisations="canonical").tree.n_nodes <= 17
    assert opened(models, answers={"first": ["abcdefghijklmnop"], "second": ["bcdefghijklmnopq"]}).tree.n_nodes == 1


# The bits.

@pytest.mark.parametrize("arch", ["llama", "gemma3"])
def test_logits_are_those_of_prefill(models, tmp_path, arch):
    """memcmp: for the same ids, whatever threads, cache, instruction set and lines before; and so equal scores."""
    start = {"llama": "<s>", "gemma3": "<bos>"}[arch]
    tree = tree_of(prompt=[{"special": start}, {"text": "Is it? " * 70}, "input", {"text": "\nAnswer: "}])
    c = Classifier(Question(tree, "q.yaml"), str(models / f"{arch}.gguf"))
    ids = prompt_ids(c)
    model = str(models / f"{arch}.gguf")
    (tmp_path / "ids").write_bytes(stream.ids_header(c.model.file.id, c._vocab.n_vocab) + b"".join(b"%d\n" % i for i in ids) + stream.ids_end("text"))
    done = shell("prefill -o p.snap <ids && (head -n 1 ids; echo '#end text') | decode p.snap >logits", tmp_path, MODEL=model)
    assert done.returncode == 0, done.stderr
    want = (tmp_path / "logits").read_bytes()[stream.HEADER.size + stream.RECORD.size:][:4 * c._vocab.n_vocab]
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


def test_the_output_does_not_depend_on_how_the_work_is_done(models, tmp_path):
    q = write_question(tmp_path / "q.yaml", answers=ALIKE)
    ways = [(("-j", "1"), {}), (("-j", "3"), {}), (("--no-cache",), {}), ((), {"SLUICE_ISA": "reference"}), ((), {"HOME": "/nowhere"})]
    found = set()
    for argv, env in ways:
        said = json.loads(classify(models, "-q", q, "--json", "--mass", *argv, input=TEXT, env=env).stdout)
        found.add(json.dumps({k: said[k] for k in ("answer", "score", "scores", "mass", "ids")}))
    assert len(found) == 1


# JSON lines.

def jsonl(models, q, lines, *argv):
    done = classify(models, "-q", q, "--jsonl", *argv, input=lines)
    return done, [json.loads(line) for line in done.stdout.splitlines()]


def test_lines_are_answered_in_order_as_single_calls_are(models, tmp_path):
    q = write_question(tmp_path / "q.yaml", answers=ALIKE, thresholds={"no": 0.4, "yes": 0.4})
    texts = [f"text number {i}, " * (1 + 7 * i % 40) + "\u00e9\u4e2d\n" for i in range(12)]
    done, found = jsonl(models, q, "".join(json.dumps({"id": i, "text": t, "label": "x"}) + "\n" for i, t in enumerate(texts)).encode(), "--mass")
    assert (done.returncode, done.stderr) == (0, b"")
    assert [o["id"] for o in found] == list(range(12))
    for text, o in zip(texts, found):
        single = json.loads(classify(models, "-q", q, "--json", "--mass", input=text.encode()).stdout)
        assert o == {"id": o["id"], **{k: single[k] for k in ("answer", "score", "mass")}}


BAD_LINES = {
    b"": "line is not JSON", b"{": "line is not JSON", b"nonsense": "line is not JSON", b'"text"': "line is not an object", b"[]": "line is not an object",
    b'{"id": 1}': "text is missing", b'{"id": 1, "text": null}': "text is missing", b'{"id": 1, "text": 5}': "text is missing",
    b'{"id": 1, "text": ""}': "text is empty", b'{"id": 1.5, "text": "a"}': "id is not", b'{"id": true, "text": "a"}': "id is not",
    b'{"id": [1], "text": "a"}': "id is not", b'{"id": NaN, "text": "a"}': "NaN is not a number", b'{"text": "a", "x": -Infinity}': "Infinity",
    b'{"id": 1, "text": "\xff"}': "line is not UTF-8 at byte 19", b'{"id": 1, "text": "\\ud800x"}': "text: character 0 is half",
    b"[" * 200000: "line is ", b'{"a":' * 200000: "line is ", b'{"text": "a", "n": ' + b"9" * 10000 + b"}": "more than 40 digits",
    b'{"id": "' + b"x" * 2000 + b'", "text": "a"}': "id is not", b"\0" * 10: "line is not JSON", b'\xef\xbb\xbf{"id": 1, "text": "a"}': "line is not JSON",
}


def test_bad_lines_are_answered_by_errors_and_passed_over(models, tmp_path):
    q = write_question(tmp_path / "q.yaml")
    good = b'{"id": "good", "text": "a text"}\n'
    done, found = jsonl(models, q, good + b"".join(line + b"\n" + good for line in BAD_LINES))
    assert len(found) == 1 + 2 * len(BAD_LINES)
    assert {json.dumps(o) for o in found[::2]} == {json.dumps(found[0])} and set(found[0]) == {"id", "answer", "score"}
    n_bad = 0
    for (line, words), o in zip(BAD_LINES.items(), found[1::2]):
        n_bad += 1
        assert set(o) == {"id", "error"} and words in o["error"], (line[:50], o)
        assert o["id"] == (1 if words.startswith("text") and b'"id": 1' in line else None), (line[:50], o)
    assert done.returncode == 65 and done.stderr.decode() == f"classify: standard input: {n_bad} of {len(found)} lines are bad and were answered by errors\n"


def test_a_line_without_ids_is_an_error_of_its_own(models, tmp_path, monkeypatch):
    c, out = Classifier(question(prompt=["input"], input={"kind": "text", "head_ids": 9, "tail_ids": 0}), str(models / "llama.gguf")), []
    monkeypatch.setattr(c.prompt, "input_ids", lambda data: ([] if data == b"nothing" else [5], False))
    monkeypatch.setattr(jsonl_lines, "lines", lambda fd: [b'{"id": 1, "text": "nothing"}', b'{"id": 2, "text": "a"}'])
    monkeypatch.setattr(stream, "write_all", lambda fd, data: out.append(json.loads(data)))
    with pytest.raises(Fault, match="1 of 2 lines are bad"):
        jsonl_lines.answer(c)
    assert out[0] == {"id": 1, "error": "input: no text, and nothing around it"} and out[1]["id"] == 2 and "answer" in out[1]


def test_a_line_that_is_too_long_is_never_held(models, tmp_path):
    q = write_question(tmp_path / "q.yaml")
    code = ("import sys; w = sys.stdout.buffer.write; w(b'{\"text\": \"'); [w(b'a' * (1 << 20)) for i in range(300)]; w(b'\"}\\n'); "
            "w(b'{\"id\": 2, \"text\": \"b\"}\\n')")
    with subprocess.Popen(["python3", "-c", code], stdout=subprocess.PIPE) as writer:
        done, peak = run_measured(models, ["-q", q, "--jsonl"], stdin=writer.stdout)
    found = [json.loads(line) for line in done.splitlines()]
    assert found[0] == {"id": None, "error": "line is longer than 64 MiB"} and found[1]["id"] == 2 and "answer" in found[1]
    assert peak < 300 << 10


@pytest.mark.parametrize("unit", [b",[]", b",{}", b',""', b',"a":0'], ids=bytes.decode)
def test_a_line_of_a_million_values_is_never_read(models, tmp_path, unit):
    q, (start, end) = write_question(tmp_path / "q.yaml"), (b"{", b"}") if b":" in unit else (b"[", b"]")
    (tmp_path / "lines").write_bytes(b'{"text": "a", "x": ' + start + (unit * (40_000_000 // len(unit)))[1:] + end + b"}\n" + b'{"id": 2, "text": "b"}\n')
    with open(tmp_path / "lines") as lines:
        done, peak = run_measured(models, ["-q", q, "--jsonl"], stdin=lines)
    found = [json.loads(line) for line in done.splitlines()]
    assert "more than 10000 values" in found[0]["error"] and found[1]["id"] == 2 and "answer" in found[1]
    assert peak < 300 << 10


@pytest.mark.parametrize("text", ["[,{" * 500_000, '\\"' * 500_000, "\\" * 999_999, '\\\\"[' * 300_000], ids=range(4))
def test_a_large_text_is_one_value_whatever_is_in_it(text):
    assert jsonl_lines.parse(json.dumps({"id": 7, "text": text}).encode(), "utf-8") == (7, text.encode())


def test_lines_are_answered_as_they_come(models, tmp_path):
    q = write_question(tmp_path / "q.yaml")
    argv = [BIN / "classify", "-m", models / "llama.gguf", "-q", q, "--jsonl"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as p:
        for i in range(3):
            p.stdin.write(b'{"id": %d, "text": "a text"}\n' % i)
            p.stdin.flush()
            assert json.loads(p.stdout.readline())["id"] == i  # a classify that waits for more would wait for ever
        p.stdin.write(b'{"id": 3, "text": "without a newline"}')
        p.stdin.close()
        assert json.loads(p.stdout.read())["id"] == 3 and p.wait() == 0


def test_a_reader_that_goes_away_is_silent(models, tmp_path):
    q = write_question(tmp_path / "q.yaml")
    lines = b'{"id": 1, "text": "a text"}\n' * 50
    (tmp_path / "lines").write_bytes(lines)
    script = f"(classify -q '{q}' --jsonl <lines; echo $? >code) | head -n 1"
    done = shell(script, tmp_path, MODEL=str(models / "llama.gguf"))
    assert done.stderr == b"" and done.stdout.count(b"\n") == 1 and (tmp_path / "code").read_text() == "74\n"


# The cache.

LONG = [{"special": "<s>"}, {"text": "A rule that everybody knows. " * 100}, "input"]


def test_a_long_prefix_is_computed_once(models, tmp_path, home):
    write_chat_model(tmp_path / "m.gguf", n_ctx=4096, n_embd=256, n_ff=768)
    q = write_question(tmp_path / "q.yaml", prompt=LONG)

    def ask(*argv, text=TEXT):
        done = classify(models, "-m", tmp_path / "m.gguf", "-q", q, "--json", "-v", *argv, input=text)
        assert done.returncode in (0, 1), done.stderr
        said = json.loads(done.stdout)
        return (said["scores"], said["ids"]), said["reused"], done.stderr.decode().split("cache=")[1].split()[0]

    cold, warm, without = ask(), ask(), ask("--no-cache")
    assert cold[0] == warm[0] == without[0]
    assert cold[2] == "stored" and warm[2] == "found" and without[1:] == (0, "none")
    assert warm[1] == cold[1] > 800
    (snap,) = (home / ".cache" / "sluice").glob("*.kv")
    assert (os.stat(home / ".cache" / "sluice").st_mode & 0o777, os.stat(snap).st_mode & 0o777) == (0o700, 0o600)
    assert ask(text=b"another text")[1:] == (warm[1], "found") and ask("--cache", tmp_path / "c")[2] == "stored"
    write_question(q, prompt=LONG[:2] + ["input", {"text": "?"}], input={"kind": "text", "head_ids": 100, "tail_ids": 50})  # with the same begin
    assert ask()[2] == "found"
    write_question(q, prompt=LONG, input={"kind": "text", "head_ids": 600, "tail_ids": 50})  # that needs more room
    assert ask(text=TEXT * 30)[1:] == (warm[1], "stored") and ask(text=TEXT * 30)[2] == "found"
    damaged = bytearray(snap.read_bytes())
    damaged[int.from_bytes(damaged[96:104], "little") + 77] ^= 16
    snap.write_bytes(damaged)
    write_question(q, prompt=LONG)
    assert ask() == (cold[0], warm[1], "stored") and ask()[2] == "found"
    snap.chmod(0o666)
    assert ask()[0] == cold[0]


def test_every_line_of_a_batch_reuses_the_prefix(models):
    c = Classifier(question(prompt=LONG), str(models / "llama.gguf"))
    c.prepare()
    for text in (TEXT, b"short", TEXT * 20, b"x"):
        v, alone = c.ask(text), Classifier(question(prompt=LONG), str(models / "llama.gguf")).ask(text)
        assert v.n_reused == len(c.prompt.before) and alone.n_reused == 0
        assert (v.answer, v.score, v.scores) == (alone.answer, alone.score, alone.scores)


@pytest.mark.parametrize("trouble", ["no home", "relative home", "unwritable", "a file", "writable by others", "full"])
def test_a_cache_that_fails_changes_nothing(models, tmp_path, home, trouble):
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
        home.write_text("")
    elif trouble == "full":  # no file may grow
        limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    else:
        (home / ".cache" / "sluice").mkdir(parents=True)
        (home / ".cache" / "sluice").chmod(0o777)
    for _ in range(2):
        done = classify(models, "-m", tmp_path / "m.gguf", "-q", q, input=TEXT, env=env, preexec_fn=limit, cwd=tmp_path)
        assert (done.returncode, done.stdout, done.stderr) == (want.returncode, want.stdout, b"")
    assert not list(tmp_path.rglob("*.kv"))


# Bad input.

def run_measured(models, argv, stdin):
    """(stdout, peak KiB) of classify."""
    done = subprocess.run([sys.executable, "-S", "-c", MEASURE, BIN / "classify", "-m", models / "llama.gguf", *argv],
                          stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert done.returncode < 128
    return done.stdout, int(done.stderr.split()[-1])


@pytest.mark.parametrize("data", [b"\0" * 5000, bytes(range(256)) * 20, b"\xff\xfe\xfd", b"\n", b" ", b"\x1b[2J<s></s>[INST]" * 30, b"\xed\xa0\x80"])
def test_whatever_the_bytes_there_is_a_verdict(models, tmp_path, data):
    q = write_question(tmp_path / "q.yaml", input={"kind": "text", "head_ids": 100, "tail_ids": 30})
    done = classify(models, "-q", q, input=data)
    assert done.returncode in (0, 1) and done.stderr == b""


def test_of_a_long_text_both_ends_are_looked_at(tmp_path):
    n = inputs.END_BYTES
    for size in (0, 1, n, 2 * n, 2 * n + 1, 5 * n + 12345):
        data = os.urandom(size)
        want = data if size <= 2 * n else data[:n] + data[-n:]
        with subprocess.Popen(["sh", "-c", "dd bs=7001 2>/dev/null"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as p:  # in odd pieces
            writer = threading.Thread(target=lambda: (p.stdin.write(data), p.stdin.close()))
            writer.start()
            read = inputs.read(p.stdout.fileno(), False)
            assert len(read) <= 2 * n + 1
            assert inputs.text(read, False, False) == inputs.text(data, False, False) == (want, None, size > 2 * n), size
            writer.join()


def test_a_text_whose_middle_was_not_read_is_cut(models, monkeypatch):
    """Also where what was read of it has fewer ids than are kept."""
    c = opened(models, input={"kind": "text", "head_ids": 1000, "tail_ids": 500})
    assert not c.ask(TEXT).cut
    monkeypatch.setattr(inputs, "END_BYTES", 20)
    assert c.ask(TEXT).cut and not c.ask(TEXT[:40]).cut


def test_too_little_memory_gives_no_other_verdict(models, tmp_path):
    """At whatever step it ends, libraries that are loaded late among them."""
    mail = b"From: a@b.example\nContent-Type: text/html\n\n<p style='display:none'>hidden</p><p>The numbers.</p>"
    q = write_question(tmp_path / "q.yaml", input={"kind": "mail", "fold": True, "head_ids": 200, "tail_ids": 50})
    want, seen, mib = classify(models, "-q", q, "-j", "1", input=mail), set(), 14
    while want.returncode not in seen and mib < 1024:
        mib += 2
        limit = lambda: resource.setrlimit(resource.RLIMIT_AS, (mib << 20, mib << 20))
        done = classify(models, "-q", q, "-j", "1", input=mail, preexec_fn=limit)
        assert done.returncode in (70, 75) and not done.stdout or (done.returncode, done.stdout) == (want.returncode, want.stdout), mib
        seen.add(done.returncode)
    assert seen == {70, 75, want.returncode} or seen == {75, want.returncode}


def test_a_model_that_changes_meanwhile_gives_no_verdict(tmp_path):
    c = Classifier(question(), write_chat_model(tmp_path / "m.gguf"))
    c.ask(TEXT)
    os.utime(tmp_path / "m.gguf", (1, 1))
    with pytest.raises(Fault, match="was changed while it was in use") as e:
        c.ask(TEXT)
    assert e.value.code == 74


def test_a_hundred_megabytes_are_read_in_little_memory(models, tmp_path):
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
    "directory": (["."], b"", 65, ".: is a directory"),
    "no such question": (["-q", "nothing"], TEXT, 66, "none of the shipped questions"),
    "no such question file": (["-q", "nowhere.yaml"], TEXT, 66, "nowhere.yaml: No such file"),
    "question is a directory": (["-q", "./."], TEXT, 65, "is a directory"),
    "question is noise": (["-q", "./noise"], TEXT, 65, "noise"),
    "no such model": (["-m", "nowhere.gguf"], TEXT, 66, "nowhere.gguf: No such file"),
    "model is noise": (["-m", "noise"], TEXT, 65, "noise: "),
    "json and jsonl": (["--json", "--jsonl"], TEXT, 64, "--jsonl"),
    "file and jsonl": (["--jsonl", "noise"], TEXT, 64, "--jsonl"),
    "mass alone": (["--mass"], TEXT, 64, "--mass"),
    "threads": (["-j", "0"], TEXT, 64, "-j"),
    "unknown option": (["--spam"], TEXT, 64, "--spam"),
    "prompt too long": (["-q", "./long.yaml"], TEXT, 65, "has a context of"),
    "control token": (["-q", "./user.yaml"], TEXT, 65, '"<|nobody|>"'),
}


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
    assert words in err and err.startswith("classify: ") and err.count("\n") == 1 and "Traceback" not in err


def test_a_missing_module_is_no_verdict():
    done = subprocess.run([sys.executable, "-I", "-S", BIN / "classify"], capture_output=True, input=TEXT)
    assert done.returncode == 70 and b"ModuleNotFoundError" in done.stderr


WATCH = """
import runpy, signal, sys
class Finder:
    def find_spec(name, path=None, target=None):
        if name == "click" or name.startswith("sluice.") and name != "sluice.cli":
            print(name, signal.getsignal(signal.SIGINT).name)
sys.meta_path.insert(0, Finder)
runpy.run_path(sys.argv[1], run_name="loaded")
"""


@pytest.mark.parametrize("tool", ["classify", "mail-text"])
def test_an_interrupt_while_a_command_loads_is_silent(tool):
    done = subprocess.run([sys.executable, "-c", WATCH, BIN / tool], capture_output=True, text=True,
                          preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler))
    seen = dict(line.split() for line in done.stdout.splitlines())
    assert {"click", "sluice.stream"} <= set(seen) and set(seen.values()) == {"SIG_DFL"}, done


def test_no_model_is_a_usage_error(tmp_path):
    done = run("classify", "-q", "urgent", input=TEXT)
    assert done.returncode == 64 and b"-m FILE or the variable MODEL" in done.stderr


def test_a_full_disk_and_closed_streams_are_no_verdicts(models, tmp_path):
    write_question(tmp_path / "q.yaml")
    for script, words in (("classify -q ./q.yaml <text >/dev/full", b"No space left"), ("classify -q ./q.yaml <text >&-", b"Bad file descriptor"),
                          ("classify -q ./q.yaml <&-", b"standard input: Bad file descriptor")):
        (tmp_path / "text").write_bytes(TEXT)
        done = shell(script, tmp_path, MODEL=str(models / "llama.gguf"))
        assert done.returncode == 74 and words in done.stderr and done.stderr.count(b"\n") == 1, script


# Mail.

LETTER = ("From: =?iso-8859-1?q?J=F6rg?= <j@example.org>\r\nSubject: Minutes\r\nContent-Type: text/plain; charset=iso-8859-1\r\n\r\n"
          "Gr\u00fc\u00dfe, the meeting is moved to 12:30.\r\n").encode("latin-1")
ABOUT_MAIL = {"input": {"kind": "mail", "fold": True, "head_ids": 384, "tail_ids": 128}}


def test_a_mail_is_read_as_mail_text_writes_it(models, tmp_path):
    mail, text = write_question(tmp_path / "mail.yaml", **ABOUT_MAIL), write_question(tmp_path / "text.yaml")
    folded = run("mail-text", "--fold", input=LETTER).stdout
    assert folded == "From: j\u00f6rg < j @ example . org >\nSubject: minutes\n\ngr\u00fc\u00dfe , the meeting is moved to 00 : 00 .".encode()
    as_mail, as_text = (json.loads(classify(models, "-q", q, "--json", input=data).stdout) for q, data in ((mail, LETTER), (text, folded)))
    assert as_mail["scores"] == as_text["scores"] and as_mail["reasons"] == [] and "reasons" not in as_text
    plain = run("mail-text", input=LETTER).stdout
    forced = json.loads(classify(models, "-q", text, "--mail", "--json", input=LETTER).stdout)
    assert forced["scores"] == json.loads(classify(models, "-q", text, "--json", input=plain).stdout)["scores"] != as_mail["scores"]


def test_texts_are_folded_where_the_question_says_so(models, tmp_path):
    fold, text = write_question(tmp_path / "fold.yaml", input={"kind": "text", "fold": True, "head_ids": 99, "tail_ids": 9}), write_question(tmp_path / "text.yaml")
    scores = lambda q, data: json.loads(classify(models, "-q", q, "--json", input=data).stdout)["scores"]
    assert scores(fold, b"HELLO,  World\n123456789!!!!\xff") == scores(text, "hello , world 00000 ! ! \ufffd".encode()) != scores(text, b"HELLO,  World")


def test_lines_hold_whole_mails_as_latin_1(models, tmp_path):
    q = write_question(tmp_path / "q.yaml", **ABOUT_MAIL)
    raw = [LETTER, b"\x80\xff\0" * 50, b"From x\nSubject: only a head\n\n", bytes(range(256))]
    lines = b"".join(json.dumps({"id": i, "text": m.decode("latin-1")}).encode() + b"\n" for i, m in enumerate(raw))
    done, found = jsonl(models, q, lines + b'{"id": 9, "text": "\\u20ac"}\n', "--mail")
    assert found[-1] == {"id": 9, "error": "text: character 0 is not a byte (a mail is given as Latin-1)"} and done.returncode == 65
    for m, o in zip(raw, found):
        single = json.loads(classify(models, "-q", q, "--json", input=m).stdout)
        assert (o["answer"], o["score"]) == (single["answer"], single["score"])
    assert json.loads(classify(models, "-q", q, "--json", input=raw[2]).stdout)["reasons"] == ["empty"]


def test_a_mail_of_a_hundred_megabytes_is_read_to_its_limit(models, tmp_path):
    q = write_question(tmp_path / "q.yaml", **ABOUT_MAIL)
    with open(tmp_path / "large", "wb") as f:
        f.write(LETTER + b"And so on, for ever. \n" * 100000)
        f.truncate(100 << 20)
    with open(tmp_path / "large") as large:
        out, peak = run_measured(models, ["-q", q, "--json"], stdin=large)
    assert json.loads(out)["reasons"] == ["bytes", "text"] and peak < 400 << 10


def test_odd_mails_have_verdicts(models, tmp_path, shared):
    q = write_question(tmp_path / "q.yaml", **ABOUT_MAIL)
    samples = sorted(shared("data/spam/samples").glob("*.*"))
    assert len(samples) >= 40
    lines = b"".join(json.dumps({"id": p.name, "text": p.read_bytes().decode("latin-1")}).encode() + b"\n" for p in samples if p.stat().st_size)
    done, found = jsonl(models, q, lines, "--mail")
    assert (done.returncode, done.stderr) == (0, b"") and len(found) == lines.count(b"\n") and all("answer" in o for o in found)


# Real weights.

PROTO = {"input": {"kind": "text", "head_ids": 384, "tail_ids": 0}, "answers": {"yes": ["yes"], "no": ["no"]}, "prompt": [
    {"special": "<s>"}, {"special": "<|user|>"}, {"text": "\nCan you say for certain that the following email is spam?\n\n"}, "input",
    {"special": "</s>"}, {"text": "\n"}, {"special": "<|assistant|>"}, {"text": "\n"}]}


def test_spam_prototype_answers_as_recorded(shared):
    c = Classifier(Question(PROTO, "proto"), str(shared("data/models/spam-proto-q8_0.gguf")), mass=True)
    head, tail = "<s><|user|>" + PROTO["prompt"][2]["text"], "</s>\n<|assistant|>\n"
    records = [json.loads(line) for line in shared("data/models/spam-proto.expected.jsonl").read_text().splitlines()]
    assert len(records) == 20
    for r in records:
        text = r["prompt"].removeprefix(head).removesuffix(tail).encode()
        assert prompt_ids(c, text) == r["ids"]
        v = c.ask(text)
        assert v.answer == r["answer"] and v.mass > 0.99
        p = 1 / (1 + math.exp(r["no_logit"] - r["yes_logit"]))
        assert v.scores["yes"] == pytest.approx(p, abs=0.01)


@pytest.mark.parametrize("name", ["language-is-english", "urgent", "sentiment"])
def test_shipped_questions_can_be_put_to_any_model(shared, models, name):
    paths = [models / "llama.gguf", models / "gemma3.gguf", shared("data/models/stories260K.gguf"), shared("data/models/spam-proto-q8_0.gguf")]
    frames = []
    for path in paths:
        done = run("classify", "-m", path, "-q", name, "--json", input=b"I want my money back today!")
        assert done.returncode in (0, 1, 2) and done.stderr == b"", done.stderr
        frames.append(json.loads(done.stdout)["frame"])
        steps = int(run("classify", "-m", path, "-q", name, "-v", input=b"x").stderr.decode().split("steps=")[1].split()[0])
        assert steps <= (1 if "spam-proto" in path.name and name != "sentiment" else 12)  # its yes and no are one id
    assert frames == ["sluice", "gemma", "plain", "sluice"]
