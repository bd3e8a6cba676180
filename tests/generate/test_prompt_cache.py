"""generate and chat --cache: a prompt that shares its begin with an earlier one is not processed
again, and no byte of the text or the snapshot depends on it.
"""

import json
import os
import re
import stat

import pytest
from chat_model import write_chat_model
from conftest import ROOT, shell
from forked import run
from tiny_model import WITH_STATES, write_model

CHATML = (ROOT / "configs" / "chatml.jinja").read_text()
SYSTEM = "You are one who answers in words that are short, and never in long ones. " * 3
LONG = b"Once upon a time there was a crab that lived under a stone in the sea, in a house. " * 2
CHATS = ["chat.gguf", *(f"chat-{arch}.gguf" for arch in WITH_STATES)]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    d = tmp_path_factory.mktemp("models")
    write_model(str(d / "llama.gguf"), type="q8_0", n_layer=2, n_vocab=420, n_ctx=700)
    write_chat_model(d / "chat.gguf", ["<|im_start|>", "<|im_end|>"], CHATML, n_ctx=1200)
    for arch in WITH_STATES:
        config = {"arch": arch, "n_layer": 4, "n_vocab": 420}
        write_model(str(d / f"{arch}.gguf"), n_ctx=700, **config)
        write_chat_model(
            d / f"chat-{arch}.gguf", ["<|im_start|>", "<|im_end|>"], CHATML, n_ctx=1200, **config
        )
    return d


def generate(model, *options, input=b"", status=0):
    """(text, tokens reused) of generate -v."""
    done = run("generate", "-m", model, "-S", 7, "-n", 9, "-v", *options, input=input)
    assert done.returncode == status, done.stderr
    return done.stdout, int(re.search(rb"reused=(\d+)|$", done.stderr)[1] or 0)


def kept(directory):
    return sorted(p for p in directory.iterdir() if p.suffix == ".kv")


@pytest.mark.parametrize("arch", ["llama", *WITH_STATES])
def test_no_byte_depends_on_what_is_stored(tiny, tmp_path, arch):
    """Prompts that are stored, the same, go on, or part from what is stored, in each KV type. States
    are a prefix at their own length alone.
    """
    model, out = tiny / f"{arch}.gguf", tmp_path / "o.snap"
    for kv in ("f16", "f32"):
        for prompt in (LONG, LONG, LONG[:-9], LONG + LONG[:60], LONG[:100] + b"else", b"short"):
            plain = generate(model, "--kv", kv, "-o", out, input=prompt)
            snapshot = out.read_bytes()
            text, n = generate(
                model, "--kv", kv, "-o", out, "--cache", tmp_path / "c", input=prompt
            )
            assert text == plain[0] and out.read_bytes() == snapshot
            assert generate(model, "--kv", kv, "--cache", tmp_path / "c", input=prompt)[0] == text
            assert n or prompt in (LONG, b"short") or arch != "llama"
    if arch == "llama":
        assert len(kept(tmp_path / "c")) == 4  # of each type LONG, and what goes on from it


@pytest.mark.parametrize("name", CHATS)
def test_a_system_prompt_is_processed_once(tiny, tmp_path, name):
    """With a template, all before the last message is stored: another question starts there."""
    options = ["--cache", tmp_path / "c", "--system", SYSTEM]
    model = tiny / name
    first, n = generate(model, *options, "Who are you?")
    assert n == 0 and len(kept(tmp_path / "c")) == 1
    for question in ("Who are you?", "And what is this?"):
        text, n = generate(model, *options, question)
        assert n > 100 and text == generate(model, "--system", SYSTEM, question)[0]
    assert len(kept(tmp_path / "c")) == 1


@pytest.mark.parametrize("name", CHATS)
def test_chat_starts_from_the_stored_prompt(tiny, tmp_path, name):
    options = ["-m", tiny / name, "-S", 3, "-n", 9, "-v", "--system", SYSTEM]
    lines = b"Who are you?\nAnd now?\n"
    plain = run("chat", *options, input=lines)
    assert plain.returncode == 0
    for n_new in ("all", "few"):
        done = run("chat", *options, "--cache", tmp_path / "c", input=lines)
        assert (done.returncode, done.stdout) == (0, plain.stdout)
        new, all_of_it = map(int, re.search(rb"prompt: (\d+) of (\d+)", done.stderr).groups())
        assert new < 30 or n_new == "all"
    # generate stores the same begin under the same name
    names = kept(tmp_path / "c")
    generate(tiny / name, "--cache", tmp_path / "c", "--system", SYSTEM, "Hm?")
    assert kept(tmp_path / "c") == names


def test_the_stored_file_is_that_of_prefill(tiny, tmp_path):
    model = tiny / "llama.gguf"
    generate(model, "--cache", tmp_path / "c", input=LONG)
    (mine,) = kept(tmp_path / "c")
    tokens = run("tokenize", "-m", model, input=LONG).stdout
    done = run("prefill", "-m", model, "-c", 700, "-o", tmp_path / "p.snap", input=tokens)
    assert done.returncode == 0 and (tmp_path / "p.snap").read_bytes() == mine.read_bytes()
    done = run("prefill", "-m", model, "-c", 700, "--cache", tmp_path / "c", input=tokens)
    assert done.stdout.decode() == f"{mine}\n"
    assert stat.S_IMODE(mine.stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "c").stat().st_mode) == 0o700


@pytest.mark.parametrize("at", [5000, 7000, 100])
def test_a_damaged_file_is_reported_and_not_used(tiny, tmp_path, at):
    model = tiny / "llama.gguf"
    text, _ = generate(model, "--cache", tmp_path / "c", input=LONG)
    (path,) = kept(tmp_path / "c")
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)
    os.chmod(path, 0o600)
    done = run("generate", "-m", model, "-S", 7, "-n", 9, "--cache", tmp_path / "c", input=LONG)
    assert (done.returncode, done.stdout) == (0, text)
    assert (path.name.encode() in done.stderr) == (b"removed" in done.stderr)
    assert generate(model, "--cache", tmp_path / "c", input=LONG)[1] > 90  # stored anew


def test_the_context_ends_where_it_ends_without_a_cache(tiny, tmp_path):
    for _ in range(2):
        for options in (["-c", 120], ["-c", 900], []):
            ends = []
            for cache in ([], ["--cache", tmp_path / "c"]):
                done = run(
                    *("generate", "-m", tiny / "llama.gguf", "-S", 7, "-v", "--bias", "2=-inf"),
                    *(*options, *cache),
                    input=LONG[:80],
                )
                ends.append((done.stdout, re.search(rb"tokens=\d+ end=\w+", done.stderr)[0]))
            assert ends[0] == ends[1] and b"end=full" in ends[0][1]


def test_a_directory_that_others_can_write_is_refused(tiny, tmp_path):
    (tmp_path / "c").mkdir()
    os.chmod(tmp_path / "c", 0o777)
    for command in ("generate", "chat"):
        done = run(
            command, "-m", tiny / "chat.gguf", "-n", 1, "--cache", tmp_path / "c", input=b"x"
        )
        assert done.returncode == 73 and b"not used as a cache" in done.stderr


def test_what_cannot_be_written_costs_the_cache_not_the_answer(tiny, tmp_path):
    """A limit of the size of files, as a full disk. (The modules that Python compiles are smaller.)"""
    text, _ = generate(tiny / "llama.gguf", input=LONG)
    (tmp_path / "prompt").write_bytes(LONG)
    done = shell(
        f"ulimit -f 800; generate -m {tiny / 'llama.gguf'} -c 9000 -S 7 -n 9 --cache c <prompt",
        tmp_path,
    )
    assert (done.returncode, done.stdout) == (0, text)
    assert done.stderr.count(b"\n") == 1 and b"; the prompt is not stored" in done.stderr
    assert not kept(tmp_path / "c")


def test_a_snapshot_goes_on_with_a_cache(tiny, tmp_path):
    """-s and --cache: the longer of both is used."""
    model, snap = tiny / "llama.gguf", tmp_path / "p.snap"
    generate(model, "-o", snap, input=LONG)
    plain, _ = generate(model, "-s", snap, "-", input=LONG)
    for n in range(2):
        options = ["-s", snap, "--cache", tmp_path / "c"]
        text, reused = generate(model, *options, "-", input=LONG)
        assert text == plain and reused > 90 + 40 * n
        assert generate(model, *options, "--", "")[0] == generate(model, "-s", snap, "--", "")[0]


def test_the_newest_prompt_stays_whatever_the_limit(tiny, tmp_path):
    text, _ = generate(tiny / "llama.gguf", input=LONG)
    (tmp_path / "c").mkdir(mode=0o700)
    done = run(
        *("generate", "-m", tiny / "llama.gguf", "-S", 7, "-n", 9, "--cache", tmp_path / "c"),
        *("--cache-bytes", 0),
        input=LONG,
    )
    assert (done.returncode, done.stdout) == (0, text)
    assert len(kept(tmp_path / "c")) == 1  # the newest always stays


def test_renderings_have_no_text_of_a_message_and_are_whole_or_none(tiny, tmp_path):
    options = ["--cache", tmp_path / "c", "--system", SYSTEM, "Tell a Zwetschgenkuchen"]
    text, _ = generate(tiny / "chat.gguf", *options)
    (path,) = (tmp_path / "c").glob("*.rendering")
    data = path.read_bytes()
    assert b"Zwetschgen" not in data and b"short" not in data and b"im_start" in data
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    for bad in (data[:-3], data.replace(b"im_start", b"im_stort"), b"", b"\n"):
        path.write_bytes(bad)
        assert generate(tiny / "chat.gguf", *options)[0] == text
        assert json.loads(path.read_bytes().partition(b"\n")[2])  # made anew


def test_a_template_that_prints_the_time_is_rendered_each_time(tiny, tmp_path):
    (tmp_path / "t.jinja").write_text("{{ strftime_now('%d %b %Y') }}" + CHATML)
    options = ["--cache", tmp_path / "c", "--template", tmp_path / "t.jinja", "--system", SYSTEM]
    generate(tiny / "chat.gguf", *options, "x")
    assert not list((tmp_path / "c").glob("*.rendering"))
