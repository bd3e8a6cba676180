"""gguf-convert between GGUF and the checkpoints of llama2.c, and the vocabularies beside these: bit
for bit where types allow.
"""

import os
import pty
import random
import resource
import signal
import struct
import subprocess
import sys
import time
import tracemalloc
from types import SimpleNamespace

import convert_call
import llama2c_writer as writer
import numpy as np
import pytest
import sentencepiece
import tiny_vocab
from conftest import BIN, ROOT, opened, run
from convert_call import convert
from gguf import GGMLQuantizationType as T
from gguf.quants import dequantize, quantize
from hypothesis import given, settings
from hypothesis import strategies as st

from sluice import gguf
from sluice.convert import protobuf, types
from sluice.convert.hf import sentencepiece as spm
from sluice.convert.hf import tokenizer_json
from sluice.convert.llama2c import llama_pb, vocabulary, write
from sluice.faults import BAD_DATA, UNSUPPORTED, Error
from sluice.gguf.metadata import KIND_NAMES
from sluice.gguf.model_file import open_model
from sluice.quantize import requantize
from sluice.tokenizer.vocabulary import Vocab

VERSIONS = (0, 1, 2, -1, -2)


def refused(code, *argv, **kwargs):
    """What the command says when it ends with `code`: one line."""
    done = run("gguf-convert", *argv, **kwargs)
    err = done.stderr.decode()
    assert (
        done.returncode == code
        and err.count("\n") == 1
        and err.startswith("gguf-convert: ")
        and done.stdout == b""
    ), err
    return err


def values(path):
    """Dict: name -> (type name, f32 array) of a GGUF, read by the gguf package."""
    import gguf as package

    return {
        t.name: (t.tensor_type.name, dequantize(t.data, t.tensor_type))
        for t in package.GGUFReader(path).tensors
    }


@pytest.fixture
def files(tmp_path):
    """A directory with `tok`; files.put(version, **model) writes a checkpoint and returns (path,
    model).
    """

    class Files:
        tok = tmp_path / "tok"

        @staticmethod
        def put(version, group=32, **kwargs):
            m = writer.model(**kwargs)
            (tmp_path / f"v{version}").write_bytes(writer.checkpoint(m, version, group))
            return tmp_path / f"v{version}", m

    Files.tok.write_bytes(writer.tokenizer(300))
    return Files


# llama2.c to GGUF -----------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("tied", [True, False])
def test_llama2c_versions_give_their_weights(files, tmp_path, version, tied):
    path, m = files.put(version, tied=tied)
    options = ("--from", version) if version < 0 else ()
    found = values(convert(path, tmp_path / "m.gguf", "--vocab", files.tok, *options))
    want = writer.tensors(m)
    assert found.keys() == want.keys()
    for name, x in want.items():
        type, got = found[name]
        role = name.split(".")[-2]
        if x.ndim == 2 and version < 0 and role != "token_embd":
            assert type == "BF16" and got.tobytes() == writer.bf16(x).tobytes(), name
        elif x.ndim == 2 and version == 2:
            q, s = writer.groups(x, 32)
            assert (
                type == "Q8_0"
                and got.tobytes() == (q * s.astype("<f2").astype("<f4")[:, None]).tobytes()
            ), name
        else:
            assert type == "F32" and got.tobytes() == x.tobytes(), name


def test_published_checkpoint_has_the_tensors_of_the_published_gguf(datafile, tmp_path):
    bin, words = datafile("models/stories260K.bin"), datafile("models/tok512.bin")
    found = values(convert(bin, tmp_path / "m.gguf", "--vocab", words))
    known = values(datafile("models/stories260K.gguf"))
    head = known.pop("output.weight")  # a copy of the embedding, which ours does not repeat
    assert head[1].tobytes() == known["token_embd.weight"][1].tobytes()
    assert found.keys() == known.keys()
    assert all(
        found[n][0] == known[n][0] and found[n][1].tobytes() == known[n][1].tobytes() for n in known
    )
    ours, theirs = (
        Vocab(gguf.File(str(p))) for p in (tmp_path / "m.gguf", datafile("models/stories260K.gguf"))
    )
    for text in ("Once upon a time", "Lily's  <s> dog\n", "naïve 漢"):
        assert ours.encode(text.encode()) == theirs.encode(text.encode())


@pytest.mark.parametrize(
    "name,vocab", [("stories260K", "tok512"), ("aidreams260K", "aidreams260K.tok512")]
)
def test_published_checkpoints_come_back_bit_for_bit(datafile, tmp_path, name, vocab):
    """But for the tables that nothing reads: their last bit is that of the cosine of torch."""
    bin, words = datafile(f"models/{name}.bin"), datafile(f"models/{vocab}.bin")
    convert(bin, tmp_path / "m.gguf", "--vocab", words)
    convert(tmp_path / "m.gguf", tmp_path / "m.bin", "--to", 0, "--vocab-out", tmp_path / "tok.bin")
    assert (tmp_path / "tok.bin").read_bytes() == words.read_bytes()
    ours, theirs = (p.read_bytes() for p in (tmp_path / "m.bin", bin))
    dim, _, _, heads, _, _, ctx = struct.unpack_from("<7i", theirs)
    tables = ctx * (dim // heads) * 4
    assert ours[:-tables] == theirs[:-tables]
    assert (
        np.abs(np.frombuffer(ours[-tables:], "<f4") - np.frombuffer(theirs[-tables:], "<f4")).max()
        < 1e-7
    )


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("version", VERSIONS)
def test_checkpoint_to_gguf_and_back_is_the_same_file(files, tmp_path, version, tied):
    """Version 2 in groups of 32, whose scales are F16: what a Q8_0 can hold."""
    path, m = files.put(version, tied=tied)
    if version == 2:  # scales that F16 has
        for role, x in m.items():
            if role in ("numbers", "tied") or x.ndim == 1 or role in writer.VECTORS:
                continue
            q, s = writer.groups(x, 32)
            m[role] = (q * s.astype("<f2").astype("<f4")[:, None]).reshape(x.shape)
        path.write_bytes(writer.checkpoint(m, 2, 32))
    options = ("--from", version) if version < 0 else ()
    convert(path, tmp_path / "m.gguf", "--vocab", files.tok, *options)
    convert(
        tmp_path / "m.gguf",
        tmp_path / "again",
        "--to",
        version,
        "--vocab-out",
        tmp_path / "tok.again",
    )
    again, data = (tmp_path / "again").read_bytes(), path.read_bytes()
    if version <= 0:  # the test's writer leaves the tables of rope empty
        dim, _, _, heads, _, vocab, ctx = m["numbers"]
        end = len(data) - (0 if tied else vocab * dim * (4 if version == 0 else 2))
        at = end - 4 * ctx * (dim // heads)
        assert again[at:end] != bytes(end - at)
        again, data = again[:at] + again[end:], data[:at] + data[end:]
    assert again == data and (tmp_path / "tok.again").read_bytes() == files.tok.read_bytes()


def test_version_2_of_a_gguf_is_what_export_py_would_write(files, tmp_path):
    path, m = files.put(0)
    convert(path, tmp_path / "m.gguf", "--vocab", files.tok)
    convert(tmp_path / "m.gguf", tmp_path / "v2", "--to", 2)
    assert (tmp_path / "v2").read_bytes() == writer.checkpoint(m, 2, 32)  # 64 does not divide 96


def test_groups_that_do_not_end_with_rows_are_read(files, tmp_path):
    """dim 64, hidden 172 in groups of 64, as export.py writes stories260K: F32 of them is exact,
    and there is no Q8_0.
    """
    path, m = files.put(2, group=64, hidden=172)
    found = values(convert(path, tmp_path / "m.gguf", "--vocab", files.tok, "--type", "F32"))
    for name, x in writer.tensors(m).items():
        if x.ndim == 2:
            q, s = writer.groups(x, 64)
            assert found[name][1].tobytes() == (q * s[:, None]).tobytes()
    assert (
        values(convert(path, tmp_path / "m.gguf", "--vocab", files.tok))["blk.0.ffn_down.weight"][0]
        == "F32"
    )


# Types ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["F32", "F16", "BF16", "Q8_0"])
def test_types_round_as_the_gguf_package_does(name):
    draw = np.random.default_rng(3)
    x = (draw.standard_normal((64, 96)) * 10 ** draw.uniform(-6, 3, (64, 1))).astype("<f4")
    x[3], x[4, :32], x[5, 0] = 0, 1e-42, 2.0**-130
    assert types.encode(name, x, "F32", "x") == quantize(x, getattr(T, name)).tobytes()


@settings(max_examples=200, deadline=None)
@given(st.floats(-(2.0**127), 2.0**127, width=32))
def test_bf16_is_the_nearest(number):
    x = np.array([[number]], "<f4")
    assert (
        types.encode("BF16", x, "F32", "x")
        == (writer.bf16(x).view(np.uint32) >> 16).astype("<u2").tobytes()
    )


def test_value_that_rounds_beyond_bf16_is_refused():
    with pytest.raises(Error, match="x: row 0: a weight is too large for BF16"):
        types.encode("BF16", np.array([[3.4e38]], "<f4"), "F32", "x")


@pytest.mark.parametrize("kind", requantize.KINDS)
@pytest.mark.quick_cases(5)
def test_type_gives_what_gguf_quantize_makes_of_the_plain_file(files, tmp_path, kind):
    """Rows of 256 and of 96, of which blocks of 256 fall back; a head of its own; mixes, too."""
    path, _ = files.put(0, dim=256, hidden=96, layers=3, tied=False)
    plain = gguf.File(str(convert(path, tmp_path / "plain", "--vocab", files.tok)))
    requantize.write(tmp_path / "want", plain, kind, requantize.plan(plain, kind))
    want, found = (
        gguf.File(str(p))
        for p in (
            tmp_path / "want",
            convert(path, tmp_path / "m", "--vocab", files.tok, "--type", kind.lower(), "-j", 2),
        )
    )
    assert [(t.name, t.type, t.shape) for t in found.tensors.values()] == [
        (t.name, t.type, t.shape) for t in want.tensors.values()
    ]
    for t in found.tensors.values():
        assert found.read(t, 0, t.n_bytes) == want.read(want.tensors[t.name], 0, t.n_bytes), t.name
    assert found.metadata["general.file_type"] == want.metadata["general.file_type"]


def test_row_that_is_refused_is_counted_from_the_begin_of_its_tensor(files, tmp_path):
    path, m = files.put(0, vocab=20_000)  # more than a piece
    (tmp_path / "words").write_bytes(writer.tokenizer(20_000))
    m["token_embd"][19_000, 3] = np.nan
    path.write_bytes(writer.checkpoint(m, 0))
    said = convert_call.refused(65, path, tmp_path / "m.gguf", "--vocab", tmp_path / "words")
    assert said == f"{path}: tensor token_embd.weight: row 19000: a weight is infinite or NaN"


def test_matrix_whose_rows_are_no_blocks_gets_f16(files, tmp_path):
    path, _ = files.put(0, hidden=90)
    found = values(convert(path, tmp_path / "m.gguf", "--vocab", files.tok, "--type", "q8_0"))
    assert {n.split(".")[-2]: t for n, (t, _) in found.items()}["ffn_down"] == "F16"
    assert (
        found["token_embd.weight"][0] == found["blk.1.ffn_up.weight"][0] == "Q8_0"
        and found["output_norm.weight"][0] == "F32"
    )
    assert gguf.File(str(tmp_path / "m.gguf")).metadata["general.file_type"] == 7


@pytest.mark.parametrize(
    "version,at,what",
    [
        (0, 28 + 400, "tensor token_embd.weight"),
        (-1, -10, "tensor output.weight"),
        (1, 256, "tensor blk.0.attn_norm"),
    ],
)
def test_numbers_that_are_none_are_refused(files, tmp_path, version, at, what):
    path, m = files.put(version, tied=False)
    data = bytearray(path.read_bytes())
    at %= len(data)
    data[at : at + 4] = b"\xff\xff\xff\xff"
    path.write_bytes(data)
    assert what in convert_call.refused(
        65,
        path,
        tmp_path / "m.gguf",
        "--vocab",
        files.tok,
        *(["--from", version] if version < 0 else []),
    )


def test_number_too_large_for_f16_is_refused(files, tmp_path):
    path, m = files.put(0)
    m["token_embd"][5, 3] = 70000
    path.write_bytes(writer.checkpoint(m, 0))
    assert (
        f"{path}: tensor token_embd.weight: row 5: a weight is too large for F16"
        in convert_call.refused(
            65, path, tmp_path / "m.gguf", "--vocab", files.tok, "--type", "F16"
        )
    )


# Vocabularies ---------------------------------------------------------------------


def test_tokenizer_bin_of_llama_2_is_its_sentencepiece_model(datafile, tmp_path):
    model = spm.Model(str(datafile("tokenizers/llama2.tokenizer.model")))
    bin = datafile("tokenizers/llama2.tokenizer.bin")
    assert vocabulary.bin_bytes(model.tokens, model.scores) == bin.read_bytes()
    known = gguf.File(str(datafile("vocab/ggml-vocab-llama-spm.gguf"))).metadata
    for key, (kind, value) in model.metadata().items():
        if kind.startswith("["):
            found = known[key].values()
            assert found == (np.float32(value).tolist() if kind == "[f32]" else value), key
        elif key in known:
            assert known[key] == value, key


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    "name", ["llama2.tokenizer.model", "mistral.tokenizer.model.v1", "mistral.tokenizer.model.v3"]
)
def test_sentencepiece_models_are_read_as_sentencepiece_reads_them(datafile, name):
    path = str(datafile(f"tokenizers/{name}"))
    ours, theirs = spm.Model(path), sentencepiece.SentencePieceProcessor(model_file=path)
    assert len(ours.tokens) == theirs.get_piece_size()
    for i in range(len(ours.tokens)):
        assert ours.tokens[i].decode() == theirs.id_to_piece(i) and ours.scores[
            i
        ] == theirs.get_score(i)
        assert (ours.types[i] == 6, ours.types[i] == 3, ours.types[i] == 2) == (
            theirs.is_byte(i),
            theirs.is_control(i),
            theirs.is_unknown(i),
        )
    assert ours.ids == {
        "unknown": theirs.unk_id(),
        "bos": theirs.bos_id(),
        "eos": theirs.eos_id(),
        "padding": theirs.pad_id(),
    }


def test_tokenizer_json_of_a_sentencepiece_model_joins_as_it_does(tmp_path):
    """Scores found from merges alone give the tokens of the model that the merges were made from."""
    import json

    pieces, scores, kinds = tiny_vocab.vocabulary("llama", 500)
    import golden_folders

    merges = golden_folders.spm_merges(pieces, scores, kinds)
    whole = {
        "model": {
            "type": "BPE",
            "byte_fallback": True,
            "unk_token": "<unk>",
            "vocab": {p: i for i, p in enumerate(pieces)},
            "merges": [list(m) for m in merges],
        },
        "normalizer": {
            "type": "Sequence",
            "normalizers": [tokenizer_json.PREPEND, tokenizer_json.REPLACE],
        },
        "added_tokens": [{"id": i, "content": pieces[i], "special": True} for i in range(3)],
    }
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(whole))
    found = tokenizer_json.File(str(path)).metadata(500)
    from gguf_writer import write_gguf

    both = []
    for name, metadata in (
        ("json", found),
        ("spm", {**found, "tokenizer.ggml.scores": ("[f32]", scores)}),
    ):
        write_gguf(tmp_path / name, {k: v for k, v in metadata.items()}, [])
        both.append(Vocab(gguf.File(str(tmp_path / name))))
    draw = random.Random(1)
    for _ in range(500):
        text = "".join(draw.choice(tiny_vocab.TEXT) for _ in range(draw.randrange(30))).encode()
        assert both[0].encode(text) == both[1].encode(text)
    whole["model"]["merges"].append(whole["model"]["merges"].pop(0))
    assert whole["model"]["merges"][0] != list(merges[0])
    for change in (lambda m: m.insert(len(m) // 2, m.pop(0)), lambda m: m.pop()):
        whole["model"]["merges"] = [list(m) for m in merges]
        change(whole["model"]["merges"])
        path.write_text(json.dumps(whole))
        if tokenizer_json.File(str(path)).merges[0] != merges[0] or len(
            whole["model"]["merges"]
        ) < len(merges):
            try:
                tokenizer_json.File(str(path)).metadata(500)
            except Error as e:
                assert e.code == UNSUPPORTED and "not SentencePiece's" in str(e)


# Protocol buffers -----------------------------------------------------------------

GOLDEN = ROOT / "tests" / "golden" / "llama.pb"


def test_message_of_the_protobuf_package_is_read_and_written_alike():
    """golden/llama.pb is golden_pb.py's, by the package; the same config and vocabulary are written
    to the same bytes.
    """
    file, data = llama_pb.File(str(GOLDEN)), GOLDEN.read_bytes()
    tokens, scores = file.vocab
    assert (
        len(tokens) == 262
        and tokens[1] == b"<s>"
        and tokens[-2:] == ["\u2581caf\u00e9".encode(), b"ab"]
        and scores[-1] == -261
    )
    c, tensors = file.tensors()
    assert (
        c.dim,
        c.hidden_dim,
        c.n_layers,
        c.n_heads,
        c.n_kv_heads,
        c.vocab_size,
        c.seq_len,
        c.tied,
    ) == (8, 12, 2, 2, 1, 262, 16, True)
    without = b"".join(
        protobuf.put_bytes(n, v.bytes())
        for n, _, v in protobuf.message("x", data).fields()
        if n != 2
    )
    assert llama_pb.file_bytes(c, vocabulary.tokens_as_bin(tokens), scores) == without
    first = next(t for t in tensors if t.name == "blk.1.attn_k.weight")
    draw = random.Random(5).uniform
    numbers = [draw(-1, 1) for _ in range(262 * 8 + 16 + 128 + 64)]
    assert first.read(0, 4).ravel().tolist() == np.float32(numbers[-32:]).tolist()


def test_vocabulary_goes_through_a_message_and_config_is_compared(files, tmp_path):
    path, _ = files.put(0)
    convert(path, tmp_path / "a.gguf", "--vocab", files.tok)
    convert(tmp_path / "a.gguf", tmp_path / "b.bin", "--to", 0, "--vocab-out", tmp_path / "b.pb")
    os.rename(tmp_path / "b.bin", tmp_path / "v0")
    convert(tmp_path / "v0", tmp_path / "c.gguf", "--vocab", tmp_path / "b.pb")
    assert (tmp_path / "c.gguf").read_bytes() == (tmp_path / "a.gguf").read_bytes()
    other = files.put(0, hidden=128)[0]
    assert "config.hidden_dim: 96" in convert_call.refused(
        65, other, tmp_path / "d.gguf", "--vocab", tmp_path / "b.pb"
    )


def test_message_with_weights_is_a_source(tmp_path):
    found = values(convert(GOLDEN, tmp_path / "m.gguf"))
    assert len(found) == 20 and found["blk.1.ffn_up.weight"][1].shape == (12, 8)
    data = GOLDEN.read_bytes()
    for cut in (1, 100, len(data) // 2, len(data) - 1):
        (tmp_path / "cut.pb").write_bytes(data[:cut])
        convert_call.refused(65, tmp_path / "cut.pb", tmp_path / "cut.gguf")


@settings(max_examples=400, deadline=None)
@given(st.binary(max_size=60), st.integers(0, 2000))
def test_any_bytes_are_a_message_or_a_fault(data, at):
    whole = bytearray(GOLDEN.read_bytes()[:2000])
    whole[at : at + len(data)] = data
    for message in (data, bytes(whole)):
        try:
            for _, kind, value in protobuf.message("x", message).fields():
                list(value.fields()) if kind == protobuf.BYTES else None
        except Error as e:
            assert e.code in (BAD_DATA, UNSUPPORTED)


# Refusals of the way back -----------------------------------------------------------


@pytest.mark.parametrize(
    "key,value,what",
    [
        ("llama.rope.freq_base", ("f32", 5e5), "rope.freq_base"),
        ("llama.attention.layer_norm_rms_epsilon", ("f32", 1e-6), "rms_epsilon"),
        ("llama.rope.scaling.type", ("string", "linear"), "rope.scaling.factor"),
        ("llama.rope.scaling.attn_factor", ("f32", 2.0), "attn_factor"),
        ("llama.rope.scaling.type", ("string", "yarn"), "yarn"),
        ("tokenizer.ggml.bos_token_id", ("u32", 5), "bos_token_id"),
        ("tokenizer.ggml.model", ("string", "gpt2"), "tokenizer.ggml.model"),
    ],
)
def test_metadata_without_a_llama2c_field_is_refused_by_name(files, tmp_path, key, value, what):
    from sluice.gguf import write as gguf_write

    path, m = files.put(0)
    f = gguf.File(str(convert(path, tmp_path / "m.gguf", "--vocab", files.tok)))
    from sluice.gguf.metadata import Array

    metadata = {
        k: (
            (f"[{KIND_NAMES[v.kind]}]", v.values())
            if isinstance(v, Array)
            else (KIND_NAMES[f.kinds[k]], v)
        )
        for k, v in f.metadata.items()
    }
    metadata[key] = value
    if key == "llama.rope.scaling.type":
        metadata["llama.rope.scaling.factor"] = ("f32", 4.0 if value[1] == "linear" else 1.0)
    gguf_write.write(
        tmp_path / "n.gguf",
        metadata,
        [(t.name, t.type, t.shape, f.read(t, 0, t.n_bytes)) for t in f.tensors.values()],
    )
    assert what in convert_call.refused(
        69, tmp_path / "n.gguf", tmp_path / "m.bin", "--to", 0, "--vocab-out", tmp_path / "tok.bin"
    )


def test_input_that_is_no_file_or_cannot_be_read_is_refused_at_once(files, tmp_path):
    path, _ = files.put(0)
    os.mkfifo(tmp_path / "fifo")
    for argv in ((tmp_path / "fifo", "--vocab", files.tok), (path, "--vocab", tmp_path / "fifo")):
        assert (
            convert_call.refused(65, *argv[:1], tmp_path / "m", *argv[1:])
            == f"{tmp_path / 'fifo'}: not a regular file"
        )
    with pytest.raises(Error, match="fifo: not a regular file"):
        open_model(str(path), str(tmp_path / "fifo"))
    assert "/proc/self/mem: Input/output error" in convert_call.refused(
        74, "/proc/self/mem", tmp_path / "m", "--vocab", files.tok
    )


# Usage, disks and signals -----------------------------------------------------------


@pytest.mark.quick_cases(3)
@pytest.mark.parametrize(
    "argv,what",
    [
        (("v0",), "-o"),
        (("v0", "-o", "m"), "--vocab"),
        (("v0", "-o", "m", "--vocab", "tok", "--to", "0"), "--to"),
        (("v0", "-o", "m", "--vocab", "tok", "--vocab-out", "t"), "--vocab-out"),
        (("m.gguf", "-o", "m"), "gguf-quantize"),
        (("v0", "-o", "m", "--vocab", "tok", "--type", "Q9"), "Q9"),
        (("v0", "-o", "m", "--vocab", "tok", "--from", "7"), "7"),
    ],
)
def test_wrong_usage_is_64(files, tmp_path, argv, what):
    convert(files.put(0)[0], tmp_path / "m.gguf", "--vocab", files.tok)
    assert what in refused(64, *argv, cwd=tmp_path)


def test_version_that_is_not_the_files_is_refused(files, tmp_path):
    path, _ = files.put(1)
    assert "of version 1" in convert_call.refused(
        65, path, tmp_path / "m", "--from", 0, "--vocab", files.tok
    )
    path, _ = files.put(0)
    assert "has" in convert_call.refused(
        65, path, tmp_path / "m", "--from", -1, "--vocab", files.tok
    )
    path, _ = files.put(-2)
    assert "--from -2" in convert_call.refused(65, path, tmp_path / "m", "--vocab", files.tok)


@pytest.mark.parametrize("head", [b"PK\3\4", b"\x80\x02}q", b"\x80\x04\x95"])
def test_pickles_are_refused_by_name(tmp_path, head):
    (tmp_path / "model.pth").write_bytes(head + bytes(100))
    assert "pickle" in convert_call.refused(
        69, tmp_path / "model.pth", tmp_path / "m", "--vocab", "x"
    )


@pytest.mark.full
def test_interrupted_conversion_leaves_nothing(files, tmp_path):
    path, _ = files.put(0, dim=512, hidden=1024, layers=8, vocab=300)
    out = tmp_path / "out"
    out.mkdir()
    for delay in (0, 0.02, 0.05, 0.1):
        p = subprocess.Popen(
            [BIN / "gguf-convert", path, "--vocab", files.tok, "--type", "Q8_0", "-o", out / "m"],
            stderr=subprocess.PIPE,
            # a background job has it ignored
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        opened(p, path)
        time.sleep(delay)
        p.send_signal(signal.SIGINT)
        assert p.communicate()[1] == b""
        assert p.returncode in (0, -signal.SIGINT) and (p.returncode == 0) == (out / "m").exists()
        assert set(os.listdir(out)) <= {"m"}
        (out / "m").unlink(missing_ok=True)


def test_source_that_changes_meanwhile_makes_no_file(files, tmp_path):
    """Touched at the first piece: what was read before and after may not belong together."""
    from sluice.convert import tensor
    from sluice.convert.llama2c import read

    path, _ = files.put(0)
    c, tensors = read.tensors(str(path))
    touched = lambda n: os.utime(path, ns=(1, 1))
    with pytest.raises(Error, match="was changed while it was in use"):
        tensor.write_gguf(tmp_path / "m.gguf", c.metadata(), tensors, None, touched)
    assert sorted(os.listdir(tmp_path)) == ["tok", "v0"]


def test_full_disk_leaves_the_old_file(files, tmp_path):
    path, _ = files.put(0, dim=256, layers=4)
    (tmp_path / "m").write_bytes(b"old")
    limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
    done = run(
        "gguf-convert",
        path,
        "--vocab",
        files.tok,
        "-o",
        tmp_path / "m",
        preexec_fn=lambda: (signal.signal(signal.SIGXFSZ, signal.SIG_IGN), limit()),
    )
    assert (
        done.returncode == 74
        and b"cannot write" in done.stderr
        and (tmp_path / "m").read_bytes() == b"old"
    )
    assert sorted(os.listdir(tmp_path)) == ["m", "tok", "v0"]


def test_progress_is_for_terminals(files, tmp_path):
    path, _ = files.put(0)
    main, side = pty.openpty()
    p = subprocess.Popen(
        [BIN / "gguf-convert", path, "--vocab", files.tok, "-o", tmp_path / "m"], stderr=side
    )
    os.close(side)
    said = b""
    try:
        while chunk := os.read(main, 4096):
            said += chunk
    except OSError:  # the other side is closed
        pass
    assert p.wait() == 0 and b"100%" in said
    os.close(main)


def test_memory_does_not_grow_with_the_context():
    """Tables of rope for a million positions, 64 MB: a header can ask for sixteen times that, of
    heads 64 times as wide.
    """
    tracemalloc.start()
    n = sum(map(len, write.rope_tables(SimpleNamespace(head_dim=16, seq_len=1 << 20))))
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert n == 2 * 4 * 8 << 20 and most < 30 << 20


@pytest.mark.full
def test_memory_is_bounded_by_a_piece_not_by_the_model(tmp_path):
    """A matrix of 64 MB, sparse on the disk, through a process that never has as much beyond its
    libraries.
    """
    dim, vocab = 4096, 4096
    with open(tmp_path / "v0", "wb") as f:
        f.write(struct.pack("<7i", dim, 64, 1, 32, 1, vocab, 8))
        f.truncate(
            28
            + 4 * (vocab * dim + 3 * dim + 2 * dim * dim + 2 * dim * 128 + 3 * dim * 64 + 8 * 128)
        )
    (tmp_path / "tok").write_bytes(writer.tokenizer(vocab))
    code = """import sys
from sluice.convert import to_gguf
most = lambda: int(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
before = most()
to_gguf.checkpoint(sys.argv[1], sys.argv[3], "BF16", sys.argv[2], None, False)
print(most() - before)"""
    done = subprocess.run(
        [sys.executable, "-c", code, tmp_path / "v0", tmp_path / "tok", tmp_path / "m"],
        capture_output=True,
        env={"PYTHONPATH": str(ROOT / "lib"), "OPENBLAS_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 40_000 and (tmp_path / "m").stat().st_size > 90 << 20
