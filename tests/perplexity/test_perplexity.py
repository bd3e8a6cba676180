"""perplexity: the bits that decode's logits give, llama.cpp's numbers, and kept logits that are
checked.
"""

import fcntl
import json
import math
import os
import resource
import struct
import termios
from array import array

import forked
import golden_perplexity
import llama2c_writer
import numpy as np
import pytest
from bpe_model import CONTROL, bpe_metadata
from conftest import run, sets_here
from convert_call import convert
from gguf_writer import write_gguf
from hypothesis import given
from hypothesis import strategies as st
from test_score import score
from tiny_model import complete, metadata, shapes, weights, write_model

from sluice import gguf, stream
from sluice.faults import Error
from sluice.kernels import lib
from sluice.model.model import Model
from sluice.perplexity import evaluate, kept_logits
from sluice.tokenizer import vocabulary as vocab

TEXT = b"The quick brown fox jumps over the lazy dog, and then it rests. " * 9


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    d = tmp_path_factory.mktemp("perplexity")
    write_model(str(d / "m.gguf"), n_layer=2)
    write_model(str(d / "q.gguf"), n_layer=2, type="q4_0")
    write_model(str(d / "other.gguf"), n_layer=2, n_vocab=700)
    (d / "text").write_bytes(TEXT)
    done = run("perplexity", "-m", "m.gguf", "-c", 32, "--save-logits", "m.base", "text", cwd=d)
    assert (done.returncode, done.stderr) == (0, b"")
    return d


def scores(path, windows, **how):
    return [s for window in evaluate.scores(Model(str(path), 1), windows, **how) for s in window]


def ids_of(path):
    return array("i", vocab.Vocab(gguf.File(str(path))).encode(TEXT, eos=False))


# Against what is known otherwise ---------------------------------------------------------


@pytest.mark.quick_cases(1)
def test_perplexity_has_the_bits_of_decode(files, tmp_path):
    """Ids go into decode one by one; its records of logits are the truth."""
    m = gguf.File(str(files / "m.gguf"))
    tokens, n_ctx = ids_of(files / "m.gguf"), 24
    windows = evaluate.Windows(tokens, n_ctx, None, 1)
    ours, expected, total = scores(files / "m.gguf", windows), [], evaluate.Sums()
    for i in range(3):
        read, counted = windows.window(i)
        head = stream.tokens_header(m.id, windows_vocab := 768)
        first = n_ctx - len(counted)
        as_ids = lambda part: head + b"".join(b"%d\n" % i for i in part) + stream.tokens_end("text")
        assert (
            run(
                "prefill",
                "-m",
                files / "m.gguf",
                "-o",
                tmp_path / "p.snap",
                input=as_ids(read[:first]),
            ).returncode
            == 0
        )
        done = run(
            "decode",
            "-m",
            files / "m.gguf",
            tmp_path / "p.snap",
            input=as_ids(read[first:-1]) if first < n_ctx - 1 else b"",
        )
        assert done.returncode == 0, done.stderr
        (tmp_path / "logits").write_bytes(done.stdout)
        with open(tmp_path / "logits", "rb") as f:
            rows = [
                np.frombuffer(r.payload, "<f4")
                for r in stream.LogitsReader(f.fileno())
                if r.kind == b"L"
            ]
        rows = np.stack(rows)
        # none is asked for after the last id before #end
        assert rows.shape == (len(counted) - 1, windows_vocab)
        expected += [(s.log_p, s.top) for s in score(rows, list(counted[:-1]))] + [None]
    assert len(expected) == 3 * windows.n_count == 33
    assert [e for e in expected if e] == [(s.log_p, s.top) for s, e in zip(ours, expected) if e]
    for s in ours:
        total.add(s.log_p)
    done = run("perplexity", "-m", files / "m.gguf", "-c", n_ctx, "--json", files / "text")
    found = json.loads(done.stdout)
    assert (found["perplexity"], found["perplexity-error"], found["ids"]) == (
        total.perplexity,
        total.error,
        total.n,
    )


@pytest.mark.parametrize("case", range(len(golden_perplexity.CASES)))
def test_numbers_are_those_of_llama_cpp(datafile, case):
    golden = json.loads(golden_perplexity.OUT.read_text())[case]
    model = datafile("models/" + golden["model"])
    done = run(
        "perplexity",
        "-m",
        model,
        "-c",
        golden["n_ctx"],
        "--kv",
        "f32",
        "--json",
        golden_perplexity.find(model.parent, golden["text"]),
    )
    found = json.loads(done.stdout)
    assert found["ids"] == golden["ids"]
    # f32 sums in another order: measured 6e-8
    for ours, theirs in (("perplexity", "perplexity"), ("perplexity-error", "error")):
        assert math.isclose(found[ours], golden[theirs], rel_tol=3e-6)


def test_numbers_do_not_depend_on_set_threads_or_pieces(files, monkeypatch):
    windows = evaluate.Windows(ids_of(files / "m.gguf"), 40)
    expected = [(s.log_p, s.top) for s in scores(files / "m.gguf", windows)]
    for most in (1, 768 * 3, 768 * 7 + 5):
        monkeypatch.setattr(evaluate, "MAX_LOGITS", most)
        assert [(s.log_p, s.top) for s in scores(files / "m.gguf", windows)] == expected
    told = {
        run(
            "perplexity",
            "-m",
            files / "m.gguf",
            "-c",
            40,
            "-j",
            j,
            "--json",
            files / "text",
            env={**os.environ, "SLUICE_ISA": name},
        ).stdout
        for j, name in [(1, "reference"), (3, ""), *((2, name) for name in sets_here()[-1:])]
    }
    assert len(told) == 1 and json.loads(told.pop())["ids"] == len(expected)


# Windows ------------------------------------------------------------------------------------


@given(st.integers(0, 300), st.integers(4, 40), st.integers(0, 39), st.integers(1, 9))
def test_windows_count_ids_once_and_in_order(n, n_ctx, stride, most):
    tokens = array("i", range(1000, 1000 + n))
    stride = stride if 0 < stride < n_ctx else None
    w = evaluate.Windows(tokens, n_ctx, stride, 7)
    counted = []
    for i in range(w.n_window):
        read, count = w.window(i)
        at = i * (stride or n_ctx)
        assert (
            len(read) == n_ctx and read[0] == 7 and read[1:] == tokens[at + 1 : at + n_ctx].tolist()
        )
        assert (
            len(count) == (stride or n_ctx - n_ctx // 2 - 1) and list(count) == read[-len(count) :]
        )
        counted += count
    assert counted == sorted(set(counted))
    if stride and w.n_window:
        assert (
            counted == list(range(counted[0], counted[-1] + 1))
            and 1000 + n - 1 - counted[-1] < stride
        )
    else:
        assert w.n_window == n // n_ctx or stride
    assert evaluate.Windows(tokens, n_ctx, stride, 7, most).n_window == min(most, w.n_window)


def test_stdin_file_windows_and_stride(files):
    tokens = ids_of(files / "m.gguf")
    whole = run("perplexity", "-m", files / "m.gguf", "-c", 32, files / "text")
    assert run("perplexity", "-m", files / "m.gguf", "-c", 32, input=TEXT).stdout == whole.stdout
    name, value, sign, error = whole.stdout.decode().split()
    assert (name, sign) == ("perplexity", "+-") and 1 < float(value) and 0 < float(error)
    for options, n in (
        ([], len(tokens) // 32),
        (["-n", 2], 2),
        (["--stride", 8], (len(tokens) - 32) // 8 + 1),
    ):
        found = json.loads(
            run(
                "perplexity", "-m", files / "m.gguf", "-c", 32, "--json", *options, files / "text"
            ).stdout
        )
        assert (found["windows"], found["ids"]) == (n, n * (8 if "--stride" in options else 15))


# Kept logits ---------------------------------------------------------------------------------


def test_divergence_from_itself_is_rounding_and_from_another_model_is_not(files):
    same = json.loads(
        run("perplexity", "-m", files / "m.gguf", "--kl", files / "m.base", "--json").stdout
    )
    assert (
        0 <= same["kl-max"] < 1e-7
        and same["same-top"] == 1
        and math.isclose(same["perplexity"], same["base-perplexity"], rel_tol=1e-4)
    )
    assert os.stat(files / "m.base").st_mode & 0o777 == 0o600
    done = run("perplexity", "-m", files / "q.gguf", "--kl", files / "m.base")
    found = {line.split()[0]: float(line.split()[1]) for line in done.stdout.decode().splitlines()}
    assert list(found) == [
        "perplexity",
        "base-perplexity",
        "ln-ratio",
        "kl-mean",
        "kl-median",
        "kl-99%",
        "kl-99.9%",
        "kl-max",
        "same-top",
    ]
    assert (
        1e-3 < found["kl-mean"] < found["kl-99%"] <= found["kl-max"] and 0.2 < found["same-top"] < 1
    )
    alone = run("perplexity", "-m", files / "q.gguf", "-c", 32, files / "text").stdout
    assert done.stdout.startswith(alone)
    assert math.isclose(
        found["ln-ratio"], math.log(found["perplexity"] / found["base-perplexity"]), abs_tol=1e-4
    )
    few = json.loads(
        run(
            "perplexity", "-m", files / "m.gguf", "--kl", files / "m.base", "--json", "-n", 1
        ).stdout
    )
    assert (few["windows"], few["context"], few["ids"]) == (1, 32, 15)


def test_stride_is_kept(files, tmp_path):
    made = json.loads(
        run(
            "perplexity",
            "-m",
            files / "m.gguf",
            "-c",
            32,
            "--stride",
            12,
            "-n",
            3,
            "--json",
            "--save-logits",
            tmp_path / "b",
            files / "text",
        ).stdout
    )
    found = json.loads(
        run("perplexity", "-m", files / "m.gguf", "--kl", tmp_path / "b", "--json").stdout
    )
    assert made["stride"] == 12 and made["windows"] == 3 and {k: found[k] for k in made} == made


def damaged(files, tmp_path, change):
    data = bytearray((files / "m.base").read_bytes())
    path = tmp_path / "b"
    changed = change(data)
    path.write_bytes(data if changed is None else changed)
    return path


def read_all(path):
    base = kept_logits.Base(str(path))
    for _ in range(base.h.n_window):
        base.rows(base.h.n_count)


def test_kept_logits_detect_each_damaged_byte(files, tmp_path):
    data = (files / "m.base").read_bytes()
    read_all(files / "m.base")
    places = [*range(132), *range(132, len(data), 4999), len(data) - 1]
    for at in places:

        def flip(data):
            data[at] ^= 1 << at % 8

        with pytest.raises(Error) as e:
            read_all(damaged(files, tmp_path, flip))
        assert e.value.code in (65, 69), at
    for n in (0, 5, 127, 131, 132, 500, len(data) - 1):
        with pytest.raises(Error):
            read_all(damaged(files, tmp_path, lambda data: data[:n]))
    with pytest.raises(Error):
        read_all(damaged(files, tmp_path, lambda data: data + b"\0"))


def with_header(data, **fields):
    """`data` with header fields changed and the checksum right."""
    h = kept_logits.Header(*kept_logits.HEADER.unpack_from(data))._replace(**fields)
    packed = kept_logits.HEADER.pack(*h)
    data[: kept_logits.HEADER.size + 4] = packed + struct.pack(
        "<I", lib.crc32c(0, packed, len(packed))
    )


@pytest.mark.quick_cases(8)
@pytest.mark.parametrize(
    "fields",
    [
        dict(n_vocab=0),
        dict(n_vocab=1 << 31),
        dict(bos=768),
        dict(bos=-2),
        dict(n_ctx=0),
        dict(stride=0),
        dict(n_count=0),
        dict(n_count=32),
        dict(n_count=14),
        dict(n_window=0),
        dict(n_window=1 << 31),
        dict(n_tokens=(1 << 32) - 1),
        dict(n_tokens=1),
        dict(zero=1),
        dict(pad=b"x" * 20),
        dict(stride=14),
        dict(n_vocab=767),
    ],
    ids=str,
)
def test_lying_headers_are_refused(files, tmp_path, fields):
    path = damaged(files, tmp_path, lambda data: with_header(data, **fields))
    done = forked.run("perplexity", "-m", files / "m.gguf", "--kl", path)
    assert (
        done.returncode == 65
        and done.stdout == b""
        and done.stderr.count(b"\n") == 1
        and b"b: " in done.stderr
    ), done.stderr


def test_base_of_another_vocabulary_is_refused(files, tmp_path):
    for change in (dict(vocab=bytes(32)), dict(bos=3), dict(bos=-1)):
        path = damaged(files, tmp_path, lambda data: with_header(data, **change))
        done = run("perplexity", "-m", files / "m.gguf", "--kl", path)
        assert done.returncode == 65 and done.stderr.count(b"\n") == 1, done.stderr
    done = run("perplexity", "-m", files / "other.gguf", "--kl", files / "m.base")
    assert done.returncode == 65 and b"another vocabulary" in done.stderr


def test_windows_of_a_base_are_no_longer_than_any_that_can_be_made(files, tmp_path):
    """A file of 64 MB that asks for attention over 16 million positions."""
    path, n = tmp_path / "b", (1 << 22) + 1
    tokens = bytes(4 * n)
    data = bytearray((files / "m.base").read_bytes()[:132])
    with_header(data, n_ctx=n, n_tokens=n, stride=1, n_count=1, n_window=1)
    path.write_bytes(
        data[:128]
        + tokens
        + struct.pack("<I", lib.crc32c(0, tokens, len(tokens)))
        + bytes(lib.kept_row_bytes(768))
    )
    with pytest.raises(Error, match="header: its windows") as e:
        kept_logits.Base(str(path))
    assert e.value.code == 65


# Other models and vocabularies ------------------------------------------------------------------


def test_checkpoints_of_llama2c_give_the_lines_of_their_gguf(tmp_path):
    (tmp_path / "m.bin").write_bytes(llama2c_writer.checkpoint(llama2c_writer.model(), 0))
    (tmp_path / "tok").write_bytes(llama2c_writer.tokenizer(300))
    convert(tmp_path / "m.bin", tmp_path / "m.gguf", "--vocab", tmp_path / "tok")
    made = {}
    for name, words in (("m.gguf", ()), ("m.bin", ("--vocab", "tok"))):
        done = run(
            "perplexity",
            "-m",
            name,
            *words,
            "-c",
            8,
            "--save-logits",
            f"{name}.base",
            input=TEXT,
            cwd=tmp_path,
        )
        assert (done.returncode, done.stderr) == (0, b"")
        made[name] = done.stdout, (tmp_path / f"{name}.base").read_bytes()[72:104]
    assert made["m.gguf"] == made["m.bin"]
    done = run("perplexity", "-m", "m.bin", "--vocab", "tok", "--kl", "m.gguf.base", cwd=tmp_path)
    assert done.returncode == 0 and done.stdout.startswith(made["m.bin"][0])
    done = run("perplexity", "-m", "m.bin", "--kl", "m.gguf.base", cwd=tmp_path)
    assert done.returncode == 64 and b"--vocab" in done.stderr


def test_byte_pair_vocabularies_with_and_without_begin_id(tmp_path):
    small = complete(dict(n_layer=1, n_embd=64, n_ff=64, n_head=2, n_head_kv=1))
    for bos in (False, True):
        words = bpe_metadata(
            [(b"t", b"h"), (b"th", b"e"), (b"i", b"n")],
            added=[("<|end|>", CONTROL)],
            bos_token_id=("u32", 0),
            add_bos_token=("bool", bos),
        )
        n_vocab = len(words["tokenizer.ggml.tokens"][1])
        keys = {k: v for k, v in metadata(small).items() if not k.startswith("tokenizer.")} | {
            "llama.vocab_size": ("u32", n_vocab)
        }
        c = {**small, "n_vocab": n_vocab}
        write_gguf(
            tmp_path / "m.gguf",
            {**keys, **words},
            [
                (name, 0, shape, weights(c, name, shape).tobytes())
                for name, shape in shapes(c).items()
            ],
        )
        file = gguf.File(str(tmp_path / "m.gguf"))
        tokens = array("i", vocab.Vocab(file).encode(TEXT, eos=False))
        assert (tokens[0] == 0) == bos
        cut = evaluate.Windows(tokens, 16, None, 0 if bos else None)
        total = evaluate.Sums()
        for s in scores(tmp_path / "m.gguf", cut):
            total.add(s.log_p)
        found = json.loads(
            run("perplexity", "-m", tmp_path / "m.gguf", "-c", 16, "--json", input=TEXT).stdout
        )
        assert (found["perplexity"], found["ids"]) == (total.perplexity, len(tokens) // 16 * 7)
        assert run("perplexity", "-m", tmp_path / "m.gguf", "-c", 16).returncode == 65


def test_windows_stay_within_the_models_context(files, tmp_path):
    """Beyond it the model was never trained, and its numbers are no perplexity: 64 with the limit;
    a base with longer windows is 65.
    """
    limit = gguf.File(str(files / "m.gguf")).get("llama.context_length", "u32")
    text = TEXT * (8 * limit // len(TEXT) + 1)
    assert (
        run("perplexity", "-m", files / "m.gguf", "-c", limit, "-n", 1, input=text).returncode == 0
    )
    done = run("perplexity", "-m", files / "m.gguf", "-c", limit + 1, input=text)
    assert (
        done.returncode == 64
        and f"-c/--ctx-size: {limit + 1} is more than {limit}, the model's context".encode()
        in done.stderr
        and done.stdout == b""
    )
    data = (files / "m.gguf").read_bytes()
    key = b"llama.context_length" + struct.pack("<I", 4)
    assert key + struct.pack("<I", limit) in data
    (tmp_path / "short.gguf").write_bytes(
        data.replace(key + struct.pack("<I", limit), key + struct.pack("<I", 31))
    )
    done = run("perplexity", "-m", tmp_path / "short.gguf", "--kl", files / "m.base")
    assert done.returncode == 65 and b"its windows are of 32 tokens" in done.stderr


def test_minus_one_window_is_no_limit(files):
    found = {
        run("perplexity", "-m", files / "m.gguf", "-c", 16, *n, input=TEXT).stdout
        for n in ((), ("-n", -1))
    }
    assert len(found) == 1 and found.pop().startswith(b"perplexity ")


def test_numbers_beyond_f64_are_no_json_numbers():
    total = evaluate.Sums()
    total.add(-1e30)
    line = evaluate.as_json(
        [("perplexity", total.perplexity, total.error)],
        1,
        evaluate.Windows(array("i", range(8)), 8),
    )
    found = json.loads(line, parse_constant=pytest.fail)
    assert (
        found["perplexity"] is None
        and evaluate.lines([("perplexity", total.perplexity, 0.0)]) == "perplexity inf +- 0.00000\n"
    )


# The command ----------------------------------------------------------------------------------


@pytest.mark.quick_cases(7)
@pytest.mark.parametrize(
    "argv, code, what",
    [
        (["-c", 32, "--kl", "m.base"], 64, "--kl: not with"),
        (["text", "--kl", "m.base"], 64, "--kl: not with"),
        (["--kl", "none"], 66, "none"),
        (["--kl", "text"], 65, "KLBASE"),
        (["--kl", "."], 65, "regular"),
        (["-c", 3, "text"], 64, "ctx-size"),
        (["-n", -2, "text"], 64, "-n"),
        (["-c", 32, "--stride", 32, "text"], 64, "--stride"),
        (["none"], 66, "none"),
        (["empty"], 65, "1 tokens, less than a window of 512"),
        (["-c", 500, "text"], 65, "less than a window of 500"),
        (["-c", 32, "text", "--save-logits", "no/where"], 73, "no/where"),
        (["-c", 32, "text", "--save-logits", "."], 73, "directory"),
        (["-c", 32, "long"], 65, "more than 16 MiB"),
        (["."], 74, "directory"),
    ],
)
def test_bad_lines_are_refused(files, argv, code, what):
    (files / "empty").write_bytes(b"")
    with open(files / "long", "wb") as f:
        f.truncate((16 << 20) + 1)
    before = sorted(os.listdir(files))
    done = forked.run("perplexity", "-m", "m.gguf", *argv, cwd=files)
    assert (
        done.returncode == code
        and what in done.stderr.decode()
        and done.stderr.count(b"\n") == 1
        and done.stdout == b""
    ), done
    assert sorted(os.listdir(files)) == before


def test_logits_that_are_not_finite_are_refused_and_nothing_is_written(files, tmp_path):
    path = tmp_path / "m.gguf"
    path.write_bytes((files / "m.gguf").read_bytes())
    t = gguf.File(str(path)).tensors["output_norm.weight"]
    with open(path, "r+b") as f:
        f.seek(t.offset + 40)
        f.write(struct.pack("<f", math.nan))
    done = run(
        "perplexity", "-m", "m.gguf", "-c", 32, "--save-logits", "b", files / "text", cwd=tmp_path
    )
    assert (
        done.returncode == 65
        and b"not finite" in done.stderr
        and done.stdout == b""
        and os.listdir(tmp_path) == ["m.gguf"]
    )


@pytest.mark.full
def test_logits_do_not_replace_what_is_read(files, tmp_path):
    (tmp_path / "m.bin").write_bytes(llama2c_writer.checkpoint(llama2c_writer.model(), 0))
    (tmp_path / "tok").write_bytes(llama2c_writer.tokenizer(300))
    (tmp_path / "text").write_bytes(TEXT)
    os.link(tmp_path / "m.bin", tmp_path / "link")
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    for name in before:
        for stdin, argv in ((None, ["text"]), (open(tmp_path / "text", "rb"), [])):
            done = run(
                "perplexity",
                "-m",
                "m.bin",
                "--vocab",
                "tok",
                "-c",
                8,
                "--save-logits",
                f"./{name}",
                *argv,
                cwd=tmp_path,
                **{"stdin": stdin} if stdin else {},
            )
            assert (
                done.returncode == 64
                and b"the output is also the input" in done.stderr
                and done.stdout == b""
            )
            if stdin:
                stdin.close()
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before


def test_full_disk_and_closed_output(files, tmp_path):
    limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
    done = run(
        "perplexity",
        "-m",
        files / "m.gguf",
        "-c",
        32,
        "--save-logits",
        tmp_path / "b",
        files / "text",
        preexec_fn=limit,
    )
    assert (
        done.returncode == 74
        and b"cannot write" in done.stderr
        and done.stdout == b""
        and os.listdir(tmp_path) == []
    )
    with open("/dev/full", "wb") as full:
        assert (
            run(
                "perplexity", "-m", files / "m.gguf", "-c", 32, files / "text", stdout=full
            ).returncode
            == 74
        )


def test_progress_and_estimate_are_shown(files):
    master, slave = os.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 100, 0, 0))
    done = run("perplexity", "-m", files / "m.gguf", "-c", 32, files / "text", stderr=slave)
    os.close(slave)
    shown = os.read(master, 1 << 16).decode()
    os.close(master)
    value = done.stdout.decode().split()[1]
    assert (
        done.returncode == 0
        and done.stdout.count(b"\n") == 1
        and "100%" in shown
        and f"perplexity {value}" in shown
    )
    told = run("perplexity", "-v", "-m", files / "m.gguf", "-c", 32, files / "text")
    lines = told.stderr.decode().splitlines()
    assert (
        told.stdout == done.stdout
        and lines[-2].endswith(f"perplexity={value}")
        and " tokens_s=" in lines[-1]
    )
    assert run("perplexity", "-m", files / "m.gguf", "-c", 32, files / "text").stderr == b""
