"""The commands joined by pipes, on real trained weights, and the same bits however the work is done."""
import hashlib
import json
import os

import pytest
from conftest import ids_in, run, shell
from sluice.stream import CANDIDATE, HEADER, RECORD
from tiny_model import write_model

RING = """mkfifo ring
decode -m "$M" p.snap <ring | {filter} sample -t 0 -n {n} --logprob | tee ring >answer"""


def ring(directory, model, filter="", n=256):
    """Run the ring on p.snap of `directory`: the ids it chose."""
    done = shell(RING.format(filter=filter, n=n), directory, M=str(model))
    assert (done.returncode, done.stderr) == (0, b"")
    os.unlink(directory / "ring")
    return ids_in((directory / "answer").read_bytes())


def test_stories260k_tells_its_story(shared, tmp_path):
    model = shared("data/models/stories260K.gguf")
    done = shell('tokenize -m "$M" </dev/null | prefill -m "$M" -o p.snap', tmp_path, M=str(model))
    assert (done.returncode, done.stderr) == (0, b"")
    expected = [int(i) for i in shared("data/models/stories260K.greedy.ids").read_text().split()]
    assert ring(tmp_path, model) == expected
    text = run("tokenize", "-m", model, "-d", input=(tmp_path / "answer").read_bytes()).stdout
    assert text == shared("data/models/stories260K.greedy.txt").read_bytes().rstrip(b"\n")


def test_spam_prototype_answers_as_recorded(shared, tmp_path):
    model = shared("data/models/spam-proto-q8_0.gguf")
    (tmp_path / "yesno.gbnf").write_text('root ::= "yes" | "no"')
    records = shared("data/models/spam-proto.expected.jsonl").read_text().splitlines()
    assert len(records) == 20
    for line in records:
        r = json.loads(line)
        ids = run("tokenize", "-m", model, "--special", "--no-bos", input=r["prompt"].encode()).stdout
        assert ids_in(ids) == r["ids"], r["file"]
        (tmp_path / "ids").write_bytes(ids)
        assert shell('prefill -m "$M" -o p.snap <ids', tmp_path, M=str(model)).returncode == 0
        rows = run("decode", "-m", model, "--rows", f"{r['yes_id']},{r['no_id']}", tmp_path / "p.snap",
                   input=ids.splitlines(True)[0] + b"#end text\n").stdout
        pairs = dict(CANDIDATE.iter_unpack(rows[HEADER.size + RECORD.size:][:16]))
        assert (pairs[r["yes_id"]] > pairs[r["no_id"]]) == (r["answer"] == "yes"), r["file"]
        # theirs are f32 activations on the same weights before rounding to Q8_0; llama.cpp differs by up to 0.034
        assert abs(pairs[r["yes_id"]] - pairs[r["no_id"]] - (r["yes_logit"] - r["no_logit"])) < 0.06
        answer = ring(tmp_path, model, 'grammar-filter -m "$M" -g yesno.gbnf |')
        assert answer == [r[r["answer"] + "_id"]], r["file"]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    d = tmp_path_factory.mktemp("bits")
    for arch, kind in (("llama", "q8_0"), ("gemma3", "bf16")):
        write_model(str(d / f"{arch}.gguf"), arch=arch, type=kind, n_vocab=500, n_ctx=2048)
    (d / "text").write_text("The same bits, whatever the number of threads. " * 30)
    for arch in ("llama", "gemma3"):
        (d / f"{arch}.ids").write_bytes(run("tokenize", "-m", d / f"{arch}.gguf", input=(d / "text").read_bytes()).stdout)
    return d


def digest(*parts):
    return hashlib.sha256(b"".join(parts)).hexdigest()


@pytest.mark.parametrize("arch", ["llama", "gemma3"])
def test_bits_do_not_depend_on_how_the_work_is_done(files, tmp_path, arch):
    """Threads, chunks, instruction sets, a base snapshot, a cache: one hash of snapshot and of decoded logits."""
    ids = (files / f"{arch}.ids").read_bytes().splitlines(True)
    head, last, body = ids[0], b"#end text\n", ids[1:-1]
    n = len(body)
    assert n > 300
    (tmp_path / "ids").write_bytes(b"".join(ids))
    (tmp_path / "begin").write_bytes(head + b"".join(body[:n // 3]) + last)
    (tmp_path / "rest").write_bytes(head + b"".join(body[n // 3:]) + last)
    (tmp_path / "more").write_bytes(head + b"".join(body[:40]) + last)
    ways = {
        "threads 1": "prefill -j 1 -o p.snap <ids",
        "threads 2": "prefill -j 2 -o p.snap <ids",
        "threads 4": "prefill -j 4 -o p.snap <ids",
        "chunks of 1": "prefill --chunk 1 -o p.snap <ids",
        "chunks of 7": "prefill --chunk 7 -o p.snap <ids",
        "chunks of 64": "prefill --chunk 64 -j 4 -o p.snap <ids",
        "reference": "SLUICE_ISA=reference prefill -o p.snap <ids",
        "continued": "prefill -o base.snap <begin && prefill -s base.snap -o p.snap <rest",
        "decoded": "prefill -o base.snap <begin && decode -j 2 -o p.snap base.snap <rest >/dev/null",
        "cached": "prefill --cache c <begin >name && prefill --cache c -v <ids 2>log >name && cp -p $(cat name) p.snap && "
                  f"grep -q reused={n // 3} log",
    }
    found = {}
    for way, script in ways.items():
        done = shell(f"rm -rf *.snap c\n{script}", tmp_path, MODEL=str(files / f"{arch}.gguf"))
        assert (done.returncode, done.stderr) == (0, b""), way
        snap = (tmp_path / "p.snap").read_bytes()
        isa = {"SLUICE_ISA": "reference"} if way == "reference" else {}
        done = shell(f"decode -j {1 + len(way) % 4} p.snap <more", tmp_path, MODEL=str(files / f"{arch}.gguf"), **isa)
        assert (done.returncode, done.stderr) == (0, b""), way
        assert (tmp_path / "p.snap").read_bytes() == snap, "decode changed its snapshot"
        found[way] = digest(snap, done.stdout)
    assert len(set(found.values())) == 1, found


def test_rows_of_decode_equal_the_dense_ones(files, tmp_path):
    env = {"MODEL": str(files / "llama.gguf")}
    shell(f"prefill -o p.snap <{files}/llama.ids", tmp_path, **env)
    dense = shell(f"decode p.snap <{files}/llama.ids", tmp_path, **env).stdout
    some = shell(f"decode --rows 7,499,0 p.snap <{files}/llama.ids", tmp_path, **env).stdout
    size, n = RECORD.size + 4 * 500, 0
    for at in range(HEADER.size, len(dense) - RECORD.size, size):
        logits = memoryview(dense[at + RECORD.size:at + size]).cast("f")
        small = some[HEADER.size + n * (RECORD.size + 24):][RECORD.size:RECORD.size + 24]
        assert list(CANDIDATE.iter_unpack(small)) == [(i, logits[i]) for i in (0, 7, 499)]
        n += 1
    assert n > 300
