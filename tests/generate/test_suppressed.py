"""Tokens that a model's file suppresses (`suppress_tokens`) are never sampled."""

import embed_models
import pytest
from conftest import shell
from forked import run

N_VOCAB = 420


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """The same weights, with and without a list of all tokens but a few."""
    d = tmp_path_factory.mktemp("suppressed")
    kept = {*range(300, 310)}
    never = [i for i in range(N_VOCAB) if i not in kept]
    config = {"arch": "llama", "n_layer": 2, "n_vocab": N_VOCAB, "n_ctx": 200}
    embed_models.write(d / "plain.gguf", **config)
    key = "tokenizer.ggml.suppress_tokens"
    embed_models.write(d / "few.gguf", {key: ("[i32]", never)}, **config)
    for name, value in {"beyond": N_VOCAB, "negative": -1}.items():
        embed_models.write(d / f"{name}.gguf", {key: ("[i32]", [5, value])}, **config)
    embed_models.write(d / "text.gguf", {key: ("string", "5")}, **config)
    bias = [word for i in never for word in ("--bias", f"{i}=-inf")]
    return d, bias


@pytest.mark.parametrize("options", [("-t", 0), ("-t", 1.5, "-S", 4)])
def test_text_is_that_of_a_bias_of_minus_infinity(models, options):
    d, bias = models
    common = ["-n", 12, *options]
    few = run("generate", "-m", d / "few.gguf", *common, input=b"once")
    told = run("generate", "-m", d / "plain.gguf", *common, *bias, input=b"once")
    plain = run("generate", "-m", d / "plain.gguf", *common, input=b"once")
    assert few.returncode == told.returncode == 0 and few.stdout == told.stdout != plain.stdout
    again = run("generate", "-m", d / "few.gguf", *common, "--bias", "301=3", input=b"once")
    other = run(
        "generate", "-m", d / "plain.gguf", *common, *bias, "--bias", "301=3", input=b"once"
    )
    assert again.stdout == other.stdout


def test_the_pipeline_suppresses_them_with_a_model(models, tmp_path):
    d, _ = models
    few = run("generate", "-m", d / "few.gguf", "-n", 9, "-t", 0, input=b"once")
    line = (
        "printf once | tokenize -m $M | prefill -m $M -c 200 -o p.snap;"
        " mkfifo ring$N; decode -m $M p.snap <ring$N | sample -t 0 -n 9 $S | tee ring$N"
        " | tokenize -m $M -d"
    )
    texts = []
    for n, more in enumerate(["-m $M", "-m $M --bias-word once=0", ""]):
        script = f"M={d / 'few.gguf'}; N={n}; " + line.replace("$S", more)
        texts.append(shell(script, tmp_path).stdout)
    assert texts[0] == texts[1] == few.stdout != texts[2]


@pytest.mark.parametrize("name", ["beyond", "negative", "text"])
def test_a_list_of_anything_else_is_refused(models, name):
    d, _ = models
    for command in ("generate", "tokenize"):
        done = run(command, "-m", d / f"{name}.gguf", input=b"once")
        assert (done.returncode, done.stdout) == (65, b"")
        assert f"{name}.gguf".encode() in done.stderr and b"suppress_tokens" in done.stderr


def suppressing(path, tokens, **config):
    """Write the model of `models` that suppresses `tokens`."""
    config = {"arch": "llama", "n_layer": 2, "n_vocab": N_VOCAB, "n_ctx": 200, **config}
    embed_models.write(path, {"tokenizer.ggml.suppress_tokens": ("[i32]", tokens)}, **config)


@pytest.mark.parametrize("more", [["-n", 20], ["-n", 1, "--complete"]])
def test_a_text_that_must_come_is_written_in_other_tokens(tmp_path, more):
    """Where the vocabulary's own tokens of it are suppressed."""
    suppressing(tmp_path / "m.gguf", [309, 314])  # on, ce
    done = run(
        *("generate", "-m", tmp_path / "m.gguf", "-t", 0, "-e", 'root ::= "once"', "-v", *more),
        input=b"x",
    )
    assert (done.returncode, done.stdout) == (0, b"once") and b"tokens=4 " in done.stderr


def test_nothing_else_is_allowed_is_said(tmp_path):
    suppressing(tmp_path / "m.gguf", [100, 390])  # both are a
    done = run(
        *("generate", "-m", tmp_path / "m.gguf", "-t", 0, "-e", 'root ::= "a"'),
        input=b"x",
    )
    assert (done.returncode, done.stdout) == (65, b"")
    assert b"is suppressed or has a bias of -inf" in done.stderr


def test_suppressed_end_leaves_the_limits(tmp_path):
    """-n and the context still end the text, and a grammar that has nothing more to say."""
    suppressing(tmp_path / "m.gguf", [2] * 1000, n_ctx=60)
    for options, reason in (
        (["-n", 5], b"end=length"),
        ([], b"end=full"),
        (["-e", 'root ::= "once"'], b"end=stop"),
    ):
        done = run(
            "generate", "-m", tmp_path / "m.gguf", "-t", 0, "-v", *options, input=b"x", timeout=60
        )
        assert done.returncode == 0 and reason in done.stderr, done.stderr
