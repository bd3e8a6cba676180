"""A worker: one connection after another, within limits that hold whatever comes.

The line that answers: `yes`, `no` or `unsure` (the first answer of the question, another one,
none), the probability of the first answer, the one it needs, and 16 hex digits of the model's id.
Or `error` and one of these words:

    timeout  the client took longer than SEND_SECONDS to send the mail
    empty    there was nothing
    input    nothing to judge: no text, and none around it
    memory   not enough of it
    model    the model's file was changed while it is in use, or gives no numbers
    crashed  a bug of ours

A mail that takes longer than ANSWER_SECONDS ends the worker by SIGALRM; the client reads the end of
file without a line.
"""

import os
import resource
import select
import signal
import time

from .. import messages
from ..classify import inputs
from ..faults import OUR_BUG, Error, Exit
from ..kernels import lib
from ..system import memory

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from typing import Any

    from ..classify.classifier import Classifier

SEND_SECONDS = 10
ANSWER_SECONDS = 10
# bytes that a worker may map beyond what it has when it begins, and its threads need
MEMORY = 1 << 30
# bytes of a thread: its stack (csrc/runtime/threads.c), and keys and values that attention holds
# (MOST_HELD of csrc/kernels/attention_cut.c)
THREAD = 5 << 20
# bytes: a worker that holds more than when it began is replaced by one that does not, so that none
# stays large
MAX_GROWTH = 64 << 20
CHUNK_BYTES = 1 << 18


def serve(
    listener: "socket.socket",
    life: int,
    classifier: "Classifier",
    slots: "Any",
    slot: int,
    threads: int,
    verbose: bool,
) -> None:
    """Answer connections of `listener` (not blocking) until `life`, the reading end of a pipe, is
    at its end.

    Those that wait for a listener that was shut down are answered before. slots: shared bytes;
    slots[slot] is set with the first mail, the last one by the first worker that finds the model
    changed.
    """
    limit(threads)
    if threads > 1:
        lib.threads_start(threads)
    poll = select.epoll()
    poll.register(listener, select.EPOLLIN | select.EPOLLEXCLUSIVE)
    poll.register(life, select.EPOLLIN)
    is_over = is_shut = False
    most = _held() + MAX_GROWTH + threads * THREAD
    if memory.now() is None:
        most += classifier.model.file.size
    while not is_over or is_shut:
        if not is_over:
            events = dict(poll.poll())
            is_over, ready = life in events, events.get(listener.fileno(), 0)
            is_shut = bool(is_over and ready & select.EPOLLHUP)
            if not ready:
                continue
        try:
            # at the end too: who came may have woken this worker and no other (EPOLLEXCLUSIVE)
            connection, _ = listener.accept()
        except BlockingIOError:
            if is_over:
                return
            continue
        slots[slot] = 1
        with connection:
            _answer(connection, classifier, slots, verbose)
        if _held() > most + classifier.buffer_bytes():
            return


def _held():
    """Bytes beyond mapped files; where the kernel does not say, the most that there ever were, the
    model's file among them.
    """
    own = memory.now()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10 if own is None else own


def limit(threads: int) -> None:
    """No core file, and MEMORY beyond what is mapped now and what so many threads need."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        with open("/proc/self/statm") as f:
            mapped = int(f.read().split()[0]) * resource.getpagesize()
    except OSError:
        return
    most = mapped + MEMORY + threads * THREAD
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    if soft == resource.RLIM_INFINITY or soft > most:
        resource.setrlimit(resource.RLIMIT_AS, (most, hard))


def _answer(connection, classifier, slots, verbose):
    """Read a mail and send the line for it."""
    began, n_bytes, n_tokens, error = time.monotonic(), 0, 0, None
    try:
        data = receive(connection, classifier.is_mail)
        n_bytes = len(data)
        if not data:
            error = "empty"
        else:
            signal.setitimer(signal.ITIMER_REAL, ANSWER_SECONDS)
            v = classifier.ask(data)
            n_tokens, reply = v.n_tokens, classifier.line(v)
    except TimeoutError:
        error = "timeout"
    except MemoryError:
        error = "memory"
    except Error as e:
        error = "input" if str(e).startswith("input: ") else "model"
        if error == "model" and not slots[-1]:
            slots[-1] = 1
            messages.say(
                f"{e}; when it is as it should be, send SIGHUP to the first process of this worker"
            )
    except OSError:  # of the connection: nobody is there to read an answer
        error = "input"
    except Exception as e:
        error = "crashed"
        # the text of an exception may be that of a mail
        bug = f"internal error: {type(e).__name__} at {where(e)}"
    signal.setitimer(signal.ITIMER_REAL, 0)
    try:
        connection.settimeout(0)
        connection.sendall(f"error {error}\n".encode() if error else reply)
    except OSError:  # the client has gone
        pass
    if verbose:
        word = {"error": error} if error else {"answer": reply.split()[0].decode()}
        messages.report(
            pid=os.getpid(),
            **word,
            bytes=n_bytes,
            tokens=n_tokens,
            ms=1e3 * (time.monotonic() - began),
        )
    if error == "crashed":
        messages.say(bug)
        raise Exit(OUR_BUG)
    if error == "memory":
        raise Exit(0)  # a new worker has what this one has lost


def receive(connection: "socket.socket", is_mail: bool) -> bytes:
    """The bytes to look at of what a client sends until it ends; TimeoutError if that takes longer
    than SEND_SECONDS.
    """
    end = time.monotonic() + SEND_SECONDS

    def read_some(s):
        left = end - time.monotonic()
        if left <= 0:
            raise TimeoutError
        s.settimeout(left)
        return s.recv(CHUNK_BYTES)

    return inputs.read(connection, is_mail, read_some)


def where(e: BaseException) -> str:
    """Where an exception was raised, "file.py:line": what can be logged of one whose text may be
    that of a mail.
    """
    at: Any = e.__traceback__
    while at.tb_next:
        at = at.tb_next
    return f"{os.path.basename(at.tb_frame.f_code.co_filename)}:{at.tb_lineno}"
