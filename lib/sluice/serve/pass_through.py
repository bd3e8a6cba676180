"""`classify --pass-through`: copy a message from stdin to stdout and add the X-Spam headers of
mail/headers.py.

The whole message is read first: up to KEPT_BYTES into memory, a larger one into a temporary file
without a name. Then a child process classifies it. If the child fails (no model, no memory, a bug,
kill -9, SECONDS), the message is written with a reason instead of a verdict. Nothing is written
before that: a caller that sees no output and a status other than 0 still has the message.
"""

import mmap
import os
import select
import signal
import time

from .. import messages, stream
from ..classify import further_words
from ..faults import IO_ERROR, Error
from ..mail import headers
from ..system.files import write_error
from ..texts import inputs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NoReturn

    from ..classify.classifier import Classifier

KEPT_BYTES = inputs.MAIL_BYTES
SECONDS = 60  # for the verdict
LINE_BYTES = 512


def run(load: "Callable[[], Classifier]", explain: bool = False, learns: bool = False) -> None:
    """Read, classify with the Classifier that load() returns, write. explain: add X-Spam-Explain.
    learns: it has an auto.Auto, whose work is waited for after that. Error 75: no space for the
    message; OSError: it cannot be read or written.
    """
    mail = read(0)
    line, end = b"error empty", lambda: None
    if mail:
        line, end = classify(memoryview(mail)[: inputs.MAIL_BYTES], load, explain, learns)
    try:
        head, n_read = headers.beginning(mail, headers.headers(line))
        stream.write_all(1, head)
        stream.write_all(1, memoryview(mail)[n_read:])
    finally:
        end()


def read(fd: int) -> bytes | mmap.mmap:
    """Read `fd` to its end; return bytes, or the map of a private file."""
    parts, n_bytes, spool = [], 0, None
    while chunk := stream.read_some(fd):
        n_bytes += len(chunk)
        if spool is None and n_bytes > KEPT_BYTES:
            spool, parts = _temporary(), [*parts, chunk]
            for part in parts:
                _write(spool, part)
            parts = []
        elif spool:
            _write(spool, chunk)
        else:
            parts.append(chunk)
    if spool is None:
        return b"".join(parts)
    return mmap.mmap(spool.fileno(), n_bytes, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ)


def _temporary() -> "Any":
    import tempfile

    try:
        return tempfile.TemporaryFile(buffering=0)
    except OSError as e:
        raise write_error("a temporary file", e) from None


def _write(spool: "Any", data: bytes) -> None:
    try:
        stream.write_all(spool.fileno(), data)
    except OSError as e:
        raise write_error("a temporary file", e) from None


def classify(
    data: bytes | memoryview,
    load: "Callable[[], Classifier]",
    explain: bool = False,
    learns: bool = False,
) -> "tuple[bytes, Callable[[], None]]":
    """Classify a message in a child process, within SECONDS.

    Returns the line of a worker with further words (connection.py), without its newline, and a
    function that ends the child; with `learns`, when the child has learned, or after SECONDS.
    """
    nothing: Callable[[], None] = lambda: None
    reader, writer = os.pipe()
    try:
        pid = os.fork()
    except OSError as e:
        messages.say(f"not classified: {e.strerror}")
        return b"error memory", nothing
    if not pid:
        _answer(data, load, explain, writer)
    os.close(writer)
    line, end = b"", time.monotonic() + SECONDS
    # not select(2), which fails for descriptors from 1024 on: many may have been inherited
    ready = select.poll()
    ready.register(reader, select.POLLIN)
    while len(line) < LINE_BYTES and ready.poll(max(0, 1e3 * (end - time.monotonic()))):
        part = os.read(reader, LINE_BYTES)
        if not part:
            break
        line += part
    is_late = time.monotonic() >= end
    if learns and line.endswith(b"\n"):
        return line[:-1], lambda: _wait(pid, reader)
    os.close(reader)
    os.kill(pid, signal.SIGKILL)  # its PID is reserved until waitpid; it may have ended
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if line.endswith(b"\n"):
        return line[:-1], nothing
    if is_late:
        messages.say(f"not classified: no verdict after {SECONDS} s")
        return b"error timeout", nothing
    if status == IO_ERROR:  # csrc/runtime/guard.c: the model's file was cut while it was mapped
        return b"error model", nothing
    messages.say(
        "not classified: the process for it"
        f" {f'ended with {status}' if status >= 0 else f'was killed by signal {-status}'}"
    )
    return b"error crashed", nothing


def _wait(pid: int, reader: int) -> None:
    """Wait until the child closes its end of the pipe, at most SECONDS; then end it."""
    ready = select.poll()
    ready.register(reader, select.POLLIN)
    ready.poll(1e3 * SECONDS)
    os.close(reader)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def _answer(
    data: bytes | memoryview, load: "Callable[[], Classifier]", explain: bool, writer: int
) -> "NoReturn":
    """The child: never returns."""
    try:
        signal.alarm(2 * SECONDS)  # where the parent was killed
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        _write_line(data, load, explain, writer)
    finally:
        os._exit(0)


def _write_line(
    data: bytes | memoryview, load: "Callable[[], Classifier]", explain: bool, writer: int
) -> None:
    line, learn = _line(data, load, explain)
    os.write(writer, line)
    try:
        learn()
    except (Error, OSError) as e:
        messages.say(f"not learned: {e}")


def _line(
    data: bytes | memoryview, load: "Callable[[], Classifier]", explain: bool
) -> "tuple[bytes, Callable[[], None]]":
    """The line, and a function to call when it is written."""
    stage = "model"
    try:
        classifier = load()
        stage = "input"
        message = bytes(data)
        v = classifier.ask(message)
        from ..learn import asked

        line = further_words.line(classifier, v, message, explain)
        return line, lambda: asked.keep(classifier, v)
    except MemoryError:
        stage, why = "memory", "out of memory"
    except ImportError as e:  # a library that is there could not be mapped
        stage, why = "memory", str(e)
    except (Error, OSError) as e:
        why = str(e)
        if isinstance(e, OSError) and e.filename:
            why = f"{e.filename}: {e.strerror}"
        if stage == "input" and not (isinstance(e, Error) and why.startswith("input: ")):
            stage = "model"  # it was changed while it was read
    except BaseException as e:
        from . import connection

        # its text may quote the message
        stage, why = "crashed", f"internal error: {type(e).__name__} at {connection.where(e)}"
    messages.say(f"not classified: {why}")
    return f"error {stage}\n".encode(), lambda: None
