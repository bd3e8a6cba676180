"""embed: vectors next to those of transformers, their bits, forms, prompts, and bad input."""

import hashlib
import json
import os
import struct

import embed_models
import numpy as np
import pytest
from conftest import ROOT, run, sets_here
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_model import WITH_STATES

from sluice.embed import embedder, prompt, vectors
from sluice.embed.embedder import Embedder
from sluice.embed.prompt import Prompt
from sluice.kernels import ffi, lib
from sluice.model.model import Model

pytestmark = pytest.mark.usefixtures("home")

GOLDEN = json.loads((ROOT / "tests" / "golden" / "embed.json").read_text())
LINES = [
    "The cat sat on the mat.",
    "Bread needs flour.",
    "It rains.",
    "The cat sat on the mat, and slept.",
    "é 雨 🌧",
    "a " * 150,
    "It rains.",
] * 10
LINES = LINES[:64]
INPUT = "".join(line + "\n" for line in LINES).encode()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    d = tmp_path_factory.mktemp("embed")
    for name in embed_models.MODELS:
        embed_models.write_golden(d / f"{name}.gguf", name)
    for arch in WITH_STATES:
        embed_models.write(d / f"{arch}.gguf", arch=arch, n_layer=4, n_ctx=256, n_embd=64)
    embed_models.write_ranker(d / "ranker.gguf", "own")
    (d / "q.yaml").write_text('before: "Query: "\n')
    return d


def embed(folder, *argv, model="qwen3.gguf", input=b"", code=0, **kwargs):
    """(stdout, stderr), in text."""
    done = run("embed", "-m", folder / model, *argv, input=input, **kwargs)
    assert done.returncode == code, done.stderr
    return done.stdout, done.stderr.decode()


def objects(out):
    return [json.loads(line) for line in out.splitlines()]


def unit(x):
    return x / np.linalg.norm(x)


# Next to transformers and sentence-transformers.


@pytest.mark.parametrize("name", embed_models.MODELS)
@pytest.mark.parametrize("pooling", prompt.POOLINGS)
def test_vectors_are_those_of_transformers(folder, name, pooling):
    """Whole, and cut as sentence-transformers cuts: first cut, then brought to length 1."""
    words = [word for of in GOLDEN[name] for word in ("-e", of["text"])]
    more = () if name == "qwen3" and pooling == "last" else ("--pooling", pooling)
    if name in ("llama", "gemma3") and pooling == "mean":
        more = ()
    out, _ = embed(folder, *more, *words, model=f"{name}.gguf")
    cut, _ = embed(folder, *more, "--dimensions", 17, *words, model=f"{name}.gguf")
    bare, _ = embed(folder, *more, "--no-normalize", *words, model=f"{name}.gguf")
    for of, x, y, z in zip(GOLDEN[name], objects(out), objects(cut), objects(bare), strict=True):
        want = np.array(of["vectors"][pooling])
        assert np.abs(x["embedding"] - unit(want)).max() < 1e-5
        assert np.abs(y["embedding"] - unit(want[:17])).max() < 1e-5
        assert np.abs(z["embedding"] - want).max() < 1e-5 * np.abs(want).max()


def test_tokens_are_those_that_tokenize_prints(folder):
    for name in embed_models.MODELS:
        e = Embedder(Model(str(folder / f"{name}.gguf")), Prompt())
        for of in GOLDEN[name]:
            assert e._tokenized(of["text"].encode()) == (of["tokens"], False)


# Bits.


def digest(folder, *argv, isa="", threads=2, **kwargs):
    environment = {**os.environ, "SLUICE_ISA": isa}
    argv = ("-j", threads, "--each", "line", "--format", "f32", *argv)
    out, _ = embed(folder, *argv, input=INPUT, env=environment, **kwargs)
    return hashlib.sha256(out).hexdigest()


@pytest.mark.parametrize("arch", ["qwen3", *WITH_STATES])
@pytest.mark.parametrize("pooling", prompt.POOLINGS)
def test_bits_do_not_depend_on_batch_threads_and_instruction_set(folder, pooling, arch):
    how, model = ("--pooling", pooling), {"model": f"{arch}.gguf"}
    want = digest(folder, *how, **model)
    for n in (1, 7, 64):
        assert digest(folder, *how, "-b", n, **model) == want, n
    assert digest(folder, *how, threads=1, **model) == want
    assert digest(folder, *how, threads=5, **model) == want
    for isa in sets_here():
        assert digest(folder, *how, isa=isa, **model) == want, isa


@pytest.mark.parametrize("arch", ["qwen3", *WITH_STATES])
@settings(max_examples=25, deadline=None)
@given(st.lists(st.sampled_from(LINES), min_size=1, max_size=12), st.sampled_from(prompt.POOLINGS))
def test_a_vector_does_not_depend_on_its_neighbours(folder, arch, texts, pooling):
    model = Model(str(folder / f"{arch}.gguf"))
    together = Embedder(model, Prompt(b"Query: "), pooling, n_batch=5)
    alone = lambda: Embedder(model, Prompt(b"Query: "), pooling)
    found = [v.values for v in together.ask_many([t.encode() for t in texts])]
    for text, values in zip(texts, found, strict=True):
        (v,) = alone().ask_many([text.encode()])
        assert v.values == values


@pytest.mark.parametrize("arch, n_layer", [("llama", 1), ("lfm2", 2), ("qwen35", 4)])
def test_long_texts_take_several_passes_and_keep_their_bits(tmp_path, arch, n_layer):
    """A text longer than a pass, between others: its mean is over all of its pieces."""
    embed_models.write(tmp_path / "m.gguf", arch=arch, n_layer=n_layer, n_ctx=2048, n_embd=64)
    model = Model(str(tmp_path / "m.gguf"))
    texts = [b"one", b"many words " * 150, b"two", b"other words " * 140]
    for pooling in prompt.POOLINGS:
        found = list(Embedder(model, Prompt(), pooling).ask_many(texts))
        assert found[1].n_tokens > 512
        for text, v in zip(texts, found, strict=True):
            (single,) = Embedder(model, Prompt(), pooling).ask_many([text])
            assert single.values == v.values


@given(st.integers(1, 40), st.integers(1, 9), st.integers(0, 9), st.integers(0, 1 << 30))
def test_sums_are_in_order_and_in_f64(n, n_row, cut, seed):
    x = np.random.default_rng(seed).normal(size=n * n_row).astype(np.float32)
    sums, cut = ffi.new("double[]", n), min(cut, n_row)
    rows = ffi.from_buffer("float[]", x)
    lib.pool_add(sums, rows, cut, n)
    lib.pool_add(sums, rows + cut * n, n_row - cut, n)
    want = np.zeros(n)
    for row in x.reshape(n_row, n).astype(np.float64):
        want += row
    assert list(sums) == list(want)
    y = ffi.new("float[]", n)
    lib.pool_mean(y, sums, n_row, n)
    assert list(y) == list((want / n_row).astype(np.float32))
    total = 0.0
    for value in y:
        total += value * value
    assert lib.to_unit_length(y, n) == total**0.5
    mean = (want / n_row).astype(np.float32).astype(np.float64)
    assert list(y) == list((mean / total**0.5).astype(np.float32))


# Forms.


def test_forms_hold_the_same_numbers(folder, tmp_path):
    lines = b"one\n\ntwo\n"
    out, said = embed(folder, "--each", "line", input=lines)
    found = objects(out)
    assert [of["name"] for of in found] == ["-:1", "-:2", "-:3"]
    assert found[1] == {"name": "-:2", "embedding": None} and "1 of 3 texts have no vector" in said
    want = np.array([found[0]["embedding"], found[2]["embedding"]], np.float32)
    bare, _ = embed(folder, "--each", "line", "--format", "f32", input=lines)
    rows = np.frombuffer(bare, "<f4").reshape(3, -1)
    assert (rows[[0, 2]] == want).all() and np.isnan(rows[1]).all()
    npy, _ = embed(folder, "--each", "line", "--format", "npy", input=lines)
    (tmp_path / "v.npy").write_bytes(npy)
    array = np.load(tmp_path / "v.npy")
    assert array.dtype == np.float32 and array.tobytes() == bare
    embed(folder, "--each", "line", "--format", "npy", "-o", tmp_path / "o.npy", input=lines)
    assert (tmp_path / "o.npy").read_bytes() == npy
    assert np.allclose(np.linalg.norm(want, axis=1), 1, atol=1e-6)


@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1))
def test_numbers_in_json_tell_all_bits(values):
    data = struct.pack(f"={len(values)}f", *values)
    found = json.loads(b"[" + vectors.numbers(data) + b"]")
    assert struct.pack(f"={len(values)}f", *found) == data


def test_a_file_that_ends_with_npy_is_an_array(folder, tmp_path):
    embed(folder, "--each", "line", "-o", tmp_path / "v.npy", input=b"one\ntwo\n")
    assert np.load(tmp_path / "v.npy").shape[0] == 2
    embed(folder, "--format", "jsonl", "-o", tmp_path / "v.npy", input=b"one\n")
    assert objects((tmp_path / "v.npy").read_bytes())[0]["name"] == "-"


def test_npy_header_is_read_by_numpy(tmp_path):
    for n, d in ((0, 1), (1, 1024), (12345678, 3)):
        head = vectors.npy_header(n, d)
        assert len(head) % vectors.ALIGNMENT == 0
        (tmp_path / "h").write_bytes(head)
        with open(tmp_path / "h", "rb") as f:
            assert np.lib.format.read_magic(f) == (1, 0)
            assert np.lib.format.read_array_header_1_0(f) == ((n, d), False, np.dtype("<f4"))


def test_texts_from_everywhere_have_the_same_vectors(folder, tmp_path):
    d = tmp_path / "texts"
    d.mkdir()
    for name, text in (("a.txt", "one"), ("b.txt", "two")):
        (d / name).write_text(text)
    want = [of["embedding"] for of in objects(embed(folder, "-e", "one", "-e", "two")[0])]
    found = sorted(objects(embed(folder, d)[0]), key=lambda of: of["name"])
    assert [os.path.basename(of["name"]) for of in found] == ["a.txt", "b.txt"]
    assert [of["embedding"] for of in found] == want
    assert [of["embedding"] for of in objects(embed(folder, d / "a.txt", d / "b.txt")[0])] == want
    (single,) = objects(embed(folder, input=b"one")[0])
    assert single == {"name": "-", "embedding": want[0]}
    lines = b'{"id": 7, "text": "one"}\n{"id": "x", "text": "two"}\n'
    found = objects(embed(folder, "--jsonl", input=lines)[0])
    assert [of["id"] for of in found] == [7, "x"] and [of["embedding"] for of in found] == want
    out, _ = embed(folder, "--csv", "body", input=b"id,body\n1,one\n2,two\n")
    assert [of["embedding"] for of in objects(out)] == want


def test_cosine_is_that_of_the_vectors(folder, tmp_path):
    a, b = (np.array(of["embedding"]) for of in objects(embed(folder, "-e", "one", "-e", "two")[0]))
    out, _ = embed(folder, "--cosine", "-e", "one", "-e", "two")
    assert abs(float(out) - a @ b) < 2e-6
    assert embed(folder, "--cosine", "-e", "one", "-e", "one")[0] == b"1.000000\n"
    for name in "ab":
        (tmp_path / name).write_text({"a": "one", "b": "two"}[name])
    assert embed(folder, "--cosine", tmp_path / "a", tmp_path / "b")[0] == out


def test_of_a_longer_text_the_end_is_dropped_and_the_end_token_stays(folder):
    e = Embedder(Model(str(folder / "qwen3.gguf")), Prompt(), n_ctx=8)
    whole = Embedder(Model(str(folder / "qwen3.gguf")), Prompt())
    tokens, _ = whole._tokenized(LINES[0].encode())
    assert len(tokens) > 8
    assert e._tokenized(LINES[0].encode()) == ([*tokens[:7], tokens[-1]], True)
    out, said = embed(folder, "-c", 8, "-e", LINES[0], "-e", "a")
    assert [of.get("cut") for of in objects(out)] == [True, None]
    assert "1 texts were longer than the context" in said


# Prompts, pooling and the end token.


def test_prompt_and_text_are_tokenized_as_one(folder, tmp_path):
    """So a query of `-q` has the vector of the whole text."""
    (tmp_path / "q.yaml").write_text('before: "Query: "\nafter: " End"\npooling: mean\n')
    asked, _ = embed(folder, "-q", tmp_path / "q.yaml", "-e", "one")
    whole, _ = embed(folder, "--pooling", "mean", "-e", "Query: one End")
    assert objects(asked)[0]["embedding"] == objects(whole)[0]["embedding"]
    for name in prompt.NAMES:
        assert prompt.read(name).before.startswith(b"Instruct: ")
        assert embed(folder, "-q", name, "-e", "one")[0] != embed(folder, "-e", "one")[0]
    shipped = {path.stem for path in (ROOT / "configs" / "embed").iterdir()}
    assert shipped == set(prompt.NAMES)


def test_pooling_comes_from_the_file_then_from_the_family(tmp_path):
    path = tmp_path / "m.gguf"
    for arch, value, want in (
        ("qwen3", None, "last"),
        ("qwen3", 0, "last"),
        ("qwen3", 1, "mean"),
        ("llama", None, "mean"),
        ("llama", 2, "cls"),
        ("llama", 3, "last"),
    ):
        more = {} if value is None else {f"{arch}.pooling_type": ("u32", value)}
        embed_models.write(path, more, arch=arch, n_layer=1, n_embd=32, n_ff=32)
        assert embedder.pooling_of(Model(str(path))) == want


def test_a_file_that_does_not_say_gets_the_end_token_where_the_last_is_pooled(tmp_path):
    """Early files of Qwen3-Embedding lack the key; its end is <|endoftext|>, not the EOS of chat."""
    path, key = tmp_path / "m.gguf", "tokenizer.ggml.add_eos_token"
    small = dict(n_layer=1, n_embd=32, n_ff=32)

    def last_token(pooling, chatml, arch="qwen3", **kwargs):
        embed_models.write(path, chatml=chatml, arch=arch, **kwargs, **small)
        e = Embedder(Model(str(path)), Prompt(), pooling)
        tokens, _ = e._tokenized(b"a")
        return e._vocab.bytes_of(tokens[-1], special=True).strip()

    assert last_token("last", True, without=[key]) == b"<|endoftext|>"
    assert last_token("last", False, without=[key]) == b"</s>"
    assert last_token("mean", True, without=[key]) == b"a"
    assert last_token("last", True) == b"a"  # the file says no
    assert last_token("last", True, "llama", without=[key]) == b"a"  # as llama.cpp has it
    assert last_token("mean", True, more={key: ("bool", True)}) == b"</s>"


def test_no_text_becomes_a_control_token(tmp_path):
    embed_models.write_ranker(tmp_path / "m.gguf", "qwen3")
    e = Embedder(Model(str(tmp_path / "m.gguf")), Prompt(b"<|im_end|>"))
    tokens, _ = e._tokenized(b"<|im_start|><think>")
    assert not any(e._vocab.is_control(token) for token in tokens)
    assert e._vocab.control_token("<think>") not in tokens


# Bad input.


def test_bad_texts_do_not_stop_the_others(folder, tmp_path):
    lines = b'{"id": 1, "text": "one"}\n{"id": 2}\nx\n{"id": 4, "text": ""}\n'
    out, said = embed(folder, "--jsonl", input=lines, code=65)
    assert [("error" in of, of["id"]) for of in objects(out)] == [
        (False, 1), (True, 2), (True, None), (True, 4),
    ]  # fmt: skip
    assert said.endswith('3 of 4 lines are invalid; their objects have "error"\n')
    bare, said = embed(folder, "--jsonl", "--format", "f32", input=lines, code=65)
    rows = np.frombuffer(bare, "<f4").reshape(4, -1)
    assert list(np.isnan(rows).any(1)) == [False, True, True, True] and said.count("\n") == 4
    (tmp_path / "b").write_bytes(b"\0\1\2")
    (tmp_path / "a").write_text("one")
    out, said = embed(folder, tmp_path / "b", tmp_path / "a", tmp_path / "none", code=65)
    assert ["error" in of for of in objects(out)] == [True, False, True]
    assert "b: is binary, not text" in said and "none: No such file" in said


def test_errors_hide_neither_the_cuts_nor_the_statistics(folder):
    lines = json.dumps({"text": "a " * 300}).encode() + b"\nx\n"
    _, said = embed(folder, "-v", "--jsonl", input=lines, code=65)
    cut, figures, errors = said.splitlines()
    assert "1 texts were longer than the context" in cut
    assert "pooling=last" in figures and "1 of 2 lines are invalid" in errors


@pytest.mark.parametrize(
    "argv, code, said",
    [
        (("-e", "a", "-q", "none"), 66, '-q "none": unknown; use search, similarity, or a path'),
        (("-e", "a", "-q", "none.yaml"), 66, "none.yaml: No such file"),
        (("-e", "a", "--dimensions", 65), 64, "--dimensions: 65 is more than 64, the model's"),
        (("-e", "a", "--dimensions", 0), 64, "--dimensions"),
        (("-e", "a", "--pooling", "max"), 64, "--pooling"),
        (("-e", "a", "-b", 0), 64, "-b/--batch-size"),
        (("-e", "a", "--each", "line"), 64, "-e: not with FILE, --each"),
        (("--cosine", "-e", "a"), 64, "--cosine: 1 texts, where 2 are needed"),
        (("--cosine", "-e", "a", "-e", "b", "-e", "c"), 64, "more than 2 texts"),
        (("--cosine", "-e", "a", "-e", ""), 65, "-e:2: no text: it is empty"),
        (("--cosine", "--format", "npy"), 64, "--cosine: not with -o or --format"),
        (("-e", "a", "-o", "/dev/full/x"), 73, "/dev/full/x"),
        ((), 65, "-: no text: it is empty"),
    ],
)
def test_bad_options(folder, argv, code, said):
    out, found = embed(folder, *argv, code=code)
    assert said in found and found.count("\n") == 1
    assert code != 65 or b'"embedding"' not in out


@pytest.mark.parametrize(
    "text, said",
    [
        ("", "is not a mapping"),
        ("- before", "is not a mapping"),
        ("befor: x", 'there is no key "befor"; use before, after, pooling'),
        ("before: 7", "before: is not a text"),
        ("after: [a]", "after: is not a text"),
        ("before: x\npooling: max", "pooling: is none of last, mean, cls"),
        ("before: x\npooling: [last]", "pooling: is none of"),
        ('before: "\\ud800"', "line 1: found invalid Unicode"),
        ("before: &a x", "line 1: aliases and anchors are not read"),
        ("1: x", "there is no key"),
    ],
)
def test_bad_prompts_are_named(folder, tmp_path, text, said):
    (tmp_path / "p.yaml").write_text(text)
    out, found = embed(folder, "-q", tmp_path / "p.yaml", "-e", "a", code=65)
    assert out == b"" and "p.yaml: " in found and said in found and found.count("\n") == 1


def test_a_prompt_that_fills_the_context_is_refused(folder, tmp_path):
    (tmp_path / "p.yaml").write_text("before: " + "many words " * 300)
    _, said = embed(folder, "-q", tmp_path / "p.yaml", "-e", "a", code=65)
    assert "all of the context of 256" in said


def test_rerankers_and_other_poolings_are_named(folder, tmp_path):
    _, said = embed(folder, "-e", "a", model="ranker.gguf", code=69)
    assert "qwen3.pooling_type: 4, a reranker: use rerank, or say --pooling" in said
    embed(folder, "--pooling", "last", "-e", "a", model="ranker.gguf")
    path = tmp_path / "m.gguf"
    small = dict(n_layer=1, n_embd=32, n_ff=32)
    for kind, value, said in (
        ("u32", 9, "llama.pooling_type: 9 is not within 0 to 4"),
        ("string", "mean", "llama.pooling_type: "),
    ):
        embed_models.write(path, {"llama.pooling_type": (kind, value)}, **small)
        assert said in embed(tmp_path, "-e", "a", model="m.gguf", code=65)[1]


def test_damaged_weights_give_no_vector(tmp_path):
    for values, said in (([float("nan")] * 32, "is not finite"), ([0.0] * 32, "has no direction")):
        embed_models.write(tmp_path / "m.gguf", n_layer=1, n_embd=32, n_ff=32)
        data = (tmp_path / "m.gguf").read_bytes()
        from sluice.gguf.model_file import open_model

        t = open_model(str(tmp_path / "m.gguf")).tensors["output_norm.weight"]
        at = t.offset
        data = data[:at] + struct.pack("<32f", *values) + data[at + 128 :]
        (tmp_path / "m.gguf").write_bytes(data)
        for pooling in prompt.POOLINGS:
            out, found = embed(tmp_path, "-e", "a", "--pooling", pooling, model="m.gguf", code=65)
            assert out == b"" and said in found and found.count("\n") == 1


def test_a_killed_reader_and_a_full_disk_leave_no_file(folder, tmp_path):
    done = run("embed", "-m", folder / "qwen3.gguf", "-e", "a", stdout=open("/dev/full", "wb"))
    assert done.returncode in (74, 75) and done.stderr.count(b"\n") == 1
    missing = tmp_path / "no" / "v.npy"
    embed(folder, "-e", "a", "-o", missing, code=73)
    assert not missing.parent.exists()


def test_messages_are_read_as_mail_text_prints_them(folder, tmp_path):
    mail = ROOT / "tests" / "mails" / "ham-mutt.eml"
    from sluice.mail import message

    text = message.read(mail.read_bytes()).text()
    (tmp_path / "text").write_bytes(text)
    of_mail, of_text = (
        objects(embed(folder, "-c", 250, *argv)[0])[0]
        for argv in (("--mail", mail), (tmp_path / "text",))
    )
    assert of_mail["embedding"] == of_text["embedding"]
    assert of_mail["embedding"] != objects(embed(folder, "-c", 250, mail)[0])[0]["embedding"]
