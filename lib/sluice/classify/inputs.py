"""An input of `classify`: which of its bytes are looked at, and the text they are.

Of a mail the first MAIL_BYTES; sluice.mail makes the text. Of a text the first END_BYTES and the
last END_BYTES, if it has more than both together: what is between them would not be read by the
model anyway. So memory and time are bounded whatever comes.
"""

import os

from .. import stream
from ..faults import data_error

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

MAIL_BYTES = (16 << 20) + 1  # one more than sluice.mail reads, so that it says so
END_BYTES = 128 << 10


def read(fd: "Any", is_mail: bool, read_some: "Callable[[Any], bytes]" = stream.read_some) -> bytes:
    """The bytes to look at of what is on `fd`, which is read to its end: a writer is not killed for
    having more to say.

    read_some(fd): the next bytes, b"" at the end.
    """
    # one more, so that text() knows of it
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


def read_file(path: str | None, is_mail: bool) -> bytes:
    """`read` of the file at `path`, or of stdin (None, "-"). DataError where it is empty or a
    directory, OSError.
    """
    fd = 0 if path in (None, "-") else os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        data = read(fd, is_mail)
    except IsADirectoryError:
        raise data_error(path or "standard input", "is a directory") from None
    if not data:
        raise data_error(path or "standard input", "no text: it is empty")
    return data


def text(data: bytes, is_mail: bool, fold: bool) -> tuple[bytes, bytes | None, list[str] | None]:
    """(text, rest, reasons) of an input. text: as bytes, of the head alone where the middle is left
    out; rest: then that of the tail, else None; reasons: what sluice.mail says of a mail, or None.
    """
    if is_mail:
        from ..mail import message

        found = message.read(data[:MAIL_BYTES])
        return found.text(fold=fold), None, found.reasons
    if len(data) <= 2 * END_BYTES:
        return _form(data, fold), None, None
    return _form(data[:END_BYTES], fold), _form(data[-END_BYTES:], fold), None


def _form(data, fold):
    if not fold:
        return data
    from ..mail import normalize

    return normalize.fold(data.decode("utf-8", "replace")).encode()
