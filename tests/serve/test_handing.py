"""How messages are handed to workers: any packet, also one that no receiver sends, leaves the
worker in order and no descriptor open.
"""

import contextlib
import os
import random
import socket
import struct
import sys
import tempfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from worker_process import DATA

from sluice.serve import body, handing
from sluice.texts import inputs

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")


def file_of(data):
    f = tempfile.TemporaryFile(buffering=0)
    f.write(data)
    return f


def n_open():
    return len(os.listdir("/proc/self/fd"))


@pytest.fixture
def pair():
    """The two ends of handing.pair, and a check that nothing stays open."""
    before = n_open()
    giving, taking = handing.pair()
    yield giving, taking
    giving.close()
    taking.close()
    assert n_open() == before


def test_message_arrives_with_its_client(pair):
    giving, taking = pair
    here, there = socket.socketpair()
    with file_of(DATA[0]) as f:
        handing.give(giving, f.fileno(), there.fileno(), 1.5, 2.5, len(DATA[0]))
    there.close()
    m = handing.take(taking)
    assert (m.accepted, m.complete) == (1.5, 2.5)
    assert handing.read(m, True) == DATA[0]
    m.client.send(b"line\n")
    m.client.close()
    assert here.recv(99) == b"line\n" and here.recv(9) == b""
    here.close()
    with pytest.raises(BlockingIOError):
        handing.take(taking)


def test_few_messages_wait_out_of_reach_of_the_receiver(pair):
    """poll reports room until two wait: more could not be taken back if their clients leave."""
    import select

    giving, taking = pair
    poll = select.poll()
    poll.register(giving, select.POLLOUT)
    n = 0
    here, there = socket.socketpair()
    with file_of(b"x") as f:
        while poll.poll(0):
            handing.give(giving, f.fileno(), there.fileno(), 0.0, 0.0, 1)
            n += 1
    assert 1 <= n <= 4
    for _ in range(n):
        assert not poll.poll(0) or n > 1
        m = handing.take(taking)
        assert handing.read(m, True) == b"x"
        m.client.close()
    assert poll.poll(0)
    here.close()
    there.close()


def kinds(stack):
    """Descriptors of all kinds: {name: descriptor}."""
    reader, writer = os.pipe()
    stack.callback(os.close, reader)
    stack.callback(os.close, writer)
    here, there = socket.socketpair()
    stack.enter_context(here)
    directory = os.open(".", os.O_RDONLY)
    stack.callback(os.close, directory)
    nothing = os.open("/dev/null", os.O_RDWR)
    stack.callback(os.close, nothing)
    endless = os.open("/dev/zero", os.O_RDWR)
    stack.callback(os.close, endless)
    path = os.open("/", os.O_PATH)
    stack.callback(os.close, path)
    return {
        "file": stack.enter_context(file_of(b"message")).fileno(),
        "empty": stack.enter_context(file_of(b"")).fileno(),
        "socket": stack.enter_context(there).fileno(),
        "datagram": stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)).fileno(),
        "reader": reader,
        "writer": writer,
        "directory": directory,
        "nothing": nothing,
        "endless": endless,
        "path": path,
    }


NAMES = [
    "file",
    "empty",
    "socket",
    "datagram",
    "reader",
    "writer",
    "directory",
    "nothing",
    "endless",
    "path",
]
header = st.one_of(
    st.binary(max_size=2 * handing.HEADER.size),
    st.builds(
        handing.HEADER.pack,
        st.floats(),
        st.floats(),
        st.one_of(st.sampled_from([0, 6, 7, 8, 1 << 24, 1 << 63]), st.integers(0, (1 << 64) - 1)),
    ),
)


@given(st.lists(st.tuples(header, st.lists(st.sampled_from(NAMES), max_size=5)), max_size=4))
@settings(max_examples=300)
def test_any_packet_leaves_the_worker_in_order(packets):
    before = n_open()
    with contextlib.ExitStack() as stack:
        giving, taking = handing.pair()
        stack.enter_context(giving)
        stack.enter_context(taking)
        files = kinds(stack)
        giving.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 16)
        held = n_open()
        for data, names in packets:
            fds = [files[name] for name in names]
            ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack(f"{len(fds)}i", *fds))]
            giving.sendmsg([data], ancillary if fds else [])
        for data, names in packets:
            m = handing.take(taking)
            is_message = (
                len(data) == handing.HEADER.size
                and len(names) == 2
                and names[0] in ("file", "empty")
                and names[1] in ("socket", "datagram")
                and handing.HEADER.unpack(data)[2] == {"file": 7, "empty": 0}[names[0]]
            )
            assert (m is not None) == is_message, (data, names)
            if m:
                assert handing.read(m, True) == {"file": b"message", "empty": b""}[names[0]]
                m.client.close()
            assert n_open() == held
        with pytest.raises(BlockingIOError):
            handing.take(taking)
    assert n_open() == before


@given(st.lists(st.binary(max_size=2 * handing.RESULT.size), max_size=8))
@settings(max_examples=200)
def test_any_result_leaves_the_receiver_in_order(packets):
    giving, taking = handing.pair()
    with giving, taking:
        for data in packets:
            taking.send(data)
        result = handing.Result("no", 1.0, 2.0, 3.0, 4.0)
        handing.report(taking, result)
        found = []
        for _ in range(len(packets) + 1):  # an empty packet ends a round
            found += handing.results(giving)
        assert found[-1] == result and {r.outcome for r in found} <= set(handing.OUTCOMES)


def test_results_that_nobody_reads_are_dropped(pair):
    giving, taking = pair
    result = handing.Result("yes", 1.0, 2.0, 3.0, 4.0)
    for _ in range(10_000):
        handing.report(taking, result)
    found = handing.results(giving)
    assert 0 < len(found) < 10_000 and set(found) == {result}


# The bytes that are kept.

sizes = st.lists(st.integers(1, 60), max_size=30)


@given(sizes, st.integers(0, 200), st.integers(0, 200))
@settings(max_examples=300)
def test_head_and_tail_of_a_message_are_kept(chunks, kept, total):
    """For any chunks: the first 100 bytes and the last 70 of the rest, in memory or in a file."""
    small = {
        "HEAD_BYTES": 100,
        "TAIL_BYTES": 70,
        "KEPT_BYTES": min(kept, 99),
        "TOTAL_BYTES": total,
    }
    before = n_open()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in small.items():
            patch.setattr(body, name, value)
        memory = body.Memory()
        data = random.Random(sum(chunks)).randbytes(sum(chunks))
        other = body.Body(memory)  # in memory, too
        other.add(memoryview(b"x" * 20))
        b, at = body.Body(memory), 0
        for n in chunks:
            b.add(memoryview(data)[at : at + n])
            at += n
            assert memory.n_bytes <= max(total, 0)
        b.finish()
        fd, n_bytes = b.file()
        found = os.pread(fd, 999, 0)
        assert found == data[:100] + data[100:][-70:] and n_bytes == len(found)
        assert b.n_bytes == len(data)
        b.close()
        other.close()
        assert memory.n_bytes == 0
    assert n_open() == before


@pytest.mark.parametrize("is_mail", [True, False])
@pytest.mark.parametrize(
    "n_bytes",
    [
        1,
        2 * inputs.END_BYTES + 1,
        inputs.MAIL_BYTES - 1,
        inputs.MAIL_BYTES + 1,
        inputs.MAIL_BYTES + 3 * inputs.END_BYTES + 7,
    ],
)
def test_kept_bytes_have_what_is_read_of_the_whole(pair, n_bytes, is_mail):
    giving, taking = pair
    data = random.Random(n_bytes).randbytes(n_bytes)
    b, view = body.Body(body.Memory()), memoryview(data)
    for at in range(0, n_bytes, 50_000):
        b.add(view[at : at + 50_000])
    b.finish()
    fd, n_kept = b.file()
    here, there = socket.socketpair()
    with here, there:
        handing.give(giving, fd, there.fileno(), 0.0, 0.0, n_kept)
        b.close()
        m = handing.take(taking)
        chunks = iter([data, b""])
        assert handing.read(m, is_mail) == inputs.read(0, is_mail, lambda fd: next(chunks))
        m.client.close()
