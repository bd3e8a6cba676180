"""Read an input of `classify`, and convert it to the text that the prompt gets.

Memory and time are bounded for any input. Of a message the first MAIL_BYTES are used; sluice.mail
converts them to text. Of a longer text the first and the last END_BYTES are used: the prompt
drops the tokens between them in any case.
"""

from .. import stream
from ..faults import data_error

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

MAIL_BYTES = (16 << 20) + 1  # one more than sluice.mail reads, so that it reports the cut
END_BYTES = 128 << 10
NO_TEXT = "no-text"  # the reason of "unsure" for a message in which there is nothing to read


def read(fd: "Any", is_mail: bool, read_some: "Callable[[Any], bytes]" = stream.read_some) -> bytes:
    """Read `fd` to its end, so that no writer gets SIGPIPE, and return the bytes that are used.

    read_some(fd): returns the next bytes, b"" at the end.
    """
    # one byte more, by which text() knows of the cut
    n_head, n_tail = (MAIL_BYTES, 0) if is_mail else (END_BYTES, END_BYTES + 1)
    head, tail, n = [], b"", 0
    while chunk := read_some(fd):
        first = chunk[: max(0, n_head - n)]
        n += len(first)
        if first:
            head.append(first)
        if n_tail and len(first) < len(chunk):
            tail = (tail + chunk[len(first) :])[-n_tail:]
    return b"".join(head) + tail


def read_stdin(is_mail: bool) -> bytes:
    """Call `read` on stdin. Raises DataError if it is empty or a directory, or OSError."""
    try:
        data = read(0, is_mail)
    except IsADirectoryError:
        raise data_error("standard input", "is a directory") from None
    if not data:
        raise data_error("standard input", "no text: the input is empty")
    return data


def text(data: bytes, is_mail: bool, fold: bool) -> tuple[bytes, bytes | None, list[str] | None]:
    """Convert an input to (text, rest, reasons).

    text: the whole text, or that of the head if the middle is dropped. rest: the text of the tail
    in that case, else None. reasons: the problems that sluice.mail found in a message, and NO_TEXT
    where it has neither text nor links; or None.
    """
    if is_mail:
        from ..mail import message

        found = message.read(data[:MAIL_BYTES])
        is_read = found.body or found.links
        return found.text(fold=fold), None, found.reasons + ([] if is_read else [NO_TEXT])
    if len(data) <= 2 * END_BYTES:
        return form(data, fold), None, None
    return form(data[:END_BYTES], fold), form(data[-END_BYTES:], fold), None


def form(data: bytes, fold: bool) -> bytes:
    """What the prompt gets of the text `data`."""
    if not fold:
        return data
    from ..mail import normalize

    return normalize.fold(data.decode("utf-8", "replace")).encode()
