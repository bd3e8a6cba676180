"""Checkpoints of llama2.c read in place (-m model.bin --vocab tokenizer.bin): every tool, the same
bits as of the GGUF made of them.
"""

import json
import os
import struct
import subprocess
import sys

import llama2c_writer as writer
import pytest
from conftest import ROOT, ids_in, run, sets_here, shell
from convert_call import convert
from hypothesis import given, settings
from hypothesis import strategies as st

from sluice import gguf
from sluice.faults import BAD_DATA, UNSUPPORTED, USAGE, Error
from sluice.gguf import llama2c_checkpoint, model_file

PROMPT = b"Once upon a time"


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Files v0, v0-untied, v1, v2, v-1 and tok, of one model each."""
    d = tmp_path_factory.mktemp("llama2c")
    (d / "tok").write_bytes(writer.tokenizer(300))
    (d / "v0-untied").write_bytes(writer.checkpoint(writer.model(tied=False), 0))
    for version in (0, 1, 2, -1):
        (d / f"v{version}").write_bytes(writer.checkpoint(writer.model(), version))
    return d


def fault_of(*args):
    with pytest.raises(Error) as e:
        model_file.open_model(*map(str, args))
    assert "\n" not in str(e.value)
    return e.value


@pytest.mark.parametrize("name,tied", [("v0", True), ("v0-untied", False), ("v1", True)])
def test_tensors_lie_where_they_are(files, name, tied):
    file = model_file.open_model(str(files / name), str(files / "tok"))
    want = writer.tensors(writer.model(tied=tied))
    assert file.tensors.keys() == want.keys()
    for key, x in want.items():
        t = file.tensors[key]
        assert t.shape == x.shape[::-1] and file.read(t, 0, t.n_bytes) == x.tobytes(), key
    assert (
        file.metadata["llama.attention.head_count_kv"] == 2
        and file.metadata["llama.context_length"] == 24
    )


def test_llama2c_has_the_bits_of_the_gguf_on_all_instruction_sets(files, tmp_path):
    """f32 that are aligned to four bytes alone."""
    names = ("v0", "v0-untied", "v1")
    for name in names:
        convert(files / name, tmp_path / name, "--vocab", files / "tok")
    code = """import sys, tempfile
from sluice.kernels import ffi
from sluice.model.model import Model
from sluice.kvcache.snapshot import Snapshot
for path in sys.argv[2:]:
    m = Model(path, 1, vocab=None if path.startswith(sys.argv[1]) else path.rpartition("/")[0] + "/tok")
    cache = Snapshot.create(m.geometry("f16"), 24, m.file.id, m.arithmetic, tempfile.gettempdir())
    m.prefill(cache, [1, 270, 5, 280, 261, 9, 9, 11, 299])
    print(bytes(ffi.buffer(cache.logits, 4 * m.hparams.n_vocab)).hex())"""
    paths = [str(d / name) for d in (files, tmp_path) for name in names]
    for isa in sets_here():
        done = subprocess.run(
            [sys.executable, "-c", code, tmp_path, *paths],
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": ":".join(sys.path), "SLUICE_ISA": isa},
        )
        rows = done.stdout.split()
        assert done.returncode == 0 and len(rows) == 6 and rows[:3] == rows[3:], (isa, done.stderr)


RING = """set -e; rm -f ring; mkfifo ring
tokenize -m $M $V </dev/null | prefill -m $M $V -c 300 -o p.snap
decode -m $M $V p.snap <ring | sample -t 0 -n $N | tee ring ids | tokenize -m $M $V -d"""


@pytest.mark.full
@pytest.mark.parametrize(
    "name,vocab", [("stories260K", "tok512"), ("aidreams260K", "aidreams260K.tok512")]
)
def test_published_checkpoints_write_their_greedy_text(datafile, tmp_path, name, vocab):
    """The ring over the checkpoint as it is, and over the GGUF made of it: the tokens and the text on
    record.
    """
    d = f"models/{name}"
    tokens = list(map(int, datafile(f"{d}.greedy.ids").read_text().split()))
    text = datafile(f"{d}.greedy.txt").read_bytes().rstrip(b"\n")
    convert(datafile(f"{d}.bin"), tmp_path / "m.gguf", "--vocab", datafile(f"models/{vocab}.bin"))
    for model, words in (
        (datafile(f"{d}.bin"), f"--vocab {datafile(f'models/{vocab}.bin')}"),
        ("m.gguf", ""),
    ):
        done = shell(RING, tmp_path, M=str(model), V=words, N=str(len(tokens)))
        assert (done.returncode, done.stderr) == (0, b"")
        assert ids_in((tmp_path / "ids").read_bytes()) == tokens and done.stdout == text


@pytest.mark.full
def test_generate_chat_and_bench_take_a_vocabulary(datafile, tmp_path):
    """The text of the checkpoint is that of the GGUF made of it, in each command; a plain --vocab
    mistake is 64.
    """
    model, words = datafile("models/aidreams260K.bin"), datafile("models/aidreams260K.tok512.bin")
    convert(model, tmp_path / "m.gguf", "--vocab", words)
    for argv, said in (
        (("generate", "-t", 0, "-n", 20, "Once upon"), b""),
        (("chat", "--template", "plain", "-t", 0, "-n", 12), b"Once\nmore\n"),
    ):
        ours, theirs = (
            run(argv[0], *files_, *argv[1:], input=said)
            for files_ in (("-m", model, "--vocab", words), ("-m", tmp_path / "m.gguf"))
        )
        assert (ours.returncode, ours.stdout) == (0, theirs.stdout) and len(ours.stdout) > 20
    text = datafile("models/aidreams260K.greedy.txt").read_bytes()
    assert text.startswith(
        run(
            "generate", "-m", model, "--vocab", words, "-t", 0, "-n", 30, "--echo", "", input=b""
        ).stdout[:60]
    )
    done = run(
        "sluice-bench",
        "-m",
        model,
        "--vocab",
        words,
        "-p",
        4,
        "-n",
        2,
        "-r",
        1,
        "--start",
        3,
        "-o",
        "json",
    )
    assert done.returncode == 0 and [row["test"] for row in json.loads(done.stdout)] == [
        "pp4",
        "tg2",
        "start3",
    ]
    assert run("sluice-bench", "--vocab", words, "--shape", "tiny").returncode == 64
    assert (
        run("generate", "-m", model, "x").returncode == 64
        and run("generate", "-m", tmp_path / "m.gguf", "--vocab", words, "x").returncode == 64
    )
    assert run("generate", "-m", model, "--vocab", words, "-o", words, "x").returncode == 64


def test_classify_and_grammar_filter_take_a_vocabulary(files, tmp_path):
    question = tmp_path / "q.yaml"
    question.write_text(
        "input: {kind: text, head_ids: 8, tail_ids: 4}\nframe: plain\nprompt:\n  -"
        ' input\nanswers:\n  a: [" t1"]\n  b: [" t2"]\nthresholds: {a: 0.0, b: 0.0}\n'
    )
    files_ = ("-m", files / "v1", "--vocab", files / "tok")
    done = run("classify", *files_, "-q", question, "--json", input=PROMPT)
    assert done.returncode in (0, 1), done.stderr
    assert (
        json.loads(done.stdout)["model"]
        == model_file.open_model(str(files / "v1"), str(files / "tok")).id[:8].hex()
    )
    done = shell(
        """set -e; tokenize -m $M $V </dev/null | prefill -m $M $V -o p.snap
        tokenize -m $M $V --no-bos </dev/null | decode -m $M $V p.snap | grammar-filter -m $M $V -e 'root ::= [ t0-9]*' | sample -t 0 -n 1 >ids""",
        tmp_path,
        M=str(files / "v1"),
        V=f"--vocab {files / 'tok'}",
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert len(ids_in((tmp_path / "ids").read_bytes())) == 1


def test_id_is_that_of_both_files(files, tmp_path):
    other = bytearray((files / "tok").read_bytes())
    other[-1] ^= 1
    (tmp_path / "tok").write_bytes(other)
    tokens = {
        model_file.open_model(str(files / name), str(tok)).id
        for name in ("v0", "v1", "v0-untied")
        for tok in (files / "tok", tmp_path / "tok")
    }
    assert len(tokens) == 6
    done = run("tokenize", "-m", files / "v0", "--vocab", tmp_path / "tok", input=PROMPT)
    done = run(
        "prefill",
        "-m",
        files / "v0",
        "--vocab",
        files / "tok",
        "-o",
        tmp_path / "p",
        input=done.stdout,
    )
    assert done.returncode == 65 and not (tmp_path / "p").exists()


def test_start_loads_no_numpy(files):
    code = (
        "import sys; from sluice.gguf import model_file; model_file.open_model(*sys.argv[1:]).id;"
        " sys.exit('numpy' in sys.modules or 'json' in sys.modules)"
    )
    assert (
        subprocess.run(
            [sys.executable, "-c", code, files / "v0", files / "tok"],
            env={"PYTHONPATH": str(ROOT / "lib")},
        ).returncode
        == 0
    )


# What is wrong with a file --------------------------------------------------------


def test_versions_that_do_not_lie_as_kernels_want_them_name_the_command(files):
    e = fault_of(files / "v2", files / "tok")
    assert e.code == UNSUPPORTED and "gguf-convert" in str(e)
    e = fault_of(files / "v-1", files / "tok")
    assert e.code == BAD_DATA and "gguf-convert --from -1" in str(e)


def test_llama2c_vocab_option_is_missing_or_superfluous(files, tmp_path, datafile):
    assert fault_of(files / "v0").code == USAGE
    e = fault_of(datafile("models/stories260K.gguf"), files / "tok")
    assert e.code == USAGE and "leave out --vocab" in str(e)


@pytest.mark.parametrize("field", range(7))
@pytest.mark.parametrize("value", [0, -1, -(2**31), 2**31 - 1, 7])
def test_lying_headers_are_refused(files, tmp_path, field, value):
    # no byte of version 1 depends on the context
    for name, at in (("v0", 0), ("v1", 8))[: 1 if field == 6 and value == 7 else 2]:
        data = bytearray((files / name).read_bytes())
        struct.pack_into("<i", data, at + 4 * field, value)
        (tmp_path / "m").write_bytes(data)
        assert fault_of(tmp_path / "m", files / "tok").code == BAD_DATA


@pytest.mark.parametrize("name", ["v0", "v1"])
def test_cut_and_longer_files_are_refused(files, tmp_path, name):
    data = (files / name).read_bytes()
    for n in [*range(0, 300, 7), len(data) - 1, len(data) - 4, len(data) + 4]:
        (tmp_path / "m").write_bytes(data[:n].ljust(n, b"\0"))
        assert fault_of(tmp_path / "m", files / "tok").code == BAD_DATA, n


@pytest.mark.parametrize(
    "damage,what",
    [
        (lambda d: d[:-1], "token 299: length"),
        (lambda d: d[:4], "ends after 0 tokens"),
        (lambda d: b"", "ends after 0 tokens"),
        (lambda d: d + b"x", "1 bytes follow"),
        (lambda d: d[:4] + struct.pack("<f", float("nan")) + d[8:], "score is nan"),
        (lambda d: d[:8] + struct.pack("<i", -5) + d[12:], "token 0: length -5"),
        (lambda d: d[:8] + struct.pack("<i", 2**31 - 1) + d[12:], "token 0: length"),
    ],
)
def test_damaged_vocabularies_are_refused(files, tmp_path, damage, what):
    (tmp_path / "tok").write_bytes(damage((files / "tok").read_bytes()))
    e = fault_of(files / "v0", tmp_path / "tok")
    assert e.code == BAD_DATA and what in str(e) and str(e).startswith(str(tmp_path / "tok"))


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_any_damage_is_a_fault_or_a_model(tmp_path_factory, data):
    d = tmp_path_factory.getbasetemp() / "fuzz"
    d.mkdir(exist_ok=True)
    model, tok = (
        bytearray(
            writer.checkpoint(
                writer.model(32, 32, 1, 2, 1, 262, 4), data.draw(st.sampled_from([0, 1, 2, -1]))
            )
        ),
        bytearray(writer.tokenizer(262)),
    )
    for target, limit in ((model, 300), (tok, len(tok))):
        for _ in range(data.draw(st.integers(0, 3))):
            target[data.draw(st.integers(0, min(limit, len(target)) - 1))] = data.draw(
                st.integers(0, 255)
            )
    (d / "m").write_bytes(model), (d / "t").write_bytes(tok)
    try:
        file = model_file.open_model(str(d / "m"), str(d / "t"))
    except Error as e:
        assert e.code in (BAD_DATA, UNSUPPORTED, USAGE)
    else:
        assert isinstance(file, llama2c_checkpoint.Checkpoint) and all(
            file.read(t, 0, t.n_bytes) for t in file.tensors.values()
        )
        assert gguf.type_name(0) == "F32" and file.id
