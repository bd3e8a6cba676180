"""grammar-filter as a command: records in, records out, and every way in which an answer must not
look complete.
"""

import os
import random
import struct
import subprocess

import gguf_writer
import pytest
from conftest import BIN, DATA, ROOT, SPAM_MODEL, run

from sluice import gguf, stream
from sluice.grammar import matcher
from sluice.tokenizer import vocabulary

PIECES = [("<unk>", 2), ("<s>", 3), ("</s>", 3)] + [
    (t, 1) for t in ("yes", "no", "y", "es", "n", "o", "!", "maybe", "\u2581yes", "e", "s", "yes!")
]
ID = {text: i for i, (text, _) in enumerate(PIECES)}
END = ID["</s>"]
YESNO = 'root ::= "yes" | "no"'
N = len(PIECES)
OPEN = stream.CONSTRAINED  # the answer up to here is not complete
WHOLE = stream.CONSTRAINED | stream.MAY_END  # it is


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("model") / "tiny.gguf", PIECES)


def write_model(path, pieces):
    key = "tokenizer.ggml."
    gguf_writer.write_gguf(
        path,
        {
            "general.architecture": ("string", "llama"),
            key + "model": ("string", "llama"),
            key + "tokens": ("[string]", [t for t, _ in pieces]),
            key + "scores": ("[f32]", [-float(i) for i in range(len(pieces))]),
            key + "token_type": ("[i32]", [t for _, t in pieces]),
            key + "unknown_token_id": ("u32", 0),
            key + "bos_token_id": ("u32", 1),
            key + "eos_token_id": ("u32", 2),
        },
        [],
    )
    return str(path)


def logits(seed):
    return [random.Random(seed).uniform(-9, 9) for _ in range(N)]


def dense(prev, seed=0, pos=7, flags=0):
    return stream.record(b"L", flags, pos, prev, struct.pack(f"<{N}f", *logits(seed)))


def sparse(prev, tokens, pos=7):
    return stream.record(
        b"C", 0, pos, prev, b"".join(struct.pack("<if", i, float(i)) for i in tokens)
    )


def end(flags=0, prev=-1, pos=9):
    return stream.record(b"E", flags, pos, prev)


def header(model, n_vocab=N):
    return stream.logits_header(gguf.File(model).id, n_vocab)


def filtered(model, text, *records, **kwargs):
    """The finished command, and its records as (kind, flags, pos, prev, tokens)."""
    done = run(
        "grammar-filter", "-m", model, "-e", text, input=header(model) + b"".join(records), **kwargs
    )
    return done, parsed(done.stdout)


def parsed(data):
    assert data[:6] in (b"LOGITS", b"")
    out, at = [], stream.HEADER.size
    while at < len(data):
        kind, flags, _, n_bytes, pos, prev = stream.RECORD.unpack_from(data, at)
        at += stream.RECORD.size
        out.append(
            (
                chr(kind),
                flags,
                pos,
                prev,
                [i for i, _ in struct.iter_unpack("<if", data[at : at + n_bytes])],
            )
        )
        at += n_bytes
    return out


def refused(done, code, *parts):
    """One line on stderr with `parts`, the exit code, and no end mark on stdout."""
    assert done.returncode == code, done.stderr
    lines = done.stderr.decode().splitlines()
    assert (
        len(lines) == 1 and lines[0].startswith("grammar-filter: ") and "Traceback" not in lines[0]
    )
    for part in parts:
        assert part in lines[0], lines[0]
    assert "E" not in [r[0] for r in parsed(done.stdout)]


def tokens(*texts):
    return sorted(ID[t] for t in texts)


def test_answer_of_one_id(model):
    # the third is never read
    done, records = filtered(model, YESNO, dense(5), dense(ID["yes"], 1, 8), dense(9))
    assert (done.returncode, done.stderr) == (0, b"")
    assert records == [
        ("C", OPEN, 7, 5, tokens("yes", "no", "y", "n")),
        ("E", WHOLE, 8, ID["yes"], []),
    ]


def test_answer_of_several_ids_and_every_spelling(model):
    rules = 'root ::= "yes" | "yoo" | "no"'
    done, records = filtered(model, rules, dense(-1), dense(ID["y"], 1, 8), dense(ID["es"], 2, 9))
    assert done.returncode == 0, done.stderr
    assert records == [
        ("C", OPEN, 7, -1, tokens("yes", "no", "y", "n")),
        ("C", OPEN, 8, ID["y"], tokens("es", "e", "o")),
        ("E", WHOLE, 9, ID["es"], []),
    ]


def test_text_without_a_choice_is_one_token_a_record(model):
    """The token of the vocabulary's own rules, with its logit; the last one ends the text."""
    done, records = filtered(model, YESNO, dense(-1), dense(ID["y"], 1, 8))
    assert done.returncode == 0, done.stderr
    assert records[1:] == [
        ("C", OPEN | stream.LAST, 8, ID["y"], tokens("es")),
        ("E", WHOLE, 9, -1, []),
    ]


def test_data_after_the_end_of_a_stream_is_an_error(model):
    two = end(flags=stream.FULL, prev=-1, pos=7) + header(model) + dense(-1)
    done, records = filtered(model, 'root ::= "yes" "!"?', dense(-1), two)
    assert (
        done.returncode == 65
        and done.stderr == b"grammar-filter: standard input: there is more after the E record\n"
    )
    assert [r[0] for r in records] == ["C", "E"]


def test_last_record_ends_the_stream_at_once(model):
    # nothing after it: no E was needed
    done, records = filtered(model, YESNO, dense(3), dense(ID["n"], 1, 8))
    assert done.returncode == 0, done.stderr
    assert records == [
        ("C", OPEN, 7, 3, tokens("yes", "no", "y", "n")),
        ("C", OPEN | stream.LAST, 8, ID["n"], tokens("o")),
        ("E", WHOLE, 9, -1, []),
    ]


def test_logits_and_header_are_unchanged(model):
    odd = struct.pack("<I", 0x7FC01234)
    raw = bytearray(struct.pack(f"<{N}f", *logits(4)))
    raw[4 * ID["no"] : 4 * ID["no"] + 4] = odd
    done = run(
        "grammar-filter",
        "-m",
        model,
        "-e",
        YESNO,
        input=header(model) + stream.record(b"L", 0, 1, -1, raw) + end(stream.FULL),
    )
    assert done.returncode == 0 and done.stdout[:32] == header(model)
    for i, (id, bits) in enumerate(struct.iter_unpack("<i4s", done.stdout[48 : 48 + 32])):
        assert id == tokens("yes", "no", "y", "n")[i] and bits == raw[4 * id : 4 * id + 4]


def test_prev_of_the_first_record_is_no_part_of_the_answer(model):
    for prev in (-1, ID["maybe"], END, ID["yes"]):
        _, records = filtered(model, YESNO, dense(prev), end(stream.FULL))
        assert records[0] == ("C", OPEN, 7, prev, tokens("yes", "no", "y", "n"))


def test_candidates_are_filtered_too(model):
    done, records = filtered(
        model, YESNO, sparse(-1, [END, ID["yes"], ID["no"], ID["!"]]), sparse(ID["no"], [END], 8)
    )
    assert done.returncode == 0, done.stderr
    assert [r[4] for r in records] == [tokens("yes", "no"), []]


def test_end_ids_are_allowed_exactly_when_complete(model):
    done, records = filtered(
        model,
        'root ::= "yes" "!"*',
        dense(-1),
        dense(ID["yes"], 1, 8),
        dense(ID["!"], 2, 9),
        end(prev=END),
    )
    assert done.returncode == 0
    assert [r[4] for r in records] == [
        tokens("yes", "y", "yes!"),
        tokens("!", "</s>"),
        tokens("!", "</s>"),
        [],
    ]
    assert [r[1] for r in records] == [OPEN, WHOLE, WHOLE, WHOLE]
    assert records[-1] == ("E", WHOLE, 9, END, [])


def test_chosen_end_id_ends_the_stream(model):
    done, records = filtered(model, 'root ::= "yes" "!"*', dense(-1), dense(ID["yes"]), dense(END))
    assert done.returncode == 0 and records[-1][0] == "E"


def test_grammar_of_nothing_ends_at_once(model):
    done, records = filtered(model, "root ::= ", dense(4))
    assert done.returncode == 0 and records == [("E", WHOLE, 7, 4, [])]


def test_full_cache_is_passed_on(model):
    for id, marks in ((ID["y"], OPEN), (ID["yes"], WHOLE)):
        done, records = filtered(model, YESNO, dense(-1), end(stream.FULL, id, 9))
        assert done.returncode == 0 and records[-1] == ("E", stream.FULL | marks, 9, id, [])


@pytest.mark.full
def test_end_record_tells_of_an_id_that_was_chosen_or_of_none(model):
    """By its position: behind the record before it, or that of the record itself."""
    for flags in (stream.FULL, stream.LENGTH, stream.END_FLAGS["cut"]):
        for pos, id, marks in (
            (7, -1, OPEN),
            (8, ID["y"], OPEN),
            (8, -1, OPEN),
            (8, ID["no"], WHOLE),
        ):
            marks &= OPEN if flags & stream.CONSTRAINED else WHOLE  # sample said that it was cut
            done, records = filtered(model, YESNO, dense(-1), end(flags, id, pos))
            assert (done.returncode, done.stderr) == (0, b"")
            assert records[-1] == ("E", flags | marks, pos, id, [])
    done, records = filtered(model, YESNO, dense(-1), end(0, ID["yes"], 8))  # a text of one id
    assert done.returncode == 0 and records[-1] == ("E", WHOLE, 8, ID["yes"], [])
    for wrong, says in (
        (ID["maybe"], "was chosen"),
        (ID["yes!"], "was chosen"),
        (END, "ends the text before"),
    ):
        for flags in (0, stream.FULL, stream.LENGTH):
            done, _ = filtered(model, YESNO, dense(-1), end(flags, wrong, 8))
            refused(done, 65, f"record 2: token {wrong} {says}")


@pytest.mark.full
def test_text_may_end_if_all_filters_accept_it(model):
    """Two grammars, one behind the other."""

    def both(first, second, *records):
        done, _ = filtered(model, first, *records)
        assert done.returncode == 0, done.stderr
        done = run("grammar-filter", "-m", model, "-e", second, input=done.stdout)
        return done, [r[1:2] + r[4:] for r in parsed(done.stdout)]

    more, once = 'root ::= "yes" "!"*', 'root ::= "yes" "!"?'
    given = dense(-1), dense(ID["yes"], 1, 8), dense(ID["!"], 2, 9), end(0, END, 10)
    for first, second in ((more, more), (more, once), (once, more)):
        done, records = both(first, second, *given)
        assert done.returncode == 0, done.stderr
        assert records[:2] == [(OPEN, tokens("yes", "y", "yes!")), (WHOLE, tokens("!", "</s>"))]
        assert records[-1] == (WHOLE, [])
    done, records = both(
        'root ::= "yes" "!" "!"?', more, *given[:2], end(stream.LENGTH, ID["yes"], 8)
    )
    assert done.returncode == 0
    assert records == [
        (OPEN, tokens("yes!")),
        (OPEN, tokens("!")),
        (OPEN | stream.LENGTH, []),
    ]
    done, records = both("root ::= [a-z] [a-z!]*", more, *given[:1], end(stream.FULL, ID["y"], 8))
    assert done.returncode == 0 and records[-1] == (OPEN | stream.FULL, [])
    done, records = both('root ::= "yes" "!"+', 'root ::= "yes"', *given[:3], end(0, END, 10))
    refused(done, 65, "record 1: none of the candidates")


def test_complete_text_without_continuation_has_ended(model):
    """The vocabulary has no id for what may follow, or none of the candidates is one: what is there
    is complete.
    """
    done, records = filtered(
        model, 'root ::= "yes" "?"*', dense(-1), sparse(ID["yes"], [ID["no"]], 8)
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert records[1:] == [("E", WHOLE, 8, ID["yes"], [])]


def test_upstream_that_stops_early_is_refused(model):
    refused(
        filtered(model, YESNO, dense(-1), end())[0],
        65,
        "standard input: record 2",
        "before the text is complete",
    )
    refused(filtered(model, YESNO, end())[0], 65, "record 1")
    refused(filtered(model, YESNO, dense(-1), end(prev=END))[0], 65, "record 2")
    refused(
        filtered(model, YESNO, dense(-1), dense(END))[0],
        65,
        "record 2",
        "ends the text before it is complete",
    )


def test_id_that_was_not_allowed_is_refused(model):
    for wrong in ("maybe", "\u2581yes", "<s>", "<unk>", "yes!"):
        refused(
            filtered(model, YESNO, dense(-1), dense(ID[wrong]))[0],
            65,
            f"record 2: token {ID[wrong]} was chosen",
        )
    refused(filtered(model, YESNO, dense(-1), dense(-1))[0], 65, "record 2: token -1")


def test_record_without_an_allowed_candidate_is_refused(model):
    refused(
        filtered(model, YESNO, sparse(-1, [END, ID["!"]]))[0],
        65,
        "record 1: none of the candidates",
    )
    refused(
        filtered(model, 'root ::= "zebra"', dense(-1))[0], 65, "record 1: none of the candidates"
    )


def test_position_that_has_no_next_is_refused(model):
    refused(
        filtered(model, YESNO, sparse(-1, [ID["yes"]], pos=(1 << 32) - 1))[0],
        65,
        "record 1: pos 4294967295",
    )


@pytest.mark.parametrize("n_bytes", [0, 5, 31, 32, 40, 48, 60])
def test_cut_stream_is_refused(model, n_bytes):
    data = (header(model) + dense(-1) + dense(ID["y"]))[:n_bytes]
    refused(run("grammar-filter", "-m", model, "-e", YESNO, input=data), 65, "standard input")


def test_stream_cut_between_records_is_refused(model):
    refused(
        filtered(model, YESNO, dense(-1))[0], 65, "standard input: record 2: the stream was cut"
    )


def test_wrong_streams_and_models_are_refused(model, tmp_path):
    other = write_model(tmp_path / "other.gguf", PIECES + [("more", 1)])
    refused(
        run("grammar-filter", "-m", other, "-e", YESNO, input=header(model) + dense(-1)),
        65,
        "logits made with model",
    )
    refused(
        run("grammar-filter", "-m", model, "-e", YESNO, input=header(model, N + 1)),
        65,
        f"vocabulary size {N + 1}",
    )
    refused(
        run("grammar-filter", "-m", model, "-e", YESNO, input=b"#ids 1 model=00 vocab=5\n" * 9),
        65,
        "not a stream of logits",
    )
    refused(run("grammar-filter", "-m", tmp_path / "none", "-e", YESNO), 66, "none: No such file")
    (tmp_path / "bad").write_bytes(b"GGUFfooo" * 9)
    refused(run("grammar-filter", "-m", tmp_path / "bad", "-e", YESNO), 69, "bad: ")
    (tmp_path / "empty").write_bytes(b"")
    refused(run("grammar-filter", "-m", tmp_path / "empty", "-e", YESNO), 65, "empty: ")


def test_bad_grammar_is_refused_before_anything_is_written(model, tmp_path):
    data = header(model) + dense(-1)
    for text, code, part in [
        ('root ::= ("a"', 65, "line 1, column 10"),
        ("root ::= root", 65, "line 1, column 1"),
        ("root ::= <nothing>", 65, "no token of the model"),
        ('root ::= "a"{5,0}', 65, "column 13"),
        ("root ::= " + "(" * 60_000, 65, "column 266"),
        ("", 65, '"root"'),
    ]:
        path = tmp_path / "g.gbnf"
        path.write_text(text)
        done = run("grammar-filter", "-m", model, "-g", path, input=data)
        refused(done, code, f"{path}: ", part)
        assert done.stdout == b""
    path.write_bytes(b'root ::= "\xff"')
    refused(
        run("grammar-filter", "-m", model, "-g", path, input=data),
        65,
        "line 1, column 11: not valid UTF-8",
    )
    refused(
        run("grammar-filter", "-m", model, "-g", tmp_path / "none", input=data),
        66,
        "none: No such file",
    )
    refused(run("grammar-filter", "-m", model, "-g", tmp_path, input=data), 65, "is a directory")
    refused(
        run("grammar-filter", "-m", model, "-g", "/dev/zero", input=data), 65, "more than 1 MiB"
    )


def test_usage(model):
    for argv in (
        ["-m", model],
        ["-m", model, "-g", "x", "-e", YESNO],
        ["-e", YESNO],
        ["-m", model, "-e", YESNO, "extra"],
        ["--nope"],
    ):
        env = {k: v for k, v in os.environ.items() if k != "MODEL"}
        refused(run("grammar-filter", *argv, env=env), 64, "--help")
    assert run("grammar-filter", "-h").returncode == 0


def test_full_disk_and_closed_files(model):
    data = header(model) + dense(-1) + end(stream.FULL)
    with open("/dev/full", "wb") as full:
        done = run("grammar-filter", "-m", model, "-e", YESNO, input=data, stdout=full)
    assert done.returncode == 74 and done.stderr.count(b"\n") == 1
    command = f'"{BIN}/grammar-filter" -m "{model}" -e \'{YESNO}\''
    for redirection in (">&-", "<&-"):
        done = subprocess.run(
            ["sh", "-c", f"{command} {redirection}"], input=data, capture_output=True, timeout=60
        )
        assert done.returncode == 74 and done.stderr.count(b"\n") == 1
    reader, writer = os.pipe()
    os.close(reader)
    done = run("grammar-filter", "-m", model, "-e", YESNO, input=data, stdout=writer)
    os.close(writer)
    assert (done.returncode, done.stderr) == (74, b"")  # the reader went away: quietly


def test_each_record_is_answered_before_the_next_is_read(model):
    """In a ring the next record comes only after the answer: buffering would stand still."""
    with subprocess.Popen(
        [BIN / "grammar-filter", "-m", model, "-e", YESNO],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as p:
        p.stdin.write(header(model))
        p.stdin.flush()
        assert stream.read_exactly(p.stdout.fileno(), 32) == header(model)
        p.stdin.write(dense(-1))
        p.stdin.flush()
        assert len(stream.read_exactly(p.stdout.fileno(), 16 + 4 * 8)) == 48
        p.stdin.write(dense(ID["y"]))
        p.stdin.flush()
        assert len(stream.read_exactly(p.stdout.fileno(), 16 + 8)) == 24
        assert stream.read_exactly(p.stdout.fileno(), 17)[:1] == b"E"
        assert p.wait(60) == 0


def test_verbose_is_one_line(model):
    done = run(
        "grammar-filter",
        "-v",
        "-m",
        model,
        "-e",
        YESNO,
        input=header(model) + dense(-1) + dense(ID["no"]),
    )
    assert (
        done.returncode == 0
        and done.stderr.startswith(b"grammar-filter: records=1 candidates=4 forced=0 ms=")
        and done.stderr.count(b"\n") == 1
    )


@pytest.mark.parametrize(
    "text, code",
    [
        (b"yes", 0),
        (b"no", 0),
        (b"", 1),
        (b"ye", 1),
        (b"yes\n", 1),
        (b"\xff", 1),
        (b"no" * 100_000, 1),
    ],
)
def test_check_says_by_its_status(text, code):
    done = run("grammar-filter", "-g", ROOT / "configs/yesno.gbnf", "--check", input=text)
    assert (done.returncode, done.stdout, done.stderr) == (code, b"", b"")


def test_check_reads_more_than_one_chunk():
    text = b"[" * 100_000 + b"]" * 100_000
    assert (
        run("grammar-filter", "-e", 'root ::= "[" root? "]"', "--check", input=text).returncode == 0
    )
    assert (
        run(
            "grammar-filter", "-e", 'root ::= "[" root? "]"', "--check", input=text + b"]"
        ).returncode
        == 1
    )


@pytest.mark.full
def test_too_ambiguous_text_is_refused():
    refused(
        run(
            "grammar-filter",
            "-e",
            'root ::= "a" root | "a" root "b" | "a"',
            "--check",
            input=b"a" * 9000,
        ),
        65,
        "--grammar-text: too ambiguous",
    )


@pytest.mark.parametrize(
    "path", [DATA / "models" / "stories260K.gguf", SPAM_MODEL], ids=lambda path: path.stem
)
@pytest.mark.full
def test_masks_of_real_vocabularies(path):
    words = vocabulary.Vocab(gguf.File(str(path)))
    texts = [words.bytes_of(i) for i in range(words.n_vocab)]
    for name, prefixes in (
        ("json", [b"", b"{", b'{"a', b'{"a": [1, {"b": "', b'{"a":1']),
        ("list", [b"", b"- ", b"- a"]),
    ):
        rules = matcher.read(str(DATA / "grammars" / f"{name}.gbnf"))
        for prefix in prefixes:
            m = matcher.Matcher(rules, words)
            assert m.feed(prefix)
            bits, _ = m.allowed()
            for i, text in enumerate(texts):
                one = matcher.Matcher(rules)
                expected = bool(text) and i not in words.eog and one.feed(prefix + text)
                if i in words.eog:
                    expected = m.complete
                assert bits[i // 64] >> i % 64 & 1 == expected, (prefix, i, text)
