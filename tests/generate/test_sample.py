"""The command sample: its ends, its errors, and seeded runs that are files."""

import array
import math
import os
import struct
import subprocess

import forked
import golden_sample
import pytest
from conftest import BIN, run

from sluice import stream

HEADER = stream.logits_header(bytes(range(32)), 5)
IDS = b"#ids 1 model=0001020304050607 vocab=5\n"
DENSE = array.array("f", [0, 1, 9, 2, 3]).tobytes()


def logits(*records):
    return HEADER + b"".join(records)


def dense(pos, flags=0):
    return stream.record(b"L", flags, pos, -1, DENSE)


def check(result, code, *, out=None, error=None):
    """`result` has `code`, `out`, and on stderr one line with `error` in it, or nothing."""
    assert result.returncode == code, result.stderr
    if out is not None:
        assert result.stdout == out
    assert result.stderr.count(b"\n") == (error is not None) and (error or b"") in result.stderr
    assert not result.stderr or result.stderr.startswith(b"sample: ")


END = stream.record(b"E", 0, 9, 2)


@pytest.mark.quick_cases(5)
@pytest.mark.parametrize("name", [*golden_sample.CASES, *golden_sample.STEP_CASES])
def test_seeded_runs_equal_the_golden_files(name):
    kind, options, _ = {**golden_sample.CASES, **golden_sample.STEP_CASES}[name]
    given = (golden_sample.GOLDEN / f"sample-{kind}.in").read_bytes()
    check(
        run("sample", *options.split(), input=given),
        0,
        out=(golden_sample.GOLDEN / f"sample-{name}.out").read_bytes(),
    )


def test_golden_files_are_what_the_script_writes():
    for kind in ("dense", "candidates"):
        assert (
            golden_sample.as_stream(kind)
            == (golden_sample.GOLDEN / f"sample-{kind}.in").read_bytes()
        )
    for name in ("default", "top-p", "penalties", "least", "bias"):
        kind, _, options = golden_sample.CASES[name]
        assert (
            golden_sample.expected(kind, **options)
            == (golden_sample.GOLDEN / f"sample-{name}.out").read_bytes()
        )
    for name, (kind, _, options) in golden_sample.STEP_CASES.items():
        assert (
            golden_sample.expected_of_steps(kind, **options)
            == (golden_sample.GOLDEN / f"sample-{name}.out").read_bytes()
        )


@pytest.mark.quick_cases(6)
@pytest.mark.parametrize(
    "records, options, out",
    [
        ([END], [], b"#end stop\n"),
        ([stream.record(b"E", stream.FULL, 9, 2)], [], b"#end full\n"),
        ([dense(0), dense(1), END], [], b"2\n2\n#end stop\n"),
        ([dense(0), dense(1), stream.record(b"E", stream.FULL, 9, 2)], [], b"2\n2\n#end full\n"),
        ([dense(0), dense(1, stream.LAST)], [], b"2\n2\n#end stop\n"),
        ([dense(0), dense(1)], ["-n", 2], b"2\n2\n#end length\n"),
        ([dense(0), dense(1, stream.LAST)], ["-n", 2], b"2\n2\n#end stop\n"),
        ([dense(0), END], ["-n", 2], b"2\n#end stop\n"),
        ([dense(0), dense(1), END], ["-n", -1], b"2\n2\n#end stop\n"),
        ([dense(0), END], ["-n", 1, "--bias", "2=-inf"], b"4\n#end length\n"),
        ([dense(0), END], ["-n", 1, "--bias", "2=-Infinity"], b"4\n#end length\n"),
        (
            [stream.record(b"C", stream.LAST, 0, 1, struct.pack("<ifif", 1, -2.0, 4, -1.0))],
            [],
            b"4\n#end stop\n",
        ),
    ],
)
def test_end_line_has_its_reason(records, options, out):
    check(run("sample", "-t", 0, *options, input=logits(*records)), 0, out=IDS + out)


OPEN, WHOLE = stream.CONSTRAINED, stream.CONSTRAINED | stream.MAY_END


def ends(flags):
    return stream.record(b"E", flags, 9, 2)


@pytest.mark.quick_cases(8)
@pytest.mark.parametrize(
    "records, options, out",
    [
        # the record after the last id that is asked for says whether the text may end there
        ([dense(0, OPEN), dense(1, OPEN), dense(2, OPEN)], ["-n", 2], b"2\n2\n#end cut\n"),
        ([dense(0, OPEN), dense(1, OPEN), dense(2, WHOLE)], ["-n", 2], b"2\n2\n#end length\n"),
        ([dense(0, WHOLE), dense(1, WHOLE), dense(2, OPEN)], ["-n", 2], b"2\n2\n#end cut\n"),
        ([dense(0, OPEN), dense(1, OPEN | stream.LAST)], ["-n", 2], b"2\n2\n#end stop\n"),
        ([dense(0, OPEN), ends(WHOLE)], ["-n", 1], b"2\n#end stop\n"),
        ([dense(0, OPEN), ends(WHOLE | stream.FULL)], ["-n", 1], b"2\n#end full\n"),
        ([dense(0, OPEN), ends(OPEN | stream.FULL)], ["-n", 1], b"2\n#end cut\n"),
        ([dense(0, OPEN), ends(OPEN | stream.LENGTH)], ["-n", 1], b"2\n#end cut\n"),
        # and so does the end of the logits
        ([dense(0, OPEN), ends(WHOLE)], [], b"2\n#end stop\n"),
        ([dense(0, OPEN), ends(OPEN | stream.FULL)], [], b"2\n#end cut\n"),
        ([dense(0, OPEN), ends(WHOLE | stream.FULL)], [], b"2\n#end full\n"),
        ([dense(0, OPEN), ends(OPEN | stream.LENGTH)], [], b"2\n#end cut\n"),
        ([dense(0, OPEN), ends(WHOLE | stream.LENGTH)], [], b"2\n#end length\n"),
        ([ends(OPEN | stream.FULL)], [], b"#end cut\n"),
        # of decode, where the tokens ended with "#end cut"; logits of a filter that marks nothing are
        # read as far as tokens are wanted
        ([dense(0), ends(stream.END_FLAGS["cut"])], [], b"2\n#end cut\n"),
        ([dense(0), dense(1)], ["-n", 2], b"2\n2\n#end length\n"),
    ],
)
def test_sample_exits_1_if_the_grammar_is_incomplete(records, options, out):
    check(forked.run("sample", "-t", 0, *options, input=logits(*records)), 0, out=IDS + out)


def test_last_token_is_written_before_its_record_is_read():
    """In the ring that record comes only after it."""
    with subprocess.Popen(
        [BIN / "sample", "-t", "0", "-n", "1"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        bufsize=0,
    ) as p:
        p.stdin.write(HEADER + dense(0, OPEN))
        assert p.stdout.readline() == IDS and p.stdout.readline() == b"2\n"
        p.stdin.write(dense(1, WHOLE))
        assert p.stdout.read() == b"#end length\n" and p.wait(60) == 0  # stdin is still open


def test_ids_are_written_before_the_next_record_is_read():
    with subprocess.Popen(
        [BIN / "sample", "-t", "0"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
    ) as p:
        p.stdin.write(HEADER)
        assert p.stdout.readline() == IDS
        for pos in range(3):
            p.stdin.write(dense(pos))
            assert p.stdout.readline() == b"2\n"
        p.stdin.write(dense(3, stream.LAST))
        assert p.stdout.read() == b"2\n#end stop\n" and p.wait(60) == 0  # stdin is still open


@pytest.mark.quick_cases(11)
@pytest.mark.parametrize(
    "given, error",
    [
        (b"", b"is empty"),
        (HEADER[:20], b"header cut at byte 20"),
        (b"\x00" * 64, b"not a stream of logits"),
        (HEADER, b"record 1: the stream was cut"),
        (logits(dense(0)), b"record 2: the stream was cut"),
        (logits(dense(0))[:-1], b"record 1: payload cut at byte 19 of 20"),
        (logits(dense(0))[:40], b"record 1: the stream was cut"),
        (logits(stream.record(b"X", 0, 0, 0)), b"record 1: type b'X'"),
        (logits(stream.record(b"C", 0, 0, 0, struct.pack("<ifif", 3, 0, 1, 0))), b"do not ascend"),
        (logits(stream.record(b"C", 0, 0, 0)), b"payload of 0 bytes"),
        (
            logits(
                stream.record(b"L", 0, 7, 0, array.array("f", [0, 1, float("nan"), 0, 0]).tobytes())
            ),
            b"token 2 at position 7 is not finite",
        ),
        (logits(dense(0, stream.MAY_END)), b"record 1: may-end without constrained"),
        (logits(dense(0, 32)), b"record 1: reserved bits"),
        (logits(dense(0, 128 | OPEN)), b"record 1: reserved bits"),
        (logits(dense(0, OPEN), dense(1)), b"record 2: constrained unlike"),
        (logits(dense(0), dense(1, WHOLE)), b"record 2: constrained unlike"),
        (logits(dense(0, OPEN), ends(OPEN)), b"record 2: ends the text as complete"),
        (logits(dense(0, OPEN), ends(OPEN | stream.LAST)), b"record 2: ends the text as complete"),
        (logits(dense(0, OPEN), ends(stream.MAY_END)), b"record 2: may-end without constrained"),
        (
            logits(dense(0, WHOLE), stream.record(b"E", WHOLE, 1 << 31, 0)),
            b"record 2: pos 2147483648",
        ),
        (logits(dense(0, WHOLE), stream.record(b"E", WHOLE, 1, 5)), b"record 2: prev 5"),
        (logits(dense(0, WHOLE), dense(1, WHOLE)[:-1]), b"record 2: payload cut"),
    ],
)
def test_bad_input_exits_65_without_an_end(given, error):
    result = forked.run("sample", "-t", 0, input=given)
    check(result, 65, error=error)
    assert b"#end" not in result.stdout


@pytest.mark.parametrize(
    "rest",
    [
        b"",
        dense(1, OPEN)[:7],
        dense(1, OPEN)[:-1],
        dense(1),
        ends(OPEN),
        ends(OPEN | stream.FULL)[:-1],
    ],
)
def test_bad_input_in_place_of_the_last_marks_exits_65_without_an_end(rest):
    """All tokens that were asked for are there; a filter that was killed must not look like a text
    that ended.
    """
    result = run("sample", "-t", 0, "-n", 1, input=logits(dense(0, OPEN)) + rest)
    check(result, 65, out=IDS + b"2\n", error=b"record 2")


@pytest.mark.quick_cases(11)
@pytest.mark.parametrize(
    "options",
    [
        ["-t", "nan"],
        ["-t", "-1"],
        ["-t", "inf"],
        ["-p", "1.5"],
        ["--min-p", "nan"],
        ["-k", "-1"],
        ["-n", "0"],
        ["-n", "-2"],
        ["-S", "-2"],
        ["--bias", "1=inf"],
        ["--bias", "1=-infin"],
        ["-S", str(2**64)],
        ["--repeat-penalty", "0"],
        ["--last-n", "-1"],
        ["--nonsense"],
        ["file"],
        ["--bias", "x=1"],
        ["--bias", "1"],
        ["--bias", "1=inf"],
        ["--bias", "-1=1"],
        ["--bias", "5=1"],
        ["--bias", "1=1e7"],
    ],
)
def test_bad_usage_exits_64(options):
    check(forked.run("sample", *options, input=logits(END)), 64, out=b"", error=b"--help")


def test_full_disk_exits_74():
    with open("/dev/full", "wb") as full:
        r = subprocess.run(
            [BIN / "sample"], input=logits(dense(0), END), stdout=full, stderr=subprocess.PIPE
        )
    assert r.returncode == 74 and r.stderr.count(b"\n") == 1


def test_data_after_the_end_of_a_stream_is_an_error():
    """As of two streams that were joined: the second is not dropped in silence."""
    one = logits(dense(0), dense(1), END)
    check(
        run("sample", "-t", 0, input=one + one),
        65,
        error=b"standard input: there is more after the E record",
    )
    done = run("sample", "-t", 0, input=one)
    check(done, 0)
    assert done.stdout.endswith(b"\n2\n2\n#end stop\n")


def test_closed_stdout_exits_74():
    r = subprocess.run(
        ["sh", "-c", f"exec '{BIN}/sample' >&-"], input=logits(dense(0), END), capture_output=True
    )
    assert r.returncode == 74 and r.stderr.count(b"\n") == 1


def test_closed_reader_is_no_complete_answer():
    reader, writer = os.pipe()
    os.close(reader)
    r = subprocess.run(
        [BIN / "sample"], input=logits(dense(0), END), stdout=writer, stderr=subprocess.PIPE
    )
    os.close(writer)
    assert r.returncode == 74 and r.stderr == b""


def test_logprob_is_a_second_column_that_readers_take(tmp_path):
    even = stream.record(b"C", 0, 0, -1, struct.pack("<ifif", 1, 3.0, 4, 3.0))
    r = run("sample", "-t", 0, "--logprob", input=logits(even, dense(1), END))
    check(
        r,
        0,
        out=IDS
        + b"1\t%.6f\n2\t%.6f\n#end stop\n"
        % (-math.log(2), 9 - math.log(sum(map(math.exp, (0, 1, 9, 2, 3))))),
    )
    (tmp_path / "ids").write_bytes(r.stdout)
    with open(tmp_path / "ids", "rb") as f:
        reader = stream.TokenReader(f.fileno())
        assert list(reader) == [1, 2] and reader.reason == "stop"


def test_without_a_seed_the_one_reported_gives_the_run_again():
    flat = stream.record(b"L", 0, 0, -1, bytes(20))
    given = logits(*[flat[:8] + struct.pack("<I", pos) + flat[12:] for pos in range(40)], END)
    a, b = run("sample", "-v", input=given), run("sample", "-v", "-S", -1, input=given)
    assert a.returncode == 0 and a.stdout != b.stdout
    fields = dict(f.split("=") for f in a.stderr.decode().split()[1:])
    assert fields["tokens"] == "40" and fields["end"] == "stop"
    assert run("sample", "-S", fields["seed"], input=given).stdout == a.stdout


def test_seeded_sampling_resumes():
    given = (golden_sample.GOLDEN / "sample-dense.in").read_bytes()
    record_bytes = 16 + 4 * golden_sample.N_VOCAB
    cut = 32 + 20 * record_bytes
    whole = run("sample", "-S", 8, input=given).stdout.split(b"\n")
    rest = run("sample", "-S", 8, input=given[:32] + given[cut:]).stdout.split(b"\n")
    assert rest[1:] == whole[21:]
