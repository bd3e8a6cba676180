"""The Python API gives what the commands give; what it imports, its errors, its ends."""

import gc
import inspect
import json
import math
import os
import pickle
import signal
import struct
import subprocess
import sys
import threading

import pytest
from chat_model import write_chat_model
from classify_call import write_question
from conftest import ROOT
from forked import run
from tiny_model import write_model

import sluice
from sluice import faults
from sluice.cli import sampling, values

CHATML = (ROOT / "configs" / "chatml.jinja").read_text()
PROMPT = "Once upon a time there was \U0001f980 and"
MAILS = sorted((ROOT / "tests" / "mails").glob("*.eml"))
WORDS = 'root ::= " "? word (" " word)* "."\nword ::= [BWbw] [a-z]*\n'


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    d = tmp_path_factory.mktemp("api")
    config = {"n_layer": 2, "n_vocab": 420, "n_ctx": 400}
    write_model(str(d / "llama.gguf"), type="q8_0", **config)
    write_model(str(d / "gemma3.gguf"), arch="gemma3", type="f16", **config)
    write_chat_model(d / "chat.gguf", ["<|im_start|>", "<|im_end|>"], CHATML, n_ctx=400)
    return d


def python(code):
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / "lib")},
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


# Names and imports.


def test_import_loads_no_module_beside_the_package():
    code = "import sys; before = set(sys.modules); import sluice; print(*set(sys.modules) - before)"
    assert python(code).split() == ["sluice"]


@pytest.mark.quick_cases(1)
def test_api_model_and_question_need_no_numpy_and_no_click(tiny):
    code = f"""
import sys, sluice
with sluice.load({str(tiny / "llama.gguf")!r}) as m:
    list(m.generate("x", max_tokens=2)), m.logits(m.tokenize("x"))
    list(m.embed_many(["x"])), m.rerank("x", ["x"])
with sluice.Question() as q:
    q.classify("x")
print(*{{"numpy", "click"}} & set(sys.modules))"""
    assert python(code).split() == []


def test_public_names_are_those_of_no_room():
    package = ROOT / "lib" / "sluice"
    rooms = {p.name.removesuffix(".py") for p in package.iterdir() if p.name[0] not in "._"}
    assert {"generate", "classify", "model"} <= rooms
    assert not rooms & set(sluice.__all__)
    assert {name for name in sluice.__all__ if not hasattr(sluice, name)} == set()
    assert set(sluice.__all__) <= set(dir(sluice))
    with pytest.raises(AttributeError, match="unheard_of"):
        _ = sluice.unheard_of


def test_rooms_can_be_imported_before_and_after_the_names():
    code = """
import sluice.generate, sluice.classify, sluice.model
before = sluice.load, sluice.Question, sluice.Model
import sluice.api, sluice.generate.generation
assert before == (sluice.load, sluice.Question, sluice.Model)
assert type(sluice.generate) is type(sluice)"""
    python(code)


def test_missing_kernels_are_an_import_error(tmp_path):
    for file in ("__init__.py", "faults.py", "kernels.py", "messages.py"):
        (tmp_path / "sluice").mkdir(exist_ok=True)
        (tmp_path / "sluice" / file).write_bytes((ROOT / "lib" / "sluice" / file).read_bytes())
    (tmp_path / "sluice" / "api.py").write_text("from .kernels import ffi")
    code = "import sluice\ntry:\n    sluice.load\nexcept ImportError as e:\n    print(e)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, env={"PYTHONPATH": str(tmp_path)}
    )
    assert (done.returncode, done.stdout) == (0, b"the kernels of sluice cannot be loaded\n")


def test_arguments_have_the_defaults_and_ranges_of_the_options(tiny):
    arguments = inspect.signature(sluice.Model.generate).parameters
    names = {"repeat": "repeat_penalty", "presence": "presence_penalty"}
    names["frequency"] = "frequency_penalty"

    @sampling.options
    def command():
        pass

    seen = set()
    with sluice.load(tiny / "llama.gguf") as model:
        for option in command.__click_params__:
            name = names.get(option.name, option.name)
            seen.add(name)
            if name in ("bias", "bias_word", "seed", "preset", "order", "dry_breakers"):
                continue
            default = False if option.is_flag else option.default
            is_further = name not in arguments  # one of **settings
            assert is_further or arguments[name].default == default, name
            for end, step in ((getattr(option.type, "min", None), -1), (_max(option), 1)):
                if end is not None:
                    with pytest.raises(ValueError, match=name):
                        model.generate("x", **{name: end + step})
                    model.generate("x", **{name: end}).close()
        for value in (values.MAX_BIAS + 1, math.inf, math.nan):
            with pytest.raises(ValueError, match="bias"):
                model.generate("x", bias={1: value})
        model.generate("x", bias={1: values.MAX_BIAS, 2: -math.inf}).close()
        for bad, error in (
            ({"top_q": 1}, TypeError),
            ({"mirostat": 1.5}, ValueError),
            ({"order": "heat"}, ValueError),
            ({"dry_breakers": [""]}, ValueError),
        ):
            with pytest.raises(error):
                model.generate("x", **bad)
    assert {"temperature", "top_k", "top_p", "min_p", "last_n", "least", "bias", "seed"} < seen
    assert {"typical", "top_nsigma", "xtc_threshold", "dry_base", "mirostat_mu"} < seen


def _max(option):
    return getattr(option.type, "max", None)


# Text and tokens.


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("name", ["llama", "gemma3", "chat"])
@pytest.mark.parametrize(
    "text", ["", PROMPT, " two  blanks ", b"\xff\xfe caf\xc3", "<|im_start|>user\nHi<|im_end|>"]
)
def test_tokens_and_text_are_those_of_tokenize(tiny, name, text):
    path = tiny / f"{name}.gguf"
    data = text if isinstance(text, bytes) else text.encode()
    with sluice.load(path) as model:
        for special in (False, True):
            how = ["--special"] if special else []
            stream = run("tokenize", "-m", path, *how, input=data).stdout
            tokens = [int(line) for line in stream.decode().splitlines()[1:-1]]
            assert model.tokenize(text, special=special) == tokens
            back = run("tokenize", "-m", path, "-d", *how, input=stream).stdout
            assert model.detokenize(tokens, special=special) == back.decode()
        assert model.tokenize(text, bos=False) == model.tokenize(text, bos=True)[1:]


def first_logits(path, directory, data):
    """The logits (bytes) that prefill leaves for decode."""
    tokens = run("tokenize", "-m", path, input=data).stdout
    made = run("prefill", "-m", path, "-o", directory / "p.snap", input=tokens)
    assert made.returncode == 0
    stream = run("decode", "-m", path, directory / "p.snap", input=tokens).stdout
    (n_bytes,) = struct.unpack_from("<I", stream, 32 + 4)
    return stream[32 + 16 : 32 + 16 + n_bytes]


@pytest.mark.parametrize("name", ["llama", "gemma3"])
def test_logits_are_those_of_a_snapshot(tiny, tmp_path, name):
    with sluice.load(tiny / f"{name}.gguf", threads=2) as model:
        logits = model.logits(model.tokenize(PROMPT))
        assert (logits.format, logits.shape, logits.readonly) == ("f", (420,), True)
        assert logits.tobytes() == first_logits(model.path, tmp_path, PROMPT.encode())
        other = model.logits(model.tokenize("Another text"))
    assert other != logits  # and `logits` did not follow
    numpy = pytest.importorskip("numpy")
    array = numpy.asarray(logits)
    assert array.dtype == "float32" and array.tolist() == list(logits)
    assert numpy.shares_memory(array, numpy.frombuffer(logits.obj, "float32"))


# Generation.

CASES = [
    ("llama", {"temperature": 0}, "-t 0"),
    ("llama", {"seed": 1}, "-S 1"),
    (
        "gemma3",
        {"seed": 1, "top_k": 20, "repeat_penalty": 1.2, "last_n": 9},
        "-S 1 -k 20 --repeat-penalty 1.2 --last-n 9",
    ),
    (
        "gemma3",
        {"seed": 3, "temperature": 1.5, "min_p": 0.01, "top_p": 1, "bias": {270: 9, "the": 2}},
        "-S 3 -t 1.5 --min-p 0.01 -p 1 --bias 270=9 --bias-word the=2",
    ),
    (
        "llama",
        {"seed": 2, "presence_penalty": 1, "frequency_penalty": 0.5, "least": True, "kv": "f32"},
        "-S 2 --presence-penalty 1 --frequency-penalty 0.5 --least --kv f32",
    ),
    ("llama", {"seed": 5, "grammar": WORDS}, "-S 5 -g words.gbnf"),
    ("llama", {"temperature": 0, "grammar": 'root ::= "yes" | "no"'}, "-t 0 -g yesno.gbnf"),
    ("llama", {"seed": 7, "stop": ["e", "th"]}, "-S 7 --stop e --stop th"),
    ("llama", {"seed": 7, "stop": "e", "special": True}, "-S 7 --stop e --special"),
    ("llama", {"seed": 9, "context_size": 60, "max_tokens": None, "bias": {2: -math.inf}}, None),
]


@pytest.mark.quick_cases(6)
@pytest.mark.parametrize("name, arguments, options", CASES)
def test_text_and_reason_are_those_of_generate(
    tiny, tmp_path, monkeypatch, name, arguments, options
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "words.gbnf").write_text(WORDS)
    (tmp_path / "yesno.gbnf").write_text('root ::= "yes" | "no"')
    path = tiny / f"{name}.gguf"
    options = (options or "-S 9 -c 60 -n -1 --bias 2=-inf").split()
    if "max_tokens" not in arguments:
        arguments, options = {**arguments, "max_tokens": 40}, [*options, "-n", "40"]
    done = run("generate", "-m", path, "-v", *options, PROMPT)
    fields = dict(field.split("=") for field in done.stderr.decode().split()[1:])
    with sluice.load(path) as model:
        text = model.generate(PROMPT, **arguments)
        assert text.reason is None
        pieces = list(text)
    assert "".join(pieces).encode() == done.stdout
    assert all(pieces) and (pieces or text.reason == "stop")
    assert (text.reason, len(text.tokens)) == (fields["end"], int(fields["tokens"]))
    assert text.n_prompt == int(fields["prompt"])
    assert done.returncode == (1 if text.reason == "cut" else 0)
    assert next(text, None) is None  # the end stays


def test_reasons(tiny):
    """Each of the four."""
    with sluice.load(tiny / "llama.gguf") as model:

        def reason(**arguments):
            text = model.generate(PROMPT, seed=1, **arguments)
            return "".join(text) and text.reason

        never_ends = {2: -math.inf}
        assert reason(max_tokens=5, bias=never_ends) == "length"
        assert reason(context_size=60, bias=never_ends) == "full"
        assert reason(max_tokens=5, grammar=f'root ::= "{"a" * 200}"') == "cut"
        assert reason(max_tokens=9, grammar='root ::= "ab"') == "stop"


def test_reported_seed_repeats_the_text(tiny):
    with sluice.load(tiny / "llama.gguf") as model:
        first = model.generate(PROMPT, max_tokens=20)
        text = "".join(first)
        assert "".join(model.generate(PROMPT, max_tokens=20, seed=first.seed)) == text
        tokens = model.tokenize(PROMPT)
        assert "".join(model.generate(tokens, max_tokens=20, seed=first.seed)) == text
        assert len({model.generate("x").seed for _ in range(3)}) == 3


def test_abandoned_iterator_does_not_change_the_next_text(tiny):
    with sluice.load(tiny / "llama.gguf") as model:
        whole = list(model.generate(PROMPT, max_tokens=20, seed=1))
        first, second = (model.generate(PROMPT, max_tokens=20, seed=1) for _ in range(2))
        assert [next(first), next(second), next(first)] == [whole[0], whole[0], whole[1]]
        first.close()
        assert list(first) == [] and first.reason is None
        assert list(second) == whole[1:]


def test_chat_is_that_of_generate(tiny):
    path = tiny / "chat.gguf"
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hello <|im_end|>"},
    ]
    options = ["--chat", "--system", "Be brief.", "-S", 4, "-n", 30]
    done = run("generate", "-m", path, *options, messages[1]["content"])
    with sluice.load(path) as model:
        prompt = model.chat_prompt(messages)
        assert prompt == model.chat_prompt(messages, template="chatml")
        assert "".join(model.generate(prompt, seed=4, max_tokens=30)).encode() == done.stdout != b""
        with pytest.raises(sluice.DataError, match="message 1"):
            model.chat_prompt([{"role": "judge", "content": "Hello"}])
        with pytest.raises(ValueError, match="bos_token"):
            model.chat_prompt(messages, variables={"bos_token": "x"})
    with sluice.load(tiny / "llama.gguf") as model:
        with pytest.raises(sluice.UnsupportedError, match="chat template"):
            model.chat_prompt(messages)


def test_smollm2(smollm2, tmp_path):
    with sluice.load(smollm2) as model:
        logits = model.logits(model.tokenize(PROMPT))
        assert logits.tobytes() == first_logits(smollm2, tmp_path, PROMPT.encode())
        for options, arguments in (
            (["-t", 0, "-n", 24], {"temperature": 0, "max_tokens": 24}),
            (["-S", 3, "-n", 24, "--stop", "\n"], {"seed": 3, "max_tokens": 24, "stop": "\n"}),
        ):
            done = run("generate", "-m", smollm2, *options, PROMPT)
            assert "".join(model.generate(PROMPT, **arguments)).encode() == done.stdout != b""
        done = run("generate", "-m", smollm2, "--chat", "-t", 0, "-n", 12, "Name a colour.")
        prompt = model.chat_prompt([{"role": "user", "content": "Name a colour."}])
        text = "".join(model.generate(prompt, temperature=0, max_tokens=12))
        assert text.encode() == done.stdout != b""


# Questions.


def same(verdict, done):
    """Whether a Verdict is what `classify --json` printed."""
    said = json.loads(done.stdout)
    mine = {
        "answer": verdict.label,
        "score": round(verdict.score, 6),
        "scores": {label: round(p, 6) for label, p in verdict.scores.items()},
        "ids": verdict.n_tokens,
        "cut": verdict.is_cut,
    }
    mine |= {} if verdict.mass is None else {"mass": round(verdict.mass, 6)}
    mine |= {} if verdict.reasons is None else {"reasons": verdict.reasons}
    assert mine == {key: said[key] for key in mine} and verdict.status == done.returncode
    assert ("mass" in mine, "reasons" in mine) == ("mass" in said, "reasons" in said)


def test_verdicts_are_those_of_classify(home):
    with sluice.Question("spam") as question:
        assert question.labels == ("yes", "no") and set(question.thresholds) == {"yes", "no"}
        many = list(question.classify_many(path.read_bytes() for path in MAILS))
        for path, verdict in zip(MAILS, many, strict=True):
            same(verdict, run("classify", "--json", path))
            assert question.classify(path.read_bytes()) == verdict
            assert verdict.label == {"spam": "yes", "ham": "no"}[path.name.split("-")[0]]
        assert question.classify("Ich grüße") == question.classify("Ich grüße".encode())


def test_verdicts_of_other_questions_and_models(models, home, tmp_path, smollm2):
    text = "Dear friends, the meeting has been moved. " * 40
    asked = write_question(tmp_path / "q.yaml", thresholds={"yes": 0.99, "no": 0.99})
    for model in (models / "llama.gguf", smollm2):
        with sluice.Question("urgent", model=model, mass=True) as question:
            options = ["-m", model, "--json", "--mass", "--question"]
            same(question.classify(text), run("classify", *options, "urgent", input=text.encode()))
    with sluice.Question(asked, model=models / "llama.gguf") as question:
        verdict = question.classify(text)
        done = run(
            "classify", "--json", "-m", models / "llama.gguf", "-q", asked, input=text.encode()
        )
        same(verdict, done)
        assert verdict.is_cut and (verdict.label, verdict.status) == ("unsure", 2)
    with sluice.Question(asked, model=models / "llama.gguf", mail=True) as question:
        data = MAILS[0].read_bytes()
        options = ["--json", "--mail", "-m", models / "llama.gguf", "-q", asked]
        same(question.classify(data), run("classify", *options, input=data))


@pytest.mark.full
def test_calibration_of_the_user_is_followed_or_not(home, tmp_path):
    data = MAILS[0].read_bytes()
    with sluice.Question() as question:
        before = question.classify(data)
        learnt = tmp_path / "c"
        for path in MAILS:
            label = "yes" if before.label == "no" else "no"
            assert run("classify", "--calibration", learnt, "--learn", label, path).returncode == 0
    with sluice.Question(calibration=learnt) as question:
        after = question.classify(data)
        same(after, run("classify", "--json", "--calibration", learnt, input=data))
    assert after.score != before.score
    with sluice.Question(calibration=False) as question:
        assert question.classify(data) == before
    learnt.write_bytes(b"damaged")
    with sluice.Question(calibration=learnt) as question:
        with pytest.warns(RuntimeWarning, match=str(learnt)):
            assert question.classify(data) == before


def test_many_texts_are_fetched_one_by_one_and_go_on_after_a_bad_one(home):
    fetched = []

    def texts():
        for text in ("Hello", "", "Good bye"):
            fetched.append(text)
            yield text

    with sluice.Question() as question:
        verdicts = question.classify_many(texts())
        assert fetched == []
        assert next(verdicts) == question.classify("Hello") and fetched == ["Hello"]
        with pytest.raises(sluice.DataError, match="empty"):
            next(verdicts)
        assert list(verdicts) == [question.classify("Good bye")]


@pytest.mark.quick_cases(1)
def test_cache_is_where_it_is_asked_for(home, models, tmp_path):
    asked = write_question(tmp_path / "q.yaml")
    for cache, kept in ((False, False), (tmp_path / "cache", True)):
        with sluice.Question(asked, model=models / "llama.gguf", cache=cache) as question:
            question.classify("x")
        assert (tmp_path / "cache").exists() == kept
    assert os.listdir(tmp_path / "cache")


# Errors and ends.


def test_errors_have_kinds_and_codes(tiny, tmp_path, home):
    (tmp_path / "bad.gguf").write_bytes(b"GGUF" + bytes(100))
    with pytest.raises(sluice.UnsupportedError, match="bad.gguf") as raised:
        sluice.load(tmp_path / "bad.gguf")
    assert raised.value.code == 69 and isinstance(raised.value, sluice.Error)
    with pytest.raises(sluice.DataError, match="empty") as raised:
        (tmp_path / "bad.gguf").write_bytes(b"")
        sluice.load(str(tmp_path / "bad.gguf"))
    assert raised.value.code == 65
    with pytest.raises(FileNotFoundError):
        sluice.load(tmp_path / "none.gguf")
    with pytest.raises(sluice.Error, match="unknown question") as raised:
        sluice.Question("nonsense")
    assert raised.value.code == 66
    with pytest.raises(sluice.Error, match="names no model") as raised:
        sluice.Question("urgent")
    assert raised.value.code == 64
    with sluice.load(tiny / "llama.gguf") as model:
        for call in (
            lambda: model.logits([]),
            lambda: model.logits([5] * 401),
            lambda: model.generate("x", grammar="root ::= ("),
            lambda: model.generate([5] * 401),
        ):
            with pytest.raises(sluice.DataError):
                call()


def test_errors_are_made_by_code_and_can_be_pickled():
    for code, kind in (
        (65, sluice.DataError),
        (69, sluice.UnsupportedError),
        (74, sluice.Error),
    ):
        error = faults.Error(code, "m.gguf: what is wrong")
        again = pickle.loads(pickle.dumps(error))
        assert type(error) is type(again) is kind
        assert (again.code, str(again)) == (code, "m.gguf: what is wrong")
    assert type(faults.data_error("a", "b")) is sluice.DataError
    assert type(faults.unsupported_error("a", "b")) is sluice.UnsupportedError


@pytest.mark.parametrize(
    "call, kind",
    [
        (lambda m: m.logits([420]), ValueError),
        (lambda m: m.detokenize([-1]), ValueError),
        (lambda m: m.generate([1, 420]), ValueError),
        (lambda m: m.logits([1.5]), TypeError),
        (lambda m: m.tokenize(5), TypeError),
        (lambda m: m.generate("x", max_tokens=0), ValueError),
        (lambda m: m.generate("x", context_size=0), ValueError),
        (lambda m: m.generate("x", stop=""), ValueError),
        (lambda m: m.generate("x", stop=["a", ""]), ValueError),
        (lambda m: m.generate("x", seed=1 << 64), ValueError),
        (lambda m: m.generate("x", seed=-1), ValueError),
        (lambda m: m.generate("x", kv="f8"), ValueError),
        (lambda m: m.generate("x", bias={420: 1}), sluice.Error),
        (lambda m: m.generate("x", bias={-1: 1}), ValueError),
        (lambda m: sluice.load(m.path, threads=0), ValueError),
        (lambda m: sluice.load(m.path, arithmetic="quick"), ValueError),
        (lambda m: m.tokenize("\udc80"), ValueError),
    ],
)
def test_wrong_arguments_are_refused(tiny, call, kind):
    with sluice.load(tiny / "llama.gguf") as model:
        with pytest.raises(kind):
            call(model)
        assert model.tokenize("x")  # and nothing else is


def test_close_gives_back_the_file_and_ends_all_use(tiny, home):
    def held():
        links = [f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd")]
        files = [os.readlink(link) for link in links if os.path.exists(link)]
        return sum(name.endswith(("/llama.gguf", "/spam.gguf")) for name in files)

    gc.collect()  # what other tests left
    before = held()
    model, question = sluice.load(tiny / "llama.gguf"), sluice.Question()
    verdicts = question.classify_many(["x"])
    text = model.generate("x", max_tokens=3, seed=1)
    assert held() >= before + 2
    for closable in (model, question):
        closable.close()
        closable.close()
    assert len(list(text)) >= 1  # what had begun still has what it needs
    for call in (
        lambda: model.tokenize("x"),
        lambda: model.logits([1]),
        lambda: model.generate("x"),
        lambda: model.__enter__(),
        lambda: question.classify("x"),
        lambda: next(verdicts),
    ):
        with pytest.raises(ValueError, match="is closed"):
            call()
    del text
    assert held() == before


def test_api_reports_a_model_changed_meanwhile(tiny, tmp_path):
    path = tmp_path / "m.gguf"
    path.write_bytes((tiny / "llama.gguf").read_bytes())
    with sluice.load(path) as model:
        text = model.generate("x", max_tokens=3)
        os.utime(path, (1, 1))
        with pytest.raises(sluice.Error, match="changed") as raised:
            list(text)
    assert raised.value.code == 74


def test_a_child_computes_although_another_thread_did_when_it_was_forked(tiny):
    with sluice.load(tiny / "llama.gguf", threads=2) as model:
        tokens, stop = model.tokenize(PROMPT), threading.Event()
        want = bytes(model.logits(tokens))

        def compute():
            while not stop.is_set():
                model.logits(tokens * 10)

        thread = threading.Thread(target=compute)
        thread.start()
        try:
            for _ in range(5):
                pid = os.fork()
                if not pid:
                    signal.alarm(30)  # ends a child that waits
                    os._exit(bytes(model.logits(tokens)) != want)
                assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
                assert bytes(model.logits(tokens)) == want
        finally:
            stop.set()
            thread.join()


def test_threads_take_turns(tiny, home):
    """Texts and verdicts of several threads at once are those of one after the other."""
    with sluice.load(tiny / "llama.gguf", threads=2) as model, sluice.Question() as question:
        jobs = [
            lambda seed=seed: "".join(model.generate(PROMPT, max_tokens=30, seed=seed))
            for seed in range(3)
        ] + [lambda: question.classify(MAILS[0].read_bytes())]
        alone = [job() for job in jobs]
        found = {}
        threads = [
            threading.Thread(target=lambda n=n, job=job: found.update({n: job()}))
            for n, job in enumerate(jobs)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert [found.get(n) for n in range(len(jobs))] == alone


def test_one_text_is_not_several_and_an_empty_one_is_named(tiny):
    with sluice.Question("spam") as question:
        with pytest.raises(TypeError, match="texts: is one text, not several"):
            question.classify_many("abc")
        verdicts = question.classify_many(["a", "", "b"])
        assert next(verdicts).label
        with pytest.raises(sluice.DataError, match=r"texts\[1\]: no text: it is empty"):
            next(verdicts)
        assert next(verdicts).label and not list(verdicts)
    with sluice.load(tiny / "chat.gguf") as m:
        for messages in ("hello", [1], {"role": "user", "content": "x"}, ["x"]):
            with pytest.raises(TypeError, match="messages: is not a list of objects with role"):
                m.chat_prompt(messages)


def test_answers_of_a_text_are_those_of_the_command(tiny):
    """classify -q TEXT --answers A,B."""
    asked = {
        "Which team must act?": ["billing", "support", "other"],
        "Is it urgent?": ["yes", "no"],
    }
    for question, answers in asked.items():
        argv = ["-q", question, "--answers", ",".join(answers), "--json"]
        done = run("classify", "-m", tiny / "chat.gguf", *argv, input=b"The bill is wrong.")
        found = json.loads(done.stdout)
        with sluice.Question(question, answers=iter(answers), model=tiny / "chat.gguf") as q:
            v = q.classify("The bill is wrong.")
        assert v.label == found["answer"] and q.labels == (*answers,)
        assert {k: round(p, 6) for k, p in v.scores.items()} == found["scores"]
    for wrong, kind, problem in [
        (["billing"], sluice.DataError, "answers: 1 answer; give at least two"),
        (["technical support", "other"], sluice.DataError, "answers: .* has a space"),
        ("a,b", TypeError, "answers: is one text, not several"),
    ]:
        with pytest.raises(kind, match=problem):
            sluice.Question("Which?", answers=wrong, model=tiny / "chat.gguf")
    with pytest.raises(TypeError, match="question: with answers it is a text"):
        sluice.Question(tiny / "q.yaml", answers=["a", "b"])
