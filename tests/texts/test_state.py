"""A run that was killed goes on with no answer twice and none missing."""

import os

import pytest

from sluice.faults import DataError, Error
from sluice.texts.state import State

KEY = {"model": "8af9", "question": "12ab"}


@pytest.fixture
def out(tmp_path):
    fd = os.open(tmp_path / "out", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    yield fd
    os.close(fd)


def run(path, out, texts, stop=None, torn=b""):
    """Answer `texts` as a run that is killed after writing `stop` answers and `torn`."""
    state = State(str(path), KEY, out)
    for i, text in enumerate(texts[state.n :], state.n):
        if i == stop:
            os.write(out, torn)
            break
        os.write(out, text)
        state.done(1)
    state.close()


@pytest.mark.parametrize("torn", [b"", b"5", b"5\n6\n7"])
def test_a_run_in_pieces_writes_what_one_run_writes(tmp_path, out, torn):
    texts = [b"%d\n" % i for i in range(20)]
    for stop in (0, 5, 6, 13, None):
        run(tmp_path / "state", out, texts, stop, torn)
    assert (tmp_path / "out").read_bytes() == b"".join(texts)
    run(tmp_path / "state", out, texts)
    assert (tmp_path / "out").read_bytes() == b"".join(texts)


def test_a_state_that_was_cut_anywhere_is_taken_up(tmp_path, out):
    texts = [b"%d\n" % i for i in range(9)]
    run(tmp_path / "state", out, texts)
    whole = (tmp_path / "state").read_bytes()
    for n in range(whole.find(b"\n") + 1, len(whole)):
        (tmp_path / "state").write_bytes(whole[:n])
        run(tmp_path / "state", out, texts)
        assert (tmp_path / "out").read_bytes() == b"".join(texts), n


def test_what_was_there_before_stays(tmp_path, out):
    os.write(out, b"before\n")
    run(tmp_path / "state", out, [b"1\n", b"2\n"], stop=1, torn=b"2")
    run(tmp_path / "state", out, [b"1\n", b"2\n"])
    assert (tmp_path / "out").read_bytes() == b"before\n1\n2\n"


def test_names_that_are_done_are_kept(tmp_path, out):
    state = State(str(tmp_path / "state"), KEY, out)
    state.done(2, ["a", "b"])
    state.close()
    again = State(str(tmp_path / "state"), KEY, out)
    assert (again.n, again.names) == (2, {"a", "b"})
    again.close()


def test_another_run_and_another_output_are_refused(tmp_path, out):
    path = str(tmp_path / "state")
    run(path, out, [b"1\n"])
    with pytest.raises(DataError, match="another model"):
        State(path, {**KEY, "model": "ffff"}, out)
    os.ftruncate(out, 0)
    with pytest.raises(DataError, match="2 bytes were written, but the output has 0"):
        State(path, KEY, out)
    (tmp_path / "state").write_bytes(b'{"x": 1}\n[]\n')
    with pytest.raises(DataError, match="damaged"):
        State(path, KEY, out)


def test_what_was_learned_meanwhile_is_said_once(tmp_path, out):
    path = str(tmp_path / "state")

    def is_said(learned):
        state = State(path, KEY, out, learned)
        os.write(out, b"answer\n")
        state.done(1)
        state.close()
        return state.has_learned

    assert [is_said(x) for x in ("a", "a", "b", "b", None, "b", "-")] == [0, 0, 1, 0, 0, 0, 1]
    whole = (tmp_path / "state").read_bytes()
    (tmp_path / "state").write_bytes(whole[: whole.rindex(b"learned") + 5])  # killed at that line
    assert [is_said(x) for x in ("-", "-")] == [1, 0]
    assert State(path, KEY, out, "-").n == 8  # seven less the torn one, and two


def test_two_runs_do_not_share_a_state(tmp_path, out):
    state = State(str(tmp_path / "state"), KEY, out)
    with pytest.raises(DataError, match="another run"):
        State(str(tmp_path / "state"), KEY, out)
    state.close()


def test_the_output_must_be_a_file_that_is_appended_to(tmp_path):
    read, write = os.pipe()
    plain = os.open(tmp_path / "plain", os.O_WRONLY | os.O_CREAT)
    for fd in (write, plain):
        with pytest.raises(Error, match=">>FILE") as e:
            State(str(tmp_path / "state"), KEY, fd)
        assert e.value.code == 64
    for fd in (read, write, plain):
        os.close(fd)
