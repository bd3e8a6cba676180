"""Small files that are read whole; what the flags of a record and `#end` say to each other."""

import os
import threading

import pytest

from sluice import faults, stream


@pytest.mark.parametrize(
    "most, words",
    [(10, "more than 10 bytes"), (65536, "more than 65536 bytes"), (1 << 20, "more than 1 MiB")],
)
def test_read_file_stops_at_its_limit(tmp_path, most, words):
    path = str(tmp_path / "f")
    for n in (0, 1, most):
        (tmp_path / "f").write_bytes(b"a" * n)
        assert stream.read_file(path, most) == b"a" * n
    for longer in (path, "/dev/zero"):  # which has no end
        (tmp_path / "f").write_bytes(b"a" * (most + 1))
        with pytest.raises(faults.Error) as e:
            stream.read_file(longer, most)
        assert (e.value.code, str(e.value)) == (65, f"{longer}: {words}")


def test_read_file_reads_a_pipe_to_its_end_and_refuses_a_directory(tmp_path):
    path = str(tmp_path / "fifo")
    os.mkfifo(path)
    writer = threading.Thread(target=lambda: (tmp_path / "fifo").write_bytes(b"one\ntwo\n"))
    writer.start()
    assert stream.read_file(path, 100) == b"one\ntwo\n"
    writer.join()
    with pytest.raises(faults.Error) as e:
        stream.read_file(str(tmp_path), 100)
    assert (e.value.code, str(e.value)) == (65, f"{tmp_path}: is a directory")
    with pytest.raises(FileNotFoundError):
        stream.read_file(str(tmp_path / "none"), 100)


def test_end_reasons_round_trip():
    """`#end cut` becomes an E record, and that becomes `#end cut`; text and stop are a text's own
    end.
    """
    for reason in stream.REASONS:
        end = stream.Record(b"E", stream.END_FLAGS.get(reason, 0), 9, 2, b"")
        assert end.end_before() == {"text": "stop"}.get(reason, reason)
        assert stream.tokens_end(reason) == f"#end {reason}\n".encode()


def test_older_readers_refuse_the_marks():
    """They checked reserved bits: no mark is one that they knew."""
    assert not (stream.CONSTRAINED | stream.MAY_END) & (stream.LAST | stream.FULL | stream.LENGTH)
    assert stream.VERSION == 1
