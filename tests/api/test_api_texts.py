"""Model.embed and Model.rerank give the numbers of the commands `embed` and `rerank`."""

import itertools
import json
import math
import os
import pathlib
import threading

import embed_models
import numpy as np
import pytest
from chat_model import write_chat_model
from conftest import ROOT
from forked import run
from golden_forms import QUERY

import sluice

MAILS = sorted((ROOT / "tests" / "mails").glob("*.eml"))
TEXTS = ["The cat sat on the mat.", "It rains.", "é 雨 🌧", " ", "<|im_end|>", "It rains."] * 11
LONG = "many words " * 300


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    d = tmp_path_factory.mktemp("texts")
    for name in embed_models.MODELS:
        embed_models.write_golden(d / f"{name}.gguf", name)
    for name in embed_models.RANKERS:
        embed_models.write_ranker(d / f"rank-{name}.gguf", name)
    write_chat_model(d / "plain.gguf", n_ctx=400)
    (d / "q.yaml").write_text('before: "Query: "\npooling: cls\n')
    return d


def embedded(path, *options, texts):
    """The vectors that `embed` prints, one after the other, in bytes."""
    lines = b"".join(json.dumps({"text": text}).encode() + b"\n" for text in texts)
    done = run("embed", "-m", path, "--jsonl", "--format", "f32", *options, input=lines)
    assert done.returncode == 0, done.stderr
    return done.stdout


def reranked(path, *options, texts, query=QUERY):
    """[(index, score)] that `rerank` prints."""
    lines = [json.dumps({"id": n, "text": text}).encode() for n, text in enumerate(texts)]
    done = run("rerank", "-m", path, "-q", query, "--jsonl", *options, input=b"\n".join(lines))
    assert done.returncode == 0, done.stderr
    return [(row["id"], row["score"]) for row in map(json.loads, done.stdout.splitlines())]


def rounded(found):
    return [(one.place, round(one.score, 6)) for one in found]


# Vectors.


@pytest.mark.quick_cases(5)
@pytest.mark.parametrize("name", embed_models.MODELS)
@pytest.mark.parametrize(
    "arguments, options",
    [
        ({}, ()),
        ({"pooling": "mean"}, ("--pooling", "mean")),
        ({"pooling": "cls", "normalize": False}, ("--pooling", "cls", "--no-normalize")),
        ({"pooling": "last", "dimensions": 17}, ("--pooling", "last", "--dimensions", 17)),
        ({"prompt": "search"}, ("-q", "search")),
        ({"prompt": {"before": "Query: ", "pooling": "cls"}}, ("-q", "{folder}/q.yaml")),
    ],
)
def test_vectors_are_those_of_embed(folder, name, arguments, options):
    path = folder / f"{name}.gguf"
    options = [str(option).format(folder=folder) for option in options]
    want = embedded(path, *options, texts=TEXTS)
    with sluice.load(path, threads=2) as model:
        found = list(model.embed_many(iter(TEXTS), **arguments))
        assert b"".join(found) == want and len(found) == len(TEXTS)
        for text, vector in list(zip(TEXTS, found))[:5]:
            alone = model.embed(text.encode(), **arguments)
            assert alone == vector and alone.tobytes() == vector.tobytes()
            assert (alone.format, alone.readonly) == ("f", True)
            if arguments.get("normalize", True):
                assert math.isclose(sum(x * x for x in alone), 1, rel_tol=1e-5)


def test_vectors_become_an_array(folder):
    numpy = pytest.importorskip("numpy")
    with sluice.load(folder / "llama.gguf") as model:
        one = model.embed("It rains.")
        array = numpy.asarray(one)
        assert numpy.shares_memory(array, numpy.frombuffer(one, "float32"))
        rows = numpy.array(list(model.embed_many(["It rains.", "Rain."])))
    assert (rows.dtype, rows.shape) == ("float32", (2, 96))
    assert (rows[0] == array).all()


def test_prompts_are_names_files_or_the_keys_of_one(folder, monkeypatch):
    monkeypatch.chdir(folder)
    with sluice.load("qwen3.gguf") as model:
        keys = {"before": "Query: ", "pooling": "cls"}
        found = {
            bytes(model.embed("x", prompt=prompt))
            for prompt in (keys, "./q.yaml", "q.yaml", pathlib.Path("q.yaml"))
        }
        assert len(found) == 1 and found != {bytes(model.embed("x"))}
        with pytest.raises(sluice.Error, match="unknown; use search") as raised:
            model.embed("x", prompt="nonsense")
        assert raised.value.code == 66
        with pytest.raises(FileNotFoundError):
            model.embed("x", prompt=pathlib.Path("search"))  # a path is never a name
        for wrong in ({}, {"middle": "x"}, {"pooling": "most"}, {"before": 1}):
            with pytest.raises(sluice.DataError, match="^prompt: "):
                model.embed("x", prompt=wrong)
        with pytest.raises(sluice.DataError, match="all of the context of 256"):
            model.embed("x", prompt={"before": LONG})


def test_messages_are_read_as_the_commands_read_them(folder):
    data = [path.read_bytes() for path in MAILS]
    done = run("embed", "-m", folder / "llama.gguf", "--mail", "--format", "f32", *MAILS)
    ranks = run("rerank", "-m", folder / "rank-qwen3.gguf", "-q", QUERY, "--mail", "--json", *MAILS)
    names = [str(path) for path in MAILS]
    with pytest.warns(RuntimeWarning, match="its end was dropped"):
        with sluice.load(folder / "llama.gguf") as model:
            assert b"".join(model.embed_many(data, mail=True)) == done.stdout
        with sluice.load(folder / "rank-qwen3.gguf") as model:
            found = [
                (names[n], score) for n, score in rounded(model.rerank(QUERY, data, mail=True))
            ]
    want = [(row["name"], row["score"]) for row in map(json.loads, ranks.stdout.splitlines())]
    assert found == want


def test_longer_texts_lose_their_end_with_a_warning(folder):
    texts = ["It rains.", LONG, "é"]
    path = folder / "qwen3.gguf"
    with sluice.load(path) as model:
        assert len(model.tokenize(LONG)) > model.context_size
        with pytest.warns(RuntimeWarning, match=r"texts\[1\]: longer than the context") as raised:
            found = b"".join(model.embed_many(texts))
        assert [w.filename for w in raised] == [__file__]
        assert found == embedded(path, texts=texts)
        with pytest.warns(RuntimeWarning, match="^text: longer") as raised:
            short = model.embed(TEXTS[0], context_size=9)
        assert [w.filename for w in raised] == [__file__]
        assert bytes(short) == embedded(path, "-c", 9, texts=TEXTS[:1]) != found[:256]
    with sluice.load(folder / "rank-own.gguf") as model:
        with pytest.warns(RuntimeWarning, match=r"texts\[1\]: longer") as raised:
            ranks = model.rerank(QUERY, texts)
        assert [w.filename for w in raised] == [__file__]
    assert rounded(ranks) == reranked(folder / "rank-own.gguf", texts=texts)


def test_texts_are_fetched_in_groups(folder):
    fetched = []

    def texts():
        for n in itertools.count():
            fetched.append(n)
            yield f"text {n}"

    with sluice.load(folder / "qwen3.gguf") as model:
        vectors = model.embed_many(texts())
        assert fetched == []
        assert next(vectors) == model.embed("text 0")
        assert len(fetched) <= 65
        many = list(itertools.islice(vectors, 70))
        assert many[-1] == model.embed("text 70") and len(fetched) <= 130


def test_errors_of_texts_stand_in_their_place(folder):
    class Lost(Exception):
        pass

    def texts():
        yield from ("It rains.", "", 5, "\ud800", b"\xff", "Rain.")
        raise Lost

    with sluice.load(folder / "qwen3.gguf") as model:
        vectors = model.embed_many(texts())
        assert next(vectors) == model.embed("It rains.")
        with pytest.raises(sluice.DataError, match=r"^texts\[1\]: no text: it is empty$"):
            next(vectors)
        with pytest.raises(TypeError, match=r"^texts\[2\]: a text is str or bytes, not int$"):
            next(vectors)
        with pytest.raises(UnicodeEncodeError, match=r"texts\[3\]: surrogates not allowed$"):
            next(vectors)
        assert next(vectors) == model.embed("\ufffd")
        assert next(vectors) == model.embed("Rain.")
        with pytest.raises(Lost):
            next(vectors)
        assert list(vectors) == []
        with pytest.raises(sluice.DataError, match="^text: no text"):
            model.embed("")


def test_the_memory_of_an_array_is_no_text(folder):
    """Only bytes are: one dimension, one byte each."""
    with sluice.load(folder / "qwen3.gguf") as model:
        for array in (
            np.arange(5),
            np.zeros(3),
            np.array(["one", "two"]),
            np.array(["a", None], object),
            np.zeros((2, 2), np.uint8),
            np.array(["2026-11-27"], "M8[D]"),
        ):
            with pytest.raises(TypeError, match="^text: a text is str or bytes, not ndarray$"):
                model.embed(array)
            with pytest.raises(TypeError):
                model.tokenize(array)
        hello = np.frombuffer(b"hello", np.uint8)
        assert model.embed(hello) == model.embed("hello") == model.embed(bytearray(b"hello"))
        assert len(list(model.embed_many(np.array(["one", "two"])))) == 2


def test_texts_may_come_from_a_thread_that_uses_the_engine(folder):
    """They are fetched without the lock."""
    with sluice.load(folder / "qwen3.gguf") as model:

        def texts():
            for n in range(3):
                found = []
                thread = threading.Thread(target=lambda: found.append(model.tokenize("x")))
                thread.start()
                thread.join(30)
                assert found
                yield f"text {n}"

        assert len(list(model.embed_many(texts()))) == 3
        assert len(model.rerank("x", texts())) == 3


@pytest.mark.parametrize(
    "call, kind, problem",
    [
        (lambda m: m.embed(5), TypeError, None),
        (lambda m: m.embed(["a"]), TypeError, None),
        (lambda m: m.embed_many("a text"), TypeError, "is one text"),
        (lambda m: m.embed_many(b"a text"), TypeError, "is one text"),
        (lambda m: m.embed_many(5), TypeError, None),
        (lambda m: m.embed("x", pooling="rank"), ValueError, "pooling: 'rank' is not one of last"),
        (lambda m: m.embed("x", dimensions=0), ValueError, "dimensions: 0"),
        (lambda m: m.embed_many([], dimensions=65), ValueError, "dimensions: 65 .* to 64"),
        (lambda m: m.embed("x", dimensions=1.5), TypeError, None),
        (lambda m: m.embed("x", context_size=3), ValueError, "context_size: 3"),
        (lambda m: m.embed("x", prompt=5), TypeError, None),
        (lambda m: m.rerank(5, ["x"]), TypeError, "query"),
        (lambda m: m.rerank(" ", ["x"]), ValueError, "query: is empty"),
        (lambda m: m.rerank("x" * 16385, ["x"]), ValueError, "query: more than 16384"),
        (lambda m: m.rerank("\ud800", ["x"]), ValueError, "query: is not UTF-8"),
        (lambda m: m.rerank("x", ["x"], instruct=""), ValueError, "instruct: is empty"),
        (lambda m: m.rerank("x", ["x"], top=0), ValueError, "top: 0"),
        (lambda m: m.rerank("x", "a text"), TypeError, "is one text"),
        (lambda m: m.rerank("x", ["a", ""]), sluice.DataError, r"^texts\[1\]: no text"),
        (lambda m: m.rerank("x", ["a", 5]), TypeError, None),
    ],
)
def test_wrong_texts_and_arguments_are_refused(folder, call, kind, problem):
    with sluice.load(folder / "qwen3.gguf") as model:
        with pytest.raises(kind, match=problem):
            call(model)
        assert len(model.embed("x")) == 64  # and nothing else is


def test_a_reranker_has_no_vectors_unless_it_is_said_how(folder):
    with sluice.load(folder / "rank-own.gguf") as model:
        with pytest.raises(sluice.UnsupportedError, match="a reranker"):
            model.embed("x")
        assert len(model.embed("x", pooling="mean")) == 64


def test_a_closed_model_embeds_and_ranks_nothing_new(folder):
    model = sluice.load(folder / "qwen3.gguf")
    vectors, want = model.embed_many(["x", "y"]), model.embed("x")
    model.close()
    assert next(vectors) == want  # what had begun still has what it needs
    for call in (
        lambda: model.embed("x"),
        lambda: model.embed_many(["x"]),
        lambda: model.rerank("x", ["x"]),
    ):
        with pytest.raises(ValueError, match="is closed"):
            call()


def test_a_model_that_changes_ends_the_vectors(folder, tmp_path):
    path = tmp_path / "m.gguf"
    path.write_bytes((folder / "qwen3.gguf").read_bytes())
    with sluice.load(path) as model:
        vectors = model.embed_many(["x", "y"] * 99)
        next(vectors)
        os.utime(path, (1, 1))
        with pytest.raises(sluice.Error, match="changed") as raised:
            list(vectors)
        assert raised.value.code == 74 and list(vectors) == []


# The order of texts.


@pytest.mark.parametrize("name", [*(f"rank-{name}" for name in embed_models.RANKERS), "plain"])
def test_order_and_scores_are_those_of_rerank(folder, name):
    path = folder / f"{name}.gguf"
    want = reranked(path, texts=TEXTS)
    with sluice.load(path, threads=2) as model:
        found = model.rerank(QUERY, TEXTS)
        assert rounded(found) == want and len(found) == len(TEXTS)
        assert found == sorted(found, key=lambda one: (-one.score, one.place))
        assert model.rerank(QUERY, iter(TEXTS), top=3) == found[:3]
        assert model.rerank(QUERY, []) == []
        place, score = found[0]
        assert model.rerank(QUERY, [TEXTS[place].encode()]) == [(0, score)]


def test_instruct_is_that_of_rerank(folder):
    path, how = folder / "rank-qwen3.gguf", "Find the weather"
    with sluice.load(path) as model:
        found = rounded(model.rerank(QUERY, TEXTS[:5], instruct=how))
        assert found != rounded(model.rerank(QUERY, TEXTS[:5]))
    assert found == reranked(path, "--instruct", how, texts=TEXTS[:5])
    with sluice.load(folder / "rank-own.gguf") as model:
        with pytest.raises(sluice.DataError, match="has no place for"):
            model.rerank(QUERY, ["x"], instruct=how)


@pytest.mark.parametrize("real", ["smollm2", "gemma3"])
def test_numbers_of_real_models_are_those_of_the_commands(request, real):
    path = request.getfixturevalue(real)
    with sluice.load(path) as model:
        found = b"".join(model.embed_many(TEXTS[:8], pooling="mean"))
        assert found == embedded(path, "--pooling", "mean", texts=TEXTS[:8])
        ranks = rounded(model.rerank(QUERY, TEXTS[:5]))
    assert ranks == reranked(path, texts=TEXTS[:5])
