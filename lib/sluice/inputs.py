"""An input of `classify`: which of its bytes are looked at, and the text they are.

Of a mail the first MAIL_BYTES; mail.py makes the text. Of a text the first END_BYTES and the last END_BYTES, if it has more than both
together: what is between them would not be read by the model anyway. So memory and time are bounded whatever comes.
"""
from . import stream

MAIL_BYTES = (16 << 20) + 1  # one more than mail.py reads, so that it says so
END_BYTES = 128 << 10


def read(fd, is_mail):
    """The bytes to look at of what is on `fd`, which is read to its end: a writer is not killed for having more to say."""
    n_head, n_tail = (MAIL_BYTES, 0) if is_mail else (END_BYTES, END_BYTES + 1)  # one more, so that text() knows of it
    head, tail, n = [], b"", 0
    while chunk := stream.read_some(fd):
        first = chunk[:max(0, n_head - n)]
        n += len(first)
        if first:
            head.append(first)
        if n_tail and len(first) < len(chunk):
            tail = (tail + chunk[len(first):])[-n_tail:]
    return b"".join(head) + tail


def text(data, is_mail, fold):
    """(text as bytes, reasons, is_cut): the text of an input; what mail.py says of a mail, or None; whether its middle is left out."""
    if is_mail:
        from . import mail
        found = mail.read(data[:MAIL_BYTES])
        return found.text(fold=fold), found.reasons, False
    is_cut = len(data) > 2 * END_BYTES
    if is_cut:
        data = data[:END_BYTES] + data[-END_BYTES:]
    if fold:
        from . import plain
        data = plain.fold(data.decode("utf-8", "replace")).encode()
    return data, None, is_cut
