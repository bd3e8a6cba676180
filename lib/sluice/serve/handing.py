"""Hand whole messages to the workers: the protocol between the receiver and the workers.

All workers share one end of a pair of SOCK_SEQPACKET sockets, unix(7), and the receiver has the
other, so an idle worker takes the next message and no process needs to know which one is idle. A
packet to the workers is HEADER with two descriptors (SCM_RIGHTS): the file with the message, and
the connection of its client, to which the worker writes the answer. A packet to the receiver is
RESULT, for its statistics.

Every process of the daemon keeps both ends open until it exits. So packets survive the death of any
process, and no reader meets the end of the stream.

Nothing else can write to the pair. Yet a worker checks what comes: a packet that is no message is
dropped, and its descriptors are closed.
"""

import os
import socket
import stat
import struct
from typing import NamedTuple

from ..texts import inputs


class Message(NamedTuple):
    file: int  # a descriptor
    client: socket.socket
    accepted: float  # time.monotonic() of the connection
    complete: float  # and of the end of the message


class Result(NamedTuple):
    outcome: str  # one of OUTCOMES
    accepted: float
    complete: float
    taken: float  # by a worker
    answered: float


# accepted, complete, bytes of the file
HEADER = struct.Struct("=ddQ")
# index of OUTCOMES, accepted, complete, taken, answered
RESULT = struct.Struct("=Bdddd")
ANSWERS = ("yes", "no", "unsure")
ERRORS = ("timeout", "empty", "input", "memory", "model", "crashed")
# killed: the worker died with the message. left: the client was gone before the message was handed.
OUTCOMES = (*ANSWERS, *ERRORS, "killed", "left")
# bytes of a file: the first ones of a message, and the last ones of a text (texts/inputs.py)
HEAD_BYTES, TAIL_BYTES = inputs.MAIL_BYTES, inputs.END_BYTES + 1
MAX_BYTES = HEAD_BYTES + TAIL_BYTES
FLAGS = getattr(socket, "MSG_CMSG_CLOEXEC", 0) | socket.MSG_DONTWAIT


def pair() -> tuple[socket.socket, socket.socket]:
    """Return (the receiver's end, the workers' end), neither blocking.

    With the smallest buffer, poll(2) reports room for a packet until two wait. The others wait in
    the receiver, which knows if a client leaves.
    """
    giving, taking = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    giving.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
    giving.setblocking(False)
    taking.setblocking(False)
    return giving, taking


def give(
    giving: socket.socket, file: int, client: int, accepted: float, complete: float, n_bytes: int
) -> None:
    """Send a message; its descriptors stay open here. Raises BlockingIOError or OSError."""
    header = HEADER.pack(accepted, complete, n_bytes)
    socket.send_fds(giving, [header], [file, client], socket.MSG_DONTWAIT)


def take(taking: socket.socket) -> Message | None:
    """Return the next message; None for a packet that is none. Raises BlockingIOError."""
    data, fds, flags, _ = socket.recv_fds(taking, HEADER.size + 1, 2, FLAGS)
    try:
        if len(data) != HEADER.size or len(fds) != 2 or flags & socket.MSG_CTRUNC:
            return None
        accepted, complete, n_bytes = HEADER.unpack(data)
        s = os.fstat(fds[0])
        if not (stat.S_ISREG(s.st_mode) and s.st_size == n_bytes <= MAX_BYTES):
            return None
        if not stat.S_ISSOCK(os.fstat(fds[1]).st_mode):
            return None
        client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, 0, fds[1])
        client.setblocking(False)
        file = fds[0]
        fds = []
        return Message(file, client, accepted, complete)
    except OSError:
        return None
    finally:
        for fd in fds:
            os.close(fd)


def read(message: Message, is_mail: bool) -> bytes:
    """Return the bytes of a message that are classified, and close its file."""
    try:
        os.lseek(message.file, 0, os.SEEK_SET)
        return inputs.read(message.file, is_mail)
    finally:
        os.close(message.file)


def report(taking: socket.socket, result: Result) -> None:
    """Tell the receiver about an answer. If it does not read, the result is dropped."""
    try:
        taking.send(RESULT.pack(OUTCOMES.index(result.outcome), *result[1:]), socket.MSG_DONTWAIT)
    except OSError:
        pass


def results(giving: socket.socket) -> list[Result]:
    """Return the results that are there."""
    found: list[Result] = []
    while True:
        try:
            data = giving.recv(RESULT.size + 1, socket.MSG_DONTWAIT)
        except OSError:
            return found
        if not data:  # an empty packet
            return found
        if len(data) == RESULT.size and data[0] < len(OUTCOMES):
            index, *times = RESULT.unpack(data)
            found.append(Result(OUTCOMES[index], *times))
