"""Names of files that are not UTF-8: every command takes them, and prints them as they are, byte
for byte."""

import os
import shutil

import pytest
from conftest import run as start
from tiny_model import write_model

MODEL = b"m\xfe \xc3\xa9\xff.gguf"


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    """A directory with such a name, in it a model, what is none, and the tokens of a text."""
    d = os.path.join(os.fsencode(tmp_path_factory.mktemp("names")), b"d\xe9")
    os.mkdir(d)
    write_model(
        os.fsdecode(os.path.join(d, MODEL)), type="f32", n_layer=1, n_embd=64, n_ff=64, n_vocab=400
    )
    with open(os.path.join(d, b"bad\xfe"), "wb") as f:
        f.write(b"GGUF" + bytes(60))
    return d


def run(command, *argv, input=b"Once upon a time, in a file with a name", cwd=None):
    """A command, words of bytes as they are."""
    return start(
        command,
        *[os.fsdecode(a) if isinstance(a, bytes) else a for a in argv],
        input=input,
        cwd=cwd,
    )


def path(here, name):
    return os.path.join(here, name)


ARGV = {
    "tokenize": ["-m"],
    "generate": ["x", "-m"],
    "chat": ["-m"],
    "perplexity": ["-m"],
    "gguf-dump": [],
    "classify": ["-m"],
    "sluice-bench": ["-p", "1", "-n", "1", "-m"],
    "gguf-convert": ["--to", "0", "-o", "x"],
    "grammar-filter": ["-e", 'root ::= "a"', "-m"],
    "prefill": ["-o", "x", "-m"],
    "decode": ["snap", "-m"],
}


@pytest.mark.quick_cases(6)
@pytest.mark.parametrize("command", [*ARGV, "gguf-quantize"])
@pytest.mark.parametrize("name, code", [(b"bad\xfe", 69), (b"absent\xff", 66)])
def test_messages_hold_the_bytes(here, tmp_path, command, name, code):
    argv = [path(here, name), "x", "Q8_0"]
    if command != "gguf-quantize":
        argv = [*ARGV[command], path(here, name)]
    done = run(command, *argv, cwd=tmp_path)
    assert done.returncode == code, done.stderr
    assert done.stderr.startswith(command.encode() + b": " + path(here, name) + b": ")
    assert done.stderr.count(b"\n") == 1


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize(
    "argv",
    [
        ["generate", "x", "-m", MODEL, "--messages"],
        ["generate", "x", "-m", MODEL, "-g"],
        ["generate", "x", "-m", MODEL, "-s"],
        ["generate", "x", "-m", MODEL, "--template"],
        ["perplexity", "-m", MODEL, "--kl"],
        ["perplexity", "-m", MODEL],
        ["classify", "-q"],
        ["classify", "--long", "-q"],
        ["chat", "-m", MODEL, "--messages"],
    ],
)
def test_other_files_are_named_by_their_bytes_too(here, argv):
    done = run(*argv, path(here, b"gone\xfe.x"), cwd=here)
    assert done.returncode == 66 and path(here, b"gone\xfe.x") in done.stderr, done.stderr


@pytest.mark.full
def test_output_with_unusual_names_is_written_and_reported(here, tmp_path):
    d = os.fsencode(tmp_path)
    shutil.copy(os.path.join(here, MODEL), os.path.join(d, MODEL))
    m, out = os.path.join(d, MODEL), lambda name: os.path.join(d, name)
    tokens = run("tokenize", "-m", m).stdout
    assert run("prefill", "-m", m, "-o", out(b"s\xfe"), input=tokens).returncode == 0
    assert run("decode", "-m", m, out(b"s\xfe"), input=tokens).returncode == 0
    assert run("gguf-dump", out(b"s\xfe")).returncode == run("gguf-dump", m).returncode == 0
    assert run("gguf-quantize", m, out(b"q\xfe"), "Q8_0").returncode == 0 and os.path.exists(
        out(b"q\xfe")
    )
    done = run("gguf-convert", m, "--split-bytes", "150K", "-o", out(b"p\xfe.gguf"), "-v")
    first = next(name for name in sorted(os.listdir(d)) if name.startswith(b"p\xfe-00001-of-"))
    assert done.returncode == 0 and b"out=" + out(first) in done.stderr
    assert run("gguf-convert", out(first), "--merge", "-o", out(b"w\xfe"), "-v").stderr.endswith(
        b"out=" + out(b"w\xfe") + b"\n"
    )
    with open(m, "rb") as a, open(out(b"w\xfe"), "rb") as b:
        assert a.read() == b.read()
    second = first.replace(b"-00001-", b"-00002-")
    os.unlink(out(second))
    assert run("tokenize", "-m", out(first)).stderr.startswith(
        b"tokenize: " + out(second) + b": missing"
    )


@pytest.mark.full
@pytest.mark.parametrize("form", ["md", "csv"])
def test_tables_name_the_model_by_its_bytes(here, form):
    done = run("sluice-bench", "-m", path(here, MODEL), "-p", "1", "-n", "1", "-r", "1", "-o", form)
    assert done.returncode == 0 and path(here, MODEL) in done.stdout and done.stderr == b""
