"""`classify --pass-through`: the mail on stdin on stdout, with the X-Spam headers of
mail/headers.py; whole, or not at all.

The whole mail is read first, up to KEPT_BYTES in memory, a larger one in a temporary file without a
name. Then a child of this process judges it: whatever ends the child (a model that is gone, no
memory, a bug, kill -9, SECONDS), the mail is here, and is written with a reason instead of a
verdict. Nothing is written before that, so who reads us and finds our status is not 0 after no byte
at all still has the mail as it was.
"""

import mmap
import os
import select
import signal
import time

from .. import messages, stream
from ..classify import inputs
from ..faults import IO_ERROR, Error
from ..mail import headers
from ..system.files import write_error

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from ..classify.classifier import Classifier

KEPT_BYTES = inputs.MAIL_BYTES
SECONDS = 60  # for the verdict
LINE_BYTES = 256


def run(load: "Callable[[], Classifier]") -> None:
    """Read, judge with the Classifier that load() gives, write. Error 75: no room for the mail;
    OSError: it cannot be read or written.
    """
    mail = read(0)
    line = judge(memoryview(mail)[: inputs.MAIL_BYTES], load) if mail else b"error empty"
    head, n_read = headers.beginning(mail, headers.headers(line))
    stream.write_all(1, head)
    stream.write_all(1, memoryview(mail)[n_read:])


def read(fd: int) -> bytes | mmap.mmap:
    """All that is on `fd`, as bytes or as the map of a private file."""
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


def _temporary():
    import tempfile

    try:
        return tempfile.TemporaryFile(buffering=0)
    except OSError as e:
        raise write_error("a temporary file", e) from None


def _write(spool, data):
    try:
        stream.write_all(spool.fileno(), data)
    except OSError as e:
        raise write_error("a temporary file", e) from None


def judge(data: bytes | memoryview, load: "Callable[[], Classifier]") -> bytes:
    """The line of a worker (connection.py), without its newline, for a mail: by a child, within
    SECONDS.
    """
    reader, writer = os.pipe()
    try:
        pid = os.fork()
    except OSError as e:
        messages.say(f"not judged: {e.strerror}")
        return b"error memory"
    if not pid:
        _answer(data, load, writer)
    os.close(writer)
    line, end = b"", time.monotonic() + SECONDS
    # select(2) takes no descriptor from 1024 on, and many may have been inherited
    ready = select.poll()
    ready.register(reader, select.POLLIN)
    while len(line) < LINE_BYTES and ready.poll(max(0, 1e3 * (end - time.monotonic()))):
        part = os.read(reader, LINE_BYTES)
        if not part:
            break
        line += part
    is_late = time.monotonic() >= end
    os.kill(pid, signal.SIGKILL)  # ours until we wait for it; it may have ended
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if line.endswith(b"\n"):
        return line[:-1]
    if is_late:
        messages.say(f"not judged: no verdict after {SECONDS} s")
        return b"error timeout"
    if status == IO_ERROR:  # csrc/runtime/guard.c: the model's file was cut while it was mapped
        return b"error model"
    messages.say(
        "not judged: the process for it"
        f" {f'ended with {status}' if status >= 0 else f'was killed by signal {-status}'}"
    )
    return b"error crashed"


def _answer(data, load, writer):
    """The child: never returns."""
    try:
        signal.alarm(2 * SECONDS)  # where the parent was killed
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.write(writer, _line(data, load))
    finally:
        os._exit(0)


def _line(data, load):
    stage = "model"
    try:
        classifier = load()
        stage = "input"
        return classifier.line(classifier.ask(bytes(data)))
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

        # its text may be that of the mail
        stage, why = "crashed", f"internal error: {type(e).__name__} at {connection.where(e)}"
    messages.say(f"not judged: {why}")
    return f"error {stage}\n".encode()
