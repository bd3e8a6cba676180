"""A worker process: answer one message after another, within limits.

The reply is one line: `yes`, `no` or `unsure` (the first answer of the question, another one,
none), the probability of the first answer, its threshold, and 16 hex digits of the model ID; then,
to a client that asks for them (request.py), further words. Or `error` and one of these words:

    timeout  the client took longer than SEND_SECONDS to send the message (receiver.py)
    empty    the client sent nothing (receiver.py)
    input    the message has no text to classify
    memory   out of memory, or of space or descriptors while the message was received
    model    the model's file was changed while in use, or its logits are no numbers
    crashed  a bug in this program

A message that takes longer than ANSWER_SECONDS ends the worker by SIGALRM; the client reads the end
of file without a line.
"""

import os
import resource
import select
import signal
import time

from .. import messages
from ..classify import further_words
from ..faults import OUR_BUG, Error, Exit
from ..kernels import lib
from ..system import memory
from . import handing, request

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from typing import Any

    from ..classify.classifier import Classifier, Verdict

SEND_SECONDS = 10
ANSWER_SECONDS = 10
# bytes that a worker may map beyond its own at the start and those of its threads
MEMORY = 1 << 30
# bytes of a thread: its stack (csrc/runtime/threads.c), and the keys and values that attention
# caches (csrc/kernels/attention_cut.c)
THREAD = 5 << 20
# bytes: a worker that has grown by more is replaced
MAX_GROWTH = 64 << 20
# values of a byte of `slots`
IDLE, BUSY = 1, 2


def serve(
    taking: "socket.socket",
    life: int,
    classifier: "Classifier",
    slots: "Any",
    slot: int,
    threads: int,
    verbose: bool,
) -> None:
    """Answer the messages that come through `taking` (handing.py) until `life`, the reading end of
    a pipe, is at its end.

    slots: shared bytes. slots[slot] is 0 before the first message, then BUSY or IDLE; the last byte
    is set by the first worker that finds the model changed.
    """
    limit(threads)
    if threads > 1:
        lib.threads_start(threads)
    poll = select.epoll()
    poll.register(taking, select.EPOLLIN | select.EPOLLEXCLUSIVE)
    poll.register(life, select.EPOLLIN)
    is_over = False
    max_bytes = _used() + MAX_GROWTH + threads * THREAD
    if memory.now() is None:
        max_bytes += classifier.model.file.size
    while not is_over:
        events = dict(poll.poll())
        is_over = life in events
        if taking.fileno() not in events:
            continue
        try:
            # at the end, too: a message may have woken this worker alone (EPOLLEXCLUSIVE)
            message = handing.take(taking)
        except BlockingIOError:
            continue
        if message is None:
            continue
        slots[slot] = BUSY
        with message.client:
            _answer(message, taking, classifier, slots, verbose)
        if classifier.auto and classifier.auto.is_due:
            classifier.auto.save_aside()
        slots[slot] = IDLE
        if _used() > max_bytes + classifier.buffer_bytes():
            return


def _used() -> int:
    """Bytes in memory without mapped files; if the kernel does not tell, the peak, with the model's
    file.
    """
    own = memory.now()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10 if own is None else own


def limit(threads: int) -> None:
    """Limit this process: no core file, and MEMORY beyond what is mapped now and THREAD per
    thread.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        with open("/proc/self/statm") as f:
            mapped = int(f.read().split()[0]) * resource.getpagesize()
    except OSError:
        return
    max_bytes = mapped + MEMORY + threads * THREAD
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    if soft == resource.RLIM_INFINITY or soft > max_bytes:
        resource.setrlimit(resource.RLIMIT_AS, (max_bytes, hard))


def _answer(
    message: handing.Message,
    taking: "socket.socket",
    classifier: "Classifier",
    slots: "Any",
    verbose: bool,
) -> None:
    """Classify a message and send its line to the client, and its times to the receiver."""
    taken, n_bytes, n_tokens, error, is_lost = time.monotonic(), 0, 0, None, False
    try:
        data = handing.read(message, classifier.is_mail)
        n_bytes = len(data)
        signal.setitimer(signal.ITIMER_REAL, ANSWER_SECONDS)
        v, reply = _reply(classifier, data, request.of(message.client))
        n_tokens = v.n_tokens
        if classifier.auto:
            classifier.auto.note(v)
    except MemoryError:
        error, is_lost = "memory", True
    except Error as e:
        error = "input" if str(e).startswith("input: ") else "model"
        if error == "model" and not slots[-1]:
            slots[-1] = 1
            messages.say(
                f"{e}; once the file is in order, send SIGHUP to the first process of this worker"
            )
    except OSError:  # a temporary file cannot be read
        error = "memory"
    except Exception as e:
        error = "crashed"
        # the text of an exception may quote the message
        bug = f"internal error: {type(e).__name__} at {where(e)}"
    signal.setitimer(signal.ITIMER_REAL, 0)
    answer = error or reply.split()[0].decode()
    try:
        message.client.send(f"error {error}\n".encode() if error else reply)
    except OSError:  # the client has gone
        pass
    answered = time.monotonic()
    handing.report(
        taking, handing.Result(answer, message.accepted, message.complete, taken, answered)
    )
    if verbose:
        word = {"error": error} if error else {"answer": answer}
        messages.report(
            pid=os.getpid(),
            **word,
            bytes=n_bytes,
            tokens=n_tokens,
            ms=1e3 * (answered - message.accepted),
        )
    if error == "crashed":
        messages.say(bug)
        raise Exit(OUR_BUG)
    if is_lost:
        raise Exit(0)  # a new worker has the memory that this one has lost


def _reply(
    classifier: "Classifier", data: bytes, asked: request.Request
) -> "tuple[Verdict, bytes]":
    if classifier.rules:
        classifier.rules.client = asked.client
    if classifier.users:
        with classifier.users.used(classifier, asked.user):
            v = classifier.ask(data)
    else:
        v = classifier.ask(data)
    if not asked.has_words:
        return v, classifier.line(v)
    return v, further_words.line(classifier, v, data, asked.explains)


def where(e: BaseException) -> str:
    """Where an exception was raised, "file.py:line", for the log: its text may quote a message."""
    at: Any = e.__traceback__
    while at.tb_next:
        at = at.tb_next
    return f"{os.path.basename(at.tb_frame.f_code.co_filename)}:{at.tb_lineno}"
