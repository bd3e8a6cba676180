"""The X-Spam headers of a message: remove those it came with, add those of a verdict. The rules are
in csrc/mail/marking.c.
"""

from ..kernels import ffi, lib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mmap import mmap


def headers(line: bytes) -> bytes:
    """Make the headers of a verdict, each with its newline.

    line: "yes 0.9931 0.9386 3f9a0c1b2d4e5f60", "error timeout" and the like, as `classify --long`
    and its workers print it. Raises ValueError for any other line.
    """
    verdict, out = ffi.new("mail_verdict *"), ffi.new("char[]", lib.MARK_BYTES)
    if lib.mark_read(verdict, line, len(line)):
        raise ValueError(f"not a verdict: {line!r}")
    return bytes(ffi.buffer(out, lib.mark_headers(out, verdict)))


def beginning(mail: "bytes | mmap", head: bytes) -> tuple[bytes, int]:
    """Return (bytes, n): the replacement for the first n bytes of a message.

    The result has no X-Spam headers at top level but those of `head`, made by `headers`, at the
    top. mail: bytes, or an object with a buffer.
    """
    m, data = ffi.new("mail_marking *"), ffi.from_buffer("uint8_t[]", mail)
    lib.mark_mail(m, ffi.NULL, data, len(mail), head, len(head))
    out = ffi.new("uint8_t[]", max(1, m.n_out))
    lib.mark_mail(m, out, data, len(mail), head, len(head))
    return ffi.buffer(out, m.n_out)[:], m.n_read


def mark(mail: bytes, head: bytes) -> bytes:
    """Return the message with its new `beginning`."""
    new, n_read = beginning(mail, head)
    return new + mail[n_read:]
