"""Print a fingerprint of what a tree's commands write, or compare two such tables.

    .venv/bin/python3 tests/helpers/fingerprints.py --make DIR           the inputs, once
    .venv/bin/python3 tests/helpers/fingerprints.py TREE --inputs DIR >table
    .venv/bin/python3 tests/helpers/fingerprints.py TREE --inputs DIR --quick >table
    .venv/bin/python3 tests/helpers/fingerprints.py --compare OLD NEW

Only TREE/bin is called, and only DIR is read, so modules may move in TREE, and the tree before and
the tree after are run on the same bytes. --make imports the test helpers that lie beside this file
or one folder up, copies mails, folders and the bundled model, and links what $SLUICE_SHARED and
~/.cache/sluice/real-models hold; without them the table is shorter. DIR/SUMS has the digests of
what was made.

A line of the table is `NAME SHA256`. The digest is of the exit status, stdout and the files that
were written. Names begin with the subject:

    snapshot  prefill's file and decode's logits: each golden case (every architecture), each type
              of weights, each type of cache, exact and fast arithmetic, each instruction set of
              this machine (SLUICE_ISA), 1 and 2 threads, several chunks
    quantize  gguf-quantize to each type        convert   folders, llama2c there and back, shards
    generate  greedy, seeded, grammar, chat     perplexity  also strides, kept logits, --kl
    tokenize  each vocabulary, each text, -d    mail      mail-text of mails, also of spoilt ones
    classify  each mail, each set, --json (without "ms"), --long, --jsonl, --pass-through, --learn
    sample, grammar, ring, dump                 the other commands

A status that the command's manual page does not call a success is told on stderr, and so is a set
that this machine lacks. Times, paths and figures of speed are in no digest: the commands run in a
folder of their own that sees the inputs as in/, without -v. Tables of two machines agree but for
the sets that only one has. --compare prints what differs and ends with 1, or with 0 if nothing
does; names that only one table has count as differences, but with --common they do not.
--only REGEX runs those names, --jobs N as many commands at a time.
"""

import argparse
import concurrent.futures
import contextlib
import hashlib
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
TESTS = HERE.parent if HERE.name == "helpers" else HERE
SETS = ("amx", "avx512", "avx-vnni", "avx2", "i8mm", "neon", "reference")
KINDS = (
    "Q8_0",
    "Q4_0",
    "Q4_1",
    "Q5_0",
    "Q5_1",
    "Q4_K",
    "Q5_K",
    "Q6_K",
    "F16",
    "BF16",
    "F32",
    "Q4_K_S",
    "Q4_K_M",
    "Q5_K_S",
    "Q5_K_M",
)
FLOATS = ("F32", "F16", "BF16")
REAL = ("SmolLM2-135M-Instruct.Q4_1.gguf", "gemma-3-270m-q4_k_m.gguf")
CONTROL = ["<|user|>", "<|assistant|>"]
TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}"
    "<|{{ 'assistant' if m.role == 'assistant' else 'user' }}|>"
    "{{ m.content }}{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("tables", nargs="*", metavar="TREE")
    parser.add_argument("--make", metavar="DIR", help="make the inputs")
    parser.add_argument("--inputs", metavar="DIR", help="the inputs that --make made")
    parser.add_argument("--compare", action="store_true", help="the two arguments are tables")
    parser.add_argument("--common", action="store_true", help="compare the names both tables have")
    parser.add_argument("--quick", action="store_true", help="a part that takes less than a minute")
    parser.add_argument("--only", metavar="REGEX", default="", help="names to run")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="commands at a time")
    parser.add_argument("--times", action="store_true", help="how long each took, on stderr")
    a = parser.parse_args()
    if a.make:
        return make_inputs(Path(a.make).resolve())
    if a.compare and len(a.tables) == 2:
        return compare(*a.tables, a.common)
    if a.compare or len(a.tables) != 1 or not a.inputs:
        parser.error("--make DIR, TREE --inputs DIR, or --compare OLD NEW")
    lines = run_all(Path(a.tables[0]).resolve(), Path(a.inputs).resolve(), a)
    for name, digest in sorted(lines):
        print(name, digest)
    return 0


# Inputs


def make_inputs(directory):
    """Write the models, messages and texts that every tree is run on, and their digests."""
    if (directory / "SUMS").exists():
        sys.exit(f"{directory} is made already; remove it to make it anew")
    sys.path[:0] = [str(HERE), str(TESTS)]
    for name in ("models", "mails", "texts", "vocab", "real", "grammars", "llama2c"):
        (directory / name).mkdir(parents=True, exist_ok=True)
    make_models(directory / "models")
    make_mails(directory / "mails")
    make_texts(directory / "texts")
    shutil.copytree(TESTS / "golden/folders", directory / "folders")
    shutil.copytree(
        TESTS / "golden",
        directory / "streams",
        ignore=lambda d, names: [n for n in names if not n.endswith(".in")],
    )
    shared = Path(os.environ.get("SLUICE_SHARED") or TESTS.parents[1] / "shared")
    for kind, pattern in (("vocab", "data/vocab/*.gguf"), ("grammars", "data/grammars/*.gbnf")):
        for path in sorted(shared.glob(pattern)):
            shutil.copy(path, directory / kind / path.name)
    for name in REAL:
        path = Path.home() / ".cache/sluice/real-models" / name
        if path.exists():
            (directory / "real" / name).symlink_to(path)
    files = sorted(p for p in directory.rglob("*") if p.is_file())
    sums = [f"{sha(p.read_bytes())}  {p.relative_to(directory)}\n" for p in files]
    (directory / "SUMS").write_text("".join(sums))
    print(f"{len(files)} files in {directory}")
    return 0


def make_models(directory):
    import chat_model
    import golden_cases
    import llama2c_writer
    import numpy as np
    import tiny_model
    from gguf_writer import BLOCK_TYPES, random_blocks, write_gguf

    for name, case in golden_cases.cases().items():
        tiny_model.write_model(str(directory / f"golden-{name}.gguf"), **case["config"])
    wide = {
        "n_vocab": 420,
        "n_layer": 2,
        "n_embd": 256,
        "n_ff": 512,
        "n_head": 4,
        "n_head_kv": 2,
        "head_dim": 64,
    }
    tiny_model.write_model(str(directory / "wide-llama.gguf"), **wide, tied=False)
    tiny_model.write_model(str(directory / "wide-gemma3.gguf"), **wide, arch="gemma3")
    for arch in sorted(tiny_model.DEFAULTS):
        tiny_model.write_model(
            str(directory / f"plain-{arch}.gguf"), arch=arch, n_vocab=420, n_layer=3
        )
    chat_model.write_chat_model(directory / "chat-llama.gguf", CONTROL, TEMPLATE, n_ctx=2048)
    chat_model.write_chat_model(
        directory / "chat-gemma3.gguf",
        CONTROL,
        TEMPLATE,
        arch="gemma3",
        n_ctx=2048,
        type="bf16",
        n_layer=6,
    )
    chat_model.write_bpe_chat_model(
        directory / "chat-bpe.gguf",
        [(b"t", b"h"), (b"th", b"e"), (b" ", b"the")],
        ["<|im_start|>", "<|im_end|>"],
    )
    c = tiny_model.complete(wide)
    for kind, (number, size, _, halves) in BLOCK_TYPES.items():
        rng, tensors = np.random.default_rng(7), []
        for role, shape in tiny_model.shapes(c).items():
            if len(shape) == 2:
                blocks = random_blocks(rng, kind, shape[0] * shape[1] // size)
                for at in halves:  # scales small enough for sums of 512 products
                    view = blocks[:, at : at + 2].copy().view("<f2")
                    blocks[:, at : at + 2] = (view * np.float16(0.002)).view(np.uint8)
                tensors.append((role, number, shape, blocks.tobytes()))
            else:
                tensors.append((role, 0, shape, tiny_model.weights(c, role, shape).tobytes()))
        write_gguf(str(directory / f"blocks-{kind}.gguf"), tiny_model.metadata(c), tensors)
    shutil.copy(TESTS.parent / "lib/sluice/data/spam.gguf", directory / "spam.gguf")
    m = llama2c_writer.model(ctx=96)
    folder = directory.parent / "llama2c"
    for version in (0, 1, 2, -1, -2):
        (folder / f"v{version}.bin").write_bytes(llama2c_writer.checkpoint(m, version))
    (folder / "tokenizer.bin").write_bytes(llama2c_writer.tokenizer(300))


def make_mails(directory):
    """Messages of the tests, and damaged ones: truncated, with changed bytes, with swapped lines."""
    draw = random.Random(5)
    for path in sorted((TESTS / "mails").glob("*.eml")):
        data = path.read_bytes()
        (directory / path.name).write_bytes(data)
        (directory / f"cut-{path.name}").write_bytes(data[: draw.randrange(len(data))])
        spoilt = bytearray(data)
        for _ in range(40):
            spoilt[draw.randrange(len(spoilt))] = draw.randrange(256)
        (directory / f"spoilt-{path.name}").write_bytes(spoilt)
        lines = data.splitlines(keepends=True)
        draw.shuffle(lines)
        (directory / f"shuffled-{path.name}").write_bytes(b"".join(lines))
    shared = Path(os.environ.get("SLUICE_SHARED") or TESTS.parents[1] / "shared")
    for path in sorted(shared.glob("data/cases/mail/*.eml")):
        (directory / f"case-{path.name}").write_bytes(path.read_bytes())


def make_texts(directory):
    from tiny_vocab import TEXT

    draw = random.Random(6)
    texts = {
        "prose": TEXT.encode(),
        "empty": b"",
        "bytes": draw.randbytes(3000),
        "code": Path(__file__).read_bytes()[:6000],
    }
    for path in sorted((TESTS / "golden/folders").glob("*/texts.json")):
        for i, found in enumerate(json.loads(path.read_text())):
            text = found["text"] if isinstance(found, dict) else found[0]
            texts[f"folder-{i}"] = text.encode()
    ranges = [
        (32, 127),
        (0xA0, 0x250),
        (0x370, 0x600),
        (0x900, 0xE80),
        (0x3040, 0x3100),
        (0x4E00, 0x4F00),
        (0x1F300, 0x1F650),
    ]
    letters = [
        chr(draw.randrange(*draw.choice(ranges)))
        if draw.random() < 0.8
        else draw.choice(" \n\t\r12'")
        for _ in range(4000)
    ]
    texts["unicode"] = "".join(letters).encode("utf-8", "replace")
    texts["marks"] = (
        b"<s>a</s> <|user|>b<|assistant|> <bos><start_of_turn>user\n"
        b"<|im_start|>x<|im_end|>  \n\n   y"
    )
    for name, data in texts.items():
        (directory / f"{name}.txt").write_bytes(data)


# Runs


class Place:
    """A folder in which the commands of one tree run; the inputs are in/."""

    _known = {}

    def __init__(self, tree, inputs, work, name, quick=False):
        self._tree, self._work, self.name, self.quick = tree, work, name, quick
        self.inputs, self.lines, self.here = inputs, [], Path(tempfile.mkdtemp(dir=work))
        (self.here / "in").symlink_to(inputs)

    def tokens(self, path, text, *options):
        """What tokenize writes of a text; of an input's model it is asked once."""
        key = (path, text, options)
        if not path.startswith("in/") or key not in self._known:
            self._known[key] = self.run("tokenize", "-m", path, *options, input=text)
        return self._known[key]

    def run(self, *argv, input=b"", isa="", threads=None, good=(0,), **env):
        """stdout of one command; a status that is not among the `good` is told."""
        environment = {
            k: v
            for k, v in os.environ.items()
            if not k.startswith(
                ("SLUICE", "MODEL", "SOURCE_DATE", "XDG_", "LANG", "LC_", "COLUMNS")
            )
        }
        environment |= {
            "HOME": str(self._work),
            "LC_ALL": "C.UTF-8",
            "TZ": "UTC",
            "SOURCE_DATE_EPOCH": "1700000000",
            **env,
        }
        if isa:
            environment["SLUICE_ISA"] = isa
        options = ("-j", threads) if threads else ()
        command = [str(self._tree / "bin" / argv[0]), *map(str, options), *map(str, argv[1:])]
        done = subprocess.run(
            command, input=input, cwd=self.here, env=environment, capture_output=True, timeout=600
        )
        self.status = done.returncode
        if done.returncode not in good:
            print(
                f"{self.name}: {' '.join(map(str, argv))}: {done.returncode}: "
                f"{done.stderr.decode(errors='replace').strip()[-200:]}",
                file=sys.stderr,
            )
        return done.stdout

    def note(self, name, *parts):
        """A line of the table: of bytes, or of a file in the folder (str)."""
        digest = hashlib.sha256(str(self.status).encode())
        for part in parts:
            path = None if isinstance(part, bytes) else self.here / part
            data = part if path is None else path.read_bytes() if path.exists() else b"\0absent"
            digest.update(b"%d:" % len(data) + data)
        self.lines.append((f"{self.name}{'/' if name else ''}{name}", digest.hexdigest()))

    def close(self):
        shutil.rmtree(self.here)


def run_all(tree, inputs, a):
    """The lines (name, digest) of a tree."""
    with tempfile.TemporaryDirectory() as work:
        work = Path(work)
        sets = sets_of(tree, inputs, work)
        print(f"sets: {' '.join(sets)}", file=sys.stderr)
        found = [
            job
            for make in (
                snapshot_jobs,
                quantize_jobs,
                convert_jobs,
                generate_jobs,
                perplexity_jobs,
                tokenize_jobs,
                mail_jobs,
                classify_jobs,
                other_jobs,
            )
            for job in make(inputs, sets, a.quick)
        ]
        found = [job for job in found if re.search(a.only, job[0])]
        times = []

        def run(job):
            name, function, *arguments = job
            begun = time.monotonic()
            with contextlib.closing(Place(tree, inputs, work, name, a.quick)) as place:
                function(place, *arguments)
            if a.times and len(times) % 50 == 0:
                print(f"{len(times)} of {len(found)}", file=sys.stderr, flush=True)
            times.append((time.monotonic() - begun, name))
            return place.lines

        with concurrent.futures.ThreadPoolExecutor(a.jobs) as pool:
            lines = [line for part in pool.map(run, found) for line in part]
    if a.times:
        for seconds, name in sorted(times, reverse=True):
            print(f"{seconds:.2f} s {name}", file=sys.stderr)
    names = [name for name, _ in lines]
    if len(set(names)) != len(names):
        sys.exit(f"a name twice: {sorted({n for n in names if names.count(n) > 1})}")
    return lines


def sets_of(tree, inputs, work):
    """The instruction sets that this machine has, the best first."""
    place = Place(tree, inputs, work, "sets")
    tokens = place.run("tokenize", "-m", "in/models/plain-llama.gguf", input=b"a")
    out = []
    for name in SETS:
        place.run(
            "prefill",
            "-m",
            "in/models/plain-llama.gguf",
            "-o",
            "s",
            input=tokens,
            isa=name,
            good=(0, 69),
        )
        out += [name] * (place.status == 0)
    if "reference" not in out:
        sys.exit(f"{tree}/bin/prefill does not run")
    return out


def sha(data):
    return hashlib.sha256(data).hexdigest()


def named(inputs, pattern):
    """Dict: stem -> path from the commands' folder, of the inputs that fit."""
    return {
        p.name.removesuffix(".gguf"): f"in/{p.relative_to(inputs)}"
        for p in sorted(inputs.glob(pattern))
    }


# Snapshots and logits


def snapshot_jobs(inputs, sets, quick):
    models = named(inputs, "models/*.gguf")
    if quick:
        fits = re.compile("blocks|plain|spam|.*window")
        models = {name: path for name, path in models.items() if fits.match(name)}
    for name, path in models.items():
        start, plain = f"snapshot/{name}", name.startswith("plain")
        for isa in sets:
            yield f"{start}/{isa}", snapshot, path, isa, 1, (), 400
            for kv in ("f32", "q8_0") if plain and (isa == sets[-1] or not quick) else ():
                yield f"{start}/{kv}/{isa}", snapshot, path, isa, 1, ("--kv", kv), 300, (0, 69)
        if plain or not quick:
            yield f"{start}/two-threads", snapshot, path, sets[0], 2, (), 400
            yield f"{start}/chunk-7", snapshot, path, sets[0], 1, ("--chunk", 7), 300
    wide = ("wide-llama", "wide-gemma3")
    for name in wide[:1] if quick else wide:
        for kind in FLOATS[:1] if quick else FLOATS:
            for isa in sets:  # 69 where the set has no such arithmetic
                path = f"in/models/{name}.gguf"
                yield f"snapshot/{name}/fast-{kind}/{isa}", fast_snapshot, path, kind, isa
    wide += ("golden-llama-odd", "golden-phi3-short")
    for name in wide[:1] if quick else wide:
        for kind in ("Q4_0", "Q6_K") if quick else KINDS:
            path = f"in/models/{name}.gguf"
            yield f"quantized/{name}/{kind}", quantized_snapshot, path, kind, sets
    for name, path in named(inputs, "real/*.gguf").items():
        for isa in sets[:1] if quick else sets:
            n_bytes = 60 if isa == "reference" else 400
            yield f"snapshot/{name}/{isa}", snapshot, path, isa, 1, (), n_bytes
        if not quick:
            yield f"snapshot/{name}/two-threads", snapshot, path, sets[0], 2, (), 800


def snapshot(place, path, isa, threads, options, n_bytes, good=(0,)):
    """prefill's file; decode's logits after tokens that go on; the snapshot that decode leaves."""
    n_bytes = n_bytes // 2 if isa == "reference" and "real/" not in path else n_bytes
    most = 90 if re.search("mqa|phi3-short", path) else 200 if "phi3-long" in path else n_bytes
    n_bytes = min(n_bytes, most)  # contexts of 128 and 256
    prose = (place.inputs / "texts/prose.txt").read_bytes()
    tokens = place.tokens(path, prose[:n_bytes])
    place.run(
        "prefill",
        "-m",
        path,
        "-o",
        "s.snap",
        *options,
        input=tokens,
        isa=isa,
        threads=threads,
        good=good,
    )
    place.note("prefill", "s.snap")
    if place.status:
        return
    more = place.tokens(path, prose[n_bytes : n_bytes + 30], "--no-bos")
    arithmetic = options if "--arithmetic" in options else ()
    logits = place.run(
        "decode",
        "-m",
        path,
        *arithmetic,
        "-o",
        "t.snap",
        "s.snap",
        input=more,
        isa=isa,
        threads=threads,
    )
    place.note("decode", logits, "t.snap")
    if "chunk" in place.name or "golden" in path and isa != "reference" or place.quick:
        return
    rows = place.run(
        "decode",
        "-m",
        path,
        *arithmetic,
        "--rows",
        "3,1,7",
        "s.snap",
        input=more,
        isa=isa,
        threads=threads,
    )
    place.note("rows", rows)


def fast_snapshot(place, path, kind, isa):
    place.run("gguf-quantize", path, "m.gguf", kind)
    snapshot(place, "m.gguf", isa, 1, ("--arithmetic", "fast"), 60, good=(0, 69))


def quantized_snapshot(place, path, kind, sets):
    place.run("gguf-quantize", "-j", 1, path, "m.gguf", kind)
    place.note("file", "m.gguf")
    text = (place.inputs / "texts/prose.txt").read_bytes()[:150]
    tokens = place.run("tokenize", "-m", "m.gguf", input=text)
    for isa in sets:
        place.run("prefill", "-m", "m.gguf", "-o", "s.snap", input=tokens, isa=isa, threads=1)
        place.note(f"prefill-{isa}", "s.snap")
        place.note(
            f"decode-{isa}",
            place.run(
                "decode", "-m", "m.gguf", "s.snap", isa=isa, threads=1, input=tokens, good=(0, 65)
            ),
        )


# Files


def quantize_jobs(inputs, sets, quick):
    yield (
        "quantize/spam/Q4_K_M",
        quantize,
        "in/models/spam.gguf",
        "Q4_K_M",
        ("--tensor", "blk.*.attn_v=F16"),
        2,
    )
    if not quick:
        for kind in KINDS:
            yield f"quantize/spam-1/{kind}", quantize, "in/models/spam.gguf", kind, (), 1
        for name, path in named(inputs, "models/blocks-*.gguf").items():
            yield f"quantize/{name}/Q8_0", quantize, path, "Q8_0", (), 1
        for name, path in named(inputs, "real/*.gguf").items():
            yield f"quantize/{name}/Q4_K_S", quantize, path, "Q4_K_S", (), 2


def quantize(place, path, kind, options, threads):
    place.run("gguf-quantize", path, "m.gguf", kind, *options, threads=threads)
    place.note("file", "m.gguf")
    place.note("plan", place.run("gguf-quantize", "--dry-run", path, kind, *options))


def convert_jobs(inputs, sets, quick):
    for path in sorted((inputs / "folders").iterdir())[:: 2 if quick else 1]:
        yield f"convert/folder/{path.name}", convert_folder, f"in/folders/{path.name}", sets
    for path in sorted((inputs / "llama2c").glob("v*.bin")):
        yield f"convert/llama2c/{path.stem}", convert_llama2c, path.stem, sets
    yield "convert/split", convert_split, "in/models/spam.gguf"
    if not quick:
        for name in ("plain-llama", "golden-llama-gqa"):
            yield f"convert/back/{name}", convert_back, f"in/models/{name}.gguf"


def convert_folder(place, path, sets):
    for kind in ("", "F32", "Q4_K_M"):
        options = ("--type", kind) if kind else ()
        out = f"{kind}.gguf"
        place.run("gguf-convert", path, "-o", out, *options)
        place.note(f"file{'-' if kind else ''}{kind}", out)
    text = (place.inputs / "texts/folder-2.txt").read_bytes()[:60]
    tokens = place.run("tokenize", "-m", "F32.gguf", input=text, good=(0, 69))
    place.note("ids", tokens)
    if not place.status:
        place.run("prefill", "-m", "F32.gguf", "-o", "s.snap", input=tokens, isa=sets[0], threads=1)
        place.note("prefill", "s.snap")


def convert_llama2c(place, name, sets):
    source, vocab = f"in/llama2c/{name}.bin", ("--vocab", "in/llama2c/tokenizer.bin")
    version = ("--from", name[1:]) if "-" in name else ()
    for kind in ("", "BF16", "F32"):
        options = ("--type", kind) if kind else ()
        place.run("gguf-convert", source, *vocab, *version, "-o", f"m{kind}.gguf", *options)
        place.note(f"file{'-' if kind else ''}{kind}", f"m{kind}.gguf")
    if name in ("v0", "v1"):  # these run as they are
        tokens = place.run("tokenize", "-m", source, *vocab, input=b" t1 t2 t30 t4")
        place.run(
            "prefill", "-m", source, *vocab, "-o", "s.snap", input=tokens, isa=sets[0], threads=1
        )
        place.note("prefill", tokens, "s.snap")


def convert_split(place, path):
    place.run("gguf-convert", path, "--split-bytes", "4M", "-o", "big.gguf")
    names = sorted(p.name for p in place.here.glob("big-*.gguf"))
    place.note("split", " ".join(names).encode(), *names)
    place.run("gguf-convert", names[1], "--merge", "-o", "whole.gguf")
    place.note("merge", "whole.gguf")
    tokens = place.run("tokenize", "-m", names[1], input=b"hello")
    place.run("prefill", "-m", names[0], "-o", "s.snap", input=tokens, threads=1)
    place.note("prefill", tokens, "s.snap")


def convert_back(place, path):
    for version in (0, 1, 2, -1, -2):
        name = f"v{version}"
        place.run(
            "gguf-convert",
            path,
            "--to",
            version,
            "-o",
            f"{name}.bin",
            "--vocab-out",
            f"{name}.vocab",
        )
        place.note(name, f"{name}.bin", f"{name}.vocab")
        if not place.status:
            place.run(
                "gguf-convert",
                f"{name}.bin",
                "--from",
                version,
                "--vocab",
                f"{name}.vocab",
                "-o",
                f"{name}.gguf",
            )
            place.note(f"{name}-again", f"{name}.gguf")


# Text


def generate_jobs(inputs, sets, quick):
    models = (
        named(inputs, "models/plain-*.gguf")
        | named(inputs, "models/chat-*.gguf")
        | named(inputs, "real/*.gguf")
    )
    models["spam"] = "in/models/spam.gguf"
    for name, path in models.items():
        for isa in sets[:1] if quick else (sets[0], sets[-1]):
            if "real/" not in path or isa != "reference":
                yield f"generate/{name}/{isa}", generate, path, isa, quick
        if name.startswith("chat-bpe" if quick else "chat-") or "Instruct" in name and not quick:
            yield f"chat/{name}", chat, path, sets[0]


def generate(place, path, isa, quick):
    start = ["generate", "-m", path, "-n", 20]
    for name, options in {
        "greedy": ["-t", 0, "-o", "t.snap"],
        "seeded": ["-S", 7, "-k", 0, "-p", 1, "--min-p", 0, "-t", 1.5],
        "grammar": ["-S", 3, "-e", 'root ::= [a-z ]+ "." | [0-9]+'],
        "penalties": [
            "-S",
            9,
            "--repeat-penalty",
            1.3,
            "--presence-penalty",
            0.5,
            "--frequency-penalty",
            0.25,
            "--bias-word",
            "the=2",
        ],
        "long": ["-t", 0, "--kv", "q8_0"],
        "least": ["-t", 0, "--least"],
        "stop": ["-t", 0, "--stop", "e", "--echo"],
    }.items():
        if name == "long" and "mqa" in path:
            continue
        prompt = (
            "The train leaves from platform four"
            if name != "long"
            else (place.inputs / "texts/prose.txt").read_text()[:500]
        )
        text = place.run(*start, *options, prompt, isa=isa, threads=1, good=(0, 1, 69))
        place.note(name, text, *(["t.snap"] if name == "greedy" else []))
        if quick and name == "grammar":
            return


def chat(place, path, isa):
    lines = b"Hello there\nWhat is new?\n  two  blanks, <|user|> as text\n"
    template = ("--template", "chatml") if "bpe" in path else ()
    for name, options in {
        "greedy": ["-t", 0],
        "seeded": ["-S", 4],
        "system": ["-S", 5, "--system", "Be brief."],
        "plain": ["-t", 0, "--template", "plain"],
    }.items():
        options = options if "--template" in options else [*options, *template]
        text = place.run(
            "chat",
            "-m",
            path,
            "-n",
            12,
            *options,
            "-o",
            f"{name}.jsonl",
            input=lines,
            isa=isa,
            threads=1,
        )
        place.note(name, text, f"{name}.jsonl")
    text = place.run(
        "generate",
        "-m",
        path,
        "-n",
        12,
        "-t",
        0,
        "--chat",
        *template,
        "--system",
        "Be brief.",
        "Hello",
        isa=isa,
        threads=1,
    )
    place.note("generate", text)
    place.note(
        "messages",
        place.run(
            "generate",
            "-m",
            path,
            "-n",
            12,
            "-t",
            0,
            *template,
            "--messages",
            "greedy.jsonl",
            "and?",
            isa=isa,
            threads=1,
        ),
    )


def perplexity_jobs(inputs, sets, quick):
    for name, path in (
        named(inputs, "models/plain-*.gguf") | {"spam": "in/models/spam.gguf"}
    ).items():
        for isa in sets[:1] if quick else sets:
            yield f"perplexity/{name}/{isa}", perplexity, path, isa
    for name, path in {} if quick else named(inputs, "real/*.gguf").items():
        yield f"perplexity/{name}/{sets[0]}", perplexity, path, sets[0]


def perplexity(place, path, isa):
    start = ["perplexity", "-m", path, "-c", 48, "-n", 4, "-j", 1]
    place.note("plain", place.run(*start, "in/texts/prose.txt", isa=isa))
    place.note(
        "json",
        place.run(*start, "--json", "--stride", 16, "--kv", "f32", "in/texts/prose.txt", isa=isa),
    )
    place.run(*start, "--save-logits", "m.base", "in/texts/prose.txt", isa=isa)
    place.note("kept", "m.base")
    place.run("gguf-quantize", path, "m.gguf", "Q4_0")
    place.note("kl", place.run("perplexity", "-m", "m.gguf", "--kl", "m.base", "-j", 1, isa=isa))


def tokenize_jobs(inputs, sets, quick):
    models = named(inputs, "real/*.gguf")
    models |= {} if quick else named(inputs, "models/chat-*.gguf") | named(inputs, "vocab/*.gguf")
    models |= {"spam": "in/models/spam.gguf", "plain-gemma3": "in/models/plain-gemma3.gguf"}
    for name, path in models.items():
        yield f"tokenize/{name}", tokenize, path, quick
    for name in [] if quick else sorted(p.name for p in (inputs / "folders").iterdir()):
        yield f"tokenize/folder-{name}", tokenize, f"in/folders/{name}", quick


def tokenize(place, path, quick):
    if "folders/" in path:
        place.run("gguf-convert", path, "-o", "m.gguf")
        path = "m.gguf"
    texts = sorted((place.inputs / "texts").glob("*.txt"))
    texts += [] if quick else sorted((place.inputs / "mails").glob("[hs][ap]a*.eml"))[::4]
    for text in texts:
        if quick and text.stem not in ("unicode", "prose", "marks"):
            continue
        tokens = place.run("tokenize", "-m", path, input=text.read_bytes(), good=(0, 69))
        if place.status:  # a vocabulary that is not supported
            place.note("", tokens)
            return
        back = place.run("tokenize", "-m", path, "-d", input=tokens)
        place.note(text.stem, tokens, back)
    for options in ("--special", "--no-marks --no-prefix", "--no-bos --eos"):
        tokens = place.run(
            "tokenize",
            "-m",
            path,
            *options.split(),
            input=(place.inputs / "texts/marks.txt").read_bytes(),
            good=(0, 65, 69),
        )
        place.note(
            options.replace(" ", ","),
            tokens,
            place.run("tokenize", "-m", path, "-d", "--special", input=tokens, good=(0, 65)),
        )


def mail_jobs(inputs, sets, quick):
    for path in sorted((inputs / "mails").glob("[hsc][ap][am]*.eml" if quick else "*.eml")):
        yield f"mail/{path.stem}", mail, path.name


def mail(place, name):
    data = (place.inputs / "mails" / name).read_bytes()
    for options in ("", "--fold", "--body -n 200"):
        place.note(
            options.replace(" ", ",") or "text",
            place.run("mail-text", *options.split(), input=data),
        )


# Questions

VERDICTS = (0, 1, 2)
QUESTIONS = ("language-is-english", "urgent", "sentiment")


def classify_jobs(inputs, sets, quick):
    mails = sorted(p.name for p in (inputs / "mails").glob("*.eml"))
    own = [name for name in mails if name.startswith(("ham-", "spam-"))]
    for isa in sets:
        for name in own if quick or isa != sets[0] else mails:
            yield f"classify/spam/{isa}/{name}", classify, ("in/mails/" + name,), isa
    for question in QUESTIONS[:1] if quick else QUESTIONS:
        for model, path in {
            "chat-llama": "in/models/chat-llama.gguf",
            **named(inputs, "real/*Instruct*.gguf"),
        }.items():
            for name in own[1:2] if quick or "real/" in path else own[::2]:
                options = ("-m", path, "-q", question, "in/mails/" + name)
                yield f"classify/{question}/{model}/{name}", classify, options, sets[0]
    yield "classify/many", classify_many, own
    yield "classify/learn", classify_learn, own
    yield "classify/cache", classify_cache, own[0]


def classify(place, options, isa):
    start = ("classify", "--no-cache", "--no-calibration")
    for threads in (1, 2) if isa != "reference" and "real/" not in str(options) else (2,):
        text = place.run(
            *start, "--json", "--mass", *options, isa=isa, threads=threads, good=VERDICTS
        )
        place.note(f"json-{threads}", without_time(text))
    if "real/" in str(options):
        return
    place.note("long", place.run(*start, "--long", *options, isa=isa, threads=1, good=VERDICTS))


def without_time(text):
    """JSON lines without the keys that hold a time."""
    if not text.strip():
        return text
    rows = [json.loads(line) for line in text.splitlines()]
    return json.dumps([{k: v for k, v in row.items() if k != "ms"} for row in rows]).encode()


def classify_many(place, names):
    mails = [(place.inputs / "mails" / name).read_bytes() for name in names]
    lines = b"".join(
        json.dumps({"id": i, "text": data.decode("latin-1")}).encode() + b"\n"
        for i, data in enumerate(mails)
    )
    out = place.run("classify", "--no-cache", "--no-calibration", "--jsonl", "--mail", input=lines)
    place.note("jsonl", without_time(out))
    out = place.run(
        "classify", "--no-cache", "--no-calibration", "--jsonl", input=lines + b"{\n", good=(65,)
    )
    place.note("jsonl-text", without_time(out))
    for name, data in zip(names, mails):
        place.note(
            f"pass-{name}",
            place.run("classify", "--no-cache", "--no-calibration", "--pass-through", input=data),
        )


def classify_learn(place, names):
    for i, name in enumerate(names):
        answer = "no" if name.startswith("ham") else "yes"
        out = place.run(
            "classify",
            "--no-cache",
            "--calibration",
            "c",
            "--learn",
            answer,
            f"in/mails/{name}",
            good=VERDICTS,
        )
        place.note(f"{i}", out, "c")
    place.note(
        "forget",
        place.run(
            "classify",
            "--no-cache",
            "--calibration",
            "c",
            "--forget",
            f"in/mails/{names[0]}",
            good=VERDICTS,
        ),
        "c",
    )
    place.note(
        "after",
        place.run(
            "classify",
            "--no-cache",
            "--calibration",
            "c",
            "--long",
            f"in/mails/{names[1]}",
            good=VERDICTS,
        ),
    )


def classify_cache(place, name):
    options = ("-m", "in/models/chat-llama.gguf", "-q", "urgent", f"in/mails/{name}")
    for i in range(2):
        text = place.run("classify", "--cache", "c", "--json", *options, good=VERDICTS, threads=1)
        files = sorted(f"c/{p.name}" for p in (place.here / "c").glob("*.kv"))
        place.note(f"{i}", without_time(text), " ".join(files).encode(), *files)


# The other commands


def other_jobs(inputs, sets, quick):
    for path in sorted((inputs / "streams").glob("sample-*.in")):
        yield f"sample/{path.stem}", sample, path
    for name in ("plain-llama", "chat-bpe", "plain-gemma3"):
        yield f"ring/{name}", ring, f"in/models/{name}.gguf", sets[0]
        yield f"cache/{name}", cache, f"in/models/{name}.gguf", sets[0]
    if not quick:
        yield "grammar/check", grammar
    for name, path in (named(inputs, "models/*.gguf") | named(inputs, "vocab/*.gguf")).items():
        if not quick or name.startswith(("plain", "spam")):
            yield f"dump/{name}", dump, path
    yield "dump/streams", dump_streams


def sample(place, path):
    for options in (
        "-S 1",
        "-t 0",
        "-S 2 -t 1 -k 0 -p 1 --min-p 0",
        "-S 3 -k 3 -p 1 --min-p 0",
        "-S 4 -k 0 -p 0.7",
        "-S 5 --min-p 0.2 -t 1.5",
        "-S 6 --repeat-penalty 1.3 --presence-penalty 0.5 --frequency-penalty 0.25 --last-n 8",
        "-t 0 --least",
        "-S 7 --least -k 3 --bias 5=-9.5 --bias 17=4",
        "-S 18446744073709551615 --logprob",
        "-S 8 -n 5",
    ):
        place.note(
            options.replace(" ", ","),
            place.run("sample", *options.split(), input=path.read_bytes()),
        )


def ring(place, path, isa):
    """The pipeline of one process a step; what each stage writes."""
    script = (
        "set -e; mkfifo ring; "
        "printf 'The train leaves' | tokenize -m $M | prefill -m $M -o p.snap; "
        "decode -m $M p.snap <ring | tee logits "
        "| grammar-filter -m $M -e 'root ::= [a-z ]+ \".\"' | tee kept "
        "| sample -S 5 -n 12 | tee ring | tee ids | tokenize -m $M -d >text || true"
    )
    bin = place._tree / "bin"
    env = {
        **os.environ,
        "PATH": f"{bin}:{os.environ['PATH']}",
        "M": path,
        "SLUICE_ISA": isa,
        "HOME": str(place._work),
        "LC_ALL": "C.UTF-8",
    }
    done = subprocess.run(
        ["sh", "-c", script], cwd=place.here, env=env, stdin=subprocess.DEVNULL, timeout=120
    )
    place.status = done.returncode
    for name in ("logits", "kept", "ids", "text"):
        place.note(name, name)


def cache(place, path, isa):
    """prefill --cache: the names and bytes of what is kept."""
    text = (place.inputs / "texts/prose.txt").read_bytes()
    for i, n in enumerate((200, 400, 300)):
        tokens = place.run("tokenize", "-m", path, input=text[:n])
        name = place.run("prefill", "-m", path, "--cache", "c", input=tokens, isa=isa, threads=1)
        place.note(f"{i}", name, name.decode().strip())


def grammar(place):
    for path in sorted((place.inputs / "grammars").glob("*.gbnf")):
        for text in (
            "{}",
            '{"a": [1, 2.5e3, "x\\u0041"]}',
            "[1, 2]",
            "1+2*(3-4)\n",
            "- a\n- b\n",
            "こんにちは",
            "",
            "x = 1\n",
        ):
            place.run(
                "grammar-filter",
                "-g",
                f"in/grammars/{path.name}",
                "--check",
                input=text.encode(),
                good=(0, 1),
            )
            place.note(f"{path.stem}-{sha(text.encode())[:6]}")


def dump(place, path):
    for name, options in {
        "plain": [],
        "json": ["--json"],
        "check": ["--check"],
        "values": ["--values", "token_embd.weight", "-n", 70],
        "hex": ["--hexdump", "token_embd.weight", "-n", 64],
        "full": ["--full", "--json"],
    }.items():
        if "golden" in path and name not in ("plain", "json"):
            continue
        place.note(name, place.run("gguf-dump", *options, path, good=(0, 1, 65)))


def dump_streams(place):
    model = "in/models/plain-llama.gguf"
    tokens = place.run("tokenize", "-m", model, input=b"Once upon a time")
    place.run("prefill", "-m", model, "-o", "s.snap", input=tokens)
    logits = place.run("decode", "-m", model, "s.snap", input=tokens, good=(0, 65))
    for name, data in (("ids", tokens), ("logits", logits)):
        for options in ([], ["--json"], ["--full"]):
            place.note(f"{name}{''.join(options)}", place.run("gguf-dump", *options, input=data))
    for options in ([], ["--json"], ["--check"]):
        place.note(f"snapshot{''.join(options)}", place.run("gguf-dump", *options, "s.snap"))


# Compare


def compare(old, new, common):
    a, b = (
        dict(line.split() for line in Path(path).read_text().splitlines()) for path in (old, new)
    )
    names = sorted(a.keys() & b.keys() if common else a.keys() | b.keys())
    wrong = [name for name in names if a.get(name) != b.get(name)]
    for name in wrong:
        print(name, "changed" if name in a and name in b else "gone" if name in a else "new")
    print(
        f"{len(a)} before, {len(b)} after: "
        + (f"{len(wrong)} differences" if wrong else f"{len(names)} identical")
    )
    return int(bool(wrong) or not names)


if __name__ == "__main__":
    sys.exit(main())
